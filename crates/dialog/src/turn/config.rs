//! The `[turn]` section.

use serde::{Deserialize, Serialize};

/// Settings of turn-taking that sessions begin with. Each key is documented in `configs/default.toml`.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct TurnConfig {
    /// P(speech) from which a window counts as voiced, 0 to 1.
    pub threshold: f32,
    /// Audio kept from before the speech, so that the first syllable is not lost.
    pub prefix_padding_ms: u32,
    /// Silence that ends the turn.
    pub silence_duration_ms: u32,
    /// Voiced time that makes it speech; less is a cough.
    pub min_speech_ms: u32,
    /// `auto`, a turn model of the registry, or its file; empty: none is asked.
    pub model: String,
}

impl Default for TurnConfig {
    fn default() -> Self {
        Self {
            threshold: 0.5,
            prefix_padding_ms: 300,
            silence_duration_ms: 500,
            min_speech_ms: 96,
            model: "auto".into(),
        }
    }
}
