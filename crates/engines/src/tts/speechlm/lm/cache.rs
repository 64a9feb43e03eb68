//! The caches of the sequences of one language model: keys and values of all layers, where the model runs.
//!
//! A sequence's cache lies by itself (after its prefill, and while it sits out) or as a row of the batch. [`Cache::arrange`]
//! makes the batch of those that take part in the next step; while the same sequences take part, nothing is copied here. A
//! row is an address for one step: everything is found by [`SequenceId`]. Used by [`LanguageModel`](super::LanguageModel)
//! alone; knows no ports and runs no graph, except for moving rows on a GPU.
//!
//! Columns: where a graph adds the new column behind all others (policy `masked`), a row's columns are its last ones, and
//! those before them are zeros. Where it adds it behind the row's own (`ragged`), they are the first ones. A column that is no
//! row's holds finite numbers: a masked column counts nothing, but zero times NaN would be NaN.

use super::moving::Mover;
use antiphon_inference::onnx::{DeviceTensor, Model, OnnxError};
use std::collections::HashMap;

/// One sequence, as long as the engine lives: no two have the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SequenceId(u64);

impl SequenceId {
    /// For a cache that numbers its sequences itself.
    pub(super) fn numbered(number: u64) -> Self {
        Self(number)
    }
}

/// Where a row's columns are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Alignment {
    /// The first ones.
    First,
    /// The last ones.
    Last,
}

/// Steps for which a batch keeps more rows than it needs: sequences come and go, and each change copies the batch.
const SHRINK_AFTER: u32 = 16;

/// See the module.
pub struct Cache {
    alignment: Alignment,
    mover: Mover,
    sequences: HashMap<SequenceId, Sequence>,
    batch: Batch,
    next: u64,
}

/// What is known of a sequence.
struct Sequence {
    /// Its columns.
    length: usize,
    /// Tokens that were generated and are in the cache.
    n_generated: usize,
    place: CacheLocation,
}

enum CacheLocation {
    /// By itself, each tensor [1, heads, length, head size].
    Alone(Vec<DeviceTensor>),
    /// In the batch.
    Row(usize),
}

/// The batch of the last step.
#[derive(Default)]
struct Batch {
    /// Whose each row is.
    rows: Vec<Option<SequenceId>>,
    /// Keys and values of each layer, [rows, heads, columns, head size].
    tensors: Vec<DeviceTensor>,
    n_columns: usize,
    /// Steps since more than half of the rows were needed.
    oversized: u32,
}

impl Cache {
    /// An empty one, for a model that runs on the device of `model`.
    ///
    /// # Errors
    /// When the rows cannot be moved on that device.
    pub fn new(alignment: Alignment, mover: Mover) -> Self {
        Self { alignment, mover, sequences: HashMap::new(), batch: Batch::default(), next: 0 }
    }

    /// Takes a sequence of that many columns over after its prefill: its tensors, each of one row.
    pub fn insert(&mut self, tensors: Vec<DeviceTensor>, length: usize) -> SequenceId {
        let id = SequenceId(self.next);
        self.next += 1;
        self.sequences.insert(id, Sequence { length, n_generated: 0, place: CacheLocation::Alone(tensors) });
        id
    }

    /// Forgets a sequence. Its row stays in the batch, unused, until the batch changes.
    pub fn remove(&mut self, id: SequenceId) {
        if let Some(Sequence { place: CacheLocation::Row(row), .. }) = self.sequences.remove(&id) {
            self.batch.rows[row] = None;
        }
        if self.sequences.is_empty() {
            self.batch = Batch::default();
        }
    }

    /// Has the next batch that needs fewer rows give up the others at once: the device has no memory for them.
    pub fn shrink(&mut self) {
        self.batch.oversized = SHRINK_AFTER;
    }

    /// Whether it holds no sequence.
    pub fn is_empty(&self) -> bool {
        self.sequences.is_empty()
    }

    /// The columns of a sequence.
    pub fn length(&self, id: SequenceId) -> usize {
        self.sequences[&id].length
    }

    /// The tokens it has generated that are in the cache.
    pub fn n_generated(&self, id: SequenceId) -> usize {
        self.sequences[&id].n_generated
    }

    /// The columns of the batch.
    pub fn n_columns(&self) -> usize {
        self.batch.n_columns
    }

    /// Whose each row of the batch is.
    pub fn rows(&self) -> &[Option<SequenceId>] {
        &self.batch.rows
    }

    /// The batch's tensors.
    pub fn tensors(&self) -> &[DeviceTensor] {
        &self.batch.tensors
    }

    /// A sequence's own tensors, where it lies alone.
    pub fn alone(&self, id: SequenceId) -> Option<&[DeviceTensor]> {
        match &self.sequences[&id].place {
            CacheLocation::Alone(tensors) => Some(tensors),
            CacheLocation::Row(_) => None,
        }
    }

