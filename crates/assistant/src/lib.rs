//! The offline assistant: a few dozen things it really can do, and an honest word about the rest.
//!
//! `engines` makes it when no language model is configured. It reads the conversation's messages, so that "another one"
//! and "and times two" are understood, and keeps nothing itself. It reaches for no network and no file; its clock is
//! the system's, unless a test gives another.
//!
//! A request goes through `query` (words, without politeness) and `router` (which asks every field and takes the
//! answer most likely meant). Each field is a file with one function `answer(scene, query) -> Option<Reply>`; a new
//! field is a file and a row in the router's table.

mod arithmetic;
mod calendar;
mod calendar_facts;
mod chance;
mod clock;
mod counting;
mod days;
mod fillers;
mod knowledge;
mod knowledge_tables;
mod misheard;
mod number_facts;
mod number_words;
mod numbers;
mod query;
mod repair;
mod repeating;
mod router;
mod small_talk;
mod spelling;
mod stories;
mod sums;
mod talks;
#[cfg(test)]
mod testing;
mod this_period;
mod tools;
mod unit_mentions;
mod unit_table;
mod units_of_measure;
mod value;
mod vocabulary;

pub use vocabulary::vocabulary;

use antiphon_engine_api::llm::{Llm, LlmDelta, LlmError};
use antiphon_engine_api::stt::VocabularyHint;
use antiphon_types::chat::{ChatRequest, Finish, Message};
use futures_util::stream::{self, BoxStream, StreamExt};
use jiff::Zoned;
use serde_json::{Map, Value};
use std::sync::Arc;

/// The engine. Cheap to clone; answers at once, word by word.
#[derive(Clone)]
pub struct Assistant {
    clock: Arc<dyn Fn() -> Zoned + Send + Sync>,
    /// A random number below its argument.
    dice: Arc<dyn Fn(u32) -> u32 + Send + Sync>,
}

/// What an answer may depend on besides the request.
struct Scene<'a> {
    now: &'a Zoned,
    dice: &'a (dyn Fn(u32) -> u32 + Send + Sync),
    /// The conversation before, the oldest first.
    past: &'a [Exchange],
    /// How many questions back one may go on resolving follow-ups of follow-ups.
    depth: usize,
}

impl<'a> Scene<'a> {
    /// The last exchange, and the scene as it was before it. `None` too where that was resolved far enough back.
    fn before_last(&self) -> Option<(&'a Exchange, Self)> {
        let (last, before) = self.past.split_last()?;
        Some((last, Self { past: before, depth: self.depth.checked_sub(1)?, ..*self }))
    }
}

impl Clone for Scene<'_> {
    fn clone(&self) -> Self {
        *self
    }
}

impl Copy for Scene<'_> {}

/// What was asked and what was answered, as far as it was heard.
#[derive(Clone, Debug, Default)]
struct Exchange {
    question: String,
    answer: String,
}

/// A field's answer.
#[derive(Clone, Debug, PartialEq)]
struct Reply {
    /// How likely it was meant, up to 100.
    score: u8,
    text: String,
}

/// A chain of follow-ups is followed so far back: each step reads a request anew.
const DEPTH: usize = 6;

/// So much of the conversation is looked at.
const REMEMBERED: usize = 50;

/// Stands for an answer where a tool was called and nothing said yet.
const CALLED: &str = "One moment.";

/// A longer request is no request to this assistant; it is cut before it is looked at.
const LONGEST_REQUEST: usize = 2_000;

impl Default for Assistant {
    fn default() -> Self {
        Self::new()
    }
}

impl Assistant {
    /// The assistant with the system's clock and time zone.
    pub fn new() -> Self {
        Self { clock: Arc::new(Zoned::now), dice: Arc::new(|n| rand::random_range(0..n.max(1))) }
    }

    /// The same with another clock; tests and replays use it.
    pub fn with_clock(clock: impl Fn() -> Zoned + Send + Sync + 'static) -> Self {
        Self { clock: Arc::new(clock), ..Self::new() }
    }

    /// The answer to the last user message.
    pub fn answer(&self, messages: &[Message]) -> String {
        let (said, past) = conversation(messages);
        let now = (self.clock)();
        let scene = self.scene(&now, &past);
        router::answer(&scene, &request(&scene, &said))
    }

    fn scene<'a>(&'a self, now: &'a Zoned, past: &'a [Exchange]) -> Scene<'a> {
        Scene { now, dice: &*self.dice, past: &past[past.len().saturating_sub(REMEMBERED)..], depth: DEPTH }
    }

    /// What the tools have to do with it, if anything.
    fn tools(&self, request: &ChatRequest) -> Option<tools::Move> {
        let (said, past) = conversation(&request.messages);
        let now = (self.clock)();
        let scene = self.scene(&now, &past);
        let text = self::request(&scene, &said);
        tools::decide(request, &text, &past, &|text| router::understands(&scene, text))
    }
}

impl Llm for Assistant {
    fn name(&self) -> &str {
        "assistant"
    }

    fn vocabulary(&self) -> Option<Arc<VocabularyHint>> {
        Some(vocabulary())
    }

