//! `antiphon-bench voice`: many concurrent conversations with a Realtime server.

use super::{hub_command, lasting, progress};
use crate::load::{self, Clips, Length, Load, Network, Outcome, Step};
use crate::{BenchError, Engines, Hub, Process, Report};
use antiphon::cli::target::{Mode, Target, failure};
use antiphon::cli::{CliError, blocking, print};
use clap::{Args, ValueEnum};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// Period over which the starts of the sessions are spread by default.
const SPREAD: Duration = Duration::from_secs(4);

/// The server, the conversations and the network.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  antiphon-bench voice                                       4 sessions on a new hub with the installed models
  antiphon-bench voice --sessions 50 --turns 10 --html voice.html
  antiphon-bench voice --clips recordings/ --barge-in 0.3 --jitter-ms 40 --stall-ms 400
  antiphon-bench voice --url http://127.0.0.1:8080 --pid $(pgrep -x antiphon) --audio pcm16 --loss 0.02
  antiphon-bench voice --url wss://api.openai.com/v1/realtime --model gpt-realtime --key-env OPENAI_API_KEY --sessions 2
  antiphon-bench voice --search --objective-ms 800           how many sessions are served at p95 < 800 ms?

It uses the GA Realtime protocol, so --url may be any GA server. Each session speaks in real time, plays the response
from its first sample on, listens to its end (or interrupts it, with --barge-in), pauses, and speaks the next clip.

Without --clips, flite speaks questions for the offline assistant. In a folder of clips, x.txt may contain the text of
x.wav; responses are then checked for cross-talk between sessions. Cross-talk ends with exit code 1.

Voice-to-voice latency is the time from the last loud sample spoken (above 5 % of the clip's peak) to the playback of
the first response sample above -50 dBFS. Silence after an interruption is the time from its first loud sample to the
end of playback: at speech_started, where GA clients stop playback, or at output_audio_buffer.held in the binary modes.
An underrun is a gap in playback within a response; playback starts with the first sample received, without a buffer.

Exit codes: 0 done   1 cross-talk, a broken session, or with --strict a missed objective   2 wrong usage
4 the server cannot be reached")]
pub struct VoiceArgs {
    /// A running server; without it, a hub with the default engines and the installed models is started
    #[arg(long, value_name = "URL")]
    url: Option<String>,
    #[command(flatten)]
    target: Target,
    /// The server's process on this machine, whose CPU time and memory are reported
    #[arg(long, requires = "url")]
    pid: Option<u32>,
    /// How audio is transported; servers other than this hub support only `ga`
    #[arg(long, value_enum, default_value_t = Mode::Ga)]
    audio: Mode,
    /// A folder of WAV files to speak, any rate [default: questions spoken by flite]
    #[arg(long, value_name = "DIR")]
    clips: Option<PathBuf>,
    /// Concurrent sessions; with --search, the number to start with
    #[arg(long, short = 'n', default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..=10_000))]
    sessions: u16,
    /// Turns per session, without the warm-up [default: 5]
    #[arg(long, conflicts_with = "duration", value_parser = clap::value_parser!(u32).range(1..))]
    turns: Option<u32>,
    /// Duration instead of a number of turns
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(1..))]
    duration: Option<u32>,
    /// Turns left out at the start of each session
    #[arg(long, value_name = "TURNS", default_value_t = 1)]
    warm_up: u32,
    /// Delay between the starts of two sessions [default: all within 4 s]
    #[arg(long, value_name = "MS")]
    stagger_ms: Option<u32>,
    /// Fraction of responses that are interrupted after 0.4 to 0.8 s: 0.0 to 1.0
    #[arg(long, value_name = "SHARE", default_value_t = 0.0, value_parser = share)]
    barge_in: f64,
    /// Maximum jitter of a frame, in both directions
    #[arg(long, value_name = "MS", default_value_t = 0)]
    jitter_ms: u32,
    /// Fraction of microphone frames lost: 0.0 to 1.0; binary audio only
    #[arg(long, value_name = "SHARE", default_value_t = 0.0, value_parser = share)]
    loss: f64,
    /// Duration of network stalls, in both directions
    #[arg(long, value_name = "MS", default_value_t = 0)]
    stall_ms: u32,
    /// Average interval between stalls
    #[arg(long, value_name = "SECONDS", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..))]
    stall_every: u32,
    /// How the server detects the end of a turn
    #[arg(long, value_enum, default_value_t = Turns::ServerVad)]
    turn_detection: Turns,
    /// With server-vad: the silence that ends a turn
    #[arg(long, value_name = "MS", default_value_t = 200)]
    silence_ms: u32,
    /// Objective for the p95 of voice-to-voice latency
    #[arg(long, value_name = "MS", default_value_t = 2_000)]
    objective_ms: u32,
    /// Find the largest number of sessions that meets the objective, by doubling and bisection
    #[arg(long)]
    search: bool,
    /// With --search: the largest number to try
    #[arg(long, default_value_t = 512, value_parser = clap::value_parser!(u16).range(1..=10_000))]
    max_sessions: u16,
    /// Timeout of a response
    #[arg(long, value_name = "SECONDS", default_value_t = 30, value_parser = clap::value_parser!(u32).range(1..))]
    patience: u32,
    /// Seed of pauses, interruptions and network faults
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Write all results, including each turn, as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write figures and plots as a self-contained page
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Exit with 1 if the objective is missed
    #[arg(long)]
    strict: bool,
}

