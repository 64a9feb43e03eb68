//! Log-mel filterbanks as Kaldi computes them, for speaker models: 80 or other bands, one frame per 10 ms at 16 kHz, in
//! natural logarithms.
//!
//! Frames of 400 samples that lie within the audio; the mean of a frame is removed, then pre-emphasis of 0.97, a window, a
//! transform of 512, power, triangles on Kaldi's mel scale from 20 Hz to 8 kHz, a logarithm of at least that of 2^-23.
//! Compared with kaldi-native-fbank. Pure arithmetic; it never waits.

use super::HOP;
use realfft::{RealFftPlanner, RealToComplex};
use std::f64::consts::PI;
use std::sync::Arc;

const PRE_EMPHASIS: f64 = 0.97;
/// Samples of a frame at 16 kHz, 25 ms.
const FRAME: usize = 400;
/// Samples of the transform.
const TRANSFORM: usize = 512;
/// Bins that count: Kaldi leaves out the last one.
const N_BINS: usize = TRANSFORM / 2;
const RATE_HZ: f64 = 16_000.0;
/// Where the lowest band begins; the highest ends at 8 kHz.
const LOWEST_HZ: f64 = 20.0;

/// What a frame is multiplied by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameWindow {
    /// Kaldi's own: a Hann window to the power of 0.85.
    Povey,
    /// A Hamming window.
    Hamming,
}

/// Computes filterbanks. Cheap to clone.
#[derive(Clone)]
pub struct Filterbank {
    tables: Arc<Tables>,
}

struct Tables {
    window: Vec<f64>,
    bands: Vec<Band>,
    fourier: Arc<dyn RealToComplex<f64>>,
    /// What full scale is.
    full_scale: f64,
}

/// The non-zero part of a band's triangle.
struct Band {
    first_bin: usize,
    weights: Vec<f64>,
}

impl FrameWindow {
    fn weight(self, i: usize) -> f64 {
        let cosine = (2.0 * PI * i as f64 / (FRAME - 1) as f64).cos();
        match self {
            Self::Povey => (0.5 - 0.5 * cosine).powf(0.85),
            Self::Hamming => 0.54 - 0.46 * cosine,
        }
    }
}

impl Band {
    /// The band from 0 on, where `n_bands` of them cover 20 Hz to 8 kHz.
    fn new(band: usize, n_bands: usize) -> Self {
        let to_mel = |hz: f64| 1_127.0 * (1.0 + hz / 700.0).ln();
        let low = to_mel(LOWEST_HZ);
        let step = (to_mel(RATE_HZ / 2.0) - low) / (n_bands + 1) as f64;
        let from = low + step * band as f64;
        let weight = |bin: usize| {
            let at = to_mel(bin as f64 * RATE_HZ / TRANSFORM as f64) - from;
            (at / step).min(2.0 - at / step).max(0.0)
        };
        let weights: Vec<f64> = (0..N_BINS).map(weight).collect();
        let first_bin = weights.iter().position(|weight| *weight > 0.0).unwrap_or(0);
        let last_bin = weights.iter().rposition(|weight| *weight > 0.0).unwrap_or(0);
        Self { first_bin, weights: weights[first_bin..=last_bin].to_vec() }
    }
}

impl Filterbank {
    /// `n_bands`: at least 1. `full_scale`: the value of the loudest sample, 1 or 32,768 by habit; models are trained
    /// with one of them, which moves all values but those of silence.
    pub fn new(n_bands: usize, window: FrameWindow, full_scale: f32) -> Self {
        let window = (0..FRAME).map(|i| window.weight(i)).collect();
        let bands = (0..n_bands).map(|band| Band::new(band, n_bands)).collect();
        let fourier = RealFftPlanner::<f64>::new().plan_fft_forward(TRANSFORM);
        Self { tables: Arc::new(Tables { window, bands, fourier, full_scale: full_scale.into() }) }
    }

    /// Bands of a frame.
    pub fn n_bands(&self) -> usize {
        self.tables.bands.len()
    }

