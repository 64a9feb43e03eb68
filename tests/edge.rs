//! Hostile clients at the edge: sockets that send or read nothing, guessed keys, foreign pages. During each flood, a
//! well-behaved client (the canary) must be served.

use crate::hub::{Hub, Socket, engines};
use antiphon::config::Config;
use antiphon::server::{Keys, Parts, Tls};
use antiphon_client::{ConnectOptions, Trust};
use antiphon_engine_api::fakes::llm::FakeLlm;
use antiphon_engine_api::fakes::stt::FakeStt;
use antiphon_engine_api::fakes::tts::FakeTts;
use antiphon_telemetry::Metrics;
use reqwest::header::HeaderMap;
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_tungstenite::tungstenite::Error as WsError;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;

/// Shorter than any timeout of the hub that would free a slot by itself, and much longer than a response takes.
const AT_ONCE: Duration = Duration::from_secs(6);
const KEYS: [&str; 2] = ["sk-antiphon-test-1", "sk-antiphon-test-2"];

async fn hub(keys: Keys, change: impl FnOnce(&mut Config)) -> Hub {
    let mut config = Config::default();
    change(&mut config);
    Hub::with_keys(engines(FakeStt::default(), FakeLlm::says(["Hi."; 9]), FakeTts::default()), config, keys).await
}

/// A request on a connection of its own, from this loopback address.
async fn raw(hub: SocketAddr, from: [u8; 4], head: &str) -> String {
    let socket = TcpSocket::new_v4().expect("a socket");
    socket.bind((from, 0).into()).expect("an address of this machine");
    let mut stream = socket.connect(hub).await.expect("it listens");
    stream.write_all(format!("{head}\r\nConnection: close\r\n\r\n").as_bytes()).await.expect("sent");
    let mut answer = String::new();
    let _ = stream.read_to_string(&mut answer).await;
    answer
}

async fn get(hub: &Hub, path: &str, key: &str) -> (u16, HeaderMap, Value) {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let request = reqwest::Client::new().get(format!("http://{}{path}", hub.address)).bearer_auth(key);
    let response = request.send().await.expect("an answer");
    let status = response.status().as_u16();
    let headers = response.headers().clone();
    (status, headers, response.json().await.unwrap_or_default())
}

/// Opens a socket with this key; an error is the status and `Retry-After` of the rejection.
async fn connect(hub: &Hub, key: &str) -> Result<Socket, (u16, Option<String>)> {
    let mut request = format!("ws://{}/v1/realtime", hub.address).into_client_request().expect("a request");
    request.headers_mut().insert("authorization", format!("Bearer {key}").parse().expect("a header"));
    match crate::hub::connect(request).await {
        Ok((stream, _)) => Ok(Socket { stream, frames: Vec::new() }),
        Err(WsError::Http(response)) => {
            let wait = response.headers().get("retry-after").map(|wait| wait.to_str().expect("text").to_owned());
            Err((response.status().as_u16(), wait))
        }
        Err(error) => panic!("{error}"),
    }
}

/// A probe and a session are served while others misbehave.
async fn canary(hub: &Hub) {
    for _ in 0..3 {
        let probe = raw(hub.address, [127, 0, 0, 1], "GET /healthz HTTP/1.1\r\nHost: localhost");
        let answer = timeout(AT_ONCE, probe).await.expect("the probe is answered");
        assert!(answer.ends_with("ok\n"), "{answer}");
        timeout(AT_ONCE, hub.connect("")).await.expect("a session is opened");
    }
}

/// A connection whose client has a small receive buffer.
async fn small(hub: SocketAddr) -> TcpStream {
    let socket = TcpSocket::new_v4().expect("a socket");
    socket.set_recv_buffer_size(4_096).expect("set");
    socket.connect(hub).await.expect("it listens")
}

#[tokio::test(start_paused = true)]
async fn clients_that_never_read_their_answers_do_not_take_every_place() {
    let hub = hub(Keys::default(), |_| {}).await;
    // About 10 MB of responses each.
    let requests = "GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n".repeat(1_000);
    let mut hostile = JoinSet::new();
    for _ in 0..520 {
        let mut stream = small(hub.address).await;
        let requests = requests.clone();
        hostile.spawn(async move {
            let _ = stream.write_all(requests.as_bytes()).await;
            std::future::pending::<()>().await;
        });
    }
    canary(&hub).await;
}

