//! A token bucket without a lock: one atomic time, at which it would be full again.
//!
//! It holds one minute's amount and refills evenly. What is taken beyond that is a debt, which the refill pays back first:
//! over any longer time a client gets its limit and one bucket more at most.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The time in which an empty bucket fills.
const MINUTE: u64 = 60_000_000_000;
/// The largest debt, so that no mistake of a client excludes it for longer.
const LONGEST_DEBT: u64 = 60 * MINUTE;

/// Nanoseconds since the limits were created.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Now(pub(super) u64);

/// See the module. Amounts are in the limit's unit.
#[derive(Debug)]
pub(super) struct Bucket {
    /// When it is full again, in nanoseconds; in the past: it is full.
    full_at: AtomicU64,
    /// 0: no limit.
    per_minute: AtomicU64,
}

/// The state of a bucket that has a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::server) struct Level {
    /// The amount a minute.
    pub(in crate::server) limit: u64,
    /// What may be taken now.
    pub(in crate::server) remaining: u64,
    /// Time until it is full.
    pub(in crate::server) reset: Duration,
}

impl Bucket {
    pub(super) fn new(per_minute: u64) -> Self {
        Self { full_at: AtomicU64::new(0), per_minute: AtomicU64::new(per_minute) }
    }

    /// Another limit from now on. The share of it that was used stays used.
    pub(super) fn set(&self, per_minute: u64) {
        self.per_minute.store(per_minute, Ordering::Relaxed);
    }

    /// Whether there is at least one unit.
    ///
    /// # Errors
    /// The time until there is one.
    pub(super) fn check(&self, now: Now) -> Result<(), Duration> {
        match self.per_minute() {
            0 => Ok(()),
            per_minute => room(self.used(now), per_minute),
        }
    }

    /// Takes `amount`, if need be as a debt. The result is the time until the debt is paid back.
    pub(super) fn spend(&self, now: Now, amount: u64) -> Duration {
        let per_minute = self.per_minute();
        if per_minute == 0 {
            return Duration::ZERO;
        }
        let spend = |full_at: u64| Some(later(now, full_at.saturating_sub(now.0), amount, per_minute));
        let before = self.full_at.fetch_update(Ordering::Relaxed, Ordering::Relaxed, spend).unwrap_or(0);
        let full_at = later(now, before.saturating_sub(now.0), amount, per_minute);
        Duration::from_nanos(full_at.saturating_sub(now.0).saturating_sub(MINUTE))
    }

    /// Gives back what was taken, as if it had never been.
    pub(super) fn give_back(&self, amount: u64) {
        let per_minute = self.per_minute();
        if per_minute > 0 {
            let earlier = |full_at: u64| Some(full_at.saturating_sub(cost(amount, per_minute)));
            let _ = self.full_at.fetch_update(Ordering::Relaxed, Ordering::Relaxed, earlier);
        }
    }

    /// `None` without a limit.
    pub(super) fn level(&self, now: Now) -> Option<Level> {
        let limit = self.per_minute();
        if limit == 0 {
            return None;
        }
        let used = self.used(now);
        let left = MINUTE.saturating_sub(used);
        let remaining = (u128::from(left) * u128::from(limit) / u128::from(MINUTE)) as u64;
        Some(Level { limit, remaining, reset: Duration::from_nanos(used) })
    }

    /// Whether nothing of it is used: it may be forgotten.
    pub(super) fn is_full(&self, now: Now) -> bool {
        self.used(now) == 0
    }

    /// What is used, as the time that its refill takes.
    pub(super) fn used(&self, now: Now) -> u64 {
        self.full_at.load(Ordering::Relaxed).saturating_sub(now.0)
    }

    fn per_minute(&self) -> u64 {
        self.per_minute.load(Ordering::Relaxed)
    }
}

/// The time that the refill of `amount` takes.
fn cost(amount: u64, per_minute: u64) -> u64 {
    u64::try_from(u128::from(amount) * u128::from(MINUTE) / u128::from(per_minute)).unwrap_or(LONGEST_DEBT)
}

