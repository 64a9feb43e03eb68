//! Jobs of all hubs of a cluster, in JetStream: any hub can accept, run, report and serve a job.
//!
//! A job's record holds what clients see and which attempt holds it; the record's revision fences: a hub whose job was given to
//! another one cannot write any more. The text and the samples are objects of their own: samples are stored chunk by chunk under
//! the attempt's name, so that the next hub goes on behind the last chunk that the record counts, and what a dead hub left
//! uncounted is never read. The queue names the jobs that are not finished; a job is done once, because the record is changed
//! to "completed" once.
//!
//! [`Index`] is what a hub knows of all records from following them: it lists and counts, and learns that a job was removed or
//! given to another hub. What decides is read from the record itself.

use super::fair;
use super::job::{Failure, Job, Status, now};
use super::job_store::{AddedJob, HeldJob, JobOwner, JobStore, Sound, Stop};
use super::refusal::{failure_of_store, no_such_page, other_request};
use super::store::{Bounds, StoreError};
use crate::server::access::live_keys::LiveKeys;
use crate::server::speech::error::ApiError;
use crate::server::speech::spec::SpeechSpec;
use antiphon_audio::encode::{Encoder, FileFormat, RATE};
use antiphon_audio::wav;
use antiphon_cluster::JetStream;
use antiphon_cluster::jetstream::{ObjectReader, Queue, RecordError, Task};
use antiphon_session::Viewer;
use antiphon_types::{KeyId, RetryPolicy, Samples};
use async_trait::async_trait;
use axum::http::StatusCode;
use futures_util::future::BoxFuture;
use futures_util::{StreamExt, TryStreamExt, stream};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::task::spawn_blocking;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// The version of records and requests. A hub leaves jobs of a later one to hubs that know it.
const SCHEMA: u32 = 1;

/// How long text and samples of a job that is not finished are kept: longer than a job takes.
const UNFINISHED_FOR: Duration = Duration::from_secs(30 * 86_400);

/// How much longer than the record a file is kept, so that a download that has begun is completed.
const FILE_AFTER_RECORD: Duration = Duration::from_secs(3_600);

/// How long a hub waits for JetStream with a job in hand. Another one has it after 10 s if that one sees JetStream.
const PATIENCE: Duration = Duration::from_secs(1_200);
const RETRY: RetryPolicy = RetryPolicy::unbounded(Duration::from_millis(200), Duration::from_secs(2));

/// The time after which a job that this hub cannot do, because of its version, its sealing key or its API key, is given to
/// a hub again.
const NOT_MINE_FOR: Duration = Duration::from_secs(30);
/// Seconds for which hubs may know different API keys. Then a job whose key a hub does not know fails: it counts among the open
/// jobs of all hubs.
const KEYS_DIFFER_FOR_S: i64 = 86_400;

/// The time after which a job that was passed over for another owner's is given to a hub again.
const PASSED_OVER_FOR: Duration = Duration::from_secs(1);
/// How long a hub passes jobs over in a row: what waits in the queue comes within this time.
const PASSES_FOR: Duration = Duration::from_secs(2);

/// Between two looks for jobs that are not in the queue, because a hub died between writing the record and the queue.
const CHECK_QUEUE_EVERY: Duration = Duration::from_secs(60);
/// A job is younger than this while its hub is still about to put it into the queue.
const QUEUED_WITHIN_S: i64 = 30;

/// Objects that are removed at once.
const REMOVALS: usize = 8;

/// A job as it is stored. Fields are added with defaults; what an older hub would misunderstand raises [`SCHEMA`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct JobRecord {
    schema: u32,
    status: String,
    created: i64,
    /// Orders the list.
    created_us: u64,
    started: Option<i64>,
    ended: Option<i64>,
    n_chunks: usize,
    n_done: usize,
    n_chars: usize,
    voice: String,
    is_own_voice: bool,
    speed: f32,
    format: String,
    pcm_bytes: u64,
    file_bytes: u64,
    failure: Option<(String, String)>,
    model: Option<String>,
    /// Of its first chunk, for engines that sample: the next hub says a chunk as the one before it would have.
    seed: u64,
    /// The API key it belongs to.
    owner: Option<String>,
    /// The object with its text.
    request: String,
    /// SHA-256 of the request's body, where it came with an idempotency key.
    digest: Option<String>,
    /// The attempt that holds it, or was the last one.
    attempt: Option<String>,
    /// Where its chunks are, in order.
    runs: Vec<Run>,
    /// The object with the finished file.
    file: Option<String>,
}

/// Chunks whose objects have names of one series: an attempt's, or that of a voice.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Run {
    series: String,
    first: usize,
    n: usize,
}

/// The text of a job, and how to speak it.
#[derive(Serialize, Deserialize)]
struct Text {
    schema: u32,
    chunks: Vec<String>,
    instructions: Option<String>,
}

#[derive(Deserialize)]
struct Versioned {
    schema: u32,
}

impl JobRecord {
    fn new(owner: Option<KeyId>, spec: &SpeechSpec, request: String, digest: Option<String>) -> Self {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self {
            schema: SCHEMA,
            status: Status::Queued.name().into(),
            created: now(),
            created_us: u64::try_from(since.as_micros()).unwrap_or(u64::MAX),
            started: None,
            ended: None,
            n_chunks: spec.chunks.len(),
            n_done: 0,
            n_chars: spec.n_chars,
            voice: spec.voice.clone(),
            is_own_voice: spec.is_own_voice,
            speed: spec.speed,
            format: spec.format.name().into(),
            pcm_bytes: 0,
            file_bytes: 0,
            failure: None,
            model: spec.model.clone(),
            seed: rand::random(),
            owner: owner.map(|owner| owner.to_string()),
            request,
            digest,
            attempt: None,
            runs: Vec::new(),
            file: None,
        }
    }

