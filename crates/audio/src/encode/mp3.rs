//! MP3 by LAME at a constant bit rate, so that a stream without a table of contents plays at the right speed.

use super::RATE;
use mp3lame_encoder::{Bitrate, Builder, FlushNoGap, Mode, MonoPcm, Quality, max_required_buffer_size};
use std::fmt::Display;

/// Largest number of bytes that LAME holds back until the end (`lame_encode_flush` in its header).
const MAX_FLUSH: usize = 7_200;

/// One MP3 stream.
pub(super) struct Mp3 {
    lame: mp3lame_encoder::Encoder,
    is_empty: bool,
}

impl Mp3 {
    pub(super) fn new() -> Result<Self, String> {
        let mut builder = Builder::new().ok_or("out of memory")?;
        builder.set_num_channels(1).map_err(said)?;
        builder.set_sample_rate(RATE.hz()).map_err(said)?;
        builder.set_mode(Mode::Mono).map_err(said)?;
        // At 64 kbit/s, speech with a bandwidth of 12 kHz is hard to distinguish from the original.
        builder.set_brate(Bitrate::Kbps64).map_err(said)?;
        builder.set_quality(Quality::Good).map_err(said)?;
        // The tag holds the length and is written by seeking back, which is impossible in a stream.
        builder.set_to_write_vbr_tag(false).map_err(said)?;
        Ok(Self { lame: builder.build().map_err(said)?, is_empty: true })
    }

    pub(super) fn push(&mut self, pcm: &[i16], out: &mut Vec<u8>) -> Result<(), String> {
        self.is_empty &= pcm.is_empty();
        out.reserve(max_required_buffer_size(pcm.len()));
        self.lame.encode_to_vec(MonoPcm(pcm), out).map(drop).map_err(said)
    }

    pub(super) fn finish(mut self, out: &mut Vec<u8>) -> Result<(), String> {
        if self.is_empty {
            // LAME prints an error to stderr if there is nothing to flush.
            return Ok(());
        }
        out.reserve(MAX_FLUSH);
        self.lame.flush_to_vec::<FlushNoGap>(out).map(drop).map_err(said)
    }
}

fn said(error: impl Display) -> String {
    error.to_string()
}
