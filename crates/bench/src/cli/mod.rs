//! The command line of `antiphon-bench`: selects the measures, and starts the hub and mock engines as processes.

mod answers;
mod cluster;
mod conversation;
mod peers;
mod servers;
mod stage;
mod stress;
mod transports;
mod voice;

use crate::{HubCommand, Measure, Plan, Report};
use antiphon::cli::{CliError, RunningCommand, print};
use clap::{Args, Parser, Subcommand, ValueEnum};
use std::io::{IsTerminal, Write};
use std::path::PathBuf;

/// The arguments.
#[derive(Debug, Parser)]
#[command(name = "antiphon-bench", version, about = "Measure the hub, its engines and its peers on this machine")]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "\
Examples:
  antiphon-bench                           all measures, about ten minutes
  antiphon-bench --only barge-in           one measure; may be given several times
  antiphon-bench --only noise --clips DIR  speech detection in noise, with the speech in that folder
  antiphon-bench --quick                   fewer turns: a quick check
  antiphon-bench --json --strict > numbers.json
  antiphon-bench voice --sessions 20       concurrent conversations with this hub or any Realtime server
  antiphon-bench cluster                   engine workers over NATS, on this machine
  antiphon-bench transports                calls by WebRTC and by phone
  antiphon-bench phones                    100 calls by SIP
  antiphon-bench answers                   who answers calls out: people, answering machines, menus

Each measure starts its own hubs as separate processes on free ports of this machine and talks to them in real time. The
default settings are used, whatever is configured, and engines that need no model where a measure names no others; only
`engines` reads the section [onnx], and `noise` and `real` read [onnx] and [models], from the environment. Run nothing else meanwhile: the table reports when other
programs used more than a tenth of the processors.

pNN is the latency that NN % of all turns did not exceed; a turn without a response counts as the longest. The gates are
the limits of this version on two processors. A missed gate is an error only with --strict."
)]
pub struct Cli {
    #[command(subcommand)]
    what: Option<What>,
    /// Take only this measure
    #[arg(long, value_enum, value_name = "NAME")]
    only: Vec<Measure>,
    #[command(flatten)]
    how: Take,
}

/// How measures are run and displayed.
#[derive(Debug, Args)]
pub struct Take {
    /// A folder of WAV files of speech, for `noise` [default: sentences by flite] and `real` [default: those of the tests]
    #[arg(long, value_name = "FOLDER")]
    clips: Option<PathBuf>,
    /// An exported speech language model, its folder or its decode_*.onnx: `engines` measures these alone
    #[arg(long, value_name = "PATH")]
    speech_model: Vec<PathBuf>,
    /// Listeners at once with which `engines` measures speech language models, such as 1,8 [default: 1 and 2 on the
    /// processor, 1 to 32 on a GPU]
    #[arg(long, value_name = "NUMBERS", value_delimiter = ',', value_parser = clap::value_parser!(u16).range(1..=256))]
    listeners: Vec<u16>,
    /// A third of the turns
    #[arg(long)]
    quick: bool,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    /// Exit with 1 when a gate is missed
    #[arg(long)]
    strict: bool,
}

/// Subcommands.
#[derive(Debug, Subcommand)]
enum What {
    /// Many people talk to a server at the same time: latency, interruptions, mix-ups, cost
    Voice(Box<voice::VoiceArgs>),
    /// Neural voices of the true size: the hub's overhead, batches of 1 to 8 (needs make true-size); Whisper beside
    /// whisper.cpp
    Engines(Take),
    /// The default engines with real weights (needs make run, or models pull): latency, words, cost
    Real(Take),
    /// Load on the voice engine: throughput, time to first audio
    Tts(Box<stage::TtsArgs>),
    /// Load on the speech recognizer
    Stt(Box<stage::SttArgs>),
    /// Load on the language model
    Llm(Box<stage::LlmArgs>),
    /// Conversation quality: end of turn, interruptions, selectivity, resumption (needs make run)
    Conversation(Box<conversation::ConversationArgs>),
    /// Engine workers over NATS: latency, scaling, workers killed and restarted (needs make nats-server)
    Cluster(cluster::ClusterArgs),
    /// Calls by WebRTC and by phone: latency beside a WebSocket, cost, loss, drift, interruptions
    Transports(transports::TransportsArgs),
    /// Many calls by SIP and G.711: processor time, answers, lost turns, what the hub adds to the way of sound
    Phones(transports::PhonesArgs),
    /// Who answers a call out, with spoken answers: how many are found right, how fast (needs make run)
    Answers(Box<answers::AnswersArgs>),
    /// Climbs in sessions until an objective breaks, holds, spikes, soaks
    Stress(Box<stress::StressArgs>),
    /// This hub and a pipecat bot on the same mock engines, in one sitting
    Peers(peers::PeersArgs),
    /// Mock engines over HTTP with configurable latencies
    Mock(servers::MockArgs),
    /// The hub under measurement
    #[command(hide = true)]
    Hub(servers::HubArgs),
    /// A worker with simulated engines
    #[command(hide = true)]
    ClusterWorker(cluster::WorkerArgs),
}