    fn read(bytes: &[u8]) -> Result<Self, Unreadable> {
        match serde_json::from_slice::<Versioned>(bytes) {
            Ok(Versioned { schema }) if schema > SCHEMA => Err(Unreadable::Newer(schema)),
            _ => serde_json::from_slice(bytes).map_err(|_| Unreadable::Malformed),
        }
    }

    fn bytes(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("texts and numbers are JSON")
    }

    fn status(&self) -> Status {
        Status::named(&self.status)
    }

    fn is_open(&self) -> bool {
        matches!(self.status(), Status::Queued | Status::Running)
    }

    fn is_seen_by(&self, viewer: Viewer) -> bool {
        match viewer {
            Viewer::All => true,
            Viewer::Key(key) => self.owner.as_deref() == Some(key.to_string().as_str()),
            Viewer::Nobody => false,
        }
    }

    /// What it takes of `speech.jobs_max_mib`.
    fn takes(&self) -> u64 {
        if self.status() == Status::Completed { self.file_bytes } else { self.pcm_bytes }
    }

    fn job(&self, id: &str) -> Job {
        Job {
            id: id.into(),
            status: self.status(),
            created: self.created,
            started: self.started,
            ended: self.ended,
            n_chunks: self.n_chunks,
            n_done: self.n_done,
            n_chars: self.n_chars,
            voice: self.voice.clone(),
            speed: self.speed,
            format: FileFormat::named(&self.format).unwrap_or(FileFormat::Pcm),
            pcm_bytes: self.pcm_bytes,
            file_bytes: self.file_bytes,
            failure: self.failure.as_ref().map(|(code, message)| Failure::new(code, message.clone())),
            model: self.model.clone(),
            owner: self.owner.clone(),
        }
    }

    /// Objects with its samples, in order.
    fn segments(&self, id: &str) -> Vec<String> {
        let of_run = |run: &Run| {
            let series = run.series.clone();
            (run.first..run.first + run.n).map(move |at| segment(id, &series, at))
        };
        self.runs.iter().flat_map(of_run).collect()
    }

    /// All its objects but the finished file.
    fn leftovers(&self, id: &str) -> Vec<String> {
        let mut names = self.segments(id);
        names.push(self.request.clone());
        names
    }
}

fn segment(id: &str, series: &str, at: usize) -> String {
    format!("{id}/{series}/{at}")
}

/// Why a record cannot be used here.
#[derive(Debug, thiserror::Error)]
enum Unreadable {
    #[error("it is of schema {0}, and this hub reads {SCHEMA}: update this hub")]
    Newer(u32),
    #[error("it is malformed")]
    Malformed,
}

/// The records as this hub knows them.
#[derive(Default)]
struct Index {
    /// Records by id, with their revision; `None` where one was removed.
    records: HashMap<String, (u64, Option<JobRecord>)>,
    /// Since when this hub has passed jobs over for those of other owners without taking one.
    passing_since: Option<Instant>,
    /// Attempts of this hub, which end when another one has the job.
    running: HashMap<String, (String, CancellationToken)>,
}

impl Index {
    /// Takes a record as it is at a revision; older news change nothing.
    fn note(&mut self, id: &str, revision: u64, stored: Option<JobRecord>) {
        if self.records.get(id).is_some_and(|(known, _)| *known > revision) {
            return;
        }
        if let Some((attempt, cancel)) = self.running.get(id)
            && stored.as_ref().is_none_or(|stored| stored.attempt.as_ref() != Some(attempt))
        {
            cancel.cancel();
        }
        self.records.insert(id.into(), (revision, stored));
    }

    /// Forgets jobs that were removed, and those whose time is over. Older news of a removed one list it until its removal
    /// is heard.
    fn forget_gone(&mut self, keep_s: i64, time: i64) {
        let is_kept = |stored: &JobRecord| stored.ended.is_none_or(|ended| ended + keep_s > time);
        self.records.retain(|_, (_, stored)| stored.as_ref().is_some_and(is_kept));
    }

    fn all(&self) -> impl Iterator<Item = (&String, &JobRecord)> {
        self.records.iter().filter_map(|(id, (_, stored))| Some((id, stored.as_ref()?)))
    }

    fn n_open(&self) -> usize {
        self.all().filter(|(_, stored)| stored.is_open()).count()
    }

    fn n_open_of(&self, owner: Option<&str>) -> usize {
        self.all().filter(|(_, stored)| stored.is_open() && stored.owner.as_deref() == owner).count()
    }

    /// Whether a job that this owner has in the queue lets another owner go first, as [`Store::take`](super::store::Store::take)
    /// has it: one that has a job waiting, and fewer under way, or whose last job began earlier. `is_known`: whether this
    /// hub takes the jobs of an owner.
    fn lets_others_first(&self, owner: Option<&str>, is_known: impl Fn(Option<&str>) -> bool) -> bool {
        #[derive(Default)]
        struct Owner {
            turn: (usize, Option<i64>),
            waits: bool,
        }
        let mut owners: HashMap<Option<&str>, Owner> = HashMap::new();
        for (_, stored) in self.all() {
            let is_held = stored.status() == Status::Running;
            let of = owners.entry(stored.owner.as_deref()).or_default();
            of.turn.0 += usize::from(is_held);
            of.turn.1 = of.turn.1.max(stored.started);
            of.waits |= stored.status() == Status::Queued;
        }
        let own = owners.get(&owner).map_or((0, None), |of| of.turn);
        owners.iter().any(|(other, of)| *other != owner && of.waits && of.turn < own && is_known(*other))
    }
}

