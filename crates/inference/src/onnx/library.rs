//! Finds ONNX Runtime's library and opens it, once per process.

use super::{OnnxConfig, OnnxError};
use ort::environment::Environment;
use ort::logging::LogLevel;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

/// The folder that `make onnxruntime` fills.
const CPU_FOLDER: &str = "models/onnxruntime";

/// The folder that `make onnxruntime-gpu` fills.
const GPU_FOLDER: &str = "models/onnxruntime-gpu";

/// Where packages install the library, from the program's folder: `/usr/lib/antiphon` of `/usr/bin/antiphon`.
const INSTALLED_FOLDER: &str = "../lib/antiphon";

/// The file's name, to which the wheel adds the version.
const NAME: &str = "libonnxruntime.so";

/// The library that is open, for as long as the process lives: the runtime can neither be closed nor opened twice.
static OPEN: Mutex<Option<(PathBuf, Environment)>> = Mutex::new(None);

/// Finds the library and opens it, or takes the one that is open. Blocks for some 60 ms the first time.
pub(super) fn open(config: &OnnxConfig) -> Result<Environment, OnnxError> {
    let path = find(&places(config))?;
    let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((there, environment)) = &*open {
        if *there != path {
            return Err(OnnxError::OtherLibrary { open: there.clone(), requested: path });
        }
        return Ok(environment.clone());
    }
    if config.provider != "cpu" {
        preload_cuda(path.parent().unwrap_or(Path::new("")));
    }
    let bad = |message: String| OnnxError::BadLibrary { path: path.clone(), message };
    let builder = ort::init_from(&path).map_err(|error| bad(error.to_string()))?;
    let environment = builder
        .with_name("antiphon")
        .with_telemetry(false)
        .with_logger(Arc::new(|level, _, _, place, message| log(level, place, message)))
        .build()
        .map_err(|error| bad(error.to_string()))?;
    environment.set_log_level(LogLevel::Warning);
    tracing::info!(library = %path.display(), "ONNX Runtime is open");
    *open = Some((path, environment.clone()));
    Ok(environment)
}

/// Forwards the runtime's log to the hub's.
pub(super) fn log(level: LogLevel, place: &str, message: &str) {
    match level {
        LogLevel::Fatal | LogLevel::Error => tracing::error!(place, "ONNX Runtime: {message}"),
        LogLevel::Warning => tracing::debug!(place, "ONNX Runtime: {message}"),
        LogLevel::Info | LogLevel::Verbose => tracing::trace!(place, "ONNX Runtime: {message}"),
    }
}

/// CUDA and cuDNN from Python wheels lie beside the library, where the system's loader does not look: they are opened
/// first, in rounds, since some depend on others in an order that is not known. Where there are none, the system's are
/// used. A library that cannot be opened is reported when the provider is registered.
fn preload_cuda(folder: &Path) {
    let files = std::fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    let mut left: Vec<_> = files.filter(|path| is_of_cuda(path)).collect();
    left.sort();
    loop {
        let before = left.len();
        left.retain(|path| ort::util::preload_dylib(path.clone()).is_err());
        if left.is_empty() || left.len() == before {
            break;
        }
    }
    if !left.is_empty() {
        tracing::warn!(files = ?left, "CUDA libraries beside ONNX Runtime that cannot be opened");
    }
}

/// NVIDIA's libraries, not the runtime's own.
fn is_of_cuda(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    name.starts_with("lib") && name.contains(".so.") && !name.starts_with("libonnxruntime")
}

/// Candidate files and folders, in order. A configured path is the only candidate.
pub(super) fn places(config: &OnnxConfig) -> Vec<PathBuf> {
    if !config.runtime.is_empty() {
        return vec![PathBuf::from(&config.runtime)];
    }
    if let Some(named) = std::env::var_os("ORT_DYLIB_PATH").filter(|value| !value.is_empty()) {
        return vec![PathBuf::from(named)];
    }
    let mut places = Vec::new();
    if let Ok(program) = std::env::current_exe()
        && let Some(folder) = program.parent()
    {
        places.push(folder.to_path_buf());
        places.push(folder.join(INSTALLED_FOLDER));
    }
    let folders = if config.provider == "cpu" { [CPU_FOLDER, GPU_FOLDER] } else { [GPU_FOLDER, CPU_FOLDER] };
    places.extend(folders.map(PathBuf::from));
    places
}

