//! A worker: it serves its engines to all hubs of the cluster.
//!
//! `antiphon worker` calls [`serve`] once with engines that are loaded. The worker alone decides whether it has room, and its
//! engines batch over all hubs. It knows no session: each attempt is one utterance, chunk or pause. Its tasks run in the
//! tracker that it is given and end with an attempt, with the hub that is gone, or with the worker.

mod admission;
mod speaking;
mod transcribing;
mod turn;

use crate::exchange::{Delivery, Exchange, ExchangeEnd, Inboxes};
use crate::flow::is_from_hub;
use crate::frame::{Frame, Kind};
use crate::hub::estimate;
use crate::link::Link;
use crate::message::{
    Busy, Description, HubAdvert, Open, PROTOCOL, Request, Stage, StageDescription, StageLoad, WorkerAdvert, clock_ms,
    of_json, to_json,
};
use crate::stage_models::{ModelClash, StageModels};
use crate::subject::{self, Sender};
use crate::{ClusterConfig, ClusterError};
use admission::Admission;
use antiphon_engine_api::stt::{RATE, Stt};
use antiphon_engine_api::tts::Tts;
use antiphon_engine_api::turn::TurnModel;
use async_nats::{Message, Subject, Subscriber};
use bytes::Bytes;
use dashmap::DashMap;
use futures_util::StreamExt;
use speaking::Passages;
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// Time between adverts while nothing changes.
const ADVERT_EVERY: Duration = Duration::from_millis(250);

/// The shortest time between two adverts: a busy worker's load changes with each request.
const ADVERT_PAUSE: Duration = Duration::from_millis(20);

/// How long a worker listens for others before it serves: two adverts.
const LOOK_AROUND: Duration = Duration::from_millis(600);

/// Silence after which a hub's attempts are given up; hubs advertise each second.
const HUB_SILENT: Duration = Duration::from_secs(5);

/// Hubs that a worker serves at most.
const MAX_HUBS: usize = 256;

/// The longest wait for the server of an engine, before the worker serves.
const WARM: Duration = Duration::from_secs(5);

/// The longest wait for the last acknowledgement of an attempt.
const SETTLE: Duration = Duration::from_secs(5);

/// A stage that a worker serves.
pub struct WorkerStage {
    /// The engine.
    pub engine: StageEngine,
    /// The engine's name.
    pub engine_name: String,
    /// The model's name; the engine's name where it has none.
    pub model: String,
    /// Digest of what the model is made of: the same on every worker that may stand in for this one.
    pub fingerprint: String,
}

/// The engine of a stage.
pub enum StageEngine {
    /// Speech to text.
    Stt(Arc<dyn Stt>),
    /// Text to speech.
    Tts(Arc<dyn Tts>),
    /// The turn model.
    Turn(Arc<dyn TurnModel>),
}

/// How a worker serves.
pub struct WorkerOptions {
    /// Name in dashboards and logs; no other worker that runs has it.
    pub name: String,
    /// Version of the program.
    pub build: &'static str,
    /// How long requests may take that are under way when the worker gets the signal to stop.
    pub drain: Duration,
    /// Called once the worker serves.
    pub ready: Box<dyn FnOnce() + Send>,
    /// Says how it goes, from the moment that the worker serves.
    pub reporter: Reporter,
}

