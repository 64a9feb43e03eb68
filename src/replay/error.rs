//! Why a file cannot be replayed.

use antiphon_session::replay_log::VERSION;
use antiphon_types::sealed::SealedError;
use std::io;

/// Why a file cannot be replayed.
#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    /// It cannot be read.
    #[error("cannot be read: {0}")]
    Io(#[from] io::Error),
    /// It does not begin like a recording.
    #[error("is no recording of a session: {0}")]
    NoRecording(String),
    /// A log of a version before this program's.
    #[error(
        "was written by an older version of antiphon (replay log version {found}; this program reads version {})",
        VERSION
    )]
    Older {
        /// The log's version.
        found: u64,
    },
    /// A log of a version after this program's.
    #[error(
        "was written by a newer version of antiphon (replay log version {found}; this program reads version {})",
        VERSION
    )]
    Newer {
        /// The log's version.
        found: u64,
    },
    /// It is sealed, and there is no key.
    #[error("is sealed: name the file of its key with --storage-key, or the settings of its hub with --config")]
    NoKey,
    /// The key cannot be read.
    #[error("is sealed, and its key cannot be read: {0}")]
    Key(String),
    /// It is not what was sealed with this key.
    #[error("cannot be opened: {0}")]
    Sealed(SealedError),
    /// A line that is none.
    #[error("line {line} cannot be read: {source}")]
    Line {
        /// Counted from 1.
        line: usize,
        /// Why.
        source: serde_json::Error,
    },
    /// A sweep needs to know where turns are over.
    #[error("has no labels beside it: {}: {source}", path.display())]
    NoLabels {
        /// Where they are looked for.
        path: std::path::PathBuf,
        /// Why there are none.
        source: io::Error,
    },
    /// They are there and wrong.
    #[error("has labels that cannot be used: {0}")]
    Labels(String),
    /// Windows that are none.
    #[error("line {line} holds no windows")]
    Windows {
        /// Counted from 1.
        line: usize,
    },
}
