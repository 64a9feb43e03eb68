//! The remote calls of a response: they run when the model has finished, and the response ends when they have.

use super::remote::Offer;
use super::responding::{Output, Stage};
use super::{Action, Dialog, ItemKind, ItemStatus, OutputChange, Progress, RemoteCall, ResponseStatus};
use antiphon_types::chat::Usage;
use antiphon_types::mcp::CallError;
use antiphon_types::{ItemId, ResponseId};

impl Dialog {
    /// The model has finished: its text ends here, and its remote calls run before the response ends.
    pub(super) fn run_calls(
        &mut self,
        id: &ResponseId,
        calls: Vec<(usize, ItemId, RemoteCall)>,
        tokens: Option<Usage>,
    ) {
        self.responses.get_mut(id).expect("the caller looked it up").stage = Stage::Calling { tokens };
        let n_outputs = self.responses[id].outputs.len();
        for index in (0..n_outputs).filter(|index| calls.iter().all(|(at, ..)| at != index)) {
            if !self.responses[id].outputs[index].closed {
                self.close(id, index, ItemStatus::Completed);
            }
        }
        for (index, item, call) in &calls {
            let arguments = OutputChange::RemoteArguments(call.arguments.clone());
            self.output(id, *index as u32, item.clone(), arguments);
            let running = OutputChange::RemoteProgress(Progress::InProgress);
            self.output(id, *index as u32, item.clone(), running);
        }
        self.actions.extend(calls.into_iter().map(|(_, item, call)| Action::CallRemote { item, call }));
    }

    /// The result of a response's call; returns whether the item was one.
    pub(super) fn called_in_response(&mut self, item: &ItemId, result: &Result<String, CallError>) -> bool {
        let is_it = |output: &Output| output.item.id == *item && !output.closed;
        let found = self.responses.iter().find_map(|(id, response)| {
            let Stage::Calling { tokens } = response.stage else { return None };
            Some((id.clone(), response.outputs.iter().position(is_it)?, tokens))
        });
        let Some((id, index, tokens)) = found else { return false };
        let response = self.responses.get_mut(&id).expect("found just now");
        if let ItemKind::RemoteCall { outcome, .. } = &mut response.outputs[index].item.kind {
            *outcome = Some(result.clone());
        }
        self.output(&id, index as u32, item.clone(), OutputChange::RemoteProgress(Progress::of(result)));
        self.close(&id, index, ItemStatus::Completed);
        let response = &self.responses[&id];
        if response.outputs.iter().any(|output| !output.closed) {
            return true;
        }
        // The client still owes results of functions, and then requests the response.
        let is_function = |output: &Output| matches!(output.item.kind, ItemKind::FunctionCall { .. });
        let goes_on = !response.outputs.iter().any(is_function) && response.settings.in_conversation;
        let request = response.request.clone();
        self.end(&id, ResponseStatus::Completed, tokens);
        if goes_on {
            self.plan_follow_up(request);
        }
        self.respond_if_due();
        true
    }

    /// Abandons running remote calls; their side effects remain.
    pub(super) fn stop_calls(&mut self, id: &ResponseId) {
        let response = self.responses.get_mut(id).expect("the caller looked it up");
        if !matches!(response.stage, Stage::Calling { .. }) {
            return;
        }
        for output in response.outputs.iter_mut().filter(|output| !output.closed) {
            if let ItemKind::RemoteCall { outcome, .. } = &mut output.item.kind {
                let words = "the call was stopped before its result came; it may have had its effect";
                *outcome = Some(Err(CallError::Tool(words.into())));
                self.actions.push(Action::StopRemote(output.item.id.clone()));
            }
        }
    }
}

/// What a call is: the client's to run, the hub's, or one that waits for consent.
pub(super) fn call_kind(call_id: String, name: String, offer: Option<Offer>) -> ItemKind {
    let arguments = String::new();
    let Some(Offer { label, name: tool, asks }) = offer else {
        return ItemKind::FunctionCall { call_id, name, arguments };
    };
    let call = RemoteCall { call_id, exposed: name, label, name: tool, arguments };
    if asks {
        ItemKind::RemoteRequest(call)
    } else {
        ItemKind::RemoteCall { call, request: None, outcome: None, behind: None }
    }
}
