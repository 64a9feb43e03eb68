//! The files of one voice: where they are, how they are read, written and removed.
//!
//! [`super::VoiceStore`] calls it. Each file is written under a temporary name and renamed; of an upload the metadata come
//! last, and at a removal the recording goes first, so that whatever breaks off leaves no voice.

use antiphon_audio::{decode, wav};
use antiphon_engine_api::tts::CustomVoice;
use antiphon_types::Pcm;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The largest recording that is read: ten minutes of 16-bit stereo at 48 kHz are 115 MB, and refused for their length.
const MAX_RECORDING: u64 = 128 << 20;
/// The largest transcript or metadata file that is read.
const MAX_TEXT: u64 = 64 << 10;
/// Suffix of a file that is being written.
const PART: &str = "part";

/// Why a file of a voice cannot be used.
#[derive(Debug, thiserror::Error)]
pub(super) enum FileError {
    /// The file cannot be read or written.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// It is larger than any such file may be.
    #[error("it holds {bytes} bytes, and {most} at most are read")]
    TooLarge {
        /// Its size.
        bytes: u64,
        /// The largest.
        most: u64,
    },
    /// It is no recording.
    #[error(transparent)]
    Recording(#[from] decode::DecodeError),
    /// It is not the JSON that is expected.
    #[error("its metadata cannot be read: {0}")]
    Json(#[from] serde_json::Error),
    /// A text that is no text.
    #[error("it is not UTF-8")]
    Encoding(#[from] std::string::FromUtf8Error),
}

/// The files of the voice `id` in a folder.
#[derive(Clone, Debug)]
pub(super) struct VoiceFiles {
    folder: PathBuf,
    id: String,
}

impl VoiceFiles {
    /// `id` is a file's name without separators; the caller has checked it.
    pub(super) fn new(folder: &Path, id: &str) -> Self {
        Self { folder: folder.to_owned(), id: id.to_owned() }
    }

    fn path(&self, extension: &str) -> PathBuf {
        // Not `with_extension`, which would replace what follows a dot in the name.
        self.folder.join(format!("{}.{extension}", self.id))
    }

    /// The recording, at its own rate.
    pub(super) fn recording(&self, longest: Duration) -> Result<Pcm, FileError> {
        let bytes = read(&self.path("wav"), MAX_RECORDING)?;
        Ok(decode::read(bytes.into(), longest)?)
    }

    /// Size of the recording in bytes, and when it was written, in seconds since 1970.
    pub(super) fn stat(&self) -> io::Result<(u64, u64)> {
        let metadata = fs::metadata(self.path("wav"))?;
        let since = metadata.modified()?.duration_since(std::time::UNIX_EPOCH);
        Ok((metadata.len(), since.map_or(0, |since| since.as_secs())))
    }

    /// Its words; `None` where there is no such file or nothing in it.
    pub(super) fn transcript(&self) -> Result<Option<String>, FileError> {
        let Some(text) = self.text("txt")? else { return Ok(None) };
        Ok(Some(text.trim().to_owned()).filter(|text| !text.is_empty()))
    }

    /// Its metadata; `None` where there is no such file.
    pub(super) fn metadata<T: serde::de::DeserializeOwned>(&self) -> Result<Option<T>, FileError> {
        let Some(text) = self.text("json")? else { return Ok(None) };
        Ok(Some(serde_json::from_str(&text)?))
    }

    fn text(&self, extension: &str) -> Result<Option<String>, FileError> {
        match read(&self.path(extension), MAX_TEXT) {
            Ok(bytes) => Ok(Some(String::from_utf8(bytes)?)),
            Err(FileError::Io(error)) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Writes an upload. What was written is removed where not all of it could be.
    pub(super) fn write(&self, recording: &[u8], transcript: Option<&str>, voice: &CustomVoice) -> io::Result<()> {
        let metadata = serde_json::to_vec_pretty(voice)?;
        let written = || {
            self.write_one("wav", recording)?;
            if let Some(transcript) = transcript {
                self.write_one("txt", transcript.as_bytes())?;
            }
            self.write_one("json", &metadata)
        };
        written().inspect_err(|_| {
            // The error is the writing's; what cannot be removed is no voice.
            let _ = self.remove();
        })
    }

    fn write_one(&self, extension: &str, bytes: &[u8]) -> io::Result<()> {
        let part = self.path(&format!("{extension}.{PART}"));
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        let write = || {
            let mut file: File = options.open(&part)?;
            file.write_all(bytes)?;
            file.sync_data()?;
            fs::rename(&part, self.path(extension))
        };
        write().inspect_err(|_| {
            let _ = fs::remove_file(&part);
        })
    }

    /// Removes all of them, the recording first. Those that are not there are no error.
    pub(super) fn remove(&self) -> io::Result<()> {
        ["wav", "txt", "json"].iter().try_for_each(|extension| match fs::remove_file(self.path(extension)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        })
    }
}

/// The size of a recording as it is written.
pub(super) fn encoded(recording: &Pcm) -> Vec<u8> {
    wav::write(recording)
}

/// Makes the folder where it is missing, readable by this user only.
pub(super) fn make_private(folder: &Path) -> io::Result<()> {
    let mut builder = fs::DirBuilder::new();
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.recursive(true).create(folder)
}

/// The names of a folder's files without `.wav`, sorted, at most `most`; what an upload that broke off has left is removed.
pub(super) fn recordings(folder: &Path, most: usize) -> io::Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let Some(name) = path.file_name().and_then(|name| name.to_str()) else { continue };
        if let Some(stem) = name.strip_suffix(".wav") {
            names.push(stem.to_owned());
        } else if name.ends_with(&format!(".{PART}")) && name.starts_with("voice_") {
            fs::remove_file(&path)?;
        } else if let Some((_, extension @ ("WAV" | "mp3" | "flac" | "ogg" | "opus" | "m4a"))) = name.rsplit_once('.') {
            tracing::warn!(file = name, "no voice: a recording ends in .wav, and this file in .{extension}");
        }
    }
    names.sort();
    if names.len() > most {
        tracing::warn!(found = names.len(), most, "the folder of voices holds too many; the last are left out");
        names.truncate(most);
    }
    Ok(names)
}

fn read(path: &Path, most: u64) -> Result<Vec<u8>, FileError> {
    let file = File::open(path)?;
    let bytes = file.metadata()?.len();
    if bytes > most {
        return Err(FileError::TooLarge { bytes, most });
    }
    let mut content = Vec::with_capacity(bytes as usize);
    file.take(most).read_to_end(&mut content)?;
    Ok(content)
}
