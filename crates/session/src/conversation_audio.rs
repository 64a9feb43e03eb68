//! Both sides of a recorded session in one time: the microphone, and the reply as it sounds.
//!
//! The recorder of the replay log puts both in and gets frames of two samples at 16 kHz, the microphone's first. While the
//! microphone sends, each frame is a sample of turn time. While it is silent and the reply sounds, frames follow the clock. While
//! neither does, there are none. The reply is where the session estimates that it sounds; what is held back, stopped or dropped
//! is in no frame. Never waits, and never reads the clock.

use antiphon_types::{ItemId, ResponseId, SampleRate, Samples};
use std::collections::VecDeque;
use std::ops::Range;
use std::time::Duration;
use tokio::time::Instant;

/// Samples of a frame.
pub(super) const CHANNELS: u16 = 2;
/// A microphone that sends nothing for this long is silent: the reply sounds without it. A telephone's silence is filled in after
/// 1 s. Audio that comes later than that is recorded behind the reply that sounded meanwhile.
const STALL: Duration = Duration::from_millis(1_500);
/// The most of the reply that waits for its time, 2 minutes: 3.8 MB. A client that plays audio from events gets a reply as fast
/// as it is made.
const MAX_WAITING: usize = 120 * 16_000;
/// Gaps of the microphone whose places are known, the latest ones: far more than an utterance has.
const MAX_GAPS: usize = 64;

/// See the module.
pub(super) struct ConversationAudio {
    /// Frames so far.
    position: Samples,
    /// Frames without a microphone: how far `position` is ahead of turn time.
    inserted: Samples,
    /// Where these frames are, in the order of time.
    gaps: VecDeque<Gap>,
    /// The reply that has not sounded, in the order of time, without overlaps.
    reply: VecDeque<ReplyPiece>,
    n_waiting: usize,
    /// The frame since which playback stands still.
    held_since: Option<Samples>,
    /// When the last frame was made, or none was due.
    advanced_at: Instant,
    /// The microphone is silent, or has sent nothing yet.
    is_stalled: bool,
}

/// Frames without a microphone.
struct Gap {
    /// The turn time that comes behind them.
    at: Samples,
    /// `inserted` before them.
    before: Samples,
}

/// What reply audio belongs to.
#[derive(Clone, Debug)]
pub(super) struct ReplySource {
    pub(super) response: ResponseId,
    pub(super) item: ItemId,
}

struct ReplyPiece {
    source: ReplySource,
    /// The frame of the first sample that has not sounded.
    at: Samples,
    pcm: Vec<i16>,
    n_sounded: usize,
}

impl ReplyPiece {
    fn left(&self) -> &[i16] {
        &self.pcm[self.n_sounded..]
    }

    fn end(&self) -> Samples {
        self.at + Samples(self.left().len() as u64)
    }
}

