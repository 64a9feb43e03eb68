//! Finds the lag: normalised cross-correlation at 4 kHz by FFT, then refinement of the best candidates at 16 kHz.

use super::reference::Reference;
use super::{HISTORY, MAX_LAG, MAX_LEAD, dot};
use multiversion::multiversion;
use realfft::num_complex::Complex32;
use realfft::{ComplexToReal, RealFftPlanner, RealToComplex};
use std::cell::RefCell;
use std::fmt;
use std::sync::{Arc, LazyLock};

/// The coarse search runs at a quarter of the sampling rate.
const DECIMATION: usize = 4;
/// Low-pass filter before decimation: 33 taps, cut-off at 1.6 kHz.
const TAPS: usize = 33;
/// Microphone samples of the coarse search.
const N_MIC: usize = HISTORY / DECIMATION;
/// Lags of the coarse search.
const N_LAGS: usize = (MAX_LAG + MAX_LEAD) / DECIMATION;
/// Reference samples of the coarse search.
const N_REF: usize = N_LAGS + N_MIC;
/// FFT length. The reference is correlated in blocks whose transforms stay in the nearest cache.
const N_FFT: usize = 2_048;
/// Lags of a block: circular wrap-around does not reach them.
const N_BLOCK: usize = N_FFT - N_MIC;
/// Runs of lags whose energies are summed side by side, because each sum waits for the one before it.
const N_RUNS: usize = 8;
/// Number of coarse peaks that are refined; pitch produces several.
const N_PEAKS: usize = 6;
/// Range of the refinement around a coarse peak, in samples at 16 kHz.
const NEAR: i32 = 5;

const _: () = assert!(N_LAGS.is_multiple_of(N_RUNS));

type Plans = (Arc<dyn RealToComplex<f32>>, Arc<dyn ComplexToReal<f32>>);

/// FFT plans, shared by all sessions.
static PLANS: LazyLock<Plans> = LazyLock::new(|| {
    let mut planner = RealFftPlanner::new();
    (planner.plan_fft_forward(N_FFT), planner.plan_fft_inverse(N_FFT))
});

/// Hamming-windowed sinc with a cut-off of 0.1 of the sampling rate.
static LOW_PASS: LazyLock<[f32; TAPS]> = LazyLock::new(|| {
    let middle = (TAPS / 2) as f32;
    let mut taps: [f32; TAPS] = std::array::from_fn(|i| {
        let x = std::f32::consts::PI * 0.2 * (i as f32 - middle);
        let sinc = if x == 0.0 { 1.0 } else { x.sin() / x };
        sinc * (0.54 + 0.46 * (std::f32::consts::PI * (i as f32 - middle) / middle).cos())
    });
    let sum: f32 = taps.iter().sum();
    taps.iter_mut().for_each(|tap| *tap /= sum);
    taps
});

/// The best candidate of a search.
#[derive(Clone, Copy, Debug)]
pub(super) struct LagCandidate {
    /// The delay of the echo relative to its reference position, in samples at 16 kHz.
    pub(super) lag: i32,
    /// The fraction of the microphone's energy that the reference explains at this lag with a single gain.
    pub(super) explained: f32,
}

/// The search state of one microphone.
#[derive(Default)]
pub(super) struct LagSearch {
    /// The reference of the last search at 4 kHz; its first sample is at turn time `first`.
    coarse: Vec<f32>,
    first: i64,
}

/// Buffers overwritten by each search. One per thread: a copy per session would be a quarter of its memory.
#[derive(Default)]
struct Scratch {
    wide: Vec<f32>,
    mic: Vec<f32>,
    block: Vec<f32>,
    block_spectrum: Vec<Complex32>,
    mic_spectrum: Vec<Complex32>,
    transform: Vec<Complex32>,
    /// By coarse lag: the correlation, then the score.
    scores: Vec<f32>,
    squares: Vec<f32>,
    energies: Vec<f32>,
}

