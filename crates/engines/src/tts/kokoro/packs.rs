//! Kokoro's voices: packs of styles, read from `.bin` files (one voice each) or NumPy archives (many), and mixed.
//!
//! A pack is `[n, 1, 256]` real numbers of 32 bits: a style for each length of text. The row is chosen by the number of
//! tokens without pads, as the published ONNX export has it; the last one where there are more. Made once and shared by all
//! replicas; nothing here runs a model.

use antiphon_engine_api::tts::TtsError;
use std::collections::BTreeMap;
use std::io::{Cursor, Read};
use std::path::{Path, PathBuf};

/// Numbers a style has.
pub(super) const STYLE: usize = 256;
/// A published voice has 510 or 511 rows; more than this is no voice.
const MAX_ROWS: usize = 4_096;
/// Voices in an archive at most; v1.0 has 54.
const MAX_VOICES: usize = 1_024;

/// Voices by name.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Packs(BTreeMap<String, Vec<f32>>);

impl Packs {
    /// The voices beside a model: in its folder and the one above, the files `voices*.bin` and `*.npz`, and each `.bin` in a
    /// folder `voices`. [`TtsError::Unavailable`] where there are none, or one cannot be read.
    pub(super) fn beside(model: &Path) -> Result<Self, TtsError> {
        let mut packs = Self::default();
        let own = model.parent().unwrap_or(Path::new(""));
        let own = if own.as_os_str().is_empty() { Path::new(".") } else { own };
        for folder in [Some(own), own.parent()].into_iter().flatten() {
            for path in
                files(folder, |name| name.ends_with(".npz") || name.starts_with("voices") && name.ends_with(".bin"))
            {
                packs.read(&path)?;
            }
            for path in files(&folder.join("voices"), |name| name.ends_with(".bin") || name.ends_with(".npz")) {
                packs.read(&path)?;
            }
            if !packs.0.is_empty() {
                return Ok(packs);
            }
        }
        Err(TtsError::Unavailable(format!(
            "the voices of {} are missing: put voices-v1.0.bin beside it, or a folder voices with .bin files",
            model.display()
        )))
    }

    /// Names, in order.
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }

    /// Leaves only the voices that `keep` wants.
    pub(super) fn retain(&mut self, keep: impl Fn(&str) -> bool) {
        self.0.retain(|name, _| keep(name));
    }

    /// The style for a text of `n_tokens`: the mixture of the voices' rows. All names are known.
    pub(super) fn style(&self, mix: &[(String, f32)], n_tokens: usize) -> Vec<f32> {
        let mut style = vec![0.0; STYLE];
        for (name, weight) in mix {
            let pack = &self.0[name];
            let row = n_tokens.min(pack.len() / STYLE - 1);
            for (sum, number) in style.iter_mut().zip(&pack[row * STYLE..]) {
                *sum += weight * number;
            }
        }
        style
    }

    fn read(&mut self, path: &Path) -> Result<(), TtsError> {
        let wrong = |why: String| TtsError::Unavailable(format!("the voices in {}: {why}", path.display()));
        let bytes = std::fs::read(path).map_err(|error| wrong(format!("cannot be read: {error}")))?;
        // A NumPy archive is a zip file, whatever its name ends with.
        if bytes.starts_with(b"PK") {
            return self.read_archive(bytes).map_err(wrong);
        }
        let name = path.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default();
        self.insert(name, &bytes).map_err(wrong)
    }

    fn read_archive(&mut self, bytes: Vec<u8>) -> Result<(), String> {
        let broken = |error: &dyn std::fmt::Display| format!("the archive is broken or cut off: {error}");
        let mut archive = zip::ZipArchive::new(Cursor::new(bytes)).map_err(|error| broken(&error))?;
        if archive.len() > MAX_VOICES {
            return Err(format!("{} entries are no voices of Kokoro's", archive.len()));
        }
        for i in 0..archive.len() {
            let entry = archive.by_index(i).map_err(|error| broken(&error))?;
            let name = entry.name().map_err(|error| broken(&error))?.into_owned();
            let Some(name) = name.strip_suffix(".npy").map(str::to_owned) else { continue };
            let mut array = Vec::new();
            let limit = (MAX_ROWS * STYLE * 4 + 4_096) as u64;
            entry.take(limit).read_to_end(&mut array).map_err(|error| broken(&error))?;
            let numbers = numbers_of(&array).map_err(|why| format!("{name}: {why}"))?;
            self.insert(name, numbers)?;
        }
        Ok(())
    }

    fn insert(&mut self, name: String, bytes: &[u8]) -> Result<(), String> {
        let (numbers, rest) = bytes.as_chunks::<4>();
        let rows = numbers.len() / STYLE;
        if !rest.is_empty() || !numbers.len().is_multiple_of(STYLE) || !(1..=MAX_ROWS).contains(&rows) {
            return Err(format!("{name}: {} bytes are no styles of {STYLE} numbers of 4 bytes", bytes.len()));
        }
        let numbers: Vec<f32> = numbers.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect();
        if !numbers.iter().all(|number| number.is_finite()) {
            return Err(format!("{name}: it holds what is no number"));
        }
        self.0.insert(name, numbers);
        Ok(())
    }
}

