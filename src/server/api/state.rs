//! `GET /api/state`: the current state of the server, for the dashboard and other clients.
//!
//! Counters come from the metrics, process usage from `/proc`, GPU load from the driver. A value that the system does
//! not provide is null.

use super::parts::ApiParts;
use crate::server::access::caller::Identity;
use crate::server::edge::process;
use crate::server::sessions::SessionParts;
use crate::server::sessions::handover::Counts;
use axum::Json;
use axum::extract::State as Shared;
use serde::Serialize;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The state of the server at one moment.
#[derive(Serialize)]
pub(in crate::server) struct State {
    at: String,
    sessions: usize,
    /// Sessions by transport: `websocket`, `webrtc`, `rtvi`, or the phone's peer.
    transports: BTreeMap<&'static str, usize>,
    max_sessions: usize,
    connections: usize,
    /// How close the server is to its capacity, and what it does without.
    load: crate::load::LoadReport,
    /// Waiting items, by the queue's name.
    queues: BTreeMap<&'static str, usize>,
    engines: BTreeMap<&'static str, String>,
    /// Slots and memory of the voice engine, where it has slots.
    #[serde(skip_serializing_if = "Option::is_none")]
    tts_slots: Option<antiphon_engine_api::tts::SlotReport>,
    /// The engines of each stage that has a circuit breaker or a fallback.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    upstreams: BTreeMap<&'static str, antiphon_engine_api::Upstreams>,
    process: Option<process::Usage>,
    /// Asynchronous tasks that have not ended: those of connections, sessions, responses and the server itself.
    tasks: Option<usize>,
    /// Places that sessions take, of `max_sessions`: as many as there are sessions, and those that are being opened.
    places_taken: Option<usize>,
    gpu: Option<Vec<antiphon_telemetry::gpu::Card>>,
    counters: Option<Counters>,
    /// Hubs and workers, where there is a cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    cluster: Option<ClusterState>,
}

/// Hubs, workers and sessions of the cluster.
#[derive(Serialize)]
struct ClusterState {
    #[serde(flatten)]
    overview: antiphon_cluster::Overview,
    /// Where hubs share sessions.
    #[serde(skip_serializing_if = "Option::is_none")]
    sessions: Option<SharedSessions>,
}

/// Sessions of this hub that other hubs may resume, and their moves since the hub's start.
#[derive(Serialize)]
struct SharedSessions {
    shared: u64,
    /// Of these, sessions whose last state could not be stored so far.
    unstored: u64,
    /// By kind.
    #[serde(flatten)]
    moves: BTreeMap<&'static str, u64>,
}

#[derive(Serialize)]
struct Counters {
    turns: u64,
    responses: u64,
    errors: u64,
    barge_ins: u64,
    speculative_responses: u64,
    speculative_responses_confirmed: u64,
    speculation_wasted_seconds: f64,
}

/// The handler.
pub(in crate::server) async fn state(Shared(api): Shared<Arc<ApiParts>>, identity: Identity) -> Json<State> {
    Json(snapshot(&api, identity).await)
}

/// The current state, limited to what the caller may see.
pub(in crate::server) async fn snapshot(api: &ApiParts, identity: Identity) -> State {
    let sessions = &api.sessions;
    let edge = &sessions.edge;
    let all = identity.sees_all_usage();
    let own = identity.owner.map_or(0, |owner| sessions.of_key(owner));
    let setup = sessions.setup();
    let engines = &setup.engines;
    let totals = sessions.setup.metrics.totals();
    State {
        at: format!("{:.3}", jiff::Timestamp::now()),
        sessions: if all { sessions.live.len() } else { own },
        transports: if all { sessions.transports() } else { BTreeMap::new() },
        max_sessions: edge.config.max_sessions,
        connections: if all { sessions.connections() } else { own },
        load: sessions.load.report(),
        queues: match all {
            true => BTreeMap::from([
                ("stt_waiting", engines.stt.waiting()),
                ("tts_waiting", engines.tts.waiting()),
                ("inbound_kib", edge.inbound.in_use_kib()),
            ]),
            false => BTreeMap::new(),
        },
        engines: BTreeMap::from([
            ("vad", engines.vad.name().into()),
            ("stt", engines.stt.name().into()),
            ("llm", engines.llm.name().into()),
            ("tts", engines.tts.name().into()),
        ]),
        tts_slots: if all { engines.tts.slots() } else { None },
        upstreams: if all { super::upstreams::reports(engines) } else { BTreeMap::new() },
        process: all.then(|| edge.process.usage()),
        tasks: all.then(process::tasks),
        places_taken: all.then(|| sessions.places_taken()),
        gpu: if all { api.gpus.read().await } else { None },
        counters: all.then_some(Counters {
            turns: totals.turns,
            responses: totals.responses,
            errors: totals.errors,
            barge_ins: totals.barge_ins,
            speculative_responses: totals.speculative_responses,
            speculative_responses_confirmed: totals.speculative_responses_confirmed,
            speculation_wasted_seconds: totals.speculation_wasted.as_secs_f64(),
        }),
        cluster: if all { cluster(sessions) } else { None },
    }
}

fn cluster(sessions: &SessionParts) -> Option<ClusterState> {
    let overview = sessions.cluster()?;
    let sessions = sessions.handover.as_ref().map(|handover| {
        let Counts { live, unstored, moves } = handover.counts();
        SharedSessions { shared: live, unstored, moves: moves.into() }
    });
    Some(ClusterState { overview, sessions })
}
