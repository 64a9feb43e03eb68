//! Speech jobs of a cluster: any hub takes them, any hub does them, once, on a real nats-server.

use crate::hub::{Hub, engines};
use crate::speech_api::client;
use antiphon::assembly::{EngineManager, Membership};
use antiphon::config::Config;
use antiphon::server::{Keys, Parts};
use antiphon_cluster::testing::{NatsCluster, NatsServer};
use antiphon_cluster::{ClusterConfig, JetStream, SealingKey};
use antiphon_engine_api::fakes::llm::FakeLlm;
use antiphon_engine_api::fakes::stt::FakeStt;
use antiphon_engine_api::fakes::tts::{FakeTts, MS_PER_CHAR};
use antiphon_telemetry::Metrics;
use antiphon_test_server::{Answer, TestServer};
use reqwest::{Method, Response};
use serde_json::{Value, json};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tempfile::TempDir;
use tokio::time::timeout;

const TEST_TIMEOUT: Duration = Duration::from_secs(60);

/// Three chunks.
const TEXT: &str = "Hello there. This is the second sentence of the text. And this one is the third sentence of it.";
/// The spaces between the chunks are not synthesized.
const BYTES: u64 = (TEXT.len() as u64 - 2) * MS_PER_CHAR * 48;

/// A NATS server and a sealing key.
struct Cluster {
    nats: NatsServer,
    folder: TempDir,
}

impl Cluster {
    async fn start() -> Self {
        Self::start_with("").await
    }

    async fn start_with(configuration: &str) -> Self {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let nats = NatsServer::start_with(configuration).await.expect("nats-server");
        let this = Self { nats, folder: tempfile::tempdir().expect("a folder") };
        std::fs::write(this.key(), SealingKey::generate().encoded()).expect("written");
        this
    }

    fn key(&self) -> PathBuf {
        self.folder.path().join("key")
    }

    fn config(&self) -> ClusterConfig {
        ClusterConfig {
            servers: vec![self.nats.url()],
            fallback: true,
            jetstream: true,
            sealing_key: self.key().to_str().expect("text").into(),
            ..ClusterConfig::default()
        }
    }

    async fn hub(&self, tts: &FakeTts) -> Hub {
        self.hub_with(tts, Keys::default(), |_| {}).await
    }

    async fn hub_with(&self, tts: &FakeTts, keys: Keys, change: impl FnOnce(&mut Config)) -> Hub {
        member(self.config(), tts, keys, change).await
    }

    async fn jetstream(&self) -> JetStream {
        JetStream::open(&self.config(), (2 * 64 + 256) << 20).await.expect("opened")
    }
}

/// A hub with these jobs.
async fn member(cluster: ClusterConfig, tts: &FakeTts, keys: Keys, change: impl FnOnce(&mut Config)) -> Hub {
    let mut config = Config { cluster, ..Config::default() };
    config.speech.jobs_dir = "not used".into();
    config.speech.jobs_max_mib = 64;
    change(&mut config);
    let manager = Arc::new(EngineManager::new(&config).expect("the registry is right"));
    manager.join(Membership::join(&config).await.expect("it joins"));
    let engines = engines(FakeStt::default(), FakeLlm::default(), tts.clone());
    let metrics = Metrics::new();
    let manager = Some((manager, Vec::new()));
    Hub::serve(Parts { config, engines, metrics, keys, tls: None, manager }).await
}

async fn ask(hub: &Hub, method: Method, path: &str) -> Response {
    let url = format!("http://{}/v1/audio/speech/jobs{path}", hub.address);
    client().request(method, url).send().await.expect("an answer")
}

async fn submit(hub: &Hub, body: &Value, key: Option<&str>) -> Response {
    let mut request = client().post(format!("http://{}/v1/audio/speech/jobs", hub.address)).json(body);
    if let Some(key) = key {
        request = request.header("idempotency-key", key);
    }
    request.send().await.expect("an answer")
}

async fn submitted(hub: &Hub, body: &Value, key: Option<&str>) -> String {
    let response = submit(hub, body, key).await;
    let status = response.status().as_u16();
    let job = response.json::<Value>().await.expect("JSON");
    assert_eq!(status, 202, "{job}");
    job["id"].as_str().expect("an id").to_owned()
}

