//! All sections in one struct for serde.

use super::{LimitsConfig, RtcConfig, ServerConfig, SipConfig, SpeechConfig, TelephonyConfig, WyomingConfig};
use crate::load::SloConfig;
use antiphon_cluster::ClusterConfig;
use antiphon_dialog::turn::TurnConfig;
use antiphon_engine_api::mcp::McpConfig;
use antiphon_engines::llm::LlmConfig;
use antiphon_engines::speaker::SpeakerConfig;
use antiphon_engines::stt::SttConfig;
use antiphon_engines::tts::TtsConfig;
use antiphon_engines::vad::VadConfig;
use antiphon_inference::onnx::OnnxConfig;
use antiphon_registry::ModelsConfig;
use antiphon_session::{SessionConfig, SpeculationConfig};
use antiphon_telemetry::TelemetryConfig;
use antiphon_types::setting::Section;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// The configuration. Each section is defined by the module it configures. It holds no secrets, only the names of the
/// environment variables that do.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// Voice activity detection.
    pub vad: VadConfig,
    /// Turn detection.
    pub turn: TurnConfig,
    /// Whose voice is heard.
    pub speaker: SpeakerConfig,
    /// Speech to text.
    pub stt: SttConfig,
    /// The language model.
    pub llm: LlmConfig,
    /// Text to speech.
    pub tts: TtsConfig,
    /// Model files and loaded models.
    pub models: ModelsConfig,
    /// ONNX Runtime.
    pub onnx: OnnxConfig,
    /// Remote tools (MCP).
    pub mcp: McpConfig,
    /// Speculative responses.
    pub speculation: SpeculationConfig,
    /// Sessions.
    pub session: SessionConfig,
    /// The server.
    pub server: ServerConfig,
    /// Rate limits of clients.
    pub limits: LimitsConfig,
    /// The latency objective.
    pub slo: SloConfig,
    /// The speech API.
    pub speech: SpeechConfig,
    /// Phone calls.
    pub telephony: TelephonyConfig,
    /// Phone calls by SIP.
    pub sip: SipConfig,
    /// The Wyoming listener.
    pub wyoming: WyomingConfig,
    /// WebRTC.
    pub rtc: RtcConfig,
    /// Engine workers.
    pub cluster: ClusterConfig,
    /// Tracing.
    pub telemetry: TelemetryConfig,
}

/// All sections, in the order of `configs/default.toml`.
pub static SECTIONS: [Section; 21] = [
    VadConfig::SECTION,
    TurnConfig::SECTION,
    SpeakerConfig::SECTION,
    SttConfig::SECTION,
    LlmConfig::SECTION,
    TtsConfig::SECTION,
    ModelsConfig::SECTION,
    OnnxConfig::SECTION,
    McpConfig::SECTION,
    SpeculationConfig::SECTION,
    SessionConfig::SECTION,
    RtcConfig::SECTION,
    ServerConfig::SECTION,
    LimitsConfig::SECTION,
    SloConfig::SECTION,
    SpeechConfig::SECTION,
    TelephonyConfig::SECTION,
    SipConfig::SECTION,
    WyomingConfig::SECTION,
    ClusterConfig::SECTION,
    TelemetryConfig::SECTION,
];

impl Config {
    /// The folder of custom voices: `tts.voices_dir`, or `voices` below `models.dir`.
    pub fn voices_dir(&self) -> PathBuf {
        match self.tts.voices_dir.as_str() {
            "" => self.models.folder("voices"),
            folder => folder.into(),
        }
    }
}
