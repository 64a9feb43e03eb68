//! Sound by arithmetic: levels, coughs and laughter, and the conditions under which a user is heard.
//!
//! All of it is mono at [`RATE`], the same at each run for the same seed. Coughs and laughter are bursts of noise with
//! their envelopes, no recordings of people. Reverberation is a sparse impulse response whose power falls by 60 dB in
//! [`ROOM_RT60_S`].

use super::super::noise::Noise;
use super::super::questions::loud;
use super::scenario::{Condition, NoiseKind};
use antiphon_audio::codec::{decode, encode};
use antiphon_audio::convert;
use antiphon_client::RATE;
use antiphon_types::{Format, SampleRate};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

/// Root mean square of speech where it is loud: -26 dB below full scale.
pub(super) const SPEECH_RMS: f64 = 1_642.0;
/// A room without noise: -72 dB below full scale.
const QUIET_RMS: f64 = 8.0;
/// Length of the noise that is repeated.
const BED_S: usize = 10;
/// Time in which a far room's sound falls by 60 dB.
const ROOM_RT60_S: f64 = 0.5;
/// Reflections of the far room.
const ROOM_TAPS: usize = 240;
/// How much quieter a far user is.
const FAR_DB: f64 = -10.0;

/// Samples of a time.
pub(super) fn samples_of(ms: u32) -> usize {
    ms as usize * RATE.hz() as usize / 1_000
}

/// The time of samples, in whole ms.
pub(super) fn ms_of(samples: usize) -> u32 {
    (samples * 1_000 / RATE.hz() as usize) as u32
}

/// The sound between its first and last loud sample, at the level of all speech. Empty where nothing is loud.
pub(super) fn levelled(samples: &[i16]) -> Vec<i16> {
    let Some((first, last)) = loud(samples) else { return Vec::new() };
    let spoken = &samples[first..=last];
    scaled(spoken, SPEECH_RMS / voiced_rms(spoken).max(1.0))
}

/// Root mean square of speech at [`RATE`], where it is loud.
pub(crate) fn voiced_rms(spoken: &[i16]) -> f64 {
    let frames = spoken.chunks(samples_of(20));
    let powers: Vec<f64> = frames.map(power).collect();
    let most = powers.iter().copied().fold(0.0, f64::max);
    // Pauses do not count: 30 dB below the loudest frame is not the voice.
    let voiced: Vec<f64> = powers.into_iter().filter(|power| *power > most / 1e3).collect();
    (voiced.iter().sum::<f64>() / voiced.len().max(1) as f64).sqrt()
}

fn power(frame: &[i16]) -> f64 {
    frame.iter().map(|sample| f64::from(*sample).powi(2)).sum::<f64>() / frame.len().max(1) as f64
}

/// The samples by a factor.
pub(crate) fn scaled(samples: &[i16], by: f64) -> Vec<i16> {
    samples.iter().map(|sample| (f64::from(*sample) * by) as i16).collect()
}

/// The factor of a level in dB.
pub(crate) fn gain(db: f64) -> f64 {
    10f64.powf(db / 20.0)
}

/// Adds `other` to `samples` from its beginning; what is longer is left out.
pub(super) fn mix(samples: &mut [i16], other: &[i16]) {
    samples.iter_mut().zip(other).for_each(|(to, sample)| *to = to.saturating_add(*sample));
}

/// Speech of a person who has turned away: 9 dB quieter, and without its high frequencies.
pub(super) fn turned_away(samples: &[i16]) -> Vec<i16> {
    // One pole at 1.5 kHz.
    let pole = (-std::f64::consts::TAU * 1_500.0 / f64::from(RATE.hz())).exp();
    let mut state = 0.0;
    let next = |sample: &i16| {
        state = pole * state + (1.0 - pole) * f64::from(*sample);
        (state * gain(-9.0)) as i16
    };
    samples.iter().map(next).collect()
}

/// A cough: two bursts of noise that begin at once and fade.
pub(super) fn cough(seed: u64) -> Vec<i16> {
    let mut chance = StdRng::seed_from_u64(seed);
    let second = chance.random_range(180..280);
    bursts(&[(0, 160), (second, 220)], 9.0, seed)
}

