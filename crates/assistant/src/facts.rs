//! Facts from `facts.toml`: capitals, opposites, animals, colors, and sentences that answer one question.

use crate::capital;
use crate::data::data_file;
use crate::intents::say;
use crate::query::{Query, find};
use serde::Deserialize;
use std::collections::BTreeMap;

#[derive(Deserialize)]
struct Facts {
    relation: Vec<Relation>,
    fact: Vec<Fact>,
}

/// What a question asks of one of many things.
#[derive(Deserialize)]
struct Relation {
    asks: String,
    #[serde(default)]
    unless: String,
    /// The answer, with `{key}` and `{value}`.
    answer: String,
    /// Keys, perhaps with further names (`the Netherlands|holland`), and their values.
    entries: BTreeMap<String, String>,
}

#[derive(Deserialize)]
struct Fact {
    asked: String,
    answer: String,
}

data_file!(FACTS: Facts = "facts.toml");

pub(crate) fn answer(query: &Query) -> Option<String> {
    FACTS.relation.iter().find_map(|relation| relation.answer(query)).or_else(|| {
        let asks = query.has("what|which|how|name|list|tell|say|where|at|the|when|who|why") && query.words.len() <= 12;
        let fact = FACTS.fact.iter().find(|fact| query.has(&fact.asked)).filter(|_| asks)?;
        say(&fact.answer)
    })
}

impl Relation {
    fn answer(&self, query: &Query) -> Option<String> {
        let asked = find(&query.words, &self.asks)?;
        if !self.unless.is_empty() && query.has(&self.unless) {
            return None;
        }
        // What is asked about mostly comes last.
        let before = &query.words[..asked.end];
        let after = &query.words[asked.end..];
        let named = |words: &[String], key: &str| {
            let names = key.split('|').map(|name| name.to_lowercase().trim_start_matches("the ").to_owned());
            names.filter(|name| find(words, &format!("{name} / {name}s")).is_some()).map(|name| name.len()).max()
        };
        let found = |words| {
            let entries = self.entries.iter().filter_map(|(key, value)| Some((named(words, key)?, key, value)));
            entries.max_by_key(|(length, ..)| *length)
        };
        let (_, key, value) = found(after).or_else(|| found(before))?;
        let key = key.split('|').next().unwrap_or(key);
        Some(capital(&self.answer.replace("{key}", key).replace("{value}", value)))
    }
}
