//! A phone that speaks SIP and RTP over real sockets of this machine.

use crate::telephony::phone::ends_with_tone;
use antiphon_audio::codec::{self, Delivery, G722In, G722Out, OpusIn, OpusOut};
use antiphon_sip::rtp::{self, Packet};
use antiphon_sip::sdp::{self, Agreed, Codec, Local, Protection};
use antiphon_sip::{Credentials, Message, Method};
use antiphon_types::Format;
use bytes::Bytes;
use std::f32::consts::TAU;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::UdpSocket;
use tokio::time::{Instant, timeout, timeout_at};

const TEST_TIMEOUT: Duration = Duration::from_secs(40);

/// What a phone calls with.
pub struct Options {
    pub codec: Codec,
    pub to: &'static str,
    pub credentials: Option<Credentials>,
    /// Its description comes with the ACK.
    pub offers_late: bool,
    pub headers: &'static str,
    /// Whether it offers comfort noise.
    pub has_noise: bool,
    /// Whether the call begins on hold.
    pub is_held: bool,
    /// Where it receives RTCP; `None`: at the port of RTP.
    pub rtcp: Option<SocketAddr>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            codec: Codec::Pcmu,
            to: "+15550100",
            credentials: None,
            offers_late: false,
            headers: "",
            has_noise: false,
            is_held: false,
            rtcp: None,
        }
    }
}

/// How a call was answered.
#[derive(Debug)]
pub enum Answer {
    Accepted,
    Refused { status: u16, retry_after: Option<u64> },
}

pub struct Phone {
    sip: Arc<UdpSocket>,
    pub rtp: UdpSocket,
    hub: SocketAddr,
    options: Options,
    call_id: String,
    number: u32,
    /// `From` with its own tag.
    from: String,
    /// `To` with the hub's tag.
    to: String,
    agreed: Option<Agreed>,
    encoder: Coder,
    sequence: u16,
    timestamp: u32,
    next: Instant,
    /// What was heard, at 8 kHz, or at 16 kHz with G.722 and Opus.
    pub heard: Vec<i16>,
    pub n_packets: usize,
    /// Of these, comfort noise.
    pub n_noise: usize,
    /// The hub's stream.
    pub heard_ssrc: Option<u32>,
    /// Where its packets came from.
    pub heard_from: Option<SocketAddr>,
    /// The hub hung up.
    pub is_ended: bool,
    /// What a REFER of the hub is answered with.
    pub refer_status: u16,
    /// Responses to requests inside the call.
    pub responses: Vec<Message>,
    /// Requests of the hub inside the call.
    pub requests: Vec<Message>,
    /// The statuses that came before the answer.
    pub provisional: Vec<u16>,
    /// The reports of the hub.
    pub reports: Vec<Bytes>,
    /// The keys that the hub pressed, by RFC 4733.
    pub keys: String,
    /// The timestamp of the last one.
    key_time: Option<u32>,
}

enum Coder {
    G711(Format),
    G722(Box<G722In>, Box<G722Out>),
    Opus(OpusIn, OpusOut),
}

impl Coder {
    fn new(codec: Codec) -> Self {
        match codec {
            Codec::Pcmu => Self::G711(Format::Ulaw),
            Codec::Pcma => Self::G711(Format::Alaw),
            Codec::G722 => Self::G722(Box::default(), Box::default()),
            Codec::Opus => Self::Opus(OpusIn::new().expect("memory"), OpusOut::new(Delivery::Lossy).expect("memory")),
        }
    }

    fn rate(&self) -> usize {
        match self {
            Self::G711(_) => 8_000,
            Self::G722(..) => 16_000,
            Self::Opus(..) => 24_000,
        }
    }

    fn encode(&mut self, samples: &[i16]) -> Bytes {
        let mut payload = Vec::new();
        match self {
            Self::G711(format) => codec::encode(*format, samples, &mut payload),
            Self::G722(_, encoder) => encoder.encode(samples, &mut payload),
            Self::Opus(_, encoder) => {
                encoder.push(samples, &mut |packet| payload.extend_from_slice(packet)).expect("a frame");
            }
        }
        payload.into()
    }

