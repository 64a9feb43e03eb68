//! `antiphon-bench peers`: compares this hub with a pipecat bot on the same mock engines, in one run.

use super::{hub_command, progress};
use crate::peers::{self, Peers, RealModels};
use antiphon::cli::{CliError, print};
use clap::Args;
use std::path::PathBuf;

/// Location of the peer, and the size of the comparison.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  make bench-peers                                         installs pipecat into .venv-peers first
  antiphon-bench peers --rig rig --python .venv-peers/bin/python --turns 20
  antiphon-bench peers --rig rig --whisper models/whisper-base/ggml-base.bin \\
      --faster-whisper faster-whisper-base --piper voices/en_US-joe-medium.onnx

The rig is a folder with pipecat_bot.py, pipecat_real.py, bench_pipecat.py and question16k.wav; it is not part of this
repository. Bot and hub run on core 1, clients and mock engines on core 0; in both, 200 ms of silence end a turn. With
models, one more row has the same recognizer and voice in both processes, on all cores.")]
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
    /// A Whisper model in ggml's form, for one more row with real models
    #[arg(long, value_name = "FILE", requires_all = ["faster_whisper", "piper"])]
    whisper: Option<PathBuf>,
    /// The same model in CTranslate2's form
    #[arg(long, value_name = "FOLDER", requires = "whisper")]
    faster_whisper: Option<PathBuf>,
    /// A voice of Piper's, with its .onnx.json beside it
    #[arg(long, value_name = "FILE", requires = "whisper")]
    piper: Option<PathBuf>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

pub(super) async fn run(args: PeersArgs) -> Result<(), CliError> {
    let plan = peers::plan(hub_command("hub")?, hub_command("mock")?);
    let turns = args.turns.into();
    let n_sessions = args.sessions.into();
    let models = args.whisper.zip(args.faster_whisper).zip(args.piper);
    let real = models.map(|((whisper_ggml, whisper_ct2), piper)| RealModels { whisper_ggml, whisper_ct2, piper });
    let wanted = Peers { rig: args.rig, python: args.python, turns, n_sessions, real };
    let rows = peers::compare(&wanted, &plan, &progress).await.map_err(|error| CliError::failed(&error))?;
    progress("");
    if args.json { print::json(&peers::json(&rows)) } else { print::line(&peers::table(&rows)) }
}
