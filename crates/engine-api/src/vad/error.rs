//! What can go wrong in voice activity detection.

/// A window that cannot be judged, which counts as silence while the session goes on, or an engine that cannot start.
#[derive(Debug, thiserror::Error)]
pub enum VadError {
    /// The window has the wrong length.
    #[error("a window holds {expected} samples, this one {got}")]
    Window {
        /// What the engine takes.
        expected: usize,
        /// What it got.
        got: usize,
    },
    /// The model, its library or a setting is missing or wrong; the text says what and how to get it.
    #[error("{0}")]
    Unavailable(String),
}
