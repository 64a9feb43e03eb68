//! A real server on loopback that splits, stalls, refuses and breaks, for the client's tests.

use super::*;
use antiphon_types::chat::Message;
use axum::body::{Body, Bytes};
use axum::extract::{ConnectInfo, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use futures_util::stream;
use serde_json::{Value, json};
use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::sync::Mutex;
use tokio::sync::mpsc;

/// Replies the server gives in order, and what it saw.
#[derive(Clone, Default)]
pub(super) struct Script {
    pub(super) replies: Arc<Mutex<VecDeque<Reply>>>,
    pub(super) bodies: Arc<Mutex<Vec<Value>>>,
    pub(super) ports: Arc<Mutex<Vec<u16>>>,
    pub(super) keys: Arc<Mutex<Vec<String>>>,
}

pub(super) enum Reply {
    /// An event stream, in pieces of this size in bytes.
    Sse(String, usize),
    /// The same, then silence; the sender is dropped with the connection.
    SseThenSilence(String, mpsc::Sender<()>),
    /// The same, then the connection breaks.
    SseThenBreak(String),
    Status(u16, &'static str),
    RetryAfter(u16, &'static str),
    Json(Value),
    /// No answer at all.
    Silence,
}

pub(super) async fn completions(
    State(script): State<Script>,
    ConnectInfo(peer): ConnectInfo<SocketAddr>,
    headers: axum::http::HeaderMap,
    Json(body): Json<Value>,
) -> Response {
    script.bodies.lock().unwrap().push(body);
    script.ports.lock().unwrap().push(peer.port());
    script.keys.lock().unwrap().push(format!("{:?}", headers.get("authorization")));
    let reply = script.replies.lock().unwrap().pop_front().expect("the script has a reply for each request");
    let sse = [("content-type", "text/event-stream")];
    match reply {
        Reply::Sse(text, size) => {
            let pieces: Vec<_> =
                text.as_bytes().chunks(size).map(Bytes::copy_from_slice).map(Ok::<_, io::Error>).collect();
            // Each byte is a piece of its own on the wire only if the task yields between them.
            let pieces = stream::iter(pieces).then(|piece| async {
                tokio::task::yield_now().await;
                piece
            });
            (sse, Body::from_stream(pieces)).into_response()
        }
        Reply::SseThenSilence(text, open) => {
            let first = stream::iter([Ok::<_, io::Error>(Bytes::from(text))]);
            let silence = stream::once(async move {
                let _open = open;
                std::future::pending().await
            });
            (sse, Body::from_stream(first.chain(silence))).into_response()
        }
        Reply::SseThenBreak(text) => {
            let pieces = [Ok(Bytes::from(text)), Err(io::Error::other("cut"))];
            // Two separate polls, so that the text leaves before the break.
            let pieces = stream::iter(pieces).then(|piece| async {
                tokio::time::sleep(Duration::from_millis(30)).await;
                piece
            });
            (sse, Body::from_stream(pieces)).into_response()
        }
        Reply::Status(status, body) => (StatusCode::from_u16(status).unwrap(), body).into_response(),
        Reply::RetryAfter(status, seconds) => {
            (StatusCode::from_u16(status).unwrap(), [("retry-after", seconds)], "later").into_response()
        }
        Reply::Json(value) => Json(value).into_response(),
        Reply::Silence => std::future::pending().await,
    }
}

/// A server with this script, and the settings to reach it.
#[allow(clippy::disallowed_methods)]
pub(super) async fn server(replies: Vec<Reply>) -> (Script, LlmConfig) {
    let script = Script::default();
    script.replies.lock().unwrap().extend(replies);
    let app = Router::new()
        .route("/v1/chat/completions", post(completions))
        .route("/v1/models", get(|| async { "{}" }))
        .with_state(script.clone());
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let base_url = format!("http://{}/v1", listener.local_addr().unwrap());
    let app = app.into_make_service_with_connect_info::<SocketAddr>();
    tokio::spawn(async move { axum::serve(listener, app).await });
    let config = LlmConfig {
        base_url,
        model: "m".into(),
        first_token_timeout_ms: 5_000,
        token_timeout_ms: 5_000,
        ..LlmConfig::default()
    };
    (script, config)
}

pub(super) fn client(config: &LlmConfig) -> OpenAi {
    OpenAi::with_key(config, Some("secret".into())).unwrap()
}

pub(super) fn says(text: &str) -> ChatRequest {
    ChatRequest { messages: vec![Message::User(text.into())], ..ChatRequest::default() }
}

/// All deltas, or those before the failure and its text.
pub(super) async fn run(client: &OpenAi, request: ChatRequest) -> (Vec<LlmDelta>, Option<String>) {
    let mut deltas = Vec::new();
    let mut stream = client.stream(request);
    while let Some(delta) = stream.next().await {
        match delta {
            Ok(delta) => deltas.push(delta),
            Err(error) => return (deltas, Some(error.to_string())),
        }
    }
    (deltas, None)
}

pub(super) async fn run_replies(replies: Vec<Reply>) -> (Vec<LlmDelta>, Option<String>) {
    let (_, config) = server(replies).await;
    run(&client(&config), says("hi")).await
}

pub(super) fn text(deltas: &[LlmDelta]) -> String {
    deltas.iter().map(|delta| if let LlmDelta::Text(text) = delta { text.as_str() } else { "" }).collect()
}

pub(super) fn events(chunks: &[Value]) -> String {
    chunks.iter().map(|chunk| format!("data: {chunk}\n\n")).collect()
}

pub(super) fn word(text: &str) -> Value {
    json!({"object": "chat.completion.chunk", "choices": [{"index": 0, "delta": {"content": text}, "finish_reason": null}]})
}

pub(super) fn finish(reason: &str) -> Value {
    json!({"choices": [{"index": 0, "delta": {}, "finish_reason": reason}]})
}

pub(super) fn calls(pieces: Value) -> Value {
    json!({"choices": [{"delta": {"tool_calls": pieces}}]})
}

pub(super) const DONE: &str = "data: [DONE]\n\n";

pub(super) fn hello() -> Reply {
    Reply::Sse(events(&[word("hello"), finish("stop")]) + DONE, 4096)
}
