//! What a caller has heard: the position of playback at a peer that answers marks.
//!
//! [`super::conversation`] reports what is sent, answered and discarded, and passes the positions on to the session. Between
//! two answers playback is taken to go on in real time. Positions count samples at 24 kHz from the start of an item. It reads
//! no clock; its memory is bounded.

use super::leg::Mark;
use antiphon_protocol::{ClientEvent, PlayedReport};
use antiphon_types::{ItemId, SampleRate, Samples};
use std::collections::VecDeque;
use std::time::Duration;
use tokio::time::Instant;

/// Rate of positions.
pub(super) const RATE: SampleRate = SampleRate::HZ_24000;
/// Audio between two marks of an item: between their answers the position is an estimate.
const MARK_EVERY: Samples = Samples(2_400);
/// Marks without an answer that are remembered: 50 s of audio, ten times what a session sends ahead.
const MAX_MARKS: usize = 512;
/// A mark that is answered this much later than by the estimate counts as answered: the peer may answer none.
const ANSWERED_WITHIN: Duration = Duration::from_secs(2);

/// See the module.
#[derive(Default)]
pub(super) struct Playout {
    n_marks: u64,
    /// Marks without an answer, oldest first.
    marks: VecDeque<PlacedMark>,
    /// The latest item and the end of what was sent of it.
    sent: Option<(ItemId, Samples)>,
    /// The end of what stands before a mark of that item.
    marked: Samples,
    known: Option<KnownPosition>,
    /// Since when playback stands still.
    held: Option<Instant>,
    /// The latest item whose first sound was reported to the session.
    sounded: Option<ItemId>,
}

struct PlacedMark {
    mark: Mark,
    item: ItemId,
    end: Samples,
}

/// A position that was true at a moment.
struct KnownPosition {
    item: ItemId,
    position: Samples,
    at: Instant,
    /// The peer said so: it was true half a round trip earlier.
    is_answer: bool,
    /// Marks up to this number stand before it.
    passed: u64,
}

/// A position for the session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct HeardPosition {
    pub(super) item: ItemId,
    pub(super) position: Samples,
    /// When the item began to sound, where that was not said before.
    pub(super) first_sound: Option<Instant>,
}

impl HeardPosition {
    /// The client's report of it; times count from `began`.
    pub(super) fn event(&self, stopped: bool, began: Instant) -> ClientEvent {
        let first_sound_ms = self.first_sound.map(|at| at.saturating_duration_since(began).as_secs_f64() * 1e3);
        let audio_end_ms = u32::try_from(self.position.duration(RATE).as_millis()).unwrap_or(u32::MAX);
        let report = PlayedReport { first_sound_ms, stopped, ..PlayedReport::new(self.item.clone(), audio_end_ms) };
        ClientEvent::OutputAudioPlayed(Box::new(report))
    }
}

impl Playout {
    /// Audio of `item` from `from` to `end` was sent; gives the mark to send behind it, where one is due.
    pub(super) fn sent(
        &mut self,
        item: &ItemId,
        (from, end): (Samples, Samples),
        now: Instant,
        round_trip: Duration,
    ) -> Option<Mark> {
        if self.is_done() || self.has_run_out(now, round_trip) {
            let passed = self.n_marks;
            self.known = Some(KnownPosition { item: item.clone(), position: from, at: now, is_answer: false, passed });
        }
        if self.sent.as_ref().is_none_or(|(last, _)| last != item) {
            self.marked = from;
        }
        self.sent = Some((item.clone(), end));
        (end.saturating_sub(self.marked) >= MARK_EVERY).then(|| self.place(item.clone(), end))
    }

    /// The latest item is complete; gives the mark for the rest of it.
    pub(super) fn finished(&mut self) -> Option<Mark> {
        let (item, end) = self.sent.clone()?;
        (end > self.marked).then(|| self.place(item, end))
    }

