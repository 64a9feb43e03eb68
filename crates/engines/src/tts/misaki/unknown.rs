//! Words that no dictionary has, by hibari's graph for them: a character transformer that was trained on espeak-ng's readings.
//!
//! Its answer is aligned with the letters as in connectionist temporal classification: repeats are one phoneme, blanks are none.
//! The reader calls it; it keeps no words.

use super::files;
use antiphon_engine_api::tts::TtsError;
use antiphon_inference::onnx::{Kind, Model, ModelOptions, OnnxError, Port, Runtime, Signature, Tensor};
use serde::Deserialize;
use std::collections::HashMap;
use std::path::Path;
use tokio_util::sync::CancellationToken;

const LETTERS: &str = "chars";
const PHONEMES: &str = "ids";
static SIGNATURE: Signature = Signature {
    family: "model of hibari for unknown words",
    inputs: &[Port::new(LETTERS, &[Kind::I64], 2)],
    outputs: &[Port::new(PHONEMES, &[Kind::I64], 2)],
};

#[derive(Deserialize)]
struct LettersFile {
    r#in: Vec<char>,
    out: Vec<char>,
    maxlen: usize,
}

/// See the module.
pub(super) struct UnknownWords {
    model: Model,
    letters: HashMap<char, i64>,
    phonemes: Vec<char>,
    longest: usize,
}

impl UnknownWords {
    /// Loads the graph in this folder. Blocks for some 20 ms.
    pub(super) fn open(folder: &Path, runtime: &Runtime) -> Result<Self, TtsError> {
        let file: LettersFile = files::json(folder, files::UNKNOWN_LETTERS)?;
        let options = ModelOptions { signature: Some(&SIGNATURE), intra_threads: Some(1), on_cpu: true };
        let model = runtime.load(&folder.join(files::UNKNOWN), &options);
        let model = model.map_err(super::super::neural::not_loaded)?;
        // 0 is padding among the letters, and the blank among the phonemes.
        let letters = file.r#in.into_iter().zip(1..).collect();
        Ok(Self { model, letters, phonemes: file.out, longest: file.maxlen })
    }

    /// The phonemes of a word; `None` where the graph has none of its letters. Blocks for about a millisecond.
    pub(super) fn phonemes(&self, word: &str) -> Result<Option<String>, OnnxError> {
        let letters: Vec<i64> = word.chars().filter_map(|c| self.letters.get(&c).copied()).take(self.longest).collect();
        if letters.is_empty() {
            return Ok(None);
        }
        let input = (LETTERS, Tensor::i64([1, letters.len()], &letters));
        let outputs = self.model.run(&[input], &CancellationToken::new())?;
        let mut phonemes = String::new();
        let mut previous = 0;
        for id in outputs.named(PHONEMES)?.i64()? {
            if *id != previous {
                let place = usize::try_from(*id - 1).ok();
                phonemes.extend(place.and_then(|place| self.phonemes.get(place)));
            }
            previous = *id;
        }
        Ok(Some(phonemes))
    }
}
