//! The queueing model: how long a request waits for its engine at a given load.
//!
//! A stage is a queue with a finite source, M/M/c//N: each of `N` sessions thinks, asks, and thinks again; `c` is the
//! number of slots of all instances. By the arrival theorem a request meets the `N - 1` other sessions as if its own
//! did not exist ([`OthersInStage`]); with many sessions this becomes Erlang's C and an exponential wait. A request
//! that meets `k >= c` others waits for `k - c + 1` completions, an Erlang time of mean `(k - c + 1) S / c`, multiplied
//! by `(1 + v^2) / 2` after Allen and Cunneen for a service time `S` with the coefficient of variation `v`. The service
//! time depends on the batch, the batch on the service time: a fixed point.
//!
//! Requests that share runs ([`Service::Runs`]) take turns run by run, which is processor sharing: the number of requests
//! then depends on the mean of their service times only. One that meets `k` others waits for the end of the run in progress
//! and for the full runs of those before it.
//!
//! References: D. Gross et al., Fundamentals of Queueing Theory, 4th ed., 2008, sections 2.3 and 2.8 (finite source);
//! S. S. Lavenberg and M. Reiser, Stationary State Probabilities at Arrival Instants for Closed Queueing Networks with
//! Multiple Types of Customers, J. Appl. Prob. 17 (1980) (arrival theorem); F. Baskett et al., Open, Closed, and Mixed Networks
//! of Queues with Different Classes of Customers, J. ACM 22 (1975) (processor sharing); A. O. Allen, Probability, Statistics,
//! and Queueing Theory, 2nd ed., 1990, section 5.3.

use super::profile::{Service, StageProfile};
use rand::RngExt;
use rand::rngs::StdRng;
use std::iter::successors;

/// Rounds of the fixed points; each halves the distance to the solution at least.
const ROUNDS: usize = 60;

/// Relative step below which a think time is found: a thousand times the resolution of an `f64`.
const FOUND: f64 = 2e-13;

/// Utilization by the other sessions from which a stage counts as overloaded: at 1 the queue of many grows without bound.
const OVERLOADED: f64 = 0.995;

/// Probability, relative to the largest one, from which a number of requests is left out.
const NEGLIGIBLE: f64 = 1e-12;

/// Waiting for a slot.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct QueueWait {
    /// Probability of waiting, 0 to 1.
    pub probability: f64,
    /// Mean wait of those who wait, in milliseconds.
    pub mean_ms: f64,
}

/// The number of other requests in a stage that an arriving request meets.
struct OthersInStage {
    /// The least number.
    from: usize,
    /// The probabilities of it and of the numbers above it; the sum is 1.
    shares: Vec<f64>,
}

impl OthersInStage {
    /// In a stage of `servers` servers whose `sources` ask `rate_hz` times a second together, each for `service_ms`.
    fn of(servers: usize, sources: usize, rate_hz: f64, service_ms: f64) -> Self {
        let c = servers as f64;
        let others = sources.saturating_sub(1);
        // In service times: a source thinks, waits and is served once in a cycle. With as many requests from more sources
        // the wait would be longer, at most that of an infinite number: this bounds the think time from below.
        let cycle = sources as f64 / rate_hz * 1e3 / service_ms;
        let free = c - rate_hz * service_ms / 1e3;
        let high = (cycle - 1.0).max(0.0);
        let low = if free > 0.0 { (high - 1.0 / free).max(0.0) } else { 0.0 };
        let think = zero(low, high, |think| think + steps_met(servers, others, think) / c + 1.0 - cycle);
        Self::at(servers, others, think)
    }

    /// With `others`, each of which thinks for `think` times the service time on average before it asks.
    fn at(servers: usize, others: usize, think: f64) -> Self {
        let numbers = Numbers::new(servers, others, think);
        let mut shares: Vec<f64> = numbers.down().map(|(_, share)| share).collect();
        let from = numbers.likely + 1 - shares.len();
        shares.reverse();
        shares.extend(numbers.up().skip(1).map(|(_, share)| share));
        let sum: f64 = shares.iter().sum();
        shares.iter_mut().for_each(|share| *share /= sum);
        Self { from, shares }
    }
}

