//! The `[vad]` section.

use serde::{Deserialize, Serialize};

/// Settings of voice activity detection. Each key is documented in `configs/default.toml`.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct VadConfig {
    /// `earshot` or `silero`.
    pub engine: String,
    /// `silero`: the graph's file.
    pub model: String,
}

impl Default for VadConfig {
    fn default() -> Self {
        Self { engine: "earshot".into(), model: "models/silero-vad/silero_vad.onnx".into() }
    }
}
