//! Limits of clients over real sockets: rate limits, scopes and expiry of keys, usage, the audit log.

use crate::hub::{Hub, Socket, engines, loud, quiet};
use antiphon::config::Config;
use antiphon::server::Keys;
use antiphon_engine_api::fakes::llm::FakeLlm;
use antiphon_engine_api::fakes::stt::FakeStt;
use antiphon_engine_api::fakes::tts::FakeTts;
use reqwest::Method;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::time::{Instant, timeout};
use tokio_tungstenite::tungstenite::Error;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;

const TEST_TIMEOUT: Duration = Duration::from_secs(20);

/// A configuration with these limits.
fn config(limits: &str) -> Config {
    let limits = toml::from_str(limits).expect("limits");
    let mut config = Config { limits, ..Config::default() };
    config.speculation.after_ms = 0;
    config
}

async fn hub(config: Config, keys: Keys) -> Hub {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let answers = FakeLlm::says(["Hi."; 200]);
    Hub::with_keys(engines(FakeStt::hears(["hello"; 40]), answers, FakeTts::default()), config, keys).await
}

/// An entry of the file of keys. The key is `sk-` and its name.
fn entry(name: &str, more: &str) -> String {
    let digest: String = Sha256::digest(key(name)).iter().map(|byte| format!("{byte:02x}")).collect();
    format!("[[key]]\nname = \"{name}\"\nsha256 = \"{digest}\"\n{more}\n")
}

fn key(name: &str) -> String {
    format!("sk-{name}")
}

/// Status, headers and body of a response.
async fn http(hub: &Hub, method: &str, path: &str, name: &str, body: &str) -> (u16, BTreeMap<String, String>, Value) {
    let method: Method = method.parse().expect("a method");
    let mut request = reqwest::Client::new().request(method, format!("http://{}{path}", hub.address));
    if !name.is_empty() {
        request = request.bearer_auth(key(name));
    }
    let response = request.body(body.to_owned()).send().await.expect("an answer");
    let headers = response.headers().iter();
    let headers = headers.map(|(name, value)| (name.to_string(), value.to_str().unwrap_or_default().to_owned()));
    let status = response.status().as_u16();
    let headers = headers.collect();
    // A stream of events has no end.
    let text = match timeout(Duration::from_millis(500), response.text()).await {
        Ok(text) => text.unwrap_or_default(),
        Err(_) => String::new(),
    };
    (status, headers, serde_json::from_str(&text).unwrap_or(Value::String(text)))
}

