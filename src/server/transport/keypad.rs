//! The keys that a caller presses, by phone or in an RTVI client: each an event, and collected to one entry.
//!
//! An entry ends with `#`, after a pause, or when it is full; the session gets it as a message of the user. It reads no clock
//! but the one of an event's date.

use antiphon_protocol::{ClientEvent, Content, Item, ItemBody, Position, Role, ServerEvent};
use antiphon_session::OutputEvent;
use std::time::Duration;
use tokio::time::Instant;

/// Keys of one entry at most: more than the longest card number.
pub(super) const MAX_KEYS: usize = 64;

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
