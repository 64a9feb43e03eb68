//! The language model port: messages in, text and tool-call deltas out.
//!
//! An engine stores no conversation: each request contains the complete context. It never speaks and never runs a tool.

mod error;

pub use error::LlmError;

use crate::Upstreams;
use antiphon_types::chat::{ChatRequest, Finish, Usage};
use futures_util::future::BoxFuture;
use futures_util::stream::BoxStream;
use std::time::Duration;

/// One streamed part of a response.
#[derive(Clone, Debug, PartialEq)]
pub enum LlmDelta {
    /// More text of the response, any length, never empty.
    Text(String),
    /// All text of the response so far was the model's thinking: it is neither said nor kept.
    Withdrawn,
    /// More of a tool call. `index` distinguishes several calls of one response; the first delta of an index carries
    /// `call_id` and `name`, later deltas leave them empty.
    ToolCall {
        /// Index of the call in the response, from 0.
        index: usize,
        /// The call's identifier, or empty.
        call_id: String,
        /// The function's name, or empty.
        name: String,
        /// More JSON text of the arguments; may be empty.
        arguments: String,
    },
    /// The end of the response; always the last delta of a stream that did not fail.
    Done {
        /// Why generation ended.
        finish: Finish,
        /// Token counts, if the engine reports them.
        usage: Option<Usage>,
    },
}

/// The language model port: one engine, shared by all sessions.
pub trait Llm: Send + Sync {
    /// The engine's name as configured, for `/readyz` and the logs.
    fn name(&self) -> &str;

    /// Opens the connection for the first response. The server calls it once at start; a local engine does nothing. An
    /// error explains why the server cannot be reached; the engine may still be used.
    fn warm(&self) -> BoxFuture<'_, Result<(), LlmError>> {
        Box::pin(std::future::ready(Ok(())))
    }

    /// ISO-639-1 code of the only language it understands; `None`: it understands several.
    fn language(&self) -> Option<&str> {
        None
    }

    /// Whether the model takes images, as far as is known. Messages with images reach an engine that takes none all the same,
    /// when it replaces another one in the middle of a conversation: it then reads their text.
    fn takes_images(&self) -> bool {
        false
    }

    /// The engines that may serve this stage, with their circuit breakers; `None` for a local engine alone.
    fn upstreams(&self) -> Option<Upstreams> {
        None
    }

    /// How long the first output of a request may take before a second request is worth its cost, from the outputs before it;
    /// `None`: never.
    fn hedge_delay(&self) -> Option<Duration> {
        None
    }

    /// How long the first token of a request may take now because the server may have to load the model first; `None`: the model
    /// is in memory, or is not loaded on request.
    fn loading_limit(&self) -> Option<Duration> {
        None
    }

    /// Streams one response. Dropping the stream cancels the request. The engine enforces its own timeouts.
    fn stream(&self, request: ChatRequest) -> BoxStream<'static, Result<LlmDelta, LlmError>>;
}
