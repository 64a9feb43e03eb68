//! RTVI beside the Realtime API: the messages of the two, each in the other's words.
//!
//! [`super::connection`] passes each server event and each message of the client through one [`Projection`] a session, and reports to it
//! when audio leaves. Deadlines are its owner's ([`Projection::silent_at`], [`Projection::keys_end_at`]); it sends nothing itself.

use crate::server::transport::keypad::{self, Keypad, MAX_KEYS, OwedReply, key};
use antiphon_protocol::{
    ClientEvent, Content, Dialect, Incoming, Item, ItemBody, Modality, Position, Response, ResponseParams,
    ResponseStatus, Role, ServerEvent, WireError, fits_tree,
};
use antiphon_session::{InboundPayload, OutputEvent};
use antiphon_types::{ItemId, ResponseId};
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;
use tokio::time::Instant;

/// The version of RTVI that is spoken.
pub(super) const VERSION: &str = "2.1.0";
/// Mark of every message.
const LABEL: &str = "rtvi-ai";
/// Begins the event ids of requests to the session that answer no `client-message`.
const OWN: &str = "antiphon_rtvi";
/// `client-message`s that wait for their answer; calls that wait for their result; utterances that are transcribed. Of more, the
/// oldest is forgotten.
const MAX_WAITING: usize = 64;
/// The `id` of a message, which its answers repeat.
const MAX_ID_BYTES: usize = 256;
/// Segments of a reply that were not played yet.
const MAX_SEGMENTS: usize = 256;

/// What follows from an event or a message.
#[derive(Debug, Default, PartialEq)]
pub(in crate::server::transport) struct Outgoing {
    /// RTVI messages.
    pub(in crate::server::transport) to_client: Vec<Value>,
    /// For the session.
    pub(in crate::server::transport) to_session: Vec<InboundPayload>,
    /// Server events for those who have joined the call.
    pub(in crate::server::transport) to_joined: Vec<OutputEvent>,
    /// The client ends the session.
    pub(in crate::server::transport) hangs_up: bool,
}

/// See the module.
pub(in crate::server::transport) struct Projection {
    /// How the settings are parsed that a client changes.
    dialect: Dialect,
    is_ready: bool,
    keypad: Keypad,
    owed_reply: OwedReply,
    n_messages: u64,
    /// The words so far of each utterance that is being transcribed, by item.
    partial: BTreeMap<ItemId, String>,
    /// Responses under way.
    responses: Vec<ResponseId>,
    /// Calls that wait for their result.
    calls: VecDeque<Call>,
    /// The response whose calls all have their results: the model goes on once no response is under way.
    goes_on_from: Option<ResponseId>,
    /// Ids of `session.update`s in order; `None`: the adapter's own.
    updates: VecDeque<Option<String>>,
    speaking: Option<SoundingReply>,
    segments: Segments,
}

/// A function call that the client answers.
struct Call {
    id: String,
    name: String,
    response: ResponseId,
    /// Its response was stopped: the model does not go on for its result.
    is_stopped: bool,
}

/// A reply that sounds.
struct SoundingReply {
    /// When all that was sent is played.
    until: Instant,
    /// No more comes.
    is_complete: bool,
}

/// A reply's text by sentences.
#[derive(Default)]
struct Segments {
    /// The beginning of a sentence.
    open: String,
    n: u64,
    /// Sent and not played yet.
    unplayed: VecDeque<(u64, String)>,
}

impl Projection {
    /// `key_pause`: after this time without a key an entry of keys is complete.
    pub(in crate::server::transport) fn new(key_pause: Duration, dialect: Dialect) -> Self {
        Self {
            dialect,
            is_ready: false,
            keypad: Keypad::new(key_pause),
            owed_reply: OwedReply::default(),
            n_messages: 0,
            partial: BTreeMap::new(),
            responses: Vec::new(),
            calls: VecDeque::new(),
            goes_on_from: None,
            updates: VecDeque::new(),
            speaking: None,
            segments: Segments::default(),
        }
    }

    /// What the session is asked for before anything else: the words of the user.
    pub(in crate::server::transport) fn begin(&mut self) -> InboundPayload {
        self.updates.push_back(None);
        let input = json!({"transcription": {"model": "whisper-1"}});
        self.update(OWN, json!({"type": "realtime", "audio": {"input": input}}))
    }

    /// A `session.update` with settings as a client writes them.
    fn update(&self, event_id: &str, session: Value) -> InboundPayload {
        let event = json!({"type": "session.update", "event_id": event_id, "session": session});
        self.dialect.parse(&event.to_string()).into()
    }

    /// When [`Self::silent`] is due.
    pub(in crate::server::transport) fn silent_at(&self) -> Option<Instant> {
        self.speaking.as_ref().filter(|speaking| speaking.is_complete).map(|speaking| speaking.until)
    }

