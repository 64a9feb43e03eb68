//! Raw 16-bit little-endian PCM, interleaved, as mono samples.

use super::{Decode, DecodeError};
use antiphon_types::{Pcm, SampleRate};

/// See the module. Channels are averaged.
pub(super) struct PcmDecoder {
    rate: SampleRate,
    channels: usize,
    /// A part of a frame.
    held: Vec<u8>,
}

impl PcmDecoder {
    /// `channels` is 1 or more.
    pub(super) fn new(rate: SampleRate, channels: u16) -> Self {
        Self { rate, channels: usize::from(channels.max(1)), held: Vec::new() }
    }
}

impl Decode for PcmDecoder {
    fn push(&mut self, bytes: &[u8]) -> Result<Pcm, DecodeError> {
        let samples = if self.held.is_empty() {
            let (samples, rest) = mix(bytes, self.channels);
            self.held.extend_from_slice(rest);
            samples
        } else {
            self.held.extend_from_slice(bytes);
            let held = std::mem::take(&mut self.held);
            let (samples, rest) = mix(&held, self.channels);
            self.held.extend_from_slice(rest);
            samples
        };
        Ok(Pcm { rate: self.rate, samples })
    }

    fn end(&self) -> Result<Option<&'static str>, DecodeError> {
        let odd = "the speech server's PCM ends within a sample, which is dropped";
        Ok((!self.held.is_empty()).then_some(odd))
    }
}

/// The whole frames as mono samples, and the bytes behind them.
pub(super) fn mix(bytes: &[u8], channels: usize) -> (Vec<i16>, &[u8]) {
    let frame = 2 * channels;
    let (whole, rest) = bytes.split_at(bytes.len() / frame * frame);
    if channels == 1 {
        return (whole.as_chunks::<2>().0.iter().map(|pair| i16::from_le_bytes(*pair)).collect(), rest);
    }
    let mixed = |frame: &[u8]| {
        let sum: i32 = frame.as_chunks::<2>().0.iter().map(|pair| i32::from(i16::from_le_bytes(*pair))).sum();
        (sum / channels as i32) as i16
    };
    (whole.chunks_exact(frame).map(mixed).collect(), rest)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn channels_are_averaged_and_half_a_frame_is_noticed() {
        let mut decoder = PcmDecoder::new(SampleRate::HZ_24000, 2);
        assert!(decoder.push(&[100, 0, 44]).unwrap().is_empty());
        assert_eq!(decoder.push(&[1, 7]).unwrap().samples, [200]);
        assert!(decoder.end().unwrap().is_some());
    }

    proptest! {
        #[test]
        fn the_pieces_do_not_matter(samples: Vec<i16>, cuts in prop::collection::vec(1usize..7, 1..20)) {
            let bytes: Vec<u8> = samples.iter().flat_map(|sample| sample.to_le_bytes()).collect();
            let mut decoder = PcmDecoder::new(SampleRate::HZ_24000, 1);
            let mut rest = bytes.as_slice();
            let mut got = Vec::new();
            for cut in cuts.iter().cycle() {
                if rest.is_empty() {
                    break;
                }
                let (piece, later) = rest.split_at((*cut).min(rest.len()));
                got.extend(decoder.push(piece).expect("sound").samples);
                rest = later;
            }
            prop_assert_eq!(got, samples);
            prop_assert_eq!(decoder.end(), Ok(None));
        }
    }
}
