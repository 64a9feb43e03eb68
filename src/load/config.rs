//! The `[slo]` section.

use serde::{Deserialize, Serialize};

/// The latency objective and what the hub does to keep it. Each key is documented in `configs/default.toml`.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct SloConfig {
    /// Voice-to-voice latency that turns are to keep, in milliseconds; 0: no objective.
    pub voice_to_voice_ms: u32,
    /// Share of the turns that are to keep it.
    pub share: f64,
    /// Whether the hub does without things, and refuses sessions, while it is overloaded.
    pub brownout: bool,
    /// Whether the fallback engines of recognizer and voice serve new sessions from level 3 on.
    pub smaller_engines: bool,
    /// Share of the processor that the hub may use, of the cores that it may run on.
    pub processor_share: f64,
}

impl Default for SloConfig {
    fn default() -> Self {
        Self { voice_to_voice_ms: 800, share: 0.95, brownout: true, smaller_engines: false, processor_share: 0.9 }
    }
}
