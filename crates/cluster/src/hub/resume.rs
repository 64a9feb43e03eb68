//! Where a chunk of speech goes on when its worker dies in the middle.
//!
//! An engine that gives the same speech again goes on at the sample, with a cross-fade where it adds noise. Another one cannot:
//! the words that were spoken are estimated from the time that was spoken, the rest is spoken from the next word on, and the
//! two are cross-faded.

use antiphon_types::{Pcm, SampleRate};
use std::time::Duration;

/// Length of the cross-fade, and of the audio that is kept back for it.
pub(super) const CROSS_FADE: Duration = Duration::from_millis(20);

/// Speaking time of a character before anything was measured: some 15 characters a second.
const PER_CHAR: Duration = Duration::from_millis(65);

/// Characters of a word: a longer stretch without white space is a language that writes none.
const LONGEST_WORD: usize = 16;

/// Speaking rates outside these bounds are errors of measurement.
const PER_CHAR_BOUNDS: (Duration, Duration) = (Duration::from_millis(20), Duration::from_millis(250));

/// The speaking rate of a voice: a moving average over its chunks.
#[derive(Clone, Copy, Debug)]
pub(super) struct SpeakingRate(Duration);

impl Default for SpeakingRate {
    fn default() -> Self {
        Self(PER_CHAR)
    }
}

impl SpeakingRate {
    /// Takes a chunk that was spoken to its end.
    pub(super) fn measure(&mut self, text: &str, sound: Duration) {
        let n_chars = text.chars().count() as u32;
        // A short chunk is mostly the silence around it.
        if n_chars >= 12 {
            let (least, most) = PER_CHAR_BOUNDS;
            let measured = (sound / n_chars).clamp(least, most);
            self.0 = (self.0 * 3 + measured) / 4;
        }
    }

    /// The rest of `text` after `spoken` of its sound, from the next beginning of a word on; `None` if nothing is left.
    pub(super) fn rest(self, text: &str, spoken: Duration) -> Option<&str> {
        let n_chars = usize::try_from(spoken.as_micros() / self.0.as_micros()).unwrap_or(usize::MAX);
        if n_chars == 0 {
            return Some(text);
        }
        let at = text.char_indices().nth(n_chars).map(|(at, _)| at)?;
        let is_inside = !text[..at].ends_with(char::is_whitespace);
        let after_word =
            || text[at..].split_once(char::is_whitespace).filter(|(word, _)| word.chars().count() <= LONGEST_WORD);
        let rest = match is_inside {
            false => &text[at..],
            true => match after_word() {
                Some((_, rest)) => rest,
                None if text[at..].chars().count() > LONGEST_WORD => &text[at..],
                None => return None,
            },
        };
        let rest = rest.trim_start();
        (!rest.is_empty()).then_some(rest)
    }
}

/// The samples that a cross-fade takes at this rate.
pub(super) fn cross_fade_samples(rate: SampleRate) -> usize {
    (CROSS_FADE.as_millis() as u64 * u64::from(rate.hz()) / 1_000) as usize
}

/// Fades from `kept`, the last samples of the lost attempt, to the beginning of `pcm`. Where the rates differ, `kept` goes
/// before it, faded out.
pub(super) fn cross_fade(kept: Pcm, mut pcm: Pcm) -> Vec<Pcm> {
    let n = kept.samples.len();
    let weight = |i: usize| (i as f32 + 0.5) / n as f32;
    if kept.rate != pcm.rate || pcm.samples.len() < n {
        let samples = kept.samples.iter().enumerate().map(|(i, old)| (f32::from(*old) * (1.0 - weight(i))) as i16);
        return vec![Pcm { rate: kept.rate, samples: samples.collect() }, pcm];
    }
    for (i, (new, old)) in pcm.samples.iter_mut().zip(&kept.samples).enumerate() {
        *new = (f32::from(*new) * weight(i) + f32::from(*old) * (1.0 - weight(i))) as i16;
    }
    vec![pcm]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rest_begins_with_a_word() {
        let rate = SpeakingRate(Duration::from_millis(100));
        let text = "one two three";
        let rest = |ms| rate.rest(text, Duration::from_millis(ms));
        assert_eq!(rest(0), Some("one two three"));
        assert_eq!(rest(99), Some("one two three"));
        assert_eq!(rest(100), Some("two three"), "inside the first word");
        assert_eq!(rest(400), Some("two three"), "at the beginning of a word");
        assert_eq!(rest(500), Some("three"));
        assert_eq!(rest(900), None, "inside the last word");
        assert_eq!(rest(5_000), None);
        assert_eq!(
            SpeakingRate(Duration::from_millis(100)).rest("zwölf größere Äpfel", Duration::from_millis(700)),
            Some("Äpfel")
        );
    }

    #[test]
    fn a_language_without_white_space_loses_nothing() {
        let text = "\u{4eca}".repeat(40);
        let rest = SpeakingRate(Duration::from_millis(100)).rest(&text, Duration::from_secs(1)).expect("30 are left");
        assert_eq!(rest.chars().count(), 30);
    }

    #[test]
    fn the_rate_follows_what_was_spoken() {
        let mut rate = SpeakingRate::default();
        for _ in 0..30 {
            rate.measure("twenty characters...", Duration::from_secs(2));
        }
        assert!((95..=100).contains(&rate.0.as_millis()), "{rate:?}");
        rate.measure("twenty characters...", Duration::from_secs(60));
        assert!(rate.0 < Duration::from_millis(150), "one that cannot be counts little: {rate:?}");
        let before = rate.0;
        rate.measure("Hm.", Duration::from_secs(1));
        assert_eq!(rate.0, before, "a short chunk says nothing");
    }

    #[test]
    fn a_cross_fade_has_no_step() {
        let pcm = |rate, samples: Vec<i16>| Pcm { rate, samples };
        let rate = SampleRate::HZ_24000;
        let n = cross_fade_samples(rate);
        assert_eq!(n, 480);
        let faded = cross_fade(pcm(rate, vec![10_000; n]), pcm(rate, vec![-10_000; 2 * n]));
        assert_eq!((faded.len(), faded[0].samples.len()), (1, 2 * n));
        let samples = &faded[0].samples;
        assert!(samples[0] > 9_900 && samples[2 * n - 1] == -10_000);
        assert!(samples.windows(2).all(|pair| (i32::from(pair[0]) - i32::from(pair[1])).abs() < 100));
        let other = cross_fade(pcm(SampleRate::HZ_16000, vec![10_000; 320]), pcm(rate, vec![5; 10]));
        assert_eq!(other.len(), 2);
        assert!(other[0].samples[319] < 100);
    }
}
