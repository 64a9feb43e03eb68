//! Somebody who plays what is made of a text from its first sound on: how urgent the next chunk is.
//!
//! Those keep one who speak a text chunk by chunk: the speech API, and the benchmark that stands for it. It reads the clock and
//! nothing else.

use std::collections::VecDeque;
use std::time::Duration;
use tokio::time::Instant;

/// How long speech sounds that is not made yet, for each byte of its text.
const PER_BYTE: Duration = Duration::from_millis(60);

/// See the module.
#[derive(Default)]
pub struct PlayoutEstimate {
    since: Option<Instant>,
    made: Duration,
    /// Of chunks that are begun and not whole yet; what is made of the first of them counts twice for a moment.
    estimated: VecDeque<Duration>,
}

impl PlayoutEstimate {
    /// How much there is to hear before what is begun next.
    pub fn unplayed(&self) -> Duration {
        let played = self.since.map_or(Duration::ZERO, |since| since.elapsed());
        (self.made + self.estimated.iter().sum::<Duration>()).saturating_sub(played)
    }

    /// A chunk is begun, behind those that were.
    pub fn will_hear(&mut self, text: &str) {
        self.estimated.push_back(PER_BYTE * u32::try_from(text.len()).unwrap_or(u32::MAX));
    }

    /// So much sound was made.
    pub fn hears(&mut self, sound: Duration) {
        self.since.get_or_insert_with(Instant::now);
        self.made += sound;
    }

    /// The first chunk of those that are begun is whole.
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
