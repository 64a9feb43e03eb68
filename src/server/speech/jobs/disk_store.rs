//! The jobs of one hub: the [`Store`] on a thread of its own, opened with the first job, or at start where the folder holds jobs
//! already. Listing jobs creates no store.

use super::job::{Failure, Job, now};
use super::job_store::{AddedJob, HeldJob, JobOwner, JobStore, Sound, Stop};
use super::refusal::{failure_of_store, no_such_page, not_opened};
use super::store::{Bounds, Store, StoreError, file_name, private_file, read_spool};
use crate::server::speech::error::ApiError;
use crate::server::speech::spec::SpeechSpec;
use antiphon_audio::encode::{Encoder, FileFormat, RATE};
use antiphon_audio::wav;
use antiphon_inference::pool::Pool;
use antiphon_session::Viewer;
use antiphon_types::Samples;
use antiphon_types::sealed::{BlockReader, BlockWriter, Sealing};
use async_trait::async_trait;
use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::future::{BoxFuture, pending};
use std::collections::HashMap;
use std::io::{self, BufWriter, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use tokio::fs::File;
use tokio::io::AsyncReadExt;
use tokio::sync::{Notify, OnceCell, Semaphore};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

/// How long the metrics wait for the store.
const SOON: Duration = Duration::from_secs(1);
/// How long an idle worker sleeps before it looks for what has been kept too long.
const SWEEP: Duration = Duration::from_secs(600);
/// How long an idle worker sleeps when the store failed.
const AGAIN: Duration = Duration::from_secs(30);
/// Requests of clients that wait for the store or use it; each takes about a millisecond of it.
const MAX_REQUESTS: usize = 256;
/// Places in the store's queue. [`Pool::enqueue`] fills three quarters of it, which hold all requests of clients and a
/// call of each worker: none waits for room, and they come in order.
const QUEUE: usize = 2 * MAX_REQUESTS;
/// What is read of a file at once.
const BLOCK_BYTES: usize = 64 << 10;
/// Samples that are encoded in one go.
const BLOCK_SAMPLES: usize = 1 << 15;

/// The store on its thread, or nothing once it was closed.
type StorePool = Pool<Option<Store>>;

/// See the module. Cheap to clone.
#[derive(Clone)]
pub(super) struct DiskStore(Arc<DiskJobs>);

struct DiskJobs {
    folder: PathBuf,
    bounds: Bounds,
    /// Encrypts texts and sound.
    sealing: Option<Arc<dyn Sealing>>,
    store: OnceCell<StorePool>,
    /// [`MAX_REQUESTS`].
    requests: Semaphore,
    /// Wakes a worker.
    work: Notify,
    /// Wakes those who wait for the store to be opened.
    opened: Notify,
    /// Those under way; cancelled when they are deleted.
    running: Mutex<HashMap<String, CancellationToken>>,
}

impl DiskStore {
    pub(super) fn new(folder: PathBuf, bounds: Bounds, sealing: Option<Arc<dyn Sealing>>) -> Self {
        Self(Arc::new(DiskJobs {
            folder,
            bounds,
            sealing,
            store: OnceCell::new(),
            requests: Semaphore::new(MAX_REQUESTS),
            work: Notify::new(),
            opened: Notify::new(),
            running: Mutex::default(),
        }))
    }

    /// Whether there ever was a job here. Nothing is made by asking.
    async fn are_some(&self) -> bool {
        if self.0.store.initialized() {
            return true;
        }
        // What cannot be looked for may be there: opening it says what is wrong.
        tokio::fs::try_exists(Store::database(&self.0.folder)).await.unwrap_or(true)
    }

    /// The store, opened now where it was not. Loading it takes milliseconds, on a thread for such work.
    async fn opened(&self) -> Result<&StorePool, ApiError> {
        let open = async || {
            let folder = self.0.folder.clone();
            let bounds = self.0.bounds;
            let sealing = self.0.sealing.clone();
            let open = move |_| Store::open(&folder, bounds, sealing.clone()).map(Some);
            let start = move || Pool::start("jobs", 1, QUEUE, open);
            let pool = tokio::task::spawn_blocking(start)
                .await
                .map_err(|error| ApiError::internal("The jobs' store", &error))?;
            pool.map_err(|error| {
                tracing::warn!(folder = %self.0.folder.display(), %error, "the jobs' store cannot be opened");
                not_opened(&error)
            })
        };
        let was_open = self.0.store.initialized();
        let pool = self.0.store.get_or_try_init(open).await?;
        if !was_open {
            self.0.opened.notify_one();
        }
        Ok(pool)
    }

    /// Does something with the jobs that are there; nothing is made where there never was one.
    async fn with_those<T, F>(&self, work: F) -> Result<T, ApiError>
    where
        T: Send + 'static,
        F: FnOnce(&mut Store) -> Result<T, StoreError> + Send + 'static,
    {
        if self.are_some().await { self.with(work).await } else { Err(failure_of_store(&StoreError::Gone)) }
    }

    /// Runs an operation of a client on the store's thread. Once started it completes, even if its caller is gone.
    ///
    /// # Errors
    /// Also 503: [`MAX_REQUESTS`] are there already.
    async fn with<T, F>(&self, work: F) -> Result<T, ApiError>
    where
        T: Send + 'static,
        F: FnOnce(&mut Store) -> Result<T, StoreError> + Send + 'static,
    {
        let busy = |_| ApiError::overloaded("Too many requests wait for the jobs of this server. Try again soon.");
        let _place = self.0.requests.try_acquire().map_err(busy)?;
        self.run(work).await
    }

    /// The same for a worker: its operation is never refused, however many requests wait.
    async fn run<T, F>(&self, work: F) -> Result<T, ApiError>
    where
        T: Send + 'static,
        F: FnOnce(&mut Store) -> Result<T, StoreError> + Send + 'static,
    {
        let pool = self.opened().await?;
        let mut lease = pool.enqueue().await.lease().await;
        let done = lease
            .run(|store| store.as_mut().map(work))
            .await
            .map_err(|error| ApiError::internal("The jobs' store", &error))?;
        let done = done.ok_or_else(|| ApiError::overloaded("The server is about to stop."))?;
        done.map_err(|error| failure_of_store(&error))
    }

    /// The same for the work on a job: how the job ends where it could not be done.
    async fn kept<T, F>(&self, work: F) -> Result<T, Stop>
    where
        T: Send + 'static,
        F: FnOnce(&mut Store) -> Result<T, StoreError> + Send + 'static,
    {
        match self.run(move |store| Ok(work(store))).await {
            Ok(Ok(done)) => Ok(done),
            Ok(Err(StoreError::Gone)) => Err(Stop::Gone),
            Ok(Err(error)) => {
                tracing::warn!(%error, "the jobs' store failed");
                Err(Stop::Failed(error.failure()))
            }
            Err(error) => Err(Stop::Failed(Failure::new(error.code, error.message))),
        }
    }

    fn running(&self) -> MutexGuard<'_, HashMap<String, CancellationToken>> {
        self.0.running.lock().expect("no panic while locked")
    }
}

