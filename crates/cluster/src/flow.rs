//! Order, acknowledgement and credit of one attempt, without IO: each direction is an [`FrameSender`] at one end and an
//! [`FrameReceiver`] at the other.
//!
//! A publish-subscribe system may lose messages (a reconnect, a full subscription). Frames are numbered from 0. The receiver
//! takes the next number only; it drops duplicates, and for a later number it reports a gap, upon which the sender sends
//! again from there. The sender keeps what is not acknowledged, and sends no more than the receiver has granted, so that
//! both ends are bounded in bytes.

use crate::frame::{Frame, HEADER_BYTES, Kind};
use std::collections::VecDeque;

/// Bytes granted beyond what the receiver has consumed: 8 s of audio at 16 kHz, 5 s at 24 kHz. It bounds what a slow
/// listener makes the other end keep, per attempt and direction.
pub(crate) const WINDOW_BYTES: u64 = 256 * 1024;

/// The longest payload of a numbered frame: one always fits into a window of which half is consumed.
pub(crate) const MAX_SEQUENCED_BYTES: usize = 120 * 1024;

/// The sending end of a direction.
#[derive(Debug)]
pub(crate) struct FrameSender {
    /// The number of the next frame.
    next: u32,
    /// Frames that are not acknowledged, in order; the first has the number `next - unacknowledged.len()`.
    unacknowledged: VecDeque<Frame>,
    /// Bytes sent in all, each frame counted once.
    n_sent: u64,
    /// Bytes that may be sent in all.
    credit: u64,
}

impl FrameSender {
    /// The first window is granted without asking.
    pub(crate) fn new() -> Self {
        Self { next: 0, unacknowledged: VecDeque::new(), n_sent: 0, credit: WINDOW_BYTES }
    }

    /// The number of the next frame.
    pub(crate) fn next(&self) -> u32 {
        self.next
    }

    /// Whether the receiver has granted room for a payload of `n` bytes, at most [`MAX_SEQUENCED_BYTES`].
    pub(crate) fn has_credit(&self, n: usize) -> bool {
        self.n_sent + (HEADER_BYTES + n) as u64 <= self.credit
    }

    /// Numbers the frame and keeps it until it is acknowledged.
    pub(crate) fn push(&mut self, mut frame: Frame) -> &Frame {
        frame.sequence = self.next;
        self.next = self.next.wrapping_add(1);
        self.n_sent += frame.n_bytes() as u64;
        self.unacknowledged.push_back(frame);
        self.unacknowledged.back().expect("pushed above")
    }

    /// Takes an acknowledgement. One that names what was never sent, or takes credit back, is ignored.
    pub(crate) fn acknowledge(&mut self, acknowledged: u32, credit: u64) {
        let first = self.next.wrapping_sub(self.unacknowledged.len() as u32);
        let n = acknowledged.wrapping_sub(first) as usize;
        if n <= self.unacknowledged.len() {
            self.unacknowledged.drain(..n);
        }
        // A receiver grants a window at most: more would only bound itself less.
        let most = self.n_sent.saturating_add(2 * WINDOW_BYTES);
        self.credit = self.credit.max(credit.min(most));
    }

    /// What is not acknowledged, in order, to be sent again.
    pub(crate) fn unacknowledged(&self) -> impl Iterator<Item = &Frame> {
        self.unacknowledged.iter()
    }

    /// Whether everything was received.
    pub(crate) fn is_acknowledged(&self) -> bool {
        self.unacknowledged.is_empty()
    }
}

/// What a sequenced frame is to the receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Arrival {
    /// The next one.
    Next,
    /// It was here already.
    Duplicate,
    /// Frames before it are missing; it is dropped.
    Gap,
    /// The sender has no credit for it; it is dropped.
    OverCredit,
}

/// The receiving end of a direction.
#[derive(Debug, Default)]
pub(crate) struct FrameReceiver {
    expected: u32,
    /// Bytes of frames that were taken.
    n_taken: u64,
    /// Of them, bytes of frames that the application has consumed.
    n_consumed: u64,
    /// Bytes consumed when credit was last sent.
    n_reported: u64,
}

impl FrameReceiver {
    /// The number of the next frame.
    pub(crate) fn expected(&self) -> u32 {
        self.expected
    }

    /// Bytes that the other end may send in all.
    pub(crate) fn credit(&self) -> u64 {
        self.n_consumed + WINDOW_BYTES
    }

    /// Judges a numbered frame; the next one counts as taken.
    pub(crate) fn arrive(&mut self, frame: &Frame) -> Arrival {
        match frame.sequence.wrapping_sub(self.expected) {
            0 if self.n_taken + frame.n_bytes() as u64 > self.credit() => Arrival::OverCredit,
            0 => {
                self.expected = self.expected.wrapping_add(1);
                self.n_taken += frame.n_bytes() as u64;
                Arrival::Next
            }
            // Half of all numbers are behind, half of them ahead.
            n if n < u32::MAX / 2 => Arrival::Gap,
            _ => Arrival::Duplicate,
        }
    }

    /// Whether the other end, whose next number is `next`, has sent frames that did not arrive.
    pub(crate) fn misses(&self, next: u32) -> bool {
        let n = next.wrapping_sub(self.expected);
        n != 0 && n < u32::MAX / 2
    }

    /// The application has consumed a frame.
    pub(crate) fn consume(&mut self, frame: &Frame) {
        self.n_consumed += frame.n_bytes() as u64;
    }