/// The first place that holds the library, by its real path.
pub(super) fn find(places: &[PathBuf]) -> Result<PathBuf, OnnxError> {
    let at = |place: &PathBuf| if place.is_dir() { in_folder(place) } else { place.is_file().then(|| place.clone()) };
    let found = places.iter().find_map(at);
    let found = found.and_then(|path| path.canonicalize().ok());
    found.ok_or_else(|| {
        let looked: Vec<_> = places.iter().map(|place| place.display().to_string()).collect();
        OnnxError::NoLibrary { looked: looked.join(", ") }
    })
}

/// The library in a folder: by its plain name, else the one with the highest version behind it.
fn in_folder(folder: &Path) -> Option<PathBuf> {
    let plain = folder.join(NAME);
    if plain.is_file() {
        return Some(plain);
    }
    let files = std::fs::read_dir(folder).ok()?.flatten().map(|entry| entry.path());
    let version = |path: &PathBuf| -> Option<Vec<u32>> {
        let rest = path.file_name()?.to_str()?.strip_prefix(NAME)?.strip_prefix('.')?;
        rest.split('.').map(|part| part.parse().ok()).collect()
    };
    files.filter_map(|path| Some((version(&path)?, path))).max().map(|(_, path)| path)
}

#[cfg(test)]
mod tests {
    use super::super::is_here;
    use super::*;

    #[test]
    fn the_plain_name_then_the_newest_is_taken() {
        let folder = tempfile::tempdir().expect("a folder");
        let place = |name: &str| {
            std::fs::write(folder.path().join(name), "").expect("written");
            let found = find(&[folder.path().into()]).expect("found");
            found.file_name().and_then(|name| name.to_str()).expect("a name").to_owned()
        };
        assert_eq!(place("libonnxruntime.so.1.9.0"), "libonnxruntime.so.1.9.0");
        assert_eq!(place("libonnxruntime.so.1.31.1"), "libonnxruntime.so.1.31.1");
        assert_eq!(place("libonnxruntime.so.bak"), "libonnxruntime.so.1.31.1");
        assert_eq!(place("libonnxruntime.so"), "libonnxruntime.so");
    }

    #[test]
    fn places_that_are_not_there_are_passed_over() {
        let folder = tempfile::tempdir().expect("a folder");
        let gpu = folder.path().join("onnxruntime-gpu");
        let cpu = folder.path().join("onnxruntime");
        let places = [folder.path().join("nowhere").join(NAME), gpu.clone(), cpu.clone()];
        assert!(matches!(find(&places), Err(OnnxError::NoLibrary { .. })));
        let put = |folder: &Path| {
            std::fs::create_dir(folder).expect("made");
            std::fs::write(folder.join(NAME), "").expect("written");
            find(&places).expect("found").parent().map(|found| found.file_name() == folder.file_name())
        };
        assert_eq!(put(&cpu), Some(true), "the second folder serves where the first is not there");
        assert_eq!(put(&gpu), Some(true));
    }

    #[test]
    fn whether_it_is_there_is_known_without_opening_it() {
        let folder = tempfile::tempdir().expect("a folder");
        let config = OnnxConfig { runtime: folder.path().display().to_string(), ..OnnxConfig::default() };
        assert!(!is_here(&config), "an empty folder");
        std::fs::write(folder.path().join("libonnxruntime.so.1.31.1"), "no library").expect("written");
        assert!(is_here(&config));
        assert!(!is_here(&OnnxConfig { runtime: "/nowhere/at/all".into(), ..config }));
    }

    #[test]
    fn cuda_libraries_that_cannot_be_opened_stop_nothing() {
        let folder = tempfile::tempdir().expect("a folder");
        for name in ["libcudart.so.13", "libcudnn.so.9", "libonnxruntime.so.1.31.1", "notes.txt"] {
            std::fs::write(folder.path().join(name), "no library").expect("written");
        }
        let of_cuda = |name: &str| is_of_cuda(&folder.path().join(name));
        assert!(of_cuda("libcudart.so.13") && !of_cuda("libonnxruntime.so.1.31.1") && !of_cuda("notes.txt"));
        preload_cuda(folder.path());
        preload_cuda(Path::new("/nowhere"));
    }

    #[test]
    fn a_missing_library_says_where_it_was_looked_for_and_what_to_do() {
        let config = OnnxConfig { runtime: "/nowhere/at/all".into(), ..OnnxConfig::default() };
        let error = open(&config).expect_err("nothing there").to_string();
        assert!(error.contains("make onnxruntime") && error.ends_with("/nowhere/at/all"), "{error}");
    }

    #[test]
    fn a_file_that_is_no_library_is_refused() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join(NAME);
        std::fs::write(&path, "no library").expect("written");
        let config = OnnxConfig { runtime: path.display().to_string(), ..OnnxConfig::default() };
        assert!(matches!(open(&config), Err(OnnxError::BadLibrary { .. })));
    }
}
