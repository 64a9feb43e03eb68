//! The cluster as a hub sees it, for `/api/state` and the dashboard.

use super::directory::Worker;
use super::{Cluster, HUB_SILENT, estimate};
use crate::message::{Stage, clock_ms};
use crate::stage_models::ONE_MODEL;
use serde::Serialize;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use tokio::time::Instant;

/// The cluster as one hub sees it.
#[derive(Clone, Debug, Serialize)]
pub struct Overview {
    /// Whether the hub is connected to NATS.
    pub connected: bool,
    /// For how long it has been, or has not been, in milliseconds.
    pub since_ms: u64,
    /// Name of the NATS server.
    pub server: String,
    /// Its version.
    pub server_version: String,
    /// The hubs, this one first, then by name.
    pub hubs: Vec<HubView>,
    /// The workers by name.
    pub workers: Vec<WorkerView>,
    /// The stages that have one model for all workers, and that model.
    pub stage_models: Vec<StageModelView>,
    /// Workers that were lost since the start, the last one first.
    pub lost: Vec<LostView>,
    /// Requests sent to workers since the start, tries again included.
    pub attempts: u64,
    /// Answers that a worker had no room.
    pub busy: u64,
    /// Requests that continued on another worker.
    pub retried: u64,
    /// Requests that failed because their workers were lost.
    pub failed: u64,
    /// Requests that found no worker or no connection.
    pub away: u64,
    /// Requests under way now.
    pub in_flight: usize,
    /// Messages not sent because there was no connection or no room; what matters of them is sent again.
    pub unsent: u64,
    /// Frames dropped because they were malformed.
    pub malformed: u64,
    /// Frames dropped because they were not awaited any more.
    pub stale: u64,
    /// Frames dropped because they were here already.
    pub duplicate: u64,
    /// Frames dropped because others before them were missing, or without credit; they are sent again.
    pub early: u64,
    /// News not published to other hubs because they were too long.
    pub too_long: u64,
}

/// A hub.
#[derive(Clone, Debug, Serialize)]
pub struct HubView {
    /// Its name.
    pub name: String,
    /// Its incarnation.
    pub id: String,
    /// Version of the program.
    pub build: String,
    /// Whether it is the one that answers.
    pub is_this: bool,
    /// It takes no new sessions.
    pub draining: bool,
    /// Sessions that it serves.
    pub sessions: usize,
    /// At most.
    pub max_sessions: usize,
    /// How long it has run, in milliseconds.
    pub up_ms: u64,
    /// Its clock less this hub's, in milliseconds; as much of it as its last advert is old is error.
    pub clock_offset_ms: i64,
}

/// A worker.
#[derive(Clone, Debug, Serialize)]
pub struct WorkerView {
    /// Its name.
    pub name: String,
    /// Its incarnation.
    pub id: String,
    /// Version of the program.
    pub build: String,
    /// Its protocol.
    pub protocol: String,
    /// It finishes what it has and takes nothing more.
    pub draining: bool,
    /// Why this hub does not use it.
    pub refused: Option<String>,
    /// How long it has run, in milliseconds.
    pub up_ms: u64,
    /// Time since it was heard, in milliseconds.
    pub silent_ms: u64,
    /// Its clock less this hub's, in milliseconds.
    pub clock_offset_ms: i64,
    /// Attempts of this hub that it serves.
    pub in_use: usize,
    /// What it serves.
    pub stages: Vec<StageView>,
}

/// A stage of a worker.
#[derive(Clone, Debug, Serialize)]
pub struct StageView {
    /// The stage.
    pub stage: Stage,
    /// The engine.
    pub engine: String,
    /// The model.
    pub model: String,
    /// It is the fallback model of the stage: it gets the requests that no worker with the stage's own model takes.
    pub is_fallback: bool,
    /// Number of voices.
    pub voices: usize,
    /// Requests served at once.
    pub slots: usize,
    /// Requests accepted and not finished, of all hubs.
    pub in_flight: usize,
    /// Mean time of a request in a slot, in milliseconds.
    pub service_ms: f32,
    /// Estimated wait of a request that arrives now, in milliseconds.
    pub wait_ms: f32,
    /// Rate of its audio in Hz; 0 while it is not known.
    pub rate_hz: u32,
}

