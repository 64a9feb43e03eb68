//! Parts of speech by an averaged perceptron, in the tags of the Penn Treebank: what decides between "to read" and "have read".
//!
//! The weights are hibari's; the features are those it was trained with. A word that nearly always has one tag has it by a table.
//! Pure; the reader calls it.

use serde::Deserialize;
use std::collections::{HashMap, HashSet};

/// The tag of a word that no feature is known of.
const USUAL: &str = "NN";
const BEFORE: [&str; 2] = ["-START2-", "-START-"];
const BEHIND: [&str; 2] = ["-END-", "-END2-"];

/// The model's file.
#[derive(Deserialize)]
pub(super) struct TaggerFile {
    tags: Vec<String>,
    tagdict: HashMap<Box<str>, String>,
    vocab: HashSet<Box<str>>,
    weights: HashMap<Box<str>, HashMap<String, f64>>,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Tagger {
    tags: Vec<Box<str>>,
    /// Words with one tag, by its place in `tags`.
    fixed: HashMap<Box<str>, u8>,
    /// Words that features name; others are named by their shape.
    known: HashSet<Box<str>>,
    /// By feature: tags and weights in tenths.
    weights: HashMap<Box<str>, Box<[(u8, i16)]>>,
}

impl Tagger {
    /// An error names what is wrong in the file.
    pub(super) fn new(file: TaggerFile) -> Result<Self, String> {
        if file.tags.is_empty() || file.tags.len() > usize::from(u8::MAX) {
            return Err(format!("{} tags", file.tags.len()));
        }
        let places: HashMap<&str, u8> = file.tags.iter().map(String::as_str).zip(0..).collect();
        let place = |tag: &str| places.get(tag).copied().ok_or_else(|| format!("the tag {tag:?} is not in the list"));
        let mut fixed = HashMap::with_capacity(file.tagdict.len());
        for (word, tag) in file.tagdict {
            fixed.insert(word, place(&tag)?);
        }
        let mut weights = HashMap::with_capacity(file.weights.len());
        for (feature, by_tag) in file.weights {
            let mut row = Vec::with_capacity(by_tag.len());
            for (tag, weight) in by_tag {
                row.push((place(&tag)?, (weight * 10.0).round() as i16));
            }
            weights.insert(feature, row.into_boxed_slice());
        }
        let tags = file.tags.iter().map(|tag| tag.as_str().into()).collect();
        Ok(Self { tags, fixed, known: file.vocab, weights })
    }

    /// The tag of each word of a sentence.
    pub(super) fn tags(&self, words: &[&str]) -> Vec<&str> {
        let names: Vec<String> = words.iter().map(|word| self.name(word)).collect();
        let mut context: Vec<&str> = BEFORE.to_vec();
        context.extend(names.iter().map(String::as_str));
        context.extend(BEHIND);
        let mut tags: Vec<&str> = Vec::with_capacity(words.len());
        for (place, word) in words.iter().enumerate() {
            let tag = match self.fixed.get(*word) {
                Some(tag) => &self.tags[usize::from(*tag)],
                None => {
                    let before = if place >= 1 { tags[place - 1] } else { BEFORE[1] };
                    let before_that = match place {
                        0 => BEFORE[0],
                        1 => BEFORE[1],
                        _ => tags[place - 2],
                    };
                    self.predicted(&features(place, word, &context, before, before_that))
                }
            };
            tags.push(tag);
        }
        tags
    }

    /// The tag with the greatest sum; of several, the last one by name.
    fn predicted(&self, features: &[String]) -> &str {
        let mut sums = vec![0_i32; self.tags.len()];
        let mut is_known = false;
        for feature in features {
            let Some(row) = self.weights.get(feature.as_str()) else { continue };
            is_known = true;
            for (tag, weight) in row {
                sums[usize::from(*tag)] += i32::from(*weight);
            }
        }
        let best = self.tags.iter().zip(&sums).max_by_key(|(tag, sum)| (**sum, *tag));
        match best {
            Some((tag, _)) if is_known => tag,
            _ => USUAL,
        }
    }

    /// What features call a word.
    fn name(&self, word: &str) -> String {
        let name = normal(word);
        if self.known.contains(name.as_str()) { name } else { format!("<{}>", shape(word)) }
    }
}

fn normal(word: &str) -> String {
    let is_number = word.chars().all(is_digit);
    if word.contains('-') && !word.starts_with('-') {
        "!HYPHEN".into()
    } else if is_number && word.chars().count() == 4 {
        "!YEAR".into()
    } else if word.starts_with(is_digit) {
        "!DIGITS".into()
    } else {
        word.to_lowercase()
    }
}

/// Letters and digits by kind.
fn shape(word: &str) -> String {
    let mut rest = word.chars();
    let first = rest.next();
    let kind = if word.chars().all(char::is_alphabetic) {
        if word.chars().all(char::is_lowercase) {
            "x"
        } else if word.chars().all(char::is_uppercase) {
            if word.chars().nth(1).is_some() { "XX" } else { "X1" }
        } else if first.is_some_and(char::is_uppercase) && rest.all(char::is_lowercase) {
            "Xx"
        } else {
            "xX"
        }
    } else if word.chars().all(is_digit) {
        "d"
    } else {
        let kind = |c: char| match c {
            c if is_digit(c) => 'd',
            c if c.is_alphabetic() => 'x',
            c => c,
        };
        return word.chars().take(4).map(kind).collect();
    };
    kind.into()
}

fn is_digit(c: char) -> bool {
    c.is_ascii_digit()
}

/// The last three characters.
fn ending(word: &str) -> &str {
    let from = word.char_indices().rev().nth(2).map_or(0, |(at, _)| at);
    &word[from..]
}

fn features(place: usize, word: &str, context: &[&str], before: &str, before_that: &str) -> [String; 15] {
    let at = place + 2;
    let initial = word.chars().next().map(String::from).unwrap_or_default();
    [
        "b".into(),
        format!("s3={}", ending(word)),
        format!("p1={initial}"),
        format!("w={}", context[at]),
        format!("sh={}", shape(word)),
        if place == 0 { "i0".into() } else { "i+".into() },
        format!("t-1={before}"),
        format!("t-2={before_that}"),
        format!("t-12={before},{before_that}"),
        format!("w-1={}", context[at - 1]),
        format!("s3-1={}", ending(context[at - 1])),
        format!("w-2={}", context[at - 2]),
        format!("w+1={}", context[at + 1]),
        format!("s3+1={}", ending(context[at + 1])),
        format!("w+2={}", context[at + 2]),
    ]
}
