//! Reads a replay log line by line: a file of any length needs the memory of its longest line.

use super::ReplayError;
use antiphon_session::replay_log::{Header, Line, VERSION};
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;

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
}

impl ReplayLog {
    /// Opens a recording and reads its header.
    ///
    /// # Errors
    /// When it cannot be read, is no recording, or one of another version.
    pub fn open(path: &Path) -> Result<Self, ReplayError> {
        let file = File::open(path)?;
        let n_bytes = file.metadata()?.len();
        let (mut lines, mut text) = (BufReader::new(file), String::new());
        let n_read = lines.read_line(&mut text).map_err(not_text)? as u64;
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
        Ok(Self { header, n_bytes, n_read, line: 1, lines, text })
    }

    /// The next line; `None` at the end of the file.
    ///
    /// # Errors
    /// When the file cannot be read or the line is none.
    pub fn next_line(&mut self) -> Result<Option<Line>, ReplayError> {
        self.text.clear();
        let n = self.lines.read_line(&mut self.text).map_err(not_text)?;
        if n == 0 {
            return Ok(None);
        }
        self.n_read += n as u64;
        self.line += 1;
        let line = self.line;
        serde_json::from_str(&self.text).map(Some).map_err(|source| ReplayError::Line { line, source })
    }
}

fn not_text(error: std::io::Error) -> ReplayError {
    match error.kind() {
        std::io::ErrorKind::InvalidData => ReplayError::NoRecording("it is not text".into()),
        _ => ReplayError::Io(error),
    }
}
