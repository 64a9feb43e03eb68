//! Comparison with a peer: the same question, mock engines and latency definition, in one run.
//!
//! The peer is a small pipecat bot in a folder outside this repository: `pipecat_bot.py`, its client
//! `bench_pipecat.py`, and `question16k.wav`. Bot and hub run on core 1, clients and mock engines on core 0. Both
//! clients measure from the last loud sample sent to the first response sample that is not silent. Without that folder,
//! or without a Python with pipecat, the comparison fails with an error that says so.
//!
//! With [`RealModels`] one more row compares both with the same recognizer and the same voice in their processes, on all cores;
//! only the language model is a mock then.

use super::hub_process::{Hub, HubCommand};
use super::load::{Clip, Outcome, Sign};
use super::mock::Latencies;
use super::mocks::{Pair, clips, talk};
use super::pinning::LoadAffinity;
use super::{BenchError, Plan, Process, Progress};
use antiphon_audio::wav;
use antiphon_client::RATE;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::process::{Child, Command};
use tokio::time::{Instant, sleep, timeout};

/// Timeout for the start of the bot, which loads a Python stack and two networks.
const START_DEADLINE: Duration = Duration::from_secs(120);
const BETWEEN_TRIES: Duration = Duration::from_millis(250);
/// Timeout for a complete run of the peer's client.
const RUN_DEADLINE: Duration = Duration::from_secs(1_800);
/// Playing time of each text of a response: the default of the peer's scripts.
const SOUND: Duration = Duration::from_secs(2);

/// pipecat's bot with a recognizer and a voice in its process.
const REAL_BOT: &str = "pipecat_real.py";
/// LiveKit's agent with the same, in this repository.
const LIVEKIT_BOT: &str = "crates/bench/peers/livekit_bot.py";

/// Parameters of the comparison.
#[derive(Clone, Debug)]
pub struct Peers {
    /// The folder with the peer's scripts.
    pub rig: PathBuf,
    /// A Python with pipecat.
    pub python: PathBuf,
    /// Turns per session.
    pub turns: usize,
    /// Sessions of the third row; the first two rows have one.
    pub n_sessions: usize,
    /// The models of the last row; `None`: there is no such row.
    pub real: Option<RealModels>,
}

/// The same weights in the form that each server reads: a Whisper model and a voice of Piper's.
#[derive(Clone, Debug)]
pub struct RealModels {
    /// Whisper in ggml's form, for the hub.
    pub whisper_ggml: PathBuf,
    /// Whisper in CTranslate2's form, for faster-whisper.
    pub whisper_ct2: PathBuf,
    /// The voice, `NAME.onnx` with its `.json` beside it, for both.
    pub piper: PathBuf,
}

impl RealModels {
    /// The hub's settings.
    pub(super) fn settings(&self) -> [String; 5] {
        [
            "stt.engine=whisper".to_owned(),
            format!("stt.model={}", self.whisper_ggml.display()),
            "stt.language=en".to_owned(),
            "tts.engine=piper".to_owned(),
            format!("tts.model={}", self.piper.display()),
        ]
    }

    /// The bot's environment.
    fn environment(&self) -> Result<[(&'static str, std::ffi::OsString); 4], BenchError> {
        let wrong = || BenchError::Peer(format!("{} is no file of a voice", self.piper.display()));
        let folder = self.piper.parent().ok_or_else(wrong)?;
        let voice = self.piper.file_stem().ok_or_else(wrong)?;
        Ok([
            ("REAL", "1".into()),
            ("WHISPER", self.whisper_ct2.clone().into()),
            ("PIPER", folder.into()),
            ("VOICE", voice.into()),
        ])
    }
}

/// A framework whose bot has the conversations of this hub.
#[derive(Clone, Debug)]
pub enum Framework {
    /// pipecat, with the scripts of this folder.
    Pipecat(PathBuf),
    /// LiveKit Agents.
    Livekit,
}

/// A bot with the same models as the hub.
#[derive(Clone, Debug)]
pub struct RealPeer {
    /// What the bot is made with.
    pub framework: Framework,
    /// A Python with that framework.
    pub python: PathBuf,
    /// The models of both.
    pub models: RealModels,
}

impl RealPeer {
    /// The framework's name.
    pub(super) fn name(&self) -> &'static str {
        match self.framework {
            Framework::Pipecat(_) => "pipecat",
            Framework::Livekit => "LiveKit Agents",
        }
    }

