//! The client's commands, and when they are refused.

use super::history::MAX_BYTES;
use super::listening::OpenUtterance;
use super::{
    Action, Command, Content, Dialog, InputEntry, Item, ItemKind, ItemPosition, Notice, PlaybackControl, Refusal,
    ResponseRequest, Settings, StopReason,
};
use antiphon_types::{ItemId, ResponseId, Samples};

/// The most responses under way, the conversation's own included. Each holds a stream of the model.
const MAX_RESPONSES: usize = 16;

/// The least audio of a commit: 100 ms at 16 kHz, the protocol's value.
const MIN_COMMIT: Samples = Samples(1_600);

impl Dialog {
    pub(super) fn command(&mut self, event_id: Option<String>, command: Command) {
        let result = match command {
            Command::UpdateSettings(settings) => self.update(*settings),
            Command::Commit { buffered, .. } if buffered < MIN_COMMIT => Err(Refusal::BufferTooSmall { buffered }),
            Command::Commit { buffer_start, buffered } => {
                self.commit_buffer(buffer_start, buffered);
                Ok(())
            }
            Command::ClearInput => {
                self.clear_input();
                Ok(())
            }
            Command::ClearOutput => {
                self.clear_output();
                Ok(())
            }
            Command::Played { item, audio_end_ms, ago, stopped } => {
                let at = self.now.before(ago);
                if let Some(spoken) = self.history.spoken_mut(&item) {
                    let heard = Samples::from_ms(audio_end_ms, spoken.rate());
                    if stopped { spoken.stopped(at, heard) } else { spoken.reported(at, heard) }
                }
                Ok(())
            }
            Command::CreateItem { item, place } => self.create_item(item, &place).map(drop),
            Command::CreateSpokenItem { item, place, length } => self.create_spoken_item(item, &place, length),
            Command::DeleteItem(id) => self.delete_item(id),
            Command::RetrieveItem(id) => self.retrieve_item(id),
            Command::TruncateItem { item, content_index, audio_end_ms } => {
                self.truncate(item, content_index, audio_end_ms)
            }
            Command::CreateResponse(request) => self.respond_on_request(&request),
            Command::CancelResponse(response) => self.cancel(response),
        };
        if let Err(reason) = result {
            self.notify(Notice::Refused { event_id, reason });
        }
    }

    fn update(&mut self, settings: Settings) -> Result<(), Refusal> {
        if settings.voice != self.settings.voice && self.history.has_speech() {
            return Err(Refusal::VoiceFixed);
        }
        let servers = settings.servers.clone();
        let timeout = |settings: &Settings| settings.turn_detection.and_then(|detection| detection.idle_timeout);
        let sets_timeout = timeout(&settings) != timeout(&self.settings);
        self.settings = settings;
        self.speaker_enrolled &= self.compares_speaker();
        if sets_timeout {
            self.restart_idle_timeout();
        }
        self.notify(Notice::SettingsUpdated);
        self.declare_servers(&servers);
        Ok(())
    }

    /// Stops the responses under way that speak and drops all audio that was not heard.
    fn clear_output(&mut self) {
        let unheard = self.history.unheard(self.now);
        let sounding = self.sounding_responses(&unheard);
        if let Some(active) = self.active.clone() {
            self.stop(&active, StopReason::ClientCancelled);
        }
        self.stop_beside(&sounding, StopReason::ClientCancelled);
        for id in &unheard {
            let now = self.now;
            if let Some(spoken) = self.history.spoken_mut(id) {
                spoken.cut(spoken.heard(now));
            }
        }
        self.actions.extend(sounding.into_iter().map(Action::Flush));
        self.end_hold();
        self.respond_if_due();
    }

    fn create_spoken_item(&mut self, item: Item, place: &ItemPosition, length: Samples) -> Result<(), Refusal> {
        let part = item.untranscribed().unwrap_or_default();
        let id = self.create_item(item, place)?;
        self.actions.push(Action::Transcribe(id.clone()));
        self.listening.awaiting.push(OpenUtterance::inline(id, part, length));
        Ok(())
    }

