//! `session.update`: a partial session, in which absent, null and a value differ.
//!
//! Parsed from [`Fields`]; every error states the dotted path. [`super::Session::apply`] merges the update.

use super::error::WireError;
use super::limits::{
    MAX_ECHOED_BYTES, MAX_INSTRUCTIONS_BYTES, MAX_KEYWORDS, MAX_LANGUAGES, MAX_PROMPT_BYTES,
    MAX_VOICE_INSTRUCTIONS_BYTES,
};
use super::read::{Fields, Node, Patch, Read};
use super::session::{Eagerness, NoiseReduction};
use super::setting::{AudioFormat, MAX_NAME_BYTES, MaxTokens, Modality, read_type, read_voice};
use super::tool::{Tool, ToolChoice};
use super::truncation::Truncation;
use antiphon_types::Json;
use serde::Serialize;
use std::ops::RangeInclusive;

/// The longest pre-roll a client may request, in milliseconds: that of `turn.prefix_padding_ms`, with which sessions begin.
/// The ring that holds it is bounded.
pub const MAX_PREFIX_PADDING_MS: u32 = 5_000;
/// The longest pause a client may request, in milliseconds: the longest utterance of a session.
pub const MAX_SILENCE_DURATION_MS: u32 = 30_000;

/// Rates of speech a client may request. An operator may configure others.
pub(super) const SPEEDS: RangeInclusive<f64> = 0.25..=1.5;

/// The only supported value of `include`.
pub const INCLUDE_LOGPROBS: &str = "item.input_audio_transcription.logprobs";

/// A partial session.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SessionUpdate {
    /// `session.type`, required.
    pub kind: SessionKind,
    /// `session.model`
    pub model: Option<String>,
    /// `session.output_modalities`
    pub output_modalities: Option<Modality>,
    /// `session.instructions`
    pub instructions: Option<String>,
    /// `session.tools`
    pub tools: Option<Vec<Tool>>,
    /// `session.tool_choice`
    pub tool_choice: Option<ToolChoice>,
    /// `session.max_output_tokens`
    pub max_output_tokens: Option<MaxTokens>,
    /// `session.audio.input`
    pub input: AudioInputUpdate,
    /// `session.audio.output`
    pub output: AudioOutputUpdate,
    /// `session.include`
    pub include: Patch<Vec<String>>,
    /// Accepted and echoed; no effect. The same applies to `prompt`, `reasoning` and `parallel_tool_calls`.
    pub tracing: Patch<Json>,
    /// `session.truncation`
    pub truncation: Option<Truncation>,
    /// `session.prompt`
    pub prompt: Patch<Json>,
    /// `session.reasoning`
    pub reasoning: Patch<Json>,
    /// `session.parallel_tool_calls`
    pub parallel_tool_calls: Patch<bool>,
}

/// Kind of session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum SessionKind {
    /// A conversation with responses.
    #[default]
    Realtime,
    /// Transcription only.
    Transcription,
}

/// `session.audio.input` of an update.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AudioInputUpdate {
    /// `format`
    pub format: Option<AudioFormat>,
    /// `transcription`; null disables it.
    pub transcription: Patch<TranscriptionUpdate>,
    /// `noise_reduction`; null disables it.
    pub noise_reduction: Patch<NoiseReduction>,
    /// `turn_detection`; null: the client commits turns itself.
    pub turn_detection: Patch<TurnDetectionUpdate>,
}

/// `session.audio.output` of an update.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AudioOutputUpdate {
    /// `format`
    pub format: Option<AudioFormat>,
    /// `voice`: a name, or the id of a custom voice.
    pub voice: Option<String>,
    /// `speed`, 0.25 to 1.5.
    pub speed: Option<f64>,
    /// `instructions`: how to speak, an extension of this hub; empty: as the voice does.
    pub instructions: Option<String>,
}

/// `transcription` of an update.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TranscriptionUpdate {
    /// `model`
    pub model: Patch<String>,
    /// `language`
    pub language: Patch<String>,
    /// `prompt`
    pub prompt: Patch<String>,
    /// `delay`
    pub delay: Patch<String>,
    /// `keywords`
    pub keywords: Patch<Vec<String>>,
    /// `languages`
    pub languages: Patch<Vec<String>>,
}

