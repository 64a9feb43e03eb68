//! Sessions that move between the hubs of a cluster: stored at the end of each turn, released by a hub that stops, taken by the
//! hub to which their clients reconnect.
//!
//! [`super::session_slot`] gets a [`StoredSession`] for each session that its client may resume, [`super::realtime`]
//! asks [`Handover::find`] for sessions of other hubs, and other hubs ask [`Handover::hand_over`]. One task a session,
//! the writer of its snapshots, stores what the session hands it, one state after the other. Which hub owns a session
//! is decided by `antiphon_cluster`, by compare-and-set. It runs only with `cluster.jetstream`.

use crate::server::access::caller;
use crate::server::access::keys::{self, Digest};
use crate::server::access::live_keys::LiveKeys;
use antiphon_cluster::{Cluster, OwnedSession, OwnershipError, Release, SharedSessions, StoredSessionView};
use antiphon_session::{Leave, Snapshot, SnapshotError, SnapshotSender, StorageRequest};
use antiphon_types::KeyId;
use axum::http::HeaderMap;
use dashmap::mapref::entry::Entry;
use dashmap::{DashMap, DashSet};
use futures_util::StreamExt;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::{Semaphore, mpsc, oneshot, watch};
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tokio_util::task::TaskTracker;

/// How long a hub that is asked for a session waits for the end of what is under way in it.
const MOVE_WITHIN: Duration = Duration::from_millis(1_500);
/// How long a hub is waited for that NATS knows and that does not answer. Then it has stopped acting for the session, because it
/// has not heard of the cluster for [`ISOLATED`] and not from the client for [`UNHEARD`], and checks that each [`CHECK_EVERY`].
const SILENT: Duration = Duration::from_millis(3_500);
/// Time after which a hub that does not answer is asked again: it may have died with the question in its connection, and NATS
/// knows by now.
const ASK_AGAIN: Duration = Duration::from_millis(400);
/// Silence of the cluster after which a hub counts itself as isolated.
pub(in crate::server) const ISOLATED: Duration = Duration::from_millis(2_500);
/// Silence of a client after which an isolated hub suspends its session: the client may be elsewhere.
const UNHEARD: Duration = Duration::from_secs(2);
/// Time between two checks whether sessions are to be suspended, while the hub is isolated.
const CHECK_EVERY: Duration = Duration::from_millis(250);
/// Time between two attempts to store a state while JetStream is away or full.
const STORE_AGAIN: Duration = Duration::from_secs(1);
/// The longest wait for JetStream at the end of a session.
const LAST_WRITE: Duration = Duration::from_secs(1);
/// Sessions that are looked at at once after the hub was isolated.
const CHECKS: usize = 16;
/// Clients whose sessions are being looked for at once.
const MAX_LOOKING: usize = 256;
/// Attempts to take a session that others take, too.
const ATTEMPTS: usize = 4;

/// See the module.
pub(in crate::server) struct Handover {
    sessions: SharedSessions,
    cluster: Cluster,
    tasks: TaskTracker,
    /// The sessions of this hub that are stored, by the digest of their resume key.
    live: DashMap<String, Arc<Live>>,
    looking: Semaphore,
    /// Sessions that are being taken, by the digest of their resume key.
    taking: DashSet<String>,
    counters: Counters,
    /// How long a session may live, and wait for its client after that.
    ttl: Duration,
    /// Words the question by which another hub is asked for the session of this key.
    release_question: fn(&str) -> Vec<u8>,
}

/// What happened to sessions, since the start.
#[derive(Default)]
struct Counters {
    released: AtomicU64,
    taken: AtomicU64,
    taken_back: AtomicU64,
    lost: AtomicU64,
    /// Sessions whose last state could not be stored so far.
    unstored: AtomicU64,
}

