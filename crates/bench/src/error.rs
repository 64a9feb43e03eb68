//! What keeps a figure from being measured.

use antiphon::assembly::EnginesError;
use antiphon_client::ClientError;
use std::io;

/// Why a measure could not be taken.
#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    /// The hub to measure did not start, or broke off.
    #[error("the hub under measurement {what}")]
    Hub {
        /// What went wrong.
        what: &'static str,
        /// Why, where the system says.
        #[source]
        source: Option<io::Error>,
    },
    /// Its memory or processor time cannot be read.
    #[error("the figures of the hub's process cannot be read: {0}")]
    Proc(String),
    /// A client of the measure failed.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// The voice engine that speaks the questions cannot start.
    #[error(transparent)]
    Engines(#[from] EnginesError),
    /// It could not speak one.
    #[error("the questions could not be spoken")]
    Speech(#[source] antiphon_engine_api::tts::TtsError),
    /// What the sessions are to say cannot be used; the text says which and why.
    #[error("{0}")]
    Clips(String),
    /// An engine under measurement failed; the text says how.
    #[error("{0}")]
    Engine(String),
    /// There is no peer to compare with; the text says what is missing.
    #[error("{0}")]
    Peer(String),
    /// The session that talks before a load came to nothing.
    #[error("the server does not answer a single session: {0}")]
    First(String),
    /// What the hub did contradicts how the figure is computed.
    #[error("the measurement is wrong: {0}")]
    Method(String),
    /// A client of the measure broke off.
    #[error("a client broke off")]
    Join(#[from] tokio::task::JoinError),
}

impl BenchError {
    /// A hub's failure the system has no word for.
    pub(super) fn hub(what: &'static str) -> Self {
        Self::Hub { what, source: None }
    }
}
