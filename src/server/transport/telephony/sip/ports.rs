//! The UDP ports of calls: one socket for each, from one range.

use rand::RngExt;
use std::net::{IpAddr, SocketAddr};
use tokio::net::UdpSocket;

/// See the module.
pub(super) struct RtpPorts {
    bind: IpAddr,
    advertised: IpAddr,
    first: u16,
    last: u16,
}

impl RtpPorts {
    /// Even ports from `first` to `last`, on the address `bind`, which peers reach as `advertised`.
    pub(super) fn new(bind: IpAddr, advertised: IpAddr, first: u16, last: u16) -> Self {
        Self { bind, advertised, first: first.next_multiple_of(2), last }
    }

    pub(super) fn advertised(&self) -> IpAddr {
        self.advertised
    }

    /// A socket, and where peers reach it. `None`: no port is free. A port that was just released is not the next one
    /// taken, so that what is still sent to it reaches no other call.
    pub(super) async fn bind(&self) -> Option<(UdpSocket, SocketAddr)> {
        let n = (self.last.checked_sub(self.first)? / 2) + 1;
        let start = rand::rng().random_range(0..n);
        for step in 0..n {
            let port = self.first + 2 * ((start + step) % n);
            if let Ok(socket) = UdpSocket::bind((self.bind, port)).await {
                return Some((socket, SocketAddr::new(self.advertised, port)));
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn ports_are_even_of_the_range_and_end() {
        let local = IpAddr::from([127, 0, 0, 1]);
        let ports = RtpPorts::new(local, IpAddr::from([192, 0, 2, 1]), 29_411, 29_415);
        let mut sockets = Vec::new();
        while let Some((socket, advertised)) = ports.bind().await {
            assert_eq!(advertised, SocketAddr::new(ports.advertised(), socket.local_addr().unwrap().port()));
            sockets.push(socket);
        }
        let mut found: Vec<_> = sockets.iter().map(|socket| socket.local_addr().unwrap().port()).collect();
        found.sort_unstable();
        assert_eq!(found, [29_412, 29_414]);
        sockets.pop();
        assert!(ports.bind().await.is_some(), "what is released is taken again");
    }
}
