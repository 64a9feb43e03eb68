//! Keys that the hub presses in a call, as telephone events (RFC 4733).
//!
//! [`super::media`] takes a step each 20 ms and sends what it gives in the place of audio.

use crate::server::transport::keypad::PressKeys;
use bytes::Bytes;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use std::collections::VecDeque;
use tokio::sync::{mpsc, oneshot};

/// Steps of 20 ms of one key, and of the pause after it.
const TONE_STEPS: u32 = 5;
const PAUSE_STEPS: u32 = 5;
/// Packets that end a key: the last one and its repetitions (RFC 4733, section 2.5.1.4).
const N_END_PACKETS: usize = 3;
/// 10 dB below the loudest, in the packet's second byte beside the mark of the end.
const VOLUME: u8 = 10;
const END: u8 = 0x80;
/// Sequences that wait.
const MAX_SEQUENCES: usize = 4;

/// Keys to press, and who waits for that.
pub(super) struct KeySequence {
    keys: VecDeque<u8>,
    sent: oneshot::Sender<()>,
}

/// Takes keys to press.
#[derive(Clone)]
pub(in crate::server::transport::telephony) struct KeySender(mpsc::Sender<KeySequence>);

/// Presses them. Without a peer that takes telephone events it is dropped, and nothing is pressed.
pub(super) struct KeyEvents {
    sequences: mpsc::Receiver<KeySequence>,
    current: Option<KeySequence>,
    step: u32,
    /// The timestamp of the key under way.
    began: u32,
}

/// Packets of one step.
#[derive(Debug, PartialEq)]
pub(super) struct KeyPackets {
    pub(super) timestamp: u32,
    pub(super) payload: Bytes,
    /// How often the packet is sent.
    pub(super) n: usize,
    /// The first packet of a key.
    pub(super) marker: bool,
}

/// Both sides.
pub(super) fn key_events() -> (KeySender, KeyEvents) {
    let (sender, sequences) = mpsc::channel(MAX_SEQUENCES);
    (KeySender(sender), KeyEvents { sequences, current: None, step: 0, began: 0 })
}

/// The number of a key as an event (RFC 4733, section 3.2).
fn event_of(key: char) -> Option<u8> {
    Some(match key {
        '0'..='9' => key as u8 - b'0',
        '*' => 10,
        '#' => 11,
        'A'..='D' => 12 + (key as u8 - b'A'),
        _ => return None,
    })
}

/// Whether these are keys.
pub(in crate::server::transport::telephony) fn are_keys(keys: &str) -> bool {
    keys.chars().all(|key| event_of(key).is_some())
}

impl PressKeys for KeySender {
    /// `false` also where [`MAX_SEQUENCES`] wait.
    fn press(&self, keys: &str) -> BoxFuture<'static, bool> {
        let (sent, is_sent) = oneshot::channel();
        let keys = keys.chars().filter_map(event_of).collect();
        let is_taken = self.0.try_send(KeySequence { keys, sent }).is_ok();
        async move { is_taken && is_sent.await.is_ok() }.boxed()
    }
}

impl KeyEvents {
    /// The next 20 ms at this timestamp of the stream, with a clock of `clock_hz`; `None`: no key is pressed now.
    pub(super) fn step(&mut self, timestamp: u32, clock_hz: u32) -> Option<KeyPackets> {
        if self.current.is_none() {
            self.current = self.sequences.try_recv().ok();
            self.step = 0;
        }
        let current = self.current.as_mut()?;
        let step = self.step;
        self.step += 1;
        let Some(&event) = current.keys.front().filter(|_| step < TONE_STEPS) else {
            if self.step >= TONE_STEPS + PAUSE_STEPS {
                current.keys.pop_front();
                self.step = 0;
                if current.keys.is_empty() {
                    // Who waits may be gone.
                    let _ = self.current.take().map(|current| current.sent.send(()));
                }
            }
            return None;
        };
        if step == 0 {
            self.began = timestamp;
        }
        let is_end = step + 1 == TONE_STEPS;
        let duration = ((step + 1) * (clock_hz / 50)).min(u32::from(u16::MAX)) as u16;
        let [high, low] = duration.to_be_bytes();
        let payload = Bytes::copy_from_slice(&[event, VOLUME | if is_end { END } else { 0 }, high, low]);
        let n = if is_end { N_END_PACKETS } else { 1 };
        Some(KeyPackets { timestamp: self.began, payload, n, marker: step == 0 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_key_grows_ends_three_times_and_is_followed_by_a_pause() {
        let (sender, mut events) = key_events();
        let pressed = sender.press("5#");
        tokio::pin!(pressed);
        assert!(pressed.as_mut().now_or_never().is_none());
        let mut shown = Vec::new();
        for tick in 0..22u32 {
            let packets = events.step(1_000 + tick * 160, 8_000);
            shown.push(packets.map(|KeyPackets { timestamp, payload, n, marker }| {
                (payload[0], payload[1] & END != 0, u16::from_be_bytes([payload[2], payload[3]]), timestamp, n, marker)
            }));
        }
        assert_eq!(shown[0], Some((5, false, 160, 1_000, 1, true)));
        assert_eq!(shown[1], Some((5, false, 320, 1_000, 1, false)));
        assert_eq!(shown[4], Some((5, true, 800, 1_000, 3, false)));
        assert!(shown[5..10].iter().all(Option::is_none), "{shown:?}");
        assert_eq!(shown[10], Some((11, false, 160, 2_600, 1, true)));
        assert!(shown[15..].iter().all(Option::is_none), "{shown:?}");
        assert!(pressed.await);
    }

    #[tokio::test]
    async fn a_peer_without_events_takes_no_keys() {
        let (sender, events) = key_events();
        drop(events);
        assert!(!sender.press("1").await);
        assert!(are_keys("0123456789*#ABCD") && !are_keys("1w"));
    }
}
