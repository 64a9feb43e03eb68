//! The API keys of this server: loaded at startup and on reload, stored as SHA-256 hashes, compared in constant time.
//!
//! `cli` loads them before the server listens; [`super::auth`] checks every request against them. A key is never
//! logged, printed or kept in plain text, and no error message contains one.

use super::key_file;
use super::scopes::{Scope, Scopes};
use crate::config::{KeyLimits, ServerConfig};
use antiphon_engines::secret::{self, SecretError};
use antiphon_types::KeyId;
use antiphon_types::small_file;
use sha2::{Digest as _, Sha256};
use std::collections::HashSet;
use std::fmt;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::SystemTime;
use subtle::{Choice, ConstantTimeEq};

/// SHA-256 of a key.
pub type Digest = [u8; 32];

/// A digest as text, as in the keys' file and as the key of a record that hubs share.
pub fn hex(digest: &Digest) -> String {
    digest.iter().fold(String::with_capacity(64), |text, byte| text + &format!("{byte:02x}"))
}

/// Prefix of short-lived keys, as the protocol's clients expect. No API key begins with it.
pub(in crate::server) const EPHEMERAL: &str = "ek_";

/// Prefix of a hashed entry.
const HASHED: &str = "sha256:";

/// Shorter keys can be guessed: 16 characters of 5 bits are 80 bits.
const SHORT: usize = 16;

/// The API keys of a server. Without any, every client that can reach the server may use it, so it may listen on
/// loopback only. Each key has scopes ([`super::scopes`]); an admin key has all of them.
#[derive(Clone, Default)]
pub struct Keys {
    all: Vec<Entry>,
}

/// One key.
#[derive(Clone)]
pub(in crate::server) struct Entry {
    pub(in crate::server) id: KeyId,
    pub(in crate::server) digest: Digest,
    /// `None`: it is shown by its id.
    pub(in crate::server) name: Option<String>,
    pub(in crate::server) scopes: Scopes,
    /// From then on it is not valid.
    pub(in crate::server) expires: Option<SystemTime>,
    pub(in crate::server) limits: KeyLimits,
}

