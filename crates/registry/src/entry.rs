//! Registry entries: models, variants and files.

use super::checksum::Sum;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fmt;

/// Maximum length of a model or file name in bytes; with a folder before it, every file system accepts it.
const MAX_NAME: usize = 100;
/// The largest file that may be registered.
const MAX_FILE_BYTES: u64 = 1_000_000 * MB;
const MB: u64 = 1_000_000;
/// Bound for a file of unregistered size: this factor of its approximate size, plus [`SIZE_SLACK`].
const SIZE_FACTOR: u64 = 2;
const SIZE_SLACK: u64 = 16 << 20;
/// What the names of archives end in.
const ARCHIVES: [&str; 4] = [".tar.bz2", ".tbz2", ".tar.gz", ".tgz"];

/// The stage a model serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Stage {
    /// Voice activity detection.
    Vad,
    /// Turn-taking.
    Turn,
    /// Speech to text.
    Stt,
    /// Text to speech.
    Tts,
}

impl fmt::Display for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Vad => "vad",
            Self::Turn => "turn",
            Self::Stt => "stt",
            Self::Tts => "tts",
        })
    }
}

/// A model in the registry.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    /// Name in settings, and of its folder below `models.dir`.
    pub name: String,
    /// The stage it serves.
    pub stage: Stage,
    /// The engine that runs it.
    pub family: String,
    /// Display name.
    pub title: String,
    /// The Python package that holds its files, with the version, where they have no addresses of their own.
    pub package: Option<String>,
    /// Licence of the weights.
    pub licence: String,
    /// ISO 639-1 codes of its languages; empty: many.
    pub languages: Vec<String>,
    /// Sampling rate of its input or output audio, in Hz.
    pub rate_hz: u32,
    /// Priority for `engine = "auto"`, which selects the highest; 0: never selected.
    pub auto: u32,
    /// Processor time of one core for what a conversation waits for, in milliseconds: the transcript of an utterance of 2.8 s, the
    /// first sound of a clause of 2 s. `None`: not known, and the model is not offered.
    pub core_ms: Option<u32>,
    /// Short description, one or two sentences.
    pub note: String,
    /// Its precisions, default first. Never empty.
    pub variants: Vec<Variant>,
}

/// A model in one precision.
#[derive(Clone, Debug, PartialEq)]
pub struct Variant {
    /// Name of the precision, such as `fp16`.
    pub precision: String,
    /// The archive that all its files are published in, where they have no addresses of their own.
    pub archive: Option<FileEntry>,
    /// All files it needs, including those shared with other precisions.
    pub files: Vec<FileEntry>,
}

/// A file of a model.
#[derive(Clone, Debug, PartialEq)]
pub struct FileEntry {
    /// Role of the file for the engine.
    pub role: String,
    /// Path in the model's folder, with `/` as separator.
    pub path: String,
    /// Download address, of a member that of its archive; empty: the model was imported.
    pub address: String,
    /// Path in the variant's archive, where there is one.
    pub member: Option<String>,
    /// Exact size in bytes, if known.
    pub bytes: Option<u64>,
    /// Size in bytes, approximate if the exact size is unknown.
    pub about_bytes: u64,
    /// Published checksum; `None` if there is none.
    pub sum: Option<Sum>,
    /// Checksum of the same weights where `antiphon models import` converted them from another form.
    pub converted: Option<Sum>,
}

impl FileEntry {
    /// The checksums that the file may have; none where none is known.
    pub(super) fn sums(&self) -> impl Iterator<Item = &Sum> {
        self.sum.iter().chain(&self.converted)
    }

    /// Whether a file of this size may be it.
    pub fn fits(&self, bytes: u64) -> bool {
        self.bytes
            .map_or(bytes >= self.least_bytes() && bytes <= self.about_bytes.saturating_mul(2), |exact| exact == bytes)
    }

    /// The most bytes that the file may have.
    pub(super) fn most_bytes(&self) -> u64 {
        self.bytes.unwrap_or(self.about_bytes.saturating_mul(SIZE_FACTOR).saturating_add(SIZE_SLACK))
    }

    /// The fewest bytes that the file may have. One of which only the size in megabytes is registered has at least half of that, or
    /// any size where it is 1: smaller files are registered with 1.
    pub(super) fn least_bytes(&self) -> u64 {
        match self.bytes {
            Some(bytes) => bytes,
            None if self.about_bytes <= MB => 1,
            None => self.about_bytes / 2,
        }
    }
}

