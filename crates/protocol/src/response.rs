//! Responses: what a client may ask of one, and the object it is shown.

use super::item::{InputItem, Item};
use super::limits::MAX_INSTRUCTIONS_BYTES;
use super::read::{Node, Read};
use super::setting::{AudioFormat, MaxTokens, Modality, read_metadata, read_voice};
use super::tool::{Tool, ToolChoice};
use antiphon_types::ResponseId;
use serde::Serialize;
use std::collections::BTreeMap;

/// `response` of `response.create`. `None` everywhere means the session's own setting.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ResponseParams {
    /// The system prompt of this response.
    pub instructions: Option<String>,
    /// What it is made of.
    pub output_modalities: Option<Modality>,
    /// `audio.output.voice`
    pub voice: Option<String>,
    /// `audio.output.speed`, 0.25 to 1.5.
    pub speed: Option<f64>,
    /// `audio.output.format`
    pub format: Option<AudioFormat>,
    /// Tools the model may call.
    pub tools: Option<Vec<Tool>>,
    /// How it chooses among them.
    pub tool_choice: Option<ToolChoice>,
    /// The most tokens.
    pub max_output_tokens: Option<MaxTokens>,
    /// `conversation` is `"none"`: beside the conversation, which stays as it is.
    pub out_of_band: bool,
    /// Echoed in `response.created` and `response.done`.
    pub metadata: Option<BTreeMap<String, String>>,
    /// What the model reads instead of the conversation.
    pub input: Option<Vec<InputItem>>,
}

impl ResponseParams {
    pub(super) fn read(node: Node) -> Read<Self> {
        let mut fields = node.object()?;
        let (format, voice, speed) = fields
            .optional("audio", |node| {
                let mut audio = node.object()?;
                let output = audio.optional("output", |node| {
                    let mut output = node.object()?;
                    let format = output.optional("format", AudioFormat::read)?;
                    let voice = output.optional("voice", read_voice)?;
                    let speed = output.optional("speed", |node| node.decimal(0.25..=1.5))?;
                    output.finish()?;
                    Ok((format, voice, speed))
                })?;
                audio.finish()?;
                Ok(output.unwrap_or_default())
            })?
            .unwrap_or_default();
        let params = Self {
            instructions: fields.optional("instructions", |node| node.text_within(MAX_INSTRUCTIONS_BYTES))?,
            output_modalities: fields.optional("output_modalities", Modality::read)?,
            voice,
            speed,
            format,
            tools: fields.optional("tools", Tool::read_list)?,
            tool_choice: fields.optional("tool_choice", ToolChoice::read)?,
            max_output_tokens: fields.optional("max_output_tokens", MaxTokens::read)?,
            out_of_band: fields
                .optional("conversation", |node| node.one_of(&[("auto", false), ("none", true)]))?
                .unwrap_or(false),
            metadata: fields.optional("metadata", read_metadata)?,
            input: fields.optional("input", |node| node.list(InputItem::read))?,
        };
        fields.pass_over(&["parallel_tool_calls", "prompt", "reasoning"]);
        fields.finish()?;
        Ok(params)
    }
}

/// `response` of `response.created` and `response.done`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Response {
    object: &'static str,
    /// `resp_...`
    pub id: ResponseId,
    /// How far it got.
    pub status: ResponseStatus,
    /// Why it ended; null while it goes on, and where it simply completed.
    pub status_details: Option<StatusDetails>,
    /// Its items so far.
    pub output: Vec<Item>,
    /// `conv_...`; null out of band.
    pub conversation_id: Option<String>,
    /// What it is made of.
    pub output_modalities: Modality,
    /// The most tokens.
    pub max_output_tokens: MaxTokens,
    /// How it sounds.
    pub audio: ResponseAudio,
    /// Null until it is done.
    pub usage: Option<Usage>,
    /// As the client gave it.
    pub metadata: Option<BTreeMap<String, String>>,
}

