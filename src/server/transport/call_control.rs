//! What a client does to a call from outside: `GET /v1/realtime/calls`, `POST .../{id}/hangup`, `POST .../{id}/refer`.
//!
//! The router calls it for calls of any transport. A client sees, ends and transfers the calls of its key.

use super::calls::TransferError;
use super::parts::TransportParts;
use crate::server::access::caller::Identity;
use crate::server::edge::refusal::refused;
use axum::Json;
use axum::extract::rejection::JsonRejection;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use std::sync::Arc;

/// The largest body of a request here.
pub(in crate::server) const MAX_BODY_BYTES: usize = 4 * 1024;

/// To whom a call is transferred.
#[derive(Deserialize)]
pub(in crate::server) struct Referral {
    target_uri: String,
}

/// Lists the calls of the key: those by WebRTC, and phone calls.
pub(in crate::server) async fn list(State(transport): State<Arc<TransportParts>>, identity: Identity) -> Response {
    Json(serde_json::json!({"object": "list", "data": transport.describe_calls(identity.owner)})).into_response()
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
