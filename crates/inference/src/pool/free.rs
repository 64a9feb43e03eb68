//! The replicas of a pool that are not leased.
//!
//! [`super::Pool`] takes replicas from here and puts them back. In an elastic pool a replica may be asleep: its thread runs
//! without an engine. One replica with an engine is kept ready for the next lease; a separate thread (the keeper) puts idle
//! replicas to sleep. Engines are started and stopped on the replicas' threads.

use super::worker::Worker;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

/// See the module.
pub(super) struct Free<E> {
    list: Mutex<List<E>>,
    /// A replica came back, or the pool has ended.
    changed: Condvar,
    /// Replicas may sleep.
    is_elastic: bool,
}

struct List<E> {
    /// Leased from the end: those that failed come first, then those asleep, then those with an engine, by their last use.
    idle: Vec<Idle<E>>,
    is_closed: bool,
}

struct Idle<E> {
    worker: Worker<E>,
    /// It came back before the keeper looked last, and was not leased since.
    is_unused: bool,
}

impl<E> List<E> {
    /// Those that hold an engine or are starting one, the one used last at the end.
    fn awake(&mut self) -> impl DoubleEndedIterator<Item = &mut Idle<E>> {
        self.idle.iter_mut().filter(|idle| idle.worker.is_ready())
    }

    fn has_spare(&mut self) -> bool {
        self.awake().nth(1).is_some()
    }

    /// Puts replicas to sleep that were not used since the last call, except for the one used last.
    fn put_unused_to_sleep(&mut self) {
        for idle in self.awake().rev().skip(1) {
            // A replica that is still starting is busy; the next call sees it again.
            if idle.is_unused {
                idle.worker.sleep();
            }
            idle.is_unused = true;
        }
    }
}

impl<E: 'static> Free<E> {
    /// All replicas hold an engine, always.
    pub(super) fn fixed(workers: Vec<Worker<E>>) -> Arc<Self> {
        Arc::new(Self::of(workers, false))
    }

    /// Replicas that were not used for `idle`, up to twice that, are put to sleep, except for one. `workers`: those asleep
    /// first.
    pub(super) fn elastic(name: &str, workers: Vec<Worker<E>>, idle: Duration) -> Arc<Self> {
        let free = Arc::new(Self::of(workers, true));
        let kept = free.clone();
        let keeper = thread::Builder::new().name(format!("{name}-keeper"));
        keeper.spawn(move || kept.keep(idle)).expect("the system gives a thread");
        free
    }
}

impl<E> Free<E> {
    fn of(workers: Vec<Worker<E>>, is_elastic: bool) -> Self {
        let idle = workers.into_iter().map(|worker| Idle { worker, is_unused: false }).collect();
        Self { list: Mutex::new(List { idle, is_closed: false }), changed: Condvar::new(), is_elastic }
    }

    /// A replica, one with an engine where there is one; the caller holds a permit for it. In an elastic pool the next one is
    /// made ready.
    pub(super) fn take(&self) -> Worker<E> {
        let mut list = self.lock();
        let mut worker = list.idle.pop().expect("as many replicas as permits").worker;
        worker.is_asleep = false;
        if self.is_elastic
            && let Some(next) = list.idle.last_mut()
            && next.worker.is_asleep
        {
            next.is_unused = false;
            next.worker.wake();
        }
        worker
    }

    pub(super) fn put(&self, worker: Worker<E>) {
        let mut list = self.lock();
        let at = if worker.is_last_resort() { 0 } else { list.idle.len() };
        list.idle.insert(at, Idle { worker, is_unused: false });
        self.changed.notify_one();
    }

    /// Free replicas that hold an engine, or are starting one.
    #[cfg(test)]
    pub(super) fn awake(&self) -> usize {
        self.lock().awake().count()
    }

    /// The pool has ended.
    pub(super) fn close(&self) {
        self.lock().is_closed = true;
        self.changed.notify_one();
    }

    /// The keeper: until the pool ends. It wakes once in `period` while there is an engine to spare.
    fn keep(&self, period: Duration) {
        let mut list = self.lock();
        while !list.is_closed {
            let spare = self.changed.wait_while(list, |list| !list.is_closed && !list.has_spare());
            let spare = spare.unwrap_or_else(PoisonError::into_inner);
            let waited = self.changed.wait_timeout_while(spare, period, |list| !list.is_closed);
            list = waited.unwrap_or_else(PoisonError::into_inner).0;
            list.put_unused_to_sleep();
        }
    }

    fn lock(&self) -> MutexGuard<'_, List<E>> {
        self.list.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::super::Pool;
    use super::*;
    use std::convert::Infallible;
    use tokio::time::timeout;

    /// A pool of at most `max`, and what counts its engines that live.
    fn elastic(max: usize, idle: Duration) -> (Pool<Arc<()>>, Arc<()>) {
        let alive = Arc::new(());
        let engine = alive.clone();
        let pool = Pool::start_elastic("test", max, 8, idle, move |_| Ok::<_, Infallible>(engine.clone()));
        (pool.unwrap_or_else(|never| match never {}), alive)
    }

    /// Waits until this number of engines lives: the counter and the closure that makes them are not among them.
    async fn until_alive(alive: &Arc<()>, n: usize) {
        let reached = async {
            while Arc::strong_count(alive) != n + 2 {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        timeout(Duration::from_secs(20), reached).await.unwrap_or_else(|_| {
            panic!("{} engines live, {n} are expected", Arc::strong_count(alive) - 2);
        });
    }

    #[tokio::test]
    async fn an_elastic_pool_keeps_one_engine_ready_ahead() {
        let (pool, alive) = elastic(3, Duration::from_secs(3_600));
        assert_eq!(
            (Arc::strong_count(&alive) - 2, pool.free()),
            (1, 3),
            "one is made at the start, three may be leased"
        );
        let first = pool.lease().await.expect("free");
        until_alive(&alive, 2).await;
        let second = pool.lease().await.expect("free");
        until_alive(&alive, 3).await;
        let mut third = pool.lease().await.expect("free");
        assert!(third.run(|_| ()).await.is_ok());
        drop((first, second, third));
        assert_eq!(pool.shared.free.awake(), 3);
        drop(pool.lease().await.expect("free"));
        assert_eq!(Arc::strong_count(&alive) - 2, 3, "those there are serve");
    }

    #[tokio::test]
    async fn a_lease_of_a_sleeping_replica_waits_for_its_engine() {
        let (pool, _alive) = elastic(4, Duration::from_secs(3_600));
        // All at once: the last ones' engines are started by their first job, or one ahead of them.
        let mut leases = Vec::new();
        for _ in 0..4 {
            leases.push(pool.lease().await.expect("free"));
        }
        for lease in &mut leases {
            assert_eq!(lease.run(|_| 7).await, Ok(7));
        }
    }

    #[tokio::test]
    async fn idle_engines_are_given_back_but_for_one() {
        let (pool, alive) = elastic(3, Duration::from_millis(20));
        let leases = [pool.lease().await.expect("free"), pool.lease().await.expect("free")];
        until_alive(&alive, 3).await;
        drop(leases);
        until_alive(&alive, 1).await;
        assert_eq!(pool.shared.free.awake(), 1);
        // What was given back is started again.
        let mut again = [pool.lease().await.expect("free"), pool.lease().await.expect("free")];
        for lease in &mut again {
            assert!(lease.run(|_| ()).await.is_ok());
        }
        drop((again, pool));
        // The threads end with the pool: the keeper's too.
        let ended = async {
            while Arc::strong_count(&alive) != 1 {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        timeout(Duration::from_secs(20), ended).await.expect("every thread ends");
    }
}
