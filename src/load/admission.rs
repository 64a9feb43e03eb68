//! Admission by headroom: a session is admitted while the processor and the engines would suffice for it and for those whose
//! load is not measured yet. When one would be admitted again is estimated from how fast sessions end.

use super::Sample;
use super::pressure::{MIN_FOR_OVERLOAD, QueueSample};
use antiphon_types::Timestamp;
use std::collections::VecDeque;
use std::time::Duration;

/// Share of the cores that sessions may use in prediction: above it queues grow without bound.
const PROCESSOR_LIMIT: f64 = 0.97;

/// Time after which a session's load is in what is measured: a client connects, and its user speaks.
const SETTLES: Duration = Duration::from_secs(2);

/// Use of the processor below which a session's share of it is too uncertain to predict with: a job, a transcription or
/// another program uses it, too.
const MEASURABLE: f64 = 0.3;

/// Sessions below which a session's share of anything is too uncertain.
const MIN_SESSIONS: usize = 8;

/// Weight of a new sample of a session's processor time.
const SMOOTHING: f64 = 0.1;

/// Weight of a new sample of an engine's use and of those who use it: a time constant of twenty seconds, two turns
/// or three. In the seconds before new sessions speak, those in it make the others' share look smaller, by little.
const ENGINE_SMOOTHING: f64 = 0.012_5;

/// Beyond what the engines are predicted to suffice for, one session in this number is admitted within [`SETTLES`]
/// while the pressure is below [`CALM`]: engines that are busy without pause may still answer in time, since those who
/// wait do not ask.
const FEW: usize = 20;

/// The pressure below which nothing is close to its limit: that at which a brownout level is left.
const CALM: f64 = 0.8;

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
    processor: Processor,
    stt: Engine,
    tts: Engine,
    /// When the sessions were admitted that have not ended and whose load is not measured yet, in order.
    pending: VecDeque<Timestamp>,
    /// Sessions admitted since the last sample that have not ended.
    fresh: usize,
    /// The time of the last sample.
    sampled: Timestamp,
    /// Sessions that ended: when, and how many.
    ended: VecDeque<(Timestamp, usize)>,
}

/// The processor, as shares of the cores. What uses it beside sessions counts, too.
#[derive(Debug)]
struct Processor {
    used: f64,
    /// Processor time of one session.
    cost: f64,
}

/// What sessions use of an engine's places, as shares of them from 0 to 1. Of sessions that have ended nothing is left at
/// once, though an average still contains them: both averages do.
#[derive(Debug, Default)]
struct Engine {
    /// Average share in use.
    used: f64,
    /// Average number of sessions that used it.
    sessions: f64,
    /// Share that may be in use.
    limit: f64,
}

impl Admission {
    /// For a process that may use `cores` cores.
    pub(super) fn new(cores: usize) -> Self {
        let processor = Processor { used: 0.0, cost: ASSUMED_COST / cores.max(1) as f64 };
        let stt = Engine::default();
        let tts = Engine::default();
        Self {
            sessions: 0,
            processor,
            stt,
            tts,
            pending: VecDeque::new(),
            fresh: 0,
            sampled: Timestamp::default(),
            ended: VecDeque::new(),
        }
    }

    /// `processor`: its smoothed use. `limits`: the utilization of recognizer and voice that is allowed.
    pub(super) fn observe(&mut self, now: Timestamp, sample: &Sample, processor: Option<f64>, limits: (f64, f64)) {
        self.sessions = sample.sessions;
        self.fresh = 0;
        self.sampled = now;
        while self.pending.front().is_some_and(|at| now.since(*at) > SETTLES) {
            self.pending.pop_front();
        }
        self.processor.used = processor.unwrap_or(0.0);
        let settled = sample.sessions.saturating_sub(self.pending.len());
        if self.processor.used >= MEASURABLE && settled >= MIN_SESSIONS {
            self.processor.cost += (self.processor.used / settled as f64 - self.processor.cost) * SMOOTHING;
        }
        self.stt.observe(sample.stt, settled, limits.0);
        self.tts.observe(sample.tts, settled, limits.1);
        if sample.ended > 0 {
            self.ended.push_back((now, sample.ended));
        }
        while self.ended.front().is_some_and(|(at, _)| now.since(*at) > ENDS_WITHIN) {
            self.ended.pop_front();
        }
    }