/// See the module. Cheap to clone.
#[derive(Clone)]
pub(super) struct ClusterStore {
    jetstream: JetStream,
    bounds: Bounds,
    index: Arc<Mutex<Index>>,
    tasks: TaskTracker,
    keys: Arc<LiveKeys>,
}

impl ClusterStore {
    pub(super) fn new(jetstream: JetStream, bounds: Bounds, tasks: TaskTracker, keys: Arc<LiveKeys>) -> Self {
        Self { jetstream, bounds, index: Arc::default(), tasks, keys }
    }

    /// Follows the records and keeps the queue complete. Cancelling is safe.
    async fn follow(&self) {
        let mut pauses = RETRY.pauses();
        loop {
            let begun = Instant::now();
            tokio::select! {
                error = self.follow_once() => tracing::warn!(%error, "the jobs of the cluster cannot be followed now"),
                () = self.keep_queued() => {}
            }
            if begun.elapsed() > CHECK_QUEUE_EVERY {
                pauses = RETRY.pauses();
            }
            sleep(pauses.next().unwrap_or(RETRY.max_pause)).await;
        }
    }

    async fn follow_once(&self) -> RecordError {
        let mut changes = match self.jetstream.jobs().watch().await {
            Ok(changes) => changes,
            Err(error) => return error,
        };
        // What was removed meanwhile is not listed any more.
        self.index().records.clear();
        while let Some(change) = changes.next().await {
            let change = match change {
                Ok(change) => change,
                Err(error) => return error,
            };
            let stored = match change.value {
                None => None,
                Some(Ok(bytes)) => match JobRecord::read(&bytes) {
                    Ok(stored) => Some(stored),
                    // Reported with the status of the job.
                    Err(_) => continue,
                },
                Some(Err(_)) => continue,
            };
            self.index().note(&change.key, change.revision, stored);
        }
        RecordError::Away("the connection is closed".into())
    }

    /// Puts jobs into the queue that are not finished and not in it.
    async fn keep_queued(&self) {
        loop {
            sleep(CHECK_QUEUE_EVERY).await;
            let old = now() - QUEUED_WITHIN_S;
            let open: Vec<String> = {
                let mut index = self.index();
                index.forget_gone(self.bounds.keep_s, now());
                let open = index.all().filter(|(_, stored)| stored.is_open() && stored.created < old);
                open.map(|(id, _)| id.clone()).collect()
            };
            for id in open {
                if self.jetstream.queue().push(&id).await.is_err() {
                    break;
                }
            }
        }
    }

    /// Jobs that are not finished.
    fn n_open(&self) -> usize {
        self.index().n_open()
    }

    /// The job of a request that came before.
    async fn again(&self, id: &str, stored: &JobRecord, digest: Option<&str>) -> Result<AddedJob, ApiError> {
        if stored.digest.as_deref() != digest {
            return Err(other_request());
        }
        if stored.is_open() {
            self.jetstream.queue().push(id).await.map_err(|error| failed(&error))?;
        }
        Ok(AddedJob { job: stored.job(id), is_new: false })
    }

    /// The finished file of a job that `viewer` may see.
    async fn file(&self, viewer: Viewer, id: &str) -> Result<Option<ObjectReader>, ApiError> {
        let Some(file) = self.seen(viewer, id).await?.file else { return Ok(None) };
        self.jetstream.audio().read(&file).await.map_err(|error| failed(&error))
    }

    async fn seen(&self, viewer: Viewer, id: &str) -> Result<JobRecord, ApiError> {
        match self.record(id).await? {
            Some((stored, _)) if stored.is_seen_by(viewer) => Ok(stored),
            _ => Err(failure_of_store(&StoreError::Gone)),
        }
    }

    /// Where a job that `viewer` may see stands in the order of all jobs. Its record is read where this hub has not yet
    /// learned of it.
    async fn place_of(&self, viewer: Viewer, id: &str) -> Result<(u64, String), ApiError> {
        let known = self.index().records.get(id).map(|(_, stored)| stored.clone());
        let stored = match known {
            Some(stored) => stored,
            None => self.record(id).await?.map(|(stored, _)| stored),
        };
        let stored = stored.filter(|stored| stored.is_seen_by(viewer)).ok_or_else(no_such_page)?;
        Ok((stored.created_us, id.to_owned()))
    }

    async fn erase(&self, id: &str, stored: &JobRecord) -> Result<(), RecordError> {
        self.jetstream.jobs().remove(id, None).await?;
        let mut index = self.index();
        let revision = index.records.get(id).map_or(0, |(revision, _)| *revision);
        index.note(id, revision, None);
        drop(index);
        self.discard(stored.leftovers(id).into_iter().chain(stored.file.clone()).collect());
        Ok(())
    }

