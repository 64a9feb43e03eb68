//! One call: the task between a peer's datagrams and its session.
//!
//! [`super::signaling`] answers the offer and spawns [`Peer::run`]. The task gives datagrams and time to str0m, drains it after
//! each step, and moves what comes out: events of the data channel and microphone frames to the session, the session's events to
//! the data channel, its audio to the track. It decides nothing about the dialog.

use super::answer::accept_again;
use super::connection::{Connection, NewOffer};
use super::endpoint::{Datagram, Endpoint};
use super::events::{Outgoing, ReplyEvents};
use super::microphone::{Microphone, NumberedFrame};
use super::speaker::{FRAME, FRAME_TICKS, Speaker};
use crate::server::transport::call::{Call, CallOutput, EVENT_BYTES, InputClosed};
use crate::server::transport::calls::CallEntry;
use crate::server::transport::queue::{Queue, Weight};
use crate::server::transport::rtvi::projection::{self, Projection};
use antiphon_protocol::{Dialect, Incoming, encode};
use antiphon_session::{InboundPayload, OutputAudio, OutputEvent};
use antiphon_types::Samples;
use bytes::Bytes;
use serde::Deserialize;
use std::collections::{HashMap, HashSet, VecDeque};
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use str0m::channel::{ChannelData, ChannelId};
use str0m::media::{MediaKind, Mid, Pt};
use str0m::net::{Protocol, Receive, Transmit};
use str0m::rtp::{RtpPacket, RtpWrite};
use str0m::{Event, Input, Output, RtcError};
use tokio::sync::mpsc;
use tokio::time::{Instant, Interval, MissedTickBehavior, interval, sleep_until};

/// From the answer to the connection, and from there to the data channel.
const CONNECTING: Duration = Duration::from_secs(10);
/// A peer that has sent nothing for this long is gone: browsers check the path each 2.5 s (RFC 7675 allows 5 s).
const GONE: Duration = Duration::from_secs(15);
/// Time without packets after which the microphone is taken to be silent.
const QUIET: Duration = Duration::from_millis(60);
/// Time for the last events of a call to be acknowledged.
const LAST_EVENTS: Duration = Duration::from_secs(1);
/// Interval of reports of what was heard.
const REPORT: Duration = Duration::from_millis(200);
/// Stall after which packets that were due are not sent any more.
const MAX_BEHIND: Duration = Duration::from_millis(500);
/// Bytes of client events and microphone frames that wait for the session.
const MAX_UNTAKEN_BYTES: usize = 1024 * 1024;
/// Bytes of messages that the data channel has not taken. The session's output waits for them; answers to the peer do not.
const MAX_UNSENT_BYTES: usize = 1024 * 1024;
/// TCP connections of one peer.
const MAX_CONNECTIONS: usize = 4;
/// Addresses from which one peer sends, one after the other: each is a candidate that str0m keeps.
const MAX_SOURCES: usize = 64;
/// Data channels that a peer opens, of which the first is used.
const MAX_CHANNELS: usize = 8;
/// Begins a STUN binding request (RFC 8489, section 5).
const STUN_REQUEST: &[u8] = &[0, 1];
/// The beginning of a sign of life of pipecat's small-webrtc transport, and the type of its messages about tracks.
const RTVI_PING: &str = "ping: ";
const RTVI_SIGNALLING: &str = "signalling";
/// Bytes that the data channel accepts before it reports room again.
const CHANNEL_LOW_BYTES: usize = 64 * 1024;

/// Why a call ended, for the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CallEnd {
    HungUp,
    NotConnected,
    PeerClosed,
    PeerGone,
    SessionClosed,
    /// The session does not take what the peer sends, or the peer what the call sends.
    InputClosed,
    Protocol,
}

impl CallEnd {
    /// As the audit log has it.
    fn outcome(self) -> &'static str {
        match self {
            Self::PeerClosed | Self::SessionClosed => "ok",
            Self::HungUp => "hung up",
            Self::NotConnected => "not connected",
            Self::PeerGone => "peer gone",
            Self::InputClosed => "not taken",
            Self::Protocol => "protocol violated",
        }
    }
}

/// What a peer sends its session.
enum ToSession {
    /// A message of the data channel.
    Text(String),
    /// What was read from a message of this many bytes, or follows from it.
    Read(InboundPayload, usize),
    Frame(NumberedFrame),
}

