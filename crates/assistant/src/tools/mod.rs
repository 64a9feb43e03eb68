//! The offline assistant's tools: it calls what a client declared, where name and parameters plainly fit what was said.
//!
//! Nothing here knows any tool: a request is compared with the words of each tool's name and description (`fit`), its
//! parameters are filled from the words (`fill`), and a result is put into plain words (`results`). A required
//! parameter that was not said is asked for; a tool that does not plainly fit is left alone.

mod fill;
mod fit;
mod results;
mod shape;
#[cfg(test)]
mod tests;
mod text;
mod vocabulary;

use super::query::Query;
use antiphon_types::chat::{ChatRequest, Message, ToolCall, ToolChoice};
use fill::Filled;
use fit::Fit;
use serde_json::{Map, Value};
use shape::Tool;
use std::cell::OnceCell;

/// What the assistant does about its tools.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Move {
    /// Calls these, in order.
    Call(Vec<(String, Map<String, Value>)>),
    /// Says this: a question for what is missing, or what a tool gave.
    Say(String),
}

/// So many questions for what is missing may stand between a request and its call.
const MAX_QUESTIONS: usize = 4;

/// So many calls come of one request.
const MAX_CALLS: usize = 4;

/// What to do about the last message. `None`: the tools have no part in it. `past` is what was asked and answered
/// before `request`; `understood` says whether the assistant itself has an answer.
pub(super) fn decide(
    chat: &ChatRequest,
    request: &str,
    past: &[super::Exchange],
    understood: &dyn Fn(&str) -> bool,
) -> Option<Move> {
    if let Some(text) = results::said(&chat.messages) {
        return Some(Move::Say(text));
    }
    if chat.tools.is_empty() || chat.tool_choice == ToolChoice::None || request.is_empty() {
        return None;
    }
    let tools: Vec<Tool> = chat.tools.iter().map(Tool::of).collect();
    let chooser = Chooser { tools: &tools, choice: &chat.tool_choice, understood };
    // The request may be the answer to questions of ours; the earliest beginning that explains them is taken.
    let first = past.len().saturating_sub(MAX_QUESTIONS);
    for start in first..past.len() {
        if let Some(done) = chooser.resume(&past[start..], request) {
            return Some(done);
        }
    }
    chooser.follow_up(&chat.messages, request).or_else(|| chooser.choose(request))
}

/// One request's choice among the tools.
struct Chooser<'a> {
    tools: &'a [Tool],
    choice: &'a ToolChoice,
    understood: &'a dyn Fn(&str) -> bool,
}

/// A tool, as far as its parameters are known.
struct Draft<'a> {
    tool: &'a Tool,
    filled: Filled,
}

impl<'a> Chooser<'a> {
    /// A request as it stands.
    fn choose(&self, request: &str) -> Option<Move> {
        let query = Query::new(request);
        if let ToolChoice::Function(name) = self.choice {
            let tool = self.tools.iter().find(|tool| tool.name == *name)?;
            return Some(finish(vec![Draft { tool, filled: fill::fill(tool, &query, true) }]));
        }
        if vocabulary::is_refusal(&query) && *self.choice == ToolChoice::Auto {
            return None;
        }
        let parts = self.parts(request);
        if parts.len() > 1 {
            return Some(finish(parts));
        }
        let draft = self.best(&query)?;
        Some(finish(split_lists(draft)))
    }

