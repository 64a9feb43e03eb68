//! SIP over TCP and TLS: connections that peers open, and those to trunks, as messages in and messages out.
//!
//! [`super::dialogs`] owns them. A connection is a task in a set that ends with its owner. What is no SIP closes it. The
//! hub opens a connection where it has something to send to an address that [`Streams::know`] named; of TLS it checks the
//! name of the host.
//!
//! Anyone can open a connection. Peers at the addresses of trunks have places of their own, and what they send keeps
//! their connections open. What another peer sends does that once a call by the connection was let in
//! ([`Streams::admit`]).

use crate::server::access::holder_counts::{HolderCount, HolderCounts};
use crate::server::edge::client::network;
use crate::server::edge::tls::Tls;
use antiphon_sip::{MAX_CALLS, Peer, Transport, stream_message};
use arc_swap::ArcSwap;
use bytes::{Bytes, BytesMut};
use rustls::pki_types::ServerName;
use std::collections::HashMap;
use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout, timeout_at};
use tokio_rustls::{TlsAcceptor, TlsConnector};

/// Connections that peers at the addresses of trunks open at a time, or others, and of one network; a further one is
/// closed.
const MAX_CONNECTIONS: usize = 256;
const MAX_CONNECTIONS_PER_NETWORK: usize = 64;
/// Addresses that the hub may open a connection to; of more, those without one are forgotten.
const MAX_HOSTS: usize = 256;
/// A connection, and its TLS handshake.
const CONNECTS_WITHIN: Duration = Duration::from_secs(10);
/// From one message, or the connection, to the end of the next one; peers keep connections open by empty lines. A peer
/// that is not admitted has this time once, from its first message on.
const FIRST_MESSAGE: Duration = Duration::from_secs(10);
const NEXT_MESSAGE: Duration = Duration::from_secs(600);
/// Messages of all connections that wait to be read; then no connection is read.
const MAX_RECEIVED: usize = 64;
/// What waits to be written by one connection, in bytes; of more, it is closed. There is room for a BYE of each call,
/// of 1 KiB with its routes: a hub that stops ends all calls at once, and a trunk may have them on one connection.
const MAX_UNSENT_BYTES: usize = MAX_CALLS * 1_024;
/// The same in messages: twice a BYE of each call.
const MAX_UNSENT: usize = 2 * MAX_CALLS;
/// A peer that takes nothing for this time is gone.
const STUCK: Duration = Duration::from_secs(10);
/// The time in which connections send what waits when the hub stops.
const FINISHES_WITHIN: Duration = Duration::from_secs(1);

/// What comes of the connections.
pub(super) enum StreamMessage {
    Message(Peer, Bytes),
    /// A connection was closed at once: there are too many.
    Refused(IpAddr),
    /// A connection has ended, or could not be made, and there is no other one of this peer.
    Closed(Peer),
    /// A connection has ended, and another one of this peer is open, or being opened.
    Replaced(Peer),
}

/// SIP over TLS: where peers connect, and what the hub trusts where it connects.
pub(super) struct TlsStreams {
    pub(super) listener: TcpListener,
    /// For the next handshakes.
    pub(super) certificate: Arc<ArcSwap<Tls>>,
    pub(super) connector: TlsConnector,
}

/// See the module.
pub(super) struct Streams {
    tcp: TcpListener,
    tls: Option<TlsStreams>,
    /// The names of hosts by their addresses.
    hosts: HashMap<Peer, String>,
    connections: JoinSet<Peer>,
    senders: HashMap<Peer, StreamSender>,
    /// Of connections that peers at the addresses of trunks open, and of those of others.
    places_of_trunks: AcceptedPlaces,
    places_of_others: AcceptedPlaces,
    received: mpsc::Receiver<(Peer, Bytes)>,
    received_sender: mpsc::Sender<(Peer, Bytes)>,
}

/// The places of connections that peers open.
#[derive(Default)]
struct AcceptedPlaces {
    all: HolderCounts<()>,
    by_network: HolderCounts<IpAddr>,
}

