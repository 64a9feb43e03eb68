//! Detects dead connections with periodic pings.
//!
//! The writer polls it between messages; the reader reports every received message, since any message proves that the
//! peer is alive. A peer that shows no activity for two pings in a row is considered dead, for example after losing its
//! network.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::time::{Instant, Interval, MissedTickBehavior, interval_at};

/// Unanswered pings after which the peer is considered dead.
const MAX_MISSED: u32 = 2;

/// The action that is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::server) enum Beat {
    /// Send a ping.
    Ping,
    /// Close the connection.
    Dead,
}

/// The heartbeat of one connection, owned by its writer.
pub(in crate::server) struct Heartbeat {
    due: Interval,
    /// The peer was active since the last action.
    heard: Arc<AtomicBool>,
    /// Pings sent since the last activity of the peer that was noticed.
    unanswered: u32,
}

/// Reports activity of the peer, owned by the reader.
pub(in crate::server) struct HeartbeatReset(Arc<AtomicBool>);

impl HeartbeatReset {
    /// Records activity of the peer.
    pub(in crate::server) fn renew(&self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl Heartbeat {
    /// A heartbeat with a ping interval of `every`; the first ping is due after one interval.
    pub(in crate::server) fn new(every: Duration) -> (HeartbeatReset, Self) {
        let heard = Arc::new(AtomicBool::new(false));
        let mut due = interval_at(Instant::now() + every, every);
        due.set_missed_tick_behavior(MissedTickBehavior::Delay);
        (HeartbeatReset(heard.clone()), Self { due, heard, unanswered: 0 })
    }

    /// Waits until an action is due. Cancel safe.
    pub(in crate::server) async fn beat(&mut self) -> Beat {
        self.due.tick().await;
        if self.heard.swap(false, Ordering::Relaxed) {
            self.unanswered = 0;
        }
        if self.unanswered == MAX_MISSED {
            return Beat::Dead;
        }
        self.unanswered += 1;
        Beat::Ping
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn two_pings_without_a_sign_of_life_are_the_end() {
        let begun = Instant::now();
        let (heard, mut heartbeat) = Heartbeat::new(Duration::from_secs(20));
        for _ in 0..5 {
            assert_eq!(heartbeat.beat().await, Beat::Ping);
            heard.renew();
        }
        assert_eq!(begun.elapsed(), Duration::from_secs(100));
        assert_eq!([heartbeat.beat().await, heartbeat.beat().await], [Beat::Ping, Beat::Ping]);
        assert_eq!(heartbeat.beat().await, Beat::Dead);
        assert_eq!(begun.elapsed(), Duration::from_secs(160));
    }

    #[tokio::test(start_paused = true)]
    async fn one_missed_ping_is_forgiven() {
        let (heard, mut heartbeat) = Heartbeat::new(Duration::from_secs(20));
        for _ in 0..10 {
            assert_eq!([heartbeat.beat().await, heartbeat.beat().await], [Beat::Ping, Beat::Ping]);
            heard.renew();
        }
    }
}
