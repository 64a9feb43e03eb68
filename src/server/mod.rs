//! The server: routing, admission, authentication and shutdown.
//!
//! `cli` calls [`serve_loading`] with a bound listener before the engines are loaded; tests and benchmarks call
//! [`serve`] with fakes. Each WebSocket connection is bound to an [`antiphon_session`] session; this module transports
//! bytes between the two and makes no dialog decisions.

mod access;
mod api;
mod app;
mod edge;
mod preflight;
mod sessions;
mod speech;
mod transport;

pub use access::key_file::{check as check_key_file, entry as key_entry, names_of_scopes};
pub use access::keys::{Keys, KeysError, digest as key_digest, make as make_key};
pub use access::reload::{Reload, Reloads};
pub use api::worker_probes::worker_probes;
pub use app::{LoadedEngines, Parts, Startup};
pub use edge::process::raise_descriptor_limit;
pub use edge::starting::WaitsFor;
pub use edge::tls::{Tls, TlsError};
pub use edge::websocket;
pub use preflight::{problems as startup_problems, setting_problems};
pub use speech::{JOBS_VERSION, jobs_version_in};
pub use transport::rtvi::frame as rtvi_frames;
#[cfg(feature = "testing")]
pub use transport::testing;

use access::audit::Audit;
use access::ephemeral_keys::MAX_BODY_BYTES as MAX_SECRET_BYTES;
use access::reload::Above;
use access::{audit_http, auth, guard, limits_http, reload, usage};
use antiphon_types::sealed::Sealing;
use api::traces::Traces;
use api::{health, hubs, language_models, models, state, turn_audio, turns};
use app::{App, StartupParts};
use arc_swap::ArcSwap;
use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::http::{Extensions, HeaderMap, StatusCode, Version, header};
use axum::routing::{MethodRouter, delete, get, post};
use edge::accepting::{self, Entrance};
use edge::connection_slots::ConnectionSlots;
use edge::pages;
use edge::probes::{self, METRICS_TYPE};
use edge::rejections;
use edge::starting::StartingServer;
use futures_util::future::BoxFuture;
use sessions::parts::CLOSE_GRACE;
use sessions::{client_secrets, warming};
use std::pin::pin;
use std::sync::Arc;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tower_http::compression::CompressionLayer;
use tower_http::compression::predicate::{Predicate, SizeAbove};
use transport::telephony::call_reports::CallWebhooks;
use transport::telephony::intake::Telephony;
use transport::telephony::outgoing::DialRights;
use transport::telephony::sip::Sip;
use transport::webhooks::Deliveries;
use transport::webrtc::{Webrtc, signaling};
use transport::wyoming::Wyoming;
use transport::{call_control, realtime, rtvi, telephony};

/// The shortest body that is compressed: a shorter one fits into a packet as it is.
const MIN_COMPRESSED_BYTES: u16 = 1_024;

/// Optional parts of a server, in addition to its listener and its [`Parts`].
#[derive(Default)]
pub struct Extras {
    /// Serves only `/healthz`, `/readyz` and `/metrics`, by plain HTTP and without a key (`server.probe_listen`).
    pub probes: Option<TcpListener>,
    /// Serves Wyoming, as `[wyoming]` of the configuration says.
    pub wyoming: Option<TcpListener>,
    /// Replacement keys and certificates, applied while the server runs.
    pub reloads: Option<Reloads>,
    /// What the server waits for before it serves.
    pub waits_for: WaitsFor,
}

/// A server that runs until it is stopped. It is boxed here: a crate that named the future's type would compile the
/// server's tasks a second time.
pub type RunningServer<'a> = BoxFuture<'a, std::io::Result<()>>;

/// [`serve_with`] without [`Extras`].
pub fn serve(listener: TcpListener, parts: Parts, stop: CancellationToken) -> RunningServer<'static> {
    serve_with(listener, parts, Extras::default(), stop)
}

/// [`serve_loading`] with engines that are already loaded. Returns once every task has ended.
pub fn serve_with(
    listener: TcpListener,
    parts: Parts,
    extras: Extras,
    stop: CancellationToken,
) -> RunningServer<'static> {
    let Parts { config, engines, metrics, keys, tls, manager } = parts;
    let startup = Startup { config, metrics, keys, tls };
    let loaded = Box::pin(std::future::ready(Some(LoadedEngines { engines, manager })));
    Box::pin(serve_once_loaded(listener, startup, loaded, extras, stop))
}

