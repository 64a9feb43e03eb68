//! Opus input (16 kHz, with loss concealment) and output (24 kHz, 20 ms frames), through libopus.
//!
//! One codec per stream and direction, created at the first audio because its state is large. Nothing blocks: coding a
//! 20 ms frame takes well under a millisecond.

use super::CodecError;
use antiphon_types::{SampleRate, Samples};
use opus::{Application, Bitrate, Channels, Decoder, Encoder, Signal};
use std::time::Duration;

/// Output rate of [`OpusIn`], the rate of turn time. libopus resamples internally without additional delay.
pub const OPUS_IN_RATE: SampleRate = SampleRate::HZ_16000;
/// Input rate of [`OpusOut`].
pub const OPUS_OUT_RATE: SampleRate = SampleRate::HZ_24000;
/// Frame length of [`OpusOut`]: 20 ms at [`OPUS_OUT_RATE`].
pub const OPUS_FRAME: Samples = Samples(480);

/// RFC 6716, section 2.1.1: 28-40 kbit/s is the sweet spot for full-band speech at 20 ms; 24-32 for the 12 kHz used
/// here.
const BITRATE_BPS: i32 = 32_000;
/// The encoder writes in-band FEC only if it is configured to expect loss.
const EXPECTED_LOSS_PERCENT: i32 = 5;
/// Complexity from 0 to 10. Measured on an EPYC with 69 s of LibriVox speech: at 5, encoding takes 6.2 ms of CPU per
/// second of speech without FEC and 8.3 ms with it (PESQ 4.33 and 4.29), at 10 8.2 and 10.4 ms (4.38 and 4.34), at 2
/// 4.6 and 6.6 ms (4.20 and 4.11); decoding takes 1.0 ms.
const COMPLEXITY: i32 = 5;
/// RFC 6716, section 3.4: a frame is at most 1275 bytes.
const MAX_PACKET: usize = 1275;
/// The longest packet: 120 ms at [`OPUS_IN_RATE`].
const MAX_DECODED: usize = 1920;
/// Assumed length of a packet lost before any packet arrived: 20 ms at [`OPUS_IN_RATE`].
const USUAL_PACKET: usize = 320;

/// How packets travel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delivery {
    /// All arrive, as over a WebSocket.
    Reliable,
    /// Some are lost, as over RTP: each holds a coarse copy of the one before (in-band FEC), which costs a third more
    /// time and leaves fewer bits for the sound.
    Lossy,
}

/// Decodes the packets of one microphone, 2.5 to 120 ms each, to mono PCM at [`OPUS_IN_RATE`]; libopus downmixes
/// stereo.
#[derive(Debug)]
pub struct OpusIn {
    decoder: Decoder,
    packet_samples: usize,
    pcm: Box<[i16; MAX_DECODED]>,
}

impl OpusIn {
    /// A decoder without history. Fails only if memory allocation fails.
    pub fn new() -> Result<Self, CodecError> {
        let decoder = Decoder::new(OPUS_IN_RATE.hz(), Channels::Mono).map_err(CodecError::Library)?;
        Ok(Self { decoder, packet_samples: USUAL_PACKET, pcm: Box::new([0; MAX_DECODED]) })
    }

    /// Appends the audio of `packet` to `out`. After an error the decoder continues with the next packet; the caller
    /// may conceal the missing audio.
    pub fn decode(&mut self, packet: &[u8], out: &mut Vec<i16>) -> Result<(), CodecError> {
        if packet.is_empty() {
            return Err(CodecError::EmptyPacket);
        }
        let n = self.decoder.decode(packet, &mut self.pcm[..], false).map_err(CodecError::Packet)?;
        self.packet_samples = n;
        out.extend_from_slice(&self.pcm[..n]);
        Ok(())
    }

    /// Conceals one lost packet: appends as much audio as the last packet held. `next_packet` is the packet after the
    /// lost one, if it has arrived. Its in-band FEC (a low-bitrate copy of the lost packet) is used if present;
    /// otherwise libopus extrapolates and fades out. `next_packet` must still be decoded afterwards.
    pub fn conceal(&mut self, next_packet: Option<&[u8]>, out: &mut Vec<i16>) -> Result<(), CodecError> {
        let pcm = &mut self.pcm[..self.packet_samples];
        let next = next_packet.filter(|packet| !packet.is_empty());
        let with_fec = next.and_then(|packet| self.decoder.decode(packet, pcm, true).ok());
        let n = match with_fec {
            Some(n) => n,
            // There is no next packet, or it is corrupt, which `decode` will report: extrapolate.
            None => self.decoder.decode(&[], pcm, false).map_err(CodecError::Library)?,
        };
        out.extend_from_slice(&self.pcm[..n]);
        Ok(())
    }
}