#[async_trait]
impl JobStore for DiskStore {
    async fn add(
        &self,
        id: &str,
        owner: JobOwner,
        spec: &SpeechSpec,
        digest: Option<String>,
    ) -> Result<AddedJob, ApiError> {
        let id = id.to_owned();
        let spec = spec.clone();
        let JobOwner { key, max_open } = owner;
        let jobs = self.0.clone();
        let add = move |store: &mut Store| -> Result<AddedJob, StoreError> {
            let added = store.add(&id, (key, max_open), &spec, digest.as_deref(), now())?;
            // Here, so that a worker takes it even if the caller is gone.
            jobs.work.notify_one();
            Ok(added)
        };
        self.with(add).await
    }

    async fn job_for(&self, viewer: Viewer, id: &str) -> Result<Job, ApiError> {
        let id = id.to_owned();
        self.with_those(move |store| store.job_for(viewer, &id)).await
    }

    async fn list(&self, viewer: Viewer, after: Option<&str>, n: usize) -> Result<Vec<Job>, ApiError> {
        let after = after.map(str::to_owned);
        if !self.are_some().await {
            return if after.is_some() { Err(no_such_page()) } else { Ok(Vec::new()) };
        }
        self.with(move |store| store.list(viewer, after.as_deref(), n)).await
    }

