//! Noise reduction for a microphone: RNNoise (Valin, 2018) from the nnnoiseless crate, between two resamplers.
//!
//! Session ingress creates one if the session requests it, and applies it to the decoded audio before all other stages.
//! The network processes 10 ms frames at 48 kHz, so output is delayed by up to 25 ms. The delay does not shift the
//! samples: sample `i` of the output corresponds to sample `i` of the input.

use super::resample::Resampler;
use antiphon_types::{SampleRate, to_sample};
use nnnoiseless::{DenoiseState, RnnModel};
use std::sync::LazyLock;

const OUTSIDE: SampleRate = SampleRate::HZ_16000;
const INSIDE: SampleRate = SampleRate::HZ_48000;
const FRAME: usize = DenoiseState::FRAME_SIZE;

/// The weights built into nnnoiseless; loaded once, immutable.
static MODEL: LazyLock<RnnModel> = LazyLock::new(RnnModel::default);

/// Kind of noise reduction, chosen by microphone position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoiseReduction {
    /// A microphone near the mouth: noise is lowered by at most 12 dB, which preserves the voice.
    Near,
    /// A microphone in the room: everything the network classifies as noise is removed.
    Far,
}

impl NoiseReduction {
    /// The fraction of the original signal that is kept.
    fn dry(self) -> f32 {
        match self {
            Self::Near => 0.25,
            Self::Far => 0.0,
        }
    }
}

/// Noise reduction for one microphone, mono at 16 kHz.
pub struct Denoiser {
    reduction: NoiseReduction,
    up: Resampler,
    down: Resampler,
    state: Box<DenoiseState<'static>>,
    /// Samples at 48 kHz, less than a frame.
    pending: Vec<i16>,
    /// The previous input frame, unprocessed; the network's output corresponds to it.
    before: Option<[f32; FRAME]>,
    n_in: u64,
    n_out: u64,
    scratch: Vec<i16>,
}

impl Denoiser {
    /// A denoiser without history. Allocates about 100 KiB.
    pub fn new(reduction: NoiseReduction) -> Self {
        Self {
            reduction,
            up: Resampler::new(OUTSIDE, INSIDE),
            down: Resampler::new(INSIDE, OUTSIDE),
            state: DenoiseState::with_model(&MODEL),
            pending: Vec::with_capacity(2 * FRAME),
            before: None,
            n_in: 0,
            n_out: 0,
            scratch: Vec::with_capacity(FRAME),
        }
    }

    /// Changes the kind of noise reduction from the next frame on.
    pub fn set(&mut self, reduction: NoiseReduction) {
        self.reduction = reduction;
    }

    /// Accepts any number of samples and appends the completed output to `out`.
    pub fn process(&mut self, pcm: &[i16], out: &mut Vec<i16>) {
        let before = out.len();
        self.n_in += pcm.len() as u64;
        self.run(pcm, out);
        self.n_out += (out.len() - before) as u64;
    }

    /// Appends the remaining output, so that the total output is as long as the input. Processing may continue
    /// afterwards; the network keeps its noise estimate.
    pub fn flush(&mut self, out: &mut Vec<i16>) {
        let end = out.len() + (self.n_in - self.n_out) as usize;
        while out.len() < end {
            self.run(&[0; FRAME / 3], out);
        }
        out.truncate(end);
        self.up = Resampler::new(OUTSIDE, INSIDE);
        self.down = Resampler::new(INSIDE, OUTSIDE);
        self.pending.clear();
        self.before = None;
        self.n_in = 0;
        self.n_out = 0;
    }

