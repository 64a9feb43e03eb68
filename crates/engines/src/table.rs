//! The table of engines: what each engine that the configuration can name is, whether this build has it, and how it is made.
//!
//! The entries of a stage stand in its module (`vad::ENGINES` and its siblings). The valid values of `engine`, the root's
//! factory, messages about engines that were left out of a build, health, doctor, workers and pages derive from them; there is
//! no other list. The table reads no configuration and loads nothing by itself.

use crate::llm::LlmConfig;
use crate::stt::SttConfig;
use crate::tts::TtsConfig;
use crate::vad::VadConfig;
use crate::{llm, stt, tts, turn, vad};
use antiphon_inference::OnnxConfig;
use antiphon_types::sealed::Sealing;
use std::collections::BTreeSet;
use std::error::Error;
use std::path::Path;
use std::sync::Arc;

/// The value of `engine` by which the best model on the disk is chosen.
pub const AUTO: &str = "auto";

/// What a conversation asks of engines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EngineStage {
    /// Voice activity detection.
    Vad,
    /// Turn models.
    Turn,
    /// Speech to text.
    Stt,
    /// Language models.
    Llm,
    /// Text to speech.
    Tts,
}

/// What an engine is.
#[derive(Debug)]
pub struct EngineKind {
    /// What it does.
    pub stage: EngineStage,
    /// Its name in the configuration, in metrics and on pages.
    pub name: &'static str,
    /// The Cargo feature that builds it; `None`: every build has it.
    pub feature: Option<&'static str>,
    /// What it runs.
    pub model: ModelSource,
    /// Whether it requires ONNX Runtime.
    pub needs_onnx: bool,
}

/// Where an engine's model comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ModelSource {
    /// From the program, or from a library of the system: there is none to choose. `auto` takes this engine of a stage where no
    /// model is on the disk.
    BuiltIn,
    /// From files. Each replica loads them for itself.
    Files,
    /// From files. One instance serves many requests at once by its slots.
    SlotFiles,
    /// From a server elsewhere.
    Server {
        /// Whether the default of the setting `model` names a model of such a server.
        has_default_model: bool,
    },
}

/// An engine of the port `P`, and how it is made.
#[derive(Debug)]
pub struct EngineEntry<P: ?Sized> {
    /// What it is.
    pub kind: EngineKind,
    /// Makes it. Blocks while models load. `None`: this build is without it.
    pub make: Option<Make<P>>,
}

/// Makes an engine from the settings.
pub type Make<P> = fn(&EngineSettings<'_>) -> Result<Arc<P>, EngineError>;

/// What is missing or wrong, and what would be right.
pub type EngineError = Box<dyn Error + Send + Sync>;

/// The sections of the configuration that engines are made from.
pub struct EngineSettings<'a> {
    /// `[vad]`.
    pub vad: &'a VadConfig,
    /// `turn.model`, a file.
    pub turn_model: &'a Path,
    /// `[stt]`.
    pub stt: &'a SttConfig,
    /// `[llm]`.
    pub llm: &'a LlmConfig,
    /// `[tts]`, with the folder of voices resolved.
    pub tts: &'a TtsConfig,
    /// `[onnx]`.
    pub onnx: &'a OnnxConfig,
    /// Reads the key that seals files at rest; `None`: they are not sealed. Blocks for the time of a small file.
    pub sealing: &'a dyn Fn() -> Result<Option<Arc<dyn Sealing>>, EngineError>,
}

impl EngineStage {
    /// All stages, in the order of a turn.
    pub const ALL: [Self; 5] = [Self::Vad, Self::Turn, Self::Stt, Self::Llm, Self::Tts];

    /// Its section of the configuration.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Vad => "vad",
            Self::Turn => "turn",
            Self::Stt => "stt",
            Self::Llm => "llm",
            Self::Tts => "tts",
        }
    }

    /// The stage of a section of the configuration.
    pub fn of_section(section: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|stage| stage.name() == section)
    }

    /// Its engines, as messages and documents name them.
    pub fn kinds(self) -> Vec<&'static EngineKind> {
        match self {
            Self::Vad => kinds_of(vad::ENGINES),
            Self::Turn => kinds_of(turn::ENGINES),
            Self::Stt => kinds_of(stt::ENGINES),
            Self::Llm => kinds_of(llm::ENGINES),
            Self::Tts => kinds_of(tts::ENGINES),
        }
    }

    /// The engine of this name.
    pub fn kind(self, name: &str) -> Option<&'static EngineKind> {
        self.kinds().into_iter().find(|kind| kind.name == name)
    }

    /// The engine that `auto` takes where no model is on the disk; `None`: the stage does without an engine.
    pub fn built_in(self) -> Option<&'static EngineKind> {
        self.kinds().into_iter().find(|kind| kind.model == ModelSource::BuiltIn)
    }

    /// The valid values of the setting `engine`. A language model is never chosen by what is on the disk.
    pub fn setting_values(self) -> Vec<&'static str> {
        let auto = (self != Self::Llm).then_some(AUTO);
        auto.into_iter().chain(self.kinds().into_iter().map(|kind| kind.name)).collect()
    }
}

