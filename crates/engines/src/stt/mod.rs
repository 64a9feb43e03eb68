//! Speech recognizers: Whisper, a streaming transducer, servers with OpenAI's transcription endpoint, and servers that stream.
//!
//! A local engine that takes one utterance at a time implements the synchronous [`SttStream`], and an engine pool drives it
//! ([`local`]). One that takes all of them at once, or is remote, implements the port directly.

mod config;
#[cfg(feature = "whisper")]
pub mod local;
#[cfg(feature = "moshi")]
pub mod moshi;
pub mod none;
#[cfg(feature = "openai")]
pub mod openai;
#[cfg(feature = "openai")]
pub mod realtime;
#[cfg(feature = "words")]
mod speech_server;
#[cfg(feature = "words")]
mod streamed;
#[cfg(any(feature = "openai", feature = "transducer", feature = "whisper"))]
pub mod terms;
#[cfg(feature = "transducer")]
pub mod transducer;
#[cfg(feature = "whisper")]
pub mod whisper;

pub use config::SttConfig;

use crate::table::{EngineEntry, EngineKind, EngineStage, ModelSource, made_with};
use antiphon_engine_api::stt::{SpeakerState, Stt, SttError, SttOptions, Transcript};
use antiphon_types::RunsOn;
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

/// The recognizers.
pub static ENGINES: &[EngineEntry<dyn Stt>] = &[
    EngineEntry {
        kind: EngineKind {
            stage: EngineStage::Stt,
            name: none::NAME,
            feature: None,
            model: ModelSource::BuiltIn,
            needs_onnx: false,
        },
        make: Some(|_| Ok(Arc::new(none::NoRecognizer))),
    },
    EngineEntry {
        kind: EngineKind {
            stage: EngineStage::Stt,
            name: "whisper",
            feature: Some("whisper"),
            model: ModelSource::Files,
            needs_onnx: false,
        },
        make: made_with!("whisper", |settings| Ok(Arc::new(whisper::open(settings.stt)?))),
    },
    EngineEntry {
        kind: EngineKind {
            stage: EngineStage::Stt,
            name: "transducer",
            feature: Some("transducer"),
            model: ModelSource::SlotFiles,
            needs_onnx: true,
        },
        make: made_with!("transducer", |settings| Ok(Arc::new(transducer::open(settings.stt, settings.onnx)?))),
    },
    EngineEntry {
        kind: EngineKind {
            stage: EngineStage::Stt,
            name: "openai",
            feature: Some("openai"),
            model: ModelSource::Server { has_default_model: true },
            needs_onnx: false,
        },
        make: made_with!("openai", |settings| Ok(Arc::new(openai::OpenAiStt::new(settings.stt)?))),
    },
    EngineEntry {
        kind: EngineKind {
            stage: EngineStage::Stt,
            name: "realtime",
            feature: Some("openai"),
            model: ModelSource::Server { has_default_model: true },
            needs_onnx: false,
        },
        make: made_with!("openai", |settings| Ok(Arc::new(realtime::Realtime::new(settings.stt)?))),
    },
    EngineEntry {
        kind: EngineKind {
            stage: EngineStage::Stt,
            name: "moshi",
            feature: Some("moshi"),
            model: ModelSource::Server { has_default_model: false },
            needs_onnx: false,
        },
        make: made_with!("moshi", |settings| Ok(Arc::new(moshi::Moshi::new(settings.stt)?))),
    },
];

/// A synchronous engine's stream, as a pool drives it ([`local::Local`] is the adapter). It outlives its utterances: one
/// at a time passes through it. All methods may block for as long as decoding takes.
pub trait SttStream: Send {
    /// Begins an utterance in a clean state, also when the last one was never finished.
    fn begin(&mut self, options: &SttOptions) -> Result<(), SttError>;
    /// Takes the next mono PCM at [`RATE`], and decodes it where the engine decodes as it goes.
    fn push(&mut self, pcm: &[i16], cancel: &CancellationToken) -> Result<(), SttError>;
    /// What was understood so far.
    fn partial(&mut self, cancel: &CancellationToken) -> Result<Transcript, SttError>;
    /// The final transcript if the utterance ended here; the stream stays open.
    fn provisional(&mut self, cancel: &CancellationToken) -> Result<Transcript, SttError>;
    /// Ends the utterance.
    fn finish(&mut self, cancel: &CancellationToken) -> Result<Transcript, SttError>;
    /// Ends an utterance whose words are not asked for any more; see [`SttUtterance::learn`].
    fn learn(&mut self) -> Result<Option<SpeakerState>, SttError> {
        Ok(None)
    }
    /// What its calls keep busy.
    fn runs_on(&self) -> RunsOn {
        RunsOn::default()
    }
    /// Discards the utterance, however it ended: its audio and its words. The pool's adapter calls it after each one.
    fn forget(&mut self) {}
}
