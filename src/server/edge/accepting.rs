//! Accepts connections and serves HTTP on them until they are upgraded or closed. Bounds their number and their time.
//!
//! [`crate::server::serve_loading`] calls it with a listener, with or without TLS. Every connection is accepted
//! immediately: each connection's own task performs the TLS handshake, and a connection without a slot in
//! [`super::connection_slots`] waits here while others are accepted. If a response was sent before the whole request
//! was read, the connection is drained for a while so that the response reaches its client. After its upgrade a
//! WebSocket connection belongs to its session.

use super::client::{Peer, network};
use super::connection_slots::{Activity, ConnectionSlot, ConnectionSlots, Full, RequestGuard};
use super::inflow::{Inflow, Intake};
use super::process::max_descriptors;
use super::tls::Tls;
use super::write_deadline::{DeadlineStream, ReleaseFlag};
use arc_swap::ArcSwap;
use axum::Router;
use axum::body::{Body, Bytes};
use axum::http::{StatusCode, Uri};
use axum::serve::Listener;
use hyper::body::{Body as HttpBody, Frame, Incoming, SizeHint};
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{Instant, timeout};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// Maximum connections that are not, or not yet, WebSockets.
const MAX_CONNECTIONS: usize = 512;

/// Timeout for a request's head, and for an idle connection. Bytes of an incomplete head do not extend it.
const HEAD: Duration = Duration::from_secs(10);
/// Timeout of a TLS handshake.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// Maximum size of a request's head, and of the part of a response that is buffered here.
const MAX_BUFFER_BYTES: usize = 64 * 1024;
/// Limit on unsent response data in the kernel's socket buffer (`TCP_NOTSENT_LOWAT`). More data waits in this process,
/// where it is bounded and the client's read rate is observable.
const MAX_UNSENT_BYTES: u32 = 128 * 1024;
/// Connections that wait for a slot. Above this number none is accepted until the oldest has waited for [`CROWDED`];
/// then each new connection evicts the oldest one of the address with the most waiting. A burst of well-behaved clients
/// is served before that.
const MAX_WAITING: usize = 256;
const CROWDED: Duration = Duration::from_secs(2);
/// Maximum wait for a slot.
const WAIT: Duration = Duration::from_secs(10);

/// Connections that are served at a time and are no WebSockets: [`MAX_CONNECTIONS`], and half of the descriptors where those are
/// few, so that conversations have descriptors for their upstream servers.
pub(in crate::server) fn max_connections() -> usize {
    MAX_CONNECTIONS.min(max_descriptors() / 2)
}

/// A listener with its TLS configuration and its slots.
pub(in crate::server) struct Entrance {
    pub(in crate::server) listener: TcpListener,
    /// `None`: plain HTTP. A replaced certificate applies to subsequent handshakes.
    pub(in crate::server) tls: Option<Arc<ArcSwap<Tls>>>,
    pub(in crate::server) places: Arc<ConnectionSlots>,
}

struct PendingConnection {
    stream: TcpStream,
    peer: SocketAddr,
    since: Instant,
}

/// Serves until `stop` is cancelled, then waits for the requests in progress and returns. Dropping the future closes
/// every connection that has not been upgraded.
pub(in crate::server) async fn accept(entrance: Entrance, router: Router, stop: CancellationToken) {
    let Entrance { mut listener, tls, places } = entrance;
    let most_waiting = MAX_WAITING.min(max_descriptors() / 8);
    let tasks = TaskTracker::new();
    let abandon = CancellationToken::new();
    let _guard = abandon.clone().drop_guard();
    let mut waiting: VecDeque<PendingConnection> = VecDeque::new();
    let begin = |stream: TcpStream, peer: SocketAddr, place: ConnectionSlot| {
        let router = router.clone();
        let abandon = abandon.clone();
        let stop = stop.clone();
        let tls = tls.as_ref().map(|tls| tls.load_full());
        tasks.spawn(async move {
            tokio::select! {
                () = abandon.cancelled() => {}
                () = place.evicted() => tracing::debug!("an idle connection was evicted"),
                () = connection(stream, peer, tls, place.activity(), router, stop) => {}
            }
        });
    };
    let admit = |peer: SocketAddr| places.admit(peer.ip(), tls.is_some());
    loop {
        let is_full = waiting.len() >= most_waiting;
        let oldest = waiting.front().map(|one| one.since);
        let takes_more = !is_full || oldest.is_some_and(|since| since.elapsed() >= CROWDED);
        let next = oldest.map(|since| since + if takes_more { WAIT } else { CROWDED });
        tokio::select! {
            (stream, peer) = Listener::accept(&mut listener), if takes_more => {
                match admit(peer) {
                    Ok(place) => begin(stream, peer, place),
                    Err(_) => {
                        if is_full {
                            push_out(&mut waiting);
                        }
                        waiting.push_back(PendingConnection { stream, peer, since: Instant::now() });
                    }
                }
                continue;
            }
            () = places.changed(), if !waiting.is_empty() => {}
            () = async { tokio::time::sleep_until(next.expect("checked")).await }, if next.is_some() => {}
            () = stop.cancelled() => break,
        }
        let now = Instant::now();
        let mut all_taken = false;
        for one in std::mem::take(&mut waiting).into_iter().filter(|one| one.since + WAIT > now) {
            match if all_taken { Err(Full::All) } else { admit(one.peer) } {
                Ok(place) => begin(one.stream, one.peer, place),
                Err(full) => {
                    all_taken |= full == Full::All;
                    waiting.push_back(one);
                }
            }
        }
    }
    drop((listener, waiting));
    tasks.close();
    tasks.wait().await;
}

