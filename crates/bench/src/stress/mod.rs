//! Stress test behind `antiphon-bench stress`: climbs in sessions until the objective breaks, holds, spikes, soaks.
//!
//! The server is a hub of the benchmark's own or any that runs already. All phases are loads of [`load`](super::load), so
//! that latency is what a listener experiences; barge-ins, slow readers ([`slow`]) and bad networks are mixed in, and the
//! objective is judged by the sessions on good networks. [`profile`] derives figures for the planner, [`calibrate`]
//! compares the planner's model with loads. Nothing here prints.

mod calibrate;
mod measured_profile;
mod page;
mod slow;
mod spike;
mod steady;

pub use calibrate::{Calibration, LoadComparison, Loads, calibrate};
pub use measured_profile::{KnownEngines, KnownStage, measure as measure_profile};
pub use page::page;
pub use slow::SlowReaders;
pub use spike::Spike;
pub use steady::{Drift, Looks};

use super::load::{self, Clips, Length, Load, Network, Outcome, Search, Step};
use super::{BenchError, Figure, Process, Progress, Section, Unit};
use antiphon_client::ConnectOptions;
use serde_json::{Value, json};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;
use tokio::time::sleep;

use tokio_util::sync::CancellationToken;

/// Turns of a session in a soak, about half a minute to four minutes: sessions end and begin, as callers do.
const SOAK_CALL: Option<Range<usize>> = Some(8..80);

/// Share of the sessions found at which the server is held, spiked and soaked.
const HOLD_SHARE: f64 = 0.8;

/// The network of those who have a bad one: jitter of a crowded wireless network, a stall about every ten seconds.
const BAD_NETWORK: Network = Network {
    jitter: Duration::from_millis(60),
    loss: 0.0,
    stall: Duration::from_millis(400),
    stall_every: Duration::from_secs(10),
};

/// Who is mixed in, as shares of the sessions, 0 to 1.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Mix {
    /// Responses that are interrupted.
    pub barge_in: f64,
    /// Sessions that read slowly.
    pub slow_readers: f64,
    /// Sessions on a bad network.
    pub bad_network: f64,
}

/// What to measure and how.
#[derive(Clone, Debug)]
pub struct StressPlan {
    /// The server.
    pub connect: ConnectOptions,
    /// Its process, if it runs on this machine.
    pub process: Option<Process>,
    /// The `session.update` of each session.
    pub session: Value,
    /// What the sessions speak.
    pub clips: Arc<Clips>,
    /// Voice-to-voice latency that 95 % of the turns keep.
    pub objective: Duration,
    /// Sessions to begin with.
    pub from: usize,
    /// Sessions at most.
    pub most: usize,
    /// Duration of a step of the climb.
    pub step: Duration,
    /// Duration of the hold; zero: none.
    pub hold: Duration,
    /// Sessions during the spike, as a multiple of those held; 1 or less: no spike.
    pub spike: f64,
    /// Duration of the spike.
    pub spike_for: Duration,
    /// Time before and after the spike.
    pub around_spike: Duration,
    /// Duration of the soak; zero: none.
    pub soak: Duration,
    /// Period over which the starts of sessions are spread: about one turn, so that they do not ask together.
    pub spread: Duration,
    /// Time for the server to recover between two loads.
    pub rest: Duration,
    /// Turns at the start of each session that are left out of the figures.
    pub warm_up: usize,
    /// Who is mixed in.
    pub mix: Mix,
    /// Timeout for a complete response.
    pub patience: Duration,
}

/// What was measured.
#[derive(Debug)]
pub struct StressReport {
    /// The steps of the climb.
    pub search: Search,
    /// Sessions of the later phases; `None` if not even one session keeps the objective.
    pub held: Option<usize>,
    /// The hold.
    pub hold: Option<MixedLoad>,
    /// What the graphics cards did meanwhile.
    pub looks: Looks,
    /// The spike.
    pub spike: Option<Spike>,
    /// The soak.
    pub soak: Option<MixedLoad>,
    objective: Duration,
}

/// A load with those who are mixed in.
#[derive(Debug)]
pub struct MixedLoad {
    /// Sessions on good networks, by which the objective is judged.
    pub main: Outcome,
    /// Sessions on bad networks.
    pub bad: Option<Outcome>,
    /// Sessions that read slowly.
    pub slow: Option<SlowReaders>,
}

