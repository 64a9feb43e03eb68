//! `antiphon ask`: speaks a file to a server in real time and hears its answer.

use super::{CliError, Settings};
use clap::Args;
use std::path::PathBuf;

/// What to ask.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  antiphon ask question.wav                         of a server this command starts itself
  antiphon ask question.wav -o reply.wav --url http://127.0.0.1:8080
  antiphon ask question.wav --json | jq .marks

The file is sent as fast as it sounds, as a microphone would send it. Printed are what was understood, what was
answered, and where each millisecond went, counted from the end of the speech.")]
pub struct AskArgs {
    /// The question: a WAV file of any rate
    wav: PathBuf,
    /// Write the spoken answer to this WAV file; `-` is stdout
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// A running server; without it, one is started for this question
    #[arg(long)]
    url: Option<String>,
    /// The voice of the answer
    #[arg(long)]
    voice: Option<String>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    settings: Settings,
}

pub(super) async fn run(args: AskArgs) -> Result<(), CliError> {
    // MERGE(client): read the file with files::speech(&args.wav, SampleRate::HZ_24000), start a server on 127.0.0.1:0
    // where --url is absent, call client::ask, write --output with files::write.
    let AskArgs { wav, output: _, url: _, voice: _, json: _, settings } = args;
    settings.load()?;
    Err(CliError::Failed(format!("{}: this build has no client yet", wav.display())))
}
