//! The listener for probes of hubs and workers: plain HTTP, without a key; and what both answer on it.
//!
//! [`crate::server::serve_loading`] and [`crate::server::worker_probes`] run it. It knows no engine and no session:
//! their routers say what is ready.

use super::accepting::{Entrance, accept};
use super::connection_slots::ConnectionSlots;
use super::headers::SecurityHeaders;
use crate::config::ServerConfig;
use axum::Router;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use std::sync::Arc;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

/// Maximum concurrent connections of the probe listener.
const MAX_PROBES: usize = 64;

/// The media type of Prometheus' text format.
pub(in crate::server) const METRICS_TYPE: &str = "text/plain; version=0.0.4";

/// Answers probes while it is polled, also during the drain.
pub(in crate::server) async fn serve(listener: Option<TcpListener>, router: Router) {
    let Some(listener) = listener else { return std::future::pending().await };
    let address = listener.local_addr().map_or_else(|error| error.to_string(), |address| address.to_string());
    tracing::info!("answering probes on http://{address}");
    let places = ConnectionSlots::new(MAX_PROBES, 0, Vec::new());
    accept(Entrance { listener, tls: None, places }, router, CancellationToken::new()).await;
}

/// Adds the security headers to every response of a probe listener, which serves plain HTTP.
pub(in crate::server) fn sealed(router: Router, config: &ServerConfig) -> Router {
    let headers = Arc::new(SecurityHeaders::new(config));
    router.layer(axum::middleware::map_response(move |response| {
        let headers = headers.clone();
        async move { headers.seal(response, None, false) }
    }))
}

/// `GET /healthz`: liveness; always 200.
pub(in crate::server) async fn alive() -> &'static str {
    "ok\n"
}

/// Metrics in Prometheus' text format.
pub(in crate::server) fn exposition(text: String) -> Response {
    ([(header::CONTENT_TYPE, METRICS_TYPE)], text).into_response()
}
