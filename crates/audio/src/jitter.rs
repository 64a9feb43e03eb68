//! Reorders microphone frames.
//!
//! Session ingress pushes each binary frame and pops until there is none left. A WebSocket preserves order, but relays
//! and WebRTC gateways before it may not. The buffer waits for frames, not for time: a missing frame counts as lost
//! once [`MAX_WAITING`] later frames have arrived. It never decodes.

use bytes::Bytes;
use std::collections::VecDeque;

/// Number of later frames after which a missing one counts as lost: 60 ms at 20 ms per frame.
pub const MAX_WAITING: usize = 3;
/// A larger jump of the sequence number starts a new stream instead of a loss: 1 s at 20 ms per frame.
pub const MAX_GAP: u32 = 50;

/// One frame as received.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// Sequence number, from 0, wrapping.
    pub seq: u32,
    /// Offset of the payload's first sample, in samples at the wire rate.
    pub offset: u64,
    /// An Opus packet or PCM.
    pub payload: Bytes,
}

/// The next slot of the stream in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Slot {
    /// The next frame has arrived.
    Frame(Frame),
    /// The next frame is lost.
    Lost {
        /// Sequence number of the lost frame.
        seq: u32,
        /// Payload of the frame right after it, if it has arrived; an Opus packet may hold a copy of the lost one.
        next: Option<Bytes>,
    },
}

/// The reorder buffer of one microphone stream. It is bounded: at most [`MAX_WAITING`] frames wait, and one push yields
/// at most `MAX_GAP + MAX_WAITING` slots. Call `pop` until it returns `None` after each push.
#[derive(Debug, Default)]
pub struct Jitter {
    /// The next sequence number; `None` before the first frame.
    due: Option<u32>,
    /// Frames after a gap, in order.
    waiting: VecDeque<Frame>,
    ready: VecDeque<Slot>,
    n_late: u64,
}

impl Jitter {
    /// An empty buffer; the sequence number of the first frame is its start.
    pub fn new() -> Self {
        Self::default()
    }

    /// An empty buffer of a stream that goes on elsewhere: `due` is the next sequence number, `None` before the first frame.
    pub fn resumed(due: Option<u32>) -> Self {
        Self { due, ..Self::default() }
    }

    /// The next sequence number; `None` before the first frame.
    pub fn due(&self) -> Option<u32> {
        self.due
    }

    /// Adds a frame in order of arrival. Duplicates, and frames already counted as lost, are dropped and counted.
    pub fn push(&mut self, seq: u32, offset: u64, payload: Bytes) {
        let due = *self.due.get_or_insert(seq);
        let ahead = seq.wrapping_sub(due).cast_signed();
        if ahead.unsigned_abs() > MAX_GAP {
            self.release();
            self.due = Some(seq);
        } else if ahead < 0 {
            self.n_late += 1;
            return;
        }
        let place = self.waiting.partition_point(|other| other.seq.wrapping_sub(seq).cast_signed() < 0);
        if self.waiting.get(place).is_some_and(|other| other.seq == seq) {
            self.n_late += 1;
            return;
        }
        self.waiting.insert(place, Frame { seq, offset, payload });
        self.advance();
        while self.waiting.len() >= MAX_WAITING {
            self.give_up_one();
            self.advance();
        }
    }

    /// The next slot in order, if it is known.
    pub fn pop(&mut self) -> Option<Slot> {
        self.ready.pop_front()
    }

    /// Declares all gaps before the waiting frames as lost. For the end of a stream, and after a time without frames.
    pub fn release(&mut self) {
        while !self.waiting.is_empty() {
            self.give_up_one();
            self.advance();
        }
    }

    /// Number of frames dropped as duplicates or as too late.
    pub fn n_late(&self) -> u64 {
        self.n_late
    }

