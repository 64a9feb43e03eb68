//! One thread with one engine. Used by the pool only.

use super::LaneError;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread;
use tokio::sync::{mpsc, oneshot};

/// Jobs that wait on a worker: its one user awaits each, so one is under way and at most one was left behind.
const MAILBOX: usize = 4;

/// What became of an engine after a job.
enum Engine {
    Lives,
    Panicked,
}

type Job<E> = Box<dyn FnOnce(&mut E) -> Engine + Send>;

/// A handle on the thread; the thread ends when it is dropped.
pub(super) struct Worker<E> {
    jobs: mpsc::Sender<Job<E>>,
}

/// A worker whose engine is being made.
pub(super) struct Starting<E, X> {
    jobs: mpsc::Sender<Job<E>>,
    made: std::sync::mpsc::Receiver<Result<(), X>>,
}

impl<E, X> Starting<E, X> {
    /// Blocks until the engine is made.
    pub(super) fn wait(self) -> Result<Worker<E>, X> {
        self.made.recv().expect("the thread reports before it ends")?;
        Ok(Worker { jobs: self.jobs })
    }
}

impl<E: 'static> Worker<E> {
    pub(super) fn start<X, F>(name: &str, make: Arc<F>) -> Starting<E, X>
    where
        X: Send + 'static,
        F: Fn() -> Result<E, X> + Send + Sync + 'static,
    {
        let (jobs, mailbox) = mpsc::channel(MAILBOX);
        let (report, made) = std::sync::mpsc::sync_channel(1);
        thread::Builder::new()
            .name(name.to_owned())
            .spawn(move || work(&*make, mailbox, &report))
            .expect("the system gives a thread");
        Starting { jobs, made }
    }

    /// Runs a job; `ticket` lives until the job has ended.
    pub(super) async fn run<R, J, T>(&self, job: J, ticket: T) -> Result<R, LaneError>
    where
        R: Send + 'static,
        J: FnOnce(&mut E) -> R + Send + 'static,
        T: Send + 'static,
    {
        let (answer, result) = oneshot::channel();
        let job: Job<E> = Box::new(move |engine| {
            let outcome = catch_unwind(AssertUnwindSafe(|| job(engine)));
            let (lives, outcome) = match outcome {
                Ok(value) => (Engine::Lives, Ok(value)),
                Err(_) => (Engine::Panicked, Err(LaneError::Panicked)),
            };
            drop(ticket);
            // Nobody listens any more when the caller was dropped; the work is done all the same.
            let _ = answer.send(outcome);
            lives
        });
        self.jobs.send(job).await.map_err(|_| LaneError::Ended)?;
        result.await.map_err(|_| LaneError::Ended)?
    }
}

/// The thread: makes the engine, reports, works until every handle is gone.
fn work<E, X, F>(make: &F, mut mailbox: mpsc::Receiver<Job<E>>, report: &std::sync::mpsc::SyncSender<Result<(), X>>)
where
    F: Fn() -> Result<E, X>,
{
    let mut engine = match make() {
        Ok(engine) => engine,
        Err(error) => return drop(report.send(Err(error))),
    };
    drop(report.send(Ok(())));
    while let Some(job) = mailbox.blocking_recv() {
        if matches!(job(&mut engine), Engine::Panicked) {
            match make() {
                Ok(fresh) => engine = fresh,
                Err(_) => return tracing::error!("an engine panicked and could not be made anew"),
            }
        }
    }
}
