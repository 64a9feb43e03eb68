//! One function a stage: the configuration to the engine it names. A new engine is a name and an arm here.

use super::StageFailure;
use crate::config::Config;
use crate::llm::{Llm, LlmError};
use crate::stt::{Stt, SttError};
use crate::tts::fish::Fish;
use crate::tts::flite::Flite;
use crate::tts::kokoro::KokoroTts;
use crate::tts::local::{Lanes, LocalTts};
use crate::tts::openai::OpenAiTts;
use crate::tts::{Tts, TtsConfig, TtsError};
use crate::turn::{SmartTurn, TurnModel};
use crate::vad::{Earshot, Silero, Vad};
use std::sync::Arc;
use std::time::Duration;

/// What to say of a name that is none; the configuration refuses it earlier, with its line.
const NO_SUCH: &str = "there is no such engine";

/// The engines of a stage, as the configuration names them; "auto" is [`super::Stock`]'s affair.
pub(super) fn names(stage: &str) -> &'static [&'static str] {
    match stage {
        "vad" => &["auto", "earshot", "silero"],
        "turn" => &["auto", "smart-turn"],
        "stt" => &["auto", "sphinx", "whisper", "openai"],
        "llm" => &["assistant", "openai"],
        "tts" => &["auto", "flite", "piper", "kokoro", "openai", "fish"],
        _ => &[],
    }
}

/// Voice activity. Blocks while a model loads.
pub fn vad(config: &Config) -> Result<Arc<dyn Vad>, StageFailure> {
    match config.vad.engine.as_str() {
        "earshot" => Ok(Arc::new(Earshot)),
        "silero" => match Silero::open(config.vad.model.as_ref(), &config.onnx) {
            Ok(engine) => Ok(Arc::new(engine)),
            Err(error) => Err(StageFailure::new("vad", "silero", error)),
        },
        other => Err(StageFailure::new("vad", other, NO_SUCH)),
    }
}

/// The turn model that is named. Blocks while it loads.
pub fn turn(config: &Config) -> Result<Arc<dyn TurnModel>, StageFailure> {
    match SmartTurn::open(config.turn.model.as_ref(), &config.onnx) {
        Ok(model) => Ok(Arc::new(model)),
        Err(error) => Err(StageFailure::new("turn", "smart-turn", error)),
    }
}

/// Speech to text. Blocks while models load.
pub fn stt(config: &Config) -> Result<Arc<dyn Stt>, StageFailure> {
    let made: Result<Arc<dyn Stt>, SttError> = match config.stt.engine.as_str() {
        "sphinx" => crate::stt::sphinx::open(&config.stt).map(|engine| Arc::new(engine) as _),
        "whisper" => crate::stt::whisper::open(&config.stt).map(|engine| Arc::new(engine) as _),
        "openai" => crate::stt::openai::OpenAiStt::new(&config.stt).map(|engine| Arc::new(engine) as _),
        _ => Err(SttError::Unavailable(NO_SUCH.into())),
    };
    made.map_err(|error| StageFailure::new("stt", &config.stt.engine, error))
}

/// The language model. Does not block, reaches for nothing.
pub fn llm(config: &Config) -> Result<Arc<dyn Llm>, StageFailure> {
    let made: Result<Arc<dyn Llm>, LlmError> = match config.llm.engine.as_str() {
        "assistant" => Ok(Arc::new(crate::llm::assistant::Assistant::new())),
        "openai" => crate::llm::openai::OpenAi::new(&config.llm).map(|engine| Arc::new(engine) as _),
        _ => Err(LlmError::Unavailable(NO_SUCH.into())),
    };
    made.map_err(|error| StageFailure::new("llm", &config.llm.engine, error))
}

/// Text to speech. Blocks while voices load.
pub fn tts(config: &Config) -> Result<Arc<dyn Tts>, StageFailure> {
    let made: Result<Arc<dyn Tts>, TtsError> = match config.tts.engine.as_str() {
        "flite" => flite(&config.tts).map(|engine| Arc::new(engine) as _),
        "piper" => crate::tts::piper::start(&config.tts, &config.onnx),
        "kokoro" => KokoroTts::start(&config.tts, &config.onnx).map(|engine| Arc::new(engine) as _),
        "openai" => OpenAiTts::new(&config.tts).map(|engine| Arc::new(engine) as _),
        "fish" => Fish::new(&config.tts).map(|engine| Arc::new(engine) as _),
        _ => Err(TtsError::Unavailable(NO_SUCH.into())),
    };
    made.map_err(|error| StageFailure::new("tts", &config.tts.engine, error))
}

fn flite(config: &TtsConfig) -> Result<LocalTts<Flite>, TtsError> {
    let voice = config.voice.clone();
    let patience = Duration::from_millis(config.timeout_ms);
    let lanes = Lanes { n_lanes: config.lanes, in_turn: false, patience };
    LocalTts::start("flite", lanes, move || Flite::open(&voice))
}
