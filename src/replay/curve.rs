//! Two ways of waiting, compared: false cut-ins against answer delay, with confidence intervals.
//!
//! A setting is a point: the share of the turns it cuts into, and the mean delay of its answers. A way of waiting is the
//! curve of its settings. Ways are compared at the same share of turns cut into. The intervals come from the bootstrap
//! (Efron, 1979): sources are drawn with replacement, since turns of one source are alike.

use super::dice::Dice;
use super::{LabelledTurn, TurnResult};
use serde::Serialize;
use std::collections::BTreeMap;

/// Draws of the bootstrap; enough for the 2.5 % tails.
const DRAWS: usize = 2_000;

/// One way of waiting.
#[derive(Clone, Debug, Serialize)]
pub struct Curve {
    /// From the shortest wait to the longest.
    pub points: Vec<Point>,
}

/// One setting.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Point {
    /// Milliseconds of a fixed wait, or the scale of an adaptive one.
    pub value: f64,
    /// Share of the turns that are cut into, 0 to 1.
    pub cut_in: f64,
    /// Mean delay of the answers, in milliseconds.
    pub delay_ms: f64,
}

/// The two ways at one share of turns cut into.
#[derive(Clone, Debug, Serialize)]
pub struct CurveComparison {
    /// The share.
    pub cut_in: f64,
    /// The shortest fixed wait that keeps it: its mean delay in ms, and the 95 % interval.
    pub fixed_ms: [f64; 3],
    /// The same of the adaptive wait.
    pub adaptive_ms: [f64; 3],
    /// How much sooner the adaptive wait answers, as a share of the fixed one's delay, and the 95 % interval.
    pub sooner: [f64; 3],
}

/// What a setting made of each source: number of turns, cuts, sum of delays.
type Sums = Vec<[f64; 3]>;

/// Both curves and what they come to at these shares; a share that one of them does not reach is left out. `fixed` and
/// `adaptive` hold a value and what became of each turn, shortest wait first.
pub fn compare(
    turns: &[&LabelledTurn],
    fixed: &[(f64, Vec<TurnResult>)],
    adaptive: &[(f64, Vec<TurnResult>)],
    shares: &[f64],
) -> (Curve, Curve, Vec<CurveComparison>) {
    let mut index = BTreeMap::new();
    let cluster: Vec<usize> = turns
        .iter()
        .map(|turn| {
            let next = index.len();
            *index.entry(turn.source.as_str()).or_insert(next)
        })
        .collect();
    let n = index.len();
    let sums = |taken: &[TurnResult]| {
        let mut sums: Sums = vec![[0.0; 3]; n];
        for (taken, &cluster) in taken.iter().zip(&cluster) {
            let sum = &mut sums[cluster];
            *sum = [sum[0] + 1.0, sum[1] + f64::from(u8::from(taken.cut_in)), sum[2] + taken.delay_ms];
        }
        sums
    };
    let all_sums = |runs: &[(f64, Vec<TurnResult>)]| -> Vec<(f64, Sums)> {
        runs.iter().map(|(value, taken)| (*value, sums(taken))).collect()
    };
    let fixed = all_sums(fixed);
    let adaptive = all_sums(adaptive);
    let whole = vec![1.0; n];
    let whole_fixed = curve(&fixed, &whole);
    let whole_adaptive = curve(&adaptive, &whole);
    let mut dice = Dice::new(1);
    let mut drawn: Vec<Vec<(f64, f64)>> = vec![Vec::new(); shares.len()];
    for _ in 0..DRAWS {
        let mut weights = vec![0.0; n];
        (0..n).for_each(|_| weights[dice.below(n)] += 1.0);
        let fixed = curve(&fixed, &weights);
        let adaptive = curve(&adaptive, &weights);
        for (share, drawn) in shares.iter().zip(&mut drawn) {
            drawn.extend(fixed.delay_at(*share).zip(adaptive.delay_at(*share)));
        }
    }
    let compared = shares.iter().zip(drawn).filter_map(|(&cut_in, drawn)| {
        let (f, a) = whole_fixed.delay_at(cut_in).zip(whole_adaptive.delay_at(cut_in))?;
        // An interval of the draws that reach the share would be too narrow where many do not.
        (drawn.len() * 10 >= DRAWS * 9).then(|| CurveComparison {
            cut_in,
            fixed_ms: with_interval(f, drawn.iter().map(|(f, _)| *f)),
            adaptive_ms: with_interval(a, drawn.iter().map(|(_, a)| *a)),
            sooner: with_interval(1.0 - a / f, drawn.iter().map(|(f, a)| 1.0 - a / f)),
        })
    });
    let compared = compared.collect();
    (whole_fixed, whole_adaptive, compared)
}

