//! The fields of a request's JSON, each with what is wrong with it.

use super::error::ApiError;
use serde_json::{Map, Value};

/// A body that is an object.
pub(super) struct Fields(Map<String, Value>);

impl Fields {
    pub(super) fn read(body: &[u8]) -> Result<Self, ApiError> {
        match serde_json::from_slice(body) {
            Ok(Value::Object(fields)) => Ok(Self(fields)),
            Ok(_) => Err(ApiError::invalid("invalid_json", None, "The body of the request is JSON, but no object.")),
            Err(error) => {
                let message = format!("We could not parse the JSON body of your request: {error}.");
                Err(ApiError::invalid("invalid_json", None, message))
            }
        }
    }

    /// A text; null and absent are none.
    pub(super) fn text(&self, name: &'static str) -> Result<Option<&str>, ApiError> {
        match self.0.get(name) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(other) => Err(wrong_type(name, "a string", other)),
        }
    }

    /// A text, or an object with one as its `id`.
    pub(super) fn text_or_id(&self, name: &'static str) -> Result<Option<&str>, ApiError> {
        match self.0.get(name) {
            Some(Value::Object(object)) => match object.get("id") {
                Some(Value::String(id)) => Ok(Some(id)),
                _ => Err(ApiError::invalid(
                    "invalid_type",
                    name,
                    format!("'{name}' is an object without a string 'id'."),
                )),
            },
            _ => self.text(name),
        }
    }

    /// An integer from 0 on.
    pub(super) fn whole(&self, name: &'static str) -> Result<Option<u64>, ApiError> {
        match self.0.get(name) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::Number(number)) if number.is_u64() => Ok(number.as_u64()),
            Some(other) => Err(wrong_type(name, "an integer from 0 on", other)),
        }
    }

    pub(super) fn number(&self, name: &'static str) -> Result<Option<f64>, ApiError> {
        match self.0.get(name) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::Number(number)) => Ok(number.as_f64()),
            Some(other) => Err(wrong_type(name, "a number", other)),
        }
    }
}

fn wrong_type(name: &'static str, expected: &str, got: &Value) -> ApiError {
    let got = match got {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
    };
    ApiError::invalid(
        "invalid_type",
        name,
        format!("Invalid type for '{name}': expected {expected}, but got {got} instead."),
    )
}
