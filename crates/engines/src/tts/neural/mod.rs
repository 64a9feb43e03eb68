//! Voice families on ONNX, as engines: what each of them defines ([`Family`]), and what they share.
//!
//! A family (`piper`, `kokoro`) reads a chunk into [`ModelRun`]s and runs its model on them; [`Neural`] makes engines of
//! that, which give each utterance as soon as it is made: one chunk at a time ([`TtsEngine`]), or several in one run
//! (`batch`). [`serve`] decides between the two and puts the one that fits behind the port. It knows no model and no phonemes.

mod batch;
mod files;
mod sound;
mod warm;

pub(super) use batch::serve;
pub(super) use files::model_file;
pub(super) use sound::pause_after;

use super::TtsEngine;
use antiphon_engine_api::tts::{Repeats, SpeechRequest, TtsError, Voice};
use antiphon_inference::onnx::{Model, OnnxError, Outputs, Provider};
use antiphon_types::{Pcm, RunsOn, SampleRate};
use std::ops::ControlFlow;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// One replica of a family's model, with what is needed to read for it.
pub(super) trait Family: Send + 'static {
    /// Phonemes in one utterance at most.
    const LONGEST: usize;

    /// The voices, the default one first.
    fn voices(&self) -> &[Voice];

    /// Of all its sound.
    fn rate(&self) -> SampleRate;

    /// What the model speaks one after the other. Blocks for less than a millisecond a sentence.
    fn read(&mut self, request: &SpeechRequest) -> Result<Vec<ModelRun>, TtsError>;

    /// The ids of an utterance of that many phonemes, for warm-up runs.
    fn sample(&self, n_phonemes: usize) -> Vec<i64>;

    /// The speed that the model speaks at where `asked` is requested: some take integers only.
    fn speed(&self, asked: f32) -> f32 {
        asked
    }

    /// Runs the model once and gives the sound of each item, full scale at 1.0. Several items only where it
    /// [`batches`](Self::batches); `speed` is one that it speaks at. Blocks for as long as that takes; the token ends it.
    fn run(&self, items: &[Item<'_>], speed: f32, cancel: &CancellationToken) -> Result<Vec<Vec<f32>>, Failure>;

    /// What the model runs on.
    fn provider(&self) -> Provider;

    /// What a run keeps busy.
    fn runs_on(&self) -> RunsOn;

    /// How far a run that speaks one item alone gives the same sound each time.
    fn repeats(&self) -> Repeats {
        Repeats::Never
    }

    /// Whether the model takes several items and gives the length of each.
    fn batches(&self) -> bool;
}

/// The input of one run.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct ModelRun {
    /// The model's ids.
    pub(super) ids: Vec<i64>,
    /// The pause behind it, at speed 1.
    pub(super) pause: Duration,
}

/// An utterance in a run.
#[derive(Clone, Copy, Debug)]
pub(super) struct Item<'a> {
    /// The model's ids.
    pub(super) ids: &'a [i64],
    /// As the request names it.
    pub(super) voice: &'a str,
}

/// Why a run gave no sound.
#[derive(Debug)]
pub(super) enum Failure {
    /// It was cancelled.
    Cancelled,
    /// It failed.
    Failed(TtsError),
}

impl From<OnnxError> for Failure {
    fn from(error: OnnxError) -> Self {
        match error {
            OnnxError::Cancelled => Self::Cancelled,
            error => Self::Failed(TtsError::Engine { message: error.to_string(), source: Some(Box::new(error)) }),
        }
    }
}

/// A family's replica as an engine.
pub(super) struct Neural<F>(pub(super) F);

impl<F: Family> Neural<F> {
    /// The sound of each item, in one run.
    fn speak(&self, items: &[Item<'_>], speed: f32, cancel: &CancellationToken) -> Result<Vec<Vec<f32>>, Failure> {
        let sounds = self.0.run(items, speed, cancel)?;
        if sounds.len() != items.len() {
            let message = format!("the model gave {} sounds for {} texts", sounds.len(), items.len());
            return Err(Failure::Failed(TtsError::Engine { message, source: None }));
        }
        Ok(sounds)
    }
}

impl<F: Family> TtsEngine for Neural<F> {
    fn voices(&self) -> &[Voice] {
        self.0.voices()
    }

