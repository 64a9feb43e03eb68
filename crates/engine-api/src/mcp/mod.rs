//! The port of remote tools (Model Context Protocol): connects to a server and calls its tools.
//!
//! Which servers may be reached at all is the operator's choice ([`McpConfig::allows`]), because the hub reaches them from
//! its own place in the network. Tools are called, never interpreted.

mod allow;
mod config;
mod error;
mod headers;

pub use config::McpConfig;
pub use error::McpError;
pub use headers::check as check_header;

use antiphon_types::mcp::{CallError, RemoteTool, Server};
use futures_util::future::BoxFuture;
use serde_json::{Map, Value};
use std::sync::Arc;

/// A connection, and the tools its server lists.
pub type Connected = (Arc<dyn Connection>, Vec<RemoteTool>);

/// The port: reaches servers for all sessions.
pub trait Mcp: Send + Sync {
    /// Connects, and lists the server's tools. Carries its own deadline; dropping the future gives up.
    fn connect(&self, server: Server) -> BoxFuture<'static, Result<Connected, McpError>>;
}

/// A connection to a server; dropping the last reference closes it.
pub trait Connection: Send + Sync {
    /// Calls a tool and gives its result as text. Carries its own deadline; dropping the future cancels the call, which
    /// may have had its effect by then.
    fn call(&self, tool: String, arguments: Map<String, Value>) -> BoxFuture<'static, Result<String, CallError>>;
}