/// What a presented key grants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::server) struct Grant {
    pub(in crate::server) id: KeyId,
    pub(in crate::server) scopes: Scopes,
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
    /// A variable and its file are both set, or the file cannot be read.
    #[error(transparent)]
    Secret(#[from] SecretError),
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
    /// An entry of a TOML file is wrong.
    #[error("{place}, line {line}: {why}")]
    Entry {
        /// The file.
        place: String,
        /// Counted from 1.
        line: usize,
        /// What is wrong; never contains a key.
        why: String,
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
    /// Reads the configured environment variables, or the files that they name with `_FILE`, and the file of keys. Blocks for
    /// small files. A variable that is not set holds no keys.
    pub fn load(config: &ServerConfig) -> Result<Self, KeysError> {
        let mut keys = Self::default();
        keys.extend_from(&config.admin_keys_env, Scopes::ALL)?;
        keys.extend_from(&config.api_keys_env, Scopes::USUAL)?;
        if !config.api_keys_file.is_empty() {
            let path = Path::new(&config.api_keys_file);
            let text = small_file::read_text(path, small_file::MAX_SETTINGS_BYTES)
                .map_err(|source| KeysError::Unreadable { path: path.into(), source })?;
            if keys.extend_from_text(&path.display().to_string(), &text)? == 0 {
                return Err(KeysError::Empty(path.into()));
            }
        }
        Ok(keys)
    }

    /// Adds the keys of a file: one per line, or TOML. Returns their number.
    fn extend_from_text(&mut self, place: &str, text: &str) -> Result<usize, KeysError> {
        if key_file::is_toml(text) {
            let entries = key_file::read(text, variable);
            let entries = entries.map_err(|(line, why)| KeysError::Entry { place: place.into(), line, why })?;
            let n = entries.len();
            self.all.extend(entries);
            return Ok(n);
        }
        let lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
        self.extend(place, lines, Scopes::USUAL)
    }

    /// A set of these plain-text keys.
    pub fn of(keys: &[&str]) -> Self {
        Self { all: keys.iter().map(|key| Entry::of(digest(key), Scopes::USUAL)).collect() }
    }

    /// The keys of a file with this text; for tests.
    ///
    /// # Errors
    /// As [`Self::load`].
    pub fn of_text(text: &str) -> Result<Self, KeysError> {
        let mut keys = Self::default();
        keys.extend_from_text("text", text)?;
        Ok(keys)
    }

    /// Adds these plain-text admin keys.
    pub fn with_admin(mut self, keys: &[&str]) -> Self {
        self.all.extend(keys.iter().map(|key| Entry::of(digest(key), Scopes::ALL)));
        self
    }

    /// The same with other limits of this key.
    #[cfg(test)]
    pub(in crate::server) fn limited(mut self, key: &str, limits: KeyLimits) -> Self {
        self.all.iter_mut().filter(|entry| entry.digest == digest(key)).for_each(|entry| entry.limits = limits);
        self
    }

    /// Whether there are admin keys.
    pub(in crate::server) fn have_admin(&self) -> bool {
        self.all.iter().any(|entry| entry.scopes.has(Scope::Admin))
    }

    /// Whether requests need a key. They still do when all keys have expired.
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

    /// The id of `key` if it is valid.
    #[cfg(test)]
    pub(in crate::server) fn find(&self, key: &str) -> Option<KeyId> {
        self.grant(key).map(|grant| grant.id)
    }

    /// What `key` grants; `None` if it is unknown or has expired. A key with two entries has the scopes of both. Takes the same
    /// time for an invalid key.
    pub(in crate::server) fn grant(&self, key: &str) -> Option<Grant> {
        let digest = digest(key);
        let now = SystemTime::now();
        // Every hash is compared, in constant time.
        let found = self.all.iter().fold(None, |found: Option<Scopes>, entry| {
            let is_it = entry.digest.ct_eq(&digest) & Choice::from(u8::from(entry.is_valid(now)));
            if bool::from(is_it) { Some(found.unwrap_or(Scopes::NONE).and(entry.scopes)) } else { found }
        });
        found.map(|scopes| Grant { id: id_of(&digest), scopes })
    }

    /// Whether a key with this id is valid.
    pub(in crate::server) fn contain(&self, id: KeyId) -> bool {
        self.scopes_of(id).is_some()
    }

    /// Whether there is a key with this id, valid or expired.
    pub(in crate::server) fn list(&self, id: KeyId) -> bool {
        self.all.iter().any(|entry| entry.id == id)
    }

    /// The scopes of the key with this id; `None` if it is not valid.
    pub(in crate::server) fn scopes_of(&self, id: KeyId) -> Option<Scopes> {
        let now = SystemTime::now();
        let entries = self.all.iter().filter(|entry| entry.id == id && entry.is_valid(now));
        entries.map(|entry| entry.scopes).reduce(Scopes::and)
    }

    /// The next time at which a key expires.
    pub(in crate::server) fn next_expiry(&self) -> Option<SystemTime> {
        let now = SystemTime::now();
        self.all.iter().filter_map(|entry| entry.expires).filter(|expires| *expires > now).min()
    }

    /// Id, name and limits of each key.
    pub(in crate::server) fn described(&self) -> impl Iterator<Item = (KeyId, String, &KeyLimits)> {
        self.all.iter().map(|entry| (entry.id, entry.shown(), &entry.limits))
    }

    /// The id of the key with this name.
    pub(in crate::server) fn id_by_name(&self, name: &str) -> Option<KeyId> {
        self.all.iter().find(|entry| entry.shown() == name).map(|entry| entry.id)
    }

    /// Checks that `name`, which `setting` has, is that of a key, or empty.
    ///
    /// # Errors
    /// It is of none.
    pub(in crate::server) fn check_name(&self, setting: &str, name: &str) -> Result<(), String> {
        if name.is_empty() || self.id_by_name(name).is_some() {
            return Ok(());
        }
        Err(format!("{setting}: {name:?} is no API key of this hub"))
    }

    /// The name of the key with this id.
    pub(in crate::server) fn name_of(&self, id: KeyId) -> Option<String> {
        self.all.iter().find(|entry| entry.id == id).map(Entry::shown)
    }

    /// The most sessions of the key with this id, where its entry says so; 0: no limit.
    pub(in crate::server) fn max_sessions_of(&self, id: KeyId) -> Option<u32> {
        self.all.iter().find(|entry| entry.id == id)?.limits.max_sessions
    }

    /// The ids of all keys.
    pub(in crate::server) fn ids(&self) -> impl Iterator<Item = KeyId> {
        self.all.iter().map(|entry| entry.id)
    }

    /// Number of distinct keys.
    pub(in crate::server) fn n_keys(&self) -> usize {
        self.all.iter().map(|entry| entry.digest).collect::<HashSet<_>>().len()
    }

    /// Number of distinct keys that are not admin keys.
    pub(in crate::server) fn n_clients(&self) -> usize {
        let digests = |is_admin: bool| {
            let entries = self.all.iter().filter(move |entry| !is_admin || entry.scopes.has(Scope::Admin));
            entries.map(|entry| entry.digest).collect::<HashSet<Digest>>()
        };
        digests(false).difference(&digests(true)).count()
    }

    /// Whether `key` is an admin key.
    #[cfg(test)]
    pub(in crate::server) fn hold_admin(&self, key: &str) -> bool {
        self.grant(key).is_some_and(|grant| grant.scopes.has(Scope::Admin))
    }

    /// Adds the keys of an environment variable or its file, if one of them is set.
    fn extend_from(&mut self, variable: &str, scopes: Scopes) -> Result<(), KeysError> {
        let Some(text) = secret::read(variable)? else { return Ok(()) };
        let entries = text.split([',', ' ', '\t', '\n', '\r']).filter(|entry| !entry.is_empty());
        self.extend(&format!("environment variable {variable}"), entries, scopes).map(drop)
    }

    /// Adds entries; returns their number.
    fn extend<'a>(
        &mut self,
        place: &str,
        entries: impl Iterator<Item = &'a str>,
        scopes: Scopes,
    ) -> Result<usize, KeysError> {
        let before = self.all.len();
        for (index, entry) in entries.enumerate() {
            let malformed = |why| KeysError::Malformed { place: place.to_owned(), number: index + 1, why };
            self.all.push(Entry::of(read(entry).map_err(malformed)?, scopes));
            if !entry.starts_with(HASHED) && entry.len() < SHORT {
                tracing::warn!(place, number = index + 1, "a key of fewer than {SHORT} characters can be guessed");
            }
        }
        Ok(self.all.len() - before)
    }
}