    /// When [`Self::keys_end`] is due.
    pub(in crate::server::transport) fn keys_end_at(&self) -> Option<Instant> {
        let answered_at = self.owed_reply.due_at(Instant::now());
        self.keypad.until().into_iter().chain(answered_at).min()
    }

    /// The client has pressed no key for a while, so that the entry is complete, or no reply has followed the user's speech.
    pub(in crate::server::transport) fn keys_end(&mut self) -> Outgoing {
        let mut out = Outgoing::default();
        if self.keypad.until().is_some_and(|until| until > Instant::now()) {
            self.answer_keys(&mut out);
        } else if let Some(keys) = self.keypad.end() {
            // A reply may have begun since the first key.
            self.interrupt(&mut out);
            self.entered(&keys, &mut out);
        } else {
            self.answer_keys(&mut out);
        }
        out
    }

    /// All of the reply is played.
    pub(in crate::server::transport) fn silent(&mut self) -> Vec<Value> {
        let mut messages: Vec<Value> = Vec::new();
        for (id, text) in std::mem::take(&mut self.segments.unplayed) {
            messages.extend(self.output(&text, id, true, "completed"));
        }
        messages.extend(self.stopped());
        messages
    }

    /// Audio of this length leaves now.
    pub(in crate::server::transport) fn audio(&mut self, length: Duration, now: Instant) -> Vec<Value> {
        if let Some(speaking) = &mut self.speaking {
            speaking.until = speaking.until.max(now) + length;
            speaking.is_complete = false;
            return Vec::new();
        }
        self.speaking = Some(SoundingReply { until: now + length, is_complete: false });
        let started = ["bot-tts-started", "bot-started-speaking"];
        started.into_iter().filter_map(|kind| self.message(kind, Value::Null)).collect()
    }

    /// Takes a server event.
    pub(in crate::server::transport) fn event(&mut self, event: &ServerEvent) -> Outgoing {
        let mut out = Outgoing::default();
        let has_spoken = self.owed_reply.user_speaks();
        self.owed_reply.happened(event, Instant::now());
        if has_spoken && !self.owed_reply.user_speaks() {
            self.push(&mut out, "user-stopped-speaking", Value::Null);
        }
        match event {
            ServerEvent::SessionUpdated { .. } => {
                if let Some(id) = self.updates.pop_front().flatten() {
                    let session = json!(event)["session"].take();
                    let data = json!({"t": "session.update", "d": session});
                    out.to_client.push(answer("server-response", data, &id));
                }
            }
            ServerEvent::SpeechStarted { .. } => self.push(&mut out, "user-started-speaking", Value::Null),
            ServerEvent::TranscriptionDelta { item_id, delta, .. } => {
                if self.partial.len() >= MAX_WAITING && !self.partial.contains_key(item_id) {
                    self.partial.pop_first();
                }
                let words = self.partial.entry(item_id.clone()).or_default();
                words.push_str(delta);
                let words = words.clone();
                self.push(&mut out, "user-transcription", transcription(&words, false));
            }
            ServerEvent::TranscriptionDraft { item_id, transcript, .. } => {
                let words = self.partial.get(item_id).map_or("", String::as_str);
                let words = format!("{words}{transcript}");
                self.push(&mut out, "user-transcription", transcription(words.trim_start(), false));
            }
            ServerEvent::TranscriptionCompleted { item_id, transcript, .. } => {
                self.partial.remove(item_id);
                let words = transcript.trim();
                if !words.is_empty() {
                    self.push(&mut out, "user-transcription", transcription(words, true));
                    self.push(&mut out, "user-llm-text", json!({"text": words}));
                }
            }
            ServerEvent::TranscriptionFailed { item_id, error: failure, .. } => {
                self.partial.remove(item_id);
                self.push(&mut out, "error", error(&failure.message));
            }
            ServerEvent::ResponseCreated { response } => {
                self.responses.push(response.id.clone());
                self.push(&mut out, "bot-llm-started", Value::Null);
            }
            ServerEvent::OutputTranscriptDelta { delta, .. } => {
                self.push(&mut out, "bot-llm-text", json!({"text": delta}));
                self.push(&mut out, "bot-tts-text", json!({"text": delta}));
                self.written(delta, true, &mut out);
            }
            ServerEvent::OutputTextDelta { delta, .. } => {
                self.push(&mut out, "bot-llm-text", json!({"text": delta}));
                self.written(delta, false, &mut out);
            }
            ServerEvent::OutputTranscriptDone { .. } => self.sentence(true, &mut out),
            ServerEvent::OutputTextDone { .. } => self.sentence(false, &mut out),
            ServerEvent::OutputAudioSent { .. } => self.complete(),
            ServerEvent::OutputItemAdded { item: Item { body: ItemBody::FunctionCall { name, .. }, .. }, .. } => {
                self.push(&mut out, "llm-function-call-started", json!({"function_name": name}));
            }
            ServerEvent::FunctionArgumentsDone { at, call_id, name, arguments } => {
                let response = at.response_id.clone();
                let call = Call { id: call_id.clone(), name: name.clone(), response, is_stopped: false };
                self.called(call, arguments, &mut out);
            }
            ServerEvent::ResponseDone { response } => self.done(response, &mut out),
            ServerEvent::OutputCleared { .. } => {
                // What was not played is not reported as spoken.
                self.segments.unplayed.clear();
                out.to_client.extend(self.stopped());
            }
            ServerEvent::Error { error } => self.failed(error, &mut out),
            _ => {}
        }
        out
    }