    fn script(&self) -> PathBuf {
        match &self.framework {
            Framework::Pipecat(rig) => rig.join(REAL_BOT),
            Framework::Livekit => LIVEKIT_BOT.into(),
        }
    }

    /// Whether all files are there, so that a run does not fail when half of it is over.
    ///
    /// # Errors
    /// [`BenchError::Peer`] names the file that is missing.
    pub(super) fn check(&self) -> Result<(), BenchError> {
        let script = self.script();
        let weights = self.models.whisper_ct2.join("model.bin");
        for path in [&script, &self.python, &self.models.whisper_ggml, &weights, &self.models.piper] {
            if !path.is_file() {
                return Err(missing(path));
            }
        }
        Ok(())
    }
}

fn missing(path: &Path) -> BenchError {
    BenchError::Peer(format!("{} is not there; --help says what this command needs", path.display()))
}

/// The figures of one server.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Column {
    /// Voice-to-voice p50 in milliseconds; not finite if turns failed.
    pub p50_ms: f64,
    /// Voice-to-voice p95 in milliseconds; not finite if turns failed.
    pub p95_ms: f64,
    /// CPU time per session, in per cent of a core.
    pub cpu_percent: f64,
    /// Memory per session, in MiB.
    pub memory_mib: f64,
    /// Turns that were answered.
    pub answered: usize,
    /// Turns that were not.
    pub failed: usize,
}

/// The figures of both servers in one setting.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// Description of the setting.
    pub what: String,
    /// This hub.
    pub ours: Column,
    /// The peer.
    pub peer: Column,
}

/// Runs all rows; takes several minutes. Dropping the future ends every process it started.
pub async fn compare(peers: &Peers, plan: &Plan, progress: Progress<'_>) -> Result<Vec<Row>, BenchError> {
    for file in ["pipecat_bot.py", "bench_pipecat.py", "question16k.wav"] {
        let path = peers.rig.join(file);
        path.is_file().then_some(()).ok_or_else(|| missing(&path))?;
    }
    let question = question(&peers.rig.join("question16k.wav"))?;
    let pinned =
        LoadAffinity::load().map_err(|why| BenchError::Peer(format!("nothing can be pinned to a core: {why}")))?;
    let stage = Duration::from_millis(100);
    let token = Duration::from_millis(10);
    let none = Latencies { sound: SOUND, ..Latencies::default() };
    let slow = Latencies { stt: stage, first_token: stage, token, first_sound: stage, sound: SOUND };
    let mut rows = Vec::new();
    for (what, latencies, n) in [
        ("engines that take no time, 1 session".to_owned(), none, 1),
        ("100 ms a stage, 10 ms a word, 1 session".to_owned(), slow, 1),
        (format!("engines that take no time, {} sessions", peers.n_sessions), none, peers.n_sessions),
    ] {
        progress(&format!("peers: {what}: antiphon"));
        let pair = Pair::start(plan, latencies, &[], Some(&pinned)).await?;
        let ours = Column::of(&talk(&pair.hub, &clips(&question), n, peers.turns, progress).await?);
        pair.stop().await?;
        progress(&format!("peers: {what}: pipecat"));
        let peer = pipecat(peers, plan, latencies, n, None).await?;
        rows.push(Row { what, ours, peer });
    }
    if let Some(real) = &peers.real {
        rows.push(with_models(peers, plan, real, &question, progress).await?);
    }
    Ok(rows)
}

