//! Who may use the server: the key a request carries, and what it opens.
//!
//! [`check`] guards everything but the static page, the health probes and the socket, which answers a bad key after the
//! upgrade, as the protocol has it: see [`turn_away`]. A key comes by `Authorization`, or, from a browser's WebSocket, which
//! can set no header, by the subprotocol `openai-insecure-api-key.<key>`; never by the address, which ends up in logs.

use super::app::App;
use super::guard::refused;
use super::pages;
use super::secrets::PREFIX;
use crate::units::IdMint;
use crate::wire::{self, ServerEvent, SessionUpdate, WireError};
use axum::extract::ws::{CloseFrame, Message, WebSocket};
use axum::extract::{Request, State};
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

/// Whom a right key stands for.
#[derive(Debug, PartialEq)]
pub(super) enum Caller {
    /// Somebody with a key of the configuration's, or anybody where there are none.
    Trusted,
    /// Somebody with a short-lived key, and the settings it is bound to.
    Guest(Option<Arc<SessionUpdate>>),
}

/// Why a request is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    /// There is no key.
    Missing,
    /// It is unknown, or has expired.
    Wrong,
}

impl Refusal {
    fn code(self) -> Option<&'static str> {
        match self {
            Self::Missing => None,
            Self::Wrong => Some("invalid_api_key"),
        }
    }

    fn message(self) -> &'static str {
        match self {
            Self::Missing => {
                "You didn't provide an API key. Send it in an Authorization header ('Authorization: Bearer YOUR_KEY')."
            }
            Self::Wrong => "Incorrect API key provided, or it has expired.",
        }
    }

    /// The close reason of the protocol.
    fn reason(self) -> &'static str {
        match self {
            Self::Missing => "invalid_request_error",
            Self::Wrong => "invalid_request_error.invalid_api_key",
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

/// The middleware: a 401 in the shape of the OpenAI API, or on with it.
pub(super) async fn check(State(app): State<Arc<App>>, request: Request, next: Next) -> Response {
    if !app.keys.are_on() || is_open(request.method(), request.uri().path()) {
        return next.run(request).await;
    }
    let refusal = match credentials_of(request.headers()) {
        Some(key) if app.keys.hold(&key) => return next.run(request).await,
        Some(_) => Refusal::Wrong,
        None => Refusal::Missing,
    };
    unauthorized(&request, refusal)
}

/// The 401. Somebody who opens the dashboard in a browser gets the page with it, which holds nothing by itself, asks for
/// the key in its own words, and takes the one the voice chat got in the same tab: a browser's own prompt would stand
/// before all that. Other programs are asked for the password of the dashboard, and of nothing else.
fn unauthorized(request: &Request, refusal: Refusal) -> Response {
    let path = request.uri().path();
    let page = if is_dashboard(path) && takes_html(request.headers()) { pages::file(path) } else { None };
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

/// Whom the key of a WebSocket's request stands for.
pub(super) fn caller(app: &App, headers: &HeaderMap) -> Result<Caller, Refusal> {
    match presented(headers) {
        // A short-lived key means its settings, so it must be right where others need not be.
        Some(key) if key.starts_with(PREFIX) => app.secrets.find(&key).map(Caller::Guest).ok_or(Refusal::Wrong),
        _ if !app.keys.are_on() => Ok(Caller::Trusted),
        Some(key) if app.keys.hold(&key) => Ok(Caller::Trusted),
        Some(_) => Err(Refusal::Wrong),
        None => Err(Refusal::Missing),
    }
}

/// The key a WebSocket's request carries.
pub(super) fn presented(headers: &HeaderMap) -> Option<String> {
    bearer(headers).or_else(|| subprotocol(headers))
}

/// Tells a connected client what is wrong and closes, as the protocol does with a bad key: one error event, then the close.
pub(super) async fn turn_away(mut socket: WebSocket, why: TurnedAway) {
    let event = wire::encode(&ServerEvent::Error { error: why.error }, &IdMint::new(rand::random()).next("event"));
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

/// What needs no key: probes, the files of the page, and the socket, which has its own answer.
fn is_open(method: &Method, path: &str) -> bool {
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
