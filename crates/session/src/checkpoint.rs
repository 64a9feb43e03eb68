//! When a session is written to a snapshot: at the end of each turn, and once when it moves to another hub.
//!
//! The server gives a [`Keeping`] to each session that other hubs may resume; the actor hands it [`Checkpoint`]s, one at a time,
//! and announces each to the client. When the session is asked to leave, the last one is final, and nothing happens in the
//! session after it. This module stores nothing and never waits.

use super::Snapshot;
use super::actor::Actor;
use antiphon_protocol::SessionNotice;
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
    /// It moves as soon as nobody speaks and nothing is being said.
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
pub struct Keeping {
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

impl Keeping {
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

    /// The next checkpoint is not written before.
    fn next(&self) -> Instant {
        let cost = Duration::from_micros(self.cost.load(Ordering::Relaxed));
        self.last + if cost.is_zero() { Duration::ZERO } else { PAUSE.max(cost * SHARE) }
    }

    /// Resolves when the session may act on its storage: it is asked to leave, or the last checkpoint is stored.
    pub(super) async fn moved(this: Option<&mut Self>, waits_for_turn: bool) {
        let Some(keeping) = this else { return std::future::pending().await };
        let turn = keeping.turn.clone();
        let is_free = async {
            match waits_for_turn {
                true => drop(turn.acquire().await),
                false => std::future::pending().await,
            }
        };
        tokio::select! {
            Ok(()) = keeping.leave.changed() => {}
            () = is_free => {}
            else => std::future::pending().await,
        }
    }
}

impl Actor {
    /// The client has sent a message: what it sends in silence is not to be sent again without end.
    pub(super) fn note_message(&mut self) {
        if let Some(keeping) = &mut self.keeping {
            keeping.has_changed |= self.n_received - keeping.received >= MESSAGES;
        }
    }

    /// Something happened that a checkpoint should hold.
    pub(super) fn note_change(&mut self) {
        if let Some(keeping) = &mut self.keeping {
            keeping.has_changed = true;
        }
    }

    /// Waits while the session is suspended.
    pub(super) async fn while_suspended(&mut self) {
        if let Some(keeping) = &mut self.keeping {
            // Without a sender the server is gone, and the session with it.
            let _ = keeping.leave.wait_for(|leave| *leave != Leave::Suspended).await;
        }
    }

    /// When the next checkpoint is due, if the state allows it then.
    pub(super) fn checkpoint_due(&self) -> Option<Instant> {
        let next = self.keeping.as_ref().filter(|keeping| keeping.has_changed).map(Keeping::next)?;
        (Instant::now() < next).then_some(next)
    }

    /// Whether a checkpoint, or the session's move, waits for the one that is being stored.
    pub(super) fn waits_for_storage(&self) -> bool {
        self.keeping.as_ref().is_some_and(|keeping| {
            let leave = *keeping.leave.borrow();
            let is_wanted = keeping.has_changed || !matches!(leave, Leave::Stays | Leave::Suspended);
            is_wanted && keeping.turn.available_permits() == 0
        })
    }

    /// Writes a checkpoint where one is due. Returns whether the session has left: nothing may happen in it any more.
    /// `has_inbound`: messages of the client wait.
    pub(super) fn checkpoint(&mut self, has_inbound: bool) -> bool {
        let Some(keeping) = &self.keeping else { return false };
        let leave = *keeping.leave.borrow();
        match leave {
            Leave::Suspended => false,
            Leave::Stays => {
                let is_due = keeping.has_changed && Instant::now() >= keeping.next();
                if is_due && self.egress.is_attached() && self.egress.has_left() && self.is_movable() {
                    self.store(false);
                }
                false
            }
            Leave::WhenSilent | Leave::WhenPossible | Leave::Now => {
                let is_gone = leave == Leave::Now || !self.egress.is_attached();
                if is_gone && self.ingress.has_utterance() {
                    return keeping.requests.try_send(StorageRequest::GiveUp).is_ok();
                }
                let is_silent = self.playback.is_empty() && self.egress.has_left();
                let may = leave != Leave::WhenSilent || is_silent || is_gone;
                may && !has_inbound && self.is_movable() && self.store(true)
            }
        }
    }

    /// Whether the session leaves, and its reply is to be made as quickly as it can be.
    pub(super) fn is_leaving(&self) -> bool {
        let leaves = |keeping: &Keeping| matches!(*keeping.leave.borrow(), Leave::WhenPossible | Leave::Now);
        self.keeping.as_ref().is_some_and(leaves)
    }

    /// Whether the client is at another hub: its silence here is not the speaker's.
    pub(super) fn is_client_elsewhere(&self) -> bool {
        self.keeping.as_ref().is_some_and(|keeping| *keeping.leave.borrow() == Leave::Now)
    }

    /// Announces a checkpoint and hands it over to be stored. Returns whether it did.
    fn store(&mut self, is_final: bool) -> bool {
        let Some(turn) = self.turn_to_store() else { return false };
        let began = Instant::now();
        // The snapshot holds its own announcement: a client goes back to where it received that. So does the final one, to
        // which it goes back where the next hub dies before it has stored a checkpoint of its own.
        self.tell(SessionNotice::Checkpoint { received: self.n_received });
        let Some(snapshot) = self.snapshot() else { return false };
        let Some(keeping) = &mut self.keeping else { return false };
        // Full or closed: it is not stored, and the next one replaces it.
        let cost = Arc::new(AtomicU64::new(1 + began.elapsed().as_micros() as u64));
        let request =
            StorageRequest::Store(Box::new(Checkpoint { snapshot, is_final, cost: cost.clone(), _turn: turn }));
        let stored = keeping.requests.try_send(request).is_ok();
        keeping.last = Instant::now();
        keeping.cost = cost;
        keeping.received = self.n_received;
        keeping.has_changed = false;
        stored
    }

    fn turn_to_store(&self) -> Option<OwnedSemaphorePermit> {
        self.keeping.as_ref()?.turn.clone().try_acquire_owned().ok()
    }
}
