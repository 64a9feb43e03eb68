//! What the server's handlers share.

use super::LAST_WORDS;
use super::access::Access;
use super::attempts::Attempts;
use super::client::Client;
use super::gpu::Gpus;
use super::keys::Keys;
use super::models::Models;
use super::process::Process;
use super::resume::Resumables;
use super::secrets::Secrets;
use super::security::Security;
use super::shares::{Share as Held, Shares};
use super::speech::Speech;
use super::tls::Tls;
use super::turns::{MAX_LISTENERS, MAX_READERS};
use super::websocket::MAX_MESSAGE_BYTES;
use crate::assembly::{EngineManager, Served};
use crate::config::{Config, ServerConfig};
use antiphon_engine_api::Engines;
use antiphon_engine_api::mcp::Mcp;
use antiphon_protocol::{Dialect, UnknownFields};
use antiphon_session::{AudioMode, Setup, Share, TurnHistory};
use antiphon_telemetry::Metrics;
use antiphon_types::{KeyId, SessionId};
use arc_swap::ArcSwap;
use dashmap::DashMap;
use ipnet::IpNet;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// What a server is made of.
pub struct Parts {
    /// The settings.
    pub config: Config,
    /// The engines, loaded.
    pub engines: Engines,
    /// Where everything is counted.
    pub metrics: Metrics,
    /// Who may use it.
    pub keys: Keys,
    /// `None`: plain HTTP.
    pub tls: Option<Tls>,
    /// Where the engines come from and what they are; `None`: they stay as they are, and no model can be pulled.
    pub manager: Option<(Arc<EngineManager>, Vec<Served>)>,
}

/// What a server is made of once its engines are loaded: the rest of [`Parts`].
pub struct Loaded {
    /// The engines.
    pub engines: Engines,
    /// As [`Parts::manager`].
    pub manager: Option<(Arc<EngineManager>, Vec<Served>)>,
}

/// What is known of a server before its engines are loaded.
pub struct Startup {
    /// The settings.
    pub config: Config,
    /// Where everything is counted.
    pub metrics: Metrics,
    /// Who may use it.
    pub keys: Keys,
    /// `None`: plain HTTP.
    pub tls: Option<Tls>,
}

/// Inbound messages of all clients together that wait to be worked on. Beyond it sockets are not read.
const INBOUND_BUDGET_BYTES: usize = 256 * 1024 * 1024;

/// Of these, what messages may take that are not complete yet. Clients that never end theirs leave the other half to those who
/// do.
const UNFINISHED_BUDGET_BYTES: usize = INBOUND_BUDGET_BYTES / 2;

/// Inbound messages of one client that wait to be worked on: one of the largest size and as much again. Beyond it that
/// client's socket is not read, and the others' are.
pub(super) const SESSION_BUDGET_BYTES: usize = 2 * MAX_MESSAGE_BYTES;

/// A share of the inbound budget is counted in units of this.
pub(super) const BUDGET_UNIT: usize = 1024;

/// Clients that are told at once, after the upgrade, that their key is wrong; more are refused before it.
const MAX_TURNED_AWAY: usize = 64;

/// The handlers' state.
pub(super) struct App {
    pub(super) config: ServerConfig,
    /// As the server began; [`App::setup()`] has the engines that serve now.
    pub(super) setup: Arc<Setup>,
    serving: ArcSwap<Setup>,
    pub(super) models: Models,
    /// The sessions that live now.
    pub(super) sessions: DashMap<SessionId, AudioMode>,
    pub(super) access: Access,
    pub(super) attempts: Attempts,
    pub(super) security: Security,
    /// What the handshakes are made with; `None`: plain HTTP.
    pub(super) tls: Option<Arc<ArcSwap<Tls>>>,
    pub(super) proxies: Vec<IpNet>,
    pub(super) secrets: Secrets,
    pub(super) resumables: Resumables,
    /// ConnectionSlots of those who listen to the turns.
    pub(super) listeners: Arc<Semaphore>,
    /// ConnectionSlots of those who read a page of turns, or the list of models.
    pub(super) readers: Arc<Semaphore>,
    pub(super) process: Process,
    pub(super) gpus: Gpus,
    pub(super) speech: Speech,
    connections: AtomicUsize,
    permits: Arc<Semaphore>,
    by_key: Shares<KeyId>,
    by_address: Shares<IpAddr>,
    /// Clients that are being told that their key is wrong.
    turning_away: Arc<Semaphore>,
    budget: Arc<Semaphore>,
    unfinished: Arc<Semaphore>,
    /// Cancelled when even the time to drain is over.
    pub(super) kill: CancellationToken,
}

