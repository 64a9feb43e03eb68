//! Output to stdout and stderr.

use super::CliError;
use super::target::printable;
use antiphon_telemetry::with_causes;
use serde::Serialize;
use std::io::{self, Write};
use std::path::Path;

/// Prints one line of text.
pub fn line(text: &str) -> Result<(), CliError> {
    bytes(format!("{text}\n").as_bytes())
}

/// Prints one JSON object on one line.
pub fn json(value: &impl Serialize) -> Result<(), CliError> {
    line(&serde_json::to_string(value).expect("what is printed serializes"))
}

/// A path as text of JSON: what is not Unicode in it becomes replacement characters.
pub(super) fn path(path: &Path) -> String {
    path.display().to_string()
}

/// Writes raw bytes. A closed pipe is not an error.
pub fn bytes(bytes: &[u8]) -> Result<(), CliError> {
    let mut out = io::stdout().lock();
    match out.write_all(bytes).and_then(|()| out.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(CliError::Failed(format!("stdout cannot be written: {error}")))
        }
        _ => Ok(()),
    }
}

/// Reports an error on stderr.
pub(super) fn complain(error: &CliError) {
    to_stderr(&complaint(error));
}

/// The lines of an error. A server may have written words of it: they control no terminal.
fn complaint(error: &CliError) -> String {
    with_causes(error).lines().map(|line| format!("antiphon: {}\n", printable(line))).collect()
}

/// Writes one line to stderr.
pub(super) fn note(text: &str) {
    to_stderr(&format!("{text}\n"));
}

/// Writes to stderr. Where that cannot be, as to a pipe whose reader has ended, the text is lost and the command goes
/// on: `eprint!` would panic.
pub(super) fn to_stderr(text: &str) {
    let _ = io::stderr().lock().write_all(text.as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_of_a_server_in_an_error_control_no_terminal_and_keep_their_lines() {
        let error = CliError::Failed("the server said: no\x1b[2J room\r\nTry \x07later.".into());
        assert_eq!(complaint(&error), "antiphon: the server said: no[2J room\nantiphon: Try later.\n");
    }
}
