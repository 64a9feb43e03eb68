//! Fillers: a few words ("One moment.") where an answer is late, spoken once in a turn that has said nothing yet.
//!
//! [`super::state`] asks with each tick. The client hears a filler as an output of the response that is late, whose list of outputs
//! leaves it out; while the client runs a tool there is no such response, and the filler is one of its own, out of band. It is no
//! item of the conversation, and the model never reads it. It is played, held, reported and cut like any other speech. The session
//! synthesizes all of it before it begins, so that the answer never waits for its end.

use super::listening::TurnPhase;
use super::responding::{Response, Stage};
use super::{
    Action, Content, Dialog, Item, ItemKind, ItemStatus, Modality, OutputChange, ResponseRequest, Role, SpokenItem,
};
use antiphon_types::{ResponseId, Timestamp};
use serde::{Deserialize, Serialize};

/// Whether the client runs this tool.
fn is_call(item: &Item) -> bool {
    matches!(item.kind, ItemKind::FunctionCall { .. }) && item.status == ItemStatus::Completed
}

/// A response of its own.
fn beside() -> ResponseRequest {
    ResponseRequest { out_of_band: true, ..ResponseRequest::default() }
}

/// A turn's wait for its first words.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Filler {
    /// Since when the user waits; `None`: the turn has spoken, or nothing was asked.
    waits_since: Option<Timestamp>,
    /// The response that a filler was requested for.
    requested: Option<ResponseId>,
}

impl Dialog {
    /// A response to the conversation begins: the user waits from now on, or still, where it goes on from a tool's result.
    pub(super) fn user_waits(&mut self) {
        let goes_on = self.history.items().last().is_some_and(|item| {
            matches!(
                item.kind,
                ItemKind::FunctionOutput { .. } | ItemKind::RemoteCall { .. } | ItemKind::RemoteConsent { .. }
            )
        });
        if !goes_on {
            self.filler = Filler { waits_since: Some(self.now), requested: None };
        }
    }

    /// The answer has begun, or the user says more: no filler any more.
    pub(super) fn wait_is_over(&mut self) {
        self.filler = Filler::default();
    }

    /// When a filler is due, if nothing is said until then. Not while the user speaks, and not before all that was said is heard.
    pub(super) fn filler_due(&self) -> Option<Timestamp> {
        let after = self.settings.filler_after?;
        let since = self.filler.waits_since?;
        if self.away || !self.may_fill(self.active.as_ref()) {
            return None;
        }
        let due = (since + after).max(self.history.last_heard_at());
        self.history.unheard(due).is_empty().then_some(due)
    }

    /// Requests the filler that is due.
    pub(super) fn request_filler(&mut self) {
        let late = self.active.clone();
        let settings = late.as_ref().and_then(|id| self.responses.get(id)).map(|response| response.settings.clone());
        let id = late.unwrap_or_else(|| ResponseId::from(self.ids.next("resp")));
        let settings = Box::new(settings.unwrap_or_else(|| self.resolve(&beside(), self.language.as_deref())));
        self.filler = Filler { waits_since: None, requested: Some(id.clone()) };
        self.actions.push(Action::SpeakFiller { response: id, settings });
    }

    /// The filler's sound is there: begins it, unless something was said or the user speaks meanwhile.
    pub(super) fn filler_started(&mut self, id: &ResponseId, text: &str) {
        let was_requested = self.filler.requested.take_if(|requested| requested == id).is_some();
        let late = self.active.clone();
        if !was_requested || late.as_ref().is_some_and(|late| late != id) || !self.may_fill(late.as_ref()) {
            return;
        }
        if late.is_none() {
            self.respond_with_filler(id, &beside());
        }
        let content = vec![Content::OutputAudio { transcript: Some(text.to_owned()) }];
        let kind = ItemKind::Message { role: Role::Assistant, content };
        let item = Item { id: self.mint_item(), status: ItemStatus::InProgress, kind };
        let response = self.responses.get_mut(id).expect("seen just now");
        let index = response.next_index();
        let rate = response.rate();
        response.filler = Some(item.clone());
        let mut spoken = SpokenItem::new(id.clone(), rate, self.history.dry_at(self.now));
        spoken.say(text);
        self.history.speak_filler(item.id.clone(), spoken);
        let kind = ItemKind::Message { role: Role::Assistant, content: Vec::new() };
        self.output(id, index, item.id.clone(), OutputChange::Added(Item { kind, ..item.clone() }));
        self.output(id, index, item.id.clone(), OutputChange::PartAdded { audio: true });
        self.output(id, index, item.id, OutputChange::TranscriptDelta(text.to_owned()));
    }

    /// The response ends before the sound of the filler that was requested for it is there: that filler is not spoken. The user
    /// may still wait, for a tool that the client runs.
    pub(super) fn filler_is_late_for(&mut self, id: &ResponseId) {
        if self.filler.requested.take_if(|requested| requested == id).is_some() {
            self.filler.waits_since = Some(self.now);
        }
    }

    /// All of the filler's sound was taken.
    pub(super) fn filler_ended(&mut self, id: &ResponseId) {
        let Some(response) = self.responses.get_mut(id) else { return };
        let Some(item) = response.filler.take() else { return };
        let index = response.next_index();
        let item = Item { status: ItemStatus::Completed, ..item };
        self.output(id, index, item.id.clone(), OutputChange::PartDone { audio: true, text: item.text() });
        self.output(id, index, item.id.clone(), OutputChange::Done(item.clone()));
        if matches!(self.responses[id].stage, Stage::Filler) {
            self.end_filler_response(id, item);
        }
    }

    /// Whether the user hears the hub, is silent, and waits for the first words of the response `late`, or for a tool that the
    /// client runs.
    fn may_fill(&self, late: Option<&ResponseId>) -> bool {
        let is_silent = self.held.is_none() && self.listening.phase() != TurnPhase::Speaking;
        let is_quiet = is_silent && !self.line_held && !self.listening.wants_response;
        let is_late = || match late {
            Some(id) => self.responses.get(id).is_some_and(Response::may_fill),
            None => self.settings.modality == Modality::Audio && self.history.items().last().is_some_and(is_call),
        };
        is_quiet && is_late()
    }

    /// Whether a filler of this response is being taken: its sound goes where [`Dialog::speaking_item`] says.
    pub fn is_filling(&self, id: &ResponseId) -> bool {
        self.responses.get(id).is_some_and(|response| response.filler.is_some())
    }
}
