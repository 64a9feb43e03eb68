//! `antiphon models rm`: removes models from disk.

use super::super::{CliError, Settings, print};
use super::size::size;
use antiphon_registry::{Catalog, remove};
use clap::Args;
use serde_json::json;

/// Which models.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  antiphon models rm whisper-base            all of it
  antiphon models rm kokoro:fp32             only what this precision needs alone

A hub that has loaded the model goes on with it until it is stopped.")]
pub struct RmArgs {
    /// The models; behind a colon, one of their precisions
    #[arg(required = true, value_name = "NAME[:PRECISION]")]
    models: Vec<String>,
    /// Print one JSON object a model
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    settings: Settings,
}

pub(super) fn run(args: &RmArgs) -> Result<(), CliError> {
    let config = args.settings.load()?.models;
    let catalog = Catalog::load(&config)?;
    // Check all names first: a wrong one must not leave the command half done.
    let wanted = args.models.iter().map(|model| catalog.find(model)).collect::<Result<Vec<_>, _>>()?;
    for (model, wanted) in args.models.iter().zip(wanted) {
        let bytes = remove(&config, wanted)?;
        if args.json {
            print::json(&json!({ "model": model, "bytes": bytes }))?;
        } else {
            print::line(&format!("{model}: removed, {} freed", size(bytes)))?;
        }
    }
    Ok(())
}
