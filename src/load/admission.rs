//! Admission by headroom: a session is admitted while the processor would suffice for it and for those whose load is not
//! measured yet. When one would be admitted again is estimated from how fast sessions end.

use super::Sample;
use super::pressure::MIN_FOR_OVERLOAD;
use antiphon_types::Timestamp;
use std::collections::VecDeque;
use std::time::Duration;

/// Share of the cores that sessions may use in prediction: above it queues grow without bound.
const HARD_LIMIT: f64 = 0.97;

/// Time after which a session's load is in what is measured.
const SETTLES: Duration = Duration::from_secs(2);

/// Use of the processor below which a session's share of it is too uncertain to predict with.
const MEASURABLE: f64 = 0.3;

/// Sessions below which the same holds.
const MIN_SESSIONS: usize = 8;

/// Weight of a new sample of a session's cost.
const SMOOTHING: f64 = 0.1;

/// The time over which ended sessions are counted.
const ENDS_WITHIN: Duration = Duration::from_secs(60);

/// Bounds of an estimate: a client that comes back sooner only adds load, one that waits longer is lost.
const RETRY_AFTER: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));

/// The estimate while no session has ended.
const UNKNOWN: Duration = Duration::from_secs(5);

/// Processor time of a talking session while none was measured, as a share of one core (`antiphon-bench --only mocks`).
const ASSUMED_COST: f64 = 0.002_5;

#[derive(Debug)]
pub(super) struct Admission {
    sessions: usize,
    processor: f64,
    /// Processor time of one session as a share of the cores.
    cost: f64,
    /// When the sessions were admitted whose load is not measured yet.
    pending: VecDeque<Timestamp>,
    /// Sessions that ended: when, and how many.
    ended: VecDeque<(Timestamp, usize)>,
}

impl Admission {
    /// For a process that may use so many cores.
    pub(super) fn new(cores: usize) -> Self {
        let cost = ASSUMED_COST / cores.max(1) as f64;
        Self { sessions: 0, processor: 0.0, cost, pending: VecDeque::new(), ended: VecDeque::new() }
    }

    pub(super) fn observe(&mut self, now: Timestamp, sample: &Sample, processor: Option<f64>) {
        self.sessions = sample.sessions;
        self.processor = processor.unwrap_or(0.0);
        self.forget_settled(now);
        let settled = sample.sessions.saturating_sub(self.pending.len());
        if self.processor >= MEASURABLE && settled >= MIN_SESSIONS {
            self.cost += (self.processor / settled as f64 - self.cost) * SMOOTHING;
        }
        if sample.ended > 0 {
            self.ended.push_back((now, sample.ended));
        }
        while self.ended.front().is_some_and(|(at, _)| now.since(*at) > ENDS_WITHIN) {
            self.ended.pop_front();
        }
    }

    /// Whether the processor would suffice for one more session.
    pub(super) fn has_headroom(&mut self, now: Timestamp) -> bool {
        self.forget_settled(now);
        // What uses the processor beside fewer sessions is not their load: a job, a transcription, another program.
        if self.sessions + self.pending.len() < MIN_FOR_OVERLOAD {
            return true;
        }
        self.processor + self.cost * (self.pending.len() + 1) as f64 <= HARD_LIMIT
    }

    pub(super) fn admitted(&mut self, now: Timestamp) {
        self.pending.push_back(now);
    }

    /// When as many sessions will have ended as must, for the pressure to fall below its limit.
    pub(super) fn retry_after(&self, now: Timestamp, pressure: f64) -> Duration {
        let ended: usize = self.ended.iter().map(|(_, n)| n).sum();
        let Some((first, _)) = self.ended.front().filter(|_| ended > 0) else { return UNKNOWN };
        let rate = ended as f64 / now.since(*first).as_secs_f64().max(1.0);
        let excess = (1.0 - 1.0 / pressure.max(1.0)) * self.sessions as f64;
        Duration::from_secs_f64((excess.ceil().max(1.0) / rate).min(RETRY_AFTER.1.as_secs_f64())).max(RETRY_AFTER.0)
    }

    fn forget_settled(&mut self, now: Timestamp) {
        while self.pending.front().is_some_and(|at| now.since(*at) > SETTLES) {
            self.pending.pop_front();
        }
    }
}
