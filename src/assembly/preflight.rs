//! What keeps engines from starting, as far as it shows without loading one: `antiphon config check` asks.

use super::manager::EngineManager;
use super::{StageFailure, factory};
use crate::config::Config;
use antiphon_engines::table::{EngineKind, EngineStage};

/// The failures of the model registry and of the remote engines, fallbacks included. Blocks for small files.
pub fn problems(config: &Config) -> Vec<StageFailure> {
    let mut problems: Vec<_> = EngineManager::new(config).err().into_iter().collect();
    problems.extend(of_stages(config));
    for stt in config.stt.fallback.iter().map(|section| (**section).clone()) {
        problems.extend(stt_problem(&Config { stt, ..config.clone() }));
    }
    for llm in config.llm.fallback.iter().map(|section| (**section).clone()) {
        problems.extend(factory::llm(&Config { llm, ..config.clone() }).err());
    }
    for tts in config.tts.fallback.iter().map(|section| (**section).clone()) {
        problems.extend(tts_problem(&Config { tts, ..config.clone() }));
    }
    problems
}

fn of_stages(config: &Config) -> Vec<StageFailure> {
    // Workers may serve instead, with settings of their own.
    let cluster = &config.cluster;
    let is_here =
        |stage: &str| !cluster.is_set() || cluster.fallback || !cluster.stages.iter().any(|name| name == stage);
    let mut problems = Vec::new();
    if is_here("stt") {
        problems.extend(stt_problem(config));
    }
    problems.extend(factory::llm(config).err());
    if is_here("tts") {
        problems.extend(tts_problem(config));
    }
    problems
}

fn stt_problem(config: &Config) -> Option<StageFailure> {
    is_remote(EngineStage::Stt, &config.stt.engine).then(|| factory::stt(config).err())?
}

fn tts_problem(config: &Config) -> Option<StageFailure> {
    is_remote(EngineStage::Tts, &config.tts.engine).then(|| factory::tts(config).err())?
}

fn is_remote(stage: EngineStage, engine: &str) -> bool {
    stage.kind(engine).is_some_and(EngineKind::is_remote)
}
