//! Resource limits against hostile clients: JSON whose parsed form is much larger than its text, and messages and
//! uploads that never end.

use crate::hub::{Hub, Socket, engines, hub};
use antiphon::config::Config;
use antiphon_engine_api::fakes::llm::FakeLlm;
use antiphon_engine_api::fakes::stt::FakeStt;
use antiphon_engine_api::fakes::tts::FakeTts;
use antiphon_protocol::{Dialect, parse};
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// Longer than any step here takes, so that a test that hangs fails.
const TEST_TIMEOUT: Duration = Duration::from_secs(60);

/// The resident memory of this process, in MiB.
fn rss_mib() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux");
    let kib = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("a line");
    kib.trim().trim_end_matches(" kB").parse::<f64>().expect("a number") / 1024.0
}

fn update(session: &Value) -> Value {
    json!({"type": "session.update", "event_id": "mine", "session": session})
}

/// A tool with this schema.
fn tool(schema: Value) -> Value {
    json!({"type": "function", "name": "f", "parameters": {"type": "object", "x": schema}})
}

/// Code and parameter of an error event.
fn refused(event: &Value) -> (String, String) {
    let error = parse(&event.to_string()).expect_err("refused");
    assert_eq!(error.event_id, event["event_id"].as_str().map(str::to_owned), "it answers the event");
    assert!(error.message.chars().any(|c| c.is_ascii_digit()), "it names the limit: {}", error.message);
    (error.code.unwrap_or_default().to_owned(), error.param.unwrap_or_default())
}

async fn still_works(socket: &mut Socket) {
    let events = socket.ask("Are you there?").await;
    assert_eq!(events.last().expect("done")["response"]["status"], "completed");
}