    /// Waits for a job and takes it, until it has one. Cancelling is safe.
    async fn claim_next(&self) -> (Claim, SpeechSpec) {
        let mut pauses = RETRY.pauses();
        loop {
            let task = match self.jetstream.queue().pull().await {
                Ok(Some(task)) => task,
                Ok(None) => continue,
                Err(error) => {
                    tracing::debug!(%error, "no job can be taken now");
                    sleep(pauses.next().unwrap_or(RETRY.max_pause)).await;
                    continue;
                }
            };
            pauses = RETRY.pauses();
            match self.claim(task).await {
                Ok(Some(claimed)) => return claimed,
                Ok(None) => {}
                Err(error) => {
                    tracing::warn!(%error, "a job could not be taken");
                    sleep(pauses.next().unwrap_or(RETRY.max_pause)).await;
                }
            }
        }
    }

    /// Takes the job of the queue, if there is still something to do.
    async fn claim(&self, task: Task) -> Result<Option<(Claim, SpeechSpec)>, RecordError> {
        let id = task.id.clone();
        let attempt = format!("{:016x}", rand::random::<u64>());
        let mut is_taken_over;
        let (stored, revision) = loop {
            let record = match self.jetstream.jobs().get(&id).await {
                Ok(Some(record)) => record,
                Ok(None) => {
                    task.done().await?;
                    return Ok(None);
                }
                Err(RecordError::Sealed(error)) => {
                    tracing::warn!(job = id, %error, "a job is left to other hubs");
                    task.release_after(NOT_MINE_FOR).await;
                    return Ok(None);
                }
                Err(error) => return Err(error),
            };
            let mut stored = match JobRecord::read(&record.value) {
                Ok(stored) => stored,
                Err(error) => {
                    tracing::warn!(job = id, %error, "a job is left to other hubs");
                    task.release_after(NOT_MINE_FOR).await;
                    return Ok(None);
                }
            };
            if !stored.is_open() {
                task.done().await?;
                return Ok(None);
            }
            if self.leaves(&stored) {
                tracing::debug!(job = id, "a job of an unknown API key is left to other hubs");
                task.release_after(NOT_MINE_FOR).await;
                return Ok(None);
            }
            // A hub that gives a job back removes its attempt.
            is_taken_over = stored.attempt.is_some();
            if !is_taken_over && self.passes_over(stored.owner.as_deref()) {
                task.release_after(PASSED_OVER_FOR).await;
                return Ok(None);
            }
            stored.status = Status::Running.name().into();
            stored.attempt = Some(attempt.clone());
            stored.started = stored.started.or_else(|| Some(now()));
            match self.jetstream.jobs().update(&id, &stored.bytes(), record.revision, Some(UNFINISHED_FOR)).await {
                Ok(revision) => break (stored, revision),
                // The hub before this one wrote once more.
                Err(RecordError::Conflict) => {}
                Err(error) => return Err(error),
            }
        };
        if is_taken_over {
            let n_done = stored.n_done;
            let n_chunks = stored.n_chunks;
            tracing::info!(job = id, n_done, n_chunks, "a job is taken over from another hub");
        }
        let cancel = CancellationToken::new();
        {
            let mut index = self.index();
            // This hub may have been silent itself.
            if let Some((_, before)) = index.running.insert(id.clone(), (attempt.clone(), cancel.clone())) {
                before.cancel();
            }
            index.note(&id, revision, Some(stored.clone()));
            index.passing_since = None;
        }
        let store = self.clone();
        let task = Arc::new(task);
        let series = attempt.clone();
        let mut claim = Claim { store, task, id, attempt, series, stored, revision, moved: cancel };
        let text = match self.jetstream.audio().get(&claim.stored.request).await {
            Ok(text) => text.and_then(|text| serde_json::from_slice::<Text>(&text).ok()),
            Err(error @ RecordError::Away(_)) => return Err(error),
            Err(error) => {
                tracing::warn!(job = claim.id, %error, "a job's text cannot be read");
                None
            }
        };
        let Some(text) = text else {
            let message = "The server lost the job's text.";
            claim.fail(Failure::new("storage_failed", message)).await;
            return Ok(None);
        };
        let job = claim.job();
        let spec = SpeechSpec {
            chunks: text.chunks,
            n_chars: job.n_chars,
            voice: job.voice,
            is_own_voice: claim.stored.is_own_voice,
            speed: job.speed,
            instructions: text.instructions,
            seed: Some(claim.stored.seed),
            format: job.format,
            as_events: false,
            model: job.model,
        };
        Ok(Some((claim, spec)))
    }

    /// Whether a job of this owner goes back into the queue, because it is another owner's turn. The queue keeps the order of
    /// arrival; should the other's job not come, this hub takes what does.
    fn passes_over(&self, owner: Option<&str>) -> bool {
        let mut index = self.index();
        if !index.lets_others_first(owner, |other| self.knows(other)) {
            return false;
        }
        index.passing_since.get_or_insert_with(Instant::now).elapsed() < PASSES_FOR
    }

    /// Whether this hub has the API key of a job, if only as one that has expired or may not use the speech API: others may
    /// have read a newer list of keys.
    fn knows(&self, owner: Option<&str>) -> bool {
        owner.is_none_or(|owner| self.keys.list(KeyId::parse(owner)))
    }

    /// Whether the job is left to hubs that have its API key.
    fn leaves(&self, job: &JobRecord) -> bool {
        !self.knows(job.owner.as_deref()) && now() - job.created < KEYS_DIFFER_FOR_S
    }

    async fn record(&self, id: &str) -> Result<Option<(JobRecord, u64)>, ApiError> {
        if !is_id(id) {
            return Ok(None);
        }
        let Some(record) = self.jetstream.jobs().get(id).await.map_err(|error| failed(&error))? else {
            return Ok(None);
        };
        match JobRecord::read(&record.value) {
            Ok(stored) => Ok(Some((stored, record.revision))),
            Err(error @ Unreadable::Newer(_)) => {
                tracing::warn!(job = id, %error, "a job cannot be read");
                let message =
                    "This job was made by a newer version of the server, which this hub is not yet. Try again.";
                Err(ApiError::overloaded(message))
            }
            Err(error) => Err(ApiError::internal("The reading of the job", &error)),
        }
    }

