//! The `piper` engine: VITS voices as Piper publishes them, an `.onnx` model and its `.onnx.json`, by ONNX Runtime.
//!
//! Made by `engines`, one replica for each lane, and driven by [`crate::tts::local`]. Text becomes phonemes by espeak-ng,
//! phonemes become ids by the voice's own table, and each sentence is one run of the model: the first sentence sounds while
//! the next is made. Within a sentence a VITS model gives nothing until it has all; a cancel ends its run at the next
//! operator. The model tells no length for each text of a batch, so this family uses replicas instead of batches.
//!
//! The rate is the voice's own. A voice with several speakers is several voices here: `en_US-libritts-high#p3922`. The
//! model's level is kept as it is (Piper's own program raises each sentence to full scale, which makes quiet words loud).
//! Near-silence at both ends is cut to 20 ms, and punctuation makes the pause, as with flite.
//!
//! A phoneme that the voice has no id for is left out and counted, as Piper does it; the log names each once.

mod ids;
mod voice;

use super::neural::{self, Player, Utterance};
use super::phonemes::Phonemizer;
use super::{SpeechRequest, TtsEngine, TtsError, Voice};
use crate::onnx::{Kind, Model, ModelOptions, OnnxConfig, Port, Runtime, Signature, Tensor};
use crate::units::Pcm;
use ids::Missing;
use std::ops::ControlFlow;
use tokio_util::sync::CancellationToken;
use voice::{Scales, Source, VoiceFile};

/// Piper's `export_onnx.py`. The output's rank differs between its versions, so only the inputs tell the family.
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

/// Spoken once while the engine is made: the first real chunk does not pay for it, and a model that cannot run is refused.
const WARM_UP: &str = "One two three.";

/// What a replica is made of.
#[derive(Clone, Debug)]
pub struct PiperOptions {
    /// `tts.model`: the voice's `.onnx` file, or the folder it lies in.
    pub model: String,
    /// The voice sessions begin with; `None`: the model's first speaker.
    pub voice: Option<String>,
    /// The `[onnx]` section.
    pub onnx: OnnxConfig,
}

/// One replica of a voice.
pub struct Piper {
    file: VoiceFile,
    model: Model,
    /// `None` for voices that read letters.
    phonemizer: Option<Phonemizer>,
    voices: Vec<Voice>,
    missing: Missing,
}

impl Piper {
    /// Loads the voice and speaks a word with it. Blocks for a second or so. [`TtsError::Unavailable`] says what is
    /// missing or wrong: the model, its description, ONNX Runtime, espeak-ng or the voice's name.
    pub fn open(options: &PiperOptions) -> Result<Self, TtsError> {
        let path = neural::model_file(&options.model, "a Piper voice")?;
        let file = VoiceFile::beside(&path)?;
        let voices = voices(&path, &file, options.voice.as_deref())?;
        let phonemizer = match &file.source {
            Source::Espeak(tag) => Some(Phonemizer::open(tag, false)?),
            Source::Letters => None,
        };
        let runtime = Runtime::open(&options.onnx).map_err(neural::not_loaded)?;
        let model = runtime.load(&path, &ModelOptions::of(&SIGNATURE)).map_err(neural::not_loaded)?;
        if !file.speakers.is_empty() && model.input("sid").is_none() {
            let n = file.speakers.len();
            let text = format!(
                "the model {} has one speaker and its .onnx.json {n}: they do not belong together",
                path.display()
            );
            return Err(TtsError::Unavailable(text));
        }
        let mut engine = Self { file, model, phonemizer, voices, missing: Missing::new() };
        engine.warm_up()?;
        Ok(engine)
    }

    fn warm_up(&mut self) -> Result<(), TtsError> {
        let request = SpeechRequest { text: WARM_UP.into(), voice: String::new(), speed: 1.0, unplayed: None };
        let made = self.synthesize(&request, &CancellationToken::new(), &mut |_| ControlFlow::Continue(()));
        made.map_err(|error| TtsError::Unavailable(format!("the voice does not speak: {error}")))
    }

    /// What the model speaks one after the other.
    fn read(&mut self, text: &str) -> Result<Vec<Utterance>, TtsError> {
        let known = self.missing.len();
        let utterances = match &self.phonemizer {
            Some(phonemizer) => ids::utterances(&self.file, &phonemizer.clauses(text)?, &mut self.missing),
            None => ids::of_letters(&self.file, text, &mut self.missing),
        };
        if self.missing.len() > known {
            let missing: String = self.missing.keys().collect();
            tracing::warn!(voice = self.voices[0].id, missing, "the voice has no sound for these; they are left out");
        }
        Ok(utterances)
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

    /// One run. `None` when it was cancelled.
    fn run(
        &self,
        ids: &[i64],
        speaker: i64,
        scales: Scales,
        cancel: &CancellationToken,
    ) -> Result<Option<Vec<f32>>, TtsError> {
        let (lengths, sid) = ([ids.len() as i64], [speaker]);
        let scales = [scales.noise, scales.length, scales.width];
        let mut inputs = vec![
            ("input", Tensor::i64([1, ids.len()], ids)),
            ("input_lengths", Tensor::i64([1], &lengths)),
            ("scales", Tensor::f32([3], &scales)),
        ];
        if self.model.input("sid").is_some() {
            inputs.push(("sid", Tensor::i64([1], &sid)));
        }
        neural::sound(self.model.run(&inputs, cancel).and_then(|outputs| outputs.into_f32()))
    }
}

impl TtsEngine for Piper {
    fn voices(&self) -> &[Voice] {
        &self.voices
    }

    fn synthesize(
        &mut self,
        request: &SpeechRequest,
        cancel: &CancellationToken,
        sink: &mut dyn FnMut(Pcm) -> ControlFlow<()>,
    ) -> Result<(), TtsError> {
        let speed = neural::speed(request.speed);
        let speaker = self.speaker(&request.voice);
        let scales = Scales { length: self.file.scales.length / speed, ..self.file.scales };
        let utterances = self.read(&request.text)?;
        let mut player = Player { rate: self.file.rate, cancel, sink };
        for utterance in utterances {
            let Some(sound) = self.run(&utterance.ids, speaker, scales, cancel)? else {
                return Ok(());
            };
            if player.play(&sound, utterance.pause.div_f32(speed)).is_break() {
                return Ok(());
            }
        }
        Ok(())
    }
}

/// The voices of a model: its name, or one for each speaker. The chosen one comes first.
fn voices(path: &std::path::Path, file: &VoiceFile, chosen: Option<&str>) -> Result<Vec<Voice>, TtsError> {
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
        let text = format!("there is no voice {chosen:?} in this model; it has {}", super::listed(&ids));
        return Err(TtsError::Unavailable(text));
    };
    voices[..=first].rotate_right(1);
    Ok(voices)
}

#[cfg(test)]
mod tests;
