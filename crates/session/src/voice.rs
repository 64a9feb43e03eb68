//! The way out of a response's speech: the engine's PCM to the output format, in frames of the wire.
//!
//! [`super::speaking`] keeps one for each response that speaks. It resamples and encodes; when a frame may leave is decided by
//! [`super::client_side`] (at once in the GA protocol, by the pacer in the binary mode). It reads no clock.

use antiphon_audio::Resampler;
use antiphon_audio::codec::{self, CodecError, Delivery, OpusOut};
use antiphon_types::Format;
use antiphon_types::{Pcm, SampleRate, Samples};
use bytes::Bytes;

/// Audio of a GA delta at most: short enough that a cancel finds little in one message, long enough that base64 and
/// JSON cost little.
const MAX_DELTA_MS: u64 = 200;

/// A frame of the binary mode.
const FRAME_MS: u64 = 20;

/// Samples below this level are silence: -50 dBFS.
const AUDIBLE: u16 = 104;

/// How reply audio is packed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Packing {
    /// Base64 in JSON, any length.
    Delta,
    /// Binary frames of 20 ms PCM16.
    PcmFrames,
    /// Binary frames of one Opus packet each.
    OpusFrames(Delivery),
}

/// One piece ready for the wire.
pub(super) struct Packet {
    pub(super) payload: Bytes,
    /// Its first sample within the item, at the output rate.
    pub(super) offset: Samples,
    pub(super) n: Samples,
}

/// What came of a piece of speech.
pub(super) struct MadeAudio {
    /// Samples at the output rate.
    pub(super) n: Samples,
    /// Of these, the silence at the end.
    pub(super) quiet: Samples,
    /// The packets that are full.
    pub(super) packets: Vec<Packet>,
}

/// One response's speech on its way out.
pub(super) struct Voice {
    format: Format,
    packing: Packing,
    resampler: Option<(SampleRate, Resampler)>,
    opus: Option<OpusOut>,
    /// Samples at the output rate that do not fill a frame yet.
    pending: Vec<i16>,
    packed: Samples,
    /// For the echo guard: the reply at 16 kHz.
    reference: Option<(SampleRate, Resampler)>,
}

impl Voice {
    pub(super) fn new(format: Format, packing: Packing) -> Self {
        Self {
            format,
            packing,
            resampler: None,
            opus: None,
            pending: Vec::new(),
            packed: Samples::ZERO,
            reference: None,
        }
    }

    /// Takes PCM at any rate.
    pub(super) fn push(&mut self, pcm: &Pcm) -> Result<MadeAudio, CodecError> {
        let before = self.pending.len();
        let rate = self.format.rate();
        resampler(&mut self.resampler, pcm.rate, rate).process(&pcm.samples, &mut self.pending);
        self.made(before, false)
    }

    /// The rest, at the end of an item. What is pushed behind it is the next one's.
    pub(super) fn finish(&mut self) -> Result<MadeAudio, CodecError> {
        let before = self.pending.len();
        if let Some((_, resampler)) = &mut self.resampler {
            resampler.flush(&mut self.pending);
        }
        let made = self.made(before, true)?;
        self.packed = Samples::ZERO;
        Ok(made)
    }

    /// Packs what is pending, of which the samples behind `before` are new.
    fn made(&mut self, before: usize, all: bool) -> Result<MadeAudio, CodecError> {
        let new = &self.pending[before..];
        let n = Samples(new.len() as u64);
        let quiet = Samples(new.iter().rev().take_while(|sample| sample.unsigned_abs() < AUDIBLE).count() as u64);
        Ok(MadeAudio { n, quiet, packets: self.pack(all)? })
    }

    /// The same PCM at 16 kHz.
    pub(super) fn reference(&mut self, pcm: &Pcm) -> Pcm {
        let rate = SampleRate::HZ_16000;
        let mut samples = Vec::with_capacity(pcm.samples.len());
        resampler(&mut self.reference, pcm.rate, rate).process(&pcm.samples, &mut samples);
        Pcm { rate, samples }
    }

