//! Events that the hub sends as text. Names, fields and nulls follow the protocol; [`encode`] adds `event_id`.

use super::error::{ErrorKind, WireError};
use super::item::Item;
use super::notice::SessionNotice;
use super::response::Response;
use super::session::{Session, shown};
use super::timeline::{Endpointing, Marks, Workers};
use antiphon_types::{ItemId, ResponseId};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use serde::{Serialize, Serializer};

/// What an `antiphon.notice` is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum NoticeCode {
    /// The turn's rounds of tool calls are used up.
    ToolRoundsSpent,
    /// The model made calls that are not made.
    CallsRefused,
    /// A part of the last turn was left out of the model's request.
    InputCut,
    /// The model has said nothing yet, and may have to be loaded first.
    ModelLoading,
}

/// An event from the hub.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "type")]
#[allow(missing_docs, reason = "the variants and fields are named as on the wire")]
pub enum ServerEvent {
    #[serde(rename = "error")]
    Error { error: WireError },

    #[serde(rename = "session.created")]
    SessionCreated {
        #[serde(serialize_with = "shown")]
        session: Box<Session>,
    },
    #[serde(rename = "session.updated")]
    SessionUpdated {
        #[serde(serialize_with = "shown")]
        session: Box<Session>,
    },

    /// Beta protocol only.
    #[serde(rename = "conversation.created")]
    ConversationCreated { conversation: Conversation },

    /// User audio was committed to a conversation item.
    #[serde(rename = "input_audio_buffer.committed")]
    InputAudioCommitted { previous_item_id: Option<ItemId>, item_id: ItemId },
    #[serde(rename = "input_audio_buffer.cleared")]
    InputAudioCleared {},
    /// `audio_start_ms` counts all audio of the session and includes the pre-roll.
    #[serde(rename = "input_audio_buffer.speech_started")]
    SpeechStarted { audio_start_ms: u64, item_id: ItemId },
    #[serde(rename = "input_audio_buffer.speech_stopped")]
    SpeechStopped { audio_end_ms: u64, item_id: ItemId },
    #[serde(rename = "input_audio_buffer.timeout_triggered")]
    IdleTimeout { audio_start_ms: u64, audio_end_ms: u64, item_id: ItemId },
    /// Calls only: the caller pressed a key. `event`: the key; `received_at`: seconds of Unix time.
    #[serde(rename = "input_audio_buffer.dtmf_event_received")]
    KeyPressed { event: char, received_at: i64 },

    #[serde(rename = "conversation.item.added")]
    ItemAdded { previous_item_id: Option<ItemId>, item: Item },
    #[serde(rename = "conversation.item.done")]
    ItemDone { previous_item_id: Option<ItemId>, item: Item },
    #[serde(rename = "conversation.item.deleted")]
    ItemDeleted { item_id: ItemId },
    #[serde(rename = "conversation.item.retrieved")]
    ItemRetrieved { item: Item },
    #[serde(rename = "conversation.item.truncated")]
    ItemTruncated { item_id: ItemId, content_index: u32, audio_end_ms: u64 },
    #[serde(rename = "conversation.item.input_audio_transcription.delta")]
    TranscriptionDelta { item_id: ItemId, content_index: u32, delta: String },
    #[serde(rename = "conversation.item.input_audio_transcription.segment")]
    TranscriptionSegment {
        item_id: ItemId,
        content_index: u32,
        id: String,
        text: String,
        speaker: String,
        start: f64,
        end: f64,
    },
    #[serde(rename = "conversation.item.input_audio_transcription.completed")]
    TranscriptionCompleted {
        item_id: ItemId,
        content_index: u32,
        transcript: String,
        /// An extension: the language spoken as an ISO-639-1 code, where the engine names it.
        #[serde(skip_serializing_if = "Option::is_none")]
        language: Option<String>,
        usage: TranscriptionUsage,
        /// Present if the client requested them and the engine supports them.
        #[serde(skip_serializing_if = "Option::is_none")]
        logprobs: Option<Vec<Logprob>>,
    },
    #[serde(rename = "conversation.item.input_audio_transcription.failed")]
    TranscriptionFailed {
        item_id: ItemId,
        content_index: u32,
        #[serde(serialize_with = "without_event_id")]
        error: WireError,
    },

