//! Long texts as jobs: asked for at once, spoken in the background, fetched when they are done, across restarts.
//!
//! [`Jobs`] is what the handlers and the workers share: the [`store`] on a thread of its own, and the jobs under way. A hub
//! opens its store with the first job, or at start where the folder holds jobs already. Listing jobs creates no store.
//!
//! In a cluster with JetStream ([`Jobs::new`]) all hubs share their jobs ([`cluster_store`]), and there is no store on
//! the disk. The routes and the workers know neither: [`keeper`] is what both kinds do.

mod cluster_store;
mod fair;
mod job;
mod keeper;
mod refusal;
mod routes;
mod store;
pub(super) mod worker;

pub(super) use routes::routes;

use super::error::ApiError;
use crate::config::SpeechConfig;
use antiphon_cluster::JetStream;
use antiphon_inference::pool::Pool;
use antiphon_types::sealed::Sealing;
use cluster_store::ClusterStore;
use refusal::{disabled, failure_of_store, not_opened};
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use store::{Bounds, Store, StoreError};
use tokio::sync::{Notify, OnceCell};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// How long the metrics wait for the store.
const SOON: Duration = Duration::from_secs(1);
/// How long an idle worker sleeps before it looks for what has been kept too long.
const SWEEP: Duration = Duration::from_secs(600);
/// How long an idle worker sleeps when the store failed.
const AGAIN: Duration = Duration::from_secs(30);
/// Requests that wait for the store; each takes about a millisecond of it.
const WAITING: usize = 256;

/// The store on its thread, or nothing once it was closed.
type StorePool = Pool<Option<Store>>;

/// See the module.
pub(in crate::server) struct Jobs {
    folder: PathBuf,
    bounds: Bounds,
    /// Encrypts the store of this hub.
    sealing: Option<Arc<dyn Sealing>>,
    at_once: usize,
    store: OnceCell<StorePool>,
    /// Wakes a worker.
    work: Notify,
    /// Wakes those who wait for the store to be opened.
    opened: Notify,
    /// Those under way; cancelled when they are deleted.
    running: Mutex<HashMap<String, CancellationToken>>,
    /// The jobs of all hubs, in the place of the store.
    shared: Option<ClusterStore>,
}

impl Jobs {
    /// `sealing`: encrypts texts and sound on this hub's disk. `cluster`: all hubs share their jobs there.
    pub(super) fn new(
        config: &SpeechConfig,
        sealing: Option<Arc<dyn Sealing>>,
        cluster: Option<(JetStream, TaskTracker)>,
    ) -> Self {
        let bounds = Bounds {
            n_open: config.max_jobs,
            bytes: u64::from(config.jobs_max_mib) << 20,
            keep_s: i64::from(config.jobs_keep_hours) * 3_600,
        };
        // Without a folder there are no jobs.
        let cluster = cluster.filter(|_| !config.jobs_dir.is_empty());
        Self {
            folder: PathBuf::from(&config.jobs_dir),
            bounds,
            sealing,
            at_once: config.jobs_at_once,
            store: OnceCell::new(),
            work: Notify::new(),
            opened: Notify::new(),
            running: Mutex::default(),
            shared: cluster.map(|(jetstream, tasks)| ClusterStore::new(jetstream, bounds, tasks)),
        }
    }

    /// Jobs that wait or are worked on, none before there was one; `None` where the store does not say so soon.
    pub(in crate::server) async fn depth(&self) -> Option<usize> {
        if let Some(shared) = &self.shared {
            return Some(shared.n_open());
        }
        match self.store.get() {
            Some(_) => timeout(SOON, self.with(|store| store.n_open())).await.ok()?.ok(),
            None => Some(0),
        }
    }

    fn is_off(&self) -> bool {
        self.folder.as_os_str().is_empty()
    }

    /// Whether there ever was a job here. Nothing is made by asking.
    async fn are_some(&self) -> Result<bool, ApiError> {
        if self.is_off() {
            return Err(disabled());
        }
        if self.store.initialized() {
            return Ok(true);
        }
        // What cannot be looked for may be there: opening it says what is wrong.
        Ok(tokio::fs::try_exists(Store::database(&self.folder)).await.unwrap_or(true))
    }

