//! Reads a client's JSON field by field, so that every error states the full path of the invalid value.
//!
//! Derived deserializers cannot distinguish absent from null, and cannot produce the protocol's codes and dotted paths.
//! A [`Node`] is a value with its path; [`Fields`] is an object whose fields are taken one by one until
//! [`Fields::finish`] rejects the remaining ones. Used only inside this crate.

use super::error::WireError;
use antiphon_types::Json;
use serde_json::{Map, Value};
use std::ops::RangeInclusive;

/// The result of every reader in this module.
pub(super) type Read<T> = Result<T, WireError>;

/// Policy for unknown fields.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum UnknownFields {
    /// Reject with `unknown_parameter`, as OpenAI's server does.
    #[default]
    Refuse,
    /// Ignore.
    Ignore,
}

/// A field of a partial update.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Patch<T> {
    /// Absent: unchanged.
    #[default]
    Keep,
    /// `null`: disabled.
    Clear,
    /// A value: replaces the present one or is merged into it.
    Set(T),
}

/// A value and its path.
pub(super) struct Node {
    path: String,
    value: Value,
    unknown: UnknownFields,
}

impl Node {
    pub fn path(&self) -> &str {
        &self.path
    }

    pub fn is_string(&self) -> bool {
        self.value.is_string()
    }

    pub fn is_list(&self) -> bool {
        self.value.is_array()
    }

    /// The value, unchecked.
    pub fn any(self) -> Value {
        self.value
    }

    /// Checks that the value takes at most `max` bytes as compact JSON.
    pub fn check_bytes(&self, max: usize) -> Read<()> {
        let mut counter = Counter(0);
        // Writing to a counter cannot fail.
        let _ = serde_json::to_writer(&mut counter, &self.value);
        if counter.0 > max {
            let problem = format!("it has {} bytes of JSON. Expected at most {max}", counter.0);
            return Err(bad(&self.path, "value_above_max_bytes", &problem));
        }
        Ok(())
    }

    /// Any value, as JSON text of at most `max` bytes.
    pub fn json(self, max: usize) -> Read<Json> {
        self.check_bytes(max)?;
        Ok(self.value.into())
    }

    /// A string of at most `max` bytes.
    pub fn text_within(self, max: usize) -> Read<String> {
        let path = self.path.clone();
        let text = self.text()?;
        if text.len() > max {
            let problem = format!("string too long. Expected at most {max} bytes, but got {} instead", text.len());
            return Err(bad(&path, "string_above_max_length", &problem));
        }
        Ok(text)
    }

    /// Reads a list like [`Self::list`], of at most `max` elements.
    pub fn list_within<T>(self, max: usize, read: impl Fn(Node) -> Read<T>) -> Read<Vec<T>> {
        if let Value::Array(values) = &self.value
            && values.len() > max
        {
            let problem = format!("array too long. Expected at most {max} elements, but got {} instead", values.len());
            return Err(bad(&self.path, "array_above_max_length", &problem));
        }
        self.list(read)
    }

    pub fn text(self) -> Read<String> {
        match self.value {
            Value::String(text) => Ok(text),
            other => Err(wrong_type(&self.path, "a string", &other)),
        }
    }

    /// A string of 1 to `max` bytes, for names and identifiers.
    pub fn name(self, max: usize) -> Read<String> {
        let path = self.path.clone();
        let text = self.text_within(max)?;
        if text.is_empty() {
            return Err(bad(&path, "empty_string", "empty string. Expected a string with minimum length 1"));
        }
        Ok(text)
    }

    pub fn flag(self) -> Read<bool> {
        self.value.as_bool().ok_or_else(|| wrong_type(&self.path, "a boolean", &self.value))
    }

    pub fn integer(self, range: RangeInclusive<u32>) -> Read<u32> {
        let Value::Number(number) = &self.value else {
            return Err(wrong_type(&self.path, "an integer", &self.value));
        };
        // Clients in languages with a single number type write 500.0.
        let Some(wide) = number.as_f64().filter(|x| x.fract() == 0.0) else {
            return Err(wrong_type(&self.path, "an integer", &self.value));
        };
        check_range(&self.path, "integer", wide, f64::from(*range.start()), f64::from(*range.end()))?;
        Ok(wide as u32)
    }

    pub fn decimal(self, range: RangeInclusive<f64>) -> Read<f64> {
        let number = self.value.as_f64().ok_or_else(|| wrong_type(&self.path, "a decimal", &self.value))?;
        check_range(&self.path, "decimal", number, *range.start(), *range.end())?;
        Ok(number)
    }

    pub fn one_of<T: Clone>(self, choices: &[(&str, T)]) -> Read<T> {
        let path = self.path.clone();
        let text = self.text()?;
        match choices.iter().find(|(name, _)| *name == text) {
            Some((_, choice)) => Ok(choice.clone()),
            None => Err(not_among(&path, &text, choices.iter().map(|(name, _)| *name))),
        }
    }

    pub fn object(self) -> Read<Fields> {
        match self.value {
            Value::Object(map) => Ok(Fields { path: self.path, map, unknown: self.unknown }),
            other => Err(wrong_type(&self.path, "an object", &other)),
        }
    }

