//! Which engine and model a stage may be served by, best first: what the configuration names, or, with "auto", what is here.
//!
//! [`super::Stock`] asks and tries them in order. With "auto" these are the models on the disk whose engine this program
//! has, by the registry's rank, highest first; then the engine that needs no model. Nothing is loaded here.

use super::{Makes, StageFailure};
use crate::config::Config;
use crate::registry::{Catalog, Entry, Located, Stage, Wanted, locate};
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

/// What may serve the stage, best first; never empty.
pub(super) fn choices(
    config: &Config,
    catalog: &Catalog,
    makes: &dyn Makes,
    stage: Stage,
) -> Result<Vec<Choice>, StageFailure> {
    let (engine, model) = settings(config, stage);
    let of_family = |entry: &Entry| entry.stage == stage && (engine == AUTO || entry.family == engine);
    let here = || here(config, catalog, |entry| of_family(entry) && makes.knows(stage, &entry.family));
    if engine == AUTO {
        let mut choices = here();
        choices.push(Choice::plain(offline(stage)));
        return Ok(choices);
    }
    if !catalog.entries().iter().any(of_family) {
        return Ok(vec![Choice::plain(engine)]);
    }
    let failed = |cause| StageFailure::new(name_of(stage), engine, cause);
    if is_named(config, stage) {
        // A path is the engine's own affair.
        if Path::new(model).exists() || model.contains('/') {
            return Ok(vec![Choice::plain(engine)]);
        }
        let wanted = catalog.find(model).map_err(|error| failed(error.to_string()))?;
        if !of_family(wanted.entry) {
            let entry = wanted.entry;
            return Err(failed(format!("the model {} is one of {} ({})", entry.name, entry.family, entry.stage)));
        }
        let model = locate(&config.models, wanted).map_err(|error| failed(error.to_string()))?;
        return Ok(vec![Choice { engine: engine.into(), model: Some(model) }]);
    }
    if let Some(best) = here().into_iter().next() {
        return Ok(vec![best]);
    }
    let usual = catalog.entries().iter().filter(|entry| of_family(entry)).max_by_key(|entry| entry.auto);
    let usual = usual.map_or("NAME", |entry| entry.name.as_str());
    Err(failed(format!(
        "no model of {engine} is in {}: get one with `antiphon models pull {usual}`, or see `antiphon models list`",
        config.models.dir
    )))
}

/// Whether the stage's model is one somebody chose: the default is a remote server's.
fn is_named(config: &Config, stage: Stage) -> bool {
    let model = settings(config, stage).1;
    !model.is_empty() && model != settings(&Config::default(), stage).1
}

/// The models on the disk of those wanted, best first. For speech to text only those of the configured language.
fn here(config: &Config, catalog: &Catalog, wanted: impl Fn(&Entry) -> bool) -> Vec<Choice> {
    let language = Some(config.stt.language.as_str()).filter(|code| !code.is_empty());
    let speaks = |entry: &&Entry| entry.stage != Stage::Stt || entry.speaks(language);
    let mut entries: Vec<_> =
        catalog.entries().iter().filter(|entry| entry.auto > 0 && wanted(entry)).filter(speaks).collect();
    entries.sort_by_key(|entry| std::cmp::Reverse(entry.auto));
    let found = entries.into_iter().filter_map(|entry| {
        let model = locate(&config.models, Wanted { entry, precision: None }).ok()?;
        Some(Choice { engine: entry.family.clone(), model: Some(model) })
    });
    found.collect()
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
