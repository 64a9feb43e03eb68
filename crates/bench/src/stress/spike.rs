//! A spike: a crowd comes to a server that is held at 80 % of what it serves, and leaves.
//!
//! The crowd comes within a second; a session that is refused does not come back. Refusals are counted apart: how fast
//! they came and with which `Retry-After`. Goodput is the number of turns within the objective that were answered a
//! second; it is compared with that before the spike, at 80 % of the sessions that the climb found. A turn that is not
//! answered is endless.

use super::{MixedLoad, StressPlan, load};
use crate::load::{Length, Load, Outcome};
use crate::{BenchError, Figure, Progress, Section, Unit, Waits};
use serde_json::{Value, json};
use std::time::Duration;
use tokio::time::sleep;

/// The crowd comes within this time.
const COMES_WITHIN: Duration = Duration::from_secs(1);

/// Windows in which the recovery is looked for, and their distance, in seconds.
const WINDOW_S: f64 = 2.0;
const STEP_S: f64 = 0.25;

/// Turns of a window below which its percentile says nothing: one slow turn of few is no overload, but one that is not
/// answered is.
const MIN_TURNS: usize = 8;

/// Answers a second behind the spike, of those before it, below which a server has not recovered, however fast they
/// are.
const FEWEST: f64 = 0.5;

/// Bounds of the figures.
const REFUSED_MS: f64 = 50.0;
const RECOVERY_S: f64 = 5.0;
const GOODPUT: f64 = 0.9;

/// What a spike did.
#[derive(Debug)]
pub struct Spike {
    /// The sessions that were there before, with those that are mixed in.
    pub base: MixedLoad,
    /// The crowd, on good networks.
    pub crowd: Outcome,
    /// Beginning and end of the spike, in seconds from the start of the load.
    pub during_s: (f64, f64),
    /// Goodput before, during and after the spike, in turns a second.
    pub goodput: [f64; 3],
    /// Time from the end of the spike until p95 is within the objective again, in seconds; infinite if it never is.
    pub recovery_s: f64,
}

pub(super) async fn run(plan: &StressPlan, n: usize, progress: Progress<'_>) -> Result<Spike, BenchError> {
    let crowd = ((plan.spike - 1.0) * n as f64).round().max(1.0) as usize;
    let before = plan.around_spike;
    let during = plan.spike_for;
    let base = plan.mixed(n, before + during + plan.around_spike, None, false, progress);
    let stagger = COMES_WITHIN / crowd as u32;
    let guests = Load { stagger, process: None, seed: 3, warm_up: 0, ..plan.load(crowd, Length::For(during)) };
    let guests = async {
        sleep(before).await;
        load::run(guests, &|_| ()).await
    };
    let (base, crowd) = tokio::join!(base, guests);
    let [begins_s, ends_s, over_s] =
        [before, before + during, before + during + plan.around_spike].map(|time| time.as_secs_f64());
    Ok(Spike::of(base?, crowd?, [begins_s, ends_s, over_s], plan.objective))
}

impl Spike {
    /// Of a spike from `begins_s` to `ends_s`; the base asks until `over_s`.
    fn of(base: MixedLoad, crowd: Outcome, [begins_s, ends_s, over_s]: [f64; 3], objective: Duration) -> Self {
        let objective_ms = objective.as_secs_f64() * 1e3;
        let answered = answered(&base.main, 0.0);
        let all: Vec<_> = answered.iter().copied().chain(self::answered(&crowd, begins_s)).collect();
        let goodput = |(from, to): (f64, f64)| {
            let within = all.iter().filter(|(at, ms)| (from..to).contains(at) && *ms <= objective_ms).count();
            if to > from { within as f64 / (to - from) } else { 0.0 }
        };
        // The sessions come one after the other, and the first turns take their time.
        let before = (begins_s / 2.0, begins_s);
        let after = (ends_s, over_s);
        let rate = |(from, to): (f64, f64)| {
            answered.iter().filter(|(at, _)| (from..to).contains(at)).count() as f64 / (to - from)
        };
        let has_stopped = rate(after) == 0.0 || rate(after) < FEWEST * rate(before);
        let turns: Vec<_> = answered.iter().copied().chain(unanswered(&base.main)).collect();
        let recovery_s = if has_stopped { f64::INFINITY } else { recovery_s(&turns, ends_s, over_s, objective_ms) };
        let during_s = (begins_s, ends_s);
        Self { goodput: [before, during_s, after].map(goodput), base, crowd, during_s, recovery_s }
    }

