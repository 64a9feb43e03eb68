//! The hub with mock engines over HTTP ([`super::mock`]): its overhead over engines of known latency, with one session
//! and under load.
//!
//! `mocks`: engines with zero latency; 200 ms of silence end a turn. One session, then a hundred on the same hub. The
//! hub runs on one core, the load and the mock engines on another. Each session's question carries a mark that must
//! return in transcript, response and voice. `speculation`: engines of 100 ms per stage and 10 ms per word, one
//! session, with and without speculative responses. The definitions are those of [`super::load`], which runs the
//! conversations.

use super::hub_process::{Engines, Hub};
use super::load::{self, Clip, Clips, Length, Load, Network, Outcome, Sign};
use super::mock::{self, Latencies};
use super::noise::best_vad;
use super::pinning::LoadAffinity;
use super::questions::{speak, speaker};
use super::voice_to_voice::{SILENCE_MS, session};
use super::{BenchError, Figure, Measure, Measurement, Plan, Progress, Section, Unit, name_of};
use antiphon_client::ConnectOptions;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// The spoken text, short enough for many turns per minute.
const SAID: &str = "Hello, can you help me please?";
/// Playing time of each chunk of a response.
pub(super) const SOUND: Duration = Duration::from_millis(600);

const TURNS_ALONE: usize = 20;
const N_TOGETHER: usize = 100;
const TURNS_TOGETHER: usize = 5;
/// Approximate duration of a turn; the starts of the sessions are spread over it.
const PERIOD: Duration = Duration::from_millis(3_500);

const ALONE_P50_MS: f64 = 250.0;
const ALONE_P95_MS: f64 = 285.0;
const TOGETHER_MORE_MS: f64 = 25.0;
const TOGETHER_PERCENT: f64 = 0.5;
const TOGETHER_KIB: f64 = 1024.0;
/// Every session speaks half of the time.
const SILERO_PERCENT: f64 = 0.9;
const SPECULATIVE_P50_MS: f64 = 500.0;

/// Mock engines and a hub that uses them; dropping it stops both.
pub(super) struct Pair {
    pub(super) hub: Hub,
    mock: Hub,
}

impl Pair {
    /// Starts both; `settings` are the hub's, as `section.key=value`. If pinned, the hub runs on core 1 and the mock on
    /// core 0.
    pub(super) async fn start(
        plan: &Plan,
        latencies: Latencies,
        settings: &[&str],
        pinned: Option<&LoadAffinity>,
    ) -> Result<Self, BenchError> {
        let mock = Hub::spawn(&plan.mock, &arguments(latencies)).await?;
        let command = pinned.map_or_else(|| plan.hub.clone(), |pinned| pinned.other(&plan.hub));
        let mut args = vec![name_of(Engines::Mock), "--engines-url".into(), format!("{}/v1", mock.url)];
        args.extend(settings.iter().flat_map(|setting| ["--set".to_owned(), (*setting).to_owned()]));
        Ok(Self { hub: Hub::spawn(&command, &args).await?, mock })
    }

    pub(super) async fn stop(self) -> Result<f64, BenchError> {
        let cpu_s = self.hub.process.cpu_s()? + self.mock.process.cpu_s()?;
        self.hub.stop().await;
        self.mock.stop().await;
        Ok(cpu_s)
    }
}

/// Command-line arguments of the mock server.
pub(super) fn arguments(latencies: Latencies) -> Vec<String> {
    let Latencies { stt, first_token, token, first_sound, sound } = latencies;
    let times = [("stt", stt), ("ttft", first_token), ("itl", token), ("ttfb", first_sound), ("sound", sound)];
    times.into_iter().flat_map(|(name, time)| [format!("--{name}-ms"), time.as_millis().to_string()]).collect()
}

/// Runs the conversations of either measure on a running hub.
pub(super) async fn talk(
    hub: &Hub,
    clips: &Arc<Clips>,
    n_sessions: usize,
    turns: usize,
    progress: Progress<'_>,
) -> Result<Outcome, BenchError> {
    load::run(load_of(hub, clips, n_sessions, turns), progress).await
}

/// These conversations.
pub(super) fn load_of(hub: &Hub, clips: &Arc<Clips>, n_sessions: usize, turns: usize) -> Load {
    Load {
        connect: ConnectOptions::new(&hub.url),
        session: session(true),
        clips: clips.clone(),
        n_sessions,
        one_first: true,
        length: Length::Turns(turns),
        call_turns: None,
        warm_up: 1,
        stagger: PERIOD / n_sessions as u32,
        stop: CancellationToken::new(),
        barge_in: 0.0,
        network: Network::default(),
        process: Some(hub.process),
        patience: Duration::from_secs(10),
        seed: 1,
        n_turns: AtomicUsize::new(0),
        n_returns: Arc::default(),
    }
}

/// One clip per mark, and thus per session.
pub(super) fn clips(said: &Clip) -> Arc<Clips> {
    let clip = |mark: usize| {
        let sign = Sign::Name { name: mock::name(mark), tone_hz: mock::tone_hz(mark) };
        Clip::new(mock::name(mark), sign, mock::marked(&said.samples, said.loud, mark)).expect("a mark is no silence")
    };
    Arc::new(Clips::kept((0..N_TOGETHER).map(clip).collect()).expect("more than none"))
}

pub(super) async fn spoken() -> Result<Arc<Clips>, BenchError> {
    let samples = speak(&*speaker().await?, SAID, "slt").await?.samples;
    let said = Clip::new(SAID, Sign::Unknown, samples);
    Ok(clips(&said.ok_or_else(|| BenchError::Clips("flite said nothing".into()))?))
}

