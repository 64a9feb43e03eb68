//! Places files that an operator brought as a model: all of one precision, or none.
//!
//! `antiphon models import` calls this once it knows what the files are. A model that the registry does not name gets an entry of
//! its own, which stays in its folder ([`OWN_ENTRY`]) and is read with the registry from then on.

use super::checksum::Hasher;
use super::disk::{FileReceipt, Receipt, part};
use super::pull::{EmptyFolders, Lock};
use super::{Entry, FileEntry, ModelsConfig, RegistryError, Variant, format};
use std::path::{Path, PathBuf};

/// The file in an imported model's folder that describes it, in the form of the registry.
pub(super) const OWN_ENTRY: &str = "model.toml";

/// A file to place.
#[derive(Clone, Debug)]
pub struct FileToPlace {
    /// Where it is.
    pub from: PathBuf,
    /// Its path in the model's folder, as the variant names it.
    pub path: String,
    /// It may be moved; else it is copied, and stays where it is.
    pub may_move: bool,
}

/// Checks the files against the variant (size, checksum where one is known, format) and places them. `own_entry` is the registry
/// text of a model that the registry does not name. Returns the bytes placed. Blocks while it reads and copies.
///
/// # Errors
/// [`RegistryError::Foreign`] where a file is not the model's, [`RegistryError::Busy`], [`RegistryError::Disk`]; then nothing is placed.
pub fn install(
    config: &ModelsConfig,
    entry: &Entry,
    variant: &Variant,
    files: &[FileToPlace],
    own_entry: Option<&str>,
) -> Result<u64, RegistryError> {
    let _lock = Lock::take(config, &entry.name)?;
    let folder = config.folder(&entry.name);
    let _emptied = EmptyFolders(&folder);
    let mut receipt = Receipt::read(&folder);
    let mut parts = Parts(Vec::new());
    let mut bytes = 0;
    for file in &variant.files {
        let placed = files.iter().find(|placed| placed.path == file.path);
        let placed = placed.ok_or_else(|| RegistryError::foreign(&folder, format!("{} is missing", file.path)))?;
        let kept = check(file, &placed.from)?;
        let path = folder.join(&file.path);
        let below = path.parent().expect("a file in a folder");
        std::fs::create_dir_all(below).map_err(RegistryError::disk(below, "the folder cannot be created"))?;
        let part = part(&path);
        parts.0.push((part.clone(), path));
        // A rename fails between disks.
        if !(placed.may_move && std::fs::rename(&placed.from, &part).is_ok()) {
            std::fs::copy(&placed.from, &part).map_err(RegistryError::disk(&part, "cannot be written"))?;
        }
        bytes += kept.bytes;
        receipt.files.insert(file.path.clone(), kept);
    }
    if let Some(text) = own_entry {
        let path = folder.join(OWN_ENTRY);
        std::fs::write(part(&path), text).map_err(RegistryError::disk(&path, "cannot be written"))?;
        parts.0.push((part(&path), path));
    }
    receipt.write(&folder)?;
    for (part, path) in std::mem::take(&mut parts.0) {
        std::fs::rename(&part, &path).map_err(RegistryError::disk(&path, "cannot be renamed into place"))?;
    }
    Ok(bytes)
}

/// Whether the file at `path` is the registered one; its receipt.
pub(super) fn check(file: &FileEntry, path: &Path) -> Result<FileReceipt, RegistryError> {
    let computed = Hasher::of_file(path).map_err(RegistryError::disk(path, "cannot be read"))?;
    let kept = FileReceipt { bytes: computed.n_bytes(), sha256: computed.sha256() };
    let foreign = |why: String| Err(RegistryError::foreign(path, why));
    if let Some(bytes) = file.bytes.filter(|bytes| *bytes != kept.bytes) {
        return foreign(format!("has {} bytes, and {} has {bytes}", kept.bytes, file.path));
    }
    if kept.bytes < file.least_bytes() {
        return foreign(format!("has {} bytes, fewer than {} can have", kept.bytes, file.path));
    }
    if !file.sums().any(|sum| computed.like(sum) == *sum) && file.sums().next().is_some() {
        return foreign(format!("is not the published {}: its SHA-256 is {}", file.path, kept.sha256));
    }
    match format::mismatch(path, &file.path).map_err(RegistryError::disk(path, "cannot be read"))? {
        Some(expected) => foreign(format!("is not what {} should be: {expected}", file.path)),
        None => Ok(kept),
    }
}

/// Files on their way, which go where the import fails.
struct Parts(Vec<(PathBuf, PathBuf)>);

impl Drop for Parts {
    fn drop(&mut self) {
        for (part, _) in &self.0 {
            let _ = std::fs::remove_file(part);
        }
    }
}
