//! Whose words are believed: those of the field's search where the utterance is of the field, the full search's else.
//!
//! The field's search hears its own sentences in everything. What gives foreign speech away is that its words are
//! unlikely in their places, and sound worse than the full search's. Both are in the decoders' scores.

use super::decoder::Word;
use super::words;
use crate::stt::Transcript;

/// The score at which an utterance is taken to be of the field, in units of the decoders' scores a frame of speech.
const THRESHOLD: f64 = -20.0;

/// The score's step that multiplies the odds by e.
const STEP: f64 = 5.0;

/// The words believed. The confidence is that of the field; the full search tells none.
pub(super) fn transcript(full: &[Word], field: &[Word]) -> Transcript {
    let score = score(full, field);
    if score < THRESHOLD {
        return Transcript { text: words::text(full), confidence: None, speaker: None };
    }
    let confidence = 1.0 / (1.0 + ((THRESHOLD - score) / STEP).exp());
    Transcript { text: words::text(field), confidence: Some(confidence as f32), speaker: None }
}

/// How much of the field an utterance sounds: the difference of the acoustic scores and twice the field's language
/// score, a frame of speech. Never above zero by much; 0 where nothing was said.
fn score(full: &[Word], field: &[Word]) -> f64 {
    let acoustic = |words: &[Word]| words.iter().map(|word| f64::from(word.acoustic)).sum::<f64>();
    let language = field.iter().map(|word| f64::from(word.language)).sum::<f64>();
    let n_frames: i32 = field.iter().filter(|word| !words::is_filler(&word.text)).map(|word| word.n_frames).sum();
    if n_frames == 0 { 0.0 } else { (acoustic(field) - acoustic(full) + 2.0 * language) / f64::from(n_frames) }
}
