//! Calls of the model: which ones are made, which ones the hub answers itself, and how many rounds of them a turn may have.
//!
//! A call is an item once its arguments are a whole JSON object, so that no client and no server ever gets one that is
//! not. A call of a function that was not offered, or whose arguments are no object, never leaves the hub: the model
//! gets an error for it, once in a response, and is asked again without tools. After [`ToolRounds`] it is asked without
//! tools as well.

use super::remote::{OfferedTools, are_arguments};
use super::remote_calls::call_kind;
use super::responding::Response;
use super::{Action, Dialog, Failure, ItemKind, Notice, OutputChange, ResponseStatus, ResponseWork, ToolCallDelta};
use antiphon_types::ResponseId;
use antiphon_types::chat::{Message, Tool, ToolCall, ToolChoice, Usage};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// Rounds of calls in the user's turn: responses that called, each followed by another one.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct ToolRounds {
    n: u32,
    most: u32,
}

impl Default for ToolRounds {
    fn default() -> Self {
        Self { n: 0, most: Self::MOST }
    }
}

impl ToolRounds {
    /// The default of `session.max_tool_rounds`.
    const MOST: u32 = 8;

    pub(super) fn of_at_most(most: u32) -> Self {
        Self { n: 0, most }
    }

    /// The user's turn has begun.
    pub(super) fn begin(&mut self) {
        self.n = 0;
    }

    fn are_spent(self) -> bool {
        self.n >= self.most
    }
}

/// A call whose arguments are not complete, or that is not made.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct PendingCall {
    index: usize,
    call: ToolCall,
}

/// The calls of one response.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Calls {
    /// Names of the functions that the model may call.
    offered: BTreeSet<String>,
    pending: Vec<PendingCall>,
    /// The model has received errors for calls that were not made, and was asked without tools.
    was_refused: bool,
    /// What the requests before the last one used.
    used: Usage,
}

impl Calls {
    /// The calls that the model may make of these tools.
    pub(super) fn of(offered: &OfferedTools) -> Self {
        let may = |tool: &&Tool| match &offered.choice {
            ToolChoice::None => false,
            ToolChoice::Function(name) => tool.name == *name,
            ToolChoice::Auto | ToolChoice::Required => true,
        };
        let names = offered.tools.iter().filter(may).map(|tool| tool.name.clone());
        Self { offered: names.collect(), ..Self::default() }
    }

    /// The usage of all its requests.
    pub(super) fn all_used(&self, last: Option<Usage>) -> Option<Usage> {
        let last = last?;
        Some(Usage {
            input_tokens: self.used.input_tokens + last.input_tokens,
            output_tokens: self.used.output_tokens + last.output_tokens,
        })
    }
}

/// Why a call is not made.
fn refusal(call: &ToolCall, calls: &Calls) -> Option<String> {
    let name = &call.name;
    if !calls.offered.contains(name) {
        return Some(format!("There is no function \"{name}\" that may be called now. Answer the user without it."));
    }
    let is_empty = call.arguments.trim().is_empty();
    (!is_empty && !are_arguments(&call.arguments)).then(|| {
        format!("The arguments of \"{name}\" are no JSON object, so it was not called. Answer the user without it.")
    })
}

impl Dialog {
    /// More of a call.
    pub(super) fn tool_call(&mut self, delta: ToolCallDelta) {
        let ToolCallDelta { response: id, index, call_id, name, arguments } = delta;
        let Some(response) = self.responses.get_mut(&id).filter(|response| response.is_started()) else { return };
        if response.outputs.iter().any(|output| output.call == Some(index)) {
            // It was complete before: what follows a whole object belongs to no call.
            return;
        }
        let pending = &mut response.calls.pending;
        let at = pending.iter().position(|known| known.index == index).unwrap_or_else(|| {
            pending.push(PendingCall { index, call: ToolCall { call_id, name, arguments: String::new() } });
            pending.len() - 1
        });
        let call = &mut pending[at].call;
        call.arguments.push_str(&arguments);
        let is_whole = arguments.trim_end().ends_with('}') && are_arguments(&call.arguments);
        if is_whole && response.calls.offered.contains(&response.calls.pending[at].call.name) {
            let complete = response.calls.pending.remove(at);
            self.make_call(&id, complete);
        }
    }

