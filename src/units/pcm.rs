//! Mono PCM with its rate.

use super::{SampleRate, Samples};
use std::time::Duration;

/// Mono 16-bit PCM at `rate`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pcm {
    /// Samples a second.
    pub rate: SampleRate,
    /// Shape `[n_samples]`, full scale at `i16::MAX`.
    pub samples: Vec<i16>,
}

impl Pcm {
    /// How many samples there are.
    pub fn len(&self) -> Samples {
        Samples(self.samples.len() as u64)
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.samples.is_empty()
    }

    /// How long it sounds.
    pub fn duration(&self) -> Duration {
        self.len().duration(self.rate)
    }
}
