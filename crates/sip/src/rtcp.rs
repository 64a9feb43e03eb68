//! RTCP (RFC 3550, section 6): reports about one stream in each direction, as bytes and sums.
//!
//! The media of a call writes [`Report`]s and reads those of its peer by [`read`]; [`Reception`] counts what arrives. No
//! clock: times are durations since any fixed time.

use crate::rtp::{self, Packet};
use bytes::{BufMut, Bytes, BytesMut};
use std::time::Duration;

/// Packet types.
const SENDER_REPORT: u8 = 200;
const RECEIVER_REPORT: u8 = 201;
const DESCRIPTION: u8 = 202;
const GOODBYE: u8 = 203;
/// The canonical name of a source, as an item of a description.
const CNAME: u8 = 1;
/// Bytes of a header with the sender, of what a sender reports of itself, and of a block.
const HEADER_BYTES: usize = 8;
const SENDER_BYTES: usize = 20;
const BLOCK_BYTES: usize = 24;
/// Packets of a compound packet that are read.
const MAX_PACKETS: usize = 16;
/// Beyond this jump of the numbers a stream begins anew.
const MAX_JUMP: u16 = 3_000;

/// What a sender says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SenderInfo {
    /// The time of the report: seconds since 1900, and their fraction.
    pub ntp: u64,
    /// The same time by the clock of its RTP timestamps.
    pub timestamp: u32,
    /// Packets sent so far, wrapping.
    pub n_packets: u32,
    /// Bytes of their payloads, wrapping.
    pub n_bytes: u32,
}

/// What one side says of a stream that it receives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReceptionReport {
    /// The stream.
    pub ssrc: u32,
    /// The part of packets that was lost since the last report, in 1/256.
    pub fraction_lost: u8,
    /// Packets lost so far; fewer than none where some came twice.
    pub n_lost: i32,
    /// The highest number, extended by its wraps.
    pub highest: u32,
    /// The jitter between arrivals, in ticks of the stream's clock.
    pub jitter: u32,
    /// The middle of [`SenderInfo::ntp`] of the last report; 0: there was none.
    pub last_report: u32,
    /// The time since that report, in 1/65,536 s.
    pub delay: u32,
}

/// A report of ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Report {
    /// The stream that we send.
    pub ssrc: u32,
    /// `None`: nothing was sent yet.
    pub sender: Option<SenderInfo>,
    /// `None`: nothing was received yet.
    pub reception: Option<ReceptionReport>,
    /// Whether our stream ends.
    pub is_last: bool,
}

/// What a peer reports.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PeerReport {
    /// Of the stream that it sends.
    pub sender: Option<SenderInfo>,
    /// Of the stream that it receives from us.
    pub reception: Option<ReceptionReport>,
}

impl Report {
    /// The bytes that go to the peer: a report, our name (printable, at most 255 bytes), and a goodbye at the end.
    pub fn write(&self, name: &str) -> Bytes {
        let mut bytes = BytesMut::with_capacity(128);
        let kind = if self.sender.is_some() { SENDER_REPORT } else { RECEIVER_REPORT };
        let n_sender = if self.sender.is_some() { SENDER_BYTES } else { 0 };
        let n_block = if self.reception.is_some() { BLOCK_BYTES } else { 0 };
        header(&mut bytes, u8::from(self.reception.is_some()), kind, HEADER_BYTES + n_sender + n_block);
        bytes.put_u32(self.ssrc);
        if let Some(SenderInfo { ntp, timestamp, n_packets, n_bytes }) = self.sender {
            bytes.put_u64(ntp);
            bytes.put_u32(timestamp);
            bytes.put_u32(n_packets);
            bytes.put_u32(n_bytes);
        }
        if let Some(report) = self.reception {
            bytes.put_u32(report.ssrc);
            let n_lost = report.n_lost.clamp(-0x80_0000, 0x7f_ffff) as u32 & 0xff_ffff;
            bytes.put_u32(u32::from(report.fraction_lost) << 24 | n_lost);
            bytes.put_u32(report.highest);
            bytes.put_u32(report.jitter);
            bytes.put_u32(report.last_report);
            bytes.put_u32(report.delay);
        }
        let name = name.as_bytes().get(..255).unwrap_or(name.as_bytes());
        // The items end with a zero, and the chunk on a border of four bytes.
        let n_items = (2 + name.len() + 1).next_multiple_of(4);
        header(&mut bytes, 1, DESCRIPTION, HEADER_BYTES + n_items);
        bytes.put_u32(self.ssrc);
        bytes.put_u8(CNAME);
        bytes.put_u8(name.len() as u8);
        bytes.put_slice(name);
        bytes.put_bytes(0, n_items - 2 - name.len());
        if self.is_last {
            header(&mut bytes, 1, GOODBYE, HEADER_BYTES);
            bytes.put_u32(self.ssrc);
        }
        bytes.freeze()
    }
}

