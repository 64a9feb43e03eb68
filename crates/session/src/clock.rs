//! The client's clock as seen from the session's: which moment here is which moment there.
//!
//! A client that plays frames pings (`antiphon.clock.ping`); the answer to one comes back in the next, so that all four
//! times of an exchange are known, as in NTP (RFC 5905, section 8). Of the last exchanges the one that was quickest is
//! believed: its two ways were the least delayed. It reads no clock.

use antiphon_protocol::ClockPing;
use antiphon_types::Timestamp;
use std::collections::VecDeque;
use std::time::Duration;

/// Exchanges remembered: at one each few seconds, clocks that drift apart by 50 us a second stay within a few ms.
const REMEMBERED: usize = 8;

/// An exchange that took longer says nothing.
const SLOWEST_MS: f64 = 2_000.0;

/// See the module.
#[derive(Default)]
pub(super) struct ClientClock {
    /// The last ping, as it was sent there and came here.
    open: Option<(f64, f64)>,
    exchanges: VecDeque<Exchange>,
    microphone_ms: Option<f64>,
}

#[derive(Clone, Copy)]
struct Exchange {
    round_trip_ms: f64,
    /// Offset from the client's clock to the session's.
    offset_ms: f64,
}

impl ClientClock {
    /// Takes a ping that is answered at once. An answer's own time is not counted: it is what the exchange measures.
    pub(super) fn pinged(&mut self, ping: &ClockPing, now: Timestamp) {
        let here = ms(now);
        if let (Some((sent, came)), Some(pong)) = (self.open, ping.pong_ms) {
            let round_trip_ms = pong - sent;
            if (0.0..SLOWEST_MS).contains(&round_trip_ms) {
                self.exchanges.push_back(Exchange { round_trip_ms, offset_ms: came - (sent + pong) / 2.0 });
                if self.exchanges.len() > REMEMBERED {
                    self.exchanges.pop_front();
                }
            }
        }
        self.open = Some((ping.client_ms, here));
        self.microphone_ms = ping.microphone_ms.or(self.microphone_ms);
    }

    /// The moment here that is `client_ms` there; `None` before the first whole exchange.
    pub(super) fn here(&self, client_ms: f64) -> Option<Timestamp> {
        let best = self.exchanges.iter().min_by(|a, b| a.round_trip_ms.total_cmp(&b.round_trip_ms))?;
        Some(Timestamp::new(Duration::from_secs_f64(((client_ms + best.offset_ms) / 1e3).max(0.0))))
    }

    /// When the microphone's stream had captured this much.
    pub(super) fn captured(&self, audio: Duration) -> Option<Timestamp> {
        self.here(self.microphone_ms? + audio.as_secs_f64() * 1e3)
    }
}

fn ms(at: Timestamp) -> f64 {
    at.since_start().as_secs_f64() * 1e3
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ping(client_ms: f64, pong_ms: Option<f64>) -> ClockPing {
        ClockPing { client_ms, pong_ms, microphone_ms: None }
    }

    /// A client whose clock shows 5000 ms more, over exchanges that take `there` and `back` ms.
    fn exchanges(ways: &[(u64, u64)]) -> ClientClock {
        let mut clock = ClientClock::default();
        let mut pong = None;
        for (n, (there, back)) in ways.iter().enumerate() {
            let sent = 1_000 * (n as u64 + 1);
            clock.pinged(&ping(sent as f64 + 5_000.0, pong), Timestamp::from_ms(sent + there));
            pong = Some((sent + there + back) as f64 + 5_000.0);
        }
        clock.pinged(&ping(99_000.0, pong), Timestamp::from_ms(94_000));
        clock
    }

    #[test]
    fn the_quickest_exchange_is_believed() {
        let clock = exchanges(&[(400, 20), (10, 10), (20, 300)]);
        assert_eq!(clock.here(8_000.0), Some(Timestamp::from_ms(3_000)));
        assert_eq!(clock.here(0.0), Some(Timestamp::ZERO), "nothing is before the session");
    }

    #[test]
    fn one_ping_says_nothing_and_a_clock_that_jumps_is_not_believed() {
        let mut clock = ClientClock::default();
        clock.pinged(&ping(1.0, Some(50.0)), Timestamp::from_ms(10));
        assert_eq!(clock.here(5.0), None);
        clock.pinged(&ping(20.0, Some(-50.0)), Timestamp::from_ms(30));
        assert_eq!(clock.here(5.0), None);
    }

    #[test]
    fn the_microphone_has_its_own_beginning() {
        let mut clock = exchanges(&[(10, 10)]);
        assert_eq!(clock.captured(Duration::from_secs(1)), None);
        clock.pinged(&ClockPing { microphone_ms: Some(7_000.0), ..ping(99_500.0, None) }, Timestamp::from_ms(94_500));
        assert_eq!(clock.captured(Duration::from_secs(1)), Some(Timestamp::from_ms(3_000)));
    }

    #[test]
    fn old_exchanges_are_forgotten() {
        let mut ways = vec![(1, 1)];
        ways.extend([(30, 10); REMEMBERED]);
        let clock = exchanges(&ways);
        assert_eq!(clock.here(8_000.0), Some(Timestamp::from_ms(3_010)), "the quick one was too long ago");
    }
}