impl AcceptedPlaces {
    /// `None`: there are too many, in all or of this network.
    fn take(&self, network: IpAddr) -> Option<AcceptedPlace> {
        let of_network = self.by_network.take(network, MAX_CONNECTIONS_PER_NETWORK)?;
        let of_all = self.all.take((), MAX_CONNECTIONS)?;
        Some(AcceptedPlace { _of_all: of_all, _of_network: of_network })
    }
}

/// The place of a connection that a peer opened.
struct AcceptedPlace {
    _of_all: HolderCount<()>,
    _of_network: HolderCount<IpAddr>,
}

/// Writes to a connection. Once it is dropped, the connection ends after its last message.
struct StreamSender {
    messages: mpsc::Sender<UnsentMessage>,
    /// One permit for each byte that may still wait.
    room: Arc<Semaphore>,
    /// Whether what the peer sends keeps the connection open.
    is_admitted: Arc<AtomicBool>,
}

/// A message that waits to be written.
struct UnsentMessage {
    bytes: Bytes,
    _room: OwnedSemaphorePermit,
}

impl StreamSender {
    /// With what the connection takes the messages from.
    fn new(is_admitted: bool) -> (Self, mpsc::Receiver<UnsentMessage>) {
        let (messages, unsent) = mpsc::channel(MAX_UNSENT);
        let room = Arc::new(Semaphore::new(MAX_UNSENT_BYTES));
        let is_admitted = Arc::new(AtomicBool::new(is_admitted));
        (Self { messages, room, is_admitted }, unsent)
    }

    /// Whether the connection has not ended.
    fn is_open(&self) -> bool {
        !self.messages.is_closed()
    }

    /// Takes a message of at most 64 KiB. `false`: the connection has ended, or too much waits.
    fn send(&self, bytes: Bytes) -> bool {
        let Ok(room) = self.room.clone().try_acquire_many_owned(bytes.len() as u32) else { return false };
        self.messages.try_send(UnsentMessage { bytes, _room: room }).is_ok()
    }
}

impl Streams {
    pub(super) fn new(tcp: TcpListener, tls: Option<TlsStreams>) -> Self {
        let (received_sender, received) = mpsc::channel(MAX_RECEIVED);
        Self {
            tcp,
            tls,
            hosts: HashMap::new(),
            connections: JoinSet::new(),
            senders: HashMap::new(),
            places_of_trunks: AcceptedPlaces::default(),
            places_of_others: AcceptedPlaces::default(),
            received,
            received_sender,
        }
    }

    /// The hub may connect to this peer, which is `host`. Does nothing for a peer by UDP.
    pub(super) fn know(&mut self, peer: Peer, host: &str) {
        if peer.transport == Transport::Udp {
            return;
        }
        if self.hosts.len() >= MAX_HOSTS {
            self.hosts.retain(|peer, _| self.senders.contains_key(peer));
        }
        if self.hosts.len() < MAX_HOSTS {
            self.hosts.insert(peer, host.to_owned());
        }
    }

    /// A call by this connection was let in: what the peer sends keeps it open from now on.
    pub(super) fn admit(&self, peer: Peer) {
        if let Some(sender) = self.senders.get(&peer) {
            sender.is_admitted.store(true, Ordering::Relaxed);
        }
    }

    /// The next message. `is_listed`: whether a trunk calls from an address. Cancel safe.
    pub(super) async fn next(&mut self, is_listed: impl Fn(IpAddr) -> bool) -> StreamMessage {
        loop {
            let tls = &self.tls;
            let by_tls = async {
                match tls {
                    Some(tls) => tls.listener.accept().await,
                    None => std::future::pending().await,
                }
            };
            let (accepted, transport) = tokio::select! {
                Some((peer, bytes)) = self.received.recv() => return StreamMessage::Message(peer, bytes),
                Some(ended) = self.connections.join_next() => {
                    let Ok(peer) = ended else { continue };
                    if self.senders.get(&peer).is_some_and(StreamSender::is_open) {
                        return StreamMessage::Replaced(peer);
                    }
                    self.senders.remove(&peer);
                    return StreamMessage::Closed(peer);
                }
                accepted = self.tcp.accept() => (accepted, Transport::Tcp),
                accepted = by_tls => (accepted, Transport::Tls),
            };
            match accepted {
                Ok((stream, address)) => {
                    let is_of_trunk = is_listed(address.ip().to_canonical());
                    if let Some(refused) = self.accept(stream, Peer { transport, address }, is_of_trunk) {
                        return refused;
                    }
                }
                Err(error) => {
                    tracing::warn!(%error, "a SIP connection cannot be accepted");
                    tokio::time::sleep(Duration::from_millis(200)).await;
                }
            }
        }
    }

