//! Reading a client's JSON field by field, so that every refusal names the full path of what is wrong.
//!
//! Derived deserializers cannot tell "absent" from "null", nor give the protocol's codes and dotted paths; hence these
//! two: a [`Node`] is a value and its path, [`Fields`] an object whose fields are taken one after the other until
//! [`Fields::finish`] refuses what is left over. Used by the readers of this module only.

use super::error::WireError;
use antiphon_types::Json;
use serde_json::{Map, Value};
use std::ops::RangeInclusive;

/// The result of every reader here.
pub(super) type Read<T> = Result<T, WireError>;

/// What happens to a field nobody knows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum UnknownFields {
    /// `unknown_parameter`, as the original does.
    #[default]
    Refuse,
    /// Passed over.
    Ignore,
}

/// A field of a partial update.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Patch<T> {
    /// Absent: stays as it is.
    #[default]
    Keep,
    /// `null`: switched off.
    Clear,
    /// A value: replaces, or is merged into, the present one.
    Set(T),
}

/// A value and where it stands.
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

    /// Whatever it is.
    pub fn any(self) -> Value {
        self.value
    }

    /// Its bytes as compact JSON, where a list or an object may have at most `max`.
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

    /// Whatever it is, as text of at most `max` bytes.
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

    /// As [`Self::list`], of at most `max` elements.
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
        // Some clients' languages have one number type and write 500.0.
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

    /// Every element through `read`; its path ends in `[index]`.
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

/// Counts what is written.
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

/// An object being read.
pub(super) struct Fields {
    path: String,
    map: Map<String, Value>,
    unknown: UnknownFields,
}

impl Fields {
    /// The event itself: its fields' paths have no prefix.
    pub fn top(map: Map<String, Value>, unknown: UnknownFields) -> Self {
        Self { path: String::new(), map, unknown }
    }

    pub fn path_of(&self, name: &str) -> String {
        if self.path.is_empty() { name.to_owned() } else { format!("{}.{name}", self.path) }
    }

    /// The field, if it is there; `null` is there.
    pub fn node(&mut self, name: &str) -> Option<Node> {
        let value = self.map.remove(name)?;
        Some(Node { path: self.path_of(name), value, unknown: self.unknown })
    }

    /// `None` when absent or null.
    pub fn optional<T>(&mut self, name: &str, read: impl FnOnce(Node) -> Read<T>) -> Read<Option<T>> {
        match self.node(name) {
            Some(node) if !node.value.is_null() => read(node).map(Some),
            _ => Ok(None),
        }
    }

    /// Absent, null and a value told apart.
    pub fn patch<T>(&mut self, name: &str, read: impl FnOnce(Node) -> Read<T>) -> Read<Patch<T>> {
        match self.node(name) {
            None => Ok(Patch::Keep),
            Some(node) if node.value.is_null() => Ok(Patch::Clear),
            Some(node) => read(node).map(Patch::Set),
        }
    }

    /// Refused with `missing_required_parameter` when absent or null.
    pub fn required<T>(&mut self, name: &str, read: impl FnOnce(Node) -> Read<T>) -> Read<T> {
        self.optional(name, read)?.ok_or_else(|| missing(&self.path_of(name)))
    }

    /// Fields that are known and mean nothing here.
    pub fn pass_over(&mut self, names: &[&str]) {
        for name in names {
            self.map.remove(*name);
        }
    }

    /// Everything not yet taken, as it is.
    pub fn rest(self) -> Map<String, Value> {
        self.map
    }

    /// Refuses what nobody took.
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

/// `invalid_value`: `'text'` is none of `names`.
pub(super) fn not_among<'a>(path: &str, text: &str, names: impl Iterator<Item = &'a str>) -> WireError {
    let names: Vec<_> = names.map(|name| format!("'{name}'")).collect();
    let list = match names.as_slice() {
        [] => String::new(),
        [one] => one.clone(),
        [a, b] => format!("{a} and {b}"),
        [rest @ .., last] => format!("{}, and {last}", rest.join(", ")),
    };
    // A client's own text is echoed only as far as a person would read it.
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
