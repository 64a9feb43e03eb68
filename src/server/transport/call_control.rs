//! What a client does to a call from outside: `GET /v1/realtime/calls`, `GET .../{id}`, `POST .../{id}/hangup`, `POST
//! .../{id}/refer`; and the answers to calls that are not made.
//!
//! The router calls it for calls of any transport. A client sees, ends and transfers the calls of its key.

use super::calls::TransferError;
use super::parts::TransportParts;
use super::telephony::sip::DialError;
use crate::server::access::caller::Identity;
use crate::server::edge::refusal::{refused, seconds};
use axum::Json;
use axum::extract::rejection::JsonRejection;
use axum::extract::{Path, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use std::sync::Arc;
use std::time::Duration;

/// The largest body of a request here.
pub(in crate::server) const MAX_BODY_BYTES: usize = 4 * 1024;

/// After this time a call may be tried again.
const RETRY: Duration = Duration::from_secs(5);

/// To whom a call is transferred.
#[derive(Deserialize)]
pub(in crate::server) struct Referral {
    target_uri: String,
}

/// Lists the calls of the key: those by WebRTC, and phone calls.
pub(in crate::server) async fn list(State(transport): State<Arc<TransportParts>>, identity: Identity) -> Response {
    Json(serde_json::json!({"object": "list", "data": transport.describe_calls(identity.owner)})).into_response()
}

/// One of them, or a call that this hub made and that is over.
pub(in crate::server) async fn get(
    State(transport): State<Arc<TransportParts>>,
    identity: Identity,
    Path(id): Path<String>,
) -> Response {
    transport.describe_call(&id, identity.owner).map_or_else(unknown_call, |call| Json(call).into_response())
}

/// The response to a call that is not made.
pub(in crate::server::transport) fn not_dialed(error: DialError) -> Response {
    match error {
        DialError::Off => {
            let message = "Calls out need sip.listen, and a trunk with a host in sip.trunks.";
            refused(StatusCode::BAD_REQUEST, "calls_out_not_configured", message)
        }
        DialError::NotAllowed => {
            refused(StatusCode::FORBIDDEN, "call_not_allowed", "sip.call_to does not list this target.")
        }
        DialError::NoRight => {
            let message =
                "Client secrets make no calls, and a trunk with a key makes them for that key and for admin keys.";
            refused(StatusCode::FORBIDDEN, "call_not_allowed", message)
        }
        DialError::Wrong(field, why) => {
            refused(StatusCode::BAD_REQUEST, "invalid_value", format!("Invalid value of '{field}'. {why}"))
        }
        DialError::TooMany => {
            let message = "As many calls are being made as sip.max_calls_out allows.";
            let mut response = refused(StatusCode::TOO_MANY_REQUESTS, "too_many_calls", message);
            response.headers_mut().insert(header::RETRY_AFTER, seconds(RETRY));
            response
        }
        DialError::Unavailable(why) => {
            let mut response = refused(
                StatusCode::SERVICE_UNAVAILABLE,
                "trunk_unavailable",
                format!("The call cannot be made: {why}."),
            );
            response.headers_mut().insert(header::RETRY_AFTER, seconds(RETRY));
            response
        }
        DialError::Refused(response) => *response,
    }
}

/// Ends a call of the key.
pub(in crate::server) async fn hang_up(
    State(transport): State<Arc<TransportParts>>,
    identity: Identity,
    Path(id): Path<String>,
) -> Response {
    let call = transport.find_call(&id, identity.owner);
    match call {
        Some(call) => {
            call.hang_up.cancel();
            StatusCode::OK.into_response()
        }
        None => unknown_call(),
    }
}

/// Transfers a call of the key. Answers once the peer calls the target, or refuses: within 32 s.
pub(in crate::server) async fn refer(
    State(transport): State<Arc<TransportParts>>,
    identity: Identity,
    Path(id): Path<String>,
    referral: Result<Json<Referral>, JsonRejection>,
) -> Response {
    let Some(call) = transport.find_call(&id, identity.owner) else { return unknown_call() };
    let Ok(Json(Referral { target_uri })) = referral else {
        let message = "The body is JSON with a target_uri, such as {\"target_uri\": \"tel:+15550123\"}.";
        return refused(StatusCode::BAD_REQUEST, "invalid_body", message);
    };
    let Some(transfer) = call.transfer.clone() else {
        return refused(StatusCode::BAD_REQUEST, "transfer_not_supported", "Only calls by SIP can be transferred.");
    };
    match transfer.transfer(target_uri).await {
        Ok(()) => {
            tracing::info!(session = %call.call.session(), "the peer transfers the call");
            StatusCode::OK.into_response()
        }
        Err(TransferError::NoUri) => {
            let message = "target_uri is no URI such as \"tel:+15550123\" or \"sip:office@pbx.example.com\".";
            refused(StatusCode::BAD_REQUEST, "invalid_target_uri", message)
        }
        Err(TransferError::NotAllowed) => {
            refused(StatusCode::FORBIDDEN, "transfer_not_allowed", "sip.transfer_to does not list this target.")
        }
        Err(TransferError::Refused(status)) => {
            let message = format!("The peer refused the transfer with the status {status} of SIP.");
            refused(StatusCode::BAD_GATEWAY, "transfer_refused", message)
        }
        Err(TransferError::Ended) => unknown_call(),
    }
}

/// The response to an id of no call of this key.
pub(in crate::server::transport) fn unknown_call() -> Response {
    refused(StatusCode::NOT_FOUND, "call_id_not_found", "There is no call with this id.")
}
