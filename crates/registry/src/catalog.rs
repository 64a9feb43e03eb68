//! The catalog of models: the built-in registry, and the entries of a user's registry file.

use super::entry::{Raw, is_name};
use super::install::OWN_ENTRY;
use super::{Entry, ModelsConfig, RegistryError, Variant};
use serde::Deserialize;
use std::io::Read;
use std::path::Path;
use strsim::levenshtein;

/// The text of `models/registry.toml`, built into the binary.
pub const BUILT_IN: &str = include_str!("../../../models/registry.toml");

/// Largest edit distance of a suggested name.
const NEAR: usize = 3;

/// The largest description of an imported model; a usual one has 1 kB.
const MAX_OWN_ENTRY_BYTES: u64 = 64 << 10;

/// Models by name.
#[derive(Clone, Debug)]
pub struct Catalog(Vec<Entry>);

/// A model as written in settings: `kokoro`, or `kokoro:fp16`.
#[derive(Clone, Copy, Debug)]
pub struct ModelRequest<'a> {
    /// The model.
    pub entry: &'a Entry,
    /// The precision, if one was given.
    pub precision: Option<&'a str>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    model: Vec<Raw>,
}

impl Catalog {
    /// The built-in models and the imported ones, overridden by those of `models.registry`. Blocks while it reads a small file, and
    /// one for each imported model. An imported model whose file is damaged is left out, and the log says so.
    pub fn load(config: &ModelsConfig) -> Result<Self, RegistryError> {
        let mut catalog = Self::read("the built-in registry", BUILT_IN)?;
        for entry in imported(Path::new(&config.dir)) {
            if catalog.0.iter().all(|known| known.name != entry.name) {
                catalog.0.push(entry);
            }
        }
        if config.registry.is_empty() {
            return Ok(catalog);
        }
        let path = Path::new(&config.registry);
        let text =
            std::fs::read_to_string(path).map_err(RegistryError::disk(path, "models.registry cannot be read"))?;
        for entry in Self::read(&config.registry, &text)?.0 {
            match catalog.0.iter_mut().find(|known| known.name == entry.name) {
                Some(known) => *known = entry,
                None => catalog.0.push(entry),
            }
        }
        Ok(catalog)
    }

    /// Parses the text of a registry file; `place` names the file in errors.
    pub fn read(place: &str, text: &str) -> Result<Self, RegistryError> {
        let wrong = |message: String| RegistryError::Catalog { place: place.into(), message };
        let file: File = toml::from_str(text).map_err(|error| wrong(error.to_string().trim_end().to_owned()))?;
        let mut entries: Vec<Entry> = Vec::new();
        for raw in file.model {
            let name = raw.name.clone();
            let entry = raw.check().map_err(|why| wrong(format!("model {name:?}: {why}")))?;
            if entries.iter().any(|known| known.name == entry.name) {
                return Err(wrong(format!("model {name:?} is defined twice")));
            }
            entries.push(entry);
        }
        Ok(Self(entries))
    }

    /// All models, in the file's order.
    pub fn entries(&self) -> &[Entry] {
        &self.0
    }

    /// The model named by `text`, with or without a precision.
    pub fn find<'a>(&'a self, text: &'a str) -> Result<ModelRequest<'a>, RegistryError> {
        let (name, precision) = match text.split_once(':') {
            Some((name, precision)) => (name, Some(precision)),
            None => (text, None),
        };
        let Some(entry) = self.0.iter().find(|entry| entry.name == name) else {
            let near = if is_name(name) { self.near(name) } else { None };
            return Err(RegistryError::Unknown { name: name.chars().take(60).collect(), near });
        };
        if let Some(precision) = precision {
            entry.variant(Some(precision)).ok_or_else(|| RegistryError::NoPrecision {
                name: name.into(),
                precision: precision.chars().take(60).collect(),
                has: entry.variants.iter().map(|variant| variant.precision.clone()).collect(),
            })?;
        }
        Ok(ModelRequest { entry, precision })
    }