#[derive(Deserialize)]
struct Kind {
    #[serde(rename = "type", default)]
    kind: String,
}

/// A call's peer.
pub(super) struct Peer {
    connection: Connection,
    endpoint: Arc<Endpoint>,
    call: Arc<Call>,
    entry: CallEntry,
    connections: HashMap<SocketAddr, mpsc::Sender<Bytes>>,
    /// Where accepted datagrams came from.
    sources: HashSet<SocketAddr>,
    to_session: Arc<Queue<ToSession>>,
    channel: Option<ChannelId>,
    /// Data channels that the peer has opened.
    n_channels: usize,
    unsent: UnsentMessages,
    audio: Option<Audio>,
    microphone: Microphone,
    speaker: Speaker,
    events: ReplyEvents,
    /// The data channel carries RTVI messages.
    rtvi: Option<Projection>,
    is_connected: bool,
    begun: Instant,
    last_datagram: Instant,
    last_packet: Instant,
    last_report: Instant,
    ended: Option<CallEnd>,
}

/// The audio track.
struct Audio {
    mid: Mid,
    payload_type: Pt,
    /// The RTP sequence number of the next packet.
    sequence: u64,
    was_silent: bool,
}

impl Peer {
    /// The peer of a call.
    pub(super) fn new(connection: Connection, endpoint: Arc<Endpoint>, entry: CallEntry) -> Self {
        let now = Instant::now();
        Self {
            connection,
            endpoint,
            call: entry.call().clone(),
            entry,
            connections: HashMap::new(),
            sources: HashSet::new(),
            to_session: Arc::new(Queue::new(MAX_UNTAKEN_BYTES)),
            channel: None,
            n_channels: 0,
            unsent: UnsentMessages::default(),
            audio: None,
            microphone: Microphone::default(),
            speaker: Speaker::default(),
            events: ReplyEvents::default(),
            rtvi: None,
            is_connected: false,
            begun: now,
            last_datagram: now,
            last_packet: now,
            last_report: now,
            ended: None,
        }
    }

    /// The same for a client of pipecat: its data channel carries RTVI messages. The arguments are those of [`Projection::new`].
    pub(super) fn speaking_rtvi(mut self, key_pause: Duration, dialect: Dialect) -> Self {
        let mut projection = Projection::new(key_pause, dialect);
        self.queue(ToSession::Read(projection.begin(), EVENT_BYTES));
        self.rtvi = Some(projection);
        self
    }

    /// The same for a client that takes the events of the extensions.
    pub(super) fn taking_extensions(mut self) -> Self {
        self.events.takes_extensions = true;
        self
    }

    /// Serves the call until it ends.
    pub(super) async fn run(mut self, mut offers: mpsc::Receiver<NewOffer>) {
        let call = self.call.clone();
        let queue = self.to_session.clone();
        let id = self.entry.id().to_owned();
        let ended = {
            let mut feeding = pin!(feed(&call, &queue));
            let mut clock = clock();
            let mut is_fed = true;
            let mut has_ended = false;
            loop {
                let due = match self.drain() {
                    Ok(due) => due,
                    Err(error) => {
                        tracing::debug!(call = id, %error, "the connection failed");
                        break CallEnd::Protocol;
                    }
                };
                if let Some(ended) = self.ended {
                    break ended;
                }
                let has_way = self.has_way();
                // What the speaker has no room for waits in the session, unless that has ended: its close comes behind it.
                let takes = has_way && (has_ended || self.speaker.has_room());
                let step = tokio::select! {
                    () = self.entry.hung_up().cancelled() => break CallEnd::HungUp,
                    datagram = self.next_datagram() => self.receive(datagram),
                    Some(offer) = offers.recv() => {
                        self.negotiate(offer);
                        Ok(())
                    }
                    scheduled = clock.tick() => self.tick(scheduled, &mut clock),
                    () = sleep_until(due) => self.connection.rtc.handle_input(Input::Timeout(Instant::now().into_std())),
                    output = call.next(), if takes => {
                        self.output(output);
                        Ok(())
                    }
                    // The session takes nothing any more, and says why.
                    error = &mut feeding, if is_fed => {
                        tracing::debug!(call = id, %error, "the session is not fed any more");
                        is_fed = false;
                        Ok(())
                    }
                    () = call.ended(), if !takes => {
                        if !has_way {
                            break CallEnd::SessionClosed;
                        }
                        has_ended = true;
                        Ok(())
                    }
                };
                if let Err(error) = step {
                    tracing::debug!(call = id, %error, "the connection failed");
                    break CallEnd::Protocol;
                }
            }
        };
        // A session whose output is not taken closes itself as late as the peer is given up.
        let never_came = !self.is_connected && matches!(ended, CallEnd::SessionClosed | CallEnd::PeerClosed);
        let ended = if never_came { CallEnd::NotConnected } else { ended };
        tracing::info!(session = %call.session(), call = id, reason = ?ended, "the call has ended");
        call.conclude(ended.outcome());
        self.finish().await;
    }

