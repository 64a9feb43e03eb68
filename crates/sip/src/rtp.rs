//! RTP packets (RFC 3550) and telephone events (RFC 4733): bytes only, no clock and no order.

use bytes::{BufMut, Bytes, BytesMut};

/// Bytes of the header that we send.
pub const HEADER_BYTES: usize = 12;
/// The longest packet that is read: Ethernet's, and some room.
pub const MAX_BYTES: usize = 2_048;

/// A packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Packet {
    /// How the payload is coded.
    pub payload_type: u8,
    /// Begins a talk spurt.
    pub marker: bool,
    /// Counts packets, wrapping.
    pub sequence: u16,
    /// Of the first sample, by the codec's clock, wrapping.
    pub timestamp: u32,
    /// The stream.
    pub ssrc: u32,
    /// The payload.
    pub payload: Bytes,
}

impl Packet {
    /// Reads a packet. `None`: it is none, or RTCP on the same port.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        if bytes.len() < HEADER_BYTES || bytes.len() > MAX_BYTES || bytes[0] >> 6 != 2 {
            return None;
        }
        if is_control(bytes) {
            return None;
        }
        let n_sources = usize::from(bytes[0] & 0x0f);
        let mut start = HEADER_BYTES + 4 * n_sources;
        if bytes[0] & 0x10 != 0 {
            let extension = bytes.get(start..start + 4)?;
            start += 4 + 4 * usize::from(u16::from_be_bytes([extension[2], extension[3]]));
        }
        let mut end = bytes.len();
        if bytes[0] & 0x20 != 0 {
            let padding = usize::from(*bytes.last()?);
            if padding == 0 {
                return None;
            }
            end = end.checked_sub(padding)?;
        }
        let payload = bytes.get(start..end)?;
        Some(Self {
            payload_type: bytes[1] & 0x7f,
            marker: bytes[1] & 0x80 != 0,
            sequence: u16::from_be_bytes([bytes[2], bytes[3]]),
            timestamp: u32::from_be_bytes([bytes[4], bytes[5], bytes[6], bytes[7]]),
            ssrc: u32::from_be_bytes([bytes[8], bytes[9], bytes[10], bytes[11]]),
            payload: Bytes::copy_from_slice(payload),
        })
    }

    /// The bytes that go to the peer.
    pub fn write(&self) -> Bytes {
        let mut bytes = BytesMut::with_capacity(HEADER_BYTES + self.payload.len());
        bytes.put_u8(0x80);
        bytes.put_u8(self.payload_type & 0x7f | u8::from(self.marker) << 7);
        bytes.put_u16(self.sequence);
        bytes.put_u32(self.timestamp);
        bytes.put_u32(self.ssrc);
        bytes.put_slice(&self.payload);
        bytes.freeze()
    }
}

/// Whether it is RTCP on the same port: its packet types stand where RTP has marker and payload type (RFC 5761, section 4).
pub fn is_control(bytes: &[u8]) -> bool {
    bytes.get(1).is_some_and(|kind| (192..=223).contains(kind))
}

/// The key of a telephone event's payload; `None`: it is none, or of another tone.
pub fn key_of_event(payload: &[u8]) -> Option<char> {
    if payload.len() < 4 {
        return None;
    }
    b"0123456789*#ABCD".get(usize::from(payload[0])).map(|byte| char::from(*byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_come_back() {
        let payload = Bytes::from_static(&[1, 2, 3]);
        let packet = Packet { payload_type: 111, marker: true, sequence: 65_535, timestamp: 9, ssrc: 7, payload };
        assert_eq!(Packet::parse(&packet.write()), Some(packet));
    }

    #[test]
    fn sources_extensions_and_padding_are_no_payload() {
        let mut bytes = vec![0xb1, 8, 0, 1, 0, 0, 0, 2, 0, 0, 0, 3];
        bytes.extend([9; 4]);
        bytes.extend([0, 0, 0, 1, 8, 8, 8, 8]);
        bytes.extend([5, 6, 0, 2]);
        assert_eq!(&Packet::parse(&bytes).unwrap().payload[..], [5, 6]);
        for end in 0..bytes.len() {
            let _ = Packet::parse(&bytes[..end]);
        }
        bytes[1] = 200;
        assert_eq!(Packet::parse(&bytes), None, "RTCP");
    }

    #[test]
    fn events_name_keys() {
        assert_eq!(key_of_event(&[11, 0x8a, 3, 0x20]), Some('#'));
        assert_eq!(key_of_event(&[16, 0, 0, 0]), None, "a hook flash is no key");
        assert_eq!(key_of_event(&[1]), None);
    }
}
