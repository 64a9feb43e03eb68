//! The predictor and the joiner of a recognizer: two graphs, or one that does both.
//!
//! Published models have two: the joiner runs for each pair of frame and symbol, the predictor for each token. Our own export,
//! and NeMo's, has `decoder_joint`, one run for each pair: it gives the logits and the predictor's next state, which counts once
//! the search accepts a token. Ports are taken by their position and checked. A graph whose batch is fixed to one row is run row
//! by row. [`Graphs`](super::graphs::Graphs) has one; it keeps nothing of a stream, whose [`PredictorState`] is with it.

use super::files::{FileError, PredictorFiles, Sizes};
use super::graphs::{Expected, FLOATS, Ports, RunClock, WHOLE, sized};
use antiphon_inference::onnx::{Model, ModelOptions, OnnxError, Runtime, Tensor};

/// See the module.
pub struct Predictor {
    graphs: PredictorGraphs,
    layers: usize,
    hidden: usize,
    /// Numbers of an encoder frame.
    width: usize,
    /// Tokens with the blank.
    n_tokens: usize,
}

enum PredictorGraphs {
    Apart { decoder: Graph, joiner: Graph },
    Joint(Graph),
}

struct Graph {
    model: Model,
    /// Whether several rows share a run.
    takes_batches: bool,
}

/// The predictor's state for one stream.
#[derive(Clone, Debug, PartialEq)]
pub struct PredictorState {
    /// Of all layers, the first one first: behind the last token, or before it where one graph does both.
    hidden: Vec<f32>,
    /// The same.
    cell: Vec<f32>,
    pending: Pending,
}

#[derive(Clone, Debug, PartialEq)]
enum Pending {
    /// The predictor's output for the tokens so far.
    Output(Vec<f32>),
    /// The last token, and the states behind it that the last run gave.
    Token { token: u32, hidden: Vec<f32>, cell: Vec<f32> },
}

impl Predictor {
    /// Loads the graphs and checks their ports. Blocks meanwhile.
    ///
    /// # Errors
    /// [`FileError`] with the file and what is wrong.
    pub fn load(files: &PredictorFiles, sizes: &Sizes, width: usize, runtime: &Runtime) -> Result<Self, FileError> {
        let options = ModelOptions::default();
        let graphs = match files {
            PredictorFiles::Apart { decoder, joiner } => {
                let decoder = runtime.load(decoder, &options)?;
                check_decoder(&decoder, sizes)?;
                let joiner = runtime.load(joiner, &options)?;
                check_joiner(&joiner, sizes, width)?;
                PredictorGraphs::Apart {
                    decoder: Graph::new(decoder, &[(0, 0), (1, 0), (2, 1), (3, 1)])?,
                    joiner: Graph::new(joiner, &[(0, 0), (1, 0)])?,
                }
            }
            PredictorFiles::Joint(path) => {
                let model = runtime.load(path, &options)?;
                check_joint(&model, sizes, width)?;
                PredictorGraphs::Joint(Graph::new(model, &[(0, 0), (1, 0), (2, 0), (3, 1), (4, 1)])?)
            }
        };
        let layers = sizes.pred_layers;
        let hidden = sizes.pred_hidden;
        Ok(Self { graphs, layers, hidden, width, n_tokens: sizes.n_pieces + 1 })
    }

    /// The graph that gives logits.
    pub fn scorer(&self) -> &Model {
        match &self.graphs {
            PredictorGraphs::Apart { joiner, .. } => &joiner.model,
            PredictorGraphs::Joint(graph) => &graph.model,
        }
    }

    /// Whether several rows share each run.
    #[cfg(test)]
    pub fn takes_batches(&self) -> bool {
        match &self.graphs {
            PredictorGraphs::Apart { decoder, joiner } => decoder.takes_batches && joiner.takes_batches,
            PredictorGraphs::Joint(graph) => graph.takes_batches,
        }
    }

    /// The state before the first token: behind the blank. Blocks for a run where there are two graphs.
    ///
    /// # Errors
    /// [`OnnxError`] when the run fails.
    pub fn start(&self, clock: &RunClock) -> Result<PredictorState, OnnxError> {
        let blank = (self.n_tokens - 1) as u32;
        let zeros = vec![0.0; self.layers * self.hidden];
        let pending = match &self.graphs {
            PredictorGraphs::Apart { .. } => Pending::Output(Vec::new()),
            PredictorGraphs::Joint(_) => Pending::Token { token: blank, hidden: zeros.clone(), cell: zeros.clone() },
        };
        let mut state = PredictorState { hidden: zeros.clone(), cell: zeros, pending };
        if let PredictorGraphs::Apart { decoder, .. } = &self.graphs {
            self.predict(decoder, &mut [(blank, &mut state)], clock)?;
        }
        Ok(state)
    }

