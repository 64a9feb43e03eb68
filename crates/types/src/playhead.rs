//! How much of one response item the listener has heard. Generated, sent and heard audio are three different amounts.
//!
//! Session egress keeps one playhead per item. Without reports it estimates: playback starts with the first audio sent,
//! advances in real time, stalls when it runs out of audio, and stops while paused. A report from the client replaces
//! the estimate. It never reads a clock. How far synthesis is ahead of a listener is another quantity: `PlayoutEstimate` of
//! engine-api.

use crate::{SampleRate, Samples, Timestamp};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// The playhead of one item. All positions are offsets within the item, at the item's rate.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Playhead {
    rate: SampleRate,
    not_before: Timestamp,
    sent: Samples,
    /// The heard position at `since`.
    base: Samples,
    /// When `base` was valid; `None` until audio is sent.
    since: Option<Timestamp>,
    held: bool,
    /// When playback started.
    begun: Option<Timestamp>,
    n_underruns: u32,
    underrun: Duration,
}

impl Playhead {
    /// A playhead at `rate` for an item of which no audio was sent.
    pub fn new(rate: SampleRate) -> Self {
        Self::queued(rate, Timestamp::ZERO)
    }

    /// An item queued at the client behind another one until `not_before` (the other item's [`Playhead::dry_at`]).
    pub fn queued(rate: SampleRate, not_before: Timestamp) -> Self {
        Self {
            rate,
            not_before,
            sent: Samples::ZERO,
            base: Samples::ZERO,
            since: None,
            held: false,
            begun: None,
            n_underruns: 0,
            underrun: Duration::ZERO,
        }
    }

    /// Records that `n` more samples were sent to the client at `now`.
    pub fn sent(&mut self, now: Timestamp, n: Samples) {
        if n == Samples::ZERO {
            return;
        }
        let heard = self.heard(now);
        if self.since.is_none() {
            self.since = Some(now.max(self.not_before));
            self.begun = self.since;
        } else if heard == self.sent && !self.held {
            // After an underrun, playback restarts with this audio; the gap does not count as played.
            self.n_underruns += 1;
            self.underrun += self.dry_since().map_or(Duration::ZERO, |dry| now.since(dry));
            self.settle(now, heard);
        }
        self.sent += n;
    }

    /// How much the listener has heard at `now`; never more than was sent.
    pub fn heard(&self, now: Timestamp) -> Samples {
        match self.since {
            Some(since) if !self.held => (self.base + self.rate.samples_in(now.since(since))).min(self.sent),
            _ => self.base,
        }
    }

    /// Records how much the client reports as played at `now`. The estimate continues from there, even if that is
    /// earlier than the estimate so far.
    pub fn reported(&mut self, now: Timestamp, heard: Samples) {
        let heard = heard.min(self.sent);
        if heard > Samples::ZERO {
            // A client that reports played audio has started, whatever was estimated.
            self.since = Some(now);
        }
        self.settle(now, heard);
    }

    /// Pauses playback.
    pub fn hold(&mut self, now: Timestamp) {
        let heard = self.heard(now);
        self.settle(now, heard);
        self.held = true;
    }

    /// Resumes playback.
    pub fn resume(&mut self, now: Timestamp) {
        if self.held {
            self.held = false;
            self.settle(now, self.base);
        }
    }

    /// Whether playback is paused.
    pub fn is_held(&self) -> bool {
        self.held
    }

    /// When playback started or will start; `None` before audio is sent.
    pub fn begins_at(&self) -> Option<Timestamp> {
        self.begun
    }

    /// When all audio sent so far will have been heard; `None` while paused.
    pub fn dry_at(&self, now: Timestamp) -> Option<Timestamp> {
        let left = self.sent.saturating_sub(self.heard(now));
        let begins = self.since.map_or(now, |since| since.max(now));
        (!self.held).then(|| begins + left.duration(self.rate))
    }

    /// When all audio sent so far has been or will have been heard; `None` before playback starts and while paused.
    pub fn ends_at(&self) -> Option<Timestamp> {
        self.dry_since().filter(|_| !self.held)
    }

    /// Total number of samples sent.
    pub fn n_sent(&self) -> Samples {
        self.sent
    }

