//! The planner's model against loads: fitted to some, checked at others.
//!
//! One session gives the profile; one factor on the service times is fitted to the loads of `fit`. The loads of `check` are
//! then predicted and measured, p50, p95 and p99. The hub neither speculates nor sheds load meanwhile, so that queueing is
//! visible.

use super::{StressPlan, measured_profile};
use crate::load::{self, Length};
use crate::{BenchError, Figure, Progress, Section, Unit};
use antiphon_planner::{self as planner, Profile, Service, Turns};
use serde_json::{Value, json};
use std::time::Duration;
use tokio::time::sleep;

/// The largest relative error of a percentile.
const TOLERANCE: f64 = 0.15;

/// Turns from which a load's p99 is judged: with fewer it is the longest wait of all, or nearly so.
const MIN_FOR_P99: usize = 100;

/// Factors on the service times that are tried.
const FACTORS: (f64, f64, usize) = (0.8, 1.3, 51);

/// The percentiles that are compared.
const SHARES: [f64; 3] = [0.5, 0.95, 0.99];

/// A load, measured and predicted.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LoadComparison {
    /// Concurrent sessions.
    pub sessions: usize,
    /// Turns that were measured.
    pub turns: usize,
    /// p50, p95 and p99 in milliseconds, as measured.
    pub measured: [f64; 3],
    /// The same, as predicted; infinite where the model says that the load cannot be served.
    pub predicted: [f64; 3],
}

/// A calibrated profile and how well it predicts.
#[derive(Clone, Debug)]
pub struct Calibration {
    /// The profile, with the fitted factor.
    pub profile: Profile,
    /// The factor on the service times.
    pub factor: f64,
    /// The loads it was fitted to.
    pub fitted: Vec<LoadComparison>,
    /// The loads it was checked at.
    pub checked: Vec<LoadComparison>,
}

/// What a calibration measures.
#[derive(Clone, Copy, Debug)]
pub struct Loads<'a> {
    /// Concurrent sessions of the loads that the factor is fitted to.
    pub fit: &'a [usize],
    /// Those that it is checked at.
    pub check: &'a [usize],
    /// Turns of the one session that gives the profile.
    pub n_turns: usize,
    /// How long each load lasts.
    pub length: Duration,
}

/// Measures the loads and compares. `instances`: of the recognizer and of the voice.
///
/// # Errors
/// As [`measured_profile::measure`].
pub async fn calibrate(
    plan: &StressPlan,
    known: &measured_profile::KnownEngines,
    instances: usize,
    loads: Loads<'_>,
    progress: Progress<'_>,
) -> Result<Calibration, BenchError> {
    let Loads { fit, check, n_turns, length } = loads;
    let base = measured_profile::measure(plan, n_turns, known, None, progress).await?;
    let counts = [instances, 1, instances];
    let mut measured = Vec::new();
    for n in fit.iter().chain(check) {
        progress(&format!("stress: calibration with {n} sessions"));
        let outcome = load::run(plan.load(*n, Length::For(length)), progress).await?;
        let waits = outcome.waits();
        let at = SHARES.map(|share| waits.percentile(share * 100.0).unwrap_or(f64::INFINITY));
        measured.push(MeasuredLoad { sessions: *n, turns: waits.len(), percentiles: at });
        sleep(plan.rest).await;
    }
    let compare = |factor: f64, load: &MeasuredLoad| {
        let predicted = predict(&scaled(&base, factor), load.sessions, counts);
        LoadComparison { sessions: load.sessions, turns: load.turns, measured: load.percentiles, predicted }
    };
    let (to_fit, to_check) = measured.split_at(fit.len());
    let (low, high, n_factors) = FACTORS;
    let factors = (0..n_factors).map(|n| low + (high - low) * n as f64 / (n_factors - 1) as f64);
    let error = |factor: f64| to_fit.iter().map(|load| compare(factor, load).error()).sum::<f64>();
    let best = factors.map(|factor| (error(factor), factor)).min_by(|a, b| a.0.total_cmp(&b.0));
    let factor = best.map_or(1.0, |(_, factor)| factor);
    let mut profile = scaled(&base, factor);
    profile.name = "calibrated".into();
    let loads = fit.iter().map(usize::to_string).collect::<Vec<_>>().join(", ");
    for path in ["stt.service", "tts.service"] {
        if let Some(source) = profile.sources.get_mut(path) {
            source.from += &format!("; times {factor:.2}, fitted to {loads} sessions");
        }
    }
    Ok(Calibration {
        profile,
        factor,
        fitted: to_fit.iter().map(|load| compare(factor, load)).collect(),
        checked: to_check.iter().map(|load| compare(factor, load)).collect(),
    })
}

