//! A day's traffic on virtual time: real sessions, the hub's real load monitor, brownout levels and admission, routing by the hub's
//! estimate, simulated engine workers with queues.
//!
//! Callers arrive by a curve of the day with a morning and an evening peak above what the hub can serve, and a flash crowd; the
//! model's server becomes slow once, and a worker is lost for a while. The processor is a model: each session costs a share of
//! it. Early and late in the day there are hours of the same load, which are compared. The whole day runs on one thread; the
//! same seed gives the same day.

mod workers;

use antiphon::load::{LoadMonitor, QueueSample, SAMPLE_EVERY, Sample, SloConfig};
use antiphon::replay::Dice;
use antiphon_dialog::turn::TurnConfig;
use antiphon_engine_api::Engines;
use antiphon_engine_api::mcp::{ConnectedServer, Mcp, McpError};
use antiphon_protocol::Dialect;
use antiphon_session::{
    Close, Handle, Inbound, Message, Opening, SessionConfig, Setup, SpeculationConfig, TurnHistory,
};
use antiphon_telemetry::Metrics;
use antiphon_types::mcp::Server;
use antiphon_types::{Brownout, BrownoutLevel, Timestamp};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use futures_util::FutureExt;
use futures_util::future::{BoxFuture, ready};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::LocalSet;
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use workers::Workers;

/// The load by the hour of a day of 24, as a share of what the hub can serve; straight lines between.
const CURVE: [(f64, f64); 14] = [
    (0.0, 0.15),
    (5.0, 0.15),
    (6.0, 0.5),
    (8.0, 0.5),
    (9.0, 1.2),
    (11.0, 1.2),
    (12.0, 0.6),
    (17.0, 0.6),
    (18.0, 1.3),
    (20.0, 1.3),
    (21.0, 0.5),
    (23.0, 0.5),
    (23.5, 0.15),
    (24.0, 0.15),
];

/// Hours of the same load, at both ends of the day, without the minutes after a change.
const EARLY: (f64, f64) = (6.4, 8.0);
const LATE: (f64, f64) = (21.4, 23.0);

/// The upstream is slow, a flash crowd comes, a worker is lost.
const SLOW: (f64, f64) = (12.5, 13.0);
const CROWD: (f64, f64) = (14.0, 14.3);
const LOST: (f64, f64) = (15.5, 16.0);

/// Load of the flash crowd, as a share of what the hub can serve.
const CROWD_LOAD: f64 = 3.0;

/// Mean length of a conversation.
const MEAN_SESSION: Duration = Duration::from_secs(120);

/// The longest answer, from the end of speech; later the turn counts as failed.
const ANSWERED_WITHIN: Duration = Duration::from_secs(60);

/// Workers of the day.
const WORKERS: usize = 3;

/// A day.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Day {
    /// Its length in virtual hours; the curve is stretched to it.
    pub hours: f64,
    /// Sessions that the hub's processor suffices for.
    pub peak: usize,
    /// Seed of everything in it.
    pub seed: u64,
}

/// What a day brought.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DayReport {
    /// Sessions admitted.
    pub admitted: usize,
    /// Requests for a session that were refused.
    pub refused: usize,
    /// Sessions admitted that did not end as their client wanted, or whose turn failed.
    pub lost: usize,
    /// Turns that were answered.
    pub turns: usize,
    /// Turns interrupted by the client.
    pub interrupted: usize,
    /// Requests to workers that began again on another worker.
    pub retried: usize,
    /// Voice-to-voice latency of the early and the late hours: p95 in milliseconds, and the number of turns.
    pub early: (f64, usize),
    /// As `early`.
    pub late: (f64, usize),
    /// The same at the peaks, where admission holds the load.
    pub peaks: (f64, usize),
    /// The highest number of sessions at a time.
    pub most_sessions: usize,
    /// The highest brownout level.
    pub highest: BrownoutLevel,
    /// Changes of the level.
    pub changes: usize,
    /// The level at the end.
    pub last: BrownoutLevel,
    /// Tasks, sessions, and requests to engines that are left at the end.
    pub left: usize,
    /// Anonymous memory of this process at the end of the early and of the late hours, in bytes, where the system
    /// reports it.
    pub memory: Option<(u64, u64)>,
    /// Real time that it took.
    pub took: Duration,
}

impl DayReport {
    /// How much the p95 of the late hours differs from that of the early ones, as a share.
    pub fn drift(&self) -> f64 {
        (self.late.0 - self.early.0).abs() / self.early.0.max(1e-9)
    }
}

