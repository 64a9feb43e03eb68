//! One function a stage: the configuration to the engine it names. A new engine is a name and an arm here.

use super::StageFailure;
use crate::config::Config;
use antiphon_engine_api::llm::{Llm, LlmError};
use antiphon_engine_api::stt::{Stt, SttError, VocabularyHint};
use antiphon_engine_api::tts::{Tts, TtsError};
use antiphon_engine_api::turn::TurnModel;
use antiphon_engine_api::vad::Vad;
use antiphon_engines::tts::TtsConfig;
use antiphon_engines::tts::fish::Fish;
use antiphon_engines::tts::flite::Flite;
use antiphon_engines::tts::kokoro::KokoroTts;
use antiphon_engines::tts::local::{LocalTts, PoolSettings};
use antiphon_engines::tts::openai::OpenAiTts;
use antiphon_engines::turn::SmartTurn;
use antiphon_engines::vad::{Earshot, Silero};
use std::sync::Arc;
use std::time::Duration;

/// The offline assistant's name.
const ASSISTANT: &str = "assistant";

/// What to say of a name that is none; the configuration refuses it earlier, with its line.
const NO_SUCH: &str = "there is no such engine";

/// The engines of a stage, as the configuration names them; "auto" is [`super::EngineManager`]'s affair.
pub(super) fn names(stage: &str) -> &'static [&'static str] {
    match stage {
        "vad" => &["auto", "earshot", "silero"],
        "turn" => &["auto", "smart-turn"],
        "stt" => &["auto", "sphinx", "whisper", "openai"],
        "llm" => &[ASSISTANT, "openai"],
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

/// What recognizers are to expect, where the language model understands nothing else.
pub fn vocabulary(config: &Config) -> Option<Arc<VocabularyHint>> {
    (config.llm.engine == ASSISTANT).then(antiphon_assistant::vocabulary)
}

/// Speech to text. Blocks while models load.
pub fn stt(config: &Config) -> Result<Arc<dyn Stt>, StageFailure> {
    let made: Result<Arc<dyn Stt>, SttError> = match config.stt.engine.as_str() {
        "sphinx" => {
            antiphon_engines::stt::sphinx::open(&config.stt, vocabulary(config)).map(|engine| Arc::new(engine) as _)
        }
        "whisper" => antiphon_engines::stt::whisper::open(&config.stt).map(|engine| Arc::new(engine) as _),
        "openai" => antiphon_engines::stt::openai::OpenAiStt::new(&config.stt).map(|engine| Arc::new(engine) as _),
        _ => Err(SttError::Unavailable(NO_SUCH.into())),
    };
    made.map_err(|error| StageFailure::new("stt", &config.stt.engine, error))
}

/// The language model. Does not block, reaches for nothing.
pub fn llm(config: &Config) -> Result<Arc<dyn Llm>, StageFailure> {
    let made: Result<Arc<dyn Llm>, LlmError> = match config.llm.engine.as_str() {
        ASSISTANT => Ok(Arc::new(antiphon_assistant::Assistant::new())),
        "openai" => antiphon_engines::llm::openai::OpenAi::new(&config.llm).map(|engine| Arc::new(engine) as _),
        _ => Err(LlmError::Unavailable(NO_SUCH.into())),
    };
    made.map_err(|error| StageFailure::new("llm", &config.llm.engine, error))
}

/// Text to speech. Blocks while voices load.
pub fn tts(config: &Config) -> Result<Arc<dyn Tts>, StageFailure> {
    let made: Result<Arc<dyn Tts>, TtsError> = match config.tts.engine.as_str() {
        "flite" => flite(&config.tts).map(|engine| Arc::new(engine) as _),
        "piper" => antiphon_engines::tts::piper::start(&config.tts, &config.onnx),
        "kokoro" => KokoroTts::start(&config.tts, &config.onnx).map(|engine| Arc::new(engine) as _),
        "openai" => OpenAiTts::new(&config.tts).map(|engine| Arc::new(engine) as _),
        "fish" => Fish::new(&config.tts).map(|engine| Arc::new(engine) as _),
        _ => Err(TtsError::Unavailable(NO_SUCH.into())),
    };
    made.map_err(|error| StageFailure::new("tts", &config.tts.engine, error))
}

fn flite(config: &TtsConfig) -> Result<LocalTts<Flite>, TtsError> {
    let voice = config.voice.clone();
    let deadline = Duration::from_millis(config.timeout_ms);
    let pool = PoolSettings { n_replicas: config.lanes, in_turn: false, deadline };
    LocalTts::start("flite", pool, move || Flite::open(&voice))
}
