//! The database of the jobs: its tables, how those of versions before become them, and the copy that is kept of those.

use super::{StoreError, private_file};
use rusqlite::Connection;
use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// The version of the tables; an unknown version is refused.
pub(super) const VERSION: i64 = 7;

const TABLES: &str = "
CREATE TABLE IF NOT EXISTS jobs (
    seq INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE, status TEXT NOT NULL, created INTEGER NOT NULL,
    started INTEGER, ended INTEGER, chunks TEXT NOT NULL, n_chunks INTEGER NOT NULL, n_done INTEGER NOT NULL DEFAULT 0,
    n_chars INTEGER NOT NULL, voice TEXT NOT NULL, speed REAL NOT NULL, format TEXT NOT NULL,
    pcm_bytes INTEGER NOT NULL DEFAULT 0, file_bytes INTEGER NOT NULL DEFAULT 0, code TEXT, message TEXT, model TEXT,
    own_voice INTEGER NOT NULL DEFAULT 0, owner TEXT, instructions TEXT, digest TEXT
);
CREATE INDEX IF NOT EXISTS by_status ON jobs (status, seq);
CREATE TABLE IF NOT EXISTS sealing (sealed BLOB NOT NULL);";

/// Version 1 knew no models.
const WITH_MODELS: &str = "ALTER TABLE jobs ADD COLUMN model TEXT;";
/// Version 2 did not record whether a voice was chosen; its voices count as chosen.
const WITH_OWN_VOICES: &str = "ALTER TABLE jobs ADD COLUMN own_voice INTEGER NOT NULL DEFAULT 0;";

/// Version 3 did not record a job's owner; its jobs have none.
const WITH_OWNERS: &str = "ALTER TABLE jobs ADD COLUMN owner TEXT;";
/// Version 4 did not record how to speak.
const WITH_INSTRUCTIONS: &str = "ALTER TABLE jobs ADD COLUMN instructions TEXT;";

/// Version 5 did not know idempotency keys.
const WITH_DIGESTS: &str = "ALTER TABLE jobs ADD COLUMN digest TEXT;";

/// Version 6 encrypted nothing. The table holds a sealed record where the jobs are encrypted: it shows with which key.
const WITH_SEALING: &str = "CREATE TABLE IF NOT EXISTS sealing (sealed BLOB NOT NULL);";

/// What the header of each SQLite database begins with.
const MAGIC: &[u8; 16] = b"SQLite format 3\0";
/// Where the header has the database's own version, big-endian.
const VERSION_AT: usize = 60;

/// The version of the tables in a database, read from the file's header, so that a hub may work on it; `None`: there is no file,
/// or an empty one.
pub(super) fn version_of(path: &Path) -> io::Result<Option<i64>> {
    let mut header = Vec::new();
    match fs::File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
        Ok(file) => file.take(VERSION_AT as u64 + 4).read_to_end(&mut header)?,
    };
    if header.is_empty() {
        return Ok(None);
    }
    let version = header.get(VERSION_AT..).and_then(|bytes| bytes.try_into().ok());
    let Some(version) = version.filter(|_| header.starts_with(MAGIC)) else {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "it is no SQLite database"));
    };
    Ok(Some(i64::from(i32::from_be_bytes(version))))
}

/// Where the copy of a database of an earlier version is kept.
fn backup_path(database: &Path, version: i64) -> PathBuf {
    database.with_extension(format!("v{version}.db"))
}

/// The copies that are kept.
pub(super) fn backups(database: &Path) -> impl Iterator<Item = PathBuf> {
    (1..VERSION).map(|version| backup_path(database, version)).filter(|path| path.is_file())
}

/// Keeps a copy of a database before its tables are changed, without what was deleted from it. Readable by its owner only.
fn back_up(db: &Connection, path: &Path, version: i64) -> Result<(), StoreError> {
    let backup = backup_path(path, version);
    let copy = || -> Result<(), StoreError> {
        // Of a start that did not come to its end. SQLite writes into a file that is not there, or empty.
        private_file().truncate(true).open(&backup)?;
        let name = backup.to_str().ok_or_else(|| io::Error::other("its path is no Unicode"))?;
        db.execute("VACUUM INTO ?", [name])?;
        Ok(())
    };
    copy().map_err(|error| {
        let _ = fs::remove_file(&backup);
        StoreError::Backup { path: backup, why: error.to_string() }
    })
}

