//! What operators and pages ask before they connect.

use super::app::App;
use axum::Json;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::json;
use std::sync::Arc;

/// `GET /healthz`: the process is alive.
pub(super) async fn alive() -> &'static str {
    "ok\n"
}

/// `GET /readyz`: whether one more session would be admitted, and which engine serves each stage. The engines are loaded
/// before the server listens.
pub(super) async fn ready(State(app): State<Arc<App>>) -> Response {
    let setup = app.setup();
    let (engines, ready) = (&setup.engines, app.has_place());
    let body = json!({
        "ready": ready,
        "sessions": app.sessions.len(),
        "max_sessions": app.config.max_sessions,
        "engines": {
            "vad": engines.vad.name(),
            "stt": engines.stt.name(),
            "llm": engines.llm.name(),
            "tts": engines.tts.name(),
        },
        // With the models behind them, and what "auto" passed over.
        "served": *app.models.served(),
    });
    let status = if ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (status, Json(body)).into_response()
}

/// `GET /metrics`, for Prometheus.
pub(super) async fn metrics(State(app): State<Arc<App>>) -> Response {
    for (n, card) in app.gpus.read().await.unwrap_or_default().iter().enumerate() {
        app.setup.metrics.gpu(n, card.memory_bytes, card.utilization.map(|percent| f64::from(percent) / 100.0));
    }
    let setup = app.setup();
    // What is not known stays as it was.
    if let Some(depth) = app.speech.jobs.depth().await {
        setup.metrics.queue("jobs", depth);
    }
    setup.metrics.waiting(setup.engines.stt.waiting(), setup.engines.tts.waiting());
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4")], app.setup.metrics.render()).into_response()
}

/// `GET /v1/audio/voices`: what a session may choose from, and what it begins with.
pub(super) async fn voices(State(app): State<Arc<App>>) -> Response {
    let setup = app.setup();
    let voices = setup.engines.tts.voices();
    // A voice the engine does not know is spoken with its first one.
    let known = voices.iter().find(|voice| voice.id == setup.voice).or(voices.first());
    Json(json!({"voices": voices, "default": known.map_or(&setup.voice, |voice| &voice.id)})).into_response()
}
