//! Several utterances in one run: ids as the rows of one input, and the sound of each row.
//!
//! `piper` and `kokoro` call it, for models that take one utterance as well. Pure.

use super::{Failure, Item};
use antiphon_inference::onnx::{Model, OnnxError, Outputs};

/// The length of the longest item.
pub(in crate::tts) fn longest(items: &[Item<'_>]) -> usize {
    items.iter().map(|item| item.ids.len()).max().unwrap_or_default()
}

/// The ids of all items, `[n, longest]`, zeros behind the shorter ones.
pub(in crate::tts) fn padded(items: &[Item<'_>], longest: usize) -> Vec<i64> {
    let row = |item: &Item<'_>| item.ids.iter().copied().chain(std::iter::repeat(0)).take(longest).collect::<Vec<_>>();
    items.iter().flat_map(row).collect()
}

/// Whether a model takes several items as `ids` at once, and says how long the sound of each is.
pub(in crate::tts) fn gives_lengths(model: &Model, ids: &str) -> bool {
    let many = model.input(ids).is_some_and(|slot| slot.shape.first() == Some(&None));
    many && model.outputs().iter().any(|slot| slot.name == LENGTHS)
}

/// The output that says how long each item's sound is, in samples.
const LENGTHS: &str = "lengths";

/// The sound of each of `n` items: the model's first output, each row as long as its `lengths` say, where it has them.
pub(in crate::tts) fn sounds(outputs: Outputs, n: usize) -> Result<Vec<Vec<f32>>, Failure> {
    let Ok(lengths) = outputs.named(LENGTHS) else {
        return Ok(vec![outputs.into_f32()?]);
    };
    Ok(cut(outputs.at(0)?.f32()?, lengths.i64()?, n)?)
}

/// `n` rows of one size, each cut to its length.
pub(super) fn cut(sound: &[f32], lengths: &[i64], n: usize) -> Result<Vec<Vec<f32>>, OnnxError> {
    let row = sound.len() / n.max(1);
    if lengths.len() != n || row * n != sound.len() {
        let text = format!("{} samples and {} lengths for {n} texts", sound.len(), lengths.len());
        return Err(OnnxError::Output(text));
    }
    let row_of = |(i, length): (usize, &i64)| {
        let length = usize::try_from(*length).unwrap_or_default().min(row);
        sound[i * row..][..length].to_vec()
    };
    Ok(lengths.iter().enumerate().map(row_of).collect())
}
