//! The speaking half of the reducer: responses, their outputs, and how they end.

use super::calls::Calls;
use super::listening::OpenUtterance;
use super::own_input::Request;
use super::remote::Offer;
use super::usage::{tokens_read, tokens_written};
use super::{
    Action, Content, Dialog, Failure, IncompleteReason, InputEntry, Item, ItemKind, ItemPosition, ItemStatus, Modality,
    Notice, OutputChange, PlaybackControl, ResponseRequest, ResponseSettings, ResponseStatus, ResponseUsage,
    ResponseView, ResponseWork, Role, SpokenItem, StopReason,
};
use antiphon_types::chat::{Finish, Usage};
use antiphon_types::{ItemId, ResponseId, SampleRate, Samples, TurnId};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A response under way.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Response {
    pub(super) settings: ResponseSettings,
    pub(super) turn: TurnId,
    pub(super) input: Option<Vec<InputEntry>>,
    pub(super) stage: Stage,
    pub(super) outputs: Vec<Output>,
    /// The filler whose sound is generated. It is not one of the outputs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) filler: Option<Item>,
    audio: Samples,
    /// The request, for the response that follows its remote calls.
    pub(super) request: ResponseRequest,
    /// The remote tools its model may call, by the names in the request.
    pub(super) offers: BTreeMap<String, Offer>,
    /// The calls that its model makes.
    #[serde(default)]
    pub(super) calls: Calls,
    /// Estimated tokens of the request.
    pub(super) n_read: u64,
    /// Speech it responds to, at 16 kHz.
    pub(super) heard: Samples,
}

/// How far a response is.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) enum Stage {
    /// It waits for the transcripts and the lists of tools that it reads.
    Waiting {
        /// Spoken parts of its own input without a transcript.
        awaiting: Vec<OpenUtterance>,
        /// Why one of them could not be transcribed.
        failure: Option<Failure>,
    },
    /// The model writes it.
    Writing,
    /// The model has finished, and the remote calls run.
    Calling {
        /// The engine's count of tokens, if it has one.
        tokens: Option<Usage>,
    },
    /// It is for a filler only, beside the conversation: no model writes it.
    Filler,
}

/// One output of a response.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Output {
    pub(super) item: Item,
    /// The model's index of a call; `None` for the message.
    pub(super) call: Option<usize>,
    /// Its end was sent to the client.
    pub(super) closed: bool,
}

impl Response {
    fn new(turn: TurnId, request: &ResponseRequest, settings: ResponseSettings) -> Self {
        Self {
            turn,
            input: request.input.clone(),
            stage: Stage::Waiting { awaiting: Vec::new(), failure: None },
            outputs: Vec::new(),
            filler: None,
            audio: Samples::ZERO,
            request: request.clone(),
            offers: BTreeMap::new(),
            calls: Calls::default(),
            n_read: 0,
            heard: Samples::ZERO,
            settings,
        }
    }

    /// Whether its outputs may come: it does not wait for what it reads.
    pub(super) fn is_started(&self) -> bool {
        !matches!(self.stage, Stage::Waiting { .. })
    }

    /// Spoken parts of its own input without a transcript.
    pub(super) fn awaiting(&self) -> &[OpenUtterance] {
        match &self.stage {
            Stage::Waiting { awaiting, .. } => awaiting,
            _ => &[],
        }
    }

    /// The message that is being spoken or written, and its index.
    fn message(&self) -> Option<(usize, &Output)> {
        self.outputs.iter().enumerate().rfind(|(_, output)| output.call.is_none() && !output.closed)
    }

    pub(super) fn speaking_item(&self) -> Option<(ItemId, u32)> {
        let filler = || Some((self.filler.as_ref()?.id.clone(), self.next_index()));
        filler().or_else(|| self.message().map(|(index, output)| (output.item.id.clone(), index as u32)))
    }

    /// The index of the next output. A filler shows the same one: the client's list ends up as the response's.
    pub(super) fn next_index(&self) -> u32 {
        self.outputs.len() as u32
    }

    /// Whether a filler may be spoken for it: it is asked for, is to be spoken, and has said nothing.
    pub(super) fn may_fill(&self) -> bool {
        self.is_started() && self.is_audio() && self.filler.is_none() && self.messages().next().is_none()
    }

    pub(super) fn rate(&self) -> SampleRate {
        self.settings.output_format.rate()
    }

    pub(super) fn is_audio(&self) -> bool {
        self.settings.modality == Modality::Audio
    }

