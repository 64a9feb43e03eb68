//! The `streaming-turn` engine: a turn model that hears a turn step by step, by ONNX Runtime.
//!
//! A contract, a JSON file of the model's name beside it, says what the graph is: the samples of a step, the name of the
//! audio's input, the states with the outputs that replace them, and the classes of its probabilities. So the graph may be
//! any recurrent one; p99lab's turn-1-mini is the first (2,560 samples a step, 8 probabilities, 7 states). Each query runs
//! all steps of its audio from states of zeros, on one thread for all sessions: at some milliseconds a step that is cheaper
//! than a state for each session that must follow its every window. Silence stands in front of a first step that is not
//! full, so that the last step ends with the audio.
//!
//! Of the classes `turn_end` answers at a pause, and `interruption` over a reply.

use super::query::{MAX_WAITING, Query, query};
use crate::contract::ContractFile;
use antiphon_engine_api::turn::{RATE, TurnModel, TurnModelError};
use antiphon_inference::onnx::{Model, ModelOptions, OnnxConfig, OnnxError, Runtime, Tensor};
use antiphon_inference::pool::batch::{BatchEngine, BatchScheduler, BatchSettings};
use antiphon_types::Samples;
use futures_util::future::BoxFuture;
use serde::Deserialize;
use std::path::Path;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// The setting that names the model.
const SETTING: &str = "turn.model";

/// Steps of one query at most: 8 s at turn-1-mini's step take it some 70 ms of a core.
const MAX_STEPS: u64 = 200;

/// Samples of a step at most, 2 s.
const MAX_STEP: usize = 2 * RATE.hz() as usize;

const TURN_END: &str = "turn_end";
const INTERRUPTION: &str = "interruption";

/// What a graph is. Unknown fields are refused: they would mean something.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Contract {
    /// Samples a second; 16,000.
    sample_rate: u32,
    /// Samples of a step.
    step: usize,
    /// The audio considered, in milliseconds.
    span_ms: u64,
    /// The input of f32 `[1, step]`, full scale 1.
    audio: String,
    /// The output of f32 `[1, n, classes]`, or `[1, n]` of one class; of `n` probabilities the last is the answer.
    probabilities: String,
    /// The states.
    states: Vec<StateNames>,
    /// The meaning of each class.
    classes: Vec<String>,
}

/// A state, f32 of any fixed shape.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct StateNames {
    input: String,
    output: String,
}

/// See the module. Cheap to clone.
#[derive(Clone)]
pub struct StreamingTurnModel {
    scheduler: BatchScheduler<Query>,
    span: Samples,
    turn_end: usize,
    interruption: Option<usize>,
}

struct Graph {
    model: Model,
    contract: Contract,
    shapes: Vec<Vec<usize>>,
}

impl StreamingTurnModel {
    /// Loads the graph and runs it once. Blocks meanwhile.
    ///
    /// # Errors
    /// [`TurnModelError::Unavailable`] says what is wrong with the library, the contract or the graph.
    pub fn open(path: &Path, onnx: &OnnxConfig) -> Result<Self, TurnModelError> {
        let unavailable = TurnModelError::Unavailable;
        let file = ContractFile::of(SETTING, path);
        let contract = Contract::read(&file).map_err(unavailable)?;
        let class = |name: &str| contract.classes.iter().position(|class| class == name);
        let turn_end = class(TURN_END).ok_or_else(|| file.wrong(format_args!("no class is {TURN_END:?}")));
        let turn_end = turn_end.map_err(unavailable)?;
        let interruption = class(INTERRUPTION);
        let span = Samples::from_ms(contract.span_ms, RATE);
        let path = path.to_owned();
        let onnx = onnx.clone();
        let load = move || Graph::load(&path, &onnx, &file, contract.clone()).map_err(unavailable);
        let first = load()?;
        let settings =
            BatchSettings { n_replicas: 1, max_batch: 1, max_wait: Duration::ZERO, max_waiting: MAX_WAITING };
        let scheduler = BatchScheduler::start_with("streaming-turn", settings, first, move |_| load())?;
        Ok(Self { scheduler, span, turn_end, interruption })
    }
}

impl TurnModel for StreamingTurnModel {
    fn name(&self) -> &str {
        "streaming-turn"
    }

    fn concurrency(&self) -> usize {
        1
    }

    fn span(&self) -> Samples {
        self.span
    }

    fn judge(&self, pcm: Vec<i16>) -> BoxFuture<'static, Result<f32, TurnModelError>> {
        query(self.scheduler.clone(), self.turn_end, pcm)
    }

    fn judges_overlap(&self) -> bool {
        self.interruption.is_some()
    }

    /// Of a model without that class, the end of the turn is not asked for in its place: it means something else.
    fn judge_overlap(&self, pcm: Vec<i16>) -> BoxFuture<'static, Result<f32, TurnModelError>> {
        match self.interruption {
            Some(class) => query(self.scheduler.clone(), class, pcm),
            None => Box::pin(std::future::ready(Err(TurnModelError::Unavailable("it has no such class".into())))),
        }
    }
}

