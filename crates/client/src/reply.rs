//! Simulates playback of a response: it starts with the first sample received and stalls when the next one is late.

use super::RATE;
use antiphon_types::Samples;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// Samples above this level are audible: -50 dBFS, `32768 * 10^(-50 / 20)`.
const AUDIBLE: u16 = 104;
/// Samples kept of a response: 10 minutes. Samples beyond are counted but not kept.
const MAX_SAMPLES: usize = 10 * 60 * 24_000;

/// The audio of a response and its playback position. A clone shares the samples until one of the two gets more.
#[derive(Clone, Debug, Default)]
pub struct Reply {
    /// The item being played; `None` before the first audio.
    item_id: Option<String>,
    samples: Arc<Vec<i16>>,
    received: Samples,
    /// When playback reaches the end of the received audio.
    plays_until: Option<Instant>,
    /// When playback was paused, while it is.
    held: Option<Instant>,
    audible: Option<Instant>,
    first: Option<Instant>,
    gaps: Gaps,
}

/// Underruns: times at which playback waited for more audio of the same item.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Gaps {
    /// Number of underruns.
    pub n: usize,
    /// Total duration.
    pub total: Duration,
    /// Longest duration.
    pub longest: Duration,
}

impl Gaps {
    fn push(&mut self, gap: Duration) {
        self.n += 1;
        self.total += gap;
        self.longest = self.longest.max(gap);
    }
}

impl Reply {
    /// Adds audio received at `now`. The first audio of another item starts where playback of the previous item ends;
    /// positions are relative to the item.
    pub fn take(&mut self, item_id: &str, samples: &[i16], now: Instant) {
        if samples.is_empty() {
            return;
        }
        if self.item_id.as_deref() != Some(item_id) {
            self.item_id = Some(item_id.to_owned());
            self.received = Samples::ZERO;
        }
        self.first.get_or_insert(now);
        let begins = self.plays_until.map_or(now, |until| until.max(now));
        match self.plays_until {
            Some(until) if self.held.is_none() && begins > until => self.gaps.push(begins - until),
            _ => {}
        }
        let sounding = samples.iter().position(|sample| sample.unsigned_abs() >= AUDIBLE);
        if let (None, Some(at)) = (self.audible, sounding) {
            self.audible = Some(begins + Samples(at as u64).duration(RATE));
        }
        let n = Samples(samples.len() as u64);
        self.received += n;
        self.plays_until = Some(begins + n.duration(RATE));
        let room = MAX_SAMPLES - self.samples.len();
        Arc::make_mut(&mut self.samples).extend_from_slice(&samples[..samples.len().min(room)]);
    }

    /// Pauses playback at `now`.
    pub fn hold(&mut self, now: Instant) {
        self.held.get_or_insert(now);
    }

    /// Resumes playback.
    pub fn resume(&mut self, now: Instant) {
        if let Some(since) = self.held.take() {
            self.plays_until = self.plays_until.map(|until| if until > since { until + (now - since) } else { until });
        }
    }

    /// Drops the audio that was not played yet.
    pub fn clear(&mut self, now: Instant) {
        let unheard = self.unheard(now);
        self.received = self.received.saturating_sub(unheard);
        let kept = self.samples.len().saturating_sub(unheard.0 as usize);
        if kept < self.samples.len() {
            Arc::make_mut(&mut self.samples).truncate(kept);
        }
        self.held = None;
        self.plays_until = Some(now);
    }

    /// The item being played and the length of its audio played by `now`.
    pub fn heard(&self, now: Instant) -> Option<(&str, Samples)> {
        let item_id = self.item_id.as_deref()?;
        Some((item_id, self.received.saturating_sub(self.unheard(now))))
    }

    /// Duration of the audio received.
    pub fn duration(&self) -> Duration {
        Samples(self.samples.len() as u64).duration(RATE)
    }

    /// Remaining playing time after `now`.
    pub fn remaining(&self, now: Instant) -> Duration {
        let at = self.held.unwrap_or(now);
        self.plays_until.map_or(Duration::ZERO, |until| until.saturating_duration_since(at))
    }

    /// When the first sample was received.
    pub fn first(&self) -> Option<Instant> {
        self.first
    }

    /// When the first sample above -50 dBFS is played.
    pub fn audible(&self) -> Option<Instant> {
        self.audible
    }

    /// Underruns so far; pauses are not counted.
    pub fn gaps(&self) -> Gaps {
        self.gaps
    }

    /// All samples received and not cleared: mono PCM at [`super::RATE`].
    pub fn samples(&self) -> &[i16] {
        &self.samples
    }

    /// The samples, by value.
    pub fn into_samples(self) -> Vec<i16> {
        Arc::unwrap_or_clone(self.samples)
    }

    fn unheard(&self, now: Instant) -> Samples {
        RATE.samples_in(self.remaining(now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(n: u64) -> Duration {
        Duration::from_millis(n)
    }

    #[test]
    fn the_first_audible_sample_sounds_when_playback_reaches_it() {
        let start = Instant::now();
        let mut reply = Reply::default();
        let mut second = vec![103; 480];
        second[240] = -104;
        reply.take("a", &[0; 480], start);
        // It arrives early and is played after the first frame.
        reply.take("a", &second, start + ms(5));
        assert_eq!((reply.first(), reply.audible()), (Some(start), Some(start + ms(30))));
        let mut late = Reply::default();
        late.take("a", &[0; 480], start);
        late.take("a", &second, start + ms(100));
        assert_eq!(late.audible(), Some(start + ms(110)));
        assert_eq!(reply.gaps(), Gaps::default());
        late.hold(start + ms(120));
        late.take("a", &second, start + ms(400));
        assert_eq!(late.gaps(), Gaps { n: 1, total: ms(80), longest: ms(80) });
    }

    #[test]
    fn what_was_heard_follows_playback_its_holds_and_its_end() {
        let start = Instant::now();
        let mut reply = Reply::default();
        let heard = |reply: &Reply, at| reply.heard(start + ms(at)).unwrap().1.as_ms(RATE);
        reply.take("a", &[1000; 4800], start);
        assert_eq!((heard(&reply, 50), heard(&reply, 500)), (50, 200));
        reply.hold(start + ms(60));
        assert_eq!(heard(&reply, 150), 60);
        reply.resume(start + ms(160));
        assert_eq!(heard(&reply, 200), 100);
        reply.clear(start + ms(210));
        assert_eq!((heard(&reply, 400), reply.remaining(start + ms(400))), (110, Duration::ZERO));
        assert_eq!(reply.into_samples().len(), 110 * 24);
    }

    #[test]
    fn positions_count_within_the_item() {
        let start = Instant::now();
        let mut reply = Reply::default();
        reply.take("a", &[1; 480], start);
        reply.take("b", &[1; 960], start);
        assert_eq!(reply.heard(start + ms(30)).unwrap(), ("b", Samples(240)));
    }
}
