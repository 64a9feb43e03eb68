//! The pauses between the attempts of something that may succeed later.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::time::Duration;

/// When to try again: exponential pauses with jitter, bounded in number and in total. It reads no clock and does not sleep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetryPolicy {
    /// The first pause; each further one is twice as long.
    pub first_pause: Duration,
    /// The longest pause.
    pub max_pause: Duration,
    /// Attempts after the first one.
    pub max_retries: u32,
    /// All pauses together.
    pub max_total: Duration,
}

/// The pauses of one operation, each between half and all of its nominal length, so that many who failed together do not
/// come back together. Ends when the policy allows no further attempt.
#[derive(Clone, Debug)]
pub struct Backoff {
    policy: RetryPolicy,
    n_retries: u32,
    pause: Duration,
    left: Duration,
    random: u64,
}

impl RetryPolicy {
    /// A policy without a bound in number and total: its user has a deadline.
    pub const fn unbounded(first_pause: Duration, max_pause: Duration) -> Self {
        Self { first_pause, max_pause, max_retries: u32::MAX, max_total: Duration::MAX }
    }

    /// The pauses of an operation that begins now.
    pub fn pauses(self) -> Backoff {
        self.pauses_from(RandomState::new().build_hasher().finish())
    }

    /// The same, with the jitter of `seed`.
    pub fn pauses_from(self, seed: u64) -> Backoff {
        Backoff { policy: self, n_retries: 0, pause: self.first_pause, left: self.max_total, random: seed }
    }
}

impl Backoff {
    /// Starts again with the first pause: there was progress.
    pub fn restart(&mut self) {
        *self = self.policy.pauses_from(self.random);
    }

    /// A share between a half and one (SplitMix64).
    fn jitter(&mut self) -> f64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.random;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        0.5 + ((mixed ^ (mixed >> 31)) >> 11) as f64 / (1_u64 << 54) as f64
    }
}

impl Iterator for Backoff {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        let nominal = self.pause.min(self.policy.max_pause);
        let pause = nominal.mul_f64(self.jitter());
        if self.n_retries >= self.policy.max_retries || pause > self.left {
            return None;
        }
        self.n_retries += 1;
        self.pause = nominal.saturating_mul(2);
        self.left -= pause;
        Some(pause)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn pauses_double_up_to_the_longest_and_vary_by_half() {
        let policy = RetryPolicy::unbounded(100 * MS, 450 * MS);
        for seed in 0..200 {
            let pauses: Vec<_> = policy.pauses_from(seed).take(5).collect();
            for (pause, nominal) in pauses.iter().zip([100, 200, 400, 450, 450]) {
                assert!((nominal * MS / 2..=nominal * MS).contains(pause), "{pauses:?}");
            }
        }
        let first = |seed| policy.pauses_from(seed).next();
        assert_ne!(first(1), first(2));
        assert_eq!(first(1), first(1));
    }

    #[test]
    fn attempts_are_bounded_in_number_and_in_total() {
        let policy = RetryPolicy { first_pause: MS, max_pause: MS, max_retries: 3, max_total: Duration::MAX };
        let mut pauses = policy.pauses();
        assert_eq!(pauses.by_ref().count(), 3);
        pauses.restart();
        assert_eq!(pauses.count(), 3, "after progress");
        let policy = RetryPolicy { max_retries: u32::MAX, max_total: 10 * MS, ..policy };
        let pauses: Vec<_> = policy.pauses().collect();
        assert!(pauses.iter().sum::<Duration>() <= 10 * MS && (10..=20).contains(&pauses.len()), "{pauses:?}");
    }
}