/// Runs all phases, one after the other. Dropping the future ends the sessions.
///
/// # Errors
/// The server cannot be reached, or does not answer a single session. An objective that is not kept is part of the report.
pub async fn run(plan: &StressPlan, progress: Progress<'_>) -> Result<StressReport, BenchError> {
    let mut search = load::search(plan.from, plan.most);
    while let Some(n) = search.next() {
        progress(&format!("stress: {n} sessions"));
        let mixed = plan.mixed(n, plan.step, None, search.steps.is_empty(), progress).await?;
        // Those who are mixed in are part of the load.
        search.steps.push(Step { n_sessions: n, ..Step::of(&mixed.main, plan.objective) });
        sleep(plan.rest).await;
    }
    let held = search.largest().map(|n| ((n as f64 * HOLD_SHARE).round() as usize).max(1));
    let mut report = StressReport {
        search,
        held,
        hold: None,
        looks: Looks::default(),
        spike: None,
        soak: None,
        objective: plan.objective,
    };
    let Some(n) = held else { return Ok(report) };
    if !plan.hold.is_zero() {
        let (hold, looks) = steady::watched(plan.mixed(n, plan.hold, None, false, progress)).await;
        report.hold = Some(hold?);
        report.looks = looks;
        sleep(plan.rest).await;
    }
    if plan.spike > 1.0 {
        report.spike = Some(spike::run(plan, n, progress).await?);
        sleep(plan.rest).await;
    }
    if !plan.soak.is_zero() {
        report.soak = Some(plan.mixed(n, plan.soak, SOAK_CALL, false, progress).await?);
    }
    Ok(report)
}

impl StressPlan {
    /// A load of `n_sessions` sessions for `length`, without those who are mixed in.
    fn load(&self, n_sessions: usize, length: Length) -> Load {
        Load {
            connect: self.connect.clone(),
            session: self.session.clone(),
            clips: self.clips.clone(),
            n_sessions,
            one_first: false,
            length,
            stop: CancellationToken::new(),
            call_turns: None,
            warm_up: self.warm_up,
            stagger: self.spread / n_sessions.max(1) as u32,
            barge_in: self.mix.barge_in,
            network: Network::default(),
            process: self.process,
            patience: self.patience,
            seed: 1,
            n_turns: AtomicUsize::new(0),
            n_returns: Arc::default(),
        }
    }

    /// Runs `n_sessions` sessions with those who are mixed in.
    async fn mixed(
        &self,
        n_sessions: usize,
        time: Duration,
        call_turns: Option<Range<usize>>,
        one_first: bool,
        progress: Progress<'_>,
    ) -> Result<MixedLoad, BenchError> {
        let of = |share: f64| (n_sessions as f64 * share).round() as usize;
        let n_bad = of(self.mix.bad_network);
        let n_slow = of(self.mix.slow_readers);
        let n_main = n_sessions.saturating_sub(n_bad + n_slow).max(1);
        let length = Length::For(time);
        let main = Load { one_first, call_turns, ..self.load(n_main, length) };
        let bad = Load { network: BAD_NETWORK, seed: 2, process: None, ..self.load(n_bad, length) };
        let bad = async { if n_bad > 0 { load::run(bad, &|_| ()).await.map(Some) } else { Ok(None) } };
        let slow = async { if n_slow > 0 { Some(slow::read(self, n_slow, time).await) } else { None } };
        let (main, bad, slow) = tokio::join!(load::run(main, progress), bad, slow);
        Ok(MixedLoad { main: main?, bad: bad?, slow })
    }
}

impl StressReport {
    /// Whether the objective was kept in all phases.
    pub fn holds(&self) -> bool {
        let keeps = |mixed: &Option<MixedLoad>| mixed.as_ref().is_none_or(|mixed| mixed.holds(self.objective));
        let soaked = self.soak.as_ref().is_none_or(|soak| Drift::of(&soak.main).is_none_or(|drift| drift.holds()));
        let spiked = self.spike.as_ref().is_none_or(|spike| spike.holds(self.objective));
        self.held.is_some() && keeps(&self.hold) && keeps(&self.soak) && soaked && spiked
    }

    /// The verdict in one line.
    pub fn verdict(&self) -> String {
        let objective_ms = self.objective.as_millis();
        let Some((largest, held)) = self.search.largest().zip(self.held) else {
            return format!("NOT served: not a single session at p95 <= {objective_ms} ms");
        };
        let is = if self.holds() { "STABLE" } else { "NOT STABLE" };
        format!("{is}: {largest} sessions at p95 <= {objective_ms} ms; held, spiked and soaked at {held}")
    }

