//! The workers that a hub knows, from their adverts, and which of them serves the next request.
//!
//! The hub's receiving task fills it; engines pick from it. A worker is a candidate once it has described itself. It is lost
//! when it is silent for too long, or when NATS reports twice that it has no subscriber while no advert says otherwise.

use crate::message::{Description, Protocol, Stage, StageDescription, StageLoad, WorkerAdvert};
use crate::stage_models::{ModelClash, ONE_MODEL, StageModels};
use crate::{PROTOCOL, frame};
use dashmap::DashMap;
use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// Silence after which a worker is lost: three adverts.
pub(crate) const SILENT: Duration = Duration::from_millis(750);

/// Time between the first report of no subscriber and the one that counts. A worker that reconnects is back sooner.
const GONE: Duration = Duration::from_millis(80);

/// After a reconnect of the hub no worker counts as lost for this long: the workers reconnect, too.
const AFTER_RECONNECT: Duration = Duration::from_millis(500);

/// Time in which a worker that was lost, or left, may be there again: a restart takes that long.
const MAY_RETURN: Duration = Duration::from_secs(2);

/// Workers that a hub knows at most; beyond it adverts of further ones are dropped.
const MAX_WORKERS: usize = 1_024;

/// Lost workers that the dashboard shows, and those that are known to have left.
const MAX_LOST: usize = 16;

/// The workers of a cluster.
pub(crate) struct Directory {
    /// The models that the settings name.
    models: StageModels,
    workers: DashMap<String, Arc<Worker>>,
    lost: Mutex<VecDeque<LostWorker>>,
    /// Incarnations that have left: an advert that was under way does not bring them back.
    left: Mutex<VecDeque<(String, Instant)>>,
    changed: watch::Sender<u64>,
}

/// A worker.
pub(crate) struct Worker {
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) build: String,
    pub(crate) protocol: Protocol,
    /// The number under which NATS' answers to pings arrive.
    pub(crate) monitor: u64,
    /// Cancelled when it is lost.
    pub(crate) lost: CancellationToken,
    description: OnceLock<Description>,
    state: Mutex<WorkerState>,
    /// Attempts of this hub that it serves.
    in_use: AtomicUsize,
}

struct WorkerState {
    advert: WorkerAdvert,
    seen: Instant,
    /// When NATS first reported no subscriber, since the last advert.
    missing_since: Option<Instant>,
    /// Requests of this hub that are not answered yet, for each stage.
    opening: [usize; Stage::ALL.len()],
    /// Requests that were accepted since the last advert, which therefore does not know them.
    accepted: [usize; Stage::ALL.len()],
    /// Why it is not used.
    refused: Option<String>,
}

/// A worker that was lost.
#[derive(Clone, Debug)]
pub(crate) struct LostWorker {
    pub(crate) name: String,
    pub(crate) id: String,
    pub(crate) at: Instant,
    pub(crate) why: &'static str,
}

/// What a request needs.
#[derive(Clone, Debug, Default)]
pub(crate) struct WorkerQuery<'a> {
    /// The model; `None`: any.
    pub(crate) model: Option<&'a str>,
    /// Incarnations that were tried already.
    pub(crate) except: &'a [String],
    /// The incarnation that is taken if it has room.
    pub(crate) preferred: Option<&'a str>,
}

/// What an advert changed.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum AdvertEffect {
    /// It is known.
    Known,
    /// Its description is missing: ask it.
    Undescribed,
    /// It is not used.
    Ignored,
}

impl Directory {
    /// Without workers. `models`: those that the settings name.
    pub(crate) fn new(models: StageModels) -> Self {
        Self {
            models,
            workers: DashMap::new(),
            lost: Mutex::default(),
            left: Mutex::default(),
            changed: watch::Sender::new(0),
        }
    }

    /// The models that the settings name.
    pub(crate) fn models(&self) -> &StageModels {
        &self.models
    }

