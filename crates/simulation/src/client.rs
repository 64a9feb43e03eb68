//! The simulated client of one session: what it sends, how it reads, and when it is away, all drawn from the world's seed.

use super::grammar::{Framing, Grammar};
use super::probe::Probe;
use antiphon::replay::Dice;
use antiphon_audio::codec::{Delivery, OpusOut};
use antiphon_protocol::frame::{Frame, FrameKind, MicrophoneFrame};
use antiphon_protocol::{Dialect, WireError};
use antiphon_session::{AudioMode, Close, Egress, Handle, Inbound, InboundPayload, Message};
use antiphon_types::Samples;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use bytes::Bytes;
use serde_json::{Value, json};
use std::cell::{Cell, RefCell};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Notify, mpsc};
use tokio::time::{Instant, sleep, sleep_until, timeout};

/// How long a client that reads promptly may wait for the session to take a message. The session itself waits at most 30 s for
/// a recognizer (`session/transcription_task.rs`), for each of four utterances.
const TAKEN_WITHIN: Duration = Duration::from_secs(200);

/// How long everything that is due may take once the client sends nothing more: several stalls of 40 s one after the other.
const SETTLES_WITHIN: Duration = Duration::from_secs(900);

/// Time without anything due after which a session has settled: longer than the wait for the end of a turn.
const CALM: Duration = Duration::from_secs(2);

/// How long a response takes to end that its client cancels.
const CANCELS_WITHIN: Duration = Duration::from_secs(1);

/// The address of a server of remote tools, which the world allows.
pub(super) const TOOLS: &str = "http://tools.example/mcp";

/// What a client is like.
#[derive(Clone, Copy, Debug)]
pub(super) struct Manner {
    pub(super) mode: AudioMode,
    /// It may come back after its connection broke.
    pub(super) resumable: bool,
    /// It sometimes reads slowly.
    pub(super) slow: bool,
    /// Engines may never answer, so that it cancels in the end.
    pub(super) cancels: bool,
    pub(super) n_actions: usize,
}

/// See the module.
pub(super) struct Client {
    manner: Manner,
    probe: Arc<Probe>,
    inbound: mpsc::Sender<Inbound>,
    egress: Arc<Egress>,
    handle: Arc<Handle>,
    dice: RefCell<Dice>,
    pub(super) grammar: RefCell<Grammar>,
    /// Pause of the reader after each message.
    pace: Cell<Duration>,
    /// It has read slowly, so that the session may give it up.
    was_slow: Cell<bool>,
    is_attached: Cell<bool>,
    /// It says nothing more, and comes back whenever its connection breaks.
    is_settling: Cell<bool>,
    connection: Notify,
    /// A message came, or the session ended.
    news: Notify,
    closed: RefCell<Option<Close>>,
    /// Messages received, and the hashes of all of them.
    received: RefCell<Vec<u64>>,
    /// The messages up to this one are acknowledged.
    acknowledged: Cell<u64>,
    /// Messages that come again: the number of the next one.
    repeats: Cell<Option<usize>>,
    n_asked: Cell<usize>,
    n_items: Cell<usize>,
    frame: Cell<(u32, u64)>,
    opus: RefCell<Option<OpusOut>>,
}

impl Client {
    pub(super) fn new(manner: Manner, handle: &Arc<Handle>, probe: &Arc<Probe>, dice: Dice, grammar: Grammar) -> Self {
        Self {
            manner,
            probe: probe.clone(),
            inbound: handle.inbound.clone(),
            egress: handle.egress.clone(),
            handle: handle.clone(),
            dice: RefCell::new(dice),
            grammar: RefCell::new(grammar),
            pace: Cell::default(),
            was_slow: Cell::new(false),
            is_attached: Cell::new(true),
            is_settling: Cell::new(false),
            connection: Notify::new(),
            news: Notify::new(),
            closed: RefCell::default(),
            received: RefCell::default(),
            acknowledged: Cell::new(0),
            repeats: Cell::new(None),
            n_asked: Cell::new(0),
            n_items: Cell::new(0),
            frame: Cell::default(),
            opus: RefCell::default(),
        }
    }

