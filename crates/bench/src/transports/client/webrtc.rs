//! A call by WebRTC: a peer on str0m with one UDP socket, which offers as OpenAI's SDK does.
//!
//! A packet is played by its RTP timestamp, [`PLAYOUT`] after the earliest arrival that its clock allows, as a browser with
//! a quiet path does; one that comes later is played when it comes. Nothing is recovered: what is lost is silent.

use super::super::relay::{Impairment, Relay};
use super::Received;
use crate::BenchError;
use antiphon_audio::codec::{OPUS_IN_RATE, OpusIn};
use antiphon_client::Event;
use bytes::Bytes;
use serde_json::{Value, json};
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use str0m::change::SdpAnswer;
use str0m::channel::ChannelId;
use str0m::media::{Direction, MediaKind, Mid, Pt};
use str0m::net::{Protocol, Receive};
use str0m::rtp::RtpWrite;
use str0m::{Candidate, Input, Output, Rtc, RtcConfig};
use tokio::net::UdpSocket;
use tokio::time::{Instant, sleep_until, timeout};

/// A browser's jitter buffer on a quiet path: 29 to 32 ms, measured in Chromium on loopback.
const PLAYOUT: Duration = Duration::from_millis(30);
/// RTP's clock of Opus in Hz, and a frame of 20 ms.
const CLOCK_HZ: u64 = 48_000;
const FRAME_TICKS: u64 = 960;
/// Packets of at most this size in bytes hold silence.
const SILENT_BYTES: usize = 3;
/// The longest datagram: Ethernet's, and some room.
const MAX_DATAGRAM_BYTES: usize = 2_048;
/// From the offer to the open data channel.
const CALL_TIMEOUT: Duration = Duration::from_secs(10);

/// See the module.
pub(in super::super) struct Webrtc {
    rtc: Rtc,
    socket: UdpSocket,
    local: SocketAddr,
    channel: Option<ChannelId>,
    /// The track.
    mid: Mid,
    payload_type: Pt,
    n_sent: u64,
    decoder: OpusIn,
    playout: Playout,
    received: VecDeque<Received>,
    buffer: Vec<u8>,
    is_over: bool,
    _relay: Option<Relay>,
}

/// When packets are played.
#[derive(Default)]
struct Playout {
    /// When a packet of timestamp 0 would be played.
    begins: Option<Instant>,
    first: u64,
}

impl Webrtc {
    /// Calls the hub with the settings of this `session.update`, over a network of its own if `network` is given (with its
    /// seed), and waits for the data channel.
    pub(in super::super) async fn open(
        http: &reqwest::Client,
        url: &str,
        session: &Value,
        network: Option<(Impairment, u64)>,
    ) -> Result<Self, BenchError> {
        let opened = async {
            let mut call = Self::call(http, url, session, network).await?;
            while call.channel.is_none() {
                call.step().await?;
            }
            Ok(call)
        };
        timeout(CALL_TIMEOUT, opened).await.unwrap_or_else(|_| Err(failed("it was not connected within 10 s")))
    }

