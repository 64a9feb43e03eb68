//! A hub's side of the cluster: it knows the workers, opens attempts on them and notices when one is gone.
//!
//! The root's assembly calls [`Cluster::join`] once and gets engines from it ([`Cluster::stt`], [`Cluster::tts`],
//! [`Cluster::turn`]), which sessions use like any other. Its tasks run in the tracker that it is given and end with its
//! token. It decides neither what is spoken nor how long anybody waits for a turn.

mod attempt;
mod directory;
mod fallback_model;
mod news;
mod overview;
mod ownership;
mod peers;
mod resume;
mod stt;
mod tts;
mod turn;

pub use directory::estimate;
pub use news::{MAX_NEWS_BYTES, PeerNews, WatchGuard};
pub use overview::{HubView, LostView, Overview, StageModelView, StageView, WorkerView};
pub use ownership::{MAX_STATE_BYTES, OwnedSession, OwnershipError, Release, SharedSessions, StoredSessionView};
pub use peers::{MAX_REPLY_BYTES, PeerAnswer, PeerReply, Replier};

use crate::exchange::{Delivery, Inboxes};
use crate::flow::is_from_worker;
use crate::frame::{Frame, Kind};
use crate::link::Link;
use crate::message::{
    AdvertVersion, Description, HubAdvert, PROTOCOL, Stage, WorkerAdvert, clock_ms, of_json, to_json,
};
use crate::stage_models::StageModels;
use crate::{ClusterConfig, ClusterError, subject};
use antiphon_engine_api::stt::Stt;
use antiphon_engine_api::tts::Tts;
use antiphon_engine_api::turn::TurnModel;
use async_nats::{Message, StatusCode, Subject, Subscriber};
use dashmap::DashMap;
use directory::{AdvertEffect, Directory, MAX_ADVERT_BYTES, Worker};
use fallback_model::FallbackModelUse;
use futures_util::StreamExt;
use news::News;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio::time::{Instant, MissedTickBehavior, interval, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// Time between a hub's adverts.
const ADVERT_EVERY: Duration = Duration::from_secs(1);

/// Time between two checks of the workers. Workers that serve this hub are pinged as often: NATS answers for one that is gone.
const CHECK_EVERY: Duration = Duration::from_millis(40);

/// Time between two lines of the log about a worker that is waited for.
const REMIND_EVERY: Duration = Duration::from_secs(60);

/// Time between two checks after which the hub itself stood still: a suspended machine, a process without a processor.
const ASLEEP: Duration = Duration::from_millis(300);

/// Silence after which a hub is not shown any more.
const HUB_SILENT: Duration = Duration::from_secs(5);

/// Hubs that are shown at most.
const MAX_HUBS: usize = 256;

/// How many sessions a hub serves, for its adverts: now, at most, and whether it is draining.
pub type Sessions = Arc<dyn Fn() -> (usize, usize, bool) + Send + Sync>;

/// A hub's membership in the cluster. Cheap to clone.
#[derive(Clone)]
pub struct Cluster(pub(crate) Arc<Inner>);

pub(crate) struct Inner {
    pub(crate) link: Link,
    /// This hub's incarnation.
    pub(crate) hub: String,
    pub(crate) inboxes: Inboxes,
    pub(crate) directory: Directory,
    /// The requests that went to fallback models.
    fallback_models: FallbackModelUse,
    name: String,
    build: &'static str,
    started: Instant,
    /// Other hubs with the time of their last advert, and this one.
    hubs: DashMap<String, (HubAdvert, Instant)>,
    pub(crate) counters: Counters,
    sessions: Sessions,
    /// For each stage, requests that wait for room: the first of them tries when an advert says something new.
    pub(crate) queues: [Semaphore; Stage::ALL.len()],
    /// Replies to what other hubs ask.
    replier: OnceLock<Replier>,
    news: News,
    /// When this hub last received an advert of its own: what it publishes arrives, and what is published arrives here.
    echoed: Mutex<Instant>,
    /// Whether the hub's own engines can serve where no worker does.
    has_fallback: bool,
}

/// What happened to attempts, since the start.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) opened: AtomicU64,
    pub(crate) busy: AtomicU64,
    pub(crate) retried: AtomicU64,
    pub(crate) failed: AtomicU64,
    pub(crate) away: AtomicU64,
}

