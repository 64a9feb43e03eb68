//! Selects the engine and model of a stage, best first: the configured one, or with "auto" those available on disk.
//!
//! [`super::EngineManager`] tries the choices in order. With "auto" these are the configured model, if any; the models
//! on disk whose engine this program includes, by descending rank in the registry, those that were measured as too slow for this
//! machine last; and the engine that needs no model. Damaged and slow models on disk are reported with the choices. Nothing is loaded
//! here, and nothing measured.

use super::trial::{Trial, Trials};
use super::{EngineFactory, StageFailure};
use crate::config::Config;
use antiphon_engine_api::stt::DETECT_LANGUAGE;
use antiphon_engines::table::{AUTO, EngineKind, EngineStage};
use antiphon_engines::turn;
use antiphon_registry::{Catalog, Entry, LocatedModel, ModelRequest, RegistryError, Stage, locate};
use serde::Serialize;
use std::path::Path;

/// The engine name of turn detection without a turn model: silence, wording and prosody.
pub(super) const NO_TURN_MODEL: &str = "silence";

/// An engine, and the registry model it runs, if any.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Choice {
    pub(super) engine: String,
    pub(super) model: Option<LocatedModel>,
}

/// A better model on disk that does not serve.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PassedOver {
    /// The model, with its precision if known.
    pub model: String,
    /// The reason.
    pub why: String,
    /// Whether it is too slow for this machine; otherwise it is damaged, or could not be loaded.
    pub slow: bool,
}

/// The choices for a stage, best first, never empty; and the models that were skipped because they are damaged or slow.
pub(super) struct Choices {
    pub(super) best_first: Vec<Choice>,
    pub(super) passed_over: Vec<PassedOver>,
}

impl Choice {
    fn plain(engine: &str) -> Self {
        Self { engine: engine.into(), model: None }
    }

    /// The model's name with its precision, as in settings.
    pub(super) fn model_name(&self) -> Option<String> {
        self.model.as_ref().map(|model| format!("{}:{}", model.name, model.precision))
    }
}

/// The engine of a stage that needs no model; of recognizers, the one that hears nothing.
fn offline(stage: Stage) -> &'static str {
    engine_stage(stage).built_in().map_or(NO_TURN_MODEL, |kind| kind.name)
}

/// The stage in the table of engines.
pub(super) fn engine_stage(stage: Stage) -> EngineStage {
    match stage {
        Stage::Vad => EngineStage::Vad,
        Stage::Turn => EngineStage::Turn,
        Stage::Stt => EngineStage::Stt,
        Stage::Tts => EngineStage::Tts,
    }
}

/// The engine that runs a family of models.
pub(super) fn kind_of(stage: Stage, family: &str) -> Option<&'static EngineKind> {
    engine_stage(stage).kind(family)
}

/// The configured engine and model of a stage.
pub(super) fn settings(config: &Config, stage: Stage) -> (&str, &str) {
    match stage {
        Stage::Vad => (&config.vad.engine, &config.vad.model),
        // The engine of this stage follows from its model.
        Stage::Turn if config.turn.model == AUTO => (AUTO, ""),
        Stage::Turn if config.turn.model.is_empty() => (NO_TURN_MODEL, ""),
        Stage::Turn => (turn::engine_of(Path::new(&config.turn.model)), &config.turn.model),
        Stage::Stt => (&config.stt.engine, &config.stt.model),
        Stage::Tts => (&config.tts.engine, &config.tts.model),
    }
}

/// The configuration for creating the choice's engine: the stage's engine name and the path of the model's main file
/// are replaced.
pub(super) fn with(config: &Config, stage: Stage, choice: &Choice) -> Config {
    let mut config = config.clone();
    let path = choice.model.as_ref().and_then(LocatedModel::main_file);
    let path = path.map(|path| path.display().to_string());
    let (engine, model) = match stage {
        Stage::Vad => (Some(&mut config.vad.engine), &mut config.vad.model),
        Stage::Turn => (None, &mut config.turn.model),
        Stage::Stt => (Some(&mut config.stt.engine), &mut config.stt.model),
        Stage::Tts => (Some(&mut config.tts.engine), &mut config.tts.model),
    };
    if let Some(engine) = engine {
        choice.engine.clone_into(engine);
    }
    if let Some(path) = path {
        *model = path;
    }
    config
}

