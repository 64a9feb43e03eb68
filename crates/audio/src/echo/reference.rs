//! The response audio indexed by turn time: recent and near-future audio as samples, later audio as u-law. It becomes samples
//! when the microphone hears something: one that is silent costs next to nothing.

use super::{MAX_LAG, MAX_LEAD};
use crate::codec::g711;
use std::collections::VecDeque;
use std::ops::Range;

/// Samples in the ring, a power of two: 2 s, which holds the longest lag with its history and [`AHEAD`].
const RING: usize = 32_768;
/// How far the ring extends ahead of the microphone: 0.5 s.
const AHEAD: u64 = 8_000;
/// Largest amount of audio stored as u-law (38 dB of SNR, much more than the subtraction needs): 30 s of the future, and what the
/// ring would hold of the past; 512 KB.
const MAX_PENDING: usize = 480_000 + RING;
/// Most codes of a span, 1 s: the memory of those that are in the ring already is freed with the last.
const MAX_SPAN: usize = 16_000;
/// A turn time that is never reached.
const NEVER: u64 = 1 << 62;
/// Reverberation tail of a room: 0.2 s.
const TAIL: u64 = 3_200;

#[derive(Debug)]
pub(super) struct Reference {
    ring: Box<[i16]>,
    /// The ring holds the [`RING`] samples before this turn time.
    end: u64,
    /// Audio after `end`, in order.
    pending: VecDeque<ReferenceSpan>,
    n_pending: usize,
    /// Turn time after the last sample added.
    sounds_until: u64,
    /// The first turn time written since the last search.
    changed: u64,
}

#[derive(Debug)]
struct ReferenceSpan {
    /// Turn time of the first of the `codes` that are not in the ring yet.
    at: u64,
    codes: Vec<u8>,
    /// Codes that are in the ring.
    n_taken: usize,
}

impl ReferenceSpan {
    fn left(&self) -> &[u8] {
        &self.codes[self.n_taken..]
    }
}

impl Reference {
    pub(super) fn new(position: u64) -> Self {
        let ring = vec![0; RING].into();
        Self { ring, end: position + AHEAD, pending: VecDeque::new(), n_pending: 0, sounds_until: 0, changed: 0 }
    }

    /// Whether a window at `position` may contain echo.
    pub(super) fn in_reach(&self, position: u64) -> bool {
        position < self.sounds_until + MAX_LAG as u64 + TAIL
    }

    /// How long before `position` the last audio sounded.
    pub(super) fn silent_for(&self, position: u64) -> u64 {
        position.saturating_sub(self.sounds_until)
    }

    /// Frees audio that is out of reach for a microphone at `position`, which is not before the last one.
    pub(super) fn forget_before(&mut self, position: u64) {
        let first = (position + AHEAD).saturating_sub(RING as u64);
        while let Some(span) = self.pending.front().filter(|span| span.at + span.left().len() as u64 <= first) {
            self.n_pending -= span.left().len();
            self.pending.pop_front();
        }
    }

    /// Advances to a microphone at `position`.
    pub(super) fn advance(&mut self, position: u64) {
        let end = position + AHEAD;
        if end <= self.end {
            return;
        }
        self.changed = self.changed.min(self.end);
        let n_new = (end - self.end).min(RING as u64);
        for part in in_ring(end - n_new, n_new as usize) {
            self.ring[part].fill(0);
        }
        self.end = end;
        while let Some(span) = self.pending.front_mut().filter(|span| span.at < end) {
            let n = span.left().len().min((end - span.at) as usize);
            put(&mut self.ring, end, span.at, &span.left()[..n], g711::ulaw_to_linear);
            span.at += n as u64;
            span.n_taken += n;
            self.n_pending -= n;
            if span.left().is_empty() {
                self.pending.pop_front();
            }
        }
    }

