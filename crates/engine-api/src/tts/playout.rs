//! Estimates how much synthesized speech a listener has not heard yet, which determines how urgent the next chunk is.
//!
//! Used where a text is synthesized chunk by chunk and played from the first audio on: the speech API and its
//! benchmark. It reads the clock and has no other side effects.

use std::collections::VecDeque;
use std::time::Duration;
use tokio::time::Instant;

/// Estimated playing time per byte of text that is not synthesized yet.
const PER_BYTE: Duration = Duration::from_millis(60);

/// Playout estimate of one listener. Playback is assumed to start with the first audio and to continue in real time.
#[derive(Default)]
pub struct PlayoutEstimate {
    since: Option<Instant>,
    made: Duration,
    /// Estimated duration of each chunk that is started and not complete. While the first one is synthesized, its
    /// finished audio is counted twice.
    estimated: VecDeque<Duration>,
}

impl PlayoutEstimate {
    /// Playing time ahead of the next chunk.
    pub fn unplayed(&self) -> Duration {
        let played = self.since.map_or(Duration::ZERO, |since| since.elapsed());
        (self.made + self.estimated.iter().sum::<Duration>()).saturating_sub(played)
    }

    /// Records that synthesis of a chunk starts, after the chunks before it.
    pub fn will_hear(&mut self, text: &str) {
        self.estimated.push_back(PER_BYTE * u32::try_from(text.len()).unwrap_or(u32::MAX));
    }

    /// Records that `sound` of audio was synthesized.
    pub fn hears(&mut self, sound: Duration) {
        self.since.get_or_insert_with(Instant::now);
        self.made += sound;
    }

    /// Records that the oldest started chunk is complete.
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
}
