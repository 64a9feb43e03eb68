//! The key of files at rest: `server.storage_key`.

use antiphon_cluster::seal::{OVERHEAD_BYTES, SealError, SealingKey, SealingKeyError};
use antiphon_types::sealed::{OpenError, Sealing};
use std::path::Path;

/// A key that encrypts replay logs and jobs: AES-256-GCM with a key derived for each record.
#[derive(Clone, Debug)]
pub struct StorageKey(SealingKey);

impl StorageKey {
    /// Reads a key as `antiphon cluster sealing-key` prints it. Blocks for the time of a small file.
    ///
    /// # Errors
    /// The file cannot be read, or holds something else.
    pub fn read(path: &Path) -> Result<Self, SealingKeyError> {
        SealingKey::read(path).map(Self)
    }
}

impl Sealing for StorageKey {
    fn seal(&self, name: &str, plain: &[u8]) -> Vec<u8> {
        self.0.seal(name, plain)
    }

    fn open(&self, name: &str, sealed: &[u8]) -> Result<Vec<u8>, OpenError> {
        self.0.open(name, sealed).map_err(|error| match error {
            SealError::CutShort => OpenError::CutShort,
            SealError::Version { .. } => OpenError::Newer,
            SealError::OtherKey => OpenError::OtherKey,
            SealError::Changed => OpenError::Changed,
        })
    }

    fn overhead(&self) -> usize {
        OVERHEAD_BYTES
    }
}
