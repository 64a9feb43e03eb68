//! The RTP socket of one call, and the call's side of its dialog while it lasts.
//!
//! [`super::super::link`] reads a [`MediaSource`] and writes a [`MediaSink`], as it does the halves of a WebSocket.
//! Packets are taken from the peer's own addresses only: the one it signals from and the one its description names. The
//! first of them that sends decides where ours go (symmetric RTP), since descriptions of peers behind a NAT name
//! addresses that lead nowhere.

use super::coder::{Decoder, Encoder, codings};
use super::dialogs::{CallControl, Command, DialogHandle};
use super::key_events::{KeyEvents, KeyPackets};
use super::ports::RtpSockets;
use super::receiver::{LineEvent, Receiver};
use super::reports::{Reports, SentStream};
use super::srtp::{SrtpError, SrtpReceiver, SrtpSender};
use crate::server::transport::calls::{CallEntry, SharedFigures};
use crate::server::transport::telephony::leg::{
    Leg, LegError, Mark, Packet as LegPacket, Parameters, PeerMessage, Start,
};
use antiphon_audio::codec::{self, CodecError};
use antiphon_sip::rtp::{self, Packet};
use antiphon_sip::sdp::{self, Agreed, Local, Protection, SdpError, Srtp};
use antiphon_types::Format;
use bytes::Bytes;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use tokio::net::UdpSocket;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};

/// A call without a packet of its peer ends after this time, unless it is on hold.
const NO_MEDIA: Duration = Duration::from_secs(60);
/// A peer that sends from another of its addresses is followed once the first one is silent for this time.
const MOVES_AFTER: Duration = Duration::from_millis(500);

/// The level of the noise that stands for our silence, in dB below full scale, and the steps of 20 ms between two packets
/// of it: the way through NATs stays open.
const NOISE_LEVEL: u8 = 70;
const NOISE_STEPS: u32 = 10;

/// What the two halves share, and what the dialog asks about.
pub(super) struct MediaState {
    /// Where we receive, as peers reach it.
    advertised: SocketAddr,
    /// Number and version of our descriptions.
    session: u64,
    version: u64,
    agreed: Agreed,
    /// Where the dialog's messages come from.
    signaling: IpAddr,
    /// Where our packets go.
    remote: Option<SocketAddr>,
    /// `None`: nothing was sent.
    sent: Option<SentStream>,
    /// Whether a packet decided that, and when its address sent last.
    heard_from: Option<Instant>,
}

pub(super) type SharedMedia = Arc<Mutex<MediaState>>;

fn lock(media: &SharedMedia) -> MutexGuard<'_, MediaState> {
    media.lock().expect("no panic while locked")
}

impl MediaState {
    pub(super) fn new(advertised: SocketAddr, session: u64, signaling: IpAddr, agreed: Agreed) -> Self {
        let signaling = signaling.to_canonical();
        let remote = agreed.remote;
        Self { advertised, session, version: 2, agreed, signaling, remote, sent: None, heard_from: None }
    }

