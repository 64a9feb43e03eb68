//! Pre-roll: the most recent audio of a microphone, so that the syllable before the VAD triggered is not lost.
//!
//! Session ingress pushes every sample; when speech starts it copies from the pre-roll's start on. Positions are turn
//! time.

use antiphon_types::Samples;

/// A ring of mono samples at 16 kHz with absolute offsets. Allocated at the first push.
#[derive(Debug)]
pub struct PreRoll {
    capacity: usize,
    ring: Box<[i16]>,
    end: u64,
}

impl PreRoll {
    /// A ring for the last `capacity` samples, at least one.
    pub fn new(capacity: Samples) -> Self {
        Self { capacity: (capacity.0 as usize).max(1), ring: Box::default(), end: 0 }
    }

    /// Appends samples; the oldest are overwritten.
    pub fn push(&mut self, samples: &[i16]) {
        if self.ring.is_empty() {
            self.ring = vec![0; self.capacity].into();
        }
        // Only the end of a push longer than the ring is kept.
        let kept = &samples[samples.len().saturating_sub(self.capacity)..];
        self.end += samples.len() as u64;
        if kept.is_empty() {
            return;
        }
        let at = self.index(self.end - kept.len() as u64);
        let first = kept.len().min(self.capacity - at);
        self.ring[at..at + first].copy_from_slice(&kept[..first]);
        self.ring[..kept.len() - first].copy_from_slice(&kept[first..]);
    }

    /// The offset after the last sample, equal to the number of samples pushed.
    pub fn end(&self) -> Samples {
        Samples(self.end)
    }

    /// The offset of the oldest sample in the ring.
    pub fn start(&self) -> Samples {
        Samples(self.end.saturating_sub(self.capacity as u64))
    }

    /// Appends all samples from `offset` on to `out`, or from the oldest one in the ring; returns the actual start.
    pub fn copy_from(&self, offset: Samples, out: &mut Vec<i16>) -> Samples {
        let start = offset.clamp(self.start(), self.end());
        let n = (self.end - start.0) as usize;
        if n > 0 {
            let at = self.index(start.0);
            let first = n.min(self.capacity - at);
            out.extend_from_slice(&self.ring[at..at + first]);
            out.extend_from_slice(&self.ring[..n - first]);
        }
        start
    }

    fn index(&self, offset: u64) -> usize {
        (offset % self.capacity as u64) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn an_empty_ring_has_nothing() {
        let mut out = Vec::new();
        assert_eq!(PreRoll::new(Samples(10)).copy_from(Samples(5), &mut out), Samples(0));
        assert!(out.is_empty());
    }

    proptest! {
        #[test]
        fn it_holds_the_end_of_what_was_pushed(blocks in prop::collection::vec(0..40usize, 0..20), capacity in 1..30usize, offset in 0..400u64) {
            let mut ring = PreRoll::new(Samples(capacity as u64));
            let mut all = Vec::new();
            for n in blocks {
                let block: Vec<i16> = (all.len()..all.len() + n).map(|i| i as i16).collect();
                ring.push(&block);
                all.extend(block);
            }
            let mut out = Vec::new();
            let start = ring.copy_from(Samples(offset), &mut out);
            let expected = (offset as usize).clamp(all.len().saturating_sub(capacity), all.len());
            prop_assert_eq!(start, Samples(expected as u64));
            prop_assert_eq!(&out[..], &all[expected..]);
        }
    }
}
