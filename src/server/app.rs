//! State shared by the server's handlers.

use super::LAST_WORDS;
use crate::server::access::live_keys::Access;
use crate::server::access::attempts::Attempts;
use crate::server::access::audit::Audit;
use crate::server::edge::client::{Client, Proxies};
use crate::server::api::gpu::Gpus;
use crate::server::sessions::handover::Handover;
use crate::server::edge::headers::SecurityHeaders;
use crate::server::access::keys::Keys;
use crate::server::access::limits::Limits;
use crate::server::sessions::load::{Load, LoadPlace};
use crate::server::api::models::Models;
use crate::server::edge::process::{Process, max_descriptors};
use crate::server::sessions::resume::Resumables;
use crate::server::access::scopes::Scope;
use crate::server::access::ephemeral_keys::Secrets;
use crate::server::access::security::Security;
use crate::server::access::holder_counts::{Holder, Share as Held, Shares};
use super::speech::Speech;
use crate::server::edge::tls::Tls;
use super::transport::calls::{Calls, Ongoing};
use super::transport::telephony::Telephony;
use super::transport::webrtc::Webrtc;
use crate::server::api::turns::{MAX_LISTENERS, Readers};
use crate::server::edge::websocket::MAX_MESSAGE_BYTES;
use crate::assembly::{EngineManager, Served};
use crate::config::{Config, ServerConfig};
use crate::load::Overloaded;
use antiphon_cluster::jetstream::Bucket;
use antiphon_cluster::{Cluster, JetStream, Overview, SharedSessions};
use antiphon_engine_api::Engines;
use antiphon_engine_api::mcp::Mcp;
use antiphon_protocol::{Dialect, UnknownFields};
use antiphon_session::{Leave, Setup, Share, TurnHistory};
use antiphon_telemetry::Metrics;
use antiphon_types::sealed::Sealing;
use antiphon_types::{BrownoutLevel, KeyId, SessionId};
use arc_swap::ArcSwap;
use dashmap::DashMap;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// Everything a server needs to start with loaded engines.
pub struct Parts {
    /// The configuration.
    pub config: Config,
    /// The loaded engines.
    pub engines: Engines,
    /// The metrics registry.
    pub metrics: Metrics,
    /// The accepted API keys.
    pub keys: Keys,
    /// `None`: plain HTTP.
    pub tls: Option<Tls>,
    /// Reloads engines and reports which serve; `None`: the engines are fixed and no model can be pulled.
    pub manager: Option<(Arc<EngineManager>, Vec<Served>)>,
}

/// The part of [`Parts`] that is available once the engines are loaded.
pub struct Loaded {
    /// The engines.
    pub engines: Engines,
    /// See [`Parts::manager`].
    pub manager: Option<(Arc<EngineManager>, Vec<Served>)>,
}

/// The part of [`Parts`] that is available before the engines are loaded.
pub struct Startup {
    /// The configuration.
    pub config: Config,
    /// The metrics registry.
    pub metrics: Metrics,
    /// The accepted API keys.
    pub keys: Keys,
    /// `None`: plain HTTP.
    pub tls: Option<Tls>,
}

/// Inbound messages of all clients that await processing. Above this limit, sockets are not read.
const INBOUND_BUDGET_BYTES: usize = 256 * 1024 * 1024;

/// The part of the inbound budget available to incomplete messages. Clients that never complete theirs leave the other
/// half to complete messages.
const UNFINISHED_BUDGET_BYTES: usize = INBOUND_BUDGET_BYTES / 2;

/// Inbound messages of one client that await processing: two of the maximum size. Above this limit, that client's
/// socket is not read; other clients are unaffected.
pub(super) const SESSION_BUDGET_BYTES: usize = 2 * MAX_MESSAGE_BYTES;

/// Unit of the inbound budgets, in bytes.
pub(super) const BUDGET_UNIT: usize = 1024;

/// Descriptors that one session may need: its socket, and one for a request to each stage.
const DESCRIPTORS_PER_SESSION: usize = 4;

