//! Mock engines behind HTTP: a server with `/v1/audio/transcriptions`, `/v1/chat/completions` and `/v1/audio/speech` that
//! takes as long for each as it is told.
//!
//! A hub under measurement uses it as its remote engines, over real connections, so that a figure holds everything but
//! the engines' own work. `antiphon-bench` starts it as a process of its own (`antiphon-bench mock`). What it hears, it
//! names by the mark in the recording ([`marks`]); the name goes through transcript, answer and voice, so that a listener
//! can tell whether each stage answered the right session. An answer is 14 words whatever was asked, each chunk of it a
//! tone of a set length, sent five times as fast as it sounds.

mod marks;

pub use marks::{MARKS, marked, name, tone_hz};

use antiphon_audio::wav;
use antiphon_types::SampleRate;
use axum::body::{Body, Bytes};
use axum::extract::{DefaultBodyLimit, Multipart, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::serve::ListenerExt;
use axum::{Json, Router};
use serde_json::{Value, json};
use std::convert::Infallible;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

/// The rate of its voice: what `/v1/audio/speech` calls `pcm`.
const RATE: SampleRate = SampleRate::HZ_24000;
/// Sound comes in pieces of 100 ms, one every 20 ms.
const PIECE: Duration = Duration::from_millis(100);
const BETWEEN_PIECES: Duration = Duration::from_millis(20);
/// The longest utterance taken, and its size as a WAV file of 16 kHz.
const LONGEST: Duration = Duration::from_secs(600);
const MAX_BODY_BYTES: usize = 20 << 20;
/// The answer behind its first word.
const REST: &str = " I can help with that. Please tell me a little more about it.";

/// How long the engines take.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Latencies {
    /// From an utterance to its transcript.
    pub stt: Duration,
    /// From a conversation to the answer's first word.
    pub first_token: Duration,
    /// From one word to the next.
    pub token: Duration,
    /// From a text to the first piece of its sound.
    pub first_sound: Duration,
    /// How long each text sounds; whole tenths of a second.
    pub sound: Duration,
}

/// Serves until `stop` is cancelled; answers under way are broken off.
pub async fn serve(listener: TcpListener, latencies: Latencies, stop: CancellationToken) -> std::io::Result<()> {
    let router = Router::new()
        .route("/v1/audio/transcriptions", post(transcribe))
        .route("/v1/chat/completions", post(answer))
        .route("/v1/audio/speech", post(speak))
        .route("/v1/models", get(async || Json(json!({"object": "list", "data": []}))))
        .layer(DefaultBodyLimit::max(MAX_BODY_BYTES))
        .with_state(latencies);
    let listener = listener.tap_io(|stream: &mut TcpStream| {
        // Small pieces must not wait for an acknowledgement; where that cannot be had, the figures show it.
        let _ = stream.set_nodelay(true);
    });
    tokio::select! {
        served = axum::serve(listener, router).into_future() => served,
        () = stop.cancelled() => Ok(()),
    }
}

async fn transcribe(State(latencies): State<Latencies>, mut form: Multipart) -> Result<Response, StatusCode> {
    let bad = |_| StatusCode::BAD_REQUEST;
    let mut name = None;
    while let Some(field) = form.next_field().await.map_err(bad)? {
        if field.name() == Some("file") {
            let file = field.bytes().await.map_err(bad)?;
            let pcm = wav::read(&file, antiphon_engine_api::stt::RATE, LONGEST).map_err(|_| StatusCode::BAD_REQUEST)?;
            name = marks::find(&pcm.samples).map(marks::name);
        }
    }
    wait(latencies.stt).await;
    let whom = name.map_or(String::new(), |name| format!(" {}", name.to_lowercase()));
    Ok(Json(json!({"text": format!("hello{whom} can you help me please")})).into_response())
}

async fn answer(State(latencies): State<Latencies>, Json(request): Json<Value>) -> Response {
    let asked = request["messages"].as_array().and_then(|messages| messages.iter().rfind(|one| one["role"] == "user"));
    let asked = asked.map(|one| one["content"].to_string()).unwrap_or_default();
    let first = marks::named(&asked).map_or("Sure".to_owned(), marks::name);
    let words = format!("{first},{REST}");
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
    ([("content-type", "text/event-stream")], Body::from_stream(stream)).into_response()
}

fn event(delta: &Value, finish: Option<&str>) -> Result<Bytes, Infallible> {
    let choice = json!({"index": 0, "delta": delta, "finish_reason": finish});
    let chunk =
        json!({"id": "x", "object": "chat.completion.chunk", "created": 0, "model": "mock", "choices": [choice]});
    Ok(format!("data: {chunk}\n\n").into())
}

async fn speak(State(latencies): State<Latencies>, Json(request): Json<Value>) -> Response {
    let text = request["input"].as_str().unwrap_or_default();
    let hz = marks::named(text).map_or(marks::PLAIN_HZ, marks::tone_hz);
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

/// Even a wait of nothing would give the others their turn first.
async fn wait(time: Duration) {
    if !time.is_zero() {
        sleep(time).await;
    }
}
