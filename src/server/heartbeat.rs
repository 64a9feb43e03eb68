//! Whether the other side of a connection is still there: a ping now and then, and what came since.
//!
//! The writer asks it between messages; the reader tells it of everything it hears, since whoever speaks is alive. A peer
//! that leaves two pings in a row without a sign of life is dead: a cable pulled, a phone out of reach.

use std::time::Duration;
use tokio::sync::watch;
use tokio::time::{Instant, Interval, MissedTickBehavior, interval_at};

/// Pings without a sign of life after which the other side is dead.
const MAX_MISSED: u32 = 2;

/// What to do now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Beat {
    /// Send a ping.
    Ping,
    /// Give the connection up.
    Dead,
}

/// One connection's heartbeat, in the writer's hand.
pub(super) struct Heartbeat {
    due: Interval,
    heard: watch::Receiver<()>,
    /// Pings sent since the last sign of life.
    unanswered: u32,
}

/// The reader's end.
pub(super) struct HeartbeatReset(watch::Sender<()>);

impl HeartbeatReset {
    /// Something came.
    pub(super) fn tell(&self) {
        self.0.send_replace(());
    }
}

impl Heartbeat {
    /// The first ping is due after `every`.
    pub(super) fn new(every: Duration) -> (HeartbeatReset, Self) {
        let (sender, heard) = watch::channel(());
        let mut due = interval_at(Instant::now() + every, every);
        due.set_missed_tick_behavior(MissedTickBehavior::Delay);
        (HeartbeatReset(sender), Self { due, heard, unanswered: 0 })
    }

    /// Waits until something is to be done. Cancel safe.
    pub(super) async fn beat(&mut self) -> Beat {
        self.due.tick().await;
        // A reader that is gone has its own way of ending the connection.
        if self.heard.has_changed().unwrap_or(true) {
            self.heard.mark_unchanged();
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
            heard.tell();
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
            heard.tell();
        }
    }
}
