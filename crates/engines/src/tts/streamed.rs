//! One request for speech to a server, and the sound of its answer as it arrives.
//!
//! The engines `openai` and `fish` use it: they define the request and what its answer is. Sound is passed on as
//! it arrives. Connections are kept for the next chunk. A request that fails before its first byte of sound, by a broken
//! connection, a status of 5xx or 429, is sent once more within the same deadline; afterwards nothing is repeated, since the
//! listener has heard the beginning. The sound of a chunk is bounded by its text, and so is the time it may take: a server that
//! speaks without end, or sends a sample now and then, fails.

use super::decode::{self, Decode, ExpectedFormat};
use super::speech_server::{
    SpeechServer, WAIT, WAIT_PER_SOUND, away, failed, fault_of, longest_sound_of, undecoded, unusable,
};
use crate::remote::{Body, BodyError, Bounds};
use antiphon_engine_api::Fault;
use antiphon_engine_api::tts::{SpeechRequest, TtsError};
use antiphon_types::{Pcm, Requester};
use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::future::{BoxFuture, FutureExt};
use futures_util::stream::BoxStream;
use reqwest::{RequestBuilder, StatusCode};
use serde_json::{Map, Value};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;

/// The densest sound a server sends, in bytes a second: 192 kHz, two channels of 16 bits.
const MAX_BYTES_PER_SECOND: usize = 192_000 * 4;
/// A request.
pub(super) struct Ask {
    /// Below the base address.
    pub(super) path: &'static str,
    /// The JSON body.
    pub(super) body: Value,
    /// The longest sound that its answer may be; [`longest_sound`].
    pub(super) longest: Duration,
    /// Headers besides the usual ones.
    pub(super) headers: Vec<(&'static str, String)>,
    /// What the answer's sound is.
    pub(super) expected: ExpectedFormat,
    /// Who asks.
    pub(super) requester: Option<Requester>,
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

/// `body` with the fields of `tts.extra_body`; those of `body` come first.
pub(super) fn with_extra(mut body: Value, extra: &Map<String, Value>) -> Value {
    if let Value::Object(fields) = &mut body {
        for (name, value) in extra {
            fields.entry(name.clone()).or_insert_with(|| value.clone());
        }
    }
    body
}

/// The longest sound of a chunk: whatever is longer is no speech of it.
pub(super) fn longest_sound(request: &SpeechRequest) -> Duration {
    longest_sound_of(request.text.chars().count(), request.speed)
}

/// The failure of an answer without a sample.
fn silent() -> TtsError {
    unusable("the server answered without any sound".into())
}

impl SpeechServer {
    /// Asks, and gives the sound as it comes. Dropping the stream ends the request.
    pub(super) fn speak(&self, ask: Ask) -> BoxStream<'static, Result<Pcm, TtsError>> {
        let server = self.clone();
        let ask = Arc::new(ask);
        let stream = async_stream::stream! {
            let first_byte = server.deadlines.first_byte;
            let host = server.server.host();
            let mut attempt = match server.upstream.admit(ask.requester) {
                Ok(attempt) => attempt,
                Err(open) => {
                    yield Err(away(host, &open));
                    return;
                }
            };
            let opened = attempt.first(timeout(first_byte, server.open(&ask))).await;
            let Some(opened) = opened else {
                yield Err(away(host, &"it is late, as other requests are"));
                return;
            };
            let mut sound = match opened.unwrap_or(Err(TtsError::Timeout(first_byte))) {
                Ok(sound) => sound,
                Err(error) => {
                    attempt.failed(fault_of(&error));
                    yield Err(error);
                    return;
                }
            };
            let mut bytes = sound.first;
            let mut made = Duration::ZERO;
            let mut n_silent = 0;
            loop {
                match sound.decoder.push(&bytes) {
                    Ok(pcm) if pcm.is_empty() => n_silent += bytes.len(),
                    Ok(pcm) => {
                        let sound_of_it = pcm.duration();
                        made += sound_of_it;
                        n_silent = 0;
                        sound.body.allow(sound_of_it * WAIT_PER_SOUND);
                        attempt.answered();
                        yield Ok(pcm);
                    }
                    Err(error) => {
                        let error = undecoded(error);
                        attempt.failed(fault_of(&error));
                        yield Err(error);
                        return;
                    }
                }
                if made > ask.longest {
                    let longest = ask.longest;
                    attempt.failed(Fault::BadAnswer);
                    yield Err(unusable(format!("the server sent more than {longest:?} of sound for a chunk of text")));
                    return;
                }
                if sound.decoder.is_finished() {
                    sound.body.drain().await;
                    break;
                }
                if n_silent > sound.decoder.max_silent_bytes() {
                    // Behind the sound of a file may stand what is none; it is not read to its end.
                    break;
                }
                match sound.body.chunk().await {
                    Ok(Some(more)) => bytes = more,
                    Ok(None) => break,
                    Err(error) => {
                        let error = server.unread(error);
                        attempt.failed(fault_of(&error));
                        yield Err(error);
                        return;
                    }
                }
            }
            let ended = match sound.decoder.end().map_err(undecoded) {
                Ok(_) if made.is_zero() => Err(silent()),
                ended => ended,
            };
            match ended {
                Ok(None) => {}
                Ok(Some(odd)) => tracing::warn!("{odd}"),
                Err(error) => {
                    attempt.failed(fault_of(&error));
                    yield Err(error);
                }
            }
        };
        stream.boxed()
    }

    /// Sends the request, twice where that may help, and waits for the first byte of sound.
    async fn open(&self, ask: &Ask) -> Result<Sound, TtsError> {
        match self.attempt(ask).await {
            Err(failure) if failure.again && !self.upstream.has_fallback() => {
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
                self.upstream.heed(&response);
                let error = failed(Fault::of_status(status.as_u16()), self.server.refusal(response).await);
                let again = status.is_server_error() || status == StatusCode::TOO_MANY_REQUESTS;
                return Err(Failure { error, again });
            }
            let decoder = decode::for_answer(response.headers(), ask.expected);
            let decoder = decoder.map_err(|error| never(undecoded(error)))?;
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
                        return Err(never(silent()));
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

    /// Why the sound broke off.
    fn unread(&self, error: BodyError) -> TtsError {
        let host = self.server.host();
        let (fault, message) = match &error {
            BodyError::Broken(_) => {
                (Fault::BrokenOff, format!("the server {host} broke off in the middle of the sound"))
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
