//! The `kokoro` engine: Kokoro-82M by ONNX Runtime, at 24 kHz, with voices that can be mixed.
//!
//! [`KokoroTts`] stands in front of the replicas. Both published exports are supported: the one whose ids are called
//! `input_ids`, and the one where they are `tokens`. American text becomes phonemes by the dictionaries that
//! the model was trained with ([`misaki`]), where they are beside it; other text by espeak-ng, in the model's own letters
//! ([`alphabet`]). At most 510 tokens are one run, more are cut at punctuation or between words. Sound comes when the run is
//! done, in pieces, so that on slow machines a listener who waits gets shorter runs ([`pace`]); a cancel ends the run at its
//! next operator. The published graphs take one text at a time, so they are run as replicas; one that takes several (with an
//! input `input_lengths` and an output `lengths`) is run in batches where the configuration allows it.
//!
//! A voice's first letter is its language: a American, b British English, e Spanish, f French, h Hindi, i Italian, p
//! Brazilian Portuguese; a name without such a beginning is taken for American. Japanese (j) and Chinese (z) voices are left
//! out, for they were trained on phonemes that espeak-ng does not give. A mixture, `af_sky:0.4+af_nicole:0.6`, speaks the
//! language of its first voice.

mod cut;
mod loudness;
mod mix;
mod pace;
mod packs;

use super::TtsConfig;
use super::alphabet::{self, MAX_TOKENS, PAD, Rules};
use super::misaki::{self, Dictionaries, Reader};
use super::neural::{self, Failure, Family, Item, ModelRun};
use super::phonemes::{Mark, Phonemizer, first_piece};
use antiphon_engine_api::tts::{Repeats, SpeechRequest, Tts, TtsError, Voice};
use antiphon_inference::onnx::{Kind, Model, ModelOptions, OnnxConfig, Port, Provider, Runtime, Signature, Tensor};
use antiphon_types::{Pcm, SampleRate, Samples};
use futures_util::future::BoxFuture;
use futures_util::stream::BoxStream;
use pace::{MIN_TOKENS, Pace, Plan};
use packs::{Packs, STYLE};
use std::cell::Cell;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// Between these the model keeps the length that is asked for within 5 %; beyond them its sound is stretched.
const SLOWEST: f32 = 0.7;
/// The same.
const FASTEST: f32 = 1.4;

/// Of every Kokoro.
pub const RATE: SampleRate = SampleRate::HZ_24000;

const SPEED: Port = Port::new("speed", &[Kind::F32, Kind::F16, Kind::I32, Kind::I64], 1);
const STYLE_PORT: Port = Port::new("style", &[Kind::F32, Kind::F16], 2);
/// What an export that takes several texts asks for: the number of ids of each.
const INPUT_LENGTHS: &str = "input_lengths";
/// The export of `onnx-community/Kokoro-82M-v1.0-ONNX` and of later `kokoro-onnx` releases.
static BY_INPUT_IDS: Signature = Signature {
    family: "Kokoro model",
    inputs: &[
        Port::new("input_ids", &[Kind::I64], 2),
        STYLE_PORT,
        SPEED,
        Port::new(INPUT_LENGTHS, &[Kind::I64], 1).optional(),
    ],
    outputs: &[],
};
/// The export of earlier `kokoro-onnx` releases.
static BY_TOKENS: Signature = Signature {
    family: "Kokoro model",
    inputs: &[Port::new("tokens", &[Kind::I64], 2), STYLE_PORT, SPEED],
    outputs: &[],
};

/// The voice that speaks where none is chosen, if it is there: the best of v1.0 by its own list of voices.
const FAVOURITE: &str = "af_heart";

/// The folder of hibari, beside the model's, which has the dictionaries.
const DICTIONARIES: &str = "hibari";

/// Languages by a voice's first letter: BCP-47, espeak-ng's tag, whose rules.
const LANGUAGES: [(char, &str, &str, Rules); 7] = [
    ('a', "en-US", "en-us", Rules::American),
    ('b', "en-GB", "en-gb", Rules::British),
    ('e', "es", "es", Rules::Other),
    ('f', "fr-FR", "fr-fr", Rules::Other),
    ('h', "hi", "hi", Rules::Other),
    ('i', "it", "it", Rules::Other),
    ('p', "pt-BR", "pt-br", Rules::Other),
];

