//! Conversation items, as created by clients and as sent by the hub.

use super::error::WireError;
use super::limits::{MAX_IMAGE_BYTES, MAX_IMAGES};
use super::mcp::{McpApproval, McpCallError, McpTool};
use super::read::{Fields, Node, Read, bad, not_among};
use super::setting::{MAX_NAME_BYTES, read_type};
use antiphon_types::ItemId;
use antiphon_types::chat::{Image, ImageDetail};
use base64::Engine;
use base64::alphabet;
use base64::engine::general_purpose::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use bytes::Bytes;
use serde::Serialize;

/// A conversation item.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Item {
    /// Item id. `None` if a client lets the hub choose it; always present in items sent by the hub.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<ItemId>,
    #[serde(skip_serializing_if = "str::is_empty")]
    object: &'static str,
    /// The kind of item and its content.
    #[serde(flatten)]
    pub body: ItemBody,
    /// Status of the item.
    #[serde(skip_serializing_if = "ItemStatus::is_unsaid")]
    pub status: ItemStatus,
}

/// The kind of an item and its content.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum ItemBody {
    /// A message, spoken or written.
    Message {
        /// Author of the message.
        role: Role,
        /// Content parts.
        content: Vec<Content>,
    },
    /// A call of a client-side function by the model.
    FunctionCall {
        /// Identifier that links the output to the call.
        call_id: String,
        /// Name of the function.
        name: String,
        /// Arguments as JSON, empty while they are being generated.
        arguments: String,
    },
    /// The output of a function.
    FunctionCallOutput {
        /// Identifier of the call.
        call_id: String,
        /// Output as passed to the model.
        output: String,
    },
    /// The tool list of a remote server.
    McpListTools {
        /// Label of the server.
        server_label: String,
        /// The tools; empty until they are known.
        tools: Vec<McpTool>,
    },
    /// A tool call on a remote server. All fields are always present, because one client library fails otherwise.
    McpCall {
        /// Label of the server.
        server_label: String,
        /// Name of the tool.
        name: String,
        /// Arguments as JSON, empty while they are being generated.
        arguments: String,
        /// The approved approval request.
        approval_request_id: Option<ItemId>,
        /// Output of the tool.
        output: Option<String>,
        /// Why there is no output.
        error: Option<McpCallError>,
    },
    /// A tool call that waits for the client's approval.
    McpApprovalRequest {
        /// Label of the server.
        server_label: String,
        /// Name of the tool.
        name: String,
        /// Arguments as JSON, empty while they are being generated.
        arguments: String,
    },
    /// The client's decision on an approval request.
    McpApprovalResponse(McpApproval),
}

impl ItemBody {
    /// Whether the protocol defines neither `object` nor `status` for this kind of item.
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

/// The author of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// The user.
    User,
    /// The application, which sets up the conversation.
    System,
    /// The model.
    Assistant,
}

/// Status of an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ItemStatus {
    /// Still being generated.
    InProgress,
    /// Complete.
    Completed,
    /// Interrupted or truncated.
    Incomplete,
    /// The item has no status; the field is omitted.
    Unsaid,
}

impl ItemStatus {
    fn is_unsaid(&self) -> bool {
        *self == Self::Unsaid
    }
}

/// A content part of a message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Content {
    /// Text from the user or the system.
    InputText {
        /// The text.
        text: String,
    },
    /// Speech of the user.
    InputAudio {
        /// Audio sent by a client, in the session's input format. The hub stores no audio, so its own items have none.
        #[serde(skip_serializing)]
        audio: Option<Bytes>,
        /// Null until it is known.
        transcript: Option<String>,
    },
    /// An image that the user shows.
    InputImage {
        /// The image, which a client has sent already: it stays out of the hub's events.
        #[serde(skip_serializing)]
        image: Image,
        /// How closely the model looks at it.
        detail: ImageDetail,
    },
    /// Text from the model.
    OutputText {
        /// The text.
        text: String,
    },
    /// Speech of the model.
    OutputAudio {
        /// Transcript; null after a truncation.
        transcript: Option<String>,
    },
}

/// An item in `input` of `response.create`: a new item or a reference to an existing one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InputItem {
    /// A new item, as in `conversation.item.create`.
    Item(Item),
    /// `item_reference`
    Reference(ItemId),
}

impl Item {
    /// An item as created by a client that lets the hub choose its id.
    pub fn created(body: ItemBody) -> Self {
        Self { id: None, object: "realtime.item", body, status: ItemStatus::Completed }
    }

    /// An item as sent by the hub.
    pub fn new(id: ItemId, status: ItemStatus, body: ItemBody) -> Self {
        if body.is_bare() {
            return Self { id: Some(id), object: "", body, status: ItemStatus::Unsaid };
        }
        Self { id: Some(id), object: "realtime.item", body, status }
    }

