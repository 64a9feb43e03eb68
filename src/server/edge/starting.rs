//! Serves clients while the engines are being loaded: the page, which reports it, and 503 responses with Retry-After.
//!
//! [`crate::server::serve_loading`] listens with [`StartingServer::router`] immediately, and installs the hub's own routes
//! once the engines are loaded. This module loads nothing, and serves nothing that needs a key. The probe listener has
//! [a `StartingServer` of its own](StartingServer::probes), without the page.

use super::client::{Client, Peer, Proxies};
use super::cors;
use super::headers::{Certificate, SecurityHeaders, is_local};
use super::open_routes::is_open;
use super::origin::{FOREIGN_ORIGIN, one_host, verdict};
use super::pages;
use super::probes::alive;
use super::refusal::refused;
use crate::config::ServerConfig;
use axum::Router;
use axum::extract::{Request, State};
use axum::http::{HeaderValue, Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::json;
use std::net::Ipv4Addr;
use std::sync::{Arc, OnceLock};
use tower::ServiceExt;

/// Delay before an early client may retry: loading takes about a second.
const RETRY_AFTER_SECONDS: &str = "1";

/// Why a server that has loaded its engines does not serve yet: it waits for workers. Whoever loads sets it.
#[derive(Clone, Default)]
pub struct WaitsFor(Arc<OnceLock<Box<Reason>>>);

type Reason = dyn Fn() -> Option<String> + Send + Sync;

impl WaitsFor {
    /// From now on `reason` says why, in words for the operator; only the first call counts.
    pub fn set(&self, reason: impl Fn() -> Option<String> + Send + Sync + 'static) {
        let _ = self.0.set(Box::new(reason));
    }

    fn reason(&self) -> Option<String> {
        self.0.get()?()
    }
}

/// A server whose engines are being loaded.
pub(in crate::server) struct StartingServer {
    /// The hub's own routes, once the engines are loaded.
    loaded: OnceLock<Router>,
    /// `None`: this is the probe listener, which answers probes only, to any host.
    page: Option<Router>,
    config: ServerConfig,
    proxies: Proxies,
    headers: SecurityHeaders,
    tls: Certificate,
    waits_for: WaitsFor,
}

impl StartingServer {
    pub(in crate::server) fn new(config: &ServerConfig, tls: Certificate, waits_for: WaitsFor) -> Arc<Self> {
        Self::of(config, tls, waits_for, Some(pages::router()))
    }

    /// The same for the probe listener.
    pub(in crate::server) fn probes(config: &ServerConfig, waits_for: WaitsFor) -> Arc<Self> {
        Self::of(config, None, waits_for, None)
    }

    fn of(config: &ServerConfig, tls: Certificate, waits_for: WaitsFor, page: Option<Router>) -> Arc<Self> {
        let headers = SecurityHeaders::new(config);
        let proxies = Proxies::new(config);
        Arc::new(Self { loaded: OnceLock::new(), page, config: config.clone(), proxies, headers, tls, waits_for })
    }

    /// A router that responds by itself until [`StartingServer::open`].
    pub(in crate::server) fn router(self: &Arc<Self>) -> Router {
        Router::new().fallback(answer).with_state(self.clone())
    }

    /// Installs the hub's routes; they serve all subsequent requests.
    pub(in crate::server) fn open(&self, loaded: Router) {
        // It is called only once.
        let _ = self.loaded.set(loaded);
    }

    async fn answer(&self, request: Request) -> Response {
        if let Some(page) = &self.page {
            return self.answer_client(page, request).await;
        }
        let path = request.uri().path();
        match self.answer_probe(path).await {
            Some(response) => response,
            None if path == "/metrics" => self.not_yet(),
            None => StatusCode::NOT_FOUND.into_response(),
        }
    }

    /// Answers on the hub's own port, which checks Host and Origin.
    async fn answer_client(&self, page: &Router, mut request: Request) -> Response {
        let peer = request.extensions().get::<Peer>().map_or(Ipv4Addr::UNSPECIFIED.into(), |peer| peer.0.ip());
        let client = Client::of(peer, request.headers(), &self.proxies, self.tls.is_some());
        if let Err(response) = one_host(request.headers()) {
            return *response;
        }
        let uri = request.uri();
        match verdict(&self.config, request.headers(), uri.host(), client.is_secure) {
            Ok(()) => {}
            Err((FOREIGN_ORIGIN, _)) if cors::is_public(&request) => {}
            Err((_, message)) => return refused(StatusCode::FORBIDDEN, "forbidden", message),
        }
        let reader = cors::reader(&request);
        if reader.is_some() && request.method() == Method::OPTIONS {
            return shared(reader, cors::preflight(&request));
        }
        let path = request.uri().path();
        let is_of_page = path != "/v1/realtime" && is_open(request.method(), path);
        let response = match self.answer_probe(path).await {
            Some(response) => response,
            None if is_of_page => {
                request.extensions_mut().insert(client);
                page.clone().oneshot(request).await.into_response()
            }
            None => self.not_yet(),
        };
        shared(reader, response)
    }

    /// The answer to a probe; `None`: there is none of this path.
    async fn answer_probe(&self, path: &str) -> Option<Response> {
        match path {
            "/healthz" => Some(alive().await.into_response()),
            "/readyz" => {
                let mut body = json!({
                    "ready": false, "loading": true, "sessions": 0, "max_sessions": self.config.max_sessions, "engines": {},
                });
                if let Some(reason) = self.waits_for.reason() {
                    body["reason"] = reason.into();
                }
                Some((StatusCode::SERVICE_UNAVAILABLE, axum::Json(body)).into_response())
            }
            _ => None,
        }
    }

    fn not_yet(&self) -> Response {
        let reason = self.waits_for.reason();
        let reason = reason.as_deref().unwrap_or("its engines are being loaded");
        let message = format!("The hub is starting: {reason}. Try again in a moment.");
        let mut response = refused(StatusCode::SERVICE_UNAVAILABLE, "server_starting", &message);
        response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static(RETRY_AFTER_SECONDS));
        response
    }
}

/// Lets the page read the response.
fn shared(page: Option<HeaderValue>, mut response: Response) -> Response {
    if let Some(origin) = page {
        cors::share_with(&origin, response.headers_mut());
    }
    response
}

async fn answer(State(starting): State<Arc<StartingServer>>, request: Request) -> Response {
    if let Some(router) = starting.loaded.get() {
        return router.clone().oneshot(request).await.into_response();
    }
    let is_local = is_local(&request);
    let response = starting.answer(request).await;
    starting.headers.seal(response, starting.tls.as_deref(), is_local)
}
