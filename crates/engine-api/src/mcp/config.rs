//! The `[mcp]` section.

use serde::{Deserialize, Serialize};

/// Settings of remote tools. Each key is documented in `configs/default.toml`.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct McpConfig {
    /// Servers that clients may declare: origins, or address prefixes.
    pub allowed_servers: Vec<String>,
    /// Timeout from the declaration of a server to its tool list, in milliseconds.
    pub list_timeout_ms: u64,
    /// Timeout from a call to its result, in milliseconds.
    pub call_timeout_ms: u64,
    /// How long after a call the client may take to request the response before the hub continues by itself, in
    /// milliseconds; 0: for ever.
    pub follow_up_ms: u64,
}

impl Default for McpConfig {
    fn default() -> Self {
        Self { allowed_servers: Vec::new(), list_timeout_ms: 5_000, call_timeout_ms: 30_000, follow_up_ms: 500 }
    }
}
