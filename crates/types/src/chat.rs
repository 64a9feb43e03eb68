//! What a language model reads and answers: messages, tools, calls.

use crate::Json;
use serde::{Deserialize, Serialize};

/// The estimate of tokens in so many characters of text, for engines that do not count: four characters a token, as
/// tokenizers give for English prose on average and the protocol's documentation names.
pub fn estimated_tokens(n_chars: usize) -> u64 {
    n_chars.div_ceil(4) as u64
}

/// The tokens that speech made of so many milliseconds counts as: one for each 50 ms, as the protocol counts.
pub fn spoken_tokens(ms: u64) -> u64 {
    ms.div_ceil(50)
}

/// One request: the conversation so far and how to go on.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ChatRequest {
    /// System prompt first, then the conversation in order.
    pub messages: Vec<Message>,
    /// What the model may call.
    pub tools: Vec<Tool>,
    /// Whether it must.
    pub tool_choice: ToolChoice,
    /// At most this many tokens of answer; `None`: the configuration's limit.
    pub max_tokens: Option<u32>,
    /// The conversation this belongs to, an opaque name. Engines may use it to route to a warm cache, and no more.
    pub user: Option<String>,
}

/// One message of the conversation.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub enum Message {
    /// Instructions.
    System(String),
    /// What the person said or wrote.
    User(String),
    /// What the assistant said, as far as it was heard, and the tools it called.
    Assistant {
        /// The words; may be empty when tools were called.
        text: String,
        /// The calls, in order.
        tool_calls: Vec<ToolCall>,
    },
    /// A tool's result.
    Tool {
        /// The call it answers.
        call_id: String,
        /// The result, any text.
        output: String,
    },
}

/// A function the model may call.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Tool {
    /// The function's name.
    pub name: String,
    /// What it does.
    pub description: String,
    /// JSON schema of its arguments.
    pub parameters: Json,
}

/// A call the model made.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ToolCall {
    /// The call's identifier.
    pub call_id: String,
    /// The function.
    pub name: String,
    /// JSON text.
    pub arguments: String,
}

/// Whether the model may or must call tools.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub enum ToolChoice {
    /// As it sees fit.
    #[default]
    Auto,
    /// It must not.
    None,
    /// It must call one.
    Required,
    /// It must call this one.
    Function(String),
}

/// Why an answer ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Finish {
    /// It was complete.
    Stop,
    /// It reached the limit of tokens.
    Length,
    /// It waits for tool results.
    ToolCalls,
    /// A filter cut it.
    ContentFilter,
}

/// Tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    /// Read by the model.
    pub input_tokens: u64,
    /// Written by the model.
    pub output_tokens: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_estimated_from_characters_and_counted_by_milliseconds() {
        assert_eq!([0, 1, 4, 5, 400].map(estimated_tokens), [0, 1, 1, 2, 100]);
        assert_eq!([0, 1, 50, 51, 1_000].map(spoken_tokens), [0, 1, 1, 2, 20]);
    }
}
