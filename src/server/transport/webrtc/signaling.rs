//! `POST /v1/realtime/calls` (and `POST /v1/realtime`): an offer in, an answer out; `POST /v1/realtime/calls/{id}/hangup`.
//!
//! The offer comes as SDP, as a form with the parts `sdp` and `session`, or as JSON with these fields. Keys are those of the
//! WebSocket, short-lived ones too. The call is admitted before it is answered.

use super::Webrtc;
use super::peer::{Connection, NewOffer, Peer};
use crate::server::sessions::admission;
use crate::server::app::App;
use crate::server::access::auth::{self, Caller, Identity, Refusal};
use crate::server::edge::client::Client;
use crate::server::access::guard::refused;
use crate::server::access::keys;
use crate::server::access::ephemeral_keys;
use crate::server::access::security::Act;
use crate::server::transport::call::{Call, CallOpening};
use antiphon_protocol::{ServerEvent, SessionKind, SessionUpdate, WireError};
use antiphon_session::AudioMode;
use axum::body::Bytes;
use axum::extract::{Extension, FromRequest, Multipart, Path, Query, Request, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use serde_json::value::RawValue;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use str0m::change::SdpOffer;
use str0m::ice::IceCreds;
use str0m::{Candidate, Rtc, RtcConfig};
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, timeout};

/// Its name in logs and records.
const TRANSPORT: &str = "webrtc";
const RTVI_TRANSPORT: &str = "rtvi-webrtc";
/// The pattern of the route, for the log.
const ROUTE: &str = "/v1/realtime/calls";
/// An offer with its settings.
pub(in crate::server) const MAX_BODY_BYTES: usize = 256 * 1024;
/// An offer: a browser's with one track and a data channel has 3 to 8 KiB.
const MAX_SDP_BYTES: usize = 64 * 1024;
/// The words of the parser in a refusal.
const MAX_REASON_BYTES: usize = 200;
/// Media lines of an offer.
const MAX_MEDIA: usize = 8;
/// Timeout for receiving a request.
const BODY: Duration = Duration::from_secs(10);
/// Interval of receiver reports: a sender's FEC follows them.
const REPORTS: Duration = Duration::from_secs(1);
/// Interval of measurements of the round trip.
const STATISTICS: Duration = Duration::from_secs(2);
/// What the data channel buffers for a peer.
const MAX_UNACKNOWLEDGED_BYTES: usize = 1024 * 1024;
/// What a message of the data channel may hold, in both directions: the limit of browsers.
const MAX_MESSAGE_BYTES: u32 = 256 * 1024;
/// What a message to a peer may hold whose offer says nothing (RFC 8841, section 6.1), and the smallest limit that leaves room
/// for events.
const USUAL_MESSAGE_BYTES: usize = 64 * 1024;
const LEAST_MESSAGE_BYTES: usize = 1024;

/// The query parameters. Unknown ones are ignored, because SDKs add their own.
#[derive(Deserialize)]
pub(in crate::server) struct Params {
    model: Option<String>,
    /// `opus`: the data channel also carries the events of the extensions, as a WebSocket opened with it does.
    audio: Option<String>,
}

/// What a client asks for.
struct Offer {
    sdp: String,
    /// The settings, JSON.
    session: Option<String>,
}

#[derive(Deserialize)]
struct JsonOffer {
    sdp: String,
    #[serde(default)]
    session: Option<Box<RawValue>>,
}

/// An answered offer.
pub(super) struct Answered {
    pub(super) rtc: Rtc,
    pub(super) sdp: String,
    fragment: String,
    /// What a message to the peer may hold; `None`: the offer has no data channel.
    pub(super) max_message_bytes: Option<usize>,
    kept: Kept,
}

/// What a further offer on the same connection leaves as it is.
#[derive(Debug, PartialEq)]
pub(super) struct Kept {
    /// Kind and name of each media line; there may be more in a further offer.
    media: Vec<(String, String)>,
    /// Of the certificate.
    fingerprints: BTreeSet<String>,
}

