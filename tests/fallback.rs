//! Upstream servers that die, hang, trickle or are overloaded in the middle of a conversation: the fallback engine serves, the
//! session goes on, and a server that failed is left alone until it works again. Real servers on loopback.

use crate::hub::{Hub, Socket, engines, loud, quiet};
use antiphon::assembly;
use antiphon::config::Config;
use antiphon::server::Keys;
use antiphon_engine_api::Engines;
use antiphon_engine_api::fakes::llm::FakeLlm;
use antiphon_engine_api::fakes::stt::FakeStt;
use antiphon_engine_api::fakes::tts::FakeTts;
use antiphon_engine_api::fakes::vad::FakeVad;
use antiphon_engine_api::tts::Tts;
use antiphon_engines::tts::TtsConfig;
use antiphon_test_server::{Answer, Request, TestServer};
use axum::http::StatusCode;
use serde_json::{Value, json};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::time::Instant;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;

/// How a server answers.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Manner {
    Works,
    /// No answer, with the connection open.
    Hangs,
    /// An answer that begins and never says anything.
    Trickles,
    /// 429, to be asked again in 30 s.
    Busy,
    /// 500.
    Fails,
    /// The first request hangs, others work.
    HangsOnce,
    /// The first request works, others fail.
    WorksOnce,
    /// 500 where the client's words are "poison".
    FailsOnPoison,
}

/// A server of all three stages, with OpenAI's endpoints.
struct Server {
    http: TestServer,
    manner: Arc<Mutex<Manner>>,
}

const STAGES: [&str; 3] = ["/v1/audio/transcriptions", CHAT, "/v1/audio/speech"];
const CHAT: &str = "/v1/chat/completions";

impl Server {
    /// Its words begin with its name.
    fn new(name: &'static str) -> Self {
        let manner = Arc::new(Mutex::new(Manner::Works));
        let next = manner.clone();
        let http = TestServer::start(move |request| {
            if !STAGES.contains(&request.path()) {
                return Answer::status(404);
            }
            let mut manner = next.lock().expect("no panic");
            match *manner {
                Manner::Works => works(name, request),
                Manner::Hangs => Answer::none(),
                Manner::Trickles => Answer::events("").repeat(": ping\n\n", Duration::from_millis(50)),
                Manner::Busy => Answer::refusal(429, "busy").header("retry-after", "30"),
                Manner::Fails => Answer::status(500),
                Manner::HangsOnce => {
                    *manner = Manner::Works;
                    Answer::none()
                }
                Manner::WorksOnce => {
                    *manner = Manner::Fails;
                    works(name, request)
                }
                Manner::FailsOnPoison if request.text().contains("poison") => Answer::status(500),
                Manner::FailsOnPoison => works(name, request),
            }
        });
        Self { http, manner }
    }

    fn set(&self, manner: Manner) {
        *self.manner.lock().expect("no panic") = manner;
    }

    fn n_asked(&self) -> usize {
        self.http.requests().iter().filter(|request| STAGES.contains(&request.path())).count()
    }

    fn n_chats(&self) -> usize {
        self.http.requests().iter().filter(|request| request.path() == CHAT).count()
    }
}

fn works(name: &str, request: &Request) -> Answer {
    match request.path() {
        "/v1/audio/transcriptions" => Answer::json(&json!({"text": format!("{name} heard it")})),
        // A tenth of a second, whatever the words.
        "/v1/audio/speech" => Answer::of("audio/pcm", b"\x00\x10".repeat(2_400)),
        _ => Answer::completion([format!(
            "The {name} model answers this. And then it says some more words, for a second chunk."
        )
        .as_str()]),
    }
}