/// Serves until `stop` is cancelled; then takes nothing more, finishes what it has and returns. While it drains, hubs use the
/// other workers.
///
/// # Errors
/// What keeps it from serving, before it serves: see [`ClusterError`].
pub async fn serve(
    config: &ClusterConfig,
    stages: Vec<WorkerStage>,
    options: WorkerOptions,
    tasks: &TaskTracker,
    stop: CancellationToken,
) -> Result<(), ClusterError> {
    const ROLE: &str = "worker";
    // A speech server's voices are known afterwards, and are part of the description.
    tokio::select! {
        () = warm(&stages) => {}
        () = stop.cancelled() => return Err(ClusterError::Interrupted),
    }
    let link = Link::connect(config, ROLE, "hubs").await?;
    let id = format!("{:016x}", rand::random::<u64>());
    let subjects = vec![subject::any_advert(), subject::open(&id), subject::inbound_of(&id)];
    let mut subscribers = link.subscribe(ROLE, subjects).await?.into_iter();
    let (Some(mut adverts), Some(opens), Some(frames)) = (subscribers.next(), subscribers.next(), subscribers.next())
    else {
        return Err(ClusterError::Interrupted);
    };
    let worker = Arc::new(Worker::new(link, id, stages, &options));
    let models = StageModels::of(config);
    worker.check_models(&models)?;
    let n_bytes = to_json(&worker.description).len();
    if n_bytes > crate::frame::MAX_PAYLOAD_BYTES {
        let message = format!("the list of voices has {n_bytes} bytes, more than a worker may describe");
        return Err(ClusterError::Setting { setting: "stages", message });
    }
    tokio::select! {
        looked = worker.look_around(&models, &mut adverts) => looked?,
        () = stop.cancelled() => return Err(ClusterError::Interrupted),
    }
    let ended = CancellationToken::new();
    // Also where this future is dropped, nothing outlives it.
    let _end = (ended.clone().drop_guard(), worker.killed.clone().drop_guard());
    let attempts = TaskTracker::new();
    tasks.spawn(until(ended.clone(), worker.clone().follow_hubs(adverts)));
    tasks.spawn(until(ended.clone(), worker.clone().advertise()));
    tasks.spawn(until(ended.clone(), worker.clone().receive(opens, frames, attempts.clone())));
    let _ = options.reporter.0.set(worker.clone());
    (options.ready)();
    stop.cancelled().await;
    attempts.close();
    worker.drain(options.drain, &attempts).await;
    // What is left has no time any more: its hubs go on elsewhere.
    worker.killed.cancel();
    let _ = timeout(SETTLE, attempts.wait()).await;
    worker.link.close().await;
    Ok(())
}

/// Says how a worker goes, for its probes and metrics. Cheap to clone.
#[derive(Clone, Default)]
pub struct Reporter(Arc<OnceLock<Arc<Worker>>>);

/// A worker at one moment.
#[derive(Clone, Debug)]
pub struct WorkerReport {
    /// Whether it is connected to NATS.
    pub is_connected: bool,
    /// Whether it finishes what it has and takes nothing more.
    pub is_draining: bool,
    /// The stages that it serves.
    pub stages: Vec<StageReport>,
    /// Messages that were not sent because there was no connection or no room.
    pub unsent: u64,
    /// Frames dropped because they were malformed.
    pub malformed: u64,
    /// Frames dropped because they were not awaited any more.
    pub stale: u64,
    /// Frames dropped because they were here already.
    pub duplicate: u64,
    /// Frames dropped because others before them were missing, or without credit.
    pub early: u64,
}

/// A stage of a worker at one moment.
#[derive(Clone, Copy, Debug)]
pub struct StageReport {
    /// The stage.
    pub stage: Stage,
    /// Requests served at once.
    pub slots: usize,
    /// Requests accepted and not finished.
    pub in_flight: usize,
    /// Requests accepted since the start.
    pub requests: u64,
    /// Estimated wait of one more request, in milliseconds; 0 while a slot is free.
    pub wait_ms: u64,
}

impl Reporter {
    /// The worker now; `None` before it serves. Reads counters only.
    pub fn report(&self) -> Option<WorkerReport> {
        let worker = self.0.get()?;
        let dropped = worker.inboxes.dropped();
        let stage = |served: &ServedStage| StageReport {
            stage: served.stage.stage(),
            slots: served.admission.slots(),
            in_flight: served.admission.in_flight(),
            requests: served.admission.requests(),
            wait_ms: served.load().wait_ms as u64,
        };
        Some(WorkerReport {
            is_connected: worker.link.state().is_connected,
            is_draining: worker.draining.is_cancelled(),
            stages: worker.stages.iter().map(stage).collect(),
            unsent: worker.link.n_dropped(),
            malformed: dropped.malformed.load(Ordering::Relaxed),
            stale: dropped.unknown_attempt.load(Ordering::Relaxed),
            duplicate: dropped.duplicate.load(Ordering::Relaxed),
            early: dropped.early.load(Ordering::Relaxed),
        })
    }
}