    /// The logits of each row, [rows, tokens], of its encoder frame ([rows, width]) and its state. Blocks for a run, or one for
    /// each row where the batch is fixed.
    ///
    /// # Errors
    /// [`OnnxError`] when a run fails.
    pub fn score(
        &self,
        frames: &[f32],
        states: &mut [&mut PredictorState],
        logits: &mut Vec<f32>,
        clock: &RunClock,
    ) -> Result<(), OnnxError> {
        logits.clear();
        let graph = match &self.graphs {
            PredictorGraphs::Apart { joiner, .. } => joiner,
            PredictorGraphs::Joint(graph) => graph,
        };
        let at_once = graph.rows_at_once(states.len());
        for (frames, states) in frames.chunks(at_once * self.width).zip(states.chunks_mut(at_once)) {
            match &self.graphs {
                PredictorGraphs::Apart { joiner, .. } => self.join(joiner, frames, states, logits, clock)?,
                PredictorGraphs::Joint(graph) => self.step(graph, frames, states, logits, clock)?,
            }
        }
        Ok(())
    }

    /// Moves each state on by a token, which the search took from the logits of the last [`Predictor::score`]. Blocks for a run
    /// where there are two graphs, or one for each row where the batch is fixed.
    ///
    /// # Errors
    /// [`OnnxError`] when a run fails.
    pub fn accept(&self, rows: &mut [(u32, &mut PredictorState)], clock: &RunClock) -> Result<(), OnnxError> {
        match &self.graphs {
            PredictorGraphs::Apart { decoder, .. } => {
                let at_once = decoder.rows_at_once(rows.len());
                for rows in rows.chunks_mut(at_once) {
                    self.predict(decoder, rows, clock)?;
                }
            }
            PredictorGraphs::Joint(_) => {
                for (accepted, state) in rows {
                    if let Pending::Token { token, hidden, cell } = &mut state.pending {
                        *token = *accepted;
                        state.hidden.copy_from_slice(hidden);
                        state.cell.copy_from_slice(cell);
                    }
                }
            }
        }
        Ok(())
    }

    /// The predictor's next state and output for each row and its token.
    fn predict(
        &self,
        decoder: &Graph,
        rows: &mut [(u32, &mut PredictorState)],
        clock: &RunClock,
    ) -> Result<(), OnnxError> {
        let n = rows.len();
        let size = self.hidden;
        let targets: Vec<i64> = rows.iter().map(|(token, _)| i64::from(*token)).collect();
        let lengths = vec![1; n];
        let hidden = self.stacked(rows.iter().map(|(_, state)| &state.hidden[..]), n);
        let cell = self.stacked(rows.iter().map(|(_, state)| &state.cell[..]), n);
        let ports = decoder.model.inputs();
        let inputs = [
            (ports[0].name.as_str(), Tensor::i64([n, 1], &targets)),
            (ports[1].name.as_str(), Tensor::i64([n], &lengths)),
            (ports[2].name.as_str(), Tensor::f32([self.layers, n, size], &hidden)),
            (ports[3].name.as_str(), Tensor::f32([self.layers, n, size], &cell)),
        ];
        let outputs = clock.run(&decoder.model, &inputs)?;
        let output = sized(outputs.at(0)?.f32()?, n * size, "the decoder")?;
        let hidden = sized(outputs.at(2)?.f32()?, self.layers * n * size, "the decoder")?;
        let cell = sized(outputs.at(3)?.f32()?, self.layers * n * size, "the decoder")?;
        for (row, (_, state)) in rows.iter_mut().enumerate() {
            state.pending = Pending::Output(output[row * size..(row + 1) * size].to_vec());
            self.unstack(hidden, row, n, &mut state.hidden);
            self.unstack(cell, row, n, &mut state.cell);
        }
        Ok(())
    }

    /// The joiner alone.
    fn join(
        &self,
        joiner: &Graph,
        frames: &[f32],
        states: &[&mut PredictorState],
        logits: &mut Vec<f32>,
        clock: &RunClock,
    ) -> Result<(), OnnxError> {
        let n = states.len();
        let mut predictions = Vec::with_capacity(n * self.hidden);
        for state in states {
            if let Pending::Output(output) = &state.pending {
                predictions.extend_from_slice(output);
            }
        }
        let ports = joiner.model.inputs();
        let inputs = [
            (ports[0].name.as_str(), Tensor::f32([n, self.width, 1], frames)),
            (ports[1].name.as_str(), Tensor::f32([n, self.hidden, 1], &predictions)),
        ];
        let outputs = clock.run(&joiner.model, &inputs)?;
        logits.extend_from_slice(sized(outputs.at(0)?.f32()?, n * self.n_tokens, "the joiner")?);
        Ok(())
    }

