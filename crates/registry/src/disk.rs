//! The models on disk: finds out which are complete, locates their files, and removes models.

use super::catalog::ModelRequest;
use super::download::tag_of;
use super::pull::Lock;
use super::{Entry, ModelsConfig, RegistryError, Variant};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// File in a model's folder that records the size and checksum of each downloaded file.
pub(super) const RECEIPT: &str = "pulled.json";

/// A complete model on disk.
#[derive(Clone, Debug, PartialEq)]
pub struct LocatedModel {
    /// Its name.
    pub name: String,
    /// The engine that runs it.
    pub family: String,
    /// The precision found.
    pub precision: String,
    /// Its folder.
    pub folder: PathBuf,
    /// Total size of its files in bytes, approximately its memory use.
    pub bytes: u64,
    files: Vec<(String, PathBuf)>,
}

/// The roles whose file is a model's main one; a model has one of them.
const MAIN: [&str; 3] = ["model", "graph", "decode"];

impl LocatedModel {
    /// The file that settings name, such as `tts.model`; the engine finds the others from it. `None` if no file has the
    /// role `model`, `graph` or `decode`.
    pub fn main_file(&self) -> Option<&Path> {
        MAIN.iter().find_map(|role| self.file(role))
    }

    /// The first file with this role.
    pub fn file(&self, role: &str) -> Option<&Path> {
        self.files(role).next()
    }

    /// All files, in the registry's order.
    pub fn all_files(&self) -> impl Iterator<Item = &Path> {
        self.files.iter().map(|(_, path)| path.as_path())
    }

    /// All files with this role, in the registry's order.
    pub fn files(&self, role: &str) -> impl Iterator<Item = &Path> {
        self.files.iter().filter(move |(of, _)| of == role).map(|(_, path)| path.as_path())
    }
}

/// How much of a variant is on disk.
#[derive(Clone, Debug, PartialEq)]
pub enum OnDisk {
    /// No file.
    Absent,
    /// A download was interrupted, or a file is missing.
    Partly {
        /// Bytes on disk.
        bytes: u64,
    },
    /// Complete.
    Whole {
        /// Bytes on disk.
        bytes: u64,
    },
    /// A file does not have its recorded or registered size.
    Damaged {
        /// Path of the file.
        path: PathBuf,
        /// Description of the mismatch.
        why: String,
    },
}

/// The record of downloaded files, by path.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub(super) struct Receipt {
    pub(super) files: BTreeMap<String, FileReceipt>,
}

#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub(super) struct FileReceipt {
    pub(super) bytes: u64,
    pub(super) sha256: String,
}

impl Receipt {
    /// Reads the receipt in `folder`; empty if there is none, because files may have been copied by hand.
    pub(super) fn read(folder: &Path) -> Self {
        let text = std::fs::read(folder.join(RECEIPT)).ok();
        text.and_then(|text| serde_json::from_slice(&text).ok()).unwrap_or_default()
    }

    pub(super) fn write(&self, folder: &Path) -> Result<(), RegistryError> {
        let path = folder.join(RECEIPT);
        let new = folder.join(format!("{RECEIPT}.new"));
        let text = serde_json::to_vec_pretty(self).expect("strings and numbers serialize");
        std::fs::write(&new, text).map_err(RegistryError::disk(&new, "cannot be written"))?;
        std::fs::rename(&new, &path).map_err(RegistryError::disk(&path, "cannot be written"))
    }
}

/// The path of a file while its variant is being downloaded.
pub(super) fn part(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".part");
    name.into()
}

/// How much of the variant is on disk: in `models.dir`, or in `models.shipped_dir` where only that copy is complete, or
/// the only one. Checks names and sizes only; [`super::Puller::pull`] verifies the contents.
pub fn on_disk(config: &ModelsConfig, entry: &Entry, variant: &Variant) -> OnDisk {
    found(config, entry, variant).1
}

/// The folder that has the variant, or is to have it.
pub fn folder_of(config: &ModelsConfig, entry: &Entry, variant: &Variant) -> PathBuf {
    found(config, entry, variant).0
}

fn found(config: &ModelsConfig, entry: &Entry, variant: &Variant) -> (PathBuf, OnDisk) {
    let own = config.folder(&entry.name);
    let state = state_in(&own, variant);
    let is_whole = |state: &OnDisk| matches!(state, OnDisk::Whole { .. });
    if !is_whole(&state)
        && let Some(shipped) = config.shipped_folder(&entry.name)
    {
        let shipped_state = state_in(&shipped, variant);
        if is_whole(&shipped_state) || state == OnDisk::Absent && shipped_state != OnDisk::Absent {
            return (shipped, shipped_state);
        }
    }
    (own, state)
}

