//! What a client's JSON may hold. All limits stand here.
//!
//! JSON weighs more than its bytes once it is parsed: an element of a list takes 32 bytes and more for its two (`0,`), an object
//! of one field some 700. So an event is weighed before it becomes a tree ([`Weight`]): its bytes beside audio and its number of
//! values. What a session keeps is bounded field by field, and what is only passed on is kept as text ([`antiphon_types::Json`]).
//! Audio is bounded by the size of a message; its base64 is one string, which weighs what it is.

use super::error::WireError;
use serde::Deserializer;
use serde::de::{DeserializeSeed, MapAccess, SeqAccess, Visitor};
use std::fmt;

/// An event beside its audio: 1 MiB of text, more than any model reads, and what stands around it.
pub(super) const MAX_EVENT_BYTES: usize = (1024 + 64) * 1024;
/// Values and names of fields in an event: the largest tools there may be have half as many. As a tree they take some 20 MiB at
/// worst, while the event is read.
pub(super) const MAX_EVENT_VALUES: usize = 32 * 1024;
/// The system prompt: 60,000 tokens.
pub(super) const MAX_INSTRUCTIONS_BYTES: usize = 256 * 1024;
/// All tools of a session or a response together, schemas and descriptions included; as with a remote server's list.
pub(super) const MAX_TOOLS_BYTES: usize = 256 * 1024;
/// Tools of a session or a response.
pub(super) const MAX_TOOLS: usize = 256;
/// Names in one filter of a remote server's tools, of which a session takes 128.
pub(super) const MAX_FILTER_NAMES: usize = 128;
/// Words a recognizer is to expect; engines read a few hundred tokens.
pub(super) const MAX_PROMPT_BYTES: usize = 16 * 1024;
/// The same as a list, of words of [`super::MAX_NAME_BYTES`].
pub(super) const MAX_KEYWORDS: usize = 256;
/// Languages of an input.
pub(super) const MAX_LANGUAGES: usize = 64;
/// A setting that is echoed and has no effect here.
pub(super) const MAX_ECHOED_BYTES: usize = 16 * 1024;
/// Metadata, as the protocol documents it: pairs, and characters of a name and a value.
pub(super) const MAX_METADATA_PAIRS: usize = 16;
pub(super) const MAX_METADATA_NAME_CHARS: usize = 64;
pub(super) const MAX_METADATA_VALUE_CHARS: usize = 512;

/// What an event weighs, found without building anything.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Weight {
    /// Values, and names of fields.
    pub(super) n_values: usize,
    /// Bytes of strings called `audio`.
    n_audio: usize,
}

impl Weight {
    /// Refuses what would take too much memory as a tree. `kind` is the event's, `n_bytes` the message's length.
    pub(super) fn check(&self, kind: &str, n_bytes: usize) -> Result<(), WireError> {
        let (holds_audio, field) = match kind {
            "conversation.item.create" => (true, Some("item")),
            "response.create" => (true, Some("response")),
            "session.update" | "transcription_session.update" => (false, Some("session")),
            _ => (false, None),
        };
        let n_bytes = n_bytes - if holds_audio { self.n_audio.min(n_bytes) } else { 0 };
        let refuse = |what: String| {
            let message = format!("Invalid '{kind}' event: {what}.");
            Err(WireError::invalid("event_too_large", message, field))
        };
        if n_bytes > MAX_EVENT_BYTES {
            let beside = if holds_audio { " beside its audio" } else { "" };
            return refuse(format!("it has {n_bytes} bytes{beside}, and may have at most {MAX_EVENT_BYTES}"));
        }
        if self.n_values > MAX_EVENT_VALUES {
            let n = self.n_values;
            return refuse(format!("it has {n} values and names of fields, and may have at most {MAX_EVENT_VALUES}"));
        }
        Ok(())
    }
}

/// Weighs one value.
pub(super) struct Weigh<'a> {
    pub(super) weight: &'a mut Weight,
    pub(super) is_audio: bool,
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
        if self.is_audio {
            self.weight.n_audio += text.len();
        }
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        while list.next_element_seed(Weigh { weight: self.weight, is_audio: false })?.is_some() {}
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(is_audio) = map.next_key_seed(IsAudio)? {
            self.weight.n_values += 1;
            map.next_value_seed(Weigh { weight: self.weight, is_audio })?;
        }
        Ok(())
    }
}

/// Whether a field is called `audio`.
struct IsAudio;

impl<'de> DeserializeSeed<'de> for IsAudio {
    type Value = bool;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<bool, D::Error> {
        from.deserialize_str(self)
    }
}

impl Visitor<'_> for IsAudio {
    type Value = bool;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the name of a field")
    }

    fn visit_str<E>(self, name: &str) -> Result<bool, E> {
        Ok(name == "audio")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn weigh(text: &str) -> Weight {
        let mut weight = Weight::default();
        let mut from = serde_json::Deserializer::from_str(text);
        Weigh { weight: &mut weight, is_audio: false }.deserialize(&mut from).unwrap();
        weight
    }

    #[test]
    fn values_and_names_count_and_audio_is_told_apart() {
        assert_eq!(weigh(r#"[0,1.5,-2,true,null,"a\n",{"b":{}}]"#), Weight { n_values: 10, n_audio: 0 });
        let item = r#"{"content":[{"audio":"abcd"},{"audio":["ab"]},{"text":"audio"}]}"#;
        assert_eq!(weigh(item), Weight { n_values: 13, n_audio: 4 });
    }

    #[test]
    fn only_events_that_hold_audio_may_be_long_by_it() {
        let weight = Weight { n_values: 1, n_audio: 15 << 20 };
        weight.check("conversation.item.create", (15 << 20) + 100).unwrap();
        let error = weight.check("session.update", (15 << 20) + 100).unwrap_err();
        assert_eq!((error.code, error.param.as_deref()), (Some("event_too_large"), Some("session")));
        assert!(error.message.contains("at most 1114112"), "{}", error.message);
        let error = Weight { n_values: 40_000, n_audio: 0 }.check("response.create", 100).unwrap_err();
        assert!(error.message.contains("at most 32768"), "{}", error.message);
    }
}