/// The numbers of other requests that one may meet, each with its probability relative to that of the most probable one.
struct Numbers {
    others: usize,
    n: f64,
    c: f64,
    think: f64,
    /// The most probable number.
    likely: usize,
}

impl Numbers {
    fn new(servers: usize, others: usize, think: f64) -> Self {
        let n = others as f64;
        let c = servers as f64;
        let likely = ((n - think) / (1.0 + think)).max(n - c * think).max(0.0).ceil() as usize;
        Self { others, n, c, think, likely: likely.min(others) }
    }

    /// The probability of `k + 1` divided by that of `k`; it falls with `k` and passes 1 at the most probable number.
    fn ratio(&self, k: usize) -> f64 {
        (self.n - k as f64) / (self.think * self.c.min(k as f64 + 1.0))
    }

    /// The most probable number and those below it, falling, as far as they matter.
    fn down(&self) -> impl Iterator<Item = (usize, f64)> {
        let below = |(k, share): &(usize, f64)| k.checked_sub(1).map(|below| (below, share / self.ratio(below)));
        successors(Some((self.likely, 1.0)), below).take_while(|(_, share)| *share > NEGLIGIBLE)
    }

    /// The most probable number and those above it, as far as they matter.
    fn up(&self) -> impl Iterator<Item = (usize, f64)> {
        let above = |(k, share): &(usize, f64)| (*k < self.others).then(|| (k + 1, share * self.ratio(*k)));
        successors(Some((self.likely, 1.0)), above).take_while(|(_, share)| *share > NEGLIGIBLE)
    }
}

/// The completions for which a request waits on average: the mean of [`steps_of_slots`] in [`OthersInStage::at`],
/// without its vector.
fn steps_met(servers: usize, others: usize, think: f64) -> f64 {
    let numbers = Numbers::new(servers, others, think);
    let mut sum = 0.0;
    let mut steps = 0.0;
    for (k, share) in numbers.down().chain(numbers.up().skip(1)) {
        sum += share;
        steps += share * steps_of_slots(servers, k) as f64;
    }
    steps / sum
}

/// The zero of an increasing function between `low` and `high`, by regula falsi with the weights of Illinois: about ten values of the
/// function, where halving takes [`ROUNDS`]. The nearer end where there is no zero between them.
///
/// M. Dowell and P. Jarratt, A Modified Regula Falsi Method for Computing the Root of an Equation, BIT 11 (1971).
fn zero(low: f64, high: f64, of: impl Fn(f64) -> f64) -> f64 {
    // Also where both are infinite: without requests the think time has no end.
    let width = high - low;
    if width.is_nan() || width <= 0.0 {
        return low;
    }
    let mut below = (low, of(low));
    let mut above = (high, of(high));
    if below.1 >= 0.0 {
        return low;
    }
    if above.1 <= 0.0 {
        return high;
    }
    let mut at = low;
    let mut last = None;
    for _ in 0..ROUNDS {
        let next = (below.0 * above.1 - above.0 * below.1) / (above.1 - below.1);
        // Rounding may put it outside of the two.
        let next = next.clamp(below.0, above.0);
        let is_found = (next - at).abs() <= FOUND * next;
        at = next;
        if is_found {
            break;
        }
        let value = of(at);
        let is_below = value < 0.0;
        let stayed = if is_below { &mut above.1 } else { &mut below.1 };
        // An end that stays twice in a row gets half of its weight.
        if last == Some(is_below) {
            *stayed /= 2.0;
        }
        last = Some(is_below);
        *(if is_below { &mut below } else { &mut above }) = (at, value);
    }
    at
}

/// The completions for which a request waits that meets `k` others.
fn steps_of_slots(servers: usize, k: usize) -> usize {
    (k + 1).saturating_sub(servers)
}

