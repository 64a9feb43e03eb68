//! `antiphon models measure`: how fast the models on the disk are on this machine.

use super::super::progress::Progress;
use super::super::{CliError, Settings, print};
use crate::assembly::{EngineManager, EnginesError, Trial};
use crate::config::Config;
use antiphon_engines::table::{EngineKind, EngineStage};
use antiphon_registry::{Entry, ModelRequest, OnDisk, Stage, locate, on_disk};
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

Exit codes: 0 measured, 1 a model fails, 2 no such model, 3 a model is missing or damaged.
After 1 and 3 the other models are measured all the same; after 2, none.")]
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

/// What came of the models.
#[derive(Default)]
struct Measurements {
    rows: Vec<Row>,
    /// Why the others have no figures.
    failures: Vec<CliError>,
}

pub(super) async fn run(args: MeasureArgs) -> Result<(), CliError> {
    let config = args.settings.load()?;
    let progress = Arc::new(Progress::new("looking for models"));
    let shown = progress.clone();
    let MeasureArgs { models, json, .. } = args;
    let measured = tokio::task::spawn_blocking(move || measure(&config, models, &shown)).await;
    let ended_early = |error| CliError::Failed(format!("the measurement ended early: {error}"));
    let measured = measured.map_err(ended_early)??;
    progress.hide();
    print_figures(&measured, json)?;
    measured.verdict()
}

fn print_figures(measured: &Measurements, json: bool) -> Result<(), CliError> {
    let rows = &measured.rows;
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
    if rows.is_empty() && !measured.failures.is_empty() {
        return Ok(());
    }
    if rows.is_empty() {
        return print::line("no recognizer or voice is on the disk: `antiphon models list` shows what there is");
    }
    let mut text = format!("{:<30} {:>9} {:>9} {:>7}\n", "", "alone", "two", "share");
    for Row { model, trial, slow, .. } in rows {
        let verdict = slow.as_ref().map_or_else(|| "in time".to_owned(), |why| format!("too slow: {why}"));
        let Trial { wait_ms, both_ms, share } = trial;
        text += &format!("{model:<30} {wait_ms:>6} ms {both_ms:>6} ms {share:>7.3} {verdict}\n");
    }
    print::line(text.trim_end())
}

impl Measurements {
    /// The error of a single model; of several, each is printed.
    fn verdict(mut self) -> Result<(), CliError> {
        let n_failed = self.failures.len();
        let n_models = n_failed + self.rows.len();
        if n_models == 1
            && let Some(error) = self.failures.pop()
        {
            return Err(error);
        }
        self.failures.iter().for_each(print::complain);
        let text = format!("{n_failed} of {n_models} models were not measured");
        if self.failures.is_empty() {
            Ok(())
        } else if self.failures.iter().all(|error| matches!(error, CliError::Registry(_))) {
            Err(CliError::Missing(text))
        } else {
            Err(CliError::Failed(text))
        }
    }
}

/// Measures each model, also after one that fails. Blocks while the models load and work.
fn measure(config: &Config, models: Vec<String>, progress: &Progress) -> Result<Measurements, CliError> {
    let manager = EngineManager::new(config).map_err(EnginesError::from)?;
    let models = if models.is_empty() { all_here(&manager) } else { models };
    let wanted = models.iter().map(|model| manager.catalog().find(model)).collect::<Result<Vec<_>, _>>()?;
    let mut measured = Measurements::default();
    for wanted in wanted {
        match one(config, &manager, wanted, progress) {
            Ok(row) => measured.rows.push(row),
            Err(error) => measured.failures.push(error),
        }
    }
    Ok(measured)
}

/// A model's figures; [`CliError::Registry`] if it is not on the disk.
fn one(
    config: &Config,
    manager: &EngineManager,
    wanted: ModelRequest<'_>,
    progress: &Progress,
) -> Result<Row, CliError> {
    locate(&config.models, wanted)?;
    let stage = wanted.entry.stage;
    let model = format!("{}:{}", wanted.entry.name, precision(manager, wanted.entry, wanted.precision));
    progress.now(format!("measuring {model}"));
    let trial = manager.measure(&model).map_err(|failure| CliError::failed(&failure))?;
    let slow = trial.verdict(stage, config.slo.voice_to_voice_ms).err();
    Ok(Row { model, stage, trial, slow })
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn models_that_are_not_on_the_disk_do_not_end_the_measurement() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut config = Config::default();
        config.models.dir = folder.path().to_str().expect("Unicode").into();
        let models = ["whisper-base", "kokoro"].map(str::to_owned).to_vec();
        let measured = measure(&config, models, &Progress::new("")).expect("known models");
        assert_eq!((measured.rows.len(), measured.failures.len()), (0, 2));
        let error = measured.verdict().expect_err("none is here");
        assert_eq!((error.exit_code(), error.to_string().as_str()), (3, "2 of 2 models were not measured"));
    }

    #[test]
    fn a_model_that_fails_wins_over_one_that_is_not_on_the_disk() {
        let absent =
            || CliError::Registry(antiphon_registry::RegistryError::Absent { name: "a".into(), dir: "m".into() });
        let failures = vec![absent(), CliError::Failed("b fails".into())];
        assert_eq!(Measurements { failures, ..Measurements::default() }.verdict().expect_err("failed").exit_code(), 1);
        let alone = Measurements { failures: vec![absent()], ..Measurements::default() };
        assert_eq!(alone.verdict().expect_err("absent").exit_code(), 3);
    }
}
