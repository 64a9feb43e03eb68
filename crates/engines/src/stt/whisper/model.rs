//! A model in memory: one copy for each device, which all replicas on it read.
//!
//! [`load_for`] finds the file, has `file` check it and lets whisper.cpp read it once for each device. Weights never change
//! after that. A replica that is restarted finds the copy of its device as it was.

use super::ffi;
use super::file;
use super::layout::Sizes;
use super::search::TextTokens;
use super::share::Shares;
use super::states::States;
use crate::stt::SttConfig;
use antiphon_audio::mel::LogMel;
use antiphon_engine_api::stt::SttError;
use antiphon_types::RunsOn;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::available_parallelism;
use whisper_rs::{WhisperContext, WhisperContextParameters};

/// Threads of a decoding where none are set: whisper.cpp gains little beyond (its own default).
const MOST_THREADS: usize = 4;

/// The model that `config.model` names, for each decoder: decoder `i` has entry `i` of this, counted round. Decoders on one
/// device share a copy. Blocks while the file is read, once for each device that has a decoder.
pub(super) fn load_for(config: &SttConfig) -> Result<Vec<Arc<Model>>, SttError> {
    let file = ModelFile::check(config)?;
    let gpus = ffi::gpus();
    spread(&devices(config, &gpus)?, config.decoders, |gpu| file.load(gpu.map(|number| (number, &*gpus[number]))))
}

/// A loaded model and how it is used.
pub(super) struct Model {
    pub(super) context: WhisperContext,
    pub(super) sizes: Sizes,
    pub(super) settings: Settings,
    /// What a decoding may choose.
    pub(super) text_tokens: TextTokens,
    /// Whisper's spectrograms.
    pub(super) spectrograms: LogMel,
    /// Of the processor; on a GPU it delays no other decoder.
    pub(super) shares: Shares,
    pub(super) states: States,
    is_on_gpu: bool,
}

impl Model {
    /// What a decoding keeps busy.
    pub(super) fn runs_on(&self) -> RunsOn {
        if self.is_on_gpu { RunsOn::GPU } else { RunsOn::threads(self.settings.n_threads) }
    }
}

/// How decodings are made; from the configuration.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Settings {
    pub(super) n_threads: usize,
    /// 1: greedy.
    pub(super) beam_size: usize,
    /// Added to the temperature after a failed attempt; 0: there is one attempt.
    pub(super) temperature_step: f32,
    /// From this probability on, the model reports no speech.
    pub(super) no_speech: f32,
    /// Positions of the encoder at least, of 20 ms each.
    pub(super) min_positions: usize,
    /// Expected words of all utterances.
    pub(super) key_terms: Vec<String>,
    /// `None`: it is detected.
    pub(super) language: Option<String>,
    /// Tokens an answer, whatever its length; for benchmarks of models that never end one.
    pub(super) n_tokens: Option<usize>,
    /// Whether a suspect decoding is repeated; not in benchmarks of models with random weights, whose text always is.
    pub(super) repeats_suspect: bool,
}

impl Settings {
    fn new(config: &SttConfig) -> Self {
        Self {
            n_threads: if config.threads == 0 { n_cores().min(MOST_THREADS) } else { config.threads },
            beam_size: config.beam_size,
            temperature_step: config.temperature_step,
            no_speech: config.no_speech_threshold,
            min_positions: (config.min_window_ms / 20) as usize,
            key_terms: config.key_terms.clone(),
            language: config.language_code(),
            n_tokens: None,
            repeats_suspect: true,
        }
    }
}

/// A model's file that was checked, and how the model is used.
struct ModelFile {
    path: PathBuf,
    sizes: Sizes,
    settings: Settings,
    n_decoders: usize,
}

impl ModelFile {
    fn check(config: &SttConfig) -> Result<Self, SttError> {
        ffi::log_to_tracing();
        let path = find(&config.model)?;
        let sizes = file::check(&path).map_err(|error| refused(&path, &error.to_string()))?;
        let settings = Settings::new(config);
        if let Some(language) = &settings.language {
            language_of(&sizes, language)?;
        }
        Ok(Self { path, sizes, settings, n_decoders: config.decoders })
    }

