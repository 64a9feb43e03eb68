//! Finds out what model an operator's files are, and places it where the registry finds it.
//!
//! `antiphon models import` is the caller. Known are the registry's own files, Whisper models in CTranslate2's form (folders of
//! faster-whisper), which are converted, files of whisper.cpp, Piper voices and the Kokoro voice. Nothing is loaded or executed.

use antiphon_engines::stt::whisper::{Ct2Error, FasterWhisper, Sizes};
use antiphon_registry::{
    Brought, BroughtFile, Catalog, Entry, FileEntry, FileToPlace, ModelsConfig, RegistryError, Sum, Variant, install,
    sha256,
};
use serde::{Deserialize, Serialize};
use std::io::Read;
use std::path::{Path, PathBuf};

/// The largest settings file or model card that is read; a Piper voice's settings have 5 kB.
const MAX_TEXT_BYTES: u64 = 1 << 20;

/// Files of an incomplete model that are named in its error.
const MAX_LISTED: usize = 8;

/// What the files are.
#[derive(Debug)]
pub struct RecognizedFiles {
    /// One line for people: "Whisper base in CTranslate2's form, 16-bit weights are kept".
    pub what: String,
    form: Form,
}

#[derive(Debug)]
enum Form {
    /// A model of the registry in one precision, whose files these are.
    Registered(Box<Model>),
    Ct2Whisper {
        model: FasterWhisper,
        name: String,
    },
    Ggml {
        file: BroughtFile,
        name: String,
    },
    Piper {
        graph: BroughtFile,
        config: BroughtFile,
        card: Option<BroughtFile>,
        name: String,
    },
}

/// A model in one precision, and its files.
#[derive(Debug)]
struct Model {
    entry: Entry,
    variant: Variant,
    files: Vec<FileToPlace>,
    /// The text of its entry, where the registry does not name it.
    own_entry: Option<String>,
}

/// A model that was placed.
#[derive(Debug)]
pub struct ImportedModel {
    /// Its name.
    pub name: String,
    /// Its precision.
    pub precision: String,
    /// Its folder.
    pub folder: PathBuf,
    /// Size on the disk, in bytes.
    pub bytes: u64,
    /// The licence of its weights.
    pub licence: String,
    /// The registry names it, with a checksum of these bytes.
    pub is_registered: bool,
}

