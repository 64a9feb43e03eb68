//! How long the speech API waits for an engine, and when it tries again.
//!
//! A request waits for a place in an engine's queue, in order, until its deadline ([`Tts::speak_queued`],
//! [`Stt::open_queued`]); how many wait is bounded by `speech.max_requests` and the jobs under way. [`Retry`] is for what no
//! queue announces: an engine that was too slow, one that refuses without a queue of its own, and a model that finds no memory.
//! Dropping a future ends the wait, and with it everything.
//!
//! [`Tts::speak_queued`]: antiphon_engine_api::tts::Tts::speak_queued
//! [`Stt::open_queued`]: antiphon_engine_api::stt::Stt::open_queued

use antiphon_engine_api::tts::TtsError;
use antiphon_types::{Backoff, RetryPolicy};
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// For a chunk that has a listener: beyond what there is still to hear. Before the first sound a status asks the client to try
/// again; after it there is only a body that breaks off.
pub(super) const BEFORE_SOUND: Duration = Duration::from_secs(10);
pub(super) const AFTER_SOUND: Duration = Duration::from_secs(60);
/// For a job's chunk, or for room to load its model.
pub(super) const JOB: Duration = Duration::from_secs(1_200);
/// For a stretch of a file that is refused a decoder. The queue for a decoder has no deadline but the client's.
pub(super) const STRETCH: Duration = Duration::from_secs(600);

const POLICY: RetryPolicy = RetryPolicy::unbounded(Duration::from_millis(200), Duration::from_secs(1));

/// Attempts until a deadline.
#[derive(Clone, Debug)]
pub(super) struct Retry {
    pauses: Backoff,
    deadline: Instant,
}

impl Retry {
    /// Attempts within this time from now on.
    pub(super) fn within(time: Duration) -> Self {
        Self { pauses: POLICY.pauses(), deadline: Instant::now() + time }
    }

    /// When waiting ends.
    pub(super) fn deadline(&self) -> Instant {
        self.deadline
    }

    /// Waits until the next attempt; `false`, at once, where it would be late.
    pub(super) async fn pause(&mut self) -> bool {
        let pause = self.pauses.next().filter(|pause| Instant::now() + *pause <= self.deadline);
        if let Some(pause) = pause {
            sleep(pause).await;
        }
        pause.is_some()
    }
}

/// Whether another attempt may find a place.
pub(super) fn is_busy(error: &TtsError) -> bool {
    matches!(error, TtsError::Overloaded { .. } | TtsError::Timeout(_))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn it_ends_when_its_time_is_over() {
        assert!(!Retry::within(Duration::ZERO).pause().await);
        let time = Duration::from_secs(20);
        let mut retry = Retry::within(time);
        let begun = Instant::now();
        let mut n = 0;
        while retry.pause().await {
            n += 1;
        }
        // The clock stands still but for sleeps.
        assert!((20..50).contains(&n), "{n}");
        assert!((time - POLICY.max_pause..=time).contains(&begun.elapsed()), "{:?}", begun.elapsed());
    }
}
