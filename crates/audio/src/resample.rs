//! Streaming resampling of mono PCM between any two rates, without discontinuities at block edges.
//!
//! Ingress and egress hold one per direction; `wav` and the speech endpoints use [`convert`]. The filter is rubato's windowed
//! sinc. Rates whose ratio has few phases are filtered here by an exact polyphase filter, one row of taps a phase: rubato's
//! resampler supports rates that change, and the positions that it computes for that cost twice as much as the filter itself.
//! rubato resamples between all other rates. A block of any size is processed completely, except for the delay of half the
//! filter length. Nothing is allocated after the first blocks.

use antiphon_types::{SampleRate, Samples, to_sample};
use multiversion::multiversion;
use rubato::audioadapter_buffers::direct::SequentialSlice;
use rubato::{
    Async, FixedAsync, Resampler as _, Resizable as _, SincInterpolationParameters, SincInterpolationType,
    WindowFunction, calculate_cutoff,
};
use std::collections::BTreeMap;
use std::f64::consts::{PI, TAU};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Filter length in samples of the slower rate. rubato chooses the highest cut-off at which aliases stay below the
/// window's side lobes.
const TAPS: usize = 64;
const WINDOW: WindowFunction = WindowFunction::BlackmanHarris;
/// Ratios with more phases than this are interpolated between this number of phases. Common rates have fewer: 22050 to
/// 16000 has 320.
const MAX_PHASES: usize = 512;
/// The rates of the wire formats and of the voices, whose filters are shared: 0.7 MB if all pairs are in use.
const COMMON: [u32; 6] = [8_000, 16_000, 22_050, 24_000, 44_100, 48_000];
/// Largest number of input samples per rubato call; it sizes the scratch buffers.
const MAX_BLOCK: usize = 512;

/// Converts a stream from one rate to another. Sample time stays aligned: output sample `i` corresponds to input sample
/// `i * from / to`.
pub struct Resampler {
    from: SampleRate,
    to: SampleRate,
    filter: Option<Filter>,
    n_in: u64,
    n_out: u64,
}

/// What converts between two rates that differ.
enum Filter {
    Polyphase(Polyphase),
    Interpolating(Box<InterpolatingFilter>),
}

/// A filter for a ratio of few phases. Time is counted in ticks: an input sample lasts `n_phases`, an output sample `step`.
struct Polyphase {
    rows: Arc<Rows>,
    shape: FilterShape,
    /// The phase of the next output sample, whose first tap is at the first sample of `input`.
    phase: usize,
    /// Input samples that further output needs.
    input: Vec<i16>,
}

#[derive(Clone, Copy)]
struct FilterShape {
    n_taps: usize,
    n_phases: usize,
    step: usize,
}

/// The taps of a filter: one row for each phase, which is the position of an output sample after an input sample, in ticks. They
/// are integers of 16 bits, whose products with samples a processor adds up faster than those of floats; their rounding adds noise
/// at least 75 dB below the signal.
struct Rows {
    taps: Vec<i16>,
    /// What a tap of 1 stands for: as little as sums of 32 bits allow for any input.
    unit: f32,
}

/// rubato's resampler, for any ratio.
struct InterpolatingFilter {
    inner: Async<f32>,
    /// Output samples before the first input sample.
    n_early: usize,
    /// Of these, samples still to be dropped.
    to_trim: usize,
    input: Vec<f32>,
    output: Vec<f32>,
}

impl Resampler {
    /// A resampler without history; between equal rates it copies.
    pub fn new(from: SampleRate, to: SampleRate) -> Self {
        let filter = (from != to).then(|| match n_phases(from, to) {
            ..=MAX_PHASES => Filter::Polyphase(Polyphase::new(from, to)),
            _ => Filter::Interpolating(Box::new(InterpolatingFilter::new(from, to))),
        });
        Self { from, to, filter, n_in: 0, n_out: 0 }
    }

