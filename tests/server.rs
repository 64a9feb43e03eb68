//! The server around the sessions: admission, authorization, limits, and cleanup after a client leaves.

use crate::hub::{Hub, engines, hub, loud, quiet};
use antiphon::config::Config;
use antiphon_engine_api::fakes::llm::FakeLlm;
use antiphon_engine_api::fakes::stt::FakeStt;
use antiphon_engine_api::fakes::tts::FakeTts;
use reqwest::Method;
use serde_json::{Value, json};
use std::time::Duration;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;

async fn get(hub: &Hub, path: &str) -> (u16, String) {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let response = reqwest::get(format!("http://{}{path}", hub.address)).await.expect("an answer");
    (response.status().as_u16(), response.text().await.expect("a body"))
}

#[tokio::test(start_paused = true)]
async fn a_full_server_says_so_before_the_upgrade() {
    let mut config = Config::default();
    config.server.max_sessions = 1;
    let hub = Hub::start(engines(FakeStt::default(), FakeLlm::default(), FakeTts::default()), config).await;
    assert_eq!(get(&hub, "/readyz").await.0, 200);
    let socket = hub.connect("").await;
    assert_eq!(hub.open("").await.err(), Some(503));
    let (status, body) = get(&hub, "/readyz").await;
    let body: Value = serde_json::from_str(&body).expect("JSON");
    assert_eq!((status, &body["ready"], &body["sessions"]), (503, &json!(false), &json!(1)));
    assert_eq!(body["reason"], "it is full: all 1 sessions of server.max_sessions are open");
    drop(socket);
    hub.until("antiphon_sessions_active ", 0.0).await;
    hub.connect("").await;
    assert_eq!(hub.metric("antiphon_sessions_rejected_total "), 1.0);
}