    /// Our side of a change of the call: the codec stays. What is encrypted stays so, and what is not, too.
    fn local(&self) -> Local<'_> {
        let srtp = self.agreed.srtp.as_ref();
        Local {
            address: self.advertised,
            codecs: std::slice::from_ref(&self.agreed.codec),
            session: self.session,
            version: self.version,
            protection: srtp.map_or(Protection::Off, |srtp| Protection::Required(&srtp.ours)),
        }
    }

    /// Answers a change of the call; `None`: by an offer of ours, which [`MediaState::answered`] takes the answer to.
    ///
    /// # Errors
    /// The offer cannot be accepted.
    fn answer(&mut self, offer: Option<&[u8]>) -> Result<String, SdpError> {
        let text = match offer {
            Some(offer) => {
                let (text, agreed) = sdp::answer(offer, self.local())?;
                self.agree(agreed)?;
                text
            }
            None => sdp::offer_again(self.local(), &self.agreed),
        };
        self.version += 1;
        Ok(text)
    }

    /// Takes the peer's answer to an offer of ours.
    ///
    /// # Errors
    /// The answer cannot be accepted: the call stays as it was.
    fn answered(&mut self, answer: &[u8]) -> Result<(), SdpError> {
        let agreed = sdp::read_answer_again(answer, self.local(), &self.agreed)?;
        self.agree(agreed)
    }

    fn agree(&mut self, agreed: Agreed) -> Result<(), SdpError> {
        if agreed.payload_type != self.agreed.payload_type {
            return Err(SdpError::NoCodec);
        }
        let suite_of = |srtp: &Option<Srtp>| srtp.as_ref().map(|srtp| srtp.suite);
        if suite_of(&agreed.srtp) != suite_of(&self.agreed.srtp) {
            return Err(SdpError::NoSrtp);
        }
        // Another address takes effect at once; the same one leaves what a packet has decided.
        if agreed.remote != self.agreed.remote {
            self.remote = agreed.remote;
            self.heard_from = None;
        }
        self.agreed = agreed;
        Ok(())
    }

    fn is_on_hold(&self) -> bool {
        !self.agreed.peer_sends
    }

    /// Whether this address is one of the peer's.
    fn is_peers(&self, source: SocketAddr) -> bool {
        let ip = source.ip().to_canonical();
        ip == self.signaling || self.agreed.remote.is_some_and(|remote| remote.ip() == ip)
    }

    /// Whether a packet from this address is of the call; where it is, ours go there.
    fn accepts(&mut self, source: SocketAddr, now: Instant) -> bool {
        if !self.is_peers(source) {
            return false;
        }
        let is_same = self.remote == Some(source);
        let is_silent = self.heard_from.is_none_or(|last| now.saturating_duration_since(last) >= MOVES_AFTER);
        if !is_same && !is_silent {
            return false;
        }
        self.remote = Some(source);
        self.heard_from = Some(now);
        true
    }

    /// A packet was sent.
    fn count(&mut self, packet: &Packet) {
        let at = Instant::now();
        let sent = self.sent.get_or_insert(SentStream { n_packets: 0, n_bytes: 0, timestamp: 0, at });
        sent.n_packets = sent.n_packets.wrapping_add(1);
        sent.n_bytes = sent.n_bytes.wrapping_add(packet.payload.len() as u32);
        sent.timestamp = packet.timestamp;
        sent.at = at;
    }

    fn target(&self) -> Option<SocketAddr> {
        self.remote.filter(|_| self.agreed.peer_receives)
    }
}

/// The leg: [`MediaSource`] gives PCM16, and [`MediaSink`] takes it.
pub(in crate::server::transport::telephony) struct SipLeg;

impl Leg for SipLeg {
    fn text(&mut self, _: &str) -> Result<Option<PeerMessage>, LegError> {
        Err(LegError::NotJson)
    }

    fn play(&mut self, audio: Vec<u8>) -> LegPacket {
        LegPacket::Binary(audio.into())
    }

    fn mark(&mut self, _: Mark) -> Option<LegPacket> {
        None
    }

    fn clear(&mut self) -> Option<LegPacket> {
        None
    }
}

/// A dialog that is answered, and where its media goes.
pub(super) struct AnsweredDialog {
    pub(super) dialog: DialogHandle,
    pub(super) control: mpsc::Receiver<CallControl>,
    pub(super) sockets: RtpSockets,
    pub(super) advertised: SocketAddr,
    /// The number of our description.
    pub(super) session: u64,
    /// Where the dialog's messages come from.
    pub(super) signaling: IpAddr,
    pub(super) agreed: Agreed,
}

impl AnsweredDialog {
    /// The call's media, with how its sound begins. `keys`: those that the hub presses. The call shows its figures.
    ///
    /// # Errors
    /// The codec has no memory.
    pub(super) fn open(
        self,
        entry: &CallEntry,
        keys: KeyEvents,
    ) -> Result<(MediaSource, MediaSink, Start), CodecError> {
        let Self { dialog, control, sockets, advertised, session, signaling, agreed } = self;
        let (input, output) = codings(agreed.codec);
        let codec = agreed.codec.name();
        let is_encrypted = agreed.srtp.is_some();
        let media = MediaState::new(advertised, session, signaling, agreed);
        let figures = SharedFigures::default();
        entry.show_figures(figures.clone());
        let (source, sink) = halves(sockets, media, dialog, control, keys, figures)?;
        tracing::info!(session = %entry.call().session(), codec, is_encrypted, "a call by SIP begins");
        Ok((source, sink, Start { input, output, parameters: Parameters::default() }))
    }
}

