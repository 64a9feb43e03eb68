//! What the called side sounds like: speech at a level, the beep behind it, and the line's noise, in mu-law.
//!
//! The same seed gives the same sound. All of it is at 8 kHz; [`super::calling`] plays it, frame by frame.

use super::lines::Label;
use crate::conversation::acoustics::{gain, scaled, voiced_rms};
use crate::noise::Noise;
use crate::questions::loud;
use antiphon_audio::{codec, convert};
use antiphon_client::RATE;
use antiphon_types::{Format, SampleRate};
use bytes::Bytes;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use std::f64::consts::{SQRT_2, TAU};
use std::ops::Range;
use std::time::Duration;

/// Samples a second of the line.
const LINE_RATE: SampleRate = SampleRate::HZ_8000;
/// Samples of a frame.
pub(super) const FRAME: usize = 160;
/// Playing time of a frame.
pub(super) const FRAME_TIME: Duration = Duration::from_millis(20);
/// Levels of speech and of beeps, in dB of full scale: root mean square where it is loud.
const LEVELS_DB: Range<f64> = -30.0..-12.0;
/// Level of the noise, in dB of full scale.
const NOISE_DB: f64 = -55.0;
/// Length of the noise, which is repeated, in seconds.
const NOISE_S: usize = 10;
/// Silence from the answer to the first word, in seconds: of a person, and of a machine.
const PERSON_WAITS_S: Range<f64> = 0.2..1.5;
const MACHINE_WAITS_S: Range<f64> = 0.2..0.8;
/// Three of four answering machines beep.
const BEEPS_OF_FOUR: u32 = 3;
/// Pitches of beeps, in Hz.
const BEEPS_HZ: [f64; 7] = [400.0, 440.0, 620.0, 850.0, 1_000.0, 1_400.0, 2_000.0];
/// Length of a beep, and the silence before it, in seconds.
const BEEP_S: Range<f64> = 0.15..1.2;
const BEFORE_BEEP_S: Range<f64> = 0.2..1.0;
/// A beep begins and ends within this time, in seconds.
const BEEP_EDGE_S: f64 = 0.005;
/// The highest sample of a beep.
const BEEP_PEAK: f64 = 30_000.0;
/// What is kept of the voice beside its first and its last loud sample: a tenth of a second.
const MARGIN: usize = RATE.hz() as usize / 10;

/// See the module.
#[derive(Debug)]
pub(super) struct LineSound {
    /// From the answer on.
    frames: Vec<Bytes>,
    /// The noise, which goes on behind it.
    noise: Vec<Bytes>,
    /// Frames up to the end of the last word.
    pub(super) n_to_words_end: usize,
    /// Frames up to the end of the last sound: the beep's, where there is one.
    pub(super) n_to_sound_end: usize,
    /// Level and beep, for people.
    pub(super) description: String,
}

impl LineSound {
    /// The sound of an answer whose speech, at [`RATE`], is this. `None`: it is silent.
    pub(super) fn new(speech: &[i16], label: Label, seed: u64) -> Option<Self> {
        let (first, last) = loud(speech)?;
        let mut chance = StdRng::seed_from_u64(seed);
        let level_db = chance.random_range(LEVELS_DB);
        let rms = full_scale(level_db);
        let from = first.saturating_sub(MARGIN);
        let to = (last + 1 + MARGIN).min(speech.len());
        let spoken = scaled(&speech[from..to], rms / voiced_rms(&speech[first..=last]).max(1.0));
        let waits_s = chance.random_range(if label == Label::Person { PERSON_WAITS_S } else { MACHINE_WAITS_S });
        let mut samples = vec![0; n_samples(waits_s)];
        let words_end = samples.len() + (last + 1 - from) * LINE_RATE.hz() as usize / RATE.hz() as usize;
        samples.extend(convert(&spoken, RATE, LINE_RATE));
        let mut description = format!("{level_db:.0} dB");
        let mut sound_end = words_end;
        if label == Label::Voicemail && chance.random_range(0..4_u32) < BEEPS_OF_FOUR {
            let pause_s = chance.random_range(BEFORE_BEEP_S);
            let hz = BEEPS_HZ[chance.random_range(0..BEEPS_HZ.len())];
            let length_s = chance.random_range(BEEP_S);
            samples.resize(words_end + n_samples(pause_s), 0);
            samples.extend(beep(hz, length_s, rms));
            sound_end = samples.len();
            description += &format!(", beep {hz:.0} Hz {length_s:.1} s");
        }
        samples.resize(samples.len().next_multiple_of(FRAME), 0);
        let noise = noise(seed);
        for (sample, noise) in samples.iter_mut().zip(noise.iter().cycle()) {
            *sample = sample.saturating_add(*noise);
        }
        let n_to_words_end = words_end.div_ceil(FRAME);
        let n_to_sound_end = sound_end.div_ceil(FRAME);
        Some(Self { frames: coded(&samples), noise: coded(&noise), n_to_words_end, n_to_sound_end, description })
    }

    /// The frame of this index since the answer, without end.
    pub(super) fn frame(&self, index: usize) -> Bytes {
        let noise = &self.noise[index % self.noise.len()];
        self.frames.get(index).unwrap_or(noise).clone()
    }
}

