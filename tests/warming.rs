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
use antiphon_test_server::{Answer, TestServer, unused_address};
use std::collections::HashSet;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
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
        speaker: None,
        stt: Arc::new(stt.expect("right settings")),
        llm: Arc::new(llm.expect("right settings")),
        tts: Arc::new(tts.expect("right settings")),
    }
}

#[tokio::test(start_paused = true)]
async fn every_remote_engine_is_reached_before_a_client_comes() {
    let server = TestServer::start(|_| Answer::none());
    let hub = Hub::start(remote(server.address()), Config::default()).await;
    // None of the three requests is answered: all arrive concurrently, and the hub does not wait for them.
    timeout(TEST_TIMEOUT, server.request(2)).await.expect("three requests");
    let requests = server.requests().into_iter().map(|request| format!("{} {}", request.method, request.target));
    assert_eq!(requests.collect::<HashSet<_>>(), HashSet::from(["GET /v1/models".into(), "HEAD /".into()]));
    hub.connect("").await;
    // Engines that wait for a response do not delay the shutdown either.
    hub.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_hub_whose_engines_cannot_be_reached_starts() {
    let hub = Hub::start(remote(unused_address()), Config::default()).await;
    let mut socket = hub.connect("").await;
    let events = socket.ask("Are you there?").await;
    let done = &events.last().expect("done")["response"];
    assert_eq!(done["status"], "failed", "{done}");
    hub.stop().await;
}
