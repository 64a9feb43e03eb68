//! WebSocket frames over a bare TCP socket, so that they can be invalid.

use std::net::SocketAddr;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// Longer than any step here takes, so that a test that hangs fails.
const TEST_TIMEOUT: Duration = Duration::from_secs(20);
/// The key of RFC 6455, section 1.3, and the required reply to it.
const KEY: &str = "dGhlIHNhbXBsZSBub25jZQ==";
const ACCEPT: &str = "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=";
const MASK: [u8; 4] = [0x37, 0xfa, 0x21, 0x3d];

pub const FIN: u8 = 0x80;
pub const CONTINUATION: u8 = 0;
pub const TEXT: u8 = 1;
pub const BINARY: u8 = 2;
pub const CLOSE: u8 = 8;
pub const PING: u8 = 9;
pub const PONG: u8 = 10;

/// A server's reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    Text(String),
    Binary(Vec<u8>),
    Pong(Vec<u8>),
    /// A close and its code.
    Close(Option<u16>),
}

/// A masked frame with the shortest length encoding.
pub fn frame(first: u8, payload: &[u8]) -> Vec<u8> {
    let length = match payload.len() {
        short @ 0..=125 => vec![0x80 | short as u8],
        medium @ 126..=0xffff => [&[0xfe][..], &(medium as u16).to_be_bytes()].concat(),
        long => [&[0xff][..], &(long as u64).to_be_bytes()].concat(),
    };
    if payload.len() > 0xffff {
        // An all-zero mask is valid and leaves the payload unchanged.
        return [&[first][..], &length, &[0; 4], payload].concat();
    }
    let masked = payload.iter().zip(MASK.iter().cycle()).map(|(byte, mask)| byte ^ mask);
    [&[first][..], &length, &MASK].concat().into_iter().chain(masked).collect()
}

/// A complete text message.
pub fn text(payload: &str) -> Vec<u8> {
    frame(FIN | TEXT, payload.as_bytes())
}

/// A close with this code and reason.
pub fn close(code: u16, reason: &[u8]) -> Vec<u8> {
    frame(FIN | CLOSE, &[&code.to_be_bytes(), reason].concat())
}

/// A connection.
pub struct Raw {
    stream: TcpStream,
}

impl Raw {
    /// Performs the opening handshake; `early` is sent before its reply arrives.
    pub async fn open(address: SocketAddr, early: &[u8]) -> Self {
        let (head, raw) = Self::request(address, &handshake(address, 13), early).await;
        assert!(head.starts_with("HTTP/1.1 101 "), "{head}");
        assert!(
            head.lines().any(|line| line.eq_ignore_ascii_case(&format!("sec-websocket-accept: {ACCEPT}"))),
            "{head}"
        );
        assert!(!head.to_lowercase().contains("sec-websocket-extensions"), "nobody asked for one: {head}");
        raw
    }

    /// Sends any request; returns the head of its response.
    pub async fn request(address: SocketAddr, request: &str, early: &[u8]) -> (String, Self) {
        let mut stream = TcpStream::connect(address).await.expect("the server listens");
        stream.write_all(&[request.as_bytes(), early].concat()).await.expect("the server reads");
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(timeout(TEST_TIMEOUT, stream.read_u8()).await.expect("an answer").expect("a whole head"));
        }
        (String::from_utf8(head).expect("ASCII"), Self { stream })
    }

    /// Sends bytes. A server that has already closed rejects them, which is not an error here.
    pub async fn send(&mut self, bytes: &[u8]) {
        let _ = timeout(TEST_TIMEOUT, self.stream.write_all(bytes)).await.expect("the server reads");
    }

    /// The next message; `None` at the end of the connection.
    pub async fn next(&mut self) -> Option<Reply> {
        timeout(TEST_TIMEOUT, self.read()).await.expect("something comes")
    }

    async fn read(&mut self) -> Option<Reply> {
        let first = self.stream.read_u8().await.ok()?;
        let length = match self.stream.read_u8().await.ok()? {
            126 => u64::from(self.stream.read_u16().await.ok()?),
            127 => self.stream.read_u64().await.ok()?,
            masked @ 128.. => panic!("a server must not mask: {masked:#x}"),
            short => u64::from(short),
        };
        let mut payload = vec![0; length as usize];
        self.stream.read_exact(&mut payload).await.ok()?;
        assert_eq!(first & 0xf0, FIN, "whole frames without reserved bits");
        Some(match first & 0x0f {
            TEXT => Reply::Text(String::from_utf8(payload).expect("UTF-8")),
            BINARY => Reply::Binary(payload),
            PONG => Reply::Pong(payload),
            CLOSE => Reply::Close(payload.first_chunk().map(|code| u16::from_be_bytes(*code))),
            other => panic!("a frame of kind {other}"),
        })
    }
}

/// A handshake with this version.
pub fn handshake(address: SocketAddr, version: u8) -> String {
    format!(
        "GET /v1/realtime HTTP/1.1\r\nHost: {address}\r\nUpgrade: websocket\r\nConnection: keep-alive, Upgrade\r\n\
         Sec-WebSocket-Key: {KEY}\r\nSec-WebSocket-Version: {version}\r\n\
         Sec-WebSocket-Extensions: permessage-deflate; client_max_window_bits\r\n\r\n"
    )
}
