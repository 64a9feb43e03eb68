//! How much of the speech made so far its listener still has to hear, if it is played as it arrives: how urgent the next chunk
//! is. Sessions, the speech API and the benchmark use it. It reads the clock and nothing else; holds and losses on the way only
//! make a chunk less urgent than estimated.

use std::collections::VecDeque;
use std::time::Duration;
use tokio::time::Instant;

/// How long speech sounds that is not made yet, for each byte of its text.
const PER_BYTE: Duration = Duration::from_millis(60);

/// See the module.
#[derive(Default)]
pub struct PlayoutEstimate {
    /// When the listener will have heard all that is made.
    dry_at: Option<Instant>,
    /// Of chunks that are begun and not complete yet; the sound made of the first of them counts twice for a moment.
    estimated: VecDeque<Duration>,
}

impl PlayoutEstimate {
    /// How much there is to hear before the next chunk.
    pub fn unplayed(&self) -> Duration {
        let made = self.dry_at.map_or(Duration::ZERO, |dry| dry.saturating_duration_since(Instant::now()));
        made + self.estimated.iter().sum::<Duration>()
    }

    /// A chunk is begun, behind those that were.
    pub fn will_hear(&mut self, text: &str) {
        self.estimated.push_back(PER_BYTE * u32::try_from(text.len()).unwrap_or(u32::MAX));
    }

    /// So much sound was made.
    pub fn hears(&mut self, sound: Duration) {
        let now = Instant::now();
        self.dry_at = Some(self.dry_at.map_or(now, |dry| dry.max(now)) + sound);
    }

    /// The first chunk of those that are begun is complete.
    pub fn heard_chunk(&mut self) {
        self.estimated.pop_front();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn what_is_still_to_be_heard_is_what_was_made_and_estimated_less_what_was_played() {
        let (ms, mut listener) = (Duration::from_millis, PlayoutEstimate::default());
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
        let mut playing = PlayoutEstimate::default();
        assert_eq!(playing.unplayed(), Duration::ZERO);
        playing.hears(Duration::from_millis(900));
        playing.hears(Duration::from_millis(600));
        tokio::time::advance(Duration::from_millis(400)).await;
        assert_eq!(playing.unplayed(), Duration::from_millis(1_100));
        tokio::time::advance(Duration::from_secs(9)).await;
        assert_eq!(playing.unplayed(), Duration::ZERO);
        playing.hears(Duration::from_millis(200));
        assert_eq!(playing.unplayed(), Duration::from_millis(200), "after it ran dry it begins anew");
    }
}
