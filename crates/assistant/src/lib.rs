//! Antiphon's offline assistant: it answers questions about time, dates, sums, units, words and chance, calls declared
//! tools, and says in one short sentence what it cannot do.
//!
//! The root package assembles it when no language model is configured. It keeps no state between requests and never opens a
//! network connection or a file. The clock is the system's unless a test supplies another.
//!
//! A request passes through `conversation` (messages to request and history), `query` (normalised words) and `intents`
//! (one ordered table; the first match answers). Each family of intents is one file; what they know is in `data/`.

mod arithmetic;
mod calendar;
mod chance;
mod clock;
mod conversation;
mod counting;
mod data;
mod days;
mod expression;
mod facts;
mod intents;
mod number_facts;
mod numbers;
mod query;
mod repeating;
mod small_talk;
mod spelling;
mod tools;
mod units;

use crate::conversation::{Context, Conversation};
use antiphon_engine_api::llm::{Llm, LlmDelta, LlmError};
use antiphon_types::chat::{ChatRequest, Finish, Message};
use futures_util::stream::{self, BoxStream, StreamExt};
use jiff::Zoned;
use serde_json::{Map, Value};
use std::sync::Arc;

/// The engine. Cheap to clone; answers at once, one word per delta.
#[derive(Clone)]
pub struct Assistant {
    clock: Arc<dyn Fn() -> Zoned + Send + Sync>,
    /// A random number below its argument.
    dice: Arc<dyn Fn(u32) -> u32 + Send + Sync>,
}

impl Assistant {
    /// The assistant with the system's clock and time zone.
    #[allow(clippy::new_without_default, reason = "one that reads the clock is no default")]
    pub fn new() -> Self {
        Self { clock: Arc::new(Zoned::now), dice: Arc::new(|n| rand::random_range(0..n.max(1))) }
    }

    /// The same with another clock, for tests and replays.
    pub fn with_clock(clock: impl Fn() -> Zoned + Send + Sync + 'static) -> Self {
        Self { clock: Arc::new(clock), ..Self::new() }
    }

    /// The same with other random numbers: `dice` returns a number below its argument, which is at least 1.
    pub fn with_dice(self, dice: impl Fn(u32) -> u32 + Send + Sync + 'static) -> Self {
        Self { dice: Arc::new(dice), ..self }
    }

    /// The answer to the last user message; never empty.
    pub fn answer(&self, messages: &[Message]) -> String {
        self.in_context(messages, intents::answer)
    }

    fn in_context<T>(&self, messages: &[Message], answer: impl FnOnce(&Context<'_>, &str) -> T) -> T {
        let conversation = Conversation::of(messages);
        let now = (self.clock)();
        let context = Context::new(&now, &*self.dice, &conversation.past);
        answer(&context, &conversation.request(|text| intents::stands_alone(&context, text)))
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
        let step = self.in_context(&request.messages, |context, text| tools::next_step(&request, text, context));
        let answer = match step {
            Some(tools::Step::Call(calls)) => return stream::iter(call_deltas(calls).map(Ok)).boxed(),
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

/// Each call in one delta, then the end.
fn call_deltas(calls: Vec<(String, Map<String, Value>)>) -> impl Iterator<Item = LlmDelta> {
    let deltas = calls.into_iter().enumerate().map(|(index, (name, arguments))| LlmDelta::ToolCall {
        index,
        call_id: format!("call_{:016x}", rand::random::<u64>()),
        name,
        arguments: Value::Object(arguments).to_string(),
    });
    deltas.chain([LlmDelta::Done { finish: Finish::ToolCalls, usage: None }])
}

/// The text with a capital at its beginning and a mark at its end.
fn sentence(text: &str) -> String {
    let mut text = capital(text.trim());
    if !text.ends_with(['.', '!', '?', '…']) && !text.is_empty() {
        text.push('.');
    }
    text
}

/// The word with a capital letter.
fn capital(word: &str) -> String {
    let mut chars = word.chars();
    chars.next().map_or(String::new(), |first| first.to_uppercase().chain(chars).collect())
}

/// `one, two and three`.
fn and_list(items: &[impl AsRef<str>]) -> String {
    let items: Vec<&str> = items.iter().map(AsRef::as_ref).collect();
    match items.as_slice() {
        [] => String::new(),
        [one] => (*one).to_owned(),
        [first @ .., last] => format!("{} and {last}", first.join(", ")),
    }
}

/// `1 day`, `2 days`.
fn count(n: i64, unit: &str) -> String {
    if n == 1 { format!("1 {unit}") } else { format!("{n} {unit}s") }
}

fn yes_no(yes: bool) -> &'static str {
    if yes { "yes" } else { "no" }
}
