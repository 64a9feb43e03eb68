//! Phone calls: `WS /v1/telephony/{provider}` for the streams of Twilio, Telnyx, Plivo, Vonage, jambonz and Asterisk, webhooks
//! that answer Twilio's calls and take the statuses of calls out, a listener for Asterisk AudioSocket, and SIP ([`sip`]).
//! [`calls_out`] makes calls, by SIP or by [`accounts`].
//!
//! This file authenticates a peer, takes a place for its call ([`intake`]) and hands the connection to
//! [`arrival`]. Each peer's protocol is a [`leg::Leg`] in a file of its own. No call is accepted without a
//! signature or a token unless `telephony.unauthenticated` says so.

mod accounts;
mod answerer;
pub(in crate::server::transport) mod answering;
mod arrival;
mod asterisk;
mod audio;
mod audiosocket;
mod bridge;
pub(in crate::server) mod call_reports;
pub(in crate::server::transport) mod calls_out;
mod conversation;
pub(in crate::server) mod intake;
mod jambonz;
mod leg;
mod link;
mod number_language;
pub(in crate::server) mod outgoing;
mod paced;
mod playout;
mod plivo;
mod recital;
mod recording_notice;
mod reply_progress;
mod signature;
pub(in crate::server) mod sip;
mod telnyx;
#[cfg(feature = "testing")]
pub mod testing;
mod tools;
mod transfer_requests;
mod twilio;
mod twiml;
mod vonage;
mod warm_transfer;

use super::parts::TransportParts;
use crate::config::ServerConfig;
use crate::server::access::auth;
use crate::server::access::caller::{Caller, Credential, credentials_of};
use crate::server::access::keys;
use crate::server::edge::client::Client;
use crate::server::edge::connection_slots::ConnectionSlots;
use crate::server::edge::inflow::{Inflow, expect_frames};
use crate::server::edge::refusal::refused;
use accounts::STATUS_ROUTE;
use arrival::Arrival;
use axum::body::to_bytes;
use axum::extract::ws::WebSocketUpgrade;
use axum::extract::{Extension, Path, RawQuery, Request, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use intake::{MAX_STARTING, StartingCall};
use leg::{Leg, Parameters};
use socket2::{SockRef, TcpKeepalive};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use url::form_urlencoded;

/// Time until a call has started; on AudioSocket, where nothing authenticates the peer before.
const STARTS_WITHIN: Duration = Duration::from_secs(10);
const AUDIOSOCKET_STARTS_WITHIN: Duration = Duration::from_secs(5);
/// A form of Twilio, in bytes, and the time in which it arrives.
const MAX_FORM_BYTES: usize = 64 * 1024;
const FORM: Duration = Duration::from_secs(10);
/// A silent AudioSocket peer is asked for a sign of life after this time, and three times at this interval.
const KEEPALIVE: Duration = Duration::from_secs(20);
/// Pause after a failed accept, for example without descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(200);
/// The name of the query parameter that carries a token.
const TOKEN: &str = "token";
/// The patterns of the routes, for the security log.
const STREAM_ROUTE: &str = "/v1/telephony/{provider}";
const VOICE_ROUTE: &str = "/v1/telephony/twilio/voice";
const AUDIOSOCKET_ROUTE: &str = "telephony.audiosocket_listen";

/// The peers that connect by WebSocket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Provider {
    Twilio,
    Telnyx,
    Plivo,
    Vonage,
    Jambonz,
    Asterisk,
}

impl Provider {
    const ALL: [Self; 6] = [Self::Twilio, Self::Telnyx, Self::Plivo, Self::Vonage, Self::Jambonz, Self::Asterisk];

