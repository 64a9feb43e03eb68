//! Reads the files that an operator names: settings, keys, certificates, secrets.
//!
//! A pipe or a device in such a place would be read without end, or block the reader until another process writes to it: only
//! regular files are read, links to them included, and only up to a bound.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

/// The longest file of settings, keys or certificates, in bytes: a hundred thousand keys.
pub const MAX_SETTINGS_BYTES: u64 = 16 << 20;

/// The whole file. Blocks for the time of a small file.
///
/// # Errors
/// It cannot be read, is no regular file, or is longer than `max_bytes`.
pub fn read(path: &Path, max_bytes: u64) -> io::Result<Vec<u8>> {
    let is_regular = |is_file: bool| if is_file { Ok(()) } else { Err(io::Error::other("it is no regular file")) };
    // Before it is opened, because opening a pipe blocks.
    is_regular(std::fs::metadata(path)?.is_file())?;
    let file = File::open(path)?;
    is_regular(file.metadata()?.is_file())?;
    let mut bytes = Vec::new();
    file.take(max_bytes.saturating_add(1)).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > max_bytes {
        return Err(io::Error::other(format!("it is longer than {max_bytes} bytes")));
    }
    Ok(bytes)
}

/// As [`read`], for text.
///
/// # Errors
/// As [`read`], or it is not UTF-8.
pub fn read_text(path: &Path, max_bytes: u64) -> io::Result<String> {
    String::from_utf8(read(path, max_bytes)?).map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "it is not UTF-8"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn regular_files_are_read_up_to_a_bound_and_nothing_else_is() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        std::fs::write(path("keys"), "one\n").unwrap();
        std::os::unix::fs::symlink(path("keys"), path("link")).unwrap();
        for name in ["keys", "link"] {
            assert_eq!(read_text(&path(name), 4).unwrap(), "one\n");
        }
        let fails = |path: &Path, expect: &str| {
            let error = read(path, 3).unwrap_err().to_string();
            assert!(error.contains(expect), "{error}");
        };
        fails(&path("keys"), "longer than 3 bytes");
        let made = std::process::Command::new("mkfifo").arg(path("pipe")).status().unwrap();
        assert!(made.success());
        for special in [path("pipe").as_path(), Path::new("/dev/zero"), folder.path()] {
            fails(special, "no regular file");
        }
        fails(&path("absent"), "No such file");
        std::fs::write(path("bytes"), [0xff]).unwrap();
        assert!(read_text(&path("bytes"), 3).unwrap_err().to_string().contains("UTF-8"));
    }
}
