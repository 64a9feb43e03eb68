//! What the server sends, one JSON object at a time, turned into deltas. No IO.
//!
//! Written to be read by what servers really send: content as text or as parts, arguments as text or as an object,
//! tool calls whole in one chunk or in pieces, with an index, without one, or with the same one for all.

use super::thinking::ThinkingFilter;
use crate::secret::conceal;
use antiphon_engine_api::llm::{LlmDelta, LlmError};
use antiphon_types::chat::{Finish, Usage};
use serde::Deserialize;
use serde_json::Value;

/// The longest token, in bytes, that counts for the limit of tokens: text has four or five on average, of rare words and other
/// scripts fewer than ten. A server that keeps to its limit never reaches it.
const BYTES_PER_TOKEN: usize = 16;
/// The least room of an answer, for the names of calls.
const MIN_ROOM: usize = 1_024;
/// Calls of one answer.
const MAX_CALLS: usize = 64;

/// Reads one answer's chunks in order, up to its limit of tokens.
pub(super) struct Answer {
    /// Bytes of text, and of calls, that may still come.
    room: usize,
    /// The server sent more than it was asked for; the answer ends here.
    full: bool,
    thinking: ThinkingFilter,
    calls: Vec<Slot>,
    finish: Option<Finish>,
    usage: Option<Usage>,
}

/// A tool call under way.
#[derive(Default)]
struct Slot {
    /// The server's index, where it gives one.
    index: Option<u64>,
    id: String,
    name: String,
    /// Arguments that came before the name.
    held: String,
    /// Whether its first delta has gone out.
    begun: bool,
}

/// What a chunk brought.
pub(super) struct Step {
    pub deltas: Vec<LlmDelta>,
    /// Whether the model did anything, if only thinking.
    pub progress: bool,
}

#[derive(Deserialize)]
struct Chunk {
    // Several servers write null beside the usage.
    #[serde(default)]
    choices: Option<Vec<Choice>>,
    #[serde(default)]
    usage: Option<WireUsage>,
}

#[derive(Deserialize)]
struct Choice {
    #[serde(default)]
    index: Option<u64>,
    #[serde(default)]
    delta: Option<Delta>,
    /// In the place of `delta` in an answer that is not streamed.
    #[serde(default)]
    message: Option<Delta>,
    #[serde(default)]
    finish_reason: Option<String>,
}

#[derive(Default, Deserialize)]
struct Delta {
    #[serde(default)]
    content: Option<Value>,
    #[serde(default)]
    refusal: Option<String>,
    // Two names for the same, and some servers send both.
    #[serde(default)]
    reasoning: Option<Value>,
    #[serde(default)]
    reasoning_content: Option<Value>,
    #[serde(default)]
    tool_calls: Option<Vec<WireCall>>,
}

#[derive(Deserialize)]
struct WireCall {
    #[serde(default)]
    index: Option<u64>,
    #[serde(default)]
    id: Option<String>,
    #[serde(default)]
    function: Option<WireFunction>,
}

#[derive(Default, Deserialize)]
struct WireFunction {
    #[serde(default)]
    name: Option<String>,
    #[serde(default)]
    arguments: Option<Value>,
}

#[derive(Deserialize)]
struct WireUsage {
    #[serde(default)]
    prompt_tokens: Option<u64>,
    #[serde(default)]
    completion_tokens: Option<u64>,
}

impl Answer {
    /// An answer of at most `max_tokens` tokens. `opens`: it may begin with thinking whose opening tag does not come.
    pub fn of(max_tokens: u32, opens: bool) -> Self {
        let room = BYTES_PER_TOKEN.saturating_mul(max_tokens as usize).max(MIN_ROOM);
        let thinking = ThinkingFilter::new(opens);
        Self { room, full: false, thinking, calls: Vec::new(), finish: None, usage: None }
    }

    /// What it has shown of the model: whether its answers open with thinking without a tag.
    pub fn opens(&self) -> Option<bool> {
        self.thinking.learnt()
    }

    /// Whether the server sent more than it may: the rest is not to be read.
    pub fn is_full(&self) -> bool {
        self.full
    }