impl ConversationAudio {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            position: Samples::ZERO,
            inserted: Samples::ZERO,
            gaps: VecDeque::new(),
            reply: VecDeque::new(),
            n_waiting: 0,
            held_since: None,
            advanced_at: now,
            is_stalled: true,
        }
    }

    /// The frames of a span of turn time that is not long ago, with those of gaps within it.
    pub(super) fn frames_of(&self, span: Range<Samples>) -> Range<Samples> {
        let start = self.frame_at(span.start);
        // Behind the last sample, and before a gap that follows it.
        let end = span.end.0.checked_sub(1).map_or(start, |last| self.frame_at(Samples(last)) + Samples(1));
        start..end.max(start)
    }

    /// The frame of a turn time that is not long ago.
    fn frame_at(&self, turn_time: Samples) -> Samples {
        let next = self.gaps.iter().find(|gap| gap.at > turn_time);
        turn_time + next.map_or(self.inserted, |gap| gap.before)
    }

    /// Audio of the microphone; its frames are appended to `frames`, as those are that other methods make.
    pub(super) fn heard(&mut self, now: Instant, microphone: &[i16], frames: &mut Vec<i16>) {
        self.follow_clock(now, frames);
        self.append(microphone.len(), microphone, frames);
        self.advanced_at = now;
        self.is_stalled = false;
    }

    /// Reply audio that sounds from `at` in turn time on, or behind what waits already. `false`: too much waits, and some of it is
    /// not recorded.
    pub(super) fn reply_sounds(
        &mut self,
        now: Instant,
        source: ReplySource,
        at: Samples,
        mut pcm: Vec<i16>,
        frames: &mut Vec<i16>,
    ) -> bool {
        self.follow_clock(now, frames);
        let room = MAX_WAITING - self.n_waiting;
        let fits = pcm.len() <= room;
        pcm.truncate(room);
        if !pcm.is_empty() {
            self.n_waiting += pcm.len();
            let held_for = self.held_since.map_or(Samples::ZERO, |since| self.position - since);
            let at = self.frame_at(at).saturating_sub(held_for).max(self.waits_until());
            self.reply.push_back(ReplyPiece { source, at, pcm, n_sounded: 0 });
        }
        fits
    }

    /// Playback stands still from now on.
    pub(super) fn reply_held(&mut self, now: Instant, frames: &mut Vec<i16>) {
        self.follow_clock(now, frames);
        self.held_since.get_or_insert(self.position);
    }

    /// Playback goes on.
    pub(super) fn reply_resumed(&mut self, now: Instant, frames: &mut Vec<i16>) {
        self.follow_clock(now, frames);
        let Some(since) = self.held_since.take() else { return };
        let delay = self.position - since;
        for piece in &mut self.reply {
            piece.at += delay;
        }
    }

    /// What waits of a response will not sound.
    pub(super) fn reply_stopped(&mut self, now: Instant, response: &ResponseId, frames: &mut Vec<i16>) {
        self.follow_clock(now, frames);
        self.drop_reply(|source| source.response == *response);
    }

    /// What waits of an item will not sound: the client has stopped it.
    pub(super) fn item_truncated(&mut self, now: Instant, item: &ItemId, frames: &mut Vec<i16>) {
        self.follow_clock(now, frames);
        self.drop_reply(|source| source.item == *item);
    }

    /// The session ends.
    pub(super) fn finish(&mut self, now: Instant, frames: &mut Vec<i16>) {
        self.advance(now, frames);
    }

    /// Makes the frames that are due while the microphone is silent.
    fn follow_clock(&mut self, now: Instant, frames: &mut Vec<i16>) {
        self.is_stalled |= now.saturating_duration_since(self.advanced_at) >= STALL;
        if self.is_stalled {
            self.advance(now, frames);
        }
    }

    fn drop_reply(&mut self, is_dropped: impl Fn(&ReplySource) -> bool) {
        self.reply.retain(|piece| !is_dropped(&piece.source));
        self.n_waiting = self.reply.iter().map(|piece| piece.left().len()).sum();
    }

    /// Makes the frames of the reply alone that are due.
    fn advance(&mut self, now: Instant, frames: &mut Vec<i16>) {
        let elapsed = SampleRate::HZ_16000.samples_in(now.saturating_duration_since(self.advanced_at));
        self.advanced_at = now;
        if self.held_since.is_none() {
            let n = elapsed.min(self.waits_until() - self.position);
            self.note_gap(n);
            self.append(n.0 as usize, &[], frames);
            self.inserted += n;
        }
    }

    /// `n` frames without a microphone follow.
    fn note_gap(&mut self, n: Samples) {
        let at = self.position - self.inserted;
        if n == Samples::ZERO || self.gaps.back().is_some_and(|gap| gap.at == at) {
            return;
        }
        if self.gaps.len() == MAX_GAPS {
            self.gaps.pop_front();
        }
        self.gaps.push_back(Gap { at, before: self.inserted });
    }

    /// The frame behind what waits, without the hold that lasts.
    fn waits_until(&self) -> Samples {
        self.reply.back().map_or(self.held_since.unwrap_or(self.position), ReplyPiece::end)
    }

    /// Appends `n` frames.
    fn append(&mut self, n: usize, microphone: &[i16], frames: &mut Vec<i16>) {
        let first = frames.len();
        frames.resize(first + n * usize::from(CHANNELS), 0);
        let added = &mut frames[first..];
        for (frame, &sample) in added.chunks_exact_mut(2).zip(microphone) {
            frame[0] = sample;
        }
        while let Some(piece) = self.reply.front_mut().filter(|_| self.held_since.is_none()) {
            let begins = (piece.at - self.position).0 as usize;
            if begins >= n {
                break;
            }
            let n_now = piece.left().len().min(n - begins);
            for (frame, &sample) in added.chunks_exact_mut(2).skip(begins).zip(&piece.left()[..n_now]) {
                frame[1] = sample;
            }
            piece.n_sounded += n_now;
            piece.at += Samples(n_now as u64);
            self.n_waiting -= n_now;
            if !piece.left().is_empty() {
                break;
            }
            self.reply.pop_front();
        }
        self.position += Samples(n as u64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A millisecond is 16 frames.
    struct Rig {
        audio: ConversationAudio,
        now: Instant,
        frames: Vec<i16>,
    }

    impl Rig {
        fn new() -> Self {
            let now = Instant::now();
            Self { audio: ConversationAudio::new(now), now, frames: Vec::new() }
        }

        /// The microphone sends for `ms`, in pieces of 20 ms, as fast as it hears.
        fn hears(&mut self, ms: u64) {
            for _ in 0..ms / 20 {
                self.now += Duration::from_millis(20);
                self.audio.heard(self.now, &[1; 320], &mut self.frames);
            }
        }

        /// A reply is made that sounds from `at_ms` of turn time on.
        fn reply(&mut self, at_ms: u64, ms: u64) -> bool {
            self.reply_of("resp_1", at_ms, ms)
        }

        fn reply_of(&mut self, response: &str, at_ms: u64, ms: u64) -> bool {
            let at = Samples::from_ms(at_ms, SampleRate::HZ_16000);
            let source = ReplySource { response: response.into(), item: format!("item of {response}").into() };
            self.audio.reply_sounds(self.now, source, at, vec![2; 16 * ms as usize], &mut self.frames)
        }

        fn held(&mut self) {
            self.audio.reply_held(self.now, &mut self.frames);
        }

        fn resumed(&mut self) {
            self.audio.reply_resumed(self.now, &mut self.frames);
        }

        fn stopped(&mut self, response: &str) {
            self.audio.reply_stopped(self.now, &response.into(), &mut self.frames);
        }

        fn passes(&mut self, ms: u64) {
            self.now += Duration::from_millis(ms);
        }

        /// What sounds: `m` the microphone, `r` the reply, `b` both, `.` neither, each with its milliseconds.
        fn sounds(&self) -> String {
            let signs = self.frames.chunks_exact(2).map(|frame| match frame {
                [0, 0] => '.',
                [_, 0] => 'm',
                [0, _] => 'r',
                _ => 'b',
            });
            let signs: Vec<char> = signs.collect();
            let runs = signs.chunk_by(|sign, next| sign == next);
            runs.map(|run| format!("{}{} ", run[0], run.len() / 16)).collect()
        }
    }

    #[test]
    fn a_reply_is_where_it_sounds_while_the_microphone_goes_on() {
        let mut rig = Rig::new();
        rig.hears(100);
        assert!(rig.reply(140, 100) && rig.reply(240, 50));
        rig.hears(300);
        assert_eq!(rig.sounds(), "m140 b150 m110 ");
    }

    #[test]
    fn audio_that_is_late_or_overlaps_sounds_behind_what_sounds_already() {
        let mut rig = Rig::new();
        rig.hears(100);
        assert!(rig.reply(60, 100) && rig.reply(120, 100));
        rig.hears(300);
        assert_eq!(rig.sounds(), "m100 b200 m100 ");
    }

    #[test]
    fn what_is_held_sounds_later_and_what_is_stopped_does_not() {
        let mut rig = Rig::new();
        rig.hears(100);
        rig.reply(100, 200);
        rig.hears(100);
        rig.held();
        rig.hears(200);
        rig.resumed();
        rig.hears(60);
        rig.stopped("resp_1");
        rig.hears(100);
        assert_eq!(rig.sounds(), "m100 b100 m200 b60 m100 ");
        assert_eq!(rig.audio.n_waiting, 0);
    }

    #[test]
    fn a_reply_that_is_made_during_a_hold_sounds_behind_it() {
        let mut rig = Rig::new();
        rig.hears(100);
        rig.held();
        rig.hears(200);
        rig.reply(300, 100);
        rig.reply(400, 100);
        rig.hears(100);
        rig.resumed();
        rig.hears(300);
        assert_eq!(rig.sounds(), "m400 b200 m100 ");
    }

    #[test]
    fn without_a_microphone_the_reply_follows_the_clock() {
        let mut rig = Rig::new();
        rig.passes(5_000);
        rig.reply(0, 2_000);
        rig.passes(3_000);
        // The next one is placed by a turn time that has stood still.
        rig.reply(0, 2_000);
        rig.passes(1_000);
        rig.stopped("resp_1");
        rig.passes(10_000);
        rig.hears(100);
        assert_eq!(rig.audio.frame_at(Samples::ZERO), Samples::from_ms(3_000, SampleRate::HZ_16000));
        rig.reply(100, 800);
        rig.passes(300);
        rig.audio.finish(rig.now, &mut rig.frames);
        assert_eq!(rig.sounds(), "r3000 m100 r300 ");
    }

    #[test]
    fn an_utterance_keeps_its_place_where_the_microphone_stalls_within_it() {
        let mut rig = Rig::new();
        rig.hears(100);
        rig.reply(100, 5_000);
        rig.passes(1_980);
        rig.hears(100);
        assert_eq!(rig.sounds(), "m100 r2000 b100 ");
        let ms = |ms: u64| Samples::from_ms(ms, SampleRate::HZ_16000);
        let frames_of = |from: u64, to: u64| rig.audio.frames_of(ms(from)..ms(to));
        assert_eq!(frames_of(60, 160), ms(60)..ms(2_160), "what sounded meanwhile is in it");
        assert_eq!(frames_of(60, 100), ms(60)..ms(100), "it ended before");
        assert_eq!(frames_of(100, 180), ms(2_100)..ms(2_180), "it began behind it");
        assert_eq!(frames_of(0, 0), ms(0)..ms(0));
    }

    #[test]
    fn a_microphone_that_begins_late_hears_the_rest() {
        let mut rig = Rig::new();
        rig.reply(0, 2_000);
        rig.passes(980);
        rig.hears(200);
        assert_eq!(rig.sounds(), "r1000 b200 ");
    }

    #[test]
    fn a_short_reply_without_a_microphone_is_recorded_as_far_as_it_sounded() {
        let mut rig = Rig::new();
        rig.passes(5_000);
        rig.reply(0, 2_000);
        rig.passes(400);
        rig.stopped("resp_1");
        rig.passes(100);
        rig.reply(0, 1_000);
        rig.passes(200);
        rig.held();
        rig.passes(700);
        rig.resumed();
        rig.passes(300);
        rig.audio.finish(rig.now, &mut rig.frames);
        assert_eq!(rig.sounds(), "r900 ", "400, 200 and 300");
    }

    #[test]
    fn a_telephone_whose_silence_is_filled_in_late_leaves_no_hole_in_the_reply() {
        let mut rig = Rig::new();
        rig.hears(100);
        rig.reply(100, 3_000);
        rig.passes(1_000);
        // What stands in for a second without packets.
        rig.audio.heard(rig.now, &[1; 16_000], &mut rig.frames);
        rig.reply(3_100, 1_000);
        rig.hears(4_000);
        assert_eq!(rig.sounds(), "m100 b4000 m1000 ");
    }

    #[test]
    fn what_the_client_or_the_hub_stops_takes_nothing_of_another_reply_with_it() {
        let mut rig = Rig::new();
        rig.hears(100);
        rig.reply_of("resp_1", 100, 100);
        rig.reply_of("resp_2", 200, 100);
        rig.stopped("resp_1");
        rig.hears(300);
        rig.reply_of("resp_3", 400, 200);
        rig.hears(100);
        rig.audio.item_truncated(rig.now, &"item of resp_3".into(), &mut rig.frames);
        rig.hears(100);
        assert_eq!(rig.sounds(), "m200 b100 m100 b100 m100 ");
    }

    #[test]
    fn what_waits_is_bounded() {
        let mut rig = Rig::new();
        rig.hears(20);
        assert!(rig.reply(20, 120_000));
        assert!(!rig.reply(0, 1));
        rig.hears(20);
        assert!(rig.reply(0, 20));
        assert_eq!(rig.audio.n_waiting, MAX_WAITING);
    }
}
