//! Takes the files of a model out of the archive that they are published in: tar, packed by bzip2 or gzip.
//!
//! [`super::Puller`] downloads the archive and calls [`unpack`]. The archive decides nothing: a member is written where
//! the registry has it named, to the path that the registry gives it, and as a plain file; every other member is read
//! past. A path that leads out of the archive, a link in the place of a file, a member that is missing, comes twice or
//! is too large, and more bytes than the named members may have make it an archive that is not the model's. Everything
//! here blocks.

use super::RegistryError;
use bzip2::bufread::MultiBzDecoder;
use flate2::bufread::MultiGzDecoder;
use std::fs::File;
use std::io::{self, BufReader, Read, Seek, Write};
use std::path::{Component, Path, PathBuf};
use tokio_util::sync::CancellationToken;

/// Bytes beyond the most that the named members may have: published archives hold recordings and a readme beside the
/// model.
const SLACK: u64 = if cfg!(test) { 4 << 20 } else { 256 << 20 };
/// Members in all; a published archive has ten or so.
const MAX_MEMBERS: usize = 10_000;

/// A file to take out.
pub(super) struct Member {
    /// Its path in the archive.
    pub(super) name: String,
    /// Where it is written.
    pub(super) to: PathBuf,
    /// Its size in bytes at most.
    pub(super) most_bytes: u64,
}

/// Writes the members that are named. Where it fails, some of them may have been written. `dropped` ends it at the next
/// block.
///
/// # Errors
/// [`RegistryError::BadArchive`] with what is wrong, at this `address`; [`RegistryError::Disk`].
pub(super) fn unpack(
    archive: &Path,
    members: &[Member],
    address: &str,
    dropped: &CancellationToken,
) -> Result<(), RegistryError> {
    let mut file = File::open(archive).map_err(RegistryError::disk(archive, "cannot be read"))?;
    let mut head = [0; 3];
    let n = file.read(&mut head).map_err(RegistryError::disk(archive, "cannot be read"))?;
    file.rewind().map_err(RegistryError::disk(archive, "cannot be read"))?;
    let file = BufReader::with_capacity(1 << 18, file);
    let unpacked: Box<dyn Read> = match &head[..n] {
        b"BZh" => Box::new(MultiBzDecoder::new(file)),
        [0x1f, 0x8b, _] => Box::new(MultiGzDecoder::new(file)),
        _ => return Err(bad(address, "is packed neither by bzip2 nor by gzip".into())),
    };
    let most = members.iter().fold(SLACK, |sum: u64, member| sum.saturating_add(member.most_bytes));
    let mut unpacking = Unpacking { address, dropped, members, is_written: vec![false; members.len()] };
    unpacking.all(Bounded { from: unpacked, left: most, dropped })
}

fn bad(address: &str, why: String) -> RegistryError {
    RegistryError::BadArchive { address: address.into(), why }
}

struct Unpacking<'a> {
    address: &'a str,
    dropped: &'a CancellationToken,
    members: &'a [Member],
    is_written: Vec<bool>,
}

impl Unpacking<'_> {
    fn all(&mut self, from: impl Read) -> Result<(), RegistryError> {
        let mut archive = tar::Archive::new(from);
        // Raw: headers that only extend others, long names among them, are read past as members, not into memory.
        let entries = archive.entries().map_err(|error| self.damaged(&error))?.raw(true);
        for (number, entry) in entries.enumerate() {
            let entry = entry.map_err(|error| self.damaged(&error))?;
            if number == MAX_MEMBERS {
                return Err(self.bad(format!("has more than {MAX_MEMBERS} members")));
            }
            self.one(entry)?;
        }
        match self.is_written.iter().position(|is_written| !is_written) {
            Some(missing) => Err(self.bad(format!("does not hold {}", self.members[missing].name))),
            None => Ok(()),
        }
    }

    fn one(&mut self, entry: tar::Entry<'_, impl Read>) -> Result<(), RegistryError> {
        let path = entry.path().map_err(|error| self.damaged(&error))?.into_owned();
        let is_inside = |part: Component<'_>| matches!(part, Component::Normal(_) | Component::CurDir);
        if !path.components().all(is_inside) {
            return Err(self.bad("holds a path that leads out of it".into()));
        }
        let path: PathBuf = path.components().filter(|part| matches!(part, Component::Normal(_))).collect();
        let Some(at) = self.members.iter().position(|member| Path::new(&member.name) == path) else { return Ok(()) };
        let member = &self.members[at];
        if !entry.header().entry_type().is_file() {
            return Err(self.bad(format!("holds {}, which is no plain file", member.name)));
        }
        if std::mem::replace(&mut self.is_written[at], true) {
            return Err(self.bad(format!("holds {} twice", member.name)));
        }
        self.write(entry, member)
    }

    fn write(&self, mut entry: impl Read, member: &Member) -> Result<(), RegistryError> {
        let cannot = || RegistryError::disk(&member.to, "cannot be written");
        let mut file = File::create(&member.to).map_err(cannot())?;
        let mut piece = vec![0; 1 << 18];
        let mut n_bytes = 0;
        loop {
            let n = entry.read(&mut piece).map_err(|error| self.damaged(&error))?;
            if n == 0 {
                break;
            }
            n_bytes += n as u64;
            // The size that the archive states is not trusted.
            if n_bytes > member.most_bytes {
                return Err(self.bad(format!("holds {} with more than {} bytes", member.name, member.most_bytes)));
            }
            file.write_all(&piece[..n]).map_err(cannot())?;
        }
        file.sync_all().map_err(cannot())
    }

    fn bad(&self, why: String) -> RegistryError {
        bad(self.address, why)
    }

    /// What reading the archive failed by.
    fn damaged(&self, error: &io::Error) -> RegistryError {
        if self.dropped.is_cancelled() {
            return RegistryError::disk(Path::new(self.address), "is not unpacked further")(io::Error::other(
                "the pull was ended",
            ));
        }
        self.bad(format!("is damaged or not the model's: {error}"))
    }
}

/// Ends with an error after so many bytes, or when the pull is dropped.
struct Bounded<'a, R> {
    from: R,
    left: u64,
    dropped: &'a CancellationToken,
}

impl<R: Read> Read for Bounded<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.dropped.is_cancelled() {
            return Err(io::Error::other("the pull was ended"));
        }
        let n = self.from.read(buffer)?;
        self.left = self.left.checked_sub(n as u64).ok_or_else(|| io::Error::other("it unpacks to too many bytes"))?;
        Ok(n)
    }
}

#[cfg(test)]
#[path = "unpack_tests.rs"]
mod tests;
