//! The error type of the wire, with the codes, texts and parameters of the protocol's error table.
//!
//! Most errors come from parsing; the constructors at the end are for errors that only a session can detect (no active
//! response, unknown item). An error is a reply to a client event, never the end of a session.

use super::session_update::SessionKind;
use antiphon_types::{ItemId, ResponseId};
use serde::Serialize;
use std::time::Duration;

/// The `error` object of an `error` event.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, thiserror::Error)]
#[error("{message}")]
pub struct WireError {
    /// Who caused the error.
    #[serde(rename = "type")]
    pub kind: ErrorKind,
    /// Machine-readable code; some rows of the table have none.
    pub code: Option<&'static str>,
    /// Message for the client's developer.
    pub message: String,
    /// Dotted path of the parameter, for example `session.audio.input.format.rate`.
    pub param: Option<String>,
    /// The `event_id` of the client event that caused it.
    pub event_id: Option<String>,
}

/// Who caused an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum ErrorKind {
    /// The client sent an invalid request.
    #[serde(rename = "invalid_request_error")]
    InvalidRequest,
    /// A stage of the hub failed.
    #[serde(rename = "server_error")]
    Server,
    /// The client has used up a limit.
    #[serde(rename = "rate_limit_error")]
    RateLimit,
}

/// The operation that referred to an unknown item; it selects code and message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ItemUse {
    /// `conversation.item.truncate`
    Truncate,
    /// `conversation.item.delete`
    Delete,
    /// `conversation.item.retrieve`
    Retrieve,
    /// `previous_item_id` of `conversation.item.create`
    CreateAfter,
    /// `item_reference` in the input of `response.create`
    Reference,
}

/// Longest message, and longest parameter path, in characters. Both quote client input, whose megabytes must not be
/// sent back. The list of all event types fits.
const MAX_MESSAGE_CHARS: usize = 1200;
const MAX_PARAM_CHARS: usize = 256;

impl WireError {
    /// An error caused by the client. Texts that are too long are truncated.
    pub fn invalid(code: impl Into<Option<&'static str>>, message: impl Into<String>, param: Option<&str>) -> Self {
        Self {
            kind: ErrorKind::InvalidRequest,
            code: code.into(),
            message: shortened(message.into(), MAX_MESSAGE_CHARS),
            param: param.map(|param| shortened(param.to_owned(), MAX_PARAM_CHARS)),
            event_id: None,
        }
    }

    /// A failed stage: `code` names it, and `message` must be safe for the client (no secrets, no paths).
    pub fn server(code: &'static str, message: impl Into<String>) -> Self {
        Self { kind: ErrorKind::Server, code: Some(code), message: message.into(), param: None, event_id: None }
    }

    /// A limit of the client is used up; `message` says which, and when to try again.
    pub fn rate_limited(message: impl Into<String>) -> Self {
        Self {
            kind: ErrorKind::RateLimit,
            code: Some("rate_limit_exceeded"),
            message: message.into(),
            param: None,
            event_id: None,
        }
    }

    /// The same error with the id of the client event that caused it.
    pub fn answering(mut self, event_id: Option<&str>) -> Self {
        self.event_id = event_id.map(str::to_owned);
        self
    }

    /// A binary frame on a socket that did not enable them.
    pub fn binary_frame() -> Self {
        let message = "Expected a text WebSocket message; binary frames are not supported.";
        Self::invalid("invalid_event", message, None)
    }

    /// `input_audio_buffer.commit` with less than 100 ms of audio.
    pub fn commit_too_small(has_ms: f64) -> Self {
        let message = format!(
            "Error committing input audio buffer: buffer too small. Expected at least 100ms of audio, but buffer only \
             has {has_ms:.2}ms of audio."
        );
        Self::invalid("input_audio_buffer_commit_empty", message, None)
    }

    /// `response.cancel` without an active response.
    pub fn nothing_to_cancel() -> Self {
        Self::invalid("response_cancel_not_active", "Cancellation failed: no active response found", None)
    }

    /// `response.create` in the conversation while a response is active there.
    pub fn already_responding(active: &ResponseId) -> Self {
        let message = format!(
            "Conversation already has an active response in progress: {active}. Wait until the response is finished \
             before creating a new one."
        );
        Self::invalid("conversation_already_has_active_response", message, None)
    }

    /// `response.create` while `limit` responses are active.
    pub fn too_many_responses(limit: usize) -> Self {
        let message = format!("This session already has {limit} responses in progress. Wait until one is finished.");
        Self::invalid("too_many_active_responses", message, None)
    }

    /// `conversation.item.create` with an item larger than a conversation may be.
    pub fn item_too_large(bytes: usize, limit: usize) -> Self {
        let message =
            format!("Error creating item: its text has {bytes} bytes. A conversation keeps at most {limit} bytes.");
        Self::invalid("string_above_max_length", message, Some("item"))
    }

