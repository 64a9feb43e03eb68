//! The formulae against textbook values and against a discrete-event simulation.

use super::super::profile::{RunPoint, SlotPoint};
use super::*;
use rand::SeedableRng;
use std::collections::VecDeque;

/// Sources: enough that their number makes no difference.
const MANY: usize = 1_000_000_000;

impl OthersInStage {
    /// The mean of a function of the number.
    fn mean(&self, of: impl Fn(usize) -> usize) -> f64 {
        self.shares.iter().zip(self.from..).map(|(share, k)| share * of(k) as f64).sum()
    }
}

fn slots(slots: usize, hold_ms: f64, variation: f64) -> StageProfile {
    let points = vec![SlotPoint { batch: 1.0, first_ms: hold_ms, hold_ms }];
    stage(Service::Slots { slots, points, variation })
}

fn stage(service: Service) -> StageProfile {
    StageProfile { engine: "x".into(), requests_per_turn: 1.0, service, needs: None, settings: Default::default() }
}

/// When simulated requests come, in milliseconds.
struct Arrivals {
    coming: Vec<f64>,
    mean_ms: f64,
    is_closed: bool,
    dice: StdRng,
}

impl Arrivals {
    /// At a rate that does not depend on the requests in the system.
    fn open(rate_hz: f64) -> Self {
        Self { coming: vec![0.0], mean_ms: 1e3 / rate_hz, is_closed: false, dice: StdRng::seed_from_u64(7) }
    }

    /// Of this number of sources, each of which asks again `think` after its request is done, on average.
    fn closed(sources: usize, think_ms: f64) -> Self {
        Self { coming: vec![0.0; sources], mean_ms: think_ms, is_closed: true, dice: StdRng::seed_from_u64(7) }
    }

    fn earliest(&self) -> f64 {
        self.coming.iter().copied().fold(f64::INFINITY, f64::min)
    }

    /// Removes the earliest one.
    fn take(&mut self) -> f64 {
        let earliest = self.earliest();
        let at = self.coming.iter().position(|at| *at == earliest).expect("one is coming");
        self.coming.swap_remove(at);
        if !self.is_closed {
            self.come_after(earliest);
        }
        earliest
    }

    /// A request is done.
    fn done(&mut self, at: f64) {
        if self.is_closed {
            self.come_after(at);
        }
    }

    fn come_after(&mut self, at: f64) {
        let think_ms = exponential(&mut self.dice, self.mean_ms);
        self.coming.push(at + think_ms);
    }
}

fn exponential(dice: &mut StdRng, mean: f64) -> f64 {
    -(1.0 - dice.random_range(0.0..1.0f64)).ln() * mean
}

/// A queue with `servers`: the waits of `n` requests in ascending order, in milliseconds, and the requests a second.
fn simulate(servers: usize, mut arrivals: Arrivals, n: usize, service_ms: f64, variation: f64) -> (Vec<f64>, f64) {
    let mut dice = StdRng::seed_from_u64(8);
    let mut free_at = vec![0.0f64; servers];
    let mut now = 0.0;
    let wait = |_| {
        now = arrivals.take();
        let (at, _) = free_at.iter().enumerate().min_by(|a, b| a.1.total_cmp(b.1)).expect("servers");
        let begins = now.max(free_at[at]);
        free_at[at] = begins + if variation > 0.0 { exponential(&mut dice, service_ms) } else { service_ms };
        arrivals.done(free_at[at]);
        begins - now
    };
    let mut waits: Vec<f64> = (0..n).map(wait).collect();
    waits.sort_by(f64::total_cmp);
    (waits, n as f64 / now * 1e3)
}

/// The times that the model draws, in ascending order.
fn drawn(state: &StageState) -> Vec<f64> {
    let mut dice = StdRng::seed_from_u64(1);
    let mut all: Vec<f64> = (0..50_000).map(|_| state.sample_ms(&Draw::random(&mut dice))).collect();
    all.sort_by(f64::total_cmp);
    all
}

