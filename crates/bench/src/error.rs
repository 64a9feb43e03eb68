//! Errors that prevent a measurement.

use antiphon::assembly::EnginesError;
use antiphon_client::ClientError;
use std::io;

/// Why a measure could not be run.
#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    /// The hub under measurement did not start, or its connection broke.
    #[error("the hub under measurement {what}")]
    Hub {
        /// What went wrong.
        what: &'static str,
        /// The cause, if known.
        #[source]
        source: Option<io::Error>,
    },
    /// Memory or CPU time of the hub's process cannot be read.
    #[error("the figures of the hub's process cannot be read: {0}")]
    Proc(String),
    /// A client failed.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// The voice engine that speaks the questions cannot start.
    #[error(transparent)]
    Engines(#[from] EnginesError),
    /// A voice engine failed: the one that speaks the questions, or the one under measurement.
    #[error("the text could not be spoken")]
    Speech(#[source] antiphon_engine_api::tts::TtsError),
    /// The clips cannot be used; the text states which and why.
    #[error("{0}")]
    Clips(String),
    /// An engine under measurement failed; the text states how.
    #[error("{0}")]
    Engine(String),
    /// There is no peer to compare with; the text states what is missing.
    #[error("{0}")]
    Peer(String),
    /// A call failed; the text states how.
    #[error("a call: {0}")]
    Call(String),
    /// The session before the load got no response.
    #[error("the server does not answer a single session: {0}")]
    First(String),
    /// The hub's behaviour contradicts the method of the measurement.
    #[error("the measurement is wrong: {0}")]
    Method(String),
    /// The cluster cannot be joined.
    #[error(transparent)]
    Cluster(#[from] antiphon_cluster::ClusterError),
    /// nats-server cannot be run.
    #[error(transparent)]
    Nats(#[from] antiphon_cluster::testing::TestingError),
    /// A client task ended unexpectedly.
    #[error("a client broke off")]
    Join(#[from] tokio::task::JoinError),
}

impl BenchError {
    /// A failure of the hub without an underlying system error.
    pub(super) fn hub(what: &'static str) -> Self {
        Self::Hub { what, source: None }
    }
}
