//! Published checksums, and the checksums computed from files.

use super::RegistryError;
use sha1::Sha1;
use sha2::Sha256;
use std::fmt;
use std::io::{self, Read};
use std::path::Path;

/// A published checksum. SHA-1 no longer protects against an attacker, but it detects transfer errors.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Sum {
    /// 64 hex digits.
    Sha256(String),
    /// 40 hex digits.
    Sha1(String),
}

impl Sum {
    /// Parses a published checksum; fails if the number of digits does not match its kind.
    pub(super) fn read(sha256: Option<&str>, sha1: Option<&str>) -> Result<Option<Self>, String> {
        let right = |digits: &str, n: usize| digits.len() == n && digits.bytes().all(|b| b.is_ascii_hexdigit());
        match (sha256, sha1) {
            (Some(digits), None) if right(digits, 64) => Ok(Some(Self::Sha256(digits.to_ascii_lowercase()))),
            (None, Some(digits)) if right(digits, 40) => Ok(Some(Self::Sha1(digits.to_ascii_lowercase()))),
            (None, None) => Ok(None),
            (Some(_), Some(_)) => Err("one checksum is enough: write sha256 or sha1".into()),
            (Some(_), None) => Err("sha256 needs 64 hex digits".into()),
            (None, Some(_)) => Err("sha1 needs 40 hex digits".into()),
        }
    }
}

impl fmt::Display for Sum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sha256(digits) => write!(f, "SHA-256 {digits}"),
            Self::Sha1(digits) => write!(f, "SHA-1 {digits}"),
        }
    }
}

/// The SHA-256 of a file, 64 hex digits. Blocks while it reads the file.
pub fn sha256(path: &Path) -> Result<String, RegistryError> {
    let computed = Hasher::of_file(path).map_err(RegistryError::disk(path, "cannot be read"))?;
    Ok(computed.sha256())
}

/// Computes both checksums of a stream: the published one is verified, and SHA-256 is stored in the receipt.
#[derive(Clone, Default)]
pub(super) struct Hasher {
    sha256: Sha256,
    sha1: Sha1,
    n_bytes: u64,
}

impl Hasher {
    /// The checksums of the file at `path`. Blocks while it reads the file.
    pub(super) fn of_file(path: &Path) -> io::Result<Self> {
        let mut hasher = Self::default();
        let mut file = std::fs::File::open(path)?;
        let mut piece = vec![0; 1 << 18];
        loop {
            match file.read(&mut piece)? {
                0 => return Ok(hasher),
                n => hasher.update(&piece[..n]),
            }
        }
    }

    pub(super) fn update(&mut self, bytes: &[u8]) {
        sha2::Digest::update(&mut self.sha256, bytes);
        sha1::Digest::update(&mut self.sha1, bytes);
        self.n_bytes += bytes.len() as u64;
    }

    pub(super) fn n_bytes(&self) -> u64 {
        self.n_bytes
    }

    /// The computed checksum of the same kind as `published`.
    pub(super) fn like(&self, published: &Sum) -> Sum {
        match published {
            Sum::Sha256(_) => Sum::Sha256(self.sha256()),
            Sum::Sha1(_) => Sum::Sha1(hex(&sha1::Digest::finalize(self.sha1.clone()))),
        }
    }

    pub(super) fn sha256(&self) -> String {
        hex(&sha2::Digest::finalize(self.sha256.clone()))
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_kinds_are_computed_as_other_programs_do() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("abc");
        std::fs::write(&path, "abc").unwrap();
        let hasher = Hasher::of_file(&path).unwrap();
        // The example of FIPS 180-4.
        let sha256 = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        let sha1 = "a9993e364706816aba3e25717850c26c9cd0d89d";
        for sum in [Sum::Sha256(sha256.into()), Sum::Sha1(sha1.into())] {
            assert_eq!(hasher.like(&sum), sum);
        }
        assert_eq!((hasher.n_bytes(), hasher.sha256().as_str()), (3, sha256));
    }

    #[test]
    fn digits_are_counted() {
        assert!(Sum::read(Some("abc"), None).is_err() && Sum::read(None, Some(&"g".repeat(40))).is_err());
        assert_eq!(Sum::read(None, Some(&"A".repeat(40))), Ok(Some(Sum::Sha1("a".repeat(40)))));
    }
}
