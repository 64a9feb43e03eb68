//! Errors of language models.

use crate::Fault;
use crate::fault::away;
use std::time::Duration;

/// A failed response. It ends one response, never the session.
#[derive(Debug, thiserror::Error)]
pub enum LlmError {
    /// A token did not arrive in time.
    #[error("the language model gave no {what} within {after:?}")]
    Timeout {
        /// `first token` or `further token`.
        what: &'static str,
        /// The timeout.
        after: Duration,
    },
    /// The server rejected the request.
    #[error("the language model's server answered {status}: {message}")]
    Refused {
        /// The HTTP status.
        status: u16,
        /// The server's message, truncated.
        message: String,
    },
    /// The server could not be reached; the text states what to check.
    #[error("the language model's server cannot be reached: {0}")]
    Transport(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The connection broke before the answer was complete.
    #[error("the language model's server broke off: {0}")]
    BrokenOff(String),
    /// The server's response is not a valid chat completion.
    #[error("the language model's answer cannot be read: {0}")]
    Protocol(String),
    /// The server failed before and is not asked now. The message is for the log.
    #[error("{0}")]
    Away(String),
    /// A setting is missing or invalid; the text names it and the valid values.
    #[error("{0}")]
    Unavailable(String),
}

impl LlmError {
    /// The kind of failure.
    pub fn fault(&self) -> Fault {
        match self {
            Self::Timeout { .. } => Fault::Timeout,
            Self::Refused { status, .. } => Fault::of_status(*status),
            Self::Transport(_) => Fault::Unreachable,
            Self::BrokenOff(_) => Fault::BrokenOff,
            Self::Protocol(_) => Fault::BadAnswer,
            Self::Unavailable(_) | Self::Away(_) => Fault::Unavailable,
        }
    }

    /// The message for a client, without addresses, settings or server text. The details are logged.
    pub fn client_message(&self) -> String {
        if let Self::Away(_) = self {
            return away("The language model");
        }
        self.fault().client_message("The language model")
    }
}
