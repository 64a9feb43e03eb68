//! Which engine and model a stage may be served by, best first: what the configuration names, or, with "auto", what is here.
//!
//! [`super::EngineManager`] asks and tries them in order. With "auto" these are the model that is named, if one is, and those on the
//! disk whose engine this program has, by the registry's rank, highest first; then the engine that needs no model. What is
//! here and damaged is told with them. Nothing is loaded here.

use super::{EngineFactory, StageFailure};
use crate::config::Config;
use antiphon_registry::{Catalog, Entry, Located, RegistryError, Stage, Wanted, locate};
use serde::Serialize;
use std::path::Path;

/// The word for "the best that is here".
pub const AUTO: &str = "auto";

/// What takes turns where no turn model does: silence, words and voice.
pub(super) const NO_TURN_MODEL: &str = "silence";

/// An engine, and the model it runs where it runs one of the registry's.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Choice {
    pub(super) engine: String,
    pub(super) model: Option<Located>,
}

/// A model that is here and does not serve.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PassedOver {
    /// The model, with its precision where that is known.
    pub model: String,
    /// Why not.
    pub why: String,
}

/// What may serve a stage, best first, never empty; and what could if it were not damaged.
pub(super) struct Choices {
    pub(super) best_first: Vec<Choice>,
    pub(super) passed_over: Vec<PassedOver>,
}

impl Choice {
    fn plain(engine: &str) -> Self {
        Self { engine: engine.into(), model: None }
    }

    /// The model as settings name it.
    pub(super) fn model_name(&self) -> Option<String> {
        self.model.as_ref().map(|model| format!("{}:{}", model.name, model.precision))
    }
}

/// The engine that serves a stage without a model.
fn offline(stage: Stage) -> &'static str {
    match stage {
        Stage::Vad => "earshot",
        Stage::Turn => NO_TURN_MODEL,
        Stage::Stt => "sphinx",
        Stage::Tts => "flite",
    }
}

/// A stage's engine and model as configured.
pub(super) fn settings(config: &Config, stage: Stage) -> (&str, &str) {
    match stage {
        Stage::Vad => (&config.vad.engine, &config.vad.model),
        // Its engine follows from its model.
        Stage::Turn if config.turn.model == AUTO => (AUTO, ""),
        Stage::Turn if config.turn.model.is_empty() => (NO_TURN_MODEL, ""),
        Stage::Turn => ("smart-turn", &config.turn.model),
        Stage::Stt => (&config.stt.engine, &config.stt.model),
        Stage::Tts => (&config.tts.engine, &config.tts.model),
    }
}

/// The settings with which the choice's engine is made: the stage's, with engine and the model's main file.
pub(super) fn with(config: &Config, stage: Stage, choice: &Choice) -> Config {
    let mut config = config.clone();
    let path = choice.model.as_ref().and_then(|model| model.file("model").or_else(|| model.file("graph")));
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

/// What may serve the stage.
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
            // The engine's own affair.
            return Ok(only(Choice::plain(engine)));
        }
        let named = named(config, catalog, model, of_family).map_err(|cause| match engine {
            AUTO => {
                failed(format!("{cause}; what is no model of the registry needs its engine named, in {stage}.engine"))
            }
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

/// The model of the registry that is named, where it is of the family and on the disk.
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

/// Whether a model of the family serves new sessions once it is on the disk and the best of them.
pub(super) fn takes_the_best(config: &Config, entry: &Entry) -> bool {
    let engine = settings(config, entry.stage).0;
    (engine == AUTO || engine == entry.family) && !is_named(config, entry.stage)
}

/// Whether the stage's model is one somebody chose: the default is a remote server's.
pub(super) fn is_named(config: &Config, stage: Stage) -> bool {
    let model = settings(config, stage).1;
    !model.is_empty() && model != settings(&Config::default(), stage).1
}

/// The models on the disk of those wanted, best first. Ears that do not know the configured language are none; voices that
/// speak it come before those that do not.
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

/// Whether the model is one for the language that `stt.language` sets for the hub.
pub(super) fn speaks(config: &Config, entry: &Entry) -> bool {
    let language = Some(config.stt.language.as_str()).filter(|code| !code.is_empty());
    !matches!(entry.stage, Stage::Stt | Stage::Tts) || entry.speaks(language)
}

/// The stage as the configuration calls it.
pub(super) fn name_of(stage: Stage) -> &'static str {
    match stage {
        Stage::Vad => "vad",
        Stage::Turn => "turn",
        Stage::Stt => "stt",
        Stage::Tts => "tts",
    }
}
