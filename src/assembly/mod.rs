//! From the configuration to the engines all sessions share.
//!
//! `cli` opens a [`EngineManager`] at start, or calls one of [`stt`], [`llm`], [`tts`] where a command needs a single stage. What
//! cannot start is said with what is missing and how to get it. With `engine = "auto"` the best model on the disk serves,
//! and what was passed over is said: nothing is replaced by something else in silence. This module talks to no client.

mod choose;
mod error;
mod factory;
mod manager;
#[cfg(test)]
mod manager_tests;
mod model_cache;

pub use choose::{AUTO, PassedOver};
pub use error::{EnginesError, StageFailure};
pub use factory::{llm, vocabulary};
pub use manager::{ActiveEngines, EngineManager, Served, without_precision};
pub use model_cache::{Limits, ModelCache, ModelCacheError, Shared};

use crate::config::Config;
use antiphon_engine_api::Engines;
use antiphon_engine_api::llm::Llm;
use antiphon_engine_api::stt::Stt;
use antiphon_engine_api::tts::Tts;
use antiphon_engine_api::turn::TurnModel;
use antiphon_engine_api::vad::Vad;
use antiphon_registry::Stage;
use std::sync::Arc;

/// EngineFactory engines as the configuration names them; never asked for "auto". All methods block while models load.
pub trait EngineFactory: Send + Sync {
    /// Whether it has the engine that runs the family.
    fn knows(&self, stage: Stage, family: &str) -> bool;
    /// What the family's engine needs besides a model and is not here, with how to get it.
    fn lacks(&self, _config: &Config, _family: &str) -> Option<&'static str> {
        None
    }
    /// Voice activity.
    fn vad(&self, config: &Config) -> Result<Arc<dyn Vad>, StageFailure>;
    /// The turn model that `turn.model` names.
    fn turn(&self, config: &Config) -> Result<Arc<dyn TurnModel>, StageFailure>;
    /// Speech to text.
    fn stt(&self, config: &Config) -> Result<Arc<dyn Stt>, StageFailure>;
    /// The language model.
    fn llm(&self, config: &Config) -> Result<Arc<dyn Llm>, StageFailure>;
    /// Text to speech.
    fn tts(&self, config: &Config) -> Result<Arc<dyn Tts>, StageFailure>;
}

/// The engines of this program.
pub struct BuiltIn;

impl EngineFactory for BuiltIn {
    fn knows(&self, stage: Stage, family: &str) -> bool {
        factory::names(choose::name_of(stage)).contains(&family)
    }

    fn lacks(&self, config: &Config, family: &str) -> Option<&'static str> {
        let on_onnx = ["silero", "smart-turn", "piper", "kokoro"].contains(&family);
        (on_onnx && !antiphon_inference::onnx::is_here(&config.onnx))
            .then_some("It runs on ONNX Runtime, which is not here: `make onnxruntime` gets it.")
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
}

/// Starts the engine of each stage, the slow ones at the same time, each on a thread of its own. Blocks until all are
/// loaded, for seconds where models are large. Progress is logged.
///
/// # Errors
/// Every stage that could not start, not only the first.
pub fn build(config: &Config) -> Result<Engines, EnginesError> {
    Ok(EngineManager::new(config)?.load()?.engines)
}

/// Voice activity alone. Blocks while a model loads.
pub fn vad(config: &Config) -> Result<Arc<dyn Vad>, StageFailure> {
    EngineManager::new(config)?.only::<dyn Vad>()
}

/// The turn model alone; `None` where turns are taken without one. Blocks while it loads.
pub fn turn(config: &Config) -> Result<Option<Arc<dyn TurnModel>>, StageFailure> {
    EngineManager::new(config)?.turn_model()
}

/// Speech to text alone. Blocks while models load.
pub fn stt(config: &Config) -> Result<Arc<dyn Stt>, StageFailure> {
    EngineManager::new(config)?.only::<dyn Stt>()
}

/// Text to speech alone. Blocks while voices load.
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
            *engine = "none".into();
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
