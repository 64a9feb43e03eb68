//! The listening half of the reducer: utterances, their transcripts, and when to respond.

use super::backchannel::OverlapTranscript;
use super::captions::{Captions, Partial, is_echo};
use super::hold::Tentative;
use super::interruption::Decision;
use super::speaker::{HeardSpeaker, Speaker};
use super::{Action, Dialog, Failure, Item, ItemPosition, Notice, PlaybackControl, StopReason, UtteranceEnd};
use crate::ResponseRequest;
use antiphon_types::{ItemId, Samples, TurnId};
use serde::{Deserialize, Serialize};

/// State of the user's turn.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct UserTurn {
    /// The user's turn under way, or the last one.
    pub(super) turn: TurnId,
    /// The utterance whose audio still comes.
    pub(super) speaking: Option<OpenUtterance>,
    /// Utterances without a final transcript, in order.
    pub(super) awaiting: Vec<OpenUtterance>,
    /// The turn has ended and requires a response once its transcripts are complete.
    pub(super) wants_response: bool,
    /// The turn's utterances contained words.
    has_words: bool,
    /// Speech transcribed since the last response of the conversation began.
    pub(super) unanswered: Samples,
    /// Why a transcript of the turn is missing.
    pub(super) failure: Option<(ItemId, Failure)>,
}

/// What the user's turn waits for. It is derived: a speaker may go on while earlier utterances are transcribed and a
/// response is already required, so the fields of [`UserTurn`] vary independently.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TurnPhase {
    /// Nothing: what was said is transcribed, and no response to it is required.
    Idle,
    /// The end of the utterance under way, unless it is another voice's than the user's.
    Speaking,
    /// Transcripts of utterances that have ended.
    Awaiting,
    /// The end of the response under way, if there is one: then the turn's response begins.
    Due,
}

impl UserTurn {
    pub(super) fn phase(&self) -> TurnPhase {
        if self.speaking.as_ref().is_some_and(|utterance| !utterance.is_others()) {
            TurnPhase::Speaking
        } else if !self.awaiting.is_empty() {
            TurnPhase::Awaiting
        } else if self.wants_response {
            TurnPhase::Due
        } else {
            TurnPhase::Idle
        }
    }

    /// Whether the end or the transcript of this item's utterance is awaited, also where the client has deleted it.
    pub(super) fn awaits(&self, item: &ItemId) -> bool {
        self.speaking.iter().chain(&self.awaiting).any(|utterance| utterance.item == *item)
    }
}

/// One utterance. Samples at 16 kHz.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct OpenUtterance {
    pub(super) item: ItemId,
    /// Which part of the item.
    part: u32,
    audio_start: Samples,
    pub(super) length: Samples,
    captions: Captions,
    /// Stable words that are sent once the utterance is an item.
    pending_caption: String,
    /// The reply that was sounding when it began.
    pub(super) overlapped_reply: Option<String>,
    /// Why its transcription failed, where that happened before its end.
    early_failure: Option<Failure>,
    /// It may be a backchannel, or another voice's than the user's: the client does not know of it yet.
    pub(super) tentative: Option<Tentative>,
    /// `speech_started` was sent for it.
    #[serde(default)]
    is_reported: bool,
    /// Its voice was compared, and is the user's.
    #[serde(default)]
    pub(super) is_users: bool,
}

impl OpenUtterance {
    pub(super) fn part(&self) -> u32 {
        self.part
    }

    fn audio_end(&self) -> Samples {
        self.audio_start + self.length
    }

    /// One whose audio came inline with its item.
    pub(super) fn inline(item: ItemId, part: u32, length: Samples) -> Self {
        let captions = Captions::default();
        let pending_caption = String::new();
        let audio_start = Samples::ZERO;
        let overlapped_reply = None;
        let early_failure = None;
        Self {
            item,
            part,
            audio_start,
            length,
            captions,
            pending_caption,
            overlapped_reply,
            early_failure,
            tentative: None,
            is_reported: false,
            is_users: false,
        }
    }

    /// Its speaker, while that decides whether it is a turn.
    pub(super) fn speaker(&self) -> Option<HeardSpeaker> {
        self.tentative.as_ref()?.speaker
    }

