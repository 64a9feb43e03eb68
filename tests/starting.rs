//! A hub that listens while its engines are being loaded.

use antiphon::config::Config;
use antiphon::server::{self, Extras, Keys, LoadedEngines, Startup};
use antiphon_cluster::worker::Reporter;
use antiphon_engine_api::Engines;
use antiphon_engine_api::fakes::llm::FakeLlm;
use antiphon_engine_api::fakes::stt::FakeStt;
use antiphon_engine_api::fakes::tts::FakeTts;
use antiphon_engine_api::fakes::vad::FakeVad;
use antiphon_telemetry::Metrics;
use std::io;
use std::sync::Arc;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

/// A hub whose engines load, or fail, when the test signals it.
struct StartingHub {
    url: String,
    /// Of the probe listener.
    probes: String,
    loaded: oneshot::Sender<io::Result<LoadedEngines>>,
    stop: CancellationToken,
    hub: tokio::task::JoinHandle<io::Result<()>>,
}

#[allow(clippy::disallowed_methods)]
async fn start(keys: Keys) -> StartingHub {
    // Only the first installation succeeds; a second one is not an error.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let url = format!("http://{}", listener.local_addr().expect("bound"));
    let probed = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let probes = format!("http://{}", probed.local_addr().expect("bound"));
    let extras = Extras { probes: Some(probed), ..Extras::default() };
    let (loaded, load) = oneshot::channel();
    let stop = CancellationToken::new();
    let mut config = Config::default();
    config.server.allowed_origins = vec!["https://app.example".into()];
    let startup = Startup { config, metrics: Metrics::new(), keys, tls: None };
    let load = async { load.await.expect("the test says what becomes of the engines") };
    let hub = tokio::spawn({
        let stop = stop.clone();
        async move { server::serve_loading(listener, startup, load, extras, stop).await }
    });
    StartingHub { url, probes, loaded, stop, hub }
}

fn engines() -> LoadedEngines {
    let engines = Engines {
        vad: Arc::new(FakeVad),
        turn: None,
        speaker: None,
        stt: Arc::new(FakeStt::default()),
        llm: Arc::new(FakeLlm::default()),
        tts: Arc::new(FakeTts::default()),
    };
    LoadedEngines { engines, manager: None }
}

#[tokio::test]
async fn it_says_that_it_is_getting_ready_and_then_serves() {
    let StartingHub { url, loaded, stop, hub, .. } = start(Keys::default()).await;
    let http = reqwest::Client::new();
    let get = async |path: &str| http.get(format!("{url}{path}")).send().await.expect("it answers");

    assert_eq!(get("/healthz").await.status(), 200);
    let ready = get("/readyz").await;
    assert_eq!(ready.status(), 503);
    let ready: serde_json::Value = ready.json().await.expect("JSON");
    assert_eq!((&ready["ready"], &ready["loading"]), (&false.into(), &true.into()));
    let page = get("/").await;
    assert_eq!(page.status(), 200);
    assert!(page.headers()["content-security-policy"].to_str().expect("text").contains("connect-src 'self' ws://127"));
    for path in ["/v1/realtime", "/v1/models", "/metrics", "/api/turns", "/dashboard"] {
        let early = get(path).await;
        assert_eq!(early.status(), 503, "{path}");
        assert_eq!(early.headers()["retry-after"], "1", "{path}");
        let error: serde_json::Value = early.json().await.expect("JSON");
        let error = &error["error"];
        assert_eq!((&error["code"], &error["type"]), (&"server_starting".into(), &"server_error".into()), "{path}");
    }
    let foreign = http.get(format!("{url}/")).header("host", "rebound.example").send().await.expect("it answers");
    assert_eq!(foreign.status(), 403);
    // A page of an origin that may connect learns that the hub is starting.
    for (origin, status, may_read) in [("https://app.example", 503, true), ("https://evil.example", 403, false)] {
        let ready = http.get(format!("{url}/readyz")).header("origin", origin).send().await.expect("it answers");
        assert_eq!(ready.status(), status, "{origin}");
        assert_eq!(ready.headers().contains_key("access-control-allow-origin"), may_read, "{origin}");
    }

    loaded.send(Ok(engines())).ok().expect("the hub waits for them");
    while get("/readyz").await.status() != 200 {
        tokio::task::yield_now().await;
    }
    assert_eq!(get("/v1/models").await.status(), 200);
    stop.cancel();
    assert!(hub.await.expect("no panic").is_ok());
}

