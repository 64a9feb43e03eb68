//! The fallback engine of a stage, which is made like the stage's own engine, from the section `[stt.fallback]` and its like.

use super::StageFailure;
use super::manager::EngineManager;
use crate::config::Config;
use antiphon_engine_api::llm::Llm;
use antiphon_engine_api::stt::Stt;
use antiphon_engine_api::tts::Tts;
use antiphon_engines::fallback;
use std::sync::{Arc, OnceLock};

/// The fallback engines that were made. They stay when a stage's own engine is replaced.
#[derive(Default)]
pub(super) struct Fallbacks {
    stt: OnceLock<Arc<dyn Stt>>,
    llm: OnceLock<Arc<dyn Llm>>,
    tts: OnceLock<(Arc<dyn Tts>, String)>,
}

impl EngineManager {
    /// The recognizer with its fallback, if one is configured. A remote one without is asked again where it is late. Blocks while
    /// the fallback loads.
    pub(super) fn stt_with_fallback(&self, engine: Arc<dyn Stt>) -> Result<Arc<dyn Stt>, StageFailure> {
        let Some(section) = &self.config().stt.fallback else {
            return Ok(if engine.hedge_delay().is_some() { fallback::with_stt(engine, None) } else { engine });
        };
        let config = Config { stt: (**section).clone(), ..self.config().clone() };
        let second = made_once(&self.fallbacks().stt, || self.stage_of::<dyn Stt>(&config))?;
        Ok(fallback::with_stt(engine, Some(second)))
    }

    /// The same for the language model.
    pub(super) fn llm_with_fallback(&self, engine: Arc<dyn Llm>) -> Result<Arc<dyn Llm>, StageFailure> {
        let Some(section) = &self.config().llm.fallback else {
            return Ok(if engine.hedge_delay().is_some() { fallback::with_llm(engine, None) } else { engine });
        };
        let config = Config { llm: (**section).clone(), ..self.config().clone() };
        let second = made_once(&self.fallbacks().llm, || self.made_llm(&config))?;
        Ok(fallback::with_llm(engine, Some(second)))
    }

    /// The same for the voice.
    pub(super) fn tts_with_fallback(&self, engine: Arc<dyn Tts>) -> Result<Arc<dyn Tts>, StageFailure> {
        let Some(section) = &self.config().tts.fallback else {
            return Ok(if engine.hedge_delay().is_some() { fallback::with_tts(engine, None) } else { engine });
        };
        let config = Config { tts: (**section).clone(), ..self.config().clone() };
        let second = made_once(&self.fallbacks().tts, || {
            let engine = self.stage_of::<dyn Tts>(&config)?;
            let voice = section.first_voice(engine.as_ref());
            Ok((engine, voice))
        })?;
        Ok(fallback::with_tts(engine, Some(second)))
    }
}

/// Loads are sequential, so that nothing is made twice.
fn made_once<T: Clone>(cell: &OnceLock<T>, make: impl FnOnce() -> Result<T, StageFailure>) -> Result<T, StageFailure> {
    if let Some(made) = cell.get() {
        return Ok(made.clone());
    }
    let made = make()?;
    Ok(cell.get_or_init(|| made).clone())
}