    fn decode(&mut self, payload: &[u8], out: &mut Vec<i16>) {
        match self {
            Self::G711(format) => codec::decode(*format, payload, out).expect("samples"),
            Self::G722(decoder, _) => decoder.decode(payload, out),
            Self::Opus(decoder, _) => decoder.decode(payload, out).expect("a packet"),
        }
    }
}

impl Phone {
    /// Calls and waits for the answer; does not acknowledge a refusal.
    pub async fn call(hub: SocketAddr, options: Options) -> (Self, Answer) {
        let sip = UdpSocket::bind("127.0.0.1:0").await.expect("a port");
        let rtp = UdpSocket::bind("127.0.0.1:0").await.expect("a port");
        let mut phone = Self::new(sip.into(), rtp, hub, options);
        let answer = timeout(TEST_TIMEOUT, phone.invite()).await.expect("the hub answers");
        (phone, answer)
    }

    /// Answers a call of the hub that came to this socket.
    pub async fn answer(sip: impl Into<Arc<UdpSocket>>, hub: SocketAddr, invite: &Message, codec: Codec) -> Self {
        let sip = sip.into();
        let rtp = UdpSocket::bind("127.0.0.1:0").await.expect("a port");
        let local = Local {
            address: rtp.local_addr().expect("bound"),
            codecs: std::slice::from_ref(&codec),
            session: 1,
            version: 1,
            protection: Protection::Off,
        };
        let (description, agreed) = sdp::answer(&invite.body, local).expect("an offer");
        let mut response = invite.answer(200, "OK", Some("callee"));
        response.add("contact", format!("<sip:callee@{}>", sip.local_addr().expect("bound")));
        response.add("content-type", "application/sdp");
        response.body = description.into();
        sip.send_to(&response.write(), hub).await.expect("sent");
        let options = Options { codec, ..Options::default() };
        let mut phone = Self::new(sip, rtp, hub, options);
        phone.agreed = Some(agreed);
        phone.call_id = response.get("call-id").expect("Call-ID").to_owned();
        phone.from = response.get("to").expect("To").to_owned();
        phone.to = response.get("from").expect("From").to_owned();
        phone
    }

    fn new(sip: Arc<UdpSocket>, rtp: UdpSocket, hub: SocketAddr, options: Options) -> Self {
        let encoder = Coder::new(options.codec);
        let call_id = format!("{}@phone", sip.local_addr().expect("bound").port());
        let from = format!("<sip:+15550199@{}>;tag=phone", sip.local_addr().expect("bound"));
        let to = format!("<sip:{}@{hub}>", options.to);
        Self {
            sip,
            rtp,
            hub,
            options,
            call_id,
            number: 0,
            from,
            to,
            agreed: None,
            encoder,
            sequence: 65_530,
            timestamp: u32::MAX - 1_000,
            next: Instant::now(),
            heard: Vec::new(),
            n_packets: 0,
            n_noise: 0,
            heard_ssrc: None,
            heard_from: None,
            is_ended: false,
            refer_status: 200,
            responses: Vec::new(),
            requests: Vec::new(),
            provisional: Vec::new(),
            reports: Vec::new(),
            keys: String::new(),
            key_time: None,
        }
    }