/// The model of a stage that has one for all workers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct StageModelView {
    /// The stage.
    pub stage: Stage,
    /// The model.
    pub model: String,
    /// The setting that names it, such as "cluster.stt_model"; `None`: it is that of the first worker.
    pub setting: Option<String>,
    /// The model for requests that no worker with `model` takes.
    pub fallback: Option<String>,
    /// Whether a worker with `model` takes requests now.
    pub is_served: bool,
    /// Whether a worker with `fallback` does.
    pub is_fallback_served: bool,
    /// Requests of this hub that the fallback model took since the start.
    pub fallback_requests: u64,
}

/// A worker that was lost.
#[derive(Clone, Debug, Serialize)]
pub struct LostView {
    /// Its name.
    pub name: String,
    /// Its incarnation.
    pub id: String,
    /// Time since then, in milliseconds.
    pub ago_ms: u64,
    /// How it was noticed.
    pub why: &'static str,
}

impl Cluster {
    /// The cluster now.
    pub fn overview(&self) -> Overview {
        let inner = &self.0;
        let link = inner.link.state();
        let (server, server_version) = inner.link.server();
        let dropped = inner.inboxes.dropped();
        Overview {
            connected: link.is_connected,
            since_ms: ms(link.since),
            server,
            server_version,
            hubs: self.hubs(),
            workers: self.workers(),
            stage_models: self.stage_models(),
            lost: inner
                .directory
                .lost()
                .iter()
                .rev()
                .map(|lost| LostView {
                    name: lost.name.clone(),
                    id: lost.id.clone(),
                    ago_ms: ms(lost.at),
                    why: lost.why,
                })
                .collect(),
            attempts: inner.counters.opened.load(Ordering::Relaxed),
            busy: inner.counters.busy.load(Ordering::Relaxed),
            retried: inner.counters.retried.load(Ordering::Relaxed),
            failed: inner.counters.failed.load(Ordering::Relaxed),
            away: inner.counters.away.load(Ordering::Relaxed),
            in_flight: inner.inboxes.len(),
            unsent: inner.link.n_dropped(),
            malformed: dropped.malformed.load(Ordering::Relaxed),
            stale: dropped.unknown_attempt.load(Ordering::Relaxed),
            duplicate: dropped.duplicate.load(Ordering::Relaxed),
            early: dropped.early.load(Ordering::Relaxed),
            too_long: inner.news.n_too_long(),
        }
    }

    /// Slots of all workers for a stage; 1 at least.
    pub(super) fn slots(&self, stage: Stage) -> usize {
        let serving = self.0.directory.serving(stage);
        let slots = |load: &crate::message::StageLoad| (load.stage == stage).then_some(load.slots);
        serving.iter().map(|worker| worker.advert().stages.iter().find_map(slots).unwrap_or(0)).sum::<usize>().max(1)
    }

    /// The requests of all hubs for a stage: those that are served, and those that wait for a slot.
    pub(super) fn requests(&self, stage: Stage) -> (usize, usize) {
        let of_worker = |worker: &Arc<Worker>| worker.requests(stage).unwrap_or_default();
        let add = |(served, waiting), (more_served, more_waiting)| (served + more_served, waiting + more_waiting);
        self.0.directory.serving(stage).iter().map(of_worker).fold((0, 0), add)
    }

