//! The session object as the hub sends it, with all effective settings, and how an update is merged into it.
//!
//! A session keeps one [`Session`], applies each accepted [`SessionUpdate`] to a copy and sends the copy.
//! `session_update` parses updates; the session implements the settings.

use super::read::Patch;
use super::session_update::{ServerVadUpdate, SessionKind, SessionUpdate, TranscriptionUpdate, TurnDetectionUpdate};
use super::setting::{AudioFormat, MaxTokens, Modality};
use super::tool::{Tool, ToolChoice};
use super::truncation::Truncation;
use antiphon_types::{Json, SessionId};
use serde::ser::Error;
use serde::{Serialize, Serializer};
use serde_json::Value;

/// `session` of `session.created` and `session.updated`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Session {
    /// Kind of session. A transcription session is sent with fewer fields: see [`shown`].
    #[serde(rename = "type")]
    pub kind: SessionKind,
    object: &'static str,
    /// `sess_...`
    pub id: SessionId,
    /// Model name requested by the client. It is echoed only: the engines are configured by the operator.
    pub model: String,
    /// Audio or text.
    pub output_modalities: Modality,
    /// The system prompt; empty: the hub's default.
    pub instructions: String,
    /// Tools the model may call.
    pub tools: Vec<Tool>,
    /// How the model chooses among the tools.
    pub tool_choice: ToolChoice,
    /// Limit on output tokens per response.
    pub max_output_tokens: MaxTokens,
    /// Audio settings of both directions.
    pub audio: Audio,
    /// When the session expires, in seconds of Unix time.
    pub expires_at: u64,
    /// Additional event fields requested by the client.
    pub include: Option<Vec<String>>,
    /// Accepted and echoed; no effect.
    pub tracing: Option<Json>,
    /// What happens to a conversation that exceeds the model's context.
    pub truncation: Truncation,
    /// Accepted and echoed; no effect.
    pub prompt: Option<Json>,
    /// Accepted and echoed; no effect.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reasoning: Option<Json>,
    /// Accepted and echoed; no effect.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parallel_tool_calls: Option<bool>,
    /// Defaults of `server_vad`, and of the fields that `semantic_vad` has too, when a client switches to it; never sent.
    #[serde(skip)]
    pub server_vad: ServerVad,
}

/// `session.audio`
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Audio {
    /// Audio from the client.
    pub input: AudioInput,
    /// Audio to the client.
    pub output: AudioOutput,
}

/// `session.audio.input`
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct AudioInput {
    /// Audio format on the wire.
    pub format: AudioFormat,
    /// Transcription settings. Null: no transcription events.
    pub transcription: Option<Transcription>,
    /// Noise reduction. Null: off.
    pub noise_reduction: Option<NoiseReduction>,
    /// Turn detection. Null: the client commits turns itself.
    pub turn_detection: Option<TurnDetection>,
}

/// `session.audio.output`
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct AudioOutput {
    /// Audio format on the wire.
    pub format: AudioFormat,
    /// Voice id.
    pub voice: String,
    /// Speech rate relative to the voice's default of 1.0; 0.25 to 1.5.
    pub speed: f64,
    /// How to speak, for voices that can act; an extension of this hub. Empty: as the voice does, and the field is left out.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub instructions: String,
}

/// Transcription settings.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Transcription {
    /// Model name requested by the client.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// ISO-639-1 code of the language; absent: the engine decides.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub language: Option<String>,
    /// Expected words.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prompt: Option<String>,
    /// Accepted and echoed; no effect.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delay: Option<String>,
    /// Expected words as a list, passed to the engine after the prompt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub keywords: Option<Vec<String>>,
    /// Accepted and echoed; no effect. `language` selects the language.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub languages: Option<Vec<String>>,
}

impl Transcription {
    /// The expected words as one text: the prompt, then the keywords on a line of their own.
    pub fn expected(&self) -> Option<String> {
        let keywords = self.keywords.iter().map(|words| words.join(", ")).filter(|words| !words.is_empty());
        let all: Vec<String> = self.prompt.iter().cloned().chain(keywords).collect();
        (!all.is_empty()).then(|| all.join("\n"))
    }
}

/// Noise reduction of the microphone audio, applied before all other stages.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct NoiseReduction {
    /// `near_field` or `far_field`.
    #[serde(rename = "type")]
    pub kind: Option<String>,
    /// Strength, 0 to 1. Accepted and echoed; no effect.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub strength: Option<f64>,
}

/// How the end of a user turn is detected.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum TurnDetection {
    /// By a pause of fixed length.
    ServerVad(ServerVad),
    /// By a model that estimates whether the user has finished.
    SemanticVad(SemanticVad),
}

impl TurnDetection {
    /// Whether the end of a turn starts a response.
    pub fn create_response(&self) -> bool {
        match self {
            Self::ServerVad(vad) => vad.create_response,
            Self::SemanticVad(vad) => vad.create_response,
        }
    }

