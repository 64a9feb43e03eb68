//! The `[vad]` section.

use serde::{Deserialize, Serialize};

/// Settings of voice activity detection. Each key is documented in `configs/default.toml`.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct VadConfig {
    /// `auto` or `earshot`.
    pub engine: String,
}

impl Default for VadConfig {
    fn default() -> Self {
        Self { engine: "auto".into() }
    }
}
