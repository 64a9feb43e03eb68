//! Workers that end without a word, under conversations.
//!
//! Four workers; every five seconds a random one of three is killed (SIGKILL) and restarted at once. The first one lives on,
//! so that the memory of a worker is seen, too. Then one is frozen (SIGSTOP) for four seconds, three times. Lost and doubled
//! words are counted in the sound that each client received. A gap is a wait of the client's playback, which begins with the
//! first sound, for more sound of the same response. Where a worker is killed, another one makes the chunk again: a gap may
//! be as long as that takes, and 100 ms for noticing it; a frozen worker is noticed by its silence within one second.

use super::processes::{Launcher, WorkerProcess, end, summary};
use super::{
    BenchError, ClusterPlan, Figure, Length, Measurement, Outcome, Part, Progress, Section, Unit, add_counts,
    longest_gap_ms, talk,
};
use crate::simulated::Costs;
use crate::{Engines, Process};
use antiphon_cluster::testing::NatsServer;
use std::time::Duration;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep};
use tokio_util::sync::CancellationToken;

pub(super) const COSTS: Costs = Costs { run: Duration::from_millis(40), batch: 4, word: Duration::from_millis(100) };
pub(super) const N_WORKERS: usize = 4;
pub(super) const N_SESSIONS: usize = 50;

/// Words of the longest chunk of a response, which take a run each.
const CHUNK_WORDS: u32 = 8;

const KILLED_MS: f64 = 100.0 + (CHUNK_WORDS as u64 * COSTS.run.as_millis() as u64) as f64;
const FROZEN_MS: f64 = KILLED_MS + 900.0;

/// The bound of the hub's growth for each response. Sessions keep their conversations: 6.4 KiB a response with the same engines
/// in the hub itself (25 sessions, 1,000 responses).
const RESPONSE_KIB: f64 = 8.0;

/// The bound of a worker's memory in the last third of the run against the first.
const GROWTH_TIMES: f64 = 1.1;

const SAMPLE_EVERY: Duration = Duration::from_millis(500);

/// The longest load; it ends when the faults are over.
const NO_LONGER: Length = Length::For(Duration::from_secs(24 * 3_600));

pub(super) async fn measure(plan: &ClusterPlan, progress: Progress<'_>) -> Result<Measurement, BenchError> {
    let kill_for = plan.kill_for.unwrap_or(plan.takes(120, 4));
    let kill_every = if plan.quick { Duration::from_millis(1_200) } else { Duration::from_secs(5) };
    let n = plan.sessions(N_SESSIONS, 8);
    let every_s = kill_every.as_secs_f64();
    let for_s = kill_for.as_secs();
    let how = format!("{n} sessions, {N_WORKERS} workers, one killed each {every_s:.1} s for {for_s} s; one frozen");
    let mut section = Section::new(Part::Kill.section(), how);
    let server = NatsServer::start().await?;
    let launcher = Launcher { plan, servers: vec![server.url()], costs: COSTS };
    let mut workers = launcher.workers(N_WORKERS).await?;
    let hub = launcher.hub(Engines::Cluster).await?;

    let stop = CancellationToken::new();
    let mut killing = Killing::default();
    let (outcome, killed) = tokio::join!(talk(plan, &hub, n, NO_LONGER, COSTS.word, stop.clone(), progress), async {
        // The conversations end whether the faults go well or not.
        let _stop = stop.clone().drop_guard();
        sleep(plan.begins()).await;
        killing.run(&launcher, &mut workers, kill_every, kill_for).await
    });
    killed?;
    let outcome = outcome?;
    section.figures.push(Figure::new("workers killed", Unit::Count, killing.n_killed as f64, killing.n_killed));
    section.percentile("voice-to-voice", &outcome.waits(), 50.0, None);
    section.percentile("voice-to-voice", &outcome.waits(), 95.0, None);
    section.percentile("voice-to-voice", &outcome.waits(), 100.0, None);
    add_counts(&mut section, "", &outcome);
    add_gaps(&mut section, "longest gap in a reply", &outcome, KILLED_MS);
    let all_talk = outcome.samples.iter().filter(|sample| sample.at >= plan.begins());
    let hub_memory: Vec<f64> = all_talk.map(|sample| sample.anonymous as f64).collect();
    add_memory(plan, &mut section, &hub_memory, outcome.turns.len(), &killing.memory);

    let stop = CancellationToken::new();
    let n_freezes = if plan.quick { 1 } else { 3 };
    let (frozen, done) = tokio::join!(talk(plan, &hub, n, NO_LONGER, COSTS.word, stop.clone(), progress), async {
        let _stop = stop.clone().drop_guard();
        freeze(plan, &workers, n_freezes).await
    });
    done?;
    let frozen = frozen?;
    section.percentile("one frozen: voice-to-voice", &frozen.waits(), 100.0, None);
    add_counts(&mut section, "one frozen: ", &frozen);
    add_gaps(&mut section, "one frozen: longest gap in a reply", &frozen, FROZEN_MS);

    let mut cpu_s = Process(server.process_id().unwrap_or(0)).cpu_s()? + killing.cpu_s;
    let (hub_cpu_s, overview) = hub.stop().await?;
    section.notes.push(summary(&overview));
    cpu_s += hub_cpu_s + end(workers).await?;
    Ok(Measurement { section, hub_cpu_s: cpu_s })
}

