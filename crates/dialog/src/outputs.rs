//! Where one output of a response ends and the next begins.
//!
//! In the protocol an output ends before the next one begins. A remote call ends when it has run, at the end of the
//! response.

use super::Dialog;
use super::responding::Response;
use super::{ItemKind, ItemStatus};
use antiphon_types::{ItemId, ResponseId};

impl Response {
    /// Its messages, those that have ended too.
    pub(super) fn messages(&self) -> impl Iterator<Item = &ItemId> {
        let messages = self.outputs.iter().filter(|output| matches!(output.item.kind, ItemKind::Message { .. }));
        messages.map(|output| &output.item.id)
    }
}

impl Dialog {
    /// Ends the outputs before the one that begins now.
    pub(super) fn end_outputs(&mut self, id: &ResponseId) {
        let ends = |kind: &ItemKind| {
            matches!(kind, ItemKind::Message { .. } | ItemKind::FunctionCall { .. } | ItemKind::RemoteRequest(_))
        };
        let outputs = self.responses[id].outputs.iter().enumerate();
        let ended = outputs.filter(|(_, output)| !output.closed && ends(&output.item.kind));
        let ended: Vec<usize> = ended.map(|(index, _)| index).collect();
        for index in ended {
            self.close(id, index, ItemStatus::Completed);
        }
    }

    /// Whether a text is only whitespace after an output that has ended.
    pub(super) fn is_space_between(&self, id: &ResponseId, text: &str) -> bool {
        let between = |response: &Response| !response.outputs.is_empty() && response.speaking_item().is_none();
        text.trim().is_empty() && self.responses.get(id).is_some_and(between)
    }
}
