//! The probe listener of a worker: `/healthz`, `/readyz` and `/metrics`, by plain HTTP and without a key.
//!
//! `antiphon worker` runs it with what its cluster side reports. It serves no engine and no session.

use super::health::{alive, exposition, of_process};
use crate::config::ServerConfig;
use antiphon_cluster::worker::{Reporter, StageReport};
use antiphon_telemetry::Exposition;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use serde_json::json;
use tokio::net::TcpListener;

/// Answers probes of a worker while it is polled, also during the drain. Without a listener it waits for ever.
pub async fn worker_probes(listener: Option<TcpListener>, config: &ServerConfig, reporter: Reporter) {
    let router = Router::new()
        .route("/healthz", get(alive))
        .route("/readyz", get(ready))
        .route("/metrics", get(metrics))
        .with_state(reporter);
    super::probes(listener, super::sealed(router, config)).await;
}

/// `GET /readyz`: 200 if the worker takes requests, else 503 with the reason.
async fn ready(State(reporter): State<Reporter>) -> Response {
    let reason = match reporter.report() {
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

/// `GET /metrics`, for Prometheus. Until the worker serves, those of its process.
async fn metrics(State(reporter): State<Reporter>) -> Response {
    let mut text = Exposition::default();
    if let Some(report) = reporter.report() {
        let of = |value: fn(&StageReport) -> u64| -> Vec<(&str, u64)> {
            report.stages.iter().map(|stage| (stage.stage.name(), value(stage))).collect()
        };
        let connected = u64::from(report.is_connected);
        text.gauge("antiphon_worker_connected", "Whether the worker is connected to NATS.", connected);
        text.gauges("antiphon_worker_slots", "Requests served at once.", "stage", &of(|stage| stage.slots as u64));
        let in_flight = of(|stage| stage.in_flight as u64);
        text.gauges("antiphon_worker_in_flight", "Requests accepted and not finished.", "stage", &in_flight);
        let wait = of(|stage| stage.wait_ms);
        text.gauges("antiphon_worker_wait_milliseconds", "Estimated wait of one more request.", "stage", &wait);
        text.counter("antiphon_worker_requests_total", "Requests accepted.", "stage", &of(|stage| stage.requests));
        let dropped = [
            ("unsent", report.unsent),
            ("malformed", report.malformed),
            ("stale", report.stale),
            ("duplicate", report.duplicate),
            ("early", report.early),
        ];
        text.counter("antiphon_worker_dropped_frames_total", "Messages dropped, by reason.", "reason", &dropped);
    }
    exposition(text.into_text() + &of_process())
}
