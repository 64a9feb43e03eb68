//! A speaker model by ONNX Runtime: CAM++, the exports of WeSpeaker, and what else takes features or samples.
//!
//! A contract, a JSON file of the model's name beside it, says what the graph is: the names of its input and output, what
//! the input holds, how much of a voice counts, and which similarities decide. The input is f32 `[n, frames, bands]`,
//! Kaldi's log-mel filterbank without each band's mean, or `[n, samples]`; the output is f32 `[n, size]`. One ONNX session
//! serves all streams, on a thread of its own and one core; voices of the same length run as one batch where the graph
//! takes batches. Queries beyond [`MAX_WAITING`] are refused.

use crate::contract::ContractFile;
use antiphon_audio::mel::kaldi::{Filterbank, FrameWindow, subtract_mean};
use antiphon_engine_api::speaker::{RATE, SpeakerModel, SpeakerModelError, SpeakerThresholds, unit};
use antiphon_inference::onnx::{Model, ModelOptions, OnnxConfig, OnnxError, Runtime, Tensor};
use antiphon_inference::pool::Overloaded;
use antiphon_inference::pool::batch::{BatchEngine, BatchFailure, BatchScheduler, BatchSettings, Entry};
use antiphon_types::Samples;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use serde::Deserialize;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// The setting that names the model.
const SETTING: &str = "speaker.model";

/// Queries that wait; past it the answer is [`SpeakerModelError::Busy`], for an answer would come too late to help.
const MAX_WAITING: usize = 64;

/// Voices of one batch: each is a row of 100 KB.
const MAX_BATCH: usize = 8;

/// The least and the longest voice that may count, in milliseconds.
const SPAN_MS: std::ops::RangeInclusive<u64> = 1_000..=10_000;

/// Bands of a frame at most: twice what the known models take.
const MAX_BANDS: usize = 160;

/// Numbers of an embedding at most: four times ECAPA's and x-vectors' 512.
const MAX_SIZE: usize = 2_048;

/// What a graph is. Unknown fields are refused: they would mean something.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Contract {
    /// Samples a second; 16,000.
    sample_rate: u32,
    /// The name of the input.
    input: String,
    /// The name of the output.
    embedding: String,
    /// What the input holds.
    features: Features,
    /// The longest voice considered, in milliseconds.
    span_ms: u64,
    /// See [`SpeakerThresholds`].
    same_from: f32,
    /// See [`SpeakerThresholds`].
    other_below: f32,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, tag = "kind", rename_all = "snake_case")]
enum Features {
    /// `[n, frames, bands]`.
    Fbank {
        bands: usize,
        window: WindowName,
        /// The value of the loudest sample: 1 or 32,768.
        full_scale: f32,
    },
    /// `[n, samples]`.
    Waveform {
        /// As above.
        full_scale: f32,
    },
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
enum WindowName {
    Povey,
    Hamming,
}

/// See the module. Cheap to clone.
#[derive(Clone)]
pub struct OnnxSpeakerModel {
    scheduler: BatchScheduler<Query>,
    max_batch: usize,
    span: Samples,
    thresholds: SpeakerThresholds,
}

impl OnnxSpeakerModel {
    /// Loads the graph and runs it once. Blocks meanwhile.
    ///
    /// # Errors
    /// [`SpeakerModelError::Unavailable`] says what is wrong with the library, the contract or the graph.
    pub fn open(path: &Path, onnx: &OnnxConfig) -> Result<Self, SpeakerModelError> {
        let unavailable = SpeakerModelError::Unavailable;
        let file = ContractFile::of(SETTING, path);
        let contract = Contract::read(&file).map_err(unavailable)?;
        let span = Samples::from_ms(contract.span_ms, RATE);
        let Contract { same_from, other_below, .. } = contract;
        let thresholds = SpeakerThresholds { same_from, other_below, far_db: None };
        let path = path.to_owned();
        let onnx = onnx.clone();
        let load = move || Graph::load(&path, &onnx, &file, contract.clone()).map_err(unavailable);
        let first = load()?;
        let max_batch = if first.takes_batches { MAX_BATCH } else { 1 };
        let settings = BatchSettings { n_replicas: 1, max_batch, max_wait: Duration::ZERO, max_waiting: MAX_WAITING };
        let scheduler = BatchScheduler::start_with("speaker", settings, first, move |_| load())?;
        Ok(Self { scheduler, max_batch, span, thresholds })
    }
}

impl SpeakerModel for OnnxSpeakerModel {
    fn name(&self) -> &str {
        "onnx"
    }