/// Checks the settings of the stages' models, and that NATS can be reached, before engines are loaded, which may take minutes.
/// Waits 5 s at most.
///
/// # Errors
/// Why not: see [`ClusterError`].
pub async fn check(config: &ClusterConfig) -> Result<(), ClusterError> {
    if let Some(problem) = StageModels::problems(config).into_iter().next() {
        return Err(problem);
    }
    Link::connect(config, "worker", "a check at start").await?.close().await;
    Ok(())
}

/// Opens the connections of engines that are servers elsewhere.
async fn warm(stages: &[WorkerStage]) {
    for stage in stages {
        let warmed = async {
            match &stage.engine {
                StageEngine::Stt(engine) => {
                    engine.warm().await.map_err(|error| antiphon_telemetry::with_causes(&error))
                }
                StageEngine::Tts(engine) => {
                    engine.warm().await.map_err(|error| antiphon_telemetry::with_causes(&error))
                }
                StageEngine::Turn(_) => Ok(()),
            }
        };
        match timeout(WARM, warmed).await {
            Ok(Ok(())) => {}
            Ok(Err(why)) => tracing::warn!(stage = %stage.stage(), "the engine cannot reach its server: {why}"),
            Err(_) => tracing::warn!(stage = %stage.stage(), "the engine's server does not answer"),
        }
    }
}

struct Worker {
    link: Link,
    id: String,
    name: String,
    build: &'static str,
    started: Instant,
    description: Description,
    stages: Vec<ServedStage>,
    inboxes: Inboxes,
    passages: Passages,
    hubs: DashMap<String, Hub>,
    /// It takes nothing more.
    draining: CancellationToken,
    /// Attempts end at once.
    killed: CancellationToken,
    /// The load has changed.
    changed: Arc<watch::Sender<()>>,
}

struct ServedStage {
    stage: WorkerStage,
    admission: Arc<Admission>,
}

/// A hub with attempts here.
struct Hub {
    seen: Instant,
    gone: CancellationToken,
}

impl Worker {
    fn new(link: Link, id: String, stages: Vec<WorkerStage>, options: &WorkerOptions) -> Self {
        let changed = Arc::new(watch::Sender::new(()));
        let description = Description { stages: stages.iter().map(WorkerStage::describe).collect() };
        let served = |stage: WorkerStage| {
            let admission = Admission::new(stage.stage(), stage.concurrency(), changed.clone());
            ServedStage { stage, admission: Arc::new(admission) }
        };
        Self {
            link,
            id,
            name: options.name.clone(),
            build: options.build,
            started: Instant::now(),
            description,
            stages: stages.into_iter().map(served).collect(),
            inboxes: Inboxes::default(),
            passages: Passages::default(),
            hubs: DashMap::new(),
            draining: CancellationToken::new(),
            killed: CancellationToken::new(),
            changed,
        }
    }

    /// Checks that the models are those that the settings name.
    fn check_models(&self, models: &StageModels) -> Result<(), ClusterError> {
        let own: Vec<StageLoad> = self.stages.iter().map(ServedStage::load).collect();
        let Some(wrong) = models.wrong_model(&own) else { return Ok(()) };
        let setting = wrong.wanted.setting;
        Err(ClusterError::Setting { setting, message: wrong.message("this worker's model of the stage") })
    }