    /// Whether user speech interrupts a response.
    pub fn interrupt_response(&self) -> bool {
        match self {
            Self::ServerVad(vad) => vad.interrupt_response,
            Self::SemanticVad(vad) => vad.interrupt_response,
        }
    }

    /// Whether a backchannel leaves a response going; `None`: as the hub is configured.
    pub fn ignore_backchannels(&self) -> Option<bool> {
        match self {
            Self::ServerVad(vad) => vad.ignore_backchannels,
            Self::SemanticVad(vad) => vad.ignore_backchannels,
        }
    }

    /// Whether speech has to be the user's; `None`: as the hub is configured.
    pub fn speaker_lock(&self) -> Option<bool> {
        match self {
            Self::ServerVad(vad) => vad.speaker_lock,
            Self::SemanticVad(vad) => vad.speaker_lock,
        }
    }
}

/// `server_vad` settings; the defaults are the protocol's.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ServerVad {
    /// P(speech) from which a window counts as voiced, 0 to 1.
    pub threshold: f64,
    /// Audio kept before the first voiced window, in milliseconds.
    pub prefix_padding_ms: u32,
    /// Length of the pause that ends a turn, in milliseconds.
    pub silence_duration_ms: u32,
    /// Whether the end of a turn starts a response.
    pub create_response: bool,
    /// Whether user speech interrupts a response.
    pub interrupt_response: bool,
    /// Whether a backchannel leaves a response going; an extension of this hub. Absent: the hub's setting.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ignore_backchannels: Option<bool>,
    /// Whether speech has to be the user's; an extension of this hub. Absent: the hub's setting.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub speaker_lock: Option<bool>,
    /// After this much silence following a response, in milliseconds, the hub speaks.
    pub idle_timeout_ms: Option<u32>,
}

impl Default for ServerVad {
    fn default() -> Self {
        Self {
            threshold: 0.5,
            prefix_padding_ms: 300,
            silence_duration_ms: 500,
            create_response: true,
            interrupt_response: true,
            ignore_backchannels: None,
            speaker_lock: None,
            idle_timeout_ms: None,
        }
    }
}

/// `semantic_vad` settings.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SemanticVad {
    /// How soon the hub takes the turn.
    pub eagerness: Eagerness,
    /// Whether the end of a turn starts a response.
    pub create_response: bool,
    /// Whether user speech interrupts a response.
    pub interrupt_response: bool,
    /// See [`ServerVad::ignore_backchannels`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ignore_backchannels: Option<bool>,
    /// See [`ServerVad::speaker_lock`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub speaker_lock: Option<bool>,
}

impl Default for SemanticVad {
    fn default() -> Self {
        Self {
            eagerness: Eagerness::Auto,
            create_response: true,
            interrupt_response: true,
            ignore_backchannels: None,
            speaker_lock: None,
        }
    }
}

/// How soon `semantic_vad` ends the user's turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Eagerness {
    /// Waits longer.
    Low,
    /// Same as `Auto`.
    Medium,
    /// As soon as possible.
    High,
    /// The default.
    Auto,
}

impl Session {
    /// A new session: `server_vad`, audio output, PCM in both directions, transcription enabled (the hub needs the text
    /// anyway). `expires_at` is 0 until the caller, which has a clock, sets it.
    pub fn new(id: SessionId, model: impl Into<String>, voice: impl Into<String>, server_vad: ServerVad) -> Self {
        Self {
            kind: SessionKind::Realtime,
            object: "realtime.session",
            id,
            model: model.into(),
            output_modalities: Modality::Audio,
            instructions: String::new(),
            tools: Vec::new(),
            tool_choice: ToolChoice::Auto,
            max_output_tokens: MaxTokens::Inf,
            audio: Audio {
                input: AudioInput {
                    format: AudioFormat::Pcm,
                    transcription: Some(Transcription::default()),
                    noise_reduction: None,
                    turn_detection: Some(TurnDetection::ServerVad(server_vad.clone())),
                },
                output: AudioOutput {
                    format: AudioFormat::Pcm,
                    voice: voice.into(),
                    speed: 1.0,
                    instructions: String::new(),
                },
            },
            expires_at: 0,
            include: None,
            tracing: None,
            truncation: Truncation::Auto,
            prompt: None,
            reasoning: None,
            parallel_tool_calls: None,
            server_vad,
        }
    }

