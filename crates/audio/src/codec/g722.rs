//! G.722 at 64 kbit/s: 16 kHz of sound in a byte for two samples. One codec for each stream and direction.
//!
//! A packet may hold any number of bytes. Nothing blocks.

use antiphon_types::SampleRate;
use audio_codec::{Decoder, Encoder};

/// The rate of samples on both sides. RTP's clock of it is 8 kHz by an old mistake (RFC 3551, section 4.5.2).
pub const G722_RATE: SampleRate = SampleRate::HZ_16000;

/// Decodes one stream.
pub struct G722In(audio_codec::g722::G722Decoder);

/// Encodes one stream.
pub struct G722Out(audio_codec::g722::G722Encoder);

impl Default for G722In {
    fn default() -> Self {
        Self(audio_codec::g722::G722Decoder::new())
    }
}

impl Default for G722Out {
    fn default() -> Self {
        Self(audio_codec::g722::G722Encoder::new())
    }
}

impl G722In {
    /// Appends the samples of a packet, at [`G722_RATE`].
    pub fn decode(&mut self, packet: &[u8], out: &mut Vec<i16>) {
        out.extend(self.0.decode(packet));
    }
}

impl G722Out {
    /// Appends the bytes of samples at [`G722_RATE`], of which there is an even number.
    pub fn encode(&mut self, samples: &[i16], out: &mut Vec<u8>) {
        out.extend(self.0.encode(samples));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tone_above_the_telephone_band_comes_back() {
        let tone: Vec<i16> = (0..3_200)
            .map(|n| (8_000.0 * (std::f64::consts::TAU * 5_000.0 * f64::from(n) / 16_000.0).sin()) as i16)
            .collect();
        let mut encoder = G722Out::default();
        let mut decoder = G722In::default();
        let mut back = Vec::new();
        for frame in tone.chunks(320) {
            let mut bytes = Vec::new();
            encoder.encode(frame, &mut bytes);
            assert_eq!(bytes.len(), 160, "20 ms at 64 kbit/s");
            decoder.decode(&bytes, &mut back);
        }
        assert_eq!(back.len(), tone.len());
        // The filters on both sides hold back 22 samples.
        let best = (0..40)
            .map(|delay| signal_to_noise(&tone[800..3_000], &back[800 + delay..3_000 + delay]))
            .fold(0.0, f64::max);
        assert!(best > 15.0, "{best} dB");
    }

    fn signal_to_noise(a: &[i16], b: &[i16]) -> f64 {
        let signal: f64 = a.iter().map(|a| f64::from(*a).powi(2)).sum();
        let noise: f64 = a.iter().zip(b).map(|(a, b)| (f64::from(*a) - f64::from(*b)).powi(2)).sum();
        10.0 * (signal / noise.max(1.0)).log10()
    }
}
