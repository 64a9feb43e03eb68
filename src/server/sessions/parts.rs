//! What sessions have in common once the server starts: the engines of new ones, the places, the load, and those that
//! are open.
//!
//! The handlers of this room and of those above use it.

use super::handover::Handover;
use super::load::Load;
use super::models::Models;
use super::reservations::{ReservationError, Reservations, SessionReservation};
use super::resume::Resumables;
use crate::assembly::{EngineInUse, EngineManager};
use crate::config::Config;
use crate::server::access::AccessParts;
use crate::server::edge::EdgeParts;
use crate::server::edge::client::Client;
use antiphon_cluster::{Cluster, JetStream, Overview, SharedSessions};
use antiphon_engine_api::Engines;
use antiphon_engine_api::mcp::Mcp;
use antiphon_protocol::{Dialect, UnknownFields};
use antiphon_session::{Leave, SessionConfig, Setup, TurnHistory};
use antiphon_telemetry::Metrics;
use antiphon_types::sealed::Sealing;
use antiphon_types::{BrownoutLevel, KeyId, SessionId};
use arc_swap::ArcSwap;
use dashmap::DashMap;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// Clients concurrently rejected after the upgrade because of a wrong key; beyond it, clients are rejected before the
/// upgrade.
const MAX_TURNED_AWAY: usize = 64;

/// Time for closing handshakes and cancelled tasks after the drain time has elapsed.
pub(in crate::server) const CLOSE_GRACE: Duration = Duration::from_secs(2);

/// What [`SessionParts`] are made of, beside the parts below.
pub(in crate::server) struct SessionStart {
    pub(in crate::server) config: Config,
    pub(in crate::server) engines: Engines,
    pub(in crate::server) metrics: Metrics,
    /// Reloads engines and reports which serve; `None`: the engines are fixed and no model can be pulled.
    pub(in crate::server) manager: Option<(Arc<EngineManager>, Vec<EngineInUse>)>,
    /// Encrypts what is written to the disk about sessions.
    pub(in crate::server) sealing: Option<Arc<dyn Sealing>>,
    /// Words the question by which another hub is asked for the session of this key.
    pub(in crate::server) release_question: fn(&str) -> Vec<u8>,
}

/// The part of sessions. It is complete when it is made.
pub(in crate::server) struct SessionParts {
    pub(in crate::server) edge: Arc<EdgeParts>,
    pub(in crate::server) access: Arc<AccessParts>,
    /// The setup at startup; [`SessionParts::setup()`] returns the current one.
    pub(in crate::server) setup: Arc<Setup>,
    serving: ArcSwap<Setup>,
    pub(in crate::server) models: Models,
    /// The live sessions, each with its transport.
    pub(in crate::server) live: DashMap<SessionId, &'static str>,
    pub(in crate::server) resumables: Resumables,
    /// Sessions that other hubs may resume; `None` without `cluster.jetstream`.
    pub(in crate::server) handover: Option<Arc<Handover>>,
    pub(in crate::server) load: Arc<Load>,
    /// `slo.smaller_engines`.
    has_smaller_engines: bool,
    dialect: Dialect,
    reservations: Reservations,
    /// Open connections of sessions.
    connections: Arc<AtomicUsize>,
    /// Permits for rejections after the upgrade.
    turning_away: Arc<Semaphore>,
}

/// How clients' JSON is parsed.
pub(in crate::server) fn dialect_of(config: &SessionConfig) -> Dialect {
    let unknown = if config.refuse_unknown_fields { UnknownFields::Refuse } else { UnknownFields::Ignore };
    Dialect { unknown, beta: false }
}