/// Why files cannot be imported.
#[derive(Debug, thiserror::Error)]
pub enum ImportError {
    /// The files are no model that is known.
    #[error(
        "{}: no model that the hub knows is there. It imports folders of faster-whisper (model.bin, vocabulary.txt), files of \
         whisper.cpp, Piper voices (NAME.onnx, NAME.onnx.json), Kokoro (a graph, voices/*.bin), and all files of a model of \
         `antiphon models list`", .0.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", ")
    )]
    Unknown(Vec<PathBuf>),
    /// Files of a model of the registry are missing or have another size.
    #[error("{model}, a model of the registry, is not complete: {}", listed(.problems))]
    Incomplete {
        /// Its title and precision.
        model: String,
        /// What is wrong with each file.
        problems: Vec<String>,
    },
    /// There are several models.
    #[error("there are several models: {}; name the folder or package of one", .0.join(", "))]
    Several(Vec<String>),
    /// The name cannot be that of an imported model.
    #[error("{0:?} is no name for an imported model: {1}; choose another with --name")]
    Name(String, &'static str),
    /// A Whisper model cannot be converted.
    #[error("{}: {source}", .path.display())]
    Convert {
        /// The model's file.
        path: PathBuf,
        /// What is wrong with it.
        source: Ct2Error,
    },
    /// A file cannot be read, or is not what it should be.
    #[error(transparent)]
    Registry(#[from] RegistryError),
}

/// Finds out what was brought. `name` is what the operator calls it, for a model that the registry does not name; else its
/// folder's or file's name. Blocks while it reads headers.
pub fn recognize(
    brought: &Brought,
    catalog: &Catalog,
    sources: &[PathBuf],
    name: Option<&str>,
) -> Result<RecognizedFiles, ImportError> {
    if let Some(found) = registered(brought, catalog) {
        return Ok(found);
    }
    let own_name = |stem: &str| name.map_or_else(|| as_name(stem), str::to_owned);
    if let (Some(model), Some(vocabulary)) =
        (brought.named("model.bin"), brought.named("vocabulary.txt").or_else(|| brought.named("vocabulary.json")))
    {
        let path = &model.path;
        let opened = FasterWhisper::open(path, &vocabulary.path)
            .map_err(|source| ImportError::Convert { path: path.clone(), source })?;
        let what = format!("{} in CTranslate2's form", described(opened.sizes()));
        let name = own_name(&stem_of(&sources[0]));
        return Ok(RecognizedFiles { what, form: Form::Ct2Whisper { model: opened, name } });
    }
    let pairs: Vec<_> = brought
        .files()
        .iter()
        .filter(|file| file.name.ends_with(".onnx"))
        .filter_map(|graph| Some((graph, brought.named(&format!("{}.json", graph.name))?)))
        .collect();
    if pairs.len() > 1 {
        return Err(ImportError::Several(pairs.iter().map(|(graph, _)| graph.name.clone()).collect()));
    }
    if let Some((graph, config)) = pairs.into_iter().next() {
        let stem = graph.name.trim_end_matches(".onnx");
        return Ok(RecognizedFiles {
            what: format!("the Piper voice {stem}"),
            form: Form::Piper {
                graph: graph.clone(),
                config: config.clone(),
                card: brought.named("MODEL_CARD").cloned(),
                name: own_name(&format!("piper-{stem}")),
            },
        });
    }
    if let Some(found) = kokoro(brought, catalog) {
        return Ok(found);
    }
    let ggml: Vec<_> =
        brought.files().iter().filter(|file| file.name.ends_with(".bin") && is_ggml(&file.path)).collect();
    match ggml.as_slice() {
        [] => Err(incomplete(brought, catalog).unwrap_or_else(|| ImportError::Unknown(sources.to_vec()))),
        [file] => {
            let stem = file.name.trim_end_matches(".bin").trim_start_matches("ggml-").to_owned();
            let form = Form::Ggml { file: (*file).clone(), name: own_name(&format!("whisper-{stem}")) };
            Ok(RecognizedFiles { what: "a Whisper model of whisper.cpp".into(), form })
        }
        several => Err(ImportError::Several(several.iter().map(|file| file.name.clone()).collect())),
    }
}

/// Converts where the form asks for it, and places the model. `progress` receives the share that is converted, 0 to 1. Blocks.
pub fn place(
    found: RecognizedFiles,
    brought: &mut Brought,
    config: &ModelsConfig,
    catalog: &Catalog,
    progress: impl FnMut(f32),
) -> Result<ImportedModel, ImportError> {
    let model = match found.form {
        Form::Registered(model) => *model,
        Form::Ct2Whisper { model, name } => {
            let (path, mut out) = brought.create("ggml.bin")?;
            model.write(&mut out, progress).map_err(|source| ImportError::Convert { path: path.clone(), source })?;
            drop(out);
            let checksum = sha256(&path)?;
            let file = FileToPlace { from: path.clone(), path: "ggml.bin".into(), may_move: true };
            if let Some(registered) = converted(catalog, &checksum, &file) {
                registered
            } else {
                whisper(catalog, &name, model.sizes(), file, &checksum)?
            }
        }
        Form::Ggml { file, name } => {
            let path = &file.path;
            let sizes = Sizes::of_file(path).map_err(|why| RegistryError::Foreign { path: path.clone(), why })?;
            let placed = FileToPlace { from: path.clone(), path: "ggml.bin".into(), may_move: file.is_staged };
            whisper(catalog, &name, &sizes, placed, &sha256(path)?)?
        }
        Form::Piper { graph, config, card, name } => piper(catalog, &name, &graph, &config, card.as_ref())?,
    };
    let Model { entry, variant, files, own_entry } = model;
    let bytes = install(config, &entry, &variant, &files, own_entry.as_deref())?;
    Ok(ImportedModel {
        folder: config.folder(&entry.name),
        precision: variant.precision,
        bytes,
        licence: entry.licence,
        is_registered: own_entry.is_none(),
        name: entry.name,
    })
}

/// The registry's model with the most files all of which were brought, by name and size.
fn registered(brought: &Brought, catalog: &Catalog) -> Option<RecognizedFiles> {
    let mut best: Option<Model> = None;
    for entry in catalog.entries() {
        for variant in &entry.variants {
            let files = variant.files.iter().map(|file| {
                let found = brought_as(brought, file)?;
                Some(FileToPlace { from: found.path.clone(), path: file.path.clone(), may_move: found.is_staged })
            });
            let Some(files) = files.collect::<Option<Vec<_>>>() else { continue };
            // A file that any folder may hold names no model.
            let is_sure = variant.files.iter().any(|file| file.bytes.is_some()) || files.len() > 2;
            if is_sure && best.as_ref().is_none_or(|best| best.files.len() < files.len()) {
                best = Some(Model { entry: entry.clone(), variant: variant.clone(), files, own_entry: None });
            }
        }
    }
    let model = best?;
    let what = format!("{} ({}), a model of the registry", model.entry.title, model.variant.precision);
    Some(RecognizedFiles { what, form: Form::Registered(Box::new(model)) })
}

/// The brought file that has the name and the size of a registered one.
fn brought_as<'a>(brought: &'a Brought, file: &FileEntry) -> Option<&'a BroughtFile> {
    let name = name_of(file);
    brought.files().iter().find(|brought| brought.name == name && file.fits(brought.bytes))
}