fn header(bytes: &mut BytesMut, count: u8, kind: u8, n_bytes: usize) {
    bytes.put_u8(0x80 | count);
    bytes.put_u8(kind);
    bytes.put_u16((n_bytes / 4 - 1) as u16);
}

fn number(bytes: &[u8], at: usize) -> Option<u32> {
    let bytes = bytes.get(at..at + 4)?;
    Some(u32::from_be_bytes(bytes.try_into().ok()?))
}

/// Reads a compound packet: what it says of its sender, and of our stream `ours`. `None`: it is none. What is damaged ends
/// the reading.
pub fn read(bytes: &[u8], ours: u32) -> Option<PeerReport> {
    if !rtp::is_control(bytes) || bytes.len() > rtp::MAX_BYTES {
        return None;
    }
    let mut report = PeerReport::default();
    let mut rest = bytes;
    for _ in 0..MAX_PACKETS {
        let Some(&[first, kind, high, low]) = rest.first_chunk::<4>() else { break };
        let n_bytes = 4 * (usize::from(u16::from_be_bytes([high, low])) + 1);
        if first >> 6 != 2 || n_bytes > rest.len() {
            break;
        }
        let (packet, after) = rest.split_at(n_bytes);
        rest = after;
        let count = usize::from(first & 0x1f);
        let mut at = HEADER_BYTES;
        match kind {
            SENDER_REPORT => {
                report.sender = sender_info(packet).or(report.sender);
                at += SENDER_BYTES;
            }
            RECEIVER_REPORT => {}
            _ => continue,
        }
        let blocks = (0..count).filter_map(|n| block(packet, at + n * BLOCK_BYTES));
        report.reception = blocks.into_iter().find(|block| block.ssrc == ours).or(report.reception);
    }
    Some(report)
}

fn sender_info(packet: &[u8]) -> Option<SenderInfo> {
    let high = number(packet, 8)?;
    let low = number(packet, 12)?;
    Some(SenderInfo {
        ntp: u64::from(high) << 32 | u64::from(low),
        timestamp: number(packet, 16)?,
        n_packets: number(packet, 20)?,
        n_bytes: number(packet, 24)?,
    })
}

fn block(packet: &[u8], at: usize) -> Option<ReceptionReport> {
    let lost = number(packet, at + 4)?;
    Some(ReceptionReport {
        ssrc: number(packet, at)?,
        fraction_lost: (lost >> 24) as u8,
        // With the sign of its 24 bits.
        n_lost: (lost << 8) as i32 >> 8,
        highest: number(packet, at + 8)?,
        jitter: number(packet, at + 12)?,
        last_report: number(packet, at + 16)?,
        delay: number(packet, at + 20)?,
    })
}

/// A time since 1970 as NTP has it.
pub fn ntp(since_1970: Duration) -> u64 {
    /// From 1900 to 1970, in seconds.
    const EPOCH: u64 = 2_208_988_800;
    let seconds = (since_1970.as_secs() + EPOCH) & u64::from(u32::MAX);
    let fraction = (u64::from(since_1970.subsec_nanos()) << 32) / 1_000_000_000;
    seconds << 32 | fraction
}

/// The middle of a time: 16 bits of seconds, 16 of their fraction.
fn middle(ntp: u64) -> u32 {
    (ntp >> 16) as u32
}

/// The time that a packet takes to the peer and back, from its report about us that came at `ntp`. `None`: it has seen no
/// report of ours, or says something that cannot be.
pub fn round_trip(report: &ReceptionReport, ntp: u64) -> Option<Duration> {
    if report.last_report == 0 {
        return None;
    }
    let passed = middle(ntp).wrapping_sub(report.last_report).wrapping_sub(report.delay);
    // More than 9 h is a time before zero.
    (passed < 1 << 31).then(|| Duration::from_secs_f64(f64::from(passed) / 65_536.0))
}

/// What is received of one stream (RFC 3550, appendices A.1, A.3 and A.8).
#[derive(Clone, Debug)]
pub struct Reception {
    clock_hz: u32,
    stream: Option<Stream>,
}

#[derive(Clone, Debug)]
struct Stream {
    ssrc: u32,
    first: u32,
    /// Extended by its wraps.
    highest: u32,
    n_received: u32,
    /// Both at the last report.
    n_expected_before: u32,
    n_received_before: u32,
    /// Arrival less timestamp of the last packet, in ticks.
    transit: Option<u32>,
    /// In 1/16 tick.
    jitter: u32,
    /// The middle of the time in the peer's last report, and when it came.
    last_report: Option<(u32, Duration)>,
}