    #[serde(rename = "response.created")]
    ResponseCreated { response: Box<Response> },
    #[serde(rename = "response.done")]
    ResponseDone { response: Box<Response> },
    #[serde(rename = "response.output_item.added")]
    OutputItemAdded { response_id: ResponseId, output_index: u32, item: Item },
    #[serde(rename = "response.output_item.done")]
    OutputItemDone { response_id: ResponseId, output_index: u32, item: Item },
    #[serde(rename = "response.content_part.added")]
    ContentPartAdded {
        #[serde(flatten)]
        at: PartAt,
        part: ResponsePart,
    },
    #[serde(rename = "response.content_part.done")]
    ContentPartDone {
        #[serde(flatten)]
        at: PartAt,
        part: ResponsePart,
    },
    #[serde(rename = "response.output_text.delta")]
    OutputTextDelta {
        #[serde(flatten)]
        at: PartAt,
        delta: String,
    },
    #[serde(rename = "response.output_text.done")]
    OutputTextDone {
        #[serde(flatten)]
        at: PartAt,
        text: String,
    },
    /// Audio in the session's output format; [`encode`] converts it to base64.
    #[serde(rename = "response.output_audio.delta")]
    OutputAudioDelta {
        #[serde(flatten)]
        at: PartAt,
        #[serde(serialize_with = "as_base64")]
        delta: Bytes,
    },
    #[serde(rename = "response.output_audio.done")]
    OutputAudioDone {
        #[serde(flatten)]
        at: PartAt,
    },
    #[serde(rename = "response.output_audio_transcript.delta")]
    OutputTranscriptDelta {
        #[serde(flatten)]
        at: PartAt,
        delta: String,
    },
    #[serde(rename = "response.output_audio_transcript.done")]
    OutputTranscriptDone {
        #[serde(flatten)]
        at: PartAt,
        transcript: String,
    },
    #[serde(rename = "response.function_call_arguments.delta")]
    FunctionArgumentsDelta {
        #[serde(flatten)]
        at: ItemAt,
        call_id: String,
        delta: String,
    },
    #[serde(rename = "response.function_call_arguments.done")]
    FunctionArgumentsDone {
        #[serde(flatten)]
        at: ItemAt,
        call_id: String,
        name: String,
        arguments: String,
    },
    #[serde(rename = "mcp_list_tools.in_progress")]
    McpListInProgress { item_id: ItemId },
    #[serde(rename = "mcp_list_tools.completed")]
    McpListCompleted { item_id: ItemId },
    #[serde(rename = "mcp_list_tools.failed")]
    McpListFailed { item_id: ItemId },
    #[serde(rename = "response.mcp_call_arguments.delta")]
    McpArgumentsDelta {
        #[serde(flatten)]
        at: ItemAt,
        delta: String,
    },
    #[serde(rename = "response.mcp_call_arguments.done")]
    McpArgumentsDone {
        #[serde(flatten)]
        at: ItemAt,
        arguments: String,
    },
    #[serde(rename = "response.mcp_call.in_progress")]
    McpCallInProgress { item_id: ItemId, output_index: u32 },
    #[serde(rename = "response.mcp_call.completed")]
    McpCallCompleted { item_id: ItemId, output_index: u32 },
    #[serde(rename = "response.mcp_call.failed")]
    McpCallFailed { item_id: ItemId, output_index: u32 },
    /// Names other than `requests` and `tokens` break a client.
    #[serde(rename = "rate_limits.updated")]
    RateLimitsUpdated { rate_limits: Vec<RateLimit> },

