//! The idle timeout (`idle_timeout_ms`): the hub prompts a user who says nothing.
//!
//! It counts from the end of the last reply's playback. Speech without words restarts it, words stop it until the next
//! reply. A user whose client is disconnected or whose line is on hold is not prompted: the timeout restarts afterwards.
//! It is longer while a tool runs, and restarts with the tool's result. It restarts when the client sets another one,
//! also by turning turn detection on: silence without a timeout does not count.

use super::listening::TurnPhase;
use super::{Content, Dialog, Item, ItemKind, ItemPosition, ItemStatus, Notice, ResponseRequest, Role};
use antiphon_types::{SampleRate, Samples, Timestamp};
use std::time::Duration;

/// How much later the user is prompted while a call has no result. A client may never send one: some calls only show
/// something.
const RESULT_PATIENCE: Duration = Duration::from_secs(60);

/// Added to the instructions of the prompting response.
const PROMPT: &str = "The user has said nothing for a while. In one short sentence, ask whether they are still there \
                      or offer to go on.";

impl Dialog {
    /// When the user is prompted, if nothing happens until then.
    pub(super) fn idle_deadline(&self) -> Option<Timestamp> {
        let timeout = self.settings.turn_detection?.idle_timeout?;
        let answered = self.answered?;
        let is_idle = self.listening.phase() == TurnPhase::Idle;
        let is_there = !self.away && !self.line_held;
        let is_quiet = is_idle && is_there && self.active.is_none() && self.held.is_none();
        let patience = if self.awaits_result() { RESULT_PATIENCE } else { Duration::ZERO };
        is_quiet.then(|| answered.max(self.history.last_heard_at()) + timeout + patience)
    }

    /// Whether a call since the user's last message has no result yet: one that the client runs or has approved.
    fn awaits_result(&self) -> bool {
        let turn = || self.history.items().iter().rev().take_while(|item| !item.is_users_message());
        let has_result = |id: &str| {
            turn().any(|item| matches!(&item.kind, ItemKind::FunctionOutput { call_id, .. } if call_id == id))
        };
        turn().any(|item| match &item.kind {
            ItemKind::FunctionCall { call_id, .. } => item.status == ItemStatus::Completed && !has_result(call_id),
            ItemKind::RemoteCall { .. } => item.status == ItemStatus::InProgress,
            _ => false,
        })
    }

    /// The client is back: the idle timeout restarts.
    pub(super) fn back(&mut self) {
        self.away = false;
        self.restart_idle_timeout();
    }

    /// The user's line is no longer on hold: the idle timeout restarts, and what waited for the user is said.
    pub(super) fn line_resumed(&mut self) {
        self.line_held = false;
        self.restart_idle_timeout();
        self.start_waiting();
        self.respond_if_due();
    }

    /// The silence so far does not count.
    pub(super) fn restart_idle_timeout(&mut self) {
        self.answered = self.answered.map(|_| self.now);
    }

    /// The silence becomes an item without words, and a response to it is created. `position`: input audio so far.
    pub(super) fn prompt_user(&mut self, position: Samples) {
        let Some(timeout) = self.settings.turn_detection.and_then(|detection| detection.idle_timeout) else { return };
        // The silence is as long as the timeout, or all audio where the client has sent less.
        let audio_start = position.saturating_sub(SampleRate::HZ_16000.samples_in(timeout));
        let id = self.mint_item();
        self.answered = None;
        self.begin_turn();
        self.notify(Notice::IdleTimeout { item: id.clone(), audio_start, audio_end: position });
        let content = vec![Content::InputAudio { transcript: Some(String::new()) }];
        let kind = ItemKind::Message { role: Role::User, content };
        let item = Item { kind, ..Item::spoken_by_user(id.clone()) };
        let previous = self.history.insert(item.clone(), &ItemPosition::Last).expect("there is always an end");
        self.notify(Notice::Committed { item: id.clone(), previous: previous.clone() });
        self.notify(Notice::ItemAdded { item: item.clone(), previous: previous.clone(), response: None });
        self.notify(Notice::ItemDone { item, previous, response: None });
        self.trim();
        if self.settings.transcripts {
            let audio = position.saturating_sub(audio_start);
            self.notify(Notice::Transcript {
                item: id,
                part: 0,
                text: String::new(),
                language: None,
                rest: None,
                audio,
            });
        }
        let instructions = format!("{}\n\n{PROMPT}", self.settings.instructions);
        self.respond(&ResponseRequest { instructions: Some(instructions), ..ResponseRequest::default() });
    }
}