impl Stream {
    fn n_expected(&self) -> u32 {
        self.highest.wrapping_sub(self.first).wrapping_add(1)
    }

    fn n_lost(&self) -> i32 {
        self.n_expected().wrapping_sub(self.n_received) as i32
    }
}

impl Reception {
    /// Of a stream with timestamps of this rate, in Hz.
    pub fn new(clock_hz: u32) -> Self {
        Self { clock_hz, stream: None }
    }

    /// A packet came. `is_media`: its timestamp follows the time, which those of telephone events do not.
    pub fn packet(&mut self, packet: &Packet, is_media: bool, at: Duration) {
        let ahead = |stream: &Stream| packet.sequence.wrapping_sub(stream.highest as u16);
        let is_same = |stream: &&mut Stream| {
            let ahead = ahead(stream);
            stream.ssrc == packet.ssrc && (ahead < MAX_JUMP || ahead > MAX_JUMP.wrapping_neg())
        };
        let Some(stream) = self.stream.as_mut().filter(is_same) else {
            let first = u32::from(packet.sequence);
            self.stream = Some(Stream {
                ssrc: packet.ssrc,
                first,
                highest: first,
                n_received: 1,
                n_expected_before: 0,
                n_received_before: 0,
                transit: None,
                jitter: 0,
                last_report: None,
            });
            return;
        };
        let ahead = ahead(stream);
        if ahead < MAX_JUMP {
            stream.highest = stream.highest.wrapping_add(u32::from(ahead));
        }
        stream.n_received = stream.n_received.wrapping_add(1);
        if !is_media {
            return;
        }
        let arrival = (at.as_micros() * u128::from(self.clock_hz) / 1_000_000) as u32;
        let transit = arrival.wrapping_sub(packet.timestamp);
        if let Some(before) = stream.transit.replace(transit) {
            let distance = (transit.wrapping_sub(before) as i32).unsigned_abs().min(self.clock_hz);
            stream.jitter = stream.jitter.saturating_add(distance).saturating_sub((stream.jitter + 8) >> 4);
        }
    }

    /// The peer reported this of what it sends.
    pub fn sender_reported(&mut self, sender: &SenderInfo, at: Duration) {
        if let Some(stream) = &mut self.stream {
            stream.last_report = Some((middle(sender.ntp), at));
        }
    }

    /// What is to be reported at this time; the next report is about what follows. `None`: nothing came yet.
    pub fn report(&mut self, at: Duration) -> Option<ReceptionReport> {
        let stream = self.stream.as_mut()?;
        let n_expected = stream.n_expected();
        let expected = n_expected.wrapping_sub(std::mem::replace(&mut stream.n_expected_before, n_expected));
        let received =
            stream.n_received.wrapping_sub(std::mem::replace(&mut stream.n_received_before, stream.n_received));
        let lost = u64::from(expected.saturating_sub(received));
        let fraction_lost = if expected == 0 { 0 } else { (lost * 256 / u64::from(expected)).min(255) as u8 };
        let (last_report, came) = stream.last_report.unzip();
        let delay = came.map_or(0.0, |came| at.saturating_sub(came).as_secs_f64() * 65_536.0);
        Some(ReceptionReport {
            ssrc: stream.ssrc,
            fraction_lost,
            n_lost: stream.n_lost(),
            highest: stream.highest,
            jitter: stream.jitter >> 4,
            last_report: last_report.unwrap_or(0),
            delay: delay as u32,
        })
    }

    /// Packets of the stream that came, wrapping.
    pub fn n_received(&self) -> u32 {
        self.stream.as_ref().map_or(0, |stream| stream.n_received)
    }

    /// Packets of the stream that did not come.
    pub fn n_lost(&self) -> u32 {
        self.stream.as_ref().map_or(0, |stream| stream.n_lost().max(0) as u32)
    }

