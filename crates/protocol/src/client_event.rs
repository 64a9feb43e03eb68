//! Parses the text messages of a client.
//!
//! [`parse`] scans the head of a message first, without building a tree. `input_audio_buffer.append`, which arrives
//! fifty times a second, needs only this scan. For all other events the scan also checks the size, because a tree takes
//! many times the bytes of its text; then the fields are read from a tree. The client's `event_id` is found even if the
//! rest is invalid, so that the error can refer to it.

use super::error::WireError;
use super::item::{Item, decode_audio, read_item_id};
use super::limits::{Weigh, Weight};
use super::played::{ClockPing, PlayedReport};
use super::read::{Fields, Node, Read, UnknownFields, bad, missing, not_among, wrong_type};
use super::response::ResponseParams;
use super::session_update::SessionUpdate;
use super::setting::MAX_NAME_BYTES;
use antiphon_types::{ItemId, ResponseId};
use bytes::Bytes;
use serde::de::{DeserializeSeed, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use std::fmt;

/// An event from a client.
#[derive(Clone, Debug, PartialEq)]
pub enum ClientEvent {
    /// `session.update`
    SessionUpdate(Box<SessionUpdate>),
    /// `input_audio_buffer.append`
    InputAudioAppend {
        /// Audio in the session's input format, not empty; its length is not checked here.
        audio: Bytes,
    },
    /// `input_audio_buffer.commit`
    InputAudioCommit,
    /// `input_audio_buffer.clear`
    InputAudioClear,
    /// `output_audio_buffer.clear`
    OutputAudioClear,
    /// `output_audio_buffer.played`, an extension: a playback report.
    OutputAudioPlayed(Box<PlayedReport>),
    /// `antiphon.clock.ping`, an extension: a reading of the client's clock.
    ClockPing(ClockPing),
    /// `conversation.item.create`
    ItemCreate {
        /// Position in the conversation.
        position: Position,
        /// The item; the client may choose `item.id`.
        item: Box<Item>,
    },
    /// `conversation.item.delete`
    ItemDelete {
        /// Identifier of the item.
        item_id: ItemId,
    },
    /// `conversation.item.retrieve`
    ItemRetrieve {
        /// Identifier of the item.
        item_id: ItemId,
    },
    /// `conversation.item.truncate`
    ItemTruncate {
        /// Identifier of the item.
        item_id: ItemId,
        /// Index of the content part.
        content_index: u32,
        /// Length of the audio to keep, in milliseconds.
        audio_end_ms: u32,
    },
    /// `response.create`
    ResponseCreate(Box<ResponseParams>),
    /// `response.cancel`
    ResponseCancel {
        /// The response to cancel; `None`: the active response of the conversation.
        response_id: Option<ResponseId>,
    },
}

/// Position of a created item in the conversation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Position {
    /// No `previous_item_id`: at the end.
    #[default]
    End,
    /// `"root"`: at the beginning.
    Root,
    /// After this item.
    After(ItemId),
}

/// An event with its event id.
#[derive(Clone, Debug, PartialEq)]
pub struct Incoming {
    /// Event id chosen by the client; errors refer to it.
    pub event_id: Option<String>,
    /// The event.
    pub event: ClientEvent,
}

type Reader = fn(&mut Fields) -> Read<ClientEvent>;

const APPEND: &str = "input_audio_buffer.append";
const MAX_EVENT_ID_BYTES: usize = 512;

