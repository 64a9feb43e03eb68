//! The UDP socket and the TCP listener that all calls share, and which datagram belongs to which call.
//!
//! A call's ICE user fragment finds its inbox for STUN requests; the addresses to which the call answered find it for everything
//! else. What belongs to no call is dropped without a reply, so that nothing is reflected. TCP connections carry datagrams as
//! RFC 4571 frames. No datagram is decrypted or judged here; [`super::peer`] does both.

use crate::config::RtcConfig;
use crate::server::edge::client::network;
use crate::server::transport::queue::{Queue, Weight};
use bytes::{Bytes, BytesMut};
use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use str0m::ice::StunMessage;
use str0m::net::Protocol;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

/// Bytes of datagrams that wait for a call: a second of audio, or a data channel message of the maximum size.
const MAX_INBOX_BYTES: usize = 512 * 1024;
/// The longest datagram: Ethernet's, and some room.
const MAX_DATAGRAM_BYTES: usize = 2048;
/// Frames that wait for a TCP connection to take them: more than two seconds of audio.
const MAX_UNSENT: usize = 128;
/// TCP connections at a time, and of one network.
const MAX_CONNECTIONS: usize = 1_024;
const MAX_CONNECTIONS_PER_NETWORK: usize = 64;
/// From the accepted TCP connection to the first STUN request of a call; and between two frames afterwards, of which the first
/// bytes extend nothing.
const FIRST_FRAME: Duration = Duration::from_secs(10);
const NEXT_FRAME: Duration = Duration::from_secs(30);
/// Attempts to find a port that is free for UDP and TCP.
const MAX_BINDS: usize = 16;

/// A datagram as received.
pub(super) struct Datagram {
    pub(super) source: SocketAddr,
    pub(super) at: Instant,
    pub(super) bytes: Bytes,
    /// The TCP connection that it came by; `None`: UDP.
    pub(super) connection: Option<mpsc::Sender<Bytes>>,
}

/// What arrived for one call.
pub(super) type Inbox = Queue<Datagram>;

/// The sockets.
pub(in crate::server) struct Endpoint {
    udp: UdpSocket,
    tcp: TcpListener,
    /// Where peers reach the sockets, by the settings.
    advertised: Vec<SocketAddr>,
    routes: Mutex<Routes>,
    /// TCP connections by network.
    connections: Mutex<HashMap<IpAddr, usize>>,
}

#[derive(Default)]
struct Routes {
    by_fragment: HashMap<String, EndpointEntry>,
    by_address: HashMap<SocketAddr, EndpointEntry>,
}

#[derive(Clone)]
pub(super) struct EndpointEntry {
    inbox: Arc<Inbox>,
    /// Cancelled when the call has ended.
    ended: CancellationToken,
}

/// A call's entries in the table. Dropping it removes them.
pub(super) struct Route {
    endpoint: Arc<Endpoint>,
    fragment: String,
    addresses: Vec<SocketAddr>,
    listed: EndpointEntry,
}

/// Addresses at which one call is reached; of more, the oldest goes.
const MAX_ADDRESSES: usize = 8;

impl Endpoint {
    /// Binds both sockets to `rtc.listen`.
    ///
    /// # Errors
    /// The address is in use or not of this machine, or no address is known under which peers reach it.
    pub(in crate::server) async fn bind(config: &RtcConfig) -> io::Result<Self> {
        let listen = tokio::net::lookup_host(&config.listen).await?.next();
        let listen = listen.ok_or_else(|| io::Error::other("rtc.listen names no address"))?;
        let mut left = if listen.port() == 0 { MAX_BINDS } else { 1 };
        let (udp, tcp) = loop {
            let tcp = TcpListener::bind(listen).await?;
            let udp = UdpSocket::bind(SocketAddr::new(listen.ip(), tcp.local_addr()?.port())).await;
            left -= 1;
            match udp {
                Ok(udp) => break (udp, tcp),
                Err(error) if left == 0 => return Err(error),
                Err(_) => {}
            }
        };
        let bound = udp.local_addr()?;
        let addresses = match (config.addresses(), bound.ip().is_unspecified()) {
            (configured, _) if !configured.is_empty() => configured,
            (_, false) => vec![bound.ip()],
            (_, true) => own_addresses(bound.is_ipv4())?,
        };
        let advertised: Vec<_> = addresses.into_iter().map(|ip| SocketAddr::new(ip, bound.port())).collect();
        if advertised.is_empty() {
            return Err(io::Error::other("no address to advertise for rtc.listen: set rtc.advertise"));
        }
        tracing::info!(%bound, ?advertised, "listening for WebRTC by UDP and TCP");
        Ok(Self { udp, tcp, advertised, routes: Mutex::default(), connections: Mutex::default() })
    }

    /// Where peers reach the sockets.
    pub(super) fn advertised(&self) -> &[SocketAddr] {
        &self.advertised
    }

