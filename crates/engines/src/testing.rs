//! What the tests of several engines need.

/// ONNX Runtime where `make onnxruntime` puts it: tests run in their package's folder, not in the repository's.
#[cfg(feature = "onnx")]
pub(crate) fn onnx() -> antiphon_inference::onnx::OnnxConfig {
    let runtime = concat!(env!("CARGO_MANIFEST_DIR"), "/../../models/onnxruntime").into();
    antiphon_inference::onnx::OnnxConfig { runtime, ..Default::default() }
}