    /// One replica, which answers a batch at a time.
    fn concurrency(&self) -> usize {
        self.max_batch
    }

    fn span(&self) -> Samples {
        self.span
    }

    fn thresholds(&self) -> SpeakerThresholds {
        self.thresholds
    }

    fn embed(&self, pcm: Arc<[i16]>) -> BoxFuture<'static, Result<Vec<f32>, SpeakerModelError>> {
        let scheduler = self.scheduler.clone();
        let span = self.span.0 as usize;
        async move {
            let (answer, answered) = oneshot::channel();
            let submitted = scheduler.submit(Query { pcm, span, asked: Instant::now(), answer });
            submitted.map_err(|(Overloaded { waiting }, _)| SpeakerModelError::Busy { waiting })?;
            answered.await.unwrap_or_else(|_| Err(SpeakerModelError::Failed("the query was lost".into())))
        }
        .boxed()
    }
}

/// A query on its way to the model's thread and back.
struct Query {
    pcm: Arc<[i16]>,
    /// Samples at its end that count.
    span: usize,
    asked: Instant,
    answer: oneshot::Sender<Result<Vec<f32>, SpeakerModelError>>,
}

impl Query {
    fn voice(&self) -> &[i16] {
        &self.pcm[self.pcm.len().saturating_sub(self.span)..]
    }
}

impl Entry for Query {
    /// Voices of one length share a run.
    fn bucket(&self) -> u32 {
        self.voice().len() as u32
    }

    fn deadline(&self) -> Instant {
        self.asked
    }

    fn is_abandoned(&self) -> bool {
        self.answer.is_closed()
    }

    fn fail(self, failure: BatchFailure) {
        // The session may have gone on without the answer.
        let _ = self.answer.send(Err(SpeakerModelError::Failed(failure.to_string())));
    }
}

/// What the input of a run is made by.
enum FrontEnd {
    Fbank(Filterbank),
    Waveform { full_scale: f32 },
}

struct Graph {
    model: Model,
    contract: Contract,
    front_end: FrontEnd,
    takes_batches: bool,
}

impl BatchEngine<Query> for Graph {
    fn run(&mut self, batch: &mut Vec<Query>) -> Result<(), String> {
        let voices: Vec<&[i16]> = batch.iter().map(Query::voice).collect();
        let answers = match self.embed(&voices) {
            Ok(answers) => answers,
            // The device or the session may be broken: a new one may work.
            Err(RunError::Onnx(error)) if !matches!(error, OnnxError::Inputs { .. }) => return Err(error.to_string()),
            Err(error) => batch.iter().map(|_| Err(SpeakerModelError::Failed(error.to_string()))).collect(),
        };
        for (query, answer) in batch.drain(..).zip(answers) {
            let _ = query.answer.send(answer);
        }
        Ok(())
    }
}

