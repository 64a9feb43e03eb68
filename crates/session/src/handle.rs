//! The opening of a session, and its handle.
//!
//! The server opens one for each connection, or resumes one from a snapshot, and keeps the [`Handle`] as long as the session is to
//! live. No decision about the conversation is made here.

use super::actor::Actor;
use super::beginning::Beginning;
use super::checkpoint::SnapshotSender;
use super::egress::{Close, Egress};
use super::inbound::Inbound;
use super::limits::SessionLimits;
use super::opening::Opening;
use super::setup::Setup;
use super::snapshot::{Snapshot, SnapshotError};
use antiphon_protocol::Dialect;
use antiphon_telemetry::span;
use antiphon_types::{IdMint, SessionId};
use std::sync::Arc;
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

/// Messages of a client that wait for its actor. Each holds its share of the process-wide budget.
const INBOUND_MESSAGES: usize = 8;

/// A running session, as its connection sees it. Dropping it ends the session and everything it started.
pub struct Handle {
    /// Its id.
    pub id: SessionId,
    /// What the client says, in order. Waits while the session is behind.
    pub inbound: mpsc::Sender<Inbound>,
    /// What the client gets.
    pub egress: Arc<Egress>,
    /// When the client's socket is to be read again, where its audio is ahead of a limit.
    pub read_from: watch::Receiver<Option<Instant>>,
    cancel: CancellationToken,
}

/// Closes the log however the actor ends, by a panic too: the connection must not wait for ever.
struct CloseAtEnd(Arc<Egress>);

impl Drop for CloseAtEnd {
    fn drop(&mut self) {
        self.0.close(Close { code: 1001, reason: "the session has ended" });
    }
}

impl Handle {
    /// Ends all work of the session now, as dropping this does; its log can still be read.
    pub fn stop(&self) {
        self.cancel.cancel();
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.cancel.cancel();
    }
}

impl Setup {
    /// Starts a session's actor.
    pub fn open(self: &Arc<Self>, opening: Opening) -> Handle {
        self.open_seeded(opening, rand::random())
    }

    /// As [`Self::open`], with the seed of everything that a session draws: its identifiers, and the order in which it looks at
    /// inputs that are ready at once. On one thread and paused time the same seed, client and engines give the same events.
    pub fn open_seeded(self: &Arc<Self>, opening: Opening, seed: u64) -> Handle {
        let id = SessionId::from(IdMint::new(seed ^ 0x7365_7373_696f_6e73).next("sess"));
        self.run(Beginning::opened(self, id, seed, opening))
    }

    /// Starts the actor of a session that another hub has served so far. Its log has no connection yet: [`Egress::attach`]
    /// gives it one.
    ///
    /// # Errors
    /// [`SnapshotError::Unreadable`]: a setting that this build refuses.
    pub fn resume(
        self: &Arc<Self>,
        snapshot: Snapshot,
        dialect: Dialect,
        snapshots: Option<SnapshotSender>,
        limits: Option<Arc<dyn SessionLimits>>,
    ) -> Result<Handle, SnapshotError> {
        Ok(self.run(Beginning::resumed(self, snapshot, dialect, snapshots, limits)?))
    }

    fn run(self: &Arc<Self>, beginning: Beginning) -> Handle {
        let id = beginning.id.clone();
        let (sender, inbound) = mpsc::channel(INBOUND_MESSAGES);
        // Boxed, because a future holds what it is given and what it moves that to: 20 KiB instead of 7 for each session.
        let (actor, start) = Actor::new(self.clone(), beginning);
        let actor = Box::new(actor);
        let egress = actor.egress();
        let read_from = actor.read_from();
        let cancel = CancellationToken::new();
        let run = {
            let cancel = cancel.clone();
            let closing = CloseAtEnd(egress.clone());
            async move {
                let _closing = closing;
                // Dropping the actor drops its tasks' guards, and with them all work of the session.
                tokio::select! {
                    biased;
                    () = cancel.cancelled() => {}
                    () = actor.run(inbound, start) => {}
                }
            }
        };
        self.tasks.spawn(run.instrument(span::session(&id)));
        Handle { id, inbound: sender, egress, read_from, cancel }
    }
}
