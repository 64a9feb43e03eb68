//! The TOML form of `server.api_keys_file`: a table `[[key]]` for each key.
//!
//! [`super::keys`] reads it, `antiphon keys new` writes entries with [`entry`]. Every problem names its line; no message repeats
//! what the file holds, because that may be a key in the wrong place.

use super::keys::{self, Digest, Entry};
use super::scopes::{Scope, Scopes};
use crate::config::KeyLimits;
use serde::Deserialize;
use std::collections::HashSet;
use std::ops::Range;
use std::time::SystemTime;
use toml::{Spanned, Value};

/// The longest name of a key, in characters.
const MAX_NAME: usize = 64;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    key: Vec<Spanned<KeyEntry>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct KeyEntry {
    name: Spanned<String>,
    /// The hash in hex.
    sha256: Option<Spanned<String>>,
    /// The name of the environment variable that holds the key.
    env: Option<Spanned<String>>,
    scopes: Option<Spanned<Vec<Spanned<String>>>>,
    /// RFC 3339, as text or as a TOML date.
    expires: Option<Spanned<Value>>,
    #[serde(default)]
    limits: KeyLimits,
}

/// Whether a file of keys is TOML: no key of the other form contains a bracket.
pub(in crate::server) fn is_toml(text: &str) -> bool {
    text.lines().any(|line| line.trim_start().starts_with("[[") || line.trim_start().starts_with("[key"))
}

/// Reads the entries; `variable` reads the environment.
///
/// # Errors
/// The line, counted from 1, and what is wrong there.
pub(in crate::server) fn read(
    text: &str,
    variable: impl Fn(&str) -> Option<String>,
) -> Result<Vec<Entry>, (usize, String)> {
    let line = |span: Range<usize>| text[..span.start.min(text.len())].matches('\n').count() + 1;
    let file: File =
        toml::from_str(text).map_err(|error| (line(error.span().unwrap_or(0..0)), without_values(error.message())))?;
    let mut names = HashSet::new();
    let mut digests = HashSet::new();
    let mut entries = Vec::new();
    for written in file.key {
        let at = line(written.span());
        let KeyEntry { name, sha256, env, scopes, expires, limits } = written.into_inner();
        let wrong = |span: Range<usize>, why: String| Err((line(span), why));
        if !is_name(name.get_ref()) {
            let why =
                format!("a name is 1 to {MAX_NAME} letters, digits and ._- and neither \"other\" nor \"anonymous\"");
            return wrong(name.span(), why);
        }
        if !names.insert(name.get_ref().clone()) {
            return wrong(name.span(), "another key has this name".into());
        }
        let digest = match (sha256, env) {
            (Some(hash), None) => match keys::read(&format!("sha256:{}", hash.get_ref())) {
                Ok(digest) => digest,
                Err(_) => return wrong(hash.span(), "sha256 needs 64 hex digits".into()),
            },
            (None, Some(name)) => from_env(name.get_ref(), &variable).map_err(|why| (line(name.span()), why))?,
            _ => return Err((at, "a key needs either sha256 or env".into())),
        };
        if !digests.insert(digest) {
            return Err((at, "an entry above is the same key".into()));
        }
        let mut granted = Scopes::USUAL;
        if let Some(scopes) = scopes {
            granted = Scopes::NONE;
            for scope in scopes.get_ref() {
                match Scope::of(scope.get_ref()) {
                    Some(scope) => granted = granted.with(scope),
                    None => return wrong(scope.span(), format!("a scope is one of {}", names_of_scopes())),
                }
            }
        }
        let expires = match expires {
            None => None,
            Some(written) => match time(written.get_ref()) {
                Some(time) => Some(time),
                None => {
                    let why = "expires needs a date, a time and an offset, such as 2027-01-31T00:00:00Z";
                    return wrong(written.span(), why.into());
                }
            },
        };
        entries.push(Entry { name: Some(name.into_inner()), expires, limits, ..Entry::of(digest, granted) });
    }
    Ok(entries)
}

/// The entry of a new key, to be appended to the file. The names and the time were checked with [`check`].
pub fn entry(name: &str, digest: &Digest, scopes: &[String], expires: Option<&str>) -> String {
    let mut text = format!("[[key]]\nname = \"{name}\"\nsha256 = \"{}\"\n", keys::hex(digest));
    if !scopes.is_empty() {
        let scopes: Vec<String> = scopes.iter().map(|scope| format!("\"{scope}\"")).collect();
        text += &format!("scopes = [{}]\n", scopes.join(", "));
    }
    if let Some(expires) = expires {
        text += &format!("expires = \"{expires}\"\n");
    }
    text
}

/// Whether `text` is a file of keys in this form, without environment variables.
///
/// # Errors
/// The line, and what is wrong there.
pub fn check(text: &str) -> Result<(), (usize, String)> {
    // Each variable stands for a key of its own.
    read(text, |variable| Some(keys::hex(&keys::digest(variable)))).map(drop)
}

/// The names of all scopes, for messages.
pub fn names_of_scopes() -> String {
    Scope::ALL.map(Scope::name).join(", ")
}

fn is_name(name: &str) -> bool {
    let fits = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    (1..=MAX_NAME).contains(&name.len()) && name.chars().all(fits) && !["other", "anonymous"].contains(&name)
}

fn from_env(name: &str, variable: impl Fn(&str) -> Option<String>) -> Result<Digest, String> {
    let key = variable(name).filter(|key| !key.is_empty()).ok_or("the environment variable is not set")?;
    keys::read(&key).map_err(|why| format!("the environment variable holds no key: {why}"))
}

