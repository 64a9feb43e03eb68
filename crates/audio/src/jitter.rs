//! Puts microphone frames back into order.
//!
//! Session ingress pushes each binary frame and pops until there is nothing. A WebSocket keeps its order, but relays and WebRTC gateways before it do
//! not. It waits for frames, not for time: a missing frame is given up once [`MAX_WAITING`] later ones are here. It never decodes.

use bytes::Bytes;
use std::collections::VecDeque;

/// How many later frames are awaited before a missing one counts as lost: 60 ms at 20 ms a frame.
pub const MAX_WAITING: usize = 3;
/// A jump of the sequence number beyond this is a new stream, not a loss: 1 s at 20 ms a frame.
pub const MAX_GAP: u32 = 50;

/// One frame as it came.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// The sequence number, from 0, wrapping.
    pub seq: u32,
    /// Offset of the payload's first sample in samples of the wire's rate.
    pub offset: u64,
    /// An Opus packet or PCM.
    pub payload: Bytes,
}

/// What comes next in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Slot {
    /// The next frame.
    Frame(Frame),
    /// The next frame is lost.
    Lost {
        /// Its sequence number.
        seq: u32,
        /// The payload of the frame right after it where that is here: Opus may hold a copy of the lost one in it.
        next: Option<Bytes>,
    },
}

/// The reorder buffer of one microphone stream. Bounded: at most [`MAX_WAITING`] frames wait, and one push makes at most
/// `MAX_GAP + MAX_WAITING` slots ready. Pop until `None` after each push.
#[derive(Debug, Default)]
pub struct Jitter {
    /// The sequence number that is due; none before the first frame.
    due: Option<u32>,
    /// Frames after a gap, in order.
    waiting: VecDeque<Frame>,
    ready: VecDeque<Slot>,
    n_late: u64,
}

impl Jitter {
    /// An empty buffer; the first frame's number starts it.
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes a frame in the order of arrival. Duplicates, and frames already given up, are dropped and counted.
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

    /// The next slot in order, if it is known yet.
    pub fn pop(&mut self) -> Option<Slot> {
        self.ready.pop_front()
    }

    /// Stops waiting: gaps before the frames at hand are lost. For the end of a stream, and for when no frame has come for a while.
    pub fn release(&mut self) {
        while !self.waiting.is_empty() {
            self.give_up_one();
            self.advance();
        }
    }

    /// How many frames were dropped because they came twice or too late.
    pub fn n_late(&self) -> u64 {
        self.n_late
    }

    /// Makes ready what is due.
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

    /// Pushes the numbers in this order and prints what comes out after each: `3` a frame, `3?` lost, `3!` lost with the next at hand.
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
    fn a_big_jump_begins_anew_and_loses_nothing_at_hand() {
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
