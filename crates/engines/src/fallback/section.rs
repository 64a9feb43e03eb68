//! How `[stt.fallback]` and its like are written: a table of the stage's keys; an empty one is no fallback.

use serde::de::{DeserializeOwned, Error};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Map, Value};

/// Writes an empty table for `None`.
pub(crate) fn serialize<T: Serialize, S: Serializer>(
    section: &Option<Box<T>>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    match section {
        Some(section) => section.serialize(serializer),
        None => Map::<String, Value>::new().serialize(serializer),
    }
}

/// Reads an empty table as `None`.
pub(crate) fn deserialize<'de, T, D>(deserializer: D) -> Result<Option<Box<T>>, D::Error>
where
    T: DeserializeOwned,
    D: Deserializer<'de>,
{
    let table = Map::<String, Value>::deserialize(deserializer)?;
    if table.is_empty() {
        return Ok(None);
    }
    serde_json::from_value(Value::Object(table)).map(|section| Some(Box::new(section))).map_err(D::Error::custom)
}
