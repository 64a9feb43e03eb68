//! How many decodings run at a time: as many as the cores have threads for.
//!
//! `stream` takes a share for each decoding. whisper.cpp's threads wait for each other by spinning, so that two decodings on
//! the same cores take longer than one after the other. A final transcript waits its turn, first come, first served, and stops a
//! partial one that runs: the next one contains its words. A partial one that would have to wait is skipped; one that is asked
//! for in a pause, and may become the final one, is treated as such unless others wait already. It is no queue of requests and
//! batches nothing: whisper.cpp decodes one utterance a call.

use antiphon_engine_api::stt::SttError;
use futures_executor::block_on;
use futures_util::future::{Either, select};
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio_util::sync::CancellationToken;

/// The cores, in parts of one decoding each.
pub(super) struct Shares {
    n: usize,
    permits: Semaphore,
    /// Of the partial transcripts that run and can be stopped.
    partials: Mutex<Partials>,
    /// Those who wait for a share.
    n_waiting: AtomicUsize,
}

#[derive(Default)]
struct Partials {
    running: Vec<(u64, CancellationToken)>,
    n_begun: u64,
}

/// The share of a partial transcript.
pub(super) struct PartialShare<'a> {
    shares: &'a Shares,
    number: u64,
    /// Cancelled when a final transcript needs the share, and with the question itself.
    pub(super) cancel: CancellationToken,
    _permit: SemaphorePermit<'a>,
}

impl Shares {
    /// The shares of `n_cores` cores in decodings of `n_threads` threads: at least 1.
    pub(super) fn of(n_cores: usize, n_threads: usize) -> Self {
        Self::new(n_cores / n_threads.max(1))
    }

    /// `n` shares, at least 1.
    pub(super) fn new(n: usize) -> Self {
        let n = n.max(1);
        Self { n, permits: Semaphore::new(n), partials: Mutex::default(), n_waiting: AtomicUsize::new(0) }
    }

    /// How many there are.
    pub(super) fn n(&self) -> usize {
        self.n
    }

    /// For a partial transcript that `cancel` cancels: a share that is free now.
    pub(super) fn free(&self, cancel: &CancellationToken) -> Option<PartialShare<'_>> {
        let permit = self.permits.try_acquire().ok()?;
        let cancel = cancel.child_token();
        let mut partials = self.partials();
        partials.n_begun += 1;
        let number = partials.n_begun;
        partials.running.push((number, cancel.clone()));
        drop(partials);
        Some(PartialShare { shares: self, number, cancel, _permit: permit })
    }

    /// For a partial transcript in a pause: a share that is free now, or the next one where no decoding waits; `None` otherwise.
    /// Blocks as [`Shares::wait`] does.
    pub(super) fn next(&self, cancel: &CancellationToken) -> Result<Option<SemaphorePermit<'_>>, SttError> {
        if self.n_waiting.load(Ordering::Relaxed) > 0 {
            return Ok(None);
        }
        self.wait(cancel).map(Some)
    }

    /// For a final transcript: the next share. Blocks the thread until it is its turn, or `cancel` is cancelled:
    /// [`SttError::Cancelled`].
    pub(super) fn wait(&self, cancel: &CancellationToken) -> Result<SemaphorePermit<'_>, SttError> {
        if let Ok(permit) = self.permits.try_acquire() {
            return Ok(permit);
        }
        if let Some((_, partial)) = self.partials().running.pop() {
            partial.cancel();
        }
        self.n_waiting.fetch_add(1, Ordering::Relaxed);
        let share = match block_on(select(pin!(self.permits.acquire()), pin!(cancel.cancelled()))) {
            Either::Left((share, _)) => share.map_err(|_| SttError::Cancelled),
            Either::Right(_) => Err(SttError::Cancelled),
        };
        self.n_waiting.fetch_sub(1, Ordering::Relaxed);
        share
    }

    fn partials(&self) -> MutexGuard<'_, Partials> {
        self.partials.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for PartialShare<'_> {
    fn drop(&mut self) {
        self.shares.partials().running.retain(|(number, _)| *number != self.number);
    }
}

#[cfg(test)]
#[allow(clippy::disallowed_methods)]
mod tests {
    use super::*;

    #[test]
    fn the_threads_of_all_decodings_are_about_as_many_as_the_cores() {
        let n = |n_cores, n_threads| Shares::of(n_cores, n_threads).n();
        assert_eq!([n(2, 2), n(2, 4), n(2, 1), n(16, 4), n(1, 0)], [1, 1, 2, 4, 1]);
    }

    #[test]
    fn who_waits_gets_the_next_share_and_who_is_cancelled_none() {
        let shares = Shares::new(1);
        let cancel = CancellationToken::new();
        let first = shares.wait(&cancel).expect("it is free");
        assert!(shares.free(&cancel).is_none());
        std::thread::scope(|scope| {
            let cancelled = scope.spawn(|| shares.wait(&cancel).map(drop));
            cancel.cancel();
            assert!(matches!(cancelled.join().expect("no panic"), Err(SttError::Cancelled)));
            let next = scope.spawn(|| shares.wait(&CancellationToken::new()).map(drop));
            drop(first);
            next.join().expect("no panic").expect("it is its turn");
        });
        assert!(shares.free(&cancel).is_some());
    }

    #[test]
    fn a_final_transcript_stops_one_partial_and_no_other_final_one() {
        let shares = Shares::new(3);
        let never = CancellationToken::new();
        let _final = shares.wait(&never).expect("it is free");
        let partials = [0, 1].map(|_| shares.free(&never).expect("it is free"));
        std::thread::scope(|scope| {
            let next = scope.spawn(|| shares.wait(&never).map(drop));
            block_on(async {
                let first = pin!(partials[0].cancel.cancelled());
                let second = pin!(partials[1].cancel.cancelled());
                select(first, second).await;
            });
            let n_stopped = partials.iter().filter(|partial| partial.cancel.is_cancelled()).count();
            assert_eq!(n_stopped, 1);
            drop(partials);
            next.join().expect("no panic").expect("it is its turn");
        });
        assert!(shares.partials().running.is_empty());
        assert!(!never.is_cancelled());
    }

    #[test]
    fn a_partial_in_a_pause_stops_another_one_and_waits_for_its_share_where_nobody_else_does() {
        let shares = Shares::new(1);
        let never = CancellationToken::new();
        let partial = shares.free(&never).expect("it is free");
        std::thread::scope(|scope| {
            let in_pause = scope.spawn(|| shares.next(&never).map(|share| share.is_some()));
            block_on(partial.cancel.cancelled());
            while shares.n_waiting.load(Ordering::Relaxed) == 0 {
                std::thread::yield_now();
            }
            assert!(shares.next(&never).expect("not cancelled").is_none(), "another one waits");
            drop(partial);
            assert!(in_pause.join().expect("no panic").expect("not cancelled"));
        });
        assert!(shares.next(&never).expect("not cancelled").is_some(), "it is free");
    }

    #[test]
    fn a_partial_ends_with_its_question() {
        let shares = Shares::new(1);
        let question = CancellationToken::new();
        let partial = shares.free(&question).expect("it is free");
        question.cancel();
        assert!(partial.cancel.is_cancelled());
    }
}
