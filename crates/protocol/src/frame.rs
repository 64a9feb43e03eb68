//! Binary audio frames, for sockets that enabled them. Layout:
//!
//! | bytes | what |
//! | --- | --- |
//! | 0 | kind: 1 microphone, 2 reply |
//! | 1 | length of the item id; 0 for the microphone |
//! | 2-3 | flags, 0 |
//! | 4-7 | sequence number, per direction, from 0, wraps |
//! | 8-15 | offset of the payload's first sample, at 24 kHz |
//! | then | the item id in ASCII, then the payload |
//!
//! All integers are little-endian. The payload is one Opus packet (20 ms, mono) or PCM16 (mono, 24 kHz), depending on
//! the mode of the socket; the header does not state which. Parsing copies nothing.

use super::error::WireError;
use antiphon_types::{ItemId, Samples};
use bytes::{BufMut, Bytes, BytesMut};

/// Length of the fixed part of the header in bytes.
pub const HEADER_BYTES: usize = 16;

/// One binary frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// Direction of the frame.
    pub kind: FrameKind,
    /// Sequence number per direction, from 0, wrapping.
    pub sequence: u32,
    /// Offset of the payload's first sample at 24 kHz: from the start of the stream (microphone) or of the item
    /// (reply).
    pub offset: Samples,
    /// One Opus packet or PCM16 samples.
    pub payload: Bytes,
}

/// Direction of a frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FrameKind {
    /// Client to hub.
    Microphone,
    /// Hub to client.
    Reply {
        /// The item it belongs to; 1 to 255 bytes of ASCII.
        item_id: ItemId,
    },
}

/// Why bytes are not a valid frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// Shorter than its header requires.
    #[error("binary frame too short: {got} bytes, its header needs {needed}")]
    TooShort {
        /// Bytes received.
        got: usize,
        /// Bytes required.
        needed: usize,
    },
    /// The kind is neither microphone nor reply.
    #[error("binary frame of unknown kind {0}: 1 is microphone audio, 2 reply audio")]
    UnknownKind(u8),
    /// Unknown flags are set.
    #[error("binary frame with unknown flags {0:#06x}")]
    UnknownFlags(u16),
    /// The item id is empty for a reply, not empty for the microphone, or not ASCII.
    #[error("binary frame with a wrong item id: none for microphone audio, 1 to 255 ASCII bytes for reply audio")]
    BadItemId,
    /// The payload is empty.
    #[error("binary frame without a payload")]
    Empty,
}

/// Audio of a microphone: a frame without its direction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MicrophoneFrame {
    /// Sequence number, from 0, wrapping.
    pub sequence: u32,
    /// Offset of the payload's first sample from the start of the stream, at 24 kHz.
    pub offset: Samples,
    /// One Opus packet or PCM16 samples.
    pub payload: Bytes,
}

impl MicrophoneFrame {
    /// Parses a client's binary message; the payload shares the memory of `bytes`.
    ///
    /// # Errors
    /// The client's error where it is not a microphone frame.
    pub fn parse(bytes: &Bytes) -> Result<Self, WireError> {
        let refuse = |message: String| WireError::invalid("invalid_value", message, None);
        let Frame { kind, sequence, offset, payload } =
            Frame::parse(bytes).map_err(|error| refuse(error.to_string()))?;
        match kind {
            FrameKind::Microphone => Ok(Self { sequence, offset, payload }),
            FrameKind::Reply { .. } => Err(refuse("A client sends microphone frames (kind 1) only.".into())),
        }
    }
}

impl Frame {
    /// Parses a frame; the payload shares the memory of `bytes`.
    pub fn parse(bytes: &Bytes) -> Result<Self, FrameError> {
        let too_short = |needed| FrameError::TooShort { got: bytes.len(), needed };
        let header: &[u8; HEADER_BYTES] = bytes.first_chunk().ok_or_else(|| too_short(HEADER_BYTES))?;
        let [kind, id_len, f0, f1, s0, s1, s2, s3, offset @ ..] = *header;
        let flags = u16::from_le_bytes([f0, f1]);
        if flags != 0 {
            return Err(FrameError::UnknownFlags(flags));
        }
        let start = HEADER_BYTES + usize::from(id_len);
        let id = bytes.get(HEADER_BYTES..start).ok_or_else(|| too_short(start))?;
        let kind = match (kind, id) {
            (1, []) => FrameKind::Microphone,
            (2, [_, ..]) if id.is_ascii() => {
                let id = std::str::from_utf8(id).map_err(|_| FrameError::BadItemId)?;
                FrameKind::Reply { item_id: ItemId::from(id) }
            }
            (1 | 2, _) => return Err(FrameError::BadItemId),
            (other, _) => return Err(FrameError::UnknownKind(other)),
        };
        if start == bytes.len() {
            return Err(FrameError::Empty);
        }
        let sequence = u32::from_le_bytes([s0, s1, s2, s3]);
        Ok(Self { kind, sequence, offset: Samples(u64::from_le_bytes(offset)), payload: bytes.slice(start..) })
    }