#[tokio::test(start_paused = true)]
async fn idle_connections_that_are_opened_again_and_again_keep_nobody_waiting() {
    let hub = hub(Keys::default(), |_| {}).await;
    let mut hostile = JoinSet::new();
    let address = hub.address;
    for n in 0..600 {
        let mut stream = small(address).await;
        hostile.spawn(async move {
            loop {
                let said: &[u8] = if n % 2 == 0 { b"" } else { b"GET / HTTP/1.1\r\nHost: lo" };
                let _ = stream.write_all(said).await;
                let _ = stream.read(&mut [0; 64]).await;
                let Ok(again) = TcpStream::connect(address).await else { return };
                stream = again;
            }
        });
    }
    canary(&hub).await;
}

#[tokio::test(start_paused = true)]
async fn bodies_that_do_not_come_keep_nobody_waiting() {
    let hub = hub(Keys::default(), |_| {}).await;
    let mut silent = Vec::new();
    for _ in 0..520 {
        let mut stream = small(hub.address).await;
        let head = "POST /v1/realtime/client_secrets HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n";
        stream.write_all(head.as_bytes()).await.expect("sent");
        silent.push(stream);
    }
    canary(&hub).await;
}

#[tokio::test(start_paused = true)]
async fn a_burst_of_honest_clients_is_served() {
    let hub = hub(Keys::default(), |config| config.server.max_sessions = 1_000).await;
    let probes = (0..700).map(|_| raw(hub.address, [127, 0, 0, 1], "GET /healthz HTTP/1.1\r\nHost: localhost"));
    let sessions = (0..300).map(|_| connect(&hub, "any"));
    let (probes, sessions) =
        tokio::join!(futures_util::future::join_all(probes), futures_util::future::join_all(sessions));
    assert!(probes.iter().all(|answer| answer.ends_with("ok\n")));
    assert!(sessions.iter().all(Result::is_ok));
}

#[tokio::test(start_paused = true)]
async fn half_handshakes_keep_nobody_waiting() {
    let (tls, _) = Tls::self_signed(&[]).expect("a certificate");
    let engines = engines(FakeStt::default(), FakeLlm::default(), FakeTts::default());
    let config = Config::default();
    let metrics = Metrics::new();
    let keys = Keys::default();
    let hub = Hub::serve(Parts { config, engines, metrics, keys, tls: Some(tls), manager: None }).await;
    let mut silent = Vec::new();
    for _ in 0..600 {
        let mut stream = TcpStream::connect(hub.address).await.expect("it listens");
        // The header of a TLS record that announces more data.
        stream.write_all(&[0x16, 0x03, 0x01, 0x02, 0x00]).await.expect("sent");
        silent.push(stream);
    }
    for _ in 0..3 {
        let url = format!("https://localhost:{}", hub.address.port());
        let options = ConnectOptions { trust: Trust::Anyone, ..ConnectOptions::new(url) };
        let connected = timeout(AT_ONCE, antiphon_client::connect(&options)).await.expect("a session is opened");
        drop(connected.expect("served"));
    }
}

#[tokio::test(start_paused = true)]
async fn keys_are_guessed_slowly_and_nobody_elsewhere_notices() {
    let hub = hub(Keys::of(&KEYS), |_| {}).await;
    let guess = |n: usize, from| async move {
        let head = format!("GET /metrics HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer sk-guess-{n}");
        raw(hub.address, from, &head).await
    };
    let mut refused = 0;
    for n in 0..200 {
        let answer = guess(n, [127, 0, 0, 2]).await;
        if answer.starts_with("HTTP/1.1 429 ") {
            assert!(answer.contains("retry-after: ") && answer.contains("rate_limit_exceeded"), "{answer}");
            refused += 1;
        } else {
            assert!(answer.starts_with("HTTP/1.1 401 "), "{answer}");
        }
    }
    assert!(refused >= 100, "{refused} of 200");
    let right = format!("GET /metrics HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {}", KEYS[0]);
    assert!(raw(hub.address, [127, 0, 0, 3], &right).await.starts_with("HTTP/1.1 200 "), "from another address");
    for n in 0..20 {
        guess(n, [127, 0, 0, 2]).await;
        let answer = raw(hub.address, [127, 0, 0, 2], &right).await;
        assert!(answer.starts_with("HTTP/1.1 200 "), "a right key of the same address, {n}: {answer}");
    }
    // The socket does not bypass the limit, nor do client secrets.
    let mut upgraded = 0;
    for key in ["sk-guess", "ek_guess"].into_iter().cycle().take(40) {
        match connect(&hub, key).await {
            Ok(_) => upgraded += 1,
            Err((status, wait)) => assert_eq!((status, wait.is_some()), (429, true)),
        }
    }
    assert!((1..=30).contains(&upgraded), "{upgraded}");
}