/// The port: replicas, and what they all know of voices.
pub struct KokoroTts {
    tts: Arc<dyn Tts>,
    packs: Arc<Packs>,
}

impl KokoroTts {
    /// Loads the voices once and the model for each replica. `config.model` is the `.onnx` file or the folder it lies in, the
    /// voices lie beside it; the chosen voice may be a mixture. Blocks for a second or so each. [`TtsError::Unavailable`]
    /// says what is missing or wrong.
    pub fn start(config: &TtsConfig, onnx: &OnnxConfig) -> Result<Self, TtsError> {
        let path = neural::model_file(&config.model, "a Kokoro model")?;
        let packs = Arc::new(speakable(Packs::beside(&path)?, &path)?);
        if let Some(voice) = config.chosen_voice() {
            mix::parse(voice, |name| packs.has(name)).map_err(|why| {
                let names: Vec<_> = packs.names().collect();
                TtsError::Unavailable(format!(
                    "tts.voice = {voice:?}: {why}; the voices are {}",
                    antiphon_engine_api::tts::listed(&names)
                ))
            })?;
        }
        let shared = packs.clone();
        let voice = config.chosen_voice().map(str::to_owned);
        let american = American::beside(&path)?;
        if american.is_none() {
            tracing::info!(
                "Kokoro reads American English by espeak-ng: the dictionaries that it was trained with come with hibari \
                 (`make hibari`, or `antiphon models import` of the package hibari-tts)"
            );
        }
        let american = american.map(Arc::new);
        let make =
            move |onnx: &OnnxConfig| Kokoro::open(&path, voice.as_deref(), onnx, shared.clone(), american.as_deref());
        let tts = neural::serve("kokoro", config, onnx, make)?;
        Ok(Self { tts, packs })
    }
}

impl Tts for KokoroTts {
    fn name(&self) -> &str {
        self.tts.name()
    }

    fn warm(&self) -> BoxFuture<'_, Result<(), TtsError>> {
        self.tts.warm()
    }

    fn concurrency(&self) -> usize {
        self.tts.concurrency()
    }

    /// Never: Kokoro's vocoder adds noise to its source, and no graph is examined for whether it draws that by itself.
    fn repeats(&self, request: &SpeechRequest) -> Repeats {
        self.tts.repeats(request)
    }

    fn waiting(&self) -> usize {
        self.tts.waiting()
    }

    fn in_service(&self) -> usize {
        self.tts.in_service()
    }

    fn voices(&self) -> Vec<Voice> {
        self.tts.voices()
    }

    fn check_voice(&self, voice: &str) -> Result<(), String> {
        if mix::is_mix(voice) {
            return mix::parse(voice, |name| self.packs.has(name)).map(drop);
        }
        self.tts.check_voice(voice)
    }

    /// A mixture speaks the language of its first voice.
    fn language(&self, voice: &str) -> String {
        match mix::parse(voice, |name| self.packs.has(name)) {
            Ok(mix) if mix::is_mix(voice) => language(&mix[0].0).0.into(),
            _ => self.tts.language(voice),
        }
    }

    fn speak(&self, request: SpeechRequest) -> BoxStream<'static, Result<Pcm, TtsError>> {
        self.tts.speak(request)
    }

    fn speak_queued(&self, request: SpeechRequest) -> BoxFuture<'static, BoxStream<'static, Result<Pcm, TtsError>>> {
        self.tts.speak_queued(request)
    }
}

/// The voices whose language espeak-ng gives the phonemes of.
fn speakable(mut packs: Packs, model: &Path) -> Result<Packs, TtsError> {
    let silent: Vec<String> =
        packs.names().filter(|name| prefix(name).is_some_and(foreign)).map(str::to_owned).collect();
    if !silent.is_empty() {
        tracing::info!(
            n = silent.len(),
            "Kokoro's Japanese and Chinese voices are left out: espeak-ng cannot read for them"
        );
        packs.retain(|name| !silent.iter().any(|silent| silent == name));
    }
    if packs.names().next().is_none() {
        let text = format!("{} has Japanese and Chinese voices only, which this hub cannot read for", model.display());
        return Err(TtsError::Unavailable(text));
    }
    Ok(packs)
}

