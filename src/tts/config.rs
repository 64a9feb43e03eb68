//! The `[tts]` section.

use serde::{Deserialize, Serialize};

/// Settings of text to speech. Each key is documented in `configs/default.toml`.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct TtsConfig {
    /// `auto`, `flite` or `openai`.
    pub engine: String,
    /// The voice sessions begin with.
    pub voice: String,
    /// Rate of speech sessions begin with, 0.25 to 4.0.
    pub speed: f32,
    /// `flite`: how many chunks are synthesized at once.
    pub lanes: usize,
    /// `openai`: address up to and including `/v1`.
    pub base_url: String,
    /// `openai`: the model's name.
    pub model: String,
    /// `openai`: the environment variable that holds the key; empty: no key.
    pub api_key_env: String,
    /// Neural voices whose model takes several chunks a run: at most so many; 0: 1 on the processor, 8 on a GPU.
    pub max_batch_size: usize,
    /// The same: the longest a free lane waits for a batch to fill.
    pub max_wait_ms: u64,
    /// The longest wait for a chunk's first sound.
    pub timeout_ms: u64,
}

impl Default for TtsConfig {
    fn default() -> Self {
        Self {
            engine: "auto".into(),
            voice: "slt".into(),
            speed: 1.0,
            lanes: 2,
            base_url: "https://api.openai.com/v1".into(),
            model: "tts-1".into(),
            api_key_env: "OPENAI_API_KEY".into(),
            max_batch_size: 0,
            max_wait_ms: 5,
            timeout_ms: 10_000,
        }
    }
}
