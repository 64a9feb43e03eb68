//! What a client does to a call from outside: `GET /v1/realtime/calls`, `GET .../{id}`, `POST .../{id}/accept`, `reject`,
//! `hangup`, `refer`, `recording`; and the answers to calls that are not made.
//!
//! The router calls it for calls of any transport. A client sees, ends and transfers the calls of its key.

use super::call::read_phone_settings;
use super::calls::{CallDecision, DecisionError};
use super::parts::TransportParts;
use super::recording::ConsentError;
use super::transfers::{DialError, MAX_SUMMARY_BYTES, ProviderError, TransferError};
use super::webrtc::signaling::invalid;
use crate::server::access::caller::Identity;
use crate::server::edge::refusal::{refused, seconds};
use antiphon_protocol::SessionUpdate;
use axum::Json;
use axum::body::Bytes;
use axum::extract::rejection::{BytesRejection, JsonRejection};
use axum::extract::{Path, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use serde_json::value::RawValue;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;

/// The largest body of a request here.
pub(in crate::server) const MAX_BODY_BYTES: usize = 4 * 1024;

/// The status of a call that is declined, and those that a client may refuse a call with (RFC 3261, section 21).
const DECLINED: u16 = 603;
const REFUSALS: std::ops::RangeInclusive<u16> = 400..=699;

/// After this time a call may be tried again.
const RETRY: Duration = Duration::from_secs(5);

/// To whom a call is transferred.
#[derive(Deserialize)]
pub(in crate::server) struct Referral {
    target_uri: String,
    /// How the hub itself calls the target and connects it with the caller; `None`: the peer calls it.
    warm: Option<WarmReferral>,
}

/// What a target is told that is called by the hub.
#[derive(Deserialize)]
struct WarmReferral {
    summary: String,
}

/// What the peer of a call decides about its recording.
#[derive(Deserialize)]
pub(in crate::server) struct RecordingDecision {
    /// Whether it agrees.
    consent: bool,
}

/// How a call is refused.
#[derive(Deserialize)]
struct Rejection {
    /// Of SIP.
    #[serde(default = "declined")]
    status_code: u16,
}

const fn declined() -> u16 {
    DECLINED
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
            let message =
                "Calls out need an account in telephony.accounts, or sip.listen and a trunk with a host in sip.trunks.";
            refused(StatusCode::BAD_REQUEST, "calls_out_not_configured", message)
        }
        DialError::NotAllowed => {
            refused(StatusCode::FORBIDDEN, "call_not_allowed", "sip.call_to does not list this target.")
        }
        DialError::QuietHours => {
            refused(StatusCode::FORBIDDEN, "quiet_hours", "Nobody is called at this time (sip.quiet_hours).")
        }
        DialError::TooManyPerMinute(wait) => {
            let message = "Your API key has made as many calls in a minute as sip.max_calls_out_per_minute allows.";
            let mut response = refused(StatusCode::TOO_MANY_REQUESTS, "rate_limit_exceeded", message);
            response.headers_mut().insert(header::RETRY_AFTER, seconds(wait));
            response
        }
        DialError::NoRight => {
            let message = "Client secrets make no calls, and a trunk or an account with a key makes them for that key and for admin keys.";
            refused(StatusCode::FORBIDDEN, "call_not_allowed", message)
        }
        DialError::Wrong(field, why) => {
            refused(StatusCode::BAD_REQUEST, "invalid_value", format!("Invalid value of '{field}'. {why}"))
        }
        DialError::TooMany => too_many_calls("As many calls are being made as sip.max_calls_out allows."),
        DialError::NoRoom => too_many_calls("This hub has no room for another call by SIP at the moment."),
        DialError::Unavailable(why) => {
            let mut response = refused(
                StatusCode::SERVICE_UNAVAILABLE,
                "trunk_unavailable",
                format!("The call cannot be made: {why}."),
            );
            response.headers_mut().insert(header::RETRY_AFTER, seconds(RETRY));
            response
        }
        DialError::Provider(error) => by_provider(error),
        DialError::Refused(response) => *response,
    }
}

/// The response to a call for which there is no room; the message says where.
fn too_many_calls(message: &'static str) -> Response {
    let mut response = refused(StatusCode::TOO_MANY_REQUESTS, "too_many_calls", message);
    response.headers_mut().insert(header::RETRY_AFTER, seconds(RETRY));
    response
}

