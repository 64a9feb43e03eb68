//! hibari's spectra to sound: pulse train, noise and one inverse short-time Fourier transform. The engine calls it.
//!
//! The graph gives five numbers for each of [`BINS`] frequencies and frames of 12.5 ms, and the pitch `f0` of each frame. The
//! spectrum is
//!
//! ```text
//! S = exp(lh) e^(i pi tanh(theta)) P + exp(ln) Z + exp(lr) e^(i phi)
//! ```
//!
//! with P the transform of a pulse train of pitch `f0`, Z complex noise whose real and imaginary parts are normally distributed,
//! and exponents at most [`LOUDEST`]. Frames are 1,200 samples at 24 kHz, 300 apart, in a periodic Hann window. The constants are
//! those of hibari-tts 0.2.1, whose output the tests hold. This module never runs a model and knows no text.

use super::functions::{exp, rotation, tanh};
use multiversion::multiversion;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use realfft::num_complex::Complex32;
use realfft::{ComplexToReal, RealFftPlanner, RealToComplex};
use std::f64::consts::PI;
use std::sync::{Arc, LazyLock};

/// Samples of a frame.
const FRAME: usize = 1_200;
/// Samples from a frame's begin to the next one's.
const HOP: usize = 300;
/// Samples of the sound before the middle of the first frame, which are no part of it.
const HALF: usize = FRAME / 2;
/// Frequencies of a spectrum, 20 Hz apart.
pub(super) const BINS: usize = FRAME / 2 + 1;
/// Samples a second.
const RATE: f64 = 24_000.0;
/// The largest exponent of a magnitude.
const LOUDEST: f32 = 7.0;
/// Hz below which a frame has no pitch.
const LOWEST_PITCH: f32 = 40.0;
/// Hz up to which the pulse train has harmonics.
const HIGHEST_HARMONIC: f32 = 11_000.0;
/// Twice the sine of half the phase within which the quotient of the pulse train is replaced by its limit.
const PULSE_PEAK: f32 = 2e-3;
/// Numbers of the table of noise, 512 KiB.
const NORMALS: usize = 1 << 16;
/// Frequencies that are shaped together: the spectra's numbers of so many lie in one line of the processor's cache.
const SHAPED_TOGETHER: usize = 8;
/// Keeps the sum of squared windows from being a divisor of 0.
const LEAST_WEIGHT: f32 = 1e-11;

/// What the graph gives for `n_frames` frames: rows of [`BINS`] by frames, each frequency's frames in a row, and one pitch a frame.
#[derive(Clone, Copy, Debug)]
pub(super) struct Spectra<'a> {
    /// Logarithm of the magnitude of the pulse train's filter.
    pub(super) harmonic: &'a [f32],
    /// Phase of that filter, before `pi tanh`.
    pub(super) rotation: &'a [f32],
    /// Logarithm of the noise's magnitude.
    pub(super) noise: &'a [f32],
    /// Logarithm of the magnitude of the part with a phase of its own.
    pub(super) free: &'a [f32],
    /// That phase.
    pub(super) phase: &'a [f32],
    /// Pitch in Hz.
    pub(super) pitch: &'a [f32],
}

impl Spectra<'_> {
    /// Whether all parts have the same number of frames.
    pub(super) fn is_whole(&self) -> bool {
        let n = self.pitch.len() * BINS;
        [self.harmonic, self.rotation, self.noise, self.free, self.phase].iter().all(|part| part.len() == n)
    }
}

/// A source of complex noise.
pub(super) trait Noise: Send {
    /// Fills `values` with numbers whose real and imaginary parts are independent, of mean 0 and variance 1.
    fn fill(&mut self, values: &mut [Complex32]);
}

/// Noise from a table, a pseudorandom place of it for each row: a sentence takes more numbers than the table has, but never two
/// rows from one place.
pub(super) struct RandomNoise(StdRng);

impl RandomNoise {
    /// The same numbers for the same seed.
    pub(super) fn seeded(seed: u64) -> Self {
        Self(StdRng::seed_from_u64(seed))
    }
}

