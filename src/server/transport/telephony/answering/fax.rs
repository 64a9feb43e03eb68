//! A fax machine that calls: its calling tone, twice, or the tone of one that answers.
//!
//! The conversation of a call that came in gives it the sound of the line for the first minute, and hangs up on what it
//! finds. One tone alone may be anything; two at the distance of ITU-T T.30 are a fax machine's. It has no IO and no clock.

use super::Framer;
use super::tone::{FRAME_MS, Tone, ToneDetector};
use antiphon_types::SampleRate;

/// From the end of one calling tone to that of the next, in milliseconds: 0.5 s and a pause of 3 s, 15 % more or less, and
/// two frames (ITU-T T.30, section 4.1.1).
const PERIOD_MS: std::ops::RangeInclusive<u32> = 2_935..=4_065;
/// A machine that calls gives up after 35 s, 5 s more or less (ITU-T T.30, T1); after this time of sound nothing is found.
const LISTENS_MS: u32 = 60_000;

/// See the module.
pub(in crate::server::transport::telephony) struct FaxDetector {
    frames: Framer,
    tones: ToneDetector,
    elapsed_ms: u32,
    /// When the last calling tone ended.
    called_ms: Option<u32>,
}

impl FaxDetector {
    /// `rate`: that of the sound, a multiple of 8 kHz.
    pub(in crate::server::transport::telephony) fn new(rate: SampleRate) -> Self {
        Self { frames: Framer::new(rate), tones: ToneDetector::default(), elapsed_ms: 0, called_ms: None }
    }

    /// Takes the next sound of the line. `true`: a fax machine calls.
    pub(in crate::server::transport::telephony) fn push(&mut self, samples: &[i16]) -> bool {
        self.frames.push(samples);
        while let Some(frame) = self.frames.next() {
            self.elapsed_ms = self.elapsed_ms.saturating_add(FRAME_MS);
            match self.tones.push(&frame) {
                Some(Tone::Fax) => return true,
                Some(Tone::Beep) if self.tones.was_calling_tone() => {
                    let before = self.called_ms.replace(self.elapsed_ms);
                    if before.is_some_and(|before| PERIOD_MS.contains(&(self.elapsed_ms - before))) {
                        return true;
                    }
                }
                Some(Tone::Beep) | None => {}
            }
        }
        false
    }

    /// Whether nothing more will be found.
    pub(in crate::server::transport::telephony) fn is_done(&self) -> bool {
        self.elapsed_ms >= LISTENS_MS
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::f32::consts::TAU;

    /// After how many milliseconds a fax machine is found in tones (Hz, ms) and pauses (0 Hz).
    fn found(rate: SampleRate, parts: &[(f32, u32)]) -> Option<u32> {
        let mut detector = FaxDetector::new(rate);
        let mut elapsed_ms = 0;
        for (hz, ms) in parts {
            for step in 0..ms / 20 {
                elapsed_ms += 20;
                let n = rate.hz() / 50;
                let sample = |i: u32| 3_000.0 * (TAU * hz * (step * n + i) as f32 / rate.hz() as f32).sin();
                let samples: Vec<i16> = (0..n).map(|i| sample(i) as i16).collect();
                if detector.push(&samples) {
                    return Some(elapsed_ms);
                }
            }
        }
        None
    }

    #[test]
    fn two_calling_tones_are_a_fax_machine() {
        for rate in [SampleRate::HZ_8000, SampleRate::HZ_16000] {
            for (hz, tone_ms, pause_ms) in [(1_100.0, 500, 3_000), (1_062.0, 440, 2_560), (1_138.0, 560, 3_440)] {
                let call = [(0.0, 700), (hz, tone_ms), (0.0, pause_ms), (hz, tone_ms), (0.0, 500)];
                let at = found(rate, &call).unwrap_or_else(|| panic!("{hz} Hz, {tone_ms} ms, {pause_ms} ms"));
                assert!(at <= 700 + 2 * tone_ms + pause_ms + 120, "{at}");
            }
            assert!(found(rate, &[(0.0, 500), (2_100.0, 2_600)]).is_some(), "one that answers");
        }
    }

    #[test]
    fn other_tones_are_none() {
        let rate = SampleRate::HZ_8000;
        let pair = |hz: f32, ms: u32, pause_ms: u32| found(rate, &[(hz, ms), (0.0, pause_ms), (hz, ms), (0.0, 1_000)]);
        assert_eq!(found(rate, &[(1_100.0, 500), (0.0, 9_000)]), None, "one alone");
        assert_eq!(pair(1_000.0, 500, 3_000), None, "another pitch");
        assert_eq!(pair(1_100.0, 260, 3_000), None, "shorter");
        assert_eq!(pair(1_100.0, 1_000, 3_000), None, "longer");
        assert_eq!(pair(1_100.0, 500, 1_000), None, "another distance");
    }
}
