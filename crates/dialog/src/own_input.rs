//! What a response reads: the conversation, or the input of its own request with the transcripts of its spoken parts.
//!
//! `responding` calls this before the model is asked. Such input is no item of the conversation and leads to no notice.

use super::listening::OpenUtterance;
use super::remote::OfferedTools;
use super::responding::{Response, Stage};
use super::{Action, Dialog, Failure, InputEntry, ResponseSettings, SpokenInput, Truncation, cutting, memory};
use antiphon_types::chat::ChatRequest;
use antiphon_types::{ItemId, ResponseId};

/// A request to the model.
pub(super) struct Request {
    pub(super) chat: ChatRequest,
    /// Tokens of the last turn, or of its own input, that there is no room for.
    pub(super) left_out: u64,
}

impl Dialog {
    /// Whether a response's work can start: the transcripts it reads are complete, its tools are listed, and the user hears
    /// what it says.
    pub(super) fn may_start(&self, response: &Response) -> bool {
        let is_unheard = response.is_audio() && self.line_held;
        !is_unheard && self.has_all_it_reads(response)
    }

    fn has_all_it_reads(&self, response: &Response) -> bool {
        let settings = &response.settings;
        if settings.in_conversation && settings.servers.iter().any(|used| self.awaits_tools_of(&used.label)) {
            return false;
        }
        let mut awaited = self.listening.awaiting.iter();
        let words_are_known = match &response.input {
            None => awaited.next().is_none(),
            Some(entries) => !awaited
                .any(|utterance| entries.iter().any(|entry| *entry == InputEntry::Reference(utterance.item.clone()))),
        };
        words_are_known && response.awaiting().is_empty()
    }

    /// The request to the model: the conversation, or a response's own input.
    pub(super) fn chat(
        &mut self,
        settings: &ResponseSettings,
        input: Option<&[InputEntry]>,
        offered: OfferedTools,
    ) -> Result<Request, memory::TooLong> {
        let instructions = settings.model_instructions();
        let memory = self.settings.memory;
        let fixed = memory::tokens(&instructions) + memory::tool_tokens(&offered.tools);
        let mut room = memory.budget.saturating_sub(fixed);
        let mut messages = match input {
            None => {
                room = memory.conversation.map_or(room, |limit| room.min(limit));
                self.history.forget(fixed, &memory)?;
                self.history.messages_of(&instructions, self.history.recalled(), memory.notes_interruptions)
            }
            Some(entries) => {
                let items = entries.iter().filter_map(|entry| match entry {
                    InputEntry::Reference(id) => self.history.item(id),
                    InputEntry::Item(item) => Some(item),
                });
                self.history.messages_of(&instructions, items, memory.notes_interruptions)
            }
        };
        let left_out = cutting::fit(&mut messages, !instructions.is_empty(), room);
        if left_out > 0 && memory.truncation == Truncation::Disabled {
            return Err(memory::TooLong { tokens: room + left_out, room });
        }
        let chat = ChatRequest {
            messages,
            tools: offered.tools,
            tool_choice: offered.choice,
            max_tokens: settings.max_output_tokens,
            ..ChatRequest::default()
        };
        Ok(Request { chat, left_out })
    }

    /// The reason to fail a response whose turn could not be transcribed: it would answer something else. `None` where the
    /// user has written a message since.
    pub(super) fn nothing_to_answer(&mut self, id: &ResponseId) -> Option<Failure> {
        let response = self.responses.get_mut(id).expect("the caller looked it up");
        if let Stage::Waiting { failure, .. } = &mut response.stage
            && failure.is_some()
        {
            return failure.take();
        }
        if !response.settings.in_conversation || response.input.is_some() {
            return None;
        }
        let (lost, failure) = self.listening.failure.take()?;
        self.history.ends_with(&lost).then_some(failure)
    }

    /// Requests transcripts of the spoken parts of a response's own input.
    pub(super) fn transcribe_input(&mut self, id: &ResponseId, spoken: &[SpokenInput]) {
        let response = self.responses.get_mut(id).expect("made just now");
        for SpokenInput { item, length } in spoken {
            let part = response.input.iter().flatten().find_map(|entry| match entry {
                InputEntry::Item(own) if own.id == *item => own.untranscribed(),
                _ => None,
            });
            let Some(part) = part else { continue };
            let Stage::Waiting { awaiting, .. } = &mut response.stage else { continue };
            self.actions.push(Action::Transcribe(item.clone()));
            awaiting.push(OpenUtterance::inline(item.clone(), part, *length));
        }
    }

    /// Whether a response waits for the transcript of this item of its own input.
    pub(super) fn is_input(&self, item: &ItemId) -> bool {
        self.responses.values().any(|response| response.awaiting().iter().any(|utterance| utterance.item == *item))
    }

    pub(super) fn input_transcribed(&mut self, item: &ItemId, result: Result<String, Failure>) {
        for response in self.responses.values_mut() {
            let Stage::Waiting { awaiting, failure } = &mut response.stage else { continue };
            let Some(at) = awaiting.iter().position(|utterance| utterance.item == *item) else { continue };
            let utterance = awaiting.remove(at);
            response.heard += utterance.length;
            let own = response.input.iter_mut().flatten().find_map(|entry| match entry {
                InputEntry::Item(own) if own.id == *item => Some(own),
                _ => None,
            });
            match (result, own) {
                (Ok(text), Some(own)) => own.transcribe(utterance.part(), &text),
                (Err(error), _) => *failure = Some(error),
                (Ok(_), None) => {}
            }
            break;
        }
        self.start_waiting();
    }
}
