//! Totals since the start, read back from what is recorded.

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
