//! A replica of a slot scheduler: a thread that owns an engine and its sequences, and runs them step by step.

use super::super::queue::Next;
use super::super::replica_queue::QueueState;
use super::{ActiveSequence, Admission, BatchFailure, Load, SlotEngine, SlotEntry, SlotQueue};
use crate::supervisor::{EnginePanic, Health, Supervisor, catch_panic};
use antiphon_types::RetryPolicy;
use std::fmt::Display;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// Between two attempts to restart an engine, and between two steps of one that fails each, while other replicas work.
const RESTART: RetryPolicy = RetryPolicy::unbounded(Duration::from_secs(1), Duration::from_secs(60));

/// The sequences of a replica, in the order in which they were admitted.
type Sequences<W, S> = Vec<ActiveSequence<W, S>>;

/// Starts the thread and blocks until its engine runs.
pub(super) fn start<W, E, X, F>(
    name: &str,
    shared: Arc<SlotQueue<W>>,
    number: usize,
    health: Health,
    make: Arc<F>,
) -> Result<(), X>
where
    W: SlotEntry,
    E: SlotEngine<W>,
    X: Display + Send + 'static,
    F: Fn(usize) -> Result<E, X> + Send + Sync + 'static,
{
    let known = shared.clone();
    let make = move || {
        let engine = make(number)?;
        known.set_load(number, engine.n_slots().max(1), 0);
        Ok(engine)
    };
    Supervisor::spawn(name, health, make, move |supervisor| work(&shared, number, supervisor)).wait()
}

/// Runs until the scheduler is closed, its queue empty and no sequence left.
fn work<W, E, X, F>(shared: &SlotQueue<W>, number: usize, mut supervisor: Supervisor<E, F>)
where
    W: SlotEntry,
    E: SlotEngine<W>,
    X: Display,
    F: Fn() -> Result<E, X>,
{
    let mut pauses = RESTART.pauses();
    // No step has succeeded since one failed.
    let mut has_failed = false;
    let mut sequences: Sequences<W, E::State> = Vec::new();
    loop {
        let was_running = supervisor.is_running();
        if !was_running && !shared.wait_for_work() {
            return;
        }
        let started = supervisor.engine();
        if !was_running {
            shared.wake();
        }
        let engine = match started {
            Ok(engine) => engine,
            Err(message) => {
                let pause = pauses.next().unwrap_or(RESTART.max_pause);
                let failure = BatchFailure::RestartFailed(message);
                shared.take_if_none_is_healthy(pause).into_iter().for_each(|entry| entry.fail(failure.clone()));
                continue;
            }
        };
        let failure = match catch_panic(|| serve(shared, number, engine, &mut sequences, &mut has_failed)) {
            Ok(Ok(())) => return,
            Ok(Err(message)) => BatchFailure::Failed(message),
            Err(EnginePanic) => BatchFailure::Panicked,
        };
        tracing::error!(n_sequences = sequences.len(), "a step failed: {failure}");
        // The states go first: they may hold memory of the engine.
        let entries: Vec<W> = sequences.drain(..).map(|sequence| sequence.entry).collect();
        supervisor.stop_failed();
        entries.into_iter().for_each(|entry| entry.fail(failure.clone()));
        // While it is restarted it has no slots, so that the others do not wait for it.
        shared.set_load(number, 0, 0);
        if has_failed {
            // It would fail one entry after the other: without sequences it is the least loaded.
            supervisor.set_failed();
            shared.wake();
            shared.rest(pauses.next().unwrap_or(RESTART.max_pause));
        } else {
            pauses.restart();
        }
        has_failed = true;
        drop(supervisor.engine());
        shared.wake();
    }
}

/// The loop of a running engine: `Ok` when the scheduler is closed and nothing is left to do.
fn serve<W: SlotEntry, E: SlotEngine<W>>(
    shared: &SlotQueue<W>,
    number: usize,
    engine: &mut E,
    sequences: &mut Sequences<W, E::State>,
    has_failed: &mut bool,
) -> Result<(), String> {
    // Fewer than the engine has after it has run out of memory; one more with each sequence that ends.
    let n_slots = engine.n_slots().max(1);
    let mut n_usable = n_slots;
    loop {
        n_usable = (n_usable + retire(engine, sequences)).min(n_slots);
        shared.set_load(number, n_usable, sequences.len());
        match shared.next(number, sequences, n_usable) {
            Turn::Closed => return Ok(()),
            Turn::Step => {}
            Turn::Admit(entry) => match engine.admit(entry) {
                Ok(Admission::Running(running)) => {
                    sequences.push(running);
                    if engine.admits_freely() {
                        continue;
                    }
                }
                Ok(Admission::Ended) => {}
                Ok(Admission::NoRoom(entry, message)) if sequences.is_empty() => {
                    entry.fail(BatchFailure::Failed(message));
                }
                Ok(Admission::NoRoom(entry, message)) => {
                    n_usable = sequences.len();
                    tracing::warn!(n_slots = n_usable, "no memory for another sequence: {message}");
                    shared.put_back(entry);
                }
                Err((message, entry)) => {
                    entry.fail(BatchFailure::Failed(message.clone()));
                    return Err(message);
                }
            },
        }
        let mut running: Vec<&mut ActiveSequence<W, E::State>> =
            sequences.iter_mut().filter(|sequence| !sequence.is_done && sequence.entry.has_credit()).collect();
        if !running.is_empty() {
            engine.step(&mut running)?;
            *has_failed = false;
            if engine.lacked_memory() {
                retire(engine, sequences);
                n_usable = sequences.len().max(1);
            }
        }
    }
}