/// A list of 12 MiB of zeros: 200 MiB as a parsed tree, of which a session held two.
fn heavy() -> String {
    let zeros = "0,".repeat(6 << 20);
    let schema = format!(r#"{{"type":"object","x":[{zeros}0]}}"#);
    let tool = format!(r#"{{"type":"function","name":"f","parameters":{schema}}}"#);
    format!(r#"{{"type":"session.update","event_id":"mine","session":{{"type":"realtime","tools":[{tool}]}}}}"#)
}

#[tokio::test(start_paused = true)]
async fn hostile_updates_are_refused_and_cost_nothing_that_stays() {
    const MAX_GROWTH_MIB: f64 = 192.0;
    let hub = hub("", "Here.").await;
    let before = rss_mib();
    let mut sockets = Vec::new();
    for _ in 0..4 {
        let mut socket = hub.connect("").await;
        for _ in 0..2 {
            socket.send_raw(tokio_tungstenite::tungstenite::Message::text(heavy())).await;
            let error = socket.until("error").await.pop().expect("an error");
            assert_eq!(error["error"]["code"], "event_too_large", "{error}");
            assert_eq!((&error["error"]["param"], &error["error"]["event_id"]), (&json!("session"), &json!("mine")));
        }
        // The largest list that is accepted.
        let most = update(&json!({"type": "realtime", "tools": [tool(json!(vec![0; 15_000]))]}));
        socket.send(most).await;
        socket.until("session.updated").await;
        still_works(&mut socket).await;
        sockets.push(socket);
    }
    let grown = rss_mib() - before;
    assert!(grown < MAX_GROWTH_MIB, "{} sessions keep {grown:.0} MiB", sockets.len());
}

#[test]
fn the_same_update_in_the_names_before_ga_is_refused_before_it_is_mapped() {
    let dialect = Dialect { beta: true, ..Dialect::default() };
    let error = dialect.parse(&heavy()).expect_err("refused");
    assert_eq!((error.code, error.event_id.as_deref()), (Some("event_too_large"), Some("mine")));
}

#[test]
fn everything_a_session_keeps_has_its_bound() {
    let long = |n: usize| "a".repeat(n);
    let names = |n: usize| (0..n).map(|i| format!("n{i}")).collect::<Vec<_>>();
    let tools = |n: usize| (0..n).map(|i| json!({"type": "function", "name": format!("f{i}")})).collect::<Vec<_>>();
    let mcp = |more: Value| {
        let mut server = json!({"type": "mcp", "server_label": "x", "server_url": "http://127.0.0.1/"});
        server.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
        json!({"tools": [server]})
    };
    let hears = |more: Value| json!({"audio": {"input": {"transcription": more}}});
    for (session, code, param) in [
        (json!({"instructions": long(262_145)}), "string_above_max_length", "instructions"),
        (json!({"tools": [tool(json!(long(262_145)))]}), "value_above_max_bytes", "tools"),
        (json!({"tools": [tool(json!([]))], "x": vec![0; 33_000]}), "event_too_large", ""),
        (json!({"tools": tools(257)}), "array_above_max_length", "tools"),
        (json!({"prompt": {"id": long(16_400)}}), "value_above_max_bytes", "prompt"),
        (json!({"tracing": vec![0; 10_000]}), "value_above_max_bytes", "tracing"),
        (json!({"reasoning": vec![0; 10_000]}), "value_above_max_bytes", "reasoning"),
        (hears(json!({"prompt": long(16_385)})), "string_above_max_length", "audio.input.transcription.prompt"),
        (hears(json!({"keywords": names(257)})), "array_above_max_length", "audio.input.transcription.keywords"),
        (hears(json!({"languages": names(65)})), "array_above_max_length", "audio.input.transcription.languages"),
        (hears(json!({"language": long(200)})), "string_above_max_length", "audio.input.transcription.language"),
        (mcp(json!({"allowed_tools": names(129)})), "array_above_max_length", "tools[0].allowed_tools"),
        (mcp(json!({"server_description": long(5_000)})), "string_above_max_length", "tools[0].server_description"),
    ] {
        let mut all = json!({"type": "realtime"});
        all.as_object_mut().expect("an object").extend(session.as_object().expect("an object").clone());
        let param = format!("session.{param}").trim_end_matches('.').to_owned();
        assert_eq!(refused(&update(&all)), (code.to_owned(), param));
    }
    for (response, code, param) in [
        (json!({"instructions": long(262_145)}), "string_above_max_length", "instructions"),
        (json!({"tools": [tool(json!(long(262_145)))]}), "value_above_max_bytes", "tools"),
        (json!({"metadata": {"a": long(513)}}), "string_above_max_length", "metadata.a"),
        (json!({"metadata": {long(65): "a"}}), "string_above_max_length", "metadata"),
    ] {
        let event = json!({"type": "response.create", "event_id": "mine", "response": response});
        assert_eq!(refused(&event), (code.to_owned(), format!("response.{param}")));
    }
    let say =
        |text: String| json!({"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]});
    for item in [
        say(long(1_200_000)),
        json!({"type": "function_call_output", "call_id": "c", "output": long(1_200_000)}),
        json!({"type": "message", "role": "user", "content": vec![json!({"type": "input_text", "text": ""}); 9_000]}),
    ] {
        let event = json!({"type": "conversation.item.create", "event_id": "mine", "item": item});
        assert_eq!(refused(&event), ("event_too_large".to_owned(), "item".to_owned()));
    }
    let event = json!({"type": "conversation.item.create", "item": say(long(1_000_000))});
    parse(&event.to_string()).expect("a long text");
}

#[test]
fn audio_may_be_as_long_as_a_message() {
    // With escaped slashes, as some encoders write them.
    let audio = "AAAA\\/\\/\\/\\/".repeat(1 << 20);
    let part = format!(r#"{{"type":"input_audio","audio":"{audio}"}}"#);
    let item = format!(r#"{{"type":"message","role":"user","content":[{part}]}}"#);
    parse(&format!(r#"{{"type":"conversation.item.create","item":{item}}}"#)).expect_err("half of it is backslashes");
    let audio = "AAAA".repeat(3 << 20);
    let part = format!(r#"{{"type":"input_audio","audio":"{audio}"}}"#);
    let item = format!(r#"{{"type":"message","role":"user","content":[{part}]}}"#);
    parse(&format!(r#"{{"type":"conversation.item.create","item":{item}}}"#)).expect("12 MiB of audio");
    parse(&format!(r#"{{"type":"input_audio_buffer.append","audio":"{audio}"}}"#)).expect("12 MiB of audio");
    // A field named `audio` is not exempt from the limit unless it carries audio.
    let event = format!(r#"{{"type":"session.update","session":{{"type":"realtime","audio":"{audio}"}}}}"#);
    assert_eq!(parse(&event).expect_err("refused").code, Some("event_too_large"));
}

#[tokio::test(start_paused = true)]
async fn keys_of_browsers_are_bound_to_settings_of_the_same_bounds() {
    let hub: Hub = hub("", "Here.").await;
    let url = format!("http://{}/v1/realtime/client_secrets", hub.address);
    // Only the first installation succeeds; a second one is not an error.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let names: Vec<String> = (0..10_000).map(|i| i.to_string()).collect();
    let keywords = json!({"input": {"transcription": {"keywords": names}}});
    for session in [
        json!({"type": "realtime", "tools": [tool(json!(vec![0; 40_000]))]}),
        json!({"type": "transcription", "audio": keywords}),
    ] {
        let request = reqwest::Client::new().post(&url).body(json!({"session": session}).to_string());
        let response = request.send().await.expect("an answer");
        assert_eq!(response.status(), 400);
        let body: Value = serde_json::from_str(&response.text().await.expect("text")).expect("JSON");
        assert!(body["error"]["param"].as_str().expect("a field").starts_with("session"), "{body}");
    }
}

/// A raw WebSocket connection, so that its messages need not end.
async fn raw(address: SocketAddr) -> TcpStream {
    let mut stream = TcpStream::connect(address).await.expect("connected");
    let request = format!(
        "GET /v1/realtime HTTP/1.1\r\nhost: {address}\r\nconnection: upgrade\r\nupgrade: websocket\r\n\
         sec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).await.expect("sent");
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.expect("an answer"));
    }
    assert!(head.starts_with(b"HTTP/1.1 101"), "{}", String::from_utf8_lossy(&head));
    stream
}

/// The header of a masked frame; an all-zero mask is valid.
fn head(first: u8, n_bytes: u64) -> Vec<u8> {
    [&[first, 0xff][..], &n_bytes.to_be_bytes(), &[0; 4]].concat()
}

/// The code and reason of the final close frame; `None` if the connection ends without one.
async fn closed(stream: &mut (impl AsyncReadExt + Unpin)) -> Option<(u16, String)> {
    let frames = async {
        loop {
            let first = stream.read_u8().await.ok()?;
            let n_bytes = match stream.read_u8().await.ok()? {
                126 => u64::from(stream.read_u16().await.ok()?),
                127 => stream.read_u64().await.ok()?,
                n => u64::from(n),
            };
            let mut payload = vec![0; n_bytes as usize];
            stream.read_exact(&mut payload).await.ok()?;
            if first & 0x0f == 8 {
                let code = u16::from_be_bytes([payload[0], payload[1]]);
                return Some((code, String::from_utf8_lossy(&payload[2..]).into_owned()));
            }
        }
    };
    timeout(TEST_TIMEOUT, frames).await.expect("it is closed")
}

async fn strict_hub() -> Hub {
    let mut config = Config::default();
    config.server.message_seconds = 3;
    let llm = FakeLlm::says(["Here."].repeat(200));
    Hub::start(engines(FakeStt::default(), llm, FakeTts::default()), config).await
}

/// The hub's gauge of inbound messages, in KiB.
async fn inbound_kib(hub: &Hub) -> f64 {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let state = reqwest::get(format!("http://{}/api/state", hub.address)).await.expect("an answer");
    let state: Value = serde_json::from_str(&state.text().await.expect("text")).expect("JSON");
    state
        .to_string()
        .split("inbound_kib\":")
        .nth(1)
        .and_then(|rest| rest.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok())
        .unwrap_or_else(|| panic!("{state}"))
}

#[tokio::test(start_paused = true)]
async fn messages_that_never_end_are_charged_and_closed_and_others_talk_on() {
    const MIB: usize = 1 << 20;
    let hub = strict_hub().await;
    let before = rss_mib();
    let mut canary = hub.connect("").await;
    let mut attackers = Vec::new();
    for _ in 0..16 {
        let (mut from, mut to) = raw(hub.address).await.into_split();
        let sending = async move {
            // A message of 15 MiB whose last byte is never sent; pings between its fragments must not hide it.
            to.write_all(&head(0x01, 8 * MIB as u64)).await?;
            to.write_all(&vec![b' '; 8 * MIB]).await?;
            for _ in 0..10 {
                to.write_all(&[0x89, 0x84, 0, 0, 0, 0, 1, 2, 3, 4]).await?;
            }
            to.write_all(&head(0x80, 7 * MIB as u64)).await?;
            to.write_all(&vec![b' '; 7 * MIB - 1]).await?;
            loop {
                tokio::time::sleep(Duration::from_millis(300)).await;
                // Sends nothing that would complete the message; the loop ends with the connection.
                to.writable().await?;
            }
            #[allow(unreachable_code)]
            std::io::Result::Ok(())
        };
        attackers.push(async move {
            tokio::select! {
                close = closed(&mut from) => close,
                _ = sending => None,
            }
        });
    }
    let attack = futures_util::future::join_all(attackers);
    let mut most_charged = 0_f64;
    let canary_talks = async {
        loop {
            let answer = timeout(Duration::from_secs(15), still_works(&mut canary)).await;
            answer.expect("the canary notices nothing");
            most_charged = most_charged.max(inbound_kib(&hub).await);
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    let closes = tokio::select! {
        closes = timeout(TEST_TIMEOUT, attack) => closes.expect("all are closed"),
        () = canary_talks => unreachable!(),
    };
    for close in closes {
        let (code, reason) = close.expect("a close that says why");
        assert!(code == 1008 && reason.contains("message_seconds") || code == 1013, "{code} {reason}");
    }
    assert!(most_charged > 64.0 * 1024.0, "they were charged: {most_charged} KiB");
    assert!(most_charged < 160.0 * 1024.0, "and left half to others: {most_charged} KiB");
    let grown = rss_mib() - before;
    assert!(grown < 512.0, "{grown:.0} MiB");
    still_works(&mut canary).await;
    hub.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_trickle_does_not_renew_the_deadline_of_a_message() {
    let hub = strict_hub().await;
    let (mut from, mut to) = raw(hub.address).await.into_split();
    let trickling = async move {
        to.write_all(&head(0x81, 1 << 20)).await?;
        loop {
            // A ping cannot be interleaved within a frame, so only single bytes are sent.
            to.write_all(b" ").await?;
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        #[allow(unreachable_code)]
        std::io::Result::Ok(())
    };
    let close = tokio::select! {
        close = closed(&mut from) => close,
        _ = trickling => None,
    };
    let (code, reason) = close.expect("a close that says why");
    assert_eq!(code, 1008, "{reason}");
    assert!(reason.contains("message_seconds"), "{reason}");
}

#[tokio::test(start_paused = true)]
async fn a_session_that_only_answers_pings_is_not_given_up() {
    let mut config = Config::default();
    config.server.ping_seconds = 1;
    config.server.message_seconds = 2;
    let hub = Hub::start(engines(FakeStt::default(), FakeLlm::says(["Here."]), FakeTts::default()), config).await;
    let mut socket = hub.connect("").await;
    // The client library answers pings only while it is read.
    assert!(timeout(Duration::from_secs(6), socket.next()).await.is_err(), "nothing is said");
    still_works(&mut socket).await;
}

#[tokio::test(start_paused = true)]
async fn a_message_that_is_too_large_is_told_to_a_client_that_goes_on_sending() {
    let hub = hub("", "x").await;
    for _ in 0..3 {
        let mut stream = raw(hub.address).await;
        stream.write_all(&head(0x81, 48 << 20)).await.expect("sent");
        // Reads nothing before everything is sent.
        stream.write_all(&vec![b' '; 48 << 20]).await.expect("all of it is taken");
        let (code, _) = closed(&mut stream).await.expect("a close");
        assert_eq!(code, 1009);
    }
}

#[tokio::test(start_paused = true)]
async fn a_body_that_is_too_large_is_told_to_a_client_that_goes_on_sending() {
    let hub = hub("", "x").await;
    for path in ["/v1/audio/speech", "/v1/realtime/client_secrets", "/v1/audio/speech/jobs"] {
        let mut stream = TcpStream::connect(hub.address).await.expect("connected");
        let n_bytes = 24 << 20;
        let head = format!("POST {path} HTTP/1.1\r\nhost: {}\r\ncontent-length: {n_bytes}\r\n\r\n", hub.address);
        stream.write_all(head.as_bytes()).await.expect("sent");
        stream.write_all(&vec![b' '; n_bytes]).await.expect("all of it is taken");
        let mut answer = Vec::new();
        timeout(TEST_TIMEOUT, stream.read_to_end(&mut answer)).await.expect("it ends").expect("no reset");
        let answer = String::from_utf8_lossy(&answer);
        assert!(answer.starts_with("HTTP/1.1 413"), "{path}: {answer}");
    }
}

#[tokio::test(start_paused = true)]
async fn uploads_that_trickle_keep_no_place_and_end() {
    let mut config = Config::default();
    config.speech.max_requests = 1;
    let hub = Hub::start(engines(FakeStt::default(), FakeLlm::default(), FakeTts::default()), config).await;
    let _ = rustls::crypto::ring::default_provider().install_default();
    let mut slow = Vec::new();
    for (path, kind) in [("transcriptions", "multipart/form-data; boundary=x"), ("speech", "application/json")] {
        let mut stream = TcpStream::connect(hub.address).await.expect("connected");
        let head = format!(
            "POST /v1/audio/{path} HTTP/1.1\r\nhost: {}\r\ncontent-type: {kind}\r\ncontent-length: 1000000\r\n\r\n",
            hub.address
        );
        stream.write_all(head.as_bytes()).await.expect("sent");
        stream.write_all(b"--x\r\n").await.expect("sent");
        slow.push(stream);
    }
    let trickled = async {
        futures_util::future::join_all(slow.into_iter().map(|stream| async move {
            let (mut from, mut to) = stream.into_split();
            let mut answer = Vec::new();
            let trickle = async {
                while to.write_all(b"-").await.is_ok() {
                    tokio::time::sleep(Duration::from_millis(200)).await;
                }
                std::future::pending::<()>().await
            };
            tokio::select! {
                () = trickle => unreachable!(),
                _ = timeout(TEST_TIMEOUT, from.read_to_end(&mut answer)) => String::from_utf8_lossy(&answer).into_owned(),
            }
        }))
        .await
    };
    let served = async {
        tokio::time::sleep(Duration::from_millis(300)).await;
        let request = reqwest::Client::new().post(format!("http://{}/v1/audio/speech", hub.address));
        request
            .body(r#"{"input":"Hello there.","voice":"alloy","response_format":"pcm"}"#)
            .send()
            .await
            .expect("an answer")
    };
    let (answers, served) = tokio::join!(trickled, served);
    assert_eq!(served.status(), 200, "the only place is free");
    for answer in answers {
        assert!(answer.starts_with("HTTP/1.1 408") && answer.contains("came too slowly"), "{answer}");
    }
}

#[tokio::test(start_paused = true)]
async fn frames_before_the_answer_to_the_upgrade_are_refused() {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let hub = hub("one", "Two.").await;
    let upgrade = format!(
        "GET /v1/realtime?model=x HTTP/1.1\r\nhost: {}\r\nconnection: upgrade\r\nupgrade: websocket\r\n\
         sec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n",
        hub.address
    );
    let ask = async |more: &[u8]| {
        let mut stream = tokio::net::TcpStream::connect(hub.address).await.expect("it listens");
        stream.write_all(&[upgrade.as_bytes(), more].concat()).await.expect("sent");
        let mut status = [0; 12];
        stream.read_exact(&mut status).await.expect("it answers");
        String::from_utf8_lossy(&status).into_owned()
    };
    assert_eq!(ask(b"").await, "HTTP/1.1 101");
    // The header of a large frame: the start of its payload would be unknown.
    assert_eq!(ask(&[0x82, 0xff, 0, 0, 0, 0, 0, 0xf0, 0, 0, 0, 0, 0, 0]).await, "HTTP/1.1 400");
    assert_eq!(ask(b"\r\n\r\n").await, "HTTP/1.1 400");
}