#[tokio::test(start_paused = true)]
async fn one_key_does_not_take_all_sessions() {
    let hub = hub(Keys::of(&KEYS), |config| config.server.max_sessions = 4).await;
    let _ = rustls::crypto::ring::default_provider().install_default();
    let made = reqwest::Client::new().post(format!("http://{}/v1/realtime/client_secrets", hub.address));
    let made: Value = made.bearer_auth(KEYS[0]).send().await.expect("an answer").json().await.expect("JSON");
    let guest = made["value"].as_str().expect("a key");
    let mut first = vec![connect(&hub, KEYS[0]).await.expect("a place"), connect(&hub, guest).await.expect("a place")];
    for key in [KEYS[0], guest] {
        assert_eq!(connect(&hub, key).await.err(), Some((429, Some("5".into()))), "half of them are another key's");
    }
    let _second = [connect(&hub, KEYS[1]).await.expect("a place"), connect(&hub, KEYS[1]).await.expect("a place")];
    first.pop();
    hub.until("antiphon_sessions_active ", 3.0).await;
    assert!(connect(&hub, guest).await.is_ok(), "its place came back");
}

#[tokio::test(start_paused = true)]
async fn one_address_has_its_bound_and_a_key_may_have_none() {
    let hub = hub(Keys::of(&KEYS), |config| config.server.max_sessions_per_key = 0).await;
    let held: Vec<_> = futures_util::future::join_all((0..60).map(|_| connect(&hub, KEYS[0]))).await;
    assert!(held.iter().all(Result::is_ok), "this machine is not bounded by default");
    let hub = crate::edge::hub(Keys::default(), |config| config.server.max_sessions_per_address = 1).await;
    let held = connect(&hub, "any").await.expect("a place");
    assert_eq!(connect(&hub, "any").await.err(), Some((429, Some("5".into()))));
    drop(held);
    hub.until("antiphon_sessions_active ", 0.0).await;
    assert!(connect(&hub, "any").await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn one_key_does_not_take_all_short_lived_keys() {
    let hub = hub(Keys::of(&KEYS), |_| {}).await;
    let instructions = "x".repeat(100_000);
    let body =
        json!({"expires_after": {"seconds": 7200}, "session": {"type": "realtime", "instructions": instructions}});
    let _ = rustls::crypto::ring::default_provider().install_default();
    let client = reqwest::Client::new();
    let make = async |key: &str| {
        let request = client.post(format!("http://{}/v1/realtime/client_secrets", hub.address)).bearer_auth(key);
        let answer = request.body(body.to_string()).send().await.expect("an answer");
        let wait = answer.headers().get("retry-after").map(|wait| wait.to_str().expect("text").to_owned());
        (answer.status().as_u16(), wait)
    };
    let mut made = 0;
    let (status, wait) = loop {
        let answer = make(KEYS[0]).await;
        if answer.0 != 200 || made == 1_024 {
            break answer;
        }
        made += 1;
    };
    // Half of 64 MiB.
    assert!((300..=336).contains(&made) && status == 429, "{made} {status}");
    assert!(wait.and_then(|wait| wait.parse::<u64>().ok()).is_some_and(|wait| wait > 7_000));
    assert_eq!(make(KEYS[1]).await.0, 200);
}

#[tokio::test(start_paused = true)]
async fn a_page_of_the_same_host_by_another_scheme_is_foreign() {
    let hub = hub(Keys::default(), |config| {
        config.server.allowed_hosts = vec!["voice.example".into()];
        config.server.trusted_proxies = vec!["127.0.0.9".into()];
    })
    .await;
    let ask = async |from, headers: &str| {
        let head = format!("GET /api/state HTTP/1.1\r\nHost: voice.example\r\n{headers}");
        raw(hub.address, from, &head).await
    };
    let direct = ask([127, 0, 0, 1], "Origin: https://voice.example").await;
    assert!(direct.starts_with("HTTP/1.1 403 ") && direct.contains("server.trusted_proxies"), "{direct}");
    assert!(ask([127, 0, 0, 1], "Origin: http://voice.example").await.starts_with("HTTP/1.1 200 "));
    let by_proxy = "Origin: https://voice.example\r\nX-Forwarded-Proto: https";
    assert!(ask([127, 0, 0, 9], by_proxy).await.starts_with("HTTP/1.1 200 "), "a trusted proxy speaks TLS for us");
    assert!(ask([127, 0, 0, 1], by_proxy).await.starts_with("HTTP/1.1 403 "), "anybody can say so");
    let downgraded = "Origin: http://voice.example\r\nX-Forwarded-Proto: https";
    assert!(ask([127, 0, 0, 9], downgraded).await.starts_with("HTTP/1.1 403 "));
}

#[tokio::test(start_paused = true)]
async fn a_caller_through_a_proxy_on_this_machine_is_no_admin() {
    let may_change = async |hub: &Hub, version: &str, headers: &str| {
        let head = format!("GET /api/models HTTP/{version}\r\nHost: localhost\r\n{headers}X-Nothing: 1");
        let answer = raw(hub.address, [127, 0, 0, 1], &head).await;
        assert!(answer.contains("\"may_change\":"), "{answer}");
        answer.contains("\"may_change\":true")
    };
    let removes = async |hub: &Hub, headers: &str| {
        let head = format!("DELETE /api/models/none HTTP/1.1\r\nHost: localhost\r\n{headers}X-Nothing: 1");
        raw(hub.address, [127, 0, 0, 1], &head).await.split(' ').nth(1).map(str::to_owned)
    };
    let local = hub(Keys::default(), |_| {}).await;
    // Without models the response is 404, which shows that the removal was permitted.
    assert_eq!(removes(&local, "").await.as_deref(), Some("404"));
    for header in
        ["X-Forwarded-Proto: https\r\n", "Via: 1.1 proxy\r\n", "CF-Connecting-IP: 203.0.113.9\r\n", "X-Real-IP: x\r\n"]
    {
        assert_eq!(removes(&local, header).await.as_deref(), Some("403"), "{header}");
    }
    assert!(!may_change(&local, "1.0", "").await);
    let off = hub(Keys::default(), |config| config.server.local_admin = false).await;
    assert_eq!(removes(&off, "").await.as_deref(), Some("403"));
}

#[tokio::test(start_paused = true)]
async fn every_answer_says_how_it_may_be_used() {
    let hub = hub(Keys::of(&KEYS), |_| {}).await;
    for path in
        ["/v1/models", "/api/turns", "/api/state", "/healthz", "/readyz", "/metrics", "/no/such", "/v1/realtime"]
    {
        for key in [KEYS[0], "sk-wrong"] {
            let (status, headers, _) = get(&hub, path, key).await;
            assert_eq!(headers["cache-control"], "no-store", "{path} {status}");
            assert_eq!(headers["x-content-type-options"], "nosniff", "{path} {status}");
            assert_eq!(
                headers["content-security-policy"], "default-src 'none'; frame-ancestors 'none'",
                "{path} {status}"
            );
            assert!(headers.contains_key("permissions-policy"), "{path} {status}");
        }
    }
    let foreign = raw(hub.address, [127, 0, 0, 1], "GET /api/state HTTP/1.1\r\nHost: evil.example").await;
    assert!(foreign.contains("cache-control: no-store") && foreign.contains("nosniff"), "{foreign}");
    let (_, headers, _) = get(&hub, "/", "").await;
    assert_eq!(headers["cross-origin-resource-policy"], "same-origin");
    let policy = headers["content-security-policy"].to_str().expect("text");
    let end = format!("connect-src 'self' ws://{}; frame-ancestors 'none'", hub.address);
    assert!(policy.ends_with(&end), "{policy}");
    let scripts =
        policy.split("; ").find(|directive| directive.starts_with("script-src")).unwrap_or("default-src 'self'");
    assert!(!scripts.contains("unsafe") && policy.contains("default-src 'self'"), "no inline script: {policy}");
    assert_eq!(headers["cache-control"], "no-cache", "the page says so itself");
}

/// What a browser needs to let a page of another origin hold a conversation: preflight requests are answered and responses are
/// readable, for listed origins and what a client reads, and nothing else is.
#[tokio::test(start_paused = true)]
async fn pages_of_listed_origins_read_what_a_client_needs_and_nothing_else() {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let hub = hub(Keys::of(&KEYS), |config| config.server.allowed_origins = vec!["https://app.example".into()]).await;
    let http = reqwest::Client::new();
    let ask = async |method: &str, path: &str, origin: &str| {
        let method: reqwest::Method = method.parse().expect("a method");
        let request = http.request(method, format!("http://{}{path}", hub.address)).header("origin", origin);
        let request = request.header("access-control-request-headers", "authorization").bearer_auth(KEYS[0]);
        let response = request.send().await.expect("an answer");
        let allowed = response.headers().get("access-control-allow-origin").cloned();
        (response.status().as_u16(), allowed.map(|origin| origin.to_str().expect("text").to_owned()))
    };
    let listed = "https://app.example";
    for path in ["/readyz", "/v1/audio/voices"] {
        assert_eq!(ask("OPTIONS", path, listed).await, (204, Some(listed.into())), "{path}");
        assert_eq!(ask("GET", path, listed).await, (200, Some(listed.into())), "{path}");
        for method in ["OPTIONS", "GET"] {
            assert_eq!(ask(method, path, "https://evil.example").await, (403, None), "{method} {path}");
        }
    }
    for path in ["/api/turns", "/metrics", "/v1/models", "/"] {
        assert_eq!(ask("GET", path, listed).await, (200, None), "{path}");
    }
    // Files of the client are for every page; whether there is one depends on the build of the pages.
    let (status, allowed) = ask("GET", "/sdk/antiphon-voice.js", "https://any.example").await;
    assert!(matches!(status, 200 | 404) && allowed.as_deref() == Some("https://any.example"), "{status} {allowed:?}");
    assert_eq!(ask("POST", "/sdk/antiphon-voice.js", "https://any.example").await, (403, None));
}

#[tokio::test(start_paused = true)]
async fn a_browser_that_has_a_page_gets_no_body_again() {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let hub = hub(Keys::of(&KEYS), |_| ()).await;
    let http = reqwest::Client::new();
    let ask = async |path: &str, if_none_match: Option<&str>, key: Option<&str>| {
        let mut request = http.get(format!("http://{}{path}", hub.address)).header("accept", "text/html");
        if let Some(tags) = if_none_match {
            request = request.header("if-none-match", tags);
        }
        if let Some(key) = key {
            request = request.bearer_auth(key);
        }
        let response = request.send().await.expect("an answer");
        let tag = response.headers().get("etag").map(|tag| tag.to_str().expect("text").to_owned());
        (response.status().as_u16(), tag, response.bytes().await.expect("a body").len())
    };
    let (status, tag, length) = ask("/", None, None).await;
    let tag = tag.expect("a tag");
    assert!(status == 200 && length > 100, "{status} {length}");
    for known in [tag.clone(), format!("\"another\", {tag}"), tag.trim_start_matches("W/").to_owned(), "*".into()] {
        assert_eq!(ask("/", Some(&known), None).await, (304, Some(tag.clone()), 0), "{known}");
    }
    for other in ["\"another\"", "W/\"another\"", "", &tag[..tag.len() - 2]] {
        assert_eq!(ask("/", Some(other), None).await, (200, Some(tag.clone()), length), "{other}");
    }
    // The page that asks for a key is no copy of the dashboard.
    let (status, of_dashboard, _) = ask("/dashboard", None, Some(KEYS[0])).await;
    assert_eq!(status, 200);
    let (status, none, length) = ask("/dashboard", of_dashboard.as_deref(), None).await;
    assert!(status == 401 && none.is_none() && length > 100, "{status} {none:?} {length}");
}