/// A sample's value of a level in dB.
fn full_scale(db: f64) -> f64 {
    32_768.0 * gain(db)
}

/// Samples of a time on the line.
fn n_samples(seconds: f64) -> usize {
    (seconds * f64::from(LINE_RATE.hz())) as usize
}

/// A tone of this root mean square.
fn beep(hz: f64, seconds: f64, rms: f64) -> Vec<i16> {
    let n = n_samples(seconds);
    let edge = n_samples(BEEP_EDGE_S);
    let peak = (rms * SQRT_2).min(BEEP_PEAK);
    let sample = |i: usize| {
        let from_edge = i.min(n - 1 - i);
        let envelope = (from_edge as f64 / edge as f64).min(1.0);
        (peak * envelope * (TAU * hz * i as f64 / f64::from(LINE_RATE.hz())).sin()) as i16
    };
    (0..n).map(sample).collect()
}

/// The line's noise, of whole frames.
fn noise(seed: u64) -> Vec<i16> {
    let made = Noise::Pink.make(NOISE_S * LINE_RATE.hz() as usize, seed, &[]);
    let rms = full_scale(NOISE_DB);
    made.into_iter().map(|sample| (f64::from(sample) * rms) as i16).collect()
}

/// Frames of mu-law.
fn coded(samples: &[i16]) -> Vec<Bytes> {
    let frame = |samples: &[i16]| {
        let mut bytes = Vec::new();
        codec::encode(Format::Ulaw, samples, &mut bytes);
        Bytes::from(bytes)
    };
    samples.chunks(FRAME).map(frame).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 600 ms of a voice at 24 kHz, with silence around it.
    fn speech() -> Vec<i16> {
        let at = |i: usize| (4_000.0 * (TAU * 200.0 * i as f64 / f64::from(RATE.hz())).sin()) as i16;
        let voice: Vec<i16> = (0..RATE.hz() as usize * 6 / 10).map(at).collect();
        let silence = vec![0; RATE.hz() as usize / 2];
        [silence.clone(), voice, silence].concat()
    }

    fn rms(samples: &[i16]) -> f64 {
        let power = samples.iter().map(|sample| f64::from(*sample).powi(2)).sum::<f64>();
        (power / samples.len() as f64).sqrt()
    }

    fn decoded(frames: &[Bytes]) -> Vec<i16> {
        let mut samples = Vec::new();
        for frame in frames {
            codec::decode(Format::Ulaw, frame, &mut samples).expect("samples");
        }
        samples
    }

    #[test]
    fn a_beep_has_its_pitch_its_length_and_its_level() {
        let samples = beep(1_000.0, 0.5, 3_000.0);
        assert_eq!(samples.len(), 4_000);
        let crossings = samples.windows(2).filter(|pair| (pair[0] < 0) != (pair[1] < 0)).count();
        assert!((990..=1_001).contains(&crossings), "{crossings} in half a second of 1 kHz");
        assert!((rms(&samples) / 3_000.0 - 1.0).abs() < 0.05, "{}", rms(&samples));
        assert!(samples[0] == 0 && samples[3_999].unsigned_abs() < 300, "it fades in and out");
        assert!(beep(440.0, 0.2, 32_000.0).iter().all(|sample| sample.unsigned_abs() <= 30_000));
    }

    #[test]
    fn a_person_waits_speaks_and_is_followed_by_noise() {
        let sound = LineSound::new(&speech(), Label::Person, 7).expect("loud");
        // 0.2 to 1.5 s, a tenth of a second before the voice, and 0.6 s of it.
        assert!((45..=111).contains(&sound.n_to_words_end), "{} frames", sound.n_to_words_end);
        assert_eq!(sound.n_to_sound_end, sound.n_to_words_end, "no beep");
        let voice = decoded(&sound.frames[sound.n_to_words_end - 20..sound.n_to_words_end - 5]);
        let level_db = 20.0 * (rms(&voice) / 32_768.0).log10();
        assert!((-31.0..-11.0).contains(&level_db), "{level_db}");
        let behind: Vec<Bytes> = (0..100).map(|i| sound.frame(sound.frames.len() + i)).collect();
        let noise_db = 20.0 * (rms(&decoded(&behind)) / 32_768.0).log10();
        assert!((-60.0..-50.0).contains(&noise_db), "{noise_db}");
    }

    #[test]
    fn three_of_four_answering_machines_beep() {
        let beeps = |seed: u64| {
            let sound = LineSound::new(&speech(), Label::Voicemail, seed).expect("loud");
            sound.n_to_sound_end > sound.n_to_words_end
        };
        let n = (0..40).filter(|seed| beeps(*seed)).count();
        assert!((20..=38).contains(&n), "{n} of 40");
        let menu = LineSound::new(&speech(), Label::Ivr, 1).expect("loud");
        assert_eq!(menu.n_to_sound_end, menu.n_to_words_end);
    }

    #[test]
    fn a_seed_gives_the_same_sound_and_silence_gives_none() {
        let sound = |seed| LineSound::new(&speech(), Label::Voicemail, seed).expect("loud").frames;
        assert_eq!(sound(3), sound(3));
        assert_ne!(sound(3), sound(4));
        assert!(LineSound::new(&[0; 100], Label::Person, 1).is_none());
    }
}
