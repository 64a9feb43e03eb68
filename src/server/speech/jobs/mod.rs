//! Long texts as jobs: asked for at once, spoken in the background, fetched when they are done, across restarts.
//!
//! [`Jobs`] is what the handlers and the workers share: a store behind the port [`job_store`]. A hub alone keeps its jobs on the
//! disk ([`disk_store`]); in a cluster with JetStream all hubs share their jobs ([`cluster_store`]), and there is no store on the
//! disk.

mod cluster_store;
mod disk_store;
mod fair;
mod job;
mod job_store;
mod refusal;
mod routes;
mod store;
pub(super) mod worker;

pub(super) use routes::routes;
pub use store::{JOBS_VERSION, version_in};

use super::error::ApiError;
use crate::config::SpeechConfig;
use crate::server::access::live_keys::LiveKeys;
use antiphon_cluster::JetStream;
use antiphon_types::sealed::Sealing;
use cluster_store::ClusterStore;
use disk_store::DiskStore;
use job_store::JobStore;
use refusal::disabled;
use std::sync::Arc;
use store::Bounds;
use tokio_util::task::TaskTracker;

/// See the module.
pub(in crate::server) struct Jobs {
    bounds: Bounds,
    at_once: usize,
    /// `None`: `speech.jobs_dir` names no folder, and there are no jobs.
    store: Option<Arc<dyn JobStore>>,
}

impl Jobs {
    /// `sealing`: encrypts texts and sound on this hub's disk. `cluster`: all hubs share their jobs there; each does
    /// those of its own `keys`.
    pub(super) fn new(
        config: &SpeechConfig,
        sealing: Option<Arc<dyn Sealing>>,
        cluster: Option<(JetStream, TaskTracker)>,
        keys: &Arc<LiveKeys>,
    ) -> Self {
        let bounds = Bounds {
            n_open: config.max_jobs,
            bytes: u64::from(config.jobs_max_mib) << 20,
            keep_s: i64::from(config.jobs_keep_hours) * 3_600,
        };
        let store = (!config.jobs_dir.is_empty()).then(|| match cluster {
            Some((jetstream, tasks)) => {
                Arc::new(ClusterStore::new(jetstream, bounds, tasks, keys.clone())) as Arc<dyn JobStore>
            }
            None => Arc::new(DiskStore::new(config.jobs_dir.as_str().into(), bounds, sealing)),
        });
        Self { bounds, at_once: config.jobs_at_once, store }
    }

    /// Jobs that wait or are worked on; `None` where the store does not say so soon.
    pub(in crate::server) async fn depth(&self) -> Option<usize> {
        match &self.store {
            Some(store) => store.depth().await,
            None => Some(0),
        }
    }

    /// Where the jobs are.
    ///
    /// # Errors
    /// 404: there are no jobs on this server.
    fn store(&self) -> Result<&dyn JobStore, ApiError> {
        self.store.as_deref().ok_or_else(disabled)
    }
}
