//! Opus in Ogg (RFC 7845). Files suffer no packet loss, so no forward error correction is written.

use super::RATE;
use ogg::{PacketWriteEndInfo, PacketWriter};
use opus::{Application, Bitrate, Channels, Encoder, Signal};
use std::fmt::Display;

/// Samples per packet: 20 ms.
const FRAME: usize = RATE.hz() as usize / 50;
/// Packets per page: 100 ms. Fewer add header overhead, more add latency.
const PACKETS_PER_PAGE: u32 = 5;
/// Ticks per sample: granule positions are counted at 48 kHz at any rate (RFC 7845, section 4).
const TICKS: u64 = 48_000 / RATE.hz() as u64;
/// RFC 6716, section 3.4: a frame is at most 1275 bytes.
const MAX_PACKET: usize = 1_275;
const BITRATE_BPS: i32 = 48_000;

/// One Ogg Opus stream.
pub(super) struct OggOpus {
    encoder: Encoder,
    writer: PacketWriter<'static, Vec<u8>>,
    serial: u32,
    lookahead: usize,
    pending: Vec<i16>,
    /// The last packet and its end in ticks, held back because the final packet must be marked.
    held: Option<(Vec<u8>, u64)>,
    n_packets: u32,
    n_samples: u64,
    n_encoded: u64,
}

impl OggOpus {
    pub(super) fn new() -> Result<Self, String> {
        let mut encoder = Encoder::new(RATE.hz(), Channels::Mono, Application::Audio).map_err(said)?;
        encoder.set_bitrate(Bitrate::Bits(BITRATE_BPS)).map_err(said)?;
        encoder.set_signal(Signal::Voice).map_err(said)?;
        let lookahead = encoder.get_lookahead().map_err(said)?.max(0) as usize;
        Ok(Self {
            encoder,
            writer: PacketWriter::new(Vec::new()),
            serial: rand::random(),
            lookahead,
            pending: Vec::with_capacity(FRAME),
            held: None,
            n_packets: 0,
            n_samples: 0,
            n_encoded: 0,
        })
    }

    pub(super) fn begin(&mut self, out: &mut Vec<u8>) -> Result<(), String> {
        let mut head = b"OpusHead\x01\x01".to_vec();
        head.extend(u16::try_from(self.pre_skip()).map_err(said)?.to_le_bytes());
        head.extend(RATE.hz().to_le_bytes());
        // Output gain zero; one channel, mapping family 0.
        head.extend([0, 0, 0]);
        let vendor = concat!("antiphon ", env!("CARGO_PKG_VERSION")).as_bytes();
        let mut tags = b"OpusTags".to_vec();
        tags.extend((vendor.len() as u32).to_le_bytes());
        tags.extend(vendor);
        tags.extend(0u32.to_le_bytes());
        for header in [head, tags] {
            self.writer.write_packet(header, self.serial, PacketWriteEndInfo::EndPage, 0).map_err(said)?;
        }
        self.hand_over(out);
        Ok(())
    }

    pub(super) fn push(&mut self, pcm: &[i16], out: &mut Vec<u8>) -> Result<(), String> {
        self.n_samples += pcm.len() as u64;
        self.encode(pcm)?;
        self.hand_over(out);
        Ok(())
    }

    /// Pads until the last sample has left the look-ahead; the final granule position marks the true end of the audio.
    pub(super) fn finish(mut self, out: &mut Vec<u8>) -> Result<(), String> {
        let inside = self.pending.len() + self.lookahead;
        let silence = vec![0; inside.next_multiple_of(FRAME) - self.pending.len()];
        self.encode(&silence)?;
        if let Some((packet, _)) = self.held.take() {
            let end = self.pre_skip() + self.n_samples * TICKS;
            self.writer.write_packet(packet, self.serial, PacketWriteEndInfo::EndStream, end).map_err(said)?;
        }
        self.hand_over(out);
        Ok(())
    }

    fn encode(&mut self, mut pcm: &[i16]) -> Result<(), String> {
        while !pcm.is_empty() {
            let (taken, rest) = pcm.split_at(pcm.len().min(FRAME - self.pending.len()));
            self.pending.extend_from_slice(taken);
            pcm = rest;
            if self.pending.len() < FRAME {
                break;
            }
            let packet = self.encoder.encode_vec(&self.pending, MAX_PACKET).map_err(said)?;
            self.pending.clear();
            self.n_encoded += FRAME as u64;
            let ends_at = self.n_encoded * TICKS;
            if let Some((earlier, ends_at)) = self.held.replace((packet, ends_at)) {
                self.n_packets += 1;
                // The first packet has a page of its own, so that a player can start.
                let ends_page = self.n_packets % PACKETS_PER_PAGE == 1;
                let info = if ends_page { PacketWriteEndInfo::EndPage } else { PacketWriteEndInfo::NormalPacket };
                self.writer.write_packet(earlier, self.serial, info, ends_at).map_err(said)?;
            }
        }
        Ok(())
    }

    /// Number of samples a player drops at the start, in ticks.
    fn pre_skip(&self) -> u64 {
        self.lookahead as u64 * TICKS
    }

    fn hand_over(&mut self, out: &mut Vec<u8>) {
        out.append(self.writer.inner_mut());
    }
}

fn said(error: impl Display) -> String {
    error.to_string()
}
