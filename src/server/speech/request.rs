//! What a request for speech asks for: `POST /v1/audio/speech` and its jobs.

use super::error::ApiError;
use super::fields::Fields;
use super::names::{Names, Task};
use crate::audio::encode::FileFormat;
use crate::session::Engines;
use crate::text::{Chunker, Language};

/// Rates of speech that are served: OpenAI's range.
const SPEEDS: std::ops::RangeInclusive<f64> = 0.25..=4.0;

/// A text to speak, judged.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Wish {
    /// What the engine is given, in order; never empty.
    pub(super) chunks: Vec<String>,
    /// Characters of the text as it came.
    pub(super) n_chars: usize,
    pub(super) voice: String,
    pub(super) speed: f32,
    pub(super) format: FileFormat,
    /// Server-sent events instead of the bytes themselves.
    pub(super) as_events: bool,
}

/// By what a wish is judged.
pub(super) struct Judge<'a> {
    pub(super) engines: &'a Engines,
    pub(super) names: &'a Names,
    pub(super) max_chars: usize,
    /// What to do with a longer text.
    pub(super) if_longer: &'static str,
}

impl Judge<'_> {
    /// Reads a body. What it does not know is left alone; `instructions` is for engines that can act, of which there is
    /// none here.
    pub(super) fn read(&self, body: &[u8]) -> Result<Wish, ApiError> {
        let fields = Fields::read(body)?;
        self.names.check_model(self.engines, Task::Speech, fields.text("model")?)?;
        let voice = self.names.voice(self.engines, fields.text_or_id("voice")?)?;
        let speed = fields.number("speed")?.unwrap_or(1.0);
        if !SPEEDS.contains(&speed) {
            let message = format!("Invalid 'speed': expected a value from 0.25 to 4.0, but got {speed} instead.");
            return Err(ApiError::invalid("invalid_value", "speed", message));
        }
        fields.text("instructions")?;
        let format = format(fields.text("response_format")?)?;
        let as_events = match fields.text("stream_format")? {
            None | Some("audio") => false,
            Some("sse") => true,
            Some(_) => {
                let message = "Invalid 'stream_format'. Supported values are: 'audio' and 'sse'.";
                return Err(ApiError::invalid("invalid_value", "stream_format", message));
            }
        };
        let (chunks, n_chars) = self.chunks(fields.text("input")?, &voice)?;
        Ok(Wish { chunks, n_chars, voice, speed: speed as f32, format, as_events })
    }

    fn chunks(&self, input: Option<&str>, voice: &str) -> Result<(Vec<String>, usize), ApiError> {
        let input = input.ok_or_else(|| {
            ApiError::invalid("missing_required_parameter", "input", "Missing required parameter: 'input'.")
        })?;
        let n_chars = input.chars().count();
        if n_chars > self.max_chars {
            let message = format!(
                "'input' holds {n_chars} characters, and {} at most are spoken{}.",
                self.max_chars, self.if_longer
            );
            return Err(ApiError::invalid("string_above_max_length", "input", message));
        }
        let chunks = speakable(input, Language::of_tag(self.engines.tts.language(voice)));
        if chunks.is_empty() {
            let message = if input.trim().is_empty() {
                "'input' is empty."
            } else {
                "There is no word in 'input' that could be spoken."
            };
            return Err(ApiError::invalid("invalid_value", "input", message));
        }
        Ok((chunks, n_chars))
    }
}

fn format(name: Option<&str>) -> Result<FileFormat, ApiError> {
    let Some(name) = name else { return Ok(FileFormat::Mp3) };
    FileFormat::named(name).ok_or_else(|| {
        let served: Vec<String> = FileFormat::ALL.iter().map(|format| format!("'{}'", format.name())).collect();
        let why = if name == "aac" { "AAC is not encoded here. " } else { "" };
        let message = format!("Invalid 'response_format'. {why}Supported values are: {}.", served.join(", "));
        ApiError::invalid("invalid_value", "response_format", message)
    })
}

