//! `antiphon models pull`: downloads models, with a progress bar on a terminal and one line for each elsewhere.

use super::super::{CliError, Settings, print};
use super::size::size;
use crate::assembly::{BuiltIn, EngineFactory, recommended};
use crate::config::Config;
use antiphon_registry::{Catalog, ModelRequest, Phase, Progress, PullTimeouts, Puller, Variant, is_shipped, locate};
use clap::Args;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde_json::json;
use std::io::IsTerminal;
use tokio::sync::watch;

/// What to fetch.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  antiphon models pull                     the models to begin with, which any machine runs
  antiphon models pull whisper-base
  antiphon models pull kokoro:int8 silero-vad
  HTTPS_PROXY=http://proxy.example.org:3128 antiphon models pull whisper-base
  ANTIPHON_MODELS__MIRROR=https://mirror.example.org antiphon models pull whisper-base

Files are checked against their published checksum before they take their place; where none is published, this is said.
Ctrl-C keeps what was fetched, and the next pull goes on from it. A model that is here already is checked again,
one that came with the installation by its sizes only.

Exit codes: 0 here, 1 failed (full disk, wrong checksum), 2 no such model, 4 cannot reach the server or it refuses.")]
pub struct PullArgs {
    /// The models; behind a colon, one of their precisions. None: better ears, a better voice and better voice activity
    #[arg(value_name = "NAME[:PRECISION]")]
    models: Vec<String>,
    /// Print one JSON object a model, and no progress
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    settings: Settings,
}

pub(super) async fn run(args: PullArgs) -> Result<(), CliError> {
    let config = args.settings.load()?;
    let catalog = Catalog::load(&config.models)?;
    let mut wanted = args.models.iter().map(|model| catalog.find(model)).collect::<Result<Vec<_>, _>>()?;
    if args.models.is_empty() {
        let set = recommended(&config, &catalog, &BuiltIn);
        if set.is_empty() {
            let message = "the configuration names the engine of each stage: name the models to fetch";
            return Err(CliError::Usage(message.into()));
        }
        wanted.extend(set.into_iter().map(|entry| ModelRequest { entry, precision: None }));
        let bytes = wanted.iter().map(|wanted| wanted.variant().about_bytes()).sum();
        let names: Vec<_> = wanted.iter().map(|wanted| wanted.entry.name.as_str()).collect();
        print::note(&format!("{}: {} in all", names.join(", "), size(bytes)));
    }
    let puller = Puller::new(&config.models, PullTimeouts::default())?;
    for wanted in wanted {
        tokio::select! {
            pulled = one(&puller, &config, wanted, args.json) => pulled?,
            _ = tokio::signal::ctrl_c() => {
                print::note("the partial download is kept; the same command resumes it");
                return Err(CliError::Interrupted);
            }
        }
    }
    Ok(())
}

async fn one(puller: &Puller, config: &Config, wanted: ModelRequest<'_>, json: bool) -> Result<(), CliError> {
    let entry = wanted.entry;
    let variant = wanted.variant();
    let name = format!("{}:{}", entry.name, variant.precision);
    let (progress, seen) = watch::channel(Progress::default());
    let mut shown = Shown::new(&name, json);
    let pulled = {
        let pull = puller.pull(entry, variant, &progress);
        tokio::pin!(pull);
        let mut seen = seen.clone();
        loop {
            tokio::select! {
                pulled = &mut pull => break pulled,
                Ok(()) = seen.changed() => shown.show(&seen.borrow_and_update().clone()),
            }
        }
    };
    shown.end();
    pulled?;
    let here = locate(&config.models, ModelRequest { entry, precision: Some(&variant.precision) })?;
    let is_shipped = is_shipped(&config.models, entry, variant);
    let unchecked = if is_shipped { variant.files.len() } else { variant.n_unchecked() };
    let lacks = BuiltIn.lacks(config, entry.stage, &entry.family);
    if json {
        return print::json(&json!({
            "model": entry.name, "precision": variant.precision, "bytes": here.bytes,
            "folder": print::path(&here.folder), "licence": entry.licence, "files": variant.files.len(),
            "unchecked_files": unchecked, "lacks": lacks,
        }));
    }
    let checked = checked(variant, is_shipped);
    print::line(&format!(
        "{name} is in {}: {}; {checked}\nlicence: {}",
        here.folder.display(),
        size(here.bytes),
        entry.licence
    ))?;
    lacks.map_or(Ok(()), print::line)
}

/// What is known of the files' contents.
fn checked(variant: &Variant, is_shipped: bool) -> String {
    if is_shipped {
        return "it came with the installation, and only sizes were checked".into();
    }
    match variant.n_unchecked() {
        0 => "all checksums are right".into(),
        n if n == variant.files.len() => "no checksum is published; only size and format were verified".into(),
        n => format!("{n} of {} files have no published checksum, the others are right", variant.files.len()),
    }
}

/// The progress display.
enum Shown {
    Nothing,
    Bar(ProgressBar),
    /// The model, until its one line was printed.
    Line(Option<String>),
}

impl Shown {
    fn new(name: &str, json: bool) -> Self {
        if json {
            return Self::Nothing;
        }
        if !std::io::stderr().is_terminal() {
            return Self::Line(Some(name.into()));
        }
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
        let template = "{prefix} {wide_bar} {bytes}/{total_bytes} {bytes_per_sec} {eta} {msg}";
        bar.set_style(ProgressStyle::with_template(template).expect("a template of known keys"));
        bar.set_prefix(name.to_owned());
        Self::Bar(bar)
    }

    fn show(&mut self, progress: &Progress) {
        match self {
            Self::Nothing => {}
            Self::Bar(bar) => {
                bar.set_length(progress.total_bytes);
                bar.set_position(progress.bytes);
                bar.set_message(if progress.phase == Phase::Checking { "checking" } else { "" });
            }
            Self::Line(name) => {
                if progress.total_bytes > 0
                    && let Some(name) = name.take()
                {
                    print::note(&format!("{name}: fetching {}", size(progress.total_bytes)));
                }
            }
        }
    }

    fn end(&mut self) {
        if let Self::Bar(bar) = self {
            bar.finish_and_clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_checksum_is_claimed_of_a_model_of_the_installation() {
        let catalog = Catalog::load(&Config::default().models).expect("the built-in catalog");
        let variant = &catalog.entries()[0].variants[0];
        assert!(checked(variant, true).ends_with("only sizes were checked"));
        assert!(!checked(variant, false).contains("installation"));
    }
}
