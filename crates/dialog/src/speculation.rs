//! Guesses: a pause may be the end of the turn, and the answer is begun before that is known.
//!
//! At a pause the words so far are asked for; with them the answer's work starts, held back by the session. When the
//! turn's end is confirmed and the answer would be the same work, it is let out; in every other case it is dropped, and
//! nothing of it was seen: no notice, no history, no call. How often, and how much work may be wasted, is bounded.

use super::captions::{is_echo, words};
use super::{Action, Dialog, Item, ItemPosition, ResponseRequest, ResponseSettings, ResponseWork};
use antiphon_types::chat::{ChatRequest, Message};
use antiphon_types::{ItemId, ResponseId, Timestamp, TurnId};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// The work that may be wasted at once, whatever the share: ten seconds let several long turns pass at full speed.
const MOST_CREDIT: Duration = Duration::from_secs(10);

/// How much may be spent on guesses.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Speculation {
    /// Guesses a turn.
    pub max_per_turn: u32,
    /// Work on guesses that came to nothing, as a share of the session's time: 0.5 is half a minute of work a minute.
    pub budget: f64,
}

/// What became of a guess.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum SpeculationOutcome {
    /// It was the end, and the answer is the one begun.
    Confirmed,
    /// The speaker went on.
    Resumed,
    /// The answer is another one: other words, other settings, or none.
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

/// The guesses of a conversation.
#[derive(Clone, Debug, Default)]
pub(super) struct Speculator {
    /// `None`: nothing is guessed.
    pub(super) limits: Option<Speculation>,
    /// Work that may still be wasted, as of a moment.
    credit: Duration,
    counted: Timestamp,
    /// Guesses of this turn.
    turn: TurnId,
    n_guesses: u32,
    guess: Option<Candidate>,
}

#[derive(Clone, Debug)]
struct Candidate {
    item: ItemId,
    since: Timestamp,
    branch: Option<SpeculativeResponse>,
}

/// An answer begun.
#[derive(Clone, Debug)]
struct SpeculativeResponse {
    response: ResponseId,
    chat: ChatRequest,
    settings: ResponseSettings,
}

impl Speculator {
    pub(super) fn new(limits: Option<Speculation>) -> Self {
        Self { limits, credit: MOST_CREDIT, ..Self::default() }
    }

    /// Whether one more guess is within the bounds; counts it.
    fn admits(&mut self, turn: TurnId, now: Timestamp) -> bool {
        let Some(limits) = self.limits else { return false };
        if self.turn != turn {
            (self.turn, self.n_guesses) = (turn, 0);
        }
        let earned = now.since(self.counted).mul_f64(limits.budget);
        (self.credit, self.counted) = ((self.credit + earned).min(MOST_CREDIT), now);
        let admits = self.n_guesses < limits.max_per_turn && self.credit > Duration::ZERO;
        self.n_guesses += u32::from(admits);
        admits
    }
}

impl Dialog {
    /// The speaker pauses. Where a response would follow the end, asks what was said.
    pub(super) fn paused(&mut self) {
        let answers = self.settings.turn_detection.is_some_and(|detection| detection.create_response);
        let is_free = self.active.is_none() && self.listening.awaiting.is_empty() && !self.awaits_tools();
        let Some(utterance) = self.listening.speaking.as_ref().filter(|_| answers && is_free) else { return };
        let item = utterance.item.clone();
        if self.speculator.guess.is_some() || !self.speculator.admits(self.listening.turn, self.now) {
            return;
        }
        self.speculator.guess = Some(Candidate { item: item.clone(), since: self.now, branch: None });
        self.actions.push(Action::TranscribeProvisionally(item));
    }

    /// The speaker goes on.
    pub(super) fn resumed(&mut self) {
        self.drop_speculative(SpeculationOutcome::Resumed);
    }

