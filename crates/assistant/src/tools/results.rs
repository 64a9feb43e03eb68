//! What a tool returned, in plain words.

use super::schema::words_of;
use crate::{and_list, sentence, yes_no};
use antiphon_types::chat::{Message, ToolCall};
use serde_json::{Map, Value};

/// A longer text is cut, in characters.
const MAX_CHARS: usize = 600;
/// The most entries of a list or an object that are said.
const MAX_ENTRIES: usize = 8;

/// The results the conversation ends with; `None` if it ends with something else.
pub(super) fn spoken(messages: &[Message]) -> Option<String> {
    let n = messages.iter().rev().take_while(|message| matches!(message, Message::Tool { .. })).count();
    let (before, results) = messages.split_at(messages.len() - n);
    let calls = match before.last() {
        Some(Message::Assistant { tool_calls, .. }) => tool_calls.as_slice(),
        _ => &[],
    };
    let texts = results.iter().filter_map(|message| {
        let Message::Tool { call_id, output } = message else { return None };
        let call = calls.iter().find(|call| call.call_id == *call_id).filter(|_| n > 1);
        let subject = call.and_then(subject).map_or(String::new(), |subject| format!("For {subject}: "));
        Some(format!("{subject}{}", plain(output.trim())))
    });
    (n > 0).then(|| texts.collect::<Vec<_>>().join(" "))
}

/// What a call was about: its first text.
fn subject(call: &ToolCall) -> Option<String> {
    let arguments: Map<String, Value> = serde_json::from_str(&call.arguments).ok()?;
    arguments.values().find_map(|value| value.as_str().map(str::to_owned))
}

fn plain(output: &str) -> String {
    let text = match serde_json::from_str(output) {
        Ok(Value::Object(fields)) => object(&fields),
        Ok(Value::Array(items)) if items.is_empty() => "Nothing was found.".into(),
        Ok(Value::Array(items)) if items.iter().all(|item| !item.is_object()) => {
            sentence(&scalar(&Value::Array(items)))
        }
        Ok(Value::Array(items)) => object(&Map::from_iter([("result".to_owned(), Value::Array(items))])),
        Ok(Value::Number(number)) => format!("The answer is {number}."),
        Ok(Value::Null) => "Nothing came back.".into(),
        Ok(value) => sentence(&scalar(&value)),
        Err(_) if output.is_empty() => "Done.".into(),
        Err(_) => sentence(output),
    };
    let Some((end, _)) = text.char_indices().nth(MAX_CHARS) else { return text };
    format!("{}, and more.", text[..text[..end].rfind(' ').unwrap_or(end)].trim_end_matches([',', '.']))
}

fn object(fields: &Map<String, Value>) -> String {
    if let Some(error) = fields.get("error").filter(|error| !error.is_null() && **error != false) {
        let words = error.as_str().or(error["message"].as_str()).unwrap_or("there was an error");
        return format!("That did not work: {}", sentence(words));
    }
    let mut outcome = None;
    let mut facts = Vec::new();
    let mut texts = Vec::new();
    for (key, value) in fields {
        match (key.as_str(), value) {
            ("success" | "ok" | "done", Value::Bool(true)) => outcome = Some("Done.".to_owned()),
            ("success" | "ok" | "done", Value::Bool(false)) => outcome = Some("That did not work.".to_owned()),
            ("message" | "text" | "result" | "answer" | "summary" | "content", Value::String(text)) => {
                texts.push(sentence(text));
            }
            _ => describe(&words_of(key).join(" "), value, &mut facts),
        }
    }
    facts.truncate(MAX_ENTRIES);
    let facts = (!facts.is_empty()).then(|| sentence(&and_list(&facts)));
    let parts: Vec<String> = outcome.into_iter().chain(facts).chain(texts).collect();
    if parts.is_empty() { "Done.".into() } else { parts.join(" ") }
}

/// `the wind speed is 5`.
fn describe(name: &str, value: &Value, facts: &mut Vec<String>) {
    match value {
        Value::Null => {}
        Value::Object(fields) => {
            fields
                .iter()
                .for_each(|(key, value)| describe(&format!("{name} {}", words_of(key).join(" ")), value, facts));
        }
        Value::Array(items) if items.iter().any(Value::is_object) => {
            let numbered = ["first", "second", "third"].into_iter().zip(items);
            numbered.for_each(|(nth, item)| describe(&format!("{nth} {name}"), item, facts));
        }
        value => {
            let (name, unit) = match name.rsplit_once(' ') {
                Some((name, "c" | "celsius")) => (name, " degrees Celsius"),
                Some((name, "f" | "fahrenheit")) => (name, " degrees Fahrenheit"),
                _ => (name, ""),
            };
            let verb = if name.ends_with('s') && !name.ends_with("ss") { "are" } else { "is" };
            facts.push(format!("the {name} {verb} {}{unit}", scalar(value)));
        }
    }
}

fn scalar(value: &Value) -> String {
    match value {
        Value::String(text) => text.trim().trim_end_matches('.').to_owned(),
        Value::Bool(yes) => yes_no(*yes).into(),
        Value::Array(items) => and_list(&items.iter().take(MAX_ENTRIES).map(scalar).collect::<Vec<_>>()),
        other => other.to_string(),
    }
}
