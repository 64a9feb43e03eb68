//! Files at rest: recordings and jobs of a hub with `server.storage_key`, as processes, on a real disk. Also secrets in files.

use crate::hub::{Hub, Socket, engines};
use crate::speech_api::client;
use antiphon::config::{Config, StorageKey};
use antiphon::replay::{ReplayError, ReplayLog, replay};
use antiphon_cluster::SealingKey;
use antiphon_engine_api::fakes::llm::FakeLlm;
use antiphon_engine_api::fakes::stt::FakeStt;
use antiphon_engine_api::fakes::tts::FakeTts;
use antiphon_test_server::{Answer, TestServer};
use antiphon_types::sealed::Sealing;
use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};
use tokio::time::{sleep, timeout};
use tokio_tungstenite::tungstenite::client::IntoClientRequest;

const TEST_TIMEOUT: Duration = Duration::from_secs(60);

fn program(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_antiphon"));
    command.args(args).env_clear().envs(std::env::var_os("PATH").map(|path| ("PATH", path)));
    command.stdin(Stdio::null()).kill_on_drop(true);
    command
}

/// A hub with engines that need no model.
struct Process {
    child: Child,
    address: String,
    _out: Lines<BufReader<ChildStdout>>,
}

impl Process {
    async fn start(folder: &Path, env: &[(&str, &str)]) -> Self {
        let log = std::fs::File::options().create(true).append(true).open(folder.join("log")).expect("made");
        let mut child = program(&["serve", "--listen", "127.0.0.1:0"])
            .env("ANTIPHON_MODELS__DIR", "nowhere/models")
            .env("ANTIPHON_SPEECH__JOBS_DIR", "")
            .env("ANTIPHON_SLO__BROWNOUT", "false")
            .envs(env.iter().copied())
            .stdout(Stdio::piped())
            .stderr(log)
            .spawn()
            .expect("the binary starts");
        let mut out = BufReader::new(child.stdout.take().expect("piped")).lines();
        let line = timeout(TEST_TIMEOUT, out.next_line()).await.expect("it starts").expect("text").expect("a line");
        let rest = line.split("http://").nth(1).expect("an address");
        let address = rest.split(|c: char| !(c.is_ascii_digit() || c == '.' || c == ':')).next().expect("an address");
        Self { child, address: address.trim_end_matches(':').to_owned(), _out: out }
    }

    fn signal(&self, signal: &str) {
        let pid = self.child.id().expect("it runs").to_string();
        assert!(std::process::Command::new("kill").args([signal, &pid]).status().expect("kill runs").success());
    }

    async fn end(mut self) {
        self.signal("-TERM");
        timeout(TEST_TIMEOUT, self.child.wait()).await.expect("it ends").expect("waited for");
    }

    fn jobs(&self, path: &str) -> String {
        jobs(&self.address, path)
    }

    async fn submit(&self, input: &str, format: &str) -> String {
        submit(&self.address, input, format).await
    }

    async fn until(&self, id: &str, right: impl Fn(&Value) -> bool) -> Value {
        until(&self.address, id, right).await
    }

    async fn sound(&self, id: &str) -> Vec<u8> {
        sound(&self.address, id).await
    }
}

fn jobs(address: &str, path: &str) -> String {
    format!("http://{address}/v1/audio/speech/jobs{path}")
}

/// Submits a job; its id.
async fn submit(address: &str, input: &str, format: &str) -> String {
    let request = json!({"model": "tts-1", "voice": "alloy", "input": input, "response_format": format});
    let answer = client().post(jobs(address, "")).json(&request).send().await.expect("an answer");
    let job: Value = answer.json().await.expect("JSON");
    job["id"].as_str().unwrap_or_else(|| panic!("{job}")).to_owned()
}