/// Answers an offer with 201, the SDP, and the call's place in `Location`.
pub(in crate::server) async fn create(
    State(app): State<Arc<App>>,
    Query(params): Query<Params>,
    Extension(client): Extension<Client>,
    request: Request,
) -> Response {
    let Some(webrtc) = app.webrtc.clone() else { return off() };
    let headers = request.headers().clone();
    ephemeral_keys::fetch(&app, client, &headers).await;
    let caller = match auth::caller(&app, client, &headers) {
        Ok(caller) => caller,
        Err(refusal) => return rejected(&app, client, refusal),
    };
    let protocol = match params.audio.as_deref() {
        None => Protocol::Realtime,
        Some("opus") => Protocol::Extended,
        Some(other) => {
            let message = format!("Invalid value: '{other}' for 'audio'. A call supports 'opus'.");
            return refused(StatusCode::BAD_REQUEST, "invalid_value", message);
        }
    };
    let offer = match timeout(BODY, read(request)).await {
        Ok(Ok(offer)) => offer,
        Ok(Err(response)) => return *response,
        Err(_) => return late(),
    };
    let settings = offer.session.as_deref().map(|text| settings(&app, text, caller.owner)).transpose();
    let settings = match settings {
        Ok(settings) => settings.map(Arc::new),
        Err(error) => return invalid(error),
    };
    let offered = Offered { sdp: &offer.sdp, settings, model: params.model, route: ROUTE, protocol };
    let (id, sdp) = match open(&app, &webrtc, client, caller, offered) {
        Ok(opened) => opened,
        Err(response) => return *response,
    };
    let location = HeaderValue::try_from(format!("{ROUTE}/{id}")).expect("letters and digits");
    let headers = [(header::CONTENT_TYPE, HeaderValue::from_static("application/sdp")), (header::LOCATION, location)];
    (StatusCode::CREATED, headers, sdp).into_response()
}

/// What an authenticated client offers.
pub(in crate::server::transport) struct Offered<'a> {
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
    app: &Arc<App>,
    webrtc: &Webrtc,
    client: Client,
    caller: Caller,
    offered: Offered<'_>,
) -> Result<(String, String), Box<Response>> {
    let Offered { sdp, settings, model, route, protocol } = offered;
    let is_rtvi = protocol == Protocol::Rtvi;
    if sdp.len() > MAX_SDP_BYTES {
        return Err(Box::new(too_long(sdp.len())));
    }
    let owner = caller.owner;
    let wrong = |why| Box::new(invalid(WireError::invalid("invalid_offer", why, Some("sdp"))));
    let offer = read_offer(sdp).map_err(wrong)?;
    // What is no offer takes no place, and a client without a place gets no answer made.
    let admitted = admission::admit(app, client, owner, route).map_err(|refused| Box::new(refused.into_response()))?;
    let answered = answer_to(webrtc, offer, sdp).map_err(wrong)?;
    let transport = if is_rtvi { RTVI_TRANSPORT } else { TRANSPORT };
    let intent = is_rtvi.then_some(SessionKind::Realtime);
    let opening = CallOpening { mode: AudioMode::Opus, settings, model, intent, transport, route };
    let call = Call::begin(app, admitted, caller, opening);
    let (connection, sdp) = connection(webrtc, answered);
    // One at a time: a peer waits for its answer.
    let (offers, further) = mpsc::channel(1);
    let entry = app.calls.list(keys::make("rtc_"), (call, owner), (transport, None), Some(offers));
    let name = app.access.name_of(owner);
    app.security.done("call.start", Act { client, owner, name: name.as_deref(), target: entry.id() }, "ok");
    let id = entry.id().to_owned();
    let peer = Peer::new(connection, webrtc.endpoint.clone(), entry);
    let peer = match protocol {
        Protocol::Realtime => peer,
        Protocol::Extended => peer.taking_extensions(),
        Protocol::Rtvi => peer.speaking_rtvi(app.telephony.key_pause),
    };
    app.setup.tasks.spawn(peer.run(further));
    Ok((id, sdp))
}