    /// The input buffer holds an utterance of the maximum length.
    pub fn buffer_full(limit: Duration) -> Self {
        let message = format!(
            "Error appending to the input audio buffer: it holds {} s of speech, the most there may be. Commit or clear \
             it; this audio was not taken.",
            limit.as_secs()
        );
        Self::invalid("input_audio_buffer_full", message, Some("audio"))
    }

    /// `conversation.item.truncate` beyond the end of the audio.
    pub fn truncate_beyond(has_ms: u64, asked_ms: u64) -> Self {
        let message = format!("Audio content of {has_ms}ms is already shorter than {asked_ms}ms");
        Self::invalid("invalid_value", message, Some("audio_end_ms"))
    }

    /// `conversation.item.truncate` of an item that is not response audio.
    pub fn not_truncatable() -> Self {
        Self::invalid(None, "Only model output audio messages can be truncated", None)
    }

    /// An unknown item id.
    pub fn unknown_item(wanted: ItemUse, id: &ItemId) -> Self {
        let (code, doing, param) = match wanted {
            ItemUse::Truncate => ("item_truncate_invalid_item_id", "truncating", "item_id"),
            ItemUse::Delete => ("item_delete_invalid_item_id", "deleting", "item_id"),
            ItemUse::Retrieve => ("item_retrieve_invalid_item_id", "retrieving", "item_id"),
            ItemUse::CreateAfter => ("item_create_invalid_previous_item_id", "creating", "previous_item_id"),
            ItemUse::Reference => ("response_create_invalid_item_reference", "referencing", "response.input"),
        };
        Self::invalid(code, format!("Error {doing} item: the item with id '{id}' does not exist."), Some(param))
    }

    /// `conversation.item.create` with an id that exists.
    pub fn duplicate_item(id: &ItemId) -> Self {
        let message = format!("Error creating item: an item with id '{id}' already exists.");
        Self::invalid("item_create_duplicate_item_id", message, Some("item.id"))
    }

    /// A `function_call_output` without a matching call.
    pub fn unknown_call(call_id: &str) -> Self {
        let message = format!("Error creating item: tool call ID '{call_id}' not found in conversation.");
        Self::invalid("invalid_tool_call_id", message, Some("item.call_id"))
    }

    /// An `mcp_approval_response` without a pending request.
    pub fn unknown_approval(id: &ItemId) -> Self {
        let message = format!("Error creating item: no approval request with id '{id}' waits for an answer.");
        Self::invalid("item_create_invalid_approval_request_id", message, Some("item.approval_request_id"))
    }

    /// A remote server that cannot be declared; `problem` states why.
    pub fn server_refused(label: &str, problem: &str, param: &str) -> Self {
        let message = format!("The MCP server '{label}' cannot be used: {problem}.");
        Self::invalid("mcp_server_not_allowed", message, Some(param))
    }

    /// A change of voice after the first audio of the assistant.
    pub fn cannot_update_voice() -> Self {
        let message = "Cannot update a conversation's voice if assistant audio is present.";
        Self::invalid("cannot_update_voice", message, Some("session.audio.output.voice"))
    }

    /// A `session.update` for the other kind of session.
    pub fn wrong_session_kind(is: SessionKind) -> Self {
        let (update, is) = match is {
            SessionKind::Realtime => ("transcription", "realtime"),
            SessionKind::Transcription => ("realtime", "transcription"),
        };
        let message = format!("Passing a {update} session update event to a {is} session is not allowed.");
        Self::invalid(None, message, Some("session.type"))
    }

    /// `response.create` in a transcription session.
    pub fn only_transcribes() -> Self {
        let message = "A transcription session makes no responses: 'response.create' is not allowed.";
        Self::invalid("invalid_event", message, Some("type"))
    }
}

/// Truncates a text to `max` characters and appends three dots if anything was removed.
fn shortened(mut text: String, max: usize) -> String {
    if let Some((end, _)) = text.char_indices().nth(max) {
        text.truncate(end);
        text.push_str("...");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_quoted_of_a_client_is_cut() {
        let path = format!("session.{}", "é".repeat(100_000));
        let error = WireError::invalid("unknown_parameter", format!("Unknown parameter: '{path}'."), Some(&path));
        assert_eq!(error.message.chars().count(), MAX_MESSAGE_CHARS + 3);
        assert_eq!(error.param.map(|param| param.chars().count()), Some(MAX_PARAM_CHARS + 3));
        let short = WireError::invalid(None, "Short.", Some("item.id"));
        assert_eq!((short.message.as_str(), short.param.as_deref()), ("Short.", Some("item.id")));
    }
}
