//! Single tones on a phone line: the beep of an answering machine, and the tone of a fax machine that answers.
//!
//! Sound comes in frames of 20 ms at 8 kHz. The frequency of a frame is that of the sine that predicts it best from its
//! last two samples; whether it is one tone at all, the share of its power at that frequency (Goertzel) says. Speech,
//! keys (two tones) and ringing tones (two tones, or the 425 Hz of Europe) are none. It has no IO and no clock.

use std::f32::consts::TAU;

/// Samples of a second, and of a frame.
pub(super) const HZ: u32 = 8_000;
pub(super) const FRAME: usize = 160;
/// Length of a frame, in milliseconds.
pub(super) const FRAME_MS: u32 = 20;
/// Share of a frame's power at one frequency from which it is a tone. A sine coded as mu-law has 0.97 and more, one of
/// 400 Hz in noise 0.8; two tones of equal power have about 0.5.
const PURE: f32 = 0.75;
/// The quietest tone, as the mean square of its samples: -46 dB of full scale.
const QUIETEST: f32 = 165.0 * 165.0;
/// A frame of the same tone is within this share of its frequency, or this many Hertz: noise moves estimates of quiet and
/// of low tones.
const STABLE: f32 = 0.04;
const STABLE_HZ: f32 = 30.0;
/// Silence behind a tone has at most this share of its power: -15 dB.
const DROP: f32 = 0.03;
/// Frames of silence after which a tone is over.
const ENDS_AFTER: u32 = 4;
/// Frames between two tones of a melody, at most.
const MELODY_GAP: u32 = 3;
/// Frequencies of beeps, in Hz: 400 to 2,500, as far off as an estimate may be.
const BEEP_HZ: std::ops::RangeInclusive<f32> = 390.0..=2_550.0;
/// Lengths of beeps, in milliseconds: longer tones are those of the network.
const BEEP_MS: std::ops::RangeInclusive<u32> = 140..=2_500;
/// The ringing, busy and congestion tone of most countries (ITU-T E.180) is no beep.
const NETWORK_HZ: std::ops::RangeInclusive<f32> = 413.0..=437.0;
/// The answer of a fax machine (CED, ITU-T T.30, section 4.1.2): 2,100 Hz, 15 Hz off at most, for 2.6 s and more. The
/// estimate is some Hertz off by itself.
const FAX_HZ: std::ops::RangeInclusive<f32> = 2_075.0..=2_125.0;
const FAX_MS: u32 = 2_000;

/// The calling tone of a fax machine (CNG, ITU-T T.30, section 4.1.1): 1,100 Hz, 38 Hz off at most, for 0.5 s, 15 % more or
/// less. The estimates are some Hertz and a frame off by themselves.
const CALLING_HZ: std::ops::RangeInclusive<f32> = 1_055.0..=1_145.0;
const CALLING_MS: std::ops::RangeInclusive<u32> = 400..=600;

/// What a line sounds like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tone {
    /// A beep is over, and silence follows it.
    Beep,
    /// A fax machine answers.
    Fax,
}

/// Finds tones in frames. See the module.
#[derive(Default)]
pub(super) struct ToneDetector {
    current: Option<SoundingTone>,
    /// Frames left in which a tone that begins belongs to the one before it.
    melody_left: u32,
    /// Whether the last beep may have been the calling tone of a fax machine.
    is_calling: bool,
}

/// A tone that sounds, or whose end is judged.
struct SoundingTone {
    /// The mean of its frames.
    hz: f32,
    /// Mean square of its first frame.
    power: f32,
    n_frames: u32,
    /// Silent frames behind it.
    n_silent: u32,
    /// Another tone went directly before: it is one of a melody, as those before an announcement of the network are.
    is_in_melody: bool,
    /// A fax machine was found.
    is_reported: bool,
}

