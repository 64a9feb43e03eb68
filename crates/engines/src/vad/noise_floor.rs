//! The noise of the room, band by band, and how far a window rises above it.
//!
//! [`super::Earshot`] weighs its probability by it, since the network takes loud steady noise for speech; [`super::Silero`]
//! weighs its own, so that a turn ends in time. The floor of a band is the least power of the last two seconds, in which
//! every speaker pauses (minimum statistics: Martin, 2001). A voice concentrates its power in a few bands and stands out
//! there long before the whole signal gets louder. Music and other voices change too much to be distinguished this way.
//! Decides nothing; a window costs about a microsecond.

use realfft::num_complex::Complex;
use realfft::{RealFftPlanner, RealToComplex};
use std::cell::RefCell;
use std::sync::{Arc, LazyLock};

/// Samples of a window at 16 kHz, 16 ms.
pub(super) const WINDOW: usize = 256;
/// The bands, in bins of 62.5 Hz: 125, 312, 500, 812, 1312, 2000, 3188, 5000 Hz. Below lies rumble, above no vowel.
const EDGES: [usize; BANDS + 1] = [2, 5, 8, 13, 21, 32, 51, 80];
const BANDS: usize = 7;
/// The share of a band's power that stays from one window to the next: without it the least of a noise lies far below its
/// mean.
const SMOOTHING: f32 = 0.5;
/// The blocks of 0.5 s that the least power is taken of.
const BLOCKS: usize = 4;
const BLOCK_WINDOWS: usize = 31;
/// The power of a band in which 16-bit samples are silent: about one step of them.
const SILENCE: f32 = 1e-7;
/// A window whose two foremost bands rise by less than the first is noise, by more than the second none, in dB. Steady
/// noise of any colour stays below 7 dB; between them the weight grows evenly.
const NOISE_DB: f32 = 7.0;
const SIGNAL_DB: f32 = 10.0;

static FFT: LazyLock<Arc<dyn RealToComplex<f32>>> = LazyLock::new(|| RealFftPlanner::new().plan_fft_forward(WINDOW));
/// Buffers that each window overwrites. One set a thread, which stays in the nearest cache.
struct Scratch {
    input: Vec<f32>,
    spectrum: Vec<Complex<f32>>,
    transform: Vec<Complex<f32>>,
}

thread_local! {
    static SCRATCH: RefCell<Scratch> = RefCell::new(Scratch {
        input: FFT.make_input_vec(),
        spectrum: FFT.make_output_vec(),
        transform: FFT.make_scratch_vec(),
    });
}

static HANN: LazyLock<[f32; WINDOW]> =
    LazyLock::new(|| std::array::from_fn(|i| 0.5 - 0.5 * (std::f32::consts::TAU * i as f32 / WINDOW as f32).cos()));

/// The noise floor of one microphone. About 150 bytes.
pub(super) struct NoiseFloor {
    power: [f32; BANDS],
    /// The least power of each band in each of the last blocks; the one at `block` is being filled.
    least: [[f32; BANDS]; BLOCKS],
    block: usize,
    /// Windows of the block that is being filled.
    n: usize,
}

impl NoiseFloor {
    /// Of a silent room: until two seconds were heard, nothing is taken for noise, so that a user who speaks at once is
    /// heard.
    pub(super) fn new() -> Self {
        Self { power: [0.0; BANDS], least: [[0.0; BANDS]; BLOCKS], block: 0, n: 0 }
    }

    /// How much of the window, of [`WINDOW`] samples, may be a voice: 0 for what is no louder than the room, 1 for what
    /// clearly is.
    pub(super) fn weight(&mut self, window: &[i16]) -> f32 {
        ((self.rise_db(window) - NOISE_DB) / (SIGNAL_DB - NOISE_DB)).clamp(0.0, 1.0)
    }

    /// The mean rise of the two bands that rise most, in dB.
    fn rise_db(&mut self, window: &[i16]) -> f32 {
        if self.n == BLOCK_WINDOWS {
            self.block = (self.block + 1) % BLOCKS;
            self.n = 0;
        }
        if self.n == 0 {
            self.least[self.block] = [f32::INFINITY; BANDS];
        }
        self.n += 1;
        let powers = band_powers(window);
        let mut first = 1.0f32;
        let mut second = 1.0f32;
        for (band, power) in powers.into_iter().enumerate() {
            self.power[band] = SMOOTHING * self.power[band] + (1.0 - SMOOTHING) * power;
            let newest = &mut self.least[self.block][band];
            *newest = newest.min(self.power[band]);
            let floor = self.least.iter().map(|least| least[band]).fold(f32::INFINITY, f32::min);
            let rise = (self.power[band] + SILENCE) / (floor + SILENCE);
            (first, second) = if rise > first { (rise, first) } else { (first, second.max(rise)) };
        }
        10.0 * (first * second).sqrt().log10()
    }
}

/// The mean power of each band's bins.
fn band_powers(window: &[i16]) -> [f32; BANDS] {
    SCRATCH.with_borrow_mut(|Scratch { input, spectrum, transform }| {
        for ((to, sample), hann) in input.iter_mut().zip(window).zip(HANN.iter()) {
            *to = f32::from(*sample) / 32_768.0 * hann;
        }
        let done = FFT.process_with_scratch(input, spectrum, transform);
        debug_assert!(done.is_ok(), "the buffers are the plan's own");
        std::array::from_fn(|band| {
            let bins = &spectrum[EDGES[band]..EDGES[band + 1]];
            bins.iter().map(Complex::norm_sqr).sum::<f32>() / bins.len() as f32
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Noise of this peak, a new sample at each call.
    fn noise(peak: i32) -> impl FnMut() -> i16 {
        let mut state = 1u32;
        move || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            ((state >> 16) as i32 * 2 * peak / 65_536 - peak) as i16
        }
    }

    fn vowel(i: usize, level: f32) -> f32 {
        let harmonic = |k: i32| (std::f32::consts::TAU * 140.0 * k as f32 * i as f32 / 16_000.0).sin();
        level * (1..=5).map(harmonic).sum::<f32>()
    }

    #[test]
    fn steady_noise_weighs_nothing_after_two_seconds_and_a_vowel_as_loud_all() {
        let mut floor = NoiseFloor::new();
        let mut next = noise(3_000);
        let mut weights = Vec::new();
        for _ in 0..625 {
            let window: Vec<i16> = (0..WINDOW).map(|_| next()).collect();
            weights.push(floor.weight(&window));
        }
        assert_eq!(weights[..60], [1.0; 60], "until then it may be a voice");
        let n_kept = weights[130..].iter().filter(|weight| **weight > 0.5).count();
        assert!(n_kept <= 2, "{n_kept} of {}: {:?}", weights.len() - 130, &weights[130..]);
        // Root mean squares of 1700 each.
        for i in 0..6 {
            let window: Vec<i16> = (0..WINDOW).map(|j| (vowel(i * WINDOW + j, 1_075.0) as i16) + next()).collect();
            weights.push(floor.weight(&window));
        }
        assert_eq!(weights.last(), Some(&1.0));
    }

    #[test]
    fn silence_is_no_voice_and_a_faint_voice_in_it_is_one() {
        let mut floor = NoiseFloor::new();
        for _ in 0..300 {
            assert_eq!(floor.weight(&[0; WINDOW]), 0.0);
        }
        let window: Vec<i16> = (0..WINDOW).map(|i| vowel(i, 10.0) as i16).collect();
        floor.weight(&window);
        assert_eq!(floor.weight(&window), 1.0);
    }
}
