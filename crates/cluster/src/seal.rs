//! Seals what leaves a hub for JetStream and holds what people said, or secrets: AES-256-GCM with a key for each record.
//!
//! Hubs use it for everything that [`JetStream`](crate::JetStream) keeps. The name of the record is authenticated with it, so
//! that one sealed record cannot stand in another one's place. It hides neither the names of records nor their sizes, and does
//! not detect that an older record was put back: revisions do that.
//!
//! A sealed record is a version byte, 4 bytes that identify the key, 16 random bytes (salt), the ciphertext and a tag of 16
//! bytes. Key and nonce of a record are derived from the sealing key and the salt (HKDF-SHA256), so that the number of records
//! is not bounded by the collisions of random nonces of 96 bits.

use antiphon_types::small_file;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ring::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use ring::hkdf::{HKDF_SHA256, KeyType, Prk, Salt};
use std::fmt;
use std::path::{Path, PathBuf};

/// Bytes that sealing adds to a record.
pub const OVERHEAD_BYTES: usize = HEAD_BYTES + TAG_BYTES;

const VERSION: u8 = 1;
const KEY_BYTES: usize = 32;
const ID_BYTES: usize = 4;
const SALT_BYTES: usize = 16;
const TAG_BYTES: usize = 16;
const NONCE_BYTES: usize = 12;
const HEAD_BYTES: usize = 1 + ID_BYTES + SALT_BYTES;

/// The longest file that a key is looked for in.
const MAX_FILE_BYTES: u64 = 4_096;

/// Why a sealed record cannot be opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SealError {
    /// It is shorter than its own frame.
    #[error("the record is cut short")]
    CutShort,
    /// A later build sealed it in another way.
    #[error("the record is sealed in format {found}, and this build reads format {VERSION}: update this hub")]
    Version {
        /// The format.
        found: u8,
    },
    /// Another cluster's, or an exchanged key.
    #[error("the record is sealed with another key than that of cluster.sealing_key")]
    OtherKey,
    /// Its bytes or its name are not those that were sealed.
    #[error("the record was changed or cut short after it was sealed, or it stands in another one's place")]
    Changed,
}

/// Why a file holds no sealing key.
#[derive(Debug, thiserror::Error)]
pub enum SealingKeyError {
    /// The operating system refuses it.
    #[error("the file {path:?} cannot be read: {source}")]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// Something else is in it. Not repeated: it may be a password.
    #[error(
        "the file {0:?} holds no sealing key, which is 32 bytes in base64; `antiphon cluster sealing-key` prints one"
    )]
    NoKey(PathBuf),
}

/// The key that all hubs of a cluster share. Its bytes appear in no `Debug` output.
#[derive(Clone)]
pub struct SealingKey {
    bytes: [u8; KEY_BYTES],
    id: [u8; ID_BYTES],
}

impl SealingKey {
    /// A new key, from the operating system's random numbers.
    #[must_use]
    pub fn generate() -> Self {
        Self::new(rand::random())
    }

    /// Reads a key: the first line that is neither empty nor begins with `#`. Blocks for the time of a small file.
    ///
    /// # Errors
    /// The file cannot be read, or holds something else.
    pub fn read(path: &Path) -> Result<Self, SealingKeyError> {
        let failed = |source| SealingKeyError::File { path: path.into(), source };
        let wrong = || SealingKeyError::NoKey(path.into());
        let bytes = small_file::read(path, MAX_FILE_BYTES).map_err(failed)?;
        let text = std::str::from_utf8(&bytes).map_err(|_| wrong())?;
        let line = text.lines().map(str::trim).find(|line| !line.is_empty() && !line.starts_with('#'));
        let key = STANDARD.decode(line.ok_or_else(wrong)?).map_err(|_| wrong())?;
        Ok(Self::new(key.try_into().map_err(|_| wrong())?))
    }

    /// The key in base64, as [`read`](Self::read) takes it.
    #[must_use]
    pub fn encoded(&self) -> String {
        STANDARD.encode(self.bytes)
    }

    /// Seals a record of this name.
    #[must_use]
    pub fn seal(&self, name: &str, plain: &[u8]) -> Vec<u8> {
        let salt: [u8; SALT_BYTES] = rand::random();
        let mut sealed = Vec::with_capacity(plain.len() + OVERHEAD_BYTES);
        sealed.push(VERSION);
        sealed.extend_from_slice(&self.id);
        sealed.extend_from_slice(&salt);
        sealed.extend_from_slice(plain);
        let (key, nonce) = self.of_record(&salt);
        let (head, body) = sealed.split_at_mut(HEAD_BYTES);
        let tag = key
            .seal_in_place_separate_tag(nonce, Aad::from(associated(head, name)), body)
            .expect("a record is shorter than AES-GCM's limit of 64 GiB");
        sealed.extend_from_slice(tag.as_ref());
        sealed
    }

