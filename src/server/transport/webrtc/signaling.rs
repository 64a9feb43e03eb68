//! `POST /v1/realtime/calls` (and `POST /v1/realtime`): an offer in, an answer out; or the number that is called.
//!
//! The offer comes as SDP, as a form with the parts `sdp` and `session`, or as JSON with these fields. Keys are those of the
//! WebSocket, short-lived ones too. The call is admitted before it is answered.

use super::Webrtc;
use super::answer::{AnsweredOffer, answer, answer_to, brief, read_offer};
use super::connection::{Connection, NewOffer};
use super::peer::Peer;
use crate::server::access::auth::{self, Refusal};
use crate::server::access::caller::Caller;
use crate::server::access::security::Act;
use crate::server::access::{AccessParts, keys};
use crate::server::edge::client::Client;
use crate::server::edge::refusal::{invalid_parameter, refused};
use crate::server::sessions::admission;
use crate::server::sessions::realtime::model_of_query;
use crate::server::transport::call::{Call, CallOpening, read_call_settings, read_phone_settings};
use crate::server::transport::call_control::not_dialed;
use crate::server::transport::calls::NewCall;
use crate::server::transport::parts::TransportParts;
use crate::server::transport::recording::CallRecording;
use crate::server::transport::telephony::calls_out;
use crate::server::transport::telephony::outgoing::DialRequest;
use crate::server::transport::telephony::sip::Dialer;
use antiphon_protocol::{ServerEvent, SessionKind, SessionUpdate, WireError};
use antiphon_session::AudioMode;
use axum::body::Bytes;
use axum::extract::{Extension, FromRequest, Multipart, Query, Request, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;

/// Its name in logs and records.
const TRANSPORT: &str = "webrtc";
const RTVI_TRANSPORT: &str = "rtvi-webrtc";
/// The pattern of the route, for the log.
const ROUTE: &str = "/v1/realtime/calls";
/// An offer with its settings.
pub(in crate::server) const MAX_BODY_BYTES: usize = 256 * 1024;
/// An offer: a browser's with one track and a data channel has 3 to 8 KiB.
const MAX_SDP_BYTES: usize = 64 * 1024;
/// Timeout for receiving a request.
const BODY: Duration = Duration::from_secs(10);
/// The query parameters. Unknown ones are ignored, because SDKs add their own.
#[derive(Deserialize)]
pub(in crate::server) struct Params {
    model: Option<String>,
    /// `opus`: the data channel also carries the events of the extensions, as a WebSocket opened with it does.
    audio: Option<String>,
}

/// What a client asks for.
struct Offer {
    call: RequestedCall,
    /// The settings, JSON.
    session: Option<String>,
}

/// The fields of a JSON body.
type JsonFields = BTreeMap<String, Box<RawValue>>;

/// What is connected to the session.
enum RequestedCall {
    /// The client itself, by this offer.
    Client { sdp: String },
    /// A number that is called.
    Phone(DialRequest),
}

/// Answers an offer with 201, the SDP, and the call's place in `Location`.
pub(in crate::server) async fn create(
    State(transport): State<Arc<TransportParts>>,
    State(dialer): State<Option<Arc<Dialer>>>,
    Query(params): Query<Params>,
    Extension(client): Extension<Client>,
    request: Request,
) -> Response {
    let sessions = &transport.sessions;
    let access = &sessions.access;
    let headers = request.headers().clone();
    auth::fetch_ephemeral_key(access, client, &headers).await;
    let caller = match auth::caller(access, client, &headers) {
        Ok(caller) => caller,
        Err(refusal) => return rejected(access, client, refusal),
    };
    let protocol = match params.audio.as_deref() {
        None => Protocol::Realtime,
        Some("opus") => Protocol::Extended,
        Some(other) => {
            let message = format!("Invalid value: '{other}' for 'audio'. A call supports 'opus'.");
            return invalid_parameter("audio", &message);
        }
    };
    let model = match model_of_query(params.model) {
        Ok(model) => model,
        Err(response) => return *response,
    };
    let offer = match timeout(BODY, read(request)).await {
        Ok(Ok(offer)) => offer,
        Ok(Err(response)) => return *response,
        Err(_) => return late(),
    };
    let settings = offer.session.as_deref().map(|text| match offer.call {
        RequestedCall::Client { .. } => read_call_settings(sessions, text, caller.owner),
        RequestedCall::Phone(_) => read_phone_settings(sessions, text, caller.owner),
    });
    let settings = match settings.transpose() {
        Ok(settings) => settings.map(Arc::new),
        Err(error) => return invalid(error),
    };
    let sdp = match offer.call {
        RequestedCall::Client { sdp } => sdp,
        RequestedCall::Phone(request) => {
            return dial(dialer.as_ref(), &transport, client, caller, request, settings).await;
        }
    };
    let Some(webrtc) = transport.webrtc.clone() else { return off() };
    let offered = ClientOffer { sdp: &sdp, settings, model, route: ROUTE, protocol };
    let (id, sdp) = match open(&transport, &webrtc, client, caller, offered) {
        Ok(opened) => opened,
        Err(response) => return *response,
    };
    let location = HeaderValue::try_from(format!("{ROUTE}/{id}")).expect("letters and digits");
    let headers = [(header::CONTENT_TYPE, HeaderValue::from_static("application/sdp")), (header::LOCATION, location)];
    (StatusCode::CREATED, headers, sdp).into_response()
}

/// Makes a call, with 201 and the call's place in `Location`.
async fn dial(
    dialer: Option<&Arc<Dialer>>,
    transport: &Arc<TransportParts>,
    client: Client,
    caller: Caller,
    request: DialRequest,
    settings: Option<Arc<SessionUpdate>>,
) -> Response {
    match calls_out::dial(dialer, transport, client, caller, request, settings).await {
        Ok(id) => {
            let location = HeaderValue::try_from(format!("{ROUTE}/{id}")).expect("letters and digits");
            let body = axum::Json(serde_json::json!({"id": id, "object": "realtime.call", "state": "calling"}));
            (StatusCode::CREATED, [(header::LOCATION, location)], body).into_response()
        }
        Err(error) => not_dialed(error),
    }
}

/// What an authenticated client offers.
pub(in crate::server::transport) struct ClientOffer<'a> {
    pub(in crate::server::transport) sdp: &'a str,
    /// Settings that were checked.
    pub(in crate::server::transport) settings: Option<Arc<SessionUpdate>>,
    pub(in crate::server::transport) model: Option<String>,
    /// The pattern of the route, for the log.
    pub(in crate::server::transport) route: &'static str,
    pub(in crate::server::transport) protocol: Protocol,
}