/// Clients concurrently rejected after the upgrade because of a wrong key; beyond it, clients are rejected before the
/// upgrade.
const MAX_TURNED_AWAY: usize = 64;

/// Short-lived keys that are being looked for at other hubs' store; beyond it, an unknown key is a wrong one.
const MAX_FETCHING: usize = 256;

/// The handlers' state.
pub(super) struct App {
    pub(super) config: ServerConfig,
    /// The setup at startup; [`App::setup()`] returns the current one.
    pub(super) setup: Arc<Setup>,
    serving: ArcSwap<Setup>,
    pub(super) models: Models,
    /// `None`: it is off.
    pub(super) webrtc: Option<Arc<Webrtc>>,
    pub(super) telephony: Telephony,
    /// Calls that clients may join.
    pub(super) calls: Arc<Calls>,
    /// The live sessions, each with its transport.
    pub(super) sessions: DashMap<SessionId, &'static str>,
    pub(super) access: Access,
    /// Rate limits and usage.
    pub(super) limits: Limits,
    pub(super) attempts: Attempts,
    pub(super) security: Security,
    /// The certificate for new handshakes; `None`: plain HTTP.
    pub(super) tls: Option<Arc<ArcSwap<Tls>>>,
    pub(super) proxies: Proxies,
    pub(super) secrets: Secrets,
    pub(super) resumables: Resumables,
    /// Sessions that other hubs may resume; `None` without `cluster.jetstream`.
    pub(super) handover: Option<Arc<Handover>>,
    /// Permits to look for short-lived keys of other hubs.
    pub(super) fetching: Semaphore,
    /// Permits for live listeners of the turn history and of pulls.
    pub(super) listeners: Arc<Semaphore>,
    pub(super) listeners_by_holder: Shares<Holder>,
    pub(super) readers: Readers,
    pub(super) process: Process,
    pub(super) load: Arc<Load>,
    /// `slo.smaller_engines`.
    has_smaller_engines: bool,
    pub(super) headers: SecurityHeaders,
    pub(super) gpus: Gpus,
    pub(super) speech: Speech,
    connections: AtomicUsize,
    permits: Arc<Semaphore>,
    by_key: Shares<KeyId>,
    by_address: Shares<IpAddr>,
    /// Permits for rejections after the upgrade.
    turning_away: Arc<Semaphore>,
    budget: Arc<Semaphore>,
    unfinished: Arc<Semaphore>,
    /// Cancelled when the drain time has elapsed.
    pub(super) kill: CancellationToken,
}

