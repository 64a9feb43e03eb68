//! ONNX Runtime: its library found and opened at run time, models loaded, run, and cancelled.
//!
//! Engines that run on ONNX (Piper, Kokoro, Silero, smart-turn) call [`Runtime::open`] with the `[onnx]` section,
//! [`Runtime::load`] with a file and the [`Signature`] they need, and [`Model::run`] with tensors. The library is opened by
//! the first of them, so a hub without an ONNX engine starts without it. This module knows no stage: it neither finds models
//! nor knows what their numbers mean, keeps no queue and starts no thread of its own.
//!
//! A [`Model`] is `Send + Sync` and runs one call at a time, since `ort` asks for `&mut Session`: a second caller waits.
//! Small models that all sessions share (Silero) are one `Arc<Model>`; engines that run several chunks at once load a
//! model for each replica of their pool.
//!
//! ```no_run
//! # use antiphon_inference::onnx::{Kind, ModelOptions, OnnxConfig, Port, Runtime, Signature, Tensor};
//! # use tokio_util::sync::CancellationToken;
//! static DOUBLER: Signature = Signature {
//!     family: "doubler",
//!     inputs: &[Port::new("x", &[Kind::F32], 2)],
//!     outputs: &[Port::new("y", &[Kind::F32], 2)],
//! };
//! # fn f() -> Result<(), antiphon_inference::onnx::OnnxError> {
//! let runtime = Runtime::open(&OnnxConfig::default())?;
//! let model = runtime.load("models/doubler.onnx".as_ref(), &ModelOptions::of(&DOUBLER))?;
//! let outputs = model.run(&[("x", Tensor::f32([1, 3], &[1.0, 2.0, 3.0]))], &CancellationToken::new())?;
//! assert_eq!(outputs.named("y")?.f32()?, [2.0, 4.0, 6.0]);
//! # Ok(()) }
//! ```

mod cancel;
mod device;
mod error;
mod library;
mod model;
mod outputs;
mod provider;
mod runtime;
mod signature;
mod tensor;

pub use crate::OnnxConfig;
pub use device::{Binding, DeviceTensor, Number, OutputMemory};
pub use error::OnnxError;
pub use model::Model;
pub use outputs::{Output, Outputs};
pub use provider::Provider;
pub use runtime::{ModelOptions, Runtime};
pub use signature::{Kind, Port, Signature, Slot};
pub use tensor::Tensor;

/// Whether the library can be found; opens nothing. Blocks while it lists a few folders.
pub fn is_here(config: &OnnxConfig) -> bool {
    library::find(&library::places(config)).is_ok()
}

#[cfg(test)]
mod tests;
