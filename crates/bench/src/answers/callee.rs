//! A phone that the hub calls by SIP over UDP: it answers with mu-law and plays what it is given as RTP.
//!
//! [`super::calling`] owns one for each call at a time. What the hub says is not listened to: its packets stay in the
//! socket's buffer, and are lost once that is full.

use super::sound::FRAME;
use crate::BenchError;
use antiphon_sip::rtp::Packet;
use antiphon_sip::sdp::{self, Codec, Local, Protection};
use antiphon_sip::{Message, Method, StartLine};
use bytes::Bytes;
use std::net::{Ipv4Addr, SocketAddr};
use tokio::net::UdpSocket;

/// The longest message that is read.
const MAX_MESSAGE_BYTES: usize = 8_192;

/// See the module.
pub(super) struct Callee {
    sip: UdpSocket,
    address: SocketAddr,
    /// The `Call-ID` of the call that was answered last.
    call_id: Option<String>,
    /// The response that answered it.
    accepted: Bytes,
}

/// The sound of a call that was answered, in one direction.
pub(super) struct OpenLine {
    rtp: UdpSocket,
    /// Where the hub receives.
    target: SocketAddr,
    sequence: u16,
    timestamp: u32,
}

impl Callee {
    /// A phone at a free port of this machine.
    ///
    /// # Errors
    /// There is no free port.
    pub(super) async fn bind() -> Result<Self, BenchError> {
        let sip = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await.map_err(failed)?;
        let address = sip.local_addr().map_err(failed)?;
        Ok(Self { sip, address, call_id: None, accepted: Bytes::new() })
    }

    /// Where it is called.
    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Waits for a call to this number and answers it; another one is busy. Waits without end.
    ///
    /// # Errors
    /// The hub's offer cannot be answered, or a socket fails.
    pub(super) async fn pick_up(&mut self, number: &str) -> Result<OpenLine, BenchError> {
        loop {
            let (message, from) = self.receive().await?;
            if self.is_new(&message) {
                if calls(&message, number) {
                    return self.answer(&message, from).await;
                }
                let busy = message.answer(486, "Busy Here", Some("callee")).write();
                self.send(&busy, from);
                continue;
            }
            self.respond(&message, from);
        }
    }

    /// Takes the hub's next message and answers it; `true`: the hub hangs up. Cancel safe.
    ///
    /// # Errors
    /// The socket fails.
    pub(super) async fn serve(&self) -> Result<bool, BenchError> {
        let (message, from) = self.receive().await?;
        Ok(self.respond(&message, from))
    }

    async fn receive(&self) -> Result<(Message, SocketAddr), BenchError> {
        let mut buffer = [0; MAX_MESSAGE_BYTES];
        loop {
            let (n, from) = self.sip.recv_from(&mut buffer).await.map_err(failed)?;
            if let Ok(message) = Message::parse(&buffer[..n]) {
                return Ok((message, from));
            }
        }
    }

    /// Whether a message begins a call that was not answered yet.
    fn is_new(&self, message: &Message) -> bool {
        let is_invite = message.status().is_none() && message.method() == Some(Method::Invite);
        is_invite && message.get("call-id") != self.call_id.as_deref()
    }

    /// Answers a message that begins no call; `true`: the hub hangs up.
    fn respond(&self, message: &Message, from: SocketAddr) -> bool {
        if message.status().is_some() {
            return false;
        }
        match message.method() {
            None | Some(Method::Ack) => false,
            Some(Method::Invite) => {
                // It was sent again.
                self.send(&self.accepted, from);
                false
            }
            Some(method) => {
                self.send(&message.answer(200, "OK", None).write(), from);
                method == Method::Bye
            }
        }
    }

    /// A full socket loses a response, as a network would: the request comes again.
    fn send(&self, bytes: &[u8], to: SocketAddr) {
        let _ = self.sip.try_send_to(bytes, to);
    }

    async fn answer(&mut self, invite: &Message, from: SocketAddr) -> Result<OpenLine, BenchError> {
        let rtp = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await.map_err(failed)?;
        let address = rtp.local_addr().map_err(failed)?;
        let local = Local { address, codecs: &[Codec::Pcmu], session: 1, version: 1, protection: Protection::Off };
        let (description, agreed) = sdp::answer(&invite.body, local).map_err(failed)?;
        let target = agreed.remote.ok_or_else(|| failed("the hub receives nowhere"))?;
        let mut response = invite.answer(200, "OK", Some("callee"));
        response.add("contact", format!("<sip:callee@{}>", self.address));
        response.add("content-type", "application/sdp");
        response.body = description.into();
        self.accepted = response.write();
        self.call_id = invite.get("call-id").map(str::to_owned);
        self.sip.send_to(&self.accepted, from).await.map_err(failed)?;
        Ok(OpenLine { rtp, target, sequence: rand::random(), timestamp: rand::random() })
    }
}