async fn until(hub: &Hub, id: &str, right: impl Fn(&Value) -> bool) -> Value {
    let reached = async {
        loop {
            let job: Value = ask(hub, Method::GET, &format!("/{id}")).await.json().await.expect("JSON");
            if right(&job) {
                return job;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    match timeout(TEST_TIMEOUT, reached).await {
        Ok(job) => job,
        Err(_) => panic!("it never came: {:?}", ask(hub, Method::GET, &format!("/{id}")).await.text().await),
    }
}

fn is(status: &'static str) -> impl Fn(&Value) -> bool {
    move |job| job["status"] == status
}

fn job_request(format: &str) -> Value {
    json!({"model": "tts-1", "voice": "alloy", "input": TEXT, "response_format": format})
}

async fn sound(hub: &Hub, id: &str) -> bytes::Bytes {
    let file = ask(hub, Method::GET, &format!("/{id}/audio")).await;
    assert_eq!(file.status().as_u16(), 200);
    file.bytes().await.expect("whole")
}

#[tokio::test]
async fn a_job_is_asked_for_done_and_fetched_on_different_hubs() {
    let cluster = Cluster::start().await;
    let idle = FakeTts::default().held(0);
    let busy = FakeTts::default().held(1);
    // The first hub does no jobs of its own: the only one it may take waits for a permit that never comes.
    let a = cluster.hub(&idle).await;
    let blocker = submitted(&a, &job_request("pcm"), None).await;
    until(&a, &blocker, is("running")).await;
    let b = cluster.hub(&busy).await;
    let id = submitted(&a, &job_request("pcm"), None).await;
    let job = until(&a, &id, |job| job["progress"]["chunks_done"] == 1).await;
    assert_eq!((&job["status"], &job["audio"]), (&json!("running"), &Value::Null));
    assert_eq!(ask(&a, Method::GET, &format!("/{id}/audio")).await.status().as_u16(), 409);
    busy.gate.add_permits(9);
    let job = until(&a, &id, is("completed")).await;
    assert_eq!(job["audio"]["bytes"], BYTES);
    let at_a = sound(&a, &id).await;
    let at_b = sound(&b, &id).await;
    assert_eq!((at_a.len() as u64, at_a == at_b), (BYTES, true));
    assert_eq!(busy.spoken().join(" "), TEXT, "each chunk once");
    b.until("voice_requests_total{endpoint=\"job\",outcome=\"ok\"} ", 1.0).await;
    for format in ["wav", "mp3", "flac", "opus"] {
        let id = submitted(&a, &job_request(format), None).await;
        busy.gate.add_permits(3);
        let job = until(&b, &id, is("completed")).await;
        let bytes = sound(&a, &id).await;
        assert_eq!(job["audio"]["bytes"], bytes.len(), "{format}");
        if format == "wav" {
            let reader = hound::WavReader::new(&bytes[..]).expect("a header");
            assert_eq!(u64::from(reader.duration()) * 2, BYTES);
        }
    }
    let listed = async |hub: &Hub| {
        let list: Value = ask(hub, Method::GET, "?limit=3").await.json().await.expect("JSON");
        list["data"].as_array().expect("a list").iter().map(|job| job["id"].clone()).collect::<Vec<_>>()
    };
    assert_eq!((listed(&a).await.len(), listed(&a).await == listed(&b).await), (3, true));
    // Cancelled from the hub that does not work on it.
    assert_eq!(ask(&b, Method::DELETE, &format!("/{blocker}")).await.status().as_u16(), 200);
    a.until("voice_requests_total{endpoint=\"job\",outcome=\"cancelled\"} ", 1.0).await;
    assert_eq!(ask(&a, Method::GET, &format!("/{blocker}")).await.status().as_u16(), 404);
    assert_eq!(ask(&b, Method::DELETE, &format!("/{id}")).await.status().as_u16(), 200);
    assert_eq!(ask(&a, Method::GET, &format!("/{id}/audio")).await.status().as_u16(), 404);
    a.stop().await;
    b.stop().await;
}

#[tokio::test]
async fn a_job_goes_on_where_it_was_when_its_hub_stops() {
    let cluster = Cluster::start().await;
    let first = FakeTts::default().held(2);
    let second = FakeTts::default().held(9);
    let a = cluster.hub(&first).await;
    let id = submitted(&a, &job_request("wav"), None).await;
    until(&a, &id, |job| job["progress"]["chunks_done"] == 2).await;
    a.stop().await;
    let b = cluster.hub(&second).await;
    let job = until(&b, &id, is("completed")).await;
    assert_eq!([first.spoken(), second.spoken()].concat().join(" "), TEXT, "each chunk once, in order");
    assert_eq!(job["audio"]["bytes"], BYTES + 44);
    assert_eq!(sound(&b, &id).await.len() as u64, BYTES + 44);
    b.stop().await;
}

/// A hub that is frozen, or cut off, and comes back: it must not write any more.
#[tokio::test]
async fn a_hub_that_lost_its_job_writes_no_more() {
    let cluster = Cluster::start().await;
    let jetstream = cluster.jetstream().await;
    let first = FakeTts::default().held(1);
    let second = FakeTts::default().held(1);
    let a = cluster.hub(&first).await;
    let id = submitted(&a, &job_request("pcm"), None).await;
    until(&a, &id, |job| job["progress"]["chunks_done"] == 1).await;
    first.asked(2).await;
    // As if another hub had been given it meanwhile: the record names another attempt.
    let record = jetstream.jobs().get(&id).await.expect("read").expect("there");
    let mut stored: Value = serde_json::from_slice(&record.value).expect("JSON");
    stored["attempt"] = "another".into();
    jetstream.jobs().update(&id, stored.to_string().as_bytes(), record.revision, None).await.expect("written");
    let before = jetstream.jobs().get(&id).await.expect("read").expect("there");
    first.gate.add_permits(9);
    // It takes another job then.
    let next = submitted(&a, &job_request("pcm"), None).await;
    until(&a, &next, is("completed")).await;
    assert_eq!(jetstream.jobs().get(&id).await.expect("read"), Some(before));
    // Its silence gives the job to the next hub that has room, which does the rest.
    let b = cluster.hub(&second).await;
    second.gate.add_permits(9);
    let job = until(&b, &id, is("completed")).await;
    assert_eq!(job["audio"]["bytes"], BYTES);
    a.stop().await;
    b.stop().await;
}

#[tokio::test]
async fn jobs_survive_a_restart_of_jetstream() {
    let mut cluster = Cluster::start().await;
    let tts = FakeTts::default().held(1);
    let a = cluster.hub(&tts).await;
    let id = submitted(&a, &job_request("flac"), None).await;
    until(&a, &id, |job| job["progress"]["chunks_done"] == 1).await;
    cluster.nats.kill().await;
    tts.gate.add_permits(1);
    let away = submit(&a, &job_request("pcm"), None).await;
    assert_eq!((away.status().as_u16(), away.headers().contains_key("retry-after")), (503, true));
    assert_eq!(ask(&a, Method::GET, &format!("/{id}")).await.status().as_u16(), 503);
    cluster.nats.restart().await.expect("restarted");
    tts.gate.add_permits(9);
    until(&a, &id, is("completed")).await;
    let list: Value = ask(&a, Method::GET, "").await.json().await.expect("JSON");
    assert_eq!(list["data"].as_array().map(Vec::len), Some(1), "the refused one left nothing: {list}");
    assert_eq!(tts.spoken().join(" "), TEXT);
    let next = submitted(&a, &job_request("pcm"), None).await;
    until(&a, &next, is("completed")).await;
    a.stop().await;
}

#[tokio::test]
async fn a_job_is_done_while_three_servers_are_restarted_one_by_one() {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let mut nats = NatsCluster::start(3).await.expect("nats-server");
    let folder = tempfile::tempdir().expect("a folder");
    let key = folder.path().join("key");
    std::fs::write(&key, SealingKey::generate().encoded()).expect("written");
    let config = ClusterConfig {
        servers: nats.urls(),
        fallback: true,
        jetstream: true,
        sealing_key: key.to_str().expect("text").into(),
        replicas: 3,
        ..ClusterConfig::default()
    };
    let tts = FakeTts::default().held(0);
    let hub = member(config, &tts, Keys::default(), |_| {}).await;
    let text = format!("{TEXT} ").repeat(4);
    let body = json!({"voice": "alloy", "input": text.trim_end(), "response_format": "pcm"});
    let id = submitted(&hub, &body, None).await;
    for at in 0..3 {
        nats.kill(at).await;
        tts.gate.add_permits(2);
        nats.restart(at).await.expect("restarted");
        tts.gate.add_permits(2);
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    tts.gate.add_permits(99);
    let job = until(&hub, &id, is("completed")).await;
    // Where no leader was elected for 10 s, the queue gave the job to the same hub once more, and a chunk was spoken twice.
    let mut said = tts.spoken();
    said.dedup();
    assert_eq!(said.join(" "), text.trim_end());
    let n_bytes = said.iter().map(|chunk| chunk.len() as u64 * MS_PER_CHAR * 48).sum::<u64>();
    assert_eq!(job["audio"]["bytes"], n_bytes);
    assert_eq!(sound(&hub, &id).await.len() as u64, n_bytes);
    hub.stop().await;
}

#[tokio::test]
async fn a_retried_request_makes_one_job() {
    let cluster = Cluster::start().await;
    let tts = FakeTts::default().held(0);
    let a = cluster.hub(&tts).await;
    let b = cluster.hub(&tts).await;
    let one = job_request("pcm");
    let two = job_request("pcm");
    let (first, second) = tokio::join!(submitted(&a, &one, Some("k 1")), submitted(&b, &two, Some("k 1")));
    assert_eq!(first, second);
    until(&a, &first, is("running")).await;
    assert_eq!(submitted(&b, &job_request("pcm"), Some("k 1")).await, first);
    assert_ne!(submitted(&b, &job_request("pcm"), Some("k 2")).await, first);
    let other = submit(&b, &job_request("wav"), Some("k 1")).await;
    let status = other.status().as_u16();
    let body = other.json::<Value>().await.expect("JSON");
    assert_eq!((status, &body["error"]["code"]), (409, &json!("idempotency_key_reused")), "{body}");
    for wrong in ["", &"k".repeat(256)] {
        assert_eq!(submit(&a, &job_request("pcm"), Some(wrong)).await.status().as_u16(), 400);
    }
    tts.gate.add_permits(99);
    until(&b, &first, is("completed")).await;
    assert_eq!(submitted(&a, &job_request("pcm"), Some("k 1")).await, first, "also when it is done");
    let list: Value = ask(&a, Method::GET, "").await.json().await.expect("JSON");
    assert_eq!(list["data"].as_array().map(Vec::len), Some(2), "{list}");
    a.stop().await;
    b.stop().await;
}

#[tokio::test]
async fn what_a_hub_cannot_read_it_leaves_to_others() {
    let cluster = Cluster::start().await;
    let jetstream = cluster.jetstream().await;
    let tts = FakeTts::default().held(99);
    // A job of a later version.
    jetstream
        .jobs()
        .create("job_later", br#"{"schema": 2, "text": "what it is, nobody knows"}"#, None)
        .await
        .expect("made");
    jetstream.queue().push("job_later").await.expect("queued");
    let a = cluster.hub(&tts).await;
    let id = submitted(&a, &job_request("pcm"), None).await;
    until(&a, &id, is("completed")).await;
    let later = ask(&a, Method::GET, "/job_later").await;
    let status = later.status().as_u16();
    let body = later.json::<Value>().await.expect("JSON");
    assert_eq!(status, 503);
    assert!(body["error"]["message"].as_str().expect("text").contains("newer version"), "{body}");
    assert!(jetstream.jobs().get("job_later").await.expect("read").is_some(), "it is kept");
    // A hub with another key, which starts without the record that hubs check their key by.
    jetstream.jobs().remove("sealing-key-check", None).await.expect("removed");
    let other = tempfile::tempdir().expect("a folder");
    let key = other.path().join("key");
    std::fs::write(&key, SealingKey::generate().encoded()).expect("written");
    let key = key.to_str().expect("text").to_owned();
    let b = cluster.hub_with(&tts, Keys::default(), |config| config.cluster.sealing_key = key).await;
    let wrong = ask(&b, Method::GET, &format!("/{id}")).await;
    let status = wrong.status().as_u16();
    let body = wrong.json::<Value>().await.expect("JSON");
    assert_eq!((status, &body["error"]["code"]), (500, &json!("jobs_unavailable")), "{body}");
    assert_eq!(ask(&b, Method::GET, "/..%2Fa.*").await.status().as_u16(), 404);
    a.stop().await;
    b.stop().await;
}

#[tokio::test]
async fn a_full_store_ends_the_job_in_plain_words() {
    let cluster = Cluster::start().await;
    let tts = FakeTts::default().held(99);
    let hub = cluster
        .hub_with(&tts, Keys::default(), |config| (config.speech.jobs_max_mib, config.speech.max_jobs) = (1, 2))
        .await;
    // 1.3 MiB of samples.
    let long = json!({"voice": "alloy", "input": format!("{TEXT} ").repeat(6), "response_format": "pcm"});
    let id = submitted(&hub, &long, None).await;
    let job = until(&hub, &id, is("failed")).await;
    assert_eq!(job["error"]["code"], "store_full", "{job}");
    // Finished ones make room for new ones.
    let mut ids = Vec::new();
    for _ in 0..6 {
        let id = submitted(&hub, &job_request("pcm"), None).await;
        until(&hub, &id, is("completed")).await;
        ids.push(id);
    }
    const { assert!(BYTES * 6 > 1 << 20) };
    assert_eq!(ask(&hub, Method::GET, &format!("/{}", ids[0])).await.status().as_u16(), 404);
    assert_eq!(sound(&hub, &ids[5]).await.len() as u64, BYTES);
    tts.gate.forget_permits(99);
    let running = submitted(&hub, &job_request("pcm"), None).await;
    until(&hub, &running, is("running")).await;
    submitted(&hub, &job_request("pcm"), None).await;
    assert_eq!(submit(&hub, &job_request("pcm"), None).await.status().as_u16(), 429);
    hub.stop().await;
}

/// A speech server that says the same for the same text: 1 ms for each byte of it, after 20 ms. flite's noise, and with it the
/// length of its chunks, differs from run to run.
fn speech_server(n_said: Arc<AtomicUsize>) -> TestServer {
    TestServer::start(move |request| {
        if request.path() == "/v1/audio/voices" {
            return Answer::json(&json!({"voices": [{"id": "one"}]}));
        }
        let text = request.json()["input"].as_str().expect("a text").to_owned();
        let pcm: Vec<u8> = text.bytes().flat_map(|byte| [byte; 48]).collect();
        let n_said = n_said.clone();
        let speak = async move {
            tokio::time::sleep(Duration::from_millis(20)).await;
            n_said.fetch_add(1, Ordering::Relaxed);
        };
        Answer::of("audio/pcm", "").wait(speak).then(pcm)
    })
}

/// A hub as a process of its own.
struct Process {
    child: tokio::process::Child,
    address: String,
    log: PathBuf,
    _out: tokio::io::Lines<tokio::io::BufReader<tokio::process::ChildStdout>>,
}

impl Process {
    async fn hub(cluster: &Cluster, speech: &str) -> Self {
        use tokio::io::AsyncBufReadExt;
        let servers = cluster.nats.url();
        let key = cluster.key();
        let log = cluster.folder.path().join(format!("log-{:016x}", rand::random::<u64>()));
        let mut command = tokio::process::Command::new(env!("CARGO_BIN_EXE_antiphon"));
        command
            .args(["serve", "--listen", "127.0.0.1:0"])
            .env_clear()
            .envs(std::env::var_os("PATH").map(|path| ("PATH", path)))
            .envs([
                ("ANTIPHON_MODELS__DIR", "nowhere/models"),
                ("ANTIPHON_SPEECH__JOBS_DIR", "not/used"),
                ("ANTIPHON_SPEECH__JOBS_MAX_MIB", "64"),
                ("ANTIPHON_CLUSTER__SERVERS", servers.as_str()),
                ("ANTIPHON_CLUSTER__FALLBACK", "true"),
                ("ANTIPHON_CLUSTER__JETSTREAM", "true"),
                ("ANTIPHON_STT__ENGINE", "openai"),
                ("ANTIPHON_STT__API_KEY_ENV", ""),
                ("ANTIPHON_STT__BASE_URL", "http://127.0.0.1:1/v1"),
                ("ANTIPHON_TTS__ENGINE", "openai"),
                ("ANTIPHON_TTS__API_KEY_ENV", ""),
                ("ANTIPHON_TTS__BASE_URL", speech),
                ("ANTIPHON_TTS__VOICE", "one"),
            ])
            .env("ANTIPHON_CLUSTER__SEALING_KEY", &key)
            .stdin(std::process::Stdio::null())
            .stdout(std::process::Stdio::piped())
            .env("ANTIPHON_LOG", "info")
            .stderr(std::fs::File::create(&log).expect("made"))
            .kill_on_drop(true);
        let mut child = command.spawn().expect("the binary starts");
        let mut out = tokio::io::BufReader::new(child.stdout.take().expect("piped")).lines();
        let first = timeout(TEST_TIMEOUT, out.next_line()).await.expect("it starts").expect("text").expect("a line");
        let rest = first.split("http://").nth(1).expect("an address");
        let address = rest.split(|c: char| !(c.is_ascii_digit() || c == '.' || c == ':')).next().expect("an address");
        Self { child, address: address.trim_end_matches(':').to_owned(), log, _out: out }
    }

    async fn json(&self, method: Method, path: &str, body: Option<&Value>) -> Value {
        let url = format!("http://{}/v1/audio/speech/jobs{path}", self.address);
        let mut request = client().request(method, url);
        if let Some(body) = body {
            request = request.json(body);
        }
        request.send().await.expect("an answer").json().await.expect("JSON")
    }

    async fn until(&self, id: &str, right: impl Fn(&Value) -> bool) -> Value {
        let reached = async {
            loop {
                let job = self.json(Method::GET, &format!("/{id}"), None).await;
                if right(&job) {
                    return job;
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        timeout(TEST_TIMEOUT, reached).await.expect("it comes to that")
    }
}

#[tokio::test]
async fn a_killed_hubs_job_goes_on_where_it_was_on_another_hub() {
    let cluster = Cluster::start().await;
    let n_said = Arc::new(AtomicUsize::new(0));
    let speech = speech_server(n_said.clone());
    let mut a = Process::hub(&cluster, &speech.url("/v1")).await;
    let text: String = (0..60).map(|n| format!("This is sentence number {n} of a text that takes a while. ")).collect();
    let body = json!({"voice": "one", "input": text, "response_format": "pcm"});
    let job = a.json(Method::POST, "", Some(&body)).await;
    let id = job["id"].as_str().unwrap_or_else(|| panic!("{job}")).to_owned();
    a.until(&id, |job| job["progress"]["chunks_done"].as_u64() >= Some(5)).await;
    let done = |job: &Value| job["progress"]["chunks_done"].as_u64().expect("a number");
    a.child.kill().await.expect("killed");
    let b = Process::hub(&cluster, &speech.url("/v1")).await;
    let left = b.json(Method::GET, &format!("/{id}"), None).await;
    assert!(
        left["status"] == "running" && done(&left) < left["progress"]["chunks_total"].as_u64().expect("n"),
        "{left}"
    );
    let finished = b
        .until(&id, |job| {
            assert!(job["status"] != "failed", "{job}");
            // It does not begin anew.
            let n = done(job);
            assert!(n >= done(&left), "{job}");
            job["status"] == "completed"
        })
        .await;
    assert_eq!(finished["progress"]["chunks_done"], finished["progress"]["chunks_total"]);
    let log = std::fs::read_to_string(&b.log).expect("there");
    let line = log.lines().find(|line| line.contains("a job is taken over from another hub"));
    assert!(line.is_some_and(|line| line.contains(&id)), "{log}");
    // What was spoken when the hub died is spoken again, nothing else.
    let n_said = n_said.load(Ordering::Relaxed) as u64;
    let n_chunks = done(&finished);
    assert!((n_chunks..=n_chunks + 1).contains(&n_said), "{n_said} for {n_chunks}");
    // An undisturbed run of the same text.
    let job = b.json(Method::POST, "", Some(&body)).await;
    let whole = b.until(job["id"].as_str().expect("an id"), |job| job["status"] == "completed").await;
    assert_eq!(finished["audio"]["bytes"], whole["audio"]["bytes"]);
    let fetch = async |path: &Value| {
        let url = format!("http://{}{}", b.address, path["audio"]["url"].as_str().expect("a URL"));
        client().get(url).send().await.expect("an answer").bytes().await.expect("all of it")
    };
    assert!(fetch(&finished).await == fetch(&whole).await, "the same samples");
}
