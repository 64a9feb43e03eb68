//! `antiphon models measure`: how fast the models on the disk are on this machine.

use super::super::progress::Progress;
use super::super::{CliError, Settings, print};
use crate::assembly::{EngineManager, EnginesError, Trial};
use crate::config::Config;
use antiphon_engines::table::{EngineKind, EngineStage};
use antiphon_registry::{Entry, OnDisk, Stage, on_disk};
use clap::Args;
use serde_json::json;
use std::sync::Arc;

/// What to measure.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  antiphon models measure                            every recognizer and voice that is here
  antiphon models measure kokoro:int8 whisper-base
  antiphon models measure --json | jq '.models[] | select(.in_time)'

Each model works for one conversation, then for two at once: a recognizer transcribes an utterance of 2.8 s, a voice speaks a
clause of about 2 s. `alone` and `two` are the times until the transcript or first sound is there, `share` is the time that two
take for a second of sound. A model is in time if that lets the hub keep slo.voice_to_voice_ms. The hub measures by itself
what engine = \"auto\" may select; measure again where the machine was busy then, or has changed. Nothing else should run
meanwhile, and no hub.

Exit codes: 0 measured, 1 a model fails, 2 no such model, 3 a model is not on the disk.")]
pub struct MeasureArgs {
    /// The models; behind a colon, one of their precisions. None: all that are on the disk
    #[arg(value_name = "NAME[:PRECISION]")]
    models: Vec<String>,
    /// Print one JSON object, and no progress
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    settings: Settings,
}

/// A model's figures.
struct Row {
    model: String,
    stage: Stage,
    trial: Trial,
    /// Why it is not in time, if it is not.
    slow: Option<String>,
}

pub(super) async fn run(args: MeasureArgs) -> Result<(), CliError> {
    let config = args.settings.load()?;
    let progress = Arc::new(Progress::new("looking for models"));
    let shown = progress.clone();
    let MeasureArgs { models, json, .. } = args;
    let measured = tokio::task::spawn_blocking(move || measure(&config, models, &shown)).await;
    let rows = measured.map_err(|error| CliError::Failed(format!("the measurement ended early: {error}")))??;
    progress.hide();
    if json {
        let models: Vec<_> = rows
            .iter()
            .map(|row| {
                let Trial { wait_ms, both_ms, share } = row.trial;
                json!({
                    "model": row.model, "stage": row.stage, "wait_ms": wait_ms, "both_ms": both_ms, "share": share,
                    "in_time": row.slow.is_none(),
                })
            })
            .collect();
        return print::json(&json!({ "models": models }));
    }
    if rows.is_empty() {
        return print::line("no recognizer or voice is on the disk: `antiphon models list` shows what there is");
    }
    let mut text = format!("{:<30} {:>9} {:>9} {:>7}\n", "", "alone", "two", "share");
    for Row { model, trial, slow, .. } in &rows {
        let verdict = slow.as_ref().map_or_else(|| "in time".to_owned(), |why| format!("too slow: {why}"));
        let Trial { wait_ms, both_ms, share } = trial;
        text += &format!("{model:<30} {wait_ms:>6} ms {both_ms:>6} ms {share:>7.3} {verdict}\n");
    }
    print::line(text.trim_end())
}

/// Blocks while the models load and work.
fn measure(config: &Config, models: Vec<String>, progress: &Progress) -> Result<Vec<Row>, CliError> {
    let manager = EngineManager::new(config).map_err(EnginesError::from)?;
    let models = if models.is_empty() { all_here(&manager) } else { models };
    let mut rows = Vec::new();
    for model in models {
        let wanted = manager.catalog().find(&model)?;
        let stage = wanted.entry.stage;
        let model = format!("{}:{}", wanted.entry.name, precision(&manager, wanted.entry, wanted.precision));
        progress.now(format!("measuring {model}"));
        let trial = manager.measure(&model).map_err(EnginesError::from)?;
        let slow = trial.verdict(stage, config.slo.voice_to_voice_ms).err();
        rows.push(Row { model, stage, trial, slow });
    }
    Ok(rows)
}

/// The recognizers and voices that are on the disk and that this program runs, in the registry's order.
fn all_here(manager: &EngineManager) -> Vec<String> {
    let entries = manager.catalog().entries().iter();
    let run_here = entries.filter(|entry| {
        [Stage::Stt, Stage::Tts].contains(&entry.stage)
            && !EngineStage::Tts.kind(&entry.family).is_some_and(EngineKind::has_slots)
            && manager.knows(entry.stage, &entry.family)
    });
    run_here
        .flat_map(|entry| {
            here(manager, entry).map(|precision| format!("{}:{precision}", entry.name)).collect::<Vec<_>>()
        })
        .collect()
}

fn here<'a>(manager: &'a EngineManager, entry: &'a Entry) -> impl Iterator<Item = &'a str> {
    let is_whole = |variant: &&antiphon_registry::Variant| {
        matches!(on_disk(&manager.config().models, entry, variant), OnDisk::Whole { .. })
    };
    entry.variants.iter().filter(is_whole).map(|variant| variant.precision.as_str())
}

/// The named precision, or the one that serves where none is named: the first on the disk.
fn precision(manager: &EngineManager, entry: &Entry, named: Option<&str>) -> String {
    named.or_else(|| here(manager, entry).next()).unwrap_or(&entry.variants[0].precision).to_owned()
}
