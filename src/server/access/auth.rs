//! Authentication: the key of a request, and what it grants.
//!
//! [`check`] guards every route except the static page, the health probes and the socket. The socket reports a wrong
//! key after the upgrade, as the protocol requires: see [`turn_away`]. A key is sent in `Authorization`, or, by a
//! browser's WebSocket, which cannot set headers, in the subprotocol `openai-insecure-api-key.<key>`. This module reads none
//! from the URL, which appears in logs; telephony and RTVI do, whose clients can send it nowhere else.

use super::live_keys::Access;
use crate::server::app::App;
use crate::server::edge::client::Client;
use super::guard::refused;
use super::keys::Grant;
use super::limits::Consumer;
use crate::server::edge::pages;
use super::scopes::{self, Needed, Scope, Scopes};
use super::ephemeral_keys::PREFIX;
use super::security::Act;
use crate::server::sessions::socket::{close, finish};
use crate::server::transport::webrtc::signaling;
use antiphon_engine_api::tts::VoiceScope;
use antiphon_protocol::{ServerEvent, SessionUpdate, WireError};
use antiphon_session::Viewer;
use antiphon_types::{IdMint, KeyId, language_code};
use axum::extract::ws::{Message, WebSocket};
use axum::extract::{FromRequestParts, MatchedPath, Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::Response;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use futures_util::{SinkExt, StreamExt};
use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

/// Prefix of the subprotocol that carries a browser's key.
const SUBPROTOCOL_KEY: &str = "openai-insecure-api-key.";
/// What a session needs.
const SESSION: Needed = Needed::Scope(Scope::Realtime);
/// Time for a rejected client to read the reason.
const TURNING_AWAY: Duration = Duration::from_secs(2);

/// The caller of a WebSocket request.
#[derive(Debug, PartialEq)]
pub(in crate::server) struct Caller {
    /// The API key; for a client secret, the key that created it; `None` if the hub has no keys.
    pub(in crate::server) owner: Option<KeyId>,
    /// The session settings that a client secret is bound to.
    pub(in crate::server) settings: Option<Arc<SessionUpdate>>,
    /// What authenticated it.
    pub(in crate::server) credential: Credential,
    /// ISO-639-1 code of the language that its request prefers, if it names one: a browser sends the user's.
    pub(in crate::server) language: Option<&'static str>,
}

/// What authenticated a caller, and with that what ends its session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::server) enum Credential {
    /// Its API key or client secret; on a hub without keys, nothing. The session ends when a reload makes the key invalid.
    Key,
    /// Proof of a phone call: Twilio's signature, an AudioSocket UUID that has a route, or `telephony.unauthenticated`. No key
    /// stands for it, so no reload of the keys ends the session.
    Call,
}

impl Caller {
    /// A token that is cancelled when the caller may not go on.
    pub(in crate::server) fn lease(&self, access: &Access) -> CancellationToken {
        match self.credential {
            Credential::Key => access.lease(self.owner),
            Credential::Call => CancellationToken::new(),
        }
    }
}

/// The caller of an HTTP request; [`check`] adds it to the request's extensions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::server) struct Identity {
    /// The API key; `None` if the hub has no keys.
    pub(in crate::server) owner: Option<KeyId>,
    /// Whose turns and jobs it may see: its own; all, with an admin key or if the hub has no keys.
    pub(in crate::server) viewer: Viewer,
    /// What the key may do.
    pub(in crate::server) scopes: Scopes,
}

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
pub(in crate::server) async fn check(State(app): State<Arc<App>>, mut request: Request, next: Next) -> Response {
    let client = client_of(&request);
    if !app.access.keys().are_on() {
        request.extensions_mut().insert(Identity { owner: None, viewer: Viewer::All, scopes: Scopes::ALL });
        return next.run(request).await;
    }
    if is_open(request.method(), request.uri().path()) {
        return next.run(request).await;
    }
    let route = request.extensions().get::<MatchedPath>().map(MatchedPath::as_str);
    let needed = scopes::needed(request.method(), route);
    match identified(&app, client, credentials_of(request.headers()).as_deref(), needed) {
        Ok(identity) => {
            request.extensions_mut().insert(identity);
            next.run(request).await
        }
        Err(refusal) => {
            log(&app, client, request.uri().path(), refusal);
            unauthorized(client, &request, refusal)
        }
    }
}

/// The identity of a configured key that has what is needed. A wrong key is counted against the client's address; a right one
/// passes, whatever others at that address have sent.
fn identified(app: &App, client: Client, key: Option<&str>, needed: Needed) -> Result<Identity, Refusal> {
    let key = key.ok_or(Refusal::Missing)?;
    let keys = app.access.keys();
    let Some(Grant { id: owner, scopes }) = keys.grant(key) else { return Err(wrong(app, client)) };
    scopes.allow(needed).map_err(|scope| Refusal::Scope(scope, Some(owner)))?;
    let viewer = if scopes.has(Scope::Admin) { Viewer::All } else { Viewer::Key(owner) };
    Ok(Identity { owner: Some(owner), viewer, scopes })
}

