//! A complete session: a hub with fake engines on loopback accepts any messages and still answers the last one.
//!
//! The input is a sequence of lines, each a message: after a `!` the rest is hexadecimal and is sent as a binary frame.
//! If a text line is JSON and causes an error, the error must contain its `event_id`. A final sentinel message must be
//! answered.
#![no_main]

use antiphon::config::Config;
use antiphon::server::{self, Keys, Parts};
use antiphon_engine_api::Engines;
use antiphon_engine_api::fakes::llm::FakeLlm;
use antiphon_engine_api::fakes::stt::FakeStt;
use antiphon_engine_api::fakes::tts::FakeTts;
use antiphon_engine_api::fakes::vad::FakeVad;
use antiphon_telemetry::Metrics;
use futures_util::{SinkExt, StreamExt};
use libfuzzer_sys::fuzz_target;
use serde_json::Value;
use std::cell::LazyCell;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::runtime::{Builder, Runtime};
use tokio_tungstenite::tungstenite::Message;
use tokio_util::sync::CancellationToken;

/// Much longer than any operation: a hub that is silent for this long is stuck.
const PATIENCE: Duration = Duration::from_secs(20);
const MAX_MESSAGES: usize = 40;
const SENTINEL: &str = r#"{"type":"conversation.item.retrieve","item_id":"nobody","event_id":"the sentinel"}"#;

thread_local! {
    static HUB: LazyCell<(Runtime, SocketAddr)> = LazyCell::new(|| {
        let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
        let address = runtime.block_on(start());
        (runtime, address)
    });
}

async fn start() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = listener.local_addr().expect("bound");
    let engines = Engines {
        vad: Arc::new(FakeVad),
        turn: None,
        speaker: None,
        stt: Arc::new(FakeStt::hears(["Hello."])),
        llm: Arc::new(FakeLlm::says(["One. Two. Three."])),
        tts: Arc::new(FakeTts::default()),
    };
    let mut config = Config::default();
    config.speech.jobs_dir.clear();
    let parts = Parts { config, engines, metrics: Metrics::new(), keys: Keys::default(), tls: None, manager: None };
    #[allow(clippy::disallowed_methods, reason = "the runtime ends it")]
    tokio::spawn(server::serve(listener, parts, CancellationToken::new()));
    address
}

fuzz_target!(|script: &str| {
    HUB.with(|hub| hub.0.block_on(talk(hub.1, script)));
});

async fn talk(address: SocketAddr, script: &str) {
    let modes = ["", "?audio=pcm16", "?audio=opus"];
    let url = format!("ws://{address}/v1/realtime{}", modes[script.len() % modes.len()]);
    let (socket, _) = tokio_tungstenite::connect_async(url).await.expect("the hub takes a session");
    let (mut sink, mut stream) = socket.split();
    let sending = async {
        for line in script.lines().take(MAX_MESSAGES) {
            let message = match line.strip_prefix('!') {
                Some(hex) => Message::binary(bytes_of(hex)),
                None => Message::text(line),
            };
            sink.send(message).await.expect("the session lives");
        }
        sink.send(Message::text(SENTINEL)).await.expect("the session lives");
    };
    let reading = async {
        loop {
            let message = stream.next().await.expect("the session lives").expect("a whole message");
            let Message::Text(text) = message else {
                assert!(!message.is_close(), "the session lives: {message:?}");
                continue;
            };
            let event: Value = serde_json::from_str(&text).expect("an event is JSON");
            assert!(event["type"].is_string() && event["event_id"].is_string(), "{event}");
            if event["error"]["event_id"] == "the sentinel" {
                return;
            }
        }
    };
    let both = async { tokio::join!(sending, reading) };
    tokio::time::timeout(PATIENCE, both).await.expect("the hub answers");
}

/// Decodes pairs of hexadecimal digits, up to the first invalid one.
fn bytes_of(hex: &str) -> Vec<u8> {
    let pairs = hex.as_bytes().chunks_exact(2);
    pairs.map_while(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()).collect()
}
