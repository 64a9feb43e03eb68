//! A hub over TCP that follows a test's script: it takes connections, resumes sessions and ends them.

use super::{AudioMode, ConnectOptions};
use antiphon_protocol::frame::{Frame, FrameKind};
use antiphon_types::{ItemId, Samples};
use bytes::Bytes;
use futures_util::{SinkExt, StreamExt};
use serde_json::{Value, json};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::handshake::server::{ErrorResponse, Request, Response};
use tokio_tungstenite::tungstenite::protocol::CloseFrame;
use tokio_tungstenite::{WebSocketStream, accept_hdr_async};

const TEST_TIMEOUT: Duration = Duration::from_secs(20);
pub(crate) const KEY: &str = "rk_1";

pub(crate) struct Hub {
    listener: TcpListener,
    pub(crate) options: ConnectOptions,
}

/// One connection of a client.
pub(crate) struct Peer {
    socket: WebSocketStream<TcpStream>,
    /// The number in its ticket; `None`: it opens a new session.
    pub(crate) named: Option<u64>,
}

impl Hub {
    pub(crate) async fn start(mode: AudioMode) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        Self { listener, options: ConnectOptions { mode, resume: true, ..ConnectOptions::new(url) } }
    }

    pub(crate) async fn accept(&self) -> Peer {
        let (stream, _) = timeout(TEST_TIMEOUT, self.listener.accept()).await.expect("a client connects").unwrap();
        let mut named = None;
        #[allow(clippy::result_large_err, reason = "the type is given by the library")]
        let read = |request: &Request, mut response: Response| -> Result<Response, ErrorResponse> {
            if let Some(offers) = request.headers().get("sec-websocket-protocol") {
                let ticket = offers.to_str().unwrap().strip_prefix(&format!("realtime, antiphon-resume.{KEY}."));
                named = Some(ticket.expect("a ticket").parse().unwrap());
                response.headers_mut().insert("sec-websocket-protocol", "realtime".parse().unwrap());
            }
            Ok(response)
        };
        let socket = accept_hdr_async(stream, read).await.unwrap();
        Peer { socket, named }
    }

    /// Answers one connection with an HTTP status.
    pub(crate) async fn refuse(&self, status: &str) {
        assert!(self.refuse_within(TEST_TIMEOUT, status).await, "no client connected");
    }

    /// The same; `false` if no client connects within `limit`.
    pub(crate) async fn refuse_within(&self, limit: Duration, status: &str) -> bool {
        let Ok(accepted) = timeout(limit, self.listener.accept()).await else { return false };
        let (mut stream, _) = accepted.unwrap();
        assert!(stream.read(&mut [0; 4096]).await.unwrap() > 0);
        stream.write_all(format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n").as_bytes()).await.unwrap();
        true
    }

    /// Takes one connection and drops it.
    pub(crate) async fn drop_one(&self) {
        timeout(TEST_TIMEOUT, self.listener.accept()).await.expect("a client connects").unwrap();
    }

    /// Whether a client connects within 300 ms.
    pub(crate) async fn is_asked(&self) -> bool {
        timeout(Duration::from_millis(300), self.listener.accept()).await.is_ok()
    }
}

impl Peer {
    pub(crate) async fn event(&mut self, event: Value) {
        // A client that has gone is noticed where the test reads.
        let _ = self.socket.send(Message::text(event.to_string())).await;
    }

    /// Messages 1 and 2 of a session.
    pub(crate) async fn begin(&mut self, within_s: u64) {
        self.event(json!({"type": "session.created", "session": {}})).await;
        self.event(json!({"type": "antiphon.session.resumable", "key": KEY, "within_s": within_s})).await;
    }

    pub(crate) async fn resumed(&mut self, after: u64, received: u64) {
        self.event(json!({"type": "antiphon.session.resumed", "after": after, "received": received})).await;
    }

    pub(crate) async fn checkpoint(&mut self, received: u64) {
        self.event(json!({"type": "antiphon.session.checkpoint", "received": received})).await;
    }

    /// A reply frame of PCM16.
    pub(crate) async fn frame(&mut self, sequence: u32, samples: &[i16]) {
        let payload: Vec<u8> = samples.iter().flat_map(|sample| sample.to_le_bytes()).collect();
        let kind = FrameKind::Reply { item_id: ItemId::from("a") };
        let frame = Frame { kind, sequence, offset: Samples::ZERO, payload: Bytes::from(payload) };
        let _ = self.socket.send(Message::Binary(frame.encode().unwrap())).await;
    }

    /// The next text or binary message.
    pub(crate) async fn take(&mut self) -> Message {
        loop {
            match timeout(TEST_TIMEOUT, self.socket.next()).await.expect("a message").expect("it is connected").unwrap()
            {
                message @ (Message::Text(_) | Message::Binary(_)) => return message,
                Message::Close(frame) => panic!("closed: {frame:?}"),
                _ => {}
            }
        }
    }

    pub(crate) async fn take_n(&mut self, n: usize) -> Vec<Message> {
        let mut messages = Vec::new();
        while messages.len() < n {
            messages.push(self.take().await);
        }
        messages
    }

    /// The next message, if the connection is not at its end.
    pub(crate) async fn try_take(&mut self) -> Option<Message> {
        loop {
            match self.socket.next().await {
                Some(Ok(message @ (Message::Text(_) | Message::Binary(_)))) => return Some(message),
                Some(Ok(Message::Close(_)) | Err(_)) | None => return None,
                Some(Ok(_)) => {}
            }
        }
    }

    pub(crate) async fn close(mut self, code: u16, reason: &str) {
        let frame = CloseFrame { code: code.into(), reason: reason.to_owned().into() };
        self.socket.close(Some(frame)).await.unwrap();
        while self.try_take().await.is_some() {}
    }
}
