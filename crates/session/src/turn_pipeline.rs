//! From windows of audio to edges of the turn: voice activity detection, pitch and turn-taking, in step.
//!
//! The only place that wires them. Session ingress, the corpus, the benchmark of noise and the tests of endpointing run
//! this one, so that what is measured is what a session does. One pipeline serves one microphone. It counts time in
//! samples at 16 kHz, reads no clock and never waits.

use super::replay_log::Outcome;
use antiphon_audio::Pitch;
use antiphon_dialog::turn::{TurnTaker, WindowFeatures};
use antiphon_engine_api::vad::{Vad, VadError, VadStream};
use antiphon_types::Samples;
use std::sync::Arc;

/// The pipeline of one microphone.
pub struct TurnPipeline {
    vad: Box<dyn VadStream>,
    /// A window could not be judged, which was logged.
    has_failed: bool,
    pitch: Pitch,
    taker: TurnTaker,
    position: Samples,
}

/// A window as turn-taking got it, and what it led to.
#[derive(Clone, Copy, Debug)]
pub struct TurnWindow {
    /// What was measured.
    pub features: WindowFeatures,
    /// The edge of the turn and the reason for it, if any.
    pub outcome: Outcome,
}

impl TurnPipeline {
    /// A pipeline at position zero.
    pub fn new(vad: Box<dyn VadStream>, taker: TurnTaker) -> Self {
        Self { vad, has_failed: false, pitch: Pitch::default(), taker, position: Samples::ZERO }
    }

    /// The pipeline of a microphone that was heard elsewhere so far: turn-taking goes on at `position`. The detector hears the
    /// `recent` audio before it, in windows of `window` samples, and what it says of that is dropped: turn-taking had it.
    pub fn resumed(
        vad: Box<dyn VadStream>,
        taker: TurnTaker,
        position: Samples,
        recent: &[i16],
        window: usize,
    ) -> Self {
        let mut pipeline = Self { position, ..Self::new(vad, taker) };
        for heard in recent.chunks_exact(window) {
            // A detector that fails here fails again, and is logged then.
            let _ = pipeline.vad.probability(heard);
        }
        pipeline
    }

    /// Takes one window, mono PCM at 16 kHz of the length the detector requires. `voice` is what the voice activity
    /// detector hears, `words` what the recognizer does: they differ where an echo guard is in use. Levels and pitches
    /// are measured only where the wait for the end of a turn adapts to them.
    ///
    /// # Errors
    /// As the detector's. The window is not counted then.
    pub fn window(&mut self, voice: &[i16], words: &[i16]) -> Result<TurnWindow, VadError> {
        let probability = self.vad.probability(voice)?;
        Ok(self.take(probability, voice, words))
    }

    /// The same for a live microphone: a window that the detector fails on counts as silence, and the first such failure
    /// is logged.
    pub fn window_or_silence(&mut self, voice: &[i16], words: &[i16]) -> TurnWindow {
        let probability = self.vad.probability(voice).unwrap_or_else(|error| {
            if !std::mem::replace(&mut self.has_failed, true) {
                tracing::error!(%error, "the voice activity detector failed; such windows count as silence");
            }
            0.0
        });
        self.take(probability, voice, words)
    }

    fn take(&mut self, probability: f32, voice: &[i16], words: &[i16]) -> TurnWindow {
        let start = self.position;
        let end = self.position + Samples(words.len() as u64);
        self.position = end;
        let peak = voice.iter().map(|sample| sample.unsigned_abs()).max().unwrap_or(0);
        let (level_db, pitch_hz) = if self.taker.listens_to_the_voice() {
            let tone = self.pitch.window(words);
            (tone.level_db, tone.pitch_hz)
        } else {
            (0.0, None)
        };
        let features = WindowFeatures { probability, peak, level_db, pitch_hz, start, end };
        TurnWindow { features, outcome: Outcome::of_window(&mut self.taker, features) }
    }

    /// Counts audio that is in no window.
    pub fn skip(&mut self, n: Samples) {
        self.position += n;
    }

    /// Turn time: where the last window ended.
    pub fn position(&self) -> Samples {
        self.position
    }

    /// The turn-taking.
    pub fn taker(&self) -> &TurnTaker {
        &self.taker
    }

    /// The turn-taking, for what it learns beside the windows.
    pub fn taker_mut(&mut self) -> &mut TurnTaker {
        &mut self.taker
    }
}

/// A microphone's voice activity detection that is opened with its first window, since many connections never send audio.
pub(super) struct OpenedOnUse {
    engine: Arc<dyn Vad>,
    stream: Option<Box<dyn VadStream>>,
}

impl OpenedOnUse {
    pub(super) fn new(engine: Arc<dyn Vad>) -> Self {
        Self { engine, stream: None }
    }
}

impl VadStream for OpenedOnUse {
    fn probability(&mut self, window: &[i16]) -> Result<f32, VadError> {
        self.stream.get_or_insert_with(|| self.engine.open()).probability(window)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use antiphon_dialog::turn::{Eagerness, Edge, Ending, Thresholds};

    /// Windows of value 0 are silence, of 1 speech, of 2 a failure.
    struct Scripted;

    impl VadStream for Scripted {
        fn probability(&mut self, window: &[i16]) -> Result<f32, VadError> {
            match window[0] {
                2 => Err(VadError::Window { expected: 256, got: 0 }),
                loud => Ok(f32::from(loud)),
            }
        }
    }

    fn pipeline(ending: Ending) -> TurnPipeline {
        let thresholds = Thresholds::from_ms(0.5, 96, 200);
        TurnPipeline::new(Box::new(Scripted), TurnTaker::new(thresholds, ending))
    }

    #[test]
    fn windows_are_counted_and_edges_are_those_of_turn_taking() {
        let mut pipeline = pipeline(Ending::Silence);
        pipeline.skip(Samples(100));
        let mut edges = Vec::new();
        for i in 0..30 {
            let heard = pipeline.window(&[i16::from(i < 10); 256], &[0; 256]).expect("it is judged");
            assert_eq!((heard.features.level_db, heard.features.pitch_hz), (0.0, None), "not measured");
            edges.extend(heard.outcome.edge);
        }
        assert_eq!(pipeline.position(), Samples(100 + 30 * 256));
        let at = Samples(100);
        let stopped = Edge::Stopped { at: Samples(100 + 10 * 256) };
        assert_eq!(edges, [Edge::Onset { at }, Edge::Started { at }, stopped]);
    }

    #[test]
    fn a_failed_window_is_an_error_or_counts_as_silence() {
        let mut pipeline = pipeline(Ending::Adaptive(Eagerness::Medium));
        assert!(pipeline.window(&[2; 256], &[2; 256]).is_err());
        assert_eq!(pipeline.position(), Samples::ZERO);
        let heard = pipeline.window_or_silence(&[2; 256], &[1_000; 256]);
        assert_eq!((heard.features.probability, pipeline.position()), (0.0, Samples(256)));
        assert!(heard.features.level_db < 0.0, "the level is of the recognizer's audio");
    }
}
