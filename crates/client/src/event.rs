//! Server events, as far as this client uses them. Parsing is tolerant, because other servers are supported too.

use super::resume::Resumption;
use serde::Deserialize;
use std::collections::BTreeMap;

/// One received message.
#[derive(Clone, Debug, PartialEq)]
pub enum ReceivedMessage {
    /// A JSON event other than an audio delta.
    Event(Event),
    /// Response audio, from a JSON event or a binary frame.
    Audio {
        /// Id of the response item.
        item_id: String,
        /// Mono PCM at [`super::RATE`].
        samples: Vec<i16>,
    },
    /// The connection was lost and the session resumed; not a message of the server.
    Resumed(Resumption),
}

/// A JSON event, with the fields that the protocol requires.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(tag = "type")]
#[allow(missing_docs, reason = "the variants and fields are named as on the wire")]
pub enum Event {
    #[serde(rename = "session.created")]
    SessionCreated {},
    #[serde(rename = "session.updated")]
    SessionUpdated {},
    #[serde(rename = "input_audio_buffer.speech_started")]
    SpeechStarted { item_id: String, audio_start_ms: u64 },
    #[serde(rename = "input_audio_buffer.speech_stopped")]
    SpeechStopped { item_id: String, audio_end_ms: u64 },
    #[serde(rename = "input_audio_buffer.committed")]
    Committed { item_id: String },
    #[serde(rename = "conversation.item.input_audio_transcription.delta")]
    TranscriptionDelta {
        item_id: String,
        #[serde(default)]
        delta: String,
    },
    /// In the binary modes: words that follow those of the deltas and may still change.
    #[serde(rename = "antiphon.transcription.draft")]
    TranscriptionDraft { item_id: String, transcript: String },
    #[serde(rename = "conversation.item.input_audio_transcription.completed")]
    TranscriptionCompleted { item_id: String, transcript: String },
    #[serde(rename = "conversation.item.input_audio_transcription.failed")]
    TranscriptionFailed { item_id: String, error: Problem },
    #[serde(rename = "response.created")]
    ResponseCreated { response: ResponseInfo },
    #[serde(rename = "response.done")]
    ResponseDone { response: ResponseInfo },
    #[serde(rename = "response.output_audio.delta")]
    AudioDelta { item_id: String, delta: String },
    /// In the binary modes: no more frames of the item will come.
    #[serde(rename = "antiphon.output_audio.sent")]
    AudioSent { item_id: String },
    #[serde(rename = "response.output_audio_transcript.delta")]
    TranscriptDelta { item_id: String, delta: String },
    #[serde(rename = "response.output_text.delta")]
    TextDelta { item_id: String, delta: String },
    #[serde(rename = "response.function_call_arguments.done")]
    FunctionCall {
        call_id: String,
        #[serde(default)]
        name: String,
        #[serde(default)]
        arguments: String,
    },
    #[serde(rename = "output_audio_buffer.held")]
    Held { item_id: String },
    #[serde(rename = "output_audio_buffer.resumed")]
    Resumed { item_id: String },
    #[serde(rename = "output_audio_buffer.cleared")]
    Cleared {},
    #[serde(rename = "conversation.item.truncated")]
    Truncated { item_id: String, audio_end_ms: u64 },
    #[serde(rename = "antiphon.timeline")]
    Timeline { marks: BTreeMap<String, f64> },
    #[serde(rename = "antiphon.session.resumable")]
    SessionResumable { key: String, within_s: u64 },
    /// The server stores the session as it is with this message; see [`super::Checkpoints`].
    #[serde(rename = "antiphon.session.checkpoint")]
    SessionCheckpoint { received: u64 },
    #[serde(rename = "error")]
    Error { error: Problem },
    /// Any other event.
    #[serde(other)]
    Other,
}

/// `error` of an event, or of a failed response.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct Problem {
    /// Machine-readable code.
    #[serde(default)]
    pub code: Option<String>,
    /// Message for people.
    #[serde(default)]
    pub message: Option<String>,
}

/// A response object, as far as this client uses it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct ResponseInfo {
    /// `resp_...`
    #[serde(default)]
    pub id: String,
    /// `in_progress`, `completed`, `cancelled`, `incomplete` or `failed`.
    #[serde(default)]
    pub status: String,
    /// Why it ended.
    #[serde(default)]
    pub status_details: Option<StatusInfo>,
}

/// Why a response ended.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct StatusInfo {
    /// Reason, for a cancelled or incomplete response.
    #[serde(default)]
    pub reason: Option<String>,
    /// Error, for a failed response.
    #[serde(default)]
    pub error: Option<Problem>,
}
