//! `antiphon upgrade-check`: what this version makes of the settings and the data of an earlier one, before it is started.
//!
//! It reads the settings file, the environment and the header of the jobs' database. It changes, connects and loads
//! nothing; a hub may be running.

use super::{CliError, print};
use crate::config::{Config, ConfigError, Sources, load_hub};
use crate::server::{JOBS_VERSION, jobs_version_in};
use clap::Args;
use serde_json::json;
use std::path::{Path, PathBuf};

/// What to look at.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  antiphon upgrade-check /etc/antiphon/config.toml
  cd /var/lib/antiphon && antiphon upgrade-check my.toml     relative folders of the settings begin here

Variables of the environment count as for `serve`: run it with those that the hub starts with.

Exit codes: 0 the file can stay as it is, 2 something must be changed first.")]
pub struct UpgradeCheckArgs {
    /// The settings of the earlier version
    file: PathBuf,
    /// Print one JSON object: `ok`, `changes` to make, and `notes` on what the next start does
    #[arg(long)]
    json: bool,
}

/// What was found.
#[derive(Debug, Default, PartialEq, Eq)]
struct Findings {
    /// What the operator must change before the start.
    changes: Vec<String>,
    /// What the start does by itself.
    notes: Vec<String>,
}

pub(super) fn run(args: &UpgradeCheckArgs) -> Result<(), CliError> {
    let loaded = load_hub(&Sources::of_process(Some(&args.file)));
    let found = match loaded {
        Ok(config) => of_data(&config),
        Err(ConfigError::Invalid(problems)) => {
            let changes = problems.iter().map(ToString::to_string).collect();
            let notes = vec!["the data of speech.jobs_dir is looked at once the settings are right".into()];
            Findings { changes, notes }
        }
        Err(error) => return Err(error.into()),
    };
    let n_changes = found.changes.len();
    if args.json {
        print::json(&json!({ "ok": n_changes == 0, "changes": found.changes, "notes": found.notes }))?;
    } else {
        print::bytes(text(&args.file, &found).as_bytes())?;
    }
    match n_changes {
        0 => Ok(()),
        n => Err(CliError::Usage(format!("{n} to change before version {} is started", env!("CARGO_PKG_VERSION")))),
    }
}

fn text(file: &Path, found: &Findings) -> String {
    let changes = found.changes.iter().map(|change| format!("change  {change}\n"));
    let notes = found.notes.iter().map(|note| format!("note    {note}\n"));
    let settings = match found.changes.is_empty() {
        true => format!("ok      {}: no setting has to be changed\n", file.display()),
        false => String::new(),
    };
    [settings].into_iter().chain(changes).chain(notes).collect()
}

/// What the start does with the data that the settings name.
fn of_data(config: &Config) -> Findings {
    let mut found = Findings::default();
    let folder = config.speech.jobs_dir.as_str();
    if folder.is_empty() {
        return found;
    }
    let jobs = format!("the jobs in {folder}");
    match jobs_version_in(Path::new(folder)) {
        Ok(None) => {}
        Ok(Some(version)) if version > JOBS_VERSION => found.changes.push(format!(
            "{jobs} are of version {version}, and this program reads versions up to {JOBS_VERSION}: use the newer program, or \
             name another folder in speech.jobs_dir"
        )),
        Ok(Some(JOBS_VERSION)) => found.notes.push(format!("{jobs} are used as they are")),
        Ok(Some(version)) => found.notes.push(format!(
            "{jobs} become version {JOBS_VERSION}; a copy of version {version} is kept beside them"
        )),
        Err(error) => found.changes.push(format!("{jobs} cannot be read: {error}")),
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The header of a database with this version.
    fn header(version: i32) -> Vec<u8> {
        let mut header = b"SQLite format 3\0".to_vec();
        header.resize(60, 0);
        header.extend(version.to_be_bytes());
        header
    }

    #[test]
    fn data_is_judged_by_its_version() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut config = Config::default();
        config.speech.jobs_dir = folder.path().to_str().expect("Unicode").into();
        assert_eq!(of_data(&config), Findings::default(), "there are no jobs");
        let with = |bytes: Vec<u8>| {
            std::fs::write(folder.path().join("jobs.db"), bytes).expect("written");
            of_data(&config)
        };
        assert!(with(header(6)).notes[0].contains("become version 7; a copy of version 6 is kept"));
        assert!(with(header(7)).notes[0].ends_with("are used as they are"));
        assert!(with(header(8)).changes[0].contains("are of version 8, and this program reads versions up to 7"));
        assert!(with(b"half".to_vec()).changes[0].contains("cannot be read"));
        config.speech.jobs_dir = String::new();
        assert_eq!(of_data(&config), Findings::default());
    }
}
