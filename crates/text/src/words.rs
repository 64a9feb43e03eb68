//! Splits text into words, including scripts without blanks: Chinese, Japanese, Thai, Lao, Khmer, Burmese and Tibetan.
//!
//! `dialog` compares transcripts word by word for captions, and speech-to-text engines count words. Each letter of
//! those scripts counts as a word here, which suffices for comparing and counting; true word boundaries are not needed.
//! Pure functions.

use unicode_normalization::UnicodeNormalization;
use unicode_properties::{GeneralCategory, UnicodeGeneralCategory};

/// Letters of a script without blanks that correspond to about one word, in content and in speaking time.
const LETTERS_A_WORD: usize = 3;

/// Unicode blocks of scripts without blanks.
const UNSPACED: [std::ops::RangeInclusive<char>; 13] = [
    '\u{0e00}'..='\u{0e7f}', // Thai
    '\u{0e80}'..='\u{0eff}', // Lao
    '\u{0f00}'..='\u{0fff}', // Tibetan
    '\u{1000}'..='\u{109f}', // Burmese
    '\u{1780}'..='\u{17ff}', // Khmer
    '\u{3005}'..='\u{3007}', // signs among Chinese characters
    '\u{3040}'..='\u{30ff}', // Hiragana and Katakana
    '\u{31f0}'..='\u{31ff}',
    '\u{3400}'..='\u{4dbf}', // Chinese characters
    '\u{4e00}'..='\u{9fff}',
    '\u{f900}'..='\u{faff}',
    '\u{ff66}'..='\u{ff9d}', // narrow Katakana
    '\u{20000}'..='\u{3ffff}',
];

/// ISO 639 codes of languages written without blanks between words.
const UNSPACED_LANGUAGES: [&str; 8] = ["zh", "ja", "yue", "th", "lo", "my", "km", "bo"];

/// Whether the language is written with blanks between words.
pub fn is_spaced(language: &str) -> bool {
    !UNSPACED_LANGUAGES.contains(&language)
}

/// A word with its adjacent punctuation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Word<'a> {
    /// The word, without blanks.
    pub text: &'a str,
    /// Whether a blank precedes it.
    pub spaced: bool,
}

/// All words in order. Joining them with one blank before each `spaced` word restores the text, except for runs of
/// blanks.
pub fn words(text: &str) -> impl Iterator<Item = Word<'_>> {
    text.split_whitespace().enumerate().flat_map(|(i, part)| {
        let mut rest = part;
        std::iter::from_fn(move || {
            let (text, left) = rest.split_at_checked(first_end(rest)?)?;
            let spaced = i > 0 && rest.len() == part.len();
            rest = left;
            Some(Word { text, spaced })
        })
    })
}

/// The words in lower case without punctuation; words that are only punctuation are omitted.
pub fn spoken(text: &str) -> impl Iterator<Item = String> {
    words(text).map(|word| letters(word.text)).filter(|word| !word.is_empty())
}

/// Number of words, where letters of scripts without blanks count for less.
pub fn count(text: &str) -> usize {
    let mut n_words = 0;
    let mut n_letters = 0;
    for word in spoken(text) {
        let n = if word.chars().any(is_unspaced) { &mut n_letters } else { &mut n_words };
        *n += 1;
    }
    n_words + usize::div_ceil(n_letters, LETTERS_A_WORD)
}

/// A word in lower case without its punctuation.
pub fn letters(word: &str) -> String {
    let kept = |c: &char| c.is_alphanumeric() || is_mark(*c);
    word.chars().filter(kept).flat_map(char::to_lowercase).collect()
}

/// Small numbers that a recognizer writes as it likes, in words or in digits.
const NUMBERS: [&str; 13] =
    ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"];

/// Digits of a telephone number at least.
const TELEPHONE_DIGITS: usize = 7;

/// The words of an English text as they are written: in lower case, without punctuation. Simple variants are the same
/// ("three" and 3, "7 p.m." and "7pm", "6:05" and 605, "212 555 0123" and its digits, "café" and "cafe"). It is for
/// finding words in a text; [`crate::scoring`] is for counting word errors.
pub fn compared(text: &str) -> Vec<String> {
    let kept = |c: char| c.is_alphanumeric() || matches!(c, '\'' | '$' | '%');
    let text: String = text.nfd().filter(|c| !is_mark(*c)).collect();
    let text = text.replace('\u{2019}', "'").to_lowercase().replace("a.m", "am").replace("p.m", "pm");
    let text = joined_digits(&text);
    let written = text.split(|c| !kept(c)).filter(|word| !word.is_empty());
    let words: Vec<String> = written.flat_map(figures_apart).map(in_digits).collect();
    let runs = words.chunk_by(|word, next| is_figure(word) && is_figure(next));
    runs.flat_map(telephone_apart).collect()
}

/// "6:05", "20/20" and "1,000" without the mark between their digits.
fn joined_digits(text: &str) -> String {
    let mut joined = String::with_capacity(text.len());
    let mut letters = text.chars().peekable();
    while let Some(c) = letters.next() {
        let is_behind_digit = joined.ends_with(|last: char| last.is_ascii_digit());
        let is_before_digit = letters.peek().is_some_and(char::is_ascii_digit);
        if !(matches!(c, ':' | '/' | ',') && is_behind_digit && is_before_digit) {
            joined.push(c);
        }
    }
    joined
}

