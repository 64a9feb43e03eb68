//! Takes connections and speaks HTTP on them until they are upgraded or closed, bounded in number and in time.
//!
//! An answer that was given before all of a request was read reaches its client: the connection is read on for a while.
//! [`super::serve`] calls it with a listener, TLS or not. A WebSocket's connection leaves here with its upgrade and belongs
//! to its session from then on, so that only those that have said nothing yet, or ask for something else, count.

use super::admin::Peer;
use super::inflow::{Inflow, Intake};
use axum::Router;
use axum::serve::Listener;
use hyper::body::{Body, Incoming};
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// Connections that are no WebSocket yet; while there are so many, no more are accepted.
pub(super) const MAX_CONNECTIONS: usize = 512;

/// How long a client may take for the head of a request, and how long a connection stays open without one.
const HEAD: Duration = Duration::from_secs(10);

/// Serves until `stop` is cancelled, lets the requests under way end, and returns when they have. Dropping the future drops
/// every connection that is still here.
pub(super) async fn accept<L>(mut listener: L, router: Router, max_connections: usize, stop: CancellationToken)
where
    L: Listener<Addr = SocketAddr>,
{
    let (places, tasks) = (Arc::new(Semaphore::new(max_connections)), TaskTracker::new());
    let abandon = CancellationToken::new();
    let _guard = abandon.clone().drop_guard();
    loop {
        let next = async {
            let place = places.clone().acquire_owned().await.expect("the semaphore is never closed");
            let (stream, peer) = listener.accept().await;
            (place, stream, Peer(peer))
        };
        let (place, stream, peer) = tokio::select! {
            next = next => next,
            () = stop.cancelled() => break,
        };
        let (abandon, serve) = (abandon.clone(), serve(stream, peer, (router.clone(), place), stop.clone()));
        tasks.spawn(async move {
            tokio::select! {
                () = abandon.cancelled() => {}
                () = serve => {}
            }
        });
    }
    drop(listener);
    tasks.close();
    tasks.wait().await;
}

async fn serve<S>(stream: S, peer: Peer, (router, _place): (Router, OwnedSemaphorePermit), stop: CancellationToken)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(HEAD);
    let router = TowerToHyperService::new(router);
    let inflow = Inflow::new();
    let known = inflow.clone();
    let service = service_fn(move |mut request: hyper::Request<Incoming>| {
        request.extensions_mut().insert(peer);
        request.extensions_mut().insert(known.clone());
        let (has_body, inflow, answer) = (!request.body().is_end_stream(), known.clone(), router.call(request));
        async move {
            let answer = answer.await;
            // Refused before all of it was read, a client may be sending still, and is to see the answer.
            let is_error = answer.as_ref().is_ok_and(|answer| answer.status().as_u16() >= 400);
            inflow.set_lingers(has_body && is_error);
            answer
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
    if let Err(error) = ended {
        tracing::debug!(%error, "a connection ended in the middle of a request");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::routing::get;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::{TcpListener, TcpStream};
    use tokio::time::Instant;

    /// Serves a page of one word to at most one connection at a time, while `client` runs.
    async fn with_one_place<T>(client: impl AsyncFnOnce(SocketAddr) -> T) -> T {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let router = Router::new().route("/", get(|| async { "here" }));
        let stop = CancellationToken::new();
        let accepting = accept(listener, router, 1, stop.clone());
        let client = async {
            let result = client(address).await;
            stop.cancel();
            result
        };
        tokio::join!(accepting, client).1
    }

    async fn ask(address: SocketAddr) -> String {
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(b"GET / HTTP/1.1\r\nhost: here\r\nconnection: close\r\n\r\n").await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        answer
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_says_nothing_or_half_of_it_is_given_up() {
        with_one_place(async |address| {
            for said in ["", "GET / HTTP/1.1\r\nhost: he"] {
                let mut stream = TcpStream::connect(address).await.unwrap();
                stream.write_all(said.as_bytes()).await.unwrap();
                let mut answer = Vec::new();
                let ended = tokio::time::timeout(10 * HEAD, stream.read_to_end(&mut answer)).await;
                ended.expect("it is closed").unwrap();
            }
        })
        .await;
    }

    #[tokio::test(start_paused = true)]
    async fn who_finds_no_place_waits_for_one() {
        with_one_place(async |address| {
            let begun = Instant::now();
            let _silent = TcpStream::connect(address).await.unwrap();
            let answer = tokio::time::timeout(10 * HEAD, ask(address)).await.expect("its turn comes");
            assert!(answer.ends_with("here"), "{answer}");
            assert!(begun.elapsed() >= HEAD, "behind the one who says nothing");
        })
        .await;
    }
}
