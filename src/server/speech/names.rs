//! Which voices and models a request may name.
//!
//! A voice is one the engine understands, or one of OpenAI's names, which clients have built in: those are spoken by the configured
//! voice, as in a session. A model is one that serves here, or OpenAI's name for its like. Anything else is refused with
//! what there is; a name never becomes a path.

use super::error::ApiError;
use antiphon_engine_api::Engines;
use antiphon_engine_api::tts::{Tts, VoiceScope, find_voice};
use antiphon_protocol::OPENAI_VOICES;
use serde_json::{Value, json};

/// OpenAI's models (its reference, "Models", 2026), each with or without a date behind it.
const OPENAI_SPEECH: &[&str] = &["tts-1", "tts-1-hd", "gpt-4o-mini-tts"];
const OPENAI_TRANSCRIPTION: &[&str] = &[
    "whisper-1",
    "gpt-4o-transcribe",
    "gpt-4o-mini-transcribe",
    "gpt-transcribe",
    "gpt-live-transcribe",
    "gpt-realtime-whisper",
];
/// The name of the hub as a model.
const HUB: &str = "antiphon";
/// The longest name of a voice that is looked at: a mix of several is one.
const MAX_NAME: usize = 256;
/// How much of a wrong model is repeated.
const MAX_ECHO: usize = 60;

/// What a model does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Task {
    Speech,
    Transcription,
}

/// The models by name, and the voice.
#[derive(Clone, Debug, Default)]
pub(super) struct Names {
    /// What the engines run; empty where they have no models, or none with a name.
    pub(super) tts_model: String,
    pub(super) stt_model: String,
    pub(super) llm_model: String,
    /// The voice sessions begin with.
    pub(super) voice: String,
    /// Whose uploaded voices may be named.
    pub(super) scope: VoiceScope,
}

impl Names {
    /// The voice that speaks where `asked` is named, by a name the engine knows, and whether it is the engine's own because
    /// the client named none that is known here.
    pub(super) fn voice(&self, engines: &Engines, asked: Option<&str>) -> Result<(String, bool), ApiError> {
        let own_voice = || Ok((own_voice(engines.tts.as_ref(), &self.voice), true));
        let Some(asked) = asked else { return own_voice() };
        let wrong = |message: String| ApiError::invalid("voice_not_found", "voice", message);
        if asked.len() > MAX_NAME {
            return Err(wrong(format!("'voice' is longer than {MAX_NAME} bytes, as no voice's name is.")));
        }
        match find_voice(engines.tts.as_ref(), asked, self.scope) {
            Ok(voice) => Ok((voice, false)),
            Err(_) if OPENAI_VOICES.contains(&asked) => own_voice(),
            Err(why) => Err(wrong(format!("Invalid 'voice': {why}."))),
        }
    }

    /// Whether `asked` serves `task` here.
    pub(super) fn check_model(&self, engines: &Engines, task: Task, asked: Option<&str>) -> Result<(), ApiError> {
        let Some(asked) = asked else { return Ok(()) };
        let (engine, model, aliases) = match task {
            Task::Speech => (engines.tts.name(), &self.tts_model, OPENAI_SPEECH),
            Task::Transcription => (engines.stt.name(), &self.stt_model, OPENAI_TRANSCRIPTION),
        };
        let is_alias = aliases.contains(&plain_name(asked));
        if asked == engine || asked == HUB || (!model.is_empty() && asked == model) || is_alias {
            return Ok(());
        }
        let message = format!(
            "The model '{}' does not do this here: '{}' does, and answers to {} too.",
            echo(asked),
            if model.is_empty() { engine } else { model },
            aliases.join(", ")
        );
        Err(ApiError::invalid("model_not_found", "model", message))
    }

    /// All models that serve here, as `GET /v1/models` lists them: each with what it is for.
    pub(super) fn models(&self, engines: &Engines) -> Vec<Value> {
        let stages = [
            (engines.stt.name(), &self.stt_model, "transcription"),
            (engines.llm.name(), &self.llm_model, "language"),
            (engines.tts.name(), &self.tts_model, "speech"),
        ];
        let mut models = vec![described(HUB, "realtime", HUB)];
        for (engine, name, task) in stages {
            let id = if name.is_empty() { engine } else { name };
            models.push(described(id, task, engine));
        }
        models
    }

    /// What serves under a name that is not listed.
    pub(super) fn alias(&self, engines: &Engines, id: &str) -> Option<Value> {
        let answers = |task| self.check_model(engines, task, Some(id)).is_ok();
        if answers(Task::Speech) {
            return Some(described(id, "speech", engines.tts.name()));
        }
        answers(Task::Transcription).then(|| described(id, "transcription", engines.stt.name()))
    }
}