    /// Makes a complete call an output of its response.
    fn make_call(&mut self, id: &ResponseId, complete: PendingCall) {
        let PendingCall { index, call: ToolCall { call_id, name, arguments } } = complete;
        // Some models count their calls from the start in each answer; these ids distinguish their results.
        let is_taken = call_id.is_empty() || self.history.has_call_id(&call_id);
        let call_id = if is_taken { self.ids.next("call") } else { call_id };
        let offer = self.responses[id].offers.get(&name).cloned();
        let at = self.begin_output(id, call_kind(call_id, name, offer), Some(index));
        let output = &mut self.responses.get_mut(id).expect("it has the output").outputs[at];
        let item = output.item.id.clone();
        let change = match &mut output.item.kind {
            ItemKind::FunctionCall { arguments: all, call_id, .. } => {
                all.clone_from(&arguments);
                OutputChange::ArgumentsDelta { call_id: call_id.clone(), delta: arguments }
            }
            ItemKind::RemoteCall { call, .. } => {
                call.arguments.clone_from(&arguments);
                OutputChange::RemoteDelta(arguments)
            }
            ItemKind::RemoteRequest(call) => return call.arguments = arguments,
            _ => return,
        };
        self.output(id, at as u32, item, change);
    }

    /// The model has finished: makes the calls that came without arguments, and has the model answer again where it made
    /// calls that cannot be. Returns whether the response goes on, or why it fails.
    pub(super) fn settle_calls(&mut self, id: &ResponseId, tokens: Option<Usage>) -> Result<bool, Failure> {
        let response = self.responses.get_mut(id).expect("the caller looked it up");
        let mut refused = Vec::new();
        for mut pending in std::mem::take(&mut response.calls.pending) {
            let calls = &self.responses[id].calls;
            if let Some(why) = refusal(&pending.call, calls) {
                let text = if are_arguments(&pending.call.arguments) { &pending.call.arguments } else { "{}" };
                pending.call.arguments = text.to_owned();
                refused.push((pending.call, why));
                continue;
            }
            if pending.call.arguments.trim().is_empty() {
                pending.call.arguments = "{}".to_owned();
            }
            self.make_call(id, pending);
        }
        if refused.is_empty() {
            return Ok(false);
        }
        let was_refused = self.responses[id].calls.was_refused;
        self.notify(Notice::CallsRefused { response: id.clone(), n: refused.len() as u32, again: was_refused });
        let response = &self.responses[id];
        // Behind the results of the calls that it made, the model answers anyway.
        if response.outputs.iter().any(|output| output.call.is_some()) {
            return Ok(false);
        }
        if was_refused {
            let is_silent = response.outputs.is_empty();
            let words = "The language model only called functions that may not be called now, and said nothing.";
            return if is_silent { Err(words.into()) } else { Ok(false) };
        }
        self.ask_without_tools(id, refused, tokens)
    }

    /// Asks the model again in the same response, with what became of its calls, and without tools.
    fn ask_without_tools(
        &mut self,
        id: &ResponseId,
        refused: Vec<(ToolCall, String)>,
        tokens: Option<Usage>,
    ) -> Result<bool, Failure> {
        // What was said before is whole: its speech has ended.
        self.end_outputs(id);
        let settings = self.responses[id].settings.clone();
        let input = self.responses[id].input.clone();
        let request =
            self.chat(&settings, input.as_deref(), OfferedTools::default()).map_err(|error| error.to_string())?;
        let mut chat = request.chat;
        let mut tool_calls = Vec::new();
        let mut results = Vec::new();
        for (call, why) in refused {
            results.push(Message::Tool { call_id: call.call_id.clone(), output: format!("Error: {why}") });
            tool_calls.push(call);
        }
        match chat.messages.last_mut() {
            Some(Message::Assistant { tool_calls: own, .. }) if own.is_empty() => *own = tool_calls,
            _ => chat.messages.push(Message::Assistant { text: String::new(), tool_calls }),
        }
        chat.messages.extend(results);
        let response = self.responses.get_mut(id).expect("the caller looked it up");
        let used = tokens.unwrap_or_default();
        response.calls.used.input_tokens += used.input_tokens;
        response.calls.used.output_tokens += used.output_tokens;
        response.calls.was_refused = true;
        response.calls.offered.clear();
        response.n_read += super::usage::tokens_read(&chat);
        let turn = response.turn;
        self.actions.push(Action::StartResponse(Box::new(ResponseWork { response: id.clone(), turn, chat, settings })));
        Ok(true)
    }

    /// The tools of a response, without those that the turn's rounds have used up.
    pub(super) fn offered_in_turn(&mut self, id: &ResponseId) -> Result<OfferedTools, String> {
        let offered = self.offered(&self.responses[id].settings)?;
        let is_spent = self.responses[id].settings.in_conversation && self.tool_rounds.are_spent();
        if !is_spent || offered.tools.is_empty() {
            return Ok(offered);
        }
        self.notify(Notice::ToolRoundsSpent { response: id.clone(), rounds: self.tool_rounds.n });
        Ok(OfferedTools::default())
    }

    /// Counts a response that has ended.
    pub(super) fn count_round(&mut self, response: &Response, status: &ResponseStatus) {
        let calls = response.outputs.iter().any(|output| output.call.is_some());
        if calls && response.settings.in_conversation && *status == ResponseStatus::Completed {
            self.tool_rounds.n = self.tool_rounds.n.saturating_add(1);
        }
    }
}
