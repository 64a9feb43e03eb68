//! Latencies and their percentiles.

use std::time::Duration;

/// Latencies in milliseconds, and the number of waits that never ended. These count as longer than all others, so that
/// they raise the percentiles instead of being ignored.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Waits {
    ms: Vec<f64>,
    endless: usize,
}

impl Waits {
    /// Adds a wait that ended after `wait`.
    pub fn push(&mut self, wait: Duration) {
        self.push_ms(wait.as_secs_f64() * 1e3);
    }

    /// Adds a wait in milliseconds; negative if the event came too early.
    pub fn push_ms(&mut self, ms: f64) {
        self.ms.push(ms);
    }

    /// Adds a wait that never ended.
    pub fn push_endless(&mut self) {
        self.endless += 1;
    }

    /// Adds a wait; `None`: it never ended.
    pub fn push_option(&mut self, wait: Option<Duration>) {
        match wait {
            Some(wait) => self.push(wait),
            None => self.push_endless(),
        }
    }

    /// Adds the waits of `other`.
    pub fn extend(&mut self, other: Self) {
        self.ms.extend(other.ms);
        self.endless += other.endless;
    }

    /// Number of waits, including those that never ended.
    pub fn len(&self) -> usize {
        self.ms.len() + self.endless
    }

    /// Whether there are no waits.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Number of waits that ended.
    pub fn n_ended(&self) -> usize {
        self.ms.len()
    }

    /// The nearest-rank percentile in milliseconds: the smallest wait that at least `percent` of all waits do not
    /// exceed, so 100 is the longest. Infinite if that wait never ended; `None` without any waits.
    pub fn percentile(&self, percent: f64) -> Option<f64> {
        if self.is_empty() {
            return None;
        }
        let rank = (percent / 100.0 * self.len() as f64).ceil().max(1.0) as usize;
        let mut sorted = self.ms.clone();
        sorted.sort_by(f64::total_cmp);
        Some(sorted.get(rank - 1).copied().unwrap_or(f64::INFINITY))
    }

    /// The percentile above that of `base`, in milliseconds. Infinite where one of the two never ended or does not exist:
    /// what is above an endless wait is not known.
    pub(crate) fn above_ms(&self, base: &Self, percent: f64) -> f64 {
        self.ended(percent).zip(base.ended(percent)).map_or(f64::INFINITY, |(ms, base_ms)| ms - base_ms)
    }

    /// The percentile as a multiple of that of `base`. Infinite as [`Self::above_ms`] is.
    pub(crate) fn times(&self, base: &Self, percent: f64) -> f64 {
        self.ended(percent).zip(base.ended(percent)).map_or(f64::INFINITY, |(ms, base_ms)| ms / base_ms)
    }

    fn ended(&self, percent: f64) -> Option<f64> {
        self.percentile(percent).filter(|ms| ms.is_finite())
    }
}

impl FromIterator<f64> for Waits {
    fn from_iter<I: IntoIterator<Item = f64>>(ms: I) -> Self {
        Self { ms: ms.into_iter().collect(), endless: 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_waits_that_happened() {
        let waits: Waits = (1..=20).rev().map(f64::from).collect();
        let at = |percent| waits.percentile(percent);
        assert_eq!((at(50.0), at(95.0), at(96.0), at(100.0)), (Some(10.0), Some(19.0), Some(20.0), Some(20.0)));
        assert_eq!((at(0.0), at(1.0)), (Some(1.0), Some(1.0)));
        assert_eq!(Waits::default().percentile(50.0), None);
        let one: Waits = [7.5].into_iter().collect();
        assert_eq!((one.percentile(50.0), one.percentile(95.0)), (Some(7.5), Some(7.5)));
    }

    #[test]
    fn what_is_compared_with_a_wait_that_never_ended_misses_each_upper_bound() {
        let waits: Waits = [300.0, 450.0].into_iter().collect();
        let base: Waits = [200.0, 150.0].into_iter().collect();
        assert_eq!((waits.above_ms(&base, 95.0), waits.times(&base, 95.0)), (250.0, 2.25));
        assert_eq!(base.above_ms(&waits, 95.0), -250.0);
        let mut endless = base.clone();
        endless.push_endless();
        for (one, other) in [(&waits, &endless), (&endless, &waits), (&endless, &endless)] {
            assert_eq!((one.above_ms(other, 95.0), one.times(other, 95.0)), (f64::INFINITY, f64::INFINITY));
        }
        let none = Waits::default();
        assert_eq!((waits.above_ms(&none, 95.0), none.times(&waits, 95.0)), (f64::INFINITY, f64::INFINITY));
    }

    #[test]
    fn a_wait_that_never_ended_is_the_longest() {
        let mut waits: Waits = (1..=18).map(f64::from).collect();
        waits.push_endless();
        let mut more = Waits::default();
        more.push_endless();
        more.push(Duration::from_micros(500));
        waits.extend(more);
        assert_eq!((waits.len(), waits.n_ended()), (21, 19));
        assert_eq!((waits.percentile(1.0), waits.percentile(90.0)), (Some(0.5), Some(18.0)));
        assert_eq!(waits.percentile(95.0), Some(f64::INFINITY));
    }
}