/// The language's letter of a name like `af_sky`.
fn prefix(name: &str) -> Option<char> {
    let mut letters = name.chars();
    let language = letters.next()?;
    let sex = letters.next()?;
    let line = letters.next()?;
    ("abefhijpz".contains(language) && "fm".contains(sex) && line == '_').then_some(language)
}

fn foreign(letter: char) -> bool {
    matches!(letter, 'j' | 'z')
}

/// The row of [`LANGUAGES`] a voice speaks.
fn language(name: &str) -> (&'static str, &'static str, Rules) {
    let letter = prefix(name).unwrap_or('a');
    let row = LANGUAGES.iter().find(|row| row.0 == letter).unwrap_or(&LANGUAGES[0]);
    (row.1, row.2, row.3)
}

/// What reads American English, for all replicas.
struct American {
    folder: PathBuf,
    dictionaries: Arc<Dictionaries>,
}

impl American {
    /// Reads the dictionaries in the model's folder or in [`DICTIONARIES`] beside that; `None`: there are none. Blocks for
    /// some 200 ms.
    ///
    /// # Errors
    /// [`TtsError::Unavailable`] names a damaged file.
    fn beside(model: &Path) -> Result<Option<Self>, TtsError> {
        let unavailable = |error| TtsError::Unavailable(format!("{}: {error}", model.display()));
        let model = std::path::absolute(model).map_err(unavailable)?;
        let mut folders = model.ancestors().skip(1);
        let own = folders.next().map(Path::to_owned);
        let beside = folders.next().map(|folder| folder.join(DICTIONARIES));
        let Some(folder) = own.into_iter().chain(beside).find(|folder| misaki::are_in(folder)) else {
            return Ok(None);
        };
        let dictionaries = Arc::new(Dictionaries::open(&folder)?);
        Ok(Some(Self { folder, dictionaries }))
    }
}

/// One replica.
struct Kokoro {
    model: Model,
    /// What its ids are called.
    ids: &'static str,
    packs: Arc<Packs>,
    voices: Vec<Voice>,
    /// `None`: espeak-ng reads American English, too.
    american: Option<Reader>,
    /// By espeak-ng's tag, made when first needed.
    phonemizers: HashMap<&'static str, Phonemizer>,
    /// Letters that have no token, and how often each was left out.
    missing: HashMap<char, u64>,
    /// Of the runs so far.
    pace: Cell<Option<Pace>>,
}

impl Kokoro {
    fn open(
        path: &Path,
        voice: Option<&str>,
        onnx: &OnnxConfig,
        packs: Arc<Packs>,
        american: Option<&American>,
    ) -> Result<Self, TtsError> {
        let runtime = Runtime::open(onnx).map_err(neural::not_loaded)?;
        let model = runtime.load(path, &ModelOptions::default()).map_err(neural::not_loaded)?;
        let (ids, signature) = match model.input("tokens") {
            Some(_) => ("tokens", &BY_TOKENS),
            None => ("input_ids", &BY_INPUT_IDS),
        };
        model.check(signature).map_err(neural::not_loaded)?;
        let voices = voices(&packs, voice);
        let american = american
            .map(|american| Reader::open(&american.folder, &runtime, american.dictionaries.clone()))
            .transpose()?;
        let phonemizers = HashMap::new();
        let missing = HashMap::new();
        let mut made = Self { model, ids, packs, voices, american, phonemizers, missing, pace: Cell::new(None) };
        // That espeak-ng is missing is to be known now.
        let (_, tag, rules) = language(&made.mix("")?[0].0);
        if made.american.is_none() || rules != Rules::American {
            made.phonemizer(tag)?;
        }
        Ok(made)
    }

