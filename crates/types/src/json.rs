//! JSON that is forwarded without being inspected, such as the schema of a tool.

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;
use serde_json::value::RawValue;
use std::fmt;
use std::sync::Arc;

/// A JSON value as compact text. It occupies its length in bytes; a parsed tree takes ten times as much, and hundreds
/// of times as much for short elements. Cheap to clone.
#[derive(Clone, PartialEq, Eq)]
pub struct Json(Arc<str>);

impl Json {
    /// The JSON text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Length of the text in bytes.
    pub fn n_bytes(&self) -> usize {
        self.0.len()
    }

    /// Parses the text into a tree.
    pub fn value(&self) -> Value {
        serde_json::from_str(&self.0).unwrap_or(Value::Null)
    }
}

impl From<&Value> for Json {
    fn from(value: &Value) -> Self {
        Self(value.to_string().into())
    }
}

impl From<Value> for Json {
    fn from(value: Value) -> Self {
        Self::from(&value)
    }
}

impl fmt::Debug for Json {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Serialize for Json {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let raw: &RawValue = serde_json::from_str(&self.0).map_err(serde::ser::Error::custom)?;
        raw.serialize(to)
    }
}

impl<'de> Deserialize<'de> for Json {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        Value::deserialize(from).map(Self::from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn json_is_written_and_read_as_itself() {
        let schema = json!({"type": "object", "properties": {"x": {"enum": [1, "a", null]}}});
        let json = Json::from(&schema);
        assert_eq!(serde_json::to_string(&json).unwrap(), schema.to_string());
        assert_eq!(serde_json::to_value(&json).unwrap(), schema);
        assert_eq!(serde_json::from_value::<Json>(schema.clone()).unwrap(), json);
        assert_eq!((json.value(), json.n_bytes()), (schema.clone(), schema.to_string().len()));
    }
}