    /// What was said, if the pause is the end: begins the answer to it.
    pub(super) fn provisional_transcript(&mut self, item: &ItemId, text: &str) {
        let is_open = |guess: &Candidate| guess.item == *item && guess.branch.is_none();
        let Some(utterance) = self.listening.speaking.as_ref().filter(|utterance| utterance.item == *item) else {
            return;
        };
        if !self.speculator.guess.as_ref().is_some_and(is_open) || text.is_empty() {
            return;
        }
        if utterance.over.as_ref().is_some_and(|reply| is_echo(text, reply)) {
            return;
        }
        let settings = ResponseSettings::resolve(&self.settings, &ResponseRequest::default());
        let Some(chat) = self.rehearse(item, text, &settings) else { return };
        let response = ResponseId::from(self.ids.next("resp"));
        let branch = SpeculativeResponse { response: response.clone(), chat: chat.clone(), settings: settings.clone() };
        self.speculator.guess.as_mut().expect("seen above").branch = Some(branch);
        let turn = self.listening.turn;
        self.actions.push(Action::StartSpeculative(Box::new(ResponseWork { response, turn, chat, settings })));
    }

    /// What the model would read if the turn ended with these words. The conversation is as it was afterwards.
    fn rehearse(&mut self, item: &ItemId, text: &str, settings: &ResponseSettings) -> Option<ChatRequest> {
        let offered = self.offered(settings).ok()?;
        let told_from = self.history.told_from.clone();
        let mut said = Item::spoken_by_user(item.clone());
        said.transcribe(0, text);
        self.history.insert(said, &ItemPosition::Last).expect("there is always an end");
        let chat = self.chat(settings, None, offered).ok();
        self.history.remove(item);
        self.history.told_from = told_from;
        chat
    }

    /// The id that an answer begun would go by.
    pub(super) fn speculative_response(&self) -> Option<ResponseId> {
        let branch = self.speculator.guess.as_ref()?.branch.as_ref()?;
        Some(branch.response.clone())
    }

    /// Whether the work that is to start now was begun on a guess: then it is let out. Any other guess is dropped.
    pub(super) fn release_speculative(
        &mut self,
        id: &ResponseId,
        chat: &ChatRequest,
        settings: &ResponseSettings,
    ) -> bool {
        let branch = self.speculator.guess.as_ref().and_then(|guess| guess.branch.as_ref());
        let Some(branch) = branch.filter(|branch| branch.response == *id) else { return false };
        if branch.settings != *settings || !agree(&branch.chat, chat) {
            self.drop_speculative(SpeculationOutcome::Changed);
            return false;
        }
        self.speculator.guess = None;
        self.actions.push(Action::ReleaseSpeculative(id.clone()));
        true
    }

    /// Whatever was begun on the words of `item` is not wanted.
    pub(super) fn drop_speculation_of(&mut self, item: &ItemId) {
        if self.speculator.guess.as_ref().is_some_and(|guess| guess.item == *item) {
            self.drop_speculative(SpeculationOutcome::Changed);
        }
    }

    pub(super) fn drop_speculative(&mut self, outcome: SpeculationOutcome) {
        let Some(guess) = self.speculator.guess.take() else { return };
        let Some(branch) = guess.branch else { return };
        let wasted = self.now.since(guess.since);
        self.speculator.credit = self.speculator.credit.saturating_sub(wasted);
        self.actions.push(Action::DropSpeculative { response: branch.response, outcome, wasted });
    }
}

/// Whether two requests ask the same: a recognizer's second look may write the last words otherwise.
fn agree(guessed: &ChatRequest, asked: &ChatRequest) -> bool {
    let (Some((last, before)), Some((asked_last, asked_before))) =
        (guessed.messages.split_last(), asked.messages.split_last())
    else {
        return false;
    };
    let same_words = match (last, asked_last) {
        (Message::User(a), Message::User(b)) => words(a) == words(b),
        (a, b) => a == b,
    };
    let rest = |chat: &ChatRequest| (chat.tools.clone(), chat.tool_choice.clone(), chat.max_tokens);
    same_words && before == asked_before && rest(guessed) == rest(asked)
}