    /// The peer answered a mark. `None`: that mark was not set, or was answered or discarded before.
    pub(super) fn played(&mut self, mark: Mark, now: Instant, round_trip: Duration) -> Option<HeardPosition> {
        let at = self.marks.iter().position(|placed| placed.mark == mark)?;
        let PlacedMark { item, end, .. } = self.marks.drain(..=at).next_back()?;
        self.known =
            Some(KnownPosition { item: item.clone(), position: end, at: now, is_answer: true, passed: mark.0 });
        let mut heard = self.at(now, round_trip / 2)?;
        if self.sounded.as_ref() != Some(&item) && heard.item == item {
            heard.first_sound = now.checked_sub(heard.position.duration(RATE));
            self.sounded = Some(item);
        }
        Some(heard)
    }

    /// What was sent and not played is discarded now; gives where playback stops. A message takes half of `round_trip` to the
    /// peer. `None`: nothing was sent since the last time.
    pub(super) fn cleared(&mut self, now: Instant, round_trip: Duration) -> Option<HeardPosition> {
        let heard = self.at_arrival(now, round_trip);
        self.marks.clear();
        self.sent = None;
        self.known = None;
        self.held = None;
        heard
    }

    /// Playback stands still or goes on, at a peer that can do so.
    pub(super) fn hold(&mut self, is_held: bool, now: Instant) {
        match (self.held, is_held) {
            (None, true) => self.held = Some(now),
            (Some(since), false) => {
                self.held = None;
                if let Some(known) = &mut self.known {
                    known.at += now.saturating_duration_since(since.max(known.at));
                }
            }
            _ => {}
        }
    }

    /// Whether something of what was sent is still to be played: a mark has no answer, and is not overdue.
    pub(super) fn is_sounding(&self, now: Instant) -> bool {
        let is_overdue = now.checked_sub(ANSWERED_WITHIN).is_some_and(|by| self.is_end(self.at(by, Duration::ZERO)));
        !self.is_done() && !is_overdue
    }

    /// Whether all that was sent has been played, by answered marks.
    fn is_done(&self) -> bool {
        self.marks.is_empty() && self.sent.as_ref().is_none_or(|(_, end)| *end <= self.marked)
    }

    /// Whether playback stands at the end of what was sent when a message of now reaches the peer, by the estimate.
    fn has_run_out(&self, now: Instant, round_trip: Duration) -> bool {
        self.is_end(self.at_arrival(now, round_trip))
    }

    /// Whether this position is the end of what was sent.
    fn is_end(&self, heard: Option<HeardPosition>) -> bool {
        heard.zip(self.sent.as_ref()).is_some_and(|(heard, (item, end))| heard.item == *item && heard.position >= *end)
    }

    fn place(&mut self, item: ItemId, end: Samples) -> Mark {
        self.n_marks += 1;
        let mark = Mark(self.n_marks);
        if self.marks.len() == MAX_MARKS {
            self.marks.pop_front();
        }
        self.marks.push_back(PlacedMark { mark, item, end });
        self.marked = end;
        mark
    }

    /// The position when a message of now reaches the peer.
    fn at_arrival(&self, now: Instant, round_trip: Duration) -> Option<HeardPosition> {
        let is_answer = self.known.as_ref()?.is_answer;
        self.at(now, if is_answer { round_trip } else { Duration::ZERO })
    }

