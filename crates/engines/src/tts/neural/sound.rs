//! A model's sound as pieces: clipped, its edges trimmed and faded, its level that of all voices, stretched, a pause behind it.

use super::super::level::Level;
use super::super::phonemes::Mark;
use super::super::trim::EdgeTrim;
use antiphon_audio::Stretcher;
use antiphon_types::{Pcm, SampleRate, Samples};
use std::time::Duration;

/// The length of a piece: a model gives a whole utterance at once, which leaves in steps that can be stopped.
pub(super) const PIECE_MS: u64 = 40;
/// Near-silence left at each end of an utterance.
const EDGE_MS: u64 = 20;
/// The fade at each end of an utterance: a model's sound may begin or end in the middle of a wave, which clicks beside another
/// utterance or a pause. Shorter than any consonant.
const FADE_MS: u64 = 2;
/// The pause after a sentence and after a clause, as with flite.
const SENTENCE_PAUSE: Duration = Duration::from_millis(250);
const CLAUSE_PAUSE: Duration = Duration::from_millis(120);

/// The pause behind punctuation: 250 ms after a sentence, 120 ms after a clause, none where text was cut between words.
pub(in crate::tts) fn pause_after(mark: Option<Mark>) -> Duration {
    match mark {
        Some(mark) if mark.ends_sentence() || mark == Mark::Ellipsis => SENTENCE_PAUSE,
        Some(_) => CLAUSE_PAUSE,
        None => Duration::ZERO,
    }
}

/// What becomes of an utterance's sound.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    pub(super) rate: SampleRate,
    /// The voice's.
    pub(super) level: Level,
    /// How much faster it is to sound than the model spoke it.
    pub(super) tempo: f32,
    /// The pause behind it.
    pub(super) pause: Duration,
}

/// The samples of an utterance: full scale of the model is 1.0, what is louder is clipped; near-silence at the edges is cut
/// to 20 ms, the outer 2 ms are faded, and the pause follows. Nothing where all of it is near-silence.
pub(super) fn samples(sound: &[f32], Shape { rate, level, tempo, pause }: Shape) -> Vec<i16> {
    let mut trim = EdgeTrim::new(Samples::from_ms(EDGE_MS, rate).0 as usize);
    let whole: Vec<i16> = sound.iter().map(|sample| (sample.clamp(-1.0, 1.0) * 32_767.0).round() as i16).collect();
    let mut trimmed = trim.push(&whole);
    trimmed.extend(trim.finish());
    level.apply(&mut trimmed);
    let mut stretcher = Stretcher::new(rate, tempo);
    let mut samples = stretcher.push(&trimmed);
    samples.extend(stretcher.finish());
    fade(&mut samples, rate);
    if !samples.is_empty() {
        samples.resize(samples.len() + rate.samples_in(pause).0 as usize, 0);
    }
    samples
}

/// Raises the first 2 ms from zero, and lowers the last ones to it. Shorter sound is left as it is.
pub(in crate::tts) fn fade(samples: &mut [i16], rate: SampleRate) {
    let n = Samples::from_ms(FADE_MS, rate).0 as usize;
    if samples.len() < 2 * n {
        return;
    }
    for at in 0..n {
        let gain = at as f32 / n as f32;
        let last = samples.len() - 1 - at;
        samples[at] = (f32::from(samples[at]) * gain) as i16;
        samples[last] = (f32::from(samples[last]) * gain) as i16;
    }
}

/// The same in pieces of `ms`.
pub(super) fn pieces(samples: &[i16], rate: SampleRate, ms: u64) -> impl Iterator<Item = Pcm> {
    let n = Samples::from_ms(ms, rate).0.max(1) as usize;
    samples.chunks(n).map(move |piece| Pcm { rate, samples: piece.to_vec() })
}

#[cfg(test)]
mod tests {
    use super::super::super::level::TARGET_LUFS;
    use super::*;

    const RATE: SampleRate = SampleRate::new(1_000);

    fn shape(tempo: f32, pause_ms: u64) -> Shape {
        Shape { rate: RATE, level: Level::UNCHANGED, tempo, pause: Duration::from_millis(pause_ms) }
    }

    #[test]
    fn edges_are_trimmed_and_the_pause_follows() {
        let loud = vec![0.5; 100];
        let length = |sound: &[f32], pause_ms| samples(sound, shape(1.0, pause_ms)).len();
        assert_eq!((length(&loud, 0), length(&loud, 30)), (100, 130));
        let quiet_ends = [vec![0.0; 50], loud, vec![0.001; 50]].concat();
        assert_eq!(length(&quiet_ends, 0), 140);
        assert_eq!(length(&[0.0; 500], 100), 0);
    }

    #[test]
    fn the_level_changes_what_is_left_of_the_edges() {
        let quiet_ends = [vec![0.003; 50], vec![0.25; 100]].concat();
        let raised = samples(&quiet_ends, Shape { level: Level::of(TARGET_LUFS - 6.0206), ..shape(1.0, 0) });
        assert_eq!(raised.len(), 120, "what was near-silence before is cut");
        assert!(raised[20..118].iter().all(|sample| (16_380..=16_384).contains(sample)), "{:?}", &raised[20..30]);
    }

    #[test]
    fn sound_is_stretched_and_the_pause_is_not() {
        let loud: Vec<f32> = (0..400).map(|i| if i % 8 < 4 { 0.5 } else { -0.5 }).collect();
        assert_eq!(samples(&loud, shape(2.0, 30)).len(), 230);
        assert_eq!(samples(&loud, shape(0.5, 30)).len(), 830);
    }

    #[test]
    fn what_no_sample_holds_is_clipped() {
        let faded = [0.5; 2];
        let sound = [&faded[..], &[2.0, -2.0, f32::NAN, 1.0], &faded].concat();
        assert_eq!(samples(&sound, shape(1.0, 0))[2..6], [32_767, -32_767, 0, 32_767]);
    }

    #[test]
    fn sound_that_begins_and_ends_in_the_middle_of_a_wave_is_faded() {
        let rate = SampleRate::HZ_24000;
        let faded = samples(&[0.9; 2_400], Shape { rate, ..shape(1.0, 0) });
        let steepest = faded.windows(2).map(|pair| pair[0].abs_diff(pair[1])).max();
        assert!(steepest <= Some(700), "a step of {steepest:?} is heard as a click");
        assert_eq!([faded[0], faded[2_399]], [0, 0]);
        assert_eq!(faded[48..2_352], [29_490; 2_304], "only 2 ms are faded");
    }

    #[test]
    fn pieces_are_of_one_length() {
        let lengths: Vec<_> = pieces(&[1; 100], RATE, 40).map(|piece| piece.samples.len()).collect();
        assert_eq!(lengths, [40, 40, 20]);
    }
}
