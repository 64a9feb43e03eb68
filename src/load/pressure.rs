//! From samples to pressure: each signal as a share of its limit, smoothed where one sample says little.

use super::SloConfig;
use antiphon_engine_api::stt::Stt;
use antiphon_engine_api::tts::Tts;
use antiphon_session::{AnsweredTurn, AwaitedTurn};
use antiphon_types::{SessionId, Timestamp};
use serde::Serialize;
use std::collections::HashMap;
use std::time::Duration;

/// Turns that count for the latency: those of this time. Long enough for a few turns of each of ten conversations a
/// second, short enough that the level follows the load.
const WINDOW: Duration = Duration::from_secs(5);

/// Sessions with a turn in the window, below which its quantile says nothing.
const MIN_SESSIONS: usize = 8;

/// Sessions whose last turn is kept, at most.
const MAX_SESSIONS: usize = 4_096;

/// Weight of a new sample of the processor's use and of the timers: a time constant of about one second.
const SMOOTHING: f64 = 0.25;

/// How late timers may be: two frames of 20 ms, after which paced audio runs dry with the smallest lead.
const MAX_TIMER_DELAY_MS: f64 = 40.0;

/// The part of the objective that waiting for a place in one engine's queue may take.
const QUEUE_SHARE: f64 = 0.25;

/// Requests that may wait for each that is served, however slow the engine is.
const SHORT_QUEUE: f64 = 2.0;

/// Time of one request while none was measured, in milliseconds.
const ASSUMED_SERVICE_MS: f64 = 100.0;

/// An objective that the engines miss without load cannot be kept by doing without something. The limit is then this multiple of
/// the lowest latency that was measured.
const ABOVE_CALM: f64 = 1.5;

/// Growth of that lowest latency with each sample in which the load is low, so that it follows engines that become slower and not
/// the load: 13 % a minute. Low: no more sessions than it was measured with, or than half of the most there were.
const CALM_GROWTH: f64 = 1.000_5;

/// What is left of the most sessions there were with each sample: half of it after an hour.
const PEAK_DECAY: f64 = 0.999_952;

/// Any other signal from here on says that a latency is not one without load.
const LOADED_FROM: f64 = 0.8;

/// The objective where `slo.voice_to_voice_ms` is 0, for the queues alone.
const QUEUE_OBJECTIVE_MS: f64 = 800.0;

/// Utilization of an engine that is admitted at most: above it queues grow faster than samples show.
const MAX_UTILIZATION: f64 = 0.95;

/// Time of a decode step of the voice, as a share of the sound that it makes: beyond it there is too little left for the vocoder.
const MAX_DECODE_SHARE: f64 = 0.9;

/// Halvings of the utilization that is searched for: to 0.1 %.
const BISECTIONS: usize = 10;

/// Sessions below which there is no overload: doing without something would not help a single conversation.
pub(super) const MIN_FOR_OVERLOAD: usize = 2;

/// What was measured since the last sample.
#[derive(Clone, Debug, Default)]
pub struct Sample {
    /// Sessions now.
    pub sessions: usize,
    /// Sessions that ended since the last sample.
    pub ended: usize,
    /// Processor time of the process as a share of the cores that it may use; `None` where the system does not report it.
    pub processor: Option<f64>,
    /// How much later than requested a timer of the runtime fired, in milliseconds.
    pub timer_delay_ms: f64,
    /// Utterances that wait for a recognizer.
    pub stt: QueueSample,
    /// Chunks that wait for a voice.
    pub tts: QueueSample,
    /// Time of a decode step of the voice, as a share of the sound that it makes; 0: no steps.
    pub decode: f64,
    /// Turns whose first reply audio was sent since the last sample.
    pub answered: Vec<AnsweredTurn>,
    /// Turns whose reply has made no sound yet.
    pub awaited: Vec<AwaitedTurn>,
}

/// The queue of one stage's engine.
#[derive(Clone, Copy, Debug, Default)]
pub struct QueueSample {
    /// Requests that wait.
    pub waiting: usize,
    /// Requests that are served now; 0 where the engine does not know.
    pub in_service: usize,
    /// Requests that are served at once.
    pub concurrency: usize,
    /// Of those that wait or are served, the ones that no session makes.
    pub api: usize,
}

impl QueueSample {
    /// The recognizer's queue now.
    pub fn of_stt(stt: &dyn Stt) -> Self {
        Self { waiting: stt.waiting(), in_service: stt.in_service(), concurrency: stt.concurrency(), api: 0 }
    }

    /// The voice's queue now.
    pub fn of_tts(tts: &dyn Tts) -> Self {
        Self { waiting: tts.waiting(), in_service: tts.in_service(), concurrency: tts.concurrency(), api: 0 }
    }

    /// Share of the places that sessions use or wait for, from 0 to 1.
    pub(super) fn utilization(&self) -> f64 {
        let of_sessions = (self.in_service + self.waiting).saturating_sub(self.api);
        (of_sessions as f64 / self.concurrency.max(1) as f64).min(1.0)
    }
}

