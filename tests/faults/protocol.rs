//! Clients that break the rules of WebSocket and of the Realtime protocol, or use them without measure.

use super::harness::{Party, append, closed, error_of, fault, run_at_once, send, speech, typed};
use super::process::{Settings, TEST_TIMEOUT};
use super::raw::{BINARY, CLOSE, CONTINUATION, FIN, PING, TEXT, close, frame, text};
use super::upstream::{Stage, Wrong};
use crate::hub::Socket;
use futures_util::{SinkExt, StreamExt};
use serde_json::{Value, json};
use socket2::SockRef;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_tungstenite::tungstenite::Message;

/// Resident memory that clients may cost the hub, in MiB: two messages of 16 MiB for each of a few clients, as text and as
/// a tree, and what the allocator keeps.
const MEMORY_MIB: u64 = 320;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_that_break_the_protocol_harm_themselves_alone() {
    let mut faults = Vec::new();
    for (name, bytes, code) in frames() {
        faults.push(fault(format!("frames: {name}"), "a close with the code of RFC 6455", move |party| {
            broken_frames(party, bytes.clone(), code)
        }));
    }
    for (name, event) in events() {
        let is_short = name == "lists nested without end";
        let one = fault(format!("event: {name}"), "an error event, and the session goes on", move |party| {
            bad_event(party, event.clone())
        });
        faults.push(if is_short { one.short() } else { one });
    }
    faults.extend([
        fault("handshake: version 8", "400 or 426, and the supported version", wrong_version),
        fault("handshake: data before its answer", "400, or the end", early_data),
        fault("handshake: no key", "400", no_websocket_key),
        fault("message: 17 MiB", "1009, or the end", too_large),
        fault("message: a frame a byte, without end", "1008, or the end", trickled_message).short(),
        fault("message: 15 MiB that are never complete, from ten", "1008, 1013, or the end", unfinished_messages),
        fault("message: reset in the middle", "nothing: it has left", reset_in_the_middle),
        fault("message: half closed in the middle", "the end of the connection", half_closed),
        fault("pings: 20,000", "their pongs", ping_flood),
        fault("frames: 50,000 empty fragments", "a close", fragment_flood),
        fault("events: 60,000 unknown ones, answers unread", "1013, or the end", errors_unread),
        fault("reader: asks for a long answer and reads nothing", "1013, 1011, or the end", reads_nothing).short(),
        fault("reader: answers no ping", "1011", answers_no_ping),
        fault("writer: 60 MiB as fast as it goes", "the session, later", writes_fast),
        fault("responses: forty at once", "errors beyond the bound", many_responses),
        fault("items: 6,000", "errors or deletions beyond the bound", many_items),
        fault("items: 20 MiB of text", "errors or deletions beyond the bound", much_text),
        fault("cancels: 5,000 of nothing", "errors", many_cancels),
        fault("updates: 2,000", "their confirmations", many_updates),
        fault("audio: 30,000 tiny appends", "the session goes on", tiny_appends),
        fault("resume: a number that was never sent", "an error", resume_ahead),
        fault("resume: twenty connections for one session", "one of them serves", resume_contest),
        fault("resume: a session that is left alone", "nothing: it has left", left_alone),
    ]);
    run_at_once("protocol", Settings::default(), MEMORY_MIB, faults).await;
}

/// Names, bytes behind the handshake, and the code they are closed with.
fn frames() -> Vec<(&'static str, Vec<u8>, u16)> {
    let head = |n: u64| [&[FIN | BINARY, 0xff][..], &n.to_be_bytes(), &[0; 4]].concat();
    vec![
        ("no mask", vec![FIN | TEXT, 2, b'h', b'i'], 1002),
        ("reserved bits", frame(FIN | 0x40 | TEXT, b"hi"), 1002),
        ("opcode 11", frame(FIN | 11, b""), 1002),
        ("a continuation of nothing", frame(FIN | CONTINUATION, b"x"), 1002),
        ("a ping of 126 bytes", frame(FIN | PING, &[0; 126]), 1002),
        ("a close in fragments", frame(CLOSE, &[3, 232]), 1002),
        ("a close with code 1005", close(1005, b""), 1002),
        ("text within a text", [frame(TEXT, b"a"), frame(FIN | TEXT, b"b")].concat(), 1002),
        ("text that is not UTF-8", frame(FIN | TEXT, b"{\"type\":\"\xff\xfe\"}"), 1007),
        ("a length of 2^63", head(u64::MAX), 1009),
        ("one byte more than 16 MiB", head((16 << 20) + 1), 1009),
    ]
}