    fn accept(&mut self, stream: TcpStream, peer: Peer, is_of_trunk: bool) -> Option<StreamMessage> {
        let places = if is_of_trunk { &self.places_of_trunks } else { &self.places_of_others };
        let Some(place) = places.take(network(peer.address.ip())) else {
            return Some(StreamMessage::Refused(peer.address.ip().to_canonical()));
        };
        let (sender, unsent) = StreamSender::new(is_of_trunk);
        let is_admitted = sender.is_admitted.clone();
        self.senders.insert(peer, sender);
        let acceptor = self.tls.as_ref().filter(|_| peer.transport == Transport::Tls);
        let acceptor = acceptor.map(|tls| TlsAcceptor::from(tls.certificate.load().sip()));
        let received = self.received_sender.clone();
        self.connections.spawn(async move {
            let _place = place;
            let _ = stream.set_nodelay(true);
            let Some(acceptor) = acceptor else {
                return serve(stream, peer, FIRST_MESSAGE, is_admitted, unsent, received).await;
            };
            match timeout(CONNECTS_WITHIN, acceptor.accept(stream)).await {
                Ok(Ok(stream)) => serve(stream, peer, FIRST_MESSAGE, is_admitted, unsent, received).await,
                Ok(Err(error)) => {
                    tracing::debug!(%error, "the TLS handshake of a SIP peer failed");
                    peer
                }
                Err(_) => peer,
            }
        });
        None
    }

    /// Sends a message by the connection of this peer, which is opened where the peer is known; drops the message where
    /// there is none, or it takes nothing.
    pub(super) fn send(&mut self, peer: Peer, bytes: Bytes) {
        let is_open = self.senders.get(&peer).is_some_and(StreamSender::is_open);
        if !is_open {
            self.connect(peer);
        }
        let Some(sender) = self.senders.get(&peer) else { return };
        if !sender.send(bytes) {
            // Closes it.
            self.senders.remove(&peer);
        }
    }

    /// Ends all connections once they have sent what waits: within a second.
    pub(super) async fn finish(mut self) {
        // A connection without a sender ends after its last message.
        self.senders.clear();
        let ended = async {
            loop {
                tokio::select! {
                    ended = self.connections.join_next() => if ended.is_none() {
                        return;
                    },
                    // A peer whose answers are not read may not read on itself.
                    _ = self.received.recv() => {}
                }
            }
        };
        let _ = timeout(FINISHES_WITHIN, ended).await;
    }

    fn connect(&mut self, peer: Peer) {
        let Some(host) = self.hosts.get(&peer).cloned() else { return };
        let connector = self.tls.as_ref().map(|tls| tls.connector.clone());
        let connector = connector.filter(|_| peer.transport == Transport::Tls);
        let (sender, unsent) = StreamSender::new(true);
        let is_admitted = sender.is_admitted.clone();
        self.senders.insert(peer, sender);
        let received = self.received_sender.clone();
        self.connections.spawn(async move {
            let connected = async {
                let stream = TcpStream::connect(peer.address).await?;
                let _ = stream.set_nodelay(true);
                let Some(connector) = connector else { return Ok(Connected::Tcp(stream)) };
                let name = host.trim_start_matches('[').trim_end_matches(']').to_owned();
                let name = ServerName::try_from(name).map_err(io::Error::other)?;
                connector.connect(name, stream).await.map(|stream| Connected::Tls(Box::new(stream)))
            };
            let late = |_| io::Error::from(io::ErrorKind::TimedOut);
            match timeout(CONNECTS_WITHIN, connected).await.map_err(late).flatten() {
                Ok(Connected::Tcp(stream)) => serve(stream, peer, NEXT_MESSAGE, is_admitted, unsent, received).await,
                Ok(Connected::Tls(stream)) => serve(*stream, peer, NEXT_MESSAGE, is_admitted, unsent, received).await,
                Err(error) => {
                    tracing::warn!(host, address = %peer.address, %error, "no connection to a SIP trunk");
                    peer
                }
            }
        });
    }
}