    /// Removes finished jobs until `more` bytes of `owner` fit; none where that would not suffice. See [`fair::removals`].
    async fn make_room(&self, owner: Option<&str>, more: u64) -> Result<(), Stop> {
        let removals = {
            let index = self.index();
            if index.all().map(|(_, stored)| stored.takes()).sum::<u64>() + more <= self.bounds.bytes {
                return Ok(());
            }
            let jobs = index.all().map(|(id, stored)| fair::JobUsage {
                id: id.clone(),
                owner: stored.owner.clone(),
                bytes: stored.takes(),
                is_completed: stored.status() == Status::Completed,
                age: (stored.ended.unwrap_or_default(), stored.created_us),
            });
            let removals = fair::removals(jobs.collect(), owner, more, self.bounds.bytes).ok_or_else(full)?;
            let found = removals.into_iter().filter_map(|id| {
                let (_, stored) = index.records.get(&id)?;
                Some((id, stored.clone()?))
            });
            found.collect::<Vec<_>>()
        };
        for (id, stored) in removals {
            if self.erase(&id, &stored).await.is_err() {
                return Err(full());
            }
        }
        Ok(())
    }

    /// Removes objects that are no longer needed, in the background; what stays goes with its time to live.
    fn discard(&self, names: Vec<String>) {
        let audio = self.jetstream.audio().clone();
        self.tasks.spawn(async move {
            let removals = stream::iter(names).map(|name| {
                let audio = audio.clone();
                async move { audio.remove(&name).await }
            });
            let mut removals = removals.buffer_unordered(REMOVALS);
            while let Some(removed) = removals.next().await {
                if let Err(error) = removed {
                    tracing::debug!(%error, "an object of a job could not be removed");
                    return;
                }
            }
        });
    }

    /// Removes a text in the background, if no job of this id names it.
    fn discard_unnamed_text(&self, id: &str, text: String) {
        let store = self.clone();
        let id = id.to_owned();
        self.tasks.spawn(async move {
            let Ok(record) = store.jetstream.jobs().get(&id).await else { return };
            match record.map(|record| JobRecord::read(&record.value)) {
                // A newer hub can read it.
                Some(Err(_)) => {}
                Some(Ok(found)) if found.request == text => {}
                Some(Ok(_)) | None => store.discard(vec![text]),
            }
        });
    }

    fn index(&self) -> std::sync::MutexGuard<'_, Index> {
        self.index.lock().expect("no panic while locked")
    }
}

#[async_trait]
impl JobStore for ClusterStore {
    /// Nothing is left where it fails, as far as JetStream answers.
    async fn add(
        &self,
        id: &str,
        owner: JobOwner,
        spec: &SpeechSpec,
        digest: Option<String>,
    ) -> Result<AddedJob, ApiError> {
        if digest.is_some()
            && let Some((stored, _)) = self.record(id).await?
        {
            return self.again(id, &stored, digest.as_deref()).await;
        }
        let n_open = self.n_open();
        if n_open >= self.bounds.n_open {
            return Err(failure_of_store(&StoreError::TooMany(n_open)));
        }
        let n_own = self.index().n_open_of(owner.key.map(|key| key.to_string()).as_deref());
        if n_own >= owner.max_open {
            return Err(failure_of_store(&StoreError::TooManyOfKey(n_own)));
        }
        let request = format!("{id}/text-{:016x}", rand::random::<u64>());
        let text = Text { schema: SCHEMA, chunks: spec.chunks.clone(), instructions: spec.instructions.clone() };
        let text = serde_json::to_vec(&text).expect("texts are JSON");
        self.jetstream.audio().put(&request, &text, Some(UNFINISHED_FOR)).await.map_err(|error| failed(&error))?;
        let stored = JobRecord::new(owner.key, spec, request.clone(), digest);
        let made = self.jetstream.jobs().create(id, &stored.bytes(), Some(UNFINISHED_FOR)).await;
        let revision = match made {
            Ok(revision) => revision,
            Err(error) => {
                match &error {
                    // It may have been made: then the next request with this idempotency key gets it.
                    RecordError::Away(_) if stored.digest.is_some() => self.discard_unnamed_text(id, request),
                    _ => self.discard(vec![request]),
                }
                // The same request came at the same time.
                if error == RecordError::Conflict
                    && stored.digest.is_some()
                    && let Some((first, _)) = self.record(id).await?
                {
                    return self.again(id, &first, stored.digest.as_deref()).await;
                }
                return Err(failed(&error));
            }
        };
        if let Err(error) = self.jetstream.queue().push(id).await {
            // If that fails too, the job is done, and a request with the same idempotency key gets it.
            let _ = self.jetstream.jobs().remove(id, Some(revision)).await;
            self.discard(vec![request]);
            return Err(failed(&error));
        }
        self.index().note(id, revision, Some(stored.clone()));
        Ok(AddedJob { job: stored.job(id), is_new: true })
    }

    async fn job_for(&self, viewer: Viewer, id: &str) -> Result<Job, ApiError> {
        Ok(self.seen(viewer, id).await?.job(id))
    }