    /// A copy of the weights, on a GPU by its number and name, or the processor. Blocks while the file is read.
    fn load(&self, gpu: Option<(usize, &str)>) -> Result<Model, SttError> {
        let device = gpu.map_or("the processor".into(), |(number, name)| format!("GPU {number}, {name}"));
        let number = gpu.map_or(0, |(number, _)| number);
        if gpu.is_some() {
            self.check_room(&device, ffi::free_bytes(number))?;
        }
        let mut parameters = WhisperContextParameters::default();
        // Numbers go up to 64 by the settings' rules. Without flash attention: whisper.cpp pads the keys of a window to a multiple of
        // 256 positions for it and masks none of them, so that it repeats sentences in windows of other lengths.
        parameters.use_gpu(gpu.is_some()).gpu_device(number as i32).flash_attn(false);
        let context = WhisperContext::new_with_params(&self.path, parameters);
        let context =
            context.map_err(|error| refused(&self.path, &format!("whisper.cpp refuses it on {device} ({error})")))?;
        tracing::info!(device, "Whisper runs on it");
        let shares = match gpu {
            None => Shares::of(n_cores(), self.settings.n_threads),
            Some(_) => Shares::new(self.n_decoders),
        };
        let states = States::new(shares.n());
        let text_tokens = TextTokens::of(&context);
        Ok(Model {
            context,
            sizes: self.sizes,
            settings: self.settings.clone(),
            text_tokens,
            spectrograms: LogMel::new(self.sizes.n_mels),
            shares,
            states,
            is_on_gpu: gpu.is_some(),
        })
    }
}

impl ModelFile {
    /// Refuses a GPU without room for the weights, which take as much memory as the file: whisper.cpp would end the process.
    fn check_room(&self, device: &str, free_bytes: Option<u64>) -> Result<(), SttError> {
        const MIB: u64 = 1024 * 1024;
        let bytes = std::fs::metadata(&self.path).map_or(0, |file| file.len());
        match free_bytes {
            Some(free) if free < bytes => {
                let why = format!("{device} has {} MiB of free memory, and it takes {} MiB", free / MIB, bytes / MIB);
                Err(refused(&self.path, &why))
            }
            _ => Ok(()),
        }
    }
}

fn refused(path: &Path, why: &str) -> SttError {
    SttError::Unavailable(format!("stt.model: {} is no model that can be loaded: {why}", path.display()))
}

impl Model {
    /// A copy of the model that `config.model` names, for a decoder alone. Blocks while it reads.
    pub(super) fn load(config: &SttConfig) -> Result<Self, SttError> {
        let mut models = load_for(&SttConfig { decoders: 1, ..config.clone() })?;
        let model = models.pop().and_then(Arc::into_inner);
        Ok(model.expect("one decoder has one copy"))
    }

    /// The model's own name for a language, which must be one it knows.
    pub(super) fn language(&self, code: &str) -> Result<&'static str, SttError> {
        language_of(&self.sizes, code)
    }

    /// The codes of the languages it transcribes.
    pub(super) fn languages(&self) -> Vec<String> {
        if !self.sizes.is_multilingual() {
            return vec!["en".to_owned()];
        }
        let ids = 0..i32::try_from(self.n_languages()).unwrap_or(i32::MAX);
        ids.map_while(whisper_rs::get_lang_str).map(str::to_owned).collect()
    }

    /// How many languages it distinguishes.
    pub(super) fn n_languages(&self) -> usize {
        n_languages(&self.sizes)
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

/// As whisper.cpp counts them by the vocabulary.
fn n_languages(sizes: &Sizes) -> usize {
    if sizes.is_multilingual() { sizes.n_vocab - 51_766 } else { 1 }
}

fn language_of(sizes: &Sizes, code: &str) -> Result<&'static str, SttError> {
    let known = code.bytes().all(|byte| byte.is_ascii_alphabetic()).then(|| whisper_rs::get_lang_id(code)).flatten();
    let known = known.filter(|id| usize::try_from(*id).is_ok_and(|id| id < n_languages(sizes)));
    let known = known.and_then(whisper_rs::get_lang_str);
    known.ok_or_else(|| {
        let understands = match sizes.is_multilingual() {
            true => format!("this Whisper model knows {} languages, {code:?} is not one of them", n_languages(sizes)),
            false => format!("this Whisper model knows English only, not {code:?}; those of several languages have no \".en\" in their names"),
        };
        SttError::Unavailable(understands)
    })
}

fn n_cores() -> usize {
    available_parallelism().map_or(1, usize::from)
}

