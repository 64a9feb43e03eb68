//! One request for speech to a server, and the sound of its answer as it arrives.
//!
//! The engines `openai` and `fish` use it: they define the request and what its answer is. Sound is passed on as
//! it arrives. Connections are kept for the next chunk. A request that fails before its first sound, by a broken
//! connection, a status of 5xx or 429, is sent once more within the same deadline; afterwards nothing is repeated,
//! since the listener has heard the beginning. The header of a file is no sound: servers send it before the model's
//! first output. The sound of a chunk is bounded by its text, and so is the time it may take: a server that speaks
//! without end, or sends a sample now and then, fails.

use super::decode::{self, Decode, ExpectedFormat};
use super::speech_server::{
    SpeechServer, WAIT, WAIT_PER_SOUND, away, failed, fault_of, longest_sound_of, undecoded, unusable,
};
use crate::remote::{Body, BodyError, Bounds};
use antiphon_engine_api::Fault;
use antiphon_engine_api::tts::{SpeechRequest, TtsError};
use antiphon_types::{Pcm, Requester};
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

/// A body whose first sound has come.
struct Sound {
    body: Body,
    first: Pcm,
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

/// The failure of an answer of `n_bytes` without a sample.
fn no_sound(decoder: &dyn Decode, n_bytes: usize) -> TtsError {
    match decoder.end() {
        Err(error) if n_bytes > 0 => undecoded(error),
        _ => unusable("the server answered without any sound".into()),
    }
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
            let Sound { mut body, first, mut decoder } = match opened.unwrap_or(Err(TtsError::Timeout(first_byte))) {
                Ok(sound) => sound,
                Err(error) => {
                    attempt.failed(fault_of(&error));
                    yield Err(error);
                    return;
                }
            };
            let mut pcm = first;
            let mut made = Duration::ZERO;
            let mut n_silent = 0;
            loop {
                if !pcm.is_empty() {
                    let sound_of_it = pcm.duration();
                    made += sound_of_it;
                    n_silent = 0;
                    body.allow(sound_of_it * WAIT_PER_SOUND);
                    attempt.answered();
                    yield Ok(pcm);
                }
                if made > ask.longest {
                    let longest = ask.longest;
                    attempt.failed(Fault::BadAnswer);
                    yield Err(unusable(format!("the server sent more than {longest:?} of sound for a chunk of text")));
                    return;
                }
                if decoder.is_finished() {
                    body.drain().await;
                    break;
                }
                if n_silent > decoder.max_silent_bytes() {
                    // Behind the sound of a file may stand what is none; it is not read to its end.
                    break;
                }
                let bytes = match body.chunk().await {
                    Ok(Some(bytes)) => bytes,
                    Ok(None) => break,
                    Err(error) => {
                        let error = server.unread(error);
                        attempt.failed(fault_of(&error));
                        yield Err(error);
                        return;
                    }
                };
                n_silent += bytes.len();
                pcm = match decoder.push(&bytes) {
                    Ok(pcm) => pcm,
                    Err(error) => {
                        let error = undecoded(error);
                        attempt.failed(fault_of(&error));
                        yield Err(error);
                        return;
                    }
                };
            }
            let ended = decoder.end().map_err(undecoded);
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

    /// Sends the request, twice where that may help, and waits for the first sound.
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
            let mut decoder = decoder.map_err(|error| never(undecoded(error)))?;
            let mut n_silent = 0;
            let first = loop {
                let bytes = response.chunk().await;
                let bytes = bytes.map_err(|error| again(self.transport("broke off before the first sound", error)))?;
                let Some(bytes) = bytes else { return Err(never(no_sound(decoder.as_ref(), n_silent))) };
                n_silent += bytes.len();
                let pcm = decoder.push(&bytes).map_err(|error| never(undecoded(error)))?;
                if !pcm.is_empty() {
                    break pcm;
                }
                if decoder.is_finished() || n_silent > decoder.max_silent_bytes() {
                    return Err(never(no_sound(decoder.as_ref(), n_silent)));
                }
            };
            let seconds = ask.longest.as_secs() as usize + 1;
            let bounds = Bounds {
                bytes: seconds.saturating_mul(MAX_BYTES_PER_SECOND),
                stall: self.deadlines.between_bytes,
                total: WAIT,
            };
            Ok(Sound { body: Body::new(response, bounds), first, decoder })
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
