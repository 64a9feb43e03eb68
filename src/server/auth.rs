//! Who may use the server: the key a request carries, and what it opens.
//!
//! [`check`] guards everything but the static page, the health probes and the socket, which answers a bad key after the
//! upgrade, as the protocol has it: see [`turn_away`]. A key comes by `Authorization`, or, from a browser's WebSocket, which
//! can set no header, by the subprotocol `openai-insecure-api-key.<key>`; never by the address, which ends up in logs.

use super::app::App;
use super::client::Client;
use super::guard::refused;
use super::pages;
use super::secrets::PREFIX;
use antiphon_protocol::{ServerEvent, SessionUpdate, WireError};
use antiphon_session::Viewer;
use antiphon_types::{IdMint, KeyId};
use axum::extract::ws::{CloseFrame, Message, WebSocket};
use axum::extract::{FromRequestParts, Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::Response;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;

/// The subprotocol that carries a browser's key.
const SUBPROTOCOL_KEY: &str = "openai-insecure-api-key.";
/// How long a client that is turned away may take to read why.
const TURNING_AWAY: Duration = Duration::from_secs(2);

/// Whom the key of a WebSocket's request stands for.
#[derive(Debug, PartialEq)]
pub(super) struct Caller {
    /// The API key, of a short-lived key the one that made it; `None` where the hub has no keys.
    pub(super) owner: Option<KeyId>,
    /// What a short-lived key is bound to.
    pub(super) settings: Option<Arc<SessionUpdate>>,
}

/// Who makes a request that is no WebSocket's; [`check`] puts it into the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Identity {
    /// The API key; `None` where the hub has no keys.
    pub(super) owner: Option<KeyId>,
    /// Whose turns and jobs it may see: its own, with an admin's key or where there are no keys everybody's.
    pub(super) viewer: Viewer,
}

/// Why a request is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    /// There is no key.
    Missing,
    /// It is unknown, or has expired.
    Wrong,
    /// Too many wrong keys came from that address; it may try again after this time.
    Throttled(Duration),
}

impl Refusal {
    fn code(self) -> Option<&'static str> {
        match self {
            Self::Missing => None,
            Self::Wrong => Some("invalid_api_key"),
            Self::Throttled(_) => Some("rate_limit_exceeded"),
        }
    }

    fn message(self) -> &'static str {
        match self {
            Self::Missing => {
                "You didn't provide an API key. Send it in an Authorization header ('Authorization: Bearer YOUR_KEY')."
            }
            Self::Wrong => "Incorrect API key provided, or it has expired.",
            Self::Throttled(_) => "Too many incorrect API keys came from your address. Try again later.",
        }
    }

    /// The words for the log of security events.
    fn logged(self) -> (u16, &'static str) {
        match self {
            Self::Missing => (401, "no key"),
            Self::Wrong => (401, "wrong key"),
            Self::Throttled(_) => (429, "too many wrong keys"),
        }
    }

    /// The close reason of the protocol.
    fn reason(self) -> &'static str {
        match self {
            Self::Missing => "invalid_request_error",
            Self::Wrong => "invalid_request_error.invalid_api_key",
            Self::Throttled(_) => "invalid_request_error.rate_limit_exceeded",
        }
    }
}

/// What a connected client is told before it is closed.
pub(super) struct TurnedAway {
    /// The one event it gets.
    pub(super) error: WireError,
    /// The close code.
    pub(super) close: u16,
    /// And its reason.
    pub(super) reason: &'static str,
}

impl From<Refusal> for TurnedAway {
    fn from(refusal: Refusal) -> Self {
        let error = WireError::invalid(refusal.code(), refusal.message(), None);
        Self { error, close: 3000, reason: refusal.reason() }
    }
}