    /// Reads until the session closes the connection for good.
    pub(super) async fn read(&self) {
        loop {
            if !self.is_attached.get() {
                if self.is_settling.get() {
                    self.attach();
                }
                if !self.is_attached.get() {
                    self.connection.notified().await;
                }
                continue;
            }
            let message = tokio::select! {
                biased;
                () = self.connection.notified() => continue,
                () = self.egress.lost() => {
                    self.detach();
                    continue;
                }
                message = self.egress.next_message() => message,
            };
            self.probe.step();
            match message {
                Ok(message) => self.received(&message),
                Err(close) => return self.ended(close).await,
            }
            if let Some(number) = self.egress.to_ask()
                && number <= self.received.borrow().len() as u64
            {
                self.egress.answered(number);
                self.acknowledged.set(number);
            }
            let pace = self.pace.get();
            if !pace.is_zero() {
                tokio::select! {
                    biased;
                    () = self.connection.notified() => {}
                    () = self.egress.lost() => self.detach(),
                    () = sleep(pace) => {}
                }
            }
        }
    }

    fn received(&self, message: &Message) {
        let mut hasher = DefaultHasher::new();
        match message {
            Message::Text(text) => text.hash(&mut hasher),
            Message::Binary(bytes) => bytes.hash(&mut hasher),
        }
        let hash = hasher.finish();
        if let Some(at) = self.repeats.get() {
            let known = self.received.borrow().get(at).copied();
            if let Some(known) = known {
                self.repeats.set(Some(at + 1));
                if known != hash {
                    self.probe.violated(format!("message {} comes again as another one", at + 1));
                }
                return;
            }
            self.repeats.set(None);
        }
        self.received.borrow_mut().push(hash);
        match message {
            Message::Text(text) => self.probe.log("<", &without_wall_time(text)),
            Message::Binary(bytes) => self.probe.log("<", &format!("frame {:02x?}", &bytes[..bytes.len().min(40)])),
        }
        if let Err(rule) = self.grammar.borrow_mut().message(message, self.probe.spoken_ms()) {
            self.probe.violated(rule);
        }
        self.news.notify_waiters();
    }

    async fn ended(&self, close: Close) {
        self.probe.log("<", &format!("closed: {} {}", close.code, close.reason));
        if self.egress.next_message().await.is_ok() {
            self.probe.violated("a message after the end".into());
        }
        let is_expected = matches!(close.code, 1001 | 1008) || (close.code == 1013 && self.was_slow.get());
        if !is_expected {
            self.probe.violated(format!("the connection is closed with {} {}", close.code, close.reason));
        }
        *self.closed.borrow_mut() = Some(close);
        self.news.notify_waiters();
        self.connection.notify_one();
    }

    pub(super) fn cancels(&self) -> bool {
        self.manner.cancels
    }

    pub(super) fn is_closed(&self) -> bool {
        self.closed.borrow().is_some()
    }

    /// Resolves once the session has closed the connection.
    pub(super) async fn closed(&self) {
        self.until(|| self.is_closed()).await;
    }

    /// Sends what it has to say, then lets everything settle.
    pub(super) async fn talk(&self) {
        for _ in 0..self.manner.n_actions {
            if self.is_closed() {
                return;
            }
            let pause = self.draw(|dice| match dice.below(10) {
                0..4 => Duration::ZERO,
                4..9 => dice.ms(800),
                _ => dice.ms(6_000),
            });
            if !pause.is_zero() {
                sleep(pause).await;
            }
            self.probe.step();
            self.act().await;
        }
    }

    /// Waits until everything that is due has come, and nothing more for a while. A client of dead engines cancels what is left.
    pub(super) async fn settle(&self) {
        self.pace.set(Duration::ZERO);
        self.is_settling.set(true);
        self.attach();
        let settled = || self.is_closed() || self.grammar.borrow().due().is_empty();
        let patience = if self.manner.cancels { Duration::from_secs(60) } else { SETTLES_WITHIN };
        let settles = async {
            loop {
                self.until(settled).await;
                sleep(CALM).await;
                if settled() {
                    return;
                }
            }
        };
        if timeout(patience, settles).await.is_ok() {
            return;
        }
        if self.manner.cancels {
            return self.cancel_all().await;
        }
        let due = self.grammar.borrow().due();
        self.probe.violated(format!("nothing happens, and there is due: {}", due.join(", ")));
    }

