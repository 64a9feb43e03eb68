//! Tools of remote servers: their lists, the calls that run, and the consent some wait for.
//!
//! A call runs when the model has finished the response that contains it, and that response ends when its calls have: a
//! barge-in or a cancel stops both. A call that requires consent runs later, outside of any response. Afterwards the client
//! requests the next response, as in the protocol; if it does not, the dialog creates one after a delay.

use super::listening::TurnPhase;
use super::responding::Response;
use super::state::put_back;
use super::{
    Action, Dialog, Item, ItemKind, ItemPosition, ItemStatus, Notice, Progress, RemoteCall, ResponseRequest,
    ResponseSettings,
};
use antiphon_types::chat::{Tool, ToolChoice};
use antiphon_types::mcp::{CallError, DeclaredServer, RemoteTool};
use antiphon_types::{ItemId, Timestamp};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;
use std::time::Duration;

/// The longest function name that all model servers accept.
const MAX_NAME: usize = 64;

/// State of remote servers.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Remote {
    listings: Vec<Listing>,
    /// Approved calls under way.
    running: Vec<ItemId>,
    /// When the dialog creates a follow-up response, and its request.
    follow_up: Option<(Timestamp, Box<ResponseRequest>)>,
    /// How long the client has to request the response itself; `None`: without limit.
    pub(super) follow_up_after: Option<Duration>,
}

/// A server's list of tools.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Listing {
    declared: DeclaredServer,
    item: ItemId,
    tools: Option<Result<Vec<RemoteTool>, ()>>,
}

impl Remote {
    /// The list of the server that is declared under this label.
    fn listing(&self, label: &str) -> Option<&Listing> {
        self.listings.iter().find(|listing| listing.declared.server.label == label)
    }

    /// See [`Dialog::with_servers`].
    pub(super) fn put_back(&mut self, declared: &[DeclaredServer]) {
        self.listings.iter_mut().for_each(|listing| put_back(&mut listing.declared, declared));
    }

    /// Whether a server is asked for something now.
    pub(super) fn is_working(&self) -> bool {
        !self.running.is_empty() || self.listings.iter().any(|listing| listing.tools.is_none())
    }
}

/// A tool of a server, under its name in the request.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Offer {
    pub(super) label: String,
    pub(super) name: String,
    pub(super) asks: bool,
}

/// The tools of a response.
#[derive(Default)]
pub(super) struct OfferedTools {
    pub(super) tools: Vec<Tool>,
    pub(super) choice: ToolChoice,
    pub(super) remote: BTreeMap<String, Offer>,
}

impl Dialog {
    /// Takes over the servers a session declares: lists the tools of new and changed ones.
    pub(super) fn declare_servers(&mut self, declared: &[DeclaredServer]) {
        let old = std::mem::take(&mut self.remote.listings);
        let (kept, gone): (Vec<_>, Vec<_>) = old
            .into_iter()
            .partition(|listing| declared.contains(&listing.declared) && !matches!(listing.tools, Some(Err(()))));
        for listing in gone.into_iter().filter(|listing| listing.tools.is_none()) {
            self.actions.push(Action::StopRemote(listing.item.clone()));
            self.end_listing(listing.item, Progress::Failed);
        }
        self.remote.listings = kept;
        for declared in declared {
            if self.remote.listings.iter().any(|listing| listing.declared == *declared) {
                continue;
            }
            let label = declared.server.label.clone();
            let kind = ItemKind::RemoteTools { label, tools: Vec::new() };
            let item = Item { id: self.mint_item(), status: ItemStatus::InProgress, kind };
            let id = item.id.clone();
            let previous = self.history.insert(item.clone(), &ItemPosition::Last).expect("there is always an end");
            self.notify(Notice::ItemAdded { item, previous, response: None });
            self.notify(Notice::Listing { item: id.clone(), progress: Progress::InProgress });
            self.actions.push(Action::ListTools { item: id.clone(), server: declared.server.clone() });
            self.remote.listings.push(Listing { declared: declared.clone(), item: id, tools: None });
        }
        self.trim();
    }

