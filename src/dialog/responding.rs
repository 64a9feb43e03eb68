//! The speaking half of the reducer: responses, their outputs, and how they end.

use super::listening::Utterance;
use super::usage::{tokens_read, tokens_written};
use super::{
    Action, Content, Dialog, IncompleteReason, InputEntry, Item, ItemKind, ItemStatus, Listener, Modality, Notice,
    OutputChange, Place, ResponseRequest, ResponseSettings, ResponseStatus, ResponseUsage, ResponseView, ResponseWork,
    Role, Spoken, StopReason, ToolCallDelta,
};
use crate::llm::{ChatRequest, Finish, Usage};
use crate::units::{ItemId, ResponseId, SampleRate, Samples, TurnId};

/// A response under way.
#[derive(Clone, Debug)]
pub(super) struct Response {
    pub(super) settings: ResponseSettings,
    turn: TurnId,
    input: Option<Vec<InputEntry>>,
    /// Spoken parts of its own input whose words are not known yet.
    awaiting: Vec<Utterance>,
    /// Why one of them will never be.
    failure: Option<String>,
    /// Its work has started; before, it waits for transcripts.
    started: bool,
    outputs: Vec<Output>,
    audio: Samples,
    /// What it has taken in: the estimate for its text, the speech it answers.
    n_read: u64,
    heard: Samples,
}

/// One output of a response.
#[derive(Clone, Debug)]
struct Output {
    item: Item,
    /// The model's index of a call; `None` for the message.
    call: Option<usize>,
}

impl Response {
    /// The message that is being spoken or written, and its index.
    fn message(&self) -> Option<(usize, &Output)> {
        self.outputs.iter().enumerate().find(|(_, output)| output.call.is_none())
    }

    pub(super) fn speaking_item(&self) -> Option<(ItemId, u32)> {
        self.message().map(|(index, output)| (output.item.id.clone(), index as u32))
    }

    fn rate(&self) -> SampleRate {
        self.settings.output_format.rate()
    }

    fn is_audio(&self) -> bool {
        self.settings.modality == Modality::Audio
    }

    /// What it used, by the engine's count of tokens or an estimate.
    fn usage(&self, tokens: Option<Usage>) -> ResponseUsage {
        let text = tokens.unwrap_or_else(|| Usage {
            input_tokens: self.n_read,
            output_tokens: tokens_written(self.outputs.iter().map(|output| &output.item)),
        });
        ResponseUsage { text, heard: self.heard, spoken_ms: self.audio.as_ms_ceil(self.rate()) }
    }

    fn view(&self, id: &ResponseId, status: ResponseStatus, usage: Option<ResponseUsage>) -> ResponseView {
        let output = self.outputs.iter().map(|output| output.item.clone()).collect();
        ResponseView { id: id.clone(), status, settings: self.settings.clone(), output, usage }
    }
}

impl Dialog {
    /// Creates a response; its work starts once the transcripts it reads are there.
    pub(super) fn respond(&mut self, request: &ResponseRequest) {
        let id = ResponseId::from(self.ids.next("resp"));
        let settings = ResponseSettings::resolve(&self.settings, request);
        let response = Response {
            turn: self.listening.turn,
            input: request.input.clone(),
            awaiting: Vec::new(),
            failure: None,
            started: false,
            outputs: Vec::new(),
            audio: Samples::ZERO,
            n_read: 0,
            heard: Samples::ZERO,
            settings,
        };
        if response.settings.in_conversation {
            self.active = Some(id.clone());
            self.listening.wants_response = false;
        }
        self.notify(Notice::ResponseCreated(response.view(&id, ResponseStatus::InProgress, None)));
        self.responses.insert(id.clone(), response);
        self.transcribe_input(&id, &request.spoken);
        self.start_waiting();
    }

    /// Starts the responses that waited for transcripts.
    pub(super) fn start_waiting(&mut self) {
        if !self.listening.awaiting.is_empty() {
            return;
        }
        let waiting = |(_, response): &(&ResponseId, &Response)| !response.started && response.awaiting.is_empty();
        let ids: Vec<ResponseId> = self.responses.iter().filter(waiting).map(|(id, _)| id.clone()).collect();
        for id in ids {
            if let Some(message) = self.nothing_to_answer(&id) {
                self.end(&id, ResponseStatus::Failed(message), None);
                continue;
            }
            let chat = self.chat(&id);
            let response = self.responses.get_mut(&id).expect("listed just now");
            response.started = true;
            response.n_read = tokens_read(&chat);
            if response.settings.in_conversation {
                response.heard += std::mem::take(&mut self.listening.unanswered);
            }
            let (turn, settings) = (response.turn, response.settings.clone());
            self.actions.push(Action::StartResponse(Box::new(ResponseWork { response: id, turn, chat, settings })));
        }
    }