fn later(now: Now, used: u64, amount: u64, per_minute: u64) -> u64 {
    now.0 + used.saturating_add(cost(amount, per_minute)).min(MINUTE + LONGEST_DEBT)
}

fn room(used: u64, per_minute: u64) -> Result<(), Duration> {
    let over = used.saturating_add(cost(1, per_minute)).saturating_sub(MINUTE);
    if over == 0 { Ok(()) } else { Err(Duration::from_nanos(over)) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SECOND: u64 = 1_000_000_000;

    /// As a consumer does it.
    fn take(bucket: &Bucket, now: Now, amount: u64) -> Result<(), Duration> {
        bucket.check(now).map(|()| _ = bucket.spend(now, amount))
    }

    fn at(seconds: u64) -> Now {
        Now(seconds * SECOND)
    }

    #[test]
    fn a_minutes_amount_at_once_and_then_evenly() {
        let bucket = Bucket::new(60);
        for _ in 0..60 {
            assert_eq!(take(&bucket, at(0), 1), Ok(()));
        }
        assert_eq!(take(&bucket, at(0), 1), Err(Duration::from_secs(1)));
        assert_eq!(bucket.level(at(0)), Some(Level { limit: 60, remaining: 0, reset: Duration::from_secs(60) }));
        assert_eq!((take(&bucket, at(1), 1), take(&bucket, at(1), 1)), (Ok(()), Err(Duration::from_secs(1))));
        assert_eq!(bucket.level(at(31)).map(|level| level.remaining), Some(30));
        assert_eq!(bucket.level(at(1_000)), Some(Level { limit: 60, remaining: 60, reset: Duration::ZERO }));
        assert!(bucket.is_full(at(1_000)) && !bucket.is_full(at(31)));
    }

    #[test]
    fn what_is_taken_beyond_is_paid_back_first() {
        let bucket = Bucket::new(60);
        assert_eq!(take(&bucket, at(0), 180), Ok(()), "one unit suffices to begin");
        assert_eq!(bucket.check(at(0)), Err(Duration::from_secs(121)));
        assert_eq!(take(&bucket, at(120), 1), Err(Duration::from_secs(1)));
        assert_eq!(take(&bucket, at(121), 1), Ok(()));
        assert_eq!(bucket.spend(at(121), 10), Duration::from_secs(10));
        assert_eq!(bucket.spend(at(121), u64::MAX), Duration::from_nanos(LONGEST_DEBT), "bounded");
    }

    #[test]
    fn what_is_given_back_was_never_taken() {
        let bucket = Bucket::new(60);
        bucket.spend(at(1), 40);
        bucket.spend(at(2), 50);
        assert!(bucket.check(at(2)).is_err());
        bucket.give_back(50);
        assert_eq!(bucket.level(at(2)).unwrap().remaining, 21);
        bucket.give_back(u64::MAX);
        assert!(bucket.is_full(at(2)));
    }

    #[test]
    fn no_limit_is_no_limit_and_another_one_counts_at_once() {
        let bucket = Bucket::new(0);
        assert_eq!((take(&bucket, at(0), u64::MAX), bucket.spend(at(0), 9)), (Ok(()), Duration::ZERO));
        assert_eq!(bucket.level(at(0)), None);
        bucket.set(2);
        assert_eq!(take(&bucket, at(0), 2), Ok(()));
        assert!(take(&bucket, at(0), 1).is_err());
        bucket.set(0);
        assert_eq!(take(&bucket, at(0), 1), Ok(()));
    }

    proptest! {
        #[test]
        fn over_any_time_no_more_is_taken_than_the_limit_and_one_bucket(
            per_minute in 1..10_000_u64, steps in prop::collection::vec(0..5_000_u64, 1..400)
        ) {
            let bucket = Bucket::new(per_minute);
            let mut ms = 0;
            let mut taken = 0;
            for step in steps {
                ms += step;
                while take(&bucket, Now(ms * 1_000_000), 1).is_ok() {
                    taken += 1;
                }
            }
            prop_assert!(taken <= per_minute + per_minute * ms / 60_000 + 1, "{taken} in {ms} ms");
            prop_assert!(taken + 1 >= per_minute, "{taken}");
        }
    }
}