/// Each signal as a share of its limit: 1 is the limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Pressure {
    /// Measured voice-to-voice latency, of the objective.
    pub latency: f64,
    /// Processor time, of `slo.processor_share`.
    pub processor: f64,
    /// Delay of timers, of 40 ms.
    pub timers: f64,
    /// Estimated wait for the recognizer, of a quarter of the objective, or of two requests where these take longer.
    pub stt_queue: f64,
    /// The same for the voice.
    pub tts_queue: f64,
    /// Time of a decode step of a speech language model, of nine tenths of the sound that it makes.
    pub decode: f64,
}

impl Pressure {
    /// Its signals by name.
    pub fn signals(&self) -> [(&'static str, f64); 6] {
        [
            ("latency", self.latency),
            ("processor", self.processor),
            ("timers", self.timers),
            ("stt_queue", self.stt_queue),
            ("tts_queue", self.tts_queue),
            ("decode", self.decode),
        ]
    }

    /// The signal that is closest to its limit, or farthest beyond it.
    pub fn highest(&self) -> f64 {
        self.signals().into_iter().map(|(_, value)| value).fold(0.0, f64::max)
    }
}

/// What is known from earlier samples.
pub(super) struct Gauge {
    objective_ms: f64,
    share: f64,
    processor_share: f64,
    /// The last turn of each session: when it was measured, and its latency in milliseconds.
    turns: HashMap<SessionId, (Timestamp, f64)>,
    latency_ms: Option<f64>,
    calm: Option<Calm>,
    /// The same of decode steps, as shares of their sound.
    calm_decode: Option<Calm>,
    /// The most sessions there were, the longer ago the less.
    peak: f64,
    processor: Option<f64>,
    timer_delay_ms: f64,
    stt_service_ms: f64,
    tts_service_ms: f64,
}

/// The lowest value that was measured, and the sessions there were: of the latency in milliseconds.
#[derive(Clone, Copy)]
struct Calm {
    value: f64,
    sessions: usize,
}

impl Gauge {
    pub(super) fn new(config: &SloConfig) -> Self {
        Self {
            objective_ms: f64::from(config.voice_to_voice_ms),
            share: config.share,
            processor_share: config.processor_share,
            turns: HashMap::new(),
            latency_ms: None,
            calm: None,
            calm_decode: None,
            peak: 0.0,
            processor: None,
            timer_delay_ms: 0.0,
            stt_service_ms: ASSUMED_SERVICE_MS,
            tts_service_ms: ASSUMED_SERVICE_MS,
        }
    }

    /// Takes a sample; the pressure with it.
    pub(super) fn measure(&mut self, now: Timestamp, sample: &Sample) -> Pressure {
        for turn in &sample.answered {
            // Beside others that wait, a turn's time holds its own wait, too.
            smooth(&mut self.stt_service_ms, turn.stt_ms.filter(|_| sample.stt.waiting == 0));
            smooth(&mut self.tts_service_ms, turn.tts_ms.filter(|_| sample.tts.waiting == 0));
            self.took(now, &turn.session, turn.latency_ms);
        }
        // How long a turn will take that is within the limit so far is not known; one beyond it takes at least this
        // long.
        let limit_ms = self.limit_ms();
        for turn in sample.awaited.iter().filter(|turn| turn.waited_ms > limit_ms) {
            self.took(now, &turn.session, turn.waited_ms);
        }
        self.turns.retain(|_, (at, _)| now.since(*at) <= WINDOW);
        self.latency_ms = self.quantile();
        if let Some(used) = sample.processor {
            let before = self.processor.unwrap_or(used);
            self.processor = Some(before + (used - before) * SMOOTHING);
        }
        self.timer_delay_ms += (sample.timer_delay_ms - self.timer_delay_ms) * SMOOTHING;
        self.peak = (self.peak * PEAK_DECAY).max(sample.sessions as f64);
        if sample.sessions < MIN_FOR_OVERLOAD {
            return Pressure::default();
        }
        let others = Pressure {
            latency: 0.0,
            processor: self.processor.unwrap_or(0.0) / self.processor_share,
            timers: self.timer_delay_ms / MAX_TIMER_DELAY_MS,
            stt_queue: self.queue(sample.stt, self.stt_service_ms),
            tts_queue: self.queue(sample.tts, self.tts_service_ms),
            decode: self.decode(sample),
        };
        let Some(measured) = self.latency_ms else { return others };
        if others.highest() < LOADED_FROM {
            self.calm = Some(Calm::with(self.calm, measured, sample.sessions, self.peak));
        }
        Pressure { latency: measured / self.limit_ms(), ..others }
    }

    fn took(&mut self, now: Timestamp, session: &SessionId, ms: f64) {
        if self.turns.len() < MAX_SESSIONS || self.turns.contains_key(session) {
            self.turns.insert(session.clone(), (now, ms));
        }
    }

