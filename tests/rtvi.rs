//! RTVI: pipecat's protobuf frames over a WebSocket, written by hand; `tests/browser` has the makers' own client.

use crate::hub::{Hub, engines, hub};
use antiphon::config::Config;
use antiphon::server::Keys;
use antiphon_engine_api::fakes::llm::{FakeLlm, words};
use antiphon_engine_api::fakes::stt::FakeStt;
use antiphon_engine_api::fakes::tts::FakeTts;
use antiphon_engine_api::llm::LlmDelta;
use antiphon_types::chat::Finish;
use bytes::Bytes;
use futures_util::{SinkExt, StreamExt};
use prost::Message as _;
use serde_json::{Value, json};
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_tungstenite::tungstenite::{Error, Message};
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream};

const TEST_TIMEOUT: Duration = Duration::from_secs(20);

/// `pipecat.Frame`, as far as it is used.
#[derive(Clone, PartialEq, prost::Message)]
struct Frame {
    #[prost(message, tag = "1")]
    text: Option<Text>,
    #[prost(message, tag = "2")]
    audio: Option<Audio>,
    #[prost(message, tag = "4")]
    message: Option<Text>,
}

/// `pipecat.MessageFrame`.
#[derive(Clone, PartialEq, prost::Message)]
struct Text {
    #[prost(string, tag = "1")]
    data: String,
}

/// `pipecat.AudioRawFrame`.
#[derive(Clone, PartialEq, prost::Message)]
struct Audio {
    #[prost(bytes = "bytes", tag = "3")]
    audio: Bytes,
    #[prost(uint32, tag = "4")]
    sample_rate: u32,
    #[prost(uint32, tag = "5")]
    num_channels: u32,
}

struct Client {
    stream: WebSocketStream<MaybeTlsStream<TcpStream>>,
    n_audio_samples: usize,
    n_sent: usize,
}

impl Client {
    /// `Err` is the HTTP status of a rejection.
    async fn open(hub: &Hub, query: &str) -> Result<Self, u16> {
        match crate::hub::connect(format!("ws://{}/v1/rtvi{query}", hub.address)).await {
            Ok((stream, _)) => Ok(Self { stream, n_audio_samples: 0, n_sent: 0 }),
            Err(Error::Http(response)) => Err(response.status().as_u16()),
            Err(error) => panic!("{error}"),
        }
    }

    /// Connects, and is ready.
    async fn ready(hub: &Hub) -> Self {
        let mut client = Self::open(hub, "").await.expect("the upgrade is accepted");
        client.send("client-ready", json!({"version": "2.1.0", "about": {"library": "test"}})).await;
        let ready = client.next().await;
        assert_eq!(
            (&ready["type"], &ready["id"], &ready["data"]["version"]),
            (&json!("bot-ready"), &json!("1"), &json!("2.1.0"))
        );
        client
    }

    async fn raw(&mut self, message: Message) {
        self.stream.send(message).await.expect("the hub listens");
    }

    async fn frame(&mut self, frame: Frame) {
        self.raw(Message::binary(frame.encode_to_vec())).await;
    }

    /// Sends a message; the ids are 1, 2, 3.
    async fn send(&mut self, kind: &str, data: Value) {
        self.n_sent += 1;
        let message = json!({"label": "rtvi-ai", "type": kind, "id": self.n_sent.to_string(), "data": data});
        self.frame(Frame { message: Some(Text { data: message.to_string() }), ..Frame::default() }).await;
    }

    /// Speaks for `ms`, at 16 kHz: a loud tone or silence.
    async fn audio(&mut self, ms: usize, is_loud: bool) {
        let sample = |i: usize| if is_loud { (8_000.0 * (i as f32 * 0.15).sin()) as i16 } else { 0 };
        for at in (0..ms * 16).step_by(512) {
            let bytes: Vec<u8> = (at..at + 512).flat_map(|i| sample(i).to_le_bytes()).collect();
            let audio = Audio { audio: bytes.into(), sample_rate: 16_000, num_channels: 1 };
            self.frame(Frame { audio: Some(audio), ..Frame::default() }).await;
        }
    }