/// Laughter: five short bursts, a fifth of a second apart, with a voice of falling pitch.
pub(super) fn laughter(seed: u64) -> Vec<i16> {
    let mut chance = StdRng::seed_from_u64(seed);
    let step: u32 = chance.random_range(170..230);
    let steps: Vec<(u32, u32)> = (0..5).map(|i| (i * step, 120)).collect();
    let mut samples = bursts(&steps, 6.0, seed);
    let rate = f64::from(RATE.hz());
    let mut phase = 0.0;
    for (i, sample) in samples.iter_mut().enumerate() {
        let hz = 260.0 - 60.0 * i as f64 / rate;
        phase += hz / rate;
        let tone = (std::f64::consts::TAU * phase).sin() + 0.5 * (2.0 * std::f64::consts::TAU * phase).sin();
        *sample = (f64::from(*sample) * (0.4 + tone)).clamp(-32_768.0, 32_767.0) as i16;
    }
    levelled(&samples)
}

/// Bursts of noise: beginning and length of each in ms, and how fast they fade.
fn bursts(bursts: &[(u32, u32)], fade: f64, seed: u64) -> Vec<i16> {
    let end = bursts.iter().map(|(from, length)| from + length).max().unwrap_or(0);
    let noise = Noise::Pink.make(samples_of(end), seed, &[]);
    let mut samples = vec![0.0f64; noise.len()];
    for (from, length) in bursts {
        let n = samples_of(*length);
        for i in 0..n {
            let at = samples_of(*from) + i;
            samples[at] += f64::from(noise[at]) * (-fade * i as f64 / n as f64).exp() * 8_000.0;
        }
    }
    levelled(&samples.into_iter().map(|sample| sample.clamp(-32_768.0, 32_767.0) as i16).collect::<Vec<_>>())
}

/// What a microphone hears all the time under a condition, to be repeated. `babble`: speech of which babble is made, at
/// [`RATE`].
pub(super) fn bed(condition: Condition, seed: u64, babble: &[Vec<i16>]) -> Vec<i16> {
    let (noise, rms) = match condition {
        Condition::Noisy { kind, snr_db } => (kind, SPEECH_RMS / gain(f64::from(snr_db))),
        Condition::FarField => (NoiseKind::Brown, SPEECH_RMS * gain(FAR_DB - 25.0)),
        Condition::Clean | Condition::Telephone => (NoiseKind::Pink, QUIET_RMS),
    };
    let speech_rate = SampleRate::HZ_16000;
    let babble: Vec<Vec<i16>> = babble.iter().map(|speech| convert(speech, RATE, speech_rate)).collect();
    let kind = match noise {
        NoiseKind::Pink => Noise::Pink,
        NoiseKind::Brown => Noise::Brown,
        NoiseKind::Babble => Noise::Babble,
    };
    let made = kind.make(BED_S * speech_rate.hz() as usize, seed, &babble);
    let samples: Vec<i16> = made.into_iter().map(|sample| (f64::from(sample) * rms) as i16).collect();
    convert(&samples, speech_rate, RATE)
}

/// A user's sound under a condition, of the same length. Noise is no part of it: see [`bed`].
pub(super) fn under(condition: Condition, samples: &[i16], seed: u64) -> Vec<i16> {
    let mut heard = match condition {
        Condition::Clean | Condition::Noisy { .. } => return samples.to_vec(),
        Condition::Telephone => telephone(samples),
        Condition::FarField => far(samples, seed),
    };
    heard.resize(samples.len(), 0);
    heard
}

/// 300 Hz to 3.4 kHz at 8 kHz in mu-law.
fn telephone(samples: &[i16]) -> Vec<i16> {
    let narrow = convert(samples, RATE, SampleRate::HZ_8000);
    // One zero at 0 Hz, one pole at 300 Hz.
    let pole = (-std::f64::consts::TAU * 300.0 / f64::from(SampleRate::HZ_8000.hz())).exp();
    let mut before = 0.0;
    let mut state = 0.0;
    let next = |sample: &i16| {
        state = pole * state + f64::from(*sample) - before;
        before = f64::from(*sample);
        state.clamp(-32_768.0, 32_767.0) as i16
    };
    let narrow: Vec<i16> = narrow.iter().map(next).collect();
    let mut coded = Vec::new();
    encode(Format::Ulaw, &narrow, &mut coded);
    let mut heard = Vec::new();
    match decode(Format::Ulaw, &coded, &mut heard) {
        Ok(()) => convert(&heard, SampleRate::HZ_8000, RATE),
        // Every byte is a sample of mu-law.
        Err(_) => convert(&narrow, SampleRate::HZ_8000, RATE),
    }
}

