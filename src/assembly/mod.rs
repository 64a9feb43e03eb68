//! Creates the engines that all sessions share from the configuration.
//!
//! `cli` creates an [`EngineManager`] at startup, or calls one of [`vad`], [`turn`], [`stt`] and [`tts`] for a single
//! stage. An error names what is missing and how to obtain it. With `engine = "auto"` the best model on disk serves,
//! and skipped models are reported: nothing is substituted silently. This module does not communicate with clients.

mod choose;
mod error;
mod factory;
mod fallback;
#[cfg(feature = "whisper")]
pub mod import;
mod manager;
#[cfg(test)]
mod manager_tests;
mod membership;
mod model_cache;
mod preflight;
mod trial;
mod worker;

pub use choose::{AUTO, PassedOver, recommended};
pub use error::{EnginesError, StageFailure};
pub use factory::llm;
pub use manager::{ActiveEngines, EngineManager, Served, without_precision};
pub use membership::{CLUSTER, Membership};
pub use model_cache::{CachedValue, Limits, ModelCache, ModelCacheError};
pub use preflight::problems;
pub use trial::{Trial, Trials};
pub use worker::worker_stages;

use crate::config::Config;
use antiphon_engine_api::Engines;
use antiphon_engine_api::llm::Llm;
use antiphon_engine_api::stt::Stt;
use antiphon_engine_api::tts::Tts;
use antiphon_engine_api::turn::TurnModel;
use antiphon_engine_api::vad::Vad;
use antiphon_registry::Stage;
use antiphon_telemetry::with_causes;
use std::sync::Arc;

/// Creates engines according to the configuration; the engine is never "auto". All methods block while models load.
pub trait EngineFactory: Send + Sync {
    /// Whether it includes the engine for the family.
    fn knows(&self, stage: Stage, family: &str) -> bool;
    /// The missing runtime dependency of the family's engine, with instructions; `None` if nothing is missing.
    fn lacks(&self, _config: &Config, _family: &str) -> Option<&'static str> {
        None
    }
    /// Creates the voice activity detector.
    fn vad(&self, config: &Config) -> Result<Arc<dyn Vad>, StageFailure>;
    /// Creates the turn model that `turn.model` names.
    fn turn(&self, config: &Config) -> Result<Arc<dyn TurnModel>, StageFailure>;
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

/// The engines included in this program.
pub struct BuiltIn;

impl EngineFactory for BuiltIn {
    fn knows(&self, stage: Stage, family: &str) -> bool {
        factory::names(choose::name_of(stage)).contains(&family)
    }

    fn lacks(&self, config: &Config, family: &str) -> Option<&'static str> {
        let on_onnx = ["silero", "smart-turn", "piper", "kokoro", "hibari", "speechlm"].contains(&family);
        (on_onnx && !antiphon_inference::onnx::is_here(&config.onnx))
            .then_some("It requires ONNX Runtime, which is not installed: run `make onnxruntime`.")
    }

    fn vad(&self, config: &Config) -> Result<Arc<dyn Vad>, StageFailure> {
        factory::vad(config)
    }

    fn turn(&self, config: &Config) -> Result<Arc<dyn TurnModel>, StageFailure> {
        factory::turn(config)
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

/// Starts the engine of each stage, STT and TTS concurrently on threads of their own. Blocks until all are loaded, for
/// seconds if models are large. Progress is logged.
///
/// # Errors
/// Every stage that could not start, not only the first.
pub fn build(config: &Config) -> Result<Engines, EnginesError> {
    Ok(EngineManager::new(config)?.load()?.engines)
}

/// The voice activity detector alone. Blocks while a model loads.
pub fn vad(config: &Config) -> Result<Arc<dyn Vad>, StageFailure> {
    EngineManager::new(config)?.only::<dyn Vad>()
}

/// The turn model alone; `None` if turn detection uses none. Blocks while it loads.
pub fn turn(config: &Config) -> Result<Option<Arc<dyn TurnModel>>, StageFailure> {
    EngineManager::new(config)?.turn_model()
}

/// The speech-to-text engine alone. Blocks while models load.
pub fn stt(config: &Config) -> Result<Arc<dyn Stt>, StageFailure> {
    EngineManager::new(config)?.only::<dyn Stt>()
}

/// The text-to-speech engine alone. Blocks while voices load.
pub fn tts(config: &Config) -> Result<Arc<dyn Tts>, StageFailure> {
    EngineManager::new(config)?.only::<dyn Tts>()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{KEYS, Rule};

    #[test]
    fn an_unknown_engine_is_refused_by_name() {
        let mut config = Config::default();
        config.tts.engine = "gramophone".into();
        let error = tts(&config).err().expect("refused").to_string();
        assert_eq!(error, "tts: the engine \"gramophone\" cannot start: there is no such engine");
    }

    #[test]
    fn all_stages_that_fail_are_reported_together() {
        let mut config = Config::default();
        for engine in [&mut config.stt.engine, &mut config.llm.engine, &mut config.tts.engine, &mut config.vad.engine] {
            *engine = "nothing".into();
        }
        let Err(EnginesError(failures)) = build(&config) else { panic!("refused") };
        let stages: Vec<_> = failures.iter().map(|failure| failure.stage).collect();
        assert_eq!(stages, ["vad", "stt", "llm", "tts"]);
    }

    #[test]
    fn every_engine_the_configuration_lets_through_is_known_here() {
        for key in KEYS.iter().filter(|key| key.name == "engine") {
            let Rule::OneOf(names) = key.rule else { panic!("{}: a list of names", key.section) };
            assert_eq!(names, factory::names(key.section), "{}", key.section);
        }
    }
}
