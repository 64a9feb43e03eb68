//! Parties that want in without a key, with too many connections, or with requests that are none.

use super::harness::{Party, closed, error_of, fault, run};
use super::process::{Settings, TEST_TIMEOUT, parse};
use serde_json::json;
use socket2::SockRef;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout};

/// Resident memory that connections and requests may cost the hub, in MiB: buffers of some hundred connections.
const MEMORY_MIB: u64 = 64;
/// By when connections beyond the bound are ended; less than the time that others have for the head of a request.
const ENDED_WITHIN: Duration = Duration::from_secs(5);
/// By when a connection whose answers are not read is ended: after 30 s, which no setting shortens.
const UNREAD: Duration = Duration::from_secs(33);

const OWN: &str = "sk-antiphon-faulty-0001";
const CANARY: &str = "sk-antiphon-canary-0002";
const ADMIN: &str = "sk-antiphon-admin-00003";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn those_without_a_key_or_a_place_are_refused() {
    let settings = Settings {
        env: vec![("ANTIPHON_API_KEYS", format!("{OWN},{CANARY}")), ("ANTIPHON_ADMIN_KEYS", ADMIN.into())],
        admin: Some(ADMIN),
        keys: Some((OWN, CANARY)),
        ..Settings::default()
    };
    let settings = settings.with("SERVER__MAX_SESSIONS_PER_KEY", "12").with("SERVER__MAX_SESSIONS_PER_ADDRESS", "8");
    let turned_away = "an error event and a close with 3000";
    let mut faults = vec![
        fault("key: none", turned_away, |party| turned_away_with(party, "", &[])),
        fault("key: a wrong one", turned_away, |party| {
            turned_away_with(party, "", &[("authorization", "Bearer sk-no")])
        })
        .short(),
        fault("key: a short-lived one that never was", turned_away, |party| {
            turned_away_with(party, "", &[("authorization", "Bearer ek_0123456789")])
        }),
        fault("key: a wrong one as a subprotocol", turned_away, |party| {
            turned_away_with(party, "", &[("sec-websocket-protocol", "realtime, openai-insecure-api-key.nope")])
        }),
        fault("key: in the address", turned_away, |party| {
            turned_away_with(party, "?api_key=sk-antiphon-faulty-0001", &[])
        }),
        fault("key: 8 KiB long", turned_away, |party| async move {
            let key = format!("Bearer {}", "k".repeat(8_192));
            turned_away_with_key(party, key).await;
        }),
        fault("key: guessed forty times", "429 with Retry-After", guesses).short(),
        fault("key: of a session that is another's", "an error event and a close", resumes_anothers),
        fault("session: resumed without ever having been", "an error event and a close", resumes_nothing),
        fault("short-lived keys: 1,500", "429 beyond the bound", hoards_secrets),
        fault("sessions: more than a key may have", "429", too_many_of_a_key),
        fault("sessions: more than an address may have", "429", too_many_of_an_address),
        fault("connections: 500 that say nothing", "the end of those beyond the bound", silent_connections).short(),
        fault("connections: 200 with half a request, a byte at a time", "the end of each", slow_heads),
        fault("connections: 2,000 that leave at once", "nothing: they have left", connect_and_leave),
        fault("connections: 300 that are reset within the upgrade", "nothing: they have left", reset_in_upgrade),
        fault("key: guessed from forged addresses of a proxy", "429: the addresses do not count", forges_addresses),
        fault("answers: 500 pipelined, none read", "the end before the last of them", pipelined_unread),
        fault("upgrades: 300 with a wrong key, none read", "the error and 3000, 429, or the end", wrong_keys_unread),
    ];
    for (name, head, statuses) in requests() {
        let one =
            fault(format!("request: {name}"), "an error status", move |party| refused(party, head.clone(), statuses));
        faults.push(if name == "a foreign host" { one.short() } else { one });
    }
    run("access", settings, MEMORY_MIB, faults).await;
}