/// The reader of each event type except [`APPEND`].
const EVENTS: &[(&str, Reader)] = &[
    ("session.update", |fields| {
        Ok(ClientEvent::SessionUpdate(Box::new(fields.required("session", SessionUpdate::read)?)))
    }),
    ("input_audio_buffer.commit", |_| Ok(ClientEvent::InputAudioCommit)),
    ("input_audio_buffer.clear", |_| Ok(ClientEvent::InputAudioClear)),
    ("output_audio_buffer.clear", |_| Ok(ClientEvent::OutputAudioClear)),
    ("output_audio_buffer.played", |fields| Ok(ClientEvent::OutputAudioPlayed(Box::new(PlayedReport::read(fields)?)))),
    ("antiphon.clock.ping", |fields| Ok(ClientEvent::ClockPing(ClockPing::read(fields)?))),
    ("conversation.item.create", |fields| {
        let position = match fields.optional("previous_item_id", read_item_id)? {
            None => Position::End,
            Some(id) if id.as_str() == "root" => Position::Root,
            Some(id) => Position::After(id),
        };
        Ok(ClientEvent::ItemCreate { position, item: Box::new(fields.required("item", Item::read)?) })
    }),
    ("conversation.item.delete", |fields| Ok(ClientEvent::ItemDelete { item_id: item_id(fields)? })),
    ("conversation.item.retrieve", |fields| Ok(ClientEvent::ItemRetrieve { item_id: item_id(fields)? })),
    ("conversation.item.truncate", |fields| {
        Ok(ClientEvent::ItemTruncate {
            item_id: item_id(fields)?,
            content_index: fields.required("content_index", any_u32)?,
            audio_end_ms: fields.required("audio_end_ms", any_u32)?,
        })
    }),
    ("response.create", |fields| {
        let params = fields.optional("response", ResponseParams::read)?.unwrap_or_default();
        Ok(ClientEvent::ResponseCreate(Box::new(params)))
    }),
    ("response.cancel", |fields| {
        let id = fields.optional("response_id", |node| node.name(MAX_NAME_BYTES))?;
        Ok(ClientEvent::ResponseCancel { response_id: id.map(ResponseId::from) })
    }),
];

/// Parses one text message and rejects unknown fields, as OpenAI's server does. Never panics.
pub fn parse(text: &str) -> Result<Incoming, WireError> {
    parse_with(text, UnknownFields::Refuse)
}

/// Parses one text message like [`parse`], with a policy for unknown fields. Unknown fields of
/// `input_audio_buffer.append` are always ignored.
pub fn parse_with(text: &str, unknown: UnknownFields) -> Result<Incoming, WireError> {
    let mut head = Head::default();
    let read = head.read(text);
    let event_id = head.event_id();
    let answering = event_id.as_ref().ok().and_then(|id| id.as_deref());
    let event = read.and_then(|()| read_event(&head, text, unknown)).map_err(|error| error.answering(answering))?;
    Ok(Incoming { event_id: event_id?, event })
}

/// Rejects a message that would need too much memory as a tree, for callers that build a tree before parsing. All other
/// errors are left to [`parse_with`].
pub(super) fn check_weight(text: &str) -> Result<(), WireError> {
    let mut head = Head::default();
    let Ok(()) = head.read(text) else { return Ok(()) };
    let Some(Ok(kind)) = head.kind.map(|raw| string("type", raw)) else { return Ok(()) };
    if kind == APPEND {
        return Ok(());
    }
    let event_id = head.event_id().ok().flatten();
    let weight = head.tree_weight();
    weight.and_then(|weight| weight.check(&kind, text.len())).map_err(|error| error.answering(event_id.as_deref()))
}

fn read_event(head: &Head<'_>, text: &str, unknown: UnknownFields) -> Read<ClientEvent> {
    let kind = head.kind.filter(|raw| raw.get() != "null");
    let kind = kind.ok_or_else(|| WireError::invalid("invalid_event", "The 'type' field is missing.", None))?;
    let kind = string("type", kind)?;
    if kind == APPEND {
        let audio = head.audio.ok_or_else(|| missing("audio"))?;
        return Ok(ClientEvent::InputAudioAppend { audio: decode_audio("audio", &string("audio", audio)?)? });
    }
    let Some((_, read)) = EVENTS.iter().find(|(name, _)| *name == kind) else {
        let names = EVENTS.iter().map(|(name, _)| *name).chain([APPEND]);
        return Err(not_among("type", &kind, names));
    };
    head.tree_weight()?.check(&kind, text.len())?;
    let map = serde_json::from_str(text).map_err(not_json)?;
    let mut fields = Fields::top(map, unknown);
    fields.pass_over(&["type", "event_id"]);
    let event = read(&mut fields)?;
    fields.finish()?;
    Ok(event)
}

