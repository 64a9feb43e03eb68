//! Offers of pipecat's small-webrtc transport: `POST /v1/rtvi/start`, `POST` and `PATCH /v1/rtvi/api/offer`, and the same below
//! `/v1/rtvi/sessions/{id}`.
//!
//! An offer opens a call by [`crate::server::transport::webrtc`], whose data channel carries RTVI messages. A session begins with
//! its offer, so that `start` only checks the key and names an id. An offer with the id of a call is one of its peer's: on the
//! same connection, or, with `restart_pc`, of a new one in its place. Nothing is kept between requests.

use super::caller;
use crate::server::access::{auth, keys};
use crate::server::edge::client::Client;
use crate::server::edge::refusal::refused;
use crate::server::transport::call_control::unknown_call;
use crate::server::transport::parts::TransportParts;
use crate::server::transport::webrtc::signaling::{self, ClientOffer, Protocol};
use axum::extract::{Extension, Request, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use serde_json::json;
use std::sync::Arc;

/// The pattern of the route, for the log.
const ROUTE: &str = "/v1/rtvi/api/offer";
const START_ROUTE: &str = "/v1/rtvi/start";

/// What the transport sends. Unknown fields are its application's.
#[derive(Deserialize)]
struct Body {
    sdp: String,
    /// The call that is negotiated again.
    pc_id: Option<String>,
    /// A new connection takes the place of the call's own. Where that call is over, another one begins.
    #[serde(default)]
    restart_pc: bool,
}

/// The handler of `POST /v1/rtvi/start`.
pub(in crate::server) async fn start(
    State(transport): State<Arc<TransportParts>>,
    Extension(client): Extension<Client>,
    headers: HeaderMap,
) -> Response {
    match caller(&transport.sessions.access, client, headers, None).await {
        Ok(_) => axum::Json(json!({"sessionId": keys::make("rtvi_")})).into_response(),
        Err(refusal) => {
            auth::log(&transport.sessions.access, client, START_ROUTE, refusal);
            auth::unauthorized_call(refusal)
        }
    }
}

/// The handler of `POST` with an offer.
pub(in crate::server) async fn create(
    State(transport): State<Arc<TransportParts>>,
    Extension(client): Extension<Client>,
    request: Request,
) -> Response {
    let Some(webrtc) = transport.webrtc.clone() else { return signaling::off() };
    let caller = match caller(&transport.sessions.access, client, request.headers().clone(), None).await {
        Ok(caller) => caller,
        Err(refusal) => {
            auth::log(&transport.sessions.access, client, ROUTE, refusal);
            return auth::unauthorized_call(refusal);
        }
    };
    let body = match signaling::body_in_time(request).await {
        Ok(body) => body,
        Err(response) => return *response,
    };
    let Body { sdp, pc_id, restart_pc } = match serde_json::from_slice(&body) {
        Ok(body) => body,
        Err(error) => {
            let message = format!("We could not parse the JSON body of your request: {error}.");
            return refused(StatusCode::BAD_REQUEST, "invalid_offer", message);
        }
    };
    let answer = |id: &str, sdp: String| axum::Json(json!({"sdp": sdp, "type": "answer", "pc_id": id})).into_response();
    if let Some(id) = &pc_id {
        match signaling::offer_again(&transport, &webrtc, (caller.owner, id), (&sdp, restart_pc)).await {
            Ok(Some(sdp)) => return answer(id, sdp),
            Ok(None) if restart_pc => {}
            Ok(None) => return unknown_call(),
            Err(response) => return *response,
        }
    }
    let offered = ClientOffer { sdp: &sdp, settings: None, model: None, route: ROUTE, protocol: Protocol::Rtvi };
    match signaling::open(&transport, &webrtc, client, caller, offered) {
        Ok((id, sdp)) => answer(&id, sdp),
        Err(response) => *response,
    }
}

/// The handler of `PATCH` with a client's candidates, which needs the key that `POST` needs: the hub learns addresses from the
/// requests that come from them.
pub(in crate::server) async fn candidates(
    State(transport): State<Arc<TransportParts>>,
    Extension(client): Extension<Client>,
    headers: HeaderMap,
) -> Response {
    if transport.webrtc.is_none() {
        return signaling::off();
    }
    match caller(&transport.sessions.access, client, headers, None).await {
        Ok(_) => axum::Json(json!({"status": "success"})).into_response(),
        Err(refusal) => {
            auth::log(&transport.sessions.access, client, ROUTE, refusal);
            auth::unauthorized_call(refusal)
        }
    }
}
