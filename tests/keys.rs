//! API keys: ways to present one, rejections, and client secrets with their settings.

use crate::hub::{Hub, Socket, engines};
use antiphon::config::Config;
use antiphon::server::Keys;
use antiphon_engine_api::fakes::llm::FakeLlm;
use antiphon_engine_api::fakes::stt::FakeStt;
use antiphon_engine_api::fakes::tts::FakeTts;
use reqwest::Method;
use serde_json::{Value, json};
use tokio_tungstenite::tungstenite::client::IntoClientRequest;

const KEY: &str = "sk-antiphon-test-1";

async fn guarded() -> Hub {
    let engines = engines(FakeStt::default(), FakeLlm::says(["Hi.", "Hi."]), FakeTts::default());
    Hub::with_keys(engines, Config::default(), Keys::of(&["another-key", KEY])).await
}

/// Connects with an additional header.
async fn connect(hub: &Hub, query: &str, name: &'static str, value: &str) -> Socket {
    let mut request = format!("ws://{}/v1/realtime{query}", hub.address).into_client_request().expect("a request");
    request.headers_mut().insert(name, value.parse().expect("a header"));
    let (stream, _) = crate::hub::connect(request).await.expect("the upgrade is accepted");
    Socket { stream, frames: Vec::new() }
}

async fn bearer(hub: &Hub, key: &str) -> Socket {
    connect(hub, "", "authorization", &format!("Bearer {key}")).await
}

/// The error event and the close of a rejected client.
async fn refusal(mut socket: Socket) -> (Value, u16, String) {
    let event = socket.next().await;
    assert_eq!((&event["type"], &event["error"]["type"]), (&json!("error"), &json!("invalid_request_error")));
    assert!(event["event_id"].as_str().is_some_and(|id| id.starts_with("event_")), "{event}");
    let close = socket.close().await.expect("a close with a code");
    (event["error"]["code"].clone(), close.code.into(), close.reason.to_string())
}

/// Status, challenge and body of a response.
async fn http(hub: &Hub, method: Method, path: &str, auth: Option<&str>, body: &str) -> (u16, String, Value) {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let mut request = reqwest::Client::new().request(method, format!("http://{}{path}", hub.address));
    if let Some(auth) = auth {
        request = request.header("authorization", auth);
    }
    let response = request.body(body.to_owned()).send().await.expect("an answer");
    let challenge = response.headers().get("www-authenticate").map(|value| value.to_str().expect("text").to_owned());
    let status = response.status().as_u16();
    let text = response.text().await.expect("a body");
    (status, challenge.unwrap_or_default(), serde_json::from_str(&text).unwrap_or(Value::String(text)))
}

/// Creates a client secret with the API key.
async fn secret(hub: &Hub, body: Value) -> Value {
    let auth = format!("Bearer {KEY}");
    let path = "/v1/realtime/client_secrets";
    let (status, _, made) = http(hub, Method::POST, path, Some(&auth), &body.to_string()).await;
    assert_eq!(status, 200, "{made}");
    made
}

#[tokio::test(start_paused = true)]
async fn a_right_key_opens_by_header_and_by_subprotocol() {
    let hub = guarded().await;
    let mut socket = bearer(&hub, KEY).await;
    assert_eq!(socket.next().await["type"], "session.created");
    assert_eq!(socket.ask("Hello").await.last().expect("done")["response"]["status"], "completed");
    let offers = format!("realtime, openai-insecure-api-key.{KEY}, openai-agents-sdk.0.20");
    let mut socket = connect(&hub, "", "sec-websocket-protocol", &offers).await;
    assert_eq!(socket.next().await["type"], "session.created");
}