    /// Voice-to-voice latency of the turns asked during the spike by those who were there or were admitted.
    pub fn during(&self) -> Waits {
        let (from, to) = self.during_s;
        let mut waits = Waits::default();
        let base = self.base.main.turns.iter().filter(|turn| (from..to).contains(&turn.at.as_secs_f64()));
        for turn in base.chain(&self.crowd.turns) {
            match turn.wait {
                Some(wait) => waits.push(wait),
                None => waits.push_endless(),
            }
        }
        waits
    }

    /// Times until a session of the crowd was refused.
    pub fn refusals(&self) -> Waits {
        let mut waits = Waits::default();
        self.crowd.refused.iter().for_each(|refusal| waits.push(refusal.after));
        waits
    }

    /// Turns of those who were there or were admitted that were not answered, at whatever time.
    pub fn n_unanswered(&self) -> usize {
        self.base.main.turns.iter().chain(&self.crowd.turns).filter(|turn| turn.wait.is_none()).count()
    }

    /// Goodput during the spike as a multiple of that before it; 0 where there was none before.
    fn kept(&self) -> f64 {
        let [before, during, _] = self.goodput;
        if before > 0.0 { during / before } else { 0.0 }
    }

    /// Whether those admitted kept the objective, each turn was answered, no session was cut off, the others were
    /// refused in time, the goodput stayed, and the server recovered in time.
    pub fn holds(&self, objective: Duration) -> bool {
        let p95 = self.during().percentile(95.0).is_none_or(|ms| ms <= objective.as_secs_f64() * 1e3);
        let cut_off = self.crowd.broken.len() > self.crowd.refused.len() || !self.base.main.broken.is_empty();
        let refused_in_time = self.refusals().percentile(100.0).is_none_or(|ms| ms <= REFUSED_MS);
        let recovered = self.kept() >= GOODPUT && self.recovery_s <= RECOVERY_S;
        p95 && self.n_unanswered() == 0 && !cut_off && refused_in_time && recovered
    }

    pub(super) fn figures(&self, section: &mut Section, objective_ms: f64) {
        let n = self.base.main.n_sessions;
        let crowd = self.crowd.n_sessions;
        let refused = self.crowd.refused.len();
        let count = |what: &str, n: usize, of: usize| Figure::new(format!("spike: {what}"), Unit::Count, n as f64, of);
        section.figures.push(count("sessions that came", crowd, n + crowd));
        section.figures.push(count("of them refused", refused, crowd));
        section.percentile("spike: time to a refusal", &self.refusals(), 50.0, None);
        section.percentile("spike: time to a refusal", &self.refusals(), 100.0, Some(REFUSED_MS));
        let broken = self.crowd.broken.len() - refused + self.base.main.broken.len();
        section.figures.push(count("sessions cut off", broken, n + crowd).at_most(0.0));
        let n_turns = self.base.main.turns.len() + self.crowd.turns.len();
        section.figures.push(count("turns not answered", self.n_unanswered(), n_turns).at_most(0.0));
        section.percentile("spike: voice-to-voice of those admitted", &self.during(), 95.0, Some(objective_ms));
        let [before, during, after] = self.goodput;
        for (when, value) in [("before", before), ("during", during), ("after", after)] {
            section.figures.push(Figure::new(
                format!("spike: goodput {when}"),
                Unit::PerSecond,
                value,
                self.base.main.turns.len(),
            ));
        }
        let kept = Figure::new("spike: goodput during, of before", Unit::Times, self.kept(), n);
        section.figures.push(kept.at_least(GOODPUT));
        let recovery = Figure::new("spike: recovery after its end", Unit::Of("s"), self.recovery_s, n);
        section.figures.push(recovery.at_most(RECOVERY_S));
        self.base.figures_of_others(section, "spike");
        let mut estimates: Vec<_> =
            self.crowd.refused.iter().filter_map(|refusal| refusal.retry_after.clone()).collect();
        estimates.sort();
        estimates.dedup();
        if refused > 0 {
            section.notes.push(format!("spike: Retry-After of refusals, in seconds: {}", estimates.join(", ")));
        }
    }

