//! The server's load: samples the process and its turns, sets the brownout level, and admits sessions by headroom.
//!
//! [`super::parts`] asks it for each session, `/readyz`, `/api/state` and `/metrics` show it. What follows from the
//! samples is decided in [`crate::load`]; this module only measures.

use crate::load::{AdmittedSession, LoadMonitor, LoadReport, Overloaded, QueueSample, SAMPLE_EVERY, Sample, SloConfig};
use crate::server::edge::process;
use antiphon_engine_api::tts::Tts;
use antiphon_session::Setup;
use antiphon_telemetry::{Exposition, Family};
use antiphon_types::{Brownout, BrownoutLevel, Timestamp};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::{Instant, MissedTickBehavior, interval, timeout};
use tokio_util::sync::CancellationToken;

static BROWNOUT_LEVEL: Family =
    Family::gauge("antiphon_brownout_level", "What the hub does without, from 0 (normal) to 6 (no new sessions).");
static BROWNOUT_CHANGES: Family = Family::counter("antiphon_brownout_changes_total", "Changes of the brownout level.");
static LOAD_RATIO: Family =
    Family::gauge("antiphon_load_ratio", "Each signal of load as a share of its limit; 1 is the limit.")
        .by(&["signal"]);
static HEADROOM: Family = Family::gauge(
    "antiphon_headroom_sessions",
    "Sessions that the processor and the engines would suffice for beside those that are there.",
);

/// The longest pause between two chunks of a job.
const LONGEST_WAY: Duration = Duration::from_secs(60);

/// The load of a server.
pub(in crate::server) struct Load {
    /// Requests of the recognizer that no session makes.
    pub(in crate::server) stt_api: ApiRequests,
    /// Chunks for the voice that no session speaks.
    pub(in crate::server) tts_api: ApiRequests,
    monitor: Mutex<LoadMonitor>,
    brownout: Brownout,
    levels: watch::Sender<BrownoutLevel>,
    started: Instant,
    cores: usize,
    /// Sessions that ended since the last sample.
    ended: AtomicUsize,
    changes: AtomicU64,
}

/// Requests under way in an engine, of the speech API, of jobs and of Wyoming: they give way to sessions, and are not their load.
#[derive(Clone, Default)]
pub(in crate::server) struct ApiRequests(Arc<AtomicUsize>);

/// One of them. Dropping it ends it.
pub(in crate::server) struct ApiRequest(Arc<AtomicUsize>);

/// An admitted session as the load counts it. Dropping it gives its room back.
pub(in crate::server) struct LoadPlace {
    load: Arc<Load>,
    session: Option<AdmittedSession>,
}

impl Drop for LoadPlace {
    fn drop(&mut self) {
        if let Some(session) = self.session.take() {
            self.load.with(|monitor, _| monitor.session_ended(session));
        }
    }
}

impl ApiRequests {
    /// Counts one until what is returned is dropped.
    pub(in crate::server) fn begin(&self) -> ApiRequest {
        self.0.fetch_add(1, Ordering::Relaxed);
        ApiRequest(self.0.clone())
    }