impl Entry {
    /// Whether it came from an operator's files: its files have no addresses, and no package is known to hold them.
    pub fn is_imported(&self) -> bool {
        self.package.is_none()
            && self.variants.iter().flat_map(|variant| &variant.files).all(|file| file.address.is_empty())
    }

    /// Whether its files have addresses, so that it can be pulled.
    pub fn is_pulled(&self) -> bool {
        self.variants.iter().flat_map(|variant| &variant.files).all(|file| !file.address.is_empty())
    }

    /// The variant of this precision; the default variant if none is given.
    pub fn variant(&self, precision: Option<&str>) -> Option<&Variant> {
        match precision {
            Some(precision) => self.variants.iter().find(|variant| variant.precision == precision),
            None => self.variants.first(),
        }
    }

    /// Whether it may be used for speech in `language` (two letters; `None`: unknown).
    pub fn speaks(&self, language: Option<&str>) -> bool {
        language.is_none_or(|code| self.languages.is_empty() || self.languages.iter().any(|known| known == code))
    }
}

impl Variant {
    /// Size on disk in bytes, and approximately in memory, because weights are nearly all of it.
    pub fn about_bytes(&self) -> u64 {
        self.files.iter().fold(0, |sum: u64, file| sum.saturating_add(file.about_bytes))
    }

    /// Whether the sizes of all files are exact.
    pub fn is_exact(&self) -> bool {
        self.files.iter().all(|file| file.bytes.is_some())
    }

    /// Number of files without a published checksum: of their own, or of their archive.
    pub fn n_unchecked(&self) -> usize {
        if self.archive.as_ref().is_some_and(|archive| archive.sum.is_some()) {
            return 0;
        }
        self.files.iter().filter(|file| file.sum.is_none()).count()
    }
}

