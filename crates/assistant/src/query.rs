//! One request as normalised words, and the patterns that are looked for in them.
//!
//! The text comes from a recognizer (lower case, numbers as words) or from a keyboard (`What's 12*7?`); here both become
//! the same words: lower case, contractions written out, signs as words, hesitations and politeness removed.

use crate::data::data_file;
use crate::numbers::{self, Number};
use serde::Deserialize;
use std::collections::HashMap;
use std::ops::Range;

#[derive(Deserialize)]
struct Normalisation {
    hesitations: Vec<String>,
    before: Vec<String>,
    after: Vec<String>,
    whole: Vec<String>,
    contractions: HashMap<String, String>,
    signs: HashMap<char, String>,
}

data_file!(NORMALISATION: Normalisation = "normalisation.toml");

#[derive(Clone, Debug, Default)]
pub(crate) struct Query {
    pub(crate) raw: String,
    /// All words but hesitations.
    pub(crate) all: Vec<String>,
    /// The words without the politeness around them; empty only if `all` is empty.
    pub(crate) words: Vec<String>,
    pub(crate) numbers: Vec<Number>,
    /// Byte range in `raw` of each of `words`.
    spans: Vec<Range<usize>>,
}

impl Query {
    pub(crate) fn new(raw: &str) -> Self {
        let mut tokens = tokens(raw);
        tokens.retain(|(word, _)| !NORMALISATION.hesitations.contains(word));
        let all: Vec<String> = tokens.iter().map(|(word, _)| word.clone()).collect();
        let (words, spans): (Vec<_>, _) = tokens[without_politeness(&all)].iter().cloned().unzip();
        Self { raw: raw.to_owned(), numbers: numbers::all(&words), all, words, spans }
    }

    /// Whether one of the [patterns](find) occurs in the request.
    pub(crate) fn has(&self, patterns: &str) -> bool {
        find(&self.words, patterns).is_some()
    }

    /// The same, politeness included.
    pub(crate) fn said(&self, patterns: &str) -> bool {
        find(&self.all, patterns).is_some()
    }

    /// Whether one of the patterns is the whole request, with or without politeness.
    pub(crate) fn is(&self, patterns: &str) -> bool {
        let whole = |words: &[String], pattern| find(words, pattern) == Some(0..words.len());
        patterns.split(" / ").any(|pattern| whole(&self.words, pattern) || whole(&self.all, pattern))
    }

    /// Whether the request begins with one of the patterns.
    pub(crate) fn starts(&self, patterns: &str) -> bool {
        patterns.split(" / ").any(|pattern| begins(&self.words, pattern).is_some())
    }

    /// The words after the first pattern that occurs.
    pub(crate) fn after(&self, patterns: &str) -> Option<&[String]> {
        find(&self.words, patterns).map(|at| &self.words[at.end..])
    }

    pub(crate) fn values(&self) -> Vec<f64> {
        self.numbers.iter().map(|number| number.value).collect()
    }

    /// The text as it came, for a range of `words`.
    pub(crate) fn raw_words(&self, words: Range<usize>) -> &str {
        let Some(first) = self.spans.get(words.start) else { return "" };
        let last = &self.spans[words.end.clamp(words.start + 1, self.spans.len()) - 1];
        self.raw[first.start..last.end.max(first.start)].trim()
    }

    /// The text as it came, from a word to the last one, with the marks after it.
    pub(crate) fn raw_from(&self, word: usize) -> &str {
        let (Some(first), Some(last)) = (self.spans.get(word), self.spans.last()) else { return "" };
        let is_mark = |c: char| ".?!…\"”'’)".contains(c);
        let end = self.raw[last.end..].find(|c| !is_mark(c)).map_or(self.raw.len(), |n| last.end + n);
        self.raw[first.start..end].trim()
    }
}

/// Where the first of the patterns that occurs stands. Patterns are separated by ` / `, their words by a space; `a|b` is
/// either word and `*` is any word.
pub(crate) fn find(words: &[String], patterns: &str) -> Option<Range<usize>> {
    patterns.split(" / ").find_map(|pattern| {
        let at = (0..words.len()).find_map(|at| begins(&words[at..], pattern).map(|n| at..at + n))?;
        Some(at)
    })
}

/// How many words the pattern has, if the words begin with it.
pub(crate) fn begins(words: &[String], pattern: &str) -> Option<usize> {
    let mut n = 0;
    for part in pattern.split(' ') {
        let word = words.get(n)?;
        if part != "*" && !one_of(word, part) {
            return None;
        }
        n += 1;
    }
    Some(n)
}

/// How many words the longest of the patterns that the words end with has.
pub(crate) fn ends(words: &[String], patterns: &str) -> Option<usize> {
    let fits = |pattern: &str| {
        let n = pattern.split(' ').count();
        begins(&words[words.len().checked_sub(n)?..], pattern)
    };
    patterns.split(" / ").filter_map(fits).max()
}

