//! What a response reads: the conversation, or instead of it the input its request brought, and the words of its spoken parts.
//!
//! `responding` asks for it before the model is asked. That input is no item of the conversation, and nobody is told of it.

use super::listening::OpenUtterance;
use super::remote::Offered;
use super::responding::Response;
use super::{Action, Dialog, InputEntry, ResponseSettings, SpokenInput, memory};
use antiphon_types::chat::ChatRequest;
use antiphon_types::{ItemId, ResponseId};

impl Dialog {
    /// Whether a response's work can start: the words it reads are known, and so are the tools it may call.
    pub(super) fn has_all_it_reads(&self, response: &Response) -> bool {
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
        words_are_known && response.awaiting.is_empty()
    }

    /// What the model reads: the conversation, or a response's own input.
    pub(super) fn chat(
        &mut self,
        settings: &ResponseSettings,
        input: Option<&[InputEntry]>,
        offered: Offered,
    ) -> Result<ChatRequest, memory::TooLong> {
        let messages = match input {
            None => {
                let fixed = memory::tokens(&settings.instructions) + memory::tool_tokens(&offered.tools);
                self.history.forget(fixed, &self.settings.memory)?;
                self.history.messages_of(&settings.instructions, self.history.recalled())
            }
            Some(entries) => {
                let items = entries.iter().filter_map(|entry| match entry {
                    InputEntry::Reference(id) => self.history.item(id),
                    InputEntry::Item(item) => Some(item),
                });
                self.history.messages_of(&settings.instructions, items)
            }
        };
        Ok(ChatRequest {
            messages,
            tools: offered.tools,
            tool_choice: offered.choice,
            max_tokens: settings.max_output_tokens,
            user: None,
        })
    }

    /// A response to a turn whose words were lost would answer something else: it fails with the reason. Where the user has
    /// written something since, that is answered.
    pub(super) fn nothing_to_answer(&mut self, id: &ResponseId) -> Option<String> {
        let response = self.responses.get_mut(id).expect("the caller looked it up");
        if response.failure.is_some() {
            return response.failure.take();
        }
        if !response.settings.in_conversation || response.input.is_some() {
            return None;
        }
        let (lost, message) = self.listening.failure.take()?;
        self.history.ends_with(&lost).then_some(message)
    }

    /// Has the spoken parts of a response's own input transcribed. They are no items of the conversation.
    pub(super) fn transcribe_input(&mut self, id: &ResponseId, spoken: &[SpokenInput]) {
        let response = self.responses.get_mut(id).expect("made just now");
        for SpokenInput { item, length } in spoken {
            let part = response.input.iter().flatten().find_map(|entry| match entry {
                InputEntry::Item(own) if own.id == *item => own.untranscribed(),
                _ => None,
            });
            let Some(part) = part else { continue };
            self.actions.push(Action::Transcribe(item.clone()));
            response.awaiting.push(OpenUtterance::inline(item.clone(), part, *length));
        }
    }

    /// Whether a response waits for the words of this item of its own input.
    pub(super) fn is_input(&self, item: &ItemId) -> bool {
        self.responses.values().any(|response| response.awaiting.iter().any(|utterance| utterance.item == *item))
    }

    pub(super) fn input_transcribed(&mut self, item: &ItemId, result: Result<String, String>) {
        for response in self.responses.values_mut() {
            let Some(at) = response.awaiting.iter().position(|utterance| utterance.item == *item) else { continue };
            let utterance = response.awaiting.remove(at);
            response.heard += utterance.length;
            let own = response.input.iter_mut().flatten().find_map(|entry| match entry {
                InputEntry::Item(own) if own.id == *item => Some(own),
                _ => None,
            });
            match (result, own) {
                (Ok(text), Some(own)) => own.transcribe(utterance.part(), &text),
                (Err(message), _) => response.failure = Some(message),
                (Ok(_), None) => {}
            }
            break;
        }
        self.start_waiting();
    }
}
