//! Opus in files: up to eight channels (RFC 7845, mapping families 0, 1 and 255), at [`OPUS_IN_RATE`].
//!
//! `decode` calls it for each packet. A packet of several streams holds one Opus packet for each, all but the last in the
//! self-delimiting form of RFC 6716, appendix B, which is turned into the usual one here.

use super::DecodeError;
use crate::codec::OPUS_IN_RATE;
use opus::{Channels, Decoder};

/// The most channels: those of family 1.
const MAX_CHANNELS: usize = 8;
/// The longest packet: 120 ms at [`OPUS_IN_RATE`].
const MAX_FRAMES: usize = 1_920;
/// The most frames of a packet: 120 ms of 2.5 ms.
const MAX_COUNT: usize = 48;
/// From this number of channels on, the last one of family 1 is that of low frequencies, which holds no speech (RFC
/// 7845, section 5.1.1.2).
const FIRST_WITH_LFE: usize = 6;
/// In a mapping: a channel of silence.
const SILENT: u8 = 255;

/// The decoders of one track.
pub(super) struct OpusTrack {
    streams: Vec<Stream>,
    /// Each output channel's place among the decoded channels; those of silence are left out.
    mapping: Vec<usize>,
    /// Decoded frames still to be dropped at the start.
    to_skip: usize,
}

struct Stream {
    decoder: Decoder,
    n_channels: usize,
    pcm: Vec<f32>,
}

impl OpusTrack {
    /// `head`: the identification header (RFC 7845, section 5.1).
    pub(super) fn open(head: &[u8]) -> Result<Self, DecodeError> {
        let codec = |what: &str| DecodeError::Codec(what.into());
        let n_channels = usize::from(head.get(9).copied().unwrap_or(1));
        let family = head.get(18).copied().unwrap_or_default();
        let (n_streams, n_coupled, mapping) = match (family, head.get(19..)) {
            (0, _) if n_channels <= 2 => (1, n_channels.saturating_sub(1), (0..n_channels as u8).collect()),
            (1 | 255, Some([streams, coupled, mapping @ ..])) if n_channels <= MAX_CHANNELS => {
                let mapping = mapping.get(..n_channels).ok_or_else(|| codec("its Opus header is too short"))?;
                (usize::from(*streams), usize::from(*coupled), mapping.to_vec())
            }
            (0 | 1 | 255, _) => return Err(codec(&format!("Opus of {n_channels} channels"))),
            _ => return Err(codec(&format!("Opus of channel mapping family {family}"))),
        };
        let n_decoded = n_streams + n_coupled;
        let n_heard = if family == 1 && n_channels >= FIRST_WITH_LFE { n_channels - 1 } else { n_channels };
        let mapping: Vec<usize> =
            mapping.into_iter().take(n_heard).filter(|&at| at != SILENT).map(usize::from).collect();
        let is_sound = n_coupled <= n_streams && !mapping.is_empty() && mapping.iter().all(|&at| at < n_decoded);
        if !is_sound || n_decoded > MAX_CHANNELS {
            return Err(codec("its Opus header maps channels that are not there"));
        }
        let streams = (0..n_streams).map(|at| Stream::open(if at < n_coupled { 2 } else { 1 }));
        let streams = streams.collect::<Result<_, _>>().map_err(|error| codec(&error.to_string()))?;
        let pre_skip = head.get(10..12).map_or(0, |bytes| u16::from_le_bytes([bytes[0], bytes[1]]));
        Ok(Self { streams, mapping, to_skip: usize::from(pre_skip) / 3 })
    }

    /// Replaces `interleaved` by the packet's samples, full scale at 1, and returns the number of channels.
    /// `trim_end`: frames at 48 kHz that are padding.
    pub(super) fn decode(&mut self, packet: &[u8], trim_end: u64, interleaved: &mut Vec<f32>) -> Result<usize, String> {
        let mut rest = packet;
        let last = self.streams.len() - 1;
        let mut n_frames = None;
        for (at, stream) in self.streams.iter_mut().enumerate() {
            let n = if at == last {
                stream.decode(rest)?
            } else {
                let (own, behind) = split_first(rest).ok_or("a packet ends before its last stream")?;
                rest = behind;
                stream.decode(&own)?
            };
            if n_frames.is_some_and(|frames| frames != n) {
                return Err("the streams of a packet differ in length".into());
            }
            n_frames = Some(n);
        }
        let n_frames = n_frames.unwrap_or_default();
        let end = n_frames.saturating_sub(usize::try_from(trim_end / 3).unwrap_or(usize::MAX));
        let start = self.to_skip.min(end);
        self.to_skip -= start;
        interleaved.clear();
        for frame in start..end {
            interleaved.extend(self.mapping.iter().map(|&channel| self.sample(frame, channel)));
        }
        Ok(self.mapping.len())
    }

    /// One sample of a decoded channel: coupled streams, which have two, come first.
    fn sample(&self, frame: usize, channel: usize) -> f32 {
        let mut first = 0;
        for stream in &self.streams {
            if channel < first + stream.n_channels {
                return stream.pcm[frame * stream.n_channels + channel - first];
            }
            first += stream.n_channels;
        }
        0.0
    }
}

