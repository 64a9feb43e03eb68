//! What routes and workers do with jobs, in either store: this hub's [`Store`], or all hubs of the cluster
//! ([`ClusterStore`]).
//!
//! [`ClusterStore`]: super::cluster_store::ClusterStore

use super::cluster_store::{Claim, Stop};
use super::job::{Failure, Job, now};
use super::store::{Store, StoreError, file_name};
use super::{AGAIN, Jobs, SWEEP, worker};
use crate::server::speech::error::ApiError;
use crate::server::speech::spec::SpeechSpec;
use antiphon_cluster::jetstream::RecordError;
use antiphon_session::Viewer;
use antiphon_types::KeyId;
use antiphon_types::sealed::{BlockReader, Sealing};
use bytes::Bytes;
use futures_util::stream::BoxStream;
use futures_util::{StreamExt, TryStreamExt};
use std::io;
use std::sync::Arc;
use tokio::fs::File;
use tokio::io::AsyncReadExt;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

/// What is read of a file at once.
const BLOCK: usize = 64 << 10;

/// The bytes of a finished file.
pub(super) type Sound = BoxStream<'static, io::Result<Bytes>>;

impl Jobs {
    /// Takes a job. `digest`: of the request, where it came with an idempotency key, which `id` is derived from: then a job that
    /// is there already is returned. `most`: unfinished jobs that the owner may have.
    pub(super) async fn add(
        &self,
        id: String,
        (owner, most): (Option<KeyId>, usize),
        wish: SpeechSpec,
        digest: Option<String>,
    ) -> Result<Job, ApiError> {
        if let Some(shared) = &self.shared {
            return shared.add(&id, (owner, most), &wish, digest).await;
        }
        let add = move |store: &mut Store| store.add(&id, (owner, most), &wish, digest.as_deref(), now());
        let job = self.with(add).await?;
        self.work.notify_one();
        Ok(job)
    }

    /// One job, where `viewer` may see it; to others it is as if there were none.
    pub(super) async fn job_for(&self, viewer: Viewer, id: String) -> Result<Job, ApiError> {
        match &self.shared {
            Some(shared) => shared.job_for(viewer, &id).await,
            None => self.with_those(move |store| store.job_for(viewer, &id)).await,
        }
    }

    /// Those that `viewer` may see, the newest first, at most `n`, behind `after` where there is one.
    pub(super) async fn list(&self, viewer: Viewer, after: Option<String>, n: usize) -> Result<Vec<Job>, ApiError> {
        if let Some(shared) = &self.shared {
            return Ok(shared.list(viewer, after.as_deref(), n));
        }
        let list = move |store: &mut Store| store.list(viewer, after.as_deref(), n);
        if self.are_some().await? { self.with(list).await } else { Ok(Vec::new()) }
    }

    /// Removes a job that `viewer` may see, and ends the work on it.
    pub(super) async fn remove(&self, viewer: Viewer, id: String) -> Result<(), ApiError> {
        if let Some(shared) = &self.shared {
            return shared.remove(viewer, &id).await;
        }
        let asked = id.clone();
        self.with_those(move |store| {
            store.job_for(viewer, &asked)?;
            store.delete(&asked)
        })
        .await?;
        if let Some(running) = self.running.lock().expect("no panic while locked").get(&id) {
            running.cancel();
        }
        Ok(())
    }

