//! The `[vad]` section.

use serde::{Deserialize, Serialize};

/// Settings of voice activity detection. Each key is documented in `configs/default.toml`.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct VadConfig {
    /// The name of an engine ([`ENGINES`](super::ENGINES)), or `auto`.
    pub engine: String,
    /// `silero`: a model of the registry, or its file; empty: the best that is here.
    pub model: String,
}

impl Default for VadConfig {
    fn default() -> Self {
        Self { engine: "auto".into(), model: String::new() }
    }
}