/// "7pm" as 7 and "pm", "a7x9" as "a", 7, "x" and 9; a word without digits whole.
fn figures_apart(word: &str) -> impl Iterator<Item = &str> {
    let mut rest = word;
    std::iter::from_fn(move || {
        let is_digit = rest.chars().next()?.is_ascii_digit();
        let end = rest.find(|c: char| c.is_ascii_digit() != is_digit).unwrap_or(rest.len());
        let (part, behind) = rest.split_at(end);
        rest = behind;
        Some(part)
    })
}

fn is_figure(word: &str) -> bool {
    word.bytes().all(|byte| byte.is_ascii_digit())
}

/// The digits of figures that stand together, where they may be a telephone number; otherwise the words as they are.
fn telephone_apart(words: &[String]) -> Vec<String> {
    let is_telephone = is_figure(&words[0]) && words.iter().map(String::len).sum::<usize>() >= TELEPHONE_DIGITS;
    match is_telephone {
        true => words.concat().chars().map(String::from).collect(),
        false => words.to_vec(),
    }
}

fn in_digits(word: &str) -> String {
    NUMBERS.iter().position(|number| *number == word).map_or_else(|| word.to_owned(), |n| n.to_string())
}

/// Where the first word of a text without blanks ends; `None` if there is none.
fn first_end(text: &str) -> Option<usize> {
    let mut has_letter = false;
    let mut was_unspaced = false;
    for (at, c) in text.char_indices() {
        let is_letter = c.is_alphanumeric() && !is_mark(c);
        if has_letter && is_letter && (was_unspaced || is_unspaced(c)) {
            return Some(at);
        }
        has_letter |= is_letter;
        was_unspaced |= is_letter && is_unspaced(c);
    }
    (!text.is_empty()).then_some(text.len())
}

/// Whether the letter is of a script without blanks between words.
pub fn is_unspaced(c: char) -> bool {
    UNSPACED.iter().any(|block| block.contains(&c))
}

/// Whether the character combines with a letter.
pub(crate) fn is_mark(c: char) -> bool {
    !c.is_ascii() && matches!(c.general_category(), GeneralCategory::NonspacingMark | GeneralCategory::SpacingMark)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_is_only_written_differently_is_the_same() {
        let check = |said: &str, heard: &str| assert_eq!(compared(said), compared(heard));
        check("It\u{2019}s $5, or 10%.", "it's $5 or 10%");
        check("Dinner is at 7 p.m. sharp.", "dinner is at seven PM sharp");
        check("At 7pm on the 1st.", "At 7 p.m. on the 1st.");
        check("Three times four is 12.", "3 times 4 is twelve.");
        check("1,000 of 20/20 at 06:05.", "1000 of 2020 at 0605");
        check("The café serves crème brûlée.", "The cafe serves creme brulee.");
        check("Flight BA 2490 has 1.5 GB.", "flight ba2490 has 1.5GB");
        check("My number is (212) 555-0123.", "My number is 2125550123.");
        check("Dial 1 800 555 0199 now", "dial 1 8 0 0 5 5 5 0 1 9 9 now");
        assert_ne!(compared("one, two"), compared("12"));
        assert_ne!(compared("555 0123"), compared("555 0124"));
        assert_ne!(compared("in 1999"), compared("in 19 99"), "no telephone number");
        assert_ne!(compared("I am at home."), compared("I'm at home."));
        assert_ne!(compared("ham"), compared("h am"));
    }

    /// Checks the words, with a bar before each that is not preceded by a blank.
    #[track_caller]
    fn check(text: &str, expect: &str) {
        let parted = words(text).map(|word| format!("{}{}", if word.spaced { " " } else { "|" }, word.text));
        assert_eq!(parted.collect::<String>().trim_start_matches('|'), expect);
    }

    #[test]
    fn blanks_part_words_and_so_do_the_letters_of_scripts_without_them() {
        check("  I don't  know. ", "I don't know.");
        check("今天、天气。", "今|天、|天|气。");
        check("我叫Tom Lee吗？", "我|叫|Tom Lee|吗？");
        check("「はい」です", "「は|い」|で|す");
        check("ที่นี่", "ที่|นี่");
        check("", "");
        check("...", "...");
    }

    #[test]
    fn what_is_said_is_counted_in_words() {
        assert_eq!(spoken("I don't — know, OK?").collect::<Vec<_>>(), ["i", "dont", "know", "ok"]);
        assert_eq!(count("I don't — know, OK?"), 4);
        assert_eq!(count("今天天气很好"), 2);
        assert_eq!(count("我叫 Tom"), 2);
        assert_eq!(count("?!"), 0);
    }

    proptest! {
        #[test]
        fn no_character_is_lost(text in "[a-z 我是の。ที่' -]{0,40}") {
            let joined: String = words(&text).map(|word| format!("{}{}", if word.spaced { " " } else { "" }, word.text)).collect();
            prop_assert_eq!(joined, text.split_whitespace().collect::<Vec<_>>().join(" "));
        }
    }
}
