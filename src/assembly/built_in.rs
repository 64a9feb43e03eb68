//! The engines included in this program, as the manager creates them.

use super::engine_factory::EngineFactory;
use super::error::StageFailure;
use super::trial::{self, Trial};
use super::{choose, factory};
use crate::config::Config;
use antiphon_engine_api::llm::Llm;
use antiphon_engine_api::speaker::SpeakerModel;
use antiphon_engine_api::stt::Stt;
use antiphon_engine_api::tts::Tts;
use antiphon_engine_api::turn::TurnModel;
use antiphon_engine_api::vad::Vad;
use antiphon_registry::Stage;
use antiphon_telemetry::with_causes;
use std::sync::Arc;

/// The engines included in this program.
pub struct BuiltIn;

impl EngineFactory for BuiltIn {
    fn knows(&self, stage: Stage, family: &str) -> bool {
        choose::kind_of(stage, family).is_some()
    }

    fn lacks(&self, config: &Config, stage: Stage, family: &str) -> Option<&'static str> {
        let needs_onnx = choose::kind_of(stage, family).is_some_and(|kind| kind.needs_onnx);
        (needs_onnx && !antiphon_inference::onnx::is_here(&config.onnx))
            .then_some("It requires ONNX Runtime, which is not installed: run `make onnxruntime`.")
    }

    fn vad(&self, config: &Config) -> Result<Arc<dyn Vad>, StageFailure> {
        factory::vad(config)
    }

    fn turn(&self, config: &Config) -> Result<Arc<dyn TurnModel>, StageFailure> {
        factory::turn(config)
    }

    fn speaker(&self, config: &Config) -> Result<Option<Arc<dyn SpeakerModel>>, StageFailure> {
        factory::speaker(config).map(Some)
    }

    fn stt(&self, config: &Config) -> Result<Arc<dyn Stt>, StageFailure> {
        factory::stt(config)
    }

    fn llm(&self, config: &Config) -> Result<Arc<dyn Llm>, StageFailure> {
        factory::llm(config)
    }

    fn tts(&self, config: &Config) -> Result<Arc<dyn Tts>, StageFailure> {
        factory::tts(config)
    }

    fn measure_stt(&self, engine: &Arc<dyn Stt>) -> Option<Result<Trial, String>> {
        Some(trial::measure_stt(engine).map_err(|error| with_causes(&error)))
    }

    fn measure_tts(&self, engine: &Arc<dyn Tts>) -> Option<Result<Trial, String>> {
        Some(trial::measure_tts(engine).map_err(|error| with_causes(&error)))
    }
}
