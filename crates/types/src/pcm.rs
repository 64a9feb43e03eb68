//! Mono PCM with its sampling rate.

use super::{SampleRate, Samples};
use std::time::Duration;

/// Mono 16-bit PCM at `rate`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pcm {
    /// Sampling rate.
    pub rate: SampleRate,
    /// Samples, shape `[n_samples]`; full scale is `i16::MAX`.
    pub samples: Vec<i16>,
}

impl Pcm {
    /// Number of samples.
    pub fn len(&self) -> Samples {
        Samples(self.samples.len() as u64)
    }

    /// Whether it holds no samples.
    pub fn is_empty(&self) -> bool {
        self.samples.is_empty()
    }

    /// Playing time.
    pub fn duration(&self) -> Duration {
        self.len().duration(self.rate)
    }
}

/// Rounds to the nearest sample and clips to full scale; NaN becomes silence. The cast saturates. Adding half a step
/// away from zero before the cast rounds without `f32::round`, which is a C library call on processors without the
/// instruction.
pub fn to_sample(value: f32) -> i16 {
    (value + 0.5_f32.copysign(value)) as i16
}

#[cfg(test)]
mod tests {
    use super::to_sample;

    #[test]
    fn samples_are_rounded_to_the_nearest_and_clipped() {
        let values = [0.4, 0.5, -0.4, -0.5, 1.49, -1.51, 40_000.0, -40_000.0, f32::NAN];
        assert_eq!(values.map(to_sample), [0, 1, 0, -1, 1, -2, i16::MAX, i16::MIN, 0]);
    }
}