    /// A similar name to suggest: one that contains `name`, or one within the edit distance.
    fn near(&self, name: &str) -> Option<String> {
        let names = || self.0.iter().map(|entry| entry.name.as_str());
        let part = names().find(|known| name.len() > 2 && known.contains(name));
        let off = || names().map(|known| (levenshtein(known, name), known)).filter(|(n, _)| *n <= NEAR).min();
        part.or_else(|| off().map(|(_, known)| known)).map(str::to_owned)
    }
}

/// The entries of imported models, by the names of their folders.
fn imported(dir: &Path) -> Vec<Entry> {
    let mut folders: Vec<_> =
        std::fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.path()).collect();
    folders.sort();
    let mut entries = Vec::new();
    for folder in folders {
        let path = folder.join(OWN_ENTRY);
        let Ok(file) = std::fs::File::open(&path) else { continue };
        let mut text = String::new();
        let read = file.take(MAX_OWN_ENTRY_BYTES).read_to_string(&mut text);
        let read = read.map_err(|error| error.to_string());
        let catalog = read.and_then(|_| Catalog::read("", &text).map_err(|error| error.to_string()));
        match catalog {
            Ok(Catalog(own)) if own.len() == 1 && folder.file_name().is_some_and(|name| *name == *own[0].name) => {
                entries.extend(own);
            }
            Ok(_) => {
                tracing::warn!(file = %path.display(), "an imported model is left out: its file describes another")
            }
            Err(error) => tracing::warn!(file = %path.display(), %error, "an imported model is left out"),
        }
    }
    entries
}

