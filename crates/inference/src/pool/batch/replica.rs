//! A replica of a batch scheduler: a thread that takes batches from the queue and runs its engine on them.

use super::super::queue::Next;
use super::{BatchEngine, BatchFailure, BatchQueue, Entry};
use crate::supervisor::{EnginePanic, Health, Supervisor, catch_panic};
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
    shared: Arc<BatchQueue<W>>,
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
fn work<W, E, X, F>(shared: &BatchQueue<W>, mut supervisor: Supervisor<E, F>)
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
            shared.wake();
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
        let n_entries = batch.len();
        let ran = catch_panic(|| engine.run(&mut batch));
        shared.lock().load -= n_entries;
        let failure = match ran {
            Ok(Ok(())) => {
                has_failed = false;
                pauses.restart();
                shared.put_back(batch);
                continue;
            }
            Ok(Err(message)) => BatchFailure::Failed(message),
            Err(EnginePanic) => BatchFailure::Panicked,
        };
        tracing::error!(n_entries = batch.len(), "a batch failed: {failure}");
        supervisor.stop_failed();
        end(batch, &failure);
        if has_failed {
            // It would fail one batch after the other, and sooner than a healthy replica ends one.
            supervisor.set_failed();
            shared.wake();
            shared.rest(pauses.next().unwrap_or(RESTART.max_pause));
        }
        has_failed = true;
        // While it is restarted it counts as healthy: what waits is not failed for the lack of it. A failure is logged.
        drop(supervisor.engine());
        shared.wake();
    }
}

fn end<W: Entry>(batch: Vec<W>, failure: &BatchFailure) {
    for entry in batch {
        entry.fail(failure.clone());
    }
}

impl<W: Entry> BatchQueue<W> {
    /// Waits for a batch; `None` when the scheduler is closed and nothing waits.
    fn take(&self) -> Option<Vec<W>> {
        let mut state = self.lock();
        loop {
            let now = Instant::now();
            state = match state.queue.next(now) {
                Next::Run(batch) => {
                    state.load += batch.len();
                    drop(state);
                    self.room.change();
                    return Some(batch);
                }
                Next::Empty if state.closed => return None,
                Next::Empty => self.wait(state),
                Next::Wait(until) => self.wait_at_most(state, until - now),
            };
        }
    }

    /// Takes back what has steps left.
    fn put_back(&self, batch: Vec<W>) {
        if !batch.is_empty() {
            self.change(|state| batch.into_iter().for_each(|entry| state.queue.again(entry)));
        }
    }
}
