//! Tools of remote servers, by the Model Context Protocol (MCP) over streamable HTTP.
//!
//! [`http::Http`] implements the port with the crate `rmcp`. A session connects to the servers its client declared, is told
//! their tools, and calls them. Neither keys nor what is said to a tool is logged.

mod client;
pub mod http;