/// A key in the environment or in a file that it names; an error is logged and counts as none.
fn variable(name: &str) -> Option<String> {
    secret::read(name)
        .map_err(|error| tracing::error!(target: "antiphon::security", "server.api_keys_file: {error}"))
        .ok()
        .flatten()
}

impl Entry {
    /// A key without a name, an end and limits of its own.
    pub(in crate::server) fn of(digest: Digest, scopes: Scopes) -> Self {
        Self { id: id_of(&digest), digest, name: None, scopes, expires: None, limits: KeyLimits::default() }
    }

    fn is_valid(&self, now: SystemTime) -> bool {
        self.expires.is_none_or(|expires| now < expires)
    }

    /// Its name; without one, `key_` and the beginning of its id.
    fn shown(&self) -> String {
        self.name.clone().unwrap_or_else(|| format!("key_{}", &self.id.to_string()[..8]))
    }
}

/// The id of the key with this hash: the first half of a second hash, so that the first is never exposed.
fn id_of(digest: &Digest) -> KeyId {
    let hash: Digest = Sha256::new().chain_update(b"antiphon key id\0").chain_update(digest).finalize().into();
    KeyId::new(std::array::from_fn(|at| hash[at]))
}

/// Parses a plain-text key, or a hash after `sha256:`.
pub(in crate::server) fn read(entry: &str) -> Result<Digest, &'static str> {
    let Some(hex) = entry.strip_prefix(HASHED) else {
        // Characters allowed in a header and in a subprotocol (RFC 9110, section 5.6.2: token).
        let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
        return match entry {
            _ if entry.starts_with(EPHEMERAL) => Err("keys that begin with ek_ are the short-lived ones"),
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
pub fn make(prefix: &str) -> String {
    format!("{prefix}{}", rand::random::<[u8; 32]>().map(|byte| format!("{byte:02x}")).concat())
}

/// The stored form of a key.
pub fn digest(key: &str) -> Digest {
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
