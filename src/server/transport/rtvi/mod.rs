//! RTVI over a WebSocket with pipecat's protobuf frames: `WS /v1/rtvi`, for pipecat's client SDKs.
//!
//! [`upgrade`] authenticates, opens a [`Call`] and hands it to [`connection`]. [`projection`] words the session's events as RTVI
//! messages and the client's messages as client events; [`frame`] is their envelope. [`offer`] takes the offers of clients that call by WebRTC.

mod connection;
pub mod frame;
pub(in crate::server) mod offer;
pub(super) mod projection;
#[cfg(feature = "testing")]
pub mod testing;

use super::call::{Call, CallOpening};
use super::parts::TransportParts;
use crate::server::access::AccessParts;
use crate::server::access::auth;
use crate::server::access::caller::Caller;
use crate::server::edge::client::Client;
use crate::server::edge::inflow::{Inflow, expect_frames};
use crate::server::edge::websocket;
use crate::server::sessions::realtime::model_of_query;
use antiphon_protocol::SessionKind;
use antiphon_session::AudioMode;
use axum::extract::ws::WebSocketUpgrade;
use axum::extract::{Extension, Query, State};
use axum::http::{HeaderMap, HeaderValue, header};
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use std::sync::Arc;

const ROUTE: &str = "/v1/rtvi";
/// Maximum size of a client's message, in bytes: what pipecat's clients send at most.
const MAX_MESSAGE_BYTES: usize = 1024 * 1024;

/// The query parameters.
#[derive(Deserialize)]
pub(in crate::server) struct Params {
    /// An API key or a short-lived one: browsers send no headers with a WebSocket.
    token: Option<String>,
    model: Option<String>,
}

/// The handler of `WS /v1/rtvi`.
pub(in crate::server) async fn upgrade(
    State(transport): State<Arc<TransportParts>>,
    Query(params): Query<Params>,
    Extension(client): Extension<Client>,
    Extension(inflow): Extension<Arc<Inflow>>,
    headers: HeaderMap,
    ws: WebSocketUpgrade,
) -> Response {
    if let Err(early) = expect_frames(&inflow) {
        return *early;
    }
    let sessions = &transport.sessions;
    let access = &sessions.access;
    let caller = match caller(access, client, headers, params.token).await {
        Ok(caller) => caller,
        Err(refusal) => {
            auth::log(access, client, ROUTE, refusal);
            return auth::unauthorized_call(refusal);
        }
    };
    let model = match model_of_query(params.model) {
        Ok(model) => model,
        Err(response) => return *response,
    };
    let opening = CallOpening {
        mode: AudioMode::Pcm16,
        settings: None,
        model,
        intent: Some(SessionKind::Realtime),
        transport: "rtvi",
        route: ROUTE,
        by_phone: false,
        tools: None,
        llm: None,
        recording_consent: None,
    };
    let call = match Call::open(sessions, client, caller, opening) {
        Ok(call) => call,
        Err(refused) => return refused.into_response(),
    };
    let tasks = sessions.setup.tasks.clone();
    websocket::configured(ws).max_message_size(MAX_MESSAGE_BYTES).max_frame_size(MAX_MESSAGE_BYTES).on_upgrade(
        move |socket| {
            tasks.track_future(async move {
                connection::serve(&transport, socket, &inflow, call).await;
                inflow.linger().await;
            })
        },
    )
}

/// Authenticates by the token, if there is one, else as `WS /v1/realtime` does.
async fn caller(
    access: &AccessParts,
    client: Client,
    mut headers: HeaderMap,
    token: Option<String>,
) -> Result<Caller, auth::Refusal> {
    if let Some(token) = token {
        let value = HeaderValue::from_str(&format!("Bearer {token}")).map_err(|_| auth::Refusal::Wrong)?;
        headers.insert(header::AUTHORIZATION, value);
    }
    auth::fetch_ephemeral_key(access, client, &headers).await;
    auth::caller(access, client, &headers)
}