    /// Takes an advert.
    pub(crate) fn advertised(&self, advert: WorkerAdvert, is_leaving: bool) -> (AdvertEffect, Option<Arc<Worker>>) {
        let known = self.workers.get(&advert.worker).map(|worker| worker.clone());
        if is_leaving {
            self.leaves(&advert.worker);
            if let Some(worker) = known {
                self.workers.remove(&worker.id);
                worker.lost.cancel();
                tracing::info!(worker = worker.name, "the worker has left the cluster");
                self.notify();
            }
            return (AdvertEffect::Ignored, None);
        }
        let worker = match known {
            Some(worker) => worker,
            None if self.has_left(&advert.worker) => return (AdvertEffect::Ignored, None),
            None if self.workers.len() >= MAX_WORKERS => return (AdvertEffect::Ignored, None),
            None => self.add(&advert),
        };
        let noted = {
            let mut state = worker.state();
            state.seen = Instant::now();
            state.missing_since = None;
            // A worker's messages arrive in the order in which it sent them.
            state.accepted = Default::default();
            let was_draining = std::mem::replace(&mut state.advert, advert).is_draining;
            if state.advert.is_draining && !was_draining {
                tracing::info!(worker = worker.name, "the worker is draining");
            }
            match (worker.protocol.major == PROTOCOL.major, worker.description.get()) {
                (false, _) => AdvertEffect::Ignored,
                (true, None) => AdvertEffect::Undescribed,
                (true, Some(_)) => AdvertEffect::Known,
            }
        };
        if noted == AdvertEffect::Known && worker.refused().is_some() {
            self.compare(&worker);
        }
        self.notify();
        (noted, Some(worker))
    }

    fn leaves(&self, id: &str) {
        let mut left = self.left();
        if left.len() == MAX_LOST {
            left.pop_front();
        }
        left.push_back((id.to_owned(), Instant::now()));
    }

    fn has_left(&self, id: &str) -> bool {
        self.left().iter().any(|(left, _)| left == id)
    }