    /// A server listed its tools, or failed to.
    pub(super) fn listed(&mut self, item: ItemId, result: Result<Vec<RemoteTool>, ()>) {
        let Some(listing) = self.remote.listings.iter_mut().find(|listing| listing.item == item) else { return };
        if listing.tools.is_some() {
            return;
        }
        let declared = listing.declared.clone();
        let tools = result.map(|tools| tools.into_iter().filter(|tool| declared.admits(tool)).collect::<Vec<_>>());
        listing.tools = Some(tools.clone());
        let progress = if tools.is_ok() { Progress::Completed } else { Progress::Failed };
        if let Some(Item { kind: ItemKind::RemoteTools { tools: shown, .. }, .. }) = self.history.item_mut(&item) {
            *shown = tools.unwrap_or_default();
        }
        self.end_listing(item, progress);
        self.start_waiting();
    }

    fn end_listing(&mut self, id: ItemId, progress: Progress) {
        self.notify(Notice::Listing { item: id.clone(), progress });
        self.complete(&id);
    }

    /// Notifies that an item outside of any response is complete.
    fn complete(&mut self, id: &ItemId) {
        let previous = self.history.previous(id);
        let Some(item) = self.history.item_mut(id) else { return };
        item.status = ItemStatus::Completed;
        let item = item.clone();
        self.notify(Notice::ItemDone { item, previous, response: None });
    }

    /// Whether any listing is pending.
    pub(super) fn awaits_tools(&self) -> bool {
        self.remote.listings.iter().any(|listing| listing.tools.is_none())
    }

    /// Whether a server's listing is pending: a response without it would lack declared tools.
    pub(super) fn awaits_tools_of(&self, label: &str) -> bool {
        self.remote.listing(label).is_some_and(|listing| listing.tools.is_none())
    }

    /// The tools of a response, functions first. `Err`: the chosen one does not exist.
    pub(super) fn offered(&self, settings: &ResponseSettings) -> Result<OfferedTools, String> {
        let mut tools = settings.tools.clone();
        let mut remote = BTreeMap::new();
        let uses = settings.servers.iter().filter(|_| settings.in_conversation);
        let uses = uses.filter_map(|used| Some((used, self.remote.listing(&used.label)?)));
        let shown = uses.flat_map(|(used, listing)| {
            let tools = listing.tools.iter().flatten().flatten().filter(|tool| used.admits(tool));
            tools.map(move |tool| (used, listing, tool))
        });
        for (used, listing, tool) in shown {
            let label = &used.label;
            let free = |name: &String| !tools.iter().any(|tool| tool.name == *name);
            let names = [exposed(&tool.name), exposed(&format!("{label}__{}", tool.name))];
            let Some(name) = names.into_iter().find(free) else { continue };
            let description = tool.description.clone();
            let parameters = tool.input_schema.clone();
            tools.push(Tool { name: name.clone(), description, parameters });
            let consent = used.consent.as_ref().unwrap_or(&listing.declared.consent);
            let asks = consent.asks_before(tool);
            remote.insert(name, Offer { label: label.clone(), name: tool.name.clone(), asks });
        }
        let Some(chosen) = &settings.server_choice else {
            return Ok(OfferedTools { tools, choice: settings.tool_choice.clone(), remote });
        };
        remote.retain(|_, offer| {
            offer.label == chosen.label && chosen.tool.as_ref().is_none_or(|tool| *tool == offer.name)
        });
        tools.retain(|tool| remote.contains_key(&tool.name));
        let choice = match (&chosen.tool, remote.keys().next()) {
            (_, None) => return Err(format!("the tools chosen of the server '{}' are not there", chosen.label)),
            (None, Some(_)) => ToolChoice::Required,
            (Some(_), Some(name)) => ToolChoice::Function(name.clone()),
        };
        Ok(OfferedTools { tools, choice, remote })
    }

    /// A client's answer to a call that waits. `Err`: no call of that id waits.
    pub(super) fn consent(&mut self, request: &ItemId, approve: bool) {
        let Some(ItemKind::RemoteRequest(call)) = self.history.item(request).map(|item| item.kind.clone()) else {
            return;
        };
        if !approve {
            self.plan_follow_up(ResponseRequest::default());
            return;
        }
        let kind =
            ItemKind::RemoteCall { call: call.clone(), request: Some(request.clone()), outcome: None, behind: None };
        let item = Item { id: self.mint_item(), status: ItemStatus::InProgress, kind };
        let id = item.id.clone();
        let previous = self.history.insert(item.clone(), &ItemPosition::Last).expect("there is always an end");
        self.notify(Notice::ItemAdded { item, previous, response: None });
        self.notify(Notice::RemoteProgress { item: id.clone(), progress: Progress::InProgress });
        self.remote.running.push(id.clone());
        self.actions.push(Action::CallRemote { item: id, call });
    }

