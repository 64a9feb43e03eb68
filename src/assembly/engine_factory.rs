//! The port by which the manager creates engines: those of this program ([`super::BuiltIn`]), or a test's.

use super::error::StageFailure;
use super::trial::Trial;
use crate::config::Config;
use antiphon_engine_api::llm::Llm;
use antiphon_engine_api::speaker::SpeakerModel;
use antiphon_engine_api::stt::Stt;
use antiphon_engine_api::tts::Tts;
use antiphon_engine_api::turn::TurnModel;
use antiphon_engine_api::vad::Vad;
use antiphon_registry::Stage;
use std::sync::Arc;

/// Creates engines according to the configuration; the engine is never "auto". All methods block while models load.
pub trait EngineFactory: Send + Sync {
    /// Whether it includes the engine for the family.
    fn knows(&self, stage: Stage, family: &str) -> bool;
    /// The missing runtime dependency of the family's engine, with instructions; `None` if nothing is missing.
    fn lacks(&self, _config: &Config, _stage: Stage, _family: &str) -> Option<&'static str> {
        None
    }
    /// Creates the voice activity detector.
    fn vad(&self, config: &Config) -> Result<Arc<dyn Vad>, StageFailure>;
    /// Creates the turn model that `turn.model` names.
    fn turn(&self, config: &Config) -> Result<Arc<dyn TurnModel>, StageFailure>;
    /// Creates what tells voices apart; `None`: sessions are not locked.
    fn speaker(&self, _config: &Config) -> Result<Option<Arc<dyn SpeakerModel>>, StageFailure> {
        Ok(None)
    }
    /// Creates the speech-to-text engine.
    fn stt(&self, config: &Config) -> Result<Arc<dyn Stt>, StageFailure>;
    /// Creates the language model.
    fn llm(&self, config: &Config) -> Result<Arc<dyn Llm>, StageFailure>;
    /// Creates the text-to-speech engine.
    fn tts(&self, config: &Config) -> Result<Arc<dyn Tts>, StageFailure>;
    /// Measures how fast the recognizer is; `None`: recognizers of this factory are not measured. Blocks.
    fn measure_stt(&self, _engine: &Arc<dyn Stt>) -> Option<Result<Trial, String>> {
        None
    }
    /// The same for a voice.
    fn measure_tts(&self, _engine: &Arc<dyn Tts>) -> Option<Result<Trial, String>> {
        None
    }
}
