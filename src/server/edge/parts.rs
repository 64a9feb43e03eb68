//! What the edge has made once the server starts, for the handlers of all rooms.

use super::client::Proxies;
use super::headers::{Certificate, SecurityHeaders};
use super::inbound_budget::InboundBudget;
use super::process::{Process, max_descriptors};
use crate::config::ServerConfig;
use tokio_util::sync::CancellationToken;

/// Descriptors that one session may need: its socket, and one for a request to each stage.
const DESCRIPTORS_PER_SESSION: usize = 4;

/// The part of the edge. It is complete when it is made.
pub(in crate::server) struct EdgeParts {
    pub(in crate::server) config: ServerConfig,
    pub(in crate::server) proxies: Proxies,
    pub(in crate::server) headers: SecurityHeaders,
    /// The certificate for new handshakes; `None`: plain HTTP.
    pub(in crate::server) tls: Certificate,
    /// Memory for messages that await processing.
    pub(in crate::server) inbound: InboundBudget,
    pub(in crate::server) process: Process,
    /// Cancelled when the drain time has elapsed.
    pub(in crate::server) kill: CancellationToken,
}

impl EdgeParts {
    /// `tls`: the certificate that the listener serves.
    pub(in crate::server) fn new(mut config: ServerConfig, tls: Certificate) -> Self {
        config.max_sessions = max_sessions(&config);
        Self {
            proxies: Proxies::new(&config),
            headers: SecurityHeaders::new(&config),
            tls,
            inbound: InboundBudget::new(),
            process: Process::new(),
            kill: CancellationToken::new(),
            config,
        }
    }
}

/// The sessions that there are places for: each takes a descriptor, and its requests to engines a few more.
fn max_sessions(config: &ServerConfig) -> usize {
    let affordable = max_descriptors() / DESCRIPTORS_PER_SESSION;
    if affordable < config.max_sessions {
        let configured = config.max_sessions;
        let descriptors = max_descriptors();
        tracing::warn!(
            configured,
            affordable,
            descriptors,
            "fewer sessions than server.max_sessions are admitted, because the process may open so few files (ulimit -n)"
        );
    }
    config.max_sessions.min(affordable)
}
