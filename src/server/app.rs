//! What the server's handlers share.

use super::LAST_WORDS;
use super::gpu::Gpus;
use super::keys::Keys;
use super::models::Models;
use super::process::Process;
use super::resume::Resumables;
use super::secrets::Secrets;
use super::speech::Speech;
use super::tls::Tls;
use super::turns::MAX_LISTENERS;
use super::websocket::MAX_MESSAGE_BYTES;
use crate::config::{Config, ServerConfig};
use crate::engines::{Served, Stock};
use crate::mcp::Mcp;
use crate::session::{AudioMode, Engines, Journal, Setup, Share};
use crate::telemetry::Metrics;
use crate::units::SessionId;
use crate::wire::{Dialect, UnknownFields};
use arc_swap::ArcSwap;
use dashmap::DashMap;
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
    pub stock: Option<(Arc<Stock>, Vec<Served>)>,
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
    pub(super) keys: Keys,
    pub(super) secrets: Secrets,
    pub(super) resumables: Resumables,
    /// Places of those who listen to the turns.
    pub(super) listeners: Arc<Semaphore>,
    pub(super) process: Process,
    pub(super) gpus: Gpus,
    pub(super) speech: Speech,
    connections: AtomicUsize,
    permits: Arc<Semaphore>,
    /// Clients that are being told that their key is wrong.
    turning_away: Arc<Semaphore>,
    budget: Arc<Semaphore>,
    unfinished: Arc<Semaphore>,
    /// Cancelled when even the time to drain is over.
    pub(super) kill: CancellationToken,
}

impl App {
    pub(super) fn new(parts: Parts) -> Self {
        let Parts { config, engines, metrics, keys, tls: _, stock } = parts;
        let (stock, served) = stock.map_or((None, Vec::new()), |(stock, served)| (Some(stock), served));
        let speech = Speech::new(&config);
        let mcp: Arc<dyn Mcp> = Arc::new(crate::mcp::http::Http::new(&config.mcp));
        let journal = Journal::new(config.server.turns_kept, config.server.keep_transcripts, engines.names());
        let setup = Setup {
            journal: Arc::new(journal),
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
            models: Models::new(stock, served),
            serving: ArcSwap::new(setup.clone()),
            listeners: Arc::new(Semaphore::new(MAX_LISTENERS)),
            process: Process::new(),
            gpus: Gpus::default(),
            speech,
            connections: AtomicUsize::new(0),
            permits: Arc::new(Semaphore::new(config.server.max_sessions)),
            budget: Arc::new(Semaphore::new(INBOUND_BUDGET_BYTES / BUDGET_UNIT)),
            unfinished: Arc::new(Semaphore::new(UNFINISHED_BUDGET_BYTES / BUDGET_UNIT)),
            turning_away: Arc::new(Semaphore::new(MAX_TURNED_AWAY)),
            keys,
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
        self.setup.journal.engines_are(engines.names());
        let setup = Setup { engines, ..Setup::clone(&self.setup()) };
        self.serving.store(Arc::new(setup));
    }

    /// How clients' JSON is read.
    pub(super) fn dialect(&self) -> Dialect {
        let strict = self.setup.session.refuse_unknown_fields;
        Dialect { unknown: if strict { UnknownFields::Refuse } else { UnknownFields::Ignore }, beta: false }
    }

    /// A place for one more session, if there is one and the server is not stopping.
    pub(super) fn admit(&self) -> Option<OwnedSemaphorePermit> {
        if self.setup.drain.is_cancelled() {
            return None;
        }
        self.permits.clone().try_acquire_owned().ok()
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
    use crate::{llm::fake::FakeLlm, stt::fake::FakeStt, tts::fake::FakeTts, vad::fake::FakeVad};
    use tokio::time::timeout;

    const SOON: Duration = Duration::from_secs(1);

    #[tokio::test(start_paused = true)]
    async fn no_session_takes_what_the_others_need() {
        let (stt, llm, tts) = (FakeStt::default(), FakeLlm::default(), FakeTts::default());
        let engines =
            Engines { vad: Arc::new(FakeVad), turn: None, stt: Arc::new(stt), llm: Arc::new(llm), tts: Arc::new(tts) };
        let (config, metrics, keys) = (Config::default(), Metrics::new(), Keys::default());
        let app = App::new(Parts { config, engines, metrics, keys, tls: None, stock: None });
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