/// The full runs of others for which a request waits that meets `k` others, `servers` of them in a run.
fn steps_of_runs(servers: usize, k: usize) -> usize {
    (k / servers).saturating_sub(1)
}

/// Distribution of the wait for a slot, or for room in a run: a number of steps.
#[derive(Clone, Debug, PartialEq)]
struct Steps {
    /// At `n` the probability of more than `n` steps.
    more_than: Vec<f64>,
    /// Mean duration of a step, in milliseconds.
    step_ms: f64,
    /// Whether a step takes an exponential time; otherwise all take the same.
    is_random: bool,
}

impl Steps {
    /// No wait.
    const NONE: Self = Self { more_than: Vec::new(), step_ms: 0.0, is_random: false };

    fn new(seen: &OthersInStage, steps: impl Fn(usize) -> usize, step_ms: f64, is_random: bool) -> Self {
        let most = steps(seen.from + seen.shares.len() - 1);
        let mut more_than = vec![0.0; most];
        for (share, k) in seen.shares.iter().zip(seen.from..) {
            if let Some(at) = steps(k).checked_sub(1) {
                more_than[at] += share;
            }
        }
        for at in (1..most).rev() {
            more_than[at - 1] += more_than[at];
        }
        Self { more_than, step_ms, is_random }
    }

    /// Probability and mean.
    fn queue(&self) -> QueueWait {
        let Some(&probability) = self.more_than.first() else { return QueueWait::default() };
        QueueWait { probability, mean_ms: self.more_than.iter().sum::<f64>() / probability * self.step_ms }
    }