    /// The next message.
    async fn next(&mut self) -> Value {
        loop {
            match timeout(TEST_TIMEOUT, self.stream.next())
                .await
                .expect("something comes")
                .expect("open")
                .expect("whole")
            {
                Message::Binary(bytes) => {
                    let frame = Frame::decode(bytes).expect("a frame");
                    if let Some(audio) = frame.audio {
                        assert_eq!((audio.sample_rate, audio.num_channels), (24_000, 1));
                        self.n_audio_samples += audio.audio.len() / 2;
                    }
                    if let Some(message) = frame.message {
                        let message: Value = serde_json::from_str(&message.data).expect("JSON");
                        assert_eq!(message["label"], "rtvi-ai");
                        return message;
                    }
                }
                Message::Close(frame) => panic!("closed: {frame:?}"),
                _ => {}
            }
        }
    }

    /// All messages up to and including the first of this type.
    async fn until(&mut self, kind: &str) -> Vec<Value> {
        let mut messages = Vec::new();
        loop {
            let message = self.next().await;
            let is_last = message["type"] == kind;
            assert!(message["type"] != "error" || is_last, "{message}");
            messages.push(message);
            if is_last {
                return messages;
            }
        }
    }

    /// The close code, after all that comes before it, and the last message.
    async fn closed(&mut self) -> (u16, Value) {
        let mut last = Value::Null;
        loop {
            match timeout(TEST_TIMEOUT, self.stream.next())
                .await
                .expect("something comes")
                .expect("open")
                .expect("whole")
            {
                Message::Close(frame) => return (frame.expect("a code").code.into(), last),
                Message::Binary(bytes) => {
                    if let Some(message) = Frame::decode(bytes).expect("a frame").message {
                        last = serde_json::from_str(&message.data).expect("JSON");
                    }
                }
                _ => {}
            }
        }
    }
}

fn types(messages: &[Value]) -> Vec<&str> {
    let mut types: Vec<&str> = messages.iter().map(|message| message["type"].as_str().expect("a type")).collect();
    types.dedup();
    types
}

/// Asserts that these stand in this order; others may lie between.
#[track_caller]
fn in_order(messages: &[Value], expected: &[&str]) {
    let mut types = types(messages).into_iter();
    for kind in expected {
        assert!(types.any(|other| other == *kind), "no {kind} in its place in {:?}", self::types(messages));
    }
}

fn of<'a>(messages: &'a [Value], kind: &str) -> Vec<&'a Value> {
    messages.iter().filter(|message| message["type"] == kind).map(|message| &message["data"]).collect()
}

