//! The `smart-turn` engine: smart-turn v3, a small Whisper encoder with a head, by ONNX Runtime.
//!
//! The last 8 s of a turn become a log-mel spectrogram, as Whisper's feature extractor makes it from audio brought to
//! zero mean and variance one; shorter turns have silence in front. The graph takes `input_features`, f32 `[1, 80, 800]`
//! or `[n, 80, 800]`, and its first output is P(turn complete), a number each. One ONNX session serves all streams, on a
//! thread of its own; simultaneous pauses run as one batch where the graph takes batches. A pause costs some
//! 40 ms of one core with the published weights (int8). Where it was measured it did not help (`turn/endpointing.rs`).

use super::query::{MAX_WAITING, Query, query};
use antiphon_audio::mel::{HOP, LogMel};
use antiphon_engine_api::turn::{TurnModel, TurnModelError};
use antiphon_inference::onnx::{Kind, Model, ModelOptions, OnnxConfig, OnnxError, Port, Runtime, Signature, Tensor};
use antiphon_inference::pool::batch::{BatchEngine, BatchScheduler, BatchSettings};
use antiphon_types::Samples;
use futures_util::future::BoxFuture;
use std::path::Path;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

const SPAN: Samples = Samples(8 * 16_000);
const N_MELS: usize = 80;
const N_FRAMES: usize = SPAN.0 as usize / HOP;

static SIGNATURE: Signature = Signature {
    family: "smart-turn v3 model",
    inputs: &[Port::new("input_features", &[Kind::F32, Kind::F16], 3)],
    outputs: &[],
};

/// Pauses of one batch: each is a row of 256 KB.
const MAX_BATCH: usize = 8;

/// See the module. Cheap to clone.
#[derive(Clone)]
pub struct SmartTurn {
    scheduler: BatchScheduler<Query>,
    max_batch: usize,
}

struct Graph {
    model: Model,
    mel: LogMel,
    takes_batches: bool,
}

impl SmartTurn {
    /// Loads the graph and runs it once. Blocks meanwhile. [`TurnModelError::Unavailable`] says what is wrong with the
    /// library or the file.
    pub fn open(path: &Path, onnx: &OnnxConfig) -> Result<Self, TurnModelError> {
        let path = path.to_owned();
        let onnx = onnx.clone();
        let load = move || Graph::load(&path, &onnx);
        let first = load()?;
        let max_batch = if first.takes_batches { MAX_BATCH } else { 1 };
        let settings = BatchSettings { n_replicas: 1, max_batch, max_wait: Duration::ZERO, max_waiting: MAX_WAITING };
        let scheduler = BatchScheduler::start_with("smart-turn", settings, first, move |_| load())?;
        Ok(Self { scheduler, max_batch })
    }
}

impl TurnModel for SmartTurn {
    fn name(&self) -> &str {
        "smart-turn"
    }

    /// One replica, which answers a batch at a time.
    fn concurrency(&self) -> usize {
        self.max_batch
    }

    fn span(&self) -> Samples {
        SPAN
    }

    fn judge(&self, pcm: Vec<i16>) -> BoxFuture<'static, Result<f32, TurnModelError>> {
        query(self.scheduler.clone(), 0, pcm)
    }
}

impl BatchEngine<Query> for Graph {
    fn run(&mut self, batch: &mut Vec<Query>) -> Result<(), String> {
        let pcm: Vec<&[i16]> = batch.iter().map(|query| &query.pcm[..]).collect();
        let answers = match self.judge(&pcm) {
            Ok(answers) => answers.into_iter().map(Ok).collect(),
            // The device or the session may be broken: a new one may work.
            Err(OnnxOrShape::Onnx(error)) if !matches!(error, OnnxError::Inputs { .. }) => {
                return Err(error.to_string());
            }
            Err(error) => batch.iter().map(|_| Err(TurnModelError::Failed(error.to_string()))).collect::<Vec<_>>(),
        };
        for (query, answer) in batch.drain(..).zip(answers) {
            let _ = query.answer.send(answer);
        }
        Ok(())
    }
}

impl Graph {
    /// Loads the graph and runs it once.
    fn load(path: &Path, onnx: &OnnxConfig) -> Result<Self, TurnModelError> {
        let unavailable = |error: OnnxError| TurnModelError::Unavailable(format!("turn.model: {error}"));
        let runtime = Runtime::open(onnx).map_err(unavailable)?;
        let model = runtime.load(path, &ModelOptions::of(&SIGNATURE)).map_err(unavailable)?;
        let shape = model.input("input_features").map(|slot| slot.shape.clone()).unwrap_or_default();
        let fits = |size: Option<&Option<usize>>, n| size.is_some_and(|size| size.is_none_or(|size| size == n));
        if !fits(shape.get(1), N_MELS) || !fits(shape.get(2), N_FRAMES) {
            let wrong = format!(
                "turn.model: {} takes {shape:?}, smart-turn v3 takes [n, {N_MELS}, {N_FRAMES}]",
                path.display()
            );
            return Err(TurnModelError::Unavailable(wrong));
        }
        let takes_batches = shape.first() == Some(&None);
        let mut graph = Self { model, mel: LogMel::new(N_MELS), takes_batches };
        graph.judge(&[&[0; 1_600]]).map_err(|error| TurnModelError::Unavailable(error.to_string()))?;
        Ok(graph)
    }

    fn judge(&mut self, batch: &[&[i16]]) -> Result<Vec<f32>, OnnxOrShape> {
        let features: Vec<f32> = batch.iter().flat_map(|pcm| self.mel.spectrogram(&prepared(pcm))).collect();
        let input = Tensor::f32([batch.len(), N_MELS, N_FRAMES], &features);
        let outputs = self.model.run(&[("input_features", input)], &CancellationToken::new())?;
        let answers = outputs.at(0)?.f32()?.to_vec();
        if answers.len() != batch.len() || answers.iter().any(|p| !p.is_finite()) {
            return Err(OnnxOrShape::Answers { asked: batch.len(), given: answers });
        }
        Ok(answers.into_iter().map(|p| p.clamp(0.0, 1.0)).collect())
    }
}

#[derive(Debug, thiserror::Error)]
enum OnnxOrShape {
    #[error(transparent)]
    Onnx(#[from] OnnxError),
    #[error("asked for {asked} probabilities, it gave {given:?}")]
    Answers { asked: usize, given: Vec<f32> },
}

/// The last 8 s, silence in front where there is less, of zero mean and variance one.
fn prepared(pcm: &[i16]) -> Vec<f32> {
    let n = SPAN.0 as usize;
    let kept = &pcm[pcm.len().saturating_sub(n)..];
    let mut audio = vec![0.0f32; n - kept.len()];
    audio.extend(kept.iter().map(|sample| f32::from(*sample) / 32_768.0));
    let mean = audio.iter().map(|x| f64::from(*x)).sum::<f64>() / n as f64;
    let variance = audio.iter().map(|x| (f64::from(*x) - mean).powi(2)).sum::<f64>() / n as f64;
    // The constant is the feature extractor's (`zero_mean_unit_var_norm`).
    let scale = 1.0 / (variance + 1e-7).sqrt();
    audio.iter_mut().for_each(|x| *x = ((f64::from(*x) - mean) * scale) as f32);
    audio
}

#[cfg(test)]
#[path = "smart_tests.rs"]
mod tests;
