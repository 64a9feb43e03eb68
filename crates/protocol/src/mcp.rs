//! MCP servers as a client declares them among its tools, and the items of their tools.

use super::error::WireError;
use super::limits::MAX_FILTER_NAMES;
use super::read::{Fields, Node, Read, bad};
use super::setting::MAX_NAME_BYTES;
use antiphon_types::{ItemId, Json};
use serde::Serialize;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt;

/// The longest address of a server, or value of a header, in bytes.
const MAX_TEXT_BYTES: usize = 4096;
/// Headers a client may have the hub send.
const MAX_HEADERS: usize = 16;
/// Servers of one session.
pub(super) const MAX_SERVERS: usize = 8;

/// A remote server whose tools the model may call. Its secrets are never sent back.
#[derive(Clone, PartialEq, Serialize)]
pub struct McpServer {
    /// What the client calls it; unique in its list.
    pub server_label: String,
    /// Where it is. `None`: the session's server of that label, as it was declared before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server_url: Option<String>,
    /// What it is for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server_description: Option<String>,
    /// An OAuth access token.
    #[serde(skip)]
    pub authorization: Option<String>,
    /// Further headers of each request.
    #[serde(skip)]
    pub headers: BTreeMap<String, String>,
    /// Which of its tools the model is shown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allowed_tools: Option<ToolFilter>,
    /// Which calls wait for the client's consent; absent: all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub require_approval: Option<Approval>,
}

/// Without the secrets.
impl fmt::Debug for McpServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("McpServer");
        shown.field("server_label", &self.server_label).field("server_url", &self.server_url).finish_non_exhaustive()
    }
}

/// Tools by name, or by what their server says of them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ToolFilter {
    /// These; absent: any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool_names: Option<Vec<String>>,
    /// Those marked as changing nothing, or those not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub read_only: Option<bool>,
}

/// Which calls wait for consent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum Approval {
    /// `"always"` or `"never"`.
    Flat(ApprovalWord),
    /// By tool; what neither names waits.
    ByTool {
        /// These wait.
        #[serde(skip_serializing_if = "Option::is_none")]
        always: Option<ToolFilter>,
        /// These do not.
        #[serde(skip_serializing_if = "Option::is_none")]
        never: Option<ToolFilter>,
    },
}

/// All or none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ApprovalWord {
    /// Every call waits.
    Always,
    /// No call does.
    Never,
}

impl McpServer {
    pub(super) fn read_rest(mut fields: Fields) -> Read<Self> {
        for other in ["connector_id", "tunnel_id"] {
            let path = fields.path_of(other);
            if fields.optional(other, |node| Ok(node.any()))?.is_some() {
                let message = format!("'{path}' is not supported: this server knows no connectors. Use 'server_url'.");
                return Err(WireError::invalid("unsupported_parameter", message, Some(&path)));
            }
        }
        let server = Self {
            server_label: fields.required("server_label", |node| node.name(MAX_NAME_BYTES))?,
            server_url: fields.optional("server_url", |node| node.name(MAX_TEXT_BYTES))?,
            server_description: fields.optional("server_description", |node| node.text_within(MAX_TEXT_BYTES))?,
            authorization: fields.optional("authorization", |node| node.name(MAX_TEXT_BYTES))?,
            headers: fields.optional("headers", read_headers)?.unwrap_or_default(),
            allowed_tools: fields.optional("allowed_tools", ToolFilter::read)?,
            require_approval: fields.optional("require_approval", Approval::read)?,
        };
        fields.pass_over(&["allowed_callers", "defer_loading"]);
        fields.finish()?;
        Ok(server)
    }
}

impl ToolFilter {
    fn read(node: Node) -> Read<Self> {
        if node.is_list() {
            return Ok(Self { tool_names: Some(read_names(node)?), read_only: None });
        }
        let mut fields = node.object()?;
        let filter = Self {
            tool_names: fields.optional("tool_names", read_names)?,
            read_only: fields.optional("read_only", Node::flag)?,
        };
        fields.finish()?;
        Ok(filter)
    }
}

impl Approval {
    fn read(node: Node) -> Read<Self> {
        if node.is_string() {
            let words = [("always", ApprovalWord::Always), ("never", ApprovalWord::Never)];
            return node.one_of(&words).map(Self::Flat);
        }
        let mut fields = node.object()?;
        let approval = Self::ByTool {
            always: fields.optional("always", ToolFilter::read)?,
            never: fields.optional("never", ToolFilter::read)?,
        };
        fields.finish()?;
        Ok(approval)
    }
}

fn read_names(node: Node) -> Read<Vec<String>> {
    node.list_within(MAX_FILTER_NAMES, |node| node.name(MAX_NAME_BYTES))
}

fn read_headers(node: Node) -> Read<BTreeMap<String, String>> {
    let path = node.path().to_owned();
    let pairs = node.object()?.rest();
    if pairs.len() > MAX_HEADERS {
        let problem = format!("too many headers. Expected at most {MAX_HEADERS}, but got {} instead", pairs.len());
        return Err(bad(&path, "object_above_max_properties", &problem));
    }
    let read = |(name, value): (String, Value)| match value {
        Value::String(text) if text.len() <= MAX_TEXT_BYTES => Ok((name, text)),
        _ => Err(bad(&format!("{path}.{name}"), "invalid_value", "expected a string of at most 4096 bytes")),
    };
    pairs.into_iter().map(read).collect()
}

/// A tool in an `mcp_list_tools` item.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct McpTool {
    /// As its server calls it.
    pub name: String,
    /// What it does; never null, for one client drops the item else.
    pub description: String,
    /// JSON schema of its arguments.
    pub input_schema: Json,
    /// The server's hints.
    pub annotations: Option<Value>,
}

/// Why an `mcp_call` gave no output.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum McpCallError {
    /// The server refused it.
    ProtocolError {
        /// The protocol's.
        code: i64,
        /// The server's words.
        message: String,
    },
    /// The tool failed.
    ToolExecutionError {
        /// Its words.
        message: String,
    },
    /// The server was not reached.
    HttpError {
        /// The status; 0 where there was none.
        code: i64,
        /// What happened.
        message: String,
    },
}

/// A client's answer to an `mcp_approval_request`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct McpApproval {
    /// Which request.
    pub approval_request_id: ItemId,
    /// Yes or no.
    pub approve: bool,
    /// Why, for the model.
    pub reason: Option<String>,
}
