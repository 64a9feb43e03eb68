//! When a session is written to a snapshot: at the end of each turn, and once when it moves to another hub.
//!
//! The server gives a [`Keeping`] to each session that other hubs may resume; the actor hands it [`Checkpoint`]s, one at a time,
//! and announces each to the client. When the session is asked to leave, the last one is final, and nothing happens in the
//! session after it. This module stores nothing and waits for nobody.

use super::Snapshot;
use super::actor::Actor;
use antiphon_protocol::SessionNotice;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, watch};
use tokio::time::Instant;

/// The shortest time between two checkpoints. One that took long to write is followed by a longer one: a client that creates items
/// without end must not keep a core busy.
const PAUSE: Duration = Duration::from_millis(250);
/// The share of the time that a session may spend on writing checkpoints is one of so many parts.
const SHARE: u32 = 20;

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
}

/// A snapshot on its way to be stored. The next one is written once this one is dropped: so a client that knows the last two
/// checkpoints knows the one that is stored.
pub struct Checkpoint {
    /// The state.
    pub snapshot: Snapshot,
    /// The session moves: nothing happens in it after this.
    pub is_final: bool,
    _turn: OwnedSemaphorePermit,
}

/// The session's end of its storage.
pub struct Keeping {
    checkpoints: mpsc::Sender<Checkpoint>,
    leave: watch::Receiver<Leave>,
    turn: Arc<Semaphore>,
    /// Something has happened since the last checkpoint.
    has_changed: bool,
    /// The next checkpoint is not written before.
    next: Instant,
}

impl Keeping {
    /// A session's end; the server takes the checkpoints and sets `leave`.
    pub fn new(leave: watch::Receiver<Leave>) -> (Self, mpsc::Receiver<Checkpoint>) {
        // One is stored, and the final one may wait behind it.
        let (checkpoints, taken) = mpsc::channel(1);
        let turn = Arc::new(Semaphore::new(1));
        (Self { checkpoints, leave, turn, has_changed: true, next: Instant::now() }, taken)
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
        let keeping = self.keeping.as_ref().filter(|keeping| keeping.has_changed && Instant::now() < keeping.next)?;
        Some(keeping.next)
    }

    /// Whether a checkpoint, or the session's move, waits for the one that is being stored.
    pub(super) fn waits_for_storage(&self) -> bool {
        self.keeping.as_ref().is_some_and(|keeping| {
            let leave = *keeping.leave.borrow();
            let is_wanted = keeping.has_changed || matches!(leave, Leave::WhenSilent | Leave::WhenPossible);
            is_wanted && keeping.turn.available_permits() == 0
        })
    }

    /// Writes a checkpoint where one is due. Returns whether it was the final one: nothing may happen after it.
    /// `has_inbound`: messages of the client wait.
    pub(super) fn checkpoint(&mut self, has_inbound: bool) -> bool {
        let Some(keeping) = &self.keeping else { return false };
        let leave = *keeping.leave.borrow();
        match leave {
            Leave::Suspended => false,
            Leave::Stays => {
                let is_due = keeping.has_changed && Instant::now() >= keeping.next;
                if is_due && self.egress.is_attached() && self.egress.has_left() && self.is_movable() {
                    self.store(false);
                }
                false
            }
            Leave::WhenSilent | Leave::WhenPossible => {
                let is_silent = self.playback.is_empty() && self.egress.has_left();
                let may = leave == Leave::WhenPossible || is_silent || !self.egress.is_attached();
                may && !has_inbound && self.is_movable() && self.store(true)
            }
        }
    }

    /// Whether the session leaves, and its reply is to be made as quickly as it can be.
    pub(super) fn is_leaving(&self) -> bool {
        self.keeping.as_ref().is_some_and(|keeping| *keeping.leave.borrow() == Leave::WhenPossible)
    }

    /// Announces a checkpoint and hands it over to be stored. Returns whether it did.
    fn store(&mut self, is_final: bool) -> bool {
        let Some(turn) = self.turn_to_store() else { return false };
        let began = Instant::now();
        // The snapshot holds its own announcement: a client goes back to where it received that. So does the final one, to
        // which it goes back where the next hub dies before it has stored a checkpoint of its own.
        self.tell(&SessionNotice::Checkpoint { received: self.n_received });
        let Some(snapshot) = self.snapshot() else { return false };
        let Some(keeping) = &mut self.keeping else { return false };
        // Full or closed: nobody stores it, and the next one is as good.
        let stored = keeping.checkpoints.try_send(Checkpoint { snapshot, is_final, _turn: turn }).is_ok();
        keeping.has_changed = false;
        let now = Instant::now();
        keeping.next = now + PAUSE.max((now - began) * SHARE);
        stored
    }

    fn turn_to_store(&self) -> Option<OwnedSemaphorePermit> {
        self.keeping.as_ref()?.turn.clone().try_acquire_owned().ok()
    }
}