impl ToneDetector {
    /// Takes the next frame of [`FRAME`] samples.
    pub(super) fn push(&mut self, frame: &[f32]) -> Option<Tone> {
        let power = mean_square(frame);
        let hz = (power >= QUIETEST).then(|| frequency(frame, power)).flatten();
        let is_in_melody = self.melody_left > 0;
        self.melody_left = self.melody_left.saturating_sub(1);
        let Some(current) = &mut self.current else {
            self.current = hz.map(|hz| SoundingTone::new(hz, power, is_in_melody));
            return None;
        };
        let same = hz.filter(|hz| (hz - current.hz).abs() <= STABLE_HZ.max(STABLE * current.hz));
        // One odd frame is noise.
        if let Some(hz) = same.filter(|_| current.n_silent <= 1) {
            current.n_frames += 1 + current.n_silent;
            current.hz += (hz - current.hz) / current.n_frames as f32;
            current.n_silent = 0;
            let is_fax = FAX_HZ.contains(&current.hz) && current.n_frames * FRAME_MS >= FAX_MS;
            if is_fax && !current.is_reported {
                current.is_reported = true;
                return Some(Tone::Fax);
            }
            return None;
        }
        let is_silent = power <= DROP * current.power;
        // The frame in which a tone ends holds a part of it; a second such frame is other sound.
        if is_silent || current.n_silent == 0 && hz.is_none() {
            current.n_silent += 1;
            if current.n_silent < ENDS_AFTER {
                return None;
            }
            let is_beep = current.is_beep();
            self.is_calling = is_beep && current.is_calling();
            self.current = None;
            return is_beep.then_some(Tone::Beep);
        }
        let follows_tone = current.n_frames > 1 || current.is_in_melody;
        if follows_tone {
            self.melody_left = MELODY_GAP;
        }
        self.current = hz.map(|hz| SoundingTone::new(hz, power, follows_tone));
        None
    }
}

impl ToneDetector {
    /// Whether the last [`Tone::Beep`] has the pitch and the length of a fax machine's calling tone.
    pub(super) fn was_calling_tone(&self) -> bool {
        self.is_calling
    }

    /// Whether the last frame was a tone.
    pub(super) fn is_sounding(&self) -> bool {
        self.current.as_ref().is_some_and(|current| current.n_silent == 0)
    }
}

impl SoundingTone {
    fn new(hz: f32, power: f32, is_in_melody: bool) -> Self {
        Self { hz, power, n_frames: 1, n_silent: 0, is_in_melody, is_reported: false }
    }

    fn is_beep(&self) -> bool {
        BEEP_HZ.contains(&self.hz)
            && !NETWORK_HZ.contains(&self.hz)
            && BEEP_MS.contains(&(self.n_frames * FRAME_MS))
            && !self.is_in_melody
    }

    fn is_calling(&self) -> bool {
        CALLING_HZ.contains(&self.hz) && CALLING_MS.contains(&(self.n_frames * FRAME_MS))
    }
}

/// The mean of the samples' squares.
pub(super) fn mean_square(samples: &[f32]) -> f32 {
    samples.iter().map(|sample| sample * sample).sum::<f32>() / samples.len().max(1) as f32
}

/// The frequency of a frame that is one tone, in Hz.
fn frequency(frame: &[f32], power: f32) -> Option<f32> {
    let mut cross = 0.0;
    let mut square = 0.0;
    for window in frame.windows(3) {
        cross += window[1] * (window[0] + window[2]);
        square += window[1] * window[1];
    }
    // x[n] + x[n - 2] = 2 cos(w) x[n - 1] for a sine.
    let half = 0.5 * cross / square.max(f32::EPSILON);
    let angle = (half.abs() < 1.0).then(|| half.acos())?;
    let share = power_at(frame, angle) / power.max(f32::EPSILON);
    (share >= PURE).then(|| angle * HZ as f32 / TAU)
}

/// The mean square of the part of a frame at this angle a sample.
fn power_at(frame: &[f32], angle: f32) -> f32 {
    let factor = 2.0 * angle.cos();
    let mut last = 0.0;
    let mut before = 0.0;
    for sample in frame {
        let next = sample + factor * last - before;
        before = last;
        last = next;
    }
    let n = frame.len() as f32;
    2.0 * (last * last + before * before - factor * last * before) / (n * n)
}

#[cfg(test)]
mod tests {
    use super::*;
    use antiphon_audio::codec;
    use antiphon_types::Format;

    /// A sine of this level for so many milliseconds.
    fn sine(hz: f32, level: f32, ms: usize) -> Vec<f32> {
        (0..8 * ms).map(|i| level * (TAU * hz * i as f32 / HZ as f32).sin()).collect()
    }

    fn silence(ms: usize) -> Vec<f32> {
        vec![0.0; 8 * ms]
    }