    /// The address that a datagram from `source` was sent to, as far as ICE distinguishes it.
    pub(super) fn destination(&self, source: SocketAddr) -> SocketAddr {
        let same = self.advertised.iter().find(|address| address.is_ipv4() == source.is_ipv4());
        *same.unwrap_or(&self.advertised[0])
    }

    /// Lists a call by the user fragment that it gives its peer.
    pub(super) fn list(self: &Arc<Self>, fragment: String) -> Route {
        let listed = EndpointEntry { inbox: Arc::new(Queue::new(MAX_INBOX_BYTES)), ended: CancellationToken::new() };
        self.routes().by_fragment.insert(fragment.clone(), listed.clone());
        Route { endpoint: self.clone(), fragment, addresses: Vec::new(), listed }
    }

    /// Sends a datagram by UDP; drops it where the socket is not ready, as a network would.
    pub(super) fn send(&self, bytes: &[u8], to: SocketAddr) {
        let _ = self.udp.try_send_to(bytes, to);
    }

    /// Receives until `stop`, then returns. The TCP connections end with it.
    pub(in crate::server) async fn run(self: Arc<Self>, stop: CancellationToken) {
        tokio::select! {
            () = stop.cancelled() => {}
            () = self.receive() => {}
            () = self.accept() => {}
        }
    }

    async fn receive(&self) {
        let mut buffer = vec![0; MAX_DATAGRAM_BYTES];
        loop {
            match self.udp.recv_from(&mut buffer).await {
                Ok((n, source)) => {
                    let at = Instant::now();
                    if let Some(listed) = self.find(&buffer[..n], Some(source)) {
                        let bytes = Bytes::copy_from_slice(&buffer[..n]);
                        listed.inbox.push(Datagram { source, at, bytes, connection: None });
                    }
                }
                // The answer of an earlier peer's machine, or no memory for a moment.
                Err(error) => {
                    tracing::debug!(%error, "receiving by UDP failed");
                    tokio::task::yield_now().await;
                }
            }
        }
    }

    async fn accept(self: &Arc<Self>) {
        let mut connections = JoinSet::new();
        loop {
            while connections.try_join_next().is_some() {}
            match self.tcp.accept().await {
                Ok((stream, source)) => {
                    let Some(place) = self.connected(source.ip()) else { continue };
                    let this = self.clone();
                    connections.spawn(async move {
                        this.connection(stream, source).await;
                        drop(place);
                    });
                }
                Err(error) => {
                    tracing::warn!(%error, "accepting a TCP connection of WebRTC failed");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            }
        }
    }

    /// Serves one TCP connection until its call or its peer ends it.
    async fn connection(&self, stream: TcpStream, source: SocketAddr) {
        let _ = stream.set_nodelay(true);
        let (mut reader, mut writer) = stream.into_split();
        let Ok(Some(first)) = timeout(FIRST_FRAME, frame(&mut reader)).await else { return };
        let Some(listed) = self.find(&first, None) else { return };
        let (sender, mut unsent) = mpsc::channel::<Bytes>(MAX_UNSENT);
        let push = |bytes| {
            let connection = Some(sender.clone());
            listed.inbox.push(Datagram { source, at: Instant::now(), bytes, connection });
        };
        push(first);
        let read = async {
            while let Ok(Some(bytes)) = timeout(NEXT_FRAME, frame(&mut reader)).await {
                push(bytes);
            }
        };
        let write = async {
            while let Some(bytes) = unsent.recv().await {
                let Ok(length) = u16::try_from(bytes.len()) else { continue };
                let mut framed = BytesMut::with_capacity(2 + bytes.len());
                framed.extend_from_slice(&length.to_be_bytes());
                framed.extend_from_slice(&bytes);
                if !matches!(timeout(NEXT_FRAME, writer.write_all(&framed)).await, Ok(Ok(()))) {
                    return;
                }
            }
        };
        tokio::select! {
            () = read => {}
            () = write => {}
            () = listed.ended.cancelled() => {}
        }
    }

    /// The call that a datagram belongs to.
    pub(super) fn find(&self, bytes: &[u8], source: Option<SocketAddr>) -> Option<EndpointEntry> {
        let is_stun = matches!(bytes.first()?, 0..=3);
        if is_stun && let Some(fragment) = fragment_of(bytes) {
            return self.routes().by_fragment.get(&fragment).cloned();
        }
        self.routes().by_address.get(&source?).cloned()
    }

    fn routes(&self) -> MutexGuard<'_, Routes> {
        self.routes.lock().expect("no panic while locked")
    }

    fn connected(self: &Arc<Self>, address: IpAddr) -> Option<TcpPlace> {
        let network = network(address);
        let mut connections = self.connections.lock().expect("no panic while locked");
        let n: usize = connections.values().sum();
        let own = connections.get(&network).copied().unwrap_or_default();
        if n >= MAX_CONNECTIONS || own >= MAX_CONNECTIONS_PER_NETWORK {
            return None;
        }
        connections.insert(network, own + 1);
        Some(TcpPlace { endpoint: self.clone(), network })
    }
}

