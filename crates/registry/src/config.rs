//! The `[models]` section.

use antiphon_types::setting::Rule;
use std::path::{Path, PathBuf};

antiphon_types::settings! {
    /// Models that the hub loads itself: `antiphon models list` shows them, `antiphon models pull` downloads them.
    pub struct ModelsConfig in "models" {
        /// The folder with one subfolder per model, relative to the working directory.
        pub dir: String = "models".into(), Rule::Name;
        /// A second folder, only read, for models that are not in "dir".
        pub shipped_dir: String = String::new(), Rule::Text;
        /// A registry file in the format of models/registry.toml, whose models are added, or replace those of
        /// the same name.
        pub registry: String = String::new(), Rule::Text;
        /// This address replaces scheme and host of every file's address, such as
        /// "https://mirror.example.org/models".
        pub mirror: String = String::new(), Rule::UrlOrNone;
        /// The proxy for downloads of models, such as "http://proxy.example.org:3128". Empty: HTTPS_PROXY,
        /// HTTP_PROXY and NO_PROXY apply.
        pub proxy: String = String::new(), Rule::UrlOrNone;
        /// Models loaded at start besides those of the stages, such as ["kokoro", "whisper-base:q5_1"].
        pub preload: Vec<String> = Vec::new(), Rule::Names;
        /// Models in memory at once; beyond it the least recently used is unloaded, never one in use.
        pub max_loaded: usize = 8, Rule::Whole(1, 64, "models");
        /// Memory limit for these models, by the sizes of their files, in MiB. 0: no limit.
        pub memory_budget_mb: u64 = 0, Rule::Whole(0, 1_000_000, "MiB");
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
