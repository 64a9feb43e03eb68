//! A server on loopback for tests, over HTTP/1.1 and WebSocket: a closure answers each request, an [`Answer`] breaks every rule
//! that a test asks it to break, and what was asked is recorded.
//!
//! It works on bare sockets, so that an answer need not be HTTP, and on a paused clock. Dropping it ends its connections.

mod answer;
mod connection;
mod request;

pub use answer::Answer;
pub use connection::WebSocket;
pub use request::{FormField, Request};
pub use tokio_tungstenite::tungstenite::{Error as WebSocketError, Message};

use connection::Connection;
use std::collections::VecDeque;
use std::net::{SocketAddr, TcpListener};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use tokio::sync::watch;
use tokio::task::JoinSet;

/// See the module.
pub struct TestServer {
    address: SocketAddr,
    state: Arc<State>,
    tasks: JoinSet<()>,
}

/// What the connections share.
struct State {
    answer: Box<dyn Fn(&Request) -> Answer + Send + Sync>,
    requests: watch::Sender<Vec<Request>>,
    n_open: watch::Sender<usize>,
    n_bytes_sent: AtomicUsize,
}

impl TestServer {
    /// A server that answers each request with what `answer` returns. A panic of `answer` closes the connection.
    ///
    /// # Panics
    /// Outside of a Tokio runtime.
    pub fn start(answer: impl Fn(&Request) -> Answer + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        listener.set_nonblocking(true).expect("a socket");
        let listener = tokio::net::TcpListener::from_std(listener).expect("a runtime");
        let address = listener.local_addr().expect("bound");
        let state = Arc::new(State {
            answer: Box::new(answer),
            requests: watch::Sender::default(),
            n_open: watch::Sender::default(),
            n_bytes_sent: AtomicUsize::new(0),
        });
        let mut tasks = JoinSet::new();
        tasks.spawn(accept(listener, state.clone()));
        Self { address, state, tasks }
    }

    /// A server that gives these answers, in their order, to the requests of a path, and 404 to others.
    pub fn script(path: &'static str, answers: impl IntoIterator<Item = Answer>) -> Self {
        let answers: Mutex<VecDeque<Answer>> = Mutex::new(answers.into_iter().collect());
        Self::start(move |request| {
            if request.path() != path {
                return Answer::status(404);
            }
            let next = answers.lock().expect("no panic while locked").pop_front();
            next.expect("the script has an answer for each request")
        })
    }

    /// A server that gives each WebSocket to `script`.
    pub fn websocket<F: Future<Output = ()> + Send + 'static>(
        script: impl Fn(WebSocket) -> F + Clone + Send + Sync + 'static,
    ) -> Self {
        Self::start(move |_| Answer::websocket(script.clone()))
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Its address with a path.
    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// The requests so far.
    pub fn requests(&self) -> Vec<Request> {
        self.state.requests.borrow().clone()
    }

    /// The requests since the last call. Numbers begin again.
    pub fn take_requests(&self) -> Vec<Request> {
        self.state.requests.send_replace(Vec::new())
    }

    /// The number of requests so far.
    pub fn n_requests(&self) -> usize {
        self.state.requests.borrow().len()
    }

    /// The request of this number, from 0, once it has come.
    pub async fn request(&self, number: usize) -> Request {
        let mut requests = self.state.requests.subscribe();
        let all = requests.wait_for(|all| all.len() > number).await.expect("the sender is in `self`");
        all[number].clone()
    }

    /// The number of open connections.
    pub fn n_open(&self) -> usize {
        *self.state.n_open.borrow()
    }

    /// Waits until no connection is open.
    pub async fn all_closed(&self) {
        let mut n_open = self.state.n_open.subscribe();
        n_open.wait_for(|n| *n == 0).await.expect("the sender is in `self`");
    }

    /// Bytes of answers that were written to sockets, with their heads.
    pub fn n_bytes_sent(&self) -> usize {
        self.state.n_bytes_sent.load(Ordering::Relaxed)
    }

    /// Closes its port and all its connections.
    pub async fn kill(&mut self) {
        self.tasks.shutdown().await;
        self.all_closed().await;
    }
}

async fn accept(listener: tokio::net::TcpListener, state: Arc<State>) {
    let mut connections = JoinSet::new();
    while let Ok((stream, peer)) = listener.accept().await {
        connections.spawn(Connection::new(stream, peer, state.clone()).run());
        // Those that have ended need no room.
        while connections.try_join_next().is_some() {}
    }
}

/// An address at which no server listens.
pub fn unused_address() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    listener.local_addr().expect("bound")
}
