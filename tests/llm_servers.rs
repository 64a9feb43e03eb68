//! Language model servers on the hub's machine: found by what they really answer, listed for the operator, and connected while
//! sessions run.

use crate::hub::Hub;
use antiphon::assembly::{self, EngineFactory, EngineManager, StageFailure};
use antiphon::config::Config;
use antiphon::server::{Keys, Parts};
use antiphon_engine_api::fakes::stt::FakeStt;
use antiphon_engine_api::fakes::tts::FakeTts;
use antiphon_engine_api::fakes::vad::FakeVad;
use antiphon_engine_api::llm::Llm;
use antiphon_engine_api::stt::Stt;
use antiphon_engine_api::tts::Tts;
use antiphon_engine_api::turn::TurnModel;
use antiphon_engine_api::vad::Vad;
use antiphon_registry::Stage;
use antiphon_telemetry::Metrics;
use antiphon_test_server::{Answer, TestServer, unused_address};
use reqwest::{Client, Method, StatusCode};
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::sync::Arc;

/// What Ollama 0.5 answers.
const OLLAMA: &str = r#"{"object":"list","data":[{"id":"llama3.2:latest","object":"model","created":1733000000,"owned_by":"library"},
    {"id":"nomic-embed-text:latest","object":"model","created":1733000000,"owned_by":"library"}]}"#;
/// What vLLM answers.
const VLLM: &str = r#"{"object":"list","data":[{"id":"Qwen/Qwen3-4B","object":"model","created":1733000000,"owned_by":"vllm",
    "root":"Qwen/Qwen3-4B","parent":null,"max_model_len":40960,"permission":[]}]}"#;
/// What llama.cpp answers without its key.
const LOCKED: &str = r#"{"error":{"message":"Invalid API Key","type":"authentication_error","code":401}}"#;

/// The real language models, and fakes for the other stages.
struct RealLlm;

impl EngineFactory for RealLlm {
    fn knows(&self, _: Stage, _: &str) -> bool {
        false
    }

    fn vad(&self, _: &Config) -> Result<Arc<dyn Vad>, StageFailure> {
        Ok(Arc::new(FakeVad))
    }

    fn turn(&self, _: &Config) -> Result<Arc<dyn TurnModel>, StageFailure> {
        Err(StageFailure::new("turn", "smart-turn", "there is none in this test"))
    }

    fn stt(&self, _: &Config) -> Result<Arc<dyn Stt>, StageFailure> {
        Ok(Arc::new(FakeStt::default()))
    }

    fn llm(&self, config: &Config) -> Result<Arc<dyn Llm>, StageFailure> {
        assembly::llm(config)
    }

    fn tts(&self, _: &Config) -> Result<Arc<dyn Tts>, StageFailure> {
        Ok(Arc::new(FakeTts::default()))
    }
}

/// A server of language models.
fn server(status: u16, models: &'static str) -> TestServer {
    TestServer::start(move |request| match request.path() {
        "/v1/models" => Answer::of("application/json", models).with_status(status),
        "/v1/chat/completions" => Answer::completion(["I am a model."]),
        _ => Answer::status(404),
    })
}

async fn start(servers: &[SocketAddr], keys: Keys) -> Hub {
    let mut config = Config::default();
    config.llm.local_ports = servers.iter().map(SocketAddr::port).collect();
    let manager = Arc::new(EngineManager::with(&config, Box::new(RealLlm)).expect("the registry is right"));
    let active = manager.load().expect("fakes load");
    let manager = Some((manager, active.served));
    Hub::serve(Parts { config, engines: active.engines, metrics: Metrics::new(), keys, tls: None, manager }).await
}

async fn ask(hub: &Hub, method: Method, body: Option<Value>, key: Option<&str>) -> (StatusCode, Value) {
    // Only the first installation succeeds; a second one is not an error.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let client = Client::builder().no_proxy().build().expect("a client");
    let mut request = client.request(method, format!("http://{}/api/llm/servers", hub.address));
    if let Some(body) = body {
        request = request.json(&body);
    }
    if let Some(key) = key {
        request = request.bearer_auth(key);
    }
    let answer = request.send().await.expect("an answer");
    (answer.status(), serde_json::from_slice(&answer.bytes().await.expect("a body")).unwrap_or(Value::Null))
}

/// The status of the page of a model.
async fn model_status(hub: &Hub, model: &str) -> StatusCode {
    let page = reqwest::get(format!("http://{}/v1/models/{model}", hub.address)).await.expect("an answer");
    page.status()
}

/// What the hub's language model answers in a new session.
async fn answer(hub: &Hub) -> String {
    let mut socket = hub.connect("").await;
    socket
        .send(json!({"type": "session.update", "session": {"type": "realtime", "output_modalities": ["text"]}}))
        .await;
    let events = socket.ask("Who are you?").await;
    let done = events.iter().find(|event| event["type"] == "response.output_text.done").expect("words");
    done["text"].as_str().expect("text").to_owned()
}

