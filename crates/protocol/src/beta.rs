//! Translates between the GA protocol and the beta protocol, for clients that send `OpenAI-Beta: realtime=v1`.
//!
//! A mapping at the edge of the protocol: [`incoming`] converts a client's JSON to GA before it is parsed, [`outgoing`]
//! converts GA events to beta. `dialect` calls both; no other code depends on them. Fields that already have their GA
//! name pass unchanged, so a client may mix both. Unknown fields keep their names and are rejected by the parser.

use super::server_event::{ServerEvent, encode};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use std::borrow::Cow;

type Object = Map<String, Value>;

/// Events that differ only in name: GA, beta.
const EVENTS: &[(&str, &str)] = &[
    ("response.output_audio.delta", "response.audio.delta"),
    ("response.output_audio.done", "response.audio.done"),
    ("response.output_audio_transcript.delta", "response.audio_transcript.delta"),
    ("response.output_audio_transcript.done", "response.audio_transcript.done"),
    ("response.output_text.delta", "response.text.delta"),
    ("response.output_text.done", "response.text.done"),
    ("conversation.item.added", "conversation.item.created"),
];

/// Content parts of assistant messages: GA, beta.
const PARTS: &[(&str, &str)] = &[("output_text", "text"), ("output_audio", "audio")];

const FORMATS: &[(&str, &str)] = &[("audio/pcm", "pcm16"), ("audio/pcmu", "g711_ulaw"), ("audio/pcma", "g711_alaw")];

/// Session settings: path in GA, name in beta. The shapes of the audio formats differ too.
const SETTINGS: &[(&[&str], &str)] = &[
    (&["output_modalities"], "modalities"),
    (&["max_output_tokens"], "max_response_output_tokens"),
    (&["audio", "input", "format"], "input_audio_format"),
    (&["audio", "input", "transcription"], "input_audio_transcription"),
    (&["audio", "input", "noise_reduction"], "input_audio_noise_reduction"),
    (&["audio", "input", "turn_detection"], "turn_detection"),
    (&["audio", "output", "format"], "output_audio_format"),
    (&["audio", "output", "voice"], "voice"),
    (&["audio", "output", "speed"], "speed"),
];

/// Settings that GA removed; they are ignored.
const GONE: &[&str] = &["temperature", "client_secret"];

/// Converts a client message to GA names. Text that is not JSON, or needs no change, is returned unchanged.
pub(super) fn incoming(text: &str) -> Cow<'_, str> {
    #[derive(Deserialize)]
    struct Head<'a> {
        #[serde(borrow)]
        r#type: Option<Cow<'a, str>>,
    }
    let kind = serde_json::from_str::<Head<'_>>(text).ok().and_then(|head| head.r#type);
    let change: fn(&mut Object) = match kind.as_deref() {
        Some("session.update") => |event| update(event, "realtime"),
        Some("transcription_session.update") => |event| update(event, "transcription"),
        Some("response.create") => respond,
        Some("conversation.item.create") => |event| with(event, "item", |item| parts(item, to_ga)),
        _ => return text.into(),
    };
    match serde_json::from_str(text) {
        Ok(Value::Object(mut event)) => {
            change(&mut event);
            Value::Object(event).to_string().into()
        }
        _ => text.into(),
    }
}

fn update(event: &mut Object, kind: &str) {
    event.insert("type".into(), "session.update".into());
    with(event, "session", |session| {
        if kind == "transcription" {
            // A transcription session has no other modality.
            session.remove("modalities");
        }
        settings_to_ga(session);
        session.entry("type").or_insert_with(|| kind.into());
    });
}

fn respond(event: &mut Object) {
    with(event, "response", |response| {
        settings_to_ga(response);
        if let Some(Value::Array(items)) = response.get_mut("input") {
            items.iter_mut().filter_map(Value::as_object_mut).for_each(|item| parts(item, to_ga));
        }
    });
}

fn settings_to_ga(session: &mut Object) {
    GONE.iter().for_each(|name| drop(session.remove(*name)));
    for (path, name) in SETTINGS {
        let Some(value) = session.remove(*name) else { continue };
        let value = match (*name, value) {
            ("modalities", value) => modalities_to_ga(value),
            ("input_audio_format" | "output_audio_format", Value::String(format)) => {
                json!({"type": to_ga(FORMATS, &format).unwrap_or(&format)})
            }
            (_, value) => value,
        };
        put(session, path, value);
    }
}

/// Beta's "text and audio" corresponds to GA's "audio", whose transcript is the text.
fn modalities_to_ga(value: Value) -> Value {
    let both = value
        .as_array()
        .is_some_and(|all| all.len() == 2 && ["text", "audio"].iter().all(|one| all.contains(&json!(one))));
    if both { json!(["audio"]) } else { value }
}

/// Whether beta has the event.
pub(super) fn has(event: &ServerEvent) -> bool {
    !matches!(event, ServerEvent::ItemDone { .. })
}

