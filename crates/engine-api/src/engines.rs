//! The set of engines that a session uses: one handle per stage, shared by all sessions.

use crate::llm::Llm;
use crate::speaker::SpeakerModel;
use crate::stt::Stt;
use crate::tts::Tts;
use crate::turn::TurnModel;
use crate::vad::Vad;
use serde::Serialize;
use std::sync::Arc;

/// One engine per stage, built by the root's `assembly::build` or from the fakes. Cheap to clone.
#[derive(Clone)]
pub struct Engines {
    /// Voice activity detection.
    pub vad: Arc<dyn Vad>,
    /// The turn model; `None`: endpointing uses its other hints only.
    pub turn: Option<Arc<dyn TurnModel>>,
    /// The speaker model; `None`: no session can be locked to a voice.
    pub speaker: Option<Arc<dyn SpeakerModel>>,
    /// Speech to text.
    pub stt: Arc<dyn Stt>,
    /// The language model.
    pub llm: Arc<dyn Llm>,
    /// Text to speech.
    pub tts: Arc<dyn Tts>,
}

impl Engines {
    /// With the fallback engines of recognizer and voice in the place of these, where there are some.
    #[must_use]
    pub fn smaller(&self) -> Self {
        let mut smaller = self.clone();
        smaller.stt = self.stt.smaller().unwrap_or(smaller.stt);
        smaller.tts = self.tts.smaller().unwrap_or(smaller.tts);
        smaller
    }

    /// The configured names of the engines.
    pub fn names(&self) -> EngineNames {
        EngineNames {
            vad: self.vad.name().into(),
            stt: self.stt.name().into(),
            llm: self.llm.name().into(),
            tts: self.tts.name().into(),
        }
    }
}

/// The configured name of the engine of each stage.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[allow(missing_docs, reason = "the stages are named as everywhere")]
pub struct EngineNames {
    pub vad: String,
    pub stt: String,
    pub llm: String,
    pub tts: String,
}
