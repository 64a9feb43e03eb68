//! The `[mcp]` section.

use antiphon_types::setting::{HOUR_MS, Rule};

antiphon_types::settings! {
    /// Remote tools: MCP servers.
    pub struct McpConfig in "mcp" {
        /// The MCP servers whose tools clients may declare: origins, or addresses, which allow every path below
        /// theirs, such as ["https://mcp.example.org", "http://127.0.0.1:9000/mcp"].
        pub allowed_servers: Vec<String> = Vec::new(), Rule::Urls;
        /// From a server's declaration to the list of its tools; responses wait for it.
        pub list_timeout_ms: u64 = 5_000, Rule::Whole(100, 600_000, "milliseconds");
        /// From a call to its result.
        pub call_timeout_ms: u64 = 30_000, Rule::Whole(100, HOUR_MS, "milliseconds");
        /// How long the hub waits after a call for the client to request the answer, before it answers by
        /// itself. 0: never.
        pub follow_up_ms: u64 = 500, Rule::Whole(0, 60_000, "milliseconds");
    }
}