/// What a peer does.
#[derive(Debug)]
enum LineMessage {
    /// Samples at the rate of what comes, by [`codings`].
    Sound(Vec<i16>),
    /// It pressed a key.
    Key(char),
    /// It has put the call on hold, or has ended the hold.
    Held(bool),
    /// It has ended the call.
    Ended,
    /// Nothing came for [`NO_MEDIA`].
    Silent,
}

/// What arrives from a peer.
#[derive(Debug)]
pub(in crate::server::transport::telephony) enum MediaEvent {
    /// Audio as PCM16 at the rate of the call's [`super::coder::codings`], a key, a hold, the end.
    Peer(PeerMessage),
    /// Nothing came for [`NO_MEDIA`].
    Silent,
}

/// The reading half.
pub(in crate::server::transport::telephony) struct MediaSource {
    socket: Arc<UdpSocket>,
    media: SharedMedia,
    dialog: DialogHandle,
    control: mpsc::Receiver<CallControl>,
    receiver: Receiver,
    packets: PacketReader,
    reports: Reports,
    buffer: Box<[u8; rtp::MAX_BYTES]>,
    last_packet: Instant,
    /// Whether it was said last that the call is on hold.
    said_held: bool,
}

/// From what a peer sends to packets.
struct PacketReader {
    /// `None`: plain RTP.
    srtp: Option<SrtpReceiver>,
    /// Packets of SRTP that were dropped.
    n_wrong_tags: u64,
    n_replayed: u64,
    n_others: u64,
}

impl PacketReader {
    fn new(srtp: Option<&Srtp>) -> Self {
        let srtp = srtp.map(|srtp| SrtpReceiver::new(srtp.suite, &srtp.peers));
        Self { srtp, n_wrong_tags: 0, n_replayed: 0, n_others: 0 }
    }

    /// The packet in these bytes; `None`: it is none, or not the peer's, which is counted.
    fn read(&mut self, bytes: &[u8]) -> Option<Packet> {
        let Some(srtp) = &mut self.srtp else { return Packet::parse(bytes) };
        match srtp.open(bytes) {
            Ok(packet) => Packet::parse(&packet),
            Err(error) => {
                *match error {
                    SrtpError::WrongTag => &mut self.n_wrong_tags,
                    SrtpError::Replayed => &mut self.n_replayed,
                    SrtpError::Short | SrtpError::TooManyStreams => &mut self.n_others,
                } += 1;
                None
            }
        }
    }

    /// How many were dropped because of their protection.
    fn n_refused(&self) -> u64 {
        self.n_wrong_tags + self.n_replayed + self.n_others
    }
}

impl Drop for PacketReader {
    fn drop(&mut self) {
        if self.n_refused() > 0 {
            let Self { n_wrong_tags, n_replayed, n_others, .. } = self;
            tracing::info!(n_wrong_tags, n_replayed, n_others, "packets of SRTP were dropped in a call by SIP");
        }
    }
}

/// The writing half.
pub(in crate::server::transport::telephony) struct MediaSink {
    socket: Arc<UdpSocket>,
    media: SharedMedia,
    encoder: Encoder,
    payload_type: u8,
    ticks: u32,
    sequence: u16,
    timestamp: u32,
    ssrc: u32,
    /// The next packet begins a talk spurt.
    begins: bool,
    pcm: Vec<i16>,
    /// The payload type of comfort noise; `None`: silence is coded as sound is.
    noise: Option<u8>,
    /// Steps of 20 ms since something was said.
    n_silent: u32,
    keys: Option<SentKeys>,
    /// `None`: plain RTP.
    srtp: Option<SrtpSender>,
}