    /// Its usage, by the engine's count of tokens or an estimate.
    fn usage(&self, tokens: Option<Usage>) -> ResponseUsage {
        let text = self.calls.all_used(tokens).unwrap_or_else(|| Usage {
            input_tokens: self.n_read,
            output_tokens: tokens_written(self.outputs.iter().map(|output| &output.item)),
        });
        ResponseUsage { text, input_audio: self.heard, output_audio_ms: self.audio.as_ms_ceil(self.rate()) }
    }

    fn view(&self, id: &ResponseId, status: ResponseStatus, usage: Option<ResponseUsage>) -> ResponseView {
        let output = self.outputs.iter().map(|output| output.item.clone()).collect();
        ResponseView { id: id.clone(), status, settings: self.settings.clone(), output, usage }
    }
}

impl Dialog {
    /// Creates a response; its work starts once the transcripts it reads are complete and the user's line is not on hold.
    pub(super) fn respond(&mut self, request: &ResponseRequest) {
        self.respond_as(None, request);
    }

    /// The same with the id of a speculative response.
    pub(super) fn respond_as(&mut self, id: Option<ResponseId>, request: &ResponseRequest) {
        let id = id.unwrap_or_else(|| ResponseId::from(self.ids.next("resp")));
        let settings = self.resolve(request, self.language.as_deref());
        let response = Response::new(self.listening.turn, request, settings);
        if response.settings.in_conversation {
            self.forget_follow_up();
            self.user_waits();
            self.active = Some(id.clone());
            self.listening.wants_response = false;
        }
        self.notify(Notice::ResponseCreated(response.view(&id, ResponseStatus::InProgress, None)));
        self.responses.insert(id.clone(), response);
        self.transcribe_input(&id, &request.spoken_input);
        self.start_waiting();
    }

    /// Begins a response for a filler alone.
    pub(super) fn respond_with_filler(&mut self, id: &ResponseId, request: &ResponseRequest) {
        let settings = self.resolve(request, self.language.as_deref());
        let response = Response::new(self.listening.turn, request, settings);
        let response = Response { stage: Stage::Filler, ..response };
        self.notify(Notice::ResponseCreated(response.view(id, ResponseStatus::InProgress, None)));
        self.responses.insert(id.clone(), response);
    }

    /// Ends it: the filler is its only output.
    pub(super) fn end_filler_response(&mut self, id: &ResponseId, item: Item) {
        let response = self.responses.get_mut(id).expect("the caller looked it up");
        response.outputs.push(Output { item, call: None, closed: true });
        self.end(id, ResponseStatus::Completed, None);
    }

    /// Starts the responses whose transcripts and tools have arrived, but for those that nobody would hear.
    pub(super) fn start_waiting(&mut self) {
        let ready = |(_, response): &(&ResponseId, &Response)| !response.is_started() && self.may_start(response);
        let ids: Vec<ResponseId> = self.responses.iter().filter(ready).map(|(id, _)| id.clone()).collect();
        for id in ids {
            if let Some(failure) = self.nothing_to_answer(&id) {
                self.end(&id, ResponseStatus::Failed(failure), None);
                continue;
            }
            let offered = match self.offered_in_turn(&id) {
                Ok(offered) => offered,
                Err(message) => {
                    self.end(&id, ResponseStatus::Failed(message.into()), None);
                    continue;
                }
            };
            self.settle_language(&id);
            let offers = offered.remote.clone();
            let calls = Calls::of(&offered);
            let settings = self.responses[&id].settings.clone();
            let input = self.responses[&id].input.clone();
            let Request { chat, left_out } = match self.chat(&settings, input.as_deref(), offered) {
                Ok(request) => request,
                Err(error) => {
                    self.end(&id, ResponseStatus::Failed(error.to_string().into()), None);
                    continue;
                }
            };
            let response = self.responses.get_mut(&id).expect("listed just now");
            response.stage = Stage::Writing;
            response.offers = offers;
            response.calls = calls;
            response.n_read = tokens_read(&chat);
            if response.settings.in_conversation {
                response.heard += std::mem::take(&mut self.listening.unanswered);
            }
            let turn = response.turn;
            if left_out > 0 {
                self.notify(Notice::InputCut { response: id.clone(), tokens: left_out });
            }
            if self.release_speculative(&id, &chat, &settings) {
                continue;
            }
            self.actions.push(Action::StartResponse(Box::new(ResponseWork { response: id, turn, chat, settings })));
        }
    }

