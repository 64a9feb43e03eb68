//! Frames: what a hub and a worker exchange on an attempt. A binary header of fixed size and a payload.
//!
//! [`exchange`](crate::exchange) sends and receives them. A frame does not know what carries it: it names its attempt itself.
//! What arrives is untrusted: [`Frame::decode`] accepts any bytes and never panics.
//!
//! ```text
//! version kind flags reserved | attempt (8) | sequence (4) | acknowledged (4) | credit (8) | elapsed (4) | payload
//! ```
//! All numbers are big-endian.

use bytes::{BufMut, Bytes, BytesMut};

/// Version of the header's layout; the version of what payloads mean is [`crate::PROTOCOL`].
pub const VERSION: u8 = 1;

/// Length of the header.
pub const HEADER_BYTES: usize = 32;

/// The longest payload: half of what NATS carries by default (1 MiB), and more than any transcript or description needs.
pub const MAX_PAYLOAD_BYTES: usize = 512 * 1024;

/// Samples in a frame of audio at most: 16 KiB.
pub const MAX_AUDIO_SAMPLES: usize = 8 * 1024;

/// Flag: the receiver misses frames from `acknowledged` on and asks for them again.
const GAP: u8 = 1;
/// Flag: the sender asks for an acknowledgement.
const PROBE: u8 = 2;

