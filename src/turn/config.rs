//! The `[turn]` section: what sessions begin with; a client may change it by `session.update`.

use serde::Deserialize;

/// Settings of turn-taking. Each key is documented in `configs/default.toml`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TurnConfig {
    /// P(speech) from which a window is voiced, 0 to 1.
    pub threshold: f32,
    /// Audio before the first voiced window that belongs to the utterance.
    pub prefix_padding_ms: u32,
    /// Silence that ends the utterance.
    pub silence_duration_ms: u32,
    /// Voiced time that makes a sound speech.
    pub min_speech_ms: u32,
}

impl Default for TurnConfig {
    fn default() -> Self {
        Self { threshold: 0.5, prefix_padding_ms: 300, silence_duration_ms: 500, min_speech_ms: 100 }
    }
}
