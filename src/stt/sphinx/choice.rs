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
    if std::env::var("PSV").is_ok() {
        eprintln!("H\t{}\t{}\t{}\t{:?}\t{:?}", score(full, field), words::text(full), words::text(field), sums(full), sums(field));
    }
    let score = score(full, field);
    if score < THRESHOLD {
        return Transcript { text: words::text(full), confidence: None, speaker: None };
    }
    let confidence = 1.0 / (1.0 + ((THRESHOLD - score) / STEP).exp());
    Transcript { text: words::text(field), confidence: Some(confidence as f32), speaker: None }
}

fn sums(words: &[Word]) -> (i64, i64, i64, i64, usize) {
    let sil = words.iter().filter(|w| words::is_filler(&w.text)).map(|w| w.n_frames as i64).sum::<i64>();
    (words.iter().map(|w| w.acoustic as i64).sum(), words.iter().map(|w| w.language as i64).sum(), words.iter().map(|w| w.n_frames as i64).sum(), sil, words.iter().filter(|w| !words::is_filler(&w.text)).count())
}

/// How much of the field an utterance sounds: the difference of the acoustic scores and twice the field's language
/// score, a frame of speech. Never above zero by much; 0 where nothing was said.
fn score(full: &[Word], field: &[Word]) -> f64 {
    let acoustic = |words: &[Word]| words.iter().map(|word| f64::from(word.acoustic)).sum::<f64>();
    let language = field.iter().map(|word| f64::from(word.language)).sum::<f64>();
    let n_frames: i32 = field.iter().filter(|word| !words::is_filler(&word.text)).map(|word| word.n_frames).sum();
    if n_frames == 0 { 0.0 } else { (acoustic(field) - acoustic(full) + 2.0 * language) / f64::from(n_frames) }
}
