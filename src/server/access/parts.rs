//! What access has made once the server starts, for the handlers of its own room and of those above.

use super::attempts::Attempts;
use super::audit::Audit;
use super::ephemeral_keys::EphemeralKeys;
use super::keys::Keys;
use super::limits::Limits;
use super::live_keys::LiveKeys;
use super::security::Security;
use crate::config::LimitsConfig;
use crate::server::edge::EdgeParts;
use std::sync::Arc;

/// The part of access. It is complete when it is made.
pub(in crate::server) struct AccessParts {
    pub(in crate::server) edge: Arc<EdgeParts>,
    /// The API keys that are valid now.
    pub(in crate::server) keys: Arc<LiveKeys>,
    /// The short-lived keys that API keys have made.
    pub(in crate::server) ephemeral_keys: EphemeralKeys,
    /// Rate limits and usage.
    pub(in crate::server) limits: Limits,
    pub(in crate::server) attempts: Attempts,
    /// The security log and the audit log.
    pub(in crate::server) security: Security,
}

impl AccessParts {
    pub(in crate::server) fn new(
        edge: Arc<EdgeParts>,
        keys: Keys,
        limits: LimitsConfig,
        ephemeral_keys: EphemeralKeys,
        audit: Audit,
    ) -> Self {
        Self {
            edge,
            limits: Limits::new(limits, &keys),
            keys: Arc::new(LiveKeys::new(keys)),
            ephemeral_keys,
            attempts: Attempts::default(),
            security: Security::new(audit),
        }
    }
}