fn name_of(file: &FileEntry) -> &str {
    file.path.rsplit('/').next().unwrap_or(&file.path)
}

/// What a model of the registry lacks of which at least half of the files were brought, by name. Of several, the one with
/// the most files of the right size counts, then the one with the most names.
fn incomplete(brought: &Brought, catalog: &Catalog) -> Option<ImportError> {
    let mut nearest: Option<(&Entry, &Variant)> = None;
    let mut most = (0, 0);
    for entry in catalog.entries() {
        for variant in &entry.variants {
            let n_named = variant.files.iter().filter(|file| brought.named(name_of(file)).is_some()).count();
            let n_fitting = variant.files.iter().filter(|file| brought_as(brought, file).is_some()).count();
            if 2 * n_named >= variant.files.len() && (n_fitting, n_named) > most {
                most = (n_fitting, n_named);
                nearest = Some((entry, variant));
            }
        }
    }
    let (entry, variant) = nearest?;
    let lacking = variant.files.iter().filter(|file| brought_as(brought, file).is_none());
    let problems = lacking.map(|file| {
        let name = name_of(file);
        match (brought.named(name), file.bytes) {
            (None, _) => format!("{name} is missing"),
            (Some(found), Some(bytes)) => format!("{name} has {} bytes, not {bytes}", found.bytes),
            (Some(found), None) => format!("{name} has {} bytes, not about {}", found.bytes, file.about_bytes),
        }
    });
    let model = format!("{} ({})", entry.title, variant.precision);
    Some(ImportError::Incomplete { model, problems: problems.collect() })
}

/// The first of these, and the number of the others.
fn listed(problems: &[String]) -> String {
    let shown = problems.len().min(MAX_LISTED);
    let more = match problems.len() - shown {
        0 => String::new(),
        n => format!(", and {n} more"),
    };
    problems[..shown].join(", ") + &more
}

/// The Kokoro voice in an export whose graph has another name than the registry's: the graph's size says in which precision.
fn kokoro(brought: &Brought, catalog: &Catalog) -> Option<RecognizedFiles> {
    let entry = catalog.entries().iter().find(|entry| entry.name == "kokoro")?;
    let graph = brought.files().iter().filter(|file| file.name.ends_with(".onnx")).max_by_key(|file| file.bytes)?;
    let distance = |variant: &&Variant| variant.files[0].about_bytes.abs_diff(graph.bytes);
    let variant = entry.variants.iter().min_by_key(distance)?;
    let files = variant.files.iter().map(|file| {
        let name = file.path.rsplit('/').next().unwrap_or(&file.path);
        let found =
            if file.role == "graph" { Some(graph) } else { brought.named(name).filter(|found| file.fits(found.bytes)) };
        found.map(|found| FileToPlace { from: found.path.clone(), path: file.path.clone(), may_move: found.is_staged })
    });
    let files = files.collect::<Option<Vec<_>>>()?;
    let what = format!("{} ({}), {} voices", entry.title, variant.precision, files.len() - 1);
    let model = Model { entry: entry.clone(), variant: variant.clone(), files, own_entry: None };
    Some(RecognizedFiles { what, form: Form::Registered(Box::new(model)) })
}

