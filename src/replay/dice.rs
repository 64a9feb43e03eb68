//! Chance that can be repeated: for drawing pauses, for resampling, and for the simulated worlds of the benchmarks.

use std::time::Duration;

/// A generator (splitmix64: Steele, Lea and Flood, 2014). The same seed gives the same draws.
#[derive(Clone, Debug)]
pub struct Dice(u64);

impl Dice {
    /// A generator with this seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Another generator, so that the draws of one part of a world do not depend on those of another.
    pub fn fork(&self, part: u64) -> Self {
        let mut dice = Self(self.0 ^ part.wrapping_mul(0xd6e8_feb8_6659_fd93));
        Self(dice.next())
    }

    /// The next 64 random bits.
    #[allow(clippy::should_implement_trait, reason = "a generator of numbers has no end")]
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let x = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ (x >> 31)
    }

    /// From 0 to 1, 1 excluded.
    pub fn share(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Below `n`, which is at least 1.
    pub fn below(&mut self, n: usize) -> usize {
        (self.share() * n as f64) as usize
    }

    /// True with this probability.
    pub fn chance(&mut self, probability: f64) -> bool {
        self.share() < probability
    }

    /// One of these.
    pub fn pick<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len())]
    }

    /// Below this number of milliseconds.
    pub fn ms(&mut self, below: usize) -> Duration {
        Duration::from_millis(self.below(below.max(1)) as u64)
    }

    /// Exponentially distributed with this mean.
    pub fn exponential(&mut self, mean: f64) -> f64 {
        -mean * (1.0 - self.share()).ln()
    }

    /// Of the standard normal distribution (Box and Muller, 1958).
    pub fn normal(&mut self) -> f64 {
        let radius = (-2.0 * (1.0 - self.share()).ln()).sqrt();
        radius * (std::f64::consts::TAU * self.share()).cos()
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
