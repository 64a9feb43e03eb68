//! Jobs on the disk: a SQLite database of requests and their progress, and an audio file for each.
//!
//! It runs on the thread of an engine pool, because everything here blocks. While a job is synthesized its samples are appended
//! to `ID.pcm`, and the database records how many chunks and bytes of them are valid: a crash's remainder is cut off. The
//! finished file is renamed atomically to `ID.EXTENSION`, then published, so that no partial file is served. One hub holds a
//! folder at a time, by a lock on `lock`. Files are readable by their owner only, whatever the folder and the umask allow.
//!
//! With `server.storage_key` texts, instructions, messages of failures and digests of requests are sealed, each bound to its job
//! and column, and both audio files are blocks ([`antiphon_types::sealed`]), bound to job, file, place and whether it is the last.
//! The other columns are not: times, progress, sizes, voice, model, format and owner. A folder is encrypted as a whole: jobs that
//! were stored without the key, or with another one, are refused.

mod tables;

use super::fair;
use super::job::{Failure, Job, Status, now};
use super::job_store::AddedJob;
use crate::server::speech::spec::SpeechSpec;
use antiphon_audio::encode::FileFormat;
use antiphon_session::Viewer;
use antiphon_types::KeyId;
use antiphon_types::sealed::{self, BlockReader, OpenError, Sealing};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rusqlite::{Connection, OptionalExtension, Row, params};
use std::collections::HashMap;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};
use tables::VERSION;

const DATABASE: &str = "jobs.db";
/// The name of the record that shows whether a key is that of the folder, and its content.
const CHECK: &str = "jobs/check";
/// Bytes of a sample in `ID.pcm`.
const SAMPLE: u64 = 2;

const COLUMNS: &str = "id, status, created, started, ended, n_chunks, n_done, n_chars, voice, speed, format, pcm_bytes, file_bytes, code, message, model, owner";

/// How much is kept.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    /// Jobs that are not finished.
    pub(super) n_open: usize,
    /// Bytes of all jobs' sound.
    pub(super) bytes: u64,
    /// Seconds that a finished job is kept.
    pub(super) keep_s: i64,
}

/// The version of the jobs' tables that this program writes; it changes those of earlier ones.
pub const JOBS_VERSION: i64 = VERSION;

/// The version of the jobs' tables in a folder, whether a hub works on it or not; `None`: it holds no jobs. Blocks for 64 bytes.
///
/// # Errors
/// The file cannot be read, or is no database.
pub fn version_in(folder: &Path) -> io::Result<Option<i64>> {
    tables::version_of(&Store::database(folder))
}

