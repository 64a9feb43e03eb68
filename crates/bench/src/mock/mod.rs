//! Mock engines over HTTP: a server with `/v1/audio/transcriptions`, `/v1/chat/completions` and `/v1/audio/speech` and
//! configurable latencies.
//!
//! A hub under measurement uses it as its remote engines over real connections, so that figures include everything
//! except the engines' own work. `antiphon-bench` starts it as a separate process (`antiphon-bench mock`). Transcripts
//! contain the name of the mark in the recording ([`marks`]); the name passes through transcript, response and voice,
//! so that a client can check whether each stage served the right session. A response is always 14 words, and each
//! chunk of it is a tone of a fixed length, sent five times faster than real time. With another [`Llm`] the responses
//! are that model's.

mod marks;

pub use marks::{MARKS, marked, name, tone_hz};

use antiphon_audio::wav;
use antiphon_engine_api::llm::{Llm, LlmDelta};
use antiphon_types::SampleRate;
use antiphon_types::chat::{ChatRequest, Message};
use axum::body::{Body, Bytes};
use axum::extract::{DefaultBodyLimit, Multipart, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::serve::ListenerExt;
use axum::{Json, Router};
use futures_util::StreamExt;
use serde_json::{Value, json};
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

/// Sampling rate of the voice: the `pcm` format of `/v1/audio/speech`.
const RATE: SampleRate = SampleRate::HZ_24000;
/// Audio is sent in blocks of 100 ms, one every 20 ms.
const PIECE: Duration = Duration::from_millis(100);
const BETWEEN_PIECES: Duration = Duration::from_millis(20);
/// The longest accepted utterance, and its size as a 16 kHz WAV file.
const LONGEST: Duration = Duration::from_secs(600);
const MAX_BODY_BYTES: usize = 20 << 20;
/// The response after its first word.
const REST: &str = " I can help with that. Please tell me a little more about it.";
/// Words of a response, its first one included.
pub(super) const N_WORDS: usize = 14;

/// Latencies of the engines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Latencies {
    /// From an utterance to its transcript.
    pub stt: Duration,
    /// From a request to the first word of the response.
    pub first_token: Duration,
    /// Between two words.
    pub token: Duration,
    /// From a text to its first audio.
    pub first_sound: Duration,
    /// Playing time of each text; a multiple of 100 ms.
    pub sound: Duration,
}

/// What the handlers share.
#[derive(Clone)]
struct Engines {
    latencies: Latencies,
    /// What answers; `None`: the mock's own 14 words.
    llm: Option<Arc<dyn Llm>>,
}

/// Serves until `stop` is cancelled; responses in progress are aborted. `llm` answers instead of the mock's own words.
pub async fn serve(
    listener: TcpListener,
    latencies: Latencies,
    llm: Option<Arc<dyn Llm>>,
    stop: CancellationToken,
) -> std::io::Result<()> {
    let router = Router::new()
        .route("/v1/audio/transcriptions", post(transcribe))
        .route("/v1/chat/completions", post(answer))
        .route("/v1/audio/speech", post(speak))
        .route("/v1/models", get(async || Json(json!({"object": "list", "data": []}))))
        .layer(DefaultBodyLimit::max(MAX_BODY_BYTES))
        .with_state(Engines { latencies, llm });
    let listener = listener.tap_io(|stream: &mut TcpStream| {
        // Small writes must not wait for an acknowledgement; a failure here only affects the figures.
        let _ = stream.set_nodelay(true);
    });
    tokio::select! {
        served = axum::serve(listener, router).into_future() => served,
        () = stop.cancelled() => Ok(()),
    }
}

async fn transcribe(State(engines): State<Engines>, mut form: Multipart) -> Result<Response, StatusCode> {
    let bad = |_| StatusCode::BAD_REQUEST;
    let mut name = None;
    while let Some(field) = form.next_field().await.map_err(bad)? {
        if field.name() == Some("file") {
            let file = field.bytes().await.map_err(bad)?;
            let pcm = wav::read(&file, antiphon_engine_api::stt::RATE, LONGEST).map_err(|_| StatusCode::BAD_REQUEST)?;
            name = marks::find(&pcm.samples).map(marks::name);
        }
    }
    wait(engines.latencies.stt).await;
    Ok(Json(json!({"text": heard(name)})).into_response())
}

fn heard(name: Option<String>) -> String {
    let whom = name.map_or(String::new(), |name| format!(" {}", name.to_lowercase()));
    format!("hello{whom} can you help me please")
}

/// The transcript of an utterance at [`antiphon_engine_api::stt::RATE`].
pub(super) fn transcript(utterance: &[i16]) -> String {
    heard(marks::find(utterance).map(marks::name))
}

/// The response to a question: [`N_WORDS`] words, of which the first is the name of the mark that was mentioned.
pub(super) fn reply(asked: &str) -> String {
    reply_of(asked, N_WORDS)
}

