//! Tensors that stay where a model runs, and runs that are bound to them.
//!
//! [`Model::run`] copies every output to the host, which is right for a sound and wrong for a cache that is read again by
//! the next step. A [`Binding`] holds the inputs and the places of the outputs of a model; [`Model::run_bound`] runs it and
//! gives each output as a [`DeviceTensor`] in the memory it was bound to. Used by engines that keep state on the device (the
//! speech language models). It knows no cache layout.

#![allow(unsafe_code, reason = "a view of some rows of a tensor can only be bound through the runtime's own interface")]

use super::{Kind, Model, OnnxError, Provider, Tensor};
use ort::AsPointer;
use ort::memory::{AllocationDevice, Allocator, AllocatorType, MemoryInfo, MemoryType};
use ort::session::{IoBinding, NoSelectedOutputs, RunOptions};
use ort::value::{DynTensor, DynValue, Shape, TensorElementType, TensorRefMut};
use std::collections::HashMap;
use std::ffi::CString;
use std::fmt::Debug;
use std::ops::Range;
use std::rc::Rc;

/// The numbers that tensors hold.
pub use ort::value::PrimitiveTensorElementType as Number;

/// A dense tensor in the memory of a model's device, row-major. It keeps its memory until it and every binding that names it
/// are gone.
///
/// It stays on the thread that made it, so that no other thread reads it while a run writes it.
#[derive(Debug)]
pub struct DeviceTensor {
    value: Rc<DynTensor>,
    shape: Vec<usize>,
    kind: Kind,
}

/// The inputs and outputs of a model's next run. One belongs to one model; a binding stays until it is replaced, outputs are
/// bound again before each run.
pub struct Binding {
    io: IoBinding,
    options: RunOptions<NoSelectedOutputs>,
    /// Names of the bound outputs, in the order of binding.
    outputs: Vec<String>,
    /// What is bound by its address, by the name of the input and of the output.
    held: HashMap<String, Rc<DynTensor>>,
}

impl Binding {
    /// Releases all that is bound.
    pub fn clear(&mut self) {
        self.io.clear();
        self.held.clear();
        self.outputs.clear();
    }
}

/// Where an output goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutputMemory {
    /// To the memory of the model's device.
    Device,
    /// To the host's memory.
    Host,
}

impl DeviceTensor {
    /// Its size in each dimension.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// The type of its elements.
    pub fn kind(&self) -> &Kind {
        &self.kind
    }

    /// Its size in bytes.
    pub fn n_bytes(&self) -> usize {
        self.shape.iter().product::<usize>() * self.kind.n_bytes()
    }

    /// Whether the host can read its memory.
    pub fn is_on_host(&self) -> bool {
        self.value.memory_info().is_cpu_accessible()
    }

    /// Its numbers, where the host can read them, they are of that type, and no rows of it are bound in place.
    pub fn numbers<T: Number>(&self) -> Option<&[T]> {
        if Rc::strong_count(&self.value) > 1 {
            return None;
        }
        self.value.try_extract_tensor().ok().map(|(_, numbers)| numbers)
    }

    /// The same, to write; `None` as well where rows of it are bound.
    pub fn numbers_mut<T: Number>(&mut self) -> Option<&mut [T]> {
        Rc::get_mut(&mut self.value)?.try_extract_tensor_mut().ok().map(|(_, numbers)| numbers)
    }

    /// Some of its numbers, half precision widened, in place of what `into` held. The tensor must be on the host.
    ///
    /// # Errors
    /// [`OnnxError::Output`] where it is not on the host, holds no floats, or is smaller.
    pub fn read_f32(&self, range: Range<usize>, into: &mut Vec<f32>) -> Result<(), OnnxError> {
        into.clear();
        let short = || OnnxError::Output(format!("a tensor of the shape {:?}, too small", self.shape));
        match self.kind {
            Kind::F32 => {
                let numbers =
                    self.numbers::<f32>().ok_or_else(|| OnnxError::Output("no numbers of the host".into()))?;
                into.extend_from_slice(numbers.get(range).ok_or_else(short)?);
            }
            Kind::F16 => {
                let numbers =
                    self.numbers::<half::f16>().ok_or_else(|| OnnxError::Output("no numbers of the host".into()))?;
                into.extend(numbers.get(range).ok_or_else(short)?.iter().map(|number| number.to_f32()));
            }
            _ => {
                return Err(OnnxError::Output(format!("numbers of the type {} where floats were expected", self.kind)));
            }
        }
        Ok(())
    }