impl App {
    pub(super) fn new(parts: Parts) -> Self {
        let Parts { config, engines, metrics, keys, tls, manager } = parts;
        let (manager, served) = manager.map_or((None, Vec::new()), |(manager, served)| (Some(manager), served));
        let speech = Speech::new(&config);
        let mcp: Arc<dyn Mcp> = Arc::new(antiphon_engines::mcp::http::Http::new(&config.mcp));
        let turn_history = TurnHistory::new(config.server.turns_kept, config.server.keep_transcripts, engines.names());
        let setup = Setup {
            turn_history: Arc::new(turn_history),
            turn: config.turn,
            speculation: config.speculation,
            session: config.session,
            voice: config.tts.first_voice(engines.tts.as_ref()),
            speed: config.tts.speed,
            engines,
            instructions: config.llm.system_prompt,
            model: "antiphon".into(),
            language: Some(config.stt.language).filter(|language| !language.is_empty()),
            stt_timeout: Duration::from_millis(config.stt.timeout_ms),
            mcp,
            mcp_config: config.mcp,
            metrics,
            tasks: TaskTracker::new(),
            drain: CancellationToken::new(),
        };
        let setup = Arc::new(setup);
        Self {
            models: Models::new(manager, served),
            serving: ArcSwap::new(setup.clone()),
            listeners: Arc::new(Semaphore::new(MAX_LISTENERS)),
            readers: Arc::new(Semaphore::new(MAX_READERS)),
            process: Process::new(),
            gpus: Gpus::default(),
            speech,
            connections: AtomicUsize::new(0),
            permits: Arc::new(Semaphore::new(config.server.max_sessions)),
            budget: Arc::new(Semaphore::new(INBOUND_BUDGET_BYTES / BUDGET_UNIT)),
            unfinished: Arc::new(Semaphore::new(UNFINISHED_BUDGET_BYTES / BUDGET_UNIT)),
            turning_away: Arc::new(Semaphore::new(MAX_TURNED_AWAY)),
            access: Access::new(keys),
            attempts: Attempts::default(),
            security: Security::new(),
            tls: tls.map(|tls| Arc::new(ArcSwap::from_pointee(tls))),
            proxies: config.server.proxies(),
            by_key: Shares::default(),
            by_address: Shares::default(),
            secrets: Secrets::default(),
            resumables: Resumables::default(),
            config: config.server,
            setup,
            sessions: DashMap::new(),
            kill: CancellationToken::new(),
        }
    }

    /// What a session that begins now is made of.
    pub(super) fn setup(&self) -> Arc<Setup> {
        self.serving.load_full()
    }

    /// Gives new sessions these engines; the others keep theirs.
    pub(super) fn serve_with(&self, engines: Engines) {
        self.setup.turn_history.engines_are(engines.names());
        let setup = Setup { engines, ..Setup::clone(&self.setup()) };
        self.serving.store(Arc::new(setup));
    }

    /// How clients' JSON is read.
    pub(super) fn dialect(&self) -> Dialect {
        let strict = self.setup.session.refuse_unknown_fields;
        Dialect { unknown: if strict { UnknownFields::Refuse } else { UnknownFields::Ignore }, beta: false }
    }

    /// A place for one more session of this key and client, if there is one and the server is not stopping.
    pub(super) fn admit(&self, owner: Option<KeyId>, client: Client) -> Result<SessionPlace, NoPlace> {
        if self.setup.drain.is_cancelled() {
            return Err(NoPlace::Server);
        }
        let half = self.config.max_sessions.div_ceil(2);
        let bound = |configured: i64, derived: usize| match configured {
            0 => usize::MAX,
            ..0 => derived,
            most => usize::try_from(most).unwrap_or(usize::MAX),
        };
        let keys = if self.access.keys().n_clients() > 1 { half } else { usize::MAX };
        let most_of_key = bound(self.config.max_sessions_per_key, keys);
        let here = if client.address.is_loopback() { usize::MAX } else { half };
        let most_of_address = match client.is_shared {
            true => usize::MAX,
            false => bound(self.config.max_sessions_per_address, here),
        };
        let key = owner.map(|owner| self.by_key.take(owner, most_of_key).ok_or(NoPlace::Key)).transpose()?;
        let address = self.by_address.take(client.network(), most_of_address).ok_or(NoPlace::Address)?;
        let permit = self.permits.clone().try_acquire_owned().map_err(|_| NoPlace::Server)?;
        Ok(SessionPlace { _permit: permit, _key: key, _address: address })
    }