impl Curve {
    /// The delay at which no more than this share is cut into, between the settings by a straight line. `None` where
    /// even the longest wait cuts into more, or the shortest one into less.
    pub fn delay_at(&self, share: f64) -> Option<f64> {
        let pair = self.points.windows(2).find(|pair| pair[0].cut_in > share && pair[1].cut_in <= share)?;
        let part = (pair[0].cut_in - share) / (pair[0].cut_in - pair[1].cut_in);
        Some(pair[0].delay_ms + part * (pair[1].delay_ms - pair[0].delay_ms))
    }
}

fn curve(runs: &[(f64, Sums)], weights: &[f64]) -> Curve {
    let point = |(value, sums): &(f64, Sums)| {
        let total = |i: usize| sums.iter().zip(weights).map(|(sum, weight)| sum[i] * weight).sum::<f64>();
        let n = total(0).max(1.0);
        Point { value: *value, cut_in: total(1) / n, delay_ms: total(2) / n }
    };
    Curve { points: runs.iter().map(point).collect() }
}

/// The value and its 95 % interval.
fn with_interval(value: f64, drawn: impl Iterator<Item = f64>) -> [f64; 3] {
    let mut drawn: Vec<f64> = drawn.collect();
    drawn.sort_by(f64::total_cmp);
    let at = |share: f64| drawn[((drawn.len() - 1) as f64 * share).round() as usize];
    [value, at(0.025), at(0.975)]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labelled(source: usize) -> LabelledTurn {
        let text = String::new();
        let speaker = String::new();
        let group = String::new();
        LabelledTurn { text, speaker, source: source.to_string(), group, spans_ms: vec![[0.0, 1.0]] }
    }

    /// A way that cuts into turns whose pause is longer than the wait; pauses are 0, 10, 20 ... ms.
    fn runs(n: usize, delay: impl Fn(f64) -> f64) -> Vec<(f64, Vec<TurnResult>)> {
        let taken = |wait: f64| {
            let turn = |i: usize| TurnResult { cut_in: i as f64 * 10.0 >= wait, delay_ms: delay(wait) };
            (0..n).map(turn).collect()
        };
        (0..=10).map(|i| f64::from(i) * 100.0).map(|wait| (wait, taken(wait))).collect()
    }

    #[test]
    fn half_the_delay_at_the_same_share_is_half_as_long_whatever_is_drawn() {
        let turns: Vec<LabelledTurn> = (0..100).map(labelled).collect();
        let turns: Vec<&LabelledTurn> = turns.iter().collect();
        let fixed = runs(100, |wait| wait);
        let adaptive = runs(100, |wait| wait / 2.0);
        let (curve, _, compared) = compare(&turns, &fixed, &adaptive, &[0.25, 2.0]);
        assert_eq!(curve.delay_at(0.25), Some(750.0));
        let [one] = &compared[..] else { panic!("no curve reaches the share of 2: {compared:?}") };
        assert_eq!(one.sooner, [0.5; 3]);
        let [value, low, high] = one.fixed_ms;
        assert!(low < 700.0 && high > 800.0 && low > 550.0 && high < 900.0, "{value} [{low}, {high}]");
    }

    #[test]
    fn turns_of_one_source_are_drawn_together() {
        let turns: Vec<LabelledTurn> = (0..100).map(|i| labelled(i / 50)).collect();
        let turns: Vec<&LabelledTurn> = turns.iter().collect();
        let runs = runs(100, |wait| wait);
        let (_, _, compared) = compare(&turns, &runs, &runs, &[0.25]);
        let [value, low, high] = compared[0].fixed_ms;
        assert!(low < 500.0 && high > 850.0, "of two sources one is often drawn twice: {value} [{low}, {high}]");
        assert_eq!(compared[0].sooner, [0.0; 3]);
    }
}