/// What decoders run on, in turn: GPUs by their number among those there are; `None`: the processor, where none is requested
/// or there is none. The first GPU is the default of `gpu_device`, so that only another one, or a listed one, was surely
/// meant.
fn devices(config: &SttConfig, gpus: &[String]) -> Result<Vec<Option<usize>>, SttError> {
    let missing = |named: String, missing: &str| {
        SttError::Unavailable(format!(
            "{named}, but there is no GPU {missing}: whisper.cpp finds these only, counted from 0: {gpus:?} \
             (none in a build without the feature \"cuda\")"
        ))
    };
    let listed = &config.gpu_devices;
    if !listed.is_empty() {
        let absent: Vec<_> =
            listed.iter().filter(|number| **number as usize >= gpus.len()).map(u32::to_string).collect();
        return match absent.is_empty() {
            true => Ok(listed.iter().map(|number| Some(*number as usize)).collect()),
            false => Err(missing(format!("stt.gpu_devices is {listed:?}"), &absent.join(", "))),
        };
    }
    let Ok(number) = usize::try_from(config.gpu_device) else { return Ok(vec![None]) };
    if number < gpus.len() {
        return Ok(vec![Some(number)]);
    }
    if number > 0 {
        return Err(missing(format!("stt.gpu_device is {number}"), &number.to_string()));
    }
    if cfg!(feature = "cuda") {
        tracing::warn!("whisper.cpp finds no GPU; stt.gpu_device = -1 says that there is none");
    }
    Ok(vec![None])
}

/// What each decoder gets, where they take the devices in turn: as many entries as are used before it repeats. Decoders on
/// one device share what was loaded for it, however often it is listed.
fn spread<D: PartialEq + Copy, T, X>(
    devices: &[D],
    n_decoders: usize,
    mut load: impl FnMut(D) -> Result<T, X>,
) -> Result<Vec<Arc<T>>, X> {
    let mut loaded: Vec<Arc<T>> = Vec::new();
    for (i, device) in devices.iter().enumerate().take(n_decoders.max(1)) {
        let known = devices[..i].iter().position(|other| other == device);
        loaded.push(match known {
            Some(known) => loaded[known].clone(),
            None => Arc::new(load(*device)?),
        });
    }
    Ok(loaded)
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
        let of = |gpu_device, gpus: &[String]| devices(&SttConfig { gpu_device, ..SttConfig::default() }, gpus);
        assert_eq!(of(1, &gpus).expect("it is there"), [Some(1)]);
        assert_eq!(of(-1, &gpus).expect("none is requested"), [None]);
        assert_eq!(of(0, &[]).expect("that is the default"), [None]);
        let error = of(2, &gpus).expect_err("there are two").to_string();
        assert!(error.contains("stt.gpu_device is 2") && error.contains("\"two\""), "{error}");
    }

    #[test]
    fn listed_gpus_are_used_and_each_that_is_missing_is_named() {
        let gpus = ["one".to_owned(), "two".to_owned()];
        let of = |listed: &[u32], gpus: &[String]| {
            devices(&SttConfig { gpu_device: -1, gpu_devices: listed.to_vec(), ..SttConfig::default() }, gpus)
        };
        assert_eq!(of(&[1, 0], &gpus).expect("they are there"), [Some(1), Some(0)], "the list counts");
        let error = of(&[3, 0, 2], &gpus).expect_err("there are two").to_string();
        assert!(error.contains("stt.gpu_devices is [3, 0, 2], but there is no GPU 3, 2: "), "{error}");
        assert!(of(&[0], &[]).is_err(), "one that is listed was meant");
    }

    #[test]
    fn decoders_take_the_devices_in_turn_and_each_device_is_loaded_once() {
        let loaded = |devices: &[u32], n_decoders| {
            let mut loads = Vec::new();
            let load = |device| {
                loads.push(device);
                Ok::<_, SttError>(device)
            };
            let models = spread(devices, n_decoders, load).expect("they load");
            ((0..n_decoders).map(|i| *models[i % models.len()]).collect::<Vec<_>>(), loads)
        };
        assert_eq!(loaded(&[4, 7], 5), (vec![4, 7, 4, 7, 4], vec![4, 7]));
        assert_eq!(loaded(&[4, 4, 7], 4), (vec![4, 4, 7, 4], vec![4, 7]), "one that is listed twice gets two of three");
        assert_eq!(loaded(&[4, 7, 9], 2), (vec![4, 7], vec![4, 7]), "one without a decoder is not loaded");
        let fails = |device| if device == 7 { Err("no memory") } else { Ok(device) };
        assert_eq!(spread(&[4, 7], 2, fails).err(), Some("no memory"));
        let copies = |gpu_devices: &[u32], decoders| {
            SttConfig { gpu_devices: gpu_devices.to_vec(), decoders, ..SttConfig::default() }.n_copies()
        };
        assert_eq!([copies(&[], 4), copies(&[4, 4, 7], 4), copies(&[4, 7, 9], 2)], [1, 2, 2]);
    }
}