/// Answers a further offer of the peer of a call, `id`, of this key. `restarts`: a new connection takes the place of the call's
/// own, and its session goes on. `None`: there is no such call. Waits for the call's task, 10 s at most.
///
/// # Errors
/// The response, where the offer is invalid or the call does not take it.
pub(in crate::server::transport) async fn offer_again(
    app: &App,
    webrtc: &Webrtc,
    (owner, id): (Option<antiphon_types::KeyId>, &str),
    (sdp, restarts): (&str, bool),
) -> Result<Option<String>, Box<Response>> {
    let wrong = |why| Box::new(invalid(WireError::invalid("invalid_offer", why, Some("sdp"))));
    if sdp.len() > MAX_SDP_BYTES {
        return Err(Box::new(too_long(sdp.len())));
    }
    let call = app.find_call(id, owner);
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

fn connection(webrtc: &Webrtc, answered: Answered) -> (Connection, String) {
    let Answered { rtc, sdp, fragment, max_message_bytes, kept } = answered;
    let route = webrtc.endpoint.list(fragment);
    (Connection { rtc, route, max_message_bytes, kept }, sdp)
}

/// The response where there is no WebRTC.
pub(in crate::server::transport) fn off() -> Response {
    let message = "This server does not serve WebRTC (rtc.listen is empty). Connect by WebSocket.";
    refused(StatusCode::NOT_FOUND, "webrtc_off", message)
}

/// An error of the parser, which may quote the whole offer.
fn brief(error: &impl ToString) -> String {
    let text = error.to_string();
    text[..text.floor_char_boundary(MAX_REASON_BYTES)].to_owned()
}

fn too_long(n_bytes: usize) -> Response {
    let message = format!("The offer has {n_bytes} bytes; {MAX_SDP_BYTES} is the most.");
    refused(StatusCode::PAYLOAD_TOO_LARGE, "invalid_offer", message)
}

/// Lists the calls of the key: those by WebRTC, and phone calls.
pub(in crate::server) async fn list(State(app): State<Arc<App>>, identity: Identity) -> Response {
    axum::Json(serde_json::json!({"object": "list", "data": app.describe_calls(identity.owner)})).into_response()
}

/// Ends a call of the key.
pub(in crate::server) async fn hang_up(
    State(app): State<Arc<App>>,
    identity: Identity,
    Path(id): Path<String>,
) -> Response {
    let call = app.find_call(&id, identity.owner);
    match call {
        Some(call) => {
            call.hang_up.cancel();
            StatusCode::OK.into_response()
        }
        None => unknown_call(),
    }
}

/// The response to an id of no call of this key.
pub(in crate::server::transport) fn unknown_call() -> Response {
    refused(StatusCode::NOT_FOUND, "call_id_not_found", "There is no call with this id.")
}

/// The response to a client without a key that may open sessions.
pub(in crate::server::transport) fn rejected(app: &App, client: Client, refusal: Refusal) -> Response {
    auth::log(app, client, ROUTE, refusal);
    auth::unauthorized_call(refusal)
}

fn invalid(error: WireError) -> Response {
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
            Offer { sdp: sdp.ok_or_else(|| bad("The part 'sdp' is missing.".into()))?, session }
        }
        "application/json" => {
            let body = body(request).await?;
            let JsonOffer { sdp, session } = serde_json::from_slice(&body)
                .map_err(|error| bad(format!("We could not parse the JSON body of your request: {error}.")))?;
            Offer { sdp, session: session.map(|session| session.get().to_owned()) }
        }
        _ => {
            let body = body(request).await?;
            let sdp = String::from_utf8(body.into()).map_err(|_| bad("The offer is no text.".into()))?;
            Offer { sdp, session: None }
        }
    };
    Ok(offer)
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

/// The settings of the session, checked as those of a `session.update` are.
fn settings(app: &App, text: &str, owner: Option<antiphon_types::KeyId>) -> Result<SessionUpdate, WireError> {
    let settings = ephemeral_keys::read_settings(text, app.dialect())?;
    app.setup().describe(Some(&settings), owner)?;
    Ok(settings)
}

/// Answers an offer; `Err`: what is wrong with it.
pub(super) fn answer(webrtc: &Webrtc, sdp: &str) -> Result<Answered, String> {
    answer_to(webrtc, read_offer(sdp)?, sdp)
}

/// Answers an offer that was read from `sdp`.
fn answer_to(webrtc: &Webrtc, offer: SdpOffer, sdp: &str) -> Result<Answered, String> {
    let max_message_bytes = max_message_bytes(sdp);
    if max_message_bytes.is_some_and(|limit| limit < LEAST_MESSAGE_BYTES) {
        return Err(format!("The offer's max-message-size is less than {LEAST_MESSAGE_BYTES}."));
    }
    let credentials = IceCreds::new();
    let fragment = credentials.ufrag.clone();
    let mut rtc = RtcConfig::new()
        .set_crypto_provider(webrtc.crypto.clone())
        .set_dtls_cert(webrtc.certificate.clone())
        .set_ice_lite(true)
        .set_local_ice_credentials(credentials)
        .clear_codecs()
        .enable_opus(true, false)
        .set_rtp_mode(true)
        .set_rtcp_report_interval_audio(REPORTS)
        .set_stats_interval(Some(STATISTICS))
        .set_sctp_max_message_size(MAX_MESSAGE_BYTES)
        .set_sctp_max_buffered_amount(MAX_UNACKNOWLEDGED_BYTES)
        .build(Instant::now().into_std());
    for address in webrtc.endpoint.advertised() {
        let tcp = Candidate::builder().tcp().host(*address).tcptype(str0m::net::TcpType::Passive).build();
        for candidate in [Candidate::host(*address, "udp"), tcp] {
            let candidate = candidate.map_err(|error| format!("This server advertises {address}: {error}."))?;
            rtc.add_local_candidate(candidate);
        }
    }
    let answer = accept(&mut rtc, offer, sdp)?;
    Ok(Answered { rtc, sdp: answer, fragment, max_message_bytes, kept: Kept::of(sdp) })
}

