//! Puts speech and pauses together, and writes down where which is.

use super::{Plan, PlannedTurn, Segment};
use crate::replay::dice::Dice;
use crate::replay::{LabelledTurn, Labels};
use antiphon_audio::Resampler;
use antiphon_engine_api::tts::{SpeechRequest, Tts, TtsError};
use antiphon_types::{Pcm, SampleRate};
use futures_util::StreamExt;

/// Samples of a millisecond.
const MS: usize = 16;
/// Silence before the first turn and after each: longer than any wait that is tried.
const BETWEEN: usize = 6_000 * MS;
/// Median and spread (of the logarithm) of a pause inside a turn, and its bounds; see the module's head.
const MEDIAN_MS: f64 = 450.0;
const SPREAD: f64 = 0.6;
const SHORTEST_MS: f64 = 150.0;
const LONGEST_MS: f64 = 3_000.0;
/// The room: a noise of about -72 dB below full scale.
const ROOM: f64 = 8.0;
/// A stretch of 10 ms below this share of the clip's loudest sample is no speech: -30 dB, as the detector has it.
const FAINT: f64 = 0.03;
/// A shorter gap lies between two sounds of a word: 150 ms.
const PAUSE: usize = 150 * MS;

/// A recorded clip.
#[derive(Clone, Debug)]
pub struct Clip {
    /// Its name.
    pub name: String,
    /// What is said.
    pub text: String,
    /// Mono, 16 kHz.
    pub pcm: Vec<i16>,
}

/// A session's audio at 16 kHz, and what is true of it. The same seed gives the same.
///
/// # Errors
/// When the voice fails.
pub async fn speak(plan: &Plan, voice: &dyn Tts, seed: u64) -> Result<(Pcm, Labels), TtsError> {
    let mut dice = Dice::new(seed);
    let mut pcm = vec![0; BETWEEN / 4];
    let mut labels = Labels::default();
    for turn in &plan.turns {
        let mut spans_ms = Vec::new();
        for (i, piece) in turn.pieces.iter().enumerate() {
            let speech = match piece {
                Segment::Clip(clip) => clip.pcm.clone(),
                Segment::Text(text) => say(voice, &plan.speaker, text, i + 1 == turn.pieces.len()).await?,
            };
            if i > 0 {
                pcm.resize(pcm.len() + pause(&mut dice), 0);
            }
            let from = pcm.len();
            let speech = trimmed(&speech);
            pcm.extend(speech);
            let ms = |at: usize| (from + at) as f64 / MS as f64;
            // A voice's own gaps lie where no speaker would pause: only a person's are pauses.
            let spans = if matches!(piece, Segment::Clip(_)) { spans(speech) } else { vec![(0, speech.len())] };
            spans_ms.extend(spans.into_iter().map(|(from, to)| [ms(from), ms(to)]));
        }
        pcm.resize(pcm.len() + BETWEEN, 0);
        labels.turns.push(labelled(plan, turn, spans_ms));
    }
    for sample in &mut pcm {
        *sample = sample.saturating_add((ROOM * dice.normal()) as i16);
    }
    Ok((Pcm { rate: SampleRate::HZ_16000, samples: pcm }, labels))
}

fn labelled(plan: &Plan, turn: &PlannedTurn, spans_ms: Vec<[f64; 2]>) -> LabelledTurn {
    let text = |piece: &Segment| match piece {
        Segment::Text(text) => text.clone(),
        Segment::Clip(clip) => clip.text.clone(),
    };
    let text = turn.pieces.iter().map(text).collect::<Vec<_>>().join(" | ");
    LabelledTurn {
        text,
        speaker: plan.speaker.clone(),
        source: turn.source.clone(),
        group: plan.group.into(),
        spans_ms,
    }
}

/// A piece by a voice. One that the turn goes on after is spoken as before a comma, where it has no mark of its own.
async fn say(voice: &dyn Tts, speaker: &str, text: &str, is_last: bool) -> Result<Vec<i16>, TtsError> {
    let marked = text.ends_with(|c: char| c.is_ascii_punctuation());
    let text = if is_last || marked { text.to_owned() } else { format!("{text},") };
    let mut pieces = voice.speak(SpeechRequest { text, voice: speaker.to_owned(), ..SpeechRequest::default() });
    let mut samples = Vec::new();
    let mut resampler = None;
    while let Some(piece) = pieces.next().await {
        let piece = piece?;
        let resampler = resampler.get_or_insert_with(|| Resampler::new(piece.rate, SampleRate::HZ_16000));
        resampler.process(&piece.samples, &mut samples);
    }
    if let Some(mut resampler) = resampler {
        resampler.flush(&mut samples);
    }
    Ok(samples)
}

/// The length of a pause in samples.
fn pause(dice: &mut Dice) -> usize {
    let ms = MEDIAN_MS * (SPREAD * dice.normal()).exp();
    ms.clamp(SHORTEST_MS, LONGEST_MS) as usize * MS
}

/// The stretches of speech between the pauses of a clip: [`PAUSE`] and longer, below the level of [`FAINT`].
fn spans(pcm: &[i16]) -> Vec<(usize, usize)> {
    let peak = |part: &[i16]| part.iter().map(|sample| sample.unsigned_abs()).max().unwrap_or(0);
    let bound = (FAINT * f64::from(peak(pcm))) as u16;
    let step = 10 * MS;
    let mut spans: Vec<(usize, usize)> = Vec::new();
    for (i, part) in pcm.chunks(step).enumerate().filter(|(_, part)| peak(part) > bound) {
        let from = i * step;
        let to = i * step + part.len();
        match spans.last_mut() {
            Some(last) if from - last.1 < PAUSE => last.1 = to,
            _ => spans.push((from, to)),
        }
    }
    spans
}

/// Without the silence around it.
fn trimmed(pcm: &[i16]) -> &[i16] {
    let peak = |part: &[i16]| part.iter().map(|sample| sample.unsigned_abs()).max().unwrap_or(0);
    let bound = (FAINT * f64::from(peak(pcm))) as u16;
    let step = 10 * MS;
    let loud = |part: &[i16]| peak(part) > bound;
    let first = pcm.chunks(step).position(loud).unwrap_or(0) * step;
    let last = pcm.chunks(step).rposition(loud).map_or(pcm.len(), |at| ((at + 1) * step).min(pcm.len()));
    &pcm[first..last]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_have_the_length_they_are_said_to_have() {
        let mut dice = Dice::new(3);
        let mut pauses: Vec<usize> = (0..4_001).map(|_| pause(&mut dice) / MS).collect();
        pauses.sort_unstable();
        let mean = pauses.iter().sum::<usize>() / pauses.len();
        assert!((430..470).contains(&pauses[2_000]) && (510..570).contains(&mean), "{} {mean}", pauses[2_000]);
        assert!(pauses[0] >= 150 && pauses[4_000] <= 3_000);
    }

    #[test]
    fn silence_around_speech_goes_and_silence_inside_stays() {
        let mut pcm = vec![5i16; 800];
        pcm.extend([9_000; 320]);
        pcm.extend([0; 3_200]);
        pcm.extend([9_000; 160]);
        pcm.extend([20; 1_000]);
        assert_eq!(trimmed(&pcm).len(), 320 + 3_200 + 160);
        assert_eq!(spans(trimmed(&pcm)), [(0, 320), (320 + 3_200, 320 + 3_200 + 160)]);
        assert_eq!(spans(&[vec![9_000; 160], vec![0; 1_600], vec![9_000; 160]].concat()), [(0, 1_920)], "no pause");
    }
}
