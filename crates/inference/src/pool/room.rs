//! Waiting for room in a bounded queue, in order.
//!
//! One waiter at a time holds the turn and looks for room each time something has left the queue; the others wait for the
//! turn, first come, first served. No wake-up is lost: one that comes before the waiter listens is kept for it.

use tokio::sync::{Notify, Semaphore, SemaphorePermit};

/// See the module.
pub(super) struct Room {
    turn: Semaphore,
    changed: Notify,
}

/// How much of a queue those who wait for room may fill: three quarters. The rest is left to requests that cannot wait.
pub(super) fn share_of_queue(max_waiting: usize) -> usize {
    (max_waiting - max_waiting / 4).max(1)
}

impl Default for Room {
    fn default() -> Self {
        Self { turn: Semaphore::new(1), changed: Notify::new() }
    }
}

impl Room {
    /// Waits for the turn. Dropping the permit passes it on.
    pub(super) async fn turn(&self) -> SemaphorePermit<'_> {
        self.turn.acquire().await.expect("the semaphore is never closed")
    }

    /// Waits until something has left the queue since this was last awaited. Only for the holder of the turn.
    pub(super) async fn changed(&self) {
        self.changed.notified().await;
    }

    /// Something has left the queue.
    pub(super) fn change(&self) {
        self.changed.notify_one();
    }
}
