//! `antiphon worker` and a hub as processes of their own on a real nats-server: a conversation, a rolling update, and what
//! keeps either of them from starting.

use crate::hub::{Hub, Socket, hub as hub_of_fakes, quiet};
use antiphon_cluster::SealingKey;
use antiphon_cluster::testing::NatsServer;
use serde_json::{Value, json};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Output, Stdio};
use std::time::Duration;
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};
use tokio::time::timeout;

/// No test waits longer for one thing.
const TEST_TIMEOUT: Duration = Duration::from_secs(20);

/// A recognizer that takes no time to load, for hubs and workers that only speak.
pub const NO_RECOGNIZER: [(&str, &str); 3] = [
    ("ANTIPHON_STT__ENGINE", "openai"),
    ("ANTIPHON_STT__API_KEY_ENV", ""),
    ("ANTIPHON_STT__BASE_URL", "http://127.0.0.1:1/v1"),
];

/// A process of the program that stays until it is stopped.
pub struct Process {
    child: Child,
    /// Kept, so that it can print.
    _out: Lines<BufReader<ChildStdout>>,
    folder: TempDir,
    /// The first line that it printed.
    first: String,
}

/// The program with this environment and nothing else of this process's.
fn program(args: &[&str], env: &[(&str, &str)]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_antiphon"));
    command
        .args(args)
        .env_clear()
        .envs(std::env::var_os("PATH").map(|path| ("PATH", path)))
        .env("ANTIPHON_MODELS__DIR", "nowhere/models")
        .env("ANTIPHON_SPEECH__JOBS_DIR", "")
        .env("ANTIPHON_SERVER__PROBE_LISTEN", "127.0.0.1:0")
        .envs(env.iter().copied())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .kill_on_drop(true);
    command
}

impl Process {
    /// Starts it and waits for its first line.
    async fn start(args: &[&str], env: &[(&str, &str)]) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let log = std::fs::File::create(folder.path().join("log")).expect("made");
        let mut child = program(args, env).stderr(log).spawn().expect("the binary starts");
        let mut out = BufReader::new(child.stdout.take().expect("piped")).lines();
        let first = timeout(TEST_TIMEOUT, out.next_line()).await.expect("it starts").expect("text");
        let log = std::fs::read_to_string(folder.path().join("log")).expect("there");
        Self { child, _out: out, first: first.unwrap_or_else(|| panic!("{args:?} ended: {log}")), folder }
    }

    async fn worker(name: &str, stages: &str, env: &[(&str, &str)]) -> Self {
        let worker = Self::start(&["worker", "--stage", stages, "--name", name], env).await;
        assert!(worker.first.starts_with(&format!("Antiphon worker {name} serves ")), "{}", worker.first);
        worker
    }

    pub async fn hub(env: &[(&str, &str)]) -> Self {
        Self::start(&["serve", "--listen", "127.0.0.1:0"], env).await
    }

    pub fn log(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("log")).expect("there")
    }

    /// The hub's address, from its first line.
    pub fn address(&self) -> String {
        address_in(&self.first)
    }

    /// The address of the probes, from the log.
    fn probes(&self) -> String {
        let log = self.log();
        address_in(log.split("answering probes on ").nth(1).expect("it answers probes"))
    }

    pub fn terminate(&self) {
        let pid = self.child.id().expect("it runs").to_string();
        let sent = std::process::Command::new("kill").args(["-TERM", &pid]).status();
        assert!(sent.expect("kill runs").success());
    }

    /// Ends it without notice.
    pub async fn kill(&mut self) {
        self.child.kill().await.expect("it is killed");
    }

    /// Its exit code once it has ended.
    pub async fn ended(&mut self) -> Option<i32> {
        let ended =
            timeout(TEST_TIMEOUT, self.child.wait()).await.unwrap_or_else(|_| panic!("it ends: {}", self.log()));
        assert!(!self.log().contains("panicked"), "{}", self.log());
        ended.expect("waited for").code()
    }
}