/// Takes a deleted job out of the copies. A copy that cannot be changed is removed: what was deleted stays nowhere.
pub(super) fn remove_from_backups(database: &Path, id: &str) -> io::Result<()> {
    for backup in backups(database) {
        let removed = Connection::open(&backup).and_then(|db| {
            db.pragma_update(None, "secure_delete", "ON")?;
            db.execute("DELETE FROM jobs WHERE id = ?", [id])
        });
        if let Err(error) = removed {
            tracing::warn!(backup = %backup.display(), %error, "removing a copy of the jobs' database that cannot be changed");
            fs::remove_file(&backup)?;
        }
    }
    Ok(())
}

/// Removes copies once the jobs of their time have been kept long enough.
pub(super) fn sweep_backups(database: &Path, now: SystemTime, keep: Duration) -> io::Result<()> {
    for backup in backups(database) {
        let age = now.duration_since(fs::metadata(&backup)?.modified()?).unwrap_or_default();
        if age >= keep {
            fs::remove_file(&backup)?;
        }
    }
    Ok(())
}

/// Opens or creates the database. Tables of a version before are copied, then changed in one transaction. Deleted content is
/// overwritten.
pub(super) fn open(path: &Path) -> Result<Connection, StoreError> {
    // SQLite would create it as the umask allows; its log of changes has the permissions of the database.
    private_file().open(path)?;
    let db = Connection::open(path)?;
    let version = db.pragma_query_value(None, "user_version", |row| row.get::<_, i64>(0))?;
    if version > VERSION {
        return Err(StoreError::Newer(version));
    }
    // Writes into the file's header, which a newer version may have otherwise.
    db.pragma_update(None, "journal_mode", "WAL")?;
    db.pragma_update(None, "synchronous", "NORMAL")?;
    db.pragma_update(None, "secure_delete", "ON")?;
    let changes = match version {
        0 => TABLES.to_owned(),
        1 => [WITH_MODELS, WITH_OWN_VOICES, WITH_OWNERS, WITH_INSTRUCTIONS, WITH_DIGESTS, WITH_SEALING].concat(),
        2 => [WITH_OWN_VOICES, WITH_OWNERS, WITH_INSTRUCTIONS, WITH_DIGESTS, WITH_SEALING].concat(),
        3 => [WITH_OWNERS, WITH_INSTRUCTIONS, WITH_DIGESTS, WITH_SEALING].concat(),
        4 => [WITH_INSTRUCTIONS, WITH_DIGESTS, WITH_SEALING].concat(),
        5 => [WITH_DIGESTS, WITH_SEALING].concat(),
        6 => WITH_SEALING.to_owned(),
        VERSION => return Ok(db),
        other => return Err(StoreError::Version(other)),
    };
    if version > 0 {
        back_up(&db, path, version)?;
    }
    // On an error the connection is closed, and with it the transaction undone.
    db.execute_batch(&format!("BEGIN IMMEDIATE; {changes} PRAGMA user_version = {VERSION}; COMMIT"))?;
    if (1..3).contains(&version) {
        // What was deleted by versions before was not overwritten.
        if let Err(error) = db.execute_batch("VACUUM") {
            tracing::warn!(%error, "texts of deleted jobs may still stand in the jobs' database");
        }
    }
    // The database's file names the version from here on, and holds nothing of before.
    forget(&db);
    Ok(db)
}

/// Takes what was deleted out of the log of changes too. Should it not be possible now, the next time does it.
pub(super) fn forget(db: &Connection) {
    let done = db.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()));
    if let Err(error) = done {
        tracing::debug!(%error, "the log of the jobs' database could not be emptied");
    }
}
