//! Models with a real hub and a real mirror: who may pull, progress reports, and that new sessions use the pulled model
//! while running sessions keep theirs.

use crate::hub::{Hub, Socket, loud, quiet};
use crate::speech_api::{TWO, transcribe, wav};
use antiphon::assembly::{EngineFactory, EngineManager, StageFailure};
use antiphon::config::Config;
use antiphon::server::{Keys, Parts};
use antiphon_engine_api::fakes::llm::FakeLlm;
use antiphon_engine_api::fakes::stt::FakeStt;
use antiphon_engine_api::fakes::tts::FakeTts;
use antiphon_engine_api::fakes::vad::FakeVad;
use antiphon_engine_api::llm::Llm;
use antiphon_engine_api::stt::Stt;
use antiphon_engine_api::tts::Tts;
use antiphon_engine_api::turn::TurnModel;
use antiphon_engine_api::vad::Vad;
use antiphon_registry::{ModelsConfig, Stage};
use antiphon_telemetry::Metrics;
use antiphon_test_server::{Answer, TestServer};
use reqwest::{Client, Method, StatusCode};
use serde_json::{Value, json};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

const REGISTRY: &str = r#"
[[model]]
name = "ears"
stage = "stt"
family = "whisper"
title = "Better ears"
base = "https://models.invalid/"
licence = "MIT"
languages = []
rate_hz = 16000
auto = 99
core_ms = 1
note = "For the test."
[[model.variant]]
precision = "f16"
files = [{ role = "model", path = "ears.bin", bytes = 10 }]
[[model.variant]]
precision = "q8_0"
files = [{ role = "model", path = "small.bin", about_mb = 1 }]

[[model]]
name = "voice"
stage = "tts"
family = "piper"
title = "Another voice"
base = "https://models.invalid/"
licence = "MIT"
languages = []
rate_hz = 16000
[[model.variant]]
precision = "fp32"
files = [{ role = "graph", path = "voice.onnx", about_mb = 1 }]

[[model]]
name = "english"
stage = "tts"
family = "piper"
title = "The best voice"
base = "https://models.invalid/"
licence = "MIT"
languages = ["en"]
rate_hz = 16000
auto = 190
core_ms = 1
[[model.variant]]
precision = "fp32"
files = [{ role = "graph", path = "english.onnx", about_mb = 1 }]

[[model]]
name = "icelandic"
stage = "tts"
family = "piper"
title = "A voice that speaks Icelandic"
base = "https://models.invalid/"
licence = "MIT"
languages = ["is"]
rate_hz = 16000
auto = 110
core_ms = 1
[[model.variant]]
precision = "fp32"
files = [{ role = "graph", path = "icelandic.onnx", about_mb = 1 }]
"#;

/// Transcribes "old" without a model and "new" with one; a model that starts with "x" cannot be loaded, and one that
/// starts with "slow" is loaded once there is a file `ears.go` beside it.
struct Puppets;

impl EngineFactory for Puppets {
    fn knows(&self, stage: Stage, family: &str) -> bool {
        [(Stage::Stt, "whisper"), (Stage::Tts, "piper")].contains(&(stage, family))
    }

    fn vad(&self, _: &Config) -> Result<Arc<dyn Vad>, StageFailure> {
        Ok(Arc::new(FakeVad))
    }

    fn turn(&self, _: &Config) -> Result<Arc<dyn TurnModel>, StageFailure> {
        Err(StageFailure::new("turn", "smart-turn", "there is none in this test"))
    }

    fn stt(&self, config: &Config) -> Result<Arc<dyn Stt>, StageFailure> {
        let model = std::fs::read_to_string(&config.stt.model).unwrap_or_default();
        if model.starts_with('x') {
            return Err(StageFailure::new("stt", "whisper", "it is no model of mine"));
        }
        while model.starts_with("slow") && !Path::new(&config.stt.model).with_extension("go").exists() {
            std::thread::sleep(Duration::from_millis(5));
        }
        let hears = if config.stt.engine == "whisper" { "new" } else { "old" };
        Ok(Arc::new(FakeStt::hears([hears; 3])))
    }

