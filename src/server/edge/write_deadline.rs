//! A connection's stream before its upgrade, observed: whether the client sends, and whether it reads.
//!
//! [`super::accepting`] puts it between the connection and HTTP. A client that does not read its response is
//! disconnected after [`STALL`] in total; data that it reads is credited at [`MIN_BYTES_PER_SECOND`], so that an
//! occasional byte does not suffice. After an upgrade, the session observes the connection and this module does
//! nothing.

use super::connection_slots::Activity;
use std::future::Future;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Sleep;

/// Maximum accumulated time in which a client reads nothing.
pub(in crate::server) const STALL: Duration = Duration::from_secs(30);
/// Minimum sustained read rate: audio of the lowest quality plays at twice this rate.
pub(in crate::server) const MIN_BYTES_PER_SECOND: u64 = 1_024;

pub(in crate::server) struct DeadlineStream<S> {
    stream: S,
    activity: Activity,
    released: ReleaseFlag,
    deadline: Option<Pin<Box<Sleep>>>,
    /// A write is pending. Flushing a plain socket always succeeds, so it does not count as progress.
    write_waits: bool,
}

/// Ends the observation.
#[derive(Clone, Default)]
pub(in crate::server) struct ReleaseFlag(Arc<AtomicBool>);

impl ReleaseFlag {
    /// The connection has been upgraded to a WebSocket.
    pub(in crate::server) fn set(&self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl<S: Unpin> DeadlineStream<S> {
    pub(in crate::server) fn new(stream: S, activity: Activity, released: ReleaseFlag) -> Self {
        Self { stream, activity, released, deadline: None, write_waits: false }
    }

    /// Handles the result of a write of `n` bytes: credits progress, or waits until the deadline.
    fn wrote<T>(
        &mut self,
        cx: &mut Context<'_>,
        done: Poll<io::Result<T>>,
        n: impl Fn(&T) -> u64,
    ) -> Poll<io::Result<T>> {
        if self.released.0.load(Ordering::Relaxed) {
            return done;
        }
        match done {
            Poll::Ready(Ok(done)) => {
                self.activity.took(Duration::from_millis(n(&done) * 1_000 / MIN_BYTES_PER_SECOND));
                self.deadline = None;
                Poll::Ready(Ok(done))
            }
            Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
            Poll::Pending => {
                let activity = &self.activity;
                let start = || Box::pin(tokio::time::sleep_until(activity.is_blocked(STALL)));
                ready!(self.deadline.get_or_insert_with(start).as_mut().poll(cx));
                Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the client does not read its response")))
            }
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for DeadlineStream<S> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let read = Pin::new(&mut this.stream).poll_read(cx, buffer);
        if read.is_pending() && !this.released.0.load(Ordering::Relaxed) {
            this.activity.reads_nothing();
        }
        read
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for DeadlineStream<S> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let done = Pin::new(&mut this.stream).poll_write(cx, bytes);
        this.write_waits = done.is_pending();
        this.wrote(cx, done, |n| *n as u64)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let done = Pin::new(&mut this.stream).poll_write_vectored(cx, slices);
        this.write_waits = done.is_pending();
        this.wrote(cx, done, |n| *n as u64)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let done = Pin::new(&mut this.stream).poll_flush(cx);
        if done.is_ready() && this.write_waits { done } else { this.wrote(cx, done, |()| 0) }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let done = Pin::new(&mut this.stream).poll_shutdown(cx);
        this.wrote(cx, done, |()| 0)
    }
}

#[cfg(test)]
mod tests {
    use super::super::connection_slots::ConnectionSlots;
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
    use tokio::time::Instant;

    fn watched(released: &ReleaseFlag) -> (DeadlineStream<DuplexStream>, DuplexStream) {
        let place = ConnectionSlots::new(1, 0, Vec::new()).admit([127, 0, 0, 1].into(), false).unwrap();
        let (near, far) = duplex(1_024);
        (DeadlineStream::new(near, place.activity(), released.clone()), far)
    }

    /// How long a client lasts that reads `bytes` every second.
    async fn lasts(bytes: usize) -> Option<Duration> {
        let (mut near, mut far) = watched(&ReleaseFlag::default());
        let begun = Instant::now();
        let reads = async {
            loop {
                tokio::time::sleep(Duration::from_secs(1)).await;
                let mut read = vec![0; bytes];
                let _ = far.read(&mut read).await;
            }
        };
        let writes = async {
            loop {
                if let Err(error) = near.write_all(&[0; 4_096]).await {
                    assert_eq!(error.kind(), io::ErrorKind::TimedOut);
                    return begun.elapsed();
                }
                near.flush().await.unwrap();
            }
        };
        tokio::select! {
            () = reads => None,
            lasted = writes => Some(lasted),
            () = tokio::time::sleep(Duration::from_secs(3_600)) => None,
        }
    }

    #[tokio::test(start_paused = true)]
    async fn who_reads_nothing_or_a_byte_now_and_then_is_given_up_and_who_reads_slowly_is_not() {
        assert_eq!(lasts(0).await.map(|lasted| lasted.as_secs()), Some(30));
        let trickled = lasts(1).await.expect("given up");
        assert!((30..=33).contains(&trickled.as_secs()), "{trickled:?}");
        assert_eq!(lasts(1_024).await, None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_websocket_is_not_watched() {
        let released = ReleaseFlag::default();
        let (mut near, _far) = watched(&released);
        released.set();
        let write = tokio::time::timeout(10 * STALL, near.write_all(&[0; 4_096])).await;
        assert!(write.is_err(), "it waits as long as its session lets it");
    }
}
