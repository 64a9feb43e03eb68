//! Caches that a graph reads and writes in place: one tensor for each layer's keys and one for its values, with a row for each
//! slot and a fixed number of columns. Nothing is copied when a sequence joins or leaves, and addresses never change.
//!
//! A sequence has one row from its prefill to its end, the lowest that is free, so that the rows of a run, the first ones, are
//! few. For graphs whose attention takes lengths (`com.microsoft.GroupQueryAttention`). Used by
//! [`LanguageModel`](super::LanguageModel) alone.

use super::cache::SequenceId;
use super::ports::Ports;
use antiphon_inference::onnx::{Binding, DeviceTensor, Model, OnnxError};
use std::collections::HashMap;
use std::ops::Range;

/// See the module.
pub struct SteadyCache {
    tensors: Vec<DeviceTensor>,
    capacity: usize,
    /// Whose each row is.
    rows: Vec<Option<SequenceId>>,
    sequences: HashMap<SequenceId, Sequence>,
    next: u64,
}

struct Sequence {
    row: usize,
    length: usize,
    n_generated: usize,
}

impl SteadyCache {
    /// Takes the memory for all slots, of `capacity` columns each.
    ///
    /// # Errors
    /// [`OnnxError`] when there is not enough.
    pub fn new(decode: &Model, ports: &Ports, n_slots: usize, capacity: usize) -> Result<Self, OnnxError> {
        let shape = ports.cache_shape(n_slots, capacity);
        let tensors = ports.past.iter().map(|_| decode.device_tensor(&ports.cache_kind, &shape));
        let tensors = tensors.collect::<Result<_, _>>()?;
        Ok(Self { tensors, capacity, rows: vec![None; n_slots], sequences: HashMap::new(), next: 0 })
    }

    /// Gives a new sequence of that length a row and binds it for the prefill.
    ///
    /// # Errors
    /// [`OnnxError::Inputs`] where all rows are taken or the sequence is too long.
    pub fn begin(
        &mut self,
        decode: &Model,
        run: &mut Binding,
        ports: &Ports,
        length: usize,
    ) -> Result<SequenceId, OnnxError> {
        let refused = |message: String| OnnxError::Inputs { path: decode.path().into(), message };
        if length >= self.capacity {
            return Err(refused(format!("a prompt of {length} tokens, and the cache holds {}", self.capacity)));
        }
        let free = self.rows.iter().position(Option::is_none);
        let row = free.ok_or_else(|| refused(format!("all {} rows are taken", self.rows.len())))?;
        self.bind(decode, run, ports, row..row + 1)?;
        let id = SequenceId::numbered(self.next);
        self.next += 1;
        self.rows[row] = Some(id);
        self.sequences.insert(id, Sequence { row, length, n_generated: 0 });
        Ok(id)
    }

    /// Binds these rows, to be read and written in place.
    ///
    /// # Errors
    /// [`OnnxError`] where the graph does not take them.
    pub fn bind(
        &mut self,
        decode: &Model,
        run: &mut Binding,
        ports: &Ports,
        rows: Range<usize>,
    ) -> Result<(), OnnxError> {
        for ((past, present), tensor) in ports.past.iter().zip(&ports.present).zip(&mut self.tensors) {
            decode.bind_rows_in_place(run, past, present, tensor, rows.clone())?;
        }
        Ok(())
    }

    /// Forgets a sequence; its row is free.
    pub fn remove(&mut self, id: SequenceId) {
        if let Some(sequence) = self.sequences.remove(&id) {
            self.rows[sequence.row] = None;
        }
    }

    /// Takes note that a sequence has a column more.
    pub fn stepped(&mut self, id: SequenceId) {
        let sequence = self.sequences.get_mut(&id).expect("the sequence is known");
        sequence.length += 1;
        sequence.n_generated += 1;
    }

    /// Rows of all slots.
    pub fn n_rows(&self) -> usize {
        self.rows.len()
    }

    /// The row of a sequence.
    pub fn row(&self, id: SequenceId) -> usize {
        self.sequences[&id].row
    }

    /// The columns of a row; 0 of one that is free.
    pub fn length_of_row(&self, row: usize) -> usize {
        self.rows[row].map_or(0, |id| self.sequences[&id].length)
    }

    /// The tokens a sequence has generated that are in the cache.
    pub fn n_generated(&self, id: SequenceId) -> usize {
        self.sequences[&id].n_generated
    }

    /// Whether a sequence has no column left.
    pub fn is_full(&self, id: SequenceId) -> bool {
        self.sequences[&id].length + 1 >= self.capacity
    }

    /// Fills the unused rows, and the columns behind each row's own, with NaN. For tests: they must not matter.
    #[cfg(test)]
    pub fn poison(&mut self) {
        let lengths: Vec<usize> = (0..self.rows.len()).map(|row| self.length_of_row(row)).collect();
        for tensor in &mut self.tensors {
            let [_, heads, n_columns, size] = tensor.shape().try_into().expect("four sizes");
            let Some(numbers) = tensor.numbers_mut::<f32>() else { panic!("bound") };
            for (row, length) in lengths.iter().enumerate() {
                for head in 0..heads {
                    let start = (row * heads + head) * n_columns;
                    numbers[(start + length) * size..(start + n_columns) * size].fill(f32::NAN);
                }
            }
        }
    }
}
