//! The `openai` engine: any server with `POST /v1/audio/speech` that streams PCM.
//!
//! Made by `engines`; it implements the port directly, for it waits and never computes. Sound is passed on as it
//! arrives. Connections are kept for the next chunk. A request that fails before its first byte of sound, by a broken
//! connection, a status of 5xx or 429, is sent once more within the same deadline; afterwards nothing is repeated, for
//! the listener has heard the beginning. It adds no pauses and trims nothing: such servers make their own.

mod pcm;

use super::{SpeechRequest, Tts, TtsConfig, TtsError, Voice};
use crate::remote::Server;
use crate::units::Pcm;
use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::future::{BoxFuture, FutureExt};
use futures_util::stream::BoxStream;
use pcm::PcmDecoder;
use reqwest::{Response, StatusCode};
use std::time::Duration;
use tokio::time::timeout;

/// The voices of OpenAI's speech API (its reference, "Create speech", 2025), which compatible servers mostly accept.
const KNOWN_VOICES: [&str; 11] =
    ["alloy", "ash", "ballad", "coral", "echo", "fable", "nova", "onyx", "sage", "shimmer", "verse"];

/// Sound that stops in mid-chunk for this long is a failure.
const STALL: Duration = Duration::from_secs(5);

/// See the module. Cheap to clone.
#[derive(Clone)]
pub struct OpenAiTts {
    server: Server,
    model: String,
    voices: Vec<Voice>,
    deadlines: Deadlines,
}

/// How long to wait for a server.
#[derive(Clone, Copy, Debug)]
struct Deadlines {
    /// From the request to the first byte of sound, the retry included.
    first_byte: Duration,
    /// Between two pieces of the body.
    between_bytes: Duration,
}

impl OpenAiTts {
    /// Checks the settings and reads the key; connects to nothing. [`TtsError::Unavailable`] says which setting is
    /// wrong and what would be right.
    pub fn new(config: &TtsConfig) -> Result<Self, TtsError> {
        let connect = Duration::from_millis(config.timeout_ms);
        let server =
            Server::new("tts", &config.base_url, &config.api_key_env, connect).map_err(TtsError::Unavailable)?;
        let deadlines = Deadlines { first_byte: Duration::from_millis(config.timeout_ms), between_bytes: STALL };
        Ok(Self { server, model: config.model.clone(), voices: list_voices(&config.voice), deadlines })
    }

    /// Opens a connection, so that the first chunk does not pay for it. What the server answers does not matter.
    pub async fn warm(&self) -> Result<(), TtsError> {
        let answer = timeout(self.deadlines.first_byte, self.server.warm()).await;
        match answer {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => Err(self.transport("cannot be reached", error)),
            Err(_) => Err(TtsError::Timeout(self.deadlines.first_byte)),
        }
    }

    fn transport(&self, what: &str, error: reqwest::Error) -> TtsError {
        let message = format!("the server {} {what}", self.server.host());
        TtsError::Engine { message, source: Some(Box::new(error.without_url())) }
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
        Box::pin(OpenAiTts::warm(self))
    }

    fn voices(&self) -> &[Voice] {
        &self.voices
    }

    fn speak(&self, request: SpeechRequest) -> BoxStream<'static, Result<Pcm, TtsError>> {
        let engine = self.clone();
        let stream = async_stream::stream! {
            let first_byte = engine.deadlines.first_byte;
            let mut sound = match timeout(first_byte, engine.open(&request)).await {
                Ok(Ok(sound)) => sound,
                Ok(Err(error)) => {
                    yield Err(error);
                    return;
                }
                Err(_) => {
                    yield Err(TtsError::Timeout(first_byte));
                    return;
                }
            };
            let mut bytes = sound.first;
            loop {
                let pcm = sound.decoder.push(&bytes);
                if !pcm.is_empty() {
                    yield Ok(pcm);
                }
                match timeout(engine.deadlines.between_bytes, sound.response.chunk()).await {
                    Ok(Ok(Some(more))) => bytes = more,
                    Ok(Ok(None)) => break,
                    Ok(Err(error)) => {
                        yield Err(engine.transport("broke off in the middle of the sound", error));
                        return;
                    }
                    Err(_) => {
                        let after = engine.deadlines.between_bytes;
                        let message = format!("the server sent no more sound for {after:?} in the middle of a chunk");
                        yield Err(failed(message));
                        return;
                    }
                }
            }
            if sound.decoder.has_half_a_sample() {
                tracing::warn!("the speech server sent an odd number of bytes; the last one is dropped");
            }
        };
        stream.boxed()
    }
}

/// A body whose first bytes have come.
struct Sound {
    response: Response,
    first: Bytes,
    decoder: PcmDecoder,
}

/// A failed attempt.
struct Failure {
    error: TtsError,
    /// Whether another attempt may succeed.
    again: bool,
}

fn failed(message: String) -> TtsError {
    TtsError::Engine { message, source: None }
}

impl OpenAiTts {
    /// Sends the request, twice where that may help, and waits for the first byte of sound.
    async fn open(&self, request: &SpeechRequest) -> Result<Sound, TtsError> {
        match self.attempt(request).await {
            Err(failure) if failure.again => {
                tracing::debug!(error = %failure.error, "the speech request is sent once more");
                self.attempt(request).await.map_err(|failure| failure.error)
            }
            Err(failure) => Err(failure.error),
            Ok(sound) => Ok(sound),
        }
    }

    fn attempt<'a>(&'a self, request: &'a SpeechRequest) -> BoxFuture<'a, Result<Sound, Failure>> {
        async move {
            let post = self.server.post("audio/speech").json(&self.body(request));
            let again = |error: TtsError| Failure { error, again: true };
            let never = |error: TtsError| Failure { error, again: false };
            let mut response = post.send().await.map_err(|error| again(self.transport("cannot be reached", error)))?;
            let status = response.status();
            if !status.is_success() {
                let error = failed(self.server.refusal(response).await);
                let again = status.is_server_error() || status == StatusCode::TOO_MANY_REQUESTS;
                return Err(Failure { error, again });
            }
            let kind = response.headers().get(reqwest::header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
            let decoder =
                PcmDecoder::for_content_type(kind.unwrap_or_default()).map_err(|message| never(failed(message)))?;
            loop {
                let bytes = response.chunk().await;
                match bytes.map_err(|error| again(self.transport("broke off before the first sound", error)))? {
                    Some(first) if first.is_empty() => {}
                    Some(first) if first.starts_with(b"RIFF") => return Err(never(failed(pcm::not_pcm("a WAV file")))),
                    Some(first) => return Ok(Sound { response, first, decoder }),
                    None => {
                        return Err(never(failed("the server answered without any sound".into())));
                    }
                }
            }
        }
        .boxed()
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

#[cfg(test)]
mod tests;