/// A `[[model]]` table of the registry file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Raw {
    pub(super) name: String,
    stage: Stage,
    family: String,
    title: String,
    #[serde(default)]
    base: String,
    package: Option<String>,
    licence: String,
    languages: Vec<String>,
    rate_hz: u32,
    #[serde(default)]
    auto: u32,
    core_ms: Option<u32>,
    #[serde(default)]
    note: String,
    #[serde(default)]
    files: Vec<RawFile>,
    variant: Vec<RawVariant>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawVariant {
    precision: String,
    archive: Option<RawFile>,
    files: Vec<RawFile>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawFile {
    role: String,
    path: String,
    from: Option<String>,
    #[serde(default)]
    each: Vec<String>,
    bytes: Option<u64>,
    about_mb: Option<u64>,
    sha256: Option<String>,
    sha1: Option<String>,
    converted_sha256: Option<String>,
}

impl Raw {
    /// Validates the table and returns the entry.
    pub(super) fn check(self) -> Result<Entry, String> {
        if !is_name(&self.name) {
            return Err("a name is made of letters, digits and -._ and does not begin with one of these".into());
        }
        let is_address =
            (self.base.starts_with("https://") || self.base.starts_with("http://")) && self.base.ends_with('/');
        // An imported model has none.
        if !is_address && !self.base.is_empty() {
            return Err(format!("base = {:?}: write an address that ends in /", self.base));
        }
        if self.variant.is_empty() {
            return Err("there is no [[model.variant]]".into());
        }
        if let Some(code) = self.languages.iter().find(|code| !is_language(code)) {
            return Err(format!("languages: {code:?} is not two letters"));
        }
        let common = files(&self.base, &self.files)?;
        let mut variants = Vec::new();
        for raw in &self.variant {
            if !is_name(&raw.precision) {
                return Err(format!("precision = {:?} is not a valid name", raw.precision));
            }
            let mut all = files(&self.base, &raw.files)?;
            all.extend(common.iter().cloned());
            let archive = raw.archive.as_ref().map(|raw| archive(&self.base, raw)).transpose()?;
            if let Some(archive) = &archive {
                let named = raw.files.iter().chain(&self.files);
                all = members(archive, named)?;
            }
            let paths: BTreeSet<_> = all.iter().map(|file| file.path.as_str()).collect();
            if paths.len() != all.len() || all.is_empty() {
                return Err(format!("precision {}: no file, or two of the same path", raw.precision));
            }
            variants.push(Variant { precision: raw.precision.clone(), archive, files: all });
        }
        let Self { name, stage, family, title, package, licence, languages, rate_hz, auto, core_ms, note, .. } = self;
        Ok(Entry { name, stage, family, title, package, licence, languages, rate_hz, auto, core_ms, note, variants })
    }
}

fn files(base: &str, raw: &[RawFile]) -> Result<Vec<FileEntry>, String> {
    let mut files = Vec::new();
    for file in raw {
        let wrong = |why: &str| format!("file {:?}: {why}", file.path);
        let from = file.from.as_ref().unwrap_or(&file.path);
        if file.each.is_empty() == file.path.contains('*') || file.path.contains('*') != from.contains('*') {
            return Err(wrong("`*` and `each` need one another"));
        }
        let sum = Sum::read(file.sha256.as_deref(), file.sha1.as_deref()).map_err(|why| wrong(&why))?;
        let converted = Sum::read(file.converted_sha256.as_deref(), None).map_err(|why| wrong(&why))?;
        if (sum.is_some() || converted.is_some()) && !file.each.is_empty() {
            return Err(wrong("several files cannot have one checksum"));
        }
        let about_bytes = match (file.bytes, file.about_mb) {
            (Some(bytes), None) => bytes,
            (None, Some(mb)) => mb.saturating_mul(MB),
            _ => return Err(wrong("write bytes or about_mb")),
        };
        if !(1..=MAX_FILE_BYTES).contains(&about_bytes) {
            return Err(wrong("its size is 0, or more than 1 TB"));
        }
        let names = if file.each.is_empty() { vec![String::new()] } else { file.each.clone() };
        for name in names {
            let path = file.path.replace('*', &name);
            if !path.split('/').all(is_name)
                || path.ends_with(".part")
                || [super::disk::RECEIPT, super::install::OWN_ENTRY].contains(&path.as_str())
            {
                return Err(format!("file {path:?}: a path is made of names with / between them"));
            }
            let address = if base.is_empty() { String::new() } else { format!("{base}{}", from.replace('*', &name)) };
            let role = file.role.clone();
            files.push(FileEntry {
                role,
                path,
                address,
                member: None,
                bytes: file.bytes,
                about_bytes,
                sum: sum.clone(),
                converted: converted.clone(),
            });
        }
    }
    Ok(files)
}

/// The archive of a variant.
fn archive(base: &str, raw: &RawFile) -> Result<FileEntry, String> {
    let mut archives = files(base, std::slice::from_ref(raw))?;
    let archive = archives.pop().filter(|archive| archives.is_empty() && stem(&archive.path).is_some());
    let archive = archive.filter(|archive| !archive.path.contains('/') && !archive.address.is_empty());
    archive.ok_or_else(|| format!("archive {:?}: write one name that ends in {}", raw.path, ARCHIVES.join(", ")))
}

/// The files of a variant that are members of its archive: at `from`, or under their names in its only folder, which
/// has the archive's name.
fn members<'a>(archive: &FileEntry, raw: impl Iterator<Item = &'a RawFile>) -> Result<Vec<FileEntry>, String> {
    let mut all = Vec::new();
    let folder = stem(&archive.path).unwrap_or_default();
    for raw in raw {
        if !raw.each.is_empty() {
            return Err(format!("file {:?}: `each` does not go with an archive", raw.path));
        }
        for file in files("", std::slice::from_ref(raw))? {
            let name = file.path.rsplit('/').next().unwrap_or_default();
            let member = raw.from.clone().unwrap_or_else(|| format!("{folder}/{name}"));
            all.push(FileEntry { address: archive.address.clone(), member: Some(member), ..file });
        }
    }
    Ok(all)
}

/// An archive's name without its ending.
fn stem(name: &str) -> Option<&str> {
    ARCHIVES.iter().find_map(|ending| name.strip_suffix(ending))
}

/// Whether the text is a valid file name on every system and cannot escape its folder.
pub(super) fn is_name(name: &str) -> bool {
    name.len() <= MAX_NAME
        && name.starts_with(|c: char| c.is_ascii_alphanumeric())
        && name.chars().all(|c| c.is_ascii_alphanumeric() || "-._".contains(c))
}

fn is_language(code: &str) -> bool {
    code.len() == 2 && code.bytes().all(|b| b.is_ascii_lowercase())
}
