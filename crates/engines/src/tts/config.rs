//! The `[tts]` section.

use antiphon_engine_api::tts::Tts;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The default of `tts.voice`, one of flite's.
const DEFAULT_VOICE: &str = "slt";

/// Settings of text to speech. Each key is documented in `configs/default.toml`.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct TtsConfig {
    /// The name of an engine ([`ENGINES`](super::ENGINES)), or `auto`.
    pub engine: String,
    /// The voice sessions begin with.
    pub voice: String,
    /// Voices of replies that follow the language heard, by its code (`stt.language = "auto"`).
    pub language_voices: BTreeMap<String, String>,
    /// Rate of speech sessions begin with, 0.25 to 4.0.
    pub speed: f32,
    /// `flite`, `piper`, `kokoro`: the size of the engine pool, which is how many chunks (or batches) are synthesized at once.
    /// `speechlm`: instances of the model. 0: two, or one for each device where there are more; of `speechlm` one for each
    /// device.
    pub replicas: usize,
    /// `openai`, `fish`: address up to and including `/v1`. `moshi`: up to and including `/api`.
    pub base_url: String,
    /// `openai`, `fish`: the model's name. `piper`, `kokoro`, `speechlm`: its file or folder.
    pub model: String,
    /// `openai`, `fish`, `moshi`: the environment variable that holds the key; empty: no key.
    pub api_key_env: String,
    /// `openai`: `pcm` or `wav`, which is asked for. A WAV file is read by its header whatever was asked for.
    pub response_format: String,
    /// `openai`: empty, `audio` or `sse`; empty is not sent.
    pub stream_format: String,
    /// `openai`: the rate in Hz of PCM without one; 0: 24 kHz.
    pub sample_rate: u32,
    /// `openai`: `chunks` or `words`, how a session's text goes to the server.
    pub text_input: String,
    /// `openai`, `fish`: fields for the JSON of each request. `moshi`: parameters of its address.
    pub extra_body: serde_json::Map<String, serde_json::Value>,
    /// Neural voices whose model takes several chunks a run: their maximum; 0: 2 on the processor, 8 on a GPU.
    pub max_batch_size: usize,
    /// The same: the longest a free replica waits for a batch to fill.
    pub max_wait_ms: u64,
    /// `piper`: how much the sound varies, 0 to 10; negative: as the voice's own file has it.
    pub noise_scale: f32,
    /// `piper`: how long phonemes are, above 0 to 10; negative: the voice's own. `speed` divides it.
    pub length_scale: f32,
    /// `piper`: how much the lengths vary, 0 to 10; negative: the voice's own.
    pub width_scale: f32,
    /// `speechlm`: the contract of a family that is not built in; empty: by the model's name.
    pub contract: String,
    /// `speechlm`: listeners that one instance serves at once, up to 32; 0: as many as fit into memory.
    pub slots: usize,
    /// `speechlm`: reproducible speech: the same text, voice and seed give the same samples, independent of other listeners.
    pub deterministic: bool,
    /// The longest wait for a chunk's first sound.
    pub timeout_ms: u64,
    /// Engines that clone voices: the folder of reference recordings; empty: `voices` below `models.dir`.
    pub voices_dir: String,
    /// The same: uploaded voices, at most.
    pub max_voices: usize,
    /// `openai`, `fish`, `moshi`: how late the first output must be before a second request is sent, at least; 0: none is.
    pub hedge_after_ms: u64,
    /// The engine that serves where this one fails; `None`: none. It has no fallback itself.
    #[serde(with = "crate::fallback::section")]
    pub fallback: Option<Box<Self>>,
}

impl TtsConfig {
    /// The voice that was chosen for an engine other than flite; `None` where the setting was left at its default, which
    /// names one of flite's.
    pub fn chosen_voice(&self) -> Option<&str> {
        (self.voice != DEFAULT_VOICE).then_some(self.voice.as_str())
    }

    /// The size of an engine pool on `n_devices` devices.
    pub fn pool_size(&self, n_devices: usize) -> usize {
        if self.replicas == 0 { n_devices.max(2) } else { self.replicas }
    }

    /// Instances of a large model on `n_devices` devices.
    pub fn n_instances(&self, n_devices: usize) -> usize {
        if self.replicas == 0 { n_devices.max(1) } else { self.replicas }
    }

    /// The voice sessions begin with: the configured one, or the engine's first where it has none of that name.
    pub fn first_voice(&self, engine: &dyn Tts) -> String {
        if engine.check_voice(&self.voice).is_ok() {
            return self.voice.clone();
        }
        engine.voices().first().map_or_else(|| self.voice.clone(), |voice| voice.id.clone())
    }
}

impl Default for TtsConfig {
    fn default() -> Self {
        Self {
            engine: "auto".into(),
            voice: DEFAULT_VOICE.into(),
            language_voices: BTreeMap::new(),
            speed: 1.0,
            replicas: 0,
            base_url: "https://api.openai.com/v1".into(),
            model: "tts-1".into(),
            api_key_env: "OPENAI_API_KEY".into(),
            response_format: "pcm".into(),
            stream_format: String::new(),
            sample_rate: 0,
            text_input: "chunks".into(),
            extra_body: serde_json::Map::new(),
            max_batch_size: 0,
            max_wait_ms: 5,
            noise_scale: -1.0,
            length_scale: -1.0,
            width_scale: -1.0,
            contract: String::new(),
            slots: 0,
            deterministic: false,
            timeout_ms: 10_000,
            voices_dir: String::new(),
            max_voices: 64,
            hedge_after_ms: 1_000,
            fallback: None,
        }
    }
}