    /// Takes a message of the client, JSON, that came `now`.
    pub(in crate::server::transport) fn message_of_client(&mut self, text: &str, now: Instant) -> Outgoing {
        let mut out = Outgoing::default();
        let Ok(message) = serde_json::from_str::<BTreeMap<String, &RawValue>>(text) else {
            self.push(&mut out, "error", error("A message is a JSON object."));
            return out;
        };
        let field = |name: &str| {
            let text = message.get(name).and_then(|value| serde_json::from_str::<String>(value.get()).ok());
            text.unwrap_or_default()
        };
        if field("label") != LABEL {
            return out;
        }
        let kind = field("type");
        let id = field("id");
        if id.len() > MAX_ID_BYTES {
            self.push(&mut out, "error", error(&format!("The 'id' of a message has at most {MAX_ID_BYTES} bytes.")));
            return out;
        }
        // The client's picture of its page, which no model here reads.
        if matches!(kind.as_str(), "ui-event" | "ui-snapshot" | "ui-cancel-job-group") {
            return out;
        }
        let data = message.get("data").map_or("{}", |data| data.get());
        if !fits_tree(data) {
            let refusal = "'data' has too many values and names of fields.";
            out.to_client.push(answer("error-response", json!({"error": refusal}), &id));
            return out;
        }
        let data = match serde_json::from_str(data) {
            Ok(Value::Object(data)) => data,
            Ok(_) => Map::new(),
            Err(_) => {
                self.push(&mut out, "error", error("The 'data' of a message is no valid JSON."));
                return out;
            }
        };
        let taken = match kind.as_str() {
            "client-ready" => {
                self.is_ready = true;
                let about = json!({"library": "antiphon", "library_version": env!("CARGO_PKG_VERSION")});
                out.to_client.push(answer("bot-ready", json!({"version": VERSION, "about": about}), &id));
                Ok(())
            }
            "disconnect-bot" => {
                out.hangs_up = true;
                Ok(())
            }
            "send-text" => self.send_text(&data, &mut out),
            "dtmf" => self.pressed(&data, now, &mut out),
            "append-to-context" => self.append(&data, &id, &mut out),
            "llm-function-call-result" => self.result(&data, &mut out),
            "client-message" => self.client_message(&data, &id, &mut out),
            other => {
                Err(format!("Messages of the type '{}' are not served.", other.chars().take(60).collect::<String>()))
            }
        };
        if let Err(refusal) = taken {
            out.to_client.push(answer("error-response", json!({"error": refusal}), &id));
        }
        out
    }

    fn send_text(&mut self, data: &Map<String, Value>, out: &mut Outgoing) -> Result<(), String> {
        let content = data.get("content").and_then(Value::as_str).ok_or("'content' is not a text.")?;
        let option = |name: &str| data.get("options").and_then(|options| options[name].as_bool()).unwrap_or(true);
        out.to_session.push(own(keypad::user_message(content.to_owned())));
        if option("run_immediately") {
            self.interrupt(out);
            let output_modalities = if option("audio_response") { None } else { Some(Modality::Text) };
            out.to_session.push(respond(ResponseParams { output_modalities, ..ResponseParams::default() }));
        }
        self.push(out, "user-llm-text", json!({"text": content}));
        Ok(())
    }