/// A connection that the hub opened.
enum Connected {
    Tcp(TcpStream),
    Tls(Box<tokio_rustls::client::TlsStream<TcpStream>>),
}

/// Serves a connection until it ends. `first`: how long its first message is waited for. `is_admitted`: whether what
/// the peer sends keeps it open.
async fn serve(
    stream: impl AsyncRead + AsyncWrite + Send + 'static,
    peer: Peer,
    first: Duration,
    is_admitted: Arc<AtomicBool>,
    mut unsent: mpsc::Receiver<UnsentMessage>,
    received: mpsc::Sender<(Peer, Bytes)>,
) -> Peer {
    let (reader, mut writer) = tokio::io::split(stream);
    let read = read(reader, peer, first, is_admitted, received);
    let written = async {
        while let Some(message) = unsent.recv().await {
            let written = async {
                writer.write_all(&message.bytes).await?;
                writer.flush().await
            };
            if !matches!(timeout(STUCK, written).await, Ok(Ok(()))) {
                return;
            }
        }
    };
    tokio::select! {
        _ = read => {}
        () = written => {}
    }
    peer
}

async fn read(
    mut reader: impl AsyncRead + Unpin,
    peer: Peer,
    first: Duration,
    is_admitted: Arc<AtomicBool>,
    received: mpsc::Sender<(Peer, Bytes)>,
) -> io::Result<()> {
    let mut buffer = BytesMut::new();
    let mut until = Instant::now() + first;
    // When the last message came, or, after the first one, an empty line.
    let mut last_heard: Option<Instant> = None;
    loop {
        let found = stream_message(&buffer).map_err(io::Error::other)?;
        if let Some(n) = found {
            let now = Instant::now();
            if last_heard.is_none() || is_admitted.load(Ordering::Relaxed) {
                until = now + NEXT_MESSAGE;
            }
            last_heard = Some(now);
            if received.send((peer, buffer.split_to(n).freeze())).await.is_err() {
                return Ok(());
            }
            continue;
        }
        // Empty lines that keep the connection open pile up to nothing.
        if !buffer.is_empty() && buffer.iter().all(|byte| matches!(byte, b'\r' | b'\n')) {
            buffer.clear();
            if let Some(last_heard) = &mut last_heard {
                *last_heard = Instant::now();
                if is_admitted.load(Ordering::Relaxed) {
                    until = *last_heard + NEXT_MESSAGE;
                }
            }
        }
        if buffer.capacity() - buffer.len() < 512 {
            buffer.reserve(4 * 1024);
        }
        let Ok(n_bytes) = timeout_at(until, reader.read_buf(&mut buffer)).await else {
            // The peer may have been admitted since it was heard.
            let extended = last_heard.filter(|_| is_admitted.load(Ordering::Relaxed)).map(|last| last + NEXT_MESSAGE);
            match extended.filter(|extended| *extended > until) {
                Some(extended) => until = extended,
                None => return Err(io::Error::from(io::ErrorKind::TimedOut)),
            }
            continue;
        };
        if n_bytes? == 0 {
            return Err(io::Error::from(io::ErrorKind::UnexpectedEof));
        }
    }
}

#[cfg(test)]
pub(super) mod testing {
    use super::*;
    use std::net::SocketAddr;

