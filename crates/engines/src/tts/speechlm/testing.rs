//! The tiny model of `tests/fixtures/speechlm/tiny`, for tests.

use super::contract::{CacheKind, Contract, Policy};
use super::files::ModelFiles;
#[cfg(feature = "flite")]
use crate::tts::{TtsEngine, flite::Flite};
#[cfg(feature = "flite")]
use antiphon_engine_api::tts::SpeechRequest;
use antiphon_inference::onnx::Runtime;
#[cfg(feature = "flite")]
use antiphon_types::{Pcm, SampleRate};
#[cfg(feature = "flite")]
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
#[cfg(feature = "flite")]
use tokio_util::sync::CancellationToken;

/// A file of the tiny model.
pub(super) fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/speechlm/tiny").join(name)
}

/// The runtime, where `make onnxruntime` puts its library.
pub(super) fn runtime() -> Runtime {
    Runtime::open(&crate::testing::onnx()).expect("`make onnxruntime` was run")
}

/// The contract of the tiny model with that language model.
pub(super) fn contract(language_model: &str) -> Contract {
    let text = std::fs::read_to_string(fixture("contract.toml")).expect("the fixture");
    let mut contract = Contract::parse("tiny", &text).expect("it makes sense");
    contract.decode.file = language_model.into();
    if language_model == "language_model_gqa.onnx" {
        contract.decode.policy = Policy::Ragged;
        contract.cache = CacheKind::InPlace { columns: 128 };
        contract.decode.mask = None;
        contract.decode.lengths = Some("seqlens_k".into());
        contract.decode.total = Some("total_sequence_length".into());
    }
    contract
}

/// The files of the tiny model.
pub(super) fn files(contract: &Contract) -> ModelFiles {
    ModelFiles::find(&fixture(&contract.decode.file), contract).expect("the fixture")
}

/// The reference recording of the tiny model: 0.8 s, mono at 24 kHz.
pub(super) fn recording() -> Vec<f32> {
    let wav = std::fs::read(fixture("reference.wav")).expect("the fixture");
    wav[44..].chunks_exact(2).map(|sample| f32::from(i16::from_le_bytes([sample[0], sample[1]])) / 32_768.0).collect()
}

/// A few seconds of speech, which the store of voices takes: mono at 16 kHz.
#[cfg(feature = "flite")]
pub(super) fn speech(text: &str) -> Pcm {
    let mut flite = Flite::open("slt").expect("flite is installed");
    let mut speech = Pcm { rate: SampleRate::HZ_16000, samples: Vec::new() };
    let request = SpeechRequest { text: text.into(), ..SpeechRequest::default() };
    let mut take = |pcm: Pcm| {
        speech.rate = pcm.rate;
        speech.samples.extend(pcm.samples);
        ControlFlow::Continue(())
    };
    flite.synthesize(&request, &CancellationToken::new(), &mut take).expect("spoken");
    speech
}
