//! The server: routes, admission, who may connect, and shutdown.
//!
//! `cli` calls [`serve`] with a bound listener and loaded engines; tests and benchmarks call it with fakes. A WebSocket
//! connection becomes a [`crate::session`]; this module moves bytes between the two and decides nothing about the
//! dialog.

mod accepting;
mod admin;
mod app;
mod assets;
mod auth;
mod gpu;
mod guard;
mod health;
mod inflow;
mod keys;
mod models;
mod pages;
mod process;
mod pulse;
mod realtime;
mod resume;
mod seat;
mod secrets;
mod socket;
mod speech;
mod state;
mod tls;
mod traces;
mod turns;
mod unfinished;
mod warming;
pub mod websocket;

pub use app::Parts;
pub use keys::{Keys, KeysError};
pub use tls::{Tls, TlsError};

use app::App;
use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::routing::{delete, get, post};
use axum::serve::{Listener, ListenerExt};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;
use traces::Traces;

/// How long closing handshakes and cancelled tasks may take once the time to drain is over.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// Serves until `stop` is cancelled, then stops accepting, lets the sessions finish what they say for as long as the
/// configuration allows, closes the rest with 1001 and returns once every task has ended. Without keys it serves loopback
/// addresses only; another is an error.
pub async fn serve(listener: TcpListener, mut parts: Parts, stop: CancellationToken) -> std::io::Result<()> {
    let address = listener.local_addr()?;
    parts.keys.allow_listening(address).map_err(std::io::Error::other)?;
    let tls = parts.tls.take();
    let endpoint = &parts.config.telemetry.otlp_endpoint;
    let traces = (!endpoint.is_empty()).then(|| Traces::to(endpoint)).transpose().map_err(std::io::Error::other)?;
    let app = Arc::new(App::new(parts));
    match tls {
        Some(tls) => {
            tracing::info!("listening on https://{address}");
            serve_on(tls.listen(listener), app, traces, stop).await;
        }
        None => {
            tracing::info!("listening on http://{address}");
            serve_on(listener.tap_io(|stream| without_delay(stream)), app, traces, stop).await;
        }
    }
    Ok(())
}

/// Small messages must not wait for an acknowledgement of the last one (Nagle).
fn without_delay(stream: &TcpStream) {
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "a connection without TCP_NODELAY");
    }
}

async fn serve_on<L>(listener: L, app: Arc<App>, traces: Option<Traces>, stop: CancellationToken)
where
    L: Listener<Addr = SocketAddr>,
{
    let (warmed, stopped) = (app.clone(), stop.clone());
    app.setup.tasks.spawn(async move {
        tokio::select! {
            () = warming::warm(&warmed.setup.engines) => {}
            () = stopped.cancelled() => {}
        }
    });
    let working = app.clone();
    app.setup.tasks.spawn(async move { working.speech.jobs.run(&working).await });
    let served = accepting::accept(listener, router(app.clone()), accepting::MAX_CONNECTIONS, stop.clone());
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