/// Answers a call of the key that rings. The body is the session, as OpenAI's API has it; without a body it is that of
/// the call's route. Answers once clients may join the call.
pub(in crate::server) async fn accept(
    State(transport): State<Arc<TransportParts>>,
    identity: Identity,
    Path(id): Path<String>,
    body: Result<Bytes, BytesRejection>,
) -> Response {
    let body = match body {
        Ok(body) => body,
        Err(error) => return refused(error.status(), "invalid_body", error.body_text()),
    };
    let settings = match read_session(&transport, &identity, &body) {
        Ok(settings) => settings,
        Err(response) => return *response,
    };
    let decision = match transport.decide_call(&id, identity.owner) {
        Ok(decision) => decision,
        Err(error) => return undecidable(error),
    };
    let (accepted, is_accepted) = oneshot::channel();
    if decision.send(CallDecision::Accept { settings, accepted }).is_err() || is_accepted.await.is_err() {
        return unknown_call();
    }
    StatusCode::OK.into_response()
}

/// The settings in the body of a request that answers a call; `None`: it is empty.
fn read_session(
    transport: &TransportParts,
    identity: &Identity,
    body: &[u8],
) -> Result<Option<Arc<SessionUpdate>>, Box<Response>> {
    if body.trim_ascii().is_empty() {
        return Ok(None);
    }
    let session: &RawValue = serde_json::from_slice(body).map_err(|error| {
        let message = format!("We could not parse the JSON body of your request: {error}.");
        Box::new(refused(StatusCode::BAD_REQUEST, "invalid_body", message))
    })?;
    let settings = read_phone_settings(&transport.sessions, session.get(), identity.owner);
    settings.map(|settings| Some(Arc::new(settings))).map_err(|error| Box::new(invalid(error)))
}

/// Refuses a call of the key that rings.
pub(in crate::server) async fn reject(
    State(transport): State<Arc<TransportParts>>,
    identity: Identity,
    Path(id): Path<String>,
    body: Result<Bytes, BytesRejection>,
) -> Response {
    let body = match body {
        Ok(body) if body.trim_ascii().is_empty() => Bytes::from_static(b"{}"),
        Ok(body) => body,
        Err(error) => return refused(error.status(), "invalid_body", error.body_text()),
    };
    let Ok(Rejection { status_code: status }) = serde_json::from_slice(&body) else {
        let message = "The body is JSON with a status_code of SIP, such as {\"status_code\": 486}.";
        return refused(StatusCode::BAD_REQUEST, "invalid_body", message);
    };
    if !REFUSALS.contains(&status) {
        let first = REFUSALS.start();
        let last = REFUSALS.end();
        let message = format!("Invalid value of 'status_code'. It is a status of SIP from {first} to {last}.");
        return refused(StatusCode::BAD_REQUEST, "invalid_value", message);
    }
    match refuse_ringing(&transport, &identity, &id, status) {
        Ok(()) => StatusCode::OK.into_response(),
        Err(error) => undecidable(error),
    }
}

/// Refuses a call of the key that rings with a status of SIP.
fn refuse_ringing(transport: &TransportParts, identity: &Identity, id: &str, status: u16) -> Result<(), DecisionError> {
    let decision = transport.decide_call(id, identity.owner)?;
    // Its task is gone where the caller has given up.
    decision.send(CallDecision::Reject { status }).map_err(|_| DecisionError::Unknown)
}

/// The response to a decision about a call that does not ring.
fn undecidable(error: DecisionError) -> Response {
    match error {
        DecisionError::Unknown => unknown_call(),
        DecisionError::Decided => {
            refused(StatusCode::CONFLICT, "call_already_decided", "This call was accepted or rejected before.")
        }
    }
}

/// Ends a call of the key; one that rings is declined.
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
        None => match refuse_ringing(&transport, &identity, &id, DECLINED) {
            Ok(()) => StatusCode::OK.into_response(),
            Err(_) => unknown_call(),
        },
    }
}

/// Transfers a call of the key. Answers once the peer calls the target, or refuses: within 32 s; a warm transfer, once the
/// target and the caller are connected, or why they are not: within 5 min.
pub(in crate::server) async fn refer(
    State(transport): State<Arc<TransportParts>>,
    identity: Identity,
    Path(id): Path<String>,
    referral: Result<Json<Referral>, JsonRejection>,
) -> Response {
    let Some(call) = transport.find_call(&id, identity.owner) else { return unknown_call() };
    let Ok(Json(Referral { target_uri, warm })) = referral else {
        let message = "The body is JSON with a target_uri, such as {\"target_uri\": \"tel:+15550123\"}.";
        return refused(StatusCode::BAD_REQUEST, "invalid_body", message);
    };
    let Some(transfer) = call.transfer.clone() else {
        return refused(
            StatusCode::BAD_REQUEST,
            "transfer_not_supported",
            "Only calls by SIP and by accounts can be transferred.",
        );
    };
    let is_warm = warm.is_some();
    let transferred = match warm {
        None => transfer.transfer(target_uri).await,
        Some(WarmReferral { summary }) => transfer.transfer_warm(target_uri, summary).await,
    };
    match transferred {
        Ok(()) => {
            tracing::info!(session = %call.call.session(), is_warm, "the call is transferred");
            StatusCode::OK.into_response()
        }
        Err(error) => not_transferred(error),
    }
}

