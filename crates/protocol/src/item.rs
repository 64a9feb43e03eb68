//! Conversation items, both ways: what a client creates, and what it is shown.

use super::error::WireError;
use super::mcp::{McpApproval, McpCallError, McpTool};
use super::read::{Fields, Node, Read, bad, not_among};
use super::setting::{MAX_NAME_BYTES, read_type};
use antiphon_types::ItemId;
use base64::Engine;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use bytes::Bytes;
use serde::Serialize;

/// One item of a conversation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Item {
    /// `None` where a client leaves the choice to the hub; always there in what the hub sends.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<ItemId>,
    #[serde(skip_serializing_if = "str::is_empty")]
    object: &'static str,
    /// What it is.
    #[serde(flatten)]
    pub body: ItemBody,
    /// How far it got.
    #[serde(skip_serializing_if = "ItemStatus::is_unsaid")]
    pub status: ItemStatus,
}

/// What an item is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum ItemBody {
    /// Something said or written.
    Message {
        /// By whom.
        role: Role,
        /// Its parts.
        content: Vec<Content>,
    },
    /// The model calls a function of the client's.
    FunctionCall {
        /// Ties the output to the call.
        call_id: String,
        /// Which function.
        name: String,
        /// JSON, empty while it is still being written.
        arguments: String,
    },
    /// What the function gave.
    FunctionCallOutput {
        /// Of which call.
        call_id: String,
        /// As the model is to read it.
        output: String,
    },
    /// The tools of a remote server.
    McpListTools {
        /// Which server.
        server_label: String,
        /// Empty until they are known.
        tools: Vec<McpTool>,
    },
    /// A call of a remote server's tool. Every field is always there, for one client throws without.
    McpCall {
        /// Which server.
        server_label: String,
        /// Which tool.
        name: String,
        /// JSON, empty while it is still being written.
        arguments: String,
        /// The request that was approved.
        approval_request_id: Option<ItemId>,
        /// What the tool gave.
        output: Option<String>,
        /// Why it gave nothing.
        error: Option<McpCallError>,
    },
    /// A call that waits for the client's consent.
    McpApprovalRequest {
        /// Which server.
        server_label: String,
        /// Which tool.
        name: String,
        /// JSON, empty while it is still being written.
        arguments: String,
    },
    /// The client's consent, or that there is none.
    McpApprovalResponse(McpApproval),
}

impl ItemBody {
    /// Whether the protocol gives such items neither object nor status.
    fn is_bare(&self) -> bool {
        matches!(
            self,
            Self::McpListTools { .. }
                | Self::McpCall { .. }
                | Self::McpApprovalRequest { .. }
                | Self::McpApprovalResponse(_)
        )
    }
}

/// Who speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// The person.
    User,
    /// Whoever set the conversation up.
    System,
    /// The model.
    Assistant,
}

/// How far an item got.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ItemStatus {
    /// Still growing.
    InProgress,
    /// Whole.
    Completed,
    /// Cut off.
    Incomplete,
    /// Of an item that has none.
    Unsaid,
}

impl ItemStatus {
    fn is_unsaid(&self) -> bool {
        *self == Self::Unsaid
    }
}

/// One part of a message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Content {
    /// Written by the user or the system.
    InputText {
        /// The text.
        text: String,
    },
    /// Spoken by the user.
    InputAudio {
        /// What a client sends, in the session's input format. The hub keeps no audio, so that its own items carry none.
        #[serde(skip_serializing)]
        audio: Option<Bytes>,
        /// Null until it is known.
        transcript: Option<String>,
    },
    /// Written by the model.
    OutputText {
        /// The text.
        text: String,
    },
    /// Spoken by the model.
    OutputAudio {
        /// What it says; null after a truncation.
        transcript: Option<String>,
    },
}

/// An item in `input` of `response.create`: a new one, or one that is there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InputItem {
    /// As in `conversation.item.create`.
    Item(Item),
    /// `item_reference`
    Reference(ItemId),
}

impl Item {
    /// An item as the hub shows it.
    pub fn new(id: ItemId, status: ItemStatus, body: ItemBody) -> Self {
        if body.is_bare() {
            return Self { id: Some(id), object: "", body, status: ItemStatus::Unsaid };
        }
        Self { id: Some(id), object: "realtime.item", body, status }
    }

    /// A message as the hub shows it.
    pub fn message(id: ItemId, status: ItemStatus, role: Role, content: Vec<Content>) -> Self {
        Self::new(id, status, ItemBody::Message { role, content })
    }

    pub(super) fn read(node: Node) -> Read<Self> {
        let mut fields = node.object()?;
        let kind =
            read_type(&mut fields, &["message", "function_call", "function_call_output", "mcp_approval_response"])?;
        Self::read_rest(kind, fields)
    }

