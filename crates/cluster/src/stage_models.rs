//! The models that the settings name for the stages of workers, and which workers go together.
//!
//! Requests of the stages `stt` and `turn` name no model. So that the answer does not depend on the worker that a request
//! reaches, such a stage has one model: that of `cluster.stt_model` and `cluster.turn_model`, or else that of the first worker.
//! A fallback model is a second one, for requests that no worker with the first one takes. A hub and a worker decide by the
//! same rules: the hub which workers it uses, the worker whether it starts.

use crate::message::{Stage, StageLoad};
use crate::{ClusterConfig, ClusterError};

/// The stages that have one model. Voices name their model, so that text to speech may have several.
pub(crate) const ONE_MODEL: [Stage; 2] = [Stage::Stt, Stage::Turn];

/// The model that the settings name for a stage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StageModel {
    /// The key of [`StageModel::model`] in the section `[cluster]`.
    pub(crate) setting: &'static str,
    /// The model of the stage.
    pub(crate) model: String,
    /// The model for requests that no worker with the other one takes.
    pub(crate) fallback: Option<String>,
}

/// The models that the settings name, by stage.
#[derive(Clone, Debug, Default)]
pub(crate) struct StageModels([Option<StageModel>; Stage::ALL.len()]);

/// Two workers' models that do not go together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ModelClash {
    /// One name stands for different files.
    Files { stage: Stage, model: String },
    /// Requests of a stage name no model, no setting does either, and these are two.
    Models { stage: Stage, own: String, model: String },
}

/// A stage of a worker whose model is neither the one that a setting names, nor its fallback.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct WrongModel<'a> {
    pub(crate) stage: Stage,
    /// The worker's model.
    pub(crate) own: String,
    /// What the settings name.
    pub(crate) wanted: &'a StageModel,
}

impl WrongModel<'_> {
    /// What is wrong, and what to do. `whose` begins the sentence and ends before the stage's name.
    pub(crate) fn message(&self, whose: &str) -> String {
        let Self { stage, own, wanted } = self;
        let StageModel { setting, model, fallback } = wanted;
        let names = match fallback {
            None => format!("cluster.{setting} names {model:?}"),
            Some(fallback) => {
                format!("cluster.{setting} names {model:?}, and cluster.{stage}_fallback_model {fallback:?}")
            }
        };
        format!(
            "{whose} {stage} is {own:?}, but {names}: let the worker serve {model:?} (is it pulled there?), or change the setting \
             on hubs and workers"
        )
    }
}

impl StageModel {
    fn admits(&self, model: &str) -> bool {
        self.model == model || self.fallback.as_deref() == Some(model)
    }
}

impl StageModels {
    /// What the settings name, as far as it is right: see [`StageModels::problems`].
    pub(crate) fn of(config: &ClusterConfig) -> Self {
        let mut models = Self::default();
        for Settings { stage, key, model, fallback, .. } in settings(config) {
            if !model.is_empty() {
                let fallback = (!fallback.is_empty() && fallback != model).then(|| fallback.to_owned());
                models.0[stage as usize] = Some(StageModel { setting: key, model: model.to_owned(), fallback });
            }
        }
        models
    }

    /// What is wrong with these settings.
    pub(crate) fn problems(config: &ClusterConfig) -> Vec<ClusterError> {
        let mut found = Vec::new();
        for Settings { key, model, fallback_key, fallback, .. } in settings(config) {
            let message = match (model, fallback) {
                (_, "") => continue,
                ("", fallback) => {
                    format!("{fallback:?} is the fallback of a model that is not named: set cluster.{key}, too")
                }
                (model, fallback) if model == fallback => {
                    format!("{fallback:?} is the model of cluster.{key}: name another one, or none")
                }
                _ => continue,
            };
            found.push(ClusterError::Setting { setting: fallback_key, message });
        }
        found
    }

    /// The model of a stage; `None`: the settings name none.
    pub(crate) fn of_stage(&self, stage: Stage) -> Option<&StageModel> {
        self.0[stage as usize].as_ref()
    }