    /// Reads one chunk, or one whole answer. An error object is an error.
    pub fn read(&mut self, data: &str) -> Result<Step, LlmError> {
        let value: Value = serde_json::from_str(data)
            .map_err(|error| LlmError::Protocol(format!("a piece of it is no JSON ({error})")))?;
        if let Some(error) = error_object(&value) {
            return Err(error);
        }
        let chunk: Chunk = serde_json::from_value(value)
            .map_err(|error| LlmError::Protocol(format!("a piece of it is no chat completion ({error})")))?;
        if let Some(usage) = chunk.usage {
            self.usage = Some(Usage {
                input_tokens: usage.prompt_tokens.unwrap_or(0),
                output_tokens: usage.completion_tokens.unwrap_or(0),
            });
        }
        let mut step = Step { deltas: Vec::new(), progress: self.usage.is_some() };
        // Only one answer was asked for; a server that sends more is heard on the first.
        let choices = chunk.choices.unwrap_or_default();
        for choice in choices.into_iter().filter(|choice| choice.index.unwrap_or(0) == 0) {
            self.choice(choice, &mut step);
        }
        step.progress |= !step.deltas.is_empty();
        Ok(step)
    }

    /// Whether the model has said why it ended.
    pub fn is_finished(&self) -> bool {
        self.finish.is_some()
    }

    /// Whether the tokens were counted; they come after the finish.
    pub fn has_usage(&self) -> bool {
        self.usage.is_some()
    }

    /// The last deltas.
    pub fn done(&mut self) -> Vec<LlmDelta> {
        let is_cut = matches!(self.finish, Some(Finish::Length | Finish::ContentFilter));
        let rest = self.thinking.end(!is_cut && self.calls.is_empty());
        let mut deltas = Vec::from_iter((!rest.is_empty()).then_some(LlmDelta::Text(rest)));
        let finish = match self.finish.unwrap_or(Finish::Stop) {
            // Several servers say `stop` after a call that was required.
            Finish::Stop if self.calls.iter().any(|call| call.begun) => Finish::ToolCalls,
            finish => finish,
        };
        deltas.push(LlmDelta::Done { finish, usage: self.usage });
        deltas
    }

    fn choice(&mut self, choice: Choice, step: &mut Step) {
        let delta = choice.delta.or(choice.message).unwrap_or_default();
        let text = delta.content.as_ref().map(text_of).unwrap_or_default() + &delta.refusal.unwrap_or_default();
        let text = self.within_room(text);
        step.progress |= !text.is_empty();
        let parts = delta.content.as_ref().and_then(Value::as_array);
        let mut thoughts = delta.reasoning.into_iter().chain(delta.reasoning_content);
        let is_thinking = thoughts.any(|thought| !thought.is_null() && thought != "")
            || parts.is_some_and(|parts| parts.iter().any(is_thinking_part));
        step.progress |= is_thinking;
        let mut words = self.thinking.read(&text);
        if is_thinking {
            words.text.push_str(&self.thinking.is_apart());
        }
        if words.withdrawn {
            step.deltas.push(LlmDelta::Withdrawn);
        }
        if !words.text.is_empty() {
            step.deltas.push(LlmDelta::Text(words.text));
        }
        for call in delta.tool_calls.unwrap_or_default() {
            let rest = self.thinking.end(false);
            if !rest.is_empty() {
                step.deltas.push(LlmDelta::Text(rest));
            }
            step.deltas.extend(self.call(call));
            step.progress = true;
        }
        if let Some(reason) = choice.finish_reason.filter(|reason| !reason.is_empty()) {
            step.progress = true;
            if self.full {
                return;
            }
            self.finish = Some(match reason.as_str() {
                "length" | "max_tokens" => Finish::Length,
                "tool_calls" | "function_call" | "tool_use" => Finish::ToolCalls,
                "content_filter" => Finish::ContentFilter,
                _ => Finish::Stop,
            });
        }
    }

    /// As much of a text as there is room for. Where that is not all, the answer has reached its limit.
    fn within_room(&mut self, mut text: String) -> String {
        if self.full {
            return String::new();
        }
        if text.len() > self.room {
            text.truncate(text.floor_char_boundary(self.room));
            self.full = true;
            self.finish = Some(Finish::Length);
        }
        self.room -= text.len();
        text
    }