    /// Whether enough was consumed since the last report for credit to be worth a message of its own: a quarter of a window.
    pub(crate) fn owes_credit(&self) -> bool {
        self.n_consumed - self.n_reported >= WINDOW_BYTES / 4
    }

    /// Credit was sent.
    pub(crate) fn reported(&mut self) {
        self.n_reported = self.n_consumed;
    }
}

/// Whether a frame of this kind and payload may come from a hub at all; a worker drops others.
pub(crate) fn is_from_hub(kind: Kind) -> bool {
    use Kind::{Ack, Audio, Cancel, Describe, Finish, Learn, Open, Partial, Ping, Provisional, Reset, Stop};
    matches!(
        kind,
        Ack | Cancel | Reset | Ping | Describe | Open | Audio | Partial | Provisional | Finish | Learn | Stop
    )
}

/// Whether a frame of this kind may come from a worker.
pub(crate) fn is_from_worker(kind: Kind) -> bool {
    use Kind::{Accepted, Ack, Answer, Audio, Busy, Description, End, Failed, Rate, Reset};
    matches!(kind, Ack | Reset | Description | Accepted | Busy | Rate | Audio | Answer | End | Failed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use proptest::prelude::*;

    fn audio(n: usize) -> Frame {
        Frame { payload: Bytes::from(vec![0; n]), ..Frame::new(Kind::Audio, 1) }
    }

    #[test]
    fn credit_stops_the_sender_until_the_receiver_consumes() {
        let mut sender = FrameSender::new();
        let mut receiver = FrameReceiver::default();
        let mut sent = Vec::new();
        while sender.has_credit(16_000) {
            sent.push(sender.push(audio(16_000)).clone());
        }
        assert_eq!(sent.len(), 16);
        for frame in &sent {
            assert_eq!(receiver.arrive(frame), Arrival::Next);
        }
        sender.acknowledge(receiver.expected(), receiver.credit());
        assert!(sender.is_acknowledged() && !sender.has_credit(16_000), "received is not consumed");
        sent.iter().take(5).for_each(|frame| receiver.consume(frame));
        assert!(receiver.owes_credit());
        sender.acknowledge(receiver.expected(), receiver.credit());
        assert!(sender.has_credit(16_000));
    }

    #[test]
    fn a_false_acknowledgement_changes_nothing() {
        let mut sender = FrameSender::new();
        sender.push(audio(10));
        sender.acknowledge(2, 0);
        assert!(!sender.is_acknowledged() && sender.has_credit(10));
        sender.acknowledge(u32::MAX, u64::MAX);
        assert!(!sender.is_acknowledged());
        let mut n = 0;
        while sender.has_credit(16_000) {
            sender.push(audio(16_000));
            n += 1;
        }
        assert!(n <= 3 * WINDOW_BYTES / 16_000, "{n} frames: credit is bounded whatever the receiver grants");
    }

    #[test]
    fn what_is_sent_without_credit_is_dropped() {
        let mut receiver = FrameReceiver::default();
        let mut n = 0;
        while receiver.arrive(&Frame { sequence: n, ..audio(60_000) }) == Arrival::Next {
            n += 1;
        }
        assert_eq!(n, 4);
        assert_eq!(receiver.arrive(&Frame { sequence: n, ..audio(60_000) }), Arrival::OverCredit);
        receiver.consume(&audio(60_000));
        assert_eq!(receiver.arrive(&Frame { sequence: n, ..audio(60_000) }), Arrival::Next);
    }

    proptest! {
        /// Messages are lost, repeated and exchanged both ways; what is consumed is what was sent, in order, once.
        #[test]
        fn all_frames_arrive_once_and_in_order(
            n_frames in 1_usize..60,
            dice in proptest::collection::vec((0_u8..6, any::<proptest::sample::Index>()), 1..400),
        ) {
            let mut sender = FrameSender::new();
            let mut receiver = FrameReceiver::default();
            let mut network = Vec::<Frame>::new();
            let mut consumed = Vec::new();
            let mut n_pushed = 0;
            let deliver = |frame: &Frame, receiver: &mut FrameReceiver, consumed: &mut Vec<u32>| {
                if receiver.arrive(frame) == Arrival::Next {
                    receiver.consume(frame);
                    consumed.push(frame.sequence);
                }
            };
            for (die, index) in dice {
                match die {
                    0 | 1 if n_pushed < n_frames && sender.has_credit(9_000) => {
                        network.push(sender.push(audio(9_000)).clone());
                        n_pushed += 1;
                    }
                    2 if !network.is_empty() => drop(network.remove(index.index(network.len()))),
                    3 if !network.is_empty() => {
                        let frame = network[index.index(network.len())].clone();
                        deliver(&frame, &mut receiver, &mut consumed);
                    }
                    4 => sender.acknowledge(receiver.expected(), receiver.credit()),
                    _ if receiver.misses(sender.next()) => network.extend(sender.unacknowledged().cloned()),
                    _ => {}
                }
            }
            // From here on nothing is lost.
            while consumed.len() < n_frames {
                sender.acknowledge(receiver.expected(), receiver.credit());
                if n_pushed < n_frames && sender.has_credit(9_000) {
                    sender.push(audio(9_000));
                    n_pushed += 1;
                }
                let again: Vec<_> = sender.unacknowledged().cloned().collect();
                again.iter().for_each(|frame| deliver(frame, &mut receiver, &mut consumed));
            }
            prop_assert_eq!(consumed, (0..n_frames as u32).collect::<Vec<_>>());
        }
    }
}