    /// The models that may serve a request of the stage, the first choice first; `None`: any. `asked`: the model that the request
    /// names.
    pub(crate) fn choices<'a>(&'a self, stage: Stage, asked: Option<&'a str>) -> Vec<Option<&'a str>> {
        match (asked, self.of_stage(stage)) {
            (None, Some(of_stage)) => {
                let fallback = of_stage.fallback.as_deref().map(Some);
                [Some(of_stage.model.as_str())].into_iter().chain(fallback).collect()
            }
            (asked, _) => vec![asked],
        }
    }

    /// Whether the model is the fallback of its stage.
    pub(crate) fn is_fallback(&self, stage: Stage, model: &str) -> bool {
        self.of_stage(stage).is_some_and(|of_stage| of_stage.fallback.as_deref() == Some(model))
    }

    /// The first stage of a worker whose model is not one that the settings name.
    pub(crate) fn wrong_model(&self, stages: &[StageLoad]) -> Option<WrongModel<'_>> {
        stages.iter().find_map(|load| {
            let wanted = self.of_stage(load.stage)?;
            let own = load.model.clone();
            (!wanted.admits(&own)).then_some(WrongModel { stage: load.stage, own, wanted })
        })
    }

    /// Why the models of two workers do not go together, if they do not. Where a setting names the model of a stage, the two
    /// are not compared but for their files: [`StageModels::wrong_model`] says which of them is wrong.
    pub(crate) fn clash(&self, own: &[StageLoad], others: &[StageLoad]) -> Option<ModelClash> {
        let pairs = own.iter().flat_map(|own| others.iter().map(move |other| (own, other)));
        pairs.filter(|(own, other)| own.stage == other.stage).find_map(|(own, other)| {
            let stage = own.stage;
            let model = other.model.clone();
            let is_free = !ONE_MODEL.contains(&stage) || self.of_stage(stage).is_some();
            match own.model == other.model {
                true if own.fingerprint != other.fingerprint => Some(ModelClash::Files { stage, model }),
                false if !is_free => Some(ModelClash::Models { stage, own: own.model.clone(), model }),
                _ => None,
            }
        })
    }
}

/// The settings of a stage.
struct Settings<'a> {
    stage: Stage,
    /// The key of `model`.
    key: &'static str,
    model: &'a str,
    /// The key of `fallback`.
    fallback_key: &'static str,
    fallback: &'a str,
}

/// The settings of each stage that has one model.
fn settings(config: &ClusterConfig) -> [Settings<'_>; 2] {
    let stt = Settings {
        stage: Stage::Stt,
        key: "stt_model",
        model: &config.stt_model,
        fallback_key: "stt_fallback_model",
        fallback: &config.stt_fallback_model,
    };
    let turn = Settings {
        stage: Stage::Turn,
        key: "turn_model",
        model: &config.turn_model,
        fallback_key: "turn_fallback_model",
        fallback: &config.turn_fallback_model,
    };
    [stt, turn]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fallback_without_a_model_or_equal_to_it_is_a_wrong_setting() {
        let said =
            |config: &ClusterConfig| StageModels::problems(config).iter().map(ToString::to_string).collect::<Vec<_>>();
        assert!(said(&ClusterConfig::default()).is_empty());
        let without = ClusterConfig {
            stt_model: "whisper-base".into(),
            turn_fallback_model: "smart-turn".into(),
            ..ClusterConfig::default()
        };
        let expect = "cluster.turn_fallback_model: \"smart-turn\" is the fallback of a model that is not named: set \
                      cluster.turn_model, too";
        assert_eq!(said(&without), [expect]);
        let mut equal = ClusterConfig {
            stt_model: "whisper-base".into(),
            stt_fallback_model: "whisper-base".into(),
            ..ClusterConfig::default()
        };
        let expect =
            "cluster.stt_fallback_model: \"whisper-base\" is the model of cluster.stt_model: name another one, or none";
        assert_eq!(said(&equal), [expect]);
        equal.stt_fallback_model = "moonshine".into();
        assert!(said(&equal).is_empty());
    }
}
