//! The conversation as the intents see it: what is asked now, and what was asked and answered before.

use antiphon_types::chat::Message;
use jiff::Zoned;

/// At most this many follow-ups of follow-ups are resolved.
const MAX_DEPTH: usize = 6;
/// At most this many past exchanges are considered.
const MAX_EXCHANGES: usize = 50;
/// A longer request, in characters, is cut.
const MAX_REQUEST_CHARS: usize = 2_000;
/// Stands for an answer where a tool was called and nothing has been said yet.
const CALLED: &str = "One moment.";

/// A question and its answer, as far as it was heard.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Exchange {
    pub(crate) question: String,
    pub(crate) answer: String,
}

/// A conversation taken apart.
#[derive(Clone, Debug, Default)]
pub(crate) struct Conversation {
    /// What the person said since the last answer, one entry per message.
    said: Vec<String>,
    /// The exchanges before, oldest first.
    pub(crate) past: Vec<Exchange>,
}

impl Conversation {
    pub(crate) fn of(messages: &[Message]) -> Self {
        let Self { mut said, mut past } = Self::default();
        for message in messages {
            match message {
                Message::User(_) | Message::UserParts(_) => {
                    let text = message.user_text().unwrap_or_default().into_owned();
                    match past.last_mut().filter(|last: &&mut Exchange| last.answer.is_empty()) {
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
        Self { said, past }
    }

    /// The current request. If nothing of the last answer was heard, the person either went on speaking ("what is
    /// twelve", "plus seven") or asked something else: what `stands_alone` is a request by itself, else all is one.
    pub(crate) fn request(&self, stands_alone: impl Fn(&str) -> bool) -> String {
        let alone = self.said.last().filter(|last| self.said.len() == 1 || stands_alone(last));
        let request = alone.cloned().unwrap_or_else(|| self.said.join(" "));
        request.trim().chars().take(MAX_REQUEST_CHARS).collect()
    }
}

/// What an answer may depend on besides the request.
#[derive(Clone, Copy)]
pub(crate) struct Context<'a> {
    pub(crate) now: &'a Zoned,
    dice: &'a (dyn Fn(u32) -> u32 + Send + Sync),
    /// The exchanges before, oldest first.
    pub(crate) past: &'a [Exchange],
    /// How many further follow-ups may be resolved.
    depth: usize,
}

impl<'a> Context<'a> {
    pub(crate) fn new(now: &'a Zoned, dice: &'a (dyn Fn(u32) -> u32 + Send + Sync), past: &'a [Exchange]) -> Self {
        Self { now, dice, past: &past[past.len().saturating_sub(MAX_EXCHANGES)..], depth: MAX_DEPTH }
    }

    /// The last exchange, and the context as it was before it. `None` too once the depth is used up.
    pub(crate) fn before_last(&self) -> Option<(&'a Exchange, Self)> {
        let (last, before) = self.past.split_last()?;
        Some((last, Self { past: before, depth: self.depth.checked_sub(1)?, ..*self }))
    }

    /// The context of a request that refers to nothing before it.
    pub(crate) fn fresh(&self) -> Self {
        Self { past: &[], ..*self }
    }

    /// A random number below `n`.
    pub(crate) fn random(&self, n: u32) -> u32 {
        (self.dice)(n.max(1))
    }
}