/// Why the store did not do it.
#[derive(Debug, thiserror::Error)]
pub(super) enum StoreError {
    /// Another hub has the folder.
    #[error("another hub works on the jobs in {0}")]
    Taken(PathBuf),
    /// Too many are waiting.
    #[error("{0} jobs are waiting already (speech.max_jobs)")]
    TooMany(usize),
    /// Too many of this key are waiting.
    #[error("{0} jobs of your API key are waiting already; the rest of speech.max_jobs is for other keys")]
    TooManyOfKey(usize),
    /// The bound on the bytes of all jobs.
    #[error("the jobs take all the room they may (speech.jobs_max_mib)")]
    NoRoom,
    /// There is no such job, or not any more.
    #[error("there is no such job")]
    Gone,
    /// There is no such job, or not any more, to list those behind it.
    #[error("there is no such job to list those behind it")]
    NoSuchPage,
    /// The job of this idempotency key has another request.
    #[error("another request had this idempotency key")]
    OtherRequest,
    /// A newer program made it.
    #[error(
        "the jobs' database is of version {0}, and this program reads versions up to {VERSION}: install the newer program again, \
         or name another folder in speech.jobs_dir; nothing was changed"
    )]
    Newer(i64),
    /// No program made it.
    #[error("the jobs' database is of version {0}, which no program makes: name another folder in speech.jobs_dir")]
    Version(i64),
    /// An older database cannot be copied before it is changed.
    #[error("the jobs' database could not be copied to {} before its tables are changed: {why}; nothing was changed", path.display())]
    Backup {
        /// The copy.
        path: PathBuf,
        /// What is wrong.
        why: String,
    },
    /// `server.storage_key` was set after the jobs were stored.
    #[error(
        "the jobs in {0} are not encrypted, and server.storage_key is set: leave it empty until they are removed, or name another \
         folder in speech.jobs_dir"
    )]
    NotSealed(PathBuf),
    /// The setting was removed.
    #[error(
        "the jobs in {0} are encrypted, and server.storage_key is empty: name the file of their key, or another folder in \
         speech.jobs_dir"
    )]
    NoKey(PathBuf),
    /// It names another key, or the folder is damaged.
    #[error(
        "the jobs in {folder} cannot be opened with server.storage_key ({why}): name the file of their key, or another folder in \
         speech.jobs_dir"
    )]
    OtherKey {
        /// The folder.
        folder: PathBuf,
        /// What is wrong with the record that shows the key.
        why: OpenError,
    },
    /// Something of a job was changed after it was sealed.
    #[error("the {column} of the job {id} cannot be opened: {why}")]
    Sealed {
        /// The job.
        id: String,
        /// Its column.
        column: &'static str,
        /// Why.
        why: OpenError,
    },
    /// A file cannot be read or written.
    #[error("{0}")]
    File(#[from] io::Error),
    /// The database.
    #[error("{0}")]
    Database(#[from] rusqlite::Error),
}

impl StoreError {
    /// The error text of a job that it failed.
    pub(super) fn failure(&self) -> Failure {
        let is_full = match self {
            Self::File(error) => matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded),
            Self::Database(error) => error.sqlite_error_code() == Some(rusqlite::ErrorCode::DiskFull),
            _ => false,
        };
        match self {
            _ if is_full => Failure::new("disk_full", "The server's disk is full."),
            Self::NoRoom => {
                Failure::new("store_full", "The jobs of this server take all the room they may (speech.jobs_max_mib).")
            }
            _ => Failure::new("storage_failed", "The server could not keep the job's sound."),
        }
    }
}

/// See the module.
pub(super) struct Store {
    db: Connection,
    folder: PathBuf,
    bounds: Bounds,
    /// `None`: nothing is encrypted.
    sealing: Option<Arc<dyn Sealing>>,
    /// Failures that a full disk did not take: true until the next start, which tries again.
    unwritten: HashMap<String, Failure>,
    /// Unlocked when it is closed.
    _lock: File,
}

impl Store {
    /// Opens or makes the folder. Jobs that were being worked on wait again; what belongs to none is removed.
    pub(super) fn open(folder: &Path, bounds: Bounds, sealing: Option<Arc<dyn Sealing>>) -> Result<Self, StoreError> {
        make_private(folder)?;
        let lock = private_file().open(folder.join("lock"))?;
        lock.try_lock().map_err(|error| match error {
            TryLockError::WouldBlock => StoreError::Taken(folder.into()),
            TryLockError::Error(error) => error.into(),
        })?;
        make_file_private(&folder.join(DATABASE))?;
        let db = tables::open(&folder.join(DATABASE))?;
        let mut store = Self { db, folder: folder.into(), bounds, sealing, unwritten: HashMap::new(), _lock: lock };
        store.check_key()?;
        store.db.execute("UPDATE jobs SET status = 'queued' WHERE status = 'running'", [])?;
        store.look_over()?;
        Ok(store)
    }

    /// Where a folder that holds jobs has them.
    pub(super) fn database(folder: &Path) -> PathBuf {
        folder.join(DATABASE)
    }