fn time(written: &Value) -> Option<SystemTime> {
    let text = match written {
        Value::String(text) => text.clone(),
        Value::Datetime(time) => time.to_string(),
        _ => return None,
    };
    let time: jiff::Timestamp = text.parse().ok()?;
    Some(time.into())
}

/// A message of the parser without the values that it quotes.
fn without_values(message: &str) -> String {
    let mut parts = message.split('"');
    let first = parts.next().unwrap_or_default().to_owned();
    parts.enumerate().fold(first, |text, (n, part)| if n % 2 == 0 { text + "..." } else { text + part })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// SHA-256 of "correct-horse-battery", by sha256sum.
    const HASH: &str = "cc99c47e06085a6bc6fbdc3b67d8e9aa1ded0fe8fb2a2a0b4a4c6cf1ab0d1c5e";

    #[test]
    fn an_entry_has_a_name_scopes_an_end_and_limits() {
        let text = format!(
            "# Ours.\n[[key]]\nname = \"web\"\nsha256 = \"{HASH}\"\nscopes = [\"realtime\", \"speech\"]\n\
             expires = 2027-01-31T00:00:00Z\nlimits = {{ max_sessions = 3, tokens_per_minute = 1000 }}\n\n\
             [[key]]\nname = \"job\"\nenv = \"JOB_KEY\"\nexpires = \"2020-01-31T00:00:00+01:00\"\n"
        );
        assert!(is_toml(&text));
        let variable = |name: &str| (name == "JOB_KEY").then(|| "sk-job-key-12345678".into());
        let entries = read(&text, variable).expect("entries");
        let [web, job] = &entries[..] else { panic!("two") };
        assert_eq!((web.name.as_deref(), keys::hex(&web.digest).as_str()), (Some("web"), HASH));
        assert!(web.scopes.has(Scope::Realtime) && !web.scopes.has(Scope::Transcription) && !web.scopes.are_usual());
        assert_eq!((web.limits.max_sessions, web.limits.tokens_per_minute), (Some(3), Some(1_000)));
        assert!(web.expires.is_some_and(|time| time > SystemTime::UNIX_EPOCH) && job.scopes.are_usual());
        assert!(job.expires.is_some_and(|time| time < SystemTime::now()));
    }

    #[test]
    fn what_is_wrong_is_said_with_its_line_and_never_repeated() {
        let head = format!("\n[[key]]\nname = \"a\"\nsha256 = \"{HASH}\"\n");
        let check = |more: &str, line: usize, expect: &str| {
            let text = more.replace("HEAD", &head);
            let (at, why) = read(&text, |_| None).map(drop).expect_err(more);
            assert!(at == line && why.contains(expect) && !why.contains("sk-secret"), "{text}\n{at}: {why}");
        };
        check("HEADscope = []\n", 5, "unknown field");
        check("HEADkey = \"sk-secret\"\n", 5, "unknown field");
        check("HEADscopes = \"sk-secret\"\n", 5, "invalid type");
        check("HEADscopes = [\"realtime\",\n \"sk-secret\"]\n", 6, "a scope is one of realtime, speech,");
        check("HEADexpires = \"2027-01-31\"\n", 5, "such as 2027-01-31T00:00:00Z");
        check("HEADlimits = { sessions = 3 }\n", 5, "unknown field");
        check("HEADlimits = { max_sessions = -3 }\n", 5, "invalid value");
        check("HEADenv = \"A\"\n", 2, "either sha256 or env");
        check("[[key]]\nname = \"a\"\nsha256 = \"sk-secret\"\n", 3, "64 hex digits");
        check("[[key]]\nname = \"a b\"\nsha256 = \"\"\n", 2, "a name is");
        check("[[key]]\nname = \"a\"\nenv = \"NOWHERE\"\n", 3, "not set");
        check("HEADHEAD", 7, "another key has this name");
        check(&format!("HEAD[[key]]\nname = \"b\"\nsha256 = \"{HASH}\"\n"), 5, "the same key");
        check("HEAD[keys]\n", 5, "unknown field");
        check("[[key]]\nsha256 = \"00\"\n", 1, "missing field");
    }

    #[test]
    fn entries_of_the_environment_hide_nothing_that_is_wrong() {
        let entry = |name: &str, variable: &str| format!("[[key]]\nname = \"{name}\"\nenv = \"{variable}\"\n");
        let two = entry("a", "A_KEY") + &entry("b", "B_KEY");
        assert_eq!(check(&two), Ok(()));
        let (line, why) = check(&format!("{two}{}", entry("a", "C_KEY"))).expect_err("the name is taken");
        assert_eq!((line, why.as_str()), (8, "another key has this name"));
        let (line, why) = check(&format!("{two}{}", entry("c", "A_KEY"))).expect_err("one variable, two entries");
        assert_eq!((line, why.as_str()), (7, "an entry above is the same key"));
    }

    #[test]
    fn a_written_entry_is_read_again() {
        let scopes = ["speech".to_owned(), "metrics".to_owned()];
        let text = entry("new", &keys::digest("k"), &scopes, Some("2030-01-01T00:00:00Z"));
        assert_eq!(check(&text), Ok(()));
        let entries = read(&text, |_| None).expect("an entry");
        assert!(entries[0].scopes.has(Scope::Metrics) && entries[0].digest == keys::digest("k"));
    }
}
