//! The port of language models: messages in, text and tool-call deltas out.
//!
//! An engine keeps no conversation: each request carries all the model is to know. It never speaks, and never runs a tool.

mod error;

pub use error::LlmError;

use crate::stt::VocabularyHint;
use antiphon_types::chat::{ChatRequest, Finish, Usage};
use futures_util::future::BoxFuture;
use futures_util::stream::BoxStream;
use std::sync::Arc;

/// What a model streams.
#[derive(Clone, Debug, PartialEq)]
pub enum LlmDelta {
    /// More of the answer, any length, never empty.
    Text(String),
    /// More of a tool call. `index` tells several calls of one answer apart; the first delta of an index carries
    /// `call_id` and `name`, later ones leave them empty.
    ToolCall {
        /// Which call of the answer, from 0.
        index: usize,
        /// The call's identifier, or empty.
        call_id: String,
        /// The function's name, or empty.
        name: String,
        /// More JSON text of the arguments; may be empty.
        arguments: String,
    },
    /// The end; always the last delta of a stream that did not fail.
    Done {
        /// Why it ended.
        finish: Finish,
        /// Tokens used, where the engine counts them.
        usage: Option<Usage>,
    },
}

/// The port: one engine, shared by all sessions.
pub trait Llm: Send + Sync {
    /// The engine's name as configured, for `/readyz` and the logs.
    fn name(&self) -> &str;

    /// Opens the connection the first answer will need. The server calls it once at start; a local engine has nothing to
    /// do. An error says why its server cannot be reached; the engine may be used all the same.
    fn warm(&self) -> BoxFuture<'_, Result<(), LlmError>> {
        Box::pin(std::future::ready(Ok(())))
    }

    /// The sentences it understands, where it understands no others; recognizers are told.
    fn vocabulary(&self) -> Option<Arc<VocabularyHint>> {
        None
    }

    /// Streams one answer. Dropping the stream cancels the work; it carries its own deadlines.
    fn stream(&self, request: ChatRequest) -> BoxStream<'static, Result<LlmDelta, LlmError>>;
}
