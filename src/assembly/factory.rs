//! One function a stage: the configuration to the engine it names. A new engine is a name and an arm here, and a feature of
//! its name in the root's `Cargo.toml`. An engine that the program was built without is refused with a message that names it.

use super::StageFailure;
use crate::config::Config;
use antiphon_engine_api::llm::{Llm, LlmError};
use antiphon_engine_api::stt::{LanguageError, Stt, SttError, requested_language};
use antiphon_engine_api::tts::{Tts, TtsError};
use antiphon_engine_api::turn::TurnModel;
use antiphon_engine_api::vad::Vad;
use antiphon_engines::stt::none::{self, NoRecognizer};
use antiphon_engines::vad::Earshot;
#[cfg(feature = "speechlm")]
use antiphon_types::sealed::Sealing;
use std::sync::Arc;

/// The offline assistant's name.
const ASSISTANT: &str = "assistant";

/// Why an engine cannot be made: this program was built without it, or its name is wrong, which the configuration refuses
/// earlier, with its line.
fn unavailable(stage: &str, name: &str) -> String {
    if names(stage).contains(&name) {
        format!("this program was built without the engine {name}; build it with --features {name}")
    } else {
        "there is no such engine".into()
    }
}

/// The engines of a stage, as the configuration names them; "auto" is [`super::EngineManager`]'s affair.
pub(super) fn names(stage: &str) -> &'static [&'static str] {
    match stage {
        "vad" => &["auto", "earshot", "silero"],
        "turn" => &["auto", "smart-turn"],
        "stt" => &["auto", none::NAME, "whisper", "transducer", "openai"],
        "llm" => &[ASSISTANT, "openai"],
        "tts" => &["auto", "flite", "piper", "kokoro", "hibari", "speechlm", "openai", "fish", "moshi"],
        _ => &[],
    }
}

/// Voice activity. Blocks while a model loads.
pub fn vad(config: &Config) -> Result<Arc<dyn Vad>, StageFailure> {
    match config.vad.engine.as_str() {
        "earshot" => Ok(Arc::new(Earshot)),
        #[cfg(feature = "silero")]
        "silero" => match antiphon_engines::vad::Silero::open(config.vad.model.as_ref(), &config.onnx) {
            Ok(engine) => Ok(Arc::new(engine)),
            Err(error) => Err(StageFailure::new("vad", "silero", error)),
        },
        other => Err(StageFailure::new("vad", other, unavailable("vad", other))),
    }
}

/// The turn model that is named. Blocks while it loads.
#[cfg(feature = "smart-turn")]
pub fn turn(config: &Config) -> Result<Arc<dyn TurnModel>, StageFailure> {
    match antiphon_engines::turn::SmartTurn::open(config.turn.model.as_ref(), &config.onnx) {
        Ok(model) => Ok(Arc::new(model)),
        Err(error) => Err(StageFailure::new("turn", "smart-turn", error)),
    }
}

/// The turn model that is named, which this program was built without.
#[cfg(not(feature = "smart-turn"))]
pub fn turn(_: &Config) -> Result<Arc<dyn TurnModel>, StageFailure> {
    Err(StageFailure::new("turn", "smart-turn", unavailable("turn", "smart-turn")))
}

/// Speech to text. Blocks while models load.
pub fn stt(config: &Config) -> Result<Arc<dyn Stt>, StageFailure> {
    let made: Result<Arc<dyn Stt>, SttError> = match config.stt.engine.as_str() {
        none::NAME => return Ok(Arc::new(NoRecognizer)),
        #[cfg(feature = "whisper")]
        "whisper" => antiphon_engines::stt::whisper::open(&config.stt).map(|engine| Arc::new(engine) as _),
        #[cfg(feature = "transducer")]
        "transducer" => {
            antiphon_engines::stt::transducer::open(&config.stt, &config.onnx).map(|engine| Arc::new(engine) as _)
        }
        #[cfg(feature = "openai")]
        "openai" => antiphon_engines::stt::openai::OpenAiStt::new(&config.stt).map(|engine| Arc::new(engine) as _),
        other => Err(SttError::Unavailable(unavailable("stt", other))),
    };
    let knows_language = |engine: Arc<dyn Stt>| match requested_language(engine.as_ref(), &config.stt.language) {
        Ok(_) => Ok(engine),
        Err(LanguageError::NotDetected(_)) => Err(SttError::Unavailable(NO_DETECTION.into())),
        Err(why) => Err(SttError::Unavailable(format!("stt.language: {why}"))),
    };
    made.and_then(knows_language).map_err(|error| StageFailure::new("stt", &config.stt.engine, error))
}

