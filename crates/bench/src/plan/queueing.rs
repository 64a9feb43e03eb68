//! The queueing model: how long a request waits for its engine at a given load.
//!
//! A stage is a queue M/G/c: requests come at random times, `c` is the number of slots of all its instances. The
//! probability of waiting is Erlang's C, the mean wait that of Allen and Cunneen: `C x (1 + v^2) / 2 x S / (c (1 - u))` with
//! the service time `S`, its coefficient of variation `v` and the utilization `u`; who has to wait waits for an
//! exponential time. The service time depends on the batch, the batch on the service time: a fixed point. Where requests
//! share runs ([`Service::Runs`]), one that arrives during a run also waits for its end.
//!
//! References: A. O. Allen, Probability, Statistics, and Queueing Theory, 2nd ed., 1990, section 5.3; D. Gross et al.,
//! Fundamentals of Queueing Theory, 4th ed., 2008, chapter 2.

use super::profile::{Service, StageProfile};
use rand::RngExt;
use rand::rngs::StdRng;

/// Rounds of the fixed points; each halves the distance to the solution at least.
const ROUNDS: usize = 60;

/// Utilization from which a stage counts as overloaded: queues grow without bound at 1.
const OVERLOADED: f64 = 0.995;

/// Erlang's C: the probability that all of `servers` are busy when a request arrives, with an offered load of `load`
/// busy servers on average; 1 if the load is not below the number of servers.
pub fn erlang_c(servers: usize, load: f64) -> f64 {
    let n = servers as f64;
    if load >= n {
        return 1.0;
    }
    let blocking = (1..=servers).fold(1.0, |blocking, k| load * blocking / (k as f64 + load * blocking));
    blocking / (1.0 - load / n * (1.0 - blocking))
}

/// Waiting for a slot.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct QueueWait {
    /// Probability of waiting, 0 to 1.
    pub probability: f64,
    /// Mean wait of those who wait, in milliseconds.
    pub mean_ms: f64,
}

/// The wait in a queue M/G/c by Allen and Cunneen; `None` where it grows without bound.
///
/// `rate_hz` requests a second, each takes `service_ms` of one of `servers`, with this coefficient of variation.
pub fn allen_cunneen(servers: usize, rate_hz: f64, service_ms: f64, variation: f64) -> Option<QueueWait> {
    let load = rate_hz * service_ms / 1e3;
    let free = servers as f64 - load;
    if load >= servers as f64 * OVERLOADED {
        return None;
    }
    let mean_ms = (1.0 + variation * variation) / 2.0 * service_ms / free;
    Some(QueueWait { probability: erlang_c(servers, load), mean_ms })
}

/// A stage at a load.
#[derive(Clone, Debug, PartialEq)]
pub struct StageState {
    /// Share of the slots in use, 0 to 1; of servers of others 0.
    pub utilization: f64,
    /// Requests that share an instance, on average, when one is served.
    pub batch: f64,
    /// Waiting for a slot, or for room in a run.
    pub queue: QueueWait,
    /// Waiting for the end of a run: its probability, and the duration of a run in milliseconds.
    pub boundary: Option<(f64, f64)>,
    /// From a slot to the first output.
    first: First,
}

/// Time to the first output.
#[derive(Clone, Debug, PartialEq)]
enum First {
    /// Lognormal, by mean in milliseconds and coefficient of variation.
    Lognormal(f64, f64),
    /// Of a server of others: p50, p95 and p99 in milliseconds.
    Percentiles([f64; 3]),
}

