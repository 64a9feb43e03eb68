//! The replicas of a pool that are not leased, and which of them hold an engine.
//!
//! [`super::Pool`] takes replicas from here and puts them back. In an elastic pool a replica may be asleep: its thread runs
//! and holds no engine. One replica with an engine is kept ready ahead of the next lease; a thread of its own (the keeper)
//! gives back engines that were idle for long. It starts no engine itself: the replica's thread does.

use super::worker::Worker;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// See the module.
pub(super) struct Free<E> {
    list: Mutex<List<E>>,
    /// A replica came back, or the pool has ended.
    changed: Condvar,
    /// Replicas may sleep.
    is_elastic: bool,
}

struct List<E> {
    /// Leased from the end: those that failed first, then those asleep, then those with an engine, by their last use.
    idle: Vec<Idle<E>>,
    is_closed: bool,
}

struct Idle<E> {
    worker: Worker<E>,
    since: Instant,
}

impl<E: 'static> Free<E> {
    /// All replicas hold an engine, always.
    pub(super) fn fixed(workers: Vec<Worker<E>>) -> Arc<Self> {
        Arc::new(Self::of(workers, false))
    }

    /// Engines that nobody has used for `idle` are given back, but for one that stays ready. `workers`: those asleep first.
    pub(super) fn elastic(name: &str, workers: Vec<Worker<E>>, idle: Duration) -> Arc<Self> {
        let free = Arc::new(Self::of(workers, true));
        let kept = free.clone();
        let keeper = thread::Builder::new().name(format!("{name}-keeper"));
        keeper.spawn(move || kept.give_back_idle(idle)).expect("the system gives a thread");
        free
    }
}

impl<E> Free<E> {
    fn of(workers: Vec<Worker<E>>, is_elastic: bool) -> Self {
        let since = Instant::now();
        let idle = workers.into_iter().map(|worker| Idle { worker, since }).collect();
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
            next.since = Instant::now();
            next.worker.wake();
        }
        worker
    }

    pub(super) fn put(&self, worker: Worker<E>) {
        let mut list = self.lock();
        let at = if worker.has_failed() { 0 } else { list.idle.len() };
        list.idle.insert(at, Idle { worker, since: Instant::now() });
        self.changed.notify_one();
    }

    /// Free replicas that hold an engine, or are starting one.
    #[cfg(test)]
    pub(super) fn awake(&self) -> usize {
        self.lock().idle.iter().filter(|idle| idle.worker.is_ready()).count()
    }

    /// The pool has ended.
    pub(super) fn close(&self) {
        self.lock().is_closed = true;
        self.changed.notify_one();
    }

    /// The keeper: until the pool ends.
    fn give_back_idle(&self, after: Duration) {
        let mut list = self.lock();
        while !list.is_closed {
            let now = Instant::now();
            let mut awake = list.idle.iter_mut().filter(|idle| idle.worker.is_ready());
            let longest = awake.next().filter(|_| awake.next().is_some());
            list = match longest.map(|idle| (idle.since + after, idle)) {
                Some((due, idle)) if due <= now => {
                    // One that still starts is looked at again later.
                    if !idle.worker.sleep() {
                        idle.since = now;
                    }
                    list
                }
                Some((due, _)) => self
                    .changed
                    .wait_timeout(list, due - now)
                    .map_or_else(|poisoned| poisoned.into_inner().0, |woken| woken.0),
                None => self.changed.wait(list).unwrap_or_else(PoisonError::into_inner),
            };
        }
    }

    fn lock(&self) -> MutexGuard<'_, List<E>> {
        self.list.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
