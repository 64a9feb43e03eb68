//! The `[vad]` section.

use serde::{Deserialize, Serialize};

/// Settings of voice activity detection. Each key is documented in `configs/default.toml`.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct VadConfig {
    /// `auto`, `earshot` or `silero`.
    pub engine: String,
    /// `silero`: a model's name or a graph's file; left as it is, the best in `models.dir`.
    pub model: String,
}

impl Default for VadConfig {
    fn default() -> Self {
        Self { engine: "auto".into(), model: "models/silero-vad/silero_vad.onnx".into() }
    }
}
