//! The fields of a request's JSON, each with what is wrong with it.

use super::error::ApiError;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value};

/// A body that is an object.
pub(super) struct Fields(Map<String, Value>);

/// The fields that are read.
#[derive(Deserialize)]
struct Known<'a> {
    #[serde(borrow)]
    input: Option<&'a RawValue>,
    #[serde(borrow)]
    instructions: Option<&'a RawValue>,
    #[serde(borrow)]
    model: Option<&'a RawValue>,
    #[serde(borrow)]
    response_format: Option<&'a RawValue>,
    #[serde(borrow)]
    seed: Option<&'a RawValue>,
    #[serde(borrow)]
    speed: Option<&'a RawValue>,
    #[serde(borrow)]
    stream_format: Option<&'a RawValue>,
    #[serde(borrow)]
    voice: Option<&'a RawValue>,
}

impl Fields {
    /// Reads the fields of a request for speech. Others are left alone.
    pub(super) fn read(body: &[u8]) -> Result<Self, ApiError> {
        let wrong = |error: serde_json::Error| {
            let message = format!("We could not parse the JSON body of your request: {error}.");
            ApiError::invalid("invalid_json", None, message)
        };
        // serde would also accept a list of the fields in order.
        if body.trim_ascii_start().first().is_some_and(|first| *first != b'{') {
            return Err(ApiError::invalid("invalid_json", None, "The body of the request is no JSON object."));
        }
        let known: Known<'_> = serde_json::from_slice(body).map_err(wrong)?;
        let fields = [
            ("input", known.input),
            ("instructions", known.instructions),
            ("model", known.model),
            ("response_format", known.response_format),
            ("seed", known.seed),
            ("speed", known.speed),
            ("stream_format", known.stream_format),
            ("voice", known.voice),
        ];
        let mut given = Map::new();
        for (name, raw) in fields {
            let Some(raw) = raw else { continue };
            given.insert(name.to_owned(), outline(raw).map_err(wrong)?);
        }
        Ok(Self(given))
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

/// A value without what nothing reads: the elements of a list, and all of an object but the text `id`. A tree of these can take a
/// hundred times the bytes of the body.
fn outline(raw: &RawValue) -> Result<Value, serde_json::Error> {
    #[derive(Deserialize)]
    struct Reference<'a> {
        #[serde(borrow)]
        id: Option<&'a RawValue>,
    }
    let json = raw.get();
    match json.as_bytes().first() {
        Some(b'[') => Ok(Value::Array(Vec::new())),
        Some(b'{') => {
            let Reference { id } = serde_json::from_str(json)?;
            let mut object = Map::new();
            if let Some(id) = id.filter(|id| id.get().starts_with('"')) {
                object.insert("id".to_owned(), serde_json::from_str(id.get())?);
            }
            Ok(Value::Object(object))
        }
        _ => serde_json::from_str(json),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_tree_is_made_of_what_nothing_reads() {
        // A tree would be refused for its depth.
        let deep = format!("{}{}", "[".repeat(200), "]".repeat(200));
        let body = format!(r#"{{"input":"Hello.","voice":{{"x":{deep},"id":"tone"}},"model":{deep},"other":{deep}}}"#);
        let fields = Fields::read(body.as_bytes()).expect("it is read");
        assert_eq!(fields.text("input"), Ok(Some("Hello.")));
        assert_eq!(fields.text_or_id("voice"), Ok(Some("tone")));
        let error = fields.text("model").expect_err("it is no text");
        assert_eq!((error.code, error.param), ("invalid_type", Some("model")));
        assert!(error.message.contains("got an array"), "{}", error.message);
    }
}
