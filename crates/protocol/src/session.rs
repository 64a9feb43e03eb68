//! The session object as the hub sends it, whole and effective, and how an update is merged into it.
//!
//! A session keeps one [`Session`], applies each accepted [`SessionUpdate`] to a copy and sends that. What an update
//! may say is read in `session_update`; what a setting does is the session's business.

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
    /// What it is for. A transcription session is shown with fewer fields: [`shown`].
    #[serde(rename = "type")]
    pub kind: SessionKind,
    object: &'static str,
    /// `sess_...`
    pub id: SessionId,
    /// As the client asked for it; the hub's engines are configured, so it names, and does not choose.
    pub model: String,
    /// What responses are made of.
    pub output_modalities: Modality,
    /// The system prompt; empty: the hub's own.
    pub instructions: String,
    /// Tools the model may call.
    pub tools: Vec<Tool>,
    /// How it chooses among them.
    pub tool_choice: ToolChoice,
    /// The most tokens of one response.
    pub max_output_tokens: MaxTokens,
    /// Both directions' audio.
    pub audio: Audio,
    /// When the session ends by itself, in seconds of Unix time.
    pub expires_at: u64,
    /// Extra fields the client asked for in events.
    pub include: Option<Vec<String>>,
    /// Accepted, echoed, without effect here.
    pub tracing: Option<Json>,
    /// What happens to a conversation that is too long.
    pub truncation: Truncation,
    /// Accepted, echoed, without effect here.
    pub prompt: Option<Json>,
    /// Accepted, echoed, without effect here.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reasoning: Option<Json>,
    /// Accepted, echoed, without effect here.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parallel_tool_calls: Option<bool>,
    /// What `server_vad` starts from when a client switches to it; never sent.
    #[serde(skip)]
    pub server_vad: ServerVad,
}

/// `session.audio`
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Audio {
    /// From the client.
    pub input: AudioInput,
    /// To the client.
    pub output: AudioOutput,
}

/// `session.audio.input`
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct AudioInput {
    /// How it travels.
    pub format: AudioFormat,
    /// Null: the client does not want transcription events.
    pub transcription: Option<Transcription>,
    /// Null: off.
    pub noise_reduction: Option<NoiseReduction>,
    /// Null: the client commits turns itself.
    pub turn_detection: Option<TurnDetection>,
}

/// `session.audio.output`
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct AudioOutput {
    /// How it travels.
    pub format: AudioFormat,
    /// A voice's id.
    pub voice: String,
    /// Rate of speech, 1.0 is the voice's own; 0.25 to 1.5.
    pub speed: f64,
}

/// What transcription events are made with.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Transcription {
    /// As the client asked for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// ISO-639-1 code; absent: the engine's own choice.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub language: Option<String>,
    /// Words to expect.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prompt: Option<String>,
    /// Accepted, echoed, without effect here.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delay: Option<String>,
    /// Words to expect, as a list; they go to the engine behind the prompt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub keywords: Option<Vec<String>>,
    /// Accepted, echoed, without effect here: `language` names the one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub languages: Option<Vec<String>>,
}

impl Transcription {
    /// The words to expect, in one text: the prompt, then the keywords.
    pub fn expected(&self) -> Option<String> {
        let keywords = self.keywords.iter().map(|words| words.join(", ")).filter(|words| !words.is_empty());
        let all: Vec<String> = self.prompt.iter().cloned().chain(keywords).collect();
        (!all.is_empty()).then(|| all.join(" "))
    }
}

/// Noise reduction of the microphone's audio, before everything else.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct NoiseReduction {
    /// `near_field` or `far_field`.
    #[serde(rename = "type")]
    pub kind: Option<String>,
    /// 0 to 1. Accepted, echoed, without effect here.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub strength: Option<f64>,
}

/// Who ends the user's turn.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum TurnDetection {
    /// A pause of a fixed length.
    ServerVad(ServerVad),
    /// A model that hears whether the speaker has finished.
    SemanticVad(SemanticVad),
}

