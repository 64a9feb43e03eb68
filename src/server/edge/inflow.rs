//! Counts and limits the bytes received on a connection, below the protocols that buffer them.
//!
//! [`super::accepting`] wraps every connection in an [`Intake`] and passes its [`Inflow`] to the handlers as a request
//! extension. The WebSocket library buffers incomplete messages invisibly; the session's reader counts their bytes here
//! and raises the read limit only after it has charged them to a budget. After an early response, the connection is
//! returned to this module and [`Inflow::linger`] drains it for a while: closing it with unread data would reset it and
//! lose the response.

use super::fragments::Fragments;
use super::refusal::refused;
use axum::http::StatusCode;
use axum::response::Response;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::time::timeout;

/// Maximum time and bytes for draining a connection after an early response, such as during a large upload.
const LINGER: Duration = Duration::from_secs(10);
const LINGER_BYTES: usize = 128 << 20;
/// Read size while draining.
const BLOCK: usize = 16 << 10;

/// A connection, with or without TLS.
pub(in crate::server) trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

/// Receive counters, read limit and framing mode of one connection.
pub(in crate::server) struct Inflow {
    /// Bytes read from the connection.
    taken: AtomicU64,
    /// Read limit: reading stops at this count; a single read may exceed it.
    limit: AtomicU64,
    /// Since the last response, exactly one request head has been received.
    is_a_head: AtomicBool,
    /// The connection now carries WebSocket frames.
    is_framed: AtomicBool,
    /// Whether the connection is returned for draining when its protocol has ended.
    lingers: AtomicBool,
    returned: Mutex<Option<Box<dyn Stream>>>,
}

impl Inflow {
    pub(in crate::server) fn new() -> Arc<Self> {
        Arc::new(Self {
            taken: AtomicU64::new(0),
            limit: AtomicU64::new(u64::MAX),
            is_a_head: AtomicBool::new(false),
            is_framed: AtomicBool::new(false),
            lingers: AtomicBool::new(false),
            returned: Mutex::new(None),
        })
    }

    /// Bytes read so far.
    pub(in crate::server) fn taken(&self) -> u64 {
        self.taken.load(Ordering::Relaxed)
    }

    /// Sets the read limit. The caller must poll the connection again after raising it.
    pub(in crate::server) fn allow(&self, limit: u64) {
        self.limit.store(limit, Ordering::Relaxed);
    }

    /// Switches to WebSocket frames, read through [`Fragments`]. `false` if bytes after the request head have already
    /// been received: the start of the frames is then unknown, and the upgrade must be rejected.
    pub(in crate::server) fn expect_frames(&self) -> bool {
        let is_a_head = self.is_a_head.load(Ordering::Acquire);
        self.is_framed.store(is_a_head, Ordering::Release);
        is_a_head
    }

    /// Switches back to HTTP: the request did not upgrade the connection.
    pub(in crate::server) fn expect_requests(&self) {
        self.is_framed.store(false, Ordering::Release);
    }

    /// Whether the read limit is reached.
    pub(in crate::server) fn is_starved(&self) -> bool {
        self.taken() >= self.limit.load(Ordering::Relaxed)
    }

    /// Sets whether the connection is returned after its protocol has ended, for [`Self::linger`].
    pub(in crate::server) fn set_lingers(&self, lingers: bool) {
        self.lingers.store(lingers, Ordering::Relaxed);
    }

    /// Closes a returned connection gracefully, so that the client receives the last response: shuts down the write
    /// side, then reads and discards input until the client closes, within the limits. Does nothing if no connection
    /// was returned.
    pub(in crate::server) async fn linger(&self) {
        let returned = self.returned.lock().expect("no panic while locked").take();
        let Some(mut stream) = returned else { return };
        let drained = async {
            if stream.shutdown().await.is_err() {
                return;
            }
            let mut block = vec![0; BLOCK];
            let mut n_bytes = 0;
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

/// Expects WebSocket frames on this connection from now on.
///
/// # Errors
/// 400: the client has sent some before the response to its upgrade.
pub(in crate::server) fn expect_frames(inflow: &Inflow) -> Result<(), Box<Response>> {
    if inflow.expect_frames() {
        return Ok(());
    }
    let message = "No data may be sent after the WebSocket upgrade request before its response has been received.";
    Err(Box::new(refused(StatusCode::BAD_REQUEST, "invalid_value", message)))
}

/// A connection that counts its received bytes.
pub(in crate::server) struct Intake {
    /// Present until `drop`.
    stream: Option<Box<dyn Stream>>,
    inflow: Arc<Inflow>,
    head: HeadEnd,
    fragments: Fragments,
}

/// Detects the end of a request head in the data received since the last response.
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
    pub(in crate::server) fn new(stream: impl Stream + 'static, inflow: Arc<Inflow>) -> Self {
        let head = HeadEnd::default();
        let fragments = Fragments::new();
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