    /// Time by which output is held back, half the filter length: at most 4.1 ms for rates of at least 8 kHz. The
    /// samples are not shifted.
    pub fn delay(&self) -> Duration {
        let taps = if self.filter.is_some() { filter_len(self.from, self.to) as u64 / 2 } else { 0 };
        Samples(taps).duration(self.from)
    }

    /// Accepts any number of samples and appends the completed output to `out`.
    pub fn process(&mut self, samples: &[i16], out: &mut Vec<i16>) {
        let before = out.len();
        match &mut self.filter {
            Some(filter) => samples.chunks(MAX_BLOCK).for_each(|block| filter.process(block, out)),
            None => out.extend_from_slice(samples),
        }
        self.n_in += samples.len() as u64;
        self.n_out += (out.len() - before) as u64;
    }

    /// Ends the stream: appends the remaining output, so that the total output is exactly as long as the input. The
    /// next call starts a new stream.
    pub fn flush(&mut self, out: &mut Vec<i16>) {
        if let Some(filter) = &mut self.filter {
            let whole = (u128::from(self.n_in) * u128::from(self.to.hz())).div_ceil(u128::from(self.from.hz())) as u64;
            let end = out.len() + whole.saturating_sub(self.n_out) as usize;
            while out.len() < end {
                filter.process(&[0; 64], out);
            }
            out.truncate(end);
            filter.reset();
        }
        self.n_in = 0;
        self.n_out = 0;
    }
}

impl Filter {
    /// Filters at most [`MAX_BLOCK`] samples.
    fn process(&mut self, block: &[i16], out: &mut Vec<i16>) {
        match self {
            Self::Polyphase(filter) => filter.process(block, out),
            Self::Interpolating(filter) => filter.process(block, out),
        }
    }

    /// Forgets the stream: the next input sample is the first one.
    fn reset(&mut self) {
        match self {
            Self::Polyphase(filter) => filter.reset(),
            Self::Interpolating(filter) => filter.reset(),
        }
    }
}

impl Polyphase {
    fn new(from: SampleRate, to: SampleRate) -> Self {
        let n_taps = filter_len(from, to);
        let n_phases = n_phases(from, to);
        let step = (from.hz() / gcd(from.hz(), to.hz())) as usize;
        let rows = Rows::shared(from, to);
        let shape = FilterShape { n_taps, n_phases, step };
        let mut filter = Self { rows, shape, phase: 0, input: Vec::new() };
        filter.reset();
        filter
    }

    /// The first output sample coincides with the first input sample, before which there is silence.
    fn reset(&mut self) {
        self.phase = 0;
        self.input.clear();
        self.input.resize(self.shape.n_taps / 2 - 1, 0);
    }

    fn process(&mut self, block: &[i16], out: &mut Vec<i16>) {
        self.input.extend_from_slice(block);
        let n_used = filter(&self.rows, self.shape, &mut self.phase, &self.input, out);
        self.input.drain(..n_used.min(self.input.len()));
    }
}

/// Appends all output for which `input` suffices; returns how much of `input` is not needed any more.
#[multiversion(targets("x86_64+avx2+fma"))]
fn filter(rows: &Rows, shape: FilterShape, phase: &mut usize, input: &[i16], out: &mut Vec<i16>) -> usize {
    // A loop of known length takes half the time: those between 8, 16, 24 and 48 kHz.
    match shape.n_taps {
        64 => filter_of::<64>(rows, shape, phase, input, out),
        96 => filter_of::<96>(rows, shape, phase, input, out),
        128 => filter_of::<128>(rows, shape, phase, input, out),
        192 => filter_of::<192>(rows, shape, phase, input, out),
        _ => filter_of::<0>(rows, shape, phase, input, out),
    }
}

