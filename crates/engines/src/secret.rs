//! Secrets from the environment: the value of a variable, or of the file that the variable with `_FILE` behind its name names.
//!
//! The remote engines read their servers' keys here, and the root package its API keys. A [`Bearer`] whose key is in a file is read
//! again by [`reload`], which the root package calls on SIGHUP. The environment belongs to the process, and so does the list of
//! keys that are in use. No secret appears in an error, a log or a `Debug` output.

use antiphon_types::small_file;
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};

#[cfg(feature = "remote")]
pub use bearer::{Bearer, conceal, reload};

/// The longest file of a secret, in bytes.
const MAX_FILE_BYTES: u64 = 64 << 10;

/// Why a secret cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum SecretError {
    /// Both variables are set.
    #[error("both {0} and {0}_FILE are set: set one of them")]
    Both(String),
    /// The file cannot be read.
    #[error("{variable}: the file {path:?} cannot be read: {source}")]
    Unreadable {
        /// The variable that names it.
        variable: String,
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Nothing is in it: taken for no secret, it would open what it protects.
    #[error("{variable}: the file {path:?} is empty")]
    Empty {
        /// The variable that names it.
        variable: String,
        /// The file.
        path: PathBuf,
    },
}

/// The value of the variable `name`, or the content of the file that `name`_FILE names, without white space around it. `None`:
/// neither is set, or `name` is empty. Blocks for the time of a small file.
///
/// # Errors
/// Both are set, or the file cannot be read or is empty.
pub fn read(name: &str) -> Result<Option<String>, SecretError> {
    read_with(name, |name| std::env::var_os(name))
}

/// The name of the variable that names the file of the secret `name`.
#[must_use]
pub fn file_variable(name: &str) -> String {
    format!("{name}_FILE")
}

fn read_with(name: &str, variable: impl Fn(&str) -> Option<OsString>) -> Result<Option<String>, SecretError> {
    if name.is_empty() {
        return Ok(None);
    }
    let file_variable = file_variable(name);
    let set = |name: &str| variable(name).filter(|value| !value.is_empty());
    match (set(name), set(&file_variable)) {
        (Some(_), Some(_)) => Err(SecretError::Both(name.into())),
        (Some(value), None) => Ok(Some(value.to_string_lossy().trim().to_owned()).filter(|value| !value.is_empty())),
        (None, Some(path)) => read_file(file_variable, Path::new(&path)).map(Some),
        (None, None) => Ok(None),
    }
}

fn read_file(variable: String, path: &Path) -> Result<String, SecretError> {
    let path = path.to_owned();
    match small_file::read_text(&path, MAX_FILE_BYTES) {
        Ok(text) if text.trim().is_empty() => Err(SecretError::Empty { variable, path }),
        Ok(text) => Ok(text.trim().to_owned()),
        Err(source) => Err(SecretError::Unreadable { variable, path, source }),
    }
}

#[cfg(feature = "remote")]
mod bearer {
    use super::{file_variable, read};
    use reqwest::header::HeaderValue;
    use std::fmt;
    use std::sync::{Arc, Mutex, RwLock, Weak};

    /// The keys that are in use.
    static IN_USE: Mutex<Vec<Weak<Source>>> = Mutex::new(Vec::new());

    /// The key of a server, as it is sent in `Authorization`. Clones share it.
    #[derive(Clone)]
    pub struct Bearer(Arc<Source>);

    struct Source {
        /// The variable.
        name: String,
        /// Marked sensitive.
        value: RwLock<Option<HeaderValue>>,
    }

    impl Bearer {
        /// The key that was read from the variable `name` or its file. `None`: it holds characters that no key has.
        #[must_use]
        pub fn new(name: &str, key: Option<&str>) -> Option<Self> {
            let value = match key {
                Some(key) => Some(header_of(key)?),
                None => None,
            };
            let source = Arc::new(Source { name: name.into(), value: RwLock::new(value) });
            let mut in_use = IN_USE.lock().expect("no panic while locked");
            in_use.retain(|other| other.strong_count() > 0);
            in_use.push(Arc::downgrade(&source));
            Some(Self(source))
        }

        /// The value of the header, for a request that begins now; `None`: there is no key.
        #[must_use]
        pub fn header(&self) -> Option<HeaderValue> {
            self.0.value.read().expect("no panic while locked").clone()
        }

        /// The key itself.
        #[must_use]
        pub fn key(&self) -> Option<String> {
            self.header()?.to_str().ok()?.strip_prefix("Bearer ").map(str::to_owned)
        }
    }

