//! A replica of a batch scheduler: a thread that takes batches from the queue and runs its engine on them.

use super::super::queue::Next;
use super::{BatchEngine, BatchFailure, Entry, QueueState, Shared};
use crate::supervisor::{Health, Panicked, Supervisor, catch_panic};
use antiphon_types::RetryPolicy;
use std::fmt::Display;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// Between two attempts to restart an engine, and between two runs of one that fails each, while other replicas work.
const RESTART: RetryPolicy = RetryPolicy::unbounded(Duration::from_secs(1), Duration::from_secs(60));

/// Starts the thread and blocks until its engine runs.
pub(super) fn start<W, E, X, F>(
    name: &str,
    shared: Arc<Shared<W>>,
    number: usize,
    health: Health,
    make: Arc<F>,
) -> Result<(), X>
where
    W: Entry,
    E: BatchEngine<W>,
    X: Display + Send + 'static,
    F: Fn(usize) -> Result<E, X> + Send + Sync + 'static,
{
    Supervisor::spawn(name, health, move || make(number), move |supervisor| work(&shared, supervisor)).wait()
}

/// Runs batches until the scheduler is closed and its queue empty.
fn work<W, E, X, F>(shared: &Shared<W>, mut supervisor: Supervisor<E, F>)
where
    W: Entry,
    E: BatchEngine<W>,
    X: Display,
    F: Fn() -> Result<E, X>,
{
    let mut pauses = RESTART.pauses();
    // The last run failed.
    let mut has_failed = false;
    loop {
        let was_running = supervisor.is_running();
        if !was_running && !shared.wait_for_work() {
            return;
        }
        let started = supervisor.engine();
        if !was_running {
            shared.health_changed();
        }
        let engine = match started {
            Ok(engine) => engine,
            Err(message) => {
                let pause = pauses.next().unwrap_or(RESTART.max_pause);
                end(shared.take_if_none_is_healthy(pause), &BatchFailure::RestartFailed(message));
                continue;
            }
        };
        let Some(mut batch) = shared.take() else { return };
        let failure = match catch_panic(|| engine.run(&mut batch)) {
            Ok(Ok(())) => {
                has_failed = false;
                pauses.restart();
                shared.put_back(batch);
                continue;
            }
            Ok(Err(message)) => BatchFailure::Failed(message),
            Err(Panicked) => BatchFailure::Panicked,
        };
        tracing::error!(n_entries = batch.len(), "a batch failed: {failure}");
        supervisor.stop_failed();
        end(batch, &failure);
        if has_failed {
            // It would fail one batch after the other, and sooner than a healthy replica ends one.
            supervisor.set_failed();
            shared.health_changed();
            shared.rest(pauses.next().unwrap_or(RESTART.max_pause));
        }
        has_failed = true;
        // While it is restarted it counts as healthy: what waits is not failed for the lack of it. A failure is logged.
        drop(supervisor.engine());
        shared.health_changed();
    }
}

fn end<W: Entry>(batch: Vec<W>, failure: &BatchFailure) {
    for entry in batch {
        entry.fail(failure.clone());
    }
}

impl<W: Entry> Shared<W> {
    /// Waits for a batch; `None` when the scheduler is closed and nothing waits.
    fn take(&self) -> Option<Vec<W>> {
        let mut state = self.state.lock().expect("no panic while locked");
        loop {
            let now = Instant::now();
            state = match state.queue.next(now) {
                Next::Run(batch) => {
                    drop(state);
                    self.room.change();
                    return Some(batch);
                }
                Next::Empty if state.closed => return None,
                Next::Empty => self.changed.wait(state).expect("no panic while locked"),
                Next::Wait(until) => self.changed.wait_timeout(state, until - now).expect("no panic while locked").0,
            };
        }
    }

    /// For a replica without an engine: waits until there is something to start one for, and takes nothing. `false` when
    /// the scheduler is closed and this replica is not needed.
    fn wait_for_work(&self) -> bool {
        let mut state = self.state.lock().expect("no panic while locked");
        loop {
            let is_idle = state.queue.len() == 0;
            if state.closed && (is_idle || state.is_any_healthy()) {
                return false;
            }
            if !is_idle {
                return true;
            }
            state = self.changed.wait(state).expect("no panic while locked");
        }
    }

    /// For a replica that could not start its engine: the entries that fail with it, which are none while another replica
    /// is healthy and will serve them. Then it lets that one work for `pause` before it tries again.
    fn take_if_none_is_healthy(&self, pause: Duration) -> Vec<W> {
        let until = Instant::now() + pause;
        let mut state = self.state.lock().expect("no panic while locked");
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
            state = self.changed.wait_timeout(state, left).expect("no panic while locked").0;
        }
    }

    /// For a replica that counts as failed: leaves the work to the healthy ones for `pause`, if there are any.
    fn rest(&self, pause: Duration) {
        let state = self.state.lock().expect("no panic while locked");
        let others_work = |state: &mut QueueState<W>| !state.closed && state.is_any_healthy();
        drop(self.changed.wait_timeout_while(state, pause, others_work).expect("no panic while locked"));
    }

    /// Wakes the replicas that wait for another one's engine. The lock orders it behind their look at the health.
    fn health_changed(&self) {
        drop(self.state.lock().expect("no panic while locked"));
        self.changed.notify_all();
    }

    /// Takes back what has steps left.
    fn put_back(&self, batch: Vec<W>) {
        if batch.is_empty() {
            return;
        }
        let mut state = self.state.lock().expect("no panic while locked");
        for entry in batch {
            state.queue.again(entry);
        }
        drop(state);
        self.changed.notify_all();
    }
}