impl App {
    /// `sealing` encrypts what is written to the disk about sessions and jobs.
    pub(super) fn new(parts: Parts, sealing: Option<Arc<dyn Sealing>>) -> Self {
        let Parts { mut config, engines, metrics, keys, tls, manager } = parts;
        config.server.max_sessions = max_sessions(&config.server);
        let (manager, served) = manager.map_or((None, Vec::new()), |(manager, served)| (Some(manager), served));
        let mcp: Arc<dyn Mcp> = Arc::new(antiphon_engines::mcp::http::Http::new(&config.mcp));
        let turn_history = TurnHistory::new(config.server.turns_kept, config.server.keep_transcripts, engines.names());
        let load = Arc::new(Load::new(config.slo.clone()));
        let mut speech = Speech::new(&config, load.brownout());
        speech.jobs.seal_with(sealing.clone());
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
            Some(Handover::new(cluster, sessions, Duration::from_secs(lives), setup.tasks.clone()))
        });
        Self {
            handover,
            fetching: Semaphore::new(MAX_FETCHING),
            models: Models::new(manager, served),
            webrtc: None,
            telephony: Telephony::new(&config.telephony),
            serving: ArcSwap::new(setup.clone()),
            listeners: Arc::new(Semaphore::new(MAX_LISTENERS)),
            listeners_by_holder: Shares::default(),
            readers: Readers::default(),
            process: Process::new(),
            load,
            has_smaller_engines: config.slo.smaller_engines,
            headers: SecurityHeaders::new(&config.server),
            gpus: Gpus::default(),
            speech,
            connections: AtomicUsize::new(0),
            permits: Arc::new(Semaphore::new(config.server.max_sessions)),
            budget: Arc::new(Semaphore::new(INBOUND_BUDGET_BYTES / BUDGET_UNIT)),
            unfinished: Arc::new(Semaphore::new(UNFINISHED_BUDGET_BYTES / BUDGET_UNIT)),
            turning_away: Arc::new(Semaphore::new(MAX_TURNED_AWAY)),
            limits: Limits::new(config.limits, &keys),
            access: Access::new(keys),
            attempts: Attempts::default(),
            security: Security::new(Audit::default()),
            tls: tls.map(|tls| Arc::new(ArcSwap::from_pointee(tls))),
            proxies: Proxies::new(&config.server),
            by_key: Shares::default(),
            by_address: Shares::default(),
            secrets: Secrets::default(),
            resumables: Resumables::default(),
            config: config.server,
            setup,
            calls: Arc::default(),
            sessions: DashMap::new(),
            kill: CancellationToken::new(),
        }
    }

    /// The setup of a session that starts now.
    pub(super) fn setup(&self) -> Arc<Setup> {
        self.serving.load_full()
    }

    /// The same for a session that may get smaller engines, because the server is overloaded.
    pub(super) fn setup_of_session(&self) -> Arc<Setup> {
        let setup = self.setup();
        if !self.has_smaller_engines || !self.load.brownout().is_at_least(BrownoutLevel::SmallerEngines) {
            return setup;
        }
        Arc::new(Setup { engines: setup.engines.smaller(), ..Setup::clone(&setup) })
    }

    /// Sets the engines of new sessions; existing sessions keep theirs.
    pub(super) fn serve_with(&self, engines: Engines) {
        self.setup.turn_history.engines_are(engines.names());
        let setup = Setup { engines, ..Setup::clone(&self.setup()) };
        self.serving.store(Arc::new(setup));
        self.load.engines_changed();
    }

    /// How clients' JSON is parsed.
    pub(super) fn dialect(&self) -> Dialect {
        let strict = self.setup.session.refuse_unknown_fields;
        Dialect { unknown: if strict { UnknownFields::Refuse } else { UnknownFields::Ignore }, beta: false }
    }

    /// Reserves a session slot for this key and client, unless a limit is reached, no worker could serve it, or the server is
    /// stopping.
    pub(super) fn admit(&self, owner: Option<KeyId>, client: Client) -> Result<SessionPlace, NoPlace> {
        let mut place = self.admit_running(owner, client)?;
        // Last, because it counts those that it admits.
        place._load = Some(self.load.admit(self.own_sessions(owner, client)).map_err(NoPlace::Overloaded)?);
        Ok(place)
    }

    /// The same for a session that comes from another hub: running conversations are not refused because of the load.
    pub(super) fn admit_running(&self, owner: Option<KeyId>, client: Client) -> Result<SessionPlace, NoPlace> {
        if self.setup.drain.is_cancelled() {
            return Err(NoPlace::Server);
        }
        if self.lacks().is_some() {
            return Err(NoPlace::Engines);
        }
        let half = self.config.max_sessions.div_ceil(2);
        let bound = |configured: i64, derived: usize| match configured {
            0 => usize::MAX,
            ..0 => derived,
            most => usize::try_from(most).unwrap_or(usize::MAX),
        };
        let keys = if self.access.keys().n_clients() > 1 { half } else { usize::MAX };
        let own = owner.and_then(|owner| self.access.keys().max_sessions_of(owner));
        let most_of_key = bound(own.map_or(self.config.max_sessions_per_key, i64::from), keys);
        let here = if client.address.is_loopback() { usize::MAX } else { half };
        let most_of_address = match client.is_shared {
            true => usize::MAX,
            false => bound(self.config.max_sessions_per_address, here),
        };
        let key = owner.map(|owner| self.by_key.take(owner, most_of_key).ok_or(NoPlace::Key)).transpose()?;
        let address = self.by_address.take(client.network(), most_of_address).ok_or(NoPlace::Address)?;
        let permit = self.permits.clone().try_acquire_owned().map_err(|_| NoPlace::Server)?;
        Ok(SessionPlace { _load: None, _permit: permit, _key: key, _address: address })
    }

    /// The sessions of this key or of this address, whichever has more, with the one that is being admitted. `None`: they have no
    /// share by default, because there are no others or because the operator has set their limit.
    fn own_sessions(&self, owner: Option<KeyId>, client: Client) -> Option<usize> {
        let keys = self.access.keys();
        let of_key = owner.filter(|owner| {
            self.config.max_sessions_per_key < 0 && keys.n_clients() > 1 && keys.max_sessions_of(*owner).is_none()
        });
        let has_share = self.config.max_sessions_per_address < 0 && !client.is_shared && !client.address.is_loopback();
        let of_address = has_share.then(|| self.by_address.count(client.network()));
        of_key.map(|owner| self.by_key.count(owner)).max(of_address)
    }

    /// The number of sessions by transport.
    pub(super) fn transports(&self) -> BTreeMap<&'static str, usize> {
        let mut transports = BTreeMap::new();
        self.sessions.iter().for_each(|session| *transports.entry(*session.value()).or_default() += 1);
        transports
    }

    /// The call with this id that a client with this key may join and end.
    pub(super) fn find_call(&self, id: &str, owner: Option<KeyId>) -> Option<Arc<Ongoing>> {
        self.calls.find(id, owner, self.is_admin(owner))
    }

    /// The calls that a client with this key may join and end, as JSON.
    pub(super) fn describe_calls(&self, owner: Option<KeyId>) -> Vec<serde_json::Value> {
        self.calls.described(owner, self.is_admin(owner))
    }

    pub(super) fn is_admin(&self, owner: Option<KeyId>) -> bool {
        let scopes = owner.and_then(|owner| self.access.keys().scopes_of(owner));
        scopes.is_some_and(|scopes| scopes.has(Scope::Admin))
    }

    /// Number of sessions that belong to this key.
    pub(super) fn sessions_of(&self, owner: KeyId) -> usize {
        self.by_key.count(owner)
    }

    /// A permit to report a wrong key after the upgrade; `None` if all are in use.
    pub(super) fn turn_away(&self) -> Option<OwnedSemaphorePermit> {
        self.turning_away.clone().try_acquire_owned().ok()
    }

    /// Places of `server.max_sessions` that sessions take.
    pub(super) fn places_taken(&self) -> usize {
        self.config.max_sessions.saturating_sub(self.permits.available_permits())
    }

    /// Why there is no slot for a session limited by neither key nor address, in words for the operator. `None`: there is one.
    pub(super) fn lacks_room(&self) -> Option<String> {
        if self.setup.drain.is_cancelled() {
            return Some("it is draining".into());
        }
        if self.load.brownout().is_at_least(BrownoutLevel::NoSessions) {
            return Some("it is overloaded: new sessions are refused (brownout level no_sessions)".into());
        }
        let is_full = self.permits.available_permits() == 0;
        is_full
            .then(|| format!("it is full: all {} sessions of server.max_sessions are open", self.config.max_sessions))
    }

    /// Why no session would be served now, in words for the operator: the workers of a stage are gone. `None` if they are not,
    /// or if there is no cluster.
    pub(super) fn lacks(&self) -> Option<String> {
        self.models.manager()?.membership()?.lacks()
    }

    /// The cluster now; `None` if there is none.
    pub(super) fn cluster(&self) -> Option<Overview> {
        Some(self.models.manager()?.membership()?.overview())
    }

    /// The cluster, to ask its other hubs; `None` if there is none.
    pub(super) fn hubs(&self) -> Option<Cluster> {
        Some(self.models.manager()?.membership()?.cluster().clone())
    }

    /// What the hubs of the cluster share; `None` without `cluster.jetstream`.
    pub(super) fn jetstream(&self) -> Option<JetStream> {
        self.models.manager()?.membership()?.jetstream().cloned()
    }

    /// Tells the cluster how many sessions there are, from now on.
    pub(super) fn count_for_cluster(self: &Arc<Self>) {
        if let Some(membership) = self.models.manager().as_ref().and_then(|manager| manager.membership()) {
            let app = Arc::downgrade(self);
            membership.count_sessions(move || match app.upgrade() {
                Some(app) => (app.sessions.len(), app.setup.drain.is_cancelled()),
                None => (0, true),
            });
        }
    }

    /// Where short-lived keys are shared with other hubs; `None` without `cluster.jetstream`.
    pub(super) fn shared_keys(&self) -> Option<Bucket> {
        Some(self.models.manager()?.membership()?.jetstream()?.keys().clone())
    }

    /// Counts a session's connection until the guard is dropped.
    pub(super) fn connected(self: &Arc<Self>) -> Connected {
        self.connections.fetch_add(1, Ordering::Relaxed);
        Connected(self.clone())
    }

    /// Number of open session connections.
    pub(super) fn connections(&self) -> usize {
        self.connections.load(Ordering::Relaxed)
    }

    /// Inbound messages that await processing, in KiB.
    pub(super) fn inbound_kib(&self) -> usize {
        (INBOUND_BUDGET_BYTES / BUDGET_UNIT).saturating_sub(self.budget.available_permits()) * BUDGET_UNIT / 1024
    }

    /// The inbound budget of one session.
    pub(super) fn session_budget() -> Arc<Semaphore> {
        Arc::new(Semaphore::new(SESSION_BUDGET_BYTES / BUDGET_UNIT))
    }

    /// Waits for a message's share of its session's budget, and then of the global budget: a client that waits for its
    /// own holds nothing of the global one. Cancel safe.
    pub(super) async fn budget(&self, own: &Arc<Semaphore>, bytes: usize) -> Share {
        let units = Self::units(bytes) as u32;
        let own = own.clone().acquire_many_owned(units).await.expect("the budget is never closed");
        let common = self.budget.clone().acquire_many_owned(units).await.expect("the budget is never closed");
        Share { own, common }
    }

    /// The same for a part of an incomplete message, with its share of the budget for incomplete messages.
    pub(super) async fn unfinished_budget(&self, own: &Arc<Semaphore>, bytes: usize) -> (Share, OwnedSemaphorePermit) {
        let units = Self::units(bytes) as u32;
        let unfinished = self.unfinished.clone().acquire_many_owned(units).await.expect("the budget is never closed");
        (self.budget(own, bytes).await, unfinished)
    }

    /// Budget units for `bytes`: at least one, at most the budget of a session.
    pub(super) fn units(bytes: usize) -> usize {
        bytes.div_ceil(BUDGET_UNIT).clamp(1, SESSION_BUDGET_BYTES / BUDGET_UNIT)
    }

    pub(super) fn drain_time(&self) -> Duration {
        Duration::from_secs(u64::from(self.config.drain_seconds))
    }

    /// Waits for the sessions to end, at most [`App::drain_time`], then cancels the rest.
    pub(super) async fn drain(&self) {
        let tasks = &self.setup.tasks;
        self.setup.drain.cancel();
        tasks.close();
        tracing::info!(sessions = self.sessions.len(), "draining");
        let drained = async {
            let leave = |leave| self.handover.iter().for_each(|handover| handover.leave_all(leave));
            leave(Leave::WhenSilent);
            if tokio::time::timeout(self.drain_time() / 2, tasks.wait()).await.is_err() {
                leave(Leave::WhenPossible);
                tasks.wait().await;
            }
        };
        if tokio::time::timeout(self.drain_time(), drained).await.is_err() {
            tracing::info!(sessions = self.sessions.len(), "the drain time has elapsed");
            self.kill.cancel();
            let _ = tokio::time::timeout(LAST_WORDS, tasks.wait()).await;
        }
    }
}

