//! The `[stt]` section.

use antiphon_engine_api::stt::DETECT_LANGUAGE;
use antiphon_types::setting::{HOUR_MS, Rule};
use antiphon_types::{language_code, primary_language};

antiphon_types::settings! {
    /// Speech to text.
    pub struct SttConfig in "stt" {
        /// "auto": the best model in models.dir that this machine runs in time, else "none". "whisper": on this
        /// machine. "transducer": a recognizer that streams, on this machine, see docs/guide/models.md. "none":
        /// the hub can be written to. "openai": any server with /v1/audio/transcriptions. "realtime": any
        /// server that transcribes over the WebSocket /v1/realtime. "moshi": a moshi-server's
        /// /api/asr-streaming.
        pub engine: String = "auto".into(), Rule::Engine;
        /// whisper: utterances decoded at once; others wait. Files use at most all but one.
        pub decoders: usize = 4, Rule::Whole(1, 64, "decoders");
        /// transducer: utterances transcribed at once on each device; the next one is refused. Each has caches
        /// of 3 to 8 MB. 0: 16 on the processor, at most 256 on a GPU (half of onnx.gpu_memory_mib).
        pub slots: usize = 0, Rule::Whole(0, 1_024, "utterances; 0: as many as are usual");
        /// openai, realtime: the server's address up to and including /v1. moshi: up to and including /api.
        pub base_url: String = "https://api.openai.com/v1".into(), Rule::Url;
        /// openai, realtime: the model's name. whisper: a name from `antiphon models list`, or a ggml file.
        /// transducer: the folder with encoder.onnx, decoder.onnx, joiner.onnx and tokens.txt, or one of
        /// several encoders in it.
        pub model: String = "whisper-1".into(), Rule::Name;
        /// openai: NAME of the environment variable that holds the key, never the key itself; or NAME_FILE
        /// names a file with it.
        pub api_key_env: String = "OPENAI_API_KEY".into(), Rule::Variable;
        /// Language spoken, such as "en" or "en-US". Empty: the engine chooses. "auto": detected in each
        /// utterance, and answered in it. See docs/guide/languages.md.
        pub language: String = String::new(), Rule::Language;
        /// Names and words that are likely to be said, such as ["Antiphon", "New York"]. transducer favours
        /// them; for the others, without moshi, they begin the prompt. At most 1000, of at most 100 characters
        /// each.
        pub key_terms: Vec<String> = Vec::new(), Rule::Texts(1_000, 100);
        /// whisper: threads per decoding. 0: one per core, at most 4.
        pub threads: usize = 0, Rule::Whole(0, 256, "threads");
        /// whisper: beam width. 1 is the fastest: the likeliest tokens, and in sound files two alternatives.
        pub beam_size: usize = 1, Rule::Whole(1, 8, "hypotheses");
        /// whisper: an improbable or repetitive final transcript is decoded again with a temperature raised by
        /// this step. 0.0: never.
        pub temperature_step: f32 = 0.4, Rule::Number(0.0, 1.0);
        /// whisper: from this probability of "no speech", improbable words are dropped.
        pub no_speech_threshold: f32 = 0.6, Rule::Number(0.0, 1.0);
        /// whisper: the shortest window of a short utterance. The full 30 s are most accurate, and several
        /// times slower.
        pub min_window_ms: u64 = 7_680, Rule::Whole(1_000, 30_000, "milliseconds");
        /// whisper: the GPU to run on, in a build with the feature "cuda". -1: the processor.
        pub gpu_device: i32 = 0, Rule::Whole(-1, 64, "the GPU's number; -1: none");
        /// whisper: several GPUs, such as [0, 1], which the decoders take in turn; each holds the model once.
        /// Empty: gpu_device.
        pub gpu_devices: Vec<u32> = Vec::new(), Rule::Wholes(0, 64, "numbers of GPUs");
        /// The longest wait from the end of an utterance to its final transcript; for a segment of a sound file
        /// eight times its length more.
        pub timeout_ms: u64 = 15_000, Rule::Whole(100, HOUR_MS, "milliseconds");
        /// openai: a request later than 95 % of those before, and than this, is sent once more, to the fallback
        /// engine or the same server. 0: never.
        pub hedge_after_ms: u64 = 1_000, Rule::Whole(0, 60_000, "milliseconds; 0: off");
        /// Another engine of this stage, which serves where this one fails or is late: any keys of this section; its
        /// engine must be named. Write it as a table of its own, [stt.fallback], at the end of the section. An example:
        /// { engine = "openai", base_url = "http://192.168.0.7:8000/v1" }.
        #[serde(with = "crate::fallback::section")]
        pub fallback: Option<Box<Self>> = None, Rule::Fallback;
    }
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
