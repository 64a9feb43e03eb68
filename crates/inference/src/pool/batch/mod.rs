//! Lanes that batch: replicas of one engine, each on its own thread, take several entries at a time from one queue.
//!
//! A stage's engine that can compute many inputs in one run ([`BatchEngine`]) is driven by a [`BatchScheduler`]; what it is given
//! are [`Entry`]s: one chunk, or one step of a longer one. The rules:
//!
//! - The entry with the earliest deadline leads the next batch; others of its bucket fill it up, by deadline.
//! - A batch that is not full waits at most `max_wait` since its first entry came, and only while nothing else is to do and
//!   none of it is wanted before that: whoever hears silence waits for nobody.
//! - Whichever replica is free takes it, so the least loaded comes first.
//! - An entry that has more steps left goes back into the queue, behind all that waited while it ran, whatever its
//!   deadline: one huge text delays nobody by more than one batch.
//! - An abandoned entry leaves before it costs anything. The queue is bounded; past the bound the answer is
//!   [`Overloaded`].
//! - A run that fails or panics ends the entries it ran, and the replica is restarted; where that fails it is tried again as
//!   entries come, which are left to the other replicas, or failed where none has an engine. The process lives on.
//!
//! Where an engine takes one input a run, a [`Pool`](super::Pool) is simpler. This module knows no stage and sets no
//! deadline; answers travel by whatever channel the entry carries.

mod queue;
mod replica;

use super::Overloaded;
use queue::Queue;
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;
use tokio::time::Instant;

/// One piece of work that waits for a run.
pub trait Entry: Send + 'static {
    /// Only entries of one bucket share a run: those whose inputs have the same shape.
    fn bucket(&self) -> u32;

    /// When its result is wanted; asked when it comes into the queue, also after each step.
    fn deadline(&self) -> Instant;

    /// Whether nobody waits for it any more.
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
    /// What failed for the whole run, in words. What is wrong with one entry is told to that entry.
    fn run(&mut self, batch: &mut Vec<W>) -> Result<(), String>;
}

/// Why entries ended without a result.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BatchFailure {
    /// The engine panicked; its replica is restarted.
    #[error("the engine panicked")]
    Panicked,
    /// The run failed; the replica is restarted.
    #[error("{0}")]
    Failed(String),
    /// After a failure no replica could be restarted; it is tried again with the next entry.
    #[error("the engine cannot be started again: {0}")]
    RestartFailed(String),
}

/// How a lane works.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchSettings {
    /// Replicas, each with its thread, at least 1.
    pub n_replicas: usize,
    /// Entries in one run at most, at least 1.
    pub max_batch: usize,
    /// The longest a free replica waits for a batch to fill, since its first entry came; not at all for one that is wanted
    /// before the wait would be over.
    pub max_wait: Duration,
    /// Entries in the queue; those in a run do not count.
    pub max_waiting: usize,
}

/// Replicas and their queue. Cheap to clone; the threads end when the last clone is gone and the queue is empty.
pub struct BatchScheduler<W: Entry> {
    shared: Arc<Shared<W>>,
    _open: Arc<Open<W>>,
}

/// What the handles and the threads share.
struct Shared<W: Entry> {
    state: Mutex<QueueState<W>>,
    /// An entry came, or the last handle has gone.
    changed: Condvar,
}

struct QueueState<W: Entry> {
    queue: Queue<W>,
    closed: bool,
    /// Replicas that have an engine, or are about to. One without leaves the queue to them.
    n_whole: usize,
}

/// Held by the handles; the last one to go closes the queue.
struct Open<W: Entry>(Arc<Shared<W>>);

impl<W: Entry> Drop for Open<W> {
    fn drop(&mut self) {
        self.0.state.lock().expect("no panic while locked").closed = true;
        self.0.changed.notify_all();
    }
}

impl<W: Entry> Clone for BatchScheduler<W> {
    fn clone(&self) -> Self {
        Self { shared: self.shared.clone(), _open: self._open.clone() }
    }
}

impl<W: Entry> BatchScheduler<W> {
    /// Starts the threads, makes an engine on each, one after the other on one device, and blocks until all are made;
    /// `make` also warms it, so that a started lane is ready. The first failure is returned. `make` is called again after
    /// a failure.
    pub fn start<E, X, F>(name: &str, settings: BatchSettings, make: F) -> Result<Self, X>
    where
        E: BatchEngine<W>,
        X: std::fmt::Display + Send + 'static,
        F: Fn() -> Result<E, X> + Send + Sync + 'static,
    {
        let state = QueueState { queue: Queue::new(settings), closed: false, n_whole: 0 };
        let shared = Arc::new(Shared { state: Mutex::new(state), changed: Condvar::new() });
        let lane = Self { shared: shared.clone(), _open: Arc::new(Open(shared.clone())) };
        let make = Arc::new(make);
        for i in 0..settings.n_replicas.max(1) {
            replica::start(&format!("{name}-{i}"), shared.clone(), make.clone())?;
        }
        Ok(lane)
    }

    /// Puts an entry into the queue. Does not block.
    ///
    /// # Errors
    /// [`Overloaded`], and the entry back, when as many wait as may.
    pub fn submit(&self, entry: W) -> Result<(), (Overloaded, W)> {
        let mut state = self.shared.state.lock().expect("no panic while locked");
        state.queue.push(entry, Instant::now())?;
        drop(state);
        // All of them: one without an engine may be the one that is woken.
        self.shared.changed.notify_all();
        Ok(())
    }

    /// How many entries wait now that somebody still wants. Takes the queue's lock.
    pub fn waiting(&self) -> usize {
        self.shared.state.lock().expect("no panic while locked").queue.len()
    }
}

#[cfg(test)]
mod tests;
