//! A model's inputs: a shape and borrowed numbers.

use ort::session::SessionInputValue;
use ort::value::{DynTensor, Tensor as Owned, TensorRef};

use super::Kind;

/// One input: a dense tensor, its numbers in row-major order. Nothing is copied, except for a model in half precision.
#[derive(Clone, Debug, PartialEq)]
pub struct Tensor<'a> {
    shape: Vec<usize>,
    data: Data<'a>,
}

#[derive(Clone, Debug, PartialEq)]
enum Data<'a> {
    F32(&'a [f32]),
    I64(&'a [i64]),
    I32(&'a [i32]),
    Bool(&'a [bool]),
}

impl<'a> Tensor<'a> {
    /// Floats, rounded for a model that takes `f16`.
    pub fn f32(shape: impl Into<Vec<usize>>, data: &'a [f32]) -> Self {
        Self { shape: shape.into(), data: Data::F32(data) }
    }

    /// 64-bit integers: identifiers, lengths. A scalar has the shape `[]`.
    pub fn i64(shape: impl Into<Vec<usize>>, data: &'a [i64]) -> Self {
        Self { shape: shape.into(), data: Data::I64(data) }
    }

    /// 32-bit integers.
    pub fn i32(shape: impl Into<Vec<usize>>, data: &'a [i32]) -> Self {
        Self { shape: shape.into(), data: Data::I32(data) }
    }

    /// Booleans.
    pub fn bool(shape: impl Into<Vec<usize>>, data: &'a [bool]) -> Self {
        Self { shape: shape.into(), data: Data::Bool(data) }
    }

    /// As the runtime takes it; `declared` is the element type of the model's input. Fails where shape and numbers disagree.
    pub(super) fn value(&self, declared: Option<&Kind>) -> Result<SessionInputValue<'a>, String> {
        self.check()?;
        let shape = self.shape.clone();
        let value = match self.data {
            Data::F32(data) if declared == Some(&Kind::F16) => {
                let halves: Vec<_> = data.iter().map(|x| half::f16::from_f32(*x)).collect();
                Owned::from_array((shape, halves)).map(SessionInputValue::from)
            }
            Data::F32(data) => TensorRef::from_array_view((shape, data)).map(SessionInputValue::from),
            Data::I64(data) => TensorRef::from_array_view((shape, data)).map(SessionInputValue::from),
            Data::I32(data) => TensorRef::from_array_view((shape, data)).map(SessionInputValue::from),
            Data::Bool(data) => TensorRef::from_array_view((shape, data)).map(SessionInputValue::from),
        };
        value.map_err(|error| error.to_string())
    }

    /// The same with its numbers copied: for a binding, which outlives them.
    pub(super) fn owned(&self, declared: Option<&Kind>) -> Result<DynTensor, String> {
        self.check()?;
        let shape = self.shape.clone();
        let value = match self.data {
            Data::F32(data) if declared == Some(&Kind::F16) => {
                let halves: Vec<_> = data.iter().map(|x| half::f16::from_f32(*x)).collect();
                Owned::from_array((shape, halves)).map(Owned::upcast)
            }
            Data::F32(data) => Owned::from_array((shape, data.to_vec())).map(Owned::upcast),
            Data::I64(data) => Owned::from_array((shape, data.to_vec())).map(Owned::upcast),
            Data::I32(data) => Owned::from_array((shape, data.to_vec())).map(Owned::upcast),
            Data::Bool(data) => Owned::from_array((shape, data.to_vec())).map(Owned::upcast),
        };
        value.map_err(|error| error.to_string())
    }

    /// Whether shape and numbers agree.
    fn check(&self) -> Result<(), String> {
        let n: usize = self.shape.iter().product();
        match self.n_numbers() {
            there if there == n => Ok(()),
            there => Err(format!("a tensor of shape {:?} needs {n} numbers, not {there}", self.shape)),
        }
    }

    fn n_numbers(&self) -> usize {
        match self.data {
            Data::F32(data) => data.len(),
            Data::I64(data) => data.len(),
            Data::I32(data) => data.len(),
            Data::Bool(data) => data.len(),
        }
    }
}
