//! A model in memory: one copy, which all replicas read.
//!
//! [`Model::load`] finds the file, has `file` check it and lets whisper.cpp read it. Weights never change after that.

use super::ffi;
use super::file;
use super::layout::Sizes;
use super::share::Shares;
use crate::stt::SttConfig;
use antiphon_engine_api::stt::SttError;
use std::path::{Path, PathBuf};
use std::thread::available_parallelism;
use whisper_rs::{WhisperContext, WhisperContextParameters};

/// Threads of a decoding where none are set: whisper.cpp gains little beyond (its own default).
const MOST_THREADS: usize = 4;

/// A loaded model and how it is used.
pub(super) struct Model {
    pub(super) context: WhisperContext,
    pub(super) sizes: Sizes,
    pub(super) settings: Settings,
    /// Of the processor; on a GPU it holds nobody up.
    pub(super) shares: Shares,
}

/// How decodings are made; from the configuration.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Settings {
    pub(super) n_threads: usize,
    /// 1: greedy.
    pub(super) beam_size: usize,
    /// Added to the temperature after a failed attempt; 0: there is one attempt.
    pub(super) temperature_step: f32,
    /// From here on the model is taken to say that nobody spoke.
    pub(super) no_speech: f32,
    /// Positions of the encoder at least, of 20 ms each.
    pub(super) min_positions: usize,
    /// `None`: it is detected.
    pub(super) language: Option<String>,
    /// Tokens an answer, whatever its length; for benchmarks of models that never end one.
    pub(super) n_tokens: Option<usize>,
}

impl Settings {
    fn new(config: &SttConfig) -> Self {
        Self {
            n_threads: if config.threads == 0 { n_cores().min(MOST_THREADS) } else { config.threads },
            beam_size: config.beam_size,
            temperature_step: config.temperature_step,
            no_speech: config.no_speech_threshold,
            min_positions: (config.min_window_ms / 20) as usize,
            language: Some(config.language.clone()).filter(|language| !language.is_empty()),
            n_tokens: None,
        }
    }
}

impl Model {
    /// Loads the model that `config.model` names. Blocks while it reads.
    pub(super) fn load(config: &SttConfig) -> Result<Self, SttError> {
        ffi::log_to_tracing();
        let path = find(&config.model)?;
        let refused = |why: String| {
            let path = path.display();
            SttError::Unavailable(format!("stt.model: {path} is no model that can be loaded: {why}"))
        };
        let sizes = file::check(&path).map_err(|error| refused(error.to_string()))?;
        let gpus = ffi::gpus();
        let gpu = chosen(config.gpu_device, &gpus)?;
        if cfg!(feature = "cuda") && config.gpu_device >= 0 && gpu.is_none() {
            tracing::warn!("whisper.cpp finds no GPU; stt.gpu_device = -1 says that there is none");
        }
        tracing::info!(device = gpu.map_or("the processor", String::as_str), "Whisper runs on it");
        let mut parameters = WhisperContextParameters::default();
        parameters.use_gpu(gpu.is_some()).gpu_device(config.gpu_device.max(0));
        let context = WhisperContext::new_with_params(&path, parameters);
        let context = context.map_err(|error| refused(format!("whisper.cpp refuses it ({error})")))?;
        let settings = Settings::new(config);
        let shares = match gpu {
            None => Shares::of(n_cores(), settings.n_threads),
            Some(_) => Shares::new(config.decoders),
        };
        let model = Self { context, sizes, settings, shares };
        if let Some(language) = &model.settings.language {
            model.language(language)?;
        }
        Ok(model)
    }