    fn name(self) -> &'static str {
        match self {
            Self::Twilio => "twilio",
            Self::Telnyx => "telnyx",
            Self::Plivo => "plivo",
            Self::Vonage => "vonage",
            Self::Jambonz => "jambonz",
            Self::Asterisk => "asterisk",
        }
    }

    fn of(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|provider| provider.name() == name)
    }

    /// The subprotocol that its client requires.
    fn subprotocol(self) -> Option<&'static str> {
        match self {
            Self::Jambonz => Some(jambonz::SUBPROTOCOL),
            Self::Asterisk => Some(asterisk::SUBPROTOCOL),
            _ => None,
        }
    }

    fn leg(self, parameters: &Parameters) -> Result<Box<dyn Leg>, leg::LegError> {
        Ok(match self {
            Self::Twilio => Box::<twilio::Twilio>::default(),
            Self::Telnyx => Box::new(telnyx::Telnyx::new(parameters.get("codec"))?),
            Self::Plivo => Box::<plivo::Plivo>::default(),
            Self::Vonage => Box::<vonage::Vonage>::default(),
            Self::Jambonz => Box::<jambonz::Jambonz>::default(),
            Self::Asterisk => Box::<asterisk::Asterisk>::default(),
        })
    }
}

/// The handler of `WS /v1/telephony/{provider}` and `WS /v1/telephony/{provider}/{token}`.
pub(in crate::server) async fn stream(
    State(transport): State<Arc<TransportParts>>,
    Path(path): Path<HashMap<String, String>>,
    uri: Uri,
    Extension(client): Extension<Client>,
    Extension(inflow): Extension<Arc<Inflow>>,
    headers: HeaderMap,
    ws: WebSocketUpgrade,
) -> Response {
    if let Err(early) = expect_frames(&inflow) {
        return *early;
    }
    let name = path.get("provider").map(String::as_str).unwrap_or_default();
    let Some(provider) = Provider::of(name) else {
        let names = Provider::ALL.map(Provider::name).join(", ");
        let message = format!("This telephony provider is not known. Known are: {names}.");
        return refused(StatusCode::NOT_FOUND, "unknown_provider", message);
    };
    let (in_query, parameters) = parameters_of(uri.query());
    let token = path.get(TOKEN).cloned().or(in_query);
    // The path as it was sent: Twilio signs it encoded.
    let signed = SignedRequest { urls: |base: &str| signature::urls(base, uri.path(), true), form: &[] };
    let signed = (provider == Provider::Twilio).then_some(signed);
    // Twilio takes no query in the address of a stream and signs none: one was added behind its back.
    if signed.is_some() && transport.telephony.auth_token.load().is_some() && uri.query().is_some() {
        return unsigned_query(&transport, client);
    }
    let authenticated = authenticate(&transport, (client, STREAM_ROUTE), &headers, token.as_deref(), signed).await;
    let (caller, is_signed) = match authenticated {
        Ok(authenticated) => authenticated,
        Err(response) => return *response,
    };
    if is_signed && uri.query().is_some() {
        return unsigned_query(&transport, client);
    }
    let leg = match provider.leg(&parameters) {
        Ok(leg) => leg,
        Err(error) => return refused(StatusCode::BAD_REQUEST, "invalid_value", error.to_string()),
    };
    let Some(starting) = transport.telephony.begin(client) else {
        let message = "Too many calls begin at this moment. Try again.";
        let mut response = refused(StatusCode::SERVICE_UNAVAILABLE, "server_full", message);
        response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
        return response;
    };
    let arrival = Arrival {
        client,
        caller,
        peer: provider.name(),
        route: STREAM_ROUTE,
        parameters,
        needs_route: false,
        is_signed,
        starts_within: STARTS_WITHIN,
        starting: Some(starting),
    };
    let tasks = transport.sessions.setup.tasks.clone();
    link::configured(ws).protocols(provider.subprotocol()).on_upgrade(move |socket| {
        tasks.track_future(async move {
            // The peer may still be sending when the hub closes.
            inflow.set_lingers(true);
            arrival::serve(transport, link::websocket(socket), leg, arrival).await;
            inflow.linger().await;
        })
    })
}

