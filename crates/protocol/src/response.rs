//! Responses: the parameters a client may set, and the response object it receives.

use super::item::{InputItem, Item};
use super::limits::{MAX_INSTRUCTIONS_BYTES, MAX_VOICE_INSTRUCTIONS_BYTES};
use super::read::{Node, Read};
use super::session_update::SPEEDS;
use super::setting::{AudioFormat, MaxTokens, Modality, read_metadata, read_voice};
use super::tool::{Tool, ToolChoice};
use antiphon_types::ResponseId;
use serde::Serialize;
use std::collections::BTreeMap;

/// `response` of `response.create`. `None` selects the session's setting.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ResponseParams {
    /// The system prompt of this response.
    pub instructions: Option<String>,
    /// Audio or text.
    pub output_modalities: Option<Modality>,
    /// `audio.output.voice`
    pub voice: Option<String>,
    /// `audio.output.speed`, 0.25 to 1.5.
    pub speed: Option<f64>,
    /// `audio.output.instructions`: how to speak; empty: as the voice does.
    pub voice_instructions: Option<String>,
    /// `audio.output.format`
    pub format: Option<AudioFormat>,
    /// Tools the model may call.
    pub tools: Option<Vec<Tool>>,
    /// How the model chooses among the tools.
    pub tool_choice: Option<ToolChoice>,
    /// Limit on output tokens.
    pub max_output_tokens: Option<MaxTokens>,
    /// `conversation` is `"none"`: the response does not read or change the conversation.
    pub out_of_band: bool,
    /// Echoed in `response.created` and `response.done`.
    pub metadata: Option<BTreeMap<String, String>>,
    /// Items that the model reads instead of the conversation.
    pub input: Option<Vec<InputItem>>,
}

impl ResponseParams {
    pub(super) fn read(node: Node) -> Read<Self> {
        let mut fields = node.object()?;
        let (format, voice, speed, voice_instructions) = fields
            .optional("audio", |node| {
                let mut audio = node.object()?;
                let output = audio.optional("output", |node| {
                    let mut output = node.object()?;
                    let format = output.optional("format", AudioFormat::read)?;
                    let voice = output.optional("voice", read_voice)?;
                    let speed = output.optional("speed", |node| node.decimal(SPEEDS))?;
                    let instructions =
                        output.optional("instructions", |node| node.text_within(MAX_VOICE_INSTRUCTIONS_BYTES))?;
                    output.finish()?;
                    Ok((format, voice, speed, instructions))
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
            voice_instructions,
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
    /// Status of the response.
    pub status: ResponseStatus,
    /// Why it ended; null while it is in progress and after normal completion.
    pub status_details: Option<StatusDetails>,
    /// Items generated so far.
    pub output: Vec<Item>,
    /// `conv_...`; null for an out-of-band response.
    pub conversation_id: Option<String>,
    /// Audio or text.
    pub output_modalities: Modality,
    /// Limit on output tokens.
    pub max_output_tokens: MaxTokens,
    /// Audio output settings.
    pub audio: ResponseAudio,
    /// Token usage; null until the response is done.
    pub usage: Option<Usage>,
    /// Metadata from the client.
    pub metadata: Option<BTreeMap<String, String>>,
}

impl Response {
    /// A response in progress with default settings; the caller sets the rest.
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

/// Status of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ResponseStatus {
    /// Still being generated.
    InProgress,
    /// Complete.
    Completed,
    /// Stopped by the client or by user speech.
    Cancelled,
    /// Stopped by a limit.
    Incomplete,
    /// A stage failed.
    Failed,
}

/// Why a response ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct StatusDetails {
    /// The status, repeated.
    #[serde(rename = "type")]
    pub kind: ResponseStatus,
    /// Reason, for a cancelled or incomplete response.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<StatusReason>,
    /// Error, for a failed response.
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

    /// `{type: failed, error}`; the message states which stage failed and how.
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
    /// The model provider's content filter stopped it.
    ContentFilter,
}

/// The error of a failed response.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct StatusError {
    #[serde(rename = "type")]
    kind: &'static str,
    /// Name of the stage.
    pub code: String,
    /// Description for the client's developer.
    pub message: String,
}

/// `response.audio`
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ResponseAudio {
    /// Null for a text response.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output: Option<ResponseAudioOutput>,
}

/// `response.audio.output`
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ResponseAudioOutput {
    /// Audio format on the wire.
    pub format: AudioFormat,
    /// Voice id.
    pub voice: String,
}

/// Token usage of a response: text as counted by the model, audio at the protocol's rates.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Usage {
    /// Input plus output.
    pub total_tokens: u64,
    /// Tokens read by the model.
    pub input_tokens: u64,
    /// Tokens generated by the model.
    pub output_tokens: u64,
    /// Input by kind.
    pub input_token_details: InputTokens,
    /// Output by kind.
    pub output_token_details: OutputTokens,
}

impl Usage {
    /// The totals of `input` and `output`.
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
    /// The part of the input that was in the provider's cache.
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
