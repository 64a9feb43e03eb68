//! Limits on the JSON that a client sends.
//!
//! Parsed JSON takes more memory than its text: a list element of two bytes (`0,`) takes 32 bytes or more, an object
//! with one field about 700. Each event is therefore weighed before a tree is built ([`Weight`]): its bytes excluding
//! audio and images, and its number of values. What a session keeps is bounded field by field; what is only forwarded is kept as
//! text ([`antiphon_types::Json`]). Audio and images are bounded by the message size; their base64 is a single string of the
//! same size.

use super::error::WireError;
use serde::Deserializer;
use serde::de::{DeserializeSeed, MapAccess, SeqAccess, Visitor};
use std::fmt;

/// Bytes of an event excluding audio and images: 1 MiB of text, more than any model reads, plus the JSON around it.
pub const MAX_EVENT_BYTES: usize = (1024 + 64) * 1024;
/// Values and field names in an event: twice as many as the largest allowed tool list has. As a tree they take at most
/// about 20 MiB while the event is parsed.
pub(super) const MAX_EVENT_VALUES: usize = 32 * 1024;
/// Bytes of an image as a data URL: an image of 1.5 MiB.
pub(super) const MAX_IMAGE_BYTES: usize = 2 * 1024 * 1024;
/// Number of images in an item.
pub(super) const MAX_IMAGES: usize = 8;
/// Bytes of the instructions for a voice: a few sentences.
pub(super) const MAX_VOICE_INSTRUCTIONS_BYTES: usize = 4 * 1024;
/// Bytes of the system prompt: about 60,000 tokens.
pub(super) const MAX_INSTRUCTIONS_BYTES: usize = 256 * 1024;
/// Total bytes of all tools of a session or a response, including schemas and descriptions; the limit for a remote
/// server's tool list is the same.
pub(super) const MAX_TOOLS_BYTES: usize = 256 * 1024;
/// Number of tools of a session or a response.
pub(super) const MAX_TOOLS: usize = 256;
/// Number of names in a filter of a remote server's tools; a session accepts 128 tools per server.
pub(super) const MAX_FILTER_NAMES: usize = 128;
/// Bytes of the transcription prompt; engines use a few hundred tokens of it.
pub(super) const MAX_PROMPT_BYTES: usize = 16 * 1024;
/// Number of transcription keywords, each of at most [`super::MAX_NAME_BYTES`].
pub(super) const MAX_KEYWORDS: usize = 256;
/// Number of input languages.
pub(super) const MAX_LANGUAGES: usize = 64;
/// Bytes of a setting that is echoed and has no effect.
pub(super) const MAX_ECHOED_BYTES: usize = 16 * 1024;
/// Number of metadata pairs, and characters of a name and a value, as documented by the protocol.
pub(super) const MAX_METADATA_PAIRS: usize = 16;
pub(super) const MAX_METADATA_NAME_CHARS: usize = 64;
pub(super) const MAX_METADATA_VALUE_CHARS: usize = 512;

/// The weight of an event, computed without building a tree.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Weight {
    /// Number of values and field names.
    pub(super) n_values: usize,
    /// Bytes of strings in fields named `audio` or `image_url`.
    n_media: usize,
}

impl Weight {
    /// Rejects an event that would take too much memory as a tree. `kind` is its type, `n_bytes` the length of the
    /// message.
    pub(super) fn check(&self, kind: &str, n_bytes: usize) -> Result<(), WireError> {
        let (holds_media, field) = match kind {
            "conversation.item.create" => (true, Some("item")),
            "response.create" => (true, Some("response")),
            "session.update" | "transcription_session.update" => (false, Some("session")),
            _ => (false, None),
        };
        let n_bytes = n_bytes - if holds_media { self.n_media.min(n_bytes) } else { 0 };
        let refuse = |what: String| {
            let message = format!("Invalid '{kind}' event: {what}.");
            Err(WireError::invalid("event_too_large", message, field))
        };
        if n_bytes > MAX_EVENT_BYTES {
            let beside = if holds_media { " beside its audio and images" } else { "" };
            return refuse(format!("it has {n_bytes} bytes{beside}, and may have at most {MAX_EVENT_BYTES}"));
        }
        if self.n_values > MAX_EVENT_VALUES {
            let n = self.n_values;
            return refuse(format!("it has {n} values and names of fields, and may have at most {MAX_EVENT_VALUES}"));
        }
        Ok(())
    }
}

/// Whether a tree of this JSON takes little memory: it has at most as many values and names of fields as a client's event. Text
/// that is no JSON is judged up to its first error, where a tree would end.
pub fn fits_tree(json: &str) -> bool {
    let mut weight = Weight::default();
    let mut from = serde_json::Deserializer::from_str(json);
    let _ = Weigh { weight: &mut weight, is_media: false }.deserialize(&mut from);
    weight.n_values <= MAX_EVENT_VALUES
}

/// Computes the weight of one value.
pub(super) struct Weigh<'a> {
    pub(super) weight: &'a mut Weight,
    pub(super) is_media: bool,
}

impl<'de> DeserializeSeed<'de> for Weigh<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<(), D::Error> {
        self.weight.n_values += 1;
        from.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Weigh<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E>(self, _: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        Ok(())
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_str<E>(self, text: &str) -> Result<(), E> {
        if self.is_media {
            self.weight.n_media += text.len();
        }
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        while list.next_element_seed(Weigh { weight: self.weight, is_media: false })?.is_some() {}
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(is_media) = map.next_key_seed(IsMedia)? {
            self.weight.n_values += 1;
            map.next_value_seed(Weigh { weight: self.weight, is_media })?;
        }
        Ok(())
    }
}

/// Deserializes a field name to whether it holds audio or an image.
struct IsMedia;

impl<'de> DeserializeSeed<'de> for IsMedia {
    type Value = bool;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<bool, D::Error> {
        from.deserialize_str(self)
    }
}

impl Visitor<'_> for IsMedia {
    type Value = bool;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the name of a field")
    }

    fn visit_str<E>(self, name: &str) -> Result<bool, E> {
        Ok(matches!(name, "audio" | "image_url"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn weigh(text: &str) -> Weight {
        let mut weight = Weight::default();
        let mut from = serde_json::Deserializer::from_str(text);
        Weigh { weight: &mut weight, is_media: false }.deserialize(&mut from).unwrap();
        weight
    }

    #[test]
    fn values_and_names_count_and_media_are_told_apart() {
        assert_eq!(weigh(r#"[0,1.5,-2,true,null,"a\n",{"b":{}}]"#), Weight { n_values: 10, n_media: 0 });
        let item = r#"{"content":[{"audio":"abcd"},{"image_url":["ab"]},{"image_url":"ef"}]}"#;
        assert_eq!(weigh(item), Weight { n_values: 13, n_media: 6 });
    }

    #[test]
    fn only_events_that_hold_media_may_be_long_by_them() {
        let weight = Weight { n_values: 1, n_media: 15 << 20 };
        weight.check("conversation.item.create", (15 << 20) + 100).unwrap();
        let error = weight.check("session.update", (15 << 20) + 100).unwrap_err();
        assert_eq!((error.code, error.param.as_deref()), (Some("event_too_large"), Some("session")));
        assert!(error.message.contains("at most 1114112"), "{}", error.message);
        let error = Weight { n_values: 40_000, n_media: 0 }.check("response.create", 100).unwrap_err();
        assert!(error.message.contains("at most 32768"), "{}", error.message);
    }
}