/// Runs a day to its end, in a runtime of its own on this thread. Blocks for minutes where it has 24 hours. `progress` is
/// called with the hour of the day.
pub fn simulate_day(day: Day, progress: &dyn Fn(f64)) -> DayReport {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    let runtime = runtime.expect("a runtime without IO needs nothing of the system");
    // Outside of the paused runtime this is real time.
    let began = Instant::now();
    let report = LocalSet::new().block_on(&runtime, run(day, progress));
    DayReport { took: began.elapsed(), ..report }
}

/// What the parts of a day share.
struct Hub {
    day: Day,
    began: Instant,
    setup: Arc<Setup>,
    monitor: RefCell<LoadMonitor>,
    n_sessions: Cell<usize>,
    n_ended: Cell<usize>,
    report: RefCell<DayReport>,
    turns: RefCell<Turns>,
    dice: RefCell<Dice>,
}

/// Latencies of three parts of the day, in milliseconds.
#[derive(Default)]
struct Turns {
    early: Vec<f64>,
    late: Vec<f64>,
    peaks: Vec<f64>,
}

async fn run(day: Day, progress: &dyn Fn(f64)) -> DayReport {
    let dice = Dice::new(day.seed);
    // A talking session keeps 0.04 of a voice's slot busy: the processor is what limits the hub, and a lost worker is felt.
    let workers = Workers::new(WORKERS, day.peak.div_ceil(20).max(2), dice.fork(1));
    let hub = Rc::new(Hub {
        day,
        began: Instant::now(),
        setup: Arc::new(setup(workers.engines())),
        monitor: RefCell::new(LoadMonitor::new(SloConfig::default(), 1)),
        n_sessions: Cell::new(0),
        n_ended: Cell::new(0),
        report: RefCell::default(),
        turns: RefCell::default(),
        dice: RefCell::new(dice.fork(2)),
    });
    let arrivals = tokio::task::spawn_local(arrivals(hub.clone()));
    hub.watch(&workers, progress).await;
    // Those who still talk end soon.
    let _ = timeout(MEAN_SESSION * 20, arrivals).await;
    while hub.n_sessions.get() > 0 {
        hub.sample().await;
    }
    // The levels return once no session is left.
    for _ in 0..400 {
        hub.sample().await;
    }
    hub.setup.tasks.close();
    let _ = timeout(Duration::from_secs(1), hub.setup.tasks.wait()).await;
    let mut report = std::mem::take(&mut *hub.report.borrow_mut());
    let turns = std::mem::take(&mut *hub.turns.borrow_mut());
    report.early = p95(turns.early);
    report.late = p95(turns.late);
    report.peaks = p95(turns.peaks);
    report.retried = workers.n_retried();
    report.last = hub.monitor.borrow().level();
    report.left = hub.setup.tasks.len() + workers.n_live() + hub.n_sessions.get();
    report
}

impl Hub {
    /// Samples and sets the brownout level until the day is over, and lets its events happen.
    async fn watch(&self, workers: &Workers, progress: &dyn Fn(f64)) {
        let mut shown = -1.0;
        loop {
            let hour = self.hour();
            if hour >= 24.0 {
                return;
            }
            workers.slow_down(if is_in(hour, SLOW) { 3.0 } else { 1.0 });
            workers.lose_last(is_in(hour, LOST));
            self.sample().await;
            let mut report = self.report.borrow_mut();
            let memory = report.memory.unwrap_or_default();
            if is_in(hour, EARLY) && memory.0 == 0 && hour > EARLY.1 - 0.1 {
                report.memory = anonymous().map(|bytes| (bytes, 0));
            } else if is_in(hour, LATE) && memory.1 == 0 && hour > LATE.1 - 0.1 {
                report.memory = anonymous().map(|bytes| (memory.0, bytes));
            }
            if hour.floor() > shown {
                shown = hour.floor();
                progress(shown);
            }
        }
    }

