//! The files of one voice: where they are, how they are read, written and removed.
//!
//! [`super::VoiceStore`] calls it. Each file is written under a temporary name and renamed; of an upload the metadata come
//! last, and at a removal the recording goes first, so that whatever breaks off leaves no voice.
//!
//! With a key, the files of uploads are encrypted, in blocks behind a head ([`sealed`]), each bound to its voice and extension,
//! and named `.sealed` behind it. A voice whose metadata are sealed is sealed as a whole: a plain file in the place of a sealed
//! one is not read. What cannot be opened is never replaced or removed.

use antiphon_audio::{decode, wav};
use antiphon_engine_api::tts::{CustomVoice, is_uploaded_id};
use antiphon_types::Pcm;
use antiphon_types::sealed::{self, BlockReader, BlockWriter, Form, Head, OpenError, SealedError, Sealing};
use std::borrow::Cow;
use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// The largest recording that is read: ten minutes of 16-bit stereo at 48 kHz are 115 MB, and refused for their length.
const MAX_RECORDING: u64 = 128 << 20;
/// The largest transcript or metadata file that is read.
const MAX_TEXT: u64 = 64 << 10;
/// Suffix of a file that is being written.
const PART: &str = "part";
/// The files of a voice, in the order they are written.
const EXTENSIONS: [&str; 3] = ["wav", "txt", "json"];

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
    /// It is encrypted, and there is no key.
    #[error("it is encrypted, and server.storage_key is empty: name the file of its key")]
    NoKey,
    /// It is encrypted, and the key does not open it.
    #[error("its file {file} cannot be opened with server.storage_key: {why}")]
    Sealed {
        /// The file's name.
        file: String,
        /// Why.
        why: OpenError,
    },
}

/// The files of the voice `id` in a folder.
#[derive(Clone, Debug)]
pub(super) struct VoiceFiles {
    folder: PathBuf,
    id: String,
    sealing: Option<Arc<dyn Sealing>>,
    is_sealed: bool,
}

impl VoiceFiles {
    /// `id` is a file's name without separators; the caller has checked it. `sealing` encrypts uploads.
    pub(super) fn new(folder: &Path, id: &str, sealing: Option<Arc<dyn Sealing>>) -> Self {
        let mut files = Self { folder: folder.to_owned(), id: id.to_owned(), sealing, is_sealed: false };
        files.is_sealed = is_uploaded_id(id) && files.sealed_path("json").exists();
        files
    }

    /// Whether what is there is encrypted.
    pub(super) fn is_sealed(&self) -> bool {
        self.is_sealed
    }

    fn path(&self, extension: &str) -> PathBuf {
        // Not `with_extension`, which would replace what follows a dot in the name.
        self.folder.join(format!("{}.{extension}", self.id))
    }

    fn sealed_path(&self, extension: &str) -> PathBuf {
        self.path(&format!("{extension}.{}", sealed::EXTENSION))
    }

    /// What the blocks of a file are bound to.
    fn sealed_name(&self, extension: &str) -> String {
        format!("voices/{}.{extension}", self.id)
    }

    /// The recording, at its own rate.
    pub(super) fn recording(&self, longest: Duration) -> Result<Pcm, FileError> {
        let bytes = self.read("wav", MAX_RECORDING)?;
        Ok(decode::read(bytes.into(), longest)?)
    }

