//! Tools of remote servers, by the Model Context Protocol (MCP) over streamable HTTP.
//!
//! [`http::Http`] implements the port with the crate `rmcp`. A session connects to the servers that its client declared,
//! lists their tools and calls them. Neither keys nor a tool's arguments are logged.

mod client;
pub mod http;