impl Counters {
    pub(crate) fn count(counter: &AtomicU64) {
        counter.fetch_add(1, Ordering::Relaxed);
    }
}

impl Cluster {
    /// Connects to NATS and begins to follow the workers. Waits for the connection, 5 s at most, and for no worker.
    ///
    /// # Errors
    /// The server cannot be reached, refuses the hub, or is too old: see [`ClusterError`].
    pub async fn join(
        config: &ClusterConfig,
        build: &'static str,
        sessions: Sessions,
        tasks: &TaskTracker,
        stop: CancellationToken,
    ) -> Result<Self, ClusterError> {
        const ROLE: &str = "hub";
        let link = Link::connect(config, ROLE, "workers and other hubs").await?;
        let hub = format!("{:016x}", rand::random::<u64>());
        // News are followed only while a page watches. Whether that is permitted is checked now.
        let subjects = vec![
            subject::any_advert(),
            subject::outbound_of(&hub),
            subject::ask(&hub),
            subject::reply_of(&hub),
            subject::any_news(),
        ];
        let subscribers = link.subscribe(ROLE, subjects).await?;
        let cluster = Self(Arc::new(Inner {
            link,
            news: News::of(&hub),
            hub,
            inboxes: Inboxes::default(),
            directory: Directory::new(StageModels::of(config)),
            fallback_models: FallbackModelUse::default(),
            name: config.shown_name(),
            build,
            started: Instant::now(),
            hubs: DashMap::new(),
            counters: Counters::default(),
            sessions,
            queues: [const { Semaphore::const_new(1) }; Stage::ALL.len()],
            replier: OnceLock::new(),
            echoed: Mutex::new(Instant::now()),
            has_fallback: config.fallback,
        }));
        let mut subscribers = subscribers.into_iter();
        let mut next = || subscribers.next();
        if let (Some(adverts), Some(frames), Some(asked), Some(replies)) = (next(), next(), next(), next()) {
            tasks.spawn(until(stop.clone(), cluster.clone().follow_adverts(adverts)));
            tasks.spawn(until(stop.clone(), cluster.clone().receive(frames)));
            tasks.spawn(until(stop.clone(), cluster.clone().reply_to_peers(asked)));
            tasks.spawn(until(stop.clone(), cluster.clone().receive_replies(replies)));
        }
        tasks.spawn(until(stop.clone(), cluster.clone().watch_workers()));
        tasks.spawn(until(stop.clone(), cluster.clone().follow_news()));
        tasks.spawn(until(stop, cluster.clone().advertise()));
        Ok(cluster)
    }

    /// Waits until a worker serves each of the stages; logs what it waits for. Cancelling is safe.
    pub async fn ready(&self, stages: &[Stage]) {
        let mut changes = self.0.directory.changes();
        let mut said: Option<(Stage, Instant)> = None;
        loop {
            let missing = stages.iter().copied().find(|stage| self.0.directory.serving(*stage).is_empty());
            let Some(missing) = missing else { return };
            if said.is_none_or(|(stage, at)| stage != missing || at.elapsed() > REMIND_EVERY) {
                said = Some((missing, Instant::now()));
                tracing::warn!("waiting for a worker: {}", ClusterError::NoWorker { stage: missing });
            }
            if let Ok(Err(_)) = timeout(REMIND_EVERY, changes.changed()).await {
                return;
            }
        }
    }

    /// Why a request of one of the stages would find no worker now, in words for the hub's operator; `None` if each has one.
    /// A connection that is down for a moment is no reason.
    pub fn lacks(&self, stages: &[Stage]) -> Option<String> {
        if !self.0.link.is_reachable(attempt::AWAY_AFTER) {
            return Some("there is no connection to NATS".into());
        }
        let serves = |stage: Stage| self.0.directory.serving(stage).iter().any(|worker| !worker.advert().is_draining);
        let missing = stages.iter().copied().find(|stage| !serves(*stage))?;
        Some(format!("no worker serves {missing}"))
    }

