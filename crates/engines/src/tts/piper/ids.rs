//! Phonemes to a Piper model's ids, as Piper's own phonemizer gives them: `^ _ p _ p _ … $`. Pure.

use super::super::neural::{ModelRun, pause_after};
use super::super::phonemes::{Border, Clause, Mark, pieces};
use super::voice::{IdMap, VoiceFile};
use icu_normalizer::DecomposingNormalizerBorrowed;
use std::collections::BTreeMap;

/// Phonemes a run at most, before padding: VITS' memory grows with the square of it. A spoken half minute.
pub(super) const MAX_PHONEMES: usize = 400;

/// Phonemes the voice has no id for, and how often each was left out.
pub(super) type MissingPhonemes = BTreeMap<char, u64>;

/// One utterance a sentence; sentences beyond [`MAX_PHONEMES`] in pieces.
pub(super) fn utterances(voice: &VoiceFile, clauses: &[Clause], missing: &mut MissingPhonemes) -> Vec<ModelRun> {
    let mut found = Vec::new();
    let mut sentence = String::new();
    for clause in clauses {
        sentence.push_str(&clause.phonemes);
        sentence.push_str(written(clause.mark));
        if clause.ends_sentence {
            push(voice, &sentence, clause.mark, missing, &mut found);
            sentence.clear();
        } else if clause.mark.is_none() {
            // espeak-ng cut a clause that was too long for it, between two words.
            sentence.push(' ');
        }
    }
    push(voice, &sentence, None, missing, &mut found);
    found
}

/// For voices that read letters: the text itself in small letters, one utterance.
pub(super) fn of_letters(voice: &VoiceFile, text: &str, missing: &mut MissingPhonemes) -> Vec<ModelRun> {
    if !text.chars().any(char::is_alphanumeric) {
        return Vec::new();
    }
    let letters = DecomposingNormalizerBorrowed::new_nfd().normalize(&text.trim().to_lowercase()).into_owned();
    let last = letters.chars().next_back();
    let mark = match last {
        Some('.') => Some(Mark::Period),
        Some('?') => Some(Mark::Question),
        Some('!') => Some(Mark::Exclamation),
        Some(',') => Some(Mark::Comma),
        _ => None,
    };
    let mut found = Vec::new();
    push(voice, &letters, mark, missing, &mut found);
    found
}

/// The ids of `n_phonemes` phonemes, of those the voice has.
pub(super) fn sample(ids: &IdMap, n_phonemes: usize) -> Vec<i64> {
    let mut known: Vec<char> = ids.keys().copied().filter(|phoneme| phoneme.is_alphabetic()).collect();
    known.sort_unstable();
    padded(ids, known.iter().copied().cycle().take(n_phonemes))
}

/// Punctuation as Piper's models read it. Dashes and ellipses are semicolons, as espeak-ng takes them.
fn written(mark: Option<Mark>) -> &'static str {
    match mark {
        None => "",
        Some(Mark::Period) => ".",
        Some(Mark::Question) => "?",
        Some(Mark::Exclamation) => "!",
        Some(Mark::Comma) => ", ",
        Some(Mark::Colon) => ": ",
        Some(Mark::Semicolon | Mark::Dash | Mark::Ellipsis) => "; ",
    }
}

fn push(
    voice: &VoiceFile,
    phonemes: &str,
    mark: Option<Mark>,
    missing: &mut MissingPhonemes,
    found: &mut Vec<ModelRun>,
) {
    let mut known = Vec::new();
    let mut places = Vec::new();
    for phoneme in phonemes.chars().flat_map(|c| replaced(voice, c)) {
        if voice.ids.contains_key(&phoneme) {
            // A place in `known` stands for the phoneme while it is cut.
            places.push(known.len() as i64);
            known.push(phoneme);
        } else {
            *missing.entry(phoneme).or_default() += 1;
        }
    }
    if !known.iter().any(|phoneme| phoneme.is_alphabetic()) {
        return;
    }
    let border = |place: i64| match known[place as usize] {
        ' ' => Border::Word,
        c if ".,:;?!".contains(c) => Border::Clause,
        _ => Border::None,
    };
    let cut = pieces(&places, MAX_PHONEMES, border);
    let n = cut.len();
    for (i, piece) in cut.into_iter().enumerate() {
        let phonemes = piece.iter().map(|place| known[*place as usize]);
        let pause = if i + 1 == n { pause_after(mark) } else { pause_after(None) };
        found.push(ModelRun { ids: padded(&voice.ids, phonemes), pause });
    }
}