/// The same with rows of `N` taps; 0: of any number.
#[inline(always)]
fn filter_of<const N: usize>(
    rows: &Rows,
    shape: FilterShape,
    phase: &mut usize,
    input: &[i16],
    out: &mut Vec<i16>,
) -> usize {
    let FilterShape { n_taps, n_phases, step } = shape;
    let n_taps = if N > 0 { N } else { n_taps };
    // A division for each sample would cost as much as its products.
    let n_whole = step / n_phases;
    let n_ticks = step % n_phases;
    let mut at = 0;
    let mut ticks = *phase;
    let before = out.len();
    // Room is made once, for more than there will be: nothing grows in the loop.
    out.resize(before + (input.len() * n_phases).div_ceil(step), 0);
    let mut n_made = 0;
    for made in &mut out[before..] {
        let Some(window) = input.get(at..at + n_taps) else { break };
        let sum = dot(window, &rows.taps[ticks * n_taps..][..n_taps]);
        // The conversion saturates, so an overshoot at full scale clips and does not wrap.
        *made = to_sample(sum as f32 * rows.unit);
        n_made += 1;
        at += n_whole;
        ticks += n_ticks;
        if ticks >= n_phases {
            at += 1;
            ticks -= n_phases;
        }
    }
    out.truncate(before + n_made);
    *phase = ticks;
    at
}

/// The scalar product, which the compiler turns into multiplications of pairs of samples.
#[inline(always)]
fn dot(a: &[i16], b: &[i16]) -> i32 {
    a.iter().zip(b).map(|(&a, &b)| i32::from(a) * i32::from(b)).sum()
}

impl Rows {
    /// Those between two rates. All streams between two of the [`COMMON`] rates share theirs, which then stay in the processor's
    /// cache; those between others, which a file may name, are computed each time.
    fn shared(from: SampleRate, to: SampleRate) -> Arc<Self> {
        static SHARED: Mutex<BTreeMap<(u32, u32), Arc<Rows>>> = Mutex::new(BTreeMap::new());
        let compute = || {
            let bandwidth = (f64::from(to.hz()) / f64::from(from.hz())).min(1.0);
            Arc::new(Self::new(filter_len(from, to), n_phases(from, to), bandwidth))
        };
        if !(COMMON.contains(&from.hz()) && COMMON.contains(&to.hz())) {
            return compute();
        }
        let mut shared = SHARED.lock().expect("no panic while locked");
        shared.entry((from.hz(), to.hz())).or_insert_with(compute).clone()
    }

    /// The taps of each phase, in the order of the input samples: a windowed sinc with its maximum at the output sample, `n_taps / 2`
    /// input samples behind the first one. `bandwidth` is that of the output in parts of the input's, at most 1. The same filter as
    /// rubato's (rubato 5: `make_sincs`).
    fn new(n_taps: usize, n_phases: usize, bandwidth: f64) -> Self {
        let n = n_taps * n_phases;
        let cutoff = calculate_cutoff::<f64>(n_taps, WINDOW) * bandwidth;
        let tap = |i: usize| {
            let x = (i as f64 - n as f64 / 2.0) * PI * cutoff / n_phases as f64;
            let turn = TAU * i as f64 / n as f64;
            // Blackman-Harris, periodic: F. J. Harris, 1978.
            let window =
                0.358_75 - 0.488_29 * turn.cos() + 0.141_28 * (2.0 * turn).cos() - 0.011_68 * (3.0 * turn).cos();
            window * if x == 0.0 { 1.0 } else { x.sin() / x }
        };
        let prototype: Vec<f64> = (0..n).map(tap).collect();
        let gain = n_phases as f64 / prototype.iter().sum::<f64>();
        let row = |phase: usize| (0..n_taps).rev().map(move |i| phase + i * n_phases);
        let rows: Vec<f64> = (0..n_phases).flat_map(row).map(|i| prototype[i] * gain).collect();
        // The sum of a row's magnitudes, each half a unit too large, with samples of full scale stays within 32 bits.
        let loudest = rows.chunks(n_taps).map(|row| row.iter().map(|tap| tap.abs()).sum::<f64>()).fold(0.0, f64::max);
        let scale = (f64::from(i32::MAX) / 32_768.0 - n_taps as f64 / 2.0) / loudest;
        Self { taps: rows.iter().map(|tap| (tap * scale).round() as i16).collect(), unit: scale.recip() as f32 }
    }
}

