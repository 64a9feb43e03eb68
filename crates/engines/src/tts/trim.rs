//! Cuts the near-silence off both ends of an utterance while it streams: punctuation makes the pauses.
//!
//! The local engines call it. flite begins an utterance with 130 to 220 ms of near-silence and ends it with 60 to 180 ms
//! (measured on all four voices). Loud samples pass at once; near-silence is held back until loud samples follow. Kokoro's
//! sound has some 250 ms of near-silence at each end.

/// The loudest sample of near-silence, about -48 dBFS: flite's own noise between words stays below 105.
const QUIET: u16 = 128;

/// See the module. Works on mono samples at any rate.
pub(super) struct EdgeTrim {
    pad: usize,
    begun: bool,
    held: Vec<i16>,
}

impl EdgeTrim {
    /// Leaves `pad` samples of near-silence at each end.
    pub(super) fn new(pad: usize) -> Self {
        Self { pad, begun: false, held: Vec::new() }
    }

    /// Takes the next samples; returns those known to belong to the utterance, none while all is quiet.
    pub(super) fn push(&mut self, samples: &[i16]) -> Vec<i16> {
        let loud = |sample: &i16| sample.unsigned_abs() >= QUIET;
        let Some(last) = samples.iter().rposition(loud) else {
            self.hold(samples);
            return Vec::new();
        };
        let first = if self.begun { 0 } else { samples.iter().position(loud).unwrap_or(0) };
        if !self.begun {
            self.begun = true;
            self.hold(&samples[..first]);
            let surplus = self.held.len().saturating_sub(self.pad);
            self.held.drain(..surplus);
        }
        let mut out = std::mem::take(&mut self.held);
        out.extend_from_slice(&samples[first..=last]);
        self.held.extend_from_slice(&samples[last + 1..]);
        out
    }

    /// Ends the utterance: what is left of its trailing near-silence.
    pub(super) fn finish(mut self) -> Vec<i16> {
        if !self.begun {
            return Vec::new();
        }
        self.held.truncate(self.pad);
        self.held
    }

    /// Holds quiet samples; before the utterance has begun no more than the pad is of use.
    fn hold(&mut self, quiet: &[i16]) {
        self.held.extend_from_slice(quiet);
        if !self.begun {
            let surplus = self.held.len().saturating_sub(self.pad);
            self.held.drain(..surplus);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn trim(samples: &[i16], piece: usize, pad: usize) -> Vec<i16> {
        let mut trim = EdgeTrim::new(pad);
        let mut out: Vec<i16> = samples.chunks(piece).flat_map(|piece| trim.push(piece)).collect();
        out.extend(trim.finish());
        out
    }

    #[test]
    fn edges_keep_the_pad_and_inner_silence_stays() {
        let samples = [[1; 50].as_slice(), &[900; 3], &[2; 40], &[-900; 3], &[3; 50]].concat();
        let expected = [[1; 10].as_slice(), &[900; 3], &[2; 40], &[-900; 3], &[3; 10]].concat();
        for piece in [1, 7, 53, 146] {
            assert_eq!(trim(&samples, piece, 10), expected, "pieces of {piece}");
        }
    }

    #[test]
    fn an_utterance_of_near_silence_is_nothing() {
        assert_eq!(trim(&[100; 500], 64, 10), Vec::<i16>::new());
    }

    #[test]
    fn loud_samples_leave_at_once() {
        let mut trim = EdgeTrim::new(2);
        assert_eq!(trim.push(&[0, 0, 0, 500, 0]), [0, 0, 500]);
        assert_eq!(trim.push(&[0]), Vec::<i16>::new());
        assert_eq!(trim.push(&[-500]), [0, 0, -500]);
    }

    proptest! {
        #[test]
        fn the_pieces_do_not_matter(samples in prop::collection::vec(prop_oneof![-100i16..100, any::<i16>()], 0..300), piece in 1usize..50) {
            prop_assert_eq!(trim(&samples, piece, 8), trim(&samples, samples.len().max(1), 8));
        }
    }
}
