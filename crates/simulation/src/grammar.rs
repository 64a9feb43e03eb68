//! The grammar of a session's events: what may follow what, whatever the engines and the client do.
//!
//! The simulated client gives each message to [`Grammar::message`], which returns the rule that it breaks. It knows the
//! protocol's own rules only, and nothing of the hub's decisions.

use antiphon_protocol::frame::{Frame, FrameKind};
use antiphon_session::Message;
use bytes::Bytes;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// What a session has sent so far.
#[derive(Default)]
pub(super) struct Grammar {
    /// Audio travels in binary frames, of this many samples where that is fixed.
    framed: Option<Framing>,
    began: bool,
    event_ids: BTreeSet<String>,
    responses: BTreeMap<String, Response>,
    outputs: BTreeMap<String, Output>,
    /// Items of the conversation; whether each is done.
    items: BTreeMap<String, bool>,
    deleted: BTreeSet<String>,
    committed: BTreeSet<String>,
    was_updated: bool,
    /// Named before they came.
    named: BTreeSet<String>,
    /// The item that speech started, and did not stop.
    speaking: Option<String>,
    transcribed: BTreeSet<(String, u64)>,
    /// Requests of the client for a response: whether each was answered.
    asked: BTreeMap<String, bool>,
    /// Committed speech whose transcript is to come.
    untranscribed: BTreeSet<String>,
    /// Every committed item gets a transcript.
    transcribes: bool,
    next_sequence: u32,
    /// Calls and approvals that wait for the client.
    pub(super) calls: Vec<String>,
    pub(super) approvals: Vec<String>,
    /// Sound that the client received, by item, in milliseconds.
    pub(super) heard: Vec<(String, u64)>,
}

/// How binary frames are packed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Framing {
    Pcm16,
    Opus,
}

#[derive(Default)]
struct Response {
    is_done: bool,
    cleared: bool,
    outputs: Vec<String>,
    /// Bytes of a millisecond of its audio in events.
    bytes_a_ms: u64,
}

#[derive(Default)]
struct Output {
    response: String,
    index: u64,
    is_done: bool,
    part: Part,
    text: String,
    arguments: String,
    has_arguments: bool,
    has_audio_end: bool,
    /// Its last frame has come.
    has_sent_end: bool,
    has_text_end: bool,
    has_transcript_end: bool,
    truncated: bool,
    /// Samples of binary frames.
    n_samples: u64,
    audio_bytes: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Part {
    #[default]
    None,
    Audio,
    Text,
    Done,
}

type Checked = Result<(), String>;

impl Grammar {
    /// Of a session whose reply audio travels in such frames; `None`: in events. `transcribes`: what is committed gets a transcript.
    pub(super) fn new(framed: Option<Framing>, transcribes: bool) -> Self {
        Self { framed, transcribes, ..Self::default() }
    }

    /// The client requests a response under this name, which is its event's id and the response's metadata.
    pub(super) fn ask(&mut self, name: &str) {
        self.asked.insert(name.to_owned(), false);
    }

    /// Takes a message. `spoken_ms`: the sound that voices have made so far.
    ///
    /// # Errors
    /// The rule that it breaks.
    pub(super) fn message(&mut self, message: &Message, spoken_ms: u64) -> Checked {
        match message {
            Message::Text(text) => {
                let event: Value = serde_json::from_str(text).map_err(|error| format!("not JSON ({error})"))?;
                self.event(&event, spoken_ms)
            }
            Message::Binary(bytes) => self.frame(bytes),
        }
    }

    /// Responses under way.
    pub(super) fn open_responses(&self) -> Vec<&str> {
        self.responses.iter().filter(|(_, response)| !response.is_done).map(|(id, _)| id.as_str()).collect()
    }

    /// What is due: it must come without anything more of the client.
    pub(super) fn due(&self) -> Vec<String> {
        let responses = self.open_responses().into_iter().map(|id| format!("the end of response {id}"));
        let asked =
            self.asked.iter().filter(|(_, answered)| !**answered).map(|(name, _)| format!("an answer to {name}"));
        let transcripts = self.untranscribed.iter().map(|id| format!("the transcript of {id}"));
        let named = self.named.iter().map(|id| format!("{id}, which was named"));
        responses.chain(asked).chain(transcripts).chain(named).collect()
    }

    /// Items of the conversation.
    pub(super) fn items(&self) -> impl Iterator<Item = &str> {
        self.items.keys().map(String::as_str)
    }