impl Stream {
    fn open(n_channels: usize) -> Result<Self, opus::Error> {
        let channels = if n_channels == 2 { Channels::Stereo } else { Channels::Mono };
        let decoder = Decoder::new(OPUS_IN_RATE.hz(), channels)?;
        Ok(Self { decoder, n_channels, pcm: vec![0.0; MAX_FRAMES * n_channels] })
    }

    fn decode(&mut self, packet: &[u8]) -> Result<usize, String> {
        if packet.is_empty() {
            return Err("a packet is empty".into());
        }
        self.decoder.decode_float(packet, &mut self.pcm, false).map_err(|error| error.to_string())
    }
}

/// The first packet of several in the usual form, and what stands behind it.
fn split_first(packet: &[u8]) -> Option<(Vec<u8>, &[u8])> {
    let (&toc, rest) = packet.split_first()?;
    let mut own = vec![toc];
    match toc & 3 {
        // One frame, or two of one length.
        code @ (0 | 1) => {
            let (len, rest) = length(rest)?;
            let (frames, rest) = rest.split_at_checked(len * usize::from(code + 1))?;
            own.extend_from_slice(frames);
            Some((own, rest))
        }
        2 => {
            let (first, behind) = length(rest)?;
            own.extend_from_slice(&rest[..rest.len() - behind.len()]);
            let (second, rest) = length(behind)?;
            let (frames, rest) = rest.split_at_checked(first + second)?;
            own.extend_from_slice(frames);
            Some((own, rest))
        }
        _ => split_counted(own, rest),
    }
}

/// A packet that states its number of frames (RFC 6716, section 3.2.5), behind its first byte.
fn split_counted(mut own: Vec<u8>, packet: &[u8]) -> Option<(Vec<u8>, &[u8])> {
    let (&count, mut rest) = packet.split_first()?;
    let n_frames = usize::from(count & 0x3F);
    if n_frames == 0 || n_frames > MAX_COUNT {
        return None;
    }
    let has_lengths = count & 0x80 != 0;
    // Padding says nothing, and is left out.
    own.push(count & !0x40);
    let mut n_padding = 0;
    let mut goes_on = count & 0x40 != 0;
    while goes_on {
        let (&n, behind) = rest.split_first()?;
        rest = behind;
        // 255 stands for 254 bytes and a further length.
        n_padding += usize::from(n.min(254));
        goes_on = n == 255;
    }
    let mut len = 0;
    for _ in 1..if has_lengths { n_frames } else { 1 } {
        let (n, behind) = length(rest)?;
        own.extend_from_slice(&rest[..rest.len() - behind.len()]);
        rest = behind;
        len += n;
    }
    let (last, behind) = length(rest)?;
    len += if has_lengths { last } else { last * n_frames };
    let (frames, rest) = behind.split_at_checked(len)?;
    own.extend_from_slice(frames);
    Some((own, rest.get(n_padding..)?))
}

/// A frame's length (RFC 6716, section 3.2.1).
fn length(bytes: &[u8]) -> Option<(usize, &[u8])> {
    match *bytes {
        [first, ref rest @ ..] if first < 252 => Some((usize::from(first), rest)),
        [first, second, ref rest @ ..] => Some((usize::from(first) + 4 * usize::from(second), rest)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::split_first;

    /// RFC 6716, appendix B: the self-delimiting form has the length of the last frame, or of all, before the frames.
    #[test]
    fn every_form_of_a_packet_is_found_before_another() {
        let long = [9u8; 300];
        let cases: [(&str, Vec<u8>, Vec<u8>); 7] = [
            ("one frame", vec![0xF8, 3, 1, 2, 3], vec![0xF8, 1, 2, 3]),
            ("a long one", [&[0xF8, 252, 12][..], &long].concat(), [&[0xF8][..], &long].concat()),
            ("two of one length", vec![0xF9, 2, 1, 2, 3, 4], vec![0xF9, 1, 2, 3, 4]),
            ("two of different lengths", vec![0xFA, 1, 2, 1, 2, 3], vec![0xFA, 1, 1, 2, 3]),
            ("three of one length", vec![0xFB, 3, 1, 7, 8, 9], vec![0xFB, 3, 7, 8, 9]),
            ("three of different lengths", vec![0xFB, 0x83, 1, 0, 2, 7, 8, 9], vec![0xFB, 0x83, 1, 0, 7, 8, 9]),
            ("padded", vec![0xFB, 0x42, 2, 1, 7, 8, 0, 0], vec![0xFB, 2, 7, 8]),
        ];
        for (name, delimited, usual) in cases {
            let packet = [&delimited[..], &[0xAA, 0xBB]].concat();
            let (own, behind) = split_first(&packet).expect(name);
            assert_eq!(own, usual, "{name}");
            assert_eq!(behind, [0xAA, 0xBB], "{name}");
            for len in 0..delimited.len() {
                assert_eq!(split_first(&delimited[..len]), None, "{name}, cut after {len} bytes");
            }
        }
    }
}