    async fn list(&self, viewer: Viewer, after: Option<&str>, n: usize) -> Result<Vec<Job>, ApiError> {
        let after = match after {
            Some(id) => Some(self.place_of(viewer, id).await?),
            None => None,
        };
        let index = self.index();
        let keep_s = self.bounds.keep_s;
        let time = now();
        let mut found: Vec<_> = index
            .all()
            .filter(|(_, stored)| stored.is_seen_by(viewer) && stored.ended.is_none_or(|ended| ended + keep_s > time))
            .map(|(id, stored)| ((stored.created_us, id.clone()), stored))
            .filter(|(order, _)| after.as_ref().is_none_or(|after| order < after))
            .collect();
        found.sort_by(|(a, _), (b, _)| b.cmp(a));
        Ok(found.into_iter().take(n).map(|((_, id), stored)| stored.job(&id)).collect())
    }

    /// The hub that works on it learns that.
    async fn remove(&self, viewer: Viewer, id: &str) -> Result<(), ApiError> {
        let stored = self.seen(viewer, id).await?;
        self.erase(id, &stored).await.map_err(|error| failed(&error))
    }

    async fn sound(&self, viewer: Viewer, job: &Job) -> Result<Sound, ApiError> {
        let gone = || ApiError::failed("The job's file is gone.");
        let mut sound = self.file(viewer, &job.id).await?.ok_or_else(gone)?.peekable();
        // What cannot be read at all is no answer that breaks off.
        if let Some(Err(error)) = std::pin::Pin::new(&mut sound).peek().await {
            tracing::warn!(%error, "a finished job's file cannot be read");
            return Err(gone());
        }
        let broken = |error: RecordError| {
            tracing::warn!(%error, "a finished job's file breaks off");
            io::Error::other(error)
        };
        Ok(sound.map_err(broken).boxed())
    }

    async fn depth(&self) -> Option<usize> {
        Some(self.n_open())
    }

    async fn serve(&self, workers: BoxFuture<'_, ()>, _: &CancellationToken) {
        tokio::select! {
            () = self.follow() => {}
            () = workers => {}
        }
    }

    async fn next(&self, stop: &CancellationToken) -> Option<(Box<dyn HeldJob>, SpeechSpec)> {
        tokio::select! {
            (claim, spec) = self.claim_next() => Some((Box::new(claim), spec)),
            () = stop.cancelled() => None,
        }
    }
}

/// A job that this hub works on, as long as its revision is the last one. Dropping it forgets the attempt; the job goes to
/// another hub after 10 s.
pub(super) struct Claim {
    store: ClusterStore,
    task: Arc<Task>,
    id: String,
    attempt: String,
    /// The names of its samples.
    series: String,
    stored: JobRecord,
    revision: u64,
    moved: CancellationToken,
}

#[async_trait]
impl HeldJob for Claim {
    fn job(&self) -> Job {
        self.stored.job(&self.id)
    }

    fn moved(&self) -> CancellationToken {
        self.moved.clone()
    }

    fn why_moved(&self) -> Stop {
        if self.is_removed() { Stop::Gone } else { Stop::Moved }
    }

    fn heartbeat(&self) -> BoxFuture<'static, ()> {
        let task = self.task.clone();
        Box::pin(async move {
            loop {
                sleep(Queue::PROGRESS_EVERY).await;
                task.progress().await;
            }
        })
    }

    async fn append(&mut self, pcm: &[i16]) -> Result<(), Stop> {
        let bytes: Vec<u8> = pcm.iter().flat_map(|sample| sample.to_le_bytes()).collect();
        let at = self.stored.n_done;
        let n_bytes = bytes.len() as u64;
        self.store.make_room(self.stored.owner.as_deref(), n_bytes).await?;
        let name = segment(&self.id, &self.series, at);
        let audio = self.store.jetstream.audio().clone();
        persist(|| audio.put(&name, &bytes, Some(UNFINISHED_FOR))).await?;
        let mut stored = self.stored.clone();
        stored.n_done = at + 1;
        stored.pcm_bytes += n_bytes;
        match stored.runs.last_mut() {
            Some(run) if run.series == self.series && run.first + run.n == at => run.n += 1,
            _ => stored.runs.push(Run { series: self.series.clone(), first: at, n: 1 }),
        }
        let kept = self.write(stored, UNFINISHED_FOR).await;
        match &kept {
            Ok(()) => {}
            Err(Stop::Gone | Stop::Failed(_)) => self.store.discard(vec![name]),
            Err(Stop::Moved | Stop::Revoked) => self.discard_unnamed_chunk(name),
        }
        kept
    }

    async fn revoice(&mut self, voice: &str) -> Result<(), Stop> {
        let mut stored = self.stored.clone();
        let before = stored.segments(&self.id);
        stored.n_done = 0;
        stored.pcm_bytes = 0;
        stored.voice = voice.into();
        stored.runs.clear();
        // Names are not used twice: a reader of the old ones must not find new samples.
        self.series = format!("{:016x}", rand::random::<u64>());
        self.write(stored, UNFINISHED_FOR).await?;
        self.store.discard(before);
        Ok(())
    }

    async fn finish(&mut self, _: &CancellationToken) -> Result<(), Stop> {
        let file = format!("{}/{}/file", self.id, self.attempt);
        let keep = Duration::from_secs(self.store.bounds.keep_s.max(1).unsigned_abs());
        let mut pauses = (RETRY.pauses(), Instant::now() + PATIENCE);
        let n_bytes = loop {
            match self.encode(&file, keep + FILE_AFTER_RECORD).await {
                Ok(n_bytes) => break n_bytes,
                Err(EncodeError::Record(RecordError::Away(_))) if Instant::now() < pauses.1 => {
                    sleep(pauses.0.next().unwrap_or(RETRY.max_pause)).await;
                }
                Err(EncodeError::Record(error)) => return Err(stop(&error)),
                Err(EncodeError::Encoder(error)) => {
                    tracing::warn!(job = self.id, error, "a job's file could not be encoded");
                    return Err(Stop::Failed(Failure::new("server_error", "The job's file could not be encoded.")));
                }
            }
        };
        let mut stored = self.stored.clone();
        let leftovers = stored.leftovers(&self.id);
        stored.status = Status::Completed.name().into();
        stored.ended = Some(now());
        stored.file = Some(file.clone());
        stored.file_bytes = n_bytes;
        stored.runs.clear();
        if let Err(stop) = self.write(stored, keep).await {
            self.store.discard(vec![file]);
            return Err(stop);
        }
        self.confirm().await;
        self.store.discard(leftovers);
        Ok(())
    }

    async fn fail(&mut self, failure: Failure) {
        let mut stored = self.stored.clone();
        let leftovers = stored.leftovers(&self.id);
        stored.status = Status::Failed.name().into();
        stored.ended = Some(now());
        stored.failure = Some((failure.code, failure.message));
        stored.pcm_bytes = 0;
        stored.runs.clear();
        let keep = Duration::from_secs(self.store.bounds.keep_s.max(1).unsigned_abs());
        match self.write(stored, keep).await {
            Ok(()) => {
                self.confirm().await;
                self.store.discard(leftovers);
            }
            Err(stop) => tracing::warn!(job = self.id, ?stop, "a failed job could not be written down"),
        }
    }

    /// A job whose key this hub does not have any more is left to other hubs, which may have it, for as long as hubs may differ.
    async fn revoke(&mut self) -> bool {
        self.catch_up().await;
        if self.store.leaves(&self.stored) {
            self.give_back().await;
            self.task.release_after(NOT_MINE_FOR).await;
            return false;
        }
        self.fail(Failure::key_revoked()).await;
        true
    }

    async fn forget(&self) {
        self.confirm().await;
    }

    async fn release(&mut self) {
        self.give_back().await;
        self.task.release().await;
    }
}

