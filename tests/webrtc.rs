//! Calls by WebRTC: what is refused, who may call, and that nothing unasked is answered. Real peers call in `tests/browser` (Chromium)
//! and `tests/clients` (aiortc).

use crate::hub::{Hub, engines, hub};
use antiphon::config::Config;
use antiphon::server::Keys;
use antiphon_engine_api::fakes::llm::FakeLlm;
use antiphon_engine_api::fakes::stt::FakeStt;
use antiphon_engine_api::fakes::tts::FakeTts;
use reqwest::{Client, Method, RequestBuilder, Response};
use serde_json::{Value, json};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UdpSocket};
use tokio::time::timeout;

/// What Chromium offers, with a microphone and a data channel.
const OFFER: &str = include_str!("fixtures/chromium_offer.sdp");
const SDP: &str = "application/sdp";

fn offer() -> String {
    OFFER.replace("\r\n", "\n").replace('\n', "\r\n")
}

fn http() -> Client {
    let _ = rustls::crypto::ring::default_provider().install_default();
    Client::new()
}

fn post(hub: &Hub, path: &str) -> RequestBuilder {
    http().post(format!("http://{}{path}", hub.address))
}

async fn call(hub: &Hub, sdp: impl Into<String>) -> Response {
    let request = post(hub, "/v1/realtime/calls").header("content-type", SDP).body(sdp.into());
    request.send().await.expect("an answer")
}

async fn refusal(response: Response) -> (u16, Value) {
    let status = response.status().as_u16();
    let body: Value = response.json().await.expect("JSON");
    (status, body["error"].clone())
}

async fn hub_with(config: Config, keys: &[&str]) -> Hub {
    let engines = engines(FakeStt::hears(["hello"]), FakeLlm::says(["Hello you."]), FakeTts::default());
    Hub::with_keys(engines, config, Keys::of(keys)).await
}

/// The hub's UDP address, from an answer.
fn candidate(answer: &str) -> String {
    let line =
        answer.lines().find(|line| line.starts_with("a=candidate") && line.contains(" udp ")).expect("a candidate");
    let words: Vec<_> = line.split(' ').collect();
    format!("{}:{}", words[4], words[5])
}

#[tokio::test(start_paused = true)]
async fn an_offer_is_answered_in_each_of_its_forms() {
    let hub = hub("hello", "Hello you.").await;
    let response = call(&hub, offer()).await;
    assert_eq!(response.status(), 201);
    let location = response.headers()["location"].to_str().expect("text").to_owned();
    assert!(location.starts_with("/v1/realtime/calls/rtc_"), "{location}");
    let answer = response.text().await.expect("an answer");
    for line in ["a=ice-lite", "a=setup:passive", "m=audio 9 ", "m=application 9 ", "tcptype passive"] {
        assert!(answer.contains(line), "{line} in {answer}");
    }
    assert!(!answer.contains("msid:- "), "{answer}");
    let session = json!({"type": "realtime", "instructions": "Be brief."});
    let form = reqwest::multipart::Form::new().text("sdp", offer()).text("session", session.to_string());
    let response = post(&hub, "/v1/realtime/calls").multipart(form).send().await.expect("an answer");
    assert_eq!(response.status(), 201);
    let response = post(&hub, "/v1/realtime/calls").json(&json!({"sdp": offer(), "session": session})).send().await;
    assert_eq!(response.expect("an answer").status(), 201);
    let old = post(&hub, "/v1/realtime?model=antiphon").header("content-type", SDP).body(offer()).send().await;
    assert_eq!(old.expect("an answer").status(), 201);
    hub.until("antiphon_sessions_active", 4.0).await;
    let hung_up = post(&hub, &format!("{location}/hangup")).send().await.expect("an answer");
    assert_eq!(hung_up.status(), 200);
    hub.until("antiphon_sessions_active", 3.0).await;
    assert_eq!(refusal(post(&hub, &format!("{location}/hangup")).send().await.expect("an answer")).await.0, 404);
    hub.stop().await;
}