/// Events that are refused.
fn events() -> Vec<(&'static str, String)> {
    let update = |session: Value| json!({"type": "session.update", "session": session}).to_string();
    let tool = |n: usize| json!({"type": "function", "name": format!("f{n}"), "parameters": {"type": "object"}});
    vec![
        ("not JSON", "{\"type\": ".into()),
        ("no object", "[1, 2, 3]".into()),
        ("no type", "{}".into()),
        ("an unknown type", json!({"type": "session.destroy"}).to_string()),
        ("an unknown field", update(json!({"type": "realtime", "volume": 11}))),
        ("lists nested without end", format!("{{\"type\":\"session.update\",\"session\":{}", "[".repeat(500_000))),
        (
            "objects nested without end",
            format!("{{\"type\":\"session.update\",\"session\":{}", "{\"a\":".repeat(100_000)),
        ),
        ("200,000 values", json!({"type": "session.update", "session": vec![0; 200_000]}).to_string()),
        ("a number of 100,000 digits", format!("{{\"type\":\"session.update\",\"x\":{}}}", "9".repeat(100_000))),
        ("a name of 2 MiB", format!("{{\"type\":\"{}\"}}", "x".repeat(2 << 20))),
        ("instructions of 4 MiB", update(json!({"type": "realtime", "instructions": "x".repeat(4 << 20)}))),
        ("300 tools", update(json!({"type": "realtime", "tools": (0..300).map(tool).collect::<Vec<_>>()}))),
        (
            "nine MCP servers that are not allowed",
            update(json!({"type": "realtime", "tools": vec![
            json!({"type": "mcp", "server_label": "a", "server_url": "http://10.0.0.1/mcp"}); 9]})),
        ),
        (
            "a rate of 0",
            update(json!({"type": "realtime", "audio": {"input": {"format": {"type": "audio/pcm", "rate": 0}}}})),
        ),
        (
            "a threshold of 1e308",
            update(json!({"type": "realtime", "audio": {"input": {"turn_detection":
            {"type": "server_vad", "threshold": 1e308}}}})),
        ),
        ("an item that is not there", json!({"type": "conversation.item.delete", "item_id": "item_none"}).to_string()),
        (
            "a truncation at the end of time",
            json!({"type": "conversation.item.truncate", "item_id": "item_none",
            "content_index": 0, "audio_end_ms": u64::MAX})
            .to_string(),
        ),
        (
            "the result of a call that was never made",
            json!({"type": "conversation.item.create", "item":
            {"type": "function_call_output", "call_id": "call_none", "output": "x"}})
            .to_string(),
        ),
        (
            "a response with a voice of 1 MiB",
            json!({"type": "response.create", "response":
            {"audio": {"output": {"voice": "x".repeat(1 << 20)}}}})
            .to_string(),
        ),
        ("a cancel of nothing", json!({"type": "response.cancel"}).to_string()),
        ("a commit of nothing", json!({"type": "input_audio_buffer.commit"}).to_string()),
        ("zero bytes in a text", "{\"type\":\"\0\0\0\"}".into()),
    ]
}

/// A connection behind the handshake, on which frames can be invalid.
async fn raw(party: &Party) -> TcpStream {
    let mut stream = party.tcp().await;
    stream.write_all(super::raw::handshake(party.hub.address(), 13).as_bytes()).await.expect("the hub reads");
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(timeout(TEST_TIMEOUT, stream.read_u8()).await.expect("an answer").expect("a whole head"));
    }
    assert!(head.starts_with(b"HTTP/1.1 101 "), "{}", String::from_utf8_lossy(&head));
    stream
}

/// The code of the close frame at the end of what the hub sends; `None` if there is none.
async fn code_at_end(stream: &mut TcpStream) -> Option<u16> {
    let mut bytes = Vec::new();
    let _ = timeout(TEST_TIMEOUT, stream.read_to_end(&mut bytes)).await.expect("the hub ends the connection");
    // The last close frame: 0x88, a length of at most 125, the code.
    let at = bytes.windows(2).rposition(|pair| pair[0] == FIN | CLOSE && (2..=125).contains(&pair[1]))?;
    Some(u16::from_be_bytes([*bytes.get(at + 2)?, *bytes.get(at + 3)?]))
}