    fn read_rest(kind: &str, mut fields: Fields) -> Read<Self> {
        let body = match kind {
            "message" => {
                let role = fields.required("role", |node| {
                    node.one_of(&[("user", Role::User), ("system", Role::System), ("assistant", Role::Assistant)])
                })?;
                ItemBody::Message { role, content: fields.required("content", |n| n.list(|n| Content::read(n, role)))? }
            }
            "function_call" => ItemBody::FunctionCall {
                call_id: fields.optional("call_id", |node| node.name(MAX_NAME_BYTES))?.unwrap_or_default(),
                name: fields.required("name", |node| node.name(MAX_NAME_BYTES))?,
                arguments: fields.required("arguments", Node::text)?,
            },
            "mcp_approval_response" => ItemBody::McpApprovalResponse(McpApproval {
                approval_request_id: fields.required("approval_request_id", read_item_id)?,
                approve: fields.required("approve", Node::flag)?,
                reason: fields.optional("reason", Node::text)?,
            }),
            _ => ItemBody::FunctionCallOutput {
                call_id: fields.required("call_id", |node| node.name(MAX_NAME_BYTES))?,
                output: fields.required("output", Node::text)?,
            },
        };
        let id = fields.optional("id", read_item_id)?;
        let names = [
            ("completed", ItemStatus::Completed),
            ("incomplete", ItemStatus::Incomplete),
            ("in_progress", ItemStatus::InProgress),
        ];
        let status = fields.optional("status", |node| node.one_of(&names))?.unwrap_or(ItemStatus::Completed);
        fields.pass_over(&["object"]);
        fields.finish()?;
        Ok(Self { id, object: "realtime.item", body, status })
    }
}

impl InputItem {
    pub(super) fn read(node: Node) -> Read<Self> {
        let mut fields = node.object()?;
        let names = ["message", "function_call", "function_call_output", "item_reference"];
        let kind = read_type(&mut fields, &names)?;
        if kind != "item_reference" {
            return Item::read_rest(kind, fields).map(Self::Item);
        }
        let id = fields.required("id", read_item_id)?;
        fields.finish()?;
        Ok(Self::Reference(id))
    }
}

impl Content {
    fn read(node: Node, role: Role) -> Read<Self> {
        let mut fields = node.object()?;
        let names: &[&str] = match role {
            Role::User => &["input_text", "input_audio"],
            Role::System => &["input_text"],
            Role::Assistant => &["output_text", "output_audio"],
        };
        let path = fields.path_of("type");
        let kind = fields.required("type", Node::text)?;
        if kind == "input_image" {
            let message = "Invalid value: 'input_image'. This server's models do not see images; describe them in \
                           'input_text'.";
            return Err(WireError::invalid("invalid_value", message, Some(&path)));
        }
        let content = match names.iter().find(|name| **name == kind).copied() {
            None => return Err(not_among(&path, &kind, names.iter().copied())),
            Some(kind) => kind,
        };
        let content = match content {
            "input_text" => Self::InputText { text: fields.required("text", Node::text)? },
            "input_audio" => Self::InputAudio {
                audio: Some(fields.required("audio", |node| {
                    let path = node.path().to_owned();
                    decode_audio(&path, &node.text()?)
                })?),
                transcript: fields.optional("transcript", Node::text)?,
            },
            "output_text" => Self::OutputText { text: fields.required("text", Node::text)? },
            // The audio itself cannot be played again by anyone; its words are what the model reads.
            _ => {
                fields.pass_over(&["audio"]);
                Self::OutputAudio { transcript: fields.optional("transcript", Node::text)? }
            }
        };
        fields.finish()?;
        Ok(content)
    }
}

/// An item's id as a client may choose it: printable ASCII, since it also travels in binary frames.
pub(super) fn read_item_id(node: Node) -> Read<ItemId> {
    let path = node.path().to_owned();
    let id = node.name(MAX_NAME_BYTES)?;
    if !id.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(bad(&path, "invalid_value", "an id is made of printable ASCII characters without spaces"));
    }
    Ok(ItemId::from(id))
}

/// Standard alphabet; padding may be missing, as some clients leave it out.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// Audio bytes out of base64; refused when bad or empty.
pub(super) fn decode_audio(param: &str, base64: &str) -> Read<Bytes> {
    let refuse = |got: &str| {
        let name = param.rsplit('.').next().unwrap_or(param);
        let message =
            format!("Invalid '{name}'. Expected base64-encoded audio bytes (mono PCM16 at 24kHz) but got {got}.");
        Err(WireError::invalid("invalid_value", message, Some(param)))
    };
    match BASE64.decode(base64) {
        Ok(bytes) if bytes.is_empty() => refuse("empty bytes"),
        Ok(bytes) => Ok(bytes.into()),
        Err(_) => refuse("an invalid value"),
    }
}