    /// `turn on the light and set a timer for ten minutes`: each part fits a tool by itself, and can be called.
    fn parts(&self, request: &str) -> Vec<Draft<'a>> {
        let parts: Vec<&str> = request.split(" and then ").flat_map(|part| part.split(" and ")).collect();
        if parts.len() < 2 {
            return Vec::new();
        }
        let drafts: Vec<_> = parts.iter().map(|part| self.best(&Query::new(part))).collect();
        let whole = drafts.iter().all(|draft| draft.as_ref().is_some_and(|draft| draft.filled.missing.is_none()));
        if whole { drafts.into_iter().flatten().take(MAX_CALLS).collect() } else { Vec::new() }
    }

    /// The tool that fits best, if one plainly does.
    fn best(&self, query: &Query) -> Option<Draft<'a>> {
        let must = *self.choice == ToolChoice::Required;
        let understood = OnceCell::new();
        let is_understood = || *understood.get_or_init(|| (self.understood)(&query.raw));
        let mut best: Option<(f32, Draft<'a>)> = None;
        for tool in self.tools {
            let fit = fit::fit(tool, query);
            if fit == Fit::No && !must {
                continue;
            }
            let sure = fill::fill(tool, query, false);
            // Who has an answer of his own needs a request that leaves no doubt.
            let doubtful = sure.missing.is_some() || matches!(fit, Fit::Perhaps(_));
            if doubtful && !must && is_understood() {
                continue;
            }
            let filled = if matches!(fit, Fit::Plain(_)) { fill::fill(tool, query, true) } else { sure };
            let complete = filled.missing.is_none();
            if matches!(fit, Fit::Perhaps(_)) && !must && !complete {
                continue;
            }
            let score = fit.score() + filled.values.len() as f32 + if complete { 1.5 } else { 0.0 };
            if best.as_ref().is_none_or(|(other, _)| score > *other) {
                best = Some((score, Draft { tool, filled }));
            }
        }
        best.map(|(_, draft)| draft)
    }

    /// The exchanges are a request and our questions about it; `answer` answers the last of them.
    fn resume(&self, exchanges: &[super::Exchange], answer: &str) -> Option<Move> {
        let (first, rest) = exchanges.split_first()?;
        let query = Query::new(&first.question);
        let named = match self.choice {
            ToolChoice::Function(name) => self.tools.iter().find(|tool| tool.name == *name),
            _ => None,
        };
        let mut draft = match named {
            Some(tool) => Draft { tool, filled: fill::fill(tool, &query, true) },
            None => self.best(&query)?,
        };
        let mut asked = &first.answer;
        for answer in
            rest.iter().map(|exchange| (exchange.question.as_str(), Some(&exchange.answer))).chain([(answer, None)])
        {
            let missing = draft.filled.missing.take()?;
            if *asked != missing.question {
                return None;
            }
            let query = Query::new(answer.0);
            if vocabulary::is_refusal(&query) {
                return None;
            }
            let value = fill::answer(draft.tool, &missing.name, &query)?;
            draft.filled.values.insert(missing.name, value);
            draft.filled.missing = fill::missing(draft.tool, &draft.filled.values);
            if let Some(next) = answer.1 {
                asked = next;
            }
        }
        Some(finish(vec![draft]))
    }

    /// `and in London?` after a call: the same tool, with what is new replaced.
    fn follow_up(&self, messages: &[Message], request: &str) -> Option<Move> {
        if *self.choice != ToolChoice::Auto {
            return None;
        }
        let query = Query::new(request);
        if !query.said(&["and", "what about", "how about"]) || query.words.len() > 5 {
            return None;
        }
        if self.best(&query).is_some() {
            return None;
        }
        let last = messages.iter().rev().find_map(|message| match message {
            Message::Assistant { tool_calls, .. } => tool_calls.last(),
            _ => None,
        })?;
        let tool = self.tools.iter().find(|tool| tool.name == last.name)?;
        let Ok(Value::Object(mut values)) = serde_json::from_str(&last.arguments) else { return None };
        let new = fill::rest(tool, &query)?;
        values.insert(new.0, new.1);
        Some(Move::Call(vec![(tool.name.clone(), values)]))
    }
}

/// Calls all of them, or asks for what the first one lacks.
fn finish(drafts: Vec<Draft<'_>>) -> Move {
    if let Some(missing) = drafts.iter().find_map(|draft| draft.filled.missing.as_ref()) {
        return Move::Say(missing.question.clone());
    }
    Move::Call(drafts.into_iter().map(|draft| (draft.tool.name.clone(), draft.filled.values)).collect())
}

/// `the weather in Paris and London` is two calls.
fn split_lists(draft: Draft<'_>) -> Vec<Draft<'_>> {
    let Draft { tool, filled } = draft;
    let list = filled.values.iter().find_map(|(name, value)| {
        let parts: Vec<String> = value.as_str()?.split(" and ").map(|part| part.trim().to_owned()).collect();
        let is_list = parts.len() > 1 && parts.len() <= MAX_CALLS && shape::is_name(tool, name);
        is_list.then(|| (name.clone(), parts))
    });
    let Some((name, parts)) = list.filter(|_| filled.missing.is_none()) else { return vec![Draft { tool, filled }] };
    let with = |part: String| {
        let mut values = filled.values.clone();
        values.insert(name.clone(), Value::String(part));
        Draft { tool, filled: Filled { values, missing: None } }
    };
    parts.into_iter().map(with).collect()
}

/// The calls of the answer that the trailing results belong to.
fn called(messages: &[Message]) -> &[ToolCall] {
    let said = messages.iter().rev().find_map(|message| match message {
        Message::Assistant { tool_calls, .. } => Some(tool_calls.as_slice()),
        _ => None,
    });
    said.unwrap_or_default()
}
