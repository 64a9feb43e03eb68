//! Engine pools: engines that block run on threads of their own, one replica each, and are leased to one user at a time.
//!
//! A stage's local engine (Whisper, flite) builds a [`Pool`] of replicas, takes a [`Lease`] for an utterance or a
//! chunk and runs jobs on it. Waiting is first come, first served, and bounded: past the bound the answer is
//! [`Overloaded`], or [`Pool::enqueue`] waits for room. A job that panics, or reports that the engine is broken, ends; the
//! engine is restarted, and where that fails it is tried again with the next job. Healthy replicas are leased first, those
//! whose engine cannot start or breaks with each job last. The process lives on. A pool may grow with its use (`free`). It knows no stage and sets no deadline: its user does, by
//! dropping the future.

pub mod batch;
#[cfg(test)]
mod device_tests;
mod free;
mod queue;
mod replica_queue;
mod room;
pub mod slots;
mod worker;

use crate::supervisor::Health;
use free::Free;
use room::Room;
use std::fmt::Display;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Poll;
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::coop::unconstrained;
use tokio::time::timeout;
use worker::Worker;

/// How long the holder of a failed replica waits for a healthy one, which is busy, before it has the engine restarted.
const HEALTHY_DEADLINE: Duration = Duration::from_secs(1);

/// Too many requests wait for a replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{waiting} requests wait for the engine already")]
pub struct Overloaded {
    /// How many wait.
    pub waiting: usize,
}

/// A job that gave no result.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PoolError {
    /// The engine panicked; it is restarted.
    #[error("the engine panicked")]
    Panicked,
    /// The engine failed before and could not be restarted; it is tried again with the next job.
    #[error("the engine cannot be started again: {0}")]
    RestartFailed(String),
    /// The thread is gone.
    #[error("the engine's thread has ended")]
    Ended,
}

/// Replicas of one engine, each on its own thread. Cheap to clone; the threads end when the last clone and the last
/// lease are gone.
pub struct Pool<E> {
    shared: Arc<PoolState<E>>,
}

struct PoolState<E> {
    permits: Arc<Semaphore>,
    free: Arc<Free<E>>,
    /// Of each replica.
    health: Vec<Health>,
    waiting: AtomicUsize,
    max_waiting: usize,
    room: Room,
}

impl<E> Drop for PoolState<E> {
    fn drop(&mut self) {
        self.free.close();
    }
}

impl<E> Clone for Pool<E> {
    fn clone(&self) -> Self {
        Self { shared: self.shared.clone() }
    }
}

