//! Limits how much response audio is sent ahead of playback, so that little of it is queued at the client on a
//! barge-in.
//!
//! Session egress uses it in the binary audio mode; in the other mode audio is sent as it is produced. It never reads a
//! clock and keeps no queue.

use antiphon_types::Playhead;
use antiphon_types::{Samples, Timestamp};
use std::time::Duration;

/// Allows at most `lead` of audio ahead of the playhead.
#[derive(Clone, Copy, Debug)]
pub struct Pacer {
    lead: Duration,
    frame: Duration,
}

impl Pacer {
    /// A pacer with this lead for frames of `frame`; the lead is at least one frame.
    pub fn new(lead: Duration, frame: Duration) -> Self {
        Self { lead: lead.max(frame), frame }
    }

    /// Number of samples of the item that may be sent at `now`. While playback is paused the lead may still be filled.
    pub fn budget(&self, playhead: &Playhead, now: Timestamp) -> Samples {
        let limit = playhead.heard(now) + playhead.rate().samples_in(self.lead);
        limit.saturating_sub(playhead.n_sent())
    }

    /// When a full frame may be sent: `now` or later; `None` while playback is paused and the lead is full.
    pub fn next_due(&self, playhead: &Playhead, now: Timestamp) -> Option<Timestamp> {
        let frame = playhead.rate().samples_in(self.frame);
        if self.budget(playhead, now) >= frame {
            return Some(now);
        }
        // The frame fits when the playhead is `lead - frame` before the end of the sent audio.
        let full_until = playhead.dry_at(now)?;
        let early = self.lead - self.frame;
        let due = full_until.since_start().saturating_sub(early);
        // Rounding by a nanosecond must not wake the caller one sample too early.
        Some(Timestamp::new(due + Duration::from_micros(50)).max(now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use antiphon_types::SampleRate;
    use proptest::prelude::*;

    const RATE: SampleRate = SampleRate::HZ_24000;
    const LEAD: Duration = Duration::from_millis(300);
    const FRAME: Duration = Duration::from_millis(20);

    fn pacer() -> Pacer {
        Pacer::new(LEAD, FRAME)
    }

    #[test]
    fn the_lead_is_filled_at_once_and_then_a_frame_at_a_time() {
        let mut playhead = Playhead::new(RATE);
        let now = Timestamp::from_ms(1_000);
        assert_eq!(pacer().budget(&playhead, now), Samples::from_ms(300, RATE));
        playhead.sent(now, Samples::from_ms(300, RATE));
        assert_eq!(pacer().budget(&playhead, now), Samples::ZERO);
        let due = pacer().next_due(&playhead, now).unwrap();
        assert_eq!(due.since(now).as_millis(), 20);
        assert!(pacer().budget(&playhead, due) >= Samples::from_ms(20, RATE));
    }

    #[test]
    fn a_held_playhead_is_not_fed_beyond_the_lead() {
        let mut playhead = Playhead::new(RATE);
        playhead.sent(Timestamp::ZERO, Samples::from_ms(300, RATE));
        playhead.hold(Timestamp::from_ms(100));
        let later = Timestamp::from_ms(9_000);
        assert_eq!(pacer().budget(&playhead, later), Samples::from_ms(100, RATE));
        playhead.sent(later, Samples::from_ms(100, RATE));
        assert_eq!(pacer().next_due(&playhead, later), None);
        playhead.resume(later);
        assert!(pacer().next_due(&playhead, later).is_some());
    }

    proptest! {
        #[test]
        fn what_is_due_may_go_and_the_lead_is_kept(steps in prop::collection::vec((0u64..80, prop::option::of(0u64..2_000)), 1..60)) {
            let mut playhead = Playhead::new(RATE);
            let mut now = Timestamp::ZERO;
            for (wait_ms, report_ms) in steps {
                now = now + Duration::from_millis(wait_ms);
                if let Some(ms) = report_ms {
                    playhead.reported(now, Samples::from_ms(ms, RATE));
                }
                now = pacer().next_due(&playhead, now).unwrap();
                let budget = pacer().budget(&playhead, now);
                prop_assert!(budget >= RATE.samples_in(FRAME));
                playhead.sent(now, budget);
                prop_assert!(playhead.ahead(now) <= LEAD);
            }
        }
    }
}