impl InterpolatingFilter {
    fn new(from: SampleRate, to: SampleRate) -> Self {
        let parameters = SincInterpolationParameters::new(filter_len(from, to), WINDOW)
            .oversampling_factor(MAX_PHASES)
            .interpolation(SincInterpolationType::Linear);
        let step = f64::from(from.hz()) / f64::from(to.hz());
        let inner = Async::new_sinc(step.recip(), 1.0, &parameters, MAX_BLOCK, 1, FixedAsync::Input)
            .expect("the ratio is positive and finite, the block is not empty");
        let output = vec![0.0; inner.output_frames_max()];
        // Where rubato's first output sample is, in input samples before the first one (rubato 5: `init_last_index`).
        let ahead = filter_len(from, to) as f64 / 2.0 - step - 1.0 / MAX_PHASES as f64;
        let n_early = (ahead / step).round() as usize;
        Self { inner, n_early, to_trim: n_early, input: Vec::with_capacity(MAX_BLOCK), output }
    }

    fn reset(&mut self) {
        self.inner.reset();
        self.to_trim = self.n_early;
    }

    fn process(&mut self, block: &[i16], out: &mut Vec<i16>) {
        self.input.clear();
        self.input.extend(block.iter().map(|&sample| f32::from(sample)));
        self.inner.set_chunk_size(block.len()).expect("a block is neither empty nor over the maximum");
        let n_max = self.output.len();
        let input = SequentialSlice::new(&self.input, 1, block.len()).expect("the slice holds one channel");
        let mut output = SequentialSlice::new_mut(&mut self.output, 1, n_max).expect("the slice holds one channel");
        let (_, n) = self.inner.process_into_buffer(&input, &mut output, None).expect("both buffers have their sizes");
        let trimmed = self.to_trim.min(n);
        self.to_trim -= trimmed;
        out.extend(self.output[trimmed..n].iter().map(|&sample| to_sample(sample)));
    }
}

/// Converts all of `samples` to another rate.
pub fn convert(samples: &[i16], from: SampleRate, to: SampleRate) -> Vec<i16> {
    let mut resampler = Resampler::new(from, to);
    let mut out = Vec::with_capacity(samples.len() * to.hz() as usize / from.hz() as usize + 64);
    resampler.process(samples, &mut out);
    resampler.flush(&mut out);
    out
}

/// Filter length at the input rate: [`TAPS`] of the slower rate, rounded to a multiple of 8 as rubato requires.
fn filter_len(from: SampleRate, to: SampleRate) -> usize {
    let from_hz = from.hz() as usize;
    (TAPS * from_hz).div_ceil(from_hz.min(to.hz() as usize)).next_multiple_of(8)
}

/// Positions that an output sample may have between two input samples.
fn n_phases(from: SampleRate, to: SampleRate) -> usize {
    (to.hz() / gcd(from.hz(), to.hz())) as usize
}