    /// Keys in the order of `buttons`; a client of an earlier version sends `button`. The first key of an entry stops a reply.
    fn pressed(&mut self, data: &Map<String, Value>, now: Instant, out: &mut Outgoing) -> Result<(), String> {
        let one = data.get("button").map(std::slice::from_ref);
        let keys = data.get("buttons").and_then(Value::as_array).map(Vec::as_slice).or(one).unwrap_or_default();
        let keys: Option<Vec<char>> = keys.iter().map(|text| key(text.as_str()?)).collect();
        let keys = keys.filter(|keys| (1..=MAX_KEYS).contains(&keys.len()));
        let keys = keys.ok_or_else(|| format!("'buttons' are 1 to {MAX_KEYS} of the keys 0 to 9, * and #."))?;
        if self.keypad.is_empty() {
            self.interrupt(out);
        }
        for key in keys {
            let entry = self.keypad.press(key, now);
            out.to_joined.push(self.keypad.event(key));
            if let Some(keys) = entry {
                self.entered(&keys, out);
            }
        }
        Ok(())
    }

    /// An entry is a message of the user, which the model answers or passes to a tool: at once, or with what the user is
    /// saying.
    fn entered(&mut self, keys: &str, out: &mut Outgoing) {
        let words = keypad::words(keys);
        out.to_session.push(own(keypad::user_message(words.clone())));
        self.owed_reply.entered();
        self.answer_keys(out);
        self.push(out, "user-llm-text", json!({"text": words}));
    }

    /// Asks for the reply to an entry of keys where it is due.
    fn answer_keys(&mut self, out: &mut Outgoing) {
        if self.owed_reply.is_due(Instant::now()) {
            out.to_session.push(respond(ResponseParams::default()));
        }
    }

    fn append(&mut self, data: &Map<String, Value>, id: &str, out: &mut Outgoing) -> Result<(), String> {
        let content = match data.get("content") {
            Some(Value::String(text)) => text.clone(),
            None | Some(Value::Null) => return Err("'content' is missing.".into()),
            Some(other) => other.to_string(),
        };
        out.to_session.push(match data.get("role").and_then(Value::as_str) {
            Some("user") => own(keypad::user_message(content)),
            Some("assistant") => {
                let content = vec![Content::OutputText { text: content }];
                create(ItemBody::Message { role: Role::Assistant, content })
            }
            _ => return Err("'role' is 'user' or 'assistant'.".into()),
        });
        if data.get("run_immediately").and_then(Value::as_bool).unwrap_or(false) {
            self.interrupt(out);
            out.to_session.push(respond(ResponseParams::default()));
        }
        out.to_client.push(answer("append-to-context-result", json!({"result": "appended"}), id));
        Ok(())
    }

    /// Stops the reply under way.
    fn interrupt(&self, out: &mut Outgoing) {
        if !self.responses.is_empty() {
            out.to_session.push(own(ClientEvent::ResponseCancel { response_id: None }));
        }
        if self.speaking.is_some() {
            out.to_session.push(own(ClientEvent::OutputAudioClear));
        }
    }

    fn result(&mut self, data: &Map<String, Value>, out: &mut Outgoing) -> Result<(), String> {
        let id = data.get("tool_call_id").and_then(Value::as_str).unwrap_or_default();
        let at = self.calls.iter().position(|call| call.id == id).ok_or("No call with this 'tool_call_id' waits.")?;
        let call = self.calls.remove(at).expect("it is there");
        let result = data.get("result").cloned().unwrap_or_default();
        let output = result.as_str().map_or_else(|| result.to_string(), str::to_owned);
        out.to_session.push(create(ItemBody::FunctionCallOutput { call_id: call.id.clone(), output }));
        let data = json!({"function_name": call.name, "tool_call_id": call.id, "cancelled": false, "result": result});
        self.push(out, "llm-function-call-stopped", data);
        let is_last = self.calls.iter().all(|other| other.response != call.response);
        if is_last && !call.is_stopped {
            self.goes_on_from = Some(call.response);
            self.go_on(out);
        }
        Ok(())
    }

    /// The model goes on with the results, once no response is under way.
    fn go_on(&mut self, out: &mut Outgoing) {
        if self.responses.is_empty() && self.goes_on_from.take().is_some() {
            out.to_session.push(respond(ResponseParams::default()));
        }
    }

    /// `session.update`: what the client changes of its session, its tools above all. Answered when the session has changed.
    fn client_message(&mut self, data: &Map<String, Value>, id: &str, out: &mut Outgoing) -> Result<(), String> {
        if data.get("t").and_then(Value::as_str) != Some("session.update") {
            return Err("The client message 'session.update' is served, with the fields of a session in 'd'.".into());
        }
        let Some(Value::Object(session)) = data.get("d") else { return Err("'d' is not an object.".into()) };
        if id.is_empty() || id.starts_with(OWN) || self.updates.len() >= MAX_WAITING {
            return Err("The message has no 'id', or too many wait for their answer.".into());
        }
        let mut session = session.clone();
        session.entry("type").or_insert_with(|| "realtime".into());
        self.updates.push_back(Some(id.to_owned()));
        out.to_session.push(self.update(id, session.into()));
        Ok(())
    }