/// How the server detects the end of a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Turns {
    /// A fixed silence
    ServerVad,
    /// A wait that depends on what was said
    SemanticVad,
    /// As configured at the server
    AsIs,
}

fn share(text: &str) -> Result<f64, String> {
    let share: f64 = text.parse().map_err(|_| "write a share such as 0.25".to_owned())?;
    if (0.0..=1.0).contains(&share) { Ok(share) } else { Err("write a share from 0.0 to 1.0".into()) }
}

pub(super) async fn run(args: VoiceArgs) -> Result<(), CliError> {
    if args.loss > 0.0 && args.audio == Mode::Ga {
        return Err(CliError::Usage("--loss needs --audio pcm16 or opus: JSON audio travels without loss".into()));
    }
    let clips = Arc::new(args.clips().await?);
    let objective = Duration::from_millis(args.objective_ms.into());
    let mut search = load::search(args.sessions.into(), args.max_sessions.into());
    let (mut shown, mut mix_ups): (Option<Outcome>, usize) = (None, 0);
    while let Some(n_sessions) = search.next() {
        let outcome = args.load(n_sessions, &clips).await?;
        progress("");
        search.steps.push(Step::of(&outcome, objective));
        mix_ups += outcome.mix_ups().len();
        if args.search {
            lasting(&outcome.verdict(objective));
        }
        // The largest number that was served; the last one tried if none was.
        if search.largest().is_none_or(|largest| largest == n_sessions) {
            shown = Some(outcome);
        }
        if !args.search || mix_ups > 0 {
            break;
        }
    }
    let outcome = shown.expect("at least one size is tried");
    args.write_report(&outcome, &search, objective)?;
    match (mix_ups, outcome.broken.len()) {
        (0, n) if args.strict && (n == 0 || args.search) && !outcome.holds(objective) => {
            Err(CliError::Failed("the objective was missed".into()))
        }
        (0, 0) => Ok(()),
        (0, _) if args.search => Ok(()),
        (0, n) => Err(CliError::Failed(format!("{n} sessions broke off"))),
        (n, _) => Err(CliError::Failed(format!("{n} turns were mixed up between sessions"))),
    }
}

impl VoiceArgs {
    async fn clips(&self) -> Result<Clips, CliError> {
        match self.clips.clone() {
            Some(folder) => {
                blocking(move || Clips::read(&folder)).await?.map_err(|error| CliError::Failed(error.to_string()))
            }
            None => {
                progress("voice: flite speaks the questions");
                let n = usize::from(self.sessions) + self.turns.unwrap_or(5) as usize;
                Clips::spoken(if self.search { usize::MAX } else { n }).await.map_err(failed)
            }
        }
    }

