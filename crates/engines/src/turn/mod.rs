//! Turn models: what says of a pause's audio whether the turn is over.

#[cfg(feature = "smart-turn")]
mod smart;

#[cfg(feature = "smart-turn")]
pub use smart::SmartTurn;

use crate::table::{EngineEntry, EngineKind, EngineStage, ModelSource, made_with};
use antiphon_engine_api::turn::TurnModel;
#[cfg(feature = "smart-turn")]
use std::sync::Arc;

/// The turn models. `turn.model` names the model of the first one; there is no setting for the engine.
pub static ENGINES: &[EngineEntry<dyn TurnModel>] = &[EngineEntry {
    kind: EngineKind {
        stage: EngineStage::Turn,
        name: "smart-turn",
        feature: Some("smart-turn"),
        model: ModelSource::Files,
        needs_onnx: true,
    },
    make: made_with!("smart-turn", |settings| { Ok(Arc::new(SmartTurn::open(settings.turn_model, settings.onnx)?)) }),
}];