#[tokio::test(start_paused = true)]
async fn a_spoken_turn_is_answered() {
    let hub = hub("what time is it", "It is noon. And sunny.").await;
    let mut client = Client::ready(&hub).await;
    client.audio(700, true).await;
    client.audio(1_500, false).await;
    let messages = client.until("bot-stopped-speaking").await;
    in_order(
        &messages,
        &[
            "user-started-speaking",
            "user-stopped-speaking",
            "user-transcription",
            "user-llm-text",
            "bot-stopped-speaking",
        ],
    );
    in_order(
        &messages,
        &["bot-llm-started", "bot-llm-text", "bot-started-speaking", "bot-tts-stopped", "bot-stopped-speaking"],
    );
    let heard = of(&messages, "user-transcription");
    let last = heard.last().expect("a transcript");
    assert_eq!((&last["text"], &last["final"]), (&json!("what time is it"), &json!(true)));
    let text: String = of(&messages, "bot-llm-text").iter().map(|data| data["text"].as_str().expect("text")).collect();
    assert_eq!(text.trim(), "It is noon. And sunny.");
    let outputs = of(&messages, "bot-output");
    let with = |status: &str| outputs.iter().filter(|data| data["spoken_status"] == status).count();
    assert!(with("new") >= 1 && with("new") == with("completed"), "{outputs:?}");
    assert!(client.n_audio_samples > 24_000 / 2, "{} samples", client.n_audio_samples);
    hub.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_typed_turn_may_be_answered_in_text_and_context_is_kept() {
    let hub = hub("", "Noted.").await;
    let mut client = Client::ready(&hub).await;
    client.send("append-to-context", json!({"role": "assistant", "content": "Ask me."})).await;
    assert_eq!(client.next().await["type"], "append-to-context-result");
    client.send("append-to-context", json!({"role": "user", "content": {"a": 1}})).await;
    assert_eq!(client.next().await["id"], "3");
    client.send("send-text", json!({"content": "Hello.", "options": {"audio_response": false}})).await;
    let messages = client.until("bot-llm-stopped").await;
    in_order(&messages, &["user-llm-text", "bot-llm-started", "bot-llm-text", "bot-output", "bot-llm-stopped"]);
    assert_eq!(client.n_audio_samples, 0);
    client.send("send-text", json!({"content": "Only this.", "options": {"run_immediately": false}})).await;
    client.send("send-text", json!({"content": "And aloud."})).await;
    let messages = client.until("bot-stopped-speaking").await;
    assert_eq!(of(&messages, "bot-llm-started").len(), 1, "{:?}", types(&messages));
    hub.stop().await;
}

#[tokio::test(start_paused = true)]
async fn functions_are_called_and_the_model_goes_on_with_the_result() {
    let llm = FakeLlm::default();
    let call_id = "call_1".into();
    let name = "look_up".into();
    let arguments = r#"{"city":"Rome"}"#.into();
    let call = LlmDelta::ToolCall { index: 0, call_id, name, arguments };
    llm.then(vec![Ok(call), Ok(LlmDelta::Done { finish: Finish::ToolCalls, usage: None })]);
    llm.then(words("Sunny in Rome."));
    let hub = Hub::start(engines(FakeStt::default(), llm, FakeTts::default()), Config::default()).await;
    let mut client = Client::ready(&hub).await;
    let tool = json!({"type": "function", "name": "look_up", "parameters": {"type": "object"}});
    client.send("client-message", json!({"t": "session.update", "d": {"tools": [tool]}})).await;
    let updated = client.until("server-response").await.pop().expect("an answer");
    assert_eq!((&updated["id"], &updated["data"]["d"]["tools"][0]["name"]), (&json!("2"), &json!("look_up")));
    client.send("client-message", json!({"t": "session.update", "d": {"tools": 7}})).await;
    assert_eq!(client.until("error-response").await.pop().expect("an answer")["id"], "3");
    client.send("send-text", json!({"content": "The weather in Rome?"})).await;
    let messages = client.until("llm-function-call-in-progress").await;
    assert_eq!(of(&messages, "llm-function-call-started")[0]["function_name"], "look_up");
    let call = &messages.last().expect("a call")["data"];
    assert_eq!(call["arguments"], json!({"city": "Rome"}));
    let id = call["tool_call_id"].clone();
    client
        .send(
            "llm-function-call-result",
            json!({"function_name": "look_up", "tool_call_id": id, "arguments": {}, "result": {"sky": "clear"}}),
        )
        .await;
    let messages = client.until("bot-stopped-speaking").await;
    in_order(&messages, &["llm-function-call-stopped", "bot-llm-started", "bot-llm-text"]);
    let text: String = of(&messages, "bot-llm-text").iter().map(|data| data["text"].as_str().expect("text")).collect();
    assert_eq!(text.trim(), "Sunny in Rome.");
    client.send("llm-function-call-result", json!({"tool_call_id": "none", "result": 1})).await;
    assert_eq!(client.until("error-response").await.len(), 1);
    hub.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_barge_in_ends_the_reply() {
    let long = "This is a long reply that goes on for quite a while. ".repeat(20);
    let hub = hub("stop", &long).await;
    let mut client = Client::ready(&hub).await;
    client.send("send-text", json!({"content": "Speak."})).await;
    client.until("bot-started-speaking").await;
    client.audio(1_000, true).await;
    let messages = client.until("bot-stopped-speaking").await;
    in_order(&messages, &["user-started-speaking", "bot-stopped-speaking"]);
    assert!(of(&messages, "bot-output").iter().all(|data| data["spoken_status"] == "new"), "cut text was not spoken");
    hub.stop().await;
}

#[tokio::test(start_paused = true)]
async fn what_is_no_rtvi_is_refused_and_others_do_not_notice() {
    let hub = hub("", "Hello.").await;
    let mut canary = Client::ready(&hub).await;
    let audio = |audio: &'static [u8], sample_rate, num_channels| {
        let audio = Some(Audio { audio: Bytes::from_static(audio), sample_rate, num_channels });
        Message::binary(Frame { audio, ..Frame::default() }.encode_to_vec())
    };
    for (wrong, code) in [
        (Message::text("{\"label\":\"rtvi-ai\"}"), 1003),
        (Message::binary(vec![0xff; 40]), 1007),
        (Message::binary(vec![0; 1024 * 1024 + 1]), 1009),
        (audio(&[1, 2, 3], 16_000, 1), 1007),
        (audio(&[1, 2], 0, 1), 1007),
        (audio(&[1, 2], 16_000, 0), 1007),
    ] {
        let mut client = Client::ready(&hub).await;
        client.raw(wrong).await;
        let (closed, last) = client.closed().await;
        assert_eq!((closed, &last["type"], &last["data"]["fatal"]), (code, &json!("error"), &json!(true)));
    }
    let mut second_rate = Client::ready(&hub).await;
    second_rate.raw(audio(&[1, 2], 16_000, 1)).await;
    second_rate.raw(audio(&[1, 2], 24_000, 1)).await;
    assert_eq!(second_rate.closed().await.0, 1007);
    let mut client = Client::ready(&hub).await;
    for text in ["", "[]", "{", "7"] {
        client.frame(Frame { message: Some(Text { data: text.into() }), ..Frame::default() }).await;
        assert_eq!(client.next().await["data"]["fatal"], false);
    }
    client.frame(Frame { text: Some(Text { data: "other frames are skipped".into() }), ..Frame::default() }).await;
    for (kind, data) in [
        ("send-text", json!({"content": 7})),
        ("append-to-context", json!({"role": "system", "content": "x"})),
        ("dtmf", json!({"buttons": ["x"]})),
        ("client-message", json!({"t": "other"})),
        ("no-such", Value::Null),
    ] {
        client.send(kind, data).await;
        let answer = client.next().await;
        assert_eq!(
            (&answer["type"], &answer["id"]),
            (&json!("error-response"), &json!(client.n_sent.to_string())),
            "{kind}"
        );
    }
    client.send("disconnect-bot", json!({})).await;
    assert_eq!(client.closed().await, (1000, Value::Null), "the client asked for the end: it is no error");
    canary.send("send-text", json!({"content": "Hello."})).await;
    canary.until("bot-stopped-speaking").await;
    hub.until("antiphon_sessions_active ", 1.0).await;
    hub.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_key_is_required_where_there_are_keys_and_places_are_bounded() {
    let config = Config {
        server: antiphon::config::ServerConfig { max_sessions: 1, ..Default::default() },
        ..Config::default()
    };
    let parts = engines(FakeStt::default(), FakeLlm::says(["Hello."]), FakeTts::default());
    let hub = Hub::with_keys(parts, config, Keys::of(&["right"])).await;
    assert_eq!(Client::open(&hub, "").await.err(), Some(401));
    assert_eq!(Client::open(&hub, "?token=wrong").await.err(), Some(401));
    let first = Client::open(&hub, "?token=right").await.expect("the key is right");
    assert_eq!(Client::open(&hub, "?token=right").await.err(), Some(503));
    drop(first);
    hub.until("antiphon_sessions_active ", 0.0).await;
    Client::open(&hub, "?token=right").await.expect("its place is free again");
    hub.stop().await;
}

#[tokio::test(start_paused = true)]
async fn offers_of_pipecats_webrtc_transport_are_answered() {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let hub = Hub::with_keys(
        engines(FakeStt::default(), FakeLlm::says(["Hi."]), FakeTts::default()),
        Config::default(),
        Keys::of(&["key"]),
    )
    .await;
    let http = reqwest::Client::new();
    let url = |path: &str| format!("http://{}/v1/rtvi/{path}", hub.address);
    let sdp = include_str!("fixtures/chromium_offer.sdp").replace("\r\n", "\n").replace('\n', "\r\n");
    let offer = json!({"sdp": sdp, "type": "offer", "pc_id": null, "restart_pc": false, "requestData": {"any": 1}});
    for path in ["start", "api/offer", "sessions/rtvi_1/api/offer"] {
        let refused = http.post(url(path)).json(&offer).send().await.expect("an answer");
        assert_eq!(refused.status(), 401, "{path}");
        let preflight = http.request(reqwest::Method::OPTIONS, url(path)).header("origin", "https://any.example");
        let preflight = preflight.header("access-control-request-method", "PATCH").send().await.expect("an answer");
        assert_eq!(preflight.headers()["access-control-allow-methods"], "GET, POST, PATCH", "{path}");
    }
    let post = async |path: &str, body: &Value| {
        let answer = http.post(url(path)).bearer_auth("key").json(body).send().await.expect("an answer");
        (answer.status().as_u16(), answer.json::<Value>().await.expect("JSON"))
    };
    let (status, started) = post("start", &json!({})).await;
    assert_eq!(status, 200);
    let id = started["sessionId"].as_str().expect("an id").to_owned();
    let (status, answer) = post(&format!("sessions/{id}/api/offer"), &offer).await;
    assert_eq!((status, &answer["type"]), (200, &json!("answer")), "{answer}");
    assert!(answer["sdp"].as_str().is_some_and(|sdp| sdp.contains("a=ice-lite")), "{answer}");
    let candidates = json!({"pc_id": answer["pc_id"], "candidates": []});
    for path in ["api/offer".to_owned(), format!("sessions/{id}/api/offer")] {
        let patch = || http.patch(url(&path)).json(&candidates);
        let taken = patch().bearer_auth("key").send().await.expect("an answer");
        assert_eq!(taken.status(), 200, "{path}");
        assert_eq!(patch().send().await.expect("an answer").status(), 401, "{path}");
        assert_eq!(patch().bearer_auth("wrong").send().await.expect("an answer").status(), 401, "{path}");
    }
    for wrong in [json!({"type": "offer"}), json!({"sdp": "v=0\r\n", "type": "offer"})] {
        let (status, error) = post("api/offer", &wrong).await;
        assert_eq!((status, &error["error"]["code"]), (400, &json!("invalid_offer")), "{wrong}");
    }
    assert_eq!(hub.metric("antiphon_sessions_active"), 1.0);
    hub.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_call_of_pipecats_webrtc_transport_is_negotiated_again() {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let parts = engines(FakeStt::default(), FakeLlm::says(["Hi."]), FakeTts::default());
    let hub = Hub::with_keys(parts, Config::default(), Keys::of(&["key", "other"])).await;
    let http = reqwest::Client::new();
    let url = format!("http://{}/v1/rtvi/api/offer", hub.address);
    let sdp = include_str!("fixtures/chromium_offer.sdp").replace("\r\n", "\n").replace('\n', "\r\n");
    let offer = async |key: &str, sdp: &str, id: &Value, restarts: bool| {
        let body = json!({"sdp": sdp, "type": "offer", "pc_id": id, "restart_pc": restarts});
        let answer = http.post(&url).bearer_auth(key).json(&body).send().await.expect("an answer");
        (answer.status().as_u16(), answer.json::<Value>().await.expect("JSON"))
    };
    let lines = |answer: &Value, name: &str| -> Vec<String> {
        let sdp = answer["sdp"].as_str().unwrap_or_default();
        sdp.lines().filter(|line| line.starts_with(name)).map(str::to_owned).collect()
    };
    let ice = |answer: &Value| lines(answer, "a=ice-ufrag");
    let (status, first) = offer("key", &sdp, &Value::Null, false).await;
    assert_eq!(status, 200, "{first}");
    let id = &first["pc_id"];

    let (status, again) = offer("key", &sdp, id, false).await;
    assert_eq!((status, &again["pc_id"], ice(&again)), (200, id, ice(&first)), "the connection goes on");
    let video =
        "m=video 9 UDP/TLS/RTP/SAVPF 96\r\nc=IN IP4 0.0.0.0\r\na=mid:v\r\na=inactive\r\na=rtpmap:96 VP8/90000\r\n";
    let more = sdp.replace("a=group:BUNDLE 0 1", "a=group:BUNDLE 0 1 v") + video;
    let (status, again) = offer("key", &more, id, false).await;
    assert_eq!((status, lines(&again, "m=").len()), (200, 1 + lines(&first, "m=").len()), "{again}");
    let restarted = more.replace("a=ice-ufrag:", "a=ice-ufrag:new");
    let (status, again) = offer("key", &restarted, id, false).await;
    assert_eq!((status, &again["pc_id"]), (200, id), "{again}");
    assert_ne!(ice(&again), ice(&first), "the path is another one");

    let certificate = sdp.replacen("a=fingerprint:sha-256 ", "a=fingerprint:sha-256 00:", 1);
    let swapped = restarted.replace("a=mid:0", "a=mid:x");
    for wrong in [&sdp, &certificate, &swapped, "v=0\r\n"] {
        let (status, error) = offer("key", wrong, id, false).await;
        assert_eq!((status, &error["error"]["code"]), (400, &json!("invalid_offer")), "{wrong}");
    }
    for (key, id) in [("other", id), ("key", &json!("rtc_none"))] {
        let (status, error) = offer(key, &restarted, id, false).await;
        assert_eq!((status, &error["error"]["code"]), (404, &json!("call_id_not_found")), "{key} {id}");
    }
    // Another connection takes over the call's session; without such a call, another one begins.
    let (status, taken) = offer("key", &sdp, id, true).await;
    assert_eq!((status, &taken["pc_id"], hub.metric("antiphon_sessions_active")), (200, id, 1.0));
    assert_ne!((ice(&taken), lines(&taken, "m=").len()), (ice(&again), 0));
    let (status, other) = offer("other", &sdp, id, true).await;
    assert_eq!((status, hub.metric("antiphon_sessions_active")), (200, 2.0), "{other}");
    assert_ne!(&other["pc_id"], id);
    hub.stop().await;
}

#[tokio::test(start_paused = true)]
async fn keys_of_a_client_are_answered_as_a_phones_are() {
    let llm = FakeLlm::says(["One and two.", "Seven."]);
    let asked = llm.clone();
    let hub = Hub::start(engines(FakeStt::default(), llm, FakeTts::default()), Config::default()).await;
    let mut client = Client::ready(&hub).await;
    for (keys, entry) in [(vec!["1", "2"], "12"), (vec!["7", "#"], "7#")] {
        client.send("dtmf", json!({"buttons": keys})).await;
        let messages = client.until("bot-stopped-speaking").await;
        in_order(&messages, &["user-llm-text", "bot-llm-started", "bot-stopped-speaking"]);
        let words = of(&messages, "user-llm-text")[0]["text"].as_str().expect("a text").to_owned();
        assert_eq!(words, format!("(The caller pressed these keys of the phone: {entry})"));
    }
    assert!(format!("{:?}", asked.requests().last()).contains("these keys of the phone: 7#"), "{:?}", asked.requests());
    hub.stop().await;
}