impl<E: 'static> Pool<E> {
    /// Starts `n_replicas` threads and an engine on each, in parallel, and blocks until all run. The first failure is
    /// returned. `make` gets the replica's number, from 0: the device it runs on may depend on it. It is called again, with the
    /// same number, when an engine failed.
    pub fn start<X, F>(name: &str, n_replicas: usize, max_waiting: usize, make: F) -> Result<Self, X>
    where
        X: Display + Send + 'static,
        F: Fn(usize) -> Result<E, X> + Send + Sync + 'static,
    {
        let make = Arc::new(make);
        let starts: Vec<_> =
            (0..n_replicas.max(1)).map(|i| Worker::start(&format!("{name}-{i}"), i, make.clone())).collect();
        let workers = starts.into_iter().map(|(worker, starting)| starting.wait().map(|()| worker));
        Ok(Self::of(workers.collect::<Result<Vec<_>, X>>()?, max_waiting, Free::fixed))
    }

    /// The same, one engine after the other: for those that share a device, or files they write while they start.
    pub fn start_in_turn<X, F>(name: &str, n_replicas: usize, max_waiting: usize, make: F) -> Result<Self, X>
    where
        X: Display + Send + 'static,
        F: Fn(usize) -> Result<E, X> + Send + Sync + 'static,
    {
        let make = Arc::new(make);
        let workers = (0..n_replicas.max(1)).map(|i| start_one(name, i, make.clone()));
        Ok(Self::of(workers.collect::<Result<Vec<_>, X>>()?, max_waiting, Free::fixed))
    }

    /// A pool that grows with its use: one engine is started before this returns, and another each time the last one that
    /// is ready is leased, `max_replicas` in all, one after the other. An engine that was not used for `idle`, up to twice
    /// that, is stopped, except for one, which stays ready; it is started again with its own number. Blocks until the first
    /// runs; a lease waits for its own engine.
    pub fn start_elastic<X, F>(
        name: &str,
        max_replicas: usize,
        max_waiting: usize,
        idle: Duration,
        make: F,
    ) -> Result<Self, X>
    where
        X: Display + Send + 'static,
        F: Fn(usize) -> Result<E, X> + Send + Sync + 'static,
    {
        let in_turn = Mutex::new(());
        let make = Arc::new(move |replica| {
            let _turn = in_turn.lock().unwrap_or_else(PoisonError::into_inner);
            make(replica)
        });
        let asleep = (1..max_replicas).map(|i| Worker::asleep(&format!("{name}-{i}"), i, make.clone()));
        let mut workers: Vec<_> = asleep.rev().collect();
        workers.push(start_one(name, 0, make)?);
        Ok(Self::of(workers, max_waiting, |workers| Free::elastic(name, workers, idle)))
    }

    fn of(workers: Vec<Worker<E>>, max_waiting: usize, free: impl FnOnce(Vec<Worker<E>>) -> Arc<Free<E>>) -> Self {
        let shared = PoolState {
            permits: Arc::new(Semaphore::new(workers.len())),
            health: workers.iter().map(Worker::health).collect(),
            free: free(workers),
            waiting: AtomicUsize::new(0),
            max_waiting,
            room: Room::default(),
        };
        Self { shared: Arc::new(shared) }
    }

    /// Waits for a free replica, first come, first served. Dropping the future gives the place up.
    pub async fn lease(&self) -> Result<Lease<E>, Overloaded> {
        Ok(self.try_enqueue(self.shared.max_waiting).await?.lease().await)
    }

    /// Waits for room in the queue, in order, and takes a place in it. Those who enqueue leave a quarter of the queue to those
    /// who do not wait for room ([`lease`](Self::lease)). Has no bound and no deadline of its own: dropping the future
    /// gives the turn up.
    pub async fn enqueue(&self) -> QueuePosition<E> {
        let most = room::share_of_queue(self.shared.max_waiting);
        let _turn = self.shared.room.turn().await;
        loop {
            match self.try_enqueue(most).await {
                Ok(place) => return place,
                Err(Overloaded { .. }) => self.shared.room.changed().await,
            }
        }
    }

    /// A place in the queue where fewer than `most` wait. Does not wait.
    async fn try_enqueue(&self, most: usize) -> Result<QueuePosition<E>, Overloaded> {
        let mut permit: PendingPermit = Box::pin(unconstrained(self.shared.permits.clone().acquire_owned()));
        // The first poll puts it into the semaphore's queue: places keep their order from here on.
        let polled = std::future::poll_fn(|context| Poll::Ready(permit.as_mut().poll(context))).await;
        let (permit, counted) = match polled {
            Poll::Ready(ready) => (Box::pin(std::future::ready(ready)) as PendingPermit, None),
            Poll::Pending => (permit, Some(WaitingGuard::take(&self.shared, most)?)),
        };
        Ok(QueuePosition { permit, pool: self.clone(), counted })
    }

    fn ticket(&self, permit: OwnedSemaphorePermit) -> Ticket<E> {
        Ticket { worker: Some(self.shared.free.take()), shared: self.shared.clone(), _permit: permit }
    }

    /// How many requests wait for a replica now.
    pub fn waiting(&self) -> usize {
        self.shared.waiting.load(Ordering::Relaxed)
    }

    /// How many replicas are free now.
    pub fn free(&self) -> usize {
        self.shared.permits.available_permits()
    }

    /// How many replicas are leased now.
    pub fn in_service(&self) -> usize {
        self.shared.health.len() - self.free()
    }
}

