//! A hub's membership in a cluster: the stages that it leaves to workers, and the engines that stand in for theirs.
//!
//! `cli` joins once, before the engines are loaded; [`EngineManager`](super::EngineManager) puts the engines into
//! sessions, and `server` shows the state and refuses sessions that no engine could serve. It exists only where
//! `cluster.servers` is set.

use super::choose::name_of;
use crate::config::Config;
use antiphon_cluster::{Cluster, ClusterError, JetStream, Overview, Sessions, Stage};
use antiphon_engine_api::stt::Stt;
use antiphon_engine_api::tts::Tts;
use antiphon_engine_api::turn::TurnModel;
use antiphon_engines::fallback::{with_own_stt, with_own_tts, with_own_turn};
use std::sync::{Arc, OnceLock};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// Engine name of a stage that workers serve.
pub const CLUSTER: &str = "cluster";

/// See the module.
pub struct Membership {
    cluster: Cluster,
    jetstream: Option<JetStream>,
    stages: Vec<Stage>,
    falls_back: bool,
    stt: Arc<dyn Stt>,
    tts: Arc<dyn Tts>,
    turn: Arc<dyn TurnModel>,
    sessions: Arc<OnceLock<Sessions>>,
    max_sessions: usize,
    tasks: TaskTracker,
    left: CancellationToken,
}

impl Membership {
    /// Connects to NATS, 5 s at most, and waits for no worker. The cluster's tasks are its own, because sessions use the
    /// workers until the end of the drain.
    ///
    /// # Errors
    /// A setting is wrong, or NATS cannot be used: see [`ClusterError`].
    pub async fn join(config: &Config) -> Result<Self, ClusterError> {
        let stages = config.cluster.stages()?;
        let tasks = TaskTracker::new();
        let left = CancellationToken::new();
        let sessions: Arc<OnceLock<Sessions>> = Arc::default();
        let counted = sessions.clone();
        let max_sessions = config.server.max_sessions;
        let count: Sessions = Arc::new(move || counted.get().map_or((0, max_sessions, false), |count| count()));
        let build = env!("CARGO_PKG_VERSION");
        if config.cluster.jetstream {
            config.cluster.sealing_key()?;
        }
        let cluster = Cluster::join(&config.cluster, build, count, &tasks, left.clone()).await?;
        tasks.close();
        let jetstream = match config.cluster.jetstream {
            true => match JetStream::open(&config.cluster, audio_bytes(config.speech.jobs_max_mib)).await {
                Ok(jetstream) => Some(jetstream),
                Err(error) => {
                    cluster.leave().await;
                    left.cancel();
                    tasks.wait().await;
                    return Err(error);
                }
            },
            false => None,
        };
        let stt = cluster.stt();
        let tts = cluster.tts();
        let turn = cluster.turn();
        let falls_back = config.cluster.fallback;
        Ok(Self { cluster, jetstream, stages, falls_back, stt, tts, turn, sessions, max_sessions, tasks, left })
    }

    /// Waits until each stage has a worker; not at all where the hub's own engines stand in. Cancelling is safe.
    pub async fn ready(&self) {
        if !self.falls_back {
            self.cluster.ready(&self.stages).await;
        }
    }

    /// Says how many sessions the hub serves, which its adverts repeat: now, and whether it is draining. Only the first call
    /// counts.
    pub fn count_sessions(&self, count: impl Fn() -> (usize, bool) + Send + Sync + 'static) {
        let max_sessions = self.max_sessions;
        let counted: Sessions = Arc::new(move || {
            let (sessions, is_draining) = count();
            (sessions, max_sessions, is_draining)
        });
        let _ = self.sessions.set(counted);
    }

    /// Why the cluster cannot serve new sessions now, in words for its operator; `None` if it can, or if the hub's own engines
    /// stand in.
    pub fn lacks(&self) -> Option<String> {
        if self.falls_back {
            return None;
        }
        // A pause without an answer of the turn model goes by the other hints.
        let needed: Vec<Stage> = self.stages.iter().copied().filter(|stage| *stage != Stage::Turn).collect();
        self.cluster.lacks(&needed)
    }

    /// The cluster, to ask other hubs.
    pub fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    /// What the hubs share; `None` without `cluster.jetstream`.
    pub fn jetstream(&self) -> Option<&JetStream> {
        self.jetstream.as_ref()
    }

    /// The cluster now.
    pub fn overview(&self) -> Overview {
        self.cluster.overview()
    }

    /// Leaves the cluster; what is under way on workers ends. Returns once the tasks have ended.
    pub async fn leave(&self) {
        if let Some(jetstream) = &self.jetstream {
            jetstream.leave().await;
        }
        self.cluster.leave().await;
        self.left.cancel();
        self.tasks.wait().await;
    }

    /// Whether workers serve the stage.
    pub(super) fn serves(&self, stage: antiphon_registry::Stage) -> bool {
        self.stages.iter().any(|served| served.name() == name_of(stage))
    }

    /// Whether the hub has engines of its own for the workers' stages.
    pub fn falls_back(&self) -> bool {
        self.falls_back
    }

    pub(super) fn stt(&self, local: Option<Arc<dyn Stt>>) -> Arc<dyn Stt> {
        local.map_or_else(|| self.stt.clone(), |local| with_own_stt(self.stt.clone(), local))
    }

    pub(super) fn tts(&self, local: Option<Arc<dyn Tts>>) -> Arc<dyn Tts> {
        local.map_or_else(|| self.tts.clone(), |local| with_own_tts(self.tts.clone(), local))
    }

    pub(super) fn turn(&self, local: Option<Arc<dyn TurnModel>>) -> Arc<dyn TurnModel> {
        local.map_or_else(|| self.turn.clone(), |local| with_own_turn(self.turn.clone(), local))
    }
}

/// Bytes of the store of sound: a job's samples and its file are there at once while it ends, and large snapshots of sessions.
fn audio_bytes(jobs_max_mib: u32) -> u64 {
    (2 * u64::from(jobs_max_mib) + 256) << 20
}
