//! Simulates a bad network between microphone and server: delayed or lost frames, and stalls.
//!
//! Delayed frames stay in order, as on a TCP connection: a delayed frame delays those behind it. Frames are lost in the
//! binary modes only. A stall stops both directions; queued data is delivered in one burst afterwards.

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use std::collections::VecDeque;
use std::time::Duration;
use tokio::time::Instant;

/// Properties of the network. The default is perfect: no delay, no loss, no stalls.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Network {
    /// Maximum delay of a frame in either direction, uniformly distributed.
    pub jitter: Duration,
    /// Fraction of microphone frames lost, 0 to 1. Binary modes only.
    pub loss: f64,
    /// Duration of a stall; zero: no stalls.
    pub stall: Duration,
    /// Average interval between stalls; each one is half to one and a half times this.
    pub stall_every: Duration,
}

/// A frame in transit.
pub(super) struct Frame {
    pub(super) samples: Vec<i16>,
    pub(super) lost: bool,
    due: Instant,
}

/// The network connection of one session.
pub(super) struct Line {
    network: Network,
    dice: StdRng,
    /// Frames in transit; at most one per 20 ms of stall and jitter.
    frames: VecDeque<Frame>,
    /// When the last message from the server arrived.
    arrived: Option<Instant>,
    stalled_until: Option<Instant>,
    next_stall: Option<Instant>,
}

impl Line {
    /// A connection that starts now; the same seed produces the same faults.
    pub(super) fn new(network: Network, seed: u64, now: Instant) -> Self {
        let mut line = Self {
            network,
            dice: StdRng::seed_from_u64(seed),
            frames: VecDeque::new(),
            arrived: None,
            stalled_until: None,
            next_stall: None,
        };
        line.plan_stall(now);
        line
    }

    /// Adds a spoken frame; it is sent when it is [`Self::ready`].
    pub(super) fn speak(&mut self, samples: Vec<i16>, now: Instant) {
        self.begin_stall(now);
        let lost = self.network.loss > 0.0 && self.dice.random_bool(self.network.loss);
        let late = now + self.jitter();
        let due = self.frames.back().map_or(late, |before| before.due.max(late));
        self.frames.push_back(Frame { samples, lost, due: self.stalled_until.map_or(due, |until| due.max(until)) });
    }

    /// The next frame due at `now`.
    pub(super) fn ready(&mut self, now: Instant) -> Option<Frame> {
        if self.frames.front()?.due > now { None } else { self.frames.pop_front() }
    }

    /// When the next frame is due, if there is one.
    pub(super) fn next_due(&self) -> Option<Instant> {
        self.frames.front().map(|frame| frame.due)
    }

    /// The end of the current stall, during which nothing is read.
    pub(super) fn stalled(&self, now: Instant) -> Option<Instant> {
        self.stalled_until.filter(|until| *until > now)
    }

    /// When a message read at `now` arrives at the client; never before the previous one.
    pub(super) fn arrival(&mut self, now: Instant) -> Instant {
        let late = now + self.jitter();
        let at = self.arrived.map_or(late, |before| before.max(late));
        self.arrived = Some(at);
        at
    }

    fn jitter(&mut self) -> Duration {
        if self.network.jitter.is_zero() {
            return Duration::ZERO;
        }
        self.network.jitter.mul_f64(self.dice.random_range(0.0..1.0))
    }

    fn plan_stall(&mut self, now: Instant) {
        if !self.network.stall.is_zero() {
            self.next_stall = Some(now + self.network.stall_every.mul_f64(self.dice.random_range(0.5..1.5)));
        }
    }

    fn begin_stall(&mut self, now: Instant) {
        if self.next_stall.is_some_and(|at| now >= at) {
            let until = now + self.network.stall;
            self.stalled_until = Some(until);
            self.plan_stall(until);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FRAME: Duration = Duration::from_millis(20);

    /// When each of `n` frames is sent, in milliseconds from the start, and whether it is lost.
    fn journey(network: Network, n: u32) -> Vec<(u64, bool)> {
        let start = Instant::now();
        let mut line = Line::new(network, 7, start);
        let mut left = Vec::new();
        for i in 0..n {
            line.speak(vec![0; 480], start + FRAME * i);
        }
        while let Some(due) = line.next_due() {
            assert!(line.ready(due - Duration::from_nanos(1)).is_none());
            let frame = line.ready(due).expect("due");
            left.push(((due - start).as_millis() as u64, frame.lost));
        }
        left
    }

    #[test]
    fn a_good_network_adds_nothing() {
        let left = journey(Network::default(), 50);
        assert!(left.iter().zip(0..).all(|((at, lost), i)| *at == 20 * i && !lost), "{left:?}");
    }

    #[test]
    fn late_frames_stay_in_order_and_within_the_jitter() {
        let network = Network { jitter: Duration::from_millis(60), ..Network::default() };
        let left = journey(network, 200);
        assert!(left.is_sorted_by_key(|(at, _)| *at), "{left:?}");
        let late: Vec<u64> = left.iter().zip(0..).map(|((at, _), i)| at - 20 * i).collect();
        assert!(late.iter().all(|ms| *ms <= 60) && late.iter().any(|ms| *ms > 30), "{late:?}");
    }

    #[test]
    fn about_the_given_share_is_lost() {
        let left = journey(Network { loss: 0.1, ..Network::default() }, 1_000);
        let n = left.iter().filter(|(_, lost)| *lost).count();
        assert!((60..=140).contains(&n), "{n}");
    }

    #[test]
    fn a_stall_holds_everything_back_and_ends() {
        let network =
            Network { stall: Duration::from_millis(300), stall_every: Duration::from_secs(1), ..Network::default() };
        let left = journey(network, 100);
        let together = left.chunk_by(|a, b| a.0 == b.0).map(<[_]>::len).max();
        assert_eq!(together, Some(16), "{left:?}");
        let start = Instant::now();
        let mut line = Line::new(network, 7, start);
        line.speak(Vec::new(), start + Duration::from_secs(2));
        let until = line.stalled(start + Duration::from_secs(2)).expect("the connection is stalled");
        assert_eq!((until - start, line.stalled(until)), (Duration::from_millis(2_300), None));
    }
}
