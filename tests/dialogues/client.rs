//! The client of a dialogue: a microphone, a loudspeaker and a log of every event. It acts every 20 ms; the microphone opens
//! with the first sound.

use super::engines::{Stage, Vocabulary, speech, tone};
use super::playback::Playback;
use super::script::{Line, Script, duration, gain, json, quoted};
use super::wire::Log;
use crate::turns;
use antiphon_audio::codec::{self, Delivery, OpusIn, OpusOut};
use antiphon_audio::convert;
use antiphon_protocol::frame::{Frame, FrameKind};
use antiphon_types::{Format, SampleRate, Samples};
use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use bytes::Bytes;
use futures_util::{SinkExt, StreamExt};
use serde_json::{Value, json};
use std::collections::VecDeque;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep_until};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;

const TICK: Duration = Duration::from_millis(20);
/// Shift of the client's clock at each response. The hub sends a paced reply every 20 ms from its first frame; actions of
/// the client at the same instants would race with it.
const SLIP: Duration = Duration::from_millis(7);
/// Samples of a tick at 24 kHz.
const TICK_SAMPLES: usize = 480;
/// Longest wait for an event, in virtual time.
const DEADLINE: Duration = Duration::from_secs(60);
/// Longest wait for turns to settle at the end; an unanswered turn never settles.
const SETTLED: Duration = Duration::from_secs(5);
/// Time that passes after the last line, repeatedly until every turn is settled.
const END: Duration = Duration::from_millis(600);

/// How audio is transported.
enum Carrier {
    /// In JSON events, in the session's formats.
    Events,
    /// In binary PCM frames.
    Pcm,
    /// In binary Opus frames.
    Opus(Box<(OpusOut, OpusIn)>),
}

/// What the microphone picks up besides the person.
struct Room {
    /// Gain and delay of the loudspeaker's echo.
    echo: Option<(f32, Duration)>,
    /// Peak of the constant noise.
    noise: f32,
    random: u32,
}

/// See the module.
pub struct Client<'a> {
    stage: &'a Stage,
    vocabulary: Vocabulary,
    /// `None` while disconnected.
    socket: Option<WebSocketStream<TcpStream>>,
    carrier: Carrier,
    input: Format,
    output: Format,
    began: Instant,
    next_tick: Instant,
    slip: Duration,
    microphone_is_open: bool,
    /// Audio queued for the microphone, at 24 kHz.
    queued: VecDeque<i16>,
    sequence: u32,
    room: Room,
    playback: Playback,
    log: Log,
    /// Types of all events; `n_awaited` of them were consumed by waits.
    seen: Vec<String>,
    n_awaited: usize,
    /// Item identifiers in conversation order.
    items: Vec<String>,
    /// Key of a resumable session.
    resume_key: String,
    n_received: usize,
    sent: Vec<Message>,
    retrieved: Option<Value>,
}

impl<'a> Client<'a> {
    /// Connects according to the setup and receives the session's first events.
    pub async fn connect(stage: &'a Stage, script: &Script) -> Self {
        let query = script.set("connect").next().unwrap_or_default();
        let carrier = if query.contains("audio=pcm16") {
            Carrier::Pcm
        } else if query.contains("audio=opus") {
            Carrier::Opus(Box::new((
                OpusOut::new(Delivery::Lossy).expect("an encoder"),
                OpusIn::new().expect("a decoder"),
            )))
        } else {
            Carrier::Events
        };
        let echo = script.set("echo").next().map(|line| {
            let (level, late) = line.split_once(' ').expect("a level and a delay");
            (gain(level), duration(late.trim_end_matches(" late")))
        });
        let noise = script.set("noise").next().map_or(0.0, gain);
        let socket = open(stage, query).await;
        let mut client = Self {
            stage,
            vocabulary: Vocabulary::of(script),
            socket: Some(socket),
            carrier,
            input: Format::Pcm16,
            output: Format::Pcm16,
            began: Instant::now(),
            next_tick: Instant::now(),
            slip: Duration::ZERO,
            microphone_is_open: false,
            queued: VecDeque::new(),
            sequence: 0,
            room: Room { echo, noise, random: 1 },
            playback: Playback::default(),
            log: Log::default(),
            seen: Vec::new(),
            n_awaited: 0,
            items: Vec::new(),
            resume_key: String::new(),
            n_received: 0,
            sent: Vec::new(),
            retrieved: None,
        };
        client.until("session.created").await;
        client.began = Instant::now();
        client.next_tick = Instant::now();
        if let Some(session) = script.set("session").next() {
            let session = json(&stage.addressed(session));
            client.send(json!({"type": "session.update", "session": session})).await;
            client.until("session.updated").await;
        }
        client
    }

