//! Health, readiness and metrics.

use super::parts::ApiParts;
use super::{gpu, models, upstreams};
use crate::assembly::CLUSTER;
use crate::server::access::caller::Identity;
use crate::server::edge::probes::exposition;
use crate::server::edge::process;
use crate::server::sessions::SessionParts;
use crate::server::sessions::handover::Counts;
use antiphon_cluster::{Overview, WorkerView};
use antiphon_engines::table::{EngineKind, EngineStage};
use antiphon_telemetry::{Exposition, Family};
use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};
use std::sync::Arc;

/// `GET /readyz`: readiness, which is 200 if another session would be admitted and 503 if not; why it would not be, or which
/// stage's servers fail (`reason`); the load, and the engine of each stage. While the engines are being
/// loaded, [`crate::server::edge::starting`] responds instead.
pub(in crate::server) async fn ready(State(api): State<Arc<ApiParts>>) -> Response {
    let sessions = &api.sessions;
    let setup = sessions.setup();
    let engines = &setup.engines;
    let away = sessions.lacks().or_else(|| sessions.lacks_room());
    let ready = away.is_none();
    // A server that fails fails for the other hubs, too: it is a reason to know, and none to take another hub.
    let lacks = away.or_else(|| upstreams::lacks(engines));
    let mut body = json!({
        "ready": ready,
        "sessions": sessions.live.len(),
        "max_sessions": sessions.edge.config.max_sessions,
        "load": sessions.load.report(),
        "webrtc": api.transport.webrtc.is_some(),
        "detects_language": engines.stt.detects_language(),
        "languages": engines.stt.languages(),
        "engines": {
            "vad": engines.vad.name(),
            "stt": engines.stt.name(),
            "llm": engines.llm.name(),
            "tts": engines.tts.name(),
        },
        "remote": remote(sessions),
        // Includes the models, and those that "auto" could not use.
        "served": sessions.models.served().iter().map(models::for_anyone).collect::<Vec<_>>(),
    });
    if let Some(reason) = lacks {
        body["reason"] = reason.into();
    }
    let status = if ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (status, Json(body)).into_response()
}

/// Model and host of each remote engine. Empty if keys are configured: a probe needs no key, and the addresses behind a
/// protected hub are not public.
fn remote(sessions: &SessionParts) -> Value {
    let Some(manager) = sessions.models.manager().filter(|_| !sessions.access.keys.current().are_on()) else {
        return json!({});
    };
    let config = manager.config();
    let (llm, _) = manager.active_llm();
    let stages = [
        (EngineStage::Stt, &config.stt.engine, &config.stt.model, &config.stt.base_url),
        (EngineStage::Llm, &llm.engine, &llm.model, &llm.base_url),
        (EngineStage::Tts, &config.tts.engine, &config.tts.model, &config.tts.base_url),
    ];
    let served = sessions.models.served();
    let on_workers =
        |stage: EngineStage| served.iter().any(|served| served.stage == stage.name() && served.engine == CLUSTER);
    let remote = stages
        .into_iter()
        .filter(|(stage, engine, _, _)| stage.kind(engine).is_some_and(EngineKind::is_remote) && !on_workers(*stage));
    let described = remote.map(|(stage, _, model, url)| {
        let url = reqwest::Url::parse(url).ok();
        let host = url.as_ref().and_then(|url| Some((url.host_str()?, url.port())));
        let address = host.map(|(host, port)| port.map_or(host.to_owned(), |port| format!("{host}:{port}")));
        (stage.name().to_owned(), json!({ "model": model, "address": address }))
    });
    Value::Object(described.collect())
}

/// `GET /metrics`, for Prometheus. What each API key uses is shown to those who may see that.
pub(in crate::server) async fn metrics(State(api): State<Arc<ApiParts>>, identity: Identity) -> Response {
    let usage = if identity.sees_all_usage() { api.sessions.access.limits.metrics() } else { String::new() };
    exposition(rendered(&api).await + &usage)
}

/// The same on the listener for probes, which only the operator reaches.
pub(in crate::server) async fn metrics_for_probes(State(api): State<Arc<ApiParts>>) -> Response {
    exposition(rendered(&api).await + &api.sessions.access.limits.metrics())
}

