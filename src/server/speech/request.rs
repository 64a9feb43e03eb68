//! What a request for speech asks for: `POST /v1/audio/speech` and its jobs.

use super::chosen::ChosenEngines;
use super::error::ApiError;
use super::fields::Fields;
use super::names::{Names, Task};
use super::spec::SpeechSpec;
use antiphon_audio::encode::FileFormat;
use antiphon_engine_api::Engines;
use antiphon_text::{Chunker, Language};
use bytes::Bytes;
use tokio::task::spawn_blocking;

/// Rates of speech that are served: OpenAI's range.
const SPEEDS: std::ops::RangeInclusive<f64> = 0.25..=4.0;

/// The longest instructions, in characters: OpenAI's bound.
const MAX_INSTRUCTIONS: usize = 4_096;

/// The largest body that is read where it came: some milliseconds of work.
const AT_ONCE: usize = 4 << 10;

/// The longest text that is taken.
#[derive(Clone, Copy, Debug)]
pub(super) struct Longest {
    pub(super) chars: usize,
    /// What to do with a longer one.
    pub(super) if_longer: &'static str,
}

/// Reads and judges a body by what was chosen for it. A long one is cut into chunks on a thread for what computes: a book
/// takes a tenth of a second and more.
pub(super) async fn read(
    chosen: ChosenEngines,
    body: Bytes,
    longest: Longest,
) -> Result<(ChosenEngines, SpeechSpec), ApiError> {
    let is_long = body.len() > AT_ONCE;
    let read = move || {
        let judge = Judge { engines: &chosen.engines, names: &chosen.names, longest, model: chosen.model.as_deref() };
        let wish = judge.read(&body)?;
        Ok((chosen, wish))
    };
    if !is_long {
        return read();
    }
    spawn_blocking(read).await.map_err(|error| ApiError::internal("The reading of the request", &error))?
}

/// By what a wish is judged.
struct Judge<'a> {
    engines: &'a Engines,
    names: &'a Names,
    longest: Longest,
    /// Goes into the wish as it is.
    model: Option<&'a str>,
}