#[tokio::test(start_paused = true)]
async fn a_bad_key_is_told_after_the_upgrade_and_takes_no_place() {
    let hub = guarded().await;
    let wrong = (json!("invalid_api_key"), 3000, "invalid_request_error.invalid_api_key".to_owned());
    assert_eq!(refusal(bearer(&hub, "sk-antiphon-test-2").await).await, wrong);
    assert_eq!(refusal(bearer(&hub, "ek_0123456789").await).await, wrong);
    let offers = "realtime, openai-insecure-api-key.nope";
    assert_eq!(refusal(connect(&hub, "", "sec-websocket-protocol", offers).await).await, wrong);
    let missing = (Value::Null, 3000, "invalid_request_error".to_owned());
    assert_eq!(refusal(hub.open("").await.expect("the upgrade")).await, missing);
    let by_address = format!("?api_key={KEY}&key={KEY}");
    assert_eq!(refusal(hub.open(&by_address).await.expect("the upgrade")).await, missing);
    assert_eq!(hub.metric("antiphon_sessions_total "), 0.0);
}

#[tokio::test(start_paused = true)]
async fn everything_but_the_page_and_the_probes_needs_the_key() {
    let hub = guarded().await;
    for path in ["/", "/healthz", "/readyz"] {
        assert_eq!(http(&hub, Method::GET, path, None, "").await.0, 200, "{path}");
    }
    for path in ["/metrics", "/dashboard", "/api/turns", "/v1/audio/voices", "/no/such"] {
        let (status, challenge, body) = http(&hub, Method::GET, path, None, "").await;
        assert_eq!((status, &body["error"]["type"]), (401, &json!("invalid_request_error")), "{path}");
        assert_eq!(challenge.starts_with("Basic"), path == "/dashboard", "{path}: {challenge}");
        let (status, _, body) = http(&hub, Method::GET, path, Some("Bearer wrong"), "").await;
        assert_eq!((status, &body["error"]["code"]), (401, &json!("invalid_api_key")), "{path}");
        assert_ne!(http(&hub, Method::GET, path, Some(&format!("Bearer {KEY}")), "").await.0, 401, "{path}");
    }
    // A browser gets the dashboard page, which prompts for the key and contains no data.
    let page =
        reqwest::Client::new().get(format!("http://{}/dashboard", hub.address)).header("accept", "text/html,*/*");
    let page = page.send().await.expect("an answer");
    assert_eq!(
        (page.status().as_u16(), &page.headers()["www-authenticate"]),
        (401, &"Bearer".parse().expect("a header"))
    );
    assert!(page.text().await.expect("a body").to_lowercase().starts_with("<!doctype html>"));
    // "anybody:another-key", as a browser sends it after its prompt.
    assert_eq!(http(&hub, Method::GET, "/metrics", Some("Basic YW55Ym9keTphbm90aGVyLWtleQ=="), "").await.0, 200);
    let made = secret(&hub, json!({})).await;
    let guest = format!("Bearer {}", made["value"].as_str().expect("a key"));
    assert_eq!(http(&hub, Method::GET, "/metrics", Some(&guest), "").await.0, 401, "it opens the socket only");
    let (status, ..) = http(&hub, Method::POST, "/v1/realtime/client_secrets", Some(&guest), "{}").await;
    assert_eq!(status, 401, "nor does it make more of itself");
}

#[tokio::test(start_paused = true)]
async fn a_short_lived_key_opens_the_session_it_is_bound_to() {
    let hub = guarded().await;
    let session = json!({
        "type": "realtime", "model": "mine", "instructions": "Be brief.", "output_modalities": ["text"],
        "audio": {"input": {"turn_detection": null}, "output": {"speed": 1.2}},
    });
    let wish = json!({"expires_after": {"anchor": "created_at", "seconds": 60}, "session": session});
    let made = secret(&hub, wish).await;
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("after 1970").as_secs();
    assert!((now + 50..=now + 60).contains(&made["expires_at"].as_u64().expect("seconds")), "{made}");
    assert_eq!(made["session"]["instructions"], "Be brief.");
    assert_eq!(made["session"]["object"], "realtime.session");
    let offers = format!("realtime, openai-insecure-api-key.{}", made["value"].as_str().expect("a key"));
    for _ in 0..2 {
        let mut socket = connect(&hub, "?model=other", "sec-websocket-protocol", &offers).await;
        let begun = socket.next().await["session"].clone();
        for field in ["instructions", "model", "output_modalities", "audio", "type"] {
            assert_eq!(begun[field], made["session"][field], "{field}");
        }
        assert_eq!(begun["model"], "mine");
        let events = socket.ask("Hello").await;
        assert!(events.iter().any(|event| event["type"] == "response.output_text.done"), "text it was to be");
    }
}