    async fn remove(&self, viewer: Viewer, id: &str) -> Result<(), ApiError> {
        let removed = id.to_owned();
        self.with_those(move |store| {
            store.job_for(viewer, &removed)?;
            store.delete(&removed)
        })
        .await?;
        if let Some(running) = self.running().get(id) {
            running.cancel();
        }
        Ok(())
    }

    async fn sound(&self, _: Viewer, job: &Job) -> Result<Sound, ApiError> {
        let gone = || ApiError::failed("The job's file is gone.");
        let id = job.id.clone();
        let format = job.format;
        let path = self.with_those(move |store| Ok(store.file(&id, format))).await?;
        let file = File::open(path).await.map_err(|error| {
            tracing::warn!(%error, "a finished job's file is gone");
            gone()
        })?;
        let Some(sealing) = self.0.sealing.clone() else { return Ok(blocks(file)) };
        let mut sound = opened_blocks(file.into_std().await, sealing, job).peekable();
        // What cannot be read at all is no answer that breaks off.
        if let Some(Err(error)) = std::pin::Pin::new(&mut sound).peek().await {
            tracing::warn!(job = job.id, %error, "a finished job's file cannot be opened");
            return Err(gone());
        }
        Ok(sound.boxed())
    }

    /// None before there was one.
    async fn depth(&self) -> Option<usize> {
        match self.0.store.get() {
            Some(_) => timeout(SOON, self.with(|store| store.n_open())).await.ok()?.ok(),
            None => Some(0),
        }
    }

    /// The workers begin once the store is open.
    async fn serve(&self, workers: BoxFuture<'_, ()>, stop: &CancellationToken) {
        if self.are_some().await {
            // The reason is reported where it occurs.
            let _ = self.opened().await;
        }
        while self.0.store.get().is_none() {
            tokio::select! {
                () = self.0.opened.notified() => {}
                () = stop.cancelled() => return,
            }
        }
        workers.await;
        // The folder is free for the next hub when this one has ended.
        if let Some(pool) = self.0.store.get() {
            let mut lease = pool.enqueue().await.lease().await;
            let _ = lease.run(|store| drop(store.take())).await;
        }
    }

    async fn next(&self, stop: &CancellationToken) -> Option<(Box<dyn HeldJob>, SpeechSpec)> {
        while !stop.is_cancelled() {
            let idle = match self.run(|store| store.take(now())).await {
                Ok(Some((job, spec))) => {
                    // There may be more: two jobs that are added before a worker waits wake one.
                    self.0.work.notify_one();
                    return Some((Box::new(DiskJob::new(self, job)), spec));
                }
                Ok(None) => SWEEP,
                // It was reported where it happened; another try may find the disk in a better state.
                Err(_) => AGAIN,
            };
            tokio::select! {
                _ = timeout(idle, self.0.work.notified()) => {}
                () = stop.cancelled() => {}
            }
        }
        None
    }
}

/// A job of this hub that is worked on.
struct DiskJob {
    store: DiskStore,
    job: Job,
    removed: CancellationToken,
}

impl DiskJob {
    fn new(store: &DiskStore, job: Job) -> Self {
        let removed = CancellationToken::new();
        store.running().insert(job.id.clone(), removed.clone());
        Self { store: store.clone(), job, removed }
    }
}

impl Drop for DiskJob {
    fn drop(&mut self) {
        self.store.running().remove(&self.job.id);
    }
}

#[async_trait]
impl HeldJob for DiskJob {
    fn job(&self) -> Job {
        self.job.clone()
    }

    fn moved(&self) -> CancellationToken {
        self.removed.clone()
    }