    /// Predictor and joiner in one run.
    fn step(
        &self,
        graph: &Graph,
        frames: &[f32],
        states: &mut [&mut PredictorState],
        logits: &mut Vec<f32>,
        clock: &RunClock,
    ) -> Result<(), OnnxError> {
        let n = states.len();
        let last_token = |state: &&mut PredictorState| match state.pending {
            Pending::Token { token, .. } => i64::from(token),
            Pending::Output(_) => 0,
        };
        let targets: Vec<i64> = states.iter().map(last_token).collect();
        let lengths = vec![1; n];
        let hidden = self.stacked(states.iter().map(|state| &state.hidden[..]), n);
        let cell = self.stacked(states.iter().map(|state| &state.cell[..]), n);
        let ports = graph.model.inputs();
        let inputs = [
            (ports[0].name.as_str(), Tensor::f32([n, self.width, 1], frames)),
            (ports[1].name.as_str(), Tensor::i64([n, 1], &targets)),
            (ports[2].name.as_str(), Tensor::i64([n], &lengths)),
            (ports[3].name.as_str(), Tensor::f32([self.layers, n, self.hidden], &hidden)),
            (ports[4].name.as_str(), Tensor::f32([self.layers, n, self.hidden], &cell)),
        ];
        let outputs = clock.run(&graph.model, &inputs)?;
        let n_state = self.layers * n * self.hidden;
        let next_hidden = sized(outputs.at(2)?.f32()?, n_state, "decoder_joint")?;
        let next_cell = sized(outputs.at(3)?.f32()?, n_state, "decoder_joint")?;
        for (row, state) in states.iter_mut().enumerate() {
            if let Pending::Token { hidden, cell, .. } = &mut state.pending {
                self.unstack(next_hidden, row, n, hidden);
                self.unstack(next_cell, row, n, cell);
            }
        }
        logits.extend_from_slice(sized(outputs.at(0)?.f32()?, n * self.n_tokens, "decoder_joint")?);
        Ok(())
    }

    /// States of `n` rows as [layers, rows, hidden].
    fn stacked<'a>(&self, states: impl Iterator<Item = &'a [f32]> + Clone, n: usize) -> Vec<f32> {
        let mut stacked = Vec::with_capacity(self.layers * n * self.hidden);
        for layer in 0..self.layers {
            for state in states.clone() {
                stacked.extend_from_slice(&state[layer * self.hidden..(layer + 1) * self.hidden]);
            }
        }
        stacked
    }

    /// The state of a row out of [layers, rows, hidden].
    fn unstack(&self, stacked: &[f32], row: usize, n: usize, state: &mut [f32]) {
        for layer in 0..self.layers {
            let first = (layer * n + row) * self.hidden;
            let of_layer = &mut state[layer * self.hidden..(layer + 1) * self.hidden];
            of_layer.copy_from_slice(&stacked[first..first + self.hidden]);
        }
    }
}

impl Graph {
    /// `batch_axes`: where the inputs have their batch, by port.
    fn new(model: Model, batch_axes: &[(usize, usize)]) -> Result<Self, FileError> {
        let takes_batches = Ports::inputs(&model).takes_batches(batch_axes)?;
        if !takes_batches {
            tracing::warn!(model = %model.path().display(), "its batch is fixed to one row: it runs row by row");
        }
        Ok(Self { model, takes_batches })
    }

    fn rows_at_once(&self, n_rows: usize) -> usize {
        if self.takes_batches { n_rows.max(1) } else { 1 }
    }
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

fn check_joint(graph: &Model, sizes: &Sizes, width: usize) -> Result<(), FileError> {
    let any = None;
    let state = [Some(sizes.pred_layers), any, Some(sizes.pred_hidden)];
    let inputs = Ports::inputs(graph);
    inputs.at(0, &Expected { what: "encoder frames", kinds: FLOATS, shape: &[any, Some(width), any] })?;
    inputs.at(1, &Expected { what: "tokens", kinds: WHOLE, shape: &[any, Some(1)] })?;
    inputs.at(2, &Expected { what: "numbers of tokens", kinds: WHOLE, shape: &[any] })?;
    inputs.at(3, &Expected { what: "the first state", kinds: FLOATS, shape: &state })?;
    inputs.at(4, &Expected { what: "the second state", kinds: FLOATS, shape: &state })?;
    let outputs = Ports::outputs(graph);
    let logits = [any, any, any, Some(sizes.n_pieces + 1)];
    outputs.at(0, &Expected { what: "logits", kinds: FLOATS, shape: &logits })?;
    outputs.at(2, &Expected { what: "the next first state", kinds: FLOATS, shape: &state })?;
    outputs.at(3, &Expected { what: "the next second state", kinds: FLOATS, shape: &state })?;
    Ok(())
}