/// What a call's data channel carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::server::transport) enum Protocol {
    /// Events of the Realtime API.
    Realtime,
    /// The same, with those of the extensions.
    Extended,
    /// RTVI messages.
    Rtvi,
}

/// Answers an offer and begins its call; gives the call's id and the answer.
///
/// # Errors
/// The response, where the offer is invalid or there is no place.
pub(in crate::server::transport) fn open(
    transport: &TransportParts,
    webrtc: &Webrtc,
    client: Client,
    caller: Caller,
    offered: ClientOffer<'_>,
) -> Result<(String, String), Box<Response>> {
    let sessions = &transport.sessions;
    let access = &sessions.access;
    let ClientOffer { sdp, settings, model, route, protocol } = offered;
    let is_rtvi = protocol == Protocol::Rtvi;
    if sdp.len() > MAX_SDP_BYTES {
        return Err(Box::new(too_long(sdp.len())));
    }
    let owner = caller.owner;
    let wrong = |why| Box::new(invalid(WireError::invalid("invalid_offer", why, Some("sdp"))));
    let offer = read_offer(sdp).map_err(wrong)?;
    // What is no offer takes no place, and a client without a place gets no answer made.
    let admitted =
        admission::admit(sessions, client, owner, route).map_err(|refused| Box::new(refused.into_response()))?;
    let answered = answer_to(webrtc, offer, sdp).map_err(wrong)?;
    let transport_name = if is_rtvi { RTVI_TRANSPORT } else { TRANSPORT };
    let intent = is_rtvi.then_some(SessionKind::Realtime);
    let mode = AudioMode::Opus;
    let opening = CallOpening {
        mode,
        settings,
        model,
        intent,
        transport: transport_name,
        route,
        by_phone: false,
        tools: None,
        llm: None,
        recording_consent: None,
    };
    let call = Call::begin(sessions, admitted, caller, opening);
    let (connection, sdp) = connection(webrtc, answered);
    // One at a time: a peer waits for its answer.
    let (offers, further) = mpsc::channel(1);
    let offers = Some(offers);
    let recording = CallRecording::unasked(&sessions.setup.session);
    let new = NewCall { call, owner, transport: transport_name, peer_id: None, offers, transfer: None, recording };
    let entry = transport.calls.list(keys::make("rtc_"), new);
    let name = access.keys.name_of(owner);
    access.security.done("call.start", Act { client, owner, name: name.as_deref(), target: entry.id() }, "ok");
    let id = entry.id().to_owned();
    let peer = Peer::new(connection, webrtc.endpoint.clone(), entry);
    let peer = match protocol {
        Protocol::Realtime => peer,
        Protocol::Extended => peer.taking_extensions(),
        Protocol::Rtvi => peer.speaking_rtvi(transport.telephony.key_pause, sessions.dialect()),
    };
    sessions.setup.tasks.spawn(peer.run(further));
    Ok((id, sdp))
}