    /// Makes these sequences the batch, with `n_rows` rows at least. Others that are in it lie alone afterwards. Copies on the
    /// device where something changes.
    ///
    /// # Errors
    /// [`OnnxError`] when there is no memory or the device fails: the cache is as it was.
    pub fn arrange(&mut self, model: &Model, ids: &[SequenceId], n_rows: usize) -> Result<(), OnnxError> {
        let n_held = self.batch.rows.len();
        let all_in = ids.iter().all(|id| matches!(self.sequences[id].place, CacheLocation::Row(_)));
        let is_alone = self.batch.rows.iter().flatten().count() == ids.len();
        self.batch.oversized = if n_rows < n_held { self.batch.oversized + 1 } else { 0 };
        let longest = ids.iter().map(|id| self.sequences[id].length).max().unwrap_or_default();
        // A long sequence that has ended leaves unused columns.
        let is_wide = self.batch.n_columns > longest + longest / 4 + 64;
        let fits = n_rows == n_held || (n_rows < n_held && self.batch.oversized < SHRINK_AFTER);
        if all_in && is_alone && fits && !is_wide {
            return Ok(());
        }
        let n_rows = if n_rows < n_held && self.batch.oversized < SHRINK_AFTER { n_held } else { n_rows };
        let leaving: Vec<SequenceId> =
            self.batch.rows.iter().flatten().filter(|id| !ids.contains(id)).copied().collect();
        let mut parked = Vec::with_capacity(leaving.len());
        for id in leaving {
            let Sequence { length, place: CacheLocation::Row(row), .. } = &self.sequences[&id] else { continue };
            let part = Part { tensors: &self.batch.tensors, row: *row, length: *length };
            parked.push((id, self.mover.assemble(model, &[part], 1, *length, self.alignment)?));
        }
        // Rows of the batch first: they are moved together.
        let mut order = ids.to_vec();
        order.sort_by_key(|id| matches!(self.sequences[id].place, CacheLocation::Alone(_)));
        let parts: Vec<Part<'_>> = order.iter().map(|id| self.part(*id)).collect();
        let n_columns = parts.iter().map(|part| part.length).max().unwrap_or_default();
        let tensors = self.mover.assemble(model, &parts, n_rows, n_columns, self.alignment)?;
        for (id, tensors) in parked {
            self.place(id, CacheLocation::Alone(tensors));
        }
        let mut rows = vec![None; n_rows];
        for (row, id) in order.into_iter().enumerate() {
            rows[row] = Some(id);
            self.place(id, CacheLocation::Row(row));
        }
        self.batch = Batch { rows, tensors, n_columns, oversized: 0 };
        Ok(())
    }

    /// Takes over what a step gave for the batch.
    pub fn stepped(&mut self, tensors: Vec<DeviceTensor>) {
        self.batch.n_columns = tensors.first().map_or(0, |tensor| tensor.shape()[2]);
        self.batch.tensors = tensors;
        for id in self.batch.rows.iter().flatten() {
            let sequence = self.sequences.get_mut(id).expect("a row's sequence is known");
            sequence.length += 1;
            sequence.n_generated += 1;
        }
    }

    /// Takes over what a step gave for a sequence that lies alone.
    pub fn stepped_alone(&mut self, id: SequenceId, tensors: Vec<DeviceTensor>) {
        let sequence = self.sequences.get_mut(&id).expect("the sequence is known");
        *sequence = Sequence {
            length: sequence.length + 1,
            n_generated: sequence.n_generated + 1,
            place: CacheLocation::Alone(tensors),
        };
    }

    /// Fills the unused rows with NaN. For tests: they must not matter.
    #[cfg(test)]
    pub fn poison(&mut self) {
        let n_rows = self.batch.rows.len();
        let free: Vec<usize> = (0..n_rows).filter(|row| self.batch.rows[*row].is_none()).collect();
        for tensor in &mut self.batch.tensors {
            let size = tensor.shape().iter().skip(1).product::<usize>();
            let numbers = tensor.numbers_mut::<f32>().expect("on the host");
            for row in &free {
                numbers[row * size..(row + 1) * size].fill(f32::NAN);
            }
        }
    }

    fn part(&self, id: SequenceId) -> Part<'_> {
        let sequence = &self.sequences[&id];
        match &sequence.place {
            CacheLocation::Alone(tensors) => Part { tensors, row: 0, length: sequence.length },
            CacheLocation::Row(row) => Part { tensors: &self.batch.tensors, row: *row, length: sequence.length },
        }
    }

    fn place(&mut self, id: SequenceId, place: CacheLocation) {
        self.sequences.get_mut(&id).expect("the sequence is known").place = place;
    }
}

/// A row to move: its tensors, and its number of columns.
pub struct Part<'a> {
    /// Keys and values of each layer.
    pub tensors: &'a [DeviceTensor],
    /// The row in them.
    pub row: usize,
    /// Its columns.
    pub length: usize,
}
