//! Voices: flite; Piper, Kokoro and hibari on ONNX Runtime; and speech servers with OpenAI's endpoint, fish-speech's or
//! moshi-server's.
//!
//! A local engine implements the synchronous [`TtsEngine`], or [`BatchTtsEngine`](batched::BatchTtsEngine) where one run can
//! speak several chunks; [`local`] drives the one, [`batched`] the other. A neural family implements both, and
//! `neural::serve` takes the one that its model and the configuration allow. A remote engine implements the port directly.

#[cfg(feature = "misaki")]
mod alphabet;
#[cfg(feature = "neural")]
pub mod batched;
mod config;
#[cfg(any(feature = "flite", feature = "neural", feature = "speechlm"))]
mod deadline;
#[cfg(any(feature = "openai", feature = "fish"))]
mod decode;
#[cfg(feature = "fish")]
pub mod fish;
#[cfg(feature = "flite")]
pub mod flite;
#[cfg(feature = "hibari")]
pub mod hibari;
#[cfg(feature = "kokoro")]
pub mod kokoro;
#[cfg(any(feature = "flite", feature = "neural"))]
mod level;
#[cfg(any(feature = "flite", feature = "neural"))]
pub mod local;
#[cfg(feature = "misaki")]
mod misaki;
#[cfg(feature = "moshi")]
pub mod moshi;
#[cfg(feature = "neural")]
mod neural;
#[cfg(feature = "neural")]
mod numbers;
#[cfg(feature = "openai")]
pub mod openai;
#[cfg(feature = "neural")]
pub mod phonemes;
#[cfg(feature = "piper")]
pub mod piper;
#[cfg(any(feature = "openai", feature = "fish"))]
mod server_voices;
#[cfg(feature = "speech-server")]
mod speech_server;
#[cfg(feature = "speechlm")]
pub mod speechlm;
#[cfg(any(feature = "openai", feature = "fish"))]
mod streamed;
#[cfg(any(feature = "speechlm", feature = "moshi"))]
mod stretched;
#[cfg(any(feature = "flite", feature = "neural"))]
mod trim;
#[cfg(feature = "speechlm")]
pub mod voices;
#[cfg(feature = "words")]
mod words;

pub use config::TtsConfig;

use crate::table::{EngineEntry, EngineKind, EngineStage, ModelSource, made_with};
use antiphon_engine_api::tts::{Repeats, SpeechRequest, Tts, TtsError, Voice};
use antiphon_types::{Pcm, RunsOn};
use std::ops::ControlFlow;
#[cfg(any(
    feature = "flite",
    feature = "kokoro",
    feature = "openai",
    feature = "fish",
    feature = "moshi",
    feature = "speechlm"
))]
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

/// The voices' engines.
pub static ENGINES: &[EngineEntry<dyn Tts>] = &[
    EngineEntry {
        kind: EngineKind {
            stage: EngineStage::Tts,
            name: "flite",
            feature: Some("flite"),
            model: ModelSource::BuiltIn,
            needs_onnx: false,
        },
        make: made_with!("flite", |settings| Ok(Arc::new(flite::start(settings.tts)?))),
    },
    EngineEntry {
        kind: EngineKind {
            stage: EngineStage::Tts,
            name: "piper",
            feature: Some("piper"),
            model: ModelSource::Files,
            needs_onnx: true,
        },
        make: made_with!("piper", |settings| Ok(piper::start(settings.tts, settings.onnx)?)),
    },
    EngineEntry {
        kind: EngineKind {
            stage: EngineStage::Tts,
            name: "kokoro",
            feature: Some("kokoro"),
            model: ModelSource::Files,
            needs_onnx: true,
        },
        make: made_with!("kokoro", |settings| Ok(Arc::new(kokoro::KokoroTts::start(settings.tts, settings.onnx)?))),
    },
    EngineEntry {
        kind: EngineKind {
            stage: EngineStage::Tts,
            name: "hibari",
            feature: Some("hibari"),
            model: ModelSource::Files,
            needs_onnx: true,
        },
        make: made_with!("hibari", |settings| Ok(hibari::start(settings.tts, settings.onnx)?)),
    },
    EngineEntry {
        kind: EngineKind {
            stage: EngineStage::Tts,
            name: "speechlm",
            feature: Some("speechlm"),
            model: ModelSource::SlotFiles,
            needs_onnx: true,
        },
        make: made_with!("speechlm", |settings| {
            let key = (settings.sealing)()?;
            Ok(Arc::new(speechlm::SpeechLm::start(settings.tts, settings.onnx, key)?))
        }),
    },
    EngineEntry {
        kind: EngineKind {
            stage: EngineStage::Tts,
            name: "openai",
            feature: Some("openai"),
            model: ModelSource::Server { has_default_model: true },
            needs_onnx: false,
        },
        make: made_with!("openai", |settings| Ok(Arc::new(openai::OpenAiTts::new(settings.tts)?))),
    },
    EngineEntry {
        kind: EngineKind {
            stage: EngineStage::Tts,
            name: "fish",
            feature: Some("fish"),
            model: ModelSource::Server { has_default_model: false },
            needs_onnx: false,
        },
        make: made_with!("fish", |settings| Ok(Arc::new(fish::Fish::new(settings.tts)?))),
    },
    EngineEntry {
        kind: EngineKind {
            stage: EngineStage::Tts,
            name: "moshi",
            feature: Some("moshi"),
            model: ModelSource::Server { has_default_model: false },
            needs_onnx: false,
        },
        make: made_with!("moshi", |settings| Ok(Arc::new(moshi::Moshi::new(settings.tts)?))),
    },
];

/// A synchronous engine, as an engine pool drives it.
pub trait TtsEngine: Send {
    /// The voices, the default one first.
    fn voices(&self) -> &[Voice];

    /// How far the same request in `voice`, one of [`voices`](Self::voices), gives the same speech again
    /// ([`Tts::repeats`](antiphon_engine_api::tts::Tts::repeats)).
    fn repeats(&self, _voice: &str) -> Repeats {
        Repeats::Never
    }

    /// What a synthesis keeps busy.
    fn runs_on(&self) -> RunsOn {
        RunsOn::default()
    }

    /// Calls `sink` with mono PCM as it is made; `Break` stops synthesis. Blocks for as long as synthesis takes.
    fn synthesize(
        &mut self,
        request: &SpeechRequest,
        cancel: &CancellationToken,
        sink: &mut dyn FnMut(Pcm) -> ControlFlow<()>,
    ) -> Result<(), TtsError>;
}

/// Whether the engine itself may be broken (its device is lost, for example) and has to be restarted: not where only the
/// request is at fault.
#[cfg(any(feature = "flite", feature = "neural"))]
fn is_breakage(error: &TtsError) -> bool {
    let TtsError::Engine { source, .. } = error else { return false };
    #[cfg(feature = "onnx")]
    if let Some(error) = source.as_ref().and_then(|source| source.downcast_ref()) {
        use antiphon_inference::onnx::OnnxError;
        return !matches!(error, OnnxError::Inputs { .. } | OnnxError::Cancelled);
    }
    let _ = source;
    true
}