    /// Whether the processor and the engines would suffice for one more session. Beyond what is predicted few are admitted, as
    /// long as what is measured is far from its limits. `own`: see [`super::LoadMonitor::admit`].
    pub(super) fn has_headroom(&self, pressure: f64, own: Option<usize>) -> bool {
        let there = self.sessions + self.fresh;
        let share = (there + self.headroom()).div_ceil(2).max(MIN_FOR_OVERLOAD);
        // What uses the processor beside fewer sessions is not their load: a job, a transcription, another program.
        if there < MIN_FOR_OVERLOAD {
            return true;
        }
        if own.is_some_and(|own| own > share) {
            return false;
        }
        self.headroom() > 0
            || (pressure < CALM && self.headroom_of_processor() > 0 && self.pending.len() <= self.sessions / FEW)
    }

    /// How many more sessions the processor and the engines would suffice for.
    pub(super) fn headroom(&self) -> usize {
        let engines = [&self.stt, &self.tts].into_iter().filter_map(Engine::suffices_for);
        let of_engines = engines.map(|sessions| sessions.saturating_sub(self.sessions + self.fresh)).min();
        of_engines.unwrap_or(usize::MAX).min(self.headroom_of_processor())
    }

    fn headroom_of_processor(&self) -> usize {
        let Processor { used, cost } = self.processor;
        let predicted = used + cost * self.pending.len() as f64;
        ((PROCESSOR_LIMIT - predicted) / cost).max(0.0) as usize
    }

    pub(super) fn admitted(&mut self, now: Timestamp) {
        self.pending.push_back(now);
        self.fresh += 1;
    }

    /// A session that was admitted then has ended: it uses nothing any more, and leaves its room at once.
    pub(super) fn session_ended(&mut self, admitted: Timestamp) {
        if let Ok(at) = self.pending.binary_search(&admitted) {
            self.pending.remove(at);
        }
        if admitted >= self.sampled && self.fresh > 0 {
            self.fresh -= 1;
        } else {
            self.sessions = self.sessions.saturating_sub(1);
        }
    }

    /// When as many sessions will have ended as must, for the pressure to fall below its limit.
    pub(super) fn retry_after(&self, now: Timestamp, pressure: f64) -> Duration {
        let ended: usize = self.ended.iter().map(|(_, n)| n).sum();
        let Some((first, _)) = self.ended.front().filter(|_| ended > 0) else { return UNKNOWN };
        let rate = ended as f64 / now.since(*first).as_secs_f64().max(1.0);
        let excess = (1.0 - 1.0 / pressure.max(1.0)) * self.sessions as f64;
        Duration::from_secs_f64((excess.ceil().max(1.0) / rate).min(RETRY_AFTER.1.as_secs_f64())).max(RETRY_AFTER.0)
    }
}

impl Engine {
    fn observe(&mut self, queue: QueueSample, settled: usize, limit: f64) {
        self.used += (queue.utilization() - self.used) * ENGINE_SMOOTHING;
        self.sessions += (settled as f64 - self.sessions) * ENGINE_SMOOTHING;
        self.limit = limit;
    }

    /// How many sessions it suffices for; `None` where too few have used it, or where its use is not known.
    fn suffices_for(&self) -> Option<usize> {
        let is_known = self.sessions >= MIN_SESSIONS as f64 && self.used > 0.0;
        is_known.then(|| (self.limit / self.used * self.sessions) as usize)
    }
}
