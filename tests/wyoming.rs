//! Wyoming: hostile peers, limits and timing, by frames written by hand; `tests/clients/wyoming_home.py` has the makers' own package.

use crate::hub::{Hub, engines};
use antiphon::config::Config;
use antiphon::server::{Extras, Keys, Parts};
use antiphon_engine_api::fakes::llm::FakeLlm;
use antiphon_engine_api::fakes::stt::FakeStt;
use antiphon_engine_api::fakes::tts::FakeTts;
use antiphon_engine_api::llm::LlmDelta;
use antiphon_telemetry::Metrics;
use antiphon_types::chat::{Finish, Message};
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

const TEST_TIMEOUT: Duration = Duration::from_secs(20);

struct WyomingHub {
    hub: Hub,
    wyoming: SocketAddr,
}

async fn serve(stt: FakeStt, llm: FakeLlm, tts: FakeTts, config: Config, keys: Keys) -> WyomingHub {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let wyoming = listener.local_addr().expect("bound");
    let parts =
        Parts { config, engines: engines(stt, llm, tts), metrics: Metrics::new(), keys, tls: None, manager: None };
    let hub = Hub::serve_with(parts, Extras { wyoming: Some(listener), ..Extras::default() }).await;
    WyomingHub { hub, wyoming }
}

async fn simple(heard: &str, answer: &str) -> WyomingHub {
    let stt = FakeStt::hears([heard]).with_partials();
    let llm = FakeLlm::says([answer]);
    serve(stt, llm, FakeTts::default(), Config::default(), Keys::default()).await
}

struct Client(BufReader<TcpStream>);

impl Client {
    async fn connect(served: &WyomingHub) -> Self {
        let stream = TcpStream::connect(served.wyoming).await.expect("it listens");
        stream.set_nodelay(true).expect("a socket");
        Self(BufReader::new(stream))
    }

    async fn raw(&mut self, bytes: &[u8]) {
        self.0.write_all(bytes).await.expect("it reads");
    }

    async fn send(&mut self, kind: &str, data: Value, payload: &[u8]) {
        let data = data.to_string();
        let line = json!({"type": kind, "data_length": data.len(), "payload_length": payload.len()});
        self.raw(format!("{line}\n{data}").as_bytes()).await;
        self.raw(payload).await;
    }

    /// The next event: type, data, payload; `None`: the connection has ended.
    async fn next(&mut self) -> Option<(String, Value, Vec<u8>)> {
        timeout(TEST_TIMEOUT, self.read()).await.expect("something comes")
    }

    async fn read(&mut self) -> Option<(String, Value, Vec<u8>)> {
        let mut line = String::new();
        if self.0.read_line(&mut line).await.ok()? == 0 {
            return None;
        }
        let line: Value = serde_json::from_str(&line).expect("JSON");
        let length = |name: &str| line[name].as_u64().unwrap_or(0) as usize;
        let mut data = vec![0; length("data_length")];
        let mut payload = vec![0; length("payload_length")];
        self.0.read_exact(&mut data).await.ok()?;
        self.0.read_exact(&mut payload).await.ok()?;
        let data = if data.is_empty() { Value::Null } else { serde_json::from_slice(&data).expect("JSON") };
        Some((line["type"].as_str().expect("a type").to_owned(), data, payload))
    }

    /// All events up to and including the first of this type.
    async fn until(&mut self, kind: &str) -> Vec<(String, Value, Vec<u8>)> {
        let mut events = Vec::new();
        loop {
            let event = self.next().await.unwrap_or_else(|| panic!("ended before {kind}: {events:?}"));
            let is_last = event.0 == kind;
            events.push(event);
            if is_last {
                return events;
            }
        }
    }

    /// The code of the error event with which the hub closes the connection.
    async fn refused(&mut self) -> String {
        let (_, data, _) = self.until("error").await.pop().expect("an error");
        assert_eq!(self.next().await, None, "the connection ends");
        assert!(data["text"].as_str().is_some_and(|text| !text.is_empty()), "{data}");
        data["code"].as_str().expect("a code").to_owned()
    }