    pub(super) fn json(&self) -> Value {
        let refusal = |refusal: &load::Refusal| json!({"after_ms": refusal.after.as_secs_f64() * 1e3, "retry_after": refusal.retry_after});
        json!({
            "begins_s": self.during_s.0,
            "ends_s": self.during_s.1,
            "goodput_per_second": {"before": self.goodput[0], "during": self.goodput[1], "after": self.goodput[2]},
            "turns_not_answered": self.n_unanswered(),
            "recovery_s": Some(self.recovery_s).filter(|s| s.is_finite()),
            "refused": self.crowd.refused.iter().map(refusal).collect::<Vec<_>>(),
            "base": self.base.json(),
            "crowd": self.crowd.json(),
        })
    }
}

/// When turns were answered, in seconds from the start of the base load, and their latency in milliseconds.
pub(super) fn answered(outcome: &Outcome, offset_s: f64) -> Vec<(f64, f64)> {
    let point = |turn: &load::TurnRecord| {
        let wait_s = turn.wait?.as_secs_f64();
        Some((offset_s + turn.at.as_secs_f64() + wait_s, wait_s * 1e3))
    };
    let mut points: Vec<_> = outcome.turns.iter().filter_map(point).collect();
    points.sort_by(|a, b| a.0.total_cmp(&b.0));
    points
}

/// When turns were asked that were not answered, with an endless latency.
fn unanswered(outcome: &Outcome) -> impl Iterator<Item = (f64, f64)> {
    let turns = outcome.turns.iter().filter(|turn| turn.wait.is_none());
    turns.map(|turn| (turn.at.as_secs_f64(), f64::INFINITY))
}

