//! Why a conversation with a server did not happen, in words for a person at a terminal.

use std::time::Duration;
use tokio_tungstenite::tungstenite;

/// Why a conversation with a server did not happen.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The address makes no sense.
    #[error("{url:?} is no address of a server: {reason}")]
    BadUrl {
        /// As given.
        url: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The file of trusted certificates cannot be used.
    #[error("{}: no certificates to trust: {reason}", path.display())]
    BadCertificates {
        /// As given.
        path: std::path::PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// Nobody answers there.
    #[error("cannot connect to {url}")]
    CannotConnect {
        /// Where to.
        url: String,
        /// Why.
        #[source]
        source: Box<tungstenite::Error>,
    },
    /// All sessions are taken.
    #[error("the server is full{}", retry_after.as_ref().map(|s| format!("; try again in {s} s")).unwrap_or_default())]
    Full {
        /// Its `Retry-After`, seconds.
        retry_after: Option<String>,
    },
    /// It answered, but not with a WebSocket.
    #[error("the server refused the connection with HTTP {status}{}", if body.is_empty() { String::new() } else { format!(": {body}") })]
    Refused {
        /// The HTTP status.
        status: u16,
        /// What it said, shortened.
        body: String,
    },
    /// It ended the connection.
    #[error("the server closed the connection{}", if reason.is_empty() { String::new() } else { format!(": {reason}") })]
    Closed {
        /// Close code and reason, where it gave them.
        reason: String,
    },
    /// The connection broke.
    #[error("the connection broke")]
    Broken(#[source] Box<tungstenite::Error>),
    /// It sent what the protocol does not have.
    #[error("the server sent what is not the protocol: {0}")]
    Protocol(String),
    /// It answered with an `error` event.
    #[error("the server said: {message}{}", code.as_ref().map(|code| format!(" ({code})")).unwrap_or_default())]
    Server {
        /// Its code.
        code: Option<String>,
        /// Its words.
        message: String,
    },
    /// A wait was over its deadline.
    #[error("{what} took longer than {after:?}")]
    TimedOut {
        /// What was waited for.
        what: &'static str,
        /// How long.
        after: Duration,
    },
    /// An Opus packet could not be made or read.
    #[error("Opus failed on {what}")]
    Opus {
        /// On what.
        what: &'static str,
        /// Why.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// There is nothing to speak.
    #[error("the recording is silent")]
    Silent,
}