/// What killing did.
#[derive(Default)]
struct Killing {
    n_killed: usize,
    cpu_s: f64,
    /// Anonymous memory of the worker that lives, in bytes.
    memory: Vec<f64>,
}

impl Killing {
    async fn run(
        &mut self,
        launcher: &Launcher<'_>,
        workers: &mut Vec<WorkerProcess>,
        every: Duration,
        length: Duration,
    ) -> Result<(), BenchError> {
        let mut samples = interval(SAMPLE_EVERY);
        samples.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let until = Instant::now() + length;
        let mut next = Instant::now() + every;
        while Instant::now() < until {
            samples.tick().await;
            self.memory.push(workers[0].process().anonymous()? as f64);
            if Instant::now() >= next {
                next += every;
                let worker = workers.swap_remove(rand::random_range(1..workers.len()));
                let name = worker.name().to_owned();
                self.cpu_s += worker.kill().await?;
                self.n_killed += 1;
                workers.push(launcher.worker(&name).await?);
            }
        }
        Ok(())
    }
}

/// Freezes workers one after the other.
async fn freeze(plan: &ClusterPlan, workers: &[WorkerProcess], n: usize) -> Result<(), BenchError> {
    let length = if plan.quick { Duration::from_millis(1_500) } else { Duration::from_secs(4) };
    sleep(plan.begins()).await;
    for _ in 0..n {
        let worker = &workers[rand::random_range(0..workers.len())];
        worker.freeze()?;
        sleep(length).await;
        worker.thaw()?;
        sleep(length).await;
    }
    Ok(())
}

fn add_gaps(section: &mut Section, name: &str, outcome: &Outcome, bound_ms: f64) {
    let n_gaps = outcome.turns.iter().map(|turn| turn.gaps.n).sum();
    section.figures.push(Figure::new(name, Unit::Ms, longest_gap_ms(outcome), n_gaps).at_most(bound_ms));
}

/// Mean memory in the first and in the last third of a run, in KiB; `None` if it was sampled less than three times.
fn thirds_kib(bytes: &[f64]) -> Option<(f64, f64)> {
    let third = bytes.len() / 3;
    let mean = |part: &[f64]| part.iter().sum::<f64>() / part.len() as f64 / 1024.0;
    (third > 0).then(|| (mean(&bytes[..third]), mean(&bytes[bytes.len() - third..])))
}

/// Adds the memory in the last third of the run, and its growth since the first: of the hub for each response between.
fn add_memory(plan: &ClusterPlan, section: &mut Section, hub: &[f64], n_responses: usize, worker: &[f64]) {
    let (Some((hub_first, hub_last)), Some((first, last))) = (thirds_kib(hub), thirds_kib(worker)) else { return };
    let between = 2.0 / 3.0 * n_responses as f64;
    let figures = [
        Figure::new("memory of the hub", Unit::KiB, hub_last, hub.len()),
        Figure::new(
            "memory of the hub: growth a response",
            Unit::Of("KiB"),
            (hub_last - hub_first) / between,
            n_responses,
        )
        .at_most(RESPONSE_KIB),
        Figure::new("memory of a worker that lives", Unit::KiB, last, worker.len()),
        Figure::new("memory of a worker that lives: growth", Unit::Times, last / first, worker.len())
            .at_most(GROWTH_TIMES),
    ];
    // In a few seconds it only grows to what the sessions need.
    section.figures.extend(figures.map(|figure| if plan.quick { Figure { gate: None, ..figure } } else { figure }));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn growth_is_that_of_the_last_third_over_the_first() {
        let bytes = [1.0, 3.0, 90.0, 90.0, 4.0, 8.0].map(|kib| kib * 1024.0);
        assert_eq!(thirds_kib(&bytes), Some((2.0, 6.0)));
        assert_eq!(thirds_kib(&bytes[..2]), None);
    }
}