/// A percentile of values in ascending order.
fn at(values: &[f64], share: f64) -> f64 {
    values[(values.len() as f64 * share) as usize]
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

#[track_caller]
fn near(what: &str, value: f64, expect: f64, tolerance: f64) {
    assert!((value - expect).abs() <= tolerance * expect.abs(), "{what}: {value}, not {expect}");
}

#[test]
fn erlangs_formula_is_the_limit_of_many_sources() {
    // The values of the tables of Erlang's C: the probability that all servers are busy.
    let busy = |servers: usize, load: f64, sources: usize| {
        let seen = OthersInStage::of(servers, sources, load, 1e3);
        seen.mean(|k| usize::from(k >= servers))
    };
    near("1 server", busy(1, 0.5, MANY), 0.5, 1e-6);
    near("2 servers", busy(2, 1.0, MANY), 1.0 / 3.0, 1e-6);
    near("10 servers", busy(10, 8.0, MANY), 0.409_18, 1e-4);
    near("100 servers", busy(100, 90.0, MANY), 0.216_9, 1e-2);
    assert!(busy(5_000, 4_900.0, MANY) < 0.2);
    assert_eq!(
        (busy(4, 0.0, MANY), busy(4, 3.9, 4), busy(4, 0.0, 1)),
        (0.0, 0.0, 0.0),
        "nothing, or too few, to wait for"
    );
}

#[test]
fn two_sources_meet_each_other_as_often_as_they_are_served() {
    // M/M/1//2 with a think time of twice the service time: the other source is served a third of the time.
    let seen = OthersInStage::at(1, 1, 2.0);
    near("busy", seen.mean(|k| k), 1.0 / 3.0, 1e-9);
    // Each asks once in the time to think, to be served, and to wait for a third of a service.
    let found = OthersInStage::of(1, 2, 2.0 / (3.0 + 1.0 / 3.0), 1e3);
    near("found by the rate", found.mean(|k| k), 1.0 / 3.0, 1e-6);
}

#[test]
fn the_distribution_is_stable_for_any_number_of_sources() {
    for sources in [2, 20, 500, 5_000, 100_000, MANY] {
        let mut last = 0.0;
        for load in [0.1, 0.5, 0.9, 0.99] {
            let servers = (sources / 5).clamp(1, 20_000);
            let seen = OthersInStage::of(servers, sources, load * servers as f64, 1e3);
            let sum = seen.shares.iter().sum::<f64>();
            let wait = seen.mean(|k| steps_of_slots(servers, k));
            near("sum", sum, 1.0, 1e-9);
            assert!(wait >= last && wait.is_finite() && seen.from + seen.shares.len() <= sources, "{sources}, {load}");
            last = wait;
        }
    }
}

#[test]
fn waits_are_those_of_a_simulated_queue() {
    // Exponential service: the formula is exact. Deterministic: an approximation.
    for (servers, rate_hz, service_ms, variation) in
        [(1, 7.0, 100.0, 1.0), (4, 30.0, 100.0, 1.0), (8, 72.0, 100.0, 1.0), (4, 34.0, 100.0, 0.0)]
    {
        let model = solve(&slots(servers, service_ms, variation), 1, rate_hz, MANY).expect("it can be served");
        let (waits, _) = simulate(servers, Arrivals::open(rate_hz), 400_000, service_ms, variation);
        let what = format!("{servers} servers, {rate_hz} a second, variation {variation}");
        near(&what, model.mean_wait_ms(), mean(&waits), 0.12);
        let waiting = waits.iter().filter(|wait| **wait > 0.0).count() as f64 / waits.len() as f64;
        near(&format!("{what}: probability"), model.queue.probability, waiting, 0.12);
    }
    assert_eq!(solve(&slots(4, 100.0, 1.0), 1, 41.0, MANY), None, "more than four servers can do");
}

#[test]
fn few_sources_near_saturation_wait_as_long_as_simulated_ones() {
    for (servers, think_ms) in [(4, 500.0), (4, 400.0), (2, 900.0)] {
        let (waits, rate_hz) = simulate(servers, Arrivals::closed(20, think_ms), 400_000, 100.0, 1.0);
        let utilization = rate_hz * 0.1 / servers as f64;
        assert!((0.75..0.99).contains(&utilization), "{utilization}");
        // The first output comes with the slot, so that only the wait is drawn.
        let points = vec![SlotPoint { batch: 1.0, first_ms: 0.0, hold_ms: 100.0 }];
        let stage = stage(Service::Slots { slots: servers, points, variation: 1.0 });
        let p95 = |sources: usize, share: f64| {
            at(&drawn(&solve(&stage, 1, rate_hz, sources).expect("it can be served")), share)
        };
        for share in [0.5, 0.95] {
            let what = format!("{servers} servers, utilization {utilization}, {share}");
            near(&what, p95(20, share), at(&waits, share), 0.1);
        }
        assert!(p95(MANY, 0.95) > 1.25 * at(&waits, 0.95), "an infinite number of sources would wait longer");
    }
}

/// Requests that share runs of a fixed time: the time of `n` of them from the arrival to the end of the first run, in
/// ascending order, and the requests a second.
fn simulate_runs(slots: usize, runs: usize, mut arrivals: Arrivals, run_ms: f64, n: usize) -> (Vec<f64>, f64) {
    let mut waiting: VecDeque<(f64, usize)> = VecDeque::new();
    let mut now = 0.0f64;
    let mut firsts = Vec::new();
    let come = |waiting: &mut VecDeque<_>, arrivals: &mut Arrivals, now: f64| {
        while arrivals.earliest() <= now {
            waiting.push_back((arrivals.take(), runs));
        }
    };
    while firsts.len() < n {
        if waiting.is_empty() {
            now = now.max(arrivals.earliest());
        }
        come(&mut waiting, &mut arrivals, now);
        let batch: Vec<_> = waiting.drain(..waiting.len().min(slots)).collect();
        now += run_ms;
        // What arrived meanwhile goes before what goes on.
        come(&mut waiting, &mut arrivals, now);
        for (at, left) in batch {
            if left == runs {
                firsts.push(now - at);
            }
            if left > 1 { waiting.push_back((at, left - 1)) } else { arrivals.done(now) }
        }
    }
    firsts.sort_by(f64::total_cmp);
    let rate_hz = firsts.len() as f64 / now * 1e3;
    (firsts, rate_hz)
}

fn runs(slots: usize, runs: usize) -> StageProfile {
    let points = vec![RunPoint { batch: 1.0, run_ms: 40.0 }];
    stage(Service::Runs { slots, runs_per_request: runs as f64, points, variation: 0.0 })
}

#[test]
fn shared_runs_take_as_long_as_simulated_ones() {
    for (slots, n_runs, rate_hz) in [(4, 1, 5.0), (4, 1, 40.0), (4, 1, 70.0), (4, 6, 5.0), (4, 6, 10.0), (4, 6, 13.0)] {
        let state = solve(&runs(slots, n_runs), 1, rate_hz, MANY).expect("it can be served");
        let (simulated, _) = simulate_runs(slots, n_runs, Arrivals::open(rate_hz), 40.0, 200_000);
        let model = drawn(&state);
        for share in [0.5, 0.95] {
            let what = format!("{slots} slots, {n_runs} runs, {rate_hz} a second, {share}");
            near(&what, at(&model, share), at(&simulated, share), 0.15);
        }
    }
}

#[test]
fn shared_runs_of_few_sources_take_as_long_as_simulated_ones() {
    for (n_runs, think_ms) in [(7, 1_400.0), (7, 1_000.0), (6, 800.0), (3, 500.0)] {
        let (simulated, rate_hz) = simulate_runs(4, n_runs, Arrivals::closed(20, think_ms), 40.0, 200_000);
        let state = solve(&runs(4, n_runs), 1, rate_hz, 20).expect("it can be served");
        let model = drawn(&state);
        for share in [0.5, 0.95] {
            let what = format!("{n_runs} runs, utilization {}, {share}", state.utilization);
            near(&what, at(&model, share), at(&simulated, share), 0.1);
        }
    }
}

#[test]
fn waits_grow_with_load_and_shrink_with_instances() {
    let stage = slots(8, 200.0, 0.5);
    let mut last = 0.0;
    for rate_hz in [1.0, 10.0, 20.0, 30.0, 35.0, 39.0] {
        let state = solve(&stage, 1, rate_hz, MANY).expect("it can be served");
        assert!(state.mean_wait_ms() >= last, "{rate_hz}");
        last = state.mean_wait_ms();
        let more = solve(&stage, 2, rate_hz, MANY).expect("it can be served");
        assert!(more.mean_wait_ms() <= last && more.utilization < state.utilization);
    }
    assert!(solve(&stage, 1, 41.0, MANY).is_none() && solve(&stage, 2, 41.0, MANY).is_some());
}

#[test]
fn the_batch_that_results_slows_the_service() {
    let points = vec![
        SlotPoint { batch: 1.0, first_ms: 50.0, hold_ms: 400.0 },
        SlotPoint { batch: 16.0, first_ms: 200.0, hold_ms: 1_600.0 },
    ];
    let stage = stage(Service::Slots { slots: 16, points, variation: 0.3 });
    let calm = solve(&stage, 1, 0.1, MANY).expect("served");
    let busy = solve(&stage, 1, 8.0, MANY).expect("served");
    near("calm", calm.first_ms(), 50.0, 0.02);
    // In use: 8 requests a second times the hold at that batch.
    let in_use = busy.utilization * 16.0;
    near("in use", in_use, 8.0 * (400.0 + 80.0 * in_use) / 1e3, 0.01);
    assert!(busy.first_ms() > 100.0 && busy.batch > 6.0, "{busy:?}");
    assert!(solve(&stage, 1, 10.1, MANY).is_none(), "16 slots serve 10 a second at a full batch");
}

#[test]
fn percentiles_of_servers_of_others_come_out_as_they_went_in() {
    let state = alone(&stage(Service::External { p50_ms: 300.0, p95_ms: 700.0, p99_ms: 1_500.0 }));
    let mut dice = StdRng::seed_from_u64(3);
    let mut drawn: Vec<f64> = (0..100_000).map(|_| state.sample_ms(&Draw::random(&mut dice))).collect();
    drawn.sort_by(f64::total_cmp);
    for (share, expect) in [(0.5, 300.0), (0.95, 700.0), (0.99, 1_500.0)] {
        near("a percentile", drawn[(share * 1e5) as usize], expect, 0.05);
    }
}

#[test]
fn the_think_time_is_the_one_that_halving_finds() {
    // Few and many sources and servers, from hardly any load to the bound of what is planned.
    for sources in [1, 2, 7, 100, 5_000, 50_000, MANY] {
        for servers in [1, 3, 16, 500, 20_000] {
            for load in [0.0, 1e-6, 0.1, 0.5, 0.85, 0.95, 0.99, 0.994] {
                let most = servers as f64 * sources as f64 / (sources as f64 - 1.0).max(1.0);
                let rate_hz = load * most.min(sources as f64);
                let cycle = sources as f64 / rate_hz;
                let free = servers as f64 - rate_hz;
                let high = (cycle - 1.0).max(0.0);
                let low = if free > 0.0 { (high - 1.0 / free).max(0.0) } else { 0.0 };
                let calls = std::cell::Cell::new(0);
                let of = |think: f64| {
                    calls.set(calls.get() + 1);
                    think + steps_met(servers, sources - 1, think) / servers as f64 + 1.0 - cycle
                };
                let found = zero(low, high, of);
                let n_calls = calls.get();
                let mut halved = low;
                let mut above = high;
                for _ in 0..ROUNDS {
                    let middle = (halved + above) / 2.0;
                    if of(middle) < 0.0 {
                        halved = middle;
                    } else {
                        above = middle;
                    }
                }
                let what = format!("{sources} sources, {servers} servers, load {load}: {n_calls} values");
                // The waits are compared: at the rate of servers that are never idle any short think time solves the equation, and
                // halving finds one by its rounding.
                let tolerance = if rate_hz >= 0.999 * servers as f64 { 1e-5 } else { 1e-8 };
                let met = |think: f64| steps_met(servers, sources - 1, think);
                let difference = (met(found) - met(halved)).abs();
                assert!(difference <= tolerance * (1.0 + met(halved)), "{what}: {found}, not {halved}");
                assert!(n_calls <= 20, "{what}");
            }
        }
    }
}

#[test]
fn the_mean_without_a_vector_is_that_of_the_shares() {
    for (servers, others, think) in [(1, 1, 2.0), (4, 19, 5.0), (16, 4_999, 350.0), (300, 999, 2.5), (8, 0, 1.0)] {
        let expect = OthersInStage::at(servers, others, think).mean(|k| steps_of_slots(servers, k));
        near(&format!("{servers} servers, {others} others"), steps_met(servers, others, think), expect, 1e-12);
    }
}
