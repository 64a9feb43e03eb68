//! Speaker models: what makes an embedding of a voice.

mod config;
mod loudness;
#[cfg(feature = "onnx")]
mod onnx;

pub use config::SpeakerConfig;
pub use loudness::Loudness;
#[cfg(feature = "onnx")]
pub use onnx::OnnxSpeakerModel;

use antiphon_engine_api::speaker::{SpeakerModel, SpeakerModelError};
use antiphon_inference::onnx::OnnxConfig;
use std::sync::Arc;

/// The model that `speaker.model` names; [`Loudness`] where it names none. Blocks while it loads.
///
/// # Errors
/// [`SpeakerModelError::Unavailable`] says what is wrong with the setting, the library, the contract or the graph.
pub fn open(config: &SpeakerConfig, onnx: &OnnxConfig) -> Result<Arc<dyn SpeakerModel>, SpeakerModelError> {
    if config.model.is_empty() {
        return Ok(Arc::new(Loudness));
    }
    open_file(&config.model, onnx)
}

#[cfg(feature = "onnx")]
fn open_file(model: &str, onnx: &OnnxConfig) -> Result<Arc<dyn SpeakerModel>, SpeakerModelError> {
    Ok(Arc::new(OnnxSpeakerModel::open(std::path::Path::new(model), onnx)?))
}

#[cfg(not(feature = "onnx"))]
fn open_file(_: &str, _: &OnnxConfig) -> Result<Arc<dyn SpeakerModel>, SpeakerModelError> {
    Err(SpeakerModelError::Unavailable("speaker.model: this program was built without ONNX Runtime".into()))
}
