//! Which voices and models a request may name.
//!
//! A voice is one of the engine's, or one of OpenAI's names, which clients have built in: those are spoken by the configured
//! voice, as in a session. A model is one that serves here, or OpenAI's name for its like. Anything else is refused with
//! what there is; a name never becomes a path.

use super::error::ApiError;
use crate::session::Engines;
use serde_json::{Value, json};

/// OpenAI's voices (its reference, "Create speech", 2026).
const OPENAI_VOICES: [&str; 13] =
    ["alloy", "ash", "ballad", "cedar", "coral", "echo", "fable", "marin", "nova", "onyx", "sage", "shimmer", "verse"];
const OPENAI_SPEECH: [&str; 3] = ["tts-1", "tts-1-hd", "gpt-4o-mini-tts"];
const OPENAI_TRANSCRIPTION: [&str; 3] = ["whisper-1", "gpt-4o-transcribe", "gpt-4o-mini-transcribe"];
/// What the hub as a whole is called.
const HUB: &str = "antiphon";
/// How much of a wrong name is repeated.
const MAX_ECHO: usize = 60;

/// What a model does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Task {
    Speech,
    Transcription,
}

/// The models by name.
#[derive(Clone, Debug, Default)]
pub(super) struct Names {
    /// As the configuration names the engines' models; empty where it names none.
    pub(super) tts_model: String,
    pub(super) stt_model: String,
    pub(super) llm_model: String,
    /// The voice sessions begin with.
    pub(super) voice: String,
}

impl Names {
    /// The voice that speaks where `asked` is named; the engine's own id.
    pub(super) fn voice(&self, engines: &Engines, asked: Option<&str>) -> Result<String, ApiError> {
        let voices = engines.tts.voices();
        let known = |id: &str| voices.iter().any(|voice| voice.id == id);
        match asked {
            None => Ok(self.voice.clone()),
            Some(id) if known(id) || is_mix(id, known) => Ok(id.to_owned()),
            Some(id) if OPENAI_VOICES.contains(&id) => Ok(self.voice.clone()),
            Some(other) => {
                let ids: Vec<&str> = voices.iter().map(|voice| voice.id.as_str()).collect();
                let message = format!(
                    "There is no voice '{}'. {} speaks with: {}.",
                    echo(other),
                    engines.tts.name(),
                    ids.join(", ")
                );
                Err(ApiError::invalid("voice_not_found", "voice", message))
            }
        }
    }

    /// Whether `asked` serves `task` here.
    pub(super) fn check_model(&self, engines: &Engines, task: Task, asked: Option<&str>) -> Result<(), ApiError> {
        let Some(asked) = asked else { return Ok(()) };
        let (engine, model, aliases) = match task {
            Task::Speech => (engines.tts.name(), &self.tts_model, OPENAI_SPEECH),
            Task::Transcription => (engines.stt.name(), &self.stt_model, OPENAI_TRANSCRIPTION),
        };
        if asked == engine || asked == HUB || (!model.is_empty() && asked == model) || aliases.contains(&asked) {
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
        let mut models = vec![model(HUB, "realtime", HUB)];
        for (engine, name, task) in stages {
            let id = if name.is_empty() { engine } else { name };
            models.push(model(id, task, engine));
        }
        models
    }

    /// One model, by any name it answers to.
    pub(super) fn model(&self, engines: &Engines, id: &str) -> Option<Value> {
        let listed = self.models(engines).into_iter().find(|model| model["id"] == id);
        let alias = |task: Task, name: &'static str| {
            self.check_model(engines, task, Some(id))
                .is_ok()
                .then(|| model(id, name, if name == "speech" { engines.tts.name() } else { engines.stt.name() }))
        };
        listed.or_else(|| alias(Task::Speech, "speech")).or_else(|| alias(Task::Transcription, "transcription"))
    }
}

fn model(id: &str, task: &str, engine: &str) -> Value {
    // There is no date to tell: what serves here was made elsewhere.
    json!({"id": id, "object": "model", "created": 0, "owned_by": "antiphon", "task": task, "engine": engine})
}

/// `a:0.4+b:0.6`, all of known voices: an engine that mixes voices takes it.
fn is_mix(text: &str, known: impl Fn(&str) -> bool) -> bool {
    let part = |part: &str| {
        let (id, weight) = part.split_once(':').unwrap_or((part, "1"));
        known(id) && weight.parse::<f32>().is_ok_and(|weight| weight.is_finite() && weight > 0.0)
    };
    text.contains('+') && text.split('+').all(part)
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
    use crate::{llm::fake::FakeLlm, stt::fake::FakeStt, tts::fake::FakeTts, vad::fake::FakeVad};
    use std::sync::Arc;

    fn engines() -> Engines {
        let (stt, llm, tts) = (FakeStt::default(), FakeLlm::default(), FakeTts::default());
        Engines { vad: Arc::new(FakeVad), turn: None, stt: Arc::new(stt), llm: Arc::new(llm), tts: Arc::new(tts) }
    }

    fn names() -> Names {
        Names { voice: "tone".into(), tts_model: "deep-voice".into(), ..Names::default() }
    }

    #[test]
    fn known_voices_and_openais_are_taken_and_nothing_else() {
        let voice = |asked: &str| names().voice(&engines(), Some(asked));
        for (asked, speaks) in [("tone", "tone"), ("alloy", "tone"), ("tone:0.4+tone:0.6", "tone:0.4+tone:0.6")] {
            assert_eq!(voice(asked).as_deref(), Ok(speaks));
        }
        for wrong in ["bob", "", "../../etc/passwd", "tone+bob", "tone:-1+tone", "tone:NaN+tone", "TONE", "tone\0"] {
            let error = voice(wrong).expect_err(wrong);
            assert_eq!(
                (error.status.as_u16(), error.param, error.code),
                (400, Some("voice"), "voice_not_found"),
                "{wrong}"
            );
            assert!(error.message.contains("fake speaks with: tone"), "{}", error.message);
        }
        assert!(voice(&"x".repeat(10_000)).expect_err("long").message.len() < 200);
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
        assert!(check(Task::Transcription, "whisper-1") && !check(Task::Transcription, "tts-1"));
        let listed: Vec<_> = names().models(&engines()).into_iter().map(|model| model["id"].clone()).collect();
        assert_eq!(listed, ["antiphon", "fake", "fake", "deep-voice"]);
        assert_eq!(names().model(&engines(), "tts-1-hd").expect("an alias")["engine"], "fake");
        assert!(names().model(&engines(), "gpt-4o").is_none());
    }
}
