//! SRTP and SRTCP (RFC 3711): AES in counter mode with HMAC-SHA1, by the keys of a call's descriptions (RFC 4568).
//!
//! [`super::media`] protects what it sends and opens what it receives. The cipher and the hash are those of WebRTC.
//! Keys are derived once: without a key derivation rate, and without master key identifiers.

use antiphon_sip::sdp::{MasterKey, Suite};
use bytes::Bytes;
use str0m::crypto::{Aes128CmSha1_80, Aes128CmSha1_80Cipher, Sha1HmacProvider, from_feature_flags};
use subtle::ConstantTimeEq;

/// Labels of the key derivation (RFC 3711, section 4.3.2): of RTP, and of RTCP.
const RTP_LABELS: [u8; 3] = [0, 1, 2];
const RTCP_LABELS: [u8; 3] = [3, 4, 5];
/// The header of RTP that is always there, and that of RTCP with its sender.
const RTP_HEADER_BYTES: usize = 12;
const RTCP_HEADER_BYTES: usize = 8;
/// The index behind an RTCP packet, and its bit that says that the packet is encrypted.
const INDEX_BYTES: usize = 4;
const ENCRYPTED: u32 = 1 << 31;
/// The tag of RTCP is the long one in both suites (RFC 4568, section 6.2.2).
const RTCP_TAG_BYTES: usize = 10;
/// Streams of one key that are known: a peer may begin a new one with each transfer or announcement. Only authenticated
/// packets begin one. Packets of more are dropped.
const MAX_STREAMS: usize = 256;
/// Packets before the newest one that may still come (RFC 3711, section 3.3.2, asks for 64 at least).
const WINDOW: u64 = 128;

/// Why a packet is dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum SrtpError {
    #[error("the packet is too short")]
    Short,
    #[error("the packet came before, or is older than the window")]
    Replayed,
    #[error("the authentication tag is wrong")]
    WrongTag,
    #[error("the peer began too many streams")]
    TooManyStreams,
}

/// The keys of RTP or of RTCP in one direction.
struct SessionKeys {
    cipher: Box<dyn Aes128CmSha1_80Cipher>,
    salt: [u8; 14],
    authentication: [u8; 20],
    hash: &'static dyn Sha1HmacProvider,
}

/// Protects the packets of one stream.
pub(super) struct SrtpSender {
    rtp: SessionKeys,
    tag_bytes: usize,
    /// The index of the newest packet: how often the sequence number has wrapped, and the number.
    newest: Option<u64>,
}

/// Opens the packets of a peer.
pub(super) struct SrtpReceiver {
    rtp: SessionKeys,
    tag_bytes: usize,
    streams: Vec<(u32, ReplayWindow)>,
}

/// Protects the reports of one side.
pub(super) struct SrtcpSender {
    keys: SessionKeys,
    /// Of the next one.
    index: u32,
}

/// Opens the reports of a peer.
pub(super) struct SrtcpReceiver {
    keys: SessionKeys,
    streams: Vec<(u32, ReplayWindow)>,
}

/// Which of the last packets of a stream came.
#[derive(Clone, Copy, Default)]
struct ReplayWindow {
    newest: u64,
    /// Bit `n`: the packet `n` before the newest one came.
    seen: u128,
}

impl ReplayWindow {
    fn is_new(self, index: u64) -> bool {
        match self.newest.checked_sub(index) {
            None => true,
            Some(age) => age < WINDOW && self.seen & (1 << age) == 0,
        }
    }

    fn take(&mut self, index: u64) {
        match index.checked_sub(self.newest) {
            Some(ahead) if ahead < WINDOW => self.seen = self.seen << ahead | 1,
            Some(_) => self.seen = 1,
            None => self.seen |= 1 << (self.newest - index),
        }
        self.newest = self.newest.max(index);
    }
}

/// The index of the packet with this number that is the nearest to `newest` (RFC 3711, appendix A).
fn index_of(sequence: u16, newest: u64) -> u64 {
    let distance = i64::from(sequence.wrapping_sub(newest as u16) as i16);
    let index = newest.saturating_add_signed(distance);
    // Before the first wrap there is nothing to go back to.
    if index as u16 == sequence { index } else { u64::from(sequence) }
}

impl SessionKeys {
    fn derive(master: &MasterKey, labels: [u8; 3]) -> Self {
        let provider = from_feature_flags();
        let ciphers = provider.srtp_provider.aes_128_cm_sha1_80();
        let mut derivation = ciphers.create_cipher(master.key(), true);
        let mut derive = |label: u8, key: &mut [u8]| {
            let mut counter = [0; 16];
            counter[..14].copy_from_slice(&master.salt());
            counter[7] ^= label;
            let zeros = [0; 20];
            // The lengths are right.
            let _ = derivation.encrypt(&counter, &zeros[..key.len()], key);
        };
        let mut key = [0; 16];
        let mut authentication = [0; 20];
        let mut salt = [0; 14];
        derive(labels[0], &mut key);
        derive(labels[1], &mut authentication);
        derive(labels[2], &mut salt);
        let cipher = ciphers.create_cipher(key, true);
        Self { cipher, salt, authentication, hash: provider.sha1_hmac_provider }
    }