/// `127.0.0.1:PORT` of a text with `http://127.0.0.1:PORT` in it.
fn address_in(text: &str) -> String {
    let rest = text.split("http://").nth(1).unwrap_or_else(|| panic!("an address in {text:?}"));
    rest.split(|c: char| !(c.is_ascii_digit() || c == '.' || c == ':'))
        .next()
        .expect("an address")
        .trim_end_matches(':')
        .into()
}

/// Runs the program to its end.
async fn run(args: &[&str], env: &[(&str, &str)]) -> (Option<i32>, String, String) {
    let output = program(args, env).stderr(Stdio::piped()).output();
    let Output { status, stdout, stderr } =
        timeout(TEST_TIMEOUT, output).await.expect("it ends").expect("the binary starts");
    let text = |bytes| String::from_utf8(bytes).expect("text");
    (status.code(), text(stdout), text(stderr))
}

/// Checks that the program ends with `code` and one line of stderr for its user, which contains `expect`.
async fn refused(args: &[&str], env: &[(&str, &str)], code: i32, expect: &str) {
    let (ended, out, said) = run(args, env).await;
    assert_eq!(ended, Some(code), "{args:?}: {said}");
    let lines: Vec<&str> = said.lines().filter_map(|line| line.strip_prefix("antiphon: ")).collect();
    assert!(lines.len() == 1 && lines[0].contains(expect), "{args:?}: {expect:?} is not the line of {said}");
    assert!(out.is_empty() && !said.contains("panicked"), "{args:?}: {out}{said}");
}

async fn get(address: &str, path: &str) -> (u16, String) {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let response = reqwest::get(format!("http://{address}{path}")).await.expect("an answer");
    (response.status().as_u16(), response.text().await.expect("text"))
}

async fn json_of(address: &str, path: &str) -> (u16, Value) {
    let (status, text) = get(address, path).await;
    (status, serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error} in {path}: {text}")))
}

