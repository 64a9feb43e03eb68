//! Lanes: engines that block live on threads of their own, one replica each, and are lent out one user at a time.
//!
//! A stage's local engine (PocketSphinx, flite) builds a [`Pool`] of replicas, takes a [`Lease`] for an utterance or a
//! chunk and runs jobs on it. Waiting is first come first served and bounded: past the bound the answer is
//! [`Overloaded`]. A job that panics loses its replica, which is made anew; the process lives on. A lane knows no stage
//! and sets no deadline: its user does, by dropping the future.

pub mod batch;
mod worker;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use worker::Worker;

/// Too many wait for a replica already.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{waiting} wait for a free lane already")]
pub struct Overloaded {
    /// How many wait.
    pub waiting: usize,
}

/// A job that gave no result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LaneError {
    /// The engine panicked; its replica is made anew.
    #[error("the engine panicked")]
    Panicked,
    /// The replica could not be made anew after a panic, or the pool is shut down.
    #[error("the engine's thread has ended")]
    Ended,
}

/// Replicas of one engine, each on its own thread. Cheap to clone; the threads end when the last clone and the last
/// lease are gone.
pub struct Pool<E> {
    shared: Arc<Shared<E>>,
}

struct Shared<E> {
    permits: Arc<Semaphore>,
    free: Mutex<Vec<Worker<E>>>,
    waiting: AtomicUsize,
    max_waiting: usize,
}

impl<E> Clone for Pool<E> {
    fn clone(&self) -> Self {
        Self { shared: self.shared.clone() }
    }
}

impl<E: 'static> Pool<E> {
    /// Starts `n_replicas` threads, makes an engine on each, in parallel, and blocks until all are made. The first
    /// failure is returned. `make` is called again after a panic.
    pub fn start<X, F>(name: &str, n_replicas: usize, max_waiting: usize, make: F) -> Result<Self, X>
    where
        X: Send + 'static,
        F: Fn() -> Result<E, X> + Send + Sync + 'static,
    {
        let make = Arc::new(make);
        let starts: Vec<_> =
            (0..n_replicas.max(1)).map(|i| Worker::start(&format!("{name}-{i}"), make.clone())).collect();
        let workers = starts.into_iter().map(|start| start.wait()).collect::<Result<Vec<_>, X>>()?;
        let shared = Shared {
            permits: Arc::new(Semaphore::new(workers.len())),
            free: Mutex::new(workers),
            waiting: AtomicUsize::new(0),
            max_waiting,
        };
        Ok(Self { shared: Arc::new(shared) })
    }

    /// Waits for a free replica, first come first served. Dropping the future gives the place up.
    pub async fn lease(&self) -> Result<Lease<E>, Overloaded> {
        let permits = &self.shared.permits;
        let permit = match permits.clone().try_acquire_owned() {
            Ok(permit) => permit,
            Err(_) => {
                let _place = Place::take(&self.shared)?;
                permits.clone().acquire_owned().await.expect("the semaphore is never closed")
            }
        };
        let worker = self.shared.free.lock().expect("no panic while locked").pop();
        let worker = worker.expect("as many workers as permits");
        Ok(Lease(Arc::new(Ticket { worker: Some(worker), shared: self.shared.clone(), _permit: permit })))
    }

    /// How many wait for a replica now.
    pub fn waiting(&self) -> usize {
        self.shared.waiting.load(Ordering::Relaxed)
    }

    /// How many replicas are free now.
    pub fn free(&self) -> usize {
        self.shared.permits.available_permits()
    }
}

/// A place in the queue, counted while it is held.
struct Place<'a>(&'a AtomicUsize);

impl<'a> Place<'a> {
    fn take<E>(shared: &'a Shared<E>) -> Result<Self, Overloaded> {
        let waiting = shared.waiting.fetch_add(1, Ordering::Relaxed);
        let place = Self(&shared.waiting);
        if waiting >= shared.max_waiting { Err(Overloaded { waiting }) } else { Ok(place) }
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// One replica, lent to one user. Dropping it gives the replica back once its last job has ended.
pub struct Lease<E>(Arc<Ticket<E>>);

/// Held by the lease and by each job under way; the last one to go returns the worker.
struct Ticket<E> {
    worker: Option<Worker<E>>,
    shared: Arc<Shared<E>>,
    _permit: OwnedSemaphorePermit,
}

impl<E> Drop for Ticket<E> {
    fn drop(&mut self) {
        // The worker goes back before the permit, which is dropped after this body: a permit always finds a worker.
        if let Some(worker) = self.worker.take() {
            self.shared.free.lock().expect("no panic while locked").push(worker);
        }
    }
}

impl<E: 'static> Lease<E> {
    /// Runs `job` on the engine's thread and waits for its result. Dropping the future does not stop the job: give it a
    /// cancellation token.
    pub async fn run<R, J>(&mut self, job: J) -> Result<R, LaneError>
    where
        R: Send + 'static,
        J: FnOnce(&mut E) -> R + Send + 'static,
    {
        let ticket = self.0.clone();
        let worker = self.0.worker.as_ref().expect("a ticket keeps its worker until it is dropped");
        worker.run(job, ticket).await
    }
}

#[cfg(test)]
#[allow(clippy::disallowed_methods)]
mod tests {
    use super::*;
    use std::convert::Infallible;

    fn pool(n: usize, max_waiting: usize) -> Pool<u32> {
        Pool::start("test", n, max_waiting, || Ok::<_, Infallible>(0)).unwrap_or_else(|never| match never {})
    }

    #[tokio::test]
    async fn a_lease_is_exclusive_and_waiting_is_bounded() {
        let pool = pool(1, 1);
        let mut first = pool.lease().await.expect("free");
        assert_eq!(
            first
                .run(|n| {
                    *n += 1;
                    *n
                })
                .await,
            Ok(1)
        );
        let waiter = tokio::spawn({
            let pool = pool.clone();
            async move { pool.lease().await.map(|_| ()) }
        });
        while pool.waiting() == 0 {
            tokio::task::yield_now().await;
        }
        assert_eq!(pool.lease().await.map(|_| ()), Err(Overloaded { waiting: 1 }));
        drop(first);
        assert_eq!(waiter.await.expect("no panic"), Ok(()));
        assert_eq!(pool.waiting(), 0);
    }

    #[tokio::test]
    async fn a_panic_ends_the_job_and_the_replica_is_made_anew() {
        let pool = pool(1, 8);
        let mut lease = pool.lease().await.expect("free");
        assert_eq!(lease.run(|n| *n = 7).await, Ok(()));
        assert_eq!(lease.run(|_| panic!("on purpose")).await, Err::<(), _>(LaneError::Panicked));
        assert_eq!(lease.run(|n| *n).await, Ok(0));
    }

    #[tokio::test]
    async fn a_replica_comes_back_only_when_its_job_has_ended() {
        let pool = pool(1, 8);
        let (go, wait) = std::sync::mpsc::channel::<()>();
        let mut lease = pool.lease().await.expect("free");
        let job = tokio::spawn(async move { lease.run(move |_| wait.recv()).await.map(|_| ()) });
        tokio::task::yield_now().await;
        job.abort();
        assert!(job.await.is_err());
        assert_eq!(pool.free(), 0);
        go.send(()).expect("the job still runs");
        assert!(pool.lease().await.is_ok());
    }

    #[test]
    fn a_failure_to_make_an_engine_is_returned() {
        assert_eq!(Pool::<u32>::start("test", 2, 8, || Err("no model")).err(), Some("no model"));
    }
}