    async fn cancel_all(&self) {
        let open: Vec<String> = self.grammar.borrow().open_responses().into_iter().map(str::to_owned).collect();
        for id in &open {
            self.send(json!({"type": "response.cancel", "response_id": id})).await;
        }
        let over = || {
            let grammar = self.grammar.borrow();
            self.is_closed() || open.iter().all(|id| !grammar.open_responses().contains(&id.as_str()))
        };
        if timeout(CANCELS_WITHIN, self.until(over)).await.is_err() {
            self.probe.violated("a response that was cancelled goes on".into());
        }
    }

    async fn until(&self, holds: impl Fn() -> bool) {
        loop {
            let news = self.news.notified();
            if holds() {
                return;
            }
            news.await;
        }
    }

    /// Gives up what it has said and not committed.
    pub(super) async fn clear(&self) {
        self.send(json!({"type": "input_audio_buffer.clear"})).await;
    }

    fn draw<T>(&self, draw: impl FnOnce(&mut Dice) -> T) -> T {
        draw(&mut self.dice.borrow_mut())
    }

    async fn act(&self) {
        match self.draw(|dice| dice.below(38)) {
            0..9 => self.speak().await,
            9..13 => {
                self.type_words().await;
                self.ask().await;
            }
            13..15 => self.ask().await,
            15..17 => self.cancel().await,
            17..19 => self.truncate().await,
            19..22 => self.answer_call().await,
            22..25 => self.update().await,
            25 => self.send(json!({"type": "input_audio_buffer.commit"})).await,
            26 => {
                let buffer = self.draw(|dice| dice.pick(&["input_audio_buffer.clear", "output_audio_buffer.clear"]));
                self.send(json!({"type": buffer})).await;
            }
            27..29 => self.garbage().await,
            29 => self.item("conversation.item.delete").await,
            30 => self.item("conversation.item.retrieve").await,
            31 => self.type_words().await,
            32..34 => self.report().await,
            34 => self.inline_audio().await,
            35..37 if self.manner.resumable => self.go_away().await,
            _ if self.manner.slow => self.read_slowly().await,
            _ => self.speak().await,
        }
    }

    /// Sound of a voice and silence behind it, in real time or all at once.
    async fn speak(&self) {
        let (loud, quiet) = self.draw(|dice| (dice.pick(&[40, 200, 400, 900]), dice.pick(&[0, 100, 300, 700])));
        let at_once = self.draw(|dice| dice.chance(0.6));
        let piece_ms = if self.manner.mode == AudioMode::Events { 100 } else { 20 };
        let pieces = (0..(loud + quiet) / piece_ms).map(|at| at * piece_ms < loud);
        let mut due = Instant::now();
        let mut gathered = Vec::new();
        for is_loud in pieces {
            let noise = |dice: &mut Dice| if is_loud { (dice.next() as i16) / 3 } else { (dice.next() as i16) / 4_096 };
            let pcm: Vec<i16> = self.draw(|dice| (0..piece_ms * 24).map(|_| noise(dice)).collect());
            if self.manner.mode != AudioMode::Events {
                self.send_frame(&pcm).await;
            } else if at_once {
                gathered.extend(pcm);
            } else {
                self.append(&pcm).await;
            }
            if !at_once {
                due += Duration::from_millis(piece_ms as u64);
                sleep_until(due).await;
            }
        }
        if !gathered.is_empty() {
            self.append(&gathered).await;
        }
    }

    async fn append(&self, pcm: &[i16]) {
        let text = json!({"type": "input_audio_buffer.append", "audio": base64_of(pcm)}).to_string();
        self.say(text_message(&text), "append").await;
    }

