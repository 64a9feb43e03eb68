//! The command line: one file a subcommand.
//!
//! `main` parses [`Cli`], starts logging with [`logging`], and runs [`run`] on the runtime. What people ask for goes to
//! stdout, everything else to stderr. This is the only place that prints and that knows exit codes.
#![allow(clippy::print_stdout)]

mod ask;
mod blocking;
mod chat;
mod cluster;
mod completions;
mod config;
mod corpus;
mod desktop;
mod doctor;
mod error;
mod file_changes;
pub mod files;
mod health;
mod keys;
mod lan;
pub mod logging;
mod man;
mod models;
mod own_hub;
mod plan;
pub mod print;
mod progress;
mod rehearse;
mod replay;
pub mod say;
mod serve;
mod settings;
mod signals;
mod sound;
mod sweep;
pub mod target;
mod transcribe;
mod unseal;
mod upgrade_check;
mod version;
mod voices;
mod worker;

pub use blocking::blocking;
pub use error::CliError;
pub use logging::DefaultLog;
pub use settings::Settings;

use clap::{Parser, Subcommand};
use futures_util::future::LocalBoxFuture;
use std::process::ExitCode;
use std::time::Duration;

const ABOUT: &str = "A real-time voice hub: speech in, an answer in speech out";

const EXAMPLES: &str = "\
Examples:
  antiphon                                        start the hub, and open its page on a desktop
  antiphon serve                                  start, then open http://127.0.0.1:8080
  antiphon serve --config my.toml --listen 127.0.0.1:9000
  ANTIPHON_LLM__ENGINE=openai ANTIPHON_LLM__BASE_URL=http://127.0.0.1:11434/v1 \\
    ANTIPHON_LLM__MODEL=llama3.2 ANTIPHON_LLM__API_KEY_ENV= antiphon serve
  antiphon chat                                   talk by microphone and loudspeaker
  antiphon say \"Good morning.\"                    speak a text; with -o into a file
  antiphon ask morning.wav -o reply.wav           ask by voice, keep the answer
  antiphon transcribe morning.mp3                 write down what is said
  antiphon rehearse scenarios --html report.html  test an agent before its callers do
  antiphon replay recordings/*.jsonl              run recorded sessions again and compare
  antiphon worker --config worker.toml            serve engines to hubs on other machines
  antiphon doctor                                 what this machine has, and what to do
  antiphon models pull whisper-base               better ears; `models list` shows what there is

Exit codes:
  0 done   1 failed   2 wrong usage or configuration
  3 an engine, library or model is missing   4 cannot listen, or cannot reach the server
  130 interrupted

Environment:
  ANTIPHON_<SECTION>__<KEY>   any setting, e.g. ANTIPHON_TURN__SILENCE_DURATION_MS=300
  ANTIPHON_LOG, RUST_LOG      what is logged, e.g. debug, or antiphon_session=debug";

/// The arguments.
#[derive(Debug, Parser)]
#[command(name = "antiphon", version, about = ABOUT, after_help = EXAMPLES, disable_version_flag = true)]
pub struct Cli {
    /// Write the log as JSON, one object a line
    #[arg(long, global = true)]
    pub log_json: bool,
    /// Print the version
    #[arg(short = 'V', long)]
    pub version: bool,
    /// With --version: print commit, engines, and the versions of protocols and formats, as one JSON object
    #[arg(long, requires = "version")]
    pub json: bool,
    /// What to do; without it the hub is started, and its page opened on a desktop.
    #[command(subcommand)]
    pub command: Option<Command>,
}

impl Cli {
    /// What is logged where no variable says it.
    pub fn default_log(&self) -> DefaultLog {
        match &self.command {
            None | Some(Command::Serve(_) | Command::Worker(_)) if !self.version => DefaultLog::Activity,
            _ => DefaultLog::Warnings,
        }
    }
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Start the hub
    Serve(serve::ServeArgs),
    /// Serve engines to the hubs of a cluster
    Worker(worker::WorkerArgs),
    /// Talk by microphone and loudspeaker
    Chat(chat::ChatArgs),
    /// Speak a sound file to a server and keep its answer
    Ask(ask::AskArgs),
    /// Speak a text, aloud or into a WAV file
    Say(say::SayArgs),
    /// Write down what sound files say
    Transcribe(transcribe::TranscribeArgs),
    /// Says where the benchmarks are: the program antiphon-bench
    #[command(hide = true, disable_help_flag = true)]
    Bench {
        /// What was asked of it.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, hide = true)]
        args: Vec<String>,
    },
    /// Let callers of scenarios talk to a server, and check what it does
    Rehearse(rehearse::RehearseArgs),
    /// Run recorded sessions again and compare what is decided
    Replay(replay::ReplayArgs),
    /// Write the plain file of a recording or a voice that is encrypted with server.storage_key
    Unseal(unseal::UnsealArgs),
    /// Make labelled recordings for `replay --sweep`
    #[command(hide = true)]
    Corpus(corpus::CorpusArgs),
    /// Models: what there is, what is here, fetch and remove
    #[command(subcommand)]
    Models(models::ModelsCommand),
    /// API keys: make one for the file of keys
    #[command(subcommand)]
    Keys(keys::KeysCommand),
    /// Custom voices of a running hub: what there is, add and remove
    #[command(subcommand)]
    Voices(voices::VoicesCommand),
    /// A cluster: the NATS server's configuration, hubs and workers
    #[command(subcommand)]
    Cluster(cluster::ClusterCommand),
    /// Machines, latency, cost and configuration files for a number of users
    Plan(plan::PlanArgs),
    /// Look at this machine and the settings, and say what is missing
    Doctor(doctor::DoctorArgs),
    /// Whether a hub or worker lives, or takes requests: for health checks of containers
    Health(health::HealthArgs),
    /// Check settings
    #[command(subcommand)]
    Config(config::ConfigCommand),
    /// Say what this version makes of the settings and data of an earlier one
    UpgradeCheck(upgrade_check::UpgradeCheckArgs),
    /// Print the completions of a shell
    Completions(completions::CompletionsArgs),
    /// Print the man page, or write those of all commands
    Man(man::ManArgs),
}

/// How long threads that still work for an engine are waited for at the end.
const LAST_WAIT: Duration = Duration::from_secs(2);

/// A program of this project from its arguments to its exit code: starts the log (see [`logging::start`]) and the runtime,
/// runs `command`, reports its error on stderr. Blocks until it is done.
pub fn main(log_json: bool, log: DefaultLog, command: RunningCommand) -> ExitCode {
    match start(log_json, log, command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            print::complain(&error);
            ExitCode::from(error.exit_code())
        }
    }
}

fn start(log_json: bool, log: DefaultLog, command: RunningCommand) -> Result<(), CliError> {
    logging::start(log_json, log)?;
    // The remote engines' TLS takes the process' provider. Only a second installation could fail, and would be the same.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|error| CliError::Failed(format!("no threads can be started: {error}")))?;
    let done = runtime.block_on(command);
    runtime.shutdown_timeout(LAST_WAIT);
    done
}

/// A command that runs. It is boxed in the library that defines it: a program that named the future's type would compile
/// everything that the command awaits a second time.
pub type RunningCommand = LocalBoxFuture<'static, Result<(), CliError>>;

/// Does it.
///
/// # Errors
/// Whatever kept it from being done; [`CliError::exit_code`] says with which code to end.
pub fn run(cli: Cli) -> RunningCommand {
    Box::pin(dispatch(cli))
}

async fn dispatch(cli: Cli) -> Result<(), CliError> {
    if cli.version {
        return version::run(cli.json);
    }
    let Some(command) = cli.command else { return serve::run_and_open().await };
    match command {
        Command::Serve(args) => serve::run(args).await,
        Command::Worker(args) => worker::run(args).await,
        Command::Chat(args) => chat::run(args).await,
        Command::Ask(args) => ask::run(args).await,
        Command::Say(args) => say::run(args).await,
        Command::Transcribe(args) => transcribe::run(args).await,
        Command::Bench { args } => Err(moved_bench(&args)),
        Command::Rehearse(args) => rehearse::run(args).await,
        Command::Replay(args) => replay::run(args).await,
        Command::Unseal(args) => unseal::run(args).await,
        Command::Corpus(args) => corpus::run(args).await,
        Command::Models(command) => models::run(command).await,
        Command::Keys(command) => keys::run(&command),
        Command::Voices(command) => voices::run(command).await,
        Command::Cluster(command) => cluster::run(command).await,
        Command::Plan(args) => plan::run(args).await,
        Command::Doctor(args) => doctor::run(args).await,
        Command::Health(args) => health::run(args).await,
        Command::Config(command) => config::run(&command).await,
        Command::UpgradeCheck(args) => upgrade_check::run(&args),
        Command::Completions(args) => completions::run(&args),
        Command::Man(args) => man::run(&args),
    }
}

/// Where the benchmarks went. For one release; then clap refuses the word.
fn moved_bench(args: &[String]) -> CliError {
    let words = ["antiphon-bench"].into_iter().chain(args.iter().map(String::as_str)).collect::<Vec<_>>().join(" ");
    CliError::Usage(format!(
        "the benchmarks are a program of their own, which `make build` builds: target/release/{words}"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_arguments_are_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn help_names_every_exit_code() {
        for error in error::one_of_each() {
            assert!(EXAMPLES.contains(&format!("  {} ", error.exit_code())), "{error:?}");
        }
    }
}
