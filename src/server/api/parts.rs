//! What the API of the pages has made once the server starts.

use super::gpu::Gpus;
use super::models::pull_table::PullTable;
use super::readers::{Listeners, Readers};
use crate::server::sessions::SessionParts;
use crate::server::speech::SpeechParts;
use crate::server::transport::TransportParts;
use std::sync::Arc;

/// The part of the API. It is complete when it is made.
pub(in crate::server) struct ApiParts {
    pub(in crate::server) sessions: Arc<SessionParts>,
    pub(in crate::server) speech: Arc<SpeechParts>,
    pub(in crate::server) transport: Arc<TransportParts>,
    pub(in crate::server) gpus: Gpus,
    /// The latest pull of each model.
    pub(in crate::server) pulls: PullTable,
    pub(in crate::server) listeners: Listeners,
    pub(in crate::server) readers: Readers,
}

impl ApiParts {
    pub(in crate::server) fn new(
        sessions: Arc<SessionParts>,
        speech: Arc<SpeechParts>,
        transport: Arc<TransportParts>,
    ) -> Self {
        Self {
            listeners: Listeners::new(sessions.access.clone()),
            readers: Readers::new(sessions.access.clone()),
            sessions,
            speech,
            transport,
            gpus: Gpus::default(),
            pulls: PullTable::default(),
        }
    }
}