/// The sessions that there are places for: each takes a descriptor, and its requests to engines a few more.
fn max_sessions(config: &ServerConfig) -> usize {
    let affordable = max_descriptors() / DESCRIPTORS_PER_SESSION;
    if affordable < config.max_sessions {
        let configured = config.max_sessions;
        let descriptors = max_descriptors();
        tracing::warn!(
            configured,
            affordable,
            descriptors,
            "fewer sessions than server.max_sessions are admitted, because the process may open so few files (ulimit -n)"
        );
    }
    config.max_sessions.min(affordable)
}

/// A session's reservation: of the server, of its key and of its address. Dropping it releases all three.
pub(super) struct SessionPlace {
    /// `None`: it came from another hub, and was not admitted by the load.
    _load: Option<LoadPlace>,
    _permit: OwnedSemaphorePermit,
    _key: Option<Held<KeyId>>,
    _address: Held<IpAddr>,
}

/// What prevents another session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NoPlace {
    /// `server.max_sessions`, or the server is stopping.
    Server,
    /// Another session would cost those that are there their objective (`[slo]`).
    Overloaded(Overloaded),
    /// No worker serves a stage.
    Engines,
    /// The API key (`server.max_sessions_per_key`).
    Key,
    /// The client's address (`server.max_sessions_per_address`).
    Address,
}

