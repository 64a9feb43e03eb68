//! Servers that misbehave: a recognizer, a language model, a voice, an MCP server and a mirror of models over HTTP/1.1 on
//! bare sockets, so that an answer can break every rule.
//!
//! A request that holds a marker ([`Stage::marker`], a [`Wrong`]'s name) is answered in that wrong way, every other one at
//! once and well: a faulty session and the canary share one server. A marker reaches the recognizer as the session's prompt,
//! the language model as the question, and the voice as the model's answer.

use serde_json::{Value, json};
use socket2::SockRef;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::{CancellationToken, DropGuard};

/// A stage, by the first letters of its markers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    Stt,
    Llm,
    Tts,
    /// MCP servers and mirrors of models: the marker is part of the path.
    Path,
}

impl Stage {
    fn prefix(self) -> &'static str {
        match self {
            Self::Stt => "qxs",
            Self::Llm => "qxl",
            Self::Tts => "qxv",
            Self::Path => "qxp",
        }
    }

    /// The word that makes this stage answer wrongly: letters only, so that no text normalization changes it.
    pub fn marker(self, wrong: Wrong) -> String {
        format!("{}{}", self.prefix(), format!("{wrong:?}").to_lowercase())
    }
}

/// How a request is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wrong {
    /// Nothing is sent, and the connection stays.
    Hang,
    /// The connection is reset when the request has been read.
    Reset,
    /// The connection is closed without an answer.
    Close,
    /// Bytes that are not HTTP: the beginning of a TLS handshake.
    Garbage,
    /// A head, byte by byte, without an end.
    HeadTrickle,
    /// Header lines without an end.
    HeadEndless,
    /// Statuses.
    ServerError,
    Overloaded,
    Unauthorized,
    NotFound,
    NoContent,
    Teapot,
    /// A redirect to itself.
    Redirect,
    /// 200 and a page.
    Html,
    /// 200 and an empty body.
    Empty,
    /// 200, the right media type, and text that is not JSON, or sound.
    Nonsense,
    /// JSON of the wrong types.
    OtherTypes,
    /// Nested lists without an end.
    Deep,
    /// Not a number, where a number is expected.
    NotANumber,
    /// Bytes that are not UTF-8.
    NotText,
    /// A body that is said to be compressed and is not.
    Compressed,
    /// A body, a byte at a time, without an end.
    Trickle,
    /// A good beginning, then nothing.
    Stall,
    /// A good beginning, then a reset.
    Broken,
    /// A good beginning, then the end of the connection before that of the body.
    Truncated,
    /// A body without an end, as fast as it is read.
    Endless,
    /// A body that announces 10 GB.
    Huge,
    /// Chunks whose lengths are not numbers.
    BadChunks,
    /// Half a sample.
    OddBytes,
    /// Zeros: an answer, but nothing to hear.
    Silence,
    /// A WAV file at 8 kHz, whatever was asked for.
    OtherRate,
    /// A WAV file of floating-point values that are not numbers.
    NotNumbers,
    /// Events without their end.
    NoEnd,
    /// An error in the middle of an answer.
    ErrorEvent,
    /// Tool calls without number.
    ManyCalls,
    /// The good file, with one byte changed.
    OtherHash,
    /// A part that was not asked for.
    OtherRange,
    /// A good answer, a second late.
    Slow,
}

impl Wrong {
    const ALL: [Self; 38] = [
        Self::Hang,
        Self::Reset,
        Self::Close,
        Self::Garbage,
        Self::HeadTrickle,
        Self::HeadEndless,
        Self::ServerError,
        Self::Overloaded,
        Self::Unauthorized,
        Self::NotFound,
        Self::NoContent,
        Self::Teapot,
        Self::Redirect,
        Self::Html,
        Self::Empty,
        Self::Nonsense,
        Self::OtherTypes,
        Self::Deep,
        Self::NotANumber,
        Self::NotText,
        Self::Compressed,
        Self::Trickle,
        Self::Stall,
        Self::Broken,
        Self::Truncated,
        Self::Endless,
        Self::Huge,
        Self::BadChunks,
        Self::OddBytes,
        Self::Silence,
        Self::OtherRate,
        Self::NotNumbers,
        Self::NoEnd,
        Self::ErrorEvent,
        Self::ManyCalls,
        Self::OtherHash,
        Self::OtherRange,
        Self::Slow,
    ];
}

/// The file that a mirror serves.
pub const FILE: &[u8] = b"0123456789";

/// What the model answers the canary.
pub const REPLY: &str = "Hello to you too.";