/// The configuration of the stages at these servers.
fn config(primary: &Server, fallback: Option<&Server>, hedge_after_ms: u64) -> Config {
    let stage = |voice: &str| {
        let fallback = fallback.map_or_else(String::new, |fallback| {
            let address = fallback.http.url("/v1");
            format!(r#"fallback = {{ engine = "openai", base_url = "{address}", api_key_env = "" {voice} }}"#)
        });
        let address = primary.http.url("/v1");
        format!(
            "engine = \"openai\"\nbase_url = \"{address}\"\napi_key_env = \"\"\nhedge_after_ms = {hedge_after_ms}\n{fallback}\n"
        )
    };
    let voice = r#", voice = "nova""#;
    let text = format!(
        "[vad]\nengine = \"earshot\"\n[stt]\n{}[llm]\n{}[tts]\nvoice = \"ash\"\n{}",
        stage(""),
        stage(""),
        stage(voice)
    );
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("fallback.toml");
    std::fs::write(&path, text).expect("written");
    let sources = antiphon::config::Sources { file: Some(path), ..Default::default() };
    antiphon::config::load(&sources).unwrap_or_else(|error| panic!("{error}"))
}

/// A hub whose engines are those of the configuration.
async fn hub(config: Config) -> Hub {
    let engines = assembly::build(&config).expect("the engines start");
    // The fake detector takes a tone for speech.
    let engines = Engines { vad: Arc::new(FakeVad), ..engines };
    Hub::start(engines, config).await
}

#[tokio::test]
async fn the_turn_says_what_its_engines_cost() {
    let config = Config { tts: TtsConfig { engine: "flite".into(), ..TtsConfig::default() }, ..Config::default() };
    let tts = assembly::tts(&config).expect("flite starts");
    let fakes = engines(FakeStt::hears(["Hello"]), FakeLlm::says(["One, two, three."]), FakeTts::default());
    let hub = Hub::start(Engines { tts, ..fakes }, config).await;
    let mut socket = hub.connect("").await;
    assert_eq!(status(&socket.ask("Hello").await), "completed");
    let cost = last_turn(&hub).await["cost"].clone();
    assert!(cost["tts"]["cpu_ms"].as_f64().is_some_and(|ms| ms > 0.0), "{cost}");
    assert_eq!((&cost["cpu_ms"], &cost["gpu_ms"]), (&cost["tts"]["cpu_ms"], &json!(0.0)), "{cost}");
    assert!(cost.get("llm").is_none(), "that engine reports nothing: {cost}");
    drop(socket);
    let series = r#"antiphon_compute_milliseconds_total{stage="tts",kind="cpu""#;
    let counted = async {
        while !hub.metrics.render().contains(series) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), counted).await.expect("it is counted when the turn is settled");
}

#[tokio::test]
async fn a_voice_that_fails_in_the_middle_of_an_answer_is_replaced_for_the_rest_of_it() {
    let primary = Server::new("primary");
    let fallback = Server::new("fallback");
    primary.set(Manner::WorksOnce);
    let text = "One sentence is here. Another one follows it here. A third one comes behind. This is the last of them.";
    let voice = hub_voice(&config(&primary, Some(&fallback), 300));
    let fakes = engines(FakeStt::hears(["Hello"]), FakeLlm::says([text]), FakeTts::default());
    let hub = Hub::start(Engines { tts: voice, ..fakes }, Config::default()).await;
    let mut socket = hub.connect("").await;
    let events = socket.ask("Hello").await;
    assert_eq!(status(&events), "completed", "{events:?}");
    assert_eq!(primary.n_asked(), 2, "the rest of the answer is not asked for there");
    assert!(fallback.n_asked() >= 2, "{}", fallback.n_asked());
    let turn = last_turn(&hub).await;
    assert_eq!((turn["tts_fallback"].as_str(), turn["reply"].as_str()), (Some("openai"), Some(text)), "{turn}");
}

fn hub_voice(config: &Config) -> Arc<dyn Tts> {
    assembly::build(config).expect("the engines start").tts
}

/// Says something; the wait from its end to the first audio, and the events up to the end of the response.
async fn say(socket: &mut Socket) -> (Duration, Vec<Value>) {
    socket.append(&loud(300)).await;
    socket.append(&quiet(600)).await;
    let begun = Instant::now();
    let mut events = Vec::new();
    let mut first = None;
    loop {
        let event = socket.next().await;
        match event["type"].as_str() {
            Some("response.output_audio.delta") => first = first.or(Some(begun.elapsed())),
            Some("response.done") => {
                events.push(event);
                return (first.unwrap_or_default(), events);
            }
            _ => {}
        }
        events.push(event);
    }
}

