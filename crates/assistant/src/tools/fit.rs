//! How well a tool's name and description fit a request.

use super::shape::Tool;
use super::vocabulary::{content_of, is_stop, is_verb, is_weak, opposite, same_verb, says, words_of};
use crate::query::Query;

/// The tool's fit; the number tells better from worse.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Fit {
    /// Its name was said.
    Plain(f32),
    /// A part of its name, or a word of its description.
    Perhaps(f32),
    /// Not meant.
    No,
}

impl Fit {
    pub fn score(self) -> f32 {
        match self {
            Self::Plain(score) => 10.0 + score,
            Self::Perhaps(score) => score,
            Self::No => 0.0,
        }
    }
}

/// A share of the name's words from which on it counts as said.
const PLAIN: f32 = 0.66;

pub(super) fn fit(tool: &Tool, query: &Query) -> Fit {
    let name = words_of(&tool.name);
    let said = &query.words;
    if name.iter().any(|word| is_opposed(word, &name, said)) {
        return Fit::No;
    }
    let (verbs, rest): (Vec<&String>, Vec<&String>) = name.iter().partition(|word| is_verb(word));
    let acts: Vec<&String> = said.iter().filter(|word| is_verb(word)).collect();
    let verb_said = verbs.iter().any(|verb| acts.iter().any(|act| same_verb(verb, act)));
    // A request to do something else with the same thing.
    if !verbs.is_empty() && !acts.is_empty() && !verb_said {
        return Fit::No;
    }
    let mut nouns: Vec<&String> = rest.into_iter().filter(|word| !is_stop(word) && !is_weak(word)).collect();
    if nouns.is_empty() {
        // A tool called `search` or `stop` is called by that word.
        nouns = name.iter().filter(|word| !is_stop(word)).collect();
    }
    let found = nouns.iter().filter(|noun| says(said, noun)).count() as f32;
    let share = found / nouns.len().max(1) as f32;
    let described = content_of(&tool.description);
    let hits = described.iter().filter(|word| says(said, word) && !is_verb(word)).count() as f32;
    let score = 4.0 * share + if verb_said { 2.0 } else { 0.0 } + 0.5 * hits.min(4.0);
    match () {
        () if share >= PLAIN => Fit::Plain(score),
        () if found > 0.0 || hits > 0.0 => Fit::Perhaps(score),
        () => Fit::No,
    }
}

/// The request says the opposite of a word of the name, and not the word itself.
fn is_opposed(word: &str, name: &[String], said: &[String]) -> bool {
    let has = |words: &[String], wanted: &str| words.iter().any(|word| word == wanted);
    opposite(word).is_some_and(|other| has(said, other) && !has(said, word) && !has(name, other))
}