    /// The finished file of a completed job that `viewer` may see.
    pub(super) async fn sound(&self, viewer: Viewer, job: &Job) -> Result<Sound, ApiError> {
        let gone = || ApiError::failed("The job's file is gone.");
        if let Some(shared) = &self.shared {
            let mut sound = shared.file(viewer, &job.id).await?.ok_or_else(gone)?.peekable();
            // What cannot be read at all is no answer that breaks off.
            if let Some(Err(error)) = std::pin::Pin::new(&mut sound).peek().await {
                tracing::warn!(%error, "a finished job's file cannot be read");
                return Err(gone());
            }
            let broken = |error: RecordError| {
                tracing::warn!(%error, "a finished job's file breaks off");
                io::Error::other(error)
            };
            return Ok(sound.map_err(broken).boxed());
        }
        let id = job.id.clone();
        let format = job.format;
        let path = self.with_those(move |store| Ok(store.file(&id, format))).await?;
        let file = File::open(path).await.map_err(|error| {
            tracing::warn!(%error, "a finished job's file is gone");
            gone()
        })?;
        let Some(sealing) = self.sealing.clone() else { return Ok(blocks(file)) };
        let mut sound = opened_blocks(file.into_std().await, sealing, job).peekable();
        // As above.
        if let Some(Err(error)) = std::pin::Pin::new(&mut sound).peek().await {
            tracing::warn!(job = job.id, %error, "a finished job's file cannot be opened");
            return Err(gone());
        }
        Ok(sound.boxed())
    }

    /// Waits for a job and takes it; `None` once the server stops.
    pub(super) async fn next(&self, stop: &CancellationToken) -> Option<(Held, SpeechSpec)> {
        if let Some(shared) = &self.shared {
            return tokio::select! {
                (claim, wish) = shared.next() => Some((Held::Shared(Box::new(claim)), wish)),
                () = stop.cancelled() => None,
            };
        }
        while !stop.is_cancelled() {
            let idle = match self.with(|store| store.take(now())).await {
                Ok(Some((job, wish))) => return Some((Held::local(self, job), wish)),
                Ok(None) => SWEEP,
                // Told where it happened; another try may find the disk in a better state.
                Err(_) => AGAIN,
            };
            tokio::select! {
                _ = timeout(idle, self.work.notified()) => {}
                () = stop.cancelled() => {}
            }
        }
        None
    }
}

/// A job that this hub works on.
pub(super) enum Held {
    /// One of this hub's store, with the token that its removal cancels.
    Local(Box<Job>, CancellationToken),
    /// One of the cluster.
    Shared(Box<Claim>),
}

impl Held {
    fn local(jobs: &Jobs, job: Job) -> Self {
        let removed = CancellationToken::new();
        jobs.running.lock().expect("no panic while locked").insert(job.id.clone(), removed.clone());
        Self::Local(Box::new(job), removed)
    }

    /// The job, as this hub left it.
    pub(super) fn job(&self) -> Job {
        match self {
            Self::Local(job, _) => (**job).clone(),
            Self::Shared(claim) => claim.job(),
        }
    }

    /// Cancelled when it is this hub's no more.
    pub(super) fn moved(&self) -> CancellationToken {
        match self {
            Self::Local(_, removed) => removed.clone(),
            Self::Shared(claim) => claim.moved(),
        }
    }

    /// Why it is this hub's no more.
    pub(super) fn why_moved(&self) -> Stop {
        match self {
            Self::Shared(claim) if !claim.is_removed() => Stop::Moved,
            _ => Stop::Gone,
        }
    }

    /// Says to others that it is worked on, until it is dropped.
    pub(super) fn heartbeat(&self) -> impl Future<Output = ()> + use<> {
        let heartbeat = match self {
            Self::Local(..) => None,
            Self::Shared(claim) => Some(claim.heartbeat()),
        };
        async move {
            match heartbeat {
                Some(heartbeat) => heartbeat.await,
                None => std::future::pending().await,
            }
        }
    }

    /// Keeps its next chunk.
    pub(super) async fn append(&mut self, jobs: &Jobs, pcm: Vec<i16>) -> Result<(), Stop> {
        match self {
            Self::Local(job, _) => {
                let id = job.id.clone();
                kept(jobs, move |store| store.append(&id, &pcm, now())).await?;
                job.n_done += 1;
                Ok(())
            }
            Self::Shared(claim) => claim.append(&pcm).await,
        }
    }

