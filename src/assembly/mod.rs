//! Creates the engines that all sessions share from the configuration.
//!
//! `cli` creates an [`EngineManager`] at startup, or calls one of [`vad`], [`turn`], [`stt`] and [`tts`] for a single
//! stage. An error names what is missing and how to obtain it. With `engine = "auto"` the best model on disk serves,
//! and skipped models are reported: nothing is substituted silently. This module does not communicate with clients.

mod built_in;
mod choose;
mod engine_factory;
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

pub use antiphon_engines::table::AUTO;
pub use built_in::BuiltIn;
pub use choose::{PassedOver, recommended};
pub use engine_factory::EngineFactory;
pub use error::{EnginesError, StageFailure};
pub use factory::llm;
pub use manager::{ActiveEngines, EngineInUse, EngineManager, without_precision};
pub use membership::{CLUSTER, Membership};
pub use model_cache::{CachedValue, Limits, ModelCache, ModelCacheError};
pub use preflight::problems;
pub use trial::{Trial, Trials};
pub use worker::worker_stages;

use crate::config::Config;
use antiphon_engine_api::Engines;
use antiphon_engine_api::stt::Stt;
use antiphon_engine_api::tts::Tts;
use antiphon_engine_api::turn::TurnModel;
use antiphon_engine_api::vad::Vad;
use std::sync::Arc;

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
    use crate::config::DEFAULT_TOML;
    use antiphon_engines::stt::none;
    use antiphon_engines::table::{self, EngineStage, ModelSource};
    use antiphon_registry::{Catalog, ModelsConfig};

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
    fn every_family_of_the_registry_has_an_engine_that_runs_files() {
        let catalog = Catalog::load(&ModelsConfig::default()).expect("the built-in registry");
        for entry in catalog.entries() {
            let kind = choose::kind_of(entry.stage, &entry.family);
            let source = kind.map(|kind| kind.model);
            let runs_files = matches!(source, Some(ModelSource::Files | ModelSource::SlotFiles));
            assert!(runs_files, "{}: {} is {source:?}", entry.name, entry.family);
        }
    }

    /// What is written by hand about engines, beside the table.
    #[test]
    fn each_engine_is_in_the_manifest_in_the_documents_and_on_the_page() {
        let manifest = include_str!("../../Cargo.toml");
        let engines_page = include_str!("../../docs/reference/engines.md");
        let panel = include_str!("../../web/src/view/EnginesPanel.tsx");
        let need_none = panel.lines().find(|line| line.starts_with("const NEED_NONE")).expect("a list");
        for kind in table::kinds() {
            let name = kind.name;
            if let Some(feature) = kind.feature {
                let passed_on = format!("\n{feature} = [\"antiphon-engines/{feature}\"]\n");
                assert!(manifest.contains(&passed_on), "{name}: the program passes its feature on");
            }
            assert!(engines_page.contains(&format!("`{name}`")), "{name}: docs/reference/engines.md");
            if kind.stage != EngineStage::Turn {
                let comment = engine_comment(kind.stage.name());
                assert!(comment.contains(&format!("\"{name}\"")), "{name}: configs/default.toml");
            }
            let is_complete =
                kind.model == ModelSource::BuiltIn && name != none::NAME && kind.stage != EngineStage::Llm;
            assert_eq!(need_none.contains(&format!("'{name}'")), is_complete, "{name}: EnginesPanel.tsx");
        }
        assert!(need_none.contains(&format!("'{}'", choose::NO_TURN_MODEL)));
    }

    /// The comment of the setting `engine` of a section.
    fn engine_comment(section: &str) -> &'static str {
        let start = format!("\n[{section}]\n");
        let (_, section) = DEFAULT_TOML.split_once(&start).expect("a section");
        section.split_once("\nengine = ").expect("a key").0
    }
}