impl Claim {
    /// Takes the record as a write of this attempt left it that was stopped before its answer came.
    async fn catch_up(&mut self) {
        let Ok(Some(record)) = self.store.jetstream.jobs().get(&self.id).await else { return };
        let Ok(found) = JobRecord::read(&record.value) else { return };
        if found.is_open() && found.attempt.as_ref() == Some(&self.attempt) {
            self.stored = found;
            self.revision = record.revision;
        }
    }

    /// Writes that no hub works on the job. The queue still has it.
    async fn give_back(&self) {
        let mut stored = self.stored.clone();
        stored.status = Status::Queued.name().into();
        stored.attempt = None;
        // Without it the job shows as running until another hub takes it.
        let written =
            self.store.jetstream.jobs().update(&self.id, &stored.bytes(), self.revision, Some(UNFINISHED_FOR)).await;
        if let Err(error) = written {
            tracing::debug!(%error, "a job that this hub gives back still shows as running");
        }
    }

    /// Whether it was removed, as far as this hub knows.
    fn is_removed(&self) -> bool {
        self.store.index().records.get(&self.id).is_some_and(|(_, stored)| stored.is_none())
    }

    async fn encode(&self, file: &str, ttl: Duration) -> Result<u64, EncodeError> {
        let failed = |error: antiphon_audio::encode::EncodeError| EncodeError::Encoder(error.to_string());
        let format = self.job().format;
        let mut encoder = Encoder::new(format).map_err(failed)?;
        let audio = self.store.jetstream.audio();
        let mut writer = audio.write(file, Some(ttl));
        let mut n_bytes = 0;
        let written = async {
            if format == FileFormat::Wav {
                // The length is known, unlike the encoder's.
                let header = wav::header(RATE, Some(Samples(self.stored.pcm_bytes / 2)));
                n_bytes += header.len() as u64;
                writer.push(&header).await?;
            }
            let mut skipped = if format == FileFormat::Wav { wav::header(RATE, None).len() } else { 0 };
            let segments = self.stored.segments(&self.id);
            let n_segments = segments.len();
            for at in 0..=n_segments {
                let pcm = match segments.get(at) {
                    Some(name) => Some(audio.get(name).await?.ok_or(RecordError::Missing)?),
                    None => None,
                };
                let (encoded, bytes) = spawn_blocking(move || {
                    let mut bytes = Vec::new();
                    match pcm {
                        Some(pcm) => {
                            let sample = |pair: &[u8]| i16::from_le_bytes([pair[0], pair[1]]);
                            let samples: Vec<i16> = pcm.chunks_exact(2).map(sample).collect();
                            encoder.push(&samples, &mut bytes).map(|()| (Some(encoder), bytes))
                        }
                        None => encoder.finish(&mut bytes).map(|()| (None, bytes)),
                    }
                })
                .await
                .map_err(|error| EncodeError::Encoder(error.to_string()))?
                .map_err(failed)?;
                let skip = skipped.min(bytes.len());
                skipped -= skip;
                n_bytes += (bytes.len() - skip) as u64;
                writer.push(&bytes[skip..]).await?;
                match encoded {
                    Some(next) => encoder = next,
                    None => break,
                }
            }
            Ok(n_bytes)
        };
        match written.await {
            Ok(n_bytes) => {
                writer.finish().await?;
                Ok(n_bytes)
            }
            Err(error) => {
                writer.abandon().await;
                Err(error)
            }
        }
    }

