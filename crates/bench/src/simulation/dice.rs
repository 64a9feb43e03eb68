//! Chance that can be repeated: every draw of a simulated world comes from its seed.

use std::time::Duration;

/// A generator (splitmix64: Steele, Lea and Flood, 2014). The same seed gives the same draws.
#[derive(Clone, Debug)]
pub(super) struct Dice(u64);

impl Dice {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Another generator, so that the draws of one part of a world do not depend on those of another.
    pub(super) fn fork(&self, part: u64) -> Self {
        let mut dice = Self(self.0 ^ part.wrapping_mul(0xd6e8_feb8_6659_fd93));
        Self(dice.next())
    }

    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let x = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ (x >> 31)
    }

    /// From 0 to 1, 1 excluded.
    pub(super) fn share(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Below `n`, which is at least 1.
    pub(super) fn below(&mut self, n: usize) -> usize {
        (self.share() * n as f64) as usize
    }

    /// True with this probability.
    pub(super) fn chance(&mut self, probability: f64) -> bool {
        self.share() < probability
    }

    /// One of these.
    pub(super) fn pick<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len())]
    }

    /// Below so many milliseconds.
    pub(super) fn ms(&mut self, below: usize) -> Duration {
        Duration::from_millis(self.below(below.max(1)) as u64)
    }

    /// Exponentially distributed with this mean.
    pub(super) fn exponential(&mut self, mean: f64) -> f64 {
        -mean * (1.0 - self.share()).ln()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_repeats_its_draws_and_forks_differ() {
        let draws = |mut dice: Dice| (0..100).map(|_| dice.below(1_000)).collect::<Vec<_>>();
        let dice = Dice::new(7);
        assert_eq!(draws(dice.clone()), draws(Dice::new(7)));
        assert_ne!(draws(dice.clone()), draws(Dice::new(8)));
        assert_ne!(draws(dice.fork(1)), draws(dice.fork(2)));
        let mean = (0..10_000).scan(dice, |dice, _| Some(dice.exponential(3.0))).sum::<f64>() / 10_000.0;
        assert!((2.8..3.2).contains(&mean), "{mean}");
    }
}
