//! One request of the speech API as the metrics see it: how long it took, and what became of it.

use crate::server::app::App;
use antiphon_telemetry::{Endpoint, Metrics};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::Instant;

/// A request under way. Dropped without an end, its client has gone.
pub(super) struct Metered {
    metrics: Metrics,
    endpoint: Endpoint,
    begun: Instant,
    outcome: &'static str,
    /// The request's slot among those in progress.
    pub(super) place: Option<OwnedSemaphorePermit>,
}

impl Metered {
    pub(super) fn begin(app: &App, endpoint: Endpoint) -> Self {
        let metrics = app.setup.metrics.clone();
        Self { metrics, endpoint, begun: Instant::now(), outcome: "cancelled", place: None }
    }

    /// It ended like this.
    pub(super) fn end(mut self, outcome: &'static str) {
        self.outcome = outcome;
    }
}

impl Drop for Metered {
    fn drop(&mut self) {
        self.metrics.request(self.endpoint, self.outcome, self.begun.elapsed());
    }
}
