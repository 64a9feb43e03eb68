//! Errors of speech to text.

use crate::Fault;
use crate::fault::away;
use std::time::Duration;

/// A failed transcription. It ends the transcription of one utterance, never the session.
#[derive(Debug, thiserror::Error)]
pub enum SttError {
    /// All decoders are in use and the queue is full.
    #[error("every speech decoder is in use and {waiting} utterances are waiting")]
    Busy {
        /// Number of utterances in the queue.
        waiting: usize,
    },
    /// The engine returned no final transcript in time.
    #[error("the speech recognizer gave no answer within {0:?} (stt.timeout_ms)")]
    Timeout(Duration),
    /// While the user was speaking, for this long no decoder was free or the leased one accepted no more audio.
    #[error("the speech recognizer was behind by {0:?}")]
    Behind(Duration),
    /// The work was cancelled.
    #[error("the transcription was cancelled")]
    Cancelled,
    /// The hub has no recognizer: no model is on disk.
    #[error(
        "this hub has no speech recognizer: get one with `antiphon models pull whisper-base`, or on its page under Engines"
    )]
    NoRecognizer,
    /// A library, a model or a setting is missing or invalid; the text states which and how to fix it.
    #[error("{0}")]
    Unavailable(String),
    /// Engines run on other machines, and none of them can be reached, or their server failed before and is not asked now.
    /// The message is for the log.
    #[error("{0}")]
    Away(String),
    /// The server of a remote engine failed on this utterance.
    #[error("the speech recognizer failed: {message}")]
    Remote {
        /// Kind of failure.
        fault: Fault,
        /// Details for the log.
        message: String,
        /// The cause, if known.
        #[source]
        source: Option<Box<dyn std::error::Error + Send + Sync>>,
    },
    /// The engine failed on this utterance.
    #[error("the speech recognizer failed: {message}")]
    Engine {
        /// Message from the engine.
        message: String,
        /// The cause, if known.
        #[source]
        source: Option<Box<dyn std::error::Error + Send + Sync>>,
    },
}

impl SttError {
    /// The message for a client, without addresses, settings or server text. The details are logged.
    pub fn client_message(&self) -> String {
        let fault = match self {
            Self::Busy { .. } | Self::Behind(_) => Fault::Overloaded,
            Self::Timeout(_) => Fault::Timeout,
            Self::Cancelled => return "The transcription was cancelled.".into(),
            Self::NoRecognizer => {
                return "This hub has no speech recognizer yet: it can be written to, and its operator can add one."
                    .into();
            }
            Self::Unavailable(_) => Fault::Unavailable,
            Self::Away(_) => return away("The speech recognizer"),
            Self::Remote { fault, .. } => *fault,
            Self::Engine { .. } => Fault::Failed,
        };
        fault.client_message("The speech recognizer")
    }
}
