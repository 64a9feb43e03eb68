//! TCP between clients, hubs and NATS, inside the benchmark: a balancer in front of hubs, and a line that can be cut.
//!
//! Both forward bytes as they come. The balancer takes the hubs in turn; one that refuses a connection is passed over. It knows
//! nothing of HTTP and checks no health. Each ends, with its connections, when it is dropped.

use super::BenchError;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::time::timeout;
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;

/// Timeout for a connection to a hub.
const CONNECT_DEADLINE: Duration = Duration::from_secs(1);
/// Bytes that are forwarded at once.
const PIECE_BYTES: usize = 64 << 10;

/// A balancer in front of several hubs.
pub(super) struct Balancer {
    address: SocketAddr,
    hubs: Arc<Hubs>,
    _stop: DropGuard,
}

struct Hubs {
    stop: CancellationToken,
    all: Mutex<Vec<Target>>,
    next: AtomicUsize,
}

/// A hub, as the balancer knows it.
#[derive(Clone)]
struct Target {
    /// `None`: it gets no connection.
    address: Option<SocketAddr>,
    /// Cancelled when its connections are cut.
    cut: CancellationToken,
}

impl Balancer {
    /// A balancer for `n_hubs` hubs without addresses.
    pub(super) async fn start(n_hubs: usize) -> Result<Self, BenchError> {
        let (listener, address) = listen().await?;
        let stop = CancellationToken::new();
        let targets = (0..n_hubs).map(|_| Target { address: None, cut: stop.child_token() });
        let all = Mutex::new(targets.collect());
        let hubs = Arc::new(Hubs { stop: stop.clone(), all, next: AtomicUsize::new(0) });
        let serving = hubs.clone();
        let stopped = stop.clone();
        let tasks = TaskTracker::new();
        tasks.clone().spawn(async move {
            while let Some(Ok((client, _))) = stopped.run_until_cancelled(listener.accept()).await {
                let hubs = serving.clone();
                tasks.spawn(async move { hubs.serve(client).await });
            }
        });
        Ok(Self { address, hubs, _stop: stop.drop_guard() })
    }

    pub(super) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// From now on the hub has this address; `None`: it gets no new connection.
    pub(super) fn set(&self, at: usize, address: Option<SocketAddr>) {
        self.hubs.lock()[at].address = address;
    }

    /// Cuts all connections of a hub, without a word to either side.
    pub(super) fn cut(&self, at: usize) {
        let cut = std::mem::replace(&mut self.hubs.lock()[at].cut, self.hubs.stop.child_token());
        cut.cancel();
    }
}

impl Hubs {
    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Target>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn serve(&self, mut client: TcpStream) {
        let first = self.next.fetch_add(1, Ordering::Relaxed);
        let targets = self.lock().clone();
        for target in targets.iter().cycle().skip(first % targets.len()).take(targets.len()) {
            let Some(address) = target.address else { continue };
            let Ok(Ok(mut hub)) = timeout(CONNECT_DEADLINE, TcpStream::connect(address)).await else { continue };
            let _ = (client.set_nodelay(true), hub.set_nodelay(true));
            // How it ends is the business of both sides, which see it.
            let _ = target.cut.run_until_cancelled(copy_bidirectional(&mut client, &mut hub)).await;
            return;
        }
    }
}

/// A line to one address that can be cut without closing a connection: what was sent meanwhile arrives when it is healed.
pub(super) struct Line {
    address: SocketAddr,
    is_open: watch::Sender<bool>,
    _stop: DropGuard,
}

