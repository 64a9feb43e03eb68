//! The spans of log lines and their fields. Fields are identifiers only: no audio, no text, no secrets.

use std::fmt::Display;
use tracing::Span;

/// Field: identifier of the session.
pub const SESSION: &str = "session";
/// Field: number of the turn.
pub const TURN: &str = "turn";
/// Field: identifier of the response.
pub const RESPONSE: &str = "response";

/// Span of a session.
pub fn session(id: impl Display) -> Span {
    tracing::info_span!("session", { SESSION } = %id)
}

/// Span of a user turn, inside its session's span.
pub fn turn(id: impl Display) -> Span {
    tracing::info_span!("turn", { TURN } = %id)
}

/// Span of a response, inside its session's span.
pub fn response(id: impl Display) -> Span {
    tracing::info_span!("response", { RESPONSE } = %id)
}
