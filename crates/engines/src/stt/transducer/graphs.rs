//! The three graphs of a recognizer, loaded and checked, and one run of each.
//!
//! Ports are taken by their position, since an exporter makes the names of some up; their types and shapes are checked against
//! the encoder's properties and against each other before anything runs, and once more by a run of each graph
//! ([`Graphs::warm`]). A graph whose batch is fixed to one row is run row by row. It keeps nothing between runs: the caches are
//! in [`EncoderStates`](super::states::EncoderStates), the predictor's state is with its stream.

use super::files::{FileError, ModelFiles, Sizes};
use antiphon_inference::onnx::{Kind, Model, ModelOptions, OnnxError, Outputs, Runtime, Slot, Tensor};
use antiphon_types::RunsOn;
use std::cell::Cell;
use std::path::Path;
use std::time::Duration;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

const FLOATS: &[Kind] = &[Kind::F32, Kind::F16];
const WHOLE: &[Kind] = &[Kind::I64, Kind::I32];

/// See the module.
pub struct Graphs {
    /// What it takes and gives.
    pub sizes: Sizes,
    /// Numbers of an encoder frame.
    pub width: usize,
    pub(super) encoder: Model,
    pub(super) runtime: Runtime,
    decoder: Model,
    joiner: Model,
    /// Whether several rows share a run, of each graph.
    pub(super) batches: Batches,
    never: CancellationToken,
    /// Since the start.
    in_runs: Cell<Duration>,
}

/// Whether several rows share a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Batches {
    /// Of the encoder.
    pub encoder: bool,
    /// Of the predictor.
    pub decoder: bool,
    /// Of the joiner.
    pub joiner: bool,
}

/// The predictor's state and output for one stream.
#[derive(Clone, Debug, PartialEq)]
pub struct PredictorState {
    /// Of all layers, the first one first.
    pub hidden: Vec<f32>,
    /// The same.
    pub cell: Vec<f32>,
    /// The output for the tokens so far.
    pub output: Vec<f32>,
}

/// A port that is expected at a position.
struct Expected<'a> {
    /// For messages.
    what: &'a str,
    kinds: &'a [Kind],
    /// `None`: the batch, or any size.
    shape: &'a [Option<usize>],
}

/// The ports of one direction of a graph.
struct Ports<'a> {
    path: &'a Path,
    direction: &'a str,
    slots: &'a [Slot],
}