/// The same for the metrics and the state.
pub(in crate::server) struct Counts {
    /// Sessions that other hubs may resume.
    pub(in crate::server) live: u64,
    /// Of these, sessions whose last state could not be stored so far.
    pub(in crate::server) unstored: u64,
    /// Moves by kind: released, taken, taken from a checkpoint, lost to another hub.
    pub(in crate::server) moves: [(&'static str, u64); 4],
}

/// A session of this hub, as its writer, its slot and other hubs' questions see it.
struct Live {
    leave: watch::Sender<Leave>,
    moved: watch::Sender<Option<MoveReason>>,
    /// When the client was last heard.
    heard: watch::Sender<Instant>,
    /// This hub was isolated, and does not know yet whether it still owns the session.
    is_unsure: AtomicBool,
    /// Another hub asks for it: its client is there.
    is_asked_for: AtomicBool,
    /// The slot does not act in it any more.
    is_gone: watch::Sender<bool>,
}

/// Why a session ends here and goes on elsewhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::server) enum MoveReason {
    /// This hub stops: the client connects again.
    Stopping,
    /// The client has come to another hub.
    Elsewhere,
}

/// A slot's end of the storage of its session. Dropping it keeps the stored state, so that the session can be resumed elsewhere.
pub(in crate::server) struct StoredSession {
    key: String,
    handover: Arc<Handover>,
    live: Arc<Live>,
    moved: watch::Receiver<Option<MoveReason>>,
    end: Option<oneshot::Sender<End>>,
    done: watch::Receiver<bool>,
}

/// What the reader of a connection does for a session that other hubs may resume.
pub(in crate::server) struct SharedReader {
    /// Takes the time at which the client was last heard.
    pub(in crate::server) heard: watch::Sender<Instant>,
    leave: watch::Receiver<Leave>,
}

impl SharedReader {
    /// Whether the session moves to another hub.
    pub(in crate::server) fn leaves(&self) -> bool {
        !matches!(*self.leave.borrow(), Leave::Stays | Leave::Suspended)
    }
}

/// How a session ended here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::server) enum End {
    /// It is over.
    Over,
    /// It goes on elsewhere from what is stored.
    Released,
}

/// What the writer begins with.
enum InitialState {
    /// Nothing: this is for who may take it.
    Not(String),
    Owned(Box<OwnedSession>),
}

/// What is stored beside a session: who may take it.
#[derive(Serialize, Deserialize)]
struct Claims {
    /// The API key it belongs to.
    owner: Option<KeyId>,
    /// The hash of the key it was opened with. A short-lived key may have expired since.
    opened_with: Option<Digest>,
}

/// A session of another hub that a client may resume here.
pub(in crate::server) struct ResumableSession {
    key: String,
    seen: StoredSessionView,
    claims: Claims,
}

