//! The client against a real server on loopback, which splits, stalls, refuses and breaks.

use super::*;
use crate::llm::{Finish, Message, Tool, ToolCall, ToolChoice, Usage};
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
struct Script {
    replies: Arc<Mutex<VecDeque<Reply>>>,
    bodies: Arc<Mutex<Vec<Value>>>,
    ports: Arc<Mutex<Vec<u16>>>,
    keys: Arc<Mutex<Vec<String>>>,
}

enum Reply {
    /// An event stream, in pieces of so many bytes.
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

async fn completions(
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
async fn server(replies: Vec<Reply>) -> (Script, LlmConfig) {
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

fn client(config: &LlmConfig) -> OpenAi {
    OpenAi::with_key(config, Some("secret".into())).unwrap()
}

fn says(text: &str) -> ChatRequest {
    ChatRequest { messages: vec![Message::User(text.into())], ..ChatRequest::default() }
}

/// All deltas, or those before the failure and its text.
async fn run(client: &OpenAi, request: ChatRequest) -> (Vec<LlmDelta>, Option<String>) {
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

async fn run_replies(replies: Vec<Reply>) -> (Vec<LlmDelta>, Option<String>) {
    let (_, config) = server(replies).await;
    run(&client(&config), says("hi")).await
}

fn text(deltas: &[LlmDelta]) -> String {
    deltas.iter().map(|delta| if let LlmDelta::Text(text) = delta { text.as_str() } else { "" }).collect()
}

fn events(chunks: &[Value]) -> String {
    chunks.iter().map(|chunk| format!("data: {chunk}\n\n")).collect()
}

fn word(text: &str) -> Value {
    json!({"object": "chat.completion.chunk", "choices": [{"index": 0, "delta": {"content": text}, "finish_reason": null}]})
}

fn finish(reason: &str) -> Value {
    json!({"choices": [{"index": 0, "delta": {}, "finish_reason": reason}]})
}

fn calls(pieces: Value) -> Value {
    json!({"choices": [{"delta": {"tool_calls": pieces}}]})
}

const DONE: &str = "data: [DONE]\n\n";

fn hello() -> Reply {
    Reply::Sse(events(&[word("hello"), finish("stop")]) + DONE, 4096)
}

#[tokio::test]
async fn a_stream_split_anywhere_reads_the_same() {
    let usage = json!({"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 3}});
    let role = json!({"choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}}]});
    let body = format!(
        ": keep-alive\r\n\r\n{}:\n\nevent: message\ndata: {}\r\n\r\n{}{DONE}",
        events(&[role, word("Grüße, "), word("世界 ")]),
        word("🦀."),
        events(&[finish("stop"), usage]),
    );
    for size in [1, 2, 3, 7, 64, 100_000] {
        let (deltas, error) = run_replies(vec![Reply::Sse(body.clone(), size)]).await;
        assert_eq!((text(&deltas).as_str(), error), ("Grüße, 世界 🦀.", None), "{size}");
        assert_eq!(deltas.iter().filter(|delta| matches!(delta, LlmDelta::Text(_))).count(), 3);
        let usage = Some(Usage { input_tokens: 7, output_tokens: 3 });
        assert_eq!(deltas.last(), Some(&LlmDelta::Done { finish: Finish::Stop, usage }));
    }
}

#[tokio::test]
async fn endings_of_every_kind() {
    for (body, finish_) in [
        (events(&[word("a"), finish("length")]) + DONE, Finish::Length),
        (events(&[word("a"), finish("content_filter")]), Finish::ContentFilter),
        // No [DONE].
        (events(&[word("a"), finish("stop")]), Finish::Stop),
        // No finish_reason.
        (events(&[word("a")]) + DONE, Finish::Stop),
        // No empty line after the last event.
        (events(&[word("a")]) + "data: [DONE]", Finish::Stop),
        (events(&[word("a")]) + "data:[DONE]\n", Finish::Stop),
    ] {
        let (deltas, error) = run_replies(vec![Reply::Sse(body.clone(), 16)]).await;
        assert_eq!((text(&deltas).as_str(), error), ("a", None), "{body}");
        assert_eq!(deltas.last(), Some(&LlmDelta::Done { finish: finish_, usage: None }), "{body}");
    }
    // Neither of the two: the answer is not whole, and that is said.
    let (deltas, error) = run_replies(vec![Reply::Sse(events(&[word("a")]), 16)]).await;
    assert_eq!(text(&deltas), "a");
    assert!(error.unwrap().contains("ended before it was complete"));
}

#[tokio::test]
async fn a_server_that_holds_the_connection_after_the_finish_is_not_waited_for() {
    let (open, _closed) = mpsc::channel(1);
    let body = events(&[word("a"), finish("stop")]);
    let (deltas, error) = run_replies(vec![Reply::SseThenSilence(body, open)]).await;
    assert_eq!(error, None);
    assert_eq!(deltas.last(), Some(&LlmDelta::Done { finish: Finish::Stop, usage: None }));
}

#[tokio::test]
async fn servers_that_do_not_stream_are_read_whole() {
    let answer = json!({"choices": [{"index": 0, "finish_reason": "stop",
        "message": {"role": "assistant", "content": [{"type": "text", "text": "whole"}]}}],
        "usage": {"prompt_tokens": 1, "completion_tokens": 2}});
    let (deltas, error) = run_replies(vec![Reply::Json(answer)]).await;
    assert_eq!((text(&deltas).as_str(), error), ("whole", None));
    let usage = Some(Usage { input_tokens: 1, output_tokens: 2 });
    assert_eq!(deltas.last(), Some(&LlmDelta::Done { finish: Finish::Stop, usage }));
    let (_, error) = run_replies(vec![Reply::Json(json!({"hello": "there"}))]).await;
    assert!(error.unwrap().contains("no chat completion"));
}

/// The calls put together from their deltas: `(call_id, name, arguments)`, checked against the port's contract.
fn assemble(deltas: &[LlmDelta]) -> Vec<(String, String, String)> {
    let mut calls: Vec<(String, String, String)> = Vec::new();
    for delta in deltas {
        if let LlmDelta::ToolCall { index, call_id, name, arguments } = delta {
            if *index == calls.len() {
                assert!(!call_id.is_empty() && !name.is_empty(), "the first delta names the call");
                calls.push((call_id.clone(), name.clone(), arguments.clone()));
            } else {
                assert!(call_id.is_empty() && name.is_empty(), "later deltas do not");
                calls[*index].2.push_str(arguments);
            }
        }
    }
    calls
}

#[tokio::test]
async fn tool_calls_of_every_dialect() {
    let two = [("a", "f", r#"{"x":1}"#), ("b", "g", r#"{"y":2}"#)];
    let dialects = [
        // OpenAI: in pieces, with indexes.
        vec![
            calls(json!([{"index": 0, "id": "a", "type": "function", "function": {"name": "f", "arguments": ""}}])),
            calls(json!([{"index": 0, "function": {"arguments": "{\"x\""}}])),
            calls(json!([{"index": 0, "function": {"arguments": ":1}"}}])),
            calls(json!([{"index": 1, "id": "b", "function": {"name": "g", "arguments": "{\"y\":2}"}}])),
        ],
        // Whole calls without index, arguments as objects.
        vec![calls(json!([{"id": "a", "function": {"name": "f", "arguments": {"x": 1}}},
                          {"id": "b", "function": {"name": "g", "arguments": {"y": 2}}}]))],
        // Whole calls, all with the index 0.
        vec![
            calls(json!([{"index": 0, "id": "a", "function": {"name": "f", "arguments": "{\"x\":1}"}}])),
            calls(json!([{"index": 0, "id": "b", "function": {"name": "g", "arguments": "{\"y\":2}"}}])),
        ],
        // The id and name in each piece.
        vec![
            calls(json!([{"index": 0, "id": "a", "function": {"name": "f", "arguments": "{\"x\":"}}])),
            calls(json!([{"index": 0, "id": "a", "function": {"name": "f", "arguments": "1}"}}])),
            calls(json!([{"index": 1, "id": "b", "function": {"name": "g", "arguments": "{\"y\":2}"}}])),
        ],
        // Pieces without index and id; the name after the first arguments.
        vec![
            calls(json!([{"id": "a", "function": {"arguments": "{\"x\""}}])),
            calls(json!([{"function": {"name": "f", "arguments": ":1"}}])),
            calls(json!([{"function": {"arguments": "}"}}])),
            calls(json!([{"id": "b", "function": {"name": "g", "arguments": "{\"y\":2}"}}])),
        ],
    ];
    for (n, dialect) in dialects.into_iter().enumerate() {
        // `stop` after a call is what several servers say.
        let reason = if n % 2 == 0 { "tool_calls" } else { "stop" };
        let body = events(&dialect) + &events(&[finish(reason)]) + DONE;
        let (deltas, error) = run_replies(vec![Reply::Sse(body, 5)]).await;
        assert_eq!(error, None, "{n}");
        let found = assemble(&deltas);
        let found: Vec<_> = found.iter().map(|(id, name, args)| (id.as_str(), name.as_str(), args.as_str())).collect();
        assert_eq!(found, two, "{n}");
        assert_eq!(deltas.last(), Some(&LlmDelta::Done { finish: Finish::ToolCalls, usage: None }), "{n}");
    }
    // No id at all: one is made, another for each call.
    let nameless =
        calls(json!([{"function": {"name": "f", "arguments": "{}"}}, {"function": {"name": "f", "arguments": "{}"}}]));
    let (deltas, _) = run_replies(vec![Reply::Sse(events(&[nameless, finish("stop")]), 999)]).await;
    let found = assemble(&deltas);
    assert!(found.len() == 2 && found[0].0 != found[1].0, "{found:?}");
}

#[tokio::test]
async fn the_request_says_all_the_port_knows() {
    let (script, config) = server(vec![hello()]).await;
    let call = ToolCall { call_id: "c".into(), name: "f".into(), arguments: "{}".into() };
    let request = ChatRequest {
        messages: vec![
            Message::System("be brief".into()),
            Message::User("hi".into()),
            Message::Assistant { text: String::new(), tool_calls: vec![call] },
            Message::Tool { call_id: "c".into(), output: "42".into() },
            Message::Assistant { text: "yes".into(), tool_calls: vec![] },
        ],
        tools: vec![Tool { name: "f".into(), description: "d".into(), parameters: json!({"type": "object"}) }],
        tool_choice: ToolChoice::Function("f".into()),
        max_tokens: Some(9),
        user: Some("someone".into()),
    };
    run(&client(&config), request).await;
    let function = json!({"name": "f", "description": "d", "parameters": {"type": "object"}});
    let expected = json!({
        "model": "m", "stream": true, "stream_options": {"include_usage": true}, "temperature": 0.7, "max_tokens": 9,
        "user": "someone",
        "messages": [
            {"role": "system", "content": "be brief"},
            {"role": "user", "content": "hi"},
            {"role": "assistant", "content": null, "tool_calls":
                [{"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}]},
            {"role": "tool", "tool_call_id": "c", "content": "42"},
            {"role": "assistant", "content": "yes"},
        ],
        "tools": [{"type": "function", "function": function}],
        "tool_choice": {"type": "function", "function": {"name": "f"}},
    });
    assert_eq!(script.bodies.lock().unwrap()[0], expected);
    assert!(script.keys.lock().unwrap()[0].contains("Bearer secret"));
}

#[tokio::test]
async fn failures_that_may_pass_are_tried_once_more() {
    let break_ = |text: &str| Reply::SseThenBreak(text.into());
    let in_stream = events(&[json!({"error": {"message": "overloaded", "code": 503}})]);
    for first in [
        Reply::Status(500, "oops"),
        Reply::Status(429, "slow down"),
        Reply::RetryAfter(503, "0"),
        break_(": nothing yet\n\n"),
        Reply::Sse(in_stream, 9),
        Reply::Sse(": nothing\n\n".into(), 99),
    ] {
        let (script, config) = server(vec![first, hello()]).await;
        let (deltas, error) = run(&client(&config), says("hi")).await;
        assert_eq!((text(&deltas).as_str(), error), ("hello", None));
        assert_eq!(script.bodies.lock().unwrap().len(), 2);
    }
    // Once, not twice.
    let (script, config) = server(vec![Reply::Status(500, "one"), Reply::Status(502, "two"), hello()]).await;
    let (_, error) = run(&client(&config), says("hi")).await;
    assert!(error.unwrap().contains("502: two"));
    assert_eq!(script.bodies.lock().unwrap().len(), 2);
}

#[tokio::test]
async fn failures_that_last_are_not_tried_again() {
    for (reply, part) in [
        (Reply::Status(401, r#"{"error":{"message":"bad key"}}"#), "401: bad key (check the key in OPENAI_API_KEY)"),
        (Reply::Status(404, r#"{"error":"model not found"}"#), "has the model m"),
        (Reply::Status(400, r#"{"detail":"no such thing"}"#), "400: no such thing"),
        (Reply::Status(308, ""), "base_url"),
        (Reply::RetryAfter(429, "3600"), "429: later"),
        (Reply::Sse("data: {broken\n\n".into(), 99), "no JSON"),
        (Reply::Sse(events(&[json!({"error": {"message": "no such model", "code": 404}})]), 99), "no such model"),
        (Reply::Sse("event: error\ndata: {\"message\": \"bad\", \"code\": 400}\n\n".into(), 99), "400: bad"),
    ] {
        let (script, config) = server(vec![reply]).await;
        let (deltas, error) = run(&client(&config), says("hi")).await;
        let error = error.unwrap();
        assert!(deltas.is_empty() && error.contains(part), "{error}");
        assert_eq!(script.bodies.lock().unwrap().len(), 1);
    }
}

#[tokio::test]
async fn nothing_is_tried_again_after_the_first_delta() {
    let broken = events(&[word("one ")]);
    let error_object = broken.clone() + &events(&[json!({"error": {"message": "out of memory", "code": 500}})]);
    for (reply, part) in [(Reply::SseThenBreak(broken), "broke"), (Reply::Sse(error_object, 3), "out of memory")] {
        let (script, config) = server(vec![reply]).await;
        let (deltas, error) = run(&client(&config), says("hi")).await;
        assert_eq!(text(&deltas), "one ");
        assert!(error.as_ref().unwrap().contains(part), "{error:?}");
        assert_eq!(script.bodies.lock().unwrap().len(), 1);
    }
}

#[tokio::test]
async fn silence_ends_at_the_deadlines() {
    let (_, config) = server(vec![Reply::Silence]).await;
    let config = LlmConfig { first_token_timeout_ms: 60, ..config };
    let (_, error) = run(&client(&config), says("hi")).await;
    assert!(error.unwrap().contains("no first token within 60ms"));

    let (open, _closed) = mpsc::channel(1);
    let (_, config) = server(vec![Reply::SseThenSilence(events(&[word("one ")]), open)]).await;
    let config = LlmConfig { token_timeout_ms: 60, ..config };
    let (deltas, error) = run(&client(&config), says("hi")).await;
    assert_eq!(text(&deltas), "one ");
    assert!(error.unwrap().contains("no further token within 60ms"));

    // A wait that leaves no time for the second try ends with what the server said.
    let (_, config) = server(vec![Reply::Status(503, "starting"), Reply::Silence]).await;
    let config = LlmConfig { first_token_timeout_ms: 400, ..config };
    let (_, error) = run(&client(&config), says("hi")).await;
    assert!(error.unwrap().contains("503: starting"));
}

#[tokio::test]
async fn a_server_that_is_not_there_is_named() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let config = LlmConfig { base_url: format!("http://{address}/v1"), ..LlmConfig::default() };
    let (_, error) = run(&client(&config), says("hi")).await;
    let error = error.unwrap();
    assert!(error.contains(&address.to_string()) && error.contains("is the server running"), "{error}");
    assert!(client(&config).warm_up().await.is_err());
}

#[tokio::test]
async fn dropping_the_stream_closes_the_connection() {
    let (open, mut closed) = mpsc::channel(1);
    let (_, config) = server(vec![Reply::SseThenSilence(events(&[word("one ")]), open)]).await;
    let client = client(&config);
    let mut stream = client.stream(says("hi"));
    assert_eq!(stream.next().await.unwrap().unwrap(), LlmDelta::Text("one ".into()));
    drop(stream);
    // The server drops its side when the connection goes; the channel then ends.
    let end = tokio::time::timeout(Duration::from_secs(5), closed.recv()).await;
    assert_eq!(end.expect("the server notices"), None);
}

#[tokio::test]
async fn answers_in_a_row_share_one_connection() {
    let (script, config) = server(vec![hello(), hello(), hello()]).await;
    let client = client(&config);
    client.warm_up().await.unwrap();
    for _ in 0..3 {
        assert_eq!(text(&run(&client, says("hi")).await.0), "hello");
    }
    let ports = script.ports.lock().unwrap().clone();
    assert!(ports.len() == 3 && ports.iter().all(|port| *port == ports[0]), "{ports:?}");
}

#[tokio::test]
async fn fields_a_server_does_not_know_are_left_out_and_that_is_remembered() {
    let replies = vec![
        Reply::Status(400, r#"{"error":{"message":"Unrecognized request argument supplied: stream_options"}}"#),
        Reply::Status(400, r#"{"error":{"message":"'max_tokens' is not supported, use 'max_completion_tokens'"}}"#),
        Reply::Status(422, r#"{"error":{"message":"temperature: only 1 is supported"}}"#),
        hello(),
        hello(),
    ];
    let (script, config) = server(replies).await;
    let client = client(&config);
    assert_eq!(text(&run(&client, says("hi")).await.0), "hello");
    assert_eq!(text(&run(&client, says("again")).await.0), "hello");
    let bodies = script.bodies.lock().unwrap().clone();
    let last: Vec<_> = bodies[4].as_object().unwrap().keys().map(String::as_str).collect();
    assert_eq!(last, ["max_completion_tokens", "messages", "model", "stream"]);
}