/// Keys that the hub presses, as the peer takes them.
struct SentKeys {
    events: KeyEvents,
    payload_type: u8,
    clock_hz: u32,
}

/// The halves of a call on these sockets. `keys`: those that the hub presses; `figures`: what is shown of its media.
///
/// # Errors
/// The codec has no memory.
fn halves(
    sockets: RtpSockets,
    media: MediaState,
    dialog: DialogHandle,
    control: mpsc::Receiver<CallControl>,
    keys: KeyEvents,
    figures: SharedFigures,
) -> Result<(MediaSource, MediaSink), CodecError> {
    let events = media.agreed.events;
    let keys = events.map(|(payload_type, clock_hz)| SentKeys { events: keys, payload_type, clock_hz });
    let codec = media.agreed.codec;
    let receiver = Receiver::new(Decoder::new(codec)?, &media.agreed);
    let srtp = media.agreed.srtp.as_ref();
    let packets = PacketReader::new(srtp);
    let srtp_sender = srtp.map(|srtp| SrtpSender::new(srtp.suite, &srtp.ours));
    let encoder = Encoder::new(codec)?;
    let payload_type = media.agreed.payload_type;
    let noise = media.agreed.noise;
    let RtpSockets { rtp, rtcp } = sockets;
    let ssrc = rand::random();
    let reports = Reports::new(rtcp, &media.agreed, ssrc, figures);
    let socket = Arc::new(rtp);
    let media = Arc::new(Mutex::new(media));
    let source = MediaSource {
        socket: socket.clone(),
        media: media.clone(),
        dialog,
        control,
        receiver,
        packets,
        reports,
        buffer: Box::new([0; rtp::MAX_BYTES]),
        last_packet: Instant::now(),
        said_held: false,
    };
    let sink = MediaSink {
        socket,
        media,
        encoder,
        payload_type,
        ticks: codec.clock_hz() / 50,
        sequence: rand::random(),
        timestamp: rand::random(),
        ssrc,
        begins: true,
        pcm: Vec::new(),
        noise,
        n_silent: 0,
        keys,
        srtp: srtp_sender,
    };
    Ok((source, sink))
}

impl MediaSource {
    /// What the peer does next, for a conversation. Cancel safe.
    pub(in crate::server::transport::telephony) async fn next(&mut self) -> MediaEvent {
        match self.next_message().await {
            LineMessage::Sound(samples) => {
                let mut bytes = Vec::with_capacity(2 * samples.len());
                codec::encode(Format::Pcm16, &samples, &mut bytes);
                MediaEvent::Peer(PeerMessage::Audio { number: None, audio: bytes.into() })
            }
            LineMessage::Key(key) => MediaEvent::Peer(PeerMessage::Key(key)),
            LineMessage::Held(is_held) => MediaEvent::Peer(PeerMessage::Held(is_held)),
            LineMessage::Ended => MediaEvent::Peer(PeerMessage::Ended),
            LineMessage::Silent => MediaEvent::Silent,
        }
    }

    /// The call's dialog.
    pub(super) fn dialog(&self) -> &DialogHandle {
        &self.dialog
    }

    /// Resolves when the peer has ended the call, or has sent nothing for [`NO_MEDIA`] outside a hold. Cancel safe.
    pub(super) async fn ended(&mut self) {
        while !matches!(self.next_message().await, LineMessage::Ended | LineMessage::Silent) {}
    }

    /// Whether the peer has put the call on hold.
    pub(in crate::server::transport::telephony) fn is_on_hold(&self) -> bool {
        lock(&self.media).is_on_hold()
    }

