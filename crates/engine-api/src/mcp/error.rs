//! What can go wrong with a remote server.

use std::time::Duration;

/// A server whose tools could not be listed. Its tools are missing then; the session goes on.
#[derive(Debug, thiserror::Error)]
pub enum McpError {
    /// It did not answer in time.
    #[error("the server did not list its tools within {0:?}")]
    Timeout(Duration),
    /// It could not be reached, refused, or spoke another protocol; the text says which.
    #[error("the server cannot be used: {0}")]
    Unusable(String),
    /// Its list is longer than a session takes.
    #[error("the server has more than {0} tools, or describes them in more than is taken")]
    TooMuch(usize),
}
