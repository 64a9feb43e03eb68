//! What the transports have in common once the server starts: the sessions that they open, and the calls that clients
//! may join.

use super::calls::{CallDecision, Calls, DecisionError, OngoingCall};
use super::telephony::intake::Telephony;
use super::webrtc::Webrtc;
use crate::server::sessions::SessionParts;
use antiphon_types::KeyId;
use std::sync::Arc;
use tokio::sync::oneshot;

/// The part of the transports. It is complete when it is made.
pub(in crate::server) struct TransportParts {
    pub(in crate::server) sessions: Arc<SessionParts>,
    /// `None`: it is off.
    pub(in crate::server) webrtc: Option<Arc<Webrtc>>,
    pub(in crate::server) telephony: Telephony,
    /// Calls that clients may join.
    pub(super) calls: Arc<Calls>,
}

impl TransportParts {
    pub(in crate::server) fn new(
        sessions: Arc<SessionParts>,
        webrtc: Option<Arc<Webrtc>>,
        telephony: Telephony,
    ) -> Self {
        Self { sessions, webrtc, telephony, calls: Arc::default() }
    }

    /// The call with this id that a client with this key may join and end.
    pub(super) fn find_call(&self, id: &str, owner: Option<KeyId>) -> Option<Arc<OngoingCall>> {
        self.calls.find(id, owner, self.sessions.access.keys.is_admin(owner))
    }

    /// Takes the decision about a call that rings, for a client with this key.
    ///
    /// # Errors
    /// [`DecisionError`].
    pub(super) fn decide_call(
        &self,
        id: &str,
        owner: Option<KeyId>,
    ) -> Result<oneshot::Sender<CallDecision>, DecisionError> {
        self.calls.decide(id, owner, self.sessions.access.keys.is_admin(owner))
    }

    /// The call with this id, as JSON: one of those, or one that this hub made and that is over.
    pub(super) fn describe_call(&self, id: &str, owner: Option<KeyId>) -> Option<serde_json::Value> {
        self.calls.describe(id, owner, self.sessions.access.keys.is_admin(owner))
    }

    /// The calls that a client with this key may join and end, as JSON.
    pub(super) fn describe_calls(&self, owner: Option<KeyId>) -> Vec<serde_json::Value> {
        self.calls.described(owner, self.sessions.access.keys.is_admin(owner))
    }
}
