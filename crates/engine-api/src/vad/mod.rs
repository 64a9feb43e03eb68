//! The port of voice activity detection: one window of PCM in, P(speech) out.
//!
//! A session calls [`VadStream`] inline, once a window. An engine never decides that speech began or ended: that is
//! turn-taking.

mod error;

pub use error::VadError;

use antiphon_types::SampleRate;

/// The rate of all windows: mono, 16 kHz.
pub const RATE: SampleRate = SampleRate::HZ_16000;

/// The port: one engine, shared by all sessions.
pub trait Vad: Send + Sync {
    /// The engine's name as configured, for `/readyz` and the logs.
    fn name(&self) -> &str;

    /// How many samples at [`RATE`] a window holds.
    fn window(&self) -> usize;

    /// State of one microphone. Does not block.
    fn open(&self) -> Box<dyn VadStream>;
}

/// One microphone's state.
pub trait VadStream: Send {
    /// P(speech) in `[0, 1]` for exactly one window of mono PCM at [`RATE`]. Blocks for about a
    /// millisecond at most.
    fn probability(&mut self, window: &[i16]) -> Result<f32, VadError>;
}