    fn why_moved(&self) -> Stop {
        Stop::Gone
    }

    fn heartbeat(&self) -> BoxFuture<'static, ()> {
        Box::pin(pending())
    }

    async fn append(&mut self, pcm: &[i16]) -> Result<(), Stop> {
        let id = self.job.id.clone();
        let pcm = pcm.to_vec();
        self.store.kept(move |store| store.append(&id, &pcm, now())).await?;
        self.job.n_done += 1;
        Ok(())
    }

    async fn revoice(&mut self, voice: &str) -> Result<(), Stop> {
        let id = self.job.id.clone();
        let voice = voice.to_owned();
        self.store.kept(move |store| store.revoice(&id, &voice)).await?;
        self.job.n_done = 0;
        Ok(())
    }

    async fn finish(&mut self, cancel: &CancellationToken) -> Result<(), Stop> {
        let id = self.job.id.clone();
        let place = self.store.kept(move |store| Ok((store.spool(&id), store.job(&id)?.pcm_bytes, store.sealing())));
        let (spool, n_bytes, sealing) = place.await?;
        // A name of its own: an encoder of a hub before this one may not have noticed yet that it is to stop.
        let part = Part(spool.with_extension(format!("{:08x}.part", rand::random::<u32>())));
        let id = self.job.id.clone();
        let format = self.job.format;
        let cancel = cancel.clone();
        let encode = move || encode(Source { spool: &spool, id: &id, n_bytes, format, sealing }, part, &cancel);
        let encoded = tokio::task::spawn_blocking(encode)
            .await
            .unwrap_or_else(|error| Err(StoreError::File(io::Error::other(error))));
        match encoded {
            Err(error) => {
                tracing::warn!(%error, "a job's file could not be written");
                Err(Stop::Failed(error.failure()))
            }
            Ok(part) => {
                let id = self.job.id.clone();
                self.store.kept(move |store| store.finish(&id, &part.0, now())).await
            }
        }
    }

    async fn fail(&mut self, failure: Failure) {
        let id = self.job.id.clone();
        // Whether that could be written down is the store's affair.
        let _ = self
            .store
            .run(move |store| {
                store.fail(&id, failure, now());
                Ok(())
            })
            .await;
    }

    async fn revoke(&mut self) -> bool {
        self.fail(Failure::key_revoked()).await;
        true
    }

    async fn forget(&self) {}

    async fn release(&mut self) {}
}