    /// Puts a job at the end of its owner's queue. `owner`: the API key it belongs to, and how many unfinished jobs it may have.
    /// `digest`: of the request, where it has an
    /// idempotency key, which the id is derived from; the job is then made once.
    pub(super) fn add(
        &mut self,
        id: &str,
        (owner, most): (Option<KeyId>, usize),
        spec: &SpeechSpec,
        digest: Option<&str>,
        now: i64,
    ) -> Result<AddedJob, StoreError> {
        if let Some(digest) = digest {
            self.sweep(now)?;
            let sql = "SELECT digest FROM jobs WHERE id = ?";
            match self.db.query_row(sql, [id], |row| row.get::<_, Option<String>>(0)).optional()? {
                None => {}
                Some(found) => {
                    let found = found.map(|found| self.open_text(id, "digest", found)).transpose()?;
                    if found.as_deref() != Some(digest) {
                        return Err(StoreError::OtherRequest);
                    }
                    return Ok(AddedJob { job: self.job(id)?, is_new: false });
                }
            }
        }
        let n_open = self.n_open()?;
        if n_open >= self.bounds.n_open {
            return Err(StoreError::TooMany(n_open));
        }
        let owner = owner.map(|owner| owner.to_string());
        let sql = "SELECT COUNT(*) FROM jobs WHERE status IN ('queued', 'running') AND owner IS ?";
        let n_own = self.db.query_row(sql, [&owner], |row| row.get::<_, i64>(0))? as usize;
        if n_own >= most {
            return Err(StoreError::TooManyOfKey(n_own));
        }
        self.sweep(now)?;
        let chunks = self.seal_text(id, "chunks", &serde_json::to_string(&spec.chunks).expect("texts are JSON"));
        let instructions = spec.instructions.as_ref().map(|text| self.seal_text(id, "instructions", text));
        let digest = digest.map(|digest| self.seal_text(id, "digest", digest));
        self.db.execute(
            "INSERT INTO jobs (id, status, created, chunks, n_chunks, n_chars, voice, own_voice, speed, format, model, owner, instructions, digest) VALUES (?, 'queued', ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            params![
                id, now, chunks, spec.chunks.len() as i64, spec.n_chars as i64, spec.voice, spec.is_own_voice, spec.speed,
                spec.format.name(), spec.model, owner, instructions, digest
            ],
        )?;
        Ok(AddedJob { job: self.job(id)?, is_new: true })
    }

    /// The next job of the queue, now being worked on, and what it is to say. Owners take turns: the next job is the oldest of
    /// the owner with the fewest jobs under way, and among those, of the one whose last job began first.
    pub(super) fn take(&mut self, now: i64) -> Result<Option<(Job, SpeechSpec)>, StoreError> {
        self.sweep(now)?;
        let next = "WITH owners AS (SELECT owner, SUM(status = 'running') AS n_running, MAX(started) AS last FROM jobs GROUP BY owner) \
                    SELECT id, chunks, own_voice, instructions FROM jobs JOIN owners ON owners.owner IS jobs.owner \
                    WHERE status = 'queued' ORDER BY n_running, last, seq LIMIT 1";
        let next: Option<(String, String, bool, Option<String>)> =
            self.db.query_row(next, [], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?))).optional()?;
        let Some((id, chunks, is_own_voice, instructions)) = next else { return Ok(None) };
        let chunks = self.open_text(&id, "chunks", chunks);
        let instructions = instructions.map(|text| self.open_text(&id, "instructions", text)).transpose();
        let (chunks, instructions) = match (chunks, instructions) {
            (Ok(chunks), Ok(instructions)) => (chunks, instructions),
            (Err(error), _) | (_, Err(error)) => {
                self.fail(&id, error.failure(), now);
                return Err(error);
            }
        };
        self.db.execute("UPDATE jobs SET status = 'running', started = ? WHERE id = ?", params![now, id])?;
        let mut job = self.job(&id)?;
        if self.n_spooled(&job) < job.pcm_bytes {
            // A power cut took what was counted: from the beginning.
            self.db.execute("UPDATE jobs SET n_done = 0, pcm_bytes = 0 WHERE id = ?", [&id])?;
            job.n_done = 0;
            job.pcm_bytes = 0;
        }
        let chunks = serde_json::from_str(&chunks).unwrap_or_default();
        let n_chars = job.n_chars;
        let voice = job.voice.clone();
        let speed = job.speed;
        let format = job.format;
        let model = job.model.clone();
        Ok(Some((
            job,
            SpeechSpec {
                chunks,
                n_chars,
                voice,
                is_own_voice,
                speed,
                instructions,
                seed: None,
                format,
                as_events: false,
                model,
            },
        )))
    }

    /// Lets another voice speak a job, from its beginning: one file has one voice.
    pub(super) fn revoice(&mut self, id: &str, voice: &str) -> Result<(), StoreError> {
        let sql = "UPDATE jobs SET voice = ?, n_done = 0, pcm_bytes = 0 WHERE id = ?";
        if self.db.execute(sql, [voice, id])? == 0 { Err(StoreError::Gone) } else { Ok(()) }
    }

    /// Keeps a job's next chunk.
    pub(super) fn append(&mut self, id: &str, pcm: &[i16], now: i64) -> Result<(), StoreError> {
        let job = self.job(id)?;
        let bytes: Vec<u8> = pcm.iter().flat_map(|sample| sample.to_le_bytes()).collect();
        if self.bytes()? + bytes.len() as u64 > self.bounds.bytes {
            self.sweep(now)?;
            self.make_room(job.owner.as_deref(), bytes.len() as u64)?;
        }
        let mut file = private_file().read(true).open(self.spool(id))?;
        match &self.sealing {
            None => {
                if file.metadata()?.len() > job.pcm_bytes {
                    file.set_len(job.pcm_bytes)?;
                }
                file.seek(SeekFrom::Start(job.pcm_bytes))?;
                file.write_all(&bytes)?;
            }
            Some(sealing) => append_blocks(&mut file, sealing.as_ref(), &spool_name(id), job.pcm_bytes, &bytes)?,
        }
        self.db.execute(
            "UPDATE jobs SET n_done = n_done + 1, pcm_bytes = pcm_bytes + ? WHERE id = ?",
            params![bytes.len() as i64, id],
        )?;
        Ok(())
    }

    /// Renames a finished file to its final name, then publishes it.
    pub(super) fn finish(&mut self, id: &str, part: &Path, now: i64) -> Result<(), StoreError> {
        let job = self.job(id)?;
        let bytes = match &self.sealing {
            None => fs::metadata(part)?.len(),
            Some(sealing) => sealed::walk(&mut File::open(part)?, sealing.overhead(), u64::MAX)?.plain,
        };
        fs::rename(part, self.file(id, job.format))?;
        self.db.execute(
            "UPDATE jobs SET status = 'completed', ended = ?, file_bytes = ? WHERE id = ?",
            params![now, bytes as i64, id],
        )?;
        // It is not needed any more; should it stay, the next start removes it.
        let _ = fs::remove_file(self.spool(id));
        Ok(())
    }

    /// Ends a job that failed, unless it has ended already: the update of a completed job may have run while its worker was
    /// stopped. Its audio is removed first, so that a full disk has room for the update.
    pub(super) fn fail(&mut self, id: &str, failure: Failure, now: i64) {
        let sql = "SELECT COUNT(*) FROM jobs WHERE id = ? AND status IN ('queued', 'running')";
        match self.db.query_row(sql, [id], |row| row.get::<_, i64>(0)) {
            Ok(0) => return,
            Ok(_) => self.remove_files(id),
            // Whether it has a finished file is not known.
            Err(_) => {}
        }
        let marked = self.db.execute(
            "UPDATE jobs SET status = 'failed', ended = ?, code = ?, message = ?, pcm_bytes = 0 \
             WHERE id = ? AND status IN ('queued', 'running')",
            params![now, failure.code, self.seal_text(id, "message", &failure.message), id],
        );
        if let Err(error) = marked {
            tracing::warn!(%error, "a failed job could not be written down");
            self.unwritten.insert(id.into(), failure);
        }
    }

    /// One job.
    pub(super) fn job(&self, id: &str) -> Result<Job, StoreError> {
        let sql = format!("SELECT {COLUMNS} FROM jobs WHERE id = ?");
        let job = self.db.query_row(&sql, [id], read).optional()?.ok_or(StoreError::Gone)?;
        Ok(self.as_told(job))
    }

    /// One job, where `viewer` may see it; to others it is as if there were none.
    pub(super) fn job_for(&self, viewer: Viewer, id: &str) -> Result<Job, StoreError> {
        let sql = "SELECT owner FROM jobs WHERE id = ?";
        let owner: Option<Option<String>> = self.db.query_row(sql, [id], |row| row.get(0)).optional()?;
        let may = match (viewer, owner.flatten()) {
            (Viewer::All, _) => true,
            (Viewer::Key(key), Some(owner)) => key.to_string() == owner,
            _ => false,
        };
        if may { self.job(id) } else { Err(StoreError::Gone) }
    }

    /// Those that `viewer` may see, the newest first, at most `n`, behind the job `after` where one is named.
    pub(super) fn list(&self, viewer: Viewer, after: Option<&str>, n: usize) -> Result<Vec<Job>, StoreError> {
        let before = after.map_or(Ok(i64::MAX), |after| self.place_of(viewer, after))?;
        let owner = match viewer {
            Viewer::All => None,
            Viewer::Key(key) => Some(key.to_string()),
            Viewer::Nobody => return Ok(Vec::new()),
        };
        let sql = format!(
            "SELECT {COLUMNS} FROM jobs WHERE seq < ?1 AND (?3 IS NULL OR owner = ?3) ORDER BY seq DESC LIMIT ?2"
        );
        let mut statement = self.db.prepare(&sql)?;
        let jobs = statement.query_map(params![before, n as i64, owner], read)?.collect::<Result<Vec<_>, _>>()?;
        Ok(jobs.into_iter().map(|job| self.as_told(job)).collect())
    }

    /// Where a job that `viewer` may see stands in the order of all jobs.
    fn place_of(&self, viewer: Viewer, id: &str) -> Result<i64, StoreError> {
        match self.job_for(viewer, id) {
            Ok(_) => Ok(self.db.query_row("SELECT seq FROM jobs WHERE id = ?", [id], |row| row.get(0))?),
            Err(StoreError::Gone) => Err(StoreError::NoSuchPage),
            Err(error) => Err(error),
        }
    }

    /// Removes a job and all it has.
    pub(super) fn delete(&mut self, id: &str) -> Result<(), StoreError> {
        self.remove(id)?;
        tables::forget(&self.db);
        Ok(())
    }

    fn remove(&mut self, id: &str) -> Result<(), StoreError> {
        if self.db.execute("DELETE FROM jobs WHERE id = ?", [id])? == 0 {
            return Err(StoreError::Gone);
        }
        tables::remove_from_backups(&Self::database(&self.folder), id)?;
        self.unwritten.remove(id);
        self.remove_files(id);
        Ok(())
    }

    /// Jobs that are not finished.
    pub(super) fn n_open(&self) -> Result<usize, StoreError> {
        let n = self.db.query_row("SELECT COUNT(*) FROM jobs WHERE status IN ('queued', 'running')", [], |row| {
            row.get::<_, i64>(0)
        })?;
        Ok((n as usize).saturating_sub(self.unwritten.len()))
    }

    /// What encrypts the files.
    pub(super) fn sealing(&self) -> Option<Arc<dyn Sealing>> {
        self.sealing.clone()
    }

    /// Where a job's samples are gathered.
    pub(super) fn spool(&self, id: &str) -> PathBuf {
        self.folder.join(format!("{id}.pcm"))
    }

    /// A job's finished file.
    pub(super) fn file(&self, id: &str, format: FileFormat) -> PathBuf {
        // `pcm` is also what samples are gathered in.
        let extension = if format == FileFormat::Pcm { "raw" } else { format.name() };
        self.folder.join(format!("{id}.{extension}"))
    }

    fn bytes(&self) -> Result<u64, StoreError> {
        let sum = "SELECT COALESCE(SUM(CASE status WHEN 'completed' THEN file_bytes ELSE pcm_bytes END), 0) FROM jobs";
        Ok(self.db.query_row(sum, [], |row| row.get::<_, i64>(0))? as u64)
    }

    /// Removes what has been kept long enough.
    fn sweep(&mut self, now: i64) -> Result<(), StoreError> {
        let sql = "SELECT id FROM jobs WHERE ended <= ?";
        let old: Vec<String> =
            self.db.prepare(sql)?.query_map([now - self.bounds.keep_s], |row| row.get(0))?.collect::<Result<_, _>>()?;
        old.iter().try_for_each(|id| self.remove(id))?;
        if !old.is_empty() {
            tables::forget(&self.db);
        }
        let now = UNIX_EPOCH + Duration::from_secs(now.unsigned_abs());
        let keep = Duration::from_secs(self.bounds.keep_s.unsigned_abs());
        Ok(tables::sweep_backups(&Self::database(&self.folder), now, keep)?)
    }

    /// Removes finished jobs until `more` bytes of `owner` fit; none where that would not suffice. See [`fair::removals`].
    fn make_room(&mut self, owner: Option<&str>, more: u64) -> Result<(), StoreError> {
        let sql = "SELECT id, owner, CASE status WHEN 'completed' THEN file_bytes ELSE pcm_bytes END, status = 'completed', \
                   COALESCE(ended, 0), seq FROM jobs";
        let stored = |row: &Row<'_>| {
            let bytes = row.get::<_, i64>(2)?.max(0) as u64;
            let age = (row.get(4)?, row.get::<_, i64>(5)?.max(0) as u64);
            Ok(fair::JobUsage { id: row.get(0)?, owner: row.get(1)?, bytes, is_completed: row.get(3)?, age })
        };
        let jobs = self.db.prepare(sql)?.query_map([], stored)?.collect::<Result<Vec<_>, _>>()?;
        let removals = fair::removals(jobs, owner, more, self.bounds.bytes).ok_or(StoreError::NoRoom)?;
        removals.iter().try_for_each(|id| self.delete(id))
    }

    fn remove_files(&self, id: &str) {
        for path in FileFormat::ALL.map(|format| self.file(id, format)).into_iter().chain([self.spool(id)]) {
            // Most of them were never there.
            let _ = fs::remove_file(path);
        }
    }

    /// Removes files of jobs that are not there any more, and those that were not finished; the others become private.
    fn look_over(&self) -> Result<(), StoreError> {
        for entry in fs::read_dir(&self.folder)? {
            let path = entry?.path();
            let (Some(name), Some(extension)) = (path.file_stem().and_then(|n| n.to_str()), path.extension()) else {
                continue;
            };
            let is_ours = name.starts_with(super::job::PREFIX);
            let is_orphan = match self.job(name) {
                Ok(job) if extension == "pcm" => job.status == Status::Completed,
                Ok(job) => job.status != Status::Completed || self.file(name, job.format) != path,
                Err(StoreError::Gone) => true,
                Err(error) => {
                    tracing::warn!(job = name, %error, "a job cannot be read; its files stay");
                    false
                }
            };
            match (is_ours, is_orphan) {
                (true, true) => fs::remove_file(&path)?,
                (true, false) => make_file_private(&path)?,
                (false, _) => {}
            }
        }
        Ok(())
    }

    /// Refuses a folder whose jobs were stored with another key, or without one where there is one now. One without jobs is used
    /// with the key there is.
    fn check_key(&mut self) -> Result<(), StoreError> {
        let stored: Option<Vec<u8>> =
            self.db.query_row("SELECT sealed FROM sealing LIMIT 1", [], |row| row.get(0)).optional()?;
        let folder = self.folder.clone();
        let refused = match (&self.sealing, stored) {
            (None, None) => return Ok(()),
            (Some(sealing), Some(stored)) => match sealing.open(CHECK, &stored) {
                Ok(_) => return Ok(()),
                Err(why) => StoreError::OtherKey { folder, why },
            },
            (Some(_), None) => StoreError::NotSealed(folder),
            (None, Some(_)) => StoreError::NoKey(folder),
        };
        self.sweep(now())?;
        if self.db.query_row("SELECT COUNT(*) FROM jobs", [], |row| row.get::<_, i64>(0))? > 0 {
            return Err(refused);
        }
        self.db.execute("DELETE FROM sealing", [])?;
        if let Some(sealing) = &self.sealing {
            self.db.execute("INSERT INTO sealing (sealed) VALUES (?)", [sealing.seal(CHECK, b"")])?;
        }
        Ok(())
    }

    /// What a column of a job holds.
    fn seal_text(&self, id: &str, column: &str, text: &str) -> String {
        match &self.sealing {
            None => text.to_owned(),
            Some(sealing) => STANDARD.encode(sealing.seal(&format!("jobs/{id}/{column}"), text.as_bytes())),
        }
    }

    fn open_text(&self, id: &str, column: &'static str, stored: String) -> Result<String, StoreError> {
        let Some(sealing) = &self.sealing else { return Ok(stored) };
        let text = STANDARD.decode(stored).map_err(|_| OpenError::Changed);
        let text = text.and_then(|sealed| sealing.open(&format!("jobs/{id}/{column}"), &sealed));
        let text = text.and_then(|text| String::from_utf8(text).map_err(|_| OpenError::Changed));
        text.map_err(|why| StoreError::Sealed { id: id.into(), column, why })
    }

    /// Bytes of sound in a job's spool, as far as they were counted or more.
    fn n_spooled(&self, job: &Job) -> u64 {
        let Ok(mut file) = File::open(self.spool(&job.id)) else { return 0 };
        match &self.sealing {
            None => file.metadata().map_or(0, |file| file.len()),
            Some(sealing) => sealed::walk(&mut file, sealing.overhead(), job.pcm_bytes).map_or(0, |end| end.plain),
        }
    }

    fn as_told(&self, mut job: Job) -> Job {
        if let Some(failure) = &mut job.failure {
            let message = self.open_text(&job.id, "message", std::mem::take(&mut failure.message));
            failure.message = message.unwrap_or_else(|error| {
                tracing::warn!(%error, "why a job failed cannot be read");
                "The server cannot read why the job failed.".into()
            });
        }
        if let Some(failure) = self.unwritten.get(&job.id) {
            job.status = Status::Failed;
            job.failure = Some(failure.clone());
        }
        job
    }
}