/// Names, requests and the statuses that they may get; 0 is a connection that ends without an answer.
fn requests() -> Vec<(&'static str, Vec<u8>, &'static [u16])> {
    let get = |path: &str, headers: &str| {
        format!("GET {path} HTTP/1.1\r\n{headers}authorization: Bearer {OWN}\r\nconnection: close\r\n\r\n").into_bytes()
    };
    vec![
        ("a foreign host", get("/v1/realtime", "host: evil.example\r\n"), &[403]),
        ("a foreign origin", get("/v1/models", "host: localhost\r\norigin: https://evil.example\r\n"), &[403]),
        ("two hosts", get("/v1/models", "host: localhost\r\nhost: evil.example\r\n"), &[400]),
        ("no host", get("/v1/models", ""), &[400, 403]),
        ("not HTTP", b"\x00\x01\x02\xff\xfe\r\n\r\n".to_vec(), &[0, 400]),
        ("a TLS handshake", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03".repeat(50), &[0, 400]),
        (
            "an address of 100 KiB",
            get(&format!("/{}", "a".repeat(100 << 10)), "host: localhost\r\n"),
            &[0, 400, 414, 431],
        ),
        (
            "100 KiB of headers",
            get("/v1/models", &format!("host: localhost\r\n{}", "x-a: b\r\n".repeat(13_000))),
            &[0, 400, 431],
        ),
        ("a path out of the tree", get("/../../etc/passwd", "host: localhost\r\n"), &[400, 404]),
        ("an escaped path out of the tree", get("/%2e%2e/%2e%2e/etc/passwd", "host: localhost\r\n"), &[400, 404]),
        (
            "a body of two lengths",
            format!(
                "POST /v1/audio/speech HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {OWN}\r\n\
            content-length: 5\r\ncontent-length: 6\r\n\r\nhello"
            )
            .into_bytes(),
            &[0, 400],
        ),
        (
            "a length and chunks",
            format!(
                "POST /v1/audio/speech HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {OWN}\r\n\
            content-length: 5\r\ntransfer-encoding: chunked\r\nconnection: close\r\n\r\n0\r\n\r\n"
            )
            .into_bytes(),
            &[0, 400, 415],
        ),
        (
            "a negative length",
            format!(
                "POST /v1/audio/speech HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {OWN}\r\n\
            content-length: -1\r\n\r\n"
            )
            .into_bytes(),
            &[0, 400],
        ),
        (
            "metrics without a key",
            b"GET /metrics HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n".to_vec(),
            &[401],
        ),
    ]
}

async fn turned_away_with(party: Party, query: &'static str, headers: &'static [(&'static str, &'static str)]) {
    let mut socket = party.open(query, headers).await.expect("the upgrade");
    party.beside().await;
    let error = socket.next().await;
    assert_eq!(error["error"]["type"], "invalid_request_error", "{error}");
    assert_eq!(closed(&mut socket).await, Some(3000));
}

async fn turned_away_with_key(party: Party, key: String) {
    let opened = party.open("", &[("authorization", &key)]).await;
    party.beside().await;
    match opened {
        Ok(mut socket) => assert_eq!(closed(&mut socket).await, Some(3000)),
        Err(refusal) => refusal.is(&[400, 401, 431]),
    }
}

async fn guesses(party: Party) {
    guesses_with(party, |_| String::new()).await;
}

async fn forges_addresses(party: Party) {
    guesses_with(party, |n| format!("x-forwarded-for: 203.0.113.{n}\r\n")).await;
}

/// Forty wrong keys, each with these headers: the last is not even checked.
async fn guesses_with(party: Party, headers: impl Fn(usize) -> String) {
    let mut last = None;
    for n in 0..40 {
        let head = format!(
            "GET /metrics HTTP/1.1\r\nhost: localhost\r\n{}authorization: Bearer sk-guess-{n}\r\nconnection: close\r\n\r\n",
            headers(n)
        );
        last = Some(party.plain(&head, b"").await);
    }
    party.beside().await;
    let last = last.expect("answered");
    last.is(&[429]);
    assert!(last.header("retry-after").is_some_and(|wait| wait.parse::<u32>().is_ok()), "{}", last.head);
}

async fn resumes_anothers(party: Party) {
    let canarys = format!("Bearer {CANARY}");
    let mut own = party.open("?resume=1", &[("authorization", &canarys)]).await.expect("a session");
    let notice = own.until("antiphon.session.resumable").await.pop().expect("there");
    let offer = format!("realtime, antiphon-resume.{}.1", notice["key"].as_str().expect("a key"));
    let faulty = format!("Bearer {OWN}");
    let mut stolen =
        party.open("", &[("authorization", &faulty), ("sec-websocket-protocol", &offer)]).await.expect("the upgrade");
    party.beside().await;
    assert!(!error_of(&mut stolen).await.is_empty());
    assert!(closed(&mut stolen).await.is_some());
    own.send(json!({"type": "input_audio_buffer.clear"})).await;
    own.until("input_audio_buffer.cleared").await;
}

async fn resumes_nothing(party: Party) {
    let key = format!("Bearer {OWN}");
    let offer = "realtime, antiphon-resume.rk_0123456789.7";
    let mut socket =
        party.open("", &[("authorization", &key), ("sec-websocket-protocol", offer)]).await.expect("the upgrade");
    party.beside().await;
    assert_eq!(error_of(&mut socket).await, "session_not_found");
    assert!(closed(&mut socket).await.is_some());
}

async fn hoards_secrets(party: Party) {
    let mut n_refused = 0;
    for _ in 0..1_500 {
        let answer = party
            .post("/v1/realtime/client_secrets", &json!({"expires_after": {"anchor": "created_at", "seconds": 10}}))
            .await;
        answer.is(&[200, 429]);
        n_refused += usize::from(answer.status == 429);
        if n_refused > 10 {
            break;
        }
    }
    party.beside().await;
    assert!(n_refused > 0);
}

async fn too_many_of_a_key(party: Party) {
    let mut sockets = Vec::new();
    let key = format!("Bearer {OWN}");
    let refusal = loop {
        // From one address after the other, of which none has too many.
        let mut other = party.clone();
        other.from = std::net::Ipv4Addr::new(127, 2, 0, 1 + (sockets.len() / 4) as u8);
        match other.open("", &[("authorization", &key)]).await {
            Ok(socket) => sockets.push(socket),
            Err(refusal) => break refusal,
        }
        assert!(sockets.len() <= 12, "more than the key may have");
    };
    party.beside().await;
    refusal.is(&[429]);
}

async fn too_many_of_an_address(party: Party) {
    let mut sockets = Vec::new();
    let key = format!("Bearer {OWN}");
    let refusal = loop {
        match party.open("", &[("authorization", &key)]).await {
            Ok(socket) => sockets.push(socket),
            Err(refusal) => break refusal,
        }
        assert!(sockets.len() <= 8, "more than the address may have");
    };
    party.beside().await;
    refusal.is(&[429]);
}

async fn silent_connections(party: Party) {
    let mut streams = Vec::new();
    for _ in 0..500 {
        streams.push(party.tcp().await);
    }
    party.beside().await;
    // An address of the loopback network may have 384 of 512 at a time, without speaking.
    let mut n_ended = 0;
    let until = Instant::now() + ENDED_WITHIN;
    while n_ended < 100 {
        assert!(Instant::now() < until, "{n_ended} of 500 were ended");
        let mut open = Vec::new();
        for mut stream in streams {
            match timeout(Duration::from_millis(1), stream.read_u8()).await {
                Ok(_) => n_ended += 1,
                Err(_) => open.push(stream),
            }
        }
        streams = open;
    }
}

async fn slow_heads(party: Party) {
    let mut streams = Vec::new();
    for _ in 0..200 {
        let mut stream = party.tcp().await;
        let _ = stream.write_all(b"GET /v1/models HTTP/1.1\r\nhost: localhost\r\nx-slow: ").await;
        streams.push(stream);
    }
    let trickle = async {
        for _ in 0..24 {
            for stream in &mut streams {
                let _ = stream.write_all(b"a").await;
            }
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
    };
    tokio::join!(trickle, party.beside());
    for stream in &mut streams {
        rest(stream).await;
    }
}

async fn connect_and_leave(party: Party) {
    for _ in 0..2_000 {
        drop(party.tcp().await);
    }
    party.beside().await;
}

async fn reset_in_upgrade(party: Party) {
    let key = format!("authorization: Bearer {OWN}\r\n\r\n");
    let head = super::raw::handshake(party.hub.address(), 13).trim_end().to_owned() + "\r\n" + &key;
    for _ in 0..300 {
        let mut stream = party.tcp().await;
        let _ = stream.write_all(head.as_bytes()).await;
        reset(&stream);
    }
    party.beside().await;
}

fn reset(stream: &TcpStream) {
    let _ = SockRef::from(stream).set_linger(Some(Duration::ZERO));
}

async fn pipelined_unread(party: Party) {
    const REQUESTS: usize = 500;
    let mut streams = Vec::new();
    let request =
        format!("GET /metrics HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {OWN}\r\n\r\n").repeat(REQUESTS);
    for _ in 0..20 {
        let mut stream = party.tcp().await;
        SockRef::from(&stream).set_recv_buffer_size(4_096).expect("set");
        let _ = timeout(Duration::from_millis(200), stream.write_all(request.as_bytes())).await;
        streams.push(stream);
    }
    party.beside().await;
    tokio::time::sleep(UNREAD).await;
    for stream in &mut streams {
        let bytes = rest(stream).await;
        let n_answers = String::from_utf8_lossy(&bytes).matches("HTTP/1.1 200 ").count();
        assert!((1..REQUESTS).contains(&n_answers), "{n_answers} of {REQUESTS} answers");
    }
}

async fn wrong_keys_unread(party: Party) {
    let head = super::raw::handshake(party.hub.address(), 13).trim_end().to_owned()
        + "\r\nauthorization: Bearer sk-no\r\n\r\n";
    let mut streams = Vec::new();
    for _ in 0..300 {
        let mut stream = party.tcp().await;
        let _ = stream.write_all(head.as_bytes()).await;
        streams.push(stream);
    }
    party.beside().await;
    let mut n_turned_away = 0;
    for stream in &mut streams {
        let bytes = rest(stream).await;
        let text = String::from_utf8_lossy(&bytes);
        if text.starts_with("HTTP/1.1 101 ") {
            assert!(text.contains("invalid_api_key") || text.contains("rate_limit_exceeded"), "{text}");
            assert!(bytes.windows(2).any(|two| two == 3000_u16.to_be_bytes()), "no close with 3000: {text}");
            n_turned_away += 1;
        } else {
            assert!(text.is_empty() || text.starts_with("HTTP/1.1 429 "), "{text}");
        }
    }
    assert!(n_turned_away > 0, "none was turned away with an error");
}

/// What the hub has sent by the end of the connection.
async fn rest(stream: &mut TcpStream) -> Vec<u8> {
    let mut bytes = Vec::new();
    let _ = timeout(TEST_TIMEOUT, stream.read_to_end(&mut bytes)).await.expect("the hub ends the connection");
    bytes
}

async fn refused(party: Party, head: Vec<u8>, statuses: &'static [u16]) {
    let mut stream = party.tcp().await;
    let _ = stream.write_all(&head).await;
    party.beside().await;
    // What is not a request may be waited for to its end.
    let _ = stream.shutdown().await;
    let bytes = rest(&mut stream).await;
    let status = parse(&bytes).map_or(0, |answer| answer.status);
    assert!(statuses.contains(&status), "{status} instead of {statuses:?}: {}", String::from_utf8_lossy(&bytes));
}
