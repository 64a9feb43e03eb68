//! `antiphon-bench cluster`: engine workers over NATS, all on this machine, with simulated engines of fixed cost.
//!
//! A real nats-server (`make nats-server`), the hub and each worker are processes of their own; where a part needs
//! requests without a conversation, this process is the hub. The parts ([`Part`]) are one file each, whose head
//! describes the method. The engines ([`simulated`](super::simulated)) sleep for as long as a run takes, so that four
//! workers fit on two cores, and a word is recognized by its sound, so that lost and doubled words are counted in what
//! a client received. Figures on one machine are differences: nothing here measures a network between machines.

mod forward;
mod frames;
mod handover;
mod hop;
mod jobs;
mod kill;
mod kill_hub;
mod partition;
mod processes;
mod rolling;
mod rolling_all;
mod scale;
mod session_cost;
mod site;

use super::load::{self, Clip, Clips, Length, Load, Network, Outcome, Sign};
use super::machine::Machine;
use super::simulated::Words;
use super::voice_to_voice::session;
use super::{BenchError, Figure, HubCommand, Measurement, Progress, Report, Section, Unit, Waits, mock, name_of};
use antiphon_client::ConnectOptions;
use clap::ValueEnum;
use processes::HubProcess;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// A part of the measure. The comments are the help of the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Part {
    /// What the way to a worker adds to voice-to-voice latency
    Hop,
    /// One-way times of frames, cost of nats-server
    Frames,
    /// Four workers against one
    Scale,
    /// Workers killed and frozen under conversations, memory
    Kill,
    /// Workers and NATS servers restarted under conversations
    Rolling,
    /// What sessions cost with one hub and with several
    Hubs,
    /// Sessions that move to other hubs under conversations
    Handover,
    /// Hubs, workers and NATS servers restarted under conversations
    RollingAll,
    /// Hubs killed under conversations
    KillHub,
    /// A hub cut from NATS while its clients are at other hubs
    Partition,
    /// Speech jobs while hubs and workers are killed
    Jobs,
}

impl Part {
    /// The parts about workers, in the order in which they are run.
    pub const WORKERS: [Self; 5] = [Self::Hop, Self::Frames, Self::Scale, Self::Kill, Self::Rolling];
    /// The parts about several hubs, in the order in which they are run.
    pub const HUBS: [Self; 6] =
        [Self::Hubs, Self::Handover, Self::RollingAll, Self::KillHub, Self::Partition, Self::Jobs];

    fn section(self) -> String {
        format!("cluster {}", name_of(self))
    }
}

/// What to measure and how.
#[derive(Clone, Debug)]
pub struct ClusterPlan {
    /// The parts, in this order.
    pub parts: Vec<Part>,
    /// Number of hubs of the parts about several hubs, 2 or more.
    pub n_hubs: usize,
    /// A few seconds for each part and fewer sessions: a quick check, not a result.
    pub quick: bool,
    /// How long workers are killed; `None`: two minutes, five seconds in a quick run.
    pub kill_for: Option<Duration>,
    /// Folder for the logs of hubs and workers; `None`: their errors go to stderr.
    pub logs: Option<PathBuf>,
    /// Command that starts a hub.
    pub hub: HubCommand,
    /// Command that starts a worker.
    pub worker: HubCommand,
}

impl ClusterPlan {
    /// A duration of a full run, or that of a quick one.
    fn takes(&self, full_s: u64, quick_s: u64) -> Duration {
        Duration::from_secs(if self.quick { quick_s } else { full_s })
    }

    /// The time over which the starts of the sessions are spread, about a turn; then all talk.
    fn begins(&self) -> Duration {
        self.takes(3, 1)
    }

    fn sessions(&self, full: usize, quick: usize) -> usize {
        if self.quick { quick } else { full }
    }
}

/// Runs the parts one after the other. Dropping the future stops the processes it started. A part that fails is reported with
/// its reason, and the others still run.
pub async fn run(plan: &ClusterPlan, progress: Progress<'_>) -> Report {
    let mut report = Report::new(plan.quick);
    for part in &plan.parts {
        let before = Machine::now();
        let taken = match part {
            Part::Hop => hop::measure(plan, progress).await,
            Part::Frames => frames::measure(plan, progress).await,
            Part::Scale => scale::measure(plan, progress).await,
            Part::Kill => kill::measure(plan, progress).await,
            Part::Rolling => rolling::measure(plan, progress).await,
            Part::Hubs => session_cost::measure(plan, progress).await,
            Part::Handover => handover::measure(plan, progress).await,
            Part::RollingAll => rolling_all::measure(plan, progress).await,
            Part::KillHub => kill_hub::measure(plan, progress).await,
            Part::Partition => partition::measure(plan, progress).await,
            Part::Jobs => jobs::measure(plan, progress).await,
        };
        let (mut section, cpu_s) = match taken {
            Ok(taken) => (taken.section, taken.hub_cpu_s),
            Err(error) => (Section::failed(part.section(), &error), 0.0),
        };
        section.others = before.zip(Machine::now()).map(|(before, after)| after.others_since(&before, cpu_s));
        report.sections.push(section);
    }
    report
}

