//! A real hub with fake engines on a real socket, and a plain WebSocket client, for the scenario tests.

use antiphon::config::Config;
use antiphon::server::{self, Extras, Keys, Parts};
use antiphon_engine_api::Engines;
use antiphon_engine_api::fakes::llm::FakeLlm;
use antiphon_engine_api::fakes::stt::FakeStt;
use antiphon_engine_api::fakes::tts::FakeTts;
use antiphon_engine_api::fakes::vad::FakeVad;
use antiphon_engines::stt::SttConfig;
use antiphon_telemetry::Metrics;
use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use futures_util::{SinkExt, StreamExt};
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::handshake::client::Response;
use tokio_tungstenite::tungstenite::protocol::CloseFrame;
use tokio_tungstenite::tungstenite::{self, Message};
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream};
use tokio_util::sync::CancellationToken;

/// Longer than any step here takes, so that a test that hangs fails.
const TEST_TIMEOUT: Duration = Duration::from_secs(120);

/// A client's end of a WebSocket.
pub type Stream = WebSocketStream<MaybeTlsStream<TcpStream>>;

/// Fake engines: fixed transcripts, fixed answers, a tone as the voice.
pub fn engines(stt: FakeStt, llm: FakeLlm, tts: FakeTts) -> Engines {
    Engines {
        vad: Arc::new(FakeVad),
        turn: None,
        speaker: None,
        stt: Arc::new(stt),
        llm: Arc::new(llm),
        tts: Arc::new(tts),
    }
}

/// Whisper tiny.en with one decoder of one thread: several wait for each other where other tests take the cores. `make real-models`
/// fetches it.
pub fn tiny_whisper() -> SttConfig {
    let model = concat!(env!("CARGO_MANIFEST_DIR"), "/target/models/whisper-tiny.en/ggml-tiny.en.bin");
    SttConfig { engine: "whisper".into(), model: model.into(), decoders: 1, threads: 1, ..SttConfig::default() }
}