/// `turn_detection` of an update.
#[derive(Clone, Debug, PartialEq)]
pub enum TurnDetectionUpdate {
    /// `server_vad`
    Server(ServerVadUpdate),
    /// `semantic_vad`
    Semantic(SemanticVadUpdate),
}

/// `server_vad` of an update.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ServerVadUpdate {
    /// 0 to 1.
    pub threshold: Option<f64>,
    /// 0 to [`MAX_PREFIX_PADDING_MS`].
    pub prefix_padding_ms: Option<u32>,
    /// 0 to [`MAX_SILENCE_DURATION_MS`].
    pub silence_duration_ms: Option<u32>,
    /// `create_response`
    pub create_response: Option<bool>,
    /// `interrupt_response`
    pub interrupt_response: Option<bool>,
    /// `ignore_backchannels`, an extension of this hub; null: the hub's setting.
    pub ignore_backchannels: Patch<bool>,
    /// `speaker_lock`, an extension of this hub; null: the hub's setting.
    pub speaker_lock: Patch<bool>,
    /// 5000 to 30000 milliseconds; null disables it.
    pub idle_timeout_ms: Patch<u32>,
}

/// `semantic_vad` of an update.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SemanticVadUpdate {
    /// `eagerness`
    pub eagerness: Option<Eagerness>,
    /// `create_response`
    pub create_response: Option<bool>,
    /// `interrupt_response`
    pub interrupt_response: Option<bool>,
    /// `ignore_backchannels`, an extension of this hub; null: the hub's setting.
    pub ignore_backchannels: Patch<bool>,
    /// `speaker_lock`, an extension of this hub; null: the hub's setting.
    pub speaker_lock: Patch<bool>,
}

impl SessionUpdate {
    pub(super) fn read(node: Node) -> Read<Self> {
        let mut fields = node.object()?;
        let kind = match read_type(&mut fields, &["realtime", "transcription"])? {
            "realtime" => SessionKind::Realtime,
            _ => return Self::read_transcription(fields),
        };
        let (input, output) = match fields.optional("audio", Node::object)? {
            Some(audio) => read_audio(audio)?,
            None => Default::default(),
        };
        let update = Self {
            kind,
            model: fields.optional("model", |node| node.name(MAX_NAME_BYTES))?,
            output_modalities: fields.optional("output_modalities", Modality::read)?,
            instructions: fields.optional("instructions", |node| node.text_within(MAX_INSTRUCTIONS_BYTES))?,
            tools: fields.optional("tools", Tool::read_list)?,
            tool_choice: fields.optional("tool_choice", ToolChoice::read)?,
            max_output_tokens: fields.optional("max_output_tokens", MaxTokens::read)?,
            input,
            output,
            include: fields.patch("include", read_include)?,
            tracing: fields.patch("tracing", read_any)?,
            truncation: fields.optional("truncation", Truncation::read)?,
            prompt: fields.patch("prompt", read_any)?,
            reasoning: fields.patch("reasoning", read_any)?,
            parallel_tool_calls: fields.patch("parallel_tool_calls", Node::flag)?,
        };
        // A client may send back the session object it received.
        fields.pass_over(&["id", "object", "expires_at"]);
        fields.finish()?;
        Ok(update)
    }

    /// Reads a transcription session, which has input settings only.
    fn read_transcription(mut fields: Fields) -> Read<Self> {
        let input = fields.optional("audio", |node| {
            let mut audio = node.object()?;
            let input = audio.optional("input", read_input)?;
            audio.finish()?;
            Ok(input.unwrap_or_default())
        })?;
        let include = fields.patch("include", read_include)?;
        fields.pass_over(&["id", "object", "expires_at"]);
        fields.finish()?;
        Ok(Self { kind: SessionKind::Transcription, input: input.unwrap_or_default(), include, ..Self::default() })
    }
}

/// Reads the additional event fields that a client requests.
fn read_include(node: Node) -> Read<Vec<String>> {
    node.list_within(1, |node| node.one_of(&[(INCLUDE_LOGPROBS, INCLUDE_LOGPROBS.to_owned())]))
}

fn read_any(node: Node) -> Read<Json> {
    node.json(MAX_ECHOED_BYTES)
}

