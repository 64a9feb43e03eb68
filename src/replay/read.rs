//! Reads a replay log line by line: a file of any length needs the memory of its longest line.

use super::ReplayError;
use antiphon_session::replay_log::{Header, Line, VERSION};
use antiphon_types::sealed::{Form, Head, Sealing, open_line};
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::sync::Arc;

/// An open recording.
pub struct ReplayLog {
    /// Its first line.
    pub header: Header,
    /// How many bytes there are, and how many have been read.
    pub n_bytes: u64,
    /// See `n_bytes`.
    pub n_read: u64,
    /// The line read last, counted from 1.
    pub line: usize,
    lines: BufReader<File>,
    text: String,
    sealed: Option<Sealed>,
}

/// Opens the lines of a sealed log.
struct Sealed {
    sealing: Arc<dyn Sealing>,
    name: String,
}

impl ReplayLog {
    /// Opens a recording and reads its header.
    ///
    /// # Errors
    /// When it cannot be read, is no recording, or one of another version.
    pub fn open(path: &Path) -> Result<Self, ReplayError> {
        Self::open_with(path, || Ok(None))
    }

    /// As [`Self::open`]; `key` is asked where the log is sealed.
    ///
    /// # Errors
    /// As [`Self::open`], and when the log cannot be opened with the key, or there is none.
    pub fn open_with(
        path: &Path,
        key: impl FnOnce() -> Result<Option<Arc<dyn Sealing>>, ReplayError>,
    ) -> Result<Self, ReplayError> {
        let file = File::open(path)?;
        let n_bytes = file.metadata()?.len();
        let mut lines = BufReader::new(file);
        let mut text = String::new();
        let mut n_read = lines.read_line(&mut text).map_err(not_text)? as u64;
        let sealed = match Head::read(&text).map_err(|why| ReplayError::NoRecording(why.to_string()))? {
            None => None,
            Some(Head { form: Form::Blocks, .. }) => {
                return Err(ReplayError::NoRecording("it is the sound of one, sealed".into()));
            }
            Some(Head { name, .. }) => Some(Sealed { sealing: key()?.ok_or(ReplayError::NoKey)?, name }),
        };
        if let Some(sealed) = &sealed {
            n_read += read_sealed(&mut lines, &mut text, sealed, 1)?;
        }
        let no_recording = |error: serde_json::Error| ReplayError::NoRecording(error.to_string());
        let first: serde_json::Value = serde_json::from_str(&text).map_err(no_recording)?;
        // Version 1 had another key.
        let version =
            [&first["antiphon_replay_log"], &first["antiphon_recording"]].into_iter().find_map(|it| it.as_u64());
        let found = version.ok_or_else(|| ReplayError::NoRecording("its first line names no version".into()))?;
        if found < u64::from(VERSION) {
            return Err(ReplayError::Older { found });
        }
        if found > u64::from(VERSION) {
            return Err(ReplayError::Newer { found });
        }
        let header = serde_json::from_str(&text).map_err(no_recording)?;
        Ok(Self { header, n_bytes, n_read, line: 1, lines, text, sealed })
    }

    /// The next line; `None` at the end of the file.
    ///
    /// # Errors
    /// When the file cannot be read or the line is none.
    pub fn next_line(&mut self) -> Result<Option<Line>, ReplayError> {
        let n = match &self.sealed {
            Some(sealed) => read_sealed(&mut self.lines, &mut self.text, sealed, self.line as u64 + 1)?,
            None => {
                self.text.clear();
                self.lines.read_line(&mut self.text).map_err(not_text)? as u64
            }
        };
        if n == 0 {
            return Ok(None);
        }
        self.n_read += n;
        self.line += 1;
        let line = self.line;
        serde_json::from_str(&self.text).map(Some).map_err(|source| ReplayError::Line { line, source })
    }
}

/// Reads a line and opens it; 0 bytes: there is none.
fn read_sealed(
    lines: &mut BufReader<File>,
    text: &mut String,
    sealed: &Sealed,
    number: u64,
) -> Result<u64, ReplayError> {
    text.clear();
    let n = lines.read_line(text).map_err(not_text)?;
    if n > 0 {
        let plain = open_line(sealed.sealing.as_ref(), &sealed.name, number, text).map_err(ReplayError::Sealed)?;
        *text = String::from_utf8(plain).map_err(|_| ReplayError::NoRecording("it is not text".into()))?;
    }
    Ok(n as u64)
}

fn not_text(error: std::io::Error) -> ReplayError {
    match error.kind() {
        std::io::ErrorKind::InvalidData => ReplayError::NoRecording("it is not text".into()),
        _ => ReplayError::Io(error),
    }
}