    /// How many sessions belong to this key.
    pub(super) fn sessions_of(&self, owner: KeyId) -> usize {
        self.by_key.count(owner)
    }

    /// A place to tell a client after the upgrade that its key is wrong.
    pub(super) fn turn_away(&self) -> Option<OwnedSemaphorePermit> {
        self.turning_away.clone().try_acquire_owned().ok()
    }

    /// Whether one more session would be admitted.
    pub(super) fn has_place(&self) -> bool {
        !self.setup.drain.is_cancelled() && self.permits.available_permits() > 0
    }

    /// Counts a session's connection in, and out again when the guard is dropped.
    pub(super) fn connected(self: &Arc<Self>) -> Connected {
        self.connections.fetch_add(1, Ordering::Relaxed);
        Connected(self.clone())
    }

    /// Sessions' connections that stand now.
    pub(super) fn connections(&self) -> usize {
        self.connections.load(Ordering::Relaxed)
    }

    /// Messages of clients that wait to be worked on.
    pub(super) fn inbound_kib(&self) -> usize {
        (INBOUND_BUDGET_BYTES / BUDGET_UNIT).saturating_sub(self.budget.available_permits()) * BUDGET_UNIT / 1024
    }

    /// What one session may take of the inbound budget.
    pub(super) fn session_budget() -> Arc<Semaphore> {
        Arc::new(Semaphore::new(SESSION_BUDGET_BYTES / BUDGET_UNIT))
    }

    /// Waits for a message's share of its session's budget, and then of everyone's: who waits for its own keeps nothing
    /// from the others.
    pub(super) async fn budget(&self, own: &Arc<Semaphore>, bytes: usize) -> Share {
        let units = Self::units(bytes) as u32;
        let own = own.clone().acquire_many_owned(units).await.expect("the budget is never closed");
        let common = self.budget.clone().acquire_many_owned(units).await.expect("the budget is never closed");
        Share { own, common }
    }

    /// The same for a part of a message that is not complete, with its share of what such parts may take together.
    pub(super) async fn unfinished_budget(&self, own: &Arc<Semaphore>, bytes: usize) -> (Share, OwnedSemaphorePermit) {
        let units = Self::units(bytes) as u32;
        let unfinished = self.unfinished.clone().acquire_many_owned(units).await.expect("the budget is never closed");
        (self.budget(own, bytes).await, unfinished)
    }

    /// Units of the budgets for so many bytes; at least one, at most what a session may take.
    pub(super) fn units(bytes: usize) -> usize {
        bytes.div_ceil(BUDGET_UNIT).clamp(1, SESSION_BUDGET_BYTES / BUDGET_UNIT)
    }

    pub(super) fn drain_time(&self) -> Duration {
        Duration::from_secs(u64::from(self.config.drain_seconds))
    }

    /// Lets sessions finish, then ends them.
    pub(super) async fn drain(&self) {
        let tasks = &self.setup.tasks;
        self.setup.drain.cancel();
        tasks.close();
        tracing::info!(sessions = self.sessions.len(), "draining");
        if tokio::time::timeout(self.drain_time(), tasks.wait()).await.is_err() {
            tracing::info!(sessions = self.sessions.len(), "the time to drain is over");
            self.kill.cancel();
            let _ = tokio::time::timeout(LAST_WORDS, tasks.wait()).await;
        }
    }
}

/// A session's place: among all, among its key's, and among its address'.
pub(super) struct SessionPlace {
    _permit: OwnedSemaphorePermit,
    _key: Option<Held<KeyId>>,
    _address: Held<IpAddr>,
}

/// Who has as many sessions as may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NoPlace {
    /// All together.
    Server,
    /// The API key (`server.max_sessions_per_key`).
    Key,
    /// The client's address (`server.max_sessions_per_address`).
    Address,
}

/// A connection that stands; dropping it counts it out.
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

    #[tokio::test(start_paused = true)]
    async fn no_session_takes_what_the_others_need() {
        let (stt, llm, tts) = (FakeStt::default(), FakeLlm::default(), FakeTts::default());
        let engines =
            Engines { vad: Arc::new(FakeVad), turn: None, stt: Arc::new(stt), llm: Arc::new(llm), tts: Arc::new(tts) };
        let (config, metrics, keys) = (Config::default(), Metrics::new(), Keys::default());
        let app = App::new(Parts { config, engines, metrics, keys, tls: None, manager: None });
        let (greedy, modest) = (App::session_budget(), App::session_budget());
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
