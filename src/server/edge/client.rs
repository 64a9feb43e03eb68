//! Determines a request's client: the peer of the connection or, behind a trusted proxy, the forwarded address.
//!
//! [`crate::server::access::guard`] computes it first and adds it to the request's extensions; the limits per address,
//! the security log and the origin check read it there. Forwarding headers are trusted only from a peer in
//! `server.trusted_proxies`, and only those that `server.forwarded_header` names: a proxy sets or removes the ones it
//! knows and passes on the others as clients sent them.

use crate::config::ServerConfig;
use axum::http::HeaderMap;
use ipnet::IpNet;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};

/// The remote address of a connection; `accepting` adds it to every request.
#[derive(Clone, Copy, Debug)]
pub(in crate::server) struct Peer(pub(in crate::server) SocketAddr);

/// The reverse proxies that are trusted, and in which header they name their clients.
pub(in crate::server) struct Proxies {
    networks: Vec<IpNet>,
    /// `Forwarded` (RFC 7239); otherwise `X-Forwarded-For` and `X-Forwarded-Proto`.
    is_standard: bool,
}

impl Proxies {
    pub(in crate::server) fn new(config: &ServerConfig) -> Self {
        Self { networks: config.proxies(), is_standard: config.forwarded_header == "forwarded" }
    }

    /// Of the chain of hops the addresses, the nearest first, as far as they are ones, and the protocol that the nearest hop
    /// used.
    fn read(&self, headers: &HeaderMap) -> (Vec<IpAddr>, Option<String>) {
        let words = |name| headers.get_all(name).iter().rev().filter_map(|value| value.to_str().ok());
        if self.is_standard {
            let mut hops =
                words("forwarded").flat_map(|value| rfc7239::parse(value).rev()).map_while(Result::ok).peekable();
            let scheme = hops.peek().and_then(|hop| hop.protocol).map(str::to_owned);
            let addresses = hops.map_while(|hop| hop.forwarded_for?.name.ip().copied());
            return (addresses.map(|address| address.to_canonical()).collect(), scheme);
        }
        let hops = words("x-forwarded-for").flat_map(|value| value.rsplit(',')).map(|hop| address(hop.trim()));
        let scheme = words("x-forwarded-proto").next().and_then(|value| value.rsplit(',').next());
        (hops.map_while(|hop| hop).collect(), scheme.map(|scheme| scheme.trim().to_owned()))
    }
}

/// The client of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::server) struct Client {
    /// The remote address of the connection.
    pub(in crate::server) peer: IpAddr,
    /// The client's own address as far as it is known, for the log.
    pub(in crate::server) address: IpAddr,
    /// The peer is a trusted proxy that does not forward its client's address: the address stands for many clients.
    pub(in crate::server) is_shared: bool,
    /// Whether the client uses TLS, on its connection or according to a trusted proxy.
    pub(in crate::server) is_secure: bool,
    /// The request has passed a proxy, trusted or not.
    pub(in crate::server) is_forwarded: bool,
}

/// Headers that proxies add.
const OF_PROXIES: [&str; 6] =
    ["forwarded", "x-forwarded-for", "x-forwarded-host", "x-forwarded-proto", "x-real-ip", "via"];

impl Client {
    /// The client at the other end of a connection.
    pub(in crate::server) fn direct(peer: IpAddr, is_secure: bool) -> Self {
        let peer = peer.to_canonical();
        Self { peer, address: peer, is_shared: false, is_secure, is_forwarded: false }
    }

    /// Whether it is a program on this machine that connects itself.
    pub(in crate::server) fn is_here(&self) -> bool {
        self.peer.is_loopback() && self.address == self.peer && !self.is_forwarded
    }

    /// The client of a request with these headers, from `peer`; `tls`: whether the connection uses TLS.
    pub(in crate::server) fn of(peer: IpAddr, headers: &HeaderMap, proxies: &Proxies, tls: bool) -> Self {
        let is_forwarded = OF_PROXIES.iter().any(|name| headers.contains_key(*name));
        let direct = Self { is_forwarded, ..Self::direct(peer, tls) };
        let peer = direct.peer;
        if !is_trusted(peer, &proxies.networks) {
            return direct;
        }
        let (hops, scheme) = proxies.read(headers);
        // Starting with the nearest hop, the first that is not a trusted proxy. Anything before it can be forged.
        let client = hops.into_iter().find(|hop| !is_trusted(*hop, &proxies.networks));
        let is_secure = scheme.map_or(tls, |scheme| scheme.eq_ignore_ascii_case("https"));
        match client {
            Some(address) => Self { address, is_secure, ..direct },
            None => Self { is_shared: true, is_secure, ..direct },
        }
    }

    /// The key of the limits per address.
    pub(in crate::server) fn network(&self) -> IpAddr {
        network(self.address)
    }
}

