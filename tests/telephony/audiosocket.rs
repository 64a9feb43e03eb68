//! Asterisk AudioSocket over TCP.

use super::phone::{Phone, Provider};
use super::{NUMBER, hub, long, route};
use crate::hub::{Hub, engines};
use crate::turns::{get, ms, turn};
use antiphon::config::Config;
use antiphon::server::Keys;
use antiphon_engine_api::fakes::llm::{FakeLlm, words};
use antiphon_engine_api::fakes::stt::FakeStt;
use antiphon_engine_api::fakes::tts::FakeTts;
use serde_json::json;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout, timeout_at};

const UUID: &str = "40325ec2-5efd-4bd3-805f-53576e581d13";
const UUID_BYTES: u128 = 0x4032_5ec2_5efd_4bd3_805f_5357_6e58_1d13;
const TEST_TIMEOUT: Duration = Duration::from_secs(20);

/// A configuration whose AudioSocket has this address and knows one UUID.
fn config() -> (Config, SocketAddr) {
    let free = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = free.local_addr().expect("bound");
    let mut config = Config::default();
    config.telephony.audiosocket_listen = address.to_string();
    config.telephony.key_pause_ms = 400;
    config.telephony.routes.insert(UUID.to_uppercase(), route("", json!({"instructions": "You are a pirate."})));
    (config, address)
}

struct Call {
    stream: TcpStream,
    /// Audio frames of the hub, each with the time it came.
    frames: Vec<(Instant, Vec<u8>)>,
    hung_up: bool,
    is_closed: bool,
    buffer: Vec<u8>,
    next: Instant,
}

async fn connect(address: SocketAddr) -> TcpStream {
    let connected = async {
        loop {
            match TcpStream::connect(address).await {
                Ok(stream) => return stream,
                Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
            }
        }
    };
    timeout(TEST_TIMEOUT, connected).await.expect("the hub listens")
}

impl Call {
    async fn begin(address: SocketAddr, uuid: u128) -> Self {
        let stream = connect(address).await;
        let mut call = Self {
            stream,
            frames: Vec::new(),
            hung_up: false,
            is_closed: false,
            buffer: Vec::new(),
            next: Instant::now(),
        };
        call.send(0x01, &uuid.to_be_bytes()).await;
        call
    }

    async fn send(&mut self, kind: u8, payload: &[u8]) {
        let mut frame = vec![kind];
        frame.extend(u16::try_from(payload.len()).expect("short").to_be_bytes());
        frame.extend(payload);
        let _ = self.stream.write_all(&frame).await;
    }

    /// Sends audio at 8 kHz in real time.
    async fn talk(&mut self, level: f32, ms: usize) {
        for n in 0..ms / 20 {
            self.next = (self.next + Duration::from_millis(20)).max(Instant::now() - Duration::from_millis(100));
            let mut block = [0; 4096];
            while let Ok(read) = timeout_at(self.next, self.stream.read(&mut block)).await {
                match read {
                    Ok(n) if n > 0 => self.take(&block[..n]),
                    _ => {
                        self.is_closed = true;
                        tokio::time::sleep_until(self.next).await;
                        break;
                    }
                }
            }
            let samples = (0..160).map(|i| (level * ((n * 160 + i) as f32 * 0.3).sin()) as i16);
            let bytes: Vec<u8> = samples.flat_map(i16::to_le_bytes).collect();
            self.send(0x10, &bytes).await;
        }
    }

    fn take(&mut self, bytes: &[u8]) {
        self.buffer.extend(bytes);
        while let Some(&[kind, high, low]) = self.buffer.first_chunk::<3>() {
            let n = 3 + usize::from(u16::from_be_bytes([high, low]));
            if self.buffer.len() < n {
                return;
            }
            let frame: Vec<u8> = self.buffer.drain(..n).skip(3).collect();
            match kind {
                0x00 => self.hung_up = true,
                0x10 => self.frames.push((Instant::now(), frame)),
                other => panic!("{other:#x}"),
            }
        }
    }