    async fn send_frame(&self, pcm: &[i16]) {
        let (sequence, offset) = self.frame.get();
        self.frame.set((sequence.wrapping_add(1), offset + pcm.len() as u64));
        let mut payloads: Vec<Bytes> = Vec::new();
        match self.manner.mode {
            AudioMode::Opus => {
                let mut opus = self.opus.borrow_mut();
                let Some(encoder) = opus.take().or_else(|| OpusOut::new(Delivery::Reliable).ok()) else { return };
                let encoder = opus.insert(encoder);
                // What does not fit a packet waits for the next samples.
                let _ = encoder.push(pcm, &mut |packet| payloads.push(Bytes::copy_from_slice(packet)));
            }
            _ => payloads.push(pcm.iter().flat_map(|sample| sample.to_le_bytes()).collect()),
        }
        for payload in payloads {
            let frame = Frame { kind: FrameKind::Microphone, sequence, offset: Samples(offset), payload };
            let Ok(bytes) = frame.encode() else { continue };
            // A network loses, repeats and delays.
            let n = self.draw(|dice| if dice.chance(0.02) { dice.below(3) } else { 1 });
            for _ in 0..n {
                self.say(self.audio(&bytes), "microphone").await;
            }
        }
    }

    async fn type_words(&self) {
        let (n, has_id, follows, role) = self.draw(|dice| {
            (
                dice.below(3),
                dice.chance(0.3),
                dice.chance(0.2),
                dice.pick(&["user", "user", "user", "system", "assistant"]),
            )
        });
        let kind = if role == "assistant" { "output_text" } else { "input_text" };
        let text = ["Go on.", "What is the time?", "Tell me more about it, and take your time."][n];
        let mut item = json!({"type": "message", "role": role, "content": [{"type": kind, "text": text}]});
        if has_id {
            // Some ids are taken.
            let n = self.n_items.get() - self.draw(|dice| usize::from(dice.chance(0.2))).min(self.n_items.get());
            self.n_items.set(n + 1);
            item["id"] = json!(format!("typed_{n}"));
        }
        let mut event = json!({"type": "conversation.item.create", "item": item});
        if follows {
            event["previous_item_id"] = self.known_item().into();
        }
        self.send(event).await;
    }

    async fn inline_audio(&self) {
        let pcm: Vec<i16> = self.draw(|dice| (0..4_800).map(|_| (dice.next() as i16) / 3).collect());
        let content = json!([{"type": "input_audio", "audio": base64_of(&pcm)}]);
        let item = json!({"type": "message", "role": "user", "content": content});
        self.send(json!({"type": "conversation.item.create", "item": item})).await;
    }

    async fn ask(&self) {
        let n = self.n_asked.replace(self.n_asked.get() + 1);
        let name = format!("ask_{n}");
        let mut response = json!({"metadata": {"name": name}});
        match self.draw(|dice| dice.below(10)) {
            0 => response["conversation"] = json!("none"),
            1 => response["output_modalities"] = json!(["text"]),
            2 => response["max_output_tokens"] = json!(5),
            3 => {
                response["tools"] = tools();
                response["tool_choice"] = json!("required");
            }
            4 => {
                response["conversation"] = json!("none");
                let pcm = [3_000i16; 2_400];
                let content = json!([{"type": "input_audio", "audio": base64_of(&pcm)}]);
                response["input"] = json!([{"type": "message", "role": "user", "content": content}]);
            }
            5 => response["instructions"] = json!("Be brief."),
            _ => {}
        }
        self.grammar.borrow_mut().ask(&name);
        self.send(json!({"type": "response.create", "event_id": name, "response": response})).await;
    }

    async fn cancel(&self) {
        let open = self.grammar.borrow().open_responses().first().map(|id| (*id).to_owned());
        match open.filter(|_| self.draw(|dice| dice.chance(0.5))) {
            Some(id) => self.send(json!({"type": "response.cancel", "response_id": id})).await,
            None => self.send(json!({"type": "response.cancel"})).await,
        }
    }

    async fn truncate(&self) {
        let heard = self.grammar.borrow().heard.last().cloned();
        let Some((item, ms)) = heard else { return };
        let end = self.draw(|dice| dice.below(ms as usize + 60));
        let event = "conversation.item.truncate";
        self.send(json!({"type": event, "item_id": item, "content_index": 0, "audio_end_ms": end})).await;
    }