    /// Adds audio that sounds from `at` on.
    pub(super) fn write(&mut self, at: u64, pcm: &[i16]) {
        self.changed = self.changed.min(at);
        let n_now = self.end.saturating_sub(at).min(pcm.len() as u64) as usize;
        put(&mut self.ring, self.end, at, &pcm[..n_now], |sample| sample);
        // A delay may have moved samples from the ring into pending audio that is already full.
        let room = MAX_PENDING.saturating_sub(self.n_pending);
        let later = &pcm[n_now..];
        let later = &later[..later.len().min(room)];
        self.n_pending += later.len();
        let at_later = at + n_now as u64;
        let place = self.pending.partition_point(|span| span.at <= at_later);
        for (i, part) in later.chunks(MAX_SPAN).enumerate() {
            let codes = part.iter().map(|&sample| g711::linear_to_ulaw(sample)).collect();
            let at = at_later + (i * MAX_SPAN) as u64;
            self.pending.insert(place + i, ReferenceSpan { at, codes, n_taken: 0 });
        }
        self.sounds_until = self.sounds_until.max(at + (n_now + later.len()) as u64);
    }

    /// Removes all audio from `at` on.
    pub(super) fn cut(&mut self, at: u64) {
        self.changed = self.changed.min(at);
        let first = at.max(self.end.saturating_sub(RING as u64));
        for part in in_ring(first, self.end.saturating_sub(first) as usize) {
            self.ring[part].fill(0);
        }
        self.pending.retain_mut(|span| {
            span.codes.truncate(span.n_taken + at.saturating_sub(span.at) as usize);
            !span.left().is_empty()
        });
        self.n_pending = self.pending.iter().map(|span| span.left().len()).sum();
        self.sounds_until = self.sounds_until.min(at);
    }

    /// Delays the audio from `at` on by `by`.
    pub(super) fn delay(&mut self, at: u64, by: u64) {
        let first = at.max(self.end.saturating_sub(RING as u64));
        let moved: Vec<i16> = (first..self.end.max(first)).map(|i| self.ring[index(i)]).collect();
        let later = std::mem::take(&mut self.pending);
        let until = self.sounds_until;
        self.cut(at);
        if until <= at {
            return;
        }
        let n_sounding = moved.len().min(until.saturating_sub(first) as usize);
        self.write(first + by, &moved[..n_sounding]);
        for span in later {
            self.n_pending += span.left().len();
            self.pending.push_back(ReferenceSpan { at: span.at + by, ..span });
        }
        self.sounds_until = until + by;
    }

    /// The first turn time at which the audio may have changed since the last call.
    pub(super) fn take_changed(&mut self) -> i64 {
        std::mem::replace(&mut self.changed, NEVER) as i64
    }

    /// Copies the samples from turn time `at` on into `out`, in [-1, 1]; samples outside the ring are silence.
    pub(super) fn read(&self, at: i64, out: &mut [f32]) {
        let first = (self.end as i64 - RING as i64).max(0);
        let end = self.end as i64;
        let n = out.len() as i64;
        let from = (first - at).clamp(0, n) as usize;
        let until = (end - at).clamp(0, n) as usize;
        out[..from].fill(0.0);
        out[until.max(from)..].fill(0.0);
        let Some(mut left) = out.get_mut(from..until).filter(|left| !left.is_empty()) else { return };
        let mut here = &self.ring[index((at + from as i64) as u64)..];
        while !left.is_empty() {
            let n = left.len().min(here.len());
            let (now, later) = left.split_at_mut(n);
            for (sample, &pcm) in now.iter_mut().zip(here) {
                *sample = f32::from(pcm) / 32_768.0;
            }
            left = later;
            here = &self.ring;
        }
    }

    pub(super) fn memory(&self) -> usize {
        2 * RING + self.n_pending + self.pending.front().map_or(0, |span| span.n_taken)
    }
}

/// Writes the samples that sound from turn time `at` on to a ring that ends at `end`, which is not before the last of them; what
/// the ring does not reach back to is dropped.
fn put<T: Copy>(ring: &mut [i16], end: u64, at: u64, values: &[T], sample: impl Fn(T) -> i16) {
    let n_before = (end.saturating_sub(RING as u64).saturating_sub(at) as usize).min(values.len());
    let mut values = &values[n_before..];
    for part in in_ring(at + n_before as u64, values.len()) {
        let (here, later) = values.split_at(part.len());
        for (to, &value) in ring[part].iter_mut().zip(here) {
            *to = sample(value);
        }
        values = later;
    }
}