/// A response of this number of words: those of [`reply`], which begin again behind its last one.
pub(super) fn reply_of(asked: &str, n_words: usize) -> String {
    let first = marks::named(asked).map_or("Sure".to_owned(), marks::name);
    let rest = REST.split_whitespace().cycle().take(n_words.saturating_sub(1));
    rest.fold(format!("{first},"), |text, word| text + " " + word)
}

/// The place of a word in a response, from 0; 0 for a name and for every word of no response.
pub(super) fn place(word: &str) -> usize {
    let rest = REST.split(|c: char| !c.is_alphabetic()).filter(|rest| !rest.is_empty());
    let mut places = (1..).zip(rest);
    places.find(|(_, rest)| rest.eq_ignore_ascii_case(word)).map_or(0, |(place, _)| place)
}

async fn answer(State(engines): State<Engines>, Json(request): Json<Value>) -> Result<Response, StatusCode> {
    let latencies = engines.latencies;
    let words = match engines.llm {
        Some(llm) => words_of(&*llm, &request).await?,
        None => {
            let mut messages = request["messages"].as_array().into_iter().flatten();
            let asked = messages.rfind(|one| one["role"] == "user");
            reply(&asked.map(|one| one["content"].to_string()).unwrap_or_default())
        }
    };
    let stream = async_stream::stream! {
        wait(latencies.first_token).await;
        yield event(&json!({"role": "assistant", "content": ""}), None);
        for word in words.split_inclusive(' ') {
            yield event(&json!({"content": word}), None);
            wait(latencies.token).await;
        }
        yield event(&json!({}), Some("stop"));
        yield Ok(Bytes::from_static(b"data: [DONE]\n\n"));
    };
    Ok(([("content-type", "text/event-stream")], Body::from_stream(stream)).into_response())
}

/// A model's answer to a request.
async fn words_of(llm: &dyn Llm, request: &Value) -> Result<String, StatusCode> {
    let messages = request["messages"].as_array().into_iter().flatten().filter_map(message);
    let request = ChatRequest { messages: messages.collect(), ..ChatRequest::default() };
    let mut words = String::new();
    let mut deltas = llm.stream(request);
    while let Some(delta) = deltas.next().await {
        if let LlmDelta::Text(text) = delta.map_err(|_| StatusCode::BAD_GATEWAY)? {
            words += &text;
        }
    }
    Ok(words)
}

/// A message of the user's or the assistant's; `None`: another, or one without text.
fn message(message: &Value) -> Option<Message> {
    let text = message["content"].as_str()?.to_owned();
    match message["role"].as_str()? {
        "user" => Some(Message::User(text)),
        "assistant" => Some(Message::Assistant { text, tool_calls: Vec::new() }),
        _ => None,
    }
}

fn event(delta: &Value, finish: Option<&str>) -> Result<Bytes, Infallible> {
    let choice = json!({"index": 0, "delta": delta, "finish_reason": finish});
    let chunk =
        json!({"id": "x", "object": "chat.completion.chunk", "created": 0, "model": "mock", "choices": [choice]});
    Ok(format!("data: {chunk}\n\n").into())
}

async fn speak(State(engines): State<Engines>, Json(request): Json<Value>) -> Response {
    let latencies = engines.latencies;
    let text = request["input"].as_str().unwrap_or_default();
    let hz = voice_hz(text);
    let piece = Bytes::from(marks::tone(hz, RATE, PIECE).into_iter().flat_map(i16::to_le_bytes).collect::<Vec<u8>>());
    let n_pieces = latencies.sound.as_millis().div_ceil(PIECE.as_millis());
    let stream = async_stream::stream! {
        wait(latencies.first_sound).await;
        for _ in 0..n_pieces {
            yield Ok::<_, Infallible>(piece.clone());
            sleep(BETWEEN_PIECES).await;
        }
    };
    ([("content-type", "audio/pcm")], Body::from_stream(stream)).into_response()
}

/// The frequency of the voice for a text: that of the mark whose name it mentions.
pub(super) fn voice_hz(text: &str) -> f64 {
    marks::named(text).map_or(marks::PLAIN_HZ, marks::tone_hz)
}

/// Sleeps; returns immediately for zero, because even a sleep of zero would yield to other tasks.
async fn wait(time: Duration) {
    if !time.is_zero() {
        sleep(time).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conversation::story::Storyteller;

    #[tokio::test]
    async fn another_model_answers_by_what_the_conversation_keeps() {
        let kept = "The old ferry leaves the harbour every morning before seven. Its captain carries";
        let request = json!({"messages": [
            {"role": "system", "content": "You tell a story."},
            {"role": "user", "content": "Go on."},
            {"role": "assistant", "content": kept},
            {"role": "assistant", "content": null, "tool_calls": []},
            {"role": "user", "content": "And then?"},
        ]});
        let words = words_of(&Storyteller::new(), &request).await.expect("it answers");
        assert!(words.starts_with("letters, fresh bread"), "{words}");
    }
}
