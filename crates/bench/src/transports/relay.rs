//! A network that loses, delays and reorders the datagrams of one call, in both directions.

use crate::BenchError;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::net::UdpSocket;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

/// The longest datagram.
const MAX_DATAGRAM_BYTES: usize = 2_048;
/// Datagrams on their way; of more, the newest is lost. Each stays for the jitter at most.
const MAX_WAITING: usize = 4_096;

/// What the network does to each datagram.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Impairment {
    /// Fraction lost, 0 to 1.
    pub(super) loss: f64,
    /// Maximum delay, uniformly distributed: later datagrams overtake.
    pub(super) jitter: Duration,
}

/// A datagram on its way, by time, then in their order: when it is due, its number, whether it goes to the hub.
type Datagram = Reverse<(Instant, u64, bool, Vec<u8>)>;

/// A running relay; dropping it stops it.
pub(super) struct Relay {
    /// Where the client sends to.
    pub(super) address: SocketAddr,
    _tasks: JoinSet<()>,
}

impl Relay {
    /// Relays between one client and the hub at `to`; the same seed loses and delays the same.
    pub(super) async fn start(to: SocketAddr, impairment: Impairment, seed: u64) -> Result<Self, BenchError> {
        let failed = |error: std::io::Error| BenchError::Method(format!("a relay: {error}"));
        let front = UdpSocket::bind("127.0.0.1:0").await.map_err(failed)?;
        let back = UdpSocket::bind("127.0.0.1:0").await.map_err(failed)?;
        back.connect(to).await.map_err(failed)?;
        let address = front.local_addr().map_err(failed)?;
        let mut tasks = JoinSet::new();
        tasks.spawn(relay(front, back, impairment, StdRng::seed_from_u64(seed)));
        Ok(Self { address, _tasks: tasks })
    }
}

async fn relay(front: UdpSocket, back: UdpSocket, impairment: Impairment, mut dice: StdRng) {
    let mut client = None;
    let mut number = 0_u64;
    let mut from_client = [0; MAX_DATAGRAM_BYTES];
    let mut from_hub = [0; MAX_DATAGRAM_BYTES];
    let mut waiting: BinaryHeap<Datagram> = BinaryHeap::new();
    loop {
        let due = waiting.peek().map(|Reverse((due, ..))| *due);
        let (is_up, datagram) = tokio::select! {
            biased;
            () = sleep_until(due.unwrap_or_else(Instant::now)), if due.is_some() => {
                if let Some(Reverse((_, _, is_up, datagram))) = waiting.pop() {
                    // What a socket does not take is lost, as on a network.
                    let _ = match (is_up, client) {
                        (true, _) => back.try_send(&datagram),
                        (false, Some(client)) => front.try_send_to(&datagram, client),
                        (false, None) => Ok(0),
                    };
                }
                continue;
            }
            Ok((n, source)) = front.recv_from(&mut from_client) => {
                client = Some(source);
                (true, from_client[..n].to_vec())
            }
            Ok(n) = back.recv(&mut from_hub) => (false, from_hub[..n].to_vec()),
        };
        if dice.random_bool(impairment.loss) || waiting.len() >= MAX_WAITING {
            continue;
        }
        number += 1;
        let due = Instant::now() + impairment.jitter.mul_f64(dice.random_range(0.0..1.0));
        waiting.push(Reverse((due, number, is_up, datagram)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn datagrams_are_lost_and_overtake_one_another_both_ways() {
        let hub = UdpSocket::bind("127.0.0.1:0").await.expect("a socket");
        let impairment = Impairment { loss: 0.1, jitter: Duration::from_millis(40) };
        let relay = Relay::start(hub.local_addr().expect("bound"), impairment, 1).await.expect("it starts");
        let client = UdpSocket::bind("127.0.0.1:0").await.expect("a socket");
        let mut bytes = [0; 8];
        let mut back_to = None;
        let mut numbers = Vec::new();
        for i in 0..200_u8 {
            client.send_to(&[i], relay.address).await.expect("sent");
        }
        while let Ok(Ok((_, source))) =
            tokio::time::timeout(Duration::from_millis(300), hub.recv_from(&mut bytes)).await
        {
            back_to = Some(source);
            numbers.push(bytes[0]);
        }
        assert!((160..200).contains(&numbers.len()) && !numbers.is_sorted(), "{numbers:?}");
        let source = back_to.expect("something came");
        for _ in 0..20 {
            hub.send_to(b"back", source).await.expect("sent");
        }
        assert_eq!(client.recv(&mut bytes).await.expect("received"), 4);
    }
}
