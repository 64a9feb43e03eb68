//! Authentication: the key of a request, and what it grants.
//!
//! [`check`] guards every route except the static page, the health probes and the socket. The socket reports a wrong
//! key after the upgrade, as the protocol requires: see [`turn_away`]. [`super::caller`] finds the key in the headers.
//! This module reads none from the URL, which appears in logs; telephony and RTVI do, whose clients can send it nowhere
//! else.

use super::caller::{Caller, Credential, Identity, credentials_of, preferred_language, presented};
use super::keys::{self, Grant};
use super::limits::Consumer;
use super::parts::AccessParts;
use super::scopes::{self, AccessRequirement, Scope, Scopes};
use super::security::Act;
use crate::server::edge::client::Client;
use crate::server::edge::closing::{close, finish};
use crate::server::edge::open_routes::{is_dashboard, is_open};
use crate::server::edge::pages;
use crate::server::edge::refusal::{refused, seconds};
use antiphon_protocol::{ServerEvent, WireError};
use antiphon_session::Viewer;
use antiphon_types::{IdMint, KeyId};
use axum::extract::ws::{Message, WebSocket};
use axum::extract::{MatchedPath, Request, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::middleware::Next;
use axum::response::Response;
use futures_util::{SinkExt, StreamExt};
use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;

/// What a session needs.
const SESSION: AccessRequirement = AccessRequirement::Scope(Scope::Realtime);
/// Time for a rejected client to read the reason.
const TURNING_AWAY: Duration = Duration::from_secs(2);

/// Why a request is rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::server) enum Refusal {
    /// The request carries no key.
    Missing,
    /// The key is unknown or has expired.
    Wrong,
    /// The key is wrong, and too many wrong keys came from the client's address; retry after this time.
    Throttled(Duration),
    /// This key is valid, and lacks this scope.
    Scope(Scope, Option<KeyId>),
}

impl Refusal {
    fn code(self) -> Option<&'static str> {
        match self {
            Self::Missing => None,
            Self::Wrong => Some("invalid_api_key"),
            Self::Throttled(_) => Some("rate_limit_exceeded"),
            Self::Scope(..) => Some("insufficient_scope"),
        }
    }

    fn message(self) -> Cow<'static, str> {
        let message = match self {
            Self::Missing => {
                "You didn't provide an API key. Send it in an Authorization header ('Authorization: Bearer YOUR_KEY')."
            }
            Self::Wrong => "Incorrect API key provided, or it has expired.",
            Self::Throttled(_) => "Too many incorrect API keys from your address. Try again later.",
            Self::Scope(scope, _) => {
                let name = scope.name();
                return format!("Your API key may not do this: it needs the scope '{name}'.").into();
            }
        };
        message.into()
    }

    /// Status and reason for the security log.
    fn logged(self) -> (u16, &'static str) {
        match self {
            Self::Missing => (401, "no key"),
            Self::Wrong => (401, "wrong key"),
            Self::Throttled(_) => (429, "too many wrong keys"),
            Self::Scope(..) => (403, "insufficient scope"),
        }
    }

    /// The WebSocket close reason.
    fn reason(self) -> &'static str {
        match self {
            Self::Missing => "invalid_request_error",
            Self::Wrong => "invalid_request_error.invalid_api_key",
            Self::Throttled(_) => "invalid_request_error.rate_limit_exceeded",
            Self::Scope(..) => "invalid_request_error.insufficient_scope",
        }
    }
}

/// The error event and close frame that a rejected client receives after the upgrade.
pub(in crate::server) struct TurnedAway {
    /// The only event that is sent.
    pub(in crate::server) error: WireError,
    /// The WebSocket close code.
    pub(in crate::server) close: u16,
    /// The WebSocket close reason.
    pub(in crate::server) reason: &'static str,
}

impl From<Refusal> for TurnedAway {
    fn from(refusal: Refusal) -> Self {
        let error = WireError::invalid(refusal.code(), refusal.message(), None);
        Self { error, close: 3000, reason: refusal.reason() }
    }
}

