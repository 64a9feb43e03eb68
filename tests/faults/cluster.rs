//! Workers that die, hang or lie, and a NATS server that goes away, under a hub that has a second worker, and engines of its own
//! to fall back on.

use super::harness::{Canary, Party, fault, run, typed};
use super::process::{Settings, TEST_TIMEOUT};
use super::upstream;
use antiphon_cluster::testing::NatsServer;
use antiphon_test_server::TestServer;
use serde_json::{Value, json};
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::process::{Child, ChildStdout, Command};
use tokio::sync::Mutex;
use tokio::time::timeout;

/// Resident memory that the cluster may cost the hub, in MiB.
const MEMORY_MIB: u64 = 64;

/// The machinery that faults break.
struct Cluster {
    nats: Mutex<NatsServer>,
    url: String,
    upstream: TestServer,
    /// The one that faults befall.
    worker: Mutex<Worker>,
    /// What takes over from it.
    _second: Worker,
}

/// A process that speaks for the hub.
struct Worker {
    child: Child,
    /// Kept, so that it can print.
    _out: BufReader<ChildStdout>,
    _folder: TempDir,
}

impl Worker {
    async fn start(name: &str, url: &str, upstream: &TestServer) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let log = std::fs::File::create(folder.path().join("log")).expect("made");
        let program = std::env::var("ANTIPHON").unwrap_or_else(|_| env!("CARGO_BIN_EXE_antiphon").to_owned());
        let mut command = Command::new(program);
        command.args(["worker", "--stage", "tts", "--name", name]).env_clear().current_dir(folder.path());
        for (key, value) in [
            ("CLUSTER__SERVERS", url),
            ("TTS__ENGINE", "openai"),
            ("TTS__API_KEY_ENV", ""),
            ("TTS__BASE_URL", &upstream.url("/v1")),
            ("TTS__TIMEOUT_MS", "3000"),
            ("SERVER__PROBE_LISTEN", "127.0.0.1:0"),
        ] {
            command.env(format!("ANTIPHON_{key}"), value);
        }
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(log).kill_on_drop(true);
        let mut child = command.spawn().expect("the program starts");
        let mut out = BufReader::new(child.stdout.take().expect("piped"));
        let mut line = String::new();
        timeout(TEST_TIMEOUT, out.read_line(&mut line)).await.expect("it starts").expect("text");
        let said = std::fs::read_to_string(folder.path().join("log")).unwrap_or_default();
        assert!(line.contains(&format!("worker {name} serves")), "{line}{said}");
        Self { child, _out: out, _folder: folder }
    }

    fn signal(&self, name: &str) {
        let pid = self.child.id().expect("it runs").to_string();
        let sent = std::process::Command::new("kill").args([&format!("-{name}"), &pid]).status();
        assert!(sent.expect("kill runs").success());
    }
}

impl Cluster {
    async fn start() -> Arc<Self> {
        let nats = NatsServer::start().await.expect("nats-server: make nats-server");
        let url = nats.url();
        let upstream = upstream::start();
        let worker = Mutex::new(Worker::start("first", &url, &upstream).await);
        let second = Worker::start("second", &url, &upstream).await;
        Arc::new(Self { nats: Mutex::new(nats), url, upstream, worker, _second: second })
    }