    /// WebRTC only: the first audio of the response has left.
    #[serde(rename = "output_audio_buffer.started")]
    OutputStarted { response_id: ResponseId },
    /// WebRTC only: the last audio of the response has left.
    #[serde(rename = "output_audio_buffer.stopped")]
    OutputStopped { response_id: ResponseId },
    /// Extension: pause playback and keep the queue.
    #[serde(rename = "output_audio_buffer.held")]
    OutputHeld { response_id: ResponseId, item_id: ItemId },
    /// Extension: resume playback.
    #[serde(rename = "output_audio_buffer.resumed")]
    OutputResumed { response_id: ResponseId, item_id: ItemId },
    /// Stop playback immediately and drop the queue.
    #[serde(rename = "output_audio_buffer.cleared")]
    OutputCleared { response_id: ResponseId },
    /// Extension: the last paced audio of the item has been sent, or what was left of it was discarded.
    #[serde(rename = "antiphon.output_audio.sent")]
    OutputAudioSent { response_id: ResponseId, item_id: ItemId },
    /// Extension: words of an utterance under way that may still change, behind those of the deltas so far.
    #[serde(rename = "antiphon.transcription.draft")]
    TranscriptionDraft { item_id: ItemId, content_index: u32, transcript: String },
    /// Extension: speech over a reply was a backchannel, or sound without words. It did not interrupt and is no item.
    #[serde(rename = "antiphon.backchannel")]
    Backchannel {
        /// What was said; empty where there were no words.
        transcript: String,
        audio_start_ms: u64,
        audio_end_ms: u64,
    },
    /// Extension: speech was another voice's than the user's. It did not interrupt, was not transcribed and is no item.
    #[serde(rename = "antiphon.speech.ignored")]
    SpeechIgnored {
        /// Of its voice and the user's, -1 to 1.
        similarity: f32,
        /// How much quieter than the user it was, in dB, to a tenth; negative: louder.
        quieter_db: f32,
        audio_start_ms: u64,
        audio_end_ms: u64,
    },
    /// Extension: what the hub did about a request to the language model.
    #[serde(rename = "antiphon.notice")]
    Notice {
        response_id: ResponseId,
        code: NoticeCode,
        /// Of `model_loading`: the longest wait for the first words, in seconds.
        #[serde(skip_serializing_if = "Option::is_none")]
        limit_s: Option<u64>,
        /// The same in words, for a page.
        message: String,
    },
    /// Extension: latency of each stage of a turn, and the endpointing decision if endpointing is adaptive.
    #[serde(rename = "antiphon.timeline")]
    Timeline {
        item_id: ItemId,
        response_id: ResponseId,
        marks: Marks,
        #[serde(skip_serializing_if = "Option::is_none")]
        endpointing: Option<Endpointing>,
        #[serde(flatten, skip_serializing_if = "Option::is_none")]
        workers: Option<Box<Workers>>,
    },
    /// Extension: about the session itself.
    #[serde(untagged)]
    Session(SessionNotice),
}

impl ServerEvent {
    /// Whether the event is one of the hub's extensions, which clients of the Realtime API do not know.
    pub fn is_extension(&self) -> bool {
        match self {
            Self::OutputHeld { .. }
            | Self::OutputResumed { .. }
            | Self::OutputAudioSent { .. }
            | Self::TranscriptionDraft { .. }
            | Self::Backchannel { .. }
            | Self::SpeechIgnored { .. }
            | Self::Notice { .. }
            | Self::Timeline { .. }
            | Self::Session(_) => true,
            Self::Error { .. }
            | Self::SessionCreated { .. }
            | Self::SessionUpdated { .. }
            | Self::ConversationCreated { .. }
            | Self::InputAudioCommitted { .. }
            | Self::InputAudioCleared {}
            | Self::SpeechStarted { .. }
            | Self::SpeechStopped { .. }
            | Self::IdleTimeout { .. }
            | Self::KeyPressed { .. }
            | Self::ItemAdded { .. }
            | Self::ItemDone { .. }
            | Self::ItemDeleted { .. }
            | Self::ItemRetrieved { .. }
            | Self::ItemTruncated { .. }
            | Self::TranscriptionDelta { .. }
            | Self::TranscriptionSegment { .. }
            | Self::TranscriptionCompleted { .. }
            | Self::TranscriptionFailed { .. }
            | Self::ResponseCreated { .. }
            | Self::ResponseDone { .. }
            | Self::OutputItemAdded { .. }
            | Self::OutputItemDone { .. }
            | Self::ContentPartAdded { .. }
            | Self::ContentPartDone { .. }
            | Self::OutputTextDelta { .. }
            | Self::OutputTextDone { .. }
            | Self::OutputAudioDelta { .. }
            | Self::OutputAudioDone { .. }
            | Self::OutputTranscriptDelta { .. }
            | Self::OutputTranscriptDone { .. }
            | Self::FunctionArgumentsDelta { .. }
            | Self::FunctionArgumentsDone { .. }
            | Self::McpListInProgress { .. }
            | Self::McpListCompleted { .. }
            | Self::McpListFailed { .. }
            | Self::McpArgumentsDelta { .. }
            | Self::McpArgumentsDone { .. }
            | Self::McpCallInProgress { .. }
            | Self::McpCallCompleted { .. }
            | Self::McpCallFailed { .. }
            | Self::RateLimitsUpdated { .. }
            | Self::OutputStarted { .. }
            | Self::OutputStopped { .. }
            | Self::OutputCleared { .. } => false,
        }
    }
}

/// A conversation object of the beta protocol.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Conversation {
    id: String,
    object: &'static str,
}

impl Conversation {
    /// The conversation with this id.
    pub fn new(id: impl Into<String>) -> Self {
        Self { id: id.into(), object: "realtime.conversation" }
    }
}