    /// Performs a line of the script.
    pub async fn act(&mut self, line: &Line) {
        if line.word != "wait" {
            self.log.did(self.now_ms(), format!("{} {}", line.word, line.rest).trim_end());
        }
        match line.word.as_str() {
            "say" => self.say(self.vocabulary.sound(line)).await,
            "cough" => self.say(tone(300.0, duration(&line.rest).as_millis() as usize)).await,
            "speak" => self.say(speech(&quoted(&line.rest))).await,
            "noise" => {
                let (time, level) = line.timed();
                let noise = self.room.noise(gain(level), time.as_millis() as usize * 24);
                self.say(noise).await;
            }
            "silence" => {
                self.microphone_is_open = true;
                self.pass(duration(&line.rest)).await;
            }
            "mute" => self.microphone_is_open = false,
            "pass" => self.pass(duration(&line.rest)).await,
            "type" => self.ask(&quoted(&line.rest)).await,
            "give" => self.give(line).await,
            "send" => self.send_line(&line.rest).await,
            "wait" => match line.rest.strip_prefix("heard ") {
                Some(time) => self.until_heard(duration(time)).await,
                None => self.until(&line.rest).await,
            },
            "disconnect" => self.socket = None,
            "resume" => self.resume().await,
            "metric" => {
                let value = self.stage.hub.metric(&format!("{} ", line.rest));
                self.log.note(self.now_ms(), &format!("= {value}"));
            }
            other => panic!("no such action: {other}"),
        }
    }

    /// The sections `wire`, `history` and `turns`.
    pub async fn end(mut self) -> [String; 3] {
        let turns = self.settle().await;
        let mut log = std::mem::take(&mut self.log);
        log.forget();
        let mut history = String::new();
        for id in std::mem::take(&mut self.items) {
            let item = self.retrieve(&id).await;
            history += &format!("{}\n", log.item(&item));
        }
        let turns = turns.iter().rev().map(|turn| log.turn(turn)).collect();
        [log.render(), history, turns]
    }

    /// Waits until playback has ended and every turn is settled; returns the turns.
    async fn settle(&mut self) -> Vec<Value> {
        let deadline = Instant::now() + SETTLED;
        loop {
            self.pass(END).await;
            let (_, mut list) = turns::get(&self.stage.hub, "/api/turns").await;
            let Value::Array(turns) = list["turns"].take() else { panic!("no list: {list}") };
            let settled = turns.iter().all(|turn| turn["settled"] == true) && !self.playback.is_playing();
            if settled || Instant::now() > deadline {
                return turns;
            }
        }
    }

    async fn retrieve(&mut self, id: &str) -> Value {
        self.send(json!({"type": "conversation.item.retrieve", "item_id": id})).await;
        let deadline = Instant::now() + DEADLINE;
        while self.retrieved.is_none() && Instant::now() < deadline {
            self.tick().await;
        }
        self.retrieved.take().expect("the item is there")["item"].take()
    }

    /// Milliseconds since the session was created, to the nearest 10: some timers fire a millisecond late.
    fn now_ms(&self) -> u64 {
        (self.began.elapsed().as_millis() as u64 + 5) / 10 * 10
    }

    /// 20 ms: sends a piece of microphone audio, receives events meanwhile.
    async fn tick(&mut self) {
        if self.microphone_is_open {
            self.send_microphone().await;
        }
        self.next_tick += TICK;
        loop {
            self.next_tick += std::mem::take(&mut self.slip);
            let end = self.next_tick;
            let Some(socket) = &mut self.socket else { break sleep_until(end).await };
            tokio::select! {
                biased;
                message = socket.next() => {
                    let message = message.expect("the connection stands").expect("a whole message");
                    self.take(message);
                }
                () = sleep_until(end) => break,
            }
        }
    }

    async fn pass(&mut self, time: Duration) {
        for _ in 0..time.as_millis() / TICK.as_millis() {
            self.tick().await;
        }
    }

    async fn say(&mut self, pcm: Vec<i16>) {
        self.microphone_is_open = true;
        self.queued.extend(pcm);
        while !self.queued.is_empty() {
            self.tick().await;
        }
    }