    /// One sample of the load monitor, as the server takes it.
    async fn sample(&self) {
        sleep(SAMPLE_EVERY).await;
        let noise = 1.0 + (self.dice.borrow_mut().share() - 0.5) * 0.04;
        let processor = self.n_sessions.get() as f64 / self.day.peak as f64 * noise;
        let stt = &self.setup.engines.stt;
        let tts = &self.setup.engines.tts;
        let answered = self.setup.turn_history.take_answered();
        self.note(answered.iter().map(|turn| turn.latency_ms));
        let sample = Sample {
            sessions: self.n_sessions.get(),
            ended: self.n_ended.replace(0),
            processor: Some(processor.min(1.0)),
            timer_delay_ms: if processor > 0.95 { 20.0 } else { 0.5 },
            stt: QueueSample::of_stt(stt.as_ref()),
            tts: QueueSample::of_tts(tts.as_ref()),
            decode: 0.0,
            answered,
            awaited: self.setup.turn_history.awaited(),
        };
        let level = self.monitor.borrow_mut().observe(self.now(), &sample);
        let mut report = self.report.borrow_mut();
        report.changes += usize::from(level != self.setup.brownout.level());
        report.highest = report.highest.max(level);
        report.most_sessions = report.most_sessions.max(sample.sessions);
        self.setup.brownout.set(level);
    }

    fn note(&self, latencies: impl Iterator<Item = f64>) {
        let hour = self.hour();
        let mut turns = self.turns.borrow_mut();
        let is_peak = load_at(hour) > 1.0;
        for latency in latencies {
            self.report.borrow_mut().turns += 1;
            match () {
                () if is_in(hour, EARLY) => turns.early.push(latency),
                () if is_in(hour, LATE) => turns.late.push(latency),
                () if is_peak => turns.peaks.push(latency),
                () => {}
            }
        }
    }

    /// The hour of a day of 24.
    fn hour(&self) -> f64 {
        self.began.elapsed().as_secs_f64() / 3_600.0 * 24.0 / self.day.hours
    }

    fn now(&self) -> Timestamp {
        Timestamp::new(self.began.elapsed())
    }
}

/// Callers until the day is over; ends when the last one has gone.
async fn arrivals(hub: Rc<Hub>) {
    let callers = TaskTracker::new();
    while hub.hour() < 24.0 {
        let rate = load_at(hub.hour()) * hub.day.peak as f64 / MEAN_SESSION.as_secs_f64();
        let pause = hub.dice.borrow_mut().exponential(1.0 / rate);
        // The rate changes meanwhile.
        sleep(Duration::from_secs_f64(pause.min(5.0))).await;
        if pause <= 5.0 {
            callers.spawn_local(call(hub.clone()));
        }
    }
    callers.close();
    callers.wait().await;
}

/// One caller: asks for a session, once more after the hub's estimate, talks and goes.
async fn call(hub: Rc<Hub>) {
    let mut dice = {
        let mut dice = hub.dice.borrow_mut();
        let part = dice.next();
        dice.fork(part)
    };
    let mut attempt = 0;
    let session = loop {
        let admitted = hub.monitor.borrow_mut().admit(hub.now(), None);
        match admitted {
            Ok(session) => break session,
            Err(overloaded) => {
                hub.report.borrow_mut().refused += 1;
                if attempt == 1 || dice.chance(0.5) {
                    return;
                }
                sleep(overloaded.retry_after).await;
                attempt += 1;
            }
        }
    };
    hub.report.borrow_mut().admitted += 1;
    hub.n_sessions.set(hub.n_sessions.get() + 1);
    let handle = hub.setup.open_seeded(Opening::default(), dice.next());
    let ends = Instant::now() + Duration::from_secs_f64(20.0 + dice.exponential(MEAN_SESSION.as_secs_f64() - 20.0));
    let mut is_lost = false;
    while Instant::now() < ends && !is_lost {
        // It reads on while it thinks.
        let thinks = Duration::from_secs_f64(3.0 + 6.0 * dice.share());
        if timeout(thinks, until(&handle, "no event")).await.is_ok() {
            is_lost = true;
            break;
        }
        let interrupts = dice.chance(0.1);
        match timeout(ANSWERED_WITHIN, turn(&handle, interrupts)).await {
            Ok(Ok(())) => hub.report.borrow_mut().interrupted += usize::from(interrupts),
            Ok(Err(_)) | Err(_) => is_lost = true,
        }
    }
    drop(handle);
    hub.report.borrow_mut().lost += usize::from(is_lost);
    hub.n_sessions.set(hub.n_sessions.get() - 1);
    hub.n_ended.set(hub.n_ended.get() + 1);
    hub.monitor.borrow_mut().session_ended(session);
}

/// Why a turn was lost.
#[derive(Debug)]
enum TurnFailure {
    Closed,
    Failed,
}

impl From<Close> for TurnFailure {
    fn from(_: Close) -> Self {
        Self::Closed
    }
}

