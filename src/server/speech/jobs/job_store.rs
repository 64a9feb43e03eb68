//! The port of the stores of jobs, and of a job that a store has given to this hub.
//!
//! [`DiskStore`](super::disk_store::DiskStore) keeps the jobs of one hub, [`ClusterStore`](super::cluster_store::ClusterStore)
//! those of all hubs of a cluster. Routes and workers know this port only.

use super::job::{Failure, Job};
use crate::server::speech::error::ApiError;
use crate::server::speech::spec::SpeechSpec;
use antiphon_session::Viewer;
use antiphon_types::KeyId;
use async_trait::async_trait;
use bytes::Bytes;
use futures_util::future::BoxFuture;
use futures_util::stream::BoxStream;
use std::io;
use tokio_util::sync::CancellationToken;

/// The bytes of a finished file.
pub(super) type Sound = BoxStream<'static, io::Result<Bytes>>;

/// Whose a new job is.
#[derive(Clone, Copy, Debug)]
pub(super) struct JobOwner {
    /// The API key; `None` on a hub without keys.
    pub(super) key: Option<KeyId>,
    /// Jobs that are not finished which the key may have.
    pub(super) max_open: usize,
}

/// A job that a request asked for.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct AddedJob {
    pub(super) job: Job,
    /// Whether this request has made it; if not, an earlier one with the same idempotency key has.
    pub(super) is_new: bool,
}

/// Why a hub does not go on with a job.
#[derive(Debug)]
pub(super) enum Stop {
    /// It was removed.
    Gone,
    /// Another hub has it, or JetStream is away for long: it goes on elsewhere.
    Moved,
    /// Its API key may not use the speech API any more, as far as this hub knows.
    Revoked,
    /// It failed.
    Failed(Failure),
}

/// Where jobs are kept. Cancelling an operation leaves its outcome open, and the store consistent.
#[async_trait]
pub(super) trait JobStore: Send + Sync {
    /// Takes a job. `digest`: of the request, where it came with an idempotency key, which `id` is derived from: then a job that
    /// is there already is returned.
    async fn add(
        &self,
        id: &str,
        owner: JobOwner,
        spec: &SpeechSpec,
        digest: Option<String>,
    ) -> Result<AddedJob, ApiError>;

    /// One job, where `viewer` may see it; to others it is as if there were none.
    async fn job_for(&self, viewer: Viewer, id: &str) -> Result<Job, ApiError>;

    /// Those that `viewer` may see, the newest first, at most `n`, behind the job `after` where one is named.
    ///
    /// # Errors
    /// 400: `viewer` may see no job `after`.
    async fn list(&self, viewer: Viewer, after: Option<&str>, n: usize) -> Result<Vec<Job>, ApiError>;

    /// Removes a job that `viewer` may see, and ends the work on it.
    async fn remove(&self, viewer: Viewer, id: &str) -> Result<(), ApiError>;

    /// The finished file of a completed job that `viewer` may see.
    async fn sound(&self, viewer: Viewer, job: &Job) -> Result<Sound, ApiError>;

    /// Jobs that wait or are worked on; `None` where the store does not say so soon.
    async fn depth(&self) -> Option<usize>;

    /// Runs the workers until they end, with what the store needs beside them. `stop`: the server stops.
    async fn serve(&self, workers: BoxFuture<'_, ()>, stop: &CancellationToken);

    /// Waits for a job and takes it; `None` once the server stops.
    async fn next(&self, stop: &CancellationToken) -> Option<(Box<dyn HeldJob>, SpeechSpec)>;
}

/// A job that this hub works on. Dropping it ends that.
#[async_trait]
pub(super) trait HeldJob: Send + Sync {
    /// The job, as this hub left it.
    fn job(&self) -> Job;

    /// Cancelled when it is this hub's no more.
    fn moved(&self) -> CancellationToken;

    /// Why it is this hub's no more.
    fn why_moved(&self) -> Stop;

    /// Shows other hubs that it is worked on, until it is dropped. Never ends.
    fn heartbeat(&self) -> BoxFuture<'static, ()>;

    /// Keeps its next chunk.
    async fn append(&mut self, pcm: &[i16]) -> Result<(), Stop>;

    /// Lets another voice speak it, from its beginning.
    async fn revoice(&mut self, voice: &str) -> Result<(), Stop>;

    /// Writes its file and publishes it. `cancel` ends the encoding.
    async fn finish(&mut self, cancel: &CancellationToken) -> Result<(), Stop>;

    /// Ends it: it failed.
    async fn fail(&mut self, failure: Failure);

    /// Ends it because of [`Stop::Revoked`]. Whether it failed; if not, another hub that knows the key may do it.
    async fn revoke(&mut self) -> bool;

    /// It was removed: it need not be done.
    async fn forget(&self);

    /// Leaves it to the next hub, or to this one's next start.
    async fn release(&mut self);
}
