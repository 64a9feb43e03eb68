//! The load generator against a real hub with fake engines: responses, interruptions, cross-talk, a bad network.

use antiphon::config::Config;
use antiphon::server::{self, Keys, Parts};
use antiphon_bench::BenchError;
use antiphon_bench::load::{self, Clip, Clips, Length, Load, Network, Outcome, Sign};
use antiphon_bench::mock::{self, Latencies};
use antiphon_client::{AudioMode, ConnectOptions};
use antiphon_engine_api::Engines;
use antiphon_engine_api::fakes::llm::FakeLlm;
use antiphon_engine_api::fakes::stt::FakeStt;
use antiphon_engine_api::fakes::tts::FakeTts;
use antiphon_engine_api::fakes::vad::FakeVad;
use antiphon_telemetry::Metrics;
use serde_json::json;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

const QUESTIONS: [&str; 2] = ["how many feet are in a mile", "what sound does a cow make"];

/// 200 ms of a loud tone: speech for the fake detector.
fn clip(said: &str) -> Clip {
    let tone = (0..4_800).map(|i| if i % 24 < 12 { 8_000 } else { -8_000 }).collect();
    Clip::new(said, Sign::Words { said: said.into(), expect: None }, tone).expect("it is loud")
}

/// Two sessions of two turns, each with its own clip, on a hub whose utterances are transcribed as `heard`, in order.
async fn talk(heard: &[&str], change: impl FnOnce(&mut Load)) -> Result<Outcome, BenchError> {
    let stt = FakeStt::hears(heard.iter().copied());
    // A response that repeated the question would be taken for the hub's own echo.
    let llm = FakeLlm::says(["That is a long story for another day."; 9]);
    let vad = Arc::new(FakeVad);
    let tts = Arc::new(FakeTts::default());
    talk_to(Engines { vad, turn: None, speaker: None, stt: Arc::new(stt), llm: Arc::new(llm), tts }, change).await
}

/// A hub in this process, on a free port.
#[allow(clippy::disallowed_methods)]
async fn start(engines: Engines) -> (SocketAddr, CancellationToken, JoinHandle<std::io::Result<()>>) {
    let mut config = Config::default();
    config.speech.jobs_dir.clear();
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = listener.local_addr().expect("bound");
    let stop = CancellationToken::new();
    let parts = Parts { config, engines, metrics: Metrics::new(), keys: Keys::default(), tls: None, manager: None };
    (address, stop.clone(), tokio::spawn(server::serve(listener, parts, stop)))
}

async fn talk_to(engines: Engines, change: impl FnOnce(&mut Load)) -> Result<Outcome, BenchError> {
    let (address, stop, served) = start(engines).await;
    let vad = json!({"type": "server_vad", "silence_duration_ms": 200});
    let mut load = Load {
        connect: ConnectOptions::new(format!("http://{address}")),
        session: json!({"type": "session.update", "session": {"type": "realtime", "audio": {"input": {"turn_detection": vad}}}}),
        clips: Arc::new(Clips::kept(QUESTIONS.map(clip).to_vec()).expect("some")),
        n_sessions: 2,
        one_first: true,
        length: Length::Turns(1),
        call_turns: None,
        warm_up: 1,
        stagger: Duration::from_millis(300),
        stop: CancellationToken::new(),
        barge_in: 0.0,
        network: Network::default(),
        process: None,
        patience: Duration::from_secs(10),
        seed: 1,
        n_turns: AtomicUsize::new(0),
        n_returns: Arc::default(),
    };
    change(&mut load);
    let outcome = load::run(load, &|_| ()).await;
    stop.cancel();
    served.await.expect("no panic").expect("it ends");
    outcome
}

#[tokio::test(start_paused = true)]
async fn every_turn_is_answered_and_belongs_to_its_session() {
    let outcome = talk(&[QUESTIONS[0]; 9], |load| load.n_sessions = 1).await.expect("it runs");
    assert_eq!((outcome.turns.len(), outcome.counted().count(), outcome.broken.len()), (2, 1, 0));
    assert!(outcome.turns.iter().all(|turn| turn.own && turn.wait.is_some()), "{:?}", outcome.turns);
    assert!(outcome.holds(Duration::from_secs(60)) && !outcome.holds(Duration::ZERO));
    // The latency includes the silence that ends the turn.
    assert!(outcome.waits().percentile(50.0).expect("a turn") >= 190.0);
}

