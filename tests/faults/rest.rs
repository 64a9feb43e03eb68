//! Requests of the speech API and of the dashboard that are wrong, endless, or too many.

use super::harness::{Party, at_rest, fault, run};
use super::process::{Settings, TEST_TIMEOUT, parse};
use super::upstream::{Stage, Wrong};
use serde_json::json;
use socket2::SockRef;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// Resident memory that requests may cost the hub, in MiB: a few uploads of the largest size, decoded.
const MEMORY_MIB: u64 = 128;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_that_are_wrong_or_endless_are_answered_or_ended() {
    let settings = Settings::default()
        .with("SPEECH__MAX_UPLOAD_MIB", "8")
        .with("SPEECH__MAX_REQUESTS", "8")
        .with("SPEECH__MAX_AUDIO_MINUTES", "1");
    let mut faults = Vec::new();
    for (name, path, body) in bodies() {
        let one = fault(format!("speech: {name}"), "400", move |party| bad_body(party, path, body.clone()));
        faults.push(if name == "not JSON" { one.short() } else { one });
    }
    for (name, file) in files() {
        faults.push(fault(format!("transcription: {name}"), "400, or an empty transcript", move |party| {
            bad_file(party, file.clone())
        }));
    }
    for wrong in [Wrong::Hang, Wrong::Reset, Wrong::ServerError, Wrong::Endless, Wrong::Stall, Wrong::Garbage] {
        let sees = "a status of 500 and more, or a body that breaks off";
        faults.push(fault(format!("speech: the voice: {wrong:?}"), sees, move |party| speech_fails(party, wrong)));
    }
    faults.extend([
        fault("speech: a body of 20 MiB", "413", large_body),
        fault("speech: a body without end", "413, or the end", endless_body),
        fault("speech: a body that stalls", "408, or the end", stalled_body),
        fault("speech: bodies that stall, from sixty", "408, 503 or the end", stalled_bodies),
        fault("speech: leaves after the first byte, forty times", "nothing: it has left", leaves_early).short(),
        fault("speech: reads nothing", "the end of the connection", reads_nothing),
        fault("speech: forty at once", "503 with Retry-After", many_requests),
        fault("transcription: 9 MiB", "413", large_file),
        fault("transcription: a form without an end", "400, 408, or the end", endless_form),
        fault("transcription: a form of 5,000 fields", "400", many_fields),
        fault("turns: a cursor that is none", "400, no turns before it, or all", bad_cursor),
        fault("turns: a hundred listeners", "503 beyond the bound", many_listeners),
        fault("methods: those that no route has", "405", wrong_methods),
        fault("voices: an upload where none can be kept", "an error", bad_voice),
    ]);
    run("rest", settings, MEMORY_MIB, faults).await;
}

/// Names, paths and bodies.
fn bodies() -> Vec<(&'static str, &'static str, Vec<u8>)> {
    let speech = "/v1/audio/speech";
    let json = |value: serde_json::Value| value.to_string().into_bytes();
    vec![
        ("not JSON", speech, b"{\"input\": ".to_vec()),
        ("no text", speech, json(json!({"voice": "alloy"}))),
        ("a text that is a list", speech, json(json!({"input": [1, 2], "voice": "alloy"}))),
        ("nothing to be spoken", speech, json(json!({"input": "\u{200b}\u{200b}", "voice": "alloy"}))),
        ("a text of 2 MiB", speech, json(json!({"input": "word ".repeat(400_000), "voice": "alloy"}))),
        ("a speed of 1e300", speech, json(json!({"input": "Hello", "speed": 1e300}))),
        ("a format that there is none of", speech, json(json!({"input": "Hello", "response_format": "../wav"}))),
        ("a voice out of the tree", speech, json(json!({"input": "Hello", "voice": "../../etc/passwd"}))),
        ("lists nested without end", speech, format!("{{\"input\":{}", "[".repeat(500_000)).into_bytes()),
        ("bytes that are not UTF-8", speech, b"{\"input\":\"\xff\xfe\"}".to_vec()),
        (
            "a session of nonsense",
            "/v1/realtime/client_secrets",
            json(json!({"session": {"type": "realtime", "voice": 7}})),
        ),
    ]
}