/// The refusal of a wrong key, which is counted against the client's address.
fn wrong(app: &App, client: Client) -> Refusal {
    match app.attempts.failed(client.network()) {
        Ok(()) => Refusal::Wrong,
        Err(wait) => Refusal::Throttled(wait),
    }
}

/// Whose configured or short-lived key a request has in its headers, for its limits; `None`: none. Grants nothing.
pub(in crate::server) fn known_owner(app: &App, headers: &HeaderMap) -> Option<KeyId> {
    let key = credentials_of(headers)?;
    match app.access.keys().grant(&key) {
        Some(grant) => Some(grant.id),
        None => app.secrets.find(&key)?.owner,
    }
}

/// Writes a rejection to the security log.
pub(in crate::server) fn log(app: &App, client: Client, route: &str, refusal: Refusal) {
    let (status, reason) = refusal.logged();
    let owner = if let Refusal::Scope(_, owner) = refusal { owner } else { None };
    let consumer = owner.map(|owner| app.limits.consumer(Some(owner), client));
    let act = Act { client, owner, name: consumer.as_ref().map(Consumer::name), target: route };
    app.security.refused_act(act, status, reason);
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

/// The value of `Retry-After`: `wait` rounded up to seconds, at least 1.
pub(in crate::server) fn seconds(wait: Duration) -> HeaderValue {
    HeaderValue::from(wait.as_millis().div_ceil(1_000).clamp(1, u128::from(u32::MAX)) as u64)
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
pub(in crate::server) fn caller(app: &App, client: Client, headers: &HeaderMap) -> Result<Caller, Refusal> {
    let key = presented(headers);
    // A client secret carries session settings, so it must be valid even if the hub has no keys.
    if let Some(key) = key.as_deref().filter(|key| key.starts_with(PREFIX)) {
        let granted = app.secrets.find(key).filter(|granted| app.access.is_valid(granted.owner));
        let granted = granted.ok_or_else(|| wrong(app, client))?;
        let scopes = granted.owner.and_then(|owner| app.access.keys().scopes_of(owner)).unwrap_or(Scopes::ALL);
        scopes.allow(SESSION).map_err(|scope| Refusal::Scope(scope, granted.owner))?;
        return Ok(Caller { language: preferred_language(headers), ..granted });
    }
    if !app.access.keys().are_on() {
        let language = preferred_language(headers);
        return Ok(Caller { owner: None, settings: None, credential: Credential::Key, language });
    }
    let Identity { owner, .. } = identified(app, client, key.as_deref(), SESSION)?;
    Ok(Caller { owner, settings: None, credential: Credential::Key, language: preferred_language(headers) })
}

/// The language of the highest quality in `Accept-Language`, the first of several; `None` where it is unknown here.
fn preferred_language(headers: &HeaderMap) -> Option<&'static str> {
    let accepted = headers.get(header::ACCEPT_LANGUAGE)?.to_str().ok()?;
    let mut best: Option<(f32, &str)> = None;
    for range in accepted.split(',') {
        let (tag, parameters) = range.split_once(';').unwrap_or((range, ""));
        let quality = parameters.trim().strip_prefix("q=").map_or(Some(1.0), |quality| quality.parse().ok());
        let quality = quality.unwrap_or(0.0);
        if quality > best.map_or(0.0, |(best, _)| best) {
            best = Some((quality, tag));
        }
    }
    language_code(best?.1)
}

/// The key in a WebSocket request.
pub(in crate::server) fn presented(headers: &HeaderMap) -> Option<String> {
    bearer(headers).or_else(|| subprotocol(headers))
}

/// Sends one error event to an upgraded client and closes the connection, as the protocol does for a bad key.
pub(in crate::server) async fn turn_away(socket: WebSocket, why: TurnedAway) {
    let event =
        antiphon_protocol::encode(&ServerEvent::Error { error: why.error }, &IdMint::new(rand::random()).next("event"));
    let (mut sink, mut stream) = socket.split();
    let _ = timeout(TURNING_AWAY, sink.send(Message::Text(event.into()))).await;
    finish(&mut sink, &mut stream, Some(close(why.close, why.reason))).await;
}

impl Identity {
    /// Whether it may see what all keys use.
    pub(in crate::server) fn sees_all_usage(self) -> bool {
        self.viewer == Viewer::All || self.scopes.has(Scope::Metrics)
    }

    /// Whose uploaded voices it may see, use and remove.
    pub(in crate::server) fn voices(self) -> VoiceScope {
        match self.viewer {
            Viewer::All => VoiceScope::All,
            Viewer::Key(key) => VoiceScope::Key(key),
            Viewer::Nobody => VoiceScope::Nobody,
        }
    }
}

impl<S: Send + Sync> FromRequestParts<S> for Identity {
    type Rejection = std::convert::Infallible;

    /// [`check`] always sets it; without it, the caller sees nothing.
    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Self::Rejection> {
        let nobody = Self { owner: None, viewer: Viewer::Nobody, scopes: Scopes::NONE };
        Ok(parts.extensions.get::<Self>().copied().unwrap_or(nobody))
    }
}

/// Routes that need no key: probes, static page files, and the socket, the offers of calls and telephony, which authenticate by
/// themselves.
pub(in crate::server) fn is_open(method: &Method, path: &str) -> bool {
    let is_page = || crate::server::edge::assets::asset(path.trim_start_matches('/')).is_some() && !is_dashboard(path);
    let reads = method == Method::GET || method == Method::HEAD;
    let is_offer =
        method == Method::POST && matches!(path, "/v1/realtime" | "/v1/realtime/calls" | "/v1/telephony/twilio/voice");
    let is_stream = reads && path.starts_with("/v1/telephony/");
    let is_rtvi = (method == Method::POST || method == Method::PATCH) && signaling::is_rtvi_call(path);
    is_offer
        || is_rtvi
        || is_stream
        || reads && (matches!(path, "/healthz" | "/readyz" | "/v1/realtime" | "/v1/rtvi") || is_page())
}

fn is_dashboard(path: &str) -> bool {
    path.starts_with("/dashboard")
}

/// The key in an HTTP request.
pub(in crate::server) fn credentials_of(headers: &HeaderMap) -> Option<String> {
    bearer(headers).or_else(|| password(headers))
}

fn bearer(headers: &HeaderMap) -> Option<String> {
    credentials(headers, "bearer")
}

/// Whether a request carries the password of HTTP Basic, which a browser adds to requests of any page.
pub(in crate::server) fn has_password(headers: &HeaderMap) -> bool {
    credentials(headers, "basic").is_some()
}

/// The password of HTTP Basic, with any user name, as a browser sends it after its prompt.
fn password(headers: &HeaderMap) -> Option<String> {
    let decoded = STANDARD.decode(credentials(headers, "basic")?).ok()?;
    let (_, password) = std::str::from_utf8(&decoded).ok()?.split_once(':')?;
    Some(password.to_owned())
}

fn credentials(headers: &HeaderMap, wanted: &str) -> Option<String> {
    let (scheme, rest) = headers.get(header::AUTHORIZATION)?.to_str().ok()?.split_once(' ')?;
    let rest = rest.trim();
    (scheme.eq_ignore_ascii_case(wanted) && !rest.is_empty()).then(|| rest.to_owned())
}

fn subprotocol(headers: &HeaderMap) -> Option<String> {
    let offers = headers.get_all(header::SEC_WEBSOCKET_PROTOCOL).iter().filter_map(|value| value.to_str().ok());
    let key = offers.flat_map(|offer| offer.split(',')).find_map(|offer| offer.trim().strip_prefix(SUBPROTOCOL_KEY))?;
    (!key.is_empty()).then(|| key.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_page_and_the_probes_are_open() {
        let check =
            |method: Method, path: &str, open: bool| assert_eq!(is_open(&method, path), open, "{method} {path}");
        for path in ["/", "/index.html", "/healthz", "/readyz", "/v1/realtime"] {
            check(Method::GET, path, true);
        }
        for path in ["/metrics", "//metrics", "/dashboard", "/dashboard.html", "/api/turns", "/v1/audio/voices", "/no"]
        {
            check(Method::GET, path, false);
        }
        check(Method::POST, "/v1/realtime/client_secrets", false);
        check(Method::POST, "/v1/realtime/calls", true);
        check(Method::GET, "/v1/telephony/plivo/a-token", true);
        check(Method::POST, "/v1/telephony/twilio/voice", true);
        check(Method::POST, "/v1/telephony/plivo", false);
        check(Method::POST, "/v1/realtime/calls/rtc_1/hangup", false);
        check(Method::POST, "/", false);
    }

    #[test]
    fn keys_are_found_where_clients_put_them() {
        let headers = |name: header::HeaderName, value: &str| HeaderMap::from_iter([(name, value.parse().unwrap())]);
        let auth = |value: &str| headers(header::AUTHORIZATION, value);
        assert_eq!(bearer(&auth("bearer  k1 ")).as_deref(), Some("k1"));
        assert_eq!(bearer(&auth("Bearer ")), None);
        assert_eq!(bearer(&auth("Basic eDprMQ==")), None);
        assert_eq!(password(&auth("Basic eDprMQ==")).as_deref(), Some("k1"));
        assert_eq!(password(&auth("Basic ?")), None);
        let offered = |value: &str| subprotocol(&headers(header::SEC_WEBSOCKET_PROTOCOL, value));
        assert_eq!(offered("realtime, openai-insecure-api-key.k1, openai-agents-sdk.v1").as_deref(), Some("k1"));
        assert_eq!(offered("realtime"), None);
        assert_eq!(offered("realtime, openai-insecure-api-key."), None);
    }
}
