//! All sections together, as serde reads them.

use super::{ServerConfig, SpeechConfig};
use antiphon_dialog::turn::TurnConfig;
use antiphon_engine_api::mcp::McpConfig;
use antiphon_engines::llm::LlmConfig;
use antiphon_engines::stt::SttConfig;
use antiphon_engines::tts::TtsConfig;
use antiphon_engines::vad::VadConfig;
use antiphon_inference::onnx::OnnxConfig;
use antiphon_registry::ModelsConfig;
use antiphon_session::{SessionConfig, SpeculationConfig};
use antiphon_telemetry::TelemetryConfig;
use serde::{Deserialize, Serialize};

/// The whole configuration. Each section belongs to the module it is named after. It holds no secrets, only the names
/// of the variables that do.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// Voice activity detection.
    pub vad: VadConfig,
    /// Turn-taking.
    pub turn: TurnConfig,
    /// Speech to text.
    pub stt: SttConfig,
    /// The language model.
    pub llm: LlmConfig,
    /// Text to speech.
    pub tts: TtsConfig,
    /// Models on the disk.
    pub models: ModelsConfig,
    /// ONNX Runtime.
    pub onnx: OnnxConfig,
    /// Remote tools.
    pub mcp: McpConfig,
    /// Answers begun on a guess.
    pub speculation: SpeculationConfig,
    /// One conversation.
    pub session: SessionConfig,
    /// The server.
    pub server: ServerConfig,
    /// The speech API.
    pub speech: SpeechConfig,
    /// What it tells of itself.
    pub telemetry: TelemetryConfig,
}
