//! What a scheduler's handles and its replicas share: the deadline queue, who is healthy, and the wake-ups between them.
//!
//! The batch scheduler and the slot scheduler are both built on it; what a replica does with the queue is theirs. `L` is what
//! replicas know of each other's load. It runs no engine and knows no reader.

use super::Overloaded;
use super::batch::Entry;
use super::queue::Queue;
use super::room::{self, Room};
use crate::supervisor::Health;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::Duration;
use tokio::time::Instant;

/// See the module.
pub(super) struct ReplicaQueue<W, L> {
    state: Mutex<QueueState<W, L>>,
    /// An entry arrived, was abandoned or may go on, a replica's load or health changed, or the last handle is gone.
    changed: Condvar,
    pub(super) room: Room,
}

/// What the lock guards.
pub(super) struct QueueState<W, L> {
    pub(super) queue: Queue<W>,
    /// The last handle is gone.
    pub(super) closed: bool,
    /// Of each replica. One that has failed leaves the queue to the healthy ones.
    pub(super) health: Vec<Health>,
    pub(super) load: L,
}

/// Held by the handles; the last one to go closes the queue.
pub(super) struct QueueHandle<W, L>(Arc<ReplicaQueue<W, L>>);

impl<W, L> Drop for QueueHandle<W, L> {
    fn drop(&mut self) {
        self.0.lock().closed = true;
        self.0.changed.notify_all();
    }
}

impl<W, L> QueueState<W, L> {
    fn is_any_healthy(&self) -> bool {
        self.health.iter().any(|health| !health.has_failed())
    }
}

impl<W: Entry, L> ReplicaQueue<W, L> {
    /// An empty queue for these replicas, and what keeps it open.
    pub(super) fn new(queue: Queue<W>, health: Vec<Health>, load: L) -> (Arc<Self>, QueueHandle<W, L>) {
        let state = Mutex::new(QueueState { queue, closed: false, health, load });
        let shared = Arc::new(Self { state, changed: Condvar::new(), room: Room::default() });
        (shared.clone(), QueueHandle(shared))
    }

    /// Puts an entry into the queue where fewer than `most` wait.
    pub(super) fn push(&self, entry: W, most: usize) -> Result<(), (Overloaded, W)> {
        self.lock().queue.push(entry, most, Instant::now())?;
        // All of them: the one that is woken may have failed.
        self.changed.notify_all();
        Ok(())
    }

    /// Waits for room, in order, and puts an entry into the queue. A quarter of it is left to those who do not wait for room.
    pub(super) async fn enqueue(&self, mut entry: W) {
        let most = room::share_of_queue(self.lock().queue.max_waiting());
        let _turn = self.room.turn().await;
        while let Err((Overloaded { .. }, back)) = self.push(entry, most) {
            entry = back;
            self.room.changed().await;
        }
    }

    /// For a replica without an engine: waits until there is something to start one for, and takes nothing. `false` when
    /// the scheduler is closed and this replica is not needed.
    pub(super) fn wait_for_work(&self) -> bool {
        let mut state = self.lock();
        loop {
            let is_idle = state.queue.len() == 0;
            if state.closed && (is_idle || state.is_any_healthy()) {
                return false;
            }
            if !is_idle {
                return true;
            }
            state = self.wait(state);
        }
    }

    /// For a replica that could not start its engine: the entries that fail with it, which are none while another replica
    /// is healthy and will serve them. Then it lets that one work for `pause` before it tries again.
    pub(super) fn take_if_none_is_healthy(&self, pause: Duration) -> Vec<W> {
        let until = Instant::now() + pause;
        let mut state = self.lock();
        loop {
            if !state.is_any_healthy() {
                let all = state.queue.all();
                drop(state);
                self.room.change();
                return all;
            }
            let left = until.saturating_duration_since(Instant::now());
            if state.closed || left.is_zero() {
                return Vec::new();
            }
            state = self.wait_at_most(state, left);
        }
    }

    /// For a replica that counts as failed: leaves the work to the healthy ones for `pause`, if there are any.
    pub(super) fn rest(&self, pause: Duration) {
        let others_work = |state: &mut QueueState<W, L>| !state.closed && state.is_any_healthy();
        drop(self.changed.wait_timeout_while(self.lock(), pause, others_work).expect("no panic while locked"));
    }
}

impl<W, L> ReplicaQueue<W, L> {
    pub(super) fn lock(&self) -> MutexGuard<'_, QueueState<W, L>> {
        self.state.lock().expect("no panic while locked")
    }

    /// Changes what is shared, and wakes all replicas.
    pub(super) fn change<R>(&self, change: impl FnOnce(&mut QueueState<W, L>) -> R) -> R {
        let changed = change(&mut self.lock());
        self.changed.notify_all();
        changed
    }

    /// Wakes all replicas. The lock orders it behind their last look.
    pub(super) fn wake(&self) {
        self.change(|_| ());
    }

    /// Waits for a wake-up.
    pub(super) fn wait<'a>(&self, state: MutexGuard<'a, QueueState<W, L>>) -> MutexGuard<'a, QueueState<W, L>> {
        self.changed.wait(state).expect("no panic while locked")
    }

    /// The same, not longer than that.
    pub(super) fn wait_at_most<'a>(
        &self,
        state: MutexGuard<'a, QueueState<W, L>>,
        at_most: Duration,
    ) -> MutexGuard<'a, QueueState<W, L>> {
        self.changed.wait_timeout(state, at_most).expect("no panic while locked").0
    }
}
