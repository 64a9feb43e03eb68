//! The loudness of voices: a gain for each, so that one is as loud as another, and a limiter for the peaks.
//!
//! The local engines call it. A gain is fixed for a voice: a sentence that is meant to be quiet stays quiet. Loudness is that of
//! ITU-R BS.1770 (LUFS), measured on speech without the pauses around it. Remote engines and clones of recordings keep theirs.

#[cfg(feature = "neural")]
use antiphon_types::SampleRate;
#[cfg(feature = "neural")]
use ebur128::{EbuR128, Mode};

/// The loudness of every voice, in LUFS. Peaks of speech lie some 18 dB above it, just below full scale.
pub(super) const TARGET_LUFS: f32 = -21.0;

/// Above this share of full scale peaks are rounded off, so that no gain clips: -3 dB.
const KNEE: f32 = 0.7;

/// The largest gain, 18 dB: what needs more is noise or silence.
const MAX_GAIN: f32 = 8.0;

/// A voice's gain and the limiter behind it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Level {
    gain: f32,
}

impl Level {
    /// Samples pass as they are.
    #[cfg(feature = "neural")]
    pub(super) const UNCHANGED: Self = Self { gain: 1.0 };

    /// That of a voice which speaks at `lufs`.
    pub(super) fn of(lufs: f32) -> Self {
        let gain = 10f32.powf((TARGET_LUFS - lufs) / 20.0);
        Self { gain: gain.min(MAX_GAIN) }
    }

    /// That of a mixture of voices, by their shares, which add up to 1: the mean of their loudness.
    #[cfg(feature = "neural")]
    pub(super) fn mixed(parts: &[(Self, f32)]) -> Self {
        Self { gain: parts.iter().map(|(level, share)| level.gain.powf(*share)).product() }
    }

    /// That of a voice which spoke `sound`, full scale 1.0, at least 0.4 s; `None`: all of it is silence.
    #[cfg(feature = "neural")]
    pub(super) fn measured(sound: &[f32], rate: SampleRate) -> Option<Self> {
        let mut meter = EbuR128::new(1, rate.hz(), Mode::I).ok()?;
        meter.add_frames_f32(sound).ok()?;
        let lufs = meter.loudness_global().ok().filter(|lufs| lufs.is_finite())?;
        Some(Self::of(lufs as f32))
    }

    /// Raises or lowers the samples, in place.
    pub(super) fn apply(self, samples: &mut [i16]) {
        if self.gain == 1.0 {
            return;
        }
        for sample in samples {
            *sample = (limited(f32::from(*sample) / 32_768.0 * self.gain) * 32_767.0).round() as i16;
        }
    }
}

/// Peaks rounded off: the same up to the knee, never above full scale, without a corner in between.
fn limited(x: f32) -> f32 {
    let above = x.abs() - KNEE;
    if above <= 0.0 {
        return x;
    }
    let room = 1.0 - KNEE;
    x.signum() * (KNEE + room * (above / room).tanh())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_voice_gets_to_the_target() {
        let mut samples = [1_000, -2_000];
        Level::of(TARGET_LUFS + 6.0206).apply(&mut samples);
        assert_eq!(samples, [500, -1_000]);
        Level::of(TARGET_LUFS - 6.0206).apply(&mut samples);
        assert_eq!(samples, [1_000, -2_000]);
        assert_eq!(Level::of(-90.0), Level { gain: MAX_GAIN });
    }

    #[test]
    fn peaks_are_rounded_off_without_a_corner() {
        let steps: Vec<f32> = (0..=4_000).map(|i| limited(i as f32 / 1_000.0)).collect();
        assert_eq!(steps[..=700], (0..=700).map(|i| i as f32 / 1_000.0).collect::<Vec<_>>());
        assert!(steps.windows(2).all(|pair| pair[0] <= pair[1] && pair[1] - pair[0] <= 0.001_001 && pair[1] <= 1.0));
        assert_eq!(limited(-0.8), -limited(0.8));
        let mut loudest = [i16::MAX, i16::MIN];
        Level { gain: MAX_GAIN }.apply(&mut loudest);
        assert_eq!(loudest, [32_767, -32_767]);
    }

    #[cfg(feature = "neural")]
    #[test]
    fn loudness_is_measured_as_the_recommendation_has_it() {
        let rate = SampleRate::HZ_24000;
        // A sine of 997 Hz at full scale has -3.01 LUFS in one channel.
        let sine = |amplitude: f32| -> Vec<f32> {
            (0..2 * rate.hz())
                .map(|i| amplitude * (i as f32 * 997.0 * std::f32::consts::TAU / 24_000.0).sin())
                .collect()
        };
        let level = Level::measured(&sine(0.1), rate).expect("it is loud");
        let expected = 10f32.powf((TARGET_LUFS + 23.01) / 20.0);
        assert!((level.gain / expected - 1.0).abs() < 0.01, "{level:?}, not {expected}");
        assert_eq!(Level::measured(&vec![0.0; 48_000], rate), None);
    }
}
