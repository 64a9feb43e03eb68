//! The model's files: where they are, and whether they are complete.
//!
//! PocketSphinx maps its model files and trusts them: with a truncated file it ends the process, reads past the end, or
//! recognizes nonsense. So every file is compared with the known model's size and SHA-256 before the library sees it.
//! Called once at start, by `Sphinx::open`; it reads about 37 MB.

use super::library::INSTALL;
use antiphon_engine_api::stt::SttError;
use sha2::{Digest, Sha256};
use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::{Path, PathBuf};

/// Where Debian's `pocketsphinx-en-us` puts the model.
const DEBIAN: &str = "/usr/share/pocketsphinx/model/en-us";

/// Path inside the folder, bytes, SHA-256: the en-us 5.2 model as Debian ships it (pocketsphinx-en-us 0.8+5prealpha).
const FILES: [(&str, u64, &str); 9] = [
    ("cmudict-en-us.dict", 3_272_051, "9de99dd2a24b63c653c1c30ab39388d05185cae36d0875f15c319b4ad6dc43af"),
    ("en-us.lm.bin", 27_114_385, "db21d0642286677699e6dbc859d2e5395570222361999387ce60f6e1d01995d6"),
    ("en-us/feat.params", 230, "9f8058c107ebbc42abef6d39c67c6aedbcf60ac371332e550994e12a0392cb02"),
    ("en-us/mdef", 2_959_176, "2360f9a86889c1cfee8bd618a0269387911e5fb2920a594f506b18b8c79683b0"),
    ("en-us/means", 838_732, "832019e32cac12eb318964f96f469034acb12d0348eeddc3831831a100cb4dd4"),
    ("en-us/noisedict", 56, "7295b07df2c204c4f87c6782b6be1a3859d7006d4e3864181c955d6dab105a33"),
    ("en-us/sendump", 1_969_024, "8c9564c0d5bef69ca9d9bf1014abe162f071644cf02cf1fa8a483c3dc165a7a8"),
    ("en-us/transition_matrices", 2_080, "c1f7f28ea43177be734be1f88bd7f1b9a853d0e660f8599c67c6eaeca8bb539a"),
    ("en-us/variances", 838_732, "b00d696f85e96834fc10f8e5f06428d8c4db6bffdbe5845b6f69bf6efbc48fa5"),
];

/// A model's place. Cheap to clone.
#[derive(Clone, Debug)]
pub(super) struct Model(PathBuf);

impl Model {
    /// The model in `folder`, unchecked; empty means Debian's.
    pub(super) fn at(folder: &str) -> Self {
        Self(PathBuf::from(if folder.is_empty() { DEBIAN } else { folder }))
    }

    /// Compares all files with the known ones. Blocks while they are read. PocketSphinx must not see the model before.
    pub(super) fn check(&self) -> Result<(), SttError> {
        for (file, n_bytes, sha256) in FILES {
            check_file(&self.0.join(file), n_bytes, sha256).map_err(SttError::Unavailable)?;
        }
        Ok(())
    }

    /// The acoustic model's folder.
    pub(super) fn acoustic(&self) -> PathBuf {
        self.0.join("en-us")
    }

    /// The 3-gram language model.
    pub(super) fn language(&self) -> PathBuf {
        self.0.join("en-us.lm.bin")
    }

    /// The pronouncing dictionary: a word and its phones a line.
    pub(super) fn dictionary(&self) -> PathBuf {
        self.0.join("cmudict-en-us.dict")
    }
}

fn check_file(path: &Path, n_bytes: u64, sha256: &str) -> Result<(), String> {
    let shown = path.display();
    let file = File::open(path).map_err(|cause| match cause.kind() {
        io::ErrorKind::NotFound => {
            format!("the speech recognition model lacks {shown}; install it with {INSTALL}")
        }
        _ => format!("the speech recognition model's {shown} cannot be read: {cause}"),
    })?;
    let found = file.metadata().map_err(|cause| format!("{shown} cannot be read: {cause}"))?.len();
    if found != n_bytes {
        return Err(format!(
            "the speech recognition model is damaged: {shown} has {found} bytes instead of {n_bytes}; \
             install it again with `apt-get install --reinstall pocketsphinx-en-us`"
        ));
    }
    let found = hash(file).map_err(|cause| format!("{shown} cannot be read: {cause}"))?;
    if found != sha256 {
        return Err(format!(
            "the speech recognition model is damaged, or another one: {shown} differs from Debian's; \
             install it again with `apt-get install --reinstall pocketsphinx-en-us`"
        ));
    }
    Ok(())
}

fn hash(file: File) -> io::Result<String> {
    let mut reader = BufReader::with_capacity(1 << 16, file);
    let mut hasher = Sha256::new();
    let mut block = vec![0; 1 << 16];
    loop {
        match reader.read(&mut block)? {
            0 => break,
            n => hasher.update(&block[..n]),
        }
    }
    Ok(hasher.finalize().iter().map(|byte| format!("{byte:02x}")).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    const ABC: &str = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";

    #[test]
    fn a_missing_a_short_and_a_changed_file_are_told_apart() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("abc");
        let check = || check_file(&path, 3, ABC).err().unwrap_or_default();
        assert!(check().contains("lacks") && check().contains("apt-get install"));
        fs::write(&path, "ab").unwrap();
        assert!(check().contains("2 bytes instead of 3"), "{}", check());
        fs::write(&path, "abd").unwrap();
        assert!(check().contains("differs"), "{}", check());
        fs::write(&path, "abc").unwrap();
        assert_eq!(check(), "");
    }

    #[test]
    fn an_empty_folder_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let error = Model::at(folder.path().to_str().unwrap()).check().unwrap_err();
        assert!(error.to_string().contains("cmudict-en-us.dict"), "{error}");
    }
}