/// Whether a word is one of those in the list `a|b|c`.
pub(crate) fn one_of(word: &str, list: &str) -> bool {
    list.split('|').any(|choice| choice == word)
}

/// Which of the words are the request itself; empty only if `words` is empty.
fn without_politeness(words: &[String]) -> Range<usize> {
    let mut start = 0;
    let mut end = words.len();
    let longest =
        |phrases: &[String], fits: &dyn Fn(&str) -> Option<usize>| phrases.iter().filter_map(|p| fits(p)).max();
    while let Some(n) = longest(&NORMALISATION.before, &|phrase| begins(&words[start..end], phrase)) {
        let is_request = NORMALISATION.whole.iter().any(|whole| begins(&words[start..end], whole) == Some(end - start));
        if start + n >= end || is_request {
            break;
        }
        start += n;
    }
    while let Some(n) =
        longest(&NORMALISATION.after, &|phrase| ends(&words[start..end], phrase)).filter(|n| start + n < end)
    {
        end -= n;
    }
    start..end
}

/// Words, numbers and signs, each with its place.
fn tokens(raw: &str) -> Vec<(String, Range<usize>)> {
    let chars: Vec<(usize, char)> = raw.char_indices().collect();
    let mut tokens: Vec<(String, Range<usize>)> = Vec::new();
    let mut i = 0;
    while i < chars.len() {
        let (start, c) = chars[i];
        let before = i.checked_sub(1).map_or(' ', |i| chars[i].1);
        let after_number = before.is_ascii_digit();
        let starts_number = c.is_ascii_digit()
            || (c == '.' && !after_number && chars.get(i + 1).is_some_and(|(_, c)| c.is_ascii_digit()));
        let n = match () {
            () if starts_number => number_length(&chars[i..]),
            () if c.is_alphabetic() => {
                chars[i..].iter().take_while(|(_, c)| c.is_alphabetic() || matches!(c, '\'' | '’')).count()
            }
            () => 1,
        };
        let span = start..chars.get(i + n).map_or(raw.len(), |(at, _)| *at);
        let text = &raw[span.clone()];
        if c.is_alphabetic() {
            let word = text.to_lowercase().replace('’', "'");
            match tokens.last_mut() {
                Some((number, whole)) if after_number && one_of(&word, "st|nd|rd|th") => {
                    number.push_str("th");
                    whole.end = span.end;
                }
                _ => tokens.extend(written_out(word.trim_matches('\'')).into_iter().map(|word| (word, span.clone()))),
            }
        } else if starts_number {
            tokens.push((digits(text), span));
        } else {
            let sign = match c {
                '-' if before.is_alphabetic() => "",
                '\'' if after_number => "foot",
                '"' if after_number && tokens.iter().any(|(word, _)| word == "foot") => "inches",
                '!' if after_number => "factorial",
                c => NORMALISATION.signs.get(&c).map_or("", String::as_str),
            };
            tokens.extend(sign.split_whitespace().map(|word| (word.to_owned(), span.clone())));
        }
        i += n;
    }
    tokens
}

/// How many characters a written number has: `12`, `3.5`, `3,5`, `1,000,000.5`.
fn number_length(chars: &[(usize, char)]) -> usize {
    let text: String = chars.iter().map(|(_, c)| *c).take_while(|c| c.is_ascii_digit() || ".,".contains(*c)).collect();
    text.trim_end_matches(['.', ',']).len()
}

/// The number with a decimal point and without thousands' commas.
fn digits(text: &str) -> String {
    let is_decimal =
        text.split_once(',').is_some_and(|(whole, rest)| whole == "0" || rest.len() != 3 && !rest.contains(','));
    text.replace(',', if is_decimal && !text.contains('.') { "." } else { "" })
}

/// The words of a contraction; a possessive loses its mark.
fn written_out(word: &str) -> Vec<String> {
    let words = |text: &str| text.split(' ').map(str::to_owned).collect();
    if let Some(whole) = NORMALISATION.contractions.get(word) {
        return words(whole);
    }
    if let Some(stem) = word.strip_suffix("n't") {
        return words(&format!("{stem} not"));
    }
    let Some((stem, end)) = word.split_once('\'') else { return words(word) };
    let second = match end {
        "re" => "are",
        "ll" => "will",
        "ve" => "have",
        "d" => "would",
        "m" => "am",
        "s" if one_of(stem, "it|that|there|here|how|who|where|when|what|which|he|she") => "is",
        "s" | "" => return words(stem),
        _ => return words(&word.replace('\'', "")),
    };
    words(&format!("{stem} {second}"))
}
