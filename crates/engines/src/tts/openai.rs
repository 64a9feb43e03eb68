//! The `openai` engine: any server with `POST /v1/audio/speech`: OpenAI, vLLM-Omni, SGLang-Omni, Kokoro-FastAPI,
//! Orpheus-FastAPI and their like.
//!
//! It implements the port directly, since it waits and never computes. How a request is sent and its sound passed on is
//! documented in [`super::streamed`], what is understood of the answer in [`super::decode`], and which voices are offered in
//! [`super::server_voices`]. A server that takes words over a WebSocket gets them so where `tts.text_input` says it ([`omni`]). It
//! adds no pauses and trims nothing: such servers make their own.

mod omni;

use super::TtsConfig;
use super::decode::{ExpectedFormat, RATES};
use super::server_voices::{KnownVoices, VoiceList};
use super::speech_server::{SpeechServer, check_extra};
use super::streamed::{Ask, longest_sound, with_extra};
use antiphon_engine_api::Upstreams;
use antiphon_engine_api::tts::{SpeechRequest, TextRequest, TextSpeech, Tts, TtsError, Voice, VoiceLibrary};
use antiphon_types::{Pcm, SampleRate};
use futures_util::future::BoxFuture;
use futures_util::stream::BoxStream;
use serde_json::{Map, Value, json};
use std::sync::Arc;
use std::time::Duration;

/// The voices of OpenAI's speech API (its reference, "Create speech", 2025), which compatible servers mostly accept.
const KNOWN_VOICES: [&str; 11] =
    ["alloy", "ash", "ballad", "coral", "echo", "fable", "nova", "onyx", "sage", "shimmer", "verse"];

/// Fields of a request that are not the configuration's to add, and what to set instead.
const OWN_FIELDS: [(&str, &str); 8] = [
    ("input", "it is the text"),
    ("model", "set tts.model"),
    ("voice", "set tts.voice"),
    ("response_format", "set tts.response_format"),
    ("stream_format", "set tts.stream_format"),
    ("speed", "set tts.speed"),
    ("stream_audio", "set tts.text_input"),
    ("type", "it names a message"),
];

/// See the module. Cheap to clone.
#[derive(Clone)]
pub struct OpenAiTts {
    pub(super) server: SpeechServer,
    model: String,
    response_format: String,
    stream_format: String,
    /// The rate of PCM that names none.
    rate: Option<SampleRate>,
    takes_words: bool,
    extra: Map<String, Value>,
    pub(super) voices: Arc<VoiceList>,
}

impl OpenAiTts {
    /// Checks the settings and reads the key; connects to nothing. [`TtsError::Unavailable`] says which setting is
    /// wrong and what would be right.
    pub fn new(config: &TtsConfig) -> Result<Self, TtsError> {
        check_extra(&config.extra_body, &OWN_FIELDS)?;
        let rate = match config.sample_rate {
            0 => None,
            hz if RATES.contains(&hz) => Some(SampleRate::new(hz)),
            hz => {
                let min = RATES.start();
                let max = RATES.end();
                let message = format!("tts.sample_rate = {hz}: write 0, or a rate from {min} to {max} Hz");
                return Err(TtsError::Unavailable(message));
            }
        };
        let server = SpeechServer::new(config)?;
        let known = KnownVoices {
            path: "audio/voices",
            unlisted: list_voices(&config.voice),
            chosen: config.chosen_voice().map(str::to_owned),
            always: None,
        };
        Ok(Self {
            voices: VoiceList::new(server.server.clone(), server.deadlines.first_byte, known),
            server,
            model: config.model.clone(),
            response_format: config.response_format.clone(),
            stream_format: config.stream_format.clone(),
            rate,
            takes_words: config.text_input == "words",
            extra: config.extra_body.clone(),
        })
    }

    fn body(&self, request: &SpeechRequest) -> Value {
        let mut body = json!({
            "model": self.model,
            "input": request.text,
            "voice": self.voices.resolve(&request.voice),
            "response_format": self.response_format,
        });
        // What follows is left out where it says nothing: not every compatible server knows it.
        if !self.stream_format.is_empty() {
            body["stream_format"] = self.stream_format.as_str().into();
        }
        if !is_usual(request.speed) {
            body["speed"] = request.speed.clamp(0.25, 4.0).into();
        }
        if let Some(instructions) = &request.instructions {
            body["instructions"] = instructions.as_str().into();
        }
        if let Some(seed) = request.seed {
            body["seed"] = seed.into();
        }
        with_extra(body, &self.extra)
    }
}

fn is_usual(speed: f32) -> bool {
    !speed.is_finite() || (speed - 1.0).abs() <= f32::EPSILON
}

/// The configured voice first, then OpenAI's: for a server that does not list its voices.
fn list_voices(configured: &str) -> Vec<Voice> {
    let first = if configured.is_empty() { KNOWN_VOICES[0] } else { configured };
    let others = KNOWN_VOICES.into_iter().filter(|known| *known != first);
    let describe = |id: &str| {
        let mut name = id.to_owned();
        if let Some(initial) = name.get_mut(..1) {
            initial.make_ascii_uppercase();
        }
        Voice { id: id.to_owned(), name, language: "mul".to_owned() }
    };
    std::iter::once(first).chain(others).map(describe).collect()
}

impl Tts for OpenAiTts {
    fn name(&self) -> &str {
        "openai"
    }

    fn warm(&self) -> BoxFuture<'_, Result<(), TtsError>> {
        Box::pin(async {
            self.server.warm().await?;
            self.voices.refresh().await;
            Ok(())
        })
    }

    fn upstreams(&self) -> Option<Upstreams> {
        Some(self.server.upstream.report(self.name()))
    }

    fn hedge_delay(&self) -> Option<Duration> {
        self.server.upstream.hedge_delay()
    }

    fn voices(&self) -> Vec<Voice> {
        self.voices.voices()
    }

    fn check_voice(&self, voice: &str) -> Result<(), String> {
        self.voices.check(voice, self.name())
    }

    fn voice_library(&self) -> Option<Arc<dyn VoiceLibrary>> {
        self.voices.library()
    }

    fn speak(&self, request: SpeechRequest) -> BoxStream<'static, Result<Pcm, TtsError>> {
        let speech = self.server.speak(Ask {
            path: "audio/speech",
            body: self.body(&request),
            longest: longest_sound(&request),
            headers: Vec::new(),
            expected: ExpectedFormat { is_wav: false, rate: self.rate },
            requester: request.meter.requester(),
        });
        self.voices.refresh_beside(speech)
    }

    fn speak_text(&self, request: TextRequest) -> Option<TextSpeech> {
        // The WebSocket knows the usual speed only.
        if !self.takes_words || !is_usual(request.speed) {
            return None;
        }
        omni::speak(self, &request)
    }
}

#[cfg(test)]
mod tests;