    async fn answer_call(&self) {
        let (call, approval) = {
            let mut grammar = self.grammar.borrow_mut();
            (grammar.calls.pop(), grammar.approvals.pop())
        };
        if let Some(id) = approval {
            let approve = self.draw(|dice| dice.chance(0.6));
            let item = json!({"type": "mcp_approval_response", "approval_request_id": id, "approve": approve});
            self.send(json!({"type": "conversation.item.create", "item": item})).await;
        }
        let call = call.unwrap_or_else(|| "call_unknown".into());
        let item = json!({"type": "function_call_output", "call_id": call, "output": "42"});
        self.send(json!({"type": "conversation.item.create", "item": item})).await;
        if self.draw(|dice| dice.chance(0.6)) {
            self.ask().await;
        }
    }

    async fn update(&self) {
        let session = match self.draw(|dice| dice.below(14)) {
            0 => json!({"audio": {"input": {"turn_detection": null}}}),
            1 | 2 => json!({"audio": {"input": {"turn_detection": {"type": "server_vad", "create_response": true}}}}),
            3 => json!({"audio": {"input": {"turn_detection": {"type": "server_vad", "create_response": false}}}}),
            4 => json!({"audio": {"input": {"turn_detection": {"type": "server_vad", "interrupt_response": false}}}}),
            5 | 6 => json!({"audio": {"input": {"turn_detection": {"type": "semantic_vad", "eagerness": "high"}}}}),
            7 => json!({"tools": tools(), "tool_choice": "auto"}),
            8 => {
                let approval = self.draw(|dice| dice.pick(&["never", "always"]));
                json!({"tools": [{"type": "mcp", "server_label": "lib", "server_url": TOOLS, "require_approval": approval}]})
            }
            9 => json!({"output_modalities": ["text"]}),
            10 => json!({"output_modalities": ["audio"], "audio": {"output": {"voice": "other"}}}),
            11 => json!({"audio": {"output": {"format": {"type": "audio/pcmu"}, "speed": 1.2}}}),
            12 => json!({"audio": {"input": {"turn_detection": {"type": "server_vad", "idle_timeout_ms": 5000}}}}),
            _ => json!({"instructions": "Other words.", "truncation": "disabled"}),
        };
        let mut session = session;
        session["type"] = json!("realtime");
        self.send(json!({"type": "session.update", "session": session})).await;
    }

    async fn garbage(&self) {
        let n = self.draw(|dice| dice.below(9));
        if n == 0 {
            let bytes: Vec<u8> = self.draw(|dice| (0..dice.below(64)).map(|_| dice.next() as u8).collect());
            return self.say(self.audio(&bytes.into()), "binary garbage").await;
        }
        let text = [
            "",
            "{",
            "[]",
            "{\"type\": 7}",
            "{\"type\": \"no.such.event\"}",
            "{\"type\": \"input_audio_buffer.append\", \"audio\": \"!!\"}",
            "{\"type\": \"session.update\", \"session\": {\"audio\": 3}}",
            "{\"type\": \"conversation.item.create\", \"item\": {\"type\": \"message\"}}",
            "{\"type\": \"response.create\", \"response\": {\"tools\": \"all\"}}",
        ][n];
        self.say(text_message(text), text).await;
    }

    async fn item(&self, kind: &str) {
        let item = self.known_item();
        self.send(json!({"type": kind, "item_id": item})).await;
    }

    async fn report(&self) {
        let heard = self.grammar.borrow().heard.last().cloned();
        let now = self.draw(|dice| dice.share() * 1e6);
        let Some((item, ms)) = heard.filter(|_| self.draw(|dice| dice.chance(0.7))) else {
            return self.send(json!({"type": "antiphon.clock.ping", "client_ms": now})).await;
        };
        let (end, stopped) = self.draw(|dice| (dice.below(ms as usize + 40), dice.chance(0.2)));
        let event = "output_audio_buffer.played";
        self.send(json!({"type": event, "item_id": item, "audio_end_ms": end, "stopped": stopped})).await;
    }

    /// Its connection breaks, and it comes back, having lost some messages on the way.
    async fn go_away(&self) {
        self.detach();
        let away = self.draw(|dice| dice.ms(8_000));
        sleep(away).await;
        self.attach();
    }

