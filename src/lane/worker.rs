//! One thread with one engine. Used by the pool only.

use super::LaneError;
use std::fmt::Display;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use tokio::sync::{mpsc, oneshot};

/// Jobs that wait on a worker: its one user awaits each, so one is under way and at most one was left behind.
const MAILBOX: usize = 4;

/// What became of an engine after a job.
enum Fate {
    Lives,
    /// It panicked, or the job says that it broke. What comes with it is dropped once the engine was made anew, or could
    /// not be: until then nobody else shall be lent this worker.
    Broken(Box<dyn Send>),
}

type Job<E> = Box<dyn FnOnce(Result<&mut E, LaneError>) -> Fate + Send>;

/// A handle on the thread; the thread ends when it is dropped.
pub(super) struct Worker<E> {
    jobs: mpsc::Sender<Job<E>>,
    /// Set while the thread has no engine.
    is_empty: Arc<AtomicBool>,
}

/// A worker whose engine is being made.
pub(super) struct Starting<E, X> {
    worker: Worker<E>,
    made: std::sync::mpsc::Receiver<Result<(), X>>,
}

impl<E, X> Starting<E, X> {
    /// Blocks until the engine is made.
    pub(super) fn wait(self) -> Result<Worker<E>, X> {
        self.made.recv().expect("the thread reports before it ends")?;
        Ok(self.worker)
    }
}

impl<E> Worker<E> {
    /// Whether its engine is gone and could not be made anew; the next job tries again.
    pub(super) fn is_empty(&self) -> bool {
        self.is_empty.load(Ordering::Acquire)
    }

    /// The same, to be asked without it.
    pub(super) fn emptiness(&self) -> Arc<AtomicBool> {
        self.is_empty.clone()
    }
}

impl<E: 'static> Worker<E> {
    pub(super) fn start<X, F>(name: &str, make: Arc<F>) -> Starting<E, X>
    where
        X: Display + Send + 'static,
        F: Fn() -> Result<E, X> + Send + Sync + 'static,
    {
        let (jobs, mailbox) = mpsc::channel(MAILBOX);
        let (report, made) = std::sync::mpsc::sync_channel(1);
        let is_empty: Arc<AtomicBool> = Arc::default();
        let told = is_empty.clone();
        thread::Builder::new()
            .name(name.to_owned())
            .spawn(move || {
                let engine = match make() {
                    Ok(engine) => engine,
                    Err(error) => return drop(report.send(Err(error))),
                };
                drop(report.send(Ok(())));
                Thread { engine: Some(engine), make: &*make, is_empty: told }.work(mailbox);
            })
            .expect("the system gives a thread");
        Starting { worker: Worker { jobs, is_empty }, made }
    }

    /// Runs a job; `ticket` lives until the job has ended, and where `breaks` says of its result that the engine is
    /// broken, until there was an attempt to make another.
    pub(super) async fn run<R, J, T>(&self, job: J, breaks: fn(&R) -> bool, ticket: T) -> Result<R, LaneError>
    where
        R: Send + 'static,
        J: FnOnce(&mut E) -> R + Send + 'static,
        T: Send + 'static,
    {
        let (answer, result) = oneshot::channel();
        let job: Job<E> = Box::new(move |engine| {
            let (is_broken, outcome) = match engine {
                Ok(engine) => match catch_unwind(AssertUnwindSafe(|| job(engine))) {
                    Ok(value) => (breaks(&value), Ok(value)),
                    Err(_) => (true, Err(LaneError::Panicked)),
                },
                // There is nothing to break.
                Err(error) => (false, Err(error)),
            };
            let fate = if is_broken {
                Fate::Broken(Box::new(ticket))
            } else {
                drop(ticket);
                Fate::Lives
            };
            // Nobody listens any more when the caller was dropped; the work is done all the same.
            let _ = answer.send(outcome);
            fate
        });
        self.jobs.send(job).await.map_err(|_| LaneError::Ended)?;
        result.await.map_err(|_| LaneError::Ended)?
    }
}

/// What the thread has.
struct Thread<'a, E, F> {
    /// `None` after a failure to make it anew.
    engine: Option<E>,
    make: &'a F,
    is_empty: Arc<AtomicBool>,
}

impl<E, X: Display, F: Fn() -> Result<E, X>> Thread<'_, E, F> {
    /// Works until every handle is gone.
    fn work(mut self, mut mailbox: mpsc::Receiver<Job<E>>) {
        while let Some(job) = mailbox.blocking_recv() {
            let made = if self.engine.is_none() { self.make_anew() } else { Ok(()) };
            let engine = made.and_then(|()| self.engine.as_mut().ok_or(LaneError::Ended));
            if let Fate::Broken(ticket) = job(engine) {
                // The old one goes first: two at once may not fit into a device's memory.
                drop(catch_unwind(AssertUnwindSafe(|| drop(self.engine.take()))));
                // A failure is logged; whoever comes next has another try.
                drop(self.make_anew());
                drop(ticket);
            }
        }
    }

    /// Makes an engine after a failure; a panic is a failure like any other.
    fn make_anew(&mut self) -> Result<(), LaneError> {
        let made = match catch_unwind(AssertUnwindSafe(self.make)) {
            Ok(made) => made.map_err(|error| error.to_string()),
            Err(_) => Err("it panicked".into()),
        };
        self.is_empty.store(made.is_err(), Ordering::Release);
        match made {
            Ok(engine) => {
                tracing::warn!("an engine broke and was made anew");
                self.engine = Some(engine);
                Ok(())
            }
            Err(message) => {
                tracing::error!("an engine broke and cannot be made anew: {message}");
                Err(LaneError::NotMade(message))
            }
        }
    }
}
