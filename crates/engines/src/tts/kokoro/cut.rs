//! Where a chunk is cut that is longer than its next run: where a reader would breathe. Pure; the family calls it.
//!
//! Behind a run the voice falls as at the end of a sentence. Within "forty five percent" or between "the" and its noun that
//! changes what is heard ("40, 5 %"), so that a cut stands behind punctuation, else before a word without stress that
//! follows one with stress: "the years nineteen fourteen | to nineteen eighteen | were hard". Where a run has no such place, it
//! is up to three times as long as it may be: a pause there would be heard less than a number in two parts.

use super::pace::MIN_TOKENS;
use crate::tts::alphabet;
use crate::tts::phonemes::Border;

/// See the module.
pub(super) const LONGER: usize = 3;

/// Words of numbers, before whose "and" nothing is cut: "one hundred and one".
const BEFORE_AND: &[&str] = &["hˈʌndɹəd", "hˈʌndɹɪd", "θˈWzənd", "mˈɪljən", "bˈɪljən"];
const AND: &[&str] = &["ænd", "ənd", "ˌænd", "ˈænd", "ɐnd"];

/// What a token is to a cut behind it.
pub(super) fn border(token: i64) -> Border {
    match token {
        // ; : , . ! ? and the dash and the ellipsis
        1..=6 | 9 | 10 => Border::Clause,
        token if token == space() => Border::Word,
        _ => Border::None,
    }
}

pub(super) fn space() -> i64 {
    alphabet::token(' ').expect("the vocabulary has a space")
}

/// The length of the first run of `tokens`, which are more than `most`.
pub(super) fn first_run(tokens: &[i64], most: usize) -> usize {
    let behind_punctuation = |range: std::ops::Range<usize>| {
        let mut range = range.rev();
        range.find(|end| border(tokens[end - 1]) == Border::Clause)
    };
    if let Some(end) = behind_punctuation(most / 2 + 1..most + 1) {
        return end;
    }
    let spaces: Vec<usize> = (0..tokens.len()).filter(|at| tokens[*at] == space()).collect();
    let least = MIN_TOKENS / 2;
    let fits = |at: &&usize| **at >= least && **at < most;
    if let Some(at) = spaces.iter().rev().filter(fits).find(|at| begins_phrase(tokens, **at)) {
        return at + 1;
    }
    let longest = LONGER * most;
    let is_longer = |at: &&usize| (most..longest).contains(*at) && tokens.len() - **at > least;
    if let Some(at) = spaces.iter().filter(is_longer).find(|at| begins_phrase(tokens, **at)) {
        return at + 1;
    }
    if tokens.len() <= longest {
        return tokens.len();
    }
    let behind_word = spaces.iter().rev().filter(fits).find(|at| is_stressed(word_before(tokens, **at)));
    behind_word.or_else(|| spaces.iter().rev().find(fits)).map_or(most, |at| at + 1)
}

/// Whether the word behind the space at `at` has no stress, and the one before it has.
fn begins_phrase(tokens: &[i64], at: usize) -> bool {
    let before = word_before(tokens, at);
    let next = word_behind(tokens, at);
    let is = |word: &[i64], list: &[&str]| list.iter().any(|written| spelled(word, written));
    let is_in_number = is(next, AND) && is(before, BEFORE_AND);
    is_stressed(before) && !next.is_empty() && !is_stressed(next) && !is_in_number
}

fn word_before(tokens: &[i64], at: usize) -> &[i64] {
    let begin = tokens[..at].iter().rposition(|token| *token == space()).map_or(0, |space| space + 1);
    &tokens[begin..at]
}

fn word_behind(tokens: &[i64], at: usize) -> &[i64] {
    let rest = &tokens[at + 1..];
    &rest[..rest.iter().position(|token| border(*token) > Border::None).unwrap_or(rest.len())]
}

fn is_stressed(word: &[i64]) -> bool {
    word.iter().any(|token| Some(*token) == alphabet::token('ˈ'))
}

fn spelled(word: &[i64], written: &str) -> bool {
    word.iter().copied().eq(written.chars().filter_map(alphabet::token))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn tokens(written: &str) -> Vec<i64> {
        written.chars().filter_map(alphabet::token).collect()
    }

    /// The runs of at most `most`, or what is made of that.
    fn runs(written: &str, most: usize) -> Vec<String> {
        let mut rest: &str = written;
        let mut runs = Vec::new();
        while rest.chars().count() > most {
            let n = first_run(&tokens(rest), most);
            let end = rest.char_indices().nth(n).map_or(rest.len(), |(at, _)| at);
            runs.push(rest[..end].trim().to_owned());
            rest = &rest[end..];
        }
        if !rest.is_empty() {
            runs.push(rest.trim().to_owned());
        }
        runs
    }

    #[test]
    fn a_run_ends_where_a_reader_would_breathe() {
        let check = |written: &str, expect: &[&str]| assert_eq!(runs(written, 23), expect);
        check("wˈɔɾəɹ bˈYlz ˌæt tˈu hˈʌndɹəd twˈɛlv", &["wˈɔɾəɹ bˈYlz", "ˌæt tˈu hˈʌndɹəd twˈɛlv"]);
        check("əbˈWt fˈɔɹɾi fˈIv pəɹsˈɛnt əɡɹˈid", &["əbˈWt fˈɔɹɾi fˈIv pəɹsˈɛnt əɡɹˈid"]);
        let room = "ɹˈum wˈʌn hˈʌndɹəd ænd wˈʌn ɪz ʌpstˈɛɹz";
        check(room, &["ɹˈum wˈʌn hˈʌndɹəd ænd wˈʌn", "ɪz ʌpstˈɛɹz"]);
        check("ɪt wʌz lˈAt ænd ðə sˈʌn wʌz sˈɛɾɪŋ", &["ɪt wʌz lˈAt", "ænd ðə sˈʌn wʌz sˈɛɾɪŋ"]);
    }

    #[test]
    fn punctuation_in_the_second_half_comes_first() {
        assert_eq!(runs("jˈɛs ɪndˈid, ænd ðˈɛn ðə ɹˈɛst", 20)[0], "jˈɛs ɪndˈid,");
    }

    #[test]
    fn a_list_of_stressed_words_is_cut_between_two_of_them() {
        let list = "dˈɔɡz ".repeat(20);
        let found = runs(list.trim_end(), 23);
        assert!(found.len() > 3 && found.iter().all(|run| run.split(' ').all(|word| word == "dˈɔɡz")), "{found:?}");
        assert_eq!(first_run(&tokens(&"ˈa".repeat(60)), 23), 23, "one word");
    }

    proptest! {
        #[test]
        fn a_run_has_tokens_and_no_more_than_there_are(
            ids in prop::collection::vec(prop_oneof![4 => 43i64..60, 1 => Just(16i64), 1 => Just(156i64), 1 => Just(3i64)], 20..300),
            most in 14usize..100,
        ) {
            prop_assume!(ids.len() > most);
            let n = first_run(&ids, most);
            prop_assert!((1..=ids.len()).contains(&n) && n <= LONGER * most + 1, "{n} of {} by {most}", ids.len());
        }
    }
}