    /// The model's own name for a language, which must be one it knows.
    pub(super) fn language(&self, code: &str) -> Result<&'static str, SttError> {
        let known =
            code.bytes().all(|byte| byte.is_ascii_alphabetic()).then(|| whisper_rs::get_lang_id(code)).flatten();
        let known = known.filter(|id| usize::try_from(*id).is_ok_and(|id| id < self.n_languages()));
        let known = known.and_then(whisper_rs::get_lang_str);
        known.ok_or_else(|| {
            let understands = match self.sizes.is_multilingual() {
                true => format!("this Whisper model knows {} languages, {code:?} is none of them", self.n_languages()),
                false => format!("this Whisper model knows English only, not {code:?}; those of several languages have no \".en\" in their names"),
            };
            SttError::Unavailable(understands)
        })
    }

    /// How many languages it tells apart: as whisper.cpp counts them by the vocabulary.
    pub(super) fn n_languages(&self) -> usize {
        if self.sizes.is_multilingual() { self.sizes.n_vocab - 51_766 } else { 1 }
    }

    /// Samples at 16 kHz that one decoding hears at most: 30 s, or what there are positions for.
    pub(super) fn window(&self) -> usize {
        self.sizes.n_audio_ctx * SAMPLES_A_POSITION
    }

    /// Positions of the encoder for so much audio. Whisper was trained on 30 s always; what is cut off is silence to it,
    /// and the encoder's work shrinks with the window: of a short utterance to a quarter. Cut too close it repeats itself
    /// or stops early, so that 0.64 s stay behind the audio and [`Settings::min_positions`] in all. A whole number of
    /// 64 keeps the matrices even and the number of different graphs small.
    pub(super) fn positions(&self, n_samples: usize) -> usize {
        let needed = n_samples.div_ceil(SAMPLES_A_POSITION) + 32;
        needed.max(self.settings.min_positions).next_multiple_of(64).min(self.sizes.n_audio_ctx)
    }
}

const SAMPLES_A_POSITION: usize = 320;

fn n_cores() -> usize {
    available_parallelism().map_or(1, usize::from)
}

/// The GPU of that number; `None`: the processor, where none is requested or there is none. The first is the default, so that
/// only another one was surely meant.
fn chosen(gpu_device: i32, gpus: &[String]) -> Result<Option<&String>, SttError> {
    let Ok(number) = usize::try_from(gpu_device) else { return Ok(None) };
    match gpus.get(number) {
        None if number > 0 => Err(SttError::Unavailable(format!(
            "stt.gpu_device is {number}, but whisper.cpp finds these GPUs only, counted from 0: {gpus:?} \
             (none in a build without the feature \"cuda\")"
        ))),
        gpu => Ok(gpu),
    }
}

/// The file itself, or the only model in a folder.
fn find(model: &str) -> Result<PathBuf, SttError> {
    let path = Path::new(model);
    if path.is_file() {
        return Ok(path.to_owned());
    }
    let unavailable = |what: String| {
        SttError::Unavailable(format!(
            "{what}; stt.model must be a Whisper model in whisper.cpp's format (ggml-base.bin) or its folder"
        ))
    };
    let Ok(folder) = path.read_dir() else {
        return Err(unavailable(format!("stt.model: there is no file {model:?}")));
    };
    let is_model = |path: &PathBuf| path.extension().is_some_and(|extension| extension == "bin");
    let mut models: Vec<PathBuf> = folder.filter_map(|entry| Some(entry.ok()?.path())).filter(is_model).collect();
    match (models.pop(), models.is_empty()) {
        (Some(model), true) => Ok(model),
        (None, _) => Err(unavailable(format!("stt.model: no .bin file is in the folder {model:?}"))),
        (Some(_), false) => Err(unavailable(format!("stt.model: several .bin files are in the folder {model:?}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gpu_that_was_chosen_is_used_or_missed() {
        let gpus = ["one".to_owned(), "two".to_owned()];
        assert_eq!(chosen(1, &gpus).expect("it is there"), Some(&gpus[1]));
        assert_eq!(chosen(-1, &gpus).expect("none is requested"), None);
        assert_eq!(chosen(0, &[]).expect("that is the default"), None);
        let error = chosen(2, &gpus).expect_err("there are two").to_string();
        assert!(error.contains("stt.gpu_device is 2") && error.contains("\"two\""), "{error}");
    }
}