impl BatchEngine<Query> for Graph {
    fn run(&mut self, batch: &mut Vec<Query>) -> Result<(), String> {
        for query in batch.drain(..) {
            let judged = self.run_to_end(&query.pcm);
            let answer = judged.map(|classes| classes[query.class]).map_err(TurnModelError::Failed);
            // The session may have gone on without the answer.
            let _ = query.answer.send(answer);
        }
        Ok(())
    }
}

impl Contract {
    fn read(file: &ContractFile) -> Result<Self, String> {
        let contract: Self = file.read()?;
        file.check_rate(contract.sample_rate, RATE)?;
        if !(1..=MAX_STEP).contains(&contract.step) {
            return Err(file.wrong(format_args!("step is {}, it can be 1 to {MAX_STEP} samples", contract.step)));
        }
        let n_steps = Samples::from_ms(contract.span_ms, RATE).0.div_ceil(contract.step as u64);
        if !(1..=MAX_STEPS).contains(&n_steps) {
            return Err(file.wrong(format_args!("span_ms makes {n_steps} steps, it can be 1 to {MAX_STEPS}")));
        }
        if contract.classes.is_empty() {
            return Err(file.wrong("classes is empty"));
        }
        Ok(contract)
    }
}

impl Graph {
    /// Loads the graph and runs it once.
    fn load(path: &Path, onnx: &OnnxConfig, file: &ContractFile, contract: Contract) -> Result<Self, String> {
        let unavailable = |error: OnnxError| format!("{SETTING}: {error}");
        let runtime = Runtime::open(onnx).map_err(unavailable)?;
        // Small graphs: a thread each costs less than the threads' meeting.
        let options = ModelOptions { signature: None, intra_threads: Some(1), on_cpu: true };
        let model = runtime.load(path, &options).map_err(unavailable)?;
        let audio = file.input(&model, &contract.audio)?;
        let takes = |at: usize, n: usize| audio.get(at).is_some_and(|size| size.is_none_or(|size| size == n));
        if audio.len() != 2 || !takes(0, 1) || !takes(1, contract.step) {
            let Contract { audio: name, step, .. } = &contract;
            return Err(file.wrong(format_args!("the graph's {name:?} is {audio:?}, step asks for [1, {step}]")));
        }
        let mut shapes = Vec::new();
        let mut names = vec![contract.audio.as_str()];
        for state in &contract.states {
            let shape = file.input(&model, &state.input)?;
            // One turn at a time: sizes that may differ are those of a batch.
            shapes.push(shape.iter().map(|size| size.unwrap_or(1)).collect());
            names.push(&state.input);
        }
        file.check_outputs(&model, contract.states.iter().map(|state| state.output.as_str()))?;
        file.check_outputs(&model, [contract.probabilities.as_str()])?;
        file.check_inputs(&model, &names)?;
        let graph = Self { model, contract, shapes };
        graph.run_to_end(&[])?;
        Ok(graph)
    }

    /// The probability of each class at the end of this audio, of which the last span counts.
    fn run_to_end(&self, pcm: &[i16]) -> Result<Vec<f32>, String> {
        let step = self.contract.step;
        let n = Samples::from_ms(self.contract.span_ms, RATE).0 as usize;
        let pcm = &pcm[pcm.len().saturating_sub(n)..];
        let n_steps = pcm.len().div_ceil(step).max(1);
        let mut audio = vec![0.0f32; n_steps * step - pcm.len()];
        audio.extend(pcm.iter().map(|sample| f32::from(*sample) / 32_768.0));
        let mut states: Vec<Vec<f32>> = self.shapes.iter().map(|shape| vec![0.0; shape.iter().product()]).collect();
        let mut classes = Vec::new();
        for window in audio.chunks(step) {
            classes = self.run_step(window, &mut states)?;
        }
        Ok(classes)
    }

    fn run_step(&self, window: &[f32], states: &mut [Vec<f32>]) -> Result<Vec<f32>, String> {
        let words = |error: OnnxError| error.to_string();
        let mut inputs = vec![(self.contract.audio.as_str(), Tensor::f32([1, self.contract.step], window))];
        for ((names, shape), state) in self.contract.states.iter().zip(&self.shapes).zip(states.iter()) {
            inputs.push((&names.input, Tensor::f32(shape.clone(), state)));
        }
        let outputs = self.model.run(&inputs, &CancellationToken::new()).map_err(words)?;
        for (names, state) in self.contract.states.iter().zip(states) {
            let next = outputs.named(&names.output).and_then(|output| output.f32()).map_err(words)?;
            if next.len() != state.len() {
                return Err(format!(
                    "{:?} has {} numbers, {:?} takes {}",
                    names.output,
                    next.len(),
                    names.input,
                    state.len()
                ));
            }
            state.copy_from_slice(next);
        }
        let given = outputs.named(&self.contract.probabilities).and_then(|output| output.f32()).map_err(words)?;
        let n_classes = self.contract.classes.len();
        let Some(last) = given.chunks_exact(n_classes).next_back().filter(|_| given.len() % n_classes == 0) else {
            return Err(format!("it gives {} probabilities for {n_classes} classes", given.len()));
        };
        if last.iter().any(|p| !p.is_finite()) {
            return Err("it gives a probability that is no number".into());
        }
        Ok(last.iter().map(|p| p.clamp(0.0, 1.0)).collect())
    }
}

#[cfg(test)]
#[path = "streaming_tests.rs"]
mod tests;
