//! The `[telemetry]` section.

use serde::{Deserialize, Serialize};

/// Telemetry settings. Each key is documented in `configs/default.toml`.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct TelemetryConfig {
    /// Address of the trace collector; empty: traces are not sent.
    pub otlp_endpoint: String,
}
