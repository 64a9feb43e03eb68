//! The `piper` engine: VITS voices as Piper publishes them, an `.onnx` model and its `.onnx.json`, by ONNX Runtime.
//!
//! Replicas of an engine pool or a batch scheduler. Text becomes phonemes by espeak-ng, phonemes become ids by the
//! voice's own table, and each sentence is one run of the model: the first sentence sounds while the next is made.
//! Within a sentence a VITS model gives nothing until it has all; a cancel ends its run at the next operator. Published
//! models report no length for each text of a batch, so they are run as replicas; a model that has an output `lengths`
//! besides is run in batches where the configuration allows it.
//!
//! The rate is the voice's own. A voice with several speakers is several voices here: `en_US-libritts-high#p3922`. Each
//! speaker has the loudness of all voices, by a gain that is measured once (Piper's own program raises each sentence to full
//! scale, which makes quiet words loud).
//! Near-silence at both ends is cut to 20 ms, and punctuation makes the pause, as with flite.
//!
//! A phoneme that the voice has no id for is left out and counted, as Piper does it; the log names each once.

mod ids;
mod voice;

use super::TtsConfig;
use super::neural::{self, Failure, Family, Item, ModelRun};
use super::phonemes::Phonemizer;
use antiphon_engine_api::tts::{Repeats, SpeechRequest, Tts, TtsError, Voice};
use antiphon_inference::onnx::{Kind, Model, ModelOptions, OnnxConfig, Port, Provider, Runtime, Signature, Tensor};
use antiphon_types::SampleRate;
use ids::MissingPhonemes;
use std::path::Path;
use std::sync::Arc;
use tokio_util::sync::CancellationToken;
use voice::{Source, VoiceFile};

/// Piper's `export_onnx.py`. The output's rank differs between its versions, so only the inputs identify the family.
static SIGNATURE: Signature = Signature {
    family: "Piper voice",
    inputs: &[
        Port::new("input", &[Kind::I64], 2),
        Port::new("input_lengths", &[Kind::I64], 1),
        Port::new("scales", &[Kind::F32, Kind::F16], 1),
        Port::new("sid", &[Kind::I64], 1).optional(),
    ],
    outputs: &[],
};

/// The port: replicas of the voice. `config.model` is the `.onnx` file or the folder it lies in, the `.onnx.json` lies beside
/// it. Blocks for a second or so. [`TtsError::Unavailable`] says what is missing or wrong: the model, its description, ONNX
/// Runtime, espeak-ng or the voice's name.
pub fn start(config: &TtsConfig, onnx: &OnnxConfig) -> Result<Arc<dyn Tts>, TtsError> {
    let own = config.clone();
    neural::serve("piper", config, onnx, move |onnx| Piper::open(&own, onnx))
}

/// One replica of a voice.
struct Piper {
    file: VoiceFile,
    model: Model,
    /// `None` for voices that read letters.
    phonemizer: Option<Phonemizer>,
    voices: Vec<Voice>,
    missing: MissingPhonemes,
}

impl Piper {
    fn open(config: &TtsConfig, onnx: &OnnxConfig) -> Result<Self, TtsError> {
        let path = neural::model_file(&config.model, "a Piper voice")?;
        let mut file = VoiceFile::beside(&path)?;
        file.scales = file.scales.with(config);
        let voices = voices(&path, &file, config.chosen_voice())?;
        let phonemizer = match &file.source {
            Source::Espeak(tag) => Some(Phonemizer::open(tag, false)?),
            Source::Letters => None,
        };
        let runtime = Runtime::open(onnx).map_err(neural::not_loaded)?;
        let model = runtime.load(&path, &ModelOptions::of(&SIGNATURE)).map_err(neural::not_loaded)?;
        if !file.speakers.is_empty() && model.input("sid").is_none() {
            let n = file.speakers.len();
            let text = format!(
                "the model {} has one speaker and its .onnx.json {n}: they do not belong together",
                path.display()
            );
            return Err(TtsError::Unavailable(text));
        }
        Ok(Self { file, model, phonemizer, voices, missing: MissingPhonemes::new() })
    }

