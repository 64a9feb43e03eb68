//! Tools of remote servers, by the Model Context Protocol (MCP) over streamable HTTP.
//!
//! [`Mcp`] is the port as a session sees it: [`http::Http`] implements it with the crate `rmcp`. A session connects to
//! the servers its client declared, is told their tools, and calls them. Which servers may be reached at all is the
//! operator's choice ([`McpConfig::allows`]), for the hub reaches them from its own place in the network. Tools are
//! called, never interpreted; neither keys nor what is said to a tool is logged.

mod allow;
mod client;
mod config;
mod error;
mod headers;
pub mod http;
mod policy;
mod secret;

pub use config::McpConfig;
pub use error::{CallError, McpError};
pub use headers::check as check_header;
pub use policy::{Consent, Declared, Filter};

use crate::units::Json;
use futures_util::future::BoxFuture;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

/// A server as a client declared it.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Server {
    /// What the client calls it; unique in a session.
    pub label: String,
    /// `http://` or `https://`.
    pub url: String,
    /// An OAuth access token, sent as a bearer's.
    #[serde(serialize_with = "secret::stand_in")]
    pub authorization: Option<String>,
    /// Further headers of each request.
    #[serde(serialize_with = "secret::stand_ins")]
    pub headers: BTreeMap<String, String>,
}

/// Without the secrets.
impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server").field("label", &self.label).field("url", &self.url).finish_non_exhaustive()
    }
}

/// A tool of a server.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RemoteTool {
    /// As the server calls it.
    pub name: String,
    /// What it does; may be empty.
    pub description: String,
    /// JSON schema of its arguments.
    pub input_schema: Json,
    /// The server's hints, as they came.
    pub annotations: Option<Value>,
}

impl RemoteTool {
    /// Bytes of its texts: name, description, schema, hints.
    pub fn n_bytes(&self) -> usize {
        let hints = self.annotations.as_ref().map_or(0, |hints| hints.to_string().len());
        self.name.len() + self.description.len() + self.input_schema.n_bytes() + hints
    }

    /// Whether the server says that the tool changes nothing.
    pub fn is_read_only(&self) -> bool {
        self.annotations.as_ref().is_some_and(|hints| hints["readOnlyHint"] == true)
    }
}

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
