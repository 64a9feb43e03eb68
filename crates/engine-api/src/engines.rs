//! What a session works with: one handle a stage, shared by all sessions.

use crate::llm::Llm;
use crate::stt::Stt;
use crate::tts::Tts;
use crate::turn::TurnModel;
use crate::vad::Vad;
use serde::Serialize;
use std::sync::Arc;

/// The engines, made by `engines::build` or from the stages' fakes. Cheap to clone.
#[derive(Clone)]
pub struct Engines {
    /// Voice activity.
    pub vad: Arc<dyn Vad>,
    /// What says at a pause whether the turn is over; `None`: the other hints do.
    pub turn: Option<Arc<dyn TurnModel>>,
    /// Speech to text.
    pub stt: Arc<dyn Stt>,
    /// The language model.
    pub llm: Arc<dyn Llm>,
    /// Text to speech.
    pub tts: Arc<dyn Tts>,
}

impl Engines {
    /// What they are called.
    pub fn names(&self) -> EngineNames {
        EngineNames {
            vad: self.vad.name().into(),
            stt: self.stt.name().into(),
            llm: self.llm.name().into(),
            tts: self.tts.name().into(),
        }
    }
}

/// The engines, as configured.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[allow(missing_docs, reason = "the stages are named as everywhere")]
pub struct EngineNames {
    pub vad: String,
    pub stt: String,
    pub llm: String,
    pub tts: String,
}
