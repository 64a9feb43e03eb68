//! Slot scheduling, also called continuous batching: replicas of one engine run many sequences step by step, and sequences
//! join and leave between two steps.
//!
//! A stage's engine whose results come one step at a time (a speech language model: one token a step) implements
//! [`SlotEngine`] and is driven by a [`SlotScheduler`]. The rules of a replica's loop:
//!
//! - **Retire**: sequences that are done or abandoned give their slot back.
//! - **Admit**: at most one new sequence a step, so that a newcomer delays those who run by no more than one prefill; all that
//!   wait where a start costs no run ([`SlotEngine::admits_freely`]). The entry with the earliest deadline goes first; the
//!   replica with the fewest sequences takes it.
//! - **Wait**: where every sequence with credit may wait for company ([`SlotEntry::company_until`]) and another one has none yet,
//!   the step waits, until the earliest of these times.
//! - **Step**: one run for all sequences that have credit. One without credit keeps its slot and its state and sits out.
//!
//! A sequence consists of its entry and the engine's state for it. Its row in a batch may change with every step. The queue is
//! bounded; when it is full, [`SlotScheduler::submit`] returns [`Overloaded`] and [`SlotScheduler::enqueue`] waits. A failed or
//! panicked run ends the sequences of its replica, and the supervisor of this crate restarts the engine, after a longer wait at
//! each further failure; the other replicas continue. This module knows no model, sets no deadline and never waits for a reader.

mod replica;
#[cfg(test)]
mod tests;

use super::Overloaded;
use super::batch::{BatchFailure, BatchSettings, Entry};
use super::queue::Queue;
use super::replica_queue::{QueueHandle, ReplicaQueue};
use crate::supervisor::Health;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// A request for a sequence of steps. Its deadline is read when it enters the queue.
pub trait SlotEntry: Entry {
    /// Whether the next step's result has room at its reader. Without, the sequence sits out; the reader that makes
    /// room calls [`SlotScheduler::wake`].
    fn has_credit(&self) -> bool;

    /// Until when its next step may wait for the other sequences to get credit; read while it has some itself. `None`: the step
    /// begins now.
    fn company_until(&self) -> Option<Instant> {
        None
    }
}

/// A running sequence: its entry and the engine's state for it.
pub struct ActiveSequence<W, S> {
    /// The request.
    pub entry: W,
    /// The engine's state.
    pub state: S,
    /// Set by the engine when the sequence needs no further step.
    pub is_done: bool,
}

/// What became of an entry that was admitted.
pub enum Admission<W, S> {
    /// It runs from the next step on.
    Running(ActiveSequence<W, S>),
    /// It ended at once, with its result or its own error, which the engine has passed on.
    Ended,
    /// The engine has no memory for another sequence now: the entry waits until one of those that run has ended. Where none
    /// runs, it fails.
    NoRoom(W, String),
}

/// A synchronous engine of sequences. It lives on one thread.
pub trait SlotEngine<W: SlotEntry>: 'static {
    /// State of one sequence. It is given back to [`end`](Self::end) exactly once, unless the engine is dropped.
    type State: 'static;

    /// Sequences that it can hold at once, at least 1. Does not change.
    fn n_slots(&self) -> usize;

    /// Whether the start of a sequence costs no run, so that all that wait are admitted before the next step. Does not change.
    fn admits_freely(&self) -> bool {
        false
    }

    /// Starts a sequence: the prefill. Blocks for as long as that takes. The failure of the entry alone is passed on to the
    /// entry.
    ///
    /// # Errors
    /// What failed in the engine, with the entry: all its sequences end with it and it is restarted.
    fn admit(&mut self, entry: W) -> Result<Admission<W, Self::State>, (String, W)>;

    /// One step of each of these, of which there is at least one and none has ended. Blocks for as long as the run takes.
    ///
    /// # Errors
    /// What failed for all of them: they end with it, and the engine is restarted.
    fn step(&mut self, running: &mut [&mut ActiveSequence<W, Self::State>]) -> Result<(), String>;

    /// Whether the last step has ended sequences for which the device had no memory. Their slots are not used until
    /// others end.
    fn lacked_memory(&self) -> bool {
        false
    }

    /// Releases what a sequence holds: it is done, or its reader has gone.
    fn end(&mut self, state: Self::State);
}

/// The load of a scheduler now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SlotLoad {
    /// Slots of all replicas that can be used now: none of one that is restarted, fewer of one that has run out of memory.
    pub n_slots: usize,
    /// Sequences that hold one.
    pub in_use: usize,
    /// Entries in the queue that are not abandoned.
    pub waiting: usize,
}

/// Replicas and their queue. Cheap to clone; the threads end when the last clone is gone, the queue is empty and no sequence
/// runs.
pub struct SlotScheduler<W: SlotEntry> {
    shared: Arc<SlotQueue<W>>,
    _open: Arc<QueueHandle<W, Vec<Load>>>,
}

/// The replicas of a slot scheduler know each other's load.
type SlotQueue<W> = ReplicaQueue<W, Vec<Load>>;

/// The load of one replica.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
struct Load {
    /// That can be used now.
    n_slots: usize,
    in_use: usize,
}

impl<W: SlotEntry> Clone for SlotScheduler<W> {
    fn clone(&self) -> Self {
        Self { shared: self.shared.clone(), _open: self._open.clone() }
    }
}

impl<W: SlotEntry> SlotScheduler<W> {
    /// Starts the threads and an engine on each, one after the other, and blocks until all run. `make` gets the replica's
    /// number, from 0, and also warms the engine; it is called again after a failure. The queue holds `waiting_per_slot`
    /// entries for each slot. The first failure is returned.
    pub fn start<E, X, F>(name: &str, n_replicas: usize, waiting_per_slot: usize, make: F) -> Result<Self, X>
    where
        E: SlotEngine<W>,
        X: std::fmt::Display + Send + 'static,
        F: Fn(usize) -> Result<E, X> + Send + Sync + 'static,
    {
        let settings = BatchSettings { n_replicas, max_batch: 1, max_wait: Duration::ZERO, max_waiting: 0 };
        let health: Vec<Health> = (0..n_replicas.max(1)).map(|_| Health::default()).collect();
        let load = vec![Load::default(); health.len()];
        let (shared, open) = ReplicaQueue::new(Queue::new(settings), health.clone(), load);
        let scheduler = Self { shared: shared.clone(), _open: Arc::new(open) };
        let make = Arc::new(make);
        for (number, health) in health.into_iter().enumerate() {
            replica::start(&format!("{name}-{number}"), shared.clone(), number, health, make.clone())?;
        }
        scheduler.shared.change(|state| {
            let n_slots: usize = state.load.iter().map(|load| load.n_slots).sum();
            state.queue.set_max_waiting(n_slots * waiting_per_slot);
        });
        Ok(scheduler)
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

    /// Has the replicas look again: an entry was abandoned, or got credit.
    pub fn wake(&self) {
        self.shared.wake();
        self.shared.room.change();
    }

    /// Slots, sequences and entries. Takes the queue's lock.
    pub fn load(&self) -> SlotLoad {
        let state = self.shared.lock();
        SlotLoad {
            n_slots: state.load.iter().map(|load| load.n_slots).sum(),
            in_use: state.load.iter().map(|load| load.in_use).sum(),
            waiting: state.queue.len(),
        }
    }
}