    async fn call(
        http: &reqwest::Client,
        url: &str,
        session: &Value,
        network: Option<(Impairment, u64)>,
    ) -> Result<Self, BenchError> {
        let socket = UdpSocket::bind("127.0.0.1:0").await.map_err(failed)?;
        let local = socket.local_addr().map_err(failed)?;
        let mut rtc = RtcConfig::new()
            .set_crypto_provider(Arc::new(str0m::crypto::from_feature_flags()))
            .clear_codecs()
            .enable_opus(true, false)
            .set_rtp_mode(true)
            .build(Instant::now().into_std());
        rtc.add_local_candidate(Candidate::host(local, "udp").map_err(failed)?);
        let mut changes = rtc.sdp_api();
        let mid = changes.add_media(MediaKind::Audio, Direction::SendRecv, None, None, None);
        changes.add_channel("oai-events".into());
        let (offer, pending) = changes.apply().ok_or_else(|| failed("there is nothing to offer"))?;
        let body = json!({"sdp": offer.to_sdp_string(), "session": session["session"]});
        let response = http.post(format!("{url}/v1/realtime/calls")).json(&body).send().await.map_err(failed)?;
        let status = response.status();
        let text = response.text().await.map_err(failed)?;
        if !status.is_success() {
            return Err(failed(format!("the hub answered {status}: {text}")));
        }
        let mut answer = text;
        let mut relay = None;
        if let Some((impairment, seed)) = network {
            let hub = candidate(&answer).ok_or_else(|| failed("the answer has no UDP candidate"))?;
            let way = relay.insert(Relay::start(hub, impairment, seed).await?).address;
            answer = detour(&answer, way);
        }
        let answer = SdpAnswer::from_sdp_string(&answer).map_err(failed)?;
        rtc.sdp_api().accept_answer(pending, answer).map_err(failed)?;
        let params = rtc.codec_config().params().first().ok_or_else(|| failed("there is no codec"))?;
        let payload_type = params.pt();
        Ok(Self {
            rtc,
            socket,
            local,
            channel: None,
            mid,
            payload_type,
            n_sent: 0,
            decoder: OpusIn::new().map_err(failed)?,
            playout: Playout::default(),
            received: VecDeque::new(),
            buffer: vec![0; MAX_DATAGRAM_BYTES],
            is_over: false,
            _relay: relay,
        })
    }

    /// Sends a client event.
    pub(in super::super) fn event(&mut self, event: &Value) -> Result<(), BenchError> {
        let channel = self.channel.and_then(|id| self.rtc.channel(id));
        let mut channel = channel.ok_or_else(|| failed("there is no data channel"))?;
        match channel.write(false, event.to_string().as_bytes()).map_err(failed)? {
            true => self.drain().map(|_| ()),
            false => Err(failed("the data channel is full")),
        }
    }

    pub(super) fn speak(&mut self, frame: &Bytes) -> Result<(), BenchError> {
        let n = self.n_sent;
        self.n_sent += 1;
        let now = Instant::now().into_std();
        let mut api = self.rtc.direct_api();
        if let Some(stream) = api.stream_tx_by_mid(self.mid, None) {
            stream.write_rtp(RtpWrite::new(self.payload_type, n.into(), (n * FRAME_TICKS) as u32, now, &frame[..]));
        }
        // A packet leaves when time goes on.
        self.drain()?;
        self.rtc.handle_input(Input::Timeout(now)).map_err(failed)?;
        self.drain().map(|_| ())
    }

    pub(super) async fn next(&mut self) -> Result<Received, BenchError> {
        loop {
            if let Some(received) = self.received.pop_front() {
                return Ok(received);
            }
            self.step().await?;
        }
    }

    pub(super) fn close(mut self) {
        // The hub frees the call when its peer says goodbye, else after some seconds.
        if self.rtc.close().is_ok() {
            let _ = self.drain();
        }
    }

    /// Waits for the next datagram or for str0m's time. Cancel safe.
    async fn step(&mut self) -> Result<(), BenchError> {
        let due = self.drain()?;
        if self.is_over {
            return Err(failed("the hub ended the call"));
        }
        tokio::select! {
            biased;
            received = self.socket.recv_from(&mut self.buffer) => {
                let (n, source) = received.map_err(failed)?;
                let now = Instant::now().into_std();
                if let Ok(receive) = Receive::new(Protocol::Udp, source, self.local, &self.buffer[..n]) {
                    self.rtc.handle_input(Input::Receive(now, receive)).map_err(failed)?;
                }
            }
            () = sleep_until(due) => {
                self.rtc.handle_input(Input::Timeout(Instant::now().into_std())).map_err(failed)?;
            }
        }
        self.drain().map(|_| ())
    }

    /// Moves everything that the last step has produced; gives when str0m needs the time again.
    fn drain(&mut self) -> Result<Instant, BenchError> {
        loop {
            match self.rtc.poll_output().map_err(failed)? {
                Output::Timeout(due) => return Ok(Instant::from_std(due)),
                Output::Transmit(datagram) => {
                    // Where the socket is not ready, the datagram is lost, as on a network.
                    let _ = self.socket.try_send_to(&datagram.contents, datagram.destination);
                }
                Output::Event(event) => self.take(event),
            }
        }
    }

