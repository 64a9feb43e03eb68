//! The server's state: one complete part of each room.
//!
//! The router hands each handler the part that it needs. Nothing is put into a part after it is made, and no room knows
//! this type.

use super::access::AccessParts;
use super::access::audit::Audit;
use super::access::ephemeral_keys::EphemeralKeys;
use super::access::keys::Keys;
use super::api::{ApiParts, hubs};
use super::edge::EdgeParts;
use super::edge::headers::Certificate;
use super::edge::tls::Tls;
use super::sessions::SessionParts;
use super::sessions::parts::{SessionStart, dialect_of};
use super::speech::SpeechParts;
use super::transport::TransportParts;
use super::transport::telephony::intake::Telephony;
use super::transport::telephony::sip::Dialer;
use super::transport::webrtc::Webrtc;
use crate::assembly::{EngineInUse, EngineManager};
use crate::config::Config;
use antiphon_engine_api::Engines;
use antiphon_telemetry::Metrics;
use antiphon_types::sealed::Sealing;
use axum::extract::FromRef;
use std::sync::Arc;

/// Everything a server needs to start with loaded engines.
pub struct Parts {
    /// The configuration.
    pub config: Config,
    /// The loaded engines.
    pub engines: Engines,
    /// The metrics registry.
    pub metrics: Metrics,
    /// The accepted API keys.
    pub keys: Keys,
    /// `None`: plain HTTP.
    pub tls: Option<Tls>,
    /// Reloads engines and reports which serve; `None`: the engines are fixed and no model can be pulled.
    pub manager: Option<(Arc<EngineManager>, Vec<EngineInUse>)>,
}

/// The part of [`Parts`] that is available once the engines are loaded.
pub struct LoadedEngines {
    /// The engines.
    pub engines: Engines,
    /// See [`Parts::manager`].
    pub manager: Option<(Arc<EngineManager>, Vec<EngineInUse>)>,
}

/// The part of [`Parts`] that is available before the engines are loaded.
pub struct Startup {
    /// The configuration.
    pub config: Config,
    /// The metrics registry.
    pub metrics: Metrics,
    /// The accepted API keys.
    pub keys: Keys,
    /// `None`: plain HTTP.
    pub tls: Option<Tls>,
}

/// What the start has opened before the engines are loaded.
pub(super) struct StartupParts {
    /// The certificate that the listener serves.
    pub(super) tls: Certificate,
    pub(super) audit: Audit,
    /// Encrypts what is written to the disk about sessions and jobs.
    pub(super) sealing: Option<Arc<dyn Sealing>>,
    pub(super) webrtc: Option<Webrtc>,
    pub(super) telephony: Telephony,
    /// `None`: SIP is off.
    pub(super) dialer: Option<Arc<Dialer>>,
}

/// The handlers' state. Cheap to clone.
#[derive(Clone)]
pub(super) struct App {
    pub(super) edge: Arc<EdgeParts>,
    pub(super) access: Arc<AccessParts>,
    pub(super) sessions: Arc<SessionParts>,
    pub(super) speech: Arc<SpeechParts>,
    pub(super) transport: Arc<TransportParts>,
    /// `None`: SIP is off.
    pub(super) dialer: Option<Arc<Dialer>>,
    pub(super) api: Arc<ApiParts>,
}

impl App {
    pub(super) fn new(
        config: Config,
        metrics: Metrics,
        keys: Keys,
        loaded: LoadedEngines,
        opened: StartupParts,
    ) -> Self {
        let LoadedEngines { engines, manager } = loaded;
        let StartupParts { tls, audit, sealing, webrtc, telephony, dialer } = opened;
        let jetstream = manager.as_ref().and_then(|(manager, _)| manager.membership()?.jetstream());
        let shared_keys = jetstream.map(|jetstream| jetstream.keys().clone());
        let ephemeral_keys = EphemeralKeys::new(dialect_of(&config.session), shared_keys);
        let edge = Arc::new(EdgeParts::new(config.server.clone(), tls));
        let access = AccessParts::new(edge.clone(), keys, config.limits.clone(), ephemeral_keys, audit);
        let access = Arc::new(access);
        let start = SessionStart {
            config: config.clone(),
            engines,
            metrics,
            manager,
            sealing: sealing.clone(),
            release_question: hubs::release,
        };
        let sessions = Arc::new(SessionParts::new(access.clone(), start));
        let speech = Arc::new(SpeechParts::new(sessions.clone(), &config, sealing));
        let transport = Arc::new(TransportParts::new(sessions.clone(), webrtc.map(Arc::new), telephony));
        let api = Arc::new(ApiParts::new(sessions.clone(), speech.clone(), transport.clone()));
        Self { edge, access, sessions, speech, transport, dialer, api }
    }
}

impl FromRef<App> for Option<Arc<Dialer>> {
    fn from_ref(app: &App) -> Self {
        app.dialer.clone()
    }
}

impl FromRef<App> for Arc<AccessParts> {
    fn from_ref(app: &App) -> Self {
        app.access.clone()
    }
}

impl FromRef<App> for Arc<SessionParts> {
    fn from_ref(app: &App) -> Self {
        app.sessions.clone()
    }
}

impl FromRef<App> for Arc<TransportParts> {
    fn from_ref(app: &App) -> Self {
        app.transport.clone()
    }
}

impl FromRef<App> for Arc<ApiParts> {
    fn from_ref(app: &App) -> Self {
        app.api.clone()
    }
}
