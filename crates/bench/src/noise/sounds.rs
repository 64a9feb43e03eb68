//! Noise of six kinds, made by arithmetic: the same seed gives the same samples.
//!
//! [`super::judge`] mixes them with speech. All of it is mono at 16 kHz, in units of full scale, with a root mean square of 1.

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use std::f32::consts::TAU;

/// Samples a second.
const RATE: f32 = 16_000.0;

/// A kind of noise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Noise {
    /// The same power in every hertz: hiss.
    White,
    /// The same power in every octave: rain, ventilation.
    Pink,
    /// 6 dB less in each higher octave: traffic, rumble.
    Brown,
    /// Six people who talk at the same time, made of the speech clips, each from another place and backwards, so that
    /// no voice can be understood.
    Babble,
    /// Chords, a melody and a beat, 110 a minute.
    Music,
    /// Mains at 50 Hz with its harmonics.
    Hum,
}

impl Noise {
    /// All of them.
    pub const ALL: [Self; 6] = [Self::Pink, Self::White, Self::Brown, Self::Babble, Self::Music, Self::Hum];

    /// For people.
    pub const fn name(self) -> &'static str {
        match self {
            Self::White => "white",
            Self::Pink => "pink",
            Self::Brown => "brown",
            Self::Babble => "babble",
            Self::Music => "music",
            Self::Hum => "hum",
        }
    }

    /// `n` samples with a root mean square of 1. `speech` is what babble is made of; without any, babble is silence.
    pub fn make(self, n: usize, seed: u64, speech: &[Vec<i16>]) -> Vec<f32> {
        let mut chance = StdRng::seed_from_u64(seed);
        let mut samples = match self {
            Self::White => (0..n).map(|_| normal(&mut chance)).collect(),
            Self::Pink => pink(n, &mut chance),
            Self::Brown => brown(n, &mut chance),
            Self::Babble => babble(n, &mut chance, speech),
            Self::Music => music(n, &mut chance),
            Self::Hum => hum(n, &mut chance),
        };
        let power = samples.iter().map(|x| f64::from(*x).powi(2)).sum::<f64>() / n.max(1) as f64;
        let scale = if power > 0.0 { 1.0 / power.sqrt() as f32 } else { 0.0 };
        samples.iter_mut().for_each(|x| *x *= scale);
        samples
    }
}

/// Normally distributed (Box and Muller, 1958).
fn normal(chance: &mut StdRng) -> f32 {
    let radius = (-2.0 * (1.0 - chance.random::<f32>()).max(1e-30).ln()).sqrt();
    radius * (TAU * chance.random::<f32>()).cos()
}

/// White noise through Paul Kellet's filter: within 0.05 dB of -3 dB an octave above 10 Hz.
fn pink(n: usize, chance: &mut StdRng) -> Vec<f32> {
    const POLES: [(f32, f32); 6] = [
        (0.99886, 0.0555179),
        (0.99332, 0.0750759),
        (0.96900, 0.153852),
        (0.86650, 0.3104856),
        (0.55000, 0.5329522),
        (-0.7616, -0.016898),
    ];
    let mut state = [0.0f32; 6];
    let mut late = 0.0;
    let mut next = || {
        let white = normal(chance);
        for (x, (pole, gain)) in state.iter_mut().zip(POLES) {
            *x = pole * *x + gain * white;
        }
        let sum = state.iter().sum::<f32>() + late + 0.5362 * white;
        late = 0.115926 * white;
        sum
    };
    (0..n).map(|_| next()).collect()
}

/// White noise summed up, leaking below 20 Hz.
fn brown(n: usize, chance: &mut StdRng) -> Vec<f32> {
    let leak = 1.0 - TAU * 20.0 / RATE;
    let mut sum = 0.0;
    let mut next = || {
        sum = leak * sum + normal(chance);
        sum
    };
    (0..n).map(|_| next()).collect()
}

fn babble(n: usize, chance: &mut StdRng, speech: &[Vec<i16>]) -> Vec<f32> {
    const TALKERS: usize = 6;
    let mut mixed = vec![0.0f32; n];
    if speech.iter().all(Vec::is_empty) {
        return mixed;
    }
    for _ in 0..TALKERS {
        let mut at = 0;
        let mut skip = true;
        while at < n {
            let clip = &speech[chance.random_range(0..speech.len())];
            let from = if skip { chance.random_range(0..clip.len().max(1)) } else { 0 };
            skip = false;
            for (to, sample) in mixed[at..].iter_mut().zip(clip.iter().rev().skip(from)) {
                *to += f32::from(*sample);
            }
            at += clip.len().saturating_sub(from).max(1);
        }
    }
    mixed
}