/// Whether the installation's copy of the variant is the one in use: it is complete, and that in `models.dir` is not.
pub fn is_shipped(config: &ModelsConfig, entry: &Entry, variant: &Variant) -> bool {
    let (folder, state) = found(config, entry, variant);
    matches!(state, OnDisk::Whole { .. }) && folder != config.folder(&entry.name)
}

fn state_in(folder: &Path, variant: &Variant) -> OnDisk {
    let receipt = Receipt::read(folder);
    let mut bytes = variant.archive.iter().filter_map(|archive| size(&part(&folder.join(&archive.path)))).sum();
    let mut n_whole = 0;
    for file in &variant.files {
        let path = folder.join(&file.path);
        let Some(found) = size(&path) else {
            bytes += size(&part(&path)).unwrap_or(0);
            continue;
        };
        let expected = file.bytes.or_else(|| receipt.files.get(&file.path).map(|kept| kept.bytes));
        match expected {
            Some(expected) if expected != found => {
                return OnDisk::Damaged { path, why: format!("it has {found} bytes and should have {expected}") };
            }
            _ if found == 0 => return OnDisk::Damaged { path, why: "it is empty".into() },
            _ => (bytes, n_whole) = (bytes + found, n_whole + 1),
        }
    }
    match n_whole {
        n if n == variant.files.len() => OnDisk::Whole { bytes },
        0 if bytes == 0 => OnDisk::Absent,
        _ => OnDisk::Partly { bytes },
    }
}

fn size(path: &Path) -> Option<u64> {
    std::fs::metadata(path).ok().filter(std::fs::Metadata::is_file).map(|found| found.len())
}

/// Locates the files of a model: of the given precision, or of the first complete one.
///
/// # Errors
/// [`RegistryError::Absent`] or [`RegistryError::Damaged`].
pub fn locate(config: &ModelsConfig, wanted: ModelRequest<'_>) -> Result<LocatedModel, RegistryError> {
    let entry = wanted.entry;
    let asked = |variant: &&Variant| wanted.precision.is_none_or(|precision| variant.precision == precision);
    let mut damage = None;
    for variant in entry.variants.iter().filter(asked) {
        let (folder, state) = found(config, entry, variant);
        match state {
            OnDisk::Whole { bytes } => {
                let files = variant.files.iter().map(|file| (file.role.clone(), folder.join(&file.path))).collect();
                let name = entry.name.clone();
                let family = entry.family.clone();
                let precision = variant.precision.clone();
                return Ok(LocatedModel { name, family, precision, folder, bytes, files });
            }
            OnDisk::Damaged { path, why } => damage = damage.or(Some(RegistryError::Damaged { path, why })),
            OnDisk::Absent | OnDisk::Partly { .. } => {}
        }
    }
    let name = wanted.precision.map_or(entry.name.clone(), |precision| format!("{}:{precision}", entry.name));
    Err(damage.unwrap_or_else(|| RegistryError::Absent { name, dir: config.dir.clone().into() }))
}

/// Removes a model, or the files that only one precision of it needs; returns the number of bytes freed. Blocks.
///
/// # Errors
/// [`RegistryError::Busy`] while the model is being downloaded or removed, [`RegistryError::Shipped`] if it belongs to the
/// installation, [`RegistryError::Absent`] if no file exists.
pub fn remove(config: &ModelsConfig, wanted: ModelRequest<'_>) -> Result<u64, RegistryError> {
    let entry = wanted.entry;
    let folder = config.folder(&entry.name);
    let name = wanted.precision.map_or(entry.name.clone(), |precision| format!("{}:{precision}", entry.name));
    let absent = || RegistryError::Absent { name: name.clone(), dir: config.dir.clone().into() };
    if !folder.is_dir() {
        return match config.shipped_folder(&entry.name) {
            Some(dir) if dir.is_dir() => Err(RegistryError::Shipped { name, dir }),
            _ => Err(absent()),
        };
    }
    let _lock = Lock::take(config, &entry.name)?;
    let of = |variant: &Variant| {
        let files = variant.files.iter().chain(&variant.archive);
        files.map(|file| folder.join(&file.path)).collect::<Vec<_>>()
    };
    let is_any_here = |path: &PathBuf| path.exists() || part(path).exists();
    let own = of(wanted.variant());
    let others: Vec<_> = match wanted.precision {
        Some(precision) => entry.variants.iter().filter(|variant| variant.precision != precision).map(of).collect(),
        None => Vec::new(),
    };
    // A variant without files of its own does not keep shared files; otherwise the last variant could never be removed.
    let kept: Vec<_> = others
        .into_iter()
        .filter(|files| files.iter().any(|path| !own.contains(path) && is_any_here(path)))
        .flatten()
        .collect();
    if kept.is_empty() {
        let bytes = bytes_below(&folder);
        std::fs::remove_dir_all(&folder).map_err(RegistryError::disk(&folder, "cannot be removed"))?;
        // An empty folder is what an earlier version's failed download left.
        return if bytes > 0 { Ok(bytes) } else { Err(absent()) };
    }
    let going: Vec<_> = own.iter().filter(|path| !kept.contains(path)).collect();
    if !going.iter().any(|path| is_any_here(path)) {
        return Err(absent());
    }
    let mut receipt = Receipt::read(&folder);
    let mut bytes = 0;
    for path in going {
        for path in [tag_of(&part(path)), part(path), path.clone()] {
            let Some(size) = size(&path) else { continue };
            std::fs::remove_file(&path).map_err(RegistryError::disk(&path, "cannot be removed"))?;
            bytes += size;
        }
        receipt.files.retain(|kept, _| folder.join(kept) != *path);
    }
    receipt.write(&folder)?;
    Ok(bytes)
}