    /// Calls, and gives up once `given_up` resolves; the status of the call.
    pub async fn give_up(hub: SocketAddr, options: Options, given_up: impl Future<Output = ()>) -> u16 {
        let sip = UdpSocket::bind("127.0.0.1:0").await.expect("a port");
        let own = sip.local_addr().expect("bound");
        let message = |method: Method, offer: String| {
            let mut request = Message::request(method.clone(), format!("sip:{}@{hub}", options.to));
            request.add("via", format!("SIP/2.0/UDP {own};branch=z9hG4bKgives-up;rport"));
            request.add("from", format!("<sip:+15550199@{own}>;tag=phone"));
            request.add("to", format!("<sip:{}@{hub}>", options.to));
            request.add("call-id", format!("{}@phone", own.port()));
            request.add("cseq", format!("1 {method}"));
            request.add("contact", format!("<sip:phone@{own}>"));
            request.add("max-forwards", "70");
            if !offer.is_empty() {
                request.add("content-type", "application/sdp");
            }
            request.body = offer.into();
            request.write()
        };
        let codecs = &[options.codec];
        let offer = sdp::offer(Local { address: own, codecs, session: 1, version: 1, protection: Protection::Off });
        sip.send_to(&message(Method::Invite, offer), hub).await.expect("sent");
        given_up.await;
        sip.send_to(&message(Method::Cancel, String::new()), hub).await.expect("sent");
        let mut buffer = [0; 4_096];
        loop {
            let received = timeout(TEST_TIMEOUT, sip.recv_from(&mut buffer)).await.expect("the hub answers");
            let response = Message::parse(&buffer[..received.expect("a message").0]).expect("a message");
            let is_calls = response.get("cseq") == Some("1 INVITE");
            if let Some(status) = response.status().filter(|status| is_calls && *status >= 200) {
                sip.send_to(&message(Method::Ack, String::new()), hub).await.expect("sent");
                return status;
            }
        }
    }

    /// A call that the hub takes.
    pub async fn connect(hub: SocketAddr, options: Options) -> Self {
        let (phone, answer) = Self::call(hub, options).await;
        assert!(matches!(answer, Answer::Accepted), "{answer:?}");
        phone
    }