/// A running server; dropping it ends its connections.
pub struct Upstream {
    pub address: SocketAddr,
    shared: Arc<ServerState>,
    _stop: DropGuard,
}

#[derive(Default)]
struct ServerState {
    open: AtomicUsize,
    requests: AtomicUsize,
}

/// Counts a connection while it lives.
struct Open(Arc<ServerState>);

impl Drop for Open {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Upstream {
    #[allow(clippy::disallowed_methods)]
    pub async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("bound");
        let shared = Arc::new(ServerState::default());
        let stop = CancellationToken::new();
        let counted = shared.clone();
        let stopped = stop.clone();
        tokio::spawn(stop.clone().run_until_cancelled_owned(async move {
            while let Ok((stream, _)) = listener.accept().await {
                counted.open.fetch_add(1, Ordering::Relaxed);
                let open = Open(counted.clone());
                let _ = stream.set_nodelay(true);
                tokio::spawn(stopped.clone().run_until_cancelled_owned(async move {
                    let _ = answer(stream, &open.0, address).await;
                    drop(open);
                }));
            }
        }));
        Self { address, shared, _stop: stop.drop_guard() }
    }

    /// Connections that are open.
    pub fn open(&self) -> usize {
        self.shared.open.load(Ordering::Relaxed)
    }

    /// Requests so far.
    pub fn requests(&self) -> usize {
        self.shared.requests.load(Ordering::Relaxed)
    }

    pub fn base(&self) -> String {
        format!("http://{}/v1", self.address)
    }
}

/// A request: its first line, its headers in lower case, its body.
struct Request {
    line: String,
    head: String,
    body: Vec<u8>,
}

impl Request {
    async fn read(stream: &mut TcpStream) -> Option<Self> {
        let mut bytes = Vec::new();
        let end = loop {
            if let Some(end) = find(&bytes, b"\r\n\r\n") {
                break end + 4;
            }
            if bytes.len() > 1 << 20 || stream.read_buf(&mut bytes).await.ok()? == 0 {
                return None;
            }
        };
        let head = String::from_utf8_lossy(&bytes[..end]).into_owned();
        let line = head.lines().next()?.to_owned();
        let head = head.to_lowercase();
        let field = |name: &str| head.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
        let mut body = bytes.split_off(end);
        match field("content-length:").and_then(|length| length.parse::<usize>().ok()) {
            Some(length) => {
                while body.len() < length {
                    if stream.read_buf(&mut body).await.ok()? == 0 {
                        return None;
                    }
                }
            }
            None if field("transfer-encoding:").is_some() => {
                while !body.ends_with(b"0\r\n\r\n") {
                    if stream.read_buf(&mut body).await.ok()? == 0 {
                        return None;
                    }
                }
            }
            None => {}
        }
        Some(Self { line, head, body })
    }

    /// How it is to be answered.
    fn wrong(&self) -> Option<(Stage, Wrong)> {
        let stage = match self.line.split(' ').nth(1)? {
            path if path.starts_with("/v1/audio/transcriptions") => Stage::Stt,
            path if path.starts_with("/v1/chat/completions") => Stage::Llm,
            path if path.starts_with("/v1/audio/speech") => Stage::Tts,
            _ => Stage::Path,
        };
        let text = if stage == Stage::Path { self.line.as_bytes() } else { &self.body };
        let text = String::from_utf8_lossy(text).to_lowercase();
        let (_, rest) = text.split_once(stage.prefix())?;
        let word: String = rest.chars().take_while(char::is_ascii_lowercase).collect();
        let wrong = Wrong::ALL.into_iter().find(|wrong| format!("{wrong:?}").to_lowercase() == word);
        Some((stage, wrong.unwrap_or_else(|| panic!("{word} is no fault of an upstream"))))
    }

    /// Where a mirror is to begin.
    fn range(&self) -> Option<usize> {
        self.head.lines().find_map(|line| line.strip_prefix("range: bytes="))?.trim().strip_suffix('-')?.parse().ok()
    }
}

fn find(bytes: &[u8], wanted: &[u8]) -> Option<usize> {
    bytes.windows(wanted.len()).position(|window| window == wanted)
}

