//! The simulation of sessions: the real actor, reducer and audio paths on virtual time, with engines and clients whose faults are
//! drawn from a seed. The program `antiphon-simulate` runs many seeds, the tests some hundred.
//!
//! One seed is one small world ([`simulate`]) without sockets, threads or files: the same seed gives the same log, byte for byte.
//! A seed whose world breaks an invariant can be run again with its whole log. Invariants: no panic; the grammar of events
//! (`grammar`); what is due comes, within virtual time; requests to a model are well-formed; nothing is
//! heard that was not sent; after the end no task, request, lease or message is left; of one seed in [`CHECKED_TWICE`] also that
//! the log repeats itself.

mod client;
mod day;
mod engines;
mod grammar;
mod probe;
mod world;

pub use day::{Day, DayReport, simulate_day};
pub use world::{Outcome, simulate};

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;
use tokio::time::Instant;

/// Each seed that this divides is run twice and its logs are compared.
pub const CHECKED_TWICE: u64 = 64;

/// Real time after which a world is stuck: a task that never waits keeps virtual time from going on.
const STUCK: Duration = Duration::from_secs(60);

/// Violations after which no further seeds are run.
const MAX_FAILED: usize = 5;

/// Which seeds to run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seeds {
    /// The first.
    pub from: u64,
    /// How many.
    pub n: u64,
    /// Threads, each with a world of its own.
    pub threads: usize,
}

/// What came of many seeds.
#[derive(Clone, Debug)]
pub struct Simulated {
    /// Worlds that were run to their end.
    pub n_done: u64,
    /// Those of them that were run twice, too.
    pub n_compared: u64,
    /// Real time.
    pub took: Duration,
    /// The worlds that broke an invariant.
    pub failed: Vec<Outcome>,
}

impl Simulated {
    /// Worlds in an hour at this speed.
    pub fn seeds_an_hour(&self) -> f64 {
        self.n_done as f64 * 3_600.0 / self.took.as_secs_f64().max(1e-9)
    }
}

/// Runs the worlds of `seeds`. Blocks; a thread whose world is stuck is left behind. `progress` is called with the number of
/// worlds that are done, about once a second.
pub fn run(seeds: Seeds, progress: &dyn Fn(u64)) -> Simulated {
    let began = Instant::now();
    let next = Arc::new(AtomicU64::new(0));
    let (sender, outcomes) = channel();
    for thread in 0..seeds.threads.max(1) {
        let sender = sender.clone();
        let next = next.clone();
        let work = move || {
            loop {
                let n = next.fetch_add(1, Ordering::Relaxed);
                if n >= seeds.n {
                    return;
                }
                let seed = seeds.from.wrapping_add(n);
                if sender.send((thread, seed, None)).is_err() || sender.send((thread, seed, Some(one(seed)))).is_err() {
                    return;
                }
            }
        };
        let name = format!("world-{thread}");
        std::thread::Builder::new().name(name).spawn(work).expect("a thread for each core");
    }
    drop(sender);
    let mut simulated = Simulated { n_done: 0, n_compared: 0, took: Duration::ZERO, failed: Vec::new() };
    let mut running: Vec<Option<(u64, Instant)>> = vec![None; seeds.threads.max(1)];
    let mut shown = Instant::now();
    loop {
        match outcomes.recv_timeout(Duration::from_secs(1)) {
            Ok((thread, seed, None)) => running[thread] = Some((seed, Instant::now())),
            Ok((thread, seed, Some(outcome))) => {
                running[thread] = None;
                simulated.n_done += 1;
                simulated.n_compared += u64::from(is_checked_twice(seed));
                simulated.failed.extend(Some(outcome).filter(|outcome| !outcome.violations.is_empty()));
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => break,
        }
        let stuck = running.iter().flatten().filter(|(_, since)| since.elapsed() > STUCK);
        let stuck: Vec<_> = stuck.map(|(seed, _)| hangs(*seed)).collect();
        let is_stuck = !stuck.is_empty();
        simulated.failed.extend(stuck);
        if is_stuck || simulated.failed.len() >= MAX_FAILED {
            break;
        }
        if shown.elapsed() >= Duration::from_secs(1) {
            shown = Instant::now();
            progress(simulated.n_done);
        }
    }
    simulated.took = began.elapsed();
    simulated
}

/// Runs one seed, some of them twice.
fn one(seed: u64) -> Outcome {
    let mut outcome = simulate(seed, false);
    if is_checked_twice(seed) && simulate(seed, false).hash != outcome.hash {
        outcome.violations.push("the second run of the same seed gave another log".into());
    }
    outcome
}

fn is_checked_twice(seed: u64) -> bool {
    seed.is_multiple_of(CHECKED_TWICE)
}

fn hangs(seed: u64) -> Outcome {
    let violations = vec![format!("the world is not over after {STUCK:?} of real time: a task never waits")];
    Outcome { seed, violations, log: Vec::new(), hash: 0 }
}