impl Noise for RandomNoise {
    fn fill(&mut self, values: &mut [Complex32]) {
        for part in values.chunks_mut(NORMALS / 2) {
            let first = self.0.random_range(0..=NORMALS - part.len());
            part.copy_from_slice(&normals()[first..first + part.len()]);
        }
    }
}

/// [`NORMALS`] numbers as [`Noise::fill`] gives them, always the same.
fn normals() -> &'static [Complex32] {
    static MADE: LazyLock<Vec<Complex32>> = LazyLock::new(|| {
        let mut random = StdRng::seed_from_u64(0);
        // By the transform of Box and Muller: its two results are the two parts of one number.
        let mut next = || {
            // Above 0 and at most 1.
            let uniform = 1.0 - random.random::<f32>();
            let angle = std::f32::consts::TAU * random.random::<f32>();
            Complex32::from_polar((-2.0 * uniform.ln()).sqrt(), angle)
        };
        (0..NORMALS).map(|_| next()).collect()
    });
    &MADE
}

/// Transforms and buffers, kept between runs.
pub(super) struct Synthesizer {
    forward: Arc<dyn RealToComplex<f32>>,
    inverse: Arc<dyn ComplexToReal<f32>>,
    window: Vec<f32>,
    /// Spectra of all frames, each frame's frequencies in a row.
    spectra: Vec<Complex32>,
    frame: Vec<f32>,
    row: Vec<Complex32>,
    scratch: Vec<Complex32>,
}

impl Synthesizer {
    pub(super) fn new() -> Self {
        let mut planner = RealFftPlanner::new();
        let forward = planner.plan_fft_forward(FRAME);
        let inverse = planner.plan_fft_inverse(FRAME);
        let hann = |i| (0.5 - 0.5 * (2.0 * PI * i as f64 / FRAME as f64).cos()) as f32;
        let scratch = forward.get_scratch_len().max(inverse.get_scratch_len());
        Self {
            forward,
            inverse,
            window: (0..FRAME).map(hann).collect(),
            spectra: Vec::new(),
            frame: vec![0.0; FRAME],
            row: vec![Complex32::ZERO; BINS],
            scratch: vec![Complex32::ZERO; scratch],
        }
    }

    /// The sound of `spectra`, 300 samples a frame at 24 kHz, full scale at 1.0. Blocks for some 5 ms a second of sound. The
    /// parts have the same number of frames ([`Spectra::is_whole`]).
    pub(super) fn sound(&mut self, spectra: &Spectra<'_>, noise: &mut dyn Noise) -> Vec<f32> {
        self.transform(&pulses(spectra.pitch));
        self.shape(spectra, noise);
        self.inverse(spectra.pitch.len())
    }

    /// Fills the spectra with the transform of a sound of whole frames, which is reflected at its ends.
    fn transform(&mut self, sound: &[f32]) {
        let n_frames = sound.len() / HOP;
        self.spectra.resize(n_frames * BINS, Complex32::ZERO);
        // A cosine of amplitude 1 has a peak of half the window's sum.
        let scale = (FRAME / 4) as f32;
        for (number, row) in self.spectra.chunks_exact_mut(BINS).enumerate() {
            let first = (number * HOP) as isize - HALF as isize;
            for (i, (sample, weight)) in self.frame.iter_mut().zip(&self.window).enumerate() {
                *sample = sound[reflected(first + i as isize, sound.len())] * (weight / scale);
            }
            let done = self.forward.process_with_scratch(&mut self.frame, row, &mut self.scratch);
            done.expect("buffers of the transform's size");
        }
    }

    /// Turns the pulse train's spectra into the voice's.
    fn shape(&mut self, spectra: &Spectra<'_>, noise: &mut dyn Noise) {
        let n_frames = spectra.pitch.len();
        let mut rows: [ShapedRow; SHAPED_TOGETHER] = std::array::from_fn(|_| ShapedRow::new(n_frames));
        for first in (0..BINS).step_by(SHAPED_TOGETHER) {
            let end = (first + SHAPED_TOGETHER).min(BINS);
            for (row, bin) in rows.iter_mut().zip(first..end) {
                noise.fill(&mut row.added);
                shape_row(spectra, bin * n_frames, row);
            }
            for (frame, spectrum) in self.spectra.chunks_exact_mut(BINS).enumerate() {
                for (value, row) in spectrum[first..end].iter_mut().zip(&rows) {
                    *value = *value * row.filter[frame] + row.added[frame];
                }
            }
        }
    }