#[tokio::test(start_paused = true)]
async fn servers_are_found_and_one_is_connected_for_the_next_session() {
    let ollama = server(200, OLLAMA);
    let vllm = server(200, VLLM);
    let locked = server(401, LOCKED);
    let other = server(200, "<html>a router's page</html>");
    let running = [&ollama, &vllm, &locked, &other].map(TestServer::address);
    let hub = start(&[&running[..], &[unused_address()]].concat(), Keys::default()).await;
    let ollama = ollama.address().port();
    let vllm = vllm.address().port();

    let (status, seen) = ask(&hub, Method::GET, None, None).await;
    assert_eq!(status, StatusCode::OK, "{seen}");
    assert_eq!((&seen["active"]["engine"], &seen["active"]["connected"]), (&json!("assistant"), &json!(false)));
    let mut servers: Vec<_> = seen["servers"].as_array().expect("servers").iter().collect();
    servers.sort_by_key(|server| server["models"].to_string());
    assert_eq!(servers.len(), 3, "{seen}");
    let names: Vec<_> = servers.iter().map(|server| (&server["port"], &server["name"])).collect();
    assert_eq!(names[0], (&json!(vllm), &json!("vLLM")));
    assert_eq!(names[1], (&json!(ollama), &json!("Ollama")));
    assert_eq!(servers[1]["models"], json!(["llama3.2:latest"]), "embeddings do not answer");
    assert!(servers[2]["problem"].as_str().expect("it is locked").contains("llm.api_key_env"), "{seen}");

    let before = answer(&hub).await;
    assert!(!before.contains("I am a model."), "{before}");
    let mut running = hub.connect("").await;
    let (status, said) = ask(&hub, Method::POST, Some(json!({"port": ollama, "model": "llama3.2:latest"})), None).await;
    assert_eq!((status, &said["active"]["connected"]), (StatusCode::OK, &json!(true)), "{said}");
    assert!(said["active"]["settings"].as_str().expect("settings").contains("model = \"llama3.2:latest\""), "{said}");
    assert_eq!(answer(&hub).await, "I am a model.");
    let events = running.ask("Who are you?").await;
    assert!(!json!(events).to_string().contains("I am a model."), "a running session keeps its engines");
    let ready = reqwest::get(format!("http://{}/readyz", hub.address)).await.expect("an answer");
    let ready: Value = ready.json().await.expect("JSON");
    assert_eq!(ready["remote"]["llm"]["model"], "llama3.2:latest", "{ready}");
    let listed = reqwest::get(format!("http://{}/v1/models", hub.address)).await.expect("an answer");
    let listed: Value = listed.json().await.expect("JSON");
    let models = listed["data"].as_array().expect("models");
    let model = models.iter().find(|model| model["task"] == "language").expect("a language model");
    assert_eq!((&model["id"], &model["engine"]), (&json!("llama3.2:latest"), &json!("openai")));
    assert_eq!(model_status(&hub, "llama3.2:latest").await, StatusCode::OK);

    let (status, said) = ask(&hub, Method::DELETE, None, None).await;
    assert_eq!((status, &said["active"]["engine"]), (StatusCode::OK, &json!("assistant")), "{said}");
    assert!(!answer(&hub).await.contains("I am a model."));
    assert_eq!(model_status(&hub, "llama3.2:latest").await, StatusCode::NOT_FOUND);
    drop(running);
    hub.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_client_cannot_name_an_address() {
    let ollama = server(200, OLLAMA);
    // It serves the same, on a port that the operator did not list.
    let unlisted = server(200, OLLAMA);
    let hub = start(&[ollama.address()], Keys::default()).await;
    let ollama = ollama.address().port();
    let unlisted = unlisted.address().port();
    for (body, status) in [
        (json!({"port": unlisted, "model": "llama3.2:latest"}), StatusCode::NOT_FOUND),
        (json!({"port": ollama, "model": "another"}), StatusCode::NOT_FOUND),
        (json!({"port": ollama, "model": "nomic-embed-text:latest"}), StatusCode::NOT_FOUND),
        (
            json!({"port": ollama, "model": "llama3.2:latest", "base_url": "http://192.0.2.1/v1"}),
            StatusCode::UNPROCESSABLE_ENTITY,
        ),
        (json!({"port": "192.0.2.1:80", "model": "llama3.2:latest"}), StatusCode::UNPROCESSABLE_ENTITY),
        (json!({"port": ollama, "model": "x".repeat(5_000)}), StatusCode::PAYLOAD_TOO_LARGE),
    ] {
        assert_eq!(ask(&hub, Method::POST, Some(body.clone()), None).await.0, status, "{body}");
    }
    hub.stop().await;
}

#[tokio::test(start_paused = true)]
async fn only_the_operator_sees_and_connects_servers() {
    let ollama = server(200, OLLAMA);
    let keys = Keys::of(&["guest-key-1234567"]).with_admin(&["admin-key-1234567"]);
    let hub = start(&[ollama.address()], keys).await;
    let choice = json!({"port": ollama.address().port(), "model": "llama3.2:latest"});
    for (method, body) in [(Method::GET, None), (Method::POST, Some(choice)), (Method::DELETE, None)] {
        let statuses = [None, Some("guest-key-1234567"), Some("admin-key-1234567")];
        let mut got = Vec::new();
        for key in statuses {
            got.push(ask(&hub, method.clone(), body.clone(), key).await.0);
        }
        assert_eq!(got, [StatusCode::UNAUTHORIZED, StatusCode::FORBIDDEN, StatusCode::OK], "{method}");
    }
    hub.stop().await;
}