    fn call(&mut self, mut wire: WireCall) -> Option<LlmDelta> {
        let function = wire.function.get_or_insert_default();
        let arguments = match function.arguments.take() {
            None | Some(Value::Null) => String::new(),
            Some(Value::String(text)) => text,
            Some(other) => other.to_string(),
        };
        let named = wire.id.as_ref().map_or(0, String::len) + function.name.as_ref().map_or(0, String::len);
        if named > self.room {
            self.full = true;
            self.finish = Some(Finish::Length);
        }
        self.room = self.room.saturating_sub(named);
        let arguments = self.within_room(arguments);
        if self.full && arguments.is_empty() {
            return None;
        }
        let at = self.slot(&wire)?;
        let slot = &mut self.calls[at];
        let function = wire.function.unwrap_or_default();
        if slot.id.is_empty() {
            slot.id = wire.id.unwrap_or_default();
        }
        if slot.name.is_empty() {
            slot.name = function.name.unwrap_or_default();
        }
        if slot.begun {
            let call_id = String::new();
            let name = String::new();
            let more = LlmDelta::ToolCall { index: at, call_id, name, arguments: arguments.clone() };
            return (!arguments.is_empty()).then_some(more);
        }
        slot.held.push_str(&arguments);
        if slot.name.is_empty() {
            // The first delta must carry the name: wait for it.
            return None;
        }
        slot.begun = true;
        if slot.id.is_empty() {
            slot.id = format!("call_{:016x}", rand::random::<u64>());
        }
        let arguments = std::mem::take(&mut slot.held);
        Some(LlmDelta::ToolCall { index: at, call_id: slot.id.clone(), name: slot.name.clone(), arguments })
    }

    /// Which call a piece belongs to. An id not seen before begins a call, whatever its index says; a piece without
    /// index and id goes on with the last call, unless it names a function while that one has its name already.
    /// `None`: there are too many calls.
    fn slot(&mut self, wire: &WireCall) -> Option<usize> {
        let id = wire.id.as_deref().unwrap_or_default();
        let fits = |slot: &Slot| id.is_empty() || slot.id.is_empty() || slot.id == id;
        let names = wire.function.as_ref().is_some_and(|f| f.name.as_deref().is_some_and(|name| !name.is_empty()));
        let found = match wire.index {
            Some(_) => self.calls.iter().rposition(|slot| slot.index == wire.index && fits(slot)),
            None if !id.is_empty() => self.calls.iter().rposition(|slot| slot.id == id),
            None => match self.calls.last() {
                Some(last) if !(names && last.begun) => Some(self.calls.len() - 1),
                _ => None,
            },
        };
        if found.is_none() && self.calls.len() == MAX_CALLS {
            self.full = true;
            self.finish = Some(Finish::Length);
            return None;
        }
        Some(found.unwrap_or_else(|| {
            self.calls.push(Slot { index: wire.index, ..Slot::default() });
            self.calls.len() - 1
        }))
    }
}

/// Text, or the texts of a list of parts, without those that are thinking.
fn text_of(content: &Value) -> String {
    match content {
        Value::String(text) => text.clone(),
        Value::Array(parts) => {
            parts.iter().filter(|part| !is_thinking_part(part)).filter_map(|part| part["text"].as_str()).collect()
        }
        _ => String::new(),
    }
}

/// Whether a part of a content is thinking, as Mistral's Magistral sends it.
fn is_thinking_part(part: &Value) -> bool {
    part["type"].as_str().is_some_and(|kind| ["thinking", "reasoning"].contains(&kind))
}

/// `{"error": {"message", "code"}}`, `{"error": "text"}`, or `{"object": "error", "message", "code"}`.
fn error_object(value: &Value) -> Option<LlmError> {
    let error = match value.get("error") {
        Some(error) if !error.is_null() => error,
        _ if value["object"] == "error" => value,
        _ => return None,
    };
    let message = error.as_str().or(error["message"].as_str()).unwrap_or("an error without a message");
    let code = error["code"].as_u64().or(error["status"].as_u64()).filter(|code| (400..600).contains(code));
    let status = code.map_or(500, |code| code as u16);
    Some(LlmError::Refused { status, message: shorten(message) })
}

/// A server's message in one line of at most 300 characters, without keys of the hub.
pub(super) fn shorten(message: &str) -> String {
    let line = conceal(message).split_whitespace().collect::<Vec<_>>().join(" ");
    match line.char_indices().nth(300) {
        Some((end, _)) => format!("{}...", &line[..end]),
        None => line,
    }
}
