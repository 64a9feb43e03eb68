//! Speculation: a pause may be the end of the turn, and the response is started before that is confirmed.
//!
//! At a pause the dialog requests a provisional transcript. With it a speculative response starts, whose output the session
//! withholds. When the end of the turn is confirmed and the model would get the same request, the speculative response is
//! released; in every other case it is dropped and leaves no notice, no history and no call. The number of attempts in a
//! turn and the work they may waste are bounded.

use super::backchannel::OverlapTranscript;
use super::captions::{is_echo, words};
use super::{Action, Dialog, Item, ItemPosition, ResponseRequest, ResponseSettings, ResponseWork};
use antiphon_types::chat::{ChatRequest, Message};
use antiphon_types::{ItemId, ResponseId, Timestamp, TurnId};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// The most wasted work that may accumulate as credit: ten seconds cover several long turns.
const MOST_CREDIT: Duration = Duration::from_secs(10);

/// The limits of speculation.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Speculation {
    /// Provisional transcripts in one turn.
    pub max_per_turn: u32,
    /// Work on dropped responses as a share of the session's time: 0.5 is half a minute of work a minute.
    pub budget: f64,
}

/// What became of a speculative response.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum SpeculationOutcome {
    /// The turn ended, and the response was released.
    Confirmed,
    /// The speaker went on.
    Resumed,
    /// The turn ended otherwise: other words, other settings, or no response.
    Changed,
}

impl SpeculationOutcome {
    /// Its name in metrics and records.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Confirmed => "confirmed",
            Self::Resumed => "resumed",
            Self::Changed => "changed",
        }
    }
}

/// The speculation of a conversation.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct SpeculationState {
    /// `None`: the dialog does not speculate.
    pub(super) limits: Option<Speculation>,
    /// Work that may be wasted, as of `credit_at`.
    credit: Duration,
    credit_at: Timestamp,
    /// The turn `n_attempts` counts in.
    turn: TurnId,
    /// Provisional transcripts requested in this turn.
    n_attempts: u32,
    attempt: Option<Attempt>,
}

/// One pause that may be the end of the turn.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Attempt {
    /// The utterance.
    item: ItemId,
    /// When the pause was reported.
    since: Timestamp,
    /// Started with the provisional transcript.
    response: Option<SpeculativeResponse>,
}

/// A response started before the end of the turn is confirmed, and the request it was started with.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct SpeculativeResponse {
    id: ResponseId,
    chat: ChatRequest,
    settings: ResponseSettings,
}

impl SpeculationState {
    pub(super) fn new(limits: Option<Speculation>) -> Self {
        Self { limits, credit: MOST_CREDIT, ..Self::default() }
    }

    /// Whether one more attempt is within the limits; counts it.
    fn admits(&mut self, turn: TurnId, now: Timestamp) -> bool {
        let Some(limits) = self.limits else { return false };
        if self.turn != turn {
            self.turn = turn;
            self.n_attempts = 0;
        }
        let earned = now.since(self.credit_at).mul_f64(limits.budget);
        self.credit = (self.credit + earned).min(MOST_CREDIT);
        self.credit_at = now;
        let admits = self.n_attempts < limits.max_per_turn && self.credit > Duration::ZERO;
        self.n_attempts += u32::from(admits);
        admits
    }
}

impl Dialog {
    /// The speaker pauses: requests a provisional transcript where a response would follow the end of the turn, and where its
    /// words decide whether the speech interrupts. The words of another voice than the user's are not wanted.
    pub(super) fn paused(&mut self) {
        let answers = self.settings.turn_detection.is_some_and(|detection| detection.create_response);
        self.speaker_pauses();
        let is_tentative = self.is_speech_tentative();
        // Tentative speech that turns out to be a turn has stopped the response.
        let is_free =
            (self.active.is_none() || is_tentative) && self.listening.awaiting.is_empty() && !self.awaits_tools();
        let Some(utterance) = &self.listening.speaking else { return };
        let item = utterance.item.clone();
        let is_open = answers && is_free && !utterance.is_others() && self.speculation.attempt.is_none();
        let speculates = is_open && self.speculation.admits(self.listening.turn, self.now);
        if speculates {
            self.speculation.attempt = Some(Attempt { item: item.clone(), since: self.now, response: None });
        }
        if speculates || is_tentative {
            self.actions.push(Action::TranscribeProvisionally(item));
        }
    }

    /// The speaker goes on.
    pub(super) fn resumed(&mut self) {
        self.speaker_resumes();
        self.drop_speculative(SpeculationOutcome::Resumed);
    }