/// Speech, silence, and the answer to its end; one that interrupts speaks into it and waits for the next one.
async fn turn(handle: &Handle, interrupts: bool) -> Result<(), TurnFailure> {
    let begun = Instant::now();
    say(handle, 192, 0).await?;
    // Read meanwhile: what is sent waits for the client otherwise.
    let rest = async {
        for at_ms in [192, 432] {
            sleep_until(begun + Duration::from_millis(at_ms + 240)).await;
            say(handle, 0, if at_ms == 192 { 240 } else { 320 }).await?;
        }
        Ok::<(), TurnFailure>(())
    };
    let (said, answered) = tokio::join!(rest, until(handle, "\"response.output_audio.delta\""));
    said?;
    answered?;
    if interrupts {
        say(handle, 192, 560).await?;
        until(handle, "\"response.created\"").await?;
    }
    until(handle, "\"response.done\"").await
}

async fn say(handle: &Handle, loud_ms: usize, quiet_ms: usize) -> Result<(), TurnFailure> {
    let loud = (0..loud_ms * 24).map(|at| if at / 30 % 2 == 0 { 6_000i16 } else { -6_000 });
    let pcm: Vec<u8> = loud.chain(std::iter::repeat_n(0, quiet_ms * 24)).flat_map(i16::to_le_bytes).collect();
    let text = format!("{{\"type\":\"input_audio_buffer.append\",\"audio\":\"{}\"}}", BASE64.encode(pcm));
    let sent = handle.inbound.send(Inbound { payload: Dialect::default().parse(&text).into(), budget: None }).await;
    sent.map_err(|_| TurnFailure::Closed)
}

/// Reads up to the first event of this type; a response that failed is lost.
async fn until(handle: &Handle, kind: &str) -> Result<(), TurnFailure> {
    loop {
        let Message::Text(text) = handle.egress.next_message().await? else { continue };
        let head = &text[..text.len().min(400)];
        if head.contains("\"response.done\"") && head.contains("\"status\":\"failed\"") {
            return Err(TurnFailure::Failed);
        }
        if head.contains(kind) {
            return Ok(());
        }
    }
}

fn setup(engines: Engines) -> Setup {
    Setup {
        turn_history: Arc::new(TurnHistory::new(100, false, engines.names())),
        engines,
        turn: TurnConfig::default(),
        speculation: SpeculationConfig::default(),
        session: SessionConfig { max_minutes: 24 * 60, ..SessionConfig::default() },
        voice: "tone".into(),
        speed: 1.0,
        instructions: "Answer.".into(),
        model: "simulated".into(),
        language: None,
        language_voices: Default::default(),
        stt_timeout: Duration::from_secs(10),
        mcp: Arc::new(NoTools),
        mcp_config: Default::default(),
        hub_servers: Vec::new(),
        brownout: Brownout::default(),
        sealing: None,
        metrics: Metrics::new(),
        tasks: TaskTracker::new(),
        drain: CancellationToken::new(),
    }
}

/// No caller has remote tools.
struct NoTools;

impl Mcp for NoTools {
    fn connect(&self, _: Server) -> BoxFuture<'static, Result<ConnectedServer, McpError>> {
        ready(Err(McpError::Unusable("there are none".into()))).boxed()
    }
}

fn is_in(hour: f64, (from, to): (f64, f64)) -> bool {
    (from..to).contains(&hour)
}

/// The load at an hour of the day, as a share of what the hub can serve.
fn load_at(hour: f64) -> f64 {
    if is_in(hour, CROWD) {
        return CROWD_LOAD;
    }
    let after = CURVE.iter().position(|(at, _)| *at > hour).unwrap_or(CURVE.len() - 1).max(1);
    let ((from, low), (to, high)) = (CURVE[after - 1], CURVE[after]);
    low + (high - low) * ((hour - from) / (to - from)).clamp(0.0, 1.0)
}

fn p95(mut latencies: Vec<f64>) -> (f64, usize) {
    latencies.sort_by(f64::total_cmp);
    let rank = (latencies.len() as f64 * 0.95).ceil() as usize;
    (latencies.get(rank.saturating_sub(1)).copied().unwrap_or(0.0), latencies.len())
}

/// Anonymous memory of this process in bytes; `None` where there is no `/proc`.
fn anonymous() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let kib = status.lines().find_map(|line| line.strip_prefix("RssAnon:"))?;
    kib.trim().strip_suffix(" kB")?.parse::<u64>().ok().map(|kib| kib * 1024)
}
