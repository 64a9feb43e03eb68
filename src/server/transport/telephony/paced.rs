//! Audio for a peer without marks: it is sent in real time, and heard when it is sent.
//!
//! [`super::conversation`] takes a frame each 20 ms. It reads no clock.

use super::playout::{HeardPosition, RATE};
use antiphon_types::{ItemId, Samples};
use std::collections::VecDeque;
use tokio::time::Instant;

/// Frames that wait: 6 s, more than the longest `session.lead_ms`. More is not taken from the session.
const MAX_WAITING: usize = 300;
/// Audio between two positions that are reported to the session.
const REPORT_EVERY: Samples = Samples(RATE.hz() as u64 / 10);

/// See the module.
#[derive(Default)]
pub(super) struct PacedAudio {
    waiting: VecDeque<(ItemId, Samples, Vec<u8>)>,
    /// What was sent last.
    sent: Option<HeardPosition>,
    /// How much of its item was reported to the session.
    reported: Samples,
    /// When its item began, until that is reported to the session.
    first_sound: Option<Instant>,
    pub(super) is_held: bool,
}

impl PacedAudio {
    /// Adds a frame that ends at `end` of its item.
    pub(super) fn push(&mut self, item: ItemId, end: Samples, audio: Vec<u8>) {
        self.waiting.push_back((item, end, audio));
    }

    /// Whether the session's output may be taken. Always during a hold: what ends it is behind frames that it has held back.
    pub(super) fn has_room(&self) -> bool {
        self.is_held || self.waiting.len() < MAX_WAITING
    }

    /// Whether no frame waits.
    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Whether a frame waits to be sent.
    pub(super) fn is_due(&self) -> bool {
        !self.is_held && !self.waiting.is_empty()
    }

    /// The next frame, and what is to be reported to the session.
    pub(super) fn next(&mut self, now: Instant) -> Option<(Vec<u8>, Option<HeardPosition>)> {
        let (item, position, audio) = self.waiting.pop_front()?;
        if self.sent.as_ref().is_none_or(|sent| sent.item != item) {
            self.reported = Samples::ZERO;
            self.first_sound = Some(now);
        }
        let heard = self.sent.insert(HeardPosition { item, position, first_sound: None });
        let is_far = position.saturating_sub(self.reported) >= REPORT_EVERY;
        if !is_far && !self.waiting.is_empty() {
            return Some((audio, None));
        }
        self.reported = position;
        let report = HeardPosition { first_sound: self.first_sound.take(), ..heard.clone() };
        Some((audio, Some(report)))
    }

    /// Discards what waits; gives where playback stops. `None`: nothing was sent since the last time.
    pub(super) fn cleared(&mut self) -> Option<HeardPosition> {
        self.waiting.clear();
        self.is_held = false;
        self.sent.take()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_leave_one_by_one_and_each_100_ms_is_reported() {
        let mut paced = PacedAudio::default();
        let item = ItemId::from("a");
        for n in 1..=12 {
            paced.push(item.clone(), Samples(480 * n), vec![n as u8]);
        }
        let mut reported = Vec::new();
        let mut sent = Vec::new();
        let now = Instant::now();
        while paced.is_due() {
            let (audio, heard) = paced.next(now).unwrap();
            if let Some(heard) = &heard {
                assert_eq!(heard.first_sound, (heard.position == Samples(5 * 480)).then_some(now));
            }
            sent.extend(audio);
            reported.extend(heard.map(|heard| heard.position.0 / 480));
        }
        assert_eq!(sent, (1..=12).collect::<Vec<u8>>());
        assert_eq!(reported, [5, 10, 12]);
    }

    #[test]
    fn the_longest_lead_fits() {
        let mut paced = PacedAudio::default();
        for n in 1..=250 {
            paced.push("a".into(), Samples(480 * n), Vec::new());
        }
        assert!(paced.has_room());
    }

    #[test]
    fn a_hold_takes_what_ends_it_though_many_frames_wait() {
        let mut paced = PacedAudio::default();
        for n in 1..=MAX_WAITING as u64 {
            paced.push("a".into(), Samples(480 * n), Vec::new());
        }
        assert!(!paced.has_room());
        paced.is_held = true;
        assert!(paced.has_room());
    }

    #[test]
    fn a_clear_discards_what_waits_and_a_hold_keeps_it() {
        let mut paced = PacedAudio::default();
        assert_eq!(paced.cleared(), None);
        for n in 1..=3 {
            paced.push("a".into(), Samples(480 * n), Vec::new());
        }
        paced.next(Instant::now());
        paced.is_held = true;
        assert!(!paced.is_due());
        assert_eq!(
            paced.cleared(),
            Some(HeardPosition { item: "a".into(), position: Samples(480), first_sound: None })
        );
        assert!(!paced.is_held && paced.next(Instant::now()).is_none());
    }
}
