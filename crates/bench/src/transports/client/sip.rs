//! A phone that calls by SIP over UDP: mu-law at 8 kHz over RTP, heard when it arrives.

use super::{Received, phone};
use crate::BenchError;
use antiphon_audio::codec;
use antiphon_sip::rtp::{self, Packet};
use antiphon_sip::sdp::{self, Codec, Local, Protection};
use antiphon_sip::{Message, Method};
use antiphon_types::{Format, SampleRate, Samples};
use bytes::Bytes;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::net::UdpSocket;
use tokio::time::{Instant, timeout};

const RATE: SampleRate = SampleRate::HZ_8000;
/// The longest wait for an answer, and for a response before a request is sent again (RFC 3261, T1).
const ANSWERS_WITHIN: Duration = Duration::from_secs(10);
const RESEND: Duration = Duration::from_millis(500);
/// The longest message that is read.
const MAX_MESSAGE_BYTES: usize = 8_192;

/// See the module.
pub(in super::super) struct SipPhone {
    sip: UdpSocket,
    rtp: UdpSocket,
    hub: SocketAddr,
    /// Where the hub receives sound.
    target: SocketAddr,
    call_id: String,
    /// With the hub's tag.
    to: String,
    sequence: u16,
    timestamp: u32,
    /// When the hub's first packet came, and its timestamp.
    first: Option<(Instant, u32)>,
    /// From the INVITE to its answer.
    pub(in super::super) answered_after: Duration,
}

impl SipPhone {
    /// Calls the hub that listens for SIP at this address.
    pub(in super::super) async fn open(hub: SocketAddr) -> Result<Self, BenchError> {
        let sip = UdpSocket::bind("127.0.0.1:0").await.map_err(failed)?;
        let rtp = UdpSocket::bind("127.0.0.1:0").await.map_err(failed)?;
        let own = sip.local_addr().map_err(failed)?;
        let address = rtp.local_addr().map_err(failed)?;
        let mut phone = Self {
            sip,
            rtp,
            hub,
            target: hub,
            call_id: format!("{:016x}@{own}", rand::random::<u64>()),
            to: format!("<sip:+15550100@{hub}>"),
            sequence: rand::random(),
            timestamp: rand::random(),
            first: None,
            answered_after: Duration::ZERO,
        };
        let local = Local { address, codecs: &[Codec::Pcmu], session: 1, version: 1, protection: Protection::Off };
        let invite = phone.request(Method::Invite, 1, sdp::offer(local).into())?;
        let began = Instant::now();
        let answer =
            timeout(ANSWERS_WITHIN, phone.answer(&invite)).await.map_err(|_| failed("the hub does not answer"))??;
        phone.answered_after = began.elapsed();
        if answer.status() != Some(200) {
            return Err(failed(format!("the hub refused the call: {:?}", answer.status())));
        }
        answer.get("to").unwrap_or_default().clone_into(&mut phone.to);
        let agreed = sdp::read_answer(&answer.body, local).map_err(failed)?;
        phone.target = agreed.remote.ok_or_else(|| failed("the hub receives nowhere"))?;
        let acknowledgement = phone.request(Method::Ack, 1, Bytes::new())?;
        phone.sip.send_to(&acknowledgement, hub).await.map_err(failed)?;
        Ok(phone)
    }

    fn request(&self, method: Method, number: u32, body: Bytes) -> Result<Bytes, BenchError> {
        let own = self.sip.local_addr().map_err(failed)?;
        let mut request = Message::request(method.clone(), format!("sip:+15550100@{}", self.hub));
        request.add("via", format!("SIP/2.0/UDP {own};branch=z9hG4bK{}{method};rport", self.call_id));
        request.add("from", format!("<sip:+15550199@{own}>;tag=phone"));
        request.add("to", self.to.clone());
        request.add("call-id", self.call_id.clone());
        request.add("cseq", format!("{number} {method}"));
        request.add("contact", format!("<sip:phone@{own}>"));
        request.add("max-forwards", "70");
        if !body.is_empty() {
            request.add("content-type", "application/sdp");
        }
        request.body = body;
        Ok(request.write())
    }

    /// Sends an INVITE until its final response comes.
    async fn answer(&self, invite: &[u8]) -> Result<Message, BenchError> {
        let mut buffer = [0; MAX_MESSAGE_BYTES];
        let mut is_proceeding = false;
        loop {
            if !is_proceeding {
                self.sip.send_to(invite, self.hub).await.map_err(failed)?;
            }
            let received = timeout(RESEND, self.sip.recv_from(&mut buffer)).await;
            let Ok(received) = received else { continue };
            let (n, _) = received.map_err(failed)?;
            let Ok(message) = Message::parse(&buffer[..n]) else { continue };
            match message.status() {
                Some(100..200) => is_proceeding = true,
                Some(_) => return Ok(message),
                None => {}
            }
        }
    }

    pub(super) fn speak(&mut self, frame: &Bytes) -> Result<(), BenchError> {
        let packet = Packet {
            payload_type: 0,
            marker: false,
            sequence: self.sequence,
            timestamp: self.timestamp,
            ssrc: 1,
            payload: frame.clone(),
        };
        self.sequence = self.sequence.wrapping_add(1);
        self.timestamp = self.timestamp.wrapping_add(phone::FRAME as u32);
        // A full socket loses it, as a network would.
        let _ = self.rtp.try_send_to(&packet.write(), self.target);
        Ok(())
    }

    pub(super) async fn next(&mut self) -> Result<Received, BenchError> {
        let mut message = [0; MAX_MESSAGE_BYTES];
        let mut sound = [0; rtp::MAX_BYTES];
        loop {
            tokio::select! {
                received = self.rtp.recv_from(&mut sound) => {
                    let (n, _) = received.map_err(failed)?;
                    let Some(packet) = Packet::parse(&sound[..n]) else { continue };
                    let now = Instant::now();
                    let (began, first) = *self.first.get_or_insert((now, packet.timestamp));
                    let ticks = packet.timestamp.wrapping_sub(first) as i32;
                    let mut samples = Vec::new();
                    codec::decode(Format::Ulaw, &packet.payload, &mut samples).map_err(failed)?;
                    // A packet that is early waits for its time.
                    let plays_at = (began + Samples(ticks.max(0) as u64).duration(RATE)).max(now);
                    return Ok(Received::Sound { samples, rate: RATE, plays_at: Some(plays_at) });
                }
                received = self.sip.recv_from(&mut message) => {
                    let (n, _) = received.map_err(failed)?;
                    let method = Message::parse(&message[..n]).ok().and_then(|message| message.method());
                    if method == Some(Method::Bye) {
                        return Err(failed("the hub hung up"));
                    }
                }
            }
        }
    }

    /// Hangs up and waits for the hub's response, a second at most.
    pub(super) async fn close(self) {
        let Ok(bye) = self.request(Method::Bye, 2, Bytes::new()) else { return };
        let _ = timeout(Duration::from_secs(1), self.answer(&bye)).await;
    }
}

fn failed(why: impl ToString) -> BenchError {
    BenchError::Call(why.to_string())
}
