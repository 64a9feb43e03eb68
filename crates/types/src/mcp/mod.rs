//! Remote tools (Model Context Protocol): a declared server, its tools, and the policy for using them.

mod policy;
mod secret;

pub use policy::{Consent, DeclaredServer, Filter};

use crate::Json;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt;

/// An MCP server as declared by a client.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Server {
    /// Label chosen by the client; unique within a session.
    pub label: String,
    /// Address, `http://` or `https://`.
    pub url: String,
    /// OAuth access token, sent as a bearer token. Serialized as a digest.
    #[serde(serialize_with = "secret::stand_in")]
    pub authorization: Option<String>,
    /// Additional headers sent with each request. Their values are serialized as digests.
    #[serde(serialize_with = "secret::stand_ins")]
    pub headers: BTreeMap<String, String>,
}

/// Omits the token and the headers.
impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server").field("label", &self.label).field("url", &self.url).finish_non_exhaustive()
    }
}

/// A tool offered by a server.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RemoteTool {
    /// Name of the tool on its server.
    pub name: String,
    /// What the tool does; may be empty.
    pub description: String,
    /// JSON schema of the arguments.
    pub input_schema: Json,
    /// Annotations from the server, unmodified.
    pub annotations: Option<Value>,
}

impl RemoteTool {
    /// Total length in bytes of the name, description, schema and annotations.
    pub fn n_bytes(&self) -> usize {
        let hints = self.annotations.as_ref().map_or(0, |hints| hints.to_string().len());
        self.name.len() + self.description.len() + self.input_schema.n_bytes() + hints
    }

    /// Whether the server marks the tool as read-only (`readOnlyHint`).
    pub fn is_read_only(&self) -> bool {
        self.annotations.as_ref().is_some_and(|hints| hints["readOnlyHint"] == true)
    }
}

/// A failed tool call. The message is passed to the model.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
pub enum CallError {
    /// The server answered with a protocol error.
    #[error("{message}")]
    Protocol {
        /// The error code of the protocol.
        code: i64,
        /// The server's message, truncated.
        message: String,
    },
    /// The tool failed or could not be run.
    #[error("{0}")]
    Tool(String),
    /// The server could not be reached.
    #[error("{0}")]
    Http(String),
}