    /// The jitter between arrivals.
    pub fn jitter(&self) -> Duration {
        let ticks = self.stream.as_ref().map_or(0, |stream| stream.jitter >> 4);
        Duration::from_secs_f64(f64::from(ticks) / f64::from(self.clock_hz))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SENDER: SenderInfo = SenderInfo { ntp: 0x0102_0304_0506_0708, timestamp: 9, n_packets: 10, n_bytes: 11 };
    const BLOCK: ReceptionReport = ReceptionReport {
        ssrc: 7,
        fraction_lost: 12,
        n_lost: -2,
        highest: 70_000,
        jitter: 5,
        last_report: 0x0304_0506,
        delay: 65_536,
    };

    fn packet(sequence: u16, timestamp: u32) -> Packet {
        Packet { payload_type: 0, marker: false, sequence, timestamp, ssrc: 3, payload: Bytes::new() }
    }

    const fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn reports_come_back() {
        for (sender, reception, is_last) in [
            (Some(SENDER), Some(BLOCK), false),
            (None, Some(BLOCK), true),
            (Some(SENDER), None, true),
            (None, None, false),
        ] {
            for name in ["", "a", "four", "hub@192.0.2.1", &"x".repeat(300)] {
                let bytes = Report { ssrc: 3, sender, reception, is_last }.write(name);
                assert_eq!(bytes.len() % 4, 0);
                assert_eq!(read(&bytes, 7), Some(PeerReport { sender, reception }));
                assert_eq!(read(&bytes, 8).unwrap().reception, None, "of another stream");
                for end in 0..bytes.len() {
                    let _ = read(&bytes[..end], 7);
                }
            }
        }
        assert_eq!(read(&packet(1, 2).write(), 7), None, "RTP");
    }

    #[test]
    fn loss_and_jitter_are_those_of_the_rfc() {
        let mut reception = Reception::new(8_000);
        assert_eq!(reception.report(ms(0)), None);
        // The numbers wrap; two of ten are lost, and one comes late.
        for (n, at) in [(0u16, 0), (1, 20), (3, 60), (4, 80), (2, 85), (7, 140), (8, 160), (9, 180)] {
            reception.packet(&packet(65_533u16.wrapping_add(n), 160 * u32::from(n)), true, ms(at));
        }
        let first = reception.report(ms(200)).unwrap();
        assert_eq!((first.n_lost, first.fraction_lost, first.highest), (2, 51, 65_533 + 9));
        // The late one was 45 ms late: 360 ticks, twice, of which a 16th each counts and fades.
        assert!((20..45).contains(&first.jitter), "{}", first.jitter);
        for n in 10..20u16 {
            reception.packet(&packet(65_533u16.wrapping_add(n), 160 * u32::from(n)), true, ms(20 * u64::from(n)));
        }
        let second = reception.report(ms(400)).unwrap();
        assert_eq!((second.n_lost, second.fraction_lost), (2, 0), "none since");
        assert!(second.jitter < first.jitter);
        // Telephone events repeat their time.
        for n in 20..30u16 {
            reception.packet(&packet(65_533u16.wrapping_add(n), 7), false, ms(20 * u64::from(n)));
        }
        assert_eq!(reception.report(ms(600)).unwrap().jitter, second.jitter);
        assert_eq!((reception.n_received(), reception.n_lost()), (28, 2));
        reception.packet(&Packet { ssrc: 4, ..packet(9, 9) }, true, ms(620));
        assert_eq!((reception.n_received(), reception.n_lost()), (1, 0), "another stream");
    }

    #[test]
    fn the_way_there_and_back_is_measured() {
        let sent = ntp(Duration::from_millis(1_700_000_000_250));
        let mut reception = Reception::new(8_000);
        reception.packet(&packet(1, 1), true, ms(0));
        reception.sender_reported(&SenderInfo { ntp: sent, ..SENDER }, ms(1_000));
        let report = reception.report(ms(3_500)).unwrap();
        // 80 ms each way, and 2.5 s at the peer.
        let round = round_trip(&report, ntp(Duration::from_millis(1_700_000_002_910))).unwrap();
        assert!(round.abs_diff(ms(160)) < ms(1), "{round:?}");
        assert_eq!(round_trip(&ReceptionReport { last_report: 0, ..report }, sent), None);
        assert_eq!(round_trip(&ReceptionReport { delay: u32::MAX / 2, ..report }, sent), None, "before it was sent");
    }

    proptest! {
        #[test]
        fn no_bytes_and_no_packets_panic(
            data in proptest::collection::vec(any::<u8>(), 0..200),
            packets in proptest::collection::vec((any::<u16>(), any::<u32>(), 0u32..3, any::<u32>()), 0..40),
        ) {
            let mut bytes = vec![0x81, 200];
            bytes.extend(&data);
            let _ = read(&bytes, 1);
            let mut reception = Reception::new(48_000);
            for (sequence, timestamp, ssrc, at) in packets {
                let at = ms(u64::from(at));
                reception.packet(&Packet { ssrc, ..packet(sequence, timestamp) }, true, at);
                let report = reception.report(at).unwrap();
                prop_assert_eq!(read(&Report { ssrc: 1, sender: None, reception: Some(report), is_last: false }.write("x"), ssrc).unwrap().reception.unwrap().ssrc, ssrc);
            }
        }
    }
}