/// The response to a stream whose query nobody has signed.
fn unsigned_query(transport: &TransportParts, client: Client) -> Response {
    transport.sessions.access.security.refused(client, STREAM_ROUTE, 403, "a query that is not signed");
    let message = "Twilio does not sign the query of a stream. Remove it: a token belongs in the path, and a route or other \
                   parameters in <Parameter> elements of the TwiML.";
    refused(StatusCode::FORBIDDEN, "invalid_signature", message)
}

/// The handler of `POST /v1/telephony/twilio/voice`: the TwiML that connects a call to the stream.
pub(in crate::server) async fn voice(
    State(transport): State<Arc<TransportParts>>,
    RawQuery(query): RawQuery,
    Extension(client): Extension<Client>,
    headers: HeaderMap,
    request: Request,
) -> Response {
    let form = match read_form(request).await {
        Ok(form) => form,
        Err(response) => return *response,
    };
    let (token, _) = parameters_of(query.as_deref());
    let path = query.map_or_else(|| VOICE_ROUTE.to_owned(), |query| format!("{VOICE_ROUTE}?{query}"));
    let signed = SignedRequest { urls: |base: &str| signature::urls(base, &path, false), form: &form };
    if let Err(response) =
        authenticate(&transport, (client, VOICE_ROUTE), &headers, token.as_deref(), Some(signed)).await
    {
        return *response;
    }
    let sessions = &transport.sessions;
    let twiml = if sessions.lacks().or_else(|| sessions.lacks_room()).is_none() {
        let base = public_url(&sessions.edge.config, client, &headers);
        let base = base.replacen("http", "ws", 1);
        let token = token.map(|token| format!("/{}", percent_encoded(&token))).unwrap_or_default();
        let url = format!("{}/v1/telephony/twilio{token}", base.trim_end_matches('/'));
        let parameters = [("from", "From"), ("to", "To")];
        twiml::stream(&url, parameters.into_iter().filter_map(|(name, field)| Some((name, field_of(&form, field)?))))
    } else {
        "<Reject reason=\"busy\"/>".to_owned()
    };
    ([(header::CONTENT_TYPE, "text/xml; charset=utf-8")], twiml::document(&twiml)).into_response()
}

/// The handler of `POST /v1/telephony/twilio/status?call=ID`: how far a call out is.
pub(in crate::server) async fn status(
    State(transport): State<Arc<TransportParts>>,
    RawQuery(query): RawQuery,
    Extension(client): Extension<Client>,
    headers: HeaderMap,
    request: Request,
) -> Response {
    let form = match read_form(request).await {
        Ok(form) => form,
        Err(response) => return *response,
    };
    let query = query.unwrap_or_default();
    let access = &transport.sessions.access;
    let base = public_url(&access.edge.config, client, &headers);
    let urls = signature::urls(&base, &format!("{STATUS_ROUTE}?{query}"), false);
    let call = form_urlencoded::parse(query.as_bytes()).find(|(name, _)| name == "call").map(|(_, id)| id);
    let accounts = transport.telephony.accounts.as_ref();
    let is_signed = accounts
        .is_some_and(|accounts| accounts.report(&call.unwrap_or_default(), signature_of(&headers), &urls, &form));
    if !is_signed {
        access.security.refused(client, STATUS_ROUTE, 403, "wrong signature");
        let message = "The X-Twilio-Signature is missing or wrong. Check the auth token of the account in \
                       telephony.accounts and server.public_url.";
        return refused(StatusCode::FORBIDDEN, "invalid_signature", message);
    }
    StatusCode::NO_CONTENT.into_response()
}

/// The fields of a form of Twilio. The response refuses the request.
async fn read_form(request: Request) -> Result<Vec<(String, String)>, Box<Response>> {
    let refuse = |status, message| Box::new(refused(status, "invalid_value", message));
    match timeout(FORM, to_bytes(request.into_body(), MAX_FORM_BYTES)).await {
        Ok(Ok(bytes)) => Ok(form_urlencoded::parse(&bytes).into_owned().collect()),
        Ok(Err(_)) => Err(refuse(StatusCode::PAYLOAD_TOO_LARGE, "The form is longer than 64 KiB.")),
        Err(_) => Err(refuse(StatusCode::REQUEST_TIMEOUT, "The form did not arrive in 10 s.")),
    }
}

