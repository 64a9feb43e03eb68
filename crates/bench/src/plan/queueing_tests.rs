//! The formulae against textbook values and against a discrete-event simulation.

use super::super::profile::{RunPoint, SlotPoint};
use super::*;
use rand::SeedableRng;
use std::collections::VecDeque;

fn slots(slots: usize, hold_ms: f64, variation: f64) -> StageProfile {
    let points = vec![SlotPoint { batch: 1.0, first_ms: hold_ms, hold_ms }];
    stage(Service::Slots { slots, points, variation })
}

fn stage(service: Service) -> StageProfile {
    StageProfile { engine: "x".into(), requests_per_turn: 1.0, service, needs: None, settings: Default::default() }
}

/// A queue with `servers`: the waits of `n` requests, in milliseconds, in order of arrival.
fn simulate(servers: usize, rate_hz: f64, n: usize, mut service_ms: impl FnMut(&mut StdRng) -> f64) -> Vec<f64> {
    let mut dice = StdRng::seed_from_u64(7);
    let mut free_at = vec![0.0f64; servers];
    let mut now = 0.0;
    let wait = |_| {
        now -= (1.0 - dice.random_range(0.0..1.0f64)).ln() / rate_hz * 1e3;
        let (at, _) = free_at.iter().enumerate().min_by(|a, b| a.1.total_cmp(b.1)).expect("servers");
        let begins = now.max(free_at[at]);
        free_at[at] = begins + service_ms(&mut dice);
        begins - now
    };
    (0..n).map(wait).collect()
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

#[track_caller]
fn near(what: &str, value: f64, expect: f64, tolerance: f64) {
    assert!((value - expect).abs() <= tolerance * expect.abs(), "{what}: {value}, not {expect}");
}

#[test]
fn erlangs_formula_has_the_values_of_the_tables() {
    near("1 server", erlang_c(1, 0.5), 0.5, 1e-9);
    near("2 servers", erlang_c(2, 1.0), 1.0 / 3.0, 1e-9);
    near("10 servers", erlang_c(10, 8.0), 0.409_18, 1e-4);
    assert_eq!((erlang_c(4, 4.0), erlang_c(4, 0.0)), (1.0, 0.0));
    assert!(erlang_c(5_000, 4_900.0) < 0.2);
}

#[test]
fn waits_are_those_of_a_simulated_queue() {
    // Exponential service: the formula is exact. Deterministic: an approximation.
    for (servers, rate_hz, service_ms, variation) in
        [(1, 7.0, 100.0, 1.0), (4, 30.0, 100.0, 1.0), (8, 72.0, 100.0, 1.0), (4, 34.0, 100.0, 0.0)]
    {
        let model = allen_cunneen(servers, rate_hz, service_ms, variation).expect("it can be served");
        let exponential = |dice: &mut StdRng| -(1.0 - dice.random_range(0.0..1.0f64)).ln() * service_ms;
        let waits =
            simulate(servers, rate_hz, 400_000, |dice| if variation > 0.0 { exponential(dice) } else { service_ms });
        let what = format!("{servers} servers, {rate_hz} a second, variation {variation}");
        near(&what, model.probability * model.mean_ms, mean(&waits), 0.12);
        let waiting = waits.iter().filter(|wait| **wait > 0.0).count() as f64 / waits.len() as f64;
        near(&format!("{what}: probability"), model.probability, waiting, 0.12);
    }
    assert_eq!(allen_cunneen(4, 41.0, 100.0, 1.0), None, "more than four servers can do");
}

/// Requests that share runs of a fixed time: the time of each from its arrival to the end of its first run.
fn simulate_runs(slots: usize, runs: usize, rate_hz: f64, run_ms: f64, n: usize) -> Vec<f64> {
    let mut dice = StdRng::seed_from_u64(7);
    let mut arrival = 0.0;
    let mut arrivals = (0..n).map(|_| {
        arrival -= (1.0 - dice.random_range(0.0..1.0f64)).ln() / rate_hz * 1e3;
        arrival
    });
    let mut next = arrivals.next();
    let mut waiting: VecDeque<(f64, usize)> = VecDeque::new();
    let (mut now, mut firsts) = (0.0f64, Vec::new());
    while next.is_some() || !waiting.is_empty() {
        if waiting.is_empty() {
            now = now.max(next.expect("more to come"));
        }
        while let Some(at) = next.filter(|at| *at <= now) {
            waiting.push_back((at, runs));
            next = arrivals.next();
        }
        let batch: Vec<_> = waiting.drain(..waiting.len().min(slots)).collect();
        now += run_ms;
        // What arrived meanwhile goes before what goes on.
        while let Some(at) = next.filter(|at| *at <= now) {
            waiting.push_back((at, runs));
            next = arrivals.next();
        }
        for (at, left) in batch {
            if left == runs {
                firsts.push(now - at);
            }
            if left > 1 {
                waiting.push_back((at, left - 1));
            }
        }
    }
    firsts.sort_by(f64::total_cmp);
    firsts
}

#[test]
fn shared_runs_take_as_long_as_simulated_ones() {
    for (slots, runs, rate_hz) in [(4, 1, 5.0), (4, 1, 40.0), (4, 1, 70.0), (4, 6, 5.0), (4, 6, 10.0), (4, 6, 13.0)] {
        let points = vec![RunPoint { batch: 1.0, run_ms: 40.0 }];
        let service = Service::Runs { slots, runs_per_request: runs as f64, points, variation: 0.0 };
        let state = solve(&stage(service), 1, rate_hz).expect("it can be served");
        let simulated = simulate_runs(slots, runs, rate_hz, 40.0, 200_000);
        let mut dice = StdRng::seed_from_u64(1);
        let mut model: Vec<f64> = (0..50_000).map(|_| state.sample_ms(&mut dice)).collect();
        model.sort_by(f64::total_cmp);
        for share in [0.5, 0.95] {
            let at = |values: &[f64]| values[(values.len() as f64 * share) as usize];
            let what = format!("{slots} slots, {runs} runs, {rate_hz} a second, {share}");
            near(&what, at(&model), at(&simulated), 0.15);
        }
    }
}

#[test]
fn waits_grow_with_load_and_shrink_with_instances() {
    let stage = slots(8, 200.0, 0.5);
    let mut last = 0.0;
    for rate_hz in [1.0, 10.0, 20.0, 30.0, 35.0, 39.0] {
        let state = solve(&stage, 1, rate_hz).expect("it can be served");
        assert!(state.mean_wait_ms() >= last, "{rate_hz}");
        last = state.mean_wait_ms();
        let more = solve(&stage, 2, rate_hz).expect("it can be served");
        assert!(more.mean_wait_ms() <= last && more.utilization < state.utilization);
    }
    assert!(solve(&stage, 1, 41.0).is_none() && solve(&stage, 2, 41.0).is_some());
}

#[test]
fn the_batch_that_results_slows_the_service() {
    let points = vec![
        SlotPoint { batch: 1.0, first_ms: 50.0, hold_ms: 400.0 },
        SlotPoint { batch: 16.0, first_ms: 200.0, hold_ms: 1_600.0 },
    ];
    let stage = stage(Service::Slots { slots: 16, points, variation: 0.3 });
    let (calm, busy) = (solve(&stage, 1, 0.1).expect("served"), solve(&stage, 1, 8.0).expect("served"));
    near("calm", calm.first_ms(), 50.0, 0.02);
    // In use: 8 requests a second times the hold at that batch.
    let in_use = busy.utilization * 16.0;
    near("in use", in_use, 8.0 * (400.0 + 80.0 * in_use) / 1e3, 0.01);
    assert!(busy.first_ms() > 100.0 && busy.batch > 6.0, "{busy:?}");
    assert!(solve(&stage, 1, 10.1).is_none(), "16 slots serve 10 a second at a full batch");
}

#[test]
fn percentiles_of_servers_of_others_come_out_as_they_went_in() {
    let state = alone(&stage(Service::External { p50_ms: 300.0, p95_ms: 700.0, p99_ms: 1_500.0 }));
    let mut dice = StdRng::seed_from_u64(3);
    let mut drawn: Vec<f64> = (0..100_000).map(|_| state.sample_ms(&mut dice)).collect();
    drawn.sort_by(f64::total_cmp);
    for (share, expect) in [(0.5, 300.0), (0.95, 700.0), (0.99, 1_500.0)] {
        near("a percentile", drawn[(share * 1e5) as usize], expect, 0.05);
    }
}