/// Position of an item in a response.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ItemAt {
    /// Id of the response.
    pub response_id: ResponseId,
    /// Id of the item.
    pub item_id: ItemId,
    /// Index in `response.output`.
    pub output_index: u32,
}

/// Position of a content part in a response.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PartAt {
    /// The item of the part.
    #[serde(flatten)]
    pub item: ItemAt,
    /// Index in `item.content`.
    pub content_index: u32,
}

impl PartAt {
    /// The content part `content_index` of an item.
    pub fn new(response_id: ResponseId, item_id: ItemId, output_index: u32, content_index: u32) -> Self {
        Self { item: ItemAt { response_id, item_id, output_index }, content_index }
    }
}

/// `part` of `response.content_part.*`; named differently from content parts in items, and never null.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum ResponsePart {
    /// A text part.
    Text {
        /// Empty in `response.content_part.added`.
        text: String,
    },
    /// An audio part.
    Audio {
        /// Empty in `response.content_part.added`.
        transcript: String,
    },
}

/// The log probability of one token of a transcript.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Logprob {
    /// The token as text.
    pub token: String,
    /// The token's UTF-8 bytes.
    pub bytes: Vec<u8>,
    /// Natural logarithm of its probability.
    pub logprob: f64,
}

/// Usage of a transcription.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum TranscriptionUsage {
    /// The duration of the audio.
    Duration {
        /// In seconds.
        seconds: f64,
    },
}

/// One entry of `rate_limits.updated`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct RateLimit {
    /// `requests` or `tokens`.
    pub name: &'static str,
    /// Limit per window.
    pub limit: u64,
    /// Remaining amount in the current window.
    pub remaining: u64,
    /// Seconds until the window resets.
    pub reset_seconds: f64,
}

/// Bytes of an audio delta apart from its base64: as much as type, ids and indexes take.
const AUDIO_HEAD_BYTES: usize = 320;

#[derive(Serialize)]
struct Envelope<'a> {
    event_id: &'a str,
    #[serde(flatten)]
    event: &'a ServerEvent,
}

/// The length of an encoded event in bytes; of an audio delta, which is frequent, at most that. Allocates nothing.
pub fn encoded_bytes(event: &ServerEvent, event_id: &str) -> usize {
    if let ServerEvent::OutputAudioDelta { delta, .. } = event {
        return AUDIO_HEAD_BYTES + base64_bytes(delta.len());
    }
    let mut counter = Counter(0);
    serde_json::to_writer(&mut counter, &Envelope { event_id, event }).expect("a counter takes every byte");
    counter.0
}

fn base64_bytes(n: usize) -> usize {
    n.div_ceil(3) * 4
}

/// Counts what is written.
struct Counter(usize);

impl std::io::Write for Counter {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0 += bytes.len();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Encodes an event.
pub fn encode(event: &ServerEvent, event_id: &str) -> String {
    if let ServerEvent::OutputAudioDelta { at, delta } = event {
        return encode_audio(at, delta, event_id);
    }
    serde_json::to_string(&Envelope { event_id, event }).expect("server events have string keys and no failing parts")
}

/// Encodes an audio delta, the most frequent event: the base64 is written directly into the message.
fn encode_audio(at: &PartAt, audio: &[u8], event_id: &str) -> String {
    #[derive(Serialize)]
    struct Head<'a> {
        r#type: &'a str,
        event_id: &'a str,
        #[serde(flatten)]
        at: &'a PartAt,
    }
    let head = Head { r#type: "response.output_audio.delta", event_id, at };
    let mut text = String::with_capacity(AUDIO_HEAD_BYTES + base64_bytes(audio.len()));
    text.push_str(&serde_json::to_string(&head).expect("a head has string keys and no failing parts"));
    text.pop();
    text.push_str(",\"delta\":\"");
    STANDARD.encode_string(audio, &mut text);
    text.push_str("\"}");
    text
}

/// Serializes an error that no client event caused.
fn without_event_id<S: Serializer>(error: &WireError, to: S) -> Result<S::Ok, S::Error> {
    #[derive(Serialize)]
    struct Shape<'a> {
        r#type: ErrorKind,
        code: Option<&'static str>,
        message: &'a str,
        param: Option<&'a str>,
    }
    let WireError { kind, code, message, param, event_id: _ } = error;
    Shape { r#type: *kind, code: *code, message, param: param.as_deref() }.serialize(to)
}

fn as_base64<S: Serializer>(audio: &Bytes, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(&STANDARD.encode(audio))
}

#[cfg(test)]
#[path = "server_event_tests.rs"]
mod tests;