    /// The sound whose frames have these spectra, in the least squares: windowed frames overlap, and are divided by the sum of
    /// the squared windows.
    fn inverse(&mut self, n_frames: usize) -> Vec<f32> {
        let length = n_frames * HOP + FRAME - HOP;
        let mut sound = vec![0.0; length];
        let mut weights = vec![0.0; length];
        for (number, spectrum) in self.spectra.chunks_exact(BINS).enumerate() {
            self.row.copy_from_slice(spectrum);
            // A real sound has none.
            self.row[0].im = 0.0;
            self.row[BINS - 1].im = 0.0;
            let done = self.inverse.process_with_scratch(&mut self.row, &mut self.frame, &mut self.scratch);
            done.expect("buffers of the transform's size");
            for (i, weight) in self.window.iter().enumerate() {
                sound[number * HOP + i] += self.frame[i] / FRAME as f32 * weight;
                weights[number * HOP + i] += weight * weight;
            }
        }
        let is_in = HALF.min(length)..(HALF + n_frames * HOP).min(length);
        let divided = |(sample, weight): (&f32, &f32)| sample / weight.max(LEAST_WEIGHT);
        sound[is_in.clone()].iter().zip(&weights[is_in]).map(divided).collect()
    }
}

/// What the pulse train's numbers of one frequency are multiplied by, and what is added to them.
struct ShapedRow {
    filter: Vec<Complex32>,
    added: Vec<Complex32>,
}

impl ShapedRow {
    fn new(n_frames: usize) -> Self {
        Self { filter: vec![Complex32::ZERO; n_frames], added: vec![Complex32::ZERO; n_frames] }
    }
}

/// Fills a row whose numbers begin at `first` in the spectra. `row.added` contains noise.
#[multiversion(targets("x86_64+avx2+fma"))]
fn shape_row<'a>(spectra: &Spectra<'a>, first: usize, row: &mut ShapedRow) {
    let n = row.filter.len();
    let of_row = |part: &'a [f32]| &part[first..first + n];
    let harmonic = of_row(spectra.harmonic);
    let rotations = of_row(spectra.rotation);
    let noise = of_row(spectra.noise);
    let free = of_row(spectra.free);
    let phase = of_row(spectra.phase);
    let filter = &mut row.filter[..n];
    let added = &mut row.added[..n];
    for i in 0..n {
        let angle = tanh(rotations[i]) * std::f32::consts::PI;
        filter[i] = rotation(angle) * exp(harmonic[i].min(LOUDEST));
        added[i] = added[i] * exp(noise[i].min(LOUDEST)) + rotation(phase[i]) * exp(free[i].min(LOUDEST));
    }
}

/// The place in a sound of `length` samples, at least 1, that a place outside is reflected to; the end itself is not repeated.
fn reflected(place: isize, length: usize) -> usize {
    let last = length as isize - 1;
    if last == 0 {
        return 0;
    }
    let folded = place.rem_euclid(2 * last);
    folded.min(2 * last - folded) as usize
}