    /// What the peer does next. A call that begins on hold says so first. Cancel safe.
    async fn next_message(&mut self) -> LineMessage {
        loop {
            let is_held = self.is_on_hold();
            if std::mem::replace(&mut self.said_held, is_held) != is_held {
                return LineMessage::Held(is_held);
            }
            match self.receiver.pop() {
                Some(LineEvent::Key(key)) => return LineMessage::Key(key),
                Some(LineEvent::Sound(samples)) => return LineMessage::Sound(samples),
                None => {}
            }
            let due = self.receiver.due();
            let gone_at = self.last_packet + NO_MEDIA;
            let report_at = self.reports.due();
            tokio::select! {
                biased;
                () = self.dialog.ended() => return LineMessage::Ended,
                control = self.control.recv() => match control {
                    Some(CallControl::Offer(offer)) => self.changed(offer.as_deref()),
                    Some(CallControl::Answer(answer)) => self.answered(&answer),
                    Some(CallControl::Key(key)) => return LineMessage::Key(key),
                    Some(CallControl::Connected(_) | CallControl::Ringing) => {}
                    None => return LineMessage::Ended,
                },
                received = self.socket.recv_from(&mut self.buffer[..]) => {
                    // The answer of a machine to an earlier packet is an error here.
                    if let Ok((n, source)) = received {
                        self.received(n, source);
                    }
                }
                received = self.reports.receive() => {
                    if let Ok((n, source)) = received
                        && lock(&self.media).is_peers(source)
                    {
                        self.reports.take_received(n, source, Instant::now());
                    }
                }
                () = sleep_until(report_at) => self.report(false),
                () = sleep_until(due.unwrap_or(gone_at)), if due.is_some() => self.receiver.expire(Instant::now()),
                () = sleep_until(gone_at) => {
                    if !self.is_on_hold() {
                        return LineMessage::Silent;
                    }
                    self.last_packet = Instant::now();
                }
            }
        }
    }

    fn received(&mut self, n_bytes: usize, source: SocketAddr) {
        let now = Instant::now();
        if !lock(&self.media).is_peers(source) {
            return;
        }
        let bytes = &self.buffer[..n_bytes];
        if rtp::is_control(bytes) {
            self.reports.take(bytes, now);
            return;
        }
        let n_refused = self.packets.n_refused();
        let Some(packet) = self.packets.read(bytes) else {
            if self.packets.n_refused() > n_refused {
                self.reports.refused();
            }
            return;
        };
        let is_on_hold = {
            let mut media = lock(&self.media);
            if !self.receiver.takes(&packet) || !media.accepts(source, now) {
                return;
            }
            media.is_on_hold()
        };
        self.last_packet = now;
        self.reports.packet(&packet, self.receiver.is_media(&packet), now);
        // What comes during a hold is its music.
        if !is_on_hold {
            self.receiver.push(packet, now);
        }
    }

    /// Reports to the peer.
    fn report(&mut self, is_last: bool) {
        let (sent, remote) = {
            let media = lock(&self.media);
            (media.sent, media.remote)
        };
        self.reports.send(sent, (&self.socket, remote), is_last);
    }

    /// The peer wants to change the call.
    fn changed(&mut self, offer: Option<&[u8]>) {
        let answer = self.change(|media| media.answer(offer));
        self.dialog.send(Command::AnswerOffer(answer.map_err(|_| 488)));
    }

    /// The peer answers an offer of ours.
    fn answered(&mut self, answer: &[u8]) {
        if let Err(error) = self.change(|media| media.answered(answer)) {
            tracing::info!(%error, "the answer to a change of a call by SIP is not taken: the call goes on as before");
        }
    }

    /// Changes what was agreed on, and what follows from it.
    fn change<T>(&mut self, change: impl FnOnce(&mut MediaState) -> T) -> T {
        let mut media = lock(&self.media);
        let was_on_hold = media.is_on_hold();
        let before = media.agreed.srtp.clone();
        let outcome = change(&mut media);
        let is_on_hold = media.is_on_hold();
        let srtp = media.agreed.srtp.clone();
        self.reports.changed(&media.agreed, srtp != before);
        drop(media);
        if srtp != before {
            self.packets.srtp = srtp.map(|srtp| SrtpReceiver::new(srtp.suite, &srtp.peers));
        }
        if was_on_hold && !is_on_hold {
            self.last_packet = Instant::now();
            self.receiver.forget_stream();
        }
        outcome
    }
}

impl Drop for MediaSource {
    fn drop(&mut self) {
        self.report(true);
    }
}