    /// Encrypts or decrypts: the same in counter mode.
    fn apply(&mut self, ssrc: u32, index: u64, input: &[u8]) -> Vec<u8> {
        let counter = Aes128CmSha1_80::rtp_iv(self.salt, ssrc, index);
        let mut output = vec![0; input.len()];
        // The lengths are right.
        let _ = self.cipher.encrypt(&counter, input, &mut output);
        output
    }

    fn tag(&self, parts: &[&[u8]]) -> [u8; 20] {
        self.hash.sha1_hmac(&self.authentication, parts)
    }
}

fn number(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

/// The length of an RTP header with its sources and its extension; `None`: the packet ends before.
fn header_bytes(packet: &[u8]) -> Option<usize> {
    let first = *packet.first()?;
    let mut n = RTP_HEADER_BYTES + 4 * usize::from(first & 0x0f);
    if first & 0x10 != 0 {
        let extension = packet.get(n..n + 4)?;
        n += 4 + 4 * usize::from(u16::from_be_bytes([extension[2], extension[3]]));
    }
    (n <= packet.len()).then_some(n)
}

impl SrtpSender {
    pub(super) fn new(suite: Suite, key: &MasterKey) -> Self {
        Self { rtp: SessionKeys::derive(key, RTP_LABELS), tag_bytes: suite.tag_bytes(), newest: None }
    }

    /// The bytes that go to the peer, for an RTP packet of ours. Its numbers rise by less than half their range.
    pub(super) fn protect(&mut self, packet: &[u8]) -> Bytes {
        let Some(header) = header_bytes(packet) else { return Bytes::new() };
        let sequence = u16::from_be_bytes([packet[2], packet[3]]);
        let index = self.newest.map_or(u64::from(sequence), |newest| index_of(sequence, newest));
        self.newest = Some(index);
        let payload = self.rtp.apply(number(packet, 8), index, &packet[header..]);
        let mut bytes = Vec::with_capacity(packet.len() + self.tag_bytes);
        bytes.extend_from_slice(&packet[..header]);
        bytes.extend_from_slice(&payload);
        let n_wraps = (index >> 16) as u32;
        let tag = self.rtp.tag(&[&bytes, &n_wraps.to_be_bytes()]);
        bytes.extend_from_slice(&tag[..self.tag_bytes]);
        bytes.into()
    }
}

impl SrtpReceiver {
    pub(super) fn new(suite: Suite, key: &MasterKey) -> Self {
        Self { rtp: SessionKeys::derive(key, RTP_LABELS), tag_bytes: suite.tag_bytes(), streams: Vec::new() }
    }

    /// The RTP packet in what a peer sent. A packet that is refused changes nothing.
    ///
    /// # Errors
    /// [`SrtpError`].
    pub(super) fn open(&mut self, bytes: &[u8]) -> Result<Bytes, SrtpError> {
        let end = bytes.len().checked_sub(self.tag_bytes).ok_or(SrtpError::Short)?;
        let (packet, tag) = bytes.split_at(end);
        let header = header_bytes(packet).ok_or(SrtpError::Short)?;
        let ssrc = number(packet, 8);
        let sequence = u16::from_be_bytes([packet[2], packet[3]]);
        let known = window(&self.streams, ssrc)?;
        let index = known.map_or(u64::from(sequence), |window| index_of(sequence, window.newest));
        if known.is_some_and(|window| !window.is_new(index)) {
            return Err(SrtpError::Replayed);
        }
        let n_wraps = (index >> 16) as u32;
        let expected = self.rtp.tag(&[packet, &n_wraps.to_be_bytes()]);
        if !bool::from(expected[..self.tag_bytes].ct_eq(tag)) {
            return Err(SrtpError::WrongTag);
        }
        take(&mut self.streams, ssrc, index);
        let payload = self.rtp.apply(ssrc, index, &packet[header..]);
        Ok([&packet[..header], &payload].concat().into())
    }
}

impl SrtcpSender {
    pub(super) fn new(key: &MasterKey) -> Self {
        Self { keys: SessionKeys::derive(key, RTCP_LABELS), index: 0 }
    }

    /// The bytes that go to the peer, for an RTCP packet of ours.
    pub(super) fn protect(&mut self, packet: &[u8]) -> Bytes {
        if packet.len() < RTCP_HEADER_BYTES {
            return Bytes::new();
        }
        let index = self.index;
        // 31 bits: with a report each 2.5 s they last for 170 years.
        self.index = index.wrapping_add(1) & !ENCRYPTED;
        let body = self.keys.apply(number(packet, 4), u64::from(index), &packet[RTCP_HEADER_BYTES..]);
        let mut bytes = Vec::with_capacity(packet.len() + INDEX_BYTES + RTCP_TAG_BYTES);
        bytes.extend_from_slice(&packet[..RTCP_HEADER_BYTES]);
        bytes.extend_from_slice(&body);
        bytes.extend_from_slice(&(index | ENCRYPTED).to_be_bytes());
        let tag = self.keys.tag(&[&bytes]);
        bytes.extend_from_slice(&tag[..RTCP_TAG_BYTES]);
        bytes.into()
    }
}

impl SrtcpReceiver {
    pub(super) fn new(key: &MasterKey) -> Self {
        Self { keys: SessionKeys::derive(key, RTCP_LABELS), streams: Vec::new() }
    }

    /// The RTCP packet in what a peer sent. A packet that is refused changes nothing.
    ///
    /// # Errors
    /// [`SrtpError`].
    pub(super) fn open(&mut self, bytes: &[u8]) -> Result<Bytes, SrtpError> {
        let end = bytes.len().checked_sub(RTCP_TAG_BYTES).ok_or(SrtpError::Short)?;
        let (authenticated, tag) = bytes.split_at(end);
        let end = end.checked_sub(INDEX_BYTES).filter(|end| *end >= RTCP_HEADER_BYTES).ok_or(SrtpError::Short)?;
        let packet = &authenticated[..end];
        let field = number(authenticated, end);
        let index = u64::from(field & !ENCRYPTED);
        let ssrc = number(packet, 4);
        if window(&self.streams, ssrc)?.is_some_and(|window| !window.is_new(index)) {
            return Err(SrtpError::Replayed);
        }
        let expected = self.keys.tag(&[authenticated]);
        if !bool::from(expected[..RTCP_TAG_BYTES].ct_eq(tag)) {
            return Err(SrtpError::WrongTag);
        }
        take(&mut self.streams, ssrc, index);
        if field & ENCRYPTED == 0 {
            return Ok(Bytes::copy_from_slice(packet));
        }
        let body = self.keys.apply(ssrc, index, &packet[RTCP_HEADER_BYTES..]);
        Ok([&packet[..RTCP_HEADER_BYTES], &body].concat().into())
    }
}

/// The window of a stream; `None`: it is a new one.
fn window(streams: &[(u32, ReplayWindow)], ssrc: u32) -> Result<Option<ReplayWindow>, SrtpError> {
    let known = streams.iter().find(|(known, _)| *known == ssrc).map(|(_, window)| *window);
    if known.is_none() && streams.len() >= MAX_STREAMS {
        return Err(SrtpError::TooManyStreams);
    }
    Ok(known)
}

/// Notes that a packet came.
fn take(streams: &mut Vec<(u32, ReplayWindow)>, ssrc: u32, index: u64) {
    match streams.iter_mut().find(|(known, _)| *known == ssrc) {
        Some((_, window)) => window.take(index),
        None => streams.push((ssrc, ReplayWindow { newest: index, seen: 1 })),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use antiphon_sip::rtp::Packet;
    use proptest::prelude::*;

    fn bytes(hex: &str) -> Vec<u8> {
        let digits: Vec<_> = hex.chars().filter(|c| !c.is_whitespace()).collect();
        digits.chunks(2).map(|pair| u8::from_str_radix(&String::from_iter(pair), 16).unwrap()).collect()
    }

    /// The master key of RFC 3711, appendix B.3.
    fn master() -> MasterKey {
        let text = "E1F97A0D3E018BE0D64FA32C06DE4139 0EC675AD498AFEEBB6960B3AABE6";
        MasterKey::new(bytes(text).try_into().unwrap())
    }

    fn packet(sequence: u16, ssrc: u32) -> Bytes {
        let payload = Bytes::from(sequence.to_be_bytes().repeat(80));
        Packet { payload_type: 0, marker: false, sequence, timestamp: 7, ssrc, payload }.write()
    }

    fn both(suite: Suite) -> (SrtpSender, SrtpReceiver) {
        (SrtpSender::new(suite, &master()), SrtpReceiver::new(suite, &master()))
    }

    #[test]
    fn keys_are_derived_as_the_rfc_does() {
        let keys = SessionKeys::derive(&master(), RTP_LABELS);
        assert_eq!(keys.salt.to_vec(), bytes("30CBBC08863D8C85D49DB34A9AE1"));
        assert_eq!(keys.authentication.to_vec(), bytes("CEBE321F6FF7716B6FD4AB49AF256A156D38BAA4"));
    }

    /// The packets of libsrtp's own tests.
    #[test]
    fn packets_are_those_of_another_implementation() {
        let (mut sender, mut receiver) = both(Suite::AesCmHmacSha1_80);
        let plain = bytes("800f1234decafbadcafebabe abababababababababababababababab");
        let protected = bytes("800f1234decafbadcafebabe 4e55dc4ce79978d88ca4d215949d2402 b78d6acc99ea179b8dbb");
        assert_eq!(sender.protect(&plain), protected);
        assert_eq!(receiver.open(&protected).unwrap(), plain);
    }

    #[test]
    fn reports_are_those_of_another_implementation() {
        let mut sender = SrtcpSender::new(&master());
        let mut receiver = SrtcpReceiver::new(&master());
        let plain = bytes("81c8000bcafebabe abababababababababababababababab");
        let protected = bytes("81c8000bcafebabe 7128035be487b9bdbef89041f977a5a8 80000001 993e08cd54d6c1230798");
        let first = sender.protect(&plain);
        assert_eq!(sender.protect(&plain), protected);
        let mut wrong = protected.clone();
        wrong[12] ^= 1;
        assert_eq!(receiver.open(&wrong), Err(SrtpError::WrongTag));
        assert_eq!(receiver.open(&protected).unwrap(), plain);
        assert_eq!(receiver.open(&protected), Err(SrtpError::Replayed));
        assert_eq!(receiver.open(&first).unwrap(), plain, "late");
    }

    #[test]
    fn what_was_changed_or_comes_again_is_dropped_and_changes_nothing() {
        for suite in Suite::ALL {
            let (mut sender, mut receiver) = both(suite);
            let first = sender.protect(&packet(1, 9));
            assert_eq!(first.len(), packet(1, 9).len() + suite.tag_bytes());
            for at in [0, 1, 3, 5, 9, 20, first.len() - 1] {
                let mut wrong = first.to_vec();
                wrong[at] ^= 1;
                assert!(receiver.open(&wrong).is_err(), "byte {at}");
            }
            for end in 0..first.len() {
                assert!(receiver.open(&first[..end]).is_err(), "{end} bytes");
            }
            assert_eq!(receiver.open(&first).unwrap(), packet(1, 9));
            assert_eq!(receiver.open(&first), Err(SrtpError::Replayed));
            let mut other = SrtpSender::new(suite, &MasterKey::new([1; 30]));
            assert_eq!(receiver.open(&other.protect(&packet(2, 9))), Err(SrtpError::WrongTag));
            let later: Vec<_> = (2..200).map(|number| sender.protect(&packet(number, 9))).collect();
            let (old, recent) = later.split_at(100);
            recent.iter().for_each(|bytes| assert!(receiver.open(bytes).is_ok()));
            assert!(receiver.open(&old[99]).is_ok(), "late, but within the window");
            assert_eq!(receiver.open(&old[99]), Err(SrtpError::Replayed));
            assert_eq!(receiver.open(&old[0]), Err(SrtpError::Replayed), "older than the window");
        }
    }

    #[test]
    fn numbers_wrap_and_a_recording_from_before_is_not_taken_again() {
        let (mut sender, mut receiver) = both(Suite::AesCmHmacSha1_80);
        let mut first = None;
        for step in 0..140_000u32 {
            let number = (65_000 + step) as u16;
            let protected = sender.protect(&packet(number, 9));
            // One in seven is lost.
            if step % 7 != 3 {
                assert_eq!(receiver.open(&protected).unwrap(), packet(number, 9), "step {step}");
            }
            first.get_or_insert(protected);
        }
        assert!(receiver.open(&first.unwrap()).is_err());
    }

    #[test]
    fn a_peer_begins_256_streams_and_no_more() {
        let (_, mut receiver) = both(Suite::AesCmHmacSha1_32);
        for ssrc in 0..257 {
            // Each stream of a peer begins by itself.
            let mut sender = SrtpSender::new(Suite::AesCmHmacSha1_32, &master());
            let opened = receiver.open(&sender.protect(&packet(60_000, ssrc)));
            let expected = if ssrc < 256 { Ok(packet(60_000, ssrc)) } else { Err(SrtpError::TooManyStreams) };
            assert_eq!(opened, expected, "stream {ssrc}");
        }
    }

    proptest! {
        #[test]
        fn no_bytes_panic(data in proptest::collection::vec(any::<u8>(), 0..80)) {
            let (mut sender, mut receiver) = both(Suite::AesCmHmacSha1_80);
            prop_assert!(receiver.open(&data).is_err());
            prop_assert!(SrtcpReceiver::new(&master()).open(&data).is_err());
            SrtcpSender::new(&master()).protect(&data);
            sender.protect(&data);
        }
    }
}
