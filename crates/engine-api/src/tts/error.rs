//! Errors of text to speech.

use crate::Fault;
use crate::fault::away;
use std::time::Duration;

/// A failed synthesis. It ends one response, never the session.
#[derive(Debug, thiserror::Error)]
pub enum TtsError {
    /// The queue of the engine is full.
    #[error("the voice engine is overloaded: {waiting} chunks wait already")]
    Overloaded {
        /// Number of chunks in the queue.
        waiting: usize,
    },
    /// The engine produced no audio in time.
    #[error("the voice engine gave no sound within {0:?}")]
    Timeout(Duration),
    /// The voice that was asked for is not there any more; the text names it and is for the client.
    #[error("{0}")]
    NoVoice(String),
    /// A library, a voice or a setting is missing or invalid; the text states which and how to fix it.
    #[error("{0}")]
    Unavailable(String),
    /// Engines run on other machines, and none of them can be reached, or their server failed before and is not asked now.
    /// The message is for the log.
    #[error("{0}")]
    Away(String),
    /// The server of a remote engine failed on this chunk.
    #[error("the voice engine failed: {message}")]
    Remote {
        /// Kind of failure.
        fault: Fault,
        /// Details for the log.
        message: String,
        /// The cause, if known.
        #[source]
        source: Option<Box<dyn std::error::Error + Send + Sync>>,
    },
    /// The engine failed on this chunk.
    #[error("the voice engine failed: {message}")]
    Engine {
        /// Message from the engine.
        message: String,
        /// The cause, if known.
        #[source]
        source: Option<Box<dyn std::error::Error + Send + Sync>>,
    },
}

impl TtsError {
    /// The message for a client, without addresses, settings or server text. The details are logged.
    pub fn client_message(&self) -> String {
        let fault = match self {
            Self::Overloaded { .. } => Fault::Overloaded,
            Self::Timeout(_) => Fault::Timeout,
            Self::NoVoice(what) => return format!("{what}."),
            Self::Unavailable(_) => Fault::Unavailable,
            Self::Away(_) => return away("The voice engine"),
            Self::Remote { fault, .. } => *fault,
            Self::Engine { .. } => Fault::Failed,
        };
        fault.client_message("The voice engine")
    }
}