fn item_id(fields: &mut Fields) -> Read<ItemId> {
    fields.required("item_id", read_item_id)
}

fn any_u32(node: Node) -> Read<u32> {
    node.integer(0..=u32::MAX)
}

fn not_json(error: serde_json::Error) -> WireError {
    WireError::invalid("invalid_json", format!("Invalid event: failed to parse JSON value. {error}"), None)
}

/// The top-level fields that are needed before a tree is built.
#[derive(Default)]
struct Head<'a> {
    kind: Option<&'a RawValue>,
    event_id: Option<&'a RawValue>,
    audio: Option<&'a RawValue>,
    /// Weight of the other fields, and of earlier values of these.
    weight: Weight,
}

#[derive(Deserialize)]
#[serde(field_identifier, rename_all = "snake_case")]
enum Key {
    Type,
    EventId,
    Audio,
    #[serde(other)]
    Other,
}

impl<'a> Head<'a> {
    /// Reads the fields up to the end of the message or the first syntax error.
    fn read(&mut self, text: &'a str) -> Read<()> {
        let mut from = serde_json::Deserializer::from_str(text);
        self.deserialize(&mut from).and_then(|()| from.end()).map_err(|error| match error.is_data() {
            true => WireError::invalid("invalid_event", "Invalid event: expected a JSON object.", None),
            false => not_json(error),
        })
    }

    /// Weight of a tree of the message, whose `type` is a string.
    fn tree_weight(&self) -> Read<Weight> {
        let mut weight = self.weight;
        for raw in [self.event_id, self.audio].into_iter().flatten() {
            weigh(raw, &mut weight).map_err(not_json)?;
        }
        Ok(weight)
    }

    fn event_id(&self) -> Read<Option<String>> {
        let Some(raw) = self.event_id.filter(|raw| raw.get() != "null") else { return Ok(None) };
        let id = string("event_id", raw)?;
        if id.len() > MAX_EVENT_ID_BYTES {
            let problem = format!("string too long. Expected at most {MAX_EVENT_ID_BYTES} bytes");
            return Err(bad("event_id", "string_above_max_length", &problem));
        }
        Ok(Some(id.into_owned()))
    }
}

impl<'de> DeserializeSeed<'de> for &mut Head<'de> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<(), D::Error> {
        from.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for &mut Head<'de> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(key) = map.next_key()? {
            let earlier = match key {
                Key::Type => self.kind.replace(map.next_value()?),
                Key::EventId => self.event_id.replace(map.next_value()?),
                Key::Audio => self.audio.replace(map.next_value()?),
                Key::Other => {
                    self.weight.n_values += 1;
                    map.next_value_seed(Weigh { weight: &mut self.weight, is_media: false })?;
                    None
                }
            };
            // The last value of a name counts, and a tree is made of each. It ends at the error that ends the weighing.
            if let Some(earlier) = earlier {
                let _ = weigh(earlier, &mut self.weight);
            }
        }
        Ok(())
    }
}

/// Adds the weight of a value.
fn weigh(raw: &RawValue, weight: &mut Weight) -> Result<(), serde_json::Error> {
    let mut from = serde_json::Deserializer::from_str(raw.get());
    Weigh { weight, is_media: false }.deserialize(&mut from)
}

/// The content of a JSON string, borrowed unless it contains escapes. No tree is made of another value, whose size is not
/// checked.
fn string<'a>(path: &str, raw: &'a RawValue) -> Read<std::borrow::Cow<'a, str>> {
    let json = raw.get();
    if let Some(inner) = json.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'))
        && !inner.contains('\\')
    {
        return Ok(inner.into());
    }
    let other = match json.as_bytes().first() {
        Some(b'[') => Value::Array(Vec::new()),
        Some(b'{') => Value::Object(Map::new()),
        _ => serde_json::from_str(json).map_err(not_json)?,
    };
    match other {
        Value::String(text) => Ok(text.into()),
        Value::Null => Err(missing(path)),
        other => Err(wrong_type(path, "a string", &other)),
    }
}

#[cfg(test)]
#[path = "client_event_tests.rs"]
mod tests;