/// The registry's model whose converted form has this checksum.
fn converted(catalog: &Catalog, checksum: &str, file: &FileToPlace) -> Option<Model> {
    for entry in catalog.entries() {
        for variant in &entry.variants {
            let [registered] = variant.files.as_slice() else { continue };
            if registered.converted.as_ref().is_some_and(|sum| *sum == Sum::Sha256(checksum.into())) {
                let files = vec![FileToPlace { path: registered.path.clone(), ..file.clone() }];
                return Some(Model { entry: entry.clone(), variant: variant.clone(), files, own_entry: None });
            }
        }
    }
    None
}

fn whisper(
    catalog: &Catalog,
    name: &str,
    sizes: &Sizes,
    file: FileToPlace,
    checksum: &str,
) -> Result<Model, ImportError> {
    let is_multilingual = sizes.is_multilingual();
    // The ranks of the registry's models of the same size; others are taken where they are named.
    let rank = match (sizes.n_audio_state, sizes.n_text_layer) {
        (384, 4) => 20,
        (512, 6) => 30,
        (768, 12) => 40,
        (1280, 4) => 50,
        _ => 0,
    };
    let bytes = bytes_of(&file.from)?;
    let text = OwnModel {
        name,
        stage: "stt",
        family: "whisper",
        title: &format!("{name} (imported)"),
        licence: "its maker's",
        languages: if is_multilingual { Vec::new() } else { vec!["en"] },
        rate_hz: 16_000,
        auto: if is_multilingual || rank == 0 { rank } else { rank - 1 },
        note: &format!("{}.", described(sizes)),
        variant: vec![OwnVariant {
            precision: if sizes.ftype == 0 {
                "f32"
            } else if sizes.ftype == 1 {
                "f16"
            } else {
                "quantized"
            },
            files: vec![OwnFile { role: "model", path: &file.path, bytes, sha256: checksum }],
        }],
    };
    let files = vec![file.clone()];
    text.model(catalog, files)
}

/// The part of a Piper voice's settings that a registry entry needs.
#[derive(Deserialize)]
struct PiperConfig {
    audio: PiperAudio,
    espeak: PiperEspeak,
}

#[derive(Deserialize)]
struct PiperAudio {
    sample_rate: u32,
}

#[derive(Deserialize)]
struct PiperEspeak {
    voice: String,
}

fn piper(
    catalog: &Catalog,
    name: &str,
    graph: &BroughtFile,
    config: &BroughtFile,
    card: Option<&BroughtFile>,
) -> Result<Model, ImportError> {
    let text = small_text(config)?;
    let foreign = |why: String| RegistryError::Foreign { path: config.path.clone(), why };
    let read: PiperConfig = serde_json::from_str(&text)
        .map_err(|error| foreign(format!("is not the settings of a Piper voice: {error}")))?;
    let language = read.espeak.voice.chars().take_while(char::is_ascii_lowercase).take(2).collect::<String>();
    if language.len() != 2 {
        return Err(foreign(format!(
            "names the espeak-ng voice {:?}, which begins with no language",
            read.espeak.voice
        ))
        .into());
    }
    let described = card.map(small_text).transpose()?.unwrap_or_default();
    // The recordings of Lessac may not be used for every purpose (Blizzard Challenge 2013), nor what was finetuned from them.
    let note = if described.to_lowercase().contains("lessac") || name.contains("lessac") {
        "Made from Lessac, the terms of whose recordings do not allow every use: see MODEL_CARD. Needs ONNX Runtime and espeak-ng."
    } else {
        "Needs ONNX Runtime and espeak-ng."
    };
    let mut sources = vec![("graph", graph), ("config", config)];
    sources.extend(card.map(|card| ("card", card)));
    let mut files = Vec::new();
    let mut sums = Vec::new();
    for (_, file) in &sources {
        files.push(FileToPlace { from: file.path.clone(), path: file.name.clone(), may_move: file.is_staged });
        sums.push(sha256(&file.path)?);
    }
    let described = sources.iter().zip(&sums).map(|((role, file), sum)| OwnFile {
        role,
        path: &file.name,
        bytes: file.bytes,
        sha256: sum,
    });
    let model = OwnModel {
        name,
        stage: "tts",
        family: "piper",
        title: &format!("{name} (imported)"),
        licence: if card.is_some() { "see MODEL_CARD" } else { "its maker's" },
        languages: vec![&language],
        rate_hz: read.audio.sample_rate,
        auto: 26,
        note,
        variant: vec![OwnVariant { precision: "fp32", files: described.collect() }],
    };
    model.model(catalog, files)
}

