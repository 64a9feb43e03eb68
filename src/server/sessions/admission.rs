//! What every session needs, whatever its transport: admission, its place, and its entries in the log and the metrics.
//!
//! [`super::realtime`] (WebSockets) and [`crate::server::transport::call`] (all other transports) call it. It opens no
//! session and closes none.

use super::parts::SessionParts;
use super::reservations::{ReservationError, SessionReservation};
use crate::load::Overloaded;
use crate::server::access::limits::{Consumer, Count, Resource, SessionMeter};
use crate::server::access::security::Act;
use crate::server::access::{AccessParts, limits_http};
use crate::server::edge::client::Client;
use crate::server::edge::refusal::{refused, seconds};
use antiphon_engine_api::ENGINE_UNAVAILABLE;
use antiphon_telemetry::ActiveSession;
use antiphon_types::{KeyId, Requester, SessionId};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// When a client may come again whose engines are away: workers restart in seconds.
const RETRY_AFTER: Duration = Duration::from_secs(5);

/// Whose session it is, for limits and the audit log.
pub(in crate::server) struct SessionOwner {
    pub(in crate::server) client: Client,
    pub(in crate::server) key: Option<KeyId>,
    pub(in crate::server) consumer: Consumer,
}

/// A session's place, and whose it is. Dropping it releases the place.
pub(in crate::server) struct SessionAdmission {
    pub(in crate::server) place: SessionReservation,
    pub(in crate::server) who: SessionOwner,
}

/// Why a session is not admitted, for the adapter of each transport to say in its protocol; as a response, in the OpenAI
/// error format.
#[derive(Debug)]
pub(in crate::server) struct SessionRefused {
    /// As HTTP has it.
    pub(in crate::server) status: StatusCode,
    /// The machine-readable code.
    pub(in crate::server) code: &'static str,
    /// A sentence for the client.
    pub(in crate::server) message: String,
    /// When the client may try again.
    pub(in crate::server) retry_after: Duration,
    /// The headers of the limit that is used up.
    figures: Box<HeaderMap>,
}

/// An open session in the list of sessions, the metrics, the log and the audit log. Dropping it removes it.
pub(in crate::server) struct LiveSession {
    sessions: Arc<SessionParts>,
    id: SessionId,
    who: SessionOwner,
    revoked: CancellationToken,
    /// Whether its start is in the logs, and its end not yet.
    is_noted: bool,
    _place: SessionReservation,
    _counted: ActiveSession,
}

/// Checks the limits of the owner and its address, and takes a place for a session. `route`: for the security log.
///
/// # Errors
/// A limit is reached, or there is no place.
pub(in crate::server) fn admit(
    sessions: &SessionParts,
    client: Client,
    key: Option<KeyId>,
    route: &'static str,
) -> Result<SessionAdmission, SessionRefused> {
    let access = &sessions.access;
    let consumer = access.limits.consumer(key, client);
    if let Err(used_up) = consumer.check(Resource::Sessions) {
        sessions.setup.metrics.session_rejected();
        let act = Act { client, owner: key, name: Some(consumer.name()), target: route };
        access.security.limited(act, used_up);
        return Err(SessionRefused {
            status: StatusCode::TOO_MANY_REQUESTS,
            code: "rate_limit_exceeded",
            message: used_up.message(),
            retry_after: used_up.wait,
            figures: Box::new(limits_http::headers_of_refusal(used_up, &consumer)),
        });
    }
    let place = sessions.reserve(key, client).map_err(|full| SessionRefused::of(sessions, client, full, route))?;
    consumer.spend(Resource::Sessions, 1);
    Ok(SessionAdmission { place, who: SessionOwner { client, key, consumer } })
}

impl SessionOwner {
    /// The limits of the session.
    pub(in crate::server) fn limits(&self, access: &Arc<AccessParts>) -> SessionMeter {
        let client = self.client;
        let owner = self.key;
        let name = self.consumer.name().to_owned();
        let access_of_refusals = Arc::downgrade(access);
        let meter = access.limits.session(self.consumer.clone(), move |used_up| {
            if let Some(access) = access_of_refusals.upgrade() {
                access.security.limited(Act { client, owner, name: Some(&name), target: "response.create" }, used_up);
            }
        });
        // An address that stands for many clients says nothing.
        match self.key.is_none() && !client.is_shared {
            true => meter.of_client(Requester::of(&client.network())),
            false => meter,
        }
    }