/// Answers a further offer on the same connection, whose media go on; `Err`: what is wrong with it. One that is refused for what it
/// changes has changed nothing.
pub(super) fn accept_again(rtc: &mut Rtc, kept: &mut Kept, sdp: &str) -> Result<String, String> {
    let offer = read_offer(sdp)?;
    let further = Kept::of(sdp);
    if further.fingerprints != kept.fingerprints {
        return Err("The offer is of another connection, because its certificate is another one.".into());
    }
    if !further.media.starts_with(&kept.media) {
        return Err("The offer lacks a media line of this connection, or has another one in its place.".into());
    }
    let answer = accept(rtc, offer, sdp)?;
    *kept = further;
    Ok(answer)
}

fn read_offer(sdp: &str) -> Result<SdpOffer, String> {
    if media_of(sdp).count() > MAX_MEDIA {
        return Err(format!("The offer has more than {MAX_MEDIA} media lines."));
    }
    if !media_of(sdp).any(|line| line.starts_with("audio ")) {
        return Err("The offer has no audio.".into());
    }
    SdpOffer::from_sdp_string(sdp).map_err(|error| format!("The offer cannot be read: {}.", brief(&error)))
}

fn accept(rtc: &mut Rtc, offer: SdpOffer, sdp: &str) -> Result<String, String> {
    let answer = rtc.sdp_api().accept_offer(offer);
    let answer = answer.map_err(|error| format!("The offer cannot be answered: {}.", brief(&error)))?.to_sdp_string();
    if media_of(&answer).count() != media_of(sdp).count() {
        return Err("The offer cannot be read: one of its media lines is wrong.".into());
    }
    if !answer.to_ascii_lowercase().contains("opus/48000") {
        return Err("The offer has no audio with Opus.".into());
    }
    Ok(answer)
}

impl Kept {
    fn of(sdp: &str) -> Self {
        let value = |line: &str, name: &str| Some(line.strip_prefix(name)?.trim().to_owned());
        let fingerprints = sdp.lines().filter_map(|line| value(line, "a=fingerprint:")).collect();
        let mut media: Vec<(String, String)> = Vec::new();
        for line in sdp.lines() {
            if let Some(line) = line.strip_prefix("m=") {
                media.push((line.split(' ').next().unwrap_or_default().to_owned(), String::new()));
            } else if let (Some(name), Some((_, last))) = (value(line, "a=mid:"), media.last_mut()) {
                *last = name;
            }
        }
        Self { media, fingerprints }
    }
}

pub(super) fn media_of(sdp: &str) -> impl Iterator<Item = &str> {
    sdp.lines().filter_map(|line| line.strip_prefix("m="))
}

/// What a message of the data channel may hold for the peer of this offer; `None`: the offer has no data channel.
fn max_message_bytes(sdp: &str) -> Option<usize> {
    let mut lines = sdp.lines().skip_while(|line| !line.starts_with("m=application "));
    lines.next()?;
    let limit = lines
        .take_while(|line| !line.starts_with("m="))
        .find_map(|line| line.strip_prefix("a=max-message-size:")?.trim().parse().ok());
    Some(match limit {
        None => USUAL_MESSAGE_BYTES,
        // Any length.
        Some(0) => MAX_MESSAGE_BYTES as usize,
        Some(limit) => limit.min(MAX_MESSAGE_BYTES as usize),
    })
}

/// Whether pages of any origin may call this where keys are on: a page cannot send a key that it was not given.
pub(in crate::server) fn is_call(path: &str) -> bool {
    path == ROUTE
        || path == "/v1/realtime"
        || is_rtvi_call(path)
        || path.strip_prefix("/v1/realtime/calls/").is_some_and(|rest| rest.ends_with("/hangup"))
}

/// The paths of pipecat's small-webrtc transport.
pub(in crate::server) fn is_rtvi_call(path: &str) -> bool {
    let Some(rest) = path.strip_prefix("/v1/rtvi/") else { return false };
    matches!(rest, "start" | "api/offer") || rest.starts_with("sessions/") && rest.ends_with("/api/offer")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_have_the_length_that_the_offer_allows() {
        let check = |application: &str, expect: Option<usize>| {
            let sdp = format!(
                "v=0\r\nm=audio 9\r\na=max-message-size:7\r\n{application}m=video 9\r\na=max-message-size:7\r\n"
            );
            assert_eq!(max_message_bytes(&sdp), expect, "{application}");
        };
        check("", None);
        check("m=application 9\r\na=sctp-port:5000\r\n", Some(65_536));
        check("m=application 9\r\na=max-message-size:0\r\n", Some(262_144));
        check("m=application 9\r\na=max-message-size:65535\r\n", Some(65_535));
        check("m=application 9\r\na=max-message-size:1073741823\r\n", Some(262_144));
    }
}