/// Middleware: responds with 401 or 429 in the OpenAI error format, or passes the request on.
pub(in crate::server) async fn check(
    State(access): State<Arc<AccessParts>>,
    mut request: Request,
    next: Next,
) -> Response {
    let client = client_of(&request);
    if !access.keys.current().are_on() {
        request.extensions_mut().insert(Identity { owner: None, viewer: Viewer::All, scopes: Scopes::ALL });
        return next.run(request).await;
    }
    if is_open(request.method(), request.uri().path()) {
        return next.run(request).await;
    }
    let route = request.extensions().get::<MatchedPath>().map(MatchedPath::as_str);
    let needed = scopes::needed(request.method(), route);
    match identified(&access, client, credentials_of(request.headers()).as_deref(), needed) {
        Ok(identity) => {
            request.extensions_mut().insert(identity);
            next.run(request).await
        }
        Err(refusal) => {
            log(&access, client, request.uri().path(), refusal);
            unauthorized(client, &request, refusal)
        }
    }
}

/// The identity of a configured key that has what is needed. A wrong key is counted against the client's address; a right one
/// passes, whatever others at that address have sent.
fn identified(
    access: &AccessParts,
    client: Client,
    key: Option<&str>,
    needed: AccessRequirement,
) -> Result<Identity, Refusal> {
    let key = key.ok_or(Refusal::Missing)?;
    let keys = access.keys.current();
    let Some(Grant { id: owner, scopes }) = keys.grant(key) else { return Err(wrong(access, client)) };
    scopes.allow(needed).map_err(|scope| Refusal::Scope(scope, Some(owner)))?;
    let viewer = if scopes.has(Scope::Admin) { Viewer::All } else { Viewer::Key(owner) };
    Ok(Identity { owner: Some(owner), viewer, scopes })
}

/// The refusal of a wrong key, which is counted against the client's address.
fn wrong(access: &AccessParts, client: Client) -> Refusal {
    match access.attempts.failed(client.network()) {
        Ok(()) => Refusal::Wrong,
        Err(wait) => Refusal::Throttled(wait),
    }
}

/// Whose configured or short-lived key a request has in its headers, for its limits; `None`: none. Grants nothing.
pub(in crate::server) fn known_owner(access: &AccessParts, headers: &HeaderMap) -> Option<KeyId> {
    let key = credentials_of(headers)?;
    match access.keys.current().grant(&key) {
        Some(grant) => Some(grant.id),
        None => access.ephemeral_keys.find(&key)?.owner,
    }
}

/// Writes a rejection to the security log.
pub(in crate::server) fn log(access: &AccessParts, client: Client, route: &str, refusal: Refusal) {
    let (status, reason) = refusal.logged();
    let owner = if let Refusal::Scope(_, owner) = refusal { owner } else { None };
    let consumer = owner.map(|owner| access.limits.consumer(Some(owner), client));
    let act = Act { client, owner, name: consumer.as_ref().map(Consumer::name), target: route };
    access.security.refused_act(act, status, reason);
}

fn client_of(request: &Request) -> Client {
    *request.extensions().get::<Client>().expect("the guard is the first to see a request")
}

/// The 429 response to an address that sent too many wrong keys.
pub(in crate::server) fn throttled(wait: Duration) -> Response {
    let refusal = Refusal::Throttled(wait);
    let mut response = refused(StatusCode::TOO_MANY_REQUESTS, refusal.code(), refusal.message());
    response.headers_mut().insert(header::RETRY_AFTER, seconds(wait));
    response
}

/// The response to a call of a client whose key may not open sessions.
pub(in crate::server) fn unauthorized_call(refusal: Refusal) -> Response {
    match refusal {
        Refusal::Throttled(wait) => throttled(wait),
        Refusal::Scope(..) => refused(StatusCode::FORBIDDEN, refusal.code(), refusal.message()),
        Refusal::Missing | Refusal::Wrong => refused(StatusCode::UNAUTHORIZED, refusal.code(), refusal.message()),
    }
}