impl TurnDetection {
    /// Whether the end of a turn starts a response by itself.
    pub fn create_response(&self) -> bool {
        match self {
            Self::ServerVad(vad) => vad.create_response,
            Self::SemanticVad(vad) => vad.create_response,
        }
    }

    /// Whether speech interrupts the reply.
    pub fn interrupt_response(&self) -> bool {
        match self {
            Self::ServerVad(vad) => vad.interrupt_response,
            Self::SemanticVad(vad) => vad.interrupt_response,
        }
    }
}

/// `server_vad`; the defaults are the protocol's.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ServerVad {
    /// P(speech) from which a window is voiced, 0 to 1.
    pub threshold: f64,
    /// Audio kept from before the first voiced window.
    pub prefix_padding_ms: u32,
    /// The pause that ends a turn.
    pub silence_duration_ms: u32,
    /// Whether the end of a turn starts a response by itself.
    pub create_response: bool,
    /// Whether speech interrupts the reply.
    pub interrupt_response: bool,
    /// After this much silence following a reply, the hub speaks up.
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
            idle_timeout_ms: None,
        }
    }
}

/// `semantic_vad`
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SemanticVad {
    /// How soon it takes the turn.
    pub eagerness: Eagerness,
    /// Whether the end of a turn starts a response by itself.
    pub create_response: bool,
    /// Whether speech interrupts the reply.
    pub interrupt_response: bool,
}

impl Default for SemanticVad {
    fn default() -> Self {
        Self { eagerness: Eagerness::Auto, create_response: true, interrupt_response: true }
    }
}

/// How soon `semantic_vad` takes the turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Eagerness {
    /// Lets the user take their time.
    Low,
    /// As `Auto`.
    Medium,
    /// As soon as possible.
    High,
    /// The default.
    Auto,
}

impl Session {
    /// A session as it begins: `server_vad` on, audio out, PCM both ways, transcription on (the hub needs the words anyway).
    /// `expires_at` is 0 until the caller, who has a clock, sets it.
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
                output: AudioOutput { format: AudioFormat::Pcm, voice: voice.into(), speed: 1.0 },
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

    /// Merges an update field by field; the session becomes what the update is for. Whether it may, is the caller's to check.
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

        let (input, output) = (&mut self.audio.input, &mut self.audio.output);
        set(&mut input.format, update.input.format);
        set(&mut output.format, update.output.format);
        set(&mut output.voice, update.output.voice);
        set(&mut output.speed, update.output.speed);
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

/// The session object of an event, in the shape of its kind: a transcription session has an input and no output.
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
        detection.retain(|name, _| !name.ends_with("_response") && name != "idle_timeout_ms");
    }
    let (object, audio) = ("realtime.transcription_session", Input { input });
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

/// Fields merge into a detector of the same type; a change of type starts from the defaults.
fn merge_turn_detection(old: Option<TurnDetection>, new: TurnDetectionUpdate, defaults: &ServerVad) -> TurnDetection {
    match (old, new) {
        (Some(TurnDetection::ServerVad(old)), TurnDetectionUpdate::Server(new)) => merge_server_vad(old, new),
        (_, TurnDetectionUpdate::Server(new)) => merge_server_vad(defaults.clone(), new),
        (old, TurnDetectionUpdate::Semantic(new)) => {
            let mut vad = match old {
                Some(TurnDetection::SemanticVad(old)) => old,
                _ => SemanticVad::default(),
            };
            set(&mut vad.eagerness, new.eagerness);
            set(&mut vad.create_response, new.create_response);
            set(&mut vad.interrupt_response, new.interrupt_response);
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
    patch(&mut vad.idle_timeout_ms, new.idle_timeout_ms);
    TurnDetection::ServerVad(vad)
}

#[cfg(test)]
#[path = "session_tests.rs"]
mod tests;