/// Answers a further offer of the peer of a call, `id`, of this key. `restarts`: a new connection takes the place of the call's
/// own, and its session goes on. `None`: there is no such call. Waits for the call's task, 10 s at most.
///
/// # Errors
/// The response, where the offer is invalid or the call does not take it.
pub(in crate::server::transport) async fn offer_again(
    transport: &TransportParts,
    webrtc: &Webrtc,
    (owner, id): (Option<antiphon_types::KeyId>, &str),
    (sdp, restarts): (&str, bool),
) -> Result<Option<String>, Box<Response>> {
    let wrong = |why| Box::new(invalid(WireError::invalid("invalid_offer", why, Some("sdp"))));
    if sdp.len() > MAX_SDP_BYTES {
        return Err(Box::new(too_long(sdp.len())));
    }
    let call = transport.find_call(id, owner);
    let Some(offers) = call.as_ref().and_then(|call| call.offers.as_ref()) else { return Ok(None) };
    let taken = async {
        if restarts {
            let (connection, sdp) = connection(webrtc, answer(webrtc, sdp).map_err(wrong)?);
            let (taken, is_taken) = oneshot::channel();
            let sent = offers.send(NewOffer::Other { connection: Box::new(connection), taken }).await;
            return Ok((sent.is_ok() && is_taken.await.is_ok()).then_some(sdp));
        }
        let (answer, answered) = oneshot::channel();
        let sent = offers.send(NewOffer::Same { sdp: sdp.to_owned(), answer }).await;
        let answered = if sent.is_ok() { answered.await.ok() } else { None };
        answered.transpose().map_err(wrong)
    };
    timeout(BODY, taken).await.unwrap_or_else(|_| Err(Box::new(late())))
}

fn connection(webrtc: &Webrtc, answered: AnsweredOffer) -> (Connection, String) {
    let AnsweredOffer { rtc, sdp, fragment, max_message_bytes, kept } = answered;
    let route = webrtc.endpoint.list(fragment);
    (Connection { rtc, route, max_message_bytes, kept }, sdp)
}

/// The response where there is no WebRTC.
pub(in crate::server::transport) fn off() -> Response {
    let message = "This server does not serve WebRTC (rtc.listen is empty). Connect by WebSocket.";
    refused(StatusCode::NOT_FOUND, "webrtc_off", message)
}

fn too_long(n_bytes: usize) -> Response {
    let message = format!("The offer has {n_bytes} bytes; {MAX_SDP_BYTES} is the most.");
    refused(StatusCode::PAYLOAD_TOO_LARGE, "invalid_offer", message)
}

/// The response to a client without a key that may open sessions.
pub(in crate::server::transport) fn rejected(access: &AccessParts, client: Client, refusal: Refusal) -> Response {
    auth::log(access, client, ROUTE, refusal);
    auth::unauthorized_call(refusal)
}

/// The response to settings or an offer that are invalid.
pub(in crate::server::transport) fn invalid(error: WireError) -> Response {
    let event = antiphon_protocol::encode(&ServerEvent::Error { error }, "");
    let mut event: serde_json::Value = serde_json::from_str(&event).expect("an event is JSON");
    let mut error = event["error"].take();
    error.as_object_mut().expect("an object").remove("event_id");
    (StatusCode::BAD_REQUEST, axum::Json(serde_json::json!({"error": error}))).into_response()
}

/// Reads a request's body in any of its three forms.
async fn read(request: Request) -> Result<Offer, Box<Response>> {
    let kind = request.headers().get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    let kind = kind.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    let bad = |message: String| Box::new(refused(StatusCode::BAD_REQUEST, "invalid_offer", message));
    let offer = match kind.as_str() {
        "multipart/form-data" => {
            let mut form = Multipart::from_request(request, &())
                .await
                .map_err(|error| Box::new(unread(error.status(), &error.body_text())))?;
            let mut sdp = None;
            let mut session = None;
            while let Some(field) =
                form.next_field().await.map_err(|error| Box::new(unread(error.status(), &error.body_text())))?
            {
                let name = field.name().unwrap_or_default().to_owned();
                let text = field.text().await.map_err(|error| Box::new(unread(error.status(), &error.body_text())))?;
                match name.as_str() {
                    "sdp" => sdp = Some(text),
                    "session" => session = Some(text),
                    _ => {}
                }
            }
            let sdp = sdp.ok_or_else(|| bad("The part 'sdp' is missing.".into()))?;
            Offer { call: RequestedCall::Client { sdp }, session }
        }
        "application/json" => {
            let body = body(request).await?;
            read_json(&body)?
        }
        _ => {
            let body = body(request).await?;
            let sdp = String::from_utf8(body.into()).map_err(|_| bad("The offer is no text.".into()))?;
            Offer { call: RequestedCall::Client { sdp }, session: None }
        }
    };
    Ok(offer)
}