macro_rules! kinds {
    ($($(#[$doc:meta])* $name:ident = $code:literal,)*) => {
        /// What a frame is. Kinds below 16 have no place in the sequence.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Kind {
            $($(#[$doc])* $name = $code,)*
        }

        impl Kind {
            /// All kinds.
            pub const ALL: &[Self] = &[$(Self::$name,)*];

            fn of_code(code: u8) -> Option<Self> {
                match code {
                    $($code => Some(Self::$name),)*
                    _ => None,
                }
            }
        }
    };
}

kinds! {
    /// Acknowledgement and credit alone. `sequence` is the sender's next number.
    Ack = 0,
    /// The hub has lost interest in the attempt.
    Cancel = 1,
    /// The receiver does not know the attempt (any more).
    Reset = 2,
    /// Is not answered: a hub learns from NATS whether the worker still subscribes.
    Ping = 3,
    /// The hub asks for the worker's description.
    Describe = 4,
    /// The worker's description, as JSON.
    Description = 5,
    /// A question of one hub to another. This crate does not read it.
    Ask = 6,
    /// The other hub's reply.
    Reply = 7,
    /// News of a hub for the others; `attempt` is the hub's incarnation, `sequence` counts its news.
    News = 8,

    /// Opens the attempt: the request, as JSON.
    Open = 16,
    /// PCM, 16 bit little-endian, mono. From a worker at the rate of the last [`Kind::Rate`], from a hub at 16 kHz.
    Audio = 17,
    /// Asks for the partial transcript; the payload is the request's number.
    Partial = 18,
    /// Asks for the provisional transcript.
    Provisional = 19,
    /// Ends the utterance, or the audio of a pause, and asks for the result.
    Finish = 20,
    /// Ends an utterance whose provisional transcript became the final one.
    Learn = 21,
    /// The result of the last request is not needed any more.
    Stop = 22,

    /// The worker serves the attempt.
    Accepted = 32,
    /// The worker has no room, or is draining: its load, as JSON.
    Busy = 33,
    /// The rate of the audio that follows, 4 bytes, in Hz.
    Rate = 34,
    /// An answer to a request, as JSON.
    Answer = 35,
    /// The attempt ended well; nothing follows.
    End = 36,
    /// The engine failed: the error, as JSON. Nothing follows.
    Failed = 37,
}

impl Kind {
    /// Whether frames of this kind are numbered, kept until they are acknowledged and delivered in order.
    pub fn is_sequenced(self) -> bool {
        self as u8 >= 16
    }
}

/// A frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// What it is.
    pub kind: Kind,
    /// The receiver misses frames from `acknowledged` on.
    pub has_gap: bool,
    /// The sender asks for an acknowledgement.
    pub is_probe: bool,
    /// The attempt.
    pub attempt: u64,
    /// Its number among the sequenced frames of its direction; of another frame, the sender's next number.
    pub sequence: u32,
    /// The number that the sender of this frame expects next from the other side.
    pub acknowledged: u32,
    /// How many bytes the other side may send in all, frames counted with their headers.
    pub credit: u64,
    /// From a worker: microseconds between the arrival of the request and this frame.
    pub elapsed_us: u32,
    /// The payload; at most [`MAX_PAYLOAD_BYTES`].
    pub payload: Bytes,
}

/// Bytes that are no frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// Shorter than a header.
    #[error("{0} bytes are no frame: the header has {HEADER_BYTES}")]
    Short(usize),
    /// Another layout.
    #[error("the frame has version {0}; this program reads version {VERSION}")]
    Version(u8),
    /// A kind that this version does not know; it is dropped and counted. A newer minor version may add kinds below 16 only: a
    /// numbered frame that is dropped would be missed for ever.
    #[error("frames of kind {0} are unknown here")]
    Kind(u8),
    /// A payload over the limit.
    #[error("the payload has {0} bytes; the limit is {MAX_PAYLOAD_BYTES}")]
    Long(usize),
}

impl Frame {
    /// A frame without a payload.
    pub fn new(kind: Kind, attempt: u64) -> Self {
        Self {
            kind,
            has_gap: false,
            is_probe: false,
            attempt,
            sequence: 0,
            acknowledged: 0,
            credit: 0,
            elapsed_us: 0,
            payload: Bytes::new(),
        }
    }

    /// The frame's length on the wire.
    pub fn n_bytes(&self) -> usize {
        HEADER_BYTES + self.payload.len()
    }

    /// The bytes of the frame.
    pub fn encode(&self) -> Bytes {
        let mut bytes = BytesMut::with_capacity(self.n_bytes());
        let flags = if self.has_gap { GAP } else { 0 } | if self.is_probe { PROBE } else { 0 };
        bytes.put_slice(&[VERSION, self.kind as u8, flags, 0]);
        bytes.put_u64(self.attempt);
        bytes.put_u32(self.sequence);
        bytes.put_u32(self.acknowledged);
        bytes.put_u64(self.credit);
        bytes.put_u32(self.elapsed_us);
        bytes.put_slice(&self.payload);
        bytes.freeze()
    }

    /// The frame in `bytes`, whose payload is not copied.
    ///
    /// # Errors
    /// Anything that is not a frame of this version.
    pub fn decode(bytes: &Bytes) -> Result<Self, FrameError> {
        let Some((header, payload)) = bytes.split_first_chunk::<HEADER_BYTES>() else {
            return Err(FrameError::Short(bytes.len()));
        };
        if header[0] != VERSION {
            return Err(FrameError::Version(header[0]));
        }
        if payload.len() > MAX_PAYLOAD_BYTES {
            return Err(FrameError::Long(payload.len()));
        }
        let kind = Kind::of_code(header[1]).ok_or(FrameError::Kind(header[1]))?;
        let u32_at = |at: usize| u32::from_be_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
        let u64_at = |at: usize| u64::from(u32_at(at)) << 32 | u64::from(u32_at(at + 4));
        Ok(Self {
            kind,
            has_gap: header[2] & GAP != 0,
            is_probe: header[2] & PROBE != 0,
            attempt: u64_at(4),
            sequence: u32_at(12),
            acknowledged: u32_at(16),
            credit: u64_at(20),
            elapsed_us: u32_at(28),
            payload: bytes.slice(HEADER_BYTES..),
        })
    }
}

/// Samples as the payload of an audio frame.
pub fn pcm_payload(samples: &[i16]) -> Bytes {
    let mut bytes = BytesMut::with_capacity(2 * samples.len());
    samples.iter().for_each(|sample| bytes.put_i16_le(*sample));
    bytes.freeze()
}

/// The samples of an audio frame; half a sample at the end is dropped.
pub fn pcm_samples(payload: &[u8]) -> impl ExactSizeIterator<Item = i16> + '_ {
    payload.chunks_exact(2).map(|pair| i16::from_le_bytes([pair[0], pair[1]]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_layout_stays_as_it_is() {
        let frame = Frame {
            kind: Kind::Audio,
            has_gap: true,
            is_probe: false,
            attempt: 0x0102_0304_0506_0708,
            sequence: 9,
            acknowledged: 10,
            credit: 11,
            elapsed_us: 12,
            payload: pcm_payload(&[1, -2]),
        };
        let golden = [
            1, 17, 1, 0, 1, 2, 3, 4, 5, 6, 7, 8, 0, 0, 0, 9, 0, 0, 0, 10, 0, 0, 0, 0, 0, 0, 0, 11, 0, 0, 0, 12, 1, 0,
            0xfe, 0xff,
        ];
        assert_eq!(frame.encode()[..], golden);
        assert_eq!(pcm_samples(&frame.payload).collect::<Vec<_>>(), [1, -2]);
    }

    #[test]
    fn the_kinds_keep_their_codes() {
        let codes: Vec<u8> = Kind::ALL.iter().map(|kind| *kind as u8).collect();
        assert_eq!(codes, [0, 1, 2, 3, 4, 5, 6, 7, 8, 16, 17, 18, 19, 20, 21, 22, 32, 33, 34, 35, 36, 37]);
    }

    #[test]
    fn what_is_no_frame_is_named() {
        let bytes = |text: &[u8]| Bytes::copy_from_slice(text);
        assert_eq!(Frame::decode(&bytes(&[1; 31])), Err(FrameError::Short(31)));
        assert_eq!(Frame::decode(&bytes(&[2; 32])), Err(FrameError::Version(2)));
        let mut unknown = vec![0; 32];
        unknown[..2].copy_from_slice(&[1, 99]);
        assert_eq!(Frame::decode(&bytes(&unknown)), Err(FrameError::Kind(99)));
        unknown.resize(HEADER_BYTES + MAX_PAYLOAD_BYTES + 1, 0);
        assert_eq!(Frame::decode(&bytes(&unknown)), Err(FrameError::Long(MAX_PAYLOAD_BYTES + 1)));
    }

    proptest! {
        #[test]
        fn a_frame_comes_back(
            (code, has_gap, is_probe) in (0..Kind::ALL.len(), any::<bool>(), any::<bool>()),
            (attempt, sequence, acknowledged, credit, elapsed_us) in any::<(u64, u32, u32, u64, u32)>(),
            payload in proptest::collection::vec(any::<u8>(), 0..100),
        ) {
            let payload = Bytes::from(payload);
            let kind = Kind::ALL[code];
            let frame = Frame { kind, has_gap, is_probe, attempt, sequence, acknowledged, credit, elapsed_us, payload };
            prop_assert_eq!(Frame::decode(&frame.encode()), Ok(frame));
        }

        #[test]
        fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = Frame::decode(&Bytes::from(bytes));
        }
    }
}
