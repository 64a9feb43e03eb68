//! The offline assistant, which answers where no language model is configured: time and date, sums, counting, what it is to
//! repeat, one call of a declared tool, what it is, and a story to interrupt. Everything else it refuses in one sentence.
//!
//! The engine table assembles it. It keeps no state between requests, and opens no connection and no file. The clock is the
//! system's unless a test supplies another.

mod answers;
mod numbers;
mod sums;
mod tools;

use antiphon_engine_api::llm::{Llm, LlmDelta, LlmError};
use antiphon_types::chat::{ChatRequest, Finish, Message};
use futures_util::stream::{self, BoxStream, StreamExt};
use jiff::Zoned;
use std::sync::Arc;

/// The engine. Cheap to clone; answers at once, one word per delta.
#[derive(Clone)]
pub struct Assistant {
    clock: Arc<dyn Fn() -> Zoned + Send + Sync>,
}

impl Assistant {
    /// The assistant with the system's clock and time zone.
    #[allow(clippy::new_without_default, reason = "one that reads the clock is no default")]
    pub fn new() -> Self {
        Self { clock: Arc::new(Zoned::now) }
    }

    /// The same with another clock, for tests and replays.
    pub fn with_clock(clock: impl Fn() -> Zoned + Send + Sync + 'static) -> Self {
        Self { clock: Arc::new(clock) }
    }

    /// The answer to the last user message; never empty.
    pub fn answer(&self, messages: &[Message]) -> String {
        let conversation = Conversation::of(messages);
        let now = (self.clock)();
        let last_answer = conversation.last_answer.as_deref();
        let answer = conversation.requests().find_map(|request| answers::answer(&request, last_answer, &now));
        answer.unwrap_or_else(|| answers::REFUSAL.to_owned())
    }
}

impl Llm for Assistant {
    fn name(&self) -> &str {
        "assistant"
    }

    fn language(&self) -> Option<&str> {
        Some("en")
    }

    fn stream(&self, request: ChatRequest) -> BoxStream<'static, Result<LlmDelta, LlmError>> {
        let said = Conversation::of(&request.messages).requests().next().unwrap_or_default();
        let answer = match tools::next_step(&request, &said) {
            Some(tools::Step::Call { name, arguments }) => {
                let call_id = format!("call_{:016x}", rand::random::<u64>());
                let call = LlmDelta::ToolCall { index: 0, call_id, name, arguments };
                let end = LlmDelta::Done { finish: Finish::ToolCalls, usage: None };
                return stream::iter([Ok(call), Ok(end)]).boxed();
            }
            Some(tools::Step::Say(text)) => text,
            None => self.answer(&request.messages),
        };
        // A word counts as a token.
        let limit = request.max_tokens.map_or(usize::MAX, |limit| limit as usize);
        let finish = if answer.split_inclusive(' ').count() > limit { Finish::Length } else { Finish::Stop };
        let words: Vec<String> = answer.split_inclusive(' ').take(limit).map(str::to_owned).collect();
        let deltas = words.into_iter().map(LlmDelta::Text).chain([LlmDelta::Done { finish, usage: None }]);
        stream::iter(deltas.map(Ok)).boxed()
    }
}

/// A longer request, in characters, is cut.
const MAX_REQUEST_CHARS: usize = 2_000;

/// What the user has said since the last answer, and that answer.
#[derive(Default)]
struct Conversation {
    said: Vec<String>,
    last_answer: Option<String>,
}

impl Conversation {
    fn of(messages: &[Message]) -> Self {
        let mut conversation = Self::default();
        for message in messages {
            match message {
                Message::Assistant { text, .. } => {
                    conversation.said.clear();
                    if !text.is_empty() {
                        conversation.last_answer = Some(text.clone());
                    }
                }
                Message::User(_) | Message::UserParts(_) => {
                    conversation.said.extend(message.user_text().map(|text| text.trim().to_owned()));
                }
                _ => {}
            }
        }
        conversation
    }

    /// The last message; then all of them as one, for a user who went on speaking ("what is twelve", "plus seven").
    fn requests(&self) -> impl Iterator<Item = String> {
        let alone = self.said.last().cloned();
        let all = Some(self.said.join(" ")).filter(|_| self.said.len() > 1);
        alone.into_iter().chain(all).map(|text| text.chars().take(MAX_REQUEST_CHARS).collect())
    }
}

/// The words of a text in small letters, signs of arithmetic as words.
fn words(text: &str) -> Vec<String> {
    let chars: Vec<char> = text.to_lowercase().chars().collect();
    let is_digit = |at: Option<usize>| at.and_then(|at| chars.get(at)).is_some_and(char::is_ascii_digit);
    let mut plain = String::with_capacity(text.len());
    for (at, c) in chars.iter().enumerate() {
        match c {
            '+' => plain.push_str(" plus "),
            '*' | '×' => plain.push_str(" times "),
            '/' | '÷' => plain.push_str(" divided by "),
            '%' => plain.push_str(" percent "),
            '-' if is_digit(at.checked_sub(1)) && is_digit(Some(at + 1)) => plain.push_str(" minus "),
            '.' if is_digit(Some(at + 1)) => plain.push('.'),
            ',' if is_digit(at.checked_sub(1)) && is_digit(Some(at + 1)) => {}
            '\'' | '’' => {}
            c if c.is_alphanumeric() => plain.push(*c),
            _ => plain.push(' '),
        }
    }
    plain.split_whitespace().map(str::to_owned).collect()
}

/// The text with a capital at its beginning and a mark at its end.
fn sentence(text: &str) -> String {
    let mut text = capital(text.trim());
    if !text.ends_with(['.', '!', '?', '…']) {
        text.push('.');
    }
    text
}

/// The word with a capital letter.
fn capital(word: &str) -> String {
    let mut chars = word.chars();
    chars.next().map_or(String::new(), |first| first.to_uppercase().chain(chars).collect())
}