#[tokio::test(start_paused = true)]
async fn what_is_no_offer_is_refused_by_name_and_opens_nothing() {
    let hub = hub("hello", "Hello you.").await;
    let without_audio = offer().replace("m=audio", "m=video");
    let many = format!("{}{}", offer(), "m=audio 9 UDP/TLS/RTP/SAVPF 111\r\n".repeat(100));
    let other_codec = offer().replace("opus/48000/2", "ISAC/16000");
    let no_fingerprint: String =
        offer().lines().filter(|line| !line.contains("fingerprint")).map(|line| format!("{line}\r\n")).collect();
    let cases = [
        ("nonsense".to_owned(), "no audio"),
        (String::new(), "no audio"),
        (without_audio, "no audio"),
        (many, "media lines"),
        (other_codec, "Opus"),
        (no_fingerprint, "fingerprint"),
        (format!("{}m=audio broken", offer()), "cannot be read"),
    ];
    for (sdp, reason) in cases {
        let response = call(&hub, sdp).await;
        assert_eq!(response.status(), 400, "{reason}");
        let (status, error) = refusal(response).await;
        assert_eq!((status, error["code"].as_str()), (400, Some("invalid_offer")), "{reason}: {error}");
        assert!(error["message"].as_str().is_some_and(|message| message.contains(reason)), "{reason}: {error}");
    }
    let long = format!("{}{}", offer(), "a=x\r\n".repeat(15_000));
    assert_eq!(call(&hub, long).await.status(), 413);
    assert_eq!(call(&hub, "x".repeat(1 << 20)).await.status(), 413);
    let settings = json!({"sdp": offer(), "session": {"type": "realtime", "output_modalities": ["smell"]}});
    let (status, error) =
        refusal(post(&hub, "/v1/realtime/calls").json(&settings).send().await.expect("an answer")).await;
    assert_eq!((status, error["param"].as_str()), (400, Some("session.output_modalities")), "{error}");
    let pcm = post(&hub, "/v1/realtime/calls?audio=pcm16").header("content-type", SDP).body(offer());
    let (status, error) = refusal(pcm.send().await.expect("an answer")).await;
    assert_eq!((status, error["code"].as_str()), (400, Some("invalid_value")), "{error}");
    assert_eq!(hub.metric("antiphon_sessions_active"), 0.0);
    hub.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_call_needs_a_key_and_a_place() {
    let mut config = Config::default();
    config.server.max_sessions_per_key = 1;
    let hub = hub_with(config, &["key", "other"]).await;
    assert_eq!(call(&hub, offer()).await.status(), 401);
    let with = |key: &str| post(&hub, "/v1/realtime/calls").bearer_auth(key).header("content-type", SDP).body(offer());
    assert_eq!(with("wrong").send().await.expect("an answer").status(), 401);
    let response = with("key").send().await.expect("an answer");
    assert_eq!(response.status(), 201);
    let location = response.headers()["location"].to_str().expect("text").to_owned();
    let (status, error) = refusal(with("key").send().await.expect("an answer")).await;
    assert_eq!((status, error["code"].as_str()), (429, Some("rate_limit_exceeded")));
    // The calls of another key are unknown.
    let hang_up = |key: &str| post(&hub, &format!("{location}/hangup")).bearer_auth(key).send();
    assert_eq!(hang_up("other").await.expect("an answer").status(), 404);
    assert_eq!(hang_up("key").await.expect("an answer").status(), 200);
    hub.until("antiphon_sessions_active", 0.0).await;
    assert_eq!(with("key").send().await.expect("an answer").status(), 201);
    let (status, error) = refusal(join(&hub, "rtc_unknown", "key").await).await;
    assert_eq!((status, error["code"].as_str()), (404, Some("call_id_not_found")));
    hub.stop().await;
}

#[tokio::test(start_paused = true)]
async fn offers_are_requests_of_their_key_whatever_comes_of_them() {
    let mut config = Config::default();
    config.limits.requests_per_minute = 3;
    let hub = hub_with(config, &["key", "other"]).await;
    let with = async |key: &str, sdp: String| {
        let offer = post(&hub, "/v1/realtime/calls").bearer_auth(key).header("content-type", SDP).body(sdp);
        let response = offer.send().await.expect("an answer");
        let left =
            response.headers().get("x-ratelimit-remaining-requests").map(|left| left.to_str().unwrap().to_owned());
        (response.status().as_u16(), left)
    };
    assert_eq!(with("key", "nonsense".into()).await, (400, Some("2".into())));
    assert_eq!(with("key", offer()).await, (201, Some("1".into())));
    assert_eq!(with("wrong", offer()).await, (401, None));
    assert_eq!(with("key", "nonsense".into()).await.0, 400);
    assert_eq!(with("key", offer()).await, (429, Some("0".into())));
    let joined = join(&hub, "rtc_unknown", "key").await;
    assert_eq!(joined.status().as_u16(), 404, "a socket is no request");
    assert_eq!(with("other", offer()).await.0, 201);
    hub.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_call_without_a_place_is_refused_before_its_offer_is_answered() {
    let mut config = Config::default();
    config.server.max_sessions = 1;
    let hub = hub_with(config, &["key"]).await;
    let with = async |sdp: String| {
        let offer = post(&hub, "/v1/realtime/calls").bearer_auth("key").header("content-type", SDP).body(sdp);
        refusal(offer.send().await.expect("an answer")).await
    };
    // It can be read, and not be answered.
    let unanswerable = offer().replace("opus/48000", "ISAC/16000");
    assert_eq!(with(unanswerable.clone()).await.0, 400);
    let _call =
        post(&hub, "/v1/realtime/calls").bearer_auth("key").header("content-type", SDP).body(offer()).send().await;
    assert_eq!(with("nonsense".into()).await.0, 400);
    let (status, error) = with(unanswerable).await;
    assert_eq!(
        (status, &error["code"], &error["type"]),
        (503, &json!("server_full"), &json!("server_error")),
        "{error}"
    );
    hub.stop().await;
}

async fn join(hub: &Hub, id: &str, key: &str) -> Response {
    let url = format!("http://{}/v1/realtime?call_id={id}", hub.address);
    let upgrade = http().get(url).bearer_auth(key).header("connection", "upgrade").header("upgrade", "websocket");
    let upgrade = upgrade.header("sec-websocket-version", "13").header("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ==");
    upgrade.send().await.expect("an answer")
}

#[tokio::test(start_paused = true)]
async fn a_short_lived_key_joins_no_call() {
    let hub = hub_with(Config::default(), &["key"]).await;
    let made = post(&hub, "/v1/realtime/client_secrets").bearer_auth("key").json(&json!({})).send().await;
    let made: Value = made.expect("an answer").json().await.expect("JSON");
    let short_lived = made["value"].as_str().expect("a key");
    let request = post(&hub, "/v1/realtime/calls").bearer_auth(short_lived).header("content-type", SDP);
    let response = request.body(offer()).send().await.expect("an answer");
    let location = response.headers()["location"].to_str().expect("text");
    let id = location.rsplit('/').next().expect("an id");
    let (status, error) = refusal(join(&hub, id, short_lived).await).await;
    assert_eq!((status, error["code"].as_str()), (404, Some("call_id_not_found")));
    assert_eq!(join(&hub, id, "key").await.status(), 101);
    hub.stop().await;
}

#[tokio::test(start_paused = true)]
async fn pages_of_other_origins_call_where_they_need_a_key_or_are_listed() {
    let asked = "authorization,content-type,x-openai-agents-sdk";
    let check = async |hub: &Hub, origin: &str, path: &str, allowed: bool| {
        let url = format!("http://{}{path}", hub.address);
        let request = http().request(Method::OPTIONS, url).header("origin", origin);
        let request =
            request.header("access-control-request-method", "POST").header("access-control-request-headers", asked);
        let response = request.send().await.expect("an answer");
        let header = |name: &str| response.headers().get(name).and_then(|value| value.to_str().ok());
        assert_eq!(header("access-control-allow-origin").is_some(), allowed, "{origin} {path}: {}", response.status());
        if allowed {
            assert_eq!((response.status().as_u16(), header("access-control-allow-headers")), (204, Some(asked)));
        }
    };
    let mut config = Config::default();
    config.server.allowed_origins = vec!["https://app.example".into()];
    let open = hub_with(config, &[]).await;
    check(&open, "https://app.example", "/v1/realtime/calls", true).await;
    check(&open, "https://evil.example", "/v1/realtime/calls", false).await;
    let keyed = hub_with(Config::default(), &["key"]).await;
    check(&keyed, "https://any.example", "/v1/realtime/calls", true).await;
    check(&keyed, "https://any.example", "/v1/realtime/calls/rtc_1/hangup", true).await;
    check(&keyed, "https://any.example", "/v1/realtime/client_secrets", false).await;
    let request = post(&keyed, "/v1/realtime/calls").header("origin", "https://any.example").bearer_auth("key");
    let response = request.header("content-type", SDP).body(offer()).send().await.expect("an answer");
    assert_eq!(response.status(), 201);
    assert!(response.headers()["access-control-expose-headers"].to_str().is_ok_and(|names| names.contains("Location")));
    // A browser adds a password by itself, so it opens nothing to a page of another origin.
    let hang_up = post(&keyed, "/v1/realtime/calls/rtc_1/hangup").basic_auth("any", Some("key"));
    assert_eq!(hang_up.try_clone().expect("no body").send().await.expect("an answer").status(), 404);
    let hang_up = hang_up.header("origin", "https://any.example").send().await.expect("an answer");
    assert_eq!(hang_up.status(), 403);
    // The host is still checked.
    let rebound = post(&keyed, "/v1/realtime/calls").header("host", "rebound.example").bearer_auth("key");
    assert_eq!(rebound.body(offer()).send().await.expect("an answer").status(), 403);
    open.stop().await;
    keyed.stop().await;
}

#[tokio::test(start_paused = true)]
async fn without_a_listener_there_is_no_webrtc() {
    let mut config = Config::default();
    config.rtc.listen = String::new();
    let hub = hub_with(config, &[]).await;
    let (status, error) = refusal(call(&hub, offer()).await).await;
    assert_eq!((status, error["code"].as_str()), (404, Some("webrtc_off")));
    hub.stop().await;
}

#[tokio::test(start_paused = true)]
async fn datagrams_of_no_call_are_not_answered_and_a_peer_that_never_comes_is_let_go() {
    let hub = hub("hello", "Hello you.").await;
    let response = call(&hub, offer()).await;
    let answer = response.text().await.expect("an answer");
    let target = candidate(&answer);
    let fragment = answer.lines().find_map(|line| line.strip_prefix("a=ice-ufrag:")).expect("a fragment");
    let stun = |username: &str| {
        let padded = username.len().next_multiple_of(4);
        let length = u16::try_from(4 + padded).expect("short");
        let mut bytes = vec![0, 1];
        bytes.extend(length.to_be_bytes());
        bytes.extend([0x21, 0x12, 0xa4, 0x42]);
        bytes.extend([7; 12]);
        bytes.extend([0, 6]);
        bytes.extend(u16::try_from(username.len()).expect("short").to_be_bytes());
        bytes.extend(username.as_bytes());
        bytes.resize(20 + usize::from(length), 0);
        bytes
    };
    let udp = UdpSocket::bind("127.0.0.1:0").await.expect("a socket");
    for i in 0..2_000_u32 {
        let username = if i % 2 == 0 { format!("nobody{i}:peer") } else { format!("{fragment}:peer") };
        udp.send_to(&stun(&username), &target).await.expect("sent");
        udp.send_to(&[128, 0, 0, 1], &target).await.expect("sent");
        udp.send_to(&[22, 254, 253, 0], &target).await.expect("sent");
    }
    let mut buffer = [0; 2048];
    let answered = timeout(Duration::from_millis(500), udp.recv_from(&mut buffer)).await;
    assert!(answered.is_err(), "nothing is reflected to who does not know the password: {answered:?}");
    // By TCP, what is no request of a call is closed.
    let mut tcp = TcpStream::connect(&target).await.expect("accepted");
    tcp.write_all(&[0, 4, 1, 2, 3, 4]).await.expect("sent");
    let ended = timeout(Duration::from_secs(5), tcp.read(&mut buffer)).await.expect("closed");
    assert!(matches!(ended, Ok(0) | Err(_)), "{ended:?}");
    // Other calls do not notice, and this one ends without its peer.
    assert_eq!(call(&hub, offer()).await.status(), 201);
    hub.until("antiphon_sessions_active", 0.0).await;
    hub.stop().await;
}

#[tokio::test(start_paused = true)]
async fn the_audit_log_has_starts_joins_hang_ups_and_why_a_call_ended() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("audit.jsonl");
    let mut config = Config::default();
    config.server.audit_log = path.to_str().expect("text").into();
    let hub = hub_with(config, &["key"]).await;
    let begin = async || {
        let request = post(&hub, "/v1/realtime/calls").bearer_auth("key").header("content-type", SDP).body(offer());
        let response = request.send().await.expect("an answer");
        let location = response.headers()["location"].to_str().expect("text");
        location.rsplit('/').next().expect("an id").to_owned()
    };
    let first = begin().await;
    let second = begin().await;
    assert_eq!(join(&hub, &first, "key").await.status(), 101);
    let listed = http().get(format!("http://{}/v1/realtime/calls", hub.address)).bearer_auth("key").send().await;
    let listed: Value = listed.expect("an answer").json().await.expect("JSON");
    assert_eq!(listed["data"].as_array().map(Vec::len), Some(2), "{listed}");
    assert_eq!((&listed["data"][0]["transport"], &listed["data"][0]["peer_call_id"]), (&json!("webrtc"), &Value::Null));
    let hang_up = |id: &str| post(&hub, &format!("/v1/realtime/calls/{id}/hangup")).bearer_auth("key").send();
    assert_eq!(hang_up(&first).await.expect("an answer").status(), 200);
    assert_eq!(hang_up("rtc_none").await.expect("an answer").status(), 404);
    // The peer of the second never comes.
    hub.until("antiphon_sessions_active", 0.0).await;
    hub.stop().await;
    let text = std::fs::read_to_string(&path).expect("there");
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let of = |action: &str, field: &str| -> Vec<String> {
        let lines = lines.iter().filter(|line| line["action"] == action);
        lines.map(|line| line[field].as_str().unwrap_or_default().to_owned()).collect()
    };
    assert_eq!(of("call.start", "target"), [first.clone(), second]);
    assert_eq!(of("call.join", "target"), std::slice::from_ref(&first));
    assert_eq!(of("call.hangup", "target"), [first, "rtc_none".into()]);
    assert_eq!(of("call.hangup", "outcome"), ["ok", "status 404"]);
    assert_eq!(of("session.start", "outcome"), ["ok", "ok"]);
    assert_eq!(of("session.end", "outcome"), ["hung up", "not connected"]);
    assert!(lines.iter().all(|line| line["address"] == "127.0.0.1" && line["key_id"].is_string()), "{text}");
}