    fn failed(&mut self, failure: &WireError, out: &mut Outgoing) {
        let id = failure.event_id.as_deref().unwrap_or_default();
        let is_about_session = failure.param.as_deref().is_some_and(|param| param.starts_with("session"));
        let at = self.updates.iter().position(|update| match update {
            Some(update) => update == id,
            None => id == OWN && is_about_session,
        });
        if let Some(id) = at.and_then(|at| self.updates.remove(at)).flatten() {
            out.to_client.push(answer("error-response", json!({"error": failure.message}), &id));
            return;
        }
        let is_settled = match failure.code {
            // A reply that has just ended needs no cancel.
            Some("response_cancel_not_active") => true,
            // A reply that has just begun answers an entry of keys, too.
            Some("conversation_already_has_active_response") => id == OWN,
            _ => false,
        };
        if !is_settled {
            self.push(out, "error", error(&failure.message));
        }
    }

    fn called(&mut self, call: Call, arguments: &str, out: &mut Outgoing) {
        let arguments: Value = serde_json::from_str(arguments).unwrap_or_else(|_| json!({}));
        let data = json!({"function_name": call.name, "tool_call_id": call.id, "arguments": arguments});
        if self.calls.len() >= MAX_WAITING {
            self.calls.pop_front();
        }
        // The response calls once more: the results so far are not all.
        self.goes_on_from.take_if(|from| *from == call.response);
        self.calls.push_back(call);
        self.push(out, "llm-function-call-in-progress", data);
    }

    fn done(&mut self, response: &Response, out: &mut Outgoing) {
        self.responses.retain(|id| response.id != *id);
        if response.status == ResponseStatus::Cancelled {
            let of_response = self.calls.iter_mut().filter(|call| call.response == response.id);
            of_response.for_each(|call| call.is_stopped = true);
            self.goes_on_from.take_if(|from| *from == response.id);
        }
        self.complete();
        self.segments.open.clear();
        self.push(out, "bot-llm-stopped", Value::Null);
        if response.status == ResponseStatus::Failed {
            let failure = response.status_details.as_ref().and_then(|details| details.error.as_ref());
            self.push(out, "error", error(failure.map_or("It failed.", |failure| &failure.message)));
        }
        self.go_on(out);
    }

    /// The sound of the reply has been sent whole: its end is reported once it was played.
    pub(in crate::server::transport) fn complete(&mut self) {
        if let Some(speaking) = &mut self.speaking {
            speaking.is_complete = true;
        }
    }

    fn stopped(&mut self) -> Vec<Value> {
        if self.speaking.take().is_none() {
            return Vec::new();
        }
        let stopped = ["bot-tts-stopped", "bot-stopped-speaking"];
        stopped.into_iter().filter_map(|kind| self.message(kind, Value::Null)).collect()
    }

    /// More of a reply's text: each sentence is one segment.
    fn written(&mut self, delta: &str, is_spoken: bool, out: &mut Outgoing) {
        self.segments.open.push_str(delta);
        if self.segments.open.trim_end().ends_with(['.', '!', '?', '…', '。', '！', '？']) {
            self.sentence(is_spoken, out);
        }
    }

    fn sentence(&mut self, is_spoken: bool, out: &mut Outgoing) {
        let text = std::mem::take(&mut self.segments.open).trim().to_owned();
        if text.is_empty() {
            return;
        }
        self.segments.n += 1;
        let id = self.segments.n;
        let Some(message) = self.output(&text, id, is_spoken, "new") else { return };
        out.to_client.push(message);
        self.push(out, "bot-transcription", json!({"text": text}));
        if is_spoken {
            if self.segments.unplayed.len() >= MAX_SEGMENTS {
                self.segments.unplayed.pop_front();
            }
            self.segments.unplayed.push_back((id, text));
        }
    }

    fn output(&mut self, text: &str, id: u64, is_spoken: bool, status: &str) -> Option<Value> {
        let mut data =
            json!({"text": text, "aggregated_by": "sentence", "segment_id": id, "will_be_spoken": is_spoken});
        if is_spoken {
            data["spoken_status"] = status.into();
        }
        self.message("bot-output", data)
    }

    fn push(&mut self, out: &mut Outgoing, kind: &str, data: Value) {
        out.to_client.extend(self.message(kind, data));
    }

    /// A message of the hub's own; `None` before `client-ready`, when a client expects errors only.
    fn message(&mut self, kind: &str, data: Value) -> Option<Value> {
        if !self.is_ready && kind != "error" {
            return None;
        }
        self.n_messages += 1;
        Some(answer(kind, data, &self.n_messages.to_string()))
    }
}

/// The message that the session has ended.
pub(super) fn ended(reason: &str) -> Value {
    answer("error", json!({"error": reason, "message": reason, "fatal": true}), "0")
}

