//! What a response used: the model's own count of tokens, or an estimate.
//!
//! An engine that counts is believed. For one that does not (the offline assistant, servers without `usage`), and for a
//! response that was stopped before the count came, tokens are estimated from the text.

use super::{Content, Item, ItemKind};
use antiphon_types::Samples;
use antiphon_types::chat::{ChatRequest, Message, Usage, estimated_tokens};
use serde::Serialize;

/// What a response used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ResponseUsage {
    /// Tokens of text that the model read and wrote.
    pub text: Usage,
    /// Speech heard since the response before, at 16 kHz.
    pub heard: Samples,
    /// Speech made, in milliseconds.
    pub spoken_ms: u64,
}

/// Tokens the model reads in this request.
pub(super) fn tokens_read(chat: &ChatRequest) -> u64 {
    let of_message = |message: &Message| match message {
        Message::System(text) | Message::User(text) => n_chars(text),
        Message::Assistant { text, tool_calls } => {
            n_chars(text) + tool_calls.iter().map(|call| n_chars(&call.name) + n_chars(&call.arguments)).sum::<usize>()
        }
        Message::Tool { output, .. } => n_chars(output),
    };
    let tools = chat
        .tools
        .iter()
        .map(|tool| n_chars(&tool.name) + n_chars(&tool.description) + n_chars(tool.parameters.as_str()));
    estimated_tokens(chat.messages.iter().map(of_message).chain(tools).sum())
}

/// Tokens of these outputs.
pub(super) fn tokens_written<'a>(outputs: impl Iterator<Item = &'a Item>) -> u64 {
    let of_item = |item: &Item| match &item.kind {
        ItemKind::Message { content, .. } => content.iter().filter_map(Content::text).map(n_chars).sum(),
        ItemKind::FunctionCall { name, arguments, .. } => n_chars(name) + n_chars(arguments),
        ItemKind::RemoteCall { call, .. } | ItemKind::RemoteRequest(call) => {
            n_chars(&call.exposed) + n_chars(&call.arguments)
        }
        _ => 0,
    };
    estimated_tokens(outputs.map(of_item).sum())
}

fn n_chars(text: &str) -> usize {
    text.chars().count()
}
