//! Changes the length of speech without its pitch: waveform-similarity overlap-add (WSOLA; Verhelst and Roelands, 1993), by the
//! crate `wsola` with frames of 30 ms.
//!
//! `engines` uses it for a speech rate that a voice's model cannot reach.

use antiphon_types::SampleRate;
use std::num::{NonZeroU16, NonZeroU32};
use wsola::TimeStretch;

/// Rates closer to 1 than this are no change: the search for similar waveforms costs more than it gives.
const IMPERCEPTIBLE: f32 = 0.01;

/// A stream of speech whose length changes. State of one stream; does not block.
pub struct Stretcher {
    /// `None`: nothing changes.
    stretch: Option<TimeStretch>,
    /// Samples until now, in and out.
    n_in: usize,
    n_out: usize,
    tempo: f32,
}

impl Stretcher {
    /// For mono speech at `rate`, `tempo` times as fast: 0.25 to 4.0; values outside are clamped, others that are no number are
    /// 1.0.
    pub fn new(rate: SampleRate, tempo: f32) -> Self {
        let tempo = if tempo.is_finite() { tempo.clamp(wsola::MIN_TEMPO, wsola::MAX_TEMPO) } else { 1.0 };
        let changes = (tempo - 1.0).abs() > IMPERCEPTIBLE;
        let rate = NonZeroU32::new(rate.hz()).filter(|_| changes);
        let stretch = rate.and_then(|rate| TimeStretch::new(rate, NonZeroU16::MIN).ok()).map(|mut stretch| {
            stretch.set_tempo(tempo);
            stretch
        });
        Self { stretch, n_in: 0, n_out: 0, tempo }
    }

    /// Takes the next samples and gives what is complete: 15 ms at a time, up to 40 ms late.
    pub fn push(&mut self, samples: &[i16]) -> Vec<i16> {
        let Some(stretch) = &mut self.stretch else { return samples.to_vec() };
        self.n_in += samples.len();
        let input: Vec<f32> = samples.iter().map(|sample| f32::from(*sample)).collect();
        stretch.push(&input);
        let output = pulled(stretch);
        self.n_out += output.len();
        output
    }

    /// Ends the speech and gives its rest, so that the whole has its length divided by the tempo.
    pub fn finish(&mut self) -> Vec<i16> {
        let Some(stretch) = &mut self.stretch else { return Vec::new() };
        // The last frame needs what follows it.
        stretch.push(&vec![0.0; 4 * stretch.min_output_buff_size()]);
        stretch.set_draining();
        let mut output = pulled(stretch);
        let whole = (self.n_in as f64 / f64::from(self.tempo)).round() as usize;
        output.resize(whole.saturating_sub(self.n_out), 0);
        self.n_in = 0;
        self.n_out = 0;
        output
    }
}

/// All that is complete.
fn pulled(stretch: &mut TimeStretch) -> Vec<i16> {
    let mut output = Vec::new();
    let mut piece = vec![0.0; stretch.min_output_buff_size()];
    while let Ok(n) = stretch.pull(&mut piece) {
        output.extend(piece[..n].iter().map(|sample| sample.round().clamp(-32_768.0, 32_767.0) as i16));
    }
    output
}

#[cfg(test)]
mod tests {
    use super::*;

    const RATE: SampleRate = SampleRate::HZ_24000;

    /// A tone of 200 Hz.
    fn tone(n: usize) -> Vec<i16> {
        (0..n).map(|i| ((i as f64 * 200.0 * std::f64::consts::TAU / 24_000.0).sin() * 8_000.0) as i16).collect()
    }

    /// Crossings of zero upwards in a second of `samples`.
    fn pitch_hz(samples: &[i16]) -> f64 {
        let n = samples.windows(2).filter(|pair| pair[0] < 0 && pair[1] >= 0).count();
        n as f64 * 24_000.0 / samples.len() as f64
    }

    #[test]
    fn the_length_changes_and_the_pitch_stays() {
        for tempo in [0.25, 0.5, 0.8, 1.5, 2.0, 4.0] {
            let mut stretcher = Stretcher::new(RATE, tempo);
            let mut output = Vec::new();
            for piece in tone(48_000).chunks(960) {
                output.extend(stretcher.push(piece));
            }
            output.extend(stretcher.finish());
            let expected = (48_000.0 / tempo) as usize;
            assert!(output.len().abs_diff(expected) <= 1, "{tempo}: {} of {expected}", output.len());
            let middle = &output[output.len() / 10..output.len() * 9 / 10];
            assert!((pitch_hz(middle) - 200.0).abs() < 6.0, "{tempo}: {} Hz", pitch_hz(middle));
            let peak = middle.iter().map(|sample| sample.unsigned_abs()).max().unwrap();
            assert!((7_000..9_000).contains(&peak), "{tempo}: peak {peak}");
        }
    }

    #[test]
    fn the_usual_speed_and_what_is_no_number_change_nothing() {
        for tempo in [1.0, 1.005, f32::NAN, f32::INFINITY] {
            let mut stretcher = Stretcher::new(RATE, tempo);
            let samples = tone(1_000);
            assert_eq!(stretcher.push(&samples), samples);
            assert!(stretcher.finish().is_empty());
        }
    }

    #[test]
    fn short_and_empty_speech_keeps_its_share() {
        for n in [0, 1, 100, 719, 721] {
            let mut stretcher = Stretcher::new(RATE, 0.5);
            let mut output = stretcher.push(&tone(n));
            output.extend(stretcher.finish());
            assert_eq!(output.len(), 2 * n);
        }
    }
}
