//! What can go wrong with a language model.

use crate::Fault;
use std::time::Duration;

/// A failed answer. It ends one response, never the session.
#[derive(Debug, thiserror::Error)]
pub enum LlmError {
    /// No token came in time.
    #[error("the language model gave no {what} within {after:?}")]
    Timeout {
        /// `first token` or `further token`.
        what: &'static str,
        /// The wait.
        after: Duration,
    },
    /// The server refused the request.
    #[error("the language model's server answered {status}: {message}")]
    Refused {
        /// The HTTP status.
        status: u16,
        /// The server's message, shortened.
        message: String,
    },
    /// The server could not be reached, or the connection broke; the text says which and what to look at.
    #[error("the language model's server is out of reach: {0}")]
    Transport(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The server sent what is no chat completion.
    #[error("the language model's answer cannot be read: {0}")]
    Protocol(String),
    /// A setting is missing or wrong; the text says which and what would be right.
    #[error("{0}")]
    Unavailable(String),
}

impl LlmError {
    /// The words for a client, which hold no address, setting or text of a server. The details are for the log.
    pub fn client_message(&self) -> String {
        let fault = match self {
            Self::Timeout { .. } => Fault::Timeout,
            Self::Refused { status, .. } => Fault::of_status(*status),
            Self::Transport(_) => Fault::Unreachable,
            Self::Protocol(_) => Fault::BadAnswer,
            Self::Unavailable(_) => Fault::Unavailable,
        };
        fault.client_message("The language model")
    }
}
