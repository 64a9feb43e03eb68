//! What the failures of a server that recognizes speech are called.
//!
//! `openai` and [`streamed`](super::streamed) use it; [`remote`](crate::remote), which both stand on, knows no stage.

use antiphon_engine_api::Fault;
use antiphon_engine_api::stt::SttError;

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