#[tokio::test]
async fn what_needs_a_key_later_is_not_open_before() {
    let StartingHub { url, loaded, stop, hub, .. } = start(Keys::of(&["sk-one-of-ours-1234"])).await;
    let get = async |path: &str| reqwest::get(format!("{url}{path}")).await.expect("it answers").status().as_u16();
    assert_eq!((get("/").await, get("/dashboard").await, get("/metrics").await), (200, 503, 503));
    let two_hosts = {
        let mut stream = tokio::net::TcpStream::connect(url.trim_start_matches("http://")).await.expect("it listens");
        let request = b"GET / HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\nConnection: close\r\n\r\n";
        stream.write_all(request).await.expect("sent");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.expect("text");
        answer
    };
    assert!(two_hosts.starts_with("HTTP/1.1 400 ") && two_hosts.contains("invalid_host"), "{two_hosts}");
    loaded.send(Ok(engines())).ok().expect("the hub waits for them");
    while get("/readyz").await != 200 {
        tokio::task::yield_now().await;
    }
    assert_eq!((get("/").await, get("/metrics").await), (200, 401));
    stop.cancel();
    assert!(hub.await.expect("no panic").is_ok());
}

#[tokio::test]
async fn engines_that_fail_end_it_and_so_does_a_stop() {
    let StartingHub { url, loaded, hub, .. } = start(Keys::default()).await;
    assert_eq!(reqwest::get(format!("{url}/healthz")).await.expect("it answers").status(), 200);
    loaded.send(Err(io::Error::other("no model"))).ok().expect("the hub waits for them");
    assert_eq!(hub.await.expect("no panic").expect_err("it failed").to_string(), "no model");
    assert!(reqwest::get(format!("{url}/healthz")).await.is_err(), "nobody listens any more");

    let StartingHub { loaded: _kept, stop, hub, .. } = start(Keys::default()).await;
    stop.cancel();
    assert!(hub.await.expect("no panic").is_ok());
}

#[tokio::test]
async fn the_page_is_compressed_for_who_takes_that_and_streams_are_not() {
    let StartingHub { url, loaded, stop, hub, .. } = start(Keys::default()).await;
    loaded.send(Ok(engines())).ok().expect("the hub waits for them");
    let http = reqwest::Client::new();
    let get = async |path: &str| {
        let asked = http.get(format!("{url}{path}")).header("accept-encoding", "gzip");
        asked.send().await.expect("it answers").headers().get("content-encoding").cloned()
    };
    while http.get(format!("{url}/readyz")).send().await.expect("it answers").status() != 200 {
        tokio::task::yield_now().await;
    }
    assert_eq!(get("/").await.expect("compressed"), "gzip");
    assert_eq!(get("/api/turns/live").await, None);
    let plain = http.get(format!("{url}/")).send().await.expect("it answers");
    assert!(plain.headers().get("content-encoding").is_none());
    stop.cancel();
    assert!(hub.await.expect("no panic").is_ok());
}

/// The paths of probes, and one that is none, asked for with this host: their statuses. Every response is sealed.
async fn probe(address: &str, host: &str) -> [u16; 4] {
    let http = reqwest::Client::new();
    let mut statuses = [0; 4];
    for (status, path) in statuses.iter_mut().zip(["/healthz", "/readyz", "/metrics", "/"]) {
        let asked = http.get(format!("{address}{path}")).header("host", host);
        let response = asked.send().await.expect("it answers");
        *status = response.status().as_u16();
        let header = |name: &str| response.headers().get(name).map(|value| value.to_str().expect("text"));
        assert_eq!(header("x-content-type-options"), Some("nosniff"), "{path} {status}");
        assert_eq!(header("cache-control"), Some("no-store"), "{path} {status}");
        let policy = header("content-security-policy");
        assert_eq!(policy, Some("default-src 'none'; frame-ancestors 'none'"), "{path} {status}");
        assert!(header("permissions-policy").is_some(), "{path} {status}");
    }
    statuses
}

#[tokio::test]
async fn probes_are_answered_to_any_host_and_sealed_and_nothing_else_is() {
    let StartingHub { probes, loaded, stop, hub, .. } = start(Keys::of(&["sk-one-of-ours-1234"])).await;
    for host in ["localhost", "hub-7.pods.example"] {
        assert_eq!(probe(&probes, host).await, [200, 503, 503, 404], "{host}, while engines load");
    }
    loaded.send(Ok(engines())).ok().expect("the hub waits for them");
    while reqwest::get(format!("{probes}/readyz")).await.expect("it answers").status() != 200 {
        tokio::task::yield_now().await;
    }
    for host in ["localhost", "hub-7.pods.example"] {
        assert_eq!(probe(&probes, host).await, [200, 200, 200, 404], "{host}");
    }
    stop.cancel();
    assert!(hub.await.expect("no panic").is_ok());
}

#[tokio::test]
async fn probes_of_a_worker_are_sealed_too() {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = format!("http://{}", listener.local_addr().expect("bound"));
    let config = Config::default().server;
    tokio::select! {
        () = server::worker_probes(Some(listener), &config, Reporter::default()) => panic!("it goes on"),
        statuses = probe(&address, "worker-3.pods.example") => assert_eq!(statuses, [200, 503, 200, 404]),
    }
}
