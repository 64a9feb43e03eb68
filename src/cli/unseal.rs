//! `antiphon unseal`: writes the plain file of a sealed one. Also the options that name its key.

use super::{CliError, Settings, blocking};
use crate::config::StorageKey;
use crate::replay::ReplayError;
use antiphon_types::sealed::{EXTENSION, Head, Sealing, unseal};
use clap::Args;
use std::fs::{File, OpenOptions};
use std::io::{BufReader, BufWriter, ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// What to open.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  antiphon unseal recordings/sess_a.jsonl.sealed --storage-key storage.key     writes recordings/sess_a.jsonl
  antiphon unseal sess_a.wav.sealed -o a.wav --config my.toml
  antiphon unseal models/voices/voice_00000000000000aa.wav.sealed --storage-key storage.key

A file that is there already is never replaced. Of a file that was changed or cut short, what stands before that place is
written, and the command fails.")]
pub struct UnsealArgs {
    /// A file that a hub wrote with server.storage_key: a replay log, its sound, or a file of a voice
    file: PathBuf,
    /// Where to write it [default: beside it, without .sealed]
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
    #[command(flatten)]
    key: StorageKeyArgs,
}

/// Where the key of sealed files is.
#[derive(Debug, Args)]
pub struct StorageKeyArgs {
    /// The key of sealed files [default: server.storage_key, as configured]
    #[arg(long, value_name = "FILE")]
    storage_key: Option<PathBuf>,
    #[command(flatten)]
    settings: Settings,
}

impl StorageKeyArgs {
    /// Reads the key; `None`: none is named.
    pub(super) fn read(&self) -> Result<Option<Arc<dyn Sealing>>, CliError> {
        let path = match &self.storage_key {
            Some(path) => path.clone(),
            None => self.settings.load()?.server.storage_key.into(),
        };
        if path.as_os_str().is_empty() {
            return Ok(None);
        }
        let key = StorageKey::read(&path).map_err(|error| CliError::Usage(error.to_string()))?;
        Ok(Some(Arc::new(key)))
    }

    /// The same for a replay.
    pub(super) fn of_replay(&self) -> Result<Option<Arc<dyn Sealing>>, ReplayError> {
        self.read().map_err(|error| ReplayError::Key(error.to_string()))
    }
}

pub(super) async fn run(args: UnsealArgs) -> Result<(), CliError> {
    blocking(move || open(&args)).await?
}

fn open(args: &UnsealArgs) -> Result<(), CliError> {
    let path = &args.file;
    let not_read = |error: &std::io::Error| CliError::file("read", path, error);
    let mut from = BufReader::new(File::open(path).map_err(|error| not_read(&error))?);
    let cannot = |why: &dyn std::fmt::Display| CliError::Usage(format!("{} cannot be opened: {why}", path.display()));
    let head = Head::read_from(&mut from).map_err(|error| match error.kind() {
        ErrorKind::InvalidData => cannot(&error),
        _ => not_read(&error),
    })?;
    let head = head.ok_or_else(|| CliError::Usage(format!("{} is not sealed", path.display())))?;
    let sealing =
        args.key.read()?.ok_or_else(|| CliError::Usage(format!("{} {}", path.display(), ReplayError::NoKey)))?;
    let output = args.output.clone().unwrap_or_else(|| plain_name(path));
    let not_written = |error: std::io::Error| match error.kind() {
        ErrorKind::AlreadyExists => {
            CliError::Failed(format!("{} exists already: name another file with -o", output.display()))
        }
        _ => CliError::file("written", &output, &error),
    };
    let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&output).map_err(not_written)?;
    let mut to = BufWriter::new(file);
    let opened = unseal(head, from, sealing, &mut to);
    to.flush().map_err(not_written)?;
    opened.map_err(|error| {
        // Nothing of it was opened, as with another key: the next try finds the name free.
        if std::fs::metadata(&output).is_ok_and(|written| written.len() == 0) {
            let _ = std::fs::remove_file(&output);
        }
        cannot(&error)
    })
}

/// The name without `.sealed`, with or without the `.part` of one that was not finished.
fn plain_name(path: &Path) -> PathBuf {
    match path.extension() {
        Some(extension) if extension == EXTENSION => path.with_extension(""),
        _ => {
            let mut name = path.as_os_str().to_owned();
            name.push(".unsealed");
            name.into()
        }
    }
}
