//! `antiphon models`: lists, downloads, imports, measures and removes models.

#[cfg(feature = "whisper")]
mod import;
mod info;
mod list;
mod measure;
mod pull;
mod rm;
mod size;

use super::CliError;
use clap::Subcommand;

/// What to do with models.
#[derive(Debug, Subcommand)]
#[command(after_help = "\
A model is a folder below models.dir (models, unless you set it: ANTIPHON_MODELS__DIR=/srv/models). `engine = \"auto\"`, the
default of vad, stt and tts, takes the best model that is there and fast enough for this machine; without one, the engines that
need no model serve.

Examples:
  antiphon models list                        what there is, and what is here
  antiphon models pull                        better ears and a better voice, 214 MB
  antiphon models pull whisper-base           better ears alone, 148 MB
  antiphon models pull kokoro:fp16            a model in a precision of your choice
  antiphon models pull piper-en_US-lessac-medium silero-vad
  antiphon models import faster-whisper-small   a model that you have, from a folder or package
  antiphon models measure                     how fast those that are here are on this machine
  antiphon models info kokoro                 files, sizes, checksums, licence, addresses
  antiphon models rm whisper-base")]
pub enum ModelsCommand {
    /// Show all models, and which are on the disk
    List(list::ListArgs),
    /// Show one model: precisions, files, checksums, licence
    Info(info::InfoArgs),
    /// Fetch models; what broke off goes on where it was
    Pull(pull::PullArgs),
    /// Take a model from a folder or package that you have
    #[cfg(feature = "whisper")]
    Import(import::ImportArgs),
    /// Measure how fast models are on this machine
    Measure(measure::MeasureArgs),
    /// Take a model off the disk
    Rm(rm::RmArgs),
}

pub(super) async fn run(command: ModelsCommand) -> Result<(), CliError> {
    match command {
        ModelsCommand::List(args) => list::run(&args),
        ModelsCommand::Info(args) => info::run(&args),
        ModelsCommand::Pull(args) => pull::run(args).await,
        #[cfg(feature = "whisper")]
        ModelsCommand::Import(args) => import::run(args).await,
        ModelsCommand::Measure(args) => measure::run(args).await,
        ModelsCommand::Rm(args) => rm::run(&args),
    }
}