    /// Number of underruns in the middle of the item.
    pub fn n_underruns(&self) -> u32 {
        self.n_underruns
    }

    /// Total duration of the underruns.
    pub fn underrun(&self) -> Duration {
        self.underrun
    }

    /// Sampling rate of the item.
    pub fn rate(&self) -> SampleRate {
        self.rate
    }

    /// Playing time of the audio that was sent but not heard yet.
    pub fn ahead(&self, now: Timestamp) -> Duration {
        self.sent.saturating_sub(self.heard(now)).duration(self.rate)
    }

    /// When all audio sent so far has been heard.
    fn dry_since(&self) -> Option<Timestamp> {
        let left = self.sent.saturating_sub(self.base);
        self.since.map(|since| since + left.duration(self.rate))
    }

    fn settle(&mut self, now: Timestamp, heard: Samples) {
        self.base = heard;
        // If playback has not started, its start time is kept.
        self.since = self.since.map(|since| since.max(now));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RATE: SampleRate = SampleRate::HZ_24000;

    /// Runs a script of `time op [ms]` lines; a `heard` line is an expectation.
    fn check(mut playhead: Playhead, script: &str) -> Playhead {
        for line in script.lines().map(str::trim).filter(|line| !line.is_empty()) {
            let words: Vec<&str> = line.split_whitespace().collect();
            let now = Timestamp::from_ms(words[0].parse().unwrap());
            let n = words.get(2).map(|ms| Samples::from_ms(ms.parse().unwrap(), RATE));
            match (words[1], n) {
                ("sent", Some(n)) => playhead.sent(now, n),
                ("reported", Some(n)) => playhead.reported(now, n),
                ("hold", None) => playhead.hold(now),
                ("resume", None) => playhead.resume(now),
                ("heard", Some(n)) => assert_eq!(playhead.heard(now), n, "{line}"),
                _ => panic!("no such line: {line}"),
            }
        }
        playhead
    }

    #[test]
    fn playback_begins_with_the_first_audio_and_ends_with_the_last() {
        let script = "0 heard 0
            100 sent 200
            150 heard 50
            160 sent 100
            350 heard 250
            900 heard 300";
        assert_eq!(check(Playhead::new(RATE), script).n_underruns(), 0);
    }

    #[test]
    fn it_stalls_when_it_runs_dry() {
        let script = "0 sent 100
            300 sent 100
            350 heard 150
            900 heard 200";
        let playhead = check(Playhead::new(RATE), script);
        assert_eq!((playhead.n_underruns(), playhead.underrun()), (1, Duration::from_millis(200)));
        assert_eq!(playhead.begins_at(), Some(Timestamp::ZERO));
    }

    #[test]
    fn it_stands_while_held_and_more_may_come() {
        let script = "0 sent 100
            60 hold
            80 sent 100
            500 heard 60
            500 resume
            550 heard 110
            900 heard 200";
        assert_eq!(check(Playhead::new(RATE), script).n_underruns(), 0);
    }

    #[test]
    fn a_report_beats_the_estimate_but_not_what_was_sent() {
        check(
            Playhead::new(RATE),
            "0 reported 50
            0 heard 0
            0 sent 300
            200 heard 200
            200 reported 120
            200 heard 120
            250 heard 170
            260 reported 9000
            260 heard 300
            270 reported 250
            275 heard 255
            280 hold
            290 reported 258
            400 heard 258",
        );
    }

    #[test]
    fn an_item_behind_another_waits_for_it() {
        let queued = Playhead::queued(RATE, Timestamp::from_ms(500));
        let playhead = check(
            queued,
            "300 sent 100
            450 heard 0
            550 heard 50",
        );
        assert_eq!(playhead.dry_at(Timestamp::from_ms(400)), Some(Timestamp::from_ms(600)));
        assert_eq!(playhead.dry_at(Timestamp::from_ms(560)), Some(Timestamp::from_ms(600)));
    }

    #[test]
    fn a_report_begins_an_item_that_was_thought_to_wait() {
        check(
            Playhead::queued(RATE, Timestamp::from_ms(500)),
            "300 sent 100
            400 reported 0
            450 heard 0
            450 reported 60
            460 heard 70",
        );
    }
}
