//! The language model of a family: prefill, decoding in batches, and the caches between.
//!
//! One thread owns a [`LanguageModel`]: the slot scheduler's, through [`engine`](super::engine). Of its graphs one decodes. What
//! that is fed are embeddings: of a token, by the embedding graph, or of a frame of several codebooks, by the graph that draws
//! them. Caches stay on the device; what comes to the host is the logits, and with several codebooks some kilobytes of each
//! frame. How rows of several lengths share a run is the contract's [`Policy`]; [`self_test`](LanguageModel::self_test)
//! compares batched with single runs at load, and what differs is run one row at a time. It draws no tokens of its own, reads
//! no text and makes no sound.

mod cache;
mod frame;
mod moving;
pub mod ports;
mod prompt;
mod steady;

pub use cache::SequenceId;
pub use frame::{FrameInputs, FrameShape, Frames};
pub use prompt::Prompt;

use super::condition::Conditioning;
use super::contract::{CacheKind, Contract, Policy};
use super::files::ModelFiles;
use super::text::Ids;
use antiphon_inference::onnx::{
    Binding, DeviceTensor, Kind, Model, ModelOptions, OnnxError, OutputMemory, Provider, Runtime, Tensor,
};
use cache::{Alignment, Cache};
use frame::FrameGraph;
use moving::Mover;
use ports::Ports;
use prompt::PromptGraph;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use steady::SteadyCache;
use tokio::time::Instant;

/// Rows of a run: the smallest of these that holds all. Each is warmed before the engine is ready.
pub const BUCKETS: [usize; 6] = [1, 2, 4, 8, 16, 32];

/// Why a step of the language model failed.
#[derive(Debug, thiserror::Error)]
pub enum LmError {
    /// A graph does not fit the contract.
    #[error("the model does not fit the contract {contract}: {} {wrong}", file.display())]
    Port {
        /// The contract's name.
        contract: String,
        /// The graph's file.
        file: std::path::PathBuf,
        /// The port, what is there and what should be.
        wrong: String,
    },
    /// The device that served has gone.
    #[error(
        "the model ran on {was} and can run on {is} only now: the GPU may have gone; see the log, and restart the hub"
    )]
    ProviderGone {
        /// The provider of the first start.
        was: Provider,
        /// The one that serves now.
        is: Provider,
    },
    /// The runtime failed.
    #[error(transparent)]
    Onnx(#[from] OnnxError),
}

/// What a sequence is fed in a step.
#[derive(Clone, Copy, Debug)]
pub enum Feed<'a> {
    /// Its last token.
    Token(i64),
    /// The embeddings of its last frame, [hidden].
    Embeds(&'a [f32]),
}

/// A sequence in a step, and what it is fed.
pub type Row<'a> = (SequenceId, Feed<'a>);

/// What a run of the language model gives, row by row.
#[derive(Clone, Debug, Default)]
pub struct StepOutputs {
    /// Logits of the next token, [rows, vocabulary].
    pub logits: Vec<f32>,
    /// Hidden states, [rows, `n_hidden`], where the frame graph takes them.
    pub hidden: Vec<f32>,
}

