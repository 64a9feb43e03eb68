//! The graphs of a recognizer, loaded and checked, and one run of each: the encoder here, the others by [`Predictor`].
//!
//! Ports are taken by their position, since an exporter makes the names of some up; their types and shapes are checked against
//! the encoder's properties and against each other before anything runs, and once more by a run of each graph
//! ([`Graphs::warm`]). A graph whose batch is fixed to one row is run row by row. It keeps nothing between runs: the caches are
//! in [`EncoderStates`](super::states::EncoderStates), the predictor's state is with its stream.

use super::files::{FileError, ModelFiles, Sizes};
use super::predictor::{Predictor, PredictorState};
use antiphon_inference::onnx::{Kind, Model, ModelOptions, OnnxError, Outputs, Runtime, Slot, Tensor};
use antiphon_types::RunsOn;
use std::cell::Cell;
use std::path::Path;
use std::time::Duration;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

pub(super) const FLOATS: &[Kind] = &[Kind::F32, Kind::F16];
pub(super) const WHOLE: &[Kind] = &[Kind::I64, Kind::I32];

/// See the module.
pub struct Graphs {
    /// What it takes and gives.
    pub sizes: Sizes,
    /// Numbers of an encoder frame.
    pub width: usize,
    pub(super) encoder: Model,
    pub(super) runtime: Runtime,
    /// Whether several rows share a run of the encoder.
    pub(super) encodes_batches: bool,
    pub(super) predictor: Predictor,
    clock: RunClock,
}

/// Runs graphs, and counts how long they took since the start.
#[derive(Default)]
pub struct RunClock {
    never: CancellationToken,
    in_runs: Cell<Duration>,
}

/// A port that is expected at a position.
pub(super) struct Expected<'a> {
    /// For messages.
    pub(super) what: &'a str,
    pub(super) kinds: &'a [Kind],
    /// `None`: the batch, or any size.
    pub(super) shape: &'a [Option<usize>],
}

/// The ports of one direction of a graph.
pub(super) struct Ports<'a> {
    path: &'a Path,
    direction: &'a str,
    slots: &'a [Slot],
}

impl Ports<'_> {
    pub(super) fn inputs(model: &Model) -> Ports<'_> {
        Ports { path: model.path(), direction: "input", slots: model.inputs() }
    }

    pub(super) fn outputs(model: &Model) -> Ports<'_> {
        Ports { path: model.path(), direction: "output", slots: model.outputs() }
    }

    /// The port at a position, where it is as expected.
    pub(super) fn at(&self, place: usize, expected: &Expected<'_>) -> Result<&Slot, FileError> {
        let Some(slot) = self.slots.get(place) else {
            return Err(self.wrong(place, expected, "not there".into()));
        };
        let shape = || slot.shape.iter().zip(expected.shape);
        let is_of_kind = expected.kinds.contains(&slot.kind);
        let fits = slot.shape.len() == expected.shape.len()
            && shape().all(|(there, expected)| there.is_none() || expected.is_none() || there == expected);
        if is_of_kind && fits { Ok(slot) } else { Err(self.wrong(place, expected, slot.to_string())) }
    }

    fn wrong(&self, place: usize, expected: &Expected<'_>, found: String) -> FileError {
        let kinds: Vec<_> = expected.kinds.iter().map(ToString::to_string).collect();
        let shape: Vec<_> = expected.shape.iter().map(|n| n.map_or("?".into(), |n| n.to_string())).collect();
        FileError::Port {
            path: self.path.into(),
            port: format!("{} {}", self.direction, place + 1),
            found,
            expected: format!("{}: {}[{}]", expected.what, kinds.join(" or "), shape.join(", ")),
        }
    }

    /// Whether all these ports take any batch, which is at this position of their shapes. One row is the only other size.
    pub(super) fn takes_batches(&self, ports: &[(usize, usize)]) -> Result<bool, FileError> {
        let mut all = true;
        for (place, axis) in ports {
            match self.slots[*place].shape[*axis] {
                None => {}
                Some(1) => all = false,
                Some(n) => {
                    return Err(FileError::Port {
                        path: self.path.into(),
                        port: format!("{} {}", self.direction, place + 1),
                        found: self.slots[*place].to_string(),
                        expected: format!("a batch of any size, or of 1, not of {n}"),
                    });
                }
            }
        }
        Ok(all)
    }
}

impl Graphs {
    /// Loads the graphs, checks them against each other and `n_tokens`, and runs each. Blocks, for seconds where they are large.
    ///
    /// # Errors
    /// [`FileError`] with the file and what is wrong.
    pub fn load(files: &ModelFiles, n_tokens: usize, runtime: &Runtime) -> Result<Self, FileError> {
        let options = ModelOptions::default();
        let encoder = runtime.load(&files.encoder, &options)?;
        let sizes = Sizes::read(&encoder)?;
        if n_tokens != sizes.n_pieces + 1 {
            let problem = format!(
                "{n_tokens} tokens, expected {}: vocab_size of {} and the blank",
                sizes.n_pieces + 1,
                files.encoder.display()
            );
            return Err(FileError::Tokens { path: files.tokens.clone(), problem });
        }
        let width = check_encoder(&encoder, &sizes)?;
        let encodes_batches = Ports::inputs(&encoder).takes_batches(&[(0, 0), (1, 0), (2, 0), (3, 0), (4, 0)])?;
        if !encodes_batches {
            tracing::warn!(model = %encoder.path().display(), "its batch is fixed to one row: it runs row by row");
        }
        let predictor = Predictor::load(&files.predictor, &sizes, width, runtime)?;
        let runtime = runtime.clone();
        let graphs = Self { sizes, width, encoder, runtime, encodes_batches, predictor, clock: RunClock::default() };
        graphs.warm()?;
        Ok(graphs)
    }

