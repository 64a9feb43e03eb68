//! The files of the dictionaries, as hibari's package names them, and how they are read. Blocks; called while an engine starts.

use antiphon_engine_api::tts::TtsError;
use flate2::read::GzDecoder;
use serde::de::DeserializeOwned;
use std::fs::File;
use std::io::Read;
use std::path::Path;

/// misaki's checked pronunciations.
pub(in crate::tts) const GOLD: &str = "lexicon_us_gold.json.gz";
/// misaki's other pronunciations.
pub(super) const SILVER: &str = "lexicon_us_silver.json.gz";
/// Weights of the part-of-speech tagger.
pub(super) const TAGGER: &str = "tagger.json.gz";
/// Words that are several tokens, and marks that are one.
pub(super) const EXCEPTIONS: &str = "tokenizer_exceptions.json";
/// The graph that pronounces unknown words.
pub(in crate::tts) const UNKNOWN: &str = "oov.onnx";
/// Its letters.
pub(super) const UNKNOWN_LETTERS: &str = "oov.json";

/// The largest of them, unpacked, has 4.6 MB.
const MAX_BYTES: u64 = 64 << 20;

/// Whether a folder has dictionaries, which may be damaged.
pub(in crate::tts) fn are_in(folder: &Path) -> bool {
    folder.join(GOLD).is_file()
}

/// Reads a JSON file of hibari's package, unpacked where its name ends with `.gz`.
pub(in crate::tts) fn json<T: DeserializeOwned>(folder: &Path, name: &str) -> Result<T, TtsError> {
    let path = folder.join(name);
    let failed = |why: String| TtsError::Unavailable(format!("{}: {why}", path.display()));
    let file =
        File::open(&path).map_err(|error| failed(format!("it cannot be read: {error}; `make hibari` fetches it")))?;
    let mut text = Vec::new();
    let read = match name.ends_with(".gz") {
        true => GzDecoder::new(file).take(MAX_BYTES + 1).read_to_end(&mut text),
        false => file.take(MAX_BYTES + 1).read_to_end(&mut text),
    };
    read.map_err(|error| failed(format!("it is damaged: {error}; `make hibari` fetches it")))?;
    if text.len() as u64 > MAX_BYTES {
        return Err(failed(format!("it has more than {} MB", MAX_BYTES >> 20)));
    }
    serde_json::from_slice(&text).map_err(|error| failed(format!("it is damaged: {error}; `make hibari` fetches it")))
}
