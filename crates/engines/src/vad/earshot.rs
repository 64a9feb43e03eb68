//! The `earshot` engine: a small network in pure Rust behind a noise floor; about 6 us a window of 16 ms, 12 KiB a stream.
//!
//! By itself the network takes loud steady noise for speech, so that turns end late or not at all. Its probability is
//! weighed by how far the window rises above the room ([`NoiseFloor`]).

use super::noise_floor::NoiseFloor;
use antiphon_engine_api::vad::{Vad, VadError, VadStream};

/// Samples a window at 16 kHz: what earshot 1.2's detector takes.
pub(super) const WINDOW: usize = 256;

/// The engine; it holds nothing, each stream has its own state.
#[derive(Clone, Copy, Debug, Default)]
pub struct Earshot;

impl Vad for Earshot {
    fn name(&self) -> &str {
        "earshot"
    }

    fn window(&self) -> usize {
        WINDOW
    }

    fn open(&self) -> Box<dyn VadStream> {
        Box::new(EarshotStream::new())
    }
}

/// One microphone's state.
pub(super) struct EarshotStream {
    network: Box<earshot::Detector>,
    floor: NoiseFloor,
}

/// What a window sounds like.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Sound {
    /// P(speech), weighed.
    pub(super) probability: f32,
    /// How far the window rises above the room: 0 not at all, 1 clearly.
    pub(super) weight: f32,
}

impl EarshotStream {
    pub(super) fn new() -> Self {
        Self { network: earshot::Detector::default_boxed(), floor: NoiseFloor::new() }
    }

    /// Judges a window of [`WINDOW`] samples.
    pub(super) fn judge(&mut self, window: &[i16]) -> Result<Sound, VadError> {
        if window.len() != WINDOW {
            return Err(VadError::Window { expected: WINDOW, got: window.len() });
        }
        let weight = self.floor.weight(window);
        Ok(Sound { probability: self.network.predict_i16(window) * weight, weight })
    }
}

impl VadStream for EarshotStream {
    fn probability(&mut self, window: &[i16]) -> Result<f32, VadError> {
        Ok(self.judge(window)?.probability)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn silence_is_no_speech_and_a_short_window_is_refused() {
        let mut stream = Earshot.open();
        for _ in 0..20 {
            assert!(stream.probability(&[0; WINDOW]).expect("a full window") < 0.3);
        }
        assert!(matches!(stream.probability(&[0; 10]), Err(VadError::Window { expected: WINDOW, got: 10 })));
    }
}