    /// What runs keep busy.
    pub fn runs_on(&self) -> RunsOn {
        self.encoder.runs_on()
    }

    /// How long runs have taken since the start, with what is copied for them.
    pub fn in_runs(&self) -> Duration {
        self.clock.in_runs.get()
    }

    /// A run of the encoder. Blocks for as long as that takes.
    ///
    /// # Errors
    /// [`OnnxError`] when the run fails.
    pub(super) fn encode(&self, inputs: &[(&str, Tensor<'_>)]) -> Result<Outputs, OnnxError> {
        self.clock.run(&self.encoder, inputs)
    }

    /// The predictor's state before the first token. Blocks for a run.
    ///
    /// # Errors
    /// [`OnnxError`] when the run fails.
    pub fn first_prediction(&self) -> Result<PredictorState, OnnxError> {
        self.predictor.start(&self.clock)
    }

    /// [`Predictor::score`].
    ///
    /// # Errors
    /// [`OnnxError`] when a run fails.
    pub fn score(
        &self,
        frames: &[f32],
        states: &mut [&mut PredictorState],
        logits: &mut Vec<f32>,
    ) -> Result<(), OnnxError> {
        self.predictor.score(frames, states, logits, &self.clock)
    }

    /// [`Predictor::accept`].
    ///
    /// # Errors
    /// [`OnnxError`] when a run fails.
    pub fn accept(&self, rows: &mut [(u32, &mut PredictorState)]) -> Result<(), OnnxError> {
        self.predictor.accept(rows, &self.clock)
    }

    /// Whether the encoder runs on the processor.
    pub fn is_on_host(&self) -> bool {
        self.encoder.is_on_host()
    }

    /// Counts what runs take.
    pub(super) fn while_timed<R>(&self, runs: impl FnOnce() -> R) -> R {
        self.clock.timed(runs)
    }

    /// One run of predictor and joiner each, whose outputs show what the declared shapes left open.
    fn warm(&self) -> Result<(), FileError> {
        let mut state = self.first_prediction()?;
        let mut logits = Vec::new();
        self.score(&vec![0.0; self.width], &mut [&mut state], &mut logits)?;
        if !logits.iter().all(|logit| logit.is_finite()) {
            return Err(FileError::NotNumbers { path: self.predictor.scorer().path().into() });
        }
        self.accept(&mut [(0, &mut state)])?;
        Ok(())
    }
}

impl RunClock {
    /// A run of a graph. Blocks for as long as that takes.
    ///
    /// # Errors
    /// [`OnnxError`] when the run fails.
    pub fn run(&self, model: &Model, inputs: &[(&str, Tensor<'_>)]) -> Result<Outputs, OnnxError> {
        self.timed(|| model.run(inputs, &self.never))
    }

    fn timed<R>(&self, runs: impl FnOnce() -> R) -> R {
        let begun = Instant::now();
        let result = runs();
        self.in_runs.set(self.in_runs.get() + begun.elapsed());
        result
    }
}

/// The numbers, where they are as many as they should be.
pub(super) fn sized<'a>(numbers: &'a [f32], n: usize, graph: &str) -> Result<&'a [f32], OnnxError> {
    match numbers.len() == n {
        true => Ok(numbers),
        false => Err(OnnxError::Output(format!("{} numbers of {graph}, expected {n}", numbers.len()))),
    }
}

/// Checks the encoder's ports and returns the width of its frames.
fn check_encoder(encoder: &Model, sizes: &Sizes) -> Result<usize, FileError> {
    let [layers, left, width] = sizes.channel.map(Some);
    let [_, _, kernel] = sizes.time.map(Some);
    let batch = None;
    let inputs = Ports::inputs(encoder);
    let audio = [batch, Some(sizes.n_mels), Some(sizes.window)];
    inputs.at(0, &Expected { what: "mel frames", kinds: FLOATS, shape: &audio })?;
    inputs.at(1, &Expected { what: "numbers of mel frames", kinds: WHOLE, shape: &[batch] })?;
    let channel = [batch, layers, left, width];
    let time = [batch, layers, width, kernel];
    inputs.at(2, &Expected { what: "the attention's cache", kinds: FLOATS, shape: &channel })?;
    inputs.at(3, &Expected { what: "the convolutions' cache", kinds: FLOATS, shape: &time })?;
    inputs.at(4, &Expected { what: "lengths of the attention's cache", kinds: WHOLE, shape: &[batch] })?;
    let n_inputs = if sizes.prompts.is_some() { 6 } else { 5 };
    if sizes.prompts.is_some() {
        inputs.at(5, &Expected { what: "numbers of prompts", kinds: WHOLE, shape: &[batch] })?;
    }
    if let Some(stray) = inputs.slots.get(n_inputs) {
        return Err(FileError::Port {
            path: encoder.path().into(),
            port: format!("input {}", n_inputs + 1),
            found: stray.to_string(),
            expected: format!("{n_inputs} inputs (6 where there is the property prompt_dictionary)"),
        });
    }
    let outputs = Ports::outputs(encoder);
    let frames = [batch, width, Some(sizes.n_new())];
    outputs.at(0, &Expected { what: "encoder frames", kinds: FLOATS, shape: &frames })?;
    outputs.at(1, &Expected { what: "numbers of encoder frames", kinds: WHOLE, shape: &[batch] })?;
    outputs.at(2, &Expected { what: "the attention's next cache", kinds: FLOATS, shape: &channel })?;
    outputs.at(3, &Expected { what: "the convolutions' next cache", kinds: FLOATS, shape: &time })?;
    outputs.at(4, &Expected { what: "next lengths of the attention's cache", kinds: WHOLE, shape: &[batch] })?;
    Ok(sizes.channel[2])
}