    /// Whether the client is an operator, who reads why an upstream failed: it has an administrator's key or calls from this
    /// machine, by no proxy.
    pub(in crate::server) fn sees_causes(&self, access: &AccessParts) -> bool {
        self.client.is_here() || access.keys.is_admin(self.key)
    }

    /// Writes to the audit log what was done with a session.
    fn note(&self, access: &AccessParts, action: &'static str, session: &str, outcome: &str) {
        let Self { client, key, consumer } = self;
        let act = Act { client: *client, owner: *key, name: Some(consumer.name()), target: session };
        access.security.done(action, act, outcome);
    }
}

impl SessionRefused {
    /// The refusal of a client with a valid key for which there is no place; counted and logged.
    pub(in crate::server) fn of(
        sessions: &SessionParts,
        client: Client,
        full: ReservationError,
        route: &'static str,
    ) -> Self {
        sessions.setup.metrics.session_rejected();
        let (status, code, message) = match full {
            ReservationError::Overloaded(_) => (
                StatusCode::SERVICE_UNAVAILABLE,
                "server_overloaded",
                "This server serves as many conversations as it can serve in time. Try again later.",
            ),
            ReservationError::Server => (
                StatusCode::SERVICE_UNAVAILABLE,
                "server_full",
                "All sessions of this server are in use. Try again later.",
            ),
            ReservationError::Engines => (
                StatusCode::SERVICE_UNAVAILABLE,
                ENGINE_UNAVAILABLE,
                "The speech engines are not available at the moment. Try again soon.",
            ),
            ReservationError::Key => (
                StatusCode::TOO_MANY_REQUESTS,
                "rate_limit_exceeded",
                "Your API key has reached its session limit (server.max_sessions_per_key). Try again when one has ended.",
            ),
            ReservationError::Address => (
                StatusCode::TOO_MANY_REQUESTS,
                "rate_limit_exceeded",
                "Your address has reached its session limit (server.max_sessions_per_address). Try again when one has ended.",
            ),
        };
        if matches!(full, ReservationError::Key | ReservationError::Address) {
            sessions.access.security.refused(client, route, status.as_u16(), "too many sessions");
        }
        let retry_after = match full {
            ReservationError::Overloaded(Overloaded { retry_after }) => retry_after,
            ReservationError::Engines => RETRY_AFTER,
            ReservationError::Server | ReservationError::Key | ReservationError::Address => sessions.load.retry_after(),
        };
        Self { status, code, message: message.into(), retry_after, figures: Box::default() }
    }
}

impl IntoResponse for SessionRefused {
    fn into_response(self) -> Response {
        let mut response = refused(self.status, self.code, self.message);
        let headers = response.headers_mut();
        headers.extend(*self.figures);
        headers.insert(header::RETRY_AFTER, seconds(self.retry_after));
        response
    }
}

impl LiveSession {
    /// Lists and counts a session. `revoked`: cancelled when its caller may not go on.
    pub(in crate::server) fn new(
        sessions: &Arc<SessionParts>,
        id: &SessionId,
        transport: &'static str,
        admitted: SessionAdmission,
        revoked: CancellationToken,
    ) -> Self {
        let SessionAdmission { place, who } = admitted;
        let counted = sessions.setup.metrics.session();
        who.consumer.count(Count::Sessions, 1);
        sessions.live.insert(id.clone(), transport);
        Self {
            sessions: sessions.clone(),
            id: id.clone(),
            who,
            revoked,
            is_noted: false,
            _place: place,
            _counted: counted,
        }
    }

    /// Cancelled when the caller's API key is revoked.
    pub(in crate::server) fn revoked(&self) -> &CancellationToken {
        &self.revoked
    }

    /// Writes its start to the audit log.
    pub(in crate::server) fn started(&mut self, action: &'static str) {
        self.is_noted = true;
        self.who.note(&self.sessions.access, action, self.id.as_str(), "ok");
    }

    /// Removes it from the list of sessions and writes its end to the logs, once; its place stays taken until this is dropped.
    pub(in crate::server) fn ended(&mut self, outcome: &str) {
        if self.sessions.live.remove(&self.id).is_some() {
            self.sessions.load.session_ended();
        }
        if !std::mem::take(&mut self.is_noted) {
            return;
        }
        tracing::info!(session = %self.id, "disconnected");
        let outcome = if outcome == "ok" && self.revoked.is_cancelled() { "key revoked" } else { outcome };
        self.who.note(&self.sessions.access, "session.end", self.id.as_str(), outcome);
    }
}

impl Drop for LiveSession {
    fn drop(&mut self) {
        self.ended("ok");
    }
}