    /// A request of the speech API had its first audio after this time, without waiting for others.
    pub(super) fn spoken_after(&mut self, ms: f64) {
        smooth(&mut self.tts_service_ms, Some(ms));
    }

    /// The estimated wait of one more chunk for the voice, in milliseconds.
    pub(super) fn tts_wait_ms(&self, queue: QueueSample) -> f64 {
        wait_ms(queue, self.tts_service_ms)
    }

    /// The processor's use as a share of the cores, smoothed.
    pub(super) fn processor(&self) -> Option<f64> {
        self.processor
    }

    /// Other engines serve from now on.
    pub(super) fn engines_changed(&mut self) {
        self.calm = None;
        self.calm_decode = None;
        self.stt_service_ms = ASSUMED_SERVICE_MS;
        self.tts_service_ms = ASSUMED_SERVICE_MS;
    }

    pub(super) fn latency_ms(&self) -> Option<f64> {
        self.latency_ms
    }

    /// The objective, or what can be kept of it; infinite where there is none.
    pub(super) fn limit_ms(&self) -> f64 {
        match self.objective_ms {
            0.0 => f64::INFINITY,
            objective => objective.max(self.calm.map_or(0.0, |calm| calm.value * ABOVE_CALM)),
        }
    }

    /// A voice that is slower than speech without load is not made faster by refusing clients.
    fn decode(&mut self, sample: &Sample) -> f64 {
        if sample.decode <= 0.0 {
            return 0.0;
        }
        let calm = Calm::with(self.calm_decode, sample.decode, sample.sessions, self.peak);
        self.calm_decode = Some(calm);
        sample.decode / MAX_DECODE_SHARE.max(calm.value * ABOVE_CALM)
    }

    fn queue(&self, queue: QueueSample, service_ms: f64) -> f64 {
        wait_ms(queue, service_ms) / self.longest_wait_ms(service_ms)
    }

    fn longest_wait_ms(&self, service_ms: f64) -> f64 {
        let objective = if self.objective_ms > 0.0 { self.objective_ms } else { QUEUE_OBJECTIVE_MS };
        (objective * QUEUE_SHARE).max(service_ms * SHORT_QUEUE)
    }

    /// The utilization of recognizer and voice up to which requests wait no longer than they may, on average.
    pub(super) fn utilization_limits(&self, sample: &Sample) -> (f64, f64) {
        let limit =
            |queue: QueueSample, service_ms| highest_utilization(queue, service_ms, self.longest_wait_ms(service_ms));
        (limit(sample.stt, self.stt_service_ms), limit(sample.tts, self.tts_service_ms))
    }

    /// The quantile over sessions of their last turn: a session with many turns, or slow ones, is one of many. The slowest
    /// session alone decides nothing.
    fn quantile(&self) -> Option<f64> {
        let mut latencies: Vec<f64> = self.turns.values().map(|(_, ms)| *ms).collect();
        if latencies.len() < MIN_SESSIONS {
            return None;
        }
        latencies.sort_by(f64::total_cmp);
        let rank = (latencies.len() as f64 * self.share).ceil() as usize;
        latencies.get(rank.clamp(1, latencies.len() - 1) - 1).copied()
    }
}

impl Calm {
    /// With another value that was measured.
    fn with(known: Option<Self>, measured: f64, sessions: usize, peak: f64) -> Self {
        match known {
            Some(calm) if measured > calm.value => {
                let is_low = sessions <= calm.sessions || sessions as f64 <= peak / 2.0;
                let growth = if is_low { CALM_GROWTH } else { 1.0 };
                Self { value: (calm.value * growth).min(measured), ..calm }
            }
            _ => Self { value: measured, sessions },
        }
    }
}

fn smooth(known: &mut f64, new: Option<f64>) {
    *known += (new.unwrap_or(*known) - *known) * SMOOTHING;
}

/// The utilization up to which the mean wait is not above `wait_ms`. The mean wait in a queue M/M/c by H. Sakasegawa, An approximation formula, Annals of
/// the Institute of Statistical Mathematics 29, 1977.
fn highest_utilization(queue: QueueSample, service_ms: f64, wait_ms: f64) -> f64 {
    let n = queue.concurrency.max(1) as f64;
    let mean_wait_ms =
        |utilization: f64| service_ms * utilization.powf((2.0 * (n + 1.0)).sqrt() - 1.0) / (n * (1.0 - utilization));
    let mut low = 0.0;
    let mut high = MAX_UTILIZATION;
    for _ in 0..BISECTIONS {
        let middle = (low + high) / 2.0;
        match mean_wait_ms(middle) <= wait_ms {
            true => low = middle,
            false => high = middle,
        }
    }
    high
}

fn wait_ms(queue: QueueSample, service_ms: f64) -> f64 {
    queue.waiting as f64 / queue.concurrency.max(1) as f64 * service_ms
}
