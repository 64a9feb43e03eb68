//! A hub as a process of its own, what it holds, and requests to it from any address of the loopback network.

use super::upstream;
use antiphon_test_server::TestServer;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpSocket, TcpStream};
use tokio::process::{Child, ChildStdout, Command};
use tokio::time::timeout;

/// Longer than any single step takes on a busy machine.
pub const TEST_TIMEOUT: Duration = Duration::from_secs(30);

/// Times are shorter than the defaults, so that a fault that runs into one takes seconds.
const QUICK: [(&str, &str); 18] = [
    ("VAD__ENGINE", "earshot"),
    ("STT__ENGINE", "openai"),
    ("STT__API_KEY_ENV", ""),
    ("STT__TIMEOUT_MS", "3000"),
    ("LLM__ENGINE", "openai"),
    ("LLM__API_KEY_ENV", ""),
    ("LLM__FIRST_TOKEN_TIMEOUT_MS", "3000"),
    ("LLM__TOKEN_TIMEOUT_MS", "3000"),
    ("TTS__ENGINE", "openai"),
    ("TTS__API_KEY_ENV", ""),
    ("TTS__TIMEOUT_MS", "3000"),
    ("SERVER__PING_SECONDS", "3"),
    ("SERVER__MESSAGE_SECONDS", "3"),
    ("SERVER__DRAIN_SECONDS", "3"),
    ("SESSION__RESUME_SECONDS", "2"),
    ("SESSION__MAX_UTTERANCE_SECONDS", "10"),
    // The canary speaks faster than any person, and a machine that tests is busy, which is no overload of the hub.
    ("LIMITS__SESSION_AUDIO_SECONDS_PER_MINUTE", "0"),
    ("SLO__BROWNOUT", "false"),
];

/// The value of a key of the configuration that is an address: one that is free when the hub starts.
pub const FREE: &str = "FREE";