    /// Where peers connect.
    pub(in super::super) fn address(streams: &Streams) -> SocketAddr {
        streams.tcp.local_addr().unwrap()
    }

    /// Whether what this peer sends keeps its connection open.
    pub(in super::super) fn is_admitted(streams: &Streams, peer: Peer) -> bool {
        streams.senders[&peer].is_admitted.load(Ordering::Relaxed)
    }
}

/// The peers' addresses are those of connections.
#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{Ipv4Addr, SocketAddr};
    use tokio::time::sleep;

    /// A hub without TLS that knows a peer at this address.
    async fn streams(address: SocketAddr) -> (Streams, Peer) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut streams = Streams::new(listener, None);
        let peer = Peer { transport: Transport::Tcp, address };
        streams.know(peer, "localhost");
        (streams, peer)
    }

    /// A connection that a peer has opened, and has sent a message by.
    async fn accepted(streams: &mut Streams) -> (TcpStream, Peer) {
        let mut connection = TcpStream::connect(streams.tcp.local_addr().unwrap()).await.unwrap();
        connection.write_all(b"OPTIONS sip:a SIP/2.0\r\nContent-Length: 0\r\n\r\n").await.unwrap();
        match streams.next(|_| true).await {
            StreamMessage::Message(peer, _) => (connection, peer),
            _ => panic!("no message"),
        }
    }

    #[tokio::test]
    async fn a_bye_of_each_call_is_sent_by_one_connection_and_more_closes_it() {
        let (mut streams, _) = streams("127.0.0.1:9".parse().unwrap()).await;
        let (mut connection, peer) = accepted(&mut streams).await;
        let bye = Bytes::from(vec![b'x'; 1_024]);
        // Nothing is written meanwhile: the connection is a task of this thread.
        for _ in 0..MAX_CALLS {
            streams.send(peer, bye.clone());
        }
        assert!(streams.senders.contains_key(&peer), "it is open");
        streams.send(peer, bye);
        assert!(!streams.senders.contains_key(&peer), "too much waits");
        let mut received = Vec::new();
        connection.read_to_end(&mut received).await.unwrap();
        assert_eq!(received.len(), MAX_CALLS * 1_024);
    }

    #[tokio::test]
    async fn a_connection_is_opened_where_something_is_sent_and_its_end_is_told() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (mut streams, peer) = streams(listener.local_addr().unwrap()).await;
        streams.send(Peer { transport: Transport::Tcp, address: "127.0.0.1:9".parse().unwrap() }, Bytes::from("x"));
        assert!(streams.senders.is_empty(), "not to a peer that is not known");
        for _ in 0..2 {
            streams.send(peer, Bytes::from("hello "));
            streams.send(peer, Bytes::from("you"));
            let (mut connection, _) = listener.accept().await.unwrap();
            let mut text = [0; 9];
            connection.read_exact(&mut text).await.unwrap();
            assert_eq!(&text, b"hello you");
            connection.write_all(b"\r\n\r\nOPTIONS sip:a SIP/2.0\r\nContent-Length: 0\r\n\r\n").await.unwrap();
            assert!(matches!(streams.next(|_| true).await, StreamMessage::Message(from, _) if from == peer));
            drop(connection);
            assert!(matches!(streams.next(|_| true).await, StreamMessage::Closed(from) if from == peer));
            assert!(streams.senders.is_empty());
        }
        drop(listener);
        streams.send(peer, Bytes::from("hello"));
        assert!(matches!(streams.next(|_| true).await, StreamMessage::Closed(from) if from == peer), "nothing listens");
    }

    #[tokio::test]
    async fn a_connection_that_another_one_has_replaced_is_not_told_as_the_end() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (mut streams, peer) = streams(listener.local_addr().unwrap()).await;
        streams.send(peer, Bytes::from("first"));
        drop(listener.accept().await.unwrap());
        streams.senders[&peer].messages.closed().await;
        streams.send(peer, Bytes::from("second"));
        assert!(matches!(streams.next(|_| true).await, StreamMessage::Replaced(from) if from == peer));
        let (mut connection, _) = listener.accept().await.unwrap();
        let mut text = [0; 6];
        connection.read_exact(&mut text).await.unwrap();
        assert_eq!(&text, b"second");
        drop(connection);
        assert!(matches!(streams.next(|_| true).await, StreamMessage::Closed(from) if from == peer));
    }

    #[tokio::test]
    async fn strangers_take_no_place_of_a_trunk() {
        let (mut streams, _) = streams("127.0.0.1:9".parse().unwrap()).await;
        let place = |n: u32| streams.places_of_others.take(Ipv4Addr::from_bits(n).into()).expect("it is free");
        let strangers: Vec<_> = (0..MAX_CONNECTIONS as u32).map(place).collect();
        let _stranger = TcpStream::connect(streams.tcp.local_addr().unwrap()).await.unwrap();
        assert!(matches!(streams.next(|_| false).await, StreamMessage::Refused(_)));
        let (_connection, peer) = accepted(&mut streams).await;
        assert!(testing::is_admitted(&streams, peer), "it is of a trunk");
        drop(strangers);
    }

    #[tokio::test(start_paused = true)]
    async fn what_a_peer_sends_keeps_its_connection_open_once_it_is_admitted() {
        let options = b"OPTIONS sip:a SIP/2.0\r\nContent-Length: 0\r\n\r\n";
        for message in [&b"\r\n\r\n"[..], &options[..]] {
            for admitted in [false, true] {
                let (mut near, far) = tokio::io::duplex(1_024);
                let (sender, _received) = mpsc::channel(MAX_RECEIVED);
                let peer = Peer { transport: Transport::Tcp, address: "192.0.2.9:5060".parse().unwrap() };
                let is_admitted = Arc::new(AtomicBool::new(false));
                let reading = read(far, peer, FIRST_MESSAGE, is_admitted.clone(), sender);
                let talking = async {
                    near.write_all(options).await.unwrap();
                    is_admitted.store(admitted, Ordering::Relaxed);
                    for _ in 0..4 {
                        sleep(NEXT_MESSAGE / 2).await;
                        near.write_all(message).await.unwrap();
                    }
                };
                let stays_open = tokio::select! {
                    _ = reading => false,
                    () = talking => true,
                };
                assert_eq!(stays_open, admitted, "{message:?}");
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_message_before_the_admission_keeps_the_connection_open() {
        let second = Duration::from_secs(1);
        let options = b"OPTIONS sip:a SIP/2.0\r\nContent-Length: 0\r\n\r\n";
        let (mut near, far) = tokio::io::duplex(1_024);
        let (sender, _received) = mpsc::channel(MAX_RECEIVED);
        let peer = Peer { transport: Transport::Tcp, address: "192.0.2.9:5060".parse().unwrap() };
        let is_admitted = Arc::new(AtomicBool::new(false));
        let mut reading = std::pin::pin!(read(far, peer, FIRST_MESSAGE, is_admitted.clone(), sender));
        let talking = async {
            near.write_all(options).await.unwrap();
            sleep(NEXT_MESSAGE - 10 * second).await;
            near.write_all(options).await.unwrap();
            sleep(second).await;
            is_admitted.store(true, Ordering::Relaxed);
            sleep(NEXT_MESSAGE - 2 * second).await;
        };
        let is_open = tokio::select! {
            _ = &mut reading => false,
            () = talking => true,
        };
        assert!(is_open, "the last message came less than 600 s ago");
        assert!(timeout(2 * second, reading).await.is_ok(), "it ends 600 s after the last message");
    }

    #[tokio::test]
    async fn what_waits_is_sent_before_the_end() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (mut streams, peer) = streams(listener.local_addr().unwrap()).await;
        streams.send(peer, Bytes::from("goodbye"));
        let received = async {
            let (mut connection, _) = listener.accept().await.unwrap();
            let mut text = String::new();
            connection.read_to_string(&mut text).await.unwrap();
            text
        };
        let ((), text) = tokio::join!(streams.finish(), received);
        assert_eq!(text, "goodbye");
    }
}
