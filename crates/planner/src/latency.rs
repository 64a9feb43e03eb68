//! Voice-to-voice latency of turns at a load: the stages' times added up, turn by turn, with a fixed seed.

use super::profile::{Profile, StageProfile};
use super::queueing::{self, Draw, StageState};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use serde::Serialize;
use std::sync::LazyLock;

/// Turns that are drawn: p99 then varies by about 1 % from seed to seed.
const N_TURNS: usize = 40_000;

/// Seed of all draws, so that the same plan gives the same figures.
const SEED: u64 = 18;

/// Halvings of the rate at which sessions that wait ask: to a millionth.
const BISECTIONS: usize = 20;

/// Percentiles of voice-to-voice latency, in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Latency {
    /// Median.
    pub p50_ms: f64,
    /// 95th percentile.
    pub p95_ms: f64,
    /// 99th percentile.
    pub p99_ms: f64,
}

/// All stages at a load, in the order of [`Profile::stages`].
#[derive(Clone, Debug, PartialEq)]
pub struct LoadState {
    /// The stages.
    pub stages: [StageState; 3],
    /// Turns a second.
    pub turns_hz: f64,
}

/// The chance in a turn, in [0, 1) where it is not of a stage.
struct TurnDraw {
    end: f64,
    rest: f64,
    speculation: f64,
    stages: [Draw; 3],
}

/// The turns of each [`Turns::draw`]: drawn once, since a plan tries many loads.
static DRAWS: LazyLock<Vec<TurnDraw>> = LazyLock::new(|| {
    let mut dice = StdRng::seed_from_u64(SEED);
    let mut draw = || {
        let [end, rest, speculation] = [(); 3].map(|()| dice.random_range(0.0..1.0f64));
        TurnDraw { end, rest, speculation, stages: [(); 3].map(|()| Draw::random(&mut dice)) }
    };
    (0..N_TURNS).map(|_| draw()).collect()
});

/// Latencies of turns, in ascending order.
pub struct Turns(Vec<f64>);

/// The stages without any load.
pub fn unloaded(profile: &Profile) -> LoadState {
    LoadState { stages: profile.stages().map(|(_, stage)| queueing::alone(stage)), turns_hz: 0.0 }
}

/// The stages with `talking` sessions and `instances` of each; the index of a stage that cannot serve them.
///
/// Sessions that wait ask less often: a turn takes its usual time, and what it waits longer.
pub fn loaded(profile: &Profile, talking: f64, instances: [usize; 3]) -> Result<LoadState, usize> {
    let usual_s = 60.0 / profile.conversation.turns_per_minute;
    let calm: f64 = unloaded(profile).stages.iter().map(mean_ms).sum();
    let sources = talking.max(1.0).round() as usize;
    let usual_hz = talking / usual_s;
    let asked_hz = |stages: &[StageState; 3]| {
        let longer_s = (stages.iter().map(mean_ms).sum::<f64>() - calm).max(0.0) / 1e3;
        talking / (usual_s + longer_s)
    };
    // At a higher rate they wait longer and would ask less often; at a lower one, more often.
    let mut low = 0.0;
    let mut high = usual_hz;
    for _ in 0..BISECTIONS {
        let middle = (low + high) / 2.0;
        match solve(profile, middle, sources, instances) {
            Ok(stages) if asked_hz(&stages) >= middle => low = middle,
            _ => high = middle,
        }
    }
    let stages = solve(profile, low, sources, instances)?;
    // Sessions that ask half as often because they wait are not served.
    match low < usual_hz / 2.0 {
        true => Err(busiest(&stages)),
        false => Ok(LoadState { stages, turns_hz: low }),
    }
}

fn busiest(stages: &[StageState; 3]) -> usize {
    (0..3).max_by(|one, other| stages[*one].utilization.total_cmp(&stages[*other].utilization)).unwrap_or_default()
}

/// The stages at this rate of turns of this number of sessions; the index of one that cannot serve them.
fn solve(profile: &Profile, turns_hz: f64, sources: usize, instances: [usize; 3]) -> Result<[StageState; 3], usize> {
    let state = |at: usize, stage: &StageProfile| {
        queueing::solve(stage, instances[at], turns_hz * stage.requests_per_turn, sources).ok_or(at)
    };
    Ok([state(0, &profile.stt)?, state(1, &profile.llm)?, state(2, &profile.tts)?])
}

fn mean_ms(stage: &StageState) -> f64 {
    stage.first_ms() + stage.mean_wait_ms()
}

impl Turns {
    /// Draws turns.
    pub fn draw(profile: &Profile, stages: &[StageState; 3]) -> Self {
        Self::draw_without(profile, stages, None)
    }

    /// Draws turns in which a part takes no time: 0 the end of the turn, 1 to 3 the stages, 4 the rest.
    pub(super) fn draw_without(profile: &Profile, stages: &[StageState; 3], without: Option<usize>) -> Self {
        let hop_ms = |stage: &StageProfile| if stage.is_external() { 0.0 } else { profile.nats.hop_ms };
        let hops = profile.stages().map(|(_, stage)| hop_ms(stage));
        let turn = &profile.turn;
        let part = |at: usize, ms: f64| if without == Some(at) { 0.0 } else { ms };
        let mut all: Vec<f64> = DRAWS
            .iter()
            .map(|draw| {
                let endpointing = part(0, quantile(&turn.endpointing_ms, draw.end));
                let drawn = [0, 1, 2].map(|at| part(at + 1, stages[at].sample_ms(&draw.stages[at]) + hops[at]));
                let stages_ms: f64 = drawn.iter().sum();
                let rest_ms = part(4, quantile(&turn.rest_ms, draw.rest));
                match &turn.speculation {
                    Some(early) if draw.speculation < early.share => {
                        endpointing.max(early.starts_ms + stages_ms) + rest_ms
                    }
                    _ => endpointing + stages_ms + rest_ms,
                }
            })
            .collect();
        all.sort_by(f64::total_cmp);
        Self(all)
    }

    /// The latency that a share of the turns keeps, in milliseconds.
    pub fn at(&self, share: f64) -> f64 {
        let rank = (share * self.0.len() as f64).ceil().max(1.0) as usize;
        self.0[rank.min(self.0.len()) - 1]
    }

    /// The usual percentiles.
    pub fn latency(&self) -> Latency {
        Latency { p50_ms: self.at(0.5), p95_ms: self.at(0.95), p99_ms: self.at(0.99) }
    }
}

/// A quantile of values at equal steps from 0 to 1.
fn quantile(values: &[f64], at: f64) -> f64 {
    let place = at * (values.len() - 1) as f64;
    let below = place.floor() as usize;
    let part = place.fract();
    let above = (below + 1).min(values.len() - 1);
    values[below] + (values[above] - values[below]) * part
}
