//! One loaded model.

use super::cancel::StopWhenCancelled;
use super::{OnnxError, Outputs, Provider, Signature, Slot, Tensor};
use antiphon_types::RunsOn;
use ort::ErrorCode;
use ort::logging::LogLevel;
use ort::session::{RunOptions, Session, SessionInputValue};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, TryLockError};
use tokio_util::sync::CancellationToken;

/// A model, ready to run. Share it as `Arc<Model>`: runs from several threads are serialized. Engines that run in
/// parallel load one each, at the cost of another copy of the weights.
#[derive(Debug)]
pub struct Model {
    path: PathBuf,
    session: Mutex<Session>,
    provider: Provider,
    device_id: i32,
    n_threads: usize,
    inputs: Vec<Slot>,
    outputs: Vec<Slot>,
}

impl Model {
    pub(super) fn new(path: &Path, session: Session, provider: Provider, device_id: i32, n_threads: usize) -> Self {
        let inputs = session.inputs().iter().map(Slot::of).collect();
        let outputs = session.outputs().iter().map(Slot::of).collect();
        Self { path: path.into(), session: Mutex::new(session), provider, device_id, n_threads, inputs, outputs }
    }

    /// The provider it actually runs on.
    pub fn provider(&self) -> Provider {
        self.provider
    }

    /// What a run keeps busy. On the processor these are all threads that it may use, which is an upper bound.
    pub fn runs_on(&self) -> RunsOn {
        match self.provider {
            Provider::Cpu => RunsOn::threads(self.n_threads),
            Provider::Cuda | Provider::TensorRt => RunsOn::GPU,
        }
    }

    /// Threads of one run.
    pub(super) fn n_threads(&self) -> usize {
        self.n_threads
    }

    /// Its file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// A text that its maker wrote into the file under that key, such as sizes that the graph does not show.
    pub fn property(&self, key: &str) -> Option<String> {
        let session = self.session.lock().unwrap_or_else(PoisonError::into_inner);
        session.metadata().ok()?.custom(key)
    }

    /// The number of its device, where it runs on a GPU.
    pub(super) fn device_id(&self) -> i32 {
        self.device_id
    }

    /// Its inputs, in the model's order.
    pub fn inputs(&self) -> &[Slot] {
        &self.inputs
    }

    /// Its outputs, in the model's order.
    pub fn outputs(&self) -> &[Slot] {
        &self.outputs
    }

    /// The output of that name.
    pub fn output(&self, name: &str) -> Option<&Slot> {
        self.outputs.iter().find(|slot| slot.name == name)
    }

    /// The input of that name, for inputs that not all models of a family have.
    pub fn input(&self, name: &str) -> Option<&Slot> {
        self.inputs.iter().find(|slot| slot.name == name)
    }

    /// Whether it is of that family: for families with more than one signature. [`Runtime::load`](super::Runtime::load)
    /// does it for the one it is given.
    ///
    /// # Errors
    /// [`OnnxError::WrongModel`] with what differs.
    pub fn check(&self, signature: &Signature) -> Result<(), OnnxError> {
        match signature.difference(&self.inputs, &self.outputs) {
            None => Ok(()),
            Some(wrong) => Err(OnnxError::WrongModel { path: self.path.clone(), family: signature.family, wrong }),
        }
    }

    /// Whether no run is under way now.
    pub fn is_free(&self) -> bool {
        !matches!(self.session.try_lock(), Err(TryLockError::WouldBlock))
    }

    /// Calls a function while the model appears to be running. For tests of engines.
    #[doc(hidden)]
    pub fn while_it_runs(&self, what: impl FnOnce()) {
        let _session = self.session.lock().unwrap_or_else(PoisonError::into_inner);
        what();
    }

    /// Runs the model once and gives all its outputs. Blocks for as long as that takes, and before it for the run of
    /// another thread. Cancelling the token, from anywhere, ends it at its next operator.
    ///
    /// # Errors
    /// [`OnnxError::Cancelled`]; [`OnnxError::Inputs`] when inputs do not fit: the model can be run again;
    /// [`OnnxError::Run`] when the device fails: load it again.
    pub fn run(&self, inputs: &[(&str, Tensor<'_>)], cancel: &CancellationToken) -> Result<Outputs, OnnxError> {
        let failed = |message: String| OnnxError::Run { path: self.path.clone(), message };
        let unfit = |message: String| OnnxError::Inputs { path: self.path.clone(), message };
        let mut values: Vec<(&str, SessionInputValue<'_>)> = Vec::with_capacity(inputs.len());
        for (name, tensor) in inputs {
            let kind = self.input(name).map(|slot| &slot.kind);
            let value = tensor.value(kind).map_err(|message| unfit(format!("{name}: {message}")))?;
            values.push((name, value));
        }
        let mut options = RunOptions::new().map_err(|error| failed(error.to_string()))?;
        options.set_log_level(LogLevel::Warning).map_err(|error| failed(error.to_string()))?;
        let options = Arc::new(options);
        let mut session = self.session.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(_stop) = StopWhenCancelled::watch(cancel, options.clone()) else {
            return Err(OnnxError::Cancelled);
        };
        match session.run_with_options(values, &*options) {
            Ok(outputs) => Outputs::of(&outputs),
            Err(_) if cancel.is_cancelled() => Err(OnnxError::Cancelled),
            Err(error) if error.code() == ErrorCode::InvalidArgument => Err(unfit(error.to_string())),
            Err(error) => Err(failed(error.to_string())),
        }
    }

    /// Calls the runtime with the session; blocks for the run of another thread.
    pub(super) fn with_session<R>(&self, call: impl FnOnce(&Session) -> ort::Result<R>) -> Result<R, OnnxError> {
        self.with_session_mut(|session| call(session))
    }

    /// The same, for what changes it.
    pub(super) fn with_session_mut<R>(
        &self,
        call: impl FnOnce(&mut Session) -> ort::Result<R>,
    ) -> Result<R, OnnxError> {
        let mut session = self.session.lock().unwrap_or_else(PoisonError::into_inner);
        call(&mut session).map_err(|error| match error.code() {
            ErrorCode::InvalidArgument => OnnxError::Inputs { path: self.path.clone(), message: error.to_string() },
            _ => self.failed(&error),
        })
    }

    /// The device or the model failed.
    pub(super) fn failed(&self, error: &dyn std::fmt::Display) -> OnnxError {
        OnnxError::Run { path: self.path.clone(), message: error.to_string() }
    }

    /// An input or output of that name does not fit.
    pub(super) fn unfit(&self, name: &str, error: &dyn std::fmt::Display) -> OnnxError {
        OnnxError::Inputs { path: self.path.clone(), message: format!("{name}: {error}") }
    }
}
