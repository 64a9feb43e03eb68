//! What the voice families on ONNX share: finding a model's file, its failures as the port's, and its sound as pieces.
//!
//! `piper` and `kokoro` call it. It knows no family and runs no model.

use super::TtsError;
use super::phonemes::Mark;
use super::trim::EdgeTrim;
use crate::onnx::OnnxError;
use crate::units::{Pcm, SampleRate, Samples};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// The length of a piece: a model gives a whole utterance at once, which leaves in steps that can be stopped.
const PIECE_MS: u64 = 40;
/// Near-silence left at each end of an utterance.
const EDGE_MS: u64 = 20;
/// The pause after a sentence and after a clause, as with flite.
const SENTENCE_PAUSE: Duration = Duration::from_millis(250);
const CLAUSE_PAUSE: Duration = Duration::from_millis(120);

/// What one run of a model speaks.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Utterance {
    /// The model's ids.
    pub(super) ids: Vec<i64>,
    /// The pause behind it, at speed 1.
    pub(super) pause: Duration,
}

/// The pause behind punctuation: 250 ms after a sentence, 120 ms after a clause, none where text was cut between words.
pub(super) fn pause_after(mark: Option<Mark>) -> Duration {
    match mark {
        Some(mark) if mark.ends_sentence() || mark == Mark::Ellipsis => SENTENCE_PAUSE,
        Some(_) => CLAUSE_PAUSE,
        None => Duration::ZERO,
    }
}

/// A request's speed in the range the port names; 1.0 where it is no number.
pub(super) fn speed(asked: f32) -> f32 {
    if asked.is_finite() { asked.clamp(0.25, 4.0) } else { 1.0 }
}

/// The `.onnx` file that `tts.model` means: the file itself, or the only one in a folder.
pub(super) fn model_file(model: &str, what: &str) -> Result<PathBuf, TtsError> {
    let unavailable = |text: String| Err(TtsError::Unavailable(format!("tts.model = {model:?}: {text}")));
    let path = Path::new(model);
    if path.is_file() {
        return Ok(path.into());
    }
    let Ok(entries) = std::fs::read_dir(path) else {
        return unavailable(format!("there is no such file or folder; name {what}: its .onnx file, or its folder"));
    };
    let is_model = |path: &PathBuf| path.extension().is_some_and(|extension| extension == "onnx") && path.is_file();
    let mut found: Vec<_> = entries.filter_map(|entry| Some(entry.ok()?.path())).filter(is_model).collect();
    found.sort();
    match found.len() {
        0 => unavailable(format!("there is no .onnx file in this folder; name {what}")),
        1 => Ok(found.remove(0)),
        _ => {
            let names: Vec<_> = found.iter().map(|path| path.display().to_string()).collect();
            unavailable(format!("several models are in this folder; name one of {}", names.join(", ")))
        }
    }
}

/// What keeps a model from being loaded.
pub(super) fn not_loaded(error: OnnxError) -> TtsError {
    TtsError::Unavailable(error.to_string())
}

/// What became of a run: its sound, or none where it was cancelled.
pub(super) fn sound(run: Result<Vec<f32>, OnnxError>) -> Result<Option<Vec<f32>>, TtsError> {
    match run {
        Ok(sound) => Ok(Some(sound)),
        Err(OnnxError::Cancelled) => Ok(None),
        Err(error) => Err(TtsError::Engine { message: error.to_string(), source: Some(Box::new(error)) }),
    }
}

/// Where an utterance's sound goes.
pub(super) struct Player<'a> {
    pub(super) rate: SampleRate,
    pub(super) cancel: &'a CancellationToken,
    pub(super) sink: &'a mut dyn FnMut(Pcm) -> ControlFlow<()>,
}

impl Player<'_> {
    /// Gives the utterance to the sink in pieces of 40 ms, its edges cut to 20 ms of near-silence, `pause` behind it.
    /// Full scale of the model is 1.0; what is louder is clipped.
    pub(super) fn play(&mut self, sound: &[f32], pause: Duration) -> ControlFlow<()> {
        let mut trim = EdgeTrim::new(Samples::from_ms(EDGE_MS, self.rate).0 as usize);
        let whole: Vec<i16> = sound.iter().map(|sample| (sample.clamp(-1.0, 1.0) * 32_767.0).round() as i16).collect();
        let mut samples = trim.push(&whole);
        samples.extend(trim.finish());
        if samples.is_empty() {
            return ControlFlow::Continue(());
        }
        samples.resize(samples.len() + self.rate.samples_in(pause).0 as usize, 0);
        for piece in samples.chunks(Samples::from_ms(PIECE_MS, self.rate).0.max(1) as usize) {
            if self.cancel.is_cancelled() {
                return ControlFlow::Break(());
            }
            (self.sink)(Pcm { rate: self.rate, samples: piece.to_vec() })?;
        }
        ControlFlow::Continue(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn play(sound: &[f32], pause_ms: u64, stop_after: usize) -> Vec<Vec<i16>> {
        let (cancel, mut pieces) = (CancellationToken::new(), Vec::new());
        let mut sink = |pcm: Pcm| {
            pieces.push(pcm.samples);
            if pieces.len() == stop_after { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        };
        let mut player = Player { rate: SampleRate::new(1_000), cancel: &cancel, sink: &mut sink };
        let _ = player.play(sound, Duration::from_millis(pause_ms));
        pieces
    }

    #[test]
    fn sound_leaves_in_pieces_with_its_pause() {
        let loud = vec![0.5; 100];
        let lengths = |pieces: Vec<Vec<i16>>| pieces.iter().map(Vec::len).collect::<Vec<_>>();
        assert_eq!(lengths(play(&loud, 0, 9)), [40, 40, 20]);
        assert_eq!(lengths(play(&loud, 30, 9)), [40, 40, 40, 10]);
        assert_eq!(lengths(play(&loud, 0, 2)), [40, 40]);
        let quiet_ends = [vec![0.0; 50], loud, vec![0.001; 50]].concat();
        assert_eq!(play(&quiet_ends, 0, 9).concat().len(), 140);
        assert_eq!(play(&[0.0; 500], 100, 9), Vec::<Vec<i16>>::new());
    }

    #[test]
    fn what_no_sample_holds_is_clipped() {
        assert_eq!(play(&[2.0, -2.0, f32::NAN, 1.0], 0, 9).concat(), [32_767, -32_767, 0, 32_767]);
    }

    #[test]
    fn a_model_is_a_file_or_the_only_one_in_a_folder() {
        let folder = tempfile::tempdir().expect("a folder");
        let name = folder.path().to_str().expect("Unicode");
        let said = |model: &str| model_file(model, "a voice").expect_err("refused").to_string();
        assert!(said("no/where").contains("no such file or folder; name a voice"));
        assert!(said(name).contains("no .onnx file in this folder"));
        let first = folder.path().join("a.onnx");
        std::fs::write(&first, "").expect("written");
        assert_eq!(model_file(name, "a voice").expect("one"), first);
        assert_eq!(model_file(first.to_str().expect("Unicode"), "a voice").expect("itself"), first);
        std::fs::write(folder.path().join("b.onnx"), "").expect("written");
        assert!(said(name).contains("name one of"));
    }
}