/// The files of a folder whose names match, in order; none where there is no such folder.
fn files(folder: &Path, matches: impl Fn(&str) -> bool) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let is_match =
        |path: &PathBuf| path.file_name().is_some_and(|name| matches(&name.to_string_lossy())) && path.is_file();
    let mut found: Vec<_> = entries.map(|entry| entry.path()).filter(is_match).collect();
    found.sort();
    found
}

/// The numbers of a `.npy` file (NumPy's format 1 to 3): magic, version, length of the header, header, data.
fn numbers_of(array: &[u8]) -> Result<&[u8], String> {
    let no_array = || "it is no NumPy array".to_owned();
    let rest = array.strip_prefix(b"\x93NUMPY").ok_or_else(no_array)?;
    let (version, rest) = rest.split_at_checked(2).ok_or_else(no_array)?;
    let width = if version[0] == 1 { 2 } else { 4 };
    let (length, rest) = rest.split_at_checked(width).ok_or_else(no_array)?;
    let length = length.iter().rev().fold(0_usize, |sum, byte| sum << 8 | usize::from(*byte));
    let (header, data) = rest.split_at_checked(length).ok_or_else(no_array)?;
    let header: String = String::from_utf8_lossy(header).split_whitespace().collect();
    if !header.contains("'descr':'<f4'") || !header.contains("'fortran_order':False") {
        return Err("it is no array of 32-bit numbers in C order".into());
    }
    Ok(data)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fixture(path: &str) -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/voices/kokoro").join(path)
    }

    #[test]
    fn voices_are_found_beside_the_model_in_both_forms() {
        let packs = Packs::beside(&fixture("model.onnx")).expect("voices");
        assert_eq!(packs.names().collect::<Vec<_>>(), ["af_nicole", "af_sky", "bm_george", "ef_dora", "jf_alpha"]);
        assert_eq!(packs.0["af_sky"].len(), 510 * STYLE);
        assert_eq!(packs.0["ef_dora"].len(), 4 * STYLE);
        // The published folder has the model one level below its voices.
        assert_eq!(Packs::beside(&fixture("onnx/model.onnx")).expect("voices"), packs);
    }

    #[test]
    fn the_row_is_the_number_of_tokens_and_voices_mix() {
        let packs = Packs::beside(&fixture("model.onnx")).expect("voices");
        let style = |mix: &[(&str, f32)], n| {
            let mix: Vec<_> = mix.iter().map(|(name, weight)| ((*name).to_owned(), *weight)).collect();
            packs.style(&mix, n)[..2].to_vec()
        };
        assert_eq!(style(&[("af_sky", 1.0)], 7), [0.2, 7.0]);
        assert_eq!(style(&[("ef_dora", 1.0)], 400), [0.25, 203.0]);
        let mixed = style(&[("af_sky", 0.25), ("af_nicole", 0.75)], 8);
        assert!((mixed[0] - 0.35).abs() < 1e-6 && (mixed[1] - 758.0).abs() < 1e-3, "{mixed:?}");
    }

    #[test]
    fn what_is_no_voice_is_refused() {
        let folder = tempfile::tempdir().expect("a folder");
        let model = folder.path().join("model.onnx");
        let said = || Packs::beside(&model).expect_err("refused").to_string();
        assert!(said().contains("put voices-v1.0.bin beside it"));
        let put = |bytes: &[u8]| std::fs::write(folder.path().join("voices.bin"), bytes).expect("written");
        put(&[0; 1_000]);
        assert!(said().contains("1000 bytes are no styles of 256 numbers"), "{}", said());
        put(&[0xff; 1_024]);
        assert!(said().contains("no number"), "{}", said());
        let whole = std::fs::read(fixture("voices-v1.0.bin")).expect("read");
        put(&whole[..whole.len() / 2]);
        assert!(said().contains("broken or cut off"), "{}", said());
        assert!(numbers_of(b"\x93NUMPY\x01\x00\xff\xff{}").is_err());
        assert!(numbers_of(b"\x93NUMPY\x01\x00\x02\x00{}").expect_err("f8").contains("32-bit"));
    }
}