/// Accepts connections immediately. Until `load` resolves, `/readyz` responds 503, the page shows that the hub is
/// starting, and every other route responds 503 with Retry-After. An error of `load` ends the server and is returned.
///
/// Serves until `stop` is cancelled. It then stops accepting, lets responses in progress finish within
/// `server.drain_seconds`, closes the remaining sessions with code 1001 and returns once every task has ended. Without
/// keys it serves loopback addresses only; any other address is an error.
pub async fn serve_loading<E: From<std::io::Error> + Send>(
    listener: TcpListener,
    startup: Startup,
    load: impl Future<Output = Result<LoadedEngines, E>> + Send,
    extras: Extras,
    stop: CancellationToken,
) -> Result<(), E> {
    let mut failure = None;
    let loaded = Box::pin(async { load.await.map_err(|error| failure = Some(error)).ok() });
    let running: RunningServer<'_> = Box::pin(serve_once_loaded(listener, startup, loaded, extras, stop));
    let served = running.await;
    failure.map_or_else(|| served.map_err(E::from), Err)
}

/// [`serve_loading`], for which `None` is an error of `load`.
async fn serve_once_loaded(
    listener: TcpListener,
    startup: Startup,
    load: BoxFuture<'_, Option<LoadedEngines>>,
    extras: Extras,
    stop: CancellationToken,
) -> std::io::Result<()> {
    let Startup { config, metrics, keys, tls } = startup;
    let address = listener.local_addr()?;
    keys.allow_listening(address).map_err(std::io::Error::other)?;
    let endpoint = &config.telemetry.otlp_endpoint;
    let traces = (!endpoint.is_empty())
        .then(|| Traces::to(endpoint, &config.cluster.shown_name()))
        .transpose()
        .map_err(std::io::Error::other)?;
    let webrtc = Webrtc::bind(&config.rtc).await?;
    let rights = Arc::new(DialRights::of(&config.sip));
    let (webhooks, deliveries) = CallWebhooks::open(&config)?;
    let (telephony, audiosocket) = Telephony::open(&config, &keys, rights.clone(), &webhooks).await?;
    let tls = tls.map(|tls| Arc::new(ArcSwap::from_pointee(tls)));
    let sip = Sip::bind(&config.sip, &keys, tls.clone(), rights, webhooks).await?;
    let (sip, dialer) = sip.unzip();
    let sip_certificate = sip.as_ref().and_then(Sip::certificate);
    let trunk_passwords = sip.as_ref().map(Sip::passwords);
    let wyoming = extras.wyoming.map(|listener| Wyoming::new(listener, config.wyoming.clone(), &keys)).transpose()?;
    let (audit, audit_writer) = Audit::open(&config.server.audit_log)?;
    let unusable = |error| std::io::Error::other(format!("server.storage_key: {error}"));
    let storage_key = config.server.read_storage_key().map_err(unusable)?;
    let sealing = storage_key.map(|key| Arc::new(key) as Arc<dyn Sealing>);
    tracing::info!("listening on {}://{address}", if tls.is_some() { "https" } else { "http" });

    let starting = StartingServer::new(&config.server, tls.clone(), extras.waits_for.clone());
    let probed = StartingServer::probes(&config.server, extras.waits_for);
    let places = ConnectionSlots::new(
        accepting::max_connections(),
        config.server.max_connections_per_address,
        config.server.proxies(),
    );
    let entrance = Entrance { listener, tls: tls.clone(), places };
    let mut accepting = pin!(accepting::accept(entrance, starting.router(), stop.clone()));
    let mut probes = pin!(probes::serve(extras.probes, probed.router()));
    let loaded = tokio::select! {
        biased;
        loaded = load => match loaded {
            Some(loaded) => loaded,
            None => return Ok(()),
        },
        () = &mut accepting => return Ok(()),
        () = &mut probes => return Ok(()),
    };

    let app = App::new(config, metrics, keys, loaded, StartupParts { tls, audit, sealing, webrtc, telephony, dialer });
    app.sessions.count_for_cluster();
    hubs::reply_to_others(&app.sessions);
    starting.open(router(app.clone()));
    probed.open(probe_router(app.clone()));
    let reloaded = async {
        let above = Above {
            replace_twilio_auth_token: &|token| app.transport.telephony.replace_auth_token(token),
            replace_account_secrets: &|secrets| app.transport.telephony.replace_account_secrets(secrets),
            replace_trunk_passwords: &|passwords| {
                if let Some(trunks) = &trunk_passwords {
                    trunks.replace(passwords);
                }
            },
            sip_certificate: sip_certificate.as_deref(),
            sessions_of: &|key| app.sessions.of_key(key),
        };
        reload::run(&app.access, &above, extras.reloads, stop.clone()).await;
        std::future::pending().await
    };
    let written = CancellationToken::new();
    let audited = async {
        if let Some(writer) = audit_writer {
            writer.run(written.clone()).await;
        }
    };
    let listening = BackgroundServices { traces, wyoming, audiosocket, sip, deliveries };
    let serving = async {
        tokio::select! {
            () = serve_on(accepting, &app, listening, stop.clone()) => {}
            () = probes => {}
            () = reloaded => {}
        }
        // The audit log ends after all that writes to it.
        written.cancel();
    };
    tokio::join!(serving, audited);
    Ok(())
}