impl MediaSink {
    /// Sends 20 ms of PCM16 at the call's rate. While the call is on hold nothing leaves.
    pub(in crate::server::transport::telephony) fn send(&mut self, pcm: &[u8]) {
        let mut samples = std::mem::take(&mut self.pcm);
        samples.clear();
        // The voice gives whole samples.
        let _ = codec::decode(Format::Pcm16, pcm, &mut samples);
        let payload = self.encoder.encode(&samples);
        self.pcm = samples;
        self.n_silent = 0;
        self.packet(Some(payload));
    }

    /// Sends 20 ms of silence, so that the way through NATs and the peer's jitter buffer stay as they are; with a peer that
    /// takes comfort noise, a packet of it now and then.
    pub(in crate::server::transport::telephony) fn idle(&mut self) {
        let payload = match self.noise {
            None => Some(self.encoder.silence()),
            Some(_) => None,
        };
        self.packet(payload);
        self.n_silent = self.n_silent.saturating_add(1);
    }

    /// Sends 20 ms; `None`: silence by comfort noise.
    fn packet(&mut self, payload: Option<Bytes>) {
        let target = lock(&self.media).target();
        let timestamp = self.timestamp;
        self.timestamp = timestamp.wrapping_add(self.ticks);
        let Some(target) = target.filter(|_| payload.as_ref().is_none_or(|payload| !payload.is_empty())) else {
            self.begins = true;
            return;
        };
        if let Some(SentKeys { events, payload_type, clock_hz }) = &mut self.keys
            && let Some(KeyPackets { timestamp, payload, n, marker }) = events.step(timestamp, *clock_hz)
        {
            let payload_type = *payload_type;
            for _ in 0..n {
                self.send_packet(payload_type, marker, timestamp, payload.clone(), target);
            }
            // A key stands in the place of audio.
            self.begins = true;
            return;
        }
        let Some(payload) = payload else {
            self.begins = true;
            if let Some(noise) = self.noise.filter(|_| self.n_silent.is_multiple_of(NOISE_STEPS)) {
                self.send_packet(noise, false, timestamp, Bytes::from_static(&[NOISE_LEVEL]), target);
            }
            return;
        };
        let marker = std::mem::take(&mut self.begins);
        self.send_packet(self.payload_type, marker, timestamp, payload, target);
    }

    fn send_packet(&mut self, payload_type: u8, marker: bool, timestamp: u32, payload: Bytes, target: SocketAddr) {
        let packet = Packet { payload_type, marker, sequence: self.sequence, timestamp, ssrc: self.ssrc, payload };
        self.sequence = self.sequence.wrapping_add(1);
        lock(&self.media).count(&packet);
        let packet = packet.write();
        let bytes = self.srtp.as_mut().map_or_else(|| packet.clone(), |srtp| srtp.protect(&packet));
        // A full socket loses it, as a network would.
        let _ = self.socket.try_send_to(&bytes, target);
    }
}

#[cfg(test)]
pub(in crate::server::transport::telephony) mod testing {
    use super::super::dialogs::testing::{call, dialog};
    use super::super::key_events::key_events;
    use super::*;
    use antiphon_sip::sdp::Codec;