async fn rendered(api: &ApiParts) -> String {
    let sessions = &api.sessions;
    let setup = sessions.setup();
    // If the depth is unknown, the gauge keeps its value.
    if let Some(depth) = api.speech.jobs.depth().await {
        setup.metrics.queue("jobs", depth);
    }
    if let Some(slots) = setup.engines.tts.slots() {
        setup.metrics.tts_slots(slots.n_slots, slots.in_use);
    }
    setup.metrics.waiting(setup.engines.stt.waiting(), setup.engines.tts.waiting());
    let mut text = sessions.setup.metrics.render();
    text += &sessions.load.metrics();
    text += &process::metrics();
    text += &gpu::metrics(&api.gpus.read().await.unwrap_or_default());
    if let Some(cluster) = sessions.cluster() {
        text += &of_cluster(&cluster, sessions.lacks().is_some());
    }
    text += &upstreams::metrics(&setup.engines);
    if let Some(handover) = &sessions.handover {
        text += &of_handover(&handover.counts());
    }
    text
}

static SESSIONS_SHARED: Family = Family::gauge("antiphon_sessions_shared", "Sessions that other hubs may resume.");
static SESSIONS_UNSTORED: Family =
    Family::gauge("antiphon_sessions_unstored", "Shared sessions whose last state could not be stored so far.");
static SESSION_MOVES: Family =
    Family::counter("antiphon_session_moves_total", "Moves of sessions between hubs, by kind.").by(&["kind"]);

/// The sessions that other hubs may resume.
fn of_handover(counts: &Counts) -> String {
    let mut text = Exposition::default();
    text.value(&SESSIONS_SHARED, counts.live);
    text.value(&SESSIONS_UNSTORED, counts.unstored);
    text.values(&SESSION_MOVES, counts.moves.iter().map(|(kind, n)| ([*kind], n)));
    text.into_text()
}

static CONNECTED: Family = Family::gauge("antiphon_cluster_connected", "Whether the hub is connected to NATS.");
static WORKERS: Family = Family::gauge("antiphon_cluster_workers", "Workers that the hub uses.");
static LACKS_WORKERS: Family = Family::gauge(
    "antiphon_cluster_lacks_workers",
    "Whether sessions are refused, since no worker of a stage can be reached.",
);
static ATTEMPTS: Family =
    Family::counter("antiphon_cluster_attempts_total", "Requests sent to workers, repeated ones included.");
static BUSY: Family = Family::counter("antiphon_cluster_busy_total", "Requests that a worker had no room for.");
static RETRIED: Family = Family::counter(
    "antiphon_cluster_retried_total",
    "Requests opened again after a worker was lost or its engine failed.",
);
static FAILED: Family =
    Family::counter("antiphon_cluster_failed_total", "Requests that failed because their workers were lost.");
static AWAY: Family = Family::counter("antiphon_cluster_away_total", "Requests that found no worker or no connection.");
static FALLBACK_MODEL: Family = Family::counter(
    "antiphon_cluster_fallback_total",
    "Requests that workers with the fallback model of the stage took.",
)
.by(&["stage"]);
static DROPPED: Family =
    Family::counter("antiphon_cluster_dropped_frames_total", "Messages that were dropped, by reason.").by(&["reason"]);

/// The cluster as the hub sees it, and whether sessions are refused for lack of workers.
fn of_cluster(cluster: &Overview, lacks_workers: bool) -> String {
    let mut text = Exposition::default();
    let is_used = |worker: &&WorkerView| worker.refused.is_none();
    text.value(&CONNECTED, u64::from(cluster.connected));
    text.value(&WORKERS, cluster.workers.iter().filter(is_used).count());
    text.value(&LACKS_WORKERS, u64::from(lacks_workers));
    text.value(&ATTEMPTS, cluster.attempts);
    text.value(&BUSY, cluster.busy);
    text.value(&RETRIED, cluster.retried);
    text.value(&FAILED, cluster.failed);
    text.value(&AWAY, cluster.away);
    let with_fallback = cluster.stage_models.iter().filter(|stage| stage.fallback.is_some());
    text.values(&FALLBACK_MODEL, with_fallback.map(|stage| ([stage.stage.name()], stage.fallback_requests)));
    let dropped = [
        (["unsent"], cluster.unsent),
        (["malformed"], cluster.malformed),
        (["stale"], cluster.stale),
        (["duplicate"], cluster.duplicate),
        (["early"], cluster.early),
    ];
    text.values(&DROPPED, dropped);
    text.into_text()
}
