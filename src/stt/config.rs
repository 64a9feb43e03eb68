//! The `[stt]` section.

use serde::{Deserialize, Serialize};

/// Settings of speech to text. Each key is documented in `configs/default.toml`.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct SttConfig {
    /// `auto`, `sphinx` or `openai`.
    pub engine: String,
    /// `sphinx`: how many utterances are decoded at once (about 125 MiB each).
    pub decoders: usize,
    /// `sphinx`: folder of the acoustic model, language model and dictionary; empty: Debian's.
    pub model_dir: String,
    /// `openai`: address up to and including `/v1`.
    pub base_url: String,
    /// `openai`: the model's name.
    pub model: String,
    /// `openai`: the environment variable that holds the key; empty: no key.
    pub api_key_env: String,
    /// ISO-639-1 code; empty: the engine's own choice.
    pub language: String,
    /// The longest wait for a final transcript, a free decoder included.
    pub timeout_ms: u64,
}

impl Default for SttConfig {
    fn default() -> Self {
        Self {
            engine: "auto".into(),
            decoders: 4,
            model_dir: String::new(),
            base_url: "https://api.openai.com/v1".into(),
            model: "whisper-1".into(),
            api_key_env: "OPENAI_API_KEY".into(),
            language: String::new(),
            timeout_ms: 15_000,
        }
    }
}
