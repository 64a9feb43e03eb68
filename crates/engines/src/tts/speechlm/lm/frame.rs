//! The graph that draws the codes of a frame: the inner loop over codebooks, one run for the frames of all rows.
//!
//! Its randomness comes from outside, so that a seed decides it. Either it is given the first code and draws the others, by the
//! contract's settings; or it draws all of them by settings of its own, and says whether the speech goes on. Used by
//! [`engine`](super::super::engine), through [`LanguageModel::frames`](super::LanguageModel::frames). Ports:
//! models/export/LAYOUT.md.

use super::super::contract::{Contract, Frame as Rules, FrameDraws};
use super::super::files::ModelFiles;
use super::ports::Ports;
use super::{LmError, ports};
use antiphon_inference::onnx::{Kind, Model, ModelOptions, OnnxError, Runtime, Tensor};
use std::slice::from_ref;
use tokio_util::sync::CancellationToken;

/// See the module.
pub struct FrameGraph {
    model: Model,
    rules: Rules,
    shape: FrameShape,
    /// Numbers of a hidden state and of an embedding.
    n_hidden: usize,
    n_embed: usize,
}

/// What a run of the graph takes and gives for each row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameShape {
    /// Whether it draws the first code, too.
    pub draws_all: bool,
    /// Codes that it draws.
    pub n_drawn: usize,
    /// Random numbers that it takes: one for each of them, and one before them for the end where it is whole.
    pub n_uniform: usize,
    /// Flags of what was drawn before, one for each id of each codebook; 0 where it takes none.
    pub n_seen: usize,
}

/// What a run takes, row by row.
#[derive(Clone, Copy, Debug, Default)]
pub struct FrameInputs<'a> {
    /// Hidden states as a run of the language model gave them, [rows, hidden].
    pub hidden: &'a [f32],
    /// First codes, [rows]; 0 for each where the graph draws them.
    pub codes: &'a [i64],
    /// Random numbers in [0, 1), [rows, `n_uniform`].
    pub uniform: &'a [f32],
    /// Flags, 0 or 1, [rows, `n_seen`].
    pub seen: &'a [i32],
}

/// What a run gives, row by row.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Frames {
    /// The codes that it drew, [rows, `n_drawn`].
    pub codes: Vec<i64>,
    /// The embeddings of the frames, [rows, embedding].
    pub embeds: Vec<f32>,
    /// Whether the speech goes on with this frame.
    pub goes_on: Vec<bool>,
}

impl FrameGraph {
    /// Loads the graph, where the family has one, and checks its ports.
    ///
    /// # Errors
    /// [`LmError`] names the file, the port, what is there and what should be.
    pub fn load(
        files: &ModelFiles,
        contract: &Contract,
        runtime: &Runtime,
        sizes: &Ports,
    ) -> Result<Option<Self>, LmError> {
        let (Some(rules), Some(file)) = (contract.frame(), &files.frame) else { return Ok(None) };
        let model = runtime.load(file, &ModelOptions::default())?;
        let codebooks = rules.codebooks;
        let vocabulary = contract.tokens.vocabulary;
        let shape = match rules.draws {
            FrameDraws::All { takes_seen } => FrameShape {
                draws_all: true,
                n_drawn: codebooks,
                n_uniform: codebooks + 1,
                n_seen: if takes_seen { codebooks * vocabulary } else { 0 },
            },
            FrameDraws::Others { .. } => {
                FrameShape { draws_all: false, n_drawn: codebooks - 1, n_uniform: codebooks - 1, n_seen: 0 }
            }
        };
        let f32 = || vec![Kind::F32];
        let mut wants = vec![
            ("hidden", f32(), vec![None, Some(sizes.n_hidden)]),
            ("uniform", f32(), vec![None, Some(shape.n_uniform)]),
        ];
        if !shape.draws_all {
            wants.push(("code", vec![Kind::I64], vec![None]));
            wants.push(("temperature", f32(), vec![]));
            wants.push(("top_k", vec![Kind::I64], vec![]));
            wants.push(("top_p", f32(), vec![]));
        }
        if shape.n_seen > 0 {
            wants.push(("seen", vec![Kind::I32], vec![None, Some(codebooks), Some(vocabulary)]));
        }
        let wants: Vec<_> = wants.into_iter().map(|(name, kinds, shape)| (name.to_owned(), kinds, shape)).collect();
        ports::inputs(contract, &model, &wants)?;
        ports::output(contract, &model, "codes", &[Kind::I64], &[None, Some(shape.n_drawn)])?;
        ports::output(contract, &model, "embeds", &f32(), &[None, Some(sizes.hidden)])?;
        if shape.draws_all {
            ports::output(contract, &model, "goes_on", &[Kind::Bool], &[None])?;
        }
        Ok(Some(Self { model, rules: rules.clone(), shape, n_hidden: sizes.n_hidden, n_embed: sizes.hidden }))
    }

    /// What a run takes and gives.
    pub fn shape(&self) -> FrameShape {
        self.shape
    }

    /// The frames of these rows, in a run of `n_rows` rows, at least as many. Blocks for the run.
    ///
    /// # Errors
    /// [`OnnxError`]: the device failed; [`OnnxError::Output`] where the graph gives no numbers.
    pub fn frames(&self, inputs: FrameInputs<'_>, n_rows: usize) -> Result<Frames, OnnxError> {
        let n = inputs.codes.len();
        let shape = self.shape;
        let hidden = padded(inputs.hidden, n_rows * self.n_hidden);
        let uniform = padded(inputs.uniform, n_rows * shape.n_uniform);
        let codes = padded(inputs.codes, n_rows);
        let seen = padded(inputs.seen, n_rows * shape.n_seen);
        let mut given = vec![
            ("hidden", Tensor::f32([n_rows, self.n_hidden], &hidden)),
            ("uniform", Tensor::f32([n_rows, shape.n_uniform], &uniform)),
        ];
        if let FrameDraws::Others { temperature, top_k, top_p, .. } = &self.rules.draws {
            given.push(("code", Tensor::i64([n_rows], &codes)));
            given.push(("temperature", Tensor::f32([], from_ref(temperature))));
            given.push(("top_k", Tensor::i64([], from_ref(top_k))));
            given.push(("top_p", Tensor::f32([], from_ref(top_p))));
        }
        if shape.n_seen > 0 {
            given.push(("seen", Tensor::i32([n_rows, shape.n_drawn, shape.n_seen / shape.n_drawn], &seen)));
        }
        let outputs = self.model.run(&given, &CancellationToken::new())?;
        let codes = outputs.named("codes")?.i64()?;
        let embeds = outputs.named("embeds")?.f32()?;
        let goes_on = match shape.draws_all {
            true => outputs.named("goes_on")?.i64()?.iter().take(n).map(|flag| *flag != 0).collect(),
            false => vec![true; n],
        };
        let short = || OnnxError::Output(format!("{} codes and {} numbers for {n} rows", codes.len(), embeds.len()));
        Ok(Frames {
            codes: codes.get(..n * shape.n_drawn).ok_or_else(short)?.to_vec(),
            embeds: embeds.get(..n * self.n_embed).ok_or_else(short)?.to_vec(),
            goes_on: Some(goes_on).filter(|flags| flags.len() == n).ok_or_else(short)?,
        })
    }
}

fn padded<T: Clone + Default>(numbers: &[T], n: usize) -> Vec<T> {
    let mut numbers = numbers.to_vec();
    numbers.resize(n, T::default());
    numbers
}