    /// Checks that no other worker has this one's name, and none a model that does not go together with this one's.
    async fn look_around(&self, models: &StageModels, adverts: &mut Subscriber) -> Result<(), ClusterError> {
        let mut end = std::pin::pin!(sleep(LOOK_AROUND));
        let own: Vec<StageLoad> = self.stages.iter().map(ServedStage::load).collect();
        loop {
            let message = tokio::select! {
                message = adverts.next() => message,
                () = &mut end => return Ok(()),
            };
            let Some(message) = message else { return Ok(()) };
            let Some((Sender::Worker, other_id)) = subject::advert_sender(&message.subject) else { continue };
            let Ok(other) = of_json::<WorkerAdvert>(&message.payload) else { continue };
            if other.worker != other_id || other.is_draining {
                continue;
            }
            if other.protocol.major != PROTOCOL.major {
                let found = other.protocol;
                let own = PROTOCOL;
                return Err(ClusterError::Protocol { other: other.name, found, own });
            }
            if other.name == self.name {
                return Err(ClusterError::NameTaken { name: other.name, incarnation: other.worker });
            }
            let other_name = other.name;
            match models.clash(&own, &other.stages) {
                None => {}
                Some(ModelClash::Files { stage, model }) => {
                    return Err(ClusterError::OtherModel { other: other_name, stage, model });
                }
                Some(ModelClash::Models { stage, own, model }) => {
                    return Err(ClusterError::SecondModel { other: other_name, stage, own, model });
                }
            }
        }
    }