fn blocks(mut file: File) -> Sound {
    let blocks = async_stream::stream! {
        loop {
            let mut block = vec![0; BLOCK_BYTES];
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

/// A file that is being written. Dropping it removes the file unless it was renamed to its final name; any task may be the
/// last owner, because the waiting one may be cancelled.
struct Part(PathBuf);

impl Drop for Part {
    fn drop(&mut self) {
        // It may never have been there.
        let _ = std::fs::remove_file(&self.0);
    }
}

/// What a job's file is made of.
struct Source<'a> {
    spool: &'a Path,
    id: &'a str,
    /// Bytes of samples in the spool; what is behind them does not count.
    n_bytes: u64,
    format: FileFormat,
    /// Opens the spool and seals the file.
    sealing: Option<Arc<dyn Sealing>>,
}

fn encode(source: Source<'_>, part: Part, cancel: &CancellationToken) -> Result<Part, StoreError> {
    let Source { spool, id, n_bytes, format, sealing } = source;
    let from = read_spool(spool, id, sealing.as_ref())?;
    let mut to = BufWriter::new(private_file().truncate(true).open(&part.0)?);
    match sealing {
        None => encode_to(from, &mut to, (n_bytes, format), cancel)?,
        Some(sealing) => {
            let mut sealed = BlockWriter::new(to, sealing, file_name(id));
            encode_to(from, &mut sealed, (n_bytes, format), cancel)?;
            to = sealed.finish()?;
        }
    }
    to.into_inner().map_err(|error| error.into_error())?.sync_data()?;
    Ok(part)
}

fn encode_to(
    from: impl Read,
    to: &mut impl Write,
    (n_bytes, format): (u64, FileFormat),
    cancel: &CancellationToken,
) -> Result<(), StoreError> {
    let failed = |error: antiphon_audio::encode::EncodeError| io::Error::other(error);
    let mut encoder = Encoder::new(format).map_err(failed)?;
    let mut from = from.take(n_bytes);
    // The encoder's own header does not say how long the file is.
    let mut header = (format == FileFormat::Wav).then(|| wav::header(RATE, Some(Samples(n_bytes / 2))));
    let mut put = |bytes: &mut Vec<u8>| {
        if let Some(header) = header.take() {
            bytes[..header.len()].copy_from_slice(&header);
        }
        to.write_all(bytes)
    };
    let mut block = Vec::new();
    let mut bytes = Vec::new();
    loop {
        block.clear();
        bytes.clear();
        if from.by_ref().take(2 * BLOCK_SAMPLES as u64).read_to_end(&mut block)? == 0 {
            break;
        }
        if cancel.is_cancelled() {
            return Err(StoreError::Gone);
        }
        let samples: Vec<i16> = block.chunks_exact(2).map(|pair| i16::from_le_bytes([pair[0], pair[1]])).collect();
        encoder.push(&samples, &mut bytes).map_err(failed)?;
        put(&mut bytes)?;
    }
    if from.limit() > 0 {
        return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
    }
    encoder.finish(&mut bytes).map_err(failed)?;
    Ok(put(&mut bytes)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::response::IntoResponse;
    use futures_util::future::join_all;

    fn jobs(folder: &Path) -> DiskStore {
        DiskStore::new(folder.into(), Bounds { n_open: 3, bytes: 1 << 20, keep_s: 100 }, None)
    }

    #[tokio::test]
    async fn who_looks_for_jobs_makes_none() {
        let parent = tempfile::tempdir().expect("a folder");
        let folder = parent.path().join("jobs");
        let jobs = jobs(&folder);
        assert!(!jobs.are_some().await);
        let looked: Result<_, ApiError> = jobs.with_those(|store| store.job("job_a")).await;
        assert_eq!(looked.expect_err("there is none").code, "job_not_found");
        assert!(!folder.exists());
        jobs.opened().await.expect("made");
        assert!(jobs.are_some().await);
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

    /// A job in the store that a worker has taken.
    async fn taken(jobs: &DiskStore) -> Box<dyn HeldJob> {
        let spec = SpeechSpec {
            chunks: vec!["one".into()],
            n_chars: 3,
            voice: "v".into(),
            is_own_voice: true,
            seed: None,
            speed: 1.0,
            instructions: None,
            format: FileFormat::Pcm,
            as_events: false,
            model: None,
        };
        jobs.add("job_a", JobOwner { key: None, max_open: usize::MAX }, &spec, None).await.expect("added");
        let (held, _) = jobs.next(&CancellationToken::new()).await.expect("a job");
        held
    }

    #[tokio::test(start_paused = true)]
    async fn a_worker_waits_its_turn_where_clients_are_refused() {
        let folder = tempfile::tempdir().expect("a folder");
        let jobs = jobs(folder.path());
        let mut held = taken(&jobs).await;
        let (go, wait) = std::sync::mpsc::channel::<()>();
        let hangs = jobs.with(move |_| {
            let _ = wait.recv();
            Ok(())
        });
        let looks = join_all((1..MAX_REQUESTS).map(|_| jobs.job_for(Viewer::All, "job_a")));
        let works = async {
            while jobs.0.requests.available_permits() > 0 {
                tokio::task::yield_now().await;
            }
            let refused = jobs.job_for(Viewer::All, "job_a").await.expect_err("too many");
            assert!(refused.is_busy(), "{refused:?}");
            {
                let mut kept = std::pin::pin!(held.append(&[1; 10]));
                assert!(timeout(SOON, kept.as_mut()).await.is_err(), "it waits");
                drop(go);
                kept.await.expect("kept");
            }
            held.finish(&CancellationToken::new()).await.expect("finished");
        };
        let (hung, looked, ()) = tokio::join!(hangs, looks, works);
        hung.expect("done");
        assert!(looked.iter().all(Result::is_ok));
    }

    #[tokio::test]
    async fn a_job_is_gone_where_it_was_removed_and_fails_where_the_store_does() {
        let folder = tempfile::tempdir().expect("a folder");
        let jobs = jobs(folder.path());
        let mut removed = taken(&jobs).await;
        jobs.remove(Viewer::All, "job_a").await.expect("removed");
        assert!(matches!(removed.finish(&CancellationToken::new()).await, Err(Stop::Gone)));
        let mut held = taken(&jobs).await;
        let mut lease = jobs.opened().await.expect("open").enqueue().await.lease().await;
        lease.run(|store| drop(store.take())).await.expect("closed");
        drop(lease);
        assert!(matches!(held.finish(&CancellationToken::new()).await, Err(Stop::Failed(_))));
    }

    #[tokio::test]
    async fn a_job_that_the_database_does_not_take_fails_and_why_is_in_the_log_only() {
        let folder = tempfile::tempdir().expect("a folder");
        let jobs = jobs(folder.path());
        let mut held = taken(&jobs).await;
        let other = rusqlite::Connection::open(Store::database(folder.path())).expect("open");
        other.execute_batch("ALTER TABLE jobs RENAME TO away").expect("renamed");
        let log = Log::default();
        let lines = log.clone();
        let subscriber = tracing_subscriber::fmt().with_writer(move || lines.clone()).finish();
        let _logging = tracing::subscriber::set_default(subscriber);
        let Err(Stop::Failed(failure)) = held.append(&[1; 10]).await else { panic!("the table is away") };
        assert_eq!(failure, Failure::new("storage_failed", "The server could not keep the job's sound."));
        let log = String::from_utf8(log.0.lock().expect("no panic").clone()).expect("text");
        assert!(log.contains("no such table: jobs"), "{log}");
    }

    /// The lines that were logged.
    #[derive(Clone, Default)]
    struct Log(Arc<Mutex<Vec<u8>>>);

    impl Write for Log {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().expect("no panic").extend(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn files(folder: &Path) -> Vec<String> {
        let files = std::fs::read_dir(folder).expect("there");
        files.map(|entry| entry.expect("one").file_name().to_string_lossy().into_owned()).collect()
    }

    /// A second of sound that is encoded; the folder it is in.
    fn encoded(format: FileFormat, cancel: &CancellationToken) -> (tempfile::TempDir, Result<Part, StoreError>) {
        let folder = tempfile::tempdir().expect("a folder");
        let spool = folder.path().join("job_a.pcm");
        let part = Part(folder.path().join("job_a.0.part"));
        std::fs::write(&spool, vec![7; 48_000 + 99]).expect("written");
        let source = Source { spool: &spool, id: "job_a", n_bytes: 48_000, format, sealing: None };
        let done = encode(source, part, cancel);
        (folder, done)
    }

    #[test]
    fn a_file_that_nobody_takes_is_removed() {
        let (folder, done) = encoded(FileFormat::Mp3, &CancellationToken::new());
        assert_eq!(files(folder.path()).len(), 2);
        // As when the job is deleted while its file is written: the result is not needed.
        drop(done);
        assert_eq!(files(folder.path()), ["job_a.pcm"]);
        let cancelled = CancellationToken::new();
        cancelled.cancel();
        let (folder, done) = encoded(FileFormat::Mp3, &cancelled);
        assert!(matches!(done, Err(StoreError::Gone)));
        assert_eq!(files(folder.path()), ["job_a.pcm"]);
    }

    #[test]
    fn a_finished_wav_file_says_how_long_it_is() {
        let (_folder, done) = encoded(FileFormat::Wav, &CancellationToken::new());
        let reader = hound::WavReader::open(&done.expect("encoded").0).expect("a header");
        assert_eq!((reader.duration(), reader.spec().sample_rate), (24_000, 24_000));
    }
}
