//! The `openai` engine: any server with `POST /v1/audio/speech` that streams PCM.
//!
//! It implements the port directly, since it waits and never computes. How a request is sent and its sound
//! passed on is documented in [`super::streamed`]. It adds no pauses and trims nothing: such servers make their own.

mod pcm;

use super::TtsConfig;
use super::streamed::{Ask, Streamed, longest_sound};
use antiphon_engine_api::tts::{SpeechRequest, Tts, TtsError, Voice};
use antiphon_types::Pcm;
use futures_util::future::BoxFuture;
use futures_util::stream::BoxStream;
use pcm::PcmDecoder;

/// The voices of OpenAI's speech API (its reference, "Create speech", 2025), which compatible servers mostly accept.
const KNOWN_VOICES: [&str; 11] =
    ["alloy", "ash", "ballad", "coral", "echo", "fable", "nova", "onyx", "sage", "shimmer", "verse"];

/// See the module. Cheap to clone.
#[derive(Clone)]
pub struct OpenAiTts {
    server: Streamed,
    model: String,
    voices: Vec<Voice>,
}

impl OpenAiTts {
    /// Checks the settings and reads the key; connects to nothing. [`TtsError::Unavailable`] says which setting is
    /// wrong and what would be right.
    pub fn new(config: &TtsConfig) -> Result<Self, TtsError> {
        let server = Streamed::new(config)?;
        Ok(Self { server, model: config.model.clone(), voices: list_voices(&config.voice) })
    }

    fn body(&self, request: &SpeechRequest) -> serde_json::Value {
        let known = self.voices.iter().find(|voice| voice.id == request.voice).unwrap_or(&self.voices[0]);
        let mut body = serde_json::json!({
            "model": self.model,
            "input": request.text,
            "voice": known.id,
            "response_format": "pcm",
        });
        // Left out at 1.0: not every compatible server knows it.
        if request.speed.is_finite() && (request.speed - 1.0).abs() > f32::EPSILON {
            body["speed"] = request.speed.clamp(0.25, 4.0).into();
        }
        body
    }
}

/// The configured voice first, then OpenAI's.
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
        Box::pin(self.server.warm())
    }

    fn voices(&self) -> Vec<Voice> {
        self.voices.clone()
    }

    fn speak(&self, request: SpeechRequest) -> BoxStream<'static, Result<Pcm, TtsError>> {
        self.server.speak(Ask {
            path: "audio/speech",
            body: self.body(&request),
            longest: longest_sound(&request),
            headers: Vec::new(),
            decoder: |kind| Ok(Box::new(PcmDecoder::for_content_type(kind)?)),
        })
    }
}

#[cfg(test)]
mod tests;