/// One step of these rows, as [`LanguageModel::decode`] has it.
type DecodeRows = fn(&mut LanguageModel, &[Row<'_>], &mut StepOutputs) -> Result<(), OnnxError>;

/// What the rows of a run are fed, in the run's order, unused rows included.
struct Feeds {
    tokens: Vec<i64>,
    /// Tokens that the row has generated, with this one.
    generated: Vec<i64>,
    /// Of rows that are fed embeddings, [rows, hidden].
    embeds: Vec<f32>,
}

/// What a run of the decoding graph takes beside its cache.
struct Inputs<'a> {
    n_rows: usize,
    /// Columns that are added to each row.
    n_new: usize,
    /// All columns, with those that are added.
    n_columns: usize,
    mask: &'a [i64],
    positions: &'a [i64],
    /// Of each row, with what is added.
    lengths: &'a [i32],
}

/// The caches, by how they are kept.
enum Caches {
    /// They grow by a column each step.
    Growing(Cache),
    /// They are read and written in place, at fixed addresses.
    Steady(SteadyCache),
}

/// See the module.
pub struct LanguageModel {
    contract: Arc<Contract>,
    prompt: Option<PromptGraph>,
    /// The embedding graph and its runs; none where frames come embedded.
    embed: Option<(Model, Binding)>,
    decode: Model,
    frame: Option<FrameGraph>,
    ports: Ports,
    policy: Policy,
    caches: Caches,
    prefill_run: Binding,
    decode_run: Binding,
    /// The only bucket that is used, where rows must not depend on how many there are.
    pinned: Option<usize>,
    /// Rows of a step, each a run of its own, that ran before one failed: the step is tried again without another row.
    ran: Vec<(SequenceId, StepOutputs)>,
    n_slots: usize,
    in_runs: Duration,
    /// Frames of one run that find memory.
    #[cfg(test)]
    n_frames_with_memory: usize,
}

impl LanguageModel {
    /// Loads the graphs and checks their ports. `n_slots` gives the number of slots, 1 to 32, from the bytes of a slot
    /// and the provider. Blocks for seconds.
    ///
    /// # Errors
    /// [`LmError`] names the file, the port, what is there and what should be.
    pub fn load(
        files: &ModelFiles,
        contract: &Arc<Contract>,
        runtime: &Runtime,
        n_slots: &dyn Fn(usize, Provider) -> usize,
    ) -> Result<Self, LmError> {
        let load = |path: &PathBuf| runtime.load(path, &ModelOptions::default());
        let embed = files.embed.as_ref().map(load).transpose()?;
        let decode = load(&files.decode)?;
        let ports = Ports::check(contract, embed.as_ref(), &decode)?;
        let prompt = PromptGraph::load(files, contract, runtime, ports.hidden)?;
        let frame = FrameGraph::load(files, contract, runtime, &ports)?;
        let bytes_per_slot = contract.slot_bytes(ports.cache_kind.n_bytes());
        let n_slots = n_slots(bytes_per_slot, decode.provider()).clamp(1, BUCKETS[BUCKETS.len() - 1]);
        let alignment = match contract.decode.policy {
            Policy::Ragged => Alignment::First,
            Policy::Masked | Policy::Single => Alignment::Last,
        };
        let caches = match contract.cache {
            CacheKind::InPlace { columns } => Caches::Steady(SteadyCache::new(&decode, &ports, n_slots, columns)?),
            CacheKind::Growing(_) => {
                Caches::Growing(Cache::new(alignment, Mover::for_model(&decode, runtime, &ports.cache_kind)?))
            }
        };
        let embed = embed.map(|embed| embed.binding().map(|run| (embed, run))).transpose()?;
        let prefill_run = decode.binding()?;
        let decode_run = decode.binding()?;
        let contract = contract.clone();
        let policy = contract.decode.policy;
        Ok(Self {
            contract,
            prompt,
            embed,
            decode,
            frame,
            ports,
            policy,
            caches,
            prefill_run,
            decode_run,
            pinned: None,
            ran: Vec::new(),
            n_slots,
            in_runs: Duration::ZERO,
            #[cfg(test)]
            n_frames_with_memory: usize::MAX,
        })
    }

    /// How rows share a run: the contract's policy, or `Single` where the self-test found that they do not.
    pub fn policy(&self) -> Policy {
        self.policy
    }

    /// Has each row run alone.
    pub fn demote(&mut self) {
        self.policy = Policy::Single;
    }

    /// Makes every run one of the largest bucket, so that a row's numbers do not depend on how many there are.
    pub fn pin(&mut self) {
        self.pinned = Some(bucket(self.n_slots));
    }

    /// What it runs on.
    pub fn provider(&self) -> Provider {
        self.decode.provider()
    }

    /// What a run keeps busy.
    pub fn runs_on(&self) -> antiphon_types::RunsOn {
        self.decode.runs_on()
    }

    /// Embeds the highest id that has a sound, as a step does: a vocabulary of another model is known by it. Blocks for the run.
    ///
    /// # Errors
    /// [`OnnxError::Inputs`], [`OnnxError::Run`] where the graph does not take it.
    pub fn embed_highest_sound(&mut self) -> Result<(), OnnxError> {
        let highest = (self.contract.tokens.sounds.min(self.ports.vocabulary as i64) - 1).max(0);
        match &self.frame {
            Some(_) => self.stand_in_frames(&vec![0.0; self.ports.n_hidden], &[highest]).map(drop),
            None => self.embed_ids(&[highest], &[1], 1, 1, OutputMemory::Host).map(drop),
        }
    }

    /// Sequences that it holds at once.
    pub fn n_slots(&self) -> usize {
        self.n_slots
    }

    /// How long the graphs of all steps ran, without prefills.
    pub fn in_runs(&self) -> Duration {
        self.in_runs
    }

    /// Bytes of the cache for one token of one sequence.
    pub fn bytes_per_token(&self) -> usize {
        self.contract.cache_bytes_per_token(self.ports.cache_kind.n_bytes())
    }

    /// Bytes of a slot when its sequence is as long as it may be.
    pub fn bytes_per_slot(&self) -> usize {
        self.contract.slot_bytes(self.ports.cache_kind.n_bytes())
    }

    /// Numbers of one embedding.
    pub fn hidden(&self) -> usize {
        self.ports.hidden
    }

    /// The prompt of these ids in this voice. Blocks for a run.
    ///
    /// # Errors
    /// [`OnnxError::Run`], [`OnnxError::Inputs`] where the graph does not have an id.
    pub fn prompt(&mut self, ids: &Ids, voice: &Conditioning) -> Result<Prompt, OnnxError> {
        if let Some(graph) = &self.prompt {
            return graph.prompt(ids, voice);
        }
        let mut embeds = voice.prefix.clone();
        embeds.extend(self.embed_text(ids.inputs.first().map_or(&[], Vec::as_slice))?);
        Ok(Prompt { embeds, following: Vec::new() })
    }

    /// Embeddings of the ids of a text, at the positions of a prompt: [length, hidden]. Blocks for the run.
    ///
    /// # Errors
    /// [`OnnxError::Run`], [`OnnxError::Inputs`] where the graph does not have an id.
    pub fn embed_text(&mut self, ids: &[i64]) -> Result<Vec<f32>, OnnxError> {
        let Some(embed) = self.contract.embed() else { return Ok(Vec::new()) };
        let first = embed.first_position;
        let zero_from = embed.zero_position_from;
        let position =
            |(i, id): (usize, &i64)| if zero_from.is_some_and(|from| *id >= from) { 0 } else { first + i as i64 };
        let positions: Vec<i64> = ids.iter().enumerate().map(position).collect();
        let embeds = self.embed_ids(ids, &positions, 1, ids.len(), OutputMemory::Host)?;
        let mut numbers = Vec::new();
        embeds.read_f32(0..ids.len() * self.ports.hidden, &mut numbers)?;
        Ok(numbers)
    }

    /// What [`frames`](Self::frames) takes and gives, where a frame has several codebooks.
    pub fn frame_shape(&self) -> Option<FrameShape> {
        self.frame.as_ref().map(FrameGraph::shape)
    }

    /// Numbers of one hidden state.
    pub fn n_hidden(&self) -> usize {
        self.ports.n_hidden
    }

    /// The codes of the frames of these rows, and the frames' embeddings. Blocks for the run.
    ///
    /// # Errors
    /// [`OnnxError`]: the device failed; [`OnnxError::Output`] where the family has no frames.
    pub fn frames(&mut self, inputs: FrameInputs<'_>) -> Result<Frames, OnnxError> {
        let frame = self.frame.as_ref().ok_or_else(|| OnnxError::Output("no graph for frames".into()))?;
        #[cfg(test)]
        if inputs.codes.len() > self.n_frames_with_memory {
            return Err(OnnxError::Run { path: "frame.onnx".into(), message: "out of memory".into() });
        }
        let begun = Instant::now();
        let n_rows = self.pinned.unwrap_or(0).max(bucket(inputs.codes.len()));
        let frames = frame.frames(inputs, n_rows);
        self.in_runs += begun.elapsed();
        frames
    }

    /// Frames where nothing is meant, of these hidden states and first codes.
    fn stand_in_frames(&mut self, hidden: &[f32], codes: &[i64]) -> Result<(), OnnxError> {
        let Some(shape) = self.frame_shape() else { return Ok(()) };
        let uniform = vec![0.5; codes.len() * shape.n_uniform];
        let seen = vec![0; codes.len() * shape.n_seen];
        self.frames(FrameInputs { hidden, codes, uniform: &uniform, seen: &seen }).map(drop)
    }

    /// Starts a sequence of these embeddings, [length, hidden], and gives what its first token is drawn from. Blocks for the run.
    ///
    /// # Errors
    /// [`OnnxError`]; no sequence is left behind.
    pub fn prefill(&mut self, embeds: &[f32], given: &mut StepOutputs) -> Result<SequenceId, OnnxError> {
        let length = embeds.len() / self.ports.hidden;
        let positions: Vec<i64> = (0..length as i64).collect();
        let inputs = Inputs {
            n_rows: 1,
            n_new: length,
            n_columns: length,
            mask: &vec![1; length],
            positions: &positions,
            lengths: &[length as i32],
        };
        let shape = [1, length, self.ports.hidden];
        let decode = &self.decode;
        let run = &mut self.prefill_run;
        let ports = &self.ports;
        decode.bind_host(run, &self.contract.decode.embeds, &Tensor::f32(shape, embeds))?;
        bind(decode, run, &self.contract, &inputs)?;
        let place = match &mut self.caches {
            Caches::Growing(_) => {
                for past in &ports.past {
                    let none = decode.device_tensor(&ports.cache_kind, &ports.cache_shape(1, 0))?;
                    decode.bind_input(run, past, &none)?;
                }
                bind_present(decode, run, ports)?;
                None
            }
            Caches::Steady(steady) => Some(steady.begin(decode, run, ports, length)?),
        };
        let outputs = decode.run_bound(run);
        let mut outputs = match (outputs, place, &mut self.caches) {
            (Ok(outputs), ..) => outputs,
            (Err(error), Some(id), Caches::Steady(steady)) => {
                steady.remove(id);
                return Err(error);
            }
            (Err(error), ..) => return Err(error),
        };
        let read = given.read_last(&mut outputs, ports);
        let id = match (place, &mut self.caches) {
            (Some(id), _) => id,
            (None, Caches::Growing(cache)) => cache.insert(outputs, length),
            (None, Caches::Steady(_)) => unreachable!("a steady cache gives a place"),
        };
        if let Err(error) = read {
            self.end(id);
            return Err(error);
        }
        Ok(id)
    }

    /// One step: each of these sequences is fed, and `given` is what the next tokens are drawn from, row by row in this order.
    /// No sequence may come twice. Blocks for the run.
    ///
    /// # Errors
    /// [`OnnxError`]: the device failed, and what the caches hold is undefined.
    pub fn decode(&mut self, rows: &[Row<'_>], given: &mut StepOutputs) -> Result<(), OnnxError> {
        match (&self.caches, self.policy) {
            (Caches::Steady(_), Policy::Single) => self.one_by_one(rows, given, Self::decode_steady),
            (Caches::Steady(_), _) => self.decode_steady(rows, given),
            (Caches::Growing(_), Policy::Single) => self.one_by_one(rows, given, Self::decode_alone),
            (Caches::Growing(_), _) => self.decode_batch(rows, given),
        }
    }

    /// Releases a sequence.
    pub fn end(&mut self, id: SequenceId) {
        self.ran.retain(|(known, _)| *known != id);
        match &mut self.caches {
            Caches::Growing(cache) => {
                cache.remove(id);
                if cache.is_empty() {
                    // What is bound holds the last caches.
                    self.prefill_run.clear();
                    self.decode_run.clear();
                }
            }
            Caches::Steady(steady) => steady.remove(id),
        }
    }

    /// The same, of one that ends since the device has no memory: the next step takes as little as the others need.
    pub fn end_for_memory(&mut self, id: SequenceId) {
        if let Caches::Growing(cache) = &mut self.caches {
            cache.shrink();
        }
        self.end(id);
    }

    /// Whether a sequence has no room for another token.
    pub fn is_full(&self, id: SequenceId) -> bool {
        match &self.caches {
            Caches::Growing(cache) => cache.length(id) >= self.contract.slot_tokens(),
            Caches::Steady(steady) => steady.is_full(id),
        }
    }

    /// Runs each bucket once, on a sequence of its own for each row, so that the first listener does not wait for the
    /// runtime's preparations. Blocks for a few runs a bucket.
    ///
    /// # Errors
    /// As of the runs.
    pub fn warm(&mut self) -> Result<(), OnnxError> {
        let mut given = StepOutputs::default();
        let prompt = vec![0.01; 8 * self.ports.hidden];
        let token = self.contract.unused_token();
        let vector = self.vector(1);
        let mut sequences = Vec::new();
        let largest = bucket(self.n_slots);
        for size in BUCKETS.into_iter().filter(|size| *size <= largest) {
            while sequences.len() < size.min(self.n_slots) {
                sequences.push(self.prefill(&prompt, &mut given)?);
            }
            let feed = self.stand_in(token, &vector);
            let rows: Vec<_> = sequences.iter().map(|id| (*id, feed)).collect();
            self.decode(&rows, &mut given)?;
            if self.policy == Policy::Single {
                break;
            }
        }
        for size in BUCKETS.into_iter().filter(|size| *size <= largest) {
            self.stand_in_frames(&vec![0.0; size * self.ports.n_hidden], &vec![0; size])?;
        }
        sequences.into_iter().for_each(|id| self.end(id));
        Ok(())
    }

    /// Compares rows of two lengths in one batch with the same rows alone, over a few steps: the largest difference of their
    /// logits, relative to the logits' spread, and what is still an accident of rounding. Blocks for some ten runs.
    ///
    /// # Errors
    /// As of the runs.
    pub fn self_test(&mut self) -> Result<(f32, f32), OnnxError> {
        const STEPS: usize = 4;
        let tolerance = if self.ports.cache_kind == Kind::F32 { 1e-3 } else { 5e-2 };
        let n = self.ports.vocabulary;
        let hidden = self.ports.hidden;
        let prompt = |length: usize| -> Vec<f32> {
            (0..length * hidden).map(|i| 0.5 * ((i * 7919 + length) as f32 * 0.618).sin()).collect()
        };
        let prompts = [prompt(11), prompt(5)];
        let token = |step: usize, row: usize| ((step * 31 + row * 17 + 1) % n.min(1_000)) as i64;
        let vectors: Vec<Vec<f32>> = (0..2 * STEPS).map(|i| self.vector(i + 1)).collect();
        let vector = |step: usize, row: usize| vectors[row * STEPS + step].as_slice();
        let policy = self.policy;
        let mut singles: Vec<Vec<f32>> = Vec::new();
        self.policy = Policy::Single;
        for (row, prompt) in prompts.iter().enumerate() {
            let mut given = StepOutputs::default();
            let id = self.prefill(prompt, &mut given)?;
            for step in 0..STEPS {
                let feed = self.stand_in(token(step, row), vector(step, row));
                self.decode(&[(id, feed)], &mut given)?;
                singles.push(given.logits.clone());
            }
            self.end(id);
        }
        self.policy = policy;
        let mut given = StepOutputs::default();
        let mut worst = 0.0_f32;
        let ids = [self.prefill(&prompts[0], &mut given)?, self.prefill(&prompts[1], &mut given)?];
        for step in 0..STEPS {
            let rows = [0, 1].map(|row| (ids[row], self.stand_in(token(step, row), vector(step, row))));
            self.decode(&rows, &mut given)?;
            for row in 0..ids.len() {
                let batched = &given.logits[row * n..(row + 1) * n];
                let single = &singles[row * STEPS + step];
                worst = worst.max(difference(batched, single));
            }
        }
        ids.into_iter().for_each(|id| self.end(id));
        Ok((worst, tolerance))
    }

    /// What a step is fed where nothing is meant: the token, or these embeddings where frames come embedded.
    fn stand_in<'a>(&self, token: i64, embeds: &'a [f32]) -> Feed<'a> {
        if self.embed.is_some() { Feed::Token(token) } else { Feed::Embeds(embeds) }
    }

    /// Embeddings of no frame.
    fn vector(&self, seed: usize) -> Vec<f32> {
        (0..self.ports.hidden).map(|i| 0.5 * ((i * 31 + seed * 7919) as f32 * 0.618).sin()).collect()
    }

    /// Lets runs of more frames find no memory. For tests.
    #[cfg(test)]
    pub fn limit_frames(&mut self, n_frames: usize) {
        self.n_frames_with_memory = n_frames;
    }

    /// Fills unused rows and columns with NaN. For tests.
    #[cfg(test)]
    pub fn poison(&mut self) {
        match &mut self.caches {
            Caches::Growing(cache) => cache.poison(),
            Caches::Steady(steady) => {
                self.prefill_run.clear();
                self.decode_run.clear();
                steady.poison();
            }
        }
    }

    /// All rows in one run, where the cache grows.
    fn decode_batch(&mut self, rows: &[Row<'_>], given: &mut StepOutputs) -> Result<(), OnnxError> {
        let ids: Vec<SequenceId> = rows.iter().map(|(id, _)| *id).collect();
        let n_rows = self.pinned.unwrap_or_else(|| bucket(ids.len()));
        let Caches::Growing(cache) = &mut self.caches else { unreachable!("called for a growing cache") };
        cache.arrange(&self.decode, &ids, n_rows)?;
        let n_rows = cache.rows().len();
        let n_before = cache.n_columns();
        let mut feeds = Feeds::nothing(&self.contract, &self.ports, n_rows);
        let mut positions = vec![0_i64; n_rows];
        let mut lengths = vec![1_i32; n_rows];
        let mut mask = vec![0_i64; n_rows * (n_before + 1)];
        for (row, owner) in cache.rows().iter().enumerate() {
            let mask = &mut mask[row * (n_before + 1)..(row + 1) * (n_before + 1)];
            let length = owner.map_or(0, |id| cache.length(id));
            match self.policy {
                Policy::Ragged => mask[..=length].fill(1),
                Policy::Masked | Policy::Single => mask[n_before - length..].fill(1),
            }
            if let Some(id) = owner {
                let (_, feed) = rows.iter().find(|(known, _)| known == id).expect("the batch holds these");
                feeds.set(row, feed, cache.n_generated(*id));
                positions[row] = length as i64;
                lengths[row] = length as i32 + 1;
            }
        }
        self.bind_feeds(&feeds)?;
        let Caches::Growing(cache) = &mut self.caches else { unreachable!("called for a growing cache") };
        let decode = &self.decode;
        let run = &mut self.decode_run;
        let inputs =
            Inputs { n_rows, n_new: 1, n_columns: n_before + 1, mask: &mask, positions: &positions, lengths: &lengths };
        bind(decode, run, &self.contract, &inputs)?;
        for (past, tensor) in self.ports.past.iter().zip(cache.tensors()) {
            decode.bind_input(run, past, tensor)?;
        }
        bind_present(decode, run, &self.ports)?;
        let begun = Instant::now();
        let mut outputs = decode.run_bound(run)?;
        self.in_runs += begun.elapsed();
        let own = given.taken_from(&mut outputs, &self.ports);
        cache.stepped(outputs);
        let owners = cache.rows();
        let order: Vec<usize> = ids
            .iter()
            .map(|id| owners.iter().position(|owner| owner.as_ref() == Some(id)).expect("in the batch"))
            .collect();
        given.read_rows(&own, &order, &self.ports)
    }

    /// Each row by itself. A row that ran before another one failed does not run again in the next try.
    fn one_by_one(&mut self, rows: &[Row<'_>], given: &mut StepOutputs, run: DecodeRows) -> Result<(), OnnxError> {
        if let ([_], true) = (rows, self.ran.is_empty()) {
            return run(self, rows, given);
        }
        for row in rows {
            if !self.ran.iter().any(|(id, _)| *id == row.0) {
                let mut own = StepOutputs::default();
                run(self, std::slice::from_ref(row), &mut own)?;
                self.ran.push((row.0, own));
            }
        }
        let ran = std::mem::take(&mut self.ran);
        *given = StepOutputs::default();
        for (id, _) in rows {
            let (_, own) = ran.iter().find(|(known, _)| known == id).expect("each row ran");
            given.logits.extend_from_slice(&own.logits);
            given.hidden.extend_from_slice(&own.hidden);
        }
        Ok(())
    }

    /// One row, whose cache lies alone.
    fn decode_alone(&mut self, rows: &[Row<'_>], given: &mut StepOutputs) -> Result<(), OnnxError> {
        let (id, feed) = rows[0];
        let Caches::Growing(cache) = &self.caches else { unreachable!("called for a growing cache") };
        let length = cache.length(id);
        let mut feeds = Feeds::nothing(&self.contract, &self.ports, 1);
        feeds.set(0, &feed, cache.n_generated(id));
        self.bind_feeds(&feeds)?;
        let Caches::Growing(cache) = &mut self.caches else { unreachable!("called for a growing cache") };
        let decode = &self.decode;
        let run = &mut self.decode_run;
        let inputs = Inputs {
            n_rows: 1,
            n_new: 1,
            n_columns: length + 1,
            mask: &vec![1; length + 1],
            positions: &[length as i64],
            lengths: &[length as i32 + 1],
        };
        bind(decode, run, &self.contract, &inputs)?;
        let own = cache.alone(id).expect("where each row runs alone, its cache lies alone");
        for (past, tensor) in self.ports.past.iter().zip(own) {
            decode.bind_input(run, past, tensor)?;
        }
        bind_present(decode, run, &self.ports)?;
        let begun = Instant::now();
        let mut outputs = decode.run_bound(run)?;
        self.in_runs += begun.elapsed();
        let own = given.taken_from(&mut outputs, &self.ports);
        cache.stepped_alone(id, outputs);
        given.read_rows(&own, &[0], &self.ports)
    }

    /// All rows in one run, in place.
    fn decode_steady(&mut self, rows: &[Row<'_>], given: &mut StepOutputs) -> Result<(), OnnxError> {
        let in_run = self.rows_in_place(rows);
        let first = in_run.start;
        let n_rows = in_run.len();
        let Caches::Steady(steady) = &self.caches else { unreachable!("called for a steady cache") };
        let mut feeds = Feeds::nothing(&self.contract, &self.ports, n_rows);
        // Who sits out gets a column that its next step writes again.
        let before: Vec<usize> = in_run.clone().map(|row| steady.length_of_row(row)).collect();
        for (id, feed) in rows {
            feeds.set(steady.row(*id) - first, feed, steady.n_generated(*id));
        }
        let positions: Vec<i64> = before.iter().map(|length| *length as i64).collect();
        let lengths: Vec<i32> = before.iter().map(|length| *length as i32 + 1).collect();
        let n_columns = before.iter().max().copied().unwrap_or_default() + 1;
        let mask: Vec<i64> =
            before.iter().flat_map(|length| (0..n_columns).map(move |column| i64::from(column <= *length))).collect();
        self.bind_feeds(&feeds)?;
        let Caches::Steady(steady) = &mut self.caches else { unreachable!("called for a steady cache") };
        let decode = &self.decode;
        let run = &mut self.decode_run;
        let inputs = Inputs { n_rows, n_new: 1, n_columns, mask: &mask, positions: &positions, lengths: &lengths };
        bind(decode, run, &self.contract, &inputs)?;
        steady.bind(decode, run, &self.ports, in_run)?;
        let begun = Instant::now();
        let mut outputs = decode.run_bound(run)?;
        self.in_runs += begun.elapsed();
        let own = given.taken_from(&mut outputs, &self.ports);
        rows.iter().for_each(|(id, _)| steady.stepped(*id));
        let order: Vec<usize> = rows.iter().map(|(id, _)| steady.row(*id) - first).collect();
        given.read_rows(&own, &order, &self.ports)
    }

    /// The rows of the cache in place that a run of these sequences reads and writes: where each runs alone its own,
    /// else the first ones, as many as the bucket has.
    fn rows_in_place(&self, rows: &[Row<'_>]) -> Range<usize> {
        let Caches::Steady(steady) = &self.caches else { unreachable!("called for a steady cache") };
        if let (Policy::Single, [(id, _)]) = (self.policy, rows) {
            let row = steady.row(*id);
            return row..row + 1;
        }
        let used = rows.iter().map(|(id, _)| steady.row(*id)).max().unwrap_or_default() + 1;
        0..self.pinned.unwrap_or_else(|| bucket(used)).min(steady.n_rows())
    }

    /// Embeds what the rows of the next run are fed, and binds it.
    fn bind_feeds(&mut self, feeds: &Feeds) -> Result<(), OnnxError> {
        let n_rows = feeds.generated.len();
        if self.embed.is_none() {
            let port = &self.contract.decode.embeds;
            let shape = [n_rows, 1, self.ports.hidden];
            return self.decode.bind_host(&mut self.decode_run, port, &Tensor::f32(shape, &feeds.embeds));
        }
        let embeds = self.embed_ids(&feeds.tokens, &feeds.generated, n_rows, 1, self.ports.embeds_go_to)?;
        bind_embeds(&self.decode, &mut self.decode_run, &self.contract, &embeds)
    }

    fn embed_ids(
        &mut self,
        ids: &[i64],
        positions: &[i64],
        n_rows: usize,
        length: usize,
        place: OutputMemory,
    ) -> Result<DeviceTensor, OnnxError> {
        let (Some(contract), Some((embed, run))) = (self.contract.embed(), &mut self.embed) else {
            return Err(OnnxError::Output("no graph embeds tokens".into()));
        };
        embed.bind_host(run, &contract.ids, &Tensor::i64([n_rows, length], ids))?;
        if let Some(port) = &contract.positions {
            embed.bind_host(run, port, &Tensor::i64([n_rows, length], positions))?;
        }
        for (name, value) in &contract.constants {
            embed.bind_host(run, name, &Tensor::f32([n_rows], &vec![*value; n_rows]))?;
        }
        embed.bind_output(run, &contract.embeds, place)?;
        let begun = Instant::now();
        let outputs = embed.run_bound(run)?;
        self.in_runs += begun.elapsed();
        outputs.into_iter().next().ok_or_else(|| OnnxError::Output("no embeddings".into()))
    }
}

impl Feeds {
    /// Unused rows.
    fn nothing(contract: &Contract, ports: &Ports, n_rows: usize) -> Self {
        let n_numbers = if contract.embed().is_some() { 0 } else { n_rows * ports.hidden };
        let tokens = vec![contract.unused_token(); n_rows];
        Self { tokens, generated: vec![1; n_rows], embeds: vec![0.0; n_numbers] }
    }

    /// Feeds a row that has generated `n_generated` tokens.
    fn set(&mut self, row: usize, feed: &Feed<'_>, n_generated: usize) {
        self.generated[row] = n_generated as i64 + 1;
        match feed {
            Feed::Token(token) => self.tokens[row] = *token,
            Feed::Embeds(embeds) => {
                let n = embeds.len();
                self.embeds[row * n..(row + 1) * n].copy_from_slice(embeds);
            }
        }
    }
}

impl StepOutputs {
    /// Takes the outputs that are read off those of a run; the cache's stay.
    fn taken_from(&self, outputs: &mut Vec<DeviceTensor>, ports: &Ports) -> Vec<DeviceTensor> {
        outputs.drain(..usize::from(ports.has_logits) + usize::from(ports.has_hidden)).collect()
    }

    /// Reads the last position of a run of one row.
    fn read_last(&mut self, outputs: &mut Vec<DeviceTensor>, ports: &Ports) -> Result<(), OnnxError> {
        let own = self.taken_from(outputs, ports);
        for (output, into, n) in self.reads(&own, ports) {
            let n_positions = output.shape().get(1).copied().unwrap_or(1).max(1);
            output.read_f32((n_positions - 1) * n..n_positions * n, into)?;
        }
        Ok(())
    }

    /// Reads these rows of a run of one position, in this order.
    fn read_rows(&mut self, own: &[DeviceTensor], rows: &[usize], ports: &Ports) -> Result<(), OnnxError> {
        let mut one = Vec::new();
        for (output, into, n) in self.reads(own, ports) {
            into.clear();
            for row in rows {
                output.read_f32(row * n..(row + 1) * n, &mut one)?;
                into.extend_from_slice(&one);
            }
        }
        Ok(())
    }

    /// Each output, what it is read into, and its numbers a position.
    fn reads<'a>(
        &'a mut self,
        own: &'a [DeviceTensor],
        ports: &Ports,
    ) -> impl Iterator<Item = (&'a DeviceTensor, &'a mut Vec<f32>, usize)> {
        let logits = ports.has_logits.then_some((&mut self.logits, ports.vocabulary));
        let hidden = ports.has_hidden.then_some((&mut self.hidden, ports.n_hidden));
        own.iter().zip(logits.into_iter().chain(hidden)).map(|(output, (into, n))| (output, into, n))
    }
}

/// The smallest bucket that holds `n_rows` rows.
pub fn bucket(n_rows: usize) -> usize {
    BUCKETS.into_iter().find(|size| *size >= n_rows).unwrap_or(BUCKETS[BUCKETS.len() - 1])
}

/// Binds what a run of the decoding graph takes beside embeddings and cache, and the logits, which go to the host.
fn bind(decode: &Model, run: &mut Binding, contract: &Contract, inputs: &Inputs<'_>) -> Result<(), OnnxError> {
    let ports = &contract.decode;
    if let Some(mask) = &ports.mask {
        decode.bind_host(run, mask, &Tensor::i64([inputs.n_rows, inputs.n_columns], inputs.mask))?;
    }
    if let Some(positions) = &ports.positions {
        decode.bind_host(run, positions, &Tensor::i64([inputs.n_rows, inputs.n_new], inputs.positions))?;
    }
    if let Some(port) = &ports.lengths {
        let lengths: Vec<i32> = inputs.lengths.iter().map(|length| length - 1).collect();
        decode.bind_host(run, port, &Tensor::i32([inputs.n_rows], &lengths))?;
    }
    if let Some(port) = &ports.total {
        let total = inputs.lengths.iter().max().copied().unwrap_or_default();
        decode.bind_host(run, port, &Tensor::i32([], &[total]))?;
    }
    if let Some(drawing) = contract.drawing() {
        decode.bind_output(run, &drawing.logits, OutputMemory::Host)?;
    }
    let hidden = contract.frame().map(|frame| &frame.hidden);
    hidden.map_or(Ok(()), |hidden| decode.bind_output(run, hidden, OutputMemory::Host))
}

/// Binds embeddings as the embedding graph gave them: where they are, or through the host where the two graphs are of
/// different precisions.
fn bind_embeds(decode: &Model, run: &mut Binding, contract: &Contract, embeds: &DeviceTensor) -> Result<(), OnnxError> {
    let port = &contract.decode.embeds;
    if decode.input(port).is_some_and(|slot| slot.kind == *embeds.kind()) {
        return decode.bind_input(run, port, embeds);
    }
    let mut numbers = Vec::new();
    embeds.read_f32(0..embeds.shape().iter().product(), &mut numbers)?;
    decode.bind_host(run, port, &Tensor::f32(embeds.shape(), &numbers))
}

fn bind_present(decode: &Model, run: &mut Binding, ports: &Ports) -> Result<(), OnnxError> {
    ports.present.iter().try_for_each(|present| decode.bind_output(run, present, OutputMemory::Device))
}

/// The largest difference of two rows of logits, relative to the second one's spread. Infinite where one is no number.
fn difference(a: &[f32], b: &[f32]) -> f32 {
    let (least, most) = b.iter().fold((f32::INFINITY, f32::NEG_INFINITY), |(l, m), x| (l.min(*x), m.max(*x)));
    let worst = a
        .iter()
        .zip(b)
        .map(|(a, b)| (a - b).abs())
        .fold(0.0_f32, |worst, difference| if difference.is_nan() { f32::INFINITY } else { worst.max(difference) });
    worst / (most - least).max(1e-6)
}

#[cfg(test)]
mod tests;
