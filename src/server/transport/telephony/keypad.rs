//! The keys that a caller presses, collected to one entry.
//!
//! An entry ends with `#`, after a pause, or when it is full; the session gets it as a message of the user. It reads no clock.

use std::time::Duration;
use tokio::time::Instant;

/// Keys of one entry at most: more than the longest card number.
const MAX_KEYS: usize = 64;

/// See the module.
pub(super) struct Keypad {
    keys: String,
    /// When the entry ends without a further key.
    until: Option<Instant>,
    pause: Duration,
}

impl Keypad {
    /// `pause`: without a key for this long the entry is complete.
    pub(super) fn new(pause: Duration) -> Self {
        Self { keys: String::new(), until: None, pause }
    }

    /// Takes a key; gives the entry that it ends.
    pub(super) fn press(&mut self, key: char, now: Instant) -> Option<String> {
        self.keys.push(key);
        self.until = Some(now + self.pause);
        if key == '#' || self.keys.len() == MAX_KEYS { self.end() } else { None }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_ends_with_a_hash_after_a_pause_or_when_it_is_full() {
        let (pause, now) = (Duration::from_secs(2), Instant::now());
        let mut keypad = Keypad::new(pause);
        assert_eq!((keypad.until(), keypad.end()), (None, None));
        assert_eq!(keypad.press('1', now), None);
        assert!(!keypad.is_empty());
        assert_eq!(keypad.press('2', now + pause / 2), None);
        assert_eq!(keypad.until(), Some(now + pause / 2 + pause), "each key begins the pause anew");
        assert_eq!(keypad.press('#', now + pause).as_deref(), Some("12#"));
        assert_eq!((keypad.until(), keypad.is_empty()), (None, true));
        keypad.press('*', now);
        assert_eq!(keypad.end().as_deref(), Some("*"));
        let full = (0..MAX_KEYS).find_map(|_| keypad.press('7', now)).unwrap();
        assert_eq!(full.len(), MAX_KEYS);
    }
}