    fn event(&mut self, event: &Value, spoken_ms: u64) -> Checked {
        let kind = event["type"].as_str().ok_or("an event without a type")?;
        let id = event["event_id"].as_str().ok_or("an event without an id")?;
        if !self.event_ids.insert(id.to_owned()) {
            return Err(format!("the event id {id} comes twice"));
        }
        if (kind == "session.created") == self.began {
            return Err("session.created is not the first event, or comes twice".into());
        }
        self.began = true;
        match kind {
            "response.created" => self.response_created(event),
            "response.done" => self.response_done(event),
            "error" => self.error(event),
            "input_audio_buffer.speech_started" => match self.speaking.replace(text(event, "item_id")?) {
                Some(open) => Err(format!("speech starts within that of {open}")),
                None => Ok(()),
            },
            "session.updated" => {
                self.was_updated = true;
                Ok(())
            }
            "input_audio_buffer.speech_stopped" => match self.speaking.take() {
                Some(open) if open == text(event, "item_id")? => Ok(()),
                // The client committed by itself until an update let the hub find the end of what it was saying.
                None if self.was_updated => Ok(()),
                open => Err(format!("speech stops that did not start: {open:?} is open")),
            },
            "input_audio_buffer.cleared" => {
                self.speaking = None;
                Ok(())
            }
            "input_audio_buffer.committed" => {
                let item = text(event, "item_id")?;
                if self.speaking.as_ref() == Some(&item) {
                    self.speaking = None;
                }
                if self.transcribes {
                    self.untranscribed.insert(item.clone());
                }
                unique(self.committed.insert(item), "an item is committed twice")?;
                self.previous(event)
            }
            "output_audio_buffer.cleared" => {
                let id = text(event, "response_id")?;
                match self.responses.get_mut(&id) {
                    Some(response) => response.cleared = true,
                    None => return self.ahead(id),
                }
                Ok(())
            }
            "antiphon.output_audio.sent" => self.sent(event),
            _ if kind.starts_with("conversation.item.") => self.conversation(&kind[18..], event, spoken_ms),
            _ if kind.starts_with("response.") => self.output(&kind[9..], event),
            _ => Ok(()),
        }
    }

    fn error(&mut self, event: &Value) -> Checked {
        let Some(name) = event["error"]["event_id"].as_str() else { return Ok(()) };
        self.answered(name)
    }

    fn answered(&mut self, name: &str) -> Checked {
        match self.asked.get_mut(name) {
            Some(answered) => unique(!std::mem::replace(answered, true), "a request for a response is answered twice"),
            None => Ok(()),
        }
    }

    fn response_created(&mut self, event: &Value) -> Checked {
        let response = &event["response"];
        let id = text(response, "id")?;
        if response["status"] != "in_progress" {
            return Err(format!("response {id} begins as {}", response["status"]));
        }
        if let Some(name) = response["metadata"]["name"].as_str() {
            self.answered(name)?;
        }
        let format = response["audio"]["output"]["format"]["type"].as_str().unwrap_or_default();
        let bytes_a_ms = if format == "audio/pcm" { 48 } else { 8 };
        let cleared = self.named.remove(&id);
        let known = self.responses.insert(id, Response { bytes_a_ms, cleared, ..Response::default() });
        unique(known.is_none(), "response.created comes twice")
    }

    fn response_done(&mut self, event: &Value) -> Checked {
        let id = text(&event["response"], "id")?;
        let response = self.responses.get_mut(&id).ok_or("response.done of an unknown response")?;
        if std::mem::replace(&mut response.is_done, true) {
            return Err(format!("response.done of {id} comes twice"));
        }
        if event["response"]["status"] == "in_progress" {
            return Err(format!("response {id} ends in progress"));
        }
        let shown: Vec<_> =
            event["response"]["output"].as_array().ok_or("a response without outputs")?.iter().collect();
        let shown: Vec<_> = shown.into_iter().map(|item| item["id"].as_str().unwrap_or_default()).collect();
        if shown != response.outputs {
            return Err(format!("response.done shows the items {shown:?}, and {:?} were sent", response.outputs));
        }
        match response.outputs.iter().find(|item| !self.outputs[*item].is_done) {
            Some(open) => Err(format!("response {id} ends while its item {open} is open")),
            None => Ok(()),
        }
    }