    /// Waits for the next event of this type that no earlier wait consumed.
    async fn until(&mut self, kind: &str) {
        let deadline = Instant::now() + DEADLINE;
        loop {
            while let Some(seen) = self.seen.get(self.n_awaited) {
                self.n_awaited += 1;
                if seen == kind {
                    return;
                }
            }
            if Instant::now() > deadline {
                panic!("no {kind} came\n{}", std::mem::take(&mut self.log).render());
            }
            self.tick().await;
        }
    }

    async fn until_heard(&mut self, time: Duration) {
        let deadline = Instant::now() + DEADLINE;
        while self.playback.heard_ms() < time.as_millis() as u64 {
            if Instant::now() > deadline {
                panic!("{time:?} were not played\n{}", std::mem::take(&mut self.log).render());
            }
            self.tick().await;
        }
    }

    async fn ask(&mut self, text: &str) {
        let content = json!([{"type": "input_text", "text": text}]);
        let item = json!({"type": "message", "role": "user", "content": content});
        self.send(json!({"type": "conversation.item.create", "item": item})).await;
        self.send(json!({"type": "response.create"})).await;
    }

    /// Creates an item with inline audio.
    async fn give(&mut self, line: &Line) {
        let bytes: Vec<u8> = self.vocabulary.sound(line).iter().flat_map(|sample| sample.to_le_bytes()).collect();
        let content = json!([{"type": "input_audio", "audio": BASE64.encode(bytes)}]);
        let item = json!({"type": "message", "role": "user", "content": content});
        self.send(json!({"type": "conversation.item.create", "item": item})).await;
    }

    /// Sends an event: its type, then its other fields as JSON.
    async fn send_line(&mut self, line: &str) {
        let (kind, fields) = line.split_once(' ').unwrap_or((line, "{}"));
        let mut event = json(&self.stage.addressed(&self.log.real(fields)));
        event["type"] = json!(kind);
        self.send(event).await;
    }

    async fn send(&mut self, event: Value) {
        self.send_raw(Message::text(event.to_string())).await;
    }

    async fn send_raw(&mut self, message: Message) {
        self.sent.push(message.clone());
        if let Some(socket) = &mut self.socket {
            socket.send(message).await.expect("the hub listens");
        }
    }

    async fn send_microphone(&mut self) {
        let echo = self.room.echo.map(|(gain, late)| {
            let at = self.next_tick.checked_sub(late).unwrap_or(self.next_tick);
            (gain, self.playback.sound(at, TICK_SAMPLES))
        });
        let mut pcm = self.room.noise(self.room.noise, TICK_SAMPLES);
        for (n, sample) in pcm.iter_mut().enumerate() {
            let said = self.queued.pop_front().unwrap_or_default();
            let back = echo.as_ref().map_or(0, |(gain, echo)| (f32::from(echo[n]) * gain) as i16);
            *sample = sample.saturating_add(said).saturating_add(back);
        }
        let mut payloads = Vec::new();
        match &mut self.carrier {
            Carrier::Events => {
                let mut bytes = Vec::new();
                let samples = convert(&pcm, SampleRate::HZ_24000, self.input.rate());
                codec::encode(self.input, &samples, &mut bytes);
                let event = json!({"type": "input_audio_buffer.append", "audio": BASE64.encode(bytes)});
                return self.send(event).await;
            }
            Carrier::Pcm => payloads.push(pcm.iter().flat_map(|sample| sample.to_le_bytes()).collect::<Vec<u8>>()),
            Carrier::Opus(opus) => {
                opus.0.push(&pcm, &mut |packet: &[u8]| payloads.push(packet.to_vec())).expect("encoded");
            }
        }
        for payload in payloads {
            let offset = Samples(u64::from(self.sequence) * TICK_SAMPLES as u64);
            let payload = Bytes::from(payload);
            let frame = Frame { kind: FrameKind::Microphone, sequence: self.sequence, offset, payload };
            self.sequence += 1;
            self.send_raw(Message::Binary(frame.encode().expect("it fits"))).await;
        }
    }

    fn take(&mut self, message: Message) {
        match message {
            Message::Text(text) => self.take_event(serde_json::from_str(&text).expect("JSON")),
            Message::Binary(bytes) => self.take_frame(&bytes),
            Message::Close(frame) => panic!("closed: {frame:?}\n{}", std::mem::take(&mut self.log).render()),
            _ => {}
        }
    }

