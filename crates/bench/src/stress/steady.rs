//! What a steady load shows: graphics cards during a hold, drift of latency and memory during a soak.

use crate::load::Outcome;
use crate::{Figure, Section, Unit, Waits};
use antiphon_telemetry::gpu::{Card, Cards};
use serde_json::{Value, json};
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::spawn_blocking;
use tokio::time::{MissedTickBehavior, interval};

/// Interval at which graphics cards are read.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Beginning of a soak that is left out: caches and pools fill.
const WARM_UP: f64 = 0.2;

/// Length of a soak from which the slope of memory says something.
const LONG: Duration = Duration::from_secs(30 * 60);

/// Bounds of the figures.
const P95_DRIFT: f64 = 1.1;
const MEMORY_MIB_HOUR: f64 = 1.0;

/// The graphics cards, read once a second; empty where there are none.
#[derive(Debug, Default)]
pub struct Looks(Vec<Vec<Card>>);

/// Runs `work` and reads the graphics cards meanwhile.
pub(super) async fn watched<T>(work: impl Future<Output = T>) -> (T, Looks) {
    let cards = spawn_blocking(Cards::open).await.ok().flatten().map(Arc::new);
    let mut looks = Looks::default();
    let mut ticks = interval(LOOK_EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
    tokio::pin!(work);
    loop {
        tokio::select! {
            done = &mut work => return (done, looks),
            _ = ticks.tick(), if cards.is_some() => {
                let Some(cards) = cards.clone() else { continue };
                looks.0.extend(spawn_blocking(move || cards.read()).await.ok());
            }
        }
    }
}

impl Looks {
    /// The first card in one line; `None` without one.
    pub(super) fn summary(&self) -> Option<String> {
        let shown = |value: Option<f64>, unit: &str| value.map_or("-".to_owned(), |value| format!("{value:.0} {unit}"));
        self.0.first()?.first()?;
        let [used, memory, power, clock] = self.averages(0);
        Some(format!("{}, {}, {}, {}", shown(used, "%"), shown(memory, "MiB"), shown(power, "W"), shown(clock, "MHz")))
    }

    pub(super) fn figures(&self, section: &mut Section) {
        let names: Vec<_> = self.0.first().into_iter().flatten().map(|card| card.name.clone()).collect();
        for (at, name) in names.iter().enumerate() {
            let units = [("utilization", "%"), ("memory", "MiB"), ("power", "W"), ("SM clock", "MHz")];
            for ((what, unit), value) in units.into_iter().zip(self.averages(at)) {
                let figure = |value| Figure::new(format!("{name}: {what} avg"), Unit::Of(unit), value, self.0.len());
                section.figures.extend(value.map(figure));
            }
        }
    }

    pub(super) fn json(&self) -> Value {
        json!(self.0)
    }

    /// Utilization, memory, power and clock of a card.
    fn averages(&self, at: usize) -> [Option<f64>; 4] {
        let of = |of: fn(&Card) -> Option<f64>| mean(self.0.iter().filter_map(|cards| of(cards.get(at)?)));
        [
            of(|card| card.utilization.map(f64::from)),
            of(|card| Some(card.memory_bytes as f64 / f64::from(1 << 20))),
            of(|card| card.power_mw.map(|mw| f64::from(mw) / 1e3)),
            of(|card| card.sm_clock_mhz.map(f64::from)),
        ]
    }
}

/// How latency and memory changed during a soak.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Drift {
    /// p95 of the last third divided by that of the first, without the warm-up.
    pub p95_times: f64,
    /// Slope of anonymous memory in MiB an hour; `None` without the server's process.
    pub memory_mib_hour: Option<f64>,
    /// Duration of the load.
    pub took: Duration,
}

