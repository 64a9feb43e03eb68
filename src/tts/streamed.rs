//! One request for speech to a server, and the sound of its answer as it arrives.
//!
//! The remote engines (`openai`, `fish`) stand on it: they say what to ask and how the answer is read. Sound is passed on as
//! it arrives. Connections are kept for the next chunk. A request that fails before its first byte of sound, by a broken
//! connection, a status of 5xx or 429, is sent once more within the same deadline; afterwards nothing is repeated, for the
//! listener has heard the beginning.

use super::{TtsConfig, TtsError};
use crate::remote::Server;
use crate::units::Pcm;
use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::future::{BoxFuture, FutureExt};
use futures_util::stream::BoxStream;
use reqwest::{RequestBuilder, Response, StatusCode};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;

/// Sound that stops in mid-chunk for this long is a failure.
const STALL: Duration = Duration::from_secs(5);

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

    /// What is odd about the body now that it has ended. The error says why it was no sound at all.
    fn end(&self) -> Result<Option<&'static str>, String>;
}

/// What to ask.
pub(super) struct Ask {
    /// Below the base address.
    pub(super) path: &'static str,
    /// The JSON body.
    pub(super) body: serde_json::Value,
    /// Headers besides the usual ones.
    pub(super) headers: Vec<(&'static str, String)>,
    /// How a body of this content type is read; the error says why it is not.
    pub(super) decoder: fn(&str) -> Result<Box<dyn Decode>, String>,
}

/// A body whose first bytes have come.
struct Sound {
    response: Response,
    first: Bytes,
    decoder: Box<dyn Decode>,
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
            let mut bytes = sound.first;
            loop {
                match sound.decoder.push(&bytes) {
                    Ok(pcm) if pcm.is_empty() => {}
                    Ok(pcm) => yield Ok(pcm),
                    Err(message) => {
                        yield Err(failed(message));
                        return;
                    }
                }
                match timeout(server.deadlines.between_bytes, sound.response.chunk()).await {
                    Ok(Ok(Some(more))) => bytes = more,
                    Ok(Ok(None)) => break,
                    Ok(Err(error)) => {
                        yield Err(server.transport("broke off in the middle of the sound", error));
                        return;
                    }
                    Err(_) => {
                        let after = server.deadlines.between_bytes;
                        let message = format!("the server sent no more sound for {after:?} in the middle of a chunk");
                        yield Err(failed(message));
                        return;
                    }
                }
            }
            match sound.decoder.end() {
                Ok(None) => {}
                Ok(Some(odd)) => tracing::warn!("{odd}"),
                Err(message) => yield Err(failed(message)),
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
                let error = failed(self.server.refusal(response).await);
                let again = status.is_server_error() || status == StatusCode::TOO_MANY_REQUESTS;
                return Err(Failure { error, again });
            }
            let kind = response.headers().get(reqwest::header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
            let decoder = (ask.decoder)(kind.unwrap_or_default()).map_err(|message| never(failed(message)))?;
            loop {
                let bytes = response.chunk().await;
                match bytes.map_err(|error| again(self.transport("broke off before the first sound", error)))? {
                    Some(first) if first.is_empty() => {}
                    Some(first) => return Ok(Sound { response, first, decoder }),
                    None => {
                        return Err(never(failed("the server answered without any sound".into())));
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
        TtsError::Engine { message, source: Some(Box::new(error.without_url())) }
    }
}
