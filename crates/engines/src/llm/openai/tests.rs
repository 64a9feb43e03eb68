//! The client against a real server on loopback, which splits, stalls, refuses and breaks.

use super::*;
use antiphon_test_server::{Answer, TestServer, unused_address};
use antiphon_types::chat::{Finish, Image, ImageDetail, Message, Tool, ToolCall, ToolChoice, Usage, UserPart};
use serde_json::{Value, json};
use tokio::sync::Barrier;

/// A server that gives these answers, and the settings to reach it.
fn server(answers: Vec<Answer>) -> (TestServer, LlmConfig) {
    let server = TestServer::script("/v1/chat/completions", answers);
    let config = LlmConfig {
        base_url: server.url("/v1"),
        model: "m".into(),
        first_token_timeout_ms: 5_000,
        token_timeout_ms: 5_000,
        ..LlmConfig::default()
    };
    (server, config)
}

/// An event stream in pieces of this size in bytes.
fn sse(body: String, piece: usize) -> Answer {
    Answer::events(body).in_pieces(piece)
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

async fn run_answer(answer: Answer) -> (Vec<LlmDelta>, Option<String>) {
    let (_server, config) = server(vec![answer]);
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

fn hello() -> Answer {
    Answer::events(events(&[word("hello"), finish("stop")]) + DONE)
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
        let (deltas, error) = run_answer(sse(body.clone(), size)).await;
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
        let (deltas, error) = run_answer(sse(body.clone(), 16)).await;
        assert_eq!((text(&deltas).as_str(), error), ("a", None), "{body}");
        assert_eq!(deltas.last(), Some(&LlmDelta::Done { finish: finish_, usage: None }), "{body}");
    }
    // Neither of the two: the answer is not whole, and that is said.
    let (deltas, error) = run_answer(sse(events(&[word("a")]), 16)).await;
    assert_eq!(text(&deltas), "a");
    assert!(error.unwrap().contains("ended before it was complete"));
}

#[tokio::test]
async fn a_server_that_holds_the_connection_after_the_finish_is_not_waited_for() {
    let body = events(&[word("a"), finish("stop")]);
    let (deltas, error) = run_answer(Answer::events(body).hang()).await;
    assert_eq!(error, None);
    assert_eq!(deltas.last(), Some(&LlmDelta::Done { finish: Finish::Stop, usage: None }));
}

#[tokio::test]
async fn null_is_nothing_and_what_is_behind_the_finish_fails_no_answer() {
    let usage = json!({"choices": null, "usage": {"prompt_tokens": 7, "completion_tokens": 3}});
    let counted = Some(Usage { input_tokens: 7, output_tokens: 3 });
    let failure = json!({"error": {"message": "overloaded", "code": 503}});
    let ended = events(&[word("a"), finish("stop")]);
    for (body, usage) in [
        (ended.clone() + &events(&[usage]) + DONE, counted),
        ("data: null\n\n".to_owned() + &ended + DONE, None),
        (ended.clone() + "data: null\n\n" + DONE, None),
        (ended.clone() + "data: {broken\n\n", None),
        (ended.clone() + &events(&[failure]), None),
    ] {
        let (deltas, error) = run_answer(sse(body.clone(), 16)).await;
        assert_eq!((text(&deltas).as_str(), error), ("a", None), "{body}");
        assert_eq!(deltas.last(), Some(&LlmDelta::Done { finish: Finish::Stop, usage }), "{body}");
    }
}

#[tokio::test]
async fn servers_that_do_not_stream_are_read_whole() {
    let answer = json!({"choices": [{"index": 0, "finish_reason": "stop",
        "message": {"role": "assistant", "content": [{"type": "text", "text": "whole"}]}}],
        "usage": {"prompt_tokens": 1, "completion_tokens": 2}});
    let (deltas, error) = run_answer(Answer::json(&answer)).await;
    assert_eq!((text(&deltas).as_str(), error), ("whole", None));
    let usage = Some(Usage { input_tokens: 1, output_tokens: 2 });
    assert_eq!(deltas.last(), Some(&LlmDelta::Done { finish: Finish::Stop, usage }));
    let (_, error) = run_answer(Answer::json(&json!({"hello": "there"}))).await;
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
        let (deltas, error) = run_answer(sse(body, 5)).await;
        assert_eq!(error, None, "{n}");
        let found = assemble(&deltas);
        let found: Vec<_> = found.iter().map(|(id, name, args)| (id.as_str(), name.as_str(), args.as_str())).collect();
        assert_eq!(found, two, "{n}");
        assert_eq!(deltas.last(), Some(&LlmDelta::Done { finish: Finish::ToolCalls, usage: None }), "{n}");
    }
    // No id at all: one is made, another for each call.
    let nameless =
        calls(json!([{"function": {"name": "f", "arguments": "{}"}}, {"function": {"name": "f", "arguments": "{}"}}]));
    let (deltas, _) = run_answer(sse(events(&[nameless, finish("stop")]), 999)).await;
    let found = assemble(&deltas);
    assert!(found.len() == 2 && found[0].0 != found[1].0, "{found:?}");
}