/// Why a session of another hub cannot be resumed here.
#[derive(Debug)]
pub(in crate::server) enum TakeoverError {
    /// There is none.
    Unknown,
    /// It lives on this hub meanwhile.
    Here,
    /// It cannot be read here; the words are for the client.
    Unreadable(&'static str),
    /// Another attempt may succeed; the words are for the client.
    Later(&'static str),
}

impl Handover {
    /// `ttl`: the longest life of a session, with the time that it waits for its client.
    pub(super) fn new(
        cluster: Cluster,
        sessions: SharedSessions,
        ttl: Duration,
        tasks: TaskTracker,
        release_question: fn(&str) -> Vec<u8>,
    ) -> Arc<Self> {
        Arc::new(Self {
            sessions,
            cluster,
            tasks,
            live: DashMap::new(),
            looking: Semaphore::new(MAX_LOOKING),
            taking: DashSet::new(),
            counters: Counters::default(),
            ttl,
            release_question,
        })
    }

    /// What happened so far.
    pub(in crate::server) fn counts(&self) -> Counts {
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let Counters { released, taken, taken_back, lost, unstored } = &self.counters;
        let moves = [
            ("released", count(released)),
            ("taken", count(taken)),
            ("taken_from_checkpoint", count(taken_back)),
            ("lost", count(lost)),
        ];
        Counts { live: self.live.len() as u64, unstored: count(unstored), moves }
    }

    /// Stores a session that begins. `digest`: of its resume key.
    pub(in crate::server) fn keep(
        self: &Arc<Self>,
        digest: &Digest,
        owner: Option<KeyId>,
        opened_with: Option<Digest>,
    ) -> (SnapshotSender, StoredSession) {
        let claims = serde_json::to_string(&Claims { owner, opened_with }).expect("claims have text for keys");
        self.start(keys::hex(digest), InitialState::Not(claims))
    }

    fn start(self: &Arc<Self>, key: String, stored: InitialState) -> (SnapshotSender, StoredSession) {
        let (leave, asked) = watch::channel(Leave::Stays);
        let (moved, seen) = watch::channel(None);
        let (heard, _) = watch::channel(Instant::now());
        let (is_gone, _) = watch::channel(false);
        let is_unsure = AtomicBool::new(false);
        let is_asked_for = AtomicBool::new(false);
        let live = Arc::new(Live { leave, moved, heard, is_unsure, is_asked_for, is_gone });
        let (snapshots, requests) = SnapshotSender::new(asked);
        let (end, ended) = oneshot::channel();
        let (done, is_done) = watch::channel(false);
        self.live.insert(key.clone(), live.clone());
        let writer = SnapshotWriter {
            handover: self.clone(),
            key: key.clone(),
            live: live.clone(),
            stored,
            requests,
            ended,
            has_left: false,
        };
        self.tasks.spawn(async move {
            writer.run().await;
            done.send_replace(true);
        });
        (snapshots, StoredSession { key, handover: self.clone(), live, moved: seen, end: Some(end), done: is_done })
    }

    /// Asks all sessions to move.
    pub(in crate::server) fn leave_all(&self, leave: Leave) {
        for live in &self.live {
            live.leave.send_replace(leave);
        }
    }

    /// Suspends the sessions whose client may be elsewhere, while this hub hears nothing of the cluster: another hub may own
    /// them. Afterwards they go on once it is known that none does. Never returns.
    pub(in crate::server) async fn watch_isolation(&self) {
        let mut was_isolated = false;
        loop {
            sleep(CHECK_EVERY).await;
            let is_isolated = self.cluster.is_isolated(ISOLATED);
            if is_isolated != was_isolated {
                let sessions = self.live.len();
                match is_isolated {
                    true => tracing::warn!(
                        sessions,
                        "the cluster is silent: sessions that their clients are silent in, too, are suspended"
                    ),
                    false => tracing::info!(sessions, "the cluster is heard again"),
                }
                was_isolated = is_isolated;
                if !is_isolated {
                    self.live.iter().for_each(|live| live.is_unsure.store(true, Ordering::Relaxed));
                }
            }
            if is_isolated {
                for live in &self.live {
                    let is_unheard = live.heard.borrow().elapsed() >= UNHEARD;
                    live.suspend(is_unheard);
                }
                continue;
            }
            let unsure: Vec<(String, Arc<Live>)> =
                self.live.iter().map(|live| (live.key().clone(), live.clone())).collect();
            let unsure = unsure.into_iter().filter(|(_, live)| live.is_unsure.load(Ordering::Relaxed));
            let checks = unsure.map(|(key, live)| self.make_sure(key, live));
            futures_util::stream::iter(checks).for_each_concurrent(CHECKS, |check| check).await;
        }
    }

    /// Lets a session go on that is still this hub's, and ends one that is not.
    async fn make_sure(&self, key: String, live: Arc<Live>) {
        match self.sessions.look(&key).await {
            Ok(Some(seen)) if seen.owner().0 != self.sessions.hub() => {
                tracing::info!(
                    record = short(&key),
                    owner = seen.owner().1,
                    "another hub has taken the session meanwhile"
                );
                count(&self.counters.lost);
                live.moved.send_replace(Some(MoveReason::Elsewhere));
            }
            // One that was never stored cannot have been taken.
            Ok(_) => {
                live.is_unsure.store(false, Ordering::Relaxed);
                live.suspend(false);
            }
            // Looked at again.
            Err(_) => {}
        }
    }

    /// What other hubs ask: to hand the session of this key over. Resolves once this hub does not act in it any more.
    pub(in crate::server) async fn hand_over(self: Arc<Self>, key: String) {
        let Some(live) = self.live.get(&key).map(|live| live.clone()) else { return };
        let mut moved = live.moved.subscribe();
        let mut is_gone = live.is_gone.subscribe();
        live.is_asked_for.store(true, Ordering::Relaxed);
        // One that is suspended may be another hub's already: nothing happens in it any more.
        let acts = live.leave.send_if_modified(|leave| {
            let acts = *leave != Leave::Suspended;
            *leave = if acts { Leave::Now } else { *leave };
            acts
        });
        if !acts {
            live.moved.send_replace(Some(MoveReason::Elsewhere));
        }
        let handed = moved.wait_for(Option::is_some);
        if timeout(MOVE_WITHIN, handed).await.is_err() {
            // The other hub goes on from the last checkpoint.
            tracing::info!(record = short(&key), "the session did not come to rest, and is given up for another hub");
            live.moved.send_replace(Some(MoveReason::Elsewhere));
        }
        let _ = is_gone.wait_for(|is_gone| *is_gone).await;
    }

    /// Looks for a session of another hub, and whether this client may take it.
    pub(in crate::server) async fn find(&self, digest: &Digest) -> Result<ResumableSession, TakeoverError> {
        let Ok(_looking) = self.looking.try_acquire() else {
            return Err(TakeoverError::Later("Too many clients look for their sessions at this moment."));
        };
        // No resume key can be derived from it.
        let key = keys::hex(digest);
        let look = async || self.sessions.look(&key).await.map_err(|error| not_taken(&key, &error));
        let mut seen = look().await?;
        if seen.is_none() {
            // One that has just begun is not stored yet; its hub stores it now, if there is one.
            self.sessions.ask_all_for(&(self.release_question)(&key), 2 * MOVE_WITHIN).await;
            seen = look().await?;
        }
        let seen = seen.ok_or(TakeoverError::Unknown)?;
        let claims = serde_json::from_str(seen.claims()).map_err(|_| {
            tracing::error!(record = short(&key), "a stored session does not say whose it is");
            TakeoverError::Unreadable("The stored session cannot be read by this hub.")
        })?;
        Ok(ResumableSession { key, seen, claims })
    }

    /// Takes the session from its owner.
    pub(in crate::server) async fn take(
        self: &Arc<Self>,
        found: ResumableSession,
    ) -> Result<(Snapshot, SnapshotSender, StoredSession), TakeoverError> {
        let ResumableSession { key, mut seen, .. } = found;
        let Some(_taking) = TakeoverGuard::begin(self, &key) else { return Err(TakeoverError::Here) };
        for _ in 0..ATTEMPTS {
            if !seen.is_released() {
                if seen.owner().0 == self.sessions.hub() {
                    if self.live.contains_key(&key) {
                        return Err(TakeoverError::Here);
                    }
                } else {
                    self.ask_owner(&seen, &key).await;
                    // Its owner may have stored a newer state, or another hub may have taken it.
                    let again = self.sessions.look(&key).await.map_err(|error| not_taken(&key, &error))?;
                    let before = std::mem::replace(&mut seen, again.ok_or(TakeoverError::Unknown)?);
                    if !seen.is_released() && seen.owner() != before.owner() {
                        continue;
                    }
                }
            }
            // What its owner has not let go is a checkpoint, and its client may have received more.
            let is_exact = seen.is_final();
            match self.sessions.take(seen, self.ttl).await {
                Ok((owned, state)) => return self.open(key, owned, &state, is_exact).await,
                Err(OwnershipError::Contended) => {
                    let again = self.sessions.look(&key).await.map_err(|error| not_taken(&key, &error))?;
                    seen = again.ok_or(TakeoverError::Unknown)?;
                }
                Err(error) => return Err(not_taken(&key, &error)),
            }
        }
        Err(TakeoverError::Later("Another hub takes this session at this moment."))
    }

    /// Asks the owner to let the session go; waits until it must have stopped acting where it does not answer.
    async fn ask_owner(&self, seen: &StoredSessionView, key: &str) {
        let until = Instant::now() + SILENT;
        let question = (self.release_question)(key);
        let mut was_gone = false;
        while Instant::now() < until {
            let again = (Instant::now() + ASK_AGAIN).min(until);
            match self.sessions.ask_for(seen, &question, ASK_AGAIN).await {
                Release::Done => return,
                // Twice: a hub that lives and has lost its connection only has suspended the session by then.
                Release::Gone if was_gone => return,
                release => {
                    was_gone = release == Release::Gone;
                    // Without a connection the reply comes too early.
                    sleep_until(again).await;
                }
            }
        }
        tracing::warn!(record = short(key), owner = seen.owner().1, "the owner of a session does not answer");
    }

    async fn open(
        self: &Arc<Self>,
        key: String,
        mut owned: OwnedSession,
        state: &[u8],
        is_exact: bool,
    ) -> Result<(Snapshot, SnapshotSender, StoredSession), TakeoverError> {
        match Snapshot::from_bytes(state) {
            Ok(snapshot) => {
                let Counters { taken, taken_back, .. } = &self.counters;
                count(if is_exact { taken } else { taken_back });
                let snapshot = if is_exact { snapshot } else { snapshot.go_back(rand::random()) };
                let (snapshots, kept) = self.start(key, InitialState::Owned(Box::new(owned)));
                Ok((snapshot, snapshots, kept))
            }
            Err(error) => {
                tracing::error!(record = short(&key), %error, "a stored session cannot be resumed by this hub");
                // Perhaps another hub can.
                let _ = self.sessions.release(&mut owned, self.ttl).await;
                Err(match error {
                    SnapshotError::Newer { .. } => TakeoverError::Later(
                        "A newer version of the server wrote this session; another hub may read it.",
                    ),
                    _ => TakeoverError::Unreadable("The stored session cannot be read by this hub."),
                })
            }
        }
    }
}

impl ResumableSession {
    /// Whether the session was opened with the key that these headers present, and its API key is still valid.
    pub(in crate::server) fn was_opened_with(&self, valid: &LiveKeys, headers: &HeaderMap) -> bool {
        let presented = caller::presented(headers).map(|key| keys::digest(&key));
        self.claims.opened_with.is_some() && self.claims.opened_with == presented && valid.is_valid(self.claims.owner)
    }

    /// The API key it belongs to.
    pub(in crate::server) fn owner(&self) -> Option<KeyId> {
        self.claims.owner
    }

    /// The hash of the key that it was opened with.
    pub(in crate::server) fn opened_with(&self) -> Option<Digest> {
        self.claims.opened_with
    }
}

impl Live {
    /// Suspends the session, or lets it go on. One that leaves is not affected.
    fn suspend(&self, is_suspended: bool) {
        self.leave.send_if_modified(|leave| {
            let next = match (*leave, is_suspended) {
                (Leave::Stays, true) => Leave::Suspended,
                (Leave::Suspended, false) => Leave::Stays,
                _ => return false,
            };
            *leave = next;
            true
        });
    }
}

impl StoredSession {
    /// Resolves when the session is stored and goes on elsewhere. Cancel safe.
    pub(in crate::server) async fn moved(&mut self) -> MoveReason {
        match self.moved.wait_for(Option::is_some).await.map(|moved| *moved) {
            Ok(Some(moved)) => moved,
            // The writer holds a sender for as long as this does.
            _ => std::future::pending().await,
        }
    }

    /// The beginning of the stored session's key, for the log: other lines of the handover name a session by it.
    pub(in crate::server) fn record(&self) -> &str {
        short(&self.key)
    }

    /// What the reader of a connection needs.
    pub(in crate::server) fn for_reader(&self) -> SharedReader {
        SharedReader { heard: self.live.heard.clone(), leave: self.live.leave.subscribe() }
    }

    /// The connection is lost: the client may be elsewhere.
    pub(in crate::server) fn unheard(&self) {
        self.live.heard.send_modify(|heard| *heard = heard.checked_sub(UNHEARD).unwrap_or(*heard));
    }

    /// Nothing happens in the session here any more: the hub that asks for it may go on.
    pub(in crate::server) fn gone(&self) {
        self.live.is_gone.send_replace(true);
    }

    /// Lets the session go with what is stored, so that it can be resumed elsewhere. Waits until that is stored, for 1 s at
    /// most. Call when nothing happens in it any more.
    pub(in crate::server) async fn release(&mut self) {
        if let Some(sender) = self.end.take() {
            let _ = sender.send(End::Released);
        }
        let _ = timeout(LAST_WRITE, self.done.wait_for(|done| *done)).await;
    }

    /// The session has ended here. Waits until that is stored, for 1 s at most.
    pub(in crate::server) async fn end(mut self, end: End) {
        if let Some(sender) = self.end.take() {
            let _ = sender.send(end);
        }
        let _ = timeout(LAST_WRITE, self.done.wait_for(|done| *done)).await;
    }
}

impl Drop for StoredSession {
    fn drop(&mut self) {
        if let Entry::Occupied(entry) = self.handover.live.entry(self.key.clone())
            && Arc::ptr_eq(entry.get(), &self.live)
        {
            entry.remove();
        }
        self.live.is_gone.send_replace(true);
    }
}

/// Stores the states of one session.
struct SnapshotWriter {
    handover: Arc<Handover>,
    key: String,
    live: Arc<Live>,
    stored: InitialState,
    requests: mpsc::Receiver<StorageRequest>,
    ended: oneshot::Receiver<End>,
    /// The session has let go: however its connection ended, it goes on elsewhere.
    has_left: bool,
}

impl SnapshotWriter {
    async fn run(mut self) {
        loop {
            let request = tokio::select! {
                biased;
                end = &mut self.ended => return self.finish(end.unwrap_or(End::Released)).await,
                request = self.requests.recv() => request,
            };
            let checkpoint = match request {
                Some(StorageRequest::Store(checkpoint)) => checkpoint,
                Some(StorageRequest::GiveUp) => {
                    self.has_left = true;
                    tracing::info!(record = short(&self.key), "the session goes back: its client left while it spoke");
                    self.live.moved.send_replace(Some(self.reason()));
                    break;
                }
                None => break,
            };
            let is_final = checkpoint.is_final;
            self.has_left |= is_final;
            // A long conversation takes milliseconds, which other sessions' audio must not wait for.
            let written = tokio::task::spawn_blocking(move || {
                let began = Instant::now();
                let state = checkpoint.snapshot.to_bytes();
                checkpoint.took(began.elapsed());
                (checkpoint, state)
            });
            let Ok((checkpoint, state)) = written.await else { break };
            if !self.store(&state, is_final).await {
                break;
            }
            // The session may write the next one.
            drop(checkpoint);
            if is_final {
                count(&self.handover.counters.released);
                self.live.moved.send_replace(Some(self.reason()));
                // The slot ends the session, and nothing is to be written any more.
                let _ = (&mut self.ended).await;
                return;
            }
        }
        // The slot says how it ended, or was dropped with the process' runtime.
        let end = (&mut self.ended).await.unwrap_or(End::Released);
        self.finish(end).await;
    }

    fn reason(&self) -> MoveReason {
        if self.live.is_asked_for.load(Ordering::Relaxed) { MoveReason::Elsewhere } else { MoveReason::Stopping }
    }

    /// Stores a state, again and again while JetStream is away. `false`: the session ended meanwhile, or belongs to another hub.
    async fn store(&mut self, state: &[u8], is_final: bool) -> bool {
        let handover = self.handover.clone();
        let mut has_failed = None;
        loop {
            let Err(error) = self.write(state, is_final).await else {
                if has_failed.is_some() {
                    tracing::info!(record = short(&self.key), "the session is stored again");
                }
                return true;
            };
            if let OwnershipError::Lost { .. } = error {
                count(&self.handover.counters.lost);
                self.live.moved.send_replace(Some(MoveReason::Elsewhere));
                return false;
            }
            if has_failed.is_none() {
                has_failed = Some(UnstoredCount::of(&handover.counters));
                tracing::warn!(record = short(&self.key), %error, "the session cannot be stored; another hub could not resume it as it is now");
            }
            sleep(STORE_AGAIN).await;
            if self.requests.is_closed() {
                return false;
            }
        }
    }

    async fn write(&mut self, state: &[u8], is_final: bool) -> Result<(), OwnershipError> {
        let Handover { sessions, ttl, .. } = &*self.handover;
        match &mut self.stored {
            InitialState::Not(claims) => {
                let owned = sessions.create(&self.key, claims.clone(), state, *ttl).await?;
                self.stored = InitialState::Owned(Box::new(owned));
                // A session that moves before it was ever stored is rare; the second write lets it go.
                if is_final { Box::pin(self.write(state, true)).await } else { Ok(()) }
            }
            InitialState::Owned(owned) => sessions.save(owned, state, is_final, *ttl).await,
        }
    }

    async fn finish(&mut self, end: End) {
        let Handover { sessions, ttl, .. } = &*self.handover;
        let InitialState::Owned(owned) = &mut self.stored else { return };
        let moved = self.live.moved.borrow().is_some();
        let end = if self.has_left { End::Released } else { end };
        let written = async {
            match end {
                End::Over if moved => Ok(()),
                End::Over => sessions.remove(owned).await,
                End::Released => sessions.release(owned, *ttl).await,
            }
        };
        match timeout(LAST_WRITE, written).await {
            Ok(Ok(()) | Err(OwnershipError::Lost { .. })) => {}
            Ok(Err(error)) => tracing::warn!(record = short(&self.key), %error, "the end of a session is not stored"),
            Err(_) => tracing::warn!(record = short(&self.key), "the end of a session is not stored in time"),
        }
    }
}

/// A session that is being taken; another request for it is refused meanwhile.
struct TakeoverGuard<'a>(&'a DashSet<String>, String);

impl<'a> TakeoverGuard<'a> {
    fn begin(handover: &'a Handover, key: &str) -> Option<Self> {
        handover.taking.insert(key.to_owned()).then(|| Self(&handover.taking, key.to_owned()))
    }
}

impl Drop for TakeoverGuard<'_> {
    fn drop(&mut self) {
        self.0.remove(&self.1);
    }
}

fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

/// Counts a session whose state could not be stored, while it lives.
struct UnstoredCount<'a>(&'a AtomicU64);

impl<'a> UnstoredCount<'a> {
    fn of(counters: &'a Counters) -> Self {
        count(&counters.unstored);
        Self(&counters.unstored)
    }
}

impl Drop for UnstoredCount<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

fn not_taken(key: &str, error: &OwnershipError) -> TakeoverError {
    let record = short(key);
    match error {
        OwnershipError::Contended => TakeoverError::Later("Another hub takes this session at this moment."),
        OwnershipError::Lost { .. } => TakeoverError::Later("Another hub has taken this session."),
        OwnershipError::Full(_) | OwnershipError::Away(_) => {
            tracing::warn!(record, %error, "a session of another hub cannot be taken");
            TakeoverError::Later("The sessions of other hubs cannot be reached at this moment.")
        }
        OwnershipError::Newer { .. } => {
            tracing::error!(record, %error, "a session of another hub cannot be taken");
            TakeoverError::Later("A newer version of the server stored this session; another hub may read it.")
        }
        OwnershipError::Sealed(_) | OwnershipError::Unreadable(_) => {
            tracing::error!(record, %error, "a session of another hub cannot be taken");
            TakeoverError::Unreadable("The stored session cannot be read by this hub.")
        }
    }
}

fn short(key: &str) -> &str {
    key.get(..12).unwrap_or(key)
}