    fn llm(&self, _: &Config) -> Result<Arc<dyn Llm>, StageFailure> {
        Ok(Arc::new(FakeLlm::default()))
    }

    fn tts(&self, config: &Config) -> Result<Arc<dyn Tts>, StageFailure> {
        let model = std::fs::read_to_string(&config.tts.model).unwrap_or_default();
        if model.starts_with('x') {
            return Err(StageFailure::new("tts", "piper", "it is no voice"));
        }
        Ok(Arc::new(FakeTts::default()))
    }
}

/// A mirror that serves one file under two names.
fn mirror(file: &'static str) -> TestServer {
    TestServer::start(move |request| match request.path() {
        "/ears.bin" | "/small.bin" => Answer::text(file),
        _ => Answer::status(404),
    })
}

async fn start(folder: &Path, mirror: String, keys: Keys) -> Hub {
    start_in(folder, mirror, keys, "").await
}

/// Starts a hub with `stt.language` set.
async fn start_in(folder: &Path, mirror: String, keys: Keys, language: &str) -> Hub {
    let text = |path: &str| folder.join(path).to_str().expect("Unicode").to_owned();
    std::fs::write(folder.join("own.toml"), REGISTRY).expect("written");
    let models = ModelsConfig { dir: text("models"), registry: text("own.toml"), mirror, ..ModelsConfig::default() };
    let mut config = Config { models, ..Config::default() };
    config.speech.jobs_dir = text("jobs");
    config.stt.language = language.into();
    let manager = Arc::new(EngineManager::with(&config, Box::new(Puppets)).expect("the registry is right"));
    let standing = manager.load().expect("puppets load");
    let manager = Some((manager, standing.served));
    Hub::serve(Parts { config, engines: standing.engines, metrics: Metrics::new(), keys, tls: None, manager }).await
}

fn client() -> Client {
    // Only the first installation succeeds; a second one is not an error.
    let _ = rustls::crypto::ring::default_provider().install_default();
    Client::builder().no_proxy().build().expect("a client")
}

/// Sends a request; returns the status and the JSON body, `null` if it is not JSON.
async fn ask(hub: &Hub, method: Method, path: &str, headers: &[(&str, &str)]) -> (StatusCode, Value) {
    let mut request = client().request(method, url(hub, path));
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let answer = request.send().await.expect("an answer");
    (answer.status(), serde_json::from_slice(&answer.bytes().await.expect("a body")).unwrap_or(Value::Null))
}

fn url(hub: &Hub, path: &str) -> String {
    format!("http://{}{path}", hub.address)
}

/// The final state of the model's pull.
async fn end_of_pull(hub: &Hub) -> Value {
    let answer = client().get(url(hub, "/api/models/ears/pull")).send().await.expect("an answer");
    let text = answer.text().await.expect("events, and an end");
    let states: Vec<Value> = text
        .lines()
        .filter_map(|line| line.strip_prefix("data: "))
        .map(|data| serde_json::from_str(data).expect("JSON"))
        .collect();
    states.last().expect("at least one").clone()
}

async fn hears(socket: &mut Socket) -> String {
    socket.append(&loud(1_000)).await;
    socket.append(&quiet(600)).await;
    let events = socket.until("conversation.item.input_audio_transcription.completed").await;
    events.last().expect("one")["transcript"].as_str().expect("text").to_owned()
}