/// Names and files that are no sound.
fn files() -> Vec<(&'static str, Vec<u8>)> {
    let wav = |rate: u32, channels: u16, length: u32, sound: &[u8]| {
        let mut file = b"RIFF\xff\xff\xff\xffWAVEfmt \x10\0\0\0\x01\0".to_vec();
        file.extend(channels.to_le_bytes());
        file.extend(rate.to_le_bytes());
        file.extend((rate.wrapping_mul(2)).to_le_bytes());
        file.extend([2, 0, 16, 0]);
        file.extend(b"data");
        file.extend(length.to_le_bytes());
        file.extend(sound);
        file
    };
    vec![
        ("an empty file", Vec::new()),
        ("a text", b"This is not sound at all. ".repeat(100)),
        ("random bytes", (0..100_000_u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect()),
        ("a WAV file at 0 Hz", wav(0, 1, 4, &[0; 4])),
        ("a WAV file at 4 GHz", wav(u32::MAX, 1, 4, &[0; 4])),
        ("a WAV file of 65,535 channels", wav(16_000, u16::MAX, 4, &[0; 4])),
        ("a WAV file that announces 4 GB", wav(16_000, 1, u32::MAX, &[0; 32_000])),
        ("the head of an MP3 file", b"ID3\x04\0\0\x7f\x7f\x7f\x7f".to_vec()),
        ("the head of a FLAC file", b"fLaC\0\0\0\x22".to_vec()),
        ("Ogg pages without end", b"OggS\0\x02\0\0\0\0\0\0\0\0\0\0\0\0".repeat(5_000)),
    ]
}

fn form(file: &[u8]) -> (String, Vec<u8>) {
    let mut body = b"--b\r\ncontent-disposition: form-data; name=\"file\"; filename=\"a.wav\"\r\n\r\n".to_vec();
    body.extend_from_slice(file);
    body.extend_from_slice(b"\r\n--b--\r\n");
    ("content-type: multipart/form-data; boundary=b\r\n".into(), body)
}

async fn bad_body(party: Party, path: &'static str, body: Vec<u8>) {
    let answer = party.http("POST", path, "content-type: application/json\r\n", &body).await;
    party.beside().await;
    answer.is(&[400]);
    assert!(answer.json()["error"]["message"].is_string(), "{answer:?}");
}

async fn bad_file(party: Party, file: Vec<u8>) {
    let (kind, body) = form(&file);
    let answer = party.http("POST", "/v1/audio/transcriptions", &kind, &body).await;
    party.beside().await;
    answer.is(&[200, 400]);
}

async fn speech_fails(party: Party, wrong: Wrong) {
    let body =
        json!({"input": format!("Hello {}.", Stage::Tts.marker(wrong)), "voice": "alloy", "response_format": "pcm"});
    let (answer, ()) = tokio::join!(party.post("/v1/audio/speech", &body), party.beside());
    assert!(answer.status >= 500 || !answer.is_whole, "{} and a whole body", answer.status);
}

async fn large_body(party: Party) {
    let body = json!({"input": "x".repeat(20 << 20)});
    let answer = party.post("/v1/audio/speech", &body).await;
    party.beside().await;
    answer.is(&[413]);
}

/// The head of a request whose body comes later.
async fn begin(party: &Party, path: &str, headers: &str) -> TcpStream {
    let mut stream = party.tcp().await;
    let head = format!("POST {path} HTTP/1.1\r\nhost: localhost\r\n{headers}\r\n");
    stream.write_all(head.as_bytes()).await.expect("the hub reads");
    stream
}

async fn endless_body(party: Party) {
    let mut stream = begin(&party, "/v1/audio/speech", "transfer-encoding: chunked\r\n").await;
    let chunk = format!("10000\r\n{}\r\n", "x".repeat(0x10000));
    let write = async {
        for _ in 0..400 {
            if stream.write_all(chunk.as_bytes()).await.is_err() {
                break;
            }
        }
    };
    let (_, ()) = tokio::join!(timeout(TEST_TIMEOUT, write), party.beside());
    let mut bytes = Vec::new();
    let _ = timeout(TEST_TIMEOUT, stream.read_to_end(&mut bytes)).await.expect("the hub ends the connection");
    assert!(parse(&bytes).is_none_or(|answer| answer.status == 413), "{}", String::from_utf8_lossy(&bytes));
}

async fn stalled_body(party: Party) {
    let mut stream = begin(&party, "/v1/audio/speech", "content-length: 1000\r\n").await;
    stream.write_all(b"{\"input\"").await.expect("the hub reads");
    party.beside().await;
    let mut bytes = Vec::new();
    let _ = timeout(TEST_TIMEOUT, stream.read_to_end(&mut bytes)).await.expect("the hub ends the connection");
    assert!(parse(&bytes).is_none_or(|answer| answer.status == 408), "{}", String::from_utf8_lossy(&bytes));
}

async fn stalled_bodies(party: Party) {
    let mut streams = Vec::new();
    for n in 0..60 {
        let path = if n % 2 == 0 { "/v1/audio/speech" } else { "/v1/realtime/client_secrets" };
        streams.push(begin(&party, path, "content-length: 1000\r\n").await);
    }
    party.beside().await;
    for mut stream in streams {
        let mut bytes = Vec::new();
        let _ = timeout(TEST_TIMEOUT, stream.read_to_end(&mut bytes)).await.expect("the hub ends the connection");
        assert!(
            parse(&bytes).is_none_or(|answer| [408, 503].contains(&answer.status)),
            "{}",
            String::from_utf8_lossy(&bytes)
        );
    }
}

/// A request for minutes of sound.
fn long() -> Vec<u8> {
    json!({"input": "A long text has many words in it. ".repeat(100), "voice": "alloy", "response_format": "pcm"})
        .to_string()
        .into_bytes()
}

async fn leaves_early(party: Party) {
    for _ in 0..40 {
        let body = long();
        let mut stream = begin(&party, "/v1/audio/speech", &format!("content-length: {}\r\n", body.len())).await;
        stream.write_all(&body).await.expect("the hub reads");
        let _ = timeout(TEST_TIMEOUT, stream.read_u8()).await.expect("an answer");
        SockRef::from(&stream).set_linger(Some(Duration::ZERO)).expect("set");
    }
    party.beside().await;
}

async fn reads_nothing(party: Party) {
    let n_descriptors = async || at_rest(&party.hub).await.0["descriptors"];
    let before = n_descriptors().await;
    let mut streams = Vec::new();
    for _ in 0..6 {
        let body = long();
        let mut stream = begin(&party, "/v1/audio/speech", &format!("content-length: {}\r\n", body.len())).await;
        SockRef::from(&stream).set_recv_buffer_size(4_096).expect("set");
        stream.write_all(&body).await.expect("the hub reads");
        streams.push(stream);
    }
    party.beside().await;
    assert!(n_descriptors().await >= before + streams.len(), "the answers are read");
    // After 30 s, which no setting shortens. What the kernel holds would take longer to be read.
    let ended = async { while n_descriptors().await > before {} };
    timeout(Duration::from_secs(40), ended).await.expect("the hub ends the connections");
}

async fn many_requests(party: Party) {
    let body = json!({"input": format!("Hello {}.", Stage::Tts.marker(Wrong::Slow)), "voice": "alloy"});
    let asked = (0..40).map(|_| party.post("/v1/audio/speech", &body));
    let (answers, ()) = tokio::join!(futures_util::future::join_all(asked), party.beside());
    let refused: Vec<_> = answers.iter().filter(|answer| answer.status == 503).collect();
    assert!(refused.len() >= 20, "{} of 40 were refused", refused.len());
    assert!(refused.iter().all(|answer| answer.header("retry-after").is_some()));
}

async fn large_file(party: Party) {
    let (kind, body) = form(&vec![0; 9 << 20]);
    let answer = party.http("POST", "/v1/audio/transcriptions", &kind, &body).await;
    party.beside().await;
    answer.is(&[413]);
}

async fn endless_form(party: Party) {
    let headers = "content-type: multipart/form-data; boundary=b\r\ntransfer-encoding: chunked\r\n";
    let mut stream = begin(&party, "/v1/audio/transcriptions", headers).await;
    stream.write_all(b"20\r\n--b\r\ncontent-disposition: form-d\r\n").await.expect("the hub reads");
    party.beside().await;
    let mut bytes = Vec::new();
    let _ = timeout(TEST_TIMEOUT, stream.read_to_end(&mut bytes)).await.expect("the hub ends the connection");
    assert!(
        parse(&bytes).is_none_or(|answer| [400, 408].contains(&answer.status)),
        "{}",
        String::from_utf8_lossy(&bytes)
    );
}

async fn many_fields(party: Party) {
    let field = b"--b\r\ncontent-disposition: form-data; name=\"x\"\r\n\r\n1\r\n".repeat(5_000);
    let body = [field, b"--b--\r\n".to_vec()].concat();
    let kind = "content-type: multipart/form-data; boundary=b\r\n";
    let answer = party.http("POST", "/v1/audio/transcriptions", kind, &body).await;
    party.beside().await;
    answer.is(&[400]);
}

async fn bad_cursor(party: Party) {
    party.http("GET", "/api/turns?limit=-1", "", b"").await.is(&[400]);
    for query in ["before=nothing", "limit=99999999999", "after=%00", "before=..%2F..%2F"] {
        let answer = party.http("GET", &format!("/api/turns?{query}"), "", b"").await;
        answer.is(&[200]);
        let is_before_nothing = query.starts_with("before=");
        assert_eq!(answer.json()["turns"] == json!([]), is_before_nothing, "{query}: {answer:?}");
    }
    party.http("GET", "/api/turns/turn_none", "", b"").await.is(&[404]);
    party.beside().await;
}

async fn many_listeners(party: Party) {
    let mut streams = Vec::new();
    for _ in 0..100 {
        let mut stream = party.tcp().await;
        stream.write_all(b"GET /api/turns/live HTTP/1.1\r\nhost: localhost\r\n\r\n").await.expect("the hub reads");
        streams.push(stream);
    }
    let mut n_refused = 0;
    for stream in &mut streams {
        let mut line = [0; 12];
        timeout(TEST_TIMEOUT, stream.read_exact(&mut line)).await.expect("an answer").expect("an answer");
        n_refused += usize::from(&line == b"HTTP/1.1 503");
    }
    party.beside().await;
    assert_eq!(n_refused, 36, "64 may listen");
}

async fn wrong_methods(party: Party) {
    for (method, path) in [
        ("PUT", "/v1/audio/speech"),
        ("DELETE", "/metrics"),
        ("PATCH", "/api/turns"),
        ("OPTIONS", "/v1/realtime"),
        ("BREW", "/"),
        ("TRACE", "/healthz"),
    ] {
        party.http(method, path, "", b"").await.is(&[405]);
    }
    party.beside().await;
}

async fn bad_voice(party: Party) {
    let (kind, body) = form(b"no sound");
    let answer = party.http("POST", "/v1/audio/voices", &kind, &body).await;
    party.beside().await;
    assert!((400..600).contains(&answer.status), "{answer:?}");
}
