//! What a tool gave, in plain words.

use super::called;
use super::vocabulary::words_of;
use crate::{and_list, sentence};
use antiphon_types::chat::{Message, ToolCall};
use serde_json::{Map, Value};

/// More is not said aloud.
const MAX_CHARS: usize = 600;
/// So many entries of a list or an object are said.
const MAX_ENTRIES: usize = 8;
/// Objects inside objects inside objects are not for the ear.
const MAX_DEPTH: usize = 3;

/// The text that speaks of the results the conversation ends with; `None` when it ends with something else.
pub(super) fn said(messages: &[Message]) -> Option<String> {
    let n = messages.iter().rev().take_while(|message| matches!(message, Message::Tool { .. })).count();
    let results = &messages[messages.len() - n..];
    if results.is_empty() {
        return None;
    }
    let calls = called(messages);
    let several = results.len() > 1;
    let texts = results.iter().filter_map(|message| {
        let Message::Tool { call_id, output } = message else { return None };
        let text = plain(output);
        let what = calls.iter().find(|call| call.call_id == *call_id).filter(|_| several).and_then(subject);
        Some(match what {
            Some(what) => format!("For {what}: {text}"),
            None => text,
        })
    });
    Some(texts.collect::<Vec<_>>().join(" "))
}

/// What a call was about, where several were made: its first text.
fn subject(call: &ToolCall) -> Option<String> {
    let arguments: Map<String, Value> = serde_json::from_str(&call.arguments).ok()?;
    arguments.values().find_map(|value| value.as_str().map(str::to_owned))
}

/// One result.
fn plain(output: &str) -> String {
    let output = output.trim();
    let text = match serde_json::from_str(output) {
        Ok(Value::Object(fields)) => object(&fields),
        Ok(Value::Array(items)) if items.is_empty() => "Nothing was found.".into(),
        Ok(Value::Array(items)) => list(&items),
        Ok(Value::String(text)) => sentence(&text),
        Ok(Value::Number(number)) => format!("The answer is {number}."),
        Ok(Value::Bool(true)) => "Yes.".into(),
        Ok(Value::Bool(false)) => "No.".into(),
        Ok(Value::Null) => "Nothing came back.".into(),
        Err(_) if output.is_empty() => "Done.".into(),
        Err(_) => sentence(output),
    };
    shortened(text)
}

fn object(fields: &Map<String, Value>) -> String {
    if let Some(problem) = fields.get("error").filter(|problem| !problem.is_null() && **problem != false) {
        let words = problem.as_str().or(problem["message"].as_str()).unwrap_or("there was an error");
        return format!("That did not work: {}", sentence(words));
    }
    let outcome = ["success", "ok", "done"].iter().find_map(|key| fields.get(*key)?.as_bool().map(|good| (*key, good)));
    let mut parts: Vec<String> = Vec::new();
    match outcome {
        Some((_, false)) => parts.push("That did not work.".into()),
        Some((_, true)) => parts.push("Done.".into()),
        None => {}
    }
    const WHOLE: [&str; 8] = ["message", "text", "result", "answer", "summary", "output", "content", "description"];
    let mut facts = Vec::new();
    for (key, value) in fields.iter().filter(|(key, _)| outcome.is_none_or(|(name, _)| name != key.as_str())) {
        match value {
            Value::String(text) if WHOLE.contains(&key.as_str()) && text.contains(' ') => parts.push(sentence(text)),
            value => tell(&words_of(key).join(" "), value, 0, &mut facts),
        }
    }
    facts.truncate(MAX_ENTRIES);
    if !facts.is_empty() {
        parts.insert(outcome.map_or(0, |_| 1), sentence(&and_list(&facts)));
    }
    if parts.is_empty() { "Done.".into() } else { parts.join(" ") }
}

/// `the wind speed is 5`.
fn tell(name: &str, value: &Value, depth: usize, facts: &mut Vec<String>) {
    match value {
        Value::Null => {}
        Value::Object(fields) if depth < MAX_DEPTH => {
            for (key, value) in fields {
                tell(&format!("{name} {}", words_of(key).join(" ")), value, depth + 1, facts);
            }
        }
        Value::Object(_) => {}
        Value::Array(items) if items.iter().any(Value::is_object) => {
            facts.push(format!("there {} {} {name}", if items.len() == 1 { "is" } else { "are" }, items.len()));
            for (n, item) in items.iter().enumerate().take(3) {
                tell(&format!("{} {name}", ordinal(n)), item, depth + 1, facts);
            }
        }
        Value::Array(items) => {
            let items: Vec<String> = items.iter().take(MAX_ENTRIES).map(scalar).collect();
            if !items.is_empty() {
                facts.push(format!("the {name} {} {}", verb(name), and_list(&items)));
            }
        }
        value => facts.push(format!(
            "the {} {} {}{}",
            unmarked(name).0,
            verb(unmarked(name).0),
            scalar(value),
            unmarked(name).1
        )),
    }
}

/// The name without its unit, and the unit to say behind the value.
fn unmarked(name: &str) -> (&str, &'static str) {
    const UNITS: [(&str, &str); 9] = [
        (" celsius", " degrees Celsius"),
        (" fahrenheit", " degrees Fahrenheit"),
        (" c", " degrees Celsius"),
        (" f", " degrees Fahrenheit"),
        (" percent", " percent"),
        (" km", " kilometers"),
        (" kmh", " kilometers an hour"),
        (" mph", " miles an hour"),
        (" usd", " dollars"),
    ];
    let marked = UNITS.iter().find_map(|(mark, unit)| Some((name.strip_suffix(mark)?, *unit)));
    marked.filter(|(name, _)| !name.is_empty()).unwrap_or((name, ""))
}

fn verb(name: &str) -> &'static str {
    if name.ends_with('s') && !name.ends_with("ss") && !name.ends_with("us") { "are" } else { "is" }
}

fn ordinal(n: usize) -> &'static str {
    ["first", "second", "third"][n]
}

fn list(items: &[Value]) -> String {
    if items.iter().all(|item| !item.is_object() && !item.is_array()) {
        let items: Vec<String> = items.iter().take(MAX_ENTRIES).map(scalar).collect();
        return sentence(&and_list(&items));
    }
    let mut facts = Vec::new();
    tell("results", &Value::Array(items.to_vec()), 0, &mut facts);
    facts.truncate(MAX_ENTRIES);
    sentence(&and_list(&facts))
}

fn scalar(value: &Value) -> String {
    match value {
        Value::String(text) => text.trim().trim_end_matches('.').to_owned(),
        Value::Bool(true) => "yes".into(),
        Value::Bool(false) => "no".into(),
        other => other.to_string(),
    }
}

/// Cut at the end of a word.
fn shortened(text: String) -> String {
    let Some((end, _)) = text.char_indices().nth(MAX_CHARS) else { return text };
    let cut = text[..end].rfind(' ').unwrap_or(end);
    format!("{}, and more.", text[..cut].trim_end_matches([',', '.']))
}