    fn conversation(&mut self, kind: &str, event: &Value, spoken_ms: u64) -> Checked {
        match kind {
            "added" => {
                let id = text(&event["item"], "id")?;
                if event["item"]["type"] == "mcp_approval_request" {
                    self.approvals.push(id.clone());
                }
                self.named.remove(&id);
                unique(self.items.insert(id, false).is_none(), "an item is added twice")?;
                self.previous(event)
            }
            "done" => {
                let id = text(&event["item"], "id")?;
                if event["item"]["type"] == "function_call" {
                    self.calls.extend(event["item"]["call_id"].as_str().map(str::to_owned));
                }
                let is_done =
                    self.items.get_mut(&id).ok_or_else(|| format!("the item {id} is done and was not added"))?;
                unique(!std::mem::replace(is_done, true), "an item is done twice")
            }
            "deleted" => {
                let id = text(event, "item_id")?;
                self.untranscribed.remove(&id);
                self.deleted.insert(id.clone());
                self.items.remove(&id).map(drop).ok_or_else(|| format!("the item {id} is deleted and was not there"))
            }
            "truncated" => {
                let id = text(event, "item_id")?;
                if let Some(output) = self.outputs.get_mut(&id) {
                    output.truncated = true;
                }
                let end = event["audio_end_ms"].as_u64().ok_or("a truncation without an end")?;
                match end > spoken_ms + 60 {
                    true => Err(format!("{id} is cut at {end} ms, and all voices made {spoken_ms} ms")),
                    false => Ok(()),
                }
            }
            "input_audio_transcription.completed" | "input_audio_transcription.failed" => {
                let id = text(event, "item_id")?;
                self.untranscribed.remove(&id);
                let index = event["content_index"].as_u64().unwrap_or_default();
                unique(self.transcribed.insert((id, index)), "a transcript ends twice")
            }
            _ => Ok(()),
        }
    }

    fn previous(&mut self, event: &Value) -> Checked {
        match event["previous_item_id"].as_str() {
            Some(id) if !self.items.contains_key(id) && !self.deleted.contains(id) && !self.committed.contains(id) => {
                self.ahead(id.to_owned())
            }
            _ => Ok(()),
        }
    }

    /// An item or a response is named before it came. Where the hub holds a reply while it decides whether the user speaks, its
    /// events are held with it, and others overtake them.
    fn ahead(&mut self, id: String) -> Checked {
        match self.framed {
            Some(_) => drop(self.named.insert(id)),
            None => return Err(format!("{id} is named before it came")),
        }
        Ok(())
    }

    fn output(&mut self, kind: &str, event: &Value) -> Checked {
        // Progress of remote calls names the item alone.
        let Some(id) = event["response_id"].as_str() else { return Ok(()) };
        let response = self.responses.get_mut(id).ok_or_else(|| format!("{kind} of an unknown response"))?;
        if response.is_done {
            return Err(format!("{kind} after response.done of {id}"));
        }
        if kind == "output_item.added" {
            let item = text(&event["item"], "id")?;
            let index = event["output_index"].as_u64().ok_or("an output without an index")?;
            if index != response.outputs.len() as u64 {
                return Err(format!(
                    "the output {item} has the index {index}, after {} outputs",
                    response.outputs.len()
                ));
            }
            response.outputs.push(item.clone());
            let output = Output { response: id.to_owned(), index, ..Output::default() };
            return unique(self.outputs.insert(item, output).is_none(), "an output is added twice");
        }
        let item =
            event["item_id"].as_str().or(event["item"]["id"].as_str()).ok_or("an output event without an item")?;
        let bytes_a_ms = response.bytes_a_ms;
        let output = self.outputs.get_mut(item).ok_or_else(|| format!("{kind} of the unknown output {item}"))?;
        if output.response != id || event["output_index"] != output.index {
            return Err(format!("{kind} of {item} names another response or index"));
        }
        if output.is_done {
            return Err(format!("{kind} after the end of the output {item}"));
        }
        let delta = event["delta"].as_str().unwrap_or_default();
        let in_part = |output: &Output, part: Part| match output.part == part {
            true => Ok(()),
            false => Err(format!("{kind} while the part of {item} is {:?}", output.part)),
        };
        match kind {
            "output_item.done" => {
                output.is_done = true;
                let is_open = matches!(output.part, Part::Audio | Part::Text);
                unique(!is_open, "an output ends while its part is open")
            }
            "content_part.added" => {
                let part = if event["part"]["type"] == "audio" { Part::Audio } else { Part::Text };
                let before = std::mem::replace(&mut output.part, part);
                unique(before == Part::None, "a part begins twice")
            }
            "content_part.done" => {
                let (part, is_whole) = match output.part {
                    Part::Audio => ("transcript", output.has_transcript_end),
                    Part::Text => ("text", output.has_text_end),
                    part => return Err(format!("a part ends that is {part:?}")),
                };
                let has_audio = output.part == Part::Text || output.has_audio_end;
                output.part = Part::Done;
                if !is_whole || !has_audio {
                    return Err("a part ends before what is in it".into());
                }
                same(output, &event["part"][part])
            }
            "output_text.delta" => {
                output.text.push_str(delta);
                in_part(output, Part::Text)
            }
            "output_audio_transcript.delta" => {
                output.text.push_str(delta);
                in_part(output, Part::Audio)
            }
            "output_audio.delta" => {
                output.audio_bytes += delta.trim_end_matches('=').len() as u64 * 3 / 4;
                let ms = output.audio_bytes / bytes_a_ms;
                let item = item.to_owned();
                in_part(output, Part::Audio)?;
                if output.has_audio_end {
                    return Err(format!("audio of {item} after its end"));
                }
                self.hears(item, ms);
                Ok(())
            }
            "output_audio.done" => {
                in_part(output, Part::Audio)?;
                unique(!std::mem::replace(&mut output.has_audio_end, true), "audio ends twice")
            }
            "output_text.done" => {
                in_part(output, Part::Text)?;
                same(output, &event["text"])?;
                unique(!std::mem::replace(&mut output.has_text_end, true), "a text ends twice")
            }
            "output_audio_transcript.done" => {
                in_part(output, Part::Audio)?;
                same(output, &event["transcript"])?;
                unique(!std::mem::replace(&mut output.has_transcript_end, true), "a transcript ends twice")
            }
            "function_call_arguments.delta" | "mcp_call_arguments.delta" => {
                output.arguments.push_str(delta);
                unique(!output.has_arguments, "arguments go on after their end")
            }
            "function_call_arguments.done" | "mcp_call_arguments.done" => {
                if event["arguments"] != output.arguments.as_str() {
                    return Err(format!("the arguments of {item} are not their deltas"));
                }
                unique(!std::mem::replace(&mut output.has_arguments, true), "arguments end twice")
            }
            _ => Ok(()),
        }
    }

