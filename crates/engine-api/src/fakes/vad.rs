//! A fake voice activity detector for tests and benchmarks: loud windows are speech.

use crate::vad::{Vad, VadError, VadStream};

/// Windows of 16 ms whose peak is above 1000 of 32767 are speech.
#[derive(Clone, Copy, Debug, Default)]
pub struct FakeVad;

impl Vad for FakeVad {
    fn name(&self) -> &str {
        "fake"
    }

    fn window(&self) -> usize {
        256
    }

    fn open(&self) -> Box<dyn VadStream> {
        Box::new(FakeVad)
    }
}

impl VadStream for FakeVad {
    fn probability(&mut self, window: &[i16]) -> Result<f32, VadError> {
        let loud = window.iter().any(|sample| sample.unsigned_abs() > 1_000);
        Ok(if loud { 1.0 } else { 0.0 })
    }
}
