//! Batch scheduling: replicas of one engine, each on its own thread, take several entries at a time from one queue.
//!
//! A stage's engine that can compute many inputs in one run ([`BatchEngine`]) is driven by a [`BatchScheduler`]. Its work
//! items are [`Entry`]s: one chunk, one step of a longer chunk, one question. The rules:
//!
//! - The entry with the earliest deadline leads the next batch; others of its bucket fill it up, by deadline.
//! - A partial batch waits at most `max_wait` since its first entry arrived, and only while there is no other work and none
//!   of its entries is due before that.
//! - Whichever replica is free takes the batch, so the least loaded comes first.
//! - An entry with more steps left goes back into the queue behind all entries that waited while it ran, whatever its
//!   deadline: one long text delays the others by one batch at most.
//! - An abandoned entry is removed before it costs anything. The queue is bounded; past the bound the answer is
//!   [`Overloaded`], or [`BatchScheduler::enqueue`] waits for room.
//! - A run that fails or panics ends the entries it ran, and the engine is restarted; where that fails it is tried again as
//!   entries arrive, which are left to the healthy replicas, or failed where there is none. A replica whose runs fail one
//!   after the other leaves the work to the healthy ones for longer and longer. The process lives on.
//!
//! Where an engine takes one input a run, a [`Pool`](super::Pool) is simpler. This module knows no stage and sets no
//! deadline; answers travel by whatever channel the entry carries.

mod replica;

use super::Overloaded;
use super::queue::Queue;
use super::replica_queue::{QueueHandle, ReplicaQueue};
use crate::supervisor::Health;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// A work item that waits for a run.
pub trait Entry: Send + 'static {
    /// Only entries of one bucket share a run: those whose inputs have the same shape.
    fn bucket(&self) -> u32 {
        0
    }

    /// When its result is due; read when it enters the queue, also after each step.
    fn deadline(&self) -> Instant;

    /// Whether a batch that has it may wait for company; read when it enters the queue.
    fn may_wait(&self) -> bool {
        true
    }

    /// Whether its result is no longer needed.
    fn is_abandoned(&self) -> bool;

    /// Ends it with an error: its run failed.
    fn fail(self, failure: BatchFailure);
}

/// A synchronous engine that runs several entries at once. It lives on one thread.
pub trait BatchEngine<W: Entry>: 'static {
    /// One run: one step of every entry, of which there is at least one, all of one bucket. Entries that are done are
    /// taken out; those that stay come again. Blocks for as long as that takes.
    ///
    /// # Errors
    /// What failed for the whole run, in words; the engine is restarted. The failure of one entry is reported to that entry.
    fn run(&mut self, batch: &mut Vec<W>) -> Result<(), String>;
}

/// Why entries ended without a result.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BatchFailure {
    /// The engine panicked; it is restarted.
    #[error("the engine panicked")]
    Panicked,
    /// The run failed; the engine is restarted.
    #[error("{0}")]
    Failed(String),
    /// After a failure no replica's engine could be restarted; it is tried again with the next entry.
    #[error("the engine cannot be started again: {0}")]
    RestartFailed(String),
}

/// The size of a scheduler, and of its batches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchSettings {
    /// Replicas, each with its thread, at least 1.
    pub n_replicas: usize,
    /// Entries in one run at most, at least 1.
    pub max_batch: usize,
    /// The longest a free replica waits for a batch to fill, since its first entry arrived; it does not wait for an entry
    /// that is due before the wait would be over.
    pub max_wait: Duration,
    /// Entries in the queue; those in a run do not count.
    pub max_waiting: usize,
}

/// Replicas and their queue. Cheap to clone; the threads end when the last clone is gone and the queue is empty.
pub struct BatchScheduler<W: Entry> {
    shared: Arc<BatchQueue<W>>,
    _open: Arc<QueueHandle<W, usize>>,
}

/// Beside the queue: how many entries are in runs.
type BatchQueue<W> = ReplicaQueue<W, usize>;

impl<W: Entry> Clone for BatchScheduler<W> {
    fn clone(&self) -> Self {
        Self { shared: self.shared.clone(), _open: self._open.clone() }
    }
}

impl<W: Entry> BatchScheduler<W> {
    /// Starts the threads and an engine on each, one after the other, and blocks until all run. `make` gets the replica's
    /// number, from 0: the device it runs on may depend on it. It also warms the engine, so that a started scheduler is ready.
    /// The first failure is returned. `make` is called again, with the same number, after a failure.
    pub fn start<E, X, F>(name: &str, settings: BatchSettings, make: F) -> Result<Self, X>
    where
        E: BatchEngine<W>,
        X: std::fmt::Display + Send + 'static,
        F: Fn(usize) -> Result<E, X> + Send + Sync + 'static,
    {
        let health: Vec<Health> = (0..settings.n_replicas.max(1)).map(|_| Health::default()).collect();
        let (shared, open) = ReplicaQueue::new(Queue::new(settings), health.clone(), 0);
        let scheduler = Self { shared: shared.clone(), _open: Arc::new(open) };
        let make = Arc::new(make);
        for (number, health) in health.into_iter().enumerate() {
            replica::start(&format!("{name}-{number}"), shared.clone(), number, health, make.clone())?;
        }
        Ok(scheduler)
    }

    /// As [`start`](Self::start), with an engine that was loaded to look at it: the first one that is needed. The others
    /// are made.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub fn start_with<E, X, F>(name: &str, settings: BatchSettings, first: E, make: F) -> Result<Self, X>
    where
        E: BatchEngine<W> + Send,
        X: std::fmt::Display + Send + 'static,
        F: Fn(usize) -> Result<E, X> + Send + Sync + 'static,
    {
        let first = Mutex::new(Some(first));
        Self::start(name, settings, move |replica| {
            let loaded = first.lock().unwrap_or_else(PoisonError::into_inner).take();
            loaded.map_or_else(|| make(replica), Ok)
        })
    }

    /// Puts an entry into the queue. Does not block.
    ///
    /// # Errors
    /// [`Overloaded`], and the entry back, when the queue is full.
    pub fn submit(&self, entry: W) -> Result<(), (Overloaded, W)> {
        self.shared.push(entry, usize::MAX)
    }

    /// Waits for room in the queue, in order, and puts an entry into it. Those who enqueue leave a quarter of the queue to
    /// those who do not wait for room ([`submit`](Self::submit)). Has no bound and no deadline of its own: dropping the
    /// future drops the entry and gives the turn up.
    pub async fn enqueue(&self, entry: W) {
        self.shared.enqueue(entry).await;
    }

    /// Has those who wait for room look again: an entry may have been abandoned.
    pub fn has_abandoned(&self) {
        self.shared.room.change();
    }

    /// How many entries wait that are not abandoned. Takes the queue's lock.
    pub fn waiting(&self) -> usize {
        self.shared.lock().queue.len()
    }

    /// How many entries are in runs now. Takes the queue's lock.
    pub fn in_service(&self) -> usize {
        self.shared.lock().load
    }
}

#[cfg(test)]
mod tests;