#[tokio::test]
async fn arguments_split_anywhere_and_calls_that_take_turns_come_out_whole() {
    let first = r#"{"city":"Sao Paulo \"SP\"","note":"größer 🦀"}"#;
    let second = r#"{"minutes":5}"#;
    let head = |index: usize, id: &str, name: &str| {
        calls(json!([{"index": index, "id": id, "type": "function", "function": {"name": name, "arguments": ""}}]))
    };
    let mut pieces = vec![head(0, "a", "f"), head(1, "b", "g")];
    let mut others = second.chars();
    for letter in first.chars() {
        pieces.push(calls(json!([{"index": 0, "function": {"arguments": letter.to_string()}}])));
        if let Some(other) = others.next() {
            pieces.push(calls(json!([{"index": 1, "function": {"arguments": other.to_string()}}])));
        }
    }
    pieces.push(finish("tool_calls"));
    for size in [1, 7, 100_000] {
        let (deltas, error) = run_answer(sse(events(&pieces) + DONE, size)).await;
        assert_eq!(error, None, "{size}");
        let whole = [("a".into(), "f".into(), first.into()), ("b".into(), "g".into(), second.into())];
        assert_eq!(assemble(&deltas), whole, "{size}");
        assert_eq!(deltas.last(), Some(&LlmDelta::Done { finish: Finish::ToolCalls, usage: None }));
    }
}

