//! The tiny recognizer of `tests/fixtures/transducer/tiny`, for the tests of this folder. `antiphon_export.synthetic.transducer` writes it.

use super::files::{ModelFiles, Sizes};
use super::graphs::Graphs;
use antiphon_audio::decode;
use antiphon_inference::onnx::{OnnxConfig, Runtime};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The tiny model's folder.
pub(super) fn tiny() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/transducer/tiny")
}

/// A folder with the tiny model, some of whose files are those of another name in its folder.
pub(super) fn folder(replaced: &[(&str, &str)]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    for name in ["encoder.onnx", "decoder.onnx", "joiner.onnx", "tokens.txt"] {
        let from = replaced.iter().find(|(replaced, _)| *replaced == name).map_or(name, |(_, from)| from);
        std::fs::copy(tiny().join(from), folder.path().join(name)).expect("copied");
    }
    folder
}

/// The graphs of a folder.
pub(super) fn graphs(folder: &Path) -> Graphs {
    let files = ModelFiles::find(folder).expect("the files are there");
    let n_tokens = files.vocabulary().expect("tokens").len();
    // Threads cost graphs of this size more than they save.
    let onnx = OnnxConfig { intra_threads: 1, ..crate::testing::onnx() };
    let runtime = Runtime::open(&onnx).expect("`make onnxruntime` was run");
    Graphs::load(&files, n_tokens, &runtime).expect("they fit")
}

/// The sentence of the golden tokens, 2.06 s at 16 kHz.
pub(super) fn sentence() -> Vec<i16> {
    let path = tiny().join("../../speech/bambatse_02_haggard_0323.flac");
    let file = std::fs::read(path).expect("the fixture");
    decode::read(file.into(), Duration::from_secs(10)).expect("FLAC").samples
}

/// The samples of the sentence that a stream of that number speaks: its own part of it.
pub(super) fn speech(number: usize, n_samples: usize) -> Vec<i16> {
    let sentence = sentence();
    let first = number * 4_001 % sentence.len();
    sentence.iter().cycle().skip(first).take(n_samples).copied().collect()
}

/// Sizes of the tiny model.
pub(super) fn sizes() -> Sizes {
    graphs(&tiny()).sizes
}
