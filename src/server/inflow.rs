//! What a connection sends, counted and held back below the protocols that buffer it.
//!
//! [`super::accepting`] puts an [`Intake`] under every connection and gives its [`Inflow`] to the handlers as a request
//! extension. A WebSocket's library keeps the part of a message that has come where nobody sees it; the session's reader counts
//! it here, and lets more bytes in only once they are charged to a budget. After an answer that the client may not have waited
//! for, the connection comes back here and [`Inflow::linger`] reads on for a while: closed with bytes unread, it would be reset,
//! and the answer lost.

use super::fragments::Fragments;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::time::timeout;

/// How long a connection that was answered early is read on, and how many bytes: the rest of a large upload.
const LINGER: Duration = Duration::from_secs(10);
const LINGER_BYTES: usize = 128 << 20;
/// Read at once while lingering.
const BLOCK: usize = 16 << 10;

/// A connection, TLS or not.
pub(super) trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

/// What one connection has sent, how much more it may, and whether it is WebSocket frames.
pub(super) struct Inflow {
    /// Bytes taken from the connection.
    taken: AtomicU64,
    /// No more are taken once there are so many; one read may go beyond it.
    limit: AtomicU64,
    /// Of what has come since the last answer, a request's head is all.
    is_a_head: AtomicBool,
    /// What comes now are a WebSocket's frames.
    is_framed: AtomicBool,
    /// Whether the connection is to come back when its protocol has ended.
    lingers: AtomicBool,
    returned: Mutex<Option<Box<dyn Stream>>>,
}

impl Inflow {
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self {
            taken: AtomicU64::new(0),
            limit: AtomicU64::new(u64::MAX),
            is_a_head: AtomicBool::new(false),
            is_framed: AtomicBool::new(false),
            lingers: AtomicBool::new(false),
            returned: Mutex::new(None),
        })
    }

    /// Bytes taken so far.
    pub(super) fn taken(&self) -> u64 {
        self.taken.load(Ordering::Relaxed)
    }

    /// Takes no more beyond this count. Who raises the limit polls the connection again.
    pub(super) fn allow(&self, limit: u64) {
        self.limit.store(limit, Ordering::Relaxed);
    }

    /// What comes behind the request's head are frames, read through [`Fragments`]. `false` where more than the head has come
    /// already: then it is not known where the frames begin, and the upgrade must be refused.
    pub(super) fn expect_frames(&self) -> bool {
        let is_a_head = self.is_a_head.load(Ordering::Acquire);
        self.is_framed.store(is_a_head, Ordering::Release);
        is_a_head
    }

    /// The request was no upgrade after all.
    pub(super) fn expect_requests(&self) {
        self.is_framed.store(false, Ordering::Release);
    }

    /// Whether nothing more is taken.
    pub(super) fn is_starved(&self) -> bool {
        self.taken() >= self.limit.load(Ordering::Relaxed)
    }

    /// Whether the connection comes back once its protocol has ended, for [`Self::linger`].
    pub(super) fn set_lingers(&self, lingers: bool) {
        self.lingers.store(lingers, Ordering::Relaxed);
    }

    /// Ends a connection that came back so that the client gets what was sent to it last: closes the way out, and takes what
    /// still comes in, within bounds, until the client closes. Nothing where none came back.
    pub(super) async fn linger(&self) {
        let returned = self.returned.lock().expect("no panic while locked").take();
        let Some(mut stream) = returned else { return };
        let drained = async {
            if stream.shutdown().await.is_err() {
                return;
            }
            let (mut block, mut n_bytes) = (vec![0; BLOCK], 0);
            while n_bytes < LINGER_BYTES {
                match stream.read(&mut block).await {
                    Ok(0) | Err(_) => return,
                    Ok(n) => n_bytes += n,
                }
            }
        };
        let _ = timeout(LINGER, drained).await;
    }
}

/// A connection whose incoming bytes are counted.
pub(super) struct Intake {
    /// There until it is dropped.
    stream: Option<Box<dyn Stream>>,
    inflow: Arc<Inflow>,
    head: HeadEnd,
    fragments: Fragments,
}

/// Where the head of a request ends in what has come since the last answer.
#[derive(Default)]
struct HeadEnd {
    last: [u8; 3],
    has_ended: bool,
    has_more: bool,
}

impl HeadEnd {
    fn take(&mut self, bytes: &[u8]) {
        for byte in bytes {
            if self.has_ended {
                self.has_more = true;
                return;
            }
            self.last = [self.last[1], self.last[2], *byte];
            self.has_ended = self.last == *b"\n\r\n" || self.last[1..] == *b"\n\n";
        }
    }

    fn is_all(&self) -> bool {
        self.has_ended && !self.has_more
    }
}

impl Intake {
    pub(super) fn new(stream: impl Stream + 'static, inflow: Arc<Inflow>) -> Self {
        let (head, fragments) = (HeadEnd::default(), Fragments::new());
        Self { stream: Some(Box::new(stream)), inflow, head, fragments }
    }

    fn stream(&mut self) -> Pin<&mut dyn Stream> {
        Pin::new(self.stream.as_mut().expect("there until it is dropped").as_mut())
    }
}

impl Drop for Intake {
    fn drop(&mut self) {
        if self.inflow.lingers.load(Ordering::Relaxed) {
            *self.inflow.returned.lock().expect("no panic while locked") = self.stream.take();
        }
    }
}

impl AsyncRead for Intake {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, to: &mut ReadBuf<'_>) -> Poll<std::io::Result<()>> {
        if self.inflow.is_starved() {
            // The task that raises the limit polls again.
            return Poll::Pending;
        }
        let this = &mut *self;
        let stream = Pin::new(this.stream.as_mut().expect("there until it is dropped").as_mut());
        let taken = &this.inflow.taken;
        if this.inflow.is_framed.load(Ordering::Acquire) {
            return this.fragments.poll_read(cx, stream, to, |n| _ = taken.fetch_add(n, Ordering::Relaxed));
        }
        let before = to.filled().len();
        let read = stream.poll_read(cx, to);
        let come = &to.filled()[before..];
        taken.fetch_add(come.len() as u64, Ordering::Relaxed);
        this.head.take(come);
        this.inflow.is_a_head.store(this.head.is_all(), Ordering::Release);
        read
    }
}

impl AsyncWrite for Intake {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<std::io::Result<usize>> {
        self.head = HeadEnd::default();
        self.stream().poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        self.stream().poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        self.stream().poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[std::io::IoSlice<'_>],
    ) -> Poll<std::io::Result<usize>> {
        self.head = HeadEnd::default();
        self.stream().poll_write_vectored(cx, parts)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.as_ref().is_some_and(|stream| stream.is_write_vectored())
    }
}