/// Reads the samples that a job gathered.
///
/// # Errors
/// There are none.
pub(super) fn read_spool(
    path: &Path,
    id: &str,
    sealing: Option<&Arc<dyn Sealing>>,
) -> io::Result<Box<dyn Read + Send>> {
    let file = File::open(path)?;
    Ok(match sealing {
        None => Box::new(file),
        Some(sealing) => Box::new(BlockReader::new(io::BufReader::new(file), sealing.clone(), spool_name(id))),
    })
}

/// What the blocks of a job's finished file are bound to.
pub(super) fn file_name(id: &str) -> String {
    format!("jobs/{id}/file")
}

fn spool_name(id: &str) -> String {
    format!("jobs/{id}/samples")
}

/// Appends to the blocks that hold the first `n_kept` bytes; what stands behind them is cut off.
fn append_blocks(file: &mut File, sealing: &dyn Sealing, name: &str, n_kept: u64, bytes: &[u8]) -> io::Result<()> {
    let end = sealed::walk(file, sealing.overhead(), n_kept)?;
    if end.plain != n_kept {
        return Err(io::Error::new(io::ErrorKind::InvalidData, OpenError::CutShort));
    }
    file.set_len(end.offset)?;
    file.seek(SeekFrom::Start(end.offset))?;
    for (number, block) in (end.n_blocks..).zip(bytes.chunks(sealed::MAX_BLOCK)) {
        file.write_all(&sealed::seal_block(sealing, name, number, false, block))?;
    }
    Ok(())
}

