//! Several hubs that share their sessions, behind a balancer, with workers: what the parts about hubs have in common.

use super::forward::Balancer;
use super::processes::{HubProcess, Launcher, SharedStorage, WorkerProcess, end};
use super::{
    BenchError, ClusterPlan, Figure, Length, Outcome, Progress, Section, Unit, Waits, add_counts, clips, session,
};
use crate::load::{self, Conversation, Load, Network, Return};
use crate::simulated::Costs;
use antiphon_client::{AudioMode, ConnectOptions};
use antiphon_cluster::SealingKey;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tempfile::TempDir;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

/// How long a hub that stops waits for its sessions to go: half of it for moments without speech.
pub(super) const DRAIN_S: u16 = 10;

/// Longer gaps are reported one by one.
const SLOW: Duration = Duration::from_secs(1);

/// Timeout for a complete response, with the time in which its session may be away.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(30);

pub(super) const COSTS: Costs = Costs { run: Duration::from_millis(40), batch: 4, word: Duration::from_millis(100) };
pub(super) const N_WORKERS: usize = 4;

/// The longest load; it ends when the faults are over.
pub(super) const NO_LONGER: Length = Length::For(Duration::from_secs(24 * 3_600));

/// Hubs, their workers and the balancer in front of them.
pub(super) struct Site<'a> {
    pub(super) launcher: Launcher<'a>,
    pub(super) balancer: Balancer,
    pub(super) hubs: Vec<HubProcess>,
    pub(super) workers: Vec<WorkerProcess>,
    /// CPU time of the processes that have ended, in seconds.
    pub(super) cpu_s: f64,
    /// Hubs that did not end with 0.
    pub(super) n_unclean: usize,
    shared: SharedStorage,
    /// Where hubs find NATS that take another way than workers do.
    ways: Vec<Option<String>>,
    _folder: TempDir,
}

impl<'a> Site<'a> {
    /// Starts workers, then hubs. `n_replicas`: NATS servers that keep each record.
    pub(super) async fn start(
        plan: &'a ClusterPlan,
        servers: Vec<String>,
        n_replicas: usize,
        ways: Vec<Option<String>>,
    ) -> Result<Self, BenchError> {
        Self::start_with(plan, COSTS, servers, n_replicas, ways).await
    }

    /// As [`Site::start`], with engines of other costs; words are as long.
    pub(super) async fn start_with(
        plan: &'a ClusterPlan,
        costs: Costs,
        servers: Vec<String>,
        n_replicas: usize,
        ways: Vec<Option<String>>,
    ) -> Result<Self, BenchError> {
        let failed = |source| BenchError::Hub { what: "has no sealing key", source: Some(source) };
        let folder = TempDir::with_prefix("antiphon-bench-").map_err(failed)?;
        let sealing_key = folder.path().join("key");
        std::fs::write(&sealing_key, SealingKey::generate().encoded()).map_err(failed)?;
        let launcher = Launcher { plan, servers, costs };
        let workers = launcher.workers(plan.sessions(N_WORKERS, 2)).await?;
        let mut site = Self {
            launcher,
            balancer: Balancer::start(ways.len()).await?,
            hubs: Vec::new(),
            workers,
            cpu_s: 0.0,
            n_unclean: 0,
            shared: SharedStorage { sealing_key, n_replicas, drain_s: DRAIN_S },
            ways,
            _folder: folder,
        };
        for at in 0..site.ways.len() {
            let hub = site.launch(at, DRAIN_S).await?;
            site.hubs.push(hub);
        }
        Ok(site)
    }

    async fn launch(&self, at: usize, drain_s: u16) -> Result<HubProcess, BenchError> {
        let shared = SharedStorage { drain_s, ..self.shared.clone() };
        let Launcher { plan, servers, costs } = &self.launcher;
        let servers = self.ways[at].clone().map_or_else(|| servers.clone(), |way| vec![way]);
        let launcher = Launcher { plan, servers, costs: *costs };
        let hub = launcher.shared_hub(&format!("hub-{at}"), &shared).await?;
        self.balancer.set(at, Some(hub.address()?));
        Ok(hub)
    }

    /// Stops a hub (SIGTERM), which hands its sessions over, and starts it again, which then drains for `drain_s`.
    pub(super) async fn restart(&mut self, at: usize, drain_s: u16) -> Result<(), BenchError> {
        let hub = self.hubs.remove(at);
        let (cpu_s, is_clean) = hub.drain().await?;
        self.cpu_s += cpu_s;
        self.n_unclean += usize::from(!is_clean);
        let hub = self.launch(at, drain_s).await?;
        self.hubs.insert(at, hub);
        Ok(())
    }

    /// Kills a hub (SIGKILL) and starts it again.
    pub(super) async fn kill(&mut self, at: usize) -> Result<(), BenchError> {
        let hub = self.hubs.remove(at);
        self.cpu_s += hub.kill().await?;
        let hub = self.launch(at, DRAIN_S).await?;
        self.hubs.insert(at, hub);
        Ok(())
    }

    /// Conversations with all hubs, until `stop`: binary audio, resumed wherever they come back. `n_returns` counts that.
    pub(super) async fn talk(
        plan: &ClusterPlan,
        url: String,
        n_sessions: usize,
        length: Length,
        stop: CancellationToken,
        n_returns: Arc<AtomicUsize>,
        progress: Progress<'_>,
    ) -> Result<Outcome, BenchError> {
        let load = Load {
            connect: ConnectOptions { mode: AudioMode::Pcm16, resume: true, ..ConnectOptions::new(url) },
            session: session(true),
            clips: clips(n_sessions, COSTS.word)?,
            n_sessions,
            one_first: false,
            length,
            stop,
            call_turns: None,
            warm_up: 1,
            stagger: plan.begins() / n_sessions.max(1) as u32,
            barge_in: 0.0,
            network: Network::default(),
            process: None,
            patience: RESPONSE_TIMEOUT,
            seed: 1,
            n_turns: AtomicUsize::new(0),
            n_returns,
        };
        load::run(load, progress).await
    }