/// One session with the same recognizer and voice in both processes.
async fn with_models(
    peers: &Peers,
    plan: &Plan,
    real: &RealModels,
    question: &Clip,
    progress: Progress<'_>,
) -> Result<Row, BenchError> {
    let what = "the same recognizer and voice in both, 1 session".to_owned();
    let latencies = Latencies { sound: SOUND, ..Latencies::default() };
    progress(&format!("peers: {what}: antiphon"));
    let settings = real.settings();
    let settings: Vec<&str> = settings.iter().map(String::as_str).collect();
    let pair = Pair::start(plan, latencies, &settings, None).await?;
    let ours = Column::of(&talk(&pair.hub, &clips(question), 1, peers.turns, progress).await?);
    pair.stop().await?;
    progress(&format!("peers: {what}: pipecat"));
    let peer = pipecat(peers, plan, latencies, 1, Some(real)).await?;
    Ok(Row { what, ours, peer })
}

/// Reads the question and trims it like the peer's client: it ends with its last loud sample.
fn question(path: &Path) -> Result<Clip, BenchError> {
    let wrong = |why: String| BenchError::Peer(format!("{}: {why}", path.display()));
    let file = std::fs::read(path).map_err(|error| wrong(error.to_string()))?;
    let pcm = wav::read(&file, RATE, Duration::from_secs(60)).map_err(|error| wrong(error.to_string()))?;
    let whole = Clip::new("question", Sign::Unknown, pcm.samples).ok_or_else(|| wrong("it is silent".into()))?;
    let cut = whole.samples[..=whole.loud.1].to_vec();
    Clip::new("question", Sign::Unknown, cut).ok_or_else(|| wrong("it is silent".into()))
}

async fn pipecat(
    peers: &Peers,
    plan: &Plan,
    latencies: Latencies,
    n: usize,
    real: Option<&RealModels>,
) -> Result<Column, BenchError> {
    let mock = Hub::spawn(&plan.mock, &super::mocks::arguments(latencies)).await?;
    let on_core = |core: &str, script: &str| {
        let mut command = match real {
            None => Command::new("taskset"),
            Some(_) => Command::new(&peers.python),
        };
        if real.is_none() {
            command.args(["-c", core]).arg(&peers.python);
        }
        command.arg(peers.rig.join(script)).stdin(Stdio::null()).kill_on_drop(true);
        command
    };
    let cannot = |error: std::io::Error| cannot_run(&peers.python, &error);
    let (script, environment) = match real {
        None => ("pipecat_bot.py", Vec::new()),
        Some(real) => (REAL_BOT, real.environment()?.to_vec()),
    };
    let mut command = on_core("1", script);
    command.envs(environment).env("TURN", "timeout");
    let bot = Bot::start(command, &peers.python, &mock).await?;
    let client = on_core("0", "bench_pipecat.py")
        .args([n.to_string(), peers.turns.to_string(), bot.process.0.to_string()])
        .env("URL", &bot.url)
        .env("WAV", peers.rig.join("question16k.wav"))
        .output();
    let late = |_| BenchError::Peer(format!("the client took longer than {RUN_DEADLINE:?}"));
    let output = timeout(RUN_DEADLINE, client).await.map_err(late)?.map_err(cannot)?;
    mock.stop().await;
    let text = String::from_utf8_lossy(&output.stdout);
    Column::parse(&text).ok_or_else(|| {
        BenchError::Peer(format!("the client printed no figures: {text}{}", String::from_utf8_lossy(&output.stderr)))
    })
}

fn cannot_run(python: &Path, error: &std::io::Error) -> BenchError {
    BenchError::Peer(format!("{}: {error}", python.display()))
}

/// A bot in a process of its own; dropping it ends the process.
pub(super) struct Bot {
    /// The address of its WebSocket.
    pub(super) url: String,
    /// The process, for its resource use.
    pub(super) process: Process,
    _child: Child,
}