async fn until(address: &str, id: &str, right: impl Fn(&Value) -> bool) -> Value {
    let reached = async {
        loop {
            let answer = client().get(jobs(address, &format!("/{id}"))).send().await.expect("an answer");
            let job: Value = answer.json().await.expect("JSON");
            assert_ne!(job["status"], "failed", "{job}");
            if right(&job) {
                return job;
            }
            sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(TEST_TIMEOUT, reached).await.expect("in time")
}

/// The file of a job once it is complete.
async fn sound(address: &str, id: &str) -> Vec<u8> {
    let job = until(address, id, |job| job["status"] == "completed").await;
    let answer = client().get(jobs(address, &format!("/{id}/audio"))).send().await.expect("an answer");
    assert_eq!(answer.status().as_u16(), 200);
    assert_eq!(answer.headers()["content-length"], job["audio"]["bytes"].to_string().as_str());
    answer.bytes().await.expect("whole").to_vec()
}

/// A folder with a new key, and the key's path.
fn folder_with_key() -> (TempDir, String) {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("storage.key");
    std::fs::write(&path, SealingKey::generate().encoded()).expect("written");
    let path = path.to_str().expect("text").to_owned();
    (folder, path)
}

/// Whether a file in the folder holds these bytes.
fn holds(folder: &Path, bytes: &[u8]) -> bool {
    let files = std::fs::read_dir(folder).expect("there").map(|entry| entry.expect("an entry").path());
    files.map(|path| std::fs::read(path).expect("a file")).any(|file| find(&file, bytes))
}

fn find(file: &[u8], bytes: &[u8]) -> bool {
    file.windows(bytes.len()).any(|window| window == bytes)
}

/// Exit code and stderr.
async fn run(args: &[&str]) -> (Option<i32>, String) {
    let output = program(args).output().await.expect("the binary starts");
    (output.status.code(), String::from_utf8(output.stderr).expect("text"))
}

const SECRET: &str = "The treasure lies under the old walnut tree";

/// A session of a hub with this key, recorded with its sound. The files are complete.
async fn recorded(folder: &Path, key: &str) -> (PathBuf, PathBuf) {
    let recordings = folder.join("recordings");
    let env = [
        ("ANTIPHON_SESSION__RECORD", recordings.to_str().expect("text")),
        ("ANTIPHON_SESSION__RECORD_AUDIO", "true"),
        ("ANTIPHON_SERVER__STORAGE_KEY", key),
    ];
    let hub = Process::start(folder, &env).await;
    let url = format!("ws://{}/v1/realtime", hub.address);
    let (stream, _) = crate::hub::connect(url).await.expect("the upgrade is accepted");
    let mut socket = Socket { stream, frames: Vec::new() };
    assert_eq!(socket.next().await["type"], "session.created");
    socket.ask(SECRET).await;
    let samples: Vec<i16> = (0..24_000).map(|i| ((i * 37) % 8_000) as i16).collect();
    socket.append(&samples).await;
    socket.send(json!({"type": "input_audio_buffer.commit"})).await;
    socket.until("input_audio_buffer.committed").await;
    drop(socket);
    hub.end().await;
    let found = |suffix: &str| {
        let files = std::fs::read_dir(&recordings).expect("there").map(|entry| entry.expect("an entry").path());
        files
            .into_iter()
            .find(|path| path.to_str().expect("text").ends_with(suffix))
            .unwrap_or_else(|| panic!("{suffix}: {}", std::fs::read_to_string(folder.join("log")).expect("there")))
    };
    (found(".jsonl.sealed"), found(".wav.sealed"))
}

#[tokio::test]
async fn a_sealed_recording_is_no_text_and_replays_with_its_key_only() {
    let (folder, key) = folder_with_key();
    let (log, sound) = recorded(folder.path(), &key).await;
    let recordings = log.parent().expect("a folder");
    assert!(!holds(recordings, b"treasure") && !holds(recordings, b"antiphon_replay_log"));
    let log = log.to_str().expect("text");
    let sound = sound.to_str().expect("text");

    let (code, said) = run(&["replay", "--quiet", log]).await;
    assert!(code == Some(2) && said.contains("is sealed: name the file of its key with --storage-key"), "{said}");
    let (_other, other) = folder_with_key();
    let (code, said) = run(&["replay", "--quiet", "--storage-key", &other, log]).await;
    assert!(code == Some(2) && said.contains("it is sealed with another key"), "{said}");
    let (code, said) = run(&["replay", "--quiet", "--storage-key", &key, log]).await;
    assert_eq!((code, said.as_str()), (Some(0), ""));
    let (code, said) = run(&["replay", "--quiet", "--storage-key", &key, sound]).await;
    assert!(code == Some(2) && said.contains("it is the sound of one, sealed"), "{said}");

    // The plain files are what a hub without the key writes.
    for file in [log, sound] {
        let (code, said) = run(&["unseal", "--storage-key", &other, file]).await;
        assert!(code == Some(2) && said.contains("it is sealed with another key"), "{said}");
        assert_eq!(run(&["unseal", "--storage-key", &key, file]).await, (Some(0), String::new()));
        let (code, said) = run(&["unseal", "--storage-key", &key, file]).await;
        assert!(code == Some(1) && said.contains("exists already"), "{said}");
    }
    let plain = log.strip_suffix(".sealed").expect("sealed");
    let text = std::fs::read_to_string(plain).expect("text");
    assert!(text.contains(SECRET) && text.contains("\"audio\":\"sess_"), "{text}");
    assert_eq!(run(&["replay", "--quiet", plain]).await.0, Some(0));
    let wav = hound::WavReader::open(sound.strip_suffix(".sealed").expect("sealed")).expect("a WAV file");
    assert!(wav.spec().sample_rate == 16_000 && wav.duration() >= 15_000, "{}", wav.duration());
    let samples: Vec<u8> =
        wav.into_samples::<i16>().skip(8_000).take(32).flat_map(|s| s.expect("one").to_le_bytes()).collect();
    assert!(!find(&std::fs::read(sound).expect("there"), &samples), "the sound is sealed");
    let (code, said) = run(&["unseal", "--storage-key", &key, plain]).await;
    assert!(code == Some(2) && said.contains("is not sealed"), "{said}");

    // A byte changed anywhere is noticed, and so is a cut. Of the log at 60 places.
    let sealing: Arc<dyn Sealing> = Arc::new(StorageKey::read(Path::new(&key)).expect("a key"));
    let bytes = std::fs::read(log).expect("there");
    let damaged = folder.path().join("damaged.jsonl.sealed");
    let runs = |bytes: &[u8]| -> Result<bool, ReplayError> {
        std::fs::write(&damaged, bytes).expect("written");
        let log = ReplayLog::open_with(&damaged, || Ok(Some(sealing.clone())))?;
        Ok(replay(log, &mut |_, _| {})?.end.is_some())
    };
    assert!(runs(&bytes).expect("it is whole"));
    for at in (0..bytes.len()).step_by(bytes.len() / 60) {
        let mut changed = bytes.clone();
        changed[at] ^= 1;
        assert!(runs(&changed).is_err(), "byte {at}");
        // Whole lines are what a hub that is killed leaves: the report says that the end is missing.
        let cut = runs(&bytes[..at]);
        assert!(!cut.is_ok_and(|has_end| has_end), "cut at {at}");
    }
    let lines: Vec<&[u8]> = bytes.split_inclusive(|byte| *byte == b'\n').collect();
    let without = [&lines[..3], &lines[4..]].concat().concat();
    let error = runs(&without).expect_err("a line is missing").to_string();
    assert!(error.contains("line 3: it was changed after it was sealed, or it belongs elsewhere"), "{error}");
    let bytes = std::fs::read(sound).expect("there");
    let out = folder.path().join("out.wav");
    for at in [bytes.len() / 2, bytes.len() - 1] {
        for (damage, expect) in [(true, "it was changed"), (false, "it is cut short")] {
            let mut changed = bytes.clone();
            if damage {
                changed[at] ^= 1
            } else {
                changed.truncate(at)
            };
            std::fs::write(&damaged, changed).expect("written");
            let files = [damaged.to_str().expect("text"), "-o", out.to_str().expect("text")];
            let (code, said) = run(&[&["unseal", "--storage-key", &key][..], &files].concat()).await;
            assert!(code == Some(2) && said.contains(expect), "{said}");
            // The part before it; before the first block there is none.
            if let Ok(part) = std::fs::read(&out) {
                assert!(!part.is_empty());
                std::fs::remove_file(&out).expect("removed");
            }
        }
    }
}

#[tokio::test]
async fn what_the_microphone_heard_of_a_turn_is_served_to_an_admin_and_audited() {
    let (folder, key) = folder_with_key();
    let recordings = folder.path().join("recordings");
    let audit = folder.path().join("audit.jsonl");
    for key in [key.as_str(), ""] {
        let env = [
            ("ANTIPHON_SESSION__RECORD", recordings.to_str().expect("text")),
            ("ANTIPHON_SESSION__RECORD_AUDIO", "true"),
            ("ANTIPHON_SERVER__STORAGE_KEY", key),
            ("ANTIPHON_SERVER__AUDIT_LOG", audit.to_str().expect("text")),
            ("ANTIPHON_API_KEYS", "sk-user"),
            ("ANTIPHON_ADMIN_KEYS", "sk-admin"),
        ];
        let hub = Process::start(folder.path(), &env).await;
        let mut request = format!("ws://{}/v1/realtime", hub.address).into_client_request().expect("an address");
        request.headers_mut().insert("authorization", "Bearer sk-user".parse().expect("text"));
        let (stream, _) = crate::hub::connect(request).await.expect("the upgrade is accepted");
        let mut socket = Socket { stream, frames: Vec::new() };
        assert_eq!(socket.next().await["type"], "session.created");
        socket.append(&vec![0; 12_000]).await;
        socket.send(json!({"type": "input_audio_buffer.clear"})).await;
        socket.until("input_audio_buffer.cleared").await;
        let samples: Vec<i16> = (0..24_000).map(|i| ((i * 37) % 8_000) as i16).collect();
        socket.append(&samples).await;
        socket.send(json!({"type": "input_audio_buffer.commit"})).await;
        socket.until("input_audio_buffer.committed").await;
        let get = async |path: &str, key: &str| {
            let request = client().get(format!("http://{}/api/turns{path}", hub.address)).bearer_auth(key);
            let answer = request.send().await.expect("an answer");
            (answer.status().as_u16(), answer.bytes().await.expect("whole"))
        };
        let list = async || -> Value { serde_json::from_slice(&get("", "sk-admin").await.1).expect("JSON") };
        let turn = timeout(TEST_TIMEOUT, async {
            loop {
                let turn = list().await["turns"][0].take();
                if turn["recording"].is_object() {
                    return turn;
                }
                sleep(Duration::from_millis(20)).await;
            }
        });
        let turn = turn.await.expect("in time");
        // The resampler's delay is in neither.
        let from = turn["recording"]["from_ms"].as_u64();
        let to = turn["recording"]["to_ms"].as_u64();
        assert!(matches!((from, to), (Some(490..=500), Some(1_490..=1_500))), "{from:?} {to:?}");
        // The session has ended: all of it is on the disk.
        drop(socket);
        let path = format!("/{}/audio", turn["id"].as_str().expect("an id"));
        let whole = timeout(TEST_TIMEOUT, async {
            loop {
                match get(&path, "sk-admin").await {
                    (200, sound) if sound.len() >= 44 + 4 * 15_800 => return sound,
                    (200 | 404, _) => sleep(Duration::from_millis(20)).await,
                    (status, body) => panic!("{status} {body:?}"),
                }
            }
        });
        let wav = hound::WavReader::new(std::io::Cursor::new(whole.await.expect("in time"))).expect("a WAV file");
        assert_eq!((wav.spec().sample_rate, wav.spec().channels), (16_000, 2));
        let microphone = wav.into_samples::<i16>().step_by(2);
        let loudest = microphone.map(|sample| sample.expect("one").unsigned_abs()).max();
        assert!(loudest > Some(3_000), "{loudest:?}");
        assert_eq!(get(&path, "sk-user").await.0, 403, "its own session, but no admin");
        assert_eq!(get("/turn_none/audio", "sk-admin").await.0, 404);
        hub.end().await;
    }
    let audit = std::fs::read_to_string(audit).expect("there");
    assert!(audit.contains("recording.read") && audit.contains("\"target\":\"turn_"), "{audit}");
}

/// Sentences enough for a job of many chunks.
fn long() -> String {
    (0..12).map(|n| format!("{SECRET}, and the walnut number {n} is a quiet one. ")).collect()
}

#[tokio::test]
async fn a_sealed_job_outlives_its_hub_and_is_not_on_the_disk() {
    let (folder, key) = folder_with_key();
    let sealed = folder.path().join("sealed");
    let plain = folder.path().join("plain");
    let at = sealed.to_str().expect("text");
    let at_plain = plain.to_str().expect("text");
    let env = [("ANTIPHON_SERVER__STORAGE_KEY", key.as_str()), ("ANTIPHON_SPEECH__JOBS_DIR", at)];
    let text = long();
    let mut hub = Process::start(folder.path(), &env).await;
    let id = hub.submit(&text, "wav").await;
    hub.until(&id, |job| job["progress"]["chunks_done"].as_u64() >= Some(1)).await;
    hub.child.kill().await.expect("killed");
    assert!(!holds(&sealed, b"walnut"));
    let hub = Process::start(folder.path(), &env).await;
    let sound = hub.sound(&id).await;
    assert_eq!(&sound[..4], b"RIFF");

    let reference = Process::start(folder.path(), &[("ANTIPHON_SPEECH__JOBS_DIR", at_plain)]).await;
    let plain_id = reference.submit(&text, "wav").await;
    // The voice is not the same to the bit each time, and hardly longer or shorter.
    let plain_sound = reference.sound(&plain_id).await;
    assert!(sound.len().abs_diff(plain_sound.len()) < sound.len() / 50, "{} {}", sound.len(), plain_sound.len());
    assert_eq!(sound[40..44], (sound.len() as u32 - 44).to_le_bytes(), "the header says how long it is");
    reference.end().await;
    let middle = |sound: &[u8]| sound[sound.len() / 2..][..64].to_vec();
    assert!(
        holds(&plain, b"walnut") && holds(&plain, &middle(&plain_sound)),
        "they are looked for where they would be"
    );
    assert!(!holds(&sealed, b"walnut") && !holds(&sealed, &middle(&sound)));

    // A changed byte is noticed before the first block is sent, or ends the answer early.
    let file = sealed.join(format!("{id}.wav"));
    let bytes = std::fs::read(&file).expect("there");
    for (at, status) in [(100, 500), (bytes.len() - 1, 200)] {
        let mut changed = bytes.clone();
        changed[at] ^= 1;
        std::fs::write(&file, changed).expect("written");
        let answer = client().get(hub.jobs(&format!("/{id}/audio"))).send().await.expect("an answer");
        assert_eq!(answer.status().as_u16(), status);
        assert!(status == 500 || answer.bytes().await.is_err(), "it is not whole");
    }
    hub.end().await;

    // Without the key the folder is refused.
    let hub = Process::start(folder.path(), &[("ANTIPHON_SPEECH__JOBS_DIR", at)]).await;
    let answer = client().get(hub.jobs("")).send().await.expect("an answer");
    assert_eq!(answer.json::<Value>().await.expect("JSON")["error"]["code"], "jobs_unavailable");
    let log = std::fs::read_to_string(folder.path().join("log")).expect("there");
    assert!(log.contains("are encrypted, and server.storage_key is empty"), "{log}");
    hub.end().await;
}

#[tokio::test]
async fn the_sound_of_a_sealed_job_is_that_of_a_plain_one() {
    let (folder, key) = folder_with_key();
    for format in ["wav", "pcm", "mp3", "flac"] {
        let mut sounds = Vec::new();
        for (name, key) in [("plain", ""), ("sealed", key.as_str())] {
            let at = folder.path().join(format!("{format}-{name}"));
            let mut config = Config::default();
            config.speech.jobs_dir = at.to_str().expect("text").into();
            config.server.storage_key = key.into();
            let hub = Hub::start(engines(FakeStt::default(), FakeLlm::default(), FakeTts::default()), config).await;
            let address = hub.address.to_string();
            let id = submit(&address, &long(), format).await;
            sounds.push(sound(&address, &id).await);
            hub.stop().await;
            assert_eq!(holds(&at, b"walnut"), key.is_empty(), "{name}");
        }
        assert!(sounds[0] == sounds[1], "{format}: {} and {} bytes", sounds[0].len(), sounds[1].len());
    }
}

#[tokio::test]
async fn an_upstream_key_in_a_file_is_exchanged_by_sighup() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = |name: &str| folder.path().join(name).to_str().expect("text").to_owned();
    let key = at("upstream");
    let clients = at("clients");
    std::fs::write(&key, "sk-one\n").expect("written");
    std::fs::write(&clients, "sk-client-0123456789\n").expect("written");
    let upstream = TestServer::start(|_| Answer::completion(["Yes."]));
    let url = upstream.url("/v1");
    let env = [
        ("ANTIPHON_LLM__ENGINE", "openai"),
        ("ANTIPHON_LLM__BASE_URL", url.as_str()),
        ("ANTIPHON_LLM__API_KEY_ENV", "UPSTREAM_KEY"),
        ("UPSTREAM_KEY_FILE", key.as_str()),
        ("ANTIPHON_API_KEYS_FILE", clients.as_str()),
    ];
    let hub = Process::start(folder.path(), &env).await;
    let connect = async |key: &str| {
        let mut request = format!("ws://{}/v1/realtime", hub.address).into_client_request().expect("a request");
        request.headers_mut().insert("authorization", format!("Bearer {key}").parse().expect("a header"));
        let (stream, _) = crate::hub::connect(request).await.expect("the upgrade is accepted");
        Socket { stream, frames: Vec::new() }
    };
    assert_eq!(connect("sk-other").await.next().await["error"]["code"], "invalid_api_key");
    let mut socket = connect("sk-client-0123456789").await;
    assert_eq!(socket.next().await["type"], "session.created");
    let last = || {
        let asked = upstream.requests().into_iter().rfind(|request| request.method == "POST").expect("a request");
        asked.header("authorization").expect("a key").to_owned()
    };
    let logged = async |line: &str| {
        let log = folder.path().join("log");
        let there = async {
            while !std::fs::read_to_string(&log).expect("there").contains(line) {
                sleep(Duration::from_millis(20)).await;
            }
        };
        timeout(TEST_TIMEOUT, there).await.unwrap_or_else(|_| panic!("{line}"));
    };
    socket.ask("Is it open?").await;
    assert_eq!(last(), "Bearer sk-one");
    std::fs::write(&key, "sk-two\n").expect("written");
    socket.ask("Is it open?").await;
    assert_eq!(last(), "Bearer sk-one", "nothing is read before the signal");
    hub.signal("-HUP");
    logged("an upstream key was exchanged").await;
    socket.ask("Is it open?").await;
    assert_eq!(last(), "Bearer sk-two");
    std::fs::write(&key, "\n").expect("written");
    hub.signal("-HUP");
    logged("is empty; the key from before stays in use").await;
    socket.ask("Is it open?").await;
    assert_eq!(last(), "Bearer sk-two");
    assert!(!std::fs::read_to_string(folder.path().join("log")).expect("there").contains("sk-"), "no key is logged");
    drop(socket);
    hub.end().await;

    for (variable, other) in [("UPSTREAM_KEY", "UPSTREAM_KEY_FILE"), ("ANTIPHON_API_KEYS", "ANTIPHON_API_KEYS_FILE")] {
        std::fs::write(&key, "sk-two\n").expect("written");
        let serve = program(&["serve", "--listen", "127.0.0.1:0"])
            .env("ANTIPHON_MODELS__DIR", "nowhere/models")
            .envs(env)
            .env(variable, "sk-both-0123456789")
            .output();
        let output = timeout(TEST_TIMEOUT, serve).await.expect("it ends").expect("the binary starts");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && said.contains(&format!("both {variable} and {other} are set")), "{said}");
    }
}