/// A pulse train of this pitch, [`HOP`] samples a frame: all harmonics below [`HIGHEST_HARMONIC`] at amplitude 1, none where the
/// pitch is at most [`LOWEST_PITCH`]. The pitch is interpolated between the middles of the frames.
///
/// The sum of `cos(h t)` for h of 1 to H is `sin((H + 1/2) t) / (2 sin(t / 2)) - 1/2`.
fn pulses(pitch: &[f32]) -> Vec<f32> {
    let mut sound = Vec::with_capacity(pitch.len() * HOP);
    let mut turns = 0.0_f64;
    for (frame, here) in pitch.iter().enumerate() {
        let before = pitch[frame.saturating_sub(1)];
        let behind = pitch[(frame + 1).min(pitch.len() - 1)];
        for i in 0..HOP {
            let share = (((i as f64 + 0.5) / HOP as f64 - 0.5).rem_euclid(1.0)) as f32;
            let hz = match i < HOP / 2 {
                true => before * (1.0 - share) + here * share,
                false => here * (1.0 - share) + behind * share,
            };
            let is_voiced = hz > LOWEST_PITCH;
            let hz = hz.max(LOWEST_PITCH);
            turns += f64::from(hz);
            let phase = ((turns / RATE).fract() * 2.0 * PI) as f32;
            let harmonics = (HIGHEST_HARMONIC / hz).floor() + 0.5;
            let divisor = 2.0 * rotation(phase * 0.5).im;
            let pulse = match divisor.abs() <= PULSE_PEAK {
                true => harmonics,
                false => rotation(harmonics * phase).im / divisor,
            };
            sound.push(if is_voiced { pulse - 0.5 } else { 0.0 });
        }
    }
    sound
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Silence;

    impl Noise for Silence {
        fn fill(&mut self, values: &mut [Complex32]) {
            values.fill(Complex32::ZERO);
        }
    }

    #[test]
    fn a_pulse_train_has_its_pitch_and_its_harmonics() {
        let made = pulses(&[120.0; 20]);
        assert_eq!(made.len(), 6_000);
        // 24,000 Hz / 120 Hz are 200 samples; 91 harmonics lie below 11 kHz, so a peak is 91.5 - 0.5.
        let peaks: Vec<_> = (0..made.len()).filter(|i| made[*i] > 80.0).collect();
        assert_eq!(peaks.len(), 30, "{peaks:?}");
        assert!(peaks.windows(2).all(|pair| pair[1] - pair[0] == 200), "{peaks:?}");
        assert!((made[peaks[0]] - 91.0).abs() < 1e-3, "{}", made[peaks[0]]);
        assert!(pulses(&[39.0; 4]).iter().all(|sample| *sample == 0.0), "no pitch");
        assert!(pulses(&[]).is_empty());
    }

    #[test]
    fn the_ends_are_reflected() {
        let places: Vec<_> = (-4..8).map(|place| reflected(place, 4)).collect();
        assert_eq!(places, [2, 3, 2, 1, 0, 1, 2, 3, 2, 1, 0, 1]);
        assert_eq!((reflected(-3, 1), reflected(5, 1)), (0, 0));
    }

    #[test]
    fn a_filter_of_1_gives_the_pulse_train_back() {
        let pitch = [200.0; 40];
        let n = BINS * pitch.len();
        let nothing = vec![-100.0; n];
        let one = vec![(FRAME as f32 / 4.0).ln(); n];
        let zero = vec![0.0; n];
        let spectra =
            Spectra { harmonic: &one, rotation: &zero, noise: &nothing, free: &nothing, phase: &zero, pitch: &pitch };
        assert!(spectra.is_whole());
        let made = Synthesizer::new().sound(&spectra, &mut Silence);
        let expected = pulses(&pitch);
        assert_eq!(made.len(), expected.len());
        let worst = made.iter().zip(&expected).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
        assert!(worst < 1e-3, "{worst}");
        assert!(Synthesizer::new().inverse(0).is_empty());
    }

    #[test]
    fn noise_is_normal_and_follows_its_seed() {
        let noise = |seed| {
            let mut values = vec![Complex32::ZERO; 20_000];
            RandomNoise::seeded(seed).fill(&mut values);
            values
        };
        let made = noise(1);
        assert_eq!(made, noise(1));
        assert_ne!(made, noise(2));
        let mean = |of: fn(&Complex32) -> f32| made.iter().map(of).sum::<f32>() / made.len() as f32;
        assert!(mean(|z| z.re).abs() < 0.03 && mean(|z| z.im).abs() < 0.03);
        assert!((mean(|z| z.re * z.re) - 1.0).abs() < 0.05 && (mean(|z| z.im * z.im) - 1.0).abs() < 0.05);
        assert!(mean(|z| z.re * z.im).abs() < 0.03);
    }
}