/// The choices for a stage. Blocks while it reads the models' folder. An error if the configured model is unknown,
/// missing or damaged.
pub(super) fn choices(
    config: &Config,
    catalog: &Catalog,
    factory: &dyn EngineFactory,
    trials: &Trials,
    stage: Stage,
) -> Result<Choices, StageFailure> {
    let (engine, model) = settings(config, stage);
    let of_family = |entry: &Entry| entry.stage == stage && (engine == AUTO || entry.family == engine);
    let here = || here(config, catalog, trials, stage, |entry| of_family(entry) && factory.knows(stage, &entry.family));
    let only = |choice| Choices { best_first: vec![choice], passed_over: Vec::new() };
    if engine != AUTO && !catalog.entries().iter().any(of_family) {
        return Ok(only(Choice::plain(engine)));
    }
    let failed = |cause| StageFailure::new(name_of(stage), engine, cause);
    if is_named(config, stage) {
        let is_path = Path::new(model).exists() || model.contains('/');
        if is_path && engine != AUTO {
            // The engine itself validates the path.
            return Ok(only(Choice::plain(engine)));
        }
        let named = named(config, catalog, model, of_family).map_err(|cause| match engine {
            AUTO => failed(format!("{cause}; for a model outside the registry, set its engine in {stage}.engine")),
            _ => failed(cause),
        })?;
        if engine != AUTO {
            return Ok(only(named));
        }
        let mut choices = here();
        choices.best_first.retain(|choice| *choice != named);
        choices.best_first.insert(0, named);
        choices.best_first.push(Choice::plain(offline(stage)));
        return Ok(choices);
    }
    let mut choices = here();
    if engine == AUTO {
        choices.best_first.push(Choice::plain(offline(stage)));
        return Ok(choices);
    }
    choices.best_first.truncate(1);
    if let Some(passed) = choices.passed_over.first().filter(|_| choices.best_first.is_empty()) {
        return Err(failed(passed.why.clone()));
    }
    if choices.best_first.is_empty() {
        let family = catalog.entries().iter().filter(|entry| of_family(entry));
        let usual = family.max_by_key(|entry| (speaks(config, entry), entry.auto));
        let usual = usual.map_or("NAME", |entry| entry.name.as_str());
        let dir = &config.models.dir;
        return Err(failed(format!(
            "no model of {engine} is in {dir}: get one with `antiphon models pull {usual}`, or see `antiphon models list`"
        )));
    }
    Ok(choices)
}

/// The configured registry model, if it belongs to the family and is on disk.
fn named(
    config: &Config,
    catalog: &Catalog,
    model: &str,
    of_family: impl Fn(&Entry) -> bool,
) -> Result<Choice, String> {
    let wanted = catalog.find(model).map_err(|error| error.to_string())?;
    let entry = wanted.entry;
    if !of_family(entry) {
        return Err(format!("the model {} is one of {} ({})", entry.name, entry.family, entry.stage));
    }
    let located = locate(&config.models, wanted).map_err(|error| error.to_string())?;
    Ok(Choice { engine: entry.family.clone(), model: Some(located) })
}

/// Whether a model of the family serves new sessions once it is the best one on disk.
pub(super) fn takes_the_best(config: &Config, entry: &Entry) -> bool {
    let engine = settings(config, entry.stage).0;
    (engine == AUTO || engine == entry.family) && !is_named(config, entry.stage)
}

/// Cores of the machine that the recommended models are for.
const USUAL_CORES: u32 = 2;

/// The models to begin with, one for each of recognizer, voice and voice activity: the best one that two cores run in time, that
/// speaks `stt.language`, that serves once it is on the disk, and that is there or can be pulled. A stage whose engine or model the
/// configuration names has none.
pub fn recommended<'a>(config: &Config, catalog: &'a Catalog, factory: &dyn EngineFactory) -> Vec<&'a Entry> {
    let best = |stage: Stage| {
        let serves = |entry: &&Entry| {
            entry.stage == stage
                && entry.auto > 0
                && expected(entry, USUAL_CORES, 1.0)
                    .is_some_and(|trial| trial.verdict(stage, objective_ms(config)).is_ok())
                && factory.knows(stage, &entry.family)
                && speaks(config, entry)
                && takes_the_best(config, entry)
                && (entry.is_pulled() || locate(&config.models, ModelRequest { entry, precision: None }).is_ok())
        };
        catalog.entries().iter().filter(serves).max_by_key(|entry| entry.auto)
    };
    [Stage::Stt, Stage::Tts, Stage::Vad].into_iter().filter_map(best).collect()
}