impl Bot {
    /// Starts a bot whose language model is `mock`, and waits until it listens.
    async fn start(mut command: Command, python: &Path, mock: &Hub) -> Result<Self, BenchError> {
        let port = free_port().await?;
        let child = command
            .env("MOCK_URL", format!("{}/v1", mock.url))
            .env("PORT", port.to_string())
            .stdout(Stdio::null())
            .stdin(Stdio::null())
            .kill_on_drop(true)
            .spawn();
        let mut child = child.map_err(|error| cannot_run(python, &error))?;
        ready(&mut child, port).await?;
        let pid = child.id().ok_or_else(|| BenchError::Peer("the bot ended immediately".into()))?;
        Ok(Self { url: format!("ws://127.0.0.1:{port}/ws"), process: Process(pid), _child: child })
    }

    /// Starts a bot with models, its own detection of turns, and the language model `mock`.
    pub(super) async fn with_models(peer: &RealPeer, mock: &Hub) -> Result<Self, BenchError> {
        let mut command = Command::new(&peer.python);
        command.arg(peer.script()).envs(peer.models.environment()?);
        Self::start(command, &peer.python, mock).await
    }
}

async fn free_port() -> Result<u16, BenchError> {
    let address = match TcpListener::bind("127.0.0.1:0").await {
        Ok(listener) => listener.local_addr(),
        Err(error) => Err(error),
    };
    address.map(|address| address.port()).map_err(|error| BenchError::Peer(format!("no free port: {error}")))
}

/// Waits until the bot listens. It does not announce this, so connecting is tried repeatedly.
async fn ready(bot: &mut Child, port: u16) -> Result<(), BenchError> {
    let until = Instant::now() + START_DEADLINE;
    while Instant::now() < until {
        if TcpStream::connect(("127.0.0.1", port)).await.is_ok() {
            return Ok(());
        }
        if let Ok(Some(status)) = bot.try_wait() {
            return Err(BenchError::Peer(format!("the bot ended with {status}; is its framework installed there?")));
        }
        sleep(BETWEEN_TRIES).await;
    }
    Err(BenchError::Peer(format!("the bot did not listen within {START_DEADLINE:?}")))
}

impl Column {
    fn of(outcome: &Outcome) -> Self {
        let waits = outcome.waits();
        Self {
            p50_ms: waits.percentile(50.0).unwrap_or(f64::INFINITY),
            p95_ms: waits.percentile(95.0).unwrap_or(f64::INFINITY),
            cpu_percent: outcome.cpu_percent().unwrap_or(f64::NAN),
            memory_mib: outcome.memory_kib().unwrap_or(f64::NAN) / 1024.0,
            answered: waits.n_ended(),
            failed: waits.len() - waits.n_ended(),
        }
    }

    /// Parses the output line of the peer's client.
    fn parse(text: &str) -> Option<Self> {
        let line = text.lines().find(|line| line.starts_with("N="))?;
        let after = |name: &str| {
            let rest = line.split_once(name)?.1;
            let end = rest.find(|c: char| !(c.is_ascii_digit() || c == '.' || c == '-'));
            rest[..end.unwrap_or(rest.len())].parse::<f64>().ok()
        };
        let before = |unit: &str| line.split_once(unit)?.0.rsplit([' ', ',']).next()?.parse::<f64>().ok();
        Some(Self {
            p50_ms: after("p50=").unwrap_or(f64::NAN),
            p95_ms: after("p95=").unwrap_or(f64::NAN),
            cpu_percent: before("%/session")?,
            memory_mib: before(" MiB/session")?,
            answered: after("turns=")? as usize,
            failed: after("fails=")? as usize,
        })
    }

    fn json(&self) -> Value {
        let number = |value: f64| Some((value * 1e3).round() / 1e3).filter(|value| value.is_finite());
        json!({
            "p50_ms": number(self.p50_ms), "p95_ms": number(self.p95_ms), "cpu_percent": number(self.cpu_percent),
            "memory_mib": number(self.memory_mib), "answered": self.answered, "failed": self.failed,
        })
    }
}