const fn gcd(a: u32, b: u32) -> u32 {
    if b == 0 { a } else { gcd(b, a % b) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const RATES: [u32; 6] = COMMON;

    fn tone(hz: f64, rate: u32, n: usize) -> Vec<i16> {
        (0..n).map(|i| ((TAU * hz * i as f64 / f64::from(rate)).sin() * 12_000.0).round() as i16).collect()
    }

    fn in_blocks(samples: &[i16], from: u32, to: u32, blocks: impl IntoIterator<Item = usize>) -> Vec<i16> {
        let mut resampler = Resampler::new(SampleRate::new(from), SampleRate::new(to));
        let mut out = Vec::new();
        let mut rest = samples;
        for n in blocks {
            let (block, later) = rest.split_at(n.min(rest.len()));
            resampler.process(block, &mut out);
            rest = later;
        }
        resampler.process(rest, &mut out);
        resampler.flush(&mut out);
        out
    }

    /// Signal-to-error ratio in dB against the same tone sampled at the new rate, edges excluded.
    fn snr_db(from: u32, to: u32, hz: f64) -> f64 {
        let n = from as usize / 2;
        let out = in_blocks(&tone(hz, from, n), from, to, std::iter::repeat_n(from as usize / 50, 100));
        let ideal = tone(hz, to, out.len());
        let inner = out.len() / 10..out.len() * 9 / 10;
        let mut signal = 0.0;
        let mut error = 0.0;
        for (a, b) in out[inner.clone()].iter().zip(&ideal[inner]) {
            signal += f64::from(*b).powi(2);
            error += (f64::from(*a) - f64::from(*b)).powi(2);
        }
        10.0 * (signal / error.max(1.0)).log10()
    }

    #[test]
    fn a_tone_comes_out_clean_and_in_place_at_every_pair_of_rates() {
        for from in RATES {
            for to in RATES.into_iter().filter(|&to| to != from) {
                // The SNR also checks the alignment: a shift of half a sample would reduce it to 20 dB.
                let snr = snr_db(from, to, 440.0);
                assert!(snr > 65.0, "{from} to {to}: {snr:.1} dB");
            }
        }
    }

    #[test]
    fn impulses_stay_where_they_are() {
        for (from, to) in
            [(24_000, 16_000), (48_000, 16_000), (8_000, 16_000), (16_000, 24_000), (16_000, 8_000), (22_050, 16_000)]
        {
            let mut click = vec![0; from as usize / 5];
            let at = click.len() / 2;
            click[at] = 20_000;
            let out = convert(&click, SampleRate::new(from), SampleRate::new(to));
            let peak = (0..out.len()).max_by_key(|&i| out[i]).unwrap();
            let ideal = at as f64 * f64::from(to) / f64::from(from);
            assert!((peak as f64 - ideal).abs() <= 1.0, "{from} to {to}: at {peak}, should be at {ideal}");
        }
    }

    #[test]
    fn what_lies_above_the_new_band_is_gone() {
        for (from, to, hz) in [
            (24_000, 16_000, 9_000.0),
            (48_000, 16_000, 10_000.0),
            (48_000, 24_000, 14_000.0),
            (16_000, 8_000, 5_000.0),
        ] {
            let out = convert(&tone(hz, from, from as usize / 4), SampleRate::new(from), SampleRate::new(to));
            let inner = &out[out.len() / 4..out.len() * 3 / 4];
            let peak = inner.iter().map(|x| x.unsigned_abs()).max().unwrap();
            // 60 dB below the tone's 12000.
            assert!(peak <= 12, "{from} to {to}: {hz} Hz left {peak}");
        }
    }

    #[test]
    fn nothing_clicks_at_block_edges() {
        // The steepest step of a 440 Hz tone of 12000 at 16 kHz is 2073; a discontinuity would double it.
        for to in [16_000, 48_000] {
            let out =
                in_blocks(&tone(440.0, 24_000, 24_000), 24_000, to, (0..).map(|i| [480, 1, 17, 240][i % 4]).take(200));
            // The start and the end of the tone ring, because they are abrupt.
            let steepest = out[100..out.len() - 100]
                .windows(2)
                .map(|pair| (i32::from(pair[1]) - i32::from(pair[0])).abs())
                .max()
                .unwrap();
            let limit = (TAU * 440.0 / f64::from(to) * 12_000.0) as i32;
            assert!(steepest <= limit * 11 / 10, "{steepest} of {limit}");
        }
    }

    #[test]
    fn the_delay_is_what_is_held_back() {
        for from in RATES {
            for to in RATES {
                let mut resampler = Resampler::new(SampleRate::new(from), SampleRate::new(to));
                let mut out = Vec::new();
                resampler.process(&vec![0; from as usize], &mut out);
                let held_ms = 1_000.0 - out.len() as f64 * 1_000.0 / f64::from(to);
                let delay_ms = resampler.delay().as_secs_f64() * 1_000.0;
                assert!(
                    held_ms < 4.3 && (held_ms - delay_ms).abs() < 0.25,
                    "{from} to {to}: {held_ms} ms, said {delay_ms}"
                );
            }
        }
    }

    #[test]
    fn equal_rates_copy_and_flush_restarts() {
        let rate = SampleRate::HZ_16000;
        assert_eq!(convert(&[1, 2, 3], rate, rate), [1, 2, 3]);
        let mut resampler = Resampler::new(rate, SampleRate::HZ_24000);
        let mut first = Vec::new();
        let mut second = Vec::new();
        for out in [&mut first, &mut second] {
            resampler.process(&tone(300.0, 16_000, 1_000), out);
            resampler.flush(out);
        }
        assert_eq!(first, second);
        assert_eq!(first.len(), 1_500);
    }

    #[test]
    fn no_input_overflows_a_sum() {
        for from in COMMON.map(SampleRate::new) {
            for to in
                COMMON.map(SampleRate::new).into_iter().filter(|&to| to != from && n_phases(from, to) <= MAX_PHASES)
            {
                let n_taps = filter_len(from, to);
                for row in Rows::shared(from, to).taps.chunks(n_taps) {
                    // The loudest window there is: full scale, with the sign of each tap.
                    let window: Vec<i16> = row.iter().map(|&tap| if tap < 0 { i16::MIN } else { i16::MAX }).collect();
                    let exact: i64 = row.iter().zip(&window).map(|(&a, &b)| i64::from(a) * i64::from(b)).sum();
                    assert_eq!(i64::from(dot(&window, row)), exact, "{from:?} to {to:?}");
                    assert!(exact > i64::from(i32::MAX) * 9 / 10 || n_phases(from, to) > 1, "{exact} wastes precision");
                }
            }
        }
    }

    #[test]
    fn full_scale_clips_and_does_not_wrap() {
        let square: Vec<i16> = (0..2_400).map(|i| if i / 60 % 2 == 0 { i16::MAX } else { i16::MIN }).collect();
        let out = convert(&square, SampleRate::HZ_24000, SampleRate::HZ_16000);
        assert!(out[5..38].iter().all(|&x| x > 20_000) && out[45..78].iter().all(|&x| x < -20_000));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]
        #[test]
        fn block_sizes_do_not_change_a_sample(
            blocks in prop::collection::vec(1..1_300usize, 1..16), from in 0..RATES.len(), to in 0..RATES.len(), hz in 50.0..3_000.0f64,
        ) {
            let from = RATES[from];
            let to = RATES[to];
            let samples = tone(hz, from, blocks.iter().sum::<usize>() + 100);
            let whole = in_blocks(&samples, from, to, [samples.len()]);
            let ideal = samples.len() as f64 * f64::from(to) / f64::from(from);
            prop_assert!((whole.len() as f64 - ideal).abs() < 1.0);
            prop_assert_eq!(in_blocks(&samples, from, to, blocks), whole);
        }

        #[test]
        fn odd_rates_and_one_sample_blocks_work(from in 4_000..50_000u32, to in 4_000..50_000u32, n in 0..400usize) {
            let samples = tone(200.0, from, n);
            let out = in_blocks(&samples, from, to, std::iter::repeat_n(1, n));
            prop_assert_eq!(out.len(), (n * to as usize).div_ceil(from as usize));
        }
    }
}