/// An open connection; dropping it decrements the count.
pub(super) struct Connected(Arc<App>);

impl Drop for Connected {
    fn drop(&mut self) {
        self.0.connections.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use antiphon_engine_api::fakes::llm::FakeLlm;
    use antiphon_engine_api::fakes::stt::FakeStt;
    use antiphon_engine_api::fakes::tts::FakeTts;
    use antiphon_engine_api::fakes::vad::FakeVad;
    use tokio::time::timeout;

    const SOON: Duration = Duration::from_secs(1);

    fn app(config: Config, keys: Keys) -> App {
        let stt = FakeStt::default();
        let llm = FakeLlm::default();
        let tts = FakeTts::default();
        let engines =
            Engines { vad: Arc::new(FakeVad), turn: None, stt: Arc::new(stt), llm: Arc::new(llm), tts: Arc::new(tts) };
        App::new(Parts { config, engines, metrics: Metrics::new(), keys, tls: None, manager: None }, None)
    }

    #[tokio::test(start_paused = true)]
    async fn sessions_that_begin_and_end_refuse_none_and_one_client_leaves_room_for_others() {
        let keys = Keys::of(&["greedy", "modest"]);
        let id = |key: &str| keys.grant(key).map(|grant| grant.id);
        let greedy = id("greedy");
        let modest = id("modest");
        let mut config = Config::default();
        config.server.max_sessions = 100_000;
        let app = app(config, keys);
        let client = Client::direct([192, 0, 2, 1].into(), true);
        for n in 0..10_000 {
            let place = app.admit(greedy, client);
            assert!(place.is_ok(), "connect {n}: {:?}", place.err());
        }
        let held: Vec<_> = (0..100_000).map_while(|_| app.admit(greedy, client).ok()).collect();
        assert!(!held.is_empty() && app.load.report().headroom_sessions >= held.len() - 1, "{}", held.len());
        assert!(app.admit(modest, Client::direct([192, 0, 2, 2].into(), true)).is_ok());
        assert!(matches!(app.admit(greedy, client), Err(NoPlace::Overloaded(_))));
        drop(held);
        assert!(app.admit(greedy, client).is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn no_session_takes_what_the_others_need() {
        let app = app(Config::default(), Keys::default());
        let greedy = App::session_budget();
        let modest = App::session_budget();
        let mut held = Vec::new();
        while let Ok(share) = timeout(SOON, app.budget(&greedy, MAX_MESSAGE_BYTES)).await {
            held.push(share);
        }
        assert_eq!(held.len() * MAX_MESSAGE_BYTES, SESSION_BUDGET_BYTES);
        assert!(timeout(SOON, app.budget(&greedy, 1)).await.is_err(), "it has taken all it may");
        timeout(SOON, app.budget(&modest, MAX_MESSAGE_BYTES)).await.expect("another has its own");
        held.pop();
        timeout(SOON, app.budget(&greedy, MAX_MESSAGE_BYTES)).await.expect("what was worked on is given back");
    }
}