fn status(events: &[Value]) -> &str {
    events.last().and_then(|done| done["response"]["status"].as_str()).expect("a response.done")
}

fn code(events: &[Value]) -> &str {
    let done = events.last().expect("a response.done");
    done["response"]["status_details"]["error"]["code"].as_str().unwrap_or_default()
}

async fn get(hub: &Hub, path: &str) -> (StatusCode, Value) {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let response = reqwest::get(format!("http://{}{path}", hub.address)).await.expect("an answer");
    let status = response.status();
    (status, response.json().await.expect("JSON"))
}

async fn breaker(hub: &Hub, stage: &str) -> String {
    let (_, state) = get(hub, "/api/state").await;
    state["upstreams"][stage]["engines"][0]["state"].as_str().unwrap_or_default().to_owned()
}

/// The last turn that has a response, once it is done.
async fn last_turn(hub: &Hub) -> Value {
    let (_, turns) = get(hub, "/api/turns").await;
    let turns = turns["turns"].as_array().or(turns["data"].as_array()).expect("turns").clone();
    turns.into_iter().find(|turn| !turn["response_id"].is_null()).expect("a turn with a response")
}

fn median(mut waits: Vec<Duration>) -> Duration {
    waits.sort();
    waits[waits.len() / 2]
}

#[tokio::test]
async fn a_conversation_goes_on_when_its_upstreams_are_killed() {
    let mut primary = Server::new("primary");
    let fallback = Server::new("fallback");
    let hub = hub(config(&primary, Some(&fallback), 300)).await;
    let mut socket = hub.connect("").await;
    let mut before = Vec::new();
    let mut behind = Vec::new();
    for _ in 0..5 {
        let (wait, events) = say(&mut socket).await;
        assert_eq!(status(&events), "completed", "{events:?}");
        before.push(wait);
    }
    let turn = last_turn(&hub).await;
    assert!(
        turn.get("llm_fallback").is_none() && turn["reply"].as_str().is_some_and(|r| r.contains("primary")),
        "{turn}"
    );
    assert_eq!(fallback.n_asked(), 0);
    primary.http.kill().await;
    for _ in 0..5 {
        let (wait, events) = say(&mut socket).await;
        assert_eq!(status(&events), "completed", "{events:?}");
        behind.push(wait);
        let turn = last_turn(&hub).await;
        for stage in ["stt_fallback", "llm_fallback", "tts_fallback"] {
            assert_eq!(turn[stage], "openai", "{turn}");
        }
        assert!(turn["reply"].as_str().is_some_and(|reply| reply.contains("fallback model")), "{turn}");
        assert!(turn["transcript"].as_str().is_some_and(|heard| heard.contains("fallback heard")), "{turn}");
    }
    let usual = median(before);
    let next = behind[0];
    let later = median(behind[1..].to_vec());
    let late = |wait: Duration| wait.as_secs_f64() * 1e3 - usual.as_secs_f64() * 1e3;
    #[allow(clippy::print_stdout, reason = "a figure of the documentation; shown with --no-capture")]
    {
        println!(
            "the upstream of all stages was killed: usual {usual:?}, the next answer {:+.1} ms, later ones {:+.1} ms",
            late(next),
            late(later)
        );
    }
    assert_eq!(hub.metric("antiphon_sessions_active "), 1.0);
    for stage in ["stt", "llm", "tts"] {
        // After its first second the breaker lets a probe through.
        assert_ne!(breaker(&hub, stage).await, "closed", "{stage}");
    }
    let (ready, body) = get(&hub, "/readyz").await;
    assert_eq!(ready, StatusCode::OK, "the fallback serves: {body}");
    let metrics = reqwest::get(format!("http://{}/metrics", hub.address)).await.expect("an answer");
    let metrics = metrics.text().await.expect("text");
    for line in [
        r#"antiphon_breaker_state{stage="llm",engine="openai",role="fallback"} 0"#,
        r#"antiphon_fallback_total{stage="llm",reason="brownout"} 0"#,
    ] {
        assert!(metrics.contains(line), "{line} in {metrics}");
    }
    let closed = r#"antiphon_breaker_state{stage="llm",engine="openai",role="primary"} 0"#;
    assert!(!metrics.contains(closed), "{metrics}");
}