    /// Whether its voice is another one than the user's.
    pub(super) fn is_others(&self) -> bool {
        self.tentative.as_ref().is_some_and(Tentative::is_others)
    }
}

impl Dialog {
    pub(super) fn speech_started(&mut self, audio_start: Samples) {
        if self.listening.speaking.is_some() {
            return;
        }
        let item = self.mint_item();
        let overlapped_reply = self.sounding();
        let tentative = self.tentative_from_now();
        let is_tentative = tentative.is_some();
        let inline = OpenUtterance::inline(item.clone(), 0, Samples::ZERO);
        let utterance = OpenUtterance { audio_start, overlapped_reply, tentative, ..inline };
        self.listening.speaking = Some(utterance);
        self.actions.push(Action::OpenUtterance { item: item.clone(), audio_start });
        if !is_tentative {
            self.turn_starts(item, audio_start);
        }
    }

    /// The speech is a turn, or more of one: it interrupts the reply. So is tentative speech before it, of which the client then
    /// learns first: the speech of turns is reported in its order.
    fn turn_starts(&mut self, item: ItemId, audio_start: Samples) {
        self.interrupted_before(audio_start);
        let unanswered = self.is_unanswered();
        self.begin_turn();
        let Some(detection) = self.settings.turn_detection else { return };
        if let Some(utterance) = self.listening.speaking.as_mut().filter(|utterance| utterance.item == item) {
            utterance.is_reported = true;
        }
        self.notify(Notice::SpeechStarted { item, audio_start });
        if detection.interrupt_response {
            self.interrupt();
            // An unanswered question stays open, even if this speech turns out to be noise.
            self.listening.has_words |= unanswered;
        } else {
            self.release();
        }
    }

    pub(super) fn speech_stopped(&mut self, audio_end: Samples) {
        if self.settings.turn_detection.is_none() {
            return;
        }
        if self.listening.speaking.as_ref().is_some_and(OpenUtterance::is_others) {
            return self.ignore_speech(audio_end);
        }
        let is_decided = |utterance: &OpenUtterance| {
            let by_speaker = utterance.tentative.as_ref().is_some_and(Tentative::is_of_speaker_alone);
            // After a failure there will be no words to decide by.
            by_speaker || utterance.early_failure.is_some()
        };
        if self.listening.speaking.as_ref().is_some_and(is_decided) {
            self.interrupted_by_speaker();
        }
        let Some(mut utterance) = self.listening.speaking.take() else { return };
        utterance.length = audio_end.saturating_sub(utterance.audio_start);
        self.actions.push(Action::CloseUtterance { item: utterance.item.clone(), end: UtteranceEnd::Detected });
        if let Some(tentative) = &mut utterance.tentative {
            tentative.end(self.now);
            self.listening.awaiting.push(utterance);
            return;
        }
        self.turn_stops(utterance);
    }

    /// The utterance under way ends here and is another voice's: it is no item, and its words are not wanted.
    fn ignore_speech(&mut self, audio_end: Samples) {
        let Some(utterance) = self.listening.speaking.take() else { return };
        let speaker = utterance.speaker().unwrap_or_default();
        let item = utterance.item;
        self.actions.push(Action::CloseUtterance { item: item.clone(), end: UtteranceEnd::Detected });
        self.actions.push(Action::DropUtterance(item.clone()));
        self.speech_ignored(speaker, utterance.audio_start, audio_end);
        self.drop_speculation_of(&item);
        self.release();
        self.start_waiting();
        self.respond_if_due();
    }

    fn turn_stops(&mut self, utterance: OpenUtterance) {
        self.answered = self.answered.map(|_| self.now);
        // Without turn detection, which the client may have switched off meanwhile, its start was not reported.
        if let Some(detection) = self.settings.turn_detection {
            if utterance.is_reported {
                self.notify(Notice::SpeechStopped { item: utterance.item.clone(), audio_end: utterance.audio_end() });
            }
            self.listening.wants_response |= detection.create_response;
        }
        self.commit(utterance);
    }