    /// Opens a record of this name.
    ///
    /// # Errors
    /// It is not what a hub with this key sealed under this name.
    pub fn open(&self, name: &str, sealed: &[u8]) -> Result<Vec<u8>, SealError> {
        match sealed.first() {
            None => return Err(SealError::CutShort),
            Some(&VERSION) => {}
            Some(&found) => return Err(SealError::Version { found }),
        }
        if sealed.len() < OVERHEAD_BYTES {
            return Err(SealError::CutShort);
        }
        let (head, body) = sealed.split_at(HEAD_BYTES);
        if head[1..=ID_BYTES] != self.id {
            return Err(SealError::OtherKey);
        }
        let (key, nonce) = self.of_record(&head[1 + ID_BYTES..]);
        let mut body = body.to_vec();
        let plain = key
            .open_in_place(nonce, Aad::from(associated(head, name)), &mut body)
            .map_err(|_| SealError::Changed)?
            .len();
        body.truncate(plain);
        Ok(body)
    }

    fn new(bytes: [u8; KEY_BYTES]) -> Self {
        let mut id = [0; ID_BYTES];
        derive(&Salt::new(HKDF_SHA256, b"antiphon sealing key").extract(&bytes), b"id", &mut id);
        Self { bytes, id }
    }

    /// Key and nonce of one record.
    fn of_record(&self, salt: &[u8]) -> (LessSafeKey, Nonce) {
        let secret = Salt::new(HKDF_SHA256, salt).extract(&self.bytes);
        let mut key = [0; KEY_BYTES];
        let mut nonce = [0; NONCE_BYTES];
        derive(&secret, b"key", &mut key);
        derive(&secret, b"nonce", &mut nonce);
        let key = UnboundKey::new(&AES_256_GCM, &key).expect("AES-256 takes keys of 32 bytes");
        (LessSafeKey::new(key), Nonce::assume_unique_for_key(nonce))
    }
}

impl fmt::Debug for SealingKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SealingKey(..)")
    }
}

/// What is authenticated beside the record: the frame and the name.
fn associated(head: &[u8], name: &str) -> Vec<u8> {
    [head, name.as_bytes()].concat()
}

fn derive(secret: &Prk, purpose: &[u8], to: &mut [u8]) {
    struct Length(usize);
    impl KeyType for Length {
        fn len(&self) -> usize {
            self.0
        }
    }
    secret
        .expand(&[purpose], Length(to.len()))
        .and_then(|derived| derived.fill(to))
        .expect("HKDF-SHA256 yields 8160 bytes");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_opened_under_its_name_only() {
        let key = SealingKey::generate();
        let sealed = key.seal("sessions/a", b"what was said");
        assert_eq!(key.open("sessions/a", &sealed).unwrap(), b"what was said");
        assert_eq!(key.open("sessions/b", &sealed), Err(SealError::Changed));
        assert_eq!(key.open("empty", &key.seal("empty", b"")).unwrap(), b"");
        assert_ne!(sealed, key.seal("sessions/a", b"what was said"));
        assert!(!sealed.windows(4).any(|bytes| bytes == b"what"));
        assert_eq!(sealed.len(), 13 + OVERHEAD_BYTES);
    }

    #[test]
    fn what_is_wrong_with_a_record_is_named() {
        let key = SealingKey::generate();
        let sealed = key.seal("a", b"words");
        assert_eq!(key.open("a", b""), Err(SealError::CutShort));
        assert_eq!(key.open("a", &sealed[..OVERHEAD_BYTES - 1]), Err(SealError::CutShort));
        assert_eq!(key.open("a", &sealed[..sealed.len() - 1]), Err(SealError::Changed));
        assert_eq!(SealingKey::generate().open("a", &sealed), Err(SealError::OtherKey));
        for at in 0..sealed.len() {
            let mut changed = sealed.clone();
            changed[at] ^= 1;
            assert!(key.open("a", &changed).is_err(), "byte {at}");
        }
        assert_eq!(key.open("a", &[9; 99]), Err(SealError::Version { found: 9 }));
    }

    #[test]
    fn a_key_is_read_as_it_is_printed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key");
        let key = SealingKey::generate();
        std::fs::write(&path, format!("# of production\n{}\n", key.encoded())).unwrap();
        let sealed = key.seal("a", b"words");
        assert_eq!(SealingKey::read(&path).unwrap().open("a", &sealed).unwrap(), b"words");
        assert_eq!(format!("{key:?}"), "SealingKey(..)");
        for wrong in ["", "secret", "AAAA", &format!("{}A", key.encoded())] {
            std::fs::write(&path, wrong).unwrap();
            let error = SealingKey::read(&path).unwrap_err();
            assert!(matches!(error, SealingKeyError::NoKey(_)) && !error.to_string().contains("secret"), "{error}");
        }
        std::fs::write(&path, "A".repeat(5_000)).unwrap();
        for wrong in [folder.path(), &path] {
            assert!(matches!(SealingKey::read(wrong), Err(SealingKeyError::File { .. })), "{}", wrong.display());
        }
    }
}
