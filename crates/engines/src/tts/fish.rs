//! The `fish` engine: a fish-speech server, `POST /v1/tts`, whose answer is a WAV file that grows while it is spoken.
//!
//! Made by `engines`; it implements the port directly, for it waits and never computes. How a request is sent and its sound
//! passed on is documented in [`super::streamed`]; asked are `streaming` and the format `wav`, the only one that fish-speech
//! streams. The voice is its `reference_id`: a name that the server knows, or none, which is the server's own choice. The
//! open server has no rate of speech; the service at api.fish.audio has one (`prosody`), and takes the model's name in a
//! header. Both are sent: what a server does not know, it passes over.

mod wav;

use super::TtsConfig;
use super::streamed::{Ask, Streamed, longest_sound};
use antiphon_engine_api::tts::{SpeechRequest, Tts, TtsError, Voice};
use antiphon_types::Pcm;
use futures_util::future::BoxFuture;
use futures_util::stream::BoxStream;
use wav::WavDecoder;

/// The voice without a reference.
const SERVERS_OWN: &str = "default";

/// See the module. Cheap to clone.
#[derive(Clone)]
pub struct Fish {
    server: Streamed,
    model: String,
    voices: Vec<Voice>,
}

impl Fish {
    /// Checks the settings and reads the key; connects to nothing. [`TtsError::Unavailable`] says which setting is wrong
    /// and what would be right.
    pub fn new(config: &TtsConfig) -> Result<Self, TtsError> {
        let server = Streamed::new(config)?;
        let own = Voice { id: SERVERS_OWN.into(), name: "The server's own".into(), language: "mul".into() };
        let chosen = config.chosen_voice().filter(|voice| *voice != SERVERS_OWN);
        let chosen = chosen.map(|id| Voice { id: id.into(), name: id.into(), language: "mul".into() });
        Ok(Self { server, model: config.model.clone(), voices: chosen.into_iter().chain([own]).collect() })
    }

    fn body(&self, request: &SpeechRequest) -> serde_json::Value {
        let known = self.voices.iter().find(|voice| voice.id == request.voice).unwrap_or(&self.voices[0]);
        let mut body = serde_json::json!({ "text": request.text, "format": "wav", "streaming": true });
        if known.id != SERVERS_OWN {
            body["reference_id"] = known.id.as_str().into();
        }
        if request.speed.is_finite() && (request.speed - 1.0).abs() > f32::EPSILON {
            body["prosody"] = serde_json::json!({ "speed": request.speed.clamp(0.25, 4.0) });
        }
        body
    }
}

impl Tts for Fish {
    fn name(&self) -> &str {
        "fish"
    }

    fn warm(&self) -> BoxFuture<'_, Result<(), TtsError>> {
        Box::pin(self.server.warm())
    }

    fn voices(&self) -> Vec<Voice> {
        self.voices.clone()
    }

    fn speak(&self, request: SpeechRequest) -> BoxStream<'static, Result<Pcm, TtsError>> {
        self.server.speak(Ask {
            path: "tts",
            body: self.body(&request),
            longest: longest_sound(&request),
            headers: vec![("model", self.model.clone())],
            decoder: |kind| Ok(Box::new(WavDecoder::for_content_type(kind)?)),
        })
    }
}

#[cfg(test)]
mod tests;