#[tokio::test(start_paused = true)]
async fn a_pulled_model_serves_the_next_session_and_running_ones_keep_theirs() {
    let folder = tempfile::tempdir().expect("a folder");
    let mirror = mirror("good model");
    let hub = start(folder.path(), mirror.url(""), Keys::default()).await;
    let (_, before) = ask(&hub, Method::GET, "/api/models", &[]).await;
    assert_eq!(before["may_change"], true);
    let stt = before["stages"].as_array().expect("stages").iter().find(|stage| stage["stage"] == "stt");
    assert_eq!(stt.expect("one")["offer"], "ears", "{before}");
    let mut running = hub.open("?intent=transcription").await.expect("a session");
    assert_eq!(hears(&mut running).await, "old");

    let (status, state) = ask(&hub, Method::POST, "/api/models/ears/pull", &[]).await;
    assert_eq!((status, &state["state"]), (StatusCode::ACCEPTED, &json!("pulling")));
    let last = end_of_pull(&hub).await;
    assert_eq!((&last["state"], &last["serves"]), (&json!("done"), &json!(true)), "{last}");
    let mut next = hub.open("?intent=transcription").await.expect("a session");
    assert_eq!(hears(&mut next).await, "new");
    assert_eq!(hears(&mut running).await, "old");
    let (_, ready) = ask(&hub, Method::GET, "/readyz", &[]).await;
    assert_eq!(ready["served"][1]["model"], "ears:f16", "{ready}");
    let (_, after) = ask(&hub, Method::GET, "/api/models", &[]).await;
    let ears = after["models"].as_array().expect("models").iter().find(|model| model["name"] == "ears").expect("ours");
    assert_eq!((&ears["serves"], &ears["variants"][0]["state"]), (&json!(true), &json!("whole")));

    // Another precision is on disk but does not serve.
    ask(&hub, Method::POST, "/api/models/ears:q8_0/pull", &[]).await;
    let last = end_of_pull(&hub).await;
    assert_eq!((&last["state"], &last["serves"]), (&json!("done"), &json!(false)), "{last}");
    assert!(last["message"].as_str().expect("text").contains("ears:f16 ranks higher"), "{last}");
    let by_precision = client().get(url(&hub, "/api/models/ears:q8_0/pull")).send().await.expect("an answer");
    assert_eq!(by_precision.status(), StatusCode::OK);

    // An active model cannot be removed.
    let (status, error) = ask(&hub, Method::DELETE, "/api/models/ears", &[]).await;
    assert_eq!(status, StatusCode::CONFLICT, "{error}");
    drop((running, next));
    hub.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_model_that_cannot_be_loaded_is_told_and_the_old_engine_goes_on() {
    let folder = tempfile::tempdir().expect("a folder");
    let mirror = mirror("x is wrong");
    let hub = start(folder.path(), mirror.url(""), Keys::default()).await;
    ask(&hub, Method::POST, "/api/models/ears/pull", &[]).await;
    let last = end_of_pull(&hub).await;
    assert_eq!(last["state"], "failed");
    assert!(last["message"].as_str().expect("text").contains("it is no model of mine"), "{last}");
    let mut session = hub.open("?intent=transcription").await.expect("a session");
    assert_eq!(hears(&mut session).await, "old");
    let (_, ready) = ask(&hub, Method::GET, "/readyz", &[]).await;
    assert_eq!(ready["served"][1]["passed_over"][0]["model"], "ears:f16", "{ready}");
    // An inactive model can be removed, and is no longer reported.
    let (status, gone) = ask(&hub, Method::DELETE, "/api/models/ears", &[]).await;
    assert_eq!(status, StatusCode::OK, "{gone}");
    let (_, ready) = ask(&hub, Method::GET, "/readyz", &[]).await;
    assert_eq!(ready["served"][1]["passed_over"], json!([]), "{ready}");
    assert!(!folder.path().join("models/ears").exists());
    let (status, _) = ask(&hub, Method::DELETE, "/api/models/ears", &[]).await;
    assert_eq!(status, StatusCode::NOT_FOUND);
    drop(session);
    hub.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_model_that_is_being_loaded_is_no_pull_to_cancel() {
    let folder = tempfile::tempdir().expect("a folder");
    let mirror = mirror("slow model");
    let hub = start(folder.path(), mirror.url(""), Keys::default()).await;
    ask(&hub, Method::POST, "/api/models/ears/pull", &[]).await;
    loop {
        let (_, seen) = ask(&hub, Method::GET, "/api/models", &[]).await;
        let ears = seen["models"].as_array().expect("models").iter().find(|model| model["name"] == "ears");
        let state = ears.expect("ours")["pull"]["state"].clone();
        if state == "loading" {
            break;
        }
        assert_eq!(state, "pulling", "{seen}");
    }
    let (status, said) = ask(&hub, Method::DELETE, "/api/models/ears/pull", &[]).await;
    assert_eq!((status, &said["error"]["code"]), (StatusCode::CONFLICT, &json!("model_in_use")), "{said}");
    assert!(said["error"]["message"].as_str().expect("text").contains("is being loaded"), "{said}");
    std::fs::write(folder.path().join("models/ears/ears.go"), "").expect("written");
    let last = end_of_pull(&hub).await;
    assert_eq!((&last["state"], &last["serves"]), (&json!("done"), &json!(true)), "{last}");
    assert_eq!(ask(&hub, Method::DELETE, "/api/models/ears/pull", &[]).await.0, StatusCode::NOT_FOUND);
    hub.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_mirror_without_the_file_is_told_and_the_hub_lives() {
    let folder = tempfile::tempdir().expect("a folder");
    let mirror = mirror("");
    let hub = start(folder.path(), mirror.url("/elsewhere"), Keys::default()).await;
    ask(&hub, Method::POST, "/api/models/ears:f16/pull", &[]).await;
    let last = end_of_pull(&hub).await;
    assert_eq!(last["state"], "failed");
    assert!(last["message"].as_str().expect("text").contains("the server answered 404"), "{last}");
    for (path, status) in [
        ("/api/models/nobody/pull", StatusCode::NOT_FOUND),
        ("/api/models/ears:f8/pull", StatusCode::NOT_FOUND),
        ("/api/models/..%2F..%2Fetc/pull", StatusCode::NOT_FOUND),
    ] {
        assert_eq!(ask(&hub, Method::POST, path, &[]).await.0, status, "{path}");
    }
    hub.stop().await;
}

#[tokio::test(start_paused = true)]
async fn only_whoever_runs_the_hub_may_pull() {
    let folder = tempfile::tempdir().expect("a folder");
    let keys = Keys::of(&["guest-key-1234567"]).with_admin(&["admin-key-1234567"]);
    let mirror = mirror("good model");
    let hub = start(folder.path(), mirror.url(""), keys).await;
    let proxied = ("x-forwarded-for", "203.0.113.9");
    let pull = async |headers: &[(&str, &str)]| ask(&hub, Method::POST, "/api/models/ears/pull", headers).await.0;
    assert_eq!(pull(&[]).await, StatusCode::UNAUTHORIZED);
    let guest = ("authorization", "Bearer guest-key-1234567");
    assert_eq!(pull(&[guest, proxied]).await, StatusCode::FORBIDDEN);
    assert_eq!(pull(&[guest]).await, StatusCode::FORBIDDEN, "there are admin keys: a silent proxy makes nobody one");
    assert_eq!(pull(&[guest, ("origin", "https://evil.example")]).await, StatusCode::FORBIDDEN);
    let (_, seen) = ask(&hub, Method::GET, "/api/models", &[guest, proxied]).await;
    assert_eq!(seen["may_change"], false);
    let (status, _) = ask(&hub, Method::DELETE, "/api/models/ears", &[guest, proxied]).await;
    assert_eq!(status, StatusCode::FORBIDDEN);
    let admin = ("authorization", "Bearer admin-key-1234567");
    let (_, seen) = ask(&hub, Method::GET, "/api/models", &[admin, proxied]).await;
    assert_eq!(seen["may_change"], true);
    assert_eq!(pull(&[admin, proxied]).await, StatusCode::ACCEPTED);
    hub.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_request_for_speech_may_name_a_model_that_is_here() {
    let folder = tempfile::tempdir().expect("a folder");
    let mirror = mirror("");
    let hub = start(folder.path(), mirror.url(""), Keys::default()).await;
    let speak = async |model: &str| {
        let body = json!({"model": model, "input": "Hello there.", "voice": "alloy", "response_format": "pcm"});
        let request = client().post(url(&hub, "/v1/audio/speech")).body(body.to_string());
        let answer = request.send().await.expect("an answer");
        (answer.status(), answer.text().await.unwrap_or_default())
    };
    assert_eq!(speak("voice").await.0, StatusCode::BAD_REQUEST, "it is not here yet");
    let put = |text: &str| {
        std::fs::create_dir_all(folder.path().join("models/voice")).expect("made");
        std::fs::write(folder.path().join("models/voice/voice.onnx"), text).expect("written");
    };
    put("x is no voice");
    let (status, said) = speak("voice").await;
    assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
    assert!(
        said.contains("cannot be loaded") && !said.contains("it is no voice"),
        "the details are the operator's: {said}"
    );
    put("good voice");
    for (model, status) in [
        ("voice", StatusCode::OK),
        ("voice:fp32", StatusCode::OK),
        ("tts-1", StatusCode::OK),
        ("voice:int4", StatusCode::BAD_REQUEST),
        ("ears", StatusCode::BAD_REQUEST),
        ("../voice", StatusCode::BAD_REQUEST),
    ] {
        assert_eq!(speak(model).await.0, status, "{model}");
    }
    hub.stop().await;
}

#[tokio::test(start_paused = true)]
async fn transcriptions_and_jobs_may_name_one_too_and_it_is_listed() {
    let folder = tempfile::tempdir().expect("a folder");
    let mirror = mirror("");
    let hub = start(folder.path(), mirror.url(""), Keys::default()).await;
    let put = |name: &str, file: &str| {
        std::fs::create_dir_all(folder.path().join("models").join(name)).expect("made");
        std::fs::write(folder.path().join("models").join(name).join(file), "good model").expect("written");
    };
    let listed = async || {
        let (_, list) = ask(&hub, Method::GET, "/v1/models", &[]).await;
        list["data"]
            .as_array()
            .expect("models")
            .iter()
            .map(|model| model["id"].to_string())
            .collect::<Vec<_>>()
            .join(" ")
    };
    assert!(!listed().await.contains("ears"), "it is not here yet");
    assert_eq!(transcribe(&hub, wav(&TWO), &[("model", "ears")]).await.status(), StatusCode::BAD_REQUEST);
    put("ears", "ears.bin");
    put("voice", "voice.onnx");
    assert!(listed().await.ends_with(r#""ears:f16" "voice:fp32""#), "{}", listed().await);
    let (status, one) = ask(&hub, Method::GET, "/v1/models/ears:f16", &[]).await;
    assert_eq!((status, &one["engine"], &one["task"]), (StatusCode::OK, &json!("whisper"), &json!("transcription")));
    for (model, hears) in [("whisper-1", "old old"), ("ears", "new new"), ("ears:f16", "new ")] {
        let heard = transcribe(&hub, wav(&TWO), &[("model", model)]).await.json::<Value>().await.expect("JSON");
        assert!(heard["text"].as_str().expect("text").starts_with(hears), "{model}: {heard}");
    }
    assert_eq!(transcribe(&hub, wav(&TWO), &[("model", "voice")]).await.status(), StatusCode::BAD_REQUEST);

    let submit = async || {
        let wish = json!({"model": "voice", "input": "Hello there.", "response_format": "pcm"});
        let request = client().post(url(&hub, "/v1/audio/speech/jobs")).body(wish.to_string());
        let job: Value = request.send().await.expect("an answer").json().await.expect("JSON");
        assert_eq!(job["model"], "voice", "{job}");
        loop {
            let path = format!("/v1/audio/speech/jobs/{}", job["id"].as_str().expect("an id"));
            let (_, job) = ask(&hub, Method::GET, &path, &[]).await;
            if !["queued", "running"].contains(&job["status"].as_str().expect("a status")) {
                break job;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let job = submit().await;
    assert_eq!(job["status"], "completed", "{job}");
    hub.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_voice_of_the_language_is_offered_before_a_better_one() {
    for (language, offer) in [("", Value::Null), ("is", json!("icelandic"))] {
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::create_dir_all(folder.path().join("models/english")).expect("made");
        std::fs::write(folder.path().join("models/english/english.onnx"), "good voice").expect("written");
        let mirror = mirror("");
        let hub = start_in(folder.path(), mirror.url(""), Keys::default(), language).await;
        let (_, seen) = ask(&hub, Method::GET, "/api/models", &[]).await;
        let tts = seen["stages"].as_array().expect("stages").iter().find(|stage| stage["stage"] == "tts").expect("one");
        assert_eq!((&tts["model"], &tts["offer"]), (&json!("english:fp32"), &offer), "{language:?}: {tts}");
        hub.stop().await;
    }
}
