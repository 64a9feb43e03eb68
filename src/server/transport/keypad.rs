//! The keys that a caller presses, by phone or in an RTVI client: each an event, and collected to one entry.
//!
//! An entry ends with `#`, after a pause, or when it is full; the session gets it as a message of the user. It reads no clock
//! but the one of an event's date.

use antiphon_protocol::{ClientEvent, Content, Item, ItemBody, Position, Role, ServerEvent};
use antiphon_session::OutputEvent;
use futures_util::future::BoxFuture;
use std::time::Duration;
use tokio::time::Instant;

/// Keys of one entry at most: more than the longest card number.
pub(super) const MAX_KEYS: usize = 64;

/// A response to speech begins this long after its end at most, or the speech had no words.
const FOLLOWS_WITHIN: Duration = Duration::from_secs(2);

/// Presses keys of the hub's in a call.
pub(super) trait PressKeys: Send + Sync {
    /// Presses keys, `0` to `9`, `*`, `#` and `A` to `D`; resolves when they are sent. `false`: the peer takes none now,
    /// or the call is over.
    fn press(&self, keys: &str) -> BoxFuture<'static, bool>;
}

/// See the module.
pub(super) struct Keypad {
    keys: String,
    /// Keys so far, of all entries.
    n_pressed: u64,
    /// When the entry ends without a further key.
    until: Option<Instant>,
    pause: Duration,
}

impl Keypad {
    /// `pause`: without a key for this long the entry is complete.
    pub(super) fn new(pause: Duration) -> Self {
        Self { keys: String::new(), n_pressed: 0, until: None, pause }
    }

    /// Takes a key; gives the entry that it ends.
    pub(super) fn press(&mut self, key: char, now: Instant) -> Option<String> {
        self.n_pressed += 1;
        self.keys.push(key);
        self.until = Some(now + self.pause);
        if key == '#' || self.keys.len() == MAX_KEYS { self.end() } else { None }
    }

    /// The event of a key that is of no entry, as [`Keypad::event`].
    pub(super) fn pass(&mut self, key: char) -> OutputEvent {
        self.n_pressed += 1;
        self.event(key)
    }

    /// The event of the key that was pressed last, for the clients that have joined the call.
    pub(super) fn event(&self, key: char) -> OutputEvent {
        let event_id = format!("event_dtmf_{}", self.n_pressed);
        let received_at = jiff::Timestamp::now().as_second();
        OutputEvent { event_id, event: ServerEvent::KeyPressed { event: key, received_at } }
    }

    /// Whether no entry has begun.
    pub(super) fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// When [`Keypad::end`] is due.
    pub(super) fn until(&self) -> Option<Instant> {
        self.until
    }

    /// Ends the entry.
    pub(super) fn end(&mut self) -> Option<String> {
        self.until = None;
        let keys = std::mem::take(&mut self.keys);
        (!keys.is_empty()).then_some(keys)
    }
}

/// When the reply to an entry is asked for: at once, or, where the user is speaking, not at all, since the turn's response
/// answers both. Where no response follows the speech within [`FOLLOWS_WITHIN`], which was noise then, it is asked for.
#[derive(Debug, Default)]
pub(super) struct OwedReply {
    is_owed: bool,
    user_speaks: bool,
    /// When the speech that the entry came into ended.
    stopped: Option<Instant>,
}

impl OwedReply {
    /// An entry is complete.
    pub(super) fn entered(&mut self) {
        self.is_owed = true;
        self.stopped = None;
    }

    /// Takes an event of the session.
    pub(super) fn happened(&mut self, event: &ServerEvent, now: Instant) {
        match event {
            ServerEvent::SpeechStarted { .. } => self.user_speaks = true,
            ServerEvent::SpeechStopped { .. } | ServerEvent::InputAudioCleared {} => self.speech_ended(now),
            // The client ends the turn itself: no end of the speech is reported.
            ServerEvent::InputAudioCommitted { .. } if self.user_speaks => self.speech_ended(now),
            ServerEvent::SessionUpdated { session }
                if self.user_speaks && session.audio.input.turn_detection.is_none() =>
            {
                self.speech_ended(now);
            }
            ServerEvent::ResponseCreated { response } if response.conversation_id.is_some() => self.is_owed = false,
            _ => {}
        }
    }

    fn speech_ended(&mut self, now: Instant) {
        self.user_speaks = false;
        self.stopped = Some(now);
    }

    /// Whether the user speaks, as far as the session has reported.
    pub(super) fn user_speaks(&self) -> bool {
        self.user_speaks
    }

    /// When [`Self::is_due`] is to be asked.
    pub(super) fn due_at(&self, now: Instant) -> Option<Instant> {
        let is_waiting = self.is_owed && !self.user_speaks;
        is_waiting.then(|| self.stopped.map_or(now, |stopped| stopped + FOLLOWS_WITHIN))
    }

    /// Whether the reply is to be asked for now; after that it is owed no more.
    pub(super) fn is_due(&mut self, now: Instant) -> bool {
        let is_due = self.due_at(now).is_some_and(|at| at <= now);
        self.is_owed &= !is_due;
        is_due
    }
}