#[tokio::test]
async fn servers_that_hang_or_trickle_are_left_after_the_first_turns() {
    for manner in [Manner::Hangs, Manner::Trickles] {
        let primary = Server::new("primary");
        let fallback = Server::new("fallback");
        let hub = hub(config(&primary, Some(&fallback), 200)).await;
        let mut socket = hub.connect("").await;
        primary.set(manner);
        let mut waits = Vec::new();
        for n in 0..4 {
            let (wait, events) = say(&mut socket).await;
            waits.push(wait.as_millis());
            assert_eq!(status(&events), "completed", "{manner:?}, turn {n}: {events:?}");
            assert_eq!(last_turn(&hub).await["llm_fallback"], "openai");
        }
        let (_, state) = get(&hub, "/api/state").await;
        let llm = &state["upstreams"]["llm"];
        #[allow(clippy::print_stdout, reason = "a figure of the documentation; shown with --no-capture")]
        {
            println!("{manner:?} at all stages, 200 ms to a hedged request: answers after {waits:?} ms");
        }
        assert!(llm["n_hedges"].as_u64().is_some_and(|n| n >= 2), "{state}");
        assert_eq!(llm["n_fallbacks"], 4, "{state}");
    }
}

#[tokio::test]
async fn an_overloaded_server_is_left_alone_for_as_long_as_it_asks() {
    let primary = Server::new("primary");
    let fallback = Server::new("fallback");
    let hub = hub(config(&primary, Some(&fallback), 300)).await;
    let mut socket = hub.connect("").await;
    primary.set(Manner::Busy);
    for _ in 0..3 {
        assert_eq!(status(&socket.ask("Hello").await), "completed");
    }
    assert_eq!(primary.n_asked(), 2, "once by the model, once by the voice");
    let (_, state) = get(&hub, "/api/state").await;
    let engine = &state["upstreams"]["llm"]["engines"][0];
    assert_eq!(engine["state"], "open", "{state}");
    assert!(engine["retry_ms"].as_u64().is_some_and(|ms| (20_000..=30_000).contains(&ms)), "{state}");
}

#[tokio::test]
async fn a_late_first_token_is_asked_for_once_more_at_the_same_server() {
    let primary = Server::new("primary");
    let hub = hub(config(&primary, None, 200)).await;
    let mut socket = hub.connect("").await;
    primary.set(Manner::HangsOnce);
    let events = socket.ask("Hello").await;
    assert_eq!(status(&events), "completed", "{events:?}");
    // Two chunks are spoken.
    assert_eq!(primary.n_asked(), 2 + 2);
    let (_, state) = get(&hub, "/api/state").await;
    let llm = &state["upstreams"]["llm"];
    assert_eq!((llm["n_fallbacks"].as_u64(), llm["n_hedges"].as_u64()), (Some(0), Some(1)), "{state}");
    assert_eq!(status(&socket.ask("Hello").await), "completed");
    assert_eq!(primary.n_asked(), 4 + 3);
}