    fn hubs(&self) -> Vec<HubView> {
        let mut hubs: Vec<HubView> = Vec::new();
        for known in &self.0.hubs {
            let (advert, seen) = known.value();
            if seen.elapsed() < HUB_SILENT {
                hubs.push(HubView {
                    name: advert.name.clone(),
                    id: advert.hub.clone(),
                    build: advert.build.clone(),
                    is_this: advert.hub == self.0.hub,
                    draining: advert.is_draining,
                    sessions: advert.sessions,
                    max_sessions: advert.max_sessions,
                    up_ms: advert.up_ms,
                    clock_offset_ms: offset_ms(advert.clock_ms, ms(*seen)),
                });
            }
        }
        hubs.sort_by(|one, other| {
            other.is_this.cmp(&one.is_this).then(one.name.cmp(&other.name)).then(one.id.cmp(&other.id))
        });
        hubs
    }

    fn stage_models(&self) -> Vec<StageModelView> {
        let directory = &self.0.directory;
        let view = |stage: Stage| {
            let named = directory.models().of_stage(stage);
            let model = named.map(|named| named.model.clone()).or_else(|| directory.model_of_workers(stage))?;
            let fallback = named.and_then(|named| named.fallback.clone());
            Some(StageModelView {
                stage,
                setting: named.map(|named| format!("cluster.{}", named.setting)),
                is_served: directory.takes(stage, &model),
                is_fallback_served: fallback.as_ref().is_some_and(|fallback| directory.takes(stage, fallback)),
                fallback_requests: self.0.fallback_models.requests(stage),
                model,
                fallback,
            })
        };
        ONE_MODEL.into_iter().filter_map(view).collect()
    }

    fn workers(&self) -> Vec<WorkerView> {
        let mut workers: Vec<WorkerView> = Vec::new();
        for worker in self.0.directory.all() {
            let advert = worker.advert();
            let silent = worker.silent_for();
            let silent_ms = u64::try_from(silent.as_millis()).unwrap_or(u64::MAX);
            let stage = |load: &crate::message::StageLoad| {
                let described = worker.stage(load.stage);
                StageView {
                    stage: load.stage,
                    engine: described.map(|stage| stage.engine.clone()).unwrap_or_default(),
                    model: described.map(|stage| stage.model.clone()).unwrap_or_default(),
                    is_fallback: self.0.directory.models().is_fallback(load.stage, &load.model),
                    voices: described.map_or(0, |stage| stage.voices.len()),
                    slots: load.slots,
                    in_flight: load.in_flight,
                    service_ms: load.service_ms,
                    wait_ms: estimate(load, load.in_flight).0,
                    rate_hz: load.rate_hz,
                }
            };
            workers.push(WorkerView {
                name: worker.name.clone(),
                id: worker.id.clone(),
                build: worker.build.clone(),
                protocol: worker.protocol.to_string(),
                draining: advert.is_draining,
                refused: worker.refused(),
                up_ms: advert.up_ms,
                silent_ms,
                clock_offset_ms: offset_ms(advert.clock_ms, silent_ms),
                in_use: worker.in_use(),
                stages: advert.stages.iter().map(stage).collect(),
            });
        }
        workers.sort_by(|one, other| one.name.cmp(&other.name).then(one.id.cmp(&other.id)));
        workers
    }
}

fn ms(since: Instant) -> u64 {
    u64::try_from(since.elapsed().as_millis()).unwrap_or(u64::MAX)
}

/// Another clock less this one: `theirs` was read `age_ms` ago.
fn offset_ms(theirs: u64, age_ms: u64) -> i64 {
    let own = clock_ms().saturating_sub(age_ms);
    i64::try_from(i128::from(theirs) - i128::from(own)).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clocks_that_differ_are_shown_and_nothing_else_depends_on_them() {
        let ahead = offset_ms(clock_ms() + 300_000, 200);
        assert!((300_100..=300_300).contains(&ahead), "{ahead}");
        assert!(offset_ms(0, 0) < -1_000_000_000, "a clock that was never set");
        assert_eq!(offset_ms(u64::MAX, 0), i64::MAX);
    }
}
