//! The handler of `WS /v1/realtime`: a client that names a call joins it, any other one opens a session or returns to
//! its own.

use super::parts::TransportParts;
use super::sideband;
use crate::server::access::auth;
use crate::server::edge::client::Client;
use crate::server::edge::inflow::{Inflow, expect_frames};
use crate::server::sessions::realtime::{self, Params};
use axum::extract::ws::WebSocketUpgrade;
use axum::extract::{Extension, Query, State};
use axum::http::HeaderMap;
use axum::response::Response;
use serde::Deserialize;
use std::sync::Arc;

/// The query parameter that names a call.
#[derive(Deserialize)]
pub(in crate::server) struct CallToJoin {
    call_id: Option<String>,
}

/// The handler.
pub(in crate::server) async fn upgrade(
    State(transport): State<Arc<TransportParts>>,
    Query(params): Query<Params>,
    Query(CallToJoin { call_id }): Query<CallToJoin>,
    Extension(client): Extension<Client>,
    Extension(inflow): Extension<Arc<Inflow>>,
    headers: HeaderMap,
    ws: WebSocketUpgrade,
) -> Response {
    if let Err(early) = expect_frames(&inflow) {
        return *early;
    }
    auth::fetch_ephemeral_key(&transport.sessions.access, client, &headers).await;
    match call_id {
        Some(id) => sideband::upgrade(&transport, client, &headers, (ws, inflow), &id),
        None => realtime::upgrade(transport.sessions.clone(), params, client, inflow, &headers, ws).await,
    }
}