    /// A message as sent by the hub.
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
                let path = fields.path_of("content");
                let content = fields.required("content", |node| node.list(|node| Content::read(node, role)))?;
                let n_images = content.iter().filter(|part| matches!(part, Content::InputImage { .. })).count();
                if n_images > MAX_IMAGES {
                    let problem = format!("it has {n_images} images, and may have at most {MAX_IMAGES}");
                    return Err(bad(&path, "array_above_max_length", &problem));
                }
                ItemBody::Message { role, content }
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
            Role::User => &["input_text", "input_audio", "input_image"],
            Role::System => &["input_text"],
            Role::Assistant => &["output_text", "output_audio"],
        };
        let path = fields.path_of("type");
        let kind = fields.required("type", Node::text)?;
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
            "input_image" => {
                let details = [("auto", ImageDetail::Auto), ("low", ImageDetail::Low), ("high", ImageDetail::High)];
                let detail = fields.optional("detail", |node| node.one_of(&details))?.unwrap_or_default();
                let image = fields.required("image_url", |node| {
                    let path = node.path().to_owned();
                    read_image(&path, &node.text_within(MAX_IMAGE_BYTES)?, detail)
                })?;
                Self::InputImage { image, detail }
            }
            "output_text" => Self::OutputText { text: fields.required("text", Node::text)? },
            // The audio itself cannot be played again; the model reads the transcript.
            _ => {
                fields.pass_over(&["audio"]);
                Self::OutputAudio { transcript: fields.optional("transcript", Node::text)? }
            }
        };
        fields.pass_over_nulls(&PART_FIELDS);
        fields.finish()?;
        Ok(content)
    }
}

/// The fields of a content part of any type.
const PART_FIELDS: [&str; 6] = ["audio", "detail", "format", "image_url", "text", "transcript"];

/// The formats of images, and how their files begin.
const IMAGE_FORMATS: [(&str, &[&[u8]]); 4] = [
    ("png", &[b"\x89PNG\r\n\x1a\n"]),
    ("jpeg", &[b"\xff\xd8\xff"]),
    ("gif", &[b"GIF87a", b"GIF89a"]),
    ("webp", &[b"RIFF"]),
];

/// Checks a data URL. Addresses are refused: the model's server, or this one, would fetch what a client names.
fn read_image(path: &str, url: &str, detail: ImageDetail) -> Read<Image> {
    let refuse = |problem: &str| {
        let expected = "Expected a data URL, 'data:image/png;base64,...', of a PNG, JPEG, GIF or WebP image";
        let message = format!("Invalid 'image_url': {problem}. {expected}.");
        Err(WireError::invalid("invalid_value", message, Some(path)))
    };
    let Some((head, rest)) = url.split_at_checked(DATA_SCHEME.len()) else { return refuse("it is no data URL") };
    if ["http:/", "https:"].iter().any(|scheme| url.to_ascii_lowercase().starts_with(scheme)) {
        return refuse("this server does not fetch images from addresses");
    }
    if !head.eq_ignore_ascii_case(DATA_SCHEME) {
        return refuse("it is no data URL");
    }
    let Some((media_type, base64)) = rest.split_once(";base64,") else { return refuse("it is not in base64") };
    let media_type = media_type.to_ascii_lowercase();
    let name = if media_type == "image/jpg" { Some("jpeg") } else { media_type.strip_prefix("image/") };
    let Some((name, magics)) = IMAGE_FORMATS.iter().find(|(format, _)| name == Some(*format)) else {
        return refuse("its media type is none that models take");
    };
    let Ok(bytes) = BASE64.decode(base64) else { return refuse("its base64 is not valid") };
    let is_webp = *name != "webp" || bytes.get(8..12) == Some(b"WEBP");
    if !is_webp || !magics.iter().any(|magic| bytes.starts_with(magic)) {
        return refuse(&format!("what it holds is no {name} image"));
    }
    // In one form, whatever the client left out: some servers want the padding.
    Ok(Image::new(&format!("data:image/{name};base64,{}", STANDARD.encode(bytes)), detail))
}

const DATA_SCHEME: &str = "data:";

/// Reads an item id chosen by a client: printable ASCII, because it is also sent in binary frames.
pub(super) fn read_item_id(node: Node) -> Read<ItemId> {
    let path = node.path().to_owned();
    let id = node.name(MAX_NAME_BYTES)?;
    if !id.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(bad(&path, "invalid_value", "an id is made of printable ASCII characters without spaces"));
    }
    Ok(ItemId::from(id))
}

/// Standard alphabet; padding is optional, because some clients omit it.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// Decodes base64 audio; rejects invalid or empty input.
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