/// What a server does beside answering HTTP.
struct BackgroundServices {
    traces: Option<Traces>,
    wyoming: Option<Wyoming>,
    audiosocket: Option<TcpListener>,
    sip: Option<Sip>,
    /// The webhooks of calls.
    deliveries: Option<Deliveries>,
}

async fn serve_on(
    accepting: impl Future<Output = ()>,
    app: &App,
    listening: BackgroundServices,
    stop: CancellationToken,
) {
    let BackgroundServices { traces, wyoming, audiosocket, sip, deliveries } = listening;
    let sessions = &app.sessions;
    let tasks = &sessions.setup.tasks;
    let warmed = sessions.setup.clone();
    let stopped = stop.clone();
    tasks.spawn(async move {
        tokio::select! {
            () = warming::warm(&warmed.engines) => {}
            () = stopped.cancelled() => {}
        }
    });
    let speech = app.speech.clone();
    tasks.spawn(async move { speech::work_on_jobs(&speech).await });
    let drained = CancellationToken::new();
    let drain = async {
        stop.cancelled().await;
        sessions.drain().await;
        drained.cancel();
    };
    let trace_export = async {
        if let Some(traces) = traces {
            traces.run(&sessions.setup.turn_history, drained.clone()).await;
        }
    };
    let wyoming = async {
        if let Some(wyoming) = wyoming {
            wyoming.serve(app.speech.clone(), stop.clone()).await;
        }
    };
    let calls = async {
        if let Some(webrtc) = &app.transport.webrtc {
            webrtc.run(drained.clone()).await;
        }
    };
    let phones = async {
        if let Some(listener) = audiosocket {
            telephony::accept_audiosocket(&app.transport, listener, &stop).await;
        }
    };
    let sip_calls = async {
        if let Some(sip) = sip {
            sip.run(app.transport.clone(), stop.clone(), drained.clone()).await;
        }
    };
    let account_events = app.transport.telephony.follow_accounts(drained.clone());
    let webhooks = async {
        if let Some(deliveries) = deliveries {
            deliveries.run(drained.clone()).await;
        }
    };
    let load_sampler = sessions.sample_load(drained.clone());
    let peer_updates = hubs::tell_others(sessions, drained.clone());
    let usage_minutes = app.access.limits.keep_minutes(drained.clone());
    let limit_sync = hubs::share_limits(sessions, drained.clone());
    let isolation_watch = async {
        if let Some(handover) = &sessions.handover {
            tokio::select! {
                () = handover.watch_isolation() => {}
                () = drained.cancelled() => {}
            }
        }
    };
    let all = async {
        tokio::join!(
            accepting,
            drain,
            trace_export,
            peer_updates,
            isolation_watch,
            load_sampler,
            usage_minutes,
            limit_sync,
            wyoming,
            calls,
            phones,
            sip_calls,
            account_events,
            webhooks,
        )
    };
    tokio::select! {
        _ = all => {}
        () = async { stop.cancelled().await; tokio::time::sleep(sessions.drain_time() + 2 * CLOSE_GRACE).await } => {
            tracing::warn!("some connections did not end within the drain time");
        }
    }
}

/// The routes of the probe listener: health, readiness and metrics.
fn probe_router(app: App) -> Router {
    let config = &app.edge.config;
    let routes = Router::new()
        .route("/healthz", get(probes::alive))
        .route("/readyz", get(health::ready))
        .route("/metrics", get(health::metrics_for_probes))
        .method_not_allowed_fallback(pages::method_not_allowed)
        .layer(compressed());
    probes::sealed(routes.with_state(app.clone()), config)
}

/// Compresses JSON and metrics for clients that accept gzip: sound is compressed already, and events must not wait for more.
fn compressed() -> CompressionLayer<impl Predicate> {
    let is_text = |_: StatusCode, _: Version, headers: &HeaderMap, _: &Extensions| {
        let media_type = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
        ["application/json", METRICS_TYPE].contains(&media_type)
    };
    CompressionLayer::new().compress_when(SizeAbove::new(MIN_COMPRESSED_BYTES).and(is_text))
}