    fn stream(&self, request: ChatRequest) -> BoxStream<'static, Result<LlmDelta, LlmError>> {
        let answer = match self.tools(&request) {
            Some(tools::Move::Call(calls)) => return stream::iter(call_deltas(calls).map(Ok)).boxed(),
            Some(tools::Move::Say(text)) => text,
            None => self.answer(&request.messages),
        };
        // A word is a token here.
        let limit = request.max_tokens.map_or(usize::MAX, |limit| limit as usize);
        let finish = if answer.split_inclusive(' ').count() > limit { Finish::Length } else { Finish::Stop };
        let words: Vec<String> = answer.split_inclusive(' ').take(limit).map(str::to_owned).collect();
        let deltas = words.into_iter().map(LlmDelta::Text).chain([LlmDelta::Done { finish, usage: None }]);
        stream::iter(deltas.map(Ok)).boxed()
    }
}

/// Each call whole, and the end.
fn call_deltas(calls: Vec<(String, Map<String, Value>)>) -> impl Iterator<Item = LlmDelta> {
    let deltas = calls.into_iter().enumerate().map(|(index, (name, arguments))| LlmDelta::ToolCall {
        index,
        call_id: format!("call_{:016x}", rand::random::<u64>()),
        name,
        arguments: Value::Object(arguments).to_string(),
    });
    deltas.chain([LlmDelta::Done { finish: Finish::ToolCalls, usage: None }])
}

/// The request in what was said since the last answer. Where nothing of an answer was heard, the person went on speaking
/// ("what is twelve", "plus seven") or asks something else: then what was said last stands alone.
fn request(scene: &Scene<'_>, said: &[String]) -> String {
    let alone = said.last().filter(|last| said.len() == 1 || router::stands_alone(scene, last));
    let request = alone.cloned().unwrap_or_else(|| said.join(" "));
    request.trim().chars().take(LONGEST_REQUEST).collect()
}

/// What the person said since the last answer, a message each, and the exchanges before.
fn conversation(messages: &[Message]) -> (Vec<String>, Vec<Exchange>) {
    let (mut said, mut past): (Vec<String>, Vec<Exchange>) = (Vec::new(), Vec::new());
    for message in messages {
        match message {
            Message::User(text) => {
                match past.last_mut().filter(|last| last.answer.is_empty()) {
                    Some(last) => last.question = format!("{} {text}", last.question).trim().to_owned(),
                    None => {
                        said.clear();
                        past.push(Exchange { question: text.clone(), answer: String::new() });
                    }
                }
                said.push(text.clone());
            }
            // A call is an answer too: what is said next is another request.
            Message::Assistant { text, tool_calls } if text.is_empty() && !tool_calls.is_empty() => {
                if let Some(last) = past.last_mut().filter(|last| last.answer.is_empty()) {
                    last.answer = CALLED.to_owned();
                }
            }
            Message::Assistant { text, .. } if !text.is_empty() => match past.last_mut() {
                Some(last) if last.answer == CALLED => last.answer.clone_from(text),
                Some(last) => last.answer = format!("{} {text}", last.answer).trim().to_owned(),
                None => past.push(Exchange { question: String::new(), answer: text.clone() }),
            },
            _ => {}
        }
    }
    if past.pop_if(|last| last.answer.is_empty()).is_none() {
        said.clear();
    }
    (said, past)
}

/// With a capital at the beginning and a mark at the end.
fn sentence(text: &str) -> String {
    let text = text.trim();
    let mut text = days::capital(text);
    if !text.ends_with(['.', '!', '?', '…']) && !text.is_empty() {
        text.push('.');
    }
    text
}

/// `one, two and three`.
fn and_list(items: &[String]) -> String {
    match items {
        [] => String::new(),
        [one] => one.clone(),
        [first @ .., last] => format!("{} and {last}", first.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn answers_stream_word_by_word_and_end() {
        let assistant = Assistant::with_clock(testing::now);
        let request =
            ChatRequest { messages: vec![Message::User("what is two plus two".into())], ..Default::default() };
        let deltas: Vec<_> = assistant.stream(request).map(|delta| delta.unwrap()).collect().await;
        let words: Vec<_> = deltas
            .iter()
            .filter_map(|delta| if let LlmDelta::Text(text) = delta { Some(text.as_str()) } else { None })
            .collect();
        assert_eq!(words, ["2 ", "plus ", "2 ", "is ", "4."]);
        assert!(matches!(deltas.last(), Some(LlmDelta::Done { finish: Finish::Stop, .. })));
    }

    #[test]
    fn the_conversation_is_read_as_it_was_spoken() {
        let said = |text: &str| Message::Assistant { text: text.into(), tool_calls: vec![] };
        let user = |text: &str| Message::User(text.into());
        let (said_last, past) = conversation(&[
            Message::System("x".into()),
            said("Welcome."),
            user("a"),
            said("A."),
            said("B."),
            user("what is"),
            user("two plus two"),
        ]);
        assert_eq!(said_last, ["what is", "two plus two"]);
        let past: Vec<_> = past.iter().map(|exchange| (exchange.question.as_str(), exchange.answer.as_str())).collect();
        assert_eq!(past, [("", "Welcome."), ("a", "A. B.")]);
        assert!(conversation(&[]).0.is_empty());
    }

    #[test]
    fn what_was_said_over_an_answer_goes_on_or_is_a_request_by_itself() {
        let check = |said: [&str; 2], expect: &str| {
            assert_eq!(Assistant::new().answer(&said.map(|text| Message::User(text.into()))), expect, "{said:?}");
        };
        check(["what is twelve", "plus seven"], "12 plus 7 is 19.");
        check(["what is twelve plus thirty", "what is twenty plus seven"], "20 plus 7 is 27.");
        check(["how many feet", "are in a mile"], "1 mile is 5280 feet.");
    }
}
