//! The API keys of this server: loaded at startup and on reload, stored as SHA-256 hashes, compared in constant time.
//!
//! `cli` loads them before the server listens; [`super::auth`] checks every request against them. A key is never
//! logged, printed or kept in plain text, and no error message contains one.

use crate::config::ServerConfig;
use antiphon_types::KeyId;
use sha2::{Digest as _, Sha256};
use std::collections::HashSet;
use std::fmt;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use subtle::{Choice, ConstantTimeEq};

/// SHA-256 of a key.
pub(super) type Digest = [u8; 32];

/// A digest as text, the key of a record that hubs share.
pub(super) fn hex(digest: &Digest) -> String {
    digest.iter().fold(String::with_capacity(64), |text, byte| text + &format!("{byte:02x}"))
}

/// Prefix of a hashed entry.
const HASHED: &str = "sha256:";

/// Shorter keys can be guessed: 16 characters of 5 bits are 80 bits.
const SHORT: usize = 16;

/// The API keys of a server. Without any, every client that can reach the server may use it, so it may listen on
/// loopback only. An admin key grants everything that API keys grant, and permits changing the hub's models.
#[derive(Clone, Default)]
pub struct Keys {
    all: Vec<Digest>,
    admin: Vec<Digest>,
}

/// Why the keys cannot be loaded, or why the server may not listen without them.
#[derive(Debug, thiserror::Error)]
pub enum KeysError {
    /// The file cannot be read.
    #[error("server.api_keys_file: {} cannot be read", path.display())]
    Unreadable {
        /// The configured path.
        path: PathBuf,
        /// The I/O error.
        #[source]
        source: std::io::Error,
    },
    /// The file holds no key; ignoring it would leave the server open unintentionally.
    #[error("server.api_keys_file: {} holds no key; write one per line", .0.display())]
    Empty(PathBuf),
    /// An entry is not a valid key.
    #[error("{place}, key {number}: {why}")]
    Malformed {
        /// The file or the environment variable.
        place: String,
        /// The entry's position, counted from 1.
        number: usize,
        /// What is wrong; never contains the key.
        why: &'static str,
    },
    /// The address is reachable from other machines and no keys are configured.
    #[error(
        "refusing to listen on {address} without keys: anyone who reaches it could use this server. Put keys into the \
         environment variable that server.api_keys_env names (ANTIPHON_API_KEYS), or into a file that \
         server.api_keys_file names; or listen on 127.0.0.1"
    )]
    Open {
        /// The configured address.
        address: String,
    },
}

impl Keys {
    /// Reads the configured environment variables and file. Blocks for one small file. A variable that is not set holds
    /// no keys.
    pub fn load(config: &ServerConfig) -> Result<Self, KeysError> {
        let mut keys = Self::default();
        keys.extend_from(&config.admin_keys_env)?;
        keys.admin.clone_from(&keys.all);
        keys.extend_from(&config.api_keys_env)?;
        if !config.api_keys_file.is_empty() {
            let path = Path::new(&config.api_keys_file);
            let text =
                std::fs::read_to_string(path).map_err(|source| KeysError::Unreadable { path: path.into(), source })?;
            let lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
            if keys.extend(&path.display().to_string(), lines)? == 0 {
                return Err(KeysError::Empty(path.into()));
            }
        }
        Ok(keys)
    }

    /// A set of these plain-text keys.
    pub fn of(keys: &[&str]) -> Self {
        Self { all: keys.iter().map(|key| digest(key)).collect(), admin: Vec::new() }
    }

    /// Adds these plain-text admin keys.
    pub fn with_admin(mut self, keys: &[&str]) -> Self {
        self.admin.extend(keys.iter().map(|key| digest(key)));
        self.all.extend(&self.admin);
        self
    }

    /// Whether there are admin keys.
    pub(super) fn have_admin(&self) -> bool {
        !self.admin.is_empty()
    }

