//! The configuration: built-in defaults, then a file, then the environment, then the command line.
//!
//! [`load`] is called by `cli` once, before anything starts. Each section is the struct of the module it configures
//! ([`raw`](Config)); [`KEYS`] says once more which keys there are and what each may hold, so that everything wrong is
//! reported together, each with its place and what would be right. This module starts nothing, reads no key or secret,
//! and never guesses: what it does not understand, it refuses.
//!
//! To add a key: the field and its default in the section's struct, its line in [`KEYS`], and the documented line in
//! `configs/default.toml`. `tests/configs.rs` fails while one of the three is missing.

mod env;
mod error;
mod file;
mod raw;
mod rules;
mod server;
mod speech;
mod suggest;

pub use error::{ConfigError, Origin, Problem};
pub use raw::Config;
pub use rules::{KEYS, Key, Rule};
pub use server::ServerConfig;
pub use speech::SpeechConfig;

use serde::Deserialize;
use std::path::{Path, PathBuf};
use toml::{Table, Value};

/// `configs/default.toml`, the offline engines, as it was built into the binary.
pub const DEFAULT_TOML: &str = include_str!("../../configs/default.toml");

/// Where settings come from; later ones win.
#[derive(Clone, Debug, Default)]
pub struct Sources {
    /// The file named by `--config`.
    pub file: Option<PathBuf>,
    /// The environment: all of it, names and values. What does not begin with `ANTIPHON_` is left alone.
    pub env: Vec<(String, String)>,
    /// Options of the command line: section, key, text.
    pub options: Vec<(&'static str, &'static str, String)>,
}

impl Sources {
    /// This process's environment, and a file where one is named. Names or values that are not Unicode are taken with
    /// replacement characters, and so refused where they matter.
    pub fn of_process(file: Option<&Path>) -> Self {
        let text = |os: std::ffi::OsString| os.to_string_lossy().into_owned();
        Self {
            file: file.map(Path::to_path_buf),
            env: std::env::vars_os().map(|(name, value)| (text(name), text(value))).collect(),
            options: Vec::new(),
        }
    }
}

/// Reads all sources and lays them over each other. Blocks for one small file.
///
/// # Errors
/// [`ConfigError::Unreadable`] when the file cannot be read, [`ConfigError::Invalid`] with every problem found.
pub fn load(sources: &Sources) -> Result<Config, ConfigError> {
    let mut layers = Layers::default();
    if let Some(path) = &sources.file {
        let text =
            std::fs::read_to_string(path).map_err(|source| ConfigError::Unreadable { path: path.clone(), source })?;
        file::read(path, &text, &mut layers);
    }
    env::read(&sources.env, &mut layers);
    for (section, key, text) in &sources.options {
        let origin = Origin::Option(format!("--{key}"));
        let known = rules::find(section, key).expect("options name keys that exist");
        match env::parse(&known.rule, text) {
            Ok(value) => layers.set(known, value),
            Err(written) => {
                layers.problems.push(Problem { origin, message: file::wrong_value(known, &written) });
            }
        }
    }
    layers.into_config()
}

/// The settings collected so far, and what was wrong with the others.
#[derive(Default)]
struct Layers {
    settings: Table,
    problems: Vec<Problem>,
}

impl Layers {
    fn set(&mut self, key: &Key, value: Value) {
        let section = self.settings.entry(key.section).or_insert_with(|| Value::Table(Table::new()));
        section.as_table_mut().expect("sections are tables").insert(key.name.into(), value);
    }

    fn into_config(self) -> Result<Config, ConfigError> {
        if !self.problems.is_empty() {
            return Err(ConfigError::Invalid(self.problems));
        }
        // What the rules let through, the structs take: a test holds that. Should they ever differ, it is reported.
        Config::deserialize(self.settings).map_err(|error| {
            let message = error.message().to_owned();
            ConfigError::Invalid(vec![Problem { origin: Origin::Merged, message }])
        })
    }
}