    /// The frames of mono PCM at 16 kHz, `[frames, bands]`, row-major: `1 + (n - 400) / 160` of them, none of less than 400
    /// samples.
    pub fn frames(&self, pcm: &[i16]) -> Vec<f32> {
        let tables = &*self.tables;
        let mut frame = tables.fourier.make_input_vec();
        let mut spectrum = tables.fourier.make_output_vec();
        let mut scratch = tables.fourier.make_scratch_vec();
        let mut frames = Vec::with_capacity(pcm.len() / HOP * tables.bands.len());
        for samples in pcm.windows(FRAME).step_by(HOP) {
            let mean = samples.iter().map(|sample| f64::from(*sample)).sum::<f64>() / FRAME as f64;
            let scale = tables.full_scale / 32_768.0;
            // The first sample is its own predecessor.
            let mut before = f64::from(samples[0]) - mean;
            frame.fill(0.0);
            for ((value, sample), weight) in frame.iter_mut().zip(samples).zip(&tables.window) {
                let sample = f64::from(*sample) - mean;
                *value = (sample - PRE_EMPHASIS * before) * scale * weight;
                before = sample;
            }
            let done = tables.fourier.process_with_scratch(&mut frame, &mut spectrum, &mut scratch);
            done.expect("the buffers are the transform's own");
            for band in &tables.bands {
                let bins = spectrum[band.first_bin..].iter().zip(&band.weights);
                let power: f64 = bins.map(|(bin, weight)| bin.norm_sqr() * weight).sum();
                frames.push(power.max(f64::from(f32::EPSILON)).ln() as f32);
            }
        }
        frames
    }
}

/// Takes the mean of each band from these frames, `[frames, bands]`, as speaker models want it.
pub fn subtract_mean(frames: &mut [f32], n_bands: usize) {
    let n_frames = frames.len() / n_bands;
    for band in 0..n_bands {
        let sum: f64 = frames.chunks_exact(n_bands).map(|frame| f64::from(frame[band])).sum();
        let mean = (sum / n_frames.max(1) as f64) as f32;
        frames.chunks_exact_mut(n_bands).for_each(|frame| frame[band] -= mean);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of kaldi-native-fbank: `tests/fixtures/fbank/make.py`.
    const EXPECTED: &str = include_str!("../../../../tests/fixtures/fbank/kaldi.txt");

    /// The noise of `make.py`.
    fn noise() -> Vec<i16> {
        let mut state = 1u32;
        let sample = |i: usize| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let value = ((state >> 18) as i32 - 8_192) / (4 + (i / 320 % 7) as i32);
            if i >= 15_000 { 0 } else { value as i16 + 100 }
        };
        (0..16_000).map(sample).collect()
    }

    #[test]
    fn frames_are_those_of_kaldi() {
        let pcm = noise();
        for line in EXPECTED.lines() {
            let mut fields = line.split(' ');
            let window = match fields.next() {
                Some("povey") => FrameWindow::Povey,
                Some("hamming") => FrameWindow::Hamming,
                other => panic!("{other:?}"),
            };
            let mut number = || fields.next().map(|field| field.parse::<f32>().expect("a number"));
            let full_scale = number().expect("full scale");
            let frame = number().expect("a frame") as usize;
            let bank = Filterbank::new(80, window, full_scale);
            let frames = bank.frames(&pcm);
            assert_eq!(frames.len(), 98 * bank.n_bands());
            for (band, got) in frames[80 * frame..][..80].iter().enumerate() {
                let expect = number().expect("a band");
                assert!((got - expect).abs() < 2e-3, "{window:?} frame {frame} band {band}: {got}, not {expect}");
            }
            assert_eq!(number(), None);
        }
    }

    #[test]
    fn less_than_a_frame_is_none() {
        let bank = Filterbank::new(80, FrameWindow::Povey, 1.0);
        assert!(bank.frames(&[1; 399]).is_empty());
        assert_eq!(bank.frames(&[1; 400]).len(), 80);
        assert_eq!(bank.frames(&[1; 560]).len(), 160);
    }

    #[test]
    fn bands_without_their_mean_sum_to_zero() {
        let mut frames = vec![1.0, 10.0, 3.0, 20.0];
        subtract_mean(&mut frames, 2);
        assert_eq!(frames, [-1.0, -5.0, 1.0, 5.0]);
        subtract_mean(&mut [], 2);
    }
}