/// A registry entry as text.
#[derive(Serialize)]
struct OwnModel<'a> {
    name: &'a str,
    stage: &'a str,
    family: &'a str,
    title: &'a str,
    licence: &'a str,
    languages: Vec<&'a str>,
    rate_hz: u32,
    auto: u32,
    note: &'a str,
    variant: Vec<OwnVariant<'a>>,
}

#[derive(Serialize)]
struct OwnVariant<'a> {
    precision: &'a str,
    files: Vec<OwnFile<'a>>,
}

#[derive(Serialize)]
struct OwnFile<'a> {
    role: &'a str,
    path: &'a str,
    bytes: u64,
    sha256: &'a str,
}

#[derive(Serialize)]
struct OwnFileOfModels<'a> {
    model: [&'a OwnModel<'a>; 1],
}

impl OwnModel<'_> {
    fn model(&self, catalog: &Catalog, files: Vec<FileToPlace>) -> Result<Model, ImportError> {
        if catalog.entries().iter().any(|entry| entry.name == self.name && !entry.is_imported()) {
            return Err(ImportError::Name(
                self.name.into(),
                "the registry has a model of this name, which has other bytes",
            ));
        }
        let text = toml::to_string(&OwnFileOfModels { model: [self] }).expect("texts and numbers serialize");
        // Read as the registry will read it; the name is checked there.
        let read = Catalog::read("the model's entry", &text)
            .map_err(|_| ImportError::Name(self.name.into(), "use letters, digits and -._"))?;
        let entry = read.entries()[0].clone();
        let variant = entry.variants[0].clone();
        Ok(Model { entry, variant, files, own_entry: Some(text) })
    }
}

/// The text of a settings file or model card.
fn small_text(file: &BroughtFile) -> Result<String, RegistryError> {
    let foreign = |why: String| RegistryError::Foreign { path: file.path.clone(), why };
    if file.bytes > MAX_TEXT_BYTES {
        return Err(foreign(format!("has {} bytes, too many for a text", file.bytes)));
    }
    std::fs::read_to_string(&file.path).map_err(|error| foreign(format!("cannot be read: {error}")))
}

fn bytes_of(path: &Path) -> Result<u64, RegistryError> {
    let metadata = std::fs::metadata(path);
    let metadata =
        metadata.map_err(|source| RegistryError::Disk { path: path.to_owned(), what: "cannot be read", source })?;
    Ok(metadata.len())
}

fn is_ggml(path: &Path) -> bool {
    let mut magic = [0; 4];
    std::fs::File::open(path).and_then(|mut file| file.read_exact(&mut magic)).is_ok() && magic == *b"lmgg"
}

fn described(sizes: &Sizes) -> String {
    let size = match (sizes.n_audio_state, sizes.n_text_layer) {
        (384, _) => "tiny",
        (512, _) => "base",
        (768, 12) => "small",
        (768, _) => "small, distilled",
        (1024, 24) => "medium",
        (1024, _) => "medium, distilled",
        (1280, 4) => "large turbo",
        (1280, 32) => "large",
        (1280, _) => "large, distilled",
        _ => "of another size",
    };
    format!("Whisper {size}, {}", if sizes.is_multilingual() { "99 languages" } else { "English only" })
}

/// The name of a folder, or of a file without its extension.
fn stem_of(source: &Path) -> String {
    let whole = source.canonicalize().unwrap_or_else(|_| source.to_owned());
    let name = if whole.is_dir() { whole.file_name() } else { whole.file_stem() };
    name.unwrap_or_default().to_string_lossy().into_owned()
}

/// A text as the name of a model: other characters than letters, digits and -._ become a hyphen.
fn as_name(text: &str) -> String {
    let name: String =
        text.chars().map(|c| if c.is_ascii_alphanumeric() || "-._".contains(c) { c } else { '-' }).collect();
    name.trim_start_matches(['-', '.', '_']).to_owned()
}