/// Length of a packet's audio in samples at `rate_hz`; `None`: it is not an Opus packet.
pub fn opus_packet_samples(packet: &[u8], rate_hz: u32) -> Option<u32> {
    let n = opus::packet::get_nb_samples(packet, rate_hz).ok()?;
    u32::try_from(n).ok().filter(|n| *n > 0)
}

/// Encodes response audio at [`OPUS_OUT_RATE`] to packets of 20 ms.
#[derive(Debug)]
pub struct OpusOut {
    encoder: Encoder,
    lookahead: usize,
    pending: Vec<i16>,
    packet: Box<[u8; MAX_PACKET]>,
}

impl OpusOut {
    /// An encoder without history. Fails only if memory allocation fails.
    pub fn new(delivery: Delivery) -> Result<Self, CodecError> {
        Self::open(delivery).map_err(CodecError::Library)
    }

    fn open(delivery: Delivery) -> Result<Self, opus::Error> {
        let mut encoder = Encoder::new(OPUS_OUT_RATE.hz(), Channels::Mono, Application::Voip)?;
        encoder.set_bitrate(Bitrate::Bits(BITRATE_BPS))?;
        encoder.set_signal(Signal::Voice)?;
        encoder.set_complexity(COMPLEXITY)?;
        if delivery == Delivery::Lossy {
            encoder.set_inband_fec(true)?;
            encoder.set_packet_loss_perc(EXPECTED_LOSS_PERCENT)?;
        }
        let lookahead = encoder.get_lookahead()?.max(0) as usize;
        let pending = Vec::with_capacity(OPUS_FRAME.0 as usize);
        Ok(Self { encoder, lookahead, pending, packet: Box::new([0; MAX_PACKET]) })
    }

    /// Delay between a sample's position in the packets and its decoded position: the encoder's look-ahead, 6.5 ms.
    pub fn delay(&self) -> Duration {
        Samples(self.lookahead as u64).duration(OPUS_OUT_RATE)
    }

    /// Accepts any number of samples and passes one packet to `sink` for each full 20 ms. A partial frame is kept for
    /// the next call.
    pub fn push(&mut self, samples: &[i16], sink: &mut impl FnMut(&[u8])) -> Result<(), CodecError> {
        let frame = OPUS_FRAME.0 as usize;
        let mut rest = samples;
        while !rest.is_empty() {
            let n = rest.len().min(frame - self.pending.len());
            self.pending.extend_from_slice(&rest[..n]);
            rest = &rest[n..];
            if self.pending.len() == frame {
                let len = self.encoder.encode(&self.pending, &mut self.packet[..]).map_err(CodecError::Library)?;
                self.pending.clear();
                sink(&self.packet[..len]);
            }
        }
        Ok(())
    }