    fn run(&mut self, pcm: &[i16], out: &mut Vec<i16>) {
        self.up.process(pcm, &mut self.pending);
        let n_whole = self.pending.len() / FRAME * FRAME;
        for start in (0..n_whole).step_by(FRAME) {
            let mut input = [0.0; FRAME];
            let mut output = [0.0; FRAME];
            let frame = &self.pending[start..start + FRAME];
            input.iter_mut().zip(frame).for_each(|(to, from)| *to = f32::from(*from));
            self.state.process_frame(&mut output, &input);
            // The first output frame corresponds to the time before the first input frame.
            if let Some(before) = self.before.replace(input) {
                let dry = self.reduction.dry();
                let mix = output.iter().zip(&before).map(|(wet, sample)| wet * (1.0 - dry) + sample * dry);
                self.scratch.clear();
                self.scratch.extend(mix.map(to_sample));
                self.down.process(&self.scratch, out);
            }
        }
        self.pending.drain(..n_whole);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A voice-like sound that starts and stops, 2 s.
    fn voice() -> Vec<f32> {
        let harmonic =
            |i: usize, k: usize| (std::f32::consts::TAU * 140.0 * k as f32 * i as f32 / 16_000.0).sin() / k as f32;
        let level = |i: usize| (std::f32::consts::TAU * 4.0 * i as f32 / 16_000.0).sin().max(0.0);
        (0..32_000).map(|i| 3_000.0 * level(i) * (1..=16).map(|k| harmonic(i, k)).sum::<f32>()).collect()
    }

    fn noise(n: usize, level: f32) -> Vec<f32> {
        let mut state = 1u32;
        let next = |_| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            ((state >> 8) as f32 / (1u32 << 23) as f32 - 1.0) * level
        };
        (0..n).map(next).collect()
    }

    fn pcm(samples: &[f32]) -> Vec<i16> {
        samples.iter().map(|&sample| sample as i16).collect()
    }

    fn reduced(reduction: NoiseReduction, input: &[i16], block: usize) -> Vec<i16> {
        let mut denoiser = Denoiser::new(reduction);
        let mut out = Vec::new();
        input.chunks(block).for_each(|block| denoiser.process(block, &mut out));
        denoiser.flush(&mut out);
        out
    }

    fn rms(pcm: &[i16]) -> f32 {
        (pcm.iter().map(|&sample| f32::from(sample).powi(2)).sum::<f32>() / pcm.len() as f32).sqrt()
    }

    #[test]
    fn noise_goes_and_far_takes_more_than_near() {
        let input = pcm(&noise(48_000, 1_000.0));
        let late = |out: Vec<i16>| rms(&out[32_000..]) / rms(&input[32_000..]);
        let near = late(reduced(NoiseReduction::Near, &input, 320));
        let far = late(reduced(NoiseReduction::Far, &input, 320));
        assert!((0.2..0.3).contains(&near), "about 12 dB: {near}");
        assert!(far < 0.05, "more than 26 dB: {far}");
    }

    #[test]
    fn the_time_stays_whatever_the_blocks() {
        let input = pcm(&voice());
        for block in [1_000, 333, 160] {
            let out = reduced(NoiseReduction::Near, &input, block);
            assert_eq!(out.len(), input.len());
            let product = |shift: usize| -> f64 {
                let pairs = input[4_000..28_000].iter().zip(&out[4_000 + shift - 40..]);
                pairs.map(|(a, b)| f64::from(*a) * f64::from(*b)).sum()
            };
            let best = (0..80).max_by(|a, b| product(*a).total_cmp(&product(*b))).unwrap();
            assert_eq!(best, 40, "no shift");
        }
    }

    #[test]
    fn a_flush_in_the_middle_loses_nothing() {
        let input = pcm(&voice());
        let mut denoiser = Denoiser::new(NoiseReduction::Far);
        let mut out = Vec::new();
        denoiser.process(&input[..10_007], &mut out);
        assert!(out.len() < 10_007 && out.len() > 10_007 - 500, "held back: {}", 10_007 - out.len());
        denoiser.flush(&mut out);
        assert_eq!(out.len(), 10_007);
        denoiser.process(&input[10_007..], &mut out);
        denoiser.flush(&mut out);
        assert_eq!(out.len(), input.len());
    }
}
