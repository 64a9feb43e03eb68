//! What a client's listener hears, as stretches of sound on the client's clock.
//!
//! Sound is above -50 dBFS, judged in windows of 2.5 ms; the samples themselves are not kept. Audio is either queued behind
//! what is there, as players of streams do, or played at a time that its transport gives (RTP).

use antiphon_types::{SampleRate, Samples};
use std::time::Duration;
use tokio::time::Instant;

/// Samples above this level are audible: -50 dBFS, `32768 * 10^(-50 / 20)`.
const AUDIBLE: u16 = 104;
/// Windows a second.
const WINDOWS: u32 = 400;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Recording {
    /// Stretches of sound, in order.
    sounds: Vec<(Instant, Instant)>,
    plays_until: Option<Instant>,
    /// Since when playback stands still.
    held: Option<Instant>,
}

impl Recording {
    /// Audio received at `now`, played behind what is there.
    pub(super) fn queue(&mut self, samples: &[i16], rate: SampleRate, now: Instant) {
        let begins = self.plays_until.map_or(now, |until| until.max(now));
        self.plays_until = Some(begins + Samples(samples.len() as u64).duration(rate));
        self.at(samples, rate, begins);
    }

    /// Audio that is played at `begins`.
    pub(super) fn at(&mut self, samples: &[i16], rate: SampleRate, begins: Instant) {
        let window = (rate.hz() / WINDOWS) as usize;
        for (i, part) in samples.chunks(window).enumerate() {
            if part.iter().all(|sample| sample.unsigned_abs() < AUDIBLE) {
                continue;
            }
            let from = begins + Samples((i * window) as u64).duration(rate);
            let to = from + Samples(part.len() as u64).duration(rate);
            match self.sounds.last_mut() {
                // Durations are rounded.
                Some((_, end)) if from <= *end + Duration::from_micros(10) => *end = to.max(*end),
                _ => self.sounds.push((from, to)),
            }
        }
    }

    /// Playback stops at `now` until it is resumed.
    pub(super) fn hold(&mut self, now: Instant) {
        self.held.get_or_insert(now);
    }

    /// Playback goes on.
    pub(super) fn resume(&mut self, now: Instant) {
        let Some(since) = self.held.take() else { return };
        let by = now - since;
        let mut later = Vec::new();
        for (from, to) in &mut self.sounds {
            if *from >= since {
                *from += by;
                *to += by;
            } else if *to > since {
                later.push((now, *to + by));
                *to = since;
            }
        }
        self.sounds.extend(later);
        self.sounds.sort();
        self.plays_until = self.plays_until.map(|until| if until > since { until + by } else { until });
    }

    /// What was not played by `now` is discarded.
    pub(super) fn clear(&mut self, now: Instant) {
        let at = self.held.take().unwrap_or(now);
        self.sounds.retain(|(from, _)| *from < at);
        if let Some((_, to)) = self.sounds.last_mut() {
            *to = (*to).min(at);
        }
        self.plays_until = Some(now);
    }

    /// Forgets what was played.
    pub(super) fn reset(&mut self) {
        self.sounds.clear();
    }

    /// When the first sound begins.
    pub(super) fn first(&self) -> Option<Instant> {
        self.sounds.first().map(|(from, _)| *from)
    }

    /// When the last sound ends, as far as is known.
    pub(super) fn last(&self) -> Option<Instant> {
        let (_, to) = self.sounds.last()?;
        Some(self.held.map_or(*to, |held| held.min(*to)))
    }

    /// Duration of all sound, without pauses in between.
    pub(super) fn total(&self) -> Duration {
        self.sounds.iter().map(|(from, to)| *to - *from).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RATE: SampleRate = SampleRate::HZ_8000;

    fn ms(n: u64) -> Duration {
        Duration::from_millis(n)
    }

    #[test]
    fn queued_audio_is_played_in_real_time_and_silence_is_no_sound() {
        let start = Instant::now();
        let mut recording = Recording::default();
        recording.queue(&[0; 80], RATE, start);
        recording.queue(&[1_000; 160], RATE, start + ms(1));
        recording.queue(&[1_000; 160], RATE, start + ms(2));
        assert_eq!((recording.first(), recording.last()), (Some(start + ms(10)), Some(start + ms(50))));
        assert_eq!(recording.total(), ms(40));
        recording.queue(&[-1_000; 80], RATE, start + ms(100));
        assert_eq!((recording.last(), recording.total()), (Some(start + ms(110)), ms(50)));
        recording.at(&[1_000; 80], RATE, start + ms(200));
        recording.clear(start + ms(205));
        assert_eq!((recording.last(), recording.total()), (Some(start + ms(205)), ms(55)));
    }

    #[test]
    fn a_hold_moves_what_follows_and_a_clear_ends_it() {
        let start = Instant::now();
        let mut recording = Recording::default();
        recording.queue(&[1_000; 800], RATE, start);
        recording.hold(start + ms(40));
        assert_eq!(recording.last(), Some(start + ms(40)));
        recording.resume(start + ms(70));
        assert_eq!((recording.last(), recording.total()), (Some(start + ms(130)), ms(100)));
        recording.hold(start + ms(90));
        recording.clear(start + ms(120));
        assert_eq!((recording.last(), recording.total()), (Some(start + ms(90)), ms(60)));
    }
}
