//! The spans all log lines stand in, and their fields. Only identifiers: no audio, no words, no secret.

use std::fmt::Display;
use tracing::Span;

/// The session's identifier.
pub const SESSION: &str = "session";
/// The turn's number.
pub const TURN: &str = "turn";
/// The response's identifier.
pub const RESPONSE: &str = "response";

/// One conversation.
pub fn session(id: impl Display) -> Span {
    tracing::info_span!("session", { SESSION } = %id)
}

/// One move of the user's, inside its session's span.
pub fn turn(id: impl Display) -> Span {
    tracing::info_span!("turn", { TURN } = %id)
}

/// One response, inside its session's span.
pub fn response(id: impl Display) -> Span {
    tracing::info_span!("response", { RESPONSE } = %id)
}