    fn of(value: DynValue) -> Result<Self, OnnxError> {
        let value: DynTensor =
            value.downcast().map_err(|error| OnnxError::Output(format!("an output that is no tensor: {error}")))?;
        let shape = value.shape().iter().map(|n| *n as usize).collect();
        let kind = Kind::of(*value.data_type());
        Ok(Self { value: Rc::new(value), shape, kind })
    }
}

impl Kind {
    /// Bytes of one element; 0 where it is not known.
    pub fn n_bytes(&self) -> usize {
        match self {
            Self::F32 | Self::I32 => 4,
            Self::F16 => 2,
            Self::I64 => 8,
            Self::Bool => 1,
            Self::Other(_) => 0,
        }
    }

    pub(super) fn element(&self) -> Option<TensorElementType> {
        Some(match self {
            Self::F32 => TensorElementType::Float32,
            Self::F16 => TensorElementType::Float16,
            Self::I64 => TensorElementType::Int64,
            Self::I32 => TensorElementType::Int32,
            Self::Bool => TensorElementType::Bool,
            Self::Other(_) => return None,
        })
    }
}

impl Model {
    /// Whether it runs in the host's memory.
    pub fn is_on_host(&self) -> bool {
        self.provider() == Provider::Cpu
    }

    /// An empty binding. Cheap; keep one for each kind of run.
    ///
    /// # Errors
    /// [`OnnxError::Run`] when the runtime gives none.
    pub fn binding(&self) -> Result<Binding, OnnxError> {
        let io = self.with_session(|session| session.create_binding())?;
        let options = RunOptions::new().map_err(|error| self.failed(&error))?;
        Ok(Binding { io, options, outputs: Vec::new(), held: HashMap::new() })
    }

    /// A tensor in the memory of the model's device. Zeros on the host; elsewhere its content is undefined.
    ///
    /// # Errors
    /// [`OnnxError::Run`] when there is no memory for it.
    pub fn device_tensor(&self, kind: &Kind, shape: &[usize]) -> Result<DeviceTensor, OnnxError> {
        let Some(element) = kind.element() else {
            return Err(OnnxError::Output(format!("no tensor can be made of the type {kind}")));
        };
        let memory = self.memory(OutputMemory::Device)?;
        let value = self.with_session(|session| {
            let allocator = match self.provider() {
                Provider::Cpu => Allocator::default(),
                Provider::Cuda | Provider::TensorRt => Allocator::new(session, memory)?,
            };
            DynTensor::new(&allocator, element, shape.iter().map(|n| *n as i64).collect::<Vec<i64>>())
        })?;
        Ok(DeviceTensor { value: Rc::new(value), shape: shape.into(), kind: kind.clone() })
    }

    /// Binds an input to a tensor. Nothing is copied where the tensor is on the model's device.
    ///
    /// # Errors
    /// [`OnnxError::Inputs`] where the model has no such input.
    pub fn bind_input(&self, binding: &mut Binding, name: &str, tensor: &DeviceTensor) -> Result<(), OnnxError> {
        binding.io.bind_input(name, &*tensor.value).map_err(|error| self.unfit(name, &error))?;
        binding.held.remove(name);
        Ok(())
    }

    /// Binds an input to numbers of the host, which are copied.
    ///
    /// # Errors
    /// [`OnnxError::Inputs`] where shape and numbers disagree or the model has no such input.
    pub fn bind_host(&self, binding: &mut Binding, name: &str, tensor: &Tensor<'_>) -> Result<(), OnnxError> {
        let kind = self.input(name).map(|slot| &slot.kind);
        let value = tensor.owned(kind).map_err(|message| self.unfit(name, &message))?;
        binding.io.bind_input(name, &value).map_err(|error| self.unfit(name, &error))
    }

    /// Binds some rows (along the first dimension) of a tensor as an input and as the output that takes its place: the run
    /// reads and writes them where they are, and nothing is copied. The binding holds the tensor's memory until both are bound to
    /// something else; the tensor's numbers cannot be read meanwhile.
    ///
    /// # Errors
    /// [`OnnxError::Inputs`] where the model has no such input or output, or the tensor fewer rows.
    pub fn bind_rows_in_place(
        &self,
        binding: &mut Binding,
        input: &str,
        output: &str,
        tensor: &mut DeviceTensor,
        rows: Range<usize>,
    ) -> Result<(), OnnxError> {
        match tensor.kind {
            Kind::F16 => self.bind_view::<half::f16>(binding, input, output, tensor, rows),
            Kind::F32 => self.bind_view::<f32>(binding, input, output, tensor, rows),
            _ => Err(self.unfit(input, &format!("rows of the type {}", tensor.kind))),
        }
    }