impl Ports<'_> {
    fn inputs(model: &Model) -> Ports<'_> {
        Ports { path: model.path(), direction: "input", slots: model.inputs() }
    }

    fn outputs(model: &Model) -> Ports<'_> {
        Ports { path: model.path(), direction: "output", slots: model.outputs() }
    }

    /// The port at a position, where it is as expected.
    fn at(&self, place: usize, expected: &Expected<'_>) -> Result<&Slot, FileError> {
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
    fn takes_batches(&self, ports: &[(usize, usize)]) -> Result<bool, FileError> {
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
        let decoder = runtime.load(&files.decoder, &options)?;
        check_decoder(&decoder, &sizes)?;
        let joiner = runtime.load(&files.joiner, &options)?;
        check_joiner(&joiner, &sizes, width)?;
        let batches = Batches {
            encoder: Ports::inputs(&encoder).takes_batches(&[(0, 0), (1, 0), (2, 0), (3, 0), (4, 0)])?,
            decoder: Ports::inputs(&decoder).takes_batches(&[(0, 0), (1, 0), (2, 1), (3, 1)])?,
            joiner: Ports::inputs(&joiner).takes_batches(&[(0, 0), (1, 0)])?,
        };
        for (model, takes) in [(&encoder, batches.encoder), (&decoder, batches.decoder), (&joiner, batches.joiner)] {
            if !takes {
                tracing::warn!(model = %model.path().display(), "its batch is fixed to one row: it runs row by row");
            }
        }
        let graphs = Self {
            sizes,
            width,
            encoder,
            runtime: runtime.clone(),
            decoder,
            joiner,
            batches,
            never: CancellationToken::new(),
            in_runs: Cell::default(),
        };
        graphs.warm()?;
        Ok(graphs)
    }

    /// What runs keep busy.
    pub fn runs_on(&self) -> RunsOn {
        self.encoder.runs_on()
    }

    /// How long runs have taken since the start, with what is copied for them.
    pub fn in_runs(&self) -> Duration {
        self.in_runs.get()
    }

    /// A run of the encoder. Blocks for as long as that takes.
    ///
    /// # Errors
    /// [`OnnxError`] when the run fails.
    pub(super) fn encode(&self, inputs: &[(&str, Tensor<'_>)]) -> Result<Outputs, OnnxError> {
        self.timed(&self.encoder, inputs)
    }

    /// The predictor before the first token: its output for the blank. Blocks for a run.
    ///
    /// # Errors
    /// [`OnnxError`] when the run fails.
    pub fn first_prediction(&self) -> Result<PredictorState, OnnxError> {
        let n = self.sizes.pred_layers * self.sizes.pred_hidden;
        let mut state = PredictorState { hidden: vec![0.0; n], cell: vec![0.0; n], output: Vec::new() };
        self.predict(&mut [(self.sizes.n_pieces as u32, &mut state)])?;
        Ok(state)
    }

    /// The predictor's next state for each stream and its last token. Blocks for a run, or one for each row where the batch is
    /// fixed.
    ///
    /// # Errors
    /// [`OnnxError`] when a run fails.
    pub fn predict(&self, rows: &mut [(u32, &mut PredictorState)]) -> Result<(), OnnxError> {
        let at_once = if self.batches.decoder { rows.len() } else { 1 };
        for rows in rows.chunks_mut(at_once.max(1)) {
            self.predict_together(rows)?;
        }
        Ok(())
    }

    fn predict_together(&self, rows: &mut [(u32, &mut PredictorState)]) -> Result<(), OnnxError> {
        let n = rows.len();
        let layers = self.sizes.pred_layers;
        let size = self.sizes.pred_hidden;
        let targets: Vec<i64> = rows.iter().map(|(token, _)| i64::from(*token)).collect();
        let lengths = vec![1; n];
        let mut hidden = Vec::with_capacity(layers * n * size);
        let mut cell = Vec::with_capacity(layers * n * size);
        for layer in 0..layers {
            for (_, state) in rows.iter() {
                hidden.extend_from_slice(&state.hidden[layer * size..(layer + 1) * size]);
                cell.extend_from_slice(&state.cell[layer * size..(layer + 1) * size]);
            }
        }
        let ports = self.decoder.inputs();
        let inputs = [
            (ports[0].name.as_str(), Tensor::i64([n, 1], &targets)),
            (ports[1].name.as_str(), Tensor::i64([n], &lengths)),
            (ports[2].name.as_str(), Tensor::f32([layers, n, size], &hidden)),
            (ports[3].name.as_str(), Tensor::f32([layers, n, size], &cell)),
        ];
        let outputs = self.timed(&self.decoder, &inputs)?;
        let output = sized(outputs.at(0)?.f32()?, n * size, "the decoder")?;
        let hidden = sized(outputs.at(2)?.f32()?, layers * n * size, "the decoder")?;
        let cell = sized(outputs.at(3)?.f32()?, layers * n * size, "the decoder")?;
        for (row, (_, state)) in rows.iter_mut().enumerate() {
            state.output.clear();
            state.output.extend_from_slice(&output[row * size..(row + 1) * size]);
            for layer in 0..layers {
                let from = (layer * n + row) * size..(layer * n + row + 1) * size;
                let to = layer * size..(layer + 1) * size;
                state.hidden[to.clone()].copy_from_slice(&hidden[from.clone()]);
                state.cell[to].copy_from_slice(&cell[from]);
            }
        }
        Ok(())
    }

    /// The logits of each row, [rows, tokens], of its encoder frame ([rows, width]) and its prediction ([rows, hidden]). Blocks
    /// for a run, or one for each row where the batch is fixed.
    ///
    /// # Errors
    /// [`OnnxError`] when a run fails.
    pub fn join(&self, frames: &[f32], predictions: &[f32], logits: &mut Vec<f32>) -> Result<(), OnnxError> {
        let size = self.sizes.pred_hidden;
        let n_rows = predictions.len() / size;
        let at_once = if self.batches.joiner { n_rows } else { 1 }.max(1);
        let ports = self.joiner.inputs();
        logits.clear();
        for (frames, predictions) in frames.chunks(at_once * self.width).zip(predictions.chunks(at_once * size)) {
            let n = predictions.len() / size;
            let inputs = [
                (ports[0].name.as_str(), Tensor::f32([n, self.width, 1], frames)),
                (ports[1].name.as_str(), Tensor::f32([n, size, 1], predictions)),
            ];
            let outputs = self.timed(&self.joiner, &inputs)?;
            logits.extend_from_slice(sized(outputs.at(0)?.f32()?, n * (self.sizes.n_pieces + 1), "the joiner")?);
        }
        Ok(())
    }

    /// Whether the encoder runs on the processor.
    pub fn is_on_host(&self) -> bool {
        self.encoder.is_on_host()
    }

    /// Counts what runs take.
    pub(super) fn while_timed<R>(&self, runs: impl FnOnce() -> R) -> R {
        let begun = Instant::now();
        let result = runs();
        self.in_runs.set(self.in_runs.get() + begun.elapsed());
        result
    }

    fn timed(&self, model: &Model, inputs: &[(&str, Tensor<'_>)]) -> Result<Outputs, OnnxError> {
        self.while_timed(|| model.run(inputs, &self.never))
    }

    /// One run of predictor and joiner each, whose outputs show what the declared shapes left open.
    fn warm(&self) -> Result<(), FileError> {
        let state = self.first_prediction()?;
        let mut logits = Vec::new();
        self.join(&vec![0.0; self.width], &state.output, &mut logits)?;
        Ok(())
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

fn check_decoder(decoder: &Model, sizes: &Sizes) -> Result<(), FileError> {
    let batch = None;
    let state = [Some(sizes.pred_layers), batch, Some(sizes.pred_hidden)];
    let inputs = Ports::inputs(decoder);
    inputs.at(0, &Expected { what: "tokens", kinds: WHOLE, shape: &[batch, Some(1)] })?;
    inputs.at(1, &Expected { what: "numbers of tokens", kinds: WHOLE, shape: &[batch] })?;
    inputs.at(2, &Expected { what: "the first state", kinds: FLOATS, shape: &state })?;
    inputs.at(3, &Expected { what: "the second state", kinds: FLOATS, shape: &state })?;
    let outputs = Ports::outputs(decoder);
    let output = [batch, Some(sizes.pred_hidden), None];
    outputs.at(0, &Expected { what: "the prediction", kinds: FLOATS, shape: &output })?;
    outputs.at(2, &Expected { what: "the next first state", kinds: FLOATS, shape: &state })?;
    outputs.at(3, &Expected { what: "the next second state", kinds: FLOATS, shape: &state })?;
    Ok(())
}

fn check_joiner(joiner: &Model, sizes: &Sizes, width: usize) -> Result<(), FileError> {
    let any = None;
    let inputs = Ports::inputs(joiner);
    inputs.at(0, &Expected { what: "encoder frames", kinds: FLOATS, shape: &[any, Some(width), any] })?;
    inputs.at(1, &Expected { what: "predictions", kinds: FLOATS, shape: &[any, Some(sizes.pred_hidden), any] })?;
    let logits = [any, any, any, Some(sizes.n_pieces + 1)];
    Ports::outputs(joiner).at(0, &Expected { what: "logits", kinds: FLOATS, shape: &logits })?;
    Ok(())
}