#[tokio::test]
async fn passwords_in_files_are_read_again_by_sighup() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = |name: &str| folder.path().join(name).to_str().expect("text").to_owned();
    let account = at("account");
    let trunk = at("trunk");
    std::fs::write(&account, "pw-one\n").expect("written");
    std::fs::write(&trunk, "pw-one\n").expect("written");
    let asterisk = TestServer::start(|_| Answer::status(401));
    let accounts = format!(
        "{{ office = {{ kind = \"asterisk\", api_url = \"{}\", username = \"ann\", password_env = \"ARI_PASSWORD\", \
         endpoint = \"PJSIP/{{number}}@trunk\", numbers = [\"100\"] }} }}",
        asterisk.url("/")
    );
    let listen = format!("127.0.0.1:{}", crate::sip::free_port());
    let env = [
        ("ANTIPHON_TELEPHONY__ACCOUNTS", accounts.as_str()),
        ("ARI_PASSWORD_FILE", account.as_str()),
        ("ANTIPHON_SIP__LISTEN", listen.as_str()),
        ("ANTIPHON_SIP__TRUNKS", "{ phones = { username = \"ann\", password_env = \"TRUNK_PASSWORD\" } }"),
        ("TRUNK_PASSWORD_FILE", trunk.as_str()),
    ];
    let hub = Process::start(folder.path(), &env).await;
    // The hub tries to connect again and again.
    let proves = async |password: &str| {
        let expect = format!("Basic {}", BASE64.encode(format!("ann:{password}")));
        let is_proof = |request: &antiphon_test_server::Request| {
            request.header("authorization").is_some_and(|authorization| authorization == expect)
        };
        let proven = async {
            while !asterisk.requests().iter().any(is_proof) {
                sleep(Duration::from_millis(20)).await;
            }
        };
        timeout(TEST_TIMEOUT, proven).await.unwrap_or_else(|_| panic!("{password} is proven"));
    };
    proves("pw-one").await;
    std::fs::write(&account, "pw-two\n").expect("written");
    std::fs::remove_file(&trunk).expect("removed");
    hub.signal("-HUP");
    proves("pw-two").await;
    let log = std::fs::read_to_string(folder.path().join("log")).expect("there");
    let failed = log.lines().find(|line| line.contains("the trunk passwords from before stay in use"));
    assert!(failed.is_some_and(|line| line.contains("TRUNK_PASSWORD_FILE")), "{log}");
    assert!(!log.contains("pw-"), "no password is logged");
    hub.end().await;
}

#[tokio::test]
async fn a_storage_key_that_is_none_is_named_before_anything_starts() {
    let (folder, key) = folder_with_key();
    let bad = folder.path().join("bad.key");
    std::fs::write(&bad, "secret").expect("written");
    for (file, code) in [(key.as_str(), 0), (bad.to_str().expect("text"), 2), ("nowhere.key", 2)] {
        for command in [&["config", "check"][..], &["serve", "--listen", "127.0.0.1:0"]] {
            if code == 0 && command[0] == "serve" {
                continue;
            }
            let output = program(command).env("ANTIPHON_SERVER__STORAGE_KEY", file).output().await.expect("it starts");
            let said = String::from_utf8_lossy(&output.stderr);
            assert_eq!(output.status.code(), Some(code), "{said}");
            assert!(code == 0 || said.contains("server.storage_key: the file") && !said.contains("secret"), "{said}");
        }
    }
}