/// Closes the oldest waiting connection of the address with the most waiting connections.
fn push_out(waiting: &mut VecDeque<PendingConnection>) {
    let mut counts = HashMap::new();
    for one in waiting.iter() {
        *counts.entry(network(one.peer.ip())).or_insert(0) += 1;
    }
    let most = counts.into_iter().max_by_key(|(_, n): &(_, usize)| *n).map(|(network, _)| network);
    let at = waiting.iter().position(|one| Some(network(one.peer.ip())) == most);
    waiting.remove(at.unwrap_or(0));
}

/// Serves one connection, including its TLS handshake.
async fn connection(
    stream: TcpStream,
    peer: SocketAddr,
    tls: Option<Arc<Tls>>,
    activity: Activity,
    router: Router,
    stop: CancellationToken,
) {
    prepare(&stream);
    let Some(tls) = tls else { return serve(stream, peer, activity, router, stop).await };
    match timeout(HANDSHAKE, TlsAcceptor::from(tls.server()).accept(stream)).await {
        Ok(Ok(stream)) => {
            activity.shook_hands();
            serve(stream, peer, activity, router, stop).await;
        }
        Ok(Err(error)) => tracing::debug!(%error, "the TLS handshake failed"),
        Err(_) => tracing::debug!("the TLS handshake timed out"),
    }
}

/// Sets what every connection has: small messages leave at once, and of an answer that its client does not read the kernel takes
/// no more than [`MAX_UNSENT_BYTES`].
pub(in crate::server) fn prepare(stream: &TcpStream) {
    // Disables Nagle's algorithm: small messages must not wait for the previous acknowledgement.
    let prepared = stream.set_nodelay(true);
    let prepared = prepared.and(socket2::SockRef::from(stream).set_tcp_notsent_lowat(MAX_UNSENT_BYTES));
    if let Err(error) = prepared {
        tracing::debug!(%error, "TCP_NODELAY or TCP_NOTSENT_LOWAT could not be set");
    }
}

/// The address with one slash where a client that joins its base address and a path wrote several; `None` where there are none.
fn with_single_slashes(uri: &Uri) -> Option<Uri> {
    if !uri.path().contains("//") {
        return None;
    }
    let mut path = String::with_capacity(uri.path().len());
    for c in uri.path().chars() {
        if c != '/' || !path.ends_with('/') {
            path.push(c);
        }
    }
    let query = uri.query().map_or_else(String::new, |query| format!("?{query}"));
    let mut parts = uri.clone().into_parts();
    parts.path_and_query = format!("{path}{query}").parse().ok();
    Uri::from_parts(parts).ok()
}

async fn serve<S>(stream: S, peer: SocketAddr, activity: Activity, router: Router, stop: CancellationToken)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let released = ReleaseFlag::default();
    let stream = DeadlineStream::new(stream, activity.clone(), released.clone());
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(HEAD).max_buf_size(MAX_BUFFER_BYTES);
    let router = TowerToHyperService::new(router);
    let inflow = Inflow::new();
    let known = inflow.clone();
    let service = service_fn(move |mut request: hyper::Request<Incoming>| {
        if let Some(uri) = with_single_slashes(request.uri()) {
            *request.uri_mut() = uri;
        }
        request.extensions_mut().insert(Peer(peer));
        request.extensions_mut().insert(known.clone());
        let has_body = !request.body().is_end_stream();
        let inflow = known.clone();
        let answering = activity.answering();
        let answer = router.call(request.map(|body| Upload { body, activity: activity.clone() }));
        async move {
            let answer = answer.await;
            // A client rejected before its whole request was read may still be sending, and must receive the response.
            let is_error = answer.as_ref().is_ok_and(|answer| answer.status().as_u16() >= 400);
            inflow.set_lingers(has_body && is_error);
            if answer.as_ref().is_ok_and(|answer| answer.status() != StatusCode::SWITCHING_PROTOCOLS) {
                inflow.expect_requests();
            }
            answer.map(|response| response.map(|body| Answer { body, _answering: answering }))
        }
    });
    let io = TokioIo::new(Intake::new(stream, inflow.clone()));
    let ended = {
        let mut connection = pin!(http.serve_connection(io, service).with_upgrades());
        tokio::select! {
            ended = connection.as_mut() => ended,
            () = stop.cancelled() => {
                connection.as_mut().graceful_shutdown();
                connection.await
            }
        }
    };
    tokio::select! {
        () = inflow.linger() => {}
        () = stop.cancelled() => {}
    }
    // An upgraded connection belongs to its session from here on.
    released.set();
    if let Err(error) = ended {
        tracing::debug!(%error, "a connection ended during a request");
    }
}

/// A request body that reports whether the client is sending it.
struct Upload {
    body: Incoming,
    activity: Activity,
}

impl HttpBody for Upload {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        let frame = Pin::new(&mut self.body).poll_frame(cx);
        self.activity.uploads(frame.is_pending());
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Drop for Upload {
    fn drop(&mut self) {
        self.activity.uploads(false);
    }
}

/// A response body; the request counts as in progress until it is dropped.
struct Answer {
    body: Body,
    _answering: RequestGuard,
}

impl HttpBody for Answer {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
#[path = "accepting_tests.rs"]
mod tests;
