//! RTCP of one call: what it reports to its peer every few seconds, and what its peer reports.
//!
//! [`super::media`] counts packets into it, gives it what arrives, and sends what it writes. The figures are shown with
//! the call.

use super::srtp::{SrtcpReceiver, SrtcpSender};
use crate::server::transport::calls::SharedFigures;
use antiphon_sip::rtcp::{self, Reception, Report, SenderInfo};
use antiphon_sip::rtp::{self, Packet};
use antiphon_sip::sdp::{Agreed, Srtp};
use bytes::Bytes;
use rand::RngExt;
use std::future::pending;
use std::io;
use std::net::SocketAddr;
use std::time::{Duration, SystemTime};
use tokio::net::UdpSocket;
use tokio::time::Instant;

/// Milliseconds between two reports: 5 s, half of it more or less (RFC 3550, section 6.2).
const INTERVAL_MS: std::ops::Range<u64> = 2_500..7_500;

/// What was sent of our stream.
#[derive(Clone, Copy, Debug)]
pub(super) struct SentStream {
    pub(super) n_packets: u32,
    /// Of payloads.
    pub(super) n_bytes: u32,
    /// Of the last packet, and when it was sent.
    pub(super) timestamp: u32,
    pub(super) at: Instant,
}

/// See the module.
pub(super) struct Reports {
    /// `None`: RTCP shares the port of RTP.
    socket: Option<UdpSocket>,
    buffer: Box<[u8; rtp::MAX_BYTES]>,
    /// Where the peer receives, if not at the port of RTP.
    remote: Option<SocketAddr>,
    protection: Option<(SrtcpSender, SrtcpReceiver)>,
    /// Our stream, its clock in Hz, and our name.
    ssrc: u32,
    clock_hz: u32,
    name: String,
    reception: Reception,
    began: Instant,
    /// Since 1970, when the call began.
    began_at: Duration,
    due: Instant,
    figures: SharedFigures,
    n_refused: u64,
}

impl Reports {
    /// `socket`: where RTCP comes if it does not share the port of RTP. `ssrc`: our stream.
    pub(super) fn new(socket: UdpSocket, agreed: &Agreed, ssrc: u32, figures: SharedFigures) -> Self {
        let began = Instant::now();
        figures.lock().expect("no panic while locked").encrypted = agreed.srtp.is_some();
        Self {
            socket: Some(socket).filter(|_| !agreed.has_mux),
            buffer: Box::new([0; rtp::MAX_BYTES]),
            remote: agreed.rtcp,
            protection: agreed.srtp.as_ref().map(protection),
            ssrc,
            clock_hz: agreed.codec.clock_hz(),
            name: format!("{:016x}", rand::random::<u64>()),
            reception: Reception::new(agreed.codec.clock_hz()),
            began,
            began_at: SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default(),
            due: began + interval(),
            figures,
            n_refused: 0,
        }
    }

    /// The description of the call has changed. `is_new_key`: the peer encrypts by another key.
    pub(super) fn changed(&mut self, agreed: &Agreed, is_new_key: bool) {
        self.remote = agreed.rtcp;
        if is_new_key && let (Some((_, receiver)), Some(srtp)) = (&mut self.protection, &agreed.srtp) {
            *receiver = SrtcpReceiver::new(&srtp.peers);
        }
    }

    /// A packet of RTP came. `is_media`: it is no telephone event. `n_refused`: how many were dropped by now.
    pub(super) fn packet(&mut self, packet: &Packet, is_media: bool, now: Instant) {
        self.reception.packet(packet, is_media, now.saturating_duration_since(self.began));
        let mut figures = self.figures.lock().expect("no panic while locked");
        figures.packets_received = self.reception.n_received();
        figures.packets_lost = self.reception.n_lost();
        figures.jitter_ms = milliseconds(self.reception.jitter());
    }

