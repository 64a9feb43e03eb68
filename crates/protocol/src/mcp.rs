//! MCP servers as declared by a client among its tools, and the related items.

use super::error::WireError;
use super::limits::MAX_FILTER_NAMES;
use super::read::{Fields, Node, Read, bad};
use super::setting::MAX_NAME_BYTES;
use antiphon_types::{ItemId, Json};
use serde::Serialize;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt;

/// Longest address of a server, and longest value of a header, in bytes.
const MAX_TEXT_BYTES: usize = 4096;
/// Number of headers a client may set for one server.
const MAX_HEADERS: usize = 16;
/// Number of servers per session.
pub(super) const MAX_SERVERS: usize = 8;

/// A remote server whose tools the model may call. Its secrets are never sent back.
#[derive(Clone, PartialEq, Serialize)]
pub struct McpServer {
    /// Label chosen by the client; unique in its list.
    pub server_label: String,
    /// Address. `None`: the server previously declared in this session with the same label.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server_url: Option<String>,
    /// Description of the server.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server_description: Option<String>,
    /// OAuth access token.
    #[serde(skip)]
    pub authorization: Option<String>,
    /// Additional headers of each request.
    #[serde(skip)]
    pub headers: BTreeMap<String, String>,
    /// Tools offered to the model; absent: all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allowed_tools: Option<ToolFilter>,
    /// Calls that need the client's approval; absent: all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub require_approval: Option<Approval>,
}

/// Omits the secrets.
impl fmt::Debug for McpServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("McpServer");
        shown.field("server_label", &self.server_label).field("server_url", &self.server_url).finish_non_exhaustive()
    }
}

/// Selects tools by name and by annotation.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ToolFilter {
    /// Accepted names; absent: any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool_names: Option<Vec<String>>,
    /// Required read-only annotation; absent: either.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub read_only: Option<bool>,
}

/// Which calls need approval.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum Approval {
    /// `"always"` or `"never"`.
    Flat(ApprovalWord),
    /// By tool; a tool that matches neither filter needs approval.
    ByTool {
        /// Calls that need approval.
        #[serde(skip_serializing_if = "Option::is_none")]
        always: Option<ToolFilter>,
        /// Calls that do not.
        #[serde(skip_serializing_if = "Option::is_none")]
        never: Option<ToolFilter>,
    },
}

/// All calls or none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ApprovalWord {
    /// Every call needs approval.
    Always,
    /// No call needs approval.
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
    /// Name of the tool on its server.
    pub name: String,
    /// What the tool does; never null, because one client library drops the item otherwise.
    pub description: String,
    /// JSON schema of the arguments.
    pub input_schema: Json,
    /// Annotations from the server.
    pub annotations: Option<Value>,
}

/// Why an `mcp_call` has no output.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum McpCallError {
    /// The server answered with a protocol error.
    ProtocolError {
        /// The protocol's error code.
        code: i64,
        /// The server's message.
        message: String,
    },
    /// The tool failed.
    ToolExecutionError {
        /// The tool's error message.
        message: String,
    },
    /// The server could not be reached.
    HttpError {
        /// HTTP status; 0 if there was none.
        code: i64,
        /// Description of the failure.
        message: String,
    },
}

/// A client's decision on an `mcp_approval_request`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct McpApproval {
    /// Id of the approval request.
    pub approval_request_id: ItemId,
    /// Whether the call is approved.
    pub approve: bool,
    /// Reason, passed to the model.
    pub reason: Option<String>,
}