    async fn follow_hubs(self: Arc<Self>, mut adverts: Subscriber) {
        let mut checks = interval(Duration::from_secs(1));
        checks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                message = adverts.next() => {
                    let Some(message) = message else { return };
                    let hub = subject::advert_sender(&message.subject);
                    let Some((Sender::Hub, id)) = hub else { continue };
                    if of_json::<HubAdvert>(&message.payload).is_ok_and(|advert| advert.hub == id)
                        && let Some(mut hub) = self.hubs.get_mut(id)
                    {
                        hub.seen = Instant::now();
                    }
                }
                _ = checks.tick() => {
                    let link = self.link.state();
                    // While the connection is down, and just after, no hub is heard.
                    if !link.is_connected || link.since.elapsed() < HUB_SILENT {
                        continue;
                    }
                    self.hubs.retain(|id, hub| {
                        let is_silent = hub.seen.elapsed() > HUB_SILENT;
                        if is_silent {
                            tracing::warn!(hub = id, "a hub is silent; its requests are given up");
                            hub.gone.cancel();
                        }
                        !is_silent
                    });
                }
            }
        }
    }

    async fn advertise(self: Arc<Self>) {
        let mut links = self.link.states();
        let mut changes = self.changed.subscribe();
        loop {
            self.link.reconcile();
            links.borrow_and_update();
            changes.mark_unchanged();
            self.publish_advert(false);
            tokio::select! {
                () = sleep(ADVERT_EVERY) => {}
                // Hubs to which NATS reported no subscriber here learn otherwise.
                Ok(()) = links.changed() => {}
                () = async {
                    // The sender is this worker's own.
                    let _ = changes.changed().await;
                    sleep(ADVERT_PAUSE).await;
                } => {}
            }
        }
    }

    fn publish_advert(&self, is_leaving: bool) {
        let stages = if is_leaving { Vec::new() } else { self.stages.iter().map(ServedStage::load).collect() };
        let advert = WorkerAdvert {
            protocol: PROTOCOL,
            worker: self.id.clone(),
            name: self.name.clone(),
            build: self.build.into(),
            description: self.description.digest(),
            is_draining: self.draining.is_cancelled(),
            clock_ms: clock_ms(),
            up_ms: u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX),
            stages,
        };
        self.link.send(&Subject::from(subject::advert_of_worker(&self.id)), None, to_json(&advert));
    }

    async fn receive(self: Arc<Self>, opens: Subscriber, frames: Subscriber, attempts: TaskTracker) {
        let mut messages = futures_util::stream::select(opens, frames);
        while let Some(message) = messages.next().await {
            if !self.take(message, &attempts) {
                self.inboxes.dropped().malformed.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    /// Takes a message; `false` if it is malformed.
    fn take(self: &Arc<Self>, message: Message, attempts: &TaskTracker) -> bool {
        let at = Instant::now();
        let Ok(frame) = Frame::decode(&message.payload) else { return false };
        if frame.kind == Kind::Reset {
            // Of an attempt that its hub does not know any more.
            self.inboxes.deliver(frame.attempt, Delivery::Frame(frame, at));
            return true;
        }
        let reply = message.reply.filter(|subject| subject::is_outbound(subject));
        let (Some(reply), true) = (reply, is_from_hub(frame.kind)) else { return false };
        if subject::attempt_of(&reply) != Some(frame.attempt) {
            return false;
        }
        match frame.kind {
            Kind::Ping => {}
            Kind::Describe => {
                let payload = to_json(&self.description);
                let answer = Frame { payload, ..Frame::new(Kind::Description, frame.attempt) };
                self.link.send(&reply, None, answer.encode());
            }
            Kind::Open => return self.open(frame, at, reply, attempts),
            kind => {
                let attempt = frame.attempt;
                if !self.inboxes.deliver(attempt, Delivery::Frame(frame, at))
                    && !matches!(kind, Kind::Cancel | Kind::Reset)
                {
                    self.link.send(&reply, None, Frame::new(Kind::Reset, attempt).encode());
                }
            }
        }
        true
    }

    /// Starts an attempt, or says that there is no room.
    fn open(self: &Arc<Self>, frame: Frame, at: Instant, reply: Subject, attempts: &TaskTracker) -> bool {
        let Some(inbox) = self.inboxes.open(frame.attempt) else {
            // It was sent again.
            self.inboxes.deliver(frame.attempt, Delivery::Frame(frame, at));
            return true;
        };
        let Ok(open) = of_json::<Open>(&frame.payload) else { return false };
        let own = Subject::from(subject::inbound(&self.id, frame.attempt));
        let mut exchange = Exchange::new(self.link.clone(), inbox, reply, own);
        exchange.accept(frame, at);
        exchange.answers(at);
        let served = WorkerAttempt { exchange, is_over: false };
        let stage = open.request.stage();
        let serving = self.stages.iter().find(|served| served.stage.stage() == stage);
        let is_known = open.protocol.major == PROTOCOL.major;
        let (Some(serving), true, Some(gone)) = (serving, is_known, self.hub(&open.hub)) else {
            served.refuse(&Busy::default());
            return true;
        };
        let queued = open.request.is_queued();
        let admitted = (!self.draining.is_cancelled()).then(|| serving.admission.admit(queued)).flatten();
        let Some(admitted) = admitted else {
            let is_draining = self.draining.is_cancelled();
            let in_flight = serving.admission.in_flight();
            served.refuse(&Busy { is_draining, in_flight });
            return true;
        };
        let worker = self.clone();
        let killed = self.killed.clone();
        let work: futures_util::future::BoxFuture<'static, ()> = match (&serving.stage.engine, open.request) {
            (StageEngine::Stt(engine), Request::Stt(request)) => {
                let queued = request.queued;
                let options = request.options();
                Box::pin(transcribing::run(served, engine.clone(), options, queued, admitted))
            }
            (StageEngine::Tts(engine), Request::Tts(request)) => {
                let passage = worker.passages.of(&open.hub, request.passage);
                Box::pin(speaking::run(served, engine.clone(), request, passage, admitted))
            }
            (StageEngine::Turn(model), Request::Turn {}) => Box::pin(turn::run(served, model.clone(), admitted)),
            _ => return false,
        };
        attempts.spawn(async move {
            tokio::select! {
                () = work => {}
                () = gone.cancelled() => {}
                () = killed.cancelled() => {}
            }
        });
        true
    }

    /// The token that ends a hub's attempts; `None` if there are too many hubs.
    fn hub(&self, id: &str) -> Option<CancellationToken> {
        if let Some(hub) = self.hubs.get(id) {
            return Some(hub.gone.clone());
        }
        if self.hubs.len() >= MAX_HUBS || id.len() > 32 {
            return None;
        }
        let hub = Hub { seen: Instant::now(), gone: CancellationToken::new() };
        let gone = hub.gone.clone();
        self.hubs.insert(id.to_owned(), hub);
        Some(gone)
    }

    /// Takes nothing more and waits for what is under way, until its hubs have all of it.
    async fn drain(&self, longest: Duration, attempts: &TaskTracker) {
        self.draining.cancel();
        self.publish_advert(false);
        let in_flight = || self.stages.iter().map(|stage| stage.admission.in_flight()).sum::<usize>();
        tracing::info!(in_flight = in_flight(), "draining");
        if timeout(longest, attempts.wait()).await.is_err() {
            tracing::warn!(
                in_flight = in_flight(),
                "the drain time is over; hubs repeat what is left on other workers"
            );
        }
        self.publish_advert(true);
    }
}

impl ServedStage {
    fn load(&self) -> StageLoad {
        let mut load = StageLoad {
            stage: self.stage.stage(),
            model: self.stage.model.clone(),
            fingerprint: self.stage.fingerprint.clone(),
            slots: self.admission.slots(),
            in_flight: self.admission.in_flight(),
            service_ms: self.admission.service_ms(),
            wait_ms: 0.0,
            rate_hz: match self.stage.engine {
                StageEngine::Tts(_) => self.admission.rate_hz(),
                _ => RATE.hz(),
            },
        };
        load.wait_ms = estimate(&load, load.in_flight).0;
        load
    }
}

impl WorkerStage {
    fn stage(&self) -> Stage {
        match self.engine {
            StageEngine::Stt(_) => Stage::Stt,
            StageEngine::Tts(_) => Stage::Tts,
            StageEngine::Turn(_) => Stage::Turn,
        }
    }

    fn concurrency(&self) -> usize {
        match &self.engine {
            StageEngine::Stt(engine) => engine.concurrency(),
            StageEngine::Tts(engine) => engine.concurrency(),
            StageEngine::Turn(model) => model.concurrency(),
        }
    }

    fn describe(&self) -> StageDescription {
        let mut description = StageDescription {
            stage: self.stage(),
            engine: self.engine_name.clone(),
            model: self.model.clone(),
            voices: Vec::new(),
            marks: Vec::new(),
            translates: false,
            detects_language: false,
            takes_long_stretches: false,
            languages: None,
            span_samples: 0,
        };
        match &self.engine {
            StageEngine::Stt(engine) => {
                description.translates = engine.translates();
                description.detects_language = engine.detects_language();
                description.takes_long_stretches = engine.takes_long_stretches(true);
                description.languages = engine.languages();
            }
            StageEngine::Tts(engine) => {
                description.voices = engine.voices();
                description.marks = engine.marks();
            }
            StageEngine::Turn(model) => description.span_samples = model.span().0,
        }
        description
    }
}

/// An attempt at the worker's end. Dropping it before its end resets it at the hub, which goes on elsewhere.
struct WorkerAttempt {
    exchange: Exchange,
    is_over: bool,
}

impl WorkerAttempt {
    /// Says that there is no room.
    fn refuse(mut self, busy: &Busy) {
        self.exchange.send_now(Kind::Busy, to_json(busy));
        self.is_over = true;
    }

    /// Sends the last frame and waits until the hub has everything.
    async fn end(mut self, kind: Kind, payload: Bytes) {
        // A hub that has gone, or wants nothing more, needs no last frame.
        let _ = timeout(SETTLE, self.exchange.send(kind, payload)).await;
        self.settle().await;
    }

    /// Waits until the hub has everything.
    async fn settle(mut self) {
        let _ = timeout(SETTLE, self.exchange.settle()).await;
        self.is_over = true;
    }

    /// The hub has ended the exchange.
    fn ended(&mut self, _why: ExchangeEnd) {
        self.is_over = true;
    }
}

impl Drop for WorkerAttempt {
    fn drop(&mut self) {
        if !self.is_over {
            self.exchange.send_now(Kind::Reset, Bytes::new());
        }
    }
}

async fn until(stop: CancellationToken, work: impl Future<Output = ()>) {
    tokio::select! {
        () = stop.cancelled() => {}
        () = work => {}
    }
}