/// What a hub is started with.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// Keys of the configuration, as `SECTION__KEY`; `FOLDER` in a value is the hub's own folder.
    pub config: Vec<(&'static str, String)>,
    /// Other variables of the environment.
    pub env: Vec<(&'static str, String)>,
    /// Arguments of `ulimit`, one call each.
    pub limits: Vec<&'static str>,
    /// The key of the harness, which may see everything.
    pub admin: Option<&'static str>,
    /// The key of faulty parties and of the canary; `None`: the hub has no keys.
    pub keys: Option<(&'static str, &'static str)>,
    /// Whether a speech job is done before the first count: the list of jobs is opened at the first.
    pub has_jobs: bool,
}

impl Settings {
    /// The same with this key of the configuration.
    pub fn with(mut self, key: &'static str, value: impl Into<String>) -> Self {
        self.config.push((key, value.into()));
        self
    }
}

/// Upstreams of a hub: one each stage, so that one can be away while the others serve.
pub struct Upstreams {
    pub stt: TestServer,
    pub llm: TestServer,
    pub tts: TestServer,
    /// MCP servers and mirrors.
    pub other: TestServer,
}

impl Upstreams {
    pub fn start() -> Self {
        Self { stt: upstream::start(), llm: upstream::start(), tts: upstream::start(), other: upstream::start() }
    }

    /// Open connections of the hub to any of them.
    pub fn open(&self) -> usize {
        self.stt.n_open() + self.llm.n_open() + self.tts.n_open() + self.other.n_open()
    }
}

/// A hub: its process, which may be started again in the same folder.
pub struct Hub {
    pub settings: Settings,
    pub upstreams: Upstreams,
    pub folder: TempDir,
    running: Mutex<Option<HubProcess>>,
}

struct HubProcess {
    child: Child,
    /// Kept, so that it can print.
    _out: BufReader<ChildStdout>,
    address: SocketAddr,
    pid: u32,
}

impl Hub {
    /// Starts it and waits until it is ready.
    pub async fn start(mut settings: Settings) -> Arc<Self> {
        for (_, value) in &mut settings.config {
            if value == FREE {
                *value = free_address().to_string();
            }
        }
        let folder = tempfile::tempdir().expect("a folder");
        let hub = Self { settings, upstreams: Upstreams::start(), folder, running: Mutex::default() };
        hub.start_again().await.unwrap_or_else(|log| panic!("the hub does not start: {log}"));
        Arc::new(hub)
    }

    /// Starts the process, after it has ended. An error is its log.
    pub async fn start_again(&self) -> Result<(), String> {
        let mut child = self.command().spawn().expect("the program starts");
        let mut out = BufReader::new(child.stdout.take().expect("piped"));
        let mut line = String::new();
        let read = timeout(TEST_TIMEOUT, out.read_line(&mut line)).await;
        let address = line.split("http://").nth(1).and_then(|rest| {
            rest.split(|c: char| !(c.is_ascii_digit() || c == '.' || c == ':'))
                .next()?
                .trim_end_matches(':')
                .parse()
                .ok()
        });
        let (Some(address), Ok(_)) = (address, read) else {
            let _ = timeout(TEST_TIMEOUT, child.wait()).await;
            return Err(self.log());
        };
        let pid = child.id().ok_or_else(|| self.log())?;
        *self.running.lock().expect("no panic") = Some(HubProcess { child, _out: out, address, pid });
        let ready = async {
            while self.get("/readyz").await.map(|answer| answer.status) != Some(200) {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        timeout(TEST_TIMEOUT, ready).await.map_err(|_| self.log())
    }

    fn command(&self) -> Command {
        let folder = self.folder.path().to_str().expect("Unicode");
        let program = std::env::var("ANTIPHON").unwrap_or_else(|_| env!("CARGO_BIN_EXE_antiphon").to_owned());
        let limits: String = self.settings.limits.iter().fold(String::new(), |mut all, limit| {
            let _ = write!(all, "ulimit {limit} && ");
            all
        });
        let mut command = Command::new("sh");
        command.args(["-c", &format!("{limits}exec \"$0\" \"$@\""), &program, "serve", "--listen", "127.0.0.1:0"]);
        command.env_clear().envs(std::env::var_os("PATH").map(|path| ("PATH", path))).current_dir(folder);
        let mut set = |key: &str, value: &str| {
            command.env(format!("ANTIPHON_{key}"), value.replace("FOLDER", folder));
        };
        QUICK.iter().for_each(|(key, value)| set(key, value));
        set("STT__BASE_URL", &self.upstreams.stt.url("/v1"));
        set("LLM__BASE_URL", &self.upstreams.llm.url("/v1"));
        set("TTS__BASE_URL", &self.upstreams.tts.url("/v1"));
        set("SPEECH__JOBS_DIR", "FOLDER/jobs");
        set("MODELS__DIR", "FOLDER/models");
        for (key, value) in &self.settings.config {
            let value = value.replace("OTHER", &self.upstreams.other.url(""));
            let value = value.replace("VOICE", &self.upstreams.tts.address().to_string());
            set(key, &value);
        }
        command.envs(self.settings.env.iter().map(|(key, value)| (key, value.replace("FOLDER", folder))));
        let log = std::fs::OpenOptions::new().create(true).append(true).open(self.log_file()).expect("made");
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(log).kill_on_drop(true);
        command
    }

    pub fn log_file(&self) -> PathBuf {
        self.folder.path().join("hub.log")
    }

    pub fn log(&self) -> String {
        std::fs::read_to_string(self.log_file()).unwrap_or_default()
    }

    pub fn address(&self) -> SocketAddr {
        self.running.lock().expect("no panic").as_ref().expect("it runs").address
    }

    /// The address that a key of its configuration sets.
    pub fn listens(&self, key: &str) -> SocketAddr {
        let set = self.settings.config.iter().find(|(name, _)| *name == key);
        let (_, value) = set.unwrap_or_else(|| panic!("{key} is set"));
        value.parse().expect("an address")
    }

    pub fn pid(&self) -> u32 {
        self.running.lock().expect("no panic").as_ref().expect("it runs").pid
    }

    /// Sends a signal, such as `TERM`.
    pub fn signal(&self, name: &str) {
        let sent = std::process::Command::new("kill").args([&format!("-{name}"), &self.pid().to_string()]).status();
        assert!(sent.expect("kill runs").success());
    }

    /// Its exit code, once it has ended; `None`: by a signal.
    pub async fn ended(&self) -> Option<i32> {
        let mut running = self.running.lock().expect("no panic").take().expect("it runs");
        timeout(TEST_TIMEOUT, running.child.wait()).await.expect("the hub ends").expect("waited for").code()
    }

    /// Kills it, if it runs, and waits until its ports are free.
    pub async fn kill(&self) {
        let running = self.running.lock().expect("no panic").take();
        if let Some(HubProcess { mut child, .. }) = running {
            let _ = child.kill().await;
        }
    }

    /// A request of the harness.
    pub async fn get(&self, path: &str) -> Option<Answer> {
        let key = self.settings.admin.map(|key| format!("authorization: Bearer {key}\r\n")).unwrap_or_default();
        let stream = connect(self.address(), Ipv4Addr::LOCALHOST).await.ok()?;
        ask(stream, &format!("GET {path} HTTP/1.1\r\nhost: localhost\r\n{key}connection: close\r\n\r\n"), b"").await
    }

    /// What it holds now; `None` if it does not say.
    pub async fn held(&self) -> Option<HubResources> {
        let state: Value = serde_json::from_slice(&self.get("/api/state").await?.body).ok()?;
        let number = |value: &Value| value.as_u64().map(|n| n as usize);
        let queues: u64 = state["queues"].as_object()?.values().filter_map(Value::as_u64).sum();
        let pid = self.pid();
        let mut counts = BTreeMap::from([
            ("sessions", number(&state["sessions"])?),
            ("places", number(&state["places_taken"])?),
            ("connections", number(&state["connections"])?),
            ("queued", queues as usize),
            ("tasks", number(&state["tasks"])?),
            ("descriptors", std::fs::read_dir(format!("/proc/{pid}/fd")).ok()?.count()),
            ("upstream connections", self.upstreams.open()),
        ]);
        counts.insert("files", files(self.folder.path()));
        Some(HubResources(counts))
    }

    /// Resident memory in bytes; 0 while it does not run.
    pub fn resident(&self) -> u64 {
        let pid = self.running.lock().expect("no panic").as_ref().map_or(0, |running| running.pid);
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        let kib = status.lines().find_map(|line| line.strip_prefix("VmRSS:")?.split_whitespace().next()?.parse().ok());
        1024 * kib.unwrap_or(0_u64)
    }
}

/// The wall clock of one hub, which libfaketime sets; the monotonic clock stays.
pub struct WallClock {
    library: PathBuf,
    folder: TempDir,
}

impl WallClock {
    /// A clock that is right. `None`, and a line that says so: libfaketime is not installed.
    pub fn find() -> Option<Self> {
        let of_system = std::fs::read_dir("/usr/lib").into_iter().flatten().flatten();
        let library =
            of_system.map(|entry| entry.path().join("faketime/libfaketimeMT.so.1")).find(|file| file.exists());
        if library.is_none() {
            eprintln!("faults of the wall clock are left out: libfaketime is not installed");
        }
        let clock = Self { library: library?, folder: tempfile::tempdir().expect("a folder") };
        clock.step("+0");
        Some(clock)
    }

    /// What a hub's environment needs.
    pub fn env(&self) -> Vec<(&'static str, String)> {
        let text = |path: &Path| path.to_str().expect("Unicode").to_owned();
        vec![
            ("LD_PRELOAD", text(&self.library)),
            ("FAKETIME_TIMESTAMP_FILE", text(&self.folder.path().join("offset"))),
            ("FAKETIME_NO_CACHE", "1".into()),
            ("FAKETIME_DONT_FAKE_MONOTONIC", "1".into()),
        ]
    }

    /// Sets it by so much from the right time, such as `-1d` or `+20y`.
    pub fn step(&self, offset: &str) {
        // Renamed, so that it is never read half-written.
        let new = self.folder.path().join("new");
        let file = self.folder.path().join("offset");
        std::fs::write(&new, offset).and_then(|()| std::fs::rename(&new, &file)).expect("written");
    }
}

/// A small disk of its own, until it is dropped.
pub struct Disk(TempDir);

impl Disk {
    /// Mounts so many KiB. `None`, and a line that says so: this user may not mount.
    pub fn mount(kib: usize) -> Option<Self> {
        let folder = tempfile::tempdir().expect("a folder");
        let options = format!("size={kib}k,mode=700");
        let mounted = mount(&["-t", "tmpfs", "-o", &options, "tmpfs"], folder.path());
        if !mounted {
            eprintln!("faults of whole disks are left out: mounting one takes root");
        }
        mounted.then_some(Self(folder))
    }

    pub fn path(&self) -> &Path {
        self.0.path()
    }

    /// Fills what is left of it, or makes room again.
    pub fn fill(&self, is_full: bool) {
        let file = self.path().join("filling");
        if !is_full {
            std::fs::remove_file(file).expect("there");
            return;
        }
        let mut file = std::fs::File::create(file).expect("made");
        while std::io::Write::write_all(&mut file, &[7; 1_024]).is_ok() {}
    }

    /// Whether it can be written to from now on. No file may be open for writing.
    pub fn set_writable(&self, is_writable: bool) {
        let options = if is_writable { "remount,rw" } else { "remount,ro" };
        assert!(mount(&["-o", options], self.path()), "{options}");
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // Lazily: a hub that has files open has been killed, and may not have ended.
        let _ = std::process::Command::new("umount").arg("-l").arg(self.path()).status();
    }
}

fn mount(arguments: &[&str], at: &Path) -> bool {
    let mut command = std::process::Command::new("mount");
    command.args(arguments).arg(at).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

/// The number of files below a folder.
fn files(folder: &Path) -> usize {
    let Ok(entries) = std::fs::read_dir(folder) else { return 0 };
    let is_folder = |path: &Path| path.symlink_metadata().is_ok_and(|found| found.is_dir());
    entries.flatten().map(|entry| if is_folder(&entry.path()) { files(&entry.path()) } else { 1 }).sum()
}

/// What a hub holds, by name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HubResources(pub BTreeMap<&'static str, usize>);

impl HubResources {
    /// What is more than `before`.
    pub fn beyond(&self, before: &Self) -> Vec<(&'static str, usize)> {
        let more = |(name, n): (&&'static str, &usize)| {
            let n = n.saturating_sub(*before.0.get(name).unwrap_or(&0));
            (n > 0).then_some((*name, n))
        };
        self.0.iter().filter_map(more).collect()
    }
}

/// An answer.
#[derive(Clone, Debug)]
pub struct Answer {
    pub status: u16,
    /// The status line and headers, in lower case.
    pub head: String,
    pub body: Vec<u8>,
    /// Whether the body is complete by its own length.
    pub is_whole: bool,
}

impl Answer {
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_default()
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).map(str::trim)
    }

    /// Checks the status, and that the body of an error says something and betrays nothing.
    #[track_caller]
    pub fn is(&self, statuses: &[u16]) {
        let body = String::from_utf8_lossy(&self.body);
        assert!(statuses.contains(&self.status), "{} instead of {statuses:?}: {}{body}", self.status, self.head);
        assert!(!body.contains("panicked") && !body.contains("secret words"), "{body}");
    }
}

/// An address that is free now.
fn free_address() -> SocketAddr {
    let free = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    free.local_addr().expect("bound")
}

/// A connection from this address.
pub async fn connect(hub: SocketAddr, from: Ipv4Addr) -> std::io::Result<TcpStream> {
    let socket = TcpSocket::new_v4()?;
    socket.bind((IpAddr::V4(from), 0).into())?;
    let stream = socket.connect(hub).await?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// Sends a request and reads its answer; `None` if there is no whole head in time.
pub async fn ask(mut stream: TcpStream, head: &str, body: &[u8]) -> Option<Answer> {
    let (mut reader, mut writer) = stream.split();
    let write = async {
        // A hub that has refused the request closes before all of it is sent.
        let _ = writer.write_all(head.as_bytes()).await;
        let _ = writer.write_all(body).await;
        std::future::pending::<()>().await;
    };
    let mut bytes = Vec::new();
    let read = timeout(TEST_TIMEOUT, reader.read_to_end(&mut bytes));
    tokio::select! {
        () = write => {}
        _ = read => {}
    }
    parse(&bytes)
}

/// The answer in these bytes.
pub fn parse(bytes: &[u8]) -> Option<Answer> {
    let end = bytes.windows(4).position(|window| window == b"\r\n\r\n")? + 4;
    let head = String::from_utf8_lossy(&bytes[..end]).to_lowercase();
    let status = head.split(' ').nth(1)?.parse().ok()?;
    let field = |name: &str| head.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
    let rest = &bytes[end..];
    let (body, is_whole) = match field("content-length:").and_then(|length| length.parse::<usize>().ok()) {
        Some(length) => (rest.to_vec(), rest.len() >= length),
        None if field("transfer-encoding:") == Some("chunked") => chunks(rest),
        None => (rest.to_vec(), true),
    };
    Some(Answer { status, head, body, is_whole })
}

fn chunks(mut rest: &[u8]) -> (Vec<u8>, bool) {
    let mut body = Vec::new();
    while let Some(end) = rest.windows(2).position(|pair| pair == b"\r\n") {
        let length = std::str::from_utf8(&rest[..end]).ok().and_then(|text| usize::from_str_radix(text, 16).ok());
        let Some(length) = length else { break };
        if length == 0 {
            return (body, true);
        }
        let Some(chunk) = rest.get(end + 2..end + 2 + length) else { break };
        body.extend_from_slice(chunk);
        rest = rest.get(end + 4 + length..).unwrap_or_default();
    }
    (body, false)
}