    fn local(&self) -> Local<'_> {
        let address = self.rtp.local_addr().expect("bound");
        let codecs = std::slice::from_ref(&self.options.codec);
        Local { address, codecs, session: 1, version: 1, protection: Protection::Off }
    }

    async fn invite(&mut self) -> Answer {
        let mut authorization = None;
        loop {
            self.number += 1;
            let mut offer = if self.options.offers_late { String::new() } else { sdp::offer(self.local()) };
            if self.options.has_noise {
                offer = offer.replace(" 101\r\n", " 101 13\r\n");
            }
            if self.options.is_held {
                offer = offer.replace("a=sendrecv", "a=sendonly");
            }
            if let Some(rtcp) = self.options.rtcp {
                offer = offer.replace("a=rtcp-mux", &format!("a=rtcp:{}", rtcp.port()));
            }
            let mut request = self.request(Method::Invite, offer.as_bytes());
            if let Some(value) = authorization.take() {
                request.add("authorization", value);
            }
            let response = self.transact(&request).await;
            let status = response.status().expect("a response");
            if (200..300).contains(&status) {
                self.to = response.get("to").expect("To").to_owned();
                let agreed = match self.options.offers_late {
                    false => sdp::read_answer(&response.body, self.local()).expect("an answer"),
                    true => {
                        let (answer, agreed) = sdp::answer(&response.body, self.local()).expect("an offer");
                        self.acknowledge(answer.as_bytes()).await;
                        self.agreed = Some(agreed);
                        self.next = Instant::now();
                        return Answer::Accepted;
                    }
                };
                self.agreed = Some(agreed);
                self.acknowledge(b"").await;
                self.next = Instant::now();
                return Answer::Accepted;
            }
            let challenge = response.get("www-authenticate").map(str::to_owned);
            if let (401, Some(challenge), Some(credentials)) = (status, challenge, self.options.credentials.take()) {
                let uri = format!("sip:{}@{}", self.options.to, self.hub);
                authorization = credentials.answer(&challenge, "INVITE", &uri, "phone");
                continue;
            }
            let retry_after = response.get("retry-after").and_then(|seconds| seconds.parse().ok());
            return Answer::Refused { status, retry_after };
        }
    }

    fn request(&self, method: Method, body: &[u8]) -> Message {
        let own = self.sip.local_addr().expect("bound");
        let mut request = Message::request(method.clone(), format!("sip:{}@{}", self.options.to, self.hub));
        request.add("via", format!("SIP/2.0/UDP {own};branch=z9hG4bK{}{method};rport", self.number));
        request.add("from", self.from.clone());
        request.add("to", self.to.clone());
        request.add("call-id", self.call_id.clone());
        request.add("cseq", format!("{} {method}", self.number));
        request.add("contact", format!("<sip:phone@{own}>"));
        request.add("max-forwards", "70");
        request.add("allow", "INVITE, ACK, BYE, CANCEL, UPDATE");
        for line in self.options.headers.lines() {
            let (name, value) = line.split_once(": ").expect("a header");
            request.add(name, value);
        }
        if request.method() == Some(Method::Notify) {
            request.add("event", "refer");
        }
        if !body.is_empty() {
            request.add("content-type", "application/sdp");
        }
        request.body = Bytes::copy_from_slice(body);
        request
    }

    /// Sends a request until its final response comes.
    async fn transact(&mut self, request: &Message) -> Message {
        let bytes = request.write();
        let mut buffer = [0; 4_096];
        loop {
            let _ = self.sip.send_to(&bytes, self.hub).await;
            let until = Instant::now() + Duration::from_millis(500);
            while let Ok(received) = timeout_at(until, self.sip.recv_from(&mut buffer)).await {
                let Ok((n, _)) = received else { continue };
                let message = Message::parse(&buffer[..n]).expect("a message");
                let is_final = message.status().is_some_and(|status| status >= 200);
                self.provisional.extend(message.status().filter(|_| !is_final));
                if is_final && message.get("cseq") == request.get("cseq") {
                    return message;
                }
            }
        }
    }

    async fn acknowledge(&self, body: &[u8]) {
        let ack = self.request(Method::Ack, body).write();
        self.sip.send_to(&ack, self.hub).await.expect("sent");
    }

    /// Sends a request inside the call and goes on; its response is taken while talking.
    pub async fn send(&mut self, method: Method, kind: &str, body: &str) {
        self.number += 1;
        let mut request = self.request(method, body.as_bytes());
        if !body.is_empty() {
            request.set("content-type", kind);
        }
        self.sip.send_to(&request.write(), self.hub).await.expect("sent");
    }

    /// Puts the call on hold, or goes on: a re-INVITE with this direction, acknowledged.
    pub async fn reinvite(&mut self, direction: &str) -> Message {
        self.number += 1;
        let offer = sdp::offer(self.local()).replace("a=sendrecv", &format!("a={direction}"));
        let request = self.request(Method::Invite, offer.as_bytes());
        let response = timeout(TEST_TIMEOUT, self.transact(&request)).await.expect("an answer");
        self.acknowledge(b"").await;
        self.next = Instant::now();
        response
    }

    /// A re-INVITE without a description: the hub offers, and the answer comes with the acknowledgement.
    pub async fn reinvite_late(&mut self) {
        self.number += 1;
        let request = self.request(Method::Invite, b"");
        let response = timeout(TEST_TIMEOUT, self.transact(&request)).await.expect("an answer");
        let (answer, _) = sdp::answer(&response.body, self.local()).expect("an offer");
        self.acknowledge(answer.as_bytes()).await;
        self.next = Instant::now();
    }

    /// Loses the next packet that it would send.
    pub fn lose(&mut self) {
        self.sequence = self.sequence.wrapping_add(1);
        self.timestamp = self.timestamp.wrapping_add(self.options.codec.clock_hz() / 50);
    }

    /// Says a tone of this level in real time: in packets of 20 ms.
    pub async fn talk(&mut self, level: f32, ms: usize) {
        self.play(|seconds| level * (2_400.0 * seconds).sin(), ms).await;
    }

    /// A tone of this frequency, in Hz.
    pub async fn tone(&mut self, hz: f32, ms: usize) {
        self.play(|seconds| 8_000.0 * (TAU * hz * seconds).sin(), ms).await;
    }

    /// A voice: many tones at once.
    pub async fn voice(&mut self, ms: usize) {
        let harmonic = |n: u16, seconds: f32| (TAU * 120.0 * f32::from(n) * seconds).sin() / f32::from(n);
        self.play(|seconds| (1..=12).map(|n| 6_000.0 * harmonic(n, seconds)).sum(), ms).await;
    }

    /// Sound by the seconds since its beginning.
    async fn play(&mut self, sound: impl Fn(f32) -> f32, ms: usize) {
        let rate = self.encoder.rate();
        let n = rate / 50;
        for frame in 0..ms / 20 {
            self.wait().await;
            let samples: Vec<i16> = (0..n).map(|i| sound((frame * n + i) as f32 / rate as f32) as i16).collect();
            let payload = self.encoder.encode(&samples);
            let ticks = self.options.codec.clock_hz() / 50;
            self.packet(self.agreed.as_ref().expect("a call").payload_type, payload, ticks).await;
        }
    }

    /// Returns what it hears by this path, in taps at 8 kHz, over a line's noise of -64 dBFS, for calls by G.711.
    pub async fn echo(&mut self, path: &[f32], ms: usize) {
        let n = self.encoder.rate() / 50;
        let ticks = self.options.codec.clock_hz() / 50;
        let mut random = crate::echo::noise(1);
        let mut noise = || (random() * 36.0) as i16;
        let mut next = None;
        for _ in 0..ms / 20 {
            self.wait().await;
            let from = *next.get_or_insert(self.heard.len().saturating_sub(n));
            let samples: Vec<i16> = if self.heard.len() >= from + n {
                next = Some(from + n);
                (from..from + n).map(|at| crate::echo::returned(path, &self.heard, at)).collect()
            } else {
                vec![0; n]
            };
            let samples: Vec<i16> = samples.iter().map(|sample| sample + noise()).collect();
            let payload = self.encoder.encode(&samples);
            self.packet(self.agreed.as_ref().expect("a call").payload_type, payload, ticks).await;
        }
    }

    pub async fn speak(&mut self, ms: usize) {
        self.talk(8_000.0, ms).await;
        self.talk(0.0, 1_000).await;
    }

    /// Takes what comes until the next packet is due.
    async fn wait(&mut self) {
        self.next = (self.next + Duration::from_millis(20)).max(Instant::now() - Duration::from_millis(100));
        let mut sip = [0; 4_096];
        let mut rtp = [0; 4_096];
        loop {
            tokio::select! {
                biased;
                received = self.sip.recv_from(&mut sip) => if let Ok((n, _)) = received {
                    self.dialog(&sip[..n]).await;
                },
                received = self.rtp.recv_from(&mut rtp) => if let Ok((n, from)) = received {
                    self.heard_from = Some(from);
                    self.hear(&rtp[..n]);
                },
                () = tokio::time::sleep_until(self.next) => return,
            }
        }
    }

    async fn dialog(&mut self, bytes: &[u8]) {
        let message = Message::parse(bytes).expect("a message");
        if message.status().is_some() {
            self.responses.push(message);
            return;
        }
        if message.method() == Some(Method::Bye) {
            self.is_ended = true;
        }
        if message.method() != Some(Method::Ack) {
            let status = if message.method() == Some(Method::Refer) { self.refer_status } else { 200 };
            let response = message.answer(status, "So", None).write();
            self.sip.send_to(&response, self.hub).await.expect("sent");
        }
        self.requests.push(message);
    }

    fn hear(&mut self, bytes: &[u8]) {
        if rtp::is_control(bytes) {
            self.reports.push(Bytes::copy_from_slice(bytes));
            return;
        }
        let packet = Packet::parse(bytes).expect("RTP");
        self.n_packets += 1;
        self.heard_ssrc = Some(packet.ssrc);
        let events = self.agreed.as_ref().and_then(|agreed| agreed.events);
        if events.is_some_and(|(number, _)| number == packet.payload_type) {
            if self.key_time.replace(packet.timestamp) != Some(packet.timestamp) {
                let key = "0123456789*#ABCD".chars().nth(usize::from(packet.payload[0])).expect("a key");
                self.keys.push(key);
            }
            return;
        }
        if packet.payload_type == 13 {
            self.n_noise += 1;
            return;
        }
        self.encoder.decode(&packet.payload, &mut self.heard);
    }

    async fn packet(&mut self, payload_type: u8, payload: Bytes, ticks: u32) {
        let packet = Packet {
            payload_type,
            marker: false,
            sequence: self.sequence,
            timestamp: self.timestamp,
            ssrc: 99,
            payload,
        };
        self.sequence = self.sequence.wrapping_add(1);
        self.timestamp = self.timestamp.wrapping_add(ticks);
        let to = self.agreed.as_ref().and_then(|agreed| agreed.remote).expect("an address");
        let _ = self.rtp.send_to(&packet.write(), to).await;
    }

    /// Where the hub receives.
    pub fn hub_rtp(&self) -> SocketAddr {
        self.agreed.as_ref().and_then(|agreed| agreed.remote).expect("an address")
    }

    /// Presses a key for 60 ms, by RFC 4733; its last packet comes three times.
    pub async fn press(&mut self, key: u8) {
        let (number, _) = self.agreed.as_ref().and_then(|agreed| agreed.events).expect("events");
        for step in 0..5u8 {
            self.wait().await;
            let flags = if step >= 2 { 0x8a } else { 0x0a };
            self.packet(number, Bytes::from(vec![key, flags, step, 0]), 0).await;
        }
        self.timestamp = self.timestamp.wrapping_add(5 * self.options.codec.clock_hz() / 50);
    }

    /// Sound that was heard, in milliseconds, from the first loud sample to the last.
    pub fn heard_ms(&self) -> usize {
        let rate = if self.encoder.rate() == 8_000 { 8 } else { 16 };
        let is_loud = |sample: &i16| sample.unsigned_abs() > 1_000;
        let first = self.heard.iter().position(is_loud);
        let last = self.heard.iter().rposition(is_loud);
        first.zip(last).map_or(0, |(first, last)| (last + 1 - first) / rate)
    }

    /// Whether what it heard from 400 to 200 ms ago is a tone of this frequency, in Hz: the other side may be a little ahead.
    pub fn hears(&self, hz: f32) -> bool {
        ends_with_tone(&self.heard, if self.encoder.rate() == 8_000 { 8_000 } else { 16_000 }, hz)
    }

    /// The `Refer-To` by which another phone takes the hub's place in a call that this one has answered.
    pub fn refer_to(&self) -> String {
        let own = self.sip.local_addr().expect("bound");
        let tag = |side: &str| side.split_once(";tag=").expect("a tag").1.to_owned();
        let call_id = self.call_id.replace('@', "%40");
        let tags = format!("%3Bto-tag%3D{}%3Bfrom-tag%3D{}", tag(&self.from), tag(&self.to));
        format!("<sip:callee@{own}?Replaces={call_id}{tags}>")
    }

    /// What the hub asks the phone to call instead.
    pub fn referred_to(&self) -> Vec<&str> {
        let refers = self.requests.iter().filter(|request| request.method() == Some(Method::Refer));
        refers.filter_map(|request| request.get("refer-to")).collect()
    }

    /// Says nothing until something is so.
    pub async fn until(&mut self, what: &str, is_so: impl Fn(&Self) -> bool) {
        let until = Instant::now() + TEST_TIMEOUT;
        while !is_so(self) {
            assert!(Instant::now() < until, "{what}");
            self.talk(0.0, 20).await;
        }
    }
}