    /// The store, opened now where it was not. Loading it takes milliseconds, on a thread for such work.
    async fn opened(&self) -> Result<&StorePool, ApiError> {
        if self.is_off() {
            return Err(disabled());
        }
        let open = async || {
            let folder = self.folder.clone();
            let bounds = self.bounds;
            let sealing = self.sealing.clone();
            let open = move |_| Store::open(&folder, bounds, sealing.clone()).map(Some);
            let start = move || Pool::start("jobs", 1, WAITING, open);
            let pool = tokio::task::spawn_blocking(start)
                .await
                .map_err(|error| ApiError::internal("The jobs' store", &error))?;
            pool.map_err(|error| {
                tracing::warn!(folder = %self.folder.display(), %error, "the jobs' store cannot be opened");
                not_opened(&error)
            })
        };
        let was_open = self.store.initialized();
        let pool = self.store.get_or_try_init(open).await?;
        if !was_open {
            self.opened.notify_one();
        }
        Ok(pool)
    }

    /// Does something with the jobs that are there; nothing is made where there never was one.
    async fn with_those<T, F>(&self, work: F) -> Result<T, ApiError>
    where
        T: Send + 'static,
        F: FnOnce(&mut Store) -> Result<T, StoreError> + Send + 'static,
    {
        if self.are_some().await? { self.with(work).await } else { Err(failure_of_store(&StoreError::Gone)) }
    }

    /// Runs an operation on the store's thread. Once started it completes, even if its caller is gone.
    async fn with<T, F>(&self, work: F) -> Result<T, ApiError>
    where
        T: Send + 'static,
        F: FnOnce(&mut Store) -> Result<T, StoreError> + Send + 'static,
    {
        let pool = self.opened().await?;
        let mut lease = pool.lease().await.map_err(|error| ApiError::overloaded(error.to_string()))?;
        let done = lease
            .run(|store| store.as_mut().map(work))
            .await
            .map_err(|error| ApiError::internal("The jobs' store", &error))?;
        let done = done.ok_or_else(|| ApiError::overloaded("The server is about to stop."))?;
        done.map_err(|error| failure_of_store(&error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::speech::error::ApiError;
    use axum::response::IntoResponse;
    use std::path::Path;

    fn jobs(folder: &Path) -> Jobs {
        let config = SpeechConfig { jobs_dir: folder.to_str().expect("text").into(), ..SpeechConfig::default() };
        Jobs::new(&config, None, None)
    }

    #[tokio::test]
    async fn who_looks_for_jobs_makes_none() {
        let parent = tempfile::tempdir().expect("a folder");
        let folder = parent.path().join("jobs");
        let jobs = jobs(&folder);
        assert_eq!(jobs.are_some().await, Ok(false));
        let looked: Result<_, ApiError> = jobs.with_those(|store| store.job("job_a")).await;
        assert_eq!(looked.expect_err("there is none").code, "job_not_found");
        assert!(!folder.exists());
        jobs.opened().await.expect("made");
        assert_eq!(jobs.are_some().await, Ok(true));
    }

    #[tokio::test]
    async fn a_store_that_will_never_open_invites_nobody_to_try_again() {
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::write(Store::database(folder.path()), "no database at all, and longer than a header of one")
            .expect("written");
        let error = jobs(folder.path()).opened().await.err().expect("refused");
        assert_eq!((error.code, error.is_busy()), ("jobs_unavailable", false));
        let response = error.into_response();
        assert_eq!(response.headers()["x-should-retry"], "false");
        assert!(!response.headers().contains_key("retry-after"));
    }

    #[tokio::test]
    async fn another_hubs_store_is_refused_without_its_place() {
        let folder = tempfile::tempdir().expect("a folder");
        let first = jobs(folder.path());
        first.opened().await.expect("made");
        let error = jobs(folder.path()).opened().await.err().expect("taken");
        assert!(error.is_busy() && !error.message.contains('/'), "{error:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn the_metrics_do_not_wait_for_a_store_that_hangs() {
        let folder = tempfile::tempdir().expect("a folder");
        let jobs = jobs(folder.path());
        assert_eq!(jobs.depth().await, Some(0));
        jobs.opened().await.expect("made");
        let (go, wait) = std::sync::mpsc::channel::<()>();
        let hangs = jobs.with(move |_| {
            let _ = wait.recv();
            Ok(())
        });
        let depth = async {
            let depth = jobs.depth().await;
            drop(go);
            depth
        };
        assert_eq!(tokio::join!(hangs, depth).1, None);
    }
}