/// Starts one replica and blocks until its engine runs.
fn start_one<E: 'static, X, F>(name: &str, number: usize, make: Arc<F>) -> Result<Worker<E>, X>
where
    X: Display + Send + 'static,
    F: Fn(usize) -> Result<E, X> + Send + Sync + 'static,
{
    let (worker, starting) = Worker::start(&format!("{name}-{number}"), number, make);
    starting.wait().map(|()| worker)
}

type PendingPermit = Pin<Box<dyn Future<Output = Result<OwnedSemaphorePermit, tokio::sync::AcquireError>> + Send>>;

/// A place in a pool's queue. Dropping it gives the place up.
pub struct QueuePosition<E> {
    permit: PendingPermit,
    pool: Pool<E>,
    /// `None`: a replica was free at once.
    counted: Option<WaitingGuard<E>>,
}

impl<E: 'static> QueuePosition<E> {
    /// Waits for a replica.
    pub async fn lease(self) -> Lease<E> {
        let Self { permit, pool, counted } = self;
        let first = pool.ticket(permit.await.expect("the semaphore is never closed"));
        drop(counted);
        if !first.has_failed() || pool.shared.health.iter().all(Health::has_failed) {
            return Lease(Arc::new(first));
        }
        // A failed replica would fail one request after the other while the healthy ones are busy: its holder keeps it from
        // them and waits a little for another.
        let another = timeout(HEALTHY_DEADLINE, pool.shared.permits.clone().acquire_owned()).await;
        let another = another.map(|permit| pool.ticket(permit.expect("the semaphore is never closed")));
        Lease(Arc::new(another.unwrap_or(first)))
    }
}

/// A request that is counted as waiting.
struct WaitingGuard<E>(Arc<PoolState<E>>);

impl<E> WaitingGuard<E> {
    fn take(shared: &Arc<PoolState<E>>, most: usize) -> Result<Self, Overloaded> {
        let one_more = |waiting: usize| (waiting < most).then_some(waiting + 1);
        let counted = shared.waiting.fetch_update(Ordering::AcqRel, Ordering::Acquire, one_more);
        counted.map(|_| Self(shared.clone())).map_err(|waiting| Overloaded { waiting })
    }
}

impl<E> Drop for WaitingGuard<E> {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::AcqRel);
        self.0.room.change();
    }
}

/// One replica, leased to one user. Dropping it gives the replica back once its last job has ended.
pub struct Lease<E>(Arc<Ticket<E>>);

/// Held by the lease and by each job under way; the last one to go returns the worker.
struct Ticket<E> {
    worker: Option<Worker<E>>,
    shared: Arc<PoolState<E>>,
    _permit: OwnedSemaphorePermit,
}

impl<E> Ticket<E> {
    fn has_failed(&self) -> bool {
        self.worker.as_ref().is_some_and(Worker::has_failed)
    }
}

impl<E> Drop for Ticket<E> {
    fn drop(&mut self) {
        // The worker goes back before the permit, which is dropped after this body: a permit always finds a worker.
        if let Some(worker) = self.worker.take() {
            self.shared.free.put(worker);
        }
    }
}

impl<E: 'static> Lease<E> {
    /// Runs `job` on the engine's thread and waits for its result. Dropping the future does not stop the job: give it a
    /// cancellation token.
    pub async fn run<R, J>(&mut self, job: J) -> Result<R, PoolError>
    where
        R: Send + 'static,
        J: FnOnce(&mut E) -> R + Send + 'static,
    {
        self.run_judged(job, |_| false).await
    }

    /// The same. Where `breaks` says of the result that the engine is broken, it is restarted before anybody else leases the
    /// replica.
    pub async fn run_judged<R, J>(&mut self, job: J, breaks: fn(&R) -> bool) -> Result<R, PoolError>
    where
        R: Send + 'static,
        J: FnOnce(&mut E) -> R + Send + 'static,
    {
        let ticket = self.0.clone();
        let worker = self.0.worker.as_ref().expect("a ticket keeps its worker until it is dropped");
        worker.run(job, breaks, ticket).await
    }
}