#[tokio::test(start_paused = true)]
async fn a_question_of_another_session_in_the_transcript_is_a_mix_up() {
    let outcome = talk(&[QUESTIONS[0]; 9], |_| ()).await.expect("it runs");
    let mix_ups = outcome.mix_ups();
    assert_eq!(mix_ups.len(), 2, "{mix_ups:?}");
    assert!(mix_ups.iter().all(|what| what.starts_with("session 1")), "{mix_ups:?}");
    assert!(!outcome.holds(Duration::from_secs(60)), "independently of the latency");
}

#[tokio::test(start_paused = true)]
async fn replies_that_are_talked_over_fall_silent() {
    for mode in [AudioMode::Ga, AudioMode::Pcm16] {
        let interrupt = |load: &mut Load| {
            load.n_sessions = 1;
            load.barge_in = 1.0;
            load.connect.mode = mode;
        };
        let outcome = talk(&[QUESTIONS[0]; 9], interrupt).await.expect("it runs");
        let silences: Vec<_> = outcome.turns.iter().filter_map(|turn| turn.silence).collect();
        assert_eq!(silences.len(), 1, "{mode:?}: the second question interrupts the first answer");
        assert!(silences[0].is_some(), "{mode:?}: {:?}", outcome.turns);
        assert!(outcome.turns.iter().all(|turn| turn.wait.is_some()), "{mode:?}: {:?}", outcome.turns);
    }
}

#[tokio::test(start_paused = true)]
async fn a_bad_network_is_late_and_lossy_and_still_answered() {
    let bad = |load: &mut Load| {
        let jitter = Duration::from_millis(60);
        let stall = Duration::from_millis(200);
        load.network = Network { jitter, loss: 0.1, stall, stall_every: Duration::from_secs(1) };
        load.n_sessions = 1;
        load.connect.mode = AudioMode::Pcm16;
    };
    let outcome = talk(&[QUESTIONS[0]; 9], bad).await.expect("it runs");
    assert!(outcome.turns.iter().all(|turn| turn.wait.is_some()), "{:?}", outcome.turns);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_does_not_answer_one_session_is_no_load() {
    let silent = |load: &mut Load| {
        load.session["session"]["audio"]["input"]["turn_detection"]["create_response"] = false.into();
        load.patience = Duration::from_millis(500);
    };
    let error = talk(&[QUESTIONS[0]], silent).await.expect_err("no answer").to_string();
    assert_eq!(error, "the server does not answer a single session: there was no answer");
}

/// Remote engines over HTTP, all at the mock server's address.
async fn remote(address: std::net::SocketAddr) -> Engines {
    let mut config = Config::default();
    let url = format!("http://{address}/v1");
    for (engine, base_url, key) in [
        (&mut config.stt.engine, &mut config.stt.base_url, &mut config.stt.api_key_env),
        (&mut config.llm.engine, &mut config.llm.base_url, &mut config.llm.api_key_env),
        (&mut config.tts.engine, &mut config.tts.base_url, &mut config.tts.api_key_env),
    ] {
        *engine = "openai".into();
        *base_url = url.clone();
        *key = String::new();
    }
    Engines { vad: Arc::new(FakeVad), ..antiphon::assembly::build(&config).expect("they connect to nothing yet") }
}

#[tokio::test(start_paused = true)]
#[allow(clippy::disallowed_methods)]
async fn a_mark_goes_through_every_mock_engine_and_comes_back() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = listener.local_addr().expect("bound");
    let stop = CancellationToken::new();
    let latencies = Latencies { sound: Duration::from_millis(300), ..Latencies::default() };
    let served = tokio::spawn(mock::serve(listener, latencies, None, stop.clone()));
    let tone = |i: usize| (8_000.0 * (std::f64::consts::TAU * 440.0 * i as f64 / 24_000.0).sin()) as i16;
    let said: Vec<i16> = (0..7_200).map(tone).collect();
    let clip = |mark: usize| {
        let sign = Sign::Name { name: mock::name(mark), tone_hz: mock::tone_hz(mark) };
        Clip::new("x", sign, mock::marked(&said, (0, said.len()), mark)).expect("loud")
    };
    let clips = Arc::new(Clips::kept(vec![clip(3), clip(150)]).expect("some"));
    let outcome = talk_to(remote(address).await, |load| load.clips = clips).await.expect("it runs");
    assert_eq!(outcome.turns.len(), 4);
    assert!(outcome.turns.iter().all(|turn| turn.own), "{:?}", outcome.turns);
    stop.cancel();
    served.await.expect("no panic").expect("no error");
}
