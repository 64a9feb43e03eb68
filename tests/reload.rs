//! Changes while the hub runs: keys and certificates; also the probe listener and the security log.

use crate::hub::{Socket, engines};
use antiphon::config::Config;
use antiphon::server::{self, Extras, Keys, Parts, Reload, Tls};
use antiphon_client::{ConnectOptions, Event, ReceivedMessage, Trust};
use antiphon_engine_api::fakes::llm::FakeLlm;
use antiphon_engine_api::fakes::stt::FakeStt;
use antiphon_engine_api::fakes::tts::FakeTts;
use antiphon_telemetry::Metrics;
use reqwest::Certificate;
use serde_json::{Value, json};
use std::io::Write;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::net::{TcpListener, TcpStream};
use tokio::process::{Child, ChildStdout};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_util::sync::CancellationToken;

const OLD: &str = "sk-antiphon-old-key-1";
const KEPT: &str = "sk-antiphon-kept-key";
const NEW: &str = "sk-antiphon-new-key-1";
const TEST_TIMEOUT: Duration = Duration::from_secs(20);

/// A hub with a probe listener, which can be reloaded.
struct TestHub {
    address: SocketAddr,
    probes: SocketAddr,
    reload: mpsc::Sender<Reload>,
    stop: CancellationToken,
    served: JoinHandle<std::io::Result<()>>,
}

impl TestHub {
    #[allow(clippy::disallowed_methods)]
    async fn start(keys: Keys, tls: Option<Tls>) -> Self {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let probes = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("bound");
        let at = probes.local_addr().expect("bound");
        let engines = engines(FakeStt::default(), FakeLlm::says(["Hi."; 9]), FakeTts::default());
        let mut config = Config::default();
        config.speech.jobs_dir.clear();
        let parts = Parts { config, engines, metrics: Metrics::new(), keys, tls, manager: None };
        let (reload, reloads) = mpsc::channel(1);
        let extras = Extras { probes: Some(probes), reloads: Some(reloads), ..Extras::default() };
        let stop = CancellationToken::new();
        let served = tokio::spawn(server::serve_with(listener, parts, extras, stop.clone()));
        Self { address, probes: at, reload, stop, served }
    }

    async fn connect(&self, query: &str, key: &str, protocols: &str) -> Socket {
        let mut request = format!("ws://{}/v1/realtime{query}", self.address).into_client_request().expect("a request");
        request.headers_mut().insert("authorization", format!("Bearer {key}").parse().expect("a header"));
        if !protocols.is_empty() {
            request.headers_mut().insert("sec-websocket-protocol", protocols.parse().expect("a header"));
        }
        let (stream, _) = crate::hub::connect(request).await.expect("the upgrade is accepted");
        Socket { stream, frames: Vec::new() }
    }

    async fn status(&self, path: &str, key: &str) -> u16 {
        let request = reqwest::Client::new().get(format!("http://{}{path}", self.address)).bearer_auth(key);
        request.send().await.expect("an answer").status().as_u16()
    }

    async fn end(self) {
        self.stop.cancel();
        timeout(TEST_TIMEOUT, self.served).await.expect("it ends").expect("no panic").expect("no error");
    }
}

#[tokio::test]
async fn a_key_that_is_gone_takes_its_sessions_and_its_short_lived_keys_with_it() {
    let hub = TestHub::start(Keys::of(&[OLD, KEPT]), None).await;
    let made = reqwest::Client::new().post(format!("http://{}/v1/realtime/client_secrets", hub.address));
    let made: Value = made.bearer_auth(OLD).send().await.expect("an answer").json().await.expect("JSON");
    let guest = made["value"].as_str().expect("a key");
    let mut kept = hub.connect("", KEPT, "").await;
    let mut gone = [hub.connect("", OLD, "").await, hub.connect("", guest, "").await];
    for socket in gone.iter_mut().chain([&mut kept]) {
        assert_eq!(socket.next().await["type"], "session.created");
    }
    let mut away = hub.connect("?resume=1", OLD, "").await;
    let notice = away.until("antiphon.session.resumable").await.pop().expect("there");
    let back = format!("realtime, antiphon-resume.{}.2", notice["key"].as_str().expect("a key"));
    drop(away);
    let live = reqwest::Client::new().get(format!("http://{}/api/turns/live", hub.address)).bearer_auth(OLD);
    let live = live.send().await.expect("an answer");

    hub.reload.send(Reload { keys: Some(Keys::of(&[KEPT, NEW])), ..Reload::default() }).await.expect("taken");
    for socket in &mut gone {
        let close = socket.close().await.expect("a close with a code");
        assert_eq!(u16::from(close.code), 1008, "{close:?}");
        assert!(close.reason.contains("key"), "{close:?}");
    }
    timeout(TEST_TIMEOUT, live.bytes()).await.expect("the line ends").expect("in peace");
    assert_eq!(kept.ask("Still here?").await.last().expect("done")["response"]["status"], "completed");
    for key in [OLD, guest] {
        assert_eq!(hub.connect("", key, "").await.next().await["error"]["code"], "invalid_api_key");
        assert_eq!(hub.connect("", key, &back).await.next().await["error"]["code"], "invalid_api_key");
    }
    assert_eq!(hub.connect("", KEPT, &back).await.next().await["error"]["code"], "session_not_found");
    assert_eq!((hub.status("/metrics", OLD).await, hub.status("/metrics", NEW).await), (401, 200));
    // A reload without keys would make the hub accessible without authentication.
    hub.reload.send(Reload { keys: Some(Keys::default()), ..Reload::default() }).await.expect("taken");
    hub.reload.send(Reload::default()).await.expect("taken");
    assert_eq!(hub.status("/metrics", "none").await, 401);
    drop(kept);
    hub.end().await;
}