    async fn next_datagram(&self) -> Datagram {
        self.connection.route.inbox().next().await
    }

    fn negotiate(&mut self, offer: NewOffer) {
        // Where the request is gone, so is its peer's interest in the answer.
        match offer {
            NewOffer::Same { sdp, answer } => {
                let Connection { rtc, route, kept, .. } = &mut self.connection;
                let answered = accept_again(rtc, kept, &sdp);
                route.rename(rtc.direct_api().local_ice_credentials().ufrag);
                let _ = answer.send(answered);
            }
            NewOffer::Other { connection, taken } => {
                self.reconnect(*connection);
                let _ = taken.send(());
            }
        }
    }

    /// Goes on by another connection. What the data channel of the old one has taken and not delivered is lost.
    fn reconnect(&mut self, connection: Connection) {
        tracing::info!(session = %self.call.session(), call = self.entry.id(), "another connection takes over");
        let now = Instant::now();
        self.connection = connection;
        self.connections.clear();
        self.sources.clear();
        self.channel = None;
        self.n_channels = 0;
        self.audio = None;
        self.is_connected = false;
        self.microphone.restart();
        self.begun = now;
        self.last_datagram = now;
        self.last_packet = now;
    }

    /// Whether the session's events can be delivered now.
    fn has_way(&self) -> bool {
        let is_open =
            if self.connection.max_message_bytes.is_some() { self.channel.is_some() } else { self.is_connected };
        is_open && self.unsent.is_empty()
    }

    /// Moves everything that the last step has produced; gives when str0m needs the time again.
    fn drain(&mut self) -> Result<Instant, RtcError> {
        loop {
            match self.connection.rtc.poll_output()? {
                Output::Timeout(due) => {
                    if self.flush()? {
                        continue;
                    }
                    return Ok(Instant::from_std(due));
                }
                Output::Transmit(datagram) => self.transmit(&datagram),
                Output::Event(event) => self.event(event),
            }
        }
    }

    fn transmit(&mut self, datagram: &Transmit) {
        match datagram.proto {
            Protocol::Udp => {
                self.connection.route.answers(datagram.destination);
                self.endpoint.send(&datagram.contents, datagram.destination);
            }
            _ => {
                if let Some(connection) = self.connections.get(&datagram.destination) {
                    // Where it is full, the packet is lost, as on a network.
                    let _ = connection.try_send(Bytes::copy_from_slice(&datagram.contents));
                }
            }
        }
    }

    fn receive(&mut self, datagram: Datagram) -> Result<(), RtcError> {
        let protocol = datagram.protocol();
        let source = datagram.source;
        let destination = self.endpoint.destination(source);
        let Ok(receive) = Receive::new(protocol, source, destination, &datagram.bytes) else { return Ok(()) };
        let input = Input::Receive(datagram.at.into_std(), receive);
        if !self.connection.rtc.accepts(&input) {
            return Ok(());
        }
        if !self.sources.contains(&source) {
            if self.sources.len() >= MAX_SOURCES {
                return Ok(());
            }
            self.sources.insert(source);
        }
        if datagram.connection.is_none() && datagram.bytes.starts_with(STUN_REQUEST) {
            self.connection.route.reclaim(source);
        }
        self.last_datagram = datagram.at;
        if let Some(connection) = datagram.connection
            && !self.connections.contains_key(&source)
        {
            self.connections.retain(|_, connection| !connection.is_closed());
            if self.connections.len() < MAX_CONNECTIONS {
                self.connections.insert(source, connection);
            }
        }
        self.connection.rtc.handle_input(input)
    }