thread_local! {
    static SCRATCH: RefCell<Scratch> = RefCell::default();
}

impl LagSearch {
    /// Searches the reference for `mic` ([`HISTORY`] samples from turn time `mic_start` on); `None` if the reference is
    /// silent.
    pub(super) fn run(&mut self, reference: &mut Reference, mic: &[f32], mic_start: i64) -> Option<LagCandidate> {
        SCRATCH.with_borrow_mut(|scratch| {
            self.follow(reference, mic_start - MAX_LAG as i64, &mut scratch.wide);
            scratch.run(reference, &self.coarse, mic, mic_start)
        })
    }

    /// Advances the coarse reference to `first`. The samples of the last search are reused up to the first one that has
    /// changed since.
    fn follow(&mut self, reference: &mut Reference, first: i64, wide: &mut Vec<f32>) {
        let moved = first - self.first;
        let on_grid = moved >= 0 && moved % DECIMATION as i64 == 0;
        let n_gone = if on_grid { moved as usize / DECIMATION } else { self.coarse.len() }.min(self.coarse.len());
        self.coarse.drain(..n_gone);
        self.first = first;
        // The filter reaches half its length ahead, and pre-emphasis one sample back.
        let changed = reference.take_changed() - first - (TAPS / 2) as i64;
        self.coarse.truncate((changed / DECIMATION as i64).max(0) as usize);
        let n_kept = self.coarse.len();
        let at = first + (n_kept * DECIMATION) as i64;
        wide.resize((N_REF - n_kept + 1) * DECIMATION + TAPS, 0.0);
        reference.read(at - (TAPS / 2) as i64 - DECIMATION as i64, wide);
        decimate(wide, N_REF - n_kept, &mut self.coarse);
    }

    pub(super) fn memory(&self) -> usize {
        4 * self.coarse.capacity()
    }
}

impl Scratch {
    fn run(&mut self, reference: &Reference, coarse: &[f32], mic: &[f32], mic_start: i64) -> Option<LagCandidate> {
        // The microphone history is padded with half a filter length of silence, which affects only its edges.
        self.wide.clear();
        self.wide.resize(DECIMATION + HISTORY + TAPS, 0.0);
        self.wide[DECIMATION + TAPS / 2..][..HISTORY].copy_from_slice(mic);
        self.mic.clear();
        decimate(&self.wide, N_MIC, &mut self.mic);
        // The energies say whether there is anything to correlate with.
        energies(coarse, &mut self.squares, &mut self.energies);
        let loudest = loudest(&self.energies)?;
        self.correlate(coarse);
        peaks(&mut self.scores, &self.energies, loudest)
            .into_iter()
            .flatten()
            .map(|place| self.refine(reference, mic, mic_start, place))
            .max_by(|a, b| a.explained.total_cmp(&b.explained))
    }

    /// Computes the correlation of `self.mic` with the reference at each coarse lag in `self.scores`.
    fn correlate(&mut self, coarse: &[f32]) {
        let (forward, inverse) = &*PLANS;
        for spectrum in [&mut self.mic_spectrum, &mut self.block_spectrum] {
            spectrum.resize(N_FFT / 2 + 1, Complex32::default());
        }
        self.transform.resize(forward.get_scratch_len().max(inverse.get_scratch_len()), Complex32::default());
        self.mic.resize(N_FFT, 0.0);
        forward
            .process_with_scratch(&mut self.mic, &mut self.mic_spectrum, &mut self.transform)
            .expect("the buffers have the plan's lengths");
        self.block.resize(N_FFT, 0.0);
        self.scores.clear();
        for first in (0..N_LAGS).step_by(N_BLOCK) {
            let reach = &coarse[first..N_REF.min(first + N_FFT)];
            self.block[..reach.len()].copy_from_slice(reach);
            self.block[reach.len()..].fill(0.0);
            forward
                .process_with_scratch(&mut self.block, &mut self.block_spectrum, &mut self.transform)
                .expect("the buffers have the plan's lengths");
            for (product, mic) in self.block_spectrum.iter_mut().zip(&self.mic_spectrum) {
                *product *= mic.conj();
            }
            // The ends of a real signal's spectrum are real; rounding must not say otherwise.
            self.block_spectrum[0].im = 0.0;
            self.block_spectrum[N_FFT / 2].im = 0.0;
            inverse
                .process_with_scratch(&mut self.block_spectrum, &mut self.block, &mut self.transform)
                .expect("the buffers have the plan's lengths");
            self.scores.extend_from_slice(&self.block[..N_BLOCK.min(N_LAGS - first)]);
        }
    }