    /// Removes a job from the queue that need not be done. If the request is lost, the next hub finds nothing to do.
    async fn confirm(&self) {
        if let Err(error) = self.task.done().await {
            tracing::debug!(%error, "the end of a job was not confirmed");
        }
    }

    /// Removes a chunk's samples in the background, if another attempt has the job and its record does not name them. That
    /// attempt goes on behind them where the write that named them was made and only its answer was lost.
    fn discard_unnamed_chunk(&self, chunk: String) {
        let store = self.store.clone();
        let id = self.id.clone();
        let attempt = self.attempt.clone();
        self.store.tasks.spawn(async move {
            let Ok(Some(record)) = store.jetstream.jobs().get(&id).await else { return };
            let Ok(found) = JobRecord::read(&record.value) else { return };
            if found.attempt.as_ref() != Some(&attempt) && !found.segments(&id).contains(&chunk) {
                store.discard(vec![chunk]);
            }
        });
    }

    /// Writes the record if this attempt still holds the job.
    async fn write(&mut self, stored: JobRecord, ttl: Duration) -> Result<(), Stop> {
        let mut pauses = RETRY.pauses();
        let until = Instant::now() + PATIENCE;
        let jobs = self.store.jetstream.jobs().clone();
        loop {
            let revision = match jobs.update(&self.id, &stored.bytes(), self.revision, Some(ttl)).await {
                Ok(revision) => revision,
                // Perhaps what this hub wrote, without an answer.
                Err(RecordError::Conflict) => match jobs.get(&self.id).await {
                    Ok(Some(record)) if JobRecord::read(&record.value).is_ok_and(|found| found == stored) => {
                        record.revision
                    }
                    Ok(Some(record)) => {
                        let holder = JobRecord::read(&record.value).ok().and_then(|found| found.attempt);
                        tracing::info!(
                            job = self.id,
                            revision = self.revision,
                            found = record.revision,
                            ?holder,
                            "another hub has the job"
                        );
                        return Err(Stop::Moved);
                    }
                    Ok(None) => return Err(Stop::Gone),
                    Err(RecordError::Away(_)) if Instant::now() < until => continue,
                    Err(error) => return Err(stop(&error)),
                },
                Err(RecordError::Away(_)) if Instant::now() < until => {
                    sleep(pauses.next().unwrap_or(RETRY.max_pause)).await;
                    continue;
                }
                Err(error) => return Err(stop(&error)),
            };
            self.stored = stored;
            self.revision = revision;
            self.store.index().note(&self.id, revision, Some(self.stored.clone()));
            return Ok(());
        }
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        let mut index = self.store.index();
        if index.running.get(&self.id).is_some_and(|(attempt, _)| *attempt == self.attempt) {
            index.running.remove(&self.id);
        }
    }
}

/// Why a file was not encoded.
enum EncodeError {
    Record(RecordError),
    Encoder(String),
}

impl From<RecordError> for EncodeError {
    fn from(error: RecordError) -> Self {
        Self::Record(error)
    }
}

/// Tries again while JetStream is away.
async fn persist<F: Future<Output = Result<(), RecordError>>>(work: impl Fn() -> F) -> Result<(), Stop> {
    let mut pauses = RETRY.pauses();
    let until = Instant::now() + PATIENCE;
    loop {
        match work().await {
            Ok(()) => return Ok(()),
            Err(RecordError::Away(_)) if Instant::now() < until => {
                sleep(pauses.next().unwrap_or(RETRY.max_pause)).await;
            }
            Err(error) => return Err(stop(&error)),
        }
    }
}

/// What an error means for a job.
fn stop(error: &RecordError) -> Stop {
    match error {
        RecordError::Away(_) | RecordError::Conflict => Stop::Moved,
        RecordError::Full(_) => full(),
        other => {
            tracing::warn!(error = %other, "a job's sound could not be kept");
            Stop::Failed(Failure::new("storage_failed", "The server could not keep the job's sound."))
        }
    }
}

fn full() -> Stop {
    let message = "The jobs of this cluster take all the room they may (speech.jobs_max_mib).";
    Stop::Failed(Failure::new("store_full", message))
}

/// The client's message.
fn failed(error: &RecordError) -> ApiError {
    match error {
        RecordError::Away(_) | RecordError::Conflict => {
            tracing::warn!(%error, "the jobs of the cluster cannot be reached");
            ApiError::overloaded(
                "The jobs of this cluster cannot be reached now. Try again soon, with an Idempotency-Key.",
            )
        }
        RecordError::Full(_) => {
            tracing::warn!(%error, "there is no room for a job");
            let message = "The jobs of this cluster take all the room they may. Nothing was stored.";
            ApiError::with(StatusCode::INSUFFICIENT_STORAGE, "storage_failed", message)
        }
        RecordError::Sealed(error) => {
            tracing::warn!(%error, "a job cannot be opened");
            let message = "This hub cannot open the job; its log says why. Another try does not help.";
            ApiError::with(StatusCode::INTERNAL_SERVER_ERROR, "jobs_unavailable", message)
        }
        other => ApiError::internal("The jobs' store", other),
    }
}

/// Whether a client's text can name a job: it becomes part of a subject.
fn is_id(id: &str) -> bool {
    id.len() <= 64
        && id.starts_with(super::job::PREFIX)
        && id.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

#[cfg(test)]
mod tests;
