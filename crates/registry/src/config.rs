//! The `[models]` section.

use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// Settings of the model store. Each key is documented in `configs/default.toml`.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct ModelsConfig {
    /// The folder with one subfolder per model.
    pub dir: String,
    /// The same with models of the installation, which is only read; empty: none.
    pub shipped_dir: String,
    /// A file with additional registry entries; empty: none.
    pub registry: String,
    /// Replaces scheme and host of every download address; empty: none.
    pub mirror: String,
    /// Proxy for downloads; empty: from the environment.
    pub proxy: String,
    /// Models loaded at start in addition to those of the configured engines.
    pub preload: Vec<String>,
    /// Maximum number of models in memory.
    pub max_loaded: usize,
    /// Maximum memory of all loaded models, in MiB; 0: unlimited.
    pub memory_budget_mb: u64,
}

impl Default for ModelsConfig {
    fn default() -> Self {
        Self {
            dir: "models".into(),
            shipped_dir: String::new(),
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
    /// The folder of the model with this name.
    pub fn folder(&self, name: &str) -> PathBuf {
        Path::new(&self.dir).join(name)
    }

    /// Its folder among the models of the installation, if there are any.
    pub fn shipped_folder(&self, name: &str) -> Option<PathBuf> {
        (!self.shipped_dir.is_empty()).then(|| Path::new(&self.shipped_dir).join(name))
    }
}
