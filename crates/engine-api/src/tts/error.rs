//! What can go wrong in text to speech.

use crate::Fault;
use std::time::Duration;

/// A failed synthesis. It ends one response, never the session.
#[derive(Debug, thiserror::Error)]
pub enum TtsError {
    /// Too many chunks wait for the engine.
    #[error("the voice engine is overloaded: {waiting} chunks wait already")]
    Overloaded {
        /// How many wait.
        waiting: usize,
    },
    /// The engine did not answer in time.
    #[error("the voice engine gave no sound within {0:?}")]
    Timeout(Duration),
    /// A library, a voice or a setting is missing or wrong; the text says what and how to get it.
    #[error("{0}")]
    Unavailable(String),
    /// A remote engine's server failed on this chunk.
    #[error("the voice engine failed: {message}")]
    Remote {
        /// How.
        fault: Fault,
        /// What happened, for the log.
        message: String,
        /// Its cause, where there is one.
        #[source]
        source: Option<Box<dyn std::error::Error + Send + Sync>>,
    },
    /// The engine failed on this chunk.
    #[error("the voice engine failed: {message}")]
    Engine {
        /// What it said.
        message: String,
        /// Its cause, where there is one.
        #[source]
        source: Option<Box<dyn std::error::Error + Send + Sync>>,
    },
}

impl TtsError {
    /// The words for a client, which hold no address, setting or text of a server. The details are for the log.
    pub fn client_message(&self) -> String {
        let fault = match self {
            Self::Overloaded { .. } => Fault::Overloaded,
            Self::Timeout(_) => Fault::Timeout,
            Self::Unavailable(_) => Fault::Unavailable,
            Self::Remote { fault, .. } => *fault,
            Self::Engine { .. } => Fault::Failed,
        };
        fault.client_message("The voice engine")
    }
}