impl SessionParts {
    pub(in crate::server) fn new(access: Arc<AccessParts>, start: SessionStart) -> Self {
        let SessionStart { config, engines, metrics, manager, sealing, release_question } = start;
        let (manager, served) = manager.map_or((None, Vec::new()), |(manager, served)| (Some(manager), served));
        let mcp: Arc<dyn Mcp> = Arc::new(antiphon_engines::mcp::http::Http::new(&config.mcp));
        let turn_history = TurnHistory::new(config.server.turns_kept, config.server.keep_transcripts, engines.names());
        let has_smaller_engines = config.slo.smaller_engines;
        let load = Arc::new(Load::new(config.slo));
        let dialect = dialect_of(&config.session);
        let setup = Setup {
            sealing,
            brownout: load.brownout(),
            turn_history: Arc::new(turn_history),
            turn: config.turn,
            speculation: config.speculation,
            session: config.session,
            voice: config.tts.first_voice(engines.tts.as_ref()),
            speed: config.tts.speed,
            engines,
            instructions: config.llm.system_prompt,
            model: "antiphon".into(),
            language_voices: Arc::new(config.tts.language_voices.clone()),
            language: config
                .stt
                .language_code()
                .or_else(|| Some(config.stt.language).filter(|given| !given.is_empty())),
            stt_timeout: Duration::from_millis(config.stt.timeout_ms),
            mcp,
            mcp_config: config.mcp,
            hub_servers: Vec::new(),
            metrics,
            tasks: TaskTracker::new(),
            drain: CancellationToken::new(),
        };
        let setup = Arc::new(setup);
        let membership = manager.as_ref().and_then(|manager| manager.membership());
        let handover = membership.and_then(|membership| {
            let cluster = membership.cluster().clone();
            let jetstream = membership.jetstream()?.clone();
            let lives = 60 * u64::from(setup.session.max_minutes) + u64::from(setup.session.resume_seconds);
            let sessions = SharedSessions::new(cluster.clone(), jetstream);
            let ttl = Duration::from_secs(lives);
            Some(Handover::new(cluster, sessions, ttl, setup.tasks.clone(), release_question))
        });
        Self {
            edge: access.edge.clone(),
            reservations: Reservations::new(access.clone()),
            access,
            serving: ArcSwap::new(setup.clone()),
            setup,
            models: Models::new(manager, served),
            live: DashMap::new(),
            resumables: Resumables::new(handover.is_some()),
            handover,
            load,
            has_smaller_engines,
            dialect,
            connections: Arc::default(),
            turning_away: Arc::new(Semaphore::new(MAX_TURNED_AWAY)),
        }
    }

    /// The setup of a session that starts now.
    pub(in crate::server) fn setup(&self) -> Arc<Setup> {
        self.serving.load_full()
    }

    /// The same for a session that may get smaller engines, because the server is overloaded.
    pub(in crate::server) fn setup_of_session(&self) -> Arc<Setup> {
        let setup = self.setup();
        if !self.has_smaller_engines || !self.load.brownout().is_at_least(BrownoutLevel::SmallerEngines) {
            return setup;
        }
        Arc::new(Setup { engines: setup.engines.smaller(), ..Setup::clone(&setup) })
    }

    /// Sets the engines of new sessions; existing sessions keep theirs.
    pub(in crate::server) fn serve_with(&self, engines: Engines) {
        self.setup.turn_history.engines_are(engines.names());
        let setup = Setup { engines, ..Setup::clone(&self.setup()) };
        self.serving.store(Arc::new(setup));
        self.load.engines_changed();
    }

    /// How clients' JSON is parsed.
    pub(in crate::server) fn dialect(&self) -> Dialect {
        self.dialect
    }

    /// Reserves a session slot for this key and client, unless a limit is reached, no worker could serve it, or the server is
    /// stopping.
    pub(super) fn reserve(&self, owner: Option<KeyId>, client: Client) -> Result<SessionReservation, ReservationError> {
        let mut reserved = self.reserve_running(owner, client)?;
        // Last, because it counts those that it admits.
        let load = self.load.admit(self.reservations.own_sessions(owner, client));
        reserved._load = Some(load.map_err(ReservationError::Overloaded)?);
        Ok(reserved)
    }