    fn take(&mut self, event: str0m::Event) {
        match event {
            str0m::Event::ChannelOpen(id, _) => self.channel = Some(id),
            str0m::Event::ChannelData(data) => {
                let event = serde_json::from_slice(&data.data).unwrap_or(Event::Other);
                self.received.push_back(Received::Event(event));
            }
            str0m::Event::RtpPacket(packet) => {
                let now = Instant::now();
                let plays_at = self.playout.at(packet.time.numer(), now);
                let mut samples = Vec::new();
                let is_sound = packet.payload.len() > SILENT_BYTES;
                if is_sound && self.decoder.decode(&packet.payload, &mut samples).is_ok() {
                    self.received.push_back(Received::Sound { samples, rate: OPUS_IN_RATE, plays_at: Some(plays_at) });
                }
            }
            str0m::Event::Closed | str0m::Event::ChannelClose(_) => self.is_over = true,
            _ => {}
        }
    }
}

impl Playout {
    /// When the packet of this extended timestamp is played that arrived `now`.
    fn at(&mut self, time: u64, now: Instant) -> Instant {
        if self.begins.is_none() {
            self.first = time;
        }
        let since =
            Duration::from_nanos(time.saturating_sub(self.first) * (1_000_000_000 / 1_000) / (CLOCK_HZ / 1_000));
        let earliest = now.checked_sub(since).unwrap_or(now) + PLAYOUT;
        let begins = self.begins.map_or(earliest, |begins| begins.min(earliest));
        self.begins = Some(begins);
        (begins + since).max(now)
    }
}

/// The hub's UDP address.
fn candidate(answer: &str) -> Option<SocketAddr> {
    let mut candidates = answer.lines().filter(|line| line.starts_with("a=candidate:"));
    let line = candidates.find(|line| line.to_ascii_lowercase().contains(" udp "))?;
    let words: Vec<&str> = line.split(' ').collect();
    Some(SocketAddr::new(words.get(4)?.parse().ok()?, words.get(5)?.parse().ok()?))
}

/// The answer with another address in its UDP candidates, and without those of TCP.
fn detour(answer: &str, way: SocketAddr) -> String {
    let line = |line: &str| {
        let mut words: Vec<&str> = line.split(' ').collect();
        if !line.starts_with("a=candidate:") || words.len() < 8 {
            return Some(format!("{line}\r\n"));
        }
        let ip = way.ip().to_string();
        let port = way.port().to_string();
        words[4] = &ip;
        words[5] = &port;
        words[2].eq_ignore_ascii_case("udp").then(|| format!("{}\r\n", words.join(" ")))
    };
    answer.lines().filter_map(line).collect()
}

/// A call that failed.
fn failed(why: impl ToString) -> BenchError {
    BenchError::Call(why.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn packets_are_played_by_their_timestamps_behind_the_earliest_arrival() {
        let mut playout = Playout::default();
        let start = Instant::now();
        let ms = |n| start + Duration::from_millis(n);
        assert_eq!(playout.at(96_000, ms(10)), ms(40));
        // 20 ms later by its timestamp, 5 ms too late; then one that was faster than the first.
        assert_eq!(playout.at(96_960, ms(35)), ms(60));
        assert_eq!(playout.at(97_920, ms(42)), ms(72));
        assert_eq!(playout.at(98_880, ms(200)), ms(200));
    }

    #[test]
    fn an_answer_leads_to_the_relay() {
        let answer = "v=0\r\na=candidate:1 1 udp 21 192.0.2.1 4000 typ host\r\na=candidate:2 1 tcp 20 192.0.2.1 4000 typ host tcptype passive\r\nm=audio 9\r\n";
        let expect = "v=0\r\na=candidate:1 1 udp 21 127.0.0.1 5000 typ host\r\nm=audio 9\r\n";
        assert_eq!(candidate(answer), "192.0.2.1:4000".parse().ok());
        assert_eq!(detour(answer, "127.0.0.1:5000".parse().expect("an address")), expect);
    }
}
