//! Voice activity detectors: earshot, and the cascade of earshot and Silero.
//!
//! A window costs microseconds, so they run inline in the session (Silero: 0.1 ms where there may be speech, and the wait
//! for a session of its model where all are taken).

mod config;
mod earshot;
mod noise_floor;
#[cfg(feature = "silero")]
mod silero;

pub use config::VadConfig;
pub use earshot::Earshot;
#[cfg(feature = "silero")]
pub use silero::Silero;

use crate::table::{EngineEntry, EngineKind, EngineStage, ModelSource, made_with};
use antiphon_engine_api::vad::Vad;
use std::sync::Arc;

/// The detectors.
pub static ENGINES: &[EngineEntry<dyn Vad>] = &[
    EngineEntry {
        kind: EngineKind {
            stage: EngineStage::Vad,
            name: "earshot",
            feature: None,
            model: ModelSource::BuiltIn,
            needs_onnx: false,
        },
        make: Some(|_| Ok(Arc::new(Earshot))),
    },
    EngineEntry {
        kind: EngineKind {
            stage: EngineStage::Vad,
            name: "silero",
            feature: Some("silero"),
            model: ModelSource::Files,
            needs_onnx: true,
        },
        make: made_with!("silero", |settings| {
            Ok(Arc::new(Silero::open(settings.vad.model.as_ref(), settings.onnx)?))
        }),
    },
];
