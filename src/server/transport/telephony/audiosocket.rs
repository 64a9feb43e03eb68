//! Asterisk AudioSocket over TCP: frames of a type (1 byte), a length (2 bytes, big-endian) and a payload.
//!
//! The peer names a UUID first, which stands for the call, and has neither marks nor a clear: the audio that it is sent is
//! paced here. The kind of its audio frames names the rate; it is answered in the same.

use super::leg::{Coding, Leg, LegError, Mark, Packet, Parameters, PeerMessage, Start};
use crate::server::transport::keypad::key;
use bytes::{Buf, Bytes, BytesMut};

const HANG_UP: u8 = 0x00;
const UUID: u8 = 0x01;
const DTMF: u8 = 0x03;
const ERROR: u8 = 0xff;
/// Bytes before a payload.
const HEADER: usize = 3;
/// The rates of audio frames by their kind, from 0x10 on (docs.asterisk.org, "AudioSocket").
const RATES: [u64; 7] = [8_000, 12_000, 16_000, 24_000, 32_000, 44_100, 48_000];

/// The parameter that holds the UUID, in hexadecimal groups.
pub(super) const UUID_PARAMETER: &str = "uuid";

/// See the module.
#[derive(Default)]
pub(super) struct AudioSocket {
    uuid: Option<String>,
    /// Kind of the peer's audio frames; known from the start on.
    kind: Option<u8>,
}

impl Leg for AudioSocket {
    fn text(&mut self, _: &str) -> Result<Option<PeerMessage>, LegError> {
        Err(LegError::NotJson)
    }

    /// Reads one frame, as [`frame`] takes it from the stream.
    fn binary(&mut self, mut bytes: Bytes) -> Result<Option<PeerMessage>, LegError> {
        if bytes.len() < HEADER {
            return Err(LegError::Length);
        }
        let kind = bytes[0];
        bytes.advance(HEADER);
        match kind {
            HANG_UP | ERROR => Ok(Some(PeerMessage::Ended)),
            UUID => {
                let uuid = <[u8; 16]>::try_from(&bytes[..]).map_err(|_| LegError::Length)?;
                match self.uuid.replace(grouped(uuid)) {
                    None => Ok(None),
                    Some(_) => Err(LegError::StartedTwice),
                }
            }
            DTMF => {
                self.kind.ok_or(LegError::BeforeStart)?;
                let digit = std::str::from_utf8(&bytes).ok().and_then(key);
                Ok(digit.map(PeerMessage::Key))
            }
            0x10..0x20 => {
                let uuid = self.uuid.as_ref().ok_or(LegError::BeforeStart)?;
                if self.kind.is_some() {
                    return Ok((!bytes.is_empty()).then_some(PeerMessage::Audio { number: None, audio: bytes }));
                }
                // This frame begins the call and is left out: 20 ms, before anything was said.
                let coding = coding(kind, bytes.len())?;
                let mut parameters = Parameters::default();
                parameters.add_text(UUID_PARAMETER, uuid);
                self.kind = Some(kind);
                Ok(Some(PeerMessage::Started(Box::new(Start { input: coding, output: coding, parameters }))))
            }
            _ => Ok(None),
        }
    }

    fn play(&mut self, audio: Vec<u8>) -> Packet {
        Packet::Binary(frame_of(self.kind.unwrap_or(0x10), &audio))
    }

    fn mark(&mut self, _: Mark) -> Option<Packet> {
        None
    }

    fn clear(&mut self) -> Option<Packet> {
        None
    }

    fn hang_up(&mut self) -> Option<Packet> {
        Some(Packet::Binary(frame_of(HANG_UP, &[])))
    }
}

/// Takes the first frame from `bytes`, header included; `None`: it is not complete yet. A frame has 64 KiB at most.
pub(super) fn frame(bytes: &mut BytesMut) -> Option<Bytes> {
    let &[_, high, low] = bytes.first_chunk::<HEADER>()?;
    let n = HEADER + usize::from(u16::from_be_bytes([high, low]));
    (bytes.len() >= n).then(|| bytes.split_to(n).freeze())
}

fn frame_of(kind: u8, payload: &[u8]) -> Bytes {
    let length = u16::try_from(payload.len()).expect("20 ms at 48 kHz are 1,920 bytes");
    let mut frame = BytesMut::with_capacity(HEADER + payload.len());
    frame.extend_from_slice(&[kind]);
    frame.extend_from_slice(&length.to_be_bytes());
    frame.extend_from_slice(payload);
    frame.freeze()
}