fn field_of<'a>(form: &'a [(String, String)], name: &str) -> Option<&'a str> {
    form.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
}

fn signature_of(headers: &HeaderMap) -> &str {
    headers.get(signature::HEADER).and_then(|value| value.to_str().ok()).unwrap_or_default()
}

/// Accepts AudioSocket connections until `stop` is cancelled, then closes the listener.
pub(in crate::server) async fn accept_audiosocket(
    transport: &Arc<TransportParts>,
    listener: TcpListener,
    stop: &CancellationToken,
) {
    let slots =
        ConnectionSlots::new(MAX_STARTING, transport.sessions.edge.config.max_connections_per_address, Vec::new());
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = stop.cancelled() => return,
        };
        match accepted {
            Ok((stream, peer)) => {
                let client = Client::direct(peer.ip(), false);
                let Ok(slot) = slots.admit(client.address, false) else {
                    transport.sessions.access.security.refused(client, AUDIOSOCKET_ROUTE, 503, "too many connections");
                    continue;
                };
                // Until it has named its call, it may be evicted.
                slot.activity().reads_nothing();
                let transport = transport.clone();
                let tasks = transport.sessions.setup.tasks.clone();
                tasks.spawn(audiosocket_call(transport, stream, client, StartingCall::AudioSocket(slot)));
            }
            Err(error) => {
                tracing::warn!(%error, "an AudioSocket connection cannot be accepted");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

async fn audiosocket_call(transport: Arc<TransportParts>, stream: TcpStream, client: Client, starting: StartingCall) {
    let keepalive = TcpKeepalive::new().with_time(KEEPALIVE).with_interval(KEEPALIVE).with_retries(3);
    if stream.set_nodelay(true).and_then(|()| SockRef::from(&stream).set_tcp_keepalive(&keepalive)).is_err() {
        return;
    }
    let arrival = Arrival {
        client,
        caller: Caller { owner: None, settings: None, credential: Credential::Call, language: None },
        peer: "audiosocket",
        route: AUDIOSOCKET_ROUTE,
        parameters: Parameters::default(),
        needs_route: !transport.telephony.unauthenticated,
        is_signed: false,
        starts_within: AUDIOSOCKET_STARTS_WITHIN,
        starting: Some(starting),
    };
    arrival::serve(transport, link::tcp(stream), Box::<audiosocket::AudioSocket>::default(), arrival).await;
}

/// What Twilio has signed, if it has: the URLs of the request at a public address, and the form.
struct SignedRequest<'a, F: Fn(&str) -> Vec<String>> {
    urls: F,
    form: &'a [(String, String)],
}

/// Checks a signature where Twilio has to sign, else a token: an API key or a short-lived one, in the path, the query or the
/// headers. Gives the caller, and whether Twilio has signed. The response refuses the request.
async fn authenticate(
    transport: &TransportParts,
    (client, route): (Client, &'static str),
    headers: &HeaderMap,
    token: Option<&str>,
    signed: Option<SignedRequest<'_, impl Fn(&str) -> Vec<String>>>,
) -> Result<(Caller, bool), Box<Response>> {
    let access = &transport.sessions.access;
    let mut is_signed = false;
    if let Some(signed) = signed {
        let signature = signature_of(headers);
        let urls = (signed.urls)(&public_url(&access.edge.config, client, headers));
        let auth_token = transport.telephony.auth_token.load_full();
        let accounts = transport.telephony.accounts.as_ref();
        is_signed = auth_token.as_ref().is_some_and(|token| token.has_signed(signature, &urls, signed.form))
            || accounts.is_some_and(|accounts| accounts.have_signed(signature, &urls, signed.form));
        if auth_token.is_some() && !is_signed {
            access.security.refused(client, route, 403, "wrong signature");
            let message = "The X-Twilio-Signature is missing or wrong. Check the auth token (telephony.twilio_auth_token_env) \
                           and server.public_url.";
            return Err(Box::new(refused(StatusCode::FORBIDDEN, "invalid_signature", message)));
        }
    }
    let token = token.map(str::to_owned).or_else(|| credentials_of(headers));
    if let Some(token) = token {
        // Where the hub has no keys, only short-lived ones are tokens.
        if access.keys.current().are_on() || token.starts_with(keys::EPHEMERAL) {
            let mut bearer = HeaderMap::new();
            let value = HeaderValue::from_str(&format!("Bearer {token}")).ok();
            bearer.extend(value.map(|value| (header::AUTHORIZATION, value)));
            auth::fetch_ephemeral_key(access, client, &bearer).await;
            let caller = auth::caller(access, client, &bearer).map_err(|refusal| {
                auth::log(access, client, route, refusal);
                Box::new(auth::unauthorized_call(refusal))
            });
            return caller.map(|caller| (caller, is_signed));
        }
    }
    if is_signed || transport.telephony.unauthenticated {
        let caller = Caller { owner: None, settings: None, credential: Credential::Call, language: None };
        return Ok((caller, is_signed));
    }
    access.security.refused(client, route, 401, "no token");
    let message = "A call needs a token: an API key or a short-lived key behind the provider's name in the path, as the query \
                   parameter 'token', or in an Authorization header.";
    Err(Box::new(refused(StatusCode::UNAUTHORIZED, None, message)))
}

/// The address under which the world sees the hub, without a path.
fn public_url(config: &ServerConfig, client: Client, headers: &HeaderMap) -> String {
    if !config.public_url.is_empty() {
        return config.public_url.clone();
    }
    let host = headers.get(header::HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
    format!("{}://{host}", if client.is_secure { "https" } else { "http" })
}

/// The token in a query, and its other parameters.
fn parameters_of(query: Option<&str>) -> (Option<String>, Parameters) {
    let mut token = None;
    let mut parameters = Parameters::default();
    for (name, value) in form_urlencoded::parse(query.unwrap_or_default().as_bytes()) {
        match name.as_ref() {
            TOKEN => token = Some(value.into_owned()).filter(|token| !token.is_empty()),
            name => parameters.add_text(name, &value),
        }
    }
    (token, parameters)
}

fn percent_encoded(text: &str) -> String {
    form_urlencoded::byte_serialize(text.as_bytes()).collect::<String>().replace('+', "%20")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Messages of any content, in any order, after a start and without one.
        #[test]
        fn no_message_of_a_peer_panics(
            has_started: bool,
            messages in proptest::collection::vec(
                (prop_oneof![
                    Just("media"), Just("start"), Just("mark"), Just("dtmf"), Just("stop"), Just("playedStream"),
                    Just("websocket:connected"), Just("websocket:notify"), Just("MEDIA_START"), Just("DTMF_END"),
                ], "[ -~é]{0,40}", any::<bool>()), 0..12),
        ) {
            for provider in Provider::ALL {
                let mut leg = provider.leg(&Parameters::default()).unwrap();
                if has_started {
                    let _ = leg.text(r#"{"event":"start","start":{"streamSid":"s","streamId":"s"}}"#);
                }
                for (event, rest, is_json) in &messages {
                    let object = serde_json::json!({
                        "event": event, "media": {"payload": rest}, "mark": {"name": rest}, "dtmf": {"digit": rest}, "name": rest,
                        "start": rest, "content-type": rest, "payload": rest, "digit": rest, "format": rest,
                    });
                    let text = if *is_json { object.to_string() } else { format!("{event} {rest}") };
                    let _ = leg.text(&text);
                    let _ = leg.text(rest);
                    let _ = leg.binary(rest.clone().into_bytes().into());
                }
            }
        }
    }

    #[test]
    fn a_token_is_encoded_in_a_path() {
        assert_eq!(percent_encoded("ek_a b/c"), "ek_a%20b%2Fc");
    }
}
