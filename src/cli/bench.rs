//! `antiphon bench`: the numbers, measured; and the hidden `bench-hub`, the hub it measures.

use super::bench_voice::{self, VoiceArgs};
use super::{CliError, blocking, print};
use crate::bench::{self, HubCommand, Measure, Plan};
use crate::config::Config;
use crate::server::{self, Keys, Parts};
use crate::session::Engines;
use crate::telemetry::Metrics;
use crate::{llm, stt, tts, vad};
use clap::{Args, Subcommand, ValueEnum};
use std::io::{IsTerminal, Write};
use std::sync::Arc;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

/// What to measure.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  antiphon bench                           all of it, two to three minutes
  antiphon bench --only barge-in           one measure; may be given several times
  antiphon bench --quick                   fewer turns: does it run, is it near?
  antiphon bench --json --strict > numbers.json
  antiphon bench voice --sessions 20       people who talk to this hub, or to any Realtime server, at the same time

Each measure starts hubs of its own on free ports of this machine, as processes of their own, and talks to them at real
time, as people would. The offline engines and default settings are used, whatever is configured. Nothing else should
run meanwhile: the table says when other programs took more than a tenth of the processors.

How to read it: pNN is the wait that NN % of all turns did not exceed; a wait that never ended counts as the longest.
The gates are what this version promises on two processors. A missed gate is no error, unless --strict is given.")]
#[command(args_conflicts_with_subcommands = true)]
pub struct BenchArgs {
    #[command(subcommand)]
    what: Option<What>,
    /// Take only this measure
    #[arg(long, value_enum, value_name = "NAME")]
    only: Vec<Name>,
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
}

impl Name {
    fn measure(self) -> Measure {
        match self {
            Self::VoiceToVoice => Measure::VoiceToVoice,
            Self::OwnShare => Measure::OwnShare,
            Self::BargeIn => Measure::BargeIn,
            Self::Memory => Measure::Memory,
        }
    }
}

pub(super) async fn run(args: BenchArgs) -> Result<(), CliError> {
    if let Some(What::Voice(args)) = args.what {
        return bench_voice::run(*args).await;
    }
    let wanted = |measure: &Measure| args.only.is_empty() || args.only.iter().any(|name| name.measure() == *measure);
    let plan =
        Plan { measures: Measure::ALL.into_iter().filter(wanted).collect(), quick: args.quick, hub: hub_command()? };
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

/// How this program starts a hub.
pub(super) fn hub_command() -> Result<HubCommand, CliError> {
    let program = std::env::current_exe();
    let program = program.map_err(|error| CliError::Failed(format!("this program cannot be found: {error}")))?;
    Ok(HubCommand { program, args: vec!["bench-hub".into()] })
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

/// Which hub to be.
#[derive(Debug, Args)]
pub struct BenchHubArgs {
    /// Of what it is made
    #[arg(value_enum)]
    engines: EnginesName,
}

/// What the hub is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum EnginesName {
    /// Engines that take no time
    Fake,
    /// The default ones
    Offline,
}

/// Sessions a measured hub takes: more than any measure opens.
const MAX_SESSIONS: usize = 1_000;

/// Utterances a hub with fakes understands: more than any measure speaks.
const MAX_TURNS: usize = 10_000;

/// Serves on a free port until stdin ends; prints its address first.
pub(super) async fn run_hub(args: BenchHubArgs) -> Result<(), CliError> {
    let mut config = Config::default();
    config.server.max_sessions = MAX_SESSIONS;
    config.server.drain_seconds = 0;
    let listener = TcpListener::bind("127.0.0.1:0")
        .await
        .map_err(|source| CliError::Listen { address: "127.0.0.1:0".into(), source })?;
    let address = listener.local_addr().map_err(|error| CliError::failed(&error))?;
    let engines = match args.engines {
        EnginesName::Fake => fakes(),
        EnginesName::Offline => {
            let config = config.clone();
            blocking(move || crate::engines::build(&config)).await??
        }
    };
    print::line(&address.to_string())?;
    let stop = CancellationToken::new();
    let serving = server::serve(
        listener,
        Parts { config, engines, metrics: Metrics::new(), keys: Keys::default(), tls: None },
        stop.clone(),
    );
    tokio::pin!(serving);
    tokio::select! {
        served = &mut serving => return served.map_err(|error| CliError::failed(&error)),
        () = end_of_stdin() => stop.cancel(),
    }
    serving.await.map_err(|error| CliError::failed(&error))
}

/// The benchmark holds the other end; it ends with the benchmark, however that ends.
async fn end_of_stdin() {
    let _ = blocking(|| std::io::copy(&mut std::io::stdin().lock(), &mut std::io::sink())).await;
}

/// Each utterance is understood as "ok" and answered "You said: ok", 600 ms of a tone.
fn fakes() -> Engines {
    let heard = std::iter::repeat_n("ok", MAX_TURNS);
    Engines {
        vad: Arc::new(vad::fake::FakeVad),
        stt: Arc::new(stt::fake::FakeStt::hears(heard)),
        llm: Arc::new(llm::fake::FakeLlm::default()),
        tts: Arc::new(tts::fake::FakeTts::default()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn measures_and_engines_are_called_the_same_everywhere() {
        for name in Name::value_variants() {
            let possible = name.to_possible_value().expect("listed");
            assert_eq!(possible.get_name(), name.measure().name());
        }
        assert_eq!(Name::value_variants().len(), Measure::ALL.len());
        let engines = [(EnginesName::Fake, bench::Engines::Fake), (EnginesName::Offline, bench::Engines::Offline)];
        for (name, engines) in engines {
            assert_eq!(name.to_possible_value().expect("listed").get_name(), engines.name());
        }
    }
}