    /// Reads a list; each element's path ends in `[index]`.
    pub fn list<T>(self, read: impl Fn(Node) -> Read<T>) -> Read<Vec<T>> {
        let Value::Array(values) = self.value else {
            return Err(wrong_type(&self.path, "an array", &self.value));
        };
        let nodes = values.into_iter().enumerate().map(|(i, value)| Node {
            path: format!("{}[{i}]", self.path),
            value,
            unknown: self.unknown,
        });
        nodes.map(read).collect()
    }
}

/// Counts the bytes written.
struct Counter(usize);

impl std::io::Write for Counter {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0 += bytes.len();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// An object whose fields are being read.
pub(super) struct Fields {
    path: String,
    map: Map<String, Value>,
    unknown: UnknownFields,
}

impl Fields {
    /// The event itself; the paths of its fields have no prefix.
    pub fn top(map: Map<String, Value>, unknown: UnknownFields) -> Self {
        Self { path: String::new(), map, unknown }
    }

    pub fn path_of(&self, name: &str) -> String {
        if self.path.is_empty() { name.to_owned() } else { format!("{}.{name}", self.path) }
    }

    /// Takes the field, if it is present; it may be `null`.
    pub fn node(&mut self, name: &str) -> Option<Node> {
        let value = self.map.remove(name)?;
        Some(Node { path: self.path_of(name), value, unknown: self.unknown })
    }

    /// Takes the field; `None` if it is absent or null.
    pub fn optional<T>(&mut self, name: &str, read: impl FnOnce(Node) -> Read<T>) -> Read<Option<T>> {
        match self.node(name) {
            Some(node) if !node.value.is_null() => read(node).map(Some),
            _ => Ok(None),
        }
    }

    /// Takes the field and distinguishes absent, null and a value.
    pub fn patch<T>(&mut self, name: &str, read: impl FnOnce(Node) -> Read<T>) -> Read<Patch<T>> {
        match self.node(name) {
            None => Ok(Patch::Keep),
            Some(node) if node.value.is_null() => Ok(Patch::Clear),
            Some(node) => read(node).map(Patch::Set),
        }
    }

    /// Takes the field; fails with `missing_required_parameter` if it is absent or null.
    pub fn required<T>(&mut self, name: &str, read: impl FnOnce(Node) -> Read<T>) -> Read<T> {
        self.optional(name, read)?.ok_or_else(|| missing(&self.path_of(name)))
    }

    /// Drops known fields that are ignored.
    pub fn pass_over(&mut self, names: &[&str]) {
        for name in names {
            self.map.remove(*name);
        }
    }

    /// Drops those of these fields that are null: clients with one type for all parts write the fields of the others so.
    pub fn pass_over_nulls(&mut self, names: &[&str]) {
        for name in names {
            if self.map.get(*name).is_some_and(Value::is_null) {
                self.map.remove(*name);
            }
        }
    }

    /// All fields not taken yet.
    pub fn rest(self) -> Map<String, Value> {
        self.map
    }

    /// Rejects the remaining fields according to the policy.
    pub fn finish(self) -> Read<()> {
        match self.map.keys().next() {
            Some(name) if self.unknown == UnknownFields::Refuse => {
                let path = self.path_of(name);
                Err(WireError::invalid("unknown_parameter", format!("Unknown parameter: '{path}'."), Some(&path)))
            }
            _ => Ok(()),
        }
    }
}

/// `invalid_value`: `text` is not one of `names`.
pub(super) fn not_among<'a>(path: &str, text: &str, names: impl Iterator<Item = &'a str>) -> WireError {
    let names: Vec<_> = names.map(|name| format!("'{name}'")).collect();
    let list = match names.as_slice() {
        [] => String::new(),
        [one] => one.clone(),
        [a, b] => format!("{a} and {b}"),
        [rest @ .., last] => format!("{}, and {last}", rest.join(", ")),
    };
    // Client text is echoed only to a readable length.
    let shown: String = text.chars().take(100).collect();
    let message = format!("Invalid value: '{shown}'. Supported values are: {list}.");
    WireError::invalid("invalid_value", message, Some(path))
}

pub(super) fn missing(path: &str) -> WireError {
    WireError::invalid("missing_required_parameter", format!("Missing required parameter: '{path}'."), Some(path))
}

/// `Invalid 'path': problem.`
pub(super) fn bad(path: &str, code: &'static str, problem: &str) -> WireError {
    WireError::invalid(code, format!("Invalid '{path}': {problem}."), Some(path))
}

pub(super) fn wrong_type(path: &str, expected: &str, got: &Value) -> WireError {
    let got = match got {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(number) if number.is_f64() => "a decimal",
        Value::Number(_) => "an integer",
        Value::String(_) => "a string",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
    };
    let message = format!("Invalid type for '{path}': expected {expected}, but got {got} instead.");
    WireError::invalid("invalid_type", message, Some(path))
}

fn check_range(path: &str, what: &str, got: f64, min: f64, max: f64) -> Read<()> {
    let integer = what == "integer";
    if got < min {
        let code = if integer { "integer_below_min_value" } else { "decimal_below_min_value" };
        let problem = format!("{what} below minimum value. Expected a value >= {min}, but got {got} instead");
        return Err(bad(path, code, &problem));
    }
    if got > max {
        let code = if integer { "integer_above_max_value" } else { "decimal_above_max_value" };
        let problem = format!("{what} above maximum value. Expected a value <= {max}, but got {got} instead");
        return Err(bad(path, code, &problem));
    }
    Ok(())
}