/// Still answered, in the same session.
async fn goes_on(socket: &mut Socket) {
    socket
        .send(json!({"type": "response.create", "response": {"output_modalities": ["text"], "conversation": "none",
        "input": [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": "And now?"}]}]}}))
        .await;
    loop {
        let event = socket.until("response.done").await.pop().expect("an end");
        if event["response"]["status"] == "completed" {
            return;
        }
    }
}

async fn broken_frames(party: Party, bytes: Vec<u8>, code: u16) {
    let mut stream = raw(&party).await;
    let _ = stream.write_all(&bytes).await;
    party.beside().await;
    assert_eq!(code_at_end(&mut stream).await, Some(code));
}

async fn bad_event(party: Party, event: String) {
    let mut socket = party.connect("").await;
    send(&mut socket, Message::text(event)).await;
    party.beside().await;
    let error = timeout(TEST_TIMEOUT, socket.until("error")).await.expect("an error").pop().expect("an error");
    assert!(error["error"]["message"].as_str().is_some_and(|text| !text.is_empty() && text.len() < 4_096), "{error}");
    goes_on(&mut socket).await;
}

async fn wrong_version(party: Party) {
    let handshake = super::raw::handshake(party.hub.address(), 8);
    let (head, _) = super::raw::Raw::request(party.hub.address(), &handshake, b"").await;
    party.beside().await;
    assert!(head.starts_with("HTTP/1.1 400 ") || head.starts_with("HTTP/1.1 426 "), "{head}");
    assert!(head.to_lowercase().contains("sec-websocket-version: 13"), "{head}");
}

async fn early_data(party: Party) {
    let early = [super::raw::handshake(party.hub.address(), 13).into_bytes(), text("{}").repeat(200_000)].concat();
    let mut stream = party.tcp().await;
    let _ = timeout(TEST_TIMEOUT, stream.write_all(&early)).await;
    party.beside().await;
    let mut bytes = Vec::new();
    let _ = timeout(TEST_TIMEOUT, stream.read_to_end(&mut bytes)).await.expect("the hub ends the connection");
    let text = String::from_utf8_lossy(&bytes[..bytes.len().min(64)]).into_owned();
    assert!(text.is_empty() || text.starts_with("HTTP/1.1 400") || text.starts_with("HTTP/1.1 101"), "{text}");
}

async fn no_websocket_key(party: Party) {
    let head = "GET /v1/realtime HTTP/1.1\r\nhost: localhost\r\nupgrade: websocket\r\nconnection: upgrade\r\nsec-websocket-version: 13\r\n\r\n";
    let mut stream = party.tcp().await;
    stream.write_all(head.as_bytes()).await.expect("the hub reads");
    party.beside().await;
    let mut answer = [0; 12];
    timeout(TEST_TIMEOUT, stream.read_exact(&mut answer)).await.expect("an answer").expect("an answer");
    assert_eq!(&answer, b"HTTP/1.1 400");
}

async fn too_large(party: Party) {
    let mut socket = party.connect("").await;
    send(&mut socket, Message::text("x".repeat(17 << 20))).await;
    party.beside().await;
    assert!(matches!(closed(&mut socket).await, Some(1009) | None));
}

async fn trickled_message(party: Party) {
    let mut stream = raw(&party).await;
    let trickle = async {
        let _ = stream.write_all(&frame(TEXT, b"{")).await;
        // The hub's answer is read behind it.
        for _ in 0..200 {
            if stream.write_all(&frame(CONTINUATION, b" ")).await.is_err() {
                break;
            }
            tokio::time::sleep(Duration::from_millis(25)).await;
        }
    };
    tokio::join!(trickle, party.beside());
    assert!(matches!(code_at_end(&mut stream).await, Some(1008) | None));
}

async fn unfinished_messages(party: Party) {
    let mut streams = Vec::new();
    for _ in 0..10 {
        let mut stream = raw(&party).await;
        let _ = timeout(Duration::from_secs(2), stream.write_all(&frame(TEXT, &vec![b' '; 15 << 20]))).await;
        streams.push(stream);
    }
    party.beside().await;
    for mut stream in streams {
        assert!(matches!(code_at_end(&mut stream).await, Some(1008 | 1013) | None));
    }
}

async fn reset_in_the_middle(party: Party) {
    for _ in 0..50 {
        let mut stream = raw(&party).await;
        let _ = stream.write_all(&frame(FIN | TEXT, &[b'x'; 60_000])[..30_000]).await;
        SockRef::from(&stream).set_linger(Some(Duration::ZERO)).expect("set");
    }
    party.beside().await;
}

async fn half_closed(party: Party) {
    let mut stream = raw(&party).await;
    stream.write_all(&frame(FIN | TEXT, &[b'x'; 60_000])[..30_000]).await.expect("the hub reads");
    stream.shutdown().await.expect("half closed");
    party.beside().await;
    code_at_end(&mut stream).await;
}

async fn ping_flood(party: Party) {
    let mut stream = raw(&party).await;
    let (mut reader, mut writer) = stream.split();
    let pings = frame(FIN | PING, b"12345678").repeat(20_000);
    let mut n = 0;
    let read = async {
        let mut bytes = vec![0; 1 << 16];
        // A pong has ten bytes.
        while n < 200_000 {
            n += timeout(TEST_TIMEOUT, reader.read(&mut bytes)).await.expect("pongs").expect("pongs");
        }
    };
    let (written, (), ()) = tokio::join!(writer.write_all(&pings), read, party.beside());
    written.expect("the hub reads");
}

async fn fragment_flood(party: Party) {
    let mut stream = raw(&party).await;
    let _ = stream.write_all(&frame(TEXT, b"")).await;
    let _ = timeout(TEST_TIMEOUT, stream.write_all(&frame(CONTINUATION, b"").repeat(50_000))).await;
    let _ = stream.write_all(&frame(FIN | CONTINUATION, b"{}")).await;
    party.beside().await;
    let _ = stream.write_all(&close(1000, b"")).await;
    let code = code_at_end(&mut stream).await;
    assert!(code.is_some(), "the connection ends without a close");
}

async fn errors_unread(party: Party) {
    let mut socket = party.connect("").await;
    let event = json!({"type": "no.such.event", "event_id": "x".repeat(400)}).to_string();
    let flood = async {
        for _ in 0..60_000 {
            if socket.stream.feed(Message::text(event.clone())).await.is_err() {
                break;
            }
        }
        let _ = socket.stream.flush().await;
    };
    let (_, ()) = tokio::join!(timeout(Duration::from_secs(14), flood), party.beside());
    assert!(matches!(closed(&mut socket).await, Some(1013) | None));
}

async fn reads_nothing(party: Party) {
    let mut socket = party.connect("").await;
    let tokio_tungstenite::MaybeTlsStream::Plain(stream) = socket.stream.get_ref() else { panic!("plain") };
    SockRef::from(stream).set_recv_buffer_size(4_096).expect("set");
    socket.send(typed("Tell me a long story")).await;
    socket.send(json!({"type": "response.create"})).await;
    party.beside().await;
    // 10 s without progress; pings are not answered either, because nothing is read.
    tokio::time::sleep(Duration::from_secs(12)).await;
    assert!(matches!(closed(&mut socket).await, Some(1013 | 1011) | None));
}

async fn answers_no_ping(party: Party) {
    let mut stream = raw(&party).await;
    party.beside().await;
    assert_eq!(code_at_end(&mut stream).await, Some(1011));
}

async fn writes_fast(party: Party) {
    let mut socket = party.connect("").await;
    let event = append(&[0; 240_000]).to_string();
    let flood = async {
        for _ in 0..100 {
            if socket.stream.send(Message::text(event.clone())).await.is_err() {
                break;
            }
        }
    };
    let (_, ()) = tokio::join!(timeout(TEST_TIMEOUT, flood), party.beside());
    socket.send(json!({"type": "input_audio_buffer.clear"})).await;
    socket.until("input_audio_buffer.cleared").await;
}

async fn many_responses(party: Party) {
    let mut socket = party.connect("").await;
    for _ in 0..40 {
        let input = json!([{"type": "message", "role": "user", "content": [{"type": "input_text", "text": Stage::Llm.marker(Wrong::Slow)}]}]);
        socket.send(json!({"type": "response.create", "response": {"conversation": "none", "input": input}})).await;
    }
    party.beside().await;
    error_of(&mut socket).await;
}

async fn many_items(party: Party) {
    let mut socket = party.connect("").await;
    let mut n_bounded = 0;
    let flood = async {
        for n in 0..6_000 {
            socket.send(typed(&format!("word {n}"))).await;
            if n % 100 == 99 {
                for _ in 0..100 {
                    n_bounded += until_done(&mut socket).await;
                }
            }
        }
    };
    tokio::join!(flood, party.beside());
    assert!(n_bounded > 0, "6,000 items are kept");
    goes_on(&mut socket).await;
}

async fn much_text(party: Party) {
    let mut socket = party.connect("").await;
    let mut n_bounded = 0;
    let flood = async {
        for _ in 0..40 {
            socket.send(typed(&"word ".repeat(100_000))).await;
            n_bounded += until_done(&mut socket).await;
        }
    };
    tokio::join!(flood, party.beside());
    assert!(n_bounded > 0, "20 MiB of text are kept");
    goes_on(&mut socket).await;
}

/// Reads until an item is taken or refused; the number of errors and deletions by then.
async fn until_done(socket: &mut Socket) -> usize {
    let mut n = 0;
    loop {
        let event = socket.next().await;
        let kind = event["type"].as_str().unwrap_or_default();
        n += usize::from(["error", "conversation.item.deleted"].contains(&kind));
        if ["error", "conversation.item.done"].contains(&kind) {
            return n;
        }
    }
}

async fn many_cancels(party: Party) {
    let mut socket = party.connect("").await;
    for n in 0..5_000 {
        socket.send(json!({"type": "response.cancel"})).await;
        if n % 100 == 99 {
            error_of(&mut socket).await;
        }
    }
    party.beside().await;
    goes_on(&mut socket).await;
}

async fn many_updates(party: Party) {
    let mut socket = party.connect("").await;
    let flood = async {
        for n in 0..2_000 {
            let session = json!({"type": "realtime", "instructions": format!("Be brief. {n}")});
            socket.send(json!({"type": "session.update", "session": session})).await;
            socket.until("session.updated").await;
        }
    };
    tokio::join!(flood, party.beside());
    goes_on(&mut socket).await;
}

async fn tiny_appends(party: Party) {
    let mut socket = party.connect("").await;
    let event = append(&[0]).to_string();
    let flood = async {
        for _ in 0..30_000 {
            socket.stream.feed(Message::text(event.clone())).await.expect("the hub reads");
        }
        socket.stream.flush().await.expect("the hub reads");
    };
    tokio::join!(flood, party.beside());
    socket.send(append(speech())).await;
    socket.until("response.done").await;
}

/// A session that may be resumed, and its key.
async fn resumable(party: &Party) -> (Socket, String) {
    let mut socket = party.connect("?resume=1").await;
    let notice = socket.until("antiphon.session.resumable").await.pop().expect("there");
    (socket, notice["key"].as_str().expect("a key").to_owned())
}

async fn resume_ahead(party: Party) {
    let (socket, key) = resumable(&party).await;
    drop(socket);
    let offer = format!("realtime, antiphon-resume.{key}.999999");
    let mut back = party.open("", &[("sec-websocket-protocol", &offer)]).await.expect("the upgrade");
    party.beside().await;
    assert!(!error_of(&mut back).await.is_empty());
    assert!(closed(&mut back).await.is_some());
}

async fn resume_contest(party: Party) {
    let (socket, key) = resumable(&party).await;
    drop(socket);
    let offer = format!("realtime, antiphon-resume.{key}.2");
    let mut sockets = Vec::new();
    for _ in 0..20 {
        sockets.push(party.open("", &[("sec-websocket-protocol", &offer)]).await.expect("the upgrade"));
    }
    party.beside().await;
    let mut n_served = 0;
    for mut socket in sockets {
        let unknown = json!({"type": "no.such.event", "event_id": "still-there"});
        let _ = socket.stream.send(Message::text(unknown.to_string())).await;
        while let Ok(Some(Ok(message))) = timeout(Duration::from_secs(5), socket.stream.next()).await {
            if message.to_text().is_ok_and(|text| text.contains("still-there")) {
                n_served += 1;
                break;
            }
        }
    }
    assert_eq!(n_served, 1, "connections that have the session");
}

async fn left_alone(party: Party) {
    for _ in 0..20 {
        let (mut socket, _) = resumable(&party).await;
        socket.send(typed("Tell me a long story")).await;
        socket.send(json!({"type": "response.create"})).await;
        socket.until("response.output_audio.delta").await;
        let tokio_tungstenite::MaybeTlsStream::Plain(stream) = socket.stream.get_ref() else { panic!("plain") };
        SockRef::from(stream).set_linger(Some(Duration::ZERO)).expect("set");
    }
    party.beside().await;
}