    fn event(&mut self, event: Event) {
        match event {
            // Once a connection: a renegotiation is none.
            Event::Connected if !self.is_connected => {
                self.is_connected = true;
                tracing::info!(
                    session = %self.call.session(),
                    call = self.entry.id(),
                    after_ms = self.begun.elapsed().as_millis() as u64,
                    "the peer is connected"
                );
                self.begun = Instant::now();
            }
            Event::MediaAdded(added) if added.kind == MediaKind::Audio && self.audio.is_none() => {
                let params = self.connection.rtc.codec_config().params().first().map(|params| params.pt());
                self.audio = params.map(|payload_type| Audio {
                    mid: added.mid,
                    payload_type,
                    sequence: u64::from(rand::random::<u16>() >> 1),
                    was_silent: true,
                });
            }
            Event::ChannelOpen(id, _) => {
                self.n_channels += 1;
                if self.n_channels >= MAX_CHANNELS {
                    self.ended = Some(CallEnd::Protocol);
                }
                if self.channel.is_some() {
                    self.connection.rtc.direct_api().close_data_channel(id);
                    return;
                }
                self.channel = Some(id);
                if let Some(mut channel) = self.connection.rtc.channel(id) {
                    channel.set_buffered_amount_low_threshold(CHANNEL_LOW_BYTES);
                }
            }
            Event::ChannelClose(id) if self.channel == Some(id) => self.ended = Some(CallEnd::PeerClosed),
            Event::ChannelData(ChannelData { id, data, .. }) if self.channel == Some(id) => {
                let text = match String::from_utf8(data) {
                    Ok(text) => text,
                    Err(error) => String::from_utf8_lossy(error.as_bytes()).into_owned(),
                };
                self.message(text);
            }
            Event::RtpPacket(packet) => self.packet(packet),
            Event::MediaEgressStats(stats) => {
                if let Some(round_trip) = stats.rtt {
                    self.speaker.measured(round_trip);
                }
            }
            Event::Closed => self.ended = Some(CallEnd::PeerClosed),
            _ => {}
        }
    }

    fn packet(&mut self, packet: RtpPacket) {
        let Some(audio) = &self.audio else { return };
        if packet.header.payload_type != audio.payload_type {
            return;
        }
        self.last_packet = Instant::now();
        let mut frames = Vec::new();
        let payload = Bytes::copy_from_slice(&packet.payload);
        self.microphone.packet(*packet.seq_no, packet.time.numer(), payload, &mut frames);
        for frame in frames {
            self.to_session.push(ToSession::Frame(frame));
        }
    }

    /// A message of the data channel.
    fn message(&mut self, text: String) {
        let Some(projection) = &mut self.rtvi else { return self.queue(ToSession::Text(text)) };
        // Signs of life, and which tracks are on: the transport's own.
        if text.starts_with(RTVI_PING) || serde_json::from_str(&text).is_ok_and(|Kind { kind }| kind == RTVI_SIGNALLING)
        {
            return;
        }
        let outgoing = projection.message_of_client(&text, Instant::now());
        self.tell_rtvi(outgoing, text.len());
    }

    /// Passes on what follows from a message of `n_bytes`.
    fn tell_rtvi(&mut self, outgoing: projection::Outgoing, n_bytes: usize) {
        let projection::Outgoing { to_client, to_session, to_joined, hangs_up } = outgoing;
        to_joined.iter().for_each(|event| self.entry.publish(event));
        to_client.into_iter().for_each(|message| self.send_message(message.to_string()));
        to_session.into_iter().for_each(|payload| self.queue(ToSession::Read(payload, n_bytes)));
        if hangs_up {
            self.ended = Some(CallEnd::PeerClosed);
        }
    }

    fn request(&mut self, request: Incoming) {
        self.queue(ToSession::Read(InboundPayload::Event(Box::new(request)), EVENT_BYTES));
    }

    fn queue(&mut self, message: ToSession) {
        if !self.to_session.push(message) {
            self.ended = Some(CallEnd::InputClosed);
        }
    }

