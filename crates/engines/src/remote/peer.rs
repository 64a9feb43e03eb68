//! A WebSocket server on loopback, as a test scripts it.
#![allow(clippy::disallowed_methods)]

use axum::Router;
use axum::extract::ws::{WebSocket, WebSocketUpgrade};
use axum::http::{HeaderMap, Uri};
use axum::routing::any;
use std::sync::{Arc, Mutex};

/// What the server was asked for at the upgrade.
pub(crate) type Upgrades = Arc<Mutex<Vec<(Uri, HeaderMap)>>>;

/// A server that gives each connection to `script`; its address.
pub(crate) async fn serve<F: Future<Output = ()> + Send + 'static>(
    script: impl Fn(WebSocket) -> F + Clone + Send + Sync + 'static,
) -> (String, Upgrades) {
    let upgrades = Upgrades::default();
    let seen = upgrades.clone();
    let answer = async move |upgrade: WebSocketUpgrade, uri: Uri, headers: HeaderMap| {
        seen.lock().expect("no panic while locked").push((uri, headers));
        upgrade.on_upgrade(script)
    };
    let app = Router::new().fallback(any(answer));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = listener.local_addr().expect("bound");
    tokio::spawn(async move { axum::serve(listener, app).await.expect("it serves") });
    (format!("http://{address}"), upgrades)
}

/// A server that answers the upgrade with this status.
pub(crate) async fn refuse(status: u16) -> (String, Upgrades) {
    let status = axum::http::StatusCode::from_u16(status).expect("a status");
    let app = Router::new().fallback(any(async move || status));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = listener.local_addr().expect("bound");
    tokio::spawn(async move { axum::serve(listener, app).await.expect("it serves") });
    (format!("http://{address}"), Upgrades::default())
}