    /// Noise of this level, the same each time.
    fn noise(level: f32, ms: usize) -> Vec<f32> {
        let mut state = 1_u32;
        let mut next = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 8) as f32 / (1 << 23) as f32 - 1.0
        };
        (0..8 * ms).map(|_| level * next()).collect()
    }

    fn sum(first: &[f32], second: &[f32]) -> Vec<f32> {
        first.iter().zip(second).map(|(first, second)| first + second).collect()
    }

    /// As a phone line has it: mu-law, and not at a frame's border.
    fn found(parts: &[Vec<f32>]) -> Vec<Tone> {
        let mut samples = vec![0.0; 37];
        samples.extend(parts.concat());
        let clear: Vec<i16> = samples.iter().map(|sample| *sample as i16).collect();
        let mut coded = Vec::new();
        codec::encode(Format::Ulaw, &clear, &mut coded);
        let mut line = Vec::new();
        codec::decode(Format::Ulaw, &coded, &mut line).unwrap();
        let line: Vec<f32> = line.into_iter().map(f32::from).collect();
        let mut detector = ToneDetector::default();
        line.chunks_exact(FRAME).filter_map(|frame| detector.push(frame)).collect()
    }

    #[test]
    fn beeps_of_all_pitches_and_lengths_are_found_once_they_are_over() {
        for hz in [400.0, 440.0, 500.0, 620.0, 850.0, 1_000.0, 1_400.0, 1_477.0, 2_000.0, 2_500.0] {
            for ms in [180, 250, 500, 1_000, 2_000] {
                for level in [400.0, 3_000.0, 12_000.0] {
                    let parts = [noise(60.0, 300), sum(&sine(hz, level, ms), &noise(20.0, ms)), noise(20.0, 300)];
                    assert_eq!(found(&parts), [Tone::Beep], "{hz} Hz, {ms} ms, level {level}");
                }
            }
        }
    }

    #[test]
    fn what_is_no_single_tone_or_does_not_end_in_silence_is_no_beep() {
        let two = |first: f32, second: f32, ms: usize| sum(&sine(first, 4_000.0, ms), &sine(second, 4_000.0, ms));
        let cases: [(&str, Vec<Vec<f32>>); 10] = [
            ("a key", vec![two(697.0, 1_336.0, 300), silence(300)]),
            ("North America's ringing tone", vec![two(440.0, 480.0, 2_000), silence(500)]),
            ("Europe's ringing tone", vec![sine(425.0, 4_000.0, 1_000), silence(500)]),
            (
                "the tones before an announcement",
                vec![sine(950.0, 4_000.0, 330), sine(1_400.0, 4_000.0, 330), sine(1_800.0, 4_000.0, 330), silence(500)],
            ),
            ("a click", vec![sine(1_000.0, 8_000.0, 80), silence(300)]),
            ("a tone that goes on", vec![sine(1_000.0, 4_000.0, 4_000), silence(300)]),
            ("a tone below", vec![sine(350.0, 4_000.0, 500), silence(300)]),
            ("a tone above", vec![sine(2_800.0, 4_000.0, 500), silence(300)]),
            ("a tone that words follow", vec![sine(1_000.0, 4_000.0, 300), noise(4_000.0, 500), silence(300)]),
            ("noise", vec![noise(6_000.0, 1_000), silence(300)]),
        ];
        for (what, parts) in cases {
            assert_eq!(found(&parts), [], "{what}");
        }
    }

    #[test]
    fn a_whistle_that_changes_is_no_beep() {
        let mut angle = 0.0;
        let glide = (0..4_000).map(|i| {
            angle += TAU * (700.0 + 0.2 * i as f32) / HZ as f32;
            5_000.0 * f32::sin(angle)
        });
        assert_eq!(found(&[glide.collect(), silence(300)]), []);
    }

    #[test]
    fn a_fax_machine_is_found_while_it_sounds() {
        assert_eq!(found(&[silence(200), sine(2_100.0, 5_000.0, 3_000), silence(300)]), [Tone::Fax]);
        assert_eq!(found(&[sine(2_000.0, 5_000.0, 3_000), silence(300)]), []);
        assert_eq!(found(&[sine(2_100.0, 5_000.0, 500), silence(300)]), [Tone::Beep], "a short one is a beep");
    }

    #[test]
    fn speech_is_no_beep() {
        // Vowels: harmonics of a voice at 120 and 210 Hz, with formants.
        for pitch in [120.0, 210.0] {
            let harmonics = (1..=12).map(|n| sine(pitch * n as f32, 6_000.0 / n as f32, 600));
            let vowel = harmonics.reduce(|all, next| sum(&all, &next)).unwrap();
            assert_eq!(found(&[vowel, silence(300)]), []);
        }
    }
}
