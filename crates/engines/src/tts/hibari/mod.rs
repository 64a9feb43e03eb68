//! The `hibari` engine: a small English voice by ONNX Runtime on the processor, at 24 kHz.
//!
//! hibari (hibari-tts 0.2.1, Apache-2.0) was distilled from Kokoro-82M's voice `af_heart` and reads the same alphabet. It brings
//! its own way from text to phonemes ([`misaki`]); its graph gives spectra, which [`synthesis`] makes sound of. A sentence is one
//! run on one thread, of about a hundredth of its sound's length; so one replica serves all listeners, a sentence of each in turn,
//! ordered by what each has left to hear. A cancel ends the run at its next operator.
//!
//! The noise in the sound is pseudorandom: two runs of the same text differ.

mod files;
mod functions;
mod synthesis;

use super::TtsConfig;
use super::alphabet::{MAX_TOKENS, PAD};
use super::misaki::{self, Dictionaries, Reader};
use super::neural::{self, Failure, Family, Item, ModelRun};
use super::phonemes::{Border, pieces};
use antiphon_engine_api::tts::{SpeechRequest, Tts, TtsError, Voice};
use antiphon_inference::onnx::{Kind, Model, ModelOptions, OnnxConfig, OnnxError, Outputs, Port, Provider, Runtime};
use antiphon_inference::onnx::{Signature, Tensor};
use antiphon_types::{RunsOn, SampleRate};
use std::cell::RefCell;
use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use synthesis::{Noise, RandomNoise, Spectra, Synthesizer};
use tokio_util::sync::CancellationToken;

/// Of every hibari.
pub const RATE: SampleRate = SampleRate::HZ_24000;

/// The voice of the published graph.
const HEART: &str = "heart";
const IDS: &str = "ids";
const SPEED: &str = "speed";
const SPECTRA: [&str; 5] = ["lh", "theta", "ln", "lr", "phi"];
const PITCH: &str = "f0";
const SPECTRUM: &[Kind] = &[Kind::F32];
static SIGNATURE: Signature = Signature {
    family: "hibari model",
    inputs: &[Port::new(IDS, &[Kind::I64], 2), Port::new(SPEED, &[Kind::F32], 1)],
    outputs: &[
        Port::new(SPECTRA[0], SPECTRUM, 3),
        Port::new(SPECTRA[1], SPECTRUM, 3),
        Port::new(SPECTRA[2], SPECTRUM, 3),
        Port::new(SPECTRA[3], SPECTRUM, 3),
        Port::new(SPECTRA[4], SPECTRUM, 3),
        Port::new(PITCH, SPECTRUM, 2),
    ],
};

/// Ids in one run, without the pads. The package cuts there too; it is some 25 s of speech.
const LONGEST: usize = 400;
const _: () = assert!(LONGEST <= MAX_TOKENS);

/// Starts the port: one replica unless `tts.replicas` asks for more. `config.model` is the folder of hibari's files or
/// the `.onnx` file in it. Blocks for some 300 ms.
///
/// # Errors
/// [`TtsError::Unavailable`] with what is missing or wrong.
pub fn start(config: &TtsConfig, onnx: &OnnxConfig) -> Result<Arc<dyn Tts>, TtsError> {
    let path = files::graph(&config.model)?;
    let voice = voice_of(&path);
    if let Some(chosen) = config.chosen_voice().filter(|chosen| *chosen != voice.id) {
        let why = format!("tts.voice = {chosen:?}: this model has the voice {:?} only", voice.id);
        return Err(TtsError::Unavailable(why));
    }
    let shared = Arc::new(HibariData::open(folder_of(&path))?);
    let make = move |onnx: &OnnxConfig| {
        let noise = Box::new(RandomNoise::seeded(rand::random()));
        Hibari::open(&path, onnx, shared.clone(), noise)
    };
    let replicas = if config.replicas == 0 { 1 } else { config.replicas };
    neural::serve("hibari", &TtsConfig { replicas, ..config.clone() }, onnx, make)
}

/// What all replicas have in common.
struct HibariData {
    dictionaries: Arc<Dictionaries>,
    vocabulary: HashMap<char, i64>,
}

impl HibariData {
    fn open(folder: &Path) -> Result<Self, TtsError> {
        let vocabulary = misaki::json(folder, files::VOCABULARY)?;
        Ok(Self { dictionaries: Arc::new(Dictionaries::open(folder)?), vocabulary })
    }
}

/// One replica.
struct Hibari {
    model: Model,
    voices: Vec<Voice>,
    shared: Arc<HibariData>,
    reader: Reader,
    sound: RefCell<SoundMaker>,
}

struct SoundMaker {
    synthesizer: Synthesizer,
    noise: Box<dyn Noise>,
}