impl<'a> ModelRequest<'a> {
    /// The variant of the given precision, or the default variant.
    pub fn variant(&self) -> &'a Variant {
        self.entry.variant(self.precision).expect("find looked for it")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Stage, Sum};
    use std::collections::BTreeSet;

    fn built_in() -> Catalog {
        Catalog::load(&ModelsConfig::default()).unwrap()
    }

    #[test]
    fn the_built_in_registry_has_what_was_promised() {
        let catalog = built_in();
        let whisper = ["tiny", "tiny.en", "base", "base.en", "small", "small.en", "large-v3-turbo"];
        for name in whisper.map(|size| format!("whisper-{size}")) {
            let ModelRequest { entry, .. } = catalog.find(&name).unwrap();
            assert_eq!((entry.stage, entry.family.as_str()), (Stage::Stt, "whisper"));
            assert!(entry.variants.len() >= 2 && entry.variants.iter().all(|v| v.n_unchecked() == 0), "{name}");
            assert_eq!(entry.languages == ["en"], name.ends_with(".en"), "{name}");
        }
        for precision in ["fp32", "fp16", "int8"] {
            let text = format!("kokoro:{precision}");
            let variant = catalog.find(&text).unwrap().variant();
            assert_eq!(variant.files.iter().filter(|file| file.role == "voice").count(), 41);
            assert_eq!(variant.files.iter().filter(|file| file.role == "graph").count(), 1);
        }
        let piper: Vec<_> = catalog.entries().iter().filter(|entry| entry.family == "piper").collect();
        let languages: BTreeSet<_> = piper.iter().flat_map(|entry| &entry.languages).collect();
        assert!(piper.len() >= 6 && languages.len() >= 4, "{languages:?}");
        for entry in piper {
            let roles: Vec<_> = entry.variants[0].files.iter().map(|file| file.role.as_str()).collect();
            // A package has no card: the entry's licence says what one would.
            let n = if entry.package.is_some() { 2 } else { 3 };
            assert_eq!(roles, ["graph", "config", "card"][..n], "{}", entry.name);
            assert!(entry.variants[0].files[1].path.ends_with("medium.onnx.json"), "{}", entry.name);
        }
        assert_eq!(catalog.find("silero-vad").unwrap().entry.stage, Stage::Vad);
        assert_eq!(catalog.find("smart-turn-v3").unwrap().entry.stage, Stage::Turn);
    }

    #[test]
    fn every_entry_is_whole_and_no_two_ranks_of_a_stage_are_the_same() {
        let mut ranks = BTreeSet::new();
        for entry in built_in().entries() {
            assert!(!entry.note.is_empty() && !entry.licence.is_empty() && entry.rate_hz >= 16_000, "{}", entry.name);
            // A turn model is never selected or offered automatically, no voice that needs a recording, and no recognizer that was
            // not measured.
            let is_named_only =
                entry.stage == Stage::Turn || ["speechlm", "transducer"].contains(&entry.family.as_str());
            let is_named = is_named_only && entry.auto == 0 && entry.core_ms.is_none();
            let is_ranked = entry.auto > 0 && ranks.insert((entry.stage, entry.auto));
            assert!(is_named || is_ranked, "{}: rank {}", entry.name, entry.auto);
            for file in entry.variants.iter().flat_map(|variant| &variant.files) {
                let is_address =
                    file.address.starts_with("https://") && file.address.ends_with(|c: char| c.is_alphanumeric());
                // A package's version is pinned, and each file's bytes.
                let is_packed = entry.package.as_ref().is_some_and(|package| package.contains("=="))
                    && file.address.is_empty()
                    && matches!(file.sum, Some(Sum::Sha256(_)));
                assert!(is_address || is_packed, "{}: {}", entry.name, file.path);
                assert!(file.about_bytes > 0, "{}", file.path);
            }
        }
    }

    #[track_caller]
    fn refused(change: (&str, &str), expect: &str) {
        let good = r#"
            [[model]]
            name = "m"
            stage = "tts"
            family = "piper"
            title = "M"
            base = "http://h/"
            licence = "MIT"
            languages = ["en"]
            rate_hz = 16000
            [[model.variant]]
            precision = "fp32"
            files = [{ role = "graph", path = "a.onnx", bytes = 3 }]
        "#;
        Catalog::read("own.toml", good).expect("this one is right");
        assert!(good.contains(change.0), "{change:?}");
        let said = Catalog::read("own.toml", &good.replace(change.0, change.1)).expect_err("refused").to_string();
        assert!(said.starts_with("own.toml: ") && said.contains(expect), "{said}");
    }

    #[test]
    fn what_is_wrong_in_an_own_file_is_named() {
        refused(("name = \"m\"", "name = \"../m\""), "a name is made of letters");
        refused(("\"a.onnx\"", "\"../../a.onnx\""), "a path is made of names");
        refused(("\"a.onnx\"", "\"a.part\""), "a path is made of names");
        refused(("http://h/", "file:///etc/"), "write an address that ends in /");
        refused(("\"en\"", "\"english\""), "is not two letters");
        refused(("bytes = 3", "bytes = 3, sha256 = \"abc\""), "sha256 needs 64 hex digits");
        refused(("bytes = 3", "each = [\"a\"], bytes = 3"), "need one another");
        refused(("bytes = 3", "size = 3"), "unknown field `size`");
        refused(("stage = \"tts\"", "stage = \"llm\""), "unknown variant `llm`");
    }

    #[test]
    fn an_own_file_adds_and_replaces() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("own.toml");
        let own = BUILT_IN.replace("title = \"Whisper tiny\"", "title = \"Ours\"").replace("\"kokoro\"", "\"ours\"");
        std::fs::write(&path, own).unwrap();
        let config = ModelsConfig { registry: path.to_str().unwrap().into(), ..ModelsConfig::default() };
        let catalog = Catalog::load(&config).unwrap();
        assert_eq!(catalog.entries().len(), built_in().entries().len() + 1);
        assert_eq!(catalog.find("whisper-tiny").unwrap().entry.title, "Ours");
        assert_eq!(catalog.find("ours:fp16").unwrap().variant().precision, "fp16");
        let missing = ModelsConfig { registry: "nowhere.toml".into(), ..ModelsConfig::default() };
        assert!(Catalog::load(&missing).unwrap_err().to_string().contains("nowhere.toml"));
    }

    #[test]
    fn a_name_that_is_none_is_told_with_one_that_is() {
        let catalog = built_in();
        let said = |text: &str| catalog.find(text).expect_err("refused").to_string();
        assert!(said("whisper-tinny").contains("did you mean \"whisper-tiny\"?"));
        assert!(said("lessac").contains("did you mean \"piper-en_US-lessac-medium\"?"));
        assert!(said("../../etc/passwd").starts_with("there is no model \"../../etc/passwd\"; `antiphon models list`"));
        assert!(said("kokoro:fp8").contains("kokoro has no precision \"fp8\"; it has fp32, fp16, int8"));
    }
}
