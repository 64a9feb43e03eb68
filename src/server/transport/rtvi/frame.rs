//! Pipecat's protobuf frames, which carry audio and RTVI messages over a WebSocket.
//!
//! The schema is `pipecat.Frame` of pipecat's `frames.proto`; fields that are not used here are skipped. Nothing of a frame is
//! interpreted. The hub's connections and the benchmarks' client of a pipecat bot use it.

use bytes::Bytes;
use prost::{DecodeError, Message, Oneof};

/// `pipecat.Frame`.
#[derive(Clone, PartialEq, Message)]
pub struct Frame {
    /// `None`: a kind that is not served.
    #[prost(oneof = "Kind", tags = "2, 4, 5")]
    pub kind: Option<Kind>,
}

/// What a frame holds.
#[derive(Clone, PartialEq, Oneof)]
pub enum Kind {
    /// Sound, in both directions.
    #[prost(message, tag = "2")]
    Audio(Audio),
    /// A message, in both directions.
    #[prost(message, tag = "4")]
    Message(RtviMessage),
    /// A bot's client drops what it has not played.
    #[prost(message, tag = "5")]
    Interruption(Interruption),
}

/// `pipecat.AudioRawFrame`: PCM16, little-endian, interleaved.
#[derive(Clone, PartialEq, Message)]
pub struct Audio {
    /// Number of the frame.
    #[prost(uint64, tag = "1")]
    pub id: u64,
    /// Name of the frame, for logs.
    #[prost(string, tag = "2")]
    pub name: String,
    /// The samples.
    #[prost(bytes = "bytes", tag = "3")]
    pub audio: Bytes,
    /// In Hz.
    #[prost(uint32, tag = "4")]
    pub sample_rate: u32,
    /// Samples of one time.
    #[prost(uint32, tag = "5")]
    pub num_channels: u32,
}

/// `pipecat.MessageFrame`: an RTVI message, JSON.
#[derive(Clone, PartialEq, Message)]
pub struct RtviMessage {
    /// The JSON.
    #[prost(string, tag = "1")]
    pub data: String,
}

/// `pipecat.InterruptionFrame`.
#[derive(Clone, PartialEq, Message)]
pub struct Interruption {
    /// Number of the frame.
    #[prost(uint64, tag = "1")]
    pub id: u64,
    /// Name of the frame, for logs.
    #[prost(string, tag = "2")]
    pub name: String,
}

impl Frame {
    /// Reads a frame.
    ///
    /// # Errors
    /// The bytes are no frame.
    pub fn read(bytes: Bytes) -> Result<Self, DecodeError> {
        Self::decode(bytes)
    }

    /// A frame with audio: mono PCM16 at `rate` Hz.
    pub fn audio(id: u64, audio: Bytes, sample_rate: u32) -> Bytes {
        Self::of(Kind::Audio(Audio { id, name: "audio".into(), audio, sample_rate, num_channels: 1 }))
    }

    /// A frame with an RTVI message, JSON.
    pub fn message(data: String) -> Bytes {
        Self::of(Kind::Message(RtviMessage { data }))
    }

    fn of(kind: Kind) -> Bytes {
        Self { kind: Some(kind) }.encode_to_vec().into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_those_of_pipecat() {
        // As `ProtobufFrameSerializer` of @pipecat-ai/websocket-transport 1.7.1 writes them.
        let message = b"\x22\x04\x0a\x02{}";
        assert_eq!(&Frame::message("{}".into())[..], message);
        let audio = b"\x12\x10\x12\x05audio\x1a\x02\x01\x02\x20\x80\x7d\x28\x01";
        let Ok(Frame { kind: Some(Kind::Audio(read)) }) = Frame::read(Bytes::from_static(audio)) else { panic!() };
        assert_eq!((&read.audio[..], read.sample_rate, read.num_channels), (&[1, 2][..], 16_000, 1));
        assert_eq!(&Frame::audio(0, Bytes::from_static(&[1, 2]), 16_000)[..], audio);
    }

    #[test]
    fn other_frames_are_skipped_and_broken_ones_refused() {
        let text = b"\x0a\x04\x1a\x02hi";
        assert_eq!(Frame::read(Bytes::from_static(text)), Ok(Frame { kind: None }));
        let interruption = b"\x2a\x05\x12\x03int";
        let read = Frame::read(Bytes::from_static(interruption)).map(|frame| frame.kind);
        assert_eq!(read, Ok(Some(Kind::Interruption(Interruption { id: 0, name: "int".into() }))));
        for broken in [&b"\xff"[..], b"\x22\x7f\x0a", b"\x22\x04\x0a\x02\xff\xff", b"{\"label\":\"rtvi-ai\"}"] {
            assert!(Frame::read(Bytes::copy_from_slice(broken)).is_err(), "{broken:?}");
        }
    }
}