impl Route {
    /// What arrives for the call.
    pub(super) fn inbox(&self) -> &Arc<Inbox> {
        &self.listed.inbox
    }

    /// The call has given its peer another user fragment, which takes the place of the one before.
    pub(super) fn rename(&mut self, fragment: String) {
        let mut routes = self.endpoint.routes();
        routes.by_fragment.remove(&self.fragment);
        routes.by_fragment.insert(fragment.clone(), self.listed.clone());
        drop(routes);
        self.fragment = fragment;
    }

    /// The call answers to this address, because a request from there proved that it knows the call's password: what comes from
    /// there belongs to the call.
    pub(super) fn answers(&mut self, address: SocketAddr) {
        if self.addresses.contains(&address) {
            return;
        }
        let mut routes = self.endpoint.routes();
        if self.addresses.len() == MAX_ADDRESSES {
            routes.remove(self.addresses.remove(0), &self.listed);
        }
        routes.by_address.insert(address, self.listed.clone());
        drop(routes);
        self.addresses.push(address);
    }

    #[cfg(feature = "testing")]
    pub(super) fn is(&self, listed: &EndpointEntry) -> bool {
        Arc::ptr_eq(&listed.inbox, &self.listed.inbox)
    }

    /// Takes an address of the call back from another call, because an authenticated request has come from there again.
    pub(super) fn reclaim(&self, address: SocketAddr) {
        if !self.addresses.contains(&address) {
            return;
        }
        let mut routes = self.endpoint.routes();
        if routes.by_address.get(&address).is_none_or(|listed| !Arc::ptr_eq(&listed.inbox, &self.listed.inbox)) {
            routes.by_address.insert(address, self.listed.clone());
        }
    }
}

impl Drop for Route {
    fn drop(&mut self) {
        self.listed.ended.cancel();
        let mut routes = self.endpoint.routes();
        routes.by_fragment.remove(&self.fragment);
        for address in &self.addresses {
            routes.remove(*address, &self.listed);
        }
    }
}

impl Routes {
    /// Removes an address, unless it belongs to another call by now.
    fn remove(&mut self, address: SocketAddr, of: &EndpointEntry) {
        if self.by_address.get(&address).is_some_and(|listed| Arc::ptr_eq(&listed.inbox, &of.inbox)) {
            self.by_address.remove(&address);
        }
    }
}

impl Datagram {
    /// The protocol that it came by.
    pub(super) fn protocol(&self) -> Protocol {
        if self.connection.is_some() { Protocol::Tcp } else { Protocol::Udp }
    }
}

impl Weight for Datagram {
    fn n_bytes(&self) -> usize {
        size_of::<Self>() + self.bytes.len()
    }

    fn is_media(&self) -> bool {
        // RTP and RTCP (RFC 7983).
        matches!(self.bytes.first(), Some(128..=191))
    }
}

/// A TCP connection's place; dropping it releases it.
struct TcpPlace {
    endpoint: Arc<Endpoint>,
    network: IpAddr,
}

impl Drop for TcpPlace {
    fn drop(&mut self) {
        let mut connections = self.endpoint.connections.lock().expect("no panic while locked");
        if let Some(own) = connections.get_mut(&self.network) {
            *own -= 1;
            if *own == 0 {
                connections.remove(&self.network);
            }
        }
    }
}

/// The user fragment of the call that a STUN request is for.
fn fragment_of(bytes: &[u8]) -> Option<String> {
    let message = StunMessage::parse(bytes).ok()?;
    message.split_username().map(|(local, _)| local.to_owned())
}

/// The next frame of a connection (RFC 4571): a length of 16 bits, then a datagram. `None`: the connection has ended, or sends
/// what is none.
pub(super) async fn frame(reader: &mut (impl AsyncReadExt + Unpin)) -> Option<Bytes> {
    let length = usize::from(reader.read_u16().await.ok()?);
    if length == 0 || length > MAX_DATAGRAM_BYTES {
        return None;
    }
    let mut bytes = vec![0; length];
    reader.read_exact(&mut bytes).await.ok()?;
    Some(bytes.into())
}

/// The addresses of this machine's interfaces; loopback last.
fn own_addresses(v4_only: bool) -> io::Result<Vec<IpAddr>> {
    let mut addresses: Vec<_> = if_addrs::get_if_addrs()?.iter().map(if_addrs::Interface::ip).collect();
    addresses.retain(|ip| match ip {
        IpAddr::V4(v4) => !v4.is_link_local(),
        IpAddr::V6(v6) => !v4_only && !v6.is_unicast_link_local(),
    });
    addresses.sort_by_key(|ip| (ip.is_loopback(), ip.is_ipv6()));
    addresses.dedup();
    Ok(addresses)
}
