//! The figures of the models on this machine, in `measured.json` in the folder of each below `models.dir`: by precision, with the
//! machine, the engine's settings and the files that they belong to. Where one of these is another one, the figure does not count.
//!
//! [`super::super::EngineManager`] holds one [`Trials`]. Where the folder cannot be written the figures last as long as the process.

use super::Trial;
use crate::assembly::factory::whisper_uses_gpu;
use crate::config::Config;
use antiphon_registry::{LocatedModel, Stage};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::UNIX_EPOCH;

const FILE: &str = "measured.json";

/// The figures of models by folder and precision.
#[derive(Debug, Default)]
pub struct Trials {
    known: Mutex<HashMap<(PathBuf, String), Measurement>>,
}

/// A figure and what it belongs to.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
struct Measurement {
    machine: String,
    files: Vec<FileState>,
    trial: Trial,
}

/// A file of the model. Its checksum would take a second for each start of the hub.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
struct FileState {
    path: PathBuf,
    bytes: u64,
    modified_ms: u64,
}

impl Trials {
    /// The figure of the model on this machine, if it was measured. Blocks for small files.
    pub fn of(&self, config: &Config, stage: Stage, model: &LocatedModel) -> Option<Trial> {
        let key = (model.folder.clone(), model.precision.clone());
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner).get(&key).cloned();
        let measured = known.or_else(|| read(&config.models.folder(&model.name)).remove(&model.precision))?;
        (measured.machine == machine(config, stage) && measured.files == states(model)).then_some(measured.trial)
    }

    /// Keeps the figure of the model. Blocks for small files; a folder that cannot be written is logged.
    pub(in crate::assembly) fn keep(&self, config: &Config, stage: Stage, model: &LocatedModel, trial: Trial) {
        let measured = Measurement { machine: machine(config, stage), files: states(model), trial };
        // A model of the installation is in a folder that is only read.
        let folder = config.models.folder(&model.name);
        let mut all = read(&folder);
        all.insert(model.precision.clone(), measured.clone());
        if let Err(error) = write(&folder, &all) {
            tracing::info!(model = model.name, %error, "the model's figures cannot be kept beside it; it is measured at each start");
        }
        let key = (model.folder.clone(), model.precision.clone());
        self.known.lock().unwrap_or_else(PoisonError::into_inner).insert(key, measured);
    }
}

/// The figures in a folder by precision; none where there are none, or none that can be read.
fn read(folder: &Path) -> BTreeMap<String, Measurement> {
    let text = std::fs::read(folder.join(FILE)).ok();
    text.and_then(|text| serde_json::from_slice(&text).ok()).unwrap_or_default()
}

fn write(folder: &Path, all: &BTreeMap<String, Measurement>) -> std::io::Result<()> {
    std::fs::create_dir_all(folder)?;
    // Another process may write at the same time.
    let new = folder.join(format!("{FILE}.{}.new", std::process::id()));
    std::fs::write(&new, serde_json::to_vec_pretty(all)?)?;
    std::fs::rename(&new, folder.join(FILE))
}

fn states(model: &LocatedModel) -> Vec<FileState> {
    let state = |path: &Path| {
        let found = std::fs::metadata(path).ok()?;
        let modified = found.modified().ok()?.duration_since(UNIX_EPOCH).unwrap_or_default();
        let modified_ms = u64::try_from(modified.as_millis()).unwrap_or(u64::MAX);
        let path = path.strip_prefix(&model.folder).unwrap_or(path).to_owned();
        Some(FileState { path, bytes: found.len(), modified_ms })
    };
    model.all_files().filter_map(state).collect()
}

/// The machine, with the settings on which the speed of an engine depends.
fn machine(config: &Config, stage: Stage) -> String {
    let n_cores = std::thread::available_parallelism().map_or(1, usize::from);
    let settings = match stage {
        Stage::Stt => {
            let stt = &config.stt;
            let gpus = if whisper_uses_gpu(config) {
                format!(", GPUs {:?} {:?}", stt.gpu_device, stt.gpu_devices)
            } else {
                String::new()
            };
            format!(
                "decoders {}, threads {}, beam {}, window {}{gpus}",
                stt.decoders, stt.threads, stt.beam_size, stt.min_window_ms
            )
        }
        _ => {
            let tts = &config.tts;
            let onnx = &config.onnx;
            format!(
                "replicas {}, batch {}, {} {:?}, threads {}",
                tts.replicas,
                tts.max_batch_size,
                onnx.provider,
                onnx.devices(),
                onnx.intra_threads
            )
        }
    };
    format!("{}, {n_cores} cores, version {}, {settings}", processor(), env!("CARGO_PKG_VERSION"))
}

/// The processor's name; where the system does not report it, its architecture.
fn processor() -> String {
    let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let name =
        text.lines().find_map(|line| line.strip_prefix("model name")?.split_once(':').map(|(_, name)| name.trim()));
    name.map_or_else(|| std::env::consts::ARCH.to_owned(), str::to_owned)
}
