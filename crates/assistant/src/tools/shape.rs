//! What a tool's schema says of its parameters, as far as words can fill them.

use super::vocabulary::words_of;
use crate::query::one_of;
use serde_json::Value;

/// A declared tool, its schema read.
pub(super) struct Tool {
    pub name: String,
    pub description: String,
    pub parameters: Value,
}

impl Tool {
    pub(super) fn of(tool: &antiphon_types::chat::Tool) -> Self {
        let (name, description) = (tool.name.clone(), tool.description.clone());
        Self { name, description, parameters: tool.parameters.value() }
    }
}

/// One parameter.
pub(super) struct Parameter<'a> {
    pub name: &'a str,
    /// The words of its name.
    pub words: Vec<String>,
    pub description: &'a str,
    pub required: bool,
    pub kind: Kind,
    schema: &'a Value,
}

/// What it takes.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Kind {
    /// One of these.
    Choice(Vec<Value>),
    /// Yes or no.
    Switch,
    /// A number, perhaps a whole one.
    Number { whole: bool },
    /// Words.
    Text(Text),
    /// A list or an object: not to be had from a sentence.
    Beyond,
}

/// What its words are about, by which they are found in a sentence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Text {
    Geography,
    Room,
    Person,
    Time,
    Language,
    /// What is to be written, looked for or played: any words.
    Free,
    Other,
}

const GEOGRAPHY: &str =
    "city|town|country|location|place|address|destination|origin|region|street|airport|capital|station|village";
const ROOM: &str = "room|area|zone|device|appliance|floor|lamp|light";
const PERSON: &str =
    "recipient|person|contact|who|attendee|to|receiver|friend|assignee|artist|guest|passenger|customer";
const TIME: &str = "time|date|when|day|datetime|deadline|weekday";
const FREE: &str = "message|text|body|content|note|reminder|task|title|query|question|term|search|topic|subject|song|\
track|description|item|product|prompt|phrase|sentence|what|comment|label|movie|keyword|keywords|expression|word|todo";

/// A tool's parameters, the required ones first, in the order they are required in.
pub(super) fn parameters(tool: &Tool) -> Vec<Parameter<'_>> {
    let required: Vec<&str> =
        tool.parameters["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let Some(properties) = tool.parameters["properties"].as_object() else { return Vec::new() };
    let mut parameters: Vec<_> =
        properties.iter().map(|(name, schema)| parameter(name, schema, required.contains(&name.as_str()))).collect();
    let place = |name: &str| required.iter().position(|other| *other == name).unwrap_or(usize::MAX);
    parameters.sort_by_key(|parameter| place(parameter.name));
    parameters
}

/// Whether a text parameter takes a name, of which several may be listed.
pub(super) fn is_name(tool: &Tool, name: &str) -> bool {
    parameters(tool).iter().any(|parameter| {
        parameter.name == name && matches!(parameter.kind, Kind::Text(Text::Geography | Text::Room | Text::Person))
    })
}

fn parameter<'a>(name: &'a str, schema: &'a Value, required: bool) -> Parameter<'a> {
    let schema = beyond_null(schema);
    let words = words_of(name);
    let kind = match (schema["enum"].as_array(), kind_name(schema)) {
        (Some(choices), _) => Kind::Choice(choices.iter().filter(|choice| !choice.is_null()).cloned().collect()),
        (None, "boolean") => Kind::Switch,
        (None, "integer") => Kind::Number { whole: true },
        (None, "number") => Kind::Number { whole: false },
        (None, "string") => Kind::Text(text(&words)),
        _ => Kind::Beyond,
    };
    Parameter { name, words, description: schema["description"].as_str().unwrap_or_default(), required, kind, schema }
}

/// Of an optional value's alternatives, the one that is not null.
fn beyond_null(schema: &Value) -> &Value {
    let alternatives = schema["anyOf"].as_array().or(schema["oneOf"].as_array());
    let real = alternatives.and_then(|list| list.iter().find(|schema| schema["type"] != "null"));
    real.unwrap_or(schema)
}

fn kind_name(schema: &Value) -> &str {
    let named = |value: &'_ Value| value.as_str().filter(|name| *name != "null").map(str::len).is_some();
    match &schema["type"] {
        Value::String(name) => name,
        Value::Array(names) => names.iter().find(|name| named(name)).and_then(Value::as_str).unwrap_or_default(),
        // A schema without a type takes anything, so words too.
        _ => "string",
    }
}

fn text(words: &[String]) -> Text {
    let is = |list: &str| words.iter().any(|word| one_of(word, list));
    match () {
        () if is("language|lang|locale") => Text::Language,
        () if is(FREE) => Text::Free,
        () if is(ROOM) => Text::Room,
        () if is(GEOGRAPHY) => Text::Geography,
        () if is(TIME) => Text::Time,
        () if is(PERSON) => Text::Person,
        () => Text::Other,
    }
}

impl Parameter<'_> {
    /// The name as a person says it.
    pub fn spoken(&self) -> String {
        self.words.join(" ")
    }

    /// Whether a number lies within what the schema allows.
    pub fn allows(&self, value: f64) -> bool {
        let above = self.schema["minimum"].as_f64().is_none_or(|minimum| value >= minimum);
        let below = self.schema["maximum"].as_f64().is_none_or(|maximum| value <= maximum);
        let over = self.schema["exclusiveMinimum"].as_f64().is_none_or(|minimum| value > minimum);
        let under = self.schema["exclusiveMaximum"].as_f64().is_none_or(|maximum| value < maximum);
        above && below && over && under
    }

    /// Whether words of a person are not what the schema wants: a formatted date, an address of mail.
    pub fn wants_format(&self) -> bool {
        let described = self.description.to_uppercase();
        self.schema["format"].is_string()
            || self.schema["pattern"].is_string()
            || described.contains("YYYY")
            || described.contains("ISO 8601")
            || described.contains("ISO-8601")
    }

    /// The question for it.
    pub fn question(&self, unit: Option<&str>) -> String {
        let name = self.spoken();
        match &self.kind {
            Kind::Choice(choices) => {
                let choices: Vec<String> = choices.iter().map(spoken_choice).collect();
                let list = match choices.as_slice() {
                    [first @ .., last] if !first.is_empty() => format!("{} or {last}", first.join(", ")),
                    other => other.join(", "),
                };
                format!("Which {name}: {list}?")
            }
            Kind::Switch => format!("Should {name} be on, yes or no?"),
            Kind::Number { .. } => match unit {
                Some(unit) => format!("How many {unit}?"),
                None => format!("What should the {name} be?"),
            },
            Kind::Text(Text::Free) => format!("What should the {name} be?"),
            Kind::Text(_) | Kind::Beyond => format!("Which {name}?"),
        }
    }
}

/// A choice as a person says it.
pub(super) fn spoken_choice(choice: &Value) -> String {
    match choice {
        Value::String(text) => words_of(text).join(" "),
        other => other.to_string(),
    }
}