impl Drift {
    /// The drift of a load; `None` if it has too few turns.
    pub fn of(outcome: &Outcome) -> Option<Self> {
        let took = outcome.took.as_secs_f64();
        let from = took * WARM_UP;
        let third = (took - from) / 3.0;
        let p95 = |from: f64| {
            let within = outcome.turns.iter().filter(|turn| (from..from + third).contains(&turn.at.as_secs_f64()));
            let waits: Waits = within.filter_map(|turn| Some(turn.wait?.as_secs_f64() * 1e3)).collect();
            waits.percentile(95.0)
        };
        let p95_times = p95(from + 2.0 * third)? / p95(from)?;
        let samples = outcome.samples.iter().filter(|sample| sample.at.as_secs_f64() >= from);
        let points: Vec<_> = samples
            .map(|sample| (sample.at.as_secs_f64() / 3_600.0, sample.anonymous as f64 / f64::from(1 << 20)))
            .collect();
        Some(Self { p95_times, memory_mib_hour: slope(&points), took: outcome.took })
    }

    /// Whether both stay within their bounds; the memory of a short soak is not judged.
    pub fn holds(&self) -> bool {
        let memory = self.memory_mib_hour.is_none_or(|slope| slope <= MEMORY_MIB_HOUR || self.took < LONG);
        self.p95_times <= P95_DRIFT && memory
    }

    pub(super) fn figures(&self, section: &mut Section) {
        let figure = Figure::new("soak: p95, last third of first", Unit::Times, self.p95_times, 3);
        section.figures.push(figure.at_most(P95_DRIFT));
        if let Some(slope) = self.memory_mib_hour {
            let figure = Figure::new("soak: memory", Unit::Of("MiB/h"), slope, 1);
            section.figures.push(if self.took >= LONG { figure.at_most(MEMORY_MIB_HOUR) } else { figure });
        }
    }
}

/// The slope of a line through points, by least squares; `None` for fewer than three.
fn slope(points: &[(f64, f64)]) -> Option<f64> {
    let n = points.len() as f64;
    let mean_of = |of: fn(&(f64, f64)) -> f64| points.iter().map(of).sum::<f64>() / n;
    let x = mean_of(|point| point.0);
    let y = mean_of(|point| point.1);
    let above: f64 = points.iter().map(|point| (point.0 - x) * (point.1 - y)).sum();
    let below: f64 = points.iter().map(|point| (point.0 - x).powi(2)).sum();
    (points.len() > 2 && below > 0.0).then(|| above / below)
}

fn mean(values: impl Iterator<Item = f64>) -> Option<f64> {
    let (sum, n) = values.fold((0.0, 0), |(sum, n), value| (sum + value, n + 1));
    (n > 0).then(|| sum / f64::from(n))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::{Sample, TurnRecord};

    #[test]
    fn a_slope_is_that_of_the_line() {
        let line: Vec<_> = (0..20).map(|n| (f64::from(n), 5.0 + 3.0 * f64::from(n))).collect();
        assert!((slope(&line).expect("a line") - 3.0).abs() < 1e-9);
        assert_eq!(slope(&line[..2]), None);
        assert_eq!(slope(&[(1.0, 1.0); 5]), None);
    }

    #[test]
    fn pages_of_the_programs_file_hide_no_leak() {
        let minutes = |n: u64| Duration::from_secs(60 * n);
        let sample =
            |n: u64| Sample { at: minutes(n), cpu_s: 0.0, resident: (900 - 10 * n) << 20, anonymous: (100 + n) << 20 };
        let turn = |n: u64| TurnRecord::asked(minutes(n), Some(minutes(1)));
        let soak = Outcome {
            n_sessions: 10,
            turns: (0..60).map(turn).collect(),
            before: Some(sample(0)),
            samples: (0..60).map(sample).collect(),
            took: minutes(60),
            ..Outcome::default()
        };
        let slope = Drift::of(&soak).and_then(|drift| drift.memory_mib_hour).expect("samples");
        assert!((slope - 60.0).abs() < 1e-6, "{slope}");
        assert_eq!(soak.memory_kib(), Some(59.0 * 1024.0 / 10.0));
    }

    #[test]
    fn memory_is_judged_in_long_soaks_only() {
        let drift = |p95_times, slope, minutes: u64| Drift {
            p95_times,
            memory_mib_hour: Some(slope),
            took: Duration::from_secs(60 * minutes),
        };
        assert!(drift(1.0, 90.0, 2).holds() && drift(1.05, 0.5, 30).holds());
        assert!(!drift(1.0, 1.5, 30).holds() && !drift(1.2, 0.0, 2).holds());
    }
}