impl EngineKind {
    /// Whether it is a server elsewhere: making it reads its settings and its key, and reaches for nothing.
    pub const fn is_remote(&self) -> bool {
        matches!(self.model, ModelSource::Server { .. })
    }

    /// Whether one instance serves many requests at once: speech language models.
    pub const fn has_slots(&self) -> bool {
        matches!(self.model, ModelSource::SlotFiles)
    }
}

/// The engines of all stages.
pub fn kinds() -> impl Iterator<Item = &'static EngineKind> {
    EngineStage::ALL.into_iter().flat_map(EngineStage::kinds)
}

/// The Cargo features of the engines that this build has.
pub fn built_features() -> BTreeSet<&'static str> {
    fn of<P: ?Sized>(engines: &'static [EngineEntry<P>]) -> impl Iterator<Item = &'static str> {
        engines.iter().filter(|entry| entry.make.is_some()).filter_map(|entry| entry.kind.feature)
    }
    let hearing = of(vad::ENGINES).chain(of(turn::ENGINES)).chain(of(stt::ENGINES));
    hearing.chain(of(llm::ENGINES)).chain(of(tts::ENGINES)).collect()
}

/// Makes the engine of this name. Blocks while models load.
///
/// # Errors
/// The engine's own, or that there is no such engine in the table or in this build.
pub fn make<P: ?Sized>(
    engines: &[EngineEntry<P>],
    name: &str,
    settings: &EngineSettings<'_>,
) -> Result<Arc<P>, EngineError> {
    let Some(entry) = engines.iter().find(|entry| entry.kind.name == name) else {
        return Err("there is no such engine".into());
    };
    match entry.make {
        Some(make) => make(settings),
        None => {
            let feature = entry.kind.feature.unwrap_or(name);
            Err(format!("this program was built without the engine {name}; build it with --features {feature}").into())
        }
    }
}

/// `Some` of what makes an engine where its feature is part of the build.
macro_rules! made_with {
    ($feature:literal, $make:expr) => {{
        #[cfg(feature = $feature)]
        {
            Some($make)
        }
        #[cfg(not(feature = $feature))]
        {
            None
        }
    }};
}
pub(crate) use made_with;

fn kinds_of<P: ?Sized>(engines: &'static [EngineEntry<P>]) -> Vec<&'static EngineKind> {
    engines.iter().map(|entry| &entry.kind).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings_of(test: impl FnOnce(&EngineSettings<'_>)) {
        test(&EngineSettings {
            vad: &VadConfig::default(),
            turn_model: Path::new(""),
            stt: &SttConfig::default(),
            llm: &LlmConfig::default(),
            tts: &TtsConfig::default(),
            onnx: &OnnxConfig::default(),
            sealing: &|| Ok(None),
        });
    }

    #[test]
    fn an_engine_is_known_by_its_stage_and_name() {
        for kind in kinds() {
            let found = kind.stage.kind(kind.name).expect("an engine");
            assert!(std::ptr::eq(found, kind), "{kind:?} is in the table of another stage, or its name is taken");
            assert_ne!(kind.name, AUTO);
        }
        for stage in EngineStage::ALL {
            assert_eq!(EngineStage::of_section(stage.name()), Some(stage));
            let n_built_in = stage.kinds().iter().filter(|kind| kind.model == ModelSource::BuiltIn).count();
            assert_eq!(n_built_in, usize::from(stage != EngineStage::Turn), "{stage:?}");
        }
    }

    #[test]
    fn the_features_of_engines_are_those_of_the_manifest() {
        let manifest = include_str!("../Cargo.toml");
        let default = manifest.lines().find_map(|line| line.strip_prefix("default = [")).expect("a list");
        let default: BTreeSet<&str> = default.split('"').skip(1).step_by(2).collect();
        let mut features: BTreeSet<&str> = kinds().filter_map(|kind| kind.feature).collect();
        // Remote tools are no stage.
        features.insert("mcp");
        assert_eq!(features, default);
    }

    #[test]
    fn an_engine_that_is_not_built_in_is_named_with_its_feature() {
        let left_out = EngineEntry::<()> {
            kind: EngineKind {
                stage: EngineStage::Stt,
                name: "parrot",
                feature: Some("birds"),
                model: ModelSource::Files,
                needs_onnx: false,
            },
            make: None,
        };
        settings_of(|settings| {
            let refused =
                |name| make(std::slice::from_ref(&left_out), name, settings).expect_err("refused").to_string();
            let expected = "this program was built without the engine parrot; build it with --features birds";
            assert_eq!(refused("parrot"), expected);
            assert_eq!(refused("flite"), "there is no such engine");
        });
    }
}