/// The figures to expect of a model that was not measured, on a machine that takes `slowness` times as long as the registry's
/// figure says. `None`: the registry has none.
pub(super) fn expected(entry: &Entry, n_cores: u32, slowness: f64) -> Option<Trial> {
    let wait_ms = (slowness * f64::from(entry.core_ms?) / f64::from(n_cores.max(1))).min(f64::from(u32::MAX)) as u32;
    Some(Trial { wait_ms, both_ms: wait_ms.saturating_mul(2), share: 0.0 })
}

/// How much longer than the registry's figure says the model took, if it has one.
pub(super) fn slowness(entry: &Entry, n_cores: u32, measured: Trial) -> Option<f64> {
    let expected = expected(entry, n_cores, 1.0)?.wait_ms;
    (expected > 0).then(|| f64::from(measured.wait_ms) / f64::from(expected))
}

/// The objective for voice-to-voice latency in milliseconds; 0: there is none.
pub(super) fn objective_ms(config: &Config) -> u32 {
    config.slo.voice_to_voice_ms
}

/// Whether the stage's model was set explicitly; the default is a model of a remote server.
pub(super) fn is_named(config: &Config, stage: Stage) -> bool {
    let model = settings(config, stage).1;
    !model.is_empty() && model != settings(&Config::default(), stage).1
}

/// A matching model on disk.
struct Candidate<'a> {
    entry: &'a Entry,
    located: LocatedModel,
    trial: Option<Trial>,
    /// Why it is too slow, if it is.
    slow: Option<String>,
}

impl Candidate<'_> {
    /// The order of choice: language, speed, rank; of models that are all too slow, the fastest.
    fn rank(&self, config: &Config) -> impl Ord + use<> {
        let wait_ms = self.trial.filter(|_| self.slow.is_some()).map(|trial| trial.wait_ms);
        (speaks(config, self.entry), std::cmp::Reverse(wait_ms), self.entry.auto)
    }
}

/// The matching models on disk, best first. STT models that do not support the configured language are excluded; TTS
/// models that support it come first.
fn here(config: &Config, catalog: &Catalog, trials: &Trials, stage: Stage, wanted: impl Fn(&Entry) -> bool) -> Choices {
    let fits = |entry: &&Entry| entry.stage != Stage::Stt || speaks(config, entry);
    let mut passed_over = Vec::new();
    let mut candidates = Vec::new();
    for entry in catalog.entries().iter().filter(|entry| entry.auto > 0 && wanted(entry)).filter(fits) {
        match locate(&config.models, ModelRequest { entry, precision: None }) {
            Ok(located) => {
                let trial = trials.of(config, stage, &located);
                let slow = trial.and_then(|trial| trial.verdict(stage, objective_ms(config)).err());
                candidates.push(Candidate { entry, located, trial, slow });
            }
            Err(RegistryError::Absent { .. }) => {}
            Err(error) => {
                passed_over.push(PassedOver { model: entry.name.clone(), why: error.to_string(), slow: false });
            }
        }
    }
    candidates.sort_by_key(|candidate| std::cmp::Reverse(candidate.rank(config)));
    let chosen = candidates.first().map(|first| first.entry.auto);
    for candidate in &candidates {
        let Some(why) = candidate.slow.clone().filter(|_| Some(candidate.entry.auto) > chosen) else { continue };
        let model = format!("{}:{}", candidate.located.name, candidate.located.precision);
        passed_over.push(PassedOver { model, why, slow: true });
    }
    let choice =
        |candidate: Candidate| Choice { engine: candidate.entry.family.clone(), model: Some(candidate.located) };
    Choices { best_first: candidates.into_iter().map(choice).collect(), passed_over }
}

/// Whether the model supports the language set in `stt.language`, or detects it where that asks for it; always true for other
/// stages than STT and TTS.
pub(super) fn speaks(config: &Config, entry: &Entry) -> bool {
    match entry.stage {
        // It must know several to detect which is spoken.
        Stage::Stt if config.stt.language == DETECT_LANGUAGE => entry.languages.len() != 1,
        Stage::Stt | Stage::Tts => entry.speaks(config.stt.language_code().as_deref()),
        _ => true,
    }
}

/// The stage's name in the configuration.
pub(super) fn name_of(stage: Stage) -> &'static str {
    engine_stage(stage).name()
}
