//! Moves rows of caches into another batch, in the memory where they are.
//!
//! On the processor rows are copied by the host. On a GPU a small graph does it there (`rows_f32.onnx`, `rows_f16.onnx`,
//! written by `antiphon_export.rows`), so that no cache crosses to the host. Used by [`Cache`](super::cache::Cache) alone.

use super::cache::{Alignment, Part};
use antiphon_inference::onnx::{Binding, DeviceTensor, Kind, Model, Number, OnnxError, OutputMemory, Runtime, Tensor};
use std::cell::RefCell;
use std::ops::Range;

/// See the module.
pub enum Mover {
    /// By the host.
    Host,
    /// By a graph on the device.
    Device(Box<OnDevice>),
}

/// The graph that moves rows, with its binding.
pub struct OnDevice {
    rows: Model,
    binding: RefCell<Binding>,
}

impl Mover {
    /// The one for a model on that device, whose cache has numbers of that type. Loads the graph where one is needed.
    ///
    /// # Errors
    /// [`OnnxError`] when the graph cannot be loaded on the model's device.
    pub fn for_model(model: &Model, runtime: &Runtime, kind: &Kind) -> Result<Self, OnnxError> {
        if model.is_on_host() {
            return Ok(Self::Host);
        }
        Self::on_device(model, runtime, kind)
    }

    /// The graph, on the model's device.
    pub(super) fn on_device(model: &Model, runtime: &Runtime, kind: &Kind) -> Result<Self, OnnxError> {
        let graph: &[u8] = match kind {
            Kind::F16 => include_bytes!("rows_f16.onnx"),
            _ => include_bytes!("rows_f32.onnx"),
        };
        let rows = runtime.load_bytes("rows.onnx", graph, model)?;
        let binding = RefCell::new(rows.binding()?);
        Ok(Self::Device(Box::new(OnDevice { rows, binding })))
    }

    /// New tensors of `n_rows` rows and `n_columns` columns with the parts as their first rows, aligned as asked. Parts of the
    /// same tensors must be next to each other. Unused rows and columns hold finite numbers.
    ///
    /// # Errors
    /// [`OnnxError`] when there is no memory or the device fails.
    pub fn assemble(
        &self,
        model: &Model,
        parts: &[Part<'_>],
        n_rows: usize,
        n_columns: usize,
        alignment: Alignment,
    ) -> Result<Vec<DeviceTensor>, OnnxError> {
        let n_tensors = parts.first().map_or(0, |part| part.tensors.len());
        let one = |i: usize| match self {
            Self::Host => on_host(model, parts, i, n_rows, n_columns, alignment),
            Self::Device(device) => device.assemble(parts, i, n_rows, n_columns, alignment),
        };
        (0..n_tensors).map(one).collect()
    }
}

/// The columns of a row of `length` in tensors of `n_columns`.
fn columns(length: usize, n_columns: usize, alignment: Alignment) -> Range<usize> {
    match alignment {
        Alignment::First => 0..length,
        Alignment::Last => n_columns - length..n_columns,
    }
}

fn on_host(
    model: &Model,
    parts: &[Part<'_>],
    i: usize,
    n_rows: usize,
    n_columns: usize,
    alignment: Alignment,
) -> Result<DeviceTensor, OnnxError> {
    let first = &parts[0].tensors[i];
    let mut made = model.device_tensor(first.kind(), &[n_rows, first.shape()[1], n_columns, first.shape()[3]])?;
    match first.kind() {
        Kind::F16 => copy::<half::f16>(parts, i, &mut made, alignment),
        _ => copy::<f32>(parts, i, &mut made, alignment),
    }
    .ok_or_else(|| OnnxError::Output("a cache that the host cannot read".into()))?;
    Ok(made)
}

fn copy<T: Number + Copy>(parts: &[Part<'_>], i: usize, into: &mut DeviceTensor, alignment: Alignment) -> Option<()> {
    let [_, heads, n_columns, size] = into.shape().try_into().ok()?;
    let to = into.numbers_mut::<T>()?;
    for (row, part) in parts.iter().enumerate() {
        let from = &part.tensors[i];
        let n_from = from.shape()[2];
        let from = from.numbers::<T>()?;
        let source = columns(part.length, n_from, alignment);
        let target = columns(part.length, n_columns, alignment);
        for head in 0..heads {
            let source = ((part.row * heads + head) * n_from + source.start) * size;
            let target = ((row * heads + head) * n_columns + target.start) * size;
            to[target..target + part.length * size].copy_from_slice(&from[source..source + part.length * size]);
        }
    }
    Some(())
}

impl OnDevice {
    /// Rows of one source after the other: the graph puts rows `b` behind rows `a`, each cut or padded to the columns.
    fn assemble(
        &self,
        parts: &[Part<'_>],
        i: usize,
        n_rows: usize,
        n_columns: usize,
        alignment: Alignment,
    ) -> Result<DeviceTensor, OnnxError> {
        let mut made: Option<DeviceTensor> = None;
        for group in parts.chunk_by(|a, b| std::ptr::eq(a.tensors, b.tensors)) {
            let source = &group[0].tensors[i];
            let rows: Vec<i64> = group.iter().map(|part| part.row as i64).collect();
            made = Some(match made {
                None => self.run((source, &rows), None, n_columns, alignment)?,
                Some(before) => {
                    let all: Vec<i64> = (0..before.shape()[0] as i64).collect();
                    self.run((&before, &all), Some((source, &rows)), n_columns, alignment)?
                }
            });
        }
        let Some(made) = made else { return Err(OnnxError::Output("no rows".into())) };
        if parts.len() == n_rows {
            return Ok(made);
        }
        // Unused rows repeat the first one: finite, and ignored.
        let all: Vec<i64> = (0..n_rows).map(|row| if row < parts.len() { row as i64 } else { 0 }).collect();
        self.run((&made, &all), None, n_columns, alignment)
    }

    fn run(
        &self,
        a: (&DeviceTensor, &[i64]),
        b: Option<(&DeviceTensor, &[i64])>,
        n_columns: usize,
        alignment: Alignment,
    ) -> Result<DeviceTensor, OnnxError> {
        let mut binding = self.binding.borrow_mut();
        let none: &[i64] = &[];
        let b = b.unwrap_or((a.0, none));
        for ((tensor, rows), [name, rows_name, pads_name]) in
            [(a, ["a", "rows_a", "pads_a"]), (b, ["b", "rows_b", "pads_b"])]
        {
            let missing = n_columns as i64 - tensor.shape()[2] as i64;
            let pads = match alignment {
                Alignment::First => [0, 0, 0, 0, 0, 0, missing, 0],
                Alignment::Last => [0, 0, missing, 0, 0, 0, 0, 0],
            };
            self.rows.bind_input(&mut binding, name, tensor)?;
            self.rows.bind_host(&mut binding, rows_name, &Tensor::i64([rows.len()], rows))?;
            self.rows.bind_host(&mut binding, pads_name, &Tensor::i64([8], &pads))?;
        }
        self.rows.bind_output(&mut binding, "moved", OutputMemory::Device)?;
        let moved = self.rows.run_bound(&mut binding)?;
        moved.into_iter().next().ok_or_else(|| OnnxError::Output("nothing".into()))
    }
}
