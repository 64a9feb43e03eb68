//! Fake telephony peers, written from the providers' documents: each sends a caller's audio in real time, plays what it is sent in
//! real time, and answers marks and clears as its provider does.

use antiphon_audio::codec;
use antiphon_types::Format;
use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use futures_util::{SinkExt, StreamExt};
use serde_json::{Value, json};
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout_at};
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::protocol::CloseFrame;
use tokio_tungstenite::tungstenite::{Error, Message};
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream};

const FRAME: Duration = Duration::from_millis(20);
/// Longer than any step of a test takes.
const TEST_TIMEOUT: Duration = Duration::from_secs(20);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Provider {
    Twilio,
    Telnyx,
    Plivo,
    Vonage,
    Jambonz,
    /// Control messages as plain text.
    Asterisk,
    /// Control messages as JSON.
    AsteriskJson,
}

impl Provider {
    pub const ALL: [Self; 7] =
        [Self::Twilio, Self::Telnyx, Self::Plivo, Self::Vonage, Self::Jambonz, Self::Asterisk, Self::AsteriskJson];

    pub fn name(self) -> &'static str {
        match self {
            Self::Twilio => "twilio",
            Self::Telnyx => "telnyx",
            Self::Plivo => "plivo",
            Self::Vonage => "vonage",
            Self::Jambonz => "jambonz",
            Self::Asterisk | Self::AsteriskJson => "asterisk",
        }
    }

    /// Coding and rate of its audio here.
    fn coding(self) -> (Format, usize) {
        match self {
            Self::Twilio | Self::Asterisk => (Format::Ulaw, 8_000),
            Self::Telnyx => (Format::Ulaw, 8_000),
            Self::Plivo | Self::Vonage | Self::Jambonz | Self::AsteriskJson => (Format::Pcm16, 16_000),
        }
    }

    fn subprotocol(self) -> Option<&'static str> {
        match self {
            Self::Jambonz => Some("audio.jambonz.org"),
            Self::Asterisk | Self::AsteriskJson => Some("media"),
            _ => None,
        }
    }

    /// The messages that begin a stream to a number.
    pub fn start(self, to: &str) -> Vec<String> {
        let messages = match self {
            Self::Twilio => vec![
                json!({"event": "connected", "protocol": "Call", "version": "1.0.0"}),
                json!({"event": "start", "sequenceNumber": "1", "streamSid": "MZ1", "start": {"accountSid": "AC1",
                    "streamSid": "MZ1", "callSid": "CA1", "tracks": ["inbound"], "customParameters": {"to": to},
                    "mediaFormat": {"encoding": "audio/x-mulaw", "sampleRate": 8000, "channels": 1}}}),
            ],
            Self::Telnyx => vec![
                json!({"event": "connected", "version": "1.0.0"}),
                json!({"event": "start", "sequence_number": "1", "stream_id": "S1", "start": {"call_control_id": "v2:1",
                    "from": "+15550199", "to": to,
                    "media_format": {"encoding": "PCMU", "sample_rate": 8000, "channels": 1}}}),
            ],
            Self::Plivo => {
                vec![json!({"event": "start", "sequenceNumber": 1, "start": {"callId": "c", "streamId": "S1",
                    "accountId": "MA1", "tracks": ["inbound"],
                    "mediaFormat": {"encoding": "audio/x-l16", "sampleRate": 16000}}, "extra_headers": format!("to={to}")})]
            }
            Self::Vonage => {
                vec![json!({"event": "websocket:connected", "content-type": "audio/l16;rate=16000", "to": to})]
            }
            Self::Jambonz => {
                vec![json!({"sampleRate": 16000, "mixType": "mono", "callSid": "c", "from": "+15550199", "to": to})]
            }
            Self::AsteriskJson => {
                vec![json!({"event": "MEDIA_START", "connection_id": "m1", "channel": "WebSocket/m1/0x1",
                    "channel_id": "1.1", "format": "slin16", "optimal_frame_size": 640, "ptime": 20,
                    "channel_variables": {"to": to}})]
            }
            Self::Asterisk => {
                return vec![format!(
                    "MEDIA_START connection_id:m1 channel:WebSocket/m1/0x1 channel_id:1.1 format:ulaw \
                     optimal_frame_size:160 ptime:20 to:{to}"
                )];
            }
        };
        messages.iter().map(Value::to_string).collect()
    }
}

/// What the peer holds for its caller.
enum QueuedOutput {
    Audio(i16),
    Mark(String),
}