#[cfg(test)]
#[allow(clippy::disallowed_methods)]
mod tests {
    use super::*;
    use std::convert::Infallible;
    use std::sync::atomic::AtomicBool;

    fn pool(n: usize, max_waiting: usize) -> Pool<u32> {
        Pool::start("test", n, max_waiting, |_| Ok::<_, Infallible>(0)).unwrap_or_else(|never| match never {})
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
    async fn a_panic_ends_the_job_and_the_replica_is_restarted() {
        let pool = pool(1, 8);
        let mut lease = pool.lease().await.expect("free");
        assert_eq!(lease.run(|n| *n = 7).await, Ok(()));
        assert_eq!(lease.run(|_| panic!("on purpose")).await, Err::<(), _>(PoolError::Panicked));
        assert_eq!(lease.run(|n| *n).await, Ok(0));
    }

    /// A pool whose engines cannot be made while the flag is set: by an error, or with `panics` by a panic.
    fn breakable(n: usize, panics: bool) -> (Pool<u32>, Arc<AtomicBool>, Arc<AtomicUsize>) {
        let (no_device, n_made): (Arc<AtomicBool>, Arc<AtomicUsize>) = Default::default();
        let reported = no_device.clone();
        let counts = n_made.clone();
        let make = move |_| {
            if reported.load(Ordering::Relaxed) {
                assert!(!panics, "on purpose");
                return Err("no device");
            }
            Ok(counts.fetch_add(1, Ordering::Relaxed) as u32)
        };
        (Pool::start("test", n, 8, make).expect("made"), no_device, n_made)
    }

    #[tokio::test]
    async fn an_engine_that_cannot_be_restarted_is_tried_again_with_the_next_job() {
        for (panics, why) in [(false, "no device"), (true, "it panicked")] {
            let (pool, no_device, _) = breakable(1, panics);
            no_device.store(true, Ordering::Relaxed);
            let mut lease = pool.lease().await.expect("free");
            assert_eq!(lease.run(|_| panic!("on purpose")).await, Err::<(), _>(PoolError::Panicked));
            assert_eq!(lease.run(|n| *n).await, Err(PoolError::RestartFailed(why.into())));
            no_device.store(false, Ordering::Relaxed);
            assert_eq!(lease.run(|n| *n).await, Ok(1), "the second that was made");
        }
    }

    #[tokio::test]
    async fn a_failed_replica_is_leased_last() {
        let (pool, no_device, _) = breakable(2, false);
        no_device.store(true, Ordering::Relaxed);
        let mut lease = pool.lease().await.expect("free");
        assert_eq!(lease.run(|_| panic!("on purpose")).await, Err::<(), _>(PoolError::Panicked));
        drop(lease);
        // The broken one is back once there was an attempt to restart it.
        while pool.free() < 2 {
            tokio::task::yield_now().await;
        }
        for _ in 0..3 {
            assert!(pool.lease().await.expect("free").run(|n| *n).await.is_ok());
        }
        let mut healthy = pool.lease().await.expect("free");
        let mut broken = pool.lease().await.expect("free");
        assert!(healthy.run(|n| *n).await.is_ok());
        assert_eq!(broken.run(|n| *n).await, Err(PoolError::RestartFailed("no device".into())));
        drop(broken);
        // Who leases it while a healthy one is busy waits a little for that one.
        let waiter = tokio::spawn({
            let pool = pool.clone();
            async move { pool.lease().await.expect("free").run(|n| *n).await }
        });
        while pool.free() > 0 {
            tokio::task::yield_now().await;
        }
        drop(healthy);
        assert!(waiter.await.expect("no panic").is_ok());
    }

    #[tokio::test]
    async fn a_job_that_finds_its_engine_broken_has_it_restarted() {
        let (pool, _, n_made) = breakable(1, false);
        let mut lease = pool.lease().await.expect("free");
        let ask = |answer: Result<(), &'static str>| move |_: &mut u32| answer;
        let breaks = |answer: &Result<(), &'static str>| *answer == Err("the device is gone");
        assert_eq!(lease.run_judged(ask(Err("no such voice")), breaks).await, Ok(Err("no such voice")));
        assert_eq!((lease.run(|n| *n).await, n_made.load(Ordering::Relaxed)), (Ok(0), 1));
        assert_eq!(lease.run_judged(ask(Err("the device is gone")), breaks).await, Ok(Err("the device is gone")));
        assert_eq!((lease.run(|n| *n).await, n_made.load(Ordering::Relaxed)), (Ok(1), 2));
    }

    #[test]
    fn engines_are_made_in_turn_where_that_is_asked_for() {
        let at_once = AtomicUsize::new(0);
        let most = Arc::new(AtomicUsize::new(0));
        let seen = most.clone();
        let make = move |_| {
            seen.fetch_max(at_once.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            // Time for another to begin, if it may.
            (0..1_000).for_each(|_| std::thread::yield_now());
            at_once.fetch_sub(1, Ordering::SeqCst);
            Ok::<_, Infallible>(0)
        };
        let pool: Pool<u32> = Pool::start_in_turn("test", 8, 8, make).unwrap_or_else(|never| match never {});
        assert_eq!((pool.free(), most.load(Ordering::SeqCst)), (8, 1));
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

    /// Runs until nothing of the test's is ready.
    async fn settled() {
        for _ in 0..20 {
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test]
    async fn those_who_wait_for_room_get_it_in_order_as_soon_as_there_is_some() {
        let pool = pool(1, 1);
        let lease = pool.lease().await.expect("free");
        let order: Arc<Mutex<Vec<u32>>> = Arc::default();
        let spawn = |name| {
            let pool = pool.clone();
            let order = order.clone();
            tokio::spawn(async move {
                let place = pool.enqueue().await;
                order.lock().expect("no panic").push(name);
                place.lease().await
            })
        };
        let mut waiters = Vec::new();
        for name in 0..5 {
            waiters.push(spawn(name));
            settled().await;
        }
        assert_eq!(
            (pool.waiting(), order.lock().expect("no panic").clone()),
            (1, vec![0]),
            "one place behind the lease"
        );
        // A waiter that leaves costs no other its turn: neither the first in line nor a later one.
        waiters.remove(3).abort();
        waiters.remove(1).abort();
        settled().await;
        drop(lease);
        for waiter in waiters {
            drop(waiter.await.expect("no panic"));
        }
        assert_eq!((pool.waiting(), order.lock().expect("no panic").clone()), (0, vec![0, 2, 4]));
        assert!(pool.enqueue().await.lease().await.run(|_| ()).await.is_ok());
    }

    #[tokio::test]
    async fn those_who_wait_for_room_leave_some_to_those_who_cannot() {
        let pool = pool(1, 4);
        let _lease = pool.lease().await.expect("free");
        let places = [pool.enqueue().await, pool.enqueue().await, pool.enqueue().await];
        let mut fourth = std::pin::pin!(pool.enqueue());
        let polled = timeout(Duration::from_millis(10), fourth.as_mut()).await;
        assert!(polled.is_err(), "the last quarter is kept");
        let mut waits = std::pin::pin!(pool.lease());
        assert!(timeout(Duration::from_millis(10), waits.as_mut()).await.is_err(), "it waits in the queue");
        assert_eq!(pool.lease().await.map(|_| ()), Err(Overloaded { waiting: 4 }));
        drop(places);
        drop(timeout(Duration::from_secs(20), fourth).await.expect("there is room"));
    }

    #[test]
    fn a_failure_to_make_an_engine_is_returned() {
        assert_eq!(Pool::<u32>::start("test", 2, 8, |_| Err("no model")).err(), Some("no model"));
    }
}
