//! Estimates how much synthesized speech a listener has not heard yet, which determines how urgent the next chunk is.
//!
//! Used where a text is synthesized chunk by chunk and played from the first audio on: a session's response, the speech API
//! and its benchmark. It reads the clock and has no other side effects. Audio that is made and not sent yet counts; holds
//! and losses on the way do not: they only make a chunk less urgent than estimated. How much of the audio that was sent has
//! been heard is another quantity, with reports and holds: `antiphon_types::Playhead`.

use std::collections::VecDeque;
use std::time::Duration;
use tokio::time::Instant;

/// Estimated playing time per byte of text that is not synthesized yet.
const PER_BYTE: Duration = Duration::from_millis(60);

/// Playout estimate of one listener. Playback is assumed to start with the first audio and to continue in real time.
#[derive(Default)]
pub struct PlayoutEstimate {
    /// When all synthesized audio will have been played; playback that ran dry continues with the next audio.
    dry_at: Option<Instant>,
    /// How long the listener has waited for started chunks, in all: the text is behind its estimates by this much.
    behind: Duration,
    /// Estimated duration of each chunk that is started and not complete. While the first one is synthesized, its
    /// finished audio is counted twice.
    estimated: VecDeque<Duration>,
}

impl PlayoutEstimate {
    /// Playing time ahead of the next chunk.
    pub fn unplayed(&self) -> Duration {
        let made = self.dry_at.map_or(Duration::ZERO, |dry| dry.saturating_duration_since(Instant::now()));
        (made + self.estimated.iter().sum::<Duration>()).saturating_sub(self.behind + self.waits())
    }

    /// Records that synthesis of a chunk starts, after the chunks before it.
    pub fn will_hear(&mut self, text: &str) {
        self.estimated.push_back(PER_BYTE * u32::try_from(text.len()).unwrap_or(u32::MAX));
    }

    /// Records that `sound` of audio was synthesized.
    pub fn hears(&mut self, sound: Duration) {
        self.behind += self.waits();
        let now = Instant::now();
        self.dry_at = Some(self.dry_at.map_or(now, |dry| dry.max(now)) + sound);
    }

    /// Records that the oldest started chunk is complete.
    pub fn heard_chunk(&mut self) {
        self.estimated.pop_front();
    }

    /// How long the listener has been waiting for a started chunk now. Without one, running dry is no delay.
    fn waits(&self) -> Duration {
        let dry_at = self.dry_at.filter(|_| !self.estimated.is_empty());
        dry_at.map_or(Duration::ZERO, |dry| Instant::now().saturating_duration_since(dry))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn what_is_still_to_be_heard_is_what_was_made_and_estimated_less_what_was_played() {
        let ms = Duration::from_millis;
        let mut listener = PlayoutEstimate::default();
        assert_eq!(listener.unplayed(), ms(0));
        listener.will_hear("0123456789");
        assert_eq!(listener.unplayed(), ms(600));
        listener.hears(ms(500));
        listener.heard_chunk();
        tokio::time::advance(ms(200)).await;
        assert_eq!(listener.unplayed(), ms(300));
        tokio::time::advance(ms(900)).await;
        assert_eq!(listener.unplayed(), ms(0));
    }

    #[tokio::test(start_paused = true)]
    async fn the_unplayed_is_what_was_made_less_what_has_passed() {
        let mut listener = PlayoutEstimate::default();
        assert_eq!(listener.unplayed(), Duration::ZERO);
        listener.hears(Duration::from_millis(900));
        listener.hears(Duration::from_millis(600));
        tokio::time::advance(Duration::from_millis(400)).await;
        assert_eq!(listener.unplayed(), Duration::from_millis(1_100));
        tokio::time::advance(Duration::from_secs(9)).await;
        assert_eq!(listener.unplayed(), Duration::ZERO);
        listener.hears(Duration::from_millis(200));
        assert_eq!(listener.unplayed(), Duration::from_millis(200), "after it ran dry it starts again");
    }

    #[tokio::test(start_paused = true)]
    async fn a_text_whose_listener_waits_for_a_started_chunk_stays_urgent() {
        let mut listener = PlayoutEstimate::default();
        listener.will_hear("0123456789");
        listener.hears(Duration::from_millis(100));
        tokio::time::advance(Duration::from_secs(30)).await;
        listener.hears(Duration::from_millis(100));
        assert_eq!(listener.unplayed(), Duration::ZERO);
        listener.heard_chunk();
        assert_eq!(listener.unplayed(), Duration::ZERO);
    }
}