    fn bind_view<T: Number + Debug>(
        &self,
        binding: &mut Binding,
        input: &str,
        output: &str,
        tensor: &DeviceTensor,
        rows: Range<usize>,
    ) -> Result<(), OnnxError> {
        let n_rows = tensor.shape.first().copied().unwrap_or_default();
        if rows.is_empty() || rows.end > n_rows {
            return Err(self.unfit(input, &format!("rows {rows:?} of {n_rows}")));
        }
        let row_bytes = tensor.n_bytes() / n_rows;
        let mut shape = tensor.shape.clone();
        shape[0] = rows.len();
        let shape = Shape::new(shape.iter().map(|n| *n as i64));
        let memory = tensor.value.memory_info().to_owned();
        // SAFETY: the rows lie within the tensor's memory, which the binding holds.
        let view = unsafe {
            let first = tensor.value.data_ptr().cast_mut().cast::<u8>().add(rows.start * row_bytes);
            TensorRefMut::<T>::from_raw(memory, first.cast(), shape)
        };
        let view = view.map_err(|error| self.unfit(input, &error))?;
        let name = CString::new(input).map_err(|error| self.unfit(input, &error))?;
        // The crate's own `bind_input` copies what is borrowed, which would be the whole cache.
        // SAFETY: all three are valid, and the memory whose address the runtime keeps is held below.
        unsafe {
            let status = (ort::api().BindInput)(binding.io.ptr().cast_mut(), name.as_ptr(), view.ptr());
            ort::Error::result_from_status(status).map_err(|error| self.unfit(input, &error))?;
        }
        binding.held.insert(input.into(), tensor.value.clone());
        binding.io.bind_output(output, view).map_err(|error| self.unfit(output, &error))?;
        binding.held.insert(output.into(), tensor.value.clone());
        Ok(())
    }

    /// Binds an output to where it goes; a new tensor is made for it by the next run.
    ///
    /// # Errors
    /// [`OnnxError::Inputs`] where the model has no such output.
    pub fn bind_output(&self, binding: &mut Binding, name: &str, place: OutputMemory) -> Result<(), OnnxError> {
        let memory = self.memory(place)?;
        binding.io.bind_output_to_device(name, &memory).map_err(|error| self.unfit(name, &error))?;
        binding.held.remove(name);
        if !binding.outputs.iter().any(|known| known == name) {
            binding.outputs.push(name.into());
        }
        Ok(())
    }

    /// Runs the model on its bound inputs and gives the bound outputs, in the order in which they were bound first. Blocks for
    /// as long as that takes.
    ///
    /// # Errors
    /// [`OnnxError::Inputs`] when inputs do not fit: the model can be run again; [`OnnxError::Run`] when the device fails.
    pub fn run_bound(&self, binding: &mut Binding) -> Result<Vec<DeviceTensor>, OnnxError> {
        let names = &binding.outputs;
        let io = &binding.io;
        let options = &binding.options;
        self.with_session_mut(|session| {
            let mut outputs = session.run_binding_with_options(io, options)?;
            let values: Vec<Option<DynValue>> = names.iter().map(|name| outputs.remove(name)).collect();
            Ok(values)
        })?
        .into_iter()
        .zip(names)
        .map(|(value, name)| DeviceTensor::of(value.ok_or_else(|| OnnxError::Output(format!("no output {name:?}")))?))
        .collect()
    }

    fn memory(&self, place: OutputMemory) -> Result<MemoryInfo<'static>, OnnxError> {
        let device = match (place, self.provider()) {
            (OutputMemory::Host, _) | (_, Provider::Cpu) => None,
            (OutputMemory::Device, Provider::Cuda | Provider::TensorRt) => Some(self.device_id()),
        };
        let memory = match device {
            None => MemoryInfo::new(AllocationDevice::CPU, 0, AllocatorType::Device, MemoryType::Default),
            Some(id) => MemoryInfo::new(AllocationDevice::CUDA, id, AllocatorType::Device, MemoryType::Default),
        };
        memory.map_err(|error| self.failed(&error))
    }
}
