//! Jobs on the disk: a SQLite database of requests and their progress, and an audio file for each.
//!
//! It runs on the thread of an engine pool, because everything here blocks. While a job is synthesized its samples are appended
//! to `ID.pcm`, and the database records how many chunks and bytes of them are valid: a crash's remainder is cut off. The
//! finished file is renamed atomically to `ID.EXTENSION`, then published, so that no partial file is served. One hub holds a
//! folder at a time, by a lock on `lock`.

mod tables;

use super::super::request::SpeechSpec;
use super::job::{Failure, Job, Status};
use antiphon_audio::encode::FileFormat;
use antiphon_session::Viewer;
use antiphon_types::KeyId;
use rusqlite::{Connection, OptionalExtension, Row, params};
use std::collections::HashMap;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use tables::VERSION;

const DATABASE: &str = "jobs.db";
/// Bytes of a sample in `ID.pcm`.
const SAMPLE: u64 = 2;

const COLUMNS: &str = "id, status, created, started, ended, n_chunks, n_done, n_chars, voice, speed, format, pcm_bytes, file_bytes, code, message, model";

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

/// Why the store did not do it.
#[derive(Debug, thiserror::Error)]
pub(super) enum StoreError {
    /// Another hub has the folder.
    #[error("another hub works on the jobs in {0}")]
    Taken(PathBuf),
    /// Too many are waiting.
    #[error("{0} jobs are waiting already (speech.max_jobs)")]
    TooMany(usize),
    /// The bound on the bytes of all jobs.
    #[error("the jobs take all the room they may (speech.jobs_max_mib)")]
    NoRoom,
    /// There is no such job, or not any more.
    #[error("there is no such job")]
    Gone,
    /// The job of this idempotency key has another request.
    #[error("another request had this idempotency key")]
    OtherRequest,
    /// It was made by another version.
    #[error("the jobs' database is of version {0}, not {VERSION}: name another folder in speech.jobs_dir")]
    Version(i64),
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
    /// Failures that a full disk did not take: true until the next start, which tries again.
    unwritten: HashMap<String, Failure>,
    /// Unlocked when it is closed.
    _lock: File,
}

impl Store {
    /// Opens or makes the folder. Jobs that were being worked on wait again; what belongs to none is removed.
    pub(super) fn open(folder: &Path, bounds: Bounds) -> Result<Self, StoreError> {
        make_private(folder)?;
        let lock = OpenOptions::new().create(true).truncate(false).write(true).open(folder.join("lock"))?;
        lock.try_lock().map_err(|error| match error {
            TryLockError::WouldBlock => StoreError::Taken(folder.into()),
            TryLockError::Error(error) => error.into(),
        })?;
        let db = tables::open(&folder.join(DATABASE))?;
        db.execute("UPDATE jobs SET status = 'queued' WHERE status = 'running'", [])?;
        let store = Self { db, folder: folder.into(), bounds, unwritten: HashMap::new(), _lock: lock };
        store.remove_orphans()?;
        Ok(store)
    }

    /// Where a folder that holds jobs has them.
    pub(super) fn database(folder: &Path) -> PathBuf {
        folder.join(DATABASE)
    }