    /// Merges an update field by field, including the kind of session. The caller checks whether the change is allowed.
    pub fn apply(&mut self, update: SessionUpdate) {
        self.kind = update.kind;
        set(&mut self.model, update.model);
        set(&mut self.output_modalities, update.output_modalities);
        set(&mut self.instructions, update.instructions);
        set(&mut self.tools, update.tools);
        set(&mut self.tool_choice, update.tool_choice);
        set(&mut self.max_output_tokens, update.max_output_tokens);
        set(&mut self.truncation, update.truncation);
        patch(&mut self.include, update.include);
        patch(&mut self.tracing, update.tracing);
        patch(&mut self.prompt, update.prompt);
        patch(&mut self.reasoning, update.reasoning);
        patch(&mut self.parallel_tool_calls, update.parallel_tool_calls);

        let input = &mut self.audio.input;
        let output = &mut self.audio.output;
        set(&mut input.format, update.input.format);
        set(&mut output.format, update.output.format);
        set(&mut output.voice, update.output.voice);
        set(&mut output.speed, update.output.speed);
        set(&mut output.instructions, update.output.instructions);
        merge(&mut input.transcription, update.input.transcription, |old, new| {
            merge_transcription(old.unwrap_or_default(), new)
        });
        merge(&mut input.noise_reduction, update.input.noise_reduction, |old, new| NoiseReduction {
            kind: new.kind.or(old.as_ref().and_then(|old| old.kind.clone())),
            strength: new.strength.or(old.and_then(|old| old.strength)),
        });
        let server_vad = &self.server_vad;
        merge(&mut input.turn_detection, update.input.turn_detection, |old, new| {
            merge_turn_detection(old, new, server_vad)
        });
    }
}

/// Serializes the session for an event according to its kind: a transcription session has input settings only.
pub(super) fn shown<S: Serializer>(session: &Session, to: S) -> Result<S::Ok, S::Error> {
    #[derive(Serialize)]
    struct Shape<'a> {
        r#type: SessionKind,
        object: &'a str,
        id: &'a SessionId,
        audio: Input,
        expires_at: u64,
        include: &'a Option<Vec<String>>,
    }
    #[derive(Serialize)]
    struct Input {
        input: Value,
    }
    if session.kind == SessionKind::Realtime {
        return session.serialize(to);
    }
    let Session { kind, id, expires_at, include, .. } = session;
    let mut input = serde_json::to_value(&session.audio.input).map_err(S::Error::custom)?;
    if let Some(detection) = input["turn_detection"].as_object_mut() {
        // There are no responses to create or to interrupt.
        detection.retain(|name, _| {
            !name.ends_with("_response") && name != "idle_timeout_ms" && name != "ignore_backchannels"
        });
    }
    let object = "realtime.transcription_session";
    let audio = Input { input };
    Shape { r#type: *kind, object, id, audio, expires_at: *expires_at, include }.serialize(to)
}

fn set<T>(field: &mut T, value: Option<T>) {
    if let Some(value) = value {
        *field = value;
    }
}

fn patch<T>(field: &mut Option<T>, value: Patch<T>) {
    merge(field, value, |_, new| new);
}

fn merge<T, U>(field: &mut Option<T>, value: Patch<U>, with: impl FnOnce(Option<T>, U) -> T) {
    match value {
        Patch::Keep => {}
        Patch::Clear => *field = None,
        Patch::Set(new) => *field = Some(with(field.take(), new)),
    }
}

fn merge_transcription(mut old: Transcription, new: TranscriptionUpdate) -> Transcription {
    patch(&mut old.model, new.model);
    patch(&mut old.language, new.language);
    patch(&mut old.prompt, new.prompt);
    patch(&mut old.delay, new.delay);
    patch(&mut old.keywords, new.keywords);
    patch(&mut old.languages, new.languages);
    old
}

/// Merges fields into a detector of the same type; a change of type starts from the defaults.
fn merge_turn_detection(old: Option<TurnDetection>, new: TurnDetectionUpdate, defaults: &ServerVad) -> TurnDetection {
    match (old, new) {
        (Some(TurnDetection::ServerVad(old)), TurnDetectionUpdate::Server(new)) => merge_server_vad(old, new),
        (_, TurnDetectionUpdate::Server(new)) => merge_server_vad(defaults.clone(), new),
        (old, TurnDetectionUpdate::Semantic(new)) => {
            let mut vad = match old {
                Some(TurnDetection::SemanticVad(old)) => old,
                _ => SemanticVad {
                    create_response: defaults.create_response,
                    interrupt_response: defaults.interrupt_response,
                    ..SemanticVad::default()
                },
            };
            set(&mut vad.eagerness, new.eagerness);
            set(&mut vad.create_response, new.create_response);
            set(&mut vad.interrupt_response, new.interrupt_response);
            patch(&mut vad.ignore_backchannels, new.ignore_backchannels);
            patch(&mut vad.speaker_lock, new.speaker_lock);
            TurnDetection::SemanticVad(vad)
        }
    }
}

fn merge_server_vad(mut vad: ServerVad, new: ServerVadUpdate) -> TurnDetection {
    set(&mut vad.threshold, new.threshold);
    set(&mut vad.prefix_padding_ms, new.prefix_padding_ms);
    set(&mut vad.silence_duration_ms, new.silence_duration_ms);
    set(&mut vad.create_response, new.create_response);
    set(&mut vad.interrupt_response, new.interrupt_response);
    patch(&mut vad.ignore_backchannels, new.ignore_backchannels);
    patch(&mut vad.speaker_lock, new.speaker_lock);
    patch(&mut vad.idle_timeout_ms, new.idle_timeout_ms);
    TurnDetection::ServerVad(vad)
}

#[cfg(test)]
#[path = "session_tests.rs"]
mod tests;