impl Judge<'_> {
    /// Reads a body. What it does not know is left alone.
    fn read(&self, body: &[u8]) -> Result<SpeechSpec, ApiError> {
        let fields = Fields::read(body)?;
        self.names.check_model(self.engines, Task::Speech, fields.text("model")?)?;
        let asked = fields.text_or_id("voice")?;
        let (voice, is_own_voice) = self.names.voice(self.engines, asked)?;
        let speed = fields.number("speed")?.unwrap_or(1.0);
        if !SPEEDS.contains(&speed) {
            let message = format!("Invalid 'speed': expected a value from 0.25 to 4.0, but got {speed} instead.");
            return Err(ApiError::invalid("invalid_value", "speed", message));
        }
        let instructions = instructions(fields.text("instructions")?)?;
        let seed = fields.whole("seed")?;
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
        let model = self.model.map(str::to_owned);
        let speed = speed as f32;
        Ok(SpeechSpec { chunks, n_chars, voice, is_own_voice, speed, instructions, seed, format, as_events, model })
    }

    fn chunks(&self, input: Option<&str>, voice: &str) -> Result<(Vec<String>, usize), ApiError> {
        let input = input.ok_or_else(|| {
            ApiError::invalid("missing_required_parameter", "input", "Missing required parameter: 'input'.")
        })?;
        let n_chars = input.chars().count();
        if n_chars > self.longest.chars {
            let message = format!(
                "'input' holds {n_chars} characters, and {} at most are spoken{}.",
                self.longest.chars, self.longest.if_longer
            );
            return Err(ApiError::invalid("string_above_max_length", "input", message));
        }
        let tts = &self.engines.tts;
        let chunks = speakable(input, Language::of_tag(&tts.language(voice)), tts.marks());
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

/// How to speak, for engines that can act; an empty text is none.
fn instructions(text: Option<&str>) -> Result<Option<String>, ApiError> {
    let text = text.map(str::trim).filter(|text| !text.is_empty());
    if let Some(n) = text.map(|text| text.chars().count()).filter(|n| *n > MAX_INSTRUCTIONS) {
        let message = format!("'instructions' holds {n} characters, and {MAX_INSTRUCTIONS} at most are taken.");
        return Err(ApiError::invalid("string_above_max_length", "instructions", message));
    }
    Ok(text.map(str::to_owned))
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
fn speakable(text: &str, language: Language, marks: Vec<String>) -> Vec<String> {
    let mut chunker = Chunker::new(language).keeping(marks);
    let mut chunks = chunker.push(text);
    chunks.extend(chunker.finish());
    chunks.into_iter().map(|chunk| chunk.spoken).filter(|spoken| !spoken.is_empty()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use antiphon_engine_api::fakes::llm::FakeLlm;
    use antiphon_engine_api::fakes::stt::FakeStt;
    use antiphon_engine_api::fakes::tts::FakeTts;
    use antiphon_engine_api::fakes::vad::FakeVad;
    use antiphon_engine_api::tts::{SpeechRequest, Tts, TtsError, Voice};
    use antiphon_types::Pcm;
    use futures_util::stream::BoxStream;
    use serde_json::{Value, json};
    use std::sync::{Arc, mpsc};
    use std::thread::ThreadId;

    const LONGEST: Longest = Longest { chars: 4_096, if_longer: "" };

    fn engines(tts: impl Tts + 'static) -> Engines {
        let stt = FakeStt::default();
        let llm = FakeLlm::default();
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
        Names { voice: "tone".into(), ..Names::default() }
    }

    fn read(body: &str) -> Result<SpeechSpec, ApiError> {
        let engines = engines(FakeTts::default());
        Judge { engines: &engines, names: &names(), longest: LONGEST, model: None }.read(body.as_bytes())
    }

    /// Tells the thread on which its voices are looked at.
    struct Threads(mpsc::SyncSender<ThreadId>, FakeTts);

    impl Tts for Threads {
        fn name(&self) -> &str {
            self.1.name()
        }

        fn voices(&self) -> Vec<Voice> {
            self.0.try_send(std::thread::current().id()).expect("room");
            self.1.voices()
        }

        fn speak(&self, request: SpeechRequest) -> BoxStream<'static, Result<Pcm, TtsError>> {
            self.1.speak(request)
        }
    }

    #[tokio::test]
    async fn a_long_text_is_cut_on_another_thread() {
        let (sender, threads) = mpsc::sync_channel(9);
        let engines = engines(Threads(sender, FakeTts::default()));
        for (n, elsewhere) in [(100, false), (4_000, true)] {
            let body = json!({"input": "word ".repeat(n), "voice": "tone"}).to_string();
            let chosen = ChosenEngines { engines: engines.clone(), names: names(), model: Some("m".into()) };
            let longest = Longest { chars: 40_000, ..LONGEST };
            let (_, wish) = super::read(chosen, body.into(), longest).await.expect("read");
            assert_eq!((wish.n_chars, wish.model.as_deref()), (5 * n, Some("m")));
            let here = std::thread::current().id();
            let all: Vec<_> = threads.try_iter().map(|thread| thread != here).collect();
            assert!(!all.is_empty() && all.iter().all(|is_elsewhere| *is_elsewhere == elsewhere), "{n}: {all:?}");
        }
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
            (wish.format, wish.speed, wish.as_events, wish.voice.as_str(), wish.is_own_voice),
            (FileFormat::Mp3, 1.0, false, "tone", false)
        );
        for nobodys in [r#"{"input":"Hello."}"#, r#"{"input":"Hello.","voice":"alloy"}"#] {
            let wish = read(nobodys).unwrap();
            assert_eq!((wish.voice.as_str(), wish.is_own_voice), ("tone", true));
        }
        assert_eq!((wish.chunks.concat(), wish.n_chars, wish.instructions), ("Hello there.".into(), 12, None));
    }

    #[test]
    fn instructions_go_to_the_engine() {
        let asked = |text: &str| read(&json!({"input": "Hello.", "instructions": text}).to_string());
        assert_eq!(asked(" Whisper. ").unwrap().instructions.as_deref(), Some("Whisper."));
        assert_eq!(asked("  ").unwrap().instructions, None);
        refused(json!({"input": "Hello.", "instructions": "x".repeat(4_097)}), "instructions", "4096 at most");
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
        refused(json!({"seed": -1}), "seed", "an integer from 0 on");
        refused(json!({"seed": 0.5}), "seed", "an integer from 0 on");
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
