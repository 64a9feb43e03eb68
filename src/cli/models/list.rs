//! `antiphon models list`: all models, and which are on disk.

use super::super::{CliError, Settings, print};
use super::size::size;
use crate::assembly::Trials;
use crate::config::Config;
use antiphon_registry::{Catalog, Entry, ModelRequest, ModelsConfig, OnDisk, Stage, Variant, locate, on_disk};
use clap::{Args, ValueEnum};
use serde_json::{Value, json};

/// What to list.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  antiphon models list --stage tts
  antiphon models list --here --json | jq -r .models[].name")]
pub struct ListArgs {
    /// Only models of this stage
    #[arg(long, value_enum)]
    stage: Option<StageName>,
    /// Only models that are on the disk, whole or in part
    #[arg(long)]
    here: bool,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    settings: Settings,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum StageName {
    /// Voice activity
    Vad,
    /// Turn-taking
    Turn,
    /// Speech to text
    Stt,
    /// Text to speech
    Tts,
}

pub(super) fn run(args: &ListArgs) -> Result<(), CliError> {
    let config = args.settings.load()?;
    let catalog = Catalog::load(&config.models)?;
    let stage = args.stage.map(|stage| match stage {
        StageName::Vad => Stage::Vad,
        StageName::Turn => Stage::Turn,
        StageName::Stt => Stage::Stt,
        StageName::Tts => Stage::Tts,
    });
    let entries = catalog.entries().iter().filter(|entry| stage.is_none_or(|stage| entry.stage == stage));
    let mut entries: Vec<_> = entries.filter(|entry| !args.here || is_here(&config.models, entry)).collect();
    // Models of an additional registry are listed with those of their stage.
    entries.sort_by_key(|entry| entry.stage);
    if args.json {
        let models: Vec<_> = entries.into_iter().map(|entry| report(&config, entry)).collect();
        return print::json(&json!({ "dir": config.models.dir, "models": models }));
    }
    let mut last = None;
    let mut text = String::new();
    for entry in entries {
        if last != Some(entry.stage) {
            text += &format!("{}{}\n", if last.is_some() { "\n" } else { "" }, heading(entry.stage));
            last = Some(entry.stage);
        }
        text += &line(&config, entry);
    }
    if text.is_empty() {
        text = format!("there is no model in {}: `antiphon models list` lists the available ones\n", config.models.dir);
    }
    print::line(text.trim_end())
}

fn is_here(config: &ModelsConfig, entry: &Entry) -> bool {
    entry.variants.iter().any(|variant| on_disk(config, entry, variant) != OnDisk::Absent)
}

fn heading(stage: Stage) -> &'static str {
    match stage {
        Stage::Vad => "voice activity (vad)",
        Stage::Turn => "turn-taking (turn)",
        Stage::Stt => "speech to text (stt)",
        Stage::Tts => "text to speech (tts)",
    }
}

fn line(config: &Config, entry: &Entry) -> String {
    let usual = &entry.variants[0];
    let about = if usual.is_exact() { "" } else { "~" };
    let size = format!("{about}{}", size(usual.about_bytes()));
    let languages = match entry.languages.as_slice() {
        [] => "many".to_owned(),
        some if some.len() > 6 => format!("{} and {} more", some[..3].join(" "), some.len() - 3),
        some => some.join(" "),
    };
    format!("  {:<28} {size:>8}  {:<22} {:<18} {}\n", entry.name, here(config, entry), languages, entry.note)
}

/// The variants on disk with the wait for each on this machine, if it was measured, as a short text.
fn here(config: &Config, entry: &Entry) -> String {
    let states = entry.variants.iter().map(|variant| (variant, on_disk(&config.models, entry, variant)));
    let mut whole = Vec::new();
    let mut other = None;
    for (variant, state) in states {
        match state {
            OnDisk::Whole { .. } => {
                let wait = measured(config, entry, variant)["wait_ms"].as_u64();
                whole.push(wait.map_or(variant.precision.clone(), |ms| format!("{} {ms} ms", variant.precision)));
            }
            OnDisk::Damaged { .. } => other = Some("damaged: pull again".to_owned()),
            OnDisk::Partly { bytes } => other = other.or_else(|| Some(format!("{} fetched", size(bytes)))),
            OnDisk::Absent => {}
        }
    }
    match (whole.is_empty(), other) {
        (false, _) => format!("here ({})", whole.join(", ")),
        (true, Some(other)) => other,
        (true, None) => "-".into(),
    }
}

/// The figures of the variant on this machine; null if it was not measured.
fn measured(config: &Config, entry: &Entry, variant: &Variant) -> Value {
    let located = locate(&config.models, ModelRequest { entry, precision: Some(&variant.precision) });
    json!(located.ok().and_then(|model| Trials::default().of(config, entry.stage, &model)))
}

/// One model's JSON object for `--json`.
pub(super) fn report(config: &Config, entry: &Entry) -> Value {
    let variants: Vec<_> = entry
        .variants
        .iter()
        .map(|variant| {
            let (state, bytes) = match on_disk(&config.models, entry, variant) {
                OnDisk::Absent => ("absent", 0),
                OnDisk::Partly { bytes } => ("partly", bytes),
                OnDisk::Whole { bytes } => ("whole", bytes),
                OnDisk::Damaged { .. } => ("damaged", 0),
            };
            json!({
                "precision": variant.precision, "state": state, "bytes_here": bytes, "about_bytes": variant.about_bytes(),
                "unchecked_files": variant.n_unchecked(), "measured": measured(config, entry, variant),
            })
        })
        .collect();
    json!({
        "name": entry.name, "stage": entry.stage, "family": entry.family, "title": entry.title, "licence": entry.licence,
        "languages": entry.languages, "rate_hz": entry.rate_hz, "auto": entry.auto, "note": entry.note, "variants": variants,
    })
}
