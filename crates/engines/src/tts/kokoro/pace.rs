//! How many tokens the next run may have, so that the first sound comes soon and the rest never runs dry.
//!
//! Each replica measures its runs. On a fast machine a sentence is one run; on a slow one the first run is a clause or a few
//! words, and each further one is as long as what was spoken before allows. Pure but for the caller's clock.

use std::time::Duration;

/// What the first run may take where nothing is left to hear: 450 ms to the first sound, without reading and transport.
const FIRST_RUN: f32 = 0.35;

/// The share of the sound ahead that a run may take: the machine may be busier then.
const SHARE: f32 = 0.75;

/// Tokens of a run at least, some two words: shorter ones sound cut off.
pub(super) const MIN_TOKENS: usize = 14;

/// How much of each further run counts.
const WEIGHT: f32 = 0.3;

/// What runs take, and how much they say. Seconds a token.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Pace {
    run: f32,
    sound: f32,
}

impl Pace {
    /// Of a run of `n_tokens` that took `took` and spoke for `sound`; `before`: what was known.
    pub(super) fn measured(before: Option<Self>, n_tokens: usize, took: Duration, sound: Duration) -> Self {
        let n = n_tokens.max(1) as f32;
        let now = Self { run: took.as_secs_f32() / n, sound: sound.as_secs_f32() / n };
        let mean = |before: f32, now: f32| before + WEIGHT * (now - before);
        before.map_or(now, |before| Self { run: mean(before.run, now.run), sound: mean(before.sound, now.sound) })
    }

    /// The runs of `n_tokens` for a listener who has `ahead` to hear: how many tokens each may have, one after the other.
    pub(super) fn plan(self, ahead: Duration) -> Plan {
        Plan { pace: self, ahead: ahead.as_secs_f32(), is_first: true }
    }
}

/// The runs of one chunk.
#[derive(Clone, Copy, Debug)]
pub(super) struct Plan {
    pace: Pace,
    /// Seconds that the listener has left to hear when the next run begins.
    ahead: f32,
    is_first: bool,
}

impl Plan {
    /// The most tokens of the next run.
    pub(super) fn most(&self) -> usize {
        let waits = if self.is_first { FIRST_RUN } else { 0.0 };
        let budget = waits.max(self.ahead * SHARE);
        ((budget / self.pace.run.max(f32::MIN_POSITIVE)) as usize).max(MIN_TOKENS)
    }

    /// The number of them in the next run.
    pub(super) fn take(&mut self, n_tokens: usize) {
        let n = n_tokens as f32;
        self.ahead = (self.ahead - n * self.pace.run).max(0.0) + n * self.pace.sound;
        self.is_first = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Milliseconds a token: of a run, of its sound.
    fn pace(run: u64, sound: u64) -> Pace {
        Pace::measured(None, 10, Duration::from_millis(10 * run), Duration::from_millis(10 * sound))
    }

    /// The longest runs that a plan allows for `n` tokens.
    fn runs(pace: Pace, ahead_ms: u64, n: usize) -> Vec<usize> {
        let mut plan = pace.plan(Duration::from_millis(ahead_ms));
        let mut left = n;
        let mut runs = Vec::new();
        while left > 0 {
            let next = plan.most().min(left);
            plan.take(next);
            runs.push(next);
            left -= next;
        }
        runs
    }

    #[test]
    fn a_fast_machine_speaks_a_sentence_at_once_and_a_slow_one_begins_with_words() {
        assert_eq!(runs(pace(1, 70), 0, 200), [200]);
        assert_eq!(runs(pace(15, 70), 0, 100), [23, 77]);
        assert_eq!(runs(pace(40, 70), 0, 100), [14, 18, 28, 40]);
        assert_eq!(runs(pace(15, 70), 4_000, 180), [180], "there is time");
    }

    #[test]
    fn the_rest_never_runs_dry() {
        for run in [5, 15, 30, 45] {
            let pace = pace(run, 70);
            let mut plan = pace.plan(Duration::ZERO);
            plan.take(plan.most());
            let mut left_ms = plan.ahead * 1_000.0;
            for _ in 0..20 {
                let next = plan.most();
                left_ms -= next as f32 * run as f32;
                assert!(left_ms >= 0.0, "{run}: silence of {left_ms} ms");
                left_ms += next as f32 * 70.0;
                plan.take(next);
            }
        }
    }

    #[test]
    fn later_runs_move_it_slowly() {
        let fast = pace(10, 70);
        let after = Pace::measured(Some(fast), 10, Duration::from_millis(1_100), Duration::from_millis(700));
        assert!((after.run - 0.040).abs() < 1e-4 && (after.sound - 0.070).abs() < 1e-4, "{after:?}");
    }
}