/// The state of a stage with `instances` that is asked `rate_hz` times a second; `None` if it cannot serve that.
pub fn solve(stage: &StageProfile, instances: usize, rate_hz: f64) -> Option<StageState> {
    let per_instance = rate_hz / instances.max(1) as f64;
    match &stage.service {
        Service::External { p50_ms, p95_ms, p99_ms } => Some(StageState {
            utilization: 0.0,
            batch: 1.0,
            queue: QueueWait::default(),
            boundary: None,
            first: First::Percentiles([*p50_ms, *p95_ms, *p99_ms]),
        }),
        Service::Slots { slots, points, variation } => {
            let hold: Vec<_> = points.iter().map(|point| (point.batch, point.hold_ms)).collect();
            let first: Vec<_> = points.iter().map(|point| (point.batch, point.first_ms)).collect();
            let most = *slots as f64;
            // The batch that results: those in service, and the request itself.
            let with_itself = |in_use: f64| (in_use + 1.0).min(most);
            let in_use = settle(most, |in_use| per_instance * interpolate(&hold, with_itself(in_use)) / 1e3);
            let hold_ms = interpolate(&hold, with_itself(in_use));
            let queue = allen_cunneen(slots * instances, rate_hz, hold_ms, *variation)?;
            Some(StageState {
                utilization: in_use / most,
                batch: with_itself(in_use),
                queue,
                boundary: None,
                first: First::Lognormal(interpolate(&first, with_itself(in_use)), *variation),
            })
        }
        Service::Runs { slots, runs_per_request: runs, points, variation } => {
            let times: Vec<_> = points.iter().map(|point| (point.batch, point.run_ms)).collect();
            let most = *slots as f64;
            let (mut busy, mut batch) = (0.5, 1.0);
            for _ in 0..ROUNDS {
                let arrivals = per_instance * interpolate(&times, batch) / 1e3;
                // Jobs in an infinite batch: Poisson, each stays for its runs and half of one when it comes during a run.
                busy = (busy + 1.0 - (-arrivals * (runs + busy / 2.0)).exp()) / 2.0;
                let shared = if busy > 0.0 { arrivals * runs / busy } else { 1.0 };
                batch = (batch + shared.clamp(1.0, most)) / 2.0;
            }
            let run_ms = interpolate(&times, batch);
            // Requests of several runs take turns, so that their number does not depend on the variation: it is that of
            // exponential times. The first run comes after so many of those that wait.
            let variation = if *runs > 1.0 { variation.max(1.0) } else { *variation };
            let queued = allen_cunneen(*slots, per_instance, runs * run_ms, variation)?;
            let waiting = per_instance * queued.mean_ms / 1e3;
            Some(StageState {
                utilization: per_instance * runs * interpolate(&times, most) / 1e3 / most,
                batch,
                queue: QueueWait { mean_ms: waiting / most * run_ms, ..queued },
                boundary: Some((busy, run_ms)),
                first: First::Lognormal(run_ms, 0.0),
            })
        }
    }
}

/// The state of a stage that nobody else uses: no queue, a batch of one.
pub fn alone(stage: &StageProfile) -> StageState {
    solve(stage, 1, 0.0).expect("without load nothing waits")
}

impl StageState {
    /// A random time from the request to its first output, in milliseconds.
    pub fn sample_ms(&self, dice: &mut StdRng) -> f64 {
        // All are drawn, so that the same seed gives the same turn at any load.
        let [queued, wait, during, residual] = [(); 4].map(|()| dice.random_range(0.0..1.0f64));
        let normal = normal(dice);
        let mut ms = self.first.at(normal);
        if queued < self.queue.probability {
            ms -= (1.0 - wait).ln() * self.queue.mean_ms;
        }
        match self.boundary {
            Some((busy, run_ms)) if during < busy => ms + residual * run_ms,
            _ => ms,
        }
    }

    /// The mean of the waits, without the time from a slot to the first output, in milliseconds.
    pub fn mean_wait_ms(&self) -> f64 {
        let boundary = self.boundary.map_or(0.0, |(busy, run_ms)| busy * run_ms / 2.0);
        self.queue.probability * self.queue.mean_ms + boundary
    }

    /// The mean from a slot to the first output, in milliseconds; of servers of others the median.
    pub fn first_ms(&self) -> f64 {
        match self.first {
            First::Lognormal(mean, _) => mean,
            First::Percentiles([p50, ..]) => p50,
        }
    }
}

impl First {
    /// The value at a standard normal deviate.
    fn at(&self, normal: f64) -> f64 {
        match self {
            Self::Lognormal(mean, variation) => {
                let variance = (1.0 + variation * variation).ln();
                mean * (variance.sqrt() * normal - variance / 2.0).exp()
            }
            Self::Percentiles([p50, p95, p99]) => {
                // The normal deviates of 0.95 and 0.99; below the median as above it.
                let (z95, z99) = (1.644_854, 2.326_348);
                let low = (p95 / p50).ln() / z95;
                let high = (p99 / p95).ln() / (z99 - z95);
                match normal {
                    z if z <= z95 => p50 * (low * z).exp(),
                    z => p95 * (high * (z - z95)).exp(),
                }
            }
        }
    }
}

/// A standard normal deviate, by Box and Muller.
fn normal(dice: &mut StdRng) -> f64 {
    let (radius, angle) = (dice.random_range(0.0..1.0f64), dice.random_range(0.0..1.0f64));
    (-2.0 * (1.0 - radius).ln()).sqrt() * (std::f64::consts::TAU * angle).cos()
}

/// The fixed point of an increasing function, from 0 to `most`.
fn settle(most: f64, of: impl Fn(f64) -> f64) -> f64 {
    (0..ROUNDS).fold(0.0, |value: f64, _| ((value + of(value)) / 2.0).min(most))
}

/// The value at `x` of a line through points by ascending x; that of the nearest end outside of them.
fn interpolate(points: &[(f64, f64)], x: f64) -> f64 {
    let after = points.iter().position(|point| point.0 >= x);
    match after {
        Some(0) => points[0].1,
        Some(at) => {
            let ((x0, y0), (x1, y1)) = (points[at - 1], points[at]);
            y0 + (y1 - y0) * (x - x0) / (x1 - x0)
        }
        None => points.last().map_or(0.0, |point| point.1),
    }
}

#[cfg(test)]
#[path = "queueing_tests.rs"]
mod tests;
