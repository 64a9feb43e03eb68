//! The `[models]` section.

use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// Settings of the models on disk. Each key is documented in `configs/default.toml`.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct ModelsConfig {
    /// The folder that holds a folder for each model.
    pub dir: String,
    /// A file of further entries; empty: none.
    pub registry: String,
    /// What takes the place of scheme and host in every address; empty: none.
    pub mirror: String,
    /// The proxy for pulls; empty: as the environment says.
    pub proxy: String,
    /// Models that are loaded at start beside those that serve the stages.
    pub preload: Vec<String>,
    /// Models in memory at once.
    pub max_loaded: usize,
    /// Memory of all loaded models together, in MiB; 0: no bound.
    pub memory_budget_mb: u64,
}

impl Default for ModelsConfig {
    fn default() -> Self {
        Self {
            dir: "models".into(),
            registry: String::new(),
            mirror: String::new(),
            proxy: String::new(),
            preload: Vec::new(),
            max_loaded: 8,
            memory_budget_mb: 0,
        }
    }
}

impl ModelsConfig {
    /// The folder of the model of that name.
    pub fn folder(&self, name: &str) -> PathBuf {
        Path::new(&self.dir).join(name)
    }
}
