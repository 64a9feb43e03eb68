//! The `[session]` section.

use serde::{Deserialize, Serialize};

/// Settings of a conversation. Each key is documented in `configs/default.toml`.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct SessionConfig {
    /// The longest a session may live.
    pub max_minutes: u32,
    /// How long after its connection broke a session can be taken up again.
    pub resume_seconds: u32,
    /// Binary audio: how far ahead of the playhead reply audio is sent.
    pub lead_ms: u32,
    /// Whether the end of a turn starts an answer.
    pub create_response: bool,
    /// Whether speech stops the reply that plays.
    pub interrupt_response: bool,
    /// Tokens the model reads at most: instructions, tools and the latest turns.
    pub history_tokens: u32,
    /// The longest utterance, in seconds.
    pub max_utterance_seconds: u32,
    /// Whether fields the protocol does not know are refused.
    pub refuse_unknown_fields: bool,
    /// The folder that sessions are recorded into, for `antiphon replay`; empty: they are not.
    pub record: String,
    /// Whether a recording holds the microphone's audio too.
    pub record_audio: bool,
}

impl Default for SessionConfig {
    fn default() -> Self {
        Self {
            max_minutes: 60,
            resume_seconds: 30,
            lead_ms: 300,
            create_response: true,
            interrupt_response: true,
            history_tokens: 8_000,
            max_utterance_seconds: 300,
            refuse_unknown_fields: true,
            record: String::new(),
            record_audio: false,
        }
    }
}
