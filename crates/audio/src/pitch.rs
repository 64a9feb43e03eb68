//! The pitch and level of a voice per window.
//!
//! Session ingress uses it if turn-taking considers intonation. Normalised autocorrelation over the last 40 ms at 4
//! kHz: coarse and cheap (under 10 us per window), sufficient for falling and rising pitch, not for music.

use std::collections::VecDeque;

/// Decimation from 16 kHz to 4 kHz; the pitch of a voice is far below 2 kHz.
const STEP: usize = 4;
/// Samples at 4 kHz that are correlated, 25 ms, and the longest period, 70 Hz.
const FRAME: usize = 100;
const LONGEST: usize = 57;
/// The shortest period, 400 Hz.
const SHORTEST: usize = 10;
/// Minimum correlation of a periodic window; unvoiced consonants and noise are below it.
const PERIODIC: f32 = 0.6;
/// A shorter period whose correlation is at least this fraction of the best one is preferred, because a multiple of the
/// period correlates as well as the period.
const NEARLY: f32 = 0.88;

/// Level and pitch of a window.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tone {
    /// Level in dBFS, at least -96.
    pub level_db: f32,
    /// Pitch in hertz, 70 to 400; `None` if the sound is not periodic.
    pub pitch_hz: Option<f32>,
}

/// The pitch tracker of one microphone.
#[derive(Clone, Debug, Default)]
pub struct Pitch {
    /// The last samples at 4 kHz.
    past: VecDeque<f32>,
}

impl Pitch {
    /// Processes the next window of mono PCM at 16 kHz, of any length that is a multiple of 4.
    pub fn window(&mut self, pcm: &[i16]) -> Tone {
        let energy = pcm.iter().map(|&sample| f32::from(sample).powi(2)).sum::<f32>() / pcm.len().max(1) as f32;
        let level_db = 10.0 * (energy / 32_768f32.powi(2)).max(2.5e-10).log10();
        self.past.extend(pcm.chunks(STEP).map(|part| part.iter().map(|&sample| f32::from(sample)).sum::<f32>()));
        let excess = self.past.len().saturating_sub(FRAME + LONGEST + 1);
        self.past.drain(..excess);
        Tone { level_db, pitch_hz: self.pitch() }
    }

    fn pitch(&self) -> Option<f32> {
        if self.past.len() < FRAME + LONGEST + 1 {
            return None;
        }
        // A constant offset would correlate with itself at any lag.
        let mean = self.past.iter().sum::<f32>() / self.past.len() as f32;
        let past: Vec<f32> = self.past.iter().map(|sample| sample - mean).collect();
        let frame = &past[past.len() - FRAME..];
        let correlations: Vec<f32> = (SHORTEST - 1..=LONGEST + 1)
            .map(|lag| correlation(frame, &past[past.len() - FRAME - lag..][..FRAME]))
            .collect();
        let inner = 1..correlations.len() - 1;
        let best = inner.clone().map(|i| correlations[i]).fold(0.0, f32::max);
        if best < PERIODIC {
            return None;
        }
        let peak = |&i: &usize| {
            let [a, b, c] = [correlations[i - 1], correlations[i], correlations[i + 1]];
            b >= a && b >= c && b >= NEARLY * best
        };
        let at = inner.clone().find(peak)?;
        let [a, b, c] = [correlations[at - 1], correlations[at], correlations[at + 1]];
        // The vertex of the parabola through the three points.
        let shift = if a + c < 2.0 * b { 0.5 * (a - c) / (a - 2.0 * b + c) } else { 0.0 };
        Some(16_000.0 / STEP as f32 / ((at + SHORTEST - 1) as f32 + shift))
    }
}

/// Normalised correlation of two signals of equal length, -1 to 1; 0 for silence.
fn correlation(a: &[f32], b: &[f32]) -> f32 {
    let mut ab = 0.0;
    let mut aa = 0.0;
    let mut bb = 0.0;
    for (x, y) in a.iter().zip(b) {
        ab += x * y;
        aa += x * x;
        bb += y * y;
    }
    let scale = (aa * bb).sqrt();
    if scale > 1.0 { ab / scale } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A voice-like sound: eight harmonics that fall by 6 dB per octave.
    fn voice(hz: f32, n: usize) -> Vec<i16> {
        let sample = |i: usize| {
            (1..=8).map(|k| (std::f32::consts::TAU * hz * k as f32 * i as f32 / 16_000.0).sin() / k as f32).sum::<f32>()
        };
        (0..n).map(|i| (4_000.0 * sample(i)) as i16).collect()
    }

    fn last(pcm: &[i16]) -> Tone {
        let mut pitch = Pitch::default();
        pcm.chunks_exact(256).map(|window| pitch.window(window)).last().unwrap()
    }

    #[test]
    fn voices_of_all_heights_have_their_pitch() {
        for hz in [75.0, 110.0, 160.0, 220.0, 330.0, 390.0] {
            let heard = last(&voice(hz, 2_048)).pitch_hz.unwrap();
            assert!((heard / hz - 1.0).abs() < 0.03, "{hz}: {heard}");
        }
    }

    #[test]
    fn noise_and_silence_have_none() {
        let mut state = 1u32;
        let noise: Vec<i16> = (0..4_096)
            .map(|_| {
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                (state >> 18) as i16
            })
            .collect();
        assert_eq!(last(&noise).pitch_hz, None);
        assert_eq!(last(&[0; 2_048]), Tone { level_db: -96.0206, pitch_hz: None });
    }

    #[test]
    fn the_level_is_that_of_the_window() {
        assert!((last(&[16_384; 512]).level_db + 6.02).abs() < 0.01);
    }
}
