//! stub
use crate::units::Samples;

/// How much of a window was the hub's own reply.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct EchoVerdict {
    /// The part of the window's energy that the reply explains, in `[0, 1]`; 0 when no reply is in reach.
    pub explained: f32,
    /// How much later than its reference position the reply is heard, in samples at 16 kHz, once that is known.
    pub lag: Option<i32>,
}

/// Subtracts the hub's own reply from the microphone.
#[derive(Debug, Default)]
pub struct EchoGuard {
    position: u64,
}

impl EchoGuard {
    /// A guard that has seen nothing; it holds no memory until the first reply.
    pub fn new() -> Self {
        Self::default()
    }

    /// Reply audio at 16 kHz, with the turn time at which it is estimated to sound.
    pub fn played(&mut self, _at: Samples, _pcm16k: &[i16]) {}

    /// Playback stopped at `at`: what was to sound later never will.
    pub fn stopped(&mut self, _at: Samples) {}

    /// Takes the next 16 ms of the microphone and writes what is left of it without the reply.
    pub fn residual(&mut self, window: &[i16], out: &mut [i16]) -> EchoVerdict {
        self.position += window.len() as u64;
        out.copy_from_slice(window);
        EchoVerdict::default()
    }
}
