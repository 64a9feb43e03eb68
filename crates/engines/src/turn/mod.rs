//! Turn models: what says of a pause's audio whether the turn is over.

#[cfg(feature = "smart-turn")]
mod query;
#[cfg(feature = "smart-turn")]
mod smart;
#[cfg(feature = "smart-turn")]
mod streaming;

#[cfg(feature = "smart-turn")]
pub use smart::SmartTurn;
#[cfg(feature = "smart-turn")]
pub use streaming::StreamingTurnModel;

use crate::table::{EngineEntry, EngineKind, EngineStage, ModelSource, made_with};
use antiphon_engine_api::turn::TurnModel;
use std::path::Path;
#[cfg(feature = "smart-turn")]
use std::sync::Arc;

/// The turn models. There is no setting for the engine: see [`engine_of`].
pub static ENGINES: &[EngineEntry<dyn TurnModel>] = &[
    EngineEntry {
        kind: EngineKind {
            stage: EngineStage::Turn,
            name: SMART_TURN,
            feature: Some("smart-turn"),
            model: ModelSource::Files,
            needs_onnx: true,
        },
        make: made_with!("smart-turn", |settings| {
            Ok(Arc::new(SmartTurn::open(settings.turn_model, settings.onnx)?))
        }),
    },
    EngineEntry {
        kind: EngineKind {
            stage: EngineStage::Turn,
            name: STREAMING_TURN,
            feature: Some("smart-turn"),
            model: ModelSource::Files,
            needs_onnx: true,
        },
        make: made_with!("smart-turn", |settings| {
            Ok(Arc::new(StreamingTurnModel::open(settings.turn_model, settings.onnx)?))
        }),
    },
];

const SMART_TURN: &str = "smart-turn";
const STREAMING_TURN: &str = "streaming-turn";

/// The engine of the model that `turn.model` names: a file with a contract beside it is a streaming model, all others are
/// smart-turn's. Reads the folder.
pub fn engine_of(model: &Path) -> &'static str {
    if model.with_extension("json").is_file() { STREAMING_TURN } else { SMART_TURN }
}