/// A key of a phone in a peer's words; `None`: it is none.
pub(super) fn key(text: &str) -> Option<char> {
    let mut characters = text.chars();
    let (key, None) = (characters.next()?.to_ascii_uppercase(), characters.next()) else { return None };
    matches!(key, '0'..='9' | '*' | '#' | 'A'..='D').then_some(key)
}

/// An entry in words, for the model.
pub(super) fn words(keys: &str) -> String {
    format!("(The caller pressed these keys of the phone: {keys})")
}

/// A message of the user in these words.
pub(super) fn user_message(words: String) -> ClientEvent {
    message(Role::User, words)
}

/// A message of this role in these words.
pub(super) fn message(role: Role, words: String) -> ClientEvent {
    let content = vec![Content::InputText { text: words }];
    let item = Item::created(ItemBody::Message { role, content });
    ClientEvent::ItemCreate { position: Position::End, item: Box::new(item) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use antiphon_protocol::{Response, ServerVad, Session};

    #[test]
    fn keys_are_those_of_a_phone() {
        for (text, expect) in [("5", Some('5')), ("#", Some('#')), ("*", Some('*')), ("d", Some('D'))] {
            assert_eq!(key(text), expect);
        }
        for text in ["", "55", "E", "é", " "] {
            assert_eq!(key(text), None, "{text:?}");
        }
    }

    #[test]
    fn an_entry_is_answered_at_once_or_with_the_speech_that_it_came_into() {
        let began = Instant::now();
        let second = Duration::from_secs(1);
        let started = ServerEvent::SpeechStarted { audio_start_ms: 0, item_id: "item_1".into() };
        let stopped = ServerEvent::SpeechStopped { audio_end_ms: 900, item_id: "item_1".into() };
        let response = Response::new("resp_1".into(), Some("conv_1".into()));
        let answered = ServerEvent::ResponseCreated { response: Box::new(response) };
        let mut owed = OwedReply::default();
        assert!(!owed.is_due(began), "nothing was pressed");
        owed.entered();
        assert!(owed.is_due(began) && !owed.is_due(began), "once");
        owed.happened(&started, began);
        owed.entered();
        assert_eq!(owed.due_at(began + 9 * second), None, "the user speaks");
        owed.happened(&stopped, began + 9 * second);
        assert!(!owed.is_due(began + 10 * second));
        owed.happened(&answered, began + 10 * second);
        assert!(!owed.is_due(began + 20 * second), "the turn's response answers both");
        owed.happened(&started, began + 20 * second);
        owed.entered();
        owed.happened(&stopped, began + 21 * second);
        assert_eq!(owed.due_at(began + 21 * second), Some(began + 21 * second + FOLLOWS_WITHIN));
        assert!(owed.is_due(began + 23 * second), "that was noise");
    }

    #[test]
    fn an_entry_is_answered_where_the_client_ends_the_turn_itself() {
        let began = Instant::now();
        let started = ServerEvent::SpeechStarted { audio_start_ms: 0, item_id: "item_1".into() };
        let mut session = Session::new("sess_1".into(), "antiphon", "slt", ServerVad::default());
        let updated = ServerEvent::SessionUpdated { session: Box::new(session.clone()) };
        session.audio.input.turn_detection = None;
        let turned_off = ServerEvent::SessionUpdated { session: Box::new(session) };
        let committed = ServerEvent::InputAudioCommitted { previous_item_id: None, item_id: "item_1".into() };
        for ended in [turned_off, committed] {
            let mut owed = OwedReply::default();
            owed.happened(&started, began);
            owed.entered();
            owed.happened(&updated, began);
            assert_eq!(owed.due_at(began), None, "the user speaks");
            owed.happened(&ended, began);
            assert_eq!(owed.due_at(began), Some(began + FOLLOWS_WITHIN), "{ended:?}");
            assert!(owed.is_due(began + FOLLOWS_WITHIN));
        }
    }

    #[test]
    fn an_entry_ends_with_a_hash_after_a_pause_or_when_it_is_full() {
        let pause = Duration::from_secs(2);
        let now = Instant::now();
        let mut keypad = Keypad::new(pause);
        assert_eq!((keypad.until(), keypad.end()), (None, None));
        assert_eq!(keypad.press('1', now), None);
        assert!(!keypad.is_empty());
        assert_eq!(keypad.press('2', now + pause / 2), None);
        assert_eq!(keypad.until(), Some(now + pause / 2 + pause), "each key restarts the pause");
        assert_eq!(keypad.press('#', now + pause).as_deref(), Some("12#"));
        assert_eq!((keypad.until(), keypad.is_empty()), (None, true));
        keypad.press('*', now);
        assert_eq!(keypad.end().as_deref(), Some("*"));
        let full = (0..MAX_KEYS).find_map(|_| keypad.press('7', now)).unwrap();
        assert_eq!(full.len(), MAX_KEYS);
    }
}