#[tokio::test(start_paused = true)]
async fn a_key_may_be_bound_to_transcription() {
    let hub = guarded().await;
    let session = json!({"type": "transcription", "audio": {"input": {"transcription": {"language": "en"}}}});
    let made = secret(&hub, json!({"session": session})).await;
    assert_eq!(made["session"]["object"], "realtime.transcription_session");
    let mut socket = bearer(&hub, made["value"].as_str().expect("a key")).await;
    let begun = socket.next().await["session"].clone();
    assert_eq!((&begun["type"], &begun["audio"]), (&json!("transcription"), &made["session"]["audio"]));
    socket.send(json!({"type": "session.update", "session": {"type": "realtime"}})).await;
    assert_eq!(socket.next().await["type"], "error", "what it is for is fixed");
}

#[tokio::test(start_paused = true)]
async fn bad_wishes_for_a_key_are_refused_with_their_parameter() {
    let hub = guarded().await;
    let auth = format!("Bearer {KEY}");
    let path = "/v1/realtime/client_secrets";
    let check = async |body: &str, status: u16, param: Value| {
        let answer = http(&hub, Method::POST, path, Some(&auth), body).await;
        assert_eq!((answer.0, &answer.2["error"]["param"]), (status, &param), "{body}: {}", answer.2);
    };
    check(r#"{"session":{"type":"realtime","voice":"x"}}"#, 400, json!("session.voice")).await;
    check(r#"{"expires_after":{"seconds":1}}"#, 400, json!("expires_after.seconds")).await;
    check("nonsense", 400, Value::Null).await;
    let huge = json!({"session": {"type": "realtime", "instructions": "x".repeat(1_200_000)}});
    let (status, _, body) = http(&hub, Method::POST, path, Some(&auth), &huge.to_string()).await;
    let error = &body["error"];
    assert_eq!(
        (status, &error["type"], &error["code"]),
        (413, &json!("invalid_request_error"), &json!("invalid_body"))
    );
}

#[tokio::test(start_paused = true)]
async fn a_key_has_settings_as_large_as_those_of_an_update() {
    let hub = guarded().await;
    let long = || "x".repeat(250_000);
    let tool = json!({"type": "function", "name": "f", "parameters": {"type": "object", "description": long()}});
    let made = secret(&hub, json!({"session": {"type": "realtime", "instructions": long(), "tools": [tool]}})).await;
    assert_eq!(made["session"]["instructions"], long());
    let key = made["value"].as_str().expect("a key");
    assert_eq!(bearer(&hub, key).await.next().await["session"]["instructions"], long());
}

#[tokio::test(start_paused = true)]
async fn a_hub_without_keys_takes_any_but_a_dead_short_lived_one() {
    let engines = engines(FakeStt::default(), FakeLlm::default(), FakeTts::default());
    let hub = Hub::start(engines, Config::default()).await;
    assert_eq!(bearer(&hub, "none").await.next().await["type"], "session.created");
    let (code, close, _) = refusal(bearer(&hub, "ek_gone").await).await;
    assert_eq!((code, close), (json!("invalid_api_key"), 3000));
    let made = http(&hub, Method::POST, "/v1/realtime/client_secrets", None, "").await.2;
    assert_eq!(bearer(&hub, made["value"].as_str().expect("a key")).await.next().await["type"], "session.created");
}

#[tokio::test(start_paused = true)]
async fn a_key_is_refused_what_an_update_would_be() {
    let hub = guarded().await;
    let auth = format!("Bearer {KEY}");
    let tool = |url: &str| json!({"type": "mcp", "server_label": "x", "server_url": url});
    for (session, code, param) in [
        (
            json!({"tools": [tool("http://127.0.0.1:9/mcp")]}),
            json!("mcp_server_not_allowed"),
            "session.tools[0].server_url",
        ),
        (
            json!({"tools": [{"type": "mcp", "server_label": "x"}]}),
            json!("missing_required_parameter"),
            "session.tools[0].server_url",
        ),
        (json!({"tool_choice": {"type": "function", "name": "nobody"}}), json!("invalid_value"), "session.tool_choice"),
    ] {
        let mut wish = json!({"session": {"type": "realtime"}});
        wish["session"].as_object_mut().expect("an object").extend(session.as_object().expect("an object").clone());
        let path = "/v1/realtime/client_secrets";
        let (status, _, body) = http(&hub, Method::POST, path, Some(&auth), &wish.to_string()).await;
        let error = &body["error"];
        assert_eq!((status, &error["code"], &error["param"]), (400, &code, &json!(param)), "{body}");
        assert_eq!(error.get("event_id"), None, "{body}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_key_is_as_lenient_as_the_configuration() {
    let mut config = Config::default();
    config.session.refuse_unknown_fields = false;
    let engines = engines(FakeStt::default(), FakeLlm::default(), FakeTts::default());
    let hub = Hub::with_keys(engines, config, Keys::of(&[KEY])).await;
    let made = secret(&hub, json!({"session": {"type": "realtime", "of_next_year": 1, "instructions": "Hi."}})).await;
    assert_eq!(made["session"]["instructions"], "Hi.");
}

#[tokio::test(start_paused = true)]
async fn the_names_before_ga_make_keys_too() {
    let hub = guarded().await;
    let auth = format!("Bearer {KEY}");
    let path = "/v1/realtime/sessions";
    let wish = json!({"model": "mine", "modalities": ["text"], "instructions": "Be brief.", "turn_detection": null,
        "input_audio_format": "g711_ulaw", "temperature": 0.8, "client_secret": {"expires_after": {"seconds": 60}}});
    let (status, _, made) = http(&hub, Method::POST, path, Some(&auth), &wish.to_string()).await;
    assert_eq!(status, 200, "{made}");
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("after 1970").as_secs();
    let expires_at = made["client_secret"]["expires_at"].as_u64().expect("seconds");
    assert!((now + 50..=now + 60).contains(&expires_at), "{made}");
    for field in ["model", "modalities", "instructions", "turn_detection", "input_audio_format"] {
        assert_eq!(made[field], wish[field], "{field}: {made}");
    }
    assert_eq!((&made["object"], made.get("type")), (&json!("realtime.session"), None));
    let mut socket = bearer(&hub, made["client_secret"]["value"].as_str().expect("a key")).await;
    let begun = socket.next().await["session"].clone();
    assert_eq!((&begun["output_modalities"], &begun["instructions"]), (&json!(["text"]), &json!("Be brief.")));

    assert_eq!(http(&hub, Method::POST, path, None, "{}").await.0, 401);
    assert_eq!(http(&hub, Method::POST, path, Some(&auth), "").await.0, 200, "without wishes");
    let (status, _, refused) = http(&hub, Method::POST, path, Some(&auth), r#"{"modalities":["smell"]}"#).await;
    assert_eq!((status, &refused["error"]["type"]), (400, &json!("invalid_request_error")), "{refused}");
    let (status, _, refused) = http(&hub, Method::POST, path, Some(&auth), r#"{"volume":3}"#).await;
    assert_eq!((status, &refused["error"]["param"]), (400, &json!("volume")), "{refused}");
}