    /// The voices a request means, with their shares. A name that is none is the default voice; a bad mixture is an error.
    fn mix(&self, voice: &str) -> Result<Vec<(String, f32)>, TtsError> {
        let parse = |text: &str| mix::parse(text, |name| self.packs.has(name));
        if mix::is_mix(voice) {
            return parse(voice).map_err(TtsError::Unavailable);
        }
        let voice = if self.packs.has(voice) { voice } else { &self.voices[0].id };
        parse(voice).map_err(TtsError::Unavailable)
    }

    /// A language's phonemes.
    fn phonemizer(&mut self, tag: &'static str) -> Result<&Phonemizer, TtsError> {
        if !self.phonemizers.contains_key(tag) {
            self.phonemizers.insert(tag, Phonemizer::open(tag, true)?);
        }
        Ok(&self.phonemizers[tag])
    }

    /// A text in Kokoro's letters, and the mark behind it.
    fn written(&mut self, text: &str, tag: &'static str, rules: Rules) -> Result<(String, Option<Mark>), TtsError> {
        if let Some(reader) = self.american.as_ref().filter(|_| rules == Rules::American) {
            let sentences = reader.sentences(text)?;
            let phonemes: Vec<&str> = sentences.iter().map(|sentence| sentence.phonemes.as_str()).collect();
            return Ok((phonemes.join(" "), sentences.last().and_then(|sentence| sentence.mark)));
        }
        let clauses = self.phonemizer(tag)?.clauses(text)?;
        Ok((alphabet::written(rules, &clauses), clauses.last().and_then(|clause| clause.mark)))
    }

    /// The tokens of a text in Kokoro's letters.
    fn tokens(&mut self, written: &str) -> Vec<i64> {
        let mut tokens = Vec::with_capacity(written.len());
        for letter in written.chars() {
            match alphabet::token(letter) {
                Some(token) => tokens.push(token),
                None => {
                    let n = self.missing.entry(letter).or_default();
                    *n += 1;
                    if *n == 1 {
                        tracing::warn!(letter = %letter, "Kokoro has no token for this phoneme; it is left out");
                    }
                }
            }
        }
        tokens
    }
}

impl Family for Kokoro {
    const LONGEST: usize = MAX_TOKENS;

    fn voices(&self) -> &[Voice] {
        &self.voices
    }

    fn rate(&self) -> SampleRate {
        RATE
    }

    fn read(&mut self, request: &SpeechRequest) -> Result<Vec<ModelRun>, TtsError> {
        let mix = self.mix(&request.voice)?;
        let (_, tag, rules) = language(&mix[0].0);
        let (written, mark) = self.written(&request.text, tag, rules)?;
        let tokens = self.tokens(&written);
        let pause = neural::pause_after(mark);
        let plan = request.unplayed.zip(self.pace.get()).map(|(ahead, pace)| pace.plan(ahead));
        Ok(utterances(&tokens, pause, plan))
    }

    fn sample(&self, n_phonemes: usize) -> Vec<i64> {
        let letters = ('a'..='z').filter_map(alphabet::token).cycle().take(n_phonemes);
        std::iter::once(PAD).chain(letters).chain([PAD]).collect()
    }

    fn speed(&self, asked: f32) -> f32 {
        // Some exports take integers only.
        match self.model.input("speed").map(|slot| &slot.kind) {
            Some(Kind::I32 | Kind::I64) => 1.0,
            _ => asked.clamp(SLOWEST, FASTEST),
        }
    }