/// The first moment behind `end_s` from which each window until `over_s` keeps the objective, as a time since then.
fn recovery_s(turns: &[(f64, f64)], end_s: f64, over_s: f64, objective_ms: f64) -> f64 {
    let n_windows = ((over_s - WINDOW_S - end_s) / STEP_S).floor().max(0.0) as usize;
    let keeps = |at: f64| {
        let waits: Waits =
            turns.iter().filter(|(when, _)| (at..at + WINDOW_S).contains(when)).map(|(_, ms)| *ms).collect();
        let (percent, bound) = if waits.len() < MIN_TURNS { (100.0, f64::MAX) } else { (95.0, objective_ms) };
        waits.percentile(percent).is_none_or(|ms| ms <= bound)
    };
    let missed = (0..n_windows).rev().find(|n| !keeps(end_s + *n as f64 * STEP_S));
    match missed {
        None => 0.0,
        Some(n) if n + 1 >= n_windows => f64::INFINITY,
        Some(n) => (n + 1) as f64 * STEP_S,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::{Refusal, TurnRecord};
    use antiphon_client::ClientError;

    fn turn(at_s: f64, wait_ms: Option<f64>) -> TurnRecord {
        TurnRecord::asked(Duration::from_secs_f64(at_s), wait_ms.map(|ms| Duration::from_secs_f64(ms / 1e3)))
    }

    /// A turn each tenth of a second; those that are answered within `slow_s` take 2 s.
    fn outcome(seconds: f64, slow_s: (f64, f64)) -> Outcome {
        let n = (seconds * 10.0) as usize;
        let slow = |at: f64| (slow_s.0..slow_s.1).contains(&(at + 2.0));
        let turns = (0..n).map(|n| n as f64 / 10.0).map(|at| turn(at, Some(if slow(at) { 2_000.0 } else { 300.0 })));
        Outcome { n_sessions: 10, turns: turns.collect(), ..Outcome::default() }
    }

    /// Without sessions that are mixed in.
    fn alone(main: Outcome) -> MixedLoad {
        MixedLoad { main, bad: None, slow: None }
    }

    /// From the beginning of the spike to its end and to that of the base.
    const TIMES: [f64; 3] = [20.0, 30.0, 60.0];

    #[test]
    fn the_recovery_is_counted_from_the_end_of_the_spike() {
        let objective = Duration::from_millis(800);
        let spike = |slow_s| Spike::of(alone(outcome(60.0, slow_s)), Outcome::default(), TIMES, objective);
        assert_eq!(spike((0.0, 0.0)).recovery_s, 0.0);
        let late = spike((22.0, 33.0));
        assert!((2.5..=3.5).contains(&late.recovery_s), "{}", late.recovery_s);
        assert!(late.goodput[1] < 0.5 * late.goodput[0], "{:?}", late.goodput);
        assert!((9.0..=10.5).contains(&late.goodput[0]), "{:?}", late.goodput);
        assert!(!late.holds(objective) && spike((0.0, 0.0)).holds(objective));
        assert_eq!(spike((22.0, 70.0)).recovery_s, f64::INFINITY);
    }

    #[test]
    fn refusals_are_no_sessions_that_were_cut_off() {
        let objective = Duration::from_millis(800);
        let full = || ClientError::Unavailable { reason: "full".into(), retry_after: Some("3".into()) };
        let crowd = |refused_ms| Outcome {
            n_sessions: 2,
            broken: vec![(0, full())],
            refused: vec![Refusal { after: Duration::from_millis(refused_ms), retry_after: Some("3".into()) }],
            ..outcome(5.0, (0.0, 0.0))
        };
        let spike = |crowd| Spike::of(alone(outcome(60.0, (0.0, 0.0))), crowd, TIMES, objective);
        assert!(spike(crowd(40)).holds(objective));
        let spike_of_80_ms = spike(crowd(80));
        assert!(!spike_of_80_ms.holds(objective), "the refusal was late");
        let mut section = Section::new("stress", "");
        spike_of_80_ms.figures(&mut section, 800.0);
        let figure = |name: &str| section.figures.iter().find(|figure| figure.name == name).expect("there");
        assert_eq!(figure("spike: time to a refusal max").passes(), Some(false));
        assert_eq!(figure("spike: sessions cut off").value, 0.0);
        assert_eq!(section.notes, ["spike: Retry-After of refusals, in seconds: 3"]);
        let cut = Outcome { broken: vec![(0, full()), (1, full())], ..crowd(40) };
        assert!(!spike(cut).holds(objective));
    }

    #[test]
    fn goodput_that_was_not_there_before_is_not_kept() {
        let objective = Duration::from_millis(800);
        let mut base = outcome(60.0, (0.0, 0.0));
        base.turns.retain(|turn| turn.at >= Duration::from_secs(20));
        let spike = Spike::of(alone(base), Outcome::default(), TIMES, objective);
        assert_eq!((spike.goodput[0], spike.kept()), (0.0, 0.0));
        assert!(spike.goodput[1] > 0.0 && !spike.holds(objective));
    }

    #[test]
    fn a_server_that_stops_answering_does_not_recover() {
        let objective = Duration::from_millis(800);
        let spike = |turns: Vec<TurnRecord>| {
            let base = Outcome { n_sessions: 2, turns, ..Outcome::default() };
            Spike::of(alone(base), Outcome::default(), TIMES, objective)
        };
        let every = |s: f64, answers_until_s: f64| {
            let times = (0..(60.0 / s) as usize).map(|n| n as f64 * s);
            times.map(|at| turn(at, (at < answers_until_s).then_some(300.0))).collect::<Vec<_>>()
        };
        // Each turn that is asked is waited for in vain, or no other is asked because of the first one.
        for (turns, n_unanswered) in [
            (every(0.1, 30.0), 300),
            (every(2.0, 30.0), 15),
            (every(0.1, 25.0).into_iter().filter(|turn| turn.at.as_secs_f64() < 25.1).collect(), 1),
            (outcome(30.0, (0.0, 0.0)).turns, 0),
        ] {
            let stopped = spike(turns);
            assert_eq!((stopped.recovery_s, stopped.n_unanswered()), (f64::INFINITY, n_unanswered));
            assert!(!stopped.holds(objective));
        }
        let mut one = every(2.0, 60.0);
        one[16] = turn(32.0, None);
        let one = spike(one);
        assert!((1.5..=2.5).contains(&one.recovery_s), "{}", one.recovery_s);
        assert!(!one.holds(objective), "a turn was not answered");
        assert!(spike(every(2.0, 60.0)).holds(objective), "few turns are no overload");
        let fewer = every(0.1, 60.0).into_iter().enumerate();
        let fewer = fewer.filter(|(n, turn)| !(20.0..30.0).contains(&turn.at.as_secs_f64()) || n % 5 > 0);
        let fewer = spike(fewer.map(|(_, turn)| turn).collect());
        assert_eq!(fewer.recovery_s, 0.0);
        assert!(!fewer.holds(objective), "the goodput fell to {:?}", fewer.goodput);
    }
}
