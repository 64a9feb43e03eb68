//! The `moshi` engine: a moshi-server, whose voices take words over a WebSocket and speak while more of them come.
//!
//! Made by `assembly`; it implements the port directly, since it waits and never computes. How a text is sent and its sound
//! read is documented in [`super::words`]. The messages are MessagePack: `Text` and `Eos` out, `Audio`, `Text` (a word that was
//! spoken) and `Error` in; the server closes the connection, without a code or with the normal one, when all is spoken. Its audio
//! is mono at 24 kHz. It has no rate of speech and no list of its voices: a voice is a path below its own voice folder, and only
//! the configured one is offered.

use super::TtsConfig;
use super::speech_server::{DecodeError, SpeechServer, check_extra};
use super::stretched::{self, at_speed};
use super::words::{self, Call, Dialect, ServerMessage, n_letters};
use crate::secret::conceal;
use antiphon_engine_api::Upstreams;
use antiphon_engine_api::tts::{SpeechRequest, SpokenPart, TextRequest, TextSpeech, Tts, TtsError, Voice};
use antiphon_types::{Pcm, Requester, SampleRate, to_sample};
use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use futures_util::stream::BoxStream;
use reqwest::Url;
use reqwest::header::HeaderValue;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::time::Duration;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::handshake::client::Request;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::{Bytes, Message};

/// The header that moshi-server reads the key from, and the key that its own configurations allow.
const KEY_HEADER: &str = "kyutai-api-key";
const USUAL_KEY: &str = "public_token";
/// The rate of its codec, Mimi.
const RATE: SampleRate = SampleRate::HZ_24000;
/// The voice where none is configured.
const SERVERS_OWN: &str = "default";
/// Parameters of the address that are not the configuration's to set.
const OWN_PARAMETERS: [(&str, &str); 3] =
    [("format", "it reads PCM"), ("voice", "set tts.voice"), ("auth_id", "set tts.api_key_env")];

/// See the module. Cheap to clone.
#[derive(Clone)]
pub struct Moshi {
    server: SpeechServer,
    /// With the parameters of every text.
    address: Url,
    voices: Vec<Voice>,
}

impl Moshi {
    /// Checks the settings and reads the key; connects to nothing. [`TtsError::Unavailable`] says which setting is wrong and
    /// what would be right.
    pub fn new(config: &TtsConfig) -> Result<Self, TtsError> {
        check_extra(&config.extra_body, &OWN_PARAMETERS)?;
        let server = SpeechServer::new(config)?;
        let mut address = server.server.websocket_url("tts_streaming");
        address.query_pairs_mut().append_pair("format", "PcmMessagePack");
        for (name, value) in &config.extra_body {
            let value = match value {
                Value::String(text) => text.clone(),
                Value::Array(_) | Value::Object(_) => {
                    let message = format!(
                        "tts.extra_body.{name} must be a text, a number, true or false: it goes into the address"
                    );
                    return Err(TtsError::Unavailable(message));
                }
                value => value.to_string(),
            };
            address.query_pairs_mut().append_pair(name, &value);
        }
        let id = config.chosen_voice().unwrap_or(SERVERS_OWN);
        let name = if id == SERVERS_OWN { "The server's own" } else { id };
        let voices = vec![Voice { id: id.into(), name: name.into(), language: "mul".into() }];
        Ok(Self { server, address, voices })
    }

    /// All voices are the one.
    fn speech(&self, speed: f32, requester: Option<Requester>) -> Result<TextSpeech, TtsError> {
        let request = self.request()?;
        let host = self.server.server.host().to_owned();
        let dialect = MoshiDialect::default();
        let deadlines = self.server.deadlines;
        let upstream = self.server.upstream.clone();
        Ok(words::speak(Call { request, begin: None, dialect, deadlines, host, speed, upstream, requester }))
    }

    fn request(&self) -> Result<Request, TtsError> {
        let mut address = self.address.clone();
        if self.voices[0].id != SERVERS_OWN {
            address.query_pairs_mut().append_pair("voice", &self.voices[0].id);
        }
        let wrong = || TtsError::Unavailable("tts.base_url is no address of a WebSocket".into());
        let mut request = address.as_str().into_client_request().map_err(|_| wrong())?;
        let key = self.server.server.key();
        let mut key = HeaderValue::from_str(key.as_deref().unwrap_or(USUAL_KEY)).map_err(|_| wrong())?;
        key.set_sensitive(true);
        request.headers_mut().insert(KEY_HEADER, key);
        Ok(request)
    }
}

