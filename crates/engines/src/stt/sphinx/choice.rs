//! Which hypothesis wins: the vocabulary's where the utterance is one of its sentences, the full search's else; and of the
//! vocabulary's two searches the grammar's, unless the 3-gram's words sound better.
//!
//! The vocabulary's searches hear their own sentences in everything. What gives foreign speech away is that its words are
//! unlikely in their places, and sound worse than the full search's. Both are in the decoders' scores.

use super::decoder::Word;
use super::words;
use antiphon_engine_api::stt::Transcript;

/// The score at which an utterance is taken to be of the field. Measured on 168 sentences of the field by flite's voices
/// and espeak-ng (about nine in ten are above) and 45 read by a person (two are).
const THRESHOLD: f64 = -16.5;

/// The same for a path of the grammar search, which makes a sentence of anything: with -6 it took prose that people read,
/// with -2 the test of that passes. No sweep was made between.
const EXACT_THRESHOLD: f64 = -2.0;

/// The weight of the field's language score against the other scores; from 2 to 4 it separates about as well.
const LANGUAGE: f64 = 2.0;

/// Frames added to those of speech: a short utterance has the edges' costs as well.
const EDGES: i32 = 30;

/// The score's step that multiplies the odds by e.
const STEP: f64 = 5.0;

/// How much worse than the 3-gram's words, in units of the acoustic score a frame, the grammar's may sound. Read
/// off 340 sentences: from -5 to -1 about as many are lost as are won; people reading other things come in below.
const MARGIN: f64 = -3.0;

/// The share of the 3-gram's frames of speech that a whole path speaks in. The grammar search hands out half a sentence,
/// and silence for the rest, where none fits.
const WHOLE: f64 = 0.8;

/// The words believed. The confidence is that of the field; the full search tells none.
pub(super) fn transcript(full: &[Word], field: &[Word], exact: &[Word]) -> Transcript {
    let is_exact = is_whole(exact, field) && margin(exact, field) >= MARGIN && score(full, exact) >= EXACT_THRESHOLD;
    let field = if is_exact { exact } else { field };
    let score = score(full, field);
    if score < THRESHOLD {
        return Transcript { text: words::text(full), ..Transcript::default() };
    }
    let confidence = 1.0 / (1.0 + ((THRESHOLD - score) / STEP).exp());
    Transcript { text: words::text(field), confidence: Some(confidence as f32), ..Transcript::default() }
}

/// Whether a path speaks about as long as the other.
fn is_whole(exact: &[Word], field: &[Word]) -> bool {
    let n_frames = f64::from(n_frames_of_speech(exact));
    n_frames > 0.0 && n_frames >= WHOLE * f64::from(n_frames_of_speech(field))
}

/// By how much the grammar's words sound better than the 3-gram's, a frame.
fn margin(exact: &[Word], field: &[Word]) -> f64 {
    (sum(exact, |word| word.acoustic) - sum(field, |word| word.acoustic)) / f64::from(n_frames_of_speech(field) + EDGES)
}

fn sum(words: &[Word], part: fn(&Word) -> i32) -> f64 {
    words.iter().map(|word| f64::from(part(word))).sum()
}

fn n_frames_of_speech(words: &[Word]) -> i32 {
    words.iter().filter(|word| !words::is_filler(&word.text)).map(|word| word.n_frames).sum()
}

/// How much of the field an utterance sounds: by how much the field's path is better than the full search's, with the
/// field's language score counted LANGUAGE times, in units of the decoders' scores a frame of speech. 0 where nothing
/// was said.
fn score(full: &[Word], field: &[Word]) -> f64 {
    let acoustic = sum(field, |word| word.acoustic) - sum(full, |word| word.acoustic);
    let language = LANGUAGE * sum(field, |word| word.language) - sum(full, |word| word.language);
    let n_frames = n_frames_of_speech(field);
    if n_frames == 0 { 0.0 } else { (acoustic + language) / f64::from(n_frames + EDGES) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A word of 30 frames and a silence.
    fn path(text: &str, acoustic: i32, language: i32) -> [Word; 2] {
        let word = Word { text: text.into(), acoustic, language, n_frames: 30 };
        [word, Word { text: "<sil>".into(), n_frames: 90, ..Word::default() }]
    }

    #[test]
    fn the_field_is_believed_until_its_words_are_too_unlikely() {
        let heard = |language| transcript(&path("full", -900, -500), &path("field", -900, language), &[]);
        let (likely, unlikely) = (heard(-100), heard(-1200));
        assert_eq!((likely.text.as_str(), unlikely.text.as_str()), ("field", "full"));
        assert!(likely.confidence.is_some_and(|sure| sure > 0.9) && unlikely.confidence.is_none());
        let badly_sounding = transcript(&path("full", -900, -500), &path("field", -3900, -150), &[]);
        assert_eq!(badly_sounding.text, "full");
    }

    #[test]
    fn the_grammar_is_believed_while_it_is_whole_and_sounds_as_well() {
        let field = path("field", -900, -150);
        let heard = |exact: &[Word]| transcript(&path("full", -900, -500), &field, exact).text;
        assert_eq!(heard(&path("exact", -1_050, -100)), "exact");
        assert_eq!(heard(&path("exact", -1_200, -100)), "field");
        let mut short = path("exact", -900, -100);
        short[0].n_frames = 20;
        assert_eq!(heard(&short), "field");
        assert_eq!(heard(&path("<sil>", -900, -100)), "field");
    }

    #[test]
    fn nothing_said_is_empty() {
        assert_eq!(transcript(&[], &[], &[]).text, "");
    }
}