    /// A transcript of tentative speech: the reply stops, goes on, or stays held. Returns whether the utterance is still
    /// tentative.
    pub(super) fn weigh(&mut self, item: &ItemId, transcript: &OverlapTranscript<'_>) -> bool {
        let mut under_way = self.listening.speaking.iter_mut().chain(self.listening.awaiting.iter_mut());
        let Some(utterance) = under_way.find(|utterance| utterance.item == *item) else { return false };
        let OpenUtterance { tentative: Some(tentative), overlapped_reply, .. } = utterance else { return false };
        let is_echo = overlapped_reply.as_ref().is_some_and(|reply| is_echo(transcript.text, reply));
        tentative.heard(transcript, is_echo);
        let ended = tentative.ended();
        let decision = tentative.decide(transcript.is_final, false);
        match decision {
            Decision::Yield => self.interrupted_by(item),
            // The reply may be held again, for a sound behind the utterance.
            Decision::Continue if ended.is_some_and(|end| self.is_held_after(end)) => {}
            Decision::Continue => self.release_unless_interrupted(),
            Decision::Wait => self.hold_again(),
        }
        decision != Decision::Yield
    }

    /// The tentative speech under way interrupts the reply.
    pub(super) fn interrupted_by_speaker(&mut self) {
        if let Some(utterance) = &self.listening.speaking {
            let item = utterance.item.clone();
            self.interrupted_by(&item);
        }
    }

    /// The tentative utterance `item` interrupts the reply and is a turn like any other.
    fn interrupted_by(&mut self, item: &ItemId) {
        if let Some(utterance) = self.listening.speaking.as_mut().filter(|utterance| utterance.item == *item) {
            let Some(tentative) = utterance.tentative.take() else { return };
            utterance.is_users = tentative.speaker.is_some_and(|heard| heard.speaker == Speaker::User);
            let audio_start = utterance.audio_start;
            let part = utterance.part;
            // A client that controls playback gets the words with the item.
            let is_live = self.settings.live_transcripts || self.playback == PlaybackControl::Server;
            let delta = if is_live { std::mem::take(&mut utterance.pending_caption) } else { String::new() };
            self.turn_starts(item.clone(), audio_start);
            if !delta.is_empty() && self.settings.transcripts {
                self.notify(Notice::TranscriptDelta { item: item.clone(), part, delta });
            }
            return;
        }
        let is_it = |utterance: &OpenUtterance| utterance.item == *item && utterance.tentative.is_some();
        let Some(at) = self.listening.awaiting.iter().position(is_it) else { return };
        let mut utterance = self.listening.awaiting.remove(at);
        utterance.is_users = utterance.speaker().is_some_and(|heard| heard.speaker == Speaker::User);
        utterance.is_reported = true;
        utterance.tentative = None;
        self.turn_starts(item.clone(), utterance.audio_start);
        self.turn_stops(utterance);
    }

    /// Tentative utterances that began before `audio_start` and whose transcripts are still awaited are turns.
    fn interrupted_before(&mut self, audio_start: Samples) {
        let is_earlier =
            |utterance: &&OpenUtterance| utterance.tentative.is_some() && utterance.audio_start < audio_start;
        while let Some(earlier) =
            self.listening.awaiting.iter().find(is_earlier).map(|utterance| utterance.item.clone())
        {
            self.interrupted_by(&earlier);
        }
    }

    /// The client commits: the utterance under way ends here, or else the whole buffer becomes one.
    pub(super) fn commit_buffer(&mut self, buffer_start: Samples, buffered: Samples) {
        self.interrupted_by_speaker();
        self.interrupted_before(buffer_start + buffered);
        let mut utterance = self.listening.speaking.take().unwrap_or_else(|| {
            self.begin_turn();
            let item = self.mint_item();
            self.actions.push(Action::OpenUtterance { item: item.clone(), audio_start: buffer_start });
            OpenUtterance::inline(item, 0, Samples::ZERO)
        });
        utterance.length = buffered;
        self.actions.push(Action::CloseUtterance { item: utterance.item.clone(), end: UtteranceEnd::Committed });
        self.commit(utterance);
        self.actions.push(Action::ClearInput);
    }

    pub(super) fn clear_input(&mut self) {
        if let Some(utterance) = self.listening.speaking.take() {
            self.drop_speculation_of(&utterance.item);
            self.actions.push(Action::DropUtterance(utterance.item));
            if utterance.tentative.is_some() {
                self.release();
            }
        }
        self.actions.push(Action::ClearInput);
        self.notify(Notice::InputCleared);
        self.respond_if_due();
    }