/// The middleware: a 401 or 429 in the shape of the OpenAI API, or on with it.
pub(super) async fn check(State(app): State<Arc<App>>, mut request: Request, next: Next) -> Response {
    let client = client_of(&request);
    if !app.access.keys().are_on() {
        request.extensions_mut().insert(Identity { owner: None, viewer: Viewer::All });
        return next.run(request).await;
    }
    if is_open(request.method(), request.uri().path()) {
        return next.run(request).await;
    }
    match identified(&app, client, credentials_of(request.headers()).as_deref()) {
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

/// Whom a key of the configuration's stands for. A wrong one is counted against the client's address.
fn identified(app: &App, client: Client, key: Option<&str>) -> Result<Identity, Refusal> {
    let key = key.ok_or(Refusal::Missing)?;
    app.attempts.check(client.network()).map_err(Refusal::Throttled)?;
    let keys = app.access.keys();
    let Some(owner) = keys.find(key) else {
        app.attempts.failed(client.network());
        return Err(Refusal::Wrong);
    };
    let viewer = if keys.hold_admin(key) { Viewer::All } else { Viewer::Key(owner) };
    Ok(Identity { owner: Some(owner), viewer })
}

/// Writes a refusal into the log of security events.
pub(super) fn log(app: &App, client: Client, route: &str, refusal: Refusal) {
    let (status, reason) = refusal.logged();
    app.security.refused(client, route, status, reason);
}

fn client_of(request: &Request) -> Client {
    *request.extensions().get::<Client>().expect("the guard is the first to see a request")
}

/// The 429 of an address that sent too many wrong keys.
pub(super) fn throttled(wait: Duration) -> Response {
    let refusal = Refusal::Throttled(wait);
    let mut response = refused(StatusCode::TOO_MANY_REQUESTS, refusal.code(), refusal.message());
    response.headers_mut().insert(header::RETRY_AFTER, seconds(wait));
    response
}

/// For `Retry-After`: whole seconds, at least one.
pub(super) fn seconds(wait: Duration) -> HeaderValue {
    HeaderValue::from(wait.as_millis().div_ceil(1_000).clamp(1, u128::from(u32::MAX)) as u64)
}

/// The 401. Somebody who opens the dashboard in a browser gets the page with it, which holds nothing by itself, asks for
/// the key in its own words, and takes the one the voice chat got in the same tab: a browser's own prompt would stand
/// before all that. Other programs are asked for the password of the dashboard, and of nothing else.
fn unauthorized(client: Client, request: &Request, refusal: Refusal) -> Response {
    if let Refusal::Throttled(wait) = refusal {
        return throttled(wait);
    }
    let (path, headers) = (request.uri().path(), request.headers());
    let page = if is_dashboard(path) && takes_html(headers) { pages::file(path, client, headers) } else { None };
    let challenge = match &page {
        None if is_dashboard(path) => "Basic realm=\"Antiphon: the key is the password\"",
        _ => "Bearer",
    };
    let mut response = page.unwrap_or_else(|| refused(StatusCode::UNAUTHORIZED, refusal.code(), refusal.message()));
    *response.status_mut() = StatusCode::UNAUTHORIZED;
    response.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static(challenge));
    response
}

fn takes_html(headers: &HeaderMap) -> bool {
    headers
        .get(header::ACCEPT)
        .and_then(|accept| accept.to_str().ok())
        .is_some_and(|accept| accept.contains("text/html"))
}

/// Whom the key of a WebSocket's request stands for. A wrong one is counted against the client's address.
pub(super) fn caller(app: &App, client: Client, headers: &HeaderMap) -> Result<Caller, Refusal> {
    let key = presented(headers);
    // A short-lived key means its settings, so it must be right where others need not be.
    if let Some(key) = key.as_deref().filter(|key| key.starts_with(PREFIX)) {
        app.attempts.check(client.network()).map_err(Refusal::Throttled)?;
        let granted = app.secrets.find(key).filter(|granted| app.access.is_valid(granted.owner));
        return granted.ok_or_else(|| {
            app.attempts.failed(client.network());
            Refusal::Wrong
        });
    }
    if !app.access.keys().are_on() {
        return Ok(Caller { owner: None, settings: None });
    }
    identified(app, client, key.as_deref()).map(|identity| Caller { owner: identity.owner, settings: None })
}

/// The key a WebSocket's request carries.
pub(super) fn presented(headers: &HeaderMap) -> Option<String> {
    bearer(headers).or_else(|| subprotocol(headers))
}

/// Tells a connected client what is wrong and closes, as the protocol does with a bad key: one error event, then the close.
pub(super) async fn turn_away(mut socket: WebSocket, why: TurnedAway) {
    let event =
        antiphon_protocol::encode(&ServerEvent::Error { error: why.error }, &IdMint::new(rand::random()).next("event"));
    let close = CloseFrame { code: why.close, reason: why.reason.into() };
    let words = async {
        socket.send(Message::Text(event.into())).await.ok()?;
        socket.send(Message::Close(Some(close))).await.ok()?;
        // The library awaits the other side's close while it is read.
        while let Some(Ok(_)) = socket.recv().await {}
        Some(())
    };
    let _ = timeout(TURNING_AWAY, words).await;
}

impl<S: Send + Sync> FromRequestParts<S> for Identity {
    type Rejection = std::convert::Infallible;

    /// Behind [`check`] there always is one; nobody sees nothing.
    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Self::Rejection> {
        let nobody = Self { owner: None, viewer: Viewer::Nobody };
        Ok(parts.extensions.get::<Self>().copied().unwrap_or(nobody))
    }
}

/// What needs no key: probes, the files of the page, and the socket, which has its own answer.
pub(super) fn is_open(method: &Method, path: &str) -> bool {
    let is_page = || super::assets::asset(path.trim_start_matches('/')).is_some() && !is_dashboard(path);
    let reads = method == Method::GET || method == Method::HEAD;
    reads && (matches!(path, "/healthz" | "/readyz" | "/v1/realtime") || is_page())
}

fn is_dashboard(path: &str) -> bool {
    path.starts_with("/dashboard")
}

/// The key of a request that is no WebSocket's.
pub(super) fn credentials_of(headers: &HeaderMap) -> Option<String> {
    bearer(headers).or_else(|| password(headers))
}

fn bearer(headers: &HeaderMap) -> Option<String> {
    credentials(headers, "bearer")
}

/// The password of HTTP Basic, with any name: what a browser sends once somebody typed it.
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
