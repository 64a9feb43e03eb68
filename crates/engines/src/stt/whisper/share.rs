//! How many decodings run at a time: as many as the cores have threads for.
//!
//! `stream` takes a share for each decoding. whisper.cpp's threads wait for each other by spinning, so that two decodings on
//! the same cores take longer than one after the other. A final transcript waits its turn, first come, first served; a partial
//! one that would have to wait is skipped, since the next one contains its words. It is no queue of requests and batches
//! nothing: whisper.cpp decodes one utterance a call.

use antiphon_engine_api::stt::SttError;
use futures_executor::block_on;
use futures_util::future::{Either, select};
use std::pin::pin;
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio_util::sync::CancellationToken;

/// The cores, in parts of one decoding each.
pub(super) struct Shares(Semaphore);

impl Shares {
    /// Of so many cores for decodings of so many threads; one at least.
    pub(super) fn of(n_cores: usize, n_threads: usize) -> Self {
        Self::new(n_cores / n_threads.max(1))
    }

    /// So many; one at least.
    pub(super) fn new(n: usize) -> Self {
        Self(Semaphore::new(n.max(1)))
    }

    /// One that is free now.
    pub(super) fn free(&self) -> Option<SemaphorePermit<'_>> {
        self.0.try_acquire().ok()
    }

    /// The next one. Blocks the thread until it is its turn, or `cancel` is cancelled: [`SttError::Cancelled`].
    pub(super) fn wait(&self, cancel: &CancellationToken) -> Result<SemaphorePermit<'_>, SttError> {
        match block_on(select(pin!(self.0.acquire()), pin!(cancel.cancelled()))) {
            Either::Left((share, _)) => share.map_err(|_| SttError::Cancelled),
            Either::Right(_) => Err(SttError::Cancelled),
        }
    }
}

#[cfg(test)]
#[allow(clippy::disallowed_methods)]
mod tests {
    use super::*;

    #[test]
    fn the_threads_of_all_decodings_are_about_as_many_as_the_cores() {
        let n = |n_cores, n_threads| Shares::of(n_cores, n_threads).0.available_permits();
        assert_eq!([n(2, 2), n(2, 4), n(2, 1), n(16, 4), n(1, 0)], [1, 1, 2, 4, 1]);
    }

    #[test]
    fn who_waits_gets_the_next_share_and_who_is_cancelled_none() {
        let (shares, cancel) = (Shares::new(1), CancellationToken::new());
        let first = shares.free().expect("it is free");
        assert!(shares.free().is_none());
        std::thread::scope(|scope| {
            let cancelled = scope.spawn(|| shares.wait(&cancel).map(drop));
            cancel.cancel();
            assert!(matches!(cancelled.join().expect("no panic"), Err(SttError::Cancelled)));
            let next = scope.spawn(|| shares.wait(&CancellationToken::new()).map(drop));
            drop(first);
            next.join().expect("no panic").expect("it is its turn");
        });
        assert!(shares.free().is_some());
    }
}