    /// Encodes the frame. Fails with [`FrameError::BadItemId`] if the item id is not valid.
    pub fn encode(&self) -> Result<Bytes, FrameError> {
        let (kind, id) = match &self.kind {
            FrameKind::Microphone => (1, ""),
            FrameKind::Reply { item_id } => (2, item_id.as_str()),
        };
        let id_len = u8::try_from(id.len()).map_err(|_| FrameError::BadItemId)?;
        if !id.is_ascii() || (kind == 2 && id.is_empty()) {
            return Err(FrameError::BadItemId);
        }
        if self.payload.is_empty() {
            return Err(FrameError::Empty);
        }
        let mut bytes = BytesMut::with_capacity(HEADER_BYTES + id.len() + self.payload.len());
        bytes.put_u8(kind);
        bytes.put_u8(id_len);
        bytes.put_u16_le(0);
        bytes.put_u32_le(self.sequence);
        bytes.put_u64_le(self.offset.0);
        bytes.put_slice(id.as_bytes());
        bytes.put_slice(&self.payload);
        Ok(bytes.freeze())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn reply(id: &str, payload: &'static [u8]) -> Frame {
        let kind = FrameKind::Reply { item_id: ItemId::from(id) };
        Frame { kind, sequence: 0x0102_0304, offset: Samples(480), payload: Bytes::from_static(payload) }
    }

    #[test]
    fn a_reply_is_laid_out_as_documented() {
        let bytes = reply("ab", b"xyz").encode().unwrap();
        assert_eq!(&bytes[..], b"\x02\x02\0\0\x04\x03\x02\x01\xe0\x01\0\0\0\0\0\0abxyz");
    }

    #[test]
    fn what_is_no_frame_is_refused_by_name() {
        let check = |bytes: &'static [u8], expect| assert_eq!(Frame::parse(&Bytes::from_static(bytes)), Err(expect));
        check(b"", FrameError::TooShort { got: 0, needed: 16 });
        check(&[1; 15], FrameError::TooShort { got: 15, needed: 16 });
        check(b"\x02\x05\0\0\0\0\0\0\0\0\0\0\0\0\0\0abcd", FrameError::TooShort { got: 20, needed: 21 });
        check(b"\x03\x00\0\0\0\0\0\0\0\0\0\0\0\0\0\0x", FrameError::UnknownKind(3));
        check(b"\x01\x00\x01\0\0\0\0\0\0\0\0\0\0\0\0\0x", FrameError::UnknownFlags(1));
        check(b"\x01\x01\0\0\0\0\0\0\0\0\0\0\0\0\0\0ax", FrameError::BadItemId);
        check(b"\x02\x00\0\0\0\0\0\0\0\0\0\0\0\0\0\0x", FrameError::BadItemId);
        check(b"\x02\x01\0\0\0\0\0\0\0\0\0\0\0\0\0\0\xffx", FrameError::BadItemId);
        check(b"\x01\x00\0\0\0\0\0\0\0\0\0\0\0\0\0\0", FrameError::Empty);
    }

    #[test]
    fn an_id_that_does_not_fit_is_not_sent() {
        assert_eq!(reply(&"x".repeat(256), b"p").encode(), Err(FrameError::BadItemId));
        assert_eq!(reply("", b"p").encode(), Err(FrameError::BadItemId));
        assert_eq!(reply("id", b"").encode(), Err(FrameError::Empty));
    }

    proptest! {
        #[test]
        fn every_frame_survives_the_way_there_and_back(
            id in proptest::option::of("[ -~]{1,255}"), sequence: u32, offset: u64,
            payload in proptest::collection::vec(any::<u8>(), 1..300),
        ) {
            let kind = id.map_or(FrameKind::Microphone, |id| FrameKind::Reply { item_id: ItemId::from(id) });
            let frame = Frame { kind, sequence, offset: Samples(offset), payload: payload.into() };
            prop_assert_eq!(Frame::parse(&frame.encode().unwrap()), Ok(frame));
        }

        #[test]
        fn arbitrary_bytes_never_panic_and_parse_only_to_what_encodes_back(
            bytes in proptest::collection::vec(any::<u8>(), 0..64),
        ) {
            let bytes = Bytes::from(bytes);
            if let Ok(frame) = Frame::parse(&bytes) {
                prop_assert_eq!(frame.encode().unwrap(), bytes);
            }
        }
    }
}