    /// The speaker a request means: the default voice's where it names none.
    fn speaker(&self, voice: &str) -> i64 {
        let find = |id: &str| {
            let name = id.rsplit_once('#')?.1;
            self.voices.iter().any(|voice| voice.id == id).then_some(())?;
            self.file.speakers.iter().find(|(known, _)| known == name).map(|(_, speaker)| *speaker)
        };
        find(voice).or_else(|| find(&self.voices[0].id)).unwrap_or_default()
    }
}

impl Family for Piper {
    const LONGEST: usize = ids::MAX_PHONEMES;

    fn voices(&self) -> &[Voice] {
        &self.voices
    }

    fn rate(&self) -> SampleRate {
        self.file.rate
    }

    fn read(&mut self, request: &SpeechRequest) -> Result<Vec<ModelRun>, TtsError> {
        let known = self.missing.len();
        let utterances = match &self.phonemizer {
            Some(phonemizer) => ids::utterances(&self.file, &phonemizer.clauses(&request.text)?, &mut self.missing),
            None => ids::of_letters(&self.file, &request.text, &mut self.missing),
        };
        if self.missing.len() > known {
            let missing: String = self.missing.keys().collect();
            tracing::warn!(voice = self.voices[0].id, missing, "the voice has no sound for these; they are left out");
        }
        Ok(utterances)
    }

    /// A VITS model draws two noises, for the lengths of phonemes and for the sound, and multiplies each by its scale.
    fn repeats(&self) -> Repeats {
        match (self.file.scales.noise == 0.0, self.file.scales.width == 0.0) {
            (true, true) => Repeats::Exactly,
            (false, true) => Repeats::InTime,
            (_, false) => Repeats::Never,
        }
    }

    fn sample(&self, n_phonemes: usize) -> Vec<i64> {
        ids::sample(&self.file.ids, n_phonemes)
    }

    fn run(&self, items: &[Item<'_>], speed: f32, cancel: &CancellationToken) -> Result<Vec<Vec<f32>>, Failure> {
        let n = items.len();
        let longest = neural::longest(items);
        let ids = neural::padded(items, longest);
        let lengths: Vec<i64> = items.iter().map(|item| item.ids.len() as i64).collect();
        let speakers: Vec<i64> = items.iter().map(|item| self.speaker(item.voice)).collect();
        let scales = &self.file.scales;
        let scales = [scales.noise, scales.length / speed, scales.width];
        let mut inputs = vec![
            ("input", Tensor::i64([n, longest], &ids)),
            ("input_lengths", Tensor::i64([n], &lengths)),
            ("scales", Tensor::f32([3], &scales)),
        ];
        if self.model.input("sid").is_some() {
            inputs.push(("sid", Tensor::i64([n], &speakers)));
        }
        neural::sounds(self.model.run(&inputs, cancel)?, n)
    }

    fn provider(&self) -> Provider {
        self.model.provider()
    }

    fn runs_on(&self) -> antiphon_types::RunsOn {
        self.model.runs_on()
    }

    fn batches(&self) -> bool {
        neural::gives_lengths(&self.model, "input")
    }
}

/// The voices of a model: its name, or one for each speaker. The chosen one comes first.
fn voices(path: &Path, file: &VoiceFile, chosen: Option<&str>) -> Result<Vec<Voice>, TtsError> {
    let model = path.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default();
    let language = file.language.clone();
    let mut voices = vec![Voice { id: model.clone(), name: model.clone(), language: language.clone() }];
    if !file.speakers.is_empty() {
        let each = |(speaker, _): &(String, i64)| Voice {
            id: format!("{model}#{speaker}"),
            name: format!("{model}, {speaker}"),
            language: language.clone(),
        };
        voices = file.speakers.iter().map(each).collect();
    }
    let Some(chosen) = chosen else {
        return Ok(voices);
    };
    let Some(first) = voices.iter().position(|voice| voice.id == chosen) else {
        let ids: Vec<_> = voices.iter().map(|voice| voice.id.as_str()).collect();
        let text =
            format!("there is no voice {chosen:?} in this model; it has {}", antiphon_engine_api::tts::listed(&ids));
        return Err(TtsError::Unavailable(text));
    };
    voices[..=first].rotate_right(1);
    Ok(voices)
}

#[cfg(test)]
mod tests;