    /// Puts a job at the end of the queue. `owner`: the API key it belongs to. `digest`: of the request, where it has an
    /// idempotency key, which the id is derived from; the job is then made once.
    pub(super) fn add(
        &mut self,
        id: &str,
        owner: Option<KeyId>,
        wish: &SpeechSpec,
        digest: Option<&str>,
        now: i64,
    ) -> Result<Job, StoreError> {
        if let Some(digest) = digest {
            self.sweep(now)?;
            let sql = "SELECT digest FROM jobs WHERE id = ?";
            match self.db.query_row(sql, [id], |row| row.get::<_, Option<String>>(0)).optional()? {
                Some(found) if found.as_deref() == Some(digest) => return self.job(id),
                Some(_) => return Err(StoreError::OtherRequest),
                None => {}
            }
        }
        let n_open = self.n_open()?;
        if n_open >= self.bounds.n_open {
            return Err(StoreError::TooMany(n_open));
        }
        self.sweep(now)?;
        let chunks = serde_json::to_string(&wish.chunks).expect("texts are JSON");
        self.db.execute(
            "INSERT INTO jobs (id, status, created, chunks, n_chunks, n_chars, voice, own_voice, speed, format, model, owner, instructions, digest) VALUES (?, 'queued', ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            params![
                id, now, chunks, wish.chunks.len() as i64, wish.n_chars as i64, wish.voice, wish.is_own_voice, wish.speed,
                wish.format.name(), wish.model, owner.map(|owner| owner.to_string()), wish.instructions, digest
            ],
        )?;
        self.job(id)
    }

    /// The next job of the queue, now being worked on, and what it is to say.
    pub(super) fn take(&mut self, now: i64) -> Result<Option<(Job, SpeechSpec)>, StoreError> {
        self.sweep(now)?;
        let next = "SELECT id, chunks, own_voice, instructions FROM jobs WHERE status = 'queued' ORDER BY seq LIMIT 1";
        let next: Option<(String, String, bool, Option<String>)> =
            self.db.query_row(next, [], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?))).optional()?;
        let Some((id, chunks, is_own_voice, instructions)) = next else { return Ok(None) };
        self.db.execute("UPDATE jobs SET status = 'running', started = ? WHERE id = ?", params![now, id])?;
        let mut job = self.job(&id)?;
        let there = fs::metadata(self.spool(&id)).map_or(0, |file| file.len());
        if there < job.pcm_bytes {
            // A power cut took what was counted: from the beginning.
            self.db.execute("UPDATE jobs SET n_done = 0, pcm_bytes = 0 WHERE id = ?", [&id])?;
            (job.n_done, job.pcm_bytes) = (0, 0);
        }
        let chunks = serde_json::from_str(&chunks).unwrap_or_default();
        let (n_chars, voice, speed, format) = (job.n_chars, job.voice.clone(), job.speed, job.format);
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
            self.make_room(bytes.len() as u64)?;
        }
        let mut file = OpenOptions::new().create(true).truncate(false).write(true).open(self.spool(id))?;
        if file.metadata()?.len() > job.pcm_bytes {
            file.set_len(job.pcm_bytes)?;
        }
        file.seek(SeekFrom::Start(job.pcm_bytes))?;
        file.write_all(&bytes)?;
        self.db.execute(
            "UPDATE jobs SET n_done = n_done + 1, pcm_bytes = pcm_bytes + ? WHERE id = ?",
            params![bytes.len() as i64, id],
        )?;
        Ok(())
    }

    /// Renames a finished file to its final name, then publishes it.
    pub(super) fn finish(&mut self, id: &str, part: &Path, now: i64) -> Result<(), StoreError> {
        let job = self.job(id)?;
        let bytes = fs::metadata(part)?.len();
        fs::rename(part, self.file(id, job.format))?;
        self.db.execute(
            "UPDATE jobs SET status = 'completed', ended = ?, file_bytes = ? WHERE id = ?",
            params![now, bytes as i64, id],
        )?;
        // Nobody needs it any more; should it stay, the next start removes it.
        let _ = fs::remove_file(self.spool(id));
        Ok(())
    }

    /// Ends a job that failed. Its audio is removed first, so that a full disk has room for the update.
    pub(super) fn fail(&mut self, id: &str, failure: Failure, now: i64) {
        self.remove_files(id);
        let told = self.db.execute(
            "UPDATE jobs SET status = 'failed', ended = ?, code = ?, message = ?, pcm_bytes = 0 WHERE id = ?",
            params![now, failure.code, failure.message, id],
        );
        if let Err(error) = told {
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

    /// Those that `viewer` may see, the newest first, at most `n`, behind `after` where there is one.
    pub(super) fn list(&self, viewer: Viewer, after: Option<&str>, n: usize) -> Result<Vec<Job>, StoreError> {
        let owner = match viewer {
            Viewer::All => None,
            Viewer::Key(key) => Some(key.to_string()),
            Viewer::Nobody => return Ok(Vec::new()),
        };
        let sql = format!(
            "SELECT {COLUMNS} FROM jobs WHERE seq < COALESCE((SELECT seq FROM jobs WHERE id = ?1), 9223372036854775807) AND (?3 IS NULL OR owner = ?3) ORDER BY seq DESC LIMIT ?2"
        );
        let mut statement = self.db.prepare(&sql)?;
        let jobs = statement.query_map(params![after, n as i64, owner], read)?.collect::<Result<Vec<_>, _>>()?;
        Ok(jobs.into_iter().map(|job| self.as_told(job)).collect())
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
        Ok(())
    }

    /// Removes finished jobs, oldest first, until `n_bytes` more fit; none where that would not suffice.
    fn make_room(&mut self, more: u64) -> Result<(), StoreError> {
        let unfinished = "SELECT COALESCE(SUM(pcm_bytes), 0) FROM jobs WHERE status <> 'completed'";
        let unfinished = self.db.query_row(unfinished, [], |row| row.get::<_, i64>(0))? as u64;
        if unfinished + more > self.bounds.bytes {
            return Err(StoreError::NoRoom);
        }
        while self.bytes()? + more > self.bounds.bytes {
            let oldest = "SELECT id FROM jobs WHERE status = 'completed' ORDER BY ended, seq LIMIT 1";
            let oldest: Option<String> = self.db.query_row(oldest, [], |row| row.get(0)).optional()?;
            self.delete(&oldest.ok_or(StoreError::NoRoom)?)?;
        }
        Ok(())
    }

    fn remove_files(&self, id: &str) {
        for path in FileFormat::ALL.map(|format| self.file(id, format)).into_iter().chain([self.spool(id)]) {
            // Most of them were never there.
            let _ = fs::remove_file(path);
        }
    }

    /// Files of jobs that are not there any more, and those that were not finished.
    fn remove_orphans(&self) -> Result<(), StoreError> {
        for entry in fs::read_dir(&self.folder)? {
            let path = entry?.path();
            let (Some(name), Some(extension)) = (path.file_stem().and_then(|n| n.to_str()), path.extension()) else {
                continue;
            };
            let is_ours = name.starts_with(super::job::PREFIX);
            let is_orphan = match self.job(name) {
                Ok(job) if extension == "pcm" => job.status == Status::Completed,
                Ok(job) => job.status != Status::Completed || self.file(name, job.format) != path,
                Err(_) => true,
            };
            if is_ours && is_orphan {
                fs::remove_file(&path)?;
            }
        }
        Ok(())
    }

    fn as_told(&self, mut job: Job) -> Job {
        if let Some(failure) = self.unwritten.get(&job.id) {
            (job.status, job.failure) = (Status::Failed, Some(failure.clone()));
        }
        job
    }
}

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
    })
}

#[cfg(test)]
mod tests;
