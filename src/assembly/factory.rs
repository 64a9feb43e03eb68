//! One function a stage: the configuration to the engine it names, by the table of engines. An engine that the program was built
//! without is refused with a message that names it.

use super::StageFailure;
use crate::config::Config;
use antiphon_engine_api::llm::Llm;
use antiphon_engine_api::speaker::SpeakerModel;
use antiphon_engine_api::stt::{LanguageError, Stt, requested_language};
use antiphon_engine_api::tts::Tts;
use antiphon_engine_api::turn::TurnModel;
use antiphon_engine_api::vad::Vad;
use antiphon_engines::stt::none;
use antiphon_engines::table::{self, EngineEntry, EngineError, EngineSettings};
use antiphon_engines::tts::TtsConfig;
use antiphon_engines::{llm, speaker, stt, tts, turn, vad};
use antiphon_types::sealed::Sealing;
use std::path::Path;
use std::sync::Arc;

/// Voice activity. Blocks while a model loads.
pub fn vad(config: &Config) -> Result<Arc<dyn Vad>, StageFailure> {
    made("vad", vad::ENGINES, &config.vad.engine, config)
}

/// The turn model that is named. Blocks while it loads.
pub fn turn(config: &Config) -> Result<Arc<dyn TurnModel>, StageFailure> {
    made("turn", turn::ENGINES, turn::engine_of(Path::new(&config.turn.model)), config)
}

/// The speaker model that is named, or loudness. Blocks while it loads.
pub fn speaker(config: &Config) -> Result<Arc<dyn SpeakerModel>, StageFailure> {
    let made = speaker::open(&config.speaker, &config.onnx);
    made.map_err(|cause| StageFailure::new("speaker", &config.speaker.model, cause))
}

/// Speech to text. Blocks while models load.
pub fn stt(config: &Config) -> Result<Arc<dyn Stt>, StageFailure> {
    let name = config.stt.engine.as_str();
    let engine = made("stt", stt::ENGINES, name, config)?;
    if name == none::NAME {
        return Ok(engine);
    }
    match requested_language(engine.as_ref(), &config.stt.language) {
        Ok(_) => Ok(engine),
        Err(LanguageError::NotDetected(_)) => Err(StageFailure::new("stt", name, NO_DETECTION)),
        Err(why) => Err(StageFailure::new("stt", name, format!("stt.language: {why}"))),
    }
}

/// Whether Whisper runs on a GPU with this configuration.
pub(super) fn whisper_uses_gpu(config: &Config) -> bool {
    #[cfg(feature = "whisper")]
    return stt::whisper::uses_gpu(&config.stt);
    #[cfg(not(feature = "whisper"))]
    false
}

/// Why an engine is refused.
const NO_DETECTION: &str = "it cannot detect the language (stt.language = \"auto\"): a Whisper or transducer model of several languages can, and \
     servers that name the language; else set stt.language to two letters such as \"en\"";

/// The language model. Does not block, reaches for nothing.
pub fn llm(config: &Config) -> Result<Arc<dyn Llm>, StageFailure> {
    made("llm", llm::ENGINES, &config.llm.engine, config)
}

/// Text to speech. Blocks while voices load.
pub fn tts(config: &Config) -> Result<Arc<dyn Tts>, StageFailure> {
    made("tts", tts::ENGINES, &config.tts.engine, config)
}

fn made<P: ?Sized>(
    stage: &'static str,
    engines: &[EngineEntry<P>],
    name: &str,
    config: &Config,
) -> Result<Arc<P>, StageFailure> {
    let voices_dir = config.voices_dir().display().to_string();
    let settings = EngineSettings {
        vad: &config.vad,
        turn_model: Path::new(&config.turn.model),
        stt: &config.stt,
        llm: &config.llm,
        tts: &TtsConfig { voices_dir, ..config.tts.clone() },
        onnx: &config.onnx,
        sealing: &|| sealing(config),
    };
    table::make(engines, name, &settings).map_err(|cause| StageFailure::new(stage, name, cause))
}

/// What encrypts uploaded voices. Blocks for the time of a small file.
fn sealing(config: &Config) -> Result<Option<Arc<dyn Sealing>>, EngineError> {
    let key = config.server.read_storage_key();
    let key = key.map_err(|error| format!("server.storage_key: {error}"))?;
    Ok(key.map(|key| Arc::new(key) as _))
}
