//! The `[telemetry]` section.

use serde::{Deserialize, Serialize};

/// Settings of what the hub tells of itself. Each key is documented in `configs/default.toml`.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct TelemetryConfig {
    /// The collector of traces; empty: none are sent.
    pub otlp_endpoint: String,
}