    /// Lets another voice speak it, from its beginning.
    pub(super) async fn revoice(&mut self, jobs: &Jobs, voice: &str) -> Result<(), Stop> {
        match self {
            Self::Local(job, _) => {
                let id = job.id.clone();
                let voice = voice.to_owned();
                kept(jobs, move |store| store.revoice(&id, &voice)).await?;
                job.n_done = 0;
                Ok(())
            }
            Self::Shared(claim) => claim.revoice(voice).await,
        }
    }

    /// Writes its file and publishes it. `cancel` ends the encoding.
    pub(super) async fn finish(&mut self, jobs: &Jobs, cancel: &CancellationToken) -> Result<(), Stop> {
        match self {
            Self::Local(job, _) => worker::finish(jobs, job, cancel).await,
            Self::Shared(claim) => claim.finish().await,
        }
    }

    /// Ends it: it failed.
    pub(super) async fn fail(&mut self, jobs: &Jobs, failure: Failure) {
        match self {
            Self::Local(job, _) => {
                let id = job.id.clone();
                // Whether that could be written down is the store's affair.
                let _ = jobs
                    .with(move |store| {
                        store.fail(&id, failure, now());
                        Ok(())
                    })
                    .await;
            }
            Self::Shared(claim) => claim.fail(failure).await,
        }
    }

    /// It was removed: it need not be done.
    pub(super) async fn forget(&self) {
        if let Self::Shared(claim) = self {
            claim.confirm().await;
        }
    }

    /// Leaves it to the next hub, or to this one's next start.
    pub(super) async fn release(&mut self) {
        if let Self::Shared(claim) = self {
            claim.release().await;
        }
    }

    /// Ends the holding.
    pub(super) fn let_go(self, jobs: &Jobs) {
        if let Self::Local(job, _) = self {
            jobs.running.lock().expect("no panic while locked").remove(&job.id);
        }
    }
}

fn blocks(mut file: File) -> Sound {
    let blocks = async_stream::stream! {
        loop {
            let mut block = vec![0; BLOCK];
            match file.read(&mut block).await {
                Ok(0) => return,
                Ok(n) => {
                    block.truncate(n);
                    yield Ok(Bytes::from(block));
                }
                Err(error) => {
                    yield Err(error);
                    return;
                }
            }
        }
    };
    blocks.boxed()
}

/// The content of a sealed file, which is read and opened on a thread for what blocks.
fn opened_blocks(file: std::fs::File, sealing: Arc<dyn Sealing>, job: &Job) -> Sound {
    let id = job.id.clone();
    let n_bytes = job.file_bytes;
    let mut reader = BlockReader::new(io::BufReader::new(file), sealing, file_name(&id));
    let blocks = async_stream::stream! {
        let mut n_left = n_bytes;
        loop {
            let read = move || {
                let block = reader.next_block();
                (reader, block)
            };
            let block;
            (reader, block) = match tokio::task::spawn_blocking(read).await {
                Ok(read) => read,
                Err(error) => {
                    yield Err(io::Error::other(error));
                    return;
                }
            };
            match block {
                Ok(Some(block)) if block.len() as u64 <= n_left => {
                    n_left -= block.len() as u64;
                    yield Ok(Bytes::from(block));
                }
                Ok(None) if n_left == 0 => return,
                other => {
                    let error = other.err().unwrap_or_else(|| io::ErrorKind::InvalidData.into());
                    tracing::warn!(job = id, %error, "a finished job's file breaks off");
                    yield Err(error);
                    return;
                }
            }
        }
    };
    blocks.boxed()
}

/// Does it, and says how the job ends where it could not be done.
pub(super) async fn kept<F>(jobs: &Jobs, work: F) -> Result<(), Stop>
where
    F: FnOnce(&mut Store) -> Result<(), StoreError> + Send + 'static,
{
    let done = jobs
        .with(move |store| {
            Ok(work(store).map_err(|error| match error {
                StoreError::Gone => Stop::Gone,
                error => Stop::Failed(error.failure()),
            }))
        })
        .await;
    done.unwrap_or_else(|error| Err(Stop::Failed(Failure::new(error.code, error.message))))
}