    /// Speech to text on the workers.
    pub fn stt(&self) -> Arc<dyn Stt> {
        Arc::new(stt::ClusterStt::new(self.clone()))
    }

    /// Text to speech on the workers.
    pub fn tts(&self) -> Arc<dyn Tts> {
        Arc::new(tts::ClusterTts::new(self.clone()))
    }

    /// The turn model on the workers.
    pub fn turn(&self) -> Arc<dyn TurnModel> {
        Arc::new(turn::ClusterTurnModel::new(self.clone()))
    }

    /// Whether nothing that this hub publishes has come back to it for `after`, or it has no connection: other hubs may
    /// have taken what it owned. Adverts are published each second.
    pub fn is_isolated(&self, after: Duration) -> bool {
        let echoed = *self.0.echoed.lock().unwrap_or_else(PoisonError::into_inner);
        !self.0.link.state().is_connected || echoed.elapsed() > after
    }

    /// This hub's incarnation, as others see it.
    pub fn id(&self) -> &str {
        &self.0.hub
    }

    /// Ends the connection. Others notice by the silence.
    pub async fn leave(&self) {
        self.0.link.close().await;
    }

    async fn follow_adverts(self, mut adverts: Subscriber) {
        while let Some(message) = adverts.next().await {
            if message.payload.len() > MAX_ADVERT_BYTES || !self.advert(&message) {
                self.0.inboxes.dropped().malformed.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    /// Takes an advert; `false` if it is none.
    fn advert(&self, message: &Message) -> bool {
        let Some((role, id)) = subject::advert_sender(&message.subject) else { return false };
        if role == subject::Sender::Hub {
            let Ok(advert) = of_json::<HubAdvert>(&message.payload) else { return false };
            if id == self.0.hub {
                *self.0.echoed.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
            }
            if advert.hub == id && (self.0.hubs.len() < MAX_HUBS || self.0.hubs.contains_key(id)) {
                let watches = advert.is_watching;
                let before = self.0.hubs.insert(id.to_owned(), (advert, Instant::now()));
                if before.is_none() && id != self.0.hub {
                    // A hub that has just joined asks the others for sessions at once, and needs to know them for it.
                    self.advertise_now();
                }
                if before.is_some_and(|(before, _)| before.is_watching) != watches {
                    self.note_watching_hubs();
                }
            }
            return true;
        }
        let advert = match of_json::<WorkerAdvert>(&message.payload) {
            Ok(advert) if advert.worker == id => advert,
            Ok(_) => return false,
            // A version that this build cannot read, except for its number.
            Err(_) => match of_json::<AdvertVersion>(&message.payload) {
                Ok(other) if other.protocol.major != PROTOCOL.major => unreadable(id, other),
                _ => return false,
            },
        };
        let is_leaving = advert.is_draining && advert.stages.is_empty();
        if let (AdvertEffect::Undescribed, Some(worker)) = self.0.directory.advertised(advert, is_leaving) {
            let to = Subject::from(subject::open(&worker.id));
            let reply = Subject::from(subject::outbound(&self.0.hub, worker.monitor));
            self.0.link.send(&to, Some(&reply), Frame::new(Kind::Describe, worker.monitor).encode());
        }
        true
    }

    async fn receive(self, mut frames: Subscriber) {
        while let Some(message) = frames.next().await {
            let at = Instant::now();
            let Some(attempt) = subject::attempt_of(&message.subject) else { continue };
            let is_missing = message.status == Some(StatusCode::NO_RESPONDERS);
            let monitored = || self.0.directory.all().into_iter().find(|worker| worker.monitor == attempt);
            if is_missing {
                match monitored() {
                    Some(worker) => worker.missing(),
                    None => drop(self.0.inboxes.deliver(attempt, Delivery::NoResponders)),
                }
                continue;
            }
            let frame = match Frame::decode(&message.payload) {
                Ok(frame) if frame.attempt == attempt && is_from_worker(frame.kind) => frame,
                _ => {
                    self.0.inboxes.dropped().malformed.fetch_add(1, Ordering::Relaxed);
                    continue;
                }
            };
            if frame.kind == Kind::Description {
                match (monitored(), of_json::<Description>(&frame.payload)) {
                    (Some(worker), Ok(description)) => self.0.directory.described(&worker, description),
                    _ => drop(self.0.inboxes.dropped().malformed.fetch_add(1, Ordering::Relaxed)),
                }
                continue;
            }
            let kind = frame.kind;
            if !self.0.inboxes.deliver(attempt, Delivery::Frame(frame, at)) && kind != Kind::Reset {
                self.reset(attempt, message.reply);
            }
        }
    }

    /// Sends a worker that its frames are not awaited any more.
    fn reset(&self, attempt: u64, reply: Option<Subject>) {
        if let Some(to) = reply.filter(|subject| subject::is_inbound(subject)) {
            // A worker takes no frame without the subject of its attempt.
            let own = Subject::from(subject::outbound(&self.0.hub, attempt));
            self.0.link.send(&to, Some(&own), Frame::new(Kind::Reset, attempt).encode());
        }
    }

    async fn watch_workers(self) {
        let mut ticks = interval(CHECK_EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut pings: Vec<(Arc<Worker>, Subject, Subject)> = Vec::new();
        let mut ticked = Instant::now();
        let mut awake_since = Instant::now();
        loop {
            ticks.tick().await;
            self.0.link.reconcile();
            if ticked.elapsed() > ASLEEP {
                // This process stood still: what arrived meanwhile is not read yet.
                awake_since = Instant::now();
            }
            ticked = Instant::now();
            let link = self.0.link.state();
            if !link.is_connected {
                continue;
            }
            self.0.directory.bury(link.since.max(awake_since));
            pings.retain(|(worker, ..)| !worker.lost.is_cancelled());
            for worker in self.0.directory.all() {
                if !pings.iter().any(|(known, ..)| Arc::ptr_eq(known, &worker)) {
                    let to = Subject::from(subject::open(&worker.id));
                    let reply = Subject::from(subject::outbound(&self.0.hub, worker.monitor));
                    pings.push((worker, to, reply));
                }
            }
            for (worker, to, reply) in pings.iter().filter(|(worker, ..)| worker.in_use() > 0) {
                self.0.link.send(to, Some(reply), Frame::new(Kind::Ping, worker.monitor).encode());
            }
        }
    }

    async fn advertise(self) {
        let mut ticks = interval(ADVERT_EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            self.advertise_now();
            self.0.hubs.retain(|_, (_, seen)| seen.elapsed() < HUB_SILENT);
            self.note_watching_hubs();
        }
    }

    fn advertise_now(&self) {
        let advert = self.hub_advert();
        self.0.link.send(&Subject::from(subject::advert_of_hub(&self.0.hub)), None, to_json(&advert));
        self.0.hubs.insert(self.0.hub.clone(), (advert, Instant::now()));
    }

    fn hub_advert(&self) -> HubAdvert {
        let (sessions, max_sessions, is_draining) = (self.0.sessions)();
        HubAdvert {
            protocol: PROTOCOL,
            hub: self.0.hub.clone(),
            name: self.0.name.clone(),
            build: self.0.build.into(),
            is_draining,
            clock_ms: clock_ms(),
            up_ms: u64::try_from(self.0.started.elapsed().as_millis()).unwrap_or(u64::MAX),
            sessions,
            max_sessions,
            is_watching: self.0.news.is_wanted(),
        }
    }
}

/// A worker of which only the version can be read.
fn unreadable(id: &str, other: AdvertVersion) -> WorkerAdvert {
    WorkerAdvert {
        protocol: other.protocol,
        worker: id.into(),
        name: other.name,
        build: String::new(),
        description: String::new(),
        is_draining: false,
        clock_ms: clock_ms(),
        up_ms: 0,
        stages: Vec::new(),
    }
}

async fn until(stop: CancellationToken, work: impl Future<Output = ()>) {
    tokio::select! {
        () = stop.cancelled() => {}
        () = work => {}
    }
}