    /// A provisional transcript: starts the speculative response to it.
    pub(super) fn provisional_transcript(
        &mut self,
        item: &ItemId,
        text: &str,
        language: Option<&str>,
        n_sure_words: Option<u32>,
    ) {
        // Where the speaker has gone on, more words come.
        let is_final = !self.is_tentative_voice_heard();
        if self.weigh(item, &OverlapTranscript { text, n_sure_words, is_final }) {
            return self.drop_speculation_of(item);
        }
        let is_open = |attempt: &Attempt| attempt.item == *item && attempt.response.is_none();
        let Some(utterance) = self.listening.speaking.as_ref().filter(|utterance| utterance.item == *item) else {
            return;
        };
        if !self.speculation.attempt.as_ref().is_some_and(is_open) || text.is_empty() {
            return;
        }
        if utterance.overlapped_reply.as_ref().is_some_and(|reply| is_echo(text, reply)) {
            return;
        }
        let language = self.language_after(text, language);
        let settings = self.resolve(&ResponseRequest::default(), language.as_deref());
        let Some(chat) = self.provisional_request(item, text, &settings) else { return };
        let response = ResponseId::from(self.ids.next("resp"));
        let speculative = SpeculativeResponse { id: response.clone(), chat: chat.clone(), settings: settings.clone() };
        self.speculation.attempt.as_mut().expect("checked above").response = Some(speculative);
        let turn = self.listening.turn;
        self.actions.push(Action::StartSpeculative(Box::new(ResponseWork { response, turn, chat, settings })));
    }

    /// The request to the model if the turn ended with these words. The conversation is unchanged on return.
    fn provisional_request(&mut self, item: &ItemId, text: &str, settings: &ResponseSettings) -> Option<ChatRequest> {
        let offered = self.offered(settings).ok()?;
        let told_from = self.history.told_from.clone();
        let mut said = Item::spoken_by_user(item.clone());
        said.transcribe(0, text);
        self.history.insert(said, &ItemPosition::Last).expect("there is always an end");
        let chat = self.chat(settings, None, offered).ok().map(|request| request.chat);
        self.history.remove(item, self.now);
        self.history.told_from = told_from;
        chat
    }

    /// The id of the speculative response.
    pub(super) fn speculative_response(&self) -> Option<ResponseId> {
        Some(self.speculation.attempt.as_ref()?.response.as_ref()?.id.clone())
    }

    /// Releases the speculative response `id` if it was started with the same request, else drops it. Returns whether it
    /// was released; if not, the response's work is still to be started.
    pub(super) fn release_speculative(
        &mut self,
        id: &ResponseId,
        chat: &ChatRequest,
        settings: &ResponseSettings,
    ) -> bool {
        let speculative = self.speculation.attempt.as_ref().and_then(|attempt| attempt.response.as_ref());
        let Some(speculative) = speculative.filter(|speculative| speculative.id == *id) else { return false };
        if speculative.settings != *settings || !agree(&speculative.chat, chat) {
            self.drop_speculative(SpeculationOutcome::Changed);
            return false;
        }
        self.speculation.attempt = None;
        self.actions.push(Action::ReleaseSpeculative(id.clone()));
        true
    }

    /// Drops the speculation on the utterance `item`.
    pub(super) fn drop_speculation_of(&mut self, item: &ItemId) {
        if self.speculation.attempt.as_ref().is_some_and(|attempt| attempt.item == *item) {
            self.drop_speculative(SpeculationOutcome::Changed);
        }
    }

    pub(super) fn drop_speculative(&mut self, outcome: SpeculationOutcome) {
        let Some(attempt) = self.speculation.attempt.take() else { return };
        let Some(speculative) = attempt.response else { return };
        let wasted = self.now.since(attempt.since);
        self.speculation.credit = self.speculation.credit.saturating_sub(wasted);
        self.actions.push(Action::DropSpeculative { response: speculative.id, outcome, wasted });
    }
}

/// Whether two requests are equivalent. The final transcript may differ from the provisional one in case and punctuation.
fn agree(provisional: &ChatRequest, confirmed: &ChatRequest) -> bool {
    let (Some((last, before)), Some((confirmed_last, confirmed_before))) =
        (provisional.messages.split_last(), confirmed.messages.split_last())
    else {
        return false;
    };
    let same_words = match (last, confirmed_last) {
        (Message::User(a), Message::User(b)) => words(a) == words(b),
        (a, b) => a == b,
    };
    let rest = |chat: &ChatRequest| (chat.tools.clone(), chat.tool_choice.clone(), chat.max_tokens);
    same_words && before == confirmed_before && rest(provisional) == rest(confirmed)
}
