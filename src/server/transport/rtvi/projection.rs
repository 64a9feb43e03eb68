//! RTVI beside the Realtime API: the messages of the two, each in the other's words.
//!
//! [`super::connection`] passes each server event and each message of the client through one [`Projection`] a session, and tells it
//! when audio leaves. Deadlines are its owner's ([`Projection::silent_at`], [`Projection::keys_end_at`]); it sends nothing itself.

use crate::server::transport::keypad::{self, Keypad, MAX_KEYS, key};
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
/// Segments of a reply that were not played yet.
const MAX_SEGMENTS: usize = 256;

/// What follows from an event or a message.
#[derive(Debug, Default, PartialEq)]
pub(in crate::server::transport) struct Outgoing {
    /// RTVI messages.
    pub(in crate::server::transport) to_client: Vec<Value>,
    /// Client events of the Realtime API.
    pub(in crate::server::transport) to_session: Vec<Value>,
    /// Server events for those who have joined the call.
    pub(in crate::server::transport) to_joined: Vec<Value>,
    /// The client ends the session.
    pub(in crate::server::transport) hangs_up: bool,
}

/// See the module.
pub(in crate::server::transport) struct Projection {
    is_ready: bool,
    keypad: Keypad,
    n_messages: u64,
    /// The words so far of each utterance that is being transcribed, by item.
    partial: BTreeMap<String, String>,
    /// Responses under way.
    responses: Vec<String>,
    /// Calls that wait for their result.
    calls: VecDeque<Call>,
    /// The results of a response's calls are there, and the model is to go on when the response is done.
    goes_on: bool,
    /// Ids of `session.update`s in order; `None`: the adapter's own.
    updates: VecDeque<Option<String>>,
    speaking: Option<Speaking>,
    segments: Segments,
}

/// A function call that the client answers.
struct Call {
    id: String,
    name: String,
}

/// A reply that sounds.
struct Speaking {
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
    /// `key_pause`: after so long without a key an entry of keys is complete.
    pub(in crate::server::transport) fn new(key_pause: Duration) -> Self {
        Self {
            is_ready: false,
            keypad: Keypad::new(key_pause),
            n_messages: 0,
            partial: BTreeMap::new(),
            responses: Vec::new(),
            calls: VecDeque::new(),
            goes_on: false,
            updates: VecDeque::new(),
            speaking: None,
            segments: Segments::default(),
        }
    }

    /// What the session is asked for before anything else: the words of the user.
    pub(in crate::server::transport) fn begin(&mut self) -> Value {
        self.updates.push_back(None);
        let session = json!({"type": "realtime", "audio": {"input": {"transcription": {"model": "whisper-1"}}}});
        json!({"type": "session.update", "event_id": OWN, "session": session})
    }

    /// When [`Self::silent`] is due.
    pub(in crate::server::transport) fn silent_at(&self) -> Option<Instant> {
        self.speaking.as_ref().filter(|speaking| speaking.is_complete).map(|speaking| speaking.until)
    }

    /// When [`Self::keys_end`] is due.
    pub(in crate::server::transport) fn keys_end_at(&self) -> Option<Instant> {
        self.keypad.until()
    }