    impl fmt::Debug for Bearer {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            write!(f, "Bearer({}, ..)", self.0.name)
        }
    }

    /// What stands in the place of a key.
    const CONCEALED: &str = "[key]";

    /// The shortest key that is looked for: a shorter one would be found in ordinary words.
    const LEAST_KEY_BYTES: usize = 6;

    /// Words of an upstream without the hub's own keys, which some servers repeat. All that an upstream says passes through this
    /// before it is cut, logged or shown.
    #[must_use]
    pub fn conceal(words: &str) -> String {
        let in_use: Vec<_> = IN_USE.lock().expect("no panic while locked").iter().filter_map(Weak::upgrade).collect();
        let mut keys: Vec<String> = in_use.into_iter().filter_map(|source| Bearer(source).key()).collect();
        // A key that begins with another one goes first.
        keys.sort_unstable_by_key(|key| std::cmp::Reverse(key.len()));
        let keys = keys.iter().filter(|key| key.len() >= LEAST_KEY_BYTES);
        keys.fold(words.to_owned(), |words, key| words.replace(key.as_str(), CONCEALED))
    }

    /// Reads the keys that are in files again. Requests that begin from now on use them. Where a file cannot be read, the error is
    /// logged and its key stays in use. Blocks for small files.
    pub fn reload() {
        let in_use: Vec<_> = IN_USE.lock().expect("no panic while locked").iter().filter_map(Weak::upgrade).collect();
        for source in in_use {
            let variable = file_variable(&source.name);
            if std::env::var_os(&variable).is_none_or(|path| path.is_empty()) {
                continue;
            }
            let new = match read(&source.name) {
                Ok(key) => {
                    key.as_deref().and_then(header_of).ok_or_else(|| format!("{variable}: the file holds no key"))
                }
                Err(error) => Err(error.to_string()),
            };
            match new {
                Ok(new) => {
                    let old = source.value.write().expect("no panic while locked").replace(new.clone());
                    if old.is_some_and(|old| old != new) {
                        tracing::info!(target: "antiphon::security", variable, "an upstream key was exchanged");
                    }
                }
                Err(why) => {
                    tracing::error!(target: "antiphon::security", "reload: {why}; the key from before stays in use");
                }
            }
        }
    }

    fn header_of(key: &str) -> Option<HeaderValue> {
        let mut value = HeaderValue::from_str(&format!("Bearer {key}")).ok()?;
        value.set_sensitive(true);
        Some(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_in_a_variable_or_in_a_file_and_not_in_both() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key");
        let read = |value: &str, file: &Path| {
            read_with("K", |name| Some(if name == "K" { value.into() } else { file.as_os_str().to_owned() }))
        };
        let none = Path::new("");
        assert_eq!(read(" a\n", none).unwrap().as_deref(), Some("a"));
        assert_eq!(read("", none).unwrap(), None);
        assert_eq!(read_with("", |_| Some("a".into())).unwrap(), None);
        std::fs::write(&path, "sk-secret\n").unwrap();
        assert_eq!(read("", &path).unwrap().as_deref(), Some("sk-secret"));
        let both = read("a", &path).unwrap_err().to_string();
        assert_eq!(both, "both K and K_FILE are set: set one of them");
        std::fs::write(&path, "\n").unwrap();
        assert!(matches!(read("", &path), Err(SecretError::Empty { .. })));
        std::fs::write(&path, "a".repeat(70_000)).unwrap();
        for unreadable in [&path, folder.path(), Path::new("nowhere")] {
            let said = read("", unreadable).unwrap_err().to_string();
            assert!(said.starts_with("K_FILE: the file") && said.len() < 400, "{said}");
        }
    }

    #[cfg(feature = "remote")]
    #[test]
    fn an_upstream_that_repeats_a_key_is_read_without_it() {
        let short = Bearer::new("A", Some("sk-concealed")).unwrap();
        let long = Bearer::new("B", Some("sk-concealed-too")).unwrap();
        let _tiny = Bearer::new("C", Some("a")).unwrap();
        assert_eq!(conceal("bad key sk-concealed-too, not sk-concealed!"), "bad key [key], not [key]!");
        drop(short);
        drop(long);
        assert_eq!(conceal("sk-concealed"), "sk-concealed", "it is not in use");
    }

    #[cfg(feature = "remote")]
    #[test]
    fn a_key_is_never_shown() {
        let bearer = Bearer::new("K", Some("sk-secret")).unwrap();
        assert!(!format!("{bearer:?} {:?}", bearer.header()).contains("secret"));
        assert_eq!(bearer.key().as_deref(), Some("sk-secret"));
        assert!(Bearer::new("K", Some("a\nb")).is_none() && Bearer::new("K", None).unwrap().header().is_none());
    }
}
