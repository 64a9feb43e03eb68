//! `antiphon keys`: makes API keys for the file of keys.

use super::{CliError, print};
use crate::server::{check_key_file, key_digest, key_entry, make_key, names_of_scopes};
use antiphon_types::small_file;
use clap::{Args, Subcommand};
use std::fs::File;
use std::io::{ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// What keys of this program begin with, so that scanners for leaked secrets find them.
const PREFIX: &str = "sk-antiphon-";

/// What to do with keys.
#[derive(Debug, Subcommand)]
#[command(after_help = "\
The hub keeps the hashes of keys only: a new key is printed once, for its user. The file that server.api_keys_file names is read
again when it changes.

Examples:
  antiphon keys new --name web --scopes realtime,speech --file keys.toml
  antiphon keys new --name prometheus --scopes metrics --expires 2030-01-31T00:00:00Z")]
pub enum KeysCommand {
    /// Make a key, and its entry of the file of keys
    New(NewArgs),
}

/// The key.
#[derive(Debug, Args)]
pub struct NewArgs {
    /// What the key is called in usage, metrics and the audit log
    #[arg(long)]
    name: String,
    /// What it may do, separated by commas: realtime, speech, transcription, models, admin, metrics [default: what keys without
    /// a list may do]
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    scopes: Vec<String>,
    /// From when on it is not valid any more, in RFC 3339
    #[arg(long, value_name = "TIME")]
    expires: Option<String>,
    /// Append the entry to this file, which is created where there is none, instead of printing it
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
}

pub(super) fn run(command: &KeysCommand) -> Result<(), CliError> {
    let KeysCommand::New(args) = command;
    let key = make_key(PREFIX);
    let entry = key_entry(&args.name, &key_digest(&key), &args.scopes, args.expires.as_deref());
    check_key_file(&entry).map_err(|(_, why)| {
        CliError::Usage(format!("this would be no valid entry: {why} (scopes: {})", names_of_scopes()))
    })?;
    match &args.file {
        None => print::line(&format!("{key}\n\n# For the file of server.api_keys_file:\n{}", entry.trim_end())),
        Some(path) => {
            append(path, &entry)?;
            print::line(&key)
        }
    }
}

fn append(path: &Path, entry: &str) -> Result<(), CliError> {
    let before = match small_file::read_text(path, small_file::MAX_SETTINGS_BYTES) {
        Ok(text) => text,
        Err(error) if error.kind() == ErrorKind::NotFound => String::new(),
        Err(error) => return Err(CliError::file("read", path, &error)),
    };
    let gap = match before.trim_end() {
        "" => "",
        _ if before.ends_with('\n') => "\n",
        _ => "\n\n",
    };
    let more = format!("{gap}{entry}");
    check_key_file(&format!("{before}{more}"))
        .map_err(|(line, why)| CliError::Usage(format!("{}, line {line}: {why}", path.display())))?;
    let file = File::options().append(true).create(true).mode(0o600).open(path);
    // In one piece: the hub may read the file at any time.
    let written = file.and_then(|mut file| file.write_all(more.as_bytes()));
    written.map_err(|error| CliError::file("written", path, &error))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::Keys;
    use std::os::unix::fs::PermissionsExt;

    fn new(name: &str, scopes: &[&str], file: &Path) -> Result<(), CliError> {
        let scopes = scopes.iter().map(|scope| (*scope).to_owned()).collect();
        let args = NewArgs { name: name.into(), scopes, expires: None, file: Some(file.into()) };
        run(&KeysCommand::New(args))
    }

    #[test]
    fn entries_are_appended_and_what_is_wrong_changes_nothing() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("keys.toml");
        new("web", &["realtime", "speech"], &file).expect("written");
        new("job", &[], &file).expect("written");
        let text = std::fs::read_to_string(&file).expect("there");
        assert!(Keys::of_text(&text).expect("keys").are_on() && text.matches("[[key]]").count() == 2, "{text}");
        assert!(!text.contains(PREFIX), "no key itself");
        assert_eq!(std::fs::metadata(&file).expect("there").permissions().mode() & 0o777, 0o600);
        for (name, scopes, expect) in [
            ("web", &["realtime"][..], "another key has this name"),
            ("a b", &[], "a name is"),
            ("c", &["all"], "realtime"),
        ] {
            let error = new(name, scopes, &file).expect_err(name).to_string();
            assert!(error.contains(expect), "{error}");
        }
        assert_eq!(std::fs::read_to_string(&file).expect("there"), text);
        let plain = folder.path().join("plain");
        std::fs::write(&plain, "sk-one-of-ours-1234\n").expect("written");
        new("late", &[], &plain).expect_err("the other form");
    }
}
