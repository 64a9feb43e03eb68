//! Log-mel spectrograms as Whisper uses them: 80 or more bands, one frame per 10 ms at 16 kHz.
//!
//! The turn model and the Whisper engine compute their features with it (whisper.cpp its own where times are asked for), and
//! the benchmark's Whisper files contain its filters. Pure arithmetic without state between calls. NVIDIA's recognizers and
//! speaker models have features of their own: [`nemo`], which come as the audio does, and [`kaldi`].

pub mod kaldi;
pub mod nemo;

use realfft::{RealFftPlanner, RealToComplex};
use std::f32::consts::PI;
use std::sync::Arc;

/// Samples per frame at 16 kHz: 25 ms.
const FRAME: usize = 400;
/// Samples from one frame to the next at 16 kHz: 10 ms.
pub const HOP: usize = 160;
const RATE_HZ: f64 = 16_000.0;

/// Bins of a frame's spectrum.
pub const N_BINS: usize = FRAME / 2 + 1;

/// Triangular filters on Slaney's mel scale, linear below 1 kHz and logarithmic above it, each of unit area.
pub fn filters(n_mels: usize) -> Vec<[f32; N_BINS]> {
    let triangle = |band| {
        let triangle = Triangle::new(band, n_mels);
        std::array::from_fn(|bin| triangle.weight(bin as f64 * RATE_HZ / FRAME as f64))
    };
    (0..n_mels).map(triangle).collect()
}

/// A filter on Slaney's mel scale.
struct Triangle {
    from_hz: f64,
    peak_hz: f64,
    to_hz: f64,
}

impl Triangle {
    /// The filter of a band, from 0, where `n_mels` of them cover 0 to 8 kHz.
    fn new(band: usize, n_mels: usize) -> Self {
        let to_mel =
            |hz: f64| if hz < 1_000.0 { hz * 3.0 / 200.0 } else { 15.0 + 27.0 * (hz / 1_000.0).ln() / 6.4f64.ln() };
        let to_hz =
            |mel: f64| if mel < 15.0 { mel * 200.0 / 3.0 } else { 1_000.0 * (6.4f64.ln() / 27.0 * (mel - 15.0)).exp() };
        let top = to_mel(RATE_HZ / 2.0);
        let edge = |i: usize| to_hz(top * i as f64 / (n_mels + 1) as f64);
        Self { from_hz: edge(band), peak_hz: edge(band + 1), to_hz: edge(band + 2) }
    }

    /// Its weight at a frequency; its area is one.
    fn weight(&self, hz: f64) -> f32 {
        let rising = (hz - self.from_hz) / (self.peak_hz - self.from_hz);
        let falling = (self.to_hz - hz) / (self.to_hz - self.peak_hz);
        (rising.min(falling).max(0.0) * 2.0 / (self.to_hz - self.from_hz)) as f32
    }
}

/// The least power of a band.
const SILENT: f32 = 1e-10;

/// Computes spectrograms. Cheap to clone.
#[derive(Clone)]
pub struct LogMel {
    filters: Arc<Vec<Band>>,
    fourier: Arc<dyn RealToComplex<f32>>,
    hann: Arc<[f32; FRAME]>,
}

/// The non-zero part of a filter.
struct Band {
    first: usize,
    weights: Vec<f32>,
}

impl LogMel {
    /// A spectrogram with `n_mels` bands.
    pub fn new(n_mels: usize) -> Self {
        let band = |filter: [f32; N_BINS]| {
            let first = filter.iter().position(|weight| *weight > 0.0).unwrap_or(0);
            let last = filter.iter().rposition(|weight| *weight > 0.0).unwrap_or(0);
            Band { first, weights: filter[first..=last].to_vec() }
        };
        let hann = std::array::from_fn(|i| 0.5 - 0.5 * (2.0 * PI * i as f32 / FRAME as f32).cos());
        let fourier = RealFftPlanner::<f32>::new().plan_fft_forward(FRAME);
        Self { filters: Arc::new(filters(n_mels).into_iter().map(band).collect()), fourier, hann: Arc::new(hann) }
    }

    /// Computes one frame per [`HOP`] of `pcm`, which is mirrored at both ends. Shape `[bands, frames]`, row-major, in
    /// Whisper's units: decades of power, clamped to 8 below the maximum, plus 4, divided by 4. `pcm` must hold more
    /// than 200 samples.
    pub fn spectrogram(&self, pcm: &[f32]) -> Vec<f32> {
        let n_frames = pcm.len() / HOP;
        self.frames(n_frames, n_frames, |i| pcm[mirrored(i, pcm.len())])
    }

