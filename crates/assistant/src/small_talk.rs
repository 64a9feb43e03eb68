//! Jokes, the story, greetings, who the assistant is, what it can and cannot do: `small_talk.toml` and `jokes.toml`.

use crate::conversation::Context;
use crate::data::data_file;
use crate::query::Query;
use serde::Deserialize;
use std::collections::HashMap;

/// Patterns, and the answer to a request that holds one of them.
#[derive(Deserialize)]
struct Talk {
    #[serde(default)]
    asked: String,
    #[serde(default)]
    whole: String,
    answer: String,
}

#[derive(Deserialize)]
struct Entertainment {
    asks_joke: String,
    asks_story: String,
    asks_another: String,
    not_asked: String,
    story: String,
    jokes: Vec<String>,
}

data_file!(TALK: HashMap<String, Vec<Talk>> = "small_talk.toml");
data_file!(ENTERTAINMENT: Entertainment = "jokes.toml");

/// A longer request is about something else, in words.
const MAX_WORDS: usize = 14;
/// So much of a joke's beginning shows that an answer was that joke; the rest may not have been heard.
const BEGINNING_CHARS: usize = 24;

/// The answer of the first entry of a list that fits: `limits`, `about` or `manners`.
pub(crate) fn talk(context: &Context<'_>, query: &Query, list: &str) -> Option<String> {
    let greeting = match context.now.hour() {
        5..12 => "Good morning",
        12..18 => "Good afternoon",
        _ => "Good evening",
    };
    let is_short = query.words.len() <= MAX_WORDS;
    let holds = |talk: &&Talk| is_short && (query.has(&talk.asked) || query.said(&talk.asked));
    let whole = TALK[list].iter().find(|talk| query.is(&talk.whole));
    Some(whole.or_else(|| TALK[list].iter().find(holds))?.answer.replace("{good day}", greeting))
}

/// A joke that was not used yet, or the story.
pub(crate) fn joke_or_story(context: &Context<'_>, query: &Query) -> Option<String> {
    let data = &*ENTERTAINMENT;
    if query.has(&data.not_asked) || query.words.len() > MAX_WORDS {
        return None;
    }
    if query.has(&data.asks_story) {
        return Some(data.story.clone());
    }
    let is_told = |joke: &str, answer: &str| answer.contains(&joke.chars().take(BEGINNING_CHARS).collect::<String>());
    let pieces = || data.jokes.iter().chain([&data.story]);
    let is_piece = |answer: &str| pieces().any(|piece| is_told(piece, answer));
    let another = query.is(&data.asks_another) && context.past.last().is_some_and(|last| is_piece(&last.answer));
    let times_told = |joke: &&String| context.past.iter().filter(|past| is_told(joke, &past.answer)).count();
    (another || query.has(&data.asks_joke)).then(|| data.jokes.iter().min_by_key(times_told).cloned())?
}