/// A load as it was measured.
struct MeasuredLoad {
    sessions: usize,
    turns: usize,
    /// [`SHARES`] in milliseconds.
    percentiles: [f64; 3],
}

/// p50, p95 and p99 of this number of talking sessions, in milliseconds.
fn predict(profile: &Profile, sessions: usize, instances: [usize; 3]) -> [f64; 3] {
    match planner::loaded(profile, sessions as f64, instances) {
        Ok(loaded) => {
            let turns = Turns::draw(profile, &loaded.stages);
            SHARES.map(|share| turns.at(share))
        }
        Err(_) => [f64::INFINITY; 3],
    }
}

/// The profile with its own engines' times multiplied.
fn scaled(profile: &Profile, factor: f64) -> Profile {
    let mut profile = profile.clone();
    for stage in [&mut profile.stt, &mut profile.tts] {
        match &mut stage.service {
            Service::Slots { points, .. } => points.iter_mut().for_each(|point| {
                point.first_ms *= factor;
                point.hold_ms *= factor;
            }),
            Service::Runs { points, .. } => points.iter_mut().for_each(|point| point.run_ms *= factor),
            Service::External { .. } => {}
        }
    }
    profile
}

impl LoadComparison {
    /// Relative errors of the prediction.
    pub fn errors(&self) -> [f64; 3] {
        std::array::from_fn(|at| self.predicted[at] / self.measured[at] - 1.0)
    }

    /// The sum of the absolute errors.
    fn error(&self) -> f64 {
        self.errors().into_iter().map(f64::abs).sum()
    }
}

impl Calibration {
    /// The figures; `how` describes the run in one line.
    pub fn section(&self, how: impl Into<String>) -> Section {
        let mut section = Section::new("calibration", how);
        section.figures.push(Figure::new("factor on the service times", Unit::Times, self.factor, self.fitted.len()));
        let loads = self.fitted.iter().map(|load| (load, false)).chain(self.checked.iter().map(|load| (load, true)));
        for (load, is_checked) in loads {
            for (at, share) in SHARES.into_iter().enumerate() {
                let n = load.sessions;
                let percent = share * 100.0;
                let what = if is_checked { "checked" } else { "fitted" };
                let error = load.errors()[at].abs() * 100.0;
                let name = format!("{what}, {n} sessions, p{percent:.0}: error");
                let figure = Figure::new(name, Unit::Of("%"), error, load.turns);
                let is_judged = is_checked && (share < 0.99 || load.turns >= MIN_FOR_P99);
                section.figures.push(if is_judged { figure.at_most(TOLERANCE * 100.0) } else { figure });
                section.notes.push(format!(
                    "{what}, {n} sessions, p{percent:.0}: measured {:.0} ms, predicted {:.0} ms",
                    load.measured[at], load.predicted[at]
                ));
            }
        }
        section
    }

    /// All loads as JSON.
    pub fn json(&self) -> Value {
        let load = |load: &LoadComparison| json!({"sessions": load.sessions, "turns": load.turns, "measured_ms": load.measured, "predicted_ms": load.predicted});
        json!({
            "factor": self.factor,
            "fitted": self.fitted.iter().map(load).collect::<Vec<_>>(),
            "checked": self.checked.iter().map(load).collect::<Vec<_>>(),
        })
    }
}