fn answer(kind: &str, data: Value, id: &str) -> Value {
    let mut message = json!({"label": LABEL, "type": kind, "id": id});
    if !data.is_null() {
        message["data"] = data;
    }
    message
}

fn error(message: &str) -> Value {
    json!({"error": message, "message": message, "fatal": false})
}

fn transcription(text: &str, is_final: bool) -> Value {
    json!({"text": text, "final": is_final, "timestamp": jiff::Timestamp::now().to_string(), "user_id": ""})
}

/// A request of the adapter's own.
fn own(event: ClientEvent) -> InboundPayload {
    InboundPayload::Event(Box::new(Incoming { event_id: Some(OWN.into()), event }))
}

fn create(body: ItemBody) -> InboundPayload {
    own(ClientEvent::ItemCreate { position: Position::End, item: Box::new(Item::created(body)) })
}

fn respond(params: ResponseParams) -> InboundPayload {
    own(ClientEvent::ResponseCreate(Box::new(params)))
}

#[cfg(test)]
mod tests {
    use super::*;

    use antiphon_protocol::{ItemAt, PartAt};

    const PAUSE: Duration = Duration::from_secs(2);

    fn projection() -> Projection {
        Projection::new(PAUSE, Dialect::default())
    }

    /// A message of the client, its type and data.
    fn message(projection: &mut Projection, kind: &str, data: Value) -> Outgoing {
        let message = json!({"label": LABEL, "type": kind, "id": "1", "data": data});
        projection.message_of_client(&message.to_string(), Instant::now())
    }

    fn kinds(messages: &[Value]) -> Vec<&str> {
        messages.iter().filter_map(|message| message["type"].as_str()).collect()
    }

    fn response(status: ResponseStatus) -> Box<Response> {
        let mut response = Response::new("r".into(), None);
        response.status = status;
        Box::new(response)
    }

    fn created() -> ServerEvent {
        ServerEvent::ResponseCreated { response: response(ResponseStatus::InProgress) }
    }

    fn done() -> ServerEvent {
        ServerEvent::ResponseDone { response: response(ResponseStatus::Completed) }
    }

    fn entered(keys: &str) -> InboundPayload {
        own(keypad::user_message(keypad::words(keys)))
    }

    #[tokio::test(start_paused = true)]
    async fn keys_are_events_and_an_entry_is_answered() {
        let mut projection = projection();
        message(&mut projection, "client-ready", json!({}));
        projection.event(&created());
        let first = message(&mut projection, "dtmf", json!({"buttons": ["1", "2"]}));
        assert_eq!(first.to_session, [own(ClientEvent::ResponseCancel { response_id: None })]);
        let key = |event: &OutputEvent| match event.event {
            ServerEvent::KeyPressed { event, .. } => Some(event),
            _ => None,
        };
        assert_eq!(first.to_joined.iter().map(key).collect::<Vec<_>>(), [Some('1'), Some('2')]);
        let due = projection.keys_end_at().expect("the entry may go on");
        assert_eq!(due, Instant::now() + PAUSE);
        projection.event(&done());
        tokio::time::sleep_until(due).await;
        let ended = projection.keys_end();
        assert_eq!(ended.to_session, [entered("12"), respond(ResponseParams::default())]);
        assert_eq!(kinds(&ended.to_client), ["user-llm-text"]);
        assert_eq!(projection.keys_end_at(), None);
        assert_eq!(projection.keys_end(), Outgoing::default());
        // A hash ends an entry at once, and an earlier client sends one key.
        message(&mut projection, "dtmf", json!({"button": "7"}));
        let hash = message(&mut projection, "dtmf", json!({"buttons": ["#"]}));
        assert_eq!(hash.to_session[0], entered("7#"));
    }