#[derive(Debug, thiserror::Error)]
enum RunError {
    #[error(transparent)]
    Onnx(#[from] OnnxError),
    #[error("{n} samples are less than a frame")]
    TooShort { n: usize },
    #[error("it gives {given} numbers for {asked} voices")]
    Shape { asked: usize, given: usize },
}

impl Contract {
    fn read(file: &ContractFile) -> Result<Self, String> {
        let contract: Self = file.read()?;
        file.check_rate(contract.sample_rate, RATE)?;
        if !SPAN_MS.contains(&contract.span_ms) {
            let least = SPAN_MS.start();
            let most = SPAN_MS.end();
            return Err(file.wrong(format_args!("span_ms is {}, it can be {least} to {most}", contract.span_ms)));
        }
        let Self { same_from, other_below, .. } = contract;
        if !(-1.0..=1.0).contains(&same_from) || !(-1.0..=same_from).contains(&other_below) {
            return Err(file.wrong(format_args!(
                "same_from is {same_from} and other_below {other_below}: they are cosines, and other_below is not above \
                 same_from"
            )));
        }
        let full_scale = match contract.features {
            Features::Fbank { bands, .. } if !(1..=MAX_BANDS).contains(&bands) => {
                return Err(file.wrong(format_args!("bands is {bands}, it can be 1 to {MAX_BANDS}")));
            }
            Features::Fbank { full_scale, .. } | Features::Waveform { full_scale } => full_scale,
        };
        if !(full_scale > 0.0 && full_scale <= 32_768.0) {
            return Err(file.wrong(format_args!("full_scale is {full_scale}, it is 1 or 32768")));
        }
        Ok(contract)
    }
}

impl Graph {
    /// Loads the graph and runs it once.
    fn load(path: &Path, onnx: &OnnxConfig, file: &ContractFile, contract: Contract) -> Result<Self, String> {
        let unavailable = |error: OnnxError| format!("{SETTING}: {error}");
        let runtime = Runtime::open(onnx).map_err(unavailable)?;
        // A voice is compared while its speaker goes on: one core is quick enough.
        let options = ModelOptions { signature: None, intra_threads: Some(1), on_cpu: true };
        let model = runtime.load(path, &options).map_err(unavailable)?;
        let shape = file.input(&model, &contract.input)?;
        let (front_end, fits, layout) = match contract.features {
            Features::Fbank { bands, window, full_scale } => {
                let window = match window {
                    WindowName::Povey => FrameWindow::Povey,
                    WindowName::Hamming => FrameWindow::Hamming,
                };
                let fits = matches!(shape[..], [_, None, n] if n.is_none_or(|n| n == bands));
                let layout = format!("[n, frames, {bands}]");
                (FrontEnd::Fbank(Filterbank::new(bands, window, full_scale)), fits, layout)
            }
            Features::Waveform { full_scale } => {
                let fits = matches!(shape[..], [_, None]);
                (FrontEnd::Waveform { full_scale }, fits, "[n, samples]".to_owned())
            }
        };
        if !fits || shape[0].is_some_and(|n| n != 1) {
            let name = &contract.input;
            return Err(file.wrong(format_args!("the graph's {name:?} is {shape:?}, features asks for {layout}")));
        }
        let takes_batches = shape[0].is_none();
        file.check_outputs(&model, [contract.embedding.as_str()])?;
        file.check_inputs(&model, &[&contract.input])?;
        let graph = Self { model, contract, front_end, takes_batches };
        graph.check(file)?;
        Ok(graph)
    }

    /// Runs it once, on a second of noise: an embedding is a size that holds, and numbers.
    fn check(&self, file: &ContractFile) -> Result<(), String> {
        let noise: Vec<i16> = (0..RATE.hz()).map(|i| (i.wrapping_mul(7_919) % 2_001) as i16 - 1_000).collect();
        let embeddings = self.embed(&[&noise]).map_err(|error| file.wrong(error))?;
        let embedding = embeddings.into_iter().next().transpose().map_err(|error| file.wrong(error))?;
        let size = embedding.map_or(0, |embedding| embedding.len());
        if !(2..=MAX_SIZE).contains(&size) {
            return Err(
                file.wrong(format_args!("the graph's embedding has {size} numbers, it can have 2 to {MAX_SIZE}"))
            );
        }
        Ok(())
    }

    /// The embeddings of voices of one length.
    fn embed(&self, voices: &[&[i16]]) -> Result<Vec<Result<Vec<f32>, SpeakerModelError>>, RunError> {
        let n = voices.len();
        let n_samples = voices.first().map_or(0, |voice| voice.len());
        let mut features = Vec::new();
        for voice in voices {
            match &self.front_end {
                FrontEnd::Fbank(bank) => {
                    let mut frames = bank.frames(voice);
                    subtract_mean(&mut frames, bank.n_bands());
                    features.append(&mut frames);
                }
                FrontEnd::Waveform { full_scale } => {
                    features.extend(voice.iter().map(|sample| f32::from(*sample) * (full_scale / 32_768.0)));
                }
            }
        }
        if features.is_empty() {
            return Err(RunError::TooShort { n: n_samples });
        }
        let shape = match &self.front_end {
            FrontEnd::Fbank(bank) => vec![n, features.len() / n / bank.n_bands(), bank.n_bands()],
            FrontEnd::Waveform { .. } => vec![n, n_samples],
        };
        let input = (self.contract.input.as_str(), Tensor::f32(shape, &features));
        let outputs = self.model.run(&[input], &CancellationToken::new())?;
        let given = outputs.named(&self.contract.embedding)?.f32()?;
        if given.is_empty() || !given.len().is_multiple_of(n) {
            return Err(RunError::Shape { asked: n, given: given.len() });
        }
        let no_direction = || SpeakerModelError::Failed("this sound has no embedding".into());
        Ok(given.chunks(given.len() / n).map(|row| unit(row.to_vec()).ok_or_else(no_direction)).collect())
    }
}

#[cfg(test)]
#[path = "onnx_tests.rs"]
mod tests;
