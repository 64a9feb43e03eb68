//! FLAC, frame by frame. The header contains neither length nor checksum, which are known only at the end.

use super::RATE;
use flacenc::bitsink::ByteSink;
use flacenc::component::{BitRepr, Stream, StreamInfo};
use flacenc::config;
use flacenc::encode_fixed_size_frame;
use flacenc::error::{Verified, Verify};
use flacenc::source::{Fill, FrameBuf};
use std::fmt::Debug;

/// Samples per frame: 96 ms. The format has a code for this size, and it is small enough for a low latency.
const BLOCK: usize = 2_304;
/// The smallest frame the library encodes. A shorter end is padded with up to 1.3 ms of silence.
const SHORTEST: usize = 32;

/// One FLAC stream.
pub(super) struct Flac {
    config: Verified<config::Encoder>,
    info: StreamInfo,
    pending: Vec<i32>,
    n_frames: usize,
}

impl Flac {
    pub(super) fn new() -> Result<Self, String> {
        let config = config::Encoder::default().into_verified().map_err(|(_, error)| said(error))?;
        let mut info = StreamInfo::new(RATE.hz() as usize, 1, 16).map_err(said)?;
        info.set_block_sizes(BLOCK, BLOCK).map_err(said)?;
        // Zero means unknown.
        info.set_frame_sizes(0, 0).map_err(said)?;
        Ok(Self { config, info, pending: Vec::with_capacity(BLOCK), n_frames: 0 })
    }

    pub(super) fn begin(&mut self, out: &mut Vec<u8>) -> Result<(), String> {
        write(&Stream::with_stream_info(self.info.clone()), out)
    }

    pub(super) fn push(&mut self, mut pcm: &[i16], out: &mut Vec<u8>) -> Result<(), String> {
        while !pcm.is_empty() {
            let (taken, rest) = pcm.split_at(pcm.len().min(BLOCK - self.pending.len()));
            self.pending.extend(taken.iter().map(|&sample| i32::from(sample)));
            pcm = rest;
            if self.pending.len() == BLOCK {
                self.frame(out)?;
            }
        }
        Ok(())
    }

    pub(super) fn finish(mut self, out: &mut Vec<u8>) -> Result<(), String> {
        if self.pending.is_empty() {
            return Ok(());
        }
        let n = self.pending.len().max(SHORTEST);
        self.pending.resize(n, 0);
        self.frame(out)
    }

    fn frame(&mut self, out: &mut Vec<u8>) -> Result<(), String> {
        let mut samples = FrameBuf::with_size(1, self.pending.len()).map_err(said)?;
        samples.fill_interleaved(&self.pending).map_err(said)?;
        let frame = encode_fixed_size_frame(&self.config, &samples, self.n_frames, &self.info).map_err(said)?;
        self.pending.clear();
        self.n_frames += 1;
        write(&frame, out)
    }
}

fn write(part: &impl BitRepr, out: &mut Vec<u8>) -> Result<(), String> {
    let mut sink = ByteSink::with_capacity(part.count_bits());
    part.write(&mut sink).map_err(said)?;
    out.extend_from_slice(sink.as_slice());
    Ok(())
}

fn said(error: impl Debug) -> String {
    format!("{error:?}")
}
