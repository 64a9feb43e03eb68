//! Language models: the offline assistant, and servers with OpenAI's chat endpoint.

mod config;
#[cfg(feature = "remote")]
pub mod discovery;
#[cfg(feature = "openai")]
pub mod openai;

pub use config::LlmConfig;

use crate::table::{EngineEntry, EngineKind, EngineStage, ModelSource, made_with};
use antiphon_engine_api::llm::Llm;
use std::sync::Arc;

/// The name of the offline assistant, the default.
pub const ASSISTANT: &str = "assistant";

/// The name of the servers with OpenAI's chat endpoint.
const OPENAI: &str = "openai";

/// The language models. None of them reaches for anything while it is made.
pub static ENGINES: &[EngineEntry<dyn Llm>] = &[
    EngineEntry {
        kind: EngineKind {
            stage: EngineStage::Llm,
            name: ASSISTANT,
            feature: None,
            model: ModelSource::BuiltIn,
            needs_onnx: false,
        },
        make: Some(|_| Ok(Arc::new(antiphon_assistant::Assistant::new()))),
    },
    EngineEntry {
        kind: EngineKind {
            stage: EngineStage::Llm,
            name: OPENAI,
            feature: Some("openai"),
            model: ModelSource::Server { has_default_model: true },
            needs_onnx: false,
        },
        make: made_with!("openai", |settings| Ok(Arc::new(openai::OpenAi::new(settings.llm)?))),
    },
];
