//! Bytes of a response body to samples.

use crate::tts::streamed::Decode;
use antiphon_types::{Pcm, SampleRate};

/// Turns 16-bit little-endian mono bytes, cut anywhere, into samples.
pub(super) struct PcmDecoder {
    rate: SampleRate,
    half: Option<u8>,
    begun: bool,
}

impl PcmDecoder {
    /// A decoder for a body of this content type: 24 kHz, which is what `response_format: "pcm"` means, unless the
    /// type names a `rate`. Types that are certainly no PCM are refused.
    pub(super) fn for_content_type(kind: &str) -> Result<Self, String> {
        let mut parts = kind.split(';').map(str::trim);
        let essence = parts.next().unwrap_or_default().to_ascii_lowercase();
        let raw = matches!(essence.as_str(), "" | "application/octet-stream" | "binary/octet-stream")
            || (essence.starts_with("audio/")
                && ["pcm", "l16", "raw", "x-raw"].iter().any(|raw| essence.ends_with(raw)));
        if !raw {
            return Err(not_pcm(&essence));
        }
        let rate = parts.find_map(|part| part.strip_prefix("rate=")).and_then(|hz| hz.parse().ok());
        let rate = rate.filter(|hz| (8_000..=192_000).contains(hz)).map_or(SampleRate::HZ_24000, SampleRate::new);
        Ok(Self { rate, half: None, begun: false })
    }
}

impl Decode for PcmDecoder {
    fn push(&mut self, bytes: &[u8]) -> Result<Pcm, String> {
        if !self.begun && bytes.starts_with(b"RIFF") {
            return Err(not_pcm("a WAV file"));
        }
        self.begun |= !bytes.is_empty();
        let mut samples = Vec::with_capacity(bytes.len() / 2 + 1);
        let mut bytes = bytes;
        if let (Some(low), Some((&high, rest))) = (self.half, bytes.split_first()) {
            samples.push(i16::from_le_bytes([low, high]));
            self.half = None;
            bytes = rest;
        }
        let (pairs, rest) = bytes.as_chunks::<2>();
        samples.extend(pairs.iter().map(|pair| i16::from_le_bytes(*pair)));
        if let [low] = rest {
            self.half = Some(*low);
        }
        Ok(Pcm { rate: self.rate, samples })
    }

    fn end(&self) -> Result<Option<&'static str>, String> {
        let odd = "the speech server sent an odd number of bytes; the last one is dropped";
        Ok(self.half.is_some().then_some(odd))
    }
}

/// The message for a server that ignores `response_format`.
fn not_pcm(what: &str) -> String {
    format!("the server sent {what} where raw 16-bit PCM was asked for (response_format \"pcm\")")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn content_types_tell_the_rate_and_what_is_no_pcm() {
        let rate = |kind: &str| PcmDecoder::for_content_type(kind).map(|decoder| decoder.rate.hz()).ok();
        assert_eq!(rate("audio/pcm"), Some(24_000));
        assert_eq!(rate(""), Some(24_000));
        assert_eq!(rate("application/octet-stream"), Some(24_000));
        assert_eq!(rate("audio/L16; rate=16000; channels=1"), Some(16_000));
        assert_eq!(rate("audio/pcm;rate=0"), Some(24_000));
        assert_eq!(rate("audio/mpeg"), None);
        assert_eq!(rate("application/json"), None);
    }

    proptest! {
        #[test]
        fn the_pieces_do_not_matter(samples: Vec<i16>, cuts in prop::collection::vec(1usize..7, 1..20)) {
            let bytes: Vec<u8> = samples.iter().flat_map(|sample| sample.to_le_bytes()).collect();
            let mut decoder = PcmDecoder::for_content_type("audio/pcm").unwrap();
            let (mut rest, mut got) = (bytes.as_slice(), Vec::new());
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
