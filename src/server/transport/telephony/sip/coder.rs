//! The codec of one call, both directions, between RTP payloads and PCM.
//!
//! [`super::receiver`] decodes and conceals, [`super::media`] encodes. Nothing blocks.

use crate::server::transport::telephony::leg::Coding;
use antiphon_audio::Concealer;
use antiphon_audio::codec::{
    self, CodecError, Delivery, G722_RATE, G722In, G722Out, OPUS_IN_RATE, OPUS_OUT_RATE, OpusIn, OpusOut,
};
use antiphon_sip::sdp::Codec;
use antiphon_types::{Format, SampleRate, Samples};
use bytes::Bytes;

/// 20 ms of silence of Opus, mono full-band CELT.
const OPUS_SILENCE: &[u8] = &[0xf8, 0xff, 0xfe];

/// From payloads to samples.
pub(super) enum Decoder {
    G711 { format: Format, concealer: Concealer },
    G722 { decoder: Box<G722In>, concealer: Concealer },
    Opus(OpusIn),
}

/// From samples to payloads of 20 ms.
pub(super) enum Encoder {
    G711(Format),
    G722(Box<G722Out>),
    Opus {
        encoder: OpusOut,
        /// Whether its look-ahead holds the end of a sound.
        holds_sound: bool,
    },
}

/// The rates of samples of a codec: of those that come, and of those that go.
pub(super) fn codings(codec: Codec) -> (Coding, Coding) {
    let of = |rate| Coding { format: Format::Pcm16, rate };
    match codec {
        Codec::Pcmu | Codec::Pcma => (of(SampleRate::HZ_8000), of(SampleRate::HZ_8000)),
        Codec::G722 => (of(G722_RATE), of(G722_RATE)),
        Codec::Opus => (of(OPUS_IN_RATE), of(OPUS_OUT_RATE)),
    }
}

fn format_of(codec: Codec) -> Format {
    if codec == Codec::Pcma { Format::Alaw } else { Format::Ulaw }
}

impl Decoder {
    /// # Errors
    /// libopus has no memory.
    pub(super) fn new(codec: Codec) -> Result<Self, CodecError> {
        let concealer = Concealer::new(codings(codec).0.rate);
        Ok(match codec {
            Codec::Pcmu | Codec::Pcma => Self::G711 { format: format_of(codec), concealer },
            Codec::G722 => Self::G722 { decoder: Box::default(), concealer },
            Codec::Opus => Self::Opus(OpusIn::new()?),
        })
    }

    /// The rate of its samples.
    pub(super) fn rate(&self) -> SampleRate {
        match self {
            Self::G711 { .. } => SampleRate::HZ_8000,
            Self::G722 { .. } => G722_RATE,
            Self::Opus(_) => OPUS_IN_RATE,
        }
    }

    /// The samples of a payload; none: it is damaged.
    pub(super) fn decode(&mut self, payload: &[u8]) -> Vec<i16> {
        let mut samples = Vec::new();
        match self {
            Self::G711 { format, concealer } => {
                let _ = codec::decode(*format, payload, &mut samples);
                concealer.heard(&mut samples);
            }
            Self::G722 { decoder, concealer } => {
                decoder.decode(payload, &mut samples);
                concealer.heard(&mut samples);
            }
            Self::Opus(decoder) => {
                let _ = decoder.decode(payload, &mut samples);
            }
        }
        samples
    }

    /// Samples in the place of lost ones, about `n`. `next`: the payload right after them.
    pub(super) fn conceal(&mut self, n: Samples, next: Option<&[u8]>) -> Vec<i16> {
        let mut samples = Vec::new();
        match self {
            Self::G711 { concealer, .. } | Self::G722 { concealer, .. } => concealer.conceal(n, &mut samples),
            Self::Opus(decoder) => {
                let _ = decoder.conceal(next, &mut samples);
            }
        }
        samples
    }
}

impl Encoder {
    /// # Errors
    /// libopus has no memory.
    pub(super) fn new(codec: Codec) -> Result<Self, CodecError> {
        Ok(match codec {
            Codec::Pcmu | Codec::Pcma => Self::G711(format_of(codec)),
            Codec::G722 => Self::G722(Box::default()),
            Codec::Opus => Self::Opus { encoder: OpusOut::new(Delivery::Lossy)?, holds_sound: false },
        })
    }

    /// The payload of 20 ms.
    pub(super) fn encode(&mut self, samples: &[i16]) -> Bytes {
        let mut payload = Vec::with_capacity(samples.len());
        match self {
            Self::G711(format) => codec::encode(*format, samples, &mut payload),
            Self::G722(encoder) => encoder.encode(samples, &mut payload),
            Self::Opus { encoder, holds_sound } => {
                *holds_sound = true;
                // One frame gives one packet.
                let _ = encoder.push(samples, &mut |packet| payload.extend_from_slice(packet));
            }
        }
        payload.into()
    }

    /// The payload of 20 ms of silence. By Opus, whose encoder looks ahead, the first one after a sound holds its last
    /// 6.5 ms.
    pub(super) fn silence(&mut self) -> Bytes {
        match self {
            Self::G711(_) => self.encode(&[0; 160]),
            Self::G722(_) => self.encode(&[0; 320]),
            Self::Opus { encoder, holds_sound } => {
                let mut payload = Vec::new();
                if std::mem::take(holds_sound) {
                    let _ = encoder.flush(&mut |packet| payload.extend_from_slice(packet));
                }
                if payload.is_empty() { Bytes::from_static(OPUS_SILENCE) } else { payload.into() }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn silence_ends_a_sound_and_the_next_sound_holds_nothing_of_it() {
        for codec in Codec::ALL {
            let mut encoder = Encoder::new(codec).unwrap();
            let mut decoder = Decoder::new(codec).unwrap();
            let hz = codings(codec).1.rate.hz() as usize;
            let tone = |i: usize| (10_000.0 * (std::f32::consts::TAU * 440.0 * i as f32 / hz as f32).sin()) as i16;
            let samples: Vec<i16> = (0..hz / 5).map(tone).collect();
            let mut payloads: Vec<Bytes> = samples.chunks(hz / 50).map(|frame| encoder.encode(frame)).collect();
            payloads.extend((0..5).map(|_| encoder.silence()));
            payloads.push(encoder.encode(&vec![0; hz / 50]));
            let heard: Vec<i16> = payloads.iter().flat_map(|payload| decoder.decode(payload)).collect();
            let per_ms = decoder.rate().hz() as usize / 1_000;
            let loudest = |ms: std::ops::Range<usize>| {
                let range = ms.start * per_ms..(ms.end * per_ms).min(heard.len());
                heard[range].iter().map(|sample| sample.unsigned_abs()).max().unwrap_or_default()
            };
            assert_eq!(heard.len(), 16 * 20 * per_ms, "{codec:?}");
            assert!(loudest(190..200) > 8_000, "{codec:?}");
            if codec == Codec::Opus {
                assert!(loudest(202..206) > 8_000, "the end of the sound: {}", loudest(202..206));
            }
            // Opus fades out while it changes its mode.
            let rest = [loudest(230..300), loudest(300..320)];
            assert!(rest.iter().all(|level| *level < 1_000), "{codec:?}: {rest:?}");
        }
    }
}