    fn left(&self) -> MutexGuard<'_, VecDeque<(String, Instant)>> {
        self.left.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, advert: &WorkerAdvert) -> Arc<Worker> {
        let protocol = advert.protocol;
        let refused = (protocol.major != PROTOCOL.major).then(|| {
            let refused = format!("it speaks protocol {protocol}, this hub {PROTOCOL}: update the older one of them");
            tracing::error!(worker = advert.name, "the worker is not used: {refused}");
            refused
        });
        let state = WorkerState {
            advert: advert.clone(),
            seen: Instant::now(),
            missing_since: None,
            opening: Default::default(),
            accepted: Default::default(),
            refused,
        };
        let worker = Arc::new(Worker {
            id: advert.worker.clone(),
            name: advert.name.clone(),
            build: advert.build.clone(),
            protocol,
            monitor: rand::random(),
            lost: CancellationToken::new(),
            description: OnceLock::new(),
            state: Mutex::new(state),
            in_use: AtomicUsize::new(0),
        });
        self.workers.insert(worker.id.clone(), worker.clone());
        worker
    }

    /// Takes a worker's description. One whose model is not that of the stage, or differs from another worker's of the same name,
    /// is not used.
    pub(crate) fn described(&self, worker: &Worker, description: Description) {
        if worker.description.set(description).is_ok() {
            tracing::info!(worker = worker.name, serves = worker.serves(), "a worker has joined the cluster");
        }
        self.compare(worker);
        self.notify();
    }

    /// Refuses a worker with another model than a setting names, and one whose model does not go together with another worker's,
    /// for as long as that one takes requests.
    fn compare(&self, worker: &Worker) {
        let refused = self.refusal(worker);
        let mut state = worker.state();
        let was_refused = state.refused.is_some();
        state.refused = refused;
        match &state.refused {
            Some(refused) if !was_refused => tracing::error!(worker = worker.name, "the worker is not used: {refused}"),
            None if was_refused => tracing::info!(worker = worker.name, "the worker is used now"),
            _ => {}
        }
    }

    /// Why a worker is not used because of its models, if it is not.
    fn refusal(&self, worker: &Worker) -> Option<String> {
        let own = worker.advert().stages;
        if let Some(wrong) = self.models.wrong_model(&own) {
            return Some(wrong.message("its model of the stage"));
        }
        let others = self
            .all()
            .into_iter()
            .filter(|other| other.id != worker.id && other.refused().is_none() && !other.advert().is_draining);
        let (other, clash) = others.into_iter().find_map(|other| {
            let clash = self.models.clash(&own, &other.advert().stages)?;
            Some((other, clash))
        })?;
        Some(match clash {
            ModelClash::Files { model, .. } => format!(
                "its files of the model {model:?} are not those of the worker {:?}: copy them from there, or serve them under \
                 another name",
                other.name
            ),
            ModelClash::Models { stage, own, model } => format!(
                "its model of the stage {stage} is {own:?}, that of the worker {:?} is {model:?}: the stage has one model for \
                 all; serve {model:?}, stop the workers that do, or name the model in cluster.{stage}_model and a second one \
                 in cluster.{stage}_fallback_model",
                other.name
            ),
        })
    }

    /// The better of two candidates that are drawn at random: the one with the shorter estimated wait, then with the smaller
    /// share of its slots in use.
    pub(crate) fn pick(&self, stage: Stage, wanted: &WorkerQuery<'_>) -> Option<Arc<Worker>> {
        let mut candidates: Vec<_> = self.all().into_iter().filter(|worker| worker.can_serve(stage, wanted)).collect();
        if let Some(at) = wanted.preferred.and_then(|id| candidates.iter().position(|worker| worker.id == id))
            && candidates[at].load(stage).is_some_and(|load| load.0 <= 0.0)
        {
            return Some(candidates.swap_remove(at));
        }
        if candidates.is_empty() {
            return None;
        }
        let first = candidates.swap_remove(rand::random_range(0..candidates.len()));
        if candidates.is_empty() {
            return Some(first);
        }
        let second = candidates.swap_remove(rand::random_range(0..candidates.len()));
        let one = first.load(stage)?;
        let other = second.load(stage)?;
        Some(if other < one { second } else { first })
    }

    /// The model that speaks with `voice`; of several, and for a voice that no worker has, the one with the most slots.
    pub(crate) fn model_of_voice(&self, voice: &str) -> Option<String> {
        let mut models: BTreeMap<String, (bool, usize)> = BTreeMap::new();
        for worker in self.all() {
            if let (true, Some(described)) = (worker.takes_requests(), worker.stage(Stage::Tts)) {
                let slots = worker.stage_load(Stage::Tts).map_or(0, |load| load.slots);
                let model = models.entry(described.model.clone()).or_default();
                model.0 |= described.voices.iter().any(|known| known.id == voice);
                model.1 += slots;
            }
        }
        models.into_iter().max_by_key(|(name, rank)| (*rank, std::cmp::Reverse(name.clone()))).map(|(name, _)| name)
    }

    /// Every worker that is not lost.
    pub(crate) fn all(&self) -> Vec<Arc<Worker>> {
        self.workers.iter().map(|worker| worker.value().clone()).collect()
    }

    /// The workers that serve a stage.
    pub(crate) fn serving(&self, stage: Stage) -> Vec<Arc<Worker>> {
        self.all().into_iter().filter(|worker| worker.is_usable() && worker.stage(stage).is_some()).collect()
    }

    /// The workers whose description says what a stage does: those with the model that the settings name, or all if
    /// no worker has it.
    pub(crate) fn representative(&self, stage: Stage) -> Vec<Arc<Worker>> {
        let mut serving = self.serving(stage);
        let is_fallback = |worker: &Arc<Worker>| {
            worker.stage(stage).is_some_and(|described| self.models.is_fallback(stage, &described.model))
        };
        if !serving.iter().all(is_fallback) {
            serving.retain(|worker| !is_fallback(worker));
        }
        serving
    }

    /// Whether a worker with this model takes requests of the stage.
    pub(crate) fn takes(&self, stage: Stage, model: &str) -> bool {
        let wanted = WorkerQuery { model: Some(model), ..WorkerQuery::default() };
        self.all().iter().any(|worker| worker.can_serve(stage, &wanted))
    }

    /// The model of a stage that has one, where no setting names it: that of the workers that are used.
    pub(crate) fn model_of_workers(&self, stage: Stage) -> Option<String> {
        let serving = self.serving(stage);
        let described = serving.iter().filter_map(|worker| worker.stage(stage));
        ONE_MODEL.contains(&stage).then(|| described.map(|stage| stage.model.clone()).min())?
    }

    /// Whether a worker may take requests in a moment: NATS has just reported no subscriber, it is new and not
    /// described yet, it drains (what replaces it starts), or it left or was lost within the last two seconds and
    /// `longer`.
    pub(crate) fn may_return(&self, longer: Duration) -> bool {
        let within = MAY_RETURN + longer;
        let is_changing = |worker: &Arc<Worker>| {
            let state = worker.state();
            let is_new = worker.description.get().is_none() && state.refused.is_none();
            is_new || state.missing_since.is_some() || state.advert.is_draining
        };
        self.all().iter().any(is_changing)
            || self.left().iter().any(|(_, at)| at.elapsed() < within)
            || self.lost().iter().any(|lost| lost.at.elapsed() < within)
    }

    /// Ends the workers that are gone. `connected_since`: when the hub's own connection was made.
    pub(crate) fn bury(&self, connected_since: Instant) {
        let now = Instant::now();
        if now.duration_since(connected_since) < AFTER_RECONNECT {
            return;
        }
        for worker in self.all() {
            let Some(why) = worker.state().verdict(now, connected_since) else { continue };
            self.workers.remove(&worker.id);
            tracing::warn!(
                worker = worker.name,
                in_use = worker.in_use.load(Ordering::Relaxed),
                "a worker is lost: {why}"
            );
            let mut lost = self.lost();
            if lost.len() == MAX_LOST {
                lost.pop_front();
            }
            lost.push_back(LostWorker { name: worker.name.clone(), id: worker.id.clone(), at: now, why });
            drop(lost);
            worker.lost.cancel();
            self.notify();
        }
    }

    /// The workers that were lost, oldest first.
    pub(crate) fn lost(&self) -> MutexGuard<'_, VecDeque<LostWorker>> {
        self.lost.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes with each advert, description and loss.
    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }

    fn notify(&self) {
        self.changed.send_modify(|n| *n += 1);
    }
}

