//! One thread with one engine. Used by the pool only.

use super::PoolError;
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
    /// It panicked, or the job says that it broke. What comes with it is dropped once the engine was restarted, or could
    /// not be: until then nobody else shall be lent this worker.
    Broken(Box<dyn Send>),
    /// It is given back; the next job has another one started.
    GivenBack,
}

type Job<E> = Box<dyn FnOnce(Result<&mut E, PoolError>) -> Fate + Send>;

/// A handle on the thread; the thread ends when it is dropped.
pub(super) struct Worker<E> {
    jobs: mpsc::Sender<Job<E>>,
    /// Set while the thread has no engine because it could not be started.
    has_failed: Arc<AtomicBool>,
    /// The thread has no engine because none is needed. The pool's business: the thread does not read it.
    pub(super) is_asleep: bool,
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
    /// Whether its engine is gone and could not be restarted; the next job tries again.
    pub(super) fn has_failed(&self) -> bool {
        self.has_failed.load(Ordering::Acquire)
    }

    /// The same, to be asked without it.
    pub(super) fn failure(&self) -> Arc<AtomicBool> {
        self.has_failed.clone()
    }

    /// Whether it has an engine, or is starting one.
    pub(super) fn is_ready(&self) -> bool {
        !self.is_asleep && !self.has_failed()
    }

    /// Has a sleeping thread start its engine; does not wait for it.
    pub(super) fn wake(&mut self) {
        // Before any job an engine is started: this one needs nothing of it.
        self.is_asleep = self.jobs.try_send(Box::new(|_| Fate::Lives)).is_err();
    }

    /// Has the thread give its engine back; does not wait for it. `false` where it still has something to do.
    pub(super) fn sleep(&mut self) -> bool {
        self.is_asleep = self.jobs.try_send(Box::new(|_| Fate::GivenBack)).is_ok();
        self.is_asleep
    }
}

impl<E: 'static> Worker<E> {
    pub(super) fn start<X, F>(name: &str, make: Arc<F>) -> Starting<E, X>
    where
        X: Display + Send + 'static,
        F: Fn() -> Result<E, X> + Send + Sync + 'static,
    {
        let (report, made) = std::sync::mpsc::sync_channel(1);
        let worker = Self::spawn(name, move |mailbox, has_failed| {
            let engine = match make() {
                Ok(engine) => engine,
                Err(error) => return drop(report.send(Err(error))),
            };
            drop(report.send(Ok(())));
            Thread { engine: Some(engine), make: &*make, has_failed, is_restart: false }.work(mailbox);
        });
        Starting { worker, made }
    }

    /// A thread that starts its engine with its first job.
    pub(super) fn asleep<X, F>(name: &str, make: Arc<F>) -> Self
    where
        X: Display + Send + 'static,
        F: Fn() -> Result<E, X> + Send + Sync + 'static,
    {
        let worker = Self::spawn(name, move |mailbox, has_failed| {
            Thread { engine: None, make: &*make, has_failed, is_restart: false }.work(mailbox);
        });
        Self { is_asleep: true, ..worker }
    }

    fn spawn(name: &str, run: impl FnOnce(mpsc::Receiver<Job<E>>, Arc<AtomicBool>) + Send + 'static) -> Self {
        let (jobs, mailbox) = mpsc::channel(MAILBOX);
        let has_failed: Arc<AtomicBool> = Arc::default();
        let of_thread = has_failed.clone();
        let thread = thread::Builder::new().name(name.to_owned());
        thread.spawn(move || run(mailbox, of_thread)).expect("the system gives a thread");
        Self { jobs, has_failed, is_asleep: false }
    }

    /// Runs a job; `ticket` lives until the job has ended, and where `breaks` says of its result that the engine is
    /// broken, until there was an attempt to make another.
    pub(super) async fn run<R, J, T>(&self, job: J, breaks: fn(&R) -> bool, ticket: T) -> Result<R, PoolError>
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
                    Err(_) => (true, Err(PoolError::Panicked)),
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
        self.jobs.send(job).await.map_err(|_| PoolError::Ended)?;
        result.await.map_err(|_| PoolError::Ended)?
    }
}

/// What the thread has.
struct Thread<'a, E, F> {
    /// `None` while it sleeps, or after a failure to start it.
    engine: Option<E>,
    make: &'a F,
    has_failed: Arc<AtomicBool>,
    /// The next start follows a failure.
    is_restart: bool,
}

impl<E, X: Display, F: Fn() -> Result<E, X>> Thread<'_, E, F> {
    /// Works until every handle is gone.
    fn work(mut self, mut mailbox: mpsc::Receiver<Job<E>>) {
        while let Some(job) = mailbox.blocking_recv() {
            let started = if self.engine.is_none() { self.start() } else { Ok(()) };
            let engine = started.and_then(|()| self.engine.as_mut().ok_or(PoolError::Ended));
            match job(engine) {
                Fate::Lives => {}
                Fate::GivenBack => self.drop_engine(),
                Fate::Broken(ticket) => {
                    // The old one goes first: two at once may not fit into a device's memory.
                    self.drop_engine();
                    self.is_restart = true;
                    // A failure is logged; the next lease tries again.
                    drop(self.start());
                    drop(ticket);
                }
            }
        }
    }

    /// An engine that panics while it is dropped is gone all the same.
    fn drop_engine(&mut self) {
        drop(catch_unwind(AssertUnwindSafe(|| drop(self.engine.take()))));
    }

    /// Starts the engine; a panic is a failure like any other.
    fn start(&mut self) -> Result<(), PoolError> {
        let made = match catch_unwind(AssertUnwindSafe(self.make)) {
            Ok(made) => made.map_err(|error| error.to_string()),
            Err(_) => Err("it panicked".into()),
        };
        self.has_failed.store(made.is_err(), Ordering::Release);
        match made {
            Ok(engine) => {
                if std::mem::take(&mut self.is_restart) {
                    tracing::warn!("an engine failed and was restarted");
                }
                self.engine = Some(engine);
                Ok(())
            }
            Err(message) => {
                self.is_restart = true;
                tracing::error!("an engine cannot be started: {message}");
                Err(PoolError::RestartFailed(message))
            }
        }
    }
}