/// The response of `path`, once `is_so`.
async fn until(address: &str, path: &str, is_so: impl Fn(u16, &Value) -> bool) -> Value {
    let reached = async {
        loop {
            let (status, body) = json_of(address, path).await;
            if is_so(status, &body) {
                return body;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(TEST_TIMEOUT, reached).await.expect("it comes to that")
}

/// A text as the hub's voice speaks it: 16-bit samples at 24 kHz.
async fn spoken(address: &str, text: &str) -> Vec<i16> {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let asked = json!({"input": text, "voice": "slt", "response_format": "pcm"});
    let response = reqwest::Client::new().post(format!("http://{address}/v1/audio/speech")).json(&asked).send().await;
    let response = response.expect("an answer");
    assert_eq!(response.status(), 200);
    let bytes = response.bytes().await.expect("all of it");
    bytes.chunks_exact(2).map(|pair| i16::from_le_bytes([pair[0], pair[1]])).collect()
}

/// The tiny Whisper model of the fixtures.
fn whisper_model() -> TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    let zip = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/whisper/words.zip");
    let zip = std::fs::File::open(zip).expect("a fixture");
    zip::ZipArchive::new(zip).expect("an archive").extract(folder.path()).expect("room");
    folder
}

#[tokio::test]
async fn a_conversation_runs_on_a_worker_and_its_turn_says_so() {
    let nats = NatsServer::start().await.expect("nats-server");
    let model = whisper_model();
    let url = nats.url();
    let file = model.path().join("words.bin");
    let servers = ("ANTIPHON_CLUSTER__SERVERS", url.as_str());
    let whisper = [
        servers,
        ("ANTIPHON_STT__ENGINE", "whisper"),
        ("ANTIPHON_STT__MODEL", file.to_str().expect("a plain path")),
        ("ANTIPHON_STT__THREADS", "1"),
    ];
    let env =
        [servers, ("ANTIPHON_CLUSTER__STT_MODEL", "words.bin"), ("ANTIPHON_CLUSTER__STT_FALLBACK_MODEL", "moonshine")];
    let (mut worker, mut hub) = tokio::join!(Process::worker("north", "stt,tts", &whisper), Process::hub(&env));
    let expect = format!("Antiphon worker north serves stt (whisper: words.bin), tts (flite) through NATS at {url}");
    assert_eq!(worker.first, expect);
    let address = hub.address();
    let probes = worker.probes();
    // The hub loads no engine for these stages.
    assert!(
        !hub.log().contains("stage=\"stt\" engine") && !hub.log().contains("stage=\"tts\" engine"),
        "{}",
        hub.log()
    );

    let question = spoken(&address, "Red green blue.").await;
    let ws = format!("ws://{address}/v1/realtime?audio=pcm16");
    let (stream, _) = crate::hub::connect(ws).await.expect("a session");
    let mut socket = Socket { stream, frames: Vec::new() };
    let mut sequence = 0;
    for pcm in [question, quiet(800)] {
        crate::framed::speak(&mut socket, &mut sequence, &pcm).await;
    }
    let events = socket.until("response.done").await;
    let heard = events.iter().find(|event| event["type"] == "conversation.item.input_audio_transcription.completed");
    assert_eq!(heard.expect("a transcript")["transcript"], "red green blue");
    assert!(!socket.frames.is_empty(), "it answers with sound");
    let turns = until(&address, "/api/turns", |_, list| list["turns"][0]["tts_worker"].is_string()).await;
    let turn = &turns["turns"][0];
    assert_eq!((&turn["stt_worker"], &turn["tts_worker"]), (&json!("north"), &json!("north")), "{turn}");

    let (_, ready) = json_of(&address, "/readyz").await;
    assert_eq!((&ready["engines"]["stt"], &ready["engines"]["tts"]), (&json!("cluster"), &json!("cluster")), "{ready}");
    let (_, state) = json_of(&address, "/api/state").await;
    assert_eq!(state["cluster"]["workers"][0]["name"], "north", "{state}");
    assert_eq!(state["cluster"]["hubs"][0]["is_this"], true, "{state}");
    until(&address, "/api/state", |_, state| state["cluster"]["hubs"][0]["sessions"] == 1).await;
    let told = get(&address, "/metrics").await.1;
    assert!(
        told.contains("\nantiphon_cluster_workers 1\n") && told.contains("\nantiphon_cluster_failed_total 0\n"),
        "{told}"
    );
    assert!(told.contains("\nantiphon_cluster_lacks_workers 0\n"), "{told}");
    assert!(told.contains("\nantiphon_cluster_fallback_total{stage=\"stt\"} 0\n"), "{told}");
    let served = get(&probes, "/metrics").await.1;
    let page = include_str!("../docs/reference/metrics.md");
    for name in told.lines().chain(served.lines()).filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next()) {
        assert!(page.contains(&format!("`{name}`")), "docs/reference/metrics.md does not name {name}");
    }
    assert!(served.contains("\nantiphon_worker_requests_total{stage=\"stt\"} 1\n"), "{served}");
    for name in crate::deploy::asked_metrics() {
        let begin = format!("# TYPE {name} gauge\n");
        assert!(told.contains(&begin) || served.contains(&begin), "deploy/ asks for {name}, which nothing exports");
    }
    assert!(served.contains("\nantiphon_worker_wait_milliseconds{stage=\"tts\"} 0\n"), "{served}");
    assert_eq!((get(&probes, "/healthz").await.0, get(&probes, "/readyz").await.0), (200, 200));
    for server in [&probes, &address] {
        let (code, out, said) = run(&["health", "--ready", "--url", &format!("http://{server}")], &[]).await;
        assert_eq!((code, out.as_str()), (Some(0), "ready\n"), "{said}");
    }
    let page = format!("http://{address}");
    let (code, table, said) = run(&["cluster", "status", "--url", &page], &[]).await;
    assert_eq!(code, Some(0), "{said}");
    assert!(table.contains("stt words.bin") && table.contains("north"), "{table}");
    let models = "\nModel of stt: words.bin (cluster.stt_model); fallback: moonshine, which no worker serves now; requests to the \
                  fallback: 0\n";
    assert!(table.contains(models), "{table}");
    let form = reqwest::multipart::Form::new().text("name", "Anna").text("consent", "I agree.");
    let form = form.part("audio_sample", reqwest::multipart::Part::bytes(vec![0; 9]).file_name("a.wav"));
    let voice = reqwest::Client::new().post(format!("{page}/v1/audio/voices")).multipart(form).send().await;
    let voice: Value = voice.expect("an answer").json().await.expect("JSON");
    assert!(voice["error"]["message"].as_str().is_some_and(|text| text.contains("those of the workers")), "{voice}");

    worker.terminate();
    assert_eq!(worker.ended().await, Some(0), "{}", worker.log());
    let gone = until(&address, "/readyz", |status, _| status == 503).await;
    assert_eq!(gone["reason"], "no worker serves stt", "{gone}");
    let told = get(&address, "/metrics").await.1;
    assert!(told.contains("\nantiphon_cluster_lacks_workers 1\n"), "{told}");
    let refusal = crate::hub::connect(format!("ws://{address}/v1/realtime")).await.expect_err("refused");
    let tokio_tungstenite::tungstenite::Error::Http(refusal) = refusal else { panic!("{refusal}") };
    assert_eq!(refusal.status(), 503);
    let body = String::from_utf8_lossy(refusal.body().as_deref().unwrap_or_default()).into_owned();
    assert!(body.contains("engine_unavailable") && refusal.headers().contains_key("retry-after"), "{body}");
    drop(socket);
    hub.terminate();
    assert_eq!(hub.ended().await, Some(0), "{}", hub.log());
}

#[tokio::test]
async fn a_text_is_spoken_to_its_end_while_its_worker_is_replaced() {
    let nats = NatsServer::start().await.expect("nats-server");
    let url = nats.url();
    let cluster = [("ANTIPHON_CLUSTER__SERVERS", url.as_str()), ("ANTIPHON_CLUSTER__STAGES", "tts")];
    let env = [&cluster[..], &NO_RECOGNIZER].concat();
    let (mut old, hub) = tokio::join!(Process::worker("old", "tts", &env), Process::hub(&env));
    let address = hub.address();
    let text = "This is one of the sentences of a long text. ".repeat(12);
    let whole = spoken(&address, &text).await.len();
    let attempts = |state: &Value| state["cluster"]["attempts"].as_u64().unwrap_or(0);
    let n_chunks = attempts(&json_of(&address, "/api/state").await.1);
    let _new = Process::worker("new", "tts", &env).await;
    until(&address, "/api/state", |_, state| state["cluster"]["workers"].as_array().is_some_and(|all| all.len() == 2))
        .await;
    let ((), n_samples) = tokio::join!(
        async {
            until(&address, "/api/state", |_, state| attempts(state) > n_chunks + n_chunks / 4).await;
            old.terminate();
            assert_eq!(old.ended().await, Some(0), "{}", old.log());
        },
        async { spoken(&address, &text).await.len() }
    );
    // A chunk more or less would be a twelfth. Where chunks meet, silence is shortened, by how much depends on their timing.
    assert!(n_samples.abs_diff(whole) < whole / 100, "{n_samples} of {whole} samples");
    let (_, state) = json_of(&address, "/api/state").await;
    let workers = state["cluster"]["workers"].as_array().expect("workers");
    assert!(workers.len() == 1 && workers[0]["name"] == "new", "{state}");
    assert_eq!((&state["cluster"]["failed"], &state["cluster"]["away"]), (&json!(0), &json!(0)), "{state}");
}

#[tokio::test]
async fn a_hub_that_falls_back_needs_no_worker_and_uses_the_first_that_comes() {
    let nats = NatsServer::start().await.expect("nats-server");
    let url = nats.url();
    let cluster = [("ANTIPHON_CLUSTER__SERVERS", url.as_str()), ("ANTIPHON_CLUSTER__STAGES", "[\"tts\"]")];
    let env = [cluster.to_vec(), vec![("ANTIPHON_CLUSTER__FALLBACK", "true")], NO_RECOGNIZER.to_vec()].concat();
    let hub = Process::hub(&env).await;
    let address = hub.address();
    assert_eq!(get(&address, "/readyz").await.0, 200);
    let own = spoken(&address, "One voice.").await;
    let attempts = async || json_of(&address, "/api/state").await.1["cluster"]["attempts"].as_u64();
    assert_eq!(attempts().await, Some(0));
    let _worker = Process::worker("helper", "tts", &env).await;
    until(&address, "/api/state", |_, state| state["cluster"]["workers"][0]["stages"][0]["voices"].as_u64() > Some(0))
        .await;
    assert_eq!(spoken(&address, "One voice.").await.len(), own.len());
    assert_eq!(attempts().await, Some(1));
}

#[tokio::test]
async fn the_printed_permissions_let_hubs_and_workers_do_their_work_and_nobody_else() {
    let folder = tempfile::tempdir().expect("a folder");
    let key = async |name: &str| {
        let path = folder.path().join(name).to_str().expect("a plain path").to_owned();
        let (code, public, said) = run(&["cluster", "key", &path], &[]).await;
        assert_eq!(code, Some(0), "{said}");
        (path, public.trim().to_owned())
    };
    let ((hub_seed, of_hubs), (worker_seed, of_workers), (other_seed, _)) =
        tokio::join!(key("hub"), key("worker"), key("other"));
    let is_private = std::fs::metadata(&hub_seed).expect("there").permissions().mode() & 0o077 == 0;
    assert!(is_private && of_hubs != of_workers);
    refused(&["cluster", "key", &hub_seed], &[], 1, "exists already: a key is never replaced").await;
    let of_workers = format!("production={of_workers}");
    let (code, text, said) = run(&["cluster", "permissions", "--hub", &of_hubs, "--worker", &of_workers], &[]).await;
    assert_eq!(code, Some(0), "{said}");
    let nats = NatsServer::start_with(&text).await.expect("it is accepted");
    let url = nats.url();
    let cluster = [("ANTIPHON_CLUSTER__SERVERS", url.as_str()), ("ANTIPHON_CLUSTER__STAGES", "tts")];
    let [of_hub, of_worker, of_other, of_nobody] = [hub_seed.as_str(), &worker_seed, &other_seed, ""]
        .map(|seed| [&cluster[..], &NO_RECOGNIZER, &[("ANTIPHON_CLUSTER__CREDENTIALS", seed)]].concat());
    let (_worker, hub) = tokio::join!(Process::worker("w", "tts", &of_worker), Process::hub(&of_hub));
    assert!(spoken(&hub.address(), "Permitted.").await.len() > 1_000);
    let worker = "worker --stage tts --name x";
    all_refused(vec![
        (worker, of_other.clone(), 4, "refuses the credentials"),
        (worker, of_nobody, 4, "refuses the credentials"),
        ("serve --listen 127.0.0.1:0", of_other, 4, "refuses the credentials"),
        (worker, of_hub, 2, "NATS does not permit what a worker does"),
    ])
    .await;
}

/// A command line, its environment, the exit code and a part of the line on stderr that it ends with.
type Refusal<'a> = (&'a str, Vec<(&'a str, &'a str)>, i32, &'a str);

/// [`refused`] for several at once.
async fn all_refused(refusals: Vec<Refusal<'_>>) {
    let checks = refusals.into_iter().map(async |(args, env, code, expect)| {
        refused(&args.split(' ').collect::<Vec<_>>(), &env, code, expect).await;
    });
    futures_util::future::join_all(checks).await;
}

#[tokio::test]
async fn what_keeps_a_process_out_of_the_cluster_is_one_line_that_says_what_to_do() {
    let servers = "ANTIPHON_CLUSTER__SERVERS";
    let to = |address| vec![(servers, address)];
    let worker = "worker --stage tts";
    let hub = "serve --listen 127.0.0.1:0";
    let missing = ("ANTIPHON_CLUSTER__CREDENTIALS", "nowhere.seed");
    all_refused(vec![
        (worker, vec![], 2, "ANTIPHON_CLUSTER__SERVERS=nats://127.0.0.1:4222"),
        (worker, to("nats://127.0.0.1:1"), 4, "no NATS server answers at nats://127.0.0.1:1"),
        (hub, to("nats://127.0.0.1:1"), 4, "no NATS server answers at nats://127.0.0.1:1"),
        (worker, to("127.0.0.1:4222"), 2, "write a list of addresses"),
        (worker, to("nats://me:very-secret@127.0.0.1"), 2, "(not shown)"),
        (hub, to("nats://192.0.2.1:4222"), 2, "sends speech in the clear"),
        (worker, vec![(servers, "nats://127.0.0.1:1"), missing], 2, "nowhere.seed"),
        ("cluster status --url http://127.0.0.1:1", vec![], 4, "cannot be reached"),
        ("cluster permissions --hub SUSECRET", vec![], 2, "begins with U"),
        ("cluster permissions --environment A", vec![], 2, "cannot name an environment"),
    ])
    .await;
}

/// The log of a hub that does not start.
async fn log_of_refused(env: &[(&str, &str)], code: i32, expect: &str) -> String {
    let env = [env, &[("ANTIPHON_LOG", "info"), ("NO_COLOR", "1")]].concat();
    let (ended, _, said) = run(&["serve", "--listen", "127.0.0.1:0"], &env).await;
    assert_eq!(ended, Some(code), "{said}");
    assert!(said.contains(expect), "{expect:?} is not in {said}");
    assert!(!said.contains("is lost"), "the process ended its connection itself: {said}");
    said
}

#[tokio::test]
async fn what_keeps_a_hub_from_sharing_is_a_wrong_setting_and_no_lost_connection() {
    let folder = tempfile::tempdir().expect("a folder");
    let seeds = ["hub.seed", "worker.seed"].map(|name| folder.path().join(name).to_str().expect("text").to_owned());
    let [(_, hub, _), (_, worker, _)] =
        [run(&["cluster", "key", &seeds[0]], &[]).await, run(&["cluster", "key", &seeds[1]], &[]).await];
    let args = ["cluster", "permissions", "--hub", hub.trim(), "--worker", worker.trim()];
    let (code, permissions, said) = run(&args, &[]).await;
    assert_eq!(code, Some(0), "{said}");
    let file = |name: &str, text: &str| {
        std::fs::write(folder.path().join(name), text).expect("written");
        folder.path().join(name).to_str().expect("text").to_owned()
    };
    let key = file("key", &SealingKey::generate().encoded());
    let other = file("other", &SealingKey::generate().encoded());
    let permissions = permissions.replace(", \"$KV.antiphon-keys.>\"", "");
    let (free, off, old) = tokio::join!(
        NatsServer::start(),
        NatsServer::start_with("accounts { A { users: [{user: a, password: a}] } }\nno_auth_user: a"),
        NatsServer::start_with(&permissions),
    );
    let free = free.expect("nats-server");
    let off = off.expect("nats-server");
    let old = old.expect("nats-server");
    let free = free.url();
    let off = off.url();
    let old = old.url();
    let servers = "ANTIPHON_CLUSTER__SERVERS";
    let sealing_key = "ANTIPHON_CLUSTER__SEALING_KEY";
    let jetstream = [("ANTIPHON_CLUSTER__JETSTREAM", "true"), ("ANTIPHON_CLUSTER__FALLBACK", "true")];
    let at = |url| [&jetstream[..], &[(servers, url), (sealing_key, key.as_str())], &NO_RECOGNIZER[..]].concat();

    log_of_refused(&at(&off), 2, "has no JetStream").await;
    let with_seed = [at(&old), vec![("ANTIPHON_CLUSTER__CREDENTIALS", seeds[0].as_str())]].concat();
    log_of_refused(&with_seed, 2, "NATS does not permit").await;
    log_of_refused(&[at(&free), vec![("ANTIPHON_CLUSTER__REPLICAS", "3")]].concat(), 2, "cluster.replicas").await;
    let log = log_of_refused(&[at(&free), vec![(sealing_key, "nowhere.key")]].concat(), 2, "nowhere.key").await;
    assert!(!log.contains("connected to NATS"), "the key is read first: {log}");
    log_of_refused(&[&jetstream[..], &NO_RECOGNIZER[..]].concat(), 2, "cluster.servers: no server is named").await;
    let first = Process::hub(&[at(&free), vec![("ANTIPHON_LOG", "info"), ("NO_COLOR", "1")]].concat()).await;
    log_of_refused(&[at(&free), vec![(sealing_key, other.as_str())]].concat(), 2, "is not the key of the other hubs")
        .await;
    let log = first.log();
    assert_eq!(log.matches("sharing sessions, keys and jobs through JetStream replicas=1").count(), 1, "{log}");
    assert!(log.contains("purpose=\"JetStream\"") && log.contains("purpose=\"workers and other hubs\""), "{log}");
}

#[tokio::test]
async fn a_worker_with_anothers_name_or_another_model_is_refused_and_so_is_a_server_with_small_messages() {
    let nats = NatsServer::start().await.expect("nats-server");
    let small = NatsServer::start_with("max_payload: 65536").await.expect("nats-server");
    let url = nats.url();
    let small = small.url();
    let servers = "ANTIPHON_CLUSTER__SERVERS";
    let here = vec![(servers, url.as_str())];
    let small = vec![(servers, small.as_str())];
    let remote =
        |base: &'static str| [vec![here[0]], NO_RECOGNIZER.to_vec(), vec![("ANTIPHON_STT__BASE_URL", base)]].concat();
    let own = remote("http://127.0.0.1:1/v1");
    let of_setting = [own.clone(), vec![("ANTIPHON_CLUSTER__STT_MODEL", "whisper-base")]].concat();
    let alone = [here.clone(), vec![("ANTIPHON_CLUSTER__STT_FALLBACK_MODEL", "whisper-base")]].concat();
    let (_first, _taken) = tokio::join!(Process::worker("first", "stt", &own), Process::worker("taken", "tts", &here));
    all_refused(vec![
        ("worker --stage tts", small.clone(), 4, "set max_payload to"),
        ("serve --listen 127.0.0.1:0", small, 4, "set max_payload to"),
        ("worker --stage tts --name taken", here.clone(), 2, "give this one another name with --name"),
        ("worker --stage stt --name second", remote("http://127.0.0.1:2/v1"), 2, "need the same files"),
        (
            "worker --stage stt --name other",
            of_setting,
            2,
            "but cluster.stt_model names \"whisper-base\": let the worker",
        ),
        ("worker --stage tts --name tts", alone, 2, "set cluster.stt_model, too"),
        ("worker --stage turn --name third", here.clone(), 3, "set turn.model"),
    ])
    .await;
}

#[tokio::test]
async fn without_a_cluster_nothing_is_told_of_one() {
    let hub: Hub = hub_of_fakes("Hello.", "Hi.").await;
    let address = hub.address.to_string();
    let (_, state) = json_of(&address, "/api/state").await;
    assert!(state.get("cluster").is_none(), "{state}");
    assert!(!get(&address, "/metrics").await.1.contains("antiphon_cluster"));
    let page = format!("http://{address}");
    refused(&["cluster", "status", "--url", &page], &[], 1, "the hub is in no cluster").await;
}
