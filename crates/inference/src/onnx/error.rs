//! What can go wrong with ONNX Runtime and its models.

use super::Provider;
use std::path::PathBuf;

/// A failure of the library, of a model or of a run. The text says what is wrong and what would be right.
#[derive(Debug, thiserror::Error)]
pub enum OnnxError {
    /// The library was not found.
    #[error(
        "ONNX Runtime is not there: install antiphon-models, run `make onnxruntime`, or set onnx.runtime; looked in {looked}"
    )]
    NoLibrary {
        /// The places, in order.
        looked: String,
    },
    /// The library was found but cannot be used.
    #[error("ONNX Runtime cannot be opened from {}: {message}", path.display())]
    BadLibrary {
        /// Its file.
        path: PathBuf,
        /// What the loader said.
        message: String,
    },
    /// Another library is open in this process: there can be one only.
    #[error(
        "ONNX Runtime is open already from {}, and a process can hold one only: {} cannot be opened as well",
        open.display(), requested.display()
    )]
    OtherLibrary {
        /// The one that is open.
        open: PathBuf,
        /// The requested one.
        requested: PathBuf,
    },
    /// The model's file cannot be read.
    #[error("the model {} cannot be read: {source}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The file is not a model, or truncated.
    #[error("the model {} is corrupt or cut off, or no ONNX model; fetch it again ({message})", path.display())]
    Corrupt {
        /// The file.
        path: PathBuf,
        /// What the runtime said.
        message: String,
    },
    /// The file is a model of another family.
    #[error("the model {} is no {family}: {wrong}", path.display())]
    WrongModel {
        /// The file.
        path: PathBuf,
        /// What was expected.
        family: &'static str,
        /// What differs.
        wrong: String,
    },
    /// The provider that the configuration requires does not serve this model.
    #[error(
        "onnx.require = true, and {provider} does not serve {}: {message}; set onnx.provider to \"cpu\", or onnx.require \
         to false",
        path.display()
    )]
    NotServed {
        /// The provider.
        provider: Provider,
        /// The model.
        path: PathBuf,
        /// Why not.
        message: String,
    },
    /// The run was cancelled.
    #[error("the run was cancelled")]
    Cancelled,
    /// The inputs do not fit; the model and the device are not at fault.
    #[error("the model {} does not take this: {message}", path.display())]
    Inputs {
        /// The model.
        path: PathBuf,
        /// What the runtime said.
        message: String,
    },
    /// The run failed in the model or the device.
    #[error("the model {} failed: {message}", path.display())]
    Run {
        /// The model.
        path: PathBuf,
        /// What the runtime said.
        message: String,
    },
    /// The outputs differ from those the model declares.
    #[error("the model gave {0}")]
    Output(String),
}
