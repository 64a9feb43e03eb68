//! Reply audio on its way to a peer: one RTP packet each 20 ms, and what of it has been heard.
//!
//! The session gives frames ahead of playback. They wait here, so that a barge-in finds them, and leave in real time; between
//! replies silence leaves, so that the peer's jitter buffer keeps its measure. Heard is what was sent a delay ago: the way to the
//! peer, its jitter buffer and its device. It reads no clock and sends nothing itself.

use antiphon_types::{ItemId, SampleRate, Samples};
use bytes::Bytes;
use std::collections::VecDeque;
use std::time::Duration;
use tokio::time::Instant;

/// A frame.
pub(super) const FRAME: Duration = Duration::from_millis(20);
/// Its length at the session's output rate, and at RTP's clock of Opus (RFC 7587, section 4.1).
const FRAME_SAMPLES: Samples = Samples(480);
pub(super) const FRAME_TICKS: u64 = 960;
/// Frames that wait: more than the longest `session.lead_ms`, 5 s. Beyond, nothing is taken from the session.
const MAX_WAITING: usize = 300;
/// 20 ms of silence, mono full-band CELT.
const SILENCE: &[u8] = &[0xf8, 0xff, 0xfe];
/// A browser's jitter buffer on a quiet path and its device: measured 29 to 32 ms, and about 30 ms.
const RECEIVER: Duration = Duration::from_millis(60);

/// The longest round trip that a peer's reports may claim.
const MAX_ROUND_TRIP: Duration = Duration::from_secs(1);

/// What has been heard of an item.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Position {
    /// The item.
    pub(super) item: ItemId,
    /// From its beginning, in milliseconds.
    pub(super) end_ms: u32,
}

/// The reply audio of one call.
#[derive(Default)]
pub(super) struct Speaker {
    waiting: VecDeque<PendingAudio>,
    /// What was sent and not yet heard, with the time it left.
    sounding: VecDeque<(Instant, Position)>,
    heard: Option<Position>,
    is_held: bool,
    /// Of the way there and back.
    round_trip: Duration,
}

struct PendingAudio {
    position: Position,
    payload: Bytes,
}

impl Speaker {
    /// Takes a frame.
    pub(super) fn push(&mut self, item: ItemId, offset: Samples, payload: Bytes) {
        let end_ms = u32::try_from((offset + FRAME_SAMPLES).as_ms(SampleRate::HZ_24000)).unwrap_or(u32::MAX);
        self.waiting.push_back(PendingAudio { position: Position { item, end_ms }, payload });
    }

    /// Whether the session's output may be taken. Always during a hold: what ends it is behind frames that it has held back.
    pub(super) fn has_room(&self) -> bool {
        self.is_held || self.waiting.len() < MAX_WAITING
    }

    /// The packet that is due now, and the item it belongs to; silence where there is none.
    pub(super) fn tick(&mut self, now: Instant) -> (Bytes, Option<ItemId>) {
        let next = if self.is_held { None } else { self.waiting.pop_front() };
        let Some(PendingAudio { position, payload }) = next else { return (Bytes::from_static(SILENCE), None) };
        let item = position.item.clone();
        self.sounding.push_back((now, position));
        (payload, Some(item))
    }

    /// Whether a frame of this item waits.
    pub(super) fn holds(&self, item: &ItemId) -> bool {
        self.waiting.iter().any(|waiting| waiting.position.item == *item)
    }

    /// Whether nothing waits.
    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Pauses or continues.
    pub(super) fn hold(&mut self, is_held: bool) {
        self.is_held = is_held;
    }

    /// A measured round trip to the peer.
    pub(super) fn measured(&mut self, round_trip: Duration) {
        self.round_trip = round_trip.min(MAX_ROUND_TRIP);
    }

    /// What the peer has heard by now; `None`: nothing new since the last call.
    pub(super) fn heard(&mut self, now: Instant) -> Option<Position> {
        let delay = self.round_trip / 2 + RECEIVER;
        let before = self.heard.clone();
        while self.sounding.front().is_some_and(|(left, _)| *left + delay <= now) {
            self.heard = self.sounding.pop_front().map(|(_, position)| position);
        }
        self.heard.clone().filter(|heard| before.as_ref() != Some(heard))
    }

    /// Discards what waits of a response's items and ends a hold. Gives where the response ends: of the item that was sent last,
    /// what has left, since that will be heard; of items after it, nothing.
    pub(super) fn clear(&mut self, items: &[ItemId]) -> Vec<Position> {
        self.is_held = false;
        let last = self.sounding.back().map(|(_, position)| position).or(self.heard.as_ref());
        let mut cut: Vec<Position> = last.filter(|last| items.contains(&last.item)).cloned().into_iter().collect();
        self.waiting.retain(|PendingAudio { position: Position { item, .. }, .. }| {
            if !items.contains(item) {
                return true;
            }
            if !cut.iter().any(|cut| cut.item == *item) {
                cut.push(Position { item: item.clone(), end_ms: 0 });
            }
            false
        });
        cut
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn position(item: &str, end_ms: u32) -> Position {
        Position { item: item.into(), end_ms }
    }

    #[tokio::test(start_paused = true)]
    async fn heard_follows_sent_by_the_delay() {
        let mut speaker = Speaker::default();
        speaker.measured(Duration::from_millis(40));
        for i in 0..5 {
            speaker.push("a".into(), Samples(i * 480), Bytes::from_static(b"x"));
        }
        let start = Instant::now();
        for i in 0..3 {
            assert_eq!(speaker.tick(start + FRAME * i).1, Some("a".into()));
        }
        assert_eq!(speaker.heard(start + Duration::from_millis(79)), None);
        assert_eq!(speaker.heard(start + Duration::from_millis(100)), Some(position("a", 40)));
        assert_eq!(speaker.heard(start + Duration::from_millis(100)), None);
        assert_eq!(speaker.clear(&["a".into()]), [position("a", 60)], "what has left will be heard");
        assert_eq!(speaker.tick(start).1, None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_full_speaker_has_room_again_with_the_next_packet() {
        let mut speaker = Speaker::default();
        for n in 0..MAX_WAITING as u64 {
            assert!(speaker.has_room(), "{n} frames wait");
            speaker.push("a".into(), Samples(n * 480), Bytes::from_static(b"x"));
        }
        assert!(!speaker.has_room());
        speaker.tick(Instant::now());
        assert!(speaker.has_room());
        speaker.push("a".into(), Samples::ZERO, Bytes::from_static(b"x"));
        speaker.hold(true);
        assert!(speaker.has_room(), "nothing leaves until the end of the hold, which is still to come");
        speaker.hold(false);
        assert!(!speaker.has_room());
    }

    #[tokio::test(start_paused = true)]
    async fn items_that_were_not_begun_end_at_their_beginning() {
        let mut speaker = Speaker::default();
        for item in ["a", "a", "b", "b"] {
            speaker.push(item.into(), Samples::ZERO, Bytes::from_static(b"x"));
        }
        speaker.hold(true);
        assert_eq!(speaker.tick(Instant::now()), (Bytes::from_static(SILENCE), None));
        assert_eq!(speaker.clear(&["a".into(), "b".into()]), [position("a", 0), position("b", 0)]);
        speaker.push("c".into(), Samples::ZERO, Bytes::from_static(b"x"));
        assert_eq!(speaker.tick(Instant::now()).1, Some("c".into()), "clearing ends a hold");
    }
}