    fn output(&mut self, output: CallOutput) {
        match output {
            CallOutput::Event(event) => {
                let Outgoing { to_peer, is_sent, extension, to_session, held } =
                    self.events.session(*event, &mut self.speaker);
                if let Some(is_held) = held {
                    self.speaker.hold(is_held);
                }
                if is_sent && let Some(projection) = &mut self.rtvi {
                    projection.complete();
                }
                extension.iter().for_each(|event| self.send_event(event));
                to_session.into_iter().for_each(|request| self.request(request));
                to_peer.iter().for_each(|event| self.tell_peer(event));
            }
            CallOutput::Audio(OutputAudio { item, offset, payload, .. }) => {
                if let Some(projection) = &mut self.rtvi {
                    let to_client = projection.audio(FRAME, Instant::now());
                    self.tell_rtvi(projection::Outgoing { to_client, ..Default::default() }, EVENT_BYTES);
                }
                self.speaker.push(item, offset, payload);
            }
            CallOutput::Closed(close) => {
                tracing::debug!(code = close.code, reason = close.reason, "the session has ended");
                self.ended = Some(CallEnd::SessionClosed);
            }
        }
    }

    fn tell_peer(&mut self, event: &OutputEvent) {
        self.entry.publish(event);
        match &mut self.rtvi {
            Some(projection) => {
                let outgoing = projection.event(&event.event);
                self.tell_rtvi(outgoing, EVENT_BYTES);
            }
            None => self.send_event(event),
        }
    }

    fn send_event(&mut self, event: &OutputEvent) {
        self.send_message(encode(&event.event, &event.event_id));
    }

    fn send_message(&mut self, message: String) {
        let Some(max) = self.connection.max_message_bytes else { return };
        let message = if message.len() <= max {
            message
        } else {
            let OutputEvent { event_id, event } = self.events.too_long(message.len());
            encode(&event, &event_id)
        };
        if !self.unsent.push(message) {
            self.ended = Some(CallEnd::InputClosed);
        }
    }

    /// Gives the data channel the next message; says whether it took one.
    fn flush(&mut self) -> Result<bool, RtcError> {
        let Some(id) = self.channel else { return Ok(false) };
        let Some(message) = self.unsent.first() else { return Ok(false) };
        let Some(mut channel) = self.connection.rtc.channel(id) else { return Ok(false) };
        let taken = channel.write(false, message.as_bytes())?;
        if taken {
            self.unsent.remove_first();
        }
        Ok(taken)
    }

    /// Each 20 ms: a packet of the reply, silence of the microphone, reports, deadlines.
    fn tick(&mut self, scheduled: Instant, clock: &mut Interval) -> Result<(), RtcError> {
        let now = Instant::now();
        if now.duration_since(scheduled) > MAX_BEHIND {
            clock.reset();
        }
        let is_late = self.begun + CONNECTING < now;
        let is_complete = self.is_connected && (self.channel.is_some() || self.connection.max_message_bytes.is_none());
        if is_late && !is_complete {
            self.ended = Some(CallEnd::NotConnected);
        }
        if self.last_datagram + GONE < now {
            self.ended = Some(CallEnd::PeerGone);
        }
        if !self.is_connected {
            return Ok(());
        }
        if self.last_packet + QUIET < now
            && let Some(frame) = self.microphone.idle()
        {
            self.to_session.push(ToSession::Frame(frame));
        }
        if self.last_report + REPORT <= now
            && let Some(position) = self.speaker.heard(now)
        {
            self.last_report = now;
            let report = self.events.heard(position);
            self.request(report);
        }
        if let Some(projection) = &mut self.rtvi
            && projection.silent_at().is_some_and(|at| at <= now)
        {
            let to_client = projection.silent();
            self.tell_rtvi(projection::Outgoing { to_client, ..Default::default() }, EVENT_BYTES);
        }
        if let Some(projection) = &mut self.rtvi
            && projection.keys_end_at().is_some_and(|at| at <= now)
        {
            let outgoing = projection.keys_end();
            self.tell_rtvi(outgoing, EVENT_BYTES);
        }
        let (payload, item) = self.speaker.tick(now);
        let is_silent = item.is_none();
        let is_empty = self.speaker.is_empty();
        for event in self.events.played(item.as_ref(), is_empty) {
            self.tell_peer(&event);
        }
        let Some(audio) = &mut self.audio else { return Ok(()) };
        let time = scheduled.duration_since(self.begun).as_millis() as u64 / FRAME.as_millis() as u64 * FRAME_TICKS;
        let begins = !is_silent && std::mem::replace(&mut audio.was_silent, is_silent);
        audio.was_silent = is_silent;
        let sequence = audio.sequence;
        audio.sequence += 1;
        let mut api = self.connection.rtc.direct_api();
        if let Some(stream) = api.stream_tx_by_mid(audio.mid, None) {
            let write = RtpWrite::new(audio.payload_type, sequence.into(), time as u32, now.into_std(), &payload[..]);
            stream.write_rtp(write.marker(begins));
        }
        Ok(())
    }

