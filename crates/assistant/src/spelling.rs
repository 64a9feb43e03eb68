//! Words and letters: spelling, the letters of a word, the alphabet.

use crate::intents::say;
use crate::query::{Query, find, one_of};
use crate::{capital, count, numbers};
use std::ops::Range;

const ALPHABET: &str = "ABCDEFGHIJKLMNOPQRSTUVWXYZ";
/// A longer text is not spelled, in words.
const MAX_WORDS: usize = 6;

pub(crate) fn answer(query: &Query) -> Option<String> {
    alphabet(query).or_else(|| letters_of_word(query)).or_else(|| spelled(query))
}

fn letters(word: &str) -> String {
    let letters = word.chars().filter(|c| c.is_alphanumeric()).map(|c| c.to_uppercase().to_string());
    letters.collect::<Vec<_>>().join(", ")
}

/// `how do you spell cat`, `how is cat spelled`.
fn spelled(query: &Query) -> Option<String> {
    const LEADS: &str = "how do|does|would|to you|i|one|we write|spell / spelling of|for / spell out / spell for me / \
        spell me / spell / spelled out / letters in|of the word|name / letters are in / letters make up / spelling";
    const ENDS: &str =
        "for me|us / please / correctly / in english / letter by letter / out loud / slowly / again / and then";
    let words = &query.words;
    let asks = query
        .has("spell|spelled|spelt|spelling / letters are in|of / letters make up / letters in|of the word|name")
        || (query.has("how is|do|does") && query.has("written|write"))
        || query.has("how to write");
    if !asks || query.has("backwards|backward") {
        return None;
    }
    let before = find(words, "is|are spelled|spelt|written / spelled|spelt|spell|written|spelling")
        .filter(|at| at.end == words.len());
    let range = match (find(words, LEADS).filter(|at| at.end < words.len()), before) {
        (Some(lead), _) => {
            let rest = &words[lead.end..];
            let end =
                ENDS.split(" / ").filter_map(|end| find(rest, end)).filter(|at| at.start > 0).map(|at| at.start).min();
            lead.end..lead.end + end.unwrap_or(rest.len())
        }
        (None, Some(before)) => {
            find(words, "how is|are|do|does|would / is / how / what is").map_or(0, |at| at.end)..before.start
        }
        (None, None) => return None,
    };
    let range = without_articles(words, range);
    if range.is_empty() || range.len() > MAX_WORDS {
        return None;
    }
    let and = range.clone().find(|i| words[*i] == "and" && *i > range.start && *i + 1 < range.end);
    if let Some(and) = and {
        let both = [range.start..and, and + 1..range.end].map(|part| say_spelled(query.raw_words(part)));
        return Some(both.join(" "));
    }
    Some(say_spelled(query.raw_words(range)))
}

/// The words to be spelled, without what leads to them: `the word`, `the name`.
fn without_articles(words: &[String], mut range: Range<usize>) -> Range<usize> {
    const LEADS: &str = "the|word|words|name|names|number|term|a|an|is|this|me|it|out|you|for|as|of";
    let is_word_word = |range: &Range<usize>| range.len() == 2 && words[range.start + 1] == "word";
    while range.len() > 1 && one_of(&words[range.start], LEADS) && !is_word_word(&range) {
        range.start += 1;
    }
    range
}

/// `Cat is spelled C, A, T.`
fn say_spelled(text: &str) -> String {
    let text = if text.eq_ignore_ascii_case("your name") { "Antiphon" } else { text };
    let parts = text.split([' ', '-']).filter(|word| word.chars().any(char::is_alphanumeric)).map(letters);
    let name = capital(text.trim_matches(|c: char| !c.is_alphanumeric()));
    format!("{name} is spelled {}.", parts.collect::<Vec<_>>().join(", new word, "))
}

/// How many letters or vowels; the first, last or third letter.
fn letters_of_word(query: &Query) -> Option<String> {
    for (name, counted) in [("letter", "abcdefghijklmnopqrstuvwxyz"), ("vowel", "aeiou")] {
        if query.has(&format!("how many {name}s / number of {name}s / count the {name}s")) {
            let word = subject(query)?;
            let n = word.to_lowercase().chars().filter(|c| counted.contains(*c)).count();
            return say(&format!("the word {word} has {}", count(n as i64, name)));
        }
    }
    let is_last = query.has("last / end|ends with|in");
    if !query.has("letter of|in|does") || query.has("after|before|number|alphabet") {
        return None;
    }
    let word = subject(query)?;
    let nth = numbers::ordinal_in(&query.words).unwrap_or(1) as usize;
    let nth = if is_last { word.chars().count() } else { nth };
    let letter = word.chars().nth(nth.checked_sub(1)?)?.to_uppercase();
    let which = if is_last { "last".to_owned() } else { numbers::ordinal_word(nth) };
    say(&format!("the {which} letter of {word} is {letter}"))
}

/// The word a question about letters is about: the last one that does not belong to the question.
fn subject(query: &Query) -> Option<String> {
    const NOISE: &str = "begin|begins|start|starts|with|end|ends|have|has|contain|contains|the|word|in|of|does|do|there|are|\
        letters|letter|long|got|written";
    let named = find(&query.words, "the word|name *").map(|at| at.end - 1);
    let at = named.or_else(|| query.words.iter().rposition(|word| !one_of(word, NOISE)))?;
    Some(query.raw_words(at..at + 1).to_owned())
}

fn alphabet(query: &Query) -> Option<String> {
    if !query.has("alphabet / a b c|cs / abc|abcs") {
        return None;
    }
    let nth = if query.has("last") { Some(26) } else { numbers::ordinal_in(&query.words).map(|n| n as usize) };
    match nth {
        _ if query.has("how many") => say("there are 26 letters in the alphabet, five of them vowels"),
        Some(n @ 1..=26) if query.has("letter") => {
            say(&format!("the {} letter of the alphabet is {}", numbers::ordinal_word(n), &ALPHABET[n - 1..n]))
        }
        _ if query.has("backwards|backward|reverse") => say(&letters(&ALPHABET.chars().rev().collect::<String>())),
        _ => say(&letters(ALPHABET)),
    }
}