/// An address as the limits count it. IPv6 addresses count by their /64 network, which usually belongs to one client.
pub(in crate::server) fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(v6) => IpAddr::V6(Ipv6Addr::from_bits(v6.to_bits() & !u128::from(u64::MAX))),
        v4 => v4,
    }
}

/// Whether `address` is one of `proxies`.
pub(in crate::server) fn is_trusted(address: IpAddr, proxies: &[IpNet]) -> bool {
    proxies.iter().any(|proxy| proxy.contains(&address))
}

/// Parses an address with or without a port, IPv6 with or without brackets.
fn address(hop: &str) -> Option<IpAddr> {
    let plain = hop.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
    let address = plain.or_else(|_| hop.parse::<SocketAddr>().map(|socket| socket.ip()));
    address.ok().map(|address| address.to_canonical())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(peer: &str, headers: &[(&'static str, &str)]) -> Client {
        client_by("x-forwarded-for", peer, headers)
    }

    fn client_by(header: &str, peer: &str, headers: &[(&'static str, &str)]) -> Client {
        let headers = headers.iter().map(|(name, value)| ((*name).parse().unwrap(), value.parse().unwrap())).collect();
        let trusted_proxies = vec!["10.0.0.0/8".into(), "127.0.0.1".into()];
        let config = ServerConfig { trusted_proxies, forwarded_header: header.into(), ..ServerConfig::default() };
        Client::of(peer.parse().unwrap(), &headers, &Proxies::new(&config), false)
    }

    #[test]
    fn the_standard_header_is_believed_where_it_is_configured_and_the_other_one_is_not() {
        let both = [("forwarded", "for=192.0.2.1;proto=https"), ("x-forwarded-for", "198.51.100.7")];
        let check = |header: &str, headers: &[(&'static str, &str)], address: &str, shared: bool, secure: bool| {
            let client = client_by(header, "10.1.2.3", headers);
            let address = address.parse::<IpAddr>().unwrap();
            assert_eq!((client.address, client.is_shared, client.is_secure), (address, shared, secure), "{headers:?}");
        };
        check("x-forwarded-for", &both, "198.51.100.7", false, false);
        check("forwarded", &both, "192.0.2.1", false, true);
        let chain = [("forwarded", "for=1.1.1.1, for=\"[2001:db8::1]:4711\";proto=https, for=10.0.0.2;proto=http")];
        check("forwarded", &chain, "2001:db8::1", false, false);
        // What a client claims ends where a hop does not say its address.
        for hidden in
            ["for=192.0.2.1, for=unknown", "for=192.0.2.1, for=_hidden", "for=192.0.2.1, nonsense", "proto=https"]
        {
            let client = client_by("forwarded", "10.1.2.3", &[("forwarded", hidden)]);
            assert!(client.is_shared && client.address == client.peer, "{hidden}");
        }
        assert_eq!(client_by("forwarded", "203.0.113.9", &both).address, "203.0.113.9".parse::<IpAddr>().unwrap());
    }

    #[test]
    fn headers_are_believed_of_trusted_proxies_only() {
        let forwarded = [("x-forwarded-for", "198.51.100.7"), ("x-forwarded-proto", "https")];
        let check = |client: Client, address: &str, shared: bool, secure: bool| {
            let address = address.parse::<IpAddr>().unwrap();
            assert_eq!((client.address, client.is_shared, client.is_secure), (address, shared, secure), "{client:?}");
        };
        check(client("203.0.113.9", &forwarded), "203.0.113.9", false, false);
        check(client("10.1.2.3", &forwarded), "198.51.100.7", false, true);
        check(client("::ffff:10.1.2.3", &forwarded), "198.51.100.7", false, true);
        check(client("127.0.0.1", &[]), "127.0.0.1", true, false);
        // Entries written by the client itself come first.
        let spoofed = [("x-forwarded-for", "1.1.1.1, 198.51.100.7, 10.0.0.2")];
        check(client("10.1.2.3", &spoofed), "198.51.100.7", false, false);
        check(client("10.1.2.3", &[("x-forwarded-for", "198.51.100.7, nonsense")]), "10.1.2.3", true, false);
        check(client("10.1.2.3", &[("x-forwarded-for", "[2001:db8::1]:443")]), "2001:db8::1", false, false);
    }

    #[test]
    fn a_network_of_ipv6_is_one_client() {
        let of = |text: &str| network(text.parse().unwrap());
        assert_eq!(of("2001:db8:1:2:3:4:5:6"), of("2001:db8:1:2::"));
        assert_ne!(of("2001:db8:1:2::1"), of("2001:db8:1:3::1"));
        assert_eq!(of("::ffff:192.0.2.1"), of("192.0.2.1"));
        assert_ne!(of("192.0.2.1"), of("192.0.2.2"));
    }
}
