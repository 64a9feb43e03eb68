//! Servers that misbehave: a recognizer, a language model, a voice, an MCP server and a mirror of models over HTTP/1.1.
//!
//! A request that holds a marker ([`Stage::marker`], a [`Wrong`]'s name) is answered in that wrong way, every other one at
//! once and well: a faulty session and the canary share one server. A marker reaches the recognizer as the session's prompt,
//! the language model as the question, and the voice as the model's answer.

use antiphon_test_server::{Answer, Request, TestServer};
use serde_json::{Value, json};
use std::time::Duration;

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

/// A server of all stages.
pub fn start() -> TestServer {
    // No connection is kept, so that those of the hub can be counted.
    TestServer::start(|request| answer(request).header("connection", "close"))
}

fn stage_of(request: &Request) -> Stage {
    match request.path() {
        path if path.starts_with("/v1/audio/transcriptions") => Stage::Stt,
        path if path.starts_with("/v1/chat/completions") => Stage::Llm,
        path if path.starts_with("/v1/audio/speech") => Stage::Tts,
        _ => Stage::Path,
    }
}

/// How a request is to be answered.
fn wrong_of(request: &Request) -> Option<Wrong> {
    let stage = stage_of(request);
    let text = if stage == Stage::Path { request.target.clone() } else { request.text() };
    let text = text.to_lowercase();
    let (_, rest) = text.split_once(stage.prefix())?;
    let word: String = rest.chars().take_while(char::is_ascii_lowercase).collect();
    let wrong = Wrong::ALL.into_iter().find(|wrong| format!("{wrong:?}").to_lowercase() == word);
    Some(wrong.unwrap_or_else(|| panic!("{word} is no fault of an upstream")))
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

fn answer(request: &Request) -> Answer {
    let stage = stage_of(request);
    match wrong_of(request) {
        Some(wrong) => answer_wrongly(request, stage, wrong),
        None if stage != Stage::Path || request.path() == "/v1/models" => {
            let (kind, body) = good(request, stage);
            Answer::of(kind, body)
        }
        None if request.path().ends_with(".bin") => Answer::file(request, FILE),
        None => Answer::status(404),
    }
}

fn answer_wrongly(request: &Request, stage: Stage, wrong: Wrong) -> Answer {
    let (kind, body) =
        if stage == Stage::Path { ("application/octet-stream", FILE.to_vec()) } else { good(request, stage) };
    let half = body.len() / 2;
    let whole = |body: &[u8]| Answer::of(kind, body.to_vec());
    match wrong {
        Wrong::Slow => whole(&body).delayed(Duration::from_secs(1)),
        Wrong::Hang => Answer::none(),
        Wrong::Reset => Answer::raw("").reset(),
        Wrong::Close => Answer::raw(""),
        Wrong::Garbage => Answer::raw(&b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n"[..]),
        Wrong::HeadTrickle => Answer::raw("HTTP/1.1 200 OK\r\nx-slow: ").repeat("a", Duration::from_millis(50)),
        Wrong::HeadEndless => {
            let more = format!("x-more: {}\r\n", "a".repeat(8_000));
            Answer::raw("HTTP/1.1 200 OK\r\n").repeat(more, Duration::ZERO)
        }
        Wrong::ServerError => Answer::text("secret words of the upstream").with_status(500),
        Wrong::Overloaded => Answer::of("application/json", "{}").with_status(429),
        Wrong::Unauthorized => Answer::json(&json!({"error": {"message": "sk-secret"}})).with_status(401),
        Wrong::NotFound => Answer::of("text/html", "<h1>Not here</h1>").with_status(404),
        Wrong::NoContent => Answer::status(204),
        Wrong::Teapot => Answer::text("short and stout").with_status(418),
        Wrong::Redirect => {
            let host = request.header("host").unwrap_or_default();
            Answer::status(307).header("location", &format!("http://{host}{}", request.target))
        }
        Wrong::Html => Answer::of("text/html", "<!doctype html><title>Sign in</title>"),
        Wrong::Empty => whole(b""),
        Wrong::Nonsense => whole(b"data: {\"choices\": [oops\n\n"),
        Wrong::OtherTypes if stage == Stage::Llm => whole(b"data: {\"choices\":7}\n\ndata: [1,2]\n\n"),
        Wrong::OtherTypes => whole(b"{\"text\":{\"is\":[1]}}"),
        Wrong::Deep => {
            let deep = format!("data: {}\n\n", "[".repeat(200_000));
            whole(if stage == Stage::Llm { &deep } else { &deep[6..] }.as_bytes())
        }
        Wrong::NotANumber => whole(b"{\"text\":\"x\",\"logprobs\":[{\"token\":\"x\",\"logprob\":NaN}]}"),
        Wrong::NotText => whole(b"data: {\"text\":\"\xff\xfe\xfd\",\"choices\":\"\xff\"}\n\n"),
        Wrong::Compressed => whole(b"\x1f\x8b\x08not gz").header("content-encoding", "gzip"),
        Wrong::Trickle => {
            let begin = match stage {
                Stage::Stt => "{\"text\":\"",
                Stage::Llm => "data: {\"",
                Stage::Tts | Stage::Path => "",
            };
            whole(begin.as_bytes()).repeat("a", Duration::from_millis(100))
        }
        Wrong::Stall => whole(&body[..half]).hang(),
        // Long enough that the half is read before the reset discards it.
        Wrong::Broken => whole(&body[..half]).pause(Duration::from_millis(200)).reset(),
        Wrong::Truncated => whole(&body).first(half).close(),
        Wrong::Endless => {
            let (begin, more) = match stage {
                Stage::Stt => ("{\"text\":\"", "word ".repeat(2_000)),
                Stage::Llm => ("", event(json!({"content": "word word word word. "}), None).repeat(50)),
                Stage::Tts | Stage::Path => ("", "\0\x01".repeat(8_000)),
            };
            whole(begin.as_bytes()).repeat(more, Duration::ZERO)
        }
        Wrong::Huge => whole(&body[..half]).announcing(10_000_000_000).hang(),
        Wrong::BadChunks => Answer::raw(format!(
            "HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\ntransfer-encoding: chunked\r\nconnection: close\r\n\r\nzz\r\nbad\r\n"
        )),
        Wrong::OddBytes => whole(&body[..body.len() - 1]),
        Wrong::Silence => whole(&[0; 48_000]),
        Wrong::OtherRate => Answer::of("audio/wav", wav(8_000, 1, &tone(8_000))),
        Wrong::NotNumbers => {
            let samples: Vec<u8> = (0..8_000).flat_map(|_| f32::NAN.to_le_bytes()).collect();
            Answer::of("audio/wav", wav(24_000, 3, &samples))
        }
        Wrong::NoEnd => whole(event(json!({"content": "Half a"}), None).as_bytes()),
        Wrong::ErrorEvent => {
            let begin = event(json!({"content": "Half a "}), None);
            whole((begin + "data: {\"error\":{\"message\":\"out of memory\",\"code\":500}}\n\n").as_bytes())
        }
        Wrong::ManyCalls => {
            let call = |n: usize| json!({"tool_calls": [{"index": n, "id": format!("call_{n}"), "function": {"name": "f", "arguments": "{}"}}]});
            let calls: String = (0..5_000).map(|n| event(call(n), None)).collect();
            whole((calls + &event(json!({}), Some("tool_calls"))).as_bytes())
        }
        Wrong::OtherHash => Answer::file(request, b"0123456780"),
        Wrong::OtherRange => Answer::file_from(Some(3), FILE),
    }
}