/// Takes what the peer of a call of the key decides about its recording.
pub(in crate::server) async fn set_recording(
    State(transport): State<Arc<TransportParts>>,
    identity: Identity,
    Path(id): Path<String>,
    decision: Result<Json<RecordingDecision>, JsonRejection>,
) -> Response {
    let Some(call) = transport.find_call(&id, identity.owner) else { return unknown_call() };
    let Ok(Json(RecordingDecision { consent })) = decision else {
        let message = "The body is JSON with a consent, such as {\"consent\": false}.";
        return refused(StatusCode::BAD_REQUEST, "invalid_body", message);
    };
    match call.recording.decide(consent) {
        Ok(()) => {
            tracing::info!(session = %call.call.session(), consent, "a client decides about a recording");
            let body = serde_json::json!({"id": id, "object": "realtime.call.recording", "consent": consent});
            Json(body).into_response()
        }
        Err(ConsentError::NotAsked) => {
            let message = "The peer of this call is not asked about its recording. Callers, and those whom the hub calls, are \
                           with session.record and telephony.recording_consent = \"key\"; peers by WebRTC and \
                           targets of warm transfers never are. Where a notice is said without a question, only \
                           {\"consent\": false} is taken.";
            refused(StatusCode::CONFLICT, "recording_not_asked", message)
        }
        Err(ConsentError::Ended) => {
            let message = "The recording of this call was refused or has ended, and does not begin again.";
            refused(StatusCode::CONFLICT, "recording_ended", message)
        }
    }
}

/// The response to a call that is not transferred.
fn not_transferred(error: TransferError) -> Response {
    match error {
        TransferError::NoUri => {
            let message = "target_uri is no URI such as \"tel:+15550123\" or \"sip:office@pbx.example.com\".";
            refused(StatusCode::BAD_REQUEST, "invalid_target_uri", message)
        }
        TransferError::NotAllowed => {
            refused(StatusCode::FORBIDDEN, "transfer_not_allowed", "sip.transfer_to does not list this target.")
        }
        TransferError::ToCaller => {
            refused(StatusCode::BAD_REQUEST, "transfer_to_caller", "target_uri is the caller of this call.")
        }
        TransferError::Summary => {
            let message = format!("Invalid value of 'warm.summary'. It is a text of 1 to {MAX_SUMMARY_BYTES} bytes.");
            refused(StatusCode::BAD_REQUEST, "invalid_value", message)
        }
        TransferError::Underway => {
            let message = "This call is not answered yet, is being transferred, or was.";
            refused(StatusCode::CONFLICT, "transfer_underway", message)
        }
        TransferError::NotDialed(DialError::Wrong(_, why)) => {
            refused(StatusCode::BAD_REQUEST, "invalid_target_uri", format!("The target cannot be called. {why}"))
        }
        TransferError::NotDialed(error) => not_dialed(error),
        TransferError::NotConnected(why) => {
            let message = format!("The call goes on with the agent: {}.", why.words());
            refused(StatusCode::BAD_GATEWAY, why.code(), message)
        }
        TransferError::Refused(status) => {
            let message = format!("The peer refused the transfer with the status {status} of SIP.");
            refused(StatusCode::BAD_GATEWAY, "transfer_refused", message)
        }
        TransferError::Provider(error) => by_provider(error),
        TransferError::NotBlind => {
            let message = "This account has no transfer_context: its calls are transferred warm, with 'warm'.";
            refused(StatusCode::BAD_REQUEST, "transfer_not_supported", message)
        }
        TransferError::Ended => unknown_call(),
    }
}

/// The response to a request that the provider of a call does not do.
fn by_provider(error: ProviderError) -> Response {
    match error {
        ProviderError::Refused(why) => {
            refused(StatusCode::BAD_GATEWAY, "provider_refused", format!("The provider refused: {why}"))
        }
        ProviderError::Unreachable(why) => {
            let message = format!("The provider cannot be asked: {why}.");
            let mut response = refused(StatusCode::BAD_GATEWAY, "provider_unavailable", message);
            response.headers_mut().insert(header::RETRY_AFTER, seconds(RETRY));
            response
        }
    }
}

/// The response to an id of no call of this key.
pub(in crate::server::transport) fn unknown_call() -> Response {
    refused(StatusCode::NOT_FOUND, "call_id_not_found", "There is no call with this id.")
}
