//! The graph that draws the other codebooks of a frame: the inner loop over codebooks, one run for the frames of all rows.
//!
//! Its randomness comes from outside, so that a seed decides it. Used by [`engine`](super::super::engine), through
//! [`LanguageModel::frames`](super::LanguageModel::frames). Ports: models/export/LAYOUT.md.

use super::super::contract::{Contract, Frame as Rules};
use super::super::files::ModelFiles;
use super::{LmError, bucket, ports};
use antiphon_inference::onnx::{Kind, Model, ModelOptions, OnnxError, Runtime, Tensor};
use tokio_util::sync::CancellationToken;

/// See the module.
pub struct FrameGraph {
    model: Model,
    rules: Rules,
    hidden: usize,
    /// Codes that it draws.
    n_drawn: usize,
}

/// What one run gives, row by row.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Frames {
    /// The codes of the codebooks behind the first, [rows, codebooks - 1].
    pub codes: Vec<i64>,
    /// The embeddings of the frames, [rows, hidden].
    pub embeds: Vec<f32>,
}

impl FrameGraph {
    /// Loads the graph, where the family has one, and checks its ports. `hidden`: numbers of an embedding.
    ///
    /// # Errors
    /// [`LmError`] names the file, the port, what is there and what should be.
    pub fn load(
        files: &ModelFiles,
        contract: &Contract,
        runtime: &Runtime,
        hidden: usize,
    ) -> Result<Option<Self>, LmError> {
        let (Some(rules), Some(file)) = (&contract.frame, &files.frame) else { return Ok(None) };
        let model = runtime.load(file, &ModelOptions::default())?;
        let (n_drawn, f32) = (contract.tokens.codebooks - 1, || vec![Kind::F32]);
        let wants = [
            ("hidden", f32(), vec![None, Some(hidden)]),
            ("code", vec![Kind::I64], vec![None]),
            ("uniform", f32(), vec![None, Some(n_drawn)]),
            ("temperature", f32(), vec![]),
            ("top_k", vec![Kind::I64], vec![]),
            ("top_p", f32(), vec![]),
        ]
        .map(|(name, kinds, shape)| (name.to_owned(), kinds, shape));
        ports::inputs(contract, &model, &wants)?;
        ports::output(contract, &model, "codes", &[Kind::I64], &[None, Some(n_drawn)])?;
        ports::output(contract, &model, "embeds", &f32(), &[None, Some(hidden)])?;
        Ok(Some(Self { model, rules: rules.clone(), hidden, n_drawn }))
    }

    /// Codes that it draws for a frame: those of all codebooks but the first.
    pub fn n_drawn(&self) -> usize {
        self.n_drawn
    }

    /// The frames of rows with these hidden states [rows, hidden] and first codes [rows]; `uniform` is a random number in
    /// [0, 1) for each code to draw, [rows, codebooks - 1]. Blocks for the run.
    ///
    /// # Errors
    /// [`OnnxError`]: the device failed; [`OnnxError::Output`] where the graph gives no numbers.
    pub fn frames(&self, hidden: &[f32], codes: &[i64], uniform: &[f32]) -> Result<Frames, OnnxError> {
        let (n, n_rows) = (codes.len(), bucket(codes.len()));
        let mut padded = (hidden.to_vec(), codes.to_vec(), uniform.to_vec());
        padded.0.resize(n_rows * self.hidden, 0.0);
        padded.1.resize(n_rows, 0);
        padded.2.resize(n_rows * self.n_drawn, 0.0);
        let (temperature, top_k, top_p) = ([self.rules.temperature], [self.rules.top_k as i64], [self.rules.top_p]);
        let outputs = self.model.run(
            &[
                ("hidden", Tensor::f32([n_rows, self.hidden], &padded.0)),
                ("code", Tensor::i64([n_rows], &padded.1)),
                ("uniform", Tensor::f32([n_rows, self.n_drawn], &padded.2)),
                ("temperature", Tensor::f32([], &temperature)),
                ("top_k", Tensor::i64([], &top_k)),
                ("top_p", Tensor::f32([], &top_p)),
            ],
            &CancellationToken::new(),
        )?;
        let codes = outputs.named("codes")?.i64()?;
        let embeds = outputs.named("embeds")?.f32()?;
        let short = || OnnxError::Output(format!("{} codes and {} numbers for {n} rows", codes.len(), embeds.len()));
        Ok(Frames {
            codes: codes.get(..n * self.n_drawn).ok_or_else(short)?.to_vec(),
            embeds: embeds.get(..n * self.hidden).ok_or_else(short)?.to_vec(),
        })
    }
}