/// The spoken question: 0.8 s of a tone that the fake detector takes for speech.
const QUESTION: Duration = Duration::from_millis(800);
const QUESTION_HZ: f64 = 440.0;

/// Timeout for a complete response.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(15);

/// Number of failures that are reported individually.
const MOST_NOTED: usize = 8;

/// Conversations with a hub whose voice speaks a word in `word`, until `stop` or the end of `length`.
async fn talk(
    plan: &ClusterPlan,
    hub: &HubProcess,
    n_sessions: usize,
    length: Length,
    word: Duration,
    stop: CancellationToken,
    progress: Progress<'_>,
) -> Result<Outcome, BenchError> {
    let load = Load {
        connect: ConnectOptions::new(&hub.url),
        session: session(true),
        clips: clips(n_sessions, word)?,
        n_sessions,
        one_first: false,
        length,
        stop,
        call_turns: None,
        warm_up: 1,
        stagger: plan.begins() / n_sessions.max(1) as u32,
        barge_in: 0.0,
        network: Network::default(),
        process: Some(hub.process()),
        patience: RESPONSE_TIMEOUT,
        seed: 1,
        n_turns: AtomicUsize::new(0),
        n_returns: Arc::default(),
    };
    load::run(load, progress).await
}

/// One clip for each session, with a mark of its own.
pub(crate) fn clips(n_sessions: usize, word: Duration) -> Result<Arc<Clips>, BenchError> {
    let rate = antiphon_client::RATE;
    let step = std::f64::consts::TAU * QUESTION_HZ / f64::from(rate.hz());
    let question: Vec<i16> =
        (0..rate.samples_in(QUESTION).0).map(|i| (8_000.0 * (step * i as f64).sin()) as i16).collect();
    let clip = |mark: usize| {
        let sign = Sign::Name { name: mock::name(mark), tone_hz: mock::tone_hz(mark) };
        let samples = mock::marked(&question, (0, question.len()), mark);
        Some(Clip::new(mock::name(mark), sign, samples)?.counted(word))
    };
    let clips = (0..n_sessions.min(mock::MARKS)).map(clip).collect::<Option<Vec<_>>>();
    let clips = clips.and_then(Clips::kept).ok_or_else(|| BenchError::Clips("a tone is silent".into()))?;
    Ok(Arc::new(clips))
}

/// Adds what happened to the responses of conversations; none may have failed, and no word be lost or doubled.
fn add_counts(section: &mut Section, name: &str, outcome: &Outcome) {
    let n = outcome.turns.len();
    let failed: Vec<_> = outcome.turns.iter().filter(|turn| turn.trouble.is_some() || turn.wait.is_none()).collect();
    let wrong = outcome.turns.iter().filter(|turn| turn.words.is_some_and(|words| words != Words::default()));
    let words = |count: fn(Words) -> usize| outcome.turns.iter().filter_map(|turn| turn.words).map(count).sum();
    let not_own = outcome.turns.iter().filter(|turn| !turn.own).count();
    let mut count = |what: &str, value: usize, of: usize| {
        section.figures.push(Figure::new(format!("{name}{what}"), Unit::Count, value as f64, of).at_most(0.0));
    };
    count("responses failed", failed.len() + outcome.broken.len(), n);
    count("words lost", words(|words| words.lost), n * mock::N_WORDS);
    count("words doubled", words(|words| words.doubled), n * mock::N_WORDS);
    count("not recognized as its own", not_own, n);
    count("mixed up", outcome.mix_ups().len(), n);
    let failures = failed.into_iter().take(MOST_NOTED).map(|turn| {
        let at = turn.at.as_secs_f64();
        let why = turn.trouble.as_deref().unwrap_or("there was no answer");
        format!("failed: session {}, turn {}, {at:.1} s: {why}", turn.session, turn.turn)
    });
    let wrong = wrong.take(MOST_NOTED).map(|turn| {
        let at = turn.at.as_secs_f64();
        let words = turn.words.unwrap_or_default();
        format!(
            "words: session {}, turn {}, {at:.1} s: {} lost, {} doubled",
            turn.session, turn.turn, words.lost, words.doubled
        )
    });
    let broken = outcome.broken.iter().take(MOST_NOTED).map(|(session, error)| format!("session {session}: {error}"));
    section.notes.extend(failures.chain(wrong).chain(broken).chain(outcome.mix_ups().into_iter().take(MOST_NOTED)));
}

/// The longest wait for more sound in the middle of a response, in milliseconds.
fn longest_gap_ms(outcome: &Outcome) -> f64 {
    outcome.turns.iter().map(|turn| turn.gaps.longest.as_secs_f64() * 1e3).fold(0.0, f64::max)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_session_has_a_mark_of_its_own() {
        let clips = clips(100, Duration::from_millis(100)).expect("loud");
        assert_eq!(clips.len(), 100);
        assert!((1..100).all(|at| clips[at].sign != clips[0].sign));
    }
}