/// The rows as JSON.
pub fn json(rows: &[Row]) -> Value {
    rows.iter().map(|row| json!({"what": row.what, "antiphon": row.ours.json(), "pipecat": row.peer.json()})).collect()
}

/// The rows as a table.
pub fn table(rows: &[Row]) -> String {
    let mut text = format!("{:<52} {:>10} {:>10}\n", "", "antiphon", "pipecat");
    for row in rows {
        text += &format!("{}\n", row.what);
        let mut line = |name: &str, value: fn(&Column) -> String| {
            text += &format!("  {name:<50} {:>10} {:>10}\n", value(&row.ours), value(&row.peer));
        };
        line("voice-to-voice p50, ms", |column| format!("{:.0}", column.p50_ms));
        line("voice-to-voice p95, ms", |column| format!("{:.0}", column.p95_ms));
        line("processor time a session, % of a core", |column| format!("{:.2}", column.cpu_percent));
        line("memory a session, MiB", |column| format!("{:.2}", column.memory_mib));
        line("turns answered", |column| column.answered.to_string());
        line("turns failed", |column| column.failed.to_string());
    }
    text.trim_end().to_owned()
}

/// A plan without measures, for its commands only.
pub fn plan(hub: HubCommand, mock: HubCommand) -> Plan {
    Plan {
        measures: Vec::new(),
        quick: false,
        clips: None,
        speech_models: Vec::new(),
        listeners: Vec::new(),
        hub,
        mock,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: &str = "N=2 turns=19 fails=1 p50=353 p95=420 max=431 ms | cpu=9.1s over 71.2s = 12.8% core, 6.39%/session \
                        | rss 231 -> 263 MiB, 16.0 MiB/session\n";

    #[test]
    fn the_peers_line_is_read() {
        let column = Column::parse(&format!("ERR nothing\n{LINE}")).expect("figures");
        let expect =
            Column { p50_ms: 353.0, p95_ms: 420.0, cpu_percent: 6.39, memory_mib: 16.0, answered: 19, failed: 1 };
        assert_eq!(column, expect);
        assert_eq!(Column::parse("Traceback"), None);
    }

    #[test]
    fn both_stand_side_by_side() {
        let peer = Column::parse(LINE).expect("figures");
        let ours = Column { p50_ms: 221.4, cpu_percent: 0.31, memory_mib: 0.4, ..peer };
        let rows = [Row { what: "no time".into(), ours, peer }];
        let table = table(&rows);
        assert!(table.contains("voice-to-voice p50, ms                                    221        353"), "{table}");
        assert_eq!(json(&rows)[0]["antiphon"]["p50_ms"], 221.4);
    }

    #[test]
    fn a_bot_with_models_needs_all_its_files() {
        let folder = tempfile::tempdir().expect("a folder");
        let at = |name: &str| folder.path().join(name);
        let models = RealModels { whisper_ggml: at("ggml.bin"), whisper_ct2: at("ct2"), piper: at("voice.onnx") };
        let framework = Framework::Pipecat(at("rig"));
        let peer = RealPeer { framework, python: at("python"), models };
        std::fs::create_dir_all(at("rig")).expect("made");
        std::fs::create_dir_all(at("ct2")).expect("made");
        for name in ["rig/pipecat_real.py", "python", "ggml.bin", "ct2/model.bin", "voice.onnx"] {
            let error = peer.check().expect_err("it is missing").to_string();
            assert!(error.starts_with(&at(name).display().to_string()), "{error}");
            std::fs::write(at(name), "").expect("written");
        }
        peer.check().expect("all are there");
    }

    #[tokio::test]
    async fn without_the_rig_it_says_so() {
        let command = HubCommand { program: "true".into(), args: vec![] };
        let peers = Peers { rig: "nowhere".into(), python: "python3".into(), turns: 1, n_sessions: 1, real: None };
        let error = compare(&peers, &plan(command.clone(), command), &|_| ()).await.expect_err("no rig").to_string();
        assert!(error.starts_with("nowhere/pipecat_bot.py is not there"), "{error}");
    }
}
