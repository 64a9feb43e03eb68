//! Tools of remote servers (Model Context Protocol): a server as declared, its tools, and what may be done with them.

mod policy;
mod secret;

pub use policy::{Consent, Declared, Filter};

use crate::Json;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt;

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

/// A call that gave no result. The model reads the words.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
pub enum CallError {
    /// The server refused it by its protocol.
    #[error("{message}")]
    Protocol {
        /// The protocol's code.
        code: i64,
        /// The server's words, shortened.
        message: String,
    },
    /// The tool ran and failed, or could not be run.
    #[error("{0}")]
    Tool(String),
    /// The server could not be reached.
    #[error("{0}")]
    Http(String),
}
