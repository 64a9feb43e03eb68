//! `antiphon bench`: the numbers, measured.

use super::bench_peers::{self, PeersArgs};
use super::bench_stage::{self, LlmArgs, SttArgs, TtsArgs};
use super::bench_voice::{self, VoiceArgs};
use super::{CliError, print};
use crate::bench::{self, HubCommand, Measure, Plan};
use clap::{Args, Subcommand, ValueEnum};
use std::io::{IsTerminal, Write};
use std::path::PathBuf;

/// What to measure.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  antiphon bench                           all of it, about ten minutes
  antiphon bench --only barge-in           one measure; may be given several times
  antiphon bench --only noise --clips DIR  what detectors make of the speech in that folder, in noise
  antiphon bench --quick                   fewer turns: does it run, is it near?
  antiphon bench --json --strict > numbers.json
  antiphon bench voice --sessions 20       people who talk to this hub, or to any Realtime server, at the same time

Each measure starts hubs of its own on free ports of this machine, as processes of their own, and talks to them at real
time, as people would. The offline engines and default settings are used, whatever is configured; only `engines` reads
the section [onnx], and `noise` that and [models], from the environment. Nothing else should run meanwhile: the table says when other programs took more than a tenth of the processors.

How to read it: pNN is the wait that NN % of all turns did not exceed; a wait that never ended counts as the longest.
The gates are what this version promises on two processors. A missed gate is no error, unless --strict is given.")]
#[command(args_conflicts_with_subcommands = true)]
pub struct BenchArgs {
    #[command(subcommand)]
    what: Option<What>,
    /// Take only this measure
    #[arg(long, value_enum, value_name = "NAME")]
    only: Vec<Name>,
    /// A folder of WAV files of speech, for `noise` [default: sentences by flite]
    #[arg(long, value_name = "FOLDER")]
    clips: Option<PathBuf>,
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

/// What else can be run.
#[derive(Debug, Subcommand)]
enum What {
    /// Many people talk to a server at the same time: latency, interruptions, mix-ups, cost
    Voice(Box<VoiceArgs>),
    /// The voice engine under load: throughput, time to first audio
    Tts(Box<TtsArgs>),
    /// The recognizer under load
    Stt(Box<SttArgs>),
    /// The language model under load
    Llm(Box<LlmArgs>),
    /// This hub and a pipecat bot on the same mock engines, in one sitting
    Peers(PeersArgs),
}

/// A measure's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Name {
    /// From the last word of a question to the first sound of its answer
    VoiceToVoice,
    /// What the hub adds by itself, with engines that take no time
    OwnShare,
    /// How fast a reply stops when somebody speaks
    BargeIn,
    /// Memory of sessions and of idle connections
    Memory,
    /// Mock engines over HTTP that take no time: 1 session, and 100 on one core
    Mocks,
    /// Mock engines that take 100 ms a stage, with answers begun on a guess and without
    Guesses,
    /// The Whisper engine beside whisper.cpp itself
    Whisper,
    /// Detectors of speech in noise of six kinds, in this process: false speech, late ends, onsets
    Noise,
    /// Neural voices of the true size, random weights: the hub's overhead, batches of 1 to 8, on a GPU to 16 (needs make true-size)
    Engines,
}

impl Name {
    fn measure(self) -> Measure {
        match self {
            Self::VoiceToVoice => Measure::VoiceToVoice,
            Self::OwnShare => Measure::OwnShare,
            Self::BargeIn => Measure::BargeIn,
            Self::Memory => Measure::Memory,
            Self::Mocks => Measure::Mocks,
            Self::Guesses => Measure::Guesses,
            Self::Whisper => Measure::Whisper,
            Self::Engines => Measure::Engines,
            Self::Noise => Measure::Noise,
        }
    }
}

pub(super) async fn run(args: BenchArgs) -> Result<(), CliError> {
    match args.what {
        Some(What::Voice(args)) => return bench_voice::run(*args).await,
        Some(What::Tts(args)) => return bench_stage::tts(*args).await,
        Some(What::Stt(args)) => return bench_stage::stt(*args).await,
        Some(What::Llm(args)) => return bench_stage::llm(*args).await,
        Some(What::Peers(args)) => return bench_peers::run(args).await,
        None => {}
    }
    let wanted = |measure: &Measure| args.only.is_empty() || args.only.iter().any(|name| name.measure() == *measure);
    let plan = Plan {
        measures: Measure::ALL.into_iter().filter(wanted).collect(),
        quick: args.quick,
        clips: args.clips,
        hub: hub_command("bench-hub")?,
        mock: hub_command("bench-mock")?,
    };
    let report = bench::run(&plan, &progress).await;
    progress("");
    if args.json {
        print::json(&report.json())?;
    } else {
        print::line(&report.table())?;
    }
    match (report.n_failed(), report.n_missed()) {
        (0, 0) => Ok(()),
        (0, missed) if args.strict => Err(CliError::Failed(format!("{missed} gates were missed"))),
        (0, _) => Ok(()),
        (failed, _) => Err(CliError::Failed(format!("{failed} measures could not be taken"))),
    }
}

/// How this program starts one of its hidden commands: a hub, mock engines.
pub(super) fn hub_command(name: &str) -> Result<HubCommand, CliError> {
    let program = std::env::current_exe();
    let program = program.map_err(|error| CliError::Failed(format!("this program cannot be found: {error}")))?;
    Ok(HubCommand { program, args: vec![name.into(), "--with-stdin".into()] })
}

/// On a terminal each line replaces the last one; elsewhere they follow one another.
pub(super) fn progress(line: &str) {
    let mut err = std::io::stderr().lock();
    // A stderr that is closed is no reason not to measure.
    let _ = match err.is_terminal() {
        true => write!(err, "\r\x1b[K{line}").and_then(|()| err.flush()),
        false if line.is_empty() => Ok(()),
        false => writeln!(err, "{line}"),
    };
}

/// A line that stays.
pub(super) fn lasting(line: &str) {
    // As above.
    let _ = writeln!(std::io::stderr().lock(), "{line}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn measures_are_called_the_same_everywhere() {
        for name in Name::value_variants() {
            let possible = name.to_possible_value().expect("listed");
            assert_eq!(possible.get_name(), name.measure().name());
        }
        assert_eq!(Name::value_variants().len(), Measure::ALL.len());
    }
}
