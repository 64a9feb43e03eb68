//! The remote tool port (Model Context Protocol): connects to a server and calls its tools.
//!
//! The operator configures which servers may be reached ([`McpConfig::allows`]), because the hub connects from its own
//! network. Tool results are never interpreted.

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

/// A connection and the tools listed by its server.
pub type ConnectedServer = (Arc<dyn Connection>, Vec<RemoteTool>);

/// The remote tool port, shared by all sessions.
pub trait Mcp: Send + Sync {
    /// Connects and lists the server's tools. Enforces its own timeout; dropping the future cancels the attempt.
    fn connect(&self, server: Server) -> BoxFuture<'static, Result<ConnectedServer, McpError>>;
}

/// A connection to a server; dropping the last reference closes it.
pub trait Connection: Send + Sync {
    /// Calls a tool and returns its result as text. Enforces its own timeout. Dropping the future cancels the call,
    /// which may have taken effect by then.
    fn call(&self, tool: String, arguments: Map<String, Value>) -> BoxFuture<'static, Result<String, CallError>>;
}
