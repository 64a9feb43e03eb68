//! Long texts as jobs: asked for at once, spoken in the background, fetched when they are done, across restarts.
//!
//! [`Jobs`] is what the handlers and the workers share: the [`store`] on a thread of its own, and the jobs under way. A hub
//! opens its store when the first job comes, or at start where the folder holds jobs already.

mod job;
mod routes;
mod store;
mod worker;

pub(super) use routes::routes;

use super::error::ApiError;
use crate::config::SpeechConfig;
use crate::lane::Pool;
use crate::server::app::App;
use axum::http::StatusCode;
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::{SystemTime, UNIX_EPOCH};
use store::{Bounds, Store, StoreError};
use tokio::sync::{Notify, OnceCell};
use tokio_util::sync::CancellationToken;

/// Requests that wait for the store; each takes about a millisecond of it.
const WAITING: usize = 256;

/// The store, or nothing once it was closed.
type Lane = Pool<Option<Store>>;

/// See the module.
pub(in crate::server) struct Jobs {
    folder: PathBuf,
    bounds: Bounds,
    at_once: usize,
    store: OnceCell<Lane>,
    /// Wakes a worker.
    work: Notify,
    /// Wakes those who wait for the store to be opened.
    opened: Notify,
    /// Those under way; cancelled when they are deleted.
    running: Mutex<HashMap<String, CancellationToken>>,
}

impl Jobs {
    pub(super) fn new(config: &SpeechConfig) -> Self {
        let bounds = Bounds {
            n_open: config.max_jobs,
            bytes: u64::from(config.jobs_max_mib) << 20,
            keep_s: i64::from(config.jobs_keep_hours) * 3_600,
        };
        Self {
            folder: PathBuf::from(&config.jobs_dir),
            bounds,
            at_once: config.jobs_at_once,
            store: OnceCell::new(),
            work: Notify::new(),
            opened: Notify::new(),
            running: Mutex::default(),
        }
    }

    /// Works on the jobs until the server stops.
    pub(in crate::server) async fn run(&self, app: &Arc<App>) {
        let stop = &app.setup.drain;
        if self.is_off() {
            return;
        }
        if Store::is_in(&self.folder)
            && let Err(error) = self.opened().await
        {
            tracing::warn!(folder = %self.folder.display(), error = error.message, "the jobs cannot be worked on");
        }
        while self.store.get().is_none() {
            tokio::select! {
                () = self.opened.notified() => {}
                () = stop.cancelled() => return,
            }
        }
        let workers = (0..self.at_once).map(|_| worker::run(self, app));
        futures_util::future::join_all(workers).await;
        // The folder is free for the next hub when this one has ended.
        if let Some(lane) = self.store.get()
            && let Ok(mut lease) = lane.lease().await
        {
            let _ = lease.run(|store| drop(store.take())).await;
        }
    }

    /// Jobs that wait or are worked on; none before there was one.
    pub(in crate::server) async fn depth(&self) -> usize {
        match self.store.get() {
            Some(_) => self.with(|store| store.n_open()).await.unwrap_or_default(),
            None => 0,
        }
    }

    fn is_off(&self) -> bool {
        self.folder.as_os_str().is_empty()
    }

    /// The store, opened now where it was not. Loading it takes milliseconds, on a thread for such work.
    async fn opened(&self) -> Result<&Lane, ApiError> {
        if self.is_off() {
            let message = "There are no jobs on this server: speech.jobs_dir names no folder.";
            return Err(ApiError::with(StatusCode::NOT_FOUND, "jobs_disabled", message));
        }
        let open = async || {
            let (folder, bounds) = (self.folder.clone(), self.bounds);
            let start = move || Pool::start("jobs", 1, WAITING, move || Store::open(&folder, bounds).map(Some));
            let lane = tokio::task::spawn_blocking(start).await.map_err(|error| ApiError::failed(error.to_string()))?;
            lane.map_err(|error| {
                tracing::warn!(%error, "the jobs' store cannot be opened");
                ApiError::overloaded(format!("The jobs' store cannot be opened: {error}."))
            })
        };
        let was_open = self.store.initialized();
        let lane = self.store.get_or_try_init(open).await?;
        if !was_open {
            self.opened.notify_one();
        }
        Ok(lane)
    }

    /// Does something with the store, on its thread. Once begun it is done, even if nobody waits for it any more.
    async fn with<T, F>(&self, work: F) -> Result<T, ApiError>
    where
        T: Send + 'static,
        F: FnOnce(&mut Store) -> Result<T, StoreError> + Send + 'static,
    {
        let lane = self.opened().await?;
        let mut lease = lane.lease().await.map_err(|error| ApiError::overloaded(error.to_string()))?;
        let done =
            lease.run(|store| store.as_mut().map(work)).await.map_err(|error| ApiError::failed(error.to_string()))?;
        let done = done.ok_or_else(|| ApiError::overloaded("The server is about to stop."))?;
        done.map_err(|error| match error {
            StoreError::Gone => {
                ApiError::with(StatusCode::NOT_FOUND, "job_not_found", "There is no such job, or not any more.")
            }
            StoreError::TooMany(_) => ApiError::with(
                StatusCode::TOO_MANY_REQUESTS,
                "too_many_jobs",
                format!("Too many: {error}. Try again later."),
            ),
            other => {
                tracing::warn!(error = %other, "the jobs' store failed");
                let failure = other.failure();
                ApiError::with(StatusCode::INSUFFICIENT_STORAGE, "storage_failed", failure.message)
            }
        })
    }
}

/// Unix seconds.
fn now() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs() as i64)
}
