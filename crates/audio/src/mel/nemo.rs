//! Log-mel features as NVIDIA's NeMo computes them for its streaming recognizers: 80 or 128 bands, one frame per 10 ms at
//! 16 kHz, in natural logarithms; and the normalization of a window of them, for models that want it.
//!
//! Pre-emphasis of 0.97; a symmetric Hann window of 400 samples in a transform of 512; zeros before and behind the audio; power;
//! Slaney's filters from 0 to 8 kHz; `ln(x + 2^-24)`. The `transducer` recognizer has a [`FeatureStream`] for each utterance.
//! A frame depends on its 400 samples and the one before them alone, so its bits are the same however the audio arrives.
//! Pure arithmetic; it never waits.

use super::{HOP, Triangle};
use realfft::num_complex::Complex;
use realfft::{RealFftPlanner, RealToComplex};
use std::f64::consts::PI;
use std::sync::Arc;

const PRE_EMPHASIS: f32 = 0.97;
/// Samples of the transform at 16 kHz.
const TRANSFORM: usize = 512;
/// Samples of the window, which stands in the middle of the transform.
const WINDOW: usize = 400;
const N_BINS: usize = TRANSFORM / 2 + 1;
const RATE_HZ: f64 = 16_000.0;
/// What is added to the power before its logarithm: 2^-24.
const LOG_GUARD: f64 = 1.0 / (1 << 24) as f64;

/// What NeMo adds to a deviation, so that it is never zero.
const DEVIATION_GUARD: f64 = 1e-5;

/// Window and filters. Cheap to clone; one serves all streams.
#[derive(Clone)]
pub struct Features {
    tables: Arc<Tables>,
}

struct Tables {
    window: [f64; WINDOW],
    filters: Vec<Filter>,
    fourier: Arc<dyn RealToComplex<f64>>,
}

/// The non-zero part of a filter.
struct Filter {
    first_bin: usize,
    weights: Vec<f64>,
}

/// The features of one utterance, as its audio comes.
#[derive(Clone)]
pub struct FeatureStream {
    features: Features,
    /// Pre-emphasized samples from the next frame's first one on.
    pending: Vec<f32>,
    /// The last sample, before pre-emphasis.
    last: f32,
    scratch: Scratch,
}

#[derive(Clone)]
struct Scratch {
    frame: Vec<f64>,
    spectrum: Vec<Complex<f64>>,
    fourier: Vec<Complex<f64>>,
}

impl Features {
    /// Features of `n_mels` bands, at least 1.
    pub fn new(n_mels: usize) -> Self {
        let window = std::array::from_fn(|i| 0.5 - 0.5 * (2.0 * PI * i as f64 / (WINDOW - 1) as f64).cos());
        let filters = (0..n_mels).map(|band| Filter::new(band, n_mels)).collect();
        let fourier = RealFftPlanner::<f64>::new().plan_fft_forward(TRANSFORM);
        Self { tables: Arc::new(Tables { window, filters, fourier }) }
    }

    /// Bands of a frame.
    pub fn n_mels(&self) -> usize {
        self.tables.filters.len()
    }

    /// The features of an utterance that begins.
    pub fn stream(&self) -> FeatureStream {
        let fourier = &self.tables.fourier;
        let scratch = Scratch {
            frame: fourier.make_input_vec(),
            spectrum: fourier.make_output_vec(),
            fourier: fourier.make_scratch_vec(),
        };
        // The middle of the first frame is the first sample.
        FeatureStream { features: self.clone(), pending: vec![0.0; WINDOW / 2], last: 0.0, scratch }
    }
}

impl Filter {
    fn new(band: usize, n_mels: usize) -> Self {
        let triangle = Triangle::new(band, n_mels);
        let weights: Vec<f64> =
            (0..N_BINS).map(|bin| f64::from(triangle.weight(bin as f64 * RATE_HZ / TRANSFORM as f64))).collect();
        let first_bin = weights.iter().position(|weight| *weight > 0.0).unwrap_or(0);
        let last_bin = weights.iter().rposition(|weight| *weight > 0.0).unwrap_or(0);
        Self { first_bin, weights: weights[first_bin..=last_bin].to_vec() }
    }
}

impl FeatureStream {
    /// Takes the next mono PCM at 16 kHz, any length, and appends the frames that it completes to `frames`, band by band. A frame
    /// is complete 12.5 ms after its middle. Returns how many there are.
    pub fn push(&mut self, pcm: &[i16], frames: &mut Vec<f32>) -> usize {
        self.pending.reserve(pcm.len());
        for sample in pcm {
            let sample = f32::from(*sample) / 32_768.0;
            self.pending.push(sample - PRE_EMPHASIS * self.last);
            self.last = sample;
        }
        let n_frames = (self.pending.len() + HOP).saturating_sub(WINDOW) / HOP;
        for at in 0..n_frames {
            self.frame(at * HOP, frames);
        }
        self.pending.drain(..n_frames * HOP);
        n_frames
    }