    /// The wait at two uniform deviates and a standard normal one, in milliseconds.
    fn at(&self, queued: f64, first: f64, normal: f64) -> f64 {
        let n = self.more_than.partition_point(|share| queued < *share);
        let steps = match n {
            0 => 0.0,
            _ if self.is_random => gamma((n - 1) as f64, normal) - (1.0 - first).ln(),
            _ => n as f64,
        };
        steps * self.step_ms
    }
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
    /// Distribution of `queue`.
    steps: Steps,
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

/// The state of a stage with `instances` that `sources` ask `rate_hz` times a second together; `None` if it cannot
/// serve that. A source is a session: it meets the requests of the others, not its own.
pub fn solve(stage: &StageProfile, instances: usize, rate_hz: f64, sources: usize) -> Option<StageState> {
    let per_instance = rate_hz / instances.max(1) as f64;
    let others = 1.0 - 1.0 / sources.max(1) as f64;
    match &stage.service {
        Service::External { p50_ms, p95_ms, p99_ms } => Some(StageState {
            utilization: 0.0,
            batch: 1.0,
            queue: QueueWait::default(),
            boundary: None,
            steps: Steps::NONE,
            first: First::Percentiles([*p50_ms, *p95_ms, *p99_ms]),
        }),
        Service::Slots { slots, points, variation } => {
            let hold: Vec<_> = points.iter().map(|point| (point.batch, point.hold_ms)).collect();
            let first: Vec<_> = points.iter().map(|point| (point.batch, point.first_ms)).collect();
            let most = *slots as f64;
            // The batch that results: those in service, and the request itself.
            let with_itself = |in_use: f64| (in_use + 1.0).min(most);
            let in_use = settle(most, |in_use| per_instance * others * interpolate(&hold, with_itself(in_use)) / 1e3);
            let hold_ms = interpolate(&hold, with_itself(in_use));
            let servers = slots * instances.max(1);
            if is_overloaded(servers, rate_hz * others, hold_ms) {
                return None;
            }
            let seen = OthersInStage::of(servers, sources, rate_hz, hold_ms);
            let step_ms = (1.0 + variation * variation) / 2.0 * hold_ms / servers as f64;
            let steps = Steps::new(&seen, |k| steps_of_slots(servers, k), step_ms, true);
            Some(StageState {
                utilization: per_instance * hold_ms / 1e3 / most,
                batch: with_itself(in_use),
                queue: steps.queue(),
                boundary: None,
                steps,
                first: First::Lognormal(interpolate(&first, with_itself(in_use)), *variation),
            })
        }
        Service::Runs { slots, runs_per_request: runs, points, .. } => {
            let times: Vec<_> = points.iter().map(|point| (point.batch, point.run_ms)).collect();
            let most = *slots as f64;
            let mut busy = 0.5;
            let mut batch = 1.0;
            for _ in 0..ROUNDS {
                let arrivals = per_instance * others * interpolate(&times, batch) / 1e3;
                // Jobs in an infinite batch: Poisson, each stays for its runs and half of one when it comes during a run.
                busy = (busy + 1.0 - (-arrivals * (runs + busy / 2.0)).exp()) / 2.0;
                let shared = if busy > 0.0 { arrivals * runs / busy } else { 1.0 };
                batch = (batch + shared.clamp(1.0, most)) / 2.0;
            }
            let run_ms = interpolate(&times, batch);
            if is_overloaded(*slots, per_instance * others, runs * run_ms) {
                return None;
            }
            let seen = OthersInStage::of(*slots, sources, per_instance, runs * run_ms);
            let steps = Steps::new(&seen, |k| steps_of_runs(*slots, k), run_ms, false);
            Some(StageState {
                utilization: per_instance * runs * interpolate(&times, most) / 1e3 / most,
                batch,
                queue: steps.queue(),
                steps,
                boundary: Some((busy, run_ms)),
                first: First::Lognormal(run_ms, 0.0),
            })
        }
    }
}

/// The state of a stage with a single session: no queue, a batch of one.
pub fn alone(stage: &StageProfile) -> StageState {
    solve(stage, 1, 0.0, 1).expect("without load nothing waits")
}

impl StageState {
    /// A random time from the request to its first output, in milliseconds.
    pub fn sample_ms(&self, draw: &Draw) -> f64 {
        let ms = self.first.at(draw.first) + self.steps.at(draw.queued, draw.wait, draw.steps);
        match self.boundary {
            Some((busy, run_ms)) if draw.during < busy => ms + draw.residual * run_ms,
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

/// The chance in a request's time at a stage: the same at any load, so that plans differ by their load and not by chance.
#[derive(Clone, Copy, Debug)]
pub struct Draw {
    /// In [0, 1): whether it waits, how long, whether a run is in progress, and how much of that is left.
    queued: f64,
    wait: f64,
    during: f64,
    residual: f64,
    /// Standard normal deviates of the first output and of the waits' service times.
    first: f64,
    steps: f64,
}

impl Draw {
    /// Another one.
    pub fn random(dice: &mut StdRng) -> Self {
        let [queued, wait, during, residual] = [(); 4].map(|()| dice.random_range(0.0..1.0f64));
        let [first, steps] = normals(dice);
        Self { queued, wait, during, residual, first, steps }
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
                let z95 = 1.644_854;
                let z99 = 2.326_348;
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

/// Whether this number of servers cannot serve this rate for long.
fn is_overloaded(servers: usize, rate_hz: f64, service_ms: f64) -> bool {
    rate_hz * service_ms / 1e3 >= servers as f64 * OVERLOADED
}

/// Two standard normal deviates, by Box and Muller.
fn normals(dice: &mut StdRng) -> [f64; 2] {
    let radius = dice.random_range(0.0..1.0f64);
    let angle = dice.random_range(0.0..1.0f64);
    let radius = (-2.0 * (1.0 - radius).ln()).sqrt();
    let angle = std::f64::consts::TAU * angle;
    [radius * angle.cos(), radius * angle.sin()]
}

/// The sum of `n` exponential times of mean 1 at a standard normal deviate, by Wilson and Hilferty; 0 for none.
fn gamma(n: f64, normal: f64) -> f64 {
    if n > 0.0 { n * (1.0 - 1.0 / (9.0 * n) + normal / (3.0 * n.sqrt())).max(0.0).powi(3) } else { 0.0 }
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
