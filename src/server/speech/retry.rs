//! Wait, ask again, give up: what is done about an engine that has no place now.
//!
//! Whoever keeps a client or a job waiting holds a [`RetryDeadline`]: texts that already sound, stretches of a file, jobs. Dropping
//! the future ends the wait, and with it everything.

use antiphon_engine_api::tts::TtsError;
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// Between two tries.
const PAUSE: Duration = Duration::from_millis(500);

/// How long somebody asks again.
#[derive(Clone, Copy, Debug)]
pub(super) struct RetryDeadline(Instant);

impl RetryDeadline {
    /// Asks again for so long from now on.
    pub(super) fn of(time: Duration) -> Self {
        Self(Instant::now() + time)
    }

    /// Waits for the next try; `false`, at once: there is none.
    pub(super) async fn wait(&self) -> bool {
        let is_left = Instant::now() + PAUSE <= self.0;
        if is_left {
            sleep(PAUSE).await;
        }
        is_left
    }
}

/// Whether another try may find a place.
pub(super) fn is_busy(error: &TtsError) -> bool {
    matches!(error, TtsError::Overloaded { .. } | TtsError::Timeout(_))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn it_ends_when_its_time_is_over() {
        assert!(!RetryDeadline::of(Duration::ZERO).wait().await);
        let (patience, begun, mut n) = (RetryDeadline::of(4 * PAUSE), Instant::now(), 0);
        while patience.wait().await {
            n += 1;
        }
        // The clock stands still but for sleeps.
        assert_eq!((n, begun.elapsed()), (4, 4 * PAUSE));
    }
}
