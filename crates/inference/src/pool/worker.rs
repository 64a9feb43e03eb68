//! A replica of a pool: a thread that runs one job after the other on its engine.

use super::PoolError;
use crate::supervisor::{EnginePanic, FirstStart, Health, Supervisor, catch_panic};
use std::fmt::Display;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use tokio::sync::{mpsc, oneshot};

/// Jobs that wait on a worker: its one user awaits each, so one is under way and at most one was left behind.
const MAILBOX: usize = 4;

/// What becomes of an engine after a job.
enum Fate {
    Keep,
    /// It panicked, or the job reported that it is broken: it is restarted. The value is dropped once the engine was
    /// restarted, or could not be: until then the worker is not leased again.
    Restart(Box<dyn Send>),
    /// It is stopped; the next job starts another one.
    Stop,
}

type Job<E> = Box<dyn FnOnce(Result<&mut E, PoolError>) -> Fate + Send>;

/// A handle on the thread; the thread ends when it is dropped.
pub(super) struct Worker<E> {
    jobs: mpsc::Sender<Job<E>>,
    health: Health,
    /// Jobs in a row that broke the engine.
    n_broken: Arc<AtomicU32>,
    /// The thread has no engine because none is needed. Only the pool reads it.
    pub(super) is_asleep: bool,
}

impl<E> Worker<E> {
    /// Whether its engine could not be started; the next job tries again.
    pub(super) fn has_failed(&self) -> bool {
        self.health.has_failed()
    }

    /// Whether others are leased before it: its engine could not be started, or breaks with each job.
    pub(super) fn is_last_resort(&self) -> bool {
        self.has_failed() || self.n_broken.load(Ordering::Relaxed) > 1
    }

    /// Whether its engine could not be started, readable without the worker.
    pub(super) fn health(&self) -> Health {
        self.health.clone()
    }

    /// Whether it has an engine, or is starting one.
    pub(super) fn is_ready(&self) -> bool {
        !self.is_asleep && !self.has_failed()
    }

    /// Has a sleeping thread start its engine; does not wait for it.
    pub(super) fn wake(&mut self) {
        // An engine is started before any job: this one needs nothing of it.
        self.is_asleep = self.jobs.try_send(Box::new(|_| Fate::Keep)).is_err();
    }

    /// Has the thread stop its engine; does not wait for it. `false` where it still has something to do.
    pub(super) fn sleep(&mut self) -> bool {
        self.is_asleep = self.jobs.try_send(Box::new(|_| Fate::Stop)).is_ok();
        self.is_asleep
    }
}

impl<E: 'static> Worker<E> {
    /// A thread that is starting its engine: the replica of that number in its pool.
    pub(super) fn start<X, F>(name: &str, number: usize, make: Arc<F>) -> (Self, FirstStart<X>)
    where
        X: Display + Send + 'static,
        F: Fn(usize) -> Result<E, X> + Send + Sync + 'static,
    {
        let (worker, mailbox) = Self::new(false);
        let starting =
            Supervisor::spawn(name, worker.health(), move || make(number), |supervisor| work(supervisor, mailbox));
        (worker, starting)
    }

    /// A thread that starts its engine with its first job.
    pub(super) fn asleep<X, F>(name: &str, number: usize, make: Arc<F>) -> Self
    where
        X: Display + Send + 'static,
        F: Fn(usize) -> Result<E, X> + Send + Sync + 'static,
    {
        let (worker, mailbox) = Self::new(true);
        Supervisor::spawn_stopped(name, worker.health(), move || make(number), |supervisor| work(supervisor, mailbox));
        worker
    }

    fn new(is_asleep: bool) -> (Self, mpsc::Receiver<Job<E>>) {
        let (jobs, mailbox) = mpsc::channel(MAILBOX);
        (Self { jobs, health: Health::default(), n_broken: Arc::default(), is_asleep }, mailbox)
    }

    /// Runs a job; `ticket` lives until the job has ended, and where `breaks` says of its result that the engine is
    /// broken, until there was an attempt to restart it.
    pub(super) async fn run<R, J, T>(&self, job: J, breaks: fn(&R) -> bool, ticket: T) -> Result<R, PoolError>
    where
        R: Send + 'static,
        J: FnOnce(&mut E) -> R + Send + 'static,
        T: Send + 'static,
    {
        let (answer, result) = oneshot::channel();
        let n_broken = self.n_broken.clone();
        let job: Job<E> = Box::new(move |engine| {
            let (is_broken, outcome) = match engine {
                Ok(engine) => match catch_panic(|| job(engine)) {
                    Ok(value) => (breaks(&value), Ok(value)),
                    Err(EnginePanic) => (true, Err(PoolError::Panicked)),
                },
                // There is nothing to break.
                Err(error) => (false, Err(error)),
            };
            let fate = if is_broken {
                n_broken.fetch_add(1, Ordering::Relaxed);
                Fate::Restart(Box::new(ticket))
            } else {
                // A job that found no engine says nothing about one.
                if outcome.is_ok() {
                    n_broken.store(0, Ordering::Relaxed);
                }
                drop(ticket);
                Fate::Keep
            };
            // The caller may have been dropped; the work is done all the same.
            let _ = answer.send(outcome);
            fate
        });
        self.jobs.send(job).await.map_err(|_| PoolError::Ended)?;
        result.await.map_err(|_| PoolError::Ended)?
    }
}

/// Runs jobs until every handle is gone.
fn work<E, X, F>(mut supervisor: Supervisor<E, F>, mut mailbox: mpsc::Receiver<Job<E>>)
where
    X: Display,
    F: Fn() -> Result<E, X>,
{
    while let Some(job) = mailbox.blocking_recv() {
        match job(supervisor.engine().map_err(PoolError::RestartFailed)) {
            Fate::Keep => {}
            Fate::Stop => supervisor.stop(),
            Fate::Restart(ticket) => {
                supervisor.stop_failed();
                // A failure is logged; the next lease tries again.
                drop(supervisor.engine());
                drop(ticket);
            }
        }
    }
}