    pub(super) fn text(&mut self, id: &ResponseId, text: &str) {
        if self.is_space_between(id, text) {
            return;
        }
        self.filler_ended(id);
        let Some((index, item)) = self.message(id) else { return };
        let response = self.responses.get_mut(id).expect("it has a message");
        let audio = response.is_audio();
        if let ItemKind::Message { content, .. } = &mut response.outputs[index as usize].item.kind {
            match &mut content[0] {
                Content::OutputText(written) => written.push_str(text),
                Content::OutputAudio { transcript: Some(spoken) } => spoken.push_str(text),
                // The client has truncated it.
                Content::OutputAudio { transcript: None } => {}
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

    /// What was written of a response is neither history nor transcript; its sound was heard.
    pub(super) fn text_withdrawn(&mut self, id: &ResponseId) {
        let Some(response) = self.responses.get_mut(id) else { return };
        for output in &mut response.outputs {
            let ItemKind::Message { content, .. } = &mut output.item.kind else { continue };
            for part in content {
                if let Content::OutputText(text) | Content::OutputAudio { transcript: Some(text) } = part {
                    text.clear();
                }
            }
            if let Some(kept) = self.history.item_mut(&output.item.id) {
                kept.clone_from(&output.item);
            }
            if let Some(spoken) = self.history.spoken_mut(&output.item.id) {
                spoken.withdraw();
            }
        }
    }

    pub(super) fn audio_made(&mut self, id: &ResponseId, n: Samples, quiet: Samples) {
        let Some((_, item)) = self.message(id) else { return };
        self.responses.get_mut(id).expect("it has a message").audio += n;
        if let Some(spoken) = self.history.spoken_mut(&item) {
            spoken.made(n, quiet);
        }
    }

    pub(super) fn finished(&mut self, id: &ResponseId, outcome: Result<(Finish, Option<Usage>), Failure>) {
        if !self.responses.contains_key(id) {
            return;
        }
        if let Ok((Finish::Stop | Finish::ToolCalls, tokens)) = outcome {
            match self.settle_calls(id, tokens) {
                Ok(true) => return,
                Ok(false) => {}
                Err(failure) => {
                    self.end(id, ResponseStatus::Failed(failure), tokens);
                    return self.respond_if_due();
                }
            }
        }
        let (status, tokens) = match outcome {
            Ok((Finish::Length, tokens)) => (ResponseStatus::Incomplete(IncompleteReason::MaxOutputTokens), tokens),
            Ok((Finish::ContentFilter, tokens)) => {
                (ResponseStatus::Incomplete(IncompleteReason::ContentFilter), tokens)
            }
            Ok((Finish::Stop | Finish::ToolCalls, tokens)) => (ResponseStatus::Completed, tokens),
            Err(failure) => (ResponseStatus::Failed(failure), None),
        };
        let calls = self.responses[id].remote_calls();
        if status == ResponseStatus::Completed && !calls.is_empty() {
            return self.run_calls(id, calls, tokens);
        }
        self.end(id, status, tokens);
        self.respond_if_due();
    }

    /// Closes an output and notifies the client.
    pub(super) fn close(&mut self, id: &ResponseId, index: usize, status: ItemStatus) {
        let response = self.responses.get_mut(id).expect("the caller looked it up");
        let in_conversation = response.settings.in_conversation;
        let output = &mut response.outputs[index];
        output.closed = true;
        output.item.status = status;
        let item = output.item.clone();
        self.close_output(id, index as u32, &item, in_conversation);
    }

    /// Stops a response. What the listener will not hear is not history.
    pub(super) fn stop(&mut self, id: &ResponseId, reason: StopReason) {
        let Some(response) = self.responses.get(id) else { return };
        let spoken: Vec<ItemId> = response.messages().cloned().chain(self.history.filler_of(id)).collect();
        self.actions.push(Action::StopResponse(id.clone()));
        self.stop_calls(id);
        let now = self.now;
        // A client that buffers goes on to play what it has, unless it was notified that the user spoke.
        let plays_on = reason == StopReason::ClientCancelled && self.playback == PlaybackControl::Client;
        for item in spoken {
            let Some(spoken) = self.history.spoken_mut(&item) else { continue };
            if plays_on { spoken.cut_unsent() } else { spoken.cut(spoken.heard(now)) }
        }
        self.end(id, ResponseStatus::Cancelled(reason), None);
    }

    /// Stops the responses beside the conversation that sound, or are silent between two pieces of their speech.
    pub(super) fn stop_beside(&mut self, sounding: &[ResponseId], reason: StopReason) {
        let has_begun = |(item, _): (ItemId, u32)| {
            self.history.spoken(&item).is_some_and(|spoken| spoken.playhead().n_sent() > Samples::ZERO)
        };
        let speaks = |id: &ResponseId| sounding.contains(id) || self.speaking_item(id).is_some_and(has_begun);
        let beside = self.responses.iter().filter(|(id, response)| !response.settings.in_conversation && speaks(id));
        let ids: Vec<ResponseId> = beside.map(|(id, _)| id.clone()).collect();
        for id in ids {
            self.stop(&id, reason);
        }
    }

    /// Closes the open outputs and notifies the client.
    pub(super) fn end(&mut self, id: &ResponseId, status: ResponseStatus, tokens: Option<Usage>) {
        self.filler_ended(id);
        let Some(mut response) = self.responses.remove(id) else { return };
        self.filler_is_late_for(id);
        let awaited = response.awaiting().iter().map(|utterance| utterance.item.clone());
        self.actions.extend(awaited.map(Action::DropUtterance));
        let complete = status == ResponseStatus::Completed;
        for (index, output) in response.outputs.iter_mut().enumerate().filter(|(_, output)| !output.closed) {
            output.item.status = if complete { ItemStatus::Completed } else { ItemStatus::Incomplete };
            self.close_output(id, index as u32, &output.item, response.settings.in_conversation);
        }
        self.count_round(&response, &status);
        let usage = response.usage(tokens);
        self.notify(Notice::ResponseDone(response.view(id, status, Some(usage))));
        if self.active.as_ref() == Some(id) {
            self.active = None;
            self.answered = Some(self.now);
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
            // A remote call's arguments were sent before it ran.
            ItemKind::RemoteCall { .. } | ItemKind::RemoteRequest(_) => None,
            ItemKind::FunctionOutput { .. } | ItemKind::RemoteTools { .. } | ItemKind::RemoteConsent { .. } => {
                unreachable!("a response holds no results and no lists")
            }
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
        let response = self.responses.get(id).filter(|response| response.is_started())?;
        if let Some((item, index)) = response.speaking_item() {
            return Some((index, item));
        }
        let audio = response.is_audio();
        let rate = response.rate();
        if response.settings.in_conversation {
            self.wait_is_over();
        }
        let part = if audio {
            Content::OutputAudio { transcript: Some(String::new()) }
        } else {
            Content::OutputText(String::new())
        };
        let kind = ItemKind::Message { role: Role::Assistant, content: vec![part] };
        let index = self.begin_output(id, kind, None);
        let response = &self.responses[id];
        let item = response.outputs[index].item.id.clone();
        let in_conversation = response.settings.in_conversation;
        // What is beside the conversation is speech where the hub controls playback; else the client decides whether it sounds.
        if audio && (in_conversation || self.playback == PlaybackControl::Server) {
            let not_before = self.history.dry_at(self.now);
            let mut spoken = SpokenItem::new(id.clone(), rate, not_before);
            if self.held.is_some() && self.playback == PlaybackControl::Server {
                spoken.hold(self.now);
            }
            if in_conversation {
                self.history.speak(item.clone(), spoken);
            } else {
                self.history.speak_unlisted(item.clone(), spoken, self.now);
            }
        }
        self.output(id, index as u32, item.clone(), OutputChange::PartAdded { audio });
        Some((index as u32, item))
    }

    pub(super) fn begin_output(&mut self, id: &ResponseId, kind: ItemKind, call: Option<usize>) -> usize {
        self.filler_ended(id);
        self.end_outputs(id);
        let item = Item { id: self.mint_item(), status: ItemStatus::InProgress, kind };
        let response = self.responses.get_mut(id).expect("the caller looked it up");
        let index = response.outputs.len();
        let in_conversation = response.settings.in_conversation;
        response.outputs.push(Output { item: item.clone(), call, closed: false });
        let mut shown = item.clone();
        if let ItemKind::Message { content, .. } = &mut shown.kind {
            // The protocol shows a new item without its part, which comes as an event of its own.
            content.clear();
        }
        self.output(id, index as u32, item.id.clone(), OutputChange::Added(shown.clone()));
        if in_conversation {
            let previous = self.history.insert(item, &ItemPosition::Last).expect("there is always an end");
            self.notify(Notice::ItemAdded { item: shown, previous, response: Some(id.clone()) });
            self.trim();
        }
        index
    }

    pub(super) fn output(&mut self, response: &ResponseId, index: u32, item: ItemId, change: OutputChange) {
        self.notify(Notice::Output { response: response.clone(), index, item, change });
    }
}