#[tokio::test]
async fn a_server_without_a_fallback_that_fails_is_asked_no_more_until_it_works() {
    let primary = Server::new("primary");
    let hub = hub(config(&primary, None, 0)).await;
    let mut socket = hub.connect("").await;
    assert_eq!(status(&socket.ask("Hello").await), "completed");
    primary.set(Manner::Fails);
    for _ in 0..5 {
        assert_eq!(status(&socket.ask("Hello").await), "failed");
    }
    let n_asked = primary.n_asked();
    let events = socket.ask("Hello").await;
    assert_eq!((status(&events), code(&events)), ("failed", "engine_unavailable"), "{events:?}");
    assert_eq!(primary.n_asked(), n_asked, "it was not asked");
    assert_eq!(breaker(&hub, "llm").await, "open");
    let (ready, body) = get(&hub, "/readyz").await;
    assert_eq!((ready, &body["ready"]), (StatusCode::OK, &json!(true)), "sessions are admitted: {body}");
    assert!(body["reason"].as_str().is_some_and(|why| why.contains("stage llm")), "{body}");
    assert!(!body.to_string().contains("500"), "{body}");
    primary.set(Manner::Works);
    let works_again = async {
        while status(&socket.ask("Hello").await) != "completed" {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), works_again).await.expect("it is tried again");
    assert_eq!(breaker(&hub, "llm").await, "closed");
    assert_eq!(get(&hub, "/readyz").await.0, StatusCode::OK);
    assert_eq!(hub.metric("antiphon_sessions_active "), 1.0);
}

#[tokio::test]
async fn one_client_whose_requests_fail_keeps_no_other_away() {
    for with_fallback in [false, true] {
        let primary = Server::new("primary");
        let fallback = Server::new("fallback");
        primary.set(Manner::FailsOnPoison);
        let config = config(&primary, with_fallback.then_some(&fallback), 0);
        let engines = assembly::build(&config).expect("the engines start");
        let hub = Hub::with_keys(engines, config, Keys::of(&["sk-alice", "sk-bob"])).await;
        let connect = async |key: &str| {
            let mut request = format!("ws://{}/v1/realtime", hub.address).into_client_request().expect("an address");
            request.headers_mut().insert("authorization", format!("Bearer {key}").parse().expect("text"));
            let (stream, _) = crate::hub::connect(request).await.expect("the upgrade is accepted");
            let mut socket = Socket { stream, frames: Vec::new() };
            assert_eq!(socket.next().await["type"], "session.created");
            socket
        };
        let mut alice = connect("sk-alice").await;
        let mut bob = connect("sk-bob").await;
        // However long each answer takes: once her own breaker is open, a request is not sent.
        let mut barred = 0;
        for _ in 0..60 {
            let n_chats = primary.n_chats();
            let events = alice.ask("poison").await;
            assert_eq!(status(&events), if with_fallback { "completed" } else { "failed" }, "{events:?}");
            barred += usize::from(primary.n_chats() == n_chats);
            if !with_fallback && primary.n_chats() == n_chats {
                assert_eq!(code(&events), "engine_unavailable");
            }
            let n_chats = primary.n_chats();
            let events = bob.ask("Hello").await;
            assert_eq!(status(&events), "completed", "{events:?}");
            assert!(primary.n_chats() > n_chats, "his requests go to the server");
            if barred == 3 {
                break;
            }
        }
        assert_eq!(barred, 3, "her requests are not sent any more");
    }
}

#[tokio::test]
async fn sessions_of_one_address_keep_no_other_address_away() {
    let primary = Server::new("primary");
    let fallback = Server::new("fallback");
    primary.set(Manner::FailsOnPoison);
    let config = config(&primary, Some(&fallback), 0);
    let engines = assembly::build(&config).expect("the engines start");
    let hub = Hub::start(engines, config).await;
    for _ in 0..3 {
        let mut socket = hub.connect("").await;
        for _ in 0..2 {
            assert_eq!(status(&socket.ask("poison").await), "completed", "the fallback answers");
        }
    }
    let tcp = tokio::net::TcpSocket::new_v4().expect("a socket");
    tcp.bind("127.0.0.2:0".parse().expect("an address")).expect("another address");
    let tcp = tokio_tungstenite::MaybeTlsStream::Plain(tcp.connect(hub.address).await.expect("the hub listens"));
    let url = format!("ws://{}/v1/realtime", hub.address);
    let (stream, _) = tokio_tungstenite::client_async(url, tcp).await.expect("the upgrade is accepted");
    let mut other = Socket { stream, frames: Vec::new() };
    assert_eq!(other.next().await["type"], "session.created");
    let n_chats = primary.n_chats();
    assert_eq!(status(&other.ask("Hello").await), "completed");
    assert!(primary.n_chats() > n_chats, "its request goes to the server");
}