impl WorkerState {
    /// The last advert of a stage, and the requests that are there, with those that it does not know yet.
    fn in_flight(&self, stage: Stage) -> Option<(&StageLoad, usize)> {
        let load = self.advert.stages.iter().find(|load| load.stage == stage)?;
        Some((load, load.in_flight + self.opening[stage as usize] + self.accepted[stage as usize]))
    }

    /// Why the worker is lost, if it is.
    fn verdict(&self, now: Instant, connected_since: Instant) -> Option<&'static str> {
        let heard = self.seen.max(connected_since);
        if now.duration_since(heard) > SILENT {
            return Some("it is silent");
        }
        let missing = self.missing_since.filter(|since| *since > connected_since + AFTER_RECONNECT)?;
        (now.duration_since(missing) > GONE).then_some("NATS knows no subscriber")
    }
}

impl Worker {
    fn state(&self) -> MutexGuard<'_, WorkerState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The last advert.
    pub(crate) fn advert(&self) -> WorkerAdvert {
        self.state().advert.clone()
    }

    /// Why it is not used.
    pub(crate) fn refused(&self) -> Option<String> {
        self.state().refused.clone()
    }

    /// Time since it was heard.
    pub(crate) fn silent_for(&self) -> Duration {
        self.state().seen.elapsed()
    }

    /// NATS reports that this worker has no subscription.
    pub(crate) fn missing(&self) {
        self.state().missing_since.get_or_insert_with(Instant::now);
    }

    /// What it serves of a stage, once it has described itself.
    pub(crate) fn stage(&self, stage: Stage) -> Option<&StageDescription> {
        self.description.get()?.stage(stage)
    }

    /// Its stages with their models, for the log.
    pub(crate) fn serves(&self) -> String {
        let stages = self.description.get().map_or(&[][..], |description| &description.stages);
        stages.iter().map(|stage| format!("{}: {}", stage.stage, stage.model)).collect::<Vec<_>>().join(", ")
    }

    fn stage_load(&self, stage: Stage) -> Option<StageLoad> {
        self.state().advert.stages.iter().find(|load| load.stage == stage).cloned()
    }

    fn takes_requests(&self) -> bool {
        self.is_usable() && !self.state().advert.is_draining
    }

    fn is_usable(&self) -> bool {
        self.refused().is_none() && !self.lost.is_cancelled()
    }

    fn can_serve(&self, stage: Stage, wanted: &WorkerQuery<'_>) -> bool {
        let fits = |described: &StageDescription| wanted.model.is_none_or(|model| model == described.model);
        let state = self.state();
        state.refused.is_none()
            && !state.advert.is_draining
            && state.missing_since.is_none()
            && !self.lost.is_cancelled()
            && self.stage(stage).is_some_and(fits)
            && !wanted.except.contains(&self.id)
    }