    /// Whether a call of this id waits for consent.
    pub(super) fn waits_for_consent(&self, request: &ItemId) -> bool {
        let asks = |item: &&Item| item.id == *request && item.status == ItemStatus::Completed;
        let is_request = |item: &Item| matches!(item.kind, ItemKind::RemoteRequest(_));
        let answered = |item: &Item| matches!(&item.kind, ItemKind::RemoteConsent { request: of, .. } if of == request);
        let items = self.history.items();
        items.iter().find(asks).is_some_and(is_request) && !items.iter().any(answered)
    }

    /// A call's result: of a response under way, or of one that was approved later.
    pub(super) fn called(&mut self, item: &ItemId, result: Result<String, CallError>) {
        if self.called_in_response(item, &result) {
            return;
        }
        let Some(at) = self.remote.running.iter().position(|running| running == item) else { return };
        self.remote.running.remove(at);
        self.restart_idle_timeout();
        let progress = Progress::of(&result);
        let last = self.history.items().last().map(|item| item.id.clone()).filter(|last| last != item);
        if let Some(Item { kind: ItemKind::RemoteCall { outcome, behind, .. }, .. }) = self.history.item_mut(item) {
            *outcome = Some(result);
            *behind = last;
        }
        self.notify(Notice::RemoteProgress { item: item.clone(), progress });
        self.complete(item);
        if self.remote.running.is_empty() {
            self.plan_follow_up(ResponseRequest::default());
        }
    }

    /// Plans the response after remote calls, in case the client does not request it.
    pub(super) fn plan_follow_up(&mut self, request: ResponseRequest) {
        if let Some(follow_up_after) = self.remote.follow_up_after {
            // The required call was made: the next response may be text.
            let request = ResponseRequest {
                tool_choice: Some(ToolChoice::Auto),
                server_choice: None,
                input: None,
                metadata: None,
                ..request
            };
            self.remote.follow_up = Some((self.now + follow_up_after, Box::new(request)));
        }
    }

    /// Discards the planned follow-up response. Returns whether there was one.
    pub(super) fn forget_follow_up(&mut self) -> bool {
        self.remote.follow_up.take().is_some()
    }

    /// When the follow-up response is due; never while the user speaks or the line is on hold.
    pub(super) fn follow_up_due(&self) -> Option<Timestamp> {
        let is_heard = matches!(self.listening.phase(), TurnPhase::Idle | TurnPhase::Due);
        let is_free = is_heard && !self.line_held && self.active.is_none();
        self.remote.follow_up.as_ref().filter(|_| is_free).map(|(due, _)| *due)
    }

    pub(super) fn follow_up(&mut self) {
        let Some((_, request)) = self.remote.follow_up.take() else { return };
        self.respond(&request);
    }
}

impl Response {
    /// The calls of servers in it, with their places.
    pub(super) fn remote_calls(&self) -> Vec<(usize, ItemId, RemoteCall)> {
        let calls = self.outputs.iter().enumerate().filter_map(|(index, output)| match &output.item.kind {
            ItemKind::RemoteCall { call, .. } => Some((index, output.item.id.clone(), call.clone())),
            _ => None,
        });
        calls.collect()
    }
}

impl Progress {
    pub(super) fn of<T, E>(result: &Result<T, E>) -> Self {
        if result.is_ok() { Self::Completed } else { Self::Failed }
    }
}

/// A function name that all model servers accept.
fn exposed(name: &str) -> String {
    let fits = |c: char| if c.is_ascii_alphanumeric() || c == '-' || c == '_' { c } else { '_' };
    name.chars().map(fits).take(MAX_NAME).collect()
}

/// Whether a call's arguments are an object, as they must be.
pub(super) fn are_arguments(text: &str) -> bool {
    matches!(serde_json::from_str(text), Ok(Value::Object(_)))
}