    /// CPU time of the hubs that run, in seconds.
    pub(super) fn hubs_cpu_s(&self) -> Result<f64, BenchError> {
        self.hubs.iter().map(|hub| hub.process().cpu_s()).sum()
    }

    /// Ends all; returns the CPU seconds of all processes.
    pub(super) async fn end(self) -> Result<f64, BenchError> {
        let mut cpu_s = self.cpu_s;
        for hub in self.hubs {
            cpu_s += hub.kill().await?;
        }
        Ok(cpu_s + end(self.workers).await?)
    }
}

/// Waits until no more sessions are resumed, `longest` at most.
pub(super) async fn returned(n_returns: &AtomicUsize, longest: Duration) {
    let mut before = n_returns.load(Ordering::Relaxed);
    let step = Duration::from_millis(250);
    for _ in 0..longest.as_millis() / step.as_millis() {
        sleep(step).await;
        let now = n_returns.load(Ordering::Relaxed);
        if now == before && now > 0 {
            return;
        }
        before = now;
    }
}

/// The gaps of these returns.
pub(super) fn gaps<'a>(returns: impl IntoIterator<Item = &'a Return>) -> Waits {
    let mut gaps = Waits::default();
    returns.into_iter().for_each(|back| gaps.push(back.resumed.gap));
    gaps
}

/// Adds p50, p95 and the longest of the gaps.
pub(super) fn add_gaps(section: &mut Section, name: &str, gaps: &Waits, bound_ms: Option<f64>) {
    section.percentile(name, gaps, 50.0, None);
    section.percentile(name, gaps, 95.0, None);
    section.percentile(name, gaps, 100.0, bound_ms);
}

/// Adds what happened to sessions that were resumed: none may have ended, and no frame be missing or doubled.
pub(super) fn add_sessions(section: &mut Section, outcome: &Outcome) {
    let n_returns = outcome.returns.len();
    let n_back = outcome.returns.iter().filter(|back| back.resumed.back_to.is_some()).count();
    let n_dropped: u64 = outcome.returns.iter().map(|back| back.resumed.n_dropped).sum();
    let n_interrupted = outcome.n_interrupted_frames;
    let n_misplaced: u64 = outcome.misplaced_frames.iter().map(|(_, n)| n).sum();
    let not_once = |conversation: &Conversation| {
        let Conversation { n_asked, n_committed, n_answered, n_followed } = *conversation;
        n_committed != n_asked || n_answered > n_asked || n_answered + n_followed < n_asked
    };
    let n_followed: usize = outcome.conversations.iter().map(|(_, conversation)| conversation.n_followed).sum();
    let wrong: Vec<_> = outcome.conversations.iter().filter(|(_, conversation)| not_once(conversation)).collect();
    let figures = [
        Figure::new("sessions ended", Unit::Count, outcome.broken.len() as f64, outcome.n_sessions).at_most(0.0),
        Figure::new("sessions resumed", Unit::Count, n_returns as f64, n_returns),
        Figure::new("of them from a checkpoint", Unit::Count, n_back as f64, n_returns),
        Figure::new("misplaced frames", Unit::Count, n_misplaced as f64, n_returns).at_most(0.0),
        Figure::new("frames left out behind an interruption", Unit::Count, n_interrupted as f64, n_returns),
        Figure::new("messages of clients lost", Unit::Count, n_dropped as f64, n_returns).at_most(0.0),
        Figure::new("questions sent again with the next one", Unit::Count, n_followed as f64, n_returns),
        Figure::new("conversations with a question not once", Unit::Count, wrong.len() as f64, outcome.n_sessions)
            .at_most(0.0),
    ];
    section.figures.extend(figures);
    section.notes.extend(wrong.into_iter().take(super::MOST_NOTED).map(|(session, conversation)| {
        let Conversation { n_asked, n_committed, n_answered, n_followed } = conversation;
        let came_back = came_back(outcome, *session);
        format!(
            "session {session}: {n_asked} questions ({n_followed} sent again with the next one), {n_committed} utterances, \
             {n_answered} responses; {came_back}"
        )
    }));
    section.notes.extend(
        outcome
            .misplaced_frames
            .iter()
            .take(super::MOST_NOTED)
            .map(|(session, n)| format!("session {session}: {n} misplaced frames; {}", came_back(outcome, *session))),
    );
    let slow = outcome.returns.iter().filter(|back| back.resumed.gap > SLOW);
    section.notes.extend(slow.take(super::MOST_NOTED).map(|back| {
        let Return { session, resumed, .. } = back;
        format!("session {session}: back after {} ms, {} attempts", resumed.gap.as_millis(), resumed.n_attempts)
    }));
}

/// How a session was resumed, each time.
fn came_back(outcome: &Outcome, session: usize) -> String {
    let returns = outcome.returns.iter().filter(|back| back.session == session).map(|back| {
        let how = back.resumed.back_to.map_or("exactly".to_owned(), |number| format!("to checkpoint {number}"));
        format!("{how} after {} ms", back.resumed.gap.as_millis())
    });
    format!("back {}", returns.collect::<Vec<_>>().join(", "))
}

/// As [`add_sessions`], and the counts of responses.
pub(super) fn add_all(section: &mut Section, outcome: &Outcome) {
    add_sessions(section, outcome);
    add_counts(section, "", outcome);
}