/// Four chords of a bar each, a melody of eighths over them, and a beat: kick, snare, hat.
fn music(n: usize, chance: &mut StdRng) -> Vec<f32> {
    const CHORDS: [[i32; 3]; 4] = [[0, 4, 7], [9, 12, 16], [5, 9, 12], [7, 11, 14]];
    const SCALE: [i32; 7] = [0, 2, 4, 5, 7, 9, 11];
    let eighth = (RATE * 60.0 / 110.0 / 2.0) as usize;
    let pitch = |semitones: i32| 220.0 * 2f32.powf(semitones as f32 / 12.0);
    let mut samples = vec![0.0f32; n];
    let mut note = |from: usize, length: usize, hz: f32, level: f32, bright: i32| {
        for (i, to) in samples.iter_mut().skip(from).take(length).enumerate() {
            let t = i as f32 / RATE;
            let envelope = (t / 0.01).min(1.0) * (-2.5 * t).exp();
            let vibrato = 0.004 * (TAU * 5.5 * t).sin();
            let tone: f32 = (1..=bright).map(|k| (TAU * hz * k as f32 * (t + vibrato / 30.0)).sin() / k as f32).sum();
            *to += level * envelope * tone;
        }
    };
    let mut beats = Vec::new();
    for (step, from) in (0..n).step_by(eighth).enumerate() {
        let chord = CHORDS[step / 8 % 4];
        if step % 4 == 0 {
            chord.iter().for_each(|semitones| note(from, 4 * eighth, pitch(*semitones - 12), 0.25, 6));
        }
        if chance.random::<f32>() < 0.8 {
            let degree = SCALE[chance.random_range(0..SCALE.len())];
            note(from, 2 * eighth, pitch(degree + 12), 0.35, 8);
        }
        beats.push((step, from));
    }
    for (step, from) in beats {
        let (length, level) = if step % 4 == 2 { (2_400, 0.5) } else { (800, 0.15) };
        for i in 0..length.min(n - from) {
            samples[from + i] += level * (-(i as f32) / (length as f32 / 5.0)).exp() * normal(chance);
        }
        if step % 4 == 0 {
            for i in 0..3_200.min(n - from) {
                let t = i as f32 / RATE;
                samples[from + i] += 0.9 * (-18.0 * t).exp() * (TAU * (45.0 + 60.0 * (-30.0 * t).exp()) * t).sin();
            }
        }
    }
    samples
}

/// Harmonics up to the twentieth, the odd ones louder, over a little hiss.
fn hum(n: usize, chance: &mut StdRng) -> Vec<f32> {
    let phases: Vec<f32> = (0..20).map(|_| chance.random::<f32>()).collect();
    let level = |k: usize| if k % 2 == 1 { 1.0 / k as f32 } else { 0.3 / k as f32 };
    let sample = |i: usize| -> f32 {
        let t = i as f32 / RATE;
        phases
            .iter()
            .enumerate()
            .map(|(k, phase)| level(k + 1) * (TAU * (50.0 * (k + 1) as f32 * t + phase)).sin())
            .sum()
    };
    (0..n).map(|i| sample(i) + 0.01 * normal(chance)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Power of the differences over the power: higher for what hisses.
    fn brightness(samples: &[f32]) -> f32 {
        let power: f32 = samples.iter().map(|x| x * x).sum();
        samples.windows(2).map(|pair| (pair[1] - pair[0]).powi(2)).sum::<f32>() / power
    }

    #[test]
    fn each_kind_has_its_level_and_is_the_same_again() {
        let speech = vec![vec![1_000i16, -2_000, 500, 30], vec![-700i16; 333]];
        for kind in Noise::ALL {
            let samples = kind.make(32_000, 7, &speech);
            let rms = (samples.iter().map(|x| x * x).sum::<f32>() / 32_000.0).sqrt();
            assert!((rms - 1.0).abs() < 1e-3, "{}: {rms}", kind.name());
            assert_eq!(samples, kind.make(32_000, 7, &speech), "{}", kind.name());
        }
        assert_eq!(Noise::Babble.make(3, 1, &[]), [0.0; 3]);
    }

    #[test]
    fn white_is_brighter_than_pink_and_pink_than_brown() {
        let [white, pink, brown] =
            [Noise::White, Noise::Pink, Noise::Brown].map(|kind| brightness(&kind.make(32_000, 3, &[])));
        assert!(white > 1.5 && pink < 0.7 * white && brown < 0.3 * pink, "{white} {pink} {brown}");
    }
}
