//! Errors of voice activity detection.

/// A window that cannot be classified, which counts as silence, or an engine that cannot start.
#[derive(Debug, thiserror::Error)]
pub enum VadError {
    /// The window has the wrong length.
    #[error("a window holds {expected} samples, this one {got}")]
    Window {
        /// Length that the engine requires, in samples.
        expected: usize,
        /// Length of the window, in samples.
        got: usize,
    },
    /// The model, its library or a setting is missing or invalid; the text states which and how to fix it.
    #[error("{0}")]
    Unavailable(String),
}
