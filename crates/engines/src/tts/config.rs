//! The `[tts]` section.

use antiphon_engine_api::tts::Tts;
use antiphon_types::setting::{HOUR_MS, Rule};
use std::collections::BTreeMap;

/// The default of `tts.voice`, one of flite's.
const DEFAULT_VOICE: &str = "slt";

antiphon_types::settings! {
    /// Text to speech.
    pub struct TtsConfig in "tts" {
        /// "auto": the best model in models.dir that this machine runs in time, else "flite". "flite": English.
        /// "piper", "kokoro", "hibari", "speechlm": neural voices; set model below. "openai": any server with
        /// /v1/audio/speech. "fish": fish-speech. "moshi": moshi-server.
        pub engine: String = "auto".into(), Rule::Engine;
        /// The voice that sessions begin with. flite: slt, rms, awb or kal16. piper: the model's name, with "#"
        /// and the speaker's name where there are several. kokoro: a name or a mixture:
        /// "af_sky:0.4+af_nicole:0.6". openai: such as "alloy". fish: a reference_id. moshi: a path. With
        /// "slt", other engines use their first voice.
        pub voice: String = DEFAULT_VOICE.into(), Rule::Name;
        /// Voices of replies that follow the language heard, such as { de = "de_voice", en = "af_heart" }.
        pub language_voices: BTreeMap<String, String> = BTreeMap::new(), Rule::ByLanguage(256, "am_adam");
        /// Rate of speech that sessions begin with; 1.0 is the voice's own.
        pub speed: f32 = 1.0, Rule::Number(0.25, 4.0);
        /// Chunks of speech synthesized at once; a neural model is loaded once per replica. 0: two, or one for
        /// each GPU where there are more; hibari one, speechlm one for each GPU.
        pub replicas: usize = 0, Rule::Whole(0, 64, "replicas");
        /// openai, fish, moshi: as stt.base_url.
        pub base_url: String = "https://api.openai.com/v1".into(), Rule::Url;
        /// openai, fish: the model's name. Else a folder, or in it: piper: the .onnx file beside its
        /// .onnx.json; kokoro: the .onnx file beside voices-v1.0.bin or a folder voices; speechlm: the language
        /// model's .onnx file.
        pub model: String = "tts-1".into(), Rule::Name;
        /// openai, fish, moshi: NAME of the environment variable that holds the key, as stt.api_key_env.
        pub api_key_env: String = "OPENAI_API_KEY".into(), Rule::Variable;
        /// openai: the form of the audio that is asked for, "pcm" or "wav".
        pub response_format: String = "pcm".into(), Rule::OneOf(&["pcm", "wav"]);
        /// openai: "audio" asks for audio while it is made, which vLLM-Omni and SGLang-Omni need; "sse": as
        /// server-sent events. Empty: nothing is asked for.
        pub stream_format: String = String::new(), Rule::OneOf(&["", "audio", "sse"]);
        /// openai: rate of raw PCM that names none, in Hz; fish-audio models have 44100. 0: 24000; else at
        /// least 4000.
        pub sample_rate: u32 = 0, Rule::Whole(0, 192_000, "Hz; 0: 24000");
        /// openai: how text goes to the server. "chunks": sentence by sentence. "words": word by word, over the
        /// WebSocket /v1/audio/speech/stream of vLLM-Omni and SGLang-Omni.
        pub text_input: String = "chunks".into(), Rule::OneOf(&["chunks", "words"]);
        /// openai, fish: fields added to the JSON of each request; moshi: parameters of the address. An
        /// example: { language = "English", initial_codec_chunk_frames = 2 }.
        pub extra_body: serde_json::Map<String, serde_json::Value> = serde_json::Map::new(), Rule::Fields;
        /// Neural voices whose model accepts several chunks per run: the largest batch. 0: 2 on the processor,
        /// 8 on a GPU.
        pub max_batch_size: usize = 0, Rule::Whole(0, 64, "pieces of speech");
        /// The same models: how long a free replica waits for a batch to fill.
        pub max_wait_ms: u64 = 5, Rule::Whole(0, 1_000, "milliseconds");
        /// piper: variation of the sound. Below 0: the voice's own. At 0.0, with width_scale at 0.0, speech
        /// repeats itself exactly.
        pub noise_scale: f32 = -1.0, Rule::Number(-1.0, 10.0);
        /// piper: length of phonemes; 2.0 is half the speed. 0 and below: the voice's own.
        pub length_scale: f32 = -1.0, Rule::Number(-1.0, 10.0);
        /// piper: variation of the lengths of phonemes. Below 0: the voice's own.
        pub width_scale: f32 = -1.0, Rule::Number(-1.0, 10.0);
        /// speechlm: a TOML file that describes the graphs of another family. Empty: contract.toml beside the
        /// model, or the built-in one.
        pub contract: String = String::new(), Rule::Text;
        /// speechlm: listeners that one instance serves at once. 0: as many as fit into memory, 8 at most on
        /// the processor.
        pub slots: usize = 0, Rule::Whole(0, 32, "listeners");
        /// speechlm: the same text, voice and seed give the same samples, whatever other listeners hear.
        /// Slower.
        pub deterministic: bool = false, Rule::Switch;
        /// The longest wait for the first audio of a chunk of speech.
        pub timeout_ms: u64 = 10_000, Rule::Whole(100, HOUR_MS, "milliseconds");
        /// Engines that clone voices: the folder of recordings, read at start. Empty: voices, below models.dir.
        pub voices_dir: String = String::new(), Rule::Text;
        /// The same engines: uploaded voices kept; one of several API keys may hold half.
        pub max_voices: usize = 64, Rule::Whole(0, 10_000, "voices");
        /// openai, fish, moshi: as stt.hedge_after_ms, for the first sound; twice this for text that goes word
        /// by word. 0: never.
        pub hedge_after_ms: u64 = 1_000, Rule::Whole(0, 60_000, "milliseconds; 0: off");
        /// Another engine of this stage, as stt.fallback: a table [tts.fallback]. Voices that it lacks become
        /// its own "voice".
        #[serde(with = "crate::fallback::section")]
        pub fallback: Option<Box<Self>> = None, Rule::Fallback;
    }
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
