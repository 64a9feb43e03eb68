//! The probe listener of a worker: `/healthz`, `/readyz` and `/metrics`, by plain HTTP and without a key.
//!
//! `antiphon worker` runs it with what its cluster side reports, and with the load of the machine's GPUs. It serves no engine and
//! no session.

use super::gpu::{self, Gpus};
use crate::config::ServerConfig;
use crate::server::edge::probes::{self, alive, exposition};
use crate::server::edge::process;
use antiphon_cluster::worker::{Reporter, StageReport};
use antiphon_telemetry::{Exposition, Family};
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use serde_json::json;
use tokio::net::TcpListener;

/// What the probes report.
#[derive(Clone)]
struct ProbeResults {
    reporter: Reporter,
    gpus: Gpus,
}

/// Answers probes of a worker while it is polled, also during the drain. Without a listener it waits for ever.
pub async fn worker_probes(listener: Option<TcpListener>, config: &ServerConfig, reporter: Reporter) {
    let router = Router::new()
        .route("/healthz", get(alive))
        .route("/readyz", get(ready))
        .route("/metrics", get(metrics))
        .with_state(ProbeResults { reporter, gpus: Gpus::default() });
    probes::serve(listener, probes::sealed(router, config)).await;
}

/// `GET /readyz`: 200 if the worker takes requests, else 503 with the reason.
async fn ready(State(probed): State<ProbeResults>) -> Response {
    let reason = match probed.reporter.report() {
        None => Some("it is starting: its engines are being loaded"),
        Some(report) if report.is_draining => Some("it is draining"),
        Some(report) if !report.is_connected => Some("there is no connection to NATS"),
        Some(_) => None,
    };
    match reason {
        None => Json(json!({ "ready": true })).into_response(),
        Some(reason) => {
            (StatusCode::SERVICE_UNAVAILABLE, Json(json!({ "ready": false, "reason": reason }))).into_response()
        }
    }
}

static CONNECTED: Family = Family::gauge("antiphon_worker_connected", "Whether the worker is connected to NATS.");
static SLOTS: Family = Family::gauge("antiphon_worker_slots", "Requests served at once.").by(&["stage"]);
static IN_FLIGHT: Family =
    Family::gauge("antiphon_worker_in_flight", "Requests accepted and not finished.").by(&["stage"]);
static WAIT: Family =
    Family::gauge("antiphon_worker_wait_milliseconds", "Estimated wait of one more request.").by(&["stage"]);
static REQUESTS: Family = Family::counter("antiphon_worker_requests_total", "Requests accepted.").by(&["stage"]);
static DROPPED: Family =
    Family::counter("antiphon_worker_dropped_frames_total", "Messages dropped, by reason.").by(&["reason"]);

/// `GET /metrics`, for Prometheus. Until the worker serves, those of its process and of the GPUs.
async fn metrics(State(probed): State<ProbeResults>) -> Response {
    let mut text = Exposition::default();
    if let Some(report) = probed.reporter.report() {
        let of = |value: fn(&StageReport) -> u64| {
            report.stages.iter().map(move |stage| ([stage.stage.name()], value(stage)))
        };
        text.value(&CONNECTED, u64::from(report.is_connected));
        text.values(&SLOTS, of(|stage| stage.slots as u64));
        text.values(&IN_FLIGHT, of(|stage| stage.in_flight as u64));
        text.values(&WAIT, of(|stage| stage.wait_ms));
        text.values(&REQUESTS, of(|stage| stage.requests));
        let dropped = [
            (["unsent"], report.unsent),
            (["malformed"], report.malformed),
            (["stale"], report.stale),
            (["duplicate"], report.duplicate),
            (["early"], report.early),
        ];
        text.values(&DROPPED, dropped);
    }
    let gpus = gpu::metrics(&probed.gpus.read().await.unwrap_or_default());
    exposition(text.into_text() + &process::metrics() + &gpus)
}

#[cfg(test)]
mod tests {
    use super::*;
    use antiphon_telemetry::gpu::Card;

    async fn metrics_with(cards: Option<Vec<Card>>) -> String {
        let gpus = Gpus::of(move || cards.clone());
        let response = metrics(State(ProbeResults { reporter: Reporter::default(), gpus })).await;
        let body = axum::body::to_bytes(response.into_body(), 1 << 20).await.expect("a body");
        String::from_utf8(body.to_vec()).expect("text")
    }

    #[tokio::test]
    async fn a_worker_reports_the_use_and_the_memory_of_its_gpus() {
        let card = |number, utilization, memory_bytes| Card {
            number,
            name: "H200".into(),
            utilization,
            memory_bytes,
            memory_total_bytes: 8_000,
            power_mw: None,
            sm_clock_mhz: None,
        };
        // Card 1 has failed, and reports nothing.
        let text = metrics_with(Some(vec![card(0, Some(25), 6_000), card(2, None, 7_000)])).await;
        for line in [
            "voice_gpu_memory_bytes{gpu=\"0\"} 6000",
            "voice_gpu_memory_bytes{gpu=\"2\"} 7000",
            "voice_gpu_memory_total_bytes{gpu=\"2\"} 8000",
            "# TYPE voice_gpu_utilization_ratio gauge",
            "voice_gpu_utilization_ratio{gpu=\"0\"} 0.25",
        ] {
            assert!(text.lines().any(|one| one == line), "{line} is not in {text}");
        }
        assert!(!text.contains("voice_gpu_utilization_ratio{gpu=\"2\"}"), "it reports none: {text}");
        assert!(text.contains("\nprocess_resident_memory_bytes "), "{text}");
    }

    #[tokio::test]
    async fn a_worker_without_a_gpu_has_no_gpu_metrics() {
        for cards in [None, Some(Vec::new())] {
            let text = metrics_with(cards).await;
            assert!(!text.contains("voice_gpu_") && text.contains("antiphon_tasks"), "{text}");
        }
    }
}
