//! How long requests of the speech API take, for the answer to a client that finds no slot.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// How long requests of the speech API take, as a moving average over about the last eight.
#[derive(Debug, Default)]
pub(super) struct RequestTimes(AtomicU64);

impl RequestTimes {
    pub(super) fn ended_after(&self, took: Duration) {
        let took = took.as_millis().min(u128::from(u32::MAX)) as u64;
        // Of two that end at the same time one may not count.
        let before = self.0.load(Ordering::Relaxed);
        let mean = if before == 0 { took } else { (before * 7 + took) / 8 };
        self.0.store(mean.max(1), Ordering::Relaxed);
    }

    /// When the next of `n` requests in progress is likely to end, 1 to 60 s.
    pub(super) fn until_next(&self, n: usize) -> Duration {
        let mean = Duration::from_millis(self.0.load(Ordering::Relaxed));
        (mean / n.max(1) as u32).clamp(Duration::from_secs(1), Duration::from_secs(60))
    }
}