    /// The line of the stress tools of speech servers: requests a minute, success, percentiles, GPU, memory, processor.
    pub fn summary(&self) -> Option<String> {
        let main = &self.hold.as_ref()?.main;
        let waits = main.waits();
        let minutes = main.took.as_secs_f64() / 60.0;
        let n = waits.len();
        let n_ok = waits.n_ended();
        let ms = |percent| waits.percentile(percent).map_or("-".to_owned(), |ms| format!("{ms:.0} ms"));
        let resident = main.samples.iter().map(|sample| sample.resident).max();
        let rss = resident.map_or("-".to_owned(), |bytes| format!("{:.0} MiB", bytes as f64 / f64::from(1 << 20)));
        let cpu = main.cpu_percent().map(|percent| percent * main.n_sessions as f64);
        let cpu = cpu.map_or("-".to_owned(), |percent| format!("{percent:.1} % of a core"));
        let gpu = self.looks.summary().unwrap_or_else(|| "none".to_owned());
        Some(format!(
            "{:.1} requests/min | success {:.2} % | P50 {} | P95 {} | P99 {} | RSS {rss} | CPU {cpu} | GPU {gpu}",
            n_ok as f64 / minutes.max(1e-9),
            if n > 0 { 100.0 * n_ok as f64 / n as f64 } else { 0.0 },
            ms(50.0),
            ms(95.0),
            ms(99.0)
        ))
    }

    /// The figures; `how` describes the run in one line.
    pub fn section(&self, how: impl Into<String>) -> Section {
        let mut section = Section::new("stress", how);
        let objective_ms = self.objective.as_secs_f64() * 1e3;
        let largest = self.search.largest().unwrap_or(0) as f64;
        let steps = self.search.steps.len();
        section.figures.push(Figure::new("largest number of sessions", Unit::Count, largest, steps).at_least(1.0));
        if let Some(hold) = &self.hold {
            hold.figures(&mut section, "hold", objective_ms);
            self.looks.figures(&mut section);
        }
        if let Some(spike) = &self.spike {
            spike.figures(&mut section, objective_ms);
        }
        if let Some(soak) = &self.soak {
            soak.figures(&mut section, "soak", objective_ms);
            if let Some(drift) = Drift::of(&soak.main) {
                drift.figures(&mut section);
            }
        }
        section.others = self.hold.as_ref().and_then(|hold| hold.main.others);
        section.notes.extend(self.summary());
        section.notes.push(self.verdict());
        section
    }

    /// All data of all phases as JSON.
    pub fn json(&self) -> Value {
        let step = |step: &Step| {
            let p95_ms = Some(step.p95_ms).filter(|ms| ms.is_finite());
            json!({"sessions": step.n_sessions, "p95_ms": p95_ms, "served": step.holds})
        };
        json!({
            "verdict": self.verdict(),
            "stable": self.holds(),
            "summary": self.summary(),
            "objective_ms": self.objective.as_millis() as u64,
            "climb": self.search.steps.iter().map(step).collect::<Vec<_>>(),
            "held_sessions": self.held,
            "hold": self.hold.as_ref().map(MixedLoad::json),
            "gpu": self.looks.json(),
            "spike": self.spike.as_ref().map(Spike::json),
            "soak": self.soak.as_ref().map(MixedLoad::json),
        })
    }
}

impl MixedLoad {
    /// Whether each session on a good network was served, and each of its turns was answered.
    fn holds(&self, objective: Duration) -> bool {
        let waits = self.main.waits();
        self.main.holds(objective) && waits.n_ended() == waits.len()
    }

    /// All sessions, with those that are mixed in.
    fn n_sessions(&self) -> usize {
        let n_bad = self.bad.as_ref().map_or(0, |bad| bad.n_sessions);
        let n_slow = self.slow.map_or(0, |slow| slow.sessions);
        self.main.n_sessions + n_bad + n_slow
    }

    /// CPU time of the server per session, in per cent of a core: its process serves all sessions.
    fn cpu_percent(&self) -> Option<f64> {
        self.main.cpu_percent().map(|of_main| of_main * self.main_share())
    }

    /// Peak increase of anonymous memory per session, in KiB.
    fn memory_kib(&self) -> Option<f64> {
        self.main.memory_kib().map(|of_main| of_main * self.main_share())
    }

