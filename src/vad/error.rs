//! What can go wrong in voice activity detection.

/// A failed window. The session goes on: the window counts as silence.
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
}
