//! What can go wrong in speech to text.

use crate::Fault;
use std::time::Duration;

/// A failed transcription. It ends the transcription of one utterance, never the session.
#[derive(Debug, thiserror::Error)]
pub enum SttError {
    /// Every decoder is taken and too many utterances wait.
    #[error("every speech decoder is taken and {waiting} utterances wait already")]
    Busy {
        /// How many wait.
        waiting: usize,
    },
    /// The engine gave no final transcript in time.
    #[error("the speech recognizer gave no answer within {0:?} (stt.timeout_ms)")]
    Timeout(Duration),
    /// While somebody still spoke no decoder was free, or the one that was lent took no more audio, for so long.
    #[error("the speech recognizer was behind by {0:?}")]
    Behind(Duration),
    /// The work was cancelled.
    #[error("the transcription was cancelled")]
    Cancelled,
    /// A library, a model or a setting is missing or wrong; the text says what and how to get it.
    #[error("{0}")]
    Unavailable(String),
    /// A remote engine's server failed on this utterance.
    #[error("the speech recognizer failed: {message}")]
    Remote {
        /// How.
        fault: Fault,
        /// What happened, for the log.
        message: String,
        /// Its cause, where there is one.
        #[source]
        source: Option<Box<dyn std::error::Error + Send + Sync>>,
    },
    /// The engine failed on this utterance.
    #[error("the speech recognizer failed: {message}")]
    Engine {
        /// What it said.
        message: String,
        /// Its cause, where there is one.
        #[source]
        source: Option<Box<dyn std::error::Error + Send + Sync>>,
    },
}

impl SttError {
    /// The words for a client, which hold no address, setting or text of a server. The details are for the log.
    pub fn client_message(&self) -> String {
        let fault = match self {
            Self::Busy { .. } | Self::Behind(_) => Fault::Overloaded,
            Self::Timeout(_) => Fault::Timeout,
            Self::Cancelled => return "The transcription was cancelled.".into(),
            Self::Unavailable(_) => Fault::Unavailable,
            Self::Remote { fault, .. } => *fault,
            Self::Engine { .. } => Fault::Failed,
        };
        fault.client_message("The speech recognizer")
    }
}