    fn repeats(&self, _: &str) -> Repeats {
        self.0.repeats()
    }

    fn runs_on(&self) -> RunsOn {
        self.0.runs_on()
    }

    fn synthesize(
        &mut self,
        request: &SpeechRequest,
        cancel: &CancellationToken,
        sink: &mut dyn FnMut(Pcm) -> ControlFlow<()>,
    ) -> Result<(), TtsError> {
        let (speed, rate) = (self.0.speed(speed(request.speed)), self.0.rate());
        for utterance in self.0.read(request)? {
            let item = Item { ids: &utterance.ids, voice: &request.voice };
            let sounds = match self.speak(&[item], speed, cancel) {
                Ok(sounds) => sounds,
                Err(Failure::Cancelled) => return Ok(()),
                Err(Failure::Failed(error)) => return Err(error),
            };
            let samples = sound::samples(&sounds.concat(), rate, utterance.pause.div_f32(speed));
            for piece in sound::pieces(&samples, rate, sound::PIECE_MS) {
                if cancel.is_cancelled() || sink(piece).is_break() {
                    return Ok(());
                }
            }
        }
        Ok(())
    }
}

/// A request's speed in the range the port names, in hundredths; 1.0 where it is no number.
fn speed(asked: f32) -> f32 {
    if asked.is_finite() { (asked.clamp(0.25, 4.0) * 100.0).round() / 100.0 } else { 1.0 }
}

/// The length of the longest item.
pub(super) fn longest(items: &[Item<'_>]) -> usize {
    items.iter().map(|item| item.ids.len()).max().unwrap_or_default()
}

/// The ids of all items, `[n, longest]`, zeros behind the shorter ones.
pub(super) fn padded(items: &[Item<'_>], longest: usize) -> Vec<i64> {
    let row = |item: &Item<'_>| item.ids.iter().copied().chain(std::iter::repeat(0)).take(longest).collect::<Vec<_>>();
    items.iter().flat_map(row).collect()
}

/// Whether a model takes several items as `ids` at once, and says how long the sound of each is.
pub(super) fn gives_lengths(model: &Model, ids: &str) -> bool {
    let many = model.input(ids).is_some_and(|slot| slot.shape.first() == Some(&None));
    many && model.outputs().iter().any(|slot| slot.name == LENGTHS)
}

/// The output that says how long each item's sound is, in samples.
const LENGTHS: &str = "lengths";

/// The sound of each of `n` items: the model's first output, each row as long as its `lengths` say, where it has them.
pub(super) fn sounds(outputs: Outputs, n: usize) -> Result<Vec<Vec<f32>>, Failure> {
    let Ok(lengths) = outputs.named(LENGTHS) else {
        return Ok(vec![outputs.into_f32()?]);
    };
    Ok(rows(outputs.at(0)?.f32()?, lengths.i64()?, n)?)
}

/// `n` rows of one size, each cut to its length.
fn rows(sound: &[f32], lengths: &[i64], n: usize) -> Result<Vec<Vec<f32>>, OnnxError> {
    let row = sound.len() / n.max(1);
    if lengths.len() != n || row * n != sound.len() {
        let text = format!("{} samples and {} lengths for {n} texts", sound.len(), lengths.len());
        return Err(OnnxError::Output(text));
    }
    let cut = |(i, length): (usize, &i64)| {
        let length = usize::try_from(*length).unwrap_or_default().min(row);
        sound[i * row..][..length].to_vec()
    };
    Ok(lengths.iter().enumerate().map(cut).collect())
}

/// A model that cannot be loaded, as the port's error.
pub(super) fn not_loaded(error: OnnxError) -> TtsError {
    TtsError::Unavailable(error.to_string())
}

#[cfg(test)]
mod tests;
#[cfg(test)]
pub(super) mod watched;