    /// A response to a turn whose words were lost would answer something else: it fails with the reason.
    fn nothing_to_answer(&mut self, id: &ResponseId) -> Option<String> {
        let response = self.responses.get_mut(id).expect("the caller looked it up");
        if response.failure.is_some() {
            return response.failure.take();
        }
        if !response.settings.in_conversation || response.input.is_some() {
            return None;
        }
        self.listening.failure.take()
    }

    /// Has the spoken parts of a response's own input transcribed. They are no items of the conversation.
    fn transcribe_input(&mut self, id: &ResponseId, lengths: &[Samples]) {
        let response = self.responses.get_mut(id).expect("made just now");
        let items = response.input.iter_mut().flatten().filter_map(|entry| match entry {
            InputEntry::Item(item) => item.untranscribed().map(|part| (item, part)),
            InputEntry::Reference(_) => None,
        });
        for ((item, part), length) in items.zip(lengths) {
            // An id of its own, whatever the client called it.
            item.id = self.ids.next("item").into();
            self.actions.push(Action::Transcribe(item.id.clone()));
            response.awaiting.push(Utterance::given(item.id.clone(), part, *length));
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

    fn chat(&self, id: &ResponseId) -> ChatRequest {
        let response = &self.responses[id];
        let settings = &response.settings;
        let messages = match &response.input {
            None => self.history.messages(&settings.instructions),
            Some(entries) => {
                let items = entries.iter().filter_map(|entry| match entry {
                    InputEntry::Reference(id) => self.history.item(id),
                    InputEntry::Item(item) => Some(item),
                });
                self.history.messages_of(&settings.instructions, items)
            }
        };
        ChatRequest {
            messages,
            tools: settings.tools.clone(),
            tool_choice: settings.tool_choice.clone(),
            max_tokens: settings.max_output_tokens,
            user: None,
        }
    }

    pub(super) fn text(&mut self, id: &ResponseId, text: &str) {
        let Some((index, item)) = self.message(id) else { return };
        let response = self.responses.get_mut(id).expect("it has a message");
        let audio = response.is_audio();
        if let ItemKind::Message { content, .. } = &mut response.outputs[index as usize].item.kind {
            match &mut content[0] {
                Content::OutputText(written) => written.push_str(text),
                Content::OutputAudio { transcript: Some(spoken) } => spoken.push_str(text),
                _ => unreachable!("a message begins with its part"),
            }
        }
        if let Some(spoken) = self.history.spoken_mut(&item).filter(|_| audio) {
            spoken.say(text);
        }
        let text = text.to_owned();
        let change = if audio { OutputChange::TranscriptDelta(text) } else { OutputChange::TextDelta(text) };
        self.output(id, index, item, change);
    }

    pub(super) fn audio_made(&mut self, id: &ResponseId, n: Samples) {
        let Some((_, item)) = self.message(id) else { return };
        self.responses.get_mut(id).expect("it has a message").audio += n;
        if let Some(spoken) = self.history.spoken_mut(&item) {
            spoken.made(n);
        }
    }

    pub(super) fn tool_call(&mut self, delta: ToolCallDelta) {
        let ToolCallDelta { response: id, index: call, call_id, name, arguments } = delta;
        let Some(response) = self.responses.get(&id).filter(|response| response.started) else { return };
        let known = response.outputs.iter().position(|output| output.call == Some(call));
        let index = known.unwrap_or_else(|| {
            let kind = ItemKind::FunctionCall { call_id, name, arguments: String::new() };
            self.begin_output(&id, kind, Some(call))
        });
        let output = &mut self.responses.get_mut(&id).expect("seen just now").outputs[index];
        let item = output.item.id.clone();
        let ItemKind::FunctionCall { arguments: all, call_id, .. } = &mut output.item.kind else { return };
        all.push_str(&arguments);
        let call_id = call_id.clone();
        if !arguments.is_empty() {
            self.output(&id, index as u32, item, OutputChange::ArgumentsDelta { call_id, delta: arguments });
        }
    }

    pub(super) fn finished(&mut self, id: &ResponseId, outcome: Result<(Finish, Option<Usage>), String>) {
        if !self.responses.contains_key(id) {
            return;
        }
        let (status, tokens) = match outcome {
            Ok((Finish::Length, tokens)) => (ResponseStatus::Incomplete(IncompleteReason::MaxOutputTokens), tokens),
            Ok((Finish::ContentFilter, tokens)) => {
                (ResponseStatus::Incomplete(IncompleteReason::ContentFilter), tokens)
            }
            Ok((Finish::Stop | Finish::ToolCalls, tokens)) => (ResponseStatus::Completed, tokens),
            Err(message) => (ResponseStatus::Failed(message), None),
        };
        self.end(id, status, tokens);
        self.respond_if_due();
    }

    /// Stops a response. What the listener will not hear is not history.
    pub(super) fn stop(&mut self, id: &ResponseId, reason: StopReason) {
        let Some(response) = self.responses.get(id) else { return };
        let spoken = response.speaking_item().map(|(item, _)| item).filter(|_| response.is_audio());
        self.actions.push(Action::StopResponse(id.clone()));
        let now = self.now;
        // A client that buffers goes on to play what it has, unless it was told that the person spoke.
        let plays_on = reason == StopReason::ClientCancelled && self.listener == Listener::Buffers;
        if let Some(spoken) = spoken.and_then(|item| self.history.spoken_mut(&item)) {
            if plays_on { spoken.cut_unsent() } else { spoken.cut(spoken.heard(now)) }
        }
        self.end(id, ResponseStatus::Cancelled(reason), None);
    }

    /// Closes what is open and tells the client.
    fn end(&mut self, id: &ResponseId, status: ResponseStatus, tokens: Option<Usage>) {
        let Some(mut response) = self.responses.remove(id) else { return };
        self.actions.extend(response.awaiting.drain(..).map(|utterance| Action::DropUtterance(utterance.item)));
        let complete = status == ResponseStatus::Completed;
        for (index, output) in response.outputs.iter_mut().enumerate() {
            output.item.status = if complete { ItemStatus::Completed } else { ItemStatus::Incomplete };
            self.close_output(id, index as u32, &output.item, response.settings.in_conversation);
        }
        let usage = response.usage(tokens);
        self.notify(Notice::ResponseDone(response.view(id, status, Some(usage))));
        if self.active.as_ref() == Some(id) {
            self.active = None;
        }
    }

    fn close_output(&mut self, id: &ResponseId, index: u32, item: &Item, in_conversation: bool) {
        let change = match &item.kind {
            ItemKind::Message { content, .. } => match &content[..] {
                [Content::OutputText(text)] => Some(OutputChange::PartDone { audio: false, text: text.clone() }),
                [Content::OutputAudio { transcript }] => {
                    Some(OutputChange::PartDone { audio: true, text: transcript.clone().unwrap_or_default() })
                }
                _ => unreachable!("a reply message has one part"),
            },
            // A call that was cut off is not to be run: its arguments are never done.
            ItemKind::FunctionCall { .. } if item.status != ItemStatus::Completed => None,
            ItemKind::FunctionCall { call_id, name, arguments } => Some(OutputChange::ArgumentsDone {
                call_id: call_id.clone(),
                name: name.clone(),
                arguments: arguments.clone(),
            }),
            ItemKind::FunctionOutput { .. } => unreachable!("a response holds no results"),
        };
        if let Some(change) = change {
            self.output(id, index, item.id.clone(), change);
        }
        if let Some(kept) = self.history.item_mut(&item.id).filter(|_| in_conversation) {
            *kept = item.clone();
            let previous = self.history.previous(&item.id);
            self.notify(Notice::ItemDone { item: item.clone(), previous, response: Some(id.clone()) });
        }
        self.output(id, index, item.id.clone(), OutputChange::Done(item.clone()));
    }

    /// The message of a response that is under way, begun now if need be. `None` when the response is not current.
    fn message(&mut self, id: &ResponseId) -> Option<(u32, ItemId)> {
        let response = self.responses.get(id).filter(|response| response.started)?;
        if let Some((item, index)) = response.speaking_item() {
            return Some((index, item));
        }
        let (audio, rate) = (response.is_audio(), response.rate());
        let part = if audio {
            Content::OutputAudio { transcript: Some(String::new()) }
        } else {
            Content::OutputText(String::new())
        };
        let kind = ItemKind::Message { role: Role::Assistant, content: vec![part] };
        let index = self.begin_output(id, kind, None);
        let response = &self.responses[id];
        let item = response.outputs[index].item.id.clone();
        if audio && response.settings.in_conversation {
            let not_before = self.history.dry_at(self.now);
            let mut spoken = Spoken::new(id.clone(), rate, not_before);
            if self.held.is_some() && self.listener == Listener::Obeys {
                spoken.hold(self.now);
            }
            self.history.speak(item.clone(), spoken);
        }
        self.output(id, index as u32, item.clone(), OutputChange::PartAdded { audio });
        Some((index as u32, item))
    }

    fn begin_output(&mut self, id: &ResponseId, kind: ItemKind, call: Option<usize>) -> usize {
        let item = Item { id: self.mint_item(), status: ItemStatus::InProgress, kind };
        let response = self.responses.get_mut(id).expect("the caller looked it up");
        let index = response.outputs.len();
        let in_conversation = response.settings.in_conversation;
        response.outputs.push(Output { item: item.clone(), call });
        let mut shown = item.clone();
        if let ItemKind::Message { content, .. } = &mut shown.kind {
            // The protocol shows a new item without its part, which comes as an event of its own.
            content.clear();
        }
        self.output(id, index as u32, item.id.clone(), OutputChange::Added(shown.clone()));
        if in_conversation {
            let previous = self.history.insert(item, &Place::Last).expect("there is always an end");
            self.notify(Notice::ItemAdded { item: shown, previous, response: Some(id.clone()) });
            self.trim();
        }
        index
    }

    fn output(&mut self, response: &ResponseId, index: u32, item: ItemId, change: OutputChange) {
        self.notify(Notice::Output { response: response.clone(), index, item, change });
    }
}