impl Hibari {
    fn open(path: &Path, onnx: &OnnxConfig, shared: Arc<HibariData>, noise: Box<dyn Noise>) -> Result<Self, TtsError> {
        let runtime = Runtime::open(onnx).map_err(neural::not_loaded)?;
        // A graph of 8 MB gains nothing on a GPU, and little on several cores.
        let options = ModelOptions { signature: Some(&SIGNATURE), intra_threads: Some(1), on_cpu: true };
        let model = runtime.load(path, &options).map_err(neural::not_loaded)?;
        let reader = Reader::open(folder_of(path), &runtime, shared.dictionaries.clone())?;
        let sound = RefCell::new(SoundMaker { synthesizer: Synthesizer::new(), noise });
        Ok(Self { model, voices: vec![voice_of(path)], shared, reader, sound })
    }

    /// The ids of phonemes; what the vocabulary lacks is left out.
    fn ids(&self, phonemes: &str) -> Vec<i64> {
        phonemes.chars().filter_map(|phoneme| self.shared.vocabulary.get(&phoneme).copied()).collect()
    }

    /// The runs of one sentence's ids.
    fn runs(&self, ids: &[i64], pause: Duration) -> Vec<ModelRun> {
        let id = |phoneme: char| self.shared.vocabulary.get(&phoneme).copied();
        let space = id(' ');
        let marks: Vec<i64> = ";:,.!?—…".chars().filter_map(id).collect();
        let border = |here: i64| match here {
            here if marks.contains(&here) => Border::Clause,
            here if Some(here) == space => Border::Word,
            _ => Border::None,
        };
        let trimmed = |piece: Vec<i64>| {
            let first = piece.iter().position(|here| Some(*here) != space)?;
            let last = piece.iter().rposition(|here| Some(*here) != space)?;
            Some(piece[first..=last].to_vec())
        };
        let pieces: Vec<_> = pieces(ids, LONGEST, border).into_iter().filter_map(trimmed).collect();
        let n = pieces.len();
        let framed = |(place, piece): (usize, Vec<i64>)| {
            let ids = [&[PAD], piece.as_slice(), &[PAD]].concat();
            ModelRun { ids, pause: if place + 1 == n { pause } else { Duration::ZERO } }
        };
        pieces.into_iter().enumerate().map(framed).collect()
    }

    fn speak(&self, ids: &[i64], speed: f32, cancel: &CancellationToken) -> Result<Vec<f32>, OnnxError> {
        let speed = [speed];
        let inputs = [(IDS, Tensor::i64([1, ids.len()], ids)), (SPEED, Tensor::f32([1], &speed))];
        let outputs = self.model.run(&inputs, cancel)?;
        let spectra = spectra(&outputs)?;
        if !spectra.is_whole() {
            let text = format!("spectra of other lengths than {} frames", spectra.pitch.len());
            return Err(OnnxError::Output(text));
        }
        let mut sound = self.sound.borrow_mut();
        let SoundMaker { synthesizer, noise } = &mut *sound;
        Ok(synthesizer.sound(&spectra, noise.as_mut()))
    }
}

fn spectra(outputs: &Outputs) -> Result<Spectra<'_>, OnnxError> {
    let part = |name| outputs.named(name)?.f32();
    let [harmonic, rotation, noise, free, phase] = SPECTRA;
    Ok(Spectra {
        harmonic: part(harmonic)?,
        rotation: part(rotation)?,
        noise: part(noise)?,
        free: part(free)?,
        phase: part(phase)?,
        pitch: part(PITCH)?,
    })
}

impl Family for Hibari {
    const LONGEST: usize = LONGEST;

    fn voices(&self) -> &[Voice] {
        &self.voices
    }

    fn rate(&self) -> SampleRate {
        RATE
    }

    fn read(&mut self, request: &SpeechRequest) -> Result<Vec<ModelRun>, TtsError> {
        let mut runs = Vec::new();
        for sentence in self.reader.sentences(&request.text)? {
            runs.extend(self.runs(&self.ids(&sentence.phonemes), neural::pause_after(sentence.mark)));
        }
        Ok(runs)
    }

    fn sample(&self, n_phonemes: usize) -> Vec<i64> {
        let letters = self.ids("həlˈO wˈɜɹld ").into_iter().cycle().take(n_phonemes);
        std::iter::once(PAD).chain(letters).chain([PAD]).collect()
    }

    fn run(&self, items: &[Item<'_>], speed: f32, cancel: &CancellationToken) -> Result<Vec<Vec<f32>>, Failure> {
        items.iter().map(|item| self.speak(item.ids, speed, cancel).map_err(Failure::from)).collect()
    }

    fn provider(&self) -> Provider {
        self.model.provider()
    }

    fn runs_on(&self) -> RunsOn {
        self.model.runs_on()
    }

    /// One text a run.
    fn batches(&self) -> bool {
        false
    }

    fn takes_turns(&self) -> bool {
        true
    }
}

/// The only voice of a graph: that of the published one, or the file's name.
fn voice_of(path: &Path) -> Voice {
    let name = path.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default();
    let id = if path.file_name().is_some_and(|name| name == files::GRAPH) { HEART.to_owned() } else { name };
    Voice { name: id.clone(), language: "en-US".into(), id }
}

fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

#[cfg(test)]
mod tests;
