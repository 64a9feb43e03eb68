//! The `fish` engine: a fish-speech server, `POST /v1/tts`, whose answer is a WAV file that grows while it is spoken.
//!
//! Made by `engines`; it implements the port directly, for it waits and never computes. How a request is sent and its sound
//! passed on is documented in [`super::streamed`]; asked are `streaming` and the format `wav`, the only one that fish-speech
//! streams. The voice is its `reference_id`: a name that the server knows, or none, which is the server's own choice. The
//! open server has no rate of speech; the service at api.fish.audio has one (`prosody`), and takes the model's name in a
//! header. Both are sent: what a server does not know, it passes over. The voices are the references that the server lists.

use super::TtsConfig;
use super::decode::ExpectedFormat;
use super::server_voices::{KnownVoices, VoiceList};
use super::speech_server::{SpeechServer, check_extra};
use super::streamed::{Ask, longest_sound, with_extra};
use antiphon_engine_api::Upstreams;
use antiphon_engine_api::tts::{SpeechRequest, Tts, TtsError, Voice, VoiceLibrary};
use antiphon_types::Pcm;
use futures_util::future::BoxFuture;
use futures_util::stream::BoxStream;
use serde_json::{Map, Value};
use std::sync::Arc;
use std::time::Duration;

/// The voice without a reference.
const SERVERS_OWN: &str = "default";

/// Fields of a request that are not the configuration's to add, and what to set instead.
const OWN_FIELDS: [(&str, &str); 5] = [
    ("text", "it is the text"),
    ("format", "the answer is a WAV file"),
    ("streaming", "it is always asked for"),
    ("reference_id", "set tts.voice"),
    ("prosody", "set tts.speed"),
];

/// See the module. Cheap to clone.
#[derive(Clone)]
pub struct Fish {
    server: SpeechServer,
    model: String,
    extra: Map<String, Value>,
    voices: Arc<VoiceList>,
}

impl Fish {
    /// Checks the settings and reads the key; connects to nothing. [`TtsError::Unavailable`] says which setting is wrong
    /// and what would be right.
    pub fn new(config: &TtsConfig) -> Result<Self, TtsError> {
        check_extra(&config.extra_body, &OWN_FIELDS)?;
        let server = SpeechServer::new(config)?;
        let own = Voice { id: SERVERS_OWN.into(), name: "The server's own".into(), language: "mul".into() };
        let chosen = config.chosen_voice().filter(|voice| *voice != SERVERS_OWN).map(str::to_owned);
        let first = chosen.clone().map(|id| Voice { name: id.clone(), id, language: "mul".into() });
        let unlisted = first.into_iter().chain([own.clone()]).collect();
        // Without a chosen voice the server's own is the default, whatever else it lists.
        let first = chosen.or_else(|| Some(SERVERS_OWN.to_owned()));
        let known = KnownVoices { path: "references/list", unlisted, chosen: first, always: Some(own) };
        let voices = VoiceList::new(server.server.clone(), server.deadlines.first_byte, known);
        Ok(Self { server, model: config.model.clone(), extra: config.extra_body.clone(), voices })
    }

    fn body(&self, request: &SpeechRequest) -> Value {
        let voice = self.voices.resolve(&request.voice);
        let mut body = serde_json::json!({ "text": request.text, "format": "wav", "streaming": true });
        if voice != SERVERS_OWN {
            body["reference_id"] = voice.into();
        }
        if request.speed.is_finite() && (request.speed - 1.0).abs() > f32::EPSILON {
            body["prosody"] = serde_json::json!({ "speed": request.speed.clamp(0.25, 4.0) });
        }
        if let Some(seed) = request.seed {
            body["seed"] = seed.into();
        }
        with_extra(body, &self.extra)
    }
}

impl Tts for Fish {
    fn name(&self) -> &str {
        "fish"
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
            path: "tts",
            body: self.body(&request),
            longest: longest_sound(&request),
            headers: vec![("model", self.model.clone())],
            expected: ExpectedFormat { is_wav: true, rate: None },
            requester: request.meter.requester(),
        });
        self.voices.refresh_beside(speech)
    }
}

#[cfg(test)]
mod tests;