impl Line {
    pub(super) async fn start(to: SocketAddr) -> Result<Self, BenchError> {
        let (listener, address) = listen().await?;
        let stop = CancellationToken::new();
        let is_open = watch::Sender::new(true);
        let stopped = stop.clone();
        let open = is_open.subscribe();
        let tasks = TaskTracker::new();
        tasks.clone().spawn(async move {
            while let Some(Ok((near, _))) = stopped.run_until_cancelled(listener.accept()).await {
                let open = open.clone();
                let stopped = stopped.clone();
                tasks.spawn(async move { stopped.run_until_cancelled(join(near, to, open)).await });
            }
        });
        Ok(Self { address, is_open, _stop: stop.drop_guard() })
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(super) fn cut(&self) {
        self.is_open.send_replace(false);
    }

    pub(super) fn heal(&self) {
        self.is_open.send_replace(true);
    }
}

async fn join(near: TcpStream, to: SocketAddr, is_open: watch::Receiver<bool>) -> io::Result<()> {
    let far = TcpStream::connect(to).await?;
    near.set_nodelay(true)?;
    far.set_nodelay(true)?;
    let ((near_in, near_out), (far_in, far_out)) = (near.into_split(), far.into_split());
    tokio::select! {
        ended = forward(near_in, far_out, is_open.clone()) => ended,
        ended = forward(far_in, near_out, is_open) => ended,
    }
}

async fn forward(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    mut is_open: watch::Receiver<bool>,
) -> io::Result<()> {
    let mut piece = vec![0; PIECE_BYTES];
    loop {
        let n = from.read(&mut piece).await?;
        // The end of a connection is not seen through a cut line either.
        is_open.wait_for(|is_open| *is_open).await.map_err(io::Error::other)?;
        if n == 0 {
            return Ok(());
        }
        to.write_all(&piece[..n]).await?;
    }
}

async fn listen() -> Result<(TcpListener, SocketAddr), BenchError> {
    let failed = |source| BenchError::Hub { what: "has no balancer", source: Some(source) };
    let listener = TcpListener::bind("127.0.0.1:0").await.map_err(failed)?;
    let address = listener.local_addr().map_err(failed)?;
    Ok((listener, address))
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::time::sleep;

    /// A server that sends its name, then back what it gets.
    async fn server(name: &'static str) -> SocketAddr {
        let ((listener, address), tasks) = (listen().await.expect("bound"), TaskTracker::new());
        tasks.clone().spawn(async move {
            while let Ok((mut socket, _)) = listener.accept().await {
                tasks.spawn(async move {
                    let _ = socket.write_all(name.as_bytes()).await;
                    let (mut from, mut to) = socket.split();
                    let _ = tokio::io::copy(&mut from, &mut to).await;
                });
            }
        });
        address
    }

    async fn greeted(address: SocketAddr) -> (TcpStream, u8) {
        let mut socket = TcpStream::connect(address).await.expect("connected");
        let name = socket.read_u8().await.unwrap_or(0);
        (socket, name)
    }

    #[tokio::test]
    async fn hubs_are_taken_in_turn_and_those_that_refuse_are_passed_over() {
        let balancer = Balancer::start(3).await.expect("started");
        assert_eq!(greeted(balancer.address).await.1, 0, "there is no hub yet");
        let one = server("1").await;
        let two = server("2").await;
        let (gone, closed) = listen().await.expect("bound");
        drop(gone);
        for (at, address) in [one, closed, two].into_iter().enumerate() {
            balancer.set(at, Some(address));
        }
        let mut names = Vec::new();
        for _ in 0..6 {
            names.push(greeted(balancer.address).await.1);
        }
        assert!(names.iter().all(|name| b"12".contains(name)), "{names:?}");
        assert!(names.contains(&b'1') && names.contains(&b'2'), "{names:?}");
        balancer.set(0, None);
        let (mut socket, name) = greeted(balancer.address).await;
        assert_eq!(name, b'2');
        balancer.cut(2);
        assert_eq!(socket.read(&mut [0]).await.unwrap_or(0), 0, "the connection is cut");
        assert_eq!(greeted(balancer.address).await.1, b'2', "a later one is not");
    }

    #[tokio::test]
    async fn a_line_that_is_cut_holds_what_is_sent_until_it_is_healed() {
        let line = Line::start(server("1").await).await.expect("started");
        let (mut socket, name) = greeted(line.address()).await;
        assert_eq!(name, b'1');
        line.cut();
        socket.write_all(b"x").await.expect("taken");
        let read = timeout(Duration::from_millis(100), socket.read_u8()).await;
        assert!(read.is_err(), "{read:?}");
        sleep(Duration::from_millis(10)).await;
        line.heal();
        assert_eq!(socket.read_u8().await.expect("it arrives"), b'x');
    }
}
