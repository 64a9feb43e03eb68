//! Offers of pipecat's small-webrtc transport: `POST /v1/rtvi/start`, `POST` and `PATCH /v1/rtvi/api/offer`, and the same below
//! `/v1/rtvi/sessions/{id}`.
//!
//! An offer opens a call by [`crate::server::transport::webrtc`], whose data channel carries RTVI messages. A session begins with
//! its offer, so that `start` only checks the key and names an id. Nothing is kept between requests.

use super::caller;
use crate::server::app::App;
use crate::server::auth;
use crate::server::client::Client;
use crate::server::guard::refused;
use crate::server::keys;
use crate::server::transport::webrtc::signaling::{self, Offered, Protocol};
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
    /// The connection that is negotiated anew.
    pc_id: Option<String>,
    /// A new connection takes the place of that one.
    #[serde(default)]
    restart_pc: bool,
}

/// The handler of `POST /v1/rtvi/start`.
pub(in crate::server) async fn start(
    State(app): State<Arc<App>>,
    Extension(client): Extension<Client>,
    headers: HeaderMap,
) -> Response {
    match caller(&app, client, headers, None).await {
        Ok(_) => axum::Json(json!({"sessionId": keys::make("rtvi_")})).into_response(),
        Err(refusal) => {
            auth::log(&app, client, START_ROUTE, refusal);
            auth::unauthorized_call(refusal)
        }
    }
}

/// The handler of `POST` with an offer.
pub(in crate::server) async fn create(
    State(app): State<Arc<App>>,
    Extension(client): Extension<Client>,
    request: Request,
) -> Response {
    let Some(webrtc) = app.webrtc.clone() else { return signaling::off() };
    let caller = match caller(&app, client, request.headers().clone(), None).await {
        Ok(caller) => caller,
        Err(refusal) => {
            auth::log(&app, client, ROUTE, refusal);
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
    if pc_id.is_some() && !restart_pc {
        let message = "A connection is not negotiated anew. Send an offer of a new one, with 'restart_pc'.";
        return refused(StatusCode::BAD_REQUEST, "invalid_offer", message);
    }
    let offered = Offered { sdp: &sdp, settings: None, model: None, route: ROUTE, protocol: Protocol::Rtvi };
    match signaling::open(&app, &webrtc, client, caller, offered) {
        Ok((id, sdp)) => axum::Json(json!({"sdp": sdp, "type": "answer", "pc_id": id})).into_response(),
        Err(response) => *response,
    }
}

/// The handler of `PATCH` with a client's candidates: the hub learns addresses from the requests that come from them.
pub(in crate::server) async fn candidates() -> Response {
    axum::Json(json!({"status": "success"})).into_response()
}