    /// The same for a session that comes from another hub: running conversations are not refused because of the load.
    pub(super) fn reserve_running(
        &self,
        owner: Option<KeyId>,
        client: Client,
    ) -> Result<SessionReservation, ReservationError> {
        if self.setup.drain.is_cancelled() {
            return Err(ReservationError::Server);
        }
        if self.lacks().is_some() {
            return Err(ReservationError::Engines);
        }
        self.reservations.reserve(owner, client)
    }

    /// The number of sessions by transport.
    pub(in crate::server) fn transports(&self) -> BTreeMap<&'static str, usize> {
        let mut transports = BTreeMap::new();
        self.live.iter().for_each(|session| *transports.entry(*session.value()).or_default() += 1);
        transports
    }

    /// Number of sessions that belong to this key.
    pub(in crate::server) fn of_key(&self, owner: KeyId) -> usize {
        self.reservations.of_key(owner)
    }

    /// A permit to report a wrong key after the upgrade; `None` if all are in use.
    pub(super) fn turn_away(&self) -> Option<OwnedSemaphorePermit> {
        self.turning_away.clone().try_acquire_owned().ok()
    }

    /// Places of `server.max_sessions` that sessions take.
    pub(in crate::server) fn places_taken(&self) -> usize {
        self.reservations.taken()
    }

    /// Why there is no slot for a session limited by neither key nor address, in words for the operator. `None`: there is one.
    pub(in crate::server) fn lacks_room(&self) -> Option<String> {
        if self.setup.drain.is_cancelled() {
            return Some("it is draining".into());
        }
        if self.load.brownout().is_at_least(BrownoutLevel::NoSessions) {
            return Some("it is overloaded: new sessions are refused (brownout level no_sessions)".into());
        }
        let n = self.edge.config.max_sessions;
        self.reservations
            .are_all_taken()
            .then(|| format!("it is full: all {n} sessions of server.max_sessions are open"))
    }

    /// Why no session would be served now, in words for the operator: the workers of a stage are gone. `None` if they are not,
    /// or if there is no cluster.
    pub(in crate::server) fn lacks(&self) -> Option<String> {
        self.models.manager()?.membership()?.lacks()
    }

    /// The cluster now; `None` if there is none.
    pub(in crate::server) fn cluster(&self) -> Option<Overview> {
        Some(self.models.manager()?.membership()?.overview())
    }

    /// The cluster, to ask its other hubs; `None` if there is none.
    pub(in crate::server) fn hubs(&self) -> Option<Cluster> {
        Some(self.models.manager()?.membership()?.cluster().clone())
    }

    /// What the hubs of the cluster share; `None` without `cluster.jetstream`.
    pub(in crate::server) fn jetstream(&self) -> Option<JetStream> {
        self.models.manager()?.membership()?.jetstream().cloned()
    }

    /// Tells the cluster how many sessions there are, from now on.
    pub(in crate::server) fn count_for_cluster(self: &Arc<Self>) {
        if let Some(membership) = self.models.manager().as_ref().and_then(|manager| manager.membership()) {
            let sessions = Arc::downgrade(self);
            membership.count_sessions(move || match sessions.upgrade() {
                Some(sessions) => (sessions.live.len(), sessions.setup.drain.is_cancelled()),
                None => (0, true),
            });
        }
    }

    /// Counts a session's connection until the guard is dropped.
    pub(in crate::server) fn connected(&self) -> ConnectionCount {
        self.connections.fetch_add(1, Ordering::Relaxed);
        ConnectionCount(self.connections.clone())
    }

    /// Number of open session connections.
    pub(in crate::server) fn connections(&self) -> usize {
        self.connections.load(Ordering::Relaxed)
    }

    /// Samples the load until `stop` is cancelled.
    pub(in crate::server) async fn sample_load(&self, stop: CancellationToken) {
        self.load.watch(|| self.setup(), || self.live.len(), stop).await;
    }

    pub(in crate::server) fn drain_time(&self) -> Duration {
        Duration::from_secs(u64::from(self.edge.config.drain_seconds))
    }

    /// Waits for the sessions to end, at most [`SessionParts::drain_time`], then cancels the rest.
    pub(in crate::server) async fn drain(&self) {
        let tasks = &self.setup.tasks;
        self.setup.drain.cancel();
        tasks.close();
        tracing::info!(sessions = self.live.len(), "draining");
        let drained = async {
            let leave = |leave| self.handover.iter().for_each(|handover| handover.leave_all(leave));
            leave(Leave::WhenSilent);
            if tokio::time::timeout(self.drain_time() / 2, tasks.wait()).await.is_err() {
                leave(Leave::WhenPossible);
                tasks.wait().await;
            }
        };
        if tokio::time::timeout(self.drain_time(), drained).await.is_err() {
            tracing::info!(sessions = self.live.len(), "the drain time has elapsed");
            self.edge.kill.cancel();
            let _ = tokio::time::timeout(CLOSE_GRACE, tasks.wait()).await;
        }
    }
}

