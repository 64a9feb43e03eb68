//! SIP over TCP: connections that peers open, as messages in and messages out.
//!
//! [`super::dialogs`] owns them. A connection is a task in a set that ends with its owner. What is no SIP closes it.

use crate::server::access::holder_counts::{HolderCount, HolderCounts};
use crate::server::edge::client::network;
use antiphon_sip::stream_message;
use bytes::{Bytes, BytesMut};
use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::OwnedReadHalf;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::timeout;

/// Connections at a time, and of one network; a further one is closed.
const MAX_CONNECTIONS: usize = 256;
const MAX_CONNECTIONS_PER_NETWORK: usize = 64;
/// From one message, or the connection, to the end of the next one; peers keep connections open by empty lines.
const FIRST_MESSAGE: Duration = Duration::from_secs(10);
const NEXT_MESSAGE: Duration = Duration::from_secs(600);
/// Messages of all connections that wait to be read, and of one that wait to be written; then the connection is not
/// read, or is closed.
const MAX_RECEIVED: usize = 64;
const MAX_UNSENT: usize = 32;
/// A peer that takes nothing for this time is gone.
const STUCK: Duration = Duration::from_secs(10);

/// What comes of the connections.
pub(super) enum StreamMessage {
    Message(SocketAddr, Bytes),
    /// A connection was closed at once: there are too many.
    Refused(IpAddr),
}

/// See the module.
pub(super) struct Streams {
    listener: TcpListener,
    connections: JoinSet<SocketAddr>,
    senders: HashMap<SocketAddr, mpsc::Sender<Bytes>>,
    by_network: HolderCounts<IpAddr>,
    received: mpsc::Receiver<(SocketAddr, Bytes)>,
    received_sender: mpsc::Sender<(SocketAddr, Bytes)>,
}

impl Streams {
    pub(super) fn new(listener: TcpListener) -> Self {
        let (received_sender, received) = mpsc::channel(MAX_RECEIVED);
        Self {
            listener,
            connections: JoinSet::new(),
            senders: HashMap::new(),
            by_network: HolderCounts::default(),
            received,
            received_sender,
        }
    }

    /// The next message. Cancel safe.
    pub(super) async fn next(&mut self) -> StreamMessage {
        loop {
            tokio::select! {
                Some((address, bytes)) = self.received.recv() => return StreamMessage::Message(address, bytes),
                Some(ended) = self.connections.join_next() => if let Ok(address) = ended {
                    self.senders.remove(&address);
                },
                accepted = self.listener.accept() => match accepted {
                    Ok((stream, address)) => if let Some(refused) = self.accept(stream, address) {
                        return refused;
                    },
                    Err(error) => {
                        tracing::warn!(%error, "a SIP connection cannot be accepted");
                        tokio::time::sleep(Duration::from_millis(200)).await;
                    }
                },
            }
        }
    }

    fn accept(&mut self, stream: TcpStream, address: SocketAddr) -> Option<StreamMessage> {
        let place = self.by_network.take(network(address.ip()), MAX_CONNECTIONS_PER_NETWORK);
        let Some(place) = place.filter(|_| self.connections.len() < MAX_CONNECTIONS) else {
            return Some(StreamMessage::Refused(address.ip().to_canonical()));
        };
        let (sender, unsent) = mpsc::channel(MAX_UNSENT);
        self.senders.insert(address, sender);
        self.connections.spawn(serve(stream, address, unsent, self.received_sender.clone(), place));
        None
    }

    /// Sends a message by the connection of this peer; drops it where there is none, or it takes nothing.
    pub(super) fn send(&mut self, address: SocketAddr, bytes: Bytes) {
        let Some(sender) = self.senders.get(&address) else { return };
        if sender.try_send(bytes).is_err() {
            // Closes it.
            self.senders.remove(&address);
        }
    }
}

async fn serve(
    stream: TcpStream,
    address: SocketAddr,
    mut unsent: mpsc::Receiver<Bytes>,
    received: mpsc::Sender<(SocketAddr, Bytes)>,
    _place: HolderCount<IpAddr>,
) -> SocketAddr {
    let _ = stream.set_nodelay(true);
    let (reader, mut writer) = stream.into_split();
    let read = read(reader, address, received);
    let written = async {
        while let Some(bytes) = unsent.recv().await {
            if !matches!(timeout(STUCK, writer.write_all(&bytes)).await, Ok(Ok(()))) {
                return;
            }
        }
    };
    tokio::select! {
        _ = read => {}
        () = written => {}
    }
    address
}

async fn read(
    mut reader: OwnedReadHalf,
    address: SocketAddr,
    received: mpsc::Sender<(SocketAddr, Bytes)>,
) -> io::Result<()> {
    let mut buffer = BytesMut::new();
    let mut patience = FIRST_MESSAGE;
    let late = |_| io::Error::from(io::ErrorKind::TimedOut);
    loop {
        let whole = async {
            loop {
                let found = stream_message(&buffer).map_err(io::Error::other)?;
                if let Some(n) = found {
                    return Ok(buffer.split_to(n).freeze());
                }
                if buffer.capacity() - buffer.len() < 512 {
                    buffer.reserve(4 * 1024);
                }
                // Empty lines that keep the connection open pile up to nothing.
                if buffer.iter().all(|byte| matches!(byte, b'\r' | b'\n')) {
                    buffer.clear();
                }
                if reader.read_buf(&mut buffer).await? == 0 {
                    return Err(io::Error::from(io::ErrorKind::UnexpectedEof));
                }
            }
        };
        let message = timeout(patience, whole).await.map_err(late)??;
        patience = NEXT_MESSAGE;
        if received.send((address, message)).await.is_err() {
            return Ok(());
        }
    }
}
