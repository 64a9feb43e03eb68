//! One call of a declared tool: which one a request means, its arguments, and what a result is in words.
//!
//! Nothing here knows any tool. A tool is meant where the nouns of its name were said ("weather" of `get_weather`), or where
//! the client demands a call. What a required parameter lacks is asked for where a call is demanded, and never made up.

use crate::{capital, numbers, sentence, words};
use antiphon_types::chat::{ChatRequest, Message, Tool, ToolChoice};
use serde_json::{Map, Value};

/// What the assistant does about its tools.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Step {
    /// Calls this one.
    Call {
        /// Its name.
        name: String,
        /// Its arguments, a JSON object.
        arguments: String,
    },
    /// Says this: a question for what is missing, or what a tool returned.
    Say(String),
}

/// Words of a tool's name that say what is done rather than what with.
const VERBS: [&str; 12] =
    ["get", "set", "find", "look", "lookup", "show", "tell", "search", "play", "start", "turn", "the"];
/// Words behind which a text begins.
const LEADS: [&str; 8] = ["in", "for", "to", "at", "of", "about", "called", "named"];
/// A longer result is cut, in characters.
const MAX_RESULT_CHARS: usize = 600;

/// What to do about the last message; `None` if it has nothing to do with the tools.
pub(crate) fn next_step(chat: &ChatRequest, request: &str) -> Option<Step> {
    if let Some(Message::Tool { .. }) = chat.messages.last() {
        return Some(Step::Say(results(&chat.messages)));
    }
    let said = words(request);
    let tool = match &chat.tool_choice {
        ToolChoice::None => return None,
        ToolChoice::Function(name) => chat.tools.iter().find(|tool| tool.name == *name)?,
        ToolChoice::Auto => chat.tools.iter().find(|tool| is_meant(tool, &said))?,
        ToolChoice::Required => chat.tools.iter().find(|tool| is_meant(tool, &said)).or(chat.tools.first())?,
    };
    match (arguments(tool, request, &said), &chat.tool_choice) {
        (Ok(arguments), _) => {
            Some(Step::Call { name: tool.name.clone(), arguments: Value::Object(arguments).to_string() })
        }
        (Err(_), ToolChoice::Auto) => None,
        (Err(missing), _) => Some(Step::Say(format!("Which {}?", in_words(&missing)))),
    }
}

/// Whether all nouns of the tool's name were said.
fn is_meant(tool: &Tool, said: &[String]) -> bool {
    let name = in_words(&tool.name);
    let mut nouns = name.split(' ').filter(|word| !VERBS.contains(word)).peekable();
    nouns.peek().is_some() && nouns.all(|noun| said.iter().any(|word| word == noun))
}

/// The arguments that the request gives, or the name of a required one that it lacks.
fn arguments(tool: &Tool, request: &str, said: &[String]) -> Result<Map<String, Value>, String> {
    let mut arguments = Map::new();
    let schema = tool.parameters.value();
    let required = schema["required"].as_array().map_or(&[][..], Vec::as_slice);
    let properties = schema["properties"].as_object().into_iter().flatten();
    let mut found_numbers = numbers::all(said).into_iter();
    let mut text = text_of(tool, request);
    for (name, schema) in properties {
        let is_required = required.iter().any(|required| required == name);
        let value = match (schema["enum"].as_array(), schema["type"].as_str()) {
            (Some(choices), _) => {
                choices.iter().find(|choice| said.iter().any(|word| choice.as_str() == Some(word))).cloned()
            }
            (None, Some("number" | "integer")) => found_numbers.next().map(as_json),
            (None, Some("string")) if is_required => text.take().map(Value::String),
            _ => None,
        };
        match value {
            Some(value) => drop(arguments.insert(name.clone(), value)),
            None if is_required => return Err(name.clone()),
            None => {}
        }
    }
    Ok(arguments)
}

fn as_json(number: f64) -> Value {
    if number.fract() == 0.0 && number.abs() < 9e15 { Value::from(number as i64) } else { Value::from(number) }
}

/// The text behind the last lead ("in Paris"), or a request of one to three words that does not name the tool.
fn text_of(tool: &Tool, request: &str) -> Option<String> {
    let raw: Vec<&str> = request.split_whitespace().collect();
    let is_lead = |word: &&str| LEADS.contains(&word.to_lowercase().as_str());
    let start = match raw.iter().rposition(is_lead) {
        Some(at) => at + 1,
        None if raw.len() <= 3 && !is_meant(tool, &words(request)) => 0,
        None => return None,
    };
    let names = raw[start..].iter().map(|word| word.trim_matches(|c: char| ".,?!\"".contains(c)));
    let names: Vec<String> = names.filter(|word| *word != "please").map(capital).collect();
    (!names.is_empty()).then(|| names.join(" "))
}

/// The words of a name: `get_weather`, `setThermostat`.
fn in_words(name: &str) -> String {
    let mut text = String::with_capacity(name.len() + 4);
    for c in name.chars() {
        match c {
            '_' | '-' => text.push(' '),
            c if c.is_uppercase() => text.extend([' ', c.to_ascii_lowercase()]),
            c => text.push(c),
        }
    }
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The results with which the conversation ends, in words.
fn results(messages: &[Message]) -> String {
    let outputs = messages.iter().rev().map_while(|message| match message {
        Message::Tool { output, .. } => Some(result(output.trim())),
        _ => None,
    });
    let mut outputs: Vec<String> = outputs.collect();
    outputs.reverse();
    outputs.join(" ").chars().take(MAX_RESULT_CHARS).collect()
}

fn result(output: &str) -> String {
    match serde_json::from_str(output) {
        Ok(Value::Object(fields)) if !fields.is_empty() => {
            let facts: Vec<String> =
                fields.iter().map(|(name, value)| format!("{}: {}", in_words(name), scalar(value))).collect();
            sentence(&facts.join(", "))
        }
        Ok(Value::String(text)) if !text.is_empty() => sentence(&text),
        Ok(Value::Number(number)) => format!("The answer is {number}."),
        Err(_) if !output.is_empty() => sentence(output),
        _ => "Done.".to_owned(),
    }
}

fn scalar(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), |text| text.trim_end_matches('.').to_owned())
}