    /// Half a second of a tone.
    async fn speak(&mut self) {
        let format = json!({"rate": 16_000, "width": 2, "channels": 1});
        self.send("audio-start", format.clone(), &[]).await;
        for _ in 0..5 {
            self.send("audio-chunk", format.clone(), &[0x20; 3_200]).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_utterance_is_transcribed_while_it_is_spoken() {
    let served = simple("turn on the light", "").await;
    let mut client = Client::connect(&served).await;
    client.speak().await;
    client.send("audio-stop", json!({}), &[]).await;
    let events = client.until("transcript-stop").await;
    let words: String = events
        .iter()
        .filter(|event| event.0 == "transcript-chunk")
        .map(|event| event.1["text"].as_str().expect("text"))
        .collect();
    assert_eq!(words.trim(), "turn on the light");
    let transcript = events.iter().find(|event| event.0 == "transcript").expect("the end");
    assert_eq!(transcript.1["text"], "turn on the light");
    served.hub.until("voice_requests_total{endpoint=\"transcriptions\",outcome=\"ok\"} ", 1.0).await;
    // The same connection serves the next request.
    client.send("ping", json!({"text": "x"}), &[]).await;
    assert_eq!(client.next().await.expect("a pong").1, json!({"text": "x"}));
    served.hub.stop().await;
}

#[tokio::test(start_paused = true)]
async fn turns_of_a_conversation_are_remembered_by_their_context() {
    let llm = FakeLlm::says(["The first.", "The second.", "The third."]);
    let served = serve(FakeStt::default(), llm.clone(), FakeTts::default(), Config::default(), Keys::default()).await;
    for (text, id) in [("one", "a"), ("two", "a"), ("three", "b")] {
        let mut client = Client::connect(&served).await;
        client.send("transcript", json!({"text": text, "context": {"conversation_id": id}}), &[]).await;
        let events = client.until("handled").await;
        assert_eq!(events.last().expect("handled").1["context"]["conversation_id"], id);
    }
    let users = |n: usize| {
        let request = llm.requests()[n].clone();
        request
            .messages
            .into_iter()
            .filter_map(|message| match message {
                Message::User(text) => Some(text),
                _ => None,
            })
            .collect::<Vec<_>>()
    };
    assert_eq!(
        (users(0), users(1), users(2)),
        (vec!["one".to_owned()], vec!["one".into(), "two".into()], vec!["three".into()])
    );
    served.hub.stop().await;
}

#[tokio::test(start_paused = true)]
async fn an_answer_begins_once_where_the_model_withdraws_what_it_thought() {
    let llm = FakeLlm::default();
    let text = |text: &str| Ok(LlmDelta::Text(text.into()));
    let end = Ok(LlmDelta::Done { finish: Finish::Stop, usage: None });
    llm.then(vec![text("Hm."), Ok(LlmDelta::Withdrawn), text("Hello "), text("there."), end]);
    let served = serve(FakeStt::default(), llm, FakeTts::default(), Config::default(), Keys::default()).await;
    let mut client = Client::connect(&served).await;
    client.send("transcript", json!({"text": "Hello?"}), &[]).await;
    let events = client.until("handled-stop").await;
    let kinds: Vec<_> = events.iter().map(|event| event.0.as_str()).collect();
    let chunk = "handled-chunk";
    assert_eq!(kinds, ["handled-start", chunk, chunk, chunk, "handled", "handled-stop"]);
    assert_eq!(events[4].1["text"], "Hello there.");
    served.hub.stop().await;
}

#[tokio::test(start_paused = true)]
async fn broken_peers_are_refused_and_others_do_not_notice() {
    let served = simple("", "Hello.").await;
    let long = "x".repeat(70_000);
    for (wrong, code) in [
        ("\n", "invalid-event"),
        ("GET / HTTP/1.1\r\n\r\n", "invalid-event"),
        ("{\"type\":\"x\",\"payload_length\":1000000000}\n", "invalid-event"),
        ("{\"type\":\"x\",\"data_length\":1000000000}\n", "invalid-event"),
        (&long, "invalid-event"),
        ("{\"type\":\"synthesize\"}\n", "invalid_value"),
        ("{\"type\":\"synthesize\",\"data\":{\"text\":\"x\",\"voice\":7}}\n", "invalid_value"),
        ("{\"type\":\"synthesize\",\"data\":{\"text\":\"x\",\"voice\":{\"name\":\"../x\"}}}\n", "voice_not_found"),
        ("{\"type\":\"audio-start\",\"data\":{\"rate\":0,\"width\":2,\"channels\":1}}\n", "invalid_value"),
        ("{\"type\":\"transcript\",\"data\":{\"text\":[]}}\n", "invalid_value"),
    ] {
        let mut client = Client::connect(&served).await;
        client.raw(wrong.as_bytes()).await;
        assert_eq!(client.refused().await, code, "{}", &wrong[..wrong.len().min(60)]);
    }
    let mut long = Client::connect(&served).await;
    long.send("synthesize-start", json!({}), &[]).await;
    for _ in 0..5 {
        long.send("synthesize-chunk", json!({"text": "word ".repeat(200)}), &[]).await;
    }
    assert_eq!(long.refused().await, "string_above_max_length");
    let mut canary = Client::connect(&served).await;
    canary.send("synthesize", json!({"text": "Hello."}), &[]).await;
    assert!(canary.until("audio-stop").await.len() > 2);
    served.hub.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_client_that_goes_gives_its_engine_back() {
    let tts = FakeTts::default().delayed(Duration::from_secs(60));
    let llm = FakeLlm::says(["Hello."]).delayed(Duration::from_secs(60));
    let served = serve(FakeStt::default(), llm, tts, Config::default(), Keys::default()).await;
    let mut client = Client::connect(&served).await;
    client.send("synthesize", json!({"text": "Hello."}), &[]).await;
    let mut second = Client::connect(&served).await;
    second.speak().await;
    let mut third = Client::connect(&served).await;
    third.send("transcript", json!({"text": "Hello."}), &[]).await;
    drop((client, second, third));
    for endpoint in ["speech", "transcriptions", "handle"] {
        let series = format!("voice_requests_total{{endpoint=\"{endpoint}\",outcome=\"cancelled\"}} ");
        served.hub.until(&series, 1.0).await;
    }
    let (_, usage) = crate::turns::get(&served.hub, "/api/usage").await;
    let total = &usage["data"][0]["total"];
    assert_eq!(total["transcription_seconds"], 0.5, "what was heard is charged: {usage}");
    assert!(total["tokens_in"].as_u64().is_some_and(|n| n > 0), "what was asked is charged: {usage}");
    served.hub.stop().await;
}

#[tokio::test(start_paused = true)]
async fn connections_are_bounded() {
    let served = simple("", "").await;
    let mut clients = Vec::new();
    for _ in 0..64 {
        clients.push(Client::connect(&served).await);
    }
    for client in &mut clients[..48] {
        client.send("synthesize-start", json!({}), &[]).await;
    }
    // Loopback stands for many clients and has three quarters of the places; one in use is never evicted.
    let mut served_still = 0;
    for client in &mut clients[..48] {
        client.send("synthesize-chunk", json!({"text": "Hello."}), &[]).await;
        client.send("synthesize-stop", json!({}), &[]).await;
        served_still += usize::from(client.next().await.is_some_and(|event| event.0 == "audio-start"));
    }
    assert!(served_still >= 32, "{served_still} of 48");
    assert!(clients[63].next().await.is_none(), "the last has no place");
    served.hub.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_hub_with_keys_serves_the_key_that_is_named() {
    let keys = || Keys::of(&["a-key"]);
    let parts = |config| Parts {
        config,
        engines: engines(FakeStt::default(), FakeLlm::default(), FakeTts::default()),
        metrics: Metrics::new(),
        keys: keys(),
        tls: None,
        manager: None,
    };
    let listener = || async { TcpListener::bind("127.0.0.1:0").await.expect("a free port") };
    for name in ["", "nobody's"] {
        let mut config = Config::default();
        config.wyoming.key = name.into();
        let extras = Extras { wyoming: Some(listener().await), ..Extras::default() };
        let served = antiphon::server::serve_with(listener().await, parts(config), extras, Default::default()).await;
        assert!(served.expect_err("refused").to_string().contains("wyoming.key"));
    }
}

#[tokio::test(start_paused = true)]
async fn requests_have_the_places_of_the_speech_api() {
    let mut config = Config::default();
    config.speech.max_requests = 1;
    let served = serve(FakeStt::default(), FakeLlm::default(), FakeTts::default(), config, Keys::default()).await;
    let mut first = Client::connect(&served).await;
    first.send("synthesize-start", json!({}), &[]).await;
    // The answer to the ping shows that the request has begun.
    first.send("ping", json!({"text": "x"}), &[]).await;
    first.until("pong").await;
    let mut second = Client::connect(&served).await;
    second.send("synthesize", json!({"text": "Hello."}), &[]).await;
    assert_eq!(second.refused().await, "server_overloaded");
    first.send("synthesize-stop", json!({}), &[]).await;
    first.until("synthesize-stopped").await;
    let mut third = Client::connect(&served).await;
    third.send("synthesize", json!({"text": "Hello."}), &[]).await;
    third.until("audio-stop").await;
    served.hub.stop().await;
}