/// Converts an event that beta has to beta names.
pub(super) fn outgoing(event: &ServerEvent, event_id: &str) -> String {
    let text = encode(event, event_id);
    if let ServerEvent::OutputAudioDelta { .. } = event {
        // The most frequent event: only its type differs.
        return text.replacen("response.output_audio.delta", "response.audio.delta", 1);
    }
    let Ok(Value::Object(mut event)) = serde_json::from_str(&text) else { unreachable!("an event is an object") };
    if let Some(name) = event["type"].as_str().and_then(|kind| to_beta(EVENTS, kind)) {
        event.insert("type".into(), name.into());
    }
    with(&mut event, "item", |item| parts(item, to_beta));
    with(&mut event, "error", error);
    with(&mut event, "response", response);
    let mut transcribes = false;
    with(&mut event, "session", |session| transcribes = session_to_beta(session));
    if let Some(name) = event["type"].as_str().filter(|_| transcribes).map(|kind| format!("transcription_{kind}")) {
        event.insert("type".into(), name.into());
    }
    Value::Object(event).to_string()
}

fn response(response: &mut Object) {
    if let Some(Value::Array(items)) = response.get_mut("output") {
        items.iter_mut().filter_map(Value::as_object_mut).for_each(|item| parts(item, to_beta));
    }
    let most = response.get("max_output_tokens").cloned();
    settings_to_beta(response);
    // Here beta uses the GA name.
    response.remove("max_response_output_tokens");
    response.extend(most.map(|most| ("max_output_tokens".to_owned(), most)));
}

/// Returns whether it is a transcription session.
fn session_to_beta(session: &mut Object) -> bool {
    let kind = session.remove("type");
    settings_to_beta(session);
    kind.is_some_and(|kind| kind == "transcription")
}

fn settings_to_beta(session: &mut Object) {
    for (path, name) in SETTINGS {
        let Some(value) = take(session, path) else { continue };
        let value = match *name {
            "modalities" if value == json!(["audio"]) => json!(["text", "audio"]),
            "input_audio_format" | "output_audio_format" => {
                value["type"].as_str().and_then(|format| to_beta(FORMATS, format)).into()
            }
            _ => value,
        };
        session.insert((*name).into(), value);
    }
    session.remove("audio");
}

/// Replaces the paths and format names in an error by those of beta.
fn error(error: &mut Object) {
    for name in ["param", "message"] {
        let Some(Value::String(text)) = error.get_mut(name) else { continue };
        for root in ["session", "response"] {
            for (path, name) in SETTINGS {
                let ga = format!("{root}.{}", path.join("."));
                let beta = format!("{root}.{name}");
                if name.ends_with("_format") {
                    *text = text.replace(&format!("{ga}.type"), &beta);
                }
                *text = text.replace(&ga, &beta);
            }
        }
        for (ga, beta) in FORMATS {
            *text = text.replace(&format!("'{ga}'"), &format!("'{beta}'"));
        }
    }
}

type Rename = for<'a> fn(&[(&'a str, &'a str)], &str) -> Option<&'a str>;

fn to_ga<'a>(names: &[(&'a str, &'a str)], beta: &str) -> Option<&'a str> {
    names.iter().find(|(_, name)| *name == beta).map(|(name, _)| *name)
}

fn to_beta<'a>(names: &[(&'a str, &'a str)], ga: &str) -> Option<&'a str> {
    names.iter().find(|(name, _)| *name == ga).map(|(_, name)| *name)
}

/// Renames the types of an item's content parts.
fn parts(item: &mut Object, rename: Rename) {
    let Some(Value::Array(parts)) = item.get_mut("content") else { return };
    for part in parts.iter_mut().filter_map(Value::as_object_mut) {
        if let Some(name) = part.get("type").and_then(Value::as_str).and_then(|kind| rename(PARTS, kind)) {
            part.insert("type".into(), name.into());
        }
    }
}

fn with(event: &mut Object, name: &str, change: impl FnOnce(&mut Object)) {
    if let Some(Value::Object(inner)) = event.get_mut(name) {
        change(inner);
    }
}

/// Sets the value at `path`, creating objects as needed. A value on the path that is not an object is left unchanged,
/// and the parser rejects it.
fn put(object: &mut Object, path: &[&str], value: Value) {
    let [first, rest @ ..] = path else { return };
    if rest.is_empty() {
        object.insert((*first).into(), value);
    } else if let Value::Object(inner) = object.entry(*first).or_insert_with(|| json!({})) {
        put(inner, rest, value);
    }
}

fn take(object: &mut Object, path: &[&str]) -> Option<Value> {
    match path {
        [last] => object.remove(*last),
        [first, rest @ ..] => take(object.get_mut(*first)?.as_object_mut()?, rest),
        [] => None,
    }
}

#[cfg(test)]
#[path = "beta_tests.rs"]
mod tests;