    /// The position at `now`, `way` later than what is known says.
    fn at(&self, now: Instant, way: Duration) -> Option<HeardPosition> {
        let KnownPosition { item, position, at, passed, .. } = self.known.as_ref()?;
        let until = self.held.unwrap_or(now);
        let mut left = RATE.samples_in(until.saturating_duration_since(*at) + way);
        let mut heard = HeardPosition { item: item.clone(), position: *position, first_sound: None };
        let marks = self.marks.iter().filter(|placed| placed.mark.0 > *passed);
        let ends = marks.map(|placed| (&placed.item, placed.end));
        for (item, end) in ends.chain(self.sent.iter().map(|(item, end)| (item, *end))) {
            if *item != heard.item {
                heard = HeardPosition { item: item.clone(), position: Samples::ZERO, first_sound: None };
            }
            let step = end.saturating_sub(heard.position).min(left);
            heard.position += step;
            left = left.saturating_sub(step);
            if left == Samples::ZERO {
                break;
            }
        }
        Some(heard)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NONE: Duration = Duration::ZERO;

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    fn samples(ms: u64) -> Samples {
        Samples::from_ms(ms, RATE)
    }

    fn heard(item: &str, ms: u64) -> Option<HeardPosition> {
        Some(HeardPosition { item: ItemId::from(item), position: samples(ms), first_sound: None })
    }

    /// Sends audio in frames of 20 ms; gives the marks with the ends they stand behind.
    fn send(playout: &mut Playout, item: &str, range: std::ops::Range<u64>, now: Instant) -> Vec<(Mark, u64)> {
        let item = ItemId::from(item);
        let frames = range.clone().step_by(20);
        frames
            .filter_map(|from| Some((playout.sent(&item, (samples(from), samples(from + 20)), now, NONE)?, from + 20)))
            .collect()
    }

    #[test]
    fn a_mark_stands_behind_each_100_ms_and_behind_the_end() {
        let mut playout = Playout::default();
        let now = Instant::now();
        assert_eq!(send(&mut playout, "a", 0..240, now), [(Mark(1), 100), (Mark(2), 200)]);
        assert_eq!(playout.finished(), Some(Mark(3)));
        assert_eq!(playout.finished(), None, "there is one already");
        let first = playout.played(Mark(2), now + ms(210), NONE).unwrap();
        assert_eq!((first.position, first.first_sound), (samples(200), Some(now + ms(10))));
        assert_eq!(playout.played(Mark(1), now + ms(210), NONE), None, "it was answered with the second");
        assert_eq!(playout.played(Mark(3), now + ms(250), NONE), heard("a", 240));
        for never_set in [Mark(0), Mark(4), Mark(u64::MAX)] {
            assert_eq!(playout.played(never_set, now, NONE), None);
        }
    }

    #[test]
    fn a_clear_stops_where_playback_is_by_the_last_answer() {
        let mut playout = Playout::default();
        let now = Instant::now();
        send(&mut playout, "a", 0..400, now);
        playout.played(Mark(1), now + ms(150), NONE);
        assert_eq!(playout.cleared(now + ms(190), NONE), heard("a", 140));
        assert_eq!(playout.played(Mark(2), now + ms(191), NONE), None, "a peer answers discarded marks at once");
        assert_eq!(playout.cleared(now + ms(200), NONE), None);
    }

    #[test]
    fn a_clear_before_any_answer_counts_from_the_first_audio() {
        let mut playout = Playout::default();
        let now = Instant::now();
        send(&mut playout, "a", 0..300, now);
        assert_eq!(playout.cleared(now + ms(60), NONE), heard("a", 60));
        send(&mut playout, "b", 0..100, now + ms(500));
        assert_eq!(playout.cleared(now + ms(900), NONE), heard("b", 100), "no more than was sent");
    }

    #[test]
    fn the_way_to_the_peer_and_back_counts() {
        let mut playout = Playout::default();
        let now = Instant::now();
        send(&mut playout, "a", 0..400, now);
        // The answer was 40 ms on its way.
        let answer = playout.played(Mark(1), now + ms(180), ms(80)).unwrap();
        assert_eq!((answer.position, answer.first_sound), (samples(140), Some(now + ms(40))));
        // The clear is 40 ms on its way, too.
        assert_eq!(playout.cleared(now + ms(200), ms(80)), heard("a", 200));
    }

    #[test]
    fn playback_goes_on_with_the_next_item() {
        let mut playout = Playout::default();
        let now = Instant::now();
        send(&mut playout, "a", 0..100, now);
        send(&mut playout, "b", 0..200, now);
        assert_eq!(playout.cleared(now + ms(150), NONE), heard("b", 50));
    }

    #[test]
    fn a_pause_of_the_session_does_not_count() {
        for is_answered in [false, true] {
            let mut playout = Playout::default();
            let now = Instant::now();
            send(&mut playout, "a", 0..140, now);
            if is_answered {
                playout.played(Mark(1), now + ms(100), NONE);
            }
            send(&mut playout, "a", 140..400, now + ms(1_000));
            assert_eq!(playout.cleared(now + ms(1_050), NONE), heard("a", 190));
        }
        let mut playout = Playout::default();
        let now = Instant::now();
        send(&mut playout, "a", 0..100, now);
        send(&mut playout, "b", 0..100, now);
        send(&mut playout, "c", 0..100, now + ms(1_000));
        assert_eq!(playout.cleared(now + ms(1_050), NONE), heard("c", 50), "marks of the others have no answer");
    }

    #[test]
    fn a_pause_of_the_peer_does_not_count() {
        let mut playout = Playout::default();
        let now = Instant::now();
        send(&mut playout, "a", 0..400, now);
        playout.hold(true, now + ms(100));
        playout.hold(true, now + ms(150));
        playout.hold(false, now + ms(300));
        assert_eq!(playout.cleared(now + ms(350), NONE), heard("a", 150));
        send(&mut playout, "b", 0..400, now + ms(1_000));
        playout.hold(true, now + ms(1_100));
        assert_eq!(playout.cleared(now + ms(1_900), NONE), heard("b", 100));
    }

    #[test]
    fn what_was_sent_sounds_until_its_last_mark_is_answered_or_overdue() {
        let mut playout = Playout::default();
        let now = Instant::now();
        assert!(!playout.is_sounding(now));
        send(&mut playout, "a", 0..240, now);
        assert_eq!(playout.finished(), Some(Mark(3)));
        // The peer begins late.
        assert!(playout.is_sounding(now + ms(1_000)));
        playout.played(Mark(2), now + ms(1_200), NONE);
        assert!(playout.is_sounding(now + ms(3_220)), "40 ms are left");
        assert!(!playout.is_sounding(now + ms(3_260)), "the last mark is overdue");
        playout.played(Mark(3), now + ms(3_300), NONE);
        send(&mut playout, "b", 0..100, now + ms(4_000));
        assert!(playout.is_sounding(now + ms(4_090)));
        playout.played(Mark(4), now + ms(4_100), NONE);
        assert!(!playout.is_sounding(now + ms(4_100)));
        send(&mut playout, "c", 0..100, now + ms(5_000));
        playout.cleared(now + ms(5_050), NONE);
        assert!(!playout.is_sounding(now + ms(5_050)));
    }

    #[test]
    fn a_peer_that_answers_no_mark_costs_bounded_memory() {
        let mut playout = Playout::default();
        let now = Instant::now();
        send(&mut playout, "a", 0..200_000, now);
        assert_eq!(playout.marks.len(), MAX_MARKS);
    }

    #[test]
    fn what_is_reported_to_the_session() {
        let began = Instant::now();
        let heard = HeardPosition { item: "item_1".into(), position: samples(140), first_sound: Some(began + ms(20)) };
        let report = PlayedReport::new("item_1".into(), 140);
        let first = PlayedReport { first_sound_ms: Some(20.0), ..report.clone() };
        let stopped = PlayedReport { stopped: true, ..first.clone() };
        let played = |report| ClientEvent::OutputAudioPlayed(Box::new(report));
        assert_eq!(heard.event(true, began), played(stopped));
        assert_eq!(heard.event(false, began), played(first));
        assert_eq!(HeardPosition { first_sound: None, ..heard }.event(false, began), played(report));
    }
}
