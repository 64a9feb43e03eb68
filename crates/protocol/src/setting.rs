//! Settings shared by sessions and responses: modality, audio format, token limit, voice, metadata.

use super::limits::{MAX_METADATA_NAME_CHARS, MAX_METADATA_PAIRS, MAX_METADATA_VALUE_CHARS};
use super::read::{Fields, Node, Read, bad, not_among, wrong_type};
use serde::{Serialize, Serializer};
use serde_json::Value;
use std::collections::BTreeMap;

/// The longest identifier or name chosen by a client, in bytes. A binary frame can hold an item id of at most 255.
pub const MAX_NAME_BYTES: usize = 128;

/// Output modality of a response; on the wire a list of exactly one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Modality {
    /// `["audio"]`: speech and its transcript.
    Audio,
    /// `["text"]`
    Text,
}

impl Serialize for Modality {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Audio => ["audio"].serialize(to),
            Self::Text => ["text"].serialize(to),
        }
    }
}

impl Modality {
    pub(super) fn read(node: Node) -> Read<Self> {
        let path = node.path().to_owned();
        let names = node.list(Node::text)?;
        match names.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
            ["audio"] => Ok(Self::Audio),
            ["text"] => Ok(Self::Text),
            _ => {
                let problem = "unsupported combination. Supported combinations are: ['text'] and ['audio']";
                Err(bad(&path, "invalid_value", problem))
            }
        }
    }
}

/// Audio format inside JSON events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AudioFormat {
    /// `audio/pcm`: signed 16-bit little-endian, mono, 24 kHz.
    Pcm,
    /// `audio/pcmu`: G.711 u-law, 8 kHz.
    Pcmu,
    /// `audio/pcma`: G.711 A-law, 8 kHz.
    Pcma,
}

impl Serialize for AudioFormat {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Shape {
            r#type: &'static str,
            #[serde(skip_serializing_if = "Option::is_none")]
            rate: Option<u32>,
        }
        let (r#type, rate) = match self {
            Self::Pcm => ("audio/pcm", Some(24_000)),
            Self::Pcmu => ("audio/pcmu", None),
            Self::Pcma => ("audio/pcma", None),
        };
        Shape { r#type, rate }.serialize(to)
    }
}

impl AudioFormat {
    pub(super) fn read(node: Node) -> Read<Self> {
        let mut fields = node.object()?;
        let names = [("audio/pcm", Self::Pcm), ("audio/pcmu", Self::Pcmu), ("audio/pcma", Self::Pcma)];
        let format = fields.required("type", |node| node.one_of(&names))?;
        let rate = if format == Self::Pcm { 24_000 } else { 8_000 };
        fields.optional("rate", |node| node.integer(rate..=rate))?;
        fields.finish()?;
        Ok(format)
    }
}

/// Limit on output tokens per response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MaxTokens {
    /// 1 to 4096.
    Limit(u32),
    /// `"inf"`: the model's own limit.
    Inf,
}

impl Serialize for MaxTokens {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Limit(n) => to.serialize_u32(*n),
            Self::Inf => to.serialize_str("inf"),
        }
    }
}

impl MaxTokens {
    pub(super) fn read(node: Node) -> Read<Self> {
        if node.is_string() {
            return node.one_of(&[("inf", Self::Inf)]);
        }
        node.integer(1..=4096).map(Self::Limit)
    }
}

/// Reads a voice: a name, or an object with an id.
pub(super) fn read_voice(node: Node) -> Read<String> {
    if node.is_string() {
        return node.name(MAX_NAME_BYTES);
    }
    let mut fields = node.object()?;
    let id = fields.required("id", |node| node.name(MAX_NAME_BYTES))?;
    fields.finish()?;
    Ok(id)
}

/// Reads metadata: a few short pairs of strings.
pub(super) fn read_metadata(node: Node) -> Read<BTreeMap<String, String>> {
    let path = node.path().to_owned();
    let pairs = node.object()?.rest();
    if pairs.len() > MAX_METADATA_PAIRS {
        let problem = format!("too many pairs. Expected at most {MAX_METADATA_PAIRS}, but got {} instead", pairs.len());
        return Err(bad(&path, "object_above_max_properties", &problem));
    }
    let within = |text: &str, max: usize| text.char_indices().nth(max).is_none();
    let too_long = |path: &str, what: &str, max: usize| {
        let problem = format!("{what} too long. Expected at most {max} characters");
        Err(bad(path, "string_above_max_length", &problem))
    };
    let read = |(key, value): (String, Value)| match value {
        _ if !within(&key, MAX_METADATA_NAME_CHARS) => too_long(&path, "name", MAX_METADATA_NAME_CHARS),
        Value::String(text) if !within(&text, MAX_METADATA_VALUE_CHARS) => {
            too_long(&format!("{path}.{key}"), "string", MAX_METADATA_VALUE_CHARS)
        }
        Value::String(text) => Ok((key, text)),
        other => Err(wrong_type(&format!("{path}.{key}"), "a string", &other)),
    };
    pairs.into_iter().map(read).collect()
}

/// Reads the `type` of a tagged object; fails if it is not one of `names`.
pub(super) fn read_type(fields: &mut Fields, names: &[&'static str]) -> Read<&'static str> {
    let path = fields.path_of("type");
    let text = fields.required("type", Node::text)?;
    names.iter().find(|name| **name == text).copied().ok_or_else(|| not_among(&path, &text, names.iter().copied()))
}
