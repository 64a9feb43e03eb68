//! The files of hibari's folder beside the dictionaries of `misaki`. Blocks; called while the engine starts.

use antiphon_engine_api::tts::TtsError;
use std::path::{Path, PathBuf};

/// The graph's name in the published package.
pub(super) const GRAPH: &str = "hibari.onnx";
/// The phonemes' ids.
pub(super) const VOCABULARY: &str = "vocab.json";

/// The graph that `tts.model` means: the file itself, or [`GRAPH`] in the folder.
pub(super) fn graph(model: &str) -> Result<PathBuf, TtsError> {
    let path = Path::new(model);
    let graph = if path.is_dir() { path.join(GRAPH) } else { path.to_owned() };
    if graph.is_file() {
        return Ok(graph);
    }
    Err(TtsError::Unavailable(format!(
        "tts.model = {model:?}: there is no file {}; name the folder of hibari, which `make hibari` fills, or its {GRAPH}",
        graph.display()
    )))
}
