//! The figures of the models on this machine, in `measured.json` in the folder of each below `models.dir`: by precision, with the
//! machine, the engine's settings and the files that they belong to. Where one of these is another one, the figure does not count.
//! Figures of several settings stand beside each other, as those of the hub and of a command with one decoder.
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
/// Figures that are kept of a precision, each of another machine or other settings.
const MAX_KEPT: usize = 8;

/// The figures of models by folder and precision, the latest last.
#[derive(Debug, Default)]
pub struct Trials {
    known: Mutex<HashMap<(PathBuf, String), Vec<Measurement>>>,
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
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner).get(&key).cloned().unwrap_or_default();
        let machine = machine(config, stage);
        let files = states(model);
        let fitting = |figures: &[Measurement]| {
            let found = figures.iter().rfind(|figure| figure.machine == machine && figure.files == files);
            found.map(|figure| figure.trial)
        };
        fitting(&known).or_else(|| fitting(read(&config.models.folder(&model.name)).get(&model.precision)?))
    }

    /// Keeps the figure of the model. Blocks for small files; a folder that cannot be written is logged.
    pub(in crate::assembly) fn keep(&self, config: &Config, stage: Stage, model: &LocatedModel, trial: Trial) {
        let measured = Measurement { machine: machine(config, stage), files: states(model), trial };
        // A model of the installation is in a folder that is only read.
        let folder = config.models.folder(&model.name);
        let mut all = read(&folder);
        add(all.entry(model.precision.clone()).or_default(), measured.clone());
        if let Err(error) = write(&folder, &all) {
            tracing::info!(model = model.name, %error, "the model's figures cannot be kept beside it; it is measured at each start");
        }
        let key = (model.folder.clone(), model.precision.clone());
        add(self.known.lock().unwrap_or_else(PoisonError::into_inner).entry(key).or_default(), measured);
    }
}

/// Adds a figure in place of the one of the same machine and settings; the oldest beyond [`MAX_KEPT`] go.
fn add(figures: &mut Vec<Measurement>, new: Measurement) {
    figures.retain(|old| old.machine != new.machine);
    figures.push(new);
    let n_beyond = figures.len().saturating_sub(MAX_KEPT);
    figures.drain(..n_beyond);
}

/// The figures in a folder by precision; none where there are none, or none that can be read.
fn read(folder: &Path) -> BTreeMap<String, Vec<Measurement>> {
    let text = std::fs::read(folder.join(FILE)).ok();
    text.and_then(|text| serde_json::from_slice(&text).ok()).unwrap_or_default()
}

fn write(folder: &Path, all: &BTreeMap<String, Vec<Measurement>>) -> std::io::Result<()> {
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

#[cfg(test)]
mod tests {
    use super::*;
    use antiphon_registry::{Catalog, locate};

    const MODEL: &str = r#"
        [[model]]
        name = "m"
        stage = "stt"
        family = "whisper"
        title = "M"
        licence = "MIT"
        languages = ["en"]
        rate_hz = 16000
        [[model.variant]]
        precision = "f16"
        files = [{ role = "model", path = "m.bin", bytes = 4 }]
    "#;

    #[test]
    fn figures_of_several_settings_stand_beside_each_other_and_are_bounded() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut config = Config::default();
        config.models.dir = folder.path().to_str().expect("Unicode").into();
        std::fs::create_dir(folder.path().join("m")).expect("a folder");
        std::fs::write(folder.path().join("m/m.bin"), "1234").expect("written");
        let catalog = Catalog::read("test", MODEL).expect("a catalog");
        let model = locate(&config.models, catalog.find("m").expect("listed")).expect("it is here");
        let with = |decoders: usize| {
            let mut config = config.clone();
            config.stt.decoders = decoders;
            config
        };
        let trial = |wait_ms: u32| Trial { wait_ms, both_ms: wait_ms, share: 0.1 };
        let trials = Trials::default();
        trials.keep(&with(4), Stage::Stt, &model, trial(400));
        trials.keep(&with(1), Stage::Stt, &model, trial(100));
        trials.keep(&with(1), Stage::Stt, &model, trial(101));
        // The second one reads the file.
        for trials in [trials, Trials::default()] {
            let waits_ms = |decoders| trials.of(&with(decoders), Stage::Stt, &model).map(|trial| trial.wait_ms);
            assert_eq!([waits_ms(4), waits_ms(1), waits_ms(2)], [Some(400), Some(101), None]);
            for decoders in 11..11 + MAX_KEPT {
                trials.keep(&with(decoders), Stage::Stt, &model, trial(1));
            }
            assert_eq!(waits_ms(4), None);
            trials.keep(&with(4), Stage::Stt, &model, trial(400));
            trials.keep(&with(1), Stage::Stt, &model, trial(101));
        }
    }
}
