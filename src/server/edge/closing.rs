//! How a WebSocket of the server ends: the close frame, and the closing handshake.
//!
//! Sessions, transports and rejections use it. It reads no message.

use axum::extract::ws::{CloseFrame, Message as WsMessage, WebSocket};
use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{SinkExt, StreamExt};
use std::time::Duration;
use tokio::time::timeout;

/// Timeout for sending a close frame, and for the peer's reply to it.
pub(in crate::server) const CLOSING: Duration = Duration::from_secs(1);

/// Ends a WebSocket, whichever side closes it: sends `close`, if the hub has something to say, and reads until the peer has
/// closed. The library answers a close frame of the peer, and completes the closing handshake, only while the socket is read.
/// Every WebSocket of the server ends with this. Takes at most twice [`CLOSING`].
pub(in crate::server) async fn finish(
    sink: &mut SplitSink<WebSocket, WsMessage>,
    stream: &mut SplitStream<WebSocket>,
    close: Option<WsMessage>,
) {
    if let Some(close) = close {
        let _ = timeout(CLOSING, sink.send(close)).await;
    }
    let _ = timeout(CLOSING, async { while let Some(Ok(_)) = stream.next().await {} }).await;
}

/// A close frame.
pub(in crate::server) fn close(code: u16, reason: &'static str) -> WsMessage {
    WsMessage::Close(Some(CloseFrame { code, reason: reason.into() }))
}