/// The 401 response. For the dashboard in a browser, its body is the dashboard page: the page contains no data, prompts
/// for the key itself and reuses the key entered in the voice chat of the same tab, which a browser's own Basic prompt
/// would prevent. Other clients of the dashboard get a Basic challenge, and every other route a Bearer challenge.
fn unauthorized(client: Client, request: &Request, refusal: Refusal) -> Response {
    if let Refusal::Throttled(wait) = refusal {
        return throttled(wait);
    }
    if let Refusal::Scope(..) = refusal {
        return refused(StatusCode::FORBIDDEN, refusal.code(), refusal.message());
    }
    let path = request.uri().path();
    let headers = request.headers();
    let page = if is_dashboard(path) && takes_html(headers) { pages::file(path, client, headers) } else { None };
    let challenge = match &page {
        None if is_dashboard(path) => "Basic realm=\"Antiphon: the key is the password\"",
        _ => "Bearer",
    };
    let mut response = page.unwrap_or_else(|| refused(StatusCode::UNAUTHORIZED, refusal.code(), refusal.message()));
    *response.status_mut() = StatusCode::UNAUTHORIZED;
    // The tag is that of the page as a caller with a key gets it.
    response.headers_mut().remove(header::ETAG);
    response.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static(challenge));
    response
}

fn takes_html(headers: &HeaderMap) -> bool {
    headers
        .get(header::ACCEPT)
        .and_then(|accept| accept.to_str().ok())
        .is_some_and(|accept| accept.contains("text/html"))
}

/// Authenticates a WebSocket request. A wrong key is counted against the client's address.
pub(in crate::server) fn caller(access: &AccessParts, client: Client, headers: &HeaderMap) -> Result<Caller, Refusal> {
    let key = presented(headers);
    // A client secret carries session settings, so it must be valid even if the hub has no keys.
    if let Some(key) = key.as_deref().filter(|key| key.starts_with(keys::EPHEMERAL)) {
        let granted = access.ephemeral_keys.find(key).filter(|granted| access.keys.is_valid(granted.owner));
        let granted = granted.ok_or_else(|| wrong(access, client))?;
        let scopes = granted.owner.and_then(|owner| access.keys.current().scopes_of(owner)).unwrap_or(Scopes::ALL);
        scopes.allow(SESSION).map_err(|scope| Refusal::Scope(scope, granted.owner))?;
        return Ok(Caller { language: preferred_language(headers), ..granted });
    }
    if !access.keys.current().are_on() {
        let language = preferred_language(headers);
        return Ok(Caller { owner: None, settings: None, credential: Credential::Key, language });
    }
    let Identity { owner, .. } = identified(access, client, key.as_deref(), SESSION)?;
    Ok(Caller { owner, settings: None, credential: Credential::Key, language: preferred_language(headers) })
}

/// Sends one error event to an upgraded client and closes the connection, as the protocol does for a bad key.
pub(in crate::server) async fn turn_away(socket: WebSocket, why: TurnedAway) {
    let event =
        antiphon_protocol::encode(&ServerEvent::Error { error: why.error }, &IdMint::new(rand::random()).next("event"));
    let (mut sink, mut stream) = socket.split();
    let _ = timeout(TURNING_AWAY, sink.send(Message::Text(event.into()))).await;
    finish(&mut sink, &mut stream, Some(close(why.close, why.reason))).await;
}

/// Looks for the short-lived key of these headers where another hub made it and this one does not know it: then
/// [`caller`] finds it. Waits for JetStream, 5 s at most.
pub(in crate::server) async fn fetch_ephemeral_key(access: &AccessParts, client: Client, headers: &HeaderMap) {
    let Some(key) = presented(headers).filter(|key| key.starts_with(keys::EPHEMERAL)) else { return };
    // It costs more than a comparison.
    if access.attempts.check(client.network()).is_ok() {
        access.ephemeral_keys.fetch(&key, access.keys.current().n_keys()).await;
    }
}
