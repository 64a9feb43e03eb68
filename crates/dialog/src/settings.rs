//! Settings of a session in domain terms. The protocol's session object is kept and merged by `session`.

use super::Memory;
use antiphon_types::Format;
use antiphon_types::chat::{Tool, ToolChoice};
use antiphon_types::mcp::{Consent, DeclaredServer, Filter, RemoteTool};
use antiphon_types::{ItemId, Samples};
use serde::{Deserialize, Deserializer, Serialize};
use std::collections::BTreeMap;
use std::time::Duration;

/// The settings of the dialog.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Settings {
    /// The system prompt.
    pub instructions: String,
    /// Output modality of responses.
    pub modality: Modality,
    /// The voice's id.
    pub voice: String,
    /// Rate of speech, 1.0 is the voice's own.
    pub speed: f32,
    /// How to speak, for voices that can act; empty: as the voice does.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub voice_instructions: String,
    /// How reply audio is encoded.
    pub output_format: Format,
    /// `None`: no limit but the engine's.
    pub max_output_tokens: Option<u32>,
    /// How long an answer is spoken at most; `None`: as long as it is. Absent in replay logs that are older.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_answer: Option<Duration>,
    /// Functions the model may call.
    pub tools: Vec<Tool>,
    /// Whether it must call one.
    pub tool_choice: ToolChoice,
    /// Remote servers whose tools it may call too.
    pub servers: Vec<DeclaredServer>,
    /// Whether it must call one of theirs; takes precedence over `tool_choice`.
    pub server_choice: Option<ServerChoice>,
    /// `None`: the client commits the buffer and asks for responses itself.
    pub turn_detection: Option<TurnDetection>,
    /// How long a turn may be silent before a filler is spoken; `None`: for ever. Absent in replay logs that are older.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub filler_after: Option<Duration>,
    /// The voices by the code of their language, where replies follow the language heard; in other languages the session's voice
    /// speaks. `None`: they do not. Absent in replay logs that are older.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub language_voices: Option<BTreeMap<String, String>>,
    /// Whether the client gets transcripts of the input.
    pub transcripts: bool,
    /// Whether a client that controls playback gets transcript deltas of an utterance under way; else from its commit on.
    pub live_transcripts: bool,
    /// How much of the conversation the model reads.
    pub memory: Memory,
}

/// A tool of a remote server that must be called.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerChoice {
    /// Which server.
    pub label: String,
    /// Which tool; `None`: any.
    pub tool: Option<String>,
}

/// What one response may use of a server that its session declares.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerUse {
    /// Which server.
    pub label: String,
    /// The subset of the admitted tools that the model may call; `None`: all.
    pub allowed: Option<Filter>,
    /// The calls that require consent; `None`: the session's setting.
    pub consent: Option<Consent>,
}

impl ServerUse {
    /// Everything the session admits.
    fn whole(label: &str) -> Self {
        Self { label: label.to_owned(), allowed: None, consent: None }
    }

    /// Whether the model may call this tool.
    pub(super) fn admits(&self, tool: &RemoteTool) -> bool {
        self.allowed.as_ref().is_none_or(|filter| filter.admits(tool))
    }
}

/// The part of server-side turn detection that concerns the dialog.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TurnDetection {
    /// A turn's end starts a response.
    pub create_response: bool,
    /// Speech stops the response under way.
    pub interrupt_response: bool,
    /// Speech over a reply holds it, and stops it only once its words or its length are more than a backchannel's. Only where
    /// the hub controls playback. Absent in replay logs that are older.
    #[serde(default, skip_serializing_if = "is_off")]
    pub ignore_backchannels: bool,
    /// Speech has to be the user's, once the session knows that voice. Absent in replay logs that are older.
    #[serde(default, skip_serializing_if = "is_off")]
    pub speaker_lock: bool,
    /// Silence after a reply's playback before the hub prompts the user.
    pub idle_timeout: Option<Duration>,
}

fn is_off(switch: &bool) -> bool {
    !switch
}

/// Output modality of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Modality {
    /// Speech and its transcript.
    Audio,
    /// Text only.
    Text,
}

