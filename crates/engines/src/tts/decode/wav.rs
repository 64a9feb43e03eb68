//! A WAV file that comes in pieces, as samples: its header first, then sound until the body ends.

use super::{CHANNELS, Decode, DecodeError, RATES, no_sound, pcm, unusable};
use antiphon_types::{Pcm, SampleRate};

/// How a WAV file begins.
pub(super) const MAGIC: &[u8; 4] = b"RIFF";

/// The longest header. Servers write 44 bytes; a list of names may precede the sound.
const MAX_HEADER: usize = 64 * 1024;

/// See the module. 16-bit PCM, mono or mixed to mono.
pub(super) struct WavDecoder {
    state: ParseState,
    /// Bytes that are not read yet: the header as far as it has come, later a part of a frame.
    held: Vec<u8>,
}

enum ParseState {
    Header,
    Sound {
        rate: SampleRate,
        channels: usize,
        /// Bytes of sound to come; `None` until the body ends.
        left: Option<u64>,
    },
}

/// What the header says.
#[derive(Debug, PartialEq)]
struct Header {
    rate: u32,
    channels: u16,
    /// Where the sound begins.
    begins: usize,
    /// How long it says it is.
    bytes: u32,
}

impl WavDecoder {
    /// A decoder for one file.
    pub(super) fn new() -> Self {
        Self { state: ParseState::Header, held: Vec::new() }
    }
}

impl Decode for WavDecoder {
    fn push(&mut self, bytes: &[u8]) -> Result<Pcm, DecodeError> {
        self.held.extend_from_slice(bytes);
        if matches!(self.state, ParseState::Header) {
            match header(&self.held)? {
                Some(header) => {
                    self.held.drain(..header.begins);
                    self.state = ParseState::begun(&header)?;
                }
                None if self.held.len() > MAX_HEADER => return Err(no_sound("a WAV file without sound")),
                None => return Ok(Pcm { rate: SampleRate::HZ_24000, samples: Vec::new() }),
            }
        }
        let ParseState::Sound { rate, channels, left } = &mut self.state else {
            return Err(no_sound("nothing"));
        };
        if let Some(left) = left {
            // What follows the sound, a list of names, is no sound.
            self.held.truncate(usize::try_from(*left).unwrap_or(usize::MAX));
        }
        let frame = 2 * *channels;
        let whole = self.held.len() / frame * frame;
        if let Some(left) = left {
            *left -= whole as u64;
        }
        let (samples, _) = pcm::mix(&self.held[..whole], *channels);
        self.held.drain(..whole);
        Ok(Pcm { rate: *rate, samples })
    }

    fn end(&self) -> Result<Option<&'static str>, DecodeError> {
        match &self.state {
            ParseState::Header => Err(unusable("the speech server's WAV file ended before its sound began")),
            ParseState::Sound { left: Some(left), .. } if *left > self.held.len() as u64 => {
                Ok(Some("the speech server's WAV file is shorter than its header says"))
            }
            ParseState::Sound { .. } if !self.held.is_empty() => {
                Ok(Some("the speech server's WAV file ends within a sample"))
            }
            ParseState::Sound { .. } => Ok(None),
        }
    }
}

impl ParseState {
    fn begun(header: &Header) -> Result<Self, DecodeError> {
        if !RATES.contains(&header.rate) || !CHANNELS.contains(&header.channels) {
            return Err(no_sound(&format!("a WAV file of {} Hz and {} channels", header.rate, header.channels)));
        }
        // A file that is still being made has no length: 0, the greatest number, or one close to it.
        let known = header.bytes > 0 && header.bytes < u32::MAX - 1_000_000;
        let left = known.then_some(u64::from(header.bytes));
        Ok(Self::Sound { rate: SampleRate::new(header.rate), channels: usize::from(header.channels), left })
    }
}