    fn take_frame(&mut self, bytes: &Bytes) {
        self.n_received += 1;
        let frame = Frame::parse(bytes).expect("a frame");
        let FrameKind::Reply { item_id } = frame.kind else { panic!("the hub has no microphone") };
        let mut pcm = Vec::new();
        match &mut self.carrier {
            Carrier::Opus(opus) => {
                opus.1.decode(&frame.payload, &mut pcm).expect("a packet");
                pcm = convert(&pcm, SampleRate::HZ_16000, SampleRate::HZ_24000);
            }
            _ => codec::decode(Format::Pcm16, &frame.payload, &mut pcm).expect("whole samples"),
        }
        self.play("(frames)", &item_id.to_string(), pcm);
    }

    fn play(&mut self, kind: &str, item: &str, pcm: Vec<i16>) {
        self.log.got_audio(self.now_ms(), kind, item, pcm.len() as u64);
        self.playback.push(item, pcm);
    }

    fn take_event(&mut self, event: Value) {
        let kind = event["type"].as_str().expect("a type").to_owned();
        if kind != "antiphon.session.resumed" {
            self.n_received += 1;
        }
        self.seen.push(kind.clone());
        match kind.as_str() {
            "conversation.item.retrieved" => return self.retrieved = Some(event),
            "response.output_audio.delta" => {
                let bytes = BASE64.decode(event["delta"].as_str().expect("text")).expect("base64");
                let mut pcm = Vec::new();
                codec::decode(self.output, &bytes, &mut pcm).expect("whole samples");
                let pcm = convert(&pcm, self.output.rate(), SampleRate::HZ_24000);
                return self.play(&kind, event["item_id"].as_str().expect("an item"), pcm);
            }
            "session.created" | "session.updated" => {
                let audio = &event["session"]["audio"];
                self.input = format(&audio["input"]["format"]);
                self.output = format(&audio["output"]["format"]);
            }
            "conversation.item.added" => self.add_item(&event),
            "conversation.item.deleted" => self.items.retain(|id| event["item_id"] != **id),
            "response.created" => (self.playback.item, self.slip) = (None, SLIP),
            "output_audio_buffer.held" => self.playback.hold(),
            "output_audio_buffer.resumed" => self.playback.resume(),
            "output_audio_buffer.cleared" => self.playback.stop(),
            "input_audio_buffer.speech_started" if matches!(self.carrier, Carrier::Events) => self.playback.stop(),
            "antiphon.session.resumable" => event["key"].as_str().expect("a key").clone_into(&mut self.resume_key),
            _ => {}
        }
        self.log.got(self.now_ms(), &event);
    }

    fn add_item(&mut self, event: &Value) {
        let id = event["item"]["id"].as_str().expect("an id").to_owned();
        let before = self.items.iter().position(|known| event["previous_item_id"] == **known);
        self.items.insert(before.map_or(0, |at| at + 1), id);
    }

    /// Resumes the session and sends again what the hub did not receive.
    async fn resume(&mut self) {
        let query = format!("?resume={}&after={}", self.resume_key, self.n_received);
        let mut socket = open(self.stage, &query).await;
        let first = socket.next().await.expect("an answer").expect("a whole message");
        let resumed: Value = serde_json::from_str(first.to_text().expect("text")).expect("JSON");
        let n = resumed["received"].as_u64().expect("a count") as usize;
        self.log.note(self.now_ms(), &format!("= {}", resumed["type"].as_str().expect("a type")));
        for message in &self.sent[n..] {
            socket.send(message.clone()).await.expect("the hub listens");
        }
        self.socket = Some(socket);
    }
}

impl Room {
    /// White noise whose peak is `level` of the full scale.
    fn noise(&mut self, level: f32, n: usize) -> Vec<i16> {
        let mut sample = || {
            self.random = self.random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (((self.random >> 8) as f32 / (1u32 << 23) as f32 - 1.0) * level * 32_767.0) as i16
        };
        (0..n).map(|_| sample()).collect()
    }
}

/// Opens a connection with TCP_NODELAY: TCP's delays are real time.
async fn open(stage: &Stage, query: &str) -> WebSocketStream<TcpStream> {
    let stream = TcpStream::connect(stage.hub.address).await.expect("the hub listens");
    stream.set_nodelay(true).expect("a socket");
    let url = format!("ws://{}/v1/realtime{query}", stage.hub.address);
    tokio_tungstenite::client_async(url, stream).await.expect("the upgrade is accepted").0
}

fn format(format: &Value) -> Format {
    match format["type"].as_str() {
        Some("audio/pcmu") => Format::Ulaw,
        Some("audio/pcma") => Format::Alaw,
        _ => Format::Pcm16,
    }
}
