//! A peer of WebRTC on str0m that may lie: a microphone track and a data channel, over one UDP socket.

use super::harness::Party;
use super::process::TEST_TIMEOUT;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use str0m::change::SdpAnswer;
use str0m::channel::ChannelId;
use str0m::media::{Direction, MediaKind, Mid};
use str0m::net::{Protocol, Receive};
use str0m::rtp::RtpWrite;
use str0m::{Candidate, Event, Input, Output, Rtc, RtcConfig};
use tokio::net::UdpSocket;
use tokio::time::{Instant, sleep_until};

/// Bytes that the peer puts into one message: str0m holds them until they are acknowledged.
const PIECE: usize = 20_000_000;

pub struct Peer {
    rtc: Rtc,
    socket: UdpSocket,
    pub channel: Option<ChannelId>,
    audio: Option<Mid>,
    /// Messages of the data channel.
    pub n_events: usize,
    pub is_over: bool,
}

impl Peer {
    /// Offers what `lie` makes of an honest offer, and takes the answer.
    pub async fn call(party: &Party, lie: impl Fn(String) -> String) -> Self {
        let socket = UdpSocket::bind((party.from, 0)).await.expect("a free port");
        let local = socket.local_addr().expect("bound");
        let mut rtc = RtcConfig::new()
            .set_crypto_provider(Arc::new(str0m::crypto::from_feature_flags()))
            .clear_codecs()
            .enable_opus(true, false)
            .set_rtp_mode(true)
            .set_sctp_max_buffered_amount(64 << 20)
            .build(Instant::now().into_std());
        rtc.add_local_candidate(Candidate::host(local, "udp").expect("a candidate"));
        let mut changes = rtc.sdp_api();
        changes.add_media(MediaKind::Audio, Direction::SendRecv, None, None, None);
        changes.add_channel("oai-events".into());
        let (offer, pending) = changes.apply().expect("an offer");
        let offer = lie(offer.to_sdp_string());
        let answer =
            party.http("POST", "/v1/realtime/calls", "content-type: application/sdp\r\n", offer.as_bytes()).await;
        answer.is(&[201]);
        // The hub's bound is for the honest.
        let answer = String::from_utf8(answer.body).expect("text");
        let line = |line: &str| match line.starts_with("a=max-message-size:") {
            true => "a=max-message-size:1000000000\r\n".to_owned(),
            false => format!("{line}\r\n"),
        };
        let answer: String = answer.lines().map(line).collect();
        let answer = SdpAnswer::from_sdp_string(&answer).expect("an answer");
        rtc.sdp_api().accept_answer(pending, answer).expect("the answer fits");
        Self { rtc, socket, channel: None, audio: None, n_events: 0, is_over: false }
    }

    /// Serves the connection until this holds; `false`: it did not in time.
    pub async fn until(&mut self, holds: impl Fn(&Self) -> bool, within: Duration) -> bool {
        let deadline = Instant::now() + within;
        let mut buffer = vec![0; 2048];
        while !holds(self) {
            let due = self.drain().min(deadline);
            if Instant::now() >= deadline || self.is_over {
                return holds(self);
            }
            let local = self.socket.local_addr().expect("bound");
            tokio::select! {
                biased;
                received = self.socket.recv_from(&mut buffer) => {
                    let Ok((n, source)) = received else { continue };
                    if let Ok(receive) = Receive::new(Protocol::Udp, source, local, &buffer[..n]) {
                        let _ = self.rtc.handle_input(Input::Receive(Instant::now().into_std(), receive));
                    }
                }
                () = sleep_until(due) => {
                    let _ = self.rtc.handle_input(Input::Timeout(Instant::now().into_std()));
                }
            }
        }
        true
    }

    /// Writes a message to the data channel; gives the bytes that str0m took.
    pub async fn write(&mut self, message: &[u8]) -> usize {
        assert!(self.until(|peer| peer.channel.is_some(), TEST_TIMEOUT).await, "there is a channel");
        let mut n_written = 0;
        for piece in message.chunks(PIECE) {
            let Some(mut channel) = self.channel.and_then(|id| self.rtc.channel(id)) else { break };
            match channel.write(false, piece) {
                Ok(true) => n_written += piece.len(),
                taken => eprintln!("the peer's channel takes no more: {taken:?}"),
            }
            self.until(|_| false, Duration::from_millis(500)).await;
        }
        n_written
    }

    /// Sends an RTP packet with this payload type.
    pub fn packet(&mut self, payload_type: u8, n: u64, payload: &[u8]) {
        let Some(mid) = self.audio else { return };
        let mut api = self.rtc.direct_api();
        let Some(stream) = api.stream_tx_by_mid(mid, None) else { return };
        let now = Instant::now().into_std();
        stream.write_rtp(RtpWrite::new(payload_type.into(), n.into(), (n * 960) as u32, now, payload));
    }

    /// Says goodbye.
    pub fn close(mut self) {
        let _ = self.rtc.close();
        self.drain();
    }

    fn drain(&mut self) -> Instant {
        loop {
            match self.rtc.poll_output() {
                Ok(Output::Timeout(due)) => return Instant::from_std(due),
                Ok(Output::Transmit(datagram)) => {
                    let _ = self.socket.try_send_to(&datagram.contents, datagram.destination);
                }
                Ok(Output::Event(Event::MediaAdded(added))) => self.audio = Some(added.mid),
                Ok(Output::Event(Event::ChannelOpen(id, _))) => self.channel = Some(id),
                Ok(Output::Event(Event::ChannelData(_))) => self.n_events += 1,
                Ok(Output::Event(Event::ChannelClose(_) | Event::Closed)) => self.is_over = true,
                Ok(Output::Event(_)) => {}
                Err(_) => {
                    self.is_over = true;
                    return Instant::now() + Duration::from_secs(1);
                }
            }
        }
    }
}

/// The hub's UDP address in an answer.
pub fn candidate(answer: &str) -> SocketAddr {
    let line = answer.lines().find(|line| line.starts_with("a=candidate") && line.contains(" udp "));
    let words: Vec<_> = line.expect("a candidate").split(' ').collect();
    format!("{}:{}", words[4], words[5]).parse().expect("an address")
}
