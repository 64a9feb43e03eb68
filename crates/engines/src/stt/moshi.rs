//! The `moshi` engine: a moshi-server's recognizer, which hears over a WebSocket and says each word a fixed time after it.
//!
//! Made by `assembly`; it implements the port directly, since it waits and never computes. How audio is sent and words are read
//! is documented in [`super::streamed`]. The messages are MessagePack: `Audio` and `Marker` out; `Word`, `Step`, `Marker` and
//! `Error` in; audio is mono at 24 kHz. A marker comes back once the words before it have been said: at the end of speech the
//! server gets silence, a frame for each step that it reports, until then. It has no setting for language or expected words.

use super::SttConfig;
use super::streamed::{Dialect, ServerReport, StreamingServer};
use antiphon_audio::Resampler;
use antiphon_engine_api::stt::{OpeningUtterance, RATE, Stt, SttError, SttOptions, SttUtterance};
use antiphon_engine_api::{Fault, Upstreams};
use antiphon_types::SampleRate;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use reqwest::header::HeaderValue;
use serde::{Deserialize, Serialize};
use std::time::Duration;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::handshake::client::Request;
use tokio_tungstenite::tungstenite::{Bytes, Message};

/// The header that moshi-server reads the key from, and the key that its own configurations allow.
const KEY_HEADER: &str = "kyutai-api-key";
const USUAL_KEY: &str = "public_token";

/// The rate of its codec, Mimi, and a frame of it, 80 ms.
const CODEC_RATE: SampleRate = SampleRate::HZ_24000;
const FRAME: usize = 1_920;

/// Frames of silence that go with a marker, before the server has reported a step: the delay of the smaller model is six frames.
const FIRST_SILENCE: usize = 8;

/// Frames of silence for a marker in all, 8 s; the delay of the larger model is 2.5 s.
const MOST_SILENCE: usize = 100;

/// See the module. Cheap to clone.
#[derive(Clone)]
pub struct Moshi {
    server: StreamingServer,
}

impl Moshi {
    /// Checks the settings and reads the key; connects to nothing. [`SttError::Unavailable`] says which setting is wrong
    /// and what would be right.
    pub fn new(config: &SttConfig) -> Result<Self, SttError> {
        Ok(Self { server: StreamingServer::new(config)? })
    }

    fn request(&self) -> Result<Request, SttError> {
        let wrong = || SttError::Unavailable("stt.base_url is no address of a WebSocket".into());
        let address = self.server.server.websocket_url("asr-streaming");
        let mut request = address.as_str().into_client_request().map_err(|_| wrong())?;
        let key = self.server.server.key();
        let mut key = HeaderValue::from_str(key.as_deref().unwrap_or(USUAL_KEY)).map_err(|_| wrong())?;
        key.set_sensitive(true);
        request.headers_mut().insert(KEY_HEADER, key);
        Ok(request)
    }
}

impl Stt for Moshi {
    fn name(&self) -> &str {
        "moshi"
    }

    fn warm(&self) -> BoxFuture<'_, Result<(), SttError>> {
        self.server.warm().boxed()
    }

    fn upstreams(&self) -> Option<Upstreams> {
        Some(self.server.report(self.name()))
    }

    fn hedge_delay(&self) -> Option<Duration> {
        self.server.hedge_delay()
    }

    fn open(&self, options: SttOptions) -> BoxFuture<'static, Result<Box<dyn SttUtterance>, SttError>> {
        self.utterance(options, false)
    }

    fn open_queued(&self, options: SttOptions) -> BoxFuture<'static, OpeningUtterance> {
        std::future::ready(self.utterance(options, true)).boxed()
    }
}

impl Moshi {
    /// An utterance with its connection. `is_queued`: it may wait.
    fn utterance(&self, options: SttOptions, is_queued: bool) -> OpeningUtterance {
        let engine = self.clone();
        async move {
            let request = engine.request()?;
            engine.server.open(request, &options, is_queued, MoshiDialect::new).await
        }
        .boxed()
    }
}

/// What goes to the server.
#[derive(Serialize)]
#[serde(tag = "type")]
enum Outgoing {
    Audio { pcm: Vec<f32> },
    Marker { id: i64 },
}

/// What comes from it.
#[derive(Deserialize)]
#[serde(tag = "type")]
enum Incoming {
    Word {
        text: String,
    },
    Marker {
        id: i64,
    },
    /// A frame was computed.
    Step {},
    Error {
        message: String,
    },
    #[serde(other)]
    Other,
}

struct MoshiDialect {
    resampler: Resampler,
    last_marker: i64,
    /// Frames of silence that may still be sent for the last marker; `None`: it is back.
    silence: Option<usize>,
}

impl MoshiDialect {
    fn new() -> Self {
        Self { resampler: Resampler::new(RATE, CODEC_RATE), last_marker: 0, silence: None }
    }
}

impl Dialect for MoshiDialect {
    fn waits_to_begin(&self) -> bool {
        false
    }

    fn begin(&mut self) -> Vec<Message> {
        Vec::new()
    }

    fn audio(&mut self, pcm: &[i16]) -> Vec<Message> {
        let mut samples = Vec::new();
        self.resampler.process(pcm, &mut samples);
        // Words drive the steps again.
        self.silence = self.silence.map(|_| 0);
        sound(&samples)
    }

    fn flush(&mut self) -> Vec<Message> {
        let mut samples = Vec::new();
        self.resampler.flush(&mut samples);
        self.resampler = Resampler::new(RATE, CODEC_RATE);
        self.last_marker += 1;
        self.silence = Some(MOST_SILENCE - FIRST_SILENCE);
        let mut messages = sound(&samples);
        messages.push(packed(&Outgoing::Marker { id: self.last_marker }));
        messages.extend(sound(&[0; FIRST_SILENCE * FRAME]));
        messages
    }

    fn ends_with_flush(&self) -> bool {
        false
    }

    fn read(&mut self, message: Message) -> Result<Vec<ServerReport>, String> {
        let Message::Binary(bytes) = message else { return Ok(Vec::new()) };
        let message: Incoming = rmp_serde::from_slice(&bytes).map_err(|error| error.to_string())?;
        let heard = match message {
            Incoming::Word { text } => ServerReport::Words { item: String::new(), delta: format!("{} ", text.trim()) },
            Incoming::Marker { id } => {
                if id == self.last_marker {
                    self.silence = None;
                }
                ServerReport::Final { item: String::new(), text: None, answers: true }
            }
            Incoming::Step {} => match self.silence {
                Some(n_frames) if n_frames > 0 => {
                    self.silence = Some(n_frames - 1);
                    ServerReport::Send(sound(&[0; FRAME]))
                }
                _ => return Ok(Vec::new()),
            },
            Incoming::Error { message } => {
                let is_full = message.contains("no free channels");
                let fault = if is_full { Fault::Overloaded } else { Fault::Failed };
                ServerReport::Failed { fault, message }
            }
            Incoming::Other => return Ok(Vec::new()),
        };
        Ok(vec![heard])
    }
}

/// Audio in one message; none where there is none.
fn sound(samples: &[i16]) -> Vec<Message> {
    if samples.is_empty() {
        return Vec::new();
    }
    let pcm = samples.iter().map(|sample| f32::from(*sample) / 32_768.0).collect();
    vec![packed(&Outgoing::Audio { pcm })]
}

fn packed(message: &Outgoing) -> Message {
    Message::Binary(Bytes::from(rmp_serde::to_vec_named(message).expect("numbers can be packed")))
}

#[cfg(test)]
mod tests;