/// Options that open a file for writing; one that they create is readable by its owner only.
pub(super) fn private_file() -> OpenOptions {
    let mut options = OpenOptions::new();
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.create(true).truncate(false).write(true);
    options
}

/// A file that an earlier version, or a copy, left readable for others is so no more. One that is not there is none.
fn make_file_private(file: &Path) -> io::Result<()> {
    #[cfg(unix)]
    match fs::set_permissions(file, std::os::unix::fs::PermissionsExt::from_mode(0o600)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    Ok(())
}

/// Creates the folder for its owner only. One that exists keeps its permissions.
fn make_private(folder: &Path) -> io::Result<()> {
    let mut builder = fs::DirBuilder::new();
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.recursive(true).create(folder)
}

fn read(row: &Row<'_>) -> rusqlite::Result<Job> {
    let (status, format): (String, String) = (row.get(1)?, row.get(10)?);
    let failure = row.get::<_, Option<String>>(13)?.zip(row.get::<_, Option<String>>(14)?);
    let number = |at: usize| row.get::<_, i64>(at).map(|n| n.max(0) as u64);
    Ok(Job {
        id: row.get(0)?,
        status: Status::named(&status),
        created: row.get(2)?,
        started: row.get(3)?,
        ended: row.get(4)?,
        n_chunks: number(5)? as usize,
        n_done: number(6)? as usize,
        n_chars: number(7)? as usize,
        voice: row.get(8)?,
        speed: row.get(9)?,
        format: FileFormat::named(&format).unwrap_or(FileFormat::Pcm),
        pcm_bytes: number(11)? / SAMPLE * SAMPLE,
        file_bytes: number(12)?,
        failure: failure.map(|(code, message)| Failure { code, message }),
        model: row.get(15)?,
        owner: row.get(16)?,
    })
}

#[cfg(test)]
mod tests;
