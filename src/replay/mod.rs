//! Recordings of sessions, run again: exactly, or turn-taking alone with other settings.
//!
//! `cli/replay.rs` calls it. [`replay`] feeds a recording's inputs to the same reducer and the same turn-taking on a
//! virtual clock and compares each decision with the recorded one. Nothing here plays audio, asks an engine or opens a
//! socket.

mod error;
mod exact;
mod read;

pub use error::ReplayError;
pub use exact::{Decided, Difference, Layer, Report, replay};
pub use read::Recording;
