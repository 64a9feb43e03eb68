//! `antiphon models info`: the details of one model.

use super::super::{CliError, Settings, print};
use super::list;
use super::size::size;
use crate::config::Config;
#[cfg(feature = "speechlm")]
use antiphon_engines::table::EngineStage;
#[cfg(feature = "speechlm")]
use antiphon_engines::tts::speechlm::{self, CacheSize, Contract};
use antiphon_registry::{Catalog, Entry, ModelsConfig, OnDisk, Variant, folder_of, on_disk};
use clap::Args;
use serde_json::json;

/// Which model.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  antiphon models info kokoro
  antiphon models info kokoro:int8 --json | jq -r .files[].address      # to fetch them by other means")]
pub struct InfoArgs {
    /// The model; behind a colon, one of its precisions
    #[arg(value_name = "NAME[:PRECISION]")]
    model: String,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    settings: Settings,
}

pub(super) fn run(args: &InfoArgs) -> Result<(), CliError> {
    let all = args.settings.load()?;
    let config = all.models.clone();
    let catalog = Catalog::load(&config)?;
    let wanted = catalog.find(&args.model)?;
    let entry = wanted.entry;
    let variant = wanted.variant();
    if args.json {
        let mut report = list::report(&all, entry);
        report["folder"] = json!(print::path(&folder_of(&config, entry, variant)));
        report["files"] = variant
            .files
            .iter()
            .map(|file| {
                json!({
                    "role": file.role, "path": file.path, "address": file.address, "bytes": file.bytes,
                    "about_bytes": file.about_bytes, "checksum": file.sum.as_ref().map(ToString::to_string),
                })
            })
            .collect();
        if let Some(caches) = speech_model(&all, entry, variant) {
            report["caches"] = json!({
                "bytes_per_token": caches.0.bytes_per_token, "bytes_per_slot": caches.0.bytes_per_slot,
                "slots_that_fit": caches.0.slots_that_fit,
            });
            report["watermark"] = json!(caches.1);
        }
        return print::json(&report);
    }
    let mut text = description(&config, entry, variant);
    if let Some((caches, watermark)) = speech_model(&all, entry, variant) {
        text += &format!(
            "\n\n  memory beside the weights, {}:\n    a token    {:>8.1} KiB\n    a listener {:>8.0} MiB at most\n    fits       {:>8} listeners at once on {}\n  watermark  {watermark}",
            variant.precision,
            caches.bytes_per_token as f64 / 1024.0,
            caches.bytes_per_slot as f64 / f64::from(1 << 20),
            caches.slots_that_fit,
            if all.onnx.provider == "cpu" { "this machine" } else { "the configured GPU" },
        );
    }
    print::line(&text)
}

/// What a speech language model takes beside its weights.
struct Caches {
    bytes_per_token: usize,
    bytes_per_slot: usize,
    slots_that_fit: usize,
}

/// The caches of a speech language model, and what is known of watermarks in its sound.
#[cfg(feature = "speechlm")]
fn speech_model(config: &Config, entry: &Entry, variant: &Variant) -> Option<(Caches, String)> {
    let kind = EngineStage::Tts.kind(&entry.family)?;
    let contract = Contract::of_model(&entry.name).ok().filter(|_| kind.has_slots())?;
    let CacheSize { bytes_per_token, bytes_per_slot, slots_that_fit } =
        speechlm::cache_size(&contract, &variant.precision, &config.onnx);
    Some((Caches { bytes_per_token, bytes_per_slot, slots_that_fit }, contract.watermark))
}

#[cfg(not(feature = "speechlm"))]
fn speech_model(_: &Config, _: &Entry, _: &Variant) -> Option<(Caches, String)> {
    None
}

fn description(config: &ModelsConfig, entry: &Entry, shown: &Variant) -> String {
    let languages = if entry.languages.is_empty() { "many".into() } else { entry.languages.join(" ") };
    let mut text = format!(
        "{}: {}\n  {}\n\n  stage      {}\n  engine     {}\n  languages  {languages}\n  sound      {} Hz\n  licence    {}\n  folder     {}\n",
        entry.name,
        entry.title,
        entry.note,
        entry.stage,
        entry.family,
        entry.rate_hz,
        entry.licence,
        folder_of(config, entry, shown).display(),
    );
    for variant in &entry.variants {
        let state = match on_disk(config, entry, variant) {
            OnDisk::Absent => "not here".to_owned(),
            OnDisk::Partly { bytes } => format!("{} fetched", size(bytes)),
            OnDisk::Whole { .. } => "here".into(),
            OnDisk::Damaged { path, why } => format!("damaged: {}: {why}", path.display()),
        };
        text += &format!("  precision  {:<6} {:>8}  {state}\n", variant.precision, size(variant.about_bytes()));
    }
    text += &format!("\n  files of {}:\n", shown.precision);
    for file in &shown.files {
        let sum = file.sum.as_ref().map_or("no published checksum".into(), ToString::to_string);
        text += &format!("    {:<8} {:<28} {:>8}  {sum}\n", file.role, file.path, size(file.about_bytes));
    }
    text.trim_end().to_owned()
}
