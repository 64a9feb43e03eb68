//! Selects the engine and model of a stage, best first: the configured one, or with "auto" those available on disk.
//!
//! [`super::EngineManager`] tries the choices in order. With "auto" these are the configured model, if any; the models
//! on disk whose engine this program includes, by descending rank in the registry; and the engine that needs no model.
//! Damaged models on disk are reported with the choices. Nothing is loaded here.

use super::{EngineFactory, StageFailure};
use crate::config::Config;
use antiphon_engine_api::stt::DETECT_LANGUAGE;
use antiphon_registry::{Catalog, Entry, Located, RegistryError, Stage, Wanted, locate};
use serde::Serialize;
use std::path::Path;

/// The setting that selects the best available model.
pub const AUTO: &str = "auto";

/// The engine name of turn detection without a turn model: silence, wording and prosody.
pub(super) const NO_TURN_MODEL: &str = "silence";

/// An engine, and the registry model it runs, if any.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Choice {
    pub(super) engine: String,
    pub(super) model: Option<Located>,
}

/// A model on disk that cannot serve.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PassedOver {
    /// The model, with its precision if known.
    pub model: String,
    /// The reason.
    pub why: String,
}

/// The choices for a stage, best first, never empty; and the models that were skipped because they are damaged.
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

/// The engine of a stage that needs no model.
fn offline(stage: Stage) -> &'static str {
    match stage {
        Stage::Vad => "earshot",
        Stage::Turn => NO_TURN_MODEL,
        Stage::Stt => "sphinx",
        Stage::Tts => "flite",
    }
}

/// The configured engine and model of a stage.
pub(super) fn settings(config: &Config, stage: Stage) -> (&str, &str) {
    match stage {
        Stage::Vad => (&config.vad.engine, &config.vad.model),
        // The engine of this stage follows from its model.
        Stage::Turn if config.turn.model == AUTO => (AUTO, ""),
        Stage::Turn if config.turn.model.is_empty() => (NO_TURN_MODEL, ""),
        Stage::Turn => ("smart-turn", &config.turn.model),
        Stage::Stt => (&config.stt.engine, &config.stt.model),
        Stage::Tts => (&config.tts.engine, &config.tts.model),
    }
}

/// The configuration for creating the choice's engine: the stage's engine name and the path of the model's main file
/// are replaced.
pub(super) fn with(config: &Config, stage: Stage, choice: &Choice) -> Config {
    let mut config = config.clone();
    let path = choice.model.as_ref().and_then(Located::main_file);
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
    makes: &dyn EngineFactory,
    stage: Stage,
) -> Result<Choices, StageFailure> {
    let (engine, model) = settings(config, stage);
    let of_family = |entry: &Entry| entry.stage == stage && (engine == AUTO || entry.family == engine);
    let here = || here(config, catalog, |entry| of_family(entry) && makes.knows(stage, &entry.family));
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

/// The models to begin with, one for each of recognizer, voice and voice activity: the best one that any machine runs in real time
/// (`offer_cores = 1`), speaks `stt.language`, and serves once it is on the disk. A stage whose engine or model the configuration
/// names has none.
pub fn recommended<'a>(config: &Config, catalog: &'a Catalog, makes: &dyn EngineFactory) -> Vec<&'a Entry> {
    let best = |stage: Stage| {
        let entries = catalog.entries().iter().filter(|entry| entry.stage == stage && entry.offer_cores == 1);
        let serves = |entry: &&Entry| {
            entry.auto > 0
                && makes.knows(stage, &entry.family)
                && speaks(config, entry)
                && takes_the_best(config, entry)
        };
        entries.filter(serves).max_by_key(|entry| entry.auto)
    };
    [Stage::Stt, Stage::Tts, Stage::Vad].into_iter().filter_map(best).collect()
}

/// Whether the stage's model was set explicitly; the default is a model of a remote server.
pub(super) fn is_named(config: &Config, stage: Stage) -> bool {
    let model = settings(config, stage).1;
    !model.is_empty() && model != settings(&Config::default(), stage).1
}

/// The matching models on disk, best first. STT models that do not support the configured language are excluded; TTS
/// models that support it come first.
fn here(config: &Config, catalog: &Catalog, wanted: impl Fn(&Entry) -> bool) -> Choices {
    let fits = |entry: &&Entry| entry.stage != Stage::Stt || speaks(config, entry);
    let mut entries: Vec<_> =
        catalog.entries().iter().filter(|entry| entry.auto > 0 && wanted(entry)).filter(fits).collect();
    entries.sort_by_key(|entry| std::cmp::Reverse((speaks(config, entry), entry.auto)));
    let (mut best_first, mut passed_over) = (Vec::new(), Vec::new());
    for entry in entries {
        match locate(&config.models, Wanted { entry, precision: None }) {
            Ok(model) => best_first.push(Choice { engine: entry.family.clone(), model: Some(model) }),
            Err(RegistryError::Absent { .. }) => {}
            Err(error) => passed_over.push(PassedOver { model: entry.name.clone(), why: error.to_string() }),
        }
    }
    Choices { best_first, passed_over }
}

/// Whether the model supports the language set in `stt.language`, or detects it where that asks for it; always true for other
/// stages than STT and TTS.
pub(super) fn speaks(config: &Config, entry: &Entry) -> bool {
    match entry.stage {
        // It must know several to tell which is spoken.
        Stage::Stt if config.stt.language == DETECT_LANGUAGE => entry.languages.len() != 1,
        Stage::Stt | Stage::Tts => entry.speaks(config.stt.language_code().as_deref()),
        _ => true,
    }
}

/// The stage's name in the configuration.
pub(super) fn name_of(stage: Stage) -> &'static str {
    match stage {
        Stage::Vad => "vad",
        Stage::Turn => "turn",
        Stage::Stt => "stt",
        Stage::Tts => "tts",
    }
}