    fn commit(&mut self, mut utterance: OpenUtterance) {
        let item = Item::spoken_by_user(utterance.item.clone());
        let previous = self.history.insert(item.clone(), &ItemPosition::Last).expect("there is always an end");
        self.notify(Notice::Committed { item: utterance.item.clone(), previous: previous.clone() });
        self.notify(Notice::ItemAdded { item: item.clone(), previous: previous.clone(), response: None });
        self.notify(Notice::ItemDone { item, previous, response: None });
        self.trim();
        let item = utterance.item.clone();
        let part = utterance.part;
        let delta = std::mem::take(&mut utterance.pending_caption);
        if !delta.is_empty() && self.settings.transcripts {
            self.notify(Notice::TranscriptDelta { item: item.clone(), part, delta });
        }
        let early_failure = utterance.early_failure.take();
        self.listening.awaiting.push(utterance);
        if let Some(failure) = early_failure {
            self.transcribed(&item, Err(failure), None, None);
        }
    }

    /// Speech before the response has started belongs to the same turn.
    pub(super) fn begin_turn(&mut self) {
        let listening = &mut self.listening;
        if listening.wants_response || listening.awaiting.iter().any(|utterance| utterance.tentative.is_none()) {
            return;
        }
        listening.turn = TurnId(listening.turn.0 + 1);
        listening.has_words = false;
        listening.failure = None;
        self.tool_rounds.begin();
    }

    /// Whether a response is under way, or an answer has been made, of which nothing was heard.
    fn is_unanswered(&self) -> bool {
        let is_silent = |item: &ItemId| {
            let spoken = self.history.spoken(item);
            spoken.is_none_or(|spoken| spoken.heard(self.now) == Samples::ZERO)
        };
        match self.active.as_ref().and_then(|id| self.responses.get(id)) {
            Some(response) => response.messages().all(is_silent),
            None => self.history.unheard_answer(self.now).is_some_and(|items| items.iter().all(is_silent)),
        }
    }

    /// Speech stops the responses that speak; the history keeps what was heard of them.
    fn interrupt(&mut self) {
        let unheard = self.history.unheard(self.now);
        let sounding = self.sounding_responses(&unheard);
        for id in &unheard {
            let heard = self.history.spoken(id).expect("unheard items are spoken").heard(self.now);
            self.history.spoken_mut(id).expect("unheard items are spoken").cut(heard);
        }
        if let Some(active) = self.active.clone() {
            self.stop(&active, StopReason::TurnDetected);
        }
        self.stop_beside(&sounding, StopReason::TurnDetected);
        self.actions.extend(sounding.into_iter().map(Action::Flush));
        self.end_hold();
    }

    /// The text of the reply that is playing.
    fn sounding(&self) -> Option<String> {
        let id = self.history.unheard(self.now).into_iter().next()?;
        Some(self.history.spoken(&id)?.text().to_owned())
    }

    pub(super) fn partial(&mut self, item: ItemId, partial: &Partial<'_>) {
        let Partial { text, n_sure_words, .. } = *partial;
        let is_tentative = self.weigh(&item, &OverlapTranscript { text, n_sure_words, is_final: false });
        let now = self.now;
        let listening = &mut self.listening;
        let is_live = self.settings.live_transcripts || self.playback == PlaybackControl::Server;
        let lasts = listening.speaking.as_ref().is_some_and(|utterance| utterance.item == item);
        let mut under_way = listening.speaking.iter_mut().chain(listening.awaiting.iter_mut());
        let Some(utterance) = under_way.find(|utterance| utterance.item == item) else { return };
        let part = utterance.part;
        let before = utterance.captions.draft();
        let delta = utterance.captions.partial(partial, now);
        let draft = utterance.captions.draft();
        if is_tentative || (lasts && !is_live) {
            utterance.pending_caption.extend(delta);
            return;
        }
        if !self.settings.transcripts {
            return;
        }
        let has_delta = delta.is_some();
        if let Some(delta) = delta {
            self.notify(Notice::TranscriptDelta { item: item.clone(), part, delta });
        }
        // The client may have asked for nothing but the protocol's own events.
        if self.playback == PlaybackControl::Server && (has_delta || draft != before) {
            self.notify(Notice::TranscriptDraft { item, part, text: draft });
        }
    }