    /// Size of the recording in bytes, and when it was written, in seconds since 1970.
    pub(super) fn stat(&self) -> io::Result<(u64, u64)> {
        let path = if self.is_sealed { self.sealed_path("wav") } else { self.path("wav") };
        let metadata = fs::metadata(path)?;
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
        match self.read(extension, MAX_TEXT) {
            Ok(bytes) => Ok(Some(String::from_utf8(bytes)?)),
            Err(FileError::Io(error)) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn read(&self, extension: &str, most: u64) -> Result<Vec<u8>, FileError> {
        if self.is_sealed { self.read_sealed(extension, most) } else { read(&self.path(extension), most) }
    }

    fn read_sealed(&self, extension: &str, most: u64) -> Result<Vec<u8>, FileError> {
        let path = self.sealed_path(extension);
        let name = self.sealed_name(extension);
        let failed = |why| FileError::Sealed { file: format!("{}.{extension}.{}", self.id, sealed::EXTENSION), why };
        let worded = |error: io::Error| match error.get_ref().and_then(|inner| inner.downcast_ref()) {
            Some(SealedError { why, .. }) => failed(*why),
            None => FileError::Io(error),
        };
        let mut file = BufReader::new(File::open(path)?);
        let head = match Head::read_from(&mut file) {
            Ok(head) => head.filter(|head| head.form == Form::Blocks && head.name == name),
            Err(error) if error.kind() == io::ErrorKind::InvalidData => return Err(failed(OpenError::Newer)),
            Err(error) => return Err(error.into()),
        };
        let head = head.ok_or_else(|| failed(OpenError::Changed))?;
        let sealing = self.sealing.clone().ok_or(FileError::NoKey)?;
        let mut content = Vec::new();
        // To the last block, whose mark says that nothing is missing.
        BlockReader::new(file, sealing, head.name).take(most + 1).read_to_end(&mut content).map_err(worded)?;
        match content.len() as u64 {
            bytes if bytes > most => Err(FileError::TooLarge { bytes, most }),
            _ => Ok(content),
        }
    }

    /// Encrypts a plain upload: writes its sealed files, then removes the plain ones. Until all are written, the voice is the
    /// plain one. Without a key, nothing is done.
    pub(super) fn seal(&mut self) -> Result<(), FileError> {
        if self.is_sealed || self.sealing.is_none() {
            return Ok(());
        }
        for extension in EXTENSIONS {
            match read(&self.path(extension), MAX_RECORDING) {
                Ok(bytes) => self.write_one(extension, &bytes)?,
                Err(FileError::Io(error)) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
        // The new names are on the disk before the old ones go.
        #[cfg(unix)]
        File::open(&self.folder)?.sync_all()?;
        self.is_sealed = true;
        self.remove_plain()
    }

    /// Removes the plain files of a voice that is sealed, each once its sealed one was opened.
    pub(super) fn remove_plain(&self) -> Result<(), FileError> {
        for extension in EXTENSIONS {
            let path = self.path(extension);
            if path.exists() {
                self.read_sealed(extension, MAX_RECORDING)?;
                remove(&path)?;
            }
        }
        Ok(())
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
        let (path, bytes) = match &self.sealing {
            None => (self.path(extension), Cow::Borrowed(bytes)),
            Some(sealing) => {
                let name = self.sealed_name(extension);
                let head = Head::new(Form::Blocks, name.clone()).line();
                let mut blocks = BlockWriter::new(head, sealing.clone(), name);
                blocks.write_all(bytes)?;
                (self.sealed_path(extension), Cow::Owned(blocks.finish()?))
            }
        };
        let mut part = path.clone().into_os_string();
        part.push(format!(".{PART}"));
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        let write = || {
            let mut file: File = options.open(&part)?;
            file.write_all(&bytes)?;
            file.sync_data()?;
            fs::rename(&part, &path)
        };
        write().inspect_err(|_| {
            let _ = fs::remove_file(&part);
        })
    }

    /// Removes all of them, the recording first. Those that are not there are no error.
    pub(super) fn remove(&self) -> io::Result<()> {
        let both = |extension| [self.sealed_path(extension), self.path(extension)];
        EXTENSIONS.into_iter().flat_map(both).try_for_each(|path| remove(&path))
    }
}

/// Removes a file; that it is not there is no error.
fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
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

/// The names of a folder's files without `.wav` or `.wav.sealed`, sorted, at most `most`; what an upload that broke off has left
/// is removed.
pub(super) fn recordings(folder: &Path, most: usize) -> io::Result<Vec<String>> {
    let mut names = BTreeSet::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let Some(name) = path.file_name().and_then(|name| name.to_str()) else { continue };
        let sealed = || name.strip_suffix(&format!(".wav.{}", sealed::EXTENSION)).filter(|stem| is_uploaded_id(stem));
        if let Some(stem) = name.strip_suffix(".wav").or_else(sealed) {
            names.insert(stem.to_owned());
        } else if name.ends_with(&format!(".{PART}")) && name.starts_with("voice_") {
            fs::remove_file(&path)?;
        } else if let Some((_, extension @ ("WAV" | "mp3" | "flac" | "ogg" | "opus" | "m4a"))) = name.rsplit_once('.') {
            tracing::warn!(file = name, "no voice: a recording ends in .wav, and this file in .{extension}");
        }
    }
    if names.len() > most {
        tracing::warn!(found = names.len(), most, "the folder of voices holds too many; the last are left out");
    }
    Ok(names.into_iter().take(most).collect())
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