    /// Moves the slots that are due to the ready queue.
    fn advance(&mut self) {
        while let Some(frame) = self.waiting.front() {
            if Some(frame.seq) != self.due {
                return;
            }
            self.due = Some(frame.seq.wrapping_add(1));
            self.ready.extend(self.waiting.pop_front().map(Slot::Frame));
        }
    }

    fn give_up_one(&mut self) {
        let Some(seq) = self.due else { return };
        let after = seq.wrapping_add(1);
        let next = self.waiting.front().filter(|frame| frame.seq == after).map(|frame| frame.payload.clone());
        self.due = Some(after);
        self.ready.push_back(Slot::Lost { seq, next });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Pushes the numbers in this order and prints the output after each: `3` a frame, `3?` lost, `3!` lost with the
    /// next frame available.
    fn check(start: u32, pushed: &[u32], expect: &str) {
        let mut jitter = Jitter::new();
        let mut seen = Vec::new();
        for &seq in pushed {
            let seq = start.wrapping_add(seq);
            jitter.push(seq, u64::from(seq) * 480, Bytes::from(seq.to_le_bytes().to_vec()));
            let mut now = Vec::new();
            while let Some(slot) = jitter.pop() {
                now.push(match slot {
                    Slot::Frame(frame) => frame.seq.wrapping_sub(start).to_string(),
                    Slot::Lost { seq, next: None } => format!("{}?", seq.wrapping_sub(start)),
                    Slot::Lost { seq, next: Some(_) } => format!("{}!", seq.wrapping_sub(start)),
                });
            }
            seen.push(now.join(","));
        }
        assert_eq!(seen.join(" "), expect, "from {start}");
    }

    #[test]
    fn order_is_restored_also_across_the_wrap() {
        for start in [0, u32::MAX - 2] {
            check(start, &[0, 1, 2, 3], "0 1 2 3");
            check(start, &[0, 2, 1, 3], "0  1,2 3");
            check(start, &[0, 3, 2, 1, 4], "0   1,2,3 4");
        }
    }

    #[test]
    fn a_missing_frame_is_lost_after_three_later_ones() {
        check(7, &[0, 2, 3, 4, 5], "0   1!,2,3,4 5");
        check(7, &[0, 3, 4, 5], "0   1?,2!,3,4,5");
        check(7, &[0, 2, 4, 6, 1], "0   1!,2 ");
    }

    #[test]
    fn what_comes_twice_or_too_late_is_dropped() {
        check(0, &[0, 0, 1, 0, 3, 3, 2, 3], "0  1    2,3 ");
    }

    #[test]
    fn a_big_jump_restarts_and_loses_nothing_at_hand() {
        check(1_000, &[0, 2, 500, 501], "0  1!,2,500 501");
        check(1_000, &[500, 501, 0, 1], "500 501 0 1");
    }

    #[test]
    fn release_gives_out_what_waits() {
        let mut jitter = Jitter::new();
        jitter.push(0, 0, Bytes::new());
        jitter.push(2, 960, Bytes::new());
        jitter.release();
        assert_eq!(std::iter::from_fn(|| jitter.pop()).count(), 3);
    }

    proptest! {
        #[test]
        fn any_arrival_is_bounded_and_frames_ascend(numbers in prop::collection::vec(0u32..80, 0..200), start: u32) {
            let mut jitter = Jitter::new();
            let mut last = None;
            for number in numbers {
                jitter.push(start.wrapping_add(number), 0, Bytes::new());
                prop_assert!(jitter.waiting.len() < MAX_WAITING);
                prop_assert!(jitter.ready.len() <= MAX_GAP as usize + MAX_WAITING);
                while let Some(slot) = jitter.pop() {
                    let (Slot::Frame(Frame { seq, .. }) | Slot::Lost { seq, .. }) = slot;
                    if let Some(last) = last {
                        let step = seq.wrapping_sub(last).cast_signed();
                        prop_assert!(step > 0 || step <= -MAX_GAP.cast_signed(), "{last} then {seq}");
                    }
                    last = Some(seq);
                }
            }
        }
    }
}