    /// Whether requests need a key.
    pub fn are_on(&self) -> bool {
        !self.all.is_empty()
    }

    /// Checks whether the server may listen on this address: any with keys, loopback without; else [`KeysError::Open`].
    pub fn allow_listening(&self, address: SocketAddr) -> Result<(), KeysError> {
        if self.are_on() || address.ip().is_loopback() {
            return Ok(());
        }
        Err(KeysError::Open { address: address.to_string() })
    }

    /// The id of `key` if it is valid. Takes the same time for an invalid key.
    pub(super) fn find(&self, key: &str) -> Option<KeyId> {
        is_among(&self.all, key).then(|| id_of(&digest(key)))
    }

    /// Whether a key with this id is valid.
    pub(super) fn contain(&self, id: KeyId) -> bool {
        self.all.iter().any(|digest| id_of(digest) == id)
    }

    /// The ids of all keys.
    pub(super) fn ids(&self) -> impl Iterator<Item = KeyId> {
        self.all.iter().map(id_of)
    }

    /// Number of distinct keys.
    pub(super) fn n_keys(&self) -> usize {
        self.all.iter().collect::<HashSet<_>>().len()
    }

    /// Number of distinct keys that are not admin keys.
    pub(super) fn n_clients(&self) -> usize {
        let clients: HashSet<&Digest> = self.all.iter().filter(|digest| !self.admin.contains(digest)).collect();
        clients.len()
    }

    /// Whether `key` is an admin key.
    pub(super) fn hold_admin(&self, key: &str) -> bool {
        is_among(&self.admin, key)
    }

    /// Adds the keys of an environment variable, if it is set.
    fn extend_from(&mut self, variable: &str) -> Result<(), KeysError> {
        let Some(text) = Some(variable).filter(|name| !name.is_empty()).and_then(std::env::var_os) else {
            return Ok(());
        };
        let entries = text.to_string_lossy();
        let entries = entries.split([',', ' ', '\t', '\n', '\r']).filter(|entry| !entry.is_empty());
        self.extend(&format!("environment variable {variable}"), entries).map(drop)
    }

    /// Adds entries; returns their number.
    fn extend<'a>(&mut self, place: &str, entries: impl Iterator<Item = &'a str>) -> Result<usize, KeysError> {
        let before = self.all.len();
        for (index, entry) in entries.enumerate() {
            let malformed = |why| KeysError::Malformed { place: place.to_owned(), number: index + 1, why };
            self.all.push(read(entry).map_err(malformed)?);
            if !entry.starts_with(HASHED) && entry.len() < SHORT {
                tracing::warn!(place, number = index + 1, "a key of fewer than {SHORT} characters can be guessed");
            }
        }
        Ok(self.all.len() - before)
    }
}

fn is_among(digests: &[Digest], key: &str) -> bool {
    let digest = digest(key);
    // Every hash is compared, in constant time.
    digests.iter().fold(Choice::from(0), |found, known| found | known.ct_eq(&digest)).into()
}

/// The id of the key with this hash: the first half of a second hash, so that the first is never exposed.
fn id_of(digest: &Digest) -> KeyId {
    let hash: Digest = Sha256::new().chain_update(b"antiphon key id\0").chain_update(digest).finalize().into();
    KeyId::new(std::array::from_fn(|at| hash[at]))
}

/// Parses a plain-text key, or a hash after `sha256:`.
fn read(entry: &str) -> Result<Digest, &'static str> {
    let Some(hex) = entry.strip_prefix(HASHED) else {
        // Characters allowed in a header and in a subprotocol (RFC 9110, section 5.6.2: token).
        let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
        return match entry {
            _ if entry.starts_with(super::secrets::PREFIX) => Err("keys that begin with ek_ are the short-lived ones"),
            _ if entry.bytes().all(fits) => Ok(digest(entry)),
            _ => Err("a key is made of letters, digits and -._~!#$%&'*+^`|"),
        };
    };
    let mut digest = [0; 32];
    let pair = |at: usize| hex.get(2 * at..2 * at + 2).and_then(|pair| u8::from_str_radix(pair, 16).ok());
    for (at, byte) in digest.iter_mut().enumerate() {
        *byte = pair(at).filter(|_| hex.len() == 64 && !hex.contains('+')).ok_or("sha256: needs 64 hex digits")?;
    }
    Ok(digest)
}

