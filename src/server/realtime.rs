//! `WS /v1/realtime`: one connection, one session.
//!
//! The reader parses and hands over, the writer takes from the egress log; both end with the connection, and the
//! session with them. Nothing is dropped: while a session is behind, its socket is not read.

use super::app::App;
use super::guard::refused;
use super::websocket;
use crate::session::{AudioMode, Close, Egress, Handle, Inbound, Message, Opening};
use crate::wire::{Dialect, SessionKind};
use axum::extract::ws::{CloseFrame, Message as WsMessage, WebSocket, WebSocketUpgrade};
use axum::extract::{Query, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::Response;
use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{SinkExt, StreamExt};
use serde::Deserialize;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::timeout;

/// A session that takes nothing for this long is not going to.
const STUCK: Duration = Duration::from_secs(10);
/// How long a client may take to answer a close.
const CLOSING: Duration = Duration::from_secs(1);
/// How long what was said before a close may take to leave.
const LAST_MESSAGES: Duration = Duration::from_secs(2);
/// When a refused client may try again.
const RETRY_AFTER_SECONDS: &str = "5";

/// The query of the address. What is unknown is left alone: SDKs add their own.
#[derive(Debug, Deserialize)]
pub(super) struct Params {
    model: Option<String>,
    audio: Option<String>,
    intent: Option<String>,
}

/// The handler: admission, then the upgrade.
pub(super) async fn upgrade(
    State(app): State<Arc<App>>,
    Query(params): Query<Params>,
    headers: HeaderMap,
    ws: WebSocketUpgrade,
) -> Response {
    let mode = match params.audio.as_deref() {
        None => AudioMode::Events,
        Some("pcm16") => AudioMode::Pcm16,
        Some("opus") => AudioMode::Opus,
        Some(other) => {
            let message = format!("Invalid value: '{other}' for 'audio'. Supported values are: 'opus' and 'pcm16'.");
            return refused(StatusCode::BAD_REQUEST, "invalid_value", message);
        }
    };
    let intent = match params.intent.as_deref() {
        None => None,
        Some("realtime") => Some(SessionKind::Realtime),
        Some("transcription") => Some(SessionKind::Transcription),
        Some(other) => {
            let message =
                format!("Invalid value: '{other}' for 'intent'. Supported values are: 'realtime' and 'transcription'.");
            return refused(StatusCode::BAD_REQUEST, "invalid_value", message);
        }
    };
    let opening = Opening {
        mode,
        dialect: Dialect { beta: asks_for_beta(&headers), ..app.dialect() },
        model: params.model,
        intent,
        expires_at: 0,
    };
    let Some(permit) = app.admit() else {
        app.setup.metrics.session_rejected();
        let message = "Every session of this server is taken. Try again soon.";
        let mut response = refused(StatusCode::SERVICE_UNAVAILABLE, "server_full", message);
        response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static(RETRY_AFTER_SECONDS));
        return response;
    };
    let tasks = app.setup.tasks.clone();
    websocket::configured(ws)
        .protocols(["realtime"])
        .on_upgrade(move |socket| tasks.track_future(connection(app, socket, opening, permit)))
}

/// Whether the client speaks the names before GA: it says so in a header, or, a browser, by a subprotocol.
fn asks_for_beta(headers: &HeaderMap) -> bool {
    let any = |name: &str, wanted: &str| {
        let values = headers.get_all(name).iter().filter_map(|value| value.to_str().ok());
        values.flat_map(|value| value.split(',')).any(|value| value.trim() == wanted)
    };
    any("openai-beta", "realtime=v1") || any("sec-websocket-protocol", "openai-beta.realtime-v1")
}

async fn connection(app: Arc<App>, socket: WebSocket, opening: Opening, _permit: OwnedSemaphorePermit) {
    let (mode, dialect) = (opening.mode, opening.dialect);
    let _counted = app.setup.metrics.session();
    let life = Duration::from_secs(60 * u64::from(app.setup.session.max_minutes));
    let expires_at = (SystemTime::now() + life).duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let handle = app.setup.open(Opening { expires_at, ..opening });
    let id = handle.id.clone();
    app.sessions.insert(id.clone(), mode);
    tracing::info!(session = %id, ?mode, "connected");
    let (sink, stream) = socket.split();
    let (mut sink, mut stream) = (sink, stream);
    tokio::select! {
        () = read(&app, &mut stream, &handle, dialect) => {}
        () = write(&mut sink, &handle.egress) => {}
        () = async { handle.egress.closed().await; tokio::time::sleep(LAST_MESSAGES).await } => {}
        () = app.kill.cancelled() => {
            let _ = timeout(CLOSING, sink.send(going_away())).await;
        }
    }
    drop(handle);
    app.sessions.remove(&id);
    // The library answers and awaits the other side's close while it is read.
    let _ = timeout(CLOSING, async { while let Some(Ok(_)) = stream.next().await {} }).await;
    tracing::info!(session = %id, "disconnected");
}

/// Hands messages over until the client is gone. A client that breaks the protocol is told so by the writer.
async fn read(app: &App, stream: &mut SplitStream<WebSocket>, handle: &Handle, dialect: Dialect) {
    while let Some(message) = stream.next().await {
        let inbound = match message {
            Ok(WsMessage::Text(text)) => {
                let Some(budget) = share(app, handle, text.len()).await else { return std::future::pending().await };
                Inbound::text(text.as_str(), dialect, Some(budget))
            }
            Ok(WsMessage::Binary(bytes)) => {
                let Some(budget) = share(app, handle, bytes.len()).await else { return std::future::pending().await };
                Inbound::binary(bytes, Some(budget))
            }
            Ok(WsMessage::Ping(_) | WsMessage::Pong(_)) => continue,
            Ok(WsMessage::Close(_)) => return,
            Err(error) => {
                let Some((code, reason)) = websocket::close_for(error) else { return };
                handle.egress.close(Close { code, reason });
                return std::future::pending().await;
            }
        };
        match timeout(STUCK, handle.inbound.send(inbound)).await {
            Ok(Ok(())) => {}
            // The session is over; the writer has its last words.
            Ok(Err(_)) => return std::future::pending().await,
            Err(_) => {
                handle.egress.close(Close { code: 1013, reason: "the session cannot keep up" });
                return std::future::pending().await;
            }
        }
    }
}

/// Waits for a message's share of the inbound budget; closes the session when none comes.
async fn share(app: &App, handle: &Handle, bytes: usize) -> Option<OwnedSemaphorePermit> {
    let share = timeout(STUCK, app.budget(bytes)).await.ok();
    if share.is_none() {
        handle.egress.close(Close { code: 1013, reason: "the server cannot keep up" });
    }
    share
}

/// Sends what the session gives until it closes or the client takes nothing more.
async fn write(sink: &mut SplitSink<WebSocket, WsMessage>, egress: &Egress) {
    loop {
        let sent = match egress.next().await {
            Ok(Message::Text(text)) => sink.send(WsMessage::Text(text.into())).await,
            Ok(Message::Binary(bytes)) => sink.send(WsMessage::Binary(bytes)).await,
            Err(Close { code, reason }) => {
                let frame = CloseFrame { code, reason: reason.into() };
                let _ = timeout(CLOSING, sink.send(WsMessage::Close(Some(frame)))).await;
                return;
            }
        };
        if sent.is_err() {
            return;
        }
    }
}

fn going_away() -> WsMessage {
    WsMessage::Close(Some(CloseFrame { code: 1001, reason: "the server is going away".into() }))
}
