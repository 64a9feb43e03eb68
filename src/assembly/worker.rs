//! The engines that a worker serves, each with the name and the fingerprint of its model.
//!
//! `antiphon worker` calls [`worker_stages`] once. Engines are chosen and loaded as a hub does it; stages that are not named
//! load nothing.

use super::choose::{is_named, kind_of, settings};
use super::manager::{EngineInUse, EngineManager, ModelStage};
use super::{EnginesError, StageFailure};
use crate::config::Config;
use antiphon_cluster::Stage;
use antiphon_cluster::worker::{StageEngine, WorkerStage};
use antiphon_engine_api::stt::{Stt, SttError};
use antiphon_engine_api::tts::Tts;
use antiphon_engine_api::turn::TurnModel;
use antiphon_engines::stt::none;
use antiphon_engines::table::ModelSource;
use antiphon_registry::locate;
use sha2::{Digest, Sha256};
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::thread;

/// Bytes at each end of a model's file that its fingerprint covers: reading all of a model of gigabytes would take seconds.
const ENDS_BYTES: u64 = 1024 * 1024;

/// The digits of a fingerprint, in bytes of the digest.
const FINGERPRINT_BYTES: usize = 16;

/// Starts the engines of these stages, concurrently on threads of their own. Blocks until all are loaded.
///
/// # Errors
/// Every stage that could not start, not only the first.
pub fn worker_stages(config: &Config, stages: &[Stage]) -> Result<Vec<WorkerStage>, EnginesError> {
    let manager = &EngineManager::new(config)?;
    // Creating a remote engine may need the runtime's reactor, which threads do not inherit.
    let runtime = &tokio::runtime::Handle::try_current().ok();
    let loaded: Vec<_> = thread::scope(|scope| {
        let load = |stage: Stage| {
            let loading = scope.spawn(move || {
                let _context = runtime.as_ref().map(|runtime| runtime.enter());
                worker_stage(manager, stage)
            });
            (stage, loading)
        };
        let loading: Vec<_> = stages.iter().copied().map(load).collect();
        let joined = |(stage, loading): (Stage, thread::ScopedJoinHandle<'_, _>)| {
            loading
                .join()
                .unwrap_or_else(|_| Err(StageFailure::new(stage.name(), "", "the engine panicked during loading")))
        };
        loading.into_iter().map(joined).collect()
    });
    let mut ready = Vec::new();
    let mut failures = Vec::new();
    for stage in loaded {
        match stage {
            Ok(stage) => ready.push(stage),
            Err(failure) => failures.push(failure),
        }
    }
    if failures.is_empty() { Ok(ready) } else { Err(EnginesError(failures)) }
}

fn worker_stage(manager: &EngineManager, stage: Stage) -> Result<WorkerStage, StageFailure> {
    let (engine, served) = match stage {
        Stage::Stt => {
            let (engine, served) = manager.chosen::<dyn Stt>()?;
            if served.engine == none::NAME {
                return Err(StageFailure::new("stt", none::NAME, SttError::NoRecognizer));
            }
            (engine.map(StageEngine::Stt), served)
        }
        Stage::Tts => {
            let (engine, served) = manager.chosen::<dyn Tts>()?;
            (engine.map(StageEngine::Tts), served)
        }
        Stage::Turn => {
            let (engine, served) = manager.chosen::<dyn TurnModel>()?;
            (engine.map(StageEngine::Turn), served)
        }
    };
    let none = "no model is named; set turn.model to a name from `antiphon models list --stage turn`";
    let engine = engine.ok_or_else(|| StageFailure::new(stage.name(), &served.engine, none))?;
    let model = match stage {
        Stage::Stt => Model::of::<dyn Stt>(manager, &served),
        Stage::Tts => Model::of::<dyn Tts>(manager, &served),
        Stage::Turn => Model::of::<dyn TurnModel>(manager, &served),
    }?;
    let fingerprint =
        model.fingerprint(&served.engine).map_err(|error| StageFailure::new(stage.name(), &served.engine, error))?;
    Ok(WorkerStage { engine, engine_name: served.engine, model: model.name, fingerprint })
}

/// What an engine runs.
struct Model {
    name: String,
    files: Vec<PathBuf>,
    server: String,
}

