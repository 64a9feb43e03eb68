//! `POST /v1/audio/speech`: a text in, sound out while it is made.
//!
//! The answer begins with the first sound, so that whatever fails before it has a status of its own. What fails later ends
//! the body in the middle (or with an `error` event), which no client takes for the end of the sound.

use super::chosen;
use super::error::ApiError;
use super::metering::MeteredRequest;
use super::parts::{MAX_JSON_BYTES, SpeechParts, check};
use super::request::{self, Longest};
use super::speaking::{SpeechPiece, SpeechSource};
use super::spec::SpeechSpec;
use super::upload;
use super::waiting::BEFORE_SOUND;
use crate::server::access::caller::Identity;
use crate::server::access::limits::{Count, Resource, Spender};
use antiphon_audio::encode::{Encoder, RATE};
use antiphon_engine_api::tts::TtsError;
use antiphon_telemetry::Endpoint;
use antiphon_types::BrownoutLevel;
use antiphon_types::chat::{estimated_tokens, spoken_tokens};
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::header;
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use bytes::Bytes;
use futures_util::stream::BoxStream;
use futures_util::{Stream, StreamExt};
use serde_json::json;
use std::convert::Infallible;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout};

/// Sound that is encoded in one go: 100 ms, a few milliseconds of work at most.
const SLICE: usize = RATE.hz() as usize / 10;
/// Capacity in pieces of the file between encoder and reader: a second of audio or more.
const PARTS: usize = 16;
/// How long a client may read nothing while there is something to read.
const STALL: Duration = Duration::from_secs(30);
/// Why sound ends before its end, where the engine did not fail.
const CUT_OFF: &str = "the reader took too long, or the server stops";

type Sound = BoxStream<'static, Result<SpeechPiece, TtsError>>;

/// The handler.
pub(super) async fn create(State(speech): State<Arc<SpeechParts>>, identity: Identity, request: Request) -> Response {
    let metered = MeteredRequest::begin(&speech, Endpoint::Speech);
    match spoken(&speech, identity, request, metered).await {
        Ok(response) => response,
        Err((error, metered)) => {
            metered.end(error.outcome());
            error.into_response()
        }
    }
}

async fn spoken(
    speech: &SpeechParts,
    identity: Identity,
    request: Request,
    mut metered: MeteredRequest,
) -> Result<Response, (ApiError, MeteredRequest)> {
    let spender = Spender::of(&request);
    let begun = async {
        speech.check_place(&spender, BrownoutLevel::NoSpeechRequests)?;
        let account = speech.uploads.for_json(speech.holder(&spender));
        let (body, _held) = upload::whole(request.into_body(), account, MAX_JSON_BYTES).await?;
        metered.place = Some(speech.admit(&spender)?);
        let chosen = chosen::for_body(speech, &body, identity.voices()).await?;
        let if_longer = " while you wait (speech.max_input_chars). POST /v1/audio/speech/jobs takes longer texts";
        let longest = Longest { chars: speech.config.max_input_chars, if_longer };
        let (chosen, wish) = request::read(chosen, body, longest).await?;
        check(speech, &spender, Resource::Characters)?;
        let encoder = Encoder::new(wish.format).map_err(|error| ApiError::internal("The encoder", &error))?;
        let speaking = SpeechSource {
            tts: chosen.engines.tts,
            tasks: speech.sessions.setup.tasks.clone(),
            ahead: speech.config.chunks_ahead,
            is_heard: true,
            immediate: speech.sessions.load.brownout().is_at_least(BrownoutLevel::ShortLookAhead),
            meter: metered.meter("tts", spender.requester(), &spender.consumer),
            load: speech.sessions.load.tts_api.clone(),
        };
        let wait = speech.sessions.load.tts_wait(speaking.tts.as_ref());
        let begun = Instant::now();
        if wait > BEFORE_SOUND {
            let message = "The voice engine has more to speak than it can begin in time. Try again later.";
            return Err(ApiError::overloaded(message).after(wait - BEFORE_SOUND));
        }
        let mut charge = spender.charge(Resource::Characters, Count::Characters, wish.n_chars as u64);
        let mut sound = speaking.speak(&wish, 0).boxed();
        let first = first_sound(&mut sound).await.inspect_err(|_| charge.waive())?;
        if wait.is_zero() {
            speech.sessions.load.spoken_after(begun.elapsed());
        }
        Ok((wish, encoder, first, sound))
    };
    match begun.await {
        Ok((wish, encoder, first, sound)) => {
            let rest = futures_util::stream::iter([Ok(SpeechPiece::Sound(first))]).chain(sound);
            let (sender, parts) = mpsc::channel(PARTS);
            let kill = speech.sessions.edge.kill.clone();
            let pumped = pump(encoded(encoder, rest), sender, metered);
            speech.sessions.setup.tasks.spawn(async move {
                tokio::select! {
                    () = pumped => {}
                    // Even the time to drain is over.
                    () = kill.cancelled() => {}
                }
            });
            Ok(answer(&wish, parts))
        }
        Err(error) => Err((error, metered)),
    }
}

/// Waits for it.
async fn first_sound(sound: &mut Sound) -> Result<Vec<i16>, ApiError> {
    while let Some(spoken) = sound.next().await {
        if let SpeechPiece::Sound(samples) = spoken? {
            return Ok(samples);
        }
    }
    Err(ApiError::failed("the voice engine made no sound of this text"))
}

/// A piece of the file, and how much sound there was so far.
struct BodyPart {
    bytes: Bytes,
    n_samples: u64,
}

