//! One request for speech to a server, and the sound of its answer as it arrives.
//!
//! The remote engines (`openai`, `fish`) use it: they define the request and how the answer is read. Sound is passed on as
//! it arrives. Connections are kept for the next chunk. A request that fails before its first byte of sound, by a broken
//! connection, a status of 5xx or 429, is sent once more within the same deadline; afterwards nothing is repeated, since the
//! listener has heard the beginning. The sound of a chunk is bounded by its text, and so is the time it may take: a server that
//! speaks without end, or sends a sample now and then, fails.

use super::TtsConfig;
use crate::remote::{Body, BodyError, Bounds, Server};
use antiphon_engine_api::Fault;
use antiphon_engine_api::tts::{SpeechRequest, TtsError};
use antiphon_types::Pcm;
use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::future::{BoxFuture, FutureExt};
use futures_util::stream::BoxStream;
use reqwest::{RequestBuilder, StatusCode};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;

/// Sound that stops in mid-chunk for this long is a failure.
const STALL: Duration = Duration::from_secs(5);

/// The longest sound of a chunk: so much, and so much more for each character at the voice's own rate. Slow speech takes a
/// fifth of that for a character.
const SOUND: Duration = Duration::from_secs(30);
const SOUND_PER_CHAR: Duration = Duration::from_millis(500);
/// The densest sound a server sends, in bytes a second: 192 kHz, two channels of 16 bits.
const MAX_BYTES_PER_SECOND: usize = 192_000 * 4;
/// Consecutive bytes without sound, such as the header or trailer of a file.
const MAX_SILENT_BYTES: usize = 128 << 10;
/// How long a body is waited for in all, and how much longer for each second of sound it brought. Slower than this, no
/// listener hears a sentence.
const WAIT: Duration = Duration::from_secs(30);
const WAIT_PER_SOUND: u32 = 8;

/// A server that speaks. Cheap to clone.
#[derive(Clone)]
pub(super) struct Streamed {
    server: Server,
    pub(super) deadlines: Deadlines,
}

/// How long to wait for a server.
#[derive(Clone, Copy, Debug)]
pub(super) struct Deadlines {
    /// From the request to the first byte of sound, the retry included.
    pub(super) first_byte: Duration,
    /// Between two pieces of the body.
    pub(super) between_bytes: Duration,
}

/// Bytes of a body to samples; pieces may be cut anywhere.
pub(super) trait Decode: Send {
    /// The samples that are complete now. The error says what came instead of sound.
    fn push(&mut self, bytes: &[u8]) -> Result<Pcm, String>;

    /// A warning about the complete body. The error says why it was no sound at all.
    fn end(&self) -> Result<Option<&'static str>, String>;
}

/// A request.
pub(super) struct Ask {
    /// Below the base address.
    pub(super) path: &'static str,
    /// The JSON body.
    pub(super) body: serde_json::Value,
    /// The longest sound that its answer may be; [`longest_sound`].
    pub(super) longest: Duration,
    /// Headers besides the usual ones.
    pub(super) headers: Vec<(&'static str, String)>,
    /// How a body of this content type is read; the error says why it is not.
    pub(super) decoder: fn(&str) -> Result<Box<dyn Decode>, String>,
}

/// A body whose first bytes have come.
struct Sound {
    body: Body,
    first: Bytes,
    decoder: Box<dyn Decode>,
}

/// A failed attempt.
struct Failure {
    error: TtsError,
    /// Whether another attempt may succeed.
    again: bool,
}

fn failed(fault: Fault, message: String) -> TtsError {
    TtsError::Remote { fault, message, source: None }
}

fn unusable(message: String) -> TtsError {
    failed(Fault::BadAnswer, message)
}

/// The longest sound of a text: whatever is longer is no speech of it.
pub(super) fn longest_sound(request: &SpeechRequest) -> Duration {
    let speed = if request.speed.is_finite() { request.speed.clamp(0.25, 1.0) } else { 1.0 };
    let n_chars = u32::try_from(request.text.chars().count()).unwrap_or(u32::MAX);
    SOUND + SOUND_PER_CHAR.saturating_mul(n_chars).div_f32(speed)
}

impl Streamed {
    /// Checks the settings and reads the key; connects to nothing. [`TtsError::Unavailable`] says which setting is
    /// wrong and what would be right.
    pub(super) fn new(config: &TtsConfig) -> Result<Self, TtsError> {
        let first_byte = Duration::from_millis(config.timeout_ms);
        let server =
            Server::new("tts", &config.base_url, &config.api_key_env, first_byte).map_err(TtsError::Unavailable)?;
        Ok(Self { server, deadlines: Deadlines { first_byte, between_bytes: STALL } })
    }

    /// Opens a connection, so that the first chunk does not pay for it. What the server answers does not matter.
    pub(super) async fn warm(&self) -> Result<(), TtsError> {
        let answer = timeout(self.deadlines.first_byte, self.server.warm()).await;
        match answer {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => Err(self.transport("cannot be reached", error)),
            Err(_) => Err(TtsError::Timeout(self.deadlines.first_byte)),
        }
    }