    /// Ends an item: pads with silence until the last sample has left the look-ahead and the last frame is full. Emits
    /// at least one packet, also if no samples were pushed since the last flush.
    pub fn flush(&mut self, sink: &mut impl FnMut(&[u8])) -> Result<(), CodecError> {
        let frame = OPUS_FRAME.0 as usize;
        let to_send = (self.pending.len() + self.lookahead).next_multiple_of(frame);
        let silence = vec![0; to_send - self.pending.len()];
        self.push(&silence, sink)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::f64::consts::TAU;

    fn tone(hz: f64, n: usize) -> Vec<i16> {
        (0..n).map(|i| ((TAU * hz * i as f64 / 24_000.0).sin() * 10_000.0) as i16).collect()
    }

    fn encode(pcm: &[i16]) -> Vec<Vec<u8>> {
        encode_for(Delivery::Lossy, pcm)
    }

    fn encode_for(delivery: Delivery, pcm: &[i16]) -> Vec<Vec<u8>> {
        let mut out = OpusOut::new(delivery).unwrap();
        let mut packets = Vec::new();
        let mut sink = |packet: &[u8]| packets.push(packet.to_vec());
        out.push(pcm, &mut sink).unwrap();
        out.flush(&mut sink).unwrap();
        packets
    }

    fn rms(pcm: &[i16]) -> f64 {
        (pcm.iter().map(|&x| f64::from(x).powi(2)).sum::<f64>() / pcm.len() as f64).sqrt()
    }

    #[test]
    fn a_tone_survives_with_its_level() {
        let packets = encode(&tone(440.0, 24_000));
        let mut decoder = OpusIn::new().unwrap();
        let mut pcm = Vec::new();
        for packet in &packets {
            decoder.decode(packet, &mut pcm).unwrap();
        }
        assert_eq!(pcm.len(), packets.len() * 320);
        let level = rms(&pcm[3_200..12_800]);
        assert!((level / 7_071.0 - 1.0).abs() < 0.1, "rms {level}");
    }

    #[test]
    fn the_last_sample_leaves_the_encoder() {
        // Exactly 20 ms: without room for the look-ahead, one packet would hold only the first 13.5 ms.
        assert_eq!(encode(&tone(440.0, 480)).len(), 2);
        assert_eq!(encode(&[]).len(), 1);
    }

    #[test]
    fn a_lost_packet_comes_back_from_the_next_ones_fec() {
        let lost_level = |packets: &[Vec<u8>], next: Option<&[u8]>| {
            let mut decoder = OpusIn::new().unwrap();
            let mut pcm = Vec::new();
            for packet in &packets[..20] {
                decoder.decode(packet, &mut pcm).unwrap();
            }
            // Five packets are lost: extrapolation has faded out by the last one, but its FEC copy has not.
            for _ in 0..4 {
                decoder.conceal(None, &mut pcm).unwrap();
            }
            pcm.clear();
            decoder.conceal(next, &mut pcm).unwrap();
            assert_eq!(pcm.len(), 320);
            rms(&pcm)
        };
        let lossy = encode(&tone(440.0, 24_000));
        let with_fec = lost_level(&lossy, Some(&lossy[25]));
        let without = lost_level(&lossy, None);
        assert!(with_fec > 1_000.0 && with_fec > 5.0 * without, "with FEC {with_fec}, without {without}");
        // Where nothing is lost, no bit is spent on it.
        let reliable = encode_for(Delivery::Reliable, &tone(440.0, 24_000));
        assert_eq!(lost_level(&reliable, Some(&reliable[25])), lost_level(&reliable, None));
    }

    #[test]
    fn a_corrupt_packet_is_an_error_and_the_decoder_lives() {
        let packets = encode(&tone(440.0, 4_800));
        let mut decoder = OpusIn::new().unwrap();
        let mut pcm = Vec::new();
        assert!(matches!(decoder.decode(&[], &mut pcm), Err(CodecError::EmptyPacket)));
        // Code 3 with a frame count of zero: RFC 6716, section 3.4, requirement 5.
        assert!(matches!(decoder.decode(&[0x03, 0x00], &mut pcm), Err(CodecError::Packet(_))));
        assert!(pcm.is_empty());
        decoder.decode(&packets[0], &mut pcm).unwrap();
        assert_eq!(pcm.len(), 320);
    }

    #[test]
    fn stereo_and_long_packets_come_out_mono() {
        let mut stereo = Encoder::new(48_000, Channels::Stereo, Application::Audio).unwrap();
        let mut packet = [0; MAX_PACKET];
        let mut pcm = Vec::new();
        for (ms, expected) in [(5, 80), (20, 320), (60, 960)] {
            let n = stereo.encode(&vec![0; 48 * 2 * ms], &mut packet).unwrap();
            pcm.clear();
            OpusIn::new().unwrap().decode(&packet[..n], &mut pcm).unwrap();
            assert_eq!(pcm.len(), expected, "{ms} ms");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn no_bytes_make_it_panic(packets in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..80), 0..8)) {
            let mut decoder = OpusIn::new().unwrap();
            let mut pcm = Vec::new();
            for packet in &packets {
                let before = pcm.len();
                if decoder.decode(packet, &mut pcm).is_err() {
                    prop_assert_eq!(pcm.len(), before);
                }
                decoder.conceal(Some(packet), &mut pcm).unwrap();
            }
        }

        #[test]
        fn packets_do_not_depend_on_block_sizes(blocks in prop::collection::vec(1..1_500usize, 1..12)) {
            let pcm = tone(300.0, blocks.iter().sum());
            let mut out = OpusOut::new(Delivery::Lossy).unwrap();
            let mut packets = Vec::new();
            let mut at = 0;
            let mut sink = |packet: &[u8]| packets.push(packet.to_vec());
            for n in blocks {
                out.push(&pcm[at..at + n], &mut sink).unwrap();
                at += n;
            }
            out.flush(&mut sink).unwrap();
            prop_assert_eq!(packets, encode(&pcm));
        }
    }
}
