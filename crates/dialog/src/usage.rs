//! What a response used: the model's own count of tokens, or an estimate.
//!
//! An engine's own count wins. Where there is none (the offline assistant, servers without `usage`, a response that was
//! stopped before the count arrived) it is estimated from the text.

use super::{Content, Item, ItemKind};
use antiphon_types::Samples;
use antiphon_types::chat::{ChatRequest, Image, Message, Usage, UserPart, estimated_tokens};
use serde::Serialize;

/// What a response used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ResponseUsage {
    /// Tokens of text that the model read and wrote.
    pub text: Usage,
    /// Speech heard since the response before, at 16 kHz.
    pub input_audio: Samples,
    /// Speech made, in milliseconds.
    pub output_audio_ms: u64,
}

/// Tokens the model reads in this request: an estimate.
pub fn tokens_read(chat: &ChatRequest) -> u64 {
    let of_message = |message: &Message| match message {
        Message::UserParts(parts) => parts.iter().filter_map(UserPart::text).map(str::len).sum(),
        Message::System(text) | Message::User(text) => text.len(),
        Message::Assistant { text, tool_calls } => {
            text.len() + tool_calls.iter().map(|call| call.name.len() + call.arguments.len()).sum::<usize>()
        }
        Message::Tool { output, .. } => output.len(),
    };
    let tools = chat.tools.iter().map(|tool| tool.name.len() + tool.description.len() + tool.parameters.as_str().len());
    let images = chat.messages.iter().flat_map(Message::images).map(Image::estimated_tokens);
    estimated_tokens(chat.messages.iter().map(of_message).chain(tools).sum()) + images.sum::<u64>()
}

/// Tokens of these outputs.
pub(super) fn tokens_written<'a>(outputs: impl Iterator<Item = &'a Item>) -> u64 {
    let of_item = |item: &Item| match &item.kind {
        ItemKind::Message { content, .. } => content.iter().filter_map(Content::text).map(str::len).sum(),
        ItemKind::FunctionCall { name, arguments, .. } => name.len() + arguments.len(),
        ItemKind::RemoteCall { call, .. } | ItemKind::RemoteRequest(call) => call.exposed.len() + call.arguments.len(),
        _ => 0,
    };
    estimated_tokens(outputs.map(of_item).sum())
}