/// Offers of pipecat's small-webrtc transport.
fn rtvi_offers() -> MethodRouter<App> {
    post(rtvi::offer::create).patch(rtvi::offer::candidates).layer(DefaultBodyLimit::max(signaling::MAX_BODY_BYTES))
}

fn router(app: App) -> Router {
    Router::new()
        .merge(speech::routes(app.speech.clone()))
        .route(
            "/v1/realtime",
            get(realtime::upgrade)
                .layer(axum::middleware::map_response(websocket::with_version))
                .merge(post(signaling::create).layer(DefaultBodyLimit::max(signaling::MAX_BODY_BYTES))),
        )
        .route(
            "/v1/realtime/calls",
            get(call_control::list)
                .merge(post(signaling::create).layer(DefaultBodyLimit::max(signaling::MAX_BODY_BYTES))),
        )
        .route("/v1/realtime/calls/{id}", get(call_control::get))
        .route(
            "/v1/realtime/calls/{id}/accept",
            post(call_control::accept).layer(DefaultBodyLimit::max(signaling::MAX_BODY_BYTES)),
        )
        .route("/v1/realtime/calls/{id}/hangup", post(call_control::hang_up))
        .route(
            "/v1/realtime/calls/{id}/reject",
            post(call_control::reject).layer(DefaultBodyLimit::max(call_control::MAX_BODY_BYTES)),
        )
        .route(
            "/v1/realtime/calls/{id}/refer",
            post(call_control::refer).layer(DefaultBodyLimit::max(call_control::MAX_BODY_BYTES)),
        )
        .route(
            "/v1/realtime/calls/{id}/recording",
            post(call_control::set_recording).layer(DefaultBodyLimit::max(call_control::MAX_BODY_BYTES)),
        )
        .route("/v1/rtvi", get(rtvi::upgrade).layer(axum::middleware::map_response(websocket::with_version)))
        .route("/v1/rtvi/start", post(rtvi::offer::start).layer(DefaultBodyLimit::max(signaling::MAX_BODY_BYTES)))
        .route("/v1/rtvi/api/offer", rtvi_offers())
        .route("/v1/rtvi/sessions/{id}/api/offer", rtvi_offers())
        .route(
            "/v1/realtime/client_secrets",
            post(client_secrets::create).layer(DefaultBodyLimit::max(MAX_SECRET_BYTES)),
        )
        .route(
            "/v1/realtime/sessions",
            post(client_secrets::create_flat).layer(DefaultBodyLimit::max(MAX_SECRET_BYTES)),
        )
        .route("/v1/telephony/{provider}", get(telephony::stream))
        .route("/v1/telephony/{provider}/{token}", get(telephony::stream))
        .route("/v1/telephony/twilio/voice", post(telephony::voice))
        .route("/v1/telephony/twilio/status", post(telephony::status))
        .route("/healthz", get(probes::alive))
        .route("/readyz", get(health::ready))
        .route("/metrics", get(health::metrics))
        .route("/api/models", get(models::list))
        .route("/api/models/{name}", delete(models::delete))
        .route("/api/models/{name}/pull", get(models::progress).post(models::pull).delete(models::cancel))
        .route(
            "/api/llm/servers",
            get(language_models::list)
                .post(language_models::connect)
                .delete(language_models::disconnect)
                .layer(DefaultBodyLimit::max(language_models::MAX_BODY_BYTES)),
        )
        .route("/api/state", get(state::state))
        .route("/api/turns", get(turns::list))
        .route("/api/usage", get(usage::usage))
        .route("/api/turns/live", get(turns::live))
        .route("/api/turns/{id}", get(turns::one))
        .route("/api/turns/{id}/audio", get(turn_audio::audio))
        .method_not_allowed_fallback(pages::method_not_allowed)
        .layer(axum::middleware::from_fn(rejections::reword))
        .layer(compressed())
        .fallback_service(pages::router())
        // The layer added last sees a request first.
        .layer(axum::middleware::from_fn_with_state(app.access.clone(), audit_http::record))
        .layer(axum::middleware::from_fn_with_state(app.access.clone(), limits_http::check))
        .layer(axum::middleware::from_fn_with_state(app.access.clone(), auth::check))
        .layer(axum::middleware::from_fn_with_state(app.access.clone(), guard::check))
        .with_state(app)
}