/// The file, piece by piece. Long pieces of sound are encoded a slice at a time, so that others get their turn.
fn encoded(
    mut encoder: Encoder,
    sound: impl Stream<Item = Result<SpeechPiece, TtsError>> + Send,
) -> impl Stream<Item = Result<BodyPart, ApiError>> + Send {
    let failed = |error: antiphon_audio::encode::EncodeError| ApiError::internal("The encoder", &error);
    async_stream::stream! {
        let mut n_samples = 0;
        for await spoken in sound {
            let samples = match spoken {
                Ok(SpeechPiece::Sound(samples)) => samples,
                Ok(SpeechPiece::ChunkEnd) => continue,
                Err(error) => {
                    yield Err(ApiError::from(error));
                    return;
                }
            };
            for slice in samples.chunks(SLICE) {
                let mut bytes = Vec::new();
                if let Err(error) = encoder.push(slice, &mut bytes) {
                    yield Err(failed(error));
                    return;
                }
                n_samples += slice.len() as u64;
                if !bytes.is_empty() {
                    yield Ok(BodyPart { bytes: bytes.into(), n_samples });
                }
                tokio::task::consume_budget().await;
            }
        }
        let mut bytes = Vec::new();
        match encoder.finish(&mut bytes) {
            Ok(()) => yield Ok(BodyPart { bytes: bytes.into(), n_samples }),
            Err(error) => yield Err(failed(error)),
        }
    }
}

/// Pulls the file and hands it to the answer. Whoever does not read for [`STALL`] has gone, and gives the engine back.
async fn pump(
    file: impl Stream<Item = Result<BodyPart, ApiError>> + Send,
    sender: mpsc::Sender<Part>,
    metered: MeteredRequest,
) {
    let mut file = pin!(file);
    loop {
        let piece = tokio::select! {
            () = sender.closed() => return,
            piece = file.next() => piece,
        };
        let (part, outcome) = match piece {
            Some(Ok(piece)) => (Part::BodyPart(piece), None),
            Some(Err(error)) => (Part::Failed(error.clone()), Some(error.outcome())),
            None => (Part::End, Some("ok")),
        };
        if !matches!(timeout(STALL, sender.send(part)).await, Ok(Ok(()))) {
            return;
        }
        if let Some(outcome) = outcome {
            return metered.end(outcome);
        }
    }
}

/// What the answer gets.
enum Part {
    BodyPart(BodyPart),
    Failed(ApiError),
    End,
}

fn answer(wish: &SpeechSpec, mut parts: mpsc::Receiver<Part>) -> Response {
    if wish.as_events {
        let events = events(parts, estimated_tokens(wish.n_chars));
        return Sse::new(events).keep_alive(KeepAlive::new()).into_response();
    }
    let bytes = async_stream::stream! {
        loop {
            match parts.recv().await {
                Some(Part::BodyPart(piece)) => yield Ok(piece.bytes),
                Some(Part::End) => return,
                // The connection is aborted, because the audio is incomplete.
                Some(Part::Failed(error)) => yield Err(std::io::Error::other(error.message)),
                None => yield Err(std::io::Error::other(CUT_OFF)),
            }
        }
    };
    ([(header::CONTENT_TYPE, wish.format.media_type())], Body::from_stream(bytes)).into_response()
}

fn events(mut parts: mpsc::Receiver<Part>, input_tokens: u64) -> impl Stream<Item = Result<Event, Infallible>> + Send {
    let event = |data: serde_json::Value| Ok(Event::default().data(data.to_string()));
    async_stream::stream! {
        let mut n_samples = 0;
        loop {
            match parts.recv().await {
                Some(Part::BodyPart(piece)) => {
                    n_samples = piece.n_samples;
                    if !piece.bytes.is_empty() {
                        yield event(json!({"type": "speech.audio.delta", "audio": BASE64.encode(&piece.bytes)}));
                    }
                }
                Some(Part::End) => {
                    let ms = n_samples * 1_000 / u64::from(RATE.hz());
                    let output_tokens = spoken_tokens(ms);
                    let usage = json!({
                        "input_tokens": input_tokens, "output_tokens": output_tokens,
                        "total_tokens": input_tokens + output_tokens,
                    });
                    yield event(json!({"type": "speech.audio.done", "usage": usage}));
                    return;
                }
                Some(Part::Failed(error)) => {
                    yield event(json!({"error": error.object()}));
                    return;
                }
                None => {
                    let error = ApiError::failed(format!("The speech was cut off: {CUT_OFF}."));
                    yield event(json!({"error": error.object()}));
                    return;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::body::to_bytes;

    /// The events of an answer whose pump hands over these parts and ends.
    async fn events_of(handed_over: Vec<Part>) -> String {
        let (sender, parts) = mpsc::channel(PARTS);
        for part in handed_over {
            assert!(sender.try_send(part).is_ok(), "there is room");
        }
        drop(sender);
        let response = Sse::new(events(parts, 7)).into_response();
        let body = to_bytes(response.into_body(), usize::MAX).await.expect("a body");
        String::from_utf8(body.to_vec()).expect("text")
    }

    #[tokio::test]
    async fn events_end_with_the_last_one_or_with_an_error() {
        let sound = || Part::BodyPart(BodyPart { bytes: Bytes::from_static(b"sound"), n_samples: 2_400 });
        let whole = events_of(vec![sound(), Part::End]).await;
        assert!(whole.contains("speech.audio.done") && !whole.contains("error"), "{whole}");
        let failed = events_of(vec![sound(), Part::Failed(ApiError::failed("no memory"))]).await;
        assert!(failed.contains("no memory") && !failed.contains("cut off"), "{failed}");
        let cut_off = events_of(vec![sound()]).await;
        assert!(cut_off.contains("speech.audio.delta") && !cut_off.contains("speech.audio.done"), "{cut_off}");
        let error = cut_off.split("data: ").last().unwrap_or_default();
        assert!(error.contains("\"error\":{") && error.contains("the server stops"), "{error}");
    }
}