/// Generates a key: 256 bits from the thread's cryptographically secure generator, in hex after `prefix`.
pub(super) fn make(prefix: &str) -> String {
    format!("{prefix}{}", rand::random::<[u8; 32]>().map(|byte| format!("{byte:02x}")).concat())
}

/// The stored form of a key.
pub(super) fn digest(key: &str) -> Digest {
    Sha256::digest(key.as_bytes()).into()
}

impl fmt::Debug for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Keys({})", self.all.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// SHA-256 of "correct-horse-battery", by sha256sum.
    const HASH: &str = "sha256:cc99c47e06085a6bc6fbdc3b67d8e9aa1ded0fe8fb2a2a0b4a4c6cf1ab0d1c5e";

    fn from_file(text: &str) -> Result<Keys, KeysError> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("keys");
        std::fs::write(&path, text).unwrap();
        let api_keys_file = path.to_str().unwrap().to_owned();
        Keys::load(&ServerConfig { api_keys_env: String::new(), api_keys_file, ..ServerConfig::default() })
    }

    #[test]
    fn plain_and_hashed_lines_are_keys() {
        let hashed = format!("sha256:{}", digest("correct-horse").map(|byte| format!("{byte:02x}")).concat());
        let keys = from_file(&format!("# ours\n\n  sk-one-of-ours-1234  \n{hashed}\n")).unwrap();
        assert!(keys.are_on());
        for (key, held) in [("sk-one-of-ours-1234", true), ("correct-horse", true), ("", false), (&hashed, false)] {
            assert_eq!(keys.find(key).is_some(), held, "{key}");
        }
        assert!(!format!("{keys:?}").contains("sk-"));
    }

    #[test]
    fn an_admins_key_opens_what_others_do_and_no_other_is_one() {
        let keys = Keys::of(&["guest"]).with_admin(&["boss"]);
        assert!(keys.find("guest").is_some() && keys.find("boss").is_some());
        assert!(keys.hold_admin("boss") && !keys.hold_admin("guest"));
        assert_eq!(keys.n_clients(), 1);
        assert_eq!(Keys::of(&["one", "two", "two"]).n_clients(), 2);
        assert!(Keys::default().with_admin(&["boss"]).are_on());
    }

    #[test]
    fn what_is_no_key_is_refused_and_not_repeated() {
        for (text, expect) in [
            ("# none\n", "holds no key"),
            ("good-key-1234567890\nmy secret", "key 2: a key is made of"),
            (&HASH[..40], "64 hex digits"),
            ("ek_12345678901234567890", "short-lived"),
        ] {
            let error = from_file(text).unwrap_err().to_string();
            assert!(error.contains(expect) && !error.contains("secret"), "{error}");
        }
        let config = ServerConfig { api_keys_file: "nowhere".into(), ..ServerConfig::default() };
        assert!(Keys::load(&config).unwrap_err().to_string().contains("nowhere cannot be read"));
        assert!(read(HASH).is_ok());
    }

    #[test]
    fn without_keys_only_loopback_is_listened_on() {
        let check = |keys: &[&str], address: &str| Keys::of(keys).allow_listening(address.parse().unwrap()).is_ok();
        assert!(check(&[], "127.0.0.1:80") && check(&[], "127.8.8.8:80") && check(&[], "[::1]:80"));
        assert!(!check(&[], "0.0.0.0:80") && !check(&[], "[::]:80") && !check(&[], "192.168.1.2:80"));
        assert!(check(&["k"], "0.0.0.0:80"));
    }
}