pub(super) async fn measure(plan: &Plan, progress: Progress<'_>) -> Result<Measurement, BenchError> {
    let how =
        format!("mock engines over HTTP that take no time, {SILENCE_MS} ms of silence end a turn; the hub on one core");
    let mut section = Section::new(name_of(Measure::Mocks), how);
    let clips = spoken().await?;
    let pinned = LoadAffinity::load();
    let pair = Pair::start(plan, Latencies { sound: SOUND, ..Latencies::default() }, &[], pinned.as_ref().ok()).await?;
    let alone = talk(&pair.hub, &clips, 1, plan.turns(TURNS_ALONE), progress).await?;
    section.percentile("1 session", &alone.waits(), 50.0, Some(ALONE_P50_MS));
    section.percentile("1 session", &alone.waits(), 95.0, Some(ALONE_P95_MS));
    let together = talk(&pair.hub, &clips, N_TOGETHER, plan.turns(TURNS_TOGETHER), progress).await?;
    let name = format!("{N_TOGETHER} sessions");
    section.percentile(&name, &together.waits(), 50.0, None);
    section.percentile(&name, &together.waits(), 95.0, None);
    let above_ms = together.waits().above_ms(&alone.waits(), 95.0);
    let more = Figure::new("p95 above that of 1 session", Unit::Ms, above_ms, together.waits().len());
    section.figures.push(more.at_most(TOGETHER_MORE_MS));
    let percent = together.cpu_percent().unwrap_or(f64::INFINITY);
    let percent = Figure::new("processor time a session", Unit::PercentOfCore, percent, N_TOGETHER);
    section.figures.push(percent.at_most(TOGETHER_PERCENT));
    let memory = together.memory_kib().unwrap_or(f64::INFINITY);
    section.figures.push(Figure::new("memory a session", Unit::KiB, memory, N_TOGETHER).at_most(TOGETHER_KIB));
    [&alone, &together].into_iter().for_each(|outcome| outcome.add_to(&mut section));
    section.notes.extend(pinned.as_ref().err().map(|why| format!("nothing was pinned to a core: {why}")));
    let mut hub_cpu_s = pair.stop().await?;
    if best_vad().await?.name() == "silero" {
        let latencies = Latencies { sound: SOUND, ..Latencies::default() };
        let pair = Pair::start(plan, latencies, &["vad.engine=silero"], pinned.as_ref().ok()).await?;
        // The first session bears the one-time initialization.
        talk(&pair.hub, &clips, 1, 1, progress).await?;
        let together = talk(&pair.hub, &clips, N_TOGETHER, plan.turns(TURNS_TOGETHER), progress).await?;
        let name = format!("{N_TOGETHER} sessions with Silero");
        section.percentile(&name, &together.waits(), 50.0, None);
        section.percentile(&name, &together.waits(), 95.0, None);
        let percent = together.cpu_percent().unwrap_or(f64::INFINITY);
        let name = "with Silero: processor time a session";
        section.figures.push(Figure::new(name, Unit::PercentOfCore, percent, N_TOGETHER).at_most(SILERO_PERCENT));
        let memory = together.memory_kib().unwrap_or(f64::INFINITY);
        section.figures.push(Figure::new("with Silero: memory a session", Unit::KiB, memory, N_TOGETHER));
        hub_cpu_s += pair.stop().await?;
    }
    Ok(Measurement { section, hub_cpu_s })
}

pub(super) async fn speculation(plan: &Plan, progress: Progress<'_>) -> Result<Measurement, BenchError> {
    let how =
        format!("mock engines of 100 ms a stage and 10 ms a word, {SILENCE_MS} ms of silence end a turn, 1 session");
    let mut section = Section::new(name_of(Measure::Speculation), how);
    let clips = spoken().await?;
    let stage = Duration::from_millis(100);
    let token = Duration::from_millis(10);
    let latencies = Latencies { stt: stage, first_token: stage, token, first_sound: stage, sound: SOUND };
    let mut hub_cpu_s = 0.0;
    for (name, setting, gate) in [
        ("with speculative responses", "speculation.after_ms=80", Some(SPECULATIVE_P50_MS)),
        ("without speculation", "speculation.after_ms=0", None),
    ] {
        let pair = Pair::start(plan, latencies, &[setting], None).await?;
        let outcome = talk(&pair.hub, &clips, 1, plan.turns(TURNS_ALONE) / 2, progress).await?;
        section.percentile(name, &outcome.waits(), 50.0, gate);
        section.percentile(name, &outcome.waits(), 95.0, None);
        outcome.add_to(&mut section);
        hub_cpu_s += pair.stop().await?;
    }
    Ok(Measurement { section, hub_cpu_s })
}

impl Outcome {
    /// Adds the figures common to both measures.
    pub(super) fn add_to(&self, section: &mut Section) {
        let n = self.n_sessions;
        let waits = self.waits();
        let count = |what: &str, value: usize, of: usize| {
            Figure::new(format!("{n} at a time: {what}"), Unit::Count, value as f64, of).at_most(0.0)
        };
        let not_own = self.counted().filter(|turn| !turn.own).count();
        section.figures.push(count("turns not answered", waits.len() - waits.n_ended(), waits.len()));
        section.figures.push(count("not recognized as its own", not_own, waits.len()));
        section.figures.push(count("mixed up", self.mix_ups().len(), self.turns.len()));
        section.notes.extend(self.mix_ups().into_iter().take(5));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_session_has_a_mark_of_its_own() {
        let said = Clip::new("x", Sign::Unknown, vec![9_000, -9_000, 9_000]).expect("loud");
        let clips = clips(&said);
        assert_eq!(clips.len(), N_TOGETHER);
        const { assert!(N_TOGETHER <= mock::MARKS) };
        let sign = |at: usize| clips[at].sign.clone();
        assert!((1..N_TOGETHER).all(|at| sign(at) != sign(0)));
    }
}
