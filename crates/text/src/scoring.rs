//! The words of an English text as a person says them, for counting word errors.
//!
//! The measures of real models and their tests call it for what was said and for what a recognizer heard. A recognizer
//! writes "8th", "$2.5 million" and "vs." where "eighth", "two point five million dollars" and "versus" were said, so
//! both sides are brought to one spoken form. Pure functions. They never call `normalize`, whose output the measures
//! judge; they share its tables of units, currencies and abbreviations.
//!
//! A figure has one form for all its names. "2024" does not show whether "twenty twenty-four" or "two thousand and
//! twenty-four" was heard, so both are the same here, as are "one oh one" and "a hundred and one". Numbers with
//! different digits are never the same. A figure below a hundred has one name: "one two" is not "twelve".
//!
//! Words that sound alike stay different: "two" and "to", "mail" and "male". An abbreviation is read only where one
//! reading is usual: "e.g." stays two letters.

mod numbers;
mod reading;
#[cfg(test)]
mod tests;

use crate::words::is_mark;
use unicode_normalization::UnicodeNormalization;

/// Spelled abbreviations with a vowel, which may be written together: "U.K." is "UK", but "U.S." is not "us".
const SPELLED: [&str; 19] = [
    "ai", "am", "api", "atm", "ceo", "cia", "cpu", "eu", "fbi", "gpu", "ibm", "iq", "nyc", "suv", "ui", "uk", "url",
    "usa", "usb",
];

/// The most passes over a text. Two or three suffice.
const MAX_PASSES: usize = 8;

/// The words as they are said: in lower case without digits, signs and punctuation, numbers in one form. The words of
/// the result, joined with blanks, are the result.
pub fn words(text: &str) -> Vec<String> {
    let mut words = pass(text);
    for _ in 1..MAX_PASSES {
        // "100 and 5" sounds as "one hundred and five" does.
        let again = pass(&words.join(" "));
        if again == words {
            break;
        }
        words = again;
    }
    words
}

fn pass(text: &str) -> Vec<String> {
    let said = reading::read(&without_marks(text));
    let lower = said.iter().map(|word| without_marks(&word.to_lowercase()));
    numbers::normal_form(&letters_joined(&in_one_spelling(&lower.collect::<Vec<_>>())))
}

/// "cafe" of "café".
fn without_marks(text: &str) -> String {
    text.nfd().filter(|c| !is_mark(*c)).collect()
}

fn is_letter(word: &str) -> bool {
    word.len() == 1 && word.bytes().all(|byte| byte.is_ascii_alphabetic())
}

fn is_consonant(word: &str) -> bool {
    is_letter(word) && !"aeiouy".contains(word)
}

/// Joins letters that are said one by one, where they cannot be read as a word: "p d f" is "pdf".
fn letters_joined(words: &[String]) -> Vec<String> {
    let mut joined = Vec::with_capacity(words.len());
    let mut at = 0;
    while at < words.len() {
        let rest = &words[at..];
        let n_consonants = rest.iter().take_while(|word| is_consonant(word)).count();
        let n_letters = SPELLED.iter().filter(|name| is_spelled(rest, name)).map(|name| name.len()).max();
        let together = &rest[..n_letters.unwrap_or(n_consonants).max(1)];
        at += together.len();
        // "M R" is not "Mr".
        match together.concat() {
            name if reading::is_abbreviation(&name) => joined.extend_from_slice(together),
            name => joined.push(name),
        }
    }
    joined
}

/// Whether the words begin with the letters of a name, one by one.
fn is_spelled(words: &[String], name: &str) -> bool {
    words.len() >= name.len() && words.iter().zip(name.bytes()).all(|(word, letter)| word.as_bytes() == [letter])
}

/// One spelling for words that have two: "percent" and "per cent".
fn in_one_spelling(words: &[String]) -> Vec<String> {
    let mut out: Vec<String> = Vec::with_capacity(words.len());
    let mut at = 0;
    let word = |at: usize| words.get(at).map_or("", String::as_str);
    while at < words.len() {
        let is_part = matches!(word(at + 1), "half" | "quarter" | "third");
        let follows_number = at > 1 && word(at - 1) == "and" && numbers::is_number(word(at - 2));
        match word(at) {
            "per" if word(at + 1) == "cent" => {
                out.push("percent".to_owned());
                at += 1;
            }
            // "Two and a half" is written "2½".
            "a" if is_part && follows_number => out.push("one".to_owned()),
            "ok" => out.push("okay".to_owned()),
            unit if ["metre", "metres", "litre", "litres"].iter().any(|end| unit.ends_with(end)) => {
                out.push(unit.replace("metre", "meter").replace("litre", "liter"));
            }
            other => out.push(other.to_owned()),
        }
        at += 1;
    }
    out
}
