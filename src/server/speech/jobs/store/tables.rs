//! The database of the jobs: its tables, and how those of versions before become them.

use super::{StoreError, private_file};
use rusqlite::Connection;
use std::path::Path;

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

/// Opens or creates the database; migrations are atomic. Deleted content is overwritten.
pub(super) fn open(path: &Path) -> Result<Connection, StoreError> {
    // SQLite would create it as the umask allows; its log of changes has the permissions of the database.
    private_file().open(path)?;
    let db = Connection::open(path)?;
    db.pragma_update(None, "journal_mode", "WAL")?;
    db.pragma_update(None, "synchronous", "NORMAL")?;
    db.pragma_update(None, "secure_delete", "ON")?;
    let version = db.pragma_query_value(None, "user_version", |row| row.get::<_, i64>(0))?;
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
    // On an error the connection is closed, and with it the transaction undone.
    db.execute_batch(&format!("BEGIN IMMEDIATE; {changes} PRAGMA user_version = {VERSION}; COMMIT"))?;
    if (1..3).contains(&version) {
        // What was deleted by versions before was not overwritten.
        if let Err(error) = db.execute_batch("VACUUM") {
            tracing::warn!(%error, "texts of deleted jobs may still stand in the jobs' database");
        }
        forget(&db);
    }
    Ok(db)
}

/// Takes what was deleted out of the log of changes too. Should it not be possible now, the next time does it.
pub(super) fn forget(db: &Connection) {
    let done = db.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()));
    if let Err(error) = done {
        tracing::debug!(%error, "the log of the jobs' database could not be emptied");
    }
}