    #[tokio::test(start_paused = true)]
    async fn keys_that_are_pressed_while_the_user_speaks_are_answered_with_the_speech() {
        let mut projection = projection();
        message(&mut projection, "client-ready", json!({}));
        projection.event(&ServerEvent::SpeechStarted { audio_start_ms: 0, item_id: "item_1".into() });
        message(&mut projection, "dtmf", json!({"button": "1"}));
        tokio::time::sleep(PAUSE).await;
        assert_eq!(projection.keys_end().to_session, [entered("1")]);
        assert_eq!(projection.keys_end_at(), None, "the turn's response answers both");
        projection.event(&ServerEvent::SpeechStopped { audio_end_ms: 900, item_id: "item_1".into() });
        let due = projection.keys_end_at().expect("the speech may be noise");
        tokio::time::sleep_until(due).await;
        assert_eq!(projection.keys_end().to_session, [respond(ResponseParams::default())]);
        assert_eq!(projection.keys_end_at(), None);
        // The turn's response may have begun before.
        let error = WireError::already_responding(&"resp_1".into()).answering(Some(OWN));
        assert_eq!(projection.event(&ServerEvent::Error { error }), Outgoing::default());
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_learns_that_speech_has_ended_whoever_ends_it() {
        let mut projection = projection();
        message(&mut projection, "client-ready", json!({}));
        let committed = ServerEvent::InputAudioCommitted { previous_item_id: None, item_id: "item_1".into() };
        let stopped = ServerEvent::SpeechStopped { audio_end_ms: 900, item_id: "item_1".into() };
        for ends in [vec![stopped, committed.clone()], vec![committed], vec![ServerEvent::InputAudioCleared {}]] {
            projection.event(&ServerEvent::SpeechStarted { audio_start_ms: 0, item_id: "item_1".into() });
            let messages: Vec<_> = ends.iter().flat_map(|event| projection.event(event).to_client).collect();
            assert_eq!(kinds(&messages), ["user-stopped-speaking"], "{ends:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_no_key_is_refused() {
        let mut projection = projection();
        for data in [
            json!({}),
            json!({"buttons": []}),
            json!({"buttons": ["1", "x"]}),
            json!({"buttons": [1]}),
            json!({"buttons": vec!["1"; MAX_KEYS + 1]}),
        ] {
            let Outgoing { to_client, to_session, to_joined, .. } = message(&mut projection, "dtmf", data);
            assert_eq!(kinds(&to_client), ["error-response"]);
            assert_eq!(to_session, []);
            assert_eq!(to_joined, []);
            assert_eq!(projection.keys_end_at(), None);
        }
    }

    fn begins(projection: &mut Projection, response: &str) {
        let response = Box::new(Response::new(response.into(), None));
        projection.event(&ServerEvent::ResponseCreated { response });
    }

    /// A response makes a call.
    fn calls(projection: &mut Projection, response: &str, call_id: &str) {
        let at = ItemAt { response_id: response.into(), item_id: call_id.into(), output_index: 0 };
        let call_id = call_id.to_owned();
        let name = "look_up".to_owned();
        let arguments = "{}".to_owned();
        projection.event(&ServerEvent::FunctionArgumentsDone { at, call_id, name, arguments });
    }

    /// A response ends. Whether the model goes on.
    fn ends(projection: &mut Projection, response: &str, status: ResponseStatus) -> bool {
        let mut response = Box::new(Response::new(response.into(), None));
        response.status = status;
        goes_on(&projection.event(&ServerEvent::ResponseDone { response }))
    }

    /// The client gives the result of a call. Whether the model goes on.
    fn result(projection: &mut Projection, call_id: &str) -> bool {
        let data = json!({"tool_call_id": call_id, "result": "done"});
        let outgoing = message(projection, "llm-function-call-result", data);
        assert!(kinds(&outgoing.to_client).iter().all(|kind| *kind != "error-response"), "{call_id} waits");
        goes_on(&outgoing)
    }

    fn goes_on(outgoing: &Outgoing) -> bool {
        outgoing.to_session.contains(&respond(ResponseParams::default()))
    }

    #[tokio::test(start_paused = true)]
    async fn the_model_goes_on_when_the_calls_of_one_response_have_their_results() {
        let mut projection = projection();
        begins(&mut projection, "r1");
        calls(&mut projection, "r1", "never");
        assert!(!ends(&mut projection, "r1", ResponseStatus::Completed));
        begins(&mut projection, "r2");
        calls(&mut projection, "r2", "a");
        calls(&mut projection, "r2", "b");
        assert!(!ends(&mut projection, "r2", ResponseStatus::Completed));
        assert!(!result(&mut projection, "b"), "the response has another call");
        assert!(result(&mut projection, "a"), "an earlier response's call without a result holds nothing up");
        assert!(result(&mut projection, "never"), "its late result counts, too");
    }

    #[tokio::test(start_paused = true)]
    async fn the_model_goes_on_once_the_response_that_called_is_done() {
        let mut projection = projection();
        begins(&mut projection, "r1");
        calls(&mut projection, "r1", "a");
        assert!(!result(&mut projection, "a"), "the response is under way");
        assert!(ends(&mut projection, "r1", ResponseStatus::Completed));
        begins(&mut projection, "r2");
        calls(&mut projection, "r2", "b");
        assert!(!result(&mut projection, "b"));
        calls(&mut projection, "r2", "c");
        assert!(!ends(&mut projection, "r2", ResponseStatus::Completed), "it has called once more");
        assert!(result(&mut projection, "c"));
    }

    #[tokio::test(start_paused = true)]
    async fn the_model_does_not_go_on_for_a_response_that_was_stopped() {
        let mut projection = projection();
        begins(&mut projection, "r1");
        calls(&mut projection, "r1", "a");
        calls(&mut projection, "r1", "b");
        assert!(!result(&mut projection, "a"));
        assert!(!ends(&mut projection, "r1", ResponseStatus::Cancelled));
        assert!(!result(&mut projection, "b"), "only the conversation keeps it");
        begins(&mut projection, "r2");
        calls(&mut projection, "r2", "c");
        assert!(!result(&mut projection, "c"));
        assert!(!ends(&mut projection, "r2", ResponseStatus::Cancelled), "its result came before it was stopped");
    }

    #[tokio::test(start_paused = true)]
    async fn a_long_id_is_refused_and_not_repeated() {
        let mut projection = projection();
        let mut ready = |n: usize| {
            let message = json!({"label": LABEL, "type": "client-ready", "id": "x".repeat(n)});
            projection.message_of_client(&message.to_string(), Instant::now()).to_client
        };
        let refused = ready(MAX_ID_BYTES + 1);
        assert_eq!(kinds(&refused), ["error"]);
        assert!(refused[0].to_string().len() < 2 * MAX_ID_BYTES, "{}", refused[0]);
        assert_eq!(kinds(&ready(MAX_ID_BYTES)), ["bot-ready"]);
    }

    #[tokio::test(start_paused = true)]
    async fn no_tree_is_made_of_what_takes_much_memory_or_is_not_read() {
        let mut projection = projection();
        let heavy = json!(vec![json!({"x": 0}); 12_000]);
        let refused = message(&mut projection, "append-to-context", json!({"role": "user", "content": heavy}));
        assert_eq!(kinds(&refused.to_client), ["error-response"]);
        assert!(refused.to_session.is_empty(), "{:?}", refused.to_session);
        let snapshot = message(&mut projection, "ui-snapshot", json!({"elements": heavy}));
        assert_eq!(snapshot, Outgoing::default());
        // A tree would be refused for its depth.
        let deep = format!("{}{}", "[".repeat(200), "]".repeat(200));
        let ready = format!(r#"{{"label":"{LABEL}","type":"client-ready","id":"1","other":{deep}}}"#);
        assert_eq!(kinds(&projection.message_of_client(&ready, Instant::now()).to_client), ["bot-ready"]);
    }

    #[tokio::test(start_paused = true)]
    async fn settings_of_a_client_are_parsed_and_a_refusal_answers_its_message() {
        let mut projection = projection();
        message(&mut projection, "client-ready", json!({}));
        let update = |d: Value| json!({"t": "session.update", "d": d});
        let taken = message(&mut projection, "client-message", update(json!({"instructions": "Be brief."})));
        let [InboundPayload::Event(taken)] = &taken.to_session[..] else { panic!("an event: {taken:?}") };
        assert!(matches!(taken.event, ClientEvent::SessionUpdate(_)));
        let refused = message(&mut projection, "client-message", update(json!({"instructions": 5})));
        let [InboundPayload::Invalid(error)] = &refused.to_session[..] else { panic!("an error: {refused:?}") };
        let answered = projection.event(&ServerEvent::Error { error: (**error).clone() });
        assert_eq!(kinds(&answered.to_client), ["error-response"]);
        assert_eq!(answered.to_client[0]["id"], "1");
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_is_not_ready_gets_errors_only() {
        let mut projection = projection();
        let reply = |projection: &mut Projection| {
            let mut messages = Vec::new();
            messages.extend(projection.event(&created()).to_client);
            let at = PartAt::new("r".into(), "i".into(), 0, 0);
            let words = ServerEvent::OutputTranscriptDelta { at, delta: "Hello.".into() };
            messages.extend(projection.event(&words).to_client);
            messages.extend(projection.audio(Duration::from_secs(1), Instant::now()));
            messages.extend(projection.event(&done()).to_client);
            messages.extend(projection.silent());
            messages
        };
        assert_eq!(reply(&mut projection), [] as [Value; 0]);
        let failure = ServerEvent::Error { error: WireError::server("stt_failed", "It failed.") };
        assert_eq!(projection.event(&failure).to_client.len(), 1);
        let ready = json!({"label": LABEL, "type": "client-ready", "id": "1"});
        assert_eq!(projection.message_of_client(&ready.to_string(), Instant::now()).to_client[0]["type"], "bot-ready");
        let kinds: Vec<_> = reply(&mut projection).iter().map(|message| message["type"].clone()).collect();
        assert_eq!(kinds.last(), Some(&json!("bot-stopped-speaking")));
        assert!(kinds.contains(&json!("bot-started-speaking")) && kinds.contains(&json!("bot-output")));
    }
}
