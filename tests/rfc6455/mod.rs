//! RFC 6455 case by case, with hand-made frames: each against an echo server on the hub's own WebSocket
//! (`examples/ws_echo.rs`), and against the hub itself. The groups follow the Autobahn test suite.

mod cases;
mod raw;
#[path = "../../examples/ws_echo.rs"]
#[allow(dead_code)]
mod ws_echo;

use crate::hub::hub;
use cases::{Case, close_codes, control, fragments, framing, lengths, utf8};
use raw::{BINARY, FIN, PING, Raw, Reply, frame, handshake, text};
use std::net::SocketAddr;
use tokio::net::TcpListener;

#[allow(clippy::disallowed_methods)]
async fn echo() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = listener.local_addr().expect("bound");
    tokio::spawn(ws_echo::serve(listener));
    address
}

/// Checks every case against the echo server: the replies in order, then a closed connection or an open one.
async fn check(cases: Vec<Case>) {
    let address = echo().await;
    for Case { name, sent, said } in cases {
        let mut raw = Raw::open(address, &[]).await;
        raw.send(&sent).await;
        for expected in &said {
            assert_eq!(raw.next().await.as_ref(), Some(expected), "{name}");
        }
        if matches!(said.last(), Some(Reply::Close(_))) {
            assert_eq!(raw.next().await, None, "{name}: the server ends the connection");
        } else {
            raw.send(&text("Still there?")).await;
            assert_eq!(raw.next().await, Some(Reply::Text("Still there?".into())), "{name}: the connection lives");
        }
    }
}

#[tokio::test]
async fn frames_are_read_as_written() {
    check(framing()).await;
}

#[tokio::test]
async fn lengths_of_every_form() {
    check(lengths()).await;
}

#[tokio::test]
async fn control_frames() {
    check(control()).await;
}

#[tokio::test]
async fn fragmented_messages() {
    check(fragments()).await;
}

#[tokio::test]
async fn text_is_utf8() {
    check(utf8()).await;
}

#[tokio::test]
async fn closing_codes() {
    check(close_codes()).await;
}

#[tokio::test]
async fn the_hub_answers_as_the_echo_does() {
    let hub = hub("", "x").await;
    let all = [framing(), lengths(), control(), fragments(), utf8(), close_codes()];
    for Case { name, sent, said } in all.into_iter().flatten() {
        let mut raw = Raw::open(hub.address, &[]).await;
        raw.send(&sent).await;
        raw.send(&frame(FIN | PING, b"Still there?")).await;
        let last = said.last().filter(|last| matches!(last, Reply::Close(_)));
        let expected = last.cloned().unwrap_or(Reply::Pong(b"Still there?".to_vec()));
        loop {
            // Protocol events arrive in between.
            match raw.next().await {
                Some(said) if said == expected => break,
                Some(Reply::Close(code)) => panic!("{name}: closed with {code:?}"),
                Some(_) => {}
                None => panic!("{name}: gone without a close"),
            }
        }
    }
    hub.until("antiphon_sessions_active ", 0.0).await;
    hub.stop().await;
}

#[tokio::test]
async fn frames_in_pieces_and_frames_at_once() {
    let address = echo().await;
    let mut raw = Raw::open(address, &text("Sent with the handshake.")).await;
    assert_eq!(raw.next().await, Some(Reply::Text("Sent with the handshake.".into())));
    for byte in [frame(FIN | BINARY, &[7; 200]), text("Byte by byte: κόσμε.")].concat() {
        raw.send(&[byte]).await;
    }
    assert_eq!(raw.next().await, Some(Reply::Binary(vec![7; 200])));
    assert_eq!(raw.next().await, Some(Reply::Text("Byte by byte: κόσμε.".into())));
    raw.send(&(0..100).flat_map(|i| text(&i.to_string())).collect::<Vec<_>>()).await;
    for i in 0..100 {
        assert_eq!(raw.next().await, Some(Reply::Text(i.to_string())));
    }
}

#[tokio::test]
async fn a_handshake_that_is_none_is_refused() {
    let hub = hub("", "x").await;
    let good = handshake(hub.address, 13);
    let without =
        |name: &str| good.lines().filter(|line| !line.starts_with(name)).collect::<Vec<_>>().join("\r\n") + "\r\n";
    let bad = [
        ("an older version", handshake(hub.address, 8), 400),
        ("no key", without("Sec-WebSocket-Key"), 400),
        ("no upgrade", without("Upgrade"), 400),
        ("no connection", without("Connection"), 400),
        // It may hold the offer of a call by WebRTC.
        ("a POST without an offer", good.replace("GET", "POST"), 400),
        ("a PUT", good.replace("GET", "PUT"), 405),
    ];
    for (name, request, status) in bad {
        let (head, _) = Raw::request(hub.address, &request, &[]).await;
        assert!(head.starts_with(&format!("HTTP/1.1 {status} ")), "{name}: {head}");
        // Section 4.4: a client with another version is told the supported one.
        let names_version = head.to_lowercase().contains("\r\nsec-websocket-version: 13\r\n");
        assert_eq!(names_version, request.starts_with("GET"), "{name}: {head}");
    }
    assert_eq!(hub.metric("antiphon_sessions_active "), 0.0);
}