/// OpenAI's name of a model without what a version adds to it: a date, and that it distinguishes speakers, which no engine here does.
fn plain_name(asked: &str) -> &str {
    let is_date = |text: &str| {
        let lengths = text.split('-').map(|part| (part.len(), part.bytes().all(|b| b.is_ascii_digit())));
        lengths.eq([(4, true), (2, true), (2, true)])
    };
    let undated = asked.len().checked_sub("-2026-01-31".len()).and_then(|at| asked.split_at_checked(at));
    let name = match undated {
        Some((name, date)) if date.strip_prefix('-').is_some_and(is_date) => name,
        _ => asked,
    };
    name.strip_suffix("-diarize").unwrap_or(name)
}

/// An engine's voice where the client chose none: the configured one, where the engine has it.
pub(super) fn own_voice(tts: &dyn Tts, configured: &str) -> String {
    match tts.check_voice(configured) {
        Ok(()) => configured.to_owned(),
        Err(_) => tts.voices().first().map_or_else(|| configured.to_owned(), |voice| voice.id.clone()),
    }
}

/// A model in `/v1/models`.
pub(super) fn described(id: &str, task: &str, engine: &str) -> Value {
    // There is no date: what serves here was made elsewhere.
    json!({"id": id, "object": "model", "created": 0, "owned_by": "antiphon", "task": task, "engine": engine})
}

/// A name as it is repeated to its sender.
fn echo(name: &str) -> String {
    let mut short: String = name.chars().filter(|c| !c.is_control()).take(MAX_ECHO).collect();
    if name.chars().count() > MAX_ECHO {
        short.push_str("...");
    }
    short
}

#[cfg(test)]
mod tests {
    use super::*;
    use antiphon_engine_api::fakes::llm::FakeLlm;
    use antiphon_engine_api::fakes::stt::FakeStt;
    use antiphon_engine_api::fakes::tts::FakeTts;
    use antiphon_engine_api::fakes::vad::FakeVad;
    use std::sync::Arc;

    fn engines() -> Engines {
        let stt = FakeStt::default();
        let llm = FakeLlm::default();
        let tts = FakeTts::default();
        Engines {
            vad: Arc::new(FakeVad),
            turn: None,
            speaker: None,
            stt: Arc::new(stt),
            llm: Arc::new(llm),
            tts: Arc::new(tts),
        }
    }

    fn names() -> Names {
        Names { voice: "tone".into(), tts_model: "deep-voice".into(), ..Names::default() }
    }

    #[test]
    fn known_voices_and_openais_are_taken_and_nothing_else() {
        let voice = |asked: &str| names().voice(&engines(), Some(asked)).map(|(voice, _)| voice);
        for asked in ["tone", "alloy"] {
            assert_eq!(voice(asked).as_deref(), Ok("tone"));
        }
        let elsewhere = Names { voice: "of another engine".into(), ..names() };
        assert_eq!(elsewhere.voice(&engines(), None), Ok(("tone".into(), true)));
        for wrong in ["bob", "", "../../etc/passwd", "tone+bob", "TONE", "tone\0"] {
            let error = voice(wrong).expect_err(wrong);
            assert_eq!(
                (error.status.as_u16(), error.param, error.code),
                (400, Some("voice"), "voice_not_found"),
                "{wrong}"
            );
            assert!(error.message.contains("fake has tone"), "{}", error.message);
        }
        assert!(voice(&"x".repeat(10_000)).expect_err("long").message.len() < 100);
    }

    #[test]
    fn a_model_must_serve_what_it_is_asked_for() {
        let check = |task, asked: &str| names().check_model(&engines(), task, Some(asked)).is_ok();
        for right in ["deep-voice", "fake", "antiphon", "tts-1"] {
            assert!(check(Task::Speech, right), "{right}");
        }
        for wrong in ["whisper-1", "", "gpt-4o", "deep-voice/../x"] {
            assert!(!check(Task::Speech, wrong), "{wrong}");
        }
        for right in [
            "whisper-1",
            "gpt-transcribe",
            "gpt-live-transcribe",
            "gpt-realtime-whisper",
            "gpt-4o-mini-transcribe-2025-12-15",
            "gpt-4o-transcribe-diarize",
        ] {
            assert!(check(Task::Transcription, right), "{right}");
        }
        for wrong in ["tts-1", "whisper-1-2025", "gpt-4o-2025-12-15", "-2025-12-15"] {
            assert!(!check(Task::Transcription, wrong), "{wrong}");
        }
        assert!(check(Task::Speech, "gpt-4o-mini-tts-2025-12-15"));
        let listed: Vec<_> = names().models(&engines()).into_iter().map(|model| model["id"].clone()).collect();
        assert_eq!(listed, ["antiphon", "fake", "fake", "deep-voice"]);
        assert_eq!(names().alias(&engines(), "tts-1-hd").expect("an alias")["engine"], "fake");
        assert!(names().alias(&engines(), "gpt-4o").is_none());
    }
}