    /// Estimated wait in milliseconds, and the share of its slots in use, with the requests that its last advert does not
    /// know yet.
    fn load(&self, stage: Stage) -> Option<(f32, f32)> {
        let state = self.state();
        let (load, in_flight) = state.in_flight(stage)?;
        Some(estimate(load, in_flight))
    }

    /// Requests of all hubs that it serves, and those that wait there.
    pub(super) fn requests(&self, stage: Stage) -> Option<(usize, usize)> {
        let state = self.state();
        let (load, in_flight) = state.in_flight(stage)?;
        let served = in_flight.min(load.slots);
        Some((served, in_flight - served))
    }

    /// A request of this hub is on its way, or is served there.
    pub(crate) fn use_for(self: &Arc<Self>, stage: Stage) -> InUse {
        self.state().opening[stage as usize] += 1;
        self.in_use.fetch_add(1, Ordering::Relaxed);
        InUse { worker: self.clone(), stage, is_opening: true }
    }

    /// Attempts of this hub that it serves.
    pub(crate) fn in_use(&self) -> usize {
        self.in_use.load(Ordering::Relaxed)
    }
}

/// Estimated wait in milliseconds of a request that arrives beside `in_flight` others, and the share of slots in use. Of two workers
/// the one with the lower pair is the better one. Public for the simulation of a day's traffic.
pub fn estimate(load: &StageLoad, in_flight: usize) -> (f32, f32) {
    let slots = load.slots.max(1) as f32;
    let ahead = (in_flight as f32 + 1.0 - slots).max(0.0);
    let service_ms = if load.service_ms.is_finite() { load.service_ms.clamp(1.0, 60_000.0) } else { 1.0 };
    (ahead / slots * service_ms, in_flight as f32 / slots)
}

/// An attempt on a worker.
pub(crate) struct InUse {
    worker: Arc<Worker>,
    stage: Stage,
    is_opening: bool,
}

impl InUse {
    /// The worker has accepted the request.
    pub(crate) fn accepted(&mut self) {
        if std::mem::take(&mut self.is_opening) {
            let mut state = self.worker.state();
            state.opening[self.stage as usize] -= 1;
            state.accepted[self.stage as usize] += 1;
        }
    }
}