/// An upgrade with these headers: the socket, or the status; and the response's headers.
async fn upgrade(hub: &Hub, more: &[(&'static str, &str)]) -> (Result<Socket, u16>, BTreeMap<String, String>) {
    let mut request = format!("ws://{}/v1/realtime", hub.address).into_client_request().expect("a request");
    for (name, value) in more {
        request.headers_mut().insert(*name, value.parse().expect("a header"));
    }
    let of = |headers: &tokio_tungstenite::tungstenite::http::HeaderMap| {
        headers.iter().map(|(name, value)| (name.to_string(), value.to_str().unwrap_or_default().to_owned())).collect()
    };
    match crate::hub::connect(request).await {
        Ok((stream, response)) => (Ok(Socket { stream, frames: Vec::new() }), of(response.headers())),
        Err(Error::Http(response)) => (Err(response.status().as_u16()), of(response.headers())),
        Err(error) => panic!("{error}"),
    }
}

async fn connect(hub: &Hub, name: &str) -> Socket {
    let auth = format!("Bearer {}", key(name));
    upgrade(hub, &[("authorization", &auth)]).await.0.expect("accepted")
}

#[tokio::test(start_paused = true)]
async fn sessions_beyond_a_keys_rate_are_refused_with_an_estimate_and_other_keys_notice_nothing() {
    let keys = Keys::of(&["sk-eve", "sk-bob"]);
    let hub = hub(config("sessions_per_minute = 2\nresponses_per_minute = 30"), keys).await;
    let eve = [("authorization", "Bearer sk-eve")];
    let (socket, headers) = upgrade(&hub, &eve).await;
    socket.expect("accepted");
    assert_eq!(
        (headers["x-ratelimit-limit-requests"].as_str(), &headers["x-ratelimit-reset-requests"]),
        ("30", &"0s".into())
    );
    assert_eq!(headers["x-ratelimit-remaining-tokens"], "5000000");
    upgrade(&hub, &eve).await.0.expect("accepted");
    let (refused, headers) = upgrade(&hub, &eve).await;
    assert_eq!(refused.err(), Some(429));
    let seconds: u64 = headers["retry-after"].parse().expect("seconds");
    assert!((20..=30).contains(&seconds), "{headers:?}");
    assert_eq!(
        (headers["x-ratelimit-limit-sessions"].as_str(), headers["x-ratelimit-remaining-sessions"].as_str()),
        ("2", "0")
    );
    assert!(headers["x-ratelimit-reset-sessions"].ends_with('s'));
    upgrade(&hub, &[("authorization", "Bearer sk-bob")]).await.0.expect("another key's");
}

#[tokio::test(start_paused = true)]
async fn an_address_behind_a_trusted_proxy_has_a_limit_of_its_own() {
    let mut config = config("address_sessions_per_minute = 1\naddress_requests_per_minute = 2");
    config.server.trusted_proxies = vec!["127.0.0.1".into()];
    let hub = hub(config, Keys::default()).await;
    let of = |address: &'static str| [("x-forwarded-for", address)];
    upgrade(&hub, &of("192.0.2.1")).await.0.expect("the first");
    assert_eq!(upgrade(&hub, &of("192.0.2.1")).await.0.err(), Some(429));
    upgrade(&hub, &of("192.0.2.2")).await.0.expect("another address");
    let ask = async |address: &str| {
        let request = reqwest::Client::new().get(format!("http://{}/v1/models", hub.address));
        request.header("x-forwarded-for", address).send().await.expect("an answer")
    };
    assert_eq!(
        (ask("192.0.2.1").await.status(), ask("192.0.2.1").await.status().as_u16()),
        (reqwest::StatusCode::OK, 200)
    );
    let refused = ask("192.0.2.1").await;
    assert_eq!(refused.status().as_u16(), 429);
    assert!(
        refused.headers().contains_key("retry-after") && refused.headers().contains_key("x-ratelimit-reset-requests")
    );
    let body: Value = refused.json().await.expect("JSON");
    assert_eq!(
        (&body["error"]["type"], &body["error"]["code"]),
        (&json!("rate_limit_error"), &json!("rate_limit_exceeded"))
    );
    assert!(body["error"]["message"].as_str().is_some_and(|why| why.contains("limits.address_requests_per_minute")));
    assert_eq!(ask("192.0.2.2").await.status().as_u16(), 200);
    for _ in 0..9 {
        upgrade(&hub, &[]).await.0.expect("the proxy names no client, so it stands for many");
    }
}

#[tokio::test(start_paused = true)]
async fn what_a_phones_provider_asks_uses_up_no_limit() {
    let mut config = config("address_requests_per_minute = 1");
    config.server.trusted_proxies = vec!["127.0.0.1".into()];
    let hub = hub(config, Keys::default()).await;
    let ask = async |method: Method, path: &str| {
        let request = reqwest::Client::new().request(method, format!("http://{}{path}", hub.address));
        let response = request.header("x-forwarded-for", "192.0.2.1").send().await.expect("an answer");
        response.status().as_u16()
    };
    for _ in 0..2 {
        // Nobody has signed them.
        assert_eq!(ask(Method::POST, "/v1/telephony/twilio/voice").await, 401);
        assert_eq!(ask(Method::POST, "/v1/telephony/twilio/status").await, 403);
    }
    assert_eq!(ask(Method::GET, "/v1/models").await, 200);
    assert_eq!(ask(Method::GET, "/v1/models").await, 429);
}

#[tokio::test(start_paused = true)]
async fn responses_beyond_a_sessions_rate_are_refused_and_the_figures_are_real() {
    let hub = hub(config("session_responses_per_minute = 2"), Keys::default()).await;
    let mut socket = hub.connect("").await;
    let figures = async |socket: &mut Socket| {
        socket.ask("Hello").await;
        let event = socket.until("rate_limits.updated").await.pop().expect("there");
        let limits = event["rate_limits"].as_array().expect("a list").clone();
        assert_eq!((&limits[0]["name"], &limits[1]["name"]), (&json!("requests"), &json!("tokens")));
        limits
    };
    let first = figures(&mut socket).await;
    assert_eq!((&first[0]["limit"], &first[0]["remaining"]), (&json!(2), &json!(1)));
    assert!(first[0]["reset_seconds"].as_f64().is_some_and(|seconds| (20.0..=30.0).contains(&seconds)), "{first:?}");
    assert!(first[1]["remaining"].as_u64().is_some_and(|n| n < 5_000_000), "{first:?}");
    let second = figures(&mut socket).await;
    assert_eq!(second[0]["remaining"], 0);
    socket.send(json!({"type": "response.create", "event_id": "mine"})).await;
    let error = socket.until("error").await.pop().expect("there")["error"].clone();
    assert_eq!(
        (&error["type"], &error["code"], &error["event_id"]),
        (&json!("rate_limit_error"), &json!("rate_limit_exceeded"), &json!("mine"))
    );
    assert!(
        error["message"].as_str().is_some_and(|why| why.contains("limits.session_responses_per_minute")),
        "{error}"
    );
    // A turn by voice is answered by a response that fails; the session goes on.
    socket.append(&loud(800)).await;
    socket.append(&quiet(1_500)).await;
    let events = socket.until("response.done").await;
    let done = &events.last().expect("done")["response"];
    assert_eq!(
        (&done["status"], &done["status_details"]["error"]["code"]),
        (&json!("failed"), &json!("rate_limit_exceeded"))
    );
    assert!(events.iter().any(|event| event["type"] == "input_audio_buffer.committed"));
    hub.connect("").await.ask("Hello").await;
}

#[tokio::test(start_paused = true)]
async fn audio_ahead_of_its_limit_waits_and_nothing_is_lost() {
    let hub = hub(config("session_audio_seconds_per_minute = 60"), Keys::default()).await;
    let mut socket = hub.connect("").await;
    let begun = Instant::now();
    for _ in 0..63 {
        socket.append(&quiet(1_000)).await;
    }
    let all_came = async {
        while http(&hub, "GET", "/api/usage", "", "").await.2["data"][0]["total"]["audio_in_seconds"].as_f64()
            < Some(63.0)
        {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(TEST_TIMEOUT, all_came).await.expect("counted");
    // The hub reads one more message, and the others when the three seconds beyond the limit are paid back.
    socket.append(&loud(800)).await;
    socket.append(&quiet(1_500)).await;
    let events = socket.until("response.done").await;
    assert!(begun.elapsed() >= Duration::from_secs(2), "{:?}", begun.elapsed());
    let started = events.iter().find(|event| event["type"] == "input_audio_buffer.speech_started").expect("heard");
    let at = started["audio_start_ms"].as_u64().expect("a time");
    assert!((62_000..=63_100).contains(&at), "every second counts: {at}");
    // A client that is minutes ahead is closed, and told why.
    socket.append(&quiet(200_000)).await;
    let error = socket.until("error").await.pop().expect("there")["error"].clone();
    assert_eq!(error["code"], "rate_limit_exceeded");
    let close = socket.close().await.expect("a close with a code");
    assert_eq!(u16::from(close.code), 1008, "{close:?}");
}

#[tokio::test(start_paused = true)]
async fn the_speech_api_has_openais_headers_and_limits() {
    let keys = entry(
        "web",
        "limits = { characters_per_minute = 20, transcription_seconds_per_minute = 1, jobs_per_minute = 1 }",
    );
    let mut config = config("requests_per_minute = 50");
    let jobs = tempfile::tempdir().expect("a folder");
    config.speech.jobs_dir = jobs.path().to_str().expect("text").into();
    let hub = hub(config, Keys::of_text(&keys).expect("keys")).await;
    let speak = async || http(&hub, "POST", "/v1/audio/speech", "web", r#"{"input": "Fifteen letters"}"#).await;
    let (status, headers, _) = speak().await;
    assert_eq!(status, 200);
    assert_eq!(
        (headers["x-ratelimit-limit-requests"].as_str(), headers["x-ratelimit-remaining-requests"].as_str()),
        ("50", "49")
    );
    assert_eq!(headers["x-ratelimit-remaining-characters"], "5");
    assert!(headers["x-ratelimit-reset-requests"].starts_with("1."), "{headers:?}");
    assert_eq!(speak().await.0, 200, "while there is anything left");
    let (status, headers, body) = speak().await;
    assert_eq!((status, &body["error"]["code"]), (429, &json!("rate_limit_exceeded")), "{body}");
    assert!(headers["retry-after"].parse::<u64>().is_ok_and(|seconds| (25..=34).contains(&seconds)), "{headers:?}");
    let job = async |input: &str| {
        http(&hub, "POST", "/v1/audio/speech/jobs", "web", &json!({"input": input}).to_string()).await.0
    };
    assert_eq!(job("one").await, 429, "jobs are spoken, too");
    let (_, _, usage) = http(&hub, "GET", "/api/usage", "web", "").await;
    let total = &usage["data"][0]["total"];
    assert_eq!((&usage["data"][0]["key"], &total["characters"]), (&json!("web"), &json!(30)), "{usage}");
    assert_eq!((&total["requests"], &total["refused"]), (&json!(5), &json!(2)), "{usage}");
    hub.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_job_that_is_asked_for_again_costs_nothing_and_one_that_is_refused_neither() {
    let keys = entry("web", "limits = { jobs_per_minute = 2 }");
    let mut config = config("");
    let jobs = tempfile::tempdir().expect("a folder");
    config.speech.jobs_dir = jobs.path().to_str().expect("text").into();
    config.speech.max_jobs = 1;
    let hub = hub(config, Keys::of_text(&keys).expect("keys")).await;
    let ask = async |idempotency: &str, input: &str| {
        let request = reqwest::Client::new()
            .post(format!("http://{}/v1/audio/speech/jobs", hub.address))
            .bearer_auth(key("web"))
            .header("idempotency-key", idempotency)
            .body(json!({"input": input}).to_string());
        let response = request.send().await.expect("an answer");
        (response.status().as_u16(), response.json::<Value>().await.expect("JSON"))
    };
    let usage = async || http(&hub, "GET", "/api/usage", "web", "").await.2["data"][0]["total"].clone();
    let (status, first) = ask("one", "A job that takes its time. It says more.").await;
    assert_eq!(status, 202, "{first}");
    for _ in 0..3 {
        let (status, again) = ask("one", "A job that takes its time. It says more.").await;
        assert_eq!((status, &again["id"]), (202, &first["id"]), "{again}");
    }
    assert_eq!((&usage().await["jobs"], &usage().await["characters"]), (&json!(1), &json!(40)));
    // The same idempotency key with another text is an error, and costs nothing either.
    assert_eq!(ask("one", "Another text.").await.0, 409);
    assert_eq!(usage().await["jobs"], 1);
    let (status, other) = ask("two", "Another text.").await;
    assert!(status == 202 || other["error"]["code"] == "too_many_jobs", "{other}");
    assert_eq!(usage().await["jobs"], if status == 202 { 2 } else { 1 });
    hub.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_job_beyond_the_limit_is_refused_with_the_figures_of_jobs() {
    let keys = entry("web", "limits = { jobs_per_minute = 1 }");
    let mut config = config("");
    let jobs = tempfile::tempdir().expect("a folder");
    config.speech.jobs_dir = jobs.path().to_str().expect("text").into();
    let hub = hub(config, Keys::of_text(&keys).expect("keys")).await;
    let job = async || http(&hub, "POST", "/v1/audio/speech/jobs", "web", r#"{"input": "One."}"#).await;
    assert_eq!(job().await.0, 202);
    let (status, headers, body) = job().await;
    assert_eq!((status, &body["error"]["type"]), (429, &json!("rate_limit_error")), "{body}");
    assert_eq!(headers["x-ratelimit-limit-jobs"], "1", "{headers:?}");
    assert_eq!(headers["x-ratelimit-remaining-jobs"], "0", "{headers:?}");
    hub.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_speech_request_that_fails_before_its_first_sound_costs_nothing() {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let limits = "limits = { characters_per_minute = 20, transcription_seconds_per_minute = 60 }";
    let keys = Keys::of_text(&entry("web", limits)).expect("keys");
    let ears = FakeStt::default().then_fails("no ears today");
    let voice = FakeTts::default().failing_on("broken");
    let hub = Hub::with_keys(engines(ears, FakeLlm::says(["Hi."]), voice), config(""), keys).await;
    for _ in 0..3 {
        let body = r#"{"input": "All of it is broken."}"#;
        assert_eq!(http(&hub, "POST", "/v1/audio/speech", "web", body).await.0, 500);
    }
    let file = reqwest::multipart::Part::bytes(crate::speech_api::wav(&[(true, 1_000)])).file_name("a.wav");
    let form = reqwest::multipart::Form::new().text("model", "whisper-1").part("file", file);
    let ask = reqwest::Client::new().post(format!("http://{}/v1/audio/transcriptions", hub.address));
    let failed = ask.bearer_auth(key("web")).multipart(form).send().await.expect("an answer");
    assert_eq!(failed.status().as_u16(), 500);
    let (_, _, usage) = http(&hub, "GET", "/api/usage", "web", "").await;
    let total = &usage["data"][0]["total"];
    assert_eq!((&total["characters"], &total["transcription_seconds"]), (&json!(0), &json!(0.0)), "{usage}");
    hub.stop().await;
}

/// All routes, with the scope that each needs; empty: any key.
const ROUTES: &[(&str, &str, &str)] = &[
    ("POST", "/v1/realtime/client_secrets", "realtime"),
    ("POST", "/v1/realtime/sessions", "realtime"),
    ("GET", "/api/turns", "realtime"),
    ("GET", "/api/turns/turn_1", "realtime"),
    ("GET", "/api/turns/live", "realtime"),
    ("POST", "/v1/audio/speech", "speech"),
    ("POST", "/v1/audio/speech/jobs", "speech"),
    ("GET", "/v1/audio/speech/jobs", "speech"),
    ("GET", "/v1/audio/speech/jobs/job_1", "speech"),
    ("DELETE", "/v1/audio/speech/jobs/job_1", "speech"),
    ("GET", "/v1/audio/speech/jobs/job_1/audio", "speech"),
    ("GET", "/v1/audio/voices", "speech"),
    ("POST", "/v1/audio/voices", "speech"),
    ("GET", "/v1/audio/voices/anna", "speech"),
    ("DELETE", "/v1/audio/voices/anna", "speech"),
    ("POST", "/v1/audio/transcriptions", "transcription"),
    ("POST", "/v1/audio/translations", "transcription"),
    ("POST", "/api/models/kokoro/pull", "models"),
    ("DELETE", "/api/models/kokoro", "models"),
    ("GET", "/metrics", "metrics"),
    ("GET", "/api/state", "metrics"),
    ("GET", "/api/models", ""),
    ("GET", "/api/models/kokoro/pull", ""),
    ("GET", "/api/usage", ""),
    ("GET", "/v1/models", ""),
    ("GET", "/v1/models/tts-1", ""),
    ("GET", "/dashboard", ""),
    ("GET", "/no/such", ""),
];

#[tokio::test(start_paused = true)]
async fn each_route_needs_its_scope() {
    const SCOPES: [&str; 6] = ["realtime", "speech", "transcription", "models", "metrics", "admin"];
    let text: String = SCOPES.iter().map(|scope| entry(scope, &format!("scopes = [\"{scope}\"]"))).collect();
    let hub = hub(config(""), Keys::of_text(&(text + &entry("usual", ""))).expect("keys")).await;
    for (method, path, needed) in ROUTES {
        for scope in SCOPES {
            let (status, _, body) = http(&hub, method, path, scope, "").await;
            let may = needed.is_empty() || [scope, "admin"].contains(&scope) && (scope == *needed || scope == "admin");
            assert_eq!(status != 403, may, "{method} {path} with {scope}: {status} {body}");
            if !may {
                assert_eq!(body["error"]["code"], "insufficient_scope", "{body}");
                assert!(body["error"]["message"].as_str().is_some_and(|why| why.contains(&format!("'{needed}'"))));
            }
        }
        // A key without a list, as from an environment variable: on this machine it may also change models.
        assert_ne!(http(&hub, method, path, "usual", "").await.0, 401, "{method} {path}");
    }
    for scope in SCOPES {
        let mut socket = connect(&hub, scope).await;
        let event = socket.next().await;
        if ["realtime", "admin"].contains(&scope) {
            assert_eq!(event["type"], "session.created", "{scope}");
        } else {
            assert_eq!(event["error"]["code"], "insufficient_scope", "{scope}: {event}");
            assert_eq!(u16::from(socket.close().await.expect("a close").code), 3000);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn usage_is_shown_to_its_key_and_to_who_may_see_all() {
    let keys = [
        entry("web", ""),
        entry("job", "scopes = [\"speech\"]"),
        entry("prometheus", "scopes = [\"metrics\"]"),
        entry("boss", "scopes = [\"admin\"]"),
    ];
    let hub = hub(config(""), Keys::of_text(&keys.concat()).expect("keys")).await;
    let mut socket = connect(&hub, "web").await;
    socket.until("session.created").await;
    socket.append(&loud(800)).await;
    socket.append(&quiet(1_200)).await;
    socket.until("rate_limits.updated").await;
    drop(socket);
    let usage = async |name: &str| http(&hub, "GET", "/api/usage", name, "").await.2["data"].clone();
    let own = usage("web").await;
    let total = &own[0]["total"];
    assert_eq!((own.as_array().map(Vec::len), &own[0]["key"]), (Some(1), &json!("web")));
    for (field, value) in [("sessions", 1), ("responses", 1), ("turns", 1)] {
        assert_eq!(total[field], value, "{field}: {own}");
    }
    assert!(total["audio_in_seconds"].as_f64().is_some_and(|seconds| (1.9..=2.0).contains(&seconds)), "{own}");
    assert!(
        ["audio_out_seconds", "tokens_in", "tokens_out"].iter().all(|name| total[name].as_f64() > Some(0.0)),
        "{own}"
    );
    assert_eq!(own[0]["last_minute"]["sessions"], 0, "no minute is over");
    let names = |data: &Value| {
        let data = data.as_array().expect("a list");
        data.iter().map(|usage| usage["key"].as_str().expect("a name").to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(names(&usage("job").await), ["job"]);
    for name in ["prometheus", "boss"] {
        assert_eq!(names(&usage(name).await), ["boss", "job", "prometheus", "web"]);
        let text = http(&hub, "GET", "/metrics", name, "").await.2;
        let text = text.as_str().expect("text");
        assert!(text.contains("antiphon_key_sessions_total{key=\"web\"} 1\n"), "{text}");
        assert!(!text.contains(&key("web")));
    }
    let text = http(&hub, "GET", "/metrics", "web", "").await.2;
    assert!(
        text.as_str().is_some_and(|text| text.contains("antiphon_sessions_total") && !text.contains("antiphon_key_"))
    );
}

#[tokio::test]
async fn a_session_ends_when_its_key_expires() {
    let soon = SystemTime::now() + Duration::from_secs(3);
    let soon = jiff::Timestamp::try_from(soon).expect("a time");
    let keys = entry("guest", &format!("expires = \"{soon}\"")) + &entry("web", "");
    let hub = hub(config(""), Keys::of_text(&keys).expect("keys")).await;
    let mut guest = connect(&hub, "guest").await;
    let mut web = connect(&hub, "web").await;
    guest.until("session.created").await;
    let close = guest.close().await.expect("a close with a code");
    assert_eq!(u16::from(close.code), 1008, "{close:?}");
    assert_eq!(http(&hub, "GET", "/v1/models", "guest", "").await.0, 401);
    web.until("session.created").await;
    assert_eq!(web.ask("Still here?").await.last().expect("done")["response"]["status"], "completed");
}

#[tokio::test(start_paused = true)]
async fn a_key_has_as_many_sessions_as_its_entry_says_and_gets_each_back() {
    let keys = entry("small", "limits = { max_sessions = 2 }") + &entry("usual", "");
    let hub = hub(config(""), Keys::of_text(&keys).expect("keys")).await;
    let _first = connect(&hub, "small").await;
    let second = connect(&hub, "small").await;
    let small = format!("Bearer {}", key("small"));
    let (refused, headers) = upgrade(&hub, &[("authorization", &small)]).await;
    assert_eq!((refused.err(), headers.contains_key("retry-after")), (Some(429), true));
    let _usual = [connect(&hub, "usual").await, connect(&hub, "usual").await, connect(&hub, "usual").await];
    drop(second);
    hub.until("antiphon_sessions_active ", 4.0).await;
    connect(&hub, "small").await.until("session.created").await;
}

#[tokio::test(start_paused = true)]
async fn one_abusive_key_costs_the_others_nothing() {
    let keys = entry("eve", "limits = { requests_per_minute = 20, sessions_per_minute = 5, max_sessions = 2 }")
        + &entry("bob", "");
    let hub = hub(config(""), Keys::of_text(&keys).expect("keys")).await;
    let mut honest = connect(&hub, "bob").await;
    honest.until("session.created").await;
    let began = Instant::now();
    let is_over = AtomicBool::new(false);
    let abuse = async {
        let mut asked = 0;
        let mut refused = 0;
        while asked < 300 || !is_over.load(Ordering::Relaxed) {
            asked += 2;
            let (requested, upgraded) = tokio::join!(
                http(&hub, "GET", "/v1/models", "eve", ""),
                upgrade(&hub, &[("authorization", "Bearer sk-eve")])
            );
            refused += usize::from(requested.0 == 429) + usize::from(upgraded.0.err() == Some(429));
        }
        (asked, refused)
    };
    let canary = async {
        for _ in 0..20 {
            assert_eq!(honest.ask("Hello").await.last().expect("done")["response"]["status"], "completed");
        }
        assert_eq!(http(&hub, "GET", "/v1/models", "bob", "").await.0, 200);
        is_over.store(true, Ordering::Relaxed);
    };
    let ((asked, refused), ()) = tokio::join!(abuse, canary);
    // The burst of both limits, what they let through in the time that the answers took, and one of each.
    let admitted = 25 + 25 * began.elapsed().as_secs().div_ceil(60) as usize + 2;
    assert!(refused + admitted >= asked, "{refused} of {asked}");
    let (_, _, usage) = http(&hub, "GET", "/api/usage", "bob", "").await;
    assert_eq!(usage["data"][0]["total"]["refused"], 0);
}

#[tokio::test(start_paused = true)]
async fn the_audit_log_says_who_did_what_and_holds_no_content() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("audit.jsonl");
    let mut config = config("");
    config.server.audit_log = path.to_str().expect("text").into();
    config.speech.jobs_dir = folder.path().join("jobs").to_str().expect("text").into();
    let keys = entry("web", "limits = { responses_per_minute = 1 }") + &entry("mute", "scopes = [\"speech\"]");
    let hub = hub(config, Keys::of_text(&keys).expect("keys")).await;
    let mut socket = connect(&hub, "web").await;
    socket.until("session.created").await;
    socket.ask("My secret words").await;
    socket.send(json!({"type": "response.create"})).await;
    socket.until("error").await;
    let (_, _, made) = http(&hub, "POST", "/v1/realtime/client_secrets?key=sk-in-the-query", "web", "{}").await;
    let secret = made["value"].as_str().expect("a key").to_owned();
    let body = json!({"input": "Words that are spoken later."}).to_string();
    let (status, _, job) = http(&hub, "POST", "/v1/audio/speech/jobs", "web", &body).await;
    let job = job["id"].as_str().unwrap_or_else(|| panic!("{status} {job}")).to_owned();
    http(&hub, "DELETE", &format!("/v1/audio/speech/jobs/{job}"), "web", "").await;
    http(&hub, "GET", "/api/turns", "wrong", "").await;
    http(&hub, "GET", "/api/turns", "mute", "").await;
    http(&hub, "POST", "/api/models/kokoro/pull", "web", "").await;
    drop(socket);
    hub.until("antiphon_sessions_active ", 0.0).await;
    hub.stop().await;
    let text = std::fs::read_to_string(&path).expect("there");
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let find = |action: &str| {
        lines.iter().find(|line| line["action"] == action).unwrap_or_else(|| panic!("{action} in {text}"))
    };
    for (action, outcome) in
        [("session.start", "ok"), ("session.end", "ok"), ("key.mint", "ok"), ("job.create", "ok"), ("job.cancel", "ok")]
    {
        let line = find(action);
        assert_eq!(
            (&line["outcome"], &line["key"], &line["address"]),
            (&json!(outcome), &json!("web"), &json!("127.0.0.1"))
        );
    }
    assert!(find("session.start")["target"].as_str().is_some_and(|id| id.starts_with("sess_")));
    assert_eq!((&find("job.create")["target"], &find("job.cancel")["target"]), (&json!(job), &json!(job)));
    assert_eq!(find("model.pull")["outcome"], "status 404");
    assert_eq!(find("limit.refused")["outcome"], "limits.responses_per_minute");
    let refused: Vec<&Value> = lines.iter().filter(|line| line["action"] == "auth.refused").collect();
    assert_eq!(refused.iter().map(|line| &line["outcome"]).collect::<Vec<_>>(), ["wrong key", "insufficient scope"]);
    assert_eq!((&refused[0]["key"], &refused[1]["key"]), (&Value::Null, &json!("mute")));
    for never in ["secret", "Words", "sk-", "hello", "Hi.", &secret] {
        assert!(!text.contains(never), "{never} in {text}");
    }
    assert!(lines.iter().all(|line| line["at"].as_str().is_some_and(|at| at.parse::<jiff::Timestamp>().is_ok())));
}

#[tokio::test]
async fn the_file_of_keys_is_read_again_when_it_changes() {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("keys.toml");
    let log = folder.path().join("log");
    std::fs::write(&file, entry("old", "")).expect("written");
    let mut process = tokio::process::Command::new(env!("CARGO_BIN_EXE_antiphon"))
        .args(["serve", "--listen", "127.0.0.1:0"])
        .env_clear()
        .envs(std::env::var_os("PATH").map(|path| ("PATH", path)))
        .env("ANTIPHON_MODELS__DIR", "nowhere/models")
        .env("ANTIPHON_SERVER__API_KEYS_FILE", &file)
        .env("ANTIPHON_SPEECH__JOBS_DIR", "")
        .stdout(Stdio::piped())
        .stderr(std::fs::File::create(&log).expect("made"))
        .kill_on_drop(true)
        .spawn()
        .expect("the binary starts");
    let mut said = BufReader::new(process.stdout.take().expect("piped")).lines();
    let line =
        timeout(Duration::from_secs(60), said.next_line()).await.expect("in time").expect("text").expect("a line");
    let url =
        line.split_whitespace().find(|word| word.starts_with("http://")).expect("an address").trim_end_matches(':');
    let status = async |name: &str| {
        let request = reqwest::Client::new().get(format!("{url}/v1/models")).bearer_auth(key(name));
        request.send().await.expect("an answer").status().as_u16()
    };
    let becomes = async |name: &str, wanted: u16| {
        let reached = async {
            while status(name).await != wanted {
                // At a rate that does not trigger the rate limit of wrong keys.
                tokio::time::sleep(Duration::from_millis(1_100)).await;
            }
        };
        timeout(TEST_TIMEOUT, reached).await.unwrap_or_else(|_| panic!("{name} becomes {wanted}"));
    };
    becomes("old", 200).await;
    // As editors do it: another file takes the name.
    let other = folder.path().join("keys.tmp");
    std::fs::write(&other, entry("old", "") + &entry("new", "")).expect("written");
    std::fs::rename(&other, &file).expect("replaced");
    becomes("new", 200).await;
    std::fs::write(&file, entry("new", "") + "limit = 3\n").expect("written");
    let complains = async {
        loop {
            let text = std::fs::read_to_string(&log).expect("there");
            if text.contains("stay in use") {
                return text;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let text = timeout(TEST_TIMEOUT, complains).await.expect("it says what is wrong");
    assert!(text.contains("keys.toml, line 5: unknown field"), "{text}");
    assert_eq!((status("old").await, status("new").await), (200, 200), "the keys from before");
    std::fs::write(&file, entry("new", "")).expect("written");
    becomes("old", 401).await;
    assert_eq!(status("new").await, 200);
}
