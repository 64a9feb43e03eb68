//! A server that recognizes speech: how long it may take, and what its failures are called.
//!
//! `openai` and [`streamed`](super::streamed) use it; [`remote`](crate::remote), which both stand on, knows no stage.

use super::SttConfig;
use antiphon_engine_api::Fault;
use antiphon_engine_api::stt::{RATE, SttError};
use antiphon_types::Samples;
use std::time::Duration;

/// Additional time for an utterance that may wait, as a multiple of its length: what the speech API gives a segment of
/// a file.
const TIMES_ITS_LENGTH: u32 = 8;
/// The same where a fallback needs as much: half of what is given to an utterance that comes faster than it was spoken.
const TIMES_ITS_LENGTH_WITH_FALLBACK: u32 = 1;

/// How long the server may take for the transcript of an utterance that has ended.
#[derive(Clone, Copy, Debug)]
pub(super) struct Deadline {
    /// Of one that was sent while it was spoken: `stt.timeout_ms`, half of it with a fallback, which needs the other
    /// half: that is how long the session waits in all. Also of a connection.
    pub(super) usual: Duration,
    times_its_length: u32,
}

impl Deadline {
    pub(super) fn new(config: &SttConfig) -> Self {
        let usual = Duration::from_millis(config.timeout_ms);
        match config.fallback {
            None => Self { usual, times_its_length: TIMES_ITS_LENGTH },
            Some(_) => Self { usual: usual / 2, times_its_length: TIMES_ITS_LENGTH_WITH_FALLBACK },
        }
    }

    /// Of an utterance of this length. `is_queued`: it may wait, as a segment of a file may.
    pub(super) fn of(self, n_samples: usize, is_queued: bool) -> Duration {
        match is_queued {
            true => self.usual + Samples(n_samples as u64).duration(RATE) * self.times_its_length,
            false => self.usual,
        }
    }
}

/// A failure without a cause of its own; `message` is for the log.
pub(super) fn failed(fault: Fault, message: String) -> SttError {
    SttError::Remote { fault, message, source: None }
}

/// The kind of a failure, for the server's circuit breaker.
pub(super) fn fault_of(error: &SttError) -> Fault {
    match error {
        SttError::Remote { fault, .. } => *fault,
        SttError::Timeout(_) => Fault::Timeout,
        _ => Fault::Failed,
    }
}