#[tokio::test]
async fn the_request_says_all_the_port_knows() {
    let (server, config) = server(vec![hello()]);
    let call = ToolCall { call_id: "c".into(), name: "f".into(), arguments: "{}".into() };
    let request = ChatRequest {
        messages: vec![
            Message::System("be brief".into()),
            Message::User("hi".into()),
            Message::Assistant { text: String::new(), tool_calls: vec![call] },
            Message::Tool { call_id: "c".into(), output: "42".into() },
            Message::Assistant { text: "yes".into(), tool_calls: vec![] },
        ],
        tools: vec![Tool { name: "f".into(), description: "d".into(), parameters: json!({"type": "object"}).into() }],
        tool_choice: ToolChoice::Function("f".into()),
        max_tokens: Some(9),
        user: Some("someone".into()),
        ..ChatRequest::default()
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
    assert_eq!(server.requests()[0].json(), expected);
    assert_eq!(server.requests()[0].header("authorization"), Some("Bearer secret"));
}

fn shows_image() -> ChatRequest {
    let image = UserPart::Image(Image::new("data:image/png;base64,iVBORw0KGgo=", ImageDetail::Low));
    let parts = vec![UserPart::Text("What is this?".into()), image];
    ChatRequest { messages: vec![Message::UserParts(parts)], ..ChatRequest::default() }
}

const WITHOUT_IMAGE: &str = "What is this? [The user shows an image, which you cannot see.]";

#[tokio::test]
async fn images_are_parts_of_the_request() {
    let (server, config) = server(vec![hello(), hello()]);
    let model = client(&config);
    assert!(model.takes_images());
    run(&model, shows_image()).await;
    let content = json!([
        {"type": "text", "text": "What is this?"},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo=", "detail": "low"}},
    ]);
    assert_eq!(server.requests()[0].json()["messages"], json!([{"role": "user", "content": content}]));
    let model = client(&LlmConfig { images: false, ..config });
    assert!(!model.takes_images());
    run(&model, shows_image()).await;
    assert_eq!(server.requests()[1].json()["messages"][0]["content"], WITHOUT_IMAGE);
}

#[tokio::test]
async fn a_model_that_takes_no_images_answers_without_them() {
    for (status, words) in [
        (400, r#"{"error":{"message":"llama is not a multimodal model"}}"#),
        (500, r#"{"error":{"message":"image input is not supported - hint: you may need to provide the mmproj"}}"#),
        (422, "messages[0]: unknown variant `image_url`, expected `text`"),
    ] {
        let (server, config) = server(vec![Answer::refusal(status, words), hello(), hello()]);
        let model = client(&config);
        for _ in 0..2 {
            let (_, error) = run(&model, shows_image()).await;
            assert_eq!((error, model.takes_images()), (None, false), "{words}");
        }
        let repeated = server.requests().into_iter().skip(1);
        let contents: Vec<_> = repeated.map(|request| request.json()["messages"][0]["content"].clone()).collect();
        assert_eq!(contents, [WITHOUT_IMAGE, WITHOUT_IMAGE], "{words}");
    }
    // One image that is refused says nothing of the others.
    let (_server, config) = server(vec![Answer::refusal(400, "image 1 cannot be decoded")]);
    let model = client(&config);
    let (_, error) = run(&model, shows_image()).await;
    assert!(error.is_some_and(|error| error.contains("cannot be decoded")) && model.takes_images());
}

#[tokio::test]
async fn failures_that_may_pass_are_tried_once_more() {
    let break_ = |text: &str| Answer::events(text.to_owned()).close();
    let in_stream = events(&[json!({"error": {"message": "overloaded", "code": 503}})]);
    for first in [
        Answer::refusal(500, "oops"),
        Answer::refusal(429, "slow down"),
        Answer::refusal(503, "later").header("retry-after", "0"),
        break_(": nothing yet\n\n"),
        sse(in_stream, 9),
        sse(": nothing\n\n".into(), 99),
    ] {
        let (server, config) = server(vec![first, hello()]);
        let (deltas, error) = run(&client(&config), says("hi")).await;
        assert_eq!((text(&deltas).as_str(), error), ("hello", None));
        assert_eq!(server.n_requests(), 2);
    }
    // Once, not twice.
    let (server, config) = server(vec![Answer::refusal(500, "one"), Answer::refusal(502, "two"), hello()]);
    let (_, error) = run(&client(&config), says("hi")).await;
    assert!(error.unwrap().contains("502: two"));
    assert_eq!(server.n_requests(), 2);
}

#[tokio::test]
async fn failures_that_last_are_not_tried_again() {
    for (reply, part) in [
        (Answer::refusal(401, r#"{"error":{"message":"bad key"}}"#), "401: bad key (check the key in OPENAI_API_KEY)"),
        (Answer::refusal(404, r#"{"error":"model not found"}"#), "has the model m"),
        (Answer::refusal(400, r#"{"detail":"no such thing"}"#), "400: no such thing"),
        (Answer::refusal(308, ""), "base_url"),
        (Answer::refusal(429, "later").header("retry-after", "3600"), "429: later"),
        (sse("data: {broken\n\n".into(), 99), "no JSON"),
        (sse(events(&[json!({"error": {"message": "no such model", "code": 404}})]), 99), "no such model"),
        (sse("event: error\ndata: {\"message\": \"bad\", \"code\": 400}\n\n".into(), 99), "400: bad"),
    ] {
        let (server, config) = server(vec![reply]);
        let (deltas, error) = run(&client(&config), says("hi")).await;
        let error = error.unwrap();
        assert!(deltas.is_empty() && error.contains(part), "{error}");
        assert_eq!(server.n_requests(), 1);
    }
}

#[tokio::test]
async fn nothing_is_tried_again_after_the_first_delta() {
    let broken = events(&[word("one ")]);
    let error_object = broken.clone() + &events(&[json!({"error": {"message": "out of memory", "code": 500}})]);
    for (reply, part) in [(Answer::events(broken).close(), "broke"), (sse(error_object, 3), "out of memory")] {
        let (server, config) = server(vec![reply]);
        let (deltas, error) = run(&client(&config), says("hi")).await;
        assert_eq!(text(&deltas), "one ");
        assert!(error.as_ref().unwrap().contains(part), "{error:?}");
        assert_eq!(server.n_requests(), 1);
    }
}

#[tokio::test]
async fn silence_ends_at_the_deadlines() {
    let (_server, config) = server(vec![Answer::none()]);
    let config = LlmConfig { first_token_timeout_ms: 60, ..config };
    let (_, error) = run(&client(&config), says("hi")).await;
    assert!(error.unwrap().contains("no first token within 360ms"), "the model may have to be loaded");

    let (_server, config) = server(vec![sse(events(&[word("a"), finish("stop")]) + DONE, 16), Answer::none()]);
    let config = LlmConfig { first_token_timeout_ms: 60, ..config };
    let loaded = client(&config);
    assert!(loaded.loading_limit().is_some());
    run(&loaded, says("hi")).await;
    assert_eq!(loaded.loading_limit(), None);
    let (_, error) = run(&loaded, says("hi")).await;
    assert!(error.unwrap().contains("no first token within 60ms"));

    let (_server, config) = server(vec![Answer::events(events(&[word("one ")])).hang()]);
    let config = LlmConfig { token_timeout_ms: 60, ..config };
    let (deltas, error) = run(&client(&config), says("hi")).await;
    assert_eq!(text(&deltas), "one ");
    assert!(error.unwrap().contains("no further token within 60ms"));

    // A wait that leaves no time for the second try ends with what the server said.
    let (_server, config) = server(vec![Answer::refusal(503, "starting"), Answer::none()]);
    let config = LlmConfig { first_token_timeout_ms: 400, ..config };
    let (_, error) = run(&client(&config), says("hi")).await;
    assert!(error.unwrap().contains("503: starting"));
}

#[tokio::test]
async fn a_server_that_is_not_there_is_named() {
    let address = unused_address();
    let config = LlmConfig { base_url: format!("http://{address}/v1"), ..LlmConfig::default() };
    let (_, error) = run(&client(&config), says("hi")).await;
    let error = error.unwrap();
    assert!(error.contains(&address.to_string()) && error.contains("is the server running"), "{error}");
    assert!(client(&config).warm_up().await.is_err());
}

#[tokio::test]
async fn dropping_the_stream_closes_the_connection() {
    let (server, config) = server(vec![Answer::events(events(&[word("one ")])).hang()]);
    let client = client(&config);
    let mut stream = client.stream(says("hi"));
    assert_eq!(stream.next().await.unwrap().unwrap(), LlmDelta::Text("one ".into()));
    assert_eq!(server.n_open(), 1);
    drop(stream);
    tokio::time::timeout(Duration::from_secs(5), server.all_closed()).await.expect("the server notices");
}

#[tokio::test]
async fn answers_in_a_row_share_one_connection() {
    let (server, config) = server(vec![hello(), hello(), hello()]);
    let client = client(&config);
    client.warm_up().await.unwrap();
    for _ in 0..3 {
        assert_eq!(text(&run(&client, says("hi")).await.0), "hello");
    }
    let peers: Vec<_> = server.requests().iter().map(|request| request.peer).collect();
    assert!(peers.len() == 4 && peers.iter().all(|peer| *peer == peers[0]), "{peers:?}");
}

#[tokio::test]
async fn fields_a_server_does_not_know_are_left_out_and_that_is_remembered() {
    let replies = vec![
        Answer::refusal(400, r#"{"error":{"message":"Unrecognized request argument supplied: stream_options"}}"#),
        Answer::refusal(400, r#"{"error":{"message":"'max_tokens' is not supported, use 'max_completion_tokens'"}}"#),
        Answer::refusal(422, r#"{"error":{"message":"temperature: only 1 is supported"}}"#),
        hello(),
        hello(),
    ];
    let (server, config) = server(replies);
    let client = client(&config);
    assert_eq!(text(&run(&client, says("hi")).await.0), "hello");
    assert_eq!(text(&run(&client, says("again")).await.0), "hello");
    let body = server.requests()[4].json();
    let last: Vec<_> = body.as_object().unwrap().keys().map(String::as_str).collect();
    assert_eq!(last, ["max_completion_tokens", "messages", "model", "stream"]);
}

#[tokio::test]
async fn requests_that_are_refused_at_once_for_the_same_field_are_all_sent_without_it() {
    for (request, field, words) in [
        (says("hi"), "stream_options", "unknown field: stream_options"),
        (shows_image(), "image_url", "llama is not a multimodal model"),
    ] {
        // Neither refusal is complete before both requests were sent.
        let both = Arc::new(Barrier::new(2));
        let server = TestServer::start(move |request| {
            if !request.text().contains(field) {
                return hello();
            }
            let both = both.clone();
            Answer::refusal(400, words).wait(async move {
                both.wait().await;
            })
        });
        let config = LlmConfig { base_url: server.url("/v1"), model: "m".into(), ..LlmConfig::default() };
        let client = client(&config);
        let (first, second) = tokio::join!(run(&client, request.clone()), run(&client, request));
        for (deltas, error) in [first, second] {
            assert_eq!((text(&deltas).as_str(), error), ("hello", None), "{field}");
        }
        assert_eq!(server.n_requests(), 4, "{field}");
    }
}

#[tokio::test]
async fn thinking_is_no_part_of_the_answer() {
    let body = |words: &[&str]| {
        let words: Vec<_> = words.iter().map(|text| word(text)).collect();
        sse(events(&words) + &events(&[finish("stop")]) + DONE, 4096)
    };
    let (deltas, error) = run_answer(body(&["<th", "ink>The user", " greets.</thi", "nk>Hello", " there."])).await;
    assert_eq!((text(&deltas).as_str(), error), ("Hello there.", None));
    assert!(!deltas.contains(&LlmDelta::Withdrawn));

    // The template opens the tag: the first answer is withdrawn, the second one is known.
    let (_server, config) =
        server(vec![body(&["Hm, ", "so.</think>", "Hello."]), body(&["Hm, ", "so.</think>", "Bye."])]);
    let client = client(&config);
    let (deltas, _) = run(&client, says("hi")).await;
    assert_eq!(deltas[..3], [LlmDelta::Text("Hm, ".into()), LlmDelta::Withdrawn, LlmDelta::Text("Hello.".into())]);
    let (deltas, _) = run(&client, says("hi")).await;
    assert_eq!(deltas[..1], [LlmDelta::Text("Bye.".into())]);
}

#[tokio::test]
async fn thinking_in_parts_is_a_sign_of_the_model() {
    let thinking = json!({"choices": [{"index": 0, "delta": {"content":
        [{"type": "thinking", "thinking": [{"type": "text", "text": "The user greets."}]}]}}]});
    let (deltas, error) =
        run_answer(sse(events(&[thinking.clone(), word("Hello."), finish("stop")]) + DONE, 4096)).await;
    assert_eq!((text(&deltas).as_str(), error), ("Hello.", None));

    let (_server, config) = server(vec![Answer::events(events(&[thinking])).hang()]);
    let config = LlmConfig { first_token_timeout_ms: 400, token_timeout_ms: 60, ..config };
    let (_, error) = run(&client(&config), says("hi")).await;
    assert!(error.unwrap().contains("no further token within 60ms"), "the first token has come");
}

#[tokio::test(start_paused = true)]
async fn a_hedged_request_waits_for_a_model_that_usually_thinks_as_long() {
    let thinking = json!({"choices": [{"index": 0, "delta": {"reasoning_content": "The user greets."}}]});
    let answer = events(&[word("Hello."), finish("stop")]) + DONE;
    let slow = Answer::events(events(&[thinking])).pause(Duration::from_secs(3)).then(answer);
    let (_server, config) = server(vec![slow]);
    // Without a fallback the first answer is not measured: the model may have been loaded for it.
    let client = client(&LlmConfig { fallback: Some(Box::default()), ..config });
    assert_eq!(client.hedge_delay(), Some(Duration::from_secs(1)));
    let (deltas, error) = run(&client, says("hi")).await;
    assert_eq!((text(&deltas).as_str(), error), ("Hello.", None));
    assert!(client.hedge_delay() >= Some(Duration::from_secs(3)), "{:?}", client.hedge_delay());
}

#[tokio::test]
async fn a_server_that_repeats_the_key_is_read_without_it() {
    let refusal = r#"{"error":{"message":"wrong key: sk-repeated-by-server"}}"#;
    let (_server, config) = server(vec![Answer::refusal(401, refusal)]);
    let client = OpenAi::with_key(&config, Some("sk-repeated-by-server".into())).unwrap();
    let (_, error) = run(&client, says("hi")).await;
    assert!(error.as_ref().is_some_and(|error| error.contains("wrong key: [key]")), "{error:?}");
}

#[tokio::test]
async fn a_variable_of_the_key_that_is_not_set_is_named_where_the_server_wants_one() {
    let (_server, config) = server(vec![Answer::refusal(401, "no key")]);
    let client = OpenAi::with_key(&config, None).unwrap();
    let (_, error) = run(&client, says("hi")).await;
    let expect = format!("set the environment variable {}, which holds no key", config.api_key_env);
    assert!(error.as_ref().is_some_and(|error| error.contains(&expect)), "{error:?}");
}
