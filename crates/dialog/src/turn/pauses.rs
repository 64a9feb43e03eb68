//! The pauses a speaker makes inside a turn.
//!
//! Only pauses that were followed by more speech count: the one at a turn's end says nothing about the speaker.

use antiphon_types::{SampleRate, Samples};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// A shorter gap lies between two sounds of a word.
const SHORTEST: Duration = Duration::from_millis(150);
/// A longer one was no pause inside a turn.
const LONGEST: Duration = Duration::from_secs(4);
/// What is expected of a speaker of whom nothing is known, and how many pauses that knowledge is worth. 600 ms is the
/// mean of pauses inside turns in conversation, within the spread of the literature (0.4 to 0.7 s: Heldner and Edlund, 2010).
const USUAL: Duration = Duration::from_millis(600);
const USUAL_WEIGHT: u32 = 3;
/// Old pauses fade: the count stops here.
const MAX_COUNTED: u32 = 12;

/// What is known of a speaker's pauses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Pauses {
    n: u32,
    mean: Duration,
}

impl Pauses {
    /// A pause of `length` at 16 kHz that more speech followed.
    pub(super) fn heard(&mut self, length: Samples) {
        let length = length.duration(SampleRate::HZ_16000);
        if !(SHORTEST..=LONGEST).contains(&length) {
            return;
        }
        self.n = (self.n + 1).min(MAX_COUNTED);
        let mean = self.mean.as_secs_f64();
        let new = length.as_secs_f64();
        self.mean = Duration::from_secs_f64(mean + (new - mean) / f64::from(self.n));
    }

    /// How many were heard, as far as they count.
    pub(super) fn n(&self) -> u32 {
        self.n
    }

    /// The length to expect of the next one.
    pub(super) fn typical(&self) -> Duration {
        (USUAL * USUAL_WEIGHT + self.mean * self.n) / (USUAL_WEIGHT + self.n)
    }

    /// How much longer than usual to wait for this speaker: 0.7 to 1.8.
    pub(super) fn patience(&self) -> f64 {
        (self.typical().as_secs_f64() / USUAL.as_secs_f64()).clamp(0.7, 1.8)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(pauses_ms: &[u64]) -> Pauses {
        let mut pauses = Pauses::default();
        pauses_ms.iter().for_each(|&ms| pauses.heard(Samples::from_ms(ms, SampleRate::HZ_16000)));
        pauses
    }

    #[test]
    fn a_stranger_gets_the_usual_patience() {
        assert_eq!(after(&[]).patience(), 1.0);
        assert_eq!(after(&[60, 20_000]), after(&[]), "no pauses of a turn");
    }

    #[test]
    fn slow_speakers_get_more_and_fluent_ones_less() {
        let slow = after(&[1_200, 1_400, 1_100]);
        assert!(slow.patience() > 1.4 && slow.typical() > Duration::from_millis(850), "{slow:?}");
        assert!(after(&[200; 12]).patience() < 0.75);
        assert!(after(&[3_900; 30]).patience() <= 1.8);
        assert!(after(&[200, 200]).patience() > after(&[200; 12]).patience(), "two pauses are little evidence");
    }
}