    /// Asks, and gives the sound as it comes. Dropping the stream ends the request.
    pub(super) fn speak(&self, ask: Ask) -> BoxStream<'static, Result<Pcm, TtsError>> {
        let (server, ask) = (self.clone(), Arc::new(ask));
        let stream = async_stream::stream! {
            let first_byte = server.deadlines.first_byte;
            let mut sound = match timeout(first_byte, server.open(&ask)).await {
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
            let (mut bytes, mut made, mut n_silent) = (sound.first, Duration::ZERO, 0);
            loop {
                match sound.decoder.push(&bytes) {
                    Ok(pcm) if pcm.is_empty() => n_silent += bytes.len(),
                    Ok(pcm) => {
                        let sound_of_it = pcm.duration();
                        (made, n_silent) = (made + sound_of_it, 0);
                        sound.body.allow(sound_of_it * WAIT_PER_SOUND);
                        yield Ok(pcm);
                    }
                    Err(message) => {
                        yield Err(unusable(message));
                        return;
                    }
                }
                if made > ask.longest {
                    let longest = ask.longest;
                    yield Err(unusable(format!("the server sent more than {longest:?} of sound for a chunk of text")));
                    return;
                }
                if n_silent > MAX_SILENT_BYTES {
                    // Behind the sound of a file may stand what is none; it is not read to its end.
                    break;
                }
                match sound.body.chunk().await {
                    Ok(Some(more)) => bytes = more,
                    Ok(None) => break,
                    Err(error) => {
                        yield Err(server.unread(error));
                        return;
                    }
                }
            }
            match sound.decoder.end() {
                Ok(None) => {}
                Ok(Some(odd)) => tracing::warn!("{odd}"),
                Err(message) => yield Err(unusable(message)),
            }
        };
        stream.boxed()
    }

    /// Sends the request, twice where that may help, and waits for the first byte of sound.
    async fn open(&self, ask: &Ask) -> Result<Sound, TtsError> {
        match self.attempt(ask).await {
            Err(failure) if failure.again => {
                tracing::debug!(error = %failure.error, "the speech request is sent once more");
                self.attempt(ask).await.map_err(|failure| failure.error)
            }
            Err(failure) => Err(failure.error),
            Ok(sound) => Ok(sound),
        }
    }

    fn attempt<'a>(&'a self, ask: &'a Ask) -> BoxFuture<'a, Result<Sound, Failure>> {
        async move {
            let again = |error: TtsError| Failure { error, again: true };
            let never = |error: TtsError| Failure { error, again: false };
            let sent = self.request(ask).send().await;
            let mut response = sent.map_err(|error| again(self.transport("cannot be reached", error)))?;
            let status = response.status();
            if !status.is_success() {
                let error = failed(Fault::of_status(status.as_u16()), self.server.refusal(response).await);
                let again = status.is_server_error() || status == StatusCode::TOO_MANY_REQUESTS;
                return Err(Failure { error, again });
            }
            let kind = response.headers().get(reqwest::header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
            let decoder = (ask.decoder)(kind.unwrap_or_default()).map_err(|message| never(unusable(message)))?;
            loop {
                let bytes = response.chunk().await;
                match bytes.map_err(|error| again(self.transport("broke off before the first sound", error)))? {
                    Some(first) if first.is_empty() => {}
                    Some(first) => {
                        let seconds = ask.longest.as_secs() as usize + 1;
                        let bounds = Bounds {
                            bytes: seconds.saturating_mul(MAX_BYTES_PER_SECOND),
                            stall: self.deadlines.between_bytes,
                            total: WAIT,
                        };
                        return Ok(Sound { body: Body::new(response, bounds), first, decoder });
                    }
                    None => {
                        return Err(never(unusable("the server answered without any sound".into())));
                    }
                }
            }
        }
        .boxed()
    }

    fn request(&self, ask: &Ask) -> RequestBuilder {
        let post = self.server.post(ask.path).json(&ask.body);
        ask.headers.iter().fold(post, |post, (name, value)| post.header(*name, value))
    }

    fn transport(&self, what: &str, error: reqwest::Error) -> TtsError {
        let message = format!("the server {} {what}", self.server.host());
        TtsError::Remote { fault: Fault::Unreachable, message, source: Some(Box::new(error.without_url())) }
    }

    /// Why the sound broke off.
    fn unread(&self, error: BodyError) -> TtsError {
        let host = self.server.host();
        let (fault, message) = match &error {
            BodyError::Broken(_) => {
                (Fault::Unreachable, format!("the server {host} broke off in the middle of the sound"))
            }
            BodyError::Stalled(after) => {
                (Fault::Timeout, format!("the server sent no more sound for {after:?} in the middle of a chunk"))
            }
            BodyError::TooSlow(after) => {
                (Fault::Timeout, format!("the server {host} sent too little sound in {after:?} of waiting"))
            }
            BodyError::TooLarge(most) => {
                (Fault::BadAnswer, format!("the server {host} sent more than {most} bytes for a chunk of text"))
            }
        };
        TtsError::Remote { fault, message, source: Some(Box::new(error)) }
    }
}
