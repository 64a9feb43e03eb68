//! An echo server on the hub's own WebSocket code: `cargo run --example ws_echo -- 127.0.0.1:9001`.
//!
//! For WebSocket test suites. Their results apply to the hub, because limits and reactions to protocol errors are the
//! hub's own ([`antiphon::server::websocket`]). It accepts any path. `tests/rfc6455/` also runs it.

use antiphon::server::websocket::{close_for, configured};
use axum::extract::ws::{CloseFrame, Message, WebSocket, WebSocketUpgrade};
use axum::routing::any;
use std::time::Duration;
use tokio::net::TcpListener;

/// Timeout for the client's reply to a close frame.
const CLOSING: Duration = Duration::from_secs(1);

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:9001".into());
    let listener = TcpListener::bind(&address).await?;
    #[allow(clippy::print_stdout)]
    {
        println!("listening on ws://{}", listener.local_addr()?);
    }
    Ok(serve(listener).await?)
}

/// Serves until the future is dropped.
pub async fn serve(listener: TcpListener) -> std::io::Result<()> {
    let upgrade = any(|upgrade: WebSocketUpgrade| async { configured(upgrade).on_upgrade(echo) });
    axum::serve(listener, axum::Router::new().fallback_service(upgrade)).await
}

async fn echo(mut socket: WebSocket) {
    while let Some(message) = socket.recv().await {
        let sent = match message {
            Ok(message @ (Message::Text(_) | Message::Binary(_))) => socket.send(message).await,
            // The library replies to pings and close frames.
            Ok(_) => Ok(()),
            Err(error) => {
                let Some((code, reason)) = close_for(error) else { return };
                socket.send(Message::Close(Some(CloseFrame { code, reason: reason.into() }))).await
            }
        };
        if sent.is_err() {
            break;
        }
    }
    let last = async { while let Some(Ok(_)) = socket.recv().await {} };
    let _ = tokio::time::timeout(CLOSING, last).await;
}
