//! The `earshot` engine: a small network in pure Rust, about 5 us a window of 16 ms, 8 KiB a stream.

use super::{Vad, VadError, VadStream};

/// Samples a window at 16 kHz: what earshot 1.2's detector takes.
const WINDOW: usize = 256;

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
        Box::new(EarshotStream(earshot::Detector::default_boxed()))
    }
}

struct EarshotStream(Box<earshot::Detector>);

impl VadStream for EarshotStream {
    fn probability(&mut self, window: &[i16]) -> Result<f32, VadError> {
        if window.len() != WINDOW {
            return Err(VadError::Window { expected: WINDOW, got: window.len() });
        }
        Ok(self.0.predict_i16(window))
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