    /// The same with `n_frames` frames, as whisper.cpp computes them: `pcm` is mirrored at its beginning alone, and silence
    /// follows it, which is not transformed.
    pub fn window(&self, pcm: &[f32], n_frames: usize) -> Vec<f32> {
        let sounding = (pcm.len() + FRAME / 2).div_ceil(HOP).min(n_frames);
        self.frames(n_frames, sounding, |i| {
            let at = i.abs_diff(FRAME / 2);
            pcm.get(at).copied().unwrap_or(0.0)
        })
    }

    /// `sample` gives the samples from half a frame before the sound on. Frames from the number `sounding` on are silent.
    fn frames(&self, n_frames: usize, sounding: usize, sample: impl Fn(usize) -> f32) -> Vec<f32> {
        let mut frame = self.fourier.make_input_vec();
        let mut spectrum = self.fourier.make_output_vec();
        let mut scratch = self.fourier.make_scratch_vec();
        let mut logs = vec![SILENT.log10(); n_frames * self.filters.len()];
        for at in 0..sounding {
            for (i, (value, window)) in frame.iter_mut().zip(self.hann.iter()).enumerate() {
                *value = sample(at * HOP + i) * window;
            }
            let done = self.fourier.process_with_scratch(&mut frame, &mut spectrum, &mut scratch);
            done.expect("the buffers are the transform's own");
            for (band, filter) in self.filters.iter().enumerate() {
                let bins = spectrum[filter.first..].iter().zip(&filter.weights);
                let power: f32 = bins.map(|(bin, weight)| bin.norm_sqr() * weight).sum();
                logs[band * n_frames + at] = power.max(SILENT).log10();
            }
        }
        let floor = logs.iter().copied().fold(f32::MIN, f32::max) - 8.0;
        logs.iter_mut().for_each(|value| *value = (value.max(floor) + 4.0) / 4.0);
        logs
    }
}

/// The source index of sample `i` of the audio with half a frame mirrored at both ends.
fn mirrored(i: usize, n: usize) -> usize {
    let half = FRAME / 2;
    if i < half {
        half - i
    } else if i - half < n {
        i - half
    } else {
        2 * (n - 1) - (i - half)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A chord with an onset, so that neither time nor frequency is constant.
    fn chord() -> Vec<f32> {
        let at = |i: usize| {
            let t = i as f32 / 16_000.0;
            let on = if i < 4_000 { 0.01 } else { 0.5 };
            on * ((2.0 * PI * 440.0 * t).sin() + 0.3 * (2.0 * PI * 2_750.0 * t).sin())
        };
        (0..16_000).map(at).collect()
    }

    /// The expected values are the output of `python tests/fixtures/whisper/ggml.py`.
    #[test]
    fn filters_and_spectrogram_are_those_that_numpy_computes() {
        let filters = filters(80);
        let known = [(0, 1, 0.024_862_595), (10, 10, 0.019_908_22), (40, 43, 0.014_735_566), (79, 192, 0.003_164_712)];
        for (band, bin, weight) in known {
            assert!((filters[band][bin] - weight).abs() < 1e-6, "{band}, {bin}: {}", filters[band][bin]);
        }
        let spectrogram = LogMel::new(80).spectrogram(&chord());
        assert_eq!(spectrogram.len(), 80 * 100);
        for (band, frame, value) in
            [(11, 10, 0.588_719), (11, 60, 1.438_204), (52, 60, 1.095_515), (79, 60, -0.561_796), (11, 99, 1.435_67)]
        {
            let got = spectrogram[band * 100 + frame];
            assert!((got - value).abs() < 1e-3, "{band}, {frame}: {got}");
        }
    }

    #[test]
    fn a_window_has_silence_behind_its_sound() {
        let mel = LogMel::new(80);
        let sound = chord();
        let window = mel.window(&sound, 300);
        let padded: Vec<f32> = sound.iter().copied().chain(std::iter::repeat_n(0.0, 200 * HOP)).collect();
        let whole = mel.spectrogram(&padded);
        assert_eq!(window.len(), 80 * 300);
        let most = window.iter().zip(&whole).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
        assert!(most < 1e-6, "{most}");
        assert_eq!(mel.window(&sound, 10).len(), 80 * 10, "the sound is longer");
    }

    #[test]
    fn silence_is_one_flat_floor() {
        assert!(LogMel::new(80).spectrogram(&[0.0; 1_600]).iter().all(|value| *value == (-10.0 + 4.0) / 4.0));
    }
}
