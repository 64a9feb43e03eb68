//! When a session is written to a snapshot: at the end of each turn, and once when it moves to another hub.
//!
//! The server gives a [`SnapshotSender`] to each session that other hubs may resume; the actor hands it [`Checkpoint`]s, one at a
//! time, and announces each to the client. When the session is asked to leave, the last one is final, and nothing happens in the
//! session after it. This module stores nothing and reads nothing of the session.

use super::snapshot::Snapshot;
use antiphon_dialog::Notice;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, watch};
use tokio::time::Instant;

/// The shortest time between two checkpoints. One that took long to write is followed by a longer one: a client that creates items
/// without end must not keep a core busy.
const PAUSE: Duration = Duration::from_millis(250);
/// The share of the time that a session may spend on writing checkpoints is one of so many parts.
const SHARE: u32 = 20;

/// Messages of a client after which there is a checkpoint although no turn has ended: 10 s of frames.
const MESSAGES: u64 = 500;

/// Whether a session is to move to another hub.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Leave {
    /// It stays.
    #[default]
    Stays,
    /// Nothing happens in it: another hub may own it.
    Suspended,
    /// It moves as soon as neither the user nor a reply speaks.
    WhenSilent,
    /// It moves as soon as nothing is under way that only this hub can finish: a reply that was made and not played yet is
    /// played by the next hub.
    WhenPossible,
    /// The same, for a client that is at another hub already: an utterance that it was in the middle of is not waited for.
    Now,
}

/// What a session asks of its storage.
pub enum StorageRequest {
    /// To store this.
    Store(Box<Checkpoint>),
    /// To let the session go with what is stored: its client has left in the middle of an utterance, which it says again to the
    /// next hub. Nothing happens in the session after this.
    GiveUp,
}

/// A snapshot on its way to be stored. The next one is written once this one is dropped: so a client that knows the last two
/// checkpoints knows the one that is stored.
pub struct Checkpoint {
    /// The state.
    pub snapshot: Snapshot,
    /// The session moves: nothing happens in it after this.
    pub is_final: bool,
    cost: Arc<AtomicU64>,
    _turn: OwnedSemaphorePermit,
}

impl Checkpoint {
    /// Says how long it took to write the state as bytes: the next one waits accordingly.
    pub fn took(&self, time: Duration) {
        self.cost.fetch_add(u64::try_from(time.as_micros()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }
}

/// The session's end of its storage.
pub struct SnapshotSender {
    requests: mpsc::Sender<StorageRequest>,
    leave: watch::Receiver<Leave>,
    turn: Arc<Semaphore>,
    /// Something has happened since the last checkpoint.
    has_changed: bool,
    /// When the last checkpoint was written, and the microseconds that it cost.
    last: Instant,
    cost: Arc<AtomicU64>,
    /// Messages of the client in it.
    received: u64,
}

impl SnapshotSender {
    /// A session's end; the server takes the requests and sets `leave`.
    pub fn new(leave: watch::Receiver<Leave>) -> (Self, mpsc::Receiver<StorageRequest>) {
        // One is stored, and another one may wait behind it.
        let (requests, taken) = mpsc::channel(1);
        let turn = Arc::new(Semaphore::new(1));
        let last = Instant::now();
        let cost = Arc::default();
        (Self { requests, leave, turn, has_changed: true, last, cost, received: 0 }, taken)
    }

    /// The same of a session that another hub has served so far.
    pub(super) fn behind(self, received: u64) -> Self {
        Self { received, ..self }
    }

    /// The client has sent a message, its `received`th: what it sends in silence is not to be sent again without end.
    pub(super) fn message_received(&mut self, received: u64) {
        self.has_changed |= received - self.received >= MESSAGES;
    }

    /// Learns from a notice of the reducer whether a checkpoint should hold what happened.
    pub(super) fn observe(&mut self, notice: &Notice) {
        self.has_changed |= matches!(
            notice,
            Notice::ItemDone { .. }
                | Notice::ItemDeleted(_)
                | Notice::ItemTruncated { .. }
                | Notice::Transcript { .. }
                | Notice::SettingsUpdated
                | Notice::InputCleared
                | Notice::ResponseDone(_)
        );
    }

    /// What the server asks of the session.
    pub(super) fn leave(&self) -> Leave {
        *self.leave.borrow()
    }

    /// Waits while the session is suspended.
    pub(super) async fn while_suspended(&mut self) {
        // Without a sender the server is gone, and the session with it.
        let _ = self.leave.wait_for(|leave| *leave != Leave::Suspended).await;
    }

    /// When the next checkpoint is due, if the state allows it then; `None`: there is nothing to store, or it is due now.
    pub(super) fn due(&self) -> Option<Instant> {
        let next = self.next();
        (self.has_changed && Instant::now() < next).then_some(next)
    }

    /// Whether a checkpoint is due.
    pub(super) fn is_due(&self) -> bool {
        self.has_changed && Instant::now() >= self.next()
    }

    /// Whether a checkpoint, or the session's move, waits for the one that is being stored.
    pub(super) fn waits_for_storage(&self) -> bool {
        let is_wanted = self.has_changed || !matches!(self.leave(), Leave::Stays | Leave::Suspended);
        is_wanted && self.turn.available_permits() == 0
    }

    /// The right to store a checkpoint; `None`: another one is being stored.
    pub(super) fn turn(&self) -> Option<OwnedSemaphorePermit> {
        self.turn.clone().try_acquire_owned().ok()
    }

    /// Hands a checkpoint over, whose writing `began` then. Returns whether it will be stored: if not, the next one replaces it.
    pub(super) fn store(
        &mut self,
        snapshot: Snapshot,
        is_final: bool,
        turn: OwnedSemaphorePermit,
        began: Instant,
    ) -> bool {
        self.received = snapshot.received();
        let cost = Arc::new(AtomicU64::new(1 + began.elapsed().as_micros() as u64));
        let checkpoint = Checkpoint { snapshot, is_final, cost: cost.clone(), _turn: turn };
        let stored = self.requests.try_send(StorageRequest::Store(Box::new(checkpoint))).is_ok();
        self.last = Instant::now();
        self.cost = cost;
        self.has_changed = false;
        stored
    }

    /// Has the session let go with what is stored. Returns whether it will be.
    pub(super) fn give_up(&self) -> bool {
        self.requests.try_send(StorageRequest::GiveUp).is_ok()
    }

    /// The next checkpoint is not written before.
    fn next(&self) -> Instant {
        let cost = Duration::from_micros(self.cost.load(Ordering::Relaxed));
        self.last + if cost.is_zero() { Duration::ZERO } else { PAUSE.max(cost * SHARE) }
    }

    /// Resolves when the session may act on its storage: it is asked to leave, or the last checkpoint is stored.
    pub(super) async fn moved(this: Option<&mut Self>, waits_for_turn: bool) {
        let Some(sender) = this else { return std::future::pending().await };
        let turn = sender.turn.clone();
        let is_free = async {
            match waits_for_turn {
                true => drop(turn.acquire().await),
                false => std::future::pending().await,
            }
        };
        tokio::select! {
            Ok(()) = sender.leave.changed() => {}
            () = is_free => {}
            else => std::future::pending().await,
        }
    }
}
