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
        self.opus = None;
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
            Packing::PcmFrames | Packing::OpusFrames(_) => (Samples::from_ms(FRAME_MS, rate), all),
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
                // Of what takes a packet more, the samples are counted once.
                let mut left = n;
                let keep = |payload| packets.push(Packet { payload, offset, n: std::mem::take(&mut left) });
                encode_opus(&mut self.opus, delivery, frame, size, keep)?;
                continue;
            }
            let mut bytes = Vec::with_capacity(frame.len() * self.format.bytes_per_sample());
            codec::encode(self.format, frame, &mut bytes);
            packets.push(Packet { payload: Bytes::from(bytes), offset, n });
        }
        self.pending.drain(..taken);
        Ok(packets)
    }
}

/// One packet for one frame; the last frame of a response is padded with silence, and what the encoder still holds of it
/// may take a packet more.
fn encode_opus(
    opus: &mut Option<OpusOut>,
    delivery: Delivery,
    frame: &[i16],
    size: Samples,
    mut keep: impl FnMut(Bytes),
) -> Result<(), CodecError> {
    let opus = match opus {
        Some(opus) => opus,
        None => opus.insert(OpusOut::new(delivery)?),
    };
    let mut sink = |bytes: &[u8]| keep(Bytes::copy_from_slice(bytes));
    opus.push(frame, &mut sink)?;
    if frame.len() < size.0 as usize {
        opus.flush(&mut sink)?;
    }
    Ok(())
}

/// The resampler for `from`, replaced when an engine changes its rate.
fn resampler(slot: &mut Option<(SampleRate, Resampler)>, from: SampleRate, to: SampleRate) -> &mut Resampler {
    if slot.as_ref().is_none_or(|(rate, _)| *rate != from) {
        *slot = Some((from, Resampler::new(from, to)));
    }
    &mut slot.as_mut().expect("set just now").1
}
