//! What was counted since the start, to be read back: the recorder's counters cannot be.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The numbers of `/api/state`.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Totals {
    /// Turns of users ended.
    pub turns: u64,
    /// Responses ended.
    pub responses: u64,
    /// Errors reported to clients.
    pub errors: u64,
    /// Replies stopped by speech.
    pub barge_ins: u64,
    /// Answers begun early.
    pub guesses: u64,
    /// Those that went out.
    pub guesses_confirmed: u64,
    /// Spent on those that did not.
    pub guess_wasted: Duration,
}

/// The same while they are counted.
#[derive(Default)]
pub(super) struct Counted {
    pub(super) turns: AtomicU64,
    pub(super) responses: AtomicU64,
    pub(super) errors: AtomicU64,
    pub(super) barge_ins: AtomicU64,
    pub(super) guesses: AtomicU64,
    pub(super) guesses_confirmed: AtomicU64,
    pub(super) guess_wasted_us: AtomicU64,
}

impl Counted {
    pub(super) fn totals(&self) -> Totals {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Totals {
            turns: read(&self.turns),
            responses: read(&self.responses),
            errors: read(&self.errors),
            barge_ins: read(&self.barge_ins),
            guesses: read(&self.guesses),
            guesses_confirmed: read(&self.guesses_confirmed),
            guess_wasted: Duration::from_micros(read(&self.guess_wasted_us)),
        }
    }
}

/// One more.
pub(super) fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}
