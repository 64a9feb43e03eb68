//! What a tool's JSON schema says of its parameters, and how identifiers and requests share words.

use crate::and_list;
use crate::data::data_file;
use crate::query::one_of;
use crate::units;
use antiphon_types::chat;
use serde::Deserialize;
use serde_json::Value;

/// The word lists of `tool_words.toml`.
#[derive(Deserialize)]
pub(super) struct Words {
    pub(super) weak: String,
    pub(super) stop: String,
    pub(super) verbs: Vec<String>,
    same: Vec<String>,
    pub(super) opposites: Vec<String>,
    pub(super) kinds: Vec<TextKind>,
}

/// What a text parameter is about, by which its value is found in a sentence.
#[derive(Deserialize, PartialEq)]
pub(super) struct TextKind {
    words: String,
    rank: u8,
    pub(super) leads: String,
    #[serde(default)]
    pub(super) days: String,
    #[serde(default)]
    pub(super) is_name: bool,
}

impl TextKind {
    /// Any words, as far as they go.
    pub(super) fn is_free(&self) -> bool {
        one_of("message", &self.words)
    }
}

data_file!(pub(super) WORDS: Words = "tool_words.toml");

/// A declared tool, its schema parsed.
pub(super) struct Tool {
    pub(super) name: String,
    pub(super) description: String,
    schema: Value,
}

pub(super) struct Parameter<'a> {
    pub(super) name: &'a str,
    /// The words of its name.
    pub(super) words: Vec<String>,
    pub(super) required: bool,
    pub(super) kind: Kind<'a>,
    schema: &'a Value,
}

#[derive(Clone, PartialEq)]
pub(super) enum Kind<'a> {
    Choice(Vec<&'a Value>),
    Switch,
    Number {
        whole: bool,
    },
    Text(&'static TextKind),
    /// A list or an object, which no sentence gives.
    Structured,
}

impl Tool {
    pub(super) fn of(tool: &chat::Tool) -> Self {
        let schema = serde_json::to_value(&tool.parameters).unwrap_or_default();
        Self { name: tool.name.clone(), description: tool.description.clone(), schema }
    }

    /// The parameters, the required ones first, in the order in which they are required.
    pub(super) fn parameters(&self) -> Vec<Parameter<'_>> {
        let required: Vec<&str> =
            self.schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        let place = |name: &str| required.iter().position(|other| *other == name);
        let properties = self.schema["properties"].as_object().into_iter().flatten();
        let mut all: Vec<_> =
            properties.map(|(name, schema)| Parameter::of(name, schema, place(name).is_some())).collect();
        all.sort_by_key(|parameter| place(parameter.name).unwrap_or(usize::MAX));
        all
    }
}

impl<'a> Parameter<'a> {
    fn of(name: &'a str, schema: &'a Value, required: bool) -> Self {
        // Of an optional value's alternatives, the one that is not null.
        let alternatives = schema["anyOf"].as_array().or(schema["oneOf"].as_array());
        let schema = alternatives.and_then(|all| all.iter().find(|schema| schema["type"] != "null")).unwrap_or(schema);
        let words = words_of(name);
        let type_name = match &schema["type"] {
            Value::Array(names) => {
                names.iter().filter_map(Value::as_str).find(|name| *name != "null").unwrap_or("string")
            }
            name => name.as_str().unwrap_or("string"),
        };
        let kind = match (schema["enum"].as_array(), type_name) {
            (Some(choices), _) => Kind::Choice(choices.iter().filter(|choice| !choice.is_null()).collect()),
            (None, "boolean") => Kind::Switch,
            (None, "integer" | "number") => Kind::Number { whole: type_name == "integer" },
            (None, "string") => {
                let fits =
                    |kind: &&TextKind| kind.words.is_empty() || words.iter().any(|word| one_of(word, &kind.words));
                let kind = WORDS.kinds.iter().filter(fits).max_by_key(|kind| kind.rank);
                kind.map_or(Kind::Structured, Kind::Text)
            }
            _ => Kind::Structured,
        };
        Self { name, words, required, kind, schema }
    }

    pub(super) fn description(&self) -> &str {
        self.schema["description"].as_str().unwrap_or_default()
    }

    /// Whether a number is within the limits of the schema.
    pub(super) fn allows(&self, value: f64) -> bool {
        let limit = |name: &str, default: f64| self.schema[name].as_f64().unwrap_or(default);
        (limit("minimum", f64::MIN)..=limit("maximum", f64::MAX)).contains(&value)
    }

    /// Whether the schema wants a text in a form that is not spoken: a formatted date, a mail address.
    pub(super) fn wants_format(&self) -> bool {
        let described = self.description();
        let is_formatted = self.schema["format"].is_string() || self.schema["pattern"].is_string();
        is_formatted || described.contains("YYYY") || described.contains("ISO")
    }

    /// The question for its value.
    pub(super) fn question(&self) -> String {
        let name = self.words.join(" ");
        match &self.kind {
            Kind::Choice(choices) => {
                let choices: Vec<String> = choices.iter().map(|choice| spoken_choice(choice)).collect();
                format!("Which {name}: {}?", and_list(&choices).replace(" and ", " or "))
            }
            Kind::Switch => format!("Should {name} be on, yes or no?"),
            Kind::Number { .. } => match self.words.iter().find(|word| units::seconds(word).is_some()) {
                Some(unit) => format!("How many {}s?", singular(unit)),
                None => format!("What should the {name} be?"),
            },
            Kind::Text(kind) if kind.is_free() => format!("What should the {name} be?"),
            Kind::Text(_) | Kind::Structured => format!("Which {name}?"),
        }
    }
}

/// A choice as a person says it.
pub(super) fn spoken_choice(choice: &Value) -> String {
    choice.as_str().map_or_else(|| choice.to_string(), |text| words_of(text).join(" "))
}

/// `getWeather`, `get_weather`, `get-weather` and `HTTPGet` as lower-case words.
pub(super) fn words_of(identifier: &str) -> Vec<String> {
    let (mut words, mut before): (Vec<String>, char) = (Vec::new(), ' ');
    for c in identifier.chars().map(|c| if c.is_alphanumeric() { c } else { ' ' }) {
        if c != ' ' {
            match words.last_mut().filter(|_| before != ' ' && !(c.is_uppercase() && before.is_lowercase())) {
                Some(word) => word.extend(c.to_lowercase()),
                None => words.push(c.to_lowercase().collect()),
            }
        }
        before = c;
    }
    words
}

pub(super) fn is_verb(word: &str) -> bool {
    WORDS.verbs.iter().any(|row| one_of(word, row))
}

/// Whether the words hold one word, in singular or plural, or another word for it.
pub(super) fn says(words: &[String], wanted: &str) -> bool {
    let wanted = singular(wanted);
    let same = WORDS.same.iter().find(|row| one_of(&wanted, row));
    words.iter().map(|word| singular(word)).any(|word| word == wanted || same.is_some_and(|row| one_of(&word, row)))
}

/// `lights` and `cities` as `light` and `city`.
pub(super) fn singular(word: &str) -> String {
    if let Some(stem) = word.strip_suffix("ies").filter(|stem| stem.len() > 1) {
        return format!("{stem}y");
    }
    let stem = word.strip_suffix('s').filter(|stem| stem.len() > 2 && !stem.ends_with(['s', 'u', 'i']));
    stem.unwrap_or(word).to_owned()
}