impl Tts for Moshi {
    fn name(&self) -> &str {
        "moshi"
    }

    fn warm(&self) -> BoxFuture<'_, Result<(), TtsError>> {
        Box::pin(self.server.warm())
    }

    fn upstreams(&self) -> Option<Upstreams> {
        Some(self.server.upstream.report(self.name()))
    }

    fn hedge_delay(&self) -> Option<Duration> {
        self.server.upstream.hedge_delay()
    }

    fn voices(&self) -> Vec<Voice> {
        self.voices.clone()
    }

    fn speak(&self, request: SpeechRequest) -> BoxStream<'static, Result<Pcm, TtsError>> {
        let speed = request.speed;
        let TextSpeech { words, speech } = match self.speech(1.0, request.meter.requester()) {
            Ok(speech) => speech,
            Err(error) => return futures_util::stream::iter([Err(error)]).boxed(),
        };
        // The sender is new: there is room.
        let _ = words.try_send(request.text);
        let audio = speech.filter_map(async |part| match part {
            Ok(SpokenPart::Audio(pcm)) => Some(Ok(pcm)),
            Ok(SpokenPart::Pieces(_)) => None,
            Err(error) => Some(Err(error)),
        });
        // The server knows one speed.
        at_speed(audio.boxed(), speed)
    }

    fn speak_text(&self, request: TextRequest) -> Option<TextSpeech> {
        // The places of words would have to be stretched with the sound.
        if stretched::changes(request.speed) {
            return None;
        }
        self.speech(1.0, request.meter.requester()).ok()
    }
}

/// What goes to the server.
#[derive(Serialize)]
#[serde(tag = "type")]
enum Outgoing {
    Text { text: String },
    Eos,
}

/// What comes from it.
#[derive(Deserialize)]
#[serde(tag = "type")]
enum Incoming {
    Audio {
        pcm: Vec<f32>,
    },
    /// A word that has been spoken.
    Text {
        text: String,
    },
    Error {
        message: String,
    },
    #[serde(other)]
    Other,
}

fn packed(message: &Outgoing) -> Message {
    Message::Binary(Bytes::from(rmp_serde::to_vec_named(message).expect("texts can be packed")))
}

/// moshi-server's messages.
#[derive(Default)]
struct MoshiDialect {
    /// Letters of the words that were spoken.
    n_letters: usize,
    has_begun: bool,
}

impl Dialect for MoshiDialect {
    fn words(text: String) -> Message {
        packed(&Outgoing::Text { text })
    }

    fn end() -> Vec<Message> {
        vec![packed(&Outgoing::Eos)]
    }

    fn keep_alive() -> Message {
        Message::Ping(Bytes::new())
    }

    fn read(&mut self, message: Message) -> Result<Vec<ServerMessage>, DecodeError> {
        let bytes = match message {
            Message::Binary(bytes) => bytes,
            Message::Close(frame) if frame.as_ref().is_none_or(|frame| frame.code == CloseCode::Normal) => {
                return Ok(vec![ServerMessage::End]);
            }
            // Any other code is no end: the server is stopping, or has failed.
            _ => return Ok(Vec::new()),
        };
        let message: Incoming = rmp_serde::from_slice(&bytes)
            .map_err(|_| DecodeError::Unusable("the speech server sent a message that is not moshi-server's".into()))?;
        let mut said = Vec::new();
        match message {
            Incoming::Audio { pcm } => {
                if !std::mem::replace(&mut self.has_begun, true) {
                    said.push(ServerMessage::Text(Some(1)));
                }
                said.push(ServerMessage::Sound(Pcm {
                    rate: RATE,
                    samples: pcm.iter().map(|v| to_sample(v * 32_767.0)).collect(),
                }));
            }
            // It names a word behind its audio: what follows is the next one's.
            Incoming::Text { text } => {
                self.n_letters += n_letters(&text);
                said.push(ServerMessage::Text(Some(self.n_letters + 1)));
            }
            Incoming::Error { message } => {
                return Err(DecodeError::Reported(conceal(&message).chars().take(300).collect()));
            }
            Incoming::Other => {}
        }
        Ok(said)
    }
}

#[cfg(test)]
mod tests;
