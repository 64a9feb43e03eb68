//! Errors of a client, with messages for a user at a terminal.

use std::time::Duration;
use tokio_tungstenite::tungstenite;

/// Why a connection, a question or a response failed.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The address is invalid.
    #[error("{url:?} is not a valid server address: {reason}")]
    BadUrl {
        /// The address as given.
        url: String,
        /// What is invalid.
        reason: String,
    },
    /// The file of trusted certificates cannot be used.
    #[error("{}: no certificates to trust: {reason}", path.display())]
    BadCertificates {
        /// The path as given.
        path: std::path::PathBuf,
        /// Why it cannot be used.
        reason: String,
    },
    /// No connection could be opened.
    #[error("cannot connect to {url}")]
    CannotConnect {
        /// The address without its query.
        url: String,
        /// The cause.
        #[source]
        source: Box<tungstenite::Error>,
    },
    /// The server takes no session now (503): it is full, it is starting, or its engines are away.
    #[error("{reason}{}", retry_after.as_ref().map(|s| format!("; try again in {s} s")).unwrap_or_default())]
    Unavailable {
        /// What the server says, without the full stop.
        reason: String,
        /// The `Retry-After` header, in seconds.
        retry_after: Option<String>,
    },
    /// The server answered, but not with a WebSocket handshake.
    #[error("the server refused the connection with HTTP {status}{}", if body.is_empty() { String::new() } else { format!(": {body}") })]
    Refused {
        /// The HTTP status.
        status: u16,
        /// The response body, truncated.
        body: String,
    },
    /// The server closed the connection.
    #[error("the server closed the connection{}", if reason.is_empty() { String::new() } else { format!(": {reason}") })]
    Closed {
        /// The close code; `None` if the connection ended without a close frame.
        code: Option<u16>,
        /// Close code and reason, if any.
        reason: String,
    },
    /// The connection broke.
    #[error("the connection broke")]
    Broken(#[source] Box<tungstenite::Error>),
    /// The session was not resumed while the server kept it.
    #[error("{} for {} s", if *is_reached { "no hub could resume the session" } else { "no hub could be reached" }, within.as_secs())]
    NotResumed {
        /// Whether the last attempt was answered.
        is_reached: bool,
        /// How long attempts were made.
        within: Duration,
        /// Why the connection was lost.
        #[source]
        source: Box<ClientError>,
    },
    /// The connection ended after the answer had begun.
    #[error("the answer broke off after {:.1} s of sound", after.as_secs_f64())]
    BrokeOff {
        /// The sound received so far.
        after: Duration,
        /// Why the connection ended.
        #[source]
        source: Box<ClientError>,
    },
    /// The server violated the protocol.
    #[error("the server violated the protocol: {0}")]
    Protocol(String),
    /// The server sent an `error` event.
    #[error("the server said: {message}{}", code.as_ref().map(|code| format!(" ({code})")).unwrap_or_default())]
    Server {
        /// The error code.
        code: Option<String>,
        /// The error message.
        message: String,
    },
    /// A timeout expired.
    #[error("{what} took longer than {after:?}")]
    TimedOut {
        /// What the client was waiting for.
        what: &'static str,
        /// The timeout.
        after: Duration,
    },
    /// An Opus packet could not be encoded or decoded.
    #[error("Opus failed on {what}")]
    Opus {
        /// The packet or step that failed.
        what: &'static str,
        /// The cause.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The recording contains no audible sample.
    #[error("the recording is silent")]
    Silent,
}