#[tokio::test(start_paused = true)]
async fn a_request_that_cannot_be_read_is_refused_in_the_form_of_all_errors() {
    let hub = hub("", "x").await;
    let _ = rustls::crypto::ring::default_provider().install_default();
    let http = reqwest::Client::new();
    let ask = async |method: &Method, path: &str, body: Option<&str>| {
        let mut request = http.request(method.clone(), format!("http://{}{path}", hub.address));
        if let Some(body) = body {
            request = request.header("content-type", "application/json").body(body.to_owned());
        }
        request.send().await.expect("an answer")
    };
    for (method, path, body, status) in [
        (Method::GET, "/v1/audio/speech/jobs?limit=abc", None, 400),
        (Method::GET, "/v1/audio/speech/jobs/%FF", None, 400),
        (Method::GET, "/api/turns?limit=abc", None, 400),
        (Method::POST, "/v1/realtime/calls/%FF/hangup", None, 400),
        (Method::GET, "/v1/realtime", None, 400),
        (Method::GET, "/v1/realtime?model=a&model=b", None, 400),
        (Method::POST, "/v1/realtime?model=a&model=b", None, 400),
        (Method::POST, "/api/llm/servers", None, 415),
        (Method::POST, "/api/llm/servers", Some("{"), 400),
        (Method::POST, "/api/llm/servers", Some(r#"{"port": 99999, "model": "x"}"#), 422),
    ] {
        let refused = ask(&method, path, body).await;
        assert_eq!(refused.status().as_u16(), status, "{method} {path}");
        assert_eq!(refused.headers()["content-type"], "application/json", "{method} {path}");
        let refused: Value = refused.json().await.expect("JSON");
        let error = &refused["error"];
        assert_eq!(
            (&error["type"], &error["code"]),
            (&json!("invalid_request_error"), &json!("invalid_request")),
            "{method} {path}: {refused}"
        );
        assert!(error["message"].as_str().is_some_and(|message| !message.is_empty()), "{method} {path}: {refused}");
    }
    let version = ask(&Method::GET, "/v1/realtime", None).await;
    assert_eq!(version.headers()["sec-websocket-version"], "13");
    let telephony = ask(&Method::GET, "/v1/telephony/twilio", None).await;
    assert!(telephony.headers()["content-type"].to_str().is_ok_and(|value| value.starts_with("text/plain")));
}

#[tokio::test(start_paused = true)]
async fn a_model_in_the_query_is_a_name_that_an_update_may_have() {
    let hub = hub("", "x").await;
    let model_of = async |query: &str| {
        let mut socket = hub.open(query).await.expect("the upgrade is accepted");
        socket.next().await["session"]["model"].clone()
    };
    let longest = "m".repeat(128);
    assert_eq!(model_of("?model=").await, model_of("").await, "an empty name is none");
    assert_eq!(model_of(&format!("?model={longest}")).await, json!(longest));
    let too_long = format!("?model={longest}m");
    assert_eq!(hub.open(&too_long).await.err(), Some(400));
    let rtvi = crate::hub::connect(format!("ws://{}/v1/rtvi{too_long}", hub.address)).await;
    assert!(rtvi.is_err_and(|error| error.to_string().contains("400")));
    let _ = rustls::crypto::ring::default_provider().install_default();
    for (query, param) in [(too_long.as_str(), "model"), ("?audio=mp3", "audio")] {
        let url = format!("http://{}/v1/realtime/calls{query}", hub.address);
        let refused = reqwest::Client::new().post(url).send().await.expect("an answer");
        assert_eq!(refused.status().as_u16(), 400, "{query}");
        let refused: Value = refused.json().await.expect("JSON");
        let error = &refused["error"];
        assert_eq!((&error["code"], &error["param"]), (&json!("invalid_value"), &json!(param)), "{refused}");
    }
}

#[tokio::test(start_paused = true)]
async fn foreign_pages_cannot_connect() {
    let hub = hub("", "x").await;
    let mut request = format!("ws://{}/v1/realtime", hub.address).into_client_request().expect("a request");
    request.headers_mut().insert("origin", "https://evil.example".parse().expect("a header"));
    let refused = crate::hub::connect(request).await.expect_err("refused");
    assert!(refused.to_string().contains("403"), "{refused}");
    let mut request = format!("ws://{}/v1/realtime", hub.address).into_client_request().expect("a request");
    request.headers_mut().insert("origin", format!("http://{}", hub.address).parse().expect("a header"));
    request
        .headers_mut()
        .insert("sec-websocket-protocol", "realtime, openai-insecure-api-key.x".parse().expect("a header"));
    let (_socket, response) = crate::hub::connect(request).await.expect("the own page may");
    assert_eq!(response.headers()["sec-websocket-protocol"], "realtime");
}

#[tokio::test(start_paused = true)]
async fn a_request_with_two_hosts_is_refused() {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let hub = hub("", "x").await;
    for hosts in ["Host: localhost\r\nHost: evil.example", "Host: localhost\r\nHost: localhost"] {
        let mut stream = tokio::net::TcpStream::connect(hub.address).await.expect("it listens");
        let request = format!("GET /healthz HTTP/1.1\r\n{hosts}\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.expect("sent");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.expect("text");
        assert!(answer.starts_with("HTTP/1.1 400 ") && answer.contains("invalid_host"), "{hosts}: {answer}");
    }
}

#[tokio::test(start_paused = true)]
async fn pages_and_health_are_served() {
    let hub = hub("", "x").await;
    let (status, page) = get(&hub, "/").await;
    assert_eq!(status, 200);
    assert!(page.to_lowercase().contains("<!doctype html>"));
    assert_eq!(get(&hub, "/healthz").await, (200, "ok\n".into()));
    assert_eq!(get(&hub, "/no/such").await.0, 404);
    let (_, voices) = get(&hub, "/v1/audio/voices").await;
    assert_eq!(serde_json::from_str::<Value>(&voices).expect("JSON")["voices"][0]["id"], "tone");
    assert!(get(&hub, "/metrics").await.1.contains("antiphon_sessions_active 0"));
}

#[tokio::test(start_paused = true)]
async fn json_and_metrics_are_compressed_for_those_who_accept_it() {
    let hub = hub("", "x").await;
    let _ = rustls::crypto::ring::default_provider().install_default();
    let client = reqwest::Client::new();
    let asked = async |path: &str, accepted: &str| {
        let request = client.get(format!("http://{}{path}", hub.address)).header("accept-encoding", accepted);
        let response = request.send().await.expect("an answer");
        let encoding = response.headers().get("content-encoding").map(|value| value.to_str().expect("text").to_owned());
        (encoding, response.bytes().await.expect("a body").len())
    };
    let mut socket = hub.connect("").await;
    for words in ["one", "two", "three"] {
        socket.ask(words).await;
    }
    for path in ["/metrics", "/api/turns"] {
        let (plain, length) = asked(path, "identity").await;
        let (packed, shorter) = asked(path, "gzip").await;
        assert_eq!((plain, packed.as_deref()), (None, Some("gzip")), "{path}");
        assert!(2 * shorter < length, "{path}: {shorter} of {length} bytes");
    }
    assert_eq!(asked("/healthz", "gzip").await, (None, 3), "too short to gain");
    let metrics = get(&hub, "/metrics").await.1;
    for name in ["process_resident_memory_bytes", "process_cpu_seconds_total", "process_open_fds", "process_max_fds"] {
        let line = metrics.lines().find_map(|line| line.strip_prefix(&format!("{name} ")));
        assert!(line.is_some_and(|value| value.parse::<f64>().is_ok_and(|value| value > 0.0)), "{name}: {line:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_message_over_the_limit_closes_with_1009() {
    let hub = hub("", "x").await;
    let mut socket = hub.connect("").await;
    let huge = Message::text("x".repeat(17 * 1024 * 1024));
    // The hub may close before it has read everything.
    let _ = futures_util::SinkExt::send(&mut socket.stream, huge).await;
    assert_eq!(socket.close().await.map(|frame| u16::from(frame.code)), Some(1009));
    hub.until("antiphon_sessions_active ", 0.0).await;
}

#[tokio::test(start_paused = true)]
async fn text_that_is_not_utf8_closes_with_1007() {
    use tokio_tungstenite::tungstenite::protocol::frame::{
        Frame,
        coding::{Data, OpCode},
    };
    let hub = hub("", "x").await;
    let mut socket = hub.connect("").await;
    let frame = Frame::message(vec![0xff, 0xfe], OpCode::Data(Data::Text), true);
    socket.send_raw(Message::Frame(frame)).await;
    assert_eq!(socket.close().await.map(|frame| u16::from(frame.code)), Some(1007));
}

#[tokio::test(start_paused = true)]
async fn a_client_that_vanishes_at_any_moment_leaves_nothing() {
    let llm = FakeLlm::default().delayed(Duration::from_millis(20));
    let tts = FakeTts::default().delayed(Duration::from_millis(20));
    let stt = FakeStt::default().delayed(Duration::from_millis(50));
    let hub = Hub::start(engines(stt, llm, tts), Config::default()).await;
    let moments = [
        "session.created",
        "input_audio_buffer.speech_started",
        "input_audio_buffer.speech_stopped",
        "conversation.item.done",
        "response.created",
        "response.output_audio.delta",
        "response.output_audio.done",
    ];
    for moment in moments {
        let mut socket = hub.open("").await.expect("accepted");
        socket.append(&loud(400)).await;
        socket.append(&quiet(600)).await;
        socket.until(moment).await;
        // The connection is dropped without a close frame.
        drop(socket);
        hub.until("antiphon_sessions_active ", 0.0).await;
    }
    hub.stop().await;
}

#[tokio::test(start_paused = true)]
async fn stopping_lets_a_reply_finish_and_says_goodbye() {
    let tts = FakeTts::default().delayed(Duration::from_millis(10));
    let llm = FakeLlm::says(["A reply of some length."]);
    let hub = Hub::start(engines(FakeStt::default(), llm, tts), Config::default()).await;
    let mut idle = hub.connect("").await;
    let mut busy = hub.connect("").await;
    let item = json!({"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Go"}]});
    busy.send(json!({"type": "conversation.item.create", "item": item})).await;
    busy.send(json!({"type": "response.create"})).await;
    busy.until("response.output_audio.delta").await;
    hub.begin_to_stop();
    assert_eq!(idle.close().await.map(|frame| u16::from(frame.code)), Some(1001));
    let events = busy.until("response.done").await;
    assert_eq!(events.last().expect("done")["response"]["status"], "completed");
    assert_eq!(busy.close().await.map(|frame| u16::from(frame.code)), Some(1001));
    hub.stop().await;
}

#[tokio::test(start_paused = true)]
async fn every_error_and_every_byte_is_counted() {
    let hub = hub("", "").await;
    let mut socket = hub.connect("").await;
    let before = hub.metric("antiphon_bytes_in_total ");
    let cancel = json!({"type": "response.cancel"});
    let length = cancel.to_string().len() as f64;
    socket.send(cancel).await;
    assert_eq!(socket.next().await["error"]["code"], "response_cancel_not_active");
    assert_eq!(hub.metric("antiphon_errors_total{code=\"response_cancel_not_active\"} "), 1.0);
    assert_eq!(hub.metric("antiphon_bytes_in_total ") - before, length);
}
