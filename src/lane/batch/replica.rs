//! One thread with one engine, which takes batches from the queue. Used by the lane only.

use super::queue::Next;
use super::{BatchEngine, BatchFailure, Entry, Shared};
use std::fmt::Display;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread;
use tokio::time::Instant;

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
    drop(report.send(Ok(())));
    let mut engine = Some(made);
    while let Some(mut batch) = shared.take() {
        if engine.is_none() {
            match again(make) {
                Ok(made) => engine = Some(made),
                Err(failure) => {
                    end(batch, &failure);
                    continue;
                }
            }
        }
        let running = engine.as_mut().expect("made just now");
        let failure = match catch_unwind(AssertUnwindSafe(|| running.run(&mut batch))) {
            Ok(Ok(())) => {
                shared.put_back(batch);
                continue;
            }
            Ok(Err(message)) => BatchFailure::Failed(message),
            Err(_) => BatchFailure::Panicked,
        };
        tracing::error!(n_entries = batch.len(), "a run failed: {failure}; the engine is made anew");
        // The old one goes first: two at once may not fit into a device's memory.
        drop(catch_unwind(AssertUnwindSafe(|| drop(engine.take()))));
        end(batch, &failure);
        engine = again(make).ok();
    }
}

/// Makes an engine after a failure; a panic is a failure like any other.
fn again<E, X: Display, F: Fn() -> Result<E, X>>(make: &F) -> Result<E, BatchFailure> {
    let made = match catch_unwind(AssertUnwindSafe(make)) {
        Ok(made) => made.map_err(|error| error.to_string()),
        Err(_) => Err("it panicked".into()),
    };
    made.map_err(|message| {
        tracing::error!("the engine cannot be made anew: {message}");
        BatchFailure::NotMade(message)
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
