//! The hub's WebSocket: its limits, and how a client's mistake is answered.
//!
//! [`realtime`](super::realtime) runs every session on it, and `examples/ws_echo.rs` an echo, so that what a test suite
//! proves about the echo holds for the hub. It reads no message and knows no session.

use axum::extract::ws::WebSocketUpgrade;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::Response;
use tokio_tungstenite::tungstenite::Error as WsError;
use tokio_tungstenite::tungstenite::error::ProtocolError;

/// The longest message of a client, and the longest frame.
pub const MAX_MESSAGE_BYTES: usize = 16 * 1024 * 1024;
/// Read at once from a socket, and kept for each connection (the library's default is 128 KiB).
const READ_BUFFER_BYTES: usize = 4 * 1024;
/// Written at once to a socket; every message is flushed anyway.
const WRITE_BUFFER_BYTES: usize = 4 * 1024;
/// A bound on what the library may buffer for a socket that takes nothing: one message of the largest kind.
const MAX_WRITE_BUFFER_BYTES: usize = MAX_MESSAGE_BYTES + 1024 * 1024;

/// The hub's limits for a connection about to be upgraded.
pub fn configured(upgrade: WebSocketUpgrade) -> WebSocketUpgrade {
    upgrade
        .read_buffer_size(READ_BUFFER_BYTES)
        .write_buffer_size(WRITE_BUFFER_BYTES)
        .max_write_buffer_size(MAX_WRITE_BUFFER_BYTES)
        .max_message_size(MAX_MESSAGE_BYTES)
        .max_frame_size(MAX_MESSAGE_BYTES)
}

/// The close code and reason for a client's mistake, after RFC 6455, section 7.4.1; `None` when the connection itself is
/// gone.
pub fn close_for(error: axum::Error) -> Option<(u16, &'static str)> {
    match error.into_inner().downcast_ref::<WsError>()? {
        WsError::Capacity(_) => Some((1009, "a message holds at most 16 MiB")),
        WsError::Utf8(_) => Some((1007, "a text message must be UTF-8")),
        WsError::Protocol(error) if !is_gone(error) => Some((1002, "this breaks the WebSocket protocol")),
        _ => None,
    }
}

/// A refused handshake names the version that would do, after RFC 6455, section 4.4.
pub(super) async fn with_version(mut response: Response) -> Response {
    if response.status() == StatusCode::BAD_REQUEST {
        response.headers_mut().insert(header::SEC_WEBSOCKET_VERSION, HeaderValue::from_static("13"));
    }
    response
}

fn is_gone(error: &ProtocolError) -> bool {
    matches!(error, ProtocolError::ResetWithoutClosingHandshake | ProtocolError::SendAfterClosing)
}