    /// The sessions on good networks as a share of all.
    fn main_share(&self) -> f64 {
        self.main.n_sessions as f64 / self.n_sessions().max(1) as f64
    }

    fn figures(&self, section: &mut Section, name: &str, objective_ms: f64) {
        let main = &self.main;
        let waits = main.waits();
        let n = self.n_sessions();
        let count = |what: &str, n: usize, of: usize| Figure::new(format!("{name}: {what}"), Unit::Count, n as f64, of);
        section.figures.push(count("sessions", n, n));
        for (percent, bound) in [(50.0, None), (95.0, Some(objective_ms)), (99.0, None)] {
            section.percentile(&format!("{name}: voice-to-voice"), &waits, percent, bound);
        }
        section.figures.push(count("turns not answered", waits.len() - waits.n_ended(), waits.len()).at_most(0.0));
        section.figures.push(count("mixed up", main.mix_ups().len(), main.turns.len()).at_most(0.0));
        section.percentile(&format!("{name}: silence after an interruption"), &main.silences(), 95.0, None);
        let share = self.cpu_percent().map(|value| (Unit::PercentOfCore, "processor time a session", value));
        let memory = self.memory_kib().map(|value| (Unit::KiB, "memory a session", value));
        for (unit, what, value) in share.into_iter().chain(memory) {
            section.figures.push(Figure::new(format!("{name}: {what}"), unit, value, n));
        }
        self.figures_of_others(section, name);
    }

    /// Of the sessions on a bad network and of the slow readers.
    fn figures_of_others(&self, section: &mut Section, name: &str) {
        let count = |what: &str, n: usize, of: usize| Figure::new(format!("{name}: {what}"), Unit::Count, n as f64, of);
        if let Some(bad) = &self.bad {
            section.percentile(&format!("{name}: bad network"), &bad.waits(), 95.0, None);
            section.figures.push(count("sessions on a bad network that ended", bad.broken.len(), bad.n_sessions));
        }
        if let Some(slow) = &self.slow {
            section.figures.push(count("slow readers that the server closed", slow.closed, slow.sessions));
        }
    }

    fn json(&self) -> Value {
        let slow =
            self.slow.map(|slow| json!({"sessions": slow.sessions, "closed": slow.closed, "messages": slow.messages}));
        json!({"load": self.main.json(), "bad_network": self.bad.as_ref().map(Outcome::json), "slow_readers": slow})
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::{Sample, TurnRecord};

    #[test]
    fn a_phase_with_a_turn_without_an_answer_is_not_held() {
        let objective = Duration::from_millis(800);
        let wait = Duration::from_millis(300);
        let mixed = |last: Option<Duration>| {
            let waits = std::iter::repeat_n(Some(wait), 99).chain([last]);
            let turns = waits.map(|wait| TurnRecord::asked(Duration::ZERO, wait)).collect();
            MixedLoad { main: Outcome { n_sessions: 10, turns, ..Outcome::default() }, bad: None, slow: None }
        };
        assert!(mixed(Some(wait)).holds(objective));
        assert!(!mixed(None).holds(objective), "p95 alone does not see it");
    }

    #[test]
    fn the_cost_of_the_server_is_divided_by_all_sessions() {
        let at = Duration::from_secs;
        let sample = |s, cpu_s, anonymous| Sample { at: at(s), cpu_s, resident: 0, anonymous };
        let main = Outcome {
            n_sessions: 6,
            before: Some(sample(0, 0.0, 0)),
            samples: vec![sample(1, 0.0, 0), sample(11, 1.0, 10 << 20)],
            took: at(12),
            ..Outcome::default()
        };
        let bad = Some(Outcome { n_sessions: 3, ..Outcome::default() });
        let slow = Some(SlowReaders { sessions: 1, ..SlowReaders::default() });
        let mixed = MixedLoad { main, bad, slow };
        let percent = mixed.cpu_percent().expect("samples");
        let kib = mixed.memory_kib().expect("samples");
        assert!((percent - 1.0).abs() < 1e-9 && (kib - 1024.0).abs() < 1e-6, "{percent} {kib}");
        let mut section = Section::new("stress", "");
        mixed.figures(&mut section, "hold", 800.0);
        assert_eq!((section.figures[0].name.as_str(), section.figures[0].value), ("hold: sessions", 10.0));
    }
}
