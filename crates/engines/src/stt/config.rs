//! The `[stt]` section.

use antiphon_engine_api::stt::DETECT_LANGUAGE;
use antiphon_types::{language_code, primary_language};
use serde::{Deserialize, Serialize};

/// Settings of speech to text. Each key is documented in `configs/default.toml`.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct SttConfig {
    /// The name of an engine ([`ENGINES`](super::ENGINES)), or `auto`.
    pub engine: String,
    /// `whisper`: how many utterances are decoded at once.
    pub decoders: usize,
    /// `transducer`: how many utterances are transcribed at once, on each device; 0: as many as are usual for it.
    pub slots: usize,
    /// `openai`, `realtime`, `moshi`: address up to and including `/v1`; of a moshi-server, `/api`.
    pub base_url: String,
    /// `openai`, `realtime`: the model's name. `whisper`: the model's file or folder. `transducer`: its folder or its encoder.
    pub model: String,
    /// `openai`, `realtime`, `moshi`: the environment variable that holds the key; empty: no key.
    pub api_key_env: String,
    /// ISO-639-1 code; empty: the engine's own choice; `auto`: detected, and replies follow it.
    pub language: String,
    /// Names and words that are likely to be said.
    pub key_terms: Vec<String>,
    /// `whisper`: threads of a decoding; 0: as many as there are cores, 4 at most.
    pub threads: usize,
    /// `whisper`: hypotheses followed at a time; 1: the likeliest word each time.
    pub beam_size: usize,
    /// `whisper`: how much more freely it guesses after an attempt with unlikely words; 0: there is one attempt.
    pub temperature_step: f32,
    /// `whisper`: from which probability of silence on unlikely words are dropped.
    pub no_speech_threshold: f32,
    /// `whisper`: the shortest window of audio that is decoded; 30 000: always the full one.
    pub min_window_ms: u64,
    /// `whisper` with the feature `cuda`: which GPU; -1: none.
    pub gpu_device: i32,
    /// The same: several GPUs, which the decoders take in turn; empty: `gpu_device` alone.
    pub gpu_devices: Vec<u32>,
    /// The longest wait from the end of an utterance to its final transcript, a free decoder included.
    pub timeout_ms: u64,
    /// `openai`, `realtime`, `moshi`: how late the first output must be before a second request is sent, at least; 0: none is.
    pub hedge_after_ms: u64,
    /// The engine that serves where this one fails; `None`: none. It has no fallback itself.
    #[serde(with = "crate::fallback::section")]
    pub fallback: Option<Box<Self>>,
}

impl SttConfig {
    /// The code of the language, where one is set.
    pub fn language_code(&self) -> Option<String> {
        let given = Some(self.language.trim()).filter(|given| !given.is_empty() && *given != DETECT_LANGUAGE)?;
        Some(language_code(given).map_or_else(|| primary_language(given), str::to_owned))
    }

    /// Copies of Whisper's weights in memory: one for each device that has a decoder.
    pub fn n_copies(&self) -> usize {
        let mut devices: Vec<_> = self.gpu_devices.iter().take(self.decoders.max(1)).collect();
        devices.sort_unstable();
        devices.dedup();
        devices.len().max(1)
    }
}

impl Default for SttConfig {
    fn default() -> Self {
        Self {
            engine: "auto".into(),
            decoders: 4,
            slots: 0,
            base_url: "https://api.openai.com/v1".into(),
            model: "whisper-1".into(),
            api_key_env: "OPENAI_API_KEY".into(),
            language: String::new(),
            key_terms: Vec::new(),
            threads: 0,
            beam_size: 1,
            temperature_step: 0.4,
            no_speech_threshold: 0.6,
            min_window_ms: 7_680,
            gpu_device: 0,
            gpu_devices: Vec::new(),
            timeout_ms: 15_000,
            hedge_after_ms: 1_000,
            fallback: None,
        }
    }
}