    /// The best lag near a coarse one, at 16 kHz.
    fn refine(&mut self, reference: &Reference, mic: &[f32], mic_start: i64, place: usize) -> LagCandidate {
        let lag = MAX_LAG as i32 - (place * DECIMATION) as i32;
        let span = HISTORY + 2 * NEAR as usize;
        self.wide.resize(span, 0.0);
        reference.read(mic_start - i64::from(lag + NEAR), &mut self.wide);
        let mut found = LagCandidate { lag, explained: 0.0 };
        for (step, explained) in (0..=2 * NEAR).zip(fits(mic, &self.wide)) {
            if explained > found.explained {
                found = LagCandidate { lag: lag + NEAR - step, explained };
            }
        }
        found
    }
}

impl fmt::Debug for LagSearch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LagSearch").finish_non_exhaustive()
    }
}

/// The fraction of the microphone's energy that the reference explains, for each start of [`HISTORY`] samples in `wide`.
#[multiversion(targets("x86_64+avx2+fma"))]
fn fits(mic: &[f32], wide: &[f32]) -> [f32; 2 * NEAR as usize + 1] {
    let mic_energy = dot(mic, mic).max(1e-9);
    let mut energy = dot(&wide[..HISTORY], &wide[..HISTORY]);
    std::array::from_fn(|start| {
        if start > 0 {
            energy += wide[start + HISTORY - 1].powi(2) - wide[start - 1].powi(2);
        }
        dot(mic, &wide[start..start + HISTORY]).powi(2) / (mic_energy * energy.max(1e-9))
    })
}

/// The energy of the [`N_MIC`] reference samples from each coarse lag on.
#[multiversion(targets("x86_64+avx2+fma"))]
fn energies(coarse: &[f32], squares: &mut Vec<f32>, out: &mut Vec<f32>) {
    const RUN: usize = N_LAGS / N_RUNS;
    squares.clear();
    squares.extend(coarse.iter().map(|x| x * x));
    out.resize(N_LAGS, 0.0);
    let mut sums: [f32; N_RUNS] = std::array::from_fn(|run| squares[run * RUN..][..N_MIC].iter().sum());
    let coming = &squares[N_MIC..N_REF];
    let going = &squares[..N_LAGS];
    for i in 0..RUN {
        for (run, sum) in sums.iter_mut().enumerate() {
            let at = run * RUN + i;
            out[at] = sum.max(0.0);
            *sum += coming[at] - going[at];
        }
    }
}

/// The largest energy; `None`: the reference is silent.
#[multiversion(targets("x86_64+avx2+fma"))]
fn loudest(energies: &[f32]) -> Option<f32> {
    let mut lanes = [0.0f32; 8];
    for energies in energies.as_chunks::<8>().0 {
        for i in 0..8 {
            lanes[i] = lanes[i].max(energies[i]);
        }
    }
    let loudest = lanes.into_iter().fold(0.0, f32::max);
    (loudest >= 1e-6 * N_MIC as f32).then_some(loudest)
}

