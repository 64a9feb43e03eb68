//! Whether a transcript ends inside a number that is dictated: people pause between its groups, and a recognizer writes
//! "My number is 555." after the first one.
//!
//! Pure; `wording` calls it. English only. Prices, times, years and amounts are no dictation.

use antiphon_text::number_words::{one, ten};

/// What people dictate, and from how many digits on it may be whole.
const DICTATED: &[(&str, usize)] = &[
    ("account", 7),
    ("booking", 5),
    ("card", 12),
    ("cell", 7),
    ("code", 6),
    ("confirmation", 5),
    ("extension", 3),
    ("iban", 14),
    ("id", 5),
    ("mobile", 7),
    ("number", 7),
    ("order", 5),
    ("passport", 7),
    ("password", 4),
    ("phone", 7),
    ("pin", 4),
    ("reference", 5),
    ("serial", 7),
    ("telephone", 7),
    ("ticket", 5),
    ("zip", 5),
];

/// From how many digits on a number may be whole of which nobody said what it is: a telephone number without its area code.
const WHOLE: usize = 7;

/// So many words before the digits are searched for what is dictated ("my account number is").
const SEARCHED: usize = 5;

/// Whether more groups of a number are to be expected behind `text`.
pub(super) fn is_unfinished(text: &str) -> bool {
    let words: Vec<String> = text.split_whitespace().map(written).filter(|word| !word.is_empty()).collect();
    let groups: Vec<Group> = words.iter().rev().map_while(|word| Group::of(word)).collect();
    let Some(last) = groups.first() else { return false };
    let n_digits: usize = groups.iter().map(Group::n_digits).sum();
    let before = &words[..words.len() - groups.len()];
    let named: Vec<&(&str, usize)> = (before.iter().rev().take(SEARCHED))
        .filter_map(|word| DICTATED.iter().find(|(name, _)| name == word))
        .collect();
    // "Order number": of orders, not of any number.
    let named = named.iter().find(|(name, _)| *name != "number").or(named.first()).map(|(_, whole)| *whole);
    let is_dictated = named.is_some() || is_group_by_group(&groups);
    is_dictated && (*last == Group::Repeats || n_digits < named.unwrap_or(WHOLE))
}

/// Three digits one by one, or two groups: nobody says an amount like that.
fn is_group_by_group(groups: &[Group]) -> bool {
    let n_single = groups.iter().filter(|group| group.n_digits() == 1).count();
    let n_long = groups.iter().filter(|group| group.n_digits() >= 3).count();
    n_single >= 3 || groups.len() >= 2 && n_long >= 1
}

/// A word without the punctuation around it, in small letters.
fn written(word: &str) -> String {
    let kept = word.trim_matches(|c: char| !c.is_alphanumeric() && !"+$€£%".contains(c));
    kept.to_lowercase()
}

/// A word of a dictated number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Group {
    /// Such a number of digits.
    Digits(usize),
    /// "Double", "triple": a digit follows.
    Repeats,
}

impl Group {
    /// `None` for words that are no digits.
    fn of(word: &str) -> Option<Self> {
        if matches!(word, "double" | "triple") {
            return Some(Self::Repeats);
        }
        if word == "oh" || one(word).is_some_and(|value| value < 10) {
            return Some(Self::Digits(1));
        }
        let named: Option<Vec<usize>> = word.split('-').map(|part| ten(part).or_else(|| one(part))).collect();
        if named.is_some() {
            return Some(Self::Digits(2));
        }
        let n_digits = word.chars().filter(char::is_ascii_digit).count();
        let is_number = n_digits > 0 && word.chars().all(|c| c.is_ascii_digit() || "-+()/".contains(c));
        is_number.then_some(Self::Digits(n_digits))
    }

    fn n_digits(&self) -> usize {
        match self {
            Self::Digits(n) => *n,
            Self::Repeats => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::is_unfinished;

    #[test]
    fn a_number_goes_on_until_it_may_be_whole() {
        for text in [
            "My number is 555.",
            "my number is five five five",
            "My number is 555-012.",
            "The code reads 47.",
            "the pin is four seven",
            "My account number is 80, 614.",
            "It's 415, 555",
            "zero one seven",
            "My phone number is plus forty-nine thirty",
            "oh one seven",
            "My number is five five double",
        ] {
            assert!(is_unfinished(text), "{text}");
        }
        for text in [
            "My number is 555-0129.",
            "my number is five five five zero one two nine",
            "The code reads 471 322.",
            "The PIN is 4711.",
            "My extension is 415.",
            "My order number is 773 924.",
        ] {
            assert!(!is_unfinished(text), "{text}");
        }
    }

    #[test]
    fn amounts_times_and_years_are_no_dictation() {
        for text in [
            "",
            "I need three tickets.",
            "A table for four at 7.",
            "We met in 1999.",
            "It costs $500.",
            "Call me at 5:30.",
            "count from one to ten",
            "what is twelve times seven",
            "The answer is forty-two.",
            "It weighs 1,250.",
            "room 415",
            "that is 3.5",
            "I have two",
        ] {
            assert!(!is_unfinished(text), "{text}");
        }
    }
}
