//! Voice families on ONNX, as engines: what each of them defines ([`Family`]), and what they share.
//!
//! A family (`piper`, `kokoro`, `hibari`) reads a chunk into [`ModelRun`]s and runs its model on them; [`Neural`] makes engines of
//! that, which give each utterance as soon as it is made: one chunk at a time ([`TtsEngine`]), or several in one run
//! (`batch`). [`serve`] decides between the two and puts the one that fits behind the port. It knows no model and no phonemes.

mod batch;
#[cfg(any(feature = "piper", feature = "kokoro"))]
mod files;
mod levels;
#[cfg(any(feature = "piper", feature = "kokoro"))]
mod rows;
mod sound;
mod warm;

pub(super) use batch::serve;
#[cfg(any(feature = "piper", feature = "kokoro"))]
pub(super) use files::model_file;
#[cfg(any(feature = "piper", feature = "kokoro"))]
pub(super) use rows::{gives_lengths, longest, padded, sounds};
#[cfg(test)]
pub(super) use sound::fade;
pub(super) use sound::pause_after;

use self::levels::Levels;
use self::sound::Shape;
use super::TtsEngine;
use antiphon_engine_api::tts::{Repeats, SpeechRequest, TtsError, Voice};
use antiphon_inference::onnx::{OnnxError, Provider};
use antiphon_types::{Pcm, RunsOn, SampleRate};
use std::ops::ControlFlow;
use std::sync::Arc;
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

    /// The speed that the model speaks at where `asked` is requested; the rest of the way is made by stretching its sound. Models
    /// that round the lengths of phonemes, as Piper and hibari do, miss another speed than their own by up to a tenth.
    fn speed(&self, _asked: f32) -> f32 {
        1.0
    }

    /// Runs the model once and gives the sound of each item, full scale at 1.0. Several items only where it
    /// [`batches`](Self::batches); `speed` is one that it speaks at. Blocks for as long as that takes; the token ends it.
    fn run(&self, items: &[Item<'_>], speed: f32, cancel: &CancellationToken) -> Result<Vec<Vec<f32>>, Failure>;

    /// What the model runs on.
    fn provider(&self) -> Provider;

    /// What a run keeps busy.
    fn runs_on(&self) -> RunsOn;

    /// The loudness that `voice` speaks at, in LUFS; `None`: it is measured before the voice speaks for the first time.
    fn loudness_lufs(&self, _voice: &str) -> Option<f32> {
        None
    }

    /// The voices and the shares of a mixture that a request names and that is no voice of the list; the shares add up
    /// to 1. `None`: it names none.
    fn mixture(&self, _requested: &str) -> Option<Vec<(String, f32)>> {
        None
    }

    /// How far a run that speaks one item alone gives the same sound each time.
    fn repeats(&self) -> Repeats {
        Repeats::Never
    }

    /// Whether the model takes several items and gives the length of each.
    fn batches(&self) -> bool;

    /// Whether runs are so short that listeners take turns on a replica, an utterance each, even where no two share a run.
    fn takes_turns(&self) -> bool {
        false
    }
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
    #[cfg_attr(not(any(feature = "piper", feature = "kokoro")), expect(dead_code, reason = "hibari has one voice"))]
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
pub(super) struct Neural<F> {
    pub(super) family: F,
    /// Those of all replicas; `None`: the sound is as loud as the model makes it.
    levels: Option<Arc<Levels>>,
}

impl<F: Family> Neural<F> {
    /// The sound of each item, in one run.
    fn speak(&self, items: &[Item<'_>], speed: f32, cancel: &CancellationToken) -> Result<Vec<Vec<f32>>, Failure> {
        let sounds = self.family.run(items, speed, cancel)?;
        if sounds.len() != items.len() {
            let message = format!("the model gave {} sounds for {} texts", sounds.len(), items.len());
            return Err(Failure::Failed(TtsError::Engine { message, source: None }));
        }
        Ok(sounds)
    }
}

impl<F: Family> TtsEngine for Neural<F> {
    fn voices(&self) -> &[Voice] {
        self.family.voices()
    }

    fn repeats(&self, _: &str) -> Repeats {
        self.family.repeats()
    }

    fn runs_on(&self) -> RunsOn {
        self.family.runs_on()
    }

    fn synthesize(
        &mut self,
        request: &SpeechRequest,
        cancel: &CancellationToken,
        sink: &mut dyn FnMut(Pcm) -> ControlFlow<()>,
    ) -> Result<(), TtsError> {
        let asked = speed(request.speed);
        let speed = self.family.speed(asked);
        let rate = self.family.rate();
        let level = self.level(&request.voice);
        for utterance in self.family.read(request)? {
            let item = Item { ids: &utterance.ids, voice: &request.voice };
            let sounds = match self.speak(&[item], speed, cancel) {
                Ok(sounds) => sounds,
                Err(Failure::Cancelled) => return Ok(()),
                Err(Failure::Failed(error)) => return Err(error),
            };
            let shape = Shape { rate, level, tempo: asked / speed, pause: utterance.pause.div_f32(asked) };
            let samples = sound::samples(&sounds.concat(), shape);
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

/// A model that cannot be loaded, as the port's error.
pub(super) fn not_loaded(error: OnnxError) -> TtsError {
    TtsError::Unavailable(error.to_string())
}

#[cfg(test)]
mod tests;
#[cfg(test)]
pub(super) mod watched;