fn read_audio(mut audio: Fields) -> Read<(AudioInputUpdate, AudioOutputUpdate)> {
    let input = audio.optional("input", read_input)?;
    let output = audio.optional("output", |node| {
        let mut fields = node.object()?;
        let output = AudioOutputUpdate {
            format: fields.optional("format", AudioFormat::read)?,
            voice: fields.optional("voice", read_voice)?,
            speed: fields.optional("speed", |node| node.decimal(SPEEDS))?,
            instructions: fields.optional("instructions", |node| node.text_within(MAX_VOICE_INSTRUCTIONS_BYTES))?,
        };
        fields.finish()?;
        Ok(output)
    })?;
    audio.finish()?;
    Ok((input.unwrap_or_default(), output.unwrap_or_default()))
}

fn read_input(node: Node) -> Read<AudioInputUpdate> {
    let mut fields = node.object()?;
    let input = AudioInputUpdate {
        format: fields.optional("format", AudioFormat::read)?,
        transcription: fields.patch("transcription", read_transcription)?,
        noise_reduction: fields.patch("noise_reduction", read_noise_reduction)?,
        turn_detection: fields.patch("turn_detection", read_turn_detection)?,
    };
    fields.finish()?;
    Ok(input)
}

fn read_transcription(node: Node) -> Read<TranscriptionUpdate> {
    let mut fields = node.object()?;
    let update = TranscriptionUpdate {
        model: fields.patch("model", |node| node.name(MAX_NAME_BYTES))?,
        language: fields.patch("language", short)?,
        prompt: fields.patch("prompt", |node| node.text_within(MAX_PROMPT_BYTES))?,
        delay: fields.patch("delay", short)?,
        keywords: fields.patch("keywords", |node| node.list_within(MAX_KEYWORDS, short))?,
        languages: fields.patch("languages", |node| node.list_within(MAX_LANGUAGES, short))?,
    };
    fields.finish()?;
    Ok(update)
}

fn short(node: Node) -> Read<String> {
    node.text_within(MAX_NAME_BYTES)
}

fn read_noise_reduction(node: Node) -> Read<NoiseReduction> {
    let mut fields = node.object()?;
    let names = [("near_field", "near_field".to_owned()), ("far_field", "far_field".to_owned())];
    let update = NoiseReduction {
        kind: fields.optional("type", |node| node.one_of(&names))?,
        strength: fields.optional("strength", |node| node.decimal(0.0..=1.0))?,
    };
    fields.finish()?;
    Ok(update)
}

fn read_turn_detection(node: Node) -> Result<TurnDetectionUpdate, WireError> {
    let mut fields = node.object()?;
    let update = match read_type(&mut fields, &["server_vad", "semantic_vad"])? {
        "server_vad" => TurnDetectionUpdate::Server(ServerVadUpdate {
            threshold: fields.optional("threshold", |node| node.decimal(0.0..=1.0))?,
            prefix_padding_ms: fields.optional("prefix_padding_ms", |node| node.integer(0..=MAX_PREFIX_PADDING_MS))?,
            silence_duration_ms: fields
                .optional("silence_duration_ms", |node| node.integer(0..=MAX_SILENCE_DURATION_MS))?,
            create_response: fields.optional("create_response", Node::flag)?,
            interrupt_response: fields.optional("interrupt_response", Node::flag)?,
            ignore_backchannels: fields.patch("ignore_backchannels", Node::flag)?,
            speaker_lock: fields.patch("speaker_lock", Node::flag)?,
            idle_timeout_ms: fields.patch("idle_timeout_ms", |node| node.integer(5_000..=30_000))?,
        }),
        _ => TurnDetectionUpdate::Semantic(SemanticVadUpdate {
            eagerness: fields.optional("eagerness", |node| {
                node.one_of(&[
                    ("low", Eagerness::Low),
                    ("medium", Eagerness::Medium),
                    ("high", Eagerness::High),
                    ("auto", Eagerness::Auto),
                ])
            })?,
            create_response: fields.optional("create_response", Node::flag)?,
            interrupt_response: fields.optional("interrupt_response", Node::flag)?,
            ignore_backchannels: fields.patch("ignore_backchannels", Node::flag)?,
            speaker_lock: fields.patch("speaker_lock", Node::flag)?,
        }),
    };
    fields.finish()?;
    Ok(update)
}