    /// The media of a call by G.711 whose peer receives there and sends nothing, and what keeps its dialog.
    pub(in crate::server::transport::telephony) async fn silent_call(
        peer: SocketAddr,
    ) -> (MediaSource, MediaSink, impl Sized) {
        let agreed = Agreed {
            codec: Codec::Pcmu,
            payload_type: 0,
            events: None,
            remote: Some(peer),
            peer_receives: true,
            peer_sends: true,
            srtp: None,
            noise: None,
            has_mux: false,
            rtcp: None,
            profile: "RTP/AVP".to_owned(),
            refused_before: Vec::new(),
            refused_after: Vec::new(),
        };
        let rtp = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let rtcp = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let media = MediaState::new(rtp.local_addr().unwrap(), 1, peer.ip(), agreed);
        let (commands, _queue) = mpsc::channel(1);
        let (kept, control) = mpsc::channel(1);
        let (_, keys) = key_events();
        let sockets = RtpSockets { rtp, rtcp };
        let figures = SharedFigures::default();
        let dialog = dialog(call(), &commands);
        let (source, sink) = halves(sockets, media, dialog, control, keys, figures).unwrap();
        (source, sink, kept)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use antiphon_sip::sdp::{Codec, MasterKey, Suite};

    fn state() -> MediaState {
        let agreed = Agreed {
            codec: Codec::Pcmu,
            payload_type: 0,
            events: None,
            remote: Some("10.0.0.9:4000".parse().unwrap()),
            peer_receives: true,
            peer_sends: true,
            srtp: None,
            noise: None,
            has_mux: true,
            rtcp: None,
            profile: "RTP/AVP".to_owned(),
            refused_before: Vec::new(),
            refused_after: Vec::new(),
        };
        MediaState::new("192.0.2.1:20000".parse().unwrap(), 1, "203.0.113.9".parse().unwrap(), agreed)
    }

    #[tokio::test(start_paused = true)]
    async fn packets_go_back_to_where_they_come_from_and_strangers_change_nothing() {
        let mut media = state();
        let now = Instant::now();
        let natted: SocketAddr = "203.0.113.9:61000".parse().unwrap();
        assert!(!media.accepts("198.51.100.1:4000".parse().unwrap(), now));
        assert_eq!(media.target(), Some("10.0.0.9:4000".parse().unwrap()));
        assert!(media.accepts(natted, now));
        assert_eq!(media.target(), Some(natted));
        let moved: SocketAddr = "203.0.113.9:61002".parse().unwrap();
        assert!(!media.accepts(moved, now + Duration::from_millis(100)), "the first one still sends");
        assert!(media.accepts(natted, now + Duration::from_millis(120)));
        assert!(media.accepts(moved, now + Duration::from_millis(700)));
        assert_eq!(media.target(), Some(moved));
    }

    #[test]
    fn a_hold_stops_what_we_send_and_its_end_goes_on() {
        let mut media = state();
        let offer = |lines: &str| format!("v=0\r\nc=IN IP4 10.0.0.9\r\nm=audio 4000 RTP/AVP 0\r\n{lines}");
        let answer = media.answer(Some(offer("a=sendonly\r\n").as_bytes())).unwrap();
        assert!(answer.contains("a=recvonly"));
        assert!(media.is_on_hold());
        assert_eq!(media.target(), None);
        media.answer(Some(offer("").as_bytes())).unwrap();
        assert!(!media.is_on_hold() && media.target().is_some());
        let other = "v=0\r\nc=IN IP4 10.0.0.9\r\nm=audio 4000 RTP/AVP 8\r\n";
        assert!(media.answer(Some(other.as_bytes())).is_err(), "the codec stays");
    }

    #[test]
    fn the_answer_to_our_offer_ends_a_hold_and_moves_the_media() {
        let mut media = state();
        let of = |lines: &str| format!("v=0\r\nc=IN IP4 10.0.0.7\r\nm=audio 4002 RTP/AVP {lines}");
        media.answer(Some(of("0\r\na=inactive\r\n").replace("10.0.0.7", "10.0.0.9").as_bytes())).unwrap();
        let offer = media.answer(None).unwrap();
        assert!(offer.contains("RTP/AVP 0\r\n") && offer.contains("a=sendrecv"), "{offer}");
        assert!(media.is_on_hold(), "until it is answered");
        assert!(media.answered(of("8\r\n").as_bytes()).is_err(), "the codec stays");
        assert!(media.is_on_hold());
        media.answered(of("0\r\n").as_bytes()).unwrap();
        assert!(!media.is_on_hold());
        assert_eq!(media.target(), Some("10.0.0.7:4002".parse().unwrap()));
    }

    #[test]
    fn our_offer_of_a_change_has_the_peers_payload_type() {
        let mut media = state();
        media.agreed.codec = Codec::Opus;
        media.agreed.payload_type = 96;
        let offer = media.answer(None).unwrap();
        assert!(offer.contains("RTP/AVP 96\r\n") && offer.contains("a=rtpmap:96 opus/48000/2\r\n"), "{offer}");
    }

    #[test]
    fn packets_that_are_not_the_peers_are_counted_and_dropped() {
        let suite = Suite::AesCmHmacSha1_80;
        let peers = MasterKey::new([2; 30]);
        let mut sender = SrtpSender::new(suite, &peers);
        let mut reader = PacketReader::new(Some(&Srtp { suite, ours: MasterKey::new([1; 30]), peers }));
        let payload = Bytes::from_static(&[0x90; 160]);
        let packet = Packet { payload_type: 0, marker: false, sequence: 1, timestamp: 2, ssrc: 3, payload };
        assert_eq!(reader.read(&packet.write()), None, "plain RTP");
        let protected = sender.protect(&packet.write());
        assert_eq!(reader.read(&protected), Some(packet));
        assert_eq!(reader.read(&protected), None);
        assert_eq!(reader.read(&[0x80; 3]), None);
        assert_eq!((reader.n_wrong_tags, reader.n_replayed, reader.n_others), (1, 1, 1));
    }

    #[test]
    fn what_is_encrypted_stays_so_and_a_peer_may_change_its_key() {
        let mut media = state();
        let ours = MasterKey::new([1; 30]);
        let suite = Suite::AesCmHmacSha1_80;
        media.agreed.srtp = Some(Srtp { suite, ours: ours.clone(), peers: MasterKey::new([2; 30]) });
        let offer = |profile: &str, suite: &str, key: &str| {
            let crypto = if key.is_empty() { String::new() } else { format!("a=crypto:1 {suite} inline:{key}\r\n") };
            format!("v=0\r\nc=IN IP4 10.0.0.9\r\nm=audio 4000 {profile} 0\r\n{crypto}")
        };
        let key = "AwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMD";
        for (profile, suite, key) in [
            ("RTP/AVP", "", ""),
            ("RTP/SAVP", "AES_CM_128_HMAC_SHA1_32", key),
            ("RTP/SAVP", "AES_CM_128_HMAC_SHA1_80", "AwMD"),
        ] {
            assert!(media.answer(Some(offer(profile, suite, key).as_bytes())).is_err(), "{profile} {suite}");
        }
        media.answer(Some(offer("RTP/SAVP", "AES_CM_128_HMAC_SHA1_80", key).as_bytes())).unwrap();
        assert_eq!(media.agreed.srtp, Some(Srtp { suite, ours, peers: MasterKey::new([3; 30]) }));
        assert!(media.answer(None).unwrap().contains("RTP/SAVP"), "our own offer, too");
    }

    #[test]
    fn the_answer_to_a_refresh_may_have_the_peers_tag_and_a_new_key() {
        let mut media = state();
        let ours = MasterKey::new([1; 30]);
        let suite = Suite::AesCmHmacSha1_80;
        media.agreed.srtp = Some(Srtp { suite, ours: ours.clone(), peers: MasterKey::new([2; 30]) });
        let key = "inline:AwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMD";
        let offer = format!(
            "v=0\r\nc=IN IP4 10.0.0.9\r\nm=audio 4000 RTP/SAVP 0\r\na=crypto:1 AEAD_AES_256_GCM {key}\r\n\
             a=crypto:2 AES_CM_128_HMAC_SHA1_80 {key}\r\n"
        );
        // What a refresh repeats.
        let description = media.answer(Some(offer.as_bytes())).unwrap();
        assert!(description.contains("a=crypto:2 "), "{description}");
        let theirs = MasterKey::new([4; 30]);
        let peer = Local {
            address: "10.0.0.9:4000".parse().unwrap(),
            codecs: &[Codec::Pcmu],
            session: 1,
            version: 2,
            protection: Protection::Required(&theirs),
        };
        let (answer, _) = sdp::answer(description.as_bytes(), peer).unwrap();
        let other = answer.replace("SHA1_80", "SHA1_32");
        assert_eq!(media.answered(other.as_bytes()), Err(SdpError::NoSrtp), "the suite stays");
        media.answered(answer.as_bytes()).unwrap();
        assert_eq!(media.agreed.srtp, Some(Srtp { suite, ours, peers: theirs }));
    }
}