fn bytes_below(folder: &Path) -> u64 {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let of = |path: PathBuf| if path.is_dir() { bytes_below(&path) } else { size(&path).unwrap_or(0) };
    entries.map(|entry| of(entry.path())).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Catalog;

    /// A model with two precisions that share a file, and a folder for it.
    fn fixture() -> (tempfile::TempDir, ModelsConfig, Catalog) {
        let dir = tempfile::tempdir().unwrap();
        let config = ModelsConfig { dir: dir.path().to_str().unwrap().into(), ..ModelsConfig::default() };
        let catalog = Catalog::read(
            "own",
            r#"
            [[model]]
            name = "m"
            stage = "tts"
            family = "kokoro"
            title = "M"
            base = "http://h/"
            licence = "MIT"
            languages = []
            rate_hz = 16000
            files = [{ role = "voice", path = "voices/*.bin", each = ["a", "b"], bytes = 2 }]
            [[model.variant]]
            precision = "fp32"
            files = [{ role = "graph", path = "m.onnx", bytes = 4 }]
            [[model.variant]]
            precision = "fp16"
            files = [{ role = "graph", path = "m16.onnx", about_mb = 1 }]
            "#,
        );
        (dir, config, catalog.unwrap())
    }

    fn put(config: &ModelsConfig, path: &str, text: &str) {
        let path = config.folder("m").join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    #[test]
    fn models_of_the_installation_are_found_behind_the_own_ones_and_never_removed() {
        let (own, config, catalog) = fixture();
        let shipped = tempfile::tempdir().unwrap();
        let shipped_dir = shipped.path().to_str().unwrap().to_owned();
        let config = ModelsConfig { shipped_dir, ..config };
        let wanted = catalog.find("m").unwrap();
        assert_eq!(folder_of(&config, wanted.entry, wanted.variant()), own.path().join("m"));
        let put = |dir: &Path| {
            for file in &wanted.variant().files {
                let path = dir.join("m").join(&file.path);
                std::fs::create_dir_all(path.parent().unwrap()).unwrap();
                std::fs::write(path, vec![0; file.bytes.unwrap_or(7) as usize]).unwrap();
            }
        };
        put(shipped.path());
        assert_eq!(locate(&config, wanted).unwrap().folder, shipped.path().join("m"));
        let refused = remove(&config, wanted).unwrap_err();
        assert!(
            matches!(&refused, RegistryError::Shipped { dir, .. } if *dir == shipped.path().join("m")),
            "{refused}"
        );
        put(own.path());
        assert_eq!(locate(&config, wanted).unwrap().folder, own.path().join("m"));
        assert!(!is_shipped(&config, wanted.entry, wanted.variant()));
        // A copy that is damaged, then incomplete, hides no complete one.
        let graph = own.path().join("m/m.onnx");
        std::fs::write(&graph, "12").unwrap();
        assert_eq!(locate(&config, wanted).unwrap().folder, shipped.path().join("m"));
        std::fs::remove_file(&graph).unwrap();
        assert_eq!(locate(&config, wanted).unwrap().folder, shipped.path().join("m"));
        assert!(is_shipped(&config, wanted.entry, wanted.variant()));
        remove(&config, wanted).unwrap();
        assert_eq!(locate(&config, wanted).unwrap().folder, shipped.path().join("m"));
    }

    #[test]
    fn a_model_is_there_when_all_its_files_are() {
        let (_dir, config, catalog) = fixture();
        let wanted = catalog.find("m").unwrap();
        let absent = locate(&config, wanted).unwrap_err().to_string();
        assert!(absent.contains("get it with `antiphon models pull m`"), "{absent}");
        put(&config, "voices/a.bin", "aa");
        put(&config, "m.onnx", "1234");
        put(&config, "voices/b.bin.part", "b");
        assert_eq!(on_disk(&config, wanted.entry, wanted.variant()), OnDisk::Partly { bytes: 7 });
        assert!(matches!(locate(&config, wanted), Err(RegistryError::Absent { .. })));
        put(&config, "voices/b.bin", "bb");
        let found = locate(&config, wanted).unwrap();
        assert_eq!((found.precision.as_str(), found.bytes), ("fp32", 8));
        assert!(found.main_file().unwrap().ends_with("m/m.onnx"));
        assert_eq!(found.files("voice").count(), 2);
        assert!(matches!(locate(&config, catalog.find("m:fp16").unwrap()), Err(RegistryError::Absent { .. })));
    }

    #[test]
    fn the_main_file_of_a_speech_language_model_is_the_language_model() {
        let catalog = Catalog::load(&ModelsConfig::default()).unwrap();
        let speech = catalog.entries().iter().filter(|entry| entry.family == "speechlm");
        let variants: Vec<_> = speech.flat_map(|entry| entry.variants.iter().map(move |of| (entry, of))).collect();
        assert!(variants.len() >= 10);
        for (entry, variant) in variants {
            let name = entry.name.clone();
            let family = entry.family.clone();
            let precision = variant.precision.clone();
            let files = variant.files.iter().map(|file| (file.role.clone(), file.path.clone().into())).collect();
            let found = LocatedModel { name, family, precision, folder: PathBuf::new(), bytes: 0, files };
            let main = found.main_file().unwrap().to_str().unwrap();
            assert!(main.starts_with("onnx/language_model") && main.ends_with(".onnx"), "{main}");
            // Each graph has its weights beside it, under the name that it refers to.
            for role in ["decode", "embed", "condition", "vocode"] {
                let weights = PathBuf::from(format!("{}_data", found.file(role).unwrap().display()));
                assert!(found.files("weights").any(|path| path == weights), "{}: {weights:?}", entry.name);
            }
            assert_eq!((found.files("weights").count(), found.files("tokenizer").count()), (4, 1), "{}", entry.name);
        }
    }

    #[test]
    fn a_file_that_lost_its_end_is_told() {
        let (_dir, config, catalog) = fixture();
        for (path, text) in [("voices/a.bin", "aa"), ("voices/b.bin", "bb"), ("m.onnx", "123"), ("m16.onnx", "123")] {
            put(&config, path, text);
        }
        let said = locate(&config, catalog.find("m:fp32").unwrap()).unwrap_err().to_string();
        assert!(said.contains("m.onnx: it has 3 bytes and should have 4; pull the model again"), "{said}");
        // If the registry does not know the size of a file, the receipt does.
        let fp16 = catalog.find("m:fp16").unwrap();
        assert!(locate(&config, fp16).is_ok());
        put(&config, RECEIPT, r#"{"files":{"m16.onnx":{"bytes":9,"sha256":""}}}"#);
        assert!(matches!(locate(&config, fp16), Err(RegistryError::Damaged { .. })));
    }

    #[test]
    fn one_precision_goes_alone_and_the_last_one_takes_the_folder() {
        let (_dir, config, catalog) = fixture();
        for (path, text) in [("voices/a.bin", "aa"), ("voices/b.bin", "bb"), ("m.onnx", "1234"), ("m16.onnx", "123")] {
            put(&config, path, text);
        }
        assert_eq!(remove(&config, catalog.find("m:fp16").unwrap()).unwrap(), 3);
        assert!(locate(&config, catalog.find("m:fp32").unwrap()).is_ok());
        assert_eq!(remove(&config, catalog.find("m:fp32").unwrap()).unwrap(), 8 + receipt_len(0));
        assert!(!config.folder("m").exists());
        assert!(matches!(remove(&config, catalog.find("m").unwrap()), Err(RegistryError::Absent { .. })));
    }

    #[test]
    fn one_precision_leaves_what_another_has_begun() {
        let (_dir, config, catalog) = fixture();
        put(&config, "voices/a.bin", "aa");
        put(&config, "m.onnx.part", "123");
        let said = remove(&config, catalog.find("m:fp16").unwrap()).unwrap_err().to_string();
        assert!(said.contains("m:fp16 is not in"), "{said}");
        put(&config, "m16.onnx.part", "12345");
        put(&config, "m16.onnx.part.tag", "\"x\"");
        assert_eq!(remove(&config, catalog.find("m:fp16").unwrap()).unwrap(), 8);
        assert!(config.folder("m").join("m.onnx.part").exists() && config.folder("m").join("voices/a.bin").exists());
        assert!(!config.folder("m").join("m16.onnx.part.tag").exists());
    }

    /// Length of the receipt written by the first removal.
    fn receipt_len(n_files: usize) -> u64 {
        assert_eq!(n_files, 0);
        serde_json::to_vec_pretty(&Receipt::default()).unwrap().len() as u64
    }
}
