//! A model's inputs: a shape and borrowed numbers.

use ort::memory::Allocator;
use ort::session::SessionInputValue;
use ort::value::{DynTensor, Tensor as Owned, TensorRef};

use super::Kind;

/// One input: a dense tensor, its numbers in row-major order. Nothing is copied, except where
/// the model declares another type: half precision for floats, 32 bits or a flag for 64-bit integers.
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
        if self.is_converted(declared) || self.n_numbers() == 0 {
            return self.owned(declared).map(SessionInputValue::from);
        }
        self.check()?;
        let shape = self.shape.clone();
        let value = match self.data {
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
        if self.n_numbers() == 0 {
            return self.empty(declared);
        }
        let shape = self.shape.clone();
        let value = match self.data {
            Data::F32(data) if declared == Some(&Kind::F16) => {
                let halves: Vec<_> = data.iter().map(|x| half::f16::from_f32(*x)).collect();
                Owned::from_array((shape, halves)).map(Owned::upcast)
            }
            Data::I64(data) if declared == Some(&Kind::I32) => {
                let narrow: Result<Vec<i32>, _> = data.iter().map(|x| i32::try_from(*x)).collect();
                Owned::from_array((shape, narrow.map_err(|error| error.to_string())?)).map(Owned::upcast)
            }
            Data::I64(data) if declared == Some(&Kind::Bool) => {
                let flags: Vec<bool> = data.iter().map(|x| *x != 0).collect();
                Owned::from_array((shape, flags)).map(Owned::upcast)
            }
            Data::F32(data) => Owned::from_array((shape, data.to_vec())).map(Owned::upcast),
            Data::I64(data) => Owned::from_array((shape, data.to_vec())).map(Owned::upcast),
            Data::I32(data) => Owned::from_array((shape, data.to_vec())).map(Owned::upcast),
            Data::Bool(data) => Owned::from_array((shape, data.to_vec())).map(Owned::upcast),
        };
        value.map_err(|error| error.to_string())
    }

    /// Whether the model declares another type, to which the numbers are converted.
    fn is_converted(&self, declared: Option<&Kind>) -> bool {
        matches!((&self.data, declared), (Data::F32(_), Some(Kind::F16)) | (Data::I64(_), Some(Kind::I32 | Kind::Bool)))
    }

    /// A tensor without numbers, such as the ids of no text: the runtime makes none of borrowed memory.
    fn empty(&self, declared: Option<&Kind>) -> Result<DynTensor, String> {
        let own = match self.data {
            Data::F32(_) => Kind::F32,
            Data::I64(_) => Kind::I64,
            Data::I32(_) => Kind::I32,
            Data::Bool(_) => Kind::Bool,
        };
        let kind = declared.filter(|_| self.is_converted(declared)).unwrap_or(&own);
        let element = kind.element().ok_or_else(|| format!("no tensor can be made of the type {kind}"))?;
        let shape: Vec<i64> = self.shape.iter().map(|n| *n as i64).collect();
        DynTensor::new(&Allocator::default(), element, shape).map_err(|error| error.to_string())
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