/// Settings of one response; `None` is the session's value.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ResponseRequest {
    /// Replaces the session's instructions.
    pub instructions: Option<String>,
    /// Replaces the session's modality.
    pub modality: Option<Modality>,
    /// Replaces the session's voice.
    pub voice: Option<String>,
    /// Replaces the session's rate of speech.
    pub speed: Option<f32>,
    /// Replaces how the session's voice speaks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub voice_instructions: Option<String>,
    /// Replaces the session's output format.
    pub output_format: Option<Format>,
    /// Replaces the session's limit; the inner `None` lifts it.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    pub max_output_tokens: Option<Option<u32>>,
    /// Replaces the session's tools.
    pub tools: Option<Vec<Tool>>,
    /// Replaces the session's choice.
    pub tool_choice: Option<ToolChoice>,
    /// Replaces the session's servers.
    pub servers: Option<Vec<ServerUse>>,
    /// Part of `tool_choice`; replaces the session's.
    pub server_choice: Option<ServerChoice>,
    /// The response is out of band: it adds nothing to the conversation, and with `input` it does not read it either.
    pub out_of_band: bool,
    /// What the model reads instead of the conversation.
    pub input: Option<Vec<InputEntry>>,
    /// The items of `input` that carry inline audio to be transcribed.
    pub spoken_input: Vec<SpokenInput>,
    /// Opaque to the hub; returned to the client.
    pub metadata: Option<BTreeMap<String, String>>,
}

/// Inline audio of one item of a response's own input.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SpokenInput {
    /// The item: an id that no other item has, whatever the client called it.
    pub item: ItemId,
    /// How long the audio is, at 16 kHz.
    pub length: Samples,
}

/// One entry of a response's own input.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum InputEntry {
    /// An item of the conversation, by its id.
    Reference(ItemId),
    /// An item of its own.
    Item(super::Item),
}

/// The settings in force for one response, resolved when it is created.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ResponseSettings {
    /// The system prompt.
    pub instructions: String,
    /// The language to answer in by its code; `None`: the model's choice.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub language: Option<String>,
    /// Its output modality.
    pub modality: Modality,
    /// The voice's id.
    pub voice: String,
    /// Rate of speech.
    pub speed: f32,
    /// How to speak.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub voice_instructions: String,
    /// How its audio is encoded; its samples are counted at this format's rate.
    pub output_format: Format,
    /// `None`: no limit but the engine's.
    pub max_output_tokens: Option<u32>,
    /// How long it is spoken at most.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_answer: Option<Duration>,
    /// Functions the model may call.
    pub tools: Vec<Tool>,
    /// Whether it must call one.
    pub tool_choice: ToolChoice,
    /// The remote servers whose tools it may call too.
    pub servers: Vec<ServerUse>,
    /// Whether it must call one of theirs; takes precedence over `tool_choice`.
    pub server_choice: Option<ServerChoice>,
    /// Whether its items join the conversation.
    pub in_conversation: bool,
    /// The client's metadata, returned unchanged.
    pub metadata: Option<BTreeMap<String, String>>,
}

impl ResponseSettings {
    /// How to speak, where anything was asked for.
    pub fn spoken_instructions(&self) -> Option<String> {
        Some(self.voice_instructions.clone()).filter(|how| !how.trim().is_empty())
    }

    /// `request` over `session`.
    pub fn resolve(session: &Settings, request: &ResponseRequest) -> Self {
        let request = request.clone();
        let all = || session.servers.iter().map(|declared| ServerUse::whole(&declared.server.label)).collect();
        let chosen = if request.tool_choice.is_some() { None } else { session.server_choice.clone() };
        Self {
            instructions: request.instructions.unwrap_or_else(|| session.instructions.clone()),
            language: None,
            modality: request.modality.unwrap_or(session.modality),
            voice: request.voice.unwrap_or_else(|| session.voice.clone()),
            speed: request.speed.unwrap_or(session.speed),
            voice_instructions: request.voice_instructions.unwrap_or_else(|| session.voice_instructions.clone()),
            output_format: request.output_format.unwrap_or(session.output_format),
            max_output_tokens: request.max_output_tokens.unwrap_or(session.max_output_tokens),
            max_answer: session.max_answer,
            tools: request.tools.unwrap_or_else(|| session.tools.clone()),
            tool_choice: request.tool_choice.unwrap_or_else(|| session.tool_choice.clone()),
            servers: request.servers.unwrap_or_else(all),
            server_choice: request.server_choice.or(chosen),
            in_conversation: !request.out_of_band,
            metadata: request.metadata,
        }
    }
}

/// A field that is present, be it `null`, is `Some`.
fn present<'de, D: Deserializer<'de>>(field: D) -> Result<Option<Option<u32>>, D::Error> {
    Option::deserialize(field).map(Some)
}