/// The text as a session would cut and word it: a short first chunk, then sentences. What has nothing to say is left out.
fn speakable(text: &str, language: Language) -> Vec<String> {
    let mut chunker = Chunker::new(language);
    let mut chunks = chunker.push(text);
    chunks.extend(chunker.finish());
    chunks.into_iter().map(|chunk| chunk.spoken).filter(|spoken| !spoken.is_empty()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{llm::fake::FakeLlm, stt::fake::FakeStt, tts::fake::FakeTts, vad::fake::FakeVad};
    use serde_json::{Value, json};
    use std::sync::Arc;

    fn read(body: &str) -> Result<Wish, ApiError> {
        let (stt, llm, tts) = (FakeStt::default(), FakeLlm::default(), FakeTts::default());
        let engines =
            Engines { vad: Arc::new(FakeVad), turn: None, stt: Arc::new(stt), llm: Arc::new(llm), tts: Arc::new(tts) };
        let names = Names { voice: "tone".into(), ..Names::default() };
        Judge { engines: &engines, names: &names, max_chars: 4_096, if_longer: "" }.read(body.as_bytes())
    }

    #[track_caller]
    fn refused(fields: Value, param: &str, says: &str) {
        let mut body = json!({"input": "Hello.", "voice": "alloy", "model": "tts-1"});
        body.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        let error = read(&body.to_string()).expect_err("refused");
        assert_eq!((error.status.as_u16(), error.param), (400, Some(param)), "{error:?}");
        assert!(error.message.contains(says), "{error:?}");
    }

    #[test]
    fn a_wish_has_the_defaults_of_openai() {
        let wish = read(r#"{"input":"Hello there.","voice":{"id":"tone"},"model":"tts-1","other":1}"#).unwrap();
        assert_eq!(
            (wish.format, wish.speed, wish.as_events, wish.voice.as_str()),
            (FileFormat::Mp3, 1.0, false, "tone")
        );
        assert_eq!((wish.chunks.concat(), wish.n_chars), ("Hello there.".into(), 12));
    }

    #[test]
    fn what_cannot_be_served_is_refused_with_what_could() {
        refused(json!({"input": ""}), "input", "empty");
        refused(json!({"input": " \n\t"}), "input", "empty");
        refused(json!({"input": "🎉🎉 👩‍👩‍👧"}), "input", "no word");
        refused(json!({"input": null}), "input", "Missing");
        refused(json!({"input": 5}), "input", "expected a string, but got a number");
        refused(json!({"input": "a ".repeat(50_000)}), "input", "100000 characters");
        refused(json!({"voice": "../voice"}), "voice", "no voice");
        refused(json!({"voice": {"name": "x"}}), "voice", "'id'");
        refused(json!({"voice": ["alloy"]}), "voice", "an array");
        refused(json!({"model": "whisper-1"}), "model", "tts-1");
        refused(json!({"speed": 0}), "speed", "0.25 to 4.0");
        refused(json!({"speed": 100}), "speed", "100");
        refused(json!({"speed": "fast"}), "speed", "a number");
        refused(json!({"response_format": "aac"}), "response_format", "'mp3', 'opus', 'flac', 'wav', 'pcm'");
        refused(json!({"stream_format": "ws"}), "stream_format", "'sse'");
        refused(json!({"instructions": 7}), "instructions", "a string");
        for body in ["", "{", "[]", "\"x\""] {
            assert_eq!(read(body).expect_err(body).code, "invalid_json");
        }
    }

    #[test]
    fn the_first_chunk_is_short_and_figures_become_words() {
        let text = "Well, it is 5 % of all that was said here today by anybody. And here is a second sentence, longer than the first.";
        let wish = read(&json!({"input": text}).to_string()).unwrap();
        assert!(wish.chunks.len() >= 2 && wish.chunks[0].len() < 60, "{:?}", wish.chunks);
        assert!(wish.chunks.concat().contains("5 percent"), "{:?}", wish.chunks);
    }
}