    /// Lets the peer take the last events, says goodbye, and ends the session.
    async fn finish(mut self) {
        self.entry.close();
        let deadline = Instant::now() + LAST_EVENTS;
        while Instant::now() < deadline {
            let Ok(due) = self.drain() else { return };
            let is_sent = self.unsent.is_empty()
                && self
                    .channel
                    .and_then(|id| self.connection.rtc.channel(id))
                    .is_none_or(|mut channel| channel.buffered_amount() == 0);
            if is_sent || !self.connection.rtc.is_alive() {
                break;
            }
            let step = tokio::select! {
                datagram = self.next_datagram() => self.receive(datagram),
                () = sleep_until(due.min(deadline)) => self.connection.rtc.handle_input(Input::Timeout(Instant::now().into_std())),
            };
            if step.is_err() {
                return;
            }
        }
        if self.connection.rtc.close().is_ok() {
            let _ = self.drain();
        }
    }
}

/// Messages that the data channel has not taken, at most [`MAX_UNSENT_BYTES`] of them.
#[derive(Default)]
struct UnsentMessages {
    messages: VecDeque<String>,
    n_bytes: usize,
}

impl UnsentMessages {
    /// Adds a message. `false`: there is no room for it.
    fn push(&mut self, message: String) -> bool {
        if self.n_bytes + message.len() > MAX_UNSENT_BYTES {
            return false;
        }
        self.n_bytes += message.len();
        self.messages.push_back(message);
        true
    }

    fn first(&self) -> Option<&str> {
        self.messages.front().map(String::as_str)
    }

    fn remove_first(&mut self) {
        self.n_bytes -= self.messages.pop_front().map_or(0, |message| message.len());
    }

    fn is_empty(&self) -> bool {
        self.messages.is_empty()
    }
}

impl Weight for ToSession {
    fn n_bytes(&self) -> usize {
        size_of::<Self>()
            + match self {
                Self::Text(text) => text.len(),
                Self::Read(_, n_bytes) => *n_bytes,
                Self::Frame(frame) => frame.payload.len(),
            }
    }

    fn is_media(&self) -> bool {
        matches!(self, Self::Frame(_))
    }
}

/// Gives the session what its peer sends, in order, until it takes nothing any more.
async fn feed(call: &Call, queue: &Queue<ToSession>) -> InputClosed {
    loop {
        let taken = match queue.next().await {
            ToSession::Text(text) => call.send_text(&text).await,
            ToSession::Read(payload, n_bytes) => call.send_read(payload, n_bytes).await,
            ToSession::Frame(NumberedFrame { number, payload }) => {
                call.push_frame(number, Samples(u64::from(number) * 480), payload).await
            }
        };
        if let Err(error) = taken {
            return error;
        }
    }
}

/// Ticks that were missed are caught up, so that the track keeps real time.
fn clock() -> Interval {
    let mut clock = interval(FRAME);
    clock.set_missed_tick_behavior(MissedTickBehavior::Burst);
    clock
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_that_the_peer_does_not_take_are_bounded_in_bytes() {
        let mut unsent = UnsentMessages::default();
        let answer = "x".repeat(MAX_UNSENT_BYTES / 4);
        for _ in 0..4 {
            assert!(unsent.push(answer.clone()));
        }
        assert!(!unsent.push("y".into()), "there is no room");
        unsent.remove_first();
        assert!(unsent.push("y".into()), "the channel has taken one");
        for _ in 0..4 {
            unsent.remove_first();
        }
        assert!(unsent.is_empty() && unsent.first().is_none());
        assert!(unsent.push("z".repeat(MAX_UNSENT_BYTES)), "all of the room is free again");
    }
}