    fn create_item(&mut self, mut item: Item, place: &ItemPosition) -> Result<ItemId, Refusal> {
        if item.id.as_str().is_empty() {
            item.id = self.mint_item();
        } else if self.history.item(&item.id).is_some() || self.listening.awaits(&item.id) {
            return Err(Refusal::DuplicateItem(item.id));
        }
        match &mut item.kind {
            ItemKind::FunctionOutput { call_id, .. } if !self.history.has_call(call_id) => {
                return Err(Refusal::NoSuchCall(call_id.clone()));
            }
            ItemKind::RemoteConsent { request, .. } if !self.waits_for_consent(request) => {
                return Err(Refusal::NoSuchApproval(request.clone()));
            }
            ItemKind::FunctionCall { call_id, .. } if call_id.is_empty() => *call_id = self.ids.next("call"),
            _ => {}
        }
        if item.n_bytes() > MAX_BYTES {
            return Err(Refusal::ItemTooLarge { bytes: item.n_bytes(), limit: MAX_BYTES });
        }
        let previous = self.history.insert(item.clone(), place).map_err(Refusal::NoItemBefore)?;
        self.history.list(&item.id, self.now);
        self.notify(Notice::ItemAdded { item: item.clone(), previous: previous.clone(), response: None });
        let consent = match &item.kind {
            ItemKind::RemoteConsent { request, approve, .. } => Some((request.clone(), *approve)),
            _ => None,
        };
        let id = item.id.clone();
        if item.is_users_message() {
            self.tool_rounds.begin();
        }
        if matches!(item.kind, ItemKind::FunctionOutput { .. }) {
            self.restart_idle_timeout();
        }
        self.notify(Notice::ItemDone { item, previous, response: None });
        if let Some((request, approve)) = consent {
            self.consent(&request, approve);
        }
        self.trim();
        Ok(id)
    }

    /// Keeps the conversation within its limits: removes the oldest items and notifies the client.
    pub(super) fn trim(&mut self) {
        for id in self.history.trim(self.now) {
            self.notify(Notice::ItemDeleted(id));
        }
    }

    fn delete_item(&mut self, id: ItemId) -> Result<(), Refusal> {
        self.history.remove(&id, self.now).ok_or_else(|| Refusal::NoItemToDelete(id.clone()))?;
        self.notify(Notice::ItemDeleted(id));
        Ok(())
    }

    fn retrieve_item(&mut self, id: ItemId) -> Result<(), Refusal> {
        let item = self.history.item(&id).cloned().ok_or(Refusal::NoItemToRetrieve(id))?;
        self.notify(Notice::ItemRetrieved(item));
        Ok(())
    }

    fn truncate(&mut self, id: ItemId, content_index: u32, audio_end_ms: u64) -> Result<(), Refusal> {
        let is_speech = match self.history.item(&id).map(|item| &item.kind) {
            Some(ItemKind::Message { content, .. }) => {
                matches!(content.get(content_index as usize), Some(Content::OutputAudio { .. }))
            }
            Some(_) => false,
            // Its client stops it like any other speech.
            None if self.history.is_filler(&id) => content_index == 0,
            None => return Err(Refusal::NoItemToTruncate(id)),
        };
        let spoken = self.history.spoken_mut(&id).filter(|_| is_speech).ok_or(Refusal::NotTruncatable)?;
        let length_ms = spoken.generated().as_ms_ceil(spoken.rate());
        if audio_end_ms > length_ms {
            return Err(Refusal::TruncateBeyondEnd { length_ms, asked_ms: audio_end_ms });
        }
        spoken.cut_at_ms(audio_end_ms);
        self.drop_transcript(&id);
        self.notify(Notice::ItemTruncated { item: id, content_index, audio_end_ms });
        Ok(())
    }

    /// Removes the transcript of a reply that the client truncated, also of one in progress.
    fn drop_transcript(&mut self, id: &ItemId) {
        if let Some(item) = self.history.item_mut(id) {
            item.drop_transcript();
        }
        let outputs = self.responses.values_mut().flat_map(|response| &mut response.outputs);
        outputs.filter(|output| output.item.id == *id).for_each(|output| output.item.drop_transcript());
    }

    fn respond_on_request(&mut self, request: &ResponseRequest) -> Result<(), Refusal> {
        if let Some(active) = self.active.clone().filter(|_| !request.out_of_band) {
            return Err(Refusal::ResponseActive(active));
        }
        if request.out_of_band && self.responses.len() >= MAX_RESPONSES {
            return Err(Refusal::TooManyResponses(MAX_RESPONSES));
        }
        for entry in request.input.iter().flatten() {
            if let InputEntry::Reference(id) = entry
                && self.history.item(id).is_none()
            {
                return Err(Refusal::NoItemToRead(id.clone()));
            }
        }
        self.respond(request);
        Ok(())
    }

    fn cancel(&mut self, response: Option<ResponseId>) -> Result<(), Refusal> {
        // Without an id, the command also cancels a planned follow-up response.
        let was_planned = response.is_none() && self.forget_follow_up();
        let wanted = response.or_else(|| self.active.clone());
        let Some(id) = wanted.filter(|id| self.responses.contains_key(id)) else {
            return if was_planned { Ok(()) } else { Err(Refusal::NoActiveResponse) };
        };
        self.stop(&id, StopReason::ClientCancelled);
        if self.playback == PlaybackControl::Server {
            self.actions.push(Action::Flush(id));
        }
        self.respond_if_due();
        Ok(())
    }
}