/// Releases before the table of rates used 0x11 for 16 kHz: 20 ms have 640 bytes there, 480 at 12 kHz.
fn coding(kind: u8, n_bytes: usize) -> Result<Coding, LegError> {
    if kind == 0x11 && n_bytes == 640 {
        return Coding::l16(16_000);
    }
    let hz = RATES.get(usize::from(kind) - 0x10).ok_or_else(|| LegError::Coding(format!("kind {kind:#x}")))?;
    Coding::l16(*hz)
}

fn grouped(uuid: [u8; 16]) -> String {
    let mut text = String::with_capacity(36);
    for (at, byte) in uuid.iter().enumerate() {
        if matches!(at, 4 | 6 | 8 | 10) {
            text.push('-');
        }
        text.push_str(&format!("{byte:02x}"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const ID: [u8; 16] =
        [0x40, 0x32, 0x5e, 0xc2, 0x5e, 0xfd, 0x4b, 0xd3, 0x80, 0x5f, 0x53, 0x57, 0x6e, 0x58, 0x1d, 0x13];

    #[test]
    fn a_call_begins_with_its_id_and_its_first_audio() {
        let mut leg = AudioSocket::default();
        assert_eq!(leg.binary(frame_of(UUID, &ID)), Ok(None));
        let Ok(Some(PeerMessage::Started(start))) = leg.binary(frame_of(0x10, &[0; 320])) else { panic!("a start") };
        assert_eq!(start.output, Coding::l16(8_000).unwrap());
        assert_eq!(start.parameters.get(UUID_PARAMETER), Some("40325ec2-5efd-4bd3-805f-53576e581d13"));
        let audio = Bytes::from_static(&[1, 2]);
        let said = PeerMessage::Audio { number: None, audio };
        assert_eq!(leg.binary(frame_of(0x10, &[1, 2])), Ok(Some(said)));
        assert_eq!(leg.binary(frame_of(DTMF, b"7")), Ok(Some(PeerMessage::Key('7'))));
        assert_eq!(leg.binary(frame_of(0x02, b"later")), Ok(None));
        assert_eq!(leg.binary(frame_of(HANG_UP, &[])), Ok(Some(PeerMessage::Ended)));
        assert_eq!(leg.binary(frame_of(ERROR, &[1])), Ok(Some(PeerMessage::Ended)));
        assert_eq!(leg.play(vec![1, 2]), Packet::Binary(Bytes::from_static(&[0x10, 0, 2, 1, 2])));
        assert_eq!(leg.hang_up(), Some(Packet::Binary(Bytes::from_static(&[0, 0, 0]))));
        assert_eq!((leg.mark(Mark(1)), leg.clear()), (None, None));
    }

    #[test]
    fn the_kind_of_a_frame_names_its_rate() {
        for (kind, n_bytes, hz) in
            [(0x10, 320, 8_000), (0x11, 480, 12_000), (0x11, 640, 16_000), (0x12, 640, 16_000), (0x16, 1920, 48_000)]
        {
            assert_eq!(coding(kind, n_bytes), Coding::l16(hz), "{kind:#x}");
        }
        assert!(matches!(coding(0x17, 0), Err(LegError::Coding(_))));
    }

    #[test]
    fn what_violates_the_protocol_is_refused() {
        let refused = |frames: &[(u8, &[u8])]| {
            let mut leg = AudioSocket::default();
            frames.iter().find_map(|(kind, payload)| leg.binary(frame_of(*kind, payload)).err())
        };
        assert_eq!(refused(&[(0x10, &[0; 320])]), Some(LegError::BeforeStart));
        assert_eq!(refused(&[(UUID, &ID), (DTMF, b"1")]), Some(LegError::BeforeStart));
        assert_eq!(refused(&[(UUID, &ID[..15])]), Some(LegError::Length));
        assert_eq!(refused(&[(UUID, &ID), (UUID, &ID)]), Some(LegError::StartedTwice));
        assert_eq!(AudioSocket::default().binary(Bytes::from_static(&[0x10])), Err(LegError::Length));
    }

    proptest! {
        #[test]
        fn frames_are_found_wherever_the_stream_is_cut(payloads in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..300), 0..8), cut in 1usize..40) {
            let frames: Vec<Bytes> = payloads.iter().map(|payload| frame_of(0x10, payload)).collect();
            let stream = frames.concat();
            let mut buffer = BytesMut::new();
            let mut found = Vec::new();
            for piece in stream.chunks(cut) {
                buffer.extend_from_slice(piece);
                while let Some(frame) = frame(&mut buffer) {
                    found.push(frame);
                }
            }
            prop_assert_eq!(found, frames);
        }

        #[test]
        fn arbitrary_frames_never_panic(frames in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..40), 0..12)) {
            let mut leg = AudioSocket::default();
            for bytes in frames {
                let _ = leg.binary(bytes.into());
            }
        }
    }
}