    /// A packet was dropped: it was not the peer's, or came before.
    pub(super) fn refused(&mut self) {
        self.n_refused += 1;
        self.figures.lock().expect("no panic while locked").packets_refused = self.n_refused;
    }

    /// When a report is due.
    pub(super) fn due(&self) -> Instant {
        self.due
    }

    /// Waits for a packet at the port of RTCP; its length, and where it comes from. Never, where that port is not used.
    /// Cancel safe.
    pub(super) async fn receive(&mut self) -> io::Result<(usize, SocketAddr)> {
        match &self.socket {
            Some(socket) => socket.recv_from(&mut self.buffer[..]).await,
            None => pending().await,
        }
    }

    /// Takes the packet that [`Reports::receive`] has waited for. What a peer sends from another port than it named is
    /// answered there, as RTP is.
    pub(super) fn take_received(&mut self, n_bytes: usize, source: SocketAddr, now: Instant) {
        let bytes = Bytes::copy_from_slice(&self.buffer[..n_bytes]);
        if self.take(&bytes, now) {
            self.remote = Some(source);
        }
    }

    /// Takes a packet of RTCP of the peer. `false`: it is none.
    pub(super) fn take(&mut self, bytes: &[u8], now: Instant) -> bool {
        let opened = match &mut self.protection {
            None => Ok(Bytes::copy_from_slice(bytes)),
            Some((_, receiver)) => receiver.open(bytes),
        };
        let Ok(packet) = opened else {
            self.refused();
            return false;
        };
        let Some(report) = rtcp::read(&packet, self.ssrc) else { return false };
        let at = now.saturating_duration_since(self.began);
        if let Some(sender) = &report.sender {
            self.reception.sender_reported(sender, at);
        }
        if let Some(reception) = &report.reception {
            let round_trip = rtcp::round_trip(reception, rtcp::ntp(self.began_at + at));
            let jitter = Duration::from_secs_f64(f64::from(reception.jitter) / f64::from(self.clock_hz));
            let mut figures = self.figures.lock().expect("no panic while locked");
            figures.peer_packets_lost = Some(reception.n_lost);
            figures.peer_jitter_ms = Some(milliseconds(jitter));
            figures.round_trip_ms = round_trip.map(milliseconds).or(figures.round_trip_ms);
        }
        true
    }

    /// Sends a report, with `rtp` where it shares the port. `is_last`: our stream ends. A full socket loses it.
    pub(super) fn send(&mut self, sent: Option<SentStream>, rtp: (&UdpSocket, Option<SocketAddr>), is_last: bool) {
        let now = Instant::now();
        self.due = now + interval();
        let at = now.saturating_duration_since(self.began);
        let sender = sent.map(|sent| {
            let passed = now.saturating_duration_since(sent.at).as_micros() * u128::from(self.clock_hz) / 1_000_000;
            SenderInfo {
                ntp: rtcp::ntp(self.began_at + at),
                timestamp: sent.timestamp.wrapping_add(passed as u32),
                n_packets: sent.n_packets,
                n_bytes: sent.n_bytes,
            }
        });
        let report = Report { ssrc: self.ssrc, sender, reception: self.reception.report(at), is_last };
        let packet = report.write(&self.name);
        let bytes = match &mut self.protection {
            None => packet,
            Some((sender, _)) => sender.protect(&packet),
        };
        let (socket, target) = self.socket.as_ref().map_or(rtp, |socket| (socket, self.remote));
        if let Some(target) = target {
            let _ = socket.try_send_to(&bytes, target);
        }
    }
}

fn protection(srtp: &Srtp) -> (SrtcpSender, SrtcpReceiver) {
    (SrtcpSender::new(&srtp.ours), SrtcpReceiver::new(&srtp.peers))
}

fn interval() -> Duration {
    Duration::from_millis(rand::rng().random_range(INTERVAL_MS))
}

/// With one decimal.
fn milliseconds(time: Duration) -> f64 {
    (time.as_secs_f64() * 10_000.0).round() / 10.0
}