    fn count(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

impl Drop for ApiRequest {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Load {
    pub(in crate::server) fn new(config: SloConfig) -> Self {
        // The cores that this process may run on: affinity and the container's quota count.
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        Self {
            stt_api: ApiRequests::default(),
            tts_api: ApiRequests::default(),
            monitor: Mutex::new(LoadMonitor::new(config, cores)),
            brownout: Brownout::default(),
            levels: watch::Sender::default(),
            started: Instant::now(),
            cores,
            ended: AtomicUsize::new(0),
            changes: AtomicU64::new(0),
        }
    }

    /// The level, for all that read it.
    pub(in crate::server) fn brownout(&self) -> Brownout {
        self.brownout.clone()
    }

    /// Admits one more session, or says when to come again. `own`: see [`LoadMonitor::admit`].
    pub(in crate::server) fn admit(self: &Arc<Self>, own: Option<usize>) -> Result<LoadPlace, Overloaded> {
        let session = self.with(|monitor, now| monitor.admit(now, own))?;
        Ok(LoadPlace { load: self.clone(), session: Some(session) })
    }

    /// When a slot that is in use now is likely to be free.
    pub(in crate::server) fn retry_after(&self) -> Duration {
        self.with(|monitor, now| monitor.retry_after(now))
    }

    /// The estimated wait of one more chunk for this voice engine.
    pub(in crate::server) fn tts_wait(&self, tts: &dyn Tts) -> Duration {
        let queue = QueueSample::of_tts(tts);
        self.with(|monitor, _| monitor.tts_wait(queue))
    }

    /// A request of the speech API that had to wait for no other had its first audio.
    pub(in crate::server) fn spoken_after(&self, took: Duration) {
        self.with(|monitor, _| monitor.spoken_after(took));
    }

    /// Other engines serve from now on.
    pub(in crate::server) fn engines_changed(&self) {
        self.with(|monitor, _| monitor.engines_changed());
    }

    /// Waits while the server accepts no jobs, a minute at most: work in the background gives way, and still goes on.
    pub(in crate::server) async fn give_way(&self) {
        let mut levels = self.levels.subscribe();
        // The sender lives as long as this.
        let _ = timeout(LONGEST_WAY, levels.wait_for(|level| *level < BrownoutLevel::NoJobs)).await;
    }

    /// A session has ended.
    pub(in crate::server) fn session_ended(&self) {
        self.ended.fetch_add(1, Ordering::Relaxed);
    }

    /// The load as it is shown.
    pub(in crate::server) fn report(&self) -> LoadReport {
        self.with(|monitor, _| monitor.report())
    }

    /// The load as metrics.
    pub(in crate::server) fn metrics(&self) -> String {
        let report = self.report();
        let mut text = Exposition::default();
        text.value(&BROWNOUT_LEVEL, u64::from(report.brownout));
        text.value(&BROWNOUT_CHANGES, self.changes.load(Ordering::Relaxed));
        text.values(&LOAD_RATIO, report.pressure.signals().map(|(signal, ratio)| ([signal], ratio)));
        text.value(&HEADROOM, report.headroom_sessions);
        text.into_text()
    }

    /// Samples until `stop` is cancelled: the engines of new sessions, and the sessions that there are.
    pub(super) async fn watch(
        &self,
        setup: impl Fn() -> Arc<Setup>,
        n_sessions: impl Fn() -> usize,
        stop: CancellationToken,
    ) {
        let mut ticks = interval(SAMPLE_EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut last = Instant::now();
        let mut cpu = process::cpu_seconds();
        loop {
            let due = tokio::select! {
                due = ticks.tick() => due,
                () = stop.cancelled() => return,
            };
            let now = Instant::now();
            let cpu_now = process::cpu_seconds();
            let took = now.duration_since(last).as_secs_f64();
            if took < SAMPLE_EVERY.as_secs_f64() / 2.0 {
                continue;
            }
            let used = cpu_now.zip(cpu).map(|(now, before)| (now - before) / took / self.cores as f64);
            last = now;
            cpu = cpu_now;
            self.sample(&setup(), n_sessions(), used, now.saturating_duration_since(due));
        }
    }

    fn sample(&self, setup: &Setup, n_sessions: usize, processor: Option<f64>, timer_delay: Duration) {
        let stt = &setup.engines.stt;
        let tts = &setup.engines.tts;
        let sample = Sample {
            sessions: n_sessions,
            ended: self.ended.swap(0, Ordering::Relaxed),
            processor,
            timer_delay_ms: timer_delay.as_secs_f64() * 1e3,
            stt: QueueSample { api: self.stt_api.count(), ..QueueSample::of_stt(stt.as_ref()) },
            tts: QueueSample { api: self.tts_api.count(), ..QueueSample::of_tts(tts.as_ref()) },
            decode: tts.slots().map_or(0.0, |slots| slots.step_permille as f64 / 1e3),
            answered: setup.turn_history.take_answered(),
            awaited: setup.turn_history.awaited(),
        };
        let level = self.with(|monitor, now| monitor.observe(now, &sample));
        let before = self.brownout.level();
        if level != before {
            self.brownout.set(level);
            self.levels.send_replace(level);
            self.changes.fetch_add(1, Ordering::Relaxed);
            self.log(before, level);
        }
    }

    fn log(&self, before: BrownoutLevel, level: BrownoutLevel) {
        let pressure = self.report().pressure;
        let (worst, share) = pressure.signals().into_iter().fold(("", 0.0), |a, b| if b.1 > a.1 { b } else { a });
        let share = (share * 100.0).round() / 100.0;
        match level > before {
            true => tracing::warn!(level = level.as_str(), signal = worst, share, "the hub is overloaded"),
            false => tracing::info!(level = level.as_str(), signal = worst, share, "the load of the hub has fallen"),
        }
    }

    fn with<T>(&self, use_it: impl FnOnce(&mut LoadMonitor, Timestamp) -> T) -> T {
        let mut monitor = self.monitor.lock().expect("no panic while locked");
        use_it(&mut monitor, Timestamp::new(self.started.elapsed()))
    }
}
