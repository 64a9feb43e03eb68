//! The UDP ports of calls, from one range: an even one for RTP, and the next one for RTCP.

use rand::RngExt;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;
use tokio::net::{UdpSocket, lookup_host};
use tokio::time::timeout;

/// The longest lookup of a peer's host.
const LOOKUP: Duration = Duration::from_secs(10);

/// The sockets of one call.
pub(super) struct RtpSockets {
    pub(super) rtp: UdpSocket,
    pub(super) rtcp: UdpSocket,
}

/// See the module.
#[derive(Clone, Copy)]
pub(super) struct RtpPorts {
    bind: IpAddr,
    advertised: IpAddr,
    first: u16,
    last: u16,
}

impl RtpPorts {
    /// Pairs of ports from `first` to `last`, on the address `bind`, which peers reach as `advertised`.
    pub(super) fn new(bind: IpAddr, advertised: IpAddr, first: u16, last: u16) -> Self {
        Self { bind, advertised, first: first.next_multiple_of(2), last }
    }

    pub(super) fn advertised(&self) -> IpAddr {
        self.advertised
    }

    /// The addresses of a host by which it and this hub reach each other: of the family that is advertised. An IPv6
    /// address is in brackets. Empty: the host is not known, or has none.
    pub(super) async fn look_up(self, host: &str, port: u16) -> Vec<SocketAddr> {
        let host = host.trim_start_matches('[').trim_end_matches(']');
        let found = timeout(LOOKUP, lookup_host((host, port))).await.unwrap_or_else(|_| Err(io::Error::other("late")));
        found.map(|addresses| self.reachable(addresses)).unwrap_or_default()
    }

    fn reachable(self, addresses: impl Iterator<Item = SocketAddr>) -> Vec<SocketAddr> {
        let in_family = addresses.filter(|address| address.is_ipv4() == self.advertised.is_ipv4());
        let from_socket = |address: SocketAddr| match address {
            // A socket of both families takes IPv4 addresses in this form.
            SocketAddr::V4(address) if self.bind.is_ipv6() => {
                SocketAddr::new(address.ip().to_ipv6_mapped().into(), address.port())
            }
            address => address,
        };
        in_family.map(from_socket).collect()
    }

    /// The sockets of a call, and where peers reach that of RTP. `None`: no pair of ports is free. A port that was just
    /// released is not the next one taken, so that what is still sent to it reaches no other call.
    pub(super) async fn bind(&self) -> Option<(RtpSockets, SocketAddr)> {
        let n = self.last.checked_sub(self.first)?.div_ceil(2);
        if n == 0 {
            return None;
        }
        let start = rand::rng().random_range(0..n);
        for step in 0..n {
            let port = self.first + 2 * ((start + step) % n);
            let Ok(rtp) = UdpSocket::bind((self.bind, port)).await else { continue };
            let Ok(rtcp) = UdpSocket::bind((self.bind, port + 1)).await else { continue };
            return Some((RtpSockets { rtp, rtcp }, SocketAddr::new(self.advertised, port)));
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_is_reached_by_the_family_that_is_advertised() {
        let all = ["192.0.2.9:5060", "[2001:db8::9]:5060"].map(|text| text.parse::<SocketAddr>().unwrap());
        let reachable = |bind: &str, advertised: &str| {
            let ports = RtpPorts::new(bind.parse().unwrap(), advertised.parse().unwrap(), 20_000, 20_010);
            ports.reachable(all.into_iter()).iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        assert_eq!(reachable("0.0.0.0", "192.0.2.1"), ["192.0.2.9:5060"]);
        assert_eq!(reachable("::", "2001:db8::1"), ["[2001:db8::9]:5060"]);
        assert_eq!(reachable("::", "192.0.2.1"), ["[::ffff:192.0.2.9]:5060"]);
    }

    #[tokio::test]
    async fn ports_are_even_of_the_range_and_end() {
        let local = IpAddr::from([127, 0, 0, 1]);
        let ports = RtpPorts::new(local, IpAddr::from([192, 0, 2, 1]), 29_411, 29_416);
        let mut sockets = Vec::new();
        while let Some((pair, advertised)) = ports.bind().await {
            assert_eq!(advertised, SocketAddr::new(ports.advertised(), pair.rtp.local_addr().unwrap().port()));
            sockets.push(pair);
        }
        let port = |socket: &UdpSocket| socket.local_addr().unwrap().port();
        let mut found: Vec<_> = sockets.iter().map(|pair| (port(&pair.rtp), port(&pair.rtcp))).collect();
        found.sort_unstable();
        assert_eq!(found, [(29_412, 29_413), (29_414, 29_415)], "the last one has no partner");
        sockets.pop();
        assert!(ports.bind().await.is_some(), "what is released is taken again");
    }
}
