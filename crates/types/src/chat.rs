//! The requests a language model receives and the parts of its responses: messages, tools, tool calls, usage.

use crate::{Json, Meter};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

/// Estimated tokens of a text of `n_bytes`, rounded up, where no model has counted them: of a request that must fit a budget,
/// and of an answer whose engine reports no count.
///
/// English has 4 to 5 bytes a token with the usual vocabularies; the protocol's documentation names four characters. Other
/// alphabets have about 3 bytes a character and rather less than one token a character.
pub const fn estimated_tokens(n_bytes: usize) -> u64 {
    n_bytes.div_ceil(4) as u64
}

/// Tokens that `ms` of synthesized speech count as: one for each 50 ms, as in the protocol.
pub fn spoken_tokens(ms: u64) -> u64 {
    ms.div_ceil(50)
}

/// One request to a language model: the conversation and the generation options.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ChatRequest {
    /// The system prompt, then the conversation in order.
    pub messages: Vec<Message>,
    /// The tools the model may call.
    pub tools: Vec<Tool>,
    /// Whether the model may or must call a tool.
    pub tool_choice: ToolChoice,
    /// Limit on generated tokens; `None`: the limit from the configuration.
    pub max_tokens: Option<u32>,
    /// Opaque identifier of the conversation. An engine may use it to route to a warm cache, and for nothing else.
    pub user: Option<String>,
    /// What it costs, and who serves it; the engine fills it in.
    #[serde(skip)]
    pub meter: Meter,
}

/// One message of the conversation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Message {
    /// The system prompt or other instructions.
    System(String),
    /// What the user said or typed.
    User(String),
    /// A message of the user that holds images: its parts, in order.
    UserParts(Vec<UserPart>),
    /// What the assistant said, truncated to what the user heard, and the tools it called.
    Assistant {
        /// The text; may be empty if tools were called.
        text: String,
        /// The calls, in order.
        tool_calls: Vec<ToolCall>,
    },
    /// The result of a tool call.
    Tool {
        /// Identifier of the call that this result answers.
        call_id: String,
        /// The result as text, in any format.
        output: String,
    },
}

impl Message {
    /// The user's words in this message, without its images; `None` if it is not the user's.
    pub fn user_text(&self) -> Option<Cow<'_, str>> {
        match self {
            Self::User(text) => Some(text.into()),
            Self::UserParts(parts) => {
                Some(parts.iter().filter_map(UserPart::text).collect::<Vec<_>>().join(" ").into())
            }
            Self::System(_) | Self::Assistant { .. } | Self::Tool { .. } => None,
        }
    }

    /// The images in this message.
    pub fn images(&self) -> impl Iterator<Item = &Image> {
        let parts = match self {
            Self::UserParts(parts) => &parts[..],
            _ => &[],
        };
        parts.iter().filter_map(|part| match part {
            UserPart::Image(image) => Some(image),
            UserPart::Text(_) => None,
        })
    }
}

/// A part of a user's message.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum UserPart {
    /// What the user said or typed.
    Text(String),
    /// What the user showed.
    Image(Image),
}

impl UserPart {
    /// The text of a part that is no image.
    pub fn text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            Self::Image(_) => None,
        }
    }
}

/// An image as a data URL. Cheap to clone.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Image {
    #[serde(serialize_with = "write_url", deserialize_with = "read_url")]
    url: Arc<str>,
    /// How closely the model looks at it.
    pub detail: ImageDetail,
}

/// How closely a model looks at an image.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ImageDetail {
    /// The model decides.
    #[default]
    Auto,
    /// Coarsely, for few tokens.
    Low,
    /// Closely.
    High,
}

impl Image {
    /// `url`: a data URL, which the caller has checked.
    pub fn new(url: &str, detail: ImageDetail) -> Self {
        Self { url: url.into(), detail }
    }

    /// The data URL.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Estimated tokens: as OpenAI counts them for models of the GPT-4o family, 85 coarsely, and closely 170 more for each tile
    /// of 512 pixels, of which a square image has four. <https://platform.openai.com/docs/guides/images-vision#calculating-costs>
    pub fn estimated_tokens(&self) -> u64 {
        match self.detail {
            ImageDetail::Low => 85,
            ImageDetail::Auto | ImageDetail::High => 85 + 4 * 170,
        }
    }
}

/// Without the image: it is the user's.
impl fmt::Debug for Image {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Image({} bytes, {:?})", self.url.len(), self.detail)
    }
}

fn write_url<S: Serializer>(url: &Arc<str>, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(url)
}

fn read_url<'de, D: Deserializer<'de>>(from: D) -> Result<Arc<str>, D::Error> {
    String::deserialize(from).map(Arc::from)
}

/// A function that the model may call.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Tool {
    /// The function's name.
    pub name: String,
    /// What the function does, for the model.
    pub description: String,
    /// JSON schema of the arguments.
    pub parameters: Json,
}

/// A tool call issued by the model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ToolCall {
    /// The call's identifier.
    pub call_id: String,
    /// The function's name.
    pub name: String,
    /// The arguments as JSON text.
    pub arguments: String,
}

/// Whether the model may or must call tools.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub enum ToolChoice {
    /// The model decides.
    #[default]
    Auto,
    /// The model must not call a tool.
    None,
    /// The model must call at least one tool.
    Required,
    /// The model must call the named function.
    Function(String),
}

/// Why generation ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Finish {
    /// The response is complete.
    Stop,
    /// The token limit was reached.
    Length,
    /// The model called tools and needs their results.
    ToolCalls,
    /// A content filter stopped it.
    ContentFilter,
}

/// Token counts of one request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    /// Tokens read by the model.
    pub input_tokens: u64,
    /// Tokens generated by the model.
    pub output_tokens: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_is_stored_and_stays_out_of_logs() {
        let image = Image::new("data:image/png;base64,c2VjcmV0", ImageDetail::Low);
        let stored = serde_json::to_string(&image).unwrap();
        assert_eq!(stored, r#"{"url":"data:image/png;base64,c2VjcmV0","detail":"low"}"#);
        assert_eq!(serde_json::from_str::<Image>(&stored).unwrap(), image);
        assert_eq!(format!("{image:?}"), "Image(30 bytes, Low)");
    }

    #[test]
    fn tokens_are_estimated_from_bytes_and_counted_by_milliseconds() {
        assert_eq!([0, 1, 4, 5, 400].map(estimated_tokens), [0, 1, 1, 2, 100]);
        assert_eq!([0, 1, 50, 51, 1_000].map(spoken_tokens), [0, 1, 1, 2, 20]);
    }
}