/// Whether Whisper runs on a GPU with this configuration.
pub(super) fn whisper_uses_gpu(config: &Config) -> bool {
    #[cfg(feature = "whisper")]
    return antiphon_engines::stt::whisper::uses_gpu(&config.stt);
    #[cfg(not(feature = "whisper"))]
    false
}

/// Why an engine is refused.
const NO_DETECTION: &str = "it cannot detect the language (stt.language = \"auto\"): a Whisper or transducer model of several languages can, and \
     servers that name the language; else set stt.language to two letters such as \"en\"";

/// The language model. Does not block, reaches for nothing.
pub fn llm(config: &Config) -> Result<Arc<dyn Llm>, StageFailure> {
    let made: Result<Arc<dyn Llm>, LlmError> = match config.llm.engine.as_str() {
        ASSISTANT => Ok(Arc::new(antiphon_assistant::Assistant::new())),
        #[cfg(feature = "openai")]
        "openai" => antiphon_engines::llm::openai::OpenAi::new(&config.llm).map(|engine| Arc::new(engine) as _),
        other => Err(LlmError::Unavailable(unavailable("llm", other))),
    };
    made.map_err(|error| StageFailure::new("llm", &config.llm.engine, error))
}

/// Text to speech. Blocks while voices load.
pub fn tts(config: &Config) -> Result<Arc<dyn Tts>, StageFailure> {
    let made: Result<Arc<dyn Tts>, TtsError> = match config.tts.engine.as_str() {
        #[cfg(feature = "flite")]
        "flite" => flite(&config.tts).map(|engine| Arc::new(engine) as _),
        #[cfg(feature = "piper")]
        "piper" => antiphon_engines::tts::piper::start(&config.tts, &config.onnx),
        #[cfg(feature = "kokoro")]
        "kokoro" => {
            let engine = antiphon_engines::tts::kokoro::KokoroTts::start(&config.tts, &config.onnx);
            engine.map(|engine| Arc::new(engine) as _)
        }
        #[cfg(feature = "hibari")]
        "hibari" => antiphon_engines::tts::hibari::start(&config.tts, &config.onnx),
        #[cfg(feature = "speechlm")]
        "speechlm" => {
            let mut settings = config.tts.clone();
            settings.voices_dir = config.voices_dir().display().to_string();
            sealing(config)
                .and_then(|key| antiphon_engines::tts::speechlm::SpeechLm::start(&settings, &config.onnx, key))
                .map(|engine| Arc::new(engine) as _)
        }
        #[cfg(feature = "openai")]
        "openai" => antiphon_engines::tts::openai::OpenAiTts::new(&config.tts).map(|engine| Arc::new(engine) as _),
        #[cfg(feature = "fish")]
        "fish" => antiphon_engines::tts::fish::Fish::new(&config.tts).map(|engine| Arc::new(engine) as _),
        #[cfg(feature = "moshi")]
        "moshi" => antiphon_engines::tts::moshi::Moshi::new(&config.tts).map(|engine| Arc::new(engine) as _),
        other => Err(TtsError::Unavailable(unavailable("tts", other))),
    };
    made.map_err(|error| StageFailure::new("tts", &config.tts.engine, error))
}

/// What encrypts uploaded voices. Blocks for the time of a small file.
#[cfg(feature = "speechlm")]
fn sealing(config: &Config) -> Result<Option<Arc<dyn Sealing>>, TtsError> {
    let key = config.server.read_storage_key();
    let key = key.map_err(|error| TtsError::Unavailable(format!("server.storage_key: {error}")))?;
    Ok(key.map(|key| Arc::new(key) as _))
}

#[cfg(feature = "flite")]
fn flite(
    config: &antiphon_engines::tts::TtsConfig,
) -> Result<antiphon_engines::tts::local::LocalTts<antiphon_engines::tts::flite::Flite>, TtsError> {
    use antiphon_engines::tts::flite::Flite;
    use antiphon_engines::tts::local::{LocalTts, PoolSettings};
    let voice = config.voice.clone();
    let deadline = std::time::Duration::from_millis(config.timeout_ms);
    let pool = PoolSettings { n_replicas: config.pool_size(1), in_turn: false, deadline };
    LocalTts::start("flite", pool, move |_| Flite::open(&voice))
}

#[cfg(test)]
mod tests {
    use super::unavailable;

    #[test]
    fn an_engine_that_is_not_built_in_is_named_with_its_feature() {
        let expected = "this program was built without the engine whisper; build it with --features whisper";
        assert_eq!(unavailable("stt", "whisper"), expected);
        assert_eq!(unavailable("stt", "flite"), "there is no such engine");
    }
}
