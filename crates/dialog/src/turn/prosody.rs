//! How the voice moved before a pause: whether it fell, as at the end of a sentence, or stayed up.
//!
//! Fed with level and pitch of each voiced window; measuring them is `audio`'s work.

use antiphon_types::Samples;
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;

/// The stretch of voiced sound looked at, at 16 kHz: half a second, about the last two syllables.
const STRETCH: Samples = Samples(8_000);

/// Windows with a pitch that each half of the stretch must have: fewer are chance.
const MIN_PITCHED: usize = 3;

/// How the voice moved over the last voiced half second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Prosody {
    /// How much softer the loudest of its second half was than that of the first, in dB; negative: louder. The loudest,
    /// since any sound dies away before a pause.
    pub energy_fall_db: Option<f32>,
    /// How much lower its last third was than the rest, in semitones; negative: higher.
    pub pitch_fall_semitones: Option<f32>,
}

/// The contour of the voice under way.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Contour {
    windows: VecDeque<VoicedWindow>,
    /// Voiced time kept in `windows`.
    length: Samples,
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct VoicedWindow {
    length: Samples,
    level_db: f32,
    pitch_hz: Option<f32>,
}

impl Contour {
    /// A voiced window: its level in dB of any reference, and its pitch where it has one.
    pub(super) fn voiced(&mut self, length: Samples, level_db: f32, pitch_hz: Option<f32>) {
        self.windows.push_back(VoicedWindow { length, level_db, pitch_hz });
        self.length += length;
        while let Some(first) = self.windows.front()
            && self.length.saturating_sub(first.length) >= STRETCH
        {
            self.length = self.length.saturating_sub(first.length);
            self.windows.pop_front();
        }
    }

    /// A new utterance begins.
    pub(super) fn clear(&mut self) {
        self.windows.clear();
        self.length = Samples::ZERO;
    }

    /// What the contour says now; nothing before there is a whole stretch.
    pub(super) fn prosody(&self) -> Prosody {
        if self.length < STRETCH {
            return Prosody::default();
        }
        let windows: Vec<VoicedWindow> = self.windows.iter().copied().collect();
        let (first, second) = windows.split_at(windows.len() / 2);
        let loudest = |part: &[VoicedWindow]| part.iter().map(|window| window.level_db).reduce(f32::max);
        let (before, third) = windows.split_at(windows.len() - windows.len() / 3);
        let pitch_fall = median_pitch(before).zip(median_pitch(third)).map(|(a, b)| 12.0 * (a / b).log2());
        Prosody {
            energy_fall_db: loudest(first).zip(loudest(second)).map(|(first, second)| first - second),
            pitch_fall_semitones: pitch_fall,
        }
    }
}

/// The median outlives the octave errors that every pitch tracker makes now and then.
fn median_pitch(windows: &[VoicedWindow]) -> Option<f32> {
    let mut pitches: Vec<f32> = windows.iter().filter_map(|window| window.pitch_hz).collect();
    pitches.sort_by(f32::total_cmp);
    (pitches.len() >= MIN_PITCHED).then(|| pitches[pitches.len() / 2])
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Windows of 16 ms with the given levels and pitches.
    fn contour(n: usize, level: impl Fn(usize) -> f32, pitch: impl Fn(usize) -> Option<f32>) -> Prosody {
        let mut contour = Contour::default();
        (0..n).for_each(|i| contour.voiced(Samples(256), level(i), pitch(i)));
        contour.prosody()
    }

    #[test]
    fn a_falling_voice_falls_and_a_level_one_does_not() {
        let fall = contour(40, |i| -20.0 - i as f32 * 0.5, |i| Some(200.0 - 2.0 * i as f32));
        assert!(fall.energy_fall_db.unwrap() > 5.0, "{fall:?}");
        assert!(fall.pitch_fall_semitones.unwrap() > 2.0, "{fall:?}");
        let level = contour(40, |_| -20.0, |_| Some(150.0));
        assert!(level.energy_fall_db.unwrap().abs() < 0.1 && level.pitch_fall_semitones.unwrap().abs() < 0.1);
        let rising = contour(40, |_| -20.0, |i| Some(120.0 + 3.0 * i as f32));
        assert!(rising.pitch_fall_semitones.unwrap() < -2.0, "{rising:?}");
    }

    #[test]
    fn only_the_last_half_second_counts() {
        let late = contour(100, |i| if i < 60 { 0.0 } else { -30.0 }, |i| Some(if i < 60 { 400.0 } else { 100.0 }));
        assert!(late.energy_fall_db.unwrap().abs() < 0.1, "{late:?}");
        assert!(late.pitch_fall_semitones.unwrap().abs() < 0.1, "{late:?}");
    }

    #[test]
    fn too_little_says_nothing() {
        assert_eq!(contour(20, |_| -20.0, |_| Some(150.0)), Prosody::default());
        assert_eq!(contour(40, |_| -20.0, |i| (i == 3).then_some(150.0)).pitch_fall_semitones, None, "whispered");
    }
}
