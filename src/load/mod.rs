//! Load: how close the hub is to its capacity, by what is measured, and what follows: the brownout level, and whether another
//! session is admitted.
//!
//! `server::load` samples the process and its turns four times a second and asks here at each admission; the simulation of a
//! day's traffic does the same on virtual time. This module is pure: it reads no clock, takes no lock and performs no IO.
//!
//! ```text
//! turns, processor, timers, queues -> Sample -> Pressure -> Ladder -> BrownoutLevel
//!                                                      \-> Admission -> admitted, or refused with an estimate
//! ```

mod admission;
mod config;
mod ladder;
mod pressure;

pub use config::SloConfig;
pub use pressure::{Pressure, QueueSample, Sample};

use admission::Admission;
use antiphon_types::{BrownoutLevel, Timestamp};
use ladder::Ladder;
use pressure::Gauge;
use serde::Serialize;
use std::time::Duration;

/// The interval at which [`LoadMonitor::observe`] expects samples.
pub const SAMPLE_EVERY: Duration = Duration::from_millis(250);

/// The load of one hub.
pub struct LoadMonitor {
    config: SloConfig,
    gauge: Gauge,
    ladder: Ladder,
    admission: Admission,
    pressure: Pressure,
}

/// A session that was admitted, to be given back by [`LoadMonitor::session_ended`].
#[derive(Debug, PartialEq, Eq)]
#[must_use]
pub struct AdmittedSession(Timestamp);

/// Another session would cost those that are there their objective.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Overloaded {
    /// When a session is likely to be admitted again: an estimate from how fast sessions end.
    pub retry_after: Duration,
}

/// The load as it is shown in `/readyz` and `/api/state`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct LoadReport {
    /// The brownout level's number, 0 to 6.
    pub brownout: u8,
    /// Its name.
    pub level: BrownoutLevel,
    /// Each signal as a share of its limit: 1 is the limit.
    pub pressure: Pressure,
    /// `slo.voice_to_voice_ms`; 0: there is none.
    pub objective_ms: u32,
    /// The latency from which the hub is overloaded: the objective, or more where the engines miss it without load; null: there is
    /// no objective.
    pub latency_limit_ms: Option<f64>,
    /// The latency that `slo.share` of the last turns kept, in milliseconds; null while there are too few.
    pub latency_ms: Option<f64>,
    /// How many more sessions the processor and the engines would suffice for, predicted from what sessions use on average.
    pub headroom_sessions: usize,
}

impl LoadMonitor {
    /// A monitor of a hub that is idle and may use `cores` cores.
    pub fn new(config: SloConfig, cores: usize) -> Self {
        let gauge = Gauge::new(&config);
        let ladder = Ladder::default();
        let admission = Admission::new(cores);
        Self { config, gauge, ladder, admission, pressure: Pressure::default() }
    }

    /// Takes what was measured since the last sample and returns the brownout level from now on; always
    /// [`BrownoutLevel::Normal`] where `slo.brownout` is off.
    pub fn observe(&mut self, now: Timestamp, sample: &Sample) -> BrownoutLevel {
        self.pressure = self.gauge.measure(now, sample);
        let limits = self.gauge.utilization_limits(sample);
        self.admission.observe(now, sample, self.gauge.processor(), limits);
        match self.config.brownout {
            true => self.ladder.observe(now, self.pressure.highest()),
            false => BrownoutLevel::Normal,
        }
    }

    /// Admits one more session, and counts it until its load is measured or [`LoadMonitor::session_ended`] says that it has ended.
    /// `own`: how many sessions the key or the address has that asks, with this one, where others may ask as well. It gets half of
    /// those that the processor and the engines would suffice for, so that no client uses up the admission of the others; `None`:
    /// it may have them all.
    ///
    /// # Errors
    /// [`Overloaded`] at the last brownout level, and where the processor or an engine would not suffice for it.
    pub fn admit(&mut self, now: Timestamp, own: Option<usize>) -> Result<AdmittedSession, Overloaded> {
        let is_closed = self.ladder.level() == BrownoutLevel::NoSessions;
        let has_headroom = || self.admission.has_headroom(self.pressure.highest(), own);
        if self.config.brownout && (is_closed || !has_headroom()) {
            return Err(Overloaded { retry_after: self.admission.retry_after(now, self.pressure.highest()) });
        }
        self.admission.admitted(now);
        Ok(AdmittedSession(now))
    }

    /// An admitted session has ended, however early.
    pub fn session_ended(&mut self, session: AdmittedSession) {
        self.admission.session_ended(session.0);
    }

    /// When a place that is taken now is likely to be free: an estimate from how fast sessions end.
    pub fn retry_after(&self, now: Timestamp) -> Duration {
        self.admission.retry_after(now, self.pressure.highest())
    }

    /// Takes the time to the first audio of a request of the speech API that had to wait for no other.
    pub fn spoken_after(&mut self, took: Duration) {
        self.gauge.spoken_after(took.as_secs_f64() * 1e3);
    }

    /// Other engines serve from now on: what was measured of the ones before says nothing of them.
    pub fn engines_changed(&mut self) {
        self.gauge.engines_changed();
    }

    /// The estimated wait of one more chunk for the voice.
    pub fn tts_wait(&self, queue: QueueSample) -> Duration {
        Duration::from_secs_f64(self.gauge.tts_wait_ms(queue) / 1e3)
    }

    /// The level now.
    pub fn level(&self) -> BrownoutLevel {
        self.ladder.level()
    }

    /// The load as it is shown.
    pub fn report(&self) -> LoadReport {
        LoadReport {
            brownout: self.level().number(),
            level: self.level(),
            pressure: self.pressure,
            objective_ms: self.config.voice_to_voice_ms,
            latency_limit_ms: Some(self.gauge.limit_ms()).filter(|ms| ms.is_finite()),
            latency_ms: self.gauge.latency_ms(),
            headroom_sessions: self.admission.headroom(),
        }
    }
}

#[cfg(test)]
mod tests;