    fn pack(&mut self, all: bool) -> Result<Vec<Packet>, CodecError> {
        let rate = self.format.rate();
        let (size, partial) = match self.packing {
            Packing::Delta => (Samples::from_ms(MAX_DELTA_MS, rate), true),
            Packing::PcmFrames => (Samples::from_ms(FRAME_MS, rate), all),
            // The encoder fills the last frame up.
            Packing::OpusFrames(_) => (Samples::from_ms(FRAME_MS, rate), false),
        };
        let mut packets = Vec::new();
        let mut taken = 0;
        for frame in self.pending.chunks(size.0 as usize) {
            if frame.len() < size.0 as usize && !partial {
                break;
            }
            taken += frame.len();
            let offset = self.packed;
            let n = Samples(frame.len() as u64);
            self.packed += n;
            if let Packing::OpusFrames(delivery) = self.packing {
                let mut keep =
                    |bytes: &[u8]| packets.push(Packet { payload: Bytes::copy_from_slice(bytes), offset, n });
                encoder(&mut self.opus, delivery)?.push(frame, &mut keep)?;
                continue;
            }
            let mut bytes = Vec::with_capacity(frame.len() * self.format.bytes_per_sample());
            codec::encode(self.format, frame, &mut bytes);
            packets.push(Packet { payload: Bytes::from(bytes), offset, n });
        }
        self.pending.drain(..taken);
        if all && let Packing::OpusFrames(delivery) = self.packing {
            self.end_opus(delivery, size, &mut packets)?;
        }
        Ok(packets)
    }

    /// Ends the item's Opus packets, once: the last frame is padded with silence, and what the encoder still holds may take a
    /// packet more, with the offset of the last frame.
    fn end_opus(&mut self, delivery: Delivery, size: Samples, packets: &mut Vec<Packet>) -> Result<(), CodecError> {
        let rest = std::mem::take(&mut self.pending);
        if rest.is_empty() && self.opus.is_none() {
            return Ok(());
        }
        let offset = if rest.is_empty() { self.packed.saturating_sub(size) } else { self.packed };
        // Of two packets, the first counts the samples.
        let mut left = Samples(rest.len() as u64);
        let mut keep = |bytes: &[u8]| {
            packets.push(Packet { payload: Bytes::copy_from_slice(bytes), offset, n: std::mem::take(&mut left) });
        };
        let opus = encoder(&mut self.opus, delivery)?;
        opus.push(&rest, &mut keep)?;
        opus.flush(&mut keep)?;
        self.opus = None;
        Ok(())
    }
}

/// The encoder of the item under way, made with its first frame.
fn encoder(slot: &mut Option<OpusOut>, delivery: Delivery) -> Result<&mut OpusOut, CodecError> {
    if slot.is_none() {
        *slot = Some(OpusOut::new(delivery)?);
    }
    Ok(slot.as_mut().expect("set just now"))
}

/// The resampler for `from`, replaced when an engine changes its rate.
fn resampler(slot: &mut Option<(SampleRate, Resampler)>, from: SampleRate, to: SampleRate) -> &mut Resampler {
    if slot.as_ref().is_none_or(|(rate, _)| *rate != from) {
        *slot = Some((from, Resampler::new(from, to)));
    }
    &mut slot.as_mut().expect("set just now").1
}

#[cfg(test)]
mod tests {
    use super::*;
    use antiphon_audio::codec::{OPUS_IN_RATE, OpusIn};

    const RATE: SampleRate = SampleRate::HZ_24000;

    fn sound(n: u64) -> Pcm {
        let sample = |i: u64| ((i as f32 * 0.1).sin() * 10_000.0) as i16;
        Pcm { rate: RATE, samples: (0..n).map(sample).collect() }
    }

    #[test]
    fn an_opus_item_leaves_the_encoder_to_its_last_sample_whatever_its_length() {
        let mut voice = Voice::new(Format::Pcm16, Packing::OpusFrames(Delivery::Reliable));
        // The encoder holds 156 samples: from 325 samples in the last frame on they take a packet more.
        for (n, n_packets) in [(480, 2), (481, 2), (804, 2), (805, 3), (960, 3), (100, 1)] {
            let mut packets = voice.push(&sound(n)).unwrap().packets;
            packets.extend(voice.finish().unwrap().packets);
            assert_eq!(packets.len(), n_packets, "{n} samples");
            let counted: u64 = packets.iter().map(|packet| packet.n.0).sum();
            assert_eq!(counted, n, "each sample is counted once");
            let last = n.div_ceil(480) - 1;
            let offsets: Vec<u64> = packets.iter().map(|packet| packet.offset.0 / 480).collect();
            let expect: Vec<u64> = (0..n_packets as u64).map(|at| at.min(last)).collect();
            assert_eq!(offsets, expect, "{n} samples");
            let mut heard = Vec::new();
            let mut decoder = OpusIn::new().unwrap();
            packets.iter().for_each(|packet| decoder.decode(&packet.payload, &mut heard).unwrap());
            let held = Samples(n + 156).duration(RATE);
            assert!(Samples(heard.len() as u64).duration(OPUS_IN_RATE) >= held, "{n} samples");
            assert!(voice.finish().unwrap().packets.is_empty(), "an item ends once");
        }
    }
}
