//! The engines' servers are contacted at startup, before any client connects, and a hub starts without them.

use crate::hub::Hub;
use antiphon::config::Config;
use antiphon_engine_api::Engines;
use antiphon_engine_api::fakes::vad::FakeVad;
use antiphon_engines::llm::LlmConfig;
use antiphon_engines::llm::openai::OpenAi;
use antiphon_engines::stt::SttConfig;
use antiphon_engines::stt::openai::OpenAiStt;
use antiphon_engines::tts::TtsConfig;
use antiphon_engines::tts::openai::OpenAiTts;
use std::collections::HashSet;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::net::TcpListener;
use tokio::time::timeout;

const TEST_TIMEOUT: Duration = Duration::from_secs(20);

fn remote(server: SocketAddr) -> Engines {
    let base_url = format!("http://{server}/v1");
    let stt = OpenAiStt::new(&SttConfig { base_url: base_url.clone(), ..SttConfig::default() });
    let llm = OpenAi::new(&LlmConfig { base_url: base_url.clone(), ..LlmConfig::default() });
    let tts = OpenAiTts::new(&TtsConfig { base_url, ..TtsConfig::default() });
    Engines {
        vad: Arc::new(FakeVad),
        turn: None,
        stt: Arc::new(stt.expect("right settings")),
        llm: Arc::new(llm.expect("right settings")),
        tts: Arc::new(tts.expect("right settings")),
    }
}

#[tokio::test(start_paused = true)]
async fn every_remote_engine_is_reached_before_a_client_comes() {
    let server = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let hub = Hub::start(remote(server.local_addr().expect("bound")), Config::default()).await;
    let mut open = Vec::new();
    let mut asked = HashSet::new();
    // None of the three requests is answered: all arrive concurrently, and the hub does not wait for them.
    for _ in 0..3 {
        let (stream, _) = timeout(TEST_TIMEOUT, server.accept()).await.expect("a connection").expect("accepted");
        let mut stream = BufReader::new(stream);
        let mut line = String::new();
        timeout(TEST_TIMEOUT, stream.read_line(&mut line)).await.expect("a request").expect("text");
        asked.insert(line.trim().to_owned());
        open.push(stream);
    }
    assert_eq!(asked, HashSet::from(["GET /v1/models HTTP/1.1".into(), "HEAD / HTTP/1.1".into()]));
    hub.connect("").await;
    // Engines that wait for a response do not delay the shutdown either.
    hub.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_hub_whose_engines_cannot_be_reached_starts() {
    let nobody = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = nobody.local_addr().expect("bound");
    drop(nobody);
    let hub = Hub::start(remote(address), Config::default()).await;
    let mut socket = hub.connect("").await;
    let events = socket.ask("Are you there?").await;
    let done = &events.last().expect("done")["response"];
    assert_eq!(done["status"], "failed", "{done}");
    hub.stop().await;
}