    async fn new_worker(&self) {
        *self.worker.lock().await = Worker::start("first", &self.url, &self.upstream).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn workers_and_nats_fail_and_the_hub_speaks_by_itself() {
    // Nothing is started where nothing is to be run.
    if std::env::var("ANTIPHON_FAULTS").is_err() {
        return;
    }
    let cluster = Cluster::start().await;
    let settings = Settings::default()
        .with("CLUSTER__SERVERS", cluster.url.clone())
        .with("CLUSTER__STAGES", "[\"tts\"]")
        .with("CLUSTER__FALLBACK", "true");
    let with = |run: fn(Party, Arc<Cluster>) -> futures_util::future::BoxFuture<'static, ()>| {
        let cluster = cluster.clone();
        move |party: Party| run(party, cluster.clone())
    };
    let faults = vec![
        fault(
            "worker: killed while it speaks",
            "its answer, completed",
            with(|party, cluster| Box::pin(killed(party, cluster))),
        ),
        fault(
            "worker: paused while it speaks",
            "its answer, completed",
            with(|party, cluster| Box::pin(paused(party, cluster))),
        ),
        fault(
            "worker: stopped and started three times",
            "answers",
            with(|party, cluster| Box::pin(restarted(party, cluster))),
        ),
        fault(
            "NATS: killed while a worker speaks",
            "its answer or an error, then answers by the hub's own voice",
            with(|party, cluster| Box::pin(nats_killed(party, cluster))),
        )
        .beside(Canary::Text),
        fault(
            "NATS: paused for two seconds",
            "its answer or an error, then answers by the hub's own voice",
            with(|party, cluster| Box::pin(nats_paused(party, cluster))),
        )
        .beside(Canary::Text),
        fault(
            "NATS: 20,000 messages of nonsense to every subject",
            "answers",
            with(|party, cluster| Box::pin(nonsense(party, cluster))),
        ),
    ];
    run("cluster", settings, MEMORY_MIB, faults).await;
}

/// Waits until the hub knows so many workers that it uses.
async fn workers(party: &Party, n: usize) {
    let known = async {
        loop {
            let state = party.hub.get("/api/state").await.map(|answer| answer.json()).unwrap_or_default();
            let workers = state["cluster"]["workers"].as_array().cloned().unwrap_or_default();
            if workers.iter().filter(|worker| worker["refused"].is_null()).count() == n
                && state["cluster"]["connected"] == true
            {
                return;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    timeout(TEST_TIMEOUT, known).await.unwrap_or_else(|_| panic!("the hub does not see {n} workers"));
}

/// A session that is being answered at length.
async fn listening(party: &Party) -> crate::hub::Socket {
    let mut socket = party.connect("").await;
    socket.send(typed("Tell me a long story")).await;
    socket.send(json!({"type": "response.create"})).await;
    socket.until("response.output_audio.delta").await;
    socket
}

/// The status of the answer.
async fn ended(socket: &mut crate::hub::Socket) -> String {
    let done: Value =
        timeout(TEST_TIMEOUT, socket.until("response.done")).await.expect("an end").pop().expect("an end");
    done["response"]["status"].as_str().unwrap_or_default().to_owned()
}

/// A short answer, by which engine ever.
async fn goes_on(socket: &mut crate::hub::Socket) {
    socket.send(typed("Hello")).await;
    socket.send(json!({"type": "response.create"})).await;
    assert_eq!(ended(socket).await, "completed");
}

async fn killed(party: Party, cluster: Arc<Cluster>) {
    workers(&party, 2).await;
    let mut socket = listening(&party).await;
    cluster.worker.lock().await.child.kill().await.expect("killed");
    let (status, ()) = tokio::join!(ended(&mut socket), party.beside());
    cluster.new_worker().await;
    workers(&party, 2).await;
    assert_eq!(status, "completed");
}

async fn paused(party: Party, cluster: Arc<Cluster>) {
    workers(&party, 2).await;
    let mut socket = listening(&party).await;
    cluster.worker.lock().await.signal("STOP");
    let (status, ()) = tokio::join!(ended(&mut socket), party.beside());
    cluster.worker.lock().await.signal("CONT");
    workers(&party, 2).await;
    assert_eq!(status, "completed");
}

async fn restarted(party: Party, cluster: Arc<Cluster>) {
    for _ in 0..3 {
        workers(&party, 2).await;
        let mut socket = listening(&party).await;
        cluster.worker.lock().await.signal("TERM");
        cluster.new_worker().await;
        assert_eq!(ended(&mut socket).await, "completed");
    }
    party.beside().await;
    workers(&party, 2).await;
}

async fn nats_killed(party: Party, cluster: Arc<Cluster>) {
    workers(&party, 2).await;
    let mut socket = listening(&party).await;
    cluster.nats.lock().await.kill().await;
    let (status, ()) = tokio::join!(ended(&mut socket), party.beside());
    // The chunk in hand is lost; those behind it are the hub's own.
    let own = timeout(TEST_TIMEOUT, goes_on(&mut socket)).await;
    cluster.nats.lock().await.restart().await.expect("it starts again");
    workers(&party, 2).await;
    assert!(["completed", "failed"].contains(&status.as_str()), "{status}");
    own.expect("an answer without NATS");
}

async fn nats_paused(party: Party, cluster: Arc<Cluster>) {
    workers(&party, 2).await;
    let mut socket = listening(&party).await;
    cluster.nats.lock().await.pause().expect("paused");
    tokio::time::sleep(Duration::from_secs(2)).await;
    cluster.nats.lock().await.resume().expect("resumed");
    let (status, ()) = tokio::join!(ended(&mut socket), party.beside());
    workers(&party, 2).await;
    assert!(["completed", "failed"].contains(&status.as_str()), "{status}");
    goes_on(&mut socket).await;
}

async fn nonsense(party: Party, cluster: Arc<Cluster>) {
    workers(&party, 2).await;
    let address = cluster.url.trim_start_matches("nats://").to_owned();
    let mut stream = TcpStream::connect(address).await.expect("NATS listens");
    stream.write_all(b"CONNECT {\"verbose\":false}\r\n").await.expect("sent");
    let subjects = [
        "antiphon.v1.advert.worker.ffffffffffffffff",
        "antiphon.v1.advert.hub.ffffffffffffffff",
        "antiphon.v1.advert.worker.not-hex",
        "antiphon.v1.open.ffffffffffffffff",
        "antiphon.v1.out.ffffffffffffffff.1",
    ];
    let flood = async {
        for n in 0..20_000_u32 {
            let payload: Vec<u8> = (0..200_u32).map(|i| ((n ^ i).wrapping_mul(2_654_435_761) >> 24) as u8).collect();
            let head = format!("PUB {} {}\r\n", subjects[n as usize % subjects.len()], payload.len());
            let message = [head.as_bytes(), &payload, b"\r\n"].concat();
            if stream.write_all(&message).await.is_err() {
                break;
            }
        }
    };
    tokio::join!(flood, party.beside());
    let mut socket = listening(&party).await;
    assert_eq!(ended(&mut socket).await, "completed");
}