    /// Appends the next `n_frames` frames as they are where the audio ends here: zeros follow it. The stream is at its end.
    pub fn finish(mut self, n_frames: usize, frames: &mut Vec<f32>) {
        self.pending.resize(n_frames * HOP + WINDOW, 0.0);
        for at in 0..n_frames {
            self.frame(at * HOP, frames);
        }
    }

    /// Computes the frame whose first sample is that one of the pending ones.
    fn frame(&mut self, first: usize, frames: &mut Vec<f32>) {
        let tables = &self.features.tables;
        let scratch = &mut self.scratch;
        scratch.frame.fill(0.0);
        let windowed = scratch.frame[(TRANSFORM - WINDOW) / 2..].iter_mut();
        for ((value, sample), weight) in windowed.zip(&self.pending[first..first + WINDOW]).zip(&tables.window) {
            *value = f64::from(*sample) * weight;
        }
        let done = tables.fourier.process_with_scratch(&mut scratch.frame, &mut scratch.spectrum, &mut scratch.fourier);
        done.expect("the buffers are the transform's own");
        for filter in &tables.filters {
            let bins = scratch.spectrum[filter.first_bin..].iter().zip(&filter.weights);
            let power: f64 = bins.map(|(bin, weight)| bin.norm_sqr() * weight).sum();
            frames.push((power + LOG_GUARD).ln() as f32);
        }
    }
}

/// Gives each band of these frames ([frames, bands]) the mean 0 and the deviation 1, as NeMo's `per_feature` does.
pub fn normalize(frames: &mut [f32], n_mels: usize) {
    let n_frames = frames.len() / n_mels;
    for band in 0..n_mels {
        let values = || frames.iter().skip(band).step_by(n_mels).map(|value| f64::from(*value));
        let mean = values().sum::<f64>() / n_frames as f64;
        let variance =
            values().map(|value| (value - mean).powi(2)).sum::<f64>() / n_frames.saturating_sub(1).max(1) as f64;
        let deviation = variance.sqrt() + DEVIATION_GUARD;
        for value in frames.iter_mut().skip(band).step_by(n_mels) {
            *value = ((f64::from(*value) - mean) / deviation) as f32;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decode;
    use proptest::prelude::*;
    use std::path::Path;
    use std::time::Duration;

    fn fixture(name: &str) -> Vec<u8> {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures").join(name);
        std::fs::read(path).expect("the fixture")
    }

    /// The sentence whose features `tests/fixtures/mel/nemo.py` computes.
    fn sentence() -> Vec<i16> {
        let file = fixture("speech/bambatse_02_haggard_0323.flac");
        decode::read(file.into(), Duration::from_secs(10)).expect("FLAC").samples
    }

    fn whole(n_mels: usize, pcm: &[i16]) -> Vec<f32> {
        let mut frames = Vec::new();
        let mut stream = Features::new(n_mels).stream();
        let n_frames = stream.push(pcm, &mut frames);
        stream.finish(pcm.len() / HOP + 1 - n_frames, &mut frames);
        frames
    }

    #[test]
    fn features_are_those_of_nemos_formulas_in_numpy_and_librosa() {
        let pcm = sentence();
        for n_mels in [80, 128] {
            let golden = fixture(&format!("mel/nemo_{n_mels}.f32"));
            let golden: Vec<f32> = golden.as_chunks::<4>().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect();
            let ours = whole(n_mels, &pcm);
            // Every ninth frame, the last one included.
            let ours: Vec<f32> = ours.chunks(n_mels).rev().step_by(9).flatten().copied().collect();
            assert_eq!(ours.len(), golden.len());
            for (i, (ours, golden)) in ours.iter().zip(&golden).enumerate() {
                assert!((ours - golden).abs() < 1e-4, "{n_mels} bands, number {i}: {ours}, not {golden}");
            }
        }
    }

    #[test]
    fn silence_is_the_logarithm_of_the_guard() {
        let frames = whole(80, &[0; 1_600]);
        assert_eq!(frames.len(), 80 * 11);
        assert!(frames.iter().all(|value| *value == (-24.0 * 2f64.ln()) as f32), "{frames:?}");
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn any_split_of_the_samples_gives_the_same_bits(sizes in prop::collection::vec(0..700_usize, 1..60)) {
            let pcm = &sentence()[..12_000];
            let expected = whole(80, pcm);
            let mut frames = Vec::new();
            let mut stream = Features::new(80).stream();
            let mut n_frames = 0;
            let mut rest = pcm;
            for size in sizes {
                let piece;
                (piece, rest) = rest.split_at(size.min(rest.len()));
                n_frames += stream.push(piece, &mut frames);
            }
            n_frames += stream.push(rest, &mut frames);
            prop_assert_eq!(frames.len(), n_frames * 80);
            stream.finish(pcm.len() / HOP + 1 - n_frames, &mut frames);
            let bits = |frames: &[f32]| frames.iter().map(|value| value.to_bits()).collect::<Vec<_>>();
            prop_assert_eq!(bits(&frames), bits(&expected));
        }
    }
}