/// An open connection; dropping it decrements the count.
pub(in crate::server) struct ConnectionCount(Arc<AtomicUsize>);

impl Drop for ConnectionCount {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
impl SessionParts {
    /// Sessions of a hub with these engines, which no client reaches.
    pub(in crate::server) fn for_tests(
        config: Config,
        keys: crate::server::access::keys::Keys,
        engines: Engines,
    ) -> Arc<Self> {
        use crate::server::access::audit::Audit;
        use crate::server::access::ephemeral_keys::EphemeralKeys;
        let edge = Arc::new(EdgeParts::new(config.server.clone(), None));
        let ephemeral_keys = EphemeralKeys::new(dialect_of(&config.session), None);
        let access = AccessParts::new(edge, keys, config.limits.clone(), ephemeral_keys, Audit::default());
        let metrics = Metrics::new();
        let release_question = |_: &str| Vec::new();
        let start = SessionStart { config, engines, metrics, manager: None, sealing: None, release_question };
        Arc::new(Self::new(Arc::new(access), start))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::access::keys::Keys;
    use antiphon_engine_api::fakes::llm::FakeLlm;
    use antiphon_engine_api::fakes::stt::FakeStt;
    use antiphon_engine_api::fakes::tts::FakeTts;
    use antiphon_engine_api::fakes::vad::FakeVad;

    fn sessions(config: Config, keys: Keys) -> Arc<SessionParts> {
        let stt = FakeStt::default();
        let llm = FakeLlm::default();
        let tts = FakeTts::default();
        let engines = Engines {
            vad: Arc::new(FakeVad),
            turn: None,
            speaker: None,
            stt: Arc::new(stt),
            llm: Arc::new(llm),
            tts: Arc::new(tts),
        };
        SessionParts::for_tests(config, keys, engines)
    }

    #[tokio::test(start_paused = true)]
    async fn sessions_that_begin_and_end_refuse_none_and_one_client_leaves_room_for_others() {
        let keys = Keys::of(&["greedy", "modest"]);
        let id = |key: &str| keys.grant(key).map(|grant| grant.id);
        let greedy = id("greedy");
        let modest = id("modest");
        let mut config = Config::default();
        config.server.max_sessions = 100_000;
        let sessions = sessions(config, keys);
        let client = Client::direct([192, 0, 2, 1].into(), true);
        for n in 0..10_000 {
            let place = sessions.reserve(greedy, client);
            assert!(place.is_ok(), "connect {n}: {:?}", place.err());
        }
        let held: Vec<_> = (0..100_000).map_while(|_| sessions.reserve(greedy, client).ok()).collect();
        assert!(!held.is_empty() && sessions.load.report().headroom_sessions >= held.len() - 1, "{}", held.len());
        assert!(sessions.reserve(modest, Client::direct([192, 0, 2, 2].into(), true)).is_ok());
        assert!(matches!(sessions.reserve(greedy, client), Err(ReservationError::Overloaded(_))));
        drop(held);
        assert!(sessions.reserve(greedy, client).is_ok());
    }
}
