//! The voice activity detection port: one window of PCM in, P(speech) out.
//!
//! A session calls [`VadStream`] synchronously for each window. An engine never decides that speech started or ended;
//! that is the task of turn-taking.

mod error;

pub use error::VadError;

use antiphon_types::SampleRate;

/// Sampling rate of all windows: mono, 16 kHz.
pub const RATE: SampleRate = SampleRate::HZ_16000;

/// The voice activity detection port: one engine, shared by all sessions.
pub trait Vad: Send + Sync {
    /// The engine's name as configured, for `/readyz` and the logs.
    fn name(&self) -> &str;

    /// Window length in samples at [`RATE`].
    fn window(&self) -> usize;

    /// Creates the state for one microphone. Does not block.
    fn open(&self) -> Box<dyn VadStream>;
}

/// The state of one microphone.
pub trait VadStream: Send {
    /// P(speech) in `[0, 1]` for exactly one window of mono PCM at [`RATE`]. Blocks for about a millisecond at most.
    fn probability(&mut self, window: &[i16]) -> Result<f32, VadError>;
}
