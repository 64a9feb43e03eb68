//! What the hub offers, as `describe` is answered.

use crate::server::sessions::SessionParts;
use antiphon_engine_api::stt::DETECT_LANGUAGE;
use antiphon_engine_api::tts::Voice;
use serde_json::{Value, json};

/// Languages of engines that know many, as ISO-639-1 codes: those that Whisper was trained with, and common language models.
const MANY: [&str; 57] = [
    "af", "ar", "hy", "az", "be", "bs", "bg", "ca", "zh", "hr", "cs", "da", "nl", "en", "et", "fi", "fr", "gl", "de",
    "el", "he", "hi", "hu", "is", "id", "it", "ja", "kn", "kk", "ko", "lv", "lt", "mk", "ms", "mr", "mi", "ne", "no",
    "fa", "pl", "pt", "ro", "ru", "sr", "sk", "sl", "es", "sw", "sv", "tl", "ta", "th", "tr", "uk", "ur", "vi", "cy",
];

/// The data of `info`.
pub(super) fn info(sessions: &SessionParts) -> Value {
    let setup = sessions.setup();
    let engines = &setup.engines;
    let own = setup.language.as_deref().filter(|language| *language != DETECT_LANGUAGE);
    let known = engines.stt.languages();
    let of_stt = match (&known, own) {
        (_, Some(language)) => vec![language],
        (Some(known), None) => known.iter().map(String::as_str).collect(),
        (None, None) => MANY.to_vec(),
    };
    let of_llm = engines.llm.language().map_or_else(|| MANY.to_vec(), |language| vec![language]);
    let model = |engine: &str, languages: &[&str]| with(artifact(engine), json!({"languages": languages}));
    let voices: Vec<Value> = engines.tts.voices().iter().map(voice).collect();
    json!({
        "asr": [with(artifact("antiphon"), json!({
            "models": [model(engines.stt.name(), &of_stt)], "supports_transcript_streaming": true,
            "requires_external_vad": true, "prefers_auto_gain_enabled": true, "prefers_noise_reduction_enabled": true,
        }))],
        "tts": [with(artifact("antiphon"), json!({"voices": voices, "supports_synthesize_streaming": true}))],
        "handle": [with(artifact("antiphon"), json!({
            "models": [model(engines.llm.name(), &of_llm)], "supports_handled_streaming": true,
            "supports_home_control": false,
        }))],
        "intent": [], "wake": [], "mic": [], "snd": [],
    })
}

fn voice(voice: &Voice) -> Value {
    let about = json!({"name": voice.id, "description": voice.name, "languages": [voice.language], "speakers": null});
    with(artifact(&voice.id), about)
}

/// What every program, model and voice states about itself.
fn artifact(name: &str) -> Value {
    json!({
        "name": name, "description": name, "version": env!("CARGO_PKG_VERSION"), "installed": true,
        "attribution": {"name": "Antiphon", "url": ""},
    })
}

fn with(mut one: Value, other: Value) -> Value {
    if let (Value::Object(one), Value::Object(other)) = (&mut one, other) {
        one.extend(other);
    }
    one
}