    /// The client has pressed no key for a while: the entry is complete.
    pub(in crate::server::transport) fn keys_end(&mut self) -> Outgoing {
        let mut out = Outgoing::default();
        if let Some(keys) = self.keypad.end() {
            // A reply may have begun since the first key.
            self.interrupt(&mut out);
            self.entered(&keys, &mut out);
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
        self.speaking = Some(Speaking { until: now + length, is_complete: false });
        let started = ["bot-tts-started", "bot-started-speaking"];
        started.into_iter().filter_map(|kind| self.message(kind, Value::Null)).collect()
    }

    /// Takes a server event.
    pub(in crate::server::transport) fn event(&mut self, event: &Value) -> Outgoing {
        let mut out = Outgoing::default();
        let text = |field: &str| event[field].as_str().unwrap_or_default();
        match text("type") {
            "session.updated" => {
                if let Some(id) = self.updates.pop_front().flatten() {
                    let data = json!({"t": "session.update", "d": event["session"]});
                    out.to_client.push(answer("server-response", data, &id));
                }
            }
            "input_audio_buffer.speech_started" => self.push(&mut out, "user-started-speaking", Value::Null),
            "input_audio_buffer.speech_stopped" => self.push(&mut out, "user-stopped-speaking", Value::Null),
            "conversation.item.input_audio_transcription.delta" => {
                if self.partial.len() >= MAX_WAITING && !self.partial.contains_key(text("item_id")) {
                    self.partial.pop_first();
                }
                let words = self.partial.entry(text("item_id").to_owned()).or_default();
                words.push_str(text("delta"));
                let words = words.clone();
                self.push(&mut out, "user-transcription", transcription(&words, false));
            }
            "antiphon.transcription.draft" => {
                let words = self.partial.get(text("item_id")).map_or("", String::as_str);
                let words = format!("{words}{}", text("transcript"));
                self.push(&mut out, "user-transcription", transcription(words.trim_start(), false));
            }
            "conversation.item.input_audio_transcription.completed" => {
                self.partial.remove(text("item_id"));
                let words = text("transcript").trim();
                if !words.is_empty() {
                    self.push(&mut out, "user-transcription", transcription(words, true));
                    self.push(&mut out, "user-llm-text", json!({"text": words}));
                }
            }
            "conversation.item.input_audio_transcription.failed" => {
                self.partial.remove(text("item_id"));
                self.push(&mut out, "error", error(&event["error"]));
            }
            "response.created" => {
                self.responses.push(event["response"]["id"].as_str().unwrap_or_default().to_owned());
                self.push(&mut out, "bot-llm-started", Value::Null);
            }
            "response.output_audio_transcript.delta" => {
                let delta = text("delta");
                self.push(&mut out, "bot-llm-text", json!({"text": delta}));
                self.push(&mut out, "bot-tts-text", json!({"text": delta}));
                self.written(delta, true, &mut out);
            }
            "response.output_text.delta" => {
                let delta = text("delta");
                self.push(&mut out, "bot-llm-text", json!({"text": delta}));
                self.written(delta, false, &mut out);
            }
            "response.output_audio_transcript.done" => self.sentence(true, &mut out),
            "response.output_text.done" => self.sentence(false, &mut out),
            "antiphon.output_audio.sent" => self.complete(),
            "response.output_item.added" if event["item"]["type"] == "function_call" => {
                self.push(&mut out, "llm-function-call-started", json!({"function_name": event["item"]["name"]}));
            }
            "response.function_call_arguments.done" => self.called(event, &mut out),
            "response.done" => self.done(&event["response"], &mut out),
            "output_audio_buffer.cleared" => {
                // What was not played is not reported as spoken.
                self.segments.unplayed.clear();
                out.to_client.extend(self.stopped());
            }
            "error" => self.failed(&event["error"], &mut out),
            _ => {}
        }
        out
    }

    /// Takes a message of the client, JSON, that came `now`.
    pub(in crate::server::transport) fn message_of_client(&mut self, text: &str, now: Instant) -> Outgoing {
        let mut out = Outgoing::default();
        let Ok(Value::Object(message)) = serde_json::from_str(text) else {
            self.push(&mut out, "error", error(&json!({"message": "A message is a JSON object."})));
            return out;
        };
        let field = |name: &str| message.get(name).and_then(Value::as_str).unwrap_or_default();
        if field("label") != LABEL {
            return out;
        }
        let kind = field("type");
        let id = field("id");
        let none = Map::new();
        let data = message.get("data").and_then(Value::as_object).unwrap_or(&none);
        let taken = match kind {
            "client-ready" => {
                self.is_ready = true;
                let about = json!({"library": "antiphon", "library_version": env!("CARGO_PKG_VERSION")});
                out.to_client.push(answer("bot-ready", json!({"version": VERSION, "about": about}), id));
                Ok(())
            }
            "disconnect-bot" => {
                out.hangs_up = true;
                Ok(())
            }
            "send-text" => self.send_text(data, &mut out),
            "dtmf" => self.pressed(data, now, &mut out),
            "append-to-context" => self.append(data, id, &mut out),
            "llm-function-call-result" => self.result(data, &mut out),
            "client-message" => self.client_message(data, id, &mut out),
            // The client's picture of its page, which no model here reads.
            "ui-event" | "ui-snapshot" | "ui-cancel-job-group" => Ok(()),
            other => {
                Err(format!("Messages of the type '{}' are not served.", other.chars().take(60).collect::<String>()))
            }
        };
        if let Err(refusal) = taken {
            out.to_client.push(answer("error-response", json!({"error": refusal}), id));
        }
        out
    }

    fn send_text(&mut self, data: &Map<String, Value>, out: &mut Outgoing) -> Result<(), String> {
        let content = data.get("content").and_then(Value::as_str).ok_or("'content' is not a text.")?;
        let option = |name: &str| data.get("options").and_then(|options| options[name].as_bool()).unwrap_or(true);
        out.to_session.push(item("user", "input_text", content));
        if option("run_immediately") {
            self.interrupt(out);
            out.to_session.push(match option("audio_response") {
                true => json!({"type": "response.create", "event_id": OWN}),
                false => {
                    json!({"type": "response.create", "event_id": OWN, "response": {"output_modalities": ["text"]}})
                }
            });
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

    /// An entry is a message of the user, which the model answers or passes to a tool.
    fn entered(&mut self, keys: &str, out: &mut Outgoing) {
        let words = keypad::words(keys);
        out.to_session.push(item("user", "input_text", &words));
        out.to_session.push(json!({"type": "response.create", "event_id": OWN}));
        self.push(out, "user-llm-text", json!({"text": words}));
    }

    fn append(&mut self, data: &Map<String, Value>, id: &str, out: &mut Outgoing) -> Result<(), String> {
        let content = match data.get("content") {
            Some(Value::String(text)) => text.clone(),
            None | Some(Value::Null) => return Err("'content' is missing.".into()),
            Some(other) => other.to_string(),
        };
        let (role, kind) = match data.get("role").and_then(Value::as_str) {
            Some("user") => ("user", "input_text"),
            Some("assistant") => ("assistant", "output_text"),
            _ => return Err("'role' is 'user' or 'assistant'.".into()),
        };
        out.to_session.push(item(role, kind, &content));
        if data.get("run_immediately").and_then(Value::as_bool).unwrap_or(false) {
            self.interrupt(out);
            out.to_session.push(json!({"type": "response.create", "event_id": OWN}));
        }
        out.to_client.push(answer("append-to-context-result", json!({"result": "appended"}), id));
        Ok(())
    }

    /// Stops the reply under way.
    fn interrupt(&self, out: &mut Outgoing) {
        if !self.responses.is_empty() {
            out.to_session.push(json!({"type": "response.cancel", "event_id": OWN}));
        }
        if self.speaking.is_some() {
            out.to_session.push(json!({"type": "output_audio_buffer.clear", "event_id": OWN}));
        }
    }

    fn result(&mut self, data: &Map<String, Value>, out: &mut Outgoing) -> Result<(), String> {
        let id = data.get("tool_call_id").and_then(Value::as_str).unwrap_or_default();
        let at = self.calls.iter().position(|call| call.id == id).ok_or("No call with this 'tool_call_id' waits.")?;
        let call = self.calls.remove(at).expect("it is there");
        let result = data.get("result").cloned().unwrap_or_default();
        let output = result.as_str().map_or_else(|| result.to_string(), str::to_owned);
        let answered = json!({"type": "function_call_output", "call_id": call.id, "output": output});
        out.to_session.push(json!({"type": "conversation.item.create", "event_id": OWN, "item": answered}));
        let data = json!({"function_name": call.name, "tool_call_id": call.id, "cancelled": false, "result": result});
        self.push(out, "llm-function-call-stopped", data);
        if self.calls.is_empty() {
            self.goes_on = true;
            self.go_on(out);
        }
        Ok(())
    }

    /// The model goes on with the results, once the response that called is done.
    fn go_on(&mut self, out: &mut Outgoing) {
        if self.goes_on && self.responses.is_empty() {
            self.goes_on = false;
            out.to_session.push(json!({"type": "response.create", "event_id": OWN}));
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
        out.to_session.push(json!({"type": "session.update", "event_id": id, "session": session}));
        Ok(())
    }

    fn failed(&mut self, failure: &Value, out: &mut Outgoing) {
        let id = failure["event_id"].as_str().unwrap_or_default();
        let at = self.updates.iter().position(|update| match update {
            Some(update) => update == id,
            None => id == OWN && failure["param"].as_str().is_some_and(|param| param.starts_with("session")),
        });
        if let Some(id) = at.and_then(|at| self.updates.remove(at)).flatten() {
            let error = json!({"error": failure["message"]});
            out.to_client.push(answer("error-response", error, &id));
            return;
        }
        // A reply that has just ended needs no cancel.
        if failure["code"] != "response_cancel_not_active" {
            self.push(out, "error", error(failure));
        }
    }

    fn called(&mut self, event: &Value, out: &mut Outgoing) {
        let text = |field: &str| event[field].as_str().unwrap_or_default().to_owned();
        let id = text("call_id");
        let name = text("name");
        let arguments: Value = serde_json::from_str(&text("arguments")).unwrap_or_else(|_| json!({}));
        let data = json!({"function_name": name, "tool_call_id": id, "arguments": arguments});
        if self.calls.len() >= MAX_WAITING {
            self.calls.pop_front();
        }
        self.calls.push_back(Call { id, name });
        self.push(out, "llm-function-call-in-progress", data);
    }

    fn done(&mut self, response: &Value, out: &mut Outgoing) {
        self.responses.retain(|id| response["id"] != **id);
        self.complete();
        self.segments.open.clear();
        self.push(out, "bot-llm-stopped", Value::Null);
        if response["status"] == "failed" {
            self.push(out, "error", error(&response["status_details"]["error"]));
        }
        self.go_on(out);
    }

    /// No more audio of the reply comes.
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

fn error(failure: &Value) -> Value {
    let message = failure["message"].as_str().unwrap_or("It failed.");
    json!({"error": message, "message": message, "fatal": false})
}

fn transcription(text: &str, is_final: bool) -> Value {
    json!({"text": text, "final": is_final, "timestamp": jiff::Timestamp::now().to_string(), "user_id": ""})
}

fn item(role: &str, kind: &str, text: &str) -> Value {
    let item = json!({"type": "message", "role": role, "content": [{"type": kind, "text": text}]});
    json!({"type": "conversation.item.create", "event_id": OWN, "item": item})
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAUSE: Duration = Duration::from_secs(2);

    /// A message of the client, its type and data.
    fn message(projection: &mut Projection, kind: &str, data: Value) -> Outgoing {
        let message = json!({"label": LABEL, "type": kind, "id": "1", "data": data});
        projection.message_of_client(&message.to_string(), Instant::now())
    }

    fn kinds(events: &[Value]) -> Vec<&str> {
        events.iter().filter_map(|event| event["type"].as_str()).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn keys_are_events_and_an_entry_is_answered() {
        let mut projection = Projection::new(PAUSE);
        message(&mut projection, "client-ready", json!({}));
        projection.event(&json!({"type": "response.created", "response": {"id": "r"}}));
        let first = message(&mut projection, "dtmf", json!({"buttons": ["1", "2"]}));
        assert_eq!(kinds(&first.to_session), ["response.cancel"]);
        let keys: Vec<_> = first.to_joined.iter().map(|event| event["event"].as_str().unwrap()).collect();
        assert_eq!(keys, ["1", "2"]);
        assert_eq!(kinds(&first.to_joined), ["input_audio_buffer.dtmf_event_received"; 2]);
        let due = projection.keys_end_at().expect("the entry may go on");
        assert_eq!(due, Instant::now() + PAUSE);
        projection.event(&json!({"type": "response.done", "response": {"id": "r"}}));
        let ended = projection.keys_end();
        assert_eq!(kinds(&ended.to_session), ["conversation.item.create", "response.create"]);
        assert!(ended.to_session[0].to_string().contains(": 12)"), "{ended:?}");
        assert_eq!(kinds(&ended.to_client), ["user-llm-text"]);
        assert_eq!((projection.keys_end_at(), projection.keys_end()), (None, Outgoing::default()));
        // A hash ends an entry at once, and an earlier client sends one key.
        message(&mut projection, "dtmf", json!({"button": "7"}));
        let hash = message(&mut projection, "dtmf", json!({"buttons": ["#"]}));
        assert!(hash.to_session[0].to_string().contains(": 7#)"), "{hash:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_no_key_is_refused() {
        let mut projection = Projection::new(PAUSE);
        for data in [
            json!({}),
            json!({"buttons": []}),
            json!({"buttons": ["1", "x"]}),
            json!({"buttons": [1]}),
            json!({"buttons": vec!["1"; MAX_KEYS + 1]}),
        ] {
            let Outgoing { to_client, to_session, to_joined, .. } = message(&mut projection, "dtmf", data);
            assert_eq!(kinds(&to_client), ["error-response"]);
            assert_eq!((to_session.len(), to_joined.len(), projection.keys_end_at()), (0, 0, None));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_is_not_ready_gets_errors_only() {
        let mut projection = Projection::new(PAUSE);
        let reply = |projection: &mut Projection| {
            let mut messages = Vec::new();
            messages.extend(projection.event(&json!({"type": "response.created", "response": {"id": "r"}})).to_client);
            let words = json!({"type": "response.output_audio_transcript.delta", "delta": "Hello."});
            messages.extend(projection.event(&words).to_client);
            messages.extend(projection.audio(Duration::from_secs(1), Instant::now()));
            let done = json!({"type": "response.done", "response": {"id": "r", "status": "completed"}});
            messages.extend(projection.event(&done).to_client);
            messages.extend(projection.silent());
            messages
        };
        assert_eq!(reply(&mut projection), [] as [Value; 0]);
        let failed = projection.event(&json!({"type": "error", "error": {"message": "It failed."}})).to_client;
        assert_eq!(failed.len(), 1);
        let ready = json!({"label": LABEL, "type": "client-ready", "id": "1"});
        assert_eq!(projection.message_of_client(&ready.to_string(), Instant::now()).to_client[0]["type"], "bot-ready");
        let kinds: Vec<_> = reply(&mut projection).iter().map(|message| message["type"].clone()).collect();
        assert_eq!(kinds.last(), Some(&json!("bot-stopped-speaking")));
        assert!(kinds.contains(&json!("bot-started-speaking")) && kinds.contains(&json!("bot-output")));
    }
}