/// The header, where all of it is there.
fn header(bytes: &[u8]) -> Result<Option<Header>, DecodeError> {
    let riff = &bytes[..bytes.len().min(4)];
    let wave = bytes.get(8..bytes.len().min(12)).unwrap_or_default();
    if !MAGIC.starts_with(riff) || !b"WAVE".starts_with(wave) {
        return Err(no_sound("something else"));
    }
    let u16_at = |at: usize| bytes.get(at..at + 2).map(|pair| u16::from_le_bytes([pair[0], pair[1]]));
    let u32_at = |at: usize| bytes.get(at..at + 4).map(|four| u32::from_le_bytes([four[0], four[1], four[2], four[3]]));
    let mut at = 12;
    let mut format = None;
    loop {
        let (Some(name), Some(size)) = (bytes.get(at..at + 4), u32_at(at + 4)) else {
            return Ok(None);
        };
        let body = at + 8;
        match (name, format) {
            (b"data", Some((channels, rate))) => return Ok(Some(Header { rate, channels, begins: body, bytes: size })),
            (b"data", None) => return Err(no_sound("a WAV file without a format")),
            (b"fmt ", _) => {
                let fields = (u16_at(body), u16_at(body + 2), u32_at(body + 4), u16_at(body + 14));
                let (Some(kind), Some(channels), Some(rate), Some(bits)) = fields else {
                    return Ok(None);
                };
                // 1 is PCM; 0xFFFE is the same with more said about it.
                if !matches!(kind, 1 | 0xfffe) || bits != 16 {
                    return Err(no_sound(&format!("a WAV file of kind {kind} with {bits} bits")));
                }
                format = Some((channels, rate));
            }
            _ => {}
        }
        // Chunks begin at even places.
        at = body.saturating_add(size as usize).saturating_add(size as usize % 2);
        if at > MAX_HEADER {
            return Err(no_sound("a WAV file without sound"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use antiphon_audio::wav;
    use antiphon_types::Samples;
    use proptest::prelude::*;

    fn decode(body: &[u8], piece: usize) -> Result<(Vec<i16>, u32, Option<&'static str>), DecodeError> {
        let mut decoder = WavDecoder::new();
        let mut samples = Vec::new();
        let mut rate = 0;
        for piece in body.chunks(piece) {
            let pcm = decoder.push(piece)?;
            if !pcm.is_empty() {
                rate = pcm.rate.hz();
                samples.extend(pcm.samples);
            }
        }
        Ok((samples, rate, decoder.end()?))
    }

    fn body(rate: u32, length: Option<u64>, samples: &[i16]) -> Vec<u8> {
        let mut body = wav::header(SampleRate::new(rate), length.map(Samples)).to_vec();
        body.extend(samples.iter().flat_map(|sample| sample.to_le_bytes()));
        body
    }

    #[test]
    fn a_stream_is_read_to_its_end_whatever_length_it_claims() {
        for length in [None, Some(0), Some(3)] {
            assert_eq!(decode(&body(44_100, length, &[1, -2, 3]), 5), Ok((vec![1, -2, 3], 44_100, None)));
        }
    }

    #[test]
    fn what_is_behind_the_sound_or_missing_is_noticed() {
        let mut with_list = body(44_100, Some(2), &[1, -2]);
        with_list.extend(b"LIST\x04\0\0\0abcd");
        assert_eq!(decode(&with_list, 7), Ok((vec![1, -2], 44_100, None)));
        let (samples, _, odd) = decode(&body(44_100, Some(9), &[1]), 7).expect("sound");
        assert_eq!((samples, odd), (vec![1], Some("the speech server's WAV file is shorter than its header says")));
        let mut half = body(44_100, None, &[1]);
        half.push(7);
        assert!(decode(&half, 7).expect("sound").2.expect("odd").contains("within a sample"));
    }

    #[test]
    fn stereo_is_mixed_and_other_chunks_are_passed_over() {
        let mut stereo = body(8_000, None, &[100, 300, -7, -9]);
        stereo[22] = 2;
        assert_eq!(decode(&stereo, 3), Ok((vec![200, -8], 8_000, None)));
        let plain = body(8_000, None, &[5]);
        let listed = [&plain[..12], b"LIST\x03\0\0\0abc\0", &plain[12..]].concat();
        assert_eq!(decode(&listed, 1), Ok((vec![5], 8_000, None)));
    }

    #[test]
    fn what_is_no_wav_file_is_refused() {
        let decode = |body: &[u8], piece| decode(body, piece).map_err(|error| error.to_string());
        assert!(decode(b"ID3\x04something", 4).expect_err("refused").contains("something else"));
        assert!(decode(b"RIFF\0\0\0\0AVI LIST", 20).expect_err("refused").contains("something else"));
        assert!(decode(&body(44_100, None, &[])[..40], 9).expect_err("refused").contains("before its sound began"));
        let mut floats = body(44_100, None, &[1]);
        floats[20] = 3;
        assert!(decode(&floats, 9).expect_err("refused").contains("kind 3"));
        let mut silent = body(44_100, None, &[1]);
        silent[24..28].fill(0);
        assert!(decode(&silent, 9).expect_err("refused").contains("0 Hz"));
        let endless = [&body(44_100, None, &[])[..12], b"LIST\xff\xff\xff\x7f"].concat();
        assert!(decode(&endless, 9).expect_err("refused").contains("without sound"));
    }

    proptest! {
        #[test]
        fn any_bytes_end_in_sound_or_an_error(bytes: Vec<u8>, begin in 0usize..45, piece in 1usize..50) {
            let whole = body(44_100, None, &[]);
            let bytes = [&whole[..begin.min(whole.len())], &bytes].concat();
            let _ = decode(&bytes, piece);
        }

        #[test]
        fn the_pieces_do_not_matter(samples: Vec<i16>, piece in 1usize..60) {
            let made = decode(&body(24_000, None, &samples), piece).expect("sound");
            prop_assert_eq!((made.0, made.2), (samples, None));
        }
    }
}
