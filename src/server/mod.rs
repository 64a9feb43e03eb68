//! The server: routes, admission, who may connect, and shutdown.
//!
//! `cli` calls [`serve`] with a bound listener and loaded engines; tests and benchmarks call it with fakes. A WebSocket
//! connection becomes a [`crate::session`]; this module moves bytes between the two and decides nothing about the
//! dialog.

mod accepting;
mod access;
mod admin;
mod app;
mod assets;
mod attempts;
mod auth;
mod client;
mod gpu;
mod guard;
mod health;
mod keys;
mod models;
mod pages;
mod places;
mod process;
mod pulse;
mod realtime;
mod reload;
mod resume;
mod seat;
mod secrets;
mod security;
mod shares;
mod socket;
mod speech;
mod state;
mod tls;
mod traces;
mod turns;
mod warming;
mod watched;
pub mod websocket;

pub use app::Parts;
pub use keys::{Keys, KeysError};
pub use reload::{Reload, Reloads};
pub use tls::{Tls, TlsError};

use accepting::Entrance;
use app::App;
use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::routing::{delete, get, post};
use places::Places;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use traces::Traces;

/// Connections of the listener for probes.
const MAX_PROBES: usize = 64;

/// How long closing handshakes and cancelled tasks may take once the time to drain is over.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// What a server may have beside its listener and its [`Parts`].
#[derive(Default)]
pub struct Extras {
    /// Serves `/healthz`, `/readyz` and `/metrics` and nothing else, by plain HTTP and without a key (`server.probe_listen`).
    pub probes: Option<TcpListener>,
    /// New keys and certificates while it serves.
    pub reloads: Option<Reloads>,
}

/// [`serve_with`] nothing else.
pub async fn serve(listener: TcpListener, parts: Parts, stop: CancellationToken) -> std::io::Result<()> {
    serve_with(listener, parts, Extras::default(), stop).await
}

/// Serves until `stop` is cancelled, then stops accepting, lets the sessions finish what they say for as long as the
/// configuration allows, closes the rest with 1001 and returns once every task has ended. Without keys it serves loopback
/// addresses only; another is an error.
pub async fn serve_with(
    listener: TcpListener,
    parts: Parts,
    extras: Extras,
    stop: CancellationToken,
) -> std::io::Result<()> {
    let address = listener.local_addr()?;
    parts.keys.allow_listening(address).map_err(std::io::Error::other)?;
    let endpoint = &parts.config.telemetry.otlp_endpoint;
    let traces = (!endpoint.is_empty()).then(|| Traces::to(endpoint)).transpose().map_err(std::io::Error::other)?;
    let app = Arc::new(App::new(parts));
    tracing::info!("listening on {}://{address}", if app.tls.is_some() { "https" } else { "http" });
    let probes = extras.probes.map(|listener| {
        let address = listener.local_addr().map_or_else(|error| error.to_string(), |address| address.to_string());
        tracing::info!("answering probes on http://{address}");
        let places = Places::new(MAX_PROBES, 0, Vec::new());
        // Probes are answered while sessions end, too.
        accepting::accept(Entrance { listener, tls: None, places }, probe_router(app.clone()), CancellationToken::new())
    });
    let beside = async {
        let probes = async {
            if let Some(probes) = probes {
                probes.await;
            }
        };
        tokio::join!(probes, reload::run(&app, extras.reloads, stop.clone()));
        std::future::pending().await
    };
    tokio::select! {
        () = serve_on(listener, app.clone(), traces, stop.clone()) => {}
        () = beside => {}
    }
    Ok(())
}

async fn serve_on(listener: TcpListener, app: Arc<App>, traces: Option<Traces>, stop: CancellationToken) {
    let (warmed, stopped) = (app.clone(), stop.clone());
    app.setup.tasks.spawn(async move {
        tokio::select! {
            () = warming::warm(&warmed.setup.engines) => {}
            () = stopped.cancelled() => {}
        }
    });
    let working = app.clone();
    app.setup.tasks.spawn(async move { working.speech.jobs.run(&working).await });
    let per_address = app.config.max_connections_per_address;
    let places = Places::new(accepting::MAX_CONNECTIONS, per_address, app.proxies.clone());
    let entrance = Entrance { listener, tls: app.tls.clone(), places };
    let served = accepting::accept(entrance, router(app.clone()), stop.clone());
    let drained = CancellationToken::new();
    let drain = async {
        stop.cancelled().await;
        app.drain().await;
        drained.cancel();
    };
    let traced = async {
        if let Some(traces) = traces {
            traces.run(&app.setup.journal, drained.clone()).await;
        }
    };
    tokio::select! {
        _ = async { tokio::join!(served, drain, traced) } => {}
        () = async { stop.cancelled().await; tokio::time::sleep(app.drain_time() + 2 * LAST_WORDS).await } => {
            tracing::warn!("some connections did not end in time");
        }
    }
}

/// What probes and Prometheus ask, for the listener of their own.
fn probe_router(app: Arc<App>) -> Router {
    Router::new()
        .route("/healthz", get(health::alive))
        .route("/readyz", get(health::ready))
        .route("/metrics", get(health::metrics))
        .with_state(app)
}

fn router(app: Arc<App>) -> Router {
    Router::new()
        .merge(speech::routes(&app))
        .route("/v1/realtime", get(realtime::upgrade).layer(axum::middleware::map_response(websocket::with_version)))
        .route(
            "/v1/realtime/client_secrets",
            post(secrets::create).layer(DefaultBodyLimit::max(secrets::MAX_BODY_BYTES)),
        )
        .route(
            "/v1/realtime/sessions",
            post(secrets::create_flat).layer(DefaultBodyLimit::max(secrets::MAX_BODY_BYTES)),
        )
        .route("/v1/audio/voices", get(health::voices))
        .route("/healthz", get(health::alive))
        .route("/readyz", get(health::ready))
        .route("/metrics", get(health::metrics))
        .route("/api/models", get(models::list))
        .route("/api/models/{name}", delete(models::delete))
        .route("/api/models/{name}/pull", get(models::progress).post(models::pull))
        .route("/api/state", get(state::state))
        .route("/api/turns", get(turns::list))
        .route("/api/turns/live", get(turns::live))
        .route("/api/turns/{id}", get(turns::one))
        .fallback(pages::page)
        // The last layer is the first to see a request.
        .layer(axum::middleware::from_fn_with_state(app.clone(), auth::check))
        .layer(axum::middleware::from_fn_with_state(app.clone(), guard::check))
        .with_state(app)
}
