//! The `[mcp]` section.

use serde::{Deserialize, Serialize};

/// Settings of remote tools. Each key is documented in `configs/default.toml`.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct McpConfig {
    /// The servers clients may declare: origins, or addresses whose paths begin so.
    pub allowed_servers: Vec<String>,
    /// From the declaration of a server to its list of tools.
    pub list_timeout_ms: u64,
    /// From a call to its result.
    pub call_timeout_ms: u64,
    /// How long the client may take to ask for the answer after a call, before the hub goes on by itself; 0: for ever.
    pub follow_up_ms: u64,
}

impl Default for McpConfig {
    fn default() -> Self {
        Self { allowed_servers: Vec::new(), list_timeout_ms: 5_000, call_timeout_ms: 30_000, follow_up_ms: 500 }
    }
}