    fn run(&self, items: &[Item<'_>], speed: f32, cancel: &CancellationToken) -> Result<Vec<Vec<f32>>, Failure> {
        let n = items.len();
        let longest = neural::longest(items);
        let ids = neural::padded(items, longest);
        let lengths: Vec<i64> = items.iter().map(|item| item.ids.len() as i64).collect();
        let mut styles = Vec::with_capacity(n * STYLE);
        for item in items {
            let mix = self.mix(item.voice).map_err(Failure::Failed)?;
            // Without the two pads.
            styles.extend(self.packs.style(&mix, item.ids.len().saturating_sub(2)));
        }
        let as_f32 = [speed];
        let as_i32 = [speed as i32];
        let as_i64 = [speed as i64];
        let speed = match self.model.input("speed").map(|slot| &slot.kind) {
            Some(Kind::I32) => Tensor::i32([1], &as_i32),
            Some(Kind::I64) => Tensor::i64([1], &as_i64),
            _ => Tensor::f32([1], &as_f32),
        };
        let mut inputs = vec![
            (self.ids, Tensor::i64([n, longest], &ids)),
            ("style", Tensor::f32([n, STYLE], &styles)),
            ("speed", speed),
        ];
        if self.model.input(INPUT_LENGTHS).is_some() {
            inputs.push((INPUT_LENGTHS, Tensor::i64([n], &lengths)));
        }
        let begun = Instant::now();
        let sounds = neural::sounds(self.model.run(&inputs, cancel)?, n)?;
        if let [sound] = &sounds[..] {
            let length = Samples(sound.len() as u64).duration(RATE);
            self.pace.set(Some(Pace::measured(self.pace.get(), longest, begun.elapsed(), length)));
        }
        Ok(sounds)
    }

    fn loudness_lufs(&self, voice: &str) -> Option<f32> {
        loudness::lufs(&self.mix(voice).ok()?)
    }

    fn mixture(&self, requested: &str) -> Option<Vec<(String, f32)>> {
        let is_listed = self.voices.iter().any(|voice| voice.id == requested);
        self.mix(requested).ok().filter(|_| mix::is_mix(requested) && !is_listed)
    }

    fn provider(&self) -> Provider {
        self.model.provider()
    }

    fn runs_on(&self) -> antiphon_types::RunsOn {
        self.model.runs_on()
    }

    fn batches(&self) -> bool {
        self.model.input(INPUT_LENGTHS).is_some() && neural::gives_lengths(&self.model, self.ids)
    }
}

/// Tokens between pads, in runs that fit the model, and `plan` where a listener waits; `pause` behind the last.
fn utterances(tokens: &[i64], pause: Duration, plan: Option<Plan>) -> Vec<ModelRun> {
    let space = cut::space();
    let trimmed = |piece: &[i64]| {
        let first = piece.iter().position(|token| *token != space)?;
        let last = piece.iter().rposition(|token| *token != space)?;
        Some(piece[first..=last].to_vec())
    };
    let mut pieces = Vec::new();
    let mut plan = plan;
    let mut rest = tokens;
    while !rest.is_empty() {
        let most = plan.map_or(MAX_TOKENS, |plan| plan.most().min(MAX_TOKENS / cut::LONGER));
        // A stub behind the cut would sound worse than it takes time.
        let fits = rest.len() <= most || rest.len() <= MAX_TOKENS && rest.len() < most + MIN_TOKENS;
        let n = match plan {
            _ if fits => rest.len(),
            Some(_) => cut::first_run(rest, most),
            None => first_piece(rest, most, cut::border),
        };
        let (piece, later) = rest.split_at(n);
        pieces.extend(trimmed(piece));
        if let Some(plan) = &mut plan {
            plan.take(n);
        }
        rest = later;
    }
    let n = pieces.len();
    let framed = |(i, piece): (usize, Vec<i64>)| {
        let ids = [&[PAD], piece.as_slice(), &[PAD]].concat();
        ModelRun { ids, pause: if i + 1 == n { pause } else { Duration::ZERO } }
    };
    pieces.into_iter().enumerate().map(framed).collect()
}

/// The voices, the chosen one first. A mixture that is chosen is a voice of its own.
fn voices(packs: &Packs, chosen: Option<&str>) -> Vec<Voice> {
    let mut ids: Vec<String> = packs.names().map(str::to_owned).collect();
    let first = chosen.unwrap_or(FAVOURITE);
    match ids.iter().position(|id| id == first) {
        Some(first) => ids[..=first].rotate_right(1),
        None if chosen.is_some() => ids.insert(0, first.to_owned()),
        None => {}
    }
    ids.into_iter()
        .map(|id| Voice {
            name: id.clone(),
            language: language(id.split([':', '+']).next().unwrap_or(&id)).0.into(),
            id,
        })
        .collect()
}

#[cfg(test)]
mod tests;
