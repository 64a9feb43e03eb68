//! Words of names and requests: how identifiers are split, which words say nothing, which say the same.

use crate::query::{Query, one_of};

/// Words of a name that every other tool has too.
#[rustfmt::skip]
const WEAK: &[&str] = &[
    "get", "fetch", "find", "search", "lookup", "look", "retrieve", "read", "show", "tell", "give", "check", "query",
    "list", "do", "perform", "execute", "use", "run", "current", "currently", "latest", "info", "information",
    "details", "detail", "data", "value", "values", "tool", "function", "api", "user", "handle", "ask", "return",
    "returns", "given", "specified", "specific", "certain", "provided", "requested", "some", "any", "all", "such",
    "number", "name", "thing", "something", "example", "like", "via", "using", "request",
];

/// Words of no content.
#[rustfmt::skip]
const STOP: &[&str] = &[
    "a", "an", "the", "of", "for", "in", "at", "by", "to", "from", "with", "into", "onto", "my", "your", "our", "his",
    "her", "their", "its", "it", "is", "are", "am", "be", "was", "were", "this", "that", "these", "those", "and", "or",
    "i", "you", "we", "me", "us", "he", "she", "they", "what", "which", "who", "where", "when", "how", "will", "would",
    "can", "could", "should", "there", "here", "as", "if", "please", "up", "about", "has", "have", "does", "did",
];

/// Verbs of action; those in a row may stand for each other.
const VERBS: &[&str] = &[
    "set|start|begin|create|make|add|schedule|put|arrange",
    "turn|switch|put|flip|set",
    "stop|end|cancel|abort|quit",
    "delete|remove|erase|clear|cancel",
    "send|write|text|mail|message",
    "play|start|put",
    "pause",
    "resume|continue",
    "open",
    "close|shut",
    "lock",
    "unlock",
    "increase|raise",
    "decrease|lower|reduce",
    "enable|activate",
    "disable|deactivate",
    "book|reserve|order|buy|purchase",
    "move",
    "save|store|write|take|make|add",
    "remind",
];

/// Of two such words, a request for the one is none for the other.
const OPPOSITES: &[(&str, &str)] =
    &[("on", "off"), ("up", "down"), ("enable", "disable"), ("lock", "unlock"), ("open", "close"), ("in", "out")];

/// Nouns that may stand for each other.
const SAME: &[&str] = &[
    "light|lamp",
    "weather|forecast",
    "email|mail",
    "message|text|sms",
    "picture|photo|image",
    "movie|film",
    "meeting|appointment|event",
    "song|music|track",
    "price|cost",
    "todo|task",
    "note|memo",
    "tv|television",
    "shop|store",
    "quantity|amount|count",
    "location|place",
];

/// `getWeather`, `get_weather`, `get-weather` and `HTTPGet` as lower-case words.
pub(super) fn words_of(identifier: &str) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    let mut previous = ' ';
    for c in identifier.chars() {
        if !c.is_alphanumeric() {
            previous = ' ';
            continue;
        }
        let begins = previous == ' ' || (c.is_uppercase() && previous.is_lowercase());
        match words.last_mut() {
            Some(word) if !begins => word.extend(c.to_lowercase()),
            _ => words.push(c.to_lowercase().collect()),
        }
        previous = c;
    }
    words
}

/// The content words of a description.
pub(super) fn content_of(text: &str) -> Vec<String> {
    words_of(text).into_iter().filter(|word| !is_stop(word) && !is_weak(word) && word.len() > 2).collect()
}

pub(super) fn is_weak(word: &str) -> bool {
    WEAK.contains(&word)
}

pub(super) fn is_stop(word: &str) -> bool {
    STOP.contains(&word)
}

pub(super) fn is_verb(word: &str) -> bool {
    VERBS.iter().any(|row| one_of(word, row))
}

/// Whether one verb may stand for the other.
pub(super) fn same_verb(a: &str, b: &str) -> bool {
    VERBS.iter().any(|row| one_of(a, row) && one_of(b, row))
}

/// Whether the request says a word of a name, in singular or plural, or another word for it.
pub(super) fn says(words: &[String], wanted: &str) -> bool {
    let wanted = singular(wanted);
    let same = SAME.iter().find(|row| one_of(&wanted, row));
    words.iter().any(|word| {
        let word = singular(word);
        word == wanted || same.is_some_and(|row| one_of(&word, row))
    })
}

/// The word that excludes this one.
pub(super) fn opposite(word: &str) -> Option<&'static str> {
    OPPOSITES.iter().find_map(|(a, b)| if *a == word { Some(*b) } else { (*b == word).then_some(*a) })
}

/// `lights` and `cities` as `light` and `city`.
pub(super) fn singular(word: &str) -> String {
    if let Some(stem) = word.strip_suffix("ies").filter(|stem| stem.len() > 1) {
        return format!("{stem}y");
    }
    match word.strip_suffix('s') {
        Some(stem) if stem.len() > 2 && !stem.ends_with(['s', 'u', 'i']) => stem.to_owned(),
        _ => word.to_owned(),
    }
}

/// Says that something is not to be done, or that it was done.
pub(super) fn is_refusal(query: &Query) -> bool {
    let told = query.all.first().is_some_and(|word| one_of(word, "i|we|he|she|they"))
        && query.all.get(1).is_some_and(|word| word.ends_with("ed") && word.len() > 4);
    told || query.said(&[
        "not",
        "never",
        "never mind",
        "nevermind",
        "forget it",
        "forget about it",
        "nothing",
        "no thanks",
    ]) || query.is(&["no", "cancel", "stop", "nope", "none"])
}