fn replaced(voice: &VoiceFile, phoneme: char) -> Vec<char> {
    voice.replaced.get(&phoneme).cloned().unwrap_or_else(|| vec![phoneme])
}

/// `^`, a pad, each phoneme with a pad behind it, `$`.
fn padded(ids: &IdMap, phonemes: impl Iterator<Item = char>) -> Vec<i64> {
    let of = |c: char| ids.get(&c).map(Vec::as_slice).unwrap_or_default();
    let mut out = of('^').to_vec();
    out.extend(of('_'));
    for phoneme in phonemes {
        out.extend(of(phoneme));
        out.extend(of('_'));
    }
    out.extend(of('$'));
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn voice(more: &str) -> VoiceFile {
        VoiceFile::parse(&format!(
            r#"{{"audio": {{"sample_rate": 16000}}, "espeak": {{"voice": "en-us"}}, {more} "phoneme_id_map":
            {{"_": [0], "^": [1], "$": [2], " ": [3], ".": [4], ",": [5], ";": [6], "a": [10], "b": [11, 12]}}}}"#
        ))
        .expect("right")
    }

    fn clause(phonemes: &str, mark: Option<Mark>, ends_sentence: bool) -> Clause {
        Clause { phonemes: phonemes.into(), mark, ends_sentence }
    }

    fn check(clauses: &[Clause], expect: &[(&[i64], u64)]) {
        let made = utterances(&voice(""), clauses, &mut MissingPhonemes::new());
        let made: Vec<_> = made.iter().map(|made| (made.ids.as_slice(), made.pause.as_millis() as u64)).collect();
        assert_eq!(made, expect);
    }

    #[test]
    fn ids_are_padded_and_framed_sentence_by_sentence() {
        check(&[clause("ab", None, true)], &[(&[1, 0, 10, 0, 11, 12, 0, 2], 0)]);
        check(
            &[clause("a", Some(Mark::Comma), false), clause("a", Some(Mark::Period), true), clause("b", None, true)],
            &[(&[1, 0, 10, 0, 5, 0, 3, 0, 10, 0, 4, 0, 2], 250), (&[1, 0, 11, 12, 0, 2], 0)],
        );
        check(&[clause("a", Some(Mark::Dash), true)], &[(&[1, 0, 10, 0, 6, 0, 3, 0, 2], 120)]);
        check(&[], &[]);
    }

    #[test]
    fn what_the_voice_does_not_know_is_left_out_and_counted() {
        let mut missing = MissingPhonemes::new();
        let made = utterances(&voice(""), &[clause("xaxq", None, true)], &mut missing);
        assert_eq!(made[0].ids, [1, 0, 10, 0, 2]);
        assert_eq!(missing, MissingPhonemes::from([('x', 2), ('q', 1)]));
        assert_eq!(utterances(&voice(""), &[clause("xx", Some(Mark::Period), true)], &mut missing), []);
    }

    #[test]
    fn a_voice_may_replace_phonemes_and_read_letters() {
        let replacing = voice(r#""phoneme_map": {"c": ["a", "b"]},"#);
        let made = utterances(&replacing, &[clause("c", None, true)], &mut MissingPhonemes::new());
        assert_eq!(made[0].ids, [1, 0, 10, 0, 11, 12, 0, 2]);
        let made = of_letters(&voice(""), " AB. ", &mut MissingPhonemes::new());
        assert_eq!((made[0].ids.as_slice(), made[0].pause.as_millis()), (&[1, 0, 10, 0, 11, 12, 0, 4, 0, 2][..], 250));
        assert_eq!(of_letters(&voice(""), "...", &mut MissingPhonemes::new()), []);
    }

    #[test]
    fn a_sample_has_as_many_phonemes_as_asked_for() {
        let of = |n| sample(&voice("").ids, n);
        assert_eq!((of(1), of(3)), (vec![1, 0, 10, 0, 2], vec![1, 0, 10, 0, 11, 12, 0, 10, 0, 2]));
        let no_letters: IdMap = [('_', vec![0]), ('^', vec![1]), ('$', vec![2])].into();
        assert_eq!(sample(&no_letters, 5), [1, 0, 2]);
    }

    #[test]
    fn a_sentence_without_end_is_cut_between_words() {
        let made = utterances(
            &voice(""),
            &[clause(&"aaa ".repeat(250), Some(Mark::Period), true)],
            &mut MissingPhonemes::new(),
        );
        assert_eq!(made.len(), 3);
        assert!(made[..2].iter().all(|made| made.pause == Duration::ZERO && made.ids.len() == 2 * MAX_PHONEMES + 3));
        assert_eq!(made[2].pause, Duration::from_millis(250));
    }
}