    /// The last frame of an item has come: behind the end of its audio, once, in the binary modes.
    fn sent(&mut self, event: &Value) -> Checked {
        let item = text(event, "item_id")?;
        let output = self.outputs.get_mut(&item).ok_or_else(|| format!("the sent end of the unknown output {item}"))?;
        if self.framed.is_none() {
            return Err("the end of frames in a session of events".into());
        }
        if !output.has_audio_end || output.response != text(event, "response_id")? {
            return Err(format!("the frames of {item} end before its audio does, or in another response"));
        }
        unique(!std::mem::replace(&mut output.has_sent_end, true), "an item's frames end twice")
    }

    fn hears(&mut self, item: String, ms: u64) {
        match self.heard.last_mut() {
            Some((last, heard)) if *last == item => *heard = ms,
            _ => self.heard.push((item, ms)),
        }
    }

    fn frame(&mut self, bytes: &Bytes) -> Checked {
        let framing = self.framed.ok_or("a binary message without having been asked for")?;
        let frame = Frame::parse(bytes).map_err(|error| error.to_string())?;
        let FrameKind::Reply { item_id } = frame.kind else { return Err("a microphone's frame from the hub".into()) };
        // Audio that is dropped before it leaves takes its numbers with it.
        if frame.sequence < self.next_sequence {
            return Err(format!("frame {} comes where {} or later is due", frame.sequence, self.next_sequence));
        }
        self.next_sequence = frame.sequence + 1;
        let item = item_id.as_str().to_owned();
        let output = self.outputs.get_mut(&item).ok_or_else(|| format!("a frame of the unknown output {item}"))?;
        if self.responses[&output.response].cleared {
            return Err(format!("a frame of {item}, whose audio was cleared"));
        }
        if output.part == Part::None || output.has_sent_end {
            return Err(format!("a frame of {item} outside of its part"));
        }
        // What the encoder holds at the end of an item takes a packet more, with the offset of the last one.
        if framing == Framing::Opus && frame.offset.0 + 480 == output.n_samples {
            output.n_samples -= 480;
        }
        if frame.offset.0 != output.n_samples {
            return Err(format!("a frame of {item} at sample {}, {} were sent", frame.offset.0, output.n_samples));
        }
        output.n_samples += match framing {
            Framing::Pcm16 => frame.payload.len() as u64 / 2,
            Framing::Opus => 480,
        };
        let ms = output.n_samples / 24;
        self.hears(item, ms);
        Ok(())
    }
}

fn text(value: &Value, name: &str) -> Result<String, String> {
    value[name].as_str().map(str::to_owned).ok_or_else(|| format!("no {name}"))
}

fn unique(holds: bool, otherwise: &str) -> Checked {
    if holds { Ok(()) } else { Err(otherwise.to_owned()) }
}

/// The text of a part that ends is that of its deltas, unless the client has cut it.
fn same(output: &Output, shown: &Value) -> Checked {
    match output.truncated || *shown == output.text.as_str() {
        true => Ok(()),
        false => Err(format!("a part ends as {shown}, and its deltas are {:?}", output.text)),
    }
}
