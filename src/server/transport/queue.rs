//! A queue bounded by the bytes that it holds, between the tasks of calls. A push never waits; the reader does.

use std::collections::VecDeque;
use std::sync::Mutex;
use tokio::sync::Notify;

/// The queue. Bounded by the bytes of its items, which [`Weight`] gives.
pub(super) struct Queue<T> {
    items: Mutex<(VecDeque<T>, usize)>,
    max_bytes: usize,
    ready: Notify,
}

/// What an item weighs.
pub(super) trait Weight {
    /// Its bytes in memory, roughly.
    fn n_bytes(&self) -> usize;
    /// Whether it may be dropped for a later item.
    fn is_media(&self) -> bool;
}

impl<T: Weight> Queue<T> {
    /// A queue that holds this many bytes.
    pub(super) fn new(max_bytes: usize) -> Self {
        Self { items: Mutex::default(), max_bytes, ready: Notify::new() }
    }

    /// Adds an item. Where there is no room the oldest media go; `false`: there is none left to drop, and the item was not
    /// added.
    pub(super) fn push(&self, item: T) -> bool {
        let needed = item.n_bytes();
        let mut held = self.items.lock().expect("no panic while locked");
        let (items, n_bytes) = &mut *held;
        while *n_bytes + needed > self.max_bytes {
            let Some(oldest) = items.iter().position(Weight::is_media) else { return false };
            *n_bytes -= items.remove(oldest).map_or(0, |dropped| dropped.n_bytes());
        }
        *n_bytes += needed;
        items.push_back(item);
        drop(held);
        self.ready.notify_one();
        true
    }

    /// The next item. For one reader. Cancel safe. Lets other tasks run now and then, however fast items come.
    pub(super) async fn next(&self) -> T {
        tokio::task::coop::consume_budget().await;
        loop {
            {
                let mut held = self.items.lock().expect("no panic while locked");
                if let Some(item) = held.0.pop_front() {
                    held.1 -= item.n_bytes();
                    return item;
                }
            }
            self.ready.notified().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Weight for (bool, usize) {
        fn n_bytes(&self) -> usize {
            self.1
        }

        fn is_media(&self) -> bool {
            self.0
        }
    }

    #[tokio::test]
    async fn old_media_makes_room_and_nothing_else_does() {
        let queue = Queue::new(100);
        assert!(queue.push((false, 40)) && queue.push((true, 30)) && queue.push((true, 20)));
        assert!(queue.push((true, 30)), "the oldest media goes");
        assert_eq!((queue.next().await, queue.next().await), ((false, 40), (true, 20)));
        assert!(queue.push((false, 60)) && !queue.push((false, 60)), "what is no media stays");
        assert_eq!(queue.next().await, (false, 60));
        assert!(!queue.push((true, 101)));
    }
}
