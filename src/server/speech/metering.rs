//! One request of the speech API as the metrics see it: how long it took, and what became of it.

use crate::server::app::App;
use antiphon_telemetry::{Endpoint, Metrics};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::Instant;

/// A request under way. Dropped without an end, its client has gone.
pub(super) struct Metered {
    metrics: Metrics,
    times: Arc<RequestTimes>,
    endpoint: Endpoint,
    begun: Instant,
    outcome: &'static str,
    /// The request's slot among those in progress.
    pub(super) place: Option<OwnedSemaphorePermit>,
}

impl Metered {
    pub(super) fn begin(app: &App, endpoint: Endpoint) -> Self {
        let metrics = app.setup.metrics.clone();
        let times = app.speech.times.clone();
        Self { metrics, times, endpoint, begun: Instant::now(), outcome: "cancelled", place: None }
    }

    /// It ended like this.
    pub(super) fn end(mut self, outcome: &'static str) {
        self.outcome = outcome;
    }
}

impl Drop for Metered {
    fn drop(&mut self) {
        self.metrics.request(self.endpoint, self.outcome, self.begun.elapsed());
        if self.place.is_some() {
            self.times.ended_after(self.begun.elapsed());
        }
    }
}

/// How long requests of the speech API take, as a moving average over about the last eight.
#[derive(Debug, Default)]
pub(super) struct RequestTimes(AtomicU64);

impl RequestTimes {
    fn ended_after(&self, took: Duration) {
        let took = took.as_millis().min(u128::from(u32::MAX)) as u64;
        // Of two that end at the same time one may not count.
        let before = self.0.load(Ordering::Relaxed);
        let mean = if before == 0 { took } else { (before * 7 + took) / 8 };
        self.0.store(mean.max(1), Ordering::Relaxed);
    }

    /// When the next of `n` requests in progress is likely to end, 1 to 60 s.
    pub(super) fn until_next(&self, n: usize) -> Duration {
        let mean = Duration::from_millis(self.0.load(Ordering::Relaxed));
        (mean / n.max(1) as u32).clamp(Duration::from_secs(1), Duration::from_secs(60))
    }
}