/// The highest local maxima of the scores that follow from correlations and energies.
#[multiversion(targets("x86_64+avx2+fma"))]
fn peaks(scores: &mut [f32], energies: &[f32], loudest: f32) -> [Option<usize>; N_PEAKS] {
    // A lag where the reference is far quieter than its maximum correlates by chance.
    let floor = loudest * 1e-3;
    for (score, &energy) in scores.iter_mut().zip(energies) {
        *score = if energy > floor { *score * *score / energy } else { 0.0 };
    }
    let mut best = [(0.0, None); N_PEAKS];
    for first in (1..N_LAGS - 1).step_by(8) {
        let here = &scores[first..(first + 8).min(N_LAGS - 1)];
        if here.iter().copied().fold(0.0, f32::max) <= best[N_PEAKS - 1].0 {
            continue;
        }
        for at in first..first + here.len() {
            let score = scores[at];
            if score > best[N_PEAKS - 1].0 && score >= scores[at - 1] && score >= scores[at + 1] {
                best[N_PEAKS - 1] = (score, Some(at));
                best.sort_by(|a, b| b.0.total_cmp(&a.0));
            }
        }
    }
    best.map(|(_, place)| place)
}

/// Low-passes and decimates by four to `n` samples; `wide` starts half a filter length and one output sample early.
/// Pre-emphasis attenuates low frequencies, which are similar in all voices.
#[multiversion(targets("x86_64+avx2+fma"))]
fn decimate(wide: &[f32], n: usize, out: &mut Vec<f32>) {
    // Outputs side by side, each the sum of the taps in their order: vectorised, and the same wherever a search begins.
    const SIDE: usize = 64;
    const PHASE: usize = SIDE + TAPS / DECIMATION + 1;
    let mut phases = [[0.0f32; PHASE]; DECIMATION];
    let mut last = None;
    for first in (0..=n).step_by(SIDE) {
        let (blocks, _) = wide[first * DECIMATION..].as_chunks::<DECIMATION>();
        for (i, block) in blocks.iter().take(PHASE).enumerate() {
            for (phase, &x) in phases.iter_mut().zip(block) {
                phase[i] = x;
            }
        }
        let mut low = [0.0f32; SIDE];
        for (k, &tap) in LOW_PASS.iter().enumerate() {
            let phase = &phases[k % DECIMATION][k / DECIMATION..];
            for (low, x) in low.iter_mut().zip(phase) {
                *low += tap * x;
            }
        }
        for low in low.into_iter().take(n + 1 - first) {
            out.extend(last.map(|last| low - PRE_EMPHASIS * last));
            last = Some(low);
        }
    }
}

/// Pre-emphasis coefficient at 4 kHz; it flattens the spectral slope of voiced speech.
const PRE_EMPHASIS: f32 = 0.9;

#[cfg(test)]
mod tests {
    use super::*;

    /// Non-repeating noise.
    fn noise(seed: &mut u32, n: usize) -> Vec<i16> {
        let mut next = || {
            *seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (*seed >> 16) as i16
        };
        (0..n).map(|_| next()).collect()
    }

    #[test]
    fn what_is_kept_of_the_last_search_is_what_a_new_one_would_make() {
        let mut reference = Reference::new(0);
        let mut followed = LagSearch::default();
        let mut seed = 1;
        let mut position = 0;
        for round in 0..400u64 {
            let at = position + round * 37 % 3_000;
            match round % 11 {
                0 | 4 => reference.write(at, &noise(&mut seed, 5_000)),
                2 => reference.cut(at),
                7 => reference.delay(at, 123),
                // After a skip, the microphone position is not a multiple of the decimation.
                9 => position += 1 + round % 4,
                _ => {}
            }
            position += 256;
            reference.advance(position);
            if round % 3 == 0 {
                let mut fresh = LagSearch::default();
                let first = position as i64 - HISTORY as i64 - MAX_LAG as i64;
                followed.follow(&mut reference, first, &mut Vec::new());
                fresh.follow(&mut reference, first, &mut Vec::new());
                assert_eq!(followed.coarse, fresh.coarse, "round {round}");
            }
        }
    }
}
