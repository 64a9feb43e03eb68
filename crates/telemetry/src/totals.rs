//! Totals since the start that can be read back, which the recorder's counters cannot.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The totals shown by `/api/state`.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Totals {
    /// User turns ended.
    pub turns: u64,
    /// Responses ended.
    pub responses: u64,
    /// Errors reported to clients.
    pub errors: u64,
    /// Responses stopped by speech.
    pub barge_ins: u64,
    /// Speculative responses started.
    pub speculative_responses: u64,
    /// Speculative responses that were released.
    pub speculative_responses_confirmed: u64,
    /// Time spent on speculative responses that were discarded.
    pub speculation_wasted: Duration,
}

/// Atomic counters behind [`Totals`].
#[derive(Default)]
pub(super) struct Counters {
    pub(super) turns: AtomicU64,
    pub(super) responses: AtomicU64,
    pub(super) errors: AtomicU64,
    pub(super) barge_ins: AtomicU64,
    pub(super) speculative_responses: AtomicU64,
    pub(super) speculative_responses_confirmed: AtomicU64,
    pub(super) speculation_wasted_us: AtomicU64,
}

impl Counters {
    pub(super) fn totals(&self) -> Totals {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Totals {
            turns: read(&self.turns),
            responses: read(&self.responses),
            errors: read(&self.errors),
            barge_ins: read(&self.barge_ins),
            speculative_responses: read(&self.speculative_responses),
            speculative_responses_confirmed: read(&self.speculative_responses_confirmed),
            speculation_wasted: Duration::from_micros(read(&self.speculation_wasted_us)),
        }
    }
}

/// Increments a counter.
pub(super) fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}
