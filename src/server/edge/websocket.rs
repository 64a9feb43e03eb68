//! The hub's WebSocket: its limits, and the close codes for a client's errors.
//!
//! [`realtime`](crate::server::sessions::realtime) uses it for every session, and `examples/ws_echo.rs` for an echo
//! server, so that a conformance suite's results for the echo server apply to the hub. It reads no message and does not
//! depend on sessions.

use axum::extract::ws::WebSocketUpgrade;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::Response;
use tokio_tungstenite::tungstenite::Error as WsError;
use tokio_tungstenite::tungstenite::error::ProtocolError;

/// Maximum size of a client's message, and of a frame, in bytes.
pub const MAX_MESSAGE_BYTES: usize = 16 * 1024 * 1024;
/// Read buffer per connection (the library's default is 128 KiB).
const READ_BUFFER_BYTES: usize = 4 * 1024;
/// Write buffer per connection; every message is flushed anyway.
const WRITE_BUFFER_BYTES: usize = 4 * 1024;
/// Maximum bytes that the library buffers for a client that does not read: one message of the maximum size.
const MAX_WRITE_BUFFER_BYTES: usize = MAX_MESSAGE_BYTES + 1024 * 1024;

/// Applies the hub's limits to a connection that is about to be upgraded.
pub fn configured(upgrade: WebSocketUpgrade) -> WebSocketUpgrade {
    upgrade
        .read_buffer_size(READ_BUFFER_BYTES)
        .write_buffer_size(WRITE_BUFFER_BYTES)
        .max_write_buffer_size(MAX_WRITE_BUFFER_BYTES)
        .max_message_size(MAX_MESSAGE_BYTES)
        .max_frame_size(MAX_MESSAGE_BYTES)
}

/// The close code and reason for a client's error, after RFC 6455, section 7.4.1; `None` if the connection itself is
/// gone.
pub fn close_for(error: axum::Error) -> Option<(u16, &'static str)> {
    match error.into_inner().downcast_ref::<WsError>()? {
        WsError::Capacity(_) => Some((1009, "a message holds at most 16 MiB")),
        WsError::Utf8(_) => Some((1007, "a text message must be UTF-8")),
        WsError::Protocol(error) if !is_gone(error) => Some((1002, "WebSocket protocol violation")),
        _ => None,
    }
}

/// Adds the supported version to a rejected handshake, after RFC 6455, section 4.4.
pub(in crate::server) async fn with_version(mut response: Response) -> Response {
    if response.status() == StatusCode::BAD_REQUEST {
        response.headers_mut().insert(header::SEC_WEBSOCKET_VERSION, HeaderValue::from_static("13"));
    }
    response
}

fn is_gone(error: &ProtocolError) -> bool {
    matches!(error, ProtocolError::ResetWithoutClosingHandshake | ProtocolError::SendAfterClosing)
}