/// A stage's good answer: its media type and its body.
fn good(request: &Request, stage: Stage) -> (&'static str, Vec<u8>) {
    match stage {
        Stage::Stt => ("application/json", json!({"text": "hello there"}).to_string().into_bytes()),
        Stage::Llm => ("text/event-stream", events(&reply(&request.body)).into_bytes()),
        Stage::Tts => ("audio/pcm", tone(12_000)),
        Stage::Path => ("application/json", br#"{"object":"list","data":[]}"#.to_vec()),
    }
}

/// The model's words: those of the question that make the voice fail, where there are some, else [`REPLY`].
fn reply(body: &[u8]) -> String {
    let request: Value = serde_json::from_slice(body).unwrap_or_default();
    // The last message counts: the history holds the others.
    let last =
        request["messages"].as_array().and_then(|messages| messages.last()).map(|last| last["content"].to_string());
    let text = last.unwrap_or_default().to_lowercase();
    let marker = text.split_once(Stage::Tts.prefix()).map(|(_, rest)| rest);
    match marker {
        Some(rest) => {
            let word: String = rest.chars().take_while(char::is_ascii_lowercase).collect();
            format!("Well {}{word} it is.", Stage::Tts.prefix())
        }
        None if text.contains("tell me a long story") => "A long story has many words in it. ".repeat(200),
        None => REPLY.to_owned(),
    }
}

fn event(delta: Value, finish: Option<&str>) -> String {
    let choice = json!({"index": 0, "delta": delta, "finish_reason": finish});
    let chunk = json!({"id": "x", "object": "chat.completion.chunk", "created": 0, "model": "m", "choices": [choice]});
    format!("data: {chunk}\n\n")
}

fn events(words: &str) -> String {
    let mut text = event(json!({"role": "assistant", "content": ""}), None);
    for word in words.split_inclusive(' ') {
        text += &event(json!({"content": word}), None);
    }
    text + &event(json!({}), Some("stop")) + "data: [DONE]\n\n"
}

/// Samples of a tone at 24 kHz.
fn tone(n: usize) -> Vec<u8> {
    (0..n).flat_map(|i| ((8_000.0 * (i as f32 * 0.06).sin()) as i16).to_le_bytes()).collect()
}

fn wav(rate: u32, format: u16, bytes: &[u8]) -> Vec<u8> {
    let width: u16 = if format == 3 { 4 } else { 2 };
    let mut file = b"RIFF\xff\xff\xff\xffWAVEfmt \x10\0\0\0".to_vec();
    for part in [&format.to_le_bytes()[..], &1_u16.to_le_bytes(), &rate.to_le_bytes()] {
        file.extend(part);
    }
    file.extend((rate * u32::from(width)).to_le_bytes());
    file.extend(width.to_le_bytes());
    file.extend((width * 8).to_le_bytes());
    file.extend(b"data");
    file.extend((bytes.len() as u32).to_le_bytes());
    file.extend(bytes);
    file
}

/// A head for a body of this length, or one that ends with the connection.
fn head(status: &str, kind: &str, length: Option<u64>) -> Vec<u8> {
    let length = length.map_or(String::new(), |length| format!("content-length: {length}\r\n"));
    // No connection is kept, so that those of the hub can be counted.
    format!("HTTP/1.1 {status}\r\ncontent-type: {kind}\r\n{length}connection: close\r\n\r\n").into_bytes()
}

async fn whole(stream: &mut TcpStream, status: &str, kind: &str, body: &[u8]) -> std::io::Result<()> {
    stream.write_all(&head(status, kind, Some(body.len() as u64))).await?;
    stream.write_all(body).await
}

/// Until the hub closes the connection.
async fn gone(stream: &mut TcpStream) -> std::io::Result<()> {
    let mut sink = [0; 4_096];
    while stream.read(&mut sink).await? > 0 {}
    Ok(())
}

fn reset(stream: &TcpStream) {
    let _ = SockRef::from(stream).set_linger(Some(Duration::ZERO));
}

/// Sends the same bytes again and again until the hub closes the connection, which is noticed at once.
async fn repeat(stream: &mut TcpStream, bytes: &[u8], every: Duration) -> std::io::Result<()> {
    let (mut reader, mut writer) = stream.split();
    let write = async {
        loop {
            writer.write_all(bytes).await?;
            match every {
                Duration::ZERO => tokio::task::yield_now().await,
                every => tokio::time::sleep(every).await,
            }
        }
    };
    let mut sink = [0; 64];
    tokio::select! {
        ended = write => ended,
        ended = reader.read(&mut sink) => ended.map(drop),
    }
}

async fn answer(mut stream: TcpStream, shared: &ServerState, own: SocketAddr) -> std::io::Result<()> {
    let Some(request) = Request::read(&mut stream).await else { return Ok(()) };
    shared.requests.fetch_add(1, Ordering::Relaxed);
    let path = request.line.split(' ').nth(1).unwrap_or_default().to_owned();
    let Some((stage, wrong)) = request.wrong() else {
        let stage = match path.as_str() {
            path if path.starts_with("/v1/audio/transcriptions") => Stage::Stt,
            path if path.starts_with("/v1/chat/completions") => Stage::Llm,
            path if path.starts_with("/v1/audio/speech") => Stage::Tts,
            path if path.ends_with(".bin") => return file(&mut stream, &request, FILE).await,
            "/v1/models" => Stage::Path,
            _ => return whole(&mut stream, "404 Not Found", "text/plain", b"").await,
        };
        let (kind, body) = good(&request, stage);
        return whole(&mut stream, "200 OK", kind, &body).await;
    };
    let (kind, body) =
        if stage == Stage::Path { ("application/octet-stream", FILE.to_vec()) } else { good(&request, stage) };
    let half = &body[..body.len() / 2];
    let ok = |length| head("200 OK", kind, length);
    match wrong {
        Wrong::Slow => {
            tokio::time::sleep(Duration::from_secs(1)).await;
            whole(&mut stream, "200 OK", kind, &body).await
        }
        Wrong::Hang => gone(&mut stream).await,
        Wrong::Reset => {
            reset(&stream);
            Ok(())
        }
        Wrong::Close => Ok(()),
        Wrong::Garbage => stream.write_all(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n").await,
        Wrong::HeadTrickle => {
            stream.write_all(b"HTTP/1.1 200 OK\r\nx-slow: ").await?;
            repeat(&mut stream, b"a", Duration::from_millis(50)).await
        }
        Wrong::HeadEndless => {
            stream.write_all(b"HTTP/1.1 200 OK\r\n").await?;
            repeat(&mut stream, format!("x-more: {}\r\n", "a".repeat(8_000)).as_bytes(), Duration::ZERO).await
        }
        Wrong::ServerError => {
            whole(&mut stream, "500 Internal Server Error", "text/plain", b"secret words of the upstream").await
        }
        Wrong::Overloaded => whole(&mut stream, "429 Too Many Requests", "application/json", b"{}").await,
        Wrong::Unauthorized => {
            whole(&mut stream, "401 Unauthorized", "application/json", b"{\"error\":{\"message\":\"sk-secret\"}}").await
        }
        Wrong::NotFound => whole(&mut stream, "404 Not Found", "text/html", b"<h1>Not here</h1>").await,
        Wrong::NoContent => stream.write_all(b"HTTP/1.1 204 No Content\r\nconnection: close\r\n\r\n").await,
        Wrong::Teapot => whole(&mut stream, "418 I'm a teapot", "text/plain", b"short and stout").await,
        Wrong::Redirect => {
            let head = format!(
                "HTTP/1.1 307 Temporary Redirect\r\nlocation: http://{own}{path}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
            );
            stream.write_all(head.as_bytes()).await
        }
        Wrong::Html => whole(&mut stream, "200 OK", "text/html", b"<!doctype html><title>Sign in</title>").await,
        Wrong::Empty => whole(&mut stream, "200 OK", kind, b"").await,
        Wrong::Nonsense => whole(&mut stream, "200 OK", kind, b"data: {\"choices\": [oops\n\n").await,
        Wrong::OtherTypes => {
            let body = if stage == Stage::Llm {
                "data: {\"choices\":7}\n\ndata: [1,2]\n\n"
            } else {
                "{\"text\":{\"is\":[1]}}"
            };
            whole(&mut stream, "200 OK", kind, body.as_bytes()).await
        }
        Wrong::Deep => {
            let deep = format!("data: {}\n\n", "[".repeat(200_000));
            whole(&mut stream, "200 OK", kind, if stage == Stage::Llm { &deep } else { &deep[6..] }.as_bytes()).await
        }
        Wrong::NotANumber => {
            whole(&mut stream, "200 OK", kind, b"{\"text\":\"x\",\"logprobs\":[{\"token\":\"x\",\"logprob\":NaN}]}")
                .await
        }
        Wrong::NotText => {
            whole(&mut stream, "200 OK", kind, b"data: {\"text\":\"\xff\xfe\xfd\",\"choices\":\"\xff\"}\n\n").await
        }
        Wrong::Compressed => {
            let head = format!(
                "HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\ncontent-encoding: gzip\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
                9
            );
            stream.write_all(head.as_bytes()).await?;
            stream.write_all(b"\x1f\x8b\x08not gz").await
        }
        Wrong::Trickle => {
            stream.write_all(&ok(None)).await?;
            let begin: &[u8] = if stage == Stage::Stt {
                b"{\"text\":\""
            } else if stage == Stage::Llm {
                b"data: {\""
            } else {
                b""
            };
            stream.write_all(begin).await?;
            repeat(&mut stream, b"a", Duration::from_millis(100)).await
        }
        Wrong::Stall => {
            stream.write_all(&ok(None)).await?;
            stream.write_all(half).await?;
            gone(&mut stream).await
        }
        Wrong::Broken => {
            stream.write_all(&ok(None)).await?;
            stream.write_all(half).await?;
            stream.flush().await?;
            // Long enough that the half is read before the reset discards it.
            tokio::time::sleep(Duration::from_millis(200)).await;
            reset(&stream);
            Ok(())
        }
        Wrong::Truncated => {
            stream.write_all(&ok(Some(body.len() as u64))).await?;
            stream.write_all(half).await
        }
        Wrong::Endless => {
            stream.write_all(&ok(None)).await?;
            let (begin, more) = match stage {
                Stage::Stt => ("{\"text\":\"".to_owned(), "word ".repeat(2_000)),
                Stage::Llm => (String::new(), event(json!({"content": "word word word word. "}), None).repeat(50)),
                Stage::Tts | Stage::Path => (String::new(), "\0\x01".repeat(8_000)),
            };
            stream.write_all(begin.as_bytes()).await?;
            repeat(&mut stream, more.as_bytes(), Duration::ZERO).await
        }
        Wrong::Huge => {
            stream.write_all(&ok(Some(10_000_000_000))).await?;
            stream.write_all(half).await?;
            gone(&mut stream).await
        }
        Wrong::BadChunks => {
            let head = format!(
                "HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\ntransfer-encoding: chunked\r\nconnection: close\r\n\r\nzz\r\nbad\r\n"
            );
            stream.write_all(head.as_bytes()).await
        }
        Wrong::OddBytes => whole(&mut stream, "200 OK", kind, &body[..body.len() - 1]).await,
        Wrong::Silence => whole(&mut stream, "200 OK", kind, &vec![0; 48_000]).await,
        Wrong::OtherRate => whole(&mut stream, "200 OK", "audio/wav", &wav(8_000, 1, &tone(8_000))).await,
        Wrong::NotNumbers => {
            let samples: Vec<u8> = (0..8_000).flat_map(|_| f32::NAN.to_le_bytes()).collect();
            whole(&mut stream, "200 OK", "audio/wav", &wav(24_000, 3, &samples)).await
        }
        Wrong::NoEnd => {
            let begin = event(json!({"content": "Half a"}), None);
            whole(&mut stream, "200 OK", kind, begin.as_bytes()).await
        }
        Wrong::ErrorEvent => {
            let body = event(json!({"content": "Half a "}), None)
                + "data: {\"error\":{\"message\":\"out of memory\",\"code\":500}}\n\n";
            whole(&mut stream, "200 OK", kind, body.as_bytes()).await
        }
        Wrong::ManyCalls => {
            let call = |n: usize| json!({"tool_calls": [{"index": n, "id": format!("call_{n}"), "function": {"name": "f", "arguments": "{}"}}]});
            let calls: String = (0..5_000).map(|n| event(call(n), None)).collect();
            whole(&mut stream, "200 OK", kind, (calls + &event(json!({}), Some("tool_calls"))).as_bytes()).await
        }
        Wrong::OtherHash => file(&mut stream, &request, b"0123456780").await,
        Wrong::OtherRange => {
            let head = "HTTP/1.1 206 Partial Content\r\ncontent-range: bytes 3-9/10\r\ncontent-length: 7\r\nconnection: close\r\n\r\n3456789";
            stream.write_all(head.as_bytes()).await
        }
    }
}

/// A file, from where it was asked for.
async fn file(stream: &mut TcpStream, request: &Request, bytes: &[u8]) -> std::io::Result<()> {
    let Some(from) = request.range().filter(|from| *from < bytes.len()) else {
        return whole(stream, "200 OK", "application/octet-stream", bytes).await;
    };
    let rest = &bytes[from..];
    let head = format!(
        "HTTP/1.1 206 Partial Content\r\ncontent-range: bytes {from}-{}/{}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
        bytes.len() - 1,
        bytes.len(),
        rest.len()
    );
    stream.write_all(head.as_bytes()).await?;
    stream.write_all(rest).await
}