/// Gives the slots of those back that are done or abandoned, and says how many they were.
fn retire<W: SlotEntry, E: SlotEngine<W>>(engine: &mut E, sequences: &mut Sequences<W, E::State>) -> usize {
    let ended = sequences.extract_if(.., |sequence| sequence.is_done || sequence.entry.is_abandoned());
    ended.map(|sequence| engine.end(sequence.state)).count()
}

/// What a replica does before its next step.
enum Turn<W> {
    /// Starts this one, then steps.
    Admit(W),
    /// Steps.
    Step,
    /// Ends.
    Closed,
}

impl<W: SlotEntry> SlotQueue<W> {
    /// Sets a replica's load. The others are woken where it changed: another one may be the least loaded now.
    fn set_load(&self, number: usize, n_slots: usize, in_use: usize) {
        let load = Load { n_slots, in_use };
        if self.lock().load[number] != load {
            self.change(|state| state.load[number] = load);
        }
    }

    /// Decides about the next step; waits where no sequence can run and nothing is to be admitted.
    fn next<S>(&self, number: usize, sequences: &Sequences<W, S>, n_usable: usize) -> Turn<W> {
        let mut state = self.lock();
        loop {
            if sequences.len() < n_usable && is_least_loaded(&state, number) {
                match state.queue.next(Instant::now()) {
                    Next::Run(mut entries) => {
                        state.load[number].in_use += 1;
                        let is_more = state.queue.len() > 0;
                        drop(state);
                        if is_more {
                            // Another replica may hold the fewest sequences now.
                            self.wake();
                        }
                        self.room.change();
                        return Turn::Admit(entries.pop().expect("a batch has an entry"));
                    }
                    Next::Wait(_) | Next::Empty => {}
                }
            }
            let can_run = |running: &ActiveSequence<W, S>| {
                !running.is_done && (running.entry.has_credit() || running.entry.is_abandoned())
            };
            if sequences.iter().any(can_run) {
                let wait = company_until(sequences).map(|until| until.saturating_duration_since(Instant::now()));
                match wait.filter(|wait| !wait.is_zero()) {
                    Some(wait) => state = self.wait_at_most(state, wait),
                    None => return Turn::Step,
                }
                continue;
            }
            if state.closed && sequences.is_empty() && state.queue.len() == 0 {
                return Turn::Closed;
            }
            state = self.wait(state);
        }
    }

    /// Takes back an entry that was not admitted. It keeps its place in the bound.
    fn put_back(&self, entry: W) {
        self.change(|state| state.queue.put_back(entry));
    }
}

/// Until when the next step waits for sequences that have no credit yet. `None`: it begins now, since all have some, one may not
/// wait, or one is to be retired.
fn company_until<W: SlotEntry, S>(sequences: &Sequences<W, S>) -> Option<Instant> {
    let mut until: Option<Instant> = None;
    let mut is_complete = true;
    for sequence in sequences {
        if sequence.is_done || sequence.entry.is_abandoned() {
            return None;
        }
        if !sequence.entry.has_credit() {
            is_complete = false;
            continue;
        }
        let own = sequence.entry.company_until()?;
        until = Some(until.map_or(own, |until| until.min(own)));
    }
    until.filter(|_| !is_complete)
}

/// Whether no healthy replica with a free slot holds fewer sequences. One that is in the middle of a step takes the entry
/// after it.
fn is_least_loaded<W>(state: &QueueState<W, Vec<Load>>, number: usize) -> bool {
    let mine = state.load[number].in_use;
    let others = state.load.iter().zip(&state.health).enumerate().filter(|(i, _)| *i != number);
    !others
        .filter(|(_, (other, health))| !health.has_failed() && other.in_use < other.n_slots)
        .any(|(_, (other, _))| other.in_use < mine)
}