/// Reads a body of JSON: with `to` it is a call out, else an offer.
fn read_json(body: &[u8]) -> Result<Offer, Box<Response>> {
    let bad = |message: String| Box::new(refused(StatusCode::BAD_REQUEST, "invalid_offer", message));
    let unreadable =
        |error: serde_json::Error| bad(format!("We could not parse the JSON body of your request: {error}."));
    let mut fields: JsonFields = serde_json::from_slice(body).map_err(unreadable)?;
    fields.retain(|_, value| value.get() != "null");
    let session = fields.remove("session").map(|session| session.get().to_owned());
    if fields.contains_key("to") {
        let request = read_dial_request(&fields).map_err(|error| Box::new(invalid(error)))?;
        return Ok(Offer { call: RequestedCall::Phone(request), session });
    }
    let sdp: Option<String> = fields.get("sdp").and_then(|sdp| serde_json::from_str(sdp.get()).ok());
    let sdp = sdp.ok_or_else(|| bad("The body has an sdp, or to: the number that is called.".into()))?;
    Ok(Offer { call: RequestedCall::Client { sdp }, session })
}

/// Reads a call out; an error names the field.
fn read_dial_request(fields: &JsonFields) -> Result<DialRequest, WireError> {
    let mut request = serde_json::Map::new();
    for (name, value) in fields {
        // Each field alone, so that an error is of this one.
        let read_alone = |value: Value| {
            let to = ("to".to_owned(), Value::from(""));
            let alone = serde_json::Map::from_iter([to, (name.clone(), value)]);
            DialRequest::deserialize(Value::Object(alone))
        };
        // Every field but `to` may be null.
        if name != "to" && read_alone(Value::Null).is_err() {
            let message = format!("Unknown parameter: '{name}'.");
            return Err(WireError::invalid("unknown_parameter", message, Some(name.as_str())));
        }
        let wrong = |error: serde_json::Error| {
            let message = format!("Invalid value of '{name}': {error}.");
            WireError::invalid("invalid_value", message, Some(name.as_str()))
        };
        let value: Value = serde_json::from_str(value.get()).map_err(wrong)?;
        read_alone(value.clone()).map_err(wrong)?;
        request.insert(name.clone(), value);
    }
    let wrong = |error: serde_json::Error| WireError::invalid("invalid_value", format!("{error}."), Some("to"));
    DialRequest::deserialize(Value::Object(request)).map_err(wrong)
}

async fn body(request: Request) -> Result<Bytes, Box<Response>> {
    Bytes::from_request(request, &()).await.map_err(|error| Box::new(unread(error.status(), &error.body_text())))
}

/// The body of a request with an offer, in the time and length that all offers have.
///
/// # Errors
/// The response, where it is too long, or late.
pub(in crate::server::transport) async fn body_in_time(request: Request) -> Result<Bytes, Box<Response>> {
    timeout(BODY, body(request)).await.unwrap_or_else(|_| Err(Box::new(late())))
}

/// The response to a body that the server does not read to its end.
fn unread(status: StatusCode, why: &str) -> Response {
    refused(status, "invalid_offer", format!("The request cannot be read: {}.", brief(&why)))
}

fn late() -> Response {
    refused(StatusCode::REQUEST_TIMEOUT, "request_timeout", "The request was not received in time.")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_wrong_field_of_a_call_out_is_named() {
        let read = |body: &str| read_dial_request(&serde_json::from_str(body).unwrap());
        let check = |body: &str, code: &str, param: &str, expect: &str| {
            let error = read(body).unwrap_err();
            assert_eq!((error.code, error.param.as_deref()), (Some(code), Some(param)), "{body}");
            assert!(error.message.contains(expect), "{}", error.message);
        };
        check(r#"{"to": 5}"#, "invalid_value", "to", "Invalid value of 'to': invalid type: integer `5`");
        let machine = r#"{"to": "tel:+1", "on_voicemail": "foo"}"#;
        check(machine, "invalid_value", "on_voicemail", "`leave_message`");
        let misspelled = r#"{"to": "tel:+1", "greting": "Hello."}"#;
        check(misspelled, "unknown_parameter", "greting", "Unknown parameter: 'greting'.");
        check(r#"{"to": "tel:+1", "sdp": "v=0"}"#, "unknown_parameter", "sdp", "'sdp'");
        let request = read(r#"{"to": "tel:+1", "greeting": "Hello.", "on_voicemail": "hang_up"}"#).unwrap();
        assert_eq!((request.to.as_str(), request.greeting.as_deref()), ("tel:+1", Some("Hello.")));
    }
}