impl Model {
    fn of<S: ModelStage + ?Sized>(manager: &EngineManager, served: &EngineInUse) -> Result<Self, StageFailure> {
        let config = manager.config();
        let (_, set) = settings(config, S::STAGE);
        let is_set = is_named(config, S::STAGE);
        if let Some(name) = &served.model {
            let wanted = manager.catalog().find(name);
            let located = wanted.and_then(|wanted| locate(&config.models, wanted));
            let located = located.map_err(|error| StageFailure::new(served.stage, &served.engine, error))?;
            let files = located.all_files().map(Path::to_path_buf).collect();
            return Ok(Self { name: name.clone(), files, server: String::new() });
        }
        // The server's address stands for the model's files.
        if let Some(ModelSource::Server { has_default_model }) =
            kind_of(S::STAGE, &served.engine).map(|kind| kind.model)
        {
            let server = match S::STAGE {
                antiphon_registry::Stage::Stt => &config.stt.base_url,
                _ => &config.tts.base_url,
            };
            let name = if is_set || has_default_model { set } else { &served.engine };
            return Ok(Self { name: name.to_owned(), files: Vec::new(), server: server.clone() });
        }
        let path = Path::new(set);
        match path.file_name().filter(|_| is_set && path.exists()) {
            Some(name) => {
                let name = name.to_string_lossy().into_owned();
                Ok(Self { files: files_of(path, &name), name, server: String::new() })
            }
            // flite's voices are in its library.
            None => Ok(Self { name: served.engine.clone(), files: Vec::new(), server: String::new() }),
        }
    }

    /// Digest of the engine's name, the server, and each file's name, size and both ends. Blocks while they are read.
    fn fingerprint(&self, engine: &str) -> io::Result<String> {
        let mut digest = Sha256::new();
        let mut add = |part: &[u8]| {
            digest.update((part.len() as u64).to_be_bytes());
            digest.update(part);
        };
        add(engine.as_bytes());
        add(self.server.as_bytes());
        let mut files: Vec<_> = self.files.iter().map(|file| (file.file_name().unwrap_or_default(), file)).collect();
        files.sort();
        for (name, path) in files {
            let unreadable = |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", path.display()));
            let mut file = File::open(path).map_err(unreadable)?;
            let bytes = file.metadata().map_err(unreadable)?.len();
            add(name.as_encoded_bytes());
            add(&bytes.to_be_bytes());
            for at in [0, bytes.saturating_sub(ENDS_BYTES)] {
                let mut end = Vec::new();
                file.seek(SeekFrom::Start(at)).map_err(unreadable)?;
                (&mut file).take(ENDS_BYTES).read_to_end(&mut end).map_err(unreadable)?;
                add(&end);
            }
        }
        Ok(digest.finalize()[..FINGERPRINT_BYTES].iter().map(|byte| format!("{byte:02x}")).collect())
    }
}

/// The files of a model outside of the registry: those of its folder, or the one that is named with those that are called
/// after it, such as `voice.onnx.json`.
fn files_of(path: &Path, name: &str) -> Vec<PathBuf> {
    let (folder, prefix) = if path.is_dir() { (path, "") } else { (path.parent().unwrap_or(path), name) };
    let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    let is_one = |path: &PathBuf| {
        path.is_file() && path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(prefix))
    };
    entries.filter(is_one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn model(files: Vec<PathBuf>) -> Model {
        Model { name: "m".into(), files, server: String::new() }
    }

    #[test]
    fn a_fingerprint_follows_the_engine_and_the_files_and_not_the_folder() {
        let one = tempfile::tempdir().unwrap();
        let other = tempfile::tempdir().unwrap();
        let write = |folder: &tempfile::TempDir, name: &str, bytes: &[u8]| {
            let path = folder.path().join(name);
            std::fs::write(&path, bytes).unwrap();
            path
        };
        let long = vec![7; 3 << 20];
        let files = |folder| vec![write(folder, "a.onnx", &long), write(folder, "b.json", b"{}")];
        let mut first = files(&one);
        let second = files(&other);
        first.reverse();
        let is = |files: &[PathBuf]| model(files.to_vec()).fingerprint("piper").unwrap();
        assert_eq!(is(&first), is(&second));
        assert_eq!(is(&first).len(), 2 * FINGERPRINT_BYTES);
        assert_ne!(is(&first), model(first.clone()).fingerprint("kokoro").unwrap());
        let mut changed = long.clone();
        *changed.last_mut().unwrap() = 8;
        write(&other, "a.onnx", &changed);
        assert_ne!(is(&first), is(&second));
        write(&other, "a.onnx", &long[1..]);
        assert_ne!(is(&first), is(&second));
        let missing = model(vec![other.path().join("gone")]).fingerprint("piper").unwrap_err().to_string();
        assert!(missing.contains("gone: No such file"), "{missing}");
    }

    #[test]
    fn a_model_outside_of_the_registry_has_the_files_called_after_it() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["en.onnx", "en.onnx.json", "de.onnx"] {
            std::fs::write(folder.path().join(name), name).unwrap();
        }
        let names = |path: &Path, name: &str| {
            let files = files_of(path, name).into_iter();
            let mut names: Vec<_> =
                files.map(|path| path.file_name().unwrap().to_string_lossy().into_owned()).collect();
            names.sort();
            names
        };
        assert_eq!(names(&folder.path().join("en.onnx"), "en.onnx"), ["en.onnx", "en.onnx.json"]);
        assert_eq!(names(folder.path(), "x"), ["de.onnx", "en.onnx", "en.onnx.json"]);
    }
}
