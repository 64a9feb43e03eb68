//! The files beside hibari's graph: which there must be, and how they are read. Blocks; called while the engine starts.

use antiphon_engine_api::tts::TtsError;
use flate2::read::GzDecoder;
use serde::de::DeserializeOwned;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

/// The graph's name in the published package.
pub(super) const GRAPH: &str = "hibari.onnx";
/// The phonemes' ids.
pub(super) const VOCABULARY: &str = "vocab.json";
/// misaki's checked pronunciations.
pub(super) const GOLD: &str = "lexicon_us_gold.json.gz";
/// misaki's other pronunciations.
pub(super) const SILVER: &str = "lexicon_us_silver.json.gz";
/// Weights of the part-of-speech tagger.
pub(super) const TAGGER: &str = "tagger.json.gz";
/// Words that are several tokens, and marks that are one.
pub(super) const EXCEPTIONS: &str = "tokenizer_exceptions.json";
/// The graph that pronounces unknown words.
pub(super) const UNKNOWN: &str = "oov.onnx";
/// Its letters.
pub(super) const UNKNOWN_LETTERS: &str = "oov.json";

/// The largest of them, unpacked, has 4.6 MB.
const MAX_BYTES: u64 = 64 << 20;

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

/// Reads a JSON file beside the graph, unpacked where its name ends with `.gz`.
pub(super) fn json<T: DeserializeOwned>(folder: &Path, name: &str) -> Result<T, TtsError> {
    let path = folder.join(name);
    let failed = |why: String| TtsError::Unavailable(format!("hibari needs {}: {why}", path.display()));
    let file =
        File::open(&path).map_err(|error| failed(format!("it cannot be read: {error}; `make hibari` fetches it")))?;
    let mut text = Vec::new();
    let read = match name.ends_with(".gz") {
        true => GzDecoder::new(file).take(MAX_BYTES + 1).read_to_end(&mut text),
        false => file.take(MAX_BYTES + 1).read_to_end(&mut text),
    };
    read.map_err(|error| failed(format!("it is damaged: {error}")))?;
    if text.len() as u64 > MAX_BYTES {
        return Err(failed(format!("it has more than {} MB", MAX_BYTES >> 20)));
    }
    serde_json::from_slice(&text).map_err(|error| failed(format!("it is damaged: {error}")))
}
