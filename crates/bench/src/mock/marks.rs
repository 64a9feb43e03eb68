//! Marks that identify sessions: a faint high tone in the recording, a name in the text, a frequency in the voice.
//!
//! The tone is between 4.4 and 6.8 kHz, where speech is weak, at 3 % of the recording's peak: below the loudness
//! threshold, so that it does not affect the measurement, and far above the speech in its own narrow band.
use antiphon_types::SampleRate;
use realfft::RealFftPlanner;
use std::time::Duration;

/// Number of marks. Session 201 shares the mark of the first one.
pub const MARKS: usize = 200;
/// Frequency of the voice if no name is mentioned, in Hz.
pub(super) const PLAIN_HZ: f64 = 220.0;

/// Half a second at 16 kHz: FFT bins of 1.95 Hz, so that adjacent marks are six bins apart.
const WINDOW: usize = 8_192;
const LOWEST_HZ: f64 = 4_400.0;
const APART_HZ: f64 = 12.0;
/// Level of the tone relative to the recording's peak.
const LEVEL: f64 = 0.03;
/// Minimum level relative to the utterance's peak: a third of the tone's level, because part of the window may be
/// silent. The harmonics of a voice are far below it in this band.
const AT_LEAST: f32 = 0.01;

/// The name of a mark: two syllables that occur in no number or abbreviation of a speech engine.
pub fn name(mark: usize) -> String {
    const CONSONANTS: [char; 10] = ['B', 'D', 'F', 'G', 'K', 'L', 'M', 'P', 'R', 'V'];
    const SECOND: [&str; 20] = [
        "zab", "zad", "zaf", "zag", "zak", "zal", "zam", "zan", "zap", "zar", "zob", "zod", "zof", "zog", "zok", "zol",
        "zom", "zon", "zop", "zor",
    ];
    let mark = mark % MARKS;
    format!("{}u{}", CONSONANTS[mark / SECOND.len()], SECOND[mark % SECOND.len()])
}

/// The frequency of the voice for a mark, in Hz: whole periods in a tenth of a second.
pub fn tone_hz(mark: usize) -> f64 {
    300.0 + 10.0 * (mark % MARKS) as f64
}

/// The mark whose name occurs in `text`, if any.
pub(super) fn named(text: &str) -> Option<usize> {
    let mut words = text.split(|c: char| !c.is_alphabetic()).filter(|word| word.len() == 5);
    words.find_map(|word| (0..MARKS).find(|mark| name(*mark).eq_ignore_ascii_case(word)))
}

/// A sine at a quarter of full scale.
pub(super) fn tone(hz: f64, rate: SampleRate, length: Duration) -> Vec<i16> {
    let n = rate.samples_in(length).0;
    let step = std::f64::consts::TAU * hz / f64::from(rate.hz());
    (0..n).map(|i| (8_000.0 * (step * i as f64).sin()) as i16).collect()
}

/// The recording, mono at [`antiphon_client::RATE`], with a mark from its first to its last loud sample.
pub fn marked(samples: &[i16], loud: (usize, usize), mark: usize) -> Vec<i16> {
    let peak = samples.iter().map(|sample| sample.unsigned_abs()).max().unwrap_or(0);
    let step = std::f64::consts::TAU * pilot_hz(mark) / f64::from(antiphon_client::RATE.hz());
    let mut marked = samples.to_vec();
    for (i, sample) in marked.iter_mut().enumerate().take(loud.1).skip(loud.0) {
        let pilot = (LEVEL * f64::from(peak) * (step * i as f64).sin()) as i16;
        *sample = sample.saturating_add(pilot);
    }
    marked
}

fn pilot_hz(mark: usize) -> f64 {
    LOWEST_HZ + APART_HZ * (mark % MARKS) as f64
}

/// The mark in the middle of an utterance at [`antiphon_engine_api::stt::RATE`]; `None` if there is none.
pub(super) fn find(utterance: &[i16]) -> Option<usize> {
    let start = utterance.len().saturating_sub(WINDOW) / 2;
    let mut window: Vec<f32> = utterance.iter().skip(start).take(WINDOW).map(|sample| f32::from(*sample)).collect();
    window.resize(WINDOW, 0.0);
    // Without a window function the low frequencies of speech would leak into the band of the marks.
    let peak = window.iter().fold(0.0, |peak: f32, sample| peak.max(sample.abs()));
    for (i, sample) in window.iter_mut().enumerate() {
        *sample *= 0.5 - 0.5 * (std::f32::consts::TAU * i as f32 / WINDOW as f32).cos();
    }
    let fft = RealFftPlanner::<f32>::new().plan_fft_forward(WINDOW);
    let mut spectrum = fft.make_output_vec();
    fft.process(&mut window, &mut spectrum).ok()?;
    let level = |mark: usize| spectrum[bin(mark)].norm();
    let most = (0..MARKS).max_by(|a, b| level(*a).total_cmp(&level(*b)))?;
    // After the window function, a sine of amplitude 1 has a magnitude of a quarter of the window's length.
    (level(most) > AT_LEAST * peak * WINDOW as f32 / 4.0).then_some(most)
}

fn bin(mark: usize) -> usize {
    (pilot_hz(mark) * WINDOW as f64 / f64::from(antiphon_engine_api::stt::RATE.hz())).round() as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    /// One second of a buzz with many harmonics, like a voice, between two silences.
    fn voice() -> Vec<i16> {
        let buzz = (0..24_000).map(|i| {
            let harmonic =
                |k: i32| (std::f64::consts::TAU * 150.0 * f64::from(k * i) / 24_000.0).sin() / f64::from(k * k);
            (9_000.0 * (1..60).map(harmonic).sum::<f64>()) as i16
        });
        std::iter::repeat_n(0, 6_000).chain(buzz).chain(std::iter::repeat_n(0, 4_800)).collect()
    }

    #[test]
    fn every_mark_is_found_behind_a_voice_and_none_where_there_is_none() {
        let voice = voice();
        let heard = |samples: &[i16]| {
            find(&antiphon_audio::convert(samples, antiphon_client::RATE, antiphon_engine_api::stt::RATE))
        };
        for mark in 0..MARKS {
            assert_eq!(heard(&marked(&voice, (6_000, 30_000), mark)), Some(mark));
        }
        assert_eq!((heard(&voice), find(&[])), (None, None));
    }

    #[test]
    fn names_differ_and_are_found_in_what_was_said() {
        let names: BTreeSet<String> = (0..MARKS).map(name).collect();
        assert_eq!(names.len(), MARKS);
        for mark in 0..MARKS {
            assert_eq!(named(&format!("\"hello {}, can you\"", name(mark).to_lowercase())), Some(mark));
        }
        assert_eq!(named("Sure, I can help."), None);
    }
}