fn far(samples: &[i16], seed: u64) -> Vec<i16> {
    let mut chance = StdRng::seed_from_u64(seed);
    let rate = f64::from(RATE.hz());
    let tail = (ROOM_RT60_S * rate) as usize;
    let mut taps = vec![(0usize, 1.0f64)];
    for _ in 0..ROOM_TAPS {
        let at = chance.random_range(samples_of(5)..tail);
        // 60 dB at the end of the tail; all reflections together have the power of the direct sound.
        let level = 10f64.powf(-3.0 * at as f64 / tail as f64) * chance.random_range(-1.0..1.0);
        taps.push((at, level));
    }
    let reflected = taps[1..].iter().map(|(_, level)| level * level).sum::<f64>().sqrt();
    taps[1..].iter_mut().for_each(|(_, level)| *level /= reflected);
    let mut heard = vec![0.0f64; samples.len()];
    for (at, level) in taps {
        let late = heard.get_mut(at..).unwrap_or_default();
        late.iter_mut().zip(samples).for_each(|(to, sample)| *to += level * f64::from(*sample));
    }
    heard.into_iter().map(|sample| (sample * gain(FAR_DB)).clamp(-32_768.0, 32_767.0) as i16).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rms(samples: &[i16]) -> f64 {
        power(samples).sqrt()
    }

    /// Half a second of a tone.
    fn tone(hz: f64) -> Vec<i16> {
        let sample = |i: usize| (8_000.0 * (std::f64::consts::TAU * hz * i as f64 / f64::from(RATE.hz())).sin()) as i16;
        (0..samples_of(500)).map(sample).collect()
    }

    #[test]
    fn speech_has_one_level_and_no_silence_around_it() {
        let quiet = [vec![0; 4_000], scaled(&tone(200.0), 0.1), vec![0; 4_000]].concat();
        let level = levelled(&quiet);
        assert!((rms(&level) / SPEECH_RMS - 1.0).abs() < 0.05, "{}", rms(&level));
        assert!(level.len().abs_diff(samples_of(500)) < samples_of(5), "{}", level.len());
        assert!(levelled(&[0; 100]).is_empty());
    }

    #[test]
    fn a_telephone_takes_the_low_and_the_high_and_keeps_the_length() {
        let kept = |hz: f64| rms(&under(Condition::Telephone, &tone(hz), 1)) / rms(&tone(hz));
        assert!(kept(1_000.0) > 0.8 && kept(60.0) < 0.4 && kept(6_000.0) < 0.1);
        assert_eq!(under(Condition::Telephone, &tone(500.0), 1).len(), tone(500.0).len());
    }

    #[test]
    fn a_far_room_goes_on_sounding_and_is_the_same_again() {
        let click = [tone(400.0), vec![0; samples_of(500)]].concat();
        let heard = under(Condition::FarField, &click, 3);
        assert_eq!(heard, under(Condition::FarField, &click, 3));
        assert_ne!(heard, under(Condition::FarField, &click, 4));
        let after = rms(&heard[samples_of(520)..samples_of(600)]);
        let late = rms(&heard[samples_of(900)..]);
        assert!(after > 20.0 && late < after / 3.0, "{after} {late}");
    }

    #[test]
    fn noise_is_as_loud_as_its_condition_says() {
        let noisy = Condition::Noisy { kind: NoiseKind::Pink, snr_db: 10 };
        let level = rms(&bed(noisy, 5, &[]));
        assert!((level / (SPEECH_RMS / gain(10.0)) - 1.0).abs() < 0.1, "{level}");
        assert!(rms(&bed(Condition::Clean, 5, &[])) < 10.0);
    }

    #[test]
    fn coughs_and_laughter_are_short_and_as_loud_as_speech() {
        for sound in [cough(1), laughter(1)] {
            assert!((200..1_500).contains(&ms_of(sound.len())), "{} ms", ms_of(sound.len()));
            assert!(rms(&sound) > 300.0);
        }
        assert_ne!(cough(1), cough(2));
    }
}