    /// Runs the load once, on a new hub if no server is given.
    async fn load(&self, n_sessions: usize, clips: &Arc<Clips>) -> Result<Outcome, CliError> {
        let hub = match self.url {
            Some(_) => None,
            None => Some(Hub::start(&hub_command("hub")?, Engines::Shipped).await.map_err(failed)?),
        };
        let url = hub.as_ref().map(|hub| hub.url.clone()).or(self.url.clone()).expect("one of the two");
        let stagger = self.stagger_ms.map(|ms| Duration::from_millis(ms.into()));
        let load = Load {
            connect: self.target.options(url, self.audio)?,
            session: self.session(),
            clips: clips.clone(),
            n_sessions,
            one_first: true,
            length: match self.duration {
                Some(s) => Length::For(Duration::from_secs(s.into())),
                None => Length::Turns(self.turns.unwrap_or(5) as usize),
            },
            call_turns: None,
            warm_up: self.warm_up as usize,
            stagger: stagger.unwrap_or(SPREAD / n_sessions as u32),
            stop: CancellationToken::new(),
            barge_in: self.barge_in,
            network: Network {
                jitter: Duration::from_millis(self.jitter_ms.into()),
                loss: self.loss,
                stall: Duration::from_millis(self.stall_ms.into()),
                stall_every: Duration::from_secs(self.stall_every.into()),
            },
            process: hub.as_ref().map(|hub| hub.process).or(self.pid.map(Process)),
            patience: Duration::from_secs(self.patience.into()),
            seed: self.seed,
            n_turns: AtomicUsize::new(0),
            n_returns: Arc::default(),
        };
        let outcome = load::run(load, &progress).await.map_err(failed);
        if let Some(hub) = hub {
            hub.stop().await;
        }
        outcome
    }

    fn session(&self) -> Value {
        // Other servers transcribe only on request; this hub accepts any model name.
        let mut input = json!({"transcription": {"model": "whisper-1"}});
        match self.turn_detection {
            Turns::ServerVad => {
                input["turn_detection"] = json!({"type": "server_vad", "silence_duration_ms": self.silence_ms});
            }
            Turns::SemanticVad => input["turn_detection"] = json!({"type": "semantic_vad"}),
            Turns::AsIs => {}
        }
        json!({"type": "session.update", "session": {"type": "realtime", "audio": {"input": input}}})
    }

    /// Describes the run in one line.
    fn how(&self, outcome: &Outcome) -> String {
        let whom =
            self.url.as_ref().map_or("a hub with the installed models", |url| url.split('?').next().unwrap_or(url));
        let mut how = format!("{} at a time talk to {whom}", outcome.n_sessions);
        let mut add = |given: bool, what: String| {
            if given {
                how.push_str(", ");
                how.push_str(&what);
            }
        };
        add(self.turn_detection == Turns::ServerVad, format!("{} ms of silence end a turn", self.silence_ms));
        add(self.turn_detection == Turns::SemanticVad, "semantic_vad ends a turn".into());
        add(self.barge_in > 0.0, format!("{:.0} % of the answers are talked over", self.barge_in * 100.0));
        add(self.jitter_ms > 0, format!("jitter of {} ms", self.jitter_ms));
        add(self.loss > 0.0, format!("{:.1} % lost", self.loss * 100.0));
        add(self.stall_ms > 0, format!("stalls of {} ms about every {} s", self.stall_ms, self.stall_every));
        how
    }

    fn write_report(&self, outcome: &Outcome, search: &load::Search, objective: Duration) -> Result<(), CliError> {
        let mut section = outcome.section(self.how(outcome), objective);
        if self.search {
            section.notes.push(found(search, objective));
        }
        section.notes.push(outcome.verdict(objective));
        if let Some(path) = &self.html {
            let steps = if self.search { search.steps.as_slice() } else { &[] };
            write(path, &load::page(outcome, &section, objective, steps))?;
        }
        let report = Report::of(section);
        if let Some(path) = &self.json {
            write(path, &(self.json(&report, outcome, search, objective).to_string() + "\n"))?;
        }
        print::line(&report.table())
    }

    fn json(&self, report: &Report, outcome: &Outcome, search: &load::Search, objective: Duration) -> Value {
        let mut json = report.json();
        let step = |step: &Step| {
            let p95_ms = Some(step.p95_ms).filter(|ms| ms.is_finite());
            json!({"sessions": step.n_sessions, "p95_ms": p95_ms, "served": step.holds})
        };
        json["verdict"] = outcome.verdict(objective).into();
        json["served"] = outcome.holds(objective).into();
        json["objective_ms"] = self.objective_ms.into();
        json["search"] = search.steps.iter().filter(|_| self.search).map(step).collect();
        json["load"] = outcome.json();
        json
    }
}

fn found(search: &load::Search, objective: Duration) -> String {
    let objective_ms = objective.as_millis();
    match search.largest() {
        Some(n) => format!("found: {n} sessions at p95 <= {objective_ms} ms"),
        None => format!("found: not a single session at p95 <= {objective_ms} ms"),
    }
}

fn write(path: &Path, text: &str) -> Result<(), CliError> {
    std::fs::write(path, text).map_err(|error| CliError::file("written", path, &error))
}

fn failed(error: BenchError) -> CliError {
    match error {
        BenchError::Client(error) => failure(error),
        error => CliError::failed(&error),
    }
}
