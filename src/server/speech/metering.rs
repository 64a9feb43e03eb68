//! One request of the speech API as the metrics see it: how long it took, what became of it, and what its engine computed.

use super::parts::{SpeechParts, SpeechPlace};
use super::request_times::RequestTimes;
use crate::server::access::limits::Consumer;
use antiphon_telemetry::{Endpoint, Metrics};
use antiphon_types::{Compute, Meter, Requester};
use std::sync::Arc;
use tokio::time::Instant;

/// A request under way. Dropped without an end, its client has gone.
pub(super) struct MeteredRequest {
    metrics: Metrics,
    times: Arc<RequestTimes>,
    endpoint: Endpoint,
    begun: Instant,
    outcome: &'static str,
    /// What its engine computes, the stage, and who is charged.
    charged: Option<(Meter, &'static str, Consumer)>,
    /// The request's slot among those in progress.
    pub(super) place: Option<SpeechPlace>,
}

impl MeteredRequest {
    pub(super) fn begin(speech: &SpeechParts, endpoint: Endpoint) -> Self {
        let metrics = speech.sessions.setup.metrics.clone();
        let times = speech.times.clone();
        Self { metrics, times, endpoint, begun: Instant::now(), outcome: "cancelled", charged: None, place: None }
    }

    /// The meter for the requests to this stage's engine; at the end the client's key is charged with it.
    pub(super) fn meter(&mut self, stage: &'static str, requester: Requester, consumer: &Consumer) -> Meter {
        let meter = Meter::requested_by(requester);
        self.charged = Some((meter.clone(), stage, consumer.clone()));
        meter
    }

    /// It ended like this.
    pub(super) fn end(mut self, outcome: &'static str) {
        self.outcome = outcome;
    }
}

impl Drop for MeteredRequest {
    fn drop(&mut self) {
        self.metrics.request(self.endpoint, self.outcome, self.begun.elapsed());
        if let Some((meter, stage, consumer)) = &self.charged {
            count_compute(&self.metrics, stage, meter.compute());
            consumer.count_compute(meter.compute());
        }
        if self.place.is_some() {
            self.times.ended_after(self.begun.elapsed());
        }
    }
}

/// Counts what an engine computed for the speech API.
pub(super) fn count_compute(metrics: &Metrics, stage: &'static str, compute: Compute) {
    metrics.compute(stage, "cpu", "none", compute.cpu);
    metrics.compute(stage, "gpu", "none", compute.gpu);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::LimitsConfig;
    use crate::server::access::keys::Keys;
    use crate::server::access::limits::Limits;
    use crate::server::edge::client::Client;
    use antiphon_types::RunsOn;
    use std::time::Duration;

    #[tokio::test]
    async fn what_the_engine_computes_is_charged_at_the_end_whatever_became_of_the_request() {
        let limits = Limits::new(LimitsConfig::default(), &Keys::default());
        let metrics = Metrics::new();
        let address = [127, 0, 0, 1].into();
        let consumer = limits.consumer(None, Client::direct(address, false));
        for _ in 0..2 {
            let mut metered = MeteredRequest {
                metrics: metrics.clone(),
                times: Arc::default(),
                endpoint: Endpoint::Speech,
                begun: Instant::now(),
                outcome: "cancelled",
                charged: None,
                place: None,
            };
            let meter = metered.meter("tts", Requester::of(&1), &consumer);
            meter.add(RunsOn::GPU, Duration::from_millis(750));
            meter.add(RunsOn::threads(2), Duration::from_millis(100));
        }
        let usage = serde_json::to_value(limits.usage(None)).unwrap();
        assert_eq!((&usage[0]["total"]["gpu_seconds"], &usage[0]["total"]["cpu_seconds"]), (&1.5.into(), &0.4.into()));
        let line = r#"antiphon_compute_milliseconds_total{stage="tts",kind="gpu",waste="none"} 1500"#;
        assert!(metrics.render().contains(line), "{}", metrics.render());
        assert!(
            limits.metrics().contains("antiphon_key_gpu_seconds_total{key=\"anonymous\"} 1.5\n"),
            "{}",
            limits.metrics()
        );
    }
}
