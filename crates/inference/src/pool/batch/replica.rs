//! One thread with one engine, which takes batches from the queue. Used by the lane only.

use super::queue::Next;
use super::{BatchEngine, BatchFailure, Entry, Shared};
use std::fmt::Display;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread;
use std::time::Duration;
use tokio::time::Instant;

/// Between two tries to make an engine anew while others work; doubled each time.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// Starts the thread and blocks until its engine is made.
pub(super) fn start<W, E, X, F>(name: &str, shared: Arc<Shared<W>>, make: Arc<F>) -> Result<(), X>
where
    W: Entry,
    E: BatchEngine<W>,
    X: Display + Send + 'static,
    F: Fn() -> Result<E, X> + Send + Sync + 'static,
{
    let (report, made) = sync_channel(1);
    thread::Builder::new()
        .name(name.to_owned())
        .spawn(move || work(&shared, &*make, &report))
        .expect("the system gives a thread");
    made.recv().expect("the thread reports before it ends")
}

/// The thread: makes the engine, reports, runs batches until the lane is closed and its queue empty.
fn work<W, E, X, F>(shared: &Shared<W>, make: &F, report: &SyncSender<Result<(), X>>)
where
    W: Entry,
    E: BatchEngine<W>,
    X: Display,
    F: Fn() -> Result<E, X>,
{
    let made = match make() {
        Ok(engine) => engine,
        Err(error) => return drop(report.send(Err(error))),
    };
    shared.count_whole(1);
    drop(report.send(Ok(())));
    let (mut engine, mut pause) = (Some(made), FIRST_PAUSE);
    loop {
        let Some(running) = &mut engine else {
            if !shared.wait_for_work() {
                return;
            }
            match again(make) {
                Ok(made) => {
                    (engine, pause) = (Some(made), FIRST_PAUSE);
                    shared.count_whole(1);
                }
                Err(failure) => {
                    end(shared.take_if_none_is_whole(pause), &failure);
                    pause = (2 * pause).min(LONGEST_PAUSE);
                }
            }
            continue;
        };
        let Some(mut batch) = shared.take() else { return };
        let failure = match catch_unwind(AssertUnwindSafe(|| running.run(&mut batch))) {
            Ok(Ok(())) => {
                shared.put_back(batch);
                continue;
            }
            Ok(Err(message)) => BatchFailure::Failed(message),
            Err(_) => BatchFailure::Panicked,
        };
        tracing::error!(n_entries = batch.len(), "a run failed: {failure}; the engine is restarted");
        // The old one goes first: two at once may not fit into a device's memory.
        drop(catch_unwind(AssertUnwindSafe(|| drop(engine.take()))));
        end(batch, &failure);
        // While it is being made it counts as whole: what waits is not failed for the lack of it.
        engine = again(make).ok();
        if engine.is_none() {
            shared.count_whole(-1);
        }
    }
}

/// Makes an engine after a failure; a panic is a failure like any other.
fn again<E, X: Display, F: Fn() -> Result<E, X>>(make: &F) -> Result<E, BatchFailure> {
    let made = match catch_unwind(AssertUnwindSafe(make)) {
        Ok(made) => made.map_err(|error| error.to_string()),
        Err(_) => Err("it panicked".into()),
    };
    made.map_err(|message| {
        tracing::error!("the engine cannot be restarted: {message}");
        BatchFailure::RestartFailed(message)
    })
}

fn end<W: Entry>(batch: Vec<W>, failure: &BatchFailure) {
    for entry in batch {
        entry.fail(failure.clone());
    }
}

impl<W: Entry> Shared<W> {
    /// Waits for a batch; `None` when the lane is closed and nothing waits.
    fn take(&self) -> Option<Vec<W>> {
        let mut state = self.state.lock().expect("no panic while locked");
        loop {
            let now = Instant::now();
            state = match state.queue.next(now) {
                Next::Run(batch) => return Some(batch),
                Next::Empty if state.closed => return None,
                Next::Empty => self.changed.wait(state).expect("no panic while locked"),
                Next::Wait(until) => self.changed.wait_timeout(state, until - now).expect("no panic while locked").0,
            };
        }
    }

    /// Of a replica without an engine: waits until there is something to make one for, and takes nothing. `false` when the
    /// lane is closed and this replica is not needed.
    fn wait_for_work(&self) -> bool {
        let mut state = self.state.lock().expect("no panic while locked");
        loop {
            let is_idle = state.queue.len() == 0;
            if state.closed && (is_idle || state.n_whole > 0) {
                return false;
            }
            if !is_idle {
                return true;
            }
            state = self.changed.wait(state).expect("no panic while locked");
        }
    }

    /// Of a replica that could make no engine: what is to fail of it, which is nothing while another one has an engine and
    /// will come to it. Then it lets that one work before it tries again.
    fn take_if_none_is_whole(&self, pause: Duration) -> Vec<W> {
        let until = Instant::now() + pause;
        let mut state = self.state.lock().expect("no panic while locked");
        loop {
            if state.n_whole == 0 {
                return state.queue.all();
            }
            let left = until.saturating_duration_since(Instant::now());
            if state.closed || left.is_zero() {
                return Vec::new();
            }
            state = self.changed.wait_timeout(state, left).expect("no panic while locked").0;
        }
    }

    /// Counts the replicas that have an engine, or had one and make another.
    fn count_whole(&self, more: isize) {
        let mut state = self.state.lock().expect("no panic while locked");
        state.n_whole = state.n_whole.saturating_add_signed(more);
        drop(state);
        // One that lets others work is to know when none is left.
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