    /// `n_sure_words`: of how many of the first words the recognizer is sure; `None`: it does not say.
    pub(super) fn transcribed(
        &mut self,
        item: &ItemId,
        result: Result<String, Failure>,
        language: Option<String>,
        n_sure_words: Option<u32>,
    ) {
        if self.is_input(item) {
            return self.input_transcribed(item, result);
        }
        let Some(at) = self.listening.awaiting.iter().position(|utterance| utterance.item == *item) else {
            return self.failed_early(item, result);
        };
        if self.listening.awaiting[at].tentative.is_some() {
            match &result {
                Ok(text) if self.weigh(item, &OverlapTranscript { text, n_sure_words, is_final: true }) => {
                    return self.pass_over(at, text);
                }
                Ok(_) => {}
                // Without words to decide by, the failure is reported with its item.
                Err(_) => self.interrupted_by(item),
            }
            return self.transcribed(item, result, language, n_sure_words);
        }
        let utterance = self.listening.awaiting.remove(at);
        match result {
            Ok(text) => self.heard(utterance, text, language),
            Err(failure) => self.not_heard(utterance, failure),
        }
        self.start_waiting();
        self.respond_if_due();
        self.drop_speculation_of(item);
    }

    /// The tentative utterance at `at` was a backchannel: it is no item, and nothing answers it.
    fn pass_over(&mut self, at: usize, text: &str) {
        let utterance = self.listening.awaiting.remove(at);
        let audio_start = utterance.audio_start;
        let audio_end = utterance.audio_end();
        self.notify(Notice::Backchannel { text: text.to_owned(), audio_start, audio_end });
        self.drop_speculation_of(&utterance.item);
        self.start_waiting();
        self.respond_if_due();
    }

    /// A transcription that fails while the person still speaks: the failure is reported at the end of the utterance.
    fn failed_early(&mut self, item: &ItemId, result: Result<String, Failure>) {
        let utterance = self.listening.speaking.as_mut().filter(|utterance| utterance.item == *item);
        if let (Some(utterance), Err(failure)) = (utterance, result) {
            utterance.early_failure = Some(failure);
        }
    }

    fn heard(&mut self, utterance: OpenUtterance, text: String, language: Option<String>) {
        let OpenUtterance { item, part, length, overlapped_reply, captions, is_users, .. } = utterance;
        if let Some(item) = self.history.item_mut(&item) {
            item.transcribe(part, &text);
        }
        self.listening.unanswered += length;
        if self.settings.transcripts {
            let rest = captions.rest(&text);
            let item = item.clone();
            let text = text.clone();
            let language = language.clone();
            self.notify(Notice::Transcript { item, part, text, language, rest, audio: length });
        }
        if overlapped_reply.is_some_and(|reply| is_echo(&text, &reply)) {
            // The client may have deleted it before.
            if self.history.remove(&item, self.now).is_some() {
                self.notify(Notice::ItemDeleted(item));
            }
        } else if !text.is_empty() {
            self.language = self.language_after(&text, language.as_deref());
            self.listening.has_words = true;
            self.answered = None;
            let belongs_to_profile = is_users || !self.speaker_enrolled;
            if belongs_to_profile && self.compares_speaker() {
                self.actions.push(Action::LearnSpeaker(item));
            }
        }
    }

    fn not_heard(&mut self, OpenUtterance { item, part, .. }: OpenUtterance, failure: Failure) {
        self.listening.failure = Some((item.clone(), failure.clone()));
        if self.settings.transcripts {
            self.notify(Notice::TranscriptFailed { item, part, failure });
        }
    }

    /// Responds to the turn once it has ended, its transcripts are complete, nothing else is being said and the line is not
    /// on hold. A turn without words (noise, a long cough, the hub's own voice) gets no response.
    pub(super) fn respond_if_due(&mut self) {
        if self.listening.phase() != TurnPhase::Due || self.active.is_some() || self.line_held {
            return;
        }
        self.listening.wants_response = false;
        if self.listening.has_words {
            self.listening.has_words = false;
            let id = self.speculative_response();
            self.respond_as(id, &ResponseRequest::default());
        }
    }
}