/// Where `n` samples from turn time `at` on are in the ring, at most all of it: in one part, or in two.
fn in_ring(at: u64, n: usize) -> [Range<usize>; 2] {
    let first = index(at);
    let n_first = n.min(RING - first);
    [first..first + n_first, 0..n - n_first]
}

fn index(at: u64) -> usize {
    at as usize % RING
}

const _: () = assert!(RING >= MAX_LAG + MAX_LEAD + super::HISTORY + AHEAD as usize);

#[cfg(test)]
mod tests {
    use super::*;

    fn at_hand(reference: &Reference, at: i64, n: usize) -> Vec<i32> {
        let mut out = vec![0.0; n];
        reference.read(at, &mut out);
        out.iter().map(|x| (x * 32_768.0) as i32).collect()
    }

    #[test]
    fn the_future_is_unpacked_when_it_comes() {
        let mut reference = Reference::new(0);
        reference.write(9_000, &[1_000; 2_000]);
        assert_eq!(at_hand(&reference, 9_500, 1), [0]);
        reference.advance(2_000);
        let sample = at_hand(&reference, 9_999, 2);
        assert!((sample[0] - 1_000).abs() < 40 && sample[1] == 0, "{sample:?}");
        reference.advance(20_000);
        assert!((at_hand(&reference, 10_999, 1)[0] - 1_000).abs() < 40);
        assert_eq!((at_hand(&reference, 11_000, 1), reference.n_pending), (vec![0], 0));
    }

    #[test]
    fn a_cut_and_a_delay_reach_ring_and_future_alike() {
        let mut reference = Reference::new(0);
        reference.write(7_000, &[500; 4_000]);
        reference.delay(7_500, 100);
        assert_eq!(at_hand(&reference, 7_499, 3), [500, 0, 0]);
        assert_eq!(at_hand(&reference, 7_599, 2), [0, 500]);
        reference.advance(20_000);
        assert!(at_hand(&reference, 11_099, 2)[0] > 450 && at_hand(&reference, 11_100, 1) == [0]);
        reference.cut(9_000);
        assert_eq!(at_hand(&reference, 8_999, 2)[1], 0);
        assert!(reference.in_reach(9_000) && !reference.in_reach(9_000 + 30_000));
    }

    #[test]
    fn what_a_silent_microphone_skips_is_there_when_it_hears_something_and_freed_when_it_is_out_of_reach() {
        let mut followed = Reference::new(0);
        let mut skipped = Reference::new(0);
        let pcm: Vec<i16> = (0..200_000).map(|i| (i % 20_011) as i16).collect();
        for (i, part) in pcm.chunks(4_801).enumerate() {
            followed.write(300 + (i * 4_801) as u64, part);
            skipped.write(300 + (i * 4_801) as u64, part);
        }
        let coded = skipped.n_pending;
        for position in (0..150_000).step_by(256) {
            followed.advance(position);
            skipped.forget_before(position);
        }
        assert!(skipped.n_pending < coded - 100_000, "{} of {coded}", skipped.n_pending);
        for reference in [&mut followed, &mut skipped] {
            reference.advance(150_000);
        }
        let first = 150_000 + AHEAD as i64 - RING as i64;
        let followed_now = at_hand(&followed, first, RING);
        let now = at_hand(&skipped, first, RING);
        assert_eq!(followed_now, now);
        assert!((now[0] - i32::from(pcm[first as usize - 300])).abs() < 700, "{}", now[0]);
        assert_eq!(followed.n_pending, skipped.n_pending);
    }

    #[test]
    fn memory_is_bounded() {
        let mut reference = Reference::new(0);
        for second in 0..100 {
            reference.write(second * 16_000, &[1; 16_000]);
        }
        assert_eq!(reference.memory(), 2 * RING + MAX_PENDING);
    }
}
