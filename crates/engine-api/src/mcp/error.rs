//! Errors of remote tool servers.

use std::time::Duration;

/// A server whose tools could not be listed. The session continues without them.
#[derive(Debug, thiserror::Error)]
pub enum McpError {
    /// The server did not answer in time.
    #[error("the server did not list its tools within {0:?}")]
    Timeout(Duration),
    /// The server could not be reached, rejected the request, or spoke another protocol; the text states which.
    #[error("the server cannot be used: {0}")]
    Unusable(String),
    /// The tool list exceeds the limit of a session.
    #[error("the server has more than {0} tools, or their descriptions are too long")]
    TooMuch(usize),
}
