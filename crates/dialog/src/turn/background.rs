//! The level of what sounds behind the user: a voice that goes on where the user has ended, clearly quieter.
//!
//! [`super::detector`] feeds it window by window. A detector of speech calls other people's talk speech, so that a turn
//! beside it would never end. Levels are smoothed powers of the windows' loudest samples.

use antiphon_types::Samples;
use serde::{Deserialize, Serialize};

/// Time constant of the smoothed level, 250 ms: about a syllable, so that levels of voices differ less than their sounds do.
const SMOOTHED_OVER: f32 = 4_000.0;

/// What stays this far below the utterance's mean power, 5 dB, may be background. A voice alone exceeds its mean about a
/// third of the time.
const QUIETER: f32 = 0.316;

/// After this much of it the utterance is over, 1.5 s.
const ENDS_AFTER: Samples = Samples(24_000);

/// A level up to this much above the background's, 3 dB, is background.
const ABOVE: f32 = 2.0;

/// Silence after which the background is forgotten, 1 s.
const FORGOTTEN_AFTER: Samples = Samples(16_000);

/// See the module.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Background {
    /// The smoothed power.
    recent: f32,
    /// The background's; 0: there is none.
    level: f32,
    /// Silence so far, while there is a background.
    silence: Samples,
    /// Mean power of the utterance's voiced windows, and how many there were.
    mean: f32,
    n_windows: u32,
    /// Where the utterance was last as loud as itself.
    spoken_to: Samples,
    /// The loudest since then.
    loudest: f32,
}

impl Background {
    /// A window, in any phase. `is_sound`: the detector calls it speech.
    pub(super) fn hear(&mut self, peak: u16, length: Samples, is_sound: bool) {
        let power = f32::from(peak).powi(2);
        let share = (length.0 as f32 / SMOOTHED_OVER).min(1.0);
        self.recent += share * (power - self.recent);
        self.silence = if is_sound { Samples::ZERO } else { self.silence + length };
        if self.silence >= FORGOTTEN_AFTER {
            self.level = 0.0;
        }
    }

    /// Whether what sounds now is background.
    pub(super) fn covers(&self) -> bool {
        self.level > 0.0 && self.recent <= ABOVE * self.level
    }

    /// An utterance has begun, whose last window ended at `spoken_to`.
    pub(super) fn speech_begins(&mut self, spoken_to: Samples) {
        self.mean = self.recent;
        self.n_windows = 1;
        self.spoken_to = spoken_to;
        self.loudest = 0.0;
    }

    /// A window of the utterance, which ends at `end`. Returns where the utterance was over, if what sounds since then is
    /// background.
    pub(super) fn behind_speech(&mut self, is_voiced: bool, end: Samples) -> Option<Samples> {
        if self.recent >= QUIETER * self.mean {
            self.spoken_to = end;
            self.loudest = 0.0;
            if is_voiced {
                self.n_windows = self.n_windows.saturating_add(1);
                self.mean += (self.recent - self.mean) / self.n_windows as f32;
            }
            return None;
        }
        self.loudest = self.loudest.max(self.recent);
        let is_over = end.saturating_sub(self.spoken_to) >= ENDS_AFTER && is_voiced;
        is_over.then(|| {
            self.level = self.loudest;
            self.spoken_to
        })
    }
}

#[cfg(test)]
mod tests {
    use crate::turn::detector::{Edge, Thresholds, TurnDetector};
    use antiphon_types::{SampleRate, Samples};

    const VOICE: u16 = 8_000;
    /// 10 dB below it.
    const TABLE: u16 = 2_530;

    /// Plays stretches of voices, in ms, as windows of 16 ms: each syllable of 160 ms has a tenth of the power at its ends.
    /// `0` is silence. Gives the edges that begin and end utterances, in ms.
    fn edges(stretches: &[(u16, u64)]) -> Vec<String> {
        let mut detector = TurnDetector::new(Thresholds::from_ms(0.5, 96, 500));
        let mut edges = Vec::new();
        let mut at = 0u64;
        for (peak, ms) in stretches {
            for i in 0..ms / 16 {
                let peak = if i % 10 < 3 { peak / 3 } else { *peak };
                let probability = if peak == 0 { 0.02 } else { 0.9 };
                let edge = detector.window(probability, peak, Samples(at), Samples(at + 256));
                at += 256;
                let ms = |at: Samples| at.as_ms(SampleRate::HZ_16000);
                match edge {
                    Some(Edge::Started { at }) => edges.push(format!("started {}", ms(at))),
                    Some(Edge::Stopped { at: end }) => edges.push(format!("stopped {} at {}", ms(end), at / 16)),
                    _ => {}
                }
            }
        }
        edges
    }

    #[test]
    fn other_tables_neither_keep_a_turn_open_nor_begin_one() {
        let turn = edges(&[(VOICE, 3_200), (TABLE, 4_800)]);
        assert_eq!(turn, ["started 0", "stopped 3584 at 5088"]);
        // Beside it the next turn ends as soon as in silence.
        let next = edges(&[(VOICE, 3_200), (TABLE, 4_800), (VOICE, 1_600), (TABLE, 3_200)]);
        assert_eq!(next[2..], ["started 8144", "stopped 9776 at 10288"]);
    }

    #[test]
    fn after_a_silence_a_quiet_voice_is_heard_again() {
        let quiet = edges(&[(VOICE, 3_200), (TABLE, 3_200), (0, 1_200), (TABLE, 800)]);
        assert_eq!(quiet.len(), 3, "{quiet:?}");
        let too_soon = edges(&[(VOICE, 3_200), (TABLE, 3_200), (0, 800), (TABLE, 800)]);
        assert_eq!(too_soon.len(), 2, "{too_soon:?}");
    }

    #[test]
    fn a_voice_that_trails_off_for_a_second_is_not_cut() {
        let turn = edges(&[(VOICE, 3_200), (TABLE, 1_120), (VOICE, 800), (TABLE, 1_120), (0, 800)]);
        assert_eq!(turn.len(), 2, "{turn:?}");
        assert!(turn[1].starts_with("stopped 62"), "{turn:?}");
        // Nor is a voice that is quiet from its beginning on.
        let quiet = edges(&[(TABLE, 6_400), (0, 800)]);
        assert_eq!(quiet, ["started 0", "stopped 6400 at 6912"]);
    }
}
