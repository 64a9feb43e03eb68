//! Conversion between wire bytes and mono PCM.
//!
//! [`Format`] covers the stateless formats that the GA protocol carries in base64: raw PCM and G.711. Opus is stateful:
//! see [`OpusIn`] and [`OpusOut`], and so is G.722: [`G722In`], [`G722Out`]. Malformed bytes are an error, never a panic. No call blocks.

pub(super) mod g711;
mod g722;
mod opus;

pub use g722::{G722_RATE, G722In, G722Out};
pub use opus::{Delivery, OPUS_FRAME, OPUS_IN_RATE, OPUS_OUT_RATE, OpusIn, OpusOut, opus_packet_samples};

use antiphon_types::Format;
use thiserror::Error;

/// Why bytes cannot be decoded or samples cannot be encoded.
#[derive(Debug, Error)]
pub enum CodecError {
    /// The PCM16 data ends inside a sample.
    #[error("PCM16 audio must have an even number of bytes, got {0}")]
    OddLength(usize),
    /// The Opus packet is empty. A lost packet is concealed with [`OpusIn::conceal`], not sent.
    #[error("an Opus packet must not be empty")]
    EmptyPacket,
    /// libopus rejected the packet. The decoder continues with the next packet.
    #[error("the Opus packet is corrupt or longer than 120 ms: {0}")]
    Packet(#[source] ::opus::Error),
    /// libopus could not create a codec or encode.
    #[error("libopus failed: {0}")]
    Library(#[source] ::opus::Error),
}

/// Appends the samples of `bytes` to `out`, at `format.rate()`. On an error `out` is unchanged.
pub fn decode(format: Format, bytes: &[u8], out: &mut Vec<i16>) -> Result<(), CodecError> {
    match format {
        Format::Pcm16 => {
            let (pairs, rest) = bytes.as_chunks::<2>();
            if !rest.is_empty() {
                return Err(CodecError::OddLength(bytes.len()));
            }
            out.extend(pairs.iter().map(|pair| i16::from_le_bytes(*pair)));
        }
        Format::Ulaw => out.extend(bytes.iter().map(|&code| g711::ulaw_to_linear(code))),
        Format::Alaw => out.extend(bytes.iter().map(|&code| g711::alaw_to_linear(code))),
    }
    Ok(())
}

/// Appends the bytes of `samples`, which are at `format.rate()`, to `out`.
pub fn encode(format: Format, samples: &[i16], out: &mut Vec<u8>) {
    match format {
        Format::Pcm16 => out.extend(samples.iter().flat_map(|sample| sample.to_le_bytes())),
        Format::Ulaw => out.extend(samples.iter().map(|&sample| g711::linear_to_ulaw(sample))),
        Format::Alaw => out.extend(samples.iter().map(|&sample| g711::linear_to_alaw(sample))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn there_and_back(format: Format, samples: &[i16]) -> Vec<i16> {
        let mut bytes = Vec::new();
        let mut back = Vec::new();
        encode(format, samples, &mut bytes);
        assert_eq!(bytes.len(), samples.len() * format.bytes_per_sample());
        decode(format, &bytes, &mut back).unwrap();
        back
    }

    #[test]
    fn half_a_sample_is_refused_and_leaves_the_output_alone() {
        let mut out = vec![7];
        let error = decode(Format::Pcm16, &[1, 2, 3], &mut out).unwrap_err();
        assert_eq!(error.to_string(), "PCM16 audio must have an even number of bytes, got 3");
        assert_eq!(out, [7]);
    }

    #[test]
    fn pcm_is_little_endian() {
        let mut bytes = Vec::new();
        encode(Format::Pcm16, &[0x0102, -2], &mut bytes);
        assert_eq!(bytes, [0x02, 0x01, 0xfe, 0xff]);
    }

    proptest! {
        #[test]
        fn pcm_survives_exactly(samples: Vec<i16>) {
            prop_assert_eq!(there_and_back(Format::Pcm16, &samples), samples);
        }

        // A segment of G.711 has 16 steps. Half a step of the widest u-law segment is 512, or 1/32 relative to the
        // sample.
        #[test]
        fn g711_stays_within_half_a_step(sample: i16) {
            for format in [Format::Ulaw, Format::Alaw] {
                let back = there_and_back(format, &[sample])[0];
                let wrong = (i32::from(back) - i32::from(sample)).abs();
                let clipped = if format == Format::Ulaw { 644 } else { 512 };
                prop_assert!(wrong <= (i32::from(sample).abs() / 30 + 16).min(clipped), "{sample} came back as {back}");
            }
        }

        #[test]
        fn any_bytes_of_g711_are_audio(bytes: Vec<u8>) {
            for format in [Format::Ulaw, Format::Alaw] {
                let mut out = Vec::new();
                decode(format, &bytes, &mut out).unwrap();
                prop_assert_eq!(out.len(), bytes.len());
            }
        }
    }
}
