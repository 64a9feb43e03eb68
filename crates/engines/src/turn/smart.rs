//! The `smart-turn` engine: smart-turn v3, a small Whisper encoder with a head, by ONNX Runtime.
//!
//! The last 8 s of a turn become a log-mel spectrogram, as Whisper's feature extractor makes it from audio brought to
//! zero mean and variance one; shorter turns have silence in front. The graph takes `input_features`, f32 `[1, 80, 800]`
//! or `[n, 80, 800]`, and its first output is P(turn complete), a number each. One session serves all streams, on a
//! thread of its own; pauses that fall together run as one batch where the graph takes batches. A pause costs some
//! 40 ms of one core with the published weights (int8). Where it was measured it did not help (`turn/endpointing.rs`).

use antiphon_audio::mel::{HOP, LogMel};
use antiphon_engine_api::turn::{TurnModel, TurnModelError};
use antiphon_inference::onnx::{Kind, Model, ModelOptions, OnnxConfig, OnnxError, Port, Runtime, Signature, Tensor};
use antiphon_inference::pool::{Overloaded, Pool, PoolError};
use antiphon_types::Samples;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use std::path::Path;
use std::sync::{Arc, Mutex};
use tokio::sync::oneshot;
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
const MOST_AT_ONCE: usize = 8;

/// Pauses that wait; past it the answer is [`TurnModelError::Busy`], for an answer would come too late to help.
const MOST_WAITING: usize = 64;

/// See the module. Cheap to clone.
#[derive(Clone)]
pub struct SmartTurn {
    pool: Pool<Graph>,
    /// Questions that no batch has taken yet; as many as wait for the pool, and that is bounded.
    questions: Arc<Mutex<Vec<Question>>>,
}

struct Question {
    pcm: Vec<i16>,
    answer: oneshot::Sender<Result<f32, TurnModelError>>,
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
        let (path, onnx) = (path.to_owned(), onnx.clone());
        let make = move || {
            let mut graph = Graph::load(&path, &onnx)?;
            graph.judge(&[&[0; 1_600]]).map_err(|error| TurnModelError::Unavailable(error.to_string()))?;
            Ok::<_, TurnModelError>(graph)
        };
        Ok(Self { pool: Pool::start("smart-turn", 1, MOST_WAITING, make)?, questions: Arc::default() })
    }
}

impl TurnModel for SmartTurn {
    fn name(&self) -> &str {
        "smart-turn"
    }

    fn span(&self) -> Samples {
        SPAN
    }

    fn judge(&self, pcm: Vec<i16>) -> BoxFuture<'static, Result<f32, TurnModelError>> {
        let Self { pool, questions } = self.clone();
        async move {
            let (answer, asked) = oneshot::channel();
            questions.lock().expect("no panic while locked").push(Question { pcm, answer });
            // Whoever gets the thread answers for all that wait; the others find their answer there.
            let lease = pool.lease().await;
            let mut lease = match lease {
                Ok(lease) => lease,
                Err(Overloaded { waiting }) => {
                    // Nobody waits for it: whoever comes next drops it.
                    drop(asked);
                    return Err(TurnModelError::Busy { waiting });
                }
            };
            let lost = |error: PoolError| TurnModelError::Failed(error.to_string());
            lease.run(move |graph| graph.answer(&questions)).await.map_err(lost)?;
            asked.await.unwrap_or_else(|_| Err(TurnModelError::Failed("the question was lost".into())))
        }
        .boxed()
    }
}

impl Graph {
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
        Ok(Self { model, mel: LogMel::new(N_MELS), takes_batches })
    }

    /// Answers all questions that wait, those whose asker is gone excepted.
    fn answer(&mut self, questions: &Mutex<Vec<Question>>) {
        loop {
            let mut batch: Vec<Question> = {
                let mut questions = questions.lock().expect("no panic while locked");
                questions.retain(|question| !question.answer.is_closed());
                let n = questions.len().min(if self.takes_batches { MOST_AT_ONCE } else { 1 });
                questions.drain(..n).collect()
            };
            if batch.is_empty() {
                return;
            }
            let pcm: Vec<&[i16]> = batch.iter().map(|question| &question.pcm[..]).collect();
            match self.judge(&pcm) {
                Ok(answers) => {
                    for (question, answer) in batch.drain(..).zip(answers) {
                        // Nobody may wait any more.
                        let _ = question.answer.send(Ok(answer));
                    }
                }
                Err(error) => {
                    for question in batch {
                        let _ = question.answer.send(Err(TurnModelError::Failed(error.to_string())));
                    }
                }
            }
        }
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