    async fn until(&mut self, what: &str, is_so: impl Fn(&Self) -> bool) {
        let until = Instant::now() + TEST_TIMEOUT;
        while !is_so(self) {
            assert!(Instant::now() < until, "{what}");
            self.talk(0.0, 20).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_is_paced_and_cut_where_it_was_sent() {
    let answer = long();
    let llm = FakeLlm::default();
    for text in [answer.as_str(), "Fine.", "Thanks."] {
        llm.then(words(text));
    }
    let (config, address) = config();
    let hub = hub(&["tell me", "stop that"], &llm, config).await;
    let mut call = Call::begin(address, UUID_BYTES).await;
    call.talk(8_000.0, 500).await;
    call.until("1.5 s of the reply", |call| call.frames.len() >= 75).await;
    assert!(format!("{:?}", llm.requests()[0]).contains("You are a pirate."));
    let took = call.frames[74].0 - call.frames[0].0;
    assert!(took > Duration::from_millis(1_300), "75 frames of 20 ms came in {took:?}");
    assert!(call.frames.iter().all(|(_, frame)| frame.len() == 320));
    call.talk(8_000.0, 600).await;
    let n_asked = 2;
    call.until("the next reply is asked for", |_| llm.requests().len() == n_asked).await;
    let (_, list) = get(&hub, "/api/turns").await;
    let cut = list["turns"].as_array().expect("a list").iter().find(|turn| turn["barged_in"] == true);
    let cut = cut.expect("the reply was cut");
    let n_words = cut["heard"].as_str().expect("text").matches("long").count() as f64;
    let heard_ms = ms(&cut["audio"]["heard_ms"]);
    assert!(heard_ms >= 1_500.0 && (heard_ms / 250.0 - n_words).abs() <= 1.0, "{cut}");
    let n_frames = call.frames.len();
    call.until("the next reply sounds", |call| call.frames.len() > n_frames).await;
    for key in [b"1", b"#"] {
        call.send(0x03, key).await;
    }
    call.until("the keys are asked for", |_| llm.requests().len() == n_asked + 1).await;
    assert!(format!("{:?}", llm.requests()[2].messages).contains("1#"));
    call.until("a settled turn", |call| call.frames.len() > 80).await;
    turn(&hub, |turn| turn["heard_by"] == "report").await;
    call.send(0x00, &[]).await;
    hub.until("antiphon_sessions_active ", 0.0).await;
    hub.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_known_uuid_is_served_on_a_hub_with_keys() {
    let (config, address) = config();
    let engines = engines(FakeStt::hears(["hello"]), FakeLlm::says(["Hi there, you."]), FakeTts::default());
    let hub = Hub::with_keys(engines, config, Keys::of(&["sk-antiphon-test-1"])).await;
    let mut call = Call::begin(address, UUID_BYTES).await;
    call.talk(8_000.0, 500).await;
    call.until("the reply", |call| call.is_closed || call.frames.len() >= 5).await;
    assert!(!call.is_closed && call.frames.iter().all(|(_, frame)| frame.len() == 320));
    call.send(0x00, &[]).await;
    hub.until("antiphon_sessions_active ", 0.0).await;
    hub.stop().await;
}

#[tokio::test(start_paused = true)]
async fn an_unknown_uuid_is_hung_up() {
    let (config, address) = config();
    let hub = hub(&[], &FakeLlm::default(), config).await;
    let mut call = Call::begin(address, UUID_BYTES + 1).await;
    call.until("the hub hangs up", |call| call.is_closed).await;
    assert!(call.hung_up && call.frames.is_empty());
    // What is no AudioSocket is closed as well, and the listener goes on.
    let mut stranger = TcpStream::connect(address).await.expect("it listens");
    stranger.write_all(b"GET / HTTP/1.1\r\n\r\n").await.expect("sent");
    let mut call = Call::begin(address, UUID_BYTES).await;
    call.talk(0.0, 100).await;
    hub.until("antiphon_sessions_active ", 1.0).await;
    hub.begin_to_stop();
    call.until("the hub hangs up", |call| call.is_closed).await;
    assert!(call.hung_up);
    hub.stop().await;
}

#[tokio::test(start_paused = true)]
async fn connections_that_name_no_call_keep_none_out() {
    let (mut config, address) = config();
    config.telephony.unauthenticated = true;
    let hub = hub(&[], &FakeLlm::default(), config).await;
    let mut idle = Vec::new();
    for _ in 0..256 {
        idle.push(connect(address).await);
    }
    // The last of them has waited for long enough to lose its place, and none has waited for the 5 s after which it is closed.
    tokio::time::sleep(Duration::from_millis(800)).await;
    let mut phone = Phone::call(hub.address, Provider::Twilio, "", NUMBER).await;
    let mut call = Call::begin(address, UUID_BYTES).await;
    tokio::join!(phone.silence(100), call.talk(0.0, 100));
    hub.until("antiphon_sessions_active ", 2.0).await;
    assert!(!call.is_closed && !phone.is_closed);
}

#[tokio::test(start_paused = true)]
async fn a_hub_that_drains_listens_no_more() {
    let (config, address) = config();
    let hub = hub(&["tell me"], &FakeLlm::says([long().as_str()]), config).await;
    let mut call = Call::begin(address, UUID_BYTES).await;
    call.talk(8_000.0, 500).await;
    call.until("the reply begins", |call| call.frames.len() > 10).await;
    hub.begin_to_stop();
    while TcpStream::connect(address).await.is_ok() {
        call.talk(0.0, 20).await;
        assert!(!call.is_closed, "the listener is closed before the calls are");
    }
    assert!(!call.is_closed);
    drop(call);
    hub.stop().await;
}