impl Response {
    /// A response at its beginning; the caller sets what differs.
    pub fn new(id: ResponseId, conversation_id: Option<String>) -> Self {
        Self {
            object: "realtime.response",
            id,
            status: ResponseStatus::InProgress,
            status_details: None,
            output: Vec::new(),
            conversation_id,
            output_modalities: Modality::Audio,
            max_output_tokens: MaxTokens::Inf,
            audio: ResponseAudio::default(),
            usage: None,
            metadata: None,
        }
    }
}

/// How far a response got.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ResponseStatus {
    /// Still growing.
    InProgress,
    /// Whole.
    Completed,
    /// Stopped by the client or by speech.
    Cancelled,
    /// Stopped by a limit.
    Incomplete,
    /// A stage failed.
    Failed,
}

/// Why a response ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct StatusDetails {
    /// The status once more.
    #[serde(rename = "type")]
    pub kind: ResponseStatus,
    /// Of a cancelled or incomplete one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<StatusReason>,
    /// Of a failed one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<StatusError>,
}

impl StatusDetails {
    /// `{type: cancelled, reason}`
    pub fn cancelled(reason: StatusReason) -> Self {
        Self { kind: ResponseStatus::Cancelled, reason: Some(reason), error: None }
    }

    /// `{type: incomplete, reason}`
    pub fn incomplete(reason: StatusReason) -> Self {
        Self { kind: ResponseStatus::Incomplete, reason: Some(reason), error: None }
    }

    /// `{type: failed, error}`; the message says which stage failed and how.
    pub fn failed(code: impl Into<String>, message: impl Into<String>) -> Self {
        let error = StatusError { kind: "server_error", code: code.into(), message: message.into() };
        Self { kind: ResponseStatus::Failed, reason: None, error: Some(error) }
    }
}

/// Why a response was stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum StatusReason {
    /// The user spoke.
    TurnDetected,
    /// `response.cancel`
    ClientCancelled,
    /// `max_output_tokens` was reached.
    MaxOutputTokens,
    /// The model's provider held it back.
    ContentFilter,
}

/// What failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct StatusError {
    #[serde(rename = "type")]
    kind: &'static str,
    /// Names the stage.
    pub code: String,
    /// Plain words.
    pub message: String,
}

/// `response.audio`
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ResponseAudio {
    /// Null where the response is text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output: Option<ResponseAudioOutput>,
}

/// `response.audio.output`
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ResponseAudioOutput {
    /// How it travels.
    pub format: AudioFormat,
    /// A voice's id.
    pub voice: String,
}

/// What a response cost in tokens: text as the model counts it, audio at the protocol's rates.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Usage {
    /// Input and output.
    pub total_tokens: u64,
    /// What the model read.
    pub input_tokens: u64,
    /// What it wrote.
    pub output_tokens: u64,
    /// Input by kind.
    pub input_token_details: InputTokens,
    /// Output by kind.
    pub output_token_details: OutputTokens,
}

impl Usage {
    /// The sums of these.
    pub fn new(input: InputTokens, output: OutputTokens) -> Self {
        let input_tokens = input.text_tokens + input.audio_tokens + input.image_tokens;
        let output_tokens = output.text_tokens + output.audio_tokens;
        Self {
            total_tokens: input_tokens + output_tokens,
            input_tokens,
            output_tokens,
            input_token_details: input,
            output_token_details: output,
        }
    }
}

/// Input tokens by kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct InputTokens {
    /// Text.
    pub text_tokens: u64,
    /// Audio.
    pub audio_tokens: u64,
    /// Images.
    pub image_tokens: u64,
    /// Of these, those the provider had in its cache.
    pub cached_tokens: u64,
}

/// Output tokens by kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct OutputTokens {
    /// Text.
    pub text_tokens: u64,
    /// Audio.
    pub audio_tokens: u64,
}
