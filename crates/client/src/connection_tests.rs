//! Addresses, and the error messages of failed connections.

use super::*;
use antiphon_test_server::{Answer, TestServer, unused_address};

fn address(url: &str, mode: AudioMode, model: Option<&str>) -> String {
    let options = ConnectOptions { mode, model: model.map(str::to_owned), ..ConnectOptions::new(url) };
    options.request(None).unwrap().uri().to_string()
}

#[test]
fn addresses_are_completed() {
    let check = |url: &str, expect: &str| assert_eq!(address(url, AudioMode::Ga, None), expect);
    check("http://127.0.0.1:8080", "ws://127.0.0.1:8080/v1/realtime");
    check("https://hub.example/", "wss://hub.example/v1/realtime");
    check("ws://hub:1/a/b?x=1", "ws://hub:1/a/b?x=1");
    assert_eq!(address("ws://h", AudioMode::Opus, None), "ws://h/v1/realtime?audio=opus");
    assert_eq!(address("ws://h?x=1", AudioMode::Pcm16, Some("m")), "ws://h/v1/realtime?x=1&model=m&audio=pcm16");
    let mut options = ConnectOptions::new("ws://h");
    options.resume = true;
    assert_eq!(options.request(None).unwrap().uri(), "ws://h/v1/realtime?resume=1");
    let ticket = Ticket { key: "rk_1".into(), within: Duration::from_secs(30), received: 7 };
    let back = options.request(Some(&ticket)).unwrap();
    assert_eq!(back.uri(), "ws://h/v1/realtime?resume=1", "no key in the address");
    assert_eq!(back.headers()["sec-websocket-protocol"], "realtime, antiphon-resume.rk_1.7");
    for bad in ["", "hub:8080", "ftp://hub", "http://"] {
        let error = ConnectOptions::new(bad).request(None).unwrap_err();
        assert!(matches!(error, ClientError::BadUrl { .. }), "{bad}: {error}");
    }
}

#[test]
fn a_key_travels_as_a_bearer() {
    let mut options = ConnectOptions::new("ws://h");
    options.key = Some("k1".into());
    assert_eq!(options.request(None).unwrap().headers()["Authorization"], "Bearer k1");
    options.key = Some("bad\nkey".into());
    let error = options.request(None).unwrap_err().to_string();
    assert!(error.contains("the key holds") && !error.contains("bad\nkey"), "{error}");
}

/// Connects to a server that answers the handshake with `response`.
async fn refused_with(response: &'static str) -> ClientError {
    let server = TestServer::start(move |_| Answer::raw(response));
    connect(&ConnectOptions::new(server.url(""))).await.err().expect("it was refused")
}

#[tokio::test]
async fn refusals_are_told_in_words() {
    let full = "HTTP/1.1 503 Service Unavailable\r\nRetry-After: 5\r\nContent-Length: 0\r\n\r\n";
    assert_eq!(refused_with(full).await.to_string(), "the server is full; try again in 5 s");
    let away = "HTTP/1.1 503 Service Unavailable\r\nRetry-After: 2\r\nContent-Length: 52\r\n\r\n\
        {\"error\":{\"message\":\"The engines are not there.\"}}   ";
    assert_eq!(refused_with(away).await.to_string(), "The engines are not there; try again in 2 s");
    let forbidden = "HTTP/1.1 403 Forbidden\r\nContent-Length: 14\r\n\r\nnot from there";
    let error = refused_with(forbidden).await;
    assert_eq!(error.to_string(), "the server refused the connection with HTTP 403: not from there");
    let no_http = refused_with("SSH-2.0\r\n\r\n").await;
    assert!(matches!(no_http, ClientError::CannotConnect { .. }), "{no_http}");
}

#[tokio::test]
async fn nobody_there_is_told_in_words() {
    let address = unused_address();
    let error = connect(&ConnectOptions::new(format!("http://{address}"))).await.err().expect("no server listens");
    assert_eq!(error.to_string(), format!("cannot connect to ws://{address}/v1/realtime"));
    assert!(std::error::Error::source(&error).is_some());
}