/// A call, as its peer has it.
pub struct Phone {
    pub provider: Provider,
    pub stream: WebSocketStream<MaybeTlsStream<TcpStream>>,
    /// What the caller heard, without the silence between.
    pub heard: Vec<i16>,
    held: VecDeque<QueuedOutput>,
    /// How much the caller had heard at each clear, in samples.
    pub cleared_at: Vec<usize>,
    pub is_paused: bool,
    pub was_paused: bool,
    /// The hub has asked to end the call.
    pub hung_up: bool,
    pub close: Option<CloseFrame>,
    pub is_closed: bool,
    n_frames: u32,
    next: Instant,
    /// Answers no mark.
    pub ignores_marks: bool,
    /// Sends audio frames in pairs, the second first.
    pub swaps: bool,
    swapped: Option<Message>,
}

impl Phone {
    /// Connects; `Err` is the HTTP status of a refusal.
    pub async fn connect(
        hub: SocketAddr,
        provider: Provider,
        path: &str,
        headers: &[(&'static str, &str)],
    ) -> Result<Self, u16> {
        let url = format!("ws://{hub}/v1/telephony/{}{path}", provider.name());
        let mut request = url.into_client_request().expect("a request");
        for (name, value) in headers {
            request.headers_mut().insert(*name, value.parse().expect("a header"));
        }
        if let Some(subprotocol) = provider.subprotocol() {
            request.headers_mut().insert("sec-websocket-protocol", subprotocol.parse().expect("a header"));
        }
        let stream = match crate::hub::connect(request).await {
            Ok((stream, response)) => {
                let chosen = response.headers().get("sec-websocket-protocol").and_then(|value| value.to_str().ok());
                assert_eq!(chosen, provider.subprotocol(), "{provider:?}");
                stream
            }
            Err(Error::Http(response)) => return Err(response.status().as_u16()),
            Err(error) => panic!("{error}"),
        };
        Ok(Self {
            provider,
            stream,
            heard: Vec::new(),
            held: VecDeque::new(),
            cleared_at: Vec::new(),
            is_paused: false,
            was_paused: false,
            hung_up: false,
            close: None,
            is_closed: false,
            n_frames: 0,
            next: Instant::now(),
            ignores_marks: false,
            swaps: false,
            swapped: None,
        })
    }

    /// A started call to a number.
    pub async fn call(hub: SocketAddr, provider: Provider, path: &str, to: &str) -> Self {
        let mut phone = Self::connect(hub, provider, path, &[]).await.expect("the upgrade is accepted");
        for message in provider.start(to) {
            phone.send(Message::text(message)).await;
        }
        phone.next = Instant::now();
        phone
    }

    pub async fn send(&mut self, message: Message) {
        // The hub may have closed the connection.
        let _ = self.stream.send(message).await;
    }

    pub fn rate(&self) -> usize {
        self.provider.coding().1
    }

    /// What the caller heard, in milliseconds.
    pub fn heard_ms(&self) -> usize {
        self.heard.len() * 1_000 / self.rate()
    }

    /// What the peer holds and has not played, in milliseconds.
    pub fn held_ms(&self) -> usize {
        self.held.iter().filter(|held| matches!(held, QueuedOutput::Audio(_))).count() * 1_000 / self.rate()
    }

    pub async fn press(&mut self, key: char) {
        let digit = key.to_string();
        let message = match self.provider {
            Provider::Twilio => {
                json!({"event": "dtmf", "streamSid": "MZ1", "dtmf": {"track": "inbound_track", "digit": digit}})
            }
            Provider::Telnyx => json!({"event": "dtmf", "stream_id": "S1", "dtmf": {"digit": digit}}),
            Provider::Plivo => json!({"event": "dtmf", "streamId": "S1", "dtmf": {"track": "inbound", "digit": digit}}),
            Provider::Vonage => json!({"event": "websocket:dtmf", "digit": digit, "duration": 260}),
            Provider::Jambonz => json!({"event": "dtmf", "dtmf": digit, "duration": "1600"}),
            Provider::AsteriskJson => json!({"event": "DTMF_END", "channel_id": "1.1", "digit": digit}),
            Provider::Asterisk => {
                return self.send(Message::text(format!("DTMF_END digit:{key} channel_id:1.1"))).await;
            }
        };
        self.send(Message::text(message.to_string())).await;
    }

    /// The caller makes a loud tone, which the fake detector takes for speech.
    pub async fn speak(&mut self, ms: usize) {
        let rate = self.rate() as f32;
        let samples: Vec<i16> = (0..ms * self.rate() / 1_000)
            .map(|n| (8_000.0 * (std::f32::consts::TAU * 380.0 * n as f32 / rate).sin()) as i16)
            .collect();
        self.talk(&samples).await;
    }

    /// The caller makes a tone of this frequency, in Hz.
    pub async fn tone(&mut self, hz: f32, ms: usize) {
        let rate = self.rate();
        let sine = |n: usize| (8_000.0 * (std::f32::consts::TAU * hz * n as f32 / rate as f32).sin()) as i16;
        let samples: Vec<i16> = (0..ms * rate / 1_000).map(sine).collect();
        self.talk(&samples).await;
    }

    /// Whether what it heard from 400 to 200 ms ago is a tone of this frequency, in Hz.
    pub fn hears(&self, hz: f32) -> bool {
        ends_with_tone(&self.heard, self.rate(), hz)
    }

    pub async fn silence(&mut self, ms: usize) {
        self.talk(&vec![0; ms * self.rate() / 1_000]).await;
    }

    /// The caller is silent until something is so.
    pub async fn until(&mut self, what: &str, is_so: impl Fn(&Self) -> bool) {
        let until = Instant::now() + TEST_TIMEOUT;
        while !is_so(self) {
            assert!(Instant::now() < until, "{:?}: {what}, heard {} ms", self.provider, self.heard_ms());
            self.silence(20).await;
        }
    }

    /// Sends this audio in real time, and plays meanwhile.
    pub async fn talk(&mut self, samples: &[i16]) {
        for frame in samples.chunks(self.rate() / 50) {
            self.next = (self.next + FRAME).max(Instant::now() - 5 * FRAME);
            while let Ok(message) = timeout_at(self.next, self.stream.next()).await {
                match message {
                    Some(Ok(message)) => self.take(message).await,
                    _ => {
                        self.is_closed = true;
                        tokio::time::sleep_until(self.next).await;
                        break;
                    }
                }
            }
            let message = self.audio(frame);
            match self.swapped.take() {
                Some(first) => {
                    self.send(message).await;
                    self.send(first).await;
                }
                None if self.swaps => self.swapped = Some(message),
                None => self.send(message).await,
            }
            self.play().await;
        }
    }

    /// A frame of the caller's audio as this provider sends it.
    pub fn audio(&mut self, samples: &[i16]) -> Message {
        let mut bytes = Vec::new();
        codec::encode(self.provider.coding().0, samples, &mut bytes);
        self.n_frames += 1;
        let chunk = self.n_frames.to_string();
        let payload = BASE64.encode(&bytes);
        let message = match self.provider {
            Provider::Twilio => json!({"event": "media", "streamSid": "MZ1", "sequenceNumber": chunk,
                "media": {"track": "inbound", "chunk": chunk, "timestamp": "5", "payload": payload}}),
            Provider::Telnyx => json!({"event": "media", "stream_id": "S1", "sequence_number": chunk,
                "media": {"track": "inbound", "chunk": chunk, "timestamp": "5", "payload": payload}}),
            Provider::Plivo => json!({"event": "media", "streamId": "S1", "sequenceNumber": self.n_frames,
                "media": {"track": "inbound", "timestamp": "5", "chunk": self.n_frames, "payload": payload}}),
            _ => return Message::binary(bytes),
        };
        Message::text(message.to_string())
    }

    async fn take(&mut self, message: Message) {
        match message {
            Message::Text(text) => self.command(text.as_str()).await,
            Message::Binary(bytes) => self.hold(&bytes),
            Message::Close(frame) => {
                self.close = frame;
                self.is_closed = true;
            }
            _ => {}
        }
    }

    fn hold(&mut self, bytes: &[u8]) {
        let mut samples = Vec::new();
        codec::decode(self.provider.coding().0, bytes, &mut samples).expect("whole samples");
        assert_eq!(samples.len() % (self.rate() / 50), 0, "frames of 20 ms, and no rest");
        self.held.extend(samples.into_iter().map(QueuedOutput::Audio));
    }

    fn hold_base64(&mut self, payload: &Value) {
        let bytes = BASE64.decode(payload.as_str().expect("text")).expect("base64");
        self.hold(&bytes);
    }

    fn mark(&mut self, name: &Value) {
        self.held.push_back(QueuedOutput::Mark(name.as_str().expect("a name").to_owned()));
    }

    async fn command(&mut self, text: &str) {
        if self.provider == Provider::Asterisk {
            assert!(text.len() <= 128, "{text}");
            let (name, id) = text.split_once(' ').unwrap_or((text, ""));
            return self.asterisk(name, &json!(id)).await;
        }
        let command: Value = serde_json::from_str(text).unwrap_or_else(|_| panic!("{text}"));
        let kind = ["event", "action", "type", "command"].iter().find_map(|key| command[key].as_str()).expect("a kind");
        match (self.provider, kind) {
            (Provider::Twilio | Provider::Telnyx, "media") => self.hold_base64(&command["media"]["payload"]),
            (Provider::Twilio | Provider::Telnyx, "mark") => self.mark(&command["mark"]["name"]),
            (Provider::Twilio | Provider::Telnyx, "clear") => self.clear(true).await,
            (Provider::Plivo, "playAudio") => {
                assert_eq!(command["media"]["contentType"], "audio/x-l16");
                self.hold_base64(&command["media"]["payload"]);
            }
            (Provider::Plivo, "checkpoint") => self.mark(&command["name"]),
            (Provider::Plivo, "clearAudio") => self.clear(false).await,
            (Provider::Vonage, "notify") => self.mark(&command["payload"]["mark"]),
            (Provider::Vonage, "clear") => self.clear(false).await,
            (Provider::Jambonz, "mark") => self.mark(&command["data"]["name"]),
            (Provider::Jambonz, "killAudio") => self.clear(true).await,
            (Provider::Jambonz, "disconnect") => self.hung_up = true,
            (Provider::AsteriskJson, name) => self.asterisk(name, &command["correlation_id"]).await,
            (provider, kind) => panic!("{provider:?} has no {kind}: {text}"),
        }
        if self.provider == Provider::Twilio {
            assert_eq!(command["streamSid"], "MZ1");
        }
    }

    async fn asterisk(&mut self, name: &str, id: &Value) {
        match name {
            "MARK_MEDIA" => self.mark(id),
            "FLUSH_MEDIA" => self.clear(false).await,
            "PAUSE_MEDIA" => (self.is_paused, self.was_paused) = (true, true),
            "CONTINUE_MEDIA" => self.is_paused = false,
            "HANGUP" => self.hung_up = true,
            other => panic!("Asterisk has no {other}"),
        }
    }

    /// Discards what is held. Some providers answer the marks in it at once.
    async fn clear(&mut self, answers: bool) {
        self.cleared_at.push(self.heard.len());
        for held in std::mem::take(&mut self.held) {
            if let (QueuedOutput::Mark(name), true) = (held, answers) {
                self.answer(&name).await;
            }
        }
    }

    /// Plays 20 ms.
    async fn play(&mut self) {
        if self.is_paused {
            return;
        }
        let mut left = self.rate() / 50;
        loop {
            match self.held.front() {
                Some(QueuedOutput::Mark(_)) => {
                    if let Some(QueuedOutput::Mark(name)) = self.held.pop_front() {
                        self.answer(&name).await;
                    }
                }
                Some(QueuedOutput::Audio(sample)) if left > 0 => {
                    self.heard.push(*sample);
                    self.held.pop_front();
                    left -= 1;
                }
                _ => return,
            }
        }
    }

    async fn answer(&mut self, name: &str) {
        if self.ignores_marks {
            return;
        }
        let message = match self.provider {
            Provider::Twilio => json!({"event": "mark", "streamSid": "MZ1", "mark": {"name": name}}),
            Provider::Telnyx => json!({"event": "mark", "stream_id": "S1", "mark": {"name": name}}),
            Provider::Plivo => json!({"event": "playedStream", "streamId": "S1", "name": name}),
            Provider::Vonage => json!({"event": "websocket:notify", "payload": {"mark": name}}),
            Provider::Jambonz => json!({"type": "mark", "data": {"name": name, "event": "playout"}}),
            Provider::AsteriskJson => {
                json!({"event": "MEDIA_MARK_PROCESSED", "channel_id": "1.1", "correlation_id": name})
            }
            Provider::Asterisk => return self.send(Message::text(format!("MEDIA_MARK_PROCESSED {name}"))).await,
        };
        self.send(Message::text(message.to_string())).await;
    }
}

/// Whether what stands from 400 to 200 ms before the end, at this rate, is a tone of this frequency, in Hz.
pub fn ends_with_tone(heard: &[i16], rate: usize, hz: f32) -> bool {
    let n = rate / 5;
    let Some(from) = heard.len().checked_sub(2 * n) else { return false };
    let mut sin = 0.0;
    let mut cos = 0.0;
    let mut energy = 0.0;
    for (i, sample) in heard[from..from + n].iter().enumerate() {
        let phase = std::f32::consts::TAU * hz * i as f32 / rate as f32;
        let sample = f32::from(*sample);
        sin += sample * phase.sin();
        cos += sample * phase.cos();
        energy += sample * sample;
    }
    let is_loud = energy / n as f32 > 1_000.0 * 1_000.0;
    // Of a pure tone, half of the samples' number.
    is_loud && (sin * sin + cos * cos) / energy > 0.4 * n as f32
}