/// Runs the measures, or the subcommand.
///
/// # Errors
/// Why a measure could not be run; see [`CliError::exit_code`]. A missed gate is an error only with `--strict`.
pub fn run(args: Cli) -> RunningCommand {
    Box::pin(dispatch(args))
}

async fn dispatch(args: Cli) -> Result<(), CliError> {
    match args.what {
        None => {
            let requested = if args.only.is_empty() { Measure::value_variants() } else { &args.only };
            take(requested.to_vec(), args.how).await
        }
        Some(What::Conversation(args)) => conversation::run(*args).await,
        Some(What::Voice(args)) => voice::run(*args).await,
        Some(What::Engines(how)) => take(vec![Measure::Whisper, Measure::Engines], how).await,
        Some(What::Real(how)) => take(vec![Measure::Real], how).await,
        Some(What::Tts(args)) => stage::tts(*args).await,
        Some(What::Stt(args)) => stage::stt(*args).await,
        Some(What::Llm(args)) => stage::llm(*args).await,
        Some(What::Stress(args)) => stress::run(*args).await,
        Some(What::Peers(args)) => peers::run(args).await,
        Some(What::Mock(args)) => servers::run_mock(args).await,
        Some(What::Hub(args)) => servers::run_hub(args).await,
        Some(What::Cluster(args)) => cluster::run(args).await,
        Some(What::Transports(args)) => transports::run(args).await,
        Some(What::Phones(args)) => transports::run_phones(args).await,
        Some(What::Answers(args)) => answers::run(*args).await,
        Some(What::ClusterWorker(args)) => cluster::run_worker(args).await,
    }
}

async fn take(measures: Vec<Measure>, how: Take) -> Result<(), CliError> {
    let plan = Plan {
        measures,
        quick: how.quick,
        clips: how.clips,
        speech_models: how.speech_model,
        listeners: how.listeners.into_iter().map(usize::from).collect(),
        hub: hub_command("hub")?,
        mock: hub_command("mock")?,
    };
    let report = crate::run(&plan, &progress).await;
    write_report(&report, how.json, how.strict)
}

/// Prints the report. A part that could not be measured is an error; a missed gate only if `strict`.
fn write_report(report: &Report, json: bool, strict: bool) -> Result<(), CliError> {
    progress("");
    if json {
        print::json(&report.json())?;
    } else {
        print::line(&report.table())?;
    }
    match (report.n_failed(), report.n_missed()) {
        (0, 0) => Ok(()),
        (0, missed) if strict => Err(CliError::Failed(format!("{missed} gates were missed"))),
        (0, _) => Ok(()),
        (failed, _) => Err(CliError::Failed(format!("{failed} measures could not be taken"))),
    }
}

/// The command that starts a hidden subcommand of this program: the hub or the mock engines.
fn hub_command(name: &str) -> Result<HubCommand, CliError> {
    let program = std::env::current_exe();
    let program = program.map_err(|error| CliError::Failed(format!("this program cannot be found: {error}")))?;
    Ok(HubCommand { program, args: vec![name.into(), "--with-stdin".into()] })
}

/// Prints a progress line. On a terminal it replaces the previous line; elsewhere lines follow one another.
fn progress(line: &str) {
    let mut err = std::io::stderr().lock();
    // A closed stderr must not stop the measurement.
    let _ = match err.is_terminal() {
        true => write!(err, "\r\x1b[K{line}").and_then(|()| err.flush()),
        false if line.is_empty() => Ok(()),
        false => writeln!(err, "{}", line.trim_end()),
    };
}

/// Prints a line that is not replaced.
fn lasting(line: &str) {
    // See `progress`.
    let _ = writeln!(std::io::stderr().lock(), "{line}");
}
