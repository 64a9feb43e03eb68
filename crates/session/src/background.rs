//! What sounds behind a voice: the power of the microphone's windows without speech.
//!
//! [`super::speaker`] gives it such windows and asks it for the level of a voice, which is what the voice adds to that power.
//! It never decides whose voice it is, and keeps no audio.

/// The power is a running mean of about so many windows of 16 or 32 ms.
const WINDOWS: u32 = 50;

/// From so many windows on it is known, or from so many that are silent.
const KNOWN_FROM: u32 = 10;
const KNOWN_FROM_SILENT: u32 = 30;

/// A window of less than this power is silent, and not part of the mean: the microphone may be muted, or its sound lost.
/// -66 dB of full scale.
const SILENCE: f64 = 256.0;

/// Of the first windows one that is so much quieter than those before begins the mean anew, 12 dB: what was heard was a
/// microphone that is opened.
const QUIETER: f64 = 16.0;

/// A window counts for at most this much of the power so far: a door is not the background.
const MOST_LOUDER: f64 = 4.0;

/// The least share of a sound's power that is taken for the voice's, -6 dB: a background that is gone makes no voice
/// another's by itself.
const LEAST_VOICE: f64 = 0.25;

/// See the module. Of a microphone that was not heard yet by default.
#[derive(Default)]
pub(super) struct Background {
    /// Mean square.
    power: f64,
    /// Windows of the mean, at most [`WINDOWS`].
    n_windows: u32,
    n_silent: u32,
}

impl Background {
    /// A window without speech, mono at 16 kHz.
    pub(super) fn hear(&mut self, window: &[i16]) {
        let power = mean_square(window);
        if power < SILENCE {
            self.n_silent = self.n_silent.saturating_add(1);
            return;
        }
        let is_mean = self.n_windows == WINDOWS;
        if !is_mean && power * QUIETER < self.power {
            self.n_windows = 0;
        }
        self.n_windows = (self.n_windows + 1).min(WINDOWS);
        let power = if is_mean { power.min(MOST_LOUDER * self.power) } else { power };
        self.power += (power - self.power) / f64::from(self.n_windows);
    }

    /// Whether enough was heard.
    pub(super) fn is_known(&self) -> bool {
        self.n_windows >= KNOWN_FROM || self.n_silent >= KNOWN_FROM_SILENT
    }

    /// Level of the voice in this sound, in dB below full scale, at least -96.
    pub(super) fn level_db(&self, pcm: &[i16]) -> f32 {
        let power = mean_square(pcm);
        let voice = (power - self.power).max(LEAST_VOICE * power);
        (10.0 * (voice / 32_768f64.powi(2)).max(2.5e-10).log10()) as f32
    }

    /// The root mean square.
    #[cfg(test)]
    pub(super) fn rms(&self) -> f64 {
        self.power.sqrt()
    }
}

fn mean_square(pcm: &[i16]) -> f64 {
    pcm.iter().map(|sample| f64::from(*sample).powi(2)).sum::<f64>() / pcm.len().max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The root mean square after `n` windows of this level.
    fn after(background: &mut Background, level: i16, n: usize) -> f64 {
        (0..n).for_each(|_| background.hear(&[level; 320]));
        background.rms()
    }

    #[test]
    fn it_is_a_mean_that_silence_and_a_door_change_little() {
        let mut background = Background::default();
        assert_eq!(after(&mut background, 8, 100), 0.0, "the silence of A-law");
        after(&mut background, 10_000, 1);
        assert_eq!(after(&mut background, 100, 60), 100.0, "a microphone that was opened is forgotten");
        assert_eq!(after(&mut background, 0, 100), 100.0);
        assert!(after(&mut background, 20_000, 1) < 104.0);
        assert!(after(&mut background, 300, 200) > 290.0);
    }

    #[test]
    fn a_voice_keeps_a_quarter_of_its_sound_whatever_sounds_behind_it() {
        let mut loud = Background::default();
        after(&mut loud, 20_000, 60);
        let buried = loud.level_db(&[1_000; 320]) - Background::default().level_db(&[1_000; 320]);
        assert!((buried + 6.0).abs() < 0.1, "{buried}");
    }
}
