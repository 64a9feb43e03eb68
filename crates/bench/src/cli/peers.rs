//! `antiphon-bench peers`: compares this hub with a pipecat bot on the same mock engines, in one run.

use super::{hub_command, progress};
use crate::peers::{self, Peers};
use antiphon::cli::{CliError, print};
use clap::Args;
use std::path::PathBuf;

/// Location of the peer, and the size of the comparison.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  make bench-peers                                         installs pipecat into .venv-peers first
  antiphon-bench peers --rig rig --python .venv-peers/bin/python --turns 20

The rig is a folder with pipecat_bot.py, bench_pipecat.py and question16k.wav; it is not part of this repository. Bot
and hub run on core 1, clients and mock engines on core 0; in both, 200 ms of silence end a turn.")]
pub struct PeersArgs {
    /// The folder with the peer's scripts
    #[arg(long)]
    rig: PathBuf,
    /// A Python with pipecat-ai 1.14 and the other requirements of the peer
    #[arg(long, default_value = ".venv-peers/bin/python")]
    python: PathBuf,
    /// Turns per session
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u16).range(1..))]
    turns: u16,
    /// Sessions in the last comparison
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u16).range(1..=100))]
    sessions: u16,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

pub(super) async fn run(args: PeersArgs) -> Result<(), CliError> {
    let plan = peers::plan(hub_command("hub")?, hub_command("mock")?);
    let (turns, n_sessions) = (args.turns.into(), args.sessions.into());
    let wanted = Peers { rig: args.rig, python: args.python, turns, n_sessions };
    let rows = peers::compare(&wanted, &plan, &progress).await.map_err(|error| CliError::failed(&error))?;
    progress("");
    if args.json { print::json(&peers::json(&rows)) } else { print::line(&peers::table(&rows)) }
}