#[tokio::test]
async fn a_new_certificate_serves_new_connections() {
    let (first, first_pem) = Tls::self_signed(&[]).expect("a certificate");
    let (second, second_pem) = Tls::self_signed(&[]).expect("a certificate");
    let hub = TestHub::start(Keys::default(), Some(first)).await;
    let trusts = async |pem: &str| {
        let trusted = Certificate::from_pem(pem.as_bytes()).expect("PEM");
        let browser = reqwest::Client::builder().tls_certs_only([trusted]).build().expect("a client");
        browser.get(format!("https://{}/healthz", hub.address)).send().await.is_ok()
    };
    assert!(trusts(&first_pem).await && !trusts(&second_pem).await);
    let address = format!("https://localhost:{}", hub.address.port());
    let options = ConnectOptions { trust: Trust::Anyone, ..ConnectOptions::new(address) };
    let mut call = antiphon_client::connect(&options).await.expect("a session");
    assert_eq!(call.receiver.next().await.expect("an event"), ReceivedMessage::Event(Event::SessionCreated {}));
    hub.reload.send(Reload { tls: Some(second), ..Reload::default() }).await.expect("taken");
    let changed = async {
        while !trusts(&second_pem).await {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(TEST_TIMEOUT, changed).await.expect("it serves");
    assert!(!trusts(&first_pem).await);
    // The call under way goes on over its connection.
    call.sender.say_in_text("Hi.").await.expect("sent");
    let answered = async {
        while !matches!(
            call.receiver.next().await.expect("an event"),
            ReceivedMessage::Event(Event::ResponseDone { .. })
        ) {}
    };
    timeout(TEST_TIMEOUT, answered).await.expect("an answer");
    hub.end().await;
}

#[tokio::test]
async fn probes_have_a_listener_of_their_own() {
    let hub = TestHub::start(Keys::of(&[KEPT]), None).await;
    let probe = async |path: &str| {
        // Like the kubelet and Prometheus, with an arbitrary host name.
        let request = reqwest::Client::new().get(format!("http://{}{path}", hub.probes)).header("host", "pod.example");
        let answer = timeout(TEST_TIMEOUT, request.send()).await.expect("in time").expect("an answer");
        (answer.status().as_u16(), answer.text().await.expect("a body"))
    };
    // All slots of the other listener are in use, and more connections wait.
    let mut idle = Vec::new();
    for _ in 0..600 {
        idle.push(TcpStream::connect(hub.address).await.expect("it listens"));
    }
    assert_eq!(probe("/healthz").await, (200, "ok\n".into()));
    assert_eq!(probe("/readyz").await.0, 200);
    assert!(probe("/metrics").await.1.contains("antiphon_sessions_active"));
    for path in ["/", "/api/turns", "/v1/models", "/v1/realtime", "/dashboard"] {
        assert_eq!(probe(path).await.0, 404, "{path}");
    }
    drop(idle);
    let mut session = hub.connect("", KEPT, "").await;
    session.send(json!({"type": "response.create"})).await;
    session.until("response.output_audio.delta").await;
    hub.stop.cancel();
    let stopping = async {
        while probe("/readyz").await.0 != 503 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(TEST_TIMEOUT, stopping).await.expect("it says that it stops");
    drop(session);
    hub.end().await;
}

/// The log, as lines of JSON.
#[derive(Clone, Default)]
pub struct Log(Arc<Mutex<Vec<u8>>>);

impl Log {
    /// What was logged so far.
    pub fn text(&self) -> String {
        String::from_utf8(self.0.lock().expect("no panic").clone()).expect("text")
    }
}

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().expect("no panic").extend(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[tokio::test(start_paused = true)]
async fn security_events_are_logged_without_secrets_and_without_end() {
    let log = Log::default();
    let lines = log.clone();
    let subscriber = tracing_subscriber::fmt().json().with_writer(move || lines.clone()).finish();
    let _logging = tracing::subscriber::set_default(subscriber);
    let hub = TestHub::start(Keys::of(&[KEPT]), None).await;
    for n in 0..100 {
        assert_ne!(hub.status(&format!("/api/turns?key=sk-secret-{n}"), &format!("sk-guess-{n}")).await, 200);
    }
    let make_key = || async {
        let request =
            reqwest::Client::new().post(format!("http://{}/v1/realtime/client_secrets?key=sk-secret", hub.address));
        let made = request.bearer_auth(KEPT).send().await.expect("an answer");
        made.json::<Value>().await.unwrap_or_default()["value"].as_str().map(str::to_owned)
    };
    // An address gets back one attempt a second, also while it guesses.
    let throttled = async { while hub.status("/api/turns", "sk-guess").await != 429 {} };
    timeout(TEST_TIMEOUT, throttled).await.expect("an address with too many wrong keys is refused");
    let key = make_key().await.expect("a right key passes all the same");
    hub.end().await;
    let log = log.text();
    let events: Vec<Value> = log.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let security: Vec<&Value> = events.iter().filter(|event| event["target"] == "antiphon::security").collect();
    assert!((20..40).contains(&security.len()), "{}", security.len());
    let first = &security[0]["fields"];
    assert_eq!(
        (&first["address"], &first["route"], &first["status"]),
        (&json!("127.0.0.1"), &json!("/api/turns"), &json!(401))
    );
    assert_eq!(first["reason"], "wrong key");
    assert!(security.iter().any(|event| event["fields"]["what"] == "a short-lived key was made"), "{security:?}");
    for secret in ["sk-guess", "sk-secret", KEPT, &key] {
        assert!(!log.contains(secret), "{secret}");
    }
}

/// The status of a request to the process.
async fn ask(address: &str, key: &str) -> Option<u16> {
    let mut stream = TcpStream::connect(address).await.ok()?;
    let head =
        format!("GET /metrics HTTP/1.1\r\nHost: {address}\r\nAuthorization: Bearer {key}\r\nConnection: close\r\n\r\n");
    stream.write_all(head.as_bytes()).await.ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.ok()?;
    answer.split(' ').nth(1)?.parse().ok()
}

/// A hub as a process.
struct Process {
    child: Child,
    /// Kept, so that it can print.
    _said: Lines<BufReader<ChildStdout>>,
    address: String,
    log: PathBuf,
}

impl Process {
    async fn start(folder: &Path, settings: &[(&str, &Path)]) -> Self {
        let log = folder.join("log");
        let mut command = tokio::process::Command::new(env!("CARGO_BIN_EXE_antiphon"));
        command.args(["serve", "--listen", "127.0.0.1:0"]).env_clear();
        command
            .envs(std::env::var_os("PATH").map(|path| ("PATH", path)))
            .env("ANTIPHON_MODELS__DIR", "nowhere/models")
            .env("ANTIPHON_SPEECH__JOBS_DIR", "")
            .envs(settings.iter().map(|(name, value)| (format!("ANTIPHON_{name}"), value)));
        command.stdout(Stdio::piped()).stderr(std::fs::File::create(&log).expect("made")).kill_on_drop(true);
        let mut child = command.spawn().expect("the binary starts");
        let mut said = BufReader::new(child.stdout.take().expect("piped")).lines();
        let line = timeout(Duration::from_secs(60), said.next_line()).await.expect("it starts").expect("text");
        let line = line.expect("a line");
        let address = line.split("://").nth(1).expect("an address").split(':').take(2).collect::<Vec<_>>().join(":");
        Self { child, _said: said, address, log }
    }

    fn signal(&self, name: &str) {
        let pid = self.child.id().expect("it runs").to_string();
        assert!(Command::new("kill").args([name, &pid]).status().expect("kill runs").success());
    }

    /// Waits until its log says this.
    async fn says(&self, text: &str) {
        let said = async {
            while !std::fs::read_to_string(&self.log).expect("there").contains(text) {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        timeout(TEST_TIMEOUT, said).await.unwrap_or_else(|_| panic!("it does not say {text:?}"));
    }

    async fn end(mut self) {
        self.signal("-TERM");
        let ended = timeout(Duration::from_secs(60), self.child.wait()).await.expect("it ends").expect("waited for");
        assert!(ended.success(), "{ended:?}");
    }
}

#[tokio::test]
async fn sighup_reads_the_keys_again_and_a_broken_file_changes_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("keys");
    std::fs::write(&file, OLD).expect("written");
    let probes = Path::new("127.0.0.1:0");
    let settings = [("SERVER__API_KEYS_FILE", &*file), ("SERVER__PROBE_LISTEN", probes)];
    let hub = Process::start(folder.path(), &settings).await;
    let becomes = async |key: &str, status: u16| {
        let reached = async {
            while ask(&hub.address, key).await != Some(status) {
                // At a rate that does not trigger the rate limit of wrong keys.
                tokio::time::sleep(Duration::from_millis(1_100)).await;
            }
        };
        timeout(Duration::from_secs(60), reached).await.unwrap_or_else(|_| panic!("{key} becomes {status}"));
    };
    becomes(OLD, 200).await;
    std::fs::write(&file, "this is no key").expect("written");
    hub.signal("-HUP");
    hub.says("stay in use").await;
    assert_eq!(ask(&hub.address, OLD).await, Some(200), "the keys from before");
    std::fs::write(&file, NEW).expect("written");
    hub.signal("-HUP");
    becomes(NEW, 200).await;
    becomes(OLD, 401).await;
    hub.end().await;
}

#[tokio::test]
async fn sighup_exchanges_the_certificate_and_a_call_goes_on() {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let folder = tempfile::tempdir().expect("a folder");
    let cert = folder.path().join("cert.pem");
    let key = folder.path().join("key.pem");
    // Writes a new certificate and its key; the client that trusts it alone.
    let renew = || {
        let pair = rcgen::KeyPair::generate().expect("a key");
        let names = vec!["127.0.0.1".to_owned()];
        let params = rcgen::CertificateParams::new(names).expect("names");
        let pem = params.self_signed(&pair).expect("signed").pem();
        std::fs::write(&cert, &pem).expect("written");
        std::fs::write(&key, pair.serialize_pem()).expect("written");
        let trusted = Certificate::from_pem(pem.as_bytes()).expect("PEM");
        // Each request is a handshake of its own.
        let browser = reqwest::Client::builder().tls_certs_only([trusted]).pool_max_idle_per_host(0);
        browser.build().expect("a client")
    };
    let first = renew();
    let log = folder.path().join("audit.jsonl");
    let settings: [(&str, &Path); 3] =
        [("SERVER__TLS_CERT", &cert), ("SERVER__TLS_KEY", &key), ("SERVER__AUDIT_LOG", &log)];
    let hub = Process::start(folder.path(), &settings).await;
    let url = format!("https://{}", hub.address);
    let is_trusted = async |browser: &reqwest::Client| browser.get(format!("{url}/healthz")).send().await.is_ok();
    let becomes_ready = async {
        while first.get(format!("{url}/readyz")).send().await.expect("an answer").status() != 200 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(Duration::from_secs(60), becomes_ready).await.expect("it serves");
    let options = ConnectOptions { trust: Trust::Anyone, ..ConnectOptions::new(url.clone()) };
    let mut call = antiphon_client::connect(&options).await.expect("a session");
    assert_eq!(call.receiver.next().await.expect("an event"), ReceivedMessage::Event(Event::SessionCreated {}));

    let good = std::fs::read(&cert).expect("there");
    std::fs::write(&cert, "this is no certificate").expect("written");
    hub.signal("-HUP");
    hub.says("the certificate from before stay in use").await;
    assert!(is_trusted(&first).await, "the certificate from before");
    std::fs::write(&cert, good).expect("written");

    let second = renew();
    assert!(!is_trusted(&second).await, "files alone change nothing");
    hub.signal("-HUP");
    let changes = async {
        while !is_trusted(&second).await {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(TEST_TIMEOUT, changes).await.expect("it serves the new certificate");
    assert!(!is_trusted(&first).await);
    call.sender.say_in_text("Hi.").await.expect("sent");
    let answered = async {
        while !matches!(
            call.receiver.next().await.expect("an event"),
            ReceivedMessage::Event(Event::ResponseDone { .. })
        ) {}
    };
    timeout(TEST_TIMEOUT, answered).await.expect("the call goes on");
    drop(call);
    hub.end().await;
    let log = std::fs::read_to_string(log).expect("a log");
    let lines = log.lines().map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
    let reloads: Vec<_> = lines.filter(|line| line["action"] == "config.reload").collect();
    let of = |outcome: &str| reloads.iter().any(|line| line["target"] == "certificate" && line["outcome"] == outcome);
    assert!(of("failed") && of("ok"), "{reloads:?}");
}