impl Drop for InUse {
    fn drop(&mut self) {
        if self.is_opening {
            self.worker.state().opening[self.stage as usize] -= 1;
        }
        self.worker.in_use.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The longest advert: the load of each stage, and names.
pub(crate) const MAX_ADVERT_BYTES: usize = 16 * 1024;

const _: () = assert!(MAX_ADVERT_BYTES < frame::MAX_PAYLOAD_BYTES);

#[cfg(test)]
mod tests {
    use super::*;
    use antiphon_engine_api::tts::Voice;

    fn advert(worker: &str, in_flight: usize, slots: usize) -> WorkerAdvert {
        let model = "m".to_owned();
        let fingerprint = "f".to_owned();
        let stage = Stage::Tts;
        let load =
            StageLoad { stage, model, fingerprint, slots, in_flight, service_ms: 100.0, wait_ms: 0.0, rate_hz: 0 };
        WorkerAdvert {
            protocol: PROTOCOL,
            worker: worker.into(),
            name: worker.to_uppercase(),
            build: "1".into(),
            description: "d".into(),
            is_draining: false,
            clock_ms: 0,
            up_ms: 0,
            stages: vec![load],
        }
    }

    fn with_model(worker: &str, model: &str, fingerprint: &str) -> WorkerAdvert {
        let mut advert = advert(worker, 0, 4);
        advert.stages[0].model = model.into();
        advert.stages[0].fingerprint = fingerprint.into();
        advert
    }

    fn description(model: &str, voices: &[&str]) -> Description {
        let voice = |id: &&str| Voice { id: (*id).into(), name: (*id).into(), language: "en".into() };
        Description {
            stages: vec![StageDescription {
                stage: Stage::Tts,
                engine: "e".into(),
                model: model.into(),
                voices: voices.iter().map(voice).collect(),
                marks: Vec::new(),
                translates: false,
                detects_language: false,
                takes_long_stretches: false,
                languages: None,
                span_samples: 0,
            }],
        }
    }

    fn join(directory: &Directory, worker: &str, in_flight: usize, model: &str) -> Arc<Worker> {
        let (noted, joined) = directory.advertised(advert(worker, in_flight, 4), false);
        assert_eq!(noted, AdvertEffect::Undescribed);
        let joined = joined.expect("known");
        directory.described(&joined, description(model, &["anna"]));
        joined
    }

    fn picked(directory: &Directory, wanted: &WorkerQuery<'_>) -> Option<String> {
        directory.pick(Stage::Tts, wanted).map(|worker| worker.id.clone())
    }

    #[tokio::test(start_paused = true)]
    async fn of_two_the_one_with_the_shorter_wait_serves() {
        let directory = Directory::new(StageModels::default());
        assert_eq!(picked(&directory, &WorkerQuery::default()), None);
        join(&directory, "a", 9, "m");
        join(&directory, "b", 2, "m");
        for _ in 0..20 {
            assert_eq!(picked(&directory, &WorkerQuery::default()).as_deref(), Some("b"));
        }
        let requests =
            || ["a", "b"].map(|id| directory.all().iter().find(|worker| worker.id == id)?.requests(Stage::Tts));
        assert_eq!(requests(), [Some((4, 5)), Some((2, 0))], "served, and waiting");
        // Requests that no advert knows yet count.
        let b = directory.pick(Stage::Tts, &WorkerQuery::default()).unwrap();
        let mut uses: Vec<_> = (0..9).map(|_| b.use_for(Stage::Tts)).collect();
        assert_eq!((picked(&directory, &WorkerQuery::default()).as_deref(), b.in_use()), (Some("a"), 9));
        assert_eq!(requests(), [Some((4, 5)), Some((4, 7))]);
        directory.advertised(advert("b", 2, 4), false);
        assert_eq!(picked(&directory, &WorkerQuery::default()).as_deref(), Some("a"), "they are still on their way");
        uses.iter_mut().for_each(InUse::accepted);
        assert_eq!(
            picked(&directory, &WorkerQuery::default()).as_deref(),
            Some("a"),
            "the last advert does not know them"
        );
        directory.advertised(advert("b", 2, 4), false);
        assert_eq!(picked(&directory, &WorkerQuery::default()).as_deref(), Some("b"), "the advert has the figures");
        drop(uses);
        assert_eq!(b.in_use(), 0);
        let except = ["b".to_owned()];
        assert_eq!(
            picked(&directory, &WorkerQuery { except: &except, ..WorkerQuery::default() }).as_deref(),
            Some("a")
        );
    }

    #[tokio::test(start_paused = true)]
    async fn load_spreads_over_idle_workers() {
        let directory = Directory::new(StageModels::default());
        for worker in ["a", "b", "c", "d"] {
            join(&directory, worker, 0, "m");
        }
        let mut uses = Vec::new();
        for _ in 0..64 {
            let worker = directory.pick(Stage::Tts, &WorkerQuery::default()).unwrap();
            uses.push(worker.use_for(Stage::Tts));
        }
        let most = directory.all().iter().map(|worker| worker.in_use()).max().unwrap();
        assert!(most <= 20, "{most} of 64 on one of four");
    }

    #[tokio::test(start_paused = true)]
    async fn who_is_draining_missing_refused_or_undescribed_is_not_picked() {
        let directory = Directory::new(StageModels::default());
        let a = join(&directory, "a", 0, "m");
        a.missing();
        assert_eq!(picked(&directory, &WorkerQuery::default()), None);
        directory.advertised(advert("a", 0, 4), false);
        assert!(picked(&directory, &WorkerQuery::default()).is_some());
        directory.advertised(WorkerAdvert { is_draining: true, ..advert("a", 0, 4) }, false);
        assert_eq!(picked(&directory, &WorkerQuery::default()), None);
        directory.advertised(advert("b", 0, 4), false);
        assert_eq!(picked(&directory, &WorkerQuery::default()), None, "b has not described itself");
        let newer = WorkerAdvert { protocol: Protocol { major: 2, minor: 0 }, ..advert("c", 0, 4) };
        let (noted, c) = directory.advertised(newer, false);
        assert_eq!(noted, AdvertEffect::Ignored);
        assert!(c.unwrap().refused().unwrap().contains("speaks protocol 2.0, this hub 1.0"));
    }

    #[tokio::test(start_paused = true)]
    async fn another_model_under_the_same_name_is_not_used() {
        let directory = Directory::new(StageModels::default());
        join(&directory, "a", 0, "m");
        let (_, b) = directory.advertised(with_model("b", "m", "other"), false);
        let b = b.unwrap();
        directory.described(&b, description("m", &["anna"]));
        assert!(b.refused().unwrap().contains("its files of the model \"m\" are not those of the worker \"A\""));
        let (_, c) = directory.advertised(with_model("c", "n", "other"), false);
        directory.described(&c.unwrap(), description("n", &["bob"]));
        assert_eq!(directory.serving(Stage::Tts).len(), 2);
        assert_eq!(directory.model_of_voice("bob").as_deref(), Some("n"));
        assert_eq!(directory.model_of_voice("anna").as_deref(), Some("m"));
        assert_eq!(directory.model_of_voice("alloy").as_deref(), Some("m"), "the first of equals");
    }

    #[tokio::test(start_paused = true)]
    async fn a_stage_whose_requests_name_no_model_has_one() {
        let of = |worker: &str, stage, model: &str| {
            let mut advert = with_model(worker, model, model);
            advert.stages[0].stage = stage;
            advert
        };
        for stage in [Stage::Stt, Stage::Turn] {
            let directory = Directory::new(StageModels::default());
            let join = |advert: WorkerAdvert| {
                let mut described = description(&advert.stages[0].model, &[]);
                described.stages[0].stage = stage;
                let (_, worker) = directory.advertised(advert, false);
                let worker = worker.expect("known");
                directory.described(&worker, described);
                worker
            };
            let first = join(of("a", stage, "whisper"));
            let other = join(of("b", stage, "openai"));
            let refused = other.refused().expect("it has another model");
            assert!(refused.contains("is \"openai\", that of the worker \"A\" is \"whisper\""), "{refused}");
            assert_eq!(first.refused(), None);
            for _ in 0..8 {
                let picked = directory.pick(stage, &WorkerQuery::default()).expect("a worker");
                assert_eq!(picked.id, "a");
            }
            // The stage changes its model once the others take nothing more.
            directory.advertised(WorkerAdvert { is_draining: true, ..of("a", stage, "whisper") }, false);
            directory.advertised(of("b", stage, "openai"), false);
            assert_eq!(other.refused(), None);
        }
    }

    /// A worker of the stage `stt` joins.
    fn join_stt(directory: &Directory, worker: &str, model: &str) -> Arc<Worker> {
        let mut advert = with_model(worker, model, model);
        advert.stages[0].stage = Stage::Stt;
        let mut described = description(model, &[]);
        described.stages[0].stage = Stage::Stt;
        described.stages[0].languages = Some(vec![model.to_owned()]);
        let (_, joined) = directory.advertised(advert, false);
        let joined = joined.expect("known");
        directory.described(&joined, described);
        joined
    }

    fn of_settings(model: &str, fallback: &str) -> Directory {
        let config = crate::ClusterConfig {
            stt_model: model.into(),
            stt_fallback_model: fallback.into(),
            ..crate::ClusterConfig::default()
        };
        Directory::new(StageModels::of(&config))
    }

    #[tokio::test(start_paused = true)]
    async fn a_setting_decides_which_model_a_stage_has_and_not_the_first_worker() {
        let directory = of_settings("whisper", "");
        let first = join_stt(&directory, "a", "openai");
        let expect = "its model of the stage stt is \"openai\", but cluster.stt_model names \"whisper\": let the worker serve \
                      \"whisper\" (is it pulled there?), or change the setting on hubs and workers";
        assert_eq!(first.refused().as_deref(), Some(expect));
        assert!(directory.serving(Stage::Stt).is_empty());
        assert_eq!(join_stt(&directory, "b", "whisper").refused(), None);
        // It stays so while its adverts go on.
        let mut again = with_model("a", "openai", "openai");
        again.stages[0].stage = Stage::Stt;
        directory.advertised(again, false);
        assert!(first.refused().is_some());
        assert!(directory.models().choices(Stage::Tts, None).contains(&None), "voices name their model");
        assert_eq!(directory.models().choices(Stage::Stt, None), [Some("whisper")]);
    }

    #[tokio::test(start_paused = true)]
    async fn workers_with_the_fallback_model_are_used_and_speak_for_the_stage_only_if_they_are_alone() {
        let directory = of_settings("whisper", "openai");
        assert_eq!(directory.models().choices(Stage::Stt, None), [Some("whisper"), Some("openai")]);
        let named = |workers: Vec<Arc<Worker>>| workers.iter().map(|worker| worker.id.clone()).collect::<Vec<_>>();
        assert_eq!(join_stt(&directory, "a", "openai").refused(), None);
        assert!(!directory.takes(Stage::Stt, "whisper") && directory.takes(Stage::Stt, "openai"));
        assert_eq!(named(directory.representative(Stage::Stt)), ["a"]);
        assert_eq!(join_stt(&directory, "b", "whisper").refused(), None);
        assert!(directory.takes(Stage::Stt, "whisper"));
        assert_eq!(named(directory.representative(Stage::Stt)), ["b"]);
        let refused = join_stt(&directory, "c", "moonshine").refused().expect("it has neither");
        assert!(refused.contains("names \"whisper\", and cluster.stt_fallback_model \"openai\""), "{refused}");
    }

    #[tokio::test(start_paused = true)]
    async fn new_files_are_used_once_the_worker_with_the_old_ones_is_draining() {
        let directory = Directory::new(StageModels::default());
        join(&directory, "a", 0, "m");
        let (_, b) = directory.advertised(with_model("b", "m", "new"), false);
        let b = b.unwrap();
        directory.described(&b, description("m", &["anna"]));
        assert!(b.refused().is_some());
        directory.advertised(WorkerAdvert { is_draining: true, ..advert("a", 0, 4) }, false);
        directory.advertised(with_model("b", "m", "new"), false);
        assert_eq!(b.refused(), None);
        assert_eq!(picked(&directory, &WorkerQuery::default()).as_deref(), Some("b"));
    }

    #[tokio::test(start_paused = true)]
    async fn the_silent_are_lost_after_three_adverts() {
        let directory = Directory::new(StageModels::default());
        let start = Instant::now();
        tokio::time::advance(Duration::from_secs(1)).await;
        let a = join(&directory, "a", 0, "m");
        tokio::time::advance(SILENT).await;
        directory.bury(start);
        assert!(!a.lost.is_cancelled());
        tokio::time::advance(Duration::from_millis(1)).await;
        directory.bury(Instant::now());
        assert!(!a.lost.is_cancelled(), "the hub has just connected again");
        directory.bury(start);
        assert!(a.lost.is_cancelled() && directory.all().is_empty());
        assert_eq!(directory.lost().back().map(|lost| lost.why), Some("it is silent"));
    }

    #[tokio::test(start_paused = true)]
    async fn silence_is_counted_from_the_reconnect() {
        let directory = Directory::new(StageModels::default());
        let a = join(&directory, "a", 0, "m");
        tokio::time::advance(Duration::from_secs(3)).await;
        let connected = Instant::now();
        tokio::time::advance(AFTER_RECONNECT + Duration::from_millis(100)).await;
        directory.bury(connected);
        assert!(!a.lost.is_cancelled(), "it had 600 ms to be heard");
        tokio::time::advance(Duration::from_millis(151)).await;
        directory.bury(connected);
        assert!(a.lost.is_cancelled());
    }

    #[tokio::test(start_paused = true)]
    async fn a_missing_subscriber_counts_twice_without_an_advert_only() {
        let directory = Directory::new(StageModels::default());
        let start = Instant::now();
        tokio::time::advance(Duration::from_secs(1)).await;
        let a = join(&directory, "a", 0, "m");
        a.missing();
        directory.bury(start);
        tokio::time::advance(GONE).await;
        directory.advertised(advert("a", 0, 4), false);
        tokio::time::advance(Duration::from_millis(1)).await;
        directory.bury(start);
        assert!(!a.lost.is_cancelled(), "it was reconnecting");
        a.missing();
        tokio::time::advance(GONE + Duration::from_millis(1)).await;
        directory.bury(start);
        assert!(a.lost.is_cancelled());
    }

    #[tokio::test(start_paused = true)]
    async fn a_worker_that_leaves_is_not_lost() {
        let directory = Directory::new(StageModels::default());
        let a = join(&directory, "a", 0, "m");
        directory.advertised(advert("a", 0, 4), true);
        assert!(a.lost.is_cancelled() && directory.lost().is_empty());
        directory.advertised(WorkerAdvert { is_draining: true, ..advert("a", 0, 4) }, false);
        assert!(directory.all().is_empty(), "an advert that was under way");
    }
}
