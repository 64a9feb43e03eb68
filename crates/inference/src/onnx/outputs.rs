//! A model's outputs: owned tensors, by name or by position.

use super::OnnxError;
use ort::session::SessionOutputs;
use ort::value::{DynValue, TensorElementType};

/// All outputs of one run, in the model's order. They are copied out, so the model is free for the next run.
#[derive(Clone, Debug, PartialEq)]
pub struct Outputs(Vec<Output>);

/// One output.
#[derive(Clone, Debug, PartialEq)]
pub struct Output {
    name: String,
    shape: Vec<usize>,
    data: Data,
}

#[derive(Clone, Debug, PartialEq)]
enum Data {
    F32(Vec<f32>),
    I64(Vec<i64>),
}

impl Outputs {
    /// The output of that name.
    pub fn named(&self, name: &str) -> Result<&Output, OnnxError> {
        self.0.iter().find(|output| output.name == name).ok_or_else(|| OnnxError::Output(format!("no output {name:?}")))
    }

    /// The output at that position, from 0.
    pub fn at(&self, place: usize) -> Result<&Output, OnnxError> {
        self.0.get(place).ok_or_else(|| OnnxError::Output(format!("{} outputs and no more", self.0.len())))
    }

    /// The first output's numbers, without a copy: the sound of a voice.
    pub fn into_f32(self) -> Result<Vec<f32>, OnnxError> {
        match self.0.into_iter().next().map(|output| output.data) {
            Some(Data::F32(data)) => Ok(data),
            Some(Data::I64(_)) => Err(OnnxError::Output("whole numbers where real ones belong".into())),
            None => Err(OnnxError::Output("no output".into())),
        }
    }

    /// The numbers of the output at that position, from 0, without a copy; it is empty afterwards.
    pub fn take_f32(&mut self, place: usize) -> Result<Vec<f32>, OnnxError> {
        let n = self.0.len();
        match self.0.get_mut(place).map(|output| &mut output.data) {
            Some(Data::F32(data)) => Ok(std::mem::take(data)),
            Some(Data::I64(_)) => Err(OnnxError::Output("whole numbers where real ones belong".into())),
            None => Err(OnnxError::Output(format!("{n} outputs and no more"))),
        }
    }

    pub(super) fn of(outputs: &SessionOutputs<'_>) -> Result<Self, OnnxError> {
        outputs.iter().map(|(name, value)| Output::of(name, &value)).collect::<Result<_, _>>().map(Self)
    }
}

impl Output {
    /// Its name in the model.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its size in each dimension.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// Floats in row-major order; half precision is widened.
    pub fn f32(&self) -> Result<&[f32], OnnxError> {
        match &self.data {
            Data::F32(data) => Ok(data),
            Data::I64(_) => Err(OnnxError::Output(format!("whole numbers as {:?}", self.name))),
        }
    }

    /// Integers in row-major order; 32 bits are widened, a flag is 0 or 1.
    pub fn i64(&self) -> Result<&[i64], OnnxError> {
        match &self.data {
            Data::I64(data) => Ok(data),
            Data::F32(_) => Err(OnnxError::Output(format!("real numbers as {:?}", self.name))),
        }
    }

    fn of(name: &str, value: &DynValue) -> Result<Self, OnnxError> {
        let failed = |error: ort::Error| OnnxError::Output(format!("{name:?} in a form that is not read: {error}"));
        let (shape, data) = match value.dtype().tensor_type() {
            Some(TensorElementType::Float16) => {
                let (shape, data) = value.try_extract_tensor::<half::f16>().map_err(failed)?;
                (shape, Data::F32(data.iter().map(|x| x.to_f32()).collect()))
            }
            Some(TensorElementType::Int64) => {
                let (shape, data) = value.try_extract_tensor::<i64>().map_err(failed)?;
                (shape, Data::I64(data.to_vec()))
            }
            Some(TensorElementType::Int32) => {
                let (shape, data) = value.try_extract_tensor::<i32>().map_err(failed)?;
                (shape, Data::I64(data.iter().map(|x| i64::from(*x)).collect()))
            }
            Some(TensorElementType::Bool) => {
                let (shape, data) = value.try_extract_tensor::<bool>().map_err(failed)?;
                (shape, Data::I64(data.iter().map(|x| i64::from(*x)).collect()))
            }
            _ => {
                let (shape, data) = value.try_extract_tensor::<f32>().map_err(failed)?;
                (shape, Data::F32(data.to_vec()))
            }
        };
        let shape = shape.iter().map(|n| *n as usize).collect();
        Ok(Self { name: name.into(), shape, data })
    }
}