/// The same, for a program.
pub fn tiny_whisper_env() -> [(&'static str, String); 3] {
    let SttConfig { engine, model, threads, .. } = tiny_whisper();
    [("ANTIPHON_STT__ENGINE", engine), ("ANTIPHON_STT__MODEL", model), ("ANTIPHON_STT__THREADS", threads.to_string())]
}

/// The settings of a hub that hears nothing and speaks with the voice that needs no model, whichever models this machine has.
pub fn offline() -> Config {
    let mut config = Config::default();
    config.stt.engine = "none".into();
    config.tts.engine = "flite".into();
    config
}

/// Opens a WebSocket. Nagle's algorithm is off: it would hold a small message back for real time, while a paused clock goes on.
pub async fn connect(request: impl IntoClientRequest + Unpin) -> Result<(Stream, Response), tungstenite::Error> {
    tokio_tungstenite::connect_async_with_config(request, None, true).await
}

/// A hub with this transcript and this answer.
pub async fn hub(heard: &str, answer: &str) -> Hub {
    Hub::start(engines(FakeStt::hears([heard]), FakeLlm::says([answer]), FakeTts::default()), Config::default()).await
}

/// A hub in this process.
pub struct Hub {
    pub address: SocketAddr,
    pub metrics: Metrics,
    stop: CancellationToken,
    served: Option<JoinHandle<std::io::Result<()>>>,
}

fn find(metrics: &str, series: &str) -> Option<f64> {
    metrics.lines().find_map(|line| line.strip_prefix(series))?.trim().parse().ok()
}

impl Hub {
    pub async fn start(engines: Engines, config: Config) -> Self {
        Self::with_keys(engines, config, Keys::default()).await
    }

    /// A hub that requires a key.
    pub async fn with_keys(engines: Engines, config: Config, keys: Keys) -> Self {
        let metrics = Metrics::new();
        Self::serve(Parts { config, engines, metrics, keys, tls: None, manager: None }).await
    }

    /// A hub with these parts.
    pub async fn serve(parts: Parts) -> Self {
        Self::serve_with(parts, Extras::default()).await
    }

    /// The same with further listeners.
    #[allow(clippy::disallowed_methods)]
    pub async fn serve_with(mut parts: Parts, extras: Extras) -> Self {
        // A test machine is busy with other tests, which is no overload of this hub.
        if parts.config.slo == Config::default().slo {
            parts.config.slo.brownout = false;
        }
        // Isolates the test from the default job folder.
        if parts.config.speech.jobs_dir == Config::default().speech.jobs_dir {
            parts.config.speech.jobs_dir.clear();
        }
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("bound");
        let stop = CancellationToken::new();
        let metrics = parts.metrics.clone();
        let served = tokio::spawn(server::serve_with(listener, parts, extras, stop.clone()));
        Self { address, metrics, stop, served: Some(served) }
    }

    /// Opens a session and consumes its session.created.
    pub async fn connect(&self, query: &str) -> Socket {
        let mut socket = self.open(query).await.expect("the upgrade is accepted");
        assert_eq!(socket.next().await["type"], "session.created");
        socket
    }

    /// The same for a client behind a proxy on this machine: to the hub it is no operator.
    pub async fn connect_by_proxy(&self) -> Socket {
        self.connect_with("x-forwarded-for", "192.0.2.1").await
    }

    /// Opens a session by a request with this header, and consumes its session.created.
    pub async fn connect_with(&self, name: &'static str, value: &str) -> Socket {
        let mut request = format!("ws://{}/v1/realtime", self.address).into_client_request().expect("an address");
        request.headers_mut().insert(name, value.parse().expect("a header"));
        let (stream, _) = connect(request).await.expect("the upgrade is accepted");
        let mut socket = Socket { stream, frames: Vec::new() };
        assert_eq!(socket.next().await["type"], "session.created");
        socket
    }

    /// Performs the upgrade; `Err` is the HTTP status of a rejection.
    pub async fn open(&self, query: &str) -> Result<Socket, u16> {
        let url = format!("ws://{}/v1/realtime{query}", self.address);
        match connect(url).await {
            Ok((stream, _)) => Ok(Socket { stream, frames: Vec::new() }),
            Err(tungstenite::Error::Http(response)) => Err(response.status().as_u16()),
            Err(error) => panic!("{error}"),
        }
    }

    /// The value of a series in `/metrics`.
    pub fn metric(&self, series: &str) -> f64 {
        let text = self.metrics.render();
        find(&text, series).unwrap_or_else(|| panic!("{series} in {text}"))
    }

    /// Waits until a metric reaches a value; some series exist only after their first event.
    pub async fn until(&self, series: &str, value: f64) {
        let reached = async {
            while find(&self.metrics.render(), series) != Some(value) {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        timeout(TEST_TIMEOUT, reached).await.unwrap_or_else(|_| panic!("{series} is {}", self.metric(series)));
    }

    /// Stops the hub; resolves when everything has ended.
    pub async fn stop(mut self) {
        self.stop.cancel();
        let served = self.served.take().expect("stopped once");
        timeout(TEST_TIMEOUT, served).await.expect("the hub ends").expect("no panic").expect("no error");
    }

    /// Requests a stop without waiting for it.
    pub fn begin_to_stop(&self) {
        self.stop.cancel();
    }
}

/// A client.
pub struct Socket {
    pub stream: Stream,
    /// Binary messages received while waiting for events.
    pub frames: Vec<bytes::Bytes>,
}

impl Socket {
    pub async fn send(&mut self, event: Value) {
        self.send_raw(Message::text(event.to_string())).await;
    }

    pub async fn send_raw(&mut self, message: Message) {
        self.stream.send(message).await.expect("the hub listens");
    }

    /// The next event.
    pub async fn next(&mut self) -> Value {
        // The hub's pings are no events.
        timeout(TEST_TIMEOUT, self.next_event()).await.expect("an event comes")
    }

    async fn next_event(&mut self) -> Value {
        loop {
            match self.message().await {
                Message::Text(text) => return serde_json::from_str(&text).expect("JSON"),
                Message::Binary(bytes) => self.frames.push(bytes),
                Message::Close(frame) => panic!("closed: {frame:?}"),
                _ => {}
            }
        }
    }

    async fn message(&mut self) -> Message {
        let next = timeout(TEST_TIMEOUT, self.stream.next()).await.expect("something comes");
        next.expect("the connection stands").expect("a whole message")
    }

    /// The next event other than a rate-limit update.
    pub async fn news(&mut self) -> Value {
        loop {
            let event = self.next().await;
            if event["type"] != "rate_limits.updated" {
                return event;
            }
        }
    }

    /// All events up to and including the first of this type.
    pub async fn until(&mut self, kind: &str) -> Vec<Value> {
        let mut events = Vec::new();
        loop {
            let event = self.next().await;
            let done = event["type"] == kind;
            events.push(event);
            if done {
                return events;
            }
        }
    }

    /// The hub's close frame.
    pub async fn close(&mut self) -> Option<CloseFrame> {
        loop {
            if let Message::Close(frame) = self.message().await {
                return frame;
            }
        }
    }

    /// Sends a typed question; returns the events of its response.
    pub async fn ask(&mut self, text: &str) -> Vec<Value> {
        let content = json!([{"type": "input_text", "text": text}]);
        let item = json!({"type": "message", "role": "user", "content": content});
        self.send(json!({"type": "conversation.item.create", "item": item})).await;
        self.send(json!({"type": "response.create"})).await;
        self.until("response.done").await
    }

    pub async fn append(&mut self, pcm: &[i16]) {
        self.send(json!({"type": "input_audio_buffer.append", "audio": base64(pcm)})).await;
    }
}

/// What the names of a folder's files end in, from their first full stop on, in order.
pub fn file_endings(folder: &Path) -> Vec<String> {
    let names = std::fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").file_name());
    let ending = |name: std::ffi::OsString| {
        let name = name.to_string_lossy().into_owned();
        name.split_once('.').map(|(_, ending)| ending.to_owned()).unwrap_or_default()
    };
    let mut endings: Vec<_> = names.map(ending).collect();
    endings.sort_unstable();
    endings
}

/// PCM16 as encoded in events.
pub fn base64(pcm: &[i16]) -> String {
    BASE64.encode(pcm.iter().flat_map(|sample| sample.to_le_bytes()).collect::<Vec<u8>>())
}

/// `ms` of a loud tone at 24 kHz, which the fake detector classifies as speech.
pub fn loud(ms: usize) -> Vec<i16> {
    (0..ms * 24).map(|i| (8_000.0 * (i as f32 * 0.1).sin()) as i16).collect()
}

/// `ms` of silence at 24 kHz.
pub fn quiet(ms: usize) -> Vec<i16> {
    vec![0; ms * 24]
}

/// The types of events in order; consecutive duplicates are merged.
pub fn types(events: &[Value]) -> Vec<&str> {
    let mut types: Vec<&str> = events.iter().map(|event| event["type"].as_str().expect("a type")).collect();
    types.dedup();
    types
}

/// The length of a response's audio in samples.
pub fn n_audio_samples(events: &[Value]) -> usize {
    let deltas = events.iter().filter(|event| event["type"] == "response.output_audio.delta");
    deltas.map(|event| BASE64.decode(event["delta"].as_str().expect("text")).expect("base64").len() / 2).sum()
}