impl OpenLine {
    /// Sends the next frame of mu-law.
    pub(super) fn play(&mut self, frame: Bytes) {
        let packet = Packet {
            payload_type: 0,
            marker: false,
            sequence: self.sequence,
            timestamp: self.timestamp,
            ssrc: 1,
            payload: frame,
        };
        self.sequence = self.sequence.wrapping_add(1);
        self.timestamp = self.timestamp.wrapping_add(FRAME as u32);
        // A full socket loses it, as a network would.
        let _ = self.rtp.try_send_to(&packet.write(), self.target);
    }
}

/// Whether an INVITE is for this number.
fn calls(invite: &Message, number: &str) -> bool {
    match &invite.start {
        StartLine::Request { uri, .. } => uri.starts_with(&format!("sip:{number}@")),
        StartLine::Response { .. } => false,
    }
}

fn failed(why: impl ToString) -> BenchError {
    BenchError::Call(why.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;
    use tokio::time::timeout;

    const TEST_TIMEOUT: Duration = Duration::from_secs(10);

    /// What a hub sends from this socket.
    fn request(hub: &UdpSocket, method: Method, number: &str, body: String) -> Bytes {
        let own = hub.local_addr().expect("bound");
        let mut request = Message::request(method.clone(), format!("sip:{number}@callee:5060;user=phone"));
        request.add("via", format!("SIP/2.0/UDP {own};branch=z9hG4bK{method}{number};rport"));
        request.add("from", format!("<sip:hub@{own}>;tag=hub"));
        request.add("to", format!("<sip:{number}@callee>"));
        request.add("call-id", number);
        request.add("cseq", format!("1 {method}"));
        request.add("contact", format!("<sip:hub@{own}>"));
        request.add("max-forwards", "70");
        request.body = body.into();
        request.write()
    }

    async fn response(hub: &UdpSocket) -> Message {
        let mut buffer = [0; MAX_MESSAGE_BYTES];
        let received = timeout(TEST_TIMEOUT, hub.recv_from(&mut buffer)).await.expect("a response");
        let (n, _) = received.expect("a message");
        Message::parse(&buffer[..n]).expect("a message")
    }

    #[tokio::test]
    async fn a_call_to_its_number_is_answered_and_its_sound_arrives() {
        let mut callee = Callee::bind().await.expect("a port");
        let address = callee.address();
        let hub = UdpSocket::bind("127.0.0.1:0").await.expect("a port");
        let rtp = UdpSocket::bind("127.0.0.1:0").await.expect("a port");
        let local = Local {
            address: rtp.local_addr().expect("bound"),
            codecs: &Codec::ALL,
            session: 1,
            version: 1,
            protection: Protection::Off,
        };
        let offer = sdp::offer(local);
        let other = request(&hub, Method::Invite, "+491", offer.clone());
        hub.send_to(&other, address).await.expect("sent");
        let invite = request(&hub, Method::Invite, "+492", offer);
        hub.send_to(&invite, address).await.expect("sent");
        let mut line = timeout(TEST_TIMEOUT, callee.pick_up("+492")).await.expect("in time").expect("answered");
        assert_eq!(response(&hub).await.status(), Some(486), "another number");
        let answer = response(&hub).await;
        assert_eq!(answer.status(), Some(200));
        let agreed = sdp::read_answer(&answer.body, local).expect("an answer");
        assert_eq!(agreed.codec, Codec::Pcmu);

        line.rtp.writable().await.expect("a socket");
        line.play(Bytes::from(vec![0xff; FRAME]));
        let mut buffer = [0; 2_048];
        let (n, _) = timeout(TEST_TIMEOUT, rtp.recv_from(&mut buffer)).await.expect("in time").expect("a packet");
        assert_eq!(Packet::parse(&buffer[..n]).expect("RTP").payload.len(), FRAME);

        hub.send_to(&invite, address).await.expect("sent");
        assert!(!callee.serve().await.expect("served"), "an INVITE that comes again");
        assert_eq!(response(&hub).await.status(), Some(200));
        hub.send_to(&request(&hub, Method::Bye, "+492", String::new()), address).await.expect("sent");
        assert!(callee.serve().await.expect("served"), "the hub hangs up");
        assert_eq!(response(&hub).await.status(), Some(200));
    }
}