    fn detach(&self) {
        if self.is_attached.replace(false) {
            self.probe.log("!", "the connection breaks");
            self.was_slow.set(true);
            self.egress.detach();
            self.connection.notify_one();
        }
    }

    fn attach(&self) {
        if self.is_closed() || self.is_attached.get() {
            return;
        }
        let n_received = self.received.borrow().len();
        let known = self.repeats.get().unwrap_or(n_received).min(n_received);
        let kept = known - self.acknowledged.get() as usize;
        let n_lost = self.draw(|dice| dice.below(kept.min(3) + 1));
        let after = (known - n_lost) as u64;
        match self.egress.attach(after) {
            Ok(()) => {
                self.probe.log("!", &format!("the client is back, after {after}"));
                self.acknowledged.set(after);
                self.repeats.set(Some(after as usize));
                self.is_attached.set(true);
                self.connection.notify_one();
            }
            Err(error) => self.probe.violated(format!("the client cannot come back: {error}")),
        }
    }

    async fn read_slowly(&self) {
        self.was_slow.set(true);
        let (pace, time) = self.draw(|dice| (dice.pick(&[20, 200, 2_000, 12_000]), dice.ms(4_000)));
        self.pace.set(Duration::from_millis(pace));
        sleep(time).await;
        self.pace.set(Duration::ZERO);
    }

    fn known_item(&self) -> String {
        let items: Vec<String> = self.grammar.borrow().items().map(str::to_owned).collect();
        match items.is_empty() || self.draw(|dice| dice.chance(0.1)) {
            true => "item_unknown".into(),
            false => items[self.draw(|dice| dice.below(items.len()))].clone(),
        }
    }

    async fn send(&self, event: Value) {
        let text = event.to_string();
        self.say(text_message(&text), &text).await;
    }

    /// Gives the session a message. One that the session never takes is a violation, unless the client reads slowly.
    /// A binary message, as the adapter of WebSockets reads it.
    fn audio(&self, bytes: &Bytes) -> Inbound {
        let payload = match self.manner.mode {
            AudioMode::Events => InboundPayload::Invalid(Box::new(WireError::binary_frame())),
            AudioMode::Pcm16 | AudioMode::Opus => MicrophoneFrame::parse(bytes).into(),
        };
        Inbound { payload, budget: None }
    }

    async fn say(&self, message: Inbound, shown: &str) {
        self.probe.log(">", shown);
        let from = *self.handle.read_from.borrow();
        if let Some(from) = from {
            sleep_until(from).await;
        }
        match timeout(TAKEN_WITHIN, self.inbound.send(message)).await {
            Ok(_) => {}
            Err(_) if self.is_closed() || self.was_slow.get() => {}
            Err(_) => self.probe.violated(format!("a message was not taken within {TAKEN_WITHIN:?}")),
        }
    }
}

/// A text message, as the adapter of WebSockets reads it.
fn text_message(text: &str) -> Inbound {
    Inbound { payload: Dialect::default().parse(text).into(), budget: None }
}

fn tools() -> Value {
    let parameters = json!({"type": "object", "properties": {"n": {"type": "integer"}}});
    json!([{"type": "function", "name": "lookup", "description": "Looks up.", "parameters": parameters}])
}

fn base64_of(pcm: &[i16]) -> String {
    BASE64.encode(pcm.iter().flat_map(|sample| sample.to_le_bytes()).collect::<Vec<u8>>())
}

/// An event without the only time of the machine's clock in it.
fn without_wall_time(text: &str) -> String {
    let name = "\"expires_at\":";
    match text.split_once(name) {
        Some((before, after)) => {
            format!("{before}{name}0{}", after.trim_start_matches(|c: char| c.is_ascii_digit()))
        }
        None => text.to_owned(),
    }
}

impl Manner {
    /// How its binary frames are packed.
    pub(super) fn framing(self) -> Option<Framing> {
        match self.mode {
            AudioMode::Events => None,
            AudioMode::Pcm16 => Some(Framing::Pcm16),
            AudioMode::Opus => Some(Framing::Opus),
        }
    }
}
